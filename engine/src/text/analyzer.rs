//! From text to terms: how a text is cut into tokens, and what becomes of each.

use super::normal::{cased, folded, lowered_composed};
use super::segments::{APOSTROPHES, WORD_MAX_BYTES, character_at, is_cjk, segment_at, window_at};
use super::stop_words::{StopWords, is_stop_word, stop_words_of};
use crate::payload::words::{is_token_char, lowered, words};
use rust_stemmers::{Algorithm, Stemmer};
use std::borrow::Cow;

/// Tokens of a document that are looked at, stop words included; what comes after is not indexed.
pub const MAX_TOKENS: usize = 1 << 20;

/// English words of at most this many bytes are not stemmed.
const UNSTEMMED_BYTES: usize = 2;

/// Longer words are not stemmed: no language has them, and some stemmers take a time that grows with the square of the length.
const STEMMED_BYTES_MAX: usize = 256;

/// What an analyzer does with words.
#[derive(Clone, Copy)]
enum Way {
    /// The analyzer of the contract.
    English,
    /// Stems, without the stop words of the language with this ISO 639-1 code.
    Stems(Algorithm, &'static str),
    /// Pairs of characters where scripts do not separate words.
    Bigrams,
    /// Words without case and diacritics.
    Folded,
}

macro_rules! analyzers {
    ($($variant:ident $name:literal $(#[$about:meta])+ = $way:expr;)*) => {
        /// How the texts of a collection become terms. Documents and queries go through the same analyzer.
        ///
        /// `English` takes maximal runs of Unicode letters and decimal digits, lower-cased per character, without the stop words of the
        /// Snowball list and the pieces its contractions fall into, stemmed by Porter2. It keeps accents.
        ///
        /// Every other analyzer takes the words of UAX #29, which it divides at apostrophes. A language brings them into the composed form NFKC
        /// and into lower case, leaves its stop words out, and stems by the algorithm of Snowball.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Analyzer {
            $($(#[$about])+ $variant,)*
        }

        impl Analyzer {
            /// Every analyzer, the default first.
            pub const ALL: &'static [Analyzer] = &[$(Analyzer::$variant),*];

            /// Its name in configurations.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Analyzer::$variant => $name,)*
                }
            }

            const fn way(self) -> Way {
                match self {
                    $(Analyzer::$variant => $way,)*
                }
            }
        }
    };
}

analyzers! {
    English "english" /// English stems without stop words.
        = Way::English;
    Arabic "arabic" /// Arabic stems without stop words.
        = Way::Stems(Algorithm::Arabic, "ar");
    Danish "danish" /// Danish stems without stop words.
        = Way::Stems(Algorithm::Danish, "da");
    Dutch "dutch" /// Dutch stems without stop words.
        = Way::Stems(Algorithm::Dutch, "nl");
    Finnish "finnish" /// Finnish stems without stop words.
        = Way::Stems(Algorithm::Finnish, "fi");
    French "french" /// French stems without stop words.
        = Way::Stems(Algorithm::French, "fr");
    German "german" /// German stems without stop words.
        = Way::Stems(Algorithm::German, "de");
    Greek "greek" /// Greek stems without stop words.
        = Way::Stems(Algorithm::Greek, "el");
    Hungarian "hungarian" /// Hungarian stems without stop words.
        = Way::Stems(Algorithm::Hungarian, "hu");
    Italian "italian" /// Italian stems without stop words.
        = Way::Stems(Algorithm::Italian, "it");
    Norwegian "norwegian" /// Norwegian stems without stop words.
        = Way::Stems(Algorithm::Norwegian, "no");
    Portuguese "portuguese" /// Portuguese stems without stop words.
        = Way::Stems(Algorithm::Portuguese, "pt");
    Romanian "romanian" /// Romanian stems without stop words.
        = Way::Stems(Algorithm::Romanian, "ro");
    Russian "russian" /// Russian stems without stop words.
        = Way::Stems(Algorithm::Russian, "ru");
    Spanish "spanish" /// Spanish stems without stop words.
        = Way::Stems(Algorithm::Spanish, "es");
    Swedish "swedish" /// Swedish stems without stop words.
        = Way::Stems(Algorithm::Swedish, "sv");
    Tamil "tamil" /// Tamil stems. There is no list of stop words.
        = Way::Stems(Algorithm::Tamil, "ta");
    Turkish "turkish" /// Turkish stems without stop words.
        = Way::Stems(Algorithm::Turkish, "tr");
    Cjk "cjk" /// Every two neighbouring characters of Han, Hiragana, Katakana and Hangul are a term, and so is a character that stands alone.
        /// Words of other scripts are terms in the form NFKC and without case.
        = Way::Bigrams;
    Folding "folding" /// Words without case and diacritics, in the form NFKC.
        = Way::Folded;
}

impl Default for Analyzer {
    fn default() -> Analyzer {
        Analyzer::ALL[0]
    }
}

/// How far the analysis of a text has come.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// Bytes that were analyzed.
    at: usize,
    /// Whether these end within something that goes on: for [`Analyzer::English`], within a token of which enough has been seen; for
    /// [`Analyzer::Cjk`], within a run of characters that make pairs.
    is_inside: bool,
    /// Tokens that were looked at.
    tokens: usize,
    /// The end of the segment that is being analyzed. Its words are taken one at a time, so that a pause can fall between them.
    segment_end: usize,
    /// For [`Analyzer::Cjk`]: no character that makes pairs lies between the end of the analyzed bytes and this offset. The offset is kept because
    /// the next such character may be many segments away, and each of these would search for it again.
    plain_end: usize,
}

impl Progress {
    /// Bytes that were analyzed.
    pub fn bytes(&self) -> usize {
        self.at
    }
}

impl Analyzer {
    /// About what the analysis of a byte of text takes, in nanoseconds.
    pub(crate) const fn ns_per_byte(self) -> usize {
        match self.way() {
            Way::English => 60,
            _ => 120,
        }
    }

