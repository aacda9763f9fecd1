//! Small files that are kept twice: in their place, and under `copies/` with the same path.
//!
//! If a file that lists other data (a manifest, a catalog entry, the ledger of a log) were lost or damaged, all the data that it lists would be lost
//! too. The file itself is written first, and is used while it is intact. Otherwise its copy is used. The copy also shows that the file existed
//! when the file, or its whole directory, is gone.

use crate::disk::is_full;
use crate::disk::{BLOCK, Disk};
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Where the copies lie.
pub const COPIES: &str = "copies";

/// The copy of a file or of a directory of such files.
pub fn copy_of(path: &Path) -> PathBuf {
    Path::new(COPIES).join(path)
}

/// Why neither of the two can be used.
#[derive(Debug, thiserror::Error)]
pub enum TwinError<E: Display> {
    /// The disk refused.
    #[error("{0}")]
    Io(io::Error),
    /// What is there is not whole.
    #[error("{0}")]
    Bad(E),
}

/// Replaces the file and its copy, durably. Costs two replacements.
///
/// The copy is written when the file is durable. A start relies on that: where the two are equal, it need not make the file durable
/// again ([`read`]).
///
/// # Errors
/// The file itself could not be written: a later read may return its old or its new content. If only the copy cannot be written, the old copy is
/// removed, because it could be restored later as if it were current; this is an error only if the removal fails too.
pub async fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let copy = copy_of(path);
    let may_be_equal = match disk.read(&copy).await {
        Ok(found) => found == bytes,
        Err(error) => error.kind() != ErrorKind::NotFound,
    };
    if may_be_equal {
        // An earlier replacement has left a copy behind, and now the content of that time comes back. The copy would say that the file is durable
        // before it is.
        disk.remove(&copy).await?;
    }
    disk.replace(path, bytes).await?;
    store_copy(disk, path, bytes).await
}

/// [`replace`] for content that must be written before room can be freed. On a full disk the copy is removed to make room; if that is not enough, a
/// file of whole blocks is overwritten in place. A power loss during that may leave neither the old nor the new content.
///
/// # Errors
/// As for [`replace`]; the copy may be gone then.
pub async fn replace_on_full_disk(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    match replace(disk, path, bytes).await {
        Err(error) if is_full(&error) => {
            disk.remove(&copy_of(path)).await?;
            match replace(disk, path, bytes).await {
                Err(error) if is_full(&error) => match write_over(disk, path, bytes).await? {
                    true => Ok(()),
                    false => Err(error),
                },
                replaced => replaced,
            }
        }
        replaced => replaced,
    }
}

/// Overwrites a file of whole blocks that is at least as long as `bytes`, and fills its rest with spaces. Returns whether this was possible.
async fn write_over(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let file = match disk.open(path).await {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let len = file.len().await?;
    let fits = len.is_multiple_of(BLOCK as u64) && len >= bytes.len() as u64;
    if fits {
        let mut bytes = bytes.to_vec();
        bytes.resize(len as usize, b' ');
        file.write_at(0, &bytes).await?;
        file.sync().await?;
    }
    file.close().await?;
    Ok(fits)
}

/// Where what is to be removed lies until it is; every start empties it.
pub const TRASH: &str = "trash";

/// Removes a directory of such files. The copies are removed first, because a start would restore the files from them, and the directory is moved
/// away before its files are removed, because a start would take some of them for damage.
///
/// # Errors
/// The disk refused. A start may find the directory whole then.
pub async fn remove_dir(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    disk.remove_dir(&copy_of(dir)).await?;
    let name = dir.file_name().expect("it is a directory with a name");
    let trash = Path::new(TRASH).join(name);
    let moved = match disk.create_dir(Path::new(TRASH)).await {
        Ok(()) => disk.rename(dir, &trash).await,
        Err(error) => Err(error),
    };
    match moved {
        Ok(()) => disk.remove_dir(&trash).await,
        // A full disk may have no room for another name.
        Err(_) => disk.remove_dir(dir).await,
    }
}

async fn store_copy(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let copy = copy_of(path);
    let stored = match disk.replace(&copy, bytes).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            match disk.create_dir(copy.parent().expect("it lies below the copies")).await {
                Ok(()) => disk.replace(&copy, bytes).await,
                Err(error) => Err(error),
            }
        }
        stored => stored,
    };
    let Err(error) = stored else { return Ok(()) };
    disk.remove(&copy).await?;
    tracing::warn!(file = %path.display(), %error, "the copy of a file could not be written; until it is replaced there is none");
    Ok(())
}

