//! From text to terms: tokens, without stop words, stemmed.

use super::stop_words::is_stop_word;
use crate::payload::words::{is_token_char, lowered, words};
use ahash::RandomState;
use rust_stemmers::{Algorithm, Stemmer};
use std::collections::HashSet;
use std::ops::Range;

/// Tokens of a document that are looked at, stop words included; what comes after is not indexed.
pub const MAX_TOKENS: usize = 1 << 20;

/// Bytes of a word that are looked at: words that differ only behind them are one term.
pub const WORD_MAX_BYTES: usize = 4096;

/// Words of so few bytes are no stems of anything.
const UNSTEMMED_BYTES: usize = 2;

/// The English analyzer, which is the only one: maximal runs of Unicode letters and decimal digits, lower-cased per
/// character; without the stop words of the Snowball list and the pieces its contractions fall into; stemmed by Porter2
/// (Porter, Boulton: the English stemmer of Snowball). Accents are kept. Of a word the first [`WORD_MAX_BYTES`] count.
///
/// Calls `visit` with each term in order; about 200 ns per token, most of it stemming.
fn analyze(text: &str, visit: impl FnMut(&str)) {
    analyze_tokens(words(text).take(MAX_TOKENS), visit);
}

fn analyze_tokens<'t>(tokens: impl Iterator<Item = &'t str>, mut visit: impl FnMut(&str)) {
    let stemmer = Stemmer::create(Algorithm::English);
    let mut word = String::new();
    for token in tokens {
        word.clear();
        word.extend(lowered(&token[..token.floor_char_boundary(WORD_MAX_BYTES)]));
        if is_stop_word(&word) {
            continue;
        }
        if word.len() <= UNSTEMMED_BYTES {
            visit(&word);
        } else {
            visit(&stemmer.stem(&word));
        }
    }
}

/// Buckets of the terms of a [`LongDocument`]: one for so many bytes of its text, which are some ten tokens.
const BYTES_PER_BUCKET: usize = 64;
/// And at most so many: with the most tokens that a document may have, all different, 16 terms in each.
const BUCKETS_MAX: usize = 1 << 16;

/// The distinct terms of a document that is analyzed a piece at a time. Memory: its text, once more its terms, and 12 bytes per distinct
/// term.
pub(super) struct LongDocument {
    text: Box<str>,
    /// Bytes of the text that were analyzed.
    at: usize,
    /// Whether these end within a token, of which enough has been seen.
    is_inside: bool,
    /// Tokens that were looked at.
    tokens: usize,
    /// Terms so far, repeated ones each time.
    length: u32,
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
    pub fn new(text: &str, hasher: RandomState) -> LongDocument {
        let buckets = (text.len() / BYTES_PER_BUCKET).clamp(1, BUCKETS_MAX);
        LongDocument {
            text: text.into(),
            at: 0,
            is_inside: false,
            tokens: 0,
            length: 0,
            buffer: String::new(),
            buckets: std::iter::repeat_with(Vec::new).take(buckets).collect(),
            hasher,
        }
    }

    /// Bytes of the text.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Analyzes up to `tokens` more tokens; false once there are no more. About 300 ns per token, or what it takes to pass over as many
    /// bytes as the tokens could have.
    pub fn analyze_some(&mut self, tokens: usize) -> bool {
        let LongDocument { text, at, is_inside, tokens: looked, length, buffer, buckets, hasher } = self;
        let (piece, ends_inside) = piece_of(&text[*at..], tokens, *is_inside);
        let unseen = if *is_inside { piece.trim_start_matches(is_token_char) } else { piece };
        let left = MAX_TOKENS - *looked;
        let counted = words(unseen).take(left).inspect(|_| *looked += 1);
        analyze_tokens(counted, |term| {
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
                }
            }
        });
        *at += piece.len();
        *is_inside = ends_inside;
        *at < text.len() && *looked < MAX_TOKENS
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

/// The beginning of `text` that has at most so many tokens, and whether it ends within a token: only within one of which it has
/// [`WORD_MAX_BYTES`], or that `begins_inside`. At most 16 bytes per token are looked at, and those.
fn piece_of(text: &str, tokens: usize, begins_inside: bool) -> (&str, bool) {
    let (mut left, mut in_token) = (tokens, begins_inside);
    let mut enough_at = 0;
    for (at, character) in text.char_indices() {
        let is_token = is_token_char(character);
        let is_long = at > tokens * PIECE_BYTES_PER_TOKEN;
        if is_token && !in_token {
            if left == 0 || is_long {
                return (&text[..at], false);
            }
            left -= 1;
            enough_at = at + WORD_MAX_BYTES;
        } else if is_long && (!is_token || at >= enough_at) {
            return (&text[..at], is_token);
        }
        in_token = is_token;
    }
    (text, false)
}

