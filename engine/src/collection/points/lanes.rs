//! The sparse spaces and the full-text lane of a collection: inverted lists over the slots that hold its points.
//!
//! All are filed from the payload row alone, so that the log, images and a bulk build carry them without a word: the sparse
//! vectors are a part of the row, the document is its `$content`. A dense collection has one sparse space, a collection of named spaces any
//! number. The lanes follow a slot as the payload index does: filed before the birth is published, taken out when the slot is freed. Scores of
//! text depend on statistics of all documents, which follow the death at once.
//!
//! Readers find the text lane with the points. Sparse spaces come and go, so readers find them with their view of the collection.
use super::sparse_lists::{DroppedSparseSpace, LeavingSpace, SparseSpace, SparseSpaceWriter};
use crate::memory::Domain;
use crate::payload::PayloadRow;
use crate::slot::Slot;
use crate::text::{Task, TextConfig, TextIndex, TextWriter};
use std::sync::Arc;

/// The owner's handles.
pub(super) struct LaneWriters {
    domain: Arc<Domain>,
    seed: u64,
    sparse: Vec<SparseSpaceWriter>,
    /// Sparse spaces that were dropped and that readers may still have a view of.
    leaving: Vec<LeavingSpace>,
    text: Option<TextWriter>,
    vector: Vec<(u32, f32)>,
}

impl LaneWriters {
    /// Makes empty lanes: a sparse space for each element of `sparse_spaces` (true = dropped), and a text lane if `full_text` is given. `seed` keys
    /// their hashes.
    pub fn new(
        sparse_spaces: &[bool],
        full_text: Option<TextConfig>,
        domain: Arc<Domain>,
        seed: u64,
    ) -> LaneWriters {
        let text = full_text.map(|text| TextWriter::new(text, domain.clone(), seed));
        let sparse = sparse_spaces.iter().map(|&is_dropped| SparseSpaceWriter::new(is_dropped)).collect();
        LaneWriters { domain, seed, sparse, leaving: Vec::new(), text, vector: Vec::new() }
    }

    /// What readers search of the texts; `None` where texts are not searched.
    pub fn text(&self) -> Option<&Arc<TextIndex>> {
        self.text.as_ref().map(TextWriter::shared)
    }

    /// What readers search of the sparse spaces, in the order of their numbers.
    pub fn sparse_spaces(&self) -> impl Iterator<Item = &Arc<SparseSpace>> {
        self.sparse.iter().map(SparseSpaceWriter::shared)
    }

    /// Adds a sparse space without vectors, which gets the next number.
    pub fn add_sparse_space(&mut self) {
        self.sparse.push(SparseSpaceWriter::new(false));
    }

    /// Drops a sparse space; its number stays taken. The caller keeps the returned space until no reader has a view of it.
    ///
    /// # Panics
    /// When there is no space of that number.
    pub fn drop_sparse_space(&mut self, number: usize) -> DroppedSparseSpace {
        let space = std::mem::replace(&mut self.sparse[number], SparseSpaceWriter::new(true));
        let (leaving, dropped) = LeavingSpace::new(number, space);
        self.leaving.push(leaving);
        dropped
    }

    /// Sparse spaces that were dropped and whose memory has not been given back.
    pub fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// Files the row of a live slot that no reader sees yet; the number of components and tokens.
    ///
    /// # Panics
    /// When a sparse vector is none: rows are checked when they are built and when they are read from outside.
    pub fn insert(&mut self, slot: Slot, row: PayloadRow<'_>) -> usize {
        let mut filed = 0;
        for (number, space) in self.sparse.iter_mut().enumerate().take(row.sparse_spaces()) {
            self.vector.clear();
            self.vector.extend(row.sparse_of(number));
            filed += space.insert(slot, &self.vector, &self.domain, self.seed);
        }
        if let Some(text) = &mut self.text
            && let Some(content) = document(row)
        {
            if is_long(text, content) {
                text.later(slot, Task::Insert, content);
                filed += content.len() / BYTES_PER_TOKEN;
            } else {
                filed += text.insert(slot, content) as usize;
            }
        }
        filed
    }

    /// A slot that counts dies: what counts live points forgets it, whoever still sees it finds it.
    pub fn forget(&mut self, slot: Slot, row: PayloadRow<'_>) {
        self.count_vectors(row, false);
        self.count_text(slot, row, false);
    }

    /// The sparse vectors of a row count from now on, or do not any more.
    pub fn count_vectors(&mut self, row: PayloadRow<'_>, counts: bool) {
        for (number, space) in self.sparse.iter_mut().enumerate().take(row.sparse_spaces()) {
            if row.sparse_of(number).len() > 0 {
                space.count(counts);
            }
        }
    }

