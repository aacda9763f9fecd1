//! Replaces all keys of the node by those of a backup.
//!
//! Memory has no room for the keys from before and those of the backup together, so no operation on keys is served meanwhile. On the disk, the
//! keys from before stay whole until one file is replaced:
//!
//! 1. Operations on keys are refused from here on, and images of all changes are written.
//! 2. The stores in memory are emptied and filled with the keys of the backup, whose files are all in [`RESTORE_DIR`] and have been checked.
//!    Nothing is written to the log.
//! 3. Images of all keys are written beside those from before.
//! 4. A manifest that names the new images alone replaces the one from before. A start finds the keys from before or those of the backup.
//!
//! If something fails before that, the stores are emptied again and filled from the images from before.

use super::manifest::{Image, Manifest, RESTORE_DIR};
use super::outcome::{Outcome, Records};
use super::recovery::{Sender, block_parts, first_images, last_flushes, remove_strays};
use super::store::Keys;
use crate::account::MemoryUse;
use crate::archive::Unlogged;
use crate::checkpoint::{CheckpointError, ImageReader};
use crate::disk::Disk;
use crate::env::call_own;
use crate::error::{OpError, file_error, refused_memory};
use crate::event::together;
use crate::journal::Journal;
use crate::slice::Slice;
use ahash::HashMap;
use nigh_engine::kv::Effect;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Bytes that are sent to another core at once, which takes them in one piece.
const PARCEL_BYTES: usize = 32 << 10;

/// Bytes of memory for each byte of log records, at most: the records, and what each comes to.
const TAPE_FACTOR: u64 = 2;

/// The keys of a backup, as files in [`RESTORE_DIR`].
#[derive(Clone, Debug)]
pub(crate) struct OtherKeys {
    /// How many shards they were spread over.
    pub shards: usize,
    /// The uid that the files carry.
    pub uid: u64,
    /// The images, in the order in which they are read.
    pub images: Vec<Image>,
    /// The names of the files of tapes, which have the log records since the images were begun.
    pub tapes: Vec<String>,
    /// The moment of the backup, Unix milliseconds: what had expired by then does not come back, even if the clock was set back since.
    pub cut_unix_ms: u64,
    /// Bytes that their entries took in memory.
    pub live_bytes: u64,
    /// Bytes of the files of log records, which are in memory beside the keys until these have been replaced.
    pub tape_bytes: u64,
}

/// Why the keys were not replaced, once the stores had been emptied.
enum Failed {
    /// The disk has the manifest from before.
    InMemory(OpError),
    /// The disk may have either manifest.
    Unknown(OpError),
}

fn unavailable(why: String) -> OpError {
    OpError::Unavailable(why)
}

impl Keys {
    /// On core 0: refuses a replacement that is known to fail.
    ///
    /// # Errors
    /// The keys are damaged; the budget or the memory limit does not hold those of the backup.
    pub(crate) fn check_replaceable(&self, other: &OtherKeys) -> Result<(), OpError> {
        if self.damage().is_some() {
            return Err(OpError::Conflict(
                "the keys of this server are damaged, and a restore needs keys that can be read in case it fails; start a server on an empty data \
                 directory and restore into that one"
                    .to_owned(),
            ));
        }
        self.healthy()?;
        let options = self.ctx.options();
        let shards = options.keys.shards(options.shards);
        let budget_bytes = (options.keys.config(shards).budget_bytes * shards) as u64;
        if other.live_bytes > budget_bytes {
            return Err(OpError::NoMemory(format!(
                "the keys of the snapshot took {} bytes of memory, and this server has {budget_bytes} bytes for keys (max_memory)",
                other.live_bytes
            )));
        }
        let account = &self.ctx.node().account;
        let most_bytes = other.live_bytes.saturating_add(other.tape_bytes.saturating_mul(TAPE_FACTOR));
        let more_bytes = most_bytes.saturating_sub(account.held(MemoryUse::Keys));
        account.fits_opening(more_bytes).map_err(refused_memory)
    }

