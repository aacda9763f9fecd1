//! The options of queries against plain loops over all points.
use super::tests::{Bed, even, fuse_all, ids, leaf, rerank};
use super::*;
use crate::collection::{DenseConfig, DenseWriter, Parts, Write};
use crate::distance::Metric;
use crate::memory::Domain;
use crate::random::SplitMix64;
use crate::text::TextMatch;

/// A score that grows with fit, as the interface defines it.
fn naive_similarity(metric: Metric, a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    match metric {
        Metric::Dot => dot(a, b),
        Metric::Cosine => dot(a, b) / (dot(a, a) * dot(b, b)).sqrt(),
        Metric::L2 => {
            1.0 / (1.0 + a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>())
        }
    }
}

#[test]
fn a_search_of_one_lane_is_cut_as_a_loop_would_cut_it() {
    for metric in [Metric::L2, Metric::Cosine, Metric::Dot] {
        let mut bed = Bed::new(metric);
        let mut cut = 0;
        for round in 0..60 {
            let vector = bed.vector();
            let prepared = bed.prepared(&vector);
            let mut near = bed.ranked(|_, v| Some((bed.distance(&prepared, v), 0.0)));
            let (k, offset) = (1 + round % 13, round % 7 * 3);
            let least = near[near.len() / (1 + round % 5)..].first().map(|hit| similarity(metric, hit.1));
            let most = near[near.len() / (1 + round % 3)..].first().map(|hit| hit.1);
            let options = QueryOptions {
                effort: [Effort::Configured, Effort::Exact, Effort::Beam(50)][round % 3],
                offset,
                score_threshold: least.filter(|_| round % 2 == 0),
                distance_threshold: most.filter(|_| round % 4 < 2),
                with_score: round % 3 > 0,
            };
            near.retain(|hit| options.score_threshold.is_none_or(|least| similarity(metric, hit.1) >= least));
            near.retain(|hit| options.distance_threshold.is_none_or(|most| hit.1 <= most));
            cut += usize::from(near.len() < bed.vectors.len());
            let score = |distance| if options.with_score { similarity(metric, distance) } else { 0.0 };
            let wanted: Vec<_> =
                near.iter().skip(offset).take(k).map(|hit| (hit.0, hit.1, score(hit.1))).collect();
            let lane = leaf(Source::Dense(vector.clone()), k + offset);
            let query = LaneQuery { options, ..fuse_all(vec![lane], k) };
            let found = bed.run(&query).unwrap();
            assert_eq!(found, wanted, "{metric:?} {options:?} {k}");
            for (id, _, score) in found.iter().filter(|_| options.with_score) {
                let naive = naive_similarity(metric, &prepared, &bed.vectors[id]);
                assert!((f64::from(*score) - naive).abs() < 1e-5, "{metric:?}: {score} {naive}");
            }
        }
        assert!(cut > 20, "thresholds cut {cut} of 60 results");
    }
}

