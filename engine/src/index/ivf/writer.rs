//! The owner's side: filing slots and taking them out.
use super::cells::Nothing;
use super::{Cells, Place};
use crate::index::Slot;
use crate::memory::Domain;
use crate::postings::{ListId, ListsWriter};
use std::sync::Arc;

const NONE: u32 = u32::MAX;

/// The only handle that changes the lists of one [`Cells`].
pub(crate) struct CellsWriter {
    cells: Arc<Cells>,
    lists: ListsWriter<Nothing>,
    /// First and second cell per slot, [`NONE`] = not filed.
    places: Vec<[u32; 2]>,
}

impl CellsWriter {
    /// Over cells without content.
    pub fn new(cells: Arc<Cells>, domain: Arc<Domain>) -> CellsWriter {
        let mut lists = ListsWriter::new(cells.lists.clone(), domain);
        for cell in 0..cells.len() {
            let list = lists.new_list();
            assert_eq!(list, cell as ListId, "lists are numbered as cells are");
        }
        CellsWriter { cells, lists, places: Vec::new() }
    }

    pub fn cells(&self) -> &Arc<Cells> {
        &self.cells
    }

    /// First and second cell of a filed slot.
    pub fn place(&self, slot: Slot) -> Option<(u32, Option<u32>)> {
        let [cell, second] = *self.places.get(slot as usize)?;
        (cell != NONE).then_some((cell, (second != NONE).then_some(second)))
    }

    /// Files a slot that is not filed. Some stores; every now and then a list is written anew in part.
    ///
    /// # Panics
    /// When there are no such cells. (Debug: when it is filed.)
    pub fn insert(&mut self, slot: Slot, cell: u32, second: Option<u32>) {
        debug_assert!(self.place(slot).is_none(), "slot {slot} is filed already");
        let second = second.filter(|&second| second != cell);
        for cell in [Some(cell), second].into_iter().flatten() {
            assert!((cell as usize) < self.cells.len(), "cell {cell} of {}", self.cells.len());
        }
        let index = slot as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, [NONE; 2]);
        }
        self.places[index] = [cell, second.unwrap_or(NONE)];
        self.lists.insert(cell, slot, second.map_or(0, |second| second + 1), &|_, _| Nothing);
        if let Some(second) = second {
            self.lists.insert(second, slot, cell + 1, &|_, _| Nothing);
        }
    }

    /// Takes a slot out that no reader's snapshot shows any more; false when it is not filed.
    pub fn remove(&mut self, slot: Slot) -> bool {
        let Some((cell, second)) = self.place(slot) else { return false };
        for cell in [Some(cell), second].into_iter().flatten() {
            self.lists.remove(cell, slot, &|_, _| Nothing);
        }
        self.places[slot as usize] = [NONE; 2];
        self.lists.seal(self.own_bytes());
        true
    }

    /// Ends a batch of [`Self::insert`]: what it replaced waits for readers.
    pub fn seal(&mut self) {
        self.lists.seal(self.own_bytes());
    }

    /// Takes back what no reader can see any more.
    pub fn reclaim(&mut self) {
        self.lists.reclaim(self.own_bytes());
    }

    fn own_bytes(&self) -> usize {
        self.places.capacity() * size_of::<[u32; 2]>()
    }

    /// From a place as planned.
    pub fn insert_at(&mut self, slot: Slot, place: &Place) {
        self.insert(slot, place.cell, place.second);
    }
}

#[cfg(test)]
impl CellsWriter {
    /// Postings in all cells.
    pub fn filed(&self) -> u64 {
        (0..self.cells.len() as u32).map(|cell| u64::from(self.cells.filed(cell))).sum()
    }
}
