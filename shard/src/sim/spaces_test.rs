//! Spaces of live collections come and go in simulation, between writes, images, restarts and crashes, some of them in the middle of a change.
//! What was acknowledged is there after a restart, as a map beside it has it, and a change that was interrupted is there or is not, as a whole.

use super::node::{next_life, node_options, open, patiently};
use super::{Random, Sim};
use crate::core::{Core, QueryRequest, Shown, SpaceChange};
use crate::disk::{Calls, Failure, SimDisk};
use crate::error::OpError;
use crate::node::NodeOptions;
use crate::points::{NamedVectors, PointFields, Vectors, VectorsChange, WriteBatch, Written};
use nigh_engine::collection::{
    DenseConfig, IndexType, IvfConfig, NamedConfig, NamedSpace, Quantizer, SPACES_MAX, WriteMode,
};
use nigh_engine::distance::Metric;
use nigh_engine::payload::PayloadRow;
use nigh_engine::quantizer::Quantization;
use nigh_engine::query::{Combine, LaneQuery, Leaf, Method, QueryOptions, Source};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const NAME: &str = "acme/named";
const IDS: u64 = 30;
const LIVES: u64 = 6;
const STEPS: u64 = 120;
/// Names that spaces have, one after the other.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "s"];

/// A space of one of several kinds.
fn kind(random: &Random) -> DenseConfig {
    let dim = 2 + random.index(4);
    let base = DenseConfig { m: 4, ef_construction: 32, ..DenseConfig::new(dim, Metric::L2) };
    match random.below(3) {
        0 => base,
        1 => {
            let ivf = IvfConfig { train_threshold: 10, nprobe: 2, ..IvfConfig::default() };
            DenseConfig { index: IndexType::Ivf(ivf), ..base }
        }
        _ => {
            let quant = Quantizer::Trained(Quantization::Sign);
            DenseConfig { quant, train_threshold: 12, ..base }
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Stored {
    vectors: BTreeMap<String, Vec<f32>>,
    sparse: BTreeMap<String, Vec<(u32, f32)>>,
    version: u64,
}

#[derive(Default)]
struct Model {
    points: BTreeMap<u64, Stored>,
    given: BTreeMap<u64, u64>,
    /// The configuration of a dense space, and `None` for a sparse one.
    spaces: BTreeMap<String, Option<DenseConfig>>,
    /// A change that nobody waited for before the node was killed.
    open: Option<SpaceChange>,
}

impl Model {
    fn change(&mut self, change: SpaceChange) {
        match change {
            SpaceChange::Add { name, config } => _ = self.spaces.insert(name, Some(*config)),
            SpaceChange::AddSparse { name } => _ = self.spaces.insert(name, None),
            SpaceChange::Drop { name } => {
                self.spaces.remove(&name);
                for point in self.points.values_mut() {
                    point.vectors.remove(&name);
                    point.sparse.remove(&name);
                }
            }
        }
    }
}

type Shared = Rc<RefCell<Model>>;

fn random_vector(random: &Random, dim: usize) -> Vec<f32> {
    (0..dim).map(|_| random.below(2001) as f32 / 100.0 - 10.0).collect()
}

fn config_of(core: &Rc<Core>) -> NamedConfig {
    core.config(NAME).unwrap().named().unwrap().clone()
}

/// Components in some of a few dimensions, at least in one.
fn random_sparse(random: &Random) -> Vec<(u32, f32)> {
    let first = random.below(4) as u32;
    (first..6).filter(|at| *at == first || random.chance(1, 2)).map(|at| (at, 1.0 + at as f32)).collect()
}

/// Vectors for some of the spaces that there are, by their numbers, and by their names as a point has them.
fn some_vectors(core: &Rc<Core>, random: &Random) -> (NamedVectors, Stored) {
    let (mut numbered, mut named) = (NamedVectors::default(), Stored::default());
    let config = config_of(core);
    for (number, space) in config.spaces.iter().enumerate() {
        if !space.is_dropped && random.chance(1, 2) {
            let vector = random_vector(random, space.config.dim);
            numbered.dense.push((number, vector.clone()));
            named.vectors.insert(space.name.clone(), vector);
        }
    }
    for (number, space) in config.sparse_spaces.iter().enumerate() {
        if !space.is_dropped && random.chance(1, 2) {
            let vector = random_sparse(random);
            numbered.sparse.push((number, vector.clone()));
            named.sparse.insert(space.name.clone(), vector);
        }
    }
    (numbered, named)
}

fn random_change(random: &Random) -> SpaceChange {
    let name = NAMES[random.index(NAMES.len())].to_owned();
    match random.below(4) {
        0 => SpaceChange::Add { name, config: Box::new(kind(random)) },
        1 => SpaceChange::AddSparse { name },
        _ => SpaceChange::Drop { name },
    }
}

async fn write(core: &Rc<Core>, random: &Random, model: &Shared) {
    let id = random.below(IDS);
    let (vectors, named) = some_vectors(core, random);
    let is_there = model.borrow().points.contains_key(&id);
    let version = if is_there && random.chance(1, 3) {
        let change = VectorsChange { set: vectors, removed: Vec::new() };
        patiently(|| core.change_vectors(NAME, id, change.clone(), None)).await
    } else {
        let fields = PointFields { id, row: Vec::new(), ttl_ms: 0, expected_version: None };
        let batch = || WriteBatch {
            mode: WriteMode::Upsert,
            dim: 0,
            vectors: Vectors::Named(vec![vectors.clone()]),
            points: vec![fields.clone()],
        };
        let written = patiently(|| async { core.write(NAME, batch()).await.map_err(|e| e.error) }).await;
        let [Written::Ok { version }] = written[..] else { panic!("{written:?}") };
        version
    };
    let mut model = model.borrow_mut();
    assert_eq!(version, model.given.get(&id).copied().unwrap_or(0) + 1, "id {id}");
    model.given.insert(id, version);
    let point = model.points.entry(id).or_default();
    point.vectors.extend(named.vectors);
    point.sparse.extend(named.sparse);
    point.version = version;
}

async fn change(core: &Rc<Core>, random: &Random, model: &Shared) {
    let change = random_change(random);
    let known = |name: &str| model.borrow().spaces.contains_key(name);
    let before = config_of(core);
    let changed = loop {
        match core.change_spaces(NAME, change.clone()).await {
            Err(OpError::Busy(_)) => {}
            done => break done,
        }
    };
    match (changed, &change) {
        (Ok(()), _) => model.borrow_mut().change(change),
        (Err(OpError::SpaceExists(_)), SpaceChange::Add { name, .. } | SpaceChange::AddSparse { name }) => {
            assert!(known(name));
        }
        (Err(OpError::UnknownSpace(_)), SpaceChange::Drop { name }) => assert!(!known(name)),
        (Err(OpError::Conflict(why)), SpaceChange::Drop { .. }) => {
            assert!(before.names().count() == 1 && why.contains("the only one"), "{why}");
        }
        (Err(OpError::Conflict(why)), _) => {
            let given = before.spaces.len() + before.sparse_spaces.len();
            assert!(given == SPACES_MAX && why.contains("at most 64"), "{why}");
        }
        (Err(other), _) => panic!("{change:?}: {other}"),
    }
}

/// A write of a space that is being dropped is carried out before that or refused by name.
async fn race(sim: &Sim, core: &Rc<Core>, random: &Random, model: &Shared) {
    let config = config_of(core);
    let names: Vec<&str> = config.names().collect();
    if names.len() == 1 {
        return;
    }
    let raced = names[random.index(names.len())];
    let done = Rc::new(RefCell::new(None));
    let (dropping, told, name) = (core.clone(), done.clone(), raced.to_owned());
    sim.spawn(async move {
        let change = || SpaceChange::Drop { name: name.clone() };
        patiently(|| dropping.change_spaces(NAME, change())).await;
        *told.borrow_mut() = Some(());
    });
    let refusal = format!("the vector space \"{raced}\" does not exist");
    let mut refused = 0;
    while refused < 3 {
        let id = random.below(IDS);
        let mut vectors = NamedVectors::default();
        let (source, space) = match config.number_of(raced) {
            Some(number) => {
                let vector = random_vector(random, config.spaces[number].config.dim);
                vectors.dense.push((number, vector.clone()));
                (Source::Dense(vector), number)
            }
            None => {
                let number = config.sparse_number_of(raced).expect("a space that is not dense is sparse");
                let vector = random_sparse(random);
                vectors.sparse.push((number, vector.clone()));
                (Source::Sparse(vector), number)
            }
        };
        let vectors = Vectors::Named(vec![vectors]);
        let fields = PointFields { id, row: Vec::new(), ttl_ms: 0, expected_version: None };
        let batch = WriteBatch { mode: WriteMode::Upsert, dim: 0, vectors, points: vec![fields] };
        match core.write(NAME, batch).await.map_err(|stopped| stopped.error) {
            Ok(written) => {
                let [Written::Ok { version }] = written[..] else { panic!("{written:?}") };
                let mut model = model.borrow_mut();
                model.given.insert(id, version);
                model.points.entry(id).or_default().version = version;
            }
            Err(OpError::Busy(_)) => {}
            Err(OpError::BadRequest(why)) => {
                assert_eq!(why, refusal);
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
        let lane = Leaf { source, space, pool: 10, filter: None };
        match query(core, lane).await {
            Ok(_) | Err(OpError::Busy(_)) => {}
            Err(OpError::BadRequest(why)) => {
                assert_eq!(why, refusal);
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
        sim.sleep_us(random.below(2000)).await;
    }
    while done.borrow().is_none() {
        sim.sleep_us(100).await;
    }
    model.borrow_mut().change(SpaceChange::Drop { name: raced.to_owned() });
}

async fn step(sim: &Sim, core: &Rc<Core>, random: &Random, model: &Shared) {
    match random.below(24) {
        0..=13 => write(core, random, model).await,
        14 | 15 => {
            let id = random.below(IDS);
            let deleted = patiently(|| core.delete(NAME, id, None)).await;
            assert_eq!(deleted, model.borrow_mut().points.remove(&id).is_some());
        }
        16 => sim.sleep_us(random.below(50_000)).await,
        17 | 18 => {
            for owned in core.collections.all_owned() {
                core.collections.checkpoint(&owned).await.unwrap();
            }
        }
        19 => compare(core, random, model).await,
        20 if random.chance(1, 3) => race(sim, core, random, model).await,
        _ => change(core, random, model).await,
    }
}

async fn query(core: &Rc<Core>, lane: Leaf) -> Result<Vec<u64>, OpError> {
    let combine = Combine::Fuse(Method::Rrf { c: 0.0 });
    let lanes = LaneQuery { lanes: vec![lane], combine, k: 100, options: QueryOptions::default() };
    let request = QueryRequest { lanes, group: None, shown: Shown::default(), explain: false };
    let outcome = core.query(NAME, request).await?;
    Ok(outcome.answer.into_hits().into_iter().map(|hit| hit.id).collect())
}

/// The configuration, every point, and a search of every space.
async fn compare(core: &Rc<Core>, random: &Random, model: &Shared) {
    let config = config_of(core);
    let dense = config.dense_spaces().map(|space| (space.name.clone(), Some(space.config.clone())));
    let spaces = dense.chain(config.sparse_names().map(|name| (name.to_owned(), None)));
    let spaces: BTreeMap<String, Option<DenseConfig>> = spaces.collect();
    assert_eq!(spaces, model.borrow().spaces);
    let ids: Vec<u64> = (0..IDS).collect();
    let found = patiently(|| core.get(NAME, ids.clone(), true, true)).await;
    for (id, found) in ids.into_iter().zip(found) {
        let expected = model.borrow().points.get(&id).cloned();
        let found = found.map(|found| {
            let named = |(number, vector): (usize, Vec<f32>)| (config.spaces[number].name.clone(), vector);
            let row = PayloadRow::trusted(&found.row);
            let sparse = config.sparse_spaces.iter().enumerate().filter(|(_, space)| !space.is_dropped);
            let sparse =
                sparse.map(|(number, space)| (space.name.clone(), row.sparse_of(number).collect::<Vec<_>>()));
            Stored {
                sparse: sparse.filter(|(_, vector)| !vector.is_empty()).collect(),
                vectors: found.vectors.into_iter().map(named).collect(),
                version: found.version,
            }
        });
        assert_eq!(found, expected, "id {id}");
    }
    for (number, space) in config.spaces.iter().enumerate() {
        let source = Source::Dense(random_vector(random, space.config.dim));
        let lane = Leaf { source, space: number, pool: 100, filter: None };
        if space.is_dropped {
            let refused = query(core, lane).await;
            assert!(matches!(refused, Err(OpError::BadRequest(_) | OpError::Busy(_))), "{refused:?}");
            continue;
        }
        let mut found = patiently(|| query(core, lane.clone())).await;
        found.sort_unstable();
        let points = &model.borrow().points;
        let holds = |point: &Stored| point.vectors.contains_key(&space.name);
        let expected: Vec<u64> = points.iter().filter(|(_, point)| holds(point)).map(|(id, _)| *id).collect();
        assert_eq!(found, expected, "space {}", space.name);
    }
    for (number, space) in config.sparse_spaces.iter().enumerate() {
        let all = (0..6).map(|at| (at, 1.0)).collect();
        let lane = Leaf { source: Source::Sparse(all), space: number, pool: 100, filter: None };
        if space.is_dropped {
            let refused = query(core, lane).await;
            assert!(matches!(refused, Err(OpError::BadRequest(_) | OpError::Busy(_))), "{refused:?}");
            continue;
        }
        let mut found = patiently(|| query(core, lane.clone())).await;
        found.sort_unstable();
        let points = &model.borrow().points;
        let holds = |point: &Stored| point.sparse.contains_key(&space.name);
        let expected: Vec<u64> = points.iter().filter(|(_, point)| holds(point)).map(|(id, _)| *id).collect();
        assert_eq!(found, expected, "sparse space {}", space.name);
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
    if model.borrow().spaces.is_empty() {
        let spaces = ["a", "b"].map(|name| NamedSpace::new(name, kind(&random)));
        model.borrow_mut().spaces =
            spaces.iter().map(|space| (space.name.clone(), Some(space.config.clone()))).collect();
        model.borrow_mut().spaces.insert("s".to_owned(), None);
        let config = NamedConfig::new(spaces.to_vec(), vec!["s".to_owned()]);
        patiently(|| core.create_collection(NAME, config.clone())).await;
    }
    let interrupted = model.borrow_mut().open.take();
    if let Some(change) = interrupted {
        let config = config_of(&core);
        let happened = match &change {
            SpaceChange::Add { name, config: added } => {
                config.number_of(name).is_some_and(|number| config.spaces[number].config == **added)
            }
            SpaceChange::AddSparse { name } => config.sparse_number_of(name).is_some(),
            SpaceChange::Drop { name } => config.names().all(|other| other != name),
        };
        let possible = match &change {
            SpaceChange::Add { name, .. } | SpaceChange::AddSparse { name } => {
                !model.borrow().spaces.contains_key(name)
            }
            SpaceChange::Drop { name } => model.borrow().spaces.contains_key(name),
        };
        if happened && possible {
            model.borrow_mut().change(change);
        }
    }
    compare(&core, &random, &model).await;
    for _ in 0..random.below(STEPS) {
        step(&sim, &core, &random, &model).await;
    }
    compare(&core, &random, &model).await;
    if random.chance(1, 2) {
        let (change, changing) = (random_change(&random), core.clone());
        model.borrow_mut().open = Some(change.clone());
        sim.spawn(async move { drop(changing.change_spaces(NAME, change).await) });
        sim.sleep_us(random.below(3000)).await;
    }
}

#[test]
fn spaces_that_come_and_go_survive_restarts() {
    let seeds = if std::env::var_os("NIGH_TEST_LONG").is_some() { 3000 } else { 80 };
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

/// One change on a disk that fails from some call on, and a write after it. What the collection has then is what a start finds.
async fn change_on_a_failing_disk(
    sim: Sim,
    disk: Rc<SimDisk>,
    skip: u64,
    adds: bool,
    is_sparse: bool,
    end: Rc<RefCell<Ending>>,
) {
    let node = open(&sim, &disk, 1, node_options()).await;
    let core = node.cores[0].clone();
    let base = DenseConfig::new(2, Metric::L2);
    let spaces = ["a", "b"].map(|name| NamedSpace::new(name, base.clone()));
    let sparse = ["s", "t"].map(str::to_owned);
    core.create_collection(NAME, NamedConfig::new(spaces.to_vec(), sparse.to_vec())).await.unwrap();
    disk.fail(Calls::Any, skip, Failure::Io);
    let name = changed_space(adds, is_sparse).to_owned();
    let change = match (adds, is_sparse) {
        (true, false) => SpaceChange::Add { name, config: Box::new(base) },
        (true, true) => SpaceChange::AddSparse { name },
        (false, _) => SpaceChange::Drop { name },
    };
    let changed = core.change_spaces(NAME, change).await;
    disk.heal();
    let config = config_of(&core);
    let number = if adds { 2 } else { 1 };
    let vectors = match is_sparse {
        false => NamedVectors { dense: vec![(number, vec![1.0, 2.0])], ..NamedVectors::default() },
        true => NamedVectors { sparse: vec![(number, vec![(7, 2.0)])], ..NamedVectors::default() },
    };
    let vectors = Vectors::Named(vec![vectors]);
    let fields = PointFields { id: 1, row: Vec::new(), ttl_ms: 0, expected_version: None };
    let batch = WriteBatch { mode: WriteMode::Upsert, dim: 0, vectors, points: vec![fields] };
    let written = core.write(NAME, batch).await;
    let has = config.names().any(|name| name == changed_space(adds, is_sparse));
    assert!(has || written.is_err(), "{written:?}");
    if changed.is_ok() {
        assert_eq!(has, adds);
    }
    *end.borrow_mut() =
        Ending { is_certain: changed.is_ok() || written.is_ok(), has, is_written: written.is_ok() };
}

/// The name of the space that is added or dropped.
fn changed_space(adds: bool, is_sparse: bool) -> &'static str {
    match (adds, is_sparse) {
        (true, false) => "c",
        (false, false) => "b",
        (true, true) => "u",
        (false, true) => "t",
    }
}

/// What a life has ended with.
#[derive(Clone, Copy, Debug, Default)]
struct Ending {
    /// A start finds what the life has ended with.
    is_certain: bool,
    /// The space of the change is there.
    has: bool,
    /// A vector in it was acknowledged.
    is_written: bool,
}

#[test]
fn a_change_that_the_disk_refuses_leaves_a_whole_collection() {
    let mut refused = 0;
    let kinds = [(false, false), (false, true), (true, false), (true, true)];
    for (skip, (adds, is_sparse)) in (0..30).flat_map(|skip| kinds.map(|kind| (skip, kind))) {
        let disk = Rc::new(SimDisk::new(skip + 1));
        let end = Rc::new(RefCell::new(Ending::default()));
        let (shared, ending) = (disk.clone(), end.clone());
        super::run(skip + 7, |sim| change_on_a_failing_disk(sim, shared, skip, adds, is_sparse, ending));
        Core::set_current(None);
        let end = *end.borrow();
        refused += u32::from(end.has != adds);
        let disk = Rc::new(disk.crash_clone(skip));
        super::run(skip + 8, |sim| async move {
            let node = open(&sim, &disk, 1, node_options()).await;
            let core = &node.cores[0];
            let config = config_of(core);
            let has = config.names().any(|name| name == changed_space(adds, is_sparse));
            if end.is_certain {
                assert_eq!(has, end.has, "skip {skip}, adds {adds}, sparse {is_sparse}");
            }
            let found = core.get(NAME, vec![1], true, true).await.unwrap().pop().flatten();
            if end.is_written {
                let found = found.unwrap();
                let number = if adds { 2 } else { 1 };
                let sparse = PayloadRow::trusted(&found.row).sparse_of(number).len();
                let expected = if is_sparse { (0, 1) } else { (1, 0) };
                assert_eq!((found.vectors.len(), sparse), expected, "skip {skip}, adds {adds}");
            }
        });
        Core::set_current(None);
    }
    assert!(refused > 3, "{refused} changes were refused");
}