/// Bytes of a piece for each of its tokens, at most.
const PIECE_BYTES_PER_TOKEN: usize = 16;

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
    pub fn fill(&mut self, text: &str) -> u32 {
        self.buffer.clear();
        self.spans.clear();
        let DocumentTerms { buffer, spans } = self;
        analyze(text, |term| {
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

/// An analyzed query: its distinct terms. Usable with any index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextQuery {
    terms: Vec<Box<str>>,
}

impl TextQuery {
    /// Analyzes `text` as documents are. A term counts once, however often it is there.
    pub fn new(text: &str) -> TextQuery {
        let mut seen: HashSet<Box<str>> = HashSet::new();
        let mut terms = Vec::new();
        analyze(text, |term| {
            if !seen.contains(term) {
                seen.insert(term.into());
                terms.push(term.into());
            }
        });
        TextQuery { terms }
    }

    /// Distinct terms in the order of their first appearance.
    pub fn terms(&self) -> &[Box<str>] {
        &self.terms
    }

    /// Nothing but stop words: finds nothing.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &[&str]) {
        let mut terms = Vec::new();
        analyze(text, |term| terms.push(term.to_owned()));
        assert_eq!(terms, expected, "{text}");
    }

    #[test]
    fn terms_are_stems_of_what_is_no_stop_word() {
        check("", &[]);
        check("The who of it all", &[]);
        check("Running runners ran", &["run", "runner", "ran"]);
        check("generously generalizations", &["generous", "general"]);
        check("ponies, skies; dying!", &["poni", "sky", "die"]);
        check("consign consigned consigning consignment", &["consign"; 4]);
        // Pieces of contractions go, except those that are words of their own.
        check("I'm sure you're wouldn't we'll they'd", &["sure"]);
        check("can't won't let's cannot", &["can", "won", "let"]);
        // Short words stay, by bytes.
        check("us as go ox é ss", &["us", "go", "ox", "é", "ss"]);
        check("Café CRÈME naïve", &["café", "crème", "naïv"]);
        check("x86-64 3rd 2024", &["x86", "64", "3rd", "2024"]);
        check("東京 tower", &["東京", "tower"]);
    }

    #[test]
    fn a_document_has_its_terms_with_frequencies() {
        let mut document = DocumentTerms::default();
        assert_eq!(document.fill("cats and a cat; the dog saw cats"), 5);
        let found: Vec<(&str, u32)> = document.iter().collect();
        assert_eq!(found, [("cat", 3), ("dog", 1), ("saw", 1)]);
        assert_eq!(document.fill("of the"), 0);
        assert_eq!(document.iter().count(), 0);
    }

    proptest! {
        /// In pieces of any size, a long document has the terms of the whole text.
        #[test]
        fn a_document_in_pieces_has_the_same_terms(
            text in "([a-cé]{1,3}|the|[ ,.]{1,9}){0,30}((é{2040,2060}|b{4090,9000})?([a-cé]{1,3}|the|[ ,.]{1,9}){0,9}){0,3}",
            tokens in 1usize..9,
        ) {
            let mut whole = DocumentTerms::default();
            let length = whole.fill(&text);
            let mut long = LongDocument::new(&text, RandomState::with_seed(1));
            while long.analyze_some(tokens) {}
            prop_assert_eq!(long.length(), length);
            let mut found: Vec<(String, u32)> = Vec::new();
            for bucket in 0.. {
                let Some(terms) = long.terms(bucket) else { break };
                found.extend(terms.map(|(term, frequency)| (term.to_owned(), frequency)));
            }
            found.sort_unstable();
            let expected: Vec<(String, u32)> = whole.iter().map(|(term, frequency)| (term.to_owned(), frequency)).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn pieces_of_a_text_are_bounded() {
        let text = format!("a bc{} d", " ".repeat(1000));
        let piece = |text, tokens| piece_of(text, tokens, false).0;
        assert_eq!((piece(&text, 1), piece(&text, 5).len()), ("a ", 81));
        assert!(words(piece(&text[81..], 2)).next().is_none());
        // A long word is cut where enough of it has been seen, and passed over from there.
        let word = "x".repeat(50_000);
        assert_eq!(piece_of(&word, 3, false), (&word[..WORD_MAX_BYTES], true));
        assert_eq!(piece_of(&word, 3, true), (&word[..49], true));
        let mut long = LongDocument::new(&format!("{word} {word}y"), RandomState::with_seed(1));
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
        let mut long = LongDocument::new(&many, RandomState::with_seed(1));
        while long.analyze_some(10_000) {}
        assert_eq!(long.length() as usize, MAX_TOKENS);
    }

    #[test]
    fn a_query_has_each_term_once() {
        let query = TextQuery::new("dogs, cats: dog!");
        assert_eq!(query.terms(), ["dog".into(), "cat".into()]);
        assert!(TextQuery::new("to be or not to be").is_empty());
    }

    #[test]
    fn tokens_beyond_the_bound_are_left_out() {
        let mut document = DocumentTerms::default();
        let text = "ab ".repeat(MAX_TOKENS + 5);
        assert_eq!(document.fill(&text), MAX_TOKENS as u32);
    }

    proptest! {
        #[test]
        fn any_text_is_analyzed(text in any::<String>(), words in "[a-z]{0,24}( [a-zé']{0,12}){0,8}") {
            for text in [text, words] {
                let mut document = DocumentTerms::default();
                let tokens = document.fill(&text);
                prop_assert_eq!(document.iter().map(|(_, count)| count).sum::<u32>(), tokens);
                prop_assert!(document.iter().all(|(term, _)| !term.is_empty()));
                prop_assert_eq!(document.iter().count(), TextQuery::new(&text).terms().len());
            }
        }
    }
}
