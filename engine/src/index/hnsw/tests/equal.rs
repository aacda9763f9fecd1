//! Many copies of few vectors: they must fill neither a beam nor a list.
use super::*;
use crate::pace::{Whole, at_once};

const DISTINCT: usize = 100;
const COPIES: usize = 60;

/// Points of a cube.
fn random_row(rng: &mut Rng, dim: usize, metric: Metric) -> Vec<f32> {
    let raw: Vec<f32> = (0..dim).map(|_| rng.float()).collect();
    let mut row = vec![0.0; padded(dim)];
    prepare(metric, &raw, &mut row);
    row
}

/// A graph of the rows, in slots from 0, a round at a time.
fn graph_of<'r>(config: GraphConfig, rows: impl Iterator<Item = &'r [f32]>) -> Graph {
    let graph = Graph::new(config).unwrap();
    let rows: Vec<&[f32]> = rows.collect();
    for (round, first) in rows.chunks(ROUND_NODES_MAX).zip((0..).step_by(ROUND_NODES_MAX)) {
        let points: Vec<_> = (first..).take(round.len()).map(|slot| (slot, u64::from(slot))).collect();
        points.iter().zip(round).for_each(|(&(slot, _), row)| graph.write_vector(slot, row));
        insert_all(&graph, &points, |_| false);
    }
    graph
}

/// What searches for ten find of what is no farther than the tenth nearest: queries that find nothing of it, and the share of it that
/// is found. `gated` is how they look for what passes.
fn found(graph: &Graph, queries: &[Vec<f32>], passes: impl Fn(Slot) -> bool, gated: bool) -> (usize, f64) {
    let end = (DISTINCT * COPIES) as Slot;
    let mut scratch = Scratch::new();
    let (mut lost, mut hits) = (0, 0);
    for query in queries {
        let live = (0..end).filter(|&slot| graph.is_linked(slot));
        let exact = exact_search(graph.kernel(), graph.vectors(), query, live, 10, &passes);
        let found = if gated {
            let (mut pace, mut all) = (Whole::unbounded(), |_: Slot| true);
            let beam = GatedBeam { ef: 64, effort: usize::MAX, gate: &passes, admit: &mut all };
            at_once(graph.search_gated(query, Wanted::exact(10), beam, &mut pace, &mut scratch))
                .unwrap()
                .unwrap()
        } else {
            graph.search(query, 10, 64, &mut scratch, &passes)
        };
        assert!(found.len() >= 10 && found.is_sorted() && found.iter().all(|near| passes(near.slot)));
        let right = found[..10].iter().filter(|near| near.distance <= exact[9].distance).count();
        lost += usize::from(right == 0);
        hits += right;
    }
    (lost, hits as f64 / (10 * queries.len()) as f64)
}

fn check(graph: &Graph, queries: &[Vec<f32>], least: f64, name: &str) {
    // Where one in ten passes, a vector of which one copy is found at most is missed with the others.
    for (every, gated, less) in [(1, false, 0.0), (2, false, 0.0), (2, true, 0.0), (10, true, 0.25)] {
        let passes = |slot: Slot| (slot / 7).is_multiple_of(every);
        let (lost, share) = found(graph, queries, passes, gated);
        assert!(
            lost <= 2 && share > least - less,
            "{name}, one in {every} passes, gated {gated}: {lost} lost, {share} found"
        );
    }
}

#[test]
fn copies_do_not_keep_others_from_being_found() {
    let long = std::env::var_os("NIGH_TEST_LONG").is_some();
    for metric in [Metric::L2, Metric::Cosine, Metric::Dot] {
        for (dim, one_by_one) in [(32, false), (128, false), (128, true), (32, true)] {
            if long || dim > 32 || !one_by_one {
                copies_leave_room(metric, dim, one_by_one);
            }
        }
    }
}

/// `one_by_one`: all copies of a vector come before the next vector does.
fn copies_leave_room(metric: Metric, dim: usize, one_by_one: bool) {
    let mut rng = Rng::new(dim as u64);
    let rows: Vec<_> = (0..DISTINCT).map(|_| random_row(&mut rng, dim, metric)).collect();
    let queries: Vec<_> = (0..60).map(|_| random_row(&mut rng, dim, metric)).collect();
    let n = DISTINCT * COPIES;
    let config = GraphConfig { ef_construction: 128, ..config(dim, metric, 16, n) };
    let row = |slot: usize| rows[if one_by_one { slot / COPIES } else { slot % DISTINCT }].as_slice();
    let graph = graph_of(config, (0..n).map(row));
    let live: BTreeSet<Slot> = (0..n as Slot).collect();
    check_invariants(&graph, &live);
    assert_eq!(unreachable(&graph, &live), 0);
    let name = format!("{metric:?} of {dim}, one by one {one_by_one}");
    check(&graph, &queries, 0.95, &name);
    if !one_by_one {
        return;
    }

    // Deleted are the first of each vector, which other lists name, and some that hang in between.
    let dead = |slot: Slot| {
        let copy = slot as usize % COPIES;
        copy < 4 || copy.is_multiple_of(3)
    };
    let live: BTreeSet<Slot> = live.into_iter().filter(|&slot| !dead(slot)).collect();
    let mut scratch = Scratch::new();
    graph.fix_entry(&mut (0..n as Slot), &dead);
    for &slot in &live {
        graph.repair(slot, &dead, &mut scratch);
    }
    (0..n as Slot).filter(|&slot| dead(slot)).for_each(|slot| graph.free(slot));
    check_invariants(&graph, &live);
    assert_eq!(unreachable(&graph, &live), 0);
    // Through a filter, fewer: what it leaves of the copies hangs on others that it leaves out.
    check(&graph, &queries, 0.9, &format!("{name}, repaired"));
}

