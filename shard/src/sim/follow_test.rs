//! What is learned from points follows them in the background, in simulation: after all points were replaced and a collection has come to
//! rest it finds what is near, also after a start, and what codes have taken the place of is given back. Nothing is written meanwhile that
//! would wake anybody.

use super::node::{node_options, open};
use super::{Random, Sim};
use crate::core::Core;
use crate::disk::SimDisk;
use crate::node::NodeOptions;
use crate::points::{PointFields, SearchRequest, Vectors, WriteBatch};
use nigh_engine::collection::{DenseConfig, IndexType, IvfConfig, IvfProduct, Quantizer, WriteMode};
use nigh_engine::distance::Metric;
use nigh_engine::quantizer::{CellProduct, Quantization};
use std::rc::Rc;

const DIM: usize = 32;
const POINTS: usize = 1200;
/// Time for what is due after the last write, looks at rest included.
const SETTLED_US: u64 = 10_000_000;

fn options() -> NodeOptions {
    NodeOptions { log_bytes_soft: 4096 * 1024, image_records_min: 500, ..node_options() }
}

/// Points of clusters that lie around `at`.
fn points(random: &Random, at: f32) -> Vec<Vec<f32>> {
    let unit = || random.below(2001) as f32 / 1000.0 - 1.0;
    let centres: Vec<Vec<f32>> = (0..20).map(|_| (0..DIM).map(|_| unit()).collect()).collect();
    let point = |_| centres[random.index(20)].iter().map(|c| at + c + 0.5 * unit()).collect();
    (0..POINTS).map(point).collect()
}

async fn write(core: &Rc<Core>, name: &str, points: &[Vec<f32>]) {
    for (at, part) in points.chunks(100).enumerate() {
        let field = |id| PointFields { id, row: Vec::new(), ttl_ms: 0, expected_version: None };
        let first = (at * 100) as u64;
        let batch = WriteBatch {
            mode: WriteMode::Upsert,
            dim: DIM,
            vectors: Vectors::Native(part.concat()),
            points: (first..first + part.len() as u64).map(field).collect(),
        };
        core.write(name, batch).await.unwrap();
    }
}

/// Share of the ten nearest of some points that are found.
async fn recall(core: &Rc<Core>, name: &str, points: &[Vec<f32>]) -> f64 {
    let (mut found, mut wanted) = (0, 0);
    for query in points.iter().step_by(40) {
        let distance = |point: &[f32]| point.iter().zip(query).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
        let mut near: Vec<(f32, u64)> =
            points.iter().zip(0..).map(|(point, id)| (distance(point), id)).collect();
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        let request = SearchRequest { vector: query.clone(), k: 10, filter: None, with_rows: false };
        let hits = core.search(name, request).await.unwrap();
        wanted += 10;
        found += near[..10].iter().filter(|near| hits.iter().any(|hit| hit.id == near.1)).count();
    }
    found as f64 / f64::from(wanted)
}

fn kinds() -> Vec<(&'static str, DenseConfig)> {
    let graph = |quantization| DenseConfig {
        quant: Quantizer::Trained(quantization),
        train_threshold: 600,
        m: 6,
        ef_construction: 40,
        ef_search: 20,
        ..DenseConfig::new(DIM, Metric::L2)
    };
    let code = CellProduct { parts: 16, bits: 4, rotations: 0, eta: 0.0 };
    let product = Some(IvfProduct { code, rerank: true });
    let ivf = IvfConfig { nlist: 12, nprobe: 4, train_threshold: 600, product, ..IvfConfig::default() };
    vec![
        ("bq1", graph(Quantization::Sign)),
        ("pq", graph(Quantization::Product { parts: 16, bits: 8, rotations: 0, eta: 0.0 })),
        ("ivf_pq", DenseConfig { index: IndexType::Ivf(ivf), ..DenseConfig::new(DIM, Metric::L2) }),
    ]
}

async fn follows(sim: Sim, disk: Rc<SimDisk>, random: Random) {
    let node = open(&sim, &disk, 1, options()).await;
    let core = node.cores[0].clone();
    let (before, after) = (points(&random, 0.0), points(&random, 9.0));
    for (name, config) in kinds() {
        core.create_collection(name, config.clone()).await.unwrap();
        core.create_collection(&format!("fresh {name}"), config).await.unwrap();
        write(&core, name, &before).await;
    }
    sim.sleep_us(SETTLED_US).await;
    for (name, _) in kinds() {
        write(&core, name, &after).await;
        write(&core, &format!("fresh {name}"), &after).await;
    }
    sim.sleep_us(SETTLED_US).await;
    for (name, _) in kinds() {
        let (here, fresh) =
            (recall(&core, name, &after).await, recall(&core, &format!("fresh {name}"), &after).await);
        assert!(fresh > 0.5 && here >= fresh - 0.05, "{name}: {here} where a fresh one finds {fresh}");
    }
    drop(core);
    drop(node);
    let node = open(&sim, &Rc::new(disk.crash_clone(9)), 1, options()).await;
    sim.sleep_us(SETTLED_US).await;
    for (name, _) in kinds() {
        let (here, fresh) = (
            recall(&node.cores[0], name, &after).await,
            recall(&node.cores[0], &format!("fresh {name}"), &after).await,
        );
        assert!(here >= fresh - 0.05, "{name} after a start: {here} where a fresh one finds {fresh}");
    }
}

#[test]
fn what_is_learned_follows_the_points() {
    for seed in 1..=2 {
        super::run(seed, |sim| {
            let random = Random::new(seed);
            follows(sim, Rc::new(SimDisk::new(seed)), random)
        });
        Core::set_current(None);
    }
}

#[test]
fn vectors_are_given_back_when_their_codes_are_there_and_nothing_is_written() {
    super::run(3, |sim| async move {
        let disk = Rc::new(SimDisk::new(3));
        let node = open(&sim, &disk, 1, options()).await;
        let core = node.cores[0].clone();
        let quant = Quantizer::Trained(Quantization::Product { parts: 8, bits: 4, rotations: 0, eta: 0.0 });
        let config = DenseConfig {
            quant,
            pq_drop_vecs: true,
            train_threshold: 1000,
            ..DenseConfig::new(DIM, Metric::L2)
        };
        core.create_collection("given", config.clone()).await.unwrap();
        core.create_collection("kept", DenseConfig { pq_drop_vecs: false, ..config }).await.unwrap();
        let points = points(&Random::new(4), 0.0);
        // The last batch is the one that trains; what comes later would be refused.
        for name in ["given", "kept"] {
            write(&core, name, &points[..1000]).await;
        }
        sim.sleep_us(SETTLED_US).await;
        let bytes = |name: &str| {
            let owned =
                core.collections.owned(core.ctx.handle(name).unwrap().uid).expect("one core owns all");
            let usage = owned.writer.borrow().shared().usage();
            (usage.graph, usage.codes)
        };
        let ((given, codes), (kept, _)) = (bytes("given"), bytes("kept"));
        // But for a vector's worth of bookkeeping.
        let vectors = 999 * DIM as u64 * 4;
        assert!(codes > 0 && given + vectors <= kept, "{given} bytes where {kept} are kept");
    });
    Core::set_current(None);
}
