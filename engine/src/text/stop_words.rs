//! Words too common to search for.

use super::normal::lowered_composed;
use super::segments::APOSTROPHES;
use std::collections::HashSet;
use std::sync::LazyLock;

/// The Snowball project's English list. Its contractions are not here: the tokenizer splits them.
const WORDS: &str = "
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its
itself they them their theirs themselves what which who whom this that these those
am is are was were be been being have has had having do does did doing would should could ought cannot
a an the
and but if or because as until while of at by for with about against between into through during before after above
below to from up down in out on off over under again further then once here there when where why how
all any both each few more most other some such no nor not only own same so than too very";

/// What contractions of the list leave behind when they are split at the apostrophe and no word of the list or of
/// another meaning (can, let, won) is left.
const PIECES: &str = "
aren couldn didn doesn don hadn hasn haven isn mustn shan shouldn wasn weren wouldn ll ve re s d m t";

static ALL: LazyLock<HashSet<&'static str, ahash::RandomState>> =
    LazyLock::new(|| WORDS.split_whitespace().chain(PIECES.split_whitespace()).collect());

/// Whether a token, lower-cased, is an English stop word.
pub(super) fn is_stop_word(word: &str) -> bool {
    ALL.contains(word)
}

/// The stop words of a language: those that NLTK has, most of which are the lists of Snowball.
pub(super) struct StopWords(LazyLock<HashSet<String, ahash::RandomState>>);

impl StopWords {
    /// Whether a word, in the form of [`lowered_composed`], is a stop word.
    pub fn contains(&self, word: &str) -> bool {
        self.0.contains(word)
    }
}

macro_rules! languages {
    ($($code:literal)+) => {
        /// The stop words of a language by its ISO 639-1 code; `None` where there are none.
        pub(super) fn stop_words_of(code: &str) -> Option<&'static StopWords> {
            match code {
                $($code => {
                    static WORDS: StopWords = StopWords(LazyLock::new(|| listed($code)));
                    Some(&WORDS)
                })+
                _ => None,
            }
        }
    };
}

languages! { "ar" "da" "nl" "fi" "fr" "de" "el" "hu" "it" "no" "pt" "ro" "ru" "es" "sv" "tr" }

/// The words of a list, in the form and the pieces that words of texts have.
fn listed(code: &str) -> HashSet<String, ahash::RandomState> {
    let pieces = stop_words::get(code).iter().flat_map(|word| word.split(APOSTROPHES));
    let form = |piece: &str| {
        let mut word = String::new();
        lowered_composed(piece, code, &mut word);
        word
    };
    pieces.filter(|piece| !piece.is_empty()).map(form).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_whole() {
        assert_eq!(WORDS.split_whitespace().count(), 124);
        assert_eq!(PIECES.split_whitespace().count(), 22);
        assert_eq!(ALL.len(), 146, "no word twice");
        for word in ["the", "yourselves", "ought", "very", "shan", "ll", "m"] {
            assert!(is_stop_word(word), "{word}");
        }
        for word in ["can", "will", "won", "let", "us", "mine", "The", ""] {
            assert!(!is_stop_word(word), "{word}");
        }
    }

    #[test]
    fn languages_have_lists() {
        for (code, words) in [
            ("ar", "في من"),
            ("da", "og på"),
            ("nl", "de van"),
            ("fi", "ja on"),
            ("fr", "l qu les été"),
            ("de", "der für"),
            ("el", "και ο δ"),
            ("hu", "és a"),
            ("it", "il perché"),
            ("no", "og på"),
            ("pt", "não de"),
            ("ro", "şi în"),
            ("ru", "и не"),
            ("es", "el también"),
            ("sv", "och på"),
            ("tr", "ve için"),
        ] {
            let list = stop_words_of(code).unwrap();
            for word in words.split(' ') {
                assert!(list.contains(word), "{code} {word}");
            }
            assert!(!list.contains("") && !list.contains("xyz"));
        }
        assert!(stop_words_of("ta").is_none());
    }

    /// With other lists the same question has other answers.
    #[test]
    fn lists_stay_as_they_are() {
        let mut checksum = 0;
        for code in
            ["ar", "da", "nl", "fi", "fr", "de", "el", "hu", "it", "no", "pt", "ro", "ru", "es", "sv", "tr"]
        {
            let mut words: Vec<String> = listed(code).into_iter().collect();
            words.sort_unstable();
            checksum = crc32c::crc32c_append(checksum, words.join(" ").as_bytes());
        }
        assert_eq!(checksum, 2_046_232_344);
    }
}