    /// About what the analysis of a token takes at most, in nanoseconds: nearly all of it is the stem.
    pub(super) const fn ns_per_token(self) -> usize {
        match self.way() {
            Way::English => 300,
            _ => 1200,
        }
    }

    /// Calls `visit` with the position and the text of each term, in the order of the text. A position counts the tokens before the term, stop
    /// words included. It takes [`Self::ns_per_byte`].
    pub(super) fn analyze(self, text: &str, mut visit: impl FnMut(usize, &str)) {
        if let Way::English = self.way() {
            analyze_english(words(text).take(MAX_TOKENS), 0, |position, _, term| {
                if let Some(term) = term {
                    visit(position, term);
                }
            });
        } else {
            let mut progress = Progress::default();
            while self.analyze_some(text, &mut progress, MAX_TOKENS, &mut visit) {}
        }
    }

    /// Goes on with the analysis of a text by about `tokens` tokens, or the time that it takes to pass over as many bytes as the tokens could
    /// have. Returns false once there are no more. In pieces of any size the terms are those of [`Self::analyze`].
    pub(super) fn analyze_some(
        self,
        text: &str,
        progress: &mut Progress,
        tokens: usize,
        mut visit: impl FnMut(usize, &str),
    ) -> bool {
        self.analyze_words_some(text, progress, tokens, |position, _, term| {
            if let Some(term) = term {
                visit(position, term);
            }
        })
    }

    /// A word with each letter as the stemmer leaves it, if that is another word: the stemmers of some languages write letters without their
    /// marks, so that the terms of words that begin with this one begin otherwise.
    pub(super) fn stemmed_letters(self, word: &str) -> Option<Box<str>> {
        let Way::Stems(algorithm, _) = self.way() else { return None };
        if word.len() > STEMMED_BYTES_MAX {
            return None;
        }
        let stemmer = Stemmer::create(algorithm);
        let mut letters = String::with_capacity(word.len());
        for (at, letter) in word.char_indices() {
            let letter = &word[at..at + letter.len_utf8()];
            let stem = if letter.is_ascii() { Cow::Borrowed(letter) } else { stemmer.stem(letter) };
            letters.push_str(if stem.is_empty() { letter } else { &stem });
        }
        (letters != word).then(|| letters.into())
    }

