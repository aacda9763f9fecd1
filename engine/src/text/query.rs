//! What a text lane is asked for, and the terms that it looks up.

use super::STEP_NS;
use super::analyzer::{Analyzer, Progress};
use super::phrase::{PHRASE_WORDS_MAX, Phrase};
use crate::pace::{Pace, TooLong};
use std::collections::HashSet;

/// Distinct terms of a text that is searched for at most, those that a prefix stands for apart: each is looked up, and its list walked beside the
/// others.
pub const QUERY_TERMS_MAX: usize = 4096;

/// Tokens of a query that are analyzed in one piece.
const PIECE_TOKENS: usize = 64;

/// Terms that a prefix stands for at most.
pub const PREFIX_TERMS_MAX: usize = 128;

/// Why a text is not searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// More distinct words than a search looks up.
    #[error("text: a search may have at most {QUERY_TERMS_MAX} distinct words, found {0}")]
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
    /// [`Analyzer::stemmed_letters`] of it.
    letters: Option<Box<str>>,
    /// Its own term, unless it is a stop word.
    term: Option<Box<str>>,
}

impl Words {
    /// Analyzes what a query looks for, as documents are analyzed, in pieces of some 50 µs.
    ///
    /// # Errors
    /// [`TooLong`].
    pub async fn new(analyzer: Analyzer, wanted: &TextMatch, pace: &mut impl Pace) -> Result<Words, TooLong> {
        let mut terms: Vec<(usize, Box<str>)> = Vec::new();
        let mut last: Option<(usize, Box<str>)> = None;
        let mut progress = Progress::default();
        pace.foresee(wanted.text.len() * analyzer.ns_per_byte() / STEP_NS)?;
        loop {
            let start = progress.bytes();
            let goes_on = analyzer.analyze_words_some(
                &wanted.text,
                &mut progress,
                PIECE_TOKENS,
                |position, word, term| {
                    if let Some(term) = term {
                        terms.push((position, term.into()));
                    }
                    if wanted.prefix {
                        last = Some((position, word.into()));
                    }
                },
            );
            pace.step((progress.bytes() - start) * analyzer.ns_per_byte() / STEP_NS).await?;
            if !goes_on {
                break;
            }
        }
        let prefix = last.map(|(position, word)| {
            let term = terms.pop_if(|(at, _)| *at == position).map(|(_, term)| term);
            Prefix { position, letters: analyzer.stemmed_letters(&word), word, term }
        });
        Ok(Words { terms, prefix, is_phrase: wanted.phrase })
    }

    /// The prefixes of the terms that the last word matches; empty if the last word is not a prefix.
    pub fn prefixes(&self) -> Vec<&str> {
        self.prefix
            .iter()
            .flat_map(|prefix| [Some(&*prefix.word), prefix.letters.as_deref()])
            .flatten()
            .collect()
    }

