//! The two kinds of memory an [`IdMap`](super::IdMap) is made of: lines of entries and tagged blocks.
//!
//! # Lines
//!
//! A [`Line`] is one cache line of five entries. An entry is a key and a slot:
//!
//! ```text
//! EMPTY --claim--> (key, slot) <--set--> (key, other slot) <--set--> (key, REMOVED)
//! ```
//!
//! *An entry's key is written once, before its slot is first stored, and never changes while the line lives.* So a
//! reader that loads the slot (Acquire) and finds it not EMPTY may load the key and trust that both belong together, now
//! and ever after: between its two loads the slot may change, the key cannot. There is no order in which it can return
//! the slot of another key. (Reading the key first would be wrong: it could be the zero from before the claim.)
//!
//! # Blocks
//!
//! A [`Block`] is an array of `2^log2` values, aligned to a cache line, and its address *with the logarithm in the low six
//! bits*. Pointer and size therefore travel in one atomic store, and a reader needs no header, which would be one more cache
//! miss.

use super::sync::{AtomicU32, AtomicU64, Ordering};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;

/// Entries of a line: five keys, five slots and one note fill 64 bytes.
pub(super) const LINE_ENTRIES: usize = 5;

/// Greatest slot that can be stored; two values are taken by the states of an entry.
pub(super) const SLOT_MAX: u32 = u32::MAX - 2;

const EMPTY: u32 = u32::MAX;
const REMOVED: u32 = u32::MAX - 1;

/// Five entries and a note of the owner's.
#[repr(C, align(64))]
pub(super) struct Line {
    keys: [AtomicU64; LINE_ENTRIES],
    slots: [AtomicU32; LINE_ENTRIES],
    /// Only the owner reads it: line 0 of a segment counts the claimed entries, line 1 holds the depth.
    note: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line>() == 64);

/// What probing an entry for a key tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// Never claimed: the key is not in this segment.
    Empty,
    /// Another key's.
    Other,
    /// The key's, which is removed.
    Removed,
    /// The key's, with its slot.
    Slot(u32),
}

impl Line {
    pub(super) fn new() -> Self {
        Line {
            keys: std::array::from_fn(|_| AtomicU64::new(0)),
            slots: std::array::from_fn(|_| AtomicU32::new(EMPTY)),
            note: AtomicU32::new(0),
        }
    }

    /// Any core: whether `entry` is `key`'s and where it points. The slot is loaded before the key, see above.
    #[inline]
    pub(super) fn probe(&self, entry: usize, key: u64) -> Probe {
        let slot = self.slots[entry].load(Ordering::Acquire);
        if slot == EMPTY {
            return Probe::Empty;
        }
        if self.keys[entry].load(Ordering::Relaxed) != key {
            return Probe::Other;
        }
        if slot == REMOVED { Probe::Removed } else { Probe::Slot(slot) }
    }

    /// Owner: gives an EMPTY entry to `key` for the life of the line.
    pub(super) fn claim(&self, entry: usize, key: u64, slot: u32) {
        debug_assert_eq!(self.slots[entry].load(Ordering::Relaxed), EMPTY, "an entry is claimed once");
        self.keys[entry].store(key, Ordering::Relaxed);
        self.set(entry, Some(slot));
    }

    /// Owner: points a claimed entry elsewhere; `None` removes. One store.
    pub(super) fn set(&self, entry: usize, slot: Option<u32>) {
        debug_assert!(slot.is_none_or(|slot| slot <= SLOT_MAX));
        // Release: what the owner wrote to the slot before mapping it is visible to whoever finds it here.
        self.slots[entry].store(slot.unwrap_or(REMOVED), Ordering::Release);
    }

    /// Owner: entries in use, as (key, slot).
    pub(super) fn live(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        (0..LINE_ENTRIES).filter_map(|entry| {
            let slot = self.slots[entry].load(Ordering::Relaxed);
            (slot <= SLOT_MAX).then(|| (self.keys[entry].load(Ordering::Relaxed), slot))
        })
    }

    /// Entries never claimed.
    #[cfg(all(test, not(loom)))]
    pub(super) fn unclaimed(&self) -> usize {
        self.slots.iter().filter(|slot| slot.load(Ordering::Relaxed) == EMPTY).count()
    }

    /// Owner: the note.
    pub(super) fn note(&self) -> u32 {
        self.note.load(Ordering::Relaxed)
    }

    /// Owner: changes the note.
    pub(super) fn set_note(&self, note: u32) {
        self.note.store(note, Ordering::Relaxed);
    }
}

/// Low address bits that hold the logarithm; blocks are aligned to match.
const LOG2_BITS: u32 = 6;
const LOG2_MASK: usize = (1 << LOG2_BITS) - 1;

