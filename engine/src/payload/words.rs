//! Words of a text: maximal runs of Unicode letters and decimal digits, lower-cased per character. What `match` compares
//! and the payload index files.

use std::sync::LazyLock;

/// The words of `text` in order, as they are spelled.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_token_char(c)).filter(|token| !token.is_empty())
}

/// The characters of a word, lower-cased.
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
pub(crate) fn is_token_char(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric();
    }
    TOKEN_CHARS.contains(c)
}

static TOKEN_CHARS: LazyLock<CharRanges> = LazyLock::new(|| char_class(r"[\p{L}\p{Nd}]"));

/// Ascending, disjoint, inclusive ranges of characters.
pub(crate) struct CharRanges(Box<[(char, char)]>);

impl CharRanges {
    /// Whether one of the ranges has the character.
    pub fn contains(&self, c: char) -> bool {
        let order = |&(first, last): &(char, char)| {
            if last < c {
                std::cmp::Ordering::Less
            } else if first > c {
                std::cmp::Ordering::Greater
            } else {
                std::cmp::Ordering::Equal
            }
        };
        self.0.binary_search_by(order).is_ok()
    }
}

/// The characters of a class as regular expressions have them, from the Unicode tables of their library.
///
/// # Panics
/// When it is no class.
pub(crate) fn char_class(class: &str) -> CharRanges {
    use regex_syntax::hir::{Class, HirKind};
    let class = regex_syntax::parse(class).expect("the class is well formed");
    match class.kind() {
        HirKind::Class(Class::Unicode(class)) => {
            CharRanges(class.ranges().iter().map(|range| (range.start(), range.end())).collect())
        }
        other => unreachable!("a Unicode class parses to one, found {other:?}"),
    }
}

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
            let found: Vec<String> = words(text).map(|token| lowered(token).collect()).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