    /// On core 0: replaces all keys of the node. Definitions of indexes stay, and the indexes are built anew. The caller sees to it that neither a
    /// backup of the keys nor another replacement goes on.
    ///
    /// # Errors
    /// The keys are as they were, unless the server is being stopped or the error is that of damaged keys: then the next start decides.
    pub(crate) async fn replace_keys(self: &Rc<Self>, other: OtherKeys) -> Result<(), OpError> {
        self.check_replaceable(&other)?;
        let shared = self.shared.clone();
        shared.is_replaced.store(true, Relaxed);
        shared.is_served.store(false, Release);
        // After that: whoever reads this number is refused from here on.
        shared.replacements.fetch_add(1, Release);
        let frozen = (0..self.ctx.env().cores())
            .map(|to| call_own(self, to, |there| async move { there.freeze_keys().await }));
        let frozen: Result<Vec<()>, OpError> = together(frozen.collect()).await.into_iter().collect();
        let old = self.manifest.borrow().clone();
        let old = frozen
            .and_then(|_| old.ok_or_else(|| unavailable("there is no manifest of the keys".to_owned())));
        let old = match old {
            Ok(old) => old,
            Err(error) => {
                self.serve_again();
                return Err(error);
            }
        };
        let ended = match self.replace_frozen(&other, &old).await {
            Ok(()) => Ok(()),
            // The next start reads what the disk has, and until then nothing is served.
            Err(Failed::InMemory(error) | Failed::Unknown(error)) if self.ctx.is_stopping() => {
                return Err(error);
            }
            Err(Failed::InMemory(error)) => {
                self.take_back(old, None).await?;
                Err(error)
            }
            Err(Failed::Unknown(error)) => {
                let stored = self.store_keys_manifest(old.clone()).await;
                self.take_back(old, stored.err()).await?;
                Err(error)
            }
        };
        if ended.is_ok() {
            for to in 0..self.ctx.env().cores() {
                call_own(self, to, |there| async move { there.compact_anew().await }).await;
            }
        }
        // This removes the files that the manifest does not name.
        remove_strays(self).await;
        self.on_all_cores(|there| {
            // The indexes are built anew from the keys that are there now.
            there.indexes.borrow_mut().follow(&Effect::Flush);
            there.index_work.notify();
            there.measure_memory();
        })
        .await;
        if ended.is_ok() {
            // Before a change of the new keys can be in the log.
            self.ctx.log_unlogged(Unlogged::Keys).await;
        }
        self.serve_again();
        ended
    }

    fn serve_again(&self) {
        self.serve();
        self.shared.is_replaced.store(false, Relaxed);
    }

    async fn on_all_cores(self: &Rc<Self>, run: fn(&Rc<Keys>)) {
        for to in 0..self.ctx.env().cores() {
            call_own(self, to, move |there| async move { run(&there) }).await;
        }
    }

    async fn replace_frozen(self: &Rc<Self>, other: &OtherKeys, old: &Manifest) -> Result<(), Failed> {
        let cores = self.ctx.env().cores();
        *self.manifest.borrow_mut() = Some(Manifest { images: Vec::new(), ..old.clone() });
        self.load_other_keys(other).await.map_err(Failed::InMemory)?;
        let written = (0..cores).map(|to| {
            call_own(self, to, move |there| async move {
                let disk = there.ctx.env().disk().expect("there is a manifest");
                let written = there.write_keys_image(disk.clone(), true, false).await;
                match written.as_ref().is_err_and(CheckpointError::is_full)
                    && there.ctx.release_reserve().await
                {
                    true => there.write_keys_image(disk, true, false).await,
                    false => written,
                }
            })
        });
        let written: Result<Vec<()>, CheckpointError> =
            together(written.collect()).await.into_iter().collect();
        written.map_err(|error| Failed::InMemory(file_error(error)))?;
        self.check_going_on().map_err(Failed::InMemory)?;
        let fresh = self.manifest.borrow().clone().expect("set above");
        // Before a start can find them: the log has nothing of them.
        self.ctx.log_before_unlogged(Unlogged::Keys).await.map_err(Failed::InMemory)?;
        self.store_keys_manifest(fresh).await.map_err(|error| Failed::Unknown(file_error(error)))
    }

