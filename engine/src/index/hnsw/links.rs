//! Edge storage: fixed blocks of atomic slots that the owner rewrites in place and readers copy.
//!
//! # Invariants
//!
//! 1. A cell holds 0 (end of the list) or slot + 1 of a slot below the capacity, whatever a reader observes while a
//!    list is rewritten: it may see old and new entries mixed, each a valid slot.
//! 2. A node's vector and its own lists are written before any list names it: the owner puts a Release fence
//!    between the two, readers an Acquire fence after copying a block.
//! 3. A slot's upper blocks are named by one atomic word (first block and level), read whole. A reader that follows
//!    an upper edge to a slot which was reused with a lower level finds the level missing there, never foreign memory.
//!
//! Level 0 has a block for every slot; at degree 32 it is exactly two cache lines. One node in `m` has upper levels,
//! whose blocks are allocated in runs.
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, fence};

use super::GraphConfig;
use crate::memory::{Arena, ArenaError, ScratchFiles};
use crate::slot::Slot;

/// Cells per cache line; blocks are whole lines.
const LINE_CELLS: usize = 16;

/// Highest level a node may have. Levels thin out by `m` each, so 2^32 nodes of degree 2 fill 32 of them.
pub(super) const LEVEL_MAX: u8 = 31;

pub(super) struct Links {
    base: Arena<AtomicU32>,
    upper: Arena<AtomicU32>,
    /// Per slot: `(first upper block) << 8 | level`.
    place: Arena<AtomicU64>,
    base_degree: usize,
    upper_degree: usize,
}

impl Links {
    pub(super) fn reserve(config: &GraphConfig, scratch: &ScratchFiles) -> Result<Self, ArenaError> {
        let base_degree = config.degree_max(0);
        let upper_degree = config.degree_max(1);
        Ok(Links {
            base: scratch.reserve(config.capacity, base_degree.next_multiple_of(LINE_CELLS))?,
            upper: Arena::reserve_to_grow(upper_blocks(config), upper_degree.next_multiple_of(LINE_CELLS))?,
            place: Arena::reserve_to_grow(config.capacity, 1)?,
            base_degree,
            upper_degree,
        })
    }

    /// Level-0 blocks of slots `from..to` (see [`Arena::populate`]). Upper ones are a small part, and come one by one.
    pub(super) fn populate(&self, from: usize, to: usize) {
        self.base.populate(from, to);
        self.place.populate(from, to);
    }

    /// Owner: makes sure that level 0 of the first `slots` slots can be written.
    pub(super) fn commit(&self, slots: usize) -> std::io::Result<()> {
        self.place.commit(slots)?;
        self.base.commit(slots)
    }

    /// Owner: as [`Self::commit`], for the first `blocks` upper blocks, which never lie in a file.
    pub(super) fn commit_upper(&self, blocks: usize) {
        self.upper.commit(blocks).expect("anonymous pages are there");
    }

    /// Of [`Self::bytes`], those of a file.
    pub(super) fn file_bytes(&self, slots: usize) -> usize {
        if self.base.is_file() { slots * self.base.row_len() * size_of::<AtomicU32>() } else { 0 }
    }

    /// Upper blocks reserved.
    pub(super) fn upper_capacity(&self) -> usize {
        self.upper.capacity()
    }

    /// Bytes of `slots` level-0 blocks and `blocks` upper ones.
    pub(super) fn bytes(&self, slots: usize, blocks: usize) -> usize {
        slots * (self.base.row_len() * size_of::<AtomicU32>() + size_of::<AtomicU64>())
            + blocks * self.upper.row_len() * size_of::<AtomicU32>()
    }

    #[inline]
    fn place(&self, slot: Slot) -> (usize, u8) {
        let word = self.place.cells(slot as usize)[0].load(Relaxed);
        ((word >> 8) as usize, word as u8)
    }

    /// Level of the node in `slot`; 0 for an unused slot.
    #[inline]
    pub(super) fn level(&self, slot: Slot) -> u8 {
        self.place(slot).1
    }

    /// First block of the slot's upper run.
    pub(super) fn upper_run(&self, slot: Slot) -> u32 {
        self.place(slot).0 as u32
    }

    /// Owner: where the slot's upper lists are. Its blocks must be clear.
    pub(super) fn set_place(&self, slot: Slot, first_block: u32, level: u8) {
        self.place.cells(slot as usize)[0].store(u64::from(first_block) << 8 | u64::from(level), Relaxed);
    }

    /// Most edges of a list on level 0.
    #[inline]
    pub(super) fn base_degree(&self) -> usize {
        self.base_degree
    }

