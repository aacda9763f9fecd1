//! Checkpoints: images of collections written in slices while serving, so that the log to replay stays short.
//!
//! A collection's durable state is a base image and deltas named by its manifest, consistent as of the manifest's
//! sequence number; recovery replays the log from there. When the deltas outgrow the base, or are many, the next
//! image is a new base. Old files go only after the new manifest is durable.

use crate::account::MemoryUse;
use crate::checkpoint::{CheckpointError, ImageWriter, Manifest, VectorsFile};
use crate::core::Core;
use crate::disk::Disk;
use crate::env::call_own;
use crate::log::LogError;
use crate::owner::Owned;
use crate::owner::indexer::Slice;
use ahash::HashMap;
use nigh_engine::collection::DenseWriter;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
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
/// Images that a core writes at once when it stops: one waits for the disk while others are made. Each holds [`IMAGE_BYTES`].
const IMAGES_AT_ONCE: usize = 4;
/// Looks at the log this often, microseconds.
const PERIOD_US: u64 = 100_000;
/// After an image that failed it waits, doubling that up to the latter with each failure: a full disk is written to its end each time.
/// So long it waits also where something that frees room waits for images.
const PAUSE_LEAST_US: u64 = 5 * PERIOD_US;
const PAUSE_MIN_US: u64 = 10 * PERIOD_US;
const PAUSE_MAX_US: u64 = 80 * PERIOD_US;
/// A collection without a write for this long is at rest, microseconds.
const IDLE_US: u64 = 5_000_000;
/// What makes an image of it worth writing is also at least this part of its points: after [`IMAGES_MAX`] deltas comes a base,
/// which writes them all.
const IMAGE_RECORDS_PART: u64 = 64;
/// A stop waits no longer than this for images, microseconds; what they lack is in the log.
const STOP_US: u64 = 8_000_000;
const STOP_POLL_US: u64 = 1_000;
/// A build that failed tries for so long to take its manifest back before it says that it could not, microseconds.
const WITHDRAW_US: u64 = 8_000_000;

/// The files of one collection.
#[derive(Debug, Default)]
pub struct CheckpointState {
    /// Newest durable manifest.
    pub manifest: Manifest,
    /// Number of the last file.
    pub last_file: u64,
    /// On the disk there may be another manifest, that of a build that failed: the next image comes as soon as it can, and its manifest
    /// replaces either.
    pub unsettled: bool,
    /// Bytes, as estimated, of the last base on a disk that is full since then, whether it found room or not.
    pub tried: Option<u64>,
    /// Images of manifests that could not be stored, though the next start may find one: removed once a newer manifest is.
    pub strays: Vec<String>,
}

impl CheckpointState {
    /// A number for the next file.
    pub fn next_file(&mut self) -> u64 {
        self.last_file += 1;
        self.last_file
    }
}

/// Directory of a collection, inside the data directory.
pub fn collection_dir(uid: u64) -> PathBuf {
    PathBuf::from(format!("collections/{uid:016x}"))
}

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
async fn write_image(core: &Rc<Core>, owned: &Owned) -> Result<(), CheckpointError> {
    let Some(disk) = core.env().disk() else { return Ok(()) };
    let is_no_room = |written: &Result<(), CheckpointError>| written.as_ref().is_err_and(|e| e.is_full());
    let frees = core.is_disk_short() && frees_room(core, owned);
    let may_use_reserve = core.node().reserve.is_for_images(core.env().now_ns());
    let is_due = is_base_due(owned, &owned.writer);
    let may_be_delta =
        !owned.checkpoint.borrow().manifest.images.is_empty() && !owned.writer.borrow().codes_unsaved();
    let mut is_base = frees || is_due;
    let mut written = write_image_as(core, &disk, owned, is_base).await;
    if is_no_room(&written) && is_base && may_be_delta && !frees {
        // The log has to be let go, at the price of another image to open.
        is_base = false;
        written = write_image_as(core, &disk, owned, is_base).await;
    }
    if is_no_room(&written)
        && core.node().reserve.is_for_images(core.env().now_ns())
        && core.release_reserve().await
    {
        written = write_image_as(core, &disk, owned, is_base).await;
    }
    if is_no_room(&written) && frees && may_use_reserve {
        let tried = owned.writer.borrow().image_bytes(false);
        owned.checkpoint.borrow_mut().tried = Some(tried);
    }
    if is_no_room(&written) && frees && may_be_delta {
        written = write_image_as(core, &disk, owned, false).await;
    }
    if written.is_ok() || is_no_room(&written) {
        core.node().reserve.note_image(written.is_ok(), core.env().now_ns());
    }
    written
}

