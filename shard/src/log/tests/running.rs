//! A log at work: group commit, waiting, room, trimming, failures.
use super::*;
use crate::disk::{Calls, Failure};
use crate::twin;
use std::cell::Cell;

#[test]
fn records_come_back_in_order_over_many_segments_and_runs() {
    let first = records(7, 300);
    let disk = written_disk(&first);
    let (found, report) = scan_now(&disk);
    assert!(found == first);
    assert!(report.segments.live_bytes() > 5 * SEGMENT_BYTES, "several segments");
    assert_eq!((report.records, report.torn_bytes, report.generation_max), (300, 0, 1));
    assert_eq!(report.damage, Vec::<String>::new());
    let second: Vec<Record> = records(7, 350).split_off(300);
    sim::run(2, |sim| {
        let (disk, second) = (disk.clone(), second.clone());
        async move {
            let log = start(&sim, &disk, 2, SyncMode::Always).await;
            write_all(&log, &second).await;
        }
    });
    let (found, report) = scan_now(&disk);
    assert!(found == records(7, 350));
    assert_eq!(report.generation_max, 2);
}

#[test]
fn cores_and_generations_come_in_order() {
    sim::run(1, |sim| async move {
        let disk = SimDisk::new(1);
        for (core, generation) in [(1, 2), (0, 1), (10, 1), (0, 2), (1, 11)] {
            let config = config(core, generation, SyncMode::Always);
            let log = Log::create(Rc::new(disk.clone()), config).await.unwrap();
            sim.spawn(log.clone().flush_loop(sleeper(&sim)));
            write_all(&log, &[(key(u64::from(core), generation), vec![1])]).await;
            log.stop().await;
        }
        disk.put("log/strangers/1-1.wal", vec![1; 100]);
        disk.put("log/0/note.txt", vec![1; 100]);
        let (found, report) = scan_all(&disk).await;
        let keys: Vec<(u64, u64)> = found.iter().map(|(key, _)| (key.seq, key.collection)).collect();
        assert_eq!(keys, [(1, 0), (1, 10), (2, 0), (2, 1), (11, 1)]);
        assert_eq!(report.generation_max, 11);
    });
}

#[test]
fn what_is_appended_during_a_flush_shares_the_next_one() {
    sim::run(1, |sim| async move {
        let disk = SimDisk::new(1);
        let log = start(&sim, &disk, 1, SyncMode::Always).await;
        sim.sleep_us(1000).await;
        let (writes, syncs) = (disk.calls(Calls::Write), disk.calls(Calls::Sync));
        let tickets: Vec<Ticket> = records(1, 50).iter().map(|(k, b)| log.append(*k, b).unwrap()).collect();
        assert!(tickets.iter().all(|&ticket| ticket == tickets[0]));
        log.durable(tickets[0]).await.unwrap();
        assert_eq!((disk.calls(Calls::Write), disk.calls(Calls::Sync)), (writes + 1, syncs + 1));
    });
}

#[test]
fn a_waiter_is_woken_when_its_flush_is_durable_and_not_before() {
    struct Count(std::sync::atomic::AtomicUsize);
    impl std::task::Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    sim::run(1, |sim| async move {
        let disk = SimDisk::new(1);
        let log = Log::create(Rc::new(disk.clone()), config(0, 1, SyncMode::Always)).await.unwrap();
        let first = log.append(key(1, 1), b"x").unwrap();
        let mut flusher = Box::pin(log.clone().flush_loop(sleeper(&sim)));
        // Polled by hand until the first frame is on its way.
        disk.set_yielding(true);
        let counts: Vec<_> = (0..2).map(|_| std::sync::Arc::new(Count(Default::default()))).collect();
        let wakers: Vec<_> = counts.iter().map(|count| std::task::Waker::from(count.clone())).collect();
        let woken = |index: usize| counts[index].0.load(std::sync::atomic::Ordering::Relaxed);
        let mut waits = vec![log.durable(first)];
        let mut second = None;
        while woken(0) == 0 {
            let _ = waits[0].as_mut().poll(&mut std::task::Context::from_waker(&wakers[0]));
            let _ = futures_lite::future::poll_once(&mut flusher).await;
            if log.state.borrow().pending.is_empty() && second.is_none() {
                second = log.append(key(1, 2), b"x").ok();
                let mut wait = log.durable(second.unwrap());
                assert!(wait.as_mut().poll(&mut std::task::Context::from_waker(&wakers[1])).is_pending());
                waits.push(wait);
            }
        }
        assert!(second.unwrap() > first);
        assert_eq!(woken(1), 0);
        while woken(1) == 0 {
            let _ = futures_lite::future::poll_once(&mut flusher).await;
        }
        assert_eq!((woken(0), woken(1)), (1, 1));
    });
}

