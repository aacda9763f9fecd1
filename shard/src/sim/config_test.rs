//! Changes of configurations in simulation: what was answered is there after a crash, what was refused is not, and neither a bulk build nor a
//! start loses it.

use super::node::{next_life, node_options, open, patiently};
use super::{Random, Sim};
use crate::core::Core;
use crate::disk::{Calls, Failure, SimDisk};
use crate::error::OpError;
use crate::family::{CollectionConfig, ConfigChange, Family, NamedChange, tokens_of};
use crate::node::NodeOptions;
use crate::points::{NamedVectors, PointFields, Vectors, WriteBatch};
use nigh_engine::collection::config_keys::{Key, Settings, Value};
use nigh_engine::collection::{
    DenseConfig, EncodingConfig, FirstStage, MultiVectorConfig, NamedConfig, NamedSpace, Quantizer,
    WriteError, WriteMode,
};
use nigh_engine::distance::Metric;
use std::cell::RefCell;
use std::rc::Rc;

const NAMES: [&str; 4] = ["dense", "acme/named", "tokens", "encodings"];
const DIM: usize = 2;

fn dense() -> DenseConfig {
    DenseConfig { quant: Quantizer::Sq8, ..DenseConfig::new(DIM, Metric::L2) }
}

fn configs() -> [CollectionConfig; 4] {
    let space = |name: &str| NamedSpace::new(name, dense());
    let first_stage = FirstStage::Encodings(EncodingConfig::default());
    [
        dense().into(),
        NamedConfig::new(vec![space("a"), space("b")], vec!["s".to_owned()]).into(),
        MultiVectorConfig::new(dense()).into(),
        MultiVectorConfig::new(DenseConfig { first_stage, ..dense() }).into(),
    ]
}

fn settings(values: &[(Key, u64)]) -> Settings {
    let mut settings = Settings::default();
    values.iter().for_each(|(key, number)| settings.put(*key, Value::Int((*number).into())));
    settings
}

fn random_change(random: &Random, family: Family) -> ConfigChange {
    let some = || {
        let keys: Vec<Key> = Key::live_of(family).collect();
        let first = random.index(keys.len());
        let values: Vec<(Key, u64)> = keys[first..].iter().map(|key| (*key, 1 + random.below(500))).collect();
        settings(&values)
    };
    match family {
        Family::Dense => ConfigChange::Dense(some()),
        Family::MultiVector => ConfigChange::MultiVector(some()),
        Family::Named => {
            let spaces = ["a", "b"].into_iter().filter(|space| *space == "b" || random.chance(1, 2));
            let spaces: Vec<_> = spaces.map(|space| (space.to_owned(), some())).collect();
            let quotas = [(Key::MaxVectors, random.below(50)), (Key::MaxBytes, random.below(9000))];
            let whole = settings(&quotas[..random.index(3)]);
            ConfigChange::Named(NamedChange { whole, spaces })
        }
    }
}

fn changed_spaces(spaces: Vec<(String, Settings)>) -> ConfigChange {
    ConfigChange::Named(NamedChange { spaces, ..NamedChange::default() })
}

fn served(core: &Core, name: &str) -> CollectionConfig {
    (*core.config(name).expect("it serves")).clone()
}

/// What may be there: first what was answered last.
type Possible = Rc<RefCell<[Vec<CollectionConfig>; 4]>>;