/// By inner product a long vector is nearer to a short one than its own copies are.
#[test]
fn copies_are_found_among_longer_ones() {
    let mut rng = Rng::new(3);
    let mut random = |scale: f32| {
        let mut row = random_row(&mut rng, 32, Metric::Dot);
        row.iter_mut().for_each(|component| *component *= scale);
        row
    };
    let rows: Vec<_> = (0..DISTINCT).map(|index| random(0.5 + index as f32 / 50.0)).collect();
    let queries: Vec<_> = (0..60).map(|_| random(1.0)).collect();
    let n = DISTINCT * COPIES;
    let config = GraphConfig { ef_construction: 128, ..config(32, Metric::Dot, 16, n) };
    let graph = graph_of(config, (0..n).map(|slot| rows[slot % DISTINCT].as_slice()));
    assert_eq!(unreachable(&graph, &(0..n as Slot).collect()), 0);
    check(&graph, &queries, 0.95, "lengths from 0.5 to 2.5");
}

#[test]
fn a_search_among_equal_vectors_ends() {
    for dim in [8, 128] {
        let mut rng = Rng::new(1);
        let row = random_row(&mut rng, dim, Metric::L2);
        let graph = graph_of(config(dim, Metric::L2, 16, 5000), (0..5000).map(|_| row.as_slice()));
        let live: BTreeSet<Slot> = (0..5000).collect();
        check_invariants(&graph, &live);
        assert_eq!(unreachable(&graph, &live), 0);
        assert!(live.iter().all(|&slot| graph.depth(slot) < 40), "they hang below one another");
        let mut scratch = Scratch::new();
        for query in [row.clone(), random_row(&mut rng, dim, Metric::L2)] {
            assert_eq!(graph.search(&query, 10, 64, &mut scratch, |_| true).len(), 64);
            let Scratch { stats, .. } = scratch;
            assert!(stats.distances < 64 * 48 && stats.expanded <= 2 * 64 + 20, "{stats:?}");
            // Copies that do not pass are walked through for those that do.
            let found = graph.search(&query, 10, 64, &mut scratch, |slot| slot % 50 == 7);
            assert_eq!(found.len(), 64);
            let (mut pace, mut all) = (Whole::unbounded(), |_: Slot| true);
            let passes = |slot: Slot| slot % 30 == 7;
            let beam = GatedBeam { ef: 64, effort: usize::MAX, gate: passes, admit: &mut all };
            let searching = graph.search_gated(&query, Wanted::exact(10), beam, &mut pace, &mut scratch);
            let found = at_once(searching).unwrap().unwrap();
            assert!(found.len() >= 10, "{} found of one in thirty", found.len());
        }
    }
}

/// Different vectors at one distance are no copies, and none of them is left out.
#[test]
fn different_vectors_at_one_distance_all_count() {
    for (dim, values) in [(2, 60), (3, 15), (24, 2)] {
        let mut rng = Rng::new(dim as u64);
        let mut random = || {
            let mut row = vec![0.0; padded(dim)];
            row[..dim].fill_with(|| rng.below(values) as f32);
            row
        };
        let rows: BTreeSet<Vec<u32>> =
            (0..3000).map(|_| random().into_iter().map(f32::to_bits).collect()).collect();
        let rows: Vec<Vec<f32>> =
            rows.into_iter().map(|row| row.into_iter().map(f32::from_bits).collect()).collect();
        let queries: Vec<_> = (0..50).map(|_| random()).collect();
        let graph = graph_of(config(dim, Metric::L2, 16, 3000), rows.iter().map(Vec::as_slice));
        let mut scratch = Scratch::new();
        let mut hits = 0;
        for query in &queries {
            let exact =
                exact_search(graph.kernel(), graph.vectors(), query, 0..rows.len() as Slot, 10, |_| true);
            let found = graph.search(query, 10, 64, &mut scratch, |_| true);
            assert_eq!(found.len(), 64);
            hits += found[..10].iter().filter(|near| near.distance <= exact[9].distance).count();
        }
        assert!(hits >= 495, "{dim} components of {values} values: {hits} of 500");
    }
}
