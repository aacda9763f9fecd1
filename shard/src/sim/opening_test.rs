//! Operations that arrive while the store is being opened: they are carried out, or refused with nothing done, and a crash at any moment of the
//! opening loses nothing that was acknowledged before or meanwhile.

use super::node::{OpeningNode, begin, next_life, node_options};
use super::{Random, Sim};
use crate::core::{AliasChange, Core};
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::kv::batch::{Answers, KeyOp, KeyResult};
use crate::node::NodeOptions;
use crate::opening::GiveWay;
use crate::points::{PointFields, SearchRequest, Vectors, WriteBatch};
use crate::progress::Stage;
use nigh_engine::collection::{DenseConfig, WriteMode};
use nigh_engine::distance::Metric;
use nigh_engine::kv::{Op, Read};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

const CLIENTS: u64 = 3;
/// Ids that each client has in each collection and among the keys.
const IDS: u64 = 8;
const COLLECTIONS: usize = 5;
/// The place of keys beside the collections.
const KEYS: usize = COLLECTIONS;
/// Bytes of the payload of a point: images take some time to read.
const FILL: usize = 600;

/// A collection, or the keys, and an id.
type WhereKept = (usize, u64);

/// What may be found in each place: the first is what was acknowledged last, the others were asked for since.
type Model = Rc<RefCell<BTreeMap<WhereKept, Vec<Option<f32>>>>>;

/// What has happened, over all seeds: without it the test would show nothing.
#[derive(Default)]
struct Seen {
    /// Operations carried out while other things were being opened.
    early: Cell<u64>,
    /// Operations refused because their collection was not open, by whether the catalog was known.
    refused: Cell<u64>,
    refused_unread: Cell<u64>,
    keys_refused: Cell<u64>,
    changes_refused: Cell<u64>,
    /// Lives that ended while their store was being opened.
    cut: Cell<u64>,
    stopped: Cell<u64>,
}

