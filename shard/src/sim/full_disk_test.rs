//! Full disks in simulation: reads go on, what is freed comes back, starts need no room, and a server recovers by itself.

use super::keys_test::{Order, carry_out, read};
use super::node::{SimNode, keys_options, node_options, open, until_not_busy};
use super::{Random, Sim};
use crate::core::{AliasChange, Core};
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::kv::KeysOptions;
use crate::node::NodeOptions;
use crate::payload_change::PayloadChange;
use crate::points::{PointFields, Vectors, WriteBatch};
use nigh_engine::collection::{DenseConfig, WriteMode};
use nigh_engine::distance::Metric;
use nigh_engine::kv::Reply;
use nigh_engine::payload::{RowBuilder, Value};
use std::rc::Rc;

const DOCS: &str = "docs";
const NOTES: &str = "notes";
const DISK_BYTES: u64 = 8 << 20;
/// Virtual time after which what was freed is there, and writes are taken.
const RECOVERY_US: u64 = 60_000_000;

fn options() -> NodeOptions {
    NodeOptions {
        segment_bytes: 128 << 10,
        log_bytes_soft: 512 << 10,
        image_records_min: 1 << 40,
        keys: KeysOptions { budget_bytes: 64 << 20, shard_bytes_min: 8 << 20, ..keys_options() },
        ..node_options()
    }
}

async fn put_point(core: &Rc<Core>, name: &str, id: u64) -> Result<(), OpError> {
    let mut row = RowBuilder::new();
    row.set("pad", Value::String("p".repeat(2000)), 0);
    let row = row.finish();
    until_not_busy(|| async {
        let points = vec![PointFields { id, row: row.clone(), ..PointFields::default() }];
        let batch =
            WriteBatch { mode: WriteMode::Upsert, dim: 1, vectors: Vectors::Native(vec![id as f32]), points };
        core.write(name, batch).await.map(drop).map_err(|stopped| stopped.error)
    })
    .await
}

async fn put_key(core: &Rc<Core>, n: u64) -> Result<(), OpError> {
    let order = Order::Put { value: vec![n as u8; 3000], ttl_ms: 0 };
    let key = n.to_be_bytes();
    until_not_busy(|| carry_out(core, &key, &order)).await.map(drop)
}

/// What is stored: ids of either collection from 0 on, and keys likewise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Stored {
    docs: u64,
    notes: u64,
    keys: u64,
}

