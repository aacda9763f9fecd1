//! Objects as files of a directory.
//!
//! An object is written to a temporary file, synced, and published by a hard link, which fails where the name is taken: so it is there as a whole or
//! not at all, and is never overwritten, by whichever process. The directory of the link is synced before the object counts.

mod layout;
mod walk;
mod worker;

use bytes::Bytes;
use layout::{UPLOADS, directory_of, path_of};
use nigh_shard::backup::{Listing, READ_MAX_BYTES, Store, StoreError, Upload};
use nigh_shard::disk::LocalBoxFuture;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use worker::Worker;

/// Objects on a page of a listing, as many as object stores give.
const PAGE: usize = 1000;
/// A temporary file of this age belongs to nobody any more: its process was killed.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// A directory of objects. Clones share the thread that makes the blocking calls.
#[derive(Clone)]
pub(crate) struct DirectoryStore {
    root: Arc<Path>,
    worker: Worker,
    uploads: Arc<AtomicU64>,
}

impl DirectoryStore {
    /// Makes the directory if need be, looks whether objects can be published in it, and removes what killed processes left more than a day ago.
    ///
    /// # Errors
    /// A sentence that names the directory.
    pub fn prepare(root: &Path) -> Result<(), String> {
        let named = |error: io::Error| format!("{}: {error}", root.display());
        fs::create_dir_all(root.join(UPLOADS)).map_err(named)?;
        check_links(root)?;
        sweep(root, ABANDONED).map_err(named)
    }

    /// Starts the thread of a directory that was prepared.
    ///
    /// # Errors
    /// A sentence.
    pub fn start(root: &Path) -> Result<DirectoryStore, String> {
        let worker = Worker::start().map_err(|error| format!("a thread could not be started: {error}"))?;
        Ok(DirectoryStore { root: root.into(), worker, uploads: Arc::default() })
    }

    /// [`Self::prepare`] and [`Self::start`].
    #[cfg(test)]
    pub fn open(root: &Path) -> Result<DirectoryStore, String> {
        DirectoryStore::prepare(root)?;
        DirectoryStore::start(root)
    }
}

/// Looks whether a file can be published by a hard link, and whether a link to a name that is taken fails.
fn check_links(root: &Path) -> Result<(), String> {
    let name = |what: &str| root.join(UPLOADS).join(format!("check-{}-{what}", std::process::id()));
    let (from, to) = (name("file"), name("link"));
    let remove = || {
        // What is not there need not be removed, and what stays is swept later.
        let _not_there = (fs::remove_file(&from), fs::remove_file(&to));
    };
    remove();
    let cannot = |error: io::Error| format!("no file can be written in {}: {error}", root.display());
    let checked = File::create_new(&from).and_then(|file| file.sync_all()).map_err(cannot).and_then(|()| {
        fs::hard_link(&from, &to).map_err(|error| {
            format!(
                "the file system of {} does not make hard links, by which backups are published: {error}",
                root.display()
            )
        })?;
        match fs::hard_link(&from, &to) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            _ => Err(format!(
                "the file system of {} makes a hard link although its name is taken, so it cannot keep backups from being overwritten",
                root.display()
            )),
        }
    });
    remove();
    checked
}

/// Removes temporary files that nobody has written to for `age`.
fn sweep(root: &Path, age: Duration) -> io::Result<()> {
    let now = SystemTime::now();
    for entry in fs::read_dir(root.join(UPLOADS))? {
        let entry = entry?;
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        if modified.is_ok_and(|modified| now.duration_since(modified).is_ok_and(|since| since >= age))
            && let Err(error) = fs::remove_file(entry.path())
        {
            tracing::warn!(file = %entry.path().display(), %error, "an unfinished file cannot be removed");
        }
    }
    Ok(())
}

