//! Deadlines under a wall clock that is stepped, in simulation.
//!
//! A deadline is a Unix time, written to the log as such. What counts is the wall clock at the moment of the look:
//!
//! * after a step forwards everything whose deadline lies behind is hidden at once;
//! * what the sweeper has taken out is gone for the life of the process, however far the clock is set back;
//! * what is hidden but not yet swept shows again when the clock is set back before its deadline: by the clock, which is
//!   all there is to go by, its time has not come. The same holds after a restart for what was swept from memory but is
//!   still in the log, since sweeps are not logged. Both are hidden again when the clock reaches the deadline again.

use super::Sim;
use super::node::{SimNode, node_options, open, patiently};
use crate::core::{Core, FacetValue, OrderKey, OrderedScroll, QueryAnswer, QueryRequest, Shown};
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::node::NodeOptions;
use crate::payload_change::PayloadChange;
use crate::points::{PointFields, SearchRequest, Vectors, WriteBatch};
use nigh_engine::collection::{DenseConfig, WriteMode};
use nigh_engine::distance::Metric;
use nigh_engine::payload::{PayloadRow, RowBuilder, Value};
use nigh_engine::query::{Combine, LaneQuery, Leaf, Method, QueryOptions, Source};
use std::collections::BTreeSet;
use std::rc::Rc;

const NAME: &str = "docs";
const SECOND_MS: i64 = 1000;
const DAY_MS: i64 = 86_400 * SECOND_MS;
/// Points 0 to 9 stay; 10 to 19 live a minute; 20 to 29 have a key that does.
const TTL_MS: i64 = 60 * SECOND_MS;
const SWEEP_MS: u64 = 50;
const SEEDS: std::ops::Range<u64> = 1..21;

/// Starts a node of one or two cores on `disk`.
async fn start(sim: &Sim, disk: &Rc<SimDisk>, sweep_interval_ms: u64) -> (SimNode, Rc<Core>) {
    let count = 1 + sim.random().index(2);
    let options = NodeOptions { sweep_interval_ms, ..node_options() };
    let node = open(sim, disk, count, options).await;
    let core = node.cores[0].clone();
    (node, core)
}

