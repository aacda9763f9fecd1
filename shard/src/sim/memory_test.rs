//! Nodes at their memory limit, in simulation: what is refused, what goes on, and what opens again.

use super::Sim;
use super::node::{SimNode, node_options, open};
use crate::account::MemoryUse;
use crate::core::Core;
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::kv::Moment;
use crate::node::NodeOptions;
use crate::points::{PointFields, Vectors, WriteBatch};
use nigh_engine::collection::{DenseConfig, WriteMode};
use nigh_engine::distance::Metric;
use nigh_engine::kv::Op;
use std::rc::Rc;

const DIM: usize = 256;
const LIMIT: u64 = 4 << 20;
const NAMES: [&str; 2] = ["one", "two"];

fn options(memory_limit_bytes: u64) -> NodeOptions {
    NodeOptions { memory_limit_bytes, image_records_min: 1 << 40, ..node_options() }
}

fn batch(id: u64) -> WriteBatch {
    let points = vec![PointFields { id, row: vec![], ttl_ms: 0, expected_version: None }];
    let component = |at: usize| ((id as usize * DIM + at).wrapping_mul(0x9e37_79b9) % 1000) as f32;
    let vectors = Vectors::Native((0..DIM).map(component).collect());
    WriteBatch { mode: WriteMode::Upsert, dim: DIM, vectors, points }
}

async fn write(core: &Rc<Core>, name: &str, id: u64) -> Result<(), OpError> {
    loop {
        match core.write(name, batch(id)).await {
            Ok(_) => return Ok(()),
            // The mesh is full at times.
            Err(error) if matches!(&error.error, OpError::Busy(why) if !why.contains("memory")) => {}
            Err(error) => return Err(error.error),
        }
    }
}

async fn count(core: &Rc<Core>, name: &str) -> Result<u64, OpError> {
    loop {
        match core.count(name, None).await {
            Err(OpError::Busy(_)) => {}
            answer => return answer,
        }
    }
}

async fn put(core: &Rc<Core>, n: u32, bytes: usize) -> Result<(), OpError> {
    let key = n.to_be_bytes();
    let place = core.keys().place_of(&key);
    let put = crate::env::call_own(core, place.core, move |there| async move {
        let value = vec![n as u8; bytes];
        let op = Op::Put { key: &key, value: &value, ttl_ms: 0 };
        let ticket = there.keys().change_key(place, op, &mut Moment::default(), |_| {}).await?;
        there.wait_durable(ticket).await
    });
    put.await
}

/// Points until they are refused: how many the first collection has.
async fn fill(core: &Rc<Core>) -> u64 {
    for id in 0.. {
        for name in NAMES {
            if let Err(error) = write(core, name, id).await {
                assert!(matches!(error, OpError::NoMemory(_)), "{error}");
                return id + u64::from(name != NAMES[0]);
            }
        }
    }
    unreachable!("memory is bounded")
}

fn used(node: &SimNode) -> u64 {
    node.cores[0].node().account.total()
}

async fn make_collections(core: &Rc<Core>) {
    for name in NAMES {
        // Codes come with the 1,024th vector or so, all at once, which is much of so little.
        let config = DenseConfig { traversal_codes: false, ..DenseConfig::new(DIM, Metric::L2) };
        core.create_collection(name, config).await.unwrap();
    }
}

/// Points are refused below the limit, within what a write takes and before any time passes; keys have their part of it and turn over in
/// it; and what is there can be read and deleted.
#[test]
fn a_full_node_refuses_points_and_turns_keys_over() {
    for seed in 0..4 {
        super::run(seed, |sim: Sim| async move {
            let node = open(&sim, &Rc::new(SimDisk::new(seed)), 2, options(LIMIT)).await;
            let core = node.cores[0].clone();
            make_collections(&core).await;
            let points = fill(&core).await;
            let most = LIMIT / 16 * 13;
            // What keys hold already they need not be left.
            let most = most + core.node().account.held(MemoryUse::Keys);
            assert!(points > 500 && used(&node) <= most, "{points} points, {} bytes", used(&node));
            sim.sleep_us(200_000).await;
            assert!(used(&node) <= most + most / 20, "{} bytes as measured, {most} allowed", used(&node));
            for n in 0..2000 {
                put(&core, n, 1000).await.expect("a put makes room in its store");
                let (held, of) = (core.node().account.held(MemoryUse::Keys), LIMIT / 16);
                assert!(held <= of + of / 4, "{held} bytes of keys where {of} are theirs");
            }
            assert!(used(&node) <= LIMIT / 8 * 7 + LIMIT / 16, "{}", used(&node));
            let evicted = core.keys().keys_stats().await.store.evictions_live;
            assert!(evicted > 1000, "{evicted} keys were evicted");
            assert_eq!(count(&core, "one").await.unwrap(), points);
            for id in 0..points {
                loop {
                    match core.delete("one", id, None).await {
                        Err(OpError::Busy(_)) => {}
                        answer => break assert!(answer.unwrap()),
                    }
                }
            }
            // Until the graph is led around the dead.
            sim.sleep_us(20_000_000).await;
            for id in 0..points / 2 {
                write(&core, "one", 10_000 + id).await.expect("places of deleted points are taken");
            }
        });
        Core::set_current(None);
    }
}

