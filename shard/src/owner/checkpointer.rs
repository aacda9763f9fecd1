//! Checkpoints: images of collections written in slices while serving, so that the log to replay stays short.
//!
//! A collection's durable state is a base image and deltas named by its manifest, consistent as of the manifest's
//! sequence number; recovery replays the log from there. When the deltas outgrow the base, or are many, the next
//! image is a new base. Old files go only after the new manifest is durable.

use crate::account::MemoryUse;
use crate::checkpoint::{CheckpointError, ImageWriter, Manifest, VectorsFile, collection_dir};
use crate::collection_file;
use crate::disk::Disk;
use crate::owner::{Collections, Owned};
use crate::slice::Slice;
use crate::twin;
use nigh_engine::collection::DenseWriter;
use std::cell::RefCell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Images of one manifest before the next one is a base again: opening reads them all.
const IMAGES_MAX: usize = 12;
/// Bytes captured in one go: from memory that nobody has looked at lately that takes up to 0.2 ms.
const CAPTURE_STEP_BYTES: usize = 32 << 10;
/// Bytes per block of an image file.
const BLOCK_BYTES: usize = 1 << 20;
/// Bytes that an image being written holds: a block, and what is collected of blocks.
pub(crate) const IMAGE_BYTES: u64 = 3 * BLOCK_BYTES as u64;
/// A build that failed tries for so long to take its manifest back before it says that it could not, microseconds.
const WITHDRAW_US: u64 = 8_000_000;
/// Between two of these tries, microseconds.
const WITHDRAW_POLL_US: u64 = 100_000;

/// An image that is durable, the manifest that is to name it, and the one that this replaces.
pub struct NewImage {
    manifest: Manifest,
    replaces: Manifest,
    base: bool,
}

/// Writes one image of the writer that serves and makes it part of `owned`'s manifest: the one that is due, or one that a full disk has room
/// for, with the help of the reserve. The caller holds the checkpoint lock.
///
/// # Errors
/// The file error; nothing is lost: the old manifest stays, and everything counts as changed again.
pub(super) async fn write_image(collections: &Rc<Collections>, owned: &Owned) -> Result<(), CheckpointError> {
    let Some(disk) = collections.env().disk() else { return Ok(()) };
    let is_no_room = |written: &Result<(), CheckpointError>| written.as_ref().is_err_and(|e| e.is_full());
    let frees = collections.ctx().is_disk_short() && frees_room(collections, owned);
    let may_use_reserve = collections.ctx().node().reserve.is_for_images(collections.env().now_ns());
    let is_due = is_base_due(owned, &owned.writer);
    let may_be_delta =
        !owned.checkpoint.borrow().manifest.images.is_empty() && !owned.writer.borrow().codes_unsaved();
    let mut is_base = frees || is_due;
    let mut written = write_image_as(collections, &disk, owned, is_base).await;
    if is_no_room(&written) && is_base && may_be_delta && !frees {
        // The log has to be let go, at the price of another image to open.
        is_base = false;
        written = write_image_as(collections, &disk, owned, is_base).await;
    }
    if is_no_room(&written)
        && collections.ctx().node().reserve.is_for_images(collections.env().now_ns())
        && collections.ctx().release_reserve().await
    {
        written = write_image_as(collections, &disk, owned, is_base).await;
    }
    if is_no_room(&written) && frees && may_use_reserve {
        let tried = owned.writer.borrow().image_bytes(false);
        owned.checkpoint.borrow_mut().tried = Some(tried);
    }
    if is_no_room(&written) && frees && may_be_delta {
        written = write_image_as(collections, &disk, owned, false).await;
    }
    if written.is_ok() || is_no_room(&written) {
        collections.ctx().node().reserve.note_image(written.is_ok(), collections.env().now_ns());
    }
    written
}

