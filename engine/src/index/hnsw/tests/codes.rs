//! Walks over codes against walks over vectors, and when there are codes.
use super::*;
use crate::distance::Kernel;

const DIM: usize = 96;

fn coded(metric: Metric, capacity: usize) -> GraphConfig {
    config(DIM, metric, 8, capacity)
}

fn prepared_queries(data: &Clusters, rng: &mut Rng, metric: Metric, count: usize) -> Vec<Vec<f32>> {
    (0..count).map(|_| data.point(rng, metric)).collect()
}

#[test]
fn walks_over_codes_return_exact_distances_and_lose_little() {
    let n = 3000;
    for metric in [Metric::Cosine, Metric::L2, Metric::Dot] {
        let (graph, data, mut rng) = built(coded(metric, n), n, 40);
        let (plain, ..) = built(GraphConfig { codes: false, ..coded(metric, n) }, n, 40);
        assert!(graph.code_step().is_some() && plain.code_step().is_none(), "{metric:?}");
        assert!(graph.code_bytes() == n * 128 && plain.code_bytes() == 0);
        assert_eq!(graph.bytes() - graph.code_bytes(), plain.bytes());
        let live = (0..n as Slot).collect();
        check_invariants(&graph, &live);
        assert_eq!(unreachable(&graph, &live), 0);

        let queries = prepared_queries(&data, &mut rng, metric, 100);
        for (k, ef) in [(1, 32), (10, 32), (10, 64), (60, 100)] {
            let [by_codes, by_vectors] = [&graph, &plain].map(|graph| recall(graph, &queries, &live, k, ef));
            assert!(by_codes >= by_vectors - 0.01, "{metric:?}, {k} of {ef}: {by_codes} for {by_vectors}");
        }
        let (kernel, mut scratch) = (Kernel::of(metric), Scratch::new());
        for query in &queries {
            let found = graph.search(query, 10, 64, &mut scratch, |slot| slot % 3 > 0);
            assert!(found.len() >= 15 && found.is_sorted());
            for near in found {
                assert!(near.slot % 3 > 0);
                assert_eq!(
                    near.distance.to_bits(),
                    kernel.distance(query, graph.vector(near.slot)).to_bits()
                );
            }
        }
    }
}

#[test]
fn what_codes_confuse_is_scored_exactly() {
    // Points as near to each other as a step of the codes: their order by codes says little.
    let mut rng = Rng::new(3);
    let graph = Graph::new(coded(Metric::L2, 1400)).unwrap();
    let far = Clusters::new(&mut rng, DIM, 1100, 0.0);
    let near = Clusters::new(&mut rng, DIM, 1, 0.004);
    for slot in 0..1100 {
        graph.write_vector(slot, &far.point(&mut rng, Metric::L2));
    }
    for slot in 1100..1400 {
        graph.write_vector(slot, &near.point(&mut rng, Metric::L2));
    }
    let points: Vec<_> = (0..1400).map(|slot| (slot, u64::from(slot))).collect();
    insert_all(&graph, &points, |_| false);
    assert!(graph.code_step().is_some(), "the sample is of clusters");
    let queries = prepared_queries(&near, &mut rng, Metric::L2, 20);
    let got = recall(&graph, &queries, &(0..1400).collect(), 10, 320);
    assert!(got > 0.95, "recall {got}");
}

