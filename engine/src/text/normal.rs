//! Forms in which words are compared: composed, without case, without diacritics.

use crate::payload::words::lowered;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::canonical_combining_class;

/// Adds a word in the composed form NFKC and in lower case, character by character, as the stemmer of the language with this ISO 639-1 code
/// expects it. Turkish has a letter I without a dot, and Romanian has s and t with a comma, for which the stemmer and the stop words have
/// the cedilla that older texts are written with.
pub(super) fn lowered_composed(word: &str, code: &str, into: &mut String) {
    let letter = |(given, lower)| match (code, given, lower) {
        ("tr", 'I', _) => 'ı',
        ("ro", _, 'ș') => 'ş',
        ("ro", _, 'ț') => 'ţ',
        _ => lower,
    };
    let mut add = |word: &str| into.extend(word.chars().zip(lowered(word)).map(letter));
    match word.is_ascii() {
        true => add(word),
        false => add(&word.nfkc().collect::<String>()),
    }
}

/// Adds a word in the form NFKC and without case.
pub(super) fn cased(word: &str, into: &mut String) {
    match word.is_ascii() {
        true => into.extend(word.bytes().map(|byte| char::from(byte.to_ascii_lowercase()))),
        false => into.extend(word.nfkd().flat_map(without_case).nfc()),
    }
}

/// Adds a word in the form NFKC, without case and without diacritics.
pub(super) fn folded(word: &str, into: &mut String) {
    match word.is_ascii() {
        true => into.extend(word.bytes().map(|byte| char::from(byte.to_ascii_lowercase()))),
        false => {
            into.extend(word.nfkd().filter(|mark| !is_diacritic(*mark)).flat_map(without_case).nfc());
        }
    }
}

/// Lower case of the upper case: as full case folding, but for letters that have the same capital, like ı and i.
fn without_case(character: char) -> impl Iterator<Item = char> {
    character.to_uppercase().flat_map(char::to_lowercase)
}

/// Whether a character is a mark that can be left out: those above and below letters, and the points of Hebrew, Arabic and Syriac. Vowel
/// signs, viramas and voicing marks of other scripts have other combining classes; without them there would be another word.
fn is_diacritic(character: char) -> bool {
    matches!(canonical_combining_class(character), 10..=36 | 200..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(form: impl Fn(&str, &mut String), word: &str) -> String {
        let mut into = String::new();
        form(word, &mut into);
        into
    }

    #[test]
    fn words_have_one_form() {
        for (word, expected) in [
            ("CAFÉ", "cafe"),
            ("Cafe\u{301}", "cafe"),
            ("Straße", "strasse"),
            ("STRASSE", "strasse"),
            ("İstanbul", "istanbul"),
            ("ﬁn", "fin"),
            ("ΛΌΓΟΣ", "λογοσ"),
            ("λόγος", "λογοσ"),
            ("ў", "у"),
            ("شَدَّة", "شدة"),
            ("שָׁלוֹם", "שלום"),
            ("がぎ", "がぎ"),
            ("한각", "한각"),
            ("ทุกข์", "ทุกข์"),
            ("हिन्दी", "हिन्दी"),
            ("ø", "ø"),
        ] {
            assert_eq!(of(folded, word), expected, "{word}");
        }
        for (word, expected) in
            [("ＡＢＣ", "abc"), ("ｶﾞｷﾞ", "ガギ"), ("É", "é"), ("e\u{301}", "é"), ("각", "각")]
        {
            assert_eq!(of(cased, word), expected, "{word}");
        }
        for (word, code, expected) in [
            ("ISI", "tr", "ısı"),
            ("İYİ", "tr", "iyi"),
            ("ISI", "de", "isi"),
            ("A\u{308}pfel", "de", "äpfel"),
            ("Äpfel", "de", "äpfel"),
            ("ȘI Ţară", "ro", "şi ţară"),
            ("ǅ", "de", "dž"),
        ] {
            assert_eq!(of(|word, into| lowered_composed(word, code, into), word), expected, "{word}");
        }
    }
}
