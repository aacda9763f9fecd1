//! The owner's side: filing slots and taking them out.
use super::cells::{Filed, Nothing};
use super::coded_writer::CodedWriter;
use super::{Cells, FiledAt};
use crate::memory::Domain;
use crate::postings::{ListId, Lists, ListsWriter};
use crate::slot::Slot;
use std::sync::Arc;

const NONE: u32 = u32::MAX;

/// The only handle that changes what is filed in one [`Cells`].
pub(crate) struct CellsWriter {
    cells: Arc<Cells>,
    books: Books,
}

enum Books {
    Plain(Box<PlainWriter>),
    Coded(CodedWriter),
}

impl CellsWriter {
    /// Over cells without content.
    pub fn new(cells: Arc<Cells>, domain: Arc<Domain>) -> CellsWriter {
        let books = match &cells.filed {
            Filed::Plain(lists) => {
                Books::Plain(Box::new(PlainWriter::new(lists.clone(), cells.len(), domain)))
            }
            Filed::Coded(_) => Books::Coded(CodedWriter::new(domain)),
        };
        CellsWriter { cells, books }
    }

    pub fn cells(&self) -> &Arc<Cells> {
        &self.cells
    }

    /// First and second cell of a filed slot.
    pub fn place(&self, slot: Slot) -> Option<(u32, Option<u32>)> {
        match (&self.books, self.cells.coded()) {
            (Books::Plain(plain), _) => plain.place(slot),
            (Books::Coded(_), coded) => coded?.cells_of(slot),
        }
    }

    /// Files a slot that is not filed. Some stores, and one for each byte of its codes; every now and then a list is written anew in
    /// part. `codes`: what [`Cells::encode`] gave for the cells.
    ///
    /// # Panics
    /// When there are no such cells, or codes are missing. (Debug: when it is filed.)
    pub fn insert(&mut self, slot: Slot, cell: u32, second: Option<u32>, codes: &[u8]) {
        debug_assert!(self.place(slot).is_none(), "slot {slot} is filed already");
        for cell in [Some(cell), second].into_iter().flatten() {
            assert!((cell as usize) < self.cells.len(), "cell {cell} of {}", self.cells.len());
        }
        match (&mut self.books, self.cells.coded()) {
            (Books::Plain(plain), _) => plain.insert(slot, cell, second.filter(|&second| second != cell)),
            (Books::Coded(books), Some(coded)) => books.insert(coded, slot, cell, second, codes),
            (Books::Coded(_), None) => unreachable!("books are those of the cells"),
        }
    }

    /// Takes a slot out that no reader's snapshot shows any more; false when it is not filed.
    pub fn remove(&mut self, slot: Slot) -> bool {
        let removed = match (&mut self.books, self.cells.coded()) {
            (Books::Plain(plain), _) => plain.remove(slot),
            (Books::Coded(books), Some(coded)) => books.remove(coded, slot),
            (Books::Coded(_), None) => unreachable!("books are those of the cells"),
        };
        if removed {
            self.seal();
        }
        removed
    }

    /// Ends a batch of [`Self::insert`]: what it replaced waits for readers.
    pub fn seal(&mut self) {
        match (&mut self.books, self.cells.coded()) {
            (Books::Plain(plain), _) => plain.lists.seal(plain.own_bytes()),
            (Books::Coded(books), Some(coded)) => books.seal(coded),
            (Books::Coded(_), None) => unreachable!("books are those of the cells"),
        }
    }

    /// Takes back what no reader can see any more.
    pub fn reclaim(&mut self) {
        match (&mut self.books, self.cells.coded()) {
            (Books::Plain(plain), _) => plain.lists.reclaim(plain.own_bytes()),
            (Books::Coded(books), Some(coded)) => books.reclaim(coded),
            (Books::Coded(_), None) => unreachable!("books are those of the cells"),
        }
    }

    /// From a place as planned.
    pub fn insert_at(&mut self, slot: Slot, place: &FiledAt) {
        self.insert(slot, place.cell, place.second, &place.codes);
    }
}

/// Of cells without codes.
struct PlainWriter {
    lists: ListsWriter<Nothing>,
    /// First and second cell per slot, [`NONE`] = not filed.
    places: Vec<[u32; 2]>,
}

impl PlainWriter {
    fn new(lists: Arc<Lists>, cells: usize, domain: Arc<Domain>) -> PlainWriter {
        let mut lists = ListsWriter::new(lists, domain);
        for cell in 0..cells {
            let list = lists.new_list();
            assert_eq!(list, cell as ListId, "lists are numbered as cells are");
        }
        PlainWriter { lists, places: Vec::new() }
    }

    fn place(&self, slot: Slot) -> Option<(u32, Option<u32>)> {
        let [cell, second] = *self.places.get(slot as usize)?;
        (cell != NONE).then_some((cell, (second != NONE).then_some(second)))
    }

    fn insert(&mut self, slot: Slot, cell: u32, second: Option<u32>) {
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

    fn remove(&mut self, slot: Slot) -> bool {
        let Some((cell, second)) = self.place(slot) else { return false };
        for cell in [Some(cell), second].into_iter().flatten() {
            self.lists.remove(cell, slot, &|_, _| Nothing);
        }
        self.places[slot as usize] = [NONE; 2];
        true
    }

    fn own_bytes(&self) -> usize {
        self.places.capacity() * size_of::<[u32; 2]>()
    }
}

#[cfg(test)]
impl CellsWriter {
    /// Postings in all cells.
    pub fn filed(&self) -> u64 {
        (0..self.cells.len() as u32).map(|cell| u64::from(self.cells.filed(cell))).sum()
    }
}