#[test]
fn codes_begin_with_enough_vectors_and_follow_what_is_written() {
    let mut rng = Rng::new(1);
    let data = Clusters::new(&mut rng, DIM, 20, 0.3);
    let graph = Graph::new(coded(Metric::L2, 20_000)).unwrap();
    let mut written = 0;
    let mut write = |graph: &Graph, to: Slot| {
        (written..to).for_each(|slot| graph.write_vector(slot, &data.point(&mut rng, Metric::L2)));
        written = to;
    };
    write(&graph, 1023);
    graph.begin_round();
    assert_eq!(graph.code_step(), None);
    write(&graph, 1024);
    graph.begin_round();
    assert!(graph.code_step().is_some());
    write(&graph, 3000);
    let exact = Kernel::of(Metric::L2);
    for (a, b) in [(0, 1), (7, 1023), (1500, 2999), (1024, 5)] {
        let (coded, exact) = (graph.distance(a, b), exact.distance(graph.vector(a), graph.vector(b)));
        assert!((coded - exact).abs() < 0.03 * exact + 0.03, "{a} {b}: {coded} for {exact}");
    }
    // Where many are there already, codes are written in parts and used when all are there.
    let late = Graph::new(coded(Metric::L2, 50_000)).unwrap();
    (0..40_000).for_each(|slot| late.write_vector(slot, graph.vector(slot % 2999)));
    late.begin_round();
    assert_eq!(late.code_step(), None);
    late.write_vector(40_000, graph.vector(4));
    (0..2).for_each(|_| late.begin_round());
    assert!(late.code_step().is_some());
    assert_eq!(late.distance(4, 40_000), 0.0);
    // A restored graph does not wait.
    let restored = Graph::new(coded(Metric::L2, 50_000)).unwrap();
    (0..40_000).for_each(|slot| restored.write_vector(slot, graph.vector(slot % 2999)));
    restored.set_entry(None);
    assert_eq!(restored.code_step(), late.code_step());
}

#[test]
fn vectors_that_codes_do_not_fit_are_walked_as_they_are() {
    let mut rng = Rng::new(2);
    // One component is a thousand or nothing, and neighbours differ in the others.
    let mut odd = |scale: f32| {
        let mut vector: Vec<f32> = (0..DIM).map(|_| 0.01 * rng.float()).collect();
        vector[5] = if rng.below(2) == 0 { 0.0 } else { scale };
        vector
    };
    let graph = Graph::new(coded(Metric::L2, 5000)).unwrap();
    (0..2000).for_each(|slot| graph.write_vector(slot, &odd(1000.0)));
    let points: Vec<_> = (0..2000).map(|slot| (slot, u64::from(slot))).collect();
    insert_all(&graph, &points, |_| false);
    assert_eq!(graph.code_step(), None);
    let queries: Vec<_> = (0..30).map(|_| odd(1000.0)).collect();
    let got = recall(&graph, &queries, &(0..2000).collect(), 10, 100);
    assert!(got > 0.9, "recall {got}");

    // Vectors that fit first, and then do not.
    let graph = Graph::new(coded(Metric::L2, 5000)).unwrap();
    (0..1100).for_each(|slot| graph.write_vector(slot, &odd(0.0)));
    graph.begin_round();
    assert!(graph.code_step().is_some());
    (1100..2200).for_each(|slot| graph.write_vector(slot, &odd(1000.0)));
    graph.begin_round();
    assert_eq!(graph.code_step(), None);
    (2200..4400).for_each(|slot| graph.write_vector(slot, &odd(1000.0)));
    graph.begin_round();
    assert_eq!(graph.code_step(), None, "not tried again");
}

#[test]
fn short_long_and_equal_vectors_have_no_codes() {
    let mut rng = Rng::new(6);
    for (dim, several, wanted) in
        [(63, true, false), (64, true, true), (64, false, false), (32_769, true, false)]
    {
        let graph = Graph::new(config(dim, Metric::Dot, 4, 1100)).unwrap();
        let mut row = vec![0.0; padded(dim)];
        for slot in 0..1100 {
            if several || slot == 0 {
                row[..dim].fill_with(|| rng.float());
            }
            graph.write_vector(slot, &row);
        }
        graph.begin_round();
        assert_eq!(graph.code_step().is_some(), wanted, "{dim}, several {several}");
    }
    // Nothing to choose a step by.
    let graph = Graph::new(coded(Metric::Cosine, 1100)).unwrap();
    (0..1100).for_each(|slot| graph.write_vector(slot, &[0.0; DIM]));
    graph.begin_round();
    assert_eq!(graph.code_step(), None);
}

