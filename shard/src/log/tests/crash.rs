//! Crashes and failures at random moments, over many seeds.
use super::*;
use crate::disk::{Calls, Failure};
use crate::log::ledger::NoRoom;
use std::cell::{Cell, RefCell};

/// What the writers know when the power fails.
#[derive(Default)]
struct Book {
    /// In the order of appending.
    appended: RefCell<Vec<Record>>,
    /// So many were said to be durable.
    acknowledged: Cell<usize>,
    /// Per collection, what a checkpoint holds.
    covered: RefCell<std::collections::BTreeMap<u64, u64>>,
}

impl Book {
    fn covers(&self, collection: u64) -> Option<u64> {
        Some(self.covered.borrow().get(&collection).copied().unwrap_or(0))
    }
}

/// Several writers, a trimmer, and a power failure at a random moment; `fail` may plan a fault first.
fn run_and_crash(seed: u64, sync: SyncMode, fail: impl FnOnce(&SimDisk)) -> (SimDisk, Rc<Book>) {
    let (disk, book) = run_and_kill(seed, sync, fail);
    (disk.crash_clone(seed), book)
}

/// The same, the power stays: the disk as the next process finds it.
fn run_and_kill(seed: u64, sync: SyncMode, fail: impl FnOnce(&SimDisk)) -> (SimDisk, Rc<Book>) {
    let disk = SimDisk::new(seed);
    disk.set_yielding(true);
    fail(&disk);
    let book = Rc::new(Book::default());
    let shared = book.clone();
    let before = disk.clone();
    sim::run(seed, move |sim| async move {
        let owners = Some(Owners { shards: 1, cores: 1 });
        let config = LogConfig { owners, ..config(0, 1, sync) };
        let Ok(log) = Log::create(Rc::new(disk.clone()), config).await else { return };
        sim.spawn(log.clone().flush_loop(sleeper(&sim)));
        for collection in 1..=3 {
            sim.spawn(write_for_ever(sim.clone(), log.clone(), shared.clone(), collection, 0));
        }
        sim.spawn(trim_for_ever(sim.clone(), log.clone(), shared.clone()));
        let until_us = sim.random().below(400);
        sim.sleep_us(until_us).await;
        if sim.random().chance(1, 10) {
            log.stop().await;
        }
    });
    (before, book)
}

async fn write_for_ever(sim: Sim, log: Rc<Log>, book: Rc<Book>, collection: u64, pause_us: u64) {
    for seq in 1.. {
        if pause_us > 0 {
            sim.sleep_us(pause_us).await;
        }
        let long = sim.random().chance(1, 20);
        let len = sim.random().below(if long { 20_000 } else { 400 });
        let body = vec![(seq * 3 + collection) as u8; len as usize];
        while log.make_room(body.len()).await.is_err() {
            sim.sleep_us(50).await;
        }
        let Ok(ticket) = log.append(key(collection, seq), &body) else { return };
        book.appended.borrow_mut().push((key(collection, seq), body));
        let position = book.appended.borrow().len();
        if sim.random().chance(2, 3) {
            if log.durable(ticket).await.is_err() {
                return;
            }
            book.acknowledged.set(book.acknowledged.get().max(position));
        } else {
            sim.yield_now().await;
        }
    }
}

async fn trim_for_ever(sim: Sim, log: Rc<Log>, book: Rc<Book>) {
    loop {
        let pause_us = sim.random().below(60) + 5;
        sim.sleep_us(pause_us).await;
        // A checkpoint holds only what was durable.
        let acknowledged = book.acknowledged.get();
        for (key, _) in book.appended.borrow()[..acknowledged].iter() {
            book.covered.borrow_mut().insert(key.collection, key.seq);
        }
        let _ = log.trim(&|collection| book.covers(collection)).await;
    }
}