/// What a failed call says about the object `key`.
fn failed(key: &str, what: &str, error: &io::Error) -> StoreError {
    let (key, why) = (key.to_owned(), format!("{what}: {error}"));
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => StoreError::Refused { key, why },
        // Others may free room, and a file system of another machine may come back.
        ErrorKind::StorageFull
        | ErrorKind::QuotaExceeded
        | ErrorKind::Interrupted
        | ErrorKind::TimedOut
        | ErrorKind::StaleNetworkFileHandle => StoreError::Io { key, why, is_temporary: true },
        _ => StoreError::Io { key, why, is_temporary: false },
    }
}

/// Makes the names in a directory durable.
fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Makes `directory` and what is missing above it, durably, down from `root`.
fn make_directories(root: &Path, directory: &Path) -> io::Result<()> {
    if directory == root || directory.is_dir() {
        return Ok(());
    }
    let Some(parent) = directory.parent() else { return Ok(()) };
    make_directories(root, parent)?;
    match fs::create_dir(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    sync_directory(parent)
}

impl Store for DirectoryStore {
    fn create(&self, key: &str) -> LocalBoxFuture<'_, Result<Box<dyn Upload>, StoreError>> {
        let key = key.to_owned();
        Box::pin(async move {
            let path = path_of(&self.root, &key)?;
            let number = self.uploads.fetch_add(1, Ordering::Relaxed);
            // The time tells apart processes of the same number, of which those in containers have few.
            let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let name = format!("{}-{}-{number}", std::process::id(), started.as_nanos());
            let temporary = self.root.join(UPLOADS).join(name);
            let (worker, of) = (self.worker.clone(), key.clone());
            let work = move || {
                let file = OpenOptions::new().write(true).create_new(true).open(&temporary);
                let file = file.map_err(|error| failed(&of, "no temporary file can be created", &error))?;
                Ok(Temporary { file: Some(file), path: temporary, worker })
            };
            let temporary = self.worker.run(key.clone(), work).await?;
            let state = Writing::Open(temporary);
            let (root, worker) = (self.root.clone(), self.worker.clone());
            Ok(Box::new(DirectoryUpload { root, worker, key, path, state }) as Box<dyn Upload>)
        })
    }

    fn read(&self, key: &str, at: u64, len: usize) -> LocalBoxFuture<'_, Result<Bytes, StoreError>> {
        let key = key.to_owned();
        Box::pin(async move {
            let path = path_of(&self.root, &key)?;
            let of = key.clone();
            let work = move || {
                let ended = read(&path, at, len.min(READ_MAX_BYTES));
                ended.map_err(|error| match error.kind() {
                    ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
                        StoreError::NotFound { key: of }
                    }
                    _ => failed(&of, "its file cannot be read", &error),
                })
            };
            self.worker.run(key, work).await
        })
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> LocalBoxFuture<'_, Result<Listing, StoreError>> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        Box::pin(async move {
            let directory = directory_of(&self.root, &prefix)?;
            let of = prefix.clone();
            let work = move || {
                let listing = walk::page(&directory, &of, after.as_deref(), PAGE);
                listing.map_err(|error| failed(&of, "its files cannot be listed", &error))
            };
            self.worker.run(prefix, work).await
        })
    }

    fn delete(&self, key: &str) -> LocalBoxFuture<'_, Result<(), StoreError>> {
        let key = key.to_owned();
        Box::pin(async move {
            let path = path_of(&self.root, &key)?;
            let of = key.clone();
            let work = move || {
                let removed = match fs::remove_file(&path) {
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                        return Ok(());
                    }
                    Err(error) => Err(error),
                    Ok(()) => path.parent().map_or(Ok(()), sync_directory),
                };
                removed.map_err(|error| failed(&of, "its file cannot be removed", &error))
            };
            self.worker.run(key, work).await
        })
    }
}

fn read(path: &Path, at: u64, len: usize) -> io::Result<Bytes> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(ErrorKind::NotFound.into());
    }
    let rest = usize::try_from(metadata.len().saturating_sub(at)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; len.min(rest)];
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], at + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(read);
    Ok(bytes.into())
}