/// One life: what may be there is checked, then changes until its end.
async fn life(sim: Sim, disk: Rc<SimDisk>, possible: Possible) {
    let random = sim.random().fork();
    let count = 1 + random.index(2);
    let options = NodeOptions { segment_bytes: 4096 * 8, log_bytes_soft: 4096 * 16, ..node_options() };
    let node = open(&sim, &disk, count, options).await;
    let core = node.cores[0].clone();
    for (place, name) in NAMES.into_iter().enumerate() {
        if core.ctx.handle(name).is_err() {
            patiently(|| core.create_collection(name, configs()[place].clone())).await;
        }
        let found = served(&core, name);
        assert!(possible.borrow()[place].contains(&found), "{name}: found {found:?}, possible {possible:?}");
        let tokens = core.ctx.handle(name).unwrap().tokens.get().cloned();
        if let (Some(tokens), Some(config)) = (tokens, found.multi_vector()) {
            let index = tokens.config(&core.pin()).dense().cloned();
            assert_eq!(index.as_ref(), Some(&config.index()), "the index uses the file of its collection");
        }
        possible.borrow_mut()[place] = vec![found];
    }
    let steps = random.below(12);
    let worker = async {
        for _ in 0..steps {
            let place = random.index(NAMES.len());
            let before = possible.borrow()[place][0].clone();
            let change = random_change(&random, before.family());
            let after = change.applied_to(&before).expect("its family").expect("it is valid");
            if random.chance(1, 3) {
                let calls = [Calls::NameSync, Calls::Other, Calls::Sync, Calls::Write][random.index(4)];
                let failure = if random.chance(1, 4) { Failure::NoSpace } else { Failure::Io };
                disk.fail(calls, random.below(3), failure);
            }
            possible.borrow_mut()[place].push(after.clone());
            let any = node.cores[random.index(count)].clone();
            match any.change_config(NAMES[place], change).await {
                Ok(answered) => {
                    assert_eq!(*answered, after);
                    possible.borrow_mut()[place] = vec![after.clone()];
                    assert!(
                        node.cores.iter().all(|core| served(core, NAMES[place]) == after),
                        "on every core"
                    );
                }
                Err(error) => {
                    assert_eq!(served(&core, NAMES[place]), before, "a refused change changes nothing");
                    if !error.to_string().contains("a restart may find it done") {
                        possible.borrow_mut()[place] = vec![before];
                    }
                }
            }
            disk.heal();
        }
    };
    // Some lives end in the middle of a change.
    let end = sim.sleep_us(random.below(2_000));
    futures_lite::future::or(worker, end).await;
}

#[test]
fn answered_changes_survive_crashes_in_simulation() {
    for seed in 1..150 {
        let random = Random::new(seed);
        let mut disk = SimDisk::new(random.next());
        disk.set_yielding(true);
        let possible: Possible = Rc::new(RefCell::new(configs().map(|config| vec![config])));
        for _ in 0..4 {
            let shared = Rc::new(disk);
            super::run(random.next(), |sim| life(sim, shared.clone(), possible.clone()));
            Core::set_current(None);
            shared.heal();
            disk = next_life(&shared, &random);
        }
    }
}

fn batch(mode: WriteMode, ids: std::ops::Range<u64>) -> WriteBatch {
    let vectors = Vectors::Native(ids.clone().flat_map(|id| [id as f32 + 0.5; DIM]).collect());
    let point = |id| PointFields { id, row: Vec::new(), ttl_ms: 0, expected_version: None };
    WriteBatch { mode, dim: DIM, vectors, points: ids.map(point).collect() }
}

/// Whether one more point is refused by a quota; the calls that the mesh refuses are repeated.
async fn refused(core: &Rc<Core>, id: u64) -> Option<WriteError> {
    loop {
        match core.write("dense", batch(WriteMode::Upsert, id..id + 1)).await.map_err(|stopped| stopped.error)
        {
            Ok(_) => return None,
            Err(OpError::Busy(_)) => {}
            Err(OpError::Write(error)) => return Some(error),
            Err(other) => panic!("{other}"),
        }
    }
}

async fn change(core: &Rc<Core>, values: &[(Key, u64)]) {
    patiently(|| core.change_config("dense", ConfigChange::Dense(settings(values)))).await;
}