fn add(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

fn name_of(collection: usize) -> String {
    format!("c{collection}")
}

fn config() -> DenseConfig {
    DenseConfig { m: 4, ef_construction: 32, ..DenseConfig::new(2, Metric::L2) }
}

fn options(random: &Random) -> NodeOptions {
    NodeOptions {
        shards: 4,
        segment_bytes: 4096 * (2 + random.below(8)),
        log_bytes_soft: 4096 * (4 + random.below(16)),
        image_records_min: 1 + random.below(20),
        sweep_interval_ms: 20,
        ..node_options()
    }
}

/// Keeps the result of one operation on a key.
#[derive(Default)]
struct Told(Option<Result<Option<f32>, OpError>>);

fn number(value: &[u8]) -> f32 {
    f32::from_le_bytes(value.try_into().expect("four bytes were put"))
}

impl Answers for Told {
    fn answer(&mut self, result: KeyResult<'_>) {
        self.0 = Some(match result {
            KeyResult::Refused(error) | KeyResult::Failed(error) => Err(error.clone()),
            KeyResult::Value(value) => Ok(Some(number(value))),
            _ => Ok(None),
        });
    }

    fn value(&mut self, append: impl FnOnce(&mut Vec<u8>) -> Read) -> Read {
        let mut value = Vec::new();
        let read = append(&mut value);
        self.0 = Some(Ok(matches!(read, Read::Found { .. }).then(|| number(&value))));
        read
    }
}

/// Reads a place.
async fn read(core: &Rc<Core>, (place, id): WhereKept) -> Result<Option<f32>, OpError> {
    if place == KEYS {
        let mut told = Told::default();
        core.keys().get_keys(&[&id.to_le_bytes()], &mut told).await?;
        return told.0.expect("one key was asked for");
    }
    let found = core.get(&name_of(place), vec![id], true, false).await?;
    Ok(found.into_iter().next().flatten().map(|point| point.vector.expect("asked for")[0]))
}

/// Writes a place, or removes what is there.
async fn write(core: &Rc<Core>, (place, id): WhereKept, value: Option<f32>) -> Result<(), OpError> {
    if place == KEYS {
        let (key, bytes) = (id.to_le_bytes(), value.unwrap_or_default().to_le_bytes());
        let op = match value {
            Some(_) => Op::Put { key: &key, value: &bytes, ttl_ms: 0 },
            None => Op::Del { key: &key },
        };
        return core.keys().carry_out_keys([KeyOp::Change(op)].into_iter()).await.all_done();
    }
    let name = &*name_of(place);
    let Some(value) = value else { return core.delete(name, id, None).await.map(drop) };
    let point = PointFields { id, row: filled(), ..PointFields::default() };
    let vectors = Vectors::PerPoint(vec![vec![value, 0.0]]);
    let batch = WriteBatch { mode: WriteMode::Upsert, dim: 2, vectors, points: vec![point] };
    core.write(name, batch).await.map(drop).map_err(|stopped| stopped.error)
}

fn filled() -> Vec<u8> {
    let mut row = nigh_engine::payload::RowBuilder::new();
    row.set("fill", nigh_engine::payload::Value::String("x".repeat(FILL)), 0);
    row.finish()
}

/// Counts a refusal that opening explains, and checks that it does.
fn refused(core: &Rc<Core>, seen: &Seen, place: usize, text: &str) {
    let progress = &core.node().progress;
    // A moment ago it was so; all may have been opened since.
    let is_known = text != "the store is";
    match place {
        KEYS => {
            assert_eq!(text, "the keys are");
            add(&seen.keys_refused);
        }
        _ if is_known => {
            assert_eq!(text, format!("the collection \"{}\" is", name_of(place)));
            assert!(progress.stage() > Stage::Catalog);
            add(&seen.refused);
        }
        _ => add(&seen.refused_unread),
    }
}

/// A client's turn; false when the node takes no more.
async fn step(core: &Rc<Core>, random: &Random, model: &Model, seen: &Seen, place: WhereKept) -> bool {
    let is_early = !core.node().progress.is_open();
    let answered = match random.below(5) {
        0..=2 => {
            let value = random.chance(4, 5).then(|| random.below(1_000_000) as f32);
            model.borrow_mut().entry(place).or_insert_with(|| vec![None]).push(value);
            match write(core, place, value).await {
                Ok(()) => {
                    model.borrow_mut().insert(place, vec![value]);
                    Ok(())
                }
                Err(error @ OpError::Opening(_)) => {
                    // Nothing has been done.
                    model.borrow_mut().get_mut(&place).expect("it was asked for").pop();
                    Err(error)
                }
                Err(error) => Err(error),
            }
        }
        3 if place.0 != KEYS => {
            let request = SearchRequest { vector: vec![1.0, 0.0], k: 5, filter: None, with_rows: true };
            core.search(&name_of(place.0), request).await.map(drop)
        }
        _ => read(core, place).await.map(|found| {
            let mut model = model.borrow_mut();
            let possible = model.entry(place).or_insert_with(|| vec![None]);
            assert!(possible.contains(&found), "{place:?}: found {found:?}, possible {possible:?}");
            *possible = vec![found];
        }),
    };
    match answered {
        Ok(()) if is_early => add(&seen.early),
        Ok(()) => {}
        Err(OpError::Opening(text)) => {
            assert!(is_early, "{place:?} is refused though all was open: {text}");
            refused(core, seen, place.0, &text);
        }
        Err(OpError::Busy(_)) => {}
        Err(OpError::Unavailable(_)) if core.is_stopping() => return false,
        Err(other) => panic!("{place:?}: {other}"),
    }
    true
}

/// Changes of the catalog are refused until all is open. What is refused leaves nothing.
async fn change_catalog(core: &Rc<Core>, random: &Random, seen: &Seen) {
    let is_early = !core.node().progress.is_open();
    let changed = match random.below(3) {
        0 => core.create_collection("extra", config()).await,
        1 => core.drop_collection("extra", None).await.map(drop),
        _ => {
            let change = AliasChange::Create { alias: "other".into(), collection: name_of(0) };
            core.change_aliases(vec![change]).await.map(drop)
        }
    };
    match changed {
        Ok(()) | Err(OpError::CollectionExists(_) | OpError::Busy(_)) => {}
        Err(OpError::Opening(text)) => {
            assert!(is_early, "{text}");
            add(&seen.changes_refused);
        }
        Err(OpError::Unavailable(_)) if core.is_stopping() => {}
        Err(other) => panic!("{other}"),
    }
}

/// The collections, the alias and what is listed are the same whatever is open.
fn check_names(core: &Rc<Core>, made: bool) {
    match core.collections() {
        Err(OpError::Opening(_)) => assert_eq!(core.node().progress.stage(), Stage::Catalog),
        Err(other) => panic!("{other}"),
        Ok(_) if !made => {}
        Ok(listed) => {
            let mut names: Vec<String> = listed.iter().map(|info| info.name.clone()).collect();
            names.retain(|name| name != "default/extra");
            assert_eq!(names, (0..COLLECTIONS).map(|n| format!("default/c{n}")).collect::<Vec<_>>());
            assert!(listed.iter().all(|info| info.damage.is_none()));
        }
    }
    let is_open = core.node().progress.is_open();
    let detail = core.not_ready();
    assert_eq!(detail.as_ref().is_some_and(|detail| detail.contains("the store is being opened")), !is_open);
    match core.config("nobody") {
        Err(OpError::UnknownCollection(_) | OpError::Opening(_)) => {}
        other => panic!("{other:?}"),
    }
}

/// Runs one life of a node. Clients send requests from its first moment on, and it ends at a random moment.
async fn life(sim: Sim, disk: Rc<SimDisk>, model: Model, made: Rc<Cell<bool>>, seen: Rc<Seen>) {
    let random = sim.random().fork();
    let count = 1 + random.index(3);
    let opening: OpeningNode = begin(&sim, &disk, count, options(&random));
    let cores = opening.node.cores.clone();
    if !made.get() {
        opening.wait(&sim).await.expect("an empty store opens");
        for collection in 0..COLLECTIONS {
            let name = name_of(collection);
            super::node::patiently(|| cores[0].create_collection(&name, config())).await;
        }
        made.set(true);
    }
    for client in 0..CLIENTS {
        let (sim, model, cores, random) = (sim.clone(), model.clone(), cores.clone(), random.fork());
        let seen = seen.clone();
        sim.clone().spawn(async move {
            loop {
                let place = (random.index(COLLECTIONS + 1), client * IDS + random.below(IDS));
                if !step(&cores[random.index(count)], &random, &model, &seen, place).await {
                    return;
                }
                sim.sleep_us(random.below(400)).await;
            }
        });
    }
    let (sim2, seen2, cores2, random2) = (sim.clone(), seen.clone(), cores.clone(), random.fork());
    sim.spawn(async move {
        loop {
            let core = &cores2[random2.index(count)];
            change_catalog(core, &random2, &seen2).await;
            check_names(core, true);
            sim2.sleep_us(random2.below(2_000)).await;
        }
    });
    let ends_early = random.chance(1, 2);
    sim.sleep_us(random.below(if ends_early { 6_000 } else { 60_000 })).await;
    if !opening.is_decided() {
        add(&seen.cut);
    } else {
        opening.wait(&sim).await.expect("the store opens");
    }
    if random.chance(1, 3) {
        // A stop in good order, which ends the opening.
        if !opening.is_decided() {
            add(&seen.stopped);
        }
        cores[0].node().progress.end();
        let opened = opening.wait(&sim).await;
        assert!(opened.is_ok() || opened.is_err_and(|why| why.contains("asked to stop")));
        cores.iter().for_each(|core| core.begin_stop());
        for core in cores.iter() {
            core.stop().await;
        }
    }
}

fn check_seed(seed: u64, seen: &Rc<Seen>) {
    let random = Random::new(seed);
    let mut disk = SimDisk::new(random.next());
    disk.set_yielding(true);
    let (model, made) = (Model::default(), Rc::new(Cell::new(false)));
    for _ in 0..6 {
        let shared_disk = Rc::new(disk);
        super::run(random.next(), |sim| {
            life(sim, shared_disk.clone(), model.clone(), made.clone(), seen.clone())
        });
        Core::set_current(None);
        disk = next_life(&shared_disk, &random);
    }
    // At the end everything that was acknowledged is there.
    let shared_disk = Rc::new(disk);
    super::run(random.next(), |sim| async move {
        let node = super::node::open(&sim, &shared_disk, 2, options(&Random::new(seed))).await;
        let states = model.borrow().clone();
        for (place, possible) in states {
            let found = super::node::patiently(|| read(&node.cores[0], place)).await;
            assert!(possible.contains(&found), "{place:?}: found {found:?}, possible {possible:?}");
        }
    });
    Core::set_current(None);
}

#[test]
fn operations_that_arrive_while_the_store_opens_are_done_or_refused_in_simulation() {
    let seeds = match std::env::var("NIGH_TEST_SEEDS") {
        Ok(text) => text.parse().expect("NIGH_TEST_SEEDS is a number"),
        Err(_) if std::env::var_os("NIGH_TEST_LONG").is_some() => 10_000,
        Err(_) => 150,
    };
    let first = match std::env::var("NIGH_TEST_SEED") {
        Ok(text) => text.parse().expect("NIGH_TEST_SEED is a number"),
        Err(_) => 1,
    };
    let seen = Rc::new(Seen::default());
    for seed in first..first + seeds {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check_seed(seed, &seen)));
        if let Err(panic) = result {
            eprintln!("failing seed: {seed} (replay with NIGH_TEST_SEED={seed} NIGH_TEST_SEEDS=1)");
            std::panic::resume_unwind(panic);
        }
    }
    if seeds >= 100 {
        let Seen { early, refused, refused_unread, keys_refused, changes_refused, cut, stopped } = &*seen;
        let counts =
            [early, refused, refused_unread, keys_refused, changes_refused, cut, stopped].map(Cell::get);
        eprintln!("early, refused, before names were known, keys, changes, cut, stopped: {counts:?}");
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    }
}

