//! Fresh builds: recall, reachability, determinism, options, save and load.
use super::*;

fn queries(data: &Clusters, rng: &mut Rng, metric: Metric, n: usize) -> Vec<Vec<f32>> {
    (0..n).map(|_| data.point(rng, metric)).collect()
}

#[test]
fn recall_on_clustered_data_and_every_point_finds_itself() {
    for (metric, m, clusters, floor) in
        [(Metric::Cosine, 8, 40, 0.97), (Metric::L2, 16, 1, 0.97), (Metric::L2, 4, 200, 0.9)]
    {
        let n = 3000;
        let (graph, data, mut rng) = built(config(24, metric, m, n), n, clusters);
        let live: BTreeSet<Slot> = (0..n as Slot).collect();
        check_invariants(&graph, &live);
        assert_eq!(unreachable(&graph, &live), 0, "{metric:?}, m {m}, {clusters} clusters");
        let queries = queries(&data, &mut rng, metric, 100);
        let got = recall(&graph, &queries, &live, 10, 100);
        assert!(got >= floor, "{metric:?} m {m}, {clusters} clusters: recall {got}");
        let mut scratch = Scratch::new();
        let mut is_lost = |slot: Slot, ef| {
            let nearest = graph.search(graph.vector(slot), 1, ef, &mut scratch, |_| true)[0];
            nearest.distance > 1e-6 && nearest.slot != slot
        };
        let lost: Vec<Slot> = live.iter().copied().filter(|&slot| is_lost(slot, 64)).collect();
        assert!(lost.len() <= 3, "{metric:?}, m {m}, {clusters} clusters: {lost:?}");
        assert!(!lost.iter().any(|&slot| is_lost(slot, 500)), "{metric:?}, m {m}, {clusters} clusters");
    }
}

#[test]
fn inner_product_is_found_too() {
    let (graph, data, mut rng) = built(config(16, Metric::Dot, 12, 1500), 1500, 20);
    let queries = queries(&data, &mut rng, Metric::Dot, 50);
    let got = recall(&graph, &queries, &(0..1500).collect(), 10, 200);
    assert!(got > 0.9, "recall {got}");
}

#[test]
fn the_options_widen_the_graph() {
    for (full, extend, max) in [(true, false, 0), (false, true, 0), (true, true, 100)] {
        let config = GraphConfig {
            level0_full_degree: full,
            extend_candidates: extend,
            extend_candidates_max: max,
            ..config(16, Metric::L2, 6, 1200)
        };
        let (graph, data, mut rng) = built(config, 1200, 30);
        let live = (0..1200).collect();
        check_invariants(&graph, &live);
        assert_eq!(unreachable(&graph, &live), 0);
        let got = recall(&graph, &queries(&data, &mut rng, Metric::L2, 50), &live, 10, 64);
        assert!(got > 0.95, "full {full}, extend {extend} up to {max}: recall {got}");
    }
}

#[test]
fn the_lowest_level_by_the_rules_of_vamana() {
    for metric in [Metric::L2, Metric::Cosine, Metric::Dot] {
        for (degree, alpha) in [(2, 1.0), (12, 1.0), (24, 1.2), (24, 2.0)] {
            let config = GraphConfig { flat: Some(Flat { degree, alpha }), ..config(16, metric, 6, 1500) };
            let (graph, data, mut rng) = built(config, 1500, 30);
            let live = (0..1500).collect();
            check_invariants(&graph, &live);
            assert_eq!(unreachable(&graph, &live), 0);
            graph.edges(7, &mut |level, edges| assert!(edges.len() <= if level == 0 { degree } else { 6 }));
            let queries = queries(&data, &mut rng, metric, 50);
            let once = recall(&graph, &queries, &live, 10, 64);
            if degree > 2 && metric != Metric::Dot {
                assert!(once > 0.97, "{metric:?} {degree} {alpha}: recall {once}");
            }
            // The second pass: others are nodes to choose from now that came later. Every third node is dead, and keeps its list.
            let lists = |slot: Slot| {
                let mut lists = Vec::new();
                graph.edges(slot, &mut |level, edges| lists.push((level, edges.to_vec())));
                lists
            };
            let before: Vec<_> = (0..1500).map(lists).collect();
            let again: Vec<Slot> = (0..1500).filter(|slot| slot % 3 > 0).collect();
            relink_all(&graph, &again, |slot| slot % 3 == 0);
            check_invariants(&graph, &live);
            assert_eq!(unreachable(&graph, &live), 0);
            let changed = |slot: &Slot| lists(*slot) != before[*slot as usize];
            assert_eq!((0..1500).step_by(3).filter(changed).count(), 0);
            assert!(degree == 2 || again.iter().filter(|slot| changed(slot)).count() > 500);
            relink_all(&graph, &(0..1500).collect::<Vec<_>>(), |_| false);
            check_invariants(&graph, &live);
            let twice = recall(&graph, &queries, &live, 10, 64);
            assert!(twice > once - 0.01, "{metric:?} {degree} {alpha}: recall {twice} after {once}");
        }
    }
    // Clusters far from each other, where a walk from one medoid stays in the first that it meets.
    let mut rng = Rng::new(1);
    let data = Clusters::new(&mut rng, 32, 100, 0.02);
    let config =
        GraphConfig { flat: Some(Flat { degree: 32, alpha: 1.2 }), ..config(32, Metric::L2, 16, 3000) };
    let graph = Graph::new(config).unwrap();
    let points: Vec<(Slot, u64)> = (0..3000).map(|slot| (slot, u64::from(slot))).collect();
    points.iter().for_each(|&(slot, _)| graph.write_vector(slot, &data.point(&mut rng, Metric::L2)));
    insert_all(&graph, &points, |_| false);
    let got = recall(&graph, &queries(&data, &mut rng, Metric::L2, 100), &(0..3000).collect(), 10, 64);
    assert!(got > 0.98, "recall {got}");
}