async fn write_image_as(
    collections: &Rc<Collections>,
    disk: &Rc<dyn Disk>,
    owned: &Owned,
    is_base: bool,
) -> Result<(), CheckpointError> {
    let vectors = owned.vectors.borrow().clone();
    let stored = match capture_image(collections, owned, &owned.writer, vectors.as_deref(), is_base).await {
        Ok(image) => match image.publish(&**disk, owned).await {
            Ok(()) => Ok(image),
            Err(error) => {
                image.leave(collections, owned).await;
                Err(error)
            }
        },
        Err(error) => Err(error),
    };
    owned.writer.borrow_mut().end_capture(stored.is_ok());
    stored?.conclude(&**disk, owned).await;
    Ok(())
}

/// Whether the next image is to be a base: the first, and when deltas are many or large.
fn is_base_due(owned: &Owned, writer: &RefCell<DenseWriter>) -> bool {
    let state = owned.checkpoint.borrow();
    let images = &state.manifest.images;
    let deltas: u64 = images.iter().skip(1).map(|(_, bytes)| bytes).sum();
    writer.borrow().codes_unsaved()
        || images.is_empty()
        || images.len() >= IMAGES_MAX
        || state.has_dropped
        || deltas > images.first().map_or(0, |(_, bytes)| *bytes)
}

/// Whether so many points have gone that a base gives room back, which finds room itself, and is clearly smaller than the last: what an
/// estimate leaves out must not have one written after the other.
pub(crate) fn frees_room(collections: &Collections, owned: &Owned) -> bool {
    let is_another = |tried: u64| owned.writer.borrow().image_bytes(false) < tried - tried / TRIED_PART;
    gives_room(collections, owned) && owned.checkpoint.borrow().tried.is_none_or(is_another)
}

/// Whether a base would take less than half of what the images of now take, and find room, once repairs are done.
fn gives_room(collections: &Collections, owned: &Owned) -> bool {
    let state = owned.checkpoint.borrow();
    let stored: u64 = state.manifest.images.iter().map(|(_, bytes)| bytes).sum();
    let base = owned.writer.borrow().image_bytes(true);
    stored > IMAGE_BYTES_LEAST
        && base < stored / 2
        && collections.ctx().node().reserve.has_room_for_image(base)
}

/// Whether repairs around deleted points wait: the disk has no room for images of the edges that they change, and deletes need what there is.
/// Once a base without the points gives room back, or the disk has room again, they go on: the indexer asks now and then.
pub(super) fn spares_images(collections: &Collections, owned: &Owned) -> bool {
    collections.ctx().is_disk_short()
        && !owned.checkpoint.borrow().manifest.images.is_empty()
        && !gives_room(collections, owned)
}

