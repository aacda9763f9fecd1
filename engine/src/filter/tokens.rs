//! The words of a `match` query.

use super::allowance::Allowance;
use crate::payload::words::{is_token_char, lowered, words};

/// Most distinct tokens of one query. A text is passed once per 64 of them, so the bound keeps a query from costing more
/// than 16 passes per point.
pub(super) const MAX_QUERY_TOKENS: usize = 1024;

/// How many tokens one pass over a text looks for: one bit each.
const PASS: usize = u64::BITS as usize;

/// Longest token of a query, in characters. A word that is compared is not left in the middle; what people look for is shorter by far.
pub(super) const MAX_TOKEN_CHARS: usize = 4096;

/// Bytes of a text that are passed without a word of it being compared, before the allowance is looked at.
const PART_BYTES: usize = 4096;
/// What a byte of a text costs, in nanoseconds, and what comparing a word of it costs beyond that.
const BYTE_NS: u64 = 3;
const WORD_NS: u64 = 40;

/// The distinct tokens of a query, lower-cased and sorted.
#[derive(Debug)]
pub(crate) struct QueryTokens {
    tokens: Vec<Box<[char]>>,
    /// No word of more bytes is one of them.
    longest_bytes: usize,
}

/// Why words are not looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokensError {
    /// There are more than [`MAX_QUERY_TOKENS`].
    TooMany,
    /// One has more than [`MAX_TOKEN_CHARS`].
    TooLong,
}

/// How far a search for tokens has got in a text.
#[derive(Debug, Default)]
pub(super) struct TokenCourse {
    /// Passes that are complete.
    pass: usize,
    /// Tokens found in this one, one bit each.
    found: u64,
    /// Where it is in the text.
    at: usize,
    /// Whether that is within a word that is too long to be one of the tokens.
    is_within: bool,
}

