//! Restores an empty data directory to a moment, from the newest snapshots that are not newer than the moment and the later frames of the logs.
//!
//! The directory then is as a process that was killed at the moment would have left it, and the start opens it like any other. Until the restore is
//! complete, the directory has the file [`MARK`], and a start that was not asked for a restore refuses the directory.

use super::catalog_log::{ArchivedCollection, CatalogState, Change, KeysEntry, position_of};
use super::names::{CatalogName, PartName};
use super::options::RestoreMoment;
use super::part;
use super::sender::list;
use super::{CATALOG_UID, DIR};
use crate::alias_file;
use crate::backup::{
    BackupTarget, Names, NodePart, SNAPSHOT, Snapshot, Store, StoreSnapshot, fetch_store, keys_text,
    read_snapshot, read_whole, times,
};
use crate::checkpoint::{Manifest, VectorsFile, collection_dir};
use crate::collection_file;
use crate::core::Core;
use crate::disk::{BLOCK, Disk, DiskFile};
use crate::family::{CollectionConfig, tokens_of};
use crate::kv::{index_file, manifest as keys_manifest};
use crate::log::{KeptFrame, RecordKey, SegmentId, segment_header, split_frames};
use crate::twin;
use ahash::HashMap;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The file that marks a directory as one that is being restored.
pub(crate) const MARK: &str = "restoring";
/// The longest object that is read: a part with one frame that has the longest record.
const PART_BYTES_MAX: usize = 96 << 20;
/// The longest catalog that is read.
const CATALOG_BYTES_MAX: usize = 1 << 30;
/// Frames are read from this long before the oldest snapshot, in case clocks differ, milliseconds.
const MARGIN_MS: u64 = 300_000;

/// Formats a time for people, with milliseconds.
fn shown(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| format!("{unix_ms} ms"), |time| format!("{time:.3}"))
}

/// What is to be restored, and from where.
struct Restore<'a> {
    core: &'a Rc<Core>,
    disk: Rc<dyn Disk>,
    target: BackupTarget,
    store: Rc<dyn Store>,
    names: Names,
    until_ms: u64,
}

/// The catalog at the moment.
struct CatalogThen {
    state: CatalogState,
    /// The uids of the collections in the stored catalog from which it was made.
    stored: BTreeSet<u64>,
    /// The runs whose changes of the catalog are known.
    journaled: BTreeSet<u64>,
}

/// The snapshot from which a collection or the keys are restored.
struct Base {
    key: String,
    snapshot: Snapshot,
    /// When its images were begun, Unix milliseconds. It has every change that was made before.
    begun_ms: u64,
}

/// How far the changes of each collection and each shard of keys are there without a gap, by the uid of its log records.
#[derive(Default)]
struct Reached {
    seqs: HashMap<u64, u64>,
    /// The first sequence number that is missing in each that has a gap.
    gaps: BTreeMap<u64, u64>,
}

impl Reached {
    fn note(&mut self, key: RecordKey) {
        if let Some(seq) = self.seqs.get_mut(&key.collection) {
            match key.seq {
                next if next == *seq + 1 => *seq = next,
                seen if seen <= *seq => {}
                _ => _ = self.gaps.entry(key.collection).or_insert(*seq + 1),
            }
        }
    }
}

/// On core 0, before anything is opened: fills the data directory, if a restore was requested.
///
/// # Errors
/// A sentence: the directory has data; the archive does not have everything for the moment; the store or the disk failed.
pub(crate) async fn restore(core: &Rc<Core>, disk: &Rc<dyn Disk>) -> Result<(), String> {
    let is_begun = match disk.read(Path::new(MARK)).await {
        Ok(_) => true,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(format!("{MARK}: {error}")),
    };
    let Some(RestoreMoment { until_unix_ms }) = core.options().backup.restore else {
        return match is_begun {
            true => Err("the data directory is one that `nigh backup restore -until` has not finished; repeat the restore, or remove the directory".to_owned()),
            false => Ok(()),
        };
    };
    let options = &core.options().backup;
    let target = options.bucket.as_ref().or(options.directory.as_ref()).cloned();
    let target = target.ok_or("a restore needs the store of the backups: -backup-bucket or -backup-dir")?;
    let restore = Restore {
        core,
        disk: disk.clone(),
        store: target.stores.open(),
        names: Names::new(&target.prefix),
        target,
        until_ms: until_unix_ms,
    };
    restore.clear(is_begun).await.map_err(|error| format!("the data directory: {error}"))?;
    restore.run().await?;
    disk.remove(Path::new(MARK)).await.map_err(|error| format!("{MARK}: {error}"))
}

