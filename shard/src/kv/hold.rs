//! What a backup holds of the keys of one core: images on the disk, and for each shard a tape ([`super::tape`]), which has the log records since
//! these images were begun. Together they are the keys at one moment, which is the same on all cores.
//!
//! Images are files that are never changed, and a file that is open stays readable after its name is removed. So keys go on changing and checkpoints
//! go on writing images while a backup sends what it holds.

use super::held::{HeldFigures, HeldImage, HeldKeys};
use super::manifest::{DIR, Image};
use super::recovery::first_images;
use super::store::Keys;
use super::tape::{Tape, TapeRoom};
use crate::account::MemoryUse;
use crate::archive::KeysEntry;
use crate::backup::{BackupError, not_held};
use crate::checkpoint::{CheckpointError, ImageWriter};
use crate::disk::{Disk, DiskFile};
use crate::env::call_own;
use crate::journal::{Journal, Ticket};
use crate::slice::Slice;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// The least memory that the tapes of one core may take, bytes: enough for some records of the greatest length.
const TAPE_BYTES_MIN: usize = 32 << 20;
/// Bytes per block of a file of tapes, unless a record is longer. A restore takes each in one piece.
const BLOCK_BYTES: usize = 64 << 10;

/// The number of a shard, and the bodies of the records on its tape.
type EndedTape = (usize, Vec<Vec<u8>>);

fn source(error: impl std::fmt::Display) -> BackupError {
    BackupError::Source(error.to_string())
}

impl Keys {
    /// On core 0: the number of the next backup of the keys.
    pub(crate) fn next_backup(&self) -> u64 {
        self.shared.backups.fetch_add(1, Relaxed) + 1
    }

    /// On core 0: the moment of the backup with this number is now, on all cores.
    pub(crate) fn pass_cut(&self, number: u64) {
        self.shared.cut.pass(number);
    }

    /// The uid that images of keys carry.
    pub(crate) fn image_uid(&self) -> u64 {
        self.opened().uid_base
    }

    /// Whether this run has spread the keys over shards anew, so that their log records have other numbers than before.
    pub(crate) fn are_spread(&self) -> bool {
        self.shared.is_spread.load(Relaxed)
    }

    /// Whether there were no keys before this run.
    pub(crate) fn are_new(&self) -> bool {
        self.shared.is_new.load(Relaxed)
    }

    /// On core 0: what the archive of the log has to know of the keys; `None` while they are damaged.
    pub(crate) fn archive_entry(&self) -> Option<KeysEntry> {
        if self.damage().is_some() {
            return None;
        }
        let opened = self.shared.opened.get()?;
        let covered = opened.covered.iter().map(|seq| seq.load(Relaxed)).collect();
        let unlogged_ms = self.shared.is_spread.load(Relaxed).then(|| self.ctx.moment_ms());
        Some(KeysEntry { uid_base: opened.uid_base, covered, unlogged_ms })
    }

    /// Begins tapes of this core's shards for the backup with this number, writes an image of what has changed since the last one, and holds the
    /// images that the shards consist of.
    ///
    /// # Errors
    /// The keys are damaged; an image could not be written or opened. Nothing is held then.
    pub(crate) async fn hold_keys(self: &Rc<Self>, number: u64) -> Result<(), BackupError> {
        self.let_go_of_keys();
        let _held = self.checkpoint_lock.lock().await;
        let usual = usize::try_from(self.unsaved_keys_bytes_soft()).unwrap_or(usize::MAX).max(TAPE_BYTES_MIN);
        let most = self.ctx.options().keys.tape_bytes.unwrap_or(usual);
        let room = TapeRoom::new(most, self.ctx.node().account.hold(MemoryUse::Images, 0));
        for shard in self.owned.borrow_mut().iter_mut() {
            let tape = Tape::begin(number, self.shared.cut.clone(), room.clone());
            shard.tape = Some(Box::new(tape));
        }
        let files = self.hold_images().await;
        match files {
            Ok(files) => {
                *self.held.borrow_mut() = Some(HeldKeys { room, files });
                Ok(())
            }
            Err(error) => {
                self.let_go_of_keys();
                Err(error)
            }
        }
    }

    /// Gives up the tapes and the images that are held.
    pub(crate) fn let_go_of_keys(&self) {
        self.owned.borrow_mut().iter_mut().for_each(|shard| shard.tape = None);
        *self.held.borrow_mut() = None;
    }

    /// Takes what this core holds, and leaves nothing held.
    pub(crate) fn take_held_keys(&self) -> Option<HeldKeys> {
        self.held.borrow_mut().take()
    }

