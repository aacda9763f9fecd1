//! Two small files in the directory of a store (a collection, or the keys): one marks the store as damaged, the other accepts the damage.
//!
//! When a part of a log is missing, the files of the stores concerned may all be intact, and the segments that show the loss are trimmed once
//! images cover them. So the damage is recorded in each store's directory (`damaged.json`). It holds until the store is dropped, or until an
//! operator creates a file `accept-damage` in that directory: then the next start serves what can be read, and removes both files.

use crate::disk::Disk;
use crate::sealed_json::{self, Layout};
use crate::twin;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Name of the file that marks a store as damaged.
pub const DAMAGED: &str = "damaged.json";
/// Name of the file by which an operator accepts the damage.
pub const ACCEPT: &str = "accept-damage";
/// Newest format this build reads and the one it writes.
pub(crate) const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct FileV1 {
    why: String,
}

/// What the marks of a directory say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Why the store is damaged.
    pub damage: Option<String>,
    /// An operator accepts the damage.
    pub is_accepted: bool,
}

/// Reads the marks of `dir`. A mark that cannot be read marks all the same.
pub async fn read(disk: &dyn Disk, dir: &Path) -> Marks {
    let decode = |bytes: &[u8]| sealed_json::decode::<FileV1>(FORMAT, bytes, "a mark of damage");
    let damage = match twin::read(disk, &dir.join(DAMAGED), decode, |_| false).await {
        Ok(file) => file.map(|file| file.why),
        Err(error) => Some(format!("it is marked so, without a reason that can be read: {error}")),
    };
    let is_accepted = disk.read(&dir.join(ACCEPT)).await.is_ok();
    match is_accepted {
        true => Marks { damage: None, is_accepted },
        false => Marks { damage, is_accepted },
    }
}

/// Marks the store of `dir`.
///
/// # Errors
/// The disk refused.
pub async fn store(disk: &dyn Disk, dir: &Path, why: &str) -> io::Result<()> {
    let bytes = sealed_json::encode(FORMAT, FileV1 { why: why.to_owned() }, Layout::Lines);
    disk.create_dir(dir).await?;
    twin::replace(disk, &dir.join(DAMAGED), &bytes).await
}

/// Removes both files: the damage was accepted, and what can be read is served.
pub async fn clear(disk: &dyn Disk, dir: &Path) {
    // The acceptance goes last: if the mark stays, it is accepted again.
    for path in [twin::copy_of(&dir.join(DAMAGED)), dir.join(DAMAGED), dir.join(ACCEPT)] {
        if let Err(error) = disk.remove(&path).await {
            tracing::warn!(file = %path.display(), %error, "a mark of damage that was accepted is not removed");
            return;
        }
    }
}
