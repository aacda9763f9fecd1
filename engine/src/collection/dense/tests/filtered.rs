//! Filtered searches and walks over all matches, against the rows themselves: small collections, where every answer is exact,
//! and one large enough for every path of the planner.
use super::bed::{Bed, Rng, small_config};
use crate::collection::space::by_distance_then_id;
use crate::collection::{
    DenseWriter, Explain, Hit, MatchCursor, Parts, Query, RowWrite, SearchError, Write, WriteMode,
};
use crate::distance::{Kernel, Metric, padded, prepare};
use crate::filter::narrow::Lists;
use crate::filter::planner::Plan;
use crate::filter::{Geo, MinShould, Node, Path, Predicate, unix_ms_of_rfc3339};
use crate::index::Scratch;
use crate::memory::{Domain, Participant};
use crate::pace::{Pieces, TooLong, Whole, at_once};
use crate::payload::{PayloadRow, RowBuilder, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const DIM: usize = 8;
const NOW: u64 = 1000;

struct Filtered {
    seat: Participant,
    /// Of searches in pieces.
    long_seat: Option<Participant>,
    writer: DenseWriter,
    twin: BTreeMap<u64, (Vec<f32>, Vec<u8>)>,
    rng: Rng,
    seq: u64,
    /// Some keys expire.
    expiring: bool,
}

fn leaf(op: &str, field: &str, value: Value) -> Node {
    Node { op: Some(op.into()), field: Some(field.into()), value: Some(value), ..Node::default() }
}

fn and(children: Vec<Node>) -> Node {
    Node { op: Some("and".into()), and: Some(children), ..Node::default() }
}

fn at_least(min_count: u64, conditions: Vec<Node>) -> Node {
    let min_should = Some(MinShould { conditions: Some(conditions), min_count: Some(min_count) });
    Node { op: Some("min_should".into()), min_should, ..Node::default() }
}

fn has_id(ids: Vec<u64>) -> Node {
    Node { op: Some("has_id".into()), has_id: Some(ids), ..Node::default() }
}

fn compiled(node: &Node) -> Predicate {
    Predicate::compile(node).unwrap()
}

const WORDS: [&str; 6] = ["red", "green", "blue", "stone", "tree", "river"];

/// A time within three weeks, at some offset.
fn time(rng: &mut Rng) -> String {
    let offsets = ["Z", "+05:30", "-11:00", "+23:59", "-23:59"];
    let (day, hour, offset) = (10 + rng.below(20), rng.below(24), offsets[rng.below(5) as usize]);
    format!("2024-02-{:02}T{hour:02}:00:00{offset}", day.min(29))
}

impl Filtered {
    fn new(seed: u64, expiring: bool) -> Filtered {
        let domain = Domain::new(2);
        let long_seat = Some(domain.participant(1));
        let config = small_config(DIM, Metric::Cosine);
        let writer = DenseWriter::create(config, 1 << 15, domain.clone()).unwrap();
        Filtered {
            seat: domain.participant(0),
            long_seat,
            writer,
            twin: BTreeMap::new(),
            rng: Rng(seed),
            seq: 0,
            expiring,
        }
    }

    fn row(&mut self) -> Vec<u8> {
        let rng = &mut self.rng;
        let mut row = RowBuilder::new();
        let expiring = self.expiring;
        let mut set = |rng: &mut Rng, key: &str, value: Value| {
            let deadline = if expiring && rng.below(10) == 0 { NOW - 5 + rng.below(10) } else { 0 };
            if rng.below(12) > 0 {
                row.set(key, value, deadline);
            }
        };
        let (group, unique, price) = (rng.below(20), rng.below(1 << 40), rng.below(2000));
        set(rng, "group", Value::Int(group as i64));
        row_always(&mut set, rng, "unique", Value::Int(unique as i64));
        let price = price as f64 / 10.0;
        let price = if rng.below(3) == 0 { Value::Int(price as i64) } else { Value::Float(price) };
        set(rng, "price", price);
        let word = |rng: &mut Rng| WORDS[rng.below(6) as usize].to_owned();
        let title = format!("{} {} {}", word(rng), word(rng), "long ".repeat(rng.below(20) as usize));
        set(rng, "title", Value::String(title));
        let tags = (0..rng.below(3)).map(|_| format!("{} {}", word(rng), word(rng))).collect();
        set(rng, "tags", Value::Strings(tags));
        let at = time(rng);
        let at =
            if rng.below(3) == 0 { Value::Int(unix_ms_of_rfc3339(&at).unwrap()) } else { Value::String(at) };
        set(rng, "at", at);
        let place = Value::Geo { lat: rng.below(40) as f64 / 10.0, lon: rng.below(40) as f64 / 10.0 };
        set(rng, "place", place);
        let note = if rng.below(2) == 0 { Value::None } else { Value::String(String::new()) };
        set(rng, "note", note);
        row.finish()
    }

    fn upsert(&mut self, id: u64) {
        let (vector, row) = (self.rng.vector(DIM), self.row());
        self.seq += 1;
        self.writer.apply(Write {
            seq: self.seq,
            id,
            version: 1,
            parts: Parts::Only(&vector),
            row: &row,
            deadline_ms: 0,
        });
        let mut prepared = vec![0.0; padded(DIM)];
        prepare(Metric::Cosine, &vector, &mut prepared);
        self.twin.insert(id, (prepared, row));
    }

    fn rewrite(&mut self, id: u64) {
        let row = if self.rng.below(10) == 0 { Vec::new() } else { self.row() };
        self.seq += 1;
        let there = self.writer.apply_row(&RowWrite { seq: self.seq, id, version: 2, row: &row });
        assert_eq!(there, self.twin.contains_key(&id));
        if let Some(point) = self.twin.get_mut(&id) {
            point.1 = row;
        }
    }

    fn delete(&mut self, id: u64) {
        self.seq += 1;
        self.writer.apply_delete(self.seq, id);
        self.twin.remove(&id);
    }

    fn any_leaf(&mut self) -> Node {
        let rng = &mut self.rng;
        let number = |rng: &mut Rng| Value::Float(rng.below(2100) as f64 / 10.0);
        let word = |rng: &mut Rng| WORDS[rng.below(6) as usize].to_owned();
        let compare = ["gt", "gte", "lt", "lte"][rng.below(4) as usize];
        match rng.below(16) {
            0 => leaf("eq", "group", Value::Int(rng.below(22) as i64)),
            1 => leaf("in", "group", Value::Ints(vec![1, 3, rng.below(20) as i64])),
            2 | 3 => leaf(compare, "price", number(rng)),
            4 => leaf(compare, "unique", Value::Int(rng.below(1 << 40) as i64)),
            5 => leaf("match", "title", Value::String(format!("{} {}", word(rng), word(rng)))),
            6 => leaf("match", "tags", Value::String(format!("{} {}", word(rng), word(rng)))),
            7 => leaf("contains", "tags", Value::String(format!("{} {}", word(rng), word(rng)))),
            8 => leaf(compare, "title", Value::String(word(rng))),
            9 => leaf("ne", "group", Value::Int(rng.below(20) as i64)),
            11 => leaf(&format!("dt_{compare}"), "at", Value::String(time(rng))),
            12 => leaf("in", "price", Value::Floats((0..30).map(|_| rng.below(400) as f64 / 2.0).collect())),
            14 => {
                let (count, among) =
                    ([1, 5, 40, 400][rng.below(4) as usize], [600, 9000][rng.below(2) as usize]);
                has_id((0..count).map(|_| rng.below(among)).collect())
            }
            13 => Node {
                op: Some("exists".into()),
                field: Some(["group", "tags", "note", "unique", "nothing"][rng.below(5) as usize].into()),
                ..Node::default()
            },
            10 => {
                let patterns = ["^(red|blue) st", "^[r-t]", "(?i)^RED", "st", "^.*e st", "^(|never)"];
                let field = if rng.below(4) == 0 { "tags" } else { "title" };
                leaf("regex", field, Value::String(patterns[rng.below(6) as usize].into()))
            }
            _ => Node {
                op: Some("geo_radius".into()),
                field: Some("place".into()),
                geo: Some(Geo {
                    center_lat: Some(rng.below(40) as f64 / 10.0),
                    center_lon: Some(rng.below(40) as f64 / 10.0),
                    radius_m: Some(20_000.0 * (1 + rng.below(10)) as f64),
                    ..Geo::default()
                }),
                ..Node::default()
            },
        }
    }

    fn any_filter(&mut self) -> Node {
        let list = |this: &mut Self| (0..1 + this.rng.below(3)).map(|_| this.any_leaf()).collect::<Vec<_>>();
        match self.rng.below(7) {
            6 => {
                let conditions: Vec<Node> = (0..2 + self.rng.below(4)).map(|_| self.any_leaf()).collect();
                at_least(1 + self.rng.below(conditions.len() as u64), conditions)
            }
            0 => Node { op: Some("or".into()), or: Some(list(self)), ..Node::default() },
            1 => {
                let child = match self.rng.below(3) {
                    0 => at_least(2, (0..3).map(|_| self.any_leaf()).collect()),
                    _ => self.any_leaf(),
                };
                let not = Some(Box::new(child));
                and(vec![self.any_leaf(), Node { op: Some("not".into()), not, ..Node::default() }])
            }
            2 | 3 => and(list(self)),
            _ => self.any_leaf(),
        }
    }

    fn matching(&self, filter: &Predicate) -> BTreeSet<u64> {
        let matches = |id: u64, row: &[u8]| {
            filter.matches(id, (!row.is_empty()).then(|| PayloadRow::trusted(row)), NOW)
        };
        self.twin.iter().filter(|(id, (_, row))| matches(**id, row)).map(|(&id, _)| id).collect()
    }

    fn truth(&self, vector: &[f32], k: usize, among: &BTreeSet<u64>) -> Vec<(u64, u32)> {
        let kernel = Kernel::of(Metric::Cosine);
        let mut prepared = vec![0.0; padded(DIM)];
        prepare(Metric::Cosine, vector, &mut prepared);
        let mut hits: Vec<Hit> = among
            .iter()
            .map(|&id| Hit { id, distance: kernel.distance(&prepared, &self.twin[&id].0), slot: 0 })
            .collect();
        hits.sort_by(by_distance_then_id);
        hits.truncate(k);
        hits.into_iter().map(|hit| (hit.id, hit.distance.to_bits())).collect()
    }

    fn search(&self, query: &Query<'_>) -> (Vec<(u64, u32)>, Explain) {
        let (mut hits, shared) = (Vec::new(), self.writer.shared());
        let pin = self.seat.pin();
        let explain = shared.search_explained(&pin, query, &mut Scratch::default(), &mut hits).unwrap();
        assert!(hits.is_sorted_by(|a, b| by_distance_then_id(a, b).is_lt()));
        (hits.into_iter().map(|hit| (hit.id, hit.distance.to_bits())).collect(), explain)
    }

    fn check(&mut self, filters: usize) {
        for _ in 0..filters {
            let node = self.any_filter();
            let filter = compiled(&node);
            let wanted = self.matching(&filter);
            let pin = self.seat.pin();
            let shared = self.writer.shared();
            let slots: Vec<_> = shared.matching(&pin, &filter, NOW, 0).collect();
            let (mut cursor, mut sliced) = (MatchCursor::default(), Vec::new());
            while !cursor.is_done() {
                shared.match_slice(&pin, &filter, NOW, &mut cursor, 7, |slot| sliced.push(slot));
            }
            assert_eq!(sliced, slots, "{filter:?}");
            assert!(slots.is_sorted_by(|a, b| a < b));
            let ids: BTreeSet<u64> = slots.iter().map(|&slot| shared.point(&pin, slot).id).collect();
            assert_eq!((ids.len(), &ids), (slots.len(), &wanted), "{node:?}");
            if let Some(&middle) = slots.get(slots.len() / 2) {
                assert!(
                    shared.matching(&pin, &filter, NOW, middle).eq(slots[slots.len() / 2..].iter().copied())
                );
            }
            drop(pin);
            let vector = self.rng.vector(DIM);
            for (k, exact) in [(3, true), (10, false), (1000, false)] {
                let query = Query { vector: &vector, k, ef: 0, filter: Some(&filter), exact, now_ms: NOW };
                let (found, explain) = self.search(&query);
                let truth = self.truth(&vector, k, &wanted);
                assert_eq!(found.len(), truth.len(), "k results whenever k match: {node:?} {explain:?}");
                assert!(found.iter().all(|(id, _)| wanted.contains(id)), "{node:?} {explain:?}");
                if explain.exact {
                    assert_eq!(found, truth, "{node:?} {explain:?}");
                }
                assert!(explain.exact || !exact);
                if let Some(at_most) = explain.estimate.at_most {
                    assert!(at_most >= wanted.len() as u64, "{node:?}");
                }
            }
        }
    }
}

fn row_always(set: &mut impl FnMut(&mut Rng, &str, Value), rng: &mut Rng, key: &str, value: Value) {
    // Tried until it is set, so that every point has it.
    (0..40).for_each(|_| set(rng, key, value.clone()));
}

#[test]
fn filters_agree_with_the_rows_under_churn() {
    for expiring in [false, true] {
        let mut bed = Filtered::new(11 + u64::from(expiring), expiring);
        for round in 0..12 {
            for _ in 0..150 {
                let id = bed.rng.below(500);
                match bed.rng.below(8) {
                    0 | 1 => bed.delete(id),
                    2 | 3 => bed.rewrite(id),
                    _ => bed.upsert(id),
                }
            }
            match round % 3 {
                0 => bed.writer.index_all(),
                1 => while bed.writer.repair_step(100) {},
                _ => bed.writer.reclaim(),
            }
            bed.check(30);
        }
        while !bed.twin.is_empty() {
            let id = *bed.twin.keys().next().unwrap();
            bed.delete(id);
        }
        bed.check(5);
    }
}

#[test]
fn the_index_comes_back_with_an_image() {
    let mut bed = Filtered::new(5, false);
    (0..400).for_each(|id| bed.upsert(id));
    bed.writer.index_all();
    (0..90).for_each(|id| bed.delete(id * 3));
    let mut image = Vec::new();
    bed.writer.begin_capture(true);
    while !bed.writer.capture_step(50, &mut image) {}
    let domain = Domain::new(1);
    let mut writer =
        DenseWriter::create(bed.writer.shared().config().clone(), 1 << 15, domain.clone()).unwrap();
    writer.restore(&image).unwrap();
    writer.finish_restore(bed.seq).unwrap();
    (bed.writer, bed.seat) = (writer, domain.participant(0));
    bed.check(40);
    (0..300).for_each(|id| bed.upsert(id * 2));
    bed.writer.index_all();
    while bed.writer.repair_step(100) {}
    bed.check(40);
}

/// Waits once.
async fn pause() -> Result<(), TooLong> {
    let mut waited = false;
    poll_fn(|_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }).await;
    Ok(())
}

