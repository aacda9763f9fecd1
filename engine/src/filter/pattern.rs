//! A regular expression as a filter asks it: whether it is found anywhere in a text.
//!
//! The search is one pass over the text by an automaton whose states are computed as they are first met, and kept in a cache of
//! bounded size. A byte that leads to a known state costs a nanosecond or two, whatever the expression. Some expressions have more
//! states than any cache holds (`(0|1)*1(0|1){200}`), and a text can be made to meet a new one with nearly every byte, at a
//! microsecond or more each. The library's own search falls back on another engine there, which cannot be left in the middle. This one
//! can be left after any byte, counts what it does, and goes on where it was.

use super::allowance::Allowance;
use super::re2;
use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{Compiler, Config, WhichCaptures};
use regex_automata::util::pool::{Pool, PoolGuard};
use regex_automata::util::prefilter::Prefilter;
use regex_automata::{Anchored, Input, MatchKind, Span};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::literal::{Extractor, Literal};
use regex_syntax::hir::{Hir, Look};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// Bytes of the states that are kept of one expression, more where it is so large that a few states do not fit.
const CACHE_BYTES: usize = 1 << 20;
/// Deepest nesting of a regular expression.
const NESTED_MAX: u32 = 100;
/// Most beginnings of an expression that are looked up in the index.
const BEGINNINGS_MAX: usize = 64;

/// What a byte costs, in nanoseconds.
const BYTE_NS: u64 = 2;
/// What looking for the literals that a match begins with costs: so many bytes in a nanosecond, and something for each find.
const LITERAL_BYTES_PER_NS: u64 = 8;
const LITERAL_NS: u64 = 40;
/// Bytes looked through for a literal in one call.
const LITERAL_WINDOW: usize = 16 << 10;
/// What computing a state costs at most: something for itself, and something for each state of the expression's own automaton, all of
/// which it may consist of.
const STATE_NS: u64 = 300;
const STATE_MEMBER_NS: u64 = 6;

/// Why an expression is refused.
#[derive(Debug)]
pub(super) enum PatternError {
    /// What is wrong with it.
    Syntax(String),
    /// It is too large once compiled.
    TooLarge,
}

type MakeCache = Box<dyn Fn() -> Cache + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// A compiled expression.
pub(crate) struct Pattern {
    dfa: DFA,
    /// One is lent for each search under way.
    caches: Pool<Cache, MakeCache>,
    /// Finds the literals that any match begins with.
    literals: Option<Prefilter>,
    anchored: Anchored,
    /// What computing a state costs at most.
    state_ns: u64,
    /// Every match begins with one of these at the beginning of a text; `None` when a match may begin anywhere or with anything.
    pub(super) beginnings: Option<Box<[Box<str>]>>,
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pattern").field("beginnings", &self.beginnings).finish_non_exhaustive()
    }
}

/// A search that may be under way.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    pattern: &'a Pattern,
    cache: PoolGuard<'a, Cache, MakeCache>,
    state: LazyStateID,
    at: usize,
}

impl Pattern {
    /// Compiles an expression in the syntax of RE2, to at most `program_max_bytes`; also the bytes it has become.
    ///
    /// # Errors
    /// [`PatternError`].
    pub(super) fn new(pattern: &str, program_max_bytes: usize) -> Result<(Pattern, usize), PatternError> {
        let translated = re2::translate(pattern).map_err(PatternError::Syntax)?;
        let hir = ParserBuilder::new().nest_limit(NESTED_MAX).build().parse(&translated);
        let hir = hir.map_err(|error| {
            // The library's text draws the pattern over several lines; its last line is the reason.
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            PatternError::Syntax(reason.to_owned())
        })?;
        let config =
            Config::new().which_captures(WhichCaptures::None).nfa_size_limit(Some(program_max_bytes));
        let nfa = Compiler::new().configure(config).build_from_hir(&hir);
        let nfa = nfa.map_err(|error| match error.size_limit() {
            Some(_) => PatternError::TooLarge,
            None => PatternError::Syntax(error.to_string()),
        })?;
        let bytes = nfa.memory_usage();
        let literals = Prefilter::from_hir_prefix(MatchKind::LeftmostFirst, &hir).filter(Prefilter::is_fast);
        let is_anchored = nfa.is_always_start_anchored();
        let literals =
            literals.filter(|literals| !is_anchored && literals.max_needle_len() < LITERAL_WINDOW / 2);
        let config = DFA::config()
            // All of them, so that the search can go on after a match that does not count, see `Scan::go_on`.
            .match_kind(MatchKind::All)
            .specialize_start_states(literals.is_some())
            .cache_capacity(CACHE_BYTES)
            .skip_cache_capacity_check(true);
        let state_ns = STATE_NS + STATE_MEMBER_NS * nfa.states().len() as u64;
        let dfa = DFA::builder().configure(config).build_from_nfa(nfa);
        let dfa = dfa.map_err(|error| PatternError::Syntax(error.to_string()))?;
        let made = dfa.clone();
        let caches: Pool<Cache, MakeCache> = Pool::new(Box::new(move || made.create_cache()));
        let anchored = if is_anchored { Anchored::Yes } else { Anchored::No };
        let beginnings = beginnings(&hir);
        Ok((Pattern { dfa, caches, literals, anchored, state_ns, beginnings }, bytes))
    }