/// Scans with ledgers as three starts in a row do: nothing that a crash leaves may be taken for a loss.
fn check_ledgers(seed: u64, disk: &SimDisk, book: &Book) {
    use futures_lite::future::block_on;
    let root = Path::new(ROOT);
    for start in 0..3 {
        let ledgers = block_on(Ledgers::read(disk, root)).unwrap();
        assert!(ledgers.unreadable.is_empty(), "seed {seed}: {:?}", ledgers.unreadable);
        let mut newest = book.covered.borrow().clone();
        let mut take = |key: RecordKey, _: &[u8]| {
            let known = newest.entry(key.collection).or_insert(key.seq);
            *known = key.seq.max(*known);
        };
        let report = block_on(scan_with(disk, root, &ledgers, &NoRoom, 0, &mut take)).unwrap();
        for (chain, collection) in report.chains.iter().flat_map(|chain| (1..=3).map(move |uid| (chain, uid)))
        {
            let have = newest.get(&collection).copied().unwrap_or(0);
            assert!(
                !chain.may_lack(collection, have, |_| 0),
                "seed {seed}, start {start}: {chain}, {chain:?}"
            );
        }
        // The first start was interrupted before it could settle the ledgers.
        if start > 0 {
            block_on(ledgers.settle(disk, &report.chains, &|_| false, &NoRoom)).unwrap();
            block_on(report.segments.give_back(disk));
        }
    }
}

/// What a scan must find of what the book says.
fn check(seed: u64, disk: &SimDisk, book: &Book, acknowledged: usize) {
    // The ledgers are checked on a copy of the disk, so that the scan without ledgers below meets it unchanged.
    let copy = SimDisk::new(seed);
    disk.paths().iter().for_each(|path| copy.put(path, disk.bytes(path).unwrap()));
    check_ledgers(seed, &copy, book);
    let (found, report) = scan_now(disk);
    assert!(report.damage.is_empty(), "seed {seed}: {:?}", report.damage);
    let appended = book.appended.borrow();
    // Trimming takes a beginning away, a crash an end.
    let start = match found.first() {
        Some(first) => appended.iter().position(|record| record == first).unwrap_or_else(|| {
            panic!("seed {seed}: {:?} was never appended", first.0);
        }),
        None => 0,
    };
    let end = start + found.len();
    assert!(appended.get(start..end) == Some(&found[..]), "seed {seed}: records differ or are out of order");
    for (position, (key, _)) in appended.iter().enumerate() {
        let covered = book.covers(key.collection).is_some_and(|seq| seq >= key.seq);
        let there = (start..end).contains(&position);
        assert!(there || covered || position >= acknowledged, "seed {seed}: lost {key:?} at {position}");
    }
    let (again, report) = scan_now(disk);
    assert!(again == found && report.torn_bytes == 0, "seed {seed}: a second scan differs");
}

fn seeds() -> u64 {
    if std::env::var_os("NIGH_TEST_LONG").is_some() { 20_000 } else { 400 }
}

#[test]
fn acknowledged_records_survive_a_crash_at_any_moment() {
    let mut appended = 0;
    for seed in 0..seeds() {
        let (disk, book) = run_and_crash(seed, SyncMode::Always, |_| ());
        check(seed, &disk, &book, book.acknowledged.get());
        appended += book.appended.borrow().len();
    }
    assert!(appended as u64 > seeds() * 5, "the workload is too small to mean anything: {appended}");
}

#[test]
fn without_sync_a_crash_still_leaves_a_beginning() {
    let mut trimmed = 0;
    for seed in 0..seeds() / 2 {
        for sync in [SyncMode::Interval(1), SyncMode::None] {
            let (disk, book) = run_and_kill(seed, sync, |_| ());
            trimmed += u64::from(disk.bytes(segment_path(0, 1, 1)).is_none());
            check(seed, &disk.crash_clone(seed), &book, 0);
        }
    }
    assert!(trimmed > seeds() / 10, "hardly a run has trimmed anything: {trimmed}");
}

