//! Queries inside queries against the same tree of lanes evaluated step by step.
use super::tests::{Bed, even, fuse_all, ids, leaf};
use super::*;
use crate::distance::Metric;
use crate::point_id::SentId;
use crate::text::TextMatch;
use std::collections::BTreeSet;

/// The hits of a lane, best first: id, distance and score.
type Hits = Vec<(u64, f32, f32)>;

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn vector(&mut self) -> Vec<f32> {
        (0..4).map(|_| self.below(2001) as f32 / 1000.0 - 1.0).collect()
    }

    fn method(&mut self) -> Method {
        match self.below(4) {
            0 => Method::Rrf { c: 0.0 },
            1 => Method::Weighted { alpha: None },
            2 => Method::Weighted { alpha: Some(0.3) },
            _ => Method::Dbsf { alpha: None },
        }
    }

    fn leaf(&mut self) -> Leaf {
        let source = match self.below(5) {
            0 | 1 => Source::Dense(self.vector()),
            2 => Source::Sparse(vec![(self.below(6) as u32, 1.0), (9, 0.5)]),
            3 => Source::Text(TextMatch::words(if self.below(2) == 0 { "stone" } else { "nothing of that" })),
            _ => {
                let positive = ids(&[self.below(120), self.below(120)]);
                Source::Recommend(Recommend { positive, negative: Vec::new(), strategy: Strategy::Average })
            }
        };
        let filter = if self.below(4) == 0 { even() } else { None };
        Leaf { filter, ..leaf(source, 1 + self.below(40) as usize) }
    }

    fn lane(&mut self, depth: u64) -> Leaf {
        if depth == 0 || self.below(2) == 0 {
            return self.leaf();
        }
        let lanes = (0..1 + self.below(3)).map(|_| self.lane(depth - 1)).collect();
        let root = (self.below(3) == 0).then(|| leaf(Source::Dense(self.vector()), 0));
        let inner = InnerQuery { lanes, root, method: self.method() };
        leaf(Source::Query(Box::new(inner)), 1 + self.below(40) as usize)
    }
}

/// The ids that recommendations in these lanes name.
fn named(lanes: &[Leaf]) -> BTreeSet<u64> {
    let of_lane = |lane: &Leaf| match &lane.source {
        Source::Recommend(recommend) => recommend.ids().collect(),
        Source::Query(inner) => named(&inner.lanes),
        _ => BTreeSet::new(),
    };
    lanes.iter().flat_map(of_lane).collect()
}

/// What a lane finds, and whether it ranks by distance.
fn lane(bed: &Bed, of: &Leaf) -> (Ranking, Hits) {
    let Source::Query(inner) = &of.source else {
        let hits = bed.run(&fuse_all(vec![of.clone()], of.pool)).unwrap();
        let by_distance = matches!(of.source, Source::Dense(_) | Source::Recommend(_));
        return (if by_distance { Ranking::Distance } else { Ranking::Score }, hits);
    };
    let found: Vec<(Ranking, Hits)> = inner.lanes.iter().map(|inner| lane(bed, inner)).collect();
    let (ranking, mut hits) = match &inner.root {
        Some(root) => {
            let Source::Dense(vector) = &root.source else { panic!() };
            let any: BTreeSet<u64> = found.iter().flat_map(|(_, hits)| hits).map(|hit| hit.0).collect();
            let asked = bed.prepared(vector);
            let ranked =
                bed.ranked(|id, stored| any.contains(&id).then(|| (bed.distance(&asked, stored), 0.0)));
            (Ranking::Distance, ranked)
        }
        None => combined(found, inner.method),
    };
    let named = named(&inner.lanes);
    hits.retain(|hit| !named.contains(&hit.0));
    hits.truncate(of.pool);
    (ranking, hits)
}

/// Fused hits; those of the only lane that found something come as they are.
fn combined(lanes: Vec<(Ranking, Hits)>, method: Method) -> (Ranking, Hits) {
    let filled: Vec<_> = lanes.iter().filter(|(_, hits)| !hits.is_empty()).collect();
    match filled[..] {
        [] => return (Ranking::Score, Vec::new()),
        [lane] => return lane.clone(),
        _ => {}
    }
    let values: Vec<Vec<(u64, f32)>> = lanes
        .iter()
        .map(|(ranking, hits)| {
            let by_distance = *ranking == Ranking::Distance;
            hits.iter().map(|hit| (hit.0, if by_distance { hit.1 } else { hit.2 })).collect()
        })
        .collect();
    let fused: Vec<Lane<'_>> =
        lanes.iter().zip(&values).map(|((ranking, _), hits)| Lane { ranking: *ranking, hits }).collect();
    let weights = match method {
        Method::Rrf { .. } => Vec::new(),
        Method::Weighted { alpha } | Method::Dbsf { alpha } => lane_weights(alpha, lanes.len()),
    };
    let method = match method {
        Method::Rrf { c } => Fusion::Rrf { c },
        Method::Weighted { .. } => Fusion::Weighted(&weights),
        Method::Dbsf { .. } => Fusion::Dbsf(&weights),
    };
    let hits = fuse(&fused, method, usize::MAX).into_iter();
    (Ranking::Score, hits.map(|hit| (hit.id, hit.distance.unwrap_or(0.0), hit.score)).collect())
}