impl Filtered {
    /// Searches in pieces, with writes, indexing and reclamation between them, and compares with the rows of the moment the search
    /// began. Pauses made.
    fn check_in_pieces(&mut self, filter: &Node, k: usize) -> usize {
        let filter = compiled(filter);
        let among = self.matching(&filter);
        let vector = self.rng.vector(DIM);
        let truth = self.truth(&vector, k, &among);
        let (shared, seat) = (self.writer.shared().clone(), self.long_seat.take().unwrap());
        let (mut hits, mut scratch, mut pauses) = (Vec::new(), Scratch::default(), 0);
        let explain = {
            let pin = seat.pin();
            let query = Query { vector: &vector, k, ef: 0, filter: Some(&filter), exact: false, now_ms: NOW };
            let mut pace = Pieces::new(300, pause);
            let mut search = pin!(shared.search_paced(&pin, &query, &mut pace, &mut scratch, &mut hits));
            loop {
                match search.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(explain) => break explain.unwrap(),
                    Poll::Pending => pauses += 1,
                }
                for _ in 0..20 {
                    let id = self.rng.below(3000);
                    if self.rng.below(3) == 0 { self.delete(id) } else { self.upsert(id) }
                }
                match pauses % 3 {
                    0 => self.writer.index_all(),
                    1 => _ = self.writer.repair_step(100),
                    _ => self.writer.reclaim(),
                }
            }
        };
        self.long_seat = Some(seat);
        let found: Vec<_> = hits.into_iter().map(|hit| (hit.id, hit.distance.to_bits())).collect();
        assert_eq!(found.len(), truth.len(), "{filter:?} {explain:?}");
        assert!(found.iter().all(|(id, _)| among.contains(id)), "{filter:?} {explain:?}");
        assert!(!explain.exact || found == truth, "{filter:?} {explain:?}");
        pauses
    }
}

