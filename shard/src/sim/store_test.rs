//! Whole nodes in simulation: random clients, random crashes, any number of cores; nothing acknowledged is ever lost.
//!
//! Each client writes ids of its own, so the history of an id is a sequence. A crash may leave the last acknowledged
//! state or any state asked for since; never an older one, never one that was refused.

use super::node::{next_life, node_options, open};
use super::{Random, Sim};
use crate::checkpoint::CheckpointError;
use crate::core::Core;
use crate::disk::{Calls, Failure, SimDisk};
use crate::error::OpError;
use crate::node::NodeOptions;
use crate::payload_change::PayloadChange;
use crate::points::{PointFields, SearchRequest, Vectors, WriteBatch, Written};
use nigh_engine::collection::{
    DenseConfig, IndexType, IvfConfig, IvfProduct, Quantizer, WriteError, WriteMode,
};
use nigh_engine::distance::Metric;
use nigh_engine::payload::{RowBuilder, Value};
use nigh_engine::quantizer::{CellProduct, Quantization};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

const DIM: usize = 4;
const CLIENTS: u64 = 3;
const IDS_PER_CLIENT: u64 = 12;
/// Collections from the start; more are created on the way.
const COLLECTIONS: usize = 2;
const COLLECTIONS_MAX: usize = 6;

