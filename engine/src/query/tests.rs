//! Queries of lanes against plain loops over all points. The collection is small enough to be scanned, so every lane is exact.
use super::*;
use crate::collection::{DenseConfig, DenseWriter, Parts, SearchError, Write};
use crate::distance::{Kernel, Metric, padded, prepare};
use crate::filter::{Node, Predicate};
use crate::memory::{Domain, Participant};
use crate::pace::{Whole, at_once};
use crate::payload::{CONTENT_KEY, RowBuilder, Value};
use crate::point_id::SentId;
use crate::text::{TextConfig, TextMatch};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const DIM: usize = 4;
const N: u64 = 120;

pub(super) struct Bed {
    metric: Metric,
    seat: Participant,
    writer: DenseWriter,
    pub(super) vectors: BTreeMap<u64, Vec<f32>>,
    state: u64,
}

fn group_of(id: u64) -> Option<Value> {
    match id % 6 {
        0 => Some(Value::Int(1)),
        1 => Some(Value::String("1".into())),
        2 => Some(Value::Float(if id % 12 == 2 { 0.0 } else { -0.0 })),
        3 => Some(Value::Bool(true)),
        4 => Some(Value::Ints(vec![1])),
        _ => None,
    }
}

impl Bed {
    pub(super) fn new(metric: Metric) -> Bed {
        let domain = Domain::new(1);
        let config = DenseConfig { full_text: Some(TextConfig::default()), ..DenseConfig::new(DIM, metric) };
        let writer = DenseWriter::create(config, 1024, domain.clone()).unwrap();
        let seat = domain.participant(0);
        let mut bed = Bed { metric, seat, writer, vectors: BTreeMap::new(), state: 9 };
        for id in 0..N {
            let vector = bed.vector();
            let mut row = RowBuilder::new();
            if id % 3 != 0 {
                row.set_sparse(vec![((id % 5) as u32, id as f32 / 8.0), (9, 1.0 - (id % 4) as f32)]).unwrap();
            }
            if let Some(group) = group_of(id) {
                row.set("group", group, 0);
            }
            let text = if id % 2 == 0 { "stone and water" } else { "water" };
            row.set(CONTENT_KEY, Value::String(text.into()), 0);
            row.set("even", Value::Bool(id % 2 == 0), 0);
            let row = row.finish();
            bed.writer.apply(Write {
                seq: id + 1,
                id,
                version: 1,
                parts: Parts::Only(&vector),
                row: &row,
                deadline_ms: 0,
            });
            bed.vectors.insert(id, bed.prepared(&vector));
        }
        bed
    }

    fn random(&mut self) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.state >> 33
    }

    pub(super) fn vector(&mut self) -> Vec<f32> {
        (0..DIM).map(|_| (self.random() % 2001) as f32 / 1000.0 - 1.0).collect()
    }

    pub(super) fn prepared(&self, vector: &[f32]) -> Vec<f32> {
        let mut prepared = vec![0.0; padded(DIM)];
        prepare(self.metric, vector, &mut prepared);
        prepared
    }

    pub(super) fn distance(&self, a: &[f32], b: &[f32]) -> f32 {
        Kernel::of(self.metric).distance(a, b)
    }

    pub(super) fn run(&self, query: &LaneQuery) -> Result<Vec<(u64, f32, f32)>, LaneError> {
        let pin = self.seat.pin();
        let found = search_lanes(self.writer.shared(), &pin, query, 0, &mut QueryScratch::default())?;
        Ok(found.into_iter().map(|hit| (hit.id, hit.distance, hit.score)).collect())
    }

    /// How the lanes of a query go.
    pub(super) fn reports(&self, query: &LaneQuery) -> Vec<LaneReport> {
        let (pin, mut scratch) = (self.seat.pin(), QueryScratch::default());
        search_lanes(self.writer.shared(), &pin, query, 0, &mut scratch).unwrap();
        scratch.reports
    }

    /// All points by a key, least first, then by id.
    pub(super) fn ranked(
        &self,
        mut key: impl FnMut(u64, &[f32]) -> Option<(f32, f32)>,
    ) -> Vec<(u64, f32, f32)> {
        let score = |(&id, vector): (&u64, &Vec<f32>)| key(id, vector).map(|(a, b)| (id, a, b));
        let mut all: Vec<_> = self.vectors.iter().filter_map(score).collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.2.total_cmp(&b.2)).then(a.0.cmp(&b.0)));
        all
    }
}

