//! Checkpoint files of one collection: a base image and deltas, each checksummed per block, named by a manifest.
//!
//! An image is written once, beside the ones in use, and counts only when a manifest names it; the manifest is replaced
//! whole. So a crash at any moment leaves the old state or the new one, and perhaps an image that nobody names.
mod image;
mod manifest;
mod rebind;
mod vectors;

pub use image::{ImageReader, ImageWriter, read_image, read_last_block};
pub use manifest::Manifest;
pub use rebind::{ImageCheck, rebind_vectors};
pub use vectors::VectorsFile;

use std::io;
use std::path::{Path, PathBuf};

/// The formats of the files of checkpoints, see [`crate::formats`].
pub(crate) const FORMATS: [(&str, u32); 3] = [
    ("image", image::VERSIONS.newest),
    ("vectors of a persistent collection", vectors::VERSIONS.newest),
    ("manifest", manifest::VERSIONS.newest),
];

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
        source: io::Error,
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
    /// The collection was dropped meanwhile.
    #[error("the collection was dropped")]
    Dropped,
    /// The directory has images and no manifest.
    #[error("checkpoint {path} is missing, and there are images it should name")]
    Missing {
        /// File.
        path: PathBuf,
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

impl CheckpointError {
    /// Whether the disk has no room for it.
    pub fn is_full(&self) -> bool {
        matches!(self, CheckpointError::Io { source, .. } if crate::disk::is_full(source))
    }

    fn io(path: &Path) -> impl Fn(io::Error) -> CheckpointError + '_ {
        move |source| CheckpointError::Io { path: path.to_owned(), source }
    }

    fn corrupt(path: &Path, offset: u64, what: impl Into<String>) -> CheckpointError {
        CheckpointError::Corrupt { path: path.to_owned(), offset, what: what.into() }
    }
}

/// Bytes of the header that both kinds of file begin with.
const FILE_HEADER_BYTES: usize = 64;

/// Where a file belongs: the uid of its store and its own name. Files of one kind are alike, so each says it, and checksums begin with it:
/// a file that was copied or renamed into the place of another is damage, however whole it is in itself.
#[derive(Clone, Copy)]
struct Identity<'a> {
    store: u64,
    name: &'a str,
}

impl Identity<'_> {
    /// What the checksums of a bound file begin with.
    fn seed(self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.store.to_le_bytes()), self.name.as_bytes())
    }

    /// The identity as a file header holds it: the uid of the store, and a checksum of the name.
    fn bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.store.to_le_bytes());
        bytes[8..].copy_from_slice(&crc32c::crc32c(self.name.as_bytes()).to_le_bytes());
        bytes
    }
}

/// `magic [8], version u32, store u64, crc32c u32 of the file's name, zeros to 60, crc32c u32`, little-endian. Magic, version and checksum
/// keep their meaning in every version of either file, so that an older program can say which version it meets. Versions that were not
/// bound to a place have zeros for store and name.
fn encode_file_header(magic: &[u8; 8], version: u32, identity: Identity<'_>) -> [u8; FILE_HEADER_BYTES] {
    let mut header = [0; FILE_HEADER_BYTES];
    header[..8].copy_from_slice(magic);
    header[8..12].copy_from_slice(&version.to_le_bytes());
    header[IDENTITY].copy_from_slice(&identity.bytes());
    let crc = crc32c::crc32c(&header[..FILE_HEADER_BYTES - 4]);
    header[FILE_HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Where the identity lies in a header.
const IDENTITY: std::ops::Range<usize> = 12..24;

/// The versions of a kind of file.
#[derive(Clone, Copy)]
struct Versions {
    /// The version that is written, and the newest that can be read.
    newest: u32,
    /// The first version whose files say where they belong.
    bound: u32,
}

/// How the header of a kind of file begins.
struct KindOfFile {
    magic: &'static [u8; 8],
    versions: Versions,
}

/// Checks a header. Returns what the checksums behind it begin with: 0 in versions that are not bound to a place.
fn check_file_header(
    path: &Path,
    header: &[u8; FILE_HEADER_BYTES],
    magic: &[u8; 8],
    versions: Versions,
    identity: Identity<'_>,
) -> Result<u32, CheckpointError> {
    let (fields, crc) = header.split_at(FILE_HEADER_BYTES - 4);
    if !fields.starts_with(magic) {
        return Err(CheckpointError::corrupt(path, 0, "it does not begin like such a file"));
    }
    if crc != crc32c::crc32c(fields).to_le_bytes() {
        return Err(CheckpointError::corrupt(path, 0, "the checksum of the header is wrong"));
    }
    let found = u32_at(fields, 8);
    if found > versions.newest {
        return Err(CheckpointError::Newer { path: path.to_owned(), found, known: versions.newest });
    }
    if found < versions.bound {
        return Ok(0);
    }
    if fields[IDENTITY] != identity.bytes() {
        let store = u64_at(fields, IDENTITY.start);
        let what = match store == identity.store {
            true => "it is another file of the same store, under a wrong name".to_owned(),
            false => format!("it belongs to the store {store:016x}, not to {:016x}", identity.store),
        };
        return Err(CheckpointError::corrupt(path, IDENTITY.start as u64, what));
    }
    Ok(identity.seed())
}

/// The number at `at`, which the caller knows to be inside.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("inside a header of fixed size"))
}

/// The number at `at`, which the caller knows to be inside.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside a header of fixed size"))
}

/// Directory of a collection, inside the data directory.
pub fn collection_dir(uid: u64) -> PathBuf {
    PathBuf::from(format!("collections/{uid:016x}"))
}

#[cfg(test)]
mod golden_test;
#[cfg(test)]
mod tests;
