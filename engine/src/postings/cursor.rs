//! A reader's way through one list, forward only: its blocks and, beside them, its tail.

use super::lists::{Cells, Directory, ListId, Lists};
use super::{DEAD, Summary};
use crate::slot::Slot;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// One list as it was when the cursor was made. Its tail was copied into a shared buffer and sorted; `tail` is what is
/// left of it there.
#[derive(Clone)]
pub(super) struct Cursor<'a, S> {
    lists: &'a Lists,
    directory: Option<Directory<'a>>,
    blocks: usize,
    /// The present entry; `blocks` when there is none any more.
    entry: usize,
    /// The entry whose cells are at hand, and the place in them; what lies before the place is behind the cursor.
    block: Option<(usize, Cells<'a>)>,
    at: usize,
    tail: Range<usize>,
    tail_summary: S,
    /// Bounds of everything.
    pub summary: S,
}

impl<'a, S: Summary> Cursor<'a, S> {
    /// At the start of a list. Appends the live postings of its tail to `tails`; one pass over at most 128 postings.
    pub fn new(
        lists: &'a Lists,
        list: ListId,
        tails: &mut Vec<(Slot, u32)>,
        summarize: impl Fn(Slot, u32) -> S,
    ) -> Cursor<'a, S> {
        let root = lists.root(list);
        let directory = root.is_large().then(|| lists.directory::<S>(root));
        let blocks = root.blocks();
        let start = tails.len();
        let tail = directory.map_or(root.extent(), |directory| directory.block(blocks));
        let mut tail_summary = S::EMPTY;
        if root.tail_len() > 0 {
            for (slot, value) in lists.postings_of(tail).live(root.tail_len()) {
                tail_summary.merge(&summarize(slot, value));
                tails.push((slot, value));
            }
        }
        let gathered = &mut tails[start..];
        if !gathered.is_sorted_by_key(|&(slot, _)| slot) {
            gathered.sort_unstable_by_key(|&(slot, _)| slot);
        }
        let mut summary = tail_summary;
        if let Some(directory) = directory
            && blocks > 0
        {
            summary.merge(&directory.summary_so_far(blocks - 1));
        }
        Cursor {
            lists,
            directory,
            blocks,
            entry: 0,
            block: None,
            at: 0,
            tail: start..tails.len(),
            tail_summary,
            summary,
        }
    }

    /// Leaves everything before `slot` behind.
    pub fn seek(&mut self, slot: Slot, tails: &[(Slot, u32)]) {
        if let Some(directory) = self.directory {
            self.entry = directory.seek(self.entry, self.blocks, slot);
        }
        while self.tail.start < self.tail.end && tails[self.tail.start].0 < slot {
            self.tail.start += 1;
        }
    }

    /// Slot of the next posting at or after `from`, to which the cursor has been sought; a posting that was removed counts.
    pub fn next_slot(&mut self, from: Slot, tails: &[(Slot, u32)]) -> Option<Slot> {
        let tail = tails[self.tail.clone()].first().map(|&(slot, _)| slot);
        let Some(directory) = self.directory.filter(|_| self.entry < self.blocks) else { return tail };
        let mut block = directory.first(self.entry);
        if block < from {
            // The block ends at or after `from`, so there is one.
            let cells = self.cells(directory);
            self.at += gallop(&cells.slots[self.at..directory.len(self.entry)], from);
            block = cells.slot(self.at);
        }
        Some(tail.map_or(block, |tail| tail.min(block)))
    }

    /// No posting has a higher slot.
    pub fn last_slot(&self, tails: &[(Slot, u32)]) -> Slot {
        let tail = tails[self.tail.clone()].last().map_or(0, |&(slot, _)| slot);
        match self.directory {
            Some(directory) if self.blocks > 0 => tail.max(directory.last(self.blocks - 1)),
            _ => tail,
        }
    }

    /// Bounds of the postings at or after the place sought to and up to `last`, or `None` when there are none.
    pub fn bounds(
        &self,
        last: Slot,
        tails: &[(Slot, u32)],
        mut of: impl FnMut(&S) -> (f64, f64),
    ) -> Option<(f64, f64)> {
        let mut bounds: Option<(f64, f64)> = None;
        let mut widen = |(low, high): (f64, f64)| {
            let (a, b) = bounds.unwrap_or((low, high));
            bounds = Some((a.min(low), b.max(high)));
        };
        if let Some(directory) = self.directory {
            let mut entry = self.entry;
            while entry < self.blocks && directory.first(entry) <= last {
                widen(of(&directory.summary(entry)));
                entry += 1;
            }
        }
        if !self.tail.is_empty() && tails[self.tail.start].0 <= last {
            widen(of(&self.tail_summary));
        }
        bounds
    }

    /// Passes every live posting from `first` on, to which the cursor has been sought, up to `last`.
    #[inline]
    pub fn pass(&mut self, first: Slot, last: Slot, tails: &[(Slot, u32)], mut visit: impl FnMut(Slot, u32)) {
        if let Some(directory) = self.directory {
            while self.entry < self.blocks && directory.first(self.entry) <= last {
                let cells = self.cells(directory);
                let len = directory.len(self.entry);
                let skipped = cells.slots[self.at..len].partition_point(|cell| below(cell, first));
                self.at += skipped;
                let postings = cells.slots[self.at..len].iter().zip(&cells.values[self.at..len]);
                let mut passed = 0;
                for (slot, value) in postings {
                    let slot = slot.load(Ordering::Relaxed);
                    if slot > last {
                        break;
                    }
                    passed += 1;
                    let value = value.load(Ordering::Relaxed);
                    if value != DEAD {
                        visit(slot, value);
                    }
                }
                self.at += passed;
                if self.at < len {
                    break;
                }
                self.entry += 1;
            }
        }
        while let Some(&(slot, value)) = tails[self.tail.clone()].first()
            && slot <= last
        {
            visit(slot, value);
            self.tail.start += 1;
        }
    }

    /// The value of a slot's live posting; the cursor moves up to it. Slots are asked for in ascending order; the same one
    /// may be asked for again.
    #[inline]
    pub fn find(&mut self, slot: Slot, tails: &[(Slot, u32)]) -> Option<u32> {
        self.seek(slot, tails);
        if let Some(directory) = self.directory
            && self.entry < self.blocks
            && directory.first(self.entry) <= slot
        {
            let cells = self.cells(directory);
            let len = directory.len(self.entry);
            self.at += gallop(&cells.slots[self.at..len], slot);
            if self.at < len && cells.slot(self.at) == slot {
                let value = cells.value(self.at);
                if value != DEAD {
                    return Some(value);
                }
            }
        }
        let &(next, value) = tails[self.tail.clone()].first()?;
        (next == slot).then_some(value)
    }

    /// The cells of the present entry.
    #[inline]
    fn cells(&mut self, directory: Directory<'a>) -> Cells<'a> {
        match self.block {
            Some((entry, cells)) if entry == self.entry => cells,
            _ => {
                let cells = self.lists.postings_of(directory.block(self.entry));
                self.block = Some((self.entry, cells));
                self.at = 0;
                cells
            }
        }
    }
}

#[inline]
fn below(cell: &AtomicU32, slot: Slot) -> bool {
    cell.load(Ordering::Relaxed) < slot
}

/// How many cells at the front are below `slot`.
#[inline]
fn gallop(cells: &[AtomicU32], slot: Slot) -> usize {
    let mut step = 1;
    while step <= cells.len() && below(&cells[step - 1], slot) {
        step *= 2;
    }
    let from = step / 2;
    let to = step.min(cells.len());
    from + cells[from..to].partition_point(|cell| below(cell, slot))
}
