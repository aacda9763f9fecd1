//! Images of keys: what changed since the last one, or everything, of all shards of a core in one file.
//!
//! A block of an image is `shard:u32` and effects (see [`super::record`]). It is written while the store serves, so it has of each key
//! some state from the sequence number in the manifest on, and the log from there makes it the newest.

use super::manifest::{DIR, FILE, Image, Manifest, encode, kept_name};
use super::record;
use super::shard::{Shard, Touched};
use super::shared::count;
use crate::account::MemoryUse;
use crate::checkpoint::{CheckpointError, ImageWriter};
use crate::disk::Disk;
use crate::env::call_own;
use crate::kv::store::Keys;
use crate::owner::checkpointer::IMAGE_BYTES;
use crate::slice::Slice;
use crate::twin;
use ahash::HashSet;
use nigh_engine::kv::Effect;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes captured in one go.
const STEP_BYTES: usize = 32 << 10;
/// Bytes per block of an image file, unless a value is longer.
const BLOCK_BYTES: usize = 1 << 20;
/// Keys among which repeats are found: a key that is written all the time is in an image once per so many.
const WINDOW_KEYS: usize = 1024;
/// Keys whose entries are asked of the memory together.
const KEYS_AHEAD: usize = 32;
/// A base that found no room on a full disk is tried again when it takes so much less, as a part of it.
const TRIED_PART: u64 = 16;
/// Images with fewer bytes are not worth writing anew on a full disk.
const KEYS_IMAGE_BYTES_LEAST: u64 = 64 << 10;

/// What is being told of one shard: given back if the image comes to nothing.
struct Told {
    index: usize,
    shard: usize,
    seq: u64,
    touched: Touched,
    unsaved_bytes: u64,
}

/// Records of keys that no image covers, and that a start therefore holds, take at most that part of the memory limit before images are
/// written,
const UNSAVED_PART: u64 = 64;
/// and so many times as much before puts wait for these.
const UNSAVED_HARD_FACTOR: u64 = 4;

impl Keys {
    /// Writes an image of what has changed in this core's shards since the last, or of everything, and makes it durable; nothing when
    /// nothing has.
    ///
    /// # Errors
    /// The file error. Nothing is lost: older images and the log stay.
    pub(crate) async fn checkpoint_keys(self: &Rc<Self>) -> Result<(), CheckpointError> {
        let _held = self.checkpoint_lock.lock().await;
        // The images of the disk are those of the keys before or of those after it.
        match self.is_replaced() {
            true => Ok(()),
            false => self.checkpoint_keys_held().await,
        }
    }

    /// As [`Self::checkpoint_keys`], for a caller that holds the lock.
    pub(super) async fn checkpoint_keys_held(self: &Rc<Self>) -> Result<(), CheckpointError> {
        let keys = self;
        let Some(disk) = self.ctx.env().disk() else { return Ok(()) };
        if keys.damage().is_some() {
            return Ok(());
        }
        if self.ctx.node().failed_logs()[self.ctx.env().index()] {
            // The store may have changes that were refused.
            return Ok(());
        }
        let nothing_new = keys.owned.borrow().iter().all(|shard| !self.is_uncovered(shard));
        if nothing_new && !self.ctx.is_disk_short() {
            return Ok(());
        }
        let frees = self.ctx.is_disk_short() && self.keys_image_frees_room();
        let mut is_base = frees || keys.book.get().wants_base();
        if !is_base && nothing_new {
            return Ok(());
        }
        let may_be_delta = keys.book.get().is_based && !nothing_new;
        let is_no_room = |written: &Result<(), CheckpointError>| written.as_ref().is_err_and(|e| e.is_full());
        let may_use_reserve = self.ctx.node().reserve.is_for_images(self.ctx.env().now_ns());
        let mut written = self.write_keys_image(disk.clone(), is_base, true).await;
        if is_no_room(&written) && is_base && may_be_delta && !frees {
            // The log has to be let go, at the price of another image to open.
            is_base = false;
            written = self.write_keys_image(disk.clone(), is_base, true).await;
        }
        if is_no_room(&written)
            && self.ctx.node().reserve.is_for_images(self.ctx.env().now_ns())
            && self.ctx.release_reserve().await
        {
            written = self.write_keys_image(disk.clone(), is_base, true).await;
        }
        if written.is_ok() && is_base {
            keys.tried_bytes.set(None);
        }
        if is_no_room(&written) && frees {
            if may_use_reserve {
                keys.tried_bytes.set(Some(self.live_keys_bytes()));
            }
            if may_be_delta {
                written = self.write_keys_image(disk, false, true).await;
            }
        }
        if written.is_ok() || is_no_room(&written) {
            self.ctx.node().reserve.note_image(written.is_ok(), self.ctx.env().now_ns());
        }
        written
    }