#[test]
fn quotas_hold_at_once_and_after_a_restart() {
    let disk = Rc::new(SimDisk::new(1));
    for life in 0..2 {
        let disk = disk.clone();
        super::run(life + 1, |sim| async move {
            let node = open(&sim, &disk, 2, node_options()).await;
            let core = node.cores[1].clone();
            if life == 0 {
                patiently(|| core.create_collection("dense", dense())).await;
                core.write("dense", batch(WriteMode::Insert, 0..20)).await.unwrap();
                change(&core, &[(Key::MaxVectors, 7)]).await;
            }
            assert_eq!(refused(&core, 20).await, Some(WriteError::Full));
            assert_eq!(refused(&core, 3).await, None, "what is there is replaced");
            assert_eq!(core.count("dense", None).await.unwrap(), 20, "and stays");
            if life == 0 {
                return;
            }
            change(&core, &[(Key::MaxVectors, 21)]).await;
            assert_eq!(refused(&core, 20).await, None);
            assert_eq!(refused(&core, 21).await, Some(WriteError::Full));
            change(&core, &[(Key::MaxVectors, 0), (Key::MaxBytes, 22 * dense().quota_bytes_per_point())])
                .await;
            assert_eq!(refused(&core, 21).await, None);
            assert_eq!(refused(&core, 22).await, Some(WriteError::Full));
            change(&core, &[(Key::MaxBytes, 0), (Key::MaxInsertsPerSecond, 2)]).await;
            assert_eq!(refused(&core, 22).await, None);
            assert_eq!(refused(&core, 23).await, None);
            assert_eq!(refused(&core, 24).await, Some(WriteError::RateLimited));
            change(&core, &[(Key::MaxInsertsPerSecond, 0)]).await;
            assert_eq!(refused(&core, 24).await, None);
        });
        Core::set_current(None);
    }
}

#[test]
fn a_bulk_build_goes_by_what_changed_while_it_ran() {
    const STAGED: u64 = 60;
    let disk = SimDisk::new(1);
    disk.set_yielding(true);
    let disk = Rc::new(disk);
    super::run(1, |sim| async move {
        let node = open(&sim, &disk, 1, node_options()).await;
        let core = node.cores[0].clone();
        patiently(|| core.create_collection("dense", dense())).await;
        patiently(|| core.stage("dense", batch(WriteMode::Insert, 0..STAGED))).await;
        core.build("dense", 1, false).await.unwrap().expect("it runs");
        let owned = core.collections.all_owned().pop().expect("one collection");
        while owned.aside_bytes.get() == 0 {
            sim.sleep_us(1).await;
        }
        assert_eq!(core.count("dense", None).await.unwrap(), 0, "it still runs");
        change(&core, &[(Key::MaxVectors, 5), (Key::EfSearch, 99)]).await;
        while core.count("dense", None).await.unwrap() == 0 {
            sim.sleep_us(50).await;
        }
        assert_eq!(core.count("dense", None).await.unwrap(), STAGED);
        assert_eq!(refused(&core, STAGED).await, Some(WriteError::Full), "the writer that was filled aside");
        let config = served(&core, "dense");
        assert_eq!(config.dense().map(|config| (config.ef_search, config.max_vectors)), Some((99, 5)));
    });
}

