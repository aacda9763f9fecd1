//! What is lost when a store is full, what is not, and how much memory it takes.

use super::super::{Config, Effect, Op, Stats, Writer};
use super::bed::{NOW, config, get, put, store};
use crate::random::SplitMix64;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn fill(writer: &mut Writer, from: u64, to: u64, len: usize) {
    (from..to).for_each(|n| put(writer, &n.to_be_bytes(), &vec![n as u8; len], 0, NOW));
}

fn present(writer: &mut Writer, from: u64, to: u64) -> u64 {
    (from..to).filter(|n| writer.get(&n.to_be_bytes(), NOW, &mut Vec::new()).is_some()).count() as u64
}

fn check_sizes(stats: &Stats) {
    let allocated = stats.pages_allocated * stats.page_bytes;
    assert!(stats.pages_allocated <= stats.pages, "without readers no spare page is needed: {stats:?}");
    assert!(stats.live_bytes <= stats.used_bytes && stats.used_bytes <= allocated, "{stats:?}");
    // What tables take is taken from the pages when the next one is opened: up to half of them, in whole pages.
    let budget = stats.pages * stats.page_bytes;
    let tables = (stats.table_bytes + stats.wheel_bytes).min(budget / 2);
    assert!(allocated + tables <= budget + 2 * stats.page_bytes, "{stats:?}");
}

#[test]
fn the_oldest_written_goes_first_and_every_loss_is_counted() {
    let (mut writer, _, _) = store(config(64 << 10, 1 << 12, 0));
    fill(&mut writer, 0, 5000, 64);
    let stats = writer.stats();
    check_sizes(&stats);
    let kept = present(&mut writer, 0, 5000);
    assert_eq!(kept, stats.keys as u64);
    assert_eq!(kept + stats.evictions_live, 5000);
    assert_eq!(present(&mut writer, 5000 - kept, 5000), kept, "the newest are kept");
    // 96 bytes each: the open page may be almost empty and its successor emptied, so 14 pages of those that tables leave of 16, at least.
    let tables = (stats.table_bytes + stats.wheel_bytes).div_ceil(4096);
    assert!(kept as usize * 96 >= (14 - tables) * (4096 - 96), "{kept} beside {tables} pages of tables");
    assert_eq!(stats.rejects, 0);
}

/// A page has hundreds of records; no write pays for all of them.
#[test]
fn emptying_is_spread_over_writes() {
    for knobs in [0, 1, 5] {
        let (mut writer, _, _) = store(config(1 << 20, 1 << 16, knobs));
        let mut most = 0;
        let met = |writer: &Writer| writer.stats().evictions + writer.stats().eviction_relocations;
        for n in 0..40_000u64 {
            let before = met(&writer);
            put(&mut writer, &n.to_be_bytes(), &vec![1; 8 + n as usize % 120], 0, NOW);
            most = most.max(met(&writer) - before);
        }
        assert!(writer.stats().evictions > 20_000);
        assert!((1..40).contains(&most), "{most} records in one write");
    }
}

#[test]
fn every_store_from_two_pages_on_takes_writes_for_ever() {
    for pages in 2..20 {
        for knobs in 0..8 {
            let (mut writer, view, seat) = store(config(pages << 12, 1 << 12, knobs));
            assert!(writer.stats().pages >= 2);
            for n in 0..3000u64 {
                let len = [0, 10, 100, 1000, 1900][(n * n % 5) as usize];
                put(&mut writer, &n.to_be_bytes(), &vec![n as u8; len], n % 7 * 100, NOW);
                let found = get(&view, &seat, &n.to_be_bytes(), NOW);
                assert_eq!(found, Some(vec![n as u8; len]), "a write is there at once");
                // Rewrites keep some pages mixed.
                put(&mut writer, &(n % 13).to_be_bytes(), b"again", 0, NOW);
            }
            check_sizes(&writer.stats());
            assert_eq!(writer.stats().rejects, 0);
        }
    }
}

