//! The real disk: files with O_DIRECT through the executor's rings, names through the blocking threads.
//!
//! Data goes as aligned direct writes plus `fdatasync`, so that durability costs one device round trip and no page cache.
//! Where a file system refuses O_DIRECT (some network and FUSE ones) files are buffered instead, with the same `fdatasync`
//! and the same promises; that is said once. On tmpfs the executor's file type leaves the flag out by itself.
//!
//! Operations on names (rename, remove, list, directory sync) block in the kernel for as long as a journal commit takes,
//! and the executor would answer them by a wake from another thread; they run on our own blocking threads. So does
//! truncation, for which its ring has no operation. Writes that somebody waits for to be durable take a shorter way ([`synced`]).

use super::CoreRuntime;
use super::context::ExecutorUse;
use crate::disk::{BLOCK, Disk, DiskFile, Listing, LocalBoxFuture, PageFile, ReadThrough, Space};
use glommio::io::{BufferedFile, DmaFile, OpenOptions};
use nigh_engine::memory::ScratchFiles;
use rustix::fs::{statfs, statvfs};
use std::cell::{Cell, OnceCell, RefCell};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

mod synced;
mod through;
use synced::SyncedWrites;
use through::Through;

/// Bytes per operation. Copying this much into an aligned buffer takes about 30 µs, well within a slice, and the device is
/// near its full rate at this size.
const CHUNK_BYTES: usize = 256 * 1024;

/// A directory tree of the file system. See [`Disk`].
pub(super) struct RealDisk {
    runtime: CoreRuntime,
    root: PathBuf,
    /// Direct I/O was refused here once: no need to try again.
    buffered: Cell<bool>,
    /// `None`: this kernel gives us no ring, or it was refused.
    synced: Rc<OnceCell<Option<SyncedWrites>>>,
}

impl RealDisk {
    pub(super) fn new(runtime: CoreRuntime, root: &Path) -> RealDisk {
        if runtime.index() == 0 && is_memory(root) {
            tracing::warn!(root = %root.display(), "a memory file system: no O_DIRECT, and nothing survives power loss");
        }
        RealDisk { runtime, root: root.to_owned(), buffered: Cell::new(false), synced: Rc::default() }
    }

    /// Where `path` lies. Refuses paths that leave the disk.
    fn locate(&self, path: &Path) -> io::Result<PathBuf> {
        if path.components().all(|part| matches!(part, Component::Normal(_))) {
            Ok(self.root.join(path))
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} leaves the disk", path.display())))
        }
    }

    /// Opens `path` twice: by name on a blocking thread, then that very file through the executor.
    ///
    /// The executor's library asks for the file system of the path after it has opened the file, and panics if there is nothing at the path by
    /// then, as when a collection is dropped while a checkpoint opens an image in its directory. So it is given the path of the first descriptor,
    /// which leads to the file even after the name is gone.
    async fn open_with(&self, path: &Path, options: fs::OpenOptions) -> io::Result<Rc<dyn DiskFile>> {
        let path = self.locate(path)?;
        let named = self.blocking(move || options.open(path)).await?;
        let opened = self.open_again(&descriptor_path(&named)?).await;
        // Some file systems take long to close a file.
        let closed = move || {
            drop(named);
            Ok(())
        };
        self.blocking(closed).await?;
        opened
    }

    /// Opens what a path of [`descriptor_path`] leads to through the executor.
    async fn open_again(&self, path: &Path) -> io::Result<Rc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let _used = self.runtime.inner.use_executor(true);
        if !self.buffered.get() {
            match options.dma_open(path).await.map_err(os_error) {
                Ok(file) => return Ok(self.file(Backing::Direct(file))),
                Err(error) if refuses_direct(&error) => {
                    tracing::warn!(
                        root = %self.root.display(),
                        "the file system refuses O_DIRECT ({error}): files are buffered, with fdatasync as before"
                    );
                    self.buffered.set(true);
                }
                Err(error) => return Err(error),
            }
        }
        let file = options.buffered_open(path).await.map_err(os_error)?;
        Ok(self.file(Backing::Buffered(file)))
    }

    fn file(&self, backing: Backing) -> Rc<dyn DiskFile> {
        Rc::new(RealFile {
            runtime: self.runtime.clone(),
            backing: RefCell::new(Some(Rc::new(backing))),
            synced: self.synced.clone(),
        })
    }

    async fn blocking<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> io::Result<R> + Send + 'static,
    ) -> io::Result<R> {
        self.runtime.blocking(f).await
    }
}