#[test]
fn changes_are_refused_in_the_terms_of_the_caller() {
    super::run(1, |sim| async move {
        let disk = Rc::new(SimDisk::new(1));
        let node = open(&sim, &disk, 1, node_options()).await;
        let core = node.cores[0].clone();
        for (name, config) in NAMES.into_iter().zip(configs()) {
            patiently(|| core.create_collection(name, config.clone())).await;
        }
        let dense = |values: &[(Key, u64)]| ConfigChange::Dense(settings(values));
        let spaces = |name: &str| changed_spaces(vec![(name.to_owned(), settings(&[(Key::EfSearch, 9)]))]);
        let wide = &[(Key::EfSearch, 1_048_577)];
        let all = "ef_search, rescore_factor, max_vectors, max_bytes, max_inserts_per_second, max_ef_search";
        for (name, change, text) in [
            ("none", dense(&[(Key::EfSearch, 9)]), "unknown collection \"none\""),
            ("a/b/c", dense(&[(Key::EfSearch, 9)]), "unknown collection"),
            ("tokens", dense(&[(Key::EfSearch, 9)]), "unknown collection \"tokens\""),
            ("dense", spaces("a"), "unknown collection \"dense\""),
            ("dense", dense(wide), "invalid ef_search: it must be at most 1048576, found 1048577"),
            ("dense", dense(&[(Key::Dim, 2)]), "invalid dim: it cannot be changed"),
            ("dense", dense(&[]), all),
            (
                "acme/named",
                changed_spaces(vec![]),
                "the change is empty; it can have ef_search, rescore_factor, max_ef_search for a space, and max_vectors, max_bytes, max_inserts_per_second for the \
                 collection",
            ),
            (
                "acme/named",
                ConfigChange::Named(NamedChange { whole: settings(&[(Key::K1, 1)]), spaces: vec![] }),
                "invalid full_text.k1: it cannot be changed",
            ),
            (
                "tokens",
                ConfigChange::MultiVector(settings(&[(Key::FullText, 1)])),
                "invalid full_text: it cannot",
            ),
            (
                "acme/named",
                changed_spaces(vec![("a".into(), settings(&[]))]),
                "the change of space \"a\" names no key",
            ),
            ("acme/named", spaces("s"), "space \"s\" is sparse"),
            (
                "acme/named",
                spaces("c"),
                "unknown vector space \"c\"; the dense spaces of the collection are a, b",
            ),
            ("tokens", ConfigChange::MultiVector(settings(wide)), "at most 1048576"),
        ] {
            let refused = core.change_config(name, change).await.expect_err(name).to_string();
            assert!(refused.contains(text), "{name}: {refused}");
        }
        for (name, config) in NAMES.into_iter().zip(configs()) {
            assert_eq!(served(&core, name), config);
            let index = core.collections.owned(tokens_of(core.ctx.handle(name).unwrap().uid));
            assert_eq!(index.is_some(), ["tokens", "encodings"].contains(&name));
        }
        // What already holds is no write.
        let (calls, same) = (disk.calls(Calls::Any), core.config("dense").unwrap());
        assert_eq!(core.change_config("dense", dense(&[(Key::EfSearch, 64)])).await.unwrap(), same);
        assert_eq!(disk.calls(Calls::Any), calls);
    });
}

/// Documents are written and found while the index of their tokens goes by another configuration.
#[test]
fn the_index_of_tokens_is_changed_with_its_collection() {
    super::run(1, |sim| async move {
        let node = open(&sim, &Rc::new(SimDisk::new(1)), 2, node_options()).await;
        let core = node.cores[0].clone();
        patiently(|| core.create_collection("tokens", MultiVectorConfig::new(dense()))).await;
        let wider = || ConfigChange::MultiVector(settings(&[(Key::EfSearch, 9), (Key::RescoreFactor, 5)]));
        patiently(|| core.change_config("tokens", wider())).await;
        let handle = core.ctx.handle("tokens").unwrap();
        let tokens = handle.tokens.get().expect("it has one").config(&core.pin()).dense().cloned();
        assert_eq!(tokens.map(|config| (config.ef_search, config.rescore_factor)), Some((9, 5)));
        let vectors = NamedVectors { tokens: vec![vec![1.0, 2.0]; 3], ..NamedVectors::default() };
        let point = PointFields { id: 1, row: Vec::new(), ttl_ms: 0, expected_version: None };
        let batch = || WriteBatch {
            mode: WriteMode::Upsert,
            dim: 0,
            vectors: Vectors::Named(vec![vectors.clone()]),
            points: vec![point.clone()],
        };
        patiently(|| async { core.write("tokens", batch()).await.map_err(|stopped| stopped.error) }).await;
        assert_eq!(core.count("tokens", None).await.unwrap(), 1);
    });
}