    fn check_going_on(&self) -> Result<(), OpError> {
        match self.ctx.is_stopping() {
            true => Err(unavailable("the server is stopping".to_owned())),
            false => Ok(()),
        }
    }

    /// Writes images of this core's shards, and makes sure that images cover all of their changes. No operation on keys is served any more, and
    /// those that were under way have ended, since none awaits anything between its admission and its end.
    async fn freeze_keys(self: &Rc<Self>) -> Result<(), OpError> {
        let _held = self.checkpoint_lock.lock().await;
        let is_kept = self.ctx.keeps_records();
        for shard in self.owned.borrow_mut().iter_mut() {
            shard.settle_evicted(is_kept, &mut self.indexes.borrow_mut());
        }
        self.checkpoint_keys_held().await.map_err(file_error)?;
        match self.owned.borrow().iter().any(|shard| self.is_uncovered(shard)) {
            true => {
                Err(unavailable("no image of the keys can be written; the server's log says why".to_owned()))
            }
            false => Ok(()),
        }
    }

    fn begin_anew(&self) -> Result<(), OpError> {
        let now_ms = self.ctx.unix_ms();
        let begun = self.owned.borrow_mut().iter_mut().try_for_each(|shard| shard.begin_anew(now_ms));
        begun.map_err(unavailable)
    }

    /// Fills the emptied stores with all keys of the backup. If that fails, the caller fills them anew with the keys from before.
    async fn load_other_keys(self: &Rc<Self>, other: &OtherKeys) -> Result<(), OpError> {
        for to in 0..self.ctx.env().cores() {
            call_own(self, to, |there| async move { there.begin_anew() }).await?;
        }
        let disk = self.ctx.env().disk().expect("there is a manifest");
        let (records, _memory) = self.read_tapes(&*disk, other).await?;
        let mut slice = Slice::begin(self.ctx.env());
        let mut outcomes: HashMap<usize, Outcome<'_>> = HashMap::default();
        for (shard, records) in &records {
            outcomes.insert(*shard, Outcome::of_slowly(records, &mut slice).await.map_err(unavailable)?);
        }
        let manifest = Manifest { images: other.images.clone(), ..Manifest::new(0, other.shards, other.uid) };
        let first = match other.images.iter().all(|image| image.is_base) {
            true => first_images(&manifest),
            false => last_flushes(self, &*disk, Path::new(RESTORE_DIR), &manifest).await,
        };
        // All cores judge by the same moment which keys have expired.
        let now_ms = self.ctx.unix_ms().max(other.cut_unix_ms);
        loop {
            let mut sender = Sender::new(self, PARCEL_BYTES, now_ms);
            self.send_images(&*disk, other, &first, &outcomes, &mut sender).await?;
            for (shard, outcome) in &outcomes {
                for (index, (_, body)) in records[shard].iter().enumerate() {
                    sender.send_record(outcome, index, body).await.map_err(unavailable)?;
                    slice.check().await;
                }
            }
            // What had no room on the way is counted at the end, if it is missing then: a later value of the key may have had room.
            let _on_the_way = sender.finish().await.map_err(unavailable)?;
            let mut wants_second_look = false;
            for to in 0..self.ctx.env().cores() {
                wants_second_look |= call_own(self, to, |there| async move {
                    let mut owned = there.owned.borrow_mut();
                    // Every shard prepares for it, so none is passed over.
                    let wants: Vec<bool> = owned.iter_mut().map(|shard| shard.wants_second_look()).collect();
                    wants.contains(&true)
                })
                .await;
            }
            if !wants_second_look {
                break;
            }
        }
        let mut left_out = 0;
        for to in 0..self.ctx.env().cores() {
            left_out += call_own(self, to, |there| async move { there.end_anew() }).await;
        }
        match left_out {
            0 => Ok(()),
            _ => Err(OpError::NoMemory(format!(
                "{left_out} keys of the snapshot do not fit into the memory that this server has for keys (max_memory)"
            ))),
        }
    }