    /// Begins to search a text.
    pub(super) fn scan(&self, text: &str) -> Scan<'_> {
        let mut cache = self.caches.get();
        let state = self.start(&mut cache, text, 0);
        Scan { pattern: self, cache, state, at: 0 }
    }

    fn start(&self, cache: &mut Cache, text: &str, at: usize) -> LazyStateID {
        let input = Input::new(text).range(at..).anchored(self.anchored);
        self.dfa.start_state_forward(cache, &input).expect("no byte makes it quit, and it never gives up")
    }
}

impl Scan<'_> {
    /// Whether the expression is found in the text that the search was begun in, `None` when the allowance is used up before.
    pub(super) fn go_on(&mut self, text: &str, allowance: &Allowance) -> Option<bool> {
        let pattern = self.pattern;
        while self.at < text.len() {
            if allowance.is_spent() {
                return None;
            }
            if self.state.is_start()
                && let Some(literals) = &pattern.literals
            {
                match self.skip(text, literals, allowance) {
                    Skipped::ToMatch => {}
                    Skipped::Ahead => continue,
                    Skipped::ToEnd => return Some(false),
                }
            }
            let from = self.at;
            let found = self.run(text, allowance);
            allowance.spend(BYTE_NS * (self.at - from) as u64);
            if found.is_some() {
                return found;
            }
        }
        let last = pattern.dfa.next_eoi_state(&mut self.cache, self.state).expect(NEVER_GIVES_UP);
        Some(last.is_match())
    }

    /// Reads on until the allowance is used up or another literal has to be found. `None` when the answer is still open.
    fn run(&mut self, text: &str, allowance: &Allowance) -> Option<bool> {
        let Scan { pattern, cache, state, at } = self;
        let (dfa, bytes) = (&pattern.dfa, text.as_bytes());
        let end = bytes.len().min(at.saturating_add(allowance.affords(BYTE_NS)));
        while *at < end {
            let byte = bytes[*at];
            let mut is_new = false;
            if !state.is_tagged() {
                let next = dfa.next_state_untagged(cache, *state, byte);
                if !next.is_tagged() {
                    *state = next;
                    *at += 1;
                    continue;
                }
                is_new = next.is_unknown();
            }
            let next = dfa.next_state(cache, *state, byte).expect(NEVER_GIVES_UP);
            // A match is told by the byte behind it. An empty one within a character counts for nothing, as texts are characters;
            // others end at a boundary anyway.
            if next.is_match() && text.is_char_boundary(*at) {
                return Some(true);
            }
            if next.is_dead() {
                return Some(false);
            }
            *state = next;
            *at += 1;
            if is_new {
                allowance.spend(pattern.state_ns);
            }
            if allowance.is_spent() || next.is_start() {
                break;
            }
        }
        None
    }

    /// Goes to where the next match may begin.
    fn skip(&mut self, text: &str, literals: &Prefilter, allowance: &Allowance) -> Skipped {
        let end = text.len().min(self.at + LITERAL_WINDOW);
        let found = literals.find(text.as_bytes(), Span { start: self.at, end });
        let (to, skipped) = match found {
            Some(literal) => (literal.start, Skipped::ToMatch),
            None if end == text.len() => (end, Skipped::ToEnd),
            // A literal may reach into what comes next.
            None => (end + 1 - literals.max_needle_len().max(1), Skipped::Ahead),
        };
        allowance.spend(LITERAL_NS + (to - self.at) as u64 / LITERAL_BYTES_PER_NS);
        if to > self.at {
            self.at = to;
            // What a match may begin with depends on what comes before it.
            self.state = self.pattern.start(&mut self.cache, text, to);
        }
        skipped
    }
}

const NEVER_GIVES_UP: &str = "no byte makes the automaton quit, and it never gives up";

/// Where a search for literals has led.
enum Skipped {
    /// The place up to which a match may begin.
    ToMatch,
    /// Nothing begins before this place.
    Ahead,
    /// There is no match.
    ToEnd,
}

