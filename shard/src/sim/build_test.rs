//! Bulk builds on failing disks, in simulation: one that is told to have failed is not there after a restart, whatever failed and when.

use super::Sim;
use super::node::{node_options, open, patiently};
use crate::core::{Core, SpaceChange};
use crate::disk::{Calls, Failure, SimDisk};
use crate::error::OpError;
use crate::family::CollectionConfig;
use crate::node::NodeOptions;
use crate::points::{NamedVectors, PointFields, StoredPoint, Vectors, WriteBatch};
use crate::refusals::RefusalReason;
use nigh_engine::collection::{
    DenseConfig, EncodingConfig, FirstStage, IndexType, IvfConfig, MultiVectorConfig, NamedConfig,
    NamedSpace, Quantizer, WriteMode,
};
use nigh_engine::distance::{Metric, prepare};
use nigh_engine::payload::PayloadRow;
use std::collections::BTreeMap;
use std::rc::Rc;

const NAME: &str = "docs";
const DIM: usize = 4;
/// Staged; ids above are written while the build runs.
const STAGED: u64 = 40;

fn options(memory_limit_bytes: u64) -> NodeOptions {
    NodeOptions {
        memory_limit_bytes,
        segment_bytes: 4096 * 256,
        log_bytes_soft: 1 << 30,
        image_records_min: 1 << 40,
        ..node_options()
    }
}

fn batch(ids: std::ops::Range<u64>) -> WriteBatch {
    let point = |id| PointFields { id, row: Vec::new(), ttl_ms: 0, expected_version: None };
    let vectors = Vectors::Native(ids.clone().flat_map(|id| [id as f32 + 0.5; DIM]).collect());
    WriteBatch { mode: WriteMode::Insert, dim: DIM, vectors, points: ids.map(point).collect() }
}

/// The collections of these tests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Dense,
    Persistent,
    /// Spaces with and without a quantizer, one that has cells, and a sparse one.
    Named,
    /// Documents that are found by their tokens.
    Tokens,
    /// Documents that are found by their encodings, in files.
    Encodings,
}

const KINDS: [Kind; 5] = [Kind::Dense, Kind::Persistent, Kind::Named, Kind::Tokens, Kind::Encodings];

impl Kind {
    fn config(self) -> CollectionConfig {
        let dense = DenseConfig { quant: Quantizer::Sq8, ..DenseConfig::new(DIM, Metric::L2) };
        match self {
            Kind::Dense => dense.into(),
            Kind::Persistent => DenseConfig { persistent: true, ..dense }.into(),
            Kind::Named => {
                let ivf = IvfConfig { train_threshold: 10, ..IvfConfig::default() };
                let cells = DenseConfig { index: IndexType::Ivf(ivf), ..DenseConfig::new(2, Metric::Cosine) };
                let spaces = vec![NamedSpace::new("codes", dense), NamedSpace::new("cells", cells)];
                NamedConfig::new(spaces, vec!["words".to_owned()]).into()
            }
            Kind::Tokens => MultiVectorConfig::new(DenseConfig { metric: Metric::Cosine, ..dense }).into(),
            Kind::Encodings => {
                let shape = EncodingConfig { repetitions: 3, bits: 2, dim: 0 };
                let first_stage = FirstStage::Encodings(shape);
                let metric = Metric::Cosine;
                MultiVectorConfig::new(DenseConfig { metric, first_stage, persistent: true, ..dense }).into()
            }
        }
    }

    fn batch(self, ids: std::ops::Range<u64>) -> WriteBatch {
        let batch = batch(ids.clone());
        match self {
            Kind::Dense | Kind::Persistent => batch,
            _ => {
                let vectors = |id| if self == Kind::Named { named_vectors(id) } else { token_vectors(id) };
                WriteBatch { vectors: Vectors::Named(ids.map(vectors).collect()), dim: 0, ..batch }
            }
        }
    }
}