fn io(what: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", what.display())
}

impl Restore<'_> {
    /// Makes sure that the directory is empty, and marks it. What an earlier attempt has left is removed.
    async fn clear(&self, is_begun: bool) -> std::io::Result<()> {
        let aliases = Path::new(alias_file::FILE);
        for dir in ["collections", "log", "keys", DIR].map(Path::new) {
            let is_empty = self.disk.list(dir).await?.is_empty();
            if !is_begun && !is_empty {
                return Err(std::io::Error::other(format!(
                    "it has data in {}; a restore to a moment needs an empty directory",
                    dir.display()
                )));
            }
            self.disk.remove_dir(&twin::copy_of(dir)).await?;
            self.disk.remove_dir(dir).await?;
        }
        self.disk.replace(Path::new(MARK), b"restoring\n").await?;
        self.disk.remove(&twin::copy_of(aliases)).await?;
        self.disk.remove(aliases).await?;
        for dir in ["collections", "log", "keys"] {
            self.disk.create_dir(Path::new(dir)).await?;
        }
        Ok(())
    }

    async fn run(&self) -> Result<(), String> {
        let (parts, catalogs) = list(&*self.store, &self.names).await.map_err(|error| error.to_string())?;
        let catalog = self.catalog_before(&catalogs)?;
        let CatalogThen { state, stored, journaled } = self.catalog_at(catalog, &catalogs, &parts).await?;
        let mut reached = Reached::default();
        let mut covered_ms = u64::MAX;
        let mut bases = BTreeMap::new();
        for (name, entry) in &state.collections {
            let base = self.base_of(name, entry).await?;
            // The log has nothing of a collection from before it was made.
            let made_ms = if stored.contains(&entry.uid) { 0 } else { catalog.unix_ms };
            covered_ms = covered_ms.min(base.as_ref().map_or(made_ms, |base| base.begun_ms));
            reached.seqs.insert(entry.uid, base.as_ref().map_or(0, |base| base.snapshot.stores[0].seq));
            let tokens = base.as_ref().and_then(|base| base.snapshot.stores.get(1));
            reached.seqs.insert(tokens_of(entry.uid), tokens.map_or(0, |store| store.seq));
            bases.insert(name.clone(), base);
        }
        let keys_base = match &state.keys {
            Some(keys) => self.base_of_keys(keys).await?,
            None => None,
        };
        if let Some(keys) = &state.keys {
            covered_ms = covered_ms.min(keys_base.as_ref().map_or(0, |base| base.begun_ms));
            for (shard, seq) in keys_manifest_of(keys, keys_base.as_ref())?.covered().into_iter().enumerate()
            {
                reached.seqs.insert(keys.uid_base + shard as u64, seq);
            }
        }
        let runs = self.place_logs(&parts, covered_ms, &mut reached).await?;
        if let Some(run) = runs.iter().find(|run| **run > catalog.generation && !journaled.contains(run)) {
            return Err(format!(
                "the server ran without -archive at {} (its run {run}), and it is not known which collections there were; choose a moment of a run with -archive",
                shown(self.until_ms)
            ));
        }
        check_reached(&state, &reached)?;
        for (name, entry) in &state.collections {
            self.place_collection(name, entry, bases[name].as_ref()).await?;
        }
        if let Some(keys) = &state.keys {
            self.place_keys(keys, keys_base.as_ref()).await?;
        }
        if let Some(file) = &state.key_indexes {
            let path = index_file::path();
            twin::replace(&*self.disk, &path, file.as_bytes()).await.map_err(io(&path))?;
        }
        let path = Path::new(alias_file::FILE);
        twin::replace(&*self.disk, path, &alias_file::encode(&state.aliases)).await.map_err(io(path))?;
        tracing::info!(
            until = shown(self.until_ms),
            collections = state.collections.len(),
            "the data directory was restored to a moment; it is opened now"
        );
        Ok(())
    }

    /// The newest stored catalog that is not newer than the moment.
    fn catalog_before(&self, catalogs: &[CatalogName]) -> Result<CatalogName, String> {
        let found = catalogs.iter().rev().find(|catalog| catalog.unix_ms <= self.until_ms);
        found.copied().ok_or_else(|| match catalogs.iter().map(|catalog| catalog.unix_ms).min() {
            Some(first) => {
                format!("the archive begins at {}, and {} is before that", shown(first), shown(self.until_ms))
            }
            None => format!(
                "the store has no archive of a log under {:?}; a server writes one with -archive",
                self.names.of_log()
            ),
        })
    }

    /// Makes the catalog at the moment, from a stored one and the later changes.
    async fn catalog_at(
        &self,
        catalog: CatalogName,
        catalogs: &[CatalogName],
        parts: &[(PartName, u64)],
    ) -> Result<CatalogThen, String> {
        let key = catalog.key(&self.names);
        let bytes =
            read_whole(&*self.store, &key, CATALOG_BYTES_MAX).await.map_err(|error| error.to_string())?;
        let mut state = CatalogState::decode(&bytes).map_err(|why| format!("The object {key:?}: {why}."))?;
        let stored = state.collections.values().map(|entry| entry.uid).collect();
        let mut journaled: BTreeSet<u64> = catalogs.iter().map(|catalog| catalog.generation).collect();
        let mut changes: Vec<(u64, Change)> = Vec::new();
        let is_wanted = |id: SegmentId| id.generation >= catalog.generation && id.core == 0;
        let mut frames = ChainReader::new(self, parts, catalog.unix_ms, is_wanted);
        while let Some(piece) = frames.next().await? {
            let mut bad = None;
            for frame in piece.frames()? {
                let is_whole = frame.records(|record, body| {
                    if record.collection == CATALOG_UID {
                        match Change::decode(body) {
                            Ok(change) => changes.push((record.seq, change)),
                            Err(why) => bad = Some(why),
                        }
                    }
                });
                piece.check(is_whole)?;
            }
            if let Some(why) = bad {
                return Err(format!(
                    "The object {:?} has a change of the catalog that this build does not know: {why}.",
                    piece.key
                ));
            }
        }
        journaled.extend(
            changes.iter().filter(|(_, change)| *change == Change::Began).map(|(seq, _)| position_of(*seq).0),
        );
        changes.sort_by_key(|(seq, _)| *seq);
        let from = (catalog.generation, catalog.position);
        let mut next = from;
        for (run, position) in changes.iter().map(|(seq, _)| position_of(*seq)).filter(|at| *at > from) {
            let expected = if run == next.0 { next.1 + 1 } else { 1 };
            if position > expected {
                return Err(format!(
                    "changes {expected} to {} of the catalog of run {run} are not in the archive; choose a moment after the next backup",
                    position - 1
                ));
            }
            next = (run, position);
        }
        changes
            .into_iter()
            .filter(|(seq, _)| position_of(*seq) > from)
            .for_each(|(_, change)| state.apply(change));
        Ok(CatalogThen { state, stored, journaled })
    }

    /// Finds the newest snapshot of a collection that is not newer than the moment and has all data that no log contains; `None` if the log has
    /// everything since the collection was made.
    async fn base_of(&self, name: &str, entry: &ArchivedCollection) -> Result<Option<Base>, String> {
        let prefix = self.names.of_collection(name);
        let found = times(&*self.store, &prefix).await.map_err(|error| error.to_string())?;
        let mut keys: Vec<String> =
            found.iter().rev().map(|time| format!("{prefix}{time}{SNAPSHOT}")).collect();
        // The snapshot from which it was made has another uid. It is used only because the catalog names it.
        let origin = entry.beside.from.clone();
        keys.retain(|key| Some(key) != origin.as_ref());
        let earliest_ms = entry.beside.unlogged_ms.unwrap_or(0);
        for key in keys.into_iter().chain(origin.clone()) {
            let is_origin = Some(&key) == origin.as_ref();
            let read = read_snapshot(self.core.env(), &*self.store, &key).await;
            let snapshot = match read {
                Ok(snapshot) => snapshot,
                Err(error) if is_origin => {
                    return Err(format!(
                        "the collection {name:?} was made of a snapshot that cannot be read: {error}"
                    ));
                }
                Err(error) => return Err(error.to_string()),
            };
            let cut_ms = snapshot.cut_unix_ms.unwrap_or(u64::MAX);
            let is_own = snapshot.stores.first().is_some_and(|store| store.uid == entry.uid);
            let is_fit = is_own && cut_ms <= self.until_ms && cut_ms >= earliest_ms;
            if is_fit || (is_origin && earliest_ms == 0) {
                let begun_ms = snapshot.cut_unix_ms.unwrap_or(0).min(snapshot.taken_unix_ms);
                return Ok(Some(Base { key, snapshot, begun_ms }));
            }
        }
        match entry.beside.unlogged_ms {
            Some(unlogged_ms) => Err(format!(
                "the collection {name:?} has data of {} that is in no log (of a bulk build, or of a run without -archive), and no backup between that and {} has it; choose a moment after its next backup, or an earlier one",
                shown(unlogged_ms),
                shown(self.until_ms)
            )),
            None => Ok(None),
        }
    }

    /// Finds the newest snapshot of the keys that is not newer than the moment; `None` if the log has everything.
    async fn base_of_keys(&self, keys: &KeysEntry) -> Result<Option<Base>, String> {
        let prefix = self.names.of_part(NodePart::Keys.name());
        let found = times(&*self.store, &prefix).await.map_err(|error| error.to_string())?;
        let earliest_ms = keys.unlogged_ms.unwrap_or(0);
        for key in found.iter().rev().map(|time| format!("{prefix}{time}{SNAPSHOT}")) {
            let snapshot = read_snapshot(self.core.env(), &*self.store, &key).await;
            let snapshot = snapshot.map_err(|error| error.to_string())?;
            let cut_ms = keys_text(&key, &snapshot).map_err(|error| error.to_string())?.cut_unix_ms;
            if snapshot.stores[0].uid == keys.uid_base && (earliest_ms..=self.until_ms).contains(&cut_ms) {
                let begun_ms = cut_ms.min(snapshot.taken_unix_ms);
                return Ok(Some(Base { key, snapshot, begun_ms }));
            }
        }
        match keys.unlogged_ms {
            Some(unlogged_ms) => Err(format!(
                "the keys have data of {} that is in no log (of a restore, of another number of shards, or of a run without -archive), and no backup between that and {} has it; choose a moment after their next backup, or an earlier one",
                shown(unlogged_ms),
                shown(self.until_ms)
            )),
            None => Ok(None),
        }
    }

    /// Writes the frames of all cores up to the moment as logs of earlier runs, and returns these runs.
    async fn place_logs(
        &self,
        parts: &[(PartName, u64)],
        covered_ms: u64,
        reached: &mut Reached,
    ) -> Result<BTreeSet<u64>, String> {
        let mut runs = BTreeSet::new();
        let mut writer = SegmentWriter { disk: self.disk.clone(), open: None, written: Vec::new() };
        let mut frames = ChainReader::new(self, parts, covered_ms, |_| true);
        while let Some(piece) = frames.next().await? {
            runs.insert(piece.id.generation);
            for frame in piece.frames()? {
                let is_whole = frame.records(|key, _| reached.note(key));
                piece.check(is_whole)?;
            }
            writer.write(&piece).await?;
            self.core.ctx().env().yield_now().await;
        }
        writer.end().await?;
        let newest = frames.ends.keys().map(|(run, _)| *run).max();
        for ((run, core), (last_ms, is_cut)) in
            frames.ends.iter().filter(|((run, _), _)| Some(*run) == newest)
        {
            if !is_cut {
                tracing::warn!(
                    run,
                    core,
                    archived_until = shown(*last_ms),
                    "the archive has nothing of this core behind that time: what it had changed and not sent by the moment is not restored"
                );
            }
        }
        Ok(runs)
    }

    async fn place_collection(
        &self,
        name: &str,
        entry: &ArchivedCollection,
        base: Option<&Base>,
    ) -> Result<(), String> {
        let damaged = |why: String| format!("the archive has no usable configuration of {name:?}: {why}");
        let (uid, _, config) =
            collection_file::decode(entry.file.as_bytes()).map_err(|why| damaged(why.to_string()))?;
        if uid != entry.uid {
            return Err(damaged("it is that of another collection".to_owned()));
        }
        let tokens = config.multi_vector().map(|config| CollectionConfig::from(config.index()));
        let mut stores = vec![(uid, name.to_owned(), config)];
        stores.extend(tokens.map(|config| (tokens_of(uid), format!("{name}#tokens"), config)));
        let found = base.map_or(&[][..], |base| &base.snapshot.stores);
        if let Some(base) = base.filter(|base| base.snapshot.stores.len() != stores.len()) {
            return Err(format!(
                "The object {:?} is of a collection of another family than {name:?}.",
                base.key
            ));
        }
        // The index of tokens is written before its documents.
        for (index, (uid, name, config)) in stores.into_iter().enumerate().rev() {
            self.place_store(uid, &name, &config, found.get(index)).await?;
        }
        Ok(())
    }

    async fn place_store(
        &self,
        uid: u64,
        name: &str,
        config: &CollectionConfig,
        snapshot: Option<&StoreSnapshot>,
    ) -> Result<(), String> {
        let dir = collection_dir(uid);
        self.disk.create_dir(&dir).await.map_err(io(&dir))?;
        let manifest = match snapshot {
            Some(snapshot) => {
                let rate = self.core.options().backup.bytes_per_second;
                let fetched = fetch_store(self.core.ctx(), &self.target, snapshot, &dir, uid, rate).await;
                fetched.map_err(|error| format!("the collection {name:?}: {error}"))?
            }
            None => {
                let vectors = match config.dense().filter(|config| config.persistent) {
                    Some(config) => {
                        let made = VectorsFile::create(&*self.disk, &dir, 0, uid, config).await;
                        Some(made.map_err(|error| error.to_string())?.name().to_owned())
                    }
                    None => None,
                };
                Manifest { vectors, ..Manifest::default() }
            }
        };
        manifest.store_twin(&*self.disk, &dir, uid).await.map_err(|error| error.to_string())?;
        let file = dir.join(collection_file::FILE);
        twin::replace(&*self.disk, &file, &collection_file::encode(uid, name, config))
            .await
            .map_err(io(&file))
    }

    async fn place_keys(&self, keys: &KeysEntry, base: Option<&Base>) -> Result<(), String> {
        let manifest = keys_manifest_of(keys, base)?;
        let dir = Path::new(keys_manifest::DIR);
        if let Some(base) = base {
            // The files of records that follow the images are not needed, because the archived log has these records.
            let is_image = |name: &str| manifest.images.iter().any(|image| image.name == name);
            let mut store = base.snapshot.stores[0].clone();
            store.files.retain(|file| is_image(&file.name));
            let rate = self.core.options().backup.bytes_per_second;
            let fetched = fetch_store(self.core.ctx(), &self.target, &store, dir, store.uid, rate).await;
            fetched.map_err(|error| format!("the keys: {error}"))?;
        }
        let path = dir.join(keys_manifest::FILE);
        twin::replace(&*self.disk, &path, &keys_manifest::encode(&manifest)).await.map_err(io(&path))
    }
}

