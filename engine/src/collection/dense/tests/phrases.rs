//! Phrases and prefixes under random writes, against a loop over all documents.
use super::bed::{Rng, group_is, small_config};
use super::rounds;
use crate::collection::{DenseConfig, DenseWriter, HitsWanted, Parts, SearchError, Write};
use crate::distance::Metric;
use crate::filter::Predicate;
use crate::memory::{Domain, Participant};
use crate::pace::{Pieces, TooLong, Whole, at_once};
use crate::payload::{CONTENT_KEY, RowBuilder, Value};
use crate::sparse::LaneScratch;
use crate::text::{PREFIX_TERMS_MAX, TextConfig, TextMatch};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const NOW: u64 = 1000;
/// Words with their English terms, which stop words lack.
const WORDS: &[(&str, Option<&str>)] = &[
    ("river", Some("river")),
    ("Rivers", Some("river")),
    ("rival", Some("rival")),
    ("the", None),
    ("of", None),
    ("stone", Some("stone")),
    ("stones", Some("stone")),
    ("sto", Some("sto")),
    ("running", Some("run")),
    ("then", None),
];

#[derive(Clone)]
struct Token {
    word: String,
    term: Option<String>,
}

struct Document {
    tokens: Vec<Token>,
    group: i64,
}

struct Bed {
    config: DenseConfig,
    domain: Arc<Domain>,
    seat: Participant,
    writer: DenseWriter,
    twin: BTreeMap<u64, Document>,
    rng: Rng,
    seq: u64,
    /// How often a phrase of several words was in some document, and how often a prefix had more terms than it stands for.
    reached: [usize; 2],
}

impl Bed {
    fn new(seed: u64) -> Bed {
        let config = DenseConfig { full_text: Some(TextConfig::default()), ..small_config(1, Metric::L2) };
        let domain = Domain::new(1);
        let writer = DenseWriter::create(config.clone(), 1 << 13, domain.clone()).unwrap();
        let seat = domain.participant(0);
        Bed { config, domain, seat, writer, twin: BTreeMap::new(), rng: Rng(seed), seq: 0, reached: [0; 2] }
    }

    fn token(&mut self) -> Token {
        if self.rng.below(4) == 0 {
            // More words that begin alike than a prefix stands for.
            let word = format!("q{}", self.rng.below(30) * self.rng.below(30));
            return Token { term: Some(word.clone()), word };
        }
        let (word, term) = WORDS[self.rng.below(WORDS.len() as u64) as usize];
        Token { word: word.to_owned(), term: term.map(str::to_owned) }
    }

    fn put(&mut self, id: u64) {
        let tokens: Vec<Token> = (0..self.rng.below(15)).map(|_| self.token()).collect();
        let words: Vec<&str> = tokens.iter().map(|token| token.word.as_str()).collect();
        // One in ten has so much of something else that its text is not analyzed at once.
        let blank = if self.rng.below(10) == 0 { " ".repeat(17_000) } else { String::new() };
        let group = self.rng.below(3) as i64;
        let mut row = RowBuilder::new();
        row.set("group", Value::Int(group), 0);
        row.set(CONTENT_KEY, Value::String(words.join(" ") + &blank), 0);
        self.seq += 1;
        let write = Write {
            seq: self.seq,
            id,
            version: 1,
            parts: Parts::Only(&[0.5]),
            row: &row.finish(),
            deadline_ms: 0,
        };
        self.writer.apply(write);
        self.twin.insert(id, Document { tokens, group });
    }

    /// A point with this text, of which the twin does not know.
    fn put_text(&mut self, id: u64, text: String) {
        let mut row = RowBuilder::new();
        row.set("group", Value::Int((id % 3) as i64), 0);
        row.set(CONTENT_KEY, Value::String(text), 0);
        self.seq += 1;
        let (seq, parts) = (self.seq, Parts::Only(&[0.5]));
        self.writer.apply(Write { seq, id, version: 1, parts, row: &row.finish(), deadline_ms: 0 });
    }

    fn delete(&mut self, id: u64) {
        self.seq += 1;
        assert_eq!(self.writer.apply_delete(self.seq, id), self.twin.remove(&id).is_some());
    }

    fn df(&self, term: &str) -> usize {
        let has =
            |document: &&Document| document.tokens.iter().any(|token| token.term.as_deref() == Some(term));
        self.twin.values().filter(has).count()
    }

