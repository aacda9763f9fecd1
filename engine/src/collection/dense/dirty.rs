//! Which slots changed since the last checkpoint image, and what else an image has to say. Only the owner has these.
use crate::collection::slot_set::SlotSet;
use crate::slot::Slot;

/// Changed slots, in two degrees.
#[derive(Clone, Debug, Default)]
pub(super) struct Dirty {
    /// Id, vector, row: all is to be written.
    pub data: SlotSet,
    /// Edges, death or freeing: the vector and row of the image before still hold unless `data` says otherwise.
    pub state: SlotSet,
    /// Centroids that changed: all of them, or 0.
    pub cells: usize,
    /// What the quantizer of a graph has learned.
    pub codec: bool,
}

impl Dirty {
    /// Members, those in both degrees counted twice (a bound is all that is needed).
    pub fn len(&self) -> usize {
        self.data.len() + self.state.len() + self.cells + usize::from(self.codec)
    }

    /// The first member of either at or after `from`.
    pub fn next(&self, from: Slot) -> Option<Slot> {
        self.data.next_of_both(&self.state, from)
    }

    pub fn insert_all(&mut self, other: &Dirty) {
        self.data.insert_all(&other.data);
        self.state.insert_all(&other.state);
        self.cells = self.cells.max(other.cells);
        self.codec |= other.codec;
    }
}