    /// The text of a slot is to count or not, whatever it did before.
    pub fn count_text(&mut self, slot: Slot, row: PayloadRow<'_>, counts: bool) {
        if let Some(text) = &mut self.text
            && let Some(content) = document(row)
        {
            match (is_long(text, content), counts) {
                (false, true) => _ = text.recall(slot, content),
                (false, false) => _ = text.forget(slot, content),
                (true, true) => text.later(slot, Task::Recall, content),
                (true, false) => text.later(slot, Task::Forget, content),
            }
        }
    }

    /// Whether two rows of a point would be found by different words.
    pub fn texts_differ(&self, old: PayloadRow<'_>, new: PayloadRow<'_>) -> bool {
        self.text.is_some() && document(old) != document(new)
    }

    /// Takes out the text of a live slot, which no reader may find any more.
    pub fn retract_text(&mut self, slot: Slot, row: PayloadRow<'_>) {
        if let Some(text) = &mut self.text
            && let Some(content) = document(row)
        {
            if is_long(text, content) {
                text.later(slot, Task::Retract, content);
            } else {
                text.remove(slot, content);
            }
        }
    }

    /// Takes a dead slot out that no reader sees; what was never filed (a way-point of an image) is fine. The number of
    /// components, and of bytes of text in place of tokens.
    pub fn remove(&mut self, slot: Slot, row: PayloadRow<'_>) -> usize {
        let mut taken = 0;
        for (number, space) in self.sparse.iter_mut().enumerate().take(row.sparse_spaces()) {
            self.vector.clear();
            self.vector.extend(row.sparse_of(number));
            taken += space.remove(slot, &self.vector);
        }
        for LeavingSpace { number, space, .. } in &mut self.leaving {
            self.vector.clear();
            self.vector.extend(row.sparse_of(*number));
            taken += space.remove(slot, &self.vector);
        }
        if let Some(text) = &mut self.text
            && let Some(content) = document(row)
            && text.remove(slot, content)
        {
            taken += content.len() / BYTES_PER_TOKEN;
        }
        taken
    }

    /// Puts off taking the text of a dead slot that no reader sees out of the lists, if it is long, and returns about how many tokens it has;
    /// `None` when there is nothing to put off. [`Self::take_emptied`] names the slot when that is done.
    pub fn remove_later(&mut self, slot: Slot, row: PayloadRow<'_>) -> Option<usize> {
        let text = self.text.as_mut()?;
        let content = match document(row).filter(|content| is_long(text, content) && text.has_document(slot))
        {
            Some(content) => content,
            // The row has no text any more, and that which it had is still being taken out.
            None if text.waits_for(slot) => "",
            None => return None,
        };
        text.later(slot, Task::Remove, content);
        Some(content.len() / BYTES_PER_TOKEN)
    }

    /// Slots whose long texts were taken out, each once.
    pub fn take_emptied(&mut self) -> Vec<Slot> {
        self.text.as_mut().map_or_else(Vec::new, TextWriter::take_removed)
    }

    /// Does a piece of what was put off with long texts, up to some 100 µs; false when nothing was.
    pub fn step(&mut self) -> bool {
        self.text.as_mut().is_some_and(TextWriter::step)
    }

    /// How many tasks were ever put off, and how many of them are done.
    pub fn progress(&self) -> (u64, u64) {
        self.text.as_ref().map_or((0, 0), TextWriter::progress)
    }

    /// Whether [`Self::step`] has something to do.
    pub fn has_waiting(&self) -> bool {
        self.text.as_ref().is_some_and(TextWriter::has_waiting)
    }

    /// Whether [`Self::take_emptied`] names slots.
    pub fn has_emptied(&self) -> bool {
        self.text.as_ref().is_some_and(TextWriter::has_removed)
    }

    /// Gives back what no reader sees any more.
    pub fn reclaim(&mut self) {
        self.sparse.iter_mut().for_each(SparseSpaceWriter::reclaim);
        self.leaving.retain(LeavingSpace::is_held);
        self.leaving.iter_mut().for_each(|leaving| leaving.space.reclaim());
        if let Some(text) = &mut self.text {
            text.reclaim();
        }
    }
}

/// Texts whose analysis takes longer, in nanoseconds, are filed and taken out in pieces: what is shorter takes less than a millisecond or two.
const LONG_NS: usize = (16 << 10) * 60;

fn is_long(text: &TextWriter, content: &str) -> bool {
    content.len() * text.shared().analyzer().ns_per_byte() > LONG_NS
}

/// A token and what separates it from the next, about.
const BYTES_PER_TOKEN: usize = 6;

/// The text of a row, whether its key has expired or not: the lists hold it until the slot is freed.
fn document(row: PayloadRow<'_>) -> Option<&str> {
    // No deadline lies at or before 0.
    row.content(0)
}
