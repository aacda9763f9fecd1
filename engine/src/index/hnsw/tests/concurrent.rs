//! Readers on other threads while the owner commits, repairs, frees and reuses.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

/// Every vector of slot `s` in generation `g` holds numbers that name both, so a reader can tell a torn or foreign
/// row from a whole one.
fn vector(slot: Slot, generation: u32) -> Vec<f32> {
    let mut v: Vec<f32> = (0..16).map(|i| ((slot * 31 + generation * 7 + i * 13) % 97) as f32).collect();
    v[14] = slot as f32;
    v[15] = generation as f32;
    v
}

#[test]
fn readers_see_valid_slots_while_the_owner_works() {
    let n = 1500u32;
    let graph = Graph::new(config(16, Metric::L2, 6, n as usize)).unwrap();
    let (stop, searches) = (AtomicBool::new(false), AtomicU64::new(0));
    // Slots from here on are never deleted while readers run, so all that readers can be asked to admit.
    let stable = 1000u32;
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (graph, stop, searches) = (&graph, &stop, &searches);
            scope.spawn(move || {
                let (mut rng, mut scratch) = (Rng::new(reader), Scratch::new());
                while !stop.load(Ordering::Relaxed) {
                    let query = vector(rng.below(n as usize) as Slot, 0);
                    let found = graph.search(&query, 20, 20, &mut scratch, |slot| slot >= stable);
                    for pair in found.windows(2) {
                        assert!(pair[0] < pair[1], "not ascending: {found:?}");
                    }
                    for hit in found {
                        assert_eq!(graph.vector(hit.slot)[14], hit.slot as f32);
                        assert_eq!(hit.distance, graph.kernel().distance(&query, graph.vector(hit.slot)));
                    }
                    searches.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut scratch = Scratch::new();
        let points =
            |range: std::ops::Range<u32>| -> Vec<_> { range.map(|slot| (slot, u64::from(slot))).collect() };
        (0..n).for_each(|slot| graph.write_vector(slot, &vector(slot, 0)));
        for points in points(0..n).chunks(50) {
            insert_all(&graph, points, |_| false);
        }
        // Deleted and relinked around, but freed only when the readers are gone.
        let is_dead = |slot| slot < 300;
        graph.fix_entry(&mut (0..n), &is_dead);
        (0..n).for_each(|slot| {
            graph.repair(slot, &is_dead, &mut scratch);
        });
        while searches.load(Ordering::Relaxed) < 200 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    (0..300).for_each(|slot| graph.free(slot));
    (0..300).for_each(|slot| graph.write_vector(slot, &vector(slot, 1)));
    insert_all(&graph, &(0..300).map(|slot| (slot, u64::from(slot + 9000))).collect::<Vec<_>>(), |_| false);
    check_invariants(&graph, &(0..n).collect());
    assert_eq!(unreachable(&graph, &(0..n).collect()), 0);
}
