//! The sparse lanes and the full-text lane of a collection: inverted lists over the slots that hold its points.
//!
//! All are filed from the payload row alone, so that the log, images and a bulk build carry them without a word: the sparse
//! vectors are a part of the row, the document is its `$content`. A dense collection has one sparse lane, a collection of named spaces has one
//! for each sparse space. They follow a slot as the payload index does: filed before
//! the birth is published, taken out when the slot is freed. Scores of text depend on statistics of all documents, which
//! follow the death at once.
use super::{add, sub};
use crate::memory::Domain;
use crate::payload::PayloadRow;
use crate::slot::Slot;
use crate::sparse::{SparseIndex, SparseWriter};
use crate::text::{Task, TextConfig, TextIndex, TextWriter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What readers search.
pub(super) struct Lanes {
    /// For each sparse space. Made with its first vector: most collections have none, and an empty map of dimensions takes 16 KiB.
    sparse: Box<[OnceLock<Arc<SparseIndex>>]>,
    text: Option<Arc<TextIndex>>,
    /// Sparse vectors of live slots, without those that have expired.
    sparse_live: AtomicU64,
}

/// The owner's handles.
pub(super) struct LaneWriters {
    domain: Arc<Domain>,
    seed: u64,
    sparse: Vec<Option<SparseWriter>>,
    text: Option<TextWriter>,
    vector: Vec<(u32, f32)>,
}

impl LaneWriters {
    /// Empty lanes, as many sparse ones, and one of texts where they are searched; `seed` keys their hashes.
    pub fn new(
        sparse_spaces: usize,
        full_text: Option<TextConfig>,
        domain: Arc<Domain>,
        seed: u64,
    ) -> (LaneWriters, Lanes) {
        let text = full_text.map(|text| TextWriter::new(text, domain.clone(), seed));
        let lanes = Lanes {
            sparse: (0..sparse_spaces).map(|_| OnceLock::new()).collect(),
            text: text.as_ref().map(|text| text.shared().clone()),
            sparse_live: AtomicU64::new(0),
        };
        let sparse = (0..sparse_spaces).map(|_| None).collect();
        (LaneWriters { domain, seed, sparse, text, vector: Vec::new() }, lanes)
    }

    /// Files the row of a live slot that no reader sees yet; the number of components and tokens.
    ///
    /// # Panics
    /// When a sparse vector is none: rows are checked when they are built and when they are read from outside.
    pub fn insert(&mut self, lanes: &Lanes, slot: Slot, row: PayloadRow<'_>) -> usize {
        let mut filed = 0;
        for (space, shared) in lanes.sparse.iter().enumerate().take(row.sparse_spaces()) {
            self.vector.clear();
            self.vector.extend(row.sparse_of(space));
            if self.vector.is_empty() {
                continue;
            }
            let sparse = self.sparse[space].get_or_insert_with(|| {
                let writer = SparseWriter::new(self.domain.clone(), self.seed);
                assert!(shared.set(writer.shared().clone()).is_ok(), "one index for each sparse space");
                writer
            });
            sparse.insert(slot, &self.vector).expect("a sparse vector of a row ascends and is finite");
            add(&lanes.sparse_live, 1);
            filed += self.vector.len();
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
    pub fn forget(&mut self, lanes: &Lanes, slot: Slot, row: PayloadRow<'_>) {
        self.count_vector(lanes, row, false);
        self.count_text(slot, row, false);
    }

    /// The sparse vectors of a row count from now on, or do not any more.
    pub fn count_vector(&mut self, lanes: &Lanes, row: PayloadRow<'_>, counts: bool) {
        for _ in (0..row.sparse_spaces()).filter(|&space| row.sparse_of(space).len() > 0) {
            match counts {
                true => add(&lanes.sparse_live, 1),
                false => sub(&lanes.sparse_live, 1),
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
        for (space, sparse) in self.sparse.iter_mut().enumerate().take(row.sparse_spaces()) {
            let Some(sparse) = sparse.as_mut().filter(|_| row.sparse_of(space).len() > 0) else { continue };
            self.vector.clear();
            self.vector.extend(row.sparse_of(space));
            sparse.remove(slot, &self.vector);
            taken += self.vector.len();
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
        self.sparse.iter_mut().flatten().for_each(SparseWriter::reclaim);
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

impl Lanes {
    /// The index of the sparse space with this number; `None` before its first vector.
    pub fn sparse(&self, space: usize) -> Option<&SparseIndex> {
        self.sparse[space].get().map(Arc::as_ref)
    }

    /// None where texts are not searched.
    pub fn text(&self) -> Option<&TextIndex> {
        self.text.as_deref()
    }

    /// Sparse spaces.
    pub fn sparse_spaces(&self) -> usize {
        self.sparse.len()
    }

    /// Sparse vectors of live points.
    pub fn sparse_vectors(&self) -> u64 {
        self.sparse_live.load(Ordering::Relaxed)
    }

    /// Committed bytes.
    pub fn bytes(&self) -> u64 {
        self.sparse.iter().filter_map(OnceLock::get).map(|sparse| sparse.bytes()).sum::<u64>()
            + self.text.as_ref().map_or(0, |text| text.bytes())
    }
}
