//! The sparse and the full-text lane of a collection: inverted lists over the slots that hold its points.
//!
//! Both are filed from the payload row alone, so that the log, images and a bulk build carry them without a word: the sparse
//! vector is a part of the row, the document is its `$content`. They follow a slot as the payload index does: filed before
//! the birth is published, taken out when the slot is freed. Scores of text depend on statistics of all documents, which
//! follow the death at once.
use super::search::View;
use super::writer::{add, sub};
use super::{Dense, Pin, SearchError, Slot};
use crate::collection::DenseConfig;
use crate::filter::lists::look_up;
use crate::filter::planner::{Plan, bit};
use crate::filter::{Allowance, Predicate};
use crate::memory::Domain;
use crate::pace::{Pace, TooLong};
use crate::payload::PayloadRow;
use crate::payload::index::Walk;
use crate::sparse::{LaneHit, LaneScratch, SparseIndex, SparseWriter};
use crate::text::{Task, TextIndex, TextQuery, TextWriter};
use ahash::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What readers search.
pub(super) struct Lanes {
    /// Made with the first sparse vector: most collections have none, and an empty map of dimensions takes 16 KiB.
    sparse: OnceLock<Arc<SparseIndex>>,
    text: Option<Arc<TextIndex>>,
    /// Live slots with a sparse vector, without those that have expired.
    sparse_live: AtomicU64,
}

/// The owner's handles.
pub(super) struct LaneWriters {
    domain: Arc<Domain>,
    seed: u64,
    sparse: Option<SparseWriter>,
    text: Option<TextWriter>,
    vector: Vec<(u32, f32)>,
}

impl LaneWriters {
    /// Empty lanes as configured; `seed` keys their hashes.
    pub fn new(config: &DenseConfig, domain: Arc<Domain>, seed: u64) -> (LaneWriters, Lanes) {
        let text = config.full_text.map(|text| TextWriter::new(text, domain.clone(), seed));
        let lanes = Lanes {
            sparse: OnceLock::new(),
            text: text.as_ref().map(|text| text.shared().clone()),
            sparse_live: AtomicU64::new(0),
        };
        (LaneWriters { domain, seed, sparse: None, text, vector: Vec::new() }, lanes)
    }