    /// The query, where these are the terms that begin with one of [`Self::prefixes`].
    ///
    /// # Errors
    /// Too many words, or too long a phrase.
    pub fn into_query(self, mut alternatives: Vec<Box<str>>) -> Result<TextQuery, TextError> {
        let Words { terms: words, prefix, is_phrase } = self;
        let own = prefix.as_ref().and_then(|prefix| prefix.term.clone());
        let mut seen: HashSet<&str> = HashSet::new();
        let mut terms: Vec<Box<str>> =
            words.iter().filter(|(_, term)| seen.insert(term)).map(|(_, term)| term.clone()).collect();
        let required = if is_phrase { terms.len() } else { 0 };
        // Before the alternatives: whether a text is searched for is not up to the terms of the documents.
        let given = terms.len() + usize::from(own.as_ref().is_some_and(|own| !seen.contains(&**own)));
        if given > QUERY_TERMS_MAX {
            return Err(TextError::TooManyWords(given));
        }
        alternatives.extend(own.filter(|own| !alternatives.contains(own)));
        terms.extend(alternatives.iter().filter(|term| seen.insert(term)).cloned());
        if !is_phrase {
            return Ok(TextQuery { terms, required, phrase: None });
        }
        let mut elements: Vec<(usize, &str)> =
            words.iter().map(|(position, term)| (*position, &**term)).collect();
        if let Some(Prefix { position, word, .. }) = &prefix {
            elements.extend(alternatives.iter().map(|term| (*position, &**term)));
            if alternatives.is_empty() {
                // No document has such a word. The phrase has its length all the same.
                elements.push((*position, &**word));
                Phrase::new(&elements).map_err(TextError::PhraseTooLong)?;
                return Ok(TextQuery::default());
            }
        }
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
    use crate::pace::{Pieces, Whole, at_once};
    use std::cell::Cell;

    /// About 100 µs of work.
    const STEPS_OF_A_PIECE: usize = 1000;

    #[test]
    fn a_query_has_each_term_once() {
        let query = TextQuery::new(Analyzer::English, "dogs, cats: dog!");
        assert_eq!(query.terms(), ["dog".into(), "cat".into()]);
        assert!(TextQuery::new(Analyzer::English, "to be or not to be").is_empty());
    }

    fn words(analyzer: Analyzer, wanted: &TextMatch) -> Words {
        at_once(Words::new(analyzer, wanted, &mut Whole::unbounded())).unwrap()
    }

    #[test]
    fn a_long_query_is_analyzed_in_pieces() {
        let text = "naïveté rivers ".repeat(1000);
        for analyzer in [Analyzer::English, Analyzer::German, Analyzer::Cjk] {
            let pauses = Cell::new(0);
            let mut pace = Pieces::new(STEPS_OF_A_PIECE, async || {
                pauses.set(pauses.get() + 1);
                Ok(())
            });
            let wanted = TextMatch::words(&text);
            let in_pieces = at_once(Words::new(analyzer, &wanted, &mut pace)).unwrap();
            assert_eq!(in_pieces.terms, words(analyzer, &wanted).terms);
            assert!(pauses.get() >= 2000 / PIECE_TOKENS / 4, "{analyzer:?}: {} pauses", pauses.get());
            let refused = at_once(Words::new(analyzer, &wanted, &mut Whole::of(5000)));
            assert!(matches!(refused, Err(TooLong)));
        }
    }

    fn query(text: &str, phrase: bool, prefix: bool, alternatives: &[&str]) -> Result<TextQuery, TextError> {
        let words = words(Analyzer::English, &TextMatch { text: text.into(), phrase, prefix });
        words.into_query(alternatives.iter().map(|term| (*term).into()).collect())
    }

    #[test]
    fn the_last_word_stands_for_others() {
        let given =
            words(Analyzer::English, &TextMatch { prefix: true, ..TextMatch::words("Old RIVERS, runni!") });
        assert_eq!(given.prefixes(), ["runni"]);
        assert!(words(Analyzer::English, &TextMatch::words("runni")).prefixes().is_empty());
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

    /// Stemmers that write letters without their marks do not hide the words from a prefix with these letters.
    #[test]
    fn a_prefix_finds_words_whose_stems_have_other_letters() {
        for (analyzer, word, prefixes) in [
            (Analyzer::German, "München", vec!["M", "Mü", "mün", "münch"]),
            (Analyzer::German, "Straßenbahn", vec!["straß", "Straßen", "stras"]),
            (Analyzer::Spanish, "árboles", vec!["á", "árb"]),
            (Analyzer::Spanish, "América", vec!["amér"]),
            (Analyzer::Dutch, "geïnteresseerd", vec!["geï", "gein"]),
            (Analyzer::Dutch, "coördinatie", vec!["coö", "coörd"]),
            (Analyzer::Greek, "άνθρωπος", vec!["ά", "άνθ", "ανθ"]),
            (Analyzer::Greek, "λόγος", vec!["λό"]),
            (Analyzer::Greek, "Αθήνα", vec!["αθή", "ΑΘΗ"]),
            (Analyzer::French, "élève", vec!["él"]),
            (Analyzer::Turkish, "İstanbul", vec!["İST"]),
            (Analyzer::Portuguese, "coração", vec!["coraç"]),
            (Analyzer::Hungarian, "könyvek", vec!["köny"]),
        ] {
            let mut terms = Vec::new();
            analyzer.analyze(word, |_, term| terms.push(term.to_owned()));
            for prefix in prefixes {
                let words = words(analyzer, &TextMatch { prefix: true, ..TextMatch::words(prefix) });
                let begun = words.prefixes();
                assert!(
                    terms.iter().any(|term| begun.iter().any(|prefix| term.starts_with(prefix))),
                    "{analyzer:?}: {begun:?} of {prefix} for {terms:?}"
                );
            }
        }
        assert_eq!(Analyzer::English.stemmed_letters("né"), None);
        assert_eq!(Analyzer::German.stemmed_letters(&"ü".repeat(200)), None, "it is not stemmed");
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
        // Also when no document has the last word.
        let begun = format!("{long} the");
        assert_eq!(query(&begun, true, true, &[]).unwrap_err(), TextError::PhraseTooLong(65));
        assert_eq!(query(&begun, true, true, &["theater"]).unwrap_err(), TextError::PhraseTooLong(65));
        let words = |count: usize| (0..count).map(|at| format!("q{at} ")).collect::<String>();
        assert_eq!(query(&words(5000), false, false, &[]).unwrap_err(), TextError::TooManyWords(5000));
        // What the last word stands for is no word of the text.
        let alternatives: Vec<String> = (0..PREFIX_TERMS_MAX).map(|at| format!("q4095x{at}")).collect();
        let alternatives: Vec<&str> = alternatives.iter().map(String::as_str).collect();
        for alternatives in [&alternatives[..0], &alternatives[..]] {
            let found = query(&words(QUERY_TERMS_MAX), false, true, alternatives).unwrap();
            assert_eq!(found.terms().len(), QUERY_TERMS_MAX + alternatives.len());
            let refused = query(&words(QUERY_TERMS_MAX + 1), false, true, alternatives).unwrap_err();
            assert_eq!(refused, TextError::TooManyWords(QUERY_TERMS_MAX + 1));
            assert!(refused.to_string().starts_with("text: "), "{refused}");
        }
    }
}
