//! Bulk builds on failing disks, in simulation: one that is told to have failed is not there after a restart, whatever failed and when.

use super::Sim;
use super::node::{node_options, open, patiently};
use crate::core::Core;
use crate::disk::{Calls, Failure, SimDisk};
use crate::error::OpError;
use crate::node::NodeOptions;
use crate::points::{PointFields, Vectors, WriteBatch};
use crate::refusals::RefusalReason;
use nigh_engine::collection::{DenseConfig, Quantizer, WriteMode};
use nigh_engine::distance::Metric;
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

/// Ids of a collection, with their versions.
async fn versions(core: &Rc<Core>, ids: u64) -> BTreeMap<u64, u64> {
    let got = patiently(|| core.get(NAME, (0..ids).collect(), false, false)).await;
    got.into_iter().flatten().map(|point| (point.id, point.version)).collect()
}

/// Builds beside a client's writes while the `skip`-th of `calls` fails; whether the build failed.
fn check_failure(seed: u64, calls: Calls, skip: u64, persistent: bool) -> bool {
    let disk = SimDisk::new(seed);
    disk.set_yielding(true);
    let disk = Rc::new(disk);
    let failed = super::run(seed, |sim: Sim| {
        let disk = disk.clone();
        async move {
            let node = open(&sim, &disk, 2, options(1 << 30)).await;
            let core = node.cores[0].clone();
            let quant = Quantizer::Sq8;
            let config = DenseConfig { quant, persistent, ..DenseConfig::new(DIM, Metric::L2) };
            patiently(|| core.create_collection(NAME, config.clone())).await;
            patiently(|| core.stage(NAME, batch(0..STAGED))).await;
            let (client, pace) = (core.clone(), sim.clone());
            sim.spawn(async move {
                pace.sleep_us(100 + pace.random().below(2_000)).await;
                // The log ends with the first write that fails, and the client with it.
                for id in STAGED..STAGED + 20 {
                    if client.write(NAME, batch(id..id + 1)).await.is_err() {
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
            let expected = versions(&core, STAGED + 20).await;
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
            versions(&node.cores[0], STAGED + 20).await
        });
        Core::set_current(None);
        let staged = |found: &BTreeMap<u64, u64>| found.range(..STAGED).count();
        assert_eq!(staged(&found), staged(&expected), "seed {seed}: {calls:?} {skip} {persistent}: staged");
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
            for persistent in [false, true] {
                failures += u32::from(check_failure(skip + 1, calls, skip, persistent));
            }
        }
    }
    assert!(failures > 10, "{failures} builds failed");
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
                let allowed = core.node().slots_max(owned.handle.config(&core.pin())) as u64;
                assert!(stats.slots > allowed, "{} slots where {allowed} are allowed", stats.slots);
            }
            assert_eq!(core.count(NAME, None).await.expect("the collection is healthy"), 10);
            assert_eq!(versions(&core, POINTS).await.len(), 10);
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
