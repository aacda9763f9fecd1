//! Aliases, definitions of key indexes and API keys in backups, in simulation: on failing stores, by processes that are killed, and into nodes of other numbers
//! of cores and shards. A restore brings back what there was at the moment of the run, or changes nothing.

use super::node::{next_life, node_options, open, patiently, until_not_busy};
use super::{Random, Sim};
use crate::backup::{
    ApiKeysText, BackupOptions, BackupTarget, Fault, MemoryStore, NodePart, Requests, Store, Stores,
};
use crate::core::{AliasChange, Core};
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::kv::KeysOptions;
use crate::kv::indexes::IndexDefinition;
use crate::node::NodeOptions;
use nigh_engine::collection::DenseConfig;
use nigh_engine::distance::Metric;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// The parts that the node restores itself.
const PARTS: [NodePart; 2] = [NodePart::Aliases, NodePart::KeyIndexes];

const COLLECTIONS: [&str; 3] = ["one", "two", "acme/three"];
const ALIASES: [(&str, &[&str]); 3] =
    [("live", &["one", "two"]), ("next", &["one", "two"]), ("acme/live", &["acme/three"])];

/// All that the parts of a node say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Parts {
    aliases: BTreeMap<String, String>,
    indexes: BTreeMap<String, IndexDefinition>,
}

impl Parts {
    /// `self` with what `from` says of one part.
    fn with(&self, part: NodePart, from: &Parts) -> Parts {
        match part {
            NodePart::Aliases => Parts { aliases: from.aliases.clone(), ..self.clone() },
            NodePart::KeyIndexes => Parts { indexes: from.indexes.clone(), ..self.clone() },
            NodePart::ApiKeys | NodePart::Keys => self.clone(),
        }
    }
}

fn options(store: &MemoryStore, random: &Random) -> NodeOptions {
    let store = store.clone();
    let stores = Stores::new(move || Rc::new(store.clone()) as Rc<dyn Store>);
    let usual = node_options();
    NodeOptions {
        shards: 1 << random.below(5),
        keys: KeysOptions { query: true, ..usual.keys.clone() },
        backup: BackupOptions {
            directory: Some(BackupTarget { stores, prefix: "prod".to_owned() }),
            retention: 3,
            ..BackupOptions::default()
        },
        ..usual
    }
}

async fn read(core: &Rc<Core>) -> Parts {
    let aliases = core.aliases(None).expect("the node is open");
    let indexes = core.keys().key_indexes().await;
    Parts {
        aliases: aliases.into_iter().map(|alias| (alias.alias, alias.collection)).collect(),
        indexes: indexes.into_iter().map(|(index, _)| (index.name.clone(), index)).collect(),
    }
}

async fn create_collections(core: &Rc<Core>) {
    for name in COLLECTIONS {
        patiently(|| core.create_collection(name, DenseConfig::new(2, Metric::L2))).await;
    }
}

/// Changes an alias and an index.
async fn change(core: &Rc<Core>, random: &Random) {
    let (alias, targets) = ALIASES[random.index(ALIASES.len())];
    let alias = alias.to_owned();
    let change = match random.chance(1, 4) {
        true => AliasChange::Delete { alias },
        false => AliasChange::Create { alias, collection: targets[random.index(targets.len())].to_owned() },
    };
    patiently(|| core.change_aliases(vec![change.clone()])).await;
    let index = IndexDefinition {
        name: ["a", "b", "c"][random.index(3)].to_owned(),
        prefix: [&b""[..], b"k", b"k2"][random.index(3)].to_vec(),
        path: "n".to_owned(),
        is_count: false,
    };
    let is_kept = !random.chance(1, 4);
    patiently(|| core.keys().define_key_index(index.clone(), is_kept)).await;
}

/// Makes a backup; its time. There is something of each part.
async fn back_up(core: &Rc<Core>) -> String {
    let run = patiently(|| core.back_up()).await;
    assert_eq!(run.failures, Vec::<String>::new());
    let keys: Vec<&str> = run.parts.iter().filter_map(|done| done.key.as_deref()).collect();
    let time = keys[0].rsplit('/').next().expect("a key has parts").trim_end_matches(".snap");
    assert_eq!(keys, [format!("prod/aliases/{time}.snap"), format!("prod/key-indexes/{time}.snap")]);
    time.to_owned()
}

/// Begins with an alias and an index, so that neither part is empty in the first run.
async fn begin(core: &Rc<Core>) {
    create_collections(core).await;
    // The longest name that an alias can have is one of them.
    let create = |alias: &str| AliasChange::Create { alias: alias.to_owned(), collection: "one".to_owned() };
    let changes = vec![create("live"), create(&"l".repeat(247))];
    patiently(|| core.change_aliases(changes.clone())).await;
    let index =
        IndexDefinition { name: "a".to_owned(), prefix: Vec::new(), path: "n".to_owned(), is_count: false };
    patiently(|| core.keys().define_key_index(index.clone(), true)).await;
}

fn simulate<F: Future<Output = bool> + 'static>(seed: u64, life: impl FnOnce(Sim) -> F + 'static) -> bool {
    let result = super::run(seed, life);
    Core::set_current(None);
    result
}