    /// The cells of a list; empty when the node does not reach `level`.
    #[inline]
    fn cells(&self, slot: Slot, level: u8) -> &[AtomicU32] {
        if level == 0 {
            return &self.base.cells(slot as usize)[..self.base_degree];
        }
        match self.place(slot) {
            (first, top) if level <= top => {
                &self.upper.cells(first + usize::from(level) - 1)[..self.upper_degree]
            }
            _ => &[],
        }
    }

    /// Calls `f` with each edge of a list. What it names may be read after [`Self::acquire`].
    #[inline]
    pub(super) fn for_each(&self, slot: Slot, level: u8, mut f: impl FnMut(Slot)) {
        for cell in self.cells(slot, level) {
            match cell.load(Relaxed) {
                0 => break,
                edge => f(edge - 1),
            }
        }
    }

    /// Orders reads of what copied edges name after the copying (invariant 2).
    #[inline]
    pub(super) fn acquire() {
        fence(std::sync::atomic::Ordering::Acquire);
    }

    /// Copies a list over `out`.
    #[inline]
    pub(super) fn read(&self, slot: Slot, level: u8, out: &mut Vec<Slot>) {
        out.clear();
        self.for_each(slot, level, |edge| out.push(edge));
        Links::acquire();
    }

    /// Owner: rewrites a list in place. Lists longer than the degree are a bug of the caller.
    pub(super) fn write(&self, slot: Slot, level: u8, edges: &[Slot]) {
        let cells = self.cells(slot, level);
        assert!(edges.len() <= cells.len(), "{} edges for slot {slot} on level {level}", edges.len());
        for (i, cell) in cells.iter().enumerate() {
            let value = edges.get(i).map_or(0, |&edge| edge + 1);
            // Unchanged lines stay shared with the readers' caches.
            if cell.load(Relaxed) != value {
                cell.store(value, Relaxed);
            }
        }
    }

    /// Owner: as [`Self::write`], for a list that is empty. Reads nothing, so that fresh memory is touched once.
    pub(super) fn fill(&self, slot: Slot, level: u8, edges: &[Slot]) {
        let cells = self.cells(slot, level);
        debug_assert!(
            cells.iter().all(|cell| cell.load(Relaxed) == 0),
            "the list of slot {slot} is not empty"
        );
        assert!(edges.len() <= cells.len(), "{} edges for slot {slot} on level {level}", edges.len());
        cells.iter().zip(edges).for_each(|(cell, &edge)| cell.store(edge + 1, Relaxed));
    }

    /// Asks for the cache lines of the level-0 list.
    #[inline]
    pub(super) fn prefetch(&self, slot: Slot) {
        let bytes = self.base_degree * size_of::<AtomicU32>();
        crate::distance::prefetch_row(self.base.row_ptr(slot as usize), bytes);
    }
}

/// Upper blocks to reserve. `capacity / (m - 1)` are expected; the rest is address space, which costs nothing, for
/// runs that fragmentation keeps from fitting.
fn upper_blocks(config: &GraphConfig) -> usize {
    let expected = config.capacity / (config.m - 1);
    (2 * expected + 1024).min(u32::MAX as usize)
}

/// The owner's allocator of upper runs: free runs by length, longest split when a length has none.
pub(super) struct UpperRuns {
    free: Vec<Vec<u32>>,
    next: u32,
    capacity: u32,
}

impl UpperRuns {
    pub(super) fn new(capacity: usize) -> Self {
        UpperRuns { free: vec![Vec::new(); usize::from(LEVEL_MAX) + 1], next: 0, capacity: capacity as u32 }
    }

    /// A run of `len` (1..=[`LEVEL_MAX`]) blocks.
    pub(super) fn allocate(&mut self, len: u8) -> Option<u32> {
        let len = usize::from(len);
        if let Some(run) = self.free[len].pop() {
            return Some(run);
        }
        if self.capacity - self.next >= len as u32 {
            self.next += len as u32;
            return Some(self.next - len as u32);
        }
        let longer = (len + 1..self.free.len()).find(|&longer| !self.free[longer].is_empty())?;
        let run = self.free[longer].pop()?;
        self.free[longer - len].push(run + len as u32);
        Some(run)
    }

    /// Gives a run back.
    pub(super) fn free(&mut self, run: u32, len: u8) {
        self.free[usize::from(len)].push(run);
    }

    /// Blocks that were ever used.
    pub(super) fn used(&self) -> usize {
        self.next as usize
    }
}
