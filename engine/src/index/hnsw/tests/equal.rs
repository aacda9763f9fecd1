//! Graphs of which many vectors are equal: all are reachable, and the nearest are found.
use super::*;
use crate::index::hnsw::select::Selection;
use crate::index::{Flat, relink_all};
use crate::pace::{Whole, at_once};

const DIM: usize = 32;
const POINTS: usize = 6_000;

/// As many points on `distinct` vectors, in an order of their own.
fn graph(metric: Metric, codes: bool, flat: Option<Flat>, distinct: usize, rng: &mut Rng) -> Graph {
    let vectors: Vec<Vec<f32>> = (0..distinct)
        .map(|_| {
            let raw: Vec<f32> = (0..DIM).map(|_| rng.float()).collect();
            let mut row = vec![0.0; padded(DIM)];
            prepare(metric, &raw, &mut row);
            row
        })
        .collect();
    let graph = Graph::new(GraphConfig { codes, flat, ..config(DIM, metric, 16, POINTS) }).unwrap();
    let points: Vec<(Slot, u64)> = (0..POINTS as Slot).map(|slot| (slot, u64::from(slot))).collect();
    for &(slot, _) in &points {
        graph.write_vector(slot, &vectors[rng.below(distinct)]);
    }
    insert_all(&graph, &points, |_| false);
    if flat.is_some() {
        relink_all(&graph, &(0..POINTS as Slot).collect::<Vec<_>>(), |_| false);
    }
    graph
}

/// Queries whose ten nearest are not found, by their distances, among the slots that pass.
fn missed(graph: &Graph, queries: &[Vec<f32>], passes: impl Fn(Slot) -> bool + Copy, gated: bool) -> usize {
    let (mut scratch, mut missed) = (Scratch::new(), 0);
    for query in queries {
        let slots = (0..POINTS as Slot).filter(|&slot| passes(slot));
        let exact = exact_search(graph.kernel(), graph.vectors(), query, slots, 10, |_| true);
        let found: Vec<f32> = match gated {
            true => {
                let mut admit = |_: Slot| true;
                let mut pace = Whole::unbounded();
                let walk = graph.search_gated(
                    query,
                    10,
                    64,
                    usize::MAX,
                    &mut pace,
                    &mut scratch,
                    passes,
                    &mut admit,
                );
                at_once(walk).unwrap().unwrap().iter().take(10).map(|near| near.distance).collect()
            }
            false => {
                let found = graph.search(query, 10, 64, &mut scratch, passes);
                found.iter().take(10).map(|near| near.distance).collect()
            }
        };
        let wanted: Vec<f32> = exact.iter().map(|near| near.distance).collect();
        missed += usize::from(found != wanted);
    }
    missed
}

#[test]
fn the_nearest_of_many_equal_vectors_are_found() {
    let vamana = Flat { degree: 48, alpha: 1.2 };
    for (metric, codes, flat) in [
        (Metric::L2, false, None),
        (Metric::L2, true, None),
        (Metric::Cosine, true, None),
        (Metric::Dot, false, None),
        (Metric::L2, false, Some(vamana)),
        (Metric::Cosine, false, Some(vamana)),
    ] {
        for distinct in [6, 100, 700] {
            let mut rng = Rng::new(distinct as u64);
            let graph = graph(metric, codes, flat, distinct, &mut rng);
            let all: BTreeSet<Slot> = (0..POINTS as Slot).collect();
            check_invariants(&graph, &all);
            assert_eq!(unreachable(&graph, &all), 0);
            let queries: Vec<Vec<f32>> = (0..60)
                .map(|_| {
                    let raw: Vec<f32> = (0..DIM).map(|_| rng.float()).collect();
                    let mut row = vec![0.0; padded(DIM)];
                    prepare(metric, &raw, &mut row);
                    row
                })
                .collect();
            let what = format!("{metric:?}, codes {codes}, {flat:?}, {distinct} vectors");
            let plain = missed(&graph, &queries, |_| true, false);
            let filtered = missed(&graph, &queries, |slot| slot % 3 == 0, false);
            let gated = missed(&graph, &queries, |slot| slot % 5 == 0, true);
            assert!(plain.max(filtered) <= 3, "{what}: {plain} and {filtered} of 60 missed");
            // A thousand points of one vector are an island whose shore the gate may hide.
            assert!(
                gated <= if distinct < 10 { 12 } else { 3 },
                "{what}: {gated} of 60 missed behind a gate"
            );
        }
    }
}

/// The heuristic as the paper has it.
fn reference(graph: &Graph, candidates: &[Neighbor], cap: usize) -> Vec<Slot> {
    let (mut kept, mut discarded): (Vec<Neighbor>, Vec<Neighbor>) = Default::default();
    for &candidate in candidates {
        if kept.len() == cap {
            break;
        }
        let blocked = kept.iter().any(|near| graph.distance(near.slot, candidate.slot) < candidate.distance);
        if blocked { &mut discarded } else { &mut kept }.push(candidate);
    }
    kept.iter().chain(&discarded).take(cap).map(|near| near.slot).collect()
}

/// Where no vectors are equal nothing is left out, though many lie at the same distance.
#[test]
fn vectors_that_differ_are_chosen_as_ever() {
    let mut rng = Rng::new(3);
    let graph = Graph::new(GraphConfig { codes: false, ..config(8, Metric::L2, 8, 700) }).unwrap();
    // Corners of a grid: all different, at few distances.
    for slot in 0..700u32 {
        let row: Vec<f32> =
            (0..8).map(|at| if at < 6 { (slot / 3u32.pow(at) % 3) as f32 } else { 0.0 }).collect();
        graph.write_vector(slot, &row);
    }
    for _ in 0..300 {
        let base = rng.below(700) as Slot;
        let mut candidates: Vec<Neighbor> = (0..100)
            .map(|_| rng.below(700) as Slot)
            .filter(|&slot| slot != base)
            .map(|slot| Neighbor { distance: graph.distance(base, slot), slot })
            .collect();
        candidates.sort_unstable();
        candidates.dedup();
        let mut selection = Selection::new(1.0);
        selection.run(&graph, &candidates, 16);
        let chosen: Vec<Slot> = selection.chosen(16).map(|near| near.slot).collect();
        assert_eq!(chosen, reference(&graph, &candidates, 16));
    }
}
