//! Checkpoint files of one collection: a base image and deltas, each checksummed per block, named by a manifest.
use crate::disk::Disk;
use std::path::{Path, PathBuf};
use std::rc::Rc;
/// Why a checkpoint cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// I/O.
    #[error("checkpoint {path}: {source}")]
    Io {
        /// File.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// Written by a newer version.
    #[error("checkpoint {path} has format {found}, newer than {known}")]
    Newer {
        /// File.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// Newest known.
        known: u32,
    },
    /// Damaged.
    #[error("checkpoint {path} is corrupt at byte {offset}: {what}")]
    Corrupt {
        /// File.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What.
        what: String,
    },
}
/// The files that make up the newest durable state of one collection, oldest first (flatbuffers on disk, replaced atomically).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Sequence number the images are consistent with.
    pub seq: u64,
    /// Base image, then deltas: (file name, bytes).
    pub images: Vec<(String, u64)>,
}
impl Manifest {
    /// Reads `dir/manifest`; a missing one is the default (no images).
    pub async fn load(disk: &dyn Disk, dir: &Path) -> Result<Manifest, CheckpointError> {
        let _ = (disk, dir);
        todo!()
    }
    /// Replaces it durably.
    pub async fn store(&self, disk: &dyn Disk, dir: &Path) -> Result<(), CheckpointError> {
        let _ = (disk, dir);
        todo!()
    }
}
/// Writes one image file block by block.
pub struct ImageWriter {}
impl ImageWriter {
    /// Creates `dir/name`.
    pub async fn create(disk: Rc<dyn Disk>, dir: &Path, name: &str) -> Result<ImageWriter, CheckpointError> {
        let _ = (disk, dir, name);
        todo!()
    }
    /// Appends one block of whole records (any length).
    pub async fn block(&mut self, records: &[u8]) -> Result<(), CheckpointError> {
        let _ = records;
        todo!()
    }
    /// Footer with `seq` and block count, sync, sync of the directory; returns bytes written.
    pub async fn finish(self, seq: u64) -> Result<u64, CheckpointError> {
        let _ = seq;
        todo!()
    }
}
/// Reads one image, calling `block` with each block's bytes; checks every checksum and the footer; returns the footer's seq.
pub async fn read_image(
    disk: &dyn Disk,
    dir: &Path,
    name: &str,
    block: &mut dyn FnMut(&[u8]) -> Result<(), String>,
) -> Result<u64, CheckpointError> {
    let _ = (disk, dir, name, block);
    todo!()
}