#[test]
fn a_record_longer_than_a_segment_gets_one_of_its_own_length() {
    let large = (key(1, 2), vec![9; 5 * SEGMENT_BYTES as usize]);
    let all = [(key(1, 1), vec![1]), large, (key(1, 3), vec![3; 5000])];
    let disk = written_disk(&all);
    assert!(scan_now(&disk).0 == all);
    sim::run(1, |sim| async move {
        let log = start(&sim, &disk, 2, SyncMode::Always).await;
        let refused = log.append(key(1, 4), &vec![0; RECORD_BYTES_MAX + 1]);
        assert_eq!(refused, Err(LogError::TooLarge(RECORD_BYTES_MAX + 1)));
        assert_eq!(log.make_room(usize::MAX).await, Err(LogError::TooLarge(usize::MAX)));
    });
}

#[test]
fn the_largest_record_is_taken() {
    let disk = written_disk(&[(key(1, 1), vec![7; RECORD_BYTES_MAX])]);
    let (found, _) = scan_now(&disk);
    assert!(found == [(key(1, 1), vec![7; RECORD_BYTES_MAX])]);
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    sim::run(1, |sim| async move {
        let disk = SimDisk::new(1);
        let log = start(&sim, &disk, 1, SyncMode::Always).await;
        sim.sleep_us(1000).await;
        disk.put("ballast", vec![0; 4096]);
        disk.set_space(Some(disk.used_bytes() + 2 * 4096));
        let mut seq = 0;
        let refused = loop {
            let body = vec![1; 3000];
            let ticket = match log.append(key(1, seq + 1), &body) {
                Ok(ticket) => ticket,
                Err(error) => break error,
            };
            seq += 1;
            log.durable(ticket).await.unwrap();
        };
        assert!(matches!(refused, LogError::NoSpace(_)), "{refused}");
        assert!(seq >= 13, "both allocated segments were filled: {seq}");
        sim.sleep_us(1000).await;
        let told = log.make_room(3000).await.unwrap_err().to_string();
        assert!(told.contains("No space left on device"), "{told}");
        log.append(key(1, seq + 1), &[1; 3000]).expect_err("still full");
        assert_eq!(disk.paths().len(), 3, "a failed allocation leaves nothing behind: {:?}", disk.paths());
        disk.set_space(None);
        sim.sleep_us(300_000).await;
        let ticket = log.append(key(1, seq + 1), &[1; 3000]).expect("space is back");
        log.durable(ticket).await.unwrap();
        let (found, _) = scan_all(&disk.crash_clone(1)).await;
        assert_eq!(found.len() as u64, seq + 1);
    });
}

#[test]
fn a_failed_write_or_sync_is_final() {
    for (calls, failure) in
        [(Calls::Write, Failure::Io), (Calls::Write, Failure::Short), (Calls::Sync, Failure::Io)]
    {
        sim::run(1, |sim| async move {
            let disk = SimDisk::new(1);
            let log = start(&sim, &disk, 1, SyncMode::Always).await;
            sim.sleep_us(1000).await;
            let good = log.append(key(1, 1), b"good").unwrap();
            log.durable(good).await.unwrap();
            disk.fail(calls, 0, failure);
            let bad = log.append(key(1, 2), b"bad").unwrap();
            let error = log.durable(bad).await.unwrap_err();
            assert!(matches!(&error, LogError::Failed(text) if text.contains("os error 5")), "{error}");
            assert_eq!(log.append(key(1, 3), b"more").unwrap_err(), error);
            assert_eq!(log.make_room(1).await.unwrap_err(), error);
            assert_eq!(log.durable(good).await, Ok(()), "what was durable stays so");
            log.stop().await;
            let (found, _) = scan_all(&disk.crash_clone(1)).await;
            assert_eq!(found[0], (key(1, 1), b"good".to_vec()));
        });
    }
}

