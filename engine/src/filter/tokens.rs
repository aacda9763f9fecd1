//! The words of a `match` query.

use crate::payload::words::{lowered, words};

/// Most distinct tokens of one query. A text is passed once per 64 of them, so the bound keeps a query from costing more
/// than 16 passes per point.
pub(super) const MAX_QUERY_TOKENS: usize = 1024;

/// How many tokens one pass over a text looks for: one bit each.
const PASS: usize = u64::BITS as usize;

/// The distinct tokens of a query, lower-cased and sorted.
#[derive(Debug)]
pub(crate) struct QueryTokens {
    tokens: Vec<Box<[char]>>,
}

impl QueryTokens {
    /// Splits `query`; `None` when it has more than [`MAX_QUERY_TOKENS`] distinct tokens.
    pub(super) fn new(query: &str) -> Option<Self> {
        let mut tokens: Vec<Box<[char]>> = words(query).map(|token| lowered(token).collect()).collect();
        tokens.sort_unstable();
        tokens.dedup();
        (tokens.len() <= MAX_QUERY_TOKENS).then_some(Self { tokens })
    }

    /// The tokens as they are filed in a payload index.
    pub(super) fn iter(&self) -> impl Iterator<Item = String> {
        self.tokens.iter().map(|token| token.iter().collect())
    }

    /// Whether every token of the query is a token of `text`; true for a query without tokens. One pass over the text
    /// per 64 query tokens, stopping at the first batch that is not complete.
    pub(super) fn all_in(&self, text: &str) -> bool {
        self.tokens.chunks(PASS).all(|wanted| {
            let mut missing = u64::MAX >> (PASS - wanted.len());
            for token in words(text) {
                let found = wanted.binary_search_by(|probe| probe.iter().copied().cmp(lowered(token)));
                if let Ok(index) = found {
                    missing &= !(1 << index);
                    if missing == 0 {
                        return true;
                    }
                }
            }
            false
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_tokens_are_found_in_several_passes() {
        let words = |n: usize| (0..n).map(|i| format!("w{i}")).collect::<Vec<_>>().join(" ");
        for n in [1, 63, 64, 65, 128, 200] {
            let query = QueryTokens::new(&words(n)).unwrap();
            assert!(query.all_in(&words(n)) && query.all_in(&words(n + 5)), "{n}");
            assert!(!query.all_in(&words(n - 1)), "{n}");
        }
        assert!(QueryTokens::new(&words(MAX_QUERY_TOKENS)).is_some());
        assert!(QueryTokens::new(&words(MAX_QUERY_TOKENS + 1)).is_none());
        assert!(QueryTokens::new(&"same ".repeat(MAX_QUERY_TOKENS + 1)).is_some());
    }
}