/// Makes the manifest with which a start opens the keys of a snapshot. Its seed is not that of this process, so the start divides the keys among
/// shards again.
fn keys_manifest_of(keys: &KeysEntry, base: Option<&Base>) -> Result<keys_manifest::Manifest, String> {
    let text = base
        .map(|base| keys_text(&base.key, &base.snapshot))
        .transpose()
        .map_err(|error| error.to_string())?;
    let mut manifest = keys_manifest::Manifest::new(0, keys.covered.len(), keys.uid_base);
    if let Some(text) = text {
        (manifest.shards, manifest.images) = (text.shards, text.images);
    }
    manifest.probe = !manifest.probe;
    Ok(manifest)
}

/// Checks that no change is missing of the collections and keys that exist at the moment.
fn check_reached(state: &CatalogState, reached: &Reached) -> Result<(), String> {
    let lacking = |uid: u64, least: u64| {
        let seq = reached.seqs.get(&uid).copied().unwrap_or(0);
        reached.gaps.get(&uid).copied().or((seq < least).then_some(seq + 1))
    };
    let stores = state.collections.iter().flat_map(|(name, entry)| {
        [(name.clone(), entry.uid, entry.seq), (name.clone(), tokens_of(entry.uid), 0)]
    });
    let keys = state.keys.iter().flat_map(|keys| {
        let shards = keys.covered.iter().enumerate();
        shards.map(|(shard, seq)| (format!("keys of shard {shard}"), keys.uid_base + shard as u64, *seq))
    });
    for (what, uid, least) in stores.chain(keys) {
        if let Some(missing) = lacking(uid, least) {
            return Err(format!(
                "change {missing} of {what:?} is neither in a backup before the moment nor in the archive; choose a moment after its next backup"
            ));
        }
    }
    Ok(())
}