/// Records in the log of a life that ends while the next opens are still there: the log of the run before is not trimmed until all is open.
#[test]
fn what_is_not_open_yet_keeps_its_log() {
    for seed in 1..40 {
        let disk = Rc::new(SimDisk::new(seed));
        disk.set_yielding(true);
        let write_all = |core: Rc<Core>| async move {
            for collection in 0..COLLECTIONS {
                let place = (collection, 1);
                super::node::patiently(|| write(&core, place, Some(7.0))).await;
            }
        };
        super::run(seed, |sim| {
            let disk = disk.clone();
            async move {
                let node = super::node::open(&sim, &disk, 2, node_options()).await;
                for collection in 0..COLLECTIONS {
                    let name = name_of(collection);
                    super::node::patiently(|| node.cores[0].create_collection(&name, config())).await;
                }
                write_all(node.cores[0].clone()).await;
            }
        });
        Core::set_current(None);
        // Starts that are cut short, with checkpoints as often as can be.
        for cut in 0..3 {
            super::run(seed * 10 + cut, |sim| {
                let disk = disk.clone();
                async move {
                    let options = NodeOptions { log_bytes_soft: 1, image_records_min: 1, ..node_options() };
                    let opening = begin(&sim, &disk, 2, options);
                    sim.sleep_us(sim.random().below(3_000)).await;
                    drop(opening);
                }
            });
            Core::set_current(None);
        }
        super::run(seed, |sim| {
            let disk = disk.clone();
            async move {
                let node = super::node::open(&sim, &disk, 1, node_options()).await;
                for collection in 0..COLLECTIONS {
                    let found = super::node::patiently(|| read(&node.cores[0], (collection, 1))).await;
                    assert_eq!(found, Some(7.0), "seed {seed}, collection {collection}");
                }
            }
        });
        Core::set_current(None);
    }
}

/// A node that is open has requests to answer, which must not wait for long while it opens one more collection.
#[test]
fn what_is_opened_on_an_open_node_gives_way_more_often() {
    super::run(1, |sim| async move {
        let opening = begin(&sim, &Rc::new(SimDisk::new(1)), 1, node_options());
        let ctx = opening.node.cores[0].ctx().clone();
        let at_start = GiveWay::new(&ctx).turn_ns();
        opening.wait(&sim).await.expect("the store opens");
        assert_eq!((at_start, GiveWay::new(&ctx).turn_ns()), (4_000_000, 1_000_000));
    });
    Core::set_current(None);
}
