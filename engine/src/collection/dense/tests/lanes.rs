//! The sparse and text lanes of a collection under churn, against sums over all live points.
use super::bed::{Rng, group_is, small_config};
use super::rounds;
use crate::collection::{
    DenseConfig, DenseWriter, HitsWanted, Parts, RowWrite, SearchError, SparseQuery, Write,
};
use crate::distance::Metric;
use crate::filter::Predicate;
use crate::memory::{Domain, Participant};
use crate::pace::{Whole, at_once};
use crate::payload::{CONTENT_KEY, PayloadRow, RowBuilder, Value};
use crate::sparse::LaneScratch;
use crate::text::{TextConfig, TextMatch};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

const DIM: usize = 3;
const NOW: u64 = 1000;
const K1: f32 = 1.2;
const B: f32 = 0.75;

struct TwinPoint {
    sparse: Vec<(u32, f32)>,
    /// Two-byte words, which no stemmer touches.
    words: Vec<String>,
    content: String,
    group: i64,
    /// The key of the document has expired.
    text_expired: bool,
    /// The point has.
    expired: bool,
}

struct Bed {
    config: DenseConfig,
    domain: Arc<Domain>,
    seat: Participant,
    writer: DenseWriter,
    twin: BTreeMap<u64, TwinPoint>,
    rng: Rng,
    seq: u64,
    /// The owner has looked at the clock since: what has expired counts for nothing.
    followed: bool,
}

fn best(mut hits: Vec<(u64, f32)>, k: usize) -> Vec<(u64, f32)> {
    hits.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap().then(a.0.cmp(&b.0)));
    hits.truncate(k);
    hits
}

impl Bed {
    fn new(seed: u64) -> Bed {
        let config =
            DenseConfig { full_text: Some(TextConfig::default()), ..small_config(DIM, Metric::Cosine) };
        let domain = Domain::new(2);
        let writer = DenseWriter::create(config.clone(), 1 << 13, domain.clone()).unwrap();
        let seat = domain.participant(0);
        Bed { config, domain, seat, writer, twin: BTreeMap::new(), rng: Rng(seed), seq: 0, followed: false }
    }

    fn sparse_vector(&mut self, components: u64) -> Vec<(u32, f32)> {
        let rng = &mut self.rng;
        let vector: BTreeMap<u32, f32> = (0..rng.below(components + 1))
            .map(|_| ((rng.below(40) * rng.below(40)) as u32, rng.below(33) as f32 / 8.0 - 1.0))
            .collect();
        vector.into_iter().collect()
    }

    fn word(&mut self) -> String {
        let letter = (b'a' + self.rng.below(5) as u8) as char;
        format!("{letter}{}", self.rng.below(1 + self.rng.0 % 9))
    }

    /// A text of those words. One in eight is so long that it is filed and taken out in pieces.
    fn content(&mut self, words: &[String]) -> String {
        let blank = if self.rng.below(8) == 0 { " ".repeat(20_000) } else { String::new() };
        words.join(", ") + &blank
    }

    fn upsert(&mut self, id: u64) {
        let sparse = self.sparse_vector(8);
        let count = self.rng.below(12);
        let words: Vec<String> = (0..count).map(|_| self.word()).collect();
        let content = self.content(&words);
        let (group, dice) = (self.rng.below(30) as i64, self.rng.below(30));
        let mut row = RowBuilder::new();
        row.set_sparse(sparse.clone()).unwrap();
        row.set("group", Value::Int(group), 0);
        let text_deadline = [NOW - 1, NOW + 1][(dice > 0) as usize] * u64::from(dice < 3);
        let kept = content.clone();
        row.set(CONTENT_KEY, Value::String(content), text_deadline);
        let deadline_ms = if dice == 29 { NOW } else { 0 };
        self.seq += 1;
        let (vector, row) = (self.rng.vector(DIM), row.finish());
        self.writer.apply(Write {
            seq: self.seq,
            id,
            version: 1,
            parts: Parts::Only(&vector),
            row: &row,
            deadline_ms,
        });
        let point = TwinPoint {
            sparse,
            words,
            content: kept,
            group,
            text_expired: dice == 0,
            expired: deadline_ms > 0,
        };
        self.twin.insert(id, point);
    }

