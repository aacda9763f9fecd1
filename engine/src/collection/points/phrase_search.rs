//! Which documents of a search have a phrase in their texts.
use crate::pace::{Pace, TooLong};
use crate::slot::Slot;
use crate::text::{Analyzer, Phrase, PhraseSearch};
use ahash::HashMap;

/// About what a step of a pace stands for, in nanoseconds.
const STEP_NS: usize = 100;
/// What the analysis of texts may take while the lists are walked, which is not left in the middle, in nanoseconds.
const NS_AT_ONCE: usize = 2_000_000;

/// What is known of the texts of documents that have all words of a phrase.
///
/// A walk over the lists asks about each document that could enter the result. Texts are analyzed at once as long as these are few. The other
/// documents are left out for the moment, so that the walk finds all that could enter; their texts are then analyzed in pieces, and the lists
/// are walked again with the answers. Memory: 9 bytes for each document that was asked about, which has all words of the phrase.
pub(super) struct Phrases<'q> {
    phrase: Option<&'q Phrase>,
    analyzer: Analyzer,
    known: HashMap<Slot, bool>,
    open: Vec<Slot>,
    /// Bytes that may be analyzed before the next pause.
    bytes_left: usize,
}

impl<'q> Phrases<'q> {
    /// Knows nothing of any text. Without a phrase every text will do.
    pub fn new(phrase: Option<&'q Phrase>, analyzer: Analyzer) -> Self {
        Phrases {
            phrase,
            analyzer,
            known: HashMap::default(),
            open: Vec::new(),
            bytes_left: NS_AT_ONCE / analyzer.ns_per_byte(),
        }
    }

    /// Whether the text of a slot is known to have the phrase. If that stays open the slot is remembered for [`Self::settle`].
    #[inline]
    pub fn admits<'t>(&mut self, slot: Slot, content: impl FnOnce() -> Option<&'t str>) -> bool {
        let Some(phrase) = self.phrase else { return true };
        if let Some(&known) = self.known.get(&slot) {
            return known;
        }
        let Some(text) = content() else { return false };
        if text.len() > self.bytes_left {
            self.open.push(slot);
            return false;
        }
        let mut search = PhraseSearch::default();
        while phrase.look(self.analyzer, text, &mut search) {}
        self.bytes_left -= search.bytes();
        self.known.insert(slot, search.is_found());
        search.is_found()
    }

    /// Answers what stayed open. Returns whether nothing did.
    ///
    /// # Errors
    /// [`TooLong`].
    pub async fn settle<'t>(
        &mut self,
        content: impl Fn(Slot) -> Option<&'t str>,
        pace: &mut impl Pace,
    ) -> Result<bool, TooLong> {
        let Some(phrase) = self.phrase else { return Ok(true) };
        let ns_per_byte = self.analyzer.ns_per_byte();
        let steps = |bytes: usize| bytes * ns_per_byte / STEP_NS;
        let bytes_at_once = NS_AT_ONCE / ns_per_byte;
        pace.step(steps(bytes_at_once - self.bytes_left)).await?;
        self.bytes_left = bytes_at_once;
        let is_settled = self.open.is_empty();
        for slot in std::mem::take(&mut self.open) {
            let mut search = PhraseSearch::default();
            if let Some(text) = content(slot) {
                loop {
                    let before = search.bytes();
                    let goes_on = phrase.look(self.analyzer, text, &mut search);
                    pace.step(1 + steps(search.bytes() - before)).await?;
                    if !goes_on {
                        break;
                    }
                }
            }
            self.known.insert(slot, search.is_found());
        }
        Ok(is_settled)
    }
}
