//! The archive of the log in simulation: a directory that is restored to a moment has what the node had at that moment, whatever lives, kills, crashes
//! and failing stores there were before and since.

use super::backup_test::{Contents, IDS, batch, config_of, contents_of, name_of};
use super::keys_test::{Order, carry_out};
use super::node::{begin, next_life, node_options, open, patiently, until_not_busy};
use super::{Random, Sim};
use crate::archive::{ArchiveOptions, RestoreMoment};
use crate::backup::{BackupOptions, BackupTarget, Fault, MemoryStore, NodePart, Requests, Store, Stores};
use crate::core::{AliasChange, Core, RestoreRequest};
use crate::disk::{Disk, SimDisk};
use crate::error::OpError;
use crate::kv::KeysOptions;
use crate::kv::indexes::IndexDefinition;
use crate::node::NodeOptions;
use nigh_engine::kv::Read;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

pub(super) const COLLECTIONS: usize = 4;
pub(super) const KEYS: u64 = 12;

pub(super) fn key_of(n: u64) -> Vec<u8> {
    format!("key-{n}").into_bytes()
}

/// All that a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeContents {
    collections: BTreeMap<String, Contents>,
    aliases: BTreeMap<String, String>,
    indexes: BTreeMap<String, Vec<u8>>,
    pub(super) keys: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub(super) async fn read(core: &Rc<Core>) -> NodeContents {
    let mut state = NodeContents::default();
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

pub(super) fn options(store: &MemoryStore, random: &Random, archive: Option<ArchiveOptions>) -> NodeOptions {
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

pub(super) fn archiving() -> Option<ArchiveOptions> {
    Some(ArchiveOptions { interval_ms: 300, retention_ms: 0, waiting_bytes: 1 << 30 })
}

/// What a node had after each change, and until when it had it.
#[derive(Clone, Default)]
pub(super) struct History(pub(super) Rc<RefCell<Vec<(u64, NodeContents)>>>);

impl History {
    /// Notes what is there now. A millisecond passes before and behind the moment.
    pub(super) async fn note(&self, sim: &Sim, core: &Rc<Core>) {
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

pub(super) async fn await_archived(sim: &Sim, core: &Rc<Core>) {
    // The archive looks at the log a few times a second.
    sim.sleep_us(1_000_000).await;
    for _ in 0..10_000 {
        sim.sleep_us(50_000).await;
        let archive = &core.node().archive;
        if archive.behind_bytes() == 0 && archive.behind_ms(sim.now_ns()) == 0 {
            return;
        }
    }
    panic!("the archive never catches up");
}

/// What a node has that is started on `disk` to be restored to a moment; its clock is so far ahead.
pub(super) fn restored(
    seed: u64,
    store: &MemoryStore,
    disk: &Rc<SimDisk>,
    (until_unix_ms, clock_ms): (u64, i64),
) -> Result<NodeContents, String> {
    let random = Random::new(seed);
    let (store, disk) = (store.clone(), disk.clone());
    let outcome: Rc<RefCell<Option<Result<NodeContents, String>>>> = Rc::default();
    let given = outcome.clone();
    super::run(seed, |sim| async move {
        sim.step_wall_clock_ms(clock_ms);
        let count = 1 + random.index(3);
        let mut options = options(&store, &random, None);
        options.backup.restore = Some(RestoreMoment { until_unix_ms });
        let opening = begin(&sim, &disk, count, options);
        let opened = opening.wait(&sim).await;
        let core = opening.node.cores[random.index(count)].clone();
        let found = match opened {
            Ok(()) => {
                assert_eq!(core.not_ready(), None);
                Ok(read(&core).await)
            }
            Err(why) => Err(why),
        };
        *given.borrow_mut() = Some(found);
    });
    Core::set_current(None);
    outcome.take().expect("the node has opened or not")
}

pub(super) fn new_disk(seed: u64) -> Rc<SimDisk> {
    Rc::new(SimDisk::new(seed))
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
        let found = restored(random.next(), &store, &new_disk(seed), (*until_ms, clock_ms));
        assert_eq!(found.as_ref(), Ok(expected), "seed {seed}, moment {until_ms}");
    }
}

#[test]
fn a_moment_is_restored_as_it_was() {
    for seed in 1..=60 {
        check_moments(seed);
    }
}

/// One life with a backup in it, and what there was at its end.
pub(super) fn one_life(
    seed: u64,
    archive: ArchiveOptions,
    steps: i64,
) -> (MemoryStore, Vec<(u64, NodeContents)>) {
    let (store, history) = (MemoryStore::new(), History::default());
    let (store2, history2) = (store.clone(), history.clone());
    super::run(seed, |sim| async move {
        let (store, history, random) = (store2, history2, Random::new(seed));
        let disk = new_disk(seed);
        let node = open(&sim, &disk, 2, options(&store, &Random::new(seed), Some(archive))).await;
        let core = node.cores[1].clone();
        for step in 0..steps {
            let collection = random.index(COLLECTIONS);
            let name = name_of(collection);
            if core.config(&name).is_err() {
                patiently(|| core.create_collection(&name, config_of(collection))).await;
            }
            let id = random.below(IDS);
            let write = || async {
                core.write(&name, batch(collection, id, step)).await.map_err(|stopped| stopped.error)
            };
            patiently(write).await;
            let order = Order::Put { value: step.to_le_bytes().to_vec(), ttl_ms: 0 };
            let key = key_of(step as u64 % KEYS);
            patiently(|| carry_out(&core, &key, &order)).await;
            if step == steps / 2 {
                let run = patiently(|| core.back_up()).await;
                assert_eq!(run.failures, Vec::<String>::new());
            }
            history.note(&sim, &core).await;
            // Each part of the archive has a few of the steps.
            sim.sleep_us(100_000).await;
        }
        await_archived(&sim, &core).await;
    });
    Core::set_current(None);
    let states = history.0.take();
    (store, states)
}

#[test]
fn a_fault_at_any_request_of_a_restore_fails_it_and_it_can_be_repeated() {
    let (store, history) = one_life(3, archiving().expect("options"), 24);
    let (until_ms, expected) = &history[18];
    let mut failed = 0;
    for at in 0.. {
        let disk = new_disk(at);
        let faults = [Fault::Error, Fault::Broken, Fault::Timeout, Fault::Refused, Fault::HalfBody];
        store.fail(Requests::Any, at, faults[at as usize % faults.len()]);
        let first = restored(at, &store, &disk, (*until_ms, 0));
        store.heal();
        match first {
            Err(_) => {
                failed += 1;
                // Nobody takes the directory for what it is not.
                let refused = Rc::new(RefCell::new(None));
                let (given, disk2, store2) = (refused.clone(), disk.clone(), store.clone());
                super::run(at, |sim| async move {
                    let opening = begin(&sim, &disk2, 1, options(&store2, &Random::new(1), None));
                    *given.borrow_mut() = opening.wait(&sim).await.err();
                });
                Core::set_current(None);
                assert!(refused.take().is_some_and(|why| why.contains("has not finished")));
                assert_eq!(
                    restored(at, &store, &disk, (*until_ms, 0)).as_ref(),
                    Ok(expected),
                    "request {at}"
                );
            }
            Ok(found) => {
                assert_eq!(&found, expected, "request {at}");
                // A body that was cut and is read again is no failure; the end is where nothing fails any more.
                if failed > 0 && at > failed + 40 {
                    break;
                }
            }
        }
    }
    assert!(failed > 20, "only {failed} requests were made");
}

#[test]
fn damage_of_any_object_of_the_archive_is_noticed_or_does_not_matter() {
    let (store, history) = one_life(5, archiving().expect("options"), 24);
    let (until_ms, expected) = &history[20];
    let keys: Vec<String> = store.keys().into_iter().filter(|key| key.contains("/log/")).collect();
    let mut noticed = 0;
    for key in &keys {
        let good = store.bytes(key).expect("it is there");
        let mut flipped = good.to_vec();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 4;
        for bad in [flipped, good[..good.len() - 1].to_vec()] {
            store.put(key, bad);
            match restored(9, &store, &new_disk(9), (*until_ms, 0)) {
                Err(why) => {
                    noticed += 1;
                    assert!(why.contains(key.as_str()), "{key}: {why}");
                }
                // What is before the newest snapshots is not read.
                Ok(found) => assert_eq!(&found, expected, "{key}"),
            }
        }
        store.put(key, good);
    }
    assert!(noticed >= 6, "only {noticed} of {keys:?} were noticed");
}

#[test]
fn a_hole_in_the_archive_is_named_and_the_next_backup_closes_it() {
    let (store, history) = one_life(7, archiving().expect("options"), 40);
    let parts: Vec<String> = store.keys().into_iter().filter(|key| key.ends_with(".part")).collect();
    let (until_ms, expected) = history.last().expect("states");
    let mut refused = 0;
    // Without one of the parts that others of its core follow, the moment cannot be restored, unless a snapshot has its changes.
    for key in parts.iter().filter(|key| parts.iter().any(|next| *next > **key && next[..26] == key[..26])) {
        let good = store.bytes(key).expect("it is there");
        let (other, disk) = (MemoryStore::new(), new_disk(1));
        for kept in store.keys().into_iter().filter(|kept| kept != key) {
            other.put(&kept, store.bytes(&kept).expect("it is there"));
        }
        match restored(1, &other, &disk, (*until_ms, 0)) {
            Err(why) => {
                refused += 1;
                assert!(
                    why.contains("lacks a part") || why.contains("is neither in a backup"),
                    "{key}: {why}"
                );
            }
            Ok(found) => assert_eq!(&found, expected, "{key} of {} bytes", good.len()),
        }
    }
    assert!(refused > 0, "no part of {parts:?} was needed");
}

#[test]
fn what_the_store_does_not_take_for_too_long_is_given_up_until_the_next_backup() {
    let archive = ArchiveOptions { waiting_bytes: 300 << 10, ..archiving().expect("options") };
    let (store, history) = (MemoryStore::new(), History::default());
    let hole = Rc::new(RefCell::new(0));
    let (store2, history2, hole2) = (store.clone(), history.clone(), hole.clone());
    super::run(11, |sim| async move {
        let (store, history) = (store2, history2);
        let disk = new_disk(11);
        let mut options = options(&store, &Random::new(11), Some(archive));
        (options.log_bytes_soft, options.image_records_min) = (4096 * 8, 1);
        let node = open(&sim, &disk, 2, options).await;
        let core = node.cores[0].clone();
        let write = async |tag: i64| {
            let write = || async {
                core.write("docs", batch(0, tag as u64 % IDS, tag)).await.map_err(|stopped| stopped.error)
            };
            patiently(write).await;
            sim.sleep_us(5_000).await;
        };
        patiently(|| core.create_collection("docs", config_of(0))).await;
        write(0).await;
        await_archived(&sim, &core).await;
        for skip in 0..4_000 {
            store.fail(Requests::Any, skip, Fault::Error);
        }
        for tag in 1..900 {
            write(tag).await;
            if tag == 100 {
                *hole2.borrow_mut() = core.unix_ms();
            }
        }
        sim.sleep_us(5_000_000).await;
        let archive = &core.node().archive;
        assert!(archive.gaps.load(Relaxed) > 0 && archive.failures.load(Relaxed) > 0);
        let behind = (archive.behind_bytes(), archive.behind_ms(sim.now_ns()));
        assert!(behind.0 > 0 && behind.1 > 1_000, "{behind:?}");
        let waiting = disk.list(Path::new("archive")).await.expect("a directory");
        let segments =
            waiting.iter().filter(|name| name.extension().is_some_and(|kind| kind == "wal")).count();
        assert!(segments <= 2, "{waiting:?}");
        store.heal();
        let run = patiently(|| core.back_up()).await;
        assert_eq!(run.failures, Vec::<String>::new());
        write(1_000).await;
        history.note(&sim, &core).await;
        await_archived(&sim, &core).await;
    });
    Core::set_current(None);
    let (until_ms, expected) = &history.0.borrow()[0];
    assert_eq!(restored(1, &store, &new_disk(1), (*until_ms, 0)).as_ref(), Ok(expected));
    let why = restored(1, &store, &new_disk(2), (*hole.borrow(), 0)).unwrap_err();
    assert!(why.contains("lacks a part") || why.contains("is neither in a backup"), "{why}");
}

#[test]
fn what_is_older_than_the_retention_goes_and_the_rest_is_restored() {
    let archive = ArchiveOptions { retention_ms: 60_000, ..archiving().expect("options") };
    let (store, history) = (MemoryStore::new(), History::default());
    let (store2, history2) = (store.clone(), history.clone());
    super::run(13, |sim| async move {
        let (store, history, random) = (store2, history2, Random::new(13));
        let disk = new_disk(13);
        let mut options = options(&store, &Random::new(13), Some(archive));
        (options.log_bytes_soft, options.image_records_min) = (4096 * 8, 1);
        let node = open(&sim, &disk, 2, options).await;
        let core = node.cores[1].clone();
        for hour in 0..4 {
            for step in 0..100 {
                let collection = random.index(2);
                let name = name_of(collection);
                if core.config(&name).is_err() {
                    patiently(|| core.create_collection(&name, config_of(collection))).await;
                }
                let (id, tag) = (random.below(IDS), hour * 1000 + step);
                let write = || async {
                    core.write(&name, batch(collection, id, tag)).await.map_err(|stopped| stopped.error)
                };
                patiently(write).await;
            }
            history.note(&sim, &core).await;
            await_archived(&sim, &core).await;
            let run = patiently(|| core.back_up()).await;
            assert_eq!(run.failures, Vec::<String>::new());
            history.note(&sim, &core).await;
            sim.step_wall_clock_ms(3_600_000);
        }
        await_archived(&sim, &core).await;
    });
    Core::set_current(None);
    let history = history.0.borrow();
    let why = restored(1, &store, &new_disk(1), (history[0].0, 0)).unwrap_err();
    assert!(why.contains("the archive begins at"), "{why}");
    for (until_ms, expected) in &history[5..] {
        let found = restored(2, &store, &new_disk(2), (*until_ms, 4 * 3_600_000));
        assert_eq!(found.as_ref(), Ok(expected), "moment {until_ms}");
    }
    let catalogs = store.keys().iter().filter(|key| key.contains("/catalog/")).count();
    // The newest two that are older than the retention, and the one of the last backup.
    assert_eq!(catalogs, 3, "{:?}", store.keys());
}

#[test]
fn a_run_without_an_archive_and_a_bulk_build_need_a_backup_before_moments_are_restored_again() {
    let (store, history) = (MemoryStore::new(), History::default());
    let disk = new_disk(17);
    let mut clock_ms = 0;
    for archive in [archiving(), None, archiving()] {
        let (store, history, disk) = (store.clone(), history.clone(), disk.clone());
        clock_ms += 1_000_000;
        super::run(17 + clock_ms as u64, |sim| async move {
            sim.step_wall_clock_ms(clock_ms);
            let node = open(&sim, &disk, 2, options(&store, &Random::new(17), archive)).await;
            let core = node.cores[1].clone();
            let name = name_of(0);
            let write = async |id: u64| {
                let write = || async {
                    core.write(&name, batch(0, id, id as i64)).await.map_err(|stopped| stopped.error)
                };
                patiently(write).await;
            };
            if core.config(&name).is_err() {
                patiently(|| core.create_collection(&name, config_of(0))).await;
                write(0).await;
                history.note(&sim, &core).await;
                patiently(|| core.delete(&name, 0, None)).await;
                patiently(|| core.stage(&name, batch(0, 1, 1))).await;
                patiently(|| core.build(&name, 1, true)).await;
            }
            write(2).await;
            history.note(&sim, &core).await;
            if archive.is_some() {
                let run = patiently(|| core.back_up()).await;
                assert_eq!(run.failures, Vec::<String>::new());
                history.note(&sim, &core).await;
                write(3).await;
                history.note(&sim, &core).await;
                await_archived(&sim, &core).await;
            }
        });
        Core::set_current(None);
    }
    let history = history.0.borrow();
    // Before the build; after it; after the backup (2); without an archive; with one again; after a backup (2).
    let can_be_restored = [true, false, true, true, false, false, true, true];
    assert_eq!(history.len(), can_be_restored.len());
    for ((until_ms, expected), can_be) in history.iter().zip(can_be_restored) {
        let found = restored(1, &store, &new_disk(1), (*until_ms, clock_ms));
        match can_be {
            true => assert_eq!(found.as_ref(), Ok(expected), "moment {until_ms}"),
            false => {
                let why = found.unwrap_err();
                assert!(why.contains("in no log") || why.contains("without -archive"), "{why}");
            }
        }
    }
}