/// Quotas of collections of named spaces and of multi-vector collections are enforced after creation, after a change and after a restart.
#[test]
fn quotas_of_named_spaces_and_of_documents_hold() {
    let mut named = NamedConfig::new(vec![NamedSpace::new("a", dense())], vec![]);
    named.whole.max_bytes = 2 * named.quota_bytes_per_point();
    let mut tokens = MultiVectorConfig::new(dense());
    (tokens.whole.max_vectors, tokens.whole.max_bytes) = (3, tokens.quota_bytes(2, 5));
    let disk = Rc::new(SimDisk::new(1));
    for life in 0..2 {
        let (disk, named, tokens) = (disk.clone(), named.clone(), tokens.clone());
        super::run(life + 1, |sim| async move {
            let node = open(&sim, &disk, 2, node_options()).await;
            let core = node.cores[1].clone();
            let dim = dense().dim;
            let write = async |name: &str, id: u64, count: usize| {
                let vectors = match name {
                    "named" => NamedVectors { dense: vec![(0, vec![1.0; dim])], ..NamedVectors::default() },
                    _ => NamedVectors { tokens: vec![vec![1.0; dim]; count], ..NamedVectors::default() },
                };
                let point = PointFields { id, row: Vec::new(), ttl_ms: 0, expected_version: None };
                let batch = || WriteBatch {
                    mode: WriteMode::Upsert,
                    dim: 0,
                    vectors: Vectors::Named(vec![vectors.clone()]),
                    points: vec![point.clone()],
                };
                loop {
                    match core.write(name, batch()).await.map_err(|stopped| stopped.error) {
                        Ok(_) => break None,
                        Err(OpError::Busy(_)) => {}
                        Err(OpError::Write(error)) => break Some(error),
                        Err(other) => panic!("{other}"),
                    }
                }
            };
            let full = Some(WriteError::Full);
            if life == 0 {
                patiently(|| core.create_collection("named", named.clone())).await;
                patiently(|| core.create_collection("tokens", tokens.clone())).await;
                assert_eq!(write("named", 0, 0).await, None);
                assert_eq!(write("named", 1, 0).await, None);
                assert_eq!((write("tokens", 0, 4).await, write("tokens", 1, 1).await), (None, None));
            }
            assert_eq!((write("named", 2, 0).await, write("named", 1, 0).await), (full.clone(), None));
            assert_eq!(write("tokens", 2, 1).await, full, "a document more");
            assert_eq!(write("tokens", 1, 2).await, full, "a token more");
            assert_eq!(write("tokens", 1, 1).await, None, "what does not grow is replaced");
            assert_eq!(write("tokens", 0, 4).await, None, "and so are many tokens");
            if life == 0 {
                return;
            }
            let change = async |name: &str, values: &[(Key, u64)]| {
                let values = settings(values);
                let change = match name {
                    "named" => ConfigChange::Named(NamedChange { whole: values, spaces: vec![] }),
                    _ => ConfigChange::MultiVector(values),
                };
                patiently(|| core.change_config(name, change.clone())).await;
            };
            change("named", &[(Key::MaxBytes, 0), (Key::MaxVectors, 3)]).await;
            assert_eq!((write("named", 2, 0).await, write("named", 3, 0).await), (None, full.clone()));
            change("tokens", &[(Key::MaxBytes, tokens.quota_bytes(3, 9))]).await;
            assert_eq!((write("tokens", 2, 5).await, write("tokens", 2, 4).await), (full.clone(), None));
            change("tokens", &[(Key::MaxBytes, 0)]).await;
            assert_eq!(write("tokens", 3, 1).await, full, "a fourth document");
            assert_eq!(write("tokens", 2, 50).await, None);
            assert!(patiently(|| core.delete("tokens", 0, None)).await);
            assert_eq!(write("tokens", 3, 1).await, None);
        });
        Core::set_current(None);
    }
}
