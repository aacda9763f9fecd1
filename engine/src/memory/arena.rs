//! Address-space arenas: rows that never move.
//!
//! # Invariants
//!
//! 1. An arena is one mapping made by [`Arena::reserve`] or [`Arena::reserve_in`] and unmapped by drop. In between no row
//!    moves, so a row's address may be kept and followed by any core for as long as the arena lives.
//! 2. A page that was never written costs no memory and reads as zero bytes (one of a file: as the file has it); that is why
//!    only [`Zeroable`] types are stored.
//! 3. Any thread may read a row at any time, and what it reads must not change under it. So the duty is that of whoever changes a row of
//!    plain values while others have the arena, through [`Arena::row_mut_unchecked`] or [`Arena::forget`]: they are `unsafe`, and their callers say why
//!    nobody reads that row meanwhile. Whoever has the arena alone changes rows through [`Arena::row_mut`]. Atomics are changed in place.
//! 4. Rows of a file may be touched up to where [`Arena::commit`] has got: the file ends there, and a touch beyond it, or one
//!    that finds the disk full, would be a signal and not an error.

use super::pages::{FilePages, glanced_bytes, page_bytes, resident_bytes};
use crate::distance::RowTable;
use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// An arena asks for huge pages past its first so many bytes. From the start, each of a small collection's ten arenas
/// would commit 2 MiB at its first touch.
const SMALL_PAGES_BYTES: usize = HUGE_PAGE_BYTES;

/// Bytes of address space that all arenas of the process have reserved.
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// Bytes of address space that the arenas of this process have reserved. A process has 128 TiB on most machines, however much memory there is.
pub fn reserved_address_space() -> u64 {
    RESERVED.load(Relaxed)
}

/// Of most kernels.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// An arena is cold when more than one in so many bytes is missing.
const COLD_PART: usize = 32;

/// Why an arena could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// The kernel refused the reservation.
    #[error(
        "the kernel refused to reserve {bytes} bytes of address space: {source}; a process has 128 TiB of it on most machines, and as many \
         mappings as vm.max_map_count says"
    )]
    Reserve {
        /// Bytes asked for.
        bytes: usize,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The file behind the pages could not be made, or has not the length it must have.
    #[error("a file for {bytes} bytes of memory: {source}")]
    File {
        /// Bytes asked for.
        bytes: usize,
        /// What the system says.
        source: std::io::Error,
    },
    /// More bytes than an address can count.
    #[error("an arena of {capacity} rows of {row_len} values does not fit into the address space")]
    TooLarge {
        /// Rows asked for.
        capacity: usize,
        /// Values per row.
        row_len: usize,
    },
}

mod sealed {
    pub trait Sealed {}
}

/// Types for which all-zero bytes are a valid value and that need no drop. Sealed.
///
/// # Safety
///
/// Implementors keep that promise; the list below is the whole list.
pub unsafe trait Zeroable: sealed::Sealed + Send + Sync {}

/// Atomics: [`Zeroable`] types that many threads may change through a shared reference. Sealed.
///
/// # Safety
///
/// Every method that takes `&self` is atomic.
pub unsafe trait Atomic: Zeroable {}

macro_rules! zeroable {
    ($($t:ty),*) => { $(
        impl sealed::Sealed for $t {}
        // SAFETY: integers and IEEE floats accept every bit pattern, zero included.
        unsafe impl Zeroable for $t {}
    )* };
}
macro_rules! zeroable_atomic {
    ($($t:ty),*) => { $(
        zeroable!($t);
        // SAFETY: a standard atomic.
        unsafe impl Atomic for $t {}
    )* };
}
zeroable!(u8, i8, u16, u32, u64, f32);
zeroable_atomic!(AtomicU8, AtomicU16, AtomicU32, AtomicU64);
impl<P> sealed::Sealed for AtomicPtr<P> {}
// SAFETY: the null pointer is all zero bytes on every platform Rust supports, and no drop follows the pointer.
unsafe impl<P> Zeroable for AtomicPtr<P> {}
// SAFETY: a standard atomic.
unsafe impl<P> Atomic for AtomicPtr<P> {}