    /// Whether so much has gone from this core's shards that an image of everything would give room back.
    pub(crate) fn keys_image_frees_room(&self) -> bool {
        let (keys, book) = (self, self.book.get());
        let stored = book.base_bytes + book.delta_bytes;
        let base = self.live_keys_bytes();
        let is_another = keys.tried_bytes.get().is_none_or(|tried| base < tried - tried / TRIED_PART);
        // Images hold at least a header and a footer.
        stored > KEYS_IMAGE_BYTES_LEAST
            && base < stored / 2
            && is_another
            && self.ctx.node().reserve.has_room_for_image(base)
    }

    /// Bytes of entries that are alive, about.
    pub(super) fn live_keys_bytes(&self) -> u64 {
        self.owned.borrow().iter().map(|shard| shard.writer.stats().live_bytes as u64).sum()
    }

    /// As [`Self::checkpoint_keys`], of everything; `publish`: into the manifest of the disk.
    pub(super) async fn write_keys_image(
        self: &Rc<Self>,
        disk: Rc<dyn Disk>,
        is_base: bool,
        publish: bool,
    ) -> Result<(), CheckpointError> {
        let keys = self;
        let began_ns = self.ctx.env().now_ns();
        let mut told = Vec::new();
        let written = self.write_keys_file(disk, is_base, publish, &mut told).await;
        let counters = keys.counters();
        count(&counters.image_ms, (self.ctx.env().now_ns() - began_ns) / 1_000_000);
        match written {
            Ok(freed) => {
                count(&counters.images, is_base.into());
                count(&counters.image_bytes_freed, freed);
                let covered = &keys.opened().covered;
                told.iter().for_each(|told| covered[told.shard].store(told.seq, Relaxed));
                Ok(())
            }
            Err(error) => {
                count(&counters.images_failed, 1);
                let mut owned = keys.owned.borrow_mut();
                for told in told {
                    owned[told.index].unsaved_bytes += told.unsaved_bytes;
                    owned[told.index].touched.put_back(told.touched);
                }
                Err(error)
            }
        }
    }

    /// Bytes of the images that are not needed any more.
    async fn write_keys_file(
        self: &Rc<Self>,
        disk: Rc<dyn Disk>,
        is_base: bool,
        publish: bool,
        told: &mut Vec<Told>,
    ) -> Result<u64, CheckpointError> {
        let keys = self;
        let name = format!("{:08x}.img", keys.shared.last_file.fetch_add(1, Relaxed) + 1);
        let written = self.write_shards(&disk, &name, is_base, told).await;
        let bytes = match written {
            Ok(bytes) => bytes,
            Err(error) => {
                // No manifest can name it, and a full disk needs the room. A removal that fails costs space until the next start.
                let _unreferenced = disk.remove(&Path::new(DIR).join(&name)).await;
                return Err(error);
            }
        };
        let shards = told.iter().map(|told| (told.shard, told.seq)).collect();
        let image = Image { name, bytes, is_base, shards };
        let mut book = keys.book.get();
        book.note(&image);
        let freed =
            call_own(self, 0, move |there| async move { there.add_keys_image(image, publish).await }).await?;
        keys.book.set(book);
        Ok(freed)
    }

