//! A table of rows of atomics that grows without moving and without knowing its size beforehand.
//!
//! An [`Arena`] reserves everything at once, which suits one array per collection. Tables whose number of rows is anybody's
//! guess (posting lists of a size class, terms) grow here by chunks, each twice as large as the one before, so a row is found
//! by arithmetic, a row never moves, and the reservation stays within twice what is used.
//!
//! Which rows are in use and who may reuse one is the owner's business; a row holds atomics only, so whatever a
//! reader finds there is a value and never undefined.

use super::{Arena, Atomic};
use std::sync::OnceLock;

/// Bytes of the first chunk: an almost empty table commits a page or two of it.
const FIRST_CHUNK_BYTES: usize = 16 << 10;

/// Enough doublings to reach 2^32 rows from a first chunk of one.
const CHUNKS: usize = 33;

/// Rows of `row_len` values of `T`, zero at first, numbered from 0.
pub struct Rows<T: Atomic> {
    row_len: usize,
    first_log2: u32,
    chunks: Box<[OnceLock<Arena<T>>]>,
}

impl<T: Atomic> Rows<T> {
    /// An empty table; nothing is reserved yet.
    pub fn new(row_len: usize) -> Rows<T> {
        assert!(row_len > 0, "rows of {row_len} values");
        let first = (FIRST_CHUNK_BYTES / (row_len * size_of::<T>())).max(1);
        Rows {
            row_len,
            first_log2: first.ilog2(),
            chunks: (0..CHUNKS - first.ilog2() as usize).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Chunk of a row and its place there: chunk `c` starts at row `first * (2^c - 1)`.
    #[inline]
    fn place(&self, row: u32) -> (usize, usize) {
        let shifted = (u64::from(row) >> self.first_log2) + 1;
        let chunk = shifted.ilog2();
        let start = ((1u64 << chunk) - 1) << self.first_log2;
        (chunk as usize, (u64::from(row) - start) as usize)
    }

    /// Any core: a row that the owner has made. Panics when it has not.
    #[inline]
    pub fn cells(&self, row: u32) -> &[T] {
        let (chunk, place) = self.place(row);
        self.chunks[chunk].get().unwrap_or_else(|| missing(row)).cells(place)
    }

    /// Any core: a row, if it or a neighbour of its chunk has been made.
    pub fn get(&self, row: u32) -> Option<&[T]> {
        let (chunk, place) = self.place(row);
        Some(self.chunks[chunk].get()?.cells(place))
    }

    /// Owner: makes `row` (and its whole chunk). One system call per doubling.
    ///
    /// # Panics
    ///
    /// When the kernel refuses address space, as an allocation that fails would.
    pub fn make(&self, row: u32) {
        let (chunk, _) = self.place(row);
        self.chunks[chunk].get_or_init(|| {
            let rows = 1usize << (chunk as u32 + self.first_log2);
            Arena::reserve(rows, self.row_len).unwrap_or_else(|error| panic!("{error}"))
        });
    }

    /// Committed bytes, about, when the first `rows` rows have been used.
    pub fn bytes(&self, rows: usize) -> usize {
        rows * self.row_len * size_of::<T>()
    }
}

#[cold]
fn missing(row: u32) -> ! {
    panic!("row {row} was never made")
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

    #[test]
    fn rows_are_distinct_and_stay() {
        for row_len in [1, 8, 21, 1 << 13] {
            let rows = Rows::<AtomicU32>::new(row_len);
            let count = if row_len == 1 << 13 { 40 } else { 20_000 };
            for row in 0..count {
                rows.make(row);
                assert!(rows.cells(row).iter().all(|cell| cell.load(Relaxed) == 0));
                rows.cells(row)[row_len - 1].store(row + 1, Relaxed);
            }
            assert!((0..count).all(|row| rows.cells(row)[row_len - 1].load(Relaxed) == row + 1));
        }
    }

    #[test]
    fn the_last_row_there_can_be() {
        let rows = Rows::<AtomicU64>::new(1);
        assert!(rows.get(u32::MAX).is_none());
        rows.make(u32::MAX);
        rows.cells(u32::MAX)[0].store(7, Relaxed);
        assert_eq!(rows.cells(u32::MAX)[0].load(Relaxed), 7);
    }

    #[test]
    #[should_panic(expected = "row 3 was never made")]
    fn a_row_that_was_not_made_panics() {
        Rows::<AtomicU32>::new(4).cells(3);
    }
}