/// `capacity` rows of `row_len` values of `T`, zeroed, reserved in one piece (anonymous, no swap reserve), committed
/// by first touch.
///
/// Rows start 64-byte aligned when `row_len * size_of::<T>()` is a multiple of 64. A capacity or row length of zero is
/// fine. Reserving costs one system call, whatever the size; the memory itself is paid page by page (huge page by huge
/// page past the first 2 MiB, where the kernel grants them).
pub struct Arena<T: Zeroable> {
    map: MmapRaw,
    /// `None`: pages are anonymous.
    file: Option<FilePages>,
    /// Whether huge pages were asked for, or never will be.
    is_advised: AtomicBool,
    capacity: usize,
    row_len: usize,
    values: PhantomData<T>,
}

// SAFETY: the mapping belongs to the arena alone and may be unmapped by any thread; values are `Send` (`Zeroable`).
unsafe impl<T: Zeroable> Send for Arena<T> {}
// SAFETY: values are `Sync` (`Zeroable`). A shared arena gives out plain rows to read; whoever writes one does so by an unsafe function, whose
// callers answer for nobody reading it meanwhile (invariant 3).
unsafe impl<T: Zeroable> Sync for Arena<T> {}

impl<T: Zeroable> Arena<T> {
    /// Reserves the arena. Huge pages are advised past the first 2 MiB.
    ///
    /// # Errors
    ///
    /// [`ArenaError::Reserve`] when the kernel refuses (limits on address space, strict overcommit),
    /// [`ArenaError::TooLarge`] when the size in bytes cannot be expressed.
    pub fn reserve(capacity: usize, row_len: usize) -> Result<Self, ArenaError> {
        let arena = Self::reserve_to_grow(capacity, row_len)?;
        arena.advise(arena.map.len());
        Ok(arena)
    }

    /// As [`Self::reserve`], for an arena that may stay small for ever: huge pages are advised when [`Self::commit`] or [`Self::populate`] first reaches
    /// past the first 2 MiB. The kernel counts neighbours with the same advice as one mapping, of which a process may have some
    /// 65,000, so that small collections share one, where each arena would be two with its advice.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve`].
    pub fn reserve_to_grow(capacity: usize, row_len: usize) -> Result<Self, ArenaError> {
        let bytes = Self::bytes_of(capacity, row_len)?;
        let map = MmapOptions::new()
            .len(bytes)
            .no_reserve_swap()
            .map_anon()
            .map_err(|source| ArenaError::Reserve { bytes, source })?;
        let arena = Self::of(MmapRaw::from(map), None, capacity, row_len);
        debug_assert_eq!(arena.base().align_offset(64), 0, "mappings start on a page");
        Ok(arena)
    }

    fn of(map: MmapRaw, file: Option<FilePages>, capacity: usize, row_len: usize) -> Self {
        RESERVED.fetch_add(map.len() as u64, Relaxed);
        let is_advised = AtomicBool::new(file.is_some() || map.len() <= SMALL_PAGES_BYTES);
        Arena { map, file, is_advised, capacity, row_len, values: PhantomData }
    }

    /// Asks for huge pages once somebody is about to use more than the first `SMALL_PAGES_BYTES`: up to `end`.
    #[inline]
    fn advise(&self, end: usize) {
        if end > SMALL_PAGES_BYTES && !self.is_advised.load(Relaxed) && !self.is_advised.swap(true, Relaxed) {
            let rest = self.map.len() - SMALL_PAGES_BYTES;
            // A kernel without huge pages refuses the advice; the arena works the same, with more TLB misses.
            let _ = self.map.advise_range(Advice::HugePage, SMALL_PAGES_BYTES, rest);
        }
    }

    /// Reserves the arena over a file: its pages come from there and go back there when memory is short. Rows up to the end of
    /// the file can be touched at once, others after [`Self::commit`].
    ///
    /// # Errors
    /// As [`Self::reserve`]; also where the file system cannot hold a file of that size.
    pub fn reserve_in(file: FilePages, capacity: usize, row_len: usize) -> Result<Self, ArenaError> {
        let bytes = Self::bytes_of(capacity, row_len)?;
        let map = file.map(bytes).map_err(|source| ArenaError::Reserve { bytes, source })?;
        Ok(Self::of(map, Some(file), capacity, row_len))
    }

