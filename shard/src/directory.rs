//! The data directory of a node: made, locked for one process, and checked for its format.

use crate::disk::is_full;
use crate::twin;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// Newest layout of a data directory this build opens and the one it makes.
///
/// 2: ledgers of logs, copies of small files.
pub const DIRECTORY_FORMAT: u32 = 2;
/// The file that says the layout.
pub const FORMAT_FILE: &str = "FORMAT";

/// The text of that file.
pub(crate) fn format_text() -> String {
    format!("nigh {DIRECTORY_FORMAT}\n")
}

/// Why a data directory does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// Another process holds it.
    #[error("data directory {path} is locked by another process{holder}; stop it or choose another -data")]
    Locked {
        /// The directory.
        path: PathBuf,
        /// ` (pid N)` when known.
        holder: String,
    },
    /// Not writable, no space, not a directory ...
    #[error("data directory {path} cannot be used: {source}")]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// Made by a newer version.
    #[error(
        "{FORMAT_FILE} says that the data directory {path} has format {found}, newer than this build opens ({DIRECTORY_FORMAT}); use a newer nigh"
    )]
    Newer {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The format file is damaged or the directory belongs to something else.
    #[error("data directory {path} is not one of ours: {what}")]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// Creates a data directory and its parents if they do not exist. [`DirectoryLock::acquire`] does so as well; this is for a process that gives up its
/// right to read the parents before it starts a node.
///
/// # Errors
/// [`DirectoryError::Io`].
pub fn create(path: &Path) -> Result<(), DirectoryError> {
    create_directory(path, &mut |parent| File::open(parent)?.sync_all())
        .map_err(|source| DirectoryError::Io { path: path.to_owned(), source })
}

/// A data directory locked for this process until dropped.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Creates the directory if needed, locks it, and checks its format.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn acquire(path: &Path) -> Result<DirectoryLock, DirectoryError> {
        let io = |at: &Path| {
            let at = at.to_owned();
            move |source| DirectoryError::Io { path: at, source }
        };
        create(path)?;
        let lock_path = path.join("LOCK");
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(io(&lock_path))?;
        if let Err(error) = file.try_lock() {
            if let TryLockError::Error(source) = error {
                return Err(DirectoryError::Io { path: lock_path, source });
            }
            let holder = std::fs::read_to_string(&lock_path).unwrap_or_default();
            let holder = match holder.trim() {
                "" => String::new(),
                pid => format!(" (pid {pid})"),
            };
            return Err(DirectoryError::Locked { path: path.to_owned(), holder });
        }
        // Whose it is helps whoever is refused next; a full disk may have no room for that.
        match file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())) {
            Err(error) if !is_full(&error) => return Err(io(&lock_path)(error)),
            _ => {}
        }
        let (format_path, copy_path) =
            (path.join(FORMAT_FILE), path.join(twin::copy_of(Path::new(FORMAT_FILE))));
        let found_in = |text: &str| text.trim().strip_prefix("nigh ").and_then(|n| n.parse::<u32>().ok());
        // The file is damaged or gone, and its copy says that the directory is one of ours: opening it writes the file again.
        let by_copy = || {
            let found = std::fs::read(&copy_path).is_ok_and(|bytes| bytes == format_text().as_bytes());
            if found {
                tracing::error!(file = %format_path.display(), "FORMAT is damaged or missing; its copy is used");
            }
            found
        };
        let text = std::fs::read(&format_path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        match text {
            Ok(text) => {
                let found = found_in(&text);
                match found {
                    // A newer build raises the file before its copy, and both before anything else: while the copy says this format, so
                    // does the rest of the directory.
                    Some(found) if found > DIRECTORY_FORMAT && by_copy() => {}
                    Some(found) if found > DIRECTORY_FORMAT => {
                        return Err(DirectoryError::Newer { path: path.to_owned(), found });
                    }
                    Some(1..) => {}
                    _ if by_copy() => {}
                    _ => {
                        let what = format!("its FORMAT file says {:?}", text.trim());
                        return Err(DirectoryError::Foreign { path: path.to_owned(), what });
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound && by_copy() => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if path.join("collections").exists() {
                    let what = "it holds collections but no FORMAT file".to_owned();
                    return Err(DirectoryError::Foreign { path: path.to_owned(), what });
                }
                let temporary = path.join("FORMAT.new");
                let written = (|| {
                    let mut file = File::create(&temporary)?;
                    file.write_all(format_text().as_bytes())?;
                    file.sync_all()?;
                    std::fs::rename(&temporary, &format_path)?;
                    File::open(path)?.sync_all()
                })();
                if written.is_err() {
                    // The next attempt may find the disk as full, and this much fuller.
                    let _half_written = std::fs::remove_file(&temporary);
                }
                written.map_err(io(&format_path))?;
            }
            Err(source) => return Err(DirectoryError::Io { path: format_path, source }),
        }
        Ok(DirectoryLock { _file: file })
    }
}

/// Creates a directory and its parents, and makes each of their names durable: what is acknowledged later must not lie in a directory that a power
/// loss takes away. `sync` syncs a directory.
fn create_directory(path: &Path, sync: &mut dyn FnMut(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    // The empty path is the parent of a relative one's first part.
    let parent = match path.parent() {
        None => return Ok(()),
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
    };
    if path.is_dir() {
        // A process that was killed here may have made the directory. A process that may not read the parent has not made it, or has synced it before
        // it gave up that right; and a file system that is read-only, or that cannot sync directories, has not lost a new name.
        return match sync(parent) {
            Err(error) => match error.kind() {
                ErrorKind::PermissionDenied
                | ErrorKind::InvalidInput
                | ErrorKind::ReadOnlyFilesystem
                | ErrorKind::Unsupported => Ok(()),
                _ => Err(error),
            },
            Ok(()) => Ok(()),
        };
    }
    create_directory(parent, sync)?;
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists || !path.is_dir() => Err(error),
        _ => sync(parent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_new_data_directory_and_its_parents_are_synced() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("a/b"));
        let mut synced = Vec::new();
        create_directory(&b, &mut |path| {
            synced.push(path.to_owned());
            Ok(())
        })
        .unwrap();
        assert!(b.is_dir());
        assert!(synced.ends_with(&[dir.path().to_owned(), a.clone()]), "{synced:?}");
        synced.clear();
        create_directory(&b, &mut |path| {
            synced.push(path.to_owned());
            Ok(())
        })
        .unwrap();
        assert_eq!(synced, [a], "a process that was killed may have made it");
        let failed = create_directory(&b.join("c"), &mut |_| Err(ErrorKind::StorageFull.into()));
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::StorageFull);
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(create_directory(&dir.path().join("file/d"), &mut |_| Ok(())).is_err());
    }

    #[test]
    fn a_directory_is_made_locked_and_checked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let lock = DirectoryLock::acquire(&path).unwrap();
        // flock belongs to the open file description, so a second open in the same process is refused as well.
        assert!(matches!(DirectoryLock::acquire(&path), Err(DirectoryError::Locked { .. })));
        drop(lock);
        DirectoryLock::acquire(&path).unwrap();
        std::fs::write(path.join("FORMAT"), "nigh 999\n").unwrap();
        assert!(matches!(DirectoryLock::acquire(&path), Err(DirectoryError::Newer { found: 999, .. })));
        std::fs::write(path.join("FORMAT"), "redis\n").unwrap();
        assert!(matches!(DirectoryLock::acquire(&path), Err(DirectoryError::Foreign { .. })));
        // The copy decides where the file itself is damaged, or was raised by a newer build that ended before it changed anything else.
        std::fs::create_dir(path.join(twin::COPIES)).unwrap();
        std::fs::write(path.join(twin::copy_of(Path::new("FORMAT"))), format_text()).unwrap();
        for damaged in ["redis\n", "nigh 999\n", ""] {
            std::fs::write(path.join("FORMAT"), damaged).unwrap();
            DirectoryLock::acquire(&path).unwrap();
        }
        std::fs::write(path.join(twin::copy_of(Path::new("FORMAT"))), "nigh 999\n").unwrap();
        std::fs::write(path.join("FORMAT"), "nigh 999\n").unwrap();
        assert!(matches!(DirectoryLock::acquire(&path), Err(DirectoryError::Newer { found: 999, .. })));
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(matches!(DirectoryLock::acquire(&file), Err(DirectoryError::Io { .. })));
    }
}
