//! The parent of each point: the slot, in another collection, of what the point is a part of. In an index of tokens each point is a token, and its
//! parent is the document that it belongs to. A search for tokens of certain documents looks up the parent of each token that it meets.
//!
//! A parent is a hint. It is unknown from the birth of a point until the owner sets it, and after a start until the owner has found it again.
//!
//! A bulk build replaces both collections and gives the documents other slots. A search reads the index first and then the documents, so it may have
//! the old index together with the new documents. Each therefore has the number of its build, and parents are used only if the two are equal.
use super::{Points, PointsWriter};
use crate::filter::planner::bit;
use crate::memory::Arena;
use crate::slot::Slot;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One number for each slot: 0 if the parent is unknown, otherwise 1 more than the parent.
#[derive(Default)]
pub(super) struct Parents {
    /// Reserved when a parent is set for the first time, so that other collections do without; `None` if the kernel refused it.
    column: OnceLock<Option<Arena<AtomicU32>>>,
    /// The number of bulk builds that have replaced the collection since the start. It is set before other cores can see the points and never changes
    /// afterwards, so relaxed loads suffice.
    builds: AtomicU64,
}

impl Parents {
    fn column(&self) -> Option<&Arena<AtomicU32>> {
        self.column.get()?.as_ref()
    }

    /// Owner: the slot holds a new point, whose parent is unknown.
    pub fn forget(&self, slot: Slot) {
        if let Some(column) = self.column() {
            column.cells(slot as usize)[0].store(0, Ordering::Relaxed);
        }
    }

    /// Bytes of the numbers of the first `slots` slots.
    pub fn bytes(&self, slots: u64) -> u64 {
        self.column().map_or(0, |_| slots * size_of::<AtomicU32>() as u64)
    }
}

/// Parents as searches ask for them.
#[derive(Clone, Copy)]
pub(crate) struct ParentsView<'p>(&'p Arena<AtomicU32>);

impl ParentsView<'_> {
    #[inline]
    fn number(self, slot: Slot) -> u32 {
        self.0.cells(slot as usize)[0].load(Ordering::Relaxed)
    }

    /// The parent of the point in a slot, if it is known.
    #[inline]
    pub fn get(self, slot: Slot) -> Option<Slot> {
        self.number(slot).checked_sub(1)
    }

    /// Whether the parent of the point in a slot is not refused. Two loads and no branch that depends on them.
    #[inline]
    pub fn passes(self, slot: Slot, refused: &RefusedParents) -> bool {
        !bit(&refused.numbers, self.number(slot))
    }

    /// Sets one bit for each of the slots `64 * first ..` whose parent is refused, in words that are 0.
    pub fn mark_refused(self, first: usize, words: &mut [u64], refused: &RefusedParents) {
        let end = (64 * (first + words.len())).min(self.0.capacity());
        for (word, numbers) in words.iter_mut().zip(self.0.cells_of(64 * first, end).chunks(64)) {
            for (at, number) in numbers.iter().enumerate() {
                *word |= u64::from(bit(&refused.numbers, number.load(Ordering::Relaxed))) << at;
            }
        }
    }
}

/// The parents that do not pass. All others do, also those that are not known and those that are younger than this set.
pub(crate) struct RefusedParents {
    /// One bit for each number of the column.
    numbers: Vec<u64>,
}

impl RefusedParents {
    /// None of the parents in slots below `slots`.
    pub fn none(slots: usize) -> RefusedParents {
        RefusedParents { numbers: vec![0; slots / 64 + 1] }
    }

    /// Refuses those of the slots `64 * index ..` whose bits are set.
    pub fn refuse(&mut self, index: usize, bits: u64) {
        // Numbers are 1 more than slots.
        self.numbers[index] |= bits << 1;
        if bits >> 63 != 0 {
            self.numbers[index + 1] |= 1;
        }
    }
}

impl Points {
    /// The parents of all points; `None` if no parent was ever set.
    fn parents(&self) -> Option<ParentsView<'_>> {
        self.parents.column().map(ParentsView)
    }

    /// Returns the parents of all points if they are slots of `documents`. Returns `None` if no parent was ever set, or if the two collections
    /// come from different bulk builds, because the slots then mean nothing in `documents`.
    pub(crate) fn parents_in(&self, documents: &Points) -> Option<ParentsView<'_>> {
        self.parents().filter(|_| self.builds() == documents.builds())
    }

    fn builds(&self) -> u64 {
        self.parents.builds.load(Ordering::Relaxed)
    }
}

impl PointsWriter {
    /// Gives these points the build number after that of `other`, which they will replace. This must be called before any other core can see them.
    pub fn follow_builds(&self, other: &PointsWriter) {
        self.shared.parents.builds.store(other.shared.builds() + 1, Ordering::Relaxed);
    }

    /// Sets the parent of these points. Those that are not present are passed over. If the first point has this parent already, all of them do, and
    /// nothing is done: the points of one parent are set together.
    pub fn set_parent(&self, ids: impl IntoIterator<Item = u64>, parent: Slot) {
        let shared = &self.shared;
        let column = shared.parents.column.get_or_init(|| Arena::reserve(self.slots_max, 1).ok());
        let (Some(column), Some(number)) = (column, parent.checked_add(1)) else { return };
        for slot in ids.into_iter().filter_map(|id| shared.ids.get_owned(id)) {
            let cell = &column.cells(slot as usize)[0];
            if cell.load(Ordering::Relaxed) == number {
                return;
            }
            cell.store(number, Ordering::Relaxed);
        }
    }

    /// The parent of a point that is present, if it is known.
    pub fn parent(&self, id: u64) -> Option<Slot> {
        self.shared.parents()?.get(self.shared.ids.get_owned(id)?)
    }

    /// The slot of an id that is present, expired or not.
    pub fn slot(&self, id: u64) -> Option<Slot> {
        self.shared.slot_of(id)
    }
}
