//! The terms of a document, taken at once or in pieces.

use super::analyzer::{Analyzer, Progress};
use ahash::RandomState;
use std::ops::Range;

/// Buckets of the terms of a [`LongDocument`]: one for so many bytes of its text, which are some ten tokens.
const BYTES_PER_BUCKET: usize = 64;
/// And at most so many: with the most tokens that a document may have, all different, 16 terms in each.
const BUCKETS_MAX: usize = 1 << 16;

/// The distinct terms of a document that is analyzed a piece at a time. Memory: its text, and what [`Self::terms_bytes`] says.
pub(super) struct LongDocument {
    text: Box<str>,
    analyzer: Analyzer,
    progress: Progress,
    /// Terms so far, repeated ones each time.
    length: u32,
    /// Distinct terms so far.
    distinct: usize,
    /// All distinct terms, one after the other.
    buffer: String,
    /// Where each lies in the buffer, and how often it came, by the hash of the term.
    buckets: Vec<Vec<LongTerm>>,
    hasher: RandomState,
}

struct LongTerm {
    from: u32,
    bytes: u32,
    frequency: u32,
}

impl LongDocument {
    /// A copy of `text`, which is analyzed by [`Self::analyze_some`]. The hasher is keyed, so that nobody can choose terms for one bucket.
    pub fn new(text: &str, analyzer: Analyzer, hasher: RandomState) -> LongDocument {
        let buckets = (text.len() / BYTES_PER_BUCKET).clamp(1, BUCKETS_MAX);
        LongDocument {
            text: text.into(),
            analyzer,
            progress: Progress::default(),
            length: 0,
            distinct: 0,
            buffer: String::new(),
            buckets: std::iter::repeat_with(Vec::new).take(buckets).collect(),
            hasher,
        }
    }

    /// Bytes of the text.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Bytes of its terms so far: of their texts, and of where each lies.
    pub fn terms_bytes(&self) -> usize {
        self.buffer.capacity() + self.distinct * size_of::<LongTerm>()
    }

    /// Analyzes up to `tokens` more tokens; false once there are no more. About 300 ns per token, or what it takes to pass over as many
    /// bytes as the tokens could have.
    pub fn analyze_some(&mut self, tokens: usize) -> bool {
        let LongDocument { text, analyzer, progress, length, distinct, buffer, buckets, hasher } = self;
        analyzer.analyze_some(text, progress, tokens, |_, term| {
            *length += 1;
            let bucket = (hasher.hash_one(term) >> 32) as usize % buckets.len();
            let bucket = &mut buckets[bucket];
            let same = |known: &&mut LongTerm| &buffer[known.range()] == term;
            match bucket.iter_mut().find(same) {
                Some(known) => known.frequency += 1,
                None => {
                    let (from, bytes) = (buffer.len() as u32, term.len() as u32);
                    bucket.push(LongTerm { from, bytes, frequency: 1 });
                    buffer.push_str(term);
                    *distinct += 1;
                }
            }
        })
    }

    /// How many terms the document has, repeated ones each time, once it is analyzed.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// The distinct terms of a bucket with their frequencies; `None` after the last bucket.
    pub fn terms(&self, bucket: usize) -> Option<impl ExactSizeIterator<Item = (&str, u32)>> {
        let terms = self.buckets.get(bucket)?;
        Some(terms.iter().map(|term| (&self.buffer[term.range()], term.frequency)))
    }
}

impl LongTerm {
    fn range(&self) -> Range<usize> {
        self.from as usize..(self.from + self.bytes) as usize
    }
}

/// The distinct terms of a document with their frequencies. A buffer: filled again and again.
#[derive(Default)]
pub(super) struct DocumentTerms {
    /// All terms, one after the other.
    buffer: String,
    /// Their ranges; sorted by term once filled.
    spans: Vec<(usize, usize)>,
}

impl DocumentTerms {
    /// Replaces the content by the terms of `text`; returns how many there are, repeated ones each time.
    pub fn fill(&mut self, analyzer: Analyzer, text: &str) -> u32 {
        self.buffer.clear();
        self.spans.clear();
        let DocumentTerms { buffer, spans } = self;
        analyzer.analyze(text, |_, term| {
            spans.push((buffer.len(), buffer.len() + term.len()));
            buffer.push_str(term);
        });
        spans.sort_unstable_by_key(|&(from, to)| &buffer[from..to]);
        spans.len() as u32
    }

    /// Distinct terms in ascending order, each with its frequency.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        let term = |&(from, to): &(usize, usize)| &self.buffer[from..to];
        let same = move |a: &(usize, usize), b: &(usize, usize)| term(a) == term(b);
        self.spans.chunk_by(same).map(move |run| (term(&run[0]), run.len() as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::MAX_TOKENS;

    #[test]
    fn a_document_has_its_terms_with_frequencies() {
        let mut document = DocumentTerms::default();
        assert_eq!(document.fill(Analyzer::English, "cats and a cat; the dog saw cats"), 5);
        let found: Vec<(&str, u32)> = document.iter().collect();
        assert_eq!(found, [("cat", 3), ("dog", 1), ("saw", 1)]);
        assert_eq!(document.fill(Analyzer::English, "of the"), 0);
        assert_eq!(document.iter().count(), 0);
    }

    #[test]
    fn tokens_beyond_the_bound_are_left_out() {
        let mut document = DocumentTerms::default();
        let text = "ab ".repeat(MAX_TOKENS + 5);
        assert_eq!(document.fill(Analyzer::English, &text), MAX_TOKENS as u32);
    }

    #[test]
    fn long_words_are_passed_over_in_pieces() {
        let word = "x".repeat(50_000);
        let mut long =
            LongDocument::new(&format!("{word} {word}y"), Analyzer::English, RandomState::with_seed(1));
        let mut pieces = 1;
        while long.analyze_some(100) {
            pieces += 1;
        }
        assert_eq!((long.length(), pieces > 50), (2, true));
        assert_eq!(
            long.terms(0).into_iter().flatten().count()
                + (1..).map_while(|n| long.terms(n)).flatten().count(),
            1
        );
        // Only the first tokens count, in pieces as well.
        let many = "ab ".repeat(MAX_TOKENS + 5);
        let mut long = LongDocument::new(&many, Analyzer::English, RandomState::with_seed(1));
        while long.analyze_some(10_000) {}
        assert_eq!(long.length() as usize, MAX_TOKENS);
    }
}
