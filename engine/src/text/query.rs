//! What a text lane is asked for, and the terms that it looks up.

use super::analyzer::Analyzer;
use std::collections::HashSet;

/// Distinct terms of a query at most: each is looked up, and its list walked beside the others.
pub const QUERY_TERMS_MAX: usize = 4096;

/// A text as a client sent it. Which terms it has is up to the analyzer of the collection that is searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextMatch {
    /// The words to look for.
    pub text: Box<str>,
}

impl TextMatch {
    /// Looks for any of the words.
    pub fn words(text: &str) -> TextMatch {
        TextMatch { text: text.into() }
    }
}

/// An analyzed query: its distinct terms. Usable with any index of the same analyzer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextQuery {
    terms: Vec<Box<str>>,
}

impl TextQuery {
    /// Analyzes `text` as documents are. A term counts once, however often it is there.
    pub fn new(analyzer: Analyzer, text: &str) -> TextQuery {
        let mut seen: HashSet<Box<str>> = HashSet::new();
        let mut terms = Vec::new();
        analyzer.analyze(text, |_, term| {
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

    #[test]
    fn a_query_has_each_term_once() {
        let query = TextQuery::new(Analyzer::English, "dogs, cats: dog!");
        assert_eq!(query.terms(), ["dog".into(), "cat".into()]);
        assert!(TextQuery::new(Analyzer::English, "to be or not to be").is_empty());
    }
}