#[test]
fn a_search_in_pieces_sees_the_moment_it_began() {
    let mut bed = Filtered::new(41, false);
    (0..8000).for_each(|id| bed.upsert(id));
    bed.writer.index_all();
    for _ in 0..60 {
        let node = bed.any_filter();
        let k = [3, 10, 1000][bed.rng.below(3) as usize];
        bed.check_in_pieces(&node, k);
    }
    // Everything is asked, and a long list is looked up.
    let regex = leaf("regex", "title", Value::String("green".into()));
    assert!(bed.check_in_pieces(&regex, 2000) >= 2);
    let unique = |row: &[u8]| match PayloadRow::trusted(row).get("unique", NOW).map(|value| value.to_owned())
    {
        Some(Value::Int(unique)) => unique,
        _ => -1,
    };
    let list = Value::Ints(bed.twin.values().step_by(6).map(|(_, row)| unique(row)).collect());
    let among = leaf("in", "unique", list);
    let others = Node { op: Some("not".into()), not: Some(Box::new(among.clone())), ..Node::default() };
    for node in [among, others] {
        assert!(bed.check_in_pieces(&node, 5) >= 4);
    }
    bed.check(20);
}

/// A list looked up while terms of a replaced row were still filed was taken for exact once these were gone.
#[test]
fn a_row_replaced_before_a_long_list_is_looked_up_counts_as_it_is() {
    let mut bed = Filtered::new(43, false);
    (0..8000).for_each(|id| bed.upsert(id));
    bed.writer.index_all();
    let row = |unique: i64| {
        let mut row = RowBuilder::new();
        row.set("unique", Value::Int(unique), 0);
        row.finish()
    };
    let vector = bed.rng.vector(DIM);
    for listed in [true, false] {
        // The point goes out of the list, or into it.
        let (id, old, new) = if listed { (1, 3, -3) } else { (2, -5, 5) };
        let list = Value::Ints((0..1500).collect());
        for unique in [old, new] {
            bed.seq += 1;
            let row = row(unique);
            bed.writer.apply_row(&RowWrite { seq: bed.seq, id, version: 2, row: &row });
            bed.twin.get_mut(&id).unwrap().1 = row;
            if unique == old {
                bed.writer.index_all();
                (0..50).for_each(|_| bed.writer.reclaim());
            }
        }
        let among = leaf("in", "unique", list);
        let others = Node { op: Some("not".into()), not: Some(Box::new(among.clone())), ..Node::default() };
        for node in [among, others] {
            let filter = compiled(&node);
            let matching = bed.matching(&filter);
            let truth = bed.truth(&vector, 8000, &matching);
            let (shared, seat) = (bed.writer.shared().clone(), bed.long_seat.take().unwrap());
            let mut hits = Vec::new();
            {
                let (pin, mut scratch, mut pace) = (seat.pin(), Scratch::default(), Pieces::new(1, pause));
                let query = Query {
                    vector: &vector,
                    k: 8000,
                    ef: 0,
                    filter: Some(&filter),
                    exact: false,
                    now_ms: NOW,
                };
                let mut search = pin!(shared.search_paced(&pin, &query, &mut pace, &mut scratch, &mut hits));
                while search.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                    (0..50).for_each(|_| bed.writer.reclaim());
                }
            }
            bed.long_seat = Some(seat);
            let found: Vec<_> = hits.into_iter().map(|hit| (hit.id, hit.distance.to_bits())).collect();
            assert!(found == truth, "{listed}: {} found, {} are there", found.len(), truth.len());
        }
    }
}

