//! Batches longer than a tail may be, in simulation: none waits for an indexer that nobody has told of its work.
//!
//! What might wake the indexer by chance is left out. Nothing is swept, and under a frozen clock no slice ends by time, as on a core
//! that is faster than any slice.

use super::executor::{Clock, run_by};
use super::node::{node_options, open};
use super::{Random, Sim};
use crate::core::Core;
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::node::NodeOptions;
use crate::owner::TAIL_MAX;
use crate::payload_change::PayloadChange;
use crate::points::{PointFields, Vectors, WriteBatch, Written};
use futures_lite::future::or;
use nigh_engine::collection::{DenseConfig, IndexType, IvfConfig, Quantizer, WriteMode};
use nigh_engine::distance::Metric;
use nigh_engine::payload::{RowBuilder, Value};
use nigh_engine::text::TextConfig;
use std::rc::Rc;

const WAIT_MAX_US: u64 = 1_000_000;
const COLLECTIONS: u64 = 2;

fn options(random: &Random) -> NodeOptions {
    NodeOptions {
        segment_bytes: 4096 << random.below(9),
        log_bytes_soft: 1 << 30,
        image_records_min: 1 << 40,
        ..node_options()
    }
}

fn config(random: &Random) -> DenseConfig {
    let mut config = DenseConfig::new(1 + random.index(4), Metric::L2);
    config.m = 4;
    config.ef_construction = 8;
    match random.below(4) {
        0 => {
            let train_threshold = if random.chance(1, 2) { 100 } else { 1 << 30 };
            config.index = IndexType::Ivf(IvfConfig { train_threshold, nprobe: 2, ..IvfConfig::default() });
        }
        1 => config.quant = Quantizer::Sq8,
        2 => config.full_text = Some(TextConfig::default()),
        _ => {}
    }
    config
}

fn row(text: &str) -> Vec<u8> {
    let mut row = RowBuilder::new();
    row.set("$content", Value::String(text.to_owned()), 0);
    row.finish()
}

/// The result of `call`, which must come within [`WAIT_MAX_US`]; called anew when the mesh has refused it.
async fn in_time<T, F: Future<Output = Result<T, OpError>>>(
    sim: &Sim,
    what: &str,
    mut call: impl FnMut() -> F,
) -> T {
    loop {
        let late = async {
            sim.sleep_us(WAIT_MAX_US).await;
            panic!("{what} waits for more than {WAIT_MAX_US} us");
        };
        match or(call(), late).await {
            Ok(value) => return value,
            Err(OpError::Busy(_)) => {}
            Err(other) => panic!("{what}: {other}"),
        }
    }
}

/// Batches that fill a tail more than once, then changes of texts, which take places in the tail as well.
async fn client(sim: Sim, core: Rc<Core>, random: Random, name: String, config: DenseConfig, batches: u64) {
    let mut next = random.below(1 << 40);
    for _ in 0..batches {
        let count = TAIL_MAX as u64 + 1 + random.below(if random.chance(1, 8) { 4000 } else { 200 });
        let text = if random.chance(1, 2) { row("one") } else { Vec::new() };
        let point = |id| PointFields { id, row: text.clone(), ttl_ms: 0, expected_version: None };
        let points: Vec<_> = (next..next + count).map(point).collect();
        next += count;
        let floats = (0..count as usize * config.dim).map(|_| random.below(2001) as f32).collect::<Vec<_>>();
        let written = in_time(&sim, "a batch", || {
            let vectors = Vectors::Native(floats.clone());
            let points = points.clone();
            let batch = WriteBatch { mode: WriteMode::Upsert, dim: config.dim, vectors, points };
            async { core.write(&name, batch).await.map_err(|error| error.error) }
        });
        assert!(written.await.iter().all(|written| matches!(written, Written::Ok { .. })));
        for back in 1..=random.below(20) {
            let change = || PayloadChange::Merge {
                entries: vec![("$content".to_owned(), Value::String(format!("two {back}")))],
                key_ttl_ms: Vec::new(),
            };
            in_time(&sim, "a change of text", || core.change_payload(&name, next - back, change(), None))
                .await;
        }
    }
}

fn check_seed(seed: u64, clock: Clock) {
    let random = Random::new(seed);
    run_by(clock, random.next(), |sim| async move {
        let disk = SimDisk::new(random.next());
        disk.set_yielding(random.chance(1, 2));
        let count = 1 + random.index(3);
        let node = open(&sim, &Rc::new(disk), count, options(&random)).await;
        let mut clients = Vec::new();
        for collection in 0..COLLECTIONS {
            let (name, config) = (format!("c{collection}"), config(&random));
            in_time(&sim, "create", || node.cores[0].create_collection(&name, config.clone())).await;
            for _ in 0..1 + random.below(2) {
                let core = node.cores[random.index(count)].clone();
                let (name, config) = (name.clone(), config.clone());
                clients.push(client(sim.clone(), core, random.fork(), name, config, 1 + random.below(2)));
            }
        }
        crate::event::together(clients).await;
        for collection in 0..COLLECTIONS {
            let name = format!("c{collection}");
            in_time(&sim, "drop", || node.cores[0].drop_collection(&name, None)).await;
        }
    });
    Core::set_current(None);
}

fn check_seeds(clock: Clock, few: u64) {
    let seeds = match std::env::var("NIGH_TEST_SEEDS") {
        Ok(text) => text.parse().expect("NIGH_TEST_SEEDS is a number"),
        Err(_) if std::env::var_os("NIGH_TEST_LONG").is_some() => 10_000,
        Err(_) => few,
    };
    let first: u64 = match std::env::var("NIGH_TEST_SEED") {
        Ok(text) => text.parse().expect("NIGH_TEST_SEED is a number"),
        Err(_) => 1,
    };
    for seed in first..first + seeds {
        let result = std::panic::catch_unwind(|| check_seed(seed, clock));
        if let Err(panic) = result {
            eprintln!("failing seed: {seed} (replay with NIGH_TEST_SEED={seed} NIGH_TEST_SEEDS=1)");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn no_batch_waits_for_an_indexer_that_sleeps_under_a_frozen_clock() {
    check_seeds(Clock::Frozen, 30);
}

#[test]
fn no_batch_waits_for_an_indexer_that_sleeps_under_a_running_clock() {
    check_seeds(Clock::Running, 10);
}
