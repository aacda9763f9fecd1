//! Backups in simulation: made while clients write, on failing stores, by processes that are killed; and restored into nodes of other numbers of cores.
//!
//! One client writes to each collection, so that its states follow each other. A snapshot must be one of those that the collection had between the
//! beginning and the end of its run, as a whole.

use super::keys_test::{Order, carry_out};
use super::node::{next_life, node_options, open, patiently, until_not_busy};
use super::{Random, Sim};
use crate::backup::{BackupOptions, BackupTarget, Fault, MemoryStore, Requests, Store, Stores};
use crate::core::{BackedUp, Core, RestoreRequest};
use crate::disk::{Calls, Failure, SimDisk};
use crate::error::OpError;
use crate::family::CollectionConfig;
use crate::node::NodeOptions;
use crate::points::{NamedVectors, PointFields, StoredPoint, Vectors, WriteBatch, Written};
use nigh_engine::collection::{DenseConfig, IndexType, IvfConfig, MultiVectorConfig, Quantizer, WriteMode};
use nigh_engine::distance::Metric;
use nigh_engine::payload::{PayloadRow, RowBuilder, Value, ValueRef};
use nigh_engine::quantizer::Quantization;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

const DIM: usize = 4;
pub(super) const IDS: u64 = 14;
const COLLECTIONS: usize = 4;

pub(super) fn name_of(collection: usize) -> String {
    ["docs", "acme/files", "cells", "tokens"][collection].to_owned()
}

pub(super) fn config_of(collection: usize) -> CollectionConfig {
    let mut config = DenseConfig::new(DIM, Metric::L2);
    (config.m, config.ef_construction) = (4, 32);
    match collection {
        0 => {}
        1 => {
            config.persistent = true;
            config.quant = Quantizer::Trained(Quantization::Sign);
        }
        2 => {
            config.index =
                IndexType::Ivf(IvfConfig { train_threshold: 6, nprobe: 2, ..IvfConfig::default() });
        }
        _ => return MultiVectorConfig::new(DenseConfig { metric: Metric::Cosine, ..config }).into(),
    }
    config.into()
}

/// What a point is: its tag tells it from all others, and its vector depends on the tag.
pub(super) fn batch(collection: usize, id: u64, tag: i64) -> WriteBatch {
    let mut row = RowBuilder::new();
    row.set("tag", Value::Int(tag), 0);
    let fields = PointFields { id, row: row.finish(), ttl_ms: 0, expected_version: None };
    let vector: Vec<f32> = (0..DIM).map(|at| ((tag * 31 + at as i64 * 7) % 101) as f32 + 1.0).collect();
    let vectors = match collection {
        3 => {
            let tokens = (0..1 + tag % 3).map(|token| vector.iter().map(|x| x + token as f32).collect());
            Vectors::Named(vec![NamedVectors { tokens: tokens.collect(), ..NamedVectors::default() }])
        }
        _ => Vectors::PerPoint(vec![vector]),
    };
    WriteBatch { mode: WriteMode::Upsert, dim: DIM, vectors, points: vec![fields] }
}

/// A state of a collection: the version and the tag of each id that is there.
pub(super) type Contents = BTreeMap<u64, (u64, i64)>;

/// The states that a collection has had, in order; the last one may be that of a write which is under way.
#[derive(Default)]
struct History(Vec<Contents>);

impl History {
    fn last(&self) -> Contents {
        self.0.last().cloned().unwrap_or_default()
    }
}

pub(super) async fn read(core: &Rc<Core>, name: &str) -> Contents {
    contents_of(patiently(|| core.get(name, (0..IDS).collect(), true, true)).await)
}

/// What was found of the ids from 0 on.
pub(super) fn contents_of(found: Vec<Option<StoredPoint>>) -> Contents {
    let tag_of = |row: &[u8]| match PayloadRow::verify(row).expect("a stored row is whole").get("tag", 0) {
        Some(ValueRef::Int(tag)) => tag,
        other => panic!("unexpected tag {other:?}"),
    };
    let point = |(id, point): (usize, Option<StoredPoint>)| {
        point.map(|point| (id as u64, (point.version, tag_of(&point.row))))
    };
    found.into_iter().enumerate().filter_map(point).collect()
}