#[test]
fn what_takes_long_is_refused_in_one_piece() {
    let mut bed = Filtered::new(42, false);
    (0..3000).for_each(|id| bed.upsert(id));
    bed.writer.index_all();
    let filter = compiled(&leaf("regex", "title", Value::String("never$".into())));
    let vector = [0.5; DIM];
    let query = Query { vector: &vector, k: 3, ef: 0, filter: Some(&filter), exact: false, now_ms: NOW };
    let search = |steps| {
        let (shared, mut hits) = (bed.writer.shared(), Vec::new());
        let (pin, mut pace) = (bed.seat.pin(), Whole::of(steps));
        at_once(shared.search_paced(&pin, &query, &mut pace, &mut Scratch::default(), &mut hits))
            .map(|_| hits)
    };
    assert_eq!(search(2000), Err(SearchError::TooLong(TooLong)));
    assert_eq!(search(usize::MAX), Ok(Vec::new()));
}

/// One filter per share of the points, in each of the forms that are answered in different ways.
#[test]
fn recall_holds_at_every_selectivity_and_on_every_path() {
    let mut bed = Filtered::new(23, false);
    const N: u64 = 12_000;
    (0..N).for_each(|id| bed.upsert(id));
    bed.writer.index_all();
    let mut paths = BTreeSet::new();
    for columns in [false, true] {
        for share in [0.9f64, 0.5, 0.3, 0.1, 0.03, 0.01, 0.001, 0.0] {
            let bound = |share: f64| Value::Int((share * (1u64 << 40) as f64) as i64);
            let range = |low: f64| {
                and(vec![leaf("gte", "unique", bound(low)), leaf("lt", "unique", bound(low + share))])
            };
            let below = leaf("lt", "unique", bound(share));
            let with_regex =
                and(vec![below.clone(), leaf("regex", "title", Value::String("red|green".into()))]);
            let hidden =
                Node { op: Some("not".into()), not: Some(Box::new(below.clone())), ..Node::default() };
            // Two of the three conditions match where price and group are both within their bounds, and where one of them is and `unique` lies
            // in a range that holds this share of the points.
            let conditions = vec![
                range((1.0 - share) / 2.0),
                leaf("lt", "price", Value::Int(200)),
                leaf("gt", "group", Value::Int(20)),
            ];
            let two = at_least(2, conditions);
            let groups = leaf("in", "group", Value::Ints((0..(share * 20.0).round() as i64).collect()));
            for node in [range((1.0 - share) / 2.0), below, with_regex, hidden, groups, two] {
                let filter = compiled(&node);
                let among = bed.matching(&filter);
                let (mut found, mut wanted) = (0, 0);
                for _ in 0..25 {
                    let vector = bed.rng.vector(DIM);
                    let query = Query {
                        vector: &vector,
                        k: 10,
                        ef: 64,
                        filter: Some(&filter),
                        exact: false,
                        now_ms: NOW,
                    };
                    let (hits, explain) = bed.search(&query);
                    let truth = bed.truth(&vector, 10, &among);
                    assert_eq!(hits.len(), truth.len());
                    assert!(hits.iter().all(|(id, _)| among.contains(id)), "{node:?} {explain:?}");
                    assert!(!explain.exact || hits == truth, "{node:?} {explain:?}");
                    wanted += truth.len();
                    found += truth.iter().filter(|hit| hits.contains(hit)).count();
                    paths.insert(format!("{:?}", explain.path));
                }
                assert!(found * 100 >= wanted * 95, "{found} of {wanted}: {node:?}");
            }
        }
        if !columns {
            // The searches have said which columns they miss.
            (0..100).for_each(|_| bed.writer.reclaim());
        }
    }
    let stats = bed.writer.shared().stats();
    assert!(stats.filter_gates > stats.filter_column_gates && stats.filter_column_gates > 0, "{stats:?}");
    for path in [Path::Nothing, Path::Points, Path::Gate, Path::Column, Path::Predicate] {
        assert!(paths.contains(&format!("{path:?}")), "{path:?} was not taken: {paths:?}");
    }
}