#[test]
fn relocation_rescues_half_a_page_and_the_sieve_what_is_read() {
    // Two of each page of keys are hot: read between any two passes.
    const HOT: u64 = 20;
    const APART: u64 = 20;
    let hot_kept = |knobs: u32| {
        let (mut writer, _, _) = store(config(64 << 10, 1 << 12, knobs));
        for n in 0..20_000u64 {
            put(&mut writer, &n.to_be_bytes(), &[1; 64], 0, NOW);
            for hot in 0..4 {
                let hot = (n * 4 + hot) % HOT * APART;
                writer.get(&hot.to_be_bytes(), NOW, &mut Vec::new());
            }
        }
        let stats = writer.stats();
        assert_eq!(stats.keys as u64 + stats.evictions_live, 20_000, "{stats:?}");
        check_sizes(&stats);
        let half_pages = stats.pages_evicted * stats.page_bytes as u64 / 2;
        assert!(stats.eviction_bytes_relocated <= half_pages + stats.page_bytes as u64 / 2, "{stats:?}");
        assert_eq!(stats.eviction_relocations > 0, knobs & 1 != 0);
        (0..HOT).filter(|hot| present(&mut writer, hot * APART, hot * APART + 1) == 1).count() as u64
    };
    assert_eq!(hot_kept(0), 0, "the oldest go, hot or not");
    assert_eq!(hot_kept(4), 0, "the sieve needs relocation");
    assert_eq!(hot_kept(5), HOT, "what is read survives a scan of twenty thousand keys");
}

#[test]
fn a_mark_is_good_for_one_pass() {
    let (mut writer, _, _) = store(config(64 << 10, 1 << 12, 5));
    put(&mut writer, b"once", b"v", 0, NOW);
    put(&mut writer, b"never", b"v", 0, NOW);
    writer.get(b"once", NOW, &mut Vec::new());
    let mut lost = [0, 0];
    for n in 0..3000u64 {
        put(&mut writer, &n.to_be_bytes(), &[1; 64], 0, NOW);
        // Looking for it without marking it.
        for (lost, key) in lost.iter_mut().zip([&b"once"[..], b"never"]) {
            let hash = writer.view().hash_of(key).0;
            if *lost == 0 && writer.locate(hash, key).is_none() {
                *lost = n;
            }
        }
    }
    let [once, never] = lost;
    assert!(never > 0 && once > never + 300, "{lost:?}");
}

#[test]
fn the_reserve_keeps_pages_free_and_loses_nothing() {
    let (mut writer, _, _) = store(config(256 << 10, 1 << 14, 1));
    // 100 KiB alive in 256 KiB, rewritten over and over.
    let keys = 1000u64;
    let mut random = 3u64;
    for n in 0..40_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        put(&mut writer, &((random >> 33) % keys).to_be_bytes(), &[n as u8; 64], 0, NOW);
        if n % 10 == 0 {
            writer.relocate_step(NOW, 4096);
        }
    }
    let stats = writer.stats();
    assert_eq!((stats.evictions, stats.keys as u64), (0, keys), "{stats:?}");
    assert!(stats.reserve_pages_freed > 100, "{stats:?}");
    check_sizes(&stats);
    // Nothing but live records: the reserve has nothing to gain and stops.
    let (mut writer, _, _) = store(config(256 << 10, 1 << 14, 1));
    fill(&mut writer, 0, 2400, 64);
    let before = writer.stats();
    assert!(before.pages_free < 2, "{before:?}");
    assert!((0..100).filter(|_| writer.relocate_step(NOW, 1 << 20)).count() < 3);
    assert_eq!(present(&mut writer, 0, 2400), before.keys as u64);
}

