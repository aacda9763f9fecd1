//! Collections that leave memory for the store of backups and come back, in simulation: by processes that are killed, on stores and disks that
//! fail, while clients write. A collection is what its clients were told, whether it is in memory or not.

use super::backup_test::{
    Contents, IDS, batch, change, check_seeds, config_of, contents_of, name_of, options, read,
};
use super::node::{next_life, open, patiently, until_not_busy};
use super::{Random, Sim};
use crate::account::MemoryUse;
use crate::backup::{Fault, MemoryStore, Requests};
use crate::core::{AliasChange, Core, RestoreRequest};
use crate::disk::{Calls, Failure, SimDisk};
use crate::error::OpError;
use crate::points::{PointFields, Vectors, WriteBatch, Written};
use nigh_engine::collection::{DenseConfig, WriteMode};
use nigh_engine::distance::Metric;
use nigh_engine::payload::RowBuilder;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What a client reads, which brings the collection back.
async fn read_in(core: &Rc<Core>, name: &str) -> Contents {
    let _access = patiently(|| core.enter(name)).await;
    read(core, name).await
}

async fn change_in(core: &Rc<Core>, collection: usize, tag: i64) {
    let name = name_of(collection);
    let _access = patiently(|| core.enter(&name)).await;
    change(core, collection, tag).await;
}

fn cold_collections(core: &Rc<Core>) -> usize {
    core.node().cold.collections.load(Relaxed)
}

/// The states that a collection may be found in: the last one that was acknowledged, and those of a write under way.
type Possible = Rc<RefCell<Vec<Contents>>>;