impl QueryTokens {
    /// Splits `query`.
    ///
    /// # Errors
    /// [`TokensError`].
    pub(super) fn new(query: &str) -> Result<Self, TokensError> {
        let mut tokens: Vec<Box<[char]>> = words(query).map(|token| lowered(token).collect()).collect();
        tokens.sort_unstable();
        tokens.dedup();
        let longest = tokens.iter().map(|token| token.len()).max().unwrap_or(0);
        if tokens.len() > MAX_QUERY_TOKENS {
            return Err(TokensError::TooMany);
        }
        if longest > MAX_TOKEN_CHARS {
            return Err(TokensError::TooLong);
        }
        // A character has as many bytes as it likes in the other case.
        Ok(Self { tokens, longest_bytes: longest * char::MAX.len_utf8() })
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens as they are filed in a payload index.
    pub(super) fn iter(&self) -> impl Iterator<Item = String> {
        self.tokens.iter().map(|token| token.iter().collect())
    }

    /// Whether every token of the query is a token of `text`, `None` when the allowance is used up before; `course` says how far an
    /// earlier call has got, and is new at first. One pass over the text per 64 query tokens, stopping at the first batch that is not
    /// complete; a query without tokens is in every text.
    pub(super) fn all_in(&self, text: &str, course: &mut TokenCourse, allowance: &Allowance) -> Option<bool> {
        while let Some(wanted) = self.tokens.chunks(PASS).nth(course.pass) {
            if !self.pass(wanted, text, course, allowance)? {
                return Some(false);
            }
            *course = TokenCourse { pass: course.pass + 1, ..TokenCourse::default() };
        }
        Some(true)
    }

    /// Whether all of `wanted` come from where the pass is on.
    fn pass(
        &self,
        wanted: &[Box<[char]>],
        text: &str,
        course: &mut TokenCourse,
        allowance: &Allowance,
    ) -> Option<bool> {
        let all = u64::MAX >> (PASS - wanted.len());
        while course.at < text.len() {
            if allowance.is_spent() {
                return None;
            }
            let from = course.at;
            if course.is_within {
                let part = front(&text[from..], PART_BYTES);
                let end = part.find(|c| !is_token_char(c));
                course.is_within = end.is_none();
                course.at += end.unwrap_or(part.len());
                allowance.spend(BYTE_NS * (course.at - from) as u64);
                continue;
            }
            let part = front(&text[from..], PART_BYTES);
            let Some(start) = part.find(is_token_char) else {
                course.at += part.len();
                allowance.spend(BYTE_NS * part.len() as u64);
                continue;
            };
            // One that is longer than any that is wanted need not be read to its end before others get their turn.
            let rest = &text[from + start..];
            let head = front(rest, self.longest_bytes + 1);
            let end = head.find(|c| !is_token_char(c)).unwrap_or(head.len());
            course.at += start + end;
            allowance.spend(WORD_NS + BYTE_NS * (start + end) as u64);
            if end > self.longest_bytes {
                course.is_within = true;
                continue;
            }
            let token = &head[..end];
            let found = wanted.binary_search_by(|probe| probe.iter().copied().cmp(lowered(token)));
            if let Ok(index) = found {
                course.found |= 1 << index;
                if course.found == all {
                    return Some(true);
                }
            }
        }
        Some(false)
    }
}

/// The first bytes of a text, up to three more so that they end with a character.
fn front(text: &str, bytes: usize) -> &str {
    &text[..text.ceil_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Whether the query is in the text, looked for in pieces.
    fn all_in(query: &QueryTokens, text: &str, piece_ns: u64) -> bool {
        let (mut course, allowance) = (TokenCourse::default(), Allowance::of(piece_ns));
        loop {
            if let Some(found) = query.all_in(text, &mut course, &allowance) {
                return found;
            }
            allowance.renew(piece_ns);
        }
    }

    #[test]
    fn many_tokens_are_found_in_several_passes() {
        let words = |n: usize| (0..n).map(|i| format!("w{i}")).collect::<Vec<_>>().join(" ");
        for n in [1, 63, 64, 65, 128, 200] {
            let query = QueryTokens::new(&words(n)).unwrap();
            for piece_ns in [1, 100, u64::MAX] {
                let is_in = |text: &str| all_in(&query, text, piece_ns);
                assert!(is_in(&words(n)) && is_in(&words(n + 5)), "{n}");
                assert!(!is_in(&words(n - 1)), "{n}");
            }
        }
        assert!(QueryTokens::new(&words(MAX_QUERY_TOKENS)).is_ok());
        assert_eq!(QueryTokens::new(&words(MAX_QUERY_TOKENS + 1)).unwrap_err(), TokensError::TooMany);
        assert!(QueryTokens::new(&"same ".repeat(MAX_QUERY_TOKENS + 1)).is_ok());
        assert!(QueryTokens::new(&"é".repeat(MAX_TOKEN_CHARS)).is_ok());
        assert_eq!(QueryTokens::new(&"é".repeat(MAX_TOKEN_CHARS + 1)).unwrap_err(), TokensError::TooLong);
    }

    proptest! {
        /// As sets of words have it, however long the words and the pieces are.
        #[test]
        fn pieces_find_what_sets_of_words_hold(
            query in "[abÄ1 ]{0,12}",
            text in "([abäÄ1]{0,3}|[ab]{5,30}|[ .,]{1,4}){0,8}",
            long in 0usize..2,
            piece_ns in 1u64..200,
        ) {
            let text = if long == 1 { format!("{}{text}{}", "a".repeat(9_000), ".".repeat(9_000)) } else { text };
            let set = |text: &str| -> BTreeSet<String> { words(text).map(|word| lowered(word).collect()).collect() };
            let expected = set(&text).is_superset(&set(&query));
            prop_assert_eq!(all_in(&QueryTokens::new(&query).unwrap(), &text, piece_ns), expected);
        }
    }
}