    fn bytes_of(capacity: usize, row_len: usize) -> Result<usize, ArenaError> {
        capacity
            .checked_mul(row_len)
            .and_then(|values| values.checked_mul(size_of::<T>()))
            .filter(|&bytes| isize::try_from(bytes).is_ok())
            .ok_or(ArenaError::TooLarge { capacity, row_len })
    }

    /// Owner: makes sure that the first `rows` rows can be touched. For anonymous pages there is one system call in all, the advice of
    /// [`Self::reserve_to_grow`], and for rows that were committed before none; a file grows by an eighth and at least 1 MiB, and some 100 µs.
    ///
    /// # Errors
    /// The file system's, above all that it is full. Rows committed before stay usable.
    ///
    /// # Panics
    /// When there are fewer rows.
    pub fn commit(&self, rows: usize) -> io::Result<()> {
        assert!(rows <= self.capacity, "{rows} rows of {}", self.capacity);
        match &self.file {
            None => {
                self.advise(rows * self.row_bytes());
                Ok(())
            }
            Some(file) => file.commit(rows * self.row_bytes(), self.capacity * self.row_bytes()),
        }
    }

    /// Rows that can be touched.
    pub fn committed(&self) -> usize {
        match &self.file {
            Some(file) if self.row_len > 0 => (file.committed() / self.row_bytes()).min(self.capacity),
            _ => self.capacity,
        }
    }

    /// Whether the pages are a file's.
    pub fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// Bytes of the first `rows` rows that are in memory now, of a large arena by sample. One system call per 4 MiB and at most
    /// 64 of them, some 10 µs each.
    pub fn resident_bytes(&self, rows: usize) -> usize {
        resident_bytes(&self.map, rows.min(self.capacity) * self.row_bytes())
    }

    /// Whether a good part of the first `rows` rows is in no memory, by a glance: some 100 µs at most.
    pub fn is_cold(&self, rows: usize) -> bool {
        let bytes = rows.min(self.capacity) * self.row_bytes();
        self.is_file() && glanced_bytes(&self.map, bytes) < bytes / COLD_PART * (COLD_PART - 1)
    }

    /// Has the kernel fetch rows `from..to` of a file, and does not wait for them. One system call, some µs; nothing for anonymous
    /// pages, which it could only fetch from swap.
    ///
    /// # Panics
    /// When the range is not inside the arena.
    pub fn will_need(&self, from: usize, to: usize) {
        assert!(from <= to && to <= self.capacity, "rows {from}..{to} of {}", self.capacity);
        if from < to && self.is_file() {
            // Advice: what goes wrong with it costs time only.
            let (start, bytes) = (from * self.row_bytes(), (to - from) * self.row_bytes());
            let _ = self.map.advise_range(Advice::WillNeed, start, bytes);
        }
    }

    fn row_bytes(&self) -> usize {
        self.row_len * size_of::<T>()
    }

    /// Rows reserved.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Values per row.
    pub fn row_len(&self) -> usize {
        self.row_len
    }

    /// Row `slot`, shared. Panics when out of range (debug and release).
    #[inline]
    pub fn row(&self, slot: usize) -> &[T] {
        self.check(slot);
        // SAFETY: in range (checked), mapped while `self` lives, initialised (zero or written values of `T`); who changes plain rows has
        // excluded readers (invariant 3).
        unsafe { std::slice::from_raw_parts(self.row_ptr(slot), self.row_len) }
    }

