//! Marks in a store's directory: that what was lost of it is not there to be seen any more, and that its owner takes what is left.
//!
//! A part of a log that is gone concerns stores whose files are whole, and the log that would tell goes once images cover it. So the verdict
//! is written beside the files of each store concerned (`damaged.json`) and holds until the store is dropped, or until somebody makes a file
//! `accept-damage` in that directory: then the next start serves what can be read, and removes both.

use crate::disk::Disk;
use crate::sealed_json::{self, Layout};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Name of the mark.
pub const DAMAGED: &str = "damaged.json";
/// Name of the file by which an operator accepts the damage.
pub const ACCEPT: &str = "accept-damage";
/// Newest format this build reads and the one it writes.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct FileV1 {
    why: String,
}

/// What the marks of a directory say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Why the store is damaged.
    pub damage: Option<String>,
    /// The operator takes what is left.
    pub is_accepted: bool,
}

/// Reads the marks of `dir`. A mark that cannot be read marks all the same.
pub async fn read(disk: &dyn Disk, dir: &Path) -> Marks {
    let damage = match disk.read(&dir.join(DAMAGED)).await {
        Ok(bytes) => Some(match sealed_json::decode::<FileV1>(FORMAT, &bytes, "a mark of damage") {
            Ok(file) => file.why,
            Err(error) => format!("it is marked so, without a reason that can be read: {error}"),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(format!("{DAMAGED}: {error}")),
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
    disk.replace(&dir.join(DAMAGED), &bytes).await
}

/// The damage was accepted, and what is left is served.
pub async fn clear(disk: &dyn Disk, dir: &Path) {
    for name in [DAMAGED, ACCEPT] {
        if let Err(error) = disk.remove(&dir.join(name)).await {
            tracing::warn!(directory = %dir.display(), file = name, %error, "a mark of damage that was accepted is not removed");
        }
    }
}