/// Writes to one collection until `is_over`; each state is in `history` before it can be seen.
async fn client(
    sim: Sim,
    core: Rc<Core>,
    collection: usize,
    history: Rc<RefCell<History>>,
    (is_over, writing): (Rc<Cell<bool>>, Rc<Cell<usize>>),
) {
    let (random, name) = (sim.random().fork(), name_of(collection));
    // Versions go on where a deleted id comes back.
    let mut given: BTreeMap<u64, u64> = BTreeMap::new();
    for tag in 1.. {
        if is_over.get() {
            writing.set(writing.get() - 1);
            return;
        }
        let id = random.below(IDS);
        let mut state = history.borrow().last();
        if random.chance(1, 4) {
            if state.remove(&id).is_some() {
                history.borrow_mut().0.push(state);
                patiently(|| core.delete(&name, id, None)).await;
            }
        } else {
            let version = given.get(&id).map_or(1, |given| given + 1);
            given.insert(id, version);
            state.insert(id, (version, tag));
            history.borrow_mut().0.push(state);
            let write = || async {
                core.write(&name, batch(collection, id, tag)).await.map_err(|stopped| stopped.error)
            };
            assert_eq!(patiently(write).await, [Written::Ok { version }], "{name} {id}");
        }
        sim.sleep_us(random.below(8_000)).await;
    }
}

pub(super) fn options(store: &MemoryStore, random: &Random) -> NodeOptions {
    let store = store.clone();
    let stores = Stores::new(move || Rc::new(store.clone()) as Rc<dyn Store>);
    let directory = Some(BackupTarget { stores, prefix: ["", "prod"][random.index(2)].to_owned() });
    NodeOptions {
        shards: 1 << random.below(5),
        image_records_min: 1 + random.below(40),
        backup: BackupOptions { directory, retention: 3, ..BackupOptions::default() },
        ..node_options()
    }
}

/// A run, and for each collection the states that its snapshot may be.
struct Run {
    time: String,
    prefix_of_states: Vec<(usize, usize)>,
    done: Vec<BackedUp>,
}

fn time_of(key: &str) -> String {
    key.rsplit('/').next().expect("a key has parts").trim_end_matches(".snap").to_owned()
}

async fn back_up(core: &Rc<Core>, histories: &[Rc<RefCell<History>>]) -> Run {
    let begun: Vec<usize> =
        histories.iter().map(|history| history.borrow().0.len().saturating_sub(2)).collect();
    let run = patiently(|| core.back_up()).await;
    assert_eq!(run.failures, Vec::<String>::new());
    let ended = histories.iter().map(|history| history.borrow().0.len());
    let time = run.collections.iter().find_map(|done| done.key.as_deref()).map_or_else(String::new, time_of);
    Run { time, prefix_of_states: begun.into_iter().zip(ended).collect(), done: run.collections }
}

fn restore(collection: usize, time: &str, into: Option<&str>) -> RestoreRequest {
    RestoreRequest {
        collection: name_of(collection),
        time: Some(time.to_owned()),
        into: into.map(str::to_owned),
    }
}

/// Restores the snapshot of a run beside the others and compares it with what the collection was.
async fn check_run(core: &Rc<Core>, run: &Run, histories: &[Rc<RefCell<History>>]) {
    for (collection, history) in histories.iter().enumerate() {
        let name = format!("restored{collection}");
        patiently(|| core.restore_collection(restore(collection, &run.time, Some(&name)))).await;
        let found = read(core, &name).await;
        let (first, end) = run.prefix_of_states[collection];
        let possible = &history.borrow().0[first..end];
        assert!(
            possible.contains(&found)
                || possible.is_empty() && found.is_empty()
                || first == 0 && found.is_empty(),
            "{name}: found {found:?}, possible {possible:?}"
        );
    }
}