/// Writes one image of `writer`, whose vectors lie in `vectors` if in a file. No manifest names it yet, and the capture is not ended.
/// The caller holds the checkpoint lock.
///
/// `base` starts the manifest anew (a full image).
///
/// # Errors
/// The file error; the image is gone.
///
/// # Panics
/// Without a disk.
pub async fn capture_image(
    collections: &Rc<Collections>,
    owned: &Owned,
    writer: &RefCell<DenseWriter>,
    vectors: Option<&VectorsFile>,
    base: bool,
) -> Result<NewImage, CheckpointError> {
    let disk = collections.env().disk().expect("images are written to a disk");
    let dir = collection_dir(owned.handle.uid);
    let (old, name) = {
        let mut state = owned.checkpoint.borrow_mut();
        (state.manifest.clone(), format!("{:08x}.img", state.next_file()))
    };
    let _held = collections.ctx().node().account.hold(MemoryUse::Images, IMAGE_BYTES);
    writer.borrow_mut().begin_capture(base);
    let result = async {
        let mut image = ImageWriter::create(disk.clone(), &dir, &name, owned.handle.uid).await?;
        let mut slice = Slice::begin(collections.env());
        let mut block = Vec::with_capacity(BLOCK_BYTES + CAPTURE_STEP_BYTES);
        let seq = loop {
            if owned.dropped.get() {
                return Err(CheckpointError::Dropped);
            }
            let done = {
                let mut writer = writer.borrow_mut();
                writer.capture_step(CAPTURE_STEP_BYTES, &mut block).then(|| writer.seq())
            };
            if done.is_some() || block.len() >= BLOCK_BYTES {
                image.block(&block).await?;
                block.clear();
            }
            if let Some(seq) = done {
                break seq;
            }
            slice.check().await;
        };
        if let Some(vectors) = vectors {
            // After the last capture: the image names vectors that were written until then.
            let failed = |source| CheckpointError::Io { path: dir.join(vectors.name()), source };
            vectors.sync().await.map_err(failed)?;
        }
        let bytes = image.finish(seq).await?;
        let mut manifest = if base { Manifest::default() } else { old.clone() };
        manifest.seq = seq;
        manifest.images.push((name.clone(), bytes));
        manifest.vectors = vectors.map(|vectors| vectors.name().to_owned());
        Ok(manifest)
    }
    .await;
    match result {
        Ok(manifest) => Ok(NewImage { manifest, replaces: old, base }),
        Err(error) => {
            // A removal that fails costs space, not correctness.
            let _unreferenced = disk.remove(&dir.join(&name)).await;
            Err(error)
        }
    }
}

impl NewImage {
    /// Stores the manifest that names the image.
    ///
    /// # Errors
    /// The file error; which of the manifests the next start finds is open then.
    pub async fn publish(&self, disk: &dyn Disk, owned: &Owned) -> Result<(), CheckpointError> {
        self.manifest.store_twin(disk, &collection_dir(owned.handle.uid), owned.handle.uid).await
    }

    /// The image is that of the writer that serves, and published: the log it covers and the files it replaces are not needed any more.
    pub async fn conclude(self, disk: &dyn Disk, owned: &Owned) {
        let NewImage { manifest, replaces, base } = self;
        let dir = collection_dir(owned.handle.uid);
        owned.handle.covered_seq.store(manifest.seq, Relaxed);
        let replaced = replaces.vectors.filter(|name| manifest.vectors.as_ref() != Some(name));
        let strays = {
            let mut state = owned.checkpoint.borrow_mut();
            if base {
                state.tried = Some(owned.writer.borrow().image_bytes(false));
                state.has_dropped = false;
            }
            (state.manifest, state.unsettled) = (manifest, false);
            std::mem::take(&mut state.strays)
        };
        for name in strays {
            // A removal that fails costs space until the next start.
            let _unreferenced = disk.remove(&dir.join(name)).await;
        }
        if let Some(name) = replaced {
            remove_vectors(disk, owned, &name).await;
        }
        if base {
            for (old_name, _) in &replaces.images {
                if let Err(error) = disk.remove(&dir.join(old_name)).await {
                    tracing::warn!(collection = owned.handle.name, file = old_name, %error, "old image not removed");
                }
            }
        }
    }

    /// Puts the manifest before it back, after [`Self::publish`] or its failure, and tries for some time if the disk refuses. False when
    /// that could not be done: then the next checkpoint replaces what is there.
    pub async fn withdraw(&self, collections: &Rc<Collections>, owned: &Owned) -> bool {
        let disk = collections.env().disk().expect("images are written to a disk");
        let dir = collection_dir(owned.handle.uid);
        owned.checkpoint.borrow_mut().unsettled = true;
        let mut waited_us = 0;
        while let Err(error) = self.replaces.store_twin(&*disk, &dir, owned.handle.uid).await {
            if waited_us >= WITHDRAW_US || owned.dropped.get() || collections.ctx().is_stopping() {
                tracing::error!(collection = owned.handle.name, %error, "the manifest of a failed build is not taken back");
                return false;
            }
            collections.env().sleep_us(WITHDRAW_POLL_US).await;
            waited_us += WITHDRAW_POLL_US;
        }
        owned.checkpoint.borrow_mut().unsettled = false;
        self.discard(collections, owned).await;
        true
    }

