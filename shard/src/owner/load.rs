//! Opening a collection on its owner core: the images that its manifest names, and the records of the log above them.

use super::effect::{self, Effect};
use super::indexer::replayed;
use super::owned::CheckpointState;
use super::{Collections, Owned, scrubber};
use crate::catalog::CollectionHandle;
use crate::checkpoint::{Manifest, VectorsFile, collection_dir, read_image, read_last_block};
use crate::env::call_own;
use crate::family::{CollectionConfig, is_of_tokens};
use crate::opening::{ENDING, GiveWay, LogRecords, Opening, replay_bytes};
use ahash::HashSet;
use futures_lite::future::poll_once;
use nigh_engine::collection::{DenseWriter, RowsToFile};
use nigh_engine::record::image::{Record, Records};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Points of which images have so many bytes, at most; `None` where a point may have no vector, so that bytes say little.
fn most_points(config: &CollectionConfig, image_bytes: u64) -> Option<usize> {
    config.dense().map(|config| (image_bytes / (size_of::<f32>() * config.dim) as u64) as usize)
}

/// A collection that is to be opened, as the disk has it.
pub(crate) struct ToLoad {
    pub uid: u64,
    /// `<tenant>/<name>`.
    pub name: String,
    pub config: CollectionConfig,
    /// What its images are, or why it cannot be loaded.
    pub manifest: Result<Manifest, String>,
    /// Its directory may have files that the manifest does not name.
    pub has_strays: bool,
    /// Records of the log above its images.
    pub records_in_log: usize,
}

impl ToLoad {
    /// Bytes of its images.
    pub fn image_bytes(&self) -> u64 {
        self.manifest.iter().flat_map(|manifest| &manifest.images).map(|(_, bytes)| *bytes).sum()
    }

    /// The number up to which its images have everything; all numbers where it is not loaded, so that no record is read for it.
    pub fn covered(&self) -> u64 {
        self.manifest.as_ref().map_or(u64::MAX, |manifest| manifest.seq)
    }
}

/// What became of a collection.
pub(crate) enum Loaded {
    /// It serves, or is damaged or closed.
    Open {
        /// What every core knows of it.
        handle: Arc<CollectionHandle>,
        /// Bytes of images and log records that were read for it.
        read: u64,
    },
    /// It does not fit into memory, and may not be closed yet. Nothing is left of it.
    Refused,
}

/// Whether a file in the directory of a collection is an image or a file of vectors that its manifest does not name, or half of a replacement.
pub(crate) fn is_stray(name: &Path, manifest: &Manifest) -> bool {
    let Some(text) = name.to_str() else { return false };
    let mut named = manifest.images.iter().map(|(name, _)| name).chain(&manifest.vectors);
    let is_ours = text.ends_with(".img") || VectorsFile::is_name(text);
    (is_ours && !named.any(|known| known == text)) || text.ends_with(".tmp")
}

/// Slots that are entered into maps and indexes between two looks at the clock: some 100 µs.
const FINISH_STEP: u32 = 64;
/// Collections of so many slots have their rows filed by another core, which takes two messages.
const FILED_BESIDE: u32 = if cfg!(test) { 4 } else { 4096 };

/// Versions that records give. Logs of before 1 was never given twice say 1 again for an id that comes back after a delete; it, and what
/// follows in that life, is raised above what the id had.
#[derive(Default)]
struct Versions {
    raised: HashSet<u64>,
    /// The versions are those of an index of tokens. They encode documents there, so a replay keeps them as they are.
    are_names: bool,
}

impl Versions {
    fn of_record(&mut self, writer: &DenseWriter, id: u64, version: u64) -> u64 {
        if self.are_names {
            return version;
        }
        let (present, last) = writer.points().known_version(id);
        if !present && version > last {
            self.raised.remove(&id);
        } else if !present {
            self.raised.insert(id);
        }
        if self.raised.contains(&id) { version.max(last + 1) } else { version }
    }
}