pub(super) fn leaf(source: Source, pool: usize) -> Leaf {
    Leaf { source, space: 0, pool, filter: None }
}

pub(super) fn ids(ids: &[u64]) -> Vec<Anchor> {
    ids.iter().map(|id| Anchor::Id(SentId::from(*id))).collect()
}

pub(super) fn fuse_all(lanes: Vec<Leaf>, k: usize) -> LaneQuery {
    LaneQuery { lanes, combine: Combine::Fuse(Method::Rrf { c: 0.0 }), k, options: QueryOptions::default() }
}

pub(super) fn rerank(lanes: Vec<Leaf>, root: Source, k: usize) -> LaneQuery {
    LaneQuery {
        lanes,
        combine: Combine::Rerank(Box::new(leaf(root, 0))),
        k,
        options: QueryOptions::default(),
    }
}

pub(super) fn even() -> Option<Arc<Predicate>> {
    let node = Node {
        op: Some("eq".into()),
        field: Some("even".into()),
        value: Some(Value::Bool(true)),
        ..Node::default()
    };
    Some(Arc::new(Predicate::compile(&node).unwrap()))
}

#[test]
fn one_lane_comes_as_it_is() {
    let mut bed = Bed::new(Metric::L2);
    let vector = bed.vector();
    let prepared = bed.prepared(&vector);
    let near = bed.ranked(|_, v| Some((bed.distance(&prepared, v), 0.0)));
    let dense = || leaf(Source::Dense(vector.clone()), 20);
    let found = bed.run(&fuse_all(vec![dense()], 7)).unwrap();
    assert_eq!(found, near[..7].iter().map(|&(id, d, _)| (id, d, 0.0)).collect::<Vec<_>>());
    // Lanes that find nothing change nothing.
    let nothing = leaf(Source::Sparse(vec![(77, 1.0)]), 20);
    assert_eq!(bed.run(&fuse_all(vec![nothing.clone(), dense()], 7)).unwrap(), found);
    let stop_words = leaf(Source::Text(TextMatch::words("and the")), 20);
    assert_eq!(bed.run(&fuse_all(vec![dense(), stop_words.clone()], 7)).unwrap(), found);
    assert_eq!(bed.run(&fuse_all(vec![nothing, stop_words], 7)).unwrap(), []);
    let text = bed.run(&fuse_all(vec![leaf(Source::Text(TextMatch::words("stones")), 500)], 500)).unwrap();
    assert!(text.len() == 60 && text.iter().all(|hit| hit.0 % 2 == 0 && hit.1 == 0.0 && hit.2 > 0.0));
    // The pool cuts before k does.
    assert_eq!(bed.run(&fuse_all(vec![leaf(Source::Dense(vector), 3)], 7)).unwrap(), found[..3]);
}

#[test]
fn three_lanes_add_up() {
    let mut bed = Bed::new(Metric::Cosine);
    let (a, b) = (bed.vector(), bed.vector());
    let lanes = vec![
        Leaf { filter: even(), ..leaf(Source::Dense(a.clone()), 30) },
        leaf(Source::Sparse(vec![(1, 1.0), (9, 0.5)]), 25),
        leaf(Source::Dense(b.clone()), 10),
    ];
    let alone: Vec<_> =
        lanes.iter().map(|lane| bed.run(&fuse_all(vec![lane.clone()], 99)).unwrap()).collect();
    assert!(alone[0].len() == 30 && alone[0].iter().all(|hit| hit.0 % 2 == 0));
    let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
    for lane in &alone {
        for (rank, hit) in lane.iter().enumerate() {
            *sums.entry(hit.0).or_default() += 1.0 / (61.0 + rank as f64);
        }
    }
    let mut wanted: Vec<(u64, f32)> = sums.iter().map(|(&id, &sum)| (id, sum as f32)).collect();
    wanted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let found = bed.run(&fuse_all(lanes, 40)).unwrap();
    assert_eq!(found.iter().map(|hit| (hit.0, hit.2)).collect::<Vec<_>>(), wanted[..40]);
    for (id, distance, _) in found {
        let of = |lane: usize| alone[lane].iter().find(|hit| hit.0 == id).map(|hit| hit.1);
        let measured = || bed.distance(&bed.prepared(&a), &bed.vectors[&id]);
        assert_eq!(
            distance,
            of(0).or(of(2)).unwrap_or_else(measured),
            "of the first lane that ranks by distance"
        );
    }
}