/// A scan by codes keeps all that a scan of everything would, ties included, whatever the codes lose.
#[test]
fn scans_leave_out_only_what_is_certainly_farther() {
    for (metric, clipped) in [Metric::Cosine, Metric::L2, Metric::Dot]
        .into_iter()
        .flat_map(|metric| [(metric, false), (metric, true)])
    {
        let mut rng = Rng::new(9);
        let data = Clusters::new(&mut rng, DIM, 15, 0.2);
        let graph = Graph::new(coded(metric, 2400)).unwrap();
        (0..1200).for_each(|slot| graph.write_vector(slot, &data.point(&mut rng, metric)));
        graph.begin_round();
        assert!(graph.code_step().is_some());
        for slot in 1200..2400 {
            let mut vector = data.point(&mut rng, metric);
            if clipped && slot % 7 == 0 {
                vector[3] *= 4.0;
            }
            // And some that are there twice.
            let twice = if slot % 5 == 0 { graph.vector(slot - 1200).to_vec() } else { vector };
            graph.write_vector(slot, &twice);
        }
        let mut left = 0;
        for query in prepared_queries(&data, &mut rng, metric, 30) {
            let exact = exact_search(graph.kernel(), graph.vectors(), &query, 0..2400, 2400, |_| true);
            let mut scan = Scan::new(&graph, &query);
            for kth in [0, 9, 200] {
                let to_beat = exact[kth].distance;
                let (mut slots, mut distances) = ((0..2400).collect(), Vec::new());
                scan.score(&mut slots, Some(to_beat), &mut distances);
                left += slots.len();
                let found =
                    slots.iter().zip(&distances).map(|(&slot, &distance)| Neighbor { slot, distance });
                let mut found: Vec<Neighbor> = found.filter(|near| near.distance <= to_beat).collect();
                found.sort_unstable();
                let wanted = exact.iter().filter(|near| near.distance <= to_beat);
                assert!(found.iter().eq(wanted), "{metric:?}, clipped {clipped}, up to {kth}");
            }
        }
        assert!(clipped || left < 30 * 3 * 1000, "{metric:?}: {left} left");
    }
}

/// What comes later may fit the step of the first, and yet be nearer to each other than codes tell.
#[test]
fn codes_are_given_up_when_neighbours_come_too_near() {
    let mut rng = Rng::new(4);
    let far = Clusters::new(&mut rng, DIM, 1100, 0.0);
    let near = Clusters::new(&mut rng, DIM, 1, 0.003);
    let graph = Graph::new(coded(Metric::L2, 6000)).unwrap();
    let mut write = |data: &Clusters, slots: std::ops::Range<Slot>| {
        let points: Vec<_> = slots.map(|slot| (slot, u64::from(slot))).collect();
        for &(slot, _) in &points {
            graph.write_vector(slot, &data.point(&mut rng, Metric::L2));
        }
        insert_all(&graph, &points, |_| false);
    };
    write(&far, 0..1100);
    assert!(graph.code_step().is_some());
    (1100..6000).step_by(700).for_each(|from| write(&near, from..from + 700));
    assert_eq!(graph.code_step(), None);
    assert!(graph.code_bytes() > 0, "what was written is still there");
    let queries: Vec<_> = (0..20).map(|_| near.point(&mut rng, Metric::L2)).collect();
    let got = recall(&graph, &queries, &(0..6000).collect(), 10, 200);
    assert!(got > 0.8, "recall {got}");
}

#[test]
fn equal_vectors_are_all_scored_for_whoever_breaks_the_tie() {
    let mut rng = Rng::new(5);
    let data = Clusters::new(&mut rng, DIM, 1200, 0.0);
    let graph = Graph::new(coded(Metric::Cosine, 1400)).unwrap();
    let twin = data.point(&mut rng, Metric::Cosine);
    for slot in 0..1400 {
        let other = data.point(&mut rng, Metric::Cosine);
        graph.write_vector(slot, if slot % 28 == 3 { &twin } else { &other });
    }
    let points: Vec<_> = (0..1400).map(|slot| (slot, u64::from(slot))).collect();
    insert_all(&graph, &points, |_| false);
    assert!(graph.code_step().is_some());
    let mut scratch = Scratch::new();
    let found = graph.search(&twin, 10, 120, &mut scratch, |_| true);
    let nearest = found.iter().filter(|near| near.distance == found[0].distance).count();
    assert!(nearest >= 50, "{nearest} of 50");
}