    /// Files the row of a live slot that no reader sees yet; the number of components and tokens.
    ///
    /// # Panics
    /// When the sparse vector is none: rows are checked when they are built and when they are read from outside.
    pub fn insert(&mut self, lanes: &Lanes, slot: Slot, row: PayloadRow<'_>) -> usize {
        let mut filed = 0;
        if row.sparse().len() > 0 {
            let sparse = self.sparse.get_or_insert_with(|| {
                let writer = SparseWriter::new(self.domain.clone(), self.seed);
                assert!(lanes.sparse.set(writer.shared().clone()).is_ok(), "one sparse index per collection");
                writer
            });
            self.vector.clear();
            self.vector.extend(row.sparse());
            sparse.insert(slot, &self.vector).expect("the sparse vector of a row ascends and is finite");
            add(&lanes.sparse_live, 1);
            filed += self.vector.len();
        }
        if let Some(text) = &mut self.text
            && let Some(content) = document(row)
        {
            if is_long(content) {
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

    /// The sparse vector of a row counts from now on, or does not any more.
    pub fn count_vector(&mut self, lanes: &Lanes, row: PayloadRow<'_>, counts: bool) {
        if row.sparse().len() > 0 {
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
            match (is_long(content), counts) {
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
            if is_long(content) {
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
        if let Some(sparse) = &mut self.sparse
            && row.sparse().len() > 0
        {
            self.vector.clear();
            self.vector.extend(row.sparse());
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
        let content = match document(row).filter(|content| is_long(content) && text.has_document(slot)) {
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
        if let Some(sparse) = &mut self.sparse {
            sparse.reclaim();
        }
        if let Some(text) = &mut self.text {
            text.reclaim();
        }
    }
}

/// Texts of more bytes are filed and taken out in pieces: what is shorter takes less than a millisecond or two.
const LONG_BYTES: usize = 16 << 10;

fn is_long(content: &str) -> bool {
    content.len() > LONG_BYTES
}

/// A token and what separates it from the next, about.
const BYTES_PER_TOKEN: usize = 6;

/// The text of a row, whether its key has expired or not: the lists hold it until the slot is freed.
fn document(row: PayloadRow<'_>) -> Option<&str> {
    // No deadline lies at or before 0.
    row.content(0)
}

impl Lanes {
    /// Live points with a sparse vector.
    pub fn sparse_vectors(&self) -> u64 {
        self.sparse_live.load(Ordering::Relaxed)
    }

    /// Committed bytes.
    pub fn bytes(&self) -> u64 {
        self.sparse.get().map_or(0, |sparse| sparse.bytes())
            + self.text.as_ref().map_or(0, |text| text.bytes())
    }
}

/// What a lane may ask the filter in one go, in nanoseconds: a search of a lane is not left in the middle. A slot whose question stays
/// open is admitted for now, and the lane is searched again once it is answered.
const LANE_ALLOWANCE_NS: u64 = 2_000_000;
/// How often, before all slots that may match are asked.
const LANE_ROUNDS: usize = 4;
/// Slots asked between two calls of the pace.
const ASKED_AT_ONCE: Slot = 256;

/// What a lane knows of the filter.
struct Asked {
    allowance: Allowance,
    known: HashMap<Slot, bool>,
    open: Vec<Slot>,
    rounds: usize,
    /// All slots that match, one bit each, when that was the shorter way.
    all: Option<Vec<u64>>,
}

impl Default for Asked {
    fn default() -> Asked {
        Asked {
            allowance: Allowance::of(LANE_ALLOWANCE_NS),
            known: HashMap::default(),
            open: Vec::new(),
            rounds: 0,
            all: None,
        }
    }
}

impl Asked {
    #[inline]
    fn matches(&mut self, view: &mut View<'_>, slot: Slot) -> bool {
        if self.rounds > 0 {
            if let Some(all) = &self.all {
                return bit(all, slot);
            }
            if let Some(&known) = self.known.get(&slot) {
                return known;
            }
        }
        let answer = view.ask(slot, &self.allowance);
        if answer.is_none() {
            self.open.push(slot);
        }
        answer.unwrap_or(true)
    }

    /// Answers what stayed open; true when nothing did, and the lane has been searched.
    async fn settle(
        &mut self,
        dense: &Dense,
        view: &mut View<'_>,
        mut named: Named<'_>,
        pace: &mut impl Pace,
    ) -> Result<bool, TooLong> {
        pace.step(self.allowance.renew(LANE_ALLOWANCE_NS)).await?;
        if self.open.is_empty() {
            return Ok(true);
        }
        self.rounds += 1;
        for slot in std::mem::take(&mut self.open) {
            self.known.insert(slot, view.settle(slot, pace).await?);
        }
        if self.rounds == LANE_ROUNDS {
            let slots = dense.slots.load(Ordering::Acquire) as Slot;
            let mut all = vec![0; (slots as usize).div_ceil(64)];
            let mut take = |slot: Slot| all[slot as usize / 64] |= 1 << (slot % 64);
            for slot in 0..slots {
                if slot % ASKED_AT_ONCE == ASKED_AT_ONCE - 1 || view.is_spent() {
                    pace.step(ASKED_AT_ONCE as usize / 4 + view.steps_taken()).await?;
                    view.settle_open(pace, &mut take).await?;
                }
                let is_named = match &mut named {
                    Named::Slots { walk, .. } => walk.seek(slot) == Some(slot),
                    Named::None => false,
                    Named::Any => true,
                };
                if is_named && view.visible(slot) {
                    match self.known.get(&slot) {
                        Some(false) => {}
                        Some(true) => take(slot),
                        None if view.matches(slot) => take(slot),
                        None => {}
                    }
                }
            }
            view.settle_open(pace, take).await?;
            self.all = Some(all);
        }
        Ok(false)
    }
}

/// The slots a filter may admit, as the payload index knows them.
enum Named<'p> {
    None,
    /// These; `exact`: all of them match.
    Slots {
        walk: Walk<'p>,
        exact: bool,
    },
    /// Not narrowed down: the predicate is asked.
    Any,
}

impl Dense {
    /// Any core. Replaces `out` with the `k` visible points that match and have the greatest dot product with `query`
    /// (dimension, value), best first, ties by id. Exact; a point that shares a dimension is a hit whatever its score.
    ///
    /// Cost: 1 to 3 ns per posting of the query's dimensions that has to be looked at; a filter is asked of those that could
    /// enter the result, or looked up in the payload index before if that names the points that match.
    ///
    /// The pace counts looking up long lists of the filter.
    ///
    /// # Errors
    /// Dimensions that do not ascend strictly, values that are not finite; [`SearchError::TooLong`].
    #[allow(clippy::too_many_arguments)] // Two of them are buffers; a struct would only rename the list.
    pub async fn search_sparse(
        &self,
        pin: &Pin<'_>,
        query: &[(u32, f32)],
        k: usize,
        filter: Option<&Predicate>,
        now_ms: u64,
        pace: &mut impl Pace,
        scratch: &mut LaneScratch,
        out: &mut Vec<LaneHit>,
    ) -> Result<(), SearchError> {
        out.clear();
        crate::sparse::check_sparse(query)?;
        // The snapshot first: what it includes is filed, and the index is there.
        let mut view = self.view_at(filter, now_ms);
        let Some(sparse) = self.lanes.sparse.get() else {
            scratch.clear_stats();
            return Ok(());
        };
        let mut asked = Asked::default();
        loop {
            let mut named = self.named(pin, &view, pace).await?;
            let admit = |slot| self.lane_admits(&mut view, &mut named, &mut asked, slot);
            sparse.search(pin, query, k, admit, |slot| self.meta.id(slot), scratch, out)?;
            if asked.settle(self, &mut view, named, pace).await? {
                break;
            }
        }
        self.count_rejects(&view);
        Ok(())
    }

    /// Any core. Replaces `out` with the `k` visible points that match and whose `$content` scores best for `query` (BM25, see
    /// [`crate::text`]), best first, ties by id. Exact, with the statistics of all live documents at this moment.
    ///
    /// Cost: as [`Self::search_sparse`].
    ///
    /// # Errors
    /// [`SearchError::TextDisabled`], [`SearchError::TooLong`].
    #[allow(clippy::too_many_arguments)] // As above.
    pub async fn search_text(
        &self,
        pin: &Pin<'_>,
        query: &TextQuery,
        k: usize,
        filter: Option<&Predicate>,
        now_ms: u64,
        pace: &mut impl Pace,
        scratch: &mut LaneScratch,
        out: &mut Vec<LaneHit>,
    ) -> Result<(), SearchError> {
        out.clear();
        let text = self.lanes.text.as_ref().ok_or(SearchError::TextDisabled)?;
        let mut view = self.view_at(filter, now_ms);
        let mut asked = Asked::default();
        loop {
            let mut named = self.named(pin, &view, pace).await?;
            let admit = |slot| {
                self.lane_admits(&mut view, &mut named, &mut asked, slot) && {
                    // SAFETY: found visible under this pin, so not freed meanwhile.
                    let row = PayloadRow::trusted(unsafe { self.meta.row(slot) });
                    // After the row was read: one that was replaced says for itself whether it has a text.
                    let replaced = view.was_replaced();
                    // A text that has expired is gone for searches at once; its postings go with the sweep.
                    (row.next_deadline().is_none_or(|deadline| deadline > now_ms) && !replaced)
                        || row.content(now_ms).is_some()
                }
            };
            text.search(pin, query, None, k, admit, |slot| self.meta.id(slot), scratch, out);
            if asked.settle(self, &mut view, named, pace).await? {
                break;
            }
        }
        self.count_rejects(&view);
        Ok(())
    }

    /// Whether the collection has a full-text lane.
    pub fn has_text(&self) -> bool {
        self.lanes.text.is_some()
    }

    async fn named<'p>(
        &'p self,
        pin: &'p Pin<'_>,
        view: &View<'_>,
        pace: &mut impl Pace,
    ) -> Result<Named<'p>, TooLong> {
        let Some(filter) = view.filter else { return Ok(Named::Any) };
        let situation = self.situation(0, true);
        let lists = look_up(filter, self.index.view(pin), &situation, pace).await?;
        Ok(match self.planned(filter, pin, &lists, &situation, view).0 {
            Plan::Nothing => Named::None,
            Plan::Points { walk, exact } => Named::Slots { walk, exact },
            Plan::Graph(_) | Plan::Everything => Named::Any,
        })
    }

    /// Slots come in ascending order, so the walk over those named goes along.
    fn lane_admits(&self, view: &mut View<'_>, named: &mut Named<'_>, asked: &mut Asked, slot: Slot) -> bool {
        let exact = match named {
            Named::None => return false,
            Named::Slots { walk, exact } => {
                if walk.seek(slot) != Some(slot) {
                    view.filter_rejects += 1;
                    return false;
                }
                *exact
            }
            Named::Any => false,
        };
        view.visible(slot) && ((exact && !view.was_replaced()) || asked.matches(view, slot))
    }

    fn count_rejects(&self, view: &View<'_>) {
        if view.filter_rejects > 0 {
            self.counters.filter_rejects.fetch_add(view.filter_rejects, Ordering::Relaxed);
        }
    }
}