#[test]
fn stop_flushes_and_refuses_afterwards() {
    for sync in [SyncMode::Always, SyncMode::Interval(1000), SyncMode::None] {
        sim::run(1, |sim| async move {
            let disk = SimDisk::new(1);
            let log = start(&sim, &disk, 1, sync).await;
            for (key, body) in records(1, 20) {
                log.append(key, &body).unwrap();
            }
            log.stop().await;
            assert!(matches!(log.append(key(1, 21), b"late"), Err(LogError::Failed(_))));
            for seed in 0..20 {
                let (found, report) = scan_all(&disk.crash_clone(seed)).await;
                assert_eq!((found.len(), report.torn_bytes), (20, 0), "{sync:?}");
            }
        });
    }
}

#[test]
fn a_dropped_loop_leaves_nobody_waiting() {
    sim::run(1, |sim| async move {
        let disk = SimDisk::new(1);
        let log = Log::create(Rc::new(disk), config(0, 1, SyncMode::Always)).await.unwrap();
        let mut flusher = Box::pin(log.clone().flush_loop(sleeper(&sim)));
        let _ = futures_lite::future::poll_once(&mut flusher).await;
        let ticket = log.append(key(1, 1), b"x").unwrap();
        drop(flusher);
        assert!(matches!(log.durable(ticket).await, Err(LogError::Failed(_))));
        log.stop().await;
    });
}

#[test]
fn an_interval_syncs_by_itself() {
    sim::run(1, |sim| async move {
        let disk = SimDisk::new(1);
        let log = start(&sim, &disk, 1, SyncMode::Interval(50)).await;
        sim.sleep_us(1000).await;
        let syncs = disk.calls(Calls::Sync);
        write_all(&log, &records(1, 5)).await;
        assert_eq!(disk.calls(Calls::Sync), syncs, "answers do not wait for the interval");
        sim.sleep_us(60_000).await;
        assert_eq!(disk.calls(Calls::Sync), syncs + 1);
        sim.sleep_us(500_000).await;
        assert_eq!(disk.calls(Calls::Sync), syncs + 1, "nothing new, nothing to sync");
        for seed in 0..20 {
            assert_eq!(scan_all(&disk.crash_clone(seed)).await.0.len(), 5);
        }
    });
}

#[test]
fn trimming_removes_what_is_covered_oldest_first() {
    sim::run(1, |sim| async move {
        let disk = SimDisk::new(1);
        let log = start(&sim, &disk, 1, SyncMode::Always).await;
        // Collection 2 writes once, early: it pins the first segment.
        write_all(&log, &[(key(2, 1), vec![2; 10])]).await;
        write_all(&log, &records(1, 60)).await;
        let before = log.live_bytes();
        let covered = Cell::new((Some(0), Some(0)));
        let by = |collection: u64| if collection == 1 { covered.get().0 } else { covered.get().1 };
        assert_eq!(log.pinned_by(&by), [1, 2]);
        covered.set((Some(60), Some(0)));
        assert_eq!(log.pinned_by(&by), [2]);
        log.trim(&by).await.unwrap();
        assert_eq!(log.live_bytes(), before, "collection 2 still needs the oldest");
        covered.set((Some(30), None));
        log.trim(&by).await.unwrap();
        let after = log.live_bytes();
        assert!(after < before && after > 0, "{after} of {before}");
        assert_eq!(log.pinned_by(&by), [1]);
        let (found, report) = scan_all(&disk.crash_clone(1)).await;
        assert!(found.iter().any(|(key, _)| key.seq == 31) && found.last().unwrap().0.seq == 60);
        assert_eq!(report.damage, Vec::<String>::new(), "a trimmed beginning is no damage");
        covered.set((Some(60), None));
        log.trim(&by).await.unwrap();
        assert!(log.live_bytes() <= SEGMENT_BYTES, "only the segment being filled is left");
        assert!(log.pinned_by(&by).is_empty());
        write_all(&log, &[(key(1, 61), vec![1])]).await;
    });
}

#[test]
fn a_segment_that_cannot_be_removed_is_tried_again() {
    sim::run(1, |sim| async move {
        let disk = SimDisk::new(1);
        let log = start(&sim, &disk, 1, SyncMode::Always).await;
        write_all(&log, &records(1, 60)).await;
        let before = log.live_bytes();
        disk.fail(Calls::Other, 0, Failure::Io);
        assert!(matches!(log.trim(&|_| None).await, Err(LogError::Trim(_))));
        assert_eq!(log.live_bytes(), before);
        log.trim(&|_| None).await.unwrap();
        assert!(log.live_bytes() < before);
    });
}

