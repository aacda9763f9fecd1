//! From text to terms: tokens, without stop words, stemmed.

use super::stop_words::is_stop_word;
use crate::payload::words::{lowered, words};
use rust_stemmers::{Algorithm, Stemmer};
use std::collections::HashSet;

/// Tokens of a document that are looked at, stop words included; what comes after is not indexed.
pub const MAX_TOKENS: usize = 1 << 20;

/// Words of so few bytes are no stems of anything.
const UNSTEMMED_BYTES: usize = 2;

/// The English analyzer, which is the only one: maximal runs of Unicode letters and decimal digits, lower-cased per
/// character; without the stop words of the Snowball list and the pieces its contractions fall into; stemmed by Porter2
/// (Porter, Boulton: the English stemmer of Snowball). Accents are kept.
///
/// Calls `visit` with each term in order; about 200 ns per token, most of it stemming.
fn analyze(text: &str, mut visit: impl FnMut(&str)) {
    let stemmer = Stemmer::create(Algorithm::English);
    let mut word = String::new();
    for token in words(text).take(MAX_TOKENS) {
        word.clear();
        word.extend(lowered(token));
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
