//! The owner's side of a text index.

use super::analyzer::DocumentTerms;
use super::dictionary::Dictionary;
use super::scorer::Frontier;
use super::{FORGOTTEN, Lengths, TextConfig, TextIndex};
use crate::index::Slot;
use crate::memory::Domain;
use crate::postings::{LaneCounters, Lists, ListsWriter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The only handle that changes anything. `Send`, one per index.
pub struct TextWriter {
    shared: Arc<TextIndex>,
    lists: ListsWriter<Frontier>,
    terms: DocumentTerms,
    /// Slots ever used.
    slots: usize,
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
            counters: LaneCounters::default(),
        });
        TextWriter {
            shared,
            lists: ListsWriter::new(lists, domain),
            terms: DocumentTerms::default(),
            slots: 0,
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
        let length = self.terms.fill(text);
        if length == 0 {
            return 0;
        }
        let shared = self.shared.clone();
        shared.lengths.rows.make(slot);
        self.slots = self.slots.max(slot as usize + 1);
        let cell = &shared.lengths.rows.cells(slot)[0];
        assert_eq!(cell.load(Ordering::Relaxed), 0, "slot {slot} still has a document");
        cell.store(length, Ordering::Relaxed);
        let summarize = |slot, frequency| Frontier::of(frequency, shared.lengths.get(slot));
        for (term, frequency) in self.terms.iter() {
            let list = match shared.dictionary.find_owned(&shared.lists, term) {
                (_, Some(list)) => list,
                (key, None) => shared.dictionary.insert(&mut self.lists, &shared.lists, key, term),
            };
            self.lists.insert(list, slot, frequency, &summarize);
            let lists = &shared.lists;
            lists.set_counts(list, lists.postings(list), lists.counted(list) + 1);
        }
        change(&shared.docs, 1);
        change(&shared.tokens, i64::from(length));
        self.seal();
        length
    }

    /// The document of `slot`, whose text was `text`, no longer counts: `n`, the average length and each term's `df` are
    /// what they would be without it. Readers whose snapshot includes it still find it. False when there is none or
    /// it has been forgotten before.
    pub fn forget(&mut self, slot: Slot, text: &str) -> bool {
        let length = self.length(slot);
        if length == 0 || length & FORGOTTEN != 0 {
            return false;
        }
        self.terms.fill(text);
        self.forget_terms(slot, length);
        true
    }

    /// The document of `slot`, whose text was `text`, counts again after [`Self::forget`]. False when there is none or it counts.
    pub fn recall(&mut self, slot: Slot, text: &str) -> bool {
        let length = self.length(slot);
        if length & FORGOTTEN == 0 {
            return false;
        }
        self.terms.fill(text);
        let (shared, length) = (&self.shared, length & !FORGOTTEN);
        shared.lengths.rows.cells(slot)[0].store(length, Ordering::Relaxed);
        for (term, _) in self.terms.iter() {
            if let (_, Some(list)) = shared.dictionary.find_owned(&shared.lists, term) {
                let counted = shared.lists.counted(list);
                shared.lists.set_counts(list, shared.lists.postings(list), counted + 1);
            }
        }
        change(&shared.docs, 1);
        change(&shared.tokens, i64::from(length));
        true
    }

    fn forget_terms(&mut self, slot: Slot, length: u32) {
        let shared = &self.shared;
        shared.lengths.rows.cells(slot)[0].store(length | FORGOTTEN, Ordering::Relaxed);
        for (term, _) in self.terms.iter() {
            if let (_, Some(list)) = shared.dictionary.find_owned(&shared.lists, term) {
                let counted = shared.lists.counted(list);
                debug_assert!(counted > 0, "{term} counts for no document");
                shared.lists.set_counts(list, shared.lists.postings(list), counted.saturating_sub(1));
            }
        }
        change(&shared.docs, -1);
        change(&shared.tokens, -i64::from(length));
    }

    /// Takes the document of `slot`, whose text was `text`, out of the lists, and out of the statistics if it still
    /// counts. False when there is none. About 300 ns per token.
    pub fn remove(&mut self, slot: Slot, text: &str) -> bool {
        let length = self.length(slot);
        if length == 0 {
            return false;
        }
        self.terms.fill(text);
        if length & FORGOTTEN == 0 {
            self.forget_terms(slot, length);
        }
        let shared = self.shared.clone();
        let summarize = |slot, frequency| Frontier::of(frequency, shared.lengths.get(slot));
        for (term, _) in self.terms.iter() {
            let (key, list) = shared.dictionary.find_owned(&shared.lists, term);
            let removed = list.is_some_and(|list| self.lists.remove(list, slot, &summarize));
            debug_assert!(removed, "slot {slot} has no posting of {term}");
            if let Some(list) = list
                && shared.lists.postings(list) == 0
            {
                shared.dictionary.remove(&mut self.lists, key, list);
            }
        }
        shared.lengths.rows.cells(slot)[0].store(0, Ordering::Relaxed);
        self.seal();
        true
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

/// One writer: plain load and store.
fn change(gauge: &AtomicU64, by: i64) {
    gauge.store(gauge.load(Ordering::Relaxed).wrapping_add_signed(by), Ordering::Relaxed);
}