/// What a point has: each lacks something.
fn named_vectors(id: u64) -> NamedVectors {
    let codes = (0, vec![id as f32 + 0.5; DIM]);
    let cells = (1, vec![id as f32, 1.0]);
    let words = (0, vec![(id as u32, 1.0), (1000, 2.0)]);
    let (dense, sparse) = match id % 4 {
        0 => (vec![codes, cells], vec![]),
        1 => (vec![codes], vec![words]),
        2 => (vec![cells], vec![words]),
        _ => (vec![], vec![words]),
    };
    NamedVectors { dense, sparse, ..NamedVectors::default() }
}

/// The tokens of a document.
fn token_vectors(id: u64) -> NamedVectors {
    let token = |at: u64| vec![id as f32 + 1.0, at as f32, 1.0, -(at as f32)];
    NamedVectors { tokens: (0..1 + id % 5).map(token).collect(), ..NamedVectors::default() }
}

/// Checks that a document has the tokens that it was staged or written with.
fn check_document(id: u64, found: &StoredPoint) {
    let expected = token_vectors(id).tokens;
    assert_eq!(found.vectors.len(), expected.len(), "tokens of {id}");
    for ((_, found), token) in found.vectors.iter().zip(expected) {
        let mut unit = vec![0.0; DIM];
        prepare(Metric::Cosine, &token, &mut unit);
        assert_eq!(*found, unit, "a token of {id}");
    }
}

/// Checks that a point of named spaces has the vectors that it was staged or written with.
fn check_vectors(id: u64, found: &StoredPoint) {
    let expected = named_vectors(id);
    let row = PayloadRow::trusted(&found.row);
    let sparse = expected.sparse.first().map_or(&[][..], |(_, vector)| &vector[..]);
    assert!(row.sparse_of(0).eq(sparse.iter().copied()), "sparse vector of {id}");
    assert_eq!(found.vectors.len(), expected.dense.len(), "vectors of {id}");
    for ((number, found), (expected, vector)) in found.vectors.iter().zip(&expected.dense) {
        let norm = if *number == 1 { vector.iter().map(|x| x * x).sum::<f32>().sqrt() } else { 1.0 };
        let is_close = found.iter().zip(vector).all(|(found, x)| (found - x / norm).abs() < 1e-5);
        assert!(number == expected && is_close, "{found:?} for {vector:?} of {id}");
    }
}

/// Ids of a collection, with their versions.
async fn versions(core: &Rc<Core>, ids: u64, kind: Kind) -> BTreeMap<u64, u64> {
    let got = patiently(|| core.get(NAME, (0..ids).collect(), true, true)).await;
    for point in got.iter().flatten() {
        match kind {
            Kind::Dense | Kind::Persistent => {}
            Kind::Named => check_vectors(point.id, point),
            Kind::Tokens | Kind::Encodings => check_document(point.id, point),
        }
    }
    got.into_iter().flatten().map(|point| (point.id, point.version)).collect()
}

