//! The archive of the log in simulation, when something goes wrong: clocks that are set back, kills while a store opens, stores that fail at any request, and
//! objects that are damaged or missing. A restore brings what there was at the moment, or says why it cannot.

use super::archive_test::{
    History, KEYS, NodeContents, archiving, await_archived, key_of, new_disk, options, restored,
};
use super::backup_test::{IDS, batch, config_of, name_of};
use super::keys_test::{Order, carry_out};
use super::node::{begin, next_life, open, patiently};
use super::{Random, Sim};
use crate::archive::ArchiveOptions;
use crate::backup::{Fault, MemoryStore, Requests};
use crate::core::Core;
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::node::NodeOptions;
use nigh_engine::kv::Read;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Writes a point, and creates its collection if there is none.
async fn write(core: &Rc<Core>, collection: usize, id: u64, tag: i64) {
    let name = name_of(collection);
    if core.config(&name).is_err() {
        patiently(|| core.create_collection(&name, config_of(collection))).await;
    }
    let write =
        || async { core.write(&name, batch(collection, id, tag)).await.map_err(|stopped| stopped.error) };
    patiently(write).await;
}

async fn put(core: &Rc<Core>, key: u64, tag: i64) -> Result<(), OpError> {
    let order = Order::Put { value: tag.to_le_bytes().to_vec(), ttl_ms: 0 };
    carry_out(core, &key_of(key), &order).await.map(drop)
}

/// A backup without a failure; some attempts may have one.
async fn back_up(sim: &Sim, core: &Rc<Core>) {
    for _ in 0..60 {
        let run = patiently(|| core.back_up()).await;
        let mut all = run.collections.iter().chain(&run.parts);
        if run.failures.is_empty() && all.all(|done| done.error.is_none()) {
            return;
        }
        sim.sleep_us(1_100_000).await;
    }
    panic!("no backup is without a failure");
}

/// One life of a node on `disk`, which begins with this time of the wall clock.
fn life<F: Future<Output = ()> + 'static>(
    seed: u64,
    clock_ms: i64,
    (disk, options): (&Rc<SimDisk>, NodeOptions),
    run: impl FnOnce(Sim, Rc<[Rc<Core>]>) -> F + 'static,
) {
    let disk = disk.clone();
    super::run(seed, |sim| async move {
        sim.step_wall_clock_ms(clock_ms);
        let node = open(&sim, &disk, 2, options).await;
        // The node lives as long as the run.
        run(sim, node.cores.clone()).await;
    });
    Core::set_current(None);
}

/// Both cores write, so that their logs end at different times.
async fn some_steps(
    sim: &Sim,
    core: &Rc<Core>,
    random: &Random,
    history: &History,
    tags: std::ops::Range<i64>,
) {
    for tag in tags {
        write(core, random.index(3), random.below(IDS), tag).await;
        patiently(|| put(core, random.below(KEYS), tag)).await;
        history.note(sim, core).await;
        sim.sleep_us(random.below(3_000_000)).await;
    }
}

#[test]
fn a_clock_that_is_set_back_during_a_run_mixes_nothing() {
    for seed in 1..=8 {
        let (store, history, disk) = (MemoryStore::new(), History::default(), new_disk(seed));
        let later = History::default();
        let (history2, later2) = (history.clone(), later.clone());
        let node = options(&store, &Random::new(seed), archiving());
        life(seed, 100_000, (&disk, node), move |sim, cores| async move {
            let (core, random) = (cores[0].clone(), Random::new(seed));
            some_steps(&sim, &core, &random, &history2, 0..8).await;
            back_up(&sim, &core).await;
            some_steps(&sim, &core, &random, &history2, 10..18).await;
            // These changes come at times that were there before.
            sim.sleep_us(200_000).await;
            sim.step_wall_clock_ms(-15_000);
            some_steps(&sim, &core, &random, &History::default(), 20..24).await;
            if seed % 2 == 0 {
                back_up(&sim, &core).await;
            }
            sim.sleep_us(40_000_000).await;
            some_steps(&sim, &core, &random, &later2, 30..34).await;
            await_archived(&sim, &core).await;
        });
        for (until_ms, expected) in history.0.borrow().iter().chain(&*later.0.borrow()) {
            let found = restored(seed, &store, &new_disk(seed), (*until_ms, 200_000));
            match found {
                Ok(found) => assert_eq!(&found, expected, "seed {seed}, moment {until_ms}"),
                Err(why) => panic!("seed {seed}, moment {until_ms}: {why}"),
            }
        }
    }
}