/// Consecutive whole frames of one segment.
struct Piece {
    key: String,
    id: SegmentId,
    begin: u64,
    /// Frames before it are missing that only snapshots cover, so the chain begins here.
    begins_anew: bool,
    bytes: Vec<u8>,
}

impl Piece {
    fn frames(&self) -> Result<Vec<KeptFrame<'_>>, String> {
        split_frames(self.id, self.begin, &self.bytes).map_err(|at| {
            format!(
                "The object {:?} is damaged: no frame of its log begins at byte {at} of the segment.",
                self.key
            )
        })
    }

    fn check(&self, is_whole: bool) -> Result<(), String> {
        match is_whole {
            true => Ok(()),
            false => Err(format!(
                "The object {:?} is damaged: a record of its log has a wrong checksum.",
                self.key
            )),
        }
    }
}

/// Reads the frames up to the moment: run by run, and in each run core by core.
struct ChainReader<'a> {
    restore: &'a Restore<'a>,
    /// The parts that are still to be read, in order.
    parts: std::vec::IntoIter<PartName>,
    /// The last frame that was read: its segment, its number, the offset of its end, and its time.
    last: Option<(SegmentId, u64, u64, u64)>,
    /// The chain in which a frame later than the moment was found.
    cut: Option<(u64, u32)>,
    /// For each chain, the time of its last frame that was read, and whether it has frames later than the moment.
    ends: BTreeMap<(u64, u32), (u64, bool)>,
    /// Snapshots have everything up to this time, Unix milliseconds, so that earlier parts may be missing.
    covered_ms: u64,
}

