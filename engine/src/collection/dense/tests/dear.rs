//! Filters that cost much on values that do, within the limits: how much work lies between two calls of the pace, and that what is cut
//! in pieces comes to what it comes to in one.
use super::bed::{Rng, small_config};
use crate::collection::space::by_distance_then_id;
use crate::collection::{Dense, DenseWriter, Hit, HitsWanted, MatchCursor, Parts, Query, SparseQuery, Write};
use crate::distance::Metric;
use crate::filter::{Geo, Node, Predicate};
use crate::index::Scratch;
use crate::memory::{Domain, Participant, Pin};
use crate::pace::{Pace, TooLong, Whole, at_once};
use crate::payload::{PayloadRow, RowBuilder, Value};
use crate::slot::Slot;
use crate::sparse::LaneScratch;
use std::collections::BTreeSet;
use std::sync::Arc;

const DIM: usize = 8;
const NOW: u64 = 1000;
/// Most steps of 100 ns between two calls: what a walk may ask, what it scores meanwhile, and what one piece goes beyond its allowance by.
const PIECE_STEPS_MAX: usize = 15_000;

/// Counts, and remembers the most that came at once.
#[derive(Default)]
struct Counted {
    steps: usize,
    most: usize,
}

impl Pace for Counted {
    async fn step(&mut self, steps: usize) -> Result<(), TooLong> {
        self.steps += steps;
        self.most = self.most.max(steps);
        Ok(())
    }

    fn foresee(&self, _steps: usize) -> Result<(), TooLong> {
        Ok(())
    }
}

fn op(op: &str) -> Node {
    Node { op: Some(op.into()), ..Node::default() }
}

fn leaf(op: &str, field: &str, value: Value) -> Node {
    Node { op: Some(op.into()), field: Some(field.into()), value: Some(value), ..Node::default() }
}

fn bits(rng: &mut Rng, bytes: u64) -> String {
    (0..bytes).map(|_| if rng.below(2) == 0 { '0' } else { '1' }).collect()
}

fn words(rng: &mut Rng, n: u64) -> String {
    (0..n).map(|_| format!("w{:x} ", rng.below(3000))).collect()
}

fn dear_row(rng: &mut Rng) -> Vec<u8> {
    let mut row = RowBuilder::new();
    row.set("group", Value::Int(rng.below(4) as i64), 0);
    let text = if rng.below(3) == 0 { words(rng, 300) } else { bits(rng, 1500) };
    row.set("text", Value::String(text), 0);
    row.set("words", Value::String(words(rng, 2000)), 0);
    row.set("texts", Value::Strings((0..rng.below(400)).map(|_| words(rng, 2)).collect()), 0);
    row.set("ints", Value::Ints((0..rng.below(20_000)).map(|_| rng.below(1 << 30) as i64).collect()), 0);
    let place = Value::Geo { lat: rng.below(1000) as f64 / 100.0, lon: rng.below(1000) as f64 / 100.0 };
    row.set("place", place, 0);
    row.finish()
}

fn polygon(rng: &mut Rng, vertices: usize) -> Node {
    // Every edge crosses most latitudes.
    let mut polygon = Vec::new();
    for index in 0..vertices {
        let lat = if index % 2 == 0 { 0.0 } else { 9.0 };
        polygon.extend([lat + rng.below(100) as f64 / 100.0, index as f64 * 10.0 / vertices as f64]);
    }
    let geo = Some(Geo { polygon: Some(polygon), ..Geo::default() });
    Node { field: Some("place".into()), geo, ..op("geo_polygon") }
}

fn dear_leaf(rng: &mut Rng) -> Node {
    match rng.below(9) {
        0 | 1 => {
            let (a, b) = (50 + rng.below(150), 50 + rng.below(100));
            let end = ["x", "[01]", "w", "$"][rng.below(4) as usize];
            leaf("regex", "text", Value::String(format!("(1[01]{{{a}}}|0[01]{{{b}}}1){end}")))
        }
        2 => {
            let pattern = format!(r"w\w+ ([[:alnum:]]+ ){{{}}}w00", 1 + rng.below(5));
            leaf("regex", "texts", Value::String(pattern))
        }
        3 => {
            let n = [2, 64, 900][rng.below(3) as usize];
            leaf("match", "words", Value::String(words(rng, n)))
        }
        4 => leaf("match", "texts", Value::String(words(rng, 1))),
        5 => leaf("contains", "ints", Value::Int(rng.below(1 << 30) as i64)),
        6 => {
            let vertices = [100, 5_000, 60_000][rng.below(3) as usize];
            polygon(rng, vertices)
        }
        7 => leaf("in", "group", Value::Ints((0..20_000).map(|_| rng.below(1 << 30) as i64).collect())),
        _ => {
            let many = (0..3_000).map(|n| leaf("eq", "text", Value::String(n.to_string()))).collect();
            Node { or: Some(many), ..op("or") }
        }
    }
}

