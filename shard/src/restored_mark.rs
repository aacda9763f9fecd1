//! `restored.json` in the directory of a collection that comes from a backup: which collections it replaces.
//!
//! The file is there before any other. A directory with it and without a `collection.json` is what a restore has left that did not come to its end,
//! and a start removes it. With a `collection.json` the restore has happened: then the start removes what was replaced, in case the process ended before
//! it did so, and after that the file itself.

use crate::disk::Disk;
use crate::sealed_json::{self, Layout, Unreadable};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use std::path::Path;

/// The name of the file.
pub const FILE: &str = "restored.json";
/// Newest format this build reads and the one it writes.
pub(crate) const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct FileV1 {
    replaces: Vec<u64>,
}

/// Marks the collection of `dir`: it replaces the collections with the uids `replaces`.
///
/// # Errors
/// The disk refused.
pub async fn store(disk: &dyn Disk, dir: &Path, replaces: &[u64]) -> io::Result<()> {
    let bytes = sealed_json::encode(FORMAT, FileV1 { replaces: replaces.to_vec() }, Layout::Lines);
    disk.replace(&dir.join(FILE), &bytes).await
}

/// The uids of the collections that the one of `dir` replaces; `None` if it has no mark.
///
/// # Errors
/// The mark cannot be read. Then nothing may be removed because of it.
pub async fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Vec<u64>>, String> {
    let bytes = match disk.read(&dir.join(FILE)).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let found = sealed_json::decode::<FileV1>(FORMAT, &bytes, "a mark of a restored collection");
    found.map(|file| Some(file.replaces)).map_err(|why: Unreadable| why.to_string())
}

/// Removes the mark: what was replaced is gone.
///
/// # Errors
/// The disk refused.
pub async fn remove(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    disk.remove(&dir.join(FILE)).await
}