/// Builds beside a client's writes while the `skip`-th of `calls` fails; whether the build failed.
fn check_failure(seed: u64, calls: Calls, skip: u64, kind: Kind) -> bool {
    let disk = SimDisk::new(seed);
    disk.set_yielding(true);
    let disk = Rc::new(disk);
    let failed = super::run(seed, |sim: Sim| {
        let disk = disk.clone();
        async move {
            let node = open(&sim, &disk, 2, options(1 << 30)).await;
            let core = node.cores[0].clone();
            patiently(|| core.create_collection(NAME, kind.config())).await;
            patiently(|| core.stage(NAME, kind.batch(0..STAGED))).await;
            let (client, pace) = (core.clone(), sim.clone());
            sim.spawn(async move {
                pace.sleep_us(100 + pace.random().below(2_000)).await;
                // The log ends with the first write that fails, and the client with it.
                for id in STAGED..STAGED + 20 {
                    if client.write(NAME, kind.batch(id..id + 1)).await.is_err() {
                        return;
                    }
                    pace.sleep_us(pace.random().below(400)).await;
                }
            });
            disk.fail(calls, skip, Failure::Io);
            let built = loop {
                match core.build(NAME, 1, true).await {
                    Err(OpError::Busy(_)) => {}
                    // The client was faster: there is something already.
                    Err(OpError::Conflict(_)) => return None,
                    other => break other,
                }
            };
            disk.heal();
            let failed = built.is_err();
            // The call that failed was one of the log, which ends all reads and writes of the collection.
            if node.cores.iter().any(|core| core.not_ready().is_some()) {
                return None;
            }
            let expected = versions(&core, STAGED + 20, kind).await;
            assert_eq!(expected.range(..STAGED).count() as u64, if failed { 0 } else { STAGED });
            Some((failed, expected))
        }
    });
    Core::set_current(None);
    let Some((failed, expected)) = failed else { return false };
    // After a kill everything is there that was done, after a power failure all that was acknowledged.
    for disk in [(*disk).clone(), disk.crash_clone(seed)] {
        disk.heal();
        let disk = Rc::new(disk);
        let found = super::run(seed + 1, |sim: Sim| async move {
            let node = open(&sim, &disk, 1, options(1 << 30)).await;
            if matches!(kind, Kind::Tokens | Kind::Encodings) {
                let uid = node.cores[0].ctx.handle(NAME).unwrap().uid;
                node.cores.iter().for_each(|core| core.collections.check_tokens(uid));
            }
            versions(&node.cores[0], STAGED + 20, kind).await
        });
        Core::set_current(None);
        let staged = |found: &BTreeMap<u64, u64>| found.range(..STAGED).count();
        assert_eq!(staged(&found), staged(&expected), "seed {seed}: {calls:?} {skip} {kind:?}: staged");
        for (id, version) in &expected {
            assert!(found.get(id).is_none_or(|found| found == version), "seed {seed}: version of {id}");
        }
    }
    failed
}

#[test]
fn a_build_that_failed_is_not_there_after_a_restart() {
    let mut failures = 0;
    for calls in [Calls::NameSync, Calls::Sync, Calls::Other, Calls::Write] {
        for skip in 0..12 {
            for kind in KINDS {
                failures += u32::from(check_failure(skip + 1, calls, skip, kind));
            }
        }
    }
    assert!(failures > 10, "{failures} builds failed");
}