fn name_of(collection: usize) -> String {
    match collection {
        0 => "docs".to_owned(),
        1 => "acme/notes".to_owned(),
        later => format!("later{later}"),
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Stored {
    version: u64,
    vector: Vec<f32>,
    tag: i64,
}

/// What may be found for one id: the first is the acknowledged one.
type Possible = Vec<Option<Stored>>;
/// Of one id.
type Key = (usize, u64);

#[derive(Default)]
struct Model {
    states: BTreeMap<Key, Possible>,
    /// The last version that each id certainly had. After a delete the next is one more.
    given: BTreeMap<Key, u64>,
}

impl Model {
    /// The acknowledged state.
    fn get(&self, key: &Key) -> Option<Stored> {
        self.states.get(key).and_then(|possible| possible[0].clone())
    }

    fn next_version(&self, key: &Key) -> u64 {
        self.given.get(key).map_or(1, |given| given + 1)
    }

    /// Asked for, and not acknowledged yet.
    fn ask(&mut self, key: Key, state: Option<Stored>) {
        self.states.entry(key).or_insert_with(|| vec![None]).push(state);
    }

    /// Acknowledged or found.
    fn settle(&mut self, key: Key, state: Option<Stored>) {
        if let Some(stored) = &state {
            self.given.insert(key, stored.version);
        }
        self.states.insert(key, vec![state]);
    }
}

fn row(tag: i64) -> Vec<u8> {
    let mut row = RowBuilder::new();
    row.set("tag", Value::Int(tag), 0);
    row.finish()
}

fn tag_of(row: &[u8]) -> i64 {
    use nigh_engine::payload::{PayloadRow, ValueRef};
    match PayloadRow::verify(row).expect("a stored row is whole").get("tag", 0) {
        Some(ValueRef::Int(tag)) => tag,
        other => panic!("unexpected tag {other:?}"),
    }
}

fn random_vector(random: &Random) -> Vec<f32> {
    (0..DIM).map(|_| random.below(2001) as f32 / 100.0 - 10.0).collect()
}

fn batch(mode: WriteMode, points: Vec<(PointFields, Vec<f32>)>) -> WriteBatch {
    let (points, rows) = points.into_iter().unzip();
    WriteBatch { mode, dim: DIM, vectors: Vectors::PerPoint(rows), points }
}

async fn read(core: &Rc<Core>, name: &str, id: u64) -> Option<Stored> {
    let found = core.get(name, vec![id], true, true).await.expect("a healthy collection reads");
    found.into_iter().next().flatten().map(|p| Stored {
        version: p.version,
        vector: p.vector.expect("asked for"),
        tag: tag_of(&p.row),
    })
}

/// One step of a client on one of its ids; false when the node stops and takes no more.
async fn step(core: &Rc<Core>, random: &Random, model: &RefCell<Model>, collection: usize, id: u64) -> bool {
    let key = (collection, id);
    let name = &*name_of(collection);
    let before = model.borrow().get(&key);
    let version = before.as_ref().map_or(0, |s| s.version);
    match random.below(12) {
        0..=5 => {
            let stored = Stored {
                version: model.borrow().next_version(&key),
                vector: random_vector(random),
                tag: random.below(1000) as i64,
            };
            let mode = if random.chance(1, 3) { WriteMode::Insert } else { WriteMode::Upsert };
            let wrong = random.chance(1, 8);
            let expected = random.chance(1, 3).then_some(if wrong { version + 7 } else { version });
            let accepted = (mode == WriteMode::Upsert || before.is_none()) && !(expected.is_some() && wrong);
            if accepted {
                model.borrow_mut().ask(key, Some(stored.clone()));
            }
            let point = PointFields { id, row: row(stored.tag), ttl_ms: 0, expected_version: expected };
            let answer = core.write(name, batch(mode, vec![(point, stored.vector.clone())])).await;
            match answer {
                Ok(written) if accepted => {
                    assert_eq!(written, [Written::Ok { version: stored.version }], "{name} {id}");
                    model.borrow_mut().settle(key, Some(stored));
                }
                Ok(written) => assert_eq!(written, [Written::Conflict], "{name} {id} should be refused"),
                Err(error) => match error.error {
                    // Without room in the log nothing is done.
                    OpError::Busy(_) | OpError::NoSpace(_) => settle(core, model, key).await,
                    OpError::Unavailable(_) | OpError::UnknownCollection(_) if core.is_stopping() => {
                        return false;
                    }
                    OpError::Write(WriteError::DuplicateId(_)) if !accepted => {}
                    other => panic!("{name} {id}: {other}"),
                },
            }
        }
        10 | 11 => return change_payload(core, random, model, key, before).await,
        6 | 7 => {
            model.borrow_mut().ask(key, None);
            match core.delete(name, id, None).await {
                Ok(deleted) => {
                    assert_eq!(deleted, before.is_some());
                    model.borrow_mut().settle(key, None);
                }
                Err(OpError::Busy(_) | OpError::NoSpace(_)) => settle(core, model, key).await,
                Err(OpError::Unavailable(_) | OpError::UnknownCollection(_)) if core.is_stopping() => {
                    return false;
                }
                Err(other) => panic!("{name} {id}: {other}"),
            }
        }
        _ => {
            // Reads its own writes, by id and by search.
            assert_eq!(read(core, name, id).await, before, "{name} {id}");
            if let Some(stored) = before {
                let request =
                    SearchRequest { vector: stored.vector.clone(), k: 64, filter: None, with_rows: true };
                match core.search(name, request).await {
                    Ok(hits) => {
                        let mine: Vec<_> = hits.iter().filter(|hit| hit.id == id).collect();
                        assert_eq!(mine.len(), 1, "{name} {id} is found once");
                        assert_eq!(tag_of(&mine[0].row), stored.tag);
                    }
                    Err(OpError::Busy(_)) => {}
                    Err(other) => panic!("{name}: {other}"),
                }
            }
        }
    }
    true
}

/// One change of payload; false when the node stops and takes no more.
async fn change_payload(
    core: &Rc<Core>,
    random: &Random,
    model: &RefCell<Model>,
    key: (usize, u64),
    before: Option<Stored>,
) -> bool {
    let (name, id) = (&*name_of(key.0), key.1);
    let tag = random.below(1000) as i64;
    let entries = vec![("tag".to_owned(), Value::Int(tag))];
    let change = match random.below(3) {
        0 => PayloadChange::Overwrite { entries, key_ttl_ms: Vec::new() },
        1 => PayloadChange::DeleteKeys(vec!["none".to_owned()]),
        _ => PayloadChange::Merge { entries, key_ttl_ms: Vec::new() },
    };
    let tag = if matches!(change, PayloadChange::DeleteKeys(_)) { None } else { Some(tag) };
    let wrong = random.chance(1, 8);
    let version = before.as_ref().map_or(0, |stored| stored.version);
    let expected = random.chance(1, 3).then_some(if wrong { version + 7 } else { version });
    let accepted = !(expected.is_some() && wrong);
    let after =
        before.map(|stored| Stored { version: version + 1, tag: tag.unwrap_or(stored.tag), ..stored });
    if accepted && after.is_some() {
        model.borrow_mut().ask(key, after.clone());
    }
    match core.change_payload(name, id, change, expected).await {
        Ok(version) => {
            assert!(accepted, "{name} {id} should be refused");
            assert_eq!(Some(version), after.as_ref().map(|stored| stored.version), "{name} {id}");
            model.borrow_mut().settle(key, after);
        }
        Err(OpError::PointNotFound(_)) => assert_eq!(after, None, "{name} {id}"),
        Err(OpError::Write(WriteError::VersionConflict { .. })) if !accepted => {}
        Err(OpError::Busy(_) | OpError::NoSpace(_)) => settle(core, model, key).await,
        Err(OpError::Unavailable(_) | OpError::UnknownCollection(_)) if core.is_stopping() => return false,
        Err(other) => panic!("{name} {id}: {other}"),
    }
    true
}

/// A refused call may or may not have been done: look.
async fn settle(core: &Rc<Core>, model: &RefCell<Model>, key: (usize, u64)) {
    let found = read(core, &name_of(key.0), key.1).await;
    let mut model = model.borrow_mut();
    let possible = model.states.entry(key).or_insert_with(|| vec![None]);
    assert!(possible.contains(&found), "{key:?}: found {found:?}, possible {possible:?}");
    model.settle(key, found);
}

fn options(random: &Random) -> NodeOptions {
    NodeOptions {
        shards: 1 << random.below(5),
        // Small, so that segments turn over, are checkpointed and trimmed within a life.
        segment_bytes: 4096 * (2 + random.below(8)),
        log_bytes_soft: 4096 * (4 + random.below(16)),
        image_records_min: 1 + random.below(40),
        sweep_interval_ms: 50,
        ..node_options()
    }
}

/// One life of a node: opens, checks the model, works, and ends at a random moment.
async fn life(
    sim: Sim,
    disk: Rc<SimDisk>,
    model: Rc<RefCell<Model>>,
    created: Rc<Cell<usize>>,
    Trials { failing, filling }: Trials,
) {
    let random = sim.random().fork();
    let count = 1 + random.index(3);
    // A directory without a manifest is a new one, which has to be made.
    if filling && disk.bytes("keys/manifest.json").is_some() {
        // Whatever is left, also nothing: a start opens all that is there.
        disk.set_space(
            random.chance(1, 2).then(|| disk.used_bytes() + random.below(3) * random.below(100_000)),
        );
    } else {
        disk.set_space(None);
    }
    // A full disk has no room for keys to be spread anew.
    let shards =
        |options: NodeOptions| NodeOptions { shards: if filling { 4 } else { options.shards }, ..options };
    let node = open(&sim, &disk, count, shards(options(&random))).await;
    let opened = node.cores.clone();
    let any = |random: &Random| opened[random.index(count)].clone();

    for collection in 0..created.get() {
        match any(&random).create_collection(&name_of(collection), config_of(collection)).await {
            Ok(()) | Err(OpError::CollectionExists(_)) => {}
            Err(OpError::Busy(_)) => return,
            // None is used before it has been made.
            Err(OpError::NoSpace(_)) if filling => {
                created.set(collection);
                break;
            }
            Err(other) => panic!("create {collection}: {other}"),
        }
    }
    let keys: Vec<_> = model.borrow().states.keys().copied().collect();
    for key in keys {
        settle(&any(&random), &model, key).await;
    }

    let (sim2, opened2, created2, random2) = (sim.clone(), opened.clone(), created.clone(), random.fork());
    sim.spawn(async move {
        // While segments are checkpointed and trimmed, new collections come to lie in them.
        while created2.get() < COLLECTIONS_MAX {
            sim2.sleep_us(500 + random2.below(20_000)).await;
            let core = opened2[random2.index(count)].clone();
            match core.create_collection(&name_of(created2.get()), config_of(created2.get())).await {
                // Existing: the life before ended between the deed and the answer.
                Ok(()) | Err(OpError::CollectionExists(_)) => created2.set(created2.get() + 1),
                Err(OpError::Busy(_)) => {}
                Err(OpError::NoSpace(_)) if filling => {}
                Err(OpError::Unavailable(_) | OpError::NoSpace(_)) if failing || core.is_stopping() => {}
                Err(other) => panic!("create: {other}"),
            }
        }
    });
    if failing {
        let (sim2, disk2, random2) = (sim.clone(), disk.clone(), random.fork());
        sim.spawn(async move {
            loop {
                sim2.sleep_us(random2.below(3_000)).await;
                let calls = if random2.chance(1, 2) { Calls::NameSync } else { Calls::Other };
                let failure = if random2.chance(1, 2) { Failure::Io } else { Failure::NoSpace };
                disk2.fail(calls, random2.below(4), failure);
            }
        });
    }
    let is_lifted = Rc::new(Cell::new(false));
    if filling {
        let stopped = is_lifted.clone();
        let (sim2, disk2, random2) = (sim.clone(), disk.clone(), random.fork());
        sim.spawn(async move {
            while !stopped.get() {
                sim2.sleep_us(random2.below(6_000)).await;
                let room = random2.below(2) * random2.below(60_000);
                disk2.set_space(random2.chance(2, 3).then(|| disk2.used_bytes() + room));
            }
        });
    }
    for client in 0..CLIENTS {
        let (sim, model, opened, random) = (sim.clone(), model.clone(), opened.clone(), random.fork());
        let created = created.clone();
        sim.clone().spawn(async move {
            loop {
                if created.get() == 0 {
                    sim.sleep_us(1_000).await;
                    continue;
                }
                let core = opened[random.index(count)].clone();
                let id = client * IDS_PER_CLIENT + random.below(IDS_PER_CLIENT);
                if !step(&core, &random, &model, random.index(created.get()), id).await {
                    return;
                }
                sim.sleep_us(random.below(300)).await;
            }
        });
    }
    let (sim2, checkpointers) = (sim.clone(), opened.clone());
    let pace = random.fork();
    sim.spawn(async move {
        loop {
            sim2.sleep_us(500 + pace.below(5_000)).await;
            let core = checkpointers[pace.index(count)].clone();
            for owned in core.collections.all_owned() {
                match core.collections.checkpoint(&owned).await {
                    Ok(()) => {}
                    Err(CheckpointError::Dropped) if core.is_stopping() => {}
                    Err(error) => {
                        assert!(
                            failing || (filling && error.is_full()),
                            "the simulated disk has room: {error}"
                        );
                    }
                }
            }
        }
    });
    sim.sleep_us(random.below(30_000)).await;
    if filling && random.chance(1, 4) {
        is_lifted.set(true);
        recovers(&sim, &disk, &opened).await;
    }
    if random.chance(1, 4) {
        // A clean stop is a special case of a crash: everything acknowledged must be there as well.
        for core in opened.iter() {
            core.begin_stop();
        }
        for core in opened.iter() {
            core.stop().await;
        }
    }
}

/// A server whose disk has room again takes writes soon, by itself.
async fn recovers(sim: &Sim, disk: &SimDisk, cores: &[Rc<Core>]) {
    const NAME: &str = "recovered";
    for _ in 0..200 {
        disk.set_space(None);
        sim.sleep_us(100_000).await;
        disk.set_space(None);
        let mut made = cores[0].create_collection(NAME, DenseConfig::new(DIM, Metric::L2)).await;
        if matches!(made, Ok(()) | Err(OpError::CollectionExists(_))) {
            let point = PointFields { id: 1, ..PointFields::default() };
            let written = cores[0].write(NAME, batch(WriteMode::Upsert, vec![(point, vec![0.0; DIM])])).await;
            made = written.map(drop).map_err(|stopped| stopped.error);
        }
        match made {
            Ok(()) => return,
            Err(OpError::NoSpace(_) | OpError::Busy(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    panic!("writes stay refused though the disk has room: {:?}", cores[0].not_ready());
}

/// Every other one is of cells, and all of those spill and have codes but the first. Some of either sort have their vectors in files.
fn config_of(collection: usize) -> DenseConfig {
    let mut config = DenseConfig::new(DIM, Metric::L2);
    config.m = 4;
    config.ef_construction = 32;
    config.persistent = matches!(collection, 1 | 2 | 4);
    config.quant = match collection {
        2 => Quantizer::Trained(Quantization::Sign),
        4 => Quantizer::Sq8,
        _ => Quantizer::None,
    };
    if collection % 2 == 1 {
        let soar = (collection > 1).then_some(1.0);
        let code = CellProduct { parts: 1, bits: 4, rotations: 1, eta: 0.0 };
        let product = (collection > 1).then_some(IvfProduct { code, rerank: true });
        let ivf = IvfConfig { train_threshold: 6, nprobe: 2, soar, product, ..IvfConfig::default() };
        config.index = IndexType::Ivf(ivf);
    }
    config
}

/// What a life is like.
#[derive(Clone, Copy)]
struct Trials {
    /// Names and files other than log writes and syncs (those end a core's log) fail now and then.
    failing: bool,
    /// The disk is full now and then, at a start as well.
    filling: bool,
}

/// Four lives.
fn check_seed(seed: u64, trials: Trials) {
    let random = Random::new(seed);
    let mut disk = SimDisk::new(random.next());
    disk.set_yielding(true);
    let model = Rc::new(RefCell::new(Model::default()));
    let created = Rc::new(Cell::new(COLLECTIONS));
    for _ in 0..4 {
        let shared_disk = Rc::new(disk);
        super::run(random.next(), |sim| {
            life(sim, shared_disk.clone(), model.clone(), created.clone(), trials)
        });
        Core::set_current(None);
        shared_disk.heal();
        disk = next_life(&shared_disk, &random);
    }
}

#[test]
fn acknowledged_writes_survive_crashes_in_simulation() {
    check_seeds(Trials { failing: false, filling: false });
}

#[test]
fn acknowledged_writes_survive_failing_disks_in_simulation() {
    check_seeds(Trials { failing: true, filling: false });
}

#[test]
fn acknowledged_writes_survive_full_disks_in_simulation() {
    check_seeds(Trials { failing: false, filling: true });
}

fn check_seeds(trials: Trials) {
    let seeds = match std::env::var("NIGH_TEST_SEEDS") {
        Ok(text) => text.parse().expect("NIGH_TEST_SEEDS is a number"),
        Err(_) if std::env::var_os("NIGH_TEST_LONG").is_some() => 10_000,
        Err(_) => 200,
    };
    let first = match std::env::var("NIGH_TEST_SEED") {
        Ok(text) => text.parse().expect("NIGH_TEST_SEED is a number"),
        Err(_) => 1,
    };
    for seed in first..first + seeds {
        let result = std::panic::catch_unwind(|| check_seed(seed, trials));
        if let Err(panic) = result {
            eprintln!("failing seed: {seed} (replay with NIGH_TEST_SEED={seed} NIGH_TEST_SEEDS=1)");
            std::panic::resume_unwind(panic);
        }
    }
}