/// Eviction had begun to empty a page when others came free: the reserve goes on from there instead of waiting for it.
#[test]
fn the_reserve_takes_over_from_an_eviction_that_is_not_needed_any_more() {
    let (mut writer, _, _) = store(config(256 << 10, 1 << 14, 1));
    let mut written = 0;
    while writer.drain.is_none() {
        fill(&mut writer, written, written + 1, 64);
        written += 1;
    }
    assert_eq!(writer.stats().pages_free, 0);
    // Of the newest half every eighth key stays, and of some pages none.
    for n in (written / 2..written).filter(|n| n % 8 != 0 || *n > written - 500) {
        writer.apply(&Effect::Delete { key: &n.to_be_bytes() }, NOW).unwrap();
    }
    let before = writer.stats();
    assert!(before.pages_free == 0 && before.pages_waiting > 0, "{before:?}");
    fill(&mut writer, 0, 10, 64);
    while writer.relocate_step(NOW, 1000) {}
    let after = writer.stats();
    assert!(after.pages_free >= 2 && after.evictions == before.evictions, "{before:?} {after:?}");
    assert!(writer.drain.is_none());
}

#[test]
fn a_page_without_live_entries_is_free_at_once() {
    let (mut writer, _, _) = store(config(256 << 10, 1 << 14, 0));
    for n in 0..100_000u64 {
        put(&mut writer, &(n % 50).to_be_bytes(), &[n as u8; 64], 0, NOW);
    }
    let stats = writer.stats();
    assert_eq!((stats.evictions, stats.keys), (0, 50), "{stats:?}");
    assert!(stats.pages_allocated <= 4, "pages are used again before fresh ones: {stats:?}");
}

#[test]
fn a_reader_that_stays_costs_spare_pages_and_then_writes() {
    let (mut writer, view, seat) = store(config(64 << 10, 1 << 12, 0));
    fill(&mut writer, 0, 2000, 64);
    let pin = seat.pin();
    let mut written = 0u64;
    let refused = loop {
        match writer.prepare(&Op::Put { key: &written.to_be_bytes(), value: &[2; 64], ttl_ms: 0 }, NOW) {
            Ok(prepared) => writer.apply(&prepared.effect.unwrap(), NOW).unwrap(),
            Err(error) => break error,
        }
        written += 1;
        assert!(written < 10_000, "memory is bounded");
    };
    assert_eq!(refused.to_string(), "store full");
    assert!(written > 40, "{written}");
    let stats = writer.stats();
    assert!(stats.pages_allocated <= stats.pages + 2 && stats.rejects == 1, "{stats:?}");
    assert!(stats.pages_waiting > 0);
    drop(pin);
    fill(&mut writer, 0, 2000, 64);
    check_sizes(&writer.stats());
    assert_eq!(get(&view, &seat, &1999u64.to_be_bytes(), NOW), Some(vec![1999u64 as u8; 64]));
}

/// Keys that nobody rewrites stay while others are rewritten for many times the budget, and no more memory is used than that needs.
#[test]
fn nothing_alive_goes_while_enough_is_dead() {
    for knobs in 0..8 {
        let (mut writer, _, _) = store(config(1 << 20, 1 << 14, knobs));
        fill(&mut writer, 0, 3000, 64);
        for n in 0..200_000u64 {
            // Of two lengths, so that none is rewritten in place for long.
            let value = vec![n as u8; 60 + (n / 1000) as usize % 2 * 8];
            put(&mut writer, &(10_000 + n * n % 1009).to_be_bytes(), &value, 0, NOW);
        }
        let stats = writer.stats();
        check_sizes(&stats);
        assert_eq!((stats.evictions_live, stats.rejects), (0, 0), "{stats:?}");
        assert_eq!(present(&mut writer, 0, 3000), 3000);
        let allocated = stats.pages_allocated * stats.page_bytes;
        assert!(allocated <= 2 * stats.live_bytes + 6 * stats.page_bytes, "{stats:?}");
    }
}