impl<'a> ChainReader<'a> {
    /// Makes a reader of the segments that `is_wanted` selects, without those at the beginning of a chain that end before `covered_ms` by a margin.
    fn new(
        restore: &'a Restore<'a>,
        parts: &[(PartName, u64)],
        covered_ms: u64,
        is_wanted: impl Fn(SegmentId) -> bool,
    ) -> ChainReader<'a> {
        let from_ms = covered_ms.saturating_sub(MARGIN_MS);
        let chain_of = |part: &PartName| (part.id.generation, part.id.core);
        // The first segment of each chain that has something later than that. A segment is read as a whole.
        let mut first: BTreeMap<(u64, u32), u64> = BTreeMap::new();
        for (part, _) in parts.iter().filter(|(part, _)| part.last_ms == 0 || part.last_ms >= from_ms) {
            let number = first.entry(chain_of(part)).or_insert(part.id.number);
            *number = part.id.number.min(*number);
        }
        let is_new =
            |part: &PartName| first.get(&chain_of(part)).is_some_and(|first| part.id.number >= *first);
        let parts = parts.iter().map(|(part, _)| *part).filter(|part| is_wanted(part.id) && is_new(part));
        ChainReader {
            restore,
            parts: parts.collect::<Vec<_>>().into_iter(),
            last: None,
            cut: None,
            ends: BTreeMap::new(),
            covered_ms,
        }
    }

    /// Returns the frames of the next part, without those that were returned already and those later than the moment.
    async fn next(&mut self) -> Result<Option<Piece>, String> {
        for name in self.parts.by_ref() {
            let chain = (name.id.generation, name.id.core);
            match self.cut {
                // Once a run has passed the moment, later runs are not read, even if the clock was set back between them.
                Some((generation, _)) if generation < chain.0 => return Ok(None),
                Some(cut) if cut == chain => continue,
                _ => {}
            }
            let last = self.last.filter(|(id, ..)| (id.generation, id.core) == chain);
            let key = name.key(&self.restore.names);
            let object = read_whole(&*self.restore.store, &key, PART_BYTES_MAX)
                .await
                .map_err(|error| error.to_string())?;
            let bytes = part::decode(&key, name, &object).map_err(|error| error.to_string())?;
            let bytes = bytes.to_vec();
            let mut piece = Piece { key, id: name.id, begin: name.begin, begins_anew: false, bytes };
            let (mut begin, mut end, mut last, mut begins_anew) = (None, name.begin, last, false);
            if last.is_none() && name.begin > BLOCK as u64 {
                return Err(format!(
                    "the archive lacks a part of the log of core {}, run {}: it should lie before the object {:?}",
                    chain.1, chain.0, piece.key
                ));
            }
            for frame in piece.frames()? {
                let came = last.is_some_and(|(id, _, end, _)| id == name.id && frame.end <= end);
                if came {
                    continue;
                }
                let time = if frame.unix_ms == 0 { last.map_or(0, |(.., time)| time) } else { frame.unix_ms };
                if let Some((id, flush, ..)) = last.filter(|(_, flush, ..)| frame.flush != flush + 1) {
                    // If snapshots have everything from before this frame, the log may begin after the gap.
                    if time > self.covered_ms || id == name.id {
                        return Err(format!(
                            "the archive lacks a part of the log of core {}, run {}: frames {} to {} should lie before the object {:?}",
                            chain.1,
                            chain.0,
                            flush + 1,
                            frame.flush.saturating_sub(1),
                            piece.key
                        ));
                    }
                    begins_anew = true;
                }
                if time > self.restore.until_ms {
                    self.cut = Some(chain);
                    self.ends.entry(chain).or_default().1 = true;
                    break;
                }
                self.ends.insert(chain, (time, false));
                begin.get_or_insert(frame.begin);
                end = frame.end;
                last = Some((name.id, frame.flush, frame.end, time));
            }
            self.last = last.or(self.last);
            let Some(begin) = begin else { continue };
            let kept = (begin - name.begin) as usize..(end - name.begin) as usize;
            piece.bytes = piece.bytes[kept].to_vec();
            (piece.begin, piece.begins_anew) = (begin, begins_anew);
            return Ok(Some(piece));
        }
        Ok(None)
    }
}