#[test]
fn columns_go_when_the_quota_needs_their_room() {
    let domain = Domain::new(1);
    let seat = domain.participant(0);
    let mut config = small_config(DIM, Metric::L2);
    config.max_bytes = 3200 * config.quota_bytes_per_point();
    let mut writer = DenseWriter::create(config, 4096, domain).unwrap();
    let mut rng = Rng(1);
    let mut put = |writer: &mut DenseWriter, id: u64| {
        let mut row = RowBuilder::new();
        row.set("n", Value::Int(id as i64), 0);
        let (vector, row) = (rng.vector(DIM), row.finish());
        writer.apply(Write {
            seq: id + 1,
            id,
            version: 1,
            parts: Parts::Only(&vector),
            row: &row,
            deadline_ms: 0,
        });
    };
    (0..2900).for_each(|id| put(&mut writer, id));
    writer.index_all();
    let filter = compiled(&leaf("gt", "n", Value::Int(1000)));
    let search = |writer: &DenseWriter| {
        let vector = [0.3; DIM];
        let query = Query { vector: &vector, k: 5, ef: 0, filter: Some(&filter), exact: false, now_ms: 0 };
        let mut hits = Vec::new();
        let pin = seat.pin();
        writer.shared().search_explained(&pin, &query, &mut Scratch::default(), &mut hits).unwrap()
    };
    assert_ne!(search(&writer).path, Path::Column);
    let before = writer.shared().stats().bytes;
    (0..10).for_each(|_| writer.reclaim());
    assert_eq!(search(&writer).path, Path::Column, "built since");
    assert!(writer.shared().stats().bytes >= before + 8 * 2900);
    // 300 points' room was left, of which the column took about 170.
    (2900..3100).for_each(|id| put(&mut writer, id));
    assert_eq!(writer.shared().stats().filter_column_drops, 1);
    assert_ne!(search(&writer).path, Path::Column);
}

