//! Models of quiescence, published values and the id map: loom runs them under every interleaving, and every value the
//! memory model lets a load return, up to a bound on preemptions.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p nigh-engine --release --lib loom_`
//!
//! What readers look at is a [`Tracked`] value: loom's cell reports any access that is not ordered with a conflicting
//! one, so reading a thing that is being reused fails the model, whatever the bytes say. Loom treats SeqCst accesses as
//! AcqRel; nothing here rests on them, only on SeqCst fences, which loom has.

use super::{Domain, IdMap, Published, id_map};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use std::sync::Arc;

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(body);
}

const REUSED: u64 = u64::MAX;

/// A value whose every access loom checks; dropping it counts as reuse.
struct Tracked(UnsafeCell<u64>);

// SAFETY: that accesses exclude each other is what the models check.
unsafe impl Sync for Tracked {}

impl Tracked {
    fn new(value: u64) -> Self {
        Tracked(UnsafeCell::new(value))
    }

    fn read(&self) -> u64 {
        // SAFETY: loom has checked the access.
        self.0.with(|value| unsafe { *value })
    }

    fn reuse(&self) {
        // SAFETY: loom has checked the access.
        self.0.with_mut(|value| unsafe { *value = REUSED });
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.reuse();
    }
}

/// One place that names a row; the owner swings it from row to row and reuses each old row once quiescent. Readers
/// pin twice, so that a renewed announcement is met as well.
fn quiescence_model(readers: usize, swings: usize, pins: usize, preemptions: usize) {
    model(preemptions, move || {
        let domain = Domain::new(readers);
        let rows: Arc<Vec<Tracked>> = Arc::new((0..=swings as u64).map(Tracked::new).collect());
        let place = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..readers)
            .map(|index| {
                let (reader, rows, place) = (domain.participant(index), rows.clone(), place.clone());
                thread::spawn(move || {
                    for _ in 0..pins {
                        let pin = reader.pin();
                        let row = place.load(Ordering::Acquire);
                        assert_eq!(rows[row].read(), row as u64);
                        drop(pin);
                    }
                })
            })
            .collect();
        let mut waiting = Vec::new();
        for row in 1..=swings {
            place.store(row, Ordering::Release);
            waiting.push((domain.retire(), row - 1));
            waiting.retain(|&(tag, row)| {
                let quiescent = domain.is_quiescent(tag);
                if quiescent {
                    rows[row].reuse();
                }
                !quiescent
            });
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(waiting.iter().all(|&(tag, _)| domain.is_quiescent(tag)), "nobody is pinned any more");
    });
}

#[test]
fn loom_quiescence_reuses_nothing_under_a_pin() {
    quiescence_model(1, 2, 2, 3);
}

#[test]
fn loom_quiescence_waits_for_every_reader() {
    quiescence_model(2, 1, 1, 3);
}

#[test]
fn loom_published_values_live_as_long_as_pins() {
    model(3, || {
        let domain = Domain::new(1);
        let published = Arc::new(Published::new(domain.clone(), Tracked::new(0)));
        let reading = {
            let (reader, published) = (domain.participant(0), published.clone());
            thread::spawn(move || {
                let mut newest = 0;
                for _ in 0..2 {
                    let pin = reader.pin();
                    let value = published.load(&pin);
                    let seen = value.read();
                    assert!(seen != REUSED && seen >= newest);
                    newest = seen;
                }
            })
        };
        published.swap(Tracked::new(1));
        published.swap(Tracked::new(2));
        reading.join().unwrap();
        assert_eq!(published.reclaim(), 0);
    });
}

/// A reader looks up an id that is always there, and one that comes, while the owner fills the segment, splits it and
/// doubles the directory.
#[test]
fn loom_id_map_never_hides_an_id_while_it_grows() {
    model(2, || {
        let domain = Domain::new(1);
        let map = Arc::new(id_map::tiny(domain.clone(), 1));
        for id in 0..id_map::TINY_CLAIMS {
            map.insert(id, id as u32);
        }
        let reading = {
            let (reader, map) = (domain.participant(0), map.clone());
            thread::spawn(move || {
                let pin = reader.pin();
                assert_eq!(map.get(&pin, 3), Some(3));
                assert!(matches!(map.get(&pin, 100), None | Some(100)));
            })
        };
        map.insert(100, 100);
        reading.join().unwrap();
        map.reclaim();
        assert_eq!((map.get_owned(100), map.len()), (Some(100), id_map::TINY_CLAIMS as usize + 1));
    });
}

/// A reader meets an entry while it is claimed, moved, removed and taken up again. The ids probe the same line, and
/// id 0 is what a key reads as before its entry is claimed.
#[test]
fn loom_id_map_gives_an_id_its_own_slots_only() {
    model(3, || {
        let domain = Domain::new(1);
        let map: Arc<IdMap> = Arc::new(id_map::tiny(domain.clone(), 1));
        let (there, comes) = {
            let mut same_line =
                (1..).filter(|&id| id_map::first_line(&map, id) == id_map::first_line(&map, 0));
            (same_line.next().unwrap(), same_line.next().unwrap())
        };
        map.insert(there, 10);
        let reading = {
            let (reader, map) = (domain.participant(0), map.clone());
            thread::spawn(move || {
                let pin = reader.pin();
                assert!(matches!(map.get(&pin, 0), None | Some(5)));
                assert!(matches!(map.get(&pin, comes), None | Some(20 | 21)));
                assert!(matches!(map.get(&pin, there), Some(10 | 11)));
            })
        };
        map.insert(comes, 20);
        map.remove(comes);
        map.insert(0, 5);
        map.insert(there, 11);
        map.insert(comes, 21);
        reading.join().unwrap();
        let now = [0, there, comes].map(|id| map.get_owned(id));
        assert_eq!(now, [Some(5), Some(11), Some(21)]);
    });
}