/// Writes segments to the data directory, one after the other.
struct SegmentWriter {
    disk: Rc<dyn Disk>,
    open: Option<(SegmentId, PathBuf, Rc<dyn DiskFile>)>,
    /// The segments that were written.
    written: Vec<(SegmentId, PathBuf)>,
}

impl SegmentWriter {
    async fn write(&mut self, piece: &Piece) -> Result<(), String> {
        if self.open.as_ref().is_none_or(|(id, ..)| *id != piece.id) {
            self.end().await?;
            if piece.begins_anew {
                let of_chain =
                    |id: SegmentId| (id.generation, id.core) == (piece.id.generation, piece.id.core);
                for (_, path) in self.written.iter().filter(|(id, _)| of_chain(*id)) {
                    self.disk.remove(path).await.map_err(io(path))?;
                }
                self.written.retain(|(id, _)| !of_chain(*id));
            }
            let dir = PathBuf::from(format!("log/{:04}", piece.id.core));
            let path = dir.join(piece.id.file_name());
            let made = async {
                self.disk.create_dir(&dir).await?;
                let file = self.disk.create(&path).await?;
                file.write_at(0, &segment_header(piece.id)).await?;
                Ok(file)
            };
            self.written.push((piece.id, path.clone()));
            self.open = Some((piece.id, path.clone(), made.await.map_err(io(&path))?));
        }
        let (_, path, file) = self.open.as_ref().expect("just opened");
        file.write_at(piece.begin, &piece.bytes).await.map_err(io(path))
    }

    async fn end(&mut self) -> Result<(), String> {
        let Some((_, path, file)) = self.open.take() else { return Ok(()) };
        let ended = async {
            file.sync().await?;
            file.close().await?;
            self.disk.sync_dir(path.parent().unwrap_or(Path::new("log"))).await
        };
        ended.await.map_err(io(&path))
    }
}
