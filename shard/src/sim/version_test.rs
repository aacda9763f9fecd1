//! Versions in simulation: whatever happens to an id, no version is given to it twice.
//!
//! Inserts, replacements, changes of payload, deletes, deadlines with and without a sweeper, images, bulk builds and restarts, each drawn
//! by the seed; beside them a map of the last version of every id.

use super::node::{next_life, node_options, open, patiently};
use super::{Random, Sim};
use crate::core::Core;
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::node::NodeOptions;
use crate::payload_change::PayloadChange;
use crate::points::{PointFields, Vectors, WriteBatch, Written};
use nigh_engine::collection::{DenseConfig, WriteMode};
use nigh_engine::distance::Metric;
use nigh_engine::payload::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const NAME: &str = "docs";
const IDS: u64 = 12;
const LIVES: u64 = 5;
const STEPS: u64 = 120;

/// The last version of every id that was ever there.
type Given = Rc<RefCell<BTreeMap<u64, u64>>>;

fn options(random: &Random) -> NodeOptions {
    NodeOptions {
        segment_bytes: 4096 * (2 + random.below(8)),
        log_bytes_soft: 4096 * (4 + random.below(64)),
        image_records_min: 1 + random.below(40),
        sweep_interval_ms: random.below(2) * 20,
        ..node_options()
    }
}

fn point(id: u64, ttl_ms: i64) -> WriteBatch {
    let points = vec![PointFields { id, row: Vec::new(), ttl_ms, expected_version: None }];
    WriteBatch { mode: WriteMode::Upsert, dim: 1, vectors: Vectors::Native(vec![id as f32]), points }
}

async fn version(core: &Rc<Core>, id: u64) -> Option<u64> {
    let got = patiently(|| core.get(NAME, vec![id], false, false)).await;
    got[0].as_ref().map(|point| point.version)
}

/// `id` is at `version` now: one more than ever before.
fn check(given: &Given, id: u64, version: u64, what: &str) {
    let before = given.borrow_mut().insert(id, version).unwrap_or(0);
    assert_eq!(version, before + 1, "{what} of id {id}");
}

async fn step(sim: &Sim, core: &Rc<Core>, random: &Random, given: &Given) {
    let id = random.below(IDS);
    match random.below(12) {
        0..=4 => {
            let ttl_ms = if random.chance(1, 3) { 1 + random.below(60) as i64 } else { 0 };
            let written = patiently(|| async {
                core.write(NAME, point(id, ttl_ms)).await.map_err(|error| error.error)
            });
            let [Written::Ok { version }] = written.await[..] else { panic!("the write of {id} is refused") };
            check(given, id, version, "a write");
        }
        5 | 6 => {
            patiently(|| core.delete(NAME, id, None)).await;
        }
        7 => {
            let entries = || vec![("n".to_owned(), Value::Int(1))];
            let change = || PayloadChange::Merge { entries: entries(), key_ttl_ms: Vec::new() };
            match core.change_payload(NAME, id, change(), None).await {
                Ok(version) => check(given, id, version, "a change"),
                Err(OpError::PointNotFound(_) | OpError::Busy(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
        8 => sim.sleep_us(random.below(100_000)).await,
        9 => {
            for owned in core.collections.all_owned() {
                core.collections.checkpoint(&owned).await.unwrap();
            }
        }
        // What was there must not be had under an old version.
        10 => {
            let last = given.borrow().get(&id).copied().unwrap_or(0);
            if version(core, id).await.is_none() && last > 0 {
                let mut batch = point(id, 0);
                batch.points[0].expected_version = Some(1 + random.below(last));
                let written = patiently(|| async {
                    let batch = WriteBatch {
                        vectors: Vectors::Native(vec![0.0]),
                        points: batch.points.clone(),
                        ..batch
                    };
                    core.write(NAME, batch).await.map_err(|error| error.error)
                });
                assert_eq!(written.await, [Written::Conflict], "id {id} is absent");
            }
        }
        _ => build(core, random, given).await,
    }
}

/// Empties the collection and builds some ids in bulk.
async fn build(core: &Rc<Core>, random: &Random, given: &Given) {
    for id in 0..IDS {
        // Some are left to expire: if one is there when the build begins, there is no build.
        if random.chance(9, 10) {
            patiently(|| core.delete(NAME, id, None)).await;
        }
    }
    let mut staged: Vec<u64> = (0..IDS).filter(|_| random.chance(1, 2)).collect();
    // What a refused build has left is staged yet.
    staged.retain(|id| !given.borrow().contains_key(&(id + (1 << 32))));
    let fields = |&id: &u64| PointFields { id, row: Vec::new(), ttl_ms: 0, expected_version: None };
    let points: Vec<_> = staged.iter().map(fields).collect();
    loop {
        let vectors = Vectors::Native(staged.iter().map(|id| *id as f32).collect());
        let batch = WriteBatch { mode: WriteMode::Insert, dim: 1, vectors, points: points.clone() };
        match core.stage(NAME, batch).await {
            Ok(_) => break,
            Err(OpError::Busy(_)) => {}
            // One that is left to expire is there yet.
            Err(OpError::Conflict(_)) => return,
            Err(other) => panic!("{other}"),
        }
    }
    staged.iter().for_each(|id| _ = given.borrow_mut().insert(id + (1 << 32), 0));
    match core.build(NAME, 1, true).await {
        Ok(_) => {
            let marks: Vec<u64> = given.borrow_mut().split_off(&(1 << 32)).into_keys().collect();
            for id in marks.into_iter().map(|mark| mark - (1 << 32)) {
                let version = version(core, id).await.expect("what was built is there");
                check(given, id, version, "a bulk build");
            }
        }
        Err(OpError::Conflict(_) | OpError::Busy(_)) => {}
        Err(other) => panic!("{other}"),
    }
}

async fn life(sim: Sim, disk: Rc<SimDisk>, given: Given) {
    let random = sim.random().fork();
    let node = open(&sim, &disk, 1 + random.index(2), options(&random)).await;
    let core = node.cores[0].clone();
    loop {
        match core.create_collection(NAME, DenseConfig::new(1, Metric::L2)).await {
            Ok(()) | Err(OpError::CollectionExists(_)) => break,
            Err(OpError::Busy(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    // What was staged went with the process.
    given.borrow_mut().split_off(&(1 << 32));
    for id in 0..IDS {
        if let Some(version) = version(&core, id).await {
            assert_eq!(Some(&version), given.borrow().get(&id), "id {id} after a restart");
        }
    }
    for _ in 0..random.below(STEPS) {
        step(&sim, &core, &random, &given).await;
    }
}

#[test]
fn no_version_is_given_twice_to_one_id() {
    let seeds = if std::env::var_os("NIGH_TEST_LONG").is_some() { 3000 } else { 60 };
    for seed in 1..=seeds {
        let random = Random::new(seed);
        let mut disk = SimDisk::new(random.next());
        disk.set_yielding(true);
        let given = Given::default();
        for _ in 0..LIVES {
            let shared = Rc::new(disk);
            println!("seed {seed}");
            super::run(random.next(), |sim| life(sim, shared.clone(), given.clone()));
            Core::set_current(None);
            disk = next_life(&shared, &random);
        }
    }
}