    /// Writes the file; its bytes.
    async fn write_shards(
        self: &Rc<Self>,
        disk: &Rc<dyn Disk>,
        name: &str,
        is_base: bool,
        told: &mut Vec<Told>,
    ) -> Result<u64, CheckpointError> {
        let keys = self;
        let mut file =
            ImageWriter::create(disk.clone(), Path::new(DIR), name, keys.opened().uid_base).await?;
        let own = keys.owned.borrow().len();
        let mut slice = Slice::begin(self.ctx.env());
        let _held = self.ctx.node().account.hold(MemoryUse::Images, IMAGE_BYTES);
        let mut block = Vec::with_capacity(BLOCK_BYTES + STEP_BYTES);
        for index in 0..own {
            {
                let shard = &mut keys.owned.borrow_mut()[index];
                if !is_base && !self.is_uncovered(shard) {
                    continue;
                }
                let touched = std::mem::take(&mut shard.touched);
                let unsaved_bytes = std::mem::take(&mut shard.unsaved_bytes);
                told.push(Told { index, shard: shard.number, seq: shard.seq, touched, unsaved_bytes });
            }
            let shard = told.last().expect("pushed just now");
            self.write_shard(shard, is_base, &mut file, &mut block, &mut slice).await?;
        }
        file.finish(0).await
    }

    async fn write_shard(
        &self,
        told: &Told,
        is_base: bool,
        file: &mut ImageWriter,
        block: &mut Vec<u8>,
        slice: &mut Slice,
    ) -> Result<(), CheckpointError> {
        let keys = self;
        let begin = |block: &mut Vec<u8>| {
            block.clear();
            block.extend_from_slice(&(told.shard as u32).to_le_bytes());
        };
        begin(block);
        if is_base {
            let mut cursor = keys.owned.borrow()[told.index].writer.snapshot();
            let mut more = true;
            while more {
                let now_ms = self.ctx.env().unix_ms();
                more = keys.owned.borrow_mut()[told.index].writer.snapshot_step(
                    &mut cursor,
                    now_ms,
                    STEP_BYTES,
                    |key, value, deadline_ms| {
                        record::put(block, &Effect::Set { key, value: Cow::Borrowed(value), deadline_ms });
                    },
                );
                if block.len() >= BLOCK_BYTES {
                    file.block(block).await?;
                    begin(block);
                }
                slice.check().await;
            }
        } else {
            if told.touched.is_flushed() {
                record::put(block, &Effect::Flush);
            }
            let (mut window, mut value) = (HashSet::default(), Vec::new());
            let mut step_end = STEP_BYTES;
            let mut touched = told.touched.keys().filter(|key| {
                if window.len() >= WINDOW_KEYS {
                    window.clear();
                }
                window.insert(*key)
            });
            loop {
                let ahead: Vec<&[u8]> = touched.by_ref().take(KEYS_AHEAD).collect();
                if ahead.is_empty() {
                    break;
                }
                keys.prefetch(ahead.iter().copied());
                for key in ahead {
                    value.clear();
                    let now_ms = self.ctx.env().unix_ms();
                    let found = keys.owned.borrow_mut()[told.index].writer.peek(key, now_ms, &mut value);
                    let effect = match found {
                        Some(deadline_ms) => Effect::Set { key, value: Cow::Borrowed(&value), deadline_ms },
                        None => Effect::Delete { key },
                    };
                    record::put(block, &effect);
                    if block.len() >= step_end {
                        step_end = block.len() + STEP_BYTES;
                        if block.len() >= BLOCK_BYTES {
                            file.block(block).await?;
                            begin(block);
                            step_end = STEP_BYTES;
                        }
                        slice.check().await;
                    }
                }
            }
        }
        if block.len() > size_of::<u32>() {
            file.block(block).await?;
        }
        Ok(())
    }