/// Changes of spaces and builds exclude each other: a build that succeeds has built exactly the spaces that exist.
#[test]
fn spaces_that_come_and_go_beside_builds_are_whole() {
    let mut refused = 0;
    for seed in 1..=40 {
        let disk = SimDisk::new(seed);
        disk.set_yielding(true);
        let disk = Rc::new(disk);
        super::run(seed, |sim: Sim| async move {
            let node = open(&sim, &disk, 2, options(1 << 30)).await;
            let core = node.cores[0].clone();
            patiently(|| core.create_collection(NAME, Kind::Named.config())).await;
            patiently(|| core.stage(NAME, Kind::Named.batch(0..STAGED))).await;
            let (changing, pace) = (core.clone(), sim.clone());
            let changed = Rc::new(std::cell::Cell::new(false));
            let told = changed.clone();
            sim.spawn(async move {
                pace.sleep_us(pace.random().below(3_000)).await;
                let name = "more".to_owned();
                let change = match seed % 3 {
                    0 => SpaceChange::Add { name, config: Box::new(DenseConfig::new(2, Metric::L2)) },
                    1 => SpaceChange::AddSparse { name },
                    _ => SpaceChange::Drop { name: "cells".to_owned() },
                };
                loop {
                    match changing.change_spaces(NAME, change.clone()).await {
                        Ok(()) => break,
                        Err(OpError::Busy(_)) => {}
                        Err(OpError::Conflict(why)) => {
                            assert!(why.contains("a bulk build of collection"), "{why}");
                            REFUSED.set(REFUSED.get() + 1);
                            pace.sleep_us(200).await;
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
                told.set(true);
            });
            loop {
                match core.build(NAME, 1, true).await {
                    Ok(_) => break,
                    Err(OpError::Busy(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            while !changed.get() {
                sim.sleep_us(100).await;
            }
            let config = core.config(NAME).unwrap();
            let config = config.named().unwrap();
            let mut owned = node.cores.iter().flat_map(|core| core.collections.all_owned());
            let owned = owned.next().expect("one collection");
            let view = owned.writer.borrow().shared().clone();
            assert_eq!(view.spaces().len(), config.spaces.len());
            assert_eq!(view.sparse_spaces().len(), config.sparse_spaces.len());
            assert_eq!(view.stats().live, STAGED);
            let is_dropped = config.spaces[1].is_dropped;
            assert_eq!(view.spaces()[1].vectors(), if is_dropped { 0 } else { STAGED / 2 });
            assert_eq!(view.stats().sparse_vectors, STAGED * 3 / 4);
        });
        Core::set_current(None);
        refused += REFUSED.take();
    }
    assert!(refused > 5, "{refused} changes were refused");
}

thread_local! {
    static REFUSED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// The slots of deleted points stay, up to the highest one ever used, and a lower limit allows fewer for new collections.
#[test]
fn a_collection_opens_under_a_memory_limit_that_allows_fewer_slots_than_it_has() {
    const POINTS: u64 = 3000;
    let disk = Rc::new(SimDisk::new(3));
    for (life, limit) in [1 << 30, 512 << 10, 1 << 30].into_iter().enumerate() {
        let disk = disk.clone();
        super::run(life as u64, |sim: Sim| async move {
            let node = open(&sim, &disk, 1, options(limit)).await;
            let core = node.cores[0].clone();
            if life == 0 {
                core.create_collection(NAME, DenseConfig::new(DIM, Metric::L2)).await.unwrap();
                core.write(NAME, batch(0..POINTS)).await.unwrap();
                for id in 10..POINTS {
                    assert!(core.delete(NAME, id, None).await.unwrap());
                }
                // Until the graph is led around the dead and nothing of them is left.
                sim.sleep_us(20_000_000).await;
                for owned in core.collections.all_owned() {
                    core.collections.checkpoint(&owned).await.unwrap();
                }
            }
            let owned = core.collections.all_owned().pop().expect("one collection");
            let stats = owned.writer.borrow().shared().stats();
            assert_eq!((stats.live, stats.slots > POINTS / 2), (10, true), "{stats:?}");
            if limit < 1 << 20 {
                let allowed = core.node().slots_max(owned.handle.config(&core.pin()), 0) as u64;
                assert!(stats.slots > allowed, "{} slots where {allowed} are allowed", stats.slots);
            }
            assert_eq!(core.count(NAME, None).await.expect("the collection is healthy"), 10);
            assert_eq!(versions(&core, POINTS, Kind::Dense).await.len(), 10);
        });
        Core::set_current(None);
    }
}

/// The log of a core fails for good with a write or a sync that fails; every core knows it then.
#[test]
fn a_node_whose_log_has_failed_is_not_ready() {
    for seed in 1..20 {
        let disk = Rc::new(SimDisk::new(seed));
        super::run(seed, |sim: Sim| async move {
            let node = open(&sim, &disk, 2, options(1 << 30)).await;
            let core = node.cores[0].clone();
            patiently(|| core.create_collection(NAME, DenseConfig::new(DIM, Metric::L2))).await;
            patiently(|| async { core.write(NAME, batch(0..1)).await.map_err(|error| error.error) }).await;
            assert_eq!(core.not_ready(), None);
            disk.fail(Calls::Write, 0, Failure::Io);
            let owner = core.ctx.handle(NAME).unwrap().owner;
            loop {
                match core.write(NAME, batch(1..2)).await {
                    Err(error) if matches!(error.error, OpError::Busy(_)) => {}
                    answer => break assert!(answer.is_err(), "the log has failed"),
                }
            }
            sim.sleep_us(1_000).await;
            let why = node.cores[1].not_ready().expect("the node is not ready");
            assert!(why.contains(&format!("core {owner}: ")), "{why}");
            // The write that was refused is not served; that of before was acknowledged and is there after a restart.
            assert!(why.contains("1 collection is damaged"), "{why}");
            assert!(matches!(core.get(NAME, vec![0, 1], false, false).await, Err(OpError::Damaged(_))));
            assert!(core.node().refusals.count(RefusalReason::LogFailed) > 0);
        });
        Core::set_current(None);
    }
}
