//! Full text: BM25 over the terms of documents. [`TextWriter`] is the owner's handle, [`TextIndex`] what any core searches.
//!
//! A document is the text of a slot; its terms are what the analyzer keeps. The score of a document is the sum over the
//! query's distinct terms of
//!
//! ```text
//! idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / average length)),  idf = ln(1 + (n - df + 0.5) / (df + 0.5))
//! ```
//!
//! with `tf` and `length` counted in kept tokens. idf is computed in `f64` and used in `f32`, as are the terms; they are
//! added in `f64` in the order of the query and rounded once. Results are exact: score descending, then id ascending.
//!
//! The statistics `n`, `df` and the average length are those of the moment of the search and of live documents only: a
//! document counts from [`TextWriter::insert`] to [`TextWriter::forget`] (or `remove`). The index can therefore store no
//! scores; its blocks hold what bounds them under any statistics (`scorer::Frontier`).
//!
//! # Slots and points
//!
//! As in [`sparse`](crate::sparse): insert before the point of a slot becomes visible, remove before the slot is born
//! again, best once no reader has a snapshot in which it lived; [`LaneSearch::admit`] says what a snapshot includes. Call `forget`
//! when the point dies, so that the statistics follow at once.

mod analyzer;
mod dictionary;
mod normal;
mod phrase;
mod query;
mod scorer;
mod segments;
mod stop_words;
mod terms;
#[cfg(test)]
mod tests;
mod writer;

use crate::memory::{Pin, Rows};
use crate::pace::{Pace, TooLong};
use crate::postings::{Admission, Lane, LaneCounters, LaneWalk, ListId, Lists};
use crate::slot::Slot;
use dictionary::Dictionary;
use query::Words;
use scorer::{Bm25, Saturation, idf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use crate::postings::{LaneHit, LaneScratch, LaneSearch, LaneStats};
pub use analyzer::{Analyzer, MAX_TOKENS};
pub use phrase::PHRASE_WORDS_MAX;
pub(crate) use phrase::{Phrase, PhraseSearch};
pub use query::{PREFIX_TERMS_MAX, QUERY_TERMS_MAX, TextError, TextMatch, TextQuery};
pub use segments::WORD_MAX_BYTES;
pub use writer::{Task, TextWriter};

/// How texts are analyzed, and the parameters of BM25.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TextConfig {
    /// What makes terms of documents and queries.
    pub analyzer: Analyzer,
    /// Saturation of the term frequency; not above 0 (or not a number) means 1.2.
    pub k1: f32,
    /// Weight of the document length, at most 1; not above 0 (or not a number) means 0.75.
    pub b: f32,
}

impl Default for TextConfig {
    fn default() -> Self {
        TextConfig { analyzer: Analyzer::default(), k1: 1.2, b: 0.75 }
    }
}

/// The terms that a prefix stands for, in order, of some with the numbers of documents that have them.
fn keep_best(found: &mut Vec<(u32, Box<str>)>) {
    found.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    found.truncate(PREFIX_TERMS_MAX);
}

/// About what a step of a pace stands for, in nanoseconds.
const STEP_NS: usize = 100;
/// Lists whose names are looked at between two calls of the pace.
const LISTS_PER_PIECE: ListId = 256;
/// Lists that are looked at in the time of a step.
const STEPS_APART: usize = 2;

/// Beyond this `k1` scores are proportional to the frequency for all that f32 can tell.
const K1_MAX: f32 = 1e6;

impl TextConfig {
    /// With defaults in place, and within the bounds in which scores grow with frequency and fall with length.
    fn effective(self) -> TextConfig {
        let default = TextConfig::default();
        TextConfig {
            analyzer: self.analyzer,
            k1: if self.k1 > 0.0 { self.k1.min(K1_MAX) } else { default.k1 },
            b: if self.b > 0.0 { self.b.min(1.0) } else { default.b },
        }
    }
}

/// What scores depend on besides the document: sums over all documents, and one number per term of a query.
///
/// Add up those of several indexes ([`Self::add`]) and search each with the sum to rank as one index would.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextStats {
    /// Documents with at least one kept token.
    pub docs: u64,
    /// Kept tokens of all of them.
    pub tokens: u64,
    /// Documents with the term, per term of the query, in its order.
    pub df: Vec<u64>,
}

impl TextStats {
    /// Adds another index's statistics of the same query.
    pub fn add(&mut self, other: &TextStats) {
        self.docs += other.docs;
        self.tokens += other.tokens;
        self.df.resize(self.df.len().max(other.df.len()), 0);
        for (mine, other) in self.df.iter_mut().zip(&other.df) {
            *mine += other;
        }
    }
}

