//! What a text lane is asked for, and the terms that it looks up.

use super::analyzer::Analyzer;
use super::phrase::{PHRASE_WORDS_MAX, Phrase};
use std::collections::HashSet;

/// Distinct terms of a query at most: each is looked up, and its list walked beside the others.
pub const QUERY_TERMS_MAX: usize = 4096;

/// Terms that a prefix stands for at most.
pub const PREFIX_TERMS_MAX: usize = 128;

/// Why a text is not searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// More distinct words than a search looks up.
    #[error("a lane may have at most {QUERY_TERMS_MAX} distinct words, found {0}")]
    TooManyWords(usize),
    /// A phrase that is too long to be looked for in texts.
    #[error(
        "match.phrase: a phrase may have at most {PHRASE_WORDS_MAX} words, stop words within it included, found {0}"
    )]
    PhraseTooLong(usize),
}

/// A text as a client sent it. Which terms it has is up to the analyzer of the collection that is searched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextMatch {
    /// The words to look for: a document that has any of them is found.
    pub text: Box<str>,
    /// Whether a document must have the words in this order and next to each other. A stop word within the phrase stands for any one word.
    pub phrase: bool,
    /// Whether the last word of the text is the beginning of a word. It then stands for the terms that begin with it before it is stemmed, the
    /// [`PREFIX_TERMS_MAX`] among them that most documents have, and for its own term.
    pub prefix: bool,
}

impl TextMatch {
    /// Looks for any of the words.
    pub fn words(text: &str) -> TextMatch {
        TextMatch { text: text.into(), ..TextMatch::default() }
    }
}

/// An analyzed query: its distinct terms. Usable with any index of the same analyzer.
#[derive(Clone, Debug, Default)]
pub struct TextQuery {
    terms: Vec<Box<str>>,
    /// So many of the first terms must be in a document.
    required: usize,
    phrase: Option<Phrase>,
}

/// The words of a query, of which the last may stand for others.
pub(super) struct Words {
    /// The terms with their positions, without that of the last word if it is the beginning of a word.
    terms: Vec<(usize, Box<str>)>,
    prefix: Option<Prefix>,
    is_phrase: bool,
}

struct Prefix {
    position: usize,
    /// The word before it is stemmed.
    word: Box<str>,
    /// Its own term, unless it is a stop word.
    term: Option<Box<str>>,
}

impl Words {
    /// Analyzes what a query looks for, as documents are analyzed.
    pub fn new(analyzer: Analyzer, wanted: &TextMatch) -> Words {
        let mut terms: Vec<(usize, Box<str>)> = Vec::new();
        let mut last: Option<(usize, Box<str>)> = None;
        analyzer.analyze_words(&wanted.text, |position, word, term| {
            if let Some(term) = term {
                terms.push((position, term.into()));
            }
            if wanted.prefix {
                last = Some((position, word.into()));
            }
        });
        let prefix = last.map(|(position, word)| {
            let term = terms.pop_if(|(at, _)| *at == position).map(|(_, term)| term);
            Prefix { position, word, term }
        });
        Words { terms, prefix, is_phrase: wanted.phrase }
    }

    /// What the terms begin with that the last word stands for.
    pub fn prefix(&self) -> Option<&str> {
        self.prefix.as_ref().map(|prefix| &*prefix.word)
    }

    /// The query, where these are the terms that begin with [`Self::prefix`].
    ///
    /// # Errors
    /// Too many words, or too long a phrase.
    pub fn into_query(self, mut alternatives: Vec<Box<str>>) -> Result<TextQuery, TextError> {
        let Words { terms: words, prefix, is_phrase } = self;
        let own = prefix.as_ref().and_then(|prefix| prefix.term.clone());
        alternatives.extend(own.filter(|own| !alternatives.contains(own)));
        let mut seen: HashSet<&str> = HashSet::new();
        let mut terms: Vec<Box<str>> =
            words.iter().filter(|(_, term)| seen.insert(term)).map(|(_, term)| term.clone()).collect();
        let required = if is_phrase { terms.len() } else { 0 };
        terms.extend(alternatives.iter().filter(|term| seen.insert(term)).cloned());
        if terms.len() > QUERY_TERMS_MAX {
            return Err(TextError::TooManyWords(terms.len()));
        }
        if !is_phrase {
            return Ok(TextQuery { terms, required, phrase: None });
        }
        if prefix.is_some() && alternatives.is_empty() {
            // No document has such a word.
            return Ok(TextQuery::default());
        }
        let end = prefix.iter().flat_map(|prefix| alternatives.iter().map(|term| (prefix.position, &**term)));
        let elements: Vec<(usize, &str)> =
            words.iter().map(|(position, term)| (*position, &**term)).chain(end).collect();
        let phrase = Phrase::new(&elements).map_err(TextError::PhraseTooLong)?;
        Ok(TextQuery { phrase, terms, required })
    }
}