/// What the planner goes by may be read before the snapshot of a search is taken, and between the two a point may move to a slot that is
/// fresh. Neither its old version nor its new one was found where the planner made a list of slots.
#[test]
fn a_point_that_moves_before_the_snapshot_is_found() {
    let number = |op: &str, number: i64| leaf(op, "group", Value::Int(number));
    let filters = [
        number("eq", 5),
        number("gte", 0),
        number("gte", 3),
        number("ne", 7),
        and(vec![number("gte", 3), number("lte", 60)]),
        and(vec![number("gte", 3), number("lte", 600)]),
        and(vec![number("gte", 3), number("lte", 2000)]),
        and(vec![number("ne", 7), number("ne", 9)]),
    ];
    for node in filters {
        let (mut bed, filter) = (Bed::new(small_config(DIM, Metric::L2), 1 << 12), compiled(&node));
        let vector = [0.5; DIM];
        (0..2048).for_each(|id| bed.write(WriteMode::Upsert, id, &vector, id as i64, 0));
        let dense = bed.writer.shared().clone();
        let sought = dense.sought(&filter, NOW);
        bed.write(WriteMode::Upsert, 5, &vector, 5, 0);
        let pin = bed.seat.pin();
        let ids: Vec<u64> =
            dense.points().matching(&pin, sought, 0).map(|slot| dense.point(&pin, slot).id).collect();
        assert_eq!(ids.iter().filter(|&&id| id == 5).count(), 1, "{node:?}: {ids:?}");
    }
}

