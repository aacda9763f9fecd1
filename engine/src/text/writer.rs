//! The owner's side of a text index.

use super::dictionary::Dictionary;
use super::scorer::Frontier;
use super::terms::{DocumentTerms, LongDocument};
use super::{FORGOTTEN, Lengths, TextConfig, TextIndex};
use crate::memory::Domain;
use crate::postings::{LaneCounters, Lists, ListsWriter};
use crate::slot::Slot;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The only handle that changes anything. `Send`, one per index.
pub struct TextWriter {
    shared: Arc<TextIndex>,
    lists: ListsWriter<Frontier>,
    terms: DocumentTerms,
    /// Slots ever used.
    slots: usize,
    /// Tasks that were put off, in order.
    waiting: VecDeque<Waiting>,
    /// How many tasks were ever put off.
    put_off: u64,
    /// Slots whose [`Task::Remove`] is done and was not told yet.
    removed: Vec<Slot>,
}

/// Bytes of texts that may wait; with more, tasks are done at once.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// What the tokens take that are analyzed in one step, in nanoseconds.
const ANALYSIS_NS_PER_STEP: usize = 90_000;
/// Terms filed or taken out in one step, some 300 ns each.
const TERMS_PER_STEP: usize = 300;

/// What [`TextWriter::later`] may do with the document of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// [`TextWriter::insert`].
    Insert,
    /// [`TextWriter::forget`].
    Forget,
    /// [`TextWriter::recall`].
    Recall,
    /// [`TextWriter::remove`], of a slot that stays in use.
    Retract,
    /// [`TextWriter::remove`], of a slot that is named by [`TextWriter::take_removed`] afterwards.
    Remove,
}

struct Waiting {
    slot: Slot,
    task: Task,
    document: LongDocument,
    state: TaskState,
}

/// How far a task has come.
enum TaskState {
    Queued,
    Analyzing,
    /// The next bucket of terms, and whether the document counted when the task began.
    Filing {
        bucket: usize,
        counted: bool,
    },
}

impl TextWriter {
    /// An empty index for the readers of `domain`; `seed` keys the hash of terms.
    pub fn new(config: TextConfig, domain: Arc<Domain>, seed: u64) -> TextWriter {
        Self::with_hash_bits(config, domain, seed, u64::MAX)
    }

    /// With only the `mask` bits of hashes, so that tests see terms collide.
    pub(super) fn with_hash_bits(
        config: TextConfig,
        domain: Arc<Domain>,
        seed: u64,
        mask: u64,
    ) -> TextWriter {
        let lists = Arc::new(Lists::new());
        let shared = Arc::new(TextIndex {
            config: config.effective(),
            dictionary: Dictionary::new(domain.clone(), seed, mask),
            lists: lists.clone(),
            lengths: Lengths::new(),
            docs: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            waiting_bytes: AtomicU64::new(0),
            terms_bytes: AtomicU64::new(0),
            counters: LaneCounters::default(),
        });
        TextWriter {
            shared,
            lists: ListsWriter::new(lists, domain),
            terms: DocumentTerms::default(),
            slots: 0,
            waiting: VecDeque::new(),
            put_off: 0,
            removed: Vec::new(),
        }
    }

    /// What readers hold.
    pub fn shared(&self) -> &Arc<TextIndex> {
        &self.shared
    }

    /// Indexes `text` as the document of `slot` and returns its length in kept tokens; without any there is no document.
    /// It counts in the statistics at once, and is found by whoever admits the slot. About 300 ns per token.
    ///
    /// # Panics
    /// When the slot still has a document: one of another life would be found under it.
    pub fn insert(&mut self, slot: Slot, text: &str) -> u32 {
        let length = self.terms.fill(self.shared.config.analyzer, text);
        if length == 0 {
            return 0;
        }
        self.begin_document(slot, length);
        for (term, frequency) in self.terms.iter() {
            file(&self.shared, &mut self.lists, slot, term, frequency);
        }
        self.seal();
        length
    }

    /// The document of `slot`, whose text was `text`, no longer counts: `n`, the average length and each term's `df` are
    /// what they would be without it. Readers whose snapshot includes it still find it. False when there is none or
    /// it has been forgotten before.
    pub fn forget(&mut self, slot: Slot, text: &str) -> bool {
        if !self.begin_forgetting(slot) {
            return false;
        }
        self.terms.fill(self.shared.config.analyzer, text);
        self.terms.iter().for_each(|(term, _)| count(&self.shared, term, false));
        true
    }

    /// The document of `slot`, whose text was `text`, counts again after [`Self::forget`]. False when there is none or it counts.
    pub fn recall(&mut self, slot: Slot, text: &str) -> bool {
        if !self.begin_recalling(slot) {
            return false;
        }
        self.terms.fill(self.shared.config.analyzer, text);
        self.terms.iter().for_each(|(term, _)| count(&self.shared, term, true));
        true
    }