    /// Goes on as [`Self::analyze_some`] does, and calls `visit` with the position of each word, the word before it is stemmed, and its term, which a
    /// stop word lacks.
    pub(super) fn analyze_words_some(
        self,
        text: &str,
        progress: &mut Progress,
        tokens: usize,
        visit: impl FnMut(usize, &str, Option<&str>),
    ) -> bool {
        let left = MAX_TOKENS - progress.tokens;
        match self.way() {
            Way::English => {
                let Progress { at, is_inside, tokens: looked, .. } = progress;
                let (piece, ends_inside) = piece_of(&text[*at..], tokens, *is_inside);
                let unseen = if *is_inside { piece.trim_start_matches(is_token_char) } else { piece };
                *looked += analyze_english(words(unseen).take(left), *looked, visit);
                *at += piece.len();
                *is_inside = ends_inside;
            }
            way => {
                let most_bytes = progress.at.saturating_add(tokens.saturating_mul(PIECE_BYTES_PER_TOKEN));
                let most_tokens = progress.tokens + tokens.min(left);
                let mut words = Words::new(way, visit);
                while progress.at < text.len().min(most_bytes) && progress.tokens < most_tokens {
                    words.take(text, progress);
                }
            }
        }
        progress.at < text.len() && progress.tokens < MAX_TOKENS
    }
}

/// Analyzes tokens of which the first has this position; returns how many there were.
fn analyze_english<'t>(
    tokens: impl Iterator<Item = &'t str>,
    first: usize,
    mut visit: impl FnMut(usize, &str, Option<&str>),
) -> usize {
    let stemmer = Stemmer::create(Algorithm::English);
    let mut word = String::new();
    let mut looked = 0;
    for token in tokens {
        let position = first + looked;
        looked += 1;
        word.clear();
        word.extend(lowered(&token[..token.floor_char_boundary(WORD_MAX_BYTES)]));
        if is_stop_word(&word) {
            visit(position, &word, None);
        } else if word.len() <= UNSTEMMED_BYTES {
            visit(position, &word, Some(&word));
        } else {
            visit(position, &word, Some(&stemmer.stem(&word)));
        }
    }
    looked
}

/// What turns segments into terms, with its buffers.
struct Words<F> {
    way: Way,
    stemmer: Option<Stemmer>,
    stop_words: Option<&'static StopWords>,
    word: String,
    visit: F,
}

impl<F: FnMut(usize, &str, Option<&str>)> Words<F> {
    fn new(way: Way, visit: F) -> Words<F> {
        let (stemmer, stop_words) = match way {
            Way::Stems(algorithm, code) => (Some(Stemmer::create(algorithm)), stop_words_of(code)),
            _ => (None, None),
        };
        Words { way, stemmer, stop_words, word: String::new(), visit }
    }

    /// Analyzes the next word of a text that goes on, or passes over what is none: at most one token.
    fn take(&mut self, text: &str, progress: &mut Progress) {
        if progress.at >= progress.segment_end {
            let rest = &text[progress.at..];
            if let Way::Bigrams = self.way
                && rest.starts_with(is_cjk)
            {
                return self.take_pair(rest, progress);
            }
            progress.segment_end = progress.at + self.next_segment(rest, progress).len();
        }
        let segment = &text[progress.at..progress.segment_end];
        let part = segment.split(APOSTROPHES).next().unwrap_or(segment);
        let apostrophe = segment[part.len()..].chars().next().map_or(0, char::len_utf8);
        progress.at += part.len() + apostrophe;
        if part.contains(char::is_alphanumeric) {
            self.word(part, progress.tokens);
            progress.tokens += 1;
        }
    }