#[test]
fn parts_are_restored_as_they_were_at_their_run_and_survive_restarts() {
    for seed in 1..=12 {
        let done = simulate(seed, move |sim| async move {
            let (store, random) = (MemoryStore::new(), Random::new(seed));
            let disk = Rc::new(SimDisk::new(seed));
            let node = open(&sim, &disk, 1 + random.index(3), options(&store, &random)).await;
            let core = node.cores[random.index(node.cores.len())].clone();
            // Nothing is stored of what was never there.
            let empty = patiently(|| core.back_up()).await;
            assert_eq!((empty.parts.len(), empty.failures.len()), (0, 0));
            let missing = until_not_busy(|| core.restore_part(NodePart::Aliases, None)).await;
            assert!(matches!(missing, Err(OpError::NoPartSnapshot { .. })), "{missing:?}");
            begin(&core).await;
            let mut runs = Vec::new();
            for _ in 0..4 {
                let state = read(&core).await;
                runs.push((back_up(&core).await, state));
                change(&core, &random).await;
            }
            // Three are kept.
            let (gone, _) = runs.remove(0);
            for part in PARTS {
                let missing = until_not_busy(|| core.restore_part(part, Some(gone.clone()))).await;
                assert!(matches!(missing, Err(OpError::NoPartSnapshot { .. })), "{missing:?}");
            }
            let mut expected = read(&core).await;
            for (time, state) in [&runs[1], &runs[0], &runs[2]] {
                for part in PARTS {
                    let verified = patiently(|| core.verify_part(part, Some(time.clone()))).await;
                    let restored = patiently(|| core.restore_part(part, Some(time.clone()))).await;
                    assert_eq!((restored.key, restored.bytes), (verified.key, verified.bytes));
                    expected = expected.with(part, state);
                    assert_eq!(read(&core).await, expected);
                }
            }
            drop((core, node));
            let disk = Rc::new(next_life(&disk, &random));
            let node = open(&sim, &disk, 1 + random.index(3), options(&store, &random)).await;
            assert_eq!(read(&node.cores[0]).await, expected);
            drop(node);
            // Into an empty directory: the collections have to be there first.
            let fresh = Rc::new(SimDisk::new(seed + 1000));
            let node = open(&sim, &fresh, 1 + random.index(3), options(&store, &random)).await;
            let core = node.cores[0].clone();
            let newest = &runs[2].1;
            if !newest.aliases.is_empty() {
                let refused = until_not_busy(|| core.restore_part(NodePart::Aliases, None)).await;
                assert!(matches!(refused, Err(OpError::BadRequest(_))), "{refused:?}");
                assert_eq!(read(&core).await, Parts::default());
            }
            create_collections(&core).await;
            for part in PARTS {
                patiently(|| core.restore_part(part, None)).await;
            }
            assert_eq!(read(&core).await, *newest);
            true
        });
        assert!(done, "seed {seed}");
    }
}

#[test]
fn a_fault_at_any_request_leaves_parts_as_they_were_or_as_they_are_restored() {
    for fault in
        [Fault::Error, Fault::Broken, Fault::Refused, Fault::Timeout, Fault::HalfBody, Fault::AfterEffect]
    {
        for skip in 0.. {
            let has_more = simulate(skip, move |sim| async move {
                let (store, random) = (MemoryStore::new(), Random::new(skip));
                store.set_page(2);
                let disk = Rc::new(SimDisk::new(skip));
                let node = open(&sim, &disk, 1 + random.index(2), options(&store, &random)).await;
                let core = &node.cores[0];
                begin(core).await;
                let first = read(core).await;
                let time = back_up(core).await;
                change(core, &random).await;
                let second = read(core).await;
                let before = store.requests(Requests::Any);
                store.fail(Requests::Any, skip, fault);
                let run = patiently(|| core.back_up()).await;
                let requests = store.requests(Requests::Any) - before;
                store.heal();
                assert_eq!(store.open_uploads(), 0);
                // What is listed can be read, as a whole, whatever the run has said.
                let (objects, _) = core.backups(1000).await.expect("the store answers");
                for part in PARTS {
                    let prefix = format!("prod/{}/", part.name());
                    for object in objects.iter().filter(|object| object.key.starts_with(&prefix)) {
                        let of = object.key[prefix.len()..].trim_end_matches(".snap").to_owned();
                        let verified = patiently(|| core.verify_part(part, Some(of.clone()))).await;
                        assert_eq!(verified.key, object.key);
                    }
                    let stored =
                        run.parts.iter().any(|done| done.collection == part.name() && done.key.is_some());
                    if stored {
                        patiently(|| core.restore_part(part, None)).await;
                        assert_eq!(read(core).await, second);
                    }
                }
                let mut expected = second;
                for part in PARTS {
                    store.fail(Requests::Any, skip, fault);
                    let restored = until_not_busy(|| core.restore_part(part, Some(time.clone()))).await;
                    store.heal();
                    if restored.is_ok() {
                        expected = expected.with(part, &first);
                    }
                    assert_eq!(read(core).await, expected);
                    patiently(|| core.restore_part(part, Some(time.clone()))).await;
                    expected = expected.with(part, &first);
                    assert_eq!(read(core).await, expected);
                }
                skip < requests
            });
            if !has_more {
                break;
            }
        }
    }
}

