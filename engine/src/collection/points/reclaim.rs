//! Reclamation: what nobody can see any more is freed, in steps.
//!
//! What is unlinked waits in one queue, points' and spaces' alike: it comes out in the order in which it went in, so that whatever belongs
//! to a slot is gone before the slot is.
use super::{PointsWriter, sub};
use crate::payload::PayloadRow;
use crate::slot::Slot;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;

/// Work of one reclamation, in steps of about 0.2 µs: a slice of the owner's time is 300 µs. More when writes have come faster than
/// calls.
const STEPS_PER_RECLAIM: usize = 512;
const STEPS_PER_RECLAIM_MAX: usize = 1536;
/// A slot is a step, to file it in the payload index and the lanes or to take it out is so many for each of its terms.
const TERM_STEPS: usize = 2;
/// Slots whose numbers are put into a column of the payload index per reclamation, about 0.1 µs each.
const COLUMN_SLOTS_PER_RECLAIM: usize = 1024;
/// Replaced parts of the payload index freed per step, some 50 ns each.
const PARTS_PER_STEP: usize = 2;
/// Bytes of an id in the ordered set: 8 in nodes that are on average three quarters full, and the node headers.
const ORDERED_ID_BYTES: u64 = 12;
/// Likewise for a deadline.
const DEADLINE_BYTES: u64 = 24;
/// Bytes of an entry in the table that counts for a dead slot how many spaces still use it: the slot, the count, and a control byte of the table.
const AWAITED_BYTES: u64 = 17;

/// What waits until no reader can see it.
pub(crate) enum Retired {
    /// Dead slots that nothing leads to.
    Slots(Vec<Slot>),
    /// The oldest replaced row of a slot.
    Row(Slot),
    /// Vectors of a space that codes have taken the place of.
    Vectors { space: usize, slots: Vec<Slot> },
    /// The oldest codes of a space that others have taken the place of.
    Codes { space: usize },
}

/// What no reader can see any more. Only [`PointsWriter::next_unseen`] makes these, so that having one is the right to free it.
pub(crate) enum Unseen {
    Slot(UnseenSlot),
    Row(UnseenRow),
    Vectors { space: usize, vectors: UnseenVectors },
    Codes { space: usize, codes: UnseenCodes },
}

/// Of [`Retired::Slots`].
pub(crate) struct UnseenSlot(Slot);

impl UnseenSlot {
    /// Its number.
    pub fn slot(&self) -> Slot {
        self.0
    }
}

/// Of [`Retired::Row`].
pub(crate) struct UnseenRow(Slot);

/// What [`Retired::Vectors`] names, which no reader can see any more.
pub(crate) struct UnseenVectors(Vec<Slot>);

impl UnseenVectors {
    /// The slots that had them.
    pub fn slots(&self) -> &[Slot] {
        &self.0
    }
}

/// Of [`Retired::Codes`].
pub(crate) struct UnseenCodes(());

/// How many steps it is to file so many terms of a slot, or to take them out.
pub(crate) fn slot_steps(terms: usize) -> usize {
    1 + terms * TERM_STEPS
}

impl PointsWriter {
    /// Newborn slots after which a write looks for readers that have gone, so that callers who never reclaim stay bounded.
    pub(super) const NEWBORN_MAX: usize = 256;

    /// Queues what nothing leads to any more until all readers that may have seen it are gone.
    pub(crate) fn retire(&mut self, what: Retired) {
        self.limbo.push(&self.shared.domain, what);
    }

    /// A point has died of which so many spaces have a vector: its slot is queued when the last of them has let go of it.
    pub(crate) fn await_spaces(&mut self, slot: Slot, spaces: usize) {
        match spaces {
            0 => self.retire(Retired::Slots(vec![slot])),
            1 => {}
            _ => _ = self.awaited.insert(slot, spaces - 1),
        }
    }