/// Whatever lanes a query has and whatever becomes of them: its options leave out of a longer result what they name.
#[test]
fn options_cut_the_result_of_any_query() {
    let mut bed = Bed::new(Metric::L2);
    let vector = bed.vector();
    let dense = |pool| Leaf { filter: even(), ..leaf(Source::Dense(vector.clone()), pool) };
    let text = || leaf(Source::Text(TextMatch::words("stone")), 60);
    let sparse = || leaf(Source::Sparse(vec![(1, 1.0), (9, 0.5)]), 60);
    let recommend = || {
        let strategy = Strategy::BestScore;
        leaf(Source::Recommend(Recommend { positive: ids(&[3, 4]), negative: vec![], strategy }), 60)
    };
    let diverse = |pool| LaneQuery {
        combine: Combine::Diversify { lambda: 0.5 },
        ..fuse_all(vec![leaf(Source::Dense(vector.clone()), pool)], 0)
    };
    let queries = [
        fuse_all(vec![dense(60), text()], 0),
        fuse_all(vec![text(), sparse(), dense(30)], 0),
        fuse_all(vec![recommend(), dense(60)], 0),
        rerank(vec![text(), sparse()], Source::Dense(vector.clone()), 0),
        diverse(40),
    ];
    for query in queries {
        let whole = bed.run(&LaneQuery { k: 1000, ..query.clone() }).unwrap();
        assert!(whole.len() >= 30, "{}", whole.len());
        let by_distance = !matches!(query.combine, Combine::Fuse(_));
        let score = |hit: &(u64, f32, f32)| if by_distance { similarity(Metric::L2, hit.1) } else { hit.2 };
        let mut scores: Vec<f32> = whole.iter().map(score).collect();
        scores.sort_by(f32::total_cmp);
        let (middle, far) = (scores[scores.len() / 2], whole.iter().map(|hit| hit.1).fold(0.0, f32::max));
        for (score_threshold, distance_threshold) in [
            (None, None),
            (Some(middle), None),
            (None, Some(far / 2.0)),
            (None, Some(far / 8.0)),
            (Some(middle), Some(far / 2.0)),
        ] {
            let within = |hit: &(u64, f32, f32)| {
                score_threshold.is_none_or(|least| score(hit) >= least)
                    && distance_threshold.is_none_or(|most| hit.1 <= most)
            };
            let wanted: Vec<_> = match query.combine {
                // What is beyond a threshold is no candidate: the others are found as in a smaller pool, as all come by distance.
                Combine::Diversify { .. } => {
                    let mut near = query.lanes.clone();
                    near[0].pool = whole.iter().filter(|hit| within(hit)).count();
                    bed.run(&LaneQuery { k: 1000, lanes: near, ..query.clone() }).unwrap()
                }
                _ => whole.iter().filter(|hit| within(hit)).copied().collect(),
            };
            assert_eq!(wanted.len() < whole.len(), score_threshold.or(distance_threshold).is_some());
            // The pages of a result follow each other without a gap, however few hits a page has.
            for k in [1, 7, 40] {
                let options = QueryOptions { score_threshold, distance_threshold, ..QueryOptions::default() };
                let mut paged = Vec::new();
                for offset in (0..wanted.len() + k).step_by(k) {
                    let options = QueryOptions { offset, ..options };
                    let page = bed.run(&LaneQuery { k, options, ..query.clone() }).unwrap();
                    assert_eq!(
                        page.len(),
                        k.min(wanted.len().saturating_sub(offset)),
                        "{offset} {options:?}"
                    );
                    paged.extend(page);
                }
                assert_eq!(paged, wanted, "{options:?} {:?}", query.combine);
            }
            let options = QueryOptions { offset: 1000, ..QueryOptions::default() };
            assert_eq!(bed.run(&LaneQuery { k: 9, options, ..query.clone() }).unwrap(), []);
        }
    }
}

#[test]
fn a_threshold_of_distances_needs_distances() {
    let mut bed = Bed::new(Metric::L2);
    let vector = bed.vector();
    let options = QueryOptions { distance_threshold: Some(1.0), ..QueryOptions::default() };
    let refused = |query: LaneQuery| bed.run(&LaneQuery { options, ..query }).err();
    let text = || leaf(Source::Text(TextMatch::words("stone")), 9);
    let dense = || leaf(Source::Dense(vector.clone()), 9);
    assert_eq!(refused(fuse_all(vec![text()], 9)), Some(LaneError::NoDistance));
    assert_eq!(refused(fuse_all(vec![text(), dense()], 9)), None);
    let sparse = Source::Sparse(vec![(1, 1.0)]);
    assert_eq!(refused(rerank(vec![dense()], sparse, 9)), Some(LaneError::NoDistance));
    assert_eq!(refused(rerank(vec![text()], Source::Dense(vector.clone()), 9)), None);
}

