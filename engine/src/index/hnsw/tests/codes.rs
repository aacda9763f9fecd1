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
fn as_many_are_scored_exactly_as_the_configuration_asks() {
    let n = 2000;
    let asked = |rescore_factor| GraphConfig { rescore_factor, ..coded(Metric::Cosine, n) };
    let (least, data, mut rng) = built(asked(0), n, 40);
    let (more, ..) = built(asked(4), n, 40);
    let mut scratch = Scratch::new();
    for query in prepared_queries(&data, &mut rng, Metric::Cosine, 20) {
        let few = least.search(&query, 10, 64, &mut scratch, |_| true).to_vec();
        let many = more.search(&query, 10, 64, &mut scratch, |_| true);
        assert!(few.len() < 40 && many.len() >= 40 && many.is_sorted());
        // The same walk: what the fewer have in common with the more stands at the same distance.
        assert_eq!(few[..10], many[..10]);
        assert_eq!(more.search(&query, usize::MAX, 64, &mut scratch, |_| true).len(), 64);
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
        .flat_map(|metric| [(metric, 0), (metric, 301), (metric, 7)])
    {
        let mut rng = Rng::new(9);
        let data = Clusters::new(&mut rng, DIM, 15, 0.2);
        let graph = Graph::new(coded(metric, 2400)).unwrap();
        (0..1200).for_each(|slot| graph.write_vector(slot, &data.point(&mut rng, metric)));
        graph.begin_round();
        assert!(graph.code_step().is_some());
        for slot in 1200..2400 {
            let mut vector = data.point(&mut rng, metric);
            if clipped > 0 && slot % clipped == 0 {
                vector[3] *= 4.0;
            }
            // And some that are there twice.
            let twice = if slot % 5 == 0 { graph.vector(slot - 1200).to_vec() } else { vector };
            graph.write_vector(slot, &twice);
        }
        let mut left = 0;
        for query in prepared_queries(&data, &mut rng, metric, 30) {
            let exact = exact_search(graph.kernel(), graph.vectors(), &query, 0..2400, 2400, |_| true);
            for k in [1, 10, 200] {
                let found = scanned(&graph, &query, k, 2400);
                left += found.len();
                let last = exact[k - 1].distance;
                let wanted = exact.iter().filter(|near| near.distance <= last);
                let found = found.iter().filter(|near| near.distance <= last);
                assert!(found.eq(wanted), "{metric:?}, one in {clipped} clipped, {k} nearest");
            }
        }
        // A few that are clipped cost the others nothing.
        assert!(clipped == 7 || left < 30 * 3 * 200, "{metric:?}, {clipped}: {left} left");
    }
}

/// All that a scan of the first `end` slots for `k` scores exactly, nearest first.
fn scanned(graph: &Graph, query: &[f32], k: usize, end: Slot) -> Vec<Neighbor> {
    let mut scan = Scan::new(graph, query, k);
    let (mut slots, mut distances, mut found) = (Vec::new(), Vec::new(), Vec::new());
    let mut score = |scan: &mut Scan<'_>, slots: &[Slot], found: &mut Vec<Neighbor>| {
        scan.score(slots, &mut distances);
        let scored = slots.iter().zip(&distances);
        found.extend(scored.map(|(&slot, &distance)| Neighbor { slot, distance }));
        found.sort_unstable();
    };
    for chunk in (0..end).collect::<Vec<Slot>>().chunks(64) {
        assert!(scan.sift(chunk));
        while scan.is_crowded() {
            scan.some(64, &mut slots);
            assert!(!slots.is_empty(), "a crowd has someone in it");
            score(&mut scan, &slots, &mut found);
        }
    }
    loop {
        let to_beat = found.get(k - 1).map(|near: &Neighbor| near.distance);
        scan.nearest(to_beat, 7, &mut slots);
        if slots.is_empty() {
            return found;
        }
        score(&mut scan, &slots, &mut found);
    }
}

/// Queries for which codes say little or nothing, and vectors that make bounds wide or meaningless.
#[test]
fn scans_are_exact_where_codes_tell_nothing_apart() {
    for (metric, longest) in [
        (Metric::Cosine, 1.0),
        (Metric::L2, 1.0),
        (Metric::Dot, 1.0),
        (Metric::Dot, 1e3),
        (Metric::Dot, 1e18),
    ] {
        let mut rng = Rng::new(11);
        let data = Clusters::new(&mut rng, DIM, 15, 0.2);
        let graph = Graph::new(coded(metric, 2400)).unwrap();
        for slot in 0..2400 {
            let mut vector = data.point(&mut rng, metric);
            if slot == 2000 {
                vector.iter_mut().for_each(|component| *component *= longest);
            }
            graph.write_vector(slot, &vector);
            if slot == 1199 {
                graph.begin_round();
            }
        }
        assert!(graph.code_step().is_some());
        let one_hot: Vec<f32> = (0..padded(DIM)).map(|index| if index == 5 { 1.0 } else { 0.0 }).collect();
        let mut queries = prepared_queries(&data, &mut rng, metric, 3);
        let far: Vec<f32> = queries[0].iter().map(|component| component * 1e4).collect();
        queries.extend([vec![0.0; padded(DIM)], one_hot, far]);
        for (query, k) in queries.iter().flat_map(|query| [(query, 1), (query, 10), (query, 700)]) {
            let exact = exact_search(graph.kernel(), graph.vectors(), query, 0..2400, 2400, |_| true);
            let last = exact[k - 1].distance;
            let found = scanned(&graph, query, k, 2400);
            let wanted = exact.iter().filter(|near| near.distance <= last);
            assert!(
                found.iter().filter(|near| near.distance <= last).eq(wanted),
                "{metric:?}, {longest}, {k}"
            );
            let mut slots: Vec<Slot> = found.iter().map(|near| near.slot).collect();
            slots.sort_unstable();
            assert!(slots.is_sorted_by(|a, b| a < b), "none twice");
        }
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