    /// Every document that is found, with its score.
    fn truth(
        &mut self,
        query: &[Token],
        phrase: bool,
        prefix: bool,
        group: Option<i64>,
    ) -> BTreeMap<u64, f64> {
        // What each word of the query stands for; nothing says that it may be anything.
        let mut wanted: Vec<Option<Vec<String>>> =
            query.iter().map(|token| token.term.clone().map(|term| vec![term])).collect();
        if prefix && let Some(last) = query.last() {
            let start = last.word.to_lowercase();
            let all: BTreeSet<&String> = self
                .twin
                .values()
                .flat_map(|document| &document.tokens)
                .filter_map(|token| token.term.as_ref())
                .collect();
            let mut begun: Vec<String> =
                all.into_iter().filter(|term| term.starts_with(&start)).cloned().collect();
            // Sorted already by their bytes.
            begun.sort_by_key(|term| std::cmp::Reverse(self.df(term)));
            self.reached[1] += usize::from(begun.len() > PREFIX_TERMS_MAX);
            begun.truncate(PREFIX_TERMS_MAX);
            begun.extend(last.term.clone());
            *wanted.last_mut().unwrap() = Some(begun);
        }
        let terms: BTreeSet<&String> = wanted.iter().flatten().flatten().collect();
        let counted: Vec<usize> = self
            .twin
            .values()
            .map(|document| document.tokens.iter().filter(|token| token.term.is_some()).count())
            .collect();
        let docs = counted.iter().filter(|length| **length > 0).count() as f64;
        let average = counted.iter().sum::<usize>() as f64 / docs;
        let idf: BTreeMap<&String, f64> = terms
            .iter()
            .map(|&term| {
                let df = self.df(term) as f64;
                (term, (1.0 + (docs - df + 0.5) / (df + 0.5)).ln())
            })
            .collect();
        let first = wanted.iter().position(Option::is_some);
        let last = wanted.iter().rposition(Option::is_some);
        let mut found = BTreeMap::new();
        for (&id, Document { tokens, group: own }) in &self.twin {
            if group.is_some_and(|group| group != *own) {
                continue;
            }
            let stands_at = |start: usize| {
                wanted[first.unwrap()..=last.unwrap()].iter().enumerate().all(|(at, alternatives)| {
                    alternatives.as_ref().is_none_or(|alternatives| {
                        let term = tokens.get(start + at).and_then(|token| token.term.as_ref());
                        term.is_some_and(|term| alternatives.contains(term))
                    })
                })
            };
            if phrase && (first.is_none() || !(0..tokens.len()).any(stands_at)) {
                continue;
            }
            let length = tokens.iter().filter(|token| token.term.is_some()).count() as f64;
            let (mut score, mut touched) = (0.0, false);
            for (&term, idf) in &idf {
                let tf = tokens.iter().filter(|token| token.term.as_ref() == Some(term)).count() as f64;
                touched |= tf > 0.0;
                score += idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / average));
            }
            if touched {
                found.insert(id, score);
            }
        }
        found
    }

    fn check(&mut self) {
        while self.writer.points_mut().text_step() {}
        let mut tokens: Vec<Token> = (0..self.rng.below(5)).map(|_| self.token()).collect();
        if let Some(last) = tokens.last_mut()
            && self.rng.below(3) == 0
        {
            // A part of a word.
            let begun = ["q", "q", "q", "q1", "r", "ri", "st", "ston", "th", "runn", "zz"]
                [self.rng.below(11) as usize];
            *last = Token { word: begun.to_owned(), term: Some(begun.to_owned()) };
        }
        let (phrase, prefix) = (self.rng.below(2) == 0, self.rng.below(2) == 0);
        let group = (self.rng.below(3) == 0).then(|| self.rng.below(3) as i64);
        let k = [1, 3, 10, 5000][self.rng.below(4) as usize];
        let truth = self.truth(&tokens, phrase, prefix, group);
        let several = tokens.iter().filter(|token| token.term.is_some()).count() > 1;
        self.reached[0] += usize::from(phrase && several && !truth.is_empty());
        let words: Vec<&str> = tokens.iter().map(|token| token.word.as_str()).collect();
        let query = TextMatch { text: words.join(", ").into(), phrase, prefix };
        let filter = group.map(group_is);
        let paused = Cell::new(0);
        for in_pieces in [false, true] {
            let hits = self.search(&query, k, filter.as_ref(), in_pieces.then_some(&paused)).unwrap();
            assert_eq!(hits.len(), truth.len().min(k), "{query:?} {hits:?} {truth:?}");
            let mut best: Vec<f64> = truth.values().copied().collect();
            best.sort_by(|a, b| b.total_cmp(a));
            for ((id, score), best) in hits.iter().zip(best) {
                let own = *truth.get(id).unwrap_or_else(|| panic!("{query:?} finds {id}"));
                assert!(
                    (f64::from(*score) - own).abs() < 1e-4 * own.max(1.0),
                    "{query:?} {id}: {score} {own}"
                );
                assert!((own - best).abs() < 1e-4 * best.max(1.0), "{query:?} {id}: {own} instead of {best}");
            }
        }
    }

    fn search(
        &self,
        query: &TextMatch,
        k: usize,
        filter: Option<&Predicate>,
        paused: Option<&Cell<usize>>,
    ) -> Result<Vec<(u64, f32)>, SearchError> {
        let (mut scratch, mut hits, pin) = (LaneScratch::default(), Vec::new(), self.seat.pin());
        let (dense, wanted) = (self.writer.shared(), HitsWanted { k, filter, now_ms: NOW, among: None });
        match paused {
            None => at_once(dense.search_text(
                &pin,
                query,
                wanted,
                &mut Whole::unbounded(),
                &mut scratch,
                &mut hits,
            ))?,
            Some(paused) => {
                let pause = async || -> Result<(), TooLong> {
                    paused.set(paused.get() + 1);
                    Ok(())
                };
                let mut pace = Pieces::new(1000, pause);
                at_once(dense.search_text(&pin, query, wanted, &mut pace, &mut scratch, &mut hits))?;
            }
        }
        Ok(hits.iter().map(|hit| (hit.id, hit.score)).collect())
    }

    fn reopen(&mut self) {
        let mut image = Vec::new();
        self.writer.begin_capture(true);
        while !self.writer.capture_step(64, &mut image) {}
        self.writer.end_capture(true);
        let mut writer = DenseWriter::create(self.config.clone(), 1 << 13, self.domain.clone()).unwrap();
        writer.restore(&image).unwrap();
        writer.finish_restore(self.seq).unwrap();
        self.writer = writer;
    }
}