/// A file that is being written. Whoever drops it has the thread remove it.
struct Temporary {
    file: Option<File>,
    path: PathBuf,
    worker: Worker,
}

impl Temporary {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.as_mut().ok_or(ErrorKind::NotFound)?.write_all(bytes)
    }

    fn publish(&self, root: &Path, path: &Path) -> io::Result<()> {
        self.file.as_ref().ok_or(ErrorKind::NotFound)?.sync_all()?;
        let directory = path.parent().unwrap_or(root);
        make_directories(root, directory)?;
        fs::hard_link(&self.path, path)?;
        // The other name of the file; a sweep removes what stays.
        let _stays = fs::remove_file(&self.path);
        sync_directory(directory)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let (file, path) = (self.file.take(), std::mem::take(&mut self.path));
        self.worker.leave(move || {
            drop(file);
            // A sweep removes what stays.
            let _stays = fs::remove_file(path);
        });
    }
}

struct DirectoryUpload {
    root: Arc<Path>,
    worker: Worker,
    key: String,
    path: PathBuf,
    state: Writing,
}

/// Where the file of an upload is.
enum Writing {
    Open(Temporary),
    /// The thread has it, or had it when the caller went.
    Lent,
    Failed(StoreError),
}

impl DirectoryUpload {
    /// Takes the file, so that nobody else has it while the thread does.
    fn lend(&mut self) -> Result<Temporary, StoreError> {
        match std::mem::replace(&mut self.state, Writing::Lent) {
            Writing::Open(temporary) => Ok(temporary),
            Writing::Lent => {
                let why = "the wait for an earlier write was given up".to_owned();
                Err(StoreError::Io { key: self.key.clone(), why, is_temporary: false })
            }
            Writing::Failed(error) => {
                self.state = Writing::Failed(error.clone());
                Err(error)
            }
        }
    }
}

