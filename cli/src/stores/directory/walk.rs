//! Pages of the objects below a directory, in the order of their keys.

use super::layout::{UPLOADS, part_of};
use nigh_shard::backup::{Listing, Object};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Directories inside each other that are entered: no key has more parts, because a key has at most 1024 bytes.
const DEPTH_MAX: usize = 512;

/// The first `page` objects below `directory`, the directory of `prefix`, whose keys follow `after`. Other files, and those being written, are left
/// out. A page reads each directory on its way once.
pub(super) fn page(directory: &Path, prefix: &str, after: Option<&str>, page: usize) -> io::Result<Listing> {
    let mut walk = Walk { after, page, listing: Listing::default() };
    walk.enter(directory, prefix, 0)?;
    Ok(walk.listing)
}

struct Walk<'a> {
    after: Option<&'a str>,
    page: usize,
    listing: Listing,
}

impl Walk<'_> {
    fn enter(&mut self, directory: &Path, prefix: &str, depth: usize) -> io::Result<()> {
        let mut found = Vec::new();
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            // No object has the prefix, or somebody has removed the directory meanwhile.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            let name = entry.file_name();
            let Some(part) = name.to_str().filter(|name| depth > 0 || !prefix.is_empty() || *name != UPLOADS)
            else {
                continue;
            };
            let Some(part) = part_of(part) else { continue };
            // The keys below a directory begin with its name and a slash, and that is how it is sorted among files.
            if kind.is_dir() && depth < DEPTH_MAX {
                found.push((format!("{prefix}{part}/"), name));
            } else if kind.is_file() {
                found.push((format!("{prefix}{part}"), name));
            }
        }
        found.sort();
        for (key, name) in found {
            if self.listing.next.is_some() {
                break;
            }
            let is_directory = key.ends_with('/');
            // All keys below a directory that is before `after`, and does not hold it, are before it as well.
            if self.after.is_some_and(|after| *key <= *after && !(is_directory && after.starts_with(&key))) {
                continue;
            }
            let path = directory.join(name);
            if is_directory {
                self.enter(&path, &key, depth + 1)?;
                continue;
            }
            if self.listing.objects.len() == self.page {
                self.listing.next = self.listing.objects.last().map(|last| last.key.clone());
                break;
            }
            match fs::metadata(&path) {
                Ok(metadata) => {
                    let since = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
                    self.listing.objects.push(Object {
                        key,
                        bytes: metadata.len(),
                        modified_unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
                    });
                }
                // Somebody has deleted it meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