/// A node whose collections are written to while backups are made; each run is restored there, and into a node of another number of cores.
fn check_seed(seed: u64) {
    let random = Random::new(seed);
    let disk = SimDisk::new(random.next());
    disk.set_yielding(true);
    let disk = Rc::new(disk);
    let store = MemoryStore::new();
    store.set_page(1 + random.index(20));
    let options = options(&store, &random);
    let counts = [1 + random.index(3), 1 + random.index(3)];
    let histories: Vec<Rc<RefCell<History>>> = (0..COLLECTIONS).map(|_| Rc::default()).collect();
    let states: Rc<RefCell<BTreeMap<String, Contents>>> = Rc::default();
    let found = states.clone();
    let (of_life, random_of_life) = (options.clone(), random.fork());
    super::run(random.next(), |sim| {
        let (disk, histories, options, random) = (disk.clone(), histories.clone(), of_life, random_of_life);
        let states = found;
        async move {
            let mut runs = Vec::new();
            let node = open(&sim, &disk, counts[0], options).await;
            let any = |random: &Random| node.cores[random.index(counts[0])].clone();
            for collection in 0..COLLECTIONS {
                let (core, name) = (any(&random), name_of(collection));
                patiently(|| core.create_collection(&name, config_of(collection))).await;
            }
            let (is_over, writing) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(COLLECTIONS)));
            for (collection, history) in histories.iter().enumerate() {
                sim.spawn(client(
                    sim.clone(),
                    any(&random),
                    collection,
                    history.clone(),
                    (is_over.clone(), writing.clone()),
                ));
            }
            for _ in 0..4 {
                sim.sleep_us(random.below(20_000)).await;
                let run = back_up(&any(&random), &histories).await;
                assert!(run.done.iter().all(|done| done.error.is_none()), "{:?}", run.done);
                runs.push(run);
            }
            is_over.set(true);
            while writing.get() > 0 {
                sim.sleep_us(1_000).await;
            }
            // Three are kept.
            let oldest = runs.remove(0);
            let core = any(&random);
            let refused = until_not_busy(|| core.restore_collection(restore(0, &oldest.time, None))).await;
            let error = refused.expect_err("it was removed");
            assert!(matches!(error, OpError::NoSnapshot { .. }), "{error}");
            for run in &runs {
                check_run(&any(&random), run, &histories).await;
            }
            // In its own place, where it replaces what is there.
            assert_eq!(read(&any(&random), &name_of(1)).await, histories[1].borrow().last());
            let (core, time) = (any(&random), runs[1].time.clone());
            check_run(&core, &runs[1], &histories).await;
            let restored = patiently(|| core.restore_collection(restore(1, &time, None))).await;
            assert!(restored.has_replaced && restored.collection == name_of(1));
            let expected = read(&core, "restored1").await;
            assert_eq!(read(&core, &name_of(1)).await, expected);
            // It takes writes as any other.
            let write = || async {
                core.write(&name_of(1), batch(1, IDS - 1, 7)).await.map_err(|stopped| stopped.error)
            };
            patiently(write).await;
            for collection in 0..COLLECTIONS {
                for name in [name_of(collection), format!("restored{collection}")] {
                    let state = read(&core, &name).await;
                    states.borrow_mut().insert(name, state);
                }
            }
        }
    });
    Core::set_current(None);
    // A kill, and a node of another number of cores.
    let disk = Rc::new(disk.crash_clone(random.next()));
    super::run(random.next(), |sim| async move {
        let node = open(&sim, &disk, counts[1], options).await;
        for (name, state) in states.take() {
            assert_eq!(read(&node.cores[0], &name).await, state, "{name}");
        }
    });
    Core::set_current(None);
}

#[test]
fn a_snapshot_is_a_state_that_the_collection_had_during_its_run() {
    check_seeds(40, check_seed);
}