#[test]
fn hits_of_other_lanes_alone_are_measured_to_the_dense_query() {
    for metric in [Metric::Cosine, Metric::Dot, Metric::L2] {
        let mut bed = Bed::new(metric);
        let vector = bed.vector();
        let asked = bed.prepared(&vector);
        let water = || leaf(Source::Text(TextMatch::words("water")), 100);
        let one = leaf(Source::Dense(vector.clone()), 1);
        let found = bed.run(&fuse_all(vec![one, water()], 100)).unwrap();
        assert!(found.len() >= 100);
        for &(id, distance, score) in &found {
            assert!(score > 0.0 && distance == bed.distance(&asked, &bed.vectors[&id]), "{id}: {distance}");
        }
        // The dense lane finds nothing at all here, and the text lane comes as it is.
        let absent = Node {
            op: Some("eq".into()),
            field: Some("even".into()),
            value: Some(Value::Int(7)),
            ..Node::default()
        };
        let filter = Some(Arc::new(Predicate::compile(&absent).unwrap()));
        let nothing = Leaf { filter, ..leaf(Source::Dense(vector), 10) };
        let found = bed.run(&fuse_all(vec![water(), nothing], 9)).unwrap();
        let alone = bed.run(&fuse_all(vec![water()], 9)).unwrap();
        assert_eq!(found.len(), 9);
        for (found, alone) in found.iter().zip(&alone) {
            assert_eq!((found.0, found.2, alone.1), (alone.0, alone.2, 0.0));
            assert_eq!(found.1, bed.distance(&asked, &bed.vectors[&found.0]));
        }
        // An average of examples is a query as well.
        let recommend = Recommend { positive: ids(&[3]), negative: vec![], strategy: Strategy::Average };
        let found = bed.run(&fuse_all(vec![leaf(Source::Recommend(recommend), 1), water()], 50)).unwrap();
        assert!(found.iter().all(|&(id, distance, _)| {
            (distance - bed.distance(&bed.vectors[&3], &bed.vectors[&id])).abs() < 1e-5
        }));
    }
}

#[test]
fn recommendations_agree_with_loops() {
    for metric in [Metric::Cosine, Metric::Dot, Metric::L2] {
        let bed = Bed::new(metric);
        let (positive, negative) = (vec![3, 10, 999], vec![50, 998]);
        let of = |ids: &[u64]| -> Vec<Vec<f32>> {
            ids.iter().filter_map(|id| bed.vectors.get(id).cloned()).collect()
        };
        let named = [3, 10, 999, 50, 998];
        let (near, far) = (of(&positive), of(&negative));
        let query = |strategy, negative: &[u64]| {
            let recommend = Recommend { positive: ids(&positive), negative: ids(negative), strategy };
            fuse_all(vec![leaf(Source::Recommend(recommend), 200)], 200)
        };
        let average: Vec<f32> = (0..DIM).map(|i| (near[0][i] + near[1][i]) / 2.0 - far[0][i]).collect();
        let average = bed.prepared(&average);
        let wanted = bed.ranked(|id, v| (!named.contains(&id)).then(|| (bed.distance(&average, v), 0.0)));
        let found = bed.run(&query(Strategy::Average, &negative)).unwrap();
        assert_eq!(found.len(), wanted.len());
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!((found.1 - wanted.1).abs() < 1e-5 && found.2 == 0.0, "{found:?} {wanted:?}");
        }

        let similarity = |a: &[f32], b: &[f32]| match metric {
            Metric::Cosine => 1.0 - bed.distance(a, b),
            _ => -bed.distance(a, b),
        };
        let most = |of: &[Vec<f32>], v: &[f32]| of.iter().map(|x| similarity(x, v)).fold(f32::MIN, f32::max);
        let used: &[u64] = if metric == Metric::L2 { &[] } else { &negative };
        let wanted = bed.ranked(|id, v| {
            let (s, t) = (most(&near, v), if used.is_empty() { f32::MIN } else { most(&far, v) });
            let score = if s > t { s } else { -t };
            let excluded = if used.is_empty() { &named[..3] } else { &named[..] };
            (!excluded.contains(&id)).then_some((-score, 0.0))
        });
        let found = bed.run(&query(Strategy::BestScore, used)).unwrap();
        assert_eq!(found, wanted.iter().map(|&(id, s, _)| (id, 0.0, -s)).collect::<Vec<_>>(), "{metric:?}");
        if metric == Metric::L2 {
            let refused = bed.run(&query(Strategy::BestScore, &negative));
            assert_eq!(refused, Err(LaneError::NegativesUnderL2));
        }
    }
}