#[test]
fn a_crash_during_the_scan_after_a_crash_changes_nothing() {
    for seed in 0..seeds() / 2 {
        let (disk, book) = run_and_crash(seed, SyncMode::Always, |_| ());
        let interrupted = sim::run(seed, |sim| {
            let disk = disk.clone();
            async move {
                let scanned = disk.clone();
                sim.spawn(async move {
                    // These are the steps of a start.
                    let (root, nothing) = (Path::new(ROOT), &mut |_, _: &[u8]| ());
                    let ledgers = Ledgers::read(&scanned, root).await.unwrap();
                    let report = scan_with(&scanned, root, &ledgers, &NoRoom, 0, nothing).await.unwrap();
                    ledgers.settle(&scanned, &report.chains, &|_| false, &NoRoom).await.unwrap();
                    report.segments.give_back(&scanned).await;
                });
                for _ in 0..sim.random().below(60) {
                    sim.yield_now().await;
                }
                disk.crash_clone(seed)
            }
        });
        check(seed, &interrupted, &book, book.acknowledged.get());
    }
}

/// A killed process leaves what it wrote readable but not on the device. The next one builds on it; then the power fails.
#[test]
fn what_was_read_after_a_kill_survives_a_crash() {
    for seed in 0..seeds() / 2 {
        for sync in [SyncMode::Always, SyncMode::None] {
            let (disk, book) = run_and_kill(seed, sync, |disk| {
                if seed % 2 == 0 {
                    disk.fail(Calls::Sync, 2 + seed % 9, Failure::Io);
                }
            });
            disk.heal();
            let (found, report) = scan_now(&disk);
            assert!(report.damage.is_empty(), "seed {seed}");
            let last = sim::run(seed, |sim| {
                let disk = disk.clone();
                async move {
                    let log = start(&sim, &disk, 2, SyncMode::Always).await;
                    let last = (key(9, 1), vec![9; 10]);
                    write_all(&log, std::slice::from_ref(&last)).await;
                    last
                }
            });
            let (after, report) = scan_now(&disk.crash_clone(seed));
            assert!(report.damage.is_empty(), "seed {seed}: {:?}", report.damage);
            assert!(after[..found.len()] == found && after[found.len()..] == [last], "seed {seed}, {sync:?}");
            assert!(found.len() <= book.appended.borrow().len());
        }
    }
}

#[test]
fn a_failure_of_any_call_loses_nothing_acknowledged() {
    for index in 0..seeds() / 2 {
        for failure in [Failure::Io, Failure::Short, Failure::NoSpace] {
            let (disk, book) =
                run_and_crash(index * 3, SyncMode::Always, |disk| disk.fail(Calls::Any, index, failure));
            check(index, &disk, &book, book.acknowledged.get());
        }
    }
}

#[test]
fn a_disk_that_fills_up_and_empties_loses_nothing() {
    for seed in 0..seeds() / 20 {
        let disk = SimDisk::new(seed);
        disk.set_yielding(true);
        let book = Rc::new(Book::default());
        let (before, shared) = (disk.clone(), book.clone());
        let refused = sim::run(seed, move |sim| async move {
            let log = start(&sim, &disk, 1, SyncMode::Always).await;
            sim.sleep_us(100).await;
            disk.set_space(Some(disk.used_bytes() + sim.random().below(3 * SEGMENT_BYTES)));
            sim.spawn(write_for_ever(sim.clone(), log.clone(), shared.clone(), 1, 100));
            sim.sleep_us(5_000).await;
            let refused = log.append(key(9, 1), &[0; 30_000]).is_err();
            let then = shared.appended.borrow().len();
            disk.set_space(None);
            sim.sleep_us(300_000).await;
            assert!(shared.appended.borrow().len() > then, "seed {seed}: writes did not come back");
            refused
        });
        assert!(refused, "seed {seed}: the disk never was full");
        check(seed, &before.crash_clone(seed), &book, book.acknowledged.get());
    }
}