    /// All rows, for kernels.
    #[inline]
    pub fn table(&self) -> RowTable<'_, T> {
        // SAFETY: as in `row`, for every row below the capacity.
        unsafe { RowTable::new(self.row_ptr(0), self.row_len, self.capacity) }
    }

    /// Row `slot`, of an arena that nobody else has. Panics when out of range.
    #[inline]
    pub fn row_mut(&mut self, slot: usize) -> &mut [T] {
        // SAFETY: `&mut self` excludes every other access to the arena.
        unsafe { self.row_mut_unchecked(slot) }
    }

    /// Pointer to row `slot` (for prefetch); no bounds check in release.
    #[inline]
    pub fn row_ptr(&self, slot: usize) -> *const T {
        debug_assert!(slot < self.capacity, "row {slot} of {}", self.capacity);
        self.base().wrapping_add(slot * self.row_len)
    }

    /// Exclusive access to a row no reader may see (fresh or reclaimed slot). Panics when out of range.
    ///
    /// # Safety
    ///
    /// While the slice lives nobody else writes the row, nobody asks for it through [`Self::row`], [`Self::table`] or [`Self::cells`], and
    /// nobody uses what these gave for it before.
    #[inline]
    #[allow(clippy::mut_from_ref)] // Exclusivity is per row and the caller's duty; the arena itself stays shared.
    pub unsafe fn row_mut_unchecked(&self, slot: usize) -> &mut [T] {
        self.check(slot);
        // SAFETY: in range (checked), mapped writable while `self` lives, initialised; the caller is alone on the row.
        unsafe { std::slice::from_raw_parts_mut(self.row_ptr(slot).cast_mut(), self.row_len) }
    }

    /// Tells the kernel that rows `from..to` are no longer needed (whole pages only; one system call). Panics when the
    /// range is not inside the arena. Those of a file stay as they are.
    ///
    /// Returns whether the kernel took them. Whole pages of the range then read as zero again; values on the partial
    /// pages at its ends, and everything when false is returned, stay as they are.
    ///
    /// # Safety
    ///
    /// What [`Self::row`] and [`Self::row_mut_unchecked`] gave for these rows is not used any more, and nobody asks for them meanwhile. (Rows
    /// of atomics: see [`Self::release`], which is safe.)
    pub unsafe fn forget(&self, from: usize, to: usize) -> bool {
        assert!(from <= to && to <= self.capacity, "rows {from}..{to} of {}", self.capacity);
        if self.is_file() {
            return false;
        }
        let page = page_bytes();
        let row_bytes = self.row_bytes();
        let start = (from * row_bytes).next_multiple_of(page);
        // The last page of the mapping is ours to its end, even where the rows end before it.
        let end = if to == self.capacity { to * row_bytes } else { to * row_bytes / page * page };
        if start >= end {
            return true;
        }
        // SAFETY: the range lies inside the private anonymous mapping. Its pages become zero, a valid value of every
        // `Zeroable`, and nobody holds a row there (caller).
        unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start).is_ok() }
    }

    /// Has the kernel give rows `from..to` their pages now, on this thread, instead of at their first touch, on whichever thread
    /// that is: 2 MiB of zeros take a fraction of a millisecond, and several where a hypervisor backs them only then. Changes no
    /// row, so any thread may, whoever reads or writes. Whole pages, one system call for each 2 MiB; where the kernel does not know
    /// the call or memory is short, rows are paid for when they are touched, as without it, and so are those of a file. Panics
    /// when the range is not inside the arena.
    pub fn populate(&self, from: usize, to: usize) {
        assert!(from <= to && to <= self.capacity, "rows {from}..{to} of {}", self.capacity);
        if self.is_file() {
            return;
        }
        self.advise(to * self.row_bytes());
        let (row_bytes, page) = (self.row_bytes(), page_bytes());
        let (mut start, end) = (from * row_bytes / page * page, to * row_bytes);
        while start < end {
            // In pieces: whoever maps or unmaps memory meanwhile waits for one.
            let len = (end - start).min(HUGE_PAGE_BYTES - start % HUGE_PAGE_BYTES);
            if !populate_range(&self.map, start, len) {
                return;
            }
            start += len;
        }
    }

    fn base(&self) -> *mut T {
        self.map.as_mut_ptr().cast()
    }

    #[inline]
    fn check(&self, slot: usize) {
        assert!(slot < self.capacity, "row {slot} is outside an arena of {} rows", self.capacity);
    }
}

impl<T: Zeroable> Drop for Arena<T> {
    fn drop(&mut self) {
        RESERVED.fetch_sub(self.map.len() as u64, Relaxed);
    }
}