    /// Takes the document of `slot`, whose text was `text`, out of the lists, and out of the statistics if it still
    /// counts. False when there is none. About 300 ns per token.
    pub fn remove(&mut self, slot: Slot, text: &str) -> bool {
        if self.length(slot) == 0 {
            return false;
        }
        let counted = self.begin_forgetting(slot);
        self.terms.fill(self.shared.config.analyzer, text);
        for (term, _) in self.terms.iter() {
            take_out(&self.shared, &mut self.lists, slot, term, counted);
        }
        self.end_document(slot);
        true
    }

    /// Notes the length of a new document and makes it count. Its terms are filed afterwards.
    fn begin_document(&mut self, slot: Slot, length: u32) {
        let shared = &self.shared;
        shared.lengths.rows.make(slot);
        self.slots = self.slots.max(slot as usize + 1);
        let cell = &shared.lengths.rows.cells(slot)[0];
        assert_eq!(cell.load(Ordering::Relaxed), 0, "slot {slot} still has a document");
        cell.store(length, Ordering::Relaxed);
        change(&shared.docs, 1);
        change(&shared.tokens, i64::from(length));
    }

    /// Makes the document count no longer. Its terms are to be told afterwards. False when there is none that counts.
    fn begin_forgetting(&mut self, slot: Slot) -> bool {
        let length = self.length(slot);
        if length == 0 || length & FORGOTTEN != 0 {
            return false;
        }
        let shared = &self.shared;
        shared.lengths.rows.cells(slot)[0].store(length | FORGOTTEN, Ordering::Relaxed);
        change(&shared.docs, -1);
        change(&shared.tokens, -i64::from(length));
        true
    }

    /// Makes the document count again. Its terms are to be told afterwards. False when there is none that was forgotten.
    fn begin_recalling(&mut self, slot: Slot) -> bool {
        let length = self.length(slot);
        if length & FORGOTTEN == 0 {
            return false;
        }
        let (shared, length) = (&self.shared, length & !FORGOTTEN);
        shared.lengths.rows.cells(slot)[0].store(length, Ordering::Relaxed);
        change(&shared.docs, 1);
        change(&shared.tokens, i64::from(length));
        true
    }

    /// Ends a document whose terms were taken out.
    fn end_document(&mut self, slot: Slot) {
        self.shared.lengths.rows.cells(slot)[0].store(0, Ordering::Relaxed);
        self.seal();
    }

    /// Puts a task off, to be done a piece at a time by [`Self::step`], after those before it. `text` is the document of the slot; the copy that
    /// is made of it outlives the row.
    ///
    /// When copies of more than 64 MiB wait, tasks are done in this call until there is room, however long that takes.
    pub fn later(&mut self, slot: Slot, task: Task, text: &str) {
        if matches!(task, Task::Forget | Task::Recall) && !self.is_due(slot, task) && !self.waits_for(slot) {
            return;
        }
        while self.waiting_bytes() > 0 && self.waiting_bytes() + text.len() > WAITING_BYTES_MAX {
            self.step();
        }
        change(&self.shared.waiting_bytes, text.len() as i64);
        self.put_off += 1;
        let (analyzer, hasher) = (self.shared.analyzer(), self.shared.dictionary.hasher().clone());
        let document = LongDocument::new(text, analyzer, hasher);
        self.waiting.push_back(Waiting { slot, task, document, state: TaskState::Queued });
    }

    /// Bytes of the texts of tasks that were put off.
    fn waiting_bytes(&self) -> usize {
        self.shared.waiting_bytes.load(Ordering::Relaxed) as usize
    }

    /// Does a piece of the tasks that were put off, up to some 100 µs; false when there are none.
    pub fn step(&mut self) -> bool {
        let Some(mut work) = self.waiting.pop_front() else { return false };
        let is_left = self.advance(&mut work);
        let terms_bytes = if is_left { work.document.terms_bytes() } else { 0 };
        self.shared.terms_bytes.store(terms_bytes as u64, Ordering::Relaxed);
        // What a piece has left behind is not to add up: it is given back in pieces as well.
        self.seal();
        if is_left {
            self.waiting.push_front(work);
        } else {
            change(&self.shared.waiting_bytes, -(work.document.bytes() as i64));
            if work.task == Task::Remove {
                self.removed.push(work.slot);
            }
        }
        true
    }

    /// Whether tasks are put off.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How many tasks were ever put off, and how many of them are done.
    pub fn progress(&self) -> (u64, u64) {
        (self.put_off, self.put_off - self.waiting.len() as u64)
    }

    /// Whether a slot has a document, or may have one after the tasks that were put off.
    pub fn has_document(&self, slot: Slot) -> bool {
        self.length(slot) != 0 || self.waits_for(slot)
    }

    /// Whether a task is put off for a slot.
    pub fn waits_for(&self, slot: Slot) -> bool {
        self.waiting.iter().any(|work| work.slot == slot)
    }

    /// Whether [`Self::take_removed`] has something to tell.
    pub fn has_removed(&self) -> bool {
        !self.removed.is_empty()
    }

    /// The slots whose [`Task::Remove`] has been done since the last call.
    pub fn take_removed(&mut self) -> Vec<Slot> {
        std::mem::take(&mut self.removed)
    }