/// What a list of ids names is found in the map of ids: nothing else is looked at, whatever else the filter asks for.
#[test]
fn listed_ids_are_all_that_is_looked_at() {
    let mut bed = Filtered::new(47, false);
    (0..12_000).for_each(|id| bed.upsert(id));
    bed.writer.index_all();
    let not = |node: Node| Node { op: Some("not".into()), not: Some(Box::new(node)), ..Node::default() };
    let listed: Vec<u64> = (0..50).map(|n| 7 + 311 * n).collect();
    let there = listed.iter().filter(|id| **id < 12_000).count() as u64;
    for (node, asked) in [
        (has_id(listed.clone()), false),
        (and(vec![has_id(listed.clone()), leaf("regex", "title", Value::String("green|red".into()))]), true),
        (
            and(vec![
                has_id(listed.clone()),
                not(has_id(vec![7, 318])),
                leaf("gte", "price", Value::Int(50)),
            ]),
            true,
        ),
        (
            and(vec![
                has_id(listed),
                not(Node { op: Some("exists".into()), field: Some("note".into()), ..Node::default() }),
            ]),
            true,
        ),
    ] {
        let filter = compiled(&node);
        let among = bed.matching(&filter);
        let vector = bed.rng.vector(DIM);
        let query =
            Query { vector: &vector, k: 100, ef: 0, filter: Some(&filter), exact: false, now_ms: NOW };
        let (found, explain) = bed.search(&query);
        assert_eq!(found, bed.truth(&vector, 100, &among), "{node:?}");
        assert_eq!(
            (explain.path, explain.estimate.at_most),
            (Path::Points, Some(there)),
            "{node:?} {explain:?}"
        );
        assert_eq!(explain.distances, among.len() as u64, "{node:?} {explain:?}");
        assert!(explain.rejects <= if asked { there } else { 0 }, "{node:?} {explain:?}");
    }
    // Nobody has these ids.
    let (filter, vector) = (compiled(&has_id(vec![12_000, u64::MAX])), [0.5; DIM]);
    let query = Query { vector: &vector, k: 3, ef: 0, filter: Some(&filter), exact: false, now_ms: NOW };
    let (found, explain) = bed.search(&query);
    assert!(found.is_empty() && explain.path == Path::Nothing, "{explain:?}");
    // A few that may not come are no reason to look at everything.
    let filter = compiled(&not(has_id(vec![3, 4, 5])));
    let query = Query { vector: &vector, k: 3, ef: 16, filter: Some(&filter), exact: false, now_ms: NOW };
    let (_, explain) = bed.search(&query);
    assert_eq!(explain.estimate.expected, Some(11_997), "{explain:?}");
    assert!(!explain.exact && explain.distances < 6_000, "{explain:?}");
}