fn dear_filter(rng: &mut Rng, depth: usize) -> Node {
    let list = |rng: &mut Rng| (0..2 + rng.below(3)).map(|_| dear_filter(rng, depth + 1)).collect::<Vec<_>>();
    match rng.below(if depth < 3 { 5 } else { 2 }) {
        0 | 1 => dear_leaf(rng),
        2 => Node { and: Some(list(rng)), ..op("and") },
        3 => Node { or: Some(list(rng)), ..op("or") },
        _ => Node { not: Some(Box::new(dear_filter(rng, depth + 1))), ..op("not") },
    }
}

struct Bed {
    seat: Participant,
    writer: DenseWriter,
    rows: Vec<Vec<u8>>,
    rng: Rng,
}

impl Bed {
    /// Makes a collection of `points` points, the last `tail` of which are not in the graph yet.
    fn new(seed: u64, points: u64, tail: u64) -> Bed {
        let (domain, mut rng) = (Domain::new(1), Rng(seed));
        let mut writer = DenseWriter::create(small_config(DIM, Metric::L2), 1 << 12, domain.clone()).unwrap();
        let mut rows = Vec::new();
        for id in 0..points {
            let (vector, row) = (rng.vector(DIM), dear_row(&mut rng));
            writer.apply(Write {
                seq: id + 1,
                id,
                version: 1,
                parts: Parts::Only(&vector),
                row: &row,
                deadline_ms: 0,
            });
            rows.push(row);
            if id + 1 == points - tail {
                writer.index_all();
            }
        }
        Bed { seat: domain.participant(0), writer, rows, rng }
    }

    fn filter(&mut self) -> Predicate {
        Predicate::compile(&dear_filter(&mut self.rng, 0)).unwrap()
    }

    fn matching(&self, filter: &Predicate) -> BTreeSet<u64> {
        let matches = |id: u64| filter.matches(id, Some(PayloadRow::trusted(&self.rows[id as usize])), NOW);
        (0..self.rows.len() as u64).filter(|&id| matches(id)).collect()
    }
}

/// All slots that match, in slices; and the most steps of one.
fn walked(dense: &Dense, pin: &Pin<'_>, filter: &Predicate) -> (Vec<Slot>, usize) {
    let (mut cursor, mut slots, mut pace) = (MatchCursor::default(), Vec::new(), Counted::default());
    while !cursor.is_done() {
        dense.match_slice(pin, filter, NOW, &mut cursor, 2048, |slot| slots.push(slot));
        if let Some(slot) = cursor.take_open() {
            let point = dense.point(pin, slot);
            let row = PayloadRow::trusted(point.row);
            if at_once(filter.ask_in_pieces(point.id, Some(row), NOW, &mut pace)).unwrap() {
                slots.push(slot);
            }
        }
    }
    (slots, pace.most)
}