    /// Another payload for a live point, with the same text or another; the sparse vector is the point's.
    fn rewrite(&mut self, id: u64) {
        let same = self.rng.below(2) == 0;
        let count = self.rng.below(12);
        let words: Vec<String> = (0..count).map(|_| self.word()).collect();
        let (group, content) = (self.rng.below(30) as i64, self.content(&words));
        let Some(point) = self.twin.get_mut(&id).filter(|point| !point.expired) else { return };
        let (words, content) = match same && !point.text_expired {
            true => (point.words.clone(), point.content.clone()),
            false => (words, content),
        };
        let mut row = RowBuilder::new();
        row.set_sparse(point.sparse.clone()).unwrap();
        row.set("group", Value::Int(group), 0);
        row.set(CONTENT_KEY, Value::String(content.clone()), 0);
        (point.words, point.content, point.group, point.text_expired) = (words, content, group, false);
        self.seq += 1;
        let row = row.finish();
        assert!(self.writer.apply_row(&RowWrite { seq: self.seq, id, version: 2, row: &row }));
        assert!(!self.writer.points().moves(id, &row));
    }

    /// As the sweeper does.
    fn drop_expired_keys(&mut self) {
        for id in self.writer.points().with_expired_keys(NOW, usize::MAX) {
            assert!(self.writer.drop_expired_keys(id, NOW));
            let point = self.twin.get_mut(&id).expect("only live points have keys");
            (point.words, point.content) = (Vec::new(), String::new());
            point.text_expired = false;
        }
    }

    fn delete(&mut self, id: u64) {
        self.seq += 1;
        assert_eq!(self.writer.apply_delete(self.seq, id), self.twin.remove(&id).is_some());
    }

    fn sparse_truth(&self, query: &[(u32, f32)], k: usize, group: Option<i64>) -> Vec<(u64, f32)> {
        let mut hits = Vec::new();
        for (&id, point) in self.twin.iter().filter(|(_, p)| !p.expired && group.is_none_or(|g| g == p.group))
        {
            let mut shared = 0;
            let mut sum = 0.0f64;
            for &(dimension, weight) in query {
                if let Some(&(_, value)) = point.sparse.iter().find(|component| component.0 == dimension) {
                    shared += 1;
                    sum += f64::from(weight) * f64::from(value);
                }
            }
            if shared > 0 {
                hits.push((id, sum as f32));
            }
        }
        best(hits, k)
    }

    fn text_truth(&self, terms: &[String], k: usize, group: Option<i64>) -> Vec<(u64, f32)> {
        let counts = |point: &TwinPoint| !self.followed || !(point.text_expired || point.expired);
        let documents = || self.twin.values().filter(|point| !point.words.is_empty() && counts(point));
        let docs = documents().count() as f64;
        let tokens: usize = documents().map(|point| point.words.len()).sum();
        let average = tokens.max(1) as f32 / docs.max(1.0) as f32;
        let (flat, slope) = (K1 * (1.0 - B), K1 * B / average);
        let mut hits = Vec::new();
        for (&id, point) in self.twin.iter().filter(|(_, p)| !p.expired && group.is_none_or(|g| g == p.group))
        {
            let mut sum = 0.0f64;
            let mut seen = HashSet::new();
            for term in terms.iter().filter(|term| seen.insert(*term)) {
                let df = documents().filter(|point| point.words.contains(term)).count() as f64;
                let idf = (1.0 + (docs - df + 0.5) / (df + 0.5)).ln() as f32;
                let tf = point.words.iter().filter(|word| *word == term).count() as f32;
                if tf > 0.0 {
                    sum +=
                        f64::from(idf * (K1 + 1.0) * tf / (tf + (flat + slope * point.words.len() as f32)));
                }
            }
            if sum > 0.0 && !point.text_expired {
                hits.push((id, sum as f32));
            }
        }
        best(hits, k)
    }

    /// Some of what was put off with long texts, or all of it.
    fn settle_texts(&mut self, steps: usize) {
        for _ in 0..steps {
            if !self.writer.points_mut().text_step() {
                break;
            }
        }
    }

    /// Before the owner looks at the clock, after it has, and after the clock was set back: figures and scores go by that moment, and
    /// nothing is swept.
    fn check(&mut self, queries: usize) {
        for (now_ms, followed) in [(NOW, true), (NOW - 2, false), (NOW, true)] {
            while self.writer.points_mut().follow_expiry(now_ms) {}
            self.settle_texts(usize::MAX);
            self.followed = followed;
            self.check_figures(queries.div_ceil(2));
        }
        assert!(self.writer.points().next_expiry().is_none_or(|next_ms| next_ms > NOW));
    }