/// Mixed sizes, deadlines, deletes, for many times the budget: memory stays within it, by the system's count as well.
#[test]
fn memory_stays_within_the_budget_under_churn() {
    let budget = 16 << 20;
    for knobs in [0, 1, 7] {
        let (mut writer, _, _) = store(Config { page_bytes_min: 1 << 18, ..config(budget, 1 << 18, knobs) });
        let mut random = 5u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 30
        };
        let mut now = NOW;
        for n in 0..150_000u64 {
            let len = match next() % 100 {
                0..=79 => next() % 200,
                80..=98 => next() % 8000,
                _ => next() % (3 << 20) / 8,
            } as usize;
            let ttl = if next() % 2 == 0 { 0 } else { 1 + next() % 5000 };
            let key = (next() % 40_000).to_be_bytes();
            now += 1;
            match next() % 10 {
                0 => writer.apply(&Effect::Delete { key: &key }, now).unwrap(),
                _ => put(&mut writer, &key, &vec![n as u8; len], ttl, now),
            }
            if n % 100 == 0 {
                writer.sweep(now, 1000);
            }
            if n % 1000 == 0 {
                check_sizes(&writer.stats());
            }
        }
        let stats = writer.stats();
        assert!(stats.evictions > 0 && stats.rejects == 0, "{stats:?}");
        let words = writer.shared.words.resident_bytes(stats.pages * stats.page_bytes / 8);
        assert!(words <= budget + (1 << 20), "{words} bytes resident of {budget}");
        assert!(stats.live_bytes * 2 > budget, "no more than half is wasted: {stats:?}");
        assert!(stats.table_bytes < stats.keys * 40, "{stats:?}");
    }
}

fn forget_evicted(writer: &mut Writer, keys: &mut HashSet<u64>) {
    writer.take_evicted(|key| {
        keys.remove(&u64::from_be_bytes(key.try_into().unwrap()));
    });
}

/// A read-out in small steps while everything is rewritten, moved and evicted: what was there all the time is in it.
#[test]
fn a_read_out_has_every_key_that_was_there_all_the_time() {
    for knobs in 0..8 {
        let (mut writer, _, _) = store(config(512 << 10, 1 << 13, knobs));
        let mut random = 11u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 30
        };
        writer.note_evicted();
        fill(&mut writer, 0, 1500, 40);
        for scan in 0..20u64 {
            let mut constant: HashSet<u64> = (0..1500u64)
                .filter(|n| writer.get(&n.to_be_bytes(), NOW, &mut Vec::new()).is_some())
                .collect();
            let mut seen = HashSet::new();
            let mut cursor = writer.snapshot();
            let mut fresh = 10_000 * (scan + 1);
            while writer.snapshot_step(&mut cursor, NOW, 2000, |key, value, deadline| {
                assert!(deadline == 0 && (value.len() == 40 || value.len() == 41));
                seen.insert(u64::from_be_bytes(key.try_into().unwrap()));
            }) {
                for _ in 0..3 {
                    // The same length, another, a new key, one that goes.
                    let n = next() % 1500;
                    put(&mut writer, &n.to_be_bytes(), &vec![3; 40 + next() as usize % 2], 0, NOW);
                    fresh += 1;
                    put(&mut writer, &fresh.to_be_bytes(), &[4; 40], 0, NOW);
                    let gone = next() % 1500;
                    writer.apply(&Effect::Delete { key: &gone.to_be_bytes() }, NOW).unwrap();
                    constant.remove(&gone);
                    writer.relocate_step(NOW, 500);
                }
                forget_evicted(&mut writer, &mut constant);
            }
            forget_evicted(&mut writer, &mut constant);
            assert!(constant.is_subset(&seen), "{:?}", constant.difference(&seen).collect::<Vec<_>>());
            assert!(!constant.is_empty());
        }
    }
}

