//! Tokens of the `match` operator and of full text: maximal runs of Unicode letters and decimal digits, lower-cased per
//! character.

use std::sync::LazyLock;

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
        let mut tokens: Vec<Box<[char]>> = tokens(query).map(|token| lowered(token).collect()).collect();
        tokens.sort_unstable();
        tokens.dedup();
        (tokens.len() <= MAX_QUERY_TOKENS).then_some(Self { tokens })
    }

    /// Whether every token of the query is a token of `text`; true for a query without tokens. One pass over the text
    /// per 64 query tokens, stopping at the first batch that is not complete.
    pub(super) fn all_in(&self, text: &str) -> bool {
        self.tokens.chunks(PASS).all(|wanted| {
            let mut missing = u64::MAX >> (PASS - wanted.len());
            for token in tokens(text) {
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

/// The tokens of `text` in order, as they are spelled.
pub(crate) fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_token_char(c)).filter(|token| !token.is_empty())
}

/// The characters of a token in lower case.
pub(crate) fn lowered(token: &str) -> impl Iterator<Item = char> {
    token.chars().map(lower)
}

/// The simple lower-case mapping: one character to one. It differs from the full mapping for a single character.
fn lower(c: char) -> char {
    match c {
        '\u{130}' => 'i',
        c => c.to_lowercase().next().unwrap_or(c),
    }
}

/// General category L or Nd. The standard library's `is_alphanumeric` is wider (vowel signs, Roman and circled numbers).
fn is_token_char(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric();
    }
    TOKEN_CHARS
        .binary_search_by(|&(first, last)| {
            if last < c {
                std::cmp::Ordering::Less
            } else if first > c {
                std::cmp::Ordering::Greater
            } else {
                std::cmp::Ordering::Equal
            }
        })
        .is_ok()
}

/// Ascending, disjoint, inclusive ranges of token characters, from the regular expression library's Unicode tables.
static TOKEN_CHARS: LazyLock<Box<[(char, char)]>> = LazyLock::new(|| {
    use regex_syntax::hir::{Class, HirKind};
    let class = regex_syntax::parse(r"[\p{L}\p{Nd}]").expect("the class is well formed");
    match class.kind() {
        HirKind::Class(Class::Unicode(class)) => {
            class.ranges().iter().map(|range| (range.start(), range.end())).collect()
        }
        other => unreachable!("a Unicode class parses to one, found {other:?}"),
    }
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_split_at_everything_but_letters_and_digits() {
        for (text, expected) in [
            ("", vec![]),
            ("...", vec![]),
            ("Der  schnelle-Fuchs, 3x!", vec!["der", "schnelle", "fuchs", "3x"]),
            ("don't", vec!["don", "t"]),
            ("snake_case", vec!["snake", "case"]),
            ("GRÖSSE straße", vec!["grösse", "straße"]),
            ("İstanbul", vec!["istanbul"]),
            ("東京 ２０２４", vec!["東京", "２０２４"]),
            ("x² Ⅷ ①", vec!["x"]),
            ("e\u{301}a", vec!["e", "a"]),
        ] {
            let found: Vec<String> = tokens(text).map(|token| lowered(token).collect()).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

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
