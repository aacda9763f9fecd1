//! The archive of the log in simulation: a directory that is restored to a moment has what the node had at that moment, whatever lives, kills, crashes
//! and failing stores there were before and since.

use super::backup_test::{Contents, IDS, batch, config_of, contents_of, name_of};
use super::keys_test::{Order, carry_out};
use super::node::{begin, next_life, node_options, open, patiently, until_not_busy};
use super::{Random, Sim};
use crate::archive::{ArchiveOptions, RestoreMoment};
use crate::backup::{BackupOptions, BackupTarget, Fault, MemoryStore, NodePart, Requests, Store, Stores};
use crate::core::{AliasChange, Core, RestoreRequest};
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::kv::KeysOptions;
use crate::kv::indexes::IndexDefinition;
use crate::node::NodeOptions;
use nigh_engine::kv::Read;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const COLLECTIONS: usize = 4;
const KEYS: u64 = 12;

fn key_of(n: u64) -> Vec<u8> {
    format!("key-{n}").into_bytes()
}

/// All that a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    collections: BTreeMap<String, Contents>,
    aliases: BTreeMap<String, String>,
    indexes: BTreeMap<String, Vec<u8>>,
    keys: BTreeMap<Vec<u8>, Vec<u8>>,
}

async fn read(core: &Rc<Core>) -> State {
    let mut state = State::default();
    for name in (0..COLLECTIONS).map(name_of) {
        let found = until_not_busy(|| async {
            let _access = core.enter(&name).await?;
            core.get(&name, (0..IDS).collect(), true, true).await
        });
        let found = found.await;
        match found {
            Ok(found) => drop(state.collections.insert(name, contents_of(found))),
            Err(OpError::UnknownCollection(_)) => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
    let aliases = core.aliases(None).expect("the node is open").into_iter();
    state.aliases = aliases.map(|alias| (alias.alias, alias.collection)).collect();
    let indexes = core.keys().key_indexes().await.into_iter();
    state.indexes = indexes.map(|(index, _)| (index.name, index.prefix)).collect();
    for key in (0..KEYS).map(key_of) {
        let (place, mut value) = (core.keys().place_of(&key), Vec::new());
        match core.keys().get(&core.keys().pin(), place, &key, core.unix_ms(), &mut value) {
            Read::Found { .. } => drop(state.keys.insert(key, value)),
            Read::Missing => {}
            Read::Contended => unreachable!("all cores of a simulation run on one thread"),
        }
    }
    state
}

fn options(store: &MemoryStore, random: &Random, archive: Option<ArchiveOptions>) -> NodeOptions {
    let store = store.clone();
    let stores = Stores::new(move || Rc::new(store.clone()) as Rc<dyn Store>);
    let usual = node_options();
    NodeOptions {
        shards: 1 << random.below(5),
        log_bytes_soft: 4096 * (8 + random.below(64)),
        image_records_min: 1 + random.below(40),
        keys: KeysOptions { query: true, ..usual.keys.clone() },
        backup: BackupOptions {
            directory: Some(BackupTarget { stores, prefix: "prod".to_owned() }),
            archive,
            ..BackupOptions::default()
        },
        ..usual
    }
}

fn archiving() -> Option<ArchiveOptions> {
    Some(ArchiveOptions { interval_ms: 300, retention_ms: 0, waiting_bytes: 1 << 30 })
}

/// What a node had after each change, and until when it had it.
#[derive(Clone, Default)]
struct History(Rc<RefCell<Vec<(u64, State)>>>);

impl History {
    /// Notes what is there now. A millisecond passes before and behind the moment.
    async fn note(&self, sim: &Sim, core: &Rc<Core>) {
        sim.sleep_us(2_000).await;
        let state = read(core).await;
        self.0.borrow_mut().push((core.unix_ms(), state));
        sim.sleep_us(2_000).await;
    }
}

/// Whether a backup has to come before moments can be restored again: data came in beside the log.
async fn change(core: &Rc<Core>, random: &Random, tag: i64) -> bool {
    let collection = random.index(COLLECTIONS);
    let name = name_of(collection);
    let exists = core.config(&name).is_ok();
    match random.below(20) {
        _ if !exists => patiently(|| core.create_collection(&name, config_of(collection))).await,
        0 => assert!(patiently(|| core.drop_collection(&name, None)).await),
        1 | 2 => {
            let alias = ["live", "next"][random.index(2)].to_owned();
            // An alias of another tenant is none of this one's.
            let change = match random.chance(1, 3) || name.contains('/') {
                true => AliasChange::Delete { alias },
                false => AliasChange::Create { alias, collection: name },
            };
            patiently(|| core.change_aliases(vec![change.clone()])).await;
        }
        3 => {
            let index = IndexDefinition {
                name: ["a", "b"][random.index(2)].to_owned(),
                prefix: vec![b'k'; random.index(3)],
                path: "n".to_owned(),
                is_count: false,
            };
            let is_kept = !random.chance(1, 4);
            patiently(|| core.keys().define_key_index(index.clone(), is_kept)).await;
        }
        4..=8 => {
            let key = key_of(random.below(KEYS));
            let order = match random.chance(1, 4) {
                true => Order::Del,
                false => Order::Put { value: tag.to_le_bytes().repeat(1 + random.index(40)), ttl_ms: 0 },
            };
            patiently(|| carry_out(core, &key, &order)).await;
        }
        9 => {
            let run = patiently(|| core.back_up()).await;
            assert_eq!(run.failures, Vec::<String>::new());
        }
        10 if random.chance(1, 2) => {
            // It leaves memory, and comes back with the next reading.
            let _may_be_used = until_not_busy(|| core.evict_collection(&name)).await;
        }
        11 if random.chance(1, 2) => {
            let request = RestoreRequest { collection: name.clone(), time: None, into: None };
            match until_not_busy(|| core.restore_collection(request.clone())).await {
                Ok(_) | Err(OpError::NoSnapshot { .. } | OpError::CollectionExists(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        12 if random.chance(1, 3) => match until_not_busy(|| core.restore_part(NodePart::Keys, None)).await {
            Ok(_) => return true,
            Err(OpError::NoPartSnapshot { .. }) => {}
            Err(error) => panic!("{error}"),
        },
        _ => {
            let id = random.below(IDS);
            if random.chance(1, 4) {
                let delete = || async {
                    let _access = core.enter(&name).await?;
                    core.delete(&name, id, None).await
                };
                patiently(delete).await;
            } else {
                let write = || async {
                    let _access = core.enter(&name).await?;
                    core.write(&name, batch(collection, id, tag)).await.map_err(|stopped| stopped.error)
                };
                patiently(write).await;
            }
        }
    }
    false
}

async fn await_archived(sim: &Sim, core: &Rc<Core>) {
    for _ in 0..10_000 {
        sim.sleep_us(50_000).await;
        let archive = &core.node().archive;
        if archive.behind_bytes() == 0 && archive.behind_ms(core.unix_ms()) == 0 {
            return;
        }
    }
    panic!("the archive never catches up");
}

/// A node of `count` cores on a new disk that is restored to a moment, and what it has.
fn restored(seed: u64, store: &MemoryStore, until_unix_ms: u64, clock_ms: i64) -> Result<State, String> {
    let random = Random::new(seed);
    let store = store.clone();
    let (outcome, kept) = (Rc::new(RefCell::new(None)), Rc::new(RefCell::new(None)));
    let (outcome2, kept2) = (outcome.clone(), kept.clone());
    super::run(seed, |sim| async move {
        sim.step_wall_clock_ms(clock_ms);
        let disk = Rc::new(SimDisk::new(seed));
        let count = 1 + random.index(3);
        let mut options = options(&store, &random, None);
        options.backup.restore = Some(RestoreMoment { until_unix_ms });
        let opening = begin(&sim, &disk, count, options);
        let opened = opening.wait(&sim).await;
        let core = opening.node.cores[random.index(count)].clone();
        if opened.is_ok() {
            assert_eq!(core.not_ready(), None);
            *kept2.borrow_mut() = Some(read(&core).await);
        }
        *outcome2.borrow_mut() = Some(opened);
    });
    Core::set_current(None);
    let opened = outcome.borrow_mut().take().expect("the node has opened or not");
    opened.map(|()| kept.borrow_mut().take().expect("it was read"))
}

/// Some lives of a node, whose moments are restored afterwards.
fn check_moments(seed: u64) {
    let random = Random::new(seed);
    let store = MemoryStore::new();
    let history = History::default();
    let mut disk = SimDisk::new(random.next());
    disk.set_yielding(true);
    let lives = 1 + random.index(4);
    // Moments between a change that no log has and the next backup cannot be restored.
    let unlogged: Rc<RefCell<Vec<(u64, u64)>>> = Rc::default();
    for life in 0..lives {
        let shared = Rc::new(disk);
        let is_last = life + 1 == lives;
        let (store, random2, history, disk2) =
            (store.clone(), random.fork(), history.clone(), shared.clone());
        let unlogged = unlogged.clone();
        super::run(random.next(), |sim| async move {
            let random = random2;
            // The clock goes on from life to life.
            sim.step_wall_clock_ms(life as i64 * 1_000_000);
            let count = 1 + random.index(3);
            let node = open(&sim, &disk2, count, options(&store, &Random::new(seed), archiving())).await;
            let core = node.cores[random.index(count)].clone();
            assert_eq!(core.not_ready(), None);
            history.note(&sim, &core).await;
            for step in 0..40 + random.below(40) as i64 {
                let before_ms = core.unix_ms();
                if change(&core, &random, 1000 * life as i64 + step).await {
                    sim.sleep_us(2_000).await;
                    let run = patiently(|| core.back_up()).await;
                    assert_eq!(run.failures, Vec::<String>::new());
                    sim.sleep_us(2_000).await;
                    unlogged.borrow_mut().push((before_ms, core.unix_ms()));
                }
                if random.chance(1, 2) {
                    history.note(&sim, &core).await;
                }
                if random.chance(1, 6) {
                    let faults = [Fault::Error, Fault::Timeout, Fault::Refused, Fault::HalfBody];
                    store.fail(Requests::Any, random.below(4), faults[random.index(faults.len())]);
                }
                sim.sleep_us(random.below(400_000)).await;
                store.heal();
            }
            history.note(&sim, &core).await;
            if is_last {
                await_archived(&sim, &core).await;
            }
        });
        Core::set_current(None);
        disk = next_life(&shared, &random);
    }
    let (history, clock_ms) = (history.0.borrow().clone(), lives as i64 * 1_000_000);
    let is_unlogged = |ms: u64| unlogged.borrow().iter().any(|(from, to)| (*from..=*to).contains(&ms));
    for _ in 0..6 {
        let (until_ms, expected) = &history[random.index(history.len())];
        if is_unlogged(*until_ms) {
            continue;
        }
        let found = restored(random.next(), &store, *until_ms, clock_ms);
        assert_eq!(found.as_ref(), Ok(expected), "seed {seed}, moment {until_ms}");
    }
}

#[test]
fn a_moment_is_restored_as_it_was() {
    for seed in 1..=60 {
        check_moments(seed);
    }
}
