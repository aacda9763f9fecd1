//! Where the memory of a collection comes from: anonymous pages or files.

use super::arena::{Arena, ArenaError, Zeroable};
use super::pages::{Backing, FilePages};
use std::fmt;
use std::io;
use std::sync::Arc;

/// Where arenas get their pages that need not outlive the process: anonymous ones by default, else files without a name, to
/// which they can leave memory when it is short.
#[derive(Clone, Default)]
pub struct ScratchFiles(Option<Arc<MakeFile>>);

/// Makes an empty file.
type MakeFile = dyn Fn() -> io::Result<Box<dyn Backing>> + Send + Sync;

impl ScratchFiles {
    /// Files that `make` makes, empty.
    pub fn new(make: impl Fn() -> io::Result<Box<dyn Backing>> + Send + Sync + 'static) -> ScratchFiles {
        ScratchFiles(Some(Arc::new(make)))
    }

    /// An arena. Whoever writes its rows has committed them ([`Arena::commit`]), whether they lie in a file or not.
    ///
    /// # Errors
    /// As [`Arena::reserve`], and when a file cannot be made.
    pub fn reserve<T: Zeroable>(&self, capacity: usize, row_len: usize) -> Result<Arena<T>, ArenaError> {
        let Some(make) = &self.0 else { return Arena::reserve_to_grow(capacity, row_len) };
        let pages = make().and_then(|file| FilePages::new(file, 0)).map(FilePages::scattered);
        let bytes = capacity.saturating_mul(row_len).saturating_mul(size_of::<T>());
        Arena::reserve_in(pages.map_err(|source| ArenaError::File { bytes, source })?, capacity, row_len)
    }
}

impl fmt::Debug for ScratchFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "ScratchFiles" } else { "anonymous pages" })
    }
}

/// What a collection that is kept in files gets the memory of its vectors and of its index from.
#[derive(Debug)]
pub struct Storage {
    /// The vectors, one padded row after the other, as they were when it was last open.
    pub vectors: FilePages,
    /// All that is made anew when it is opened.
    pub scratch: ScratchFiles,
}
