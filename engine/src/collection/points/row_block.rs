//! A payload row on the heap: the version it makes, its length and its bytes in one allocation behind a thin pointer.
//!
//! One atomic word in the slot's line is enough to find it, and who follows that word gets a row together with its own version,
//! whatever the owner swings the word to meanwhile.
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// What stands before the bytes.
#[repr(C)]
struct Header {
    version: u64,
    len: usize,
}

/// The address of a block. Copying it copies no row and dropping it frees nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowBlock(NonNull<u8>);

// SAFETY: an address; what may be done with it is said at the unsafe methods.
unsafe impl Send for RowBlock {}

impl RowBlock {
    /// Allocates a block with a copy of `row`.
    pub fn new(version: u64, row: &[u8]) -> RowBlock {
        let layout = layout(row.len());
        // SAFETY: the layout has a non-zero size (the header).
        let Some(block) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        // SAFETY: the allocation has room for the header, aligned for it, and `row.len()` bytes after it.
        unsafe {
            block.cast::<Header>().write(Header { version, len: row.len() });
            block.as_ptr().add(size_of::<Header>()).copy_from_nonoverlapping(row.as_ptr(), row.len());
        }
        RowBlock(block)
    }

    /// The word for a slot's line.
    pub fn as_ptr(self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// The block of a word that [`Self::as_ptr`] gave; `None` for null.
    pub fn from_ptr(word: *mut u8) -> Option<RowBlock> {
        NonNull::new(word).map(RowBlock)
    }

    /// The bytes.
    ///
    /// # Safety
    /// The block is not freed during `'a`.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: the block starts with its header and holds that many initialised bytes, never changed after.
        unsafe {
            let len = self.0.cast::<Header>().as_ref().len;
            std::slice::from_raw_parts(self.0.as_ptr().add(size_of::<Header>()), len)
        }
    }

    /// The version of the point that has this row.
    ///
    /// # Safety
    /// As [`Self::bytes`].
    pub unsafe fn version(self) -> u64 {
        // SAFETY: as above.
        unsafe { self.0.cast::<Header>().as_ref().version }
    }

    /// Frees the block and returns the row's length.
    ///
    /// # Safety
    /// Freed once, and nobody reads it any more.
    pub unsafe fn free(self) -> usize {
        // SAFETY: as above; the layout is the one it was allocated with, as it depends on the length alone.
        unsafe {
            let len = self.0.cast::<Header>().as_ref().len;
            dealloc(self.0.as_ptr(), layout(len));
            len
        }
    }
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(size_of::<Header>() + len, align_of::<Header>())
        .expect("a row fits the address space")
}

/// Heap bytes of a block with a row of `len` bytes, with what an allocator typically adds.
pub(super) fn row_cost(len: usize) -> u64 {
    (size_of::<Header>() + len).next_multiple_of(16) as u64
}