async fn write_image_as(
    core: &Rc<Core>,
    disk: &Rc<dyn Disk>,
    owned: &Owned,
    is_base: bool,
) -> Result<(), CheckpointError> {
    let vectors = owned.vectors.borrow().clone();
    let stored = match capture_image(core, owned, &owned.writer, vectors.as_deref(), is_base).await {
        Ok(image) => match image.publish(&**disk, owned).await {
            Ok(()) => Ok(image),
            Err(error) => {
                image.leave(core, owned).await;
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
        || deltas > images.first().map_or(0, |(_, bytes)| *bytes)
}

/// Whether so many points have gone that a base gives room back, which finds room itself, and is clearly smaller than the last: what an
/// estimate leaves out must not have one written after the other.
fn frees_room(core: &Core, owned: &Owned) -> bool {
    let is_another = |tried: u64| owned.writer.borrow().image_bytes(false) < tried - tried / TRIED_PART;
    gives_room(core, owned) && owned.checkpoint.borrow().tried.is_none_or(is_another)
}

/// Whether a base would take less than half of what the images of now take, and find room, once repairs are done.
fn gives_room(core: &Core, owned: &Owned) -> bool {
    let state = owned.checkpoint.borrow();
    let stored: u64 = state.manifest.images.iter().map(|(_, bytes)| bytes).sum();
    let base = owned.writer.borrow().image_bytes(true);
    stored > IMAGE_BYTES_LEAST && base < stored / 2 && core.node().reserve.has_room_for_image(base)
}

/// Whether repairs around deleted points wait: the disk has no room for images of the edges that they change, and deletes need what there is.
/// Once a base without the points gives room back, or the disk has room again, they go on: the indexer asks now and then.
pub(super) fn spares_images(core: &Core, owned: &Owned) -> bool {
    core.is_disk_short() && !owned.checkpoint.borrow().manifest.images.is_empty() && !gives_room(core, owned)
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
    core: &Rc<Core>,
    owned: &Owned,
    writer: &RefCell<DenseWriter>,
    vectors: Option<&VectorsFile>,
    base: bool,
) -> Result<NewImage, CheckpointError> {
    let disk = core.env().disk().expect("images are written to a disk");
    let dir = collection_dir(owned.handle.uid);
    let (old, name) = {
        let mut state = owned.checkpoint.borrow_mut();
        (state.manifest.clone(), format!("{:08x}.img", state.next_file()))
    };
    let _held = core.node().account.hold(MemoryUse::Images, IMAGE_BYTES);
    writer.borrow_mut().begin_capture(base);
    let result = async {
        let mut image = ImageWriter::create(disk.clone(), &dir, &name, owned.handle.uid).await?;
        let mut slice = Slice::begin(core.env());
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
    pub async fn withdraw(&self, core: &Rc<Core>, owned: &Owned) -> bool {
        let disk = core.env().disk().expect("images are written to a disk");
        let dir = collection_dir(owned.handle.uid);
        owned.checkpoint.borrow_mut().unsettled = true;
        let mut waited_us = 0;
        while let Err(error) = self.replaces.store_twin(&*disk, &dir, owned.handle.uid).await {
            if waited_us >= WITHDRAW_US || owned.dropped.get() || core.is_stopping() {
                tracing::error!(collection = owned.handle.name, %error, "the manifest of a failed build is not taken back");
                return false;
            }
            core.env().sleep_us(PERIOD_US).await;
            waited_us += PERIOD_US;
        }
        owned.checkpoint.borrow_mut().unsettled = false;
        self.discard(core, owned).await;
        true
    }

    /// After a [`Self::publish`] that has failed: removes the image if the manifest before is certainly in its place. Else it may be the one
    /// that the next start finds, and the image stays until a newer manifest names others.
    async fn leave(&self, core: &Rc<Core>, owned: &Owned) {
        let Some(disk) = core.env().disk() else { return };
        let found = Manifest::load(&*disk, &collection_dir(owned.handle.uid), owned.handle.uid).await;
        if found.is_ok_and(|found| found == self.replaces) {
            self.discard(core, owned).await;
        } else if let Some((name, _)) = self.manifest.images.last() {
            owned.checkpoint.borrow_mut().strays.push(name.clone());
        }
    }

    /// Removes the image, which no manifest names.
    pub async fn discard(&self, core: &Rc<Core>, owned: &Owned) {
        if let (Some((name, _)), Some(disk)) = (self.manifest.images.last(), core.env().disk()) {
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

impl Core {
    /// The newest checkpointed sequence number of every collection; one that is missing has been dropped, if it is older than
    /// this run.
    fn covered(&self) -> HashMap<u64, u64> {
        let pin = self.pin();
        let catalog = self.node().catalog.load(&pin);
        catalog.by_name.values().map(|handle| (handle.uid, handle.covered_seq.load(Relaxed))).collect()
    }

    /// Writes an image of each collection of this core that `uids` name, and one of keys if any is of theirs; false when it must be tried
    /// again.
    async fn checkpoint_all(self: &Rc<Self>, uids: Vec<u64>, reported: bool) -> bool {
        let (keys, collections): (Vec<u64>, Vec<u64>) =
            uids.into_iter().partition(|uid| self.node().keys.covered(*uid).is_some());
        let mut done = true;
        for uid in collections {
            done &= self.checkpoint_reported(uid, reported).await;
        }
        if !keys.is_empty() {
            done &= self.checkpoint_keys_reported(reported).await;
        }
        done
    }

    async fn checkpoint_keys_reported(self: &Rc<Self>, reported: bool) -> bool {
        let written = self.checkpoint_keys().await;
        if let Err(error) = &written
            && !reported
        {
            tracing::error!(%error, "checkpoint of keys failed; it will be tried again");
        }
        written.is_ok()
    }

    /// As [`Core::checkpoint`]; a failure is logged unless it was `reported` before. False when it must be tried again.
    async fn checkpoint_reported(self: &Rc<Self>, uid: u64, reported: bool) -> bool {
        let Some(owned) = self.owned(uid) else { return true };
        match self.checkpoint(&owned).await {
            Ok(()) => true,
            Err(CheckpointError::Dropped) => true,
            Err(error) => {
                if !reported {
                    tracing::error!(collection = owned.handle.name, %error, "checkpoint failed; it will be tried again");
                }
                false
            }
        }
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

/// Whether opening `owned` after a stop would take so long that an image now is worth its writing.
fn worth_an_image(owned: &Owned, records_min: u64) -> bool {
    let writer = owned.writer.borrow();
    let uncovered = writer.seq().saturating_sub(owned.handle.covered_seq.load(Relaxed));
    writer.training_unsaved()
        || writer.codes_unsaved()
        || uncovered >= records_min.max(writer.shared().stats().live / IMAGE_RECORDS_PART)
}

/// Images with fewer bytes are not worth writing anew on a full disk.
const IMAGE_BYTES_LEAST: u64 = 64 << 10;
/// On a full disk a base follows the last when it takes so much less, as a part of it.
const TRIED_PART: u64 = 16;

/// Finds the collections that have had no write for a while.
#[derive(Default)]
struct Idle {
    looked_ns: u64,
    /// By uid, the sequence number at the last look.
    seqs: HashMap<u64, u64>,
}

impl Idle {
    /// Those of this core that are idle, indexed and worth an image; none before the next look is due.
    fn due(&mut self, core: &Core) -> Vec<u64> {
        let now_ns = core.env().now_ns();
        if now_ns - self.looked_ns < IDLE_US * 1000 {
            return Vec::new();
        }
        self.looked_ns = now_ns;
        let before = std::mem::take(&mut self.seqs);
        let mut due = Vec::new();
        for owned in core.all_owned() {
            let (uid, seq) = (owned.handle.uid, owned.writer.borrow().seq());
            self.seqs.insert(uid, seq);
            if before.get(&uid) == Some(&seq)
                && owned.writer.borrow().tail_len() == 0
                && worth_an_image(&owned, core.options().image_records_min)
            {
                due.push(uid);
            }
        }
        due
    }
}

/// Writes images of what the next start would have to index again. Call when this core takes no more writes.
pub async fn finish(core: &Rc<Core>) {
    if core.log().is_none() {
        return;
    }
    let records_min = core.options().image_records_min;
    let mut due = core.all_owned();
    due.retain(|owned| worth_an_image(owned, records_min));
    let env = core.env().clone();
    let left = Rc::new(Cell::new(due.len()));
    if core.uncovered_keys_records() >= records_min {
        left.set(left.get() + 1);
        let (core, left) = (core.clone(), left.clone());
        env.spawn_background(Box::pin(async move {
            core.checkpoint_keys_reported(false).await;
            left.set(left.get() - 1);
        }));
    }
    let due: Rc<RefCell<Vec<u64>>> =
        Rc::new(RefCell::new(due.iter().map(|owned| owned.handle.uid).collect()));
    for _ in 0..due.borrow().len().min(IMAGES_AT_ONCE) {
        let (core, left, due) = (core.clone(), left.clone(), due.clone());
        env.spawn_background(Box::pin(async move {
            loop {
                let Some(uid) = due.borrow_mut().pop() else { return };
                core.checkpoint_reported(uid, false).await;
                left.set(left.get() - 1);
            }
        }));
    }
    let mut waited_us = 0;
    while left.get() > 0 && waited_us < STOP_US {
        env.sleep_us(STOP_POLL_US).await;
        waited_us += STOP_POLL_US;
    }
}

/// The checkpoint task of one core.
pub async fn run(core: Rc<Core>) {
    let env = core.env().clone();
    let Some(log) = core.log() else { return };
    let mut reported = false;
    let mut pause_us = PAUSE_MIN_US;
    let mut idle = Idle::default();
    // Asked for each segment at that moment: this core's log holds records of what it owns only, and a collection that is
    // created while segments are being removed must not pass for a dropped one.
    let covered = |uid| {
        let collection = core.owned(uid).map(|owned| owned.handle.covered_seq.load(Relaxed));
        collection.or_else(|| core.node().keys.covered(uid))
    };
    while !core.is_stopping() {
        core.pause(PERIOD_US).await;
        let mut failed = false;
        // First: puts wait for it.
        if core.is_keys_log_long() {
            failed |= !core.checkpoint_keys_reported(reported).await;
        }
        let (is_short, is_low) = (core.is_disk_short(), core.node().reserve.is_low());
        if is_short || is_low || core.log_bytes() > core.options().log_bytes_soft {
            failed |= !core.checkpoint_all(log.pinned_by(&covered), reported).await;
            let mut trimmed = log.trim(&covered).await;
            if matches!(trimmed, Err(LogError::NoSpace(_))) && core.release_reserve().await {
                trimmed = log.trim(&covered).await;
            }
            if let Err(error) = trimmed {
                tracing::warn!(%error, "log segments not removed");
            }
        }
        let unsettled = core.all_owned().into_iter().filter(|owned| owned.checkpoint.borrow().unsettled);
        for uid in unsettled.map(|owned| owned.handle.uid).collect::<Vec<_>>() {
            failed |= !core.checkpoint_reported(uid, reported).await;
        }
        if !is_short {
            core.all_owned().iter().for_each(|owned| owned.checkpoint.borrow_mut().tried = None);
        }
        if is_short {
            let freeing = core.all_owned().into_iter().filter(|owned| frees_room(&core, owned));
            for uid in freeing.map(|owned| owned.handle.uid).collect::<Vec<_>>() {
                failed |= !core.checkpoint_reported(uid, reported).await;
            }
            if core.keys_image_frees_room() {
                failed |= !core.checkpoint_keys_reported(reported).await;
            }
        }
        core.node().reserve.note_log_bytes(env.index(), log.closed_bytes());
        if env.index() == 0 {
            core.node().reserve.note_old_bytes(core.old_segments().live_bytes());
        }
        for uid in idle.due(&core) {
            failed |= !core.checkpoint_reported(uid, reported).await;
        }
        if core.has_old_segments() {
            failed |= !retire_old_segments(&core, reported).await;
        }
        reported = failed;
        if failed {
            env.sleep_us(PAUSE_LEAST_US).await;
            let mut waited_us = PAUSE_LEAST_US;
            while waited_us < pause_us && !core.images_wanted.take() && !core.is_keys_log_too_long() {
                env.sleep_us(PERIOD_US).await;
                waited_us += PERIOD_US;
            }
            pause_us = (2 * pause_us).min(PAUSE_MAX_US);
        } else {
            pause_us = PAUSE_MIN_US;
        }
    }
}

/// Checkpoints what old segments still hold, wherever it is owned, and removes the segments; false when it must be
/// tried again.
async fn retire_old_segments(core: &Rc<Core>, reported: bool) -> bool {
    let Some(disk) = core.env().disk() else { return true };
    let covered_by = |covered: HashMap<u64, u64>| {
        move |uid: u64| covered.get(&uid).copied().or_else(|| core.node().keys.covered(uid))
    };
    let mut done = true;
    let mut uids_of: Vec<Vec<u64>> = vec![Vec::new(); core.env().cores()];
    for uid in core.old_segments().pinned_by(&covered_by(core.covered())) {
        let owner = match core.node().keys.shard_of_uid(uid) {
            Some(shard) => core.node().keys.core_of(shard),
            None => core.node().owner_of(uid, core.env().cores()),
        };
        uids_of[owner].push(uid);
    }
    for (owner, uids) in uids_of.into_iter().enumerate().filter(|(_, uids)| !uids.is_empty()) {
        let written =
            call_own(core, owner, move |there| async move { there.checkpoint_all(uids, reported).await });
        done &= written.await;
    }
    if let Err(error) = core.old_segments().trim(&*disk, &covered_by(core.covered())).await {
        tracing::warn!(%error, "old log segments not removed");
        done = false;
    }
    done
}
