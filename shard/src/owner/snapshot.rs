//! Snapshots of a collection, for backups: its files at one moment, which stay readable while it goes on changing.
//!
//! An image is never changed once it is written, and a file that is open stays readable after its name is removed. A file of vectors is changed
//! in place, but never where the newest images refer to it. So while a snapshot is read, slots that are freed are not used again.

use super::checkpointer::write_image;
use super::{Collections, Owned};
use crate::checkpoint::{CheckpointError, collection_dir};
use crate::collection_file;
use crate::disk::DiskFile;
use crate::error::OpError;
use std::rc::Rc;

/// The files that one collection had at one moment; the index of the tokens of a multi-vector collection is one of its own.
pub(crate) struct HeldCollection {
    /// Its uid.
    pub uid: u64,
    /// The number of the last change that the images have.
    pub seq: u64,
    /// Its `collection.json`.
    pub config: Vec<u8>,
    /// Names, lengths and contents: images in the order of the manifest, then the file of vectors.
    pub files: Vec<(String, u64, Rc<dyn DiskFile>)>,
    vectors_held: HeldVectors,
}

impl HeldCollection {
    /// Whether the collection was dropped meanwhile: what is held of it serves nobody.
    pub(crate) fn is_dropped(&self) -> bool {
        self.vectors_held.0.dropped.get()
    }
}

/// Keeps the vectors that images of a snapshot refer to, until dropped.
struct HeldVectors(Rc<Owned>);

impl HeldVectors {
    fn begin(owned: &Rc<Owned>) -> HeldVectors {
        owned.snapshots.set(owned.snapshots.get() + 1);
        owned.writer.borrow_mut().begin_snapshots();
        HeldVectors(owned.clone())
    }
}

impl Drop for HeldVectors {
    fn drop(&mut self) {
        let left = self.0.snapshots.get() - 1;
        self.0.snapshots.set(left);
        if left == 0 {
            self.0.writer.borrow_mut().end_snapshots();
        }
    }
}

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    /// There is no such collection any more.
    #[error("the collection was dropped")]
    Dropped,
    /// It is damaged, or closed for want of memory.
    #[error(transparent)]
    Unserved(OpError),
    /// An image could not be written, or a file not be opened.
    #[error(transparent)]
    File(#[from] CheckpointError),
}

impl Collections {
    /// Takes a snapshot of a collection of this core, and one of the index of its tokens if it has one: documents first. A start compares the two.
    ///
    /// # Errors
    /// See [`SnapshotError`].
    pub(crate) async fn hold_collection(
        self: &Rc<Self>,
        uid: u64,
    ) -> Result<Vec<HeldCollection>, SnapshotError> {
        let owned = self.owned(uid).ok_or(SnapshotError::Dropped)?;
        let mut held = vec![self.hold_owned(&owned).await?];
        let index = owned.token_index.get().map(|index| index.owned().clone());
        if let Some(index) = index {
            held.push(self.hold_owned(&index).await?);
        }
        Ok(held)
    }

    async fn hold_owned(self: &Rc<Self>, owned: &Rc<Owned>) -> Result<HeldCollection, SnapshotError> {
        let disk = self.env().disk().ok_or(SnapshotError::Dropped)?;
        let (handle, dir) = (&owned.handle, collection_dir(owned.handle.uid));
        // While it is held no image is written, no build comes into service, and no space is added or dropped.
        let _held = owned.checkpoint_lock.lock().await;
        let look = || match owned.dropped.get() {
            true => Err(SnapshotError::Dropped),
            false => handle.healthy().map_err(SnapshotError::Unserved),
        };
        look()?;
        let is_covered = {
            let (state, seq) = (owned.checkpoint.borrow(), owned.writer.borrow().seq());
            state.manifest.seq == seq && !state.unsettled && !(seq > 0 && state.manifest.images.is_empty())
        };
        if !is_covered {
            let written = write_image(self, owned).await;
            look()?;
            written?;
        }
        let vectors = HeldVectors::begin(owned);
        let manifest = owned.checkpoint.borrow().manifest.clone();
        let config = handle.config(&self.ctx().pin()).clone();
        let config = collection_file::encode(handle.uid, &handle.name, &config);
        let mut files = Vec::new();
        for (name, bytes) in manifest
            .images
            .iter()
            .map(|(name, bytes)| (name, Some(*bytes)))
            .chain(manifest.vectors.iter().map(|name| (name, None)))
        {
            let failed = |source| CheckpointError::Io { path: dir.join(name), source };
            let file = disk.open(&dir.join(name)).await.map_err(failed)?;
            let bytes = match bytes {
                Some(bytes) => bytes,
                None => file.len().await.map_err(failed)?,
            };
            files.push((name.clone(), bytes, file));
        }
        Ok(HeldCollection { uid: handle.uid, seq: manifest.seq, config, files, vectors_held: vectors })
    }
}