#[test]
fn phrases_and_prefixes_find_what_a_scan_finds() {
    let mut bed = Bed::new(77);
    bed.check();
    for round in 0..rounds(12, 60) {
        for _ in 0..150 {
            let id = bed.rng.below(400);
            match bed.rng.below(4) {
                0 => bed.delete(id),
                _ => bed.put(id),
            }
        }
        if round % 3 == 0 {
            bed.reopen();
        }
        (0..20).for_each(|_| bed.writer.reclaim());
        (0..40).for_each(|_| bed.check());
    }
    assert!(bed.reached.iter().all(|times| *times > 3), "{:?}", bed.reached);
}

#[test]
fn long_texts_are_looked_through_in_pieces() {
    let mut bed = Bed::new(3);
    for (id, text) in [
        (1, "stone ".repeat(100_000) + "river"),
        (2, "river stone ".repeat(50_000)),
        (3, "stone river stone".to_owned()),
    ] {
        bed.put_text(id, text);
    }
    while bed.writer.points_mut().text_step() {}
    let query = TextMatch { phrase: true, ..TextMatch::words("stones stones river") };
    let paused = Cell::new(0);
    let found = bed.search(&query, 10, None, Some(&paused)).unwrap();
    assert_eq!(found.iter().map(|hit| hit.0).collect::<Vec<_>>(), [1]);
    assert!(paused.get() > 100, "{} pauses", paused.get());
    // At a pace that does not wait, such a search is refused.
    let (mut scratch, mut hits, pin) = (LaneScratch::default(), Vec::new(), bed.seat.pin());
    let wanted = HitsWanted { k: 10, filter: None, now_ms: NOW, among: None };
    let mut pace = Whole::of(40_000);
    let refused =
        at_once(bed.writer.shared().search_text(&pin, &query, wanted, &mut pace, &mut scratch, &mut hits));
    assert_eq!(refused, Err(SearchError::TooLong(TooLong)));
    let long = TextMatch { phrase: true, ..TextMatch::words(&"stone ".repeat(65)) };
    let refused = bed.search(&long, 10, None, None).unwrap_err().to_string();
    assert!(refused.contains("at most 64 words"), "{refused}");
}

/// Many documents have all words of a phrase, and few have the phrase: those that would be among the best are looked at first, and once enough of
/// these have it, no others.
#[test]
fn documents_that_would_be_best_are_looked_at_first() {
    let mut bed = Bed::new(4);
    let have_it = 2000..2012u64;
    for id in 0..5000 {
        let text = match have_it.contains(&id) {
            true => "new york".to_owned(),
            false => "york new ".to_owned() + &"zebra ".repeat(8 + id as usize % 5),
        };
        bed.put_text(id, text);
    }
    let query = TextMatch { phrase: true, ..TextMatch::words("new york") };
    let paused = Cell::new(0);
    let ids = |k, filter: Option<&Predicate>| -> Vec<u64> {
        let found = bed.search(&query, k, filter, Some(&paused)).unwrap();
        found.into_iter().map(|hit| hit.0).collect()
    };
    assert_eq!(ids(10, None), (2000..2010).collect::<Vec<_>>());
    // Each text takes some forty steps, of which there is a pause after 1000.
    let few = paused.take();
    assert!(few < 40, "{few} pauses");
    assert_eq!(ids(9000, None), have_it.clone().collect::<Vec<_>>());
    assert!(paused.get() > 100, "{} pauses", paused.get());
    let group = group_is(1);
    let wanted: Vec<u64> = have_it.filter(|id| id % 3 == 1).collect();
    assert_eq!(ids(9000, Some(&group)), wanted);
}