impl Disk for RealDisk {
    fn create<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Rc<dyn DiskFile>>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        Box::pin(self.open_with(path, options))
    }

    fn open<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Rc<dyn DiskFile>>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true);
        Box::pin(self.open_with(path, options))
    }

    fn read_through<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Box<dyn ReadThrough>>> {
        Box::pin(async move {
            let through = Through::open(self.runtime.clone(), self.locate(path)?).await?;
            let through: Box<dyn ReadThrough> = Box::new(through);
            Ok(through)
        })
    }

    fn read<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Vec<u8>>> {
        Box::pin(async move {
            let path = self.locate(path)?;
            self.blocking(move || fs::read(path)).await
        })
    }

    fn replace<'a>(&'a self, path: &'a Path, bytes: &'a [u8]) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let path = self.locate(path)?;
            let bytes = bytes.to_vec();
            self.blocking(move || replace(&path, &bytes)).await
        })
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let (from, to) = (self.locate(from)?, self.locate(to)?);
            self.blocking(move || {
                fs::rename(&from, &to)?;
                // The new name first: a crash in between leaves both rather than none.
                sync_parent(&to)?;
                if from.parent() == to.parent() { Ok(()) } else { sync_parent(&from) }
            })
            .await
        })
    }

    fn remove<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let path = self.locate(path)?;
            self.blocking(move || removed(fs::remove_file(&path), &path)).await
        })
    }

    fn remove_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let path = self.locate(path)?;
            self.blocking(move || removed(fs::remove_dir_all(&path), &path)).await
        })
    }

    fn create_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            // Checked as a whole; then each part of it is inside as well.
            self.locate(path)?;
            let root = self.root.clone();
            let path = path.to_owned();
            self.blocking(move || create_dirs(&root, &path)).await
        })
    }

    fn list<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Vec<PathBuf>>> {
        Box::pin(async move {
            let path = self.locate(path)?;
            self.blocking(move || list(&path)).await
        })
    }

    fn read_small<'a>(
        &'a self,
        dirs: &'a [PathBuf],
        most: u64,
        is_wanted: fn(&Path) -> bool,
    ) -> LocalBoxFuture<'a, io::Result<Vec<Option<Listing>>>> {
        Box::pin(async move {
            let dirs = dirs.iter().map(|dir| self.locate(dir)).collect::<io::Result<Vec<_>>>()?;
            let read = move |dir: &PathBuf| read_small(dir, most, is_wanted).ok();
            self.blocking(move || Ok(dirs.iter().map(read).collect())).await
        })
    }

    fn space<'a>(&'a self) -> LocalBoxFuture<'a, io::Result<Space>> {
        Box::pin(async move {
            let root = self.root.clone();
            self.blocking(move || space(&root)).await
        })
    }

    fn scratch(&self) -> ScratchFiles {
        let root = self.root.clone();
        ScratchFiles::new(move || Ok(Box::new(PageFile(nameless(&root)?))))
    }

    fn sync_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let path = self.locate(path)?;
            self.blocking(move || sync_directory(&path)).await
        })
    }
}

/// A path that leads to an open file as long as it is open, whatever happens to its name.
fn descriptor_path(file: &fs::File) -> io::Result<PathBuf> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    match fs::symlink_metadata(&path) {
        Ok(_) => Ok(path),
        Err(error) => {
            Err(io::Error::new(error.kind(), format!("{}: {error}; is /proc mounted?", path.display())))
        }
    }
}