#[test]
fn a_moment_that_came_twice_because_the_clock_was_set_back_between_two_runs_is_refused() {
    let (mut refused, mut right) = (0, 0);
    for seed in 1..=10 {
        let (store, disk) = (MemoryStore::new(), new_disk(seed));
        let (first, second) = (History::default(), History::default());
        let ends = Rc::new(RefCell::new((0, 0)));
        for (index, (history, clock_ms)) in [(&first, 100_000), (&second, 110_000)].into_iter().enumerate() {
            let (history, ends) = (history.clone(), ends.clone());
            let node = options(&store, &Random::new(seed), archiving());
            life(seed + index as u64, clock_ms, (&disk, node), move |sim, cores| async move {
                let (core, random) = (cores[0].clone(), Random::new(seed));
                if index == 1 {
                    ends.borrow_mut().1 = core.unix_ms();
                }
                let tag = 100 * index as i64;
                some_steps(&sim, &core, &random, &history, tag..tag + 10).await;
                if seed % 3 > 0 {
                    back_up(&sim, &core).await;
                }
                some_steps(&sim, &core, &random, &history, tag + 20..tag + 30).await;
                if index == 0 {
                    ends.borrow_mut().0 = core.unix_ms();
                }
                await_archived(&sim, &core).await;
            });
        }
        let (first_end_ms, second_begin_ms) = *ends.borrow();
        assert!(second_begin_ms < first_end_ms, "the clock was not set back");
        let runs = [first.0.borrow(), second.0.borrow()];
        for (run, (until_ms, expected)) in
            runs.iter().enumerate().flat_map(|(run, states)| states.iter().map(move |state| (run, state)))
        {
            let found = restored(seed, &store, &new_disk(seed), (*until_ms, 300_000));
            match found {
                Ok(found) => {
                    assert_eq!(&found, expected, "seed {seed}, run {run}, moment {until_ms}");
                    right += 1;
                }
                Err(why) if why.contains("came twice") => refused += 1,
                Err(why) => panic!("seed {seed}, run {run}, moment {until_ms}: {why}"),
            }
        }
    }
    assert!(refused > 30 && right > 100, "{refused} moments were refused, {right} were right");
}

type KeysContents = BTreeMap<Vec<u8>, Vec<u8>>;

/// The keys alone, while collections are not open yet.
fn keys_of(core: &Rc<Core>) -> KeysContents {
    let mut keys = BTreeMap::new();
    for key in (0..KEYS).map(key_of) {
        let (place, mut value) = (core.keys().place_of(&key), Vec::new());
        let found = core.keys().get(&core.keys().pin(), place, &key, core.unix_ms(), &mut value);
        if let Read::Found { .. } = found {
            keys.insert(key, value);
        }
    }
    keys
}