/// A wider beam looks at more points and finds more of the nearest; an exact search finds all of them, in the graph and behind a filter.
#[test]
fn effort_is_that_of_the_request() {
    const COUNT: u64 = 6000;
    let domain = Domain::new(1);
    let config = DenseConfig { m: 4, ef_construction: 16, ef_search: 10, ..DenseConfig::new(16, Metric::L2) };
    let mut writer = DenseWriter::create(config, 1 << 13, domain.clone()).unwrap();
    let (seat, mut random) = (domain.participant(0), SplitMix64(5));
    let mut vector = || -> Vec<f32> { (0..16).map(|_| (random.next() % 2001) as f32 / 1000.0).collect() };
    let mut vectors = Vec::new();
    for id in 0..COUNT {
        let parts = vector();
        let parts_of = Parts::Only(&parts);
        writer.apply(Write { seq: id + 1, id, version: 1, parts: parts_of, row: &[], deadline_ms: 0 });
        vectors.push(parts);
    }
    writer.index_all();
    let dense = writer.shared().clone();
    let search = |query: &[f32], effort: Effort| {
        let options = QueryOptions { effort, ..QueryOptions::default() };
        let query = LaneQuery { options, ..fuse_all(vec![leaf(Source::Dense(query.to_vec()), 10)], 10) };
        let mut scratch = QueryScratch::default();
        let found = search_lanes(&dense, &seat.pin(), &query, 0, &mut scratch).unwrap();
        let near = scratch.reports[0].near.expect("a dense lane says how it went");
        (found.into_iter().map(|hit| hit.id).collect::<Vec<_>>(), near)
    };
    let (mut recalls, mut distances) = ([0; 4], [0; 4]);
    for _ in 0..40 {
        let query = vector();
        let mut nearest: Vec<u64> = (0..COUNT).collect();
        let far = |id: &u64| -> f32 {
            vectors[*id as usize].iter().zip(&query).map(|(a, b)| (a - b).powi(2)).sum()
        };
        nearest.sort_by(|a, b| far(a).total_cmp(&far(b)));
        for (at, effort) in
            [Effort::Configured, Effort::Beam(40), Effort::Beam(400), Effort::Exact].into_iter().enumerate()
        {
            let (found, near) = search(&query, effort);
            recalls[at] += found.iter().filter(|id| nearest[..10].contains(id)).count();
            distances[at] += near.distances;
            assert_eq!(near.exact, effort == Effort::Exact, "{effort:?}");
        }
    }
    assert!(distances.is_sorted() && distances[0] * 4 < distances[2], "{distances:?}");
    assert!(recalls[0] < recalls[1] && recalls[1] < recalls[2], "{recalls:?}");
    assert_eq!(recalls[3], 400);
}

/// With an exact search every point is scored by the examples, also one that lies far from their middle, where candidates are sought otherwise.
#[test]
fn exact_searches_by_examples_score_every_point() {
    for metric in [Metric::L2, Metric::Cosine] {
        let bed = Bed::new(metric);
        let mut differ = 0;
        for round in 0..20 {
            let positive = [round, 100 - round, 2 * round + 40];
            let negative = if metric == Metric::L2 { vec![] } else { vec![round + 50] };
            let named: Vec<u64> = positive.iter().chain(&negative).copied().collect();
            let similarity = |id: u64, v: &[f32]| {
                let distance = bed.distance(&bed.vectors[&id], v);
                if metric == Metric::Cosine { 1.0 - distance } else { -distance }
            };
            let most = |ids: &[u64], v: &[f32]| {
                ids.iter().map(|id| similarity(*id, v)).fold(f32::NEG_INFINITY, f32::max)
            };
            let matches = |id: u64| round.is_multiple_of(2) || id.is_multiple_of(2);
            let best = bed.ranked(|id, v| {
                let (near, far) = (most(&positive, v), most(&negative, v));
                let score = if negative.is_empty() || near > far { near } else { -far };
                (!named.contains(&id) && matches(id)).then_some((-score, 0.0))
            });
            let recommend = Recommend {
                positive: ids(&positive),
                negative: ids(&negative),
                strategy: Strategy::BestScore,
            };
            let filter = if round % 2 == 0 { None } else { even() };
            let lane = Leaf { filter, ..leaf(Source::Recommend(recommend), 3) };
            let found = |effort| {
                let options = QueryOptions { effort, ..QueryOptions::default() };
                let found = bed.run(&LaneQuery { options, ..fuse_all(vec![lane.clone()], 3) }).unwrap();
                found.into_iter().map(|hit| (hit.0, hit.2)).collect::<Vec<_>>()
            };
            let wanted: Vec<_> = best.iter().take(3).map(|hit| (hit.0, -hit.1)).collect();
            assert_eq!(found(Effort::Exact), wanted, "{metric:?} {round}");
            differ += usize::from(found(Effort::Configured) != wanted);
        }
        assert!(differ > 0, "{metric:?}: candidates near the middle were enough each time");
    }
}