/// Counters and gauges of a text index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextIndexStats {
    /// Documents that count.
    pub docs: u64,
    /// Their kept tokens.
    pub tokens: u64,
    /// Distinct terms that have a list.
    pub terms: u64,
    /// Committed bytes.
    pub bytes: u64,
    /// Postings in the lists of searched terms, since the index was made.
    pub postings: u64,
    /// Contributions computed by searches.
    pub scored: u64,
}

/// Kept tokens per slot.
struct Lengths {
    rows: Rows<AtomicU32>,
}

/// Set in the length of a document that is still in the lists but no longer counts.
const FORGOTTEN: u32 = 1 << 31;

impl Lengths {
    fn new() -> Lengths {
        Lengths { rows: Rows::new(1) }
    }

    /// The length of a slot that has postings.
    #[inline]
    fn get(&self, slot: Slot) -> u32 {
        self.rows.cells(slot)[0].load(Ordering::Relaxed) & !FORGOTTEN
    }
}

/// The lists of a query, and what their postings weigh.
struct LookedUp {
    lists: Vec<ListId>,
    saturation: Saturation,
    weights: Vec<f32>,
}

impl LookedUp {
    fn scorer<'q>(&'q self, lengths: &'q Lengths) -> Bm25<'q> {
        Bm25 { saturation: self.saturation, weights: &self.weights, lengths }
    }
}

/// The shared, readable side.
pub struct TextIndex {
    config: TextConfig,
    dictionary: Dictionary,
    lists: Arc<Lists>,
    lengths: Lengths,
    docs: AtomicU64,
    tokens: AtomicU64,
    /// Bytes of documents that wait to be filed or taken out.
    waiting_bytes: AtomicU64,
    /// Bytes of the terms of the one among them that is being analyzed.
    terms_bytes: AtomicU64,
    counters: LaneCounters,
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn owned<T: Send>() {}
    shared::<TextIndex>();
    owned::<TextWriter>();
};

impl TextIndex {
    /// What makes terms of its documents.
    pub fn analyzer(&self) -> Analyzer {
        self.config.analyzer
    }

    /// Any core: the query that looks for a text. A prefix costs some 50 ns for each term of the dictionary, in pieces.
    ///
    /// # Errors
    /// [`TooLong`]; within it, a text with too many words or too long a phrase.
    pub(crate) async fn query(
        &self,
        pin: &Pin<'_>,
        wanted: &TextMatch,
        pace: &mut impl Pace,
    ) -> Result<Result<TextQuery, TextError>, TooLong> {
        let words = Words::new(self.analyzer(), wanted, pace).await?;
        let prefixes = words.prefixes();
        let alternatives = match prefixes.is_empty() {
            true => Vec::new(),
            false => self.beginning_with(pin, &prefixes, pace).await?,
        };
        Ok(words.into_query(alternatives))
    }

    /// The terms that begin with one of the prefixes and that some document has: those that most documents have, and of these the first in the order of
    /// their bytes; in that order, at most [`PREFIX_TERMS_MAX`].
    async fn beginning_with(
        &self,
        pin: &Pin<'_>,
        prefixes: &[&str],
        pace: &mut impl Pace,
    ) -> Result<Vec<Box<str>>, TooLong> {
        let mut found: Vec<(u32, Box<str>)> = Vec::new();
        let mut least = 1;
        pace.foresee(self.dictionary.len() / STEPS_APART)?;
        for list in 0.. {
            if list % LISTS_PER_PIECE == LISTS_PER_PIECE - 1 {
                pace.step(LISTS_PER_PIECE as usize / STEPS_APART).await?;
            }
            let Some(begins) = self.dictionary.begins_with(&self.lists, list, prefixes) else { break };
            let counted = if begins { self.lists.counted(list) } else { 0 };
            if counted < least {
                continue;
            }
            found.extend(self.term_beginning_with(pin, list, prefixes).map(|term| (counted, term)));
            if found.len() == 2 * PREFIX_TERMS_MAX {
                keep_best(&mut found);
                least = found[PREFIX_TERMS_MAX - 1].0;
            }
        }
        keep_best(&mut found);
        Ok(found.into_iter().map(|(_, term)| term).collect())
    }

    /// The term of a list, if it begins with one of the prefixes. A list that was dropped may still have the name of a term that has another list now, and may
    /// have been given another name since it was looked at last.
    fn term_beginning_with(&self, pin: &Pin<'_>, list: ListId, prefixes: &[&str]) -> Option<Box<str>> {
        let term = self.dictionary.name(&self.lists, list)?;
        let has_list = self.dictionary.find(pin, &self.lists, &term) == Some(list);
        (has_list && prefixes.iter().any(|prefix| term.starts_with(prefix))).then_some(term)
    }