    /// A space has let go of dead slots: nothing in it leads there. Each space does so once for each slot of which it has a vector.
    pub(crate) fn let_go(&mut self, mut slots: Vec<Slot>) {
        if !self.awaited.is_empty() {
            slots.retain(|slot| match self.awaited.entry(*slot) {
                Entry::Vacant(_) => true,
                Entry::Occupied(mut others) => {
                    *others.get_mut() -= 1;
                    if *others.get() == 0 {
                        others.remove();
                    }
                    false
                }
            });
        }
        if !slots.is_empty() {
            self.retire(Retired::Slots(slots));
        }
    }

    /// A write has filed `terms`, and what it replaced is to be taken out in time. Whether it is time to reclaim.
    pub(crate) fn owe_reclaim(&mut self, terms: usize) -> bool {
        // Twice what the write took: what dies is freed faster than it can be replaced.
        self.reclaim_owed += 2 * slot_steps(terms);
        self.newborn.len() >= self.newborn_look
    }

    /// Whether writes have replaced so much that a reclamation is due, and something waits for it.
    pub(crate) fn owes_reclaim(&self) -> bool {
        self.reclaim_owed >= STEPS_PER_RECLAIM && self.retired() > 0
    }

    /// Slots nothing leads to that are not free yet, replaced rows, and dropped sparse spaces; a batch of slots in limbo counts as one.
    pub(crate) fn retired(&self) -> usize {
        self.freeing.len()
            + self.limbo.len()
            + usize::from(self.lanes.has_waiting() || self.lanes.has_emptied())
            + self.lanes.leaving()
    }

    /// Whether a slot is about to be freed.
    #[cfg(test)]
    pub(crate) fn is_freeing(&self, slot: Slot) -> bool {
        self.freeing.contains(&slot)
    }

    /// Whether slots with long texts wait to be freed.
    pub(crate) fn has_emptied(&self) -> bool {
        self.lanes.has_emptied()
    }

    /// Slots that can be used again.
    pub(crate) fn free_slots(&self) -> usize {
        self.free.len()
    }

    /// The steps of a reclamation that begins now.
    pub(crate) fn reclaim_steps(&self) -> usize {
        self.reclaim_owed.clamp(STEPS_PER_RECLAIM, STEPS_PER_RECLAIM_MAX)
    }

    /// So many steps were done.
    pub(crate) fn repay_reclaim(&mut self, steps: usize) {
        self.reclaim_owed = self.reclaim_owed.saturating_sub(steps);
    }

    /// Slots whose birth every reader's snapshot includes need no closer look any more.
    pub(crate) fn settle_newborn(&mut self) {
        let domain = &self.shared.domain;
        if let Some((tag, _)) = &self.settling
            && domain.is_quiescent(*tag)
        {
            for (slot, born) in self.settling.take().into_iter().flat_map(|(_, slots)| slots) {
                self.shared.meta.settle(slot, born);
            }
        }
        if self.settling.is_none() && !self.newborn.is_empty() {
            self.settling = Some((domain.retire(), std::mem::take(&mut self.newborn)));
        }
        // While a long search keeps its pin nothing settles, and not every write is to ask anew.
        self.newborn_look = self.newborn.len() + Self::NEWBORN_MAX;
    }

    /// Slots whose long texts were taken out go on to be freed.
    pub(crate) fn take_emptied(&mut self) {
        self.freeing.extend(self.lanes.take_emptied());
    }

    /// The next thing that no reader can see any more. Without one nothing is owed any more: what is owed is asked for when there is
    /// something again.
    pub(crate) fn next_unseen(&mut self) -> Option<Unseen> {
        loop {
            if let Some(slot) = self.freeing.pop() {
                return Some(Unseen::Slot(UnseenSlot(slot)));
            }
            // In order: the replaced rows of a slot come before its own end.
            match self.limbo.pop(&self.shared.domain) {
                Some(Retired::Slots(slots)) => self.freeing = slots,
                Some(Retired::Row(slot)) => return Some(Unseen::Row(UnseenRow(slot))),
                Some(Retired::Vectors { space, slots }) => {
                    return Some(Unseen::Vectors { space, vectors: UnseenVectors(slots) });
                }
                Some(Retired::Codes { space }) => {
                    return Some(Unseen::Codes { space, codes: UnseenCodes(()) });
                }
                None => {
                    self.reclaim_owed = 0;
                    return None;
                }
            }
        }
    }