/// What anything that an expression finds begins with, when it finds it only at the beginning of a text.
fn beginnings(hir: &Hir) -> Option<Box<[Box<str>]>> {
    if !hir.properties().look_set_prefix().contains(Look::Start) {
        return None;
    }
    let mut extractor = Extractor::new();
    extractor.limit_class(BEGINNINGS_MAX).limit_total(BEGINNINGS_MAX);
    let found = extractor.extract(hir);
    let text = |literal: &Literal| {
        // One that was cut may end within a character.
        let (whole, _) =
            literal.as_bytes().utf8_chunks().next().map(|chunk| (chunk.valid(), chunk.invalid()))?;
        (!whole.is_empty()).then(|| Box::from(whole))
    };
    found.literals()?.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PROGRAM_BYTES: usize = 1 << 20;

    /// Whether it is found, in pieces of so many nanoseconds, and how many pieces it took.
    fn found(pattern: &Pattern, text: &str, piece_ns: u64) -> (bool, usize) {
        let (allowance, mut scan, mut pieces) = (Allowance::of(piece_ns), pattern.scan(text), 1);
        loop {
            if let Some(found) = scan.go_on(text, &allowance) {
                return (found, pieces);
            }
            allowance.renew(piece_ns);
            pieces += 1;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// The library's own search says the same, whatever the pieces.
        #[test]
        fn finds_what_the_library_finds(
            beginning in r"(\^|\(\?i\)|\(\?m\))?",
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "a", "b", "é", ".", "a*", "[aé]+", "b{2}", r"\b", r"\B", r"\pL", "(a|bé)*", "^", "$", "|", "abé", "aab",
                ]),
                0..6,
            ),
            text in "[aAbBéÉ \\n]{0,40}",
            piece_ns in 1u64..200,
        ) {
            let pattern = format!("{beginning}{}", parts.concat());
            let translated = re2::translate(&pattern).unwrap();
            let Ok(library) = regex::Regex::new(&translated) else { return Ok(()) };
            let (compiled, _) = Pattern::new(&pattern, PROGRAM_BYTES).unwrap();
            prop_assert_eq!(found(&compiled, &text, piece_ns).0, library.is_match(&text), "{}", pattern);
            prop_assert_eq!(found(&compiled, &text, u64::MAX), (library.is_match(&text), 1), "{}", pattern);
        }
    }

    #[test]
    fn an_empty_match_within_a_character_counts_for_nothing() {
        for (pattern, text, expected) in
            [(r"\B", "aéa", false), (r"\B|aéa", "aéa", true), (r"\B", "ab", true)]
        {
            let (compiled, _) = Pattern::new(pattern, PROGRAM_BYTES).unwrap();
            assert_eq!(found(&compiled, text, 1).0, expected, "{pattern:?} {text}");
        }
    }

    #[test]
    fn literals_are_found_across_windows() {
        let (pattern, _) = Pattern::new(r"needle\d", PROGRAM_BYTES).unwrap();
        for before in LITERAL_WINDOW - 10..LITERAL_WINDOW + 3 {
            let text = format!("{}needle7", " ".repeat(before));
            let is_found = |text: &str| found(&pattern, text, 1).0;
            assert!(is_found(&text) && !is_found(&text[..text.len() - 1]), "{before}");
        }
    }

    /// It has more states than any cache holds, and random text meets a new one with nearly every character.
    #[test]
    fn a_dear_expression_is_left_and_gone_on_with() {
        let (pattern, _) = Pattern::new("(1[01]{200}|0[01]{100}1)x", PROGRAM_BYTES).unwrap();
        let mut random = 1u64;
        let mut text: String = (0..5_000)
            .map(|_| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if random >> 63 == 0 { '0' } else { '1' }
            })
            .collect();
        let (is_found, pieces) = found(&pattern, &text, 100_000);
        assert!(!is_found && pieces > 50, "{pieces} pieces");
        text.push_str(&format!("1{}x", "0".repeat(200)));
        assert!(found(&pattern, &text, 100_000).0);
    }

    #[test]
    fn ordinary_expressions_cost_little() {
        let text = "The quick brown fox jumps over the lazy dog. ".repeat(400);
        for (pattern, most_ns) in
            [("l[aeiou]zy cat", 40_000), ("(?i)CAT|hound", 60_000), (r"\d{4}-\d\d", 60_000)]
        {
            let (compiled, _) = Pattern::new(pattern, PROGRAM_BYTES).unwrap();
            for warm in [false, true] {
                let allowance = Allowance::unbounded();
                assert_eq!(compiled.scan(&text).go_on(&text, &allowance), Some(false));
                let spent = allowance.spent_ns();
                assert!(spent <= most_ns, "{pattern} costs {spent} ns, warm: {warm}");
            }
        }
    }
}
