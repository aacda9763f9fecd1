//! Phrases, looked for in the texts of documents.
//!
//! Postings hold no positions: these would take several bytes for each word of each document, whether phrases are searched for or not. So a
//! search finds the documents that have all terms of a phrase by their lists, and analyzes their texts, which the payload rows hold, in
//! pieces. The terms of a text are matched by the algorithm Shift-And (Baeza-Yates, Gonnet: A new approach to text searching, CACM 1992),
//! whose state is one word of 64 bits.

use super::analyzer::{Analyzer, Progress};
use ahash::RandomState;
use std::collections::HashMap;

/// Words of a phrase at most, stop words within it included: the bits of the state.
pub const PHRASE_WORDS_MAX: usize = 64;

/// Tokens of a text that are analyzed in one piece.
const TOKENS_PER_PIECE: usize = 128;

/// Terms at fixed distances from each other.
#[derive(Clone, Debug)]
pub(crate) struct Phrase {
    /// For each term the places of the phrase where it may stand, one bit each.
    places: HashMap<Box<str>, u64, RandomState>,
    /// The places where anything may stand.
    gaps: u64,
    /// The last place.
    last: u64,
}

/// How far a text has been searched for a phrase.
#[derive(Default)]
pub(crate) struct PhraseSearch {
    progress: Progress,
    /// A bit for each beginning of the phrase that ends with the term before.
    state: u64,
    /// The position behind that term.
    next: usize,
    is_found: bool,
}

impl Phrase {
    /// The phrase of terms with their positions in a query, which ascend. Several terms at one position are alternatives. `None` when there is
    /// only one position.
    ///
    /// # Errors
    /// How many words it has, when these are more than [`PHRASE_WORDS_MAX`].
    pub fn new(elements: &[(usize, &str)]) -> Result<Option<Phrase>, usize> {
        let (Some(first), Some(last)) = (elements.first(), elements.last()) else { return Ok(None) };
        let words = last.0 - first.0 + 1;
        if words > PHRASE_WORDS_MAX {
            return Err(words);
        }
        let mut places: HashMap<Box<str>, u64, RandomState> = HashMap::default();
        let mut gaps = u64::MAX >> (PHRASE_WORDS_MAX - words);
        for (position, term) in elements {
            let place = 1 << (position - first.0);
            *places.entry((*term).into()).or_default() |= place;
            gaps &= !place;
        }
        Ok((words > 1).then_some(Phrase { places, gaps, last: 1 << (words - 1) }))
    }

    /// Looks for the phrase in the next piece of a text. Returns whether there is more to look at.
    pub fn look(&self, analyzer: Analyzer, text: &str, search: &mut PhraseSearch) -> bool {
        let PhraseSearch { progress, state, next, is_found } = search;
        let goes_on = analyzer.analyze_some(text, progress, TOKENS_PER_PIECE, |position, term| {
            // Tokens that make no term stand in gaps alone, and there are no more places than words of a phrase.
            for _ in 0..(position - *next).min(PHRASE_WORDS_MAX) {
                *state = (*state << 1 | 1) & self.gaps;
            }
            let places = self.places.get(term).copied().unwrap_or(0);
            *state = (*state << 1 | 1) & (self.gaps | places);
            *next = position + 1;
            *is_found |= *state & self.last != 0;
        });
        goes_on && !*is_found
    }
}

impl PhraseSearch {
    /// Whether the phrase was found in what was looked at.
    pub fn is_found(&self) -> bool {
        self.is_found
    }

    /// Bytes of the text that were looked at.
    pub fn bytes(&self) -> usize {
        self.progress.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn finds(elements: &[(usize, &str)], text: &str) -> bool {
        let phrase = Phrase::new(elements).unwrap().unwrap();
        let mut search = PhraseSearch::default();
        while phrase.look(Analyzer::English, text, &mut search) {}
        search.is_found()
    }

    #[test]
    fn terms_stand_next_to_each_other() {
        let york = [(3, "new"), (4, "york")];
        assert!(finds(&york, "in New York"));
        assert!(finds(&york, "new new york"));
        assert!(!finds(&york, "York, new"));
        assert!(!finds(&york, "new in york"));
        // A stop word of the phrase stands for any word.
        let king = [(0, "king"), (3, "hill")];
        assert!(finds(&king, "the king of the hill"));
        assert!(finds(&king, "king under green hills"));
        assert!(!finds(&king, "king of hills"));
        assert!(!finds(&king, "king of the old hill"));
        assert!(finds(&[(0, "a1"), (1, "a1"), (2, "b1")], "a1 a1 a1 b1"));
        let either = [(0, "old"), (1, "river"), (1, "rival")];
        assert!(finds(&either, "old rivals") && finds(&either, "old rivers") && !finds(&either, "old rivet"));
        assert!(finds(&york, &format!("{}new york", "stone ".repeat(9000))));
        assert!(!finds(&york, &format!("new {} york", "the ".repeat(9000))));
    }

    proptest! {
        /// A long phrase with gaps, against a comparison at every place.
        #[test]
        fn phrases_are_found_where_they_are(
            text in proptest::collection::vec(0usize..4, 0..300),
            from in 0usize..300,
            kept in proptest::collection::vec(proptest::bool::ANY, 1..=PHRASE_WORDS_MAX),
            change in proptest::option::of((0usize..64, 0usize..3)),
        ) {
            // The last is a stop word.
            let words = ["a1", "b1", "c1", "the"];
            let mut phrase: Vec<Option<usize>> = kept.iter().enumerate().map(|(at, kept)| {
                text.get(from % (text.len() + 1) + at).copied().filter(|word| *kept && *word < 3)
            }).collect();
            if let Some((at, word)) = change && let Some(place) = phrase.get_mut(at) {
                *place = Some(word);
            }
            let elements: Vec<(usize, &str)> =
                phrase.iter().enumerate().filter_map(|(at, word)| Some((at, words[(*word)?]))).collect();
            let Ok(Some(_)) = Phrase::new(&elements) else { return Ok(()) };
            let first = elements[0].0;
            let found = (0..text.len()).any(|start| {
                elements.iter().all(|(at, word)| text.get(start + at - first).is_some_and(|&here| words[here] == *word))
            });
            let text: Vec<&str> = text.iter().map(|&word| words[word]).collect();
            prop_assert_eq!(finds(&elements, &text.join(" ")), found);
        }
    }
}