/// Reads a file, or its copy if the file is missing or damaged, and makes the two equal. Returns `None` if neither exists. `is_final` recognises
/// an error after which the copy must not be used: a newer format.
///
/// # Errors
/// See [`TwinError`]. If neither can be used, the error is that of the file rather than that of its copy.
pub async fn read<T, E: Display>(
    disk: &dyn Disk,
    path: &Path,
    decode: impl Fn(&[u8]) -> Result<T, E>,
    is_final: impl Fn(&E) -> bool,
) -> Result<Option<T>, TwinError<E>> {
    let dir = path.parent().unwrap_or(Path::new(""));
    let why = match disk.read(path).await {
        Ok(bytes) => match decode(&bytes) {
            Ok(content) => {
                if disk.read(&copy_of(path)).await.ok().is_none_or(|copy| copy != bytes) {
                    // A process that was killed while it replaced the file may have left the new name in a cache only. Where the copy is equal,
                    // the file was durable before the copy was written; a sync of each of many directories would take most of a start.
                    disk.sync_dir(dir).await.map_err(TwinError::Io)?;
                    store_copy(disk, path, &bytes).await.map_err(TwinError::Io)?;
                }
                return Ok(Some(content));
            }
            Err(error) if is_final(&error) => return Err(TwinError::Bad(error)),
            Err(error) => Some(TwinError::Bad(error)),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => Some(TwinError::Io(error)),
    };
    let copy = match disk.read(&copy_of(path)).await {
        Ok(copy) => copy,
        Err(error) if error.kind() == ErrorKind::NotFound => return why.map_or(Ok(None), Err),
        Err(error) => return Err(why.unwrap_or(TwinError::Io(error))),
    };
    let content = match decode(&copy) {
        Ok(content) => content,
        Err(error) => return Err(why.unwrap_or(TwinError::Bad(error))),
    };
    let cause = why.map_or("it is missing".to_owned(), |why| why.to_string());
    tracing::error!(file = %path.display(), cause, "a file was damaged or removed; it is restored from its copy");
    let restored = async {
        // The copy first: if the process is killed before the file is durable, the next start takes the file for durable.
        disk.sync_dir(&copy_of(dir)).await?;
        disk.create_dir(dir).await?;
        disk.replace(path, &copy).await
    };
    if let Err(error) = restored.await {
        tracing::warn!(file = %path.display(), %error, "it could not be restored; the copy is used");
    }
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Calls, Failure, SimDisk};
    use futures_lite::future::block_on;

    fn decode(bytes: &[u8]) -> Result<u8, &'static str> {
        match bytes {
            [b'n', ..] => Err("newer"),
            [byte] => Ok(*byte),
            _ => Err("not one byte"),
        }
    }

    fn read_now(disk: &SimDisk) -> Result<Option<u8>, String> {
        block_on(read(disk, Path::new("d/f"), decode, |error| *error == "newer"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn either_of_the_two_is_enough() {
        let disk = SimDisk::new(1);
        assert_eq!(read_now(&disk), Ok(None));
        block_on(disk.create_dir(Path::new("d"))).unwrap();
        block_on(replace(&disk, Path::new("d/f"), &[7])).unwrap();
        for damaged in ["d/f", "copies/d/f"] {
            disk.put(damaged, vec![1, 2]);
            assert_eq!(read_now(&disk), Ok(Some(7)));
            assert_eq!(disk.bytes(damaged).unwrap(), [7]);
            block_on(disk.remove(Path::new(damaged))).unwrap();
            assert_eq!(read_now(&disk), Ok(Some(7)));
            assert_eq!(disk.bytes(damaged).unwrap(), [7]);
        }
        block_on(disk.remove_dir(Path::new("d"))).unwrap();
        assert_eq!(read_now(&disk), Ok(Some(7)), "the directory comes back as well");
        disk.put("d/f", b"n".to_vec());
        assert_eq!(read_now(&disk), Err("newer".to_owned()));
        disk.put("d/f", vec![1, 2]);
        disk.put("copies/d/f", Vec::new());
        assert_eq!(read_now(&disk), Err("not one byte".to_owned()));
    }

    /// Some calls fail, the process goes on, and is killed at a later call. What the next start reads is read by every later start, although the
    /// power is lost: so a start may act on it, and yet makes a file durable only if its copy differs.
    #[test]
    fn what_a_start_has_read_survives_a_power_loss() {
        for (failing, count) in (0..16).flat_map(|first| (0..4).map(move |count| (first, count))) {
            for killed_at in failing + count..failing + count + 30 {
                let disk = SimDisk::new(killed_at);
                block_on(disk.create_dir(Path::new("d"))).unwrap();
                block_on(replace(&disk, Path::new("d/f"), &[7])).unwrap();
                let fails = (failing..failing + count).chain(killed_at..killed_at + 100);
                fails.for_each(|call| disk.fail(Calls::Any, call, Failure::Io));
                for bytes in [[8], [7], [9]] {
                    // Whoever asked goes on with another change.
                    let _failed = block_on(replace(&disk, Path::new("d/f"), &bytes));
                }
                disk.heal();
                let found = read_now(&disk);
                assert!(matches!(found, Ok(Some(7..=9))), "{found:?}");
                for seed in 0..6 {
                    let later = read_now(&disk.crash_clone(seed));
                    assert_eq!(later, found, "{count} calls failed from {failing} on, killed at {killed_at}");
                }
            }
        }
    }

    #[test]
    fn a_file_whose_copy_is_equal_takes_no_sync() {
        let disk = SimDisk::new(1);
        block_on(disk.create_dir(Path::new("d"))).unwrap();
        block_on(replace(&disk, Path::new("d/f"), &[7])).unwrap();
        let before = disk.calls(Calls::NameSync);
        assert_eq!(read_now(&disk), Ok(Some(7)));
        assert_eq!(disk.calls(Calls::NameSync), before);
        disk.put("copies/d/f", vec![8]);
        assert_eq!(read_now(&disk), Ok(Some(7)));
        assert!(disk.calls(Calls::NameSync) > before);
    }

    #[test]
    fn a_full_disk_has_room_for_what_frees_it() {
        let disk = SimDisk::new(1);
        block_on(disk.create_dir(Path::new("d"))).unwrap();
        block_on(replace(&disk, Path::new("d/f"), &[7])).unwrap();
        disk.set_space(Some(disk.used_bytes()));
        assert!(is_full(&block_on(replace(&disk, Path::new("d/f"), &[8])).unwrap_err()));
        assert_eq!(read_now(&disk), Ok(Some(7)));
        block_on(replace_on_full_disk(&disk, Path::new("d/f"), &[8])).unwrap();
        assert_eq!(read_now(&disk), Ok(Some(8)));
        assert_eq!(disk.bytes("copies/d/f").unwrap(), [8]);
    }

    /// A copy that is behind would be believed once the file is damaged.
    #[test]
    fn a_copy_that_cannot_be_written_is_not_left_behind() {
        let disk = SimDisk::new(1);
        block_on(disk.create_dir(Path::new("d"))).unwrap();
        block_on(replace(&disk, Path::new("d/f"), &[7])).unwrap();
        // After the look at the copy, and the file.
        disk.fail(Calls::Other, 2, Failure::NoSpace);
        block_on(replace(&disk, Path::new("d/f"), &[8])).unwrap();
        assert_eq!(disk.bytes("copies/d/f"), None);
        assert_eq!(read_now(&disk), Ok(Some(8)));
        assert_eq!(disk.bytes("copies/d/f").unwrap(), [8]);
    }
}