/// An empty file that goes with its last descriptor.
fn nameless(root: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true);
    let file = options.clone().custom_flags(libc::O_TMPFILE).open(root);
    if !file.as_ref().is_err_and(|e| matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR))) {
        return file;
    }
    // File systems without the flag. A name for each: what a crash between the two lines leaves is replaced by a later process's.
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let path = root.join(format!("scratch-{}.tmp", NAMES.fetch_add(1, Ordering::Relaxed)));
    let file = options.create(true).truncate(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// Room of the file system of `path`.
fn space(path: &Path) -> io::Result<Space> {
    let found = statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(Space { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
}

/// Whether `path` lies on tmpfs.
fn is_memory(path: &Path) -> bool {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    statfs(path).is_ok_and(|found| found.f_type as u64 == TMPFS_MAGIC)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

fn sync_parent(path: &Path) -> io::Result<()> {
    // Every located path has the root above it.
    path.parent().map_or(Ok(()), sync_directory)
}

/// Makes a removal durable; missing is fine.
fn removed(result: io::Result<()>, path: &Path) -> io::Result<()> {
    match result {
        Ok(()) => sync_parent(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let written = fs::File::create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    if let Err(error) = written.and_then(|()| fs::rename(&temporary, path)) {
        // Best effort: the disk may be full, and the half-written file would keep it so.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    sync_parent(path)
}

fn create_dirs(root: &Path, path: &Path) -> io::Result<()> {
    let mut directory = root.to_owned();
    for part in path.components() {
        directory.push(part);
        match fs::create_dir(&directory) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
            Err(error) => return Err(error),
        }
        // Also of one that was there: a process killed between the two lines may have made it.
        sync_parent(&directory)?;
    }
    Ok(())
}

fn list(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = entries
        .map(|entry| entry.map(|entry| PathBuf::from(entry.file_name())))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// See [`Disk::read_small`].
fn read_small(dir: &Path, most: u64, is_wanted: fn(&Path) -> bool) -> io::Result<Listing> {
    let content = |name: &Path| {
        let file = fs::File::open(dir.join(name)).ok()?;
        let metadata = file.metadata().ok().filter(|found| found.is_file() && found.len() <= most)?;
        let mut content = Vec::with_capacity(metadata.len() as usize + 1);
        // A file that grows meanwhile is not known.
        let read = file.take(most + 1).read_to_end(&mut content).ok()?;
        (read as u64 <= most).then_some(content)
    };
    let found = |name: PathBuf| match is_wanted(&name) {
        true => (name.clone(), content(&name)),
        false => (name, None),
    };
    Ok(list(dir)?.into_iter().map(found).collect())
}

/// The error as the kernel gave it, so that callers can tell a full disk from a broken one.
fn os_error(error: glommio::GlommioError<()>) -> io::Error {
    let code = match &error {
        glommio::GlommioError::EnhancedIoError { source, .. } => source.raw_os_error(),
        glommio::GlommioError::IoError(source) => source.raw_os_error(),
        _ => None,
    };
    code.map_or_else(|| error.into(), io::Error::from_raw_os_error)
}

/// What file systems without O_DIRECT answer.
fn refuses_direct(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

enum Backing {
    Direct(DmaFile),
    Buffered(BufferedFile),
}

impl Backing {
    /// One write of at most [`CHUNK_BYTES`]; how much of it was done.
    async fn write(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match self {
            Backing::Direct(file) => {
                let mut buffer = file.alloc_dma_buffer(bytes.len());
                buffer.as_bytes_mut().copy_from_slice(bytes);
                file.write_at(buffer, offset).await
            }
            Backing::Buffered(file) => file.write_at(bytes.to_vec(), offset).await,
        }
        .map_err(os_error)
    }

    /// One aligned read, appended to `out`; how much came.
    async fn read(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<usize> {
        let bytes = match self {
            Backing::Direct(file) => file.read_at_aligned(offset, len).await,
            Backing::Buffered(file) => file.read_at(offset, len).await,
        }
        .map_err(os_error)?;
        out.extend_from_slice(&bytes);
        Ok(bytes.len())
    }

    async fn sync(&self) -> io::Result<()> {
        match self {
            Backing::Direct(file) => file.fdatasync().await,
            Backing::Buffered(file) => file.fdatasync().await,
        }
        .map_err(os_error)
    }

    async fn len(&self) -> io::Result<u64> {
        match self {
            Backing::Direct(file) => file.file_size().await,
            Backing::Buffered(file) => file.file_size().await,
        }
        .map_err(os_error)
    }

    async fn allocate(&self, len: u64) -> io::Result<()> {
        match self {
            Backing::Direct(file) => file.pre_allocate(len, false).await,
            Backing::Buffered(file) => file.pre_allocate(len, false).await,
        }
        .map_err(os_error)
    }

    /// Open as long as `self` is.
    fn descriptor(&self) -> RawFd {
        match self {
            Backing::Direct(file) => file.as_raw_fd(),
            Backing::Buffered(file) => file.as_raw_fd(),
        }
    }

    /// A second descriptor of the same open file.
    fn duplicate(&self) -> io::Result<OwnedFd> {
        // SAFETY: `self` keeps the descriptor open for the length of the borrow, which ends with this call.
        unsafe { BorrowedFd::borrow_raw(self.descriptor()) }.try_clone_to_owned()
    }
}

/// One open file. Operations under way keep the descriptor open past `close`.
struct RealFile {
    runtime: CoreRuntime,
    backing: RefCell<Option<Rc<Backing>>>,
    /// Of the disk.
    synced: Rc<OnceCell<Option<SyncedWrites>>>,
}

impl RealFile {
    fn backing(&self) -> io::Result<Rc<Backing>> {
        self.backing.borrow().clone().ok_or_else(|| io::Error::other("the file has been closed"))
    }

    /// Taken for each operation, as it announces that the kernel is to be given something.
    fn operation(&self) -> ExecutorUse {
        self.runtime.inner.use_executor(true)
    }

    fn synced(&self) -> Option<&SyncedWrites> {
        let made = self.synced.get_or_init(|| {
            let made = SyncedWrites::new(&self.runtime);
            made.inspect_err(|error| tracing::info!(%error, "durable writes take two steps")).ok()
        });
        made.as_ref()
    }

    async fn write_all(&self, backing: &Backing, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let chunk = &bytes[done..bytes.len().min(done + CHUNK_BYTES)];
            let _operation = self.operation();
            let written = backing.write(chunk, offset + done as u64).await?;
            // A direct write goes on at a block boundary; the rest of a torn block is written again.
            let advance = if written == chunk.len() { written } else { written / BLOCK * BLOCK };
            if advance == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            done += advance;
        }
        Ok(())
    }
}

fn check_aligned(what: &str, value: u64) -> io::Result<()> {
    if value.is_multiple_of(BLOCK as u64) {
        Ok(())
    } else {
        let text = format!("{what} {value} is not a multiple of {BLOCK}");
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }
}

impl DiskFile for RealFile {
    fn write_at<'a>(&'a self, offset: u64, bytes: &'a [u8]) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            check_aligned("offset", offset)?;
            check_aligned("length", bytes.len() as u64)?;
            self.write_all(&*self.backing()?, offset, bytes).await
        })
    }

    fn write_synced<'a>(&'a self, offset: u64, bytes: &'a [u8]) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            check_aligned("offset", offset)?;
            check_aligned("length", bytes.len() as u64)?;
            let backing = self.backing()?;
            if matches!(*backing, Backing::Direct(_))
                && bytes.len() <= synced::BYTES_MAX
                && let Some(synced) = self.synced()
                && synced.write(&backing, offset, bytes).await?
            {
                return Ok(());
            }
            self.write_all(&backing, offset, bytes).await?;
            let _operation = self.operation();
            backing.sync().await
        })
    }

    fn read_at<'a>(&'a self, offset: u64, len: usize) -> LocalBoxFuture<'a, io::Result<Vec<u8>>> {
        Box::pin(async move {
            let backing = self.backing()?;
            let skip = (offset % BLOCK as u64) as usize;
            let start = offset - skip as u64;
            let wanted = len.saturating_add(skip);
            let mut bytes = Vec::with_capacity(wanted.min(CHUNK_BYTES).next_multiple_of(BLOCK));
            while bytes.len() < wanted {
                let ask = (wanted - bytes.len()).min(CHUNK_BYTES).next_multiple_of(BLOCK);
                let _operation = self.operation();
                // Short only at the end of the file: regular files read in full otherwise.
                if backing.read(start + bytes.len() as u64, ask, &mut bytes).await? < ask {
                    break;
                }
            }
            bytes.truncate(wanted);
            bytes.drain(..skip.min(bytes.len()));
            Ok(bytes)
        })
    }

    fn pages(&self) -> io::Result<fs::File> {
        let file = self.backing()?.duplicate()?;
        // Opened anew, without O_DIRECT: where room cannot be promised it is written.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::OpenOptions::new().read(true).write(true).open(path)
    }

    fn sync<'a>(&'a self) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let backing = self.backing()?;
            let _operation = self.operation();
            backing.sync().await
        })
    }

    fn preallocate<'a>(&'a self, len: u64) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            check_aligned("length", len)?;
            let backing = self.backing()?;
            let now = {
                let _operation = self.operation();
                backing.len().await?
            };
            if len <= now {
                return Ok(());
            }
            {
                let _operation = self.operation();
                match backing.allocate(len).await {
                    // Without the call, writing allocates just as well, only less contiguously.
                    Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
                    result => result?,
                }
            }
            // Allocated extents count as unwritten until they are written, and changing that is metadata.
            let zeros = vec![0; CHUNK_BYTES];
            let mut at = now - now % BLOCK as u64;
            if at < now {
                // A last partial block keeps its contents: only what lies behind it is written.
                at += BLOCK as u64;
            }
            while at < len {
                let size = (len - at).min(CHUNK_BYTES as u64);
                self.write_all(&backing, at, &zeros[..size as usize]).await?;
                at += size;
            }
            let _operation = self.operation();
            backing.sync().await
        })
    }

    fn truncate<'a>(&'a self, len: u64) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let file = fs::File::from(self.backing()?.duplicate()?);
            self.runtime.blocking(move || file.set_len(len)).await
        })
    }

    fn len<'a>(&'a self) -> LocalBoxFuture<'a, io::Result<u64>> {
        Box::pin(async move {
            let backing = self.backing()?;
            let _operation = self.operation();
            backing.len().await
        })
    }

    fn close<'a>(&'a self) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let backing = self.backing.borrow_mut().take();
            let Some(backing) = backing.and_then(|backing| Rc::try_unwrap(backing).ok()) else {
                // Closed before, or the last operation under way will.
                return Ok(());
            };
            let _operation = self.operation();
            match backing {
                Backing::Direct(file) => file.close().await,
                Backing::Buffered(file) => file.close().await,
            }
            .map_err(os_error)
        })
    }
}

impl Drop for RealFile {
    fn drop(&mut self) {
        if self.backing.borrow().is_some() {
            // The executor queues the close when the file drops; the ring has to be given it.
            drop(self.operation());
        }
    }
}

#[cfg(test)]
mod tests;