/// Address and size of `2^log2` values of `T` in one word. A plain word like a pointer: copying it copies no
/// value and dropping it frees nothing.
pub(super) struct Block<T> {
    tagged: *mut u8,
    values: PhantomData<*const T>,
}

impl<T> Clone for Block<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Block<T> {}

impl<T> PartialEq for Block<T> {
    fn eq(&self, other: &Self) -> bool {
        self.tagged == other.tagged
    }
}

// SAFETY: a block is an address; what may be done with it is said at the unsafe methods.
unsafe impl<T: Send> Send for Block<T> {}

impl<T> Block<T> {
    /// Allocates `2^log2` values made by `value(index)`.
    pub(super) fn new(log2: u32, mut value: impl FnMut(usize) -> T) -> Self {
        let layout = Self::layout(log2);
        // SAFETY: the layout has a size above zero (`T` is never zero-sized here; asserted in `layout`).
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        for index in 0..1 << log2 {
            // SAFETY: inside the fresh allocation and aligned for `T` (`layout`).
            unsafe { start.cast::<T>().add(index).write(value(index)) };
        }
        Self::from_tagged(start.map_addr(|addr| addr | log2 as usize))
    }

    /// The word, for an atomic pointer.
    pub(super) fn tagged(self) -> *mut u8 {
        self.tagged
    }

    /// The block of a word that [`Self::tagged`] gave.
    #[inline]
    pub(super) fn from_tagged(tagged: *mut u8) -> Self {
        Block { tagged, values: PhantomData }
    }

    /// Binary logarithm of the number of values.
    #[inline]
    pub(super) fn log2(self) -> u32 {
        (self.tagged.addr() & LOG2_MASK) as u32
    }

    /// The values.
    ///
    /// # Safety
    ///
    /// The block has not been freed and is not while `'a` lasts.
    #[inline]
    pub(super) unsafe fn values<'a>(self) -> &'a [T] {
        let start = self.tagged.map_addr(|addr| addr & !LOG2_MASK).cast::<T>();
        // SAFETY: `new` has allocated and initialised that many values there; not freed (caller).
        unsafe { std::slice::from_raw_parts(start, 1 << self.log2()) }
    }

    /// Bytes allocated.
    pub(super) fn bytes(self) -> usize {
        Self::layout(self.log2()).size()
    }

    /// Gives the memory back.
    ///
    /// # Safety
    ///
    /// Nobody uses the block or frees it again.
    pub(super) unsafe fn free(self) {
        let start = self.tagged.map_addr(|addr| addr & !LOG2_MASK);
        for index in 0..1usize << self.log2() {
            // SAFETY: initialised by `new`, dropped once (caller).
            unsafe { start.cast::<T>().add(index).drop_in_place() };
        }
        // SAFETY: allocated by `new` with this layout, freed once (caller).
        unsafe { dealloc(start, Self::layout(self.log2())) };
    }

    fn layout(log2: u32) -> Layout {
        assert!((log2 as usize) < LOG2_MASK && size_of::<T>() > 0);
        Layout::array::<T>(1 << log2)
            .and_then(|layout| layout.align_to(1 << LOG2_BITS))
            .expect("a block is smaller than the address space")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_goes_through_its_states() {
        let line = Line::new();
        assert_eq!(line.probe(2, 0), Probe::Empty, "the zero of a fresh key is nobody's");
        line.claim(2, 0, SLOT_MAX);
        assert_eq!(line.probe(2, 0), Probe::Slot(SLOT_MAX));
        assert_eq!(line.probe(2, 1), Probe::Other);
        assert_eq!(line.live().collect::<Vec<_>>(), [(0, SLOT_MAX)]);
        line.set(2, None);
        assert_eq!(line.probe(2, 0), Probe::Removed);
        assert_eq!(line.probe(2, 1), Probe::Other);
        assert_eq!(line.live().count(), 0);
        line.set(2, Some(5));
        assert_eq!(line.probe(2, 0), Probe::Slot(5));
    }

    #[test]
    fn a_block_carries_its_size_and_drops_its_values() {
        let counter = std::rc::Rc::new(());
        for log2 in [0, 1, 5] {
            let block = Block::new(log2, |index| (index, counter.clone()));
            let again = Block::<(usize, std::rc::Rc<()>)>::from_tagged(block.tagged());
            assert!(again == block);
            assert_eq!(again.log2(), log2);
            // SAFETY: not freed yet.
            let values = unsafe { again.values() };
            assert_eq!(values.len(), 1 << log2);
            assert_eq!(values.as_ptr().align_offset(64), 0);
            assert!(values.iter().enumerate().all(|(index, value)| value.0 == index));
            assert_eq!(block.bytes(), 16 << log2);
            // SAFETY: the last use.
            unsafe { block.free() };
            assert_eq!(std::rc::Rc::strong_count(&counter), 1);
        }
    }
}