/// Checks some seeds, or fifty times as many at night.
pub(super) fn check_seeds(usual: u64, check: fn(u64)) {
    let seeds = if std::env::var_os("NIGH_TEST_LONG").is_some() { 50 * usual } else { usual };
    let chosen =
        std::env::var("NIGH_TEST_SEED").map(|seed| seed.parse().expect("NIGH_TEST_SEED is a number"));
    let seeds = chosen.map_or(1..=seeds, |seed: u64| seed..=seed);
    for seed in seeds {
        if let Err(panic) = std::panic::catch_unwind(|| check(seed)) {
            eprintln!("failing seed: {seed} (replay with NIGH_TEST_SEED={seed})");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Writes `tag` to every third id and removes one.
pub(super) async fn change(core: &Rc<Core>, collection: usize, tag: i64) {
    let name = name_of(collection);
    for id in (0..IDS).filter(|id| id % 3 == tag as u64 % 3) {
        let write =
            || async { core.write(&name, batch(collection, id, tag)).await.map_err(|stopped| stopped.error) };
        patiently(write).await;
    }
    patiently(|| core.delete(&name, tag as u64 % IDS, None)).await;
}

/// Every snapshot in the store can be read, has all its pieces, and is not one that a run has reported as failed.
async fn check_store(core: &Rc<Core>, states: &BTreeMap<String, Contents>, newest: &Contents) {
    let (objects, _) = core.backups(1000).await.expect("the store answers");
    let snapshots = objects.iter().filter(|object| object.key.ends_with(".snap"));
    for object in snapshots {
        let time = time_of(&object.key);
        patiently(|| core.restore_collection(restore(1, &time, Some("again")))).await;
        let found = read(core, "again").await;
        // A snapshot whose run was told that it failed may be there all the same, as a whole.
        assert!(states.get(&time).map_or(found == *newest, |state| found == *state), "{time}: {found:?}");
    }
}

#[test]
fn a_fault_at_any_request_leaves_nothing_half_published() {
    for fault in
        [Fault::Error, Fault::Broken, Fault::Refused, Fault::Timeout, Fault::HalfBody, Fault::AfterEffect]
    {
        for skip in 0.. {
            let store = MemoryStore::new();
            store.set_page(3);
            let random = Random::new(skip);
            let (options, disk) = (options(&store, &random), Rc::new(SimDisk::new(skip)));
            let of_run = store.clone();
            let has_failed = super::run(skip, |sim| async move {
                let (store, mut states) = (of_run, BTreeMap::new());
                let node = open(&sim, &disk, 1 + skip as usize % 2, options).await;
                let core = &node.cores[0];
                let name = name_of(1);
                patiently(|| core.create_collection(&name, config_of(1))).await;
                for tag in 1..3 {
                    change(core, 1, tag).await;
                    let run = patiently(|| core.back_up()).await;
                    let key = run.collections[0].key.clone().expect("nothing fails yet");
                    states.insert(time_of(&key), read(core, &name_of(1)).await);
                }
                change(core, 1, 3).await;
                let newest = read(core, &name_of(1)).await;
                let before = store.requests(Requests::Any);
                store.fail(Requests::Any, skip, fault);
                let run = patiently(|| core.back_up()).await;
                let requests = store.requests(Requests::Any) - before;
                store.heal();
                assert_eq!(store.open_uploads(), 0);
                if let Some(key) = &run.collections.first().and_then(|done| done.key.clone()) {
                    states.insert(time_of(key), newest.clone());
                }
                check_store(core, &states, &newest).await;
                // The next run succeeds.
                let run = patiently(|| core.back_up()).await;
                let key = run.collections[0].key.clone().unwrap_or_else(|| panic!("{run:?}"));
                states.insert(time_of(&key), newest.clone());
                check_store(core, &states, &newest).await;
                // So does a restore after one that failed, and the collection serves what it did until then.
                store.fail(Requests::Any, skip, fault);
                let oldest = states.keys().next().expect("there are some").clone();
                let restored = until_not_busy(|| core.restore_collection(restore(1, &oldest, None))).await;
                let failed = restored.is_err();
                store.heal();
                let expected = if failed { &newest } else { &states[&oldest] };
                assert_eq!(read(core, &name_of(1)).await, *expected);
                let later = states.keys().nth(1).expect("there are some").clone();
                patiently(|| core.restore_collection(restore(1, &later, None))).await;
                assert_eq!(read(core, &name_of(1)).await, states[&later]);
                skip < requests
            });
            Core::set_current(None);
            if !has_failed {
                break;
            }
        }
    }
}

/// Processes that are killed, or whose disks fail, in the middle of backups and restores: a collection is what it was or what was restored.
fn check_kills(seed: u64) {
    let random = Random::new(seed);
    let store = MemoryStore::new();
    let mut disk = SimDisk::new(random.next());
    disk.set_yielding(true);
    // The states that the collection may be found in, and the time and state of one snapshot.
    let possible: Rc<RefCell<Vec<Contents>>> = Rc::default();
    let snapshot: Rc<RefCell<Option<(String, Contents)>>> = Rc::default();
    let collection = 1 + 2 * random.index(2);
    for life in 0..6i64 {
        let shared = Rc::new(disk);
        let (options, count) =
            (options(&MemoryStore::clone(&store), &Random::new(seed)), 1 + random.index(3));
        let (random2, possible2, snapshot2, disk2) =
            (random.fork(), possible.clone(), snapshot.clone(), shared.clone());
        super::run(random.next(), |sim| async move {
            let (random, possible, snapshot, disk) = (random2, possible2, snapshot2, disk2);
            // The clock goes on from life to life.
            sim.step_wall_clock_ms(life * 10_000);
            let node = open(&sim, &disk, count, options).await;
            let (core, name) = (node.cores[random.index(count)].clone(), name_of(collection));
            assert_eq!(core.not_ready(), None);
            if life == 0 {
                patiently(|| core.create_collection(&name, config_of(collection))).await;
            } else {
                let found = read(&core, &name).await;
                assert!(possible.borrow().contains(&found), "found {found:?}, possible {possible:?}");
            }
            change(&core, collection, 10 + life).await;
            let now = read(&core, &name).await;
            *possible.borrow_mut() = vec![now.clone()];
            if snapshot.borrow().is_none() || random.chance(1, 3) {
                let run = patiently(|| core.back_up()).await;
                let key = run.collections[0].key.clone().unwrap_or_else(|| panic!("{run:?}"));
                *snapshot.borrow_mut() = Some((time_of(&key), now));
                change(&core, collection, 100 + life).await;
                *possible.borrow_mut() = vec![read(&core, &name).await];
            }
            let (time, state) = snapshot.borrow().clone().expect("made above");
            if random.chance(1, 3) {
                let calls = [Calls::Write, Calls::NameSync, Calls::Other][random.index(3)];
                // Writes are those of files and of the log, whose failure would end this life.
                if calls != Calls::Write {
                    disk.fail(calls, random.below(30), Failure::Io);
                }
            }
            let (core2, possible2) = (core.clone(), possible.clone());
            sim.spawn(async move {
                possible2.borrow_mut().push(state.clone());
                if core2.restore_collection(restore(collection, &time, None)).await.is_ok() {
                    *possible2.borrow_mut() = vec![state];
                } else {
                    // It serves what it did, and what is written to it now does not go with the next start.
                    let mut after = read(&core2, &name_of(collection)).await;
                    *possible2.borrow_mut() = vec![after.clone()];
                    if let Some((&id, &(version, _))) = after.iter().next() {
                        after.insert(id, (version + 1, 900 + life));
                        possible2.borrow_mut().push(after.clone());
                        if core2.write(&name_of(collection), batch(collection, id, 900 + life)).await.is_ok()
                        {
                            *possible2.borrow_mut() = vec![after];
                        }
                    }
                }
                let _ended = core2.back_up().await;
            });
            sim.sleep_us(random.below(40_000)).await;
        });
        Core::set_current(None);
        shared.heal();
        disk = next_life(&shared, &random);
    }
}

#[test]
fn a_kill_in_the_middle_of_a_backup_or_a_restore_leaves_a_whole_collection() {
    check_seeds(100, check_kills);
}

/// A node with one collection that was backed up and changed since; the time and the state of the snapshot.
async fn backed_up(core: &Rc<Core>, collection: usize) -> (String, Contents) {
    let name = name_of(collection);
    patiently(|| core.create_collection(&name, config_of(collection))).await;
    change(core, collection, 1).await;
    let run = patiently(|| core.back_up()).await;
    let time = time_of(run.collections[0].key.as_deref().unwrap_or_else(|| panic!("{run:?}")));
    let state = read(core, &name).await;
    change(core, collection, 2).await;
    (time, state)
}

/// A collection that is dropped and made again while it is restored: whatever serves in the end serves after a kill as well, and nothing else is left.
fn check_rivals(seed: u64) {
    let random = Random::new(seed);
    let collection = 1 + 2 * random.index(2);
    let (store, disk) = (MemoryStore::new(), SimDisk::new(random.next()));
    disk.set_yielding(true);
    let (options, disk) = (options(&store, &random), Rc::new(disk));
    let found: Rc<RefCell<Contents>> = Rc::default();
    let (of_life, disk2, found2, random2) = (options.clone(), disk.clone(), found.clone(), random.fork());
    super::run(random.next(), |sim| async move {
        let node = open(&sim, &disk2, 2, of_life).await;
        let (core, name) = (node.cores[0].clone(), name_of(collection));
        let (time, _) = backed_up(&core, collection).await;
        let is_over = Rc::new(Cell::new(false));
        let (core2, is_over2) = (node.cores[1].clone(), is_over.clone());
        sim.spawn(async move {
            // It may find a collection of its name that is younger than its own files.
            let _done = until_not_busy(|| core2.restore_collection(restore(collection, &time, None))).await;
            is_over2.set(true);
        });
        sim.sleep_us(random2.below(3_000)).await;
        let _was_there = patiently(|| core.drop_collection(&name, None)).await;
        match until_not_busy(|| core.create_collection(&name, config_of(collection))).await {
            Ok(()) | Err(OpError::CollectionExists(_)) => {}
            Err(other) => panic!("{other}"),
        }
        while !is_over.get() {
            sim.sleep_us(100).await;
        }
        *found2.borrow_mut() = read(&core, &name).await;
    });
    Core::set_current(None);
    let disk = Rc::new(disk.crash_clone(random.next()));
    super::run(random.next(), |sim| async move {
        let node = open(&sim, &disk, 1, options).await;
        assert_eq!(node.cores[0].not_ready(), None);
        assert_eq!(read(&node.cores[0], &name_of(collection)).await, found.take());
    });
    Core::set_current(None);
}

#[test]
fn a_collection_that_is_made_while_it_is_restored_is_replaced_for_good() {
    check_seeds(40, check_rivals);
}

#[test]
fn what_a_restore_has_replaced_does_not_come_back_after_a_drop() {
    for calls in [Calls::NameSync, Calls::Other] {
        for skip in 0..60 {
            let (store, disk) = (MemoryStore::new(), Rc::new(SimDisk::new(skip)));
            let options = options(&store, &Random::new(skip));
            let (of_life, disk2) = (options.clone(), disk.clone());
            let is_dropped = super::run(skip, |sim| async move {
                let node = open(&sim, &disk2, 1, of_life).await;
                let core = node.cores[0].clone();
                let (time, _) = backed_up(&core, 1).await;
                disk2.fail(calls, skip, Failure::Io);
                let _may_fail = until_not_busy(|| core.restore_collection(restore(1, &time, None))).await;
                disk2.heal();
                let name = name_of(1);
                until_not_busy(|| core.drop_collection(&name, None)).await.is_ok()
            });
            Core::set_current(None);
            let disk = Rc::new(disk.crash_clone(skip));
            super::run(skip, |sim| async move {
                let node = open(&sim, &disk, 2, options).await;
                let core = &node.cores[0];
                let name = name_of(1);
                let found = until_not_busy(|| core.get(&name, vec![0], false, false)).await;
                assert!(
                    !is_dropped || matches!(found, Err(OpError::UnknownCollection(_))),
                    "{calls:?} {skip}: {found:?}"
                );
            });
            Core::set_current(None);
        }
    }
}

/// With two stores, a run reads what has changed once for each of them, and not everything for one.
#[test]
fn images_that_both_stores_have_are_not_read_again() {
    let calls: Vec<u64> = [false, true]
        .into_iter()
        .map(|has_both| {
            let (stores, disk) = ([MemoryStore::new(), MemoryStore::new()], Rc::new(SimDisk::new(14)));
            let mut options = options(&stores[0], &Random::new(14));
            if has_both {
                options.backup.bucket = options_bucket(&stores[1], &options);
            }
            let found = Rc::new(Cell::new(0));
            let of_life = found.clone();
            super::run(14, |sim| async move {
                let node = open(&sim, &disk, 1, options).await;
                let core = &node.cores[0];
                for collection in 0..COLLECTIONS {
                    let name = name_of(collection);
                    patiently(|| core.create_collection(&name, config_of(collection))).await;
                    change(core, collection, 1).await;
                }
                let order = Order::Put { value: vec![1], ttl_ms: 0 };
                patiently(|| carry_out(core, b"key", &order)).await;
                for _ in 0..3 {
                    let before = disk.calls(Calls::Any);
                    let run = patiently(|| core.back_up()).await;
                    assert!(run.collections.iter().chain(&run.parts).all(|done| done.error.is_none()));
                    of_life.set(disk.calls(Calls::Any) - before);
                }
            });
            Core::set_current(None);
            found.get()
        })
        .collect();
    assert!(calls[1] <= 2 * calls[0], "calls of the disk with one store and with two: {calls:?}");
}

/// The bucket of a node that has the directory of `options`: another store with the same prefix.
fn options_bucket(store: &MemoryStore, options: &NodeOptions) -> Option<BackupTarget> {
    let store = store.clone();
    let stores = Stores::new(move || Rc::new(store.clone()) as Rc<dyn Store>);
    options.backup.directory.as_ref().map(|directory| BackupTarget { stores, ..directory.clone() })
}