#[test]
fn old_segments_go_when_covered() {
    sim::run(1, |_| async move {
        let disk = written_disk(&records(1, 100));
        let (_, report) = scan_all(&disk).await;
        let old = report.segments;
        assert_eq!(old.pinned_by(&|_| Some(99)), Vec::<u64>::new(), "the oldest segment ends before 99");
        old.trim(&disk, &|_| Some(50)).await.unwrap();
        assert!(!old.is_empty());
        assert_eq!(old.pinned_by(&|_| Some(50)), [1]);
        let (found, report) = scan_all(&disk).await;
        assert!(found.iter().any(|(key, _)| key.seq == 51));
        assert_eq!(report.segments.live_bytes(), old.live_bytes());
        disk.fail(Calls::Other, 0, Failure::Io);
        assert!(matches!(old.trim(&disk, &|_| None).await, Err(LogError::Trim(_))));
        old.trim(&disk, &|_| None).await.unwrap();
        assert!(old.is_empty() && disk.paths().is_empty());
        assert_eq!(old.live_bytes(), 0);
    });
}

#[test]
fn a_generation_is_used_once_and_directories_are_numbered() {
    let disk = written_disk(&records(1, 1));
    futures_lite::future::block_on(async {
        let again = Log::create(Rc::new(disk.clone()), config(0, 1, SyncMode::Always)).await;
        assert!(matches!(again, Err(LogError::Failed(text)) if text.contains("not newer")));
        let config = LogConfig { dir: "log/zero".into(), ..config(0, 2, SyncMode::Always) };
        assert!(matches!(Log::create(Rc::new(disk.clone()), config).await, Err(LogError::Failed(_))));
    });
}