    /// Any core: the statistics of a query. One look-up per term.
    ///
    /// # Panics
    /// When the pin is of another domain.
    pub fn text_stats(&self, pin: &Pin<'_>, query: &TextQuery) -> TextStats {
        let df = |term: &str| {
            self.dictionary.find(pin, &self.lists, term).map_or(0, |list| u64::from(self.lists.counted(list)))
        };
        TextStats {
            docs: self.docs.load(Ordering::Relaxed),
            tokens: self.tokens.load(Ordering::Relaxed),
            df: query.terms().iter().map(|term| df(term)).collect(),
        }
    }

    /// Any core: the best documents for `query`, exactly. `stats` replaces the index's own statistics, unless it knows of no document. A
    /// query without terms finds nothing.
    ///
    /// Cost: 2 to 4 ns per posting scored; how many are is in the [`LaneScratch::stats`] of the search.
    ///
    /// # Panics
    /// When the pin is of another domain, or `stats` is of a query of another number of terms.
    pub fn search(
        &self,
        pin: &Pin<'_>,
        query: &TextQuery,
        stats: Option<&TextStats>,
        search: LaneSearch<'_, impl FnMut(Slot) -> bool, impl Fn(Slot) -> u64>,
    ) {
        match self.looked_up(pin, query, stats) {
            Some(found) => {
                let scorer = found.scorer(&self.lengths);
                let lane = Lane {
                    index: &self.lists,
                    lists: &found.lists,
                    scorer: &scorer,
                    required: query.required(),
                };
                self.counters.add(&search.run_all(&lane));
            }
            None => {
                search.out.clear();
                search.scratch.clear_stats();
            }
        }
    }

    /// Any core: one more part of a walk through the documents of `query`, whose statistics were `stats` when the walk began, with
    /// [`LaneWalk::go_on`].
    pub(crate) fn walk_on(
        &self,
        pin: &Pin<'_>,
        query: &TextQuery,
        stats: &TextStats,
        walk: &mut LaneWalk<'_>,
        admit: impl FnMut(Slot) -> Admission,
        id_of: impl Fn(Slot) -> u64,
    ) -> u64 {
        match self.looked_up(pin, query, Some(stats)) {
            Some(found) => {
                let scorer = found.scorer(&self.lengths);
                let lane = Lane {
                    index: &self.lists,
                    lists: &found.lists,
                    scorer: &scorer,
                    required: query.required(),
                };
                walk.go_on(&lane, admit, id_of)
            }
            None => {
                walk.end();
                0
            }
        }
    }

    /// Adds what a walk has looked at to the counters.
    pub(crate) fn count(&self, looked: &LaneStats) {
        self.counters.add(looked);
    }

    /// The lists of a query, or `None` when one of its required terms has none.
    fn looked_up(&self, pin: &Pin<'_>, query: &TextQuery, stats: Option<&TextStats>) -> Option<LookedUp> {
        let stats = stats.filter(|stats| stats.docs > 0);
        if let Some(stats) = stats {
            assert_eq!(stats.df.len(), query.terms().len(), "statistics of another query");
        }
        let docs = stats.map_or_else(|| self.docs.load(Ordering::Relaxed), |stats| stats.docs);
        let tokens = stats.map_or_else(|| self.tokens.load(Ordering::Relaxed), |stats| stats.tokens);
        let saturation = Saturation::new(self.config.k1, self.config.b, docs, tokens);
        let mut lists: Vec<ListId> = Vec::with_capacity(query.terms().len());
        let mut weights = Vec::with_capacity(query.terms().len());
        for (at, term) in query.terms().iter().enumerate() {
            if let Some(list) = self.dictionary.find(pin, &self.lists, term) {
                let df = stats.map_or_else(|| u64::from(self.lists.counted(list)), |stats| stats.df[at]);
                lists.push(list);
                weights.push(saturation.weight(idf(docs, df)));
            } else if at < query.required() {
                return None;
            }
        }
        Some(LookedUp { lists, saturation, weights })
    }

    /// Any core.
    pub fn stats(&self) -> TextIndexStats {
        let searched = self.counters.sum();
        TextIndexStats {
            docs: self.docs.load(Ordering::Relaxed),
            tokens: self.tokens.load(Ordering::Relaxed),
            terms: self.dictionary.len() as u64,
            bytes: self.bytes(),
            postings: searched.postings,
            scored: searched.scored,
        }
    }

    /// Any core: committed bytes: lists, terms, document lengths, what waits for readers and what is free for reuse, and
    /// documents that wait to be filed or taken out, each with its text, and the terms of the one that is being analyzed.
    pub fn bytes(&self) -> u64 {
        let waiting = [&self.waiting_bytes, &self.terms_bytes].map(|bytes| bytes.load(Ordering::Relaxed));
        self.lists.bytes() + waiting.iter().sum::<u64>()
    }
}