impl TextQuery {
    /// Analyzes `text` as documents are. A document with any of the terms is found. A term counts once, however often it is there.
    pub fn new(analyzer: Analyzer, text: &str) -> TextQuery {
        let mut seen: HashSet<Box<str>> = HashSet::new();
        let mut terms = Vec::new();
        analyzer.analyze(text, |_, term| {
            if !seen.contains(term) {
                seen.insert(term.into());
                terms.push(term.into());
            }
        });
        TextQuery { terms, required: 0, phrase: None }
    }

    /// Distinct terms in the order of their first appearance, those that a prefix stands for last.
    pub fn terms(&self) -> &[Box<str>] {
        &self.terms
    }

    /// How many of the first terms a document must have.
    pub(super) fn required(&self) -> usize {
        self.required
    }

    /// What the text of a document must have beside the terms.
    pub(crate) fn phrase(&self) -> Option<&Phrase> {
        self.phrase.as_ref()
    }

    /// Nothing but stop words: finds nothing.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_each_term_once() {
        let query = TextQuery::new(Analyzer::English, "dogs, cats: dog!");
        assert_eq!(query.terms(), ["dog".into(), "cat".into()]);
        assert!(TextQuery::new(Analyzer::English, "to be or not to be").is_empty());
    }

    fn query(text: &str, phrase: bool, prefix: bool, alternatives: &[&str]) -> Result<TextQuery, TextError> {
        let words = Words::new(Analyzer::English, &TextMatch { text: text.into(), phrase, prefix });
        words.into_query(alternatives.iter().map(|term| (*term).into()).collect())
    }

    #[test]
    fn the_last_word_stands_for_others() {
        let words = Words::new(
            Analyzer::English,
            &TextMatch { prefix: true, ..TextMatch::words("Old RIVERS, runni!") },
        );
        assert_eq!(words.prefix(), Some("runni"));
        assert_eq!(Words::new(Analyzer::English, &TextMatch::words("runni")).prefix(), None);
        let terms = |query: TextQuery| query.terms().iter().map(|term| term.to_string()).collect::<Vec<_>>();
        let found = query("rivers riv", false, true, &["rival", "river"]).unwrap();
        assert_eq!(
            (found.required(), terms(found)),
            (0, vec!["river".to_owned(), "rival".into(), "riv".into()])
        );
        // A stop word is the beginning of words like any other.
        let found = query("lord of the", true, true, &["theater"]).unwrap();
        assert_eq!((found.required(), terms(found)), (1, vec!["lord".to_owned(), "theater".into()]));
        assert!(query("lord of the", true, true, &[]).unwrap().is_empty());
        assert!(query("", true, true, &[]).unwrap().is_empty());
    }

    #[test]
    fn phrases_are_bounded() {
        let long = "ab ".repeat(PHRASE_WORDS_MAX);
        assert!(query(&long, true, false, &[]).unwrap().phrase().is_some());
        // What is before the first word and after the last is no part of it.
        assert!(query(&format!("the {long} of"), true, false, &[]).unwrap().phrase().is_some());
        assert_eq!(query(&format!("{long} ab"), true, false, &[]).unwrap_err(), TextError::PhraseTooLong(65));
        assert!(query(&format!("{long} ab"), false, false, &[]).is_ok());
        assert!(
            query("rivers", true, false, &[]).unwrap().phrase().is_none(),
            "one word is found by its list"
        );
        let words: String = (0..5000).map(|at| format!("q{at} ")).collect();
        assert_eq!(query(&words, false, false, &[]).unwrap_err(), TextError::TooManyWords(5000));
    }
}