#[test]
fn keys_that_are_written_while_a_start_has_spread_them_anew_are_right_or_refused() {
    let (mut early, mut refused) = (0, 0);
    for seed in 1..=24 {
        let random = Random::new(seed);
        let (store, history) = (MemoryStore::new(), History::default());
        let with_shards = |shards| {
            let usual = options(&store, &Random::new(seed), archiving());
            NodeOptions { shards, image_records_min: 4, log_bytes_soft: 4096 * 8, ..usual }
        };
        let mut disk = SimDisk::new(seed);
        disk.set_yielding(true);
        let first = Rc::new(disk);
        let history2 = history.clone();
        life(seed, 0, (&first, with_shards(1)), move |sim, cores| async move {
            let (core, random) = (cores[0].clone(), Random::new(seed));
            some_steps(&sim, &core, &random, &history2, 0..10).await;
            back_up(&sim, &core).await;
            some_steps(&sim, &core, &random, &history2, 10..16).await;
            await_archived(&sim, &core).await;
        });
        disk = next_life(&first, &random);
        // Keys are written before all is open; some of these runs are killed then.
        let is_killed = seed % 2 == 0;
        let second = Rc::new(disk);
        let window: Rc<RefCell<Vec<(u64, KeysContents)>>> = Rc::default();
        let (given, disk2, options2) = (window.clone(), second.clone(), with_shards(8));
        super::run(seed + 100, |sim| async move {
            sim.step_wall_clock_ms(1_000_000);
            let opening = begin(&sim, &disk2, 2, options2);
            let core = opening.node.cores[1].clone();
            for tag in 1_000.. {
                if opening.is_decided() || (is_killed && given.borrow().len() > 2) {
                    break;
                }
                let are_made = core.keys().archive_entry().is_some();
                if are_made && put(&core, tag as u64 % KEYS, tag).await.is_ok() {
                    sim.sleep_us(1_000).await;
                    given.borrow_mut().push((core.unix_ms(), keys_of(&core)));
                }
                sim.sleep_us(1_000).await;
            }
            if !is_killed {
                opening.wait(&sim).await.expect("the store opens");
                await_archived(&sim, &core).await;
            }
        });
        Core::set_current(None);
        let third = Rc::new(next_life(&second, &random));
        let last = History::default();
        let last2 = last.clone();
        life(seed + 200, 2_000_000, (&third, with_shards(8)), move |sim, cores| async move {
            let core = cores[0].clone();
            last2.note(&sim, &core).await;
            patiently(|| put(&core, 1, 5_000)).await;
            last2.note(&sim, &core).await;
            back_up(&sim, &core).await;
            last2.note(&sim, &core).await;
            await_archived(&sim, &core).await;
        });
        let mut check = |until_ms: u64, is_right: &dyn Fn(&NodeContents) -> bool| match restored(
            seed,
            &store,
            &new_disk(seed),
            (until_ms, 3_000_000),
        ) {
            Ok(found) => assert!(is_right(&found), "seed {seed}, moment {until_ms}: {found:?}"),
            Err(why) => {
                assert!(why.contains("in no log"), "seed {seed}, moment {until_ms}: {why}");
                refused += 1;
            }
        };
        let (until_ms, expected) = history.0.borrow().last().expect("states").clone();
        check(until_ms, &|found: &NodeContents| *found == expected);
        for (until_ms, keys) in &*window.borrow() {
            check(*until_ms, &|found: &NodeContents| found.keys == *keys);
            early += 1;
        }
        for (until_ms, expected) in &last.0.borrow()[..2] {
            check(*until_ms, &|found: &NodeContents| found == expected);
        }
        let (until_ms, expected) = last.0.borrow()[2].clone();
        let found = restored(seed, &store, &new_disk(seed), (until_ms, 3_000_000));
        assert_eq!(found, Ok(expected), "seed {seed}, after the backup");
    }
    assert!(early > 10 && refused >= early, "{early} moments were early, {refused} were refused");
}

#[test]
fn a_removal_of_what_is_too_old_delays_no_backup() {
    let archive = ArchiveOptions { retention_ms: 60_000, ..archiving().expect("options") };
    let store = MemoryStore::new();
    let store2 = store.clone();
    let node = options(&store, &Random::new(1), Some(archive));
    life(1, 0, (&new_disk(1), node), move |sim, cores| async move {
        let core = cores[0].clone();
        for hour in 0..3 {
            write(&core, 0, 1, hour).await;
            await_archived(&sim, &core).await;
            back_up(&sim, &core).await;
            sim.step_wall_clock_ms(3_600_000);
            sim.sleep_us(2_000_000).await;
        }
        let removed = store2.requests(Requests::Delete);
        // The request that removes the next object is never answered.
        store2.fail(Requests::Delete, 0, Fault::Silence);
        for hour in 3..6 {
            write(&core, 0, 1, hour).await;
            let began_ns = sim.now_ns();
            back_up(&sim, &core).await;
            assert!(sim.now_ns() - began_ns < 10_000_000_000, "a backup waits for a removal");
            sim.step_wall_clock_ms(3_600_000);
        }
        assert!(store2.requests(Requests::Delete) > removed, "nothing was to be removed");
    });
}

#[test]
fn restarts_between_backups_take_nothing_from_the_retention() {
    let archive = ArchiveOptions { retention_ms: 600_000, ..archiving().expect("options") };
    let (store, history) = (MemoryStore::new(), History::default());
    let mut disk = SimDisk::new(5);
    // A backup, some runs without one, and a backup long after that; all moments of the last ten minutes can be restored.
    for run in 0..6 {
        let shared = Rc::new(disk);
        let history = history.clone();
        let mut node = options(&store, &Random::new(5), Some(archive));
        (node.log_bytes_soft, node.image_records_min) = (4096 * 8, 1);
        life(5 + run, 300_000 * run as i64, (&shared, node), move |sim, cores| async move {
            let (core, random) = (cores[0].clone(), Random::new(run));
            if run == 0 {
                write(&core, 0, 1, -1).await;
                back_up(&sim, &core).await;
                sim.sleep_us(2_000_000).await;
                back_up(&sim, &core).await;
            }
            for tag in 0..60 {
                write(&core, random.index(2), random.below(IDS), 1_000 * run as i64 + tag).await;
            }
            history.note(&sim, &core).await;
            await_archived(&sim, &core).await;
            if run == 5 {
                back_up(&sim, &core).await;
                sim.sleep_us(5_000_000).await;
            }
        });
        disk = next_life(&shared, &Random::new(run));
    }
    for (until_ms, expected) in &history.0.borrow()[4..] {
        let found = restored(5, &store, &new_disk(5), (*until_ms, 2_000_000));
        assert_eq!(found.as_ref(), Ok(expected), "moment {until_ms}");
    }
}

