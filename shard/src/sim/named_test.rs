//! Collections of named spaces in simulation: points that lack vectors, parts that are kept, deadlines, images, clean stops and crashes. What
//! was acknowledged is there after a restart, as a map beside it has it, and searches find it.

use super::node::{next_life, node_options, open, patiently};
use super::{Random, Sim};
use crate::core::{Core, QueryRequest, Shown};
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::family::Family;
use crate::node::NodeOptions;
use crate::payload_change::PayloadChange;
use crate::points::{NamedVectors, PointFields, Vectors, WriteBatch, Written};
use nigh_engine::collection::{
    DenseConfig, IndexType, IvfConfig, NamedConfig, NamedSpace, Quantizer, WriteMode,
};
use nigh_engine::distance::Metric;
use nigh_engine::payload::{CONTENT_KEY, PayloadRow, RowBuilder, Value, ValueRef};
use nigh_engine::quantizer::Quantization;
use nigh_engine::query::{Combine, LaneQuery, Leaf, Method, QueryOptions, Source};
use nigh_engine::text::{TextConfig, TextMatch};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const NAME: &str = "acme/named";
const IDS: u64 = 40;
const LIVES: u64 = 5;
const STEPS: u64 = 150;
const DIMS: [usize; 3] = [2, 3, 8];
const SPARSE: usize = 2;

fn config() -> NamedConfig {
    let named = |name: &str, config| NamedSpace::new(name, config);
    let base = |dim| DenseConfig { m: 4, ef_construction: 32, ..DenseConfig::new(dim, Metric::L2) };
    let ivf = IvfConfig { train_threshold: 10, nprobe: 2, ..IvfConfig::default() };
    let cells = DenseConfig { index: IndexType::Ivf(ivf), ..base(DIMS[1]) };
    let quant = Quantizer::Trained(Quantization::Sign);
    let coded = DenseConfig { quant, train_threshold: 12, ..base(DIMS[2]) };
    let spaces = vec![named("graph", base(DIMS[0])), named("cells", cells), named("coded", coded)];
    let mut config = NamedConfig::new(spaces, vec!["words".to_owned(), "tags".to_owned()]);
    config.whole.full_text = Some(TextConfig::default());
    config
}

#[derive(Clone, Debug, PartialEq)]
struct Stored {
    vectors: [Option<Vec<f32>>; 3],
    sparse: [Vec<(u32, f32)>; SPARSE],
    tag: i64,
    version: u64,
}

#[derive(Default)]
struct Model {
    points: BTreeMap<u64, Stored>,
    given: BTreeMap<u64, u64>,
}

type Shared = Rc<RefCell<Model>>;

fn row(tag: i64) -> Vec<u8> {
    let mut row = RowBuilder::new();
    row.set("tag", Value::Int(tag), 0);
    row.set(CONTENT_KEY, Value::String(text(tag)), 0);
    row.finish()
}

/// A text that depends on the tag.
fn text(tag: i64) -> String {
    format!("rest{}", tag % 4)
}

fn random_vector(random: &Random, dim: usize) -> Vec<f32> {
    (0..dim).map(|_| random.below(2001) as f32 / 100.0 - 10.0).collect()
}

/// A write of some spaces, and what the point is after it.
fn random_write(random: &Random, before: Option<&Stored>) -> (NamedVectors, Stored) {
    let nothing = Stored { vectors: [const { None }; 3], sparse: Default::default(), tag: 0, version: 0 };
    let mut after = before.cloned().unwrap_or(nothing);
    let mut vectors = NamedVectors::default();
    for (space, dim) in DIMS.into_iter().enumerate() {
        if random.chance(1, 2) {
            let vector = random_vector(random, dim);
            after.vectors[space] = Some(vector.clone());
            vectors.dense.push((space, vector));
        }
    }
    for space in 0..SPARSE {
        if random.chance(1, 2) {
            let dimensions = (0..6).filter(|_| random.chance(1, 3)).collect::<Vec<u32>>();
            let vector: Vec<_> = dimensions.into_iter().map(|d| (d, 1.0 + d as f32)).collect();
            after.sparse[space] = vector.clone();
            vectors.sparse.push((space, vector));
        }
    }
    after.tag = random.below(1000) as i64;
    (vectors, after)
}

