//! How long operations take, in time of the processor, so that others on the machine disturb less; figures only, nothing is
//! asserted on them.
//!
//! `cargo test -p nigh-engine --release --lib kv::tests::speed -- --ignored --nocapture`

use super::super::{Config, Op, Read};
use super::bed::{NOW, config, put, store};
use std::time::Instant;

/// Time this thread has run, ns.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time` alone.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

const KEYS: u64 = 1 << 20;

fn key_of(n: u64) -> [u8; 16] {
    let mut key = *b"key:............";
    key[4..12].copy_from_slice(&n.to_be_bytes());
    key
}

fn timed(what: &str, count: u64, mut run: impl FnMut(u64)) {
    let start = cpu_ns();
    (0..count).for_each(&mut run);
    println!("{what}: {} ns", (cpu_ns() - start) / count);
}

/// Visits all numbers below `KEYS` in an order that no cache foresees.
fn scattered(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44
}

#[test]
#[ignore = "figures"]
fn a_million_keys_of_64_bytes() {
    for knobs in [0, 7] {
        println!("-- policies {knobs:03b}");
        let (mut writer, view, seat) = store(config(512 << 20, 1 << 20, knobs));
        timed("put, new", KEYS, |n| put(&mut writer, &key_of(n), &[n as u8; 64], 0, NOW));
        timed("put, rewritten in order", KEYS, |n| put(&mut writer, &key_of(n), &[n as u8; 64], 0, NOW));
        timed("put, rewritten", KEYS, |n| put(&mut writer, &key_of(scattered(n)), &[n as u8; 64], 0, NOW));
        timed("put, with a deadline", KEYS, |n| {
            put(&mut writer, &key_of(scattered(n)), &[n as u8; 64], 1 + n, NOW)
        });
        let mut out = Vec::new();
        let mut found = 0;
        let mut get = |n: u64| {
            let key = key_of(n);
            out.clear();
            let pin = seat.pin();
            found += u64::from(view.get(&pin, view.hash_of(&key), &key, NOW, &mut out) != Read::Missing);
        };
        timed("get, one key again and again", KEYS, |_| get(5));
        timed("get, a thousand keys", KEYS, |n| get(scattered(n) % 1000));
        timed("get, all keys", KEYS, |n| get(scattered(n)));
        timed("get, absent", KEYS, |n| get(KEYS + n));
        assert_eq!(found, 3 * KEYS);
        timed("get, 16 keys of all at a time, together", KEYS / 16, |batch| {
            let pin = seat.pin();
            let keys: [_; 16] = std::array::from_fn(|n| key_of(scattered(batch * 16 + n as u64)));
            let hashes = keys.each_ref().map(|key| view.hash_of(key));
            hashes.iter().for_each(|&hash| view.prefetch_bucket(&pin, hash));
            hashes.iter().for_each(|&hash| view.prefetch_entry(&pin, hash));
            for (key, hash) in keys.iter().zip(hashes) {
                out.clear();
                assert!(view.get(&pin, hash, key, NOW, &mut out) != Read::Missing);
            }
        });
        timed("put, 16 keys of all at a time, together", KEYS / 16, |batch| {
            let keys: [_; 16] = std::array::from_fn(|n| key_of(scattered(batch * 16 + n as u64)));
            let hashes = keys.each_ref().map(|key| view.hash_of(key));
            {
                let pin = seat.pin();
                hashes.iter().for_each(|&hash| view.prefetch_bucket(&pin, hash));
                hashes.iter().for_each(|&hash| view.prefetch_entry(&pin, hash));
            }
            keys.iter().for_each(|key| put(&mut writer, key, &[batch as u8; 64], 1 + batch, NOW));
        });
        timed("incr", KEYS, |n| {
            let op = Op::Incr { key: &n.to_le_bytes()[..2], delta: 1 };
            let prepared = writer.prepare(&op, NOW).unwrap();
            writer.apply(&prepared.effect.unwrap(), NOW).unwrap();
        });
        let stats = writer.stats();
        println!("{} bytes of table per key", stats.table_bytes / stats.keys);
        let start = cpu_ns();
        while writer.sweep(NOW + 10 * KEYS, 1000) {}
        println!("sweep: {} ns per key", (cpu_ns() - start) / KEYS);
        let start = Instant::now();
        put(&mut writer, b"k", b"v", 0, NOW);
        let flush = writer.prepare(&Op::Flush, NOW).unwrap().effect.unwrap();
        writer.apply(&flush, NOW).unwrap();
        println!("flush: {:.0} us", start.elapsed().as_nanos() as f64 / 1000.0);
        let mut longest = 0;
        loop {
            let start = Instant::now();
            let more = writer.tidy();
            longest = longest.max(start.elapsed().as_micros());
            if !more {
                break;
            }
        }
        println!("longest slice after it: {longest} us");
    }
}

#[test]
#[ignore = "figures"]
fn writes_at_capacity() {
    for knobs in [0, 1, 5] {
        let (mut writer, _, _) = store(Config { ..config(64 << 20, 1 << 20, knobs) });
        let mut next = 0;
        let mut one = |_: u64| {
            put(&mut writer, &key_of(next), &[next as u8; 64], 0, NOW);
            next += 1;
        };
        println!("-- policies {knobs:03b}");
        timed("put, filling", 1 << 19, &mut one);
        timed("put, at capacity", 1 << 21, &mut one);
        let (mut longest, mut slow) = (0, 0);
        for n in 0..1 << 20 {
            let start = cpu_ns();
            one(n);
            let took = cpu_ns() - start;
            longest = longest.max(took);
            slow += u64::from(took > 50_000);
        }
        println!("   of a million more: longest {} us, {slow} over 50 us", longest / 1000);
        println!("   {:?}", writer.stats());
    }
}