impl Collections {
    /// Loads a collection on its owner core. Damage is recorded in the handle, not returned: the server goes on. If it does not fit into memory
    /// and `may_close`, it is closed.
    ///
    /// # Errors
    /// Why the node cannot start, or that it is to stop.
    pub(crate) async fn load_collection(
        self: &Rc<Self>,
        what: &ToLoad,
        records: LogRecords,
        may_close: bool,
    ) -> Result<Loaded, String> {
        let (uid, config) = (what.uid, what.config.clone());
        let (manifest, vectors) = match what.manifest.clone() {
            Ok(manifest) => match self.open_vectors(uid, &config, &manifest).await {
                Ok(vectors) => (Ok(manifest), vectors),
                Err(why) => (Err(why), None),
            },
            Err(why) => (Err(why), None),
        };
        // Each stored point takes at least its floats in an image, or a row in a file. Twice the log: what it replaces may be
        // reclaimed late.
        let image_bytes = what.image_bytes();
        let stored = match &vectors {
            Some(vectors) => vectors.rows().await.map_err(|e| e.to_string())?,
            None => most_points(&config, image_bytes).unwrap_or(0),
        };
        let mut slots = stored + 2 * what.records_in_log;
        let mut writer =
            self.ctx().new_writer(&config, vectors.as_ref(), slots).map_err(|e| e.to_string())?;
        let mut opening = Opening::new(self.ctx());
        let (manifest, loaded) = match manifest {
            Err(why) => (Manifest::default(), Err(why)),
            Ok(manifest) => {
                let mut loaded = self.load_images(uid, &manifest, &mut writer, &mut opening).await;
                if loaded.is_err() && !opening.is_refused && !self.ctx().node().progress.is_ending() {
                    // Few points may have high slots: after a mass deletion, or where images hold no floats. That is seldom, and whole images have to
                    // be looked through to know it.
                    let ends = self.slots_of_images(uid, &manifest).await;
                    if ends > writer.points().slots_max() {
                        slots = ends + 2 * what.records_in_log;
                        drop(opening);
                        opening = Opening::new(self.ctx());
                        writer = self
                            .ctx()
                            .new_writer(&config, vectors.as_ref(), slots)
                            .map_err(|e| e.to_string())?;
                        loaded = self.load_images(uid, &manifest, &mut writer, &mut opening).await;
                    }
                }
                (manifest, loaded)
            }
        };
        let loaded = match loaded {
            Ok(()) => self.replay(uid, &mut writer, records, &mut opening).await,
            Err(why) => Err(why),
        };
        let loaded = loaded.and_then(|()| opening.check(&writer, 0));
        if self.ctx().node().progress.is_ending() {
            // Whatever was read, it is not said to be damaged because it was not read to its end.
            return Err(ENDING.to_owned());
        }
        if opening.is_refused && !may_close {
            return Ok(Loaded::Refused);
        }
        if loaded.is_err() {
            // What was read of it serves nobody, and others may need its memory.
            writer = self.ctx().new_writer(&config, vectors.as_ref(), slots).map_err(|e| e.to_string())?;
        }
        let handle = self.ctx().new_handle(uid, what.name.clone(), config, &writer);
        handle.covered_seq.store(manifest.seq, Relaxed);
        // Only a manifest that loaded can say which images are strays: a failing read must not cost a collection.
        if loaded.is_ok() && what.has_strays {
            self.remove_stray_images(uid, &manifest).await;
        }
        if let Err(why) = loaded {
            if opening.is_refused {
                tracing::error!(collection = handle.name, why, "collection is closed and serves nothing");
                handle.is_closed.store(true, Relaxed);
            } else {
                tracing::error!(collection = handle.name, why, "collection is damaged and serves nothing");
            }
            // Set once, here, before anybody else sees the handle.
            let _only_once = handle.damage.set(why);
        }
        let points = replayed(&writer);
        if points > 0 {
            tracing::info!(
                collection = handle.name,
                points,
                "points from the log are being indexed; until then searches compare with each of them"
            );
        }
        let has_dropped = writer.has_skipped_vectors();
        let owned = Owned::new(handle.clone(), &self.ctx().pin(), writer, self.env().now_ns());
        let names = manifest.images.iter().map(|(name, _)| name).chain(&manifest.vectors);
        let numbers = names.filter_map(|name| u64::from_str_radix(name.split('.').next()?, 16).ok());
        let last_file = numbers.max().unwrap_or(0);
        *owned.checkpoint.borrow_mut() =
            CheckpointState { manifest, last_file, has_dropped, ..CheckpointState::default() };
        *owned.vectors.borrow_mut() = vectors.map(Rc::new);
        self.start_owned(owned.clone());
        let read = opening.read;
        drop(opening);
        self.count_opened(&owned);
        if owned.vectors.borrow().is_some() && handle.damage.get().is_none() {
            scrubber::begin(self, owned).await;
        }
        Ok(Loaded::Open { handle, read })
    }

