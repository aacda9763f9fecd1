//! Words too common to search for.

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

/// Whether a token, lower-cased, is a stop word.
pub(super) fn is_stop_word(word: &str) -> bool {
    ALL.contains(word)
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
}