#[test]
fn a_kill_in_the_middle_of_a_restore_leaves_one_of_the_two() {
    let mut seen = [0, 0];
    for seed in 1..=60 {
        let found = Rc::new(RefCell::new([0, 0]));
        let of_life = found.clone();
        let done = simulate(seed, move |sim| async move {
            let (store, random) = (MemoryStore::new(), Random::new(seed));
            let disk = Rc::new(SimDisk::new(seed));
            let node = open(&sim, &disk, 1 + random.index(2), options(&store, &random)).await;
            let core = node.cores[0].clone();
            begin(&core).await;
            let first = read(&core).await;
            let time = back_up(&core).await;
            while read(&core).await.aliases == first.aliases || read(&core).await.indexes == first.indexes {
                change(&core, &random).await;
            }
            let second = read(&core).await;
            let part = PARTS[random.index(2)];
            let core2 = core.clone();
            let restore = async move { core2.restore_part(part, Some(time)).await.is_ok() };
            let kill = async {
                // A restore takes some ten microseconds here to some milliseconds: every order of magnitude is drawn as often.
                sim.sleep_us(random.below(1 << random.below(12))).await;
                false
            };
            let was_answered = futures_lite::future::or(restore, kill).await;
            drop((core, node));
            let disk = Rc::new(next_life(&disk, &random));
            let node = open(&sim, &disk, 1 + random.index(3), options(&store, &random)).await;
            let after = read(&node.cores[0]).await;
            let restored = second.with(part, &first);
            assert!(after == restored || (after == second && !was_answered), "{after:?}");
            of_life.borrow_mut()[usize::from(after == restored)] += 1;
            true
        });
        assert!(done, "seed {seed}");
        let found = found.borrow();
        seen = [seen[0] + found[0], seen[1] + found[1]];
    }
    assert!(seen[0] > 0 && seen[1] > 0, "before and after: {seen:?}");
}

#[test]
fn api_keys_are_stored_as_they_are_at_each_run_and_no_fault_alters_them() {
    for fault in [Fault::Error, Fault::Refused, Fault::HalfBody, Fault::AfterEffect] {
        for skip in 0.. {
            let has_more = simulate(skip, move |sim| async move {
                let (store, random) = (MemoryStore::new(), Random::new(skip));
                let disk = Rc::new(SimDisk::new(skip));
                let file = Arc::new(Mutex::new("[]\n".to_owned()));
                let read = file.clone();
                let mut options = options(&store, &random);
                options.backup.api_keys =
                    Some(ApiKeysText::new(move || read.lock().expect("no test panics").clone().into_bytes()));
                let node = open(&sim, &disk, 1 + random.index(3), options).await;
                let core = &node.cores[random.index(node.cores.len())];
                let time_of = |key: &str| {
                    let (of, time) = key.rsplit_once('/').expect("a key has parts");
                    assert_eq!(of, "prod/api-keys");
                    time.trim_end_matches(".snap").to_owned()
                };
                // A registry without API keys is stored as well; the second text is too long to be encoded on a core.
                let texts = ["[]\n".to_owned(), format!("[{}]", "\"ü\",".repeat(30_000))];
                let mut times = Vec::new();
                for text in &texts {
                    *file.lock().expect("no test panics") = text.clone();
                    let run = patiently(|| core.back_up()).await;
                    let keys: Vec<&str> = run.parts.iter().filter_map(|done| done.key.as_deref()).collect();
                    assert_eq!((run.failures.len(), keys.len()), (0, 1), "{run:?}");
                    assert_eq!(run.parts[0].bytes, text.len() as u64);
                    times.push(time_of(keys[0]));
                }
                *file.lock().expect("no test panics") = "changed".to_owned();
                let before = store.requests(Requests::Any);
                store.fail(Requests::Any, skip, fault);
                let read = until_not_busy(|| core.backed_up_api_keys(Some(times[0].clone()))).await;
                let requests = store.requests(Requests::Any) - before;
                store.heal();
                if let Ok((key, text)) = read {
                    assert_eq!((time_of(&key), &text), (times[0].clone(), &texts[0]));
                }
                store.fail(Requests::Any, skip, fault);
                let run = patiently(|| core.back_up()).await;
                store.heal();
                let newest = if run.parts.iter().any(|done| done.key.is_some()) { "changed" } else { "" };
                let (key, text) = patiently(|| core.backed_up_api_keys(None)).await;
                // A run that has said nothing may have stored them all the same.
                assert!(text == "changed" || (newest.is_empty() && text == texts[1]), "{key}");
                let refused = until_not_busy(|| core.restore_part(NodePart::ApiKeys, None)).await;
                assert!(matches!(refused, Err(OpError::BadRequest(_))), "{refused:?}");
                skip < requests + 8
            });
            if !has_more {
                break;
            }
        }
    }
}