    /// The file of vectors that the manifest names, where the collection has one.
    async fn open_vectors(
        &self,
        uid: u64,
        config: &CollectionConfig,
        manifest: &Manifest,
    ) -> Result<Option<VectorsFile>, String> {
        let Some(config) = config.dense().filter(|config| config.persistent) else { return Ok(None) };
        let disk = self.env().disk().expect("manifests lie on a disk");
        let name = manifest.vectors.as_ref().ok_or("the manifest names no file of vectors")?;
        let opened = VectorsFile::open(&*disk, &collection_dir(uid), name, uid, config).await;
        opened.map(Some).map_err(|error| error.to_string())
    }

    /// Slots that the last image of a manifest ends with, so that the collection opens whatever the memory limit is by now. What cannot be
    /// read counts as none; loading the images says why.
    async fn slots_of_images(&self, uid: u64, manifest: &Manifest) -> usize {
        let disk = self.env().disk().expect("images lie on a disk");
        let Some((name, _)) = manifest.images.last() else { return 0 };
        let mut slots = 0;
        let mut look = |block: &[u8]| {
            for record in Records::new(block) {
                if let (_, Record::End(end)) = record.map_err(|error| error.to_string())? {
                    slots = end.slots as usize;
                }
            }
            Ok(())
        };
        // A later image shows at least as many slots as those before it, so the last one decides.
        match read_last_block(&*disk, &collection_dir(uid), name, uid, &mut look).await {
            Ok(()) => slots,
            Err(_) => 0,
        }
    }

    async fn load_images(
        self: &Rc<Self>,
        uid: u64,
        manifest: &Manifest,
        writer: &mut DenseWriter,
        opening: &mut Opening<'_>,
    ) -> Result<(), String> {
        let disk = self.env().disk().expect("images lie on a disk");
        let dir = collection_dir(uid);
        // A point takes more in memory than in a base image, so that one which does not fit need not be read.
        opening.check(writer, manifest.images.first().map_or(0, |(_, bytes)| *bytes))?;
        let mut refused = None;
        for (number, (name, bytes)) in manifest.images.iter().enumerate() {
            let mut taken = 0;
            let mut take = |block: &[u8]| {
                writer.restore(block).map_err(|e| e.to_string())?;
                taken += block.len() as u64;
                // Later images are of points that are there already.
                if let Some(slots) = (number == 0).then(|| writer.restored_pages_due(taken, *bytes)).flatten()
                {
                    let dense = writer.shared().clone();
                    self.env().spawn_compute(Box::new(move || dense.populate(slots)));
                }
                opening.took(writer, block.len()).inspect_err(|why| refused = Some(why.clone()))
            };
            let read = read_image(&*disk, &dir, name, uid, &mut take).await;
            read.map_err(|error| refused.take().unwrap_or_else(|| error.to_string()))?;
        }
        // Another core files the rows meanwhile, which takes as long as all the rest.
        let rows = if self.env().cores() > 1 { writer.rows_to_file(FILED_BESIDE) } else { None };
        let mut filed = rows.map(|rows| Box::pin(self.file_rows(rows)));
        if let Some(filing) = &mut filed
            && poll_once(filing).await.is_some()
        {
            filed = None;
        }
        let finished = self.finish_images(manifest.seq, writer, opening, &mut filed).await;
        if let Some(filed) = filed {
            // The other core reads what a failure would free.
            filed.await;
        }
        finished?;
        opening.check(writer, 0)
    }

