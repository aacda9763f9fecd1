//! Whether the texts of documents have a phrase.
use crate::pace::{Pace, TooLong};
use crate::text::{Analyzer, Phrase, PhraseSearch};

/// About what a step of a pace stands for, in nanoseconds.
const STEP_NS: usize = 100;
/// Nanoseconds that the analysis of texts may take in one part of a walk, which cannot pause.
const NS_AT_ONCE: usize = 2_000_000;
/// The fixed cost of a text, in bytes that could be analyzed in the same time.
const BYTES_TO_BEGIN: usize = 2;

/// A phrase that texts are searched for.
///
/// A walk through lists asks about each document that could enter the result. Texts are analyzed at once as long as these are few. The other
/// documents are put off, and their texts analyzed in pieces where the walk pauses.
pub(super) struct Phrases<'q> {
    phrase: &'q Phrase,
    analyzer: Analyzer,
    /// Bytes that may be analyzed before the next pause.
    bytes_left: usize,
}

impl<'q> Phrases<'q> {
    pub fn new(phrase: &'q Phrase, analyzer: Analyzer) -> Self {
        Phrases { phrase, analyzer, bytes_left: NS_AT_ONCE / analyzer.ns_per_byte() }
    }

    /// Whether a text has the phrase, or `None` when finding out would take too long for now.
    #[inline]
    pub fn ask(&mut self, text: &str) -> Option<bool> {
        self.bytes_left.checked_sub(text.len() + BYTES_TO_BEGIN)?;
        let mut search = PhraseSearch::default();
        while self.phrase.look(self.analyzer, text, &mut search) {}
        self.bytes_left -= search.bytes() + BYTES_TO_BEGIN;
        Some(search.is_found())
    }

    /// The steps that answers have taken since this was asked last, to be told to the pace.
    pub fn steps_taken(&mut self) -> usize {
        let bytes = NS_AT_ONCE / self.analyzer.ns_per_byte();
        let taken = self.steps(bytes - self.bytes_left);
        self.bytes_left = bytes;
        taken
    }

    /// Whether a text has the phrase, however long that takes.
    ///
    /// # Errors
    /// [`TooLong`].
    pub async fn is_in(&self, text: &str, pace: &mut impl Pace) -> Result<bool, TooLong> {
        let mut search = PhraseSearch::default();
        loop {
            let before = search.bytes();
            let goes_on = self.phrase.look(self.analyzer, text, &mut search);
            pace.step(1 + self.steps(search.bytes() - before)).await?;
            if !goes_on {
                return Ok(search.is_found());
            }
        }
    }

    fn steps(&self, bytes: usize) -> usize {
        bytes * self.analyzer.ns_per_byte() / STEP_NS
    }
}
