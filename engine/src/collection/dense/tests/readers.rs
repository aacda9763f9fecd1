//! Readers on other threads while the owner writes, indexes, repairs and frees.
use super::bed::{Rng, group_is, row, small_config};
use super::rounds;
use crate::collection::{DenseWriter, Parts, Query, RowWrite, Write};
use crate::distance::Metric;
use crate::filter::{Node, Predicate};
use crate::index::Scratch;
use crate::memory::Domain;
use crate::payload::{PayloadRow, RowBuilder, Value, ValueRef};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const DIM: usize = 4;
/// Ids that are always there; the others come and go.
const ALWAYS: u64 = 60;
const IDS: u64 = 400;

/// Every id has one direction that is its own, so its point can be searched for while it is replaced: upserts change the
/// length only, under a metric that does not mind.
fn direction(id: u64) -> Vec<f32> {
    Rng(id * 31 + 7).vector(DIM)
}

fn point(id: u64, scale: f32) -> Vec<f32> {
    direction(id).iter().map(|x| x * scale).collect()
}

#[test]
fn an_id_that_is_always_there_is_found_exactly_once() {
    let domain = Domain::new(3);
    let config = small_config(DIM, Metric::Cosine);
    let mut writer = DenseWriter::create(config, 1 << 14, domain.clone()).unwrap();
    let mut seq = 0;
    let mut rng = Rng(3);
    let mut versions = vec![0u64; IDS as usize];
    let mut upsert = |writer: &mut DenseWriter, rng: &mut Rng, id: u64, seq: u64| {
        versions[id as usize] += 1;
        let vector = point(id, 0.5 + (rng.below(100) as f32) / 50.0);
        let row = row((id % 3) as i64);
        let version = versions[id as usize];
        writer.apply(Write { seq, id, version, parts: Parts::Only(&vector), row: &row, deadline_ms: 0 });
    };
    for id in 0..IDS {
        seq += 1;
        upsert(&mut writer, &mut rng, id, seq);
    }
    writer.index_all();

    let stop = AtomicBool::new(false);
    let searches = AtomicU64::new(0);
    let shared = writer.shared().clone();
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (seat, shared, stop, searches) = (domain.participant(reader), &shared, &stop, &searches);
            scope.spawn(move || {
                let mut rng = Rng(100 + reader as u64);
                let mut scratch = Scratch::default();
                let mut hits = Vec::new();
                let filters: Vec<_> = (0..3).map(group_is).collect();
                let all = (0..ALWAYS).collect();
                let all = Node { op: Some("has_id".into()), has_id: Some(all), ..Node::default() };
                let all = Predicate::compile(&all).unwrap();
                let mut newest = vec![0u64; ALWAYS as usize];
                while !stop.load(Ordering::Relaxed) {
                    let id = rng.below(ALWAYS);
                    let vector = direction(id);
                    let pin = seat.pin();
                    let turn = rng.below(5);
                    let filter = match turn {
                        3 => Some(&filters[(id % 3) as usize]),
                        4 => Some(&all),
                        _ => None,
                    };
                    let (exact, k) = (turn == 0, if turn == 1 { 5 } else { 3 });
                    let query = Query { vector: &vector, k, ef: 40, filter, exact, now_ms: 0 };
                    shared.search(&pin, &query, &mut scratch, &mut hits).unwrap();
                    assert!(hits.len() <= k);
                    assert_eq!(hits.iter().filter(|hit| hit.id == id).count(), 1, "exact {exact}: {hits:?}");
                    let unique: HashSet<u64> = hits.iter().map(|hit| hit.id).collect();
                    assert_eq!(unique.len(), hits.len(), "{hits:?}");
                    for hit in &hits {
                        let found = shared.point(&pin, hit.slot);
                        assert_eq!(found.id, hit.id, "a pinned slot is not reused");
                        let same: f32 = found.vector.iter().map(|x| x * x).sum();
                        assert!((same - 1.0).abs() < 1e-4, "a torn vector");
                    }
                    let seen = shared.get(&pin, id, 0).expect("never missing");
                    assert_eq!(seen.id, id);
                    assert!(seen.version >= newest[id as usize], "time runs backwards");
                    newest[id as usize] = seen.version;
                    let hit = hits.iter().find(|hit| hit.id == id).unwrap();
                    assert!(shared.point(&pin, hit.slot).version <= seen.version);
                    searches.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let wanted = rounds(3000, 300_000) as u64;
        let stopper = Stopper(&stop);
        while searches.load(Ordering::Relaxed) < wanted {
            for _ in 0..20 {
                seq += 1;
                let id = rng.below(IDS);
                if id >= ALWAYS && rng.below(2) == 0 {
                    writer.apply_delete(seq, id);
                } else {
                    upsert(&mut writer, &mut rng, id, seq);
                }
            }
            if seq > 2_000_000 {
                break;
            }
            writer.index_all();
            writer.repair_step(200);
            writer.reclaim();
        }
        drop(stopper);
    });
    let stats = writer.shared().stats();
    assert!(stats.slots < 4000, "slots come back while readers run: {stats:?}");
}

/// Payloads go from one state to the next and back in their slots. What a filter says of every state it says throughout: a
/// point is not missed between the terms of two rows, nor found by one term of each.
#[test]
fn a_payload_that_is_replaced_is_in_one_state_or_the_next() {
    let domain = Domain::new(3);
    let mut writer = DenseWriter::create(small_config(DIM, Metric::Cosine), 1 << 12, domain.clone()).unwrap();
    const STATES: u64 = 4;
    let in_state = |id: u64, state: u64, version: u64| {
        let mut row = RowBuilder::new();
        row.set("id", Value::Int(id as i64), 0);
        row.set("state", Value::Int(state as i64), 0);
        row.set("again", Value::Int(state as i64), 0);
        row.set("version", Value::Int(version as i64), 0);
        row.finish()
    };
    for id in 0..ALWAYS {
        let row = in_state(id, 0, 1);
        let vector = direction(id);
        writer.apply(Write {
            seq: id + 1,
            id,
            version: 1,
            parts: Parts::Only(&vector),
            row: &row,
            deadline_ms: 0,
        });
    }
    writer.index_all();
    let leaf = |op: &str, field: &str, value: Value| Node {
        op: Some(op.into()),
        field: Some(field.into()),
        value: Some(value),
        ..Node::default()
    };
    let is = |field: &str, value: u64| leaf("eq", field, Value::Int(value as i64));
    let any = |of: Vec<Node>| Node { op: Some("or".into()), or: Some(of), ..Node::default() };
    let all = |of: Vec<Node>| Node { op: Some("and".into()), and: Some(of), ..Node::default() };
    let not = |node: Node| Node { op: Some("not".into()), not: Some(Box::new(node)), ..Node::default() };
    // Of every state, of none, and by each path: terms, ranges, what a column holds.
    let always = [
        any((0..STATES).map(|state| is("state", state)).collect()),
        any((0..STATES).rev().map(|state| is("again", state)).collect()),
        leaf("in", "state", Value::Ints((0..STATES as i64).collect())),
        all(vec![leaf("gte", "state", Value::Int(0)), leaf("lt", "again", Value::Int(STATES as i64))]),
        any(vec![not(is("state", 1)), is("again", 1)]),
        not(all(vec![is("state", 2), is("again", 1)])),
    ];
    let never: Vec<Node> =
        (1..STATES).map(|state| all(vec![is("state", state), is("again", state - 1)])).collect();
    let compile = |nodes: &[Node]| -> Vec<Predicate> {
        nodes.iter().map(|node| Predicate::compile(node).unwrap()).collect()
    };
    let (always, never) = (compile(&always), compile(&never));

    let stop = AtomicBool::new(false);
    let looks = AtomicU64::new(0);
    let shared = writer.shared().clone();
    std::thread::scope(|scope| {
        let stopper = Stopper(&stop);
        for reader in 0..2 {
            let (seat, shared, stop, looks) = (domain.participant(reader), &shared, &stop, &looks);
            let (always, never) = (&always, &never);
            scope.spawn(move || {
                let (mut scratch, mut hits) = (Scratch::default(), Vec::new());
                let mut rng = Rng(reader as u64);
                while !stop.load(Ordering::Relaxed) {
                    let pin = seat.pin();
                    let filter = &always[rng.below(always.len() as u64) as usize];
                    let found = shared.matching(&pin, filter, 0, 0).count();
                    assert_eq!(found as u64, ALWAYS, "missed");
                    let vector = direction(rng.below(ALWAYS));
                    for exact in [false, true] {
                        let k = ALWAYS as usize;
                        let query =
                            Query { vector: &vector, k, ef: 0, filter: Some(filter), exact, now_ms: 0 };
                        shared.search(&pin, &query, &mut scratch, &mut hits).unwrap();
                        assert_eq!(hits.len(), k, "missed");
                    }
                    let filter = &never[rng.below(never.len() as u64) as usize];
                    assert_eq!(shared.matching(&pin, filter, 0, 0).count(), 0, "in two states");
                    let point = shared.get(&pin, rng.below(ALWAYS), 0).unwrap();
                    let version = PayloadRow::trusted(point.row).get("version", 0);
                    assert_eq!(version, Some(ValueRef::Int(point.version as i64)), "row and version");
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let (mut seq, mut version) = (ALWAYS, 1);
        while looks.load(Ordering::Relaxed) < rounds(4_000, 400_000) as u64 && seq < 5_000_000 {
            version += 1;
            for id in 0..ALWAYS {
                seq += 1;
                let row = in_state(id, version % STATES, version);
                writer.apply_row(&RowWrite { seq, id, version, row: &row });
            }
            writer.reclaim();
        }
        drop(stopper);
    });
    for _ in 0..1000 {
        writer.reclaim();
    }
    let stats = writer.shared().stats();
    assert_eq!((stats.slots, stats.tail), (ALWAYS, 0), "no slot is written anew");
    let pin = domain.participant(2);
    let pin = pin.pin();
    let state = writer.shared().get(&pin, 0, 0).unwrap().version % STATES;
    let filter = Predicate::compile(&is("state", state)).unwrap();
    assert_eq!(writer.shared().matching(&pin, &filter, 0, 0).count() as u64, ALWAYS);
}

/// Stops the readers also when the owner panics, so that the scope ends.
struct Stopper<'a>(&'a AtomicBool);
impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_left_the_tail_after_the_snapshot_is_still_in_its_window() {
    // The last point of a collection whose tail is all there is; others keep its slot from being the front of the tail alone.
    let domain = Domain::new(1);
    let mut writer = DenseWriter::create(small_config(DIM, Metric::Cosine), 64, domain.clone()).unwrap();
    let write = |writer: &mut DenseWriter, seq, version| {
        writer.apply(Write {
            seq,
            id: 1,
            version,
            parts: Parts::Only(&point(1, 1.0)),
            row: &[],
            deadline_ms: 0,
        });
    };
    write(&mut writer, 1, 1);
    let seat = domain.participant(0);
    let pin = seat.pin();
    let shared = writer.shared().clone();
    let (view, window) = shared.space().view_at(&pin, None, 0);
    // Replaced, and passed by the tail, before the reader looks any further.
    write(&mut writer, 2, 2);
    assert_eq!(writer.begin_round(0, 8).expect("the new one waits").slots.len(), 1);
    assert!(shared.space().tail().window().start > window.start, "the old one was passed");
    let seen = (window.start..window.end).filter(|&at| view.visible(shared.space().tail().slot(at)));
    assert_eq!(seen.count(), 1, "the id is there exactly once");
}
