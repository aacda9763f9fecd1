//! Multi-vector collections in simulation: documents, their tokens and the index of these, images, clean stops and crashes. What was
//! acknowledged is there after a restart, as a map beside it has it, searches find it, and the index holds the tokens of the documents
//! and no others.

use super::node::{next_life, node_options, open, patiently};
use super::{Random, Sim};
use crate::core::{Core, QueryRequest, Shown};
use crate::disk::{Calls, Failure, SimDisk};
use crate::error::OpError;
use crate::family::Family;
use crate::node::NodeOptions;
use crate::payload_change::PayloadChange;
use crate::points::{NamedVectors, PointFields, Vectors, WriteBatch, Written};
use nigh_engine::collection::{
    DenseConfig, EncodingConfig, FirstStage, MultiVectorConfig, Quantizer, WriteMode,
};
use nigh_engine::distance::{Metric, prepare};
use nigh_engine::payload::{
    CONTENT_KEY, PayloadRow, Rotation, RowBuilder, TokenCode, TokenCodes, Value, ValueRef,
};
use nigh_engine::query::{Combine, LaneQuery, Leaf, MaxSim, Method, QueryOptions, Source};
use nigh_engine::text::{TextConfig, TextMatch};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

const NAME: &str = "acme/tokens";
const IDS: u64 = 30;
const LIVES: u64 = 5;
const STEPS: u64 = 120;
const DIM: usize = 3;

/// Documents are found by their tokens, or by their encodings, and their tokens are stored as floats or as codes.
fn config(seed: u64) -> MultiVectorConfig {
    let encoding = EncodingConfig { repetitions: 3, bits: 2, dim: 0 };
    let first_stage =
        if seed.is_multiple_of(2) { FirstStage::Encodings(encoding) } else { FirstStage::Tokens };
    let tokens = DenseConfig { m: 4, ef_construction: 32, ..DenseConfig::new(DIM, Metric::Cosine) };
    let codes = [TokenCode::Float, TokenCode::Bits8, TokenCode::Bits4, TokenCode::Bits2, TokenCode::Float];
    let token_code = codes[seed as usize % codes.len()];
    let tokens = DenseConfig { quant: Quantizer::Sq8, first_stage, token_code, ..tokens };
    let mut config = MultiVectorConfig::new(tokens);
    config.whole.full_text = Some(TextConfig::default());
    config
}

#[derive(Clone, Debug, PartialEq)]
struct Stored {
    /// The token vectors as they are stored.
    tokens: Vec<Vec<f32>>,
    sparse: Vec<(u32, f32)>,
    tag: i64,
    version: u64,
}