/// A reader of one collection skips segments that have nothing of it, and stops when it has enough.
#[test]
fn a_part_of_an_old_log_is_read_again() {
    use std::ops::ControlFlow;
    let (first, second) = (records(1, 200), records(2, 200));
    let disk = written_disk(&[first, second.clone()].concat());
    let (_, report) = scan_now(&disk);
    let read = |above: u64, most: usize| {
        let mut seen = 0;
        let mut found = Vec::new();
        let wanted = |collection: u64, highest: u64| collection == 2 && highest > above;
        let mut take = |key: RecordKey, body: &[u8]| {
            seen += 1;
            if key.collection == 2 && key.seq > above {
                found.push((key, body.to_vec()));
            }
            if found.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let reading = report.segments.read_again(&disk, &wanted, &mut take);
        futures_lite::future::block_on(reading).unwrap();
        (seen, found)
    };
    let (seen, found) = read(0, usize::MAX);
    assert_eq!(found, second);
    assert!(seen < 300, "{seen} records looked at");
    let (seen, found) = read(150, 20);
    assert_eq!(found, second[150..170]);
    assert!(seen < 60, "{seen} records looked at");
    report.segments.end_reading();
    assert_eq!(read(0, usize::MAX).0, 0);
}

/// Bytes of all segments on the disk.
fn segment_bytes(disk: &SimDisk) -> u64 {
    let segments = disk.paths().into_iter().filter(|path| path.extension().is_some_and(|e| e == "wal"));
    segments.map(|path| disk.bytes(path).unwrap().len() as u64).sum()
}

#[test]
fn a_log_begins_without_room_and_deletions_use_the_reserve() {
    use crate::reserve::Reserve;
    sim::run(1, |sim| async move {
        let disk = SimDisk::new(1);
        let reserve = Reserve::new(4 * SEGMENT_BYTES, 1);
        disk.set_space(Some(0));
        let (shared, timer) = (Rc::new(disk.clone()), sim.clone());
        let sleep = async |us| timer.sleep_us(us).await;
        let made = Log::create_with(shared, config(0, 1, SyncMode::Always), reserve.clone(), sleep).await;
        let log = made.expect("a full disk is no reason to end");
        sim.spawn(log.clone().flush_loop(sleeper(&sim)));
        assert!(log.is_short() && disk.paths().is_empty() && reserve.is_disk_full());
        for purpose in [Purpose::Grow, Purpose::Free] {
            assert!(matches!(log.make_room_for(purpose, 100).await, Err(LogError::NoSpace(_))));
            assert!(matches!(log.append_for(purpose, key(1, 1), b"x"), Err(LogError::NoSpace(_))));
        }
        // Room for the reserve and two segments, and nothing else.
        disk.set_space(Some(6 * SEGMENT_BYTES));
        reserve.fill(&disk).await.unwrap();
        sim.sleep_us(1_000_000).await;
        assert!(!log.is_short() && !reserve.is_disk_full());
        let mut seq = 0;
        while log.append(key(1, seq + 1), &[1; 3000]).is_ok() {
            seq += 1;
            sim.sleep_us(1000).await;
        }
        assert!(seq >= 13 && reserve.is_intact(), "both segments were filled with {seq} records");
        sim.sleep_us(300_000).await;
        assert!(matches!(log.make_room(3000).await, Err(LogError::NoSpace(_))) && reserve.is_disk_full());
        // Deletions go on, with a quarter of the reserve, and new data is refused although their segment has room for it.
        let mut freed = 0;
        while log.make_room_for(Purpose::Free, 3000).await.is_ok() {
            seq += 1;
            let ticket = log.append_for(Purpose::Free, key(1, seq), &[2; 3000]).unwrap();
            log.durable(ticket).await.unwrap();
            assert!(matches!(log.append(key(1, seq + 1), b"x"), Err(LogError::NoSpace(_))));
            freed += 1;
        }
        assert!(freed >= 4 && !reserve.is_intact(), "{freed}");
        assert_eq!(disk.bytes("reserve").unwrap().len() as u64, 3 * SEGMENT_BYTES);
        disk.set_space(None);
        reserve.fill(&disk).await.unwrap();
        sim.sleep_us(300_000).await;
        let ticket = log.append(key(1, seq + 1), b"x").expect("there is room");
        log.durable(ticket).await.unwrap();
        assert_eq!(scan_all(&disk.crash_clone(1)).await.0.len() as u64, seq + 1);
    });
}

#[test]
fn a_scan_gives_back_what_was_allocated_ahead_and_a_start_in_vain_leaves_nothing() {
    let disk = written_disk(&records(1, 3));
    let before = segment_bytes(&disk);
    let (found, report) = scan_now(&disk);
    assert!(found == records(1, 3));
    assert_eq!(segment_bytes(&disk), before, "a ledger may expect it still");
    futures_lite::future::block_on(report.segments.give_back(&disk));
    // A header and three frames of one block, and the header of the segment ahead.
    assert_eq!((before, segment_bytes(&disk)), (2 * SEGMENT_BYTES, 5 * 4096));
    assert!(scan_now(&disk).0 == records(1, 3));
    sim::run(1, |sim| async move {
        report.segments.trim(&disk, &|_| Some(0)).await.unwrap();
        assert_eq!(segment_bytes(&disk), 5 * 4096, "a segment with records stays, and what comes after it");
        let owners = Some(Owners { shards: 1, cores: 1 });
        let config = LogConfig { owners, ..config(0, 2, SyncMode::Always) };
        let log = Log::create(Rc::new(disk.clone()), config).await.unwrap();
        sim.spawn(log.clone().flush_loop(sleeper(&sim)));
        sim.sleep_us(1000).await;
        assert_eq!(segment_bytes(&disk), 5 * 4096 + 2 * SEGMENT_BYTES);
        log.discard().await;
        assert_eq!(segment_bytes(&disk), 5 * 4096);
        let ledgers = Ledgers::read(&disk, Path::new(ROOT)).await.unwrap();
        assert!(
            ledgers.all.is_empty() && ledgers.unreadable.is_empty(),
            "the ledger is gone with its segments"
        );
        // One that is killed instead is removed by the next.
        let _log = start(&sim, &disk, 2, SyncMode::Always).await;
        sim.sleep_us(1000).await;
        let (_, report) = scan_all(&disk).await;
        report.segments.trim(&disk, &|_| Some(0)).await.unwrap();
        assert_eq!(segment_bytes(&disk), 5 * 4096);
    });
}

/// Starts a log like [`start`] does, with a ledger.
async fn start_with_ledger(sim: &Sim, disk: &SimDisk, sync: SyncMode) -> Rc<Log> {
    let owners = Some(Owners { shards: 1, cores: 1 });
    let config = LogConfig { owners, ..config(0, 1, sync) };
    let log = Log::create(Rc::new(disk.clone()), config).await.expect("the disk is well");
    sim.spawn(log.clone().flush_loop(sleeper(sim)));
    log
}

#[test]
fn covered_segments_go_whatever_is_synced() {
    for sync in [SyncMode::Always, SyncMode::Interval(3_600_000), SyncMode::None] {
        sim::run(1, move |sim| async move {
            let log = start_with_ledger(&sim, &SimDisk::new(1), sync).await;
            for (key, body) in records(1, 400) {
                log.make_room(body.len()).await.unwrap();
                let ticket = log.append(key, &body).unwrap();
                log.durable(ticket).await.unwrap();
            }
            assert!(log.live_bytes() > 4 * SEGMENT_BYTES, "{sync:?}");
            log.trim(&|_| Some(400)).await.unwrap();
            assert!(log.live_bytes() <= SEGMENT_BYTES, "{sync:?}: {} bytes stay", log.live_bytes());
        });
    }
}

/// A ledger that was written while a segment was being filled must not miss it once it is trimmed: neither one with records nor one that was
/// too short for the record it was made for.
#[test]
fn a_power_loss_behind_a_trim_leaves_no_segment_to_be_missed() {
    for (long, trims) in [(0, 1), (40_000, 1), (40_000, 2)] {
        sim::run(1, move |sim| async move {
            let disk = SimDisk::new(1);
            let log = start_with_ledger(&sim, &disk, SyncMode::Always).await;
            write_all(&log, &records(1, 3)).await;
            log.store_ledger(Purpose::Free).await.unwrap();
            let mut last = 3;
            if long > 0 {
                last += 1;
                write_all(&log, &[(key(1, last), vec![7; long])]).await;
                sim.sleep_us(300_000).await;
                log.store_ledger(Purpose::Free).await.unwrap();
            }
            // Nothing of the next segment is on the device.
            loop {
                let filling = log.state.borrow().filling;
                log.make_room(20_000).await.unwrap();
                let ticket = log.append(key(1, last + 1), &[1; 20_000]).unwrap();
                last += 1;
                if log.state.borrow().filling > filling {
                    break;
                }
                log.durable(ticket).await.unwrap();
            }
            let durable = last - 1;
            for _ in 0..trims {
                log.trim(&|_| Some(durable)).await.unwrap();
            }
            assert!(disk.bytes(segment_path(0, 1, 1)).is_none(), "the first segment is covered");
            let disk = disk.crash_clone(1);
            let ledgers = Ledgers::read(&disk, Path::new(ROOT)).await.unwrap();
            let room = &ledger::NoRoom;
            let report = scan_with(&disk, Path::new(ROOT), &ledgers, room, 0, &mut |_, _| ()).await.unwrap();
            for chain in &report.chains {
                assert!(
                    !chain.may_lack(1, durable, |_| 0) && !chain.may_lack(2, 0, |_| 0),
                    "{long}: {chain:?}"
                );
            }
        });
    }
}

/// The ledger that has to be written before a torn tail is cut finds no room; that must not keep a process from starting.
#[test]
fn a_torn_end_is_cut_on_a_full_disk() {
    let disk = SimDisk::new(1);
    sim::run(1, |sim| {
        let disk = disk.clone();
        async move {
            let log = start_with_ledger(&sim, &disk, SyncMode::Always).await;
            write_all(&log, &records(1, 3)).await;
        }
    });
    let path = segment_path(0, 1, 1);
    let mut bytes = disk.bytes(&path).unwrap();
    let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[last] ^= 1;
    disk.put(&path, bytes);
    for ledger in disk.paths().into_iter().filter(|path| path.extension().is_some_and(|end| end == "ledger"))
    {
        // A full disk may have left the ledger without a copy that could give up its room.
        if ledger.starts_with(twin::COPIES) {
            futures_lite::future::block_on(disk.remove(&ledger)).unwrap();
        }
    }
    disk.set_space(Some(disk.used_bytes()));
    sim::run(1, move |_| async move {
        let (mut found, root) = (0, Path::new(ROOT));
        let ledgers = Ledgers::read(&disk, root).await.unwrap();
        let mut take = |_: RecordKey, _: &[u8]| found += 1;
        let room = &ledger::NoRoom;
        let report = scan_with(&disk, root, &ledgers, room, 0, &mut take).await.unwrap();
        assert!(found == 2 && report.damage.is_empty() && report.torn_bytes > 0, "{found} {report:?}");
        assert!(!report.chains.iter().any(|chain| chain.may_lack(1, 2, |_| 0)));
        report.segments.settle(&disk, ledgers, report.chains, &|_| false, room).await.unwrap();
        report.segments.trim(&disk, &|_| Some(100)).await.unwrap();
        assert_eq!(disk.bytes(&path), None, "it is covered");
    });
}