impl<T: Atomic> Arena<T> {
    /// Row `slot` of an arena of atomics, which any thread may change through it. Panics when out of range.
    #[inline]
    pub fn cells(&self, slot: usize) -> &[T] {
        self.row(slot)
    }

    /// As [`Self::forget`], for atomics: they become zero under their readers, which is no data race.
    pub fn release(&self, from: usize, to: usize) -> bool {
        // SAFETY: who holds a row of atomics sees it change like by any other thread's store; whoever has one for itself alone says that it
        // is the only one to reach it (`row_mut_unchecked`).
        unsafe { self.forget(from, to) }
    }

    /// Rows `first..end`, one after the other, as [`Self::cells`]. Panics when out of range.
    pub fn cells_of(&self, first: usize, end: usize) -> &[T] {
        assert!(first <= end && end <= self.capacity, "rows {first}..{end} of {}", self.capacity);
        // SAFETY: as in `cells`, for rows that lie one after the other in one mapping.
        unsafe {
            std::slice::from_raw_parts(
                self.base().cast_const().add(first * self.row_len),
                (end - first) * self.row_len,
            )
        }
    }
}

/// Whether the kernel did.
#[cfg(target_os = "linux")]
fn populate_range(map: &MmapRaw, start: usize, len: usize) -> bool {
    map.advise_range(Advice::PopulateWrite, start, len).is_ok()
}