/// Nobody sweeps, and sessions that have expired fill the store many times: keys without a deadline stay, also under a clock that was
/// set back before, and beside values that need many pages at once.
#[test]
fn nothing_alive_goes_while_expired_keys_could() {
    for knobs in 0..8 {
        for set_back_ms in [0, 3_600_000] {
            let (mut writer, _, _) = store(config(1 << 20, 1 << 13, knobs));
            fill(&mut writer, 0, 2000, 64);
            writer.sweep(NOW + set_back_ms, 1);
            let mut now = NOW;
            for n in 0..20_000u64 {
                now += 10;
                let len = if n % 50 == 0 { 40_000 } else { n as usize % 700 };
                put(&mut writer, &(10_000 + n).to_be_bytes(), &vec![1; len], 1000, now);
            }
            let stats = writer.stats();
            check_sizes(&stats);
            assert_eq!((stats.evictions_live, stats.rejects), (0, 0), "{stats:?}");
            assert_eq!(present(&mut writer, 0, 2000), 2000);
        }
    }
}

/// An image has keys that were never there together, and the deletions come later: what had to go meanwhile can be read a second time. Where too much
/// is alive, what has the soonest deadline goes first.
#[test]
fn a_store_that_is_read_keeps_what_fits() {
    let set = |writer: &mut Writer, n: u64, deadline_ms| {
        let (key, value) = (n.to_be_bytes(), vec![n as u8; 64].into());
        writer.apply(&Effect::Set { key: &key, value, deadline_ms }, NOW)
    };
    for knobs in 0..8 {
        let (mut writer, _, _) = store(config(1 << 20, 1 << 13, knobs));
        writer.note_evicted();
        writer.begin_restore();
        (0..20_000).for_each(|n| set(&mut writer, n, 0).unwrap());
        (5_000..20_000u64)
            .for_each(|n| writer.apply(&Effect::Delete { key: &n.to_be_bytes() }, NOW).unwrap());
        assert!(present(&mut writer, 0, 5_000) < 5_000);
        assert!(writer.refill());
        (0..5_000).for_each(|n| set(&mut writer, n, 0).unwrap());
        assert!(writer.stats().evictions_live > 0);
        writer.finish_restore(0);
        assert_eq!(present(&mut writer, 0, 5_000), 5_000);
        let stats = writer.stats();
        assert_eq!((stats.evictions_live, stats.evicted_live_bytes), (0, 0), "all have come back");
        check_memory_after_restore(&writer.stats());

        let (mut writer, _, _) = store(config(1 << 20, 1 << 13, knobs));
        writer.begin_restore();
        (0..3_000).for_each(|n| set(&mut writer, n, 0).unwrap());
        (3_000..40_000).for_each(|n| set(&mut writer, n, NOW + n).unwrap());
        assert_eq!(present(&mut writer, 0, 3_000), 3_000, "those without a deadline");
        let kept = present(&mut writer, 3_000, 40_000);
        assert!(kept > 1_000 && writer.stats().evictions_live == 37_000 - kept);
        assert!(present(&mut writer, 39_900, 40_000) > 90, "those that end last");
        check_memory_after_restore(&writer.stats());
    }
}

