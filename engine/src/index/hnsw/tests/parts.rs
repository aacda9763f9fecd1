//! Selection, links, upper runs and the visited set on their own.
use crate::memory::ScratchFiles;
use proptest::prelude::*;

use super::super::links::{Links, UpperRuns};
use super::super::select::Selection;
use super::super::visited::Visited;
use super::Rng;
use super::*;

fn ascending(graph: &Graph, base: Slot, slots: impl Iterator<Item = Slot>) -> Vec<Neighbor> {
    let mut list: Vec<_> =
        slots.map(|slot| Neighbor { distance: graph.distance(base, slot), slot }).collect();
    list.sort_unstable();
    list
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn adding_to_a_selection_equals_a_run_over_all(seed in 0u64..1000, n in 3u32..40, added in 1u32..6) {
        let mut rng = Rng::new(seed);
        let data = Clusters::new(&mut rng, 3, 4, 0.5);
        let graph = Graph::new(config(3, Metric::L2, 8, 64)).unwrap();
        (0..=n + added).for_each(|slot| graph.write_vector(slot, &data.point(&mut rng, Metric::L2)));
        let mut selection = Selection::default();
        selection.run(&graph, &ascending(&graph, 0, 1..=n), 64);
        for last in n + 1..=n + added {
            let new = Neighbor { distance: graph.distance(0, last), slot: last };
            let mut expected = Selection::default();
            expected.run(&graph, &ascending(&graph, 0, 1..=last), 64);
            if !selection.add(&graph, new) {
                selection.run(&graph, &ascending(&graph, 0, 1..=last), 64);
            }
            prop_assert_eq!(&selection.kept, &expected.kept);
            prop_assert_eq!(&selection.discarded, &expected.discarded);
        }
    }

    /// Where vectors come several times, and in any order.
    #[test]
    fn adding_a_copy_to_a_selection_equals_a_run_over_all(
        metric in 0usize..3,
        drawn in prop::collection::vec(0usize..6, 8..48),
        order in any::<u64>(),
    ) {
        let metric = [Metric::L2, Metric::Cosine, Metric::Dot][metric];
        let mut rng = Rng::new(order);
        let data = Clusters::new(&mut rng, 3, 4, 0.5);
        let graph = Graph::new(config(3, metric, 8, 64)).unwrap();
        let vectors: Vec<_> = (0..6).map(|_| data.point(&mut rng, metric)).collect();
        (0..).zip(&drawn).for_each(|(slot, &vector)| graph.write_vector(slot, &vectors[vector]));
        let mut slots: Vec<Slot> = (1..drawn.len() as Slot).collect();
        slots.sort_by_key(|&slot| u64::from(slot).wrapping_add(order).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut selection = Selection::default();
        for seen in 1..=slots.len() {
            let candidates = ascending(&graph, 0, slots[..seen].iter().copied());
            let mut expected = Selection::default();
            expected.run(&graph, &candidates, 64);
            let new = candidates.iter().find(|near| near.slot == slots[seen - 1]);
            if !selection.add(&graph, *new.unwrap()) {
                selection.run(&graph, &candidates, 64);
            }
            prop_assert_eq!(&selection.kept, &expected.kept);
            prop_assert_eq!(&selection.discarded, &expected.discarded);
            // A few of each vector, those with the lowest slots.
            for vector in 0..6 {
                let of_it = |slot: &Slot| drawn[*slot as usize] == vector;
                let mut chosen: Vec<Slot> = selection.chosen(64).map(|near| near.slot).filter(of_it).collect();
                chosen.sort_unstable();
                let mut all: Vec<Slot> = slots[..seen].iter().copied().filter(of_it).collect();
                all.sort_unstable();
                all.truncate(3);
                prop_assert_eq!(chosen, all);
            }
        }
    }

    #[test]
    fn selection_keeps_the_diverse_and_refills_with_the_nearest(seed in 0u64..1000, n in 2u32..40, cap in 1usize..12) {
        let mut rng = Rng::new(seed);
        let data = Clusters::new(&mut rng, 2, 3, 0.4);
        let graph = Graph::new(config(2, Metric::L2, 8, 64)).unwrap();
        (0..=n).for_each(|slot| graph.write_vector(slot, &data.point(&mut rng, Metric::L2)));
        let candidates = ascending(&graph, 0, 1..=n);
        let mut selection = Selection::default();
        selection.run(&graph, &candidates, cap);
        // The paper's loop, word for word.
        let mut kept: Vec<Neighbor> = Vec::new();
        for &c in &candidates {
            if kept.len() < cap && kept.iter().all(|k| graph.distance(k.slot, c.slot) >= c.distance) {
                kept.push(c);
            }
        }
        let refill = candidates.iter().filter(|c| !kept.contains(c)).copied();
        let expected: Vec<Neighbor> = kept.iter().copied().chain(refill).take(cap).collect();
        prop_assert_eq!(selection.chosen(cap).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn visited_is_a_set(ops in prop::collection::vec((0u32..500, 0u8..20), 0..300)) {
        let mut visited = Visited::default();
        let mut model = BTreeSet::new();
        visited.reset(100);
        for (slot, op) in ops {
            if op == 0 {
                visited.reset(slot as usize);
                model.clear();
            } else {
                prop_assert_eq!(visited.insert(slot), model.insert(slot));
            }
        }
    }

    #[test]
    fn upper_runs_never_overlap(ops in prop::collection::vec((any::<bool>(), 1u8..6, any::<usize>()), 0..200)) {
        let mut runs = UpperRuns::new(60);
        let mut held: Vec<(u32, u8)> = Vec::new();
        for (take, len, which) in ops {
            if take {
                if let Some(run) = runs.allocate(len) {
                    prop_assert!(run + u32::from(len) <= 60);
                    for &(other, other_len) in &held {
                        prop_assert!(run + u32::from(len) <= other || other + u32::from(other_len) <= run);
                    }
                    held.push((run, len));
                }
            } else if !held.is_empty() {
                let (run, len) = held.swap_remove(which % held.len());
                runs.free(run, len);
            }
        }
    }
}

#[test]
fn a_missing_level_has_no_edges() {
    let links = Links::reserve(&config(4, Metric::L2, 4, 10), &ScratchFiles::default()).unwrap();
    links.set_place(3, 0, 2);
    links.write(3, 2, &[1, 2]);
    let mut edges = Vec::new();
    links.read(3, 2, &mut edges);
    assert_eq!(edges, [1, 2]);
    for (slot, level) in [(3, 3), (3, 31), (4, 1), (3, 0)] {
        links.read(slot, level, &mut edges);
        assert!(edges.is_empty());
    }
}

#[test]
#[should_panic(expected = "7 edges for slot 0")]
fn a_list_over_the_degree_panics() {
    Links::reserve(&config(4, Metric::L2, 4, 10), &ScratchFiles::default()).unwrap().write(0, 1, &[]);
    let links = Links::reserve(&config(4, Metric::L2, 2, 10), &ScratchFiles::default()).unwrap();
    links.write(0, 0, &[1, 2, 3, 4, 5, 6, 7]);
}

#[test]
#[should_panic(expected = "slot 1 is in use")]
fn a_linked_vector_cannot_be_rewritten() {
    let (graph, ..) = built(config(4, Metric::L2, 4, 4), 3, 1);
    graph.write_vector(1, &[0.0; 4]);
}