/// Only Linux has the call.
#[cfg(not(target_os = "linux"))]
fn populate_range(_: &MmapRaw, _: usize, _: usize) -> bool {
    false
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn rows_lie_one_after_the_other() {
        let arena = Arena::<std::sync::atomic::AtomicU64>::reserve(100, 2).unwrap();
        arena.cells(7)[1].store(3, Ordering::Relaxed);
        let cells = arena.cells_of(6, 9);
        assert_eq!(cells.len(), 6);
        assert_eq!(cells[3].load(Ordering::Relaxed), 3);
        assert!(arena.cells_of(100, 100).is_empty());
        assert!(std::panic::catch_unwind(|| arena.cells_of(99, 101).len()).is_err());
    }

    #[test]
    fn an_arena_that_may_grow_is_advised_once_it_grows() {
        let arena = Arena::<AtomicU64>::reserve_to_grow(1 << 20, 1).unwrap();
        arena.commit(SMALL_PAGES_BYTES / 8).unwrap();
        assert!(!arena.is_advised.load(Ordering::Relaxed), "the first 2 MiB have small pages");
        arena.commit(SMALL_PAGES_BYTES / 8 + 1).unwrap();
        assert!(arena.is_advised.load(Ordering::Relaxed));
        let populated = Arena::<AtomicU64>::reserve_to_grow(1 << 20, 1).unwrap();
        populated.populate(0, 1 << 19);
        assert!(populated.is_advised.load(Ordering::Relaxed));
        assert!(Arena::<AtomicU64>::reserve(1 << 20, 1).unwrap().is_advised.load(Ordering::Relaxed));
        // Others reserve and drop at the same time, but nobody holds as much as this.
        let large = Arena::<AtomicU64>::reserve_to_grow(1 << 40, 1).unwrap();
        assert!(reserved_address_space() >= 8 << 40);
        drop(large);
        assert!(reserved_address_space() < 8 << 40);
    }

    #[test]
    fn rows_are_zero_aligned_and_keep_what_is_written() {
        let mut arena = Arena::<f32>::reserve(1000, 48).unwrap();
        assert_eq!((arena.capacity(), arena.row_len()), (1000, 48));
        for slot in 0..1000 {
            assert_eq!(arena.row_ptr(slot).align_offset(64), 0);
            assert!(arena.row(slot).iter().all(|&v| v == 0.0));
            arena.row_mut(slot).fill(slot as f32);
        }
        let table = arena.table();
        for slot in 0..1000 {
            assert!(arena.row(slot as usize).iter().all(|&v| v == slot as f32));
            assert_eq!(arena.row(slot as usize), table.row(slot));
        }
    }

    #[test]
    fn a_huge_reservation_costs_only_what_is_touched() {
        let mut arena = Arena::<u8>::reserve(1 << 30, 1 << 10).unwrap();
        arena.row_mut((1 << 30) - 1)[1023] = 7;
        assert_eq!(arena.row((1 << 30) - 1)[1023], 7);
    }

    #[test]
    fn populating_changes_nothing() {
        let arena = Arena::<AtomicU32>::reserve(100_000, 16).unwrap();
        arena.cells(40_000)[3].store(7, Ordering::Relaxed);
        arena.populate(100_000, 100_000);
        arena.populate(39_000, 99_999);
        assert_eq!(arena.cells(40_000)[3].load(Ordering::Relaxed), 7);
        assert!(
            (40_001..100_000)
                .all(|row| arena.cells(row).iter().all(|cell| cell.load(Ordering::Relaxed) == 0))
        );
        assert!(std::panic::catch_unwind(|| arena.populate(99_999, 100_001)).is_err());
        Arena::<AtomicU32>::reserve(8, 0).unwrap().populate(0, 8);
    }

    #[test]
    fn empty_arenas_and_empty_rows_work() {
        let arena = Arena::<AtomicU64>::reserve(0, 16).unwrap();
        assert_eq!(arena.capacity(), 0);
        assert!(arena.release(0, 0));
        let arena = Arena::<AtomicU32>::reserve(8, 0).unwrap();
        assert!(arena.cells(7).is_empty());
        assert!(arena.release(0, 8));
    }

    #[test]
    #[should_panic(expected = "row 4 is outside an arena of 4 rows")]
    fn a_row_out_of_range_panics() {
        let arena = Arena::<AtomicU64>::reserve(4, 2).unwrap();
        arena.cells(4);
    }

    #[test]
    fn sizes_beyond_the_address_space_are_refused() {
        assert!(matches!(Arena::<u64>::reserve(usize::MAX / 2, 8), Err(ArenaError::TooLarge { .. })));
        assert!(matches!(Arena::<u8>::reserve(usize::MAX / 4, 1), Err(ArenaError::Reserve { .. })));
    }

    #[test]
    fn rows_of_a_file_are_there_again_when_it_is_mapped_again() {
        let file = crate::memory::anonymous_file();
        let pages = || FilePages::new(Box::new(file.try_clone().unwrap()), 65_536).unwrap();
        let arena = Arena::<AtomicU32>::reserve_in(pages(), 1 << 40, 16).unwrap();
        assert_eq!(arena.committed(), 0);
        arena.commit(5000).unwrap();
        assert!((5000..100_000).contains(&arena.committed()), "{}", arena.committed());
        (0..5000).for_each(|slot| arena.cells(slot)[3].store(slot as u32, Ordering::Relaxed));
        assert!(!arena.release(0, 5000), "pages of a file stay");
        assert!(arena.resident_bytes(5000) >= 5000 * 64 / 2);
        let committed = arena.committed();
        drop(arena);
        let arena = Arena::<AtomicU32>::reserve_in(pages(), 1 << 40, 16).unwrap();
        assert_eq!(arena.committed(), committed);
        assert!((0..5000).all(|slot| arena.cells(slot)[3].load(Ordering::Relaxed) == slot as u32));
    }

    #[test]
    fn release_zeroes_whole_pages_and_spares_their_neighbours() {
        let page = page_bytes();
        let rows_per_page = page / 64;
        let rows = rows_per_page * 8 + 3;
        let arena = Arena::<AtomicU32>::reserve(rows, 16).unwrap();
        let fill = || (0..rows).for_each(|slot| arena.cells(slot)[5].store(9, Ordering::Relaxed));
        for (from, to) in [(0, rows), (1, rows - 1), (rows_per_page, 2 * rows_per_page), (3, 5), (7, 7)] {
            fill();
            assert!(arena.release(from, to));
            for slot in 0..rows {
                let page_of = slot / rows_per_page;
                let (first, last) = (page_of * rows_per_page, ((page_of + 1) * rows_per_page).min(rows));
                let gone = from < to && from <= first && last <= to;
                let want = if gone { 0 } else { 9 };
                assert_eq!(arena.cells(slot)[5].load(Ordering::Relaxed), want, "{from}..{to} row {slot}");
            }
        }
    }
}