    /// Leaves the published manifest on the disk although its image will not serve in this process, and marks the state as unsettled, so
    /// that the next checkpoint replaces the manifest.
    pub fn remain(&self, owned: &Owned) {
        owned.checkpoint.borrow_mut().unsettled = true;
    }

    /// After a [`Self::publish`] that has failed: removes the image if the manifest before is certainly in its place. Else it may be the one
    /// that the next start finds, and the image stays until a newer manifest names others.
    async fn leave(&self, collections: &Rc<Collections>, owned: &Owned) {
        let Some(disk) = collections.env().disk() else { return };
        let found = Manifest::load(&*disk, &collection_dir(owned.handle.uid), owned.handle.uid).await;
        if found.is_ok_and(|found| found == self.replaces) {
            self.discard(collections, owned).await;
        } else if let Some((name, _)) = self.manifest.images.last() {
            owned.checkpoint.borrow_mut().strays.push(name.clone());
        }
    }

    /// Removes the image, which no manifest names.
    pub async fn discard(&self, collections: &Rc<Collections>, owned: &Owned) {
        if let (Some((name, _)), Some(disk)) = (self.manifest.images.last(), collections.env().disk()) {
            // A removal that fails costs space until the next start.
            let _unreferenced = disk.remove(&collection_dir(owned.handle.uid).join(name)).await;
        }
    }
}

/// Removes a file of vectors that no manifest names any more. Whoever still reads it has it mapped; one that stays is removed at the
/// next start.
pub async fn remove_vectors(disk: &dyn Disk, owned: &Owned, name: &str) {
    if let Err(error) = disk.remove(&collection_dir(owned.handle.uid).join(name)).await {
        tracing::warn!(collection = owned.handle.name, file = name, %error, "old file of vectors not removed");
    }
}

/// Images with fewer bytes are not worth writing anew on a full disk.
const IMAGE_BYTES_LEAST: u64 = 64 << 10;
/// On a full disk a base follows the last when it takes so much less, as a part of it.
const TRIED_PART: u64 = 16;

impl Collections {
    /// As [`Collections::checkpoint`]; a failure is logged unless it was `reported` before. False when it must be tried again.
    pub(crate) async fn checkpoint_reported(self: &Rc<Self>, uid: u64, reported: bool) -> bool {
        let Some(owned) = self.owned(uid) else { return true };
        match self.checkpoint(&owned).await {
            Ok(()) => true,
            Err(CheckpointError::Dropped) => true,
            Err(CheckpointError::Io { source, .. })
                if source.kind() == ErrorKind::NotFound && self.is_being_dropped(uid).await =>
            {
                true
            }
            Err(error) => {
                if !reported {
                    tracing::error!(collection = owned.handle.name, %error, "checkpoint failed; it will be tried again");
                }
                false
            }
        }
    }

    /// Whether the files of a collection have left for good, which the owner of a collection that is being dropped learns a moment later. One whose
    /// directory was lost still has the copies, which a drop removes first.
    async fn is_being_dropped(&self, uid: u64) -> bool {
        let Some(disk) = self.env().disk() else { return false };
        let file = collection_dir(uid).join(collection_file::FILE);
        for path in [twin::copy_of(&file), file] {
            if !disk.read(&path).await.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                return false;
            }
        }
        true
    }

    /// Checkpoints one collection if it changed since its last image.
    pub(crate) async fn checkpoint(self: &Rc<Self>, owned: &Rc<Owned>) -> Result<(), CheckpointError> {
        let _held = owned.checkpoint_lock.lock().await;
        if owned.dropped.get() || owned.handle.damage.get().is_some() {
            return Ok(());
        }
        write_image(self, owned).await
    }
}