async fn step(sim: &Sim, core: &Rc<Core>, random: &Random, model: &Shared) {
    let id = random.below(IDS);
    let before = model.borrow().points.get(&id).cloned();
    match random.below(20) {
        0..=11 => {
            let (vectors, mut after) = random_write(random, before.as_ref());
            after.version = model.borrow().given.get(&id).copied().unwrap_or(0) + 1;
            let wrong = random.chance(1, 10);
            let expected = before.as_ref().map_or(0, |before| before.version) + u64::from(wrong);
            let fields = PointFields { id, row: row(after.tag), ttl_ms: 0, expected_version: Some(expected) };
            let batch = || WriteBatch {
                mode: WriteMode::Upsert,
                dim: 0,
                vectors: Vectors::Named(vec![vectors.clone()]),
                points: vec![fields.clone()],
            };
            let written = patiently(|| async { core.write(NAME, batch()).await.map_err(|e| e.error) }).await;
            if wrong {
                assert_eq!(written, [Written::Conflict], "id {id}");
                return;
            }
            assert_eq!(written, [Written::Ok { version: after.version }], "id {id}");
            let mut model = model.borrow_mut();
            model.given.insert(id, after.version);
            model.points.insert(id, after);
        }
        12 | 13 => {
            let deleted = patiently(|| core.delete(NAME, id, None)).await;
            assert_eq!(deleted, model.borrow_mut().points.remove(&id).is_some());
        }
        14 | 15 => {
            let tag = random.below(1000) as i64;
            let entries = || {
                vec![("tag".to_owned(), Value::Int(tag)), (CONTENT_KEY.to_owned(), Value::String(text(tag)))]
            };
            let change = || PayloadChange::Merge { entries: entries(), key_ttl_ms: Vec::new() };
            match core.change_payload(NAME, id, change(), None).await {
                Ok(version) => {
                    let mut model = model.borrow_mut();
                    model.given.insert(id, version);
                    let point = model.points.get_mut(&id).expect("there was a point");
                    (point.tag, point.version) = (tag, version);
                }
                Err(OpError::PointNotFound(_)) => assert_eq!(before, None),
                Err(OpError::Busy(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
        16 => sim.sleep_us(random.below(50_000)).await,
        17 => {
            for owned in core.collections.all_owned() {
                core.collections.checkpoint(&owned).await.unwrap();
            }
        }
        18 => refusals(core, id).await,
        _ => search(core, random, model).await,
    }
}

/// What does not fit changes nothing.
async fn refusals(core: &Rc<Core>, id: u64) {
    let fields = || PointFields { id, row: row(1), ttl_ms: 0, expected_version: None };
    let write = async |vectors| {
        let batch = WriteBatch { mode: WriteMode::Upsert, dim: 2, vectors, points: vec![fields()] };
        core.write(NAME, batch).await.map_err(|stopped| stopped.error)
    };
    let of = |dense, sparse| Vectors::Named(vec![NamedVectors { dense, sparse, tokens: Vec::new() }]);
    let wrong = [
        of(vec![(0, vec![1.0; 2]), (1, vec![1.0; 2])], vec![]),
        of(vec![(3, vec![1.0; 2])], vec![]),
        of(vec![], vec![(2, vec![(1, 1.0)])]),
        of(vec![(0, vec![f32::NAN; 2])], vec![]),
        Vectors::Native(vec![1.0; 2]),
    ];
    for vectors in wrong {
        match write(vectors.clone()).await {
            Err(OpError::Busy(_)) => {}
            Err(OpError::Write(_) | OpError::BadRequest(_) | OpError::UnknownCollection(_)) => {}
            other => panic!("{vectors:?} is accepted: {other:?}"),
        }
    }
    let query = LaneQuery::nearest(vec![0.0; 2], 1, None);
    for (source, space) in [(Source::Dense(vec![0.0; 2]), 3), (Source::Sparse(vec![(1, 1.0)]), 2)] {
        let lane = Leaf { source, space, pool: 1, filter: None };
        let lanes = LaneQuery { lanes: vec![lane], ..query.clone() };
        let request = QueryRequest { lanes, group: None, shown: Shown::default(), explain: false };
        assert!(matches!(core.query(NAME, request).await, Err(OpError::BadRequest(_))));
    }
    assert!(
        core.expect_family(NAME, Family::Named).is_ok() && core.expect_family(NAME, Family::Dense).is_err()
    );
    assert!(!patiently(|| core.drop_collection(NAME, Some(Family::Dense))).await);
}

/// The nearest of each space, and the sum over a sparse one.
async fn search(core: &Rc<Core>, random: &Random, model: &Shared) {
    for (space, dim) in DIMS.into_iter().enumerate() {
        let vector = random_vector(random, dim);
        let lane = Leaf { source: Source::Dense(vector.clone()), space, pool: 100, filter: None };
        let found: Vec<u64> = query(core, lane).await;
        let distance =
            |other: &[f32]| -> f32 { other.iter().zip(&vector).map(|(a, b)| (a - b) * (a - b)).sum() };
        let points = model.borrow().points.clone();
        let mut truth: Vec<(f32, u64)> = points
            .iter()
            .filter_map(|(id, point)| Some((distance(point.vectors[space].as_ref()?), *id)))
            .collect();
        truth.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut expected: Vec<u64> = truth.into_iter().map(|(_, id)| id).collect();
        // All of so few are returned; their order may differ where rounding does.
        let mut found = found;
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "space {space}");
    }
    let terms = vec![(1, 1.0), (4, -2.0)];
    let lane = Leaf { source: Source::Sparse(terms.clone()), space: 1, pool: 100, filter: None };
    let mut found = query(core, lane).await;
    let shares = |point: &Stored| point.sparse[1].iter().any(|(d, _)| terms.iter().any(|(t, _)| t == d));
    let expected: Vec<u64> =
        model.borrow().points.iter().filter(|(_, point)| shares(point)).map(|(id, _)| *id).collect();
    found.sort_unstable();
    assert_eq!(found, expected, "sparse vectors");
    let rest = random.below(4) as i64;
    let source = Source::Text(TextMatch::words(&text(rest)));
    let mut found = query(core, Leaf { source, space: 0, pool: 100, filter: None }).await;
    found.sort_unstable();
    let model = model.borrow();
    let has_text = |point: &Stored| point.tag % 4 == rest;
    let expected: Vec<u64> =
        model.points.iter().filter(|(_, point)| has_text(point)).map(|(id, _)| *id).collect();
    assert_eq!(found, expected, "texts");
}

async fn query(core: &Rc<Core>, lane: Leaf) -> Vec<u64> {
    let combine = Combine::Fuse(Method::Rrf { c: 0.0 });
    let lanes = LaneQuery { lanes: vec![lane], combine, k: 100, options: QueryOptions::default() };
    let request = QueryRequest { lanes, group: None, shown: Shown::default(), explain: false };
    let outcome = patiently(|| core.query(NAME, request.clone())).await;
    outcome.answer.into_hits().into_iter().map(|hit| hit.id).collect()
}

async fn compare(core: &Rc<Core>, model: &Shared) {
    let ids: Vec<u64> = (0..IDS).collect();
    let found = patiently(|| core.get(NAME, ids.clone(), true, true)).await;
    for (id, found) in ids.into_iter().zip(found) {
        let model = model.borrow();
        let expected = model.points.get(&id);
        assert_eq!(found.is_some(), expected.is_some(), "id {id}");
        let Some((found, expected)) = found.zip(expected) else { continue };
        assert_eq!(found.version, expected.version, "version of id {id}");
        let vectors: Vec<(usize, Vec<f32>)> = (expected.vectors.iter().enumerate())
            .filter_map(|(space, vector)| Some((space, vector.clone()?)))
            .collect();
        assert_eq!(found.vectors, vectors, "vectors of id {id}");
        let row = PayloadRow::verify(&found.row).expect("a stored row is whole");
        assert_eq!(row.get("tag", 0), Some(ValueRef::Int(expected.tag)), "tag of id {id}");
        for space in 0..SPARSE {
            assert_eq!(row.sparse_of(space).collect::<Vec<_>>(), expected.sparse[space], "sparse of id {id}");
        }
    }
}

fn options(random: &Random) -> NodeOptions {
    NodeOptions {
        segment_bytes: 4096 * (2 + random.below(8)),
        log_bytes_soft: 4096 * (4 + random.below(64)),
        image_records_min: 1 + random.below(40),
        ..node_options()
    }
}

async fn life(sim: Sim, disk: Rc<SimDisk>, model: Shared) {
    let random = sim.random().fork();
    let node = open(&sim, &disk, 1 + random.index(2), options(&random)).await;
    let core = node.cores[random.index(node.cores.len())].clone();
    loop {
        match core.create_collection(NAME, config()).await {
            Ok(()) | Err(OpError::CollectionExists(_)) => break,
            Err(OpError::Busy(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(core.config(NAME).unwrap().named(), Some(&config()));
    compare(&core, &model).await;
    for _ in 0..random.below(STEPS) {
        step(&sim, &core, &random, &model).await;
    }
    search(&core, &random, &model).await;
    compare(&core, &model).await;
}

#[test]
fn named_spaces_survive_restarts() {
    let seeds = if std::env::var_os("NIGH_TEST_LONG").is_some() { 3000 } else { 60 };
    for seed in 1..=seeds {
        let random = Random::new(seed);
        let mut disk = SimDisk::new(random.next());
        disk.set_yielding(true);
        let model = Shared::default();
        for _ in 0..LIVES {
            let shared = Rc::new(disk);
            println!("seed {seed}");
            super::run(random.next(), |sim| life(sim, shared.clone(), model.clone()));
            Core::set_current(None);
            disk = next_life(&shared, &random);
        }
    }
}