#[test]
fn an_idle_core_is_not_behind_and_what_is_never_sent_is() {
    let slow = ArchiveOptions { interval_ms: 10_000, ..archiving().expect("options") };
    let store = MemoryStore::new();
    let node = options(&store, &Random::new(1), Some(slow));
    let store2 = store.clone();
    let disk = new_disk(1);
    life(1, 0, (&disk, node), move |sim, cores| async move {
        let core = cores[0].clone();
        let behind_ms = || core.node().archive.behind_ms(sim.now_ns());
        write(&core, 0, 1, 1).await;
        sim.sleep_us(1_000_000).await;
        // The clock is set while something waits, and again while nothing does.
        for step_ms in [3_600_000, -7_200_000, 0] {
            sim.step_wall_clock_ms(step_ms);
            for _ in 0..30 {
                assert!(behind_ms() <= 11_000, "behind by {} ms", behind_ms());
                sim.sleep_us(1_000_000).await;
            }
        }
        for _ in 0..600 {
            assert_eq!((behind_ms(), core.node().archive.behind_bytes()), (0, 0));
            sim.sleep_us(1_000_000).await;
        }
        // It stops with something that was not sent.
        write(&core, 0, 1, 2).await;
        sim.sleep_us(1_000_000).await;
    });
    // The store takes nothing of the next run.
    let node = options(&store, &Random::new(1), Some(slow));
    life(2, 1_000_000, (&disk, node), move |sim, cores| async move {
        for skip in 0..200 {
            store2.fail(Requests::Any, skip, Fault::Error);
        }
        let core = cores[0].clone();
        sim.sleep_us(60_000_000).await;
        let archive = &core.node().archive;
        let behind = (archive.behind_bytes(), archive.behind_ms(sim.now_ns()));
        assert!(behind.0 >= 4096 && (50_000..=61_000).contains(&behind.1), "{behind:?}");
        store2.heal();
        await_archived(&sim, &core).await;
    });
}

const FAULTS: [Fault; 6] =
    [Fault::Error, Fault::Broken, Fault::Timeout, Fault::Refused, Fault::HalfBody, Fault::AfterEffect];

/// A run that archives, makes backups and removes what is too old, on a store that fails at one request.
fn life_with_a_fault(at: u64) -> (MemoryStore, Vec<(u64, NodeContents)>) {
    let archive = ArchiveOptions { retention_ms: 60_000, ..archiving().expect("options") };
    let (store, history) = (MemoryStore::new(), History::default());
    store.fail(Requests::Any, at, FAULTS[at as usize % FAULTS.len()]);
    let mut node = options(&store, &Random::new(3), Some(archive));
    (node.log_bytes_soft, node.image_records_min) = (4096 * 8, 1);
    let history2 = history.clone();
    life(3, 0, (&new_disk(3), node), move |sim, cores| async move {
        let (core, random) = (cores[0].clone(), Random::new(3));
        for hour in 0..4 {
            for step in 0..12 {
                write(&core, 0, random.below(IDS), 100 * hour + step).await;
                patiently(|| put(&core, random.below(KEYS), step)).await;
            }
            history2.note(&sim, &core).await;
            await_archived(&sim, &core).await;
            back_up(&sim, &core).await;
            sim.sleep_us(5_000_000).await;
            sim.step_wall_clock_ms(3_600_000);
        }
        write(&core, 0, 1, 1_000).await;
        history2.note(&sim, &core).await;
        await_archived(&sim, &core).await;
        assert_eq!(core.node().archive.gaps.load(Relaxed), 0);
    });
    (store, history.0.take())
}

#[test]
fn a_fault_at_any_request_of_an_archive_is_made_up_for() {
    let mut at = 0;
    loop {
        let (store, history) = life_with_a_fault(at);
        let has_ended = store.requests(Requests::Any) <= at;
        store.heal();
        for (until_ms, expected) in &history[3..] {
            let found = restored(at, &store, &new_disk(at), (*until_ms, 5 * 3_600_000));
            assert_eq!(found.as_ref(), Ok(expected), "request {at}, moment {until_ms}");
        }
        assert_eq!(store.open_uploads(), 0, "request {at}");
        if has_ended {
            break;
        }
        at += 1;
    }
    assert!(at > 100, "only {at} requests were made");
}

