//! Readers on other threads while the owner does everything it can.

use super::super::{Config, KeyHasher, Op, Read, View, Writer};
use super::bed::{NOW, config};
use crate::memory::Domain;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const KEYS: u64 = 3000;
const READERS: usize = 2;

fn key_of(n: u64) -> Vec<u8> {
    let mut key = n.to_be_bytes().to_vec();
    key.resize(8 + (n % 40) as usize, n as u8);
    key
}

/// A value that says whose it is, which version, and whether it is whole.
fn value_of(n: u64, version: u64, len: usize) -> Vec<u8> {
    let words = [n, version, n ^ version.rotate_left(17)];
    words.iter().cycle().flat_map(|word| word.to_le_bytes()).take(24 + len).collect()
}

/// The version of a value that is whole and the key's.
fn version_in(n: u64, value: &[u8]) -> u64 {
    let version = u64::from_le_bytes(value[8..16].try_into().unwrap());
    assert!(value == value_of(n, version, value.len() - 24), "key {n}: a value that was never written");
    version
}

struct Bed {
    writer: Writer,
    version: u64,
    now: AtomicU64,
    random: u64,
}

impl Bed {
    fn next(&mut self) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 24
    }

    fn run(&mut self, op: Op<'_>) {
        let now = self.now.load(Relaxed);
        let prepared = loop {
            match self.writer.prepare(&op, now) {
                Ok(prepared) => break prepared,
                // A reader was descheduled under its pin and all spare pages are in use.
                Err(error) => assert_eq!(error.to_string(), "store full"),
            }
            std::thread::yield_now();
        };
        if let Some(effect) = prepared.effect {
            self.writer.apply(&effect, now).unwrap();
        }
    }

    fn put(&mut self, n: u64, len: usize, ttl_ms: u64) {
        self.version += 1;
        let (key, value) = (key_of(n), value_of(n, self.version, len));
        self.run(Op::Put { key: &key, value: &value, ttl_ms });
    }
}

/// Reads random keys until told to stop; `check` sees each answer.
fn read(
    view: &View,
    domain: &std::sync::Arc<Domain>,
    index: usize,
    done: &AtomicBool,
    now: &AtomicU64,
    mut check: impl FnMut(u64, Option<u64>),
) -> (u64, u64) {
    let seat = domain.participant(index);
    let (mut value, mut random) = (Vec::new(), index as u64 + 77);
    let (mut hits, mut contended) = (0, 0);
    while !done.load(Relaxed) {
        let pin = seat.pin();
        for _ in 0..8 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let n = (random >> 33) % KEYS;
            let key = key_of(n);
            value.clear();
            let hash = view.hash_of(&key);
            view.prefetch_bucket(&pin, hash);
            view.prefetch_entry(&pin, hash);
            let now = now.load(Relaxed);
            match view.get(&pin, hash, &key, now, &mut value) {
                Read::Found { deadline_ms } => {
                    assert!(deadline_ms == 0 || now < deadline_ms);
                    hits += 1;
                    check(n, Some(version_in(n, &value)));
                }
                Read::Missing => check(n, None),
                Read::Contended => {
                    assert!(value.is_empty());
                    contended += 1;
                }
            }
        }
    }
    (hits, contended)
}

fn stress(config: Config, rounds: usize, is_lossless: bool, mut round: impl FnMut(&mut Bed)) -> Writer {
    let domain = Domain::new(READERS);
    let writer = Writer::new(config, KeyHasher::new(3), domain.clone()).unwrap();
    let view = writer.view();
    let mut bed = Bed { writer, version: 0, now: AtomicU64::new(NOW), random: 1 };
    if is_lossless {
        (0..KEYS).for_each(|n| bed.put(n, 8, 0));
    }
    let done = AtomicBool::new(false);
    let clock = AtomicU64::new(NOW);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..READERS)
            .map(|index| {
                let (view, domain, done, clock) = (&view, &domain, &done, &clock);
                scope.spawn(move || {
                    let mut newest = vec![0; KEYS as usize];
                    read(view, domain, index, done, clock, |n, version| match version {
                        Some(version) => {
                            let newest = &mut newest[n as usize];
                            assert!(version >= *newest, "key {n} went back from {newest} to {version}");
                            *newest = version;
                        }
                        None => assert!(!is_lossless, "key {n} was hidden"),
                    })
                })
            })
            .collect();
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let stop = Stop(&done);
        for _ in 0..rounds {
            round(&mut bed);
            clock.store(bed.now.load(Relaxed), Relaxed);
        }
        drop(stop);
        let hits: u64 = threads.into_iter().map(|thread| thread.join().unwrap().0).sum();
        assert!(hits > 1000, "{hits}");
    });
    bed.writer
}

/// The table grows from one bucket to thousands, pages turn, values are rewritten; every key is there all the time.
#[test]
fn keys_that_are_there_are_found_while_everything_moves() {
    for knobs in [1, 7] {
        let mut next_new = KEYS;
        let writer = stress(config(2 << 20, 1 << 12, knobs), 30_000, true, |bed| {
            let n = bed.next() % KEYS;
            // Mostly the same length, so that some are rewritten in place.
            let len = if bed.next() % 4 == 0 { (bed.next() % 200) as usize } else { 8 };
            bed.put(n, len, 0);
            // Others come and go: the table splits and has holes. All that is alive fits, so nothing of it is lost as long as
            // the reserve copies it out of the way.
            if next_new < 12_000 {
                bed.put(next_new, 0, 0);
                next_new += 1;
            }
            // A reader may be descheduled under its pin for long: then pages wait, and in the end live ones would be evicted.
            while bed.writer.relocate_step(NOW, 4096) || bed.writer.stats().pages_waiting > 1 {
                std::thread::yield_now();
            }
        });
        let stats = writer.stats();
        assert_eq!(stats.evictions_live, 0, "{stats:?}");
        assert!(stats.reserve_relocations > 100, "{stats:?}");
        assert_eq!(stats.in_place_updates > 0, knobs & 2 != 0);
    }
}

/// Small pages, long values, deadlines, flushes: what is found is whole, the key's, and never older than what was found before.
#[test]
fn nothing_torn_and_nothing_old_is_read_at_capacity() {
    for knobs in 0..8 {
        let writer = stress(config(64 << 10, 1 << 10, knobs), 10_000, false, |bed| {
            let n = bed.next() % KEYS;
            match bed.next() % 64 {
                0..=7 => {
                    let key = key_of(n);
                    bed.run(Op::Del { key: &key });
                }
                8 => bed.run(Op::Flush),
                9 => {
                    bed.now.fetch_add(5, Relaxed);
                    let now = bed.now.load(Relaxed);
                    bed.writer.sweep(now, 50);
                }
                10 => drop(bed.writer.tidy()),
                11 => {
                    let now = bed.now.load(Relaxed);
                    bed.writer.relocate_step(now, 2000);
                }
                12..=19 => {
                    let len = (bed.next() % 6000) as usize;
                    bed.put(n, len, 0);
                }
                20..=39 => {
                    let ttl = bed.next() % 100;
                    bed.put(n, 8, ttl);
                }
                _ => bed.put(n % 50, 8, 0),
            }
        });
        let stats = writer.stats();
        assert!(stats.evictions > 100 && stats.flushes > 50, "{stats:?}");
    }
}