/// An image may hold far more than the store ever held at one time. When the last of it is gone, so is the memory that it took, whether
/// it lay in pages of its own or among what is alive.
#[test]
fn a_store_that_was_read_gives_back_what_it_needed_on_the_way() {
    for (knobs, len) in (0..8).flat_map(|knobs| [(knobs, 64), (knobs, 5000), (knobs, 23_000)]) {
        for every in [1, 3, 10] {
            let (mut writer, view, seat) = store(config(4 << 20, 1 << 13, knobs));
            let granted = Arc::new(AtomicUsize::new(0));
            let counted = granted.clone();
            writer.grow_with(Arc::new(move |bytes| {
                counted.fetch_add(bytes, Relaxed);
                true
            }));
            writer.note_evicted();
            writer.begin_restore();
            let keys = (3 << 20) / (len as u64 + 40);
            let value = |n: u64| vec![n as u8; len];
            let key = |n: u64| n.to_be_bytes();
            for n in 0..keys {
                let set = Effect::Set { key: &key(n), value: value(n).into(), deadline_ms: 0 };
                writer.apply(&set, NOW).unwrap();
            }
            let most = writer.stats();
            let is_kept = |n: u64| if every == 1 { n < keys / 10 } else { n.is_multiple_of(every) };
            for n in (0..keys).filter(|n| !is_kept(*n)) {
                writer.apply(&Effect::Delete { key: &key(n) }, NOW).unwrap();
            }
            writer.finish_restore(0);
            compact_all(&mut writer);
            let stats = writer.stats();
            let allocated = stats.pages_allocated * stats.page_bytes;
            assert_eq!(stats.evictions_live, 0);
            assert!(
                allocated < stats.live_bytes * 4 / 3 + stats.live_bytes / 8 + 4 * stats.page_bytes
                    && allocated < most.pages_allocated * most.page_bytes / 2,
                "{knobs} {len} {every}: {allocated} bytes allocated, {most:?} {stats:?}"
            );
            for n in 0..keys {
                let found = get(&view, &seat, &key(n), NOW);
                assert_eq!(found, is_kept(n).then(|| value(n)), "{n}");
            }
            // What was given back is asked for again.
            let before = granted.load(Relaxed);
            fill(&mut writer, keys, keys + keys / 4, len);
            assert!(granted.load(Relaxed) > before);
        }
    }
}

/// Copies what is alive together. Ends as its documentation says.
fn compact_all(writer: &mut Writer) {
    let most = 16 * writer.stats().pages_allocated + 1;
    let copies = (0..=most).take_while(|_| writer.compact_restored(NOW)).count();
    assert!(copies <= most, "{copies} copies of {most} pages: {:?}", writer.stats());
}

/// Entries of which few fit into a page leave its end unused, and they leave it unused wherever they are copied to. A page that has nothing
/// dead was copied for ever, so that a start did not end and a server without requests was never idle.
#[test]
fn large_entries_are_not_copied_for_ever() {
    let mut random = SplitMix64(7);
    for (knobs, (least, most)) in (0..8).flat_map(|knobs| {
        let parts =
            [(0.05, 0.5), (0.2, 0.5), (0.25, 0.5), (0.33, 0.5), (0.3, 0.4), (0.345, 0.365), (0.51, 0.6)];
        parts.map(|parts| (knobs, parts))
    }) {
        let (mut writer, view, seat) = store(config(4 << 20, 1 << 13, knobs));
        let page = writer.stats().page_bytes;
        writer.note_evicted();
        writer.begin_restore();
        let lens: Vec<usize> =
            (0..60).map(|_| (page as f64 * (least + random.unit() * (most - least))) as usize).collect();
        for (n, &len) in lens.iter().enumerate() {
            let (key, value) = (n.to_be_bytes(), vec![n as u8; len]);
            writer.apply(&Effect::Set { key: &key, value: value.into(), deadline_ms: 0 }, NOW).unwrap();
        }
        let is_gone = |n: usize| n % 10 < 3;
        for n in (0..lens.len()).filter(|&n| is_gone(n)) {
            writer.apply(&Effect::Delete { key: &n.to_be_bytes() }, NOW).unwrap();
        }
        writer.finish_restore(0);
        compact_all(&mut writer);
        // The background comes to an end as well, and so do the copies that writes make.
        let steps = (0..10_000).take_while(|_| writer.relocate_step(NOW, page)).count();
        assert!(steps < 10_000, "{knobs} {least}..{most}: {:?}", writer.stats());
        for (n, &len) in lens.iter().enumerate() {
            let found = get(&view, &seat, &n.to_be_bytes(), NOW);
            assert_eq!(found, (!is_gone(n)).then(|| vec![n as u8; len]), "{n}");
        }
    }
}

/// Some spare pages may be in use.
fn check_memory_after_restore(stats: &Stats) {
    assert!(stats.pages_allocated <= stats.pages + stats.pages / 8 + 1, "{stats:?}");
}