#[test]
fn discoveries_agree_with_loops() {
    for metric in [Metric::Cosine, Metric::Dot, Metric::L2] {
        let mut bed = Bed::new(metric);
        let (p, n, target) = (bed.vector(), bed.vector(), bed.vector());
        let context = vec![
            (Anchor::Id(SentId::from(4)), Anchor::Id(SentId::from(5))),
            (Anchor::Id(SentId::from(4)), Anchor::Id(SentId::from(777))),
            (Anchor::Vector(p.clone()), Anchor::Vector(n.clone())),
        ];
        let pairs =
            [(bed.vectors[&4].clone(), bed.vectors[&5].clone()), (bed.prepared(&p), bed.prepared(&n))];
        let mean: Vec<f32> = (0..DIM).map(|i| (pairs[0].0[i] + pairs[1].0[i]) / 2.0).collect();
        for (given, seed) in [
            (Some(Anchor::Id(SentId::from(0))), bed.vectors[&0].clone()),
            (Some(Anchor::Vector(target.clone())), bed.prepared(&target)),
            (None, bed.prepared(&mean)),
        ] {
            let discover = Discover { target: given, context: context.clone() };
            let wanted = bed.ranked(|_, v| {
                let score = pairs.iter().map(|(p, n)| {
                    let (near, far) = (bed.distance(p, v), bed.distance(n, v));
                    if near <= far { 1.0 } else { f64::from(far) - f64::from(near) }
                });
                Some((-(score.sum::<f64>() as f32), bed.distance(&seed, v)))
            });
            let wanted: Vec<_> = wanted.iter().map(|&(id, s, d)| (id, d, -s)).collect();
            let source = Source::Discover(discover);
            let found = bed.run(&fuse_all(vec![leaf(source.clone(), 200)], 200)).unwrap();
            assert_eq!(found, wanted, "{metric:?}");
            let all = leaf(Source::Text(TextMatch::words("water")), 200);
            let found = bed.run(&rerank(vec![all], source, 9)).unwrap();
            assert_eq!(found, wanted[..9].iter().map(|&(id, _, s)| (id, 0.0, s)).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_root_ranks_what_the_lanes_found() {
    let mut bed = Bed::new(Metric::Cosine);
    let (a, b) = (bed.vector(), bed.vector());
    let lanes = || vec![leaf(Source::Dense(a.clone()), 15), leaf(Source::Sparse(vec![(2, 1.0)]), 15)];
    let union: BTreeSet<u64> = lanes()
        .into_iter()
        .flat_map(|lane| bed.run(&fuse_all(vec![lane], 99)).unwrap())
        .map(|hit| hit.0)
        .collect();
    assert!(union.len() > 15);
    let to = bed.prepared(&b);
    let wanted = bed.ranked(|id, v| union.contains(&id).then(|| (bed.distance(&to, v), 0.0)));
    assert_eq!(bed.run(&rerank(lanes(), Source::Dense(b.clone()), 99)).unwrap(), wanted);
    let mut query = rerank(lanes(), Source::Dense(b.clone()), 99);
    let Combine::Rerank(root) = &mut query.combine else { unreachable!() };
    root.filter = even();
    let evens: Vec<_> = wanted.iter().filter(|hit| hit.0 % 2 == 0).copied().collect();
    assert_eq!(bed.run(&query).unwrap(), evens);

    for source in [Source::Sparse(vec![(1, 0.5), (9, -1.0)]), Source::Text(TextMatch::words("stone"))] {
        let all = bed.run(&fuse_all(vec![leaf(source.clone(), 500)], 500)).unwrap();
        let wanted: Vec<_> = all.into_iter().filter(|hit| union.contains(&hit.0)).collect();
        assert_eq!(bed.run(&rerank(lanes(), source, 500)).unwrap(), wanted);
    }
    let positive = *union.first().unwrap();
    let recommend = Recommend { positive: ids(&[positive]), negative: vec![], strategy: Strategy::Average };
    let found = bed.run(&rerank(lanes(), Source::Recommend(recommend), 500)).unwrap();
    assert_eq!(found.len(), union.len() - 1, "all but the example");
}

/// A text that ranks reads the documents that the lanes found, and no other.
#[test]
fn a_root_with_a_phrase_reads_what_the_lanes_found() {
    let mut bed = Bed::new(Metric::L2);
    for id in N..N + 40 {
        let mut row = RowBuilder::new();
        row.set(CONTENT_KEY, Value::String("water stone ".repeat(4000) + "stone stone"), 0);
        let vector = [id as f32; DIM];
        let parts = Parts::Only(&vector);
        let row = row.finish();
        bed.writer.apply(Write { seq: id + 1, id, version: 1, parts, row: &row, deadline_ms: 0 });
    }
    while bed.writer.points_mut().text_step() {}
    let phrase = TextMatch { phrase: true, ..TextMatch::words("water stone stone stone") };
    let query = rerank(vec![leaf(Source::Dense(vec![N as f32; DIM]), 1)], Source::Text(phrase), 5);
    let pin = bed.seat.pin();
    // The text of one takes some 30,000 steps.
    let (mut pace, mut scratch) = (Whole::of(100_000), QueryScratch::default());
    let searched = (&**bed.writer.shared()).into();
    let found = at_once(search_lanes_paced(searched, &pin, &query, 0, &mut pace, &mut scratch));
    assert_eq!(found.unwrap().iter().map(|hit| hit.id).collect::<Vec<_>>(), [N]);
}

#[test]
fn refusals() {
    let bed = Bed::new(Metric::Cosine);
    let check = |source: Source, expected: LaneError| {
        assert_eq!(bed.run(&fuse_all(vec![leaf(source.clone(), 5)], 5)), Err(expected.clone()), "{source:?}");
        let lane = leaf(Source::Dense(vec![1.0; DIM]), 5);
        assert_eq!(bed.run(&rerank(vec![lane], source.clone(), 5)), Err(expected), "{source:?} as root");
    };
    let short = || LaneError::Search(SearchError::DimensionMismatch { expected: DIM, found: 2 });
    let pair = |p: u64, n: u64| (Anchor::Id(SentId::from(p)), Anchor::Id(SentId::from(n)));
    let recommend = |positive: &[u64]| {
        Source::Recommend(Recommend {
            positive: ids(positive),
            negative: ids(&[1]),
            strategy: Strategy::BestScore,
        })
    };
    check(Source::Dense(vec![0.0; 2]), short());
    check(recommend(&[]), LaneError::NoPositive);
    check(recommend(&[500, 501]), LaneError::UnknownExample(SentId::from(500)));
    for (positive, negative) in [(vec![0.0; 2], vec![0.0; DIM]), (vec![0.0; DIM], vec![0.0; 2])] {
        let (positive, negative) = (vec![Anchor::Vector(positive)], vec![Anchor::Vector(negative)]);
        check(Source::Recommend(Recommend { positive, negative, strategy: Strategy::Average }), short());
    }
    let discover = |target, context| Source::Discover(Discover { target, context });
    check(discover(Some(Anchor::Id(SentId::from(1))), vec![]), LaneError::NoContext);
    check(
        discover(Some(Anchor::Id(SentId::from(700))), vec![pair(1, 2)]),
        LaneError::UnknownExample(SentId::from(700)),
    );
    check(discover(None, vec![pair(1, 600)]), LaneError::UnknownExample(SentId::from(600)));
    check(discover(Some(Anchor::Vector(vec![0.0; 2])), vec![pair(1, 2)]), short());
    let vectors = (Anchor::Vector(vec![0.0; DIM]), Anchor::Vector(vec![0.0; 2]));
    check(discover(None, vec![pair(1, 2), vectors]), short());
}

/// Vectors that are sent along recommend what points with these vectors do, and only points that are named are left out.
#[test]
fn recommendations_by_vectors_are_those_by_points() {
    for metric in [Metric::Cosine, Metric::Dot, Metric::L2] {
        let bed = Bed::new(metric);
        let of = |ids: &[u64]| -> Vec<Anchor> {
            ids.iter().map(|id| Anchor::Vector(bed.vectors[id][..DIM].to_vec())).collect()
        };
        let run = |positive, negative, strategy| {
            let recommend = Recommend { positive, negative, strategy };
            bed.run(&fuse_all(vec![leaf(Source::Recommend(recommend), 200)], 200)).unwrap()
        };
        for strategy in [Strategy::Average, Strategy::BestScore] {
            let far: &[u64] = if metric == Metric::L2 { &[] } else { &[50, 60] };
            let near = [3, 10, 7];
            let by_points = run(ids(&near), ids(far), strategy);
            let mut both = of(&near[..1]);
            both.extend(ids(&near[1..]));
            for (positive, named) in [(of(&near), &[][..]), (both, &near[1..])] {
                let by_vectors = run(positive, of(far), strategy);
                assert_eq!(by_vectors.len(), N as usize - named.len());
                assert!(by_vectors.iter().all(|hit| !named.contains(&hit.0)));
                let rest: Vec<_> = by_vectors
                    .into_iter()
                    .filter(|hit| !near.contains(&hit.0) && !far.contains(&hit.0))
                    .collect();
                assert_eq!(rest.len(), by_points.len(), "{metric:?}");
                for (found, wanted) in rest.iter().zip(&by_points) {
                    let is_close = (found.1 - wanted.1).abs() < 1e-5 && (found.2 - wanted.2).abs() < 1e-5;
                    assert!(is_close, "{metric:?}: {found:?} {wanted:?}");
                }
            }
        }
    }
}

#[test]
fn groups_take_the_first_values_met() {
    let bed = Bed::new(Metric::L2);
    let pin = bed.seat.pin();
    let query = fuse_all(vec![leaf(Source::Dense(vec![0.3; DIM]), 120)], 120);
    let hits = search_lanes(bed.writer.shared(), &pin, &query, 0, &mut QueryScratch::default()).unwrap();
    for (groups, size) in [(10, 3), (2, 1), (3, 500)] {
        let mut wanted: Vec<(Value, Vec<u64>)> = Vec::new();
        for hit in &hits {
            let Some(key) = group_of(hit.id).filter(|key| !matches!(key, Value::Ints(_))) else { continue };
            let room = wanted.len() < groups;
            match wanted.iter_mut().find(|group| group.0 == key) {
                Some(group) if group.1.len() < size => group.1.push(hit.id),
                Some(_) => {}
                None if room => wanted.push((key, vec![hit.id])),
                None => {}
            }
        }
        let made = group_hits(bed.writer.shared(), &pin, &hits, "group", groups, size, 0);
        let made: Vec<(Value, Vec<u64>)> =
            made.into_iter().map(|g| (g.key, g.hits.iter().map(|hit| hit.id).collect())).collect();
        assert_eq!(made, wanted);
    }
    assert!(group_hits(bed.writer.shared(), &pin, &hits, CONTENT_KEY, 5, 5, 0).is_empty());
    assert!(group_hits(bed.writer.shared(), &pin, &hits, "absent", 5, 5, 0).is_empty());
}

#[test]
fn diverse_results_are_chosen_one_by_one() {
    for metric in [Metric::L2, Metric::Cosine, Metric::Dot] {
        let mut bed = Bed::new(metric);
        for (lambda, k, pool) in [(0.5f32, 10, 40), (0.1, 25, 60), (1.0, 12, 30), (0.7, 90, 60), (0.3, 1, 9)]
        {
            let vector = bed.vector();
            let prepared = bed.prepared(&vector);
            let near = bed.ranked(|_, v| Some((bed.distance(&prepared, v), 0.0)));
            let mut left = near[..pool].to_vec();
            let mut wanted = vec![left.remove(0)];
            while wanted.len() < k && !left.is_empty() {
                let value = |&(id, distance, _): &(u64, f32, f32)| {
                    let unlike =
                        wanted.iter().map(|chosen| bed.distance(&bed.vectors[&chosen.0], &bed.vectors[&id]));
                    -lambda * distance + (1.0 - lambda) * unlike.fold(f32::INFINITY, f32::min)
                };
                let best = (0..left.len()).rev().max_by(|&a, &b| value(&left[a]).total_cmp(&value(&left[b])));
                wanted.push(left.remove(best.unwrap()));
            }
            let combine = Combine::Diversify { lambda };
            let query = LaneQuery {
                lanes: vec![leaf(Source::Dense(vector), pool)],
                combine,
                k,
                options: QueryOptions::default(),
            };
            assert_eq!(bed.run(&query).unwrap(), wanted, "{metric:?} {lambda} {k}");
            assert!(lambda < 1.0 || wanted.is_sorted_by(|a, b| a.1 <= b.1));
        }
    }
}