    /// Ends the loading, after everything has been applied: from now on keys expire. Returns how many keys had no room. The memory that these
    /// keys leave free is kept: those from before may need it again, and others could take it meanwhile.
    fn end_anew(&self) -> u64 {
        self.owned.borrow_mut().iter_mut().map(|shard| shard.finish_restore().len() as u64).sum()
    }

    /// Once the keys from before do not come back: copies what is alive together, and gives the memory back that is free then.
    async fn compact_anew(&self) {
        let mut slice = Slice::begin(self.ctx.env());
        let own = self.owned.borrow().len();
        for index in 0..own {
            let now_ms = self.ctx.unix_ms();
            while self.owned.borrow_mut()[index].writer.compact_restored(now_ms) {
                slice.check().await;
            }
        }
    }

    /// Reads the records of all tapes, by shard. Returns them with the charge for the memory that they hold.
    async fn read_tapes(
        &self,
        disk: &dyn Disk,
        other: &OtherKeys,
    ) -> Result<(HashMap<usize, Records>, crate::account::Charge), OpError> {
        let mut memory = self.ctx.node().account.hold(MemoryUse::Images, 0);
        let mut records: HashMap<usize, Records> = HashMap::default();
        let mut slice = Slice::begin(self.ctx.env());
        for name in &other.tapes {
            let opened = ImageReader::open(disk, Path::new(RESTORE_DIR), name, other.uid).await;
            let mut reader = opened.map_err(file_error)?;
            while let Some(block) = reader.next().await.map_err(file_error)? {
                let (shard, effects) = block_parts(block).map_err(unavailable)?;
                let of_shard = records.entry(shard).or_default();
                of_shard.push((of_shard.len() as u64, effects.to_vec()));
                memory.set(memory.bytes() + effects.len() as u64);
                slice.check().await;
            }
        }
        Ok((records, memory))
    }

    /// Sends the contents of the images to the cores that own the keys. One block at a time is in memory.
    async fn send_images(
        self: &Rc<Self>,
        disk: &dyn Disk,
        other: &OtherKeys,
        first: &[usize],
        outcomes: &HashMap<usize, Outcome<'_>>,
        sender: &mut Sender<'_>,
    ) -> Result<(), OpError> {
        let nothing = Outcome::default();
        for (number, image) in other.images.iter().enumerate() {
            let opened = ImageReader::open(disk, Path::new(RESTORE_DIR), &image.name, other.uid).await;
            let mut reader = opened.map_err(file_error)?;
            while let Some(block) = reader.next().await.map_err(file_error)? {
                let (shard, effects) = block_parts(block).map_err(unavailable)?;
                if first.get(shard).is_some_and(|first| *first <= number) {
                    let outcome = outcomes.get(&shard).unwrap_or(&nothing);
                    sender.send_image(outcome, effects).await.map_err(unavailable)?;
                }
                self.check_going_on()?;
            }
        }
        Ok(())
    }

    /// Fills the stores with the keys from before again, from their images. `unknown` says why it is not known whether the manifest on the disk
    /// names these images.
    ///
    /// # Errors
    /// The images cannot be loaded, or it is not known which manifest the disk has. The keys are declared damaged then.
    async fn take_back(
        self: &Rc<Self>,
        old: Manifest,
        unknown: Option<CheckpointError>,
    ) -> Result<(), OpError> {
        let taken_back = match unknown {
            Some(error) => Err(error.to_string()),
            None => self.load_again(old).await,
        };
        taken_back.map_err(|why| {
            self.damage_keys(format!(
                "a restore of keys could neither be finished nor taken back ({why}); a restart serves the keys from before or those of the backup"
            ));
            self.serve_again();
            OpError::Damaged("the keys are".to_owned())
        })
    }

    async fn load_again(self: &Rc<Self>, old: Manifest) -> Result<(), String> {
        *self.manifest.borrow_mut() = Some(old.clone());
        let old = Arc::new(old);
        for to in 0..self.ctx.env().cores() {
            let old = old.clone();
            call_own(self, to, move |there| async move {
                there.begin_anew().map_err(|error| error.to_string())?;
                there.load_keys(&old, HashMap::default()).await
            })
            .await?;
            if let Some(why) = self.damage() {
                return Err(why.to_owned());
            }
        }
        Ok(())
    }
}