    /// On core 0: names an image in the manifest and removes those that it replaces; bytes of these.
    async fn add_keys_image(self: &Rc<Self>, image: Image, publish: bool) -> Result<u64, CheckpointError> {
        let keys = self;
        let _held = keys.manifest_lock.lock().await;
        let mut manifest = keys.manifest.borrow().clone().expect("a store on a disk has one");
        let path = Path::new(DIR).join(&image.name);
        manifest.images.push(image);
        if !publish {
            *keys.manifest.borrow_mut() = Some(manifest);
            return Ok(0);
        }
        let before = manifest.images.clone();
        let dropped = manifest.drop_superseded();
        let disk = self.ctx.env().disk().expect("there is a manifest");
        if let Err(error) = self.store_keys_manifest(manifest).await {
            // Where the manifest before is certainly in its place nobody will ask for the image, and a full disk needs the room.
            let found = disk.read(&Path::new(DIR).join(FILE)).await.ok();
            let found = found.and_then(|bytes| super::manifest::decode(&bytes).ok());
            if found == *keys.manifest.borrow() {
                let _unreferenced = disk.remove(&path).await;
            }
            return Err(error);
        }
        let mut freed = 0;
        for image in before.iter().filter(|image| dropped.contains(&image.name)) {
            freed += image.bytes;
            let path = Path::new(DIR).join(&image.name);
            let is_damaged = keys.damaged.borrow_mut().remove(&image.name);
            let gone = match is_damaged {
                true => disk.rename(&path, &kept_name(Path::new(&image.name), self.ctx.unix_ms())).await,
                false => disk.remove(&path).await,
            };
            if let Err(error) = gone {
                tracing::warn!(file = image.name, %error, "old image of keys not removed");
            }
        }
        Ok(freed)
    }

    /// On core 0: makes this the manifest of the disk.
    pub(super) async fn store_keys_manifest(&self, manifest: Manifest) -> Result<(), CheckpointError> {
        let disk = self.ctx.env().disk().expect("a manifest lies on a disk");
        let path: PathBuf = Path::new(DIR).join(FILE);
        let replaced = twin::replace(&*disk, &path, &encode(&manifest)).await;
        replaced.map_err(|source| CheckpointError::Io { path, source })?;
        *self.manifest.borrow_mut() = Some(manifest);
        Ok(())
    }

    /// Whether an image has something to tell of a shard, if only that records of its are not needed any more.
    pub(super) fn is_uncovered(&self, shard: &Shard) -> bool {
        let covered = self.opened().covered[shard.number].load(Relaxed);
        shard.seq > covered || !shard.touched.is_empty()
    }

    /// Whether a start would hold so many log records of this core's keys that an image is to be written.
    pub(crate) fn is_keys_log_long(&self) -> bool {
        self.unsaved_keys_bytes() > self.unsaved_keys_bytes_soft()
    }

    /// Whether they are so many that puts have to wait for the image.
    pub(crate) fn is_keys_log_too_long(&self) -> bool {
        self.unsaved_keys_bytes() > self.unsaved_keys_bytes_soft().saturating_mul(UNSAVED_HARD_FACTOR)
    }

    fn unsaved_keys_bytes(&self) -> u64 {
        self.owned.borrow().iter().map(|shard| shard.unsaved_bytes).sum()
    }

    pub(super) fn unsaved_keys_bytes_soft(&self) -> u64 {
        self.ctx.node().account.limit_bytes() / UNSAVED_PART / self.ctx.env().cores() as u64
    }

    /// Log records of keys of this core that no image covers.
    pub(crate) fn uncovered_keys_records(&self) -> u64 {
        let keys = self;
        let covered = &keys.opened().covered;
        let uncovered =
            |shard: &super::shard::Shard| shard.seq.saturating_sub(covered[shard.number].load(Relaxed));
        keys.owned.borrow().iter().map(uncovered).sum()
    }
}