    async fn hold_images(self: &Rc<Self>) -> Result<Vec<HeldImage>, BackupError> {
        let disk = self.ctx.env().disk().ok_or_else(|| source("there is no data directory"))?;
        self.healthy().map_err(source)?;
        let begun: Vec<(usize, u64)> =
            self.owned.borrow().iter().map(|shard| (shard.number, shard.seq)).collect();
        self.checkpoint_keys_held().await?;
        self.healthy().map_err(source)?;
        // There may be no such image, for example if the log has failed.
        let covered = &self.opened().covered;
        if begun.iter().any(|(shard, seq)| covered[*shard].load(Relaxed) < *seq) {
            return Err(source("no image of the keys can be written; the server's log says why"));
        }
        let manifest = call_own(self, 0, |there| async move { there.manifest.borrow().clone() }).await;
        let manifest = manifest.ok_or_else(|| source("there is no manifest of the keys"))?;
        let (first, mut files) = (first_images(&manifest), Vec::new());
        for (number, image) in manifest.images.into_iter().enumerate() {
            let is_needed = |shard: usize| self.shared.core_of(shard) == self.index && first[shard] <= number;
            if image.shards.iter().any(|(shard, _)| is_needed(*shard)) {
                let file = open(&*disk, &image.name).await?;
                files.push(HeldImage { image, file, is_tape: false });
            }
        }
        Ok(files)
    }

    /// After the moment of the backup: ends the tapes, waits until their records are durable in the log, and writes them to a file beside the
    /// images. Returns `None` if the tapes were given up because they had become too long; then nothing is held any more.
    ///
    /// # Errors
    /// The log has failed; the file could not be written. Nothing is held then.
    pub(crate) async fn end_tapes(self: &Rc<Self>) -> Result<Option<HeldFigures>, BackupError> {
        let ended = self.write_tapes().await;
        if !matches!(ended, Ok(Some(_))) {
            self.let_go_of_keys();
        }
        ended
    }

    async fn write_tapes(self: &Rc<Self>) -> Result<Option<HeldFigures>, BackupError> {
        let mut tapes: Vec<EndedTape> = Vec::new();
        let mut newest: Option<Ticket> = None;
        for shard in self.owned.borrow_mut().iter_mut() {
            if let Some(tape) = shard.tape.take() {
                let (records, ticket) = tape.end();
                newest = newest.max(ticket);
                if !records.is_empty() {
                    tapes.push((shard.number, records));
                }
            }
        }
        let room = self.held.borrow().as_ref().map(|held| held.room.clone());
        let Some(room) = room.filter(|room| !room.is_torn()) else { return Ok(None) };
        let figures = HeldFigures {
            keys: self.owned.borrow().iter().map(|shard| shard.writer.stats().keys as u64).sum(),
            live_bytes: self.live_keys_bytes(),
        };
        // A record that is not durable may be gone after a crash, and must not come back from a backup.
        self.ctx.wait_durable(newest).await.map_err(source)?;
        self.healthy().map_err(source)?;
        if tapes.is_empty() {
            return Ok(Some(figures));
        }
        let disk = self.ctx.env().disk().ok_or_else(|| source("there is no data directory"))?;
        let name = format!("{:08x}.img", self.shared.last_file.fetch_add(1, Relaxed) + 1);
        let path = Path::new(DIR).join(&name);
        let shards = tapes.iter().map(|(shard, _)| (*shard, 0)).collect();
        let written = match self.write_tape_file(&disk, &name, tapes).await {
            Ok(bytes) => open(&*disk, &name).await.map(|file| (bytes, file)),
            Err(error) => Err(error),
        };
        drop(room);
        // No manifest names the file. As long as it is open it stays readable; if the server is killed before this, the next start removes the
        // file.
        let _leftover_costs_space = disk.remove(&path).await;
        let (bytes, file) = written?;
        let image = Image { name, bytes, is_base: false, shards };
        let mut held = self.held.borrow_mut();
        held.as_mut().ok_or_else(not_held)?.files.push(HeldImage { image, file, is_tape: true });
        Ok(Some(figures))
    }

    async fn write_tape_file(
        self: &Rc<Self>,
        disk: &Rc<dyn Disk>,
        name: &str,
        tapes: Vec<EndedTape>,
    ) -> Result<u64, BackupError> {
        let mut file = ImageWriter::create(disk.clone(), Path::new(DIR), name, self.image_uid()).await?;
        let mut slice = Slice::begin(self.ctx.env());
        let mut block = Vec::new();
        for (shard, records) in tapes {
            let head = (shard as u32).to_le_bytes();
            block.clear();
            for record in records {
                if block.len() >= BLOCK_BYTES {
                    file.block(&block).await?;
                    block.clear();
                }
                if block.is_empty() {
                    block.extend_from_slice(&head);
                }
                block.extend_from_slice(&record);
                slice.check().await;
            }
            file.block(&block).await?;
        }
        Ok(file.finish(0).await?)
    }
}

async fn open(disk: &dyn Disk, name: &str) -> Result<Rc<dyn DiskFile>, BackupError> {
    let path = Path::new(DIR).join(name);
    let opened = disk.open(&path).await;
    Ok(opened.map_err(|source| CheckpointError::Io { path, source })?)
}