#[test]
fn small_graphs_are_exact() {
    for n in 1..40 {
        let (graph, data, mut rng) = built(config(8, Metric::L2, 2, 64), n, 3);
        let live: BTreeSet<Slot> = (0..n as Slot).collect();
        check_invariants(&graph, &live);
        assert_eq!(unreachable(&graph, &live), 0);
        assert_eq!(recall(&graph, &queries(&data, &mut rng, Metric::L2, 5), &live, 5, 64), 1.0, "{n} points");
    }
}

#[test]
fn an_empty_graph_finds_nothing() {
    let graph = Graph::new(config(4, Metric::L2, 4, 10)).unwrap();
    let mut scratch = Scratch::new();
    assert!(graph.search(&[0.0; 16], 5, 5, &mut scratch, |_| true).is_empty());
    assert_eq!(graph.entry(), None);
    insert_all(&graph, &[], |_| false);
    assert_eq!(graph.entry(), None);
}

#[test]
fn equal_vectors_come_in_slot_order() {
    let graph = Graph::new(config(4, Metric::L2, 8, 40)).unwrap();
    let points: Vec<_> = (0..40).map(|slot| (slot, u64::from(slot))).collect();
    points.iter().for_each(|&(slot, _)| graph.write_vector(slot, &[1.0, 2.0, 3.0, 4.0]));
    insert_all(&graph, &points, |_| false);
    let mut scratch = Scratch::new();
    let query = graph.vector(0).to_vec();
    assert_eq!(slots(graph.search(&query, 40, 40, &mut scratch, |_| true)), (0..40).collect::<Vec<_>>());
}

#[test]
fn rejected_slots_route_but_are_not_returned() {
    let (graph, data, mut rng) = built(config(16, Metric::L2, 8, 2000), 2000, 30);
    for step in [2, 10, 100] {
        let live: BTreeSet<Slot> = (0..2000).step_by(step).collect();
        let got = recall(&graph, &queries(&data, &mut rng, Metric::L2, 40), &live, 10, 64);
        assert!(got > 0.97, "one in {step}: recall {got}");
    }
    let mut scratch = Scratch::new();
    assert!(graph.search(graph.vector(0), 10, 10, &mut scratch, |_| false).is_empty());
}

#[test]
fn levels_thin_out_by_m_and_depend_on_seed_and_key() {
    for m in [2, 16] {
        let graph = Graph::new(config(4, Metric::L2, m, 1)).unwrap();
        let count = 40_000;
        let levels: Vec<u8> = (0..count).map(|key| graph.level_of(key)).collect();
        for level in 1..3u8 {
            let share = levels.iter().filter(|&&l| l >= level).count() as f64 / count as f64;
            let expected = (m as f64).powi(-i32::from(level));
            assert!((share / expected - 1.0).abs() < 0.2, "m {m}, level {level}: {share} for {expected}");
        }
        let other = Graph::new(GraphConfig { seed: 8, ..graph.config().clone() }).unwrap();
        assert!((0..count).any(|key| other.level_of(key) != graph.level_of(key)));
    }
}

/// Inserts in rounds whose nodes and targets are planned in a shuffled order, in slices of a few distances, by
/// several planners that take turns.
fn insert_shuffled(graph: &Graph, points: &[(Slot, u64)], round_nodes: usize, rng: &mut Rng) {
    let mut scratch = Scratch::new();
    for points in points.chunks(round_nodes) {
        let round = Round::of(graph, points);
        let mut plans: Vec<Option<NodePlan>> = vec![None; points.len()];
        let mut waiting: Vec<usize> = (0..points.len()).collect();
        let mut working: Vec<(usize, Planner)> = Vec::new();
        while !waiting.is_empty() || !working.is_empty() {
            if working.len() < 3 && !waiting.is_empty() {
                let index = waiting.swap_remove(rng.below(waiting.len()));
                let mut planner = Planner::new();
                planner.start(graph, &round, index);
                working.push((index, planner));
            }
            let at = rng.below(working.len());
            let (index, planner) = &mut working[at];
            if let Some(plan) = planner.step(graph, &round, 1 + rng.below(50), |_| false) {
                plans[*index] = Some(plan);
                working.swap_remove(at);
            }
        }
        let plans: Vec<NodePlan> = plans.into_iter().map(Option::unwrap).collect();
        let jobs = graph.target_jobs(&plans);
        let mut targets: Vec<_> = jobs.iter().rev().map(|job| graph.plan_target(job, &mut scratch)).collect();
        targets.reverse();
        graph.commit(Commit::new(&round, plans, targets), |_| false);
    }
}