#[test]
fn any_object_that_is_missing_or_damaged_is_named_or_does_not_matter() {
    let (store, history) = (MemoryStore::new(), History::default());
    let disk = new_disk(7);
    for run in 0..2 {
        let history = history.clone();
        let node = options(&store, &Random::new(7), archiving());
        life(7 + run, 100_000 * run as i64, (&disk, node), move |sim, cores| async move {
            let (core, random) = (cores[0].clone(), Random::new(run));
            some_steps(&sim, &core, &random, &history, 0..6).await;
            if run == 0 {
                back_up(&sim, &core).await;
            }
            some_steps(&sim, &core, &random, &history, 6..14).await;
            if run == 1 {
                await_archived(&sim, &core).await;
            }
        });
    }
    // The last moment of the first run.
    let (until_ms, expected) = history.0.borrow()[13].clone();
    assert_eq!(restored(7, &store, &new_disk(7), (until_ms, 300_000)).as_ref(), Ok(&expected));
    let mut noticed = [0; 3];
    for missing in store.keys() {
        let good = store.bytes(&missing).expect("it is there");
        let mut flipped = good.to_vec();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 4;
        for (kind, bad) in
            [None, Some(good[..good.len() - 1].to_vec()), Some(flipped)].into_iter().enumerate()
        {
            let other = MemoryStore::new();
            for key in store.keys().into_iter().filter(|key| *key != missing) {
                other.put(&key, store.bytes(&key).expect("it is there"));
            }
            let is_missing = bad.is_none();
            if let Some(bad) = bad {
                other.put(&missing, bad);
            }
            let disk = new_disk(7);
            match restored(7, &other, &disk, (until_ms, 300_000)) {
                Ok(found) => assert_eq!(found, expected, "{missing}, kind {kind}"),
                Err(why) => {
                    noticed[kind] += 1;
                    let names_a_gap = why.contains("lacks")
                        || why.contains("is neither in a backup")
                        || why.contains("are not in the archive");
                    assert!(
                        why.contains(&missing) || (is_missing && names_a_gap),
                        "{missing}, kind {kind}: {why}"
                    );
                    // Nobody takes the directory for what it is not.
                    assert!(disk.paths().iter().any(|path| path.ends_with("restoring")), "{missing}");
                }
            }
        }
    }
    assert!(noticed.iter().all(|noticed| *noticed > 5), "{noticed:?} of {} objects", store.keys().len());
}

#[test]
fn two_servers_on_copies_of_a_directory_do_not_mix_their_archives() {
    for seed in 1..=10 {
        let (store, disk, history) = one_life_on(seed);
        let copy = new_disk(seed + 1);
        disk.paths().iter().for_each(|path| copy.put(path, disk.bytes(path).expect("it is there")));
        let copies = [disk, copy];
        let (until_ms, expected) = history.last().expect("states").clone();
        let node = || options(&store, &Random::new(seed), archiving());
        let (both, first) = ([node(), node()], copies[0].clone());
        let second = copies[1].clone();
        super::run(seed, |sim| async move {
            sim.step_wall_clock_ms(1_000_000);
            let [a, b] = both;
            let a = open(&sim, &first, 1, a).await;
            let b = open(&sim, &second, 1, b).await;
            sim.sleep_us(30_000_000).await;
            let sent = [&a, &b].map(|node| node.cores[0].node().archive.sent_bytes.load(Relaxed) > 0);
            let failed = [&a, &b].map(|node| node.cores[0].node().archive.failures.load(Relaxed) > 0);
            assert!(sent != [true, true] && failed != [false, false], "seed {seed}: {sent:?} {failed:?}");
        });
        Core::set_current(None);
        let found = restored(seed, &store, &new_disk(seed), (until_ms, 2_000_000));
        assert_eq!(found, Ok(expected), "seed {seed}");
    }
}

/// A life with a backup, its store and its disk, and what there was.
fn one_life_on(seed: u64) -> (MemoryStore, Rc<SimDisk>, Vec<(u64, NodeContents)>) {
    let (store, history, disk) = (MemoryStore::new(), History::default(), new_disk(seed));
    let history2 = history.clone();
    let node = options(&store, &Random::new(seed), archiving());
    life(seed, 0, (&disk, node), move |sim, cores| async move {
        let core = cores[0].clone();
        some_steps(&sim, &core, &Random::new(seed), &history2, 0..6).await;
        back_up(&sim, &core).await;
        some_steps(&sim, &core, &Random::new(seed), &history2, 6..9).await;
        await_archived(&sim, &core).await;
    });
    (store, disk, history.0.take())
}