    /// Before a slot is freed: begins to take its text out, if that is long. Then the slot comes again later, and this
    /// is the number of its tokens.
    pub(crate) fn empty_later(&mut self, unseen: &UnseenSlot) -> Option<usize> {
        let slot = unseen.0;
        let row = PayloadRow::trusted(self.shared.meta.owned_row(&self.rows, slot));
        self.lanes.remove_later(slot, row)
    }

    /// Frees a slot, which all spaces have let go of; returns the number of its terms in the payload index and the lanes.
    pub(crate) fn free_slot(&mut self, UnseenSlot(slot): UnseenSlot) -> usize {
        let shared = self.shared.clone();
        let row = PayloadRow::trusted(shared.meta.owned_row(&self.rows, slot));
        let terms = shared.index.remove(slot, row) + self.lanes.remove(slot, row);
        // SAFETY: dead (only dead slots are retired), and quiescent, which `UnseenSlot` says.
        unsafe { shared.meta.free(Self::sole_owner(&mut self.rows), slot) };
        sub(&shared.tombstoned, 1);
        if self.holds_freed {
            self.held.push(slot);
        } else {
            self.free.push(slot);
        }
        self.changes.state.insert(slot);
        terms
    }

    /// Frees the oldest replaced row of a slot; the number of its terms.
    pub(crate) fn release_row(&mut self, UnseenRow(slot): UnseenRow) -> usize {
        let meta = &self.shared.meta;
        let rows = meta.rows_of(&self.rows, slot);
        let (&oldest, newer) = rows.split_first().expect("the row that the slot has");
        let terms = self.shared.index.release(slot, oldest, newer);
        // Each was looked for in every newer row.
        let terms = terms * newer.len();
        // SAFETY: quiescent, which `UnseenRow` says.
        unsafe { meta.free_oldest_replaced(Self::sole_owner(&mut self.rows), slot) };
        terms
    }

    /// Gives back the row of a slot that images have shown and no reader has seen: ids and spaces are empty, and there are no slots.
    ///
    /// # Panics
    /// When slots are shown to readers.
    pub(super) fn free_unseen(&mut self, slot: Slot) {
        assert_eq!(self.high_water(), 0, "slot {slot} is restored before anything is shown");
        self.shared.meta.bury(slot, 0);
        // SAFETY: dead as of now; no reader has been given a slot of a collection that is being restored.
        unsafe { self.shared.meta.free(Self::sole_owner(&mut self.rows), slot) };
    }

    /// Whether all points are gone and nobody can find them any more.
    pub(crate) fn is_vacant(&self) -> bool {
        let slots = self.high_water();
        slots > 0 && self.ordered_ids.is_empty() && self.free.len() + self.held.len() == slots
    }

    /// Frees replaced parts of tables that no reader sees any more, as many as `steps` steps allow, and builds columns on.
    pub(crate) fn reclaim_tables(&mut self, steps: usize) {
        self.shared.ids.reclaim();
        self.shared.index.reclaim(steps * PARTS_PER_STEP);
        self.lanes.reclaim();
        self.fill_columns(COLUMN_SLOTS_PER_RECLAIM);
    }

    /// Publishes the bytes that only the owner can count; `ahead` slots beyond those in use have their memory already.
    pub(crate) fn note_bytes(&self, ahead: u64) {
        let deadlines = self.deadlines.len() + self.key_deadlines.len() + self.expiry.text_deadlines.len();
        let bytes = self.ordered_ids.len() as u64 * ORDERED_ID_BYTES
            + deadlines as u64 * DEADLINE_BYTES
            + (self.free.capacity() + self.held.capacity()) as u64 * 4
            + self.kept_for_snapshots.as_ref().map_or(0, Vec::capacity) as u64 * 4
            + self.awaited.capacity() as u64 * AWAITED_BYTES
            + self.changes.bytes()
            + self.gone.bytes()
            + self.shared.slot_bytes(ahead);
        self.shared.owner_bytes.store(bytes, Ordering::Relaxed);
    }
}
