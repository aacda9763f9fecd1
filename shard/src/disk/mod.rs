//! Files behind a trait: the real disk (io_uring, O_DIRECT) and a simulated one that can be cloned as after a crash.
mod pages;
mod sim;
mod small_files;
pub use pages::PageFile;
pub use sim::{Calls, Failure, SimDisk};
pub use small_files::{Listing, SmallFiles};

use nigh_engine::memory::ScratchFiles;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;

/// A future on this core.
pub type LocalBoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
/// Write unit of aligned files, bytes.
pub const BLOCK: usize = 4096;

/// A directory tree rooted at the data directory; paths are relative, `..` refused.
pub trait Disk {
    /// Creates (truncates) a file for aligned writes.
    fn create<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Rc<dyn DiskFile>>>;
    /// Opens an existing file for reading and aligned writing.
    fn open<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Rc<dyn DiskFile>>>;
    /// Opens an existing file to read it once, from front to back.
    fn read_through<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Box<dyn ReadThrough>>> {
        Box::pin(async move {
            let file = self.open(path).await?;
            let len = file.len().await?;
            let pieces: Box<dyn ReadThrough> = Box::new(Pieces { file, len, at: 0 });
            Ok(pieces)
        })
    }
    /// Whole small file (any size, unaligned).
    fn read<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Vec<u8>>>;
    /// Atomically and durably replaces a small file: temporary, sync, rename, sync of the directory.
    fn replace<'a>(&'a self, path: &'a Path, bytes: &'a [u8]) -> LocalBoxFuture<'a, io::Result<()>>;
    /// Durable rename.
    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> LocalBoxFuture<'a, io::Result<()>>;
    /// Durable removal; missing is fine.
    fn remove<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>>;
    /// Removes a directory and all below, durably; missing is fine.
    fn remove_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>>;
    /// Creates a directory and its parents, durably.
    fn create_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>>;
    /// Names directly inside a directory, sorted; missing directory = empty.
    fn list<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Vec<PathBuf>>>;
    /// Names directly inside each of `dirs`, as [`Self::list`] has them, with the content of the files of at most `most` bytes that `is_wanted`
    /// finds by their names. Nothing is told of a directory or a file that cannot be read.
    fn read_small<'a>(
        &'a self,
        dirs: &'a [PathBuf],
        most: u64,
        is_wanted: fn(&Path) -> bool,
    ) -> LocalBoxFuture<'a, io::Result<Vec<Option<Listing>>>>;
    /// How large the file system is, and how much of it is free for this process.
    fn space<'a>(&'a self) -> LocalBoxFuture<'a, io::Result<Space>>;
    /// Files without a name for memory that need not outlive the process.
    fn scratch(&self) -> ScratchFiles;
    /// Makes names created in a directory durable.
    fn sync_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>>;
}
/// A file that is read once, from front to back. What comes next may be read while the caller uses what came before.
#[expect(clippy::len_without_is_empty, reason = "a file is asked for its bytes, never whether it has any")]
pub trait ReadThrough {
    /// Length in bytes.
    fn len(&self) -> u64;
    /// The next bytes, some MiB at most; none at the end of the file.
    fn next<'a>(&'a mut self) -> LocalBoxFuture<'a, io::Result<Vec<u8>>>;
}

/// A file whose pieces are read when they are asked for.
struct Pieces {
    file: Rc<dyn DiskFile>,
    len: u64,
    /// Where the next piece begins.
    at: u64,
}

/// Bytes of such a piece.
const PIECE_BYTES: usize = 1 << 20;

impl ReadThrough for Pieces {
    fn len(&self) -> u64 {
        self.len
    }

    fn next<'a>(&'a mut self) -> LocalBoxFuture<'a, io::Result<Vec<u8>>> {
        Box::pin(async move {
            let piece = self.file.read_at(self.at, PIECE_BYTES).await?;
            self.at += piece.len() as u64;
            if piece.is_empty() {
                self.file.close().await?;
            }
            Ok(piece)
        })
    }
}

/// Whether an operation on a file failed for want of room.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Room of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All of it, bytes.
    pub total: u64,
    /// What may still be taken, bytes. A quota may allow less.
    pub free: u64,
}
/// One open file. Offsets and lengths of writes are multiples of [`BLOCK`].
#[expect(clippy::len_without_is_empty, reason = "a file is asked for its bytes, never whether it has any")]
pub trait DiskFile {
    /// Writes `bytes` (length a multiple of [`BLOCK`]; the callee copies to an aligned buffer) at `offset`.
    fn write_at<'a>(&'a self, offset: u64, bytes: &'a [u8]) -> LocalBoxFuture<'a, io::Result<()>>;
    /// [`Self::write_at`] and [`Self::sync`] for these bytes: durable when it returns. Other writes need not be.
    fn write_synced<'a>(&'a self, offset: u64, bytes: &'a [u8]) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.write_at(offset, bytes).await?;
            self.sync().await
        })
    }
    /// Reads up to `len` bytes at any `offset`; short at the end of file.
    fn read_at<'a>(&'a self, offset: u64, len: usize) -> LocalBoxFuture<'a, io::Result<Vec<u8>>>;
    /// The same file, to map into memory (shared). What is written there counts with the next [`Self::sync`] that begins later.
    fn pages(&self) -> io::Result<std::fs::File>;
    /// fdatasync.
    fn sync<'a>(&'a self) -> LocalBoxFuture<'a, io::Result<()>>;
    /// Allocates and zero-writes to `len` bytes (a multiple of [`BLOCK`]) so later writes commit no metadata; ENOSPC surfaces here.
    fn preallocate<'a>(&'a self, len: u64) -> LocalBoxFuture<'a, io::Result<()>>;
    /// Cuts the file.
    fn truncate<'a>(&'a self, len: u64) -> LocalBoxFuture<'a, io::Result<()>>;
    /// Length in bytes.
    fn len<'a>(&'a self) -> LocalBoxFuture<'a, io::Result<u64>>;
    /// Closes; dropping without it closes in the background.
    fn close<'a>(&'a self) -> LocalBoxFuture<'a, io::Result<()>>;
}