thread_local! {
    /// Evictions and promotions of all lives, so that the test cannot pass without any.
    static MOVED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Writes to a collection until the life ends.
async fn write_on(sim: Sim, core: Rc<Core>, collection: usize, possible: Possible, tags: i64) {
    let (random, name) = (sim.random().fork(), name_of(collection));
    for tag in tags.. {
        let id = random.below(IDS);
        let access = match core.enter(&name).await {
            Ok(access) => access,
            Err(_) => continue,
        };
        let mut after = possible.borrow()[0].clone();
        // A deleted id goes on with its versions, so only points that are there are replaced.
        let Some((version, _)) = after.get(&id).copied() else { continue };
        after.insert(id, (version + 1, tag));
        possible.borrow_mut().push(after.clone());
        let write =
            || async { core.write(&name, batch(collection, id, tag)).await.map_err(|stopped| stopped.error) };
        assert_eq!(patiently(write).await, [Written::Ok { version: version + 1 }], "{name} {id}");
        *possible.borrow_mut() = vec![after];
        drop(access);
        sim.sleep_us(random.below(3_000)).await;
    }
}

/// Evicts and promotes a collection until the life ends.
async fn move_on(sim: Sim, core: Rc<Core>, collection: usize) {
    let (random, name) = (sim.random().fork(), name_of(collection));
    loop {
        let moved = match random.below(4) {
            0 => core.promote_collection(&name).await,
            1 => core.back_up().await.map(|_| ()),
            _ => core.evict_collection(&name).await,
        };
        match moved {
            // The writer has requests under way all the time.
            Ok(()) | Err(OpError::Busy(_) | OpError::Conflict(_)) => {}
            Err(error) => panic!("{error}"),
        }
        sim.sleep_us(random.below(2_000)).await;
    }
}

/// A collection that is written to, evicted, promoted and backed up at the same time, by processes that are killed.
fn check_kills(seed: u64) {
    let random = Random::new(seed);
    let store = MemoryStore::new();
    store.set_page(1 + random.index(20));
    let mut disk = SimDisk::new(random.next());
    disk.set_yielding(true);
    let possible: Possible = Rc::default();
    let collection = random.index(4);
    for life in 0..6i64 {
        let shared = Rc::new(disk);
        let (options, count) = (options(&store, &Random::new(seed)), 1 + random.index(3));
        let (random2, possible2, disk2) = (random.fork(), possible.clone(), shared.clone());
        super::run(random.next(), |sim| async move {
            let (random, possible, disk) = (random2, possible2, disk2);
            // The clock goes on from life to life, and is set back in one of them.
            sim.step_wall_clock_ms(if life == 4 { -50_000 } else { life * 10_000 });
            let node = open(&sim, &disk, count, options).await;
            let (core, name) = (node.cores[random.index(count)].clone(), name_of(collection));
            assert_eq!(core.not_ready(), None);
            if life == 0 {
                patiently(|| core.create_collection(&name, config_of(collection))).await;
                for tag in 0..3 {
                    change_in(&core, collection, tag).await;
                }
            } else {
                let found = read_in(&core, &name).await;
                assert!(possible.borrow().contains(&found), "found {found:?}, possible {possible:?}");
            }
            *possible.borrow_mut() = vec![read_in(&core, &name).await];
            let writer = node.cores[random.index(count)].clone();
            sim.spawn(write_on(sim.clone(), writer, collection, possible.clone(), 1000 * (life + 1)));
            sim.spawn(move_on(sim.clone(), core, collection));
            sim.sleep_us(random.below(60_000)).await;
            let counters = &node.cores[0].node().cold;
            MOVED.with(|moved| {
                let (evictions, promotions) = moved.get();
                let of_life = (counters.evictions.load(Relaxed), counters.promotions.load(Relaxed));
                moved.set((evictions + of_life.0, promotions + of_life.1));
            });
        });
        Core::set_current(None);
        disk = next_life(&shared, &random);
    }
}

#[test]
fn a_kill_at_any_moment_leaves_a_whole_collection_in_memory_or_a_whole_snapshot() {
    MOVED.set((0, 0));
    check_seeds(60, check_kills);
    let (evictions, promotions) = MOVED.get();
    eprintln!("{evictions} evictions, {promotions} promotions");
    // A seed that is replayed alone may have few.
    let is_replay = std::env::var_os("NIGH_TEST_SEED").is_some();
    assert!(is_replay || evictions > 200 && promotions > 200, "{evictions} {promotions}");
}

#[test]
fn a_cold_collection_is_known_by_name_survives_a_start_and_comes_back_as_it_was() {
    for collection in 0..4 {
        let (store, disk) = (MemoryStore::new(), Rc::new(SimDisk::new(7)));
        let options = options(&store, &Random::new(3));
        let (of_life, disk2) = (options.clone(), disk.clone());
        let state: Rc<RefCell<Contents>> = Rc::default();
        let state2 = state.clone();
        super::run(1, |sim| async move {
            let node = open(&sim, &disk2, 2, of_life).await;
            let (core, name) = (&node.cores[1], name_of(collection));
            patiently(|| core.create_collection(&name, config_of(collection))).await;
            change_in(core, collection, 1).await;
            let tenant = if name.contains('/') { "acme/" } else { "" };
            let alias = format!("{tenant}also");
            let create = AliasChange::Create { alias: alias.clone(), collection: name.clone() };
            patiently(|| core.change_aliases(vec![create.clone()])).await;
            *state2.borrow_mut() = read_in(core, &name).await;
            for _ in 0..2 {
                patiently(|| core.evict_collection(&name)).await;
                assert_eq!(cold_collections(core), 1);
            }
            let left: Vec<String> = disk2
                .paths()
                .iter()
                .map(|path| path.display().to_string())
                .filter(|name| name.starts_with("collections") && name.ends_with(".img"))
                .collect();
            assert_eq!(left, Vec::<String>::new(), "its files are gone");
            let listed = core.collections().expect("names are known");
            assert_eq!(listed.len(), 1, "it is listed");
            assert_eq!(listed[0].stats.live as usize, state2.borrow().len(), "with the number of its points");
            assert!(core.metrics().is_empty(), "and has no metrics");
            let run = patiently(|| core.back_up()).await;
            assert!(run.collections.is_empty(), "its snapshot is in the store");
            let exists = until_not_busy(|| core.create_collection(&name, config_of(collection))).await;
            assert!(matches!(exists, Err(OpError::CollectionExists(_))));
            for missing in ["none", "default/none"] {
                let found = until_not_busy(|| core.evict_collection(missing)).await;
                assert!(matches!(found, Err(OpError::UnknownCollection(_))));
                let found = until_not_busy(|| core.promote_collection(missing)).await;
                assert!(matches!(found, Err(OpError::UnknownCollection(_))));
            }
        });
        Core::set_current(None);
        let disk = Rc::new(disk.crash_clone(3));
        super::run(2, |sim| async move {
            let node = open(&sim, &disk, 3, options).await;
            let (core, name) = (&node.cores[2], name_of(collection));
            assert_eq!((core.not_ready(), cold_collections(core)), (None, 1));
            let alias = if name.contains('/') { "acme/also" } else { "also" };
            let access = patiently(|| core.enter(alias)).await;
            assert_eq!(cold_collections(core), 0);
            assert_eq!(read(core, alias).await, *state.borrow());
            drop(access);
            patiently(|| core.promote_collection(&name)).await;
            let sent = store.requests(Requests::Finish);
            patiently(|| core.evict_collection(&name)).await;
            assert_eq!(store.requests(Requests::Finish), sent, "nothing has changed, so nothing is sent");
            assert!(patiently(|| core.drop_collection(&name, None)).await);
            assert_eq!(cold_collections(core), 0);
            patiently(|| core.create_collection(&name, config_of(collection))).await;
            assert_eq!(read_in(core, &name).await, Contents::new());
        });
        Core::set_current(None);
    }
}

/// What makes one request to the store, or one call of the disk, fail from now on.
type Fail = Rc<dyn Fn(&MemoryStore, &SimDisk)>;

/// An eviction and a promotion in which something fails, and a start after a crash of the machine.
fn check_fault(collection: usize, seed: u64, fail: Fail) {
    let (store, disk) = (MemoryStore::new(), Rc::new(SimDisk::new(seed)));
    store.set_page(3);
    let options = options(&store, &Random::new(seed));
    let (of_life, disk2) = (options.clone(), disk.clone());
    let state: Rc<RefCell<Contents>> = Rc::default();
    let state2 = state.clone();
    super::run(seed, |sim| async move {
        let node = open(&sim, &disk2, 1 + seed as usize % 2, of_life).await;
        let (core, name) = (&node.cores[0], name_of(collection));
        patiently(|| core.create_collection(&name, config_of(collection))).await;
        change_in(core, collection, 1).await;
        patiently(|| core.evict_collection(&name)).await;
        change_in(core, collection, 2).await;
        let before = read_in(core, &name).await;
        fail(&store, &disk2);
        let evicted = until_not_busy(|| core.evict_collection(&name)).await;
        assert!(evicted.is_err() || cold_collections(core) == 1);
        // A request may fail while the store does, and the next one finds the collection.
        match until_not_busy(|| core.enter(&name)).await {
            Ok(_) => assert_eq!(cold_collections(core), 0),
            Err(error) => {
                assert!(matches!(error, OpError::UnknownCollection(_)), "{error}");
                assert_eq!(cold_collections(core), 1, "it stays cold");
            }
        }
        store.heal();
        disk2.heal();
        assert_eq!(read_in(core, &name).await, before);
        change_in(core, collection, 3).await;
        *state2.borrow_mut() = read_in(core, &name).await;
    });
    Core::set_current(None);
    let disk = Rc::new(disk.crash_clone(seed));
    super::run(seed, |sim| async move {
        let node = open(&sim, &disk, 2, options).await;
        assert_eq!(node.cores[0].not_ready(), None);
        assert_eq!(read_in(&node.cores[0], &name_of(collection)).await, state.take());
    });
    Core::set_current(None);
}

#[test]
fn a_fault_of_the_store_at_any_request_costs_nothing_but_the_attempt() {
    for fault in [Fault::Error, Fault::Refused, Fault::HalfBody, Fault::AfterEffect] {
        for skip in 0..40 {
            let fail = move |store: &MemoryStore, _: &SimDisk| store.fail(Requests::Any, skip, fault);
            check_fault(1 + 2 * (skip as usize % 2), skip, Rc::new(fail));
        }
    }
}

#[test]
fn a_fault_of_the_disk_at_any_call_costs_nothing_but_the_attempt() {
    for calls in [Calls::NameSync, Calls::Other] {
        for skip in 0..60 {
            let fail = move |_: &MemoryStore, disk: &SimDisk| disk.fail(calls, skip, Failure::Io);
            check_fault(1 + 2 * (skip as usize % 2), skip, Rc::new(fail));
        }
    }
}

/// A point that expires does so while its collection is cold; staged points keep a collection in memory.
#[test]
fn points_expire_while_their_collection_is_cold_and_staged_ones_keep_it_in_memory() {
    let (store, disk) = (MemoryStore::new(), Rc::new(SimDisk::new(5)));
    let options = options(&store, &Random::new(5));
    super::run(5, |sim| async move {
        let node = open(&sim, &disk, 2, options).await;
        let core = &node.cores[0];
        patiently(|| core.create_collection("docs", config_of(0))).await;
        let mut row = RowBuilder::new();
        row.set("tag", nigh_engine::payload::Value::Int(1), 0);
        let row = row.finish();
        for (id, ttl_ms) in [(1, 0), (2, 5_000), (3, 50_000_000)] {
            let fields = PointFields { id, row: row.clone(), ttl_ms, expected_version: None };
            let vectors = Vectors::PerPoint(vec![vec![1.0; 4]]);
            let batch = WriteBatch { mode: WriteMode::Upsert, dim: 4, vectors, points: vec![fields] };
            patiently(|| async { core.write("docs", batch.clone()).await.map_err(|e| e.error) }).await;
        }
        assert_eq!(read_in(core, "docs").await.len(), 3);
        patiently(|| core.evict_collection("docs")).await;
        sim.sleep_us(6_000_000).await;
        let left: Vec<u64> = read_in(core, "docs").await.into_keys().collect();
        assert_eq!(left, [1, 3]);

        patiently(|| core.create_collection("staged", config_of(0))).await;
        patiently(|| core.stage("staged", batch(0, 1, 1))).await;
        let refused = until_not_busy(|| core.evict_collection("staged")).await;
        assert!(matches!(&refused, Err(OpError::Conflict(why)) if why.contains("staged")), "{refused:?}");
    });
    Core::set_current(None);
}

/// The idle clock is that of the node: a busy collection stays, an unused one leaves, and clocks that jump change nothing.
#[test]
fn unused_collections_leave_and_used_ones_stay_whatever_the_wall_clock_does() {
    for jump_ms in [0, 40_000_000, -40_000_000] {
        let (store, disk) = (MemoryStore::new(), Rc::new(SimDisk::new(6)));
        let mut options = options(&store, &Random::new(6));
        options.backup.cold_after_ms = 60_000;
        super::run(6, |sim| async move {
            let node = open(&sim, &disk, 2, options).await;
            let core = &node.cores[1];
            for name in ["docs", "unused"] {
                patiently(|| core.create_collection(name, config_of(0))).await;
            }
            change_in(core, 0, 1).await;
            for second in 0..200 {
                sim.sleep_us(1_000_000).await;
                if second == 30 {
                    sim.step_wall_clock_ms(jump_ms);
                }
                drop(patiently(|| core.enter("docs")).await);
                match second {
                    0..59 => assert_eq!(cold_collections(core), 0, "{second}"),
                    100.. => assert_eq!(cold_collections(core), 1, "{second}"),
                    _ => {}
                }
            }
            assert!(core.ctx().node().cold.promotions.load(Relaxed) == 0);
            // A request under way keeps it in memory for as long as it lasts.
            let access = patiently(|| core.enter("docs")).await;
            sim.sleep_us(400_000_000).await;
            assert_eq!(cold_collections(core), 1);
            drop(access);
            sim.sleep_us(100_000_000).await;
            assert_eq!(cold_collections(core), 2);
        });
        Core::set_current(None);
    }
}

/// A store that never answers: requests wait, but not more than a bound, and not for ever.
#[test]
fn requests_that_wait_are_bounded_in_number_and_time() {
    let (store, disk) = (MemoryStore::new(), Rc::new(SimDisk::new(8)));
    let options = options(&store, &Random::new(8));
    super::run(8, |sim| async move {
        let node = open(&sim, &disk, 1, options).await;
        let core = node.cores[0].clone();
        patiently(|| core.create_collection("docs", config_of(0))).await;
        change_in(&core, 0, 1).await;
        patiently(|| core.evict_collection("docs")).await;
        store.fail(Requests::Read, 0, Fault::Silence);
        let (late, crowded) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        for _ in 0..4100 {
            let (core, late, crowded) = (core.clone(), late.clone(), crowded.clone());
            sim.spawn(async move {
                match core.enter("docs").await.map(|_| ()) {
                    Err(OpError::Busy(why)) if why.contains("not back") => late.set(late.get() + 1),
                    Err(OpError::Busy(why)) if why.contains("4096 requests") => {
                        crowded.set(crowded.get() + 1)
                    }
                    other => panic!("{other:?}"),
                }
            });
        }
        sim.sleep_us(99_000_000).await;
        assert_eq!((late.get(), crowded.get()), (0, 4));
        sim.sleep_us(2_000_000).await;
        assert_eq!((late.get(), crowded.get()), (4096, 4));
    });
    Core::set_current(None);
}

/// A collection that is dropped and made again while it is evicted and promoted: whatever serves in the end serves after a kill as well.
fn check_rivals(seed: u64) {
    let random = Random::new(seed);
    let collection = 1 + 2 * random.index(2);
    let (store, disk) = (MemoryStore::new(), SimDisk::new(random.next()));
    disk.set_yielding(true);
    let (options, disk) = (options(&store, &random), Rc::new(disk));
    let found: Rc<RefCell<Contents>> = Rc::default();
    let (of_life, disk2, found2, random2) = (options.clone(), disk.clone(), found.clone(), random.fork());
    super::run(random.next(), |sim| async move {
        let node = open(&sim, &disk2, 2, of_life).await;
        let (core, name) = (node.cores[0].clone(), name_of(collection));
        patiently(|| core.create_collection(&name, config_of(collection))).await;
        change_in(&core, collection, 1).await;
        let running = Rc::new(Cell::new(2));
        for promotes in [false, true] {
            let (core, running, random) = (node.cores[1].clone(), running.clone(), random2.fork());
            let (sim2, name) = (sim.clone(), name.clone());
            sim.spawn(async move {
                for _ in 0..3 {
                    sim2.sleep_us(random.below(2_000)).await;
                    // It may find no collection of the name, or another one.
                    let _done = match promotes {
                        true => core.promote_collection(&name).await,
                        false => core.evict_collection(&name).await,
                    };
                }
                running.set(running.get() - 1);
            });
        }
        sim.sleep_us(random2.below(6_000)).await;
        assert!(patiently(|| core.drop_collection(&name, None)).await);
        sim.sleep_us(random2.below(500)).await;
        patiently(|| core.create_collection(&name, config_of(collection))).await;
        change_in(&core, collection, 9).await;
        while running.get() > 0 {
            sim.sleep_us(100).await;
        }
        *found2.borrow_mut() = read_in(&core, &name).await;
        assert!(found2.borrow().values().all(|(_, tag)| *tag == 9), "{:?}", found2.borrow());
    });
    Core::set_current(None);
    let disk = Rc::new(disk.crash_clone(random.next()));
    super::run(random.next(), |sim| async move {
        let node = open(&sim, &disk, 1, options).await;
        assert_eq!(node.cores[0].not_ready(), None);
        assert_eq!(read_in(&node.cores[0], &name_of(collection)).await, found.take());
    });
    Core::set_current(None);
}

#[test]
fn what_changes_one_name_waits_for_the_others() {
    check_seeds(40, check_rivals);
}

/// Collections of the crowd, of some 50 KB each, and bytes of memory for all of them and for what is not theirs.
const CROWD: u64 = 24;
const CROWD_BYTES: u64 = 640 << 10;
const CROWD_IDS: u64 = 24;
const CROWD_DIM: usize = 256;
const CROWD_CLIENTS: u64 = 4;

fn crowd_batch(id: u64, tag: i64) -> WriteBatch {
    let vector = (0..CROWD_DIM).map(|at| ((tag * 31 + at as i64 * 7) % 101) as f32 + 1.0).collect();
    WriteBatch { dim: CROWD_DIM, vectors: Vectors::PerPoint(vec![vector]), ..batch(0, id, tag) }
}

/// Repeats a call for as long as there is no room, which must not be long.
async fn until_there_is_room<T, F: Future<Output = Result<T, OpError>>>(
    sim: &Sim,
    mut call: impl FnMut() -> F,
) -> T {
    for _ in 0..1000 {
        match call().await {
            Ok(done) => return done,
            Err(OpError::Busy(_) | OpError::NoMemory(_)) => sim.sleep_us(10_000).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("there is no room after ten seconds");
}

/// A client of the crowd, which knows what it has written to its collections.
async fn crowd_client(
    sim: Sim,
    core: Rc<Core>,
    client: u64,
    (filling, running): (Rc<Cell<u64>>, Rc<Cell<u64>>),
) {
    let random = sim.random().fork();
    let mut contents: BTreeMap<u64, Contents> = BTreeMap::new();
    let mine: Vec<u64> = (client..CROWD).step_by(CROWD_CLIENTS as usize).collect();
    let name = |collection: u64| format!("c{collection}");
    let write = async |collection: u64, id: u64, tag: i64| {
        let (core, name) = (&core, name(collection));
        let version = until_there_is_room(&sim, || async {
            let _access = core.enter(&name).await?;
            core.write(&name, crowd_batch(id, tag)).await.map_err(|stopped| stopped.error)
        });
        match version.await[..] {
            [Written::Ok { version }] => version,
            ref other => panic!("{name} {id}: {other:?}"),
        }
    };
    for &collection in &mine {
        let config = DenseConfig::new(CROWD_DIM, Metric::L2);
        let name = name(collection);
        until_there_is_room(&sim, || core.create_collection(&name, config.clone())).await;
        for id in 0..CROWD_IDS {
            let version = write(collection, id, 0).await;
            contents.entry(collection).or_default().insert(id, (version, 0));
        }
    }
    filling.set(filling.get() - 1);
    while filling.get() > 0 {
        sim.sleep_us(1_000).await;
    }
    // What indexing has added is measured, and what is too much has left.
    sim.sleep_us(1_000_000).await;
    for tag in 1..80 {
        let (collection, id) = (mine[random.index(mine.len())], random.below(CROWD_IDS));
        let version = write(collection, id, tag).await;
        let state = contents.get_mut(&collection).expect("it was made");
        let before = state.insert(id, (version, tag)).expect("it was written");
        assert_eq!(version, before.0 + 1, "c{collection} {id}");
        let (other, core) = (mine[random.index(mine.len())], &core);
        let other_name = name(other);
        let found = until_there_is_room(&sim, || async {
            let _access = core.enter(&other_name).await?;
            let found = core.get(&other_name, (0..CROWD_IDS).collect(), true, true).await?;
            Ok(contents_of(found))
        });
        assert_eq!(found.await, contents[&other], "{other_name}");
    }
    running.set(running.get() - 1);
}

/// Many collections of which few fit. Whatever order they leave and come back in, each is what its client wrote, and writes find room although they
/// make none themselves.
fn check_crowd(seed: u64) {
    let random = Random::new(seed);
    let store = MemoryStore::new();
    let disk = Rc::new(SimDisk::new(random.next()));
    let mut options = options(&store, &random);
    options.memory_limit_bytes = CROWD_BYTES;
    // Nothing leaves only because nobody uses it.
    options.backup.cold_after_ms = 1_000_000_000;
    let count = 1 + random.index(3);
    super::run(random.next(), |sim| async move {
        let node = open(&sim, &disk, count, options).await;
        let (filling, running) = (Rc::new(Cell::new(CROWD_CLIENTS)), Rc::new(Cell::new(CROWD_CLIENTS)));
        for client in 0..CROWD_CLIENTS {
            let core = node.cores[client as usize % count].clone();
            sim.spawn(crowd_client(sim.clone(), core, client, (filling.clone(), running.clone())));
        }
        let (account, cold) = (&node.cores[0].node().account, &node.cores[0].node().cold);
        while filling.get() > 0 {
            sim.sleep_us(20_000).await;
        }
        sim.sleep_us(900_000).await;
        while running.get() > 0 {
            sim.sleep_us(20_000).await;
            let held = account.held(MemoryUse::Collections);
            assert!(
                held <= account.limit_bytes(),
                "{held} {:?}",
                (cold.promotions.load(Relaxed), cold.evictions.load(Relaxed))
            );
        }
        let moved = (cold.evictions.load(Relaxed), cold.promotions.load(Relaxed));
        assert!(moved.0 >= CROWD && moved.1 >= CROWD, "{moved:?}");
        assert_eq!((cold.eviction_failures.load(Relaxed), cold.promotion_failures.load(Relaxed)), (0, 0));
    });
    Core::set_current(None);
}

#[test]
fn of_many_collections_few_fit_and_no_write_is_lost() {
    check_seeds(12, check_crowd);
}

/// Evictions leave the snapshots of runs alone, however often a collection leaves, and only the newest of their own stays.
#[test]
fn evictions_leave_the_snapshots_of_runs_in_the_store() {
    let (store, disk) = (MemoryStore::new(), Rc::new(SimDisk::new(9)));
    let mut options = options(&store, &Random::new(9));
    options.backup.retention = 2;
    super::run(9, |sim| async move {
        let node = open(&sim, &disk, 2, options).await;
        let core = &node.cores[0];
        patiently(|| core.create_collection("docs", config_of(0))).await;
        for tag in 0..9 {
            change_in(core, 0, tag).await;
            if tag % 3 == 0 {
                patiently(|| core.back_up()).await;
            }
            sim.sleep_us(1_500_000).await;
            change_in(core, 0, 100 + tag).await;
            patiently(|| core.evict_collection("docs")).await;
            let read = read_in(core, "docs").await;
            assert!(read.values().any(|(_, found)| *found == 100 + tag), "{read:?}");
            sim.sleep_us(1_500_000).await;
        }
        let ends =
            |end: &str| store.keys().iter().filter(|key| key.contains("docs") && key.ends_with(end)).count();
        assert_eq!((ends(".snap"), ends(".evicted"), ends(".cfg.json")), (3, 1, 3), "{:?}", store.keys());
        for key in store.keys().iter().filter(|key| key.contains("docs") && key.ends_with(".snap")) {
            let time = key.rsplit('/').next().and_then(|name| name.strip_suffix(".snap")).map(str::to_owned);
            patiently(|| core.verify_backup("docs", time.clone())).await;
        }
    });
    Core::set_current(None);
}

/// What the newest snapshot of a collection has: it is restored beside it.
async fn newest_in_store(core: &Rc<Core>, name: &str) -> Contents {
    let request = RestoreRequest { collection: name.to_owned(), time: None, into: Some("again".to_owned()) };
    patiently(|| core.restore_collection(request.clone())).await;
    let found = read(core, "again").await;
    assert!(patiently(|| core.drop_collection("again", None)).await);
    found
}

/// A run has what a collection was during the run. A snapshot from before, which seems to be a later one because the clock was set back, or because it is
/// of the same second, does not pass for it.
#[test]
fn a_snapshot_from_before_a_run_does_not_pass_for_that_of_the_run() {
    const HOUR_MS: i64 = 3_600_000;
    for (is_evicted, back_ms) in [(false, HOUR_MS), (true, HOUR_MS), (true, 0)] {
        let (store, disk) = (MemoryStore::new(), Rc::new(SimDisk::new(10)));
        let options = options(&store, &Random::new(10));
        super::run(10, |sim| async move {
            let node = open(&sim, &disk, 2, options).await;
            let core = &node.cores[0];
            patiently(|| core.create_collection("docs", config_of(0))).await;
            change_in(core, 0, 1).await;
            while core.unix_ms() % 1000 > 50 {
                sim.sleep_us(10_000).await;
            }
            match is_evicted {
                true => patiently(|| core.evict_collection("docs")).await,
                false => drop(patiently(|| core.back_up()).await),
            }
            change_in(core, 0, 2).await;
            let now = read_in(core, "docs").await;
            sim.step_wall_clock_ms(-back_ms);
            let run = patiently(|| core.back_up()).await;
            let done = &run.collections[0];
            match back_ms {
                0 => assert_eq!(done.error, None),
                _ => assert!(
                    done.error.as_ref().is_some_and(|error| error.contains("the clock was set back")),
                    "{done:?}"
                ),
            }
            sim.step_wall_clock_ms(back_ms + 2_000);
            if back_ms > 0 {
                let run = patiently(|| core.back_up()).await;
                assert_eq!(run.collections[0].error, None);
            }
            assert_eq!(newest_in_store(core, "docs").await, now);
            // The run after it has its own again.
            change_in(core, 0, 3).await;
            let now = read_in(core, "docs").await;
            let run = patiently(|| core.back_up()).await;
            assert_eq!(run.collections[0].error, None);
            assert_eq!(newest_in_store(core, "docs").await, now);
        });
        Core::set_current(None);
    }
}

/// While the clock is behind, each attempt has the time of the one before, which may have left something under it.
#[test]
fn an_eviction_that_failed_is_repeated_while_the_clock_is_behind() {
    let mut failed = 0;
    for skip in 0.. {
        let (store, disk) = (MemoryStore::new(), Rc::new(SimDisk::new(11)));
        let options = options(&store, &Random::new(11));
        let outcome: Rc<Cell<Option<bool>>> = Rc::default();
        let of_life = outcome.clone();
        super::run(11, |sim| async move {
            let node = open(&sim, &disk, 1, options).await;
            let core = &node.cores[0];
            patiently(|| core.create_collection("docs", config_of(0))).await;
            change_in(core, 0, 1).await;
            patiently(|| core.evict_collection("docs")).await;
            change_in(core, 0, 2).await;
            let now = read_in(core, "docs").await;
            sim.step_wall_clock_ms(-3_600_000);
            store.fail(Requests::Finish, skip, Fault::Error);
            let first = until_not_busy(|| core.evict_collection("docs")).await;
            store.heal();
            of_life.set(Some(first.is_err()));
            patiently(|| core.evict_collection("docs")).await;
            assert_eq!(cold_collections(core), 1);
            assert_eq!(read_in(core, "docs").await, now);
        });
        Core::set_current(None);
        match outcome.get() {
            Some(true) => failed += 1,
            _ => break,
        }
    }
    assert!(failed >= 3, "the mark, the configuration and the snapshot: {failed}");
}

/// A run may take hours. What leaves memory during it has left, although the run has yet to come to it.
#[test]
fn a_run_keeps_no_collection_in_memory_that_leaves_meanwhile() {
    for collection in 0..4 {
        let (store, disk) = (MemoryStore::new(), Rc::new(SimDisk::new(12)));
        let mut options = options(&store, &Random::new(12));
        options.backup.bytes_per_second = 500;
        super::run(12, |sim| async move {
            let node = open(&sim, &disk, 1, options).await;
            let (core, name) = (node.cores[0].clone(), name_of(collection));
            patiently(|| core.create_collection(&name, config_of(collection))).await;
            change_in(&core, collection, 1).await;
            // Each of them takes the run as long as the one that leaves.
            for other in (0..9).map(|n| format!("other{n}")) {
                patiently(|| core.create_collection(&other, config_of(collection))).await;
                let write = || async {
                    core.write(&other, batch(collection, 1, 1)).await.map_err(|stopped| stopped.error)
                };
                patiently(write).await;
            }
            let is_over = Rc::new(Cell::new(false));
            let (of_run, at_end) = (core.clone(), is_over.clone());
            sim.spawn(async move {
                patiently(|| of_run.back_up()).await;
                at_end.set(true);
            });
            sim.sleep_us(1_000_000).await;
            let weak = Arc::downgrade(&core.ctx().handle(&name).expect("it is there"));
            patiently(|| core.evict_collection(&name)).await;
            for _ in 0..100 {
                core.node().catalog.reclaim();
                sim.sleep_us(1_000).await;
            }
            assert!(!is_over.get(), "the run has yet to come to others");
            assert_eq!(weak.strong_count(), 0, "{name}");
        });
        Core::set_current(None);
    }
}

/// Memory is full and the store is away: whoever makes room asks it now and then, and makes room once it is back.
#[test]
fn a_store_that_is_away_is_not_asked_all_the_time_while_memory_is_full() {
    let (store, disk) = (MemoryStore::new(), Rc::new(SimDisk::new(13)));
    let mut options = options(&store, &Random::new(13));
    options.memory_limit_bytes = CROWD_BYTES;
    options.backup.cold_after_ms = 1_000_000_000;
    super::run(13, |sim| async move {
        let node = open(&sim, &disk, 1, options).await;
        let core = &node.cores[0];
        (0..2_000).for_each(|skip| store.fail(Requests::Any, skip, Fault::Error));
        let write = |collection: u64, id: u64| async move {
            let name = format!("c{collection}");
            let _access = core.enter(&name).await?;
            core.write(&name, crowd_batch(id, 1)).await.map_err(|stopped| stopped.error)
        };
        let mut refused = None;
        for collection in 0..CROWD {
            let (name, config) = (format!("c{collection}"), DenseConfig::new(CROWD_DIM, Metric::L2));
            let mut done = until_not_busy(|| core.create_collection(&name, config.clone())).await.map(drop);
            for id in 0..CROWD_IDS {
                if done.is_ok() {
                    done = until_not_busy(|| write(collection, id)).await.map(drop);
                }
            }
            if let Err(error) = done {
                refused = Some(error);
                break;
            }
        }
        assert!(matches!(refused, Some(OpError::NoMemory(_))), "{refused:?}");
        sim.sleep_us(5_000_000).await;
        let before = store.requests(Requests::Any);
        sim.sleep_us(60_000_000).await;
        let asked = store.requests(Requests::Any) - before;
        assert!((20..=40).contains(&asked), "{asked} requests in a minute");
        store.heal();
        until_there_is_room(&sim, || write(0, 0)).await;
        assert!(cold_collections(core) > 0);
    });
    Core::set_current(None);
}