    /// The segment at the beginning of what is left of a text. A character that makes pairs ends it, also within a segment of UAX #29. What is
    /// behind that character is not looked at: a run of such segments would otherwise be looked through from each of its characters.
    fn next_segment<'t>(&self, rest: &'t str, progress: &mut Progress) -> &'t str {
        let Way::Bigrams = self.way else { return segment_at(rest) };
        let window = window_at(rest);
        let known = progress.plain_end.saturating_sub(progress.at);
        let plain = window[known..].find(is_cjk).map_or(window.len(), |more| known + more);
        progress.plain_end = progress.at + plain;
        segment_at(&window[..plain])
    }

    /// Analyzes the character that a text begins with, which makes a pair with the next one.
    fn take_pair(&mut self, rest: &str, progress: &mut Progress) {
        let character = character_at(rest);
        let rest = &rest[character.len()..];
        self.word.clear();
        cased(character, &mut self.word);
        let goes_on = rest.starts_with(is_cjk);
        if goes_on {
            cased(character_at(rest), &mut self.word);
        }
        if goes_on || !progress.is_inside {
            (self.visit)(progress.tokens, &self.word, Some(&self.word));
        }
        progress.is_inside = goes_on;
        progress.at += character.len();
        progress.tokens += 1;
    }

    fn word(&mut self, part: &str, position: usize) {
        let Words { way, stemmer, stop_words, word, visit } = self;
        word.clear();
        match way {
            Way::Stems(_, code) => lowered_composed(part, code, word),
            // English has a way of its own.
            Way::English | Way::Bigrams => cased(part, word),
            Way::Folded => folded(part, word),
        }
        word.truncate(word.floor_char_boundary(WORD_MAX_BYTES));
        if word.is_empty() {
            return;
        }
        if stop_words.is_some_and(|stop_words| stop_words.contains(word)) {
            return visit(position, word, None);
        }
        let stem =
            stemmer.as_ref().filter(|_| word.len() <= STEMMED_BYTES_MAX).map(|stemmer| stemmer.stem(word));
        // Some words are nothing but endings.
        let term = stem.as_deref().filter(|stem| !stem.is_empty()).unwrap_or(word);
        visit(position, word, Some(term));
    }
}

/// The beginning of `text` that has at most so many tokens, and whether it ends within a token: only within one of which it has
/// [`WORD_MAX_BYTES`], or that `begins_inside`. At most 16 bytes per token are looked at, and those.
fn piece_of(text: &str, tokens: usize, begins_inside: bool) -> (&str, bool) {
    let (mut left, mut in_token) = (tokens, begins_inside);
    let mut enough_at = 0;
    for (at, character) in text.char_indices() {
        let is_token = is_token_char(character);
        let is_long = at > tokens * PIECE_BYTES_PER_TOKEN;
        if is_token && !in_token {
            if left == 0 || is_long {
                return (&text[..at], false);
            }
            left -= 1;
            enough_at = at + WORD_MAX_BYTES;
        } else if is_long && (!is_token || at >= enough_at) {
            return (&text[..at], is_token);
        }
        in_token = is_token;
    }
    (text, false)
}