/// The map leads to the newest point of an id, which an older snapshot does not show: then the point that it does show was missed, or one
/// that had been deleted came back where its id was not wanted.
#[test]
fn ids_are_looked_up_for_the_snapshot() {
    let mut bed = Filtered::new(48, false);
    (0..3_000).for_each(|id| bed.upsert(id));
    bed.writer.index_all();
    let (filter, shared) = (compiled(&has_id(vec![5, 6])), bed.writer.shared().clone());
    let seat = bed.long_seat.take().unwrap();
    let pin = seat.pin();
    let mut before = shared.points().view_at(&pin, Some(&filter), NOW);
    assert!(before.look_up_ids(&pin));
    bed.upsert(5);
    assert!(!before.look_up_ids(&pin), "the snapshot shows another slot");
    assert!(shared.points().view_to_plan(&pin, Some(&filter), NOW).look_up_ids(&pin));
    let ids: Vec<u64> =
        shared.matching(&pin, &filter, NOW, 0).map(|slot| shared.point(&pin, slot).id).collect();
    assert_eq!(BTreeSet::from_iter(ids), BTreeSet::from([5, 6]));

    let others = Node { op: Some("not".into()), not: Some(Box::new(has_id(vec![6]))), ..Node::default() };
    let filter = compiled(&others);
    let mut before = shared.points().view_at(&pin, Some(&filter), NOW);
    bed.delete(6);
    assert!(before.look_up_ids(&pin));
    let situation = shared.space().situation(10, false);
    let lists = Lists::of_ids(before.ids.clone());
    match shared.points().planned(&filter, &pin, &lists, &situation, &before).0 {
        Plan::Graph(walked) => assert!(!walked.exact, "the snapshot shows a point that is found by no id"),
        Plan::Points { exact, .. } => assert!(!exact),
        Plan::Everything | Plan::Nothing => {}
    }
}