    fn check_figures(&mut self, queries: usize) {
        let stats = self.writer.shared().stats();
        let counting = || self.twin.values().filter(|point| !self.followed || !point.expired);
        let with_vector = counting().filter(|point| !point.sparse.is_empty()).count();
        assert_eq!(stats.sparse_vectors, with_vector as u64);
        assert_eq!(stats.points(), counting().count() as u64);
        for _ in 0..queries {
            let sparse = self.sparse_vector(5);
            let terms: Vec<String> = (0..self.rng.below(5)).map(|_| self.word()).collect();
            let group = self.rng.below(33) as i64;
            let filter = group_is(group);
            for (k, group) in [(1, None), (10, None), (1000, None), (5, Some(group))] {
                let filter = group.is_some().then_some(&filter);
                let hits = self.sparse_hits(&sparse, k, filter);
                assert_eq!(hits, self.sparse_truth(&sparse, k, group), "{sparse:?} {k} {group:?}");
                let hits = self.text_hits(&terms.join(" "), k, filter);
                assert_eq!(hits, self.text_truth(&terms, k, group), "{terms:?} {k} {group:?}");
            }
        }
    }

    fn sparse_hits(&self, query: &[(u32, f32)], k: usize, filter: Option<&Predicate>) -> Vec<(u64, f32)> {
        let (mut scratch, mut hits, pin) = (LaneScratch::default(), Vec::new(), self.seat.pin());
        let dense = self.writer.shared();
        at_once(dense.search_sparse(
            &pin,
            SparseQuery { space: 0, terms: query },
            HitsWanted { k, filter, now_ms: NOW, among: None },
            &mut Whole::unbounded(),
            &mut scratch,
            &mut hits,
        ))
        .unwrap();
        hits.iter().map(|hit| (hit.id, hit.score)).collect()
    }