    async fn finish_images(
        &self,
        seq: u64,
        writer: &mut DenseWriter,
        opening: &Opening<'_>,
        filed: &mut Option<Pin<Box<impl Future<Output = ()>>>>,
    ) -> Result<(), String> {
        let mut way = GiveWay::new(self.ctx());
        while writer.finish_restore_step(seq, FINISH_STEP).map_err(|e| e.to_string())? {
            opening.go_on()?;
            match filed.take_if(|_| writer.waits_for_rows()) {
                Some(filed) => filed.await,
                None => way.check().await,
            }
        }
        Ok(())
    }

    /// Has the next core file rows.
    async fn file_rows(self: &Rc<Self>, mut rows: RowsToFile) {
        let to = (self.env().index() + 1) % self.env().cores();
        call_own(self, to, move |there| async move {
            let mut way = GiveWay::new(there.ctx());
            while !there.ctx().node().progress.is_ending() && rows.step(FINISH_STEP) {
                way.check().await;
            }
        })
        .await;
    }

    /// Replays the records of a collection: those at hand, and then one piece after the other of what the log has yet.
    async fn replay(
        self: &Rc<Self>,
        uid: u64,
        writer: &mut DenseWriter,
        mut piece: LogRecords,
        opening: &mut Opening<'_>,
    ) -> Result<(), String> {
        let mut versions = Versions { are_names: is_of_tokens(uid), ..Versions::default() };
        loop {
            let more = std::mem::take(&mut piece.more);
            self.replay_piece(writer, piece, &mut versions, opening).await?;
            if !more {
                return Ok(());
            }
            let (above, most) = (writer.seq(), replay_bytes(self.ctx()));
            piece =
                call_own(self, 0, move |zero| async move { zero.ctx().old_records(uid, above, most).await })
                    .await?;
        }
    }

    async fn replay_piece(
        &self,
        writer: &mut DenseWriter,
        LogRecords { mut records, .. }: LogRecords,
        versions: &mut Versions,
        opening: &mut Opening<'_>,
    ) -> Result<(), String> {
        records.sort_by_key(|(seq, _)| *seq);
        let mut way = GiveWay::new(self.ctx());
        for (seq, body) in &records {
            opening.took(writer, body.len())?;
            let expected = writer.seq() + 1;
            if *seq != expected {
                return Err(format!("the log lacks record {expected} (found {seq} next)"));
            }
            let mut effect = effect::decode(body).map_err(|e| format!("log record {seq}: {e}"))?;
            effect.check(writer).map_err(|why| format!("log record {seq} {why}"))?;
            if let Effect::Write { id, version, .. }
            | Effect::WriteNamed { id, version, .. }
            | Effect::Payload { id, version, .. } = &mut effect
            {
                // Another payload may take another slot too.
                writer.commit_next().map_err(|error| error.to_string())?;
                *version = versions.of_record(writer, *id, *version);
            }
            effect.apply(writer, *seq);
            while writer.points_mut().text_step() {
                way.check().await;
            }
            way.check().await;
        }
        Ok(())
    }

    /// Removes image files and files of vectors that no manifest names, and half-made replacements: checkpoints that a crash interrupted. The latter
    /// could else become a manifest yet, when a later replacement is interrupted in its turn.
    async fn remove_stray_images(&self, uid: u64, manifest: &Manifest) {
        let disk = self.env().disk().expect("images lie on a disk");
        let dir = collection_dir(uid);
        let Ok(names) = disk.list(&dir).await else { return };
        for name in names.iter().filter(|name| is_stray(name, manifest)) {
            if let Err(error) = disk.remove(&dir.join(name)).await {
                tracing::warn!(file = %name.display(), %error, "stray file not removed");
            }
        }
    }
}
