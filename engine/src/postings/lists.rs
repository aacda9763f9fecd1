//! The readable side: roots, directories and tails as they lie in memory.

use super::extents::{Extent, Extents};
use super::{BLOCK, DEAD, Summary};
use crate::memory::Rows;
use crate::slot::Slot;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The number of a list.
pub(crate) type ListId = u32;

/// Cells of a directory entry before its summaries: first slot, last slot, block, counts.
const ENTRY_HEAD: usize = 4;

/// The word that says what a list is.
///
/// ```text
/// bits 0..32   extent of a small list, directory of a large one
/// bits 32..40  postings of the small list or of the tail
/// bits 40..63  blocks
/// bit  63      large
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Root(u64);

impl Root {
    pub const EMPTY: Root = Root::small(Extent::NONE, 0);

    const fn pack(extent: Extent, tail: usize, blocks: usize, large: bool) -> Root {
        Root(extent.bits() as u64 | (tail as u64) << 32 | (blocks as u64) << 40 | (large as u64) << 63)
    }

    pub const fn small(extent: Extent, len: usize) -> Root {
        Root::pack(extent, len, 0, false)
    }

    pub fn large(directory: Extent, blocks: usize, tail: usize) -> Root {
        assert!(blocks < 1 << 23, "{blocks} blocks in one list");
        Root::pack(directory, tail, blocks, true)
    }

    pub fn is_large(self) -> bool {
        self.0 >> 63 == 1
    }

    pub fn extent(self) -> Extent {
        Extent::from_bits(self.0 as u32)
    }

    /// Postings of the small list or of the tail.
    pub fn tail_len(self) -> usize {
        (self.0 >> 32) as usize & 0xFF
    }

    pub fn blocks(self) -> usize {
        (self.0 >> 40) as usize & 0x7F_FFFF
    }
}

/// Slots and values of an extent, both of its capacity.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    pub slots: &'a [AtomicU32],
    pub values: &'a [AtomicU32],
}

impl Cells<'_> {
    #[inline]
    pub fn slot(&self, at: usize) -> Slot {
        self.slots[at].load(Ordering::Relaxed)
    }

    #[inline]
    pub fn value(&self, at: usize) -> u32 {
        self.values[at].load(Ordering::Relaxed)
    }

    /// Owner: fills a cell that no root counts.
    pub fn set(&self, at: usize, slot: Slot, value: u32) {
        self.slots[at].store(slot, Ordering::Relaxed);
        self.values[at].store(value, Ordering::Relaxed);
    }

    /// Live postings among the first `len`, in order.
    pub fn live(self, len: usize) -> impl Iterator<Item = (Slot, u32)> {
        (0..len).map(move |at| (self.slot(at), self.value(at))).filter(|&(_, value)| value != DEAD)
    }
}

/// A directory: entries of a stride that depends on the lane's summary.
#[derive(Clone, Copy)]
pub(super) struct Directory<'a> {
    cells: &'a [AtomicU32],
    stride: usize,
}

impl<'a> Directory<'a> {
    /// Cells per entry: head, summary of the block, summary of all blocks up to and with it.
    pub const fn stride<S: Summary>() -> usize {
        ENTRY_HEAD + 2 * S::WORDS
    }