/// Bytes of a piece for each of its tokens, at most.
const PIECE_BYTES_PER_TOKEN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::segments::looked;
    use crate::text::terms::{DocumentTerms, LongDocument};
    use ahash::RandomState;
    use proptest::prelude::*;
    use unicode_normalization::UnicodeNormalization;
    use unicode_segmentation::UnicodeSegmentation;

    fn terms(analyzer: Analyzer, text: &str) -> Vec<String> {
        let mut terms = Vec::new();
        analyzer.analyze(text, |_, term| terms.push(term.to_owned()));
        terms
    }

    fn check(text: &str, expected: &[&str]) {
        assert_eq!(terms(Analyzer::English, text), expected, "{text}");
    }

    #[test]
    fn terms_are_stems_of_what_is_no_stop_word() {
        check("", &[]);
        check("The who of it all", &[]);
        check("Running runners ran", &["run", "runner", "ran"]);
        check("generously generalizations", &["generous", "general"]);
        check("ponies, skies; dying!", &["poni", "sky", "die"]);
        check("consign consigned consigning consignment", &["consign"; 4]);
        // Pieces of contractions go, except those that are words of their own.
        check("I'm sure you're wouldn't we'll they'd", &["sure"]);
        check("can't won't let's cannot", &["can", "won", "let"]);
        // Short words stay, by bytes.
        check("us as go ox é ss", &["us", "go", "ox", "é", "ss"]);
        check("Café CRÈME naïve", &["café", "crème", "naïv"]);
        check("x86-64 3rd 2024", &["x86", "64", "3rd", "2024"]);
        check("東京 tower", &["東京", "tower"]);
    }

    #[test]
    fn languages_have_stems_and_stop_words() {
        use Analyzer::*;
        for (analyzer, text, expected) in [
            (Arabic, "الكتاب في المكتبات", vec!["كتاب", "مكتب"]),
            (Danish, "Bøgerne og bogen er på hylderne", vec!["bøg", "bog", "hyld"]),
            (Dutch, "De fietsen van de fietser", vec!["fiets", "fietser"]),
            (Finnish, "Talossa ja taloissa", vec!["talo", "talo"]),
            (French, "L'homme qu’il aime, les hommes", vec!["homm", "aim", "homm"]),
            (German, "Die Häuser und das Haus an der Straße", vec!["haus", "haus", "strass"]),
            (Greek, "Οι άνθρωποι και ο άνθρωπος", vec!["ανθρωπ", "ανθρωπ"]),
            (Hungarian, "A házak és a házban", vec!["ház", "ház"]),
            (Italian, "L'amico degli amici", vec!["amic", "amic"]),
            (Norwegian, "Bøkene og husene", vec!["bøk", "hus"]),
            (Portuguese, "As nações e a nação", vec!["naçõ", "naçã"]),
            (Romanian, "Copiii și copilul", vec!["copii", "copil"]),
            (Russian, "Книги и книга в библиотеках", vec!["книг", "книг", "библиотек"]),
            (Spanish, "Los gatos y la gata", vec!["gat", "gat"]),
            (Swedish, "Husen och huset", vec!["hus", "huset"]),
            (Tamil, "புத்தகங்கள்", vec!["புத்தகம்"]),
            (Turkish, "IŞIKLAR ve ışık, İstanbul'da", vec!["ışık", "ışık", "istanbul"]),
        ] {
            assert_eq!(terms(analyzer, text), expected, "{analyzer:?} {text}");
            // However its letters are composed.
            assert_eq!(terms(analyzer, &text.nfd().collect::<String>()), expected, "{analyzer:?}");
        }
    }

    #[test]
    fn words_are_those_of_unicode() {
        use Analyzer::*;
        for (analyzer, text, expected) in [
            (Folding, "Crème brûlée, ÉLAN; don't", vec!["creme", "brulee", "elan", "don", "t"]),
            (
                Folding,
                "The rivers of Øresund: 3.14 and example.com",
                vec!["the", "rivers", "of", "øresund", "3.14", "and", "example.com"],
            ),
            (Folding, "हिन्दी भाषा", vec!["हिन्दी", "भाषा"]),
            (Cjk, "東京都に住む", vec!["東京", "京都", "都に", "に住", "住む"]),
            (Cjk, "京", vec!["京"]),
            (Cjk, "ｶﾞｷﾞ ガギ", vec!["ガギ", "ガギ"]),
            (
                Cjk,
                "한국어 a.한 abc한국 Café ＡＢＣ",
                vec!["한국", "국어", "a", "한", "abc", "한국", "café", "abc"],
            ),
            (Cjk, "ビール、酒", vec!["ビー", "ール", "酒"]),
            (German, "東京 tower", vec!["東", "京", "tow"]),
        ] {
            assert_eq!(terms(analyzer, text), expected, "{analyzer:?} {text}");
        }
    }

    #[test]
    fn positions_count_tokens_that_make_no_term() {
        let positions = |analyzer: Analyzer, text| {
            let mut found = Vec::new();
            analyzer.analyze(text, |position, term| found.push((position, term.to_owned())));
            found
        };
        let of = |expected: &[(usize, &str)]| -> Vec<(usize, String)> {
            expected.iter().map(|(position, term)| (*position, (*term).to_owned())).collect()
        };
        assert_eq!(positions(Analyzer::English, "King of the hill"), of(&[(0, "king"), (3, "hill")]));
        assert_eq!(positions(Analyzer::German, "König der Berge"), of(&[(0, "konig"), (2, "berg")]));
        assert_eq!(positions(Analyzer::Cjk, "東京都 x"), of(&[(0, "東京"), (1, "京都"), (3, "x")]));
    }

    /// Pieces of texts in many scripts.
    const PARTS: &[&str] = &[
        " ",
        " ",
        " ",
        ", ",
        "'",
        "’",
        ".",
        "-",
        "\n",
        "a",
        "b",
        "the",
        "die",
        "les",
        "l",
        "Häuser",
        "hommes",
        "RIVERS",
        "running",
        "É",
        "e\u{301}",
        "\u{301}",
        "ß",
        "İ",
        "I",
        "ﬁ",
        "книги",
        "и",
        "άνθρωποι",
        "και",
        "الكتاب",
        "في",
        "தமிழ்",
        "हिन्दी",
        "ทุกข์",
        "3",
        "14",
        "ｱ",
        "ﾞ",
        "東",
        "京",
        "に",
        "カ",
        "ー",
        "한",
        "국",
        "々",
        "\u{1F600}",
        "_",
        "②",
    ];

    fn texts() -> impl Strategy<Value = String> {
        proptest::collection::vec(proptest::sample::select(PARTS), 0..40).prop_map(|parts| parts.concat())
    }

    /// Whether a character of [`PARTS`] is of the scripts that make pairs.
    fn makes_pairs(character: char) -> bool {
        "ｱﾞ東京にカー한국々".contains(character)
    }

    /// What the analyzers do, slowly: the text as a whole, lists of stop words that are looked through.
    fn twin(analyzer: Analyzer, text: &str) -> Vec<String> {
        let pieces = |text: &str| -> Vec<String> {
            let words = text.unicode_words().flat_map(|word| word.split(['\'', '’']));
            words.filter(|piece| piece.chars().any(char::is_alphanumeric)).map(str::to_owned).collect()
        };
        let upper_lower =
            |text: &str| text.to_uppercase().chars().flat_map(char::to_lowercase).collect::<String>();
        let no_case =
            |piece: &String| upper_lower(&piece.nfkd().collect::<String>()).nfc().collect::<String>();
        match analyzer.way() {
            Way::English => words(text)
                .map(|word| lowered(word).collect::<String>())
                .filter(|word| !is_stop_word(word))
                .map(|word| {
                    if word.len() <= 2 {
                        word
                    } else {
                        Stemmer::create(Algorithm::English).stem(&word).into_owned()
                    }
                })
                .collect(),
            Way::Stems(algorithm, code) => {
                let lower = |piece: &String| -> String {
                    let composed: String = piece.nfkc().collect();
                    let of = |c: char| match c {
                        'I' if code == "tr" => 'ı',
                        'İ' => 'i',
                        'ș' | 'Ș' if code == "ro" => 'ş',
                        c => c.to_lowercase().next().unwrap(),
                    };
                    composed.chars().map(of).collect()
                };
                let stop_words = if code == "ta" { &[] } else { stop_words::get(code) };
                let is_stop = |word: &String| {
                    stop_words
                        .iter()
                        .any(|stop| stop.split(['\'', '’']).any(|part| lower(&part.to_owned()) == *word))
                };
                let stem = |word: String| {
                    let stem = Stemmer::create(algorithm).stem(&word).into_owned();
                    if stem.is_empty() { word } else { stem }
                };
                pieces(text).iter().map(lower).filter(|word| !is_stop(word)).map(stem).collect()
            }
            Way::Folded => {
                let bare = |piece: &String| -> String {
                    let marks = ['\u{300}'..='\u{345}', '\u{650}'..='\u{652}'];
                    let is_mark = |c: &char| marks.iter().any(|marks| marks.contains(c));
                    piece.nfkd().filter(|c| !is_mark(c)).collect()
                };
                pieces(text)
                    .iter()
                    .map(bare)
                    .map(|piece| no_case(&piece))
                    .filter(|word| !word.is_empty())
                    .collect()
            }
            Way::Bigrams => {
                let mut terms = Vec::new();
                let mut chars: Vec<char> = text.chars().collect();
                chars.push(' ');
                // Runs of characters that make pairs, and what is between them.
                let mut run: Vec<char> = Vec::new();
                for character in chars {
                    // A mark belongs to the character before it.
                    let same = run.first().is_none_or(|first| makes_pairs(*first) == makes_pairs(character))
                        || character == '\u{301}';
                    if !same || character == ' ' {
                        terms.extend(twin_of_run(&run.iter().collect::<String>(), &pieces, &no_case));
                        run.clear();
                    }
                    run.push(character);
                }
                terms
            }
        }
    }

    fn twin_of_run(
        run: &str,
        pieces: &impl Fn(&str) -> Vec<String>,
        no_case: &impl Fn(&String) -> String,
    ) -> Vec<String> {
        if !run.starts_with(makes_pairs) {
            return pieces(run).iter().map(no_case).collect();
        }
        let units: Vec<String> = run.graphemes(true).map(|unit| no_case(&unit.to_owned())).collect();
        match &units[..] {
            [] => Vec::new(),
            [only] => vec![only.clone()],
            units => units.windows(2).map(|pair| pair.concat()).collect(),
        }
    }

    /// Where the segments of a text end: those of UAX #29, each cut before the first character in it that makes pairs.
    fn ends_of_segments(text: &str) -> Vec<usize> {
        let (mut ends, mut at) = (Vec::new(), 0);
        while at < text.len() {
            let rest = &text[at..];
            at += match rest.starts_with(is_cjk) {
                true => character_at(rest).len(),
                false => {
                    let segment = segment_at(rest);
                    let cut = segment.find(is_cjk).map_or(segment, |end| segment_at(&segment[..end]));
                    cut.len()
                }
            };
            ends.push(at);
        }
        ends
    }

    proptest! {
        /// Segments end where they do when each is looked through as a whole.
        #[test]
        fn segments_end_before_characters_that_make_pairs(
            text in prop_oneof![texts(), "[a1_'.:,\"\u{301}\u{200d}\u{5d0}\u{600}カ가東ー\u{1F1E6}\u{1F600} ]{0,40}"],
        ) {
            let (mut progress, mut ends) = (Progress::default(), Vec::new());
            let mut words = Words::new(Way::Bigrams, |_, _: &str, _: Option<&str>| ());
            while progress.at < text.len() {
                words.take(&text, &mut progress);
                if progress.at >= progress.segment_end {
                    ends.push(progress.at);
                }
            }
            prop_assert_eq!(ends, ends_of_segments(&text));
        }

        #[test]
        fn terms_are_those_of_the_twin(text in texts(), at in 0..Analyzer::ALL.len()) {
            let analyzer = Analyzer::ALL[at];
            prop_assert_eq!(terms(analyzer, &text), twin(analyzer, &text), "{:?}", analyzer);
        }

        /// In pieces of any size, a long document has the terms of the whole text.
        #[test]
        fn a_document_in_pieces_has_the_same_terms(
            text in prop_oneof![
                "([a-cé]{1,3}|the|[ ,.]{1,9}){0,30}((é{2040,2060}|b{4090,9000})?([a-cé]{1,3}|the|[ ,.]{1,9}){0,9}){0,3}",
                "([a-cé]{1,3}|東{1,9}|[ ,.]{1,9}){0,30}((é{2040,2060}|(한){1300,1400}|b{4090,9000})?([a-cé]{1,3}|京|[ ,.]{1,9}){0,9}){0,3}",
                texts(),
            ],
            tokens in 1usize..9,
            at in 0..Analyzer::ALL.len(),
        ) {
            let analyzer = Analyzer::ALL[at];
            let mut whole = DocumentTerms::default();
            let length = whole.fill(analyzer, &text);
            let mut long = LongDocument::new(&text, analyzer, RandomState::with_seed(1));
            while long.analyze_some(tokens) {}
            prop_assert_eq!(long.length(), length);
            let mut found: Vec<(String, u32)> = Vec::new();
            for bucket in 0.. {
                let Some(terms) = long.terms(bucket) else { break };
                found.extend(terms.map(|(term, frequency)| (term.to_owned(), frequency)));
            }
            found.sort_unstable();
            let expected: Vec<(String, u32)> = whole.iter().map(|(term, frequency)| (term.to_owned(), frequency)).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn any_text_is_analyzed(
            text in any::<String>(),
            words in "[a-z]{0,24}( [a-zé']{0,12}){0,8}",
            scripts in "[\\p{L}\\p{M}\\p{N} ]{0,40}",
            at in 0..Analyzer::ALL.len(),
        ) {
            let analyzer = Analyzer::ALL[at];
            for text in [text, words, scripts] {
                let terms = terms(analyzer, &text);
                prop_assert!(terms.iter().all(|term| !term.is_empty() && term.len() <= 2 * WORD_MAX_BYTES));
                // What a query of the text itself finds is the text.
                prop_assert_eq!(terms, super::tests::terms(analyzer, &text));
            }
        }
    }

    #[test]
    fn pieces_of_a_text_are_bounded() {
        let text = format!("a bc{} d", " ".repeat(1000));
        let piece = |text, tokens| piece_of(text, tokens, false).0;
        assert_eq!((piece(&text, 1), piece(&text, 5).len()), ("a ", 81));
        assert!(words(piece(&text[81..], 2)).next().is_none());
        // A long word is cut where enough of it has been seen, and passed over from there.
        let word = "x".repeat(50_000);
        assert_eq!(piece_of(&word, 3, false), (&word[..WORD_MAX_BYTES], true));
        assert_eq!(piece_of(&word, 3, true), (&word[..49], true));
    }

    #[test]
    fn work_between_pauses_is_bounded() {
        for &analyzer in Analyzer::ALL {
            for text in [
                "x".repeat(50_000),
                " ".repeat(50_000),
                "東".repeat(50_000),
                "'".repeat(50_000),
                "\u{fdfa}".repeat(9000),
                "ab'".repeat(9000),
                "a b c ".repeat(9000),
                "a가".repeat(9000),
                "1가".repeat(9000),
                "_カ".repeat(9000),
                "a가.".repeat(9000),
                "가_'a’".repeat(9000),
                "\u{600}東".repeat(9000),
            ] {
                let mut progress = Progress::default();
                let (mut pieces, mut longest, mut most, mut found) = (1, 0, 0, 0);
                looked::take();
                while analyzer.analyze_some(&text, &mut progress, 10, |_, term| {
                    longest = longest.max(term.len());
                    found += 1;
                }) {
                    most = most.max(std::mem::take(&mut found));
                    pieces += 1;
                }
                most = most.max(found);
                let begins: String = text.chars().take(9).collect();
                assert!(most <= 10, "{analyzer:?} {most} tokens in a piece of {begins:?}");
                let per_byte = looked::take() / text.len();
                assert!(per_byte < 8, "{analyzer:?} looks {per_byte} times at each byte of {begins:?}");
                let least = text.len() / (10 * PIECE_BYTES_PER_TOKEN + WORD_MAX_BYTES);
                assert!(pieces >= least && longest <= WORD_MAX_BYTES, "{analyzer:?} {pieces} {longest}");
            }
            let many = "ab ".repeat(MAX_TOKENS + 5);
            assert_eq!(terms(analyzer, &many).len(), MAX_TOKENS, "{analyzer:?}");
        }
        assert_eq!(terms(Analyzer::Cjk, &"東".repeat(MAX_TOKENS + 5)).len(), MAX_TOKENS);
        // A longer word is several.
        assert_eq!(terms(Analyzer::Folding, &"x".repeat(5000)), ["x".repeat(4096), "x".repeat(904)]);
    }
}