    /// Whether a task would change something now.
    fn is_due(&self, slot: Slot, task: Task) -> bool {
        let length = self.length(slot);
        match task {
            Task::Insert => true,
            Task::Forget => length != 0 && length & FORGOTTEN == 0,
            Task::Recall => length & FORGOTTEN != 0,
            Task::Retract | Task::Remove => length != 0,
        }
    }

    /// A piece of a task; false when it is done.
    fn advance(&mut self, work: &mut Waiting) -> bool {
        let Waiting { slot, task, document, state } = work;
        let slot = *slot;
        match state {
            TaskState::Queued => {
                *state = TaskState::Analyzing;
                self.is_due(slot, *task)
            }
            TaskState::Analyzing => {
                if document.analyze_some(ANALYSIS_NS_PER_STEP / self.shared.analyzer().ns_per_token()) {
                    return true;
                }
                let counted = match task {
                    Task::Insert if document.length() == 0 => return false,
                    Task::Insert => {
                        self.begin_document(slot, document.length());
                        true
                    }
                    Task::Recall => self.begin_recalling(slot),
                    Task::Forget | Task::Retract | Task::Remove => self.begin_forgetting(slot),
                };
                *state = TaskState::Filing { bucket: 0, counted };
                true
            }
            TaskState::Filing { bucket, counted } => {
                let mut terms_left = TERMS_PER_STEP;
                while let Some(terms) = document.terms(*bucket) {
                    // An empty bucket costs something, too.
                    let most = terms.len().max(1);
                    if most > terms_left && terms_left < TERMS_PER_STEP {
                        return true;
                    }
                    terms_left = terms_left.saturating_sub(most);
                    for (term, frequency) in terms {
                        match task {
                            Task::Insert => file(&self.shared, &mut self.lists, slot, term, frequency),
                            Task::Forget => count(&self.shared, term, false),
                            Task::Recall => count(&self.shared, term, true),
                            Task::Retract | Task::Remove => {
                                take_out(&self.shared, &mut self.lists, slot, term, *counted);
                            }
                        }
                    }
                    *bucket += 1;
                }
                if let Task::Retract | Task::Remove = task {
                    self.end_document(slot);
                }
                false
            }
        }
    }

    /// Takes back what no reader can see any more. Writes do so by themselves, a few at a time; call it when they rest.
    pub fn reclaim(&mut self) {
        self.shared.dictionary.reclaim();
        let bytes = self.own_bytes();
        self.lists.reclaim(bytes);
    }

    fn seal(&mut self) {
        let bytes = self.own_bytes();
        self.lists.seal(bytes);
    }

    fn own_bytes(&self) -> usize {
        self.shared.dictionary.bytes(self.lists.lists_used()) + self.shared.lengths.rows.bytes(self.slots)
    }

    fn length(&self, slot: Slot) -> u32 {
        // Slots that never had a document may lie in a chunk that was never made.
        self.shared.lengths.rows.get(slot).map_or(0, |cells| cells[0].load(Ordering::Relaxed))
    }
}

/// Files one term of a document whose length is noted.
fn file(shared: &TextIndex, writer: &mut ListsWriter<Frontier>, slot: Slot, term: &str, frequency: u32) {
    let lists = &shared.lists;
    let list = match shared.dictionary.find_owned(lists, term) {
        (_, Some(list)) => list,
        (key, None) => shared.dictionary.insert(writer, lists, key, term),
    };
    writer
        .insert(list, slot, frequency, &|slot, frequency| Frontier::of(frequency, shared.lengths.get(slot)));
    lists.set_counts(list, lists.postings(list), lists.counted(list) + 1);
}

/// Makes a document that has the term count among those with the term, or not any more.
fn count(shared: &TextIndex, term: &str, counts: bool) {
    if let (_, Some(list)) = shared.dictionary.find_owned(&shared.lists, term) {
        let counted = shared.lists.counted(list);
        debug_assert!(counts || counted > 0, "{term} counts for no document");
        let counted = if counts { counted + 1 } else { counted.saturating_sub(1) };
        shared.lists.set_counts(list, shared.lists.postings(list), counted);
    }
}

/// Takes a document out of the list of a term, and out of the number of those with it if it is `counted` there.
fn take_out(shared: &TextIndex, writer: &mut ListsWriter<Frontier>, slot: Slot, term: &str, counted: bool) {
    if counted {
        count(shared, term, false);
    }
    let (key, list) = shared.dictionary.find_owned(&shared.lists, term);
    let summarize = |slot, frequency| Frontier::of(frequency, shared.lengths.get(slot));
    let removed = list.is_some_and(|list| writer.remove(list, slot, &summarize));
    debug_assert!(removed, "slot {slot} has no posting of {term}");
    if let Some(list) = list
        && shared.lists.postings(list) == 0
    {
        shared.dictionary.remove(writer, key, list);
    }
}

/// One writer: plain load and store.
fn change(gauge: &AtomicU64, by: i64) {
    gauge.store(gauge.load(Ordering::Relaxed).wrapping_add_signed(by), Ordering::Relaxed);
}