    #[inline]
    fn word(&self, entry: usize, word: usize) -> &'a AtomicU32 {
        &self.cells[entry * self.stride + word]
    }

    /// Entries there is room for.
    pub fn capacity(&self) -> usize {
        self.cells.len() / self.stride
    }

    #[inline]
    pub fn first(&self, entry: usize) -> Slot {
        self.word(entry, 0).load(Ordering::Relaxed)
    }

    #[inline]
    pub fn last(&self, entry: usize) -> Slot {
        self.word(entry, 1).load(Ordering::Relaxed)
    }

    /// The block of an entry; behind the last entry, the tail.
    #[inline]
    pub fn block(&self, entry: usize) -> Extent {
        Extent::from_bits(self.word(entry, 2).load(Ordering::Relaxed))
    }

    /// Postings of the block, dead ones included.
    #[inline]
    pub fn len(&self, entry: usize) -> usize {
        (self.word(entry, 3).load(Ordering::Relaxed) & 0xFFFF) as usize
    }

    /// Dead postings of the block. Only the owner counts them; readers do not look.
    pub fn dead(&self, entry: usize) -> usize {
        (self.word(entry, 3).load(Ordering::Relaxed) >> 16) as usize
    }

    /// Bounds of the block.
    #[inline]
    pub fn summary<S: Summary>(&self, entry: usize) -> S {
        S::load(&self.cells[entry * self.stride + ENTRY_HEAD..][..S::WORDS])
    }

    /// Bounds of all blocks up to and with this one.
    #[inline]
    pub fn summary_so_far<S: Summary>(&self, entry: usize) -> S {
        S::load(&self.cells[entry * self.stride + ENTRY_HEAD + S::WORDS..][..S::WORDS])
    }

    /// Index of the first of `blocks` entries, from `from` on, whose range ends at or after `slot`.
    #[inline]
    pub fn seek(&self, from: usize, blocks: usize, slot: Slot) -> usize {
        // Mostly the present one or the next; else gallop.
        let (mut low, mut step) = (from, 1);
        while low + step <= blocks && self.last(low + step - 1) < slot {
            low += step;
            step *= 2;
        }
        let mut high = (low + step - 1).min(blocks);
        while low < high {
            let middle = (low + high) / 2;
            if self.last(middle) < slot {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Owner: the extent of an entry alone (the tail's).
    pub fn set_block(&self, entry: usize, block: Extent) {
        self.word(entry, 2).store(block.bits(), Ordering::Relaxed);
    }

    /// Owner: one more dead posting.
    pub fn add_dead(&self, entry: usize) {
        let counts = self.word(entry, 3);
        counts.store(counts.load(Ordering::Relaxed) + (1 << 16), Ordering::Relaxed);
    }

    /// Owner: fills an entry that no root counts; entries before it are filled.
    pub fn set<S: Summary>(&self, entry: usize, head: &EntryHead, summary: &S) {
        self.word(entry, 0).store(head.first, Ordering::Relaxed);
        self.word(entry, 1).store(head.last, Ordering::Relaxed);
        self.set_block(entry, head.block);
        self.word(entry, 3).store(head.len as u32 | (head.dead as u32) << 16, Ordering::Relaxed);
        let mut so_far = if entry == 0 { S::EMPTY } else { self.summary_so_far(entry - 1) };
        so_far.merge(summary);
        let at = entry * self.stride + ENTRY_HEAD;
        summary.store(&self.cells[at..][..S::WORDS]);
        so_far.store(&self.cells[at + S::WORDS..][..S::WORDS]);
    }

    pub fn head(&self, entry: usize) -> EntryHead {
        EntryHead {
            first: self.first(entry),
            last: self.last(entry),
            block: self.block(entry),
            len: self.len(entry),
            dead: self.dead(entry),
        }
    }
}

/// What an entry says of its block besides the summary.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryHead {
    pub first: Slot,
    pub last: Slot,
    pub block: Extent,
    pub len: usize,
    pub dead: usize,
}

/// All lists of an index, readable by every core.
pub(crate) struct Lists {
    pub(super) extents: Extents,
    /// Two words per list: the root; counts.
    pub(super) rows: Rows<AtomicU64>,
    /// Bytes, kept by the owner.
    pub(super) bytes: AtomicU64,
}

impl Lists {
    pub fn new() -> Lists {
        Lists { extents: Extents::new(), rows: Rows::new(2), bytes: AtomicU64::new(0) }
    }

    #[inline]
    pub(super) fn root(&self, list: ListId) -> Root {
        Root(self.rows.cells(list)[0].load(Ordering::Acquire))
    }

    /// Owner: all that the root leads to is in place.
    pub(super) fn set_root(&self, list: ListId, root: Root) {
        self.rows.cells(list)[0].store(root.0, Ordering::Release);
    }

    /// Any core: postings not removed yet.
    pub fn postings(&self, list: ListId) -> u32 {
        self.rows.cells(list)[1].load(Ordering::Relaxed) as u32
    }

    /// Any core: postings of points that count, as the owner keeps it with [`Self::set_counts`].
    pub fn counted(&self, list: ListId) -> u32 {
        (self.rows.cells(list)[1].load(Ordering::Relaxed) >> 32) as u32
    }

    /// Owner: both counts of a list.
    pub fn set_counts(&self, list: ListId, postings: u32, counted: u32) {
        self.rows.cells(list)[1].store(u64::from(postings) | u64::from(counted) << 32, Ordering::Relaxed);
    }

    /// The cells of an extent that a lane has allocated for itself.
    pub fn cells(&self, extent: Extent) -> &[AtomicU32] {
        self.extents.cells(extent)
    }

    /// An extent of postings.
    #[inline]
    pub(super) fn postings_of(&self, extent: Extent) -> Cells<'_> {
        let cells = self.extents.cells(extent);
        let (slots, values) = cells.split_at(cells.len() / 2);
        Cells { slots, values }
    }

    #[inline]
    pub(super) fn directory<S: Summary>(&self, root: Root) -> Directory<'_> {
        Directory { cells: self.extents.cells(root.extent()), stride: Directory::stride::<S>() }
    }

    pub(super) fn directory_at<S: Summary>(&self, extent: Extent) -> Directory<'_> {
        Directory { cells: self.extents.cells(extent), stride: Directory::stride::<S>() }
    }

    /// Any core: every live posting of a list as it stands, in no order. The caller is pinned. A removal or an addition
    /// meanwhile may show or not.
    pub fn for_each<S: Summary>(&self, list: ListId, mut f: impl FnMut(Slot, u32)) {
        let root = self.root(list);
        let mut tail = root.extent();
        if root.is_large() {
            let directory = self.directory::<S>(root);
            for entry in 0..root.blocks() {
                let block = self.postings_of(directory.block(entry));
                block.live(directory.len(entry)).for_each(|(slot, value)| f(slot, value));
            }
            tail = directory.block(root.blocks());
        }
        if root.tail_len() > 0 {
            self.postings_of(tail).live(root.tail_len()).for_each(|(slot, value)| f(slot, value));
        }
    }

    /// Any core: committed bytes of lists and extents.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

const _: () = assert!(BLOCK <= 0xFF, "the length of a tail fits its bits of the root");