/// What serves at the limit is opened again, from images and from the log, and takes no more then.
#[test]
fn what_is_full_opens_again_and_again() {
    for seed in 0..3 {
        let disk = Rc::new(SimDisk::new(seed));
        let mut expected = 0;
        let mut before = 0;
        for life in 0..6 {
            let disk = disk.clone();
            let was = before;
            let (points, bytes) = run_to_end(seed * 10 + life, move |sim: Sim| async move {
                let node = open(&sim, &disk, 2, options(LIMIT)).await;
                let core = node.cores[0].clone();
                if life == 0 {
                    make_collections(&core).await;
                }
                let opened = used(&node);
                assert!(was == 0 || opened <= was + was / 20, "{opened} bytes where {was} were used");
                if life == 0 {
                    fill(&core).await;
                }
                let points = count(&core, "two").await.unwrap();
                for n in 0..300 {
                    put(&core, n, 500).await.unwrap();
                }
                sim.sleep_us(2_000_000).await;
                if life % 2 == 0 {
                    for core in node.cores.iter() {
                        for owned in core.collections.all_owned() {
                            core.collections.checkpoint(&owned).await.unwrap();
                        }
                    }
                }
                sim.sleep_us(200_000).await;
                (points, used(&node))
            });
            assert!(life == 0 || points == expected, "{points} points, {expected} before");
            (expected, before) = (points, bytes);
        }
    }
}

/// Runs one life and returns what it comes to.
fn run_to_end<T: 'static, F: Future<Output = T> + 'static>(seed: u64, life: impl FnOnce(Sim) -> F) -> T {
    let result = Rc::new(std::cell::RefCell::new(None));
    let to = result.clone();
    super::run(seed, |sim| {
        let life = life(sim);
        async move { *to.borrow_mut() = Some(life.await) }
    });
    Core::set_current(None);
    let result = result.borrow_mut().take();
    result.expect("the life has ended")
}

/// Under half the limit one of the collections does not fit. It stays closed, says so, loses nothing, and opens again when there is memory.
#[test]
fn a_collection_that_does_not_fit_stays_closed() {
    for (seed, imaged) in [(1, true), (2, false), (3, true), (4, false)] {
        let disk = Rc::new(SimDisk::new(seed));
        let mut points = 0;
        for limit in [LIMIT, LIMIT / 8 * 5, LIMIT] {
            let disk = disk.clone();
            points = run_to_end(seed, move |sim: Sim| async move {
                let node = open(&sim, &disk, 2, options(limit)).await;
                let core = node.cores[0].clone();
                if points == 0 {
                    make_collections(&core).await;
                    let points = fill(&core).await;
                    sim.sleep_us(1_000_000).await;
                    for core in node.cores.iter().filter(|_| imaged) {
                        for owned in core.collections.all_owned() {
                            core.collections.checkpoint(&owned).await.unwrap();
                        }
                    }
                    return points;
                }
                let mut closed = 0;
                for (name, fewer) in NAMES.into_iter().zip([0, 1]) {
                    match count(&core, name).await {
                        Ok(found) => {
                            assert!(found <= points && found + fewer >= points, "{found} points of {points}")
                        }
                        Err(error) => {
                            let text = error.to_string();
                            assert!(
                                text.contains(name) && text.contains("does not fit into memory"),
                                "{text}"
                            );
                            closed += 1;
                        }
                    }
                }
                assert_eq!(closed, u64::from(limit < LIMIT), "closed under {limit} bytes");
                let says_so =
                    |why: String| why.contains("closed for want of memory") && !why.contains("damaged");
                assert_eq!(core.not_ready().is_some_and(says_so), closed > 0);
                assert!(used(&node) <= limit, "{} of {limit} bytes are used", used(&node));
                sim.sleep_us(2_000_000).await;
                points
            });
        }
    }
}