#[test]
fn no_work_of_a_dear_filter_is_longer_than_a_moment() {
    let mut bed = Bed::new(17, 260, 40);
    let shared: Arc<Dense> = bed.writer.shared().clone();
    let (mut dear, mut long) = (0, 0);
    for _ in 0..super::rounds(60, 2000) {
        let filter = bed.filter();
        let wanted = bed.matching(&filter);
        let vector = bed.rng.vector(DIM);
        let pin = bed.seat.pin();

        let (slots, most) = walked(&shared, &pin, &filter);
        let ids: BTreeSet<u64> = slots.iter().map(|&slot| shared.point(&pin, slot).id).collect();
        assert!(slots.is_sorted_by(|a, b| a < b) && ids == wanted, "{filter:?}");
        assert!(most <= PIECE_STEPS_MAX, "{most} steps between two calls: {filter:?}");
        dear += usize::from(most > 0);

        for (k, ef, exact) in [(5, 0, true), (5, 8, false), (100, 16, false)] {
            let query = Query { vector: &vector, k, ef, filter: Some(&filter), exact, now_ms: NOW };
            let search = |pace: &mut Counted| {
                let (mut hits, mut scratch) = (Vec::<Hit>::new(), Scratch::default());
                at_once(shared.search_paced(&pin, &query, pace, &mut scratch, &mut hits)).unwrap();
                assert!(hits.is_sorted_by(|a, b| by_distance_then_id(a, b).is_lt()));
                hits
            };
            let mut pace = Counted::default();
            let hits = search(&mut pace);
            assert!(hits.iter().all(|hit| wanted.contains(&hit.id)), "{filter:?}");
            assert_eq!(hits.len(), k.min(wanted.len()), "k whenever k match: {filter:?}");
            assert!(pace.most <= PIECE_STEPS_MAX, "{} steps between two calls: {filter:?}", pace.most);
            long += usize::from(pace.steps > 40_000);
            if exact || wanted.len() <= k {
                let mut all = Vec::new();
                let query = Query { k: wanted.len().max(1), exact: true, ..query };
                let pace = &mut Whole::unbounded();
                at_once(shared.search_paced(&pin, &query, pace, &mut Scratch::default(), &mut all)).unwrap();
                all.truncate(k);
                assert_eq!(hits, all, "{filter:?}");
            }
        }
    }
    assert!(dear > 10 && long > 20, "{dear} walks and {long} searches were dear");
}

/// A lane is not left in the middle: what is dear is asked between its rounds.
#[test]
fn lanes_ask_dear_filters_in_pieces() {
    let (domain, mut rng) = (Domain::new(1), Rng(5));
    let mut writer = DenseWriter::create(small_config(DIM, Metric::L2), 1 << 12, domain.clone()).unwrap();
    let seat = domain.participant(0);
    let mut rows = Vec::new();
    for id in 0..300u64 {
        let mut row = RowBuilder::new();
        let text = if rng.below(2) == 0 { words(&mut rng, 300) } else { bits(&mut rng, 3000) };
        row.set("text", Value::String(text), 0);
        row.set_sparse(vec![(1, 1.0 + rng.below(1000) as f32), (2 + rng.below(5) as u32, 3.0)]).unwrap();
        let (vector, row) = (rng.vector(DIM), row.finish());
        writer.apply(Write {
            seq: id + 1,
            id,
            version: 1,
            parts: Parts::Only(&vector),
            row: &row,
            deadline_ms: 0,
        });
        rows.push(row);
    }
    let shared = writer.shared().clone();
    for pattern in ["(1[01]{200}|0[01]{100}1)x", "(1[01]{60}|0[01]{100}1)1", "w1", "never"] {
        let filter = Predicate::compile(&leaf("regex", "text", Value::String(pattern.into()))).unwrap();
        for k in [1, 10, 400] {
            let (pin, mut pace) = (seat.pin(), Counted::default());
            let (mut scratch, mut hits, mut all) = (LaneScratch::default(), Vec::new(), Vec::new());
            let query = [(1, 1.0), (3, 2.0)];
            let wanted = HitsWanted { k, filter: Some(&filter), now_ms: NOW, among: None };
            let search = shared.search_sparse(
                &pin,
                SparseQuery { space: 0, terms: &query },
                wanted,
                &mut pace,
                &mut scratch,
                &mut hits,
            );
            at_once(search).unwrap();
            assert!(pace.most <= 2 * PIECE_STEPS_MAX, "{} steps between two calls: {pattern}", pace.most);
            let wanted = HitsWanted { k: 300, filter: None, now_ms: NOW, among: None };
            let unfiltered = shared.search_sparse(
                &pin,
                SparseQuery { space: 0, terms: &query },
                wanted,
                &mut pace,
                &mut scratch,
                &mut all,
            );
            at_once(unfiltered).unwrap();
            let matches = |id: u64| filter.matches(id, Some(PayloadRow::trusted(&rows[id as usize])), NOW);
            all.retain(|hit| matches(hit.id));
            all.truncate(k);
            let ids = |hits: &[crate::sparse::LaneHit]| hits.iter().map(|hit| hit.id).collect::<Vec<_>>();
            assert_eq!(ids(&hits), ids(&all), "{pattern} {k}");
        }
    }
}