    fn text_hits(&self, text: &str, k: usize, filter: Option<&Predicate>) -> Vec<(u64, f32)> {
        let (mut scratch, mut hits, pin) = (LaneScratch::default(), Vec::new(), self.seat.pin());
        let (dense, query) = (self.writer.shared(), TextMatch::words(text));
        at_once(dense.search_text(
            &pin,
            &query,
            HitsWanted { k, filter, now_ms: NOW, among: None },
            &mut Whole::unbounded(),
            &mut scratch,
            &mut hits,
        ))
        .unwrap();
        hits.iter().map(|hit| (hit.id, hit.score)).collect()
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
fn lanes_agree_with_their_twins_under_churn() {
    let mut bed = Bed::new(31);
    bed.check(2);
    let mut bytes_at_half = 0;
    let last = rounds(16, 60);
    for round in 0..last {
        for _ in 0..200 {
            let id = bed.rng.below(300);
            match bed.rng.below(6) {
                0 | 1 => bed.delete(id),
                2 => bed.rewrite(id),
                _ => bed.upsert(id),
            }
            let steps = bed.rng.below(8) as usize;
            bed.settle_texts(steps);
        }
        match round % 4 {
            0 => bed.writer.index_all(),
            1 => while bed.writer.repair_step(100) {},
            2 => (0..50).for_each(|_| bed.writer.reclaim()),
            _ => bed.reopen(),
        }
        if round % 5 == 0 {
            let dropped = bed.writer.points().with_expired_keys(NOW, usize::MAX);
            bed.drop_expired_keys();
            // Their slots are given up, and taken again, while their texts are still being taken out.
            dropped.iter().step_by(2).for_each(|&id| bed.delete(id));
            bed.writer.index_all();
            while bed.writer.repair_step(100) {}
            for id in 300..320 {
                (0..20).for_each(|_| bed.writer.reclaim());
                bed.upsert(id);
            }
        }
        bed.check(12);
        if round == last / 2 {
            bytes_at_half = bed.writer.shared().stats().bytes;
        }
    }
    assert!(bed.writer.shared().stats().bytes < bytes_at_half * 3 / 2, "nothing grows for ever");
    while let Some(&id) = bed.twin.keys().next() {
        bed.delete(id);
    }
    bed.check(3);
    bed.writer.index_all();
    while bed.writer.repair_step(100) {}
    for _ in 0..1000 {
        bed.settle_texts(3);
        bed.writer.reclaim();
    }
    assert_eq!(bed.writer.shared().stats().tombstoned, 0, "every slot is free");
    assert!(!bed.writer.points().has_texts_waiting() && !bed.writer.has_waiting());
}

/// As in a replay of the log, where nobody takes texts out in between.
#[test]
fn slots_of_long_texts_are_taken_back_when_none_is_free() {
    let mut bed = Bed::new(9);
    bed.writer = DenseWriter::create(bed.config.clone(), 16, bed.domain.clone()).unwrap();
    for seq in 1..200 {
        let mut row = RowBuilder::new();
        row.set(CONTENT_KEY, Value::String(format!("stone{}{}", seq % 3, " river".repeat(4000))), 0);
        let (row, vector) = (row.finish(), [1.0, 0.0, 0.0]);
        bed.writer.apply(Write {
            seq,
            id: seq % 4,
            version: 1,
            parts: Parts::Only(&vector),
            row: &row,
            deadline_ms: 0,
        });
    }
    bed.settle_texts(usize::MAX);
    assert_eq!(bed.text_hits("river", 50, None).len(), 4);
    assert_eq!(bed.text_hits("stone0", 50, None).len(), (196..200).filter(|seq| seq % 3 == 0).count());
}

#[test]
fn a_reader_that_pinned_before_a_death_still_finds_the_point() {
    let mut bed = Bed::new(5);
    let row = |dimension: u32, text: &str| {
        let mut row = RowBuilder::new();
        row.set_sparse(vec![(dimension, 1.0)]).unwrap();
        row.set(CONTENT_KEY, Value::String(text.into()), 0);
        row.finish()
    };
    let put = |bed: &mut Bed, id: u64, row: &[u8]| {
        bed.seq += 1;
        let vector = [1.0, 0.0, 0.0];
        bed.writer.apply(Write {
            seq: bed.seq,
            id,
            version: 1,
            parts: Parts::Only(&vector),
            row,
            deadline_ms: 0,
        });
    };
    put(&mut bed, 1, &row(7, "stone"));
    let seat = bed.domain.participant(1);
    let pin = seat.pin();
    put(&mut bed, 1, &row(8, "river"));
    // The old slot waits for the pin; nothing of it is found by new snapshots.
    (0..20).for_each(|_| bed.writer.reclaim());
    assert!(bed.sparse_hits(&[(7, 1.0)], 5, None).is_empty());
    assert_eq!(bed.sparse_hits(&[(8, 2.0)], 5, None), [(1, 2.0)]);
    assert!(bed.text_hits("stone", 5, None).is_empty());
    assert_eq!(bed.text_hits("rivers", 5, None).len(), 1);
    drop(pin);
    (0..20).for_each(|_| bed.writer.reclaim());
    assert_eq!(bed.writer.shared().stats().tombstoned, 0);
    assert_eq!(bed.writer.shared().stats().sparse_vectors, 1);
}

#[test]
fn lanes_that_are_not_there() {
    let domain = Domain::new(1);
    let seat = domain.participant(0);
    let writer = DenseWriter::create(small_config(DIM, Metric::L2), 64, domain).unwrap();
    let (mut scratch, mut hits, pin) = (LaneScratch::default(), Vec::new(), seat.pin());
    let dense = writer.shared();
    let query = TextMatch::words("stone");
    let disabled = at_once(dense.search_text(
        &pin,
        &query,
        HitsWanted { k: 3, filter: None, now_ms: NOW, among: None },
        &mut Whole::unbounded(),
        &mut scratch,
        &mut hits,
    ));
    assert_eq!(disabled, Err(SearchError::TextDisabled));
    assert!(!dense.points().has_text());
    assert_eq!(
        at_once(dense.search_sparse(
            &pin,
            SparseQuery { space: 0, terms: &[(1, 1.0)] },
            HitsWanted { k: 3, filter: None, now_ms: NOW, among: None },
            &mut Whole::unbounded(),
            &mut scratch,
            &mut hits
        )),
        Ok(())
    );
    assert!(hits.is_empty());
    let unsorted = at_once(dense.search_sparse(
        &pin,
        SparseQuery { space: 0, terms: &[(1, 1.0), (1, 1.0)] },
        HitsWanted { k: 3, filter: None, now_ms: NOW, among: None },
        &mut Whole::unbounded(),
        &mut scratch,
        &mut hits,
    ));
    assert!(matches!(unsorted, Err(SearchError::Sparse(_))));
}

#[test]
fn a_sparse_vector_is_a_part_of_the_row_that_no_key_names() {
    let mut row = RowBuilder::new();
    let vector = vec![(0, 0.5), (7, -1.0), (u32::MAX, 3.0)];
    row.set_sparse(vector.clone()).unwrap();
    assert!(row.set_sparse(vec![(2, 1.0), (2, 1.0)]).is_err());
    assert!(row.set_sparse(vec![(2, f32::NAN)]).is_err());
    let alone = row.clone().finish();
    row.set("a", Value::Int(1), 0);
    let both = row.finish();
    for (bytes, keys) in [(&alone, 0), (&both, 1)] {
        let row = PayloadRow::verify(bytes).unwrap();
        assert_eq!((row.stored_len(), row.sparse().collect::<Vec<_>>()), (keys, vector.clone()));
        assert_eq!(&RowBuilder::from(row).finish(), bytes);
    }
    assert_ne!(PayloadRow::trusted(&alone), PayloadRow::trusted(&both));
    for at in 0..both.len() {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut damaged = both.clone();
            damaged[at] = byte;
            if let Ok(row) = PayloadRow::verify(&damaged) {
                assert!(crate::sparse::check_sparse(&row.sparse().collect::<Vec<_>>()).is_ok());
            }
        }
    }
}
