//! Where words begin and end: the segmentation of UAX #29, and the characters of scripts that do not separate words.

use crate::payload::words::{CharRanges, char_class};
use std::sync::LazyLock;
use unicode_segmentation::UnicodeSegmentation;

/// Bytes of a word that are looked at. For [`Analyzer::English`](super::Analyzer::English), words that differ only behind them are one term;
/// the other analyzers take a longer word for several words of this length.
pub const WORD_MAX_BYTES: usize = 4096;

/// What separates words within a segment: UAX #29 leaves `l'homme` in one piece.
pub(super) const APOSTROPHES: [char; 2] = ['\'', '\u{2019}'];

/// Bytes of a character with the marks that belong to it. What comes behind them is taken for the next character.
const CHARACTER_MAX_BYTES: usize = 64;

/// The beginning of a text in which its first segment is looked for.
pub(super) fn window_at(text: &str) -> &str {
    &text[..text.floor_char_boundary(WORD_MAX_BYTES)]
}

/// The first segment of a text that is not empty: a word, or what separates words. It is a segment by UAX #29 up to its first
/// [`WORD_MAX_BYTES`] bytes, where a longer one ends. Which segments a text has does not depend on where an analysis pauses, as each is
/// found from its beginning alone.
pub(super) fn segment_at(text: &str) -> &str {
    let window = window_at(text);
    let segment = window.split_word_bounds().next().unwrap_or(window);
    #[cfg(test)]
    looked::add(segment.len());
    segment
}

/// The first character of a text that is not empty, with its marks: an extended grapheme cluster, up to its first bytes.
pub(super) fn character_at(text: &str) -> &str {
    let window = &text[..text.floor_char_boundary(CHARACTER_MAX_BYTES)];
    window.graphemes(true).next().unwrap_or(window)
}

/// Letters of Han, Hiragana, Katakana and Hangul, and what these scripts share, like the mark of a long vowel.
static CJK: LazyLock<CharRanges> = LazyLock::new(|| {
    char_class(r"[[\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}\p{scx=Hangul}]&&[\p{L}\p{Nl}]]")
});

/// The first letter of Hangul, before which there is no letter of these scripts.
const CJK_FIRST: char = '\u{1100}';

pub(super) fn is_cjk(character: char) -> bool {
    #[cfg(test)]
    looked::add(1);
    character >= CJK_FIRST && CJK.contains(character)
}

/// How much a test has had looked at: bytes of segments, and characters that may be of these scripts.
#[cfg(test)]
pub(super) mod looked {
    use std::cell::Cell;

    thread_local! {
        static LOOKED: Cell<usize> = const { Cell::new(0) };
    }

    pub(in crate::text) fn add(more: usize) {
        LOOKED.set(LOOKED.get() + more);
    }

    pub(in crate::text) fn take() -> usize {
        LOOKED.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_of_scripts_without_spaces_are_known() {
        for character in "東京々〇ひらカタナｶﾞー한각ㄱ𠀋".chars() {
            assert!(is_cjk(character), "{character}");
        }
        for character in "aé1ａ。、「 ーก".replace('ー', "").chars().chain(['\u{3099}']) {
            assert!(!is_cjk(character), "{character}");
        }
        assert!(!(('\0'..CJK_FIRST).any(|character| CJK.contains(character))));
    }

    #[test]
    fn segments_are_bounded() {
        assert_eq!(segment_at("l'homme 3.14"), "l'homme");
        assert_eq!(segment_at("3.14 "), "3.14");
        assert_eq!(segment_at(", x"), ",");
        assert_eq!(segment_at(&"é".repeat(9000)).len(), WORD_MAX_BYTES);
        assert_eq!(character_at("ｶﾞｷ"), "ｶﾞ");
        assert_eq!(character_at(&format!("東{}", "\u{301}".repeat(99))).len(), 3 + 60);
    }
}