/// Writes until the disk refuses everything.
async fn fill(core: &Rc<Core>, random: &Random, stored: &mut Stored) {
    let mut refused = 0;
    while refused < 30 {
        let result = match random.below(3) {
            0 => put_point(core, DOCS, stored.docs).await.map(|()| stored.docs += 1),
            1 => put_point(core, NOTES, stored.notes).await.map(|()| stored.notes += 1),
            _ => put_key(core, stored.keys).await.map(|()| stored.keys += 1),
        };
        match result {
            Ok(()) => refused = 0,
            Err(OpError::NoSpace(_)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        assert!(stored.docs < 10_000, "the disk never fills");
    }
}

async fn check(core: &Rc<Core>, stored: Stored) {
    let count = |name| until_not_busy(move || core.count(name, None));
    assert_eq!((count(DOCS).await.unwrap(), count(NOTES).await.unwrap()), (stored.docs, stored.notes));
    for n in 0..stored.keys {
        assert_eq!(read(core, &n.to_be_bytes()).await, Some((vec![n as u8; 3000], 0)), "key {n}");
    }
}

/// Waits until a write of each kind is taken.
async fn recovered(sim: &Sim, core: &Rc<Core>, disk: &SimDisk, what: &str) {
    let deadline_ns = sim.now_ns() + RECOVERY_US * 1000;
    loop {
        match core.not_ready() {
            None => return,
            Some(why) => assert!(
                sim.now_ns() < deadline_ns,
                "after {what}: {why}; {} bytes used: {:?}",
                disk.used_bytes(),
                disk.paths()
            ),
        }
        sim.sleep_us(100_000).await;
    }
}

fn live<T>(seed: u64, disk: &Rc<SimDisk>, cores: usize, work: impl AsyncFnOnce(Sim, SimNode) -> T) -> T {
    let disk = disk.clone();
    let done = super::run(seed, |sim| async move {
        let node = open(&sim, &disk, cores, options()).await;
        work(sim, node).await
    });
    Core::set_current(None);
    done
}

#[test]
fn a_full_disk_is_read_freed_and_restarted() {
    for seed in 1..9 {
        let disk = Rc::new(SimDisk::new(seed));
        let cores = 1 + seed as usize % 2;
        let shared = disk.clone();
        let mut stored = live(seed, &disk, cores, async move |_, node: SimNode| {
            let core = &node.cores[0];
            shared.set_space(Some(DISK_BYTES));
            for name in [DOCS, NOTES] {
                until_not_busy(|| core.create_collection(name, DenseConfig::new(1, Metric::L2)))
                    .await
                    .unwrap();
            }
            let mut stored = Stored::default();
            fill(core, &Random::new(seed), &mut stored).await;
            check(core, stored).await;
            assert!(core.not_ready().expect("the disk is full").contains("the disk is full"));
            stored
        });
        assert!(stored.docs > 50 && stored.keys > 50, "{stored:?}");

        // Twenty starts, each killed; none takes what the one before had, and none needs more.
        for start in 0..20 {
            let core_count = 1 + start % 2;
            live(seed + start as u64, &disk, core_count, async move |sim: Sim, node: SimNode| {
                check(&node.cores[0], stored).await;
                sim.sleep_us(sim.random().below(3_000_000)).await;
                check(&node.cores[0], stored).await;
            });
            assert!(disk.used_bytes() <= DISK_BYTES);
        }

        // What can be freed is: points one by one, keys, a collection. Each lets writes be taken again.
        for freed in ["points", "keys", "a collection"] {
            let shared = disk.clone();
            stored = live(seed, &disk, cores, async move |sim: Sim, node: SimNode| {
                let core = &node.cores[0];
                fill(core, &sim.random().fork(), &mut stored).await;
                match freed {
                    "points" => {
                        // Each takes a block of the log, and the images that let these go take room of the reserve, until one without the
                        // deleted points finds room: a third at least can be deleted one by one, and the rest be dropped.
                        let mut deleted = 0;
                        for id in 0..stored.docs {
                            match until_not_busy(|| core.delete(DOCS, id, None)).await {
                                Ok(was_there) => assert!(was_there, "{id}"),
                                Err(OpError::NoSpace(_)) => break,
                                Err(other) => panic!("seed {seed}, {id} of {stored:?}: {other}"),
                            }
                            deleted += 1;
                        }
                        let sizes = shared.sizes();
                        assert!(3 * deleted > stored.docs, "seed {seed}: {deleted} of {stored:?}: {sizes:?}");
                        if deleted < stored.docs {
                            assert!(until_not_busy(|| core.drop_collection(DOCS, None)).await.unwrap());
                            recovered(&sim, core, &shared, freed).await;
                            until_not_busy(|| core.create_collection(DOCS, DenseConfig::new(1, Metric::L2)))
                                .await
                                .unwrap();
                        }
                        stored.docs = 0;
                    }
                    "keys" => {
                        for n in 0..stored.keys {
                            let key = n.to_be_bytes();
                            let deleted = until_not_busy(|| carry_out(core, &key, &Order::Del)).await;
                            assert_eq!(deleted.unwrap(), Reply::Flag(true), "seed {seed}, {n}");
                        }
                        stored.keys = 0;
                    }
                    _ => {
                        assert!(until_not_busy(|| core.drop_collection(NOTES, None)).await.unwrap());
                        stored.notes = 0;
                    }
                }
                recovered(&sim, core, &shared, freed).await;
                if freed == "a collection" {
                    until_not_busy(|| core.create_collection(NOTES, DenseConfig::new(1, Metric::L2)))
                        .await
                        .unwrap();
                }
                check(core, stored).await;
                let earlier = stored;
                fill(core, &sim.random().fork(), &mut stored).await;
                assert!(stored != earlier, "{freed}");
                check(core, stored).await;
                stored
            });
        }
        live(seed, &disk, cores, async move |_, node: SimNode| check(&node.cores[0], stored).await);
    }
}

/// Besides deletions a full disk takes what makes data smaller: payloads that lose keys, deadlines that are brought forward, aliases that go.
#[test]
fn a_full_disk_takes_what_makes_data_smaller() {
    // Enough for their records to take more than a log has room for.
    const CHANGED: u64 = 40;
    for seed in 1..9 {
        let disk = Rc::new(SimDisk::new(seed));
        let cores = 1 + seed as usize % 2;
        let shared = disk.clone();
        let stored = live(seed, &disk, cores, async move |sim: Sim, node: SimNode| {
            let core = &node.cores[0];
            shared.set_space(Some(DISK_BYTES));
            for name in [DOCS, NOTES] {
                until_not_busy(|| core.create_collection(name, DenseConfig::new(1, Metric::L2)))
                    .await
                    .unwrap();
            }
            let alias = |alias: &str| AliasChange::Create { alias: alias.into(), collection: DOCS.into() };
            core.change_aliases(vec![alias("one"), alias("two")]).await.unwrap();
            let mut stored = Stored::default();
            fill(core, &Random::new(seed), &mut stored).await;
            // There is not a block beside the reserve.
            shared.set_space(Some(shared.used_bytes()));
            let deleted = core.change_aliases(vec![AliasChange::Delete { alias: "one".into() }]).await;
            shared.set_space(Some(DISK_BYTES));
            assert_eq!(deleted.unwrap(), [true], "seed {seed}");
            for n in 0..CHANGED {
                let key = n.to_be_bytes();
                for ttl_ms in [3_600_000, 1_000] {
                    let order = Order::Expire { ttl_ms };
                    let done = until_not_busy(|| carry_out(core, &key, &order)).await;
                    assert_eq!(done.expect("it expires earlier"), Reply::Done, "seed {seed}, {n}");
                }
            }
            for id in 0..CHANGED {
                if id == 0 {
                    let merge = PayloadChange::Merge {
                        entries: vec![("more".into(), Value::String("m".repeat(2000)))],
                        key_ttl_ms: Vec::new(),
                    };
                    let grown = until_not_busy(|| core.change_payload(DOCS, id, merge.clone(), None)).await;
                    assert!(matches!(grown, Err(OpError::NoSpace(_))), "seed {seed}: {grown:?}");
                }
                let change = match id % 2 {
                    0 => PayloadChange::Clear,
                    _ => PayloadChange::DeleteKeys(vec!["pad".into()]),
                };
                let cleared = until_not_busy(|| core.change_payload(DOCS, id, change.clone(), None)).await;
                assert_eq!(cleared.expect("it is smaller now"), 2, "seed {seed}, {id}");
            }
            sim.sleep_us(2_000_000).await;
            for n in 0..CHANGED {
                assert_eq!(read(core, &n.to_be_bytes()).await, None, "seed {seed}, {n}");
            }
            stored
        });
        live(seed, &disk, cores, async move |_, node: SimNode| {
            let core = &node.cores[0];
            let names: Vec<String> =
                core.aliases(None).unwrap().into_iter().map(|alias| alias.alias).collect();
            assert!(!names.iter().any(|name| name.ends_with("one")), "{names:?}");
            assert!(names.iter().any(|name| name.ends_with("two")), "{names:?}");
            for n in 0..stored.keys {
                // The clock of this life has begun anew, so a key may not have expired yet.
                let for_ever =
                    read(core, &n.to_be_bytes()).await.is_some_and(|(_, deadline_ms)| deadline_ms == 0);
                assert_eq!(for_ever, n >= CHANGED, "seed {seed}, {n}");
            }
            let points = until_not_busy(|| core.count(DOCS, None)).await.unwrap();
            assert_eq!(points, stored.docs);
        });
    }
}

#[test]
fn a_start_without_any_room_serves_reads_and_recovers() {
    for seed in 1..20 {
        let disk = Rc::new(SimDisk::new(seed));
        let cores = 1 + seed as usize % 2;
        let stored = live(seed, &disk, cores, async move |_, node: SimNode| {
            let core = &node.cores[0];
            for name in [DOCS, NOTES] {
                until_not_busy(|| core.create_collection(name, DenseConfig::new(1, Metric::L2)))
                    .await
                    .unwrap();
            }
            for n in 0..40 {
                put_point(core, DOCS, n).await.unwrap();
                put_key(core, n).await.unwrap();
            }
            Stored { docs: 40, notes: 0, keys: 40 }
        });
        // Whatever is removed, there is no room for anything.
        disk.set_space(Some(0));
        let shared = disk.clone();
        live(seed, &disk, cores, async move |sim: Sim, node: SimNode| {
            let core = &node.cores[0];
            check(core, stored).await;
            let why = core.not_ready().expect("nothing can be written");
            assert!(why.contains("the disk is full"), "{why}");
            assert!(matches!(put_point(core, DOCS, 40).await, Err(OpError::NoSpace(_))));
            assert!(matches!(put_key(core, 40).await, Err(OpError::NoSpace(_))));
            let deleted = until_not_busy(|| core.delete(DOCS, 0, None)).await;
            assert!(matches!(deleted, Err(OpError::NoSpace(_))), "{deleted:?}");
            check(core, stored).await;
            shared.set_space(None);
            recovered(&sim, core, &shared, "room is back").await;
            put_point(core, DOCS, 40).await.unwrap();
            put_key(core, 40).await.unwrap();
        });
        let stored = Stored { docs: 41, keys: 41, ..stored };
        live(seed, &disk, cores, async move |_, node: SimNode| check(&node.cores[0], stored).await);
    }
}