impl Upload for DirectoryUpload {
    fn write(&mut self, bytes: Bytes) -> LocalBoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let mut temporary = self.lend()?;
            let of = self.key.clone();
            let work = move || match temporary.write(&bytes) {
                Ok(()) => Ok(temporary),
                Err(error) => Err(failed(&of, "its temporary file cannot be written", &error)),
            };
            match self.worker.run(self.key.clone(), work).await {
                Ok(temporary) => {
                    self.state = Writing::Open(temporary);
                    Ok(())
                }
                Err(error) => {
                    self.state = Writing::Failed(error.clone());
                    Err(error)
                }
            }
        })
    }

    fn finish(mut self: Box<Self>) -> LocalBoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async move {
            let temporary = self.lend()?;
            let DirectoryUpload { root, worker, key, path, .. } = *self;
            let of = key.clone();
            let work = move || {
                temporary.publish(&root, &path).map_err(|error| match error.kind() {
                    ErrorKind::AlreadyExists => StoreError::Exists { key: of },
                    _ => failed(&of, "its file cannot be published", &error),
                })
            };
            worker.run(key, work).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::block_on;
    use std::os::unix::fs::PermissionsExt;

    /// The temporary files that are there when the thread has nothing left to do.
    fn uploads(store: &DirectoryStore) -> usize {
        // A job whose caller has gone leaves another one at its end.
        for _ in 0..2 {
            block_on(store.worker.run(String::new(), || Ok(()))).unwrap();
        }
        fs::read_dir(store.root.join(UPLOADS)).unwrap().count()
    }

    #[test]
    fn a_dropped_upload_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let store = DirectoryStore::open(directory.path()).unwrap();
        block_on(async {
            let mut upload = store.create("a/b").await.unwrap();
            upload.write(Bytes::from_static(b"x")).await.unwrap();
            assert_eq!(uploads(&store), 1);
            drop(upload);
            assert_eq!(uploads(&store), 0);
            // The caller goes while the thread works.
            let mut upload = store.create("a/b").await.unwrap();
            let write = futures_lite::future::poll_once(upload.write(Bytes::from(vec![0; 1 << 20]))).await;
            if write.is_none() {
                assert!(
                    upload
                        .write(Bytes::from_static(b"x"))
                        .await
                        .unwrap_err()
                        .to_string()
                        .contains("given up")
                );
            }
            drop(upload);
            assert_eq!(uploads(&store), 0);
            let upload = store.create("a/b").await.unwrap();
            upload.finish().await.unwrap();
            assert_eq!(uploads(&store), 0);
            assert_eq!(store.read("a/b", 0, 9).await.unwrap().len(), 0);
        });
    }

    #[test]
    fn what_a_killed_process_left_is_swept() {
        let directory = tempfile::tempdir().unwrap();
        let store = DirectoryStore::open(directory.path()).unwrap();
        fs::write(directory.path().join(UPLOADS).join("1-1-1"), "x").unwrap();
        sweep(directory.path(), ABANDONED).unwrap();
        assert_eq!(uploads(&store), 1);
        sweep(directory.path(), Duration::ZERO).unwrap();
        assert_eq!(uploads(&store), 0);
    }

    #[test]
    fn names_are_those_of_the_interface() {
        let directory = tempfile::tempdir().unwrap();
        let store = DirectoryStore::open(directory.path()).unwrap();
        block_on(async {
            let key = "default/a%2Fb/2025-01-31T10:00:00Z.snap";
            store.create(key).await.unwrap().finish().await.unwrap();
            assert!(directory.path().join("default/a%2Fb/2025-01-31T10%3A00%3A00Z.snap").is_file());
            // Files of others are not objects.
            fs::write(directory.path().join("default/a:b"), "").unwrap();
            std::os::unix::fs::symlink("/etc", directory.path().join("default/etc")).unwrap();
            let listing = store.list("default/", None).await.unwrap();
            assert_eq!(listing.objects.iter().map(|found| found.key.as_str()).collect::<Vec<_>>(), [key]);
            assert_eq!(store.list("", None).await.unwrap(), listing);
            assert!(matches!(store.read("default", 0, 1).await, Err(StoreError::NotFound { .. })));
            let below = store.create(&format!("{key}/x")).await.unwrap().finish().await.unwrap_err();
            assert!(matches!(&below, StoreError::Io { is_temporary: false, .. }), "{below}");
            assert!(matches!(store.read(&format!("{key}/x"), 0, 1).await, Err(StoreError::NotFound { .. })));
        });
    }

    #[test]
    fn pages_follow_the_order_of_keys_across_directories() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        // '-' and '.' are before '/', and '0' is after it.
        for name in ["a-b", "a.b", "a/b", "a/c/d", "a0", "b/0", "b/1"] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let keys = |page_len: usize| {
            let (mut keys, mut after) = (Vec::new(), None::<String>);
            loop {
                let page = walk::page(root, "", after.as_deref(), page_len).unwrap();
                assert!(page.objects.len() <= page_len);
                keys.extend(page.objects.into_iter().map(|found| found.key));
                match page.next {
                    Some(next) => after = Some(next),
                    None => return keys,
                }
            }
        };
        for page_len in 1..9 {
            assert_eq!(keys(page_len), ["a-b", "a.b", "a/b", "a/c/d", "a0", "b/0", "b/1"], "{page_len}");
        }
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let error = DirectoryStore::open(&file).err().unwrap();
        assert!(error.contains(&file.display().to_string()), "{error}");
        // Where there is one, a file system that makes files and no hard links.
        if Path::new("/proc/self/attr").is_dir() {
            assert!(DirectoryStore::open(Path::new("/proc/self/attr")).is_err());
        }
        let closed = directory.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
        // Root may write everywhere.
        if !rustix::process::geteuid().is_root() {
            assert!(DirectoryStore::open(&closed).is_err());
        }
    }
}