async fn create(core: &Rc<Core>, name: &str) {
    loop {
        match core.create_collection(name, DenseConfig::new(1, Metric::L2)).await {
            Ok(()) | Err(OpError::CollectionExists(_)) => return,
            Err(OpError::Busy(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

async fn fill(core: &Rc<Core>, name: &str) {
    create(core, name).await;
    let now_ms = core.unix_ms();
    for id in 0..30 {
        let mut row = RowBuilder::new();
        let deadline_ms = if id >= 20 { now_ms + TTL_MS as u64 } else { 0 };
        row.set("brief", Value::Int(id as i64), deadline_ms);
        row.set("n", Value::Int(id as i64), 0);
        let ttl_ms = if (10..20).contains(&id) { TTL_MS } else { 0 };
        let point = PointFields { id, row: row.finish(), ttl_ms, expected_version: None };
        patiently(|| {
            let batch = WriteBatch {
                mode: WriteMode::Upsert,
                dim: 1,
                vectors: Vectors::PerPoint(vec![vec![id as f32]]),
                points: vec![point.clone()],
            };
            async { core.write(name, batch).await.map_err(|error| error.error) }
        })
        .await;
    }
}

/// What is visible: points, and points whose key is. Every way of reading must agree.
async fn seen(core: &Rc<Core>, name: &str) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let now_ms = core.unix_ms();
    let has_key = |row: &[u8]| PayloadRow::verify(row).expect("a whole row").get("brief", now_ms).is_some();
    let all: Vec<u64> = (0..30).collect();
    let got = patiently(|| core.get(name, all.clone(), true, true)).await;
    let points: BTreeSet<u64> = got.iter().flatten().map(|point| point.id).collect();
    let keys: BTreeSet<u64> =
        got.iter().flatten().filter(|point| has_key(&point.row)).map(|point| point.id).collect();

    let request = SearchRequest { vector: vec![0.0], k: 64, filter: None, with_rows: true };
    let hits = patiently(|| core.search(name, request.clone())).await;
    assert_eq!(hits.iter().map(|hit| hit.id).collect::<BTreeSet<u64>>(), points, "search");
    let found = hits.iter().filter(|hit| has_key(&hit.row)).map(|hit| hit.id).collect::<BTreeSet<u64>>();
    assert_eq!(found, keys, "keys of a search");

    let leaf = Leaf { source: Source::Dense(vec![0.0]), space: 0, pool: 64, filter: None };
    let lanes = LaneQuery {
        lanes: vec![leaf],
        combine: Combine::Fuse(Method::Rrf { c: 60.0 }),
        k: 64,
        options: QueryOptions::default(),
    };
    let request = QueryRequest { lanes, group: None, shown: Shown::default(), explain: false };
    match patiently(|| core.query(name, request.clone())).await.answer {
        QueryAnswer::Hits(hits) => {
            assert_eq!(hits.iter().map(|hit| hit.id).collect::<BTreeSet<u64>>(), points, "query");
        }
        QueryAnswer::Groups(_) => panic!("no groups were asked for"),
    }

    let page = patiently(|| core.scroll(name, None, None, 0)).await;
    assert_eq!(page.points.iter().map(|point| point.id).collect::<BTreeSet<u64>>(), points, "scroll");
    let order = |key: &str| OrderedScroll {
        filter: None,
        keys: vec![OrderKey { key: key.to_owned(), desc: false, is_string: false, is_datetime: false }],
        after: None,
        start_from: None,
        limit: 100,
    };
    for (key, expected) in [("n", &points), ("brief", &keys)] {
        let ordered = patiently(|| core.ordered(name, order(key))).await;
        let found: BTreeSet<u64> = ordered.positions.iter().map(|position| position.id).collect();
        assert_eq!(&found, expected, "ordered by {key}");
    }
    assert_eq!(patiently(|| core.count(name, None)).await, points.len() as u64, "count");
    let sample = patiently(|| core.sample(name, None, 100, 7)).await;
    assert_eq!(sample.into_iter().collect::<BTreeSet<u64>>(), points, "sample");
    let facets = patiently(|| core.facet(name, "brief".into(), None, 100)).await;
    let values = facets.iter().map(|(value, _)| match value {
        FacetValue::Int(value) => *value as u64,
        other => panic!("{other:?}"),
    });
    assert_eq!(values.collect::<BTreeSet<u64>>(), keys, "facet");
    (points, keys)
}

fn everything() -> (BTreeSet<u64>, BTreeSet<u64>) {
    ((0..30).collect(), (0..30).collect())
}

fn without_the_brief() -> (BTreeSet<u64>, BTreeSet<u64>) {
    ((0..10).chain(20..30).collect(), (0..10).collect())
}

async fn remaining_ms(core: &Rc<Core>, name: &str, id: u64) -> u64 {
    let got = patiently(|| core.get(name, vec![id], false, false)).await;
    got[0].as_ref().expect("a live point").ttl_ms
}

/// Runs `body` for every seed, each on a fresh disk.
fn each_seed<F: Future<Output = ()>>(body: impl Fn(Sim, Rc<SimDisk>) -> F) {
    for seed in SEEDS {
        println!("seed {seed}");
        super::run(seed, |sim| {
            let disk = SimDisk::new(seed);
            disk.set_yielding(true);
            body(sim, Rc::new(disk))
        });
        Core::set_current(None);
    }
}

#[test]
fn a_deadline_is_a_unix_time() {
    each_seed(|sim, disk| async move {
        let (_end, core) = start(&sim, &disk, 0).await;
        fill(&core, NAME).await;
        sim.sleep_us(30_000_000).await;
        assert_eq!(seen(&core, NAME).await, everything());
        assert!((29_000..=30_000).contains(&remaining_ms(&core, NAME, 10).await));
        // Forwards to just before it, then over it by time passing alone.
        sim.step_wall_clock_ms(20 * SECOND_MS);
        assert_eq!(seen(&core, NAME).await, everything());
        assert!((9_000..=10_000).contains(&remaining_ms(&core, NAME, 10).await));
        sim.sleep_us(11_000_000).await;
        assert_eq!(seen(&core, NAME).await, without_the_brief());
        // Backwards: it comes later by as much.
        sim.step_wall_clock_ms(-DAY_MS);
        let left = remaining_ms(&core, NAME, 10).await as i64;
        assert!((DAY_MS - 2 * SECOND_MS..=DAY_MS).contains(&left), "{left}");
    });
}

#[test]
fn a_step_forwards_hides_at_once() {
    each_seed(|sim, disk| async move {
        // Never swept: nothing but the look at the clock hides.
        let (_end, core) = start(&sim, &disk, 0).await;
        fill(&core, NAME).await;
        assert_eq!(seen(&core, NAME).await, everything());
        sim.step_wall_clock_ms(DAY_MS);
        assert_eq!(seen(&core, NAME).await, without_the_brief());
        // Not yet swept, and the clock says again that their time has not come.
        sim.step_wall_clock_ms(-DAY_MS);
        assert_eq!(seen(&core, NAME).await, everything());
        sim.sleep_us(TTL_MS as u64 * 1000).await;
        assert_eq!(seen(&core, NAME).await, without_the_brief());
    });
}

#[test]
fn what_was_swept_does_not_return_with_the_clock() {
    each_seed(|sim, disk| async move {
        let (_end, core) = start(&sim, &disk, SWEEP_MS).await;
        fill(&core, NAME).await;
        assert_eq!(seen(&core, NAME).await, everything());
        sim.step_wall_clock_ms(DAY_MS);
        assert_eq!(seen(&core, NAME).await, without_the_brief());
        sim.sleep_us(4 * SWEEP_MS * 1000).await;
        assert_eq!(core.metrics()[0].expired, 10, "all are swept");
        sim.step_wall_clock_ms(-2 * DAY_MS);
        assert_eq!(seen(&core, NAME).await, without_the_brief());
        // Nor does the change of another key of the same point bring a swept key back.
        let change = || PayloadChange::Merge {
            entries: vec![("other".to_owned(), Value::Int(1))],
            key_ttl_ms: Vec::new(),
        };
        patiently(|| core.change_payload(NAME, 25, change(), None)).await;
        assert_eq!(seen(&core, NAME).await, without_the_brief());
    });
}

#[test]
fn restarts_under_another_clock_go_by_that_clock() {
    for seed in SEEDS {
        println!("seed {seed}");
        let mut disk = Rc::new(SimDisk::new(seed));
        let mut began_ms = 0;
        // Offsets of the clock from one life to the next, and whether the deadline has passed by it.
        let lives =
            [(0, false), (30 * SECOND_MS, false), (DAY_MS, true), (-DAY_MS, false), (2 * DAY_MS, true)];
        for (life, (offset_ms, past)) in lives.into_iter().enumerate() {
            began_ms = super::run(seed * 100 + life as u64, |sim| {
                let disk = disk.clone();
                async move {
                    sim.step_wall_clock_ms(offset_ms);
                    // Never swept, so that each life finds what the log holds.
                    let (_end, core) = start(&sim, &disk, 0).await;
                    let mut began_ms = began_ms;
                    if life == 0 {
                        began_ms = core.unix_ms() as i64;
                        fill(&core, NAME).await;
                    }
                    // A collection made under a clock set back is told from those made before.
                    fill(&core, &format!("life{life}")).await;
                    assert_eq!(seen(&core, &format!("life{life}")).await, everything(), "life {life}");
                    let expected = if past { without_the_brief() } else { everything() };
                    assert_eq!(seen(&core, NAME).await, expected, "life {life}");
                    if !past {
                        let left = remaining_ms(&core, NAME, 15).await as i64;
                        let due = began_ms + TTL_MS - core.unix_ms() as i64;
                        assert!((due..due + SECOND_MS).contains(&left), "{left} left of {due}");
                    }
                    began_ms
                }
            });
            Core::set_current(None);
            disk = Rc::new(disk.crash_clone(seed + life as u64));
        }
    }
}

#[test]
fn a_sweep_under_a_clock_ahead_is_undone_by_a_restart_under_the_right_one() {
    // Not what anybody should count on, but what follows from sweeps not being logged; see the module.
    for seed in SEEDS {
        println!("seed {seed}");
        let disk = Rc::new(SimDisk::new(seed));
        super::run(seed, |sim| {
            let disk = disk.clone();
            async move {
                let (_end, core) = start(&sim, &disk, SWEEP_MS).await;
                fill(&core, NAME).await;
                sim.step_wall_clock_ms(DAY_MS);
                sim.sleep_us(4 * SWEEP_MS * 1000).await;
                assert_eq!(core.metrics()[0].expired, 10);
            }
        });
        Core::set_current(None);
        let disk = Rc::new(disk.crash_clone(seed));
        super::run(seed + 1000, |sim| {
            let disk = disk.clone();
            async move {
                let (_end, core) = start(&sim, &disk, SWEEP_MS).await;
                assert_eq!(seen(&core, NAME).await, everything());
                // The clock of this life began anew as well, and the points were written some time after that of the life before.
                sim.sleep_us(2 * TTL_MS as u64 * 1000).await;
                assert_eq!(seen(&core, NAME).await, without_the_brief());
            }
        });
        Core::set_current(None);
    }
}