#[test]
fn a_query_inside_a_query_is_a_lane_with_its_result() {
    let mut random = Random(3);
    let (mut inner_queries, mut hits_seen) = (0, 0);
    for metric in [Metric::L2, Metric::Cosine] {
        let bed = Bed::new(metric);
        for round in 0..300 {
            let lanes: Vec<Leaf> = (0..1 + random.below(3)).map(|_| random.lane(3)).collect();
            inner_queries += lanes.iter().filter(|lane| matches!(lane.source, Source::Query(_))).count();
            let (method, k) = (random.method(), 1 + random.below(30) as usize);
            let (ranking, mut expected) = combined(lanes.iter().map(|of| lane(&bed, of)).collect(), method);
            let named = named(&lanes);
            expected.retain(|hit| !named.contains(&hit.0));
            expected.truncate(k);
            let first = lane_query::first_by_distance(&lanes).map(|first| first.source.clone());
            let query = LaneQuery { lanes, combine: Combine::Fuse(method), ..fuse_all(Vec::new(), k) };
            let found = bed.run(&query).unwrap();
            hits_seen += found.len();
            let order = |hits: &Hits| hits.iter().map(|hit| (hit.0, hit.2)).collect::<Vec<_>>();
            match ranking {
                Ranking::Distance => assert_eq!(found, expected, "{metric:?}, {round}: {query:?}"),
                Ranking::Score => {
                    assert_eq!(order(&found), order(&expected), "{metric:?}, {round}: {query:?}")
                }
            }
            // Hits that no lane of the query itself gave a distance have that to what the first leaf asked for.
            if let (Ranking::Score, Some(Source::Dense(vector))) = (ranking, &first) {
                let asked = bed.prepared(vector);
                for (hit, (_, known, _)) in found.iter().zip(&expected).filter(|(_, hit)| hit.1 == 0.0) {
                    let distance = bed.distance(&asked, &bed.vectors[&hit.0]);
                    assert!(hit.1 == distance || hit.1 == *known, "{metric:?}, {round}: {hit:?}, {distance}");
                }
            }
        }
    }
    assert!(inner_queries > 200 && hits_seen > 3000, "{inner_queries} {hits_seen}");
}

#[test]
fn reports_name_the_lanes_of_inner_queries_before_these() {
    let bed = Bed::new(Metric::L2);
    let text = |words: &str, pool| leaf(Source::Text(TextMatch::words(words)), pool);
    let inner = InnerQuery {
        lanes: vec![text("stone", 5), leaf(Source::Dense(vec![0.5; 4]), 6)],
        root: None,
        method: Method::Rrf { c: 0.0 },
    };
    let query = fuse_all(vec![leaf(Source::Query(Box::new(inner)), 7), text("water", 8)], 9);
    let reports: Vec<_> =
        bed.reports(&query).iter().map(|report| (report.lane, report.pool, report.hits)).collect();
    let [first, second, third, fourth] = reports[..] else { panic!("{reports:?}") };
    assert_eq!([first, second, fourth], [("text", 5, 5), ("dense", 6, 6), ("text", 8, 8)]);
    assert_eq!((third.0, third.1), ("query", 7));
}

#[test]
fn a_query_cannot_be_the_root_and_its_lanes_are_checked() {
    let bed = Bed::new(Metric::Cosine);
    let inner = |source| {
        let lanes = vec![leaf(source, 5)];
        Source::Query(Box::new(InnerQuery { lanes, root: None, method: Method::Rrf { c: 0.0 } }))
    };
    let dense = || Source::Dense(vec![0.5; 4]);
    let lanes = vec![leaf(dense(), 5)];
    assert_eq!(bed.run(&super::tests::rerank(lanes, inner(dense()), 3)), Err(LaneError::RootIsQuery));
    let short = fuse_all(vec![leaf(inner(Source::Dense(vec![0.5; 3])), 5)], 3);
    assert!(matches!(bed.run(&short), Err(LaneError::Search(_))));
    let unknown = Recommend { positive: ids(&[5000]), negative: Vec::new(), strategy: Strategy::Average };
    let unknown = fuse_all(vec![leaf(inner(Source::Recommend(unknown)), 5)], 3);
    assert_eq!(bed.run(&unknown), Err(LaneError::UnknownExample(SentId::from(5000))));
    // A threshold of distances needs a lane with distances, at whatever depth.
    let options = QueryOptions { distance_threshold: Some(0.5), ..QueryOptions::default() };
    let by_score = LaneQuery { options, ..fuse_all(vec![leaf(inner(Source::Sparse(vec![(9, 1.0)])), 5)], 3) };
    assert_eq!(bed.run(&by_score), Err(LaneError::NoDistance));
    let by_distance = LaneQuery { options, ..fuse_all(vec![leaf(inner(dense()), 5)], 5) };
    let all = bed.run(&fuse_all(vec![leaf(dense(), 5)], 5)).unwrap();
    let near: Vec<_> = all.into_iter().filter(|hit| hit.1 <= 0.5).collect();
    assert_eq!(bed.run(&by_distance).unwrap(), near);
}