#[test]
fn a_graph_does_not_depend_on_how_its_planning_was_spread() {
    // With codes, and with vectors too short for them.
    [12, 64].into_iter().for_each(does_not_depend_on_planning);
}

fn does_not_depend_on_planning(dim: usize) {
    let n = 1300;
    let config = GraphConfig { extend_candidates: true, ..config(dim, Metric::Cosine, 6, n) };
    let (graph, ..) = built(config.clone(), n, 25);
    for seed in 0..2 {
        let other = Graph::new(config.clone()).unwrap();
        let points: Vec<_> = (0..n as Slot).map(|slot| (slot, u64::from(slot))).collect();
        points.iter().for_each(|&(slot, _)| other.write_vector(slot, graph.vector(slot)));
        insert_shuffled(&other, &points, ROUND_NODES_MAX, &mut Rng::new(seed));
        assert!(dump(&graph) == dump(&other), "graphs differ");
        assert_eq!(graph.entry(), other.entry());
    }
}

#[test]
fn edges_restore_to_the_same_graph() {
    let (graph, ..) = built(config(12, Metric::L2, 5, 700), 700, 10);
    let other = Graph::new(graph.config().clone()).unwrap();
    for (slot, levels) in (0..).zip(dump(&graph)) {
        other.write_vector(slot, graph.vector(slot));
        other.restore(slot, &levels).unwrap();
    }
    other.set_entry(graph.entry());
    // The entry point became the root, which may change who is whose parent, that is, the order on level 0.
    let sorted = |graph: &Graph| {
        let mut lists = dump(graph);
        lists.iter_mut().flatten().for_each(|edges| edges.sort_unstable());
        lists
    };
    assert!(sorted(&graph) == sorted(&other));
    check_invariants(&other, &(0..700).collect());
    assert_eq!(unreachable(&other, &(0..700).collect()), 0);
    // And both grow alike afterwards, although the restored one has forgotten which edges the heuristic kept.
    let [grown, restored] = [graph, other].map(|graph| {
        let data = Clusters::new(&mut Rng::new(5), 12, 10, 0.3);
        let config = GraphConfig { capacity: 900, ..graph.config().clone() };
        let bigger = Graph::new(config).unwrap();
        for (slot, levels) in (0..).zip(dump(&graph)) {
            bigger.write_vector(slot, graph.vector(slot));
            bigger.restore(slot, &levels).unwrap();
        }
        bigger.set_entry(graph.entry());
        let mut rng = Rng::new(6);
        let points: Vec<_> = (700..900).map(|slot| (slot, u64::from(slot))).collect();
        points.iter().for_each(|&(slot, _)| bigger.write_vector(slot, &data.point(&mut rng, Metric::L2)));
        insert_all(&bigger, &points, |_| false);
        dump(&bigger)
    });
    assert!(grown == restored);
}

#[test]
fn damaged_edge_lists_are_refused() {
    let graph = Graph::new(config(4, Metric::L2, 2, 10)).unwrap();
    let full = vec![1, 2, 3, 4, 5, 6, 7];
    let cases: [(Slot, &[Vec<Slot>], &str); 7] = [
        (0, &[], "0 levels"),
        (0, &[vec![10]], "names slot 10 of 10"),
        (0, &[vec![0]], "loop"),
        (0, &[vec![1, 1]], "repetition"),
        (0, &[full], "at most 6"),
        (0, &[vec![1], vec![1, 2, 3]], "at most 2"),
        (10, &[vec![1]], "10 slots"),
    ];
    for (slot, levels, fragment) in cases {
        let error = graph.restore(slot, levels).unwrap_err();
        assert!(error.contains(fragment), "{error}");
    }
    assert!((0..10).all(|slot| !graph.is_linked(slot)));
    graph.restore(0, &[vec![1, 9]]).unwrap();
    assert!(graph.restore(0, &[vec![1]]).unwrap_err().contains("linked already"));
}

#[test]
fn dirty_slots_are_those_whose_edges_changed() {
    let (graph, data, mut rng) = built(config(8, Metric::L2, 4, 301), 300, 5);
    let mut all = BTreeSet::new();
    graph.take_dirty(&mut |slot| assert!(all.insert(slot), "{slot} twice"));
    assert_eq!(all, (0..300).collect());
    graph.take_dirty(&mut |slot| panic!("{slot} was taken already"));
    let before = dump(&graph);
    graph.write_vector(300, &data.point(&mut rng, Metric::L2));
    insert_all(&graph, &[(300, 300)], |_| false);
    let after = dump(&graph);
    let changed: BTreeSet<Slot> = (0..301).filter(|&s| before[s as usize] != after[s as usize]).collect();
    let mut dirty = BTreeSet::new();
    graph.take_dirty(&mut |slot| assert!(dirty.insert(slot)));
    assert_eq!(dirty, changed);
}