#[derive(Default)]
struct Model {
    documents: BTreeMap<u64, Stored>,
    given: BTreeMap<u64, u64>,
    code: TokenCode,
    /// The documents of a build that had not succeeded when the node ended. After the next start all of them are there, or none.
    unanswered: BTreeMap<u64, Stored>,
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

fn random_tokens(random: &Random, most: u64) -> Vec<Vec<f32>> {
    let token = |_| (0..DIM).map(|_| random.below(2001) as f32 / 100.0 - 10.0).collect();
    (0..1 + random.below(most)).map(token).collect()
}

fn stored(tokens: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let unit = |token: &Vec<f32>| {
        let mut unit = vec![0.0; DIM];
        prepare(Metric::Cosine, token, &mut unit);
        unit
    };
    tokens.iter().map(unit).collect()
}

/// The tokens of a document as they are read back.
fn read_back(tokens: &[Vec<f32>], code: TokenCode) -> Vec<Vec<f32>> {
    let stored = stored(tokens);
    if code == TokenCode::Float {
        return stored;
    }
    let (rotation, mut codes) = (Rotation::of(DIM), TokenCodes::new(code, DIM));
    stored.iter().for_each(|token| codes.push(token, &rotation));
    (0..stored.len()).map(|at| codes.decoded(at, &rotation)).collect()
}

async fn write(
    core: &Rc<Core>,
    id: u64,
    (tokens, sparse): (&[Vec<f32>], &[(u32, f32)]),
    tag: i64,
    expected_version: Option<u64>,
) -> Result<Vec<Written>, OpError> {
    let vectors = NamedVectors { dense: vec![], sparse: vec![(0, sparse.to_vec())], tokens: tokens.to_vec() };
    let fields = PointFields { id, row: row(tag), ttl_ms: 0, expected_version };
    let batch = WriteBatch {
        mode: WriteMode::Upsert,
        dim: 0,
        vectors: Vectors::Named(vec![vectors]),
        points: vec![fields],
    };
    core.write(NAME, batch).await.map_err(|stopped| stopped.error)
}

/// Random documents that can be staged, with what is stored of each.
fn staged(random: &Random, model: &Model) -> (WriteBatch, BTreeMap<u64, Stored>) {
    let (mut vectors, mut points, mut expected) = (Vec::new(), Vec::new(), BTreeMap::new());
    for id in (0..IDS).chain([u64::MAX]).filter(|_| random.chance(2, 3)) {
        let (tokens, tag) = (random_tokens(random, 6), random.below(1000) as i64);
        let sparse = if random.chance(1, 2) { vec![(4, 1.0 + tag as f32)] } else { vec![] };
        vectors.push(NamedVectors {
            dense: vec![],
            sparse: vec![(0, sparse.clone())],
            tokens: tokens.clone(),
        });
        points.push(PointFields { id, row: row(tag), ttl_ms: 0, expected_version: None });
        let version = model.given.get(&id).copied().unwrap_or(0) + 1;
        expected.insert(id, Stored { tokens: read_back(&tokens, model.code), sparse, tag, version });
    }
    let batch = WriteBatch { mode: WriteMode::Insert, dim: 0, vectors: Vectors::Named(vectors), points };
    (batch, expected)
}

/// What a client did with an id during a build.
enum Touched {
    Written(Stored),
    /// With the version that the document had.
    Deleted(u64),
}

/// Writes and deletes documents at random until the build has ended and for a while longer.
async fn rival(
    sim: &Sim,
    core: &Rc<Core>,
    (staged, code): (&BTreeMap<u64, Stored>, TokenCode),
    is_built: &Cell<bool>,
) -> BTreeMap<u64, Touched> {
    let (random, mut touched) = (sim.random().fork(), BTreeMap::new());
    let mut more = random.below(10);
    while more > 0 {
        more -= u64::from(is_built.get());
        sim.sleep_us(random.below(400)).await;
        let id = random.below(IDS);
        if random.chance(1, 3) {
            let before = patiently(|| core.get(NAME, vec![id], false, false)).await.remove(0);
            if patiently(|| core.delete(NAME, id, None)).await {
                // If it was not there a moment ago, it has been built since.
                let version = before.map_or_else(|| staged[&id].version, |point| point.version);
                touched.insert(id, Touched::Deleted(version));
            }
            continue;
        }
        let (tokens, tag) = (random_tokens(&random, 6), random.below(1000) as i64);
        let written = patiently(|| write(core, id, (&tokens, &[]), tag, None)).await;
        let [Written::Ok { version }] = written[..] else { panic!("id {id}: {written:?}") };
        let tokens = read_back(&tokens, code);
        touched.insert(id, Touched::Written(Stored { tokens, sparse: vec![], tag, version }));
    }
    touched
}

/// Whether a build has succeeded, `None` if it is under way.
async fn has_succeeded(core: &Rc<Core>, task: Option<u64>) -> Option<bool> {
    let tasks = patiently(|| core.tasks()).await;
    let stage = tasks.iter().find(|other| other.id == task).map_or("done", |task| task.stage);
    ["done", "failed"].contains(&stage).then_some(stage == "done")
}

/// Fills the empty collection by a bulk build while a client writes, and returns true. In one case of three there is no client, and the disk
/// may fail. The function then returns false at a random moment, and the node must be ended.
async fn build(sim: &Sim, disk: &SimDisk, core: &Rc<Core>, random: &Random, model: &Shared) -> bool {
    let (batch, expected) = staged(random, &model.borrow());
    patiently(|| core.stage(NAME, batch.clone())).await;
    let task = patiently(|| core.build(NAME, random.index(3), false)).await;
    let is_built = Cell::new(false);
    if random.chance(1, 3) {
        if random.chance(1, 2) {
            let calls = [Calls::Write, Calls::Sync, Calls::NameSync, Calls::Other][random.index(4)];
            disk.fail(calls, random.below(20), Failure::Io);
        }
        sim.sleep_us(random.below(6_000)).await;
        if has_succeeded(core, task).await == Some(true) {
            let given: Vec<(u64, u64)> = expected.iter().map(|(id, stored)| (*id, stored.version)).collect();
            model.borrow_mut().given.extend(given);
            model.borrow_mut().documents = expected;
        } else {
            model.borrow_mut().unanswered = expected;
        }
        return false;
    }
    let build = async {
        while !is_built.get() {
            sim.sleep_us(100).await;
            let succeeded = has_succeeded(core, task).await;
            assert_ne!(succeeded, Some(false), "the build fails");
            is_built.set(succeeded.is_some());
        }
    };
    let code = model.borrow().code;
    let rival = rival(sim, core, (&expected, code), &is_built);
    let (_, touched) = futures_lite::future::zip(build, rival).await;
    let mut model = model.borrow_mut();
    model.documents = expected;
    for (id, touched) in touched {
        match touched {
            Touched::Written(stored) => drop(model.documents.insert(id, stored)),
            Touched::Deleted(version) => {
                model.documents.remove(&id);
                model.given.insert(id, version);
            }
        }
    }
    let given: Vec<(u64, u64)> = model.documents.iter().map(|(id, stored)| (*id, stored.version)).collect();
    model.given.extend(given);
    true
}

/// Adapts the model after a start: the documents of a build that had not succeeded are there, or they are not.
async fn settle(core: &Rc<Core>, model: &Shared) {
    let unanswered = std::mem::take(&mut model.borrow_mut().unanswered);
    if unanswered.is_empty() || patiently(|| core.count(NAME, None)).await == 0 {
        return;
    }
    let mut model = model.borrow_mut();
    model.given.extend(unanswered.iter().map(|(id, stored)| (*id, stored.version)));
    model.documents = unanswered;
}

async fn step(sim: &Sim, core: &Rc<Core>, random: &Random, model: &Shared) {
    let id = if random.chance(1, 20) { u64::MAX - random.below(2) } else { random.below(IDS) };
    let before = model.borrow().documents.get(&id).cloned();
    match random.below(20) {
        0..=11 => {
            let tokens = random_tokens(random, 6);
            let dimensions = (0..6).filter(|_| random.chance(1, 3)).collect::<Vec<u32>>();
            let sparse: Vec<_> = dimensions.into_iter().map(|d| (d, 1.0 + d as f32)).collect();
            let tag = random.below(1000) as i64;
            let wrong = random.chance(1, 10);
            let expected = before.as_ref().map_or(0, |before| before.version) + u64::from(wrong);
            let written = patiently(|| write(core, id, (&tokens, &sparse), tag, Some(expected))).await;
            if wrong {
                assert_eq!(written, [Written::Conflict], "id {id}");
                return;
            }
            let version = model.borrow().given.get(&id).copied().unwrap_or(0) + 1;
            assert_eq!(written, [Written::Ok { version }], "id {id}");
            let mut model = model.borrow_mut();
            model.given.insert(id, version);
            let tokens = read_back(&tokens, model.code);
            model.documents.insert(id, Stored { tokens, sparse, tag, version });
        }
        12 | 13 => {
            let deleted = patiently(|| core.delete(NAME, id, None)).await;
            assert_eq!(deleted, model.borrow_mut().documents.remove(&id).is_some());
        }
        14 | 15 => {
            let tag = random.below(1000) as i64;
            let entries = || {
                vec![("tag".to_owned(), Value::Int(tag)), (CONTENT_KEY.to_owned(), Value::String(text(tag)))]
            };
            let change = || PayloadChange::Overwrite { entries: entries(), key_ttl_ms: Vec::new() };
            match core.change_payload(NAME, id, change(), None).await {
                Ok(version) => {
                    let mut model = model.borrow_mut();
                    model.given.insert(id, version);
                    let document = model.documents.get_mut(&id).expect("there was a document");
                    (document.tag, document.version) = (tag, version);
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
    for tokens in [vec![], vec![vec![1.0; DIM], vec![1.0; DIM + 1]], vec![vec![f32::NAN; DIM]]] {
        match write(core, id, (&tokens, &[]), 1, None).await {
            Err(OpError::Busy(_) | OpError::BadRequest(_)) => {}
            other => panic!("{tokens:?} is accepted: {other:?}"),
        }
    }
    let lane = Leaf { source: Source::Dense(vec![0.0; DIM]), space: 0, pool: 1, filter: None };
    let lanes = LaneQuery {
        lanes: vec![lane],
        combine: Combine::Fuse(Method::Rrf { c: 0.0 }),
        k: 1,
        options: QueryOptions::default(),
    };
    let request = QueryRequest { lanes, group: None, shown: Shown::default(), explain: false };
    assert!(matches!(core.query(NAME, request).await, Err(OpError::BadRequest(_))));
    assert!(core.expect_family(NAME, Family::MultiVector).is_ok());
    assert!(core.expect_family(NAME, Family::Named).is_err());
    // The index of tokens cannot be addressed by a name.
    assert!(matches!(core.count(&format!("{NAME}#tokens"), None).await, Err(OpError::UnknownCollection(_))));
    assert!(!patiently(|| core.drop_collection(NAME, Some(Family::Dense))).await);
}

/// The documents by their tokens, beside a naive sum, and by their sparse vectors.
async fn search(core: &Rc<Core>, random: &Random, model: &Shared) {
    let tokens = random_tokens(random, 4);
    let source = Source::MaxSim(MaxSim { tokens: tokens.clone(), per_token: 0 });
    let found = query(core, Leaf { source, space: 0, pool: 100, filter: None }).await;
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
    let score = |document: &Stored| -> f64 {
        let best = |token: &Vec<f32>| {
            document.tokens.iter().map(|other| product(token, other)).fold(f64::NEG_INFINITY, f64::max)
        };
        stored(&tokens).iter().map(best).sum()
    };
    let scores: BTreeMap<u64, f64> =
        model.borrow().documents.iter().map(|(id, document)| (*id, score(document))).collect();
    assert_eq!(found.len(), scores.len());
    for (id, told) in &found {
        assert!((f64::from(*told) - scores[id]).abs() < 1e-5, "document {id}: {told} and {}", scores[id]);
    }
    assert!(found.is_sorted_by(|a, b| a.1 > b.1 || a.1 == b.1 && a.0 < b.0), "{found:?}");
    let terms = vec![(1, 1.0), (4, -2.0)];
    let lane = Leaf { source: Source::Sparse(terms.clone()), space: 0, pool: 100, filter: None };
    let mut found: Vec<u64> = query(core, lane).await.into_iter().map(|(id, _)| id).collect();
    found.sort_unstable();
    let shares = |document: &Stored| document.sparse.iter().any(|(d, _)| terms.iter().any(|(t, _)| t == d));
    let documents = model.borrow().documents.clone();
    let expected: Vec<u64> =
        documents.iter().filter(|(_, document)| shares(document)).map(|(id, _)| *id).collect();
    assert_eq!(found, expected, "sparse vectors");
    let rest = random.below(4) as i64;
    let source = Source::Text(TextMatch::words(&text(rest)));
    let found = query(core, Leaf { source, space: 0, pool: 100, filter: None }).await;
    let mut found: Vec<u64> = found.into_iter().map(|(id, _)| id).collect();
    found.sort_unstable();
    let model = model.borrow();
    let has_text = |document: &Stored| document.tag % 4 == rest;
    let expected: Vec<u64> =
        model.documents.iter().filter(|(_, document)| has_text(document)).map(|(id, _)| *id).collect();
    assert_eq!(found, expected, "texts");
}

async fn query(core: &Rc<Core>, lane: Leaf) -> Vec<(u64, f32)> {
    let combine = Combine::Fuse(Method::Rrf { c: 0.0 });
    let lanes = LaneQuery { lanes: vec![lane], combine, k: 100, options: QueryOptions::default() };
    let request = QueryRequest { lanes, group: None, shown: Shown::default(), explain: false };
    let outcome = patiently(|| core.query(NAME, request.clone())).await;
    outcome.answer.into_hits().into_iter().map(|hit| (hit.id, hit.score)).collect()
}

async fn compare(core: &Rc<Core>, model: &Shared) {
    let ids: Vec<u64> = (0..IDS).chain([u64::MAX - 1, u64::MAX]).collect();
    let found = patiently(|| core.get(NAME, ids.clone(), true, true)).await;
    for (id, found) in ids.into_iter().zip(found) {
        let model = model.borrow();
        let expected = model.documents.get(&id);
        assert_eq!(found.is_some(), expected.is_some(), "id {id}");
        let Some((found, expected)) = found.zip(expected) else { continue };
        assert_eq!(found.version, expected.version, "version of id {id}");
        let tokens: Vec<(usize, Vec<f32>)> = expected.tokens.iter().cloned().enumerate().collect();
        assert_eq!(found.vectors, tokens, "tokens of id {id}");
        let row = PayloadRow::verify(&found.row).expect("a stored row is whole");
        assert_eq!(row.get("tag", 0), Some(ValueRef::Int(expected.tag)), "tag of id {id}");
        assert_eq!(row.sparse().collect::<Vec<_>>(), expected.sparse, "sparse vector of id {id}");
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

async fn life(sim: Sim, disk: Rc<SimDisk>, model: Shared, config: MultiVectorConfig) {
    let random = sim.random().fork();
    let node = open(&sim, &disk, 1 + random.index(2), options(&random)).await;
    let core = node.cores[random.index(node.cores.len())].clone();
    if random.chance(1, 10) {
        // The index of tokens is dropped with its collection, also if the node crashes in between.
        patiently(|| core.drop_collection(NAME, Some(Family::MultiVector))).await;
        *model.borrow_mut() = Model { code: config.tokens.token_code, ..Model::default() };
    }
    loop {
        match core.create_collection(NAME, config.clone()).await {
            Ok(()) | Err(OpError::CollectionExists(_)) => break,
            Err(OpError::Busy(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(core.collections().unwrap()[0].damage, None);
    assert_eq!(core.config(NAME).unwrap().multi_vector(), Some(&config));
    assert_eq!(core.collections().unwrap().len(), 1, "the index is none of the collections");
    let check = || {
        let pin = core.ctx().pin();
        let uid = core.node().catalog.load(&pin).by_name[NAME].uid;
        drop(pin);
        node.cores.iter().for_each(|core| core.collections.check_tokens(uid));
    };
    settle(&core, &model).await;
    check();
    compare(&core, &model).await;
    if model.borrow().documents.is_empty() && random.chance(2, 3) {
        if !build(&sim, &disk, &core, &random, &model).await {
            return;
        }
        check();
        compare(&core, &model).await;
        search(&core, &random, &model).await;
    }
    for _ in 0..random.below(STEPS) {
        step(&sim, &core, &random, &model).await;
    }
    check();
    search(&core, &random, &model).await;
    compare(&core, &model).await;
}

#[test]
fn documents_survive_restarts() {
    let seeds = if std::env::var_os("NIGH_TEST_LONG").is_some() { 3000 } else { 60 };
    for seed in 1..=seeds {
        let random = Random::new(seed);
        let mut disk = SimDisk::new(random.next());
        disk.set_yielding(true);
        let model = Shared::default();
        model.borrow_mut().code = config(seed).tokens.token_code;
        for _ in 0..LIVES {
            let shared = Rc::new(disk);
            println!("seed {seed}");
            super::run(random.next(), |sim| life(sim, shared.clone(), model.clone(), config(seed)));
            Core::set_current(None);
            shared.heal();
            disk = next_life(&shared, &random);
        }
    }
}
