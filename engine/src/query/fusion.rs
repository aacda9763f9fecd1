//! Fusion of any number of ranked lanes into one result: `rrf`, `weighted`, `dbsf`.
//!
//! | method | score of an id |
//! |---|---|
//! | [`Fusion::Rrf`] | sum over lanes of `1 / (c + rank)`, rank from 1 |
//! | [`Fusion::Weighted`] | sum over lanes of `weight * n`, `n` min-max normalised within the lane |
//! | [`Fusion::Dbsf`] | the same with `n = clamp((x - (mean - 3 sigma)) / (6 sigma), 0, 1)`, population sigma |
//!
//! (Cormack, Clarke, Büttcher: Reciprocal rank fusion, SIGIR 2009; Mazzeschi: Distribution-based score fusion, 2023.)
//!
//! Every lane is normalised by its own orientation, so that the best is near 1 whether it ranks by ascending distance or by
//! descending score. A lane all of whose values are equal normalises to 1, an id that a lane did not find gets 0 from it.
//! All lanes are summed at once: folding them pairwise, with a cut after each pair, would lose what a document collected in
//! early lanes before a late one lifts it.
//!
//! All arithmetic is in `f64` in the order of the lanes, rounded to `f32` once. Ties go to the lower id.

use ahash::RandomState;
use std::collections::HashMap;

/// `c` of reciprocal rank fusion when none is asked for.
pub const RRF_K_DEFAULT: f64 = 60.0;

/// How a lane ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranking {
    /// The least value is best (a dense lane's distance).
    Distance,
    /// The greatest value is best (a sparse or text lane's score).
    Score,
}

/// What one lane found, already cut to its pool.
#[derive(Clone, Copy, Debug)]
pub struct Lane<'a> {
    /// What the values mean.
    pub ranking: Ranking,
    /// Distinct ids with their distance or score, best first.
    pub hits: &'a [(u64, f32)],
}

/// A method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fusion<'a> {
    /// By ranks alone; `c` not above 0 means [`RRF_K_DEFAULT`].
    Rrf {
        /// Damps the first ranks.
        c: f64,
    },
    /// By values, min-max normalised, with one weight per lane (see [`lane_weights`]).
    Weighted(&'a [f64]),
    /// By values, normalised by their distribution, with one weight per lane.
    Dbsf(&'a [f64]),
}

/// A fused result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FusedHit {
    /// Point id.
    pub id: u64,
    /// From the first lane that ranks by distance and found the id; `None` when no such lane did.
    pub distance: Option<f32>,
    /// Fused score; with a single lane that found anything see [`fuse`].
    pub score: f32,
}

/// Weights of `lanes` lanes for one `alpha`, which sum to 1.
///
/// Two lanes weigh `alpha` and `1 - alpha`. In general the first lane weighs `alpha`, as with two, and the others share
/// the rest evenly. Absent (or not a number) means that all weigh the same, for two lanes 0.5 each. `alpha` is clamped to
/// 0..=1; whether a 0 in a request means absent is for the caller to say. A single lane weighs 1.
pub fn lane_weights(alpha: Option<f64>, lanes: usize) -> Vec<f64> {
    match alpha.filter(|alpha| !alpha.is_nan()) {
        Some(alpha) if lanes > 1 => {
            let alpha = alpha.clamp(0.0, 1.0);
            let rest = (1.0 - alpha) / (lanes - 1) as f64;
            (0..lanes).map(|lane| if lane == 0 { alpha } else { rest }).collect()
        }
        _ => vec![1.0 / lanes.max(1) as f64; lanes],
    }
}

/// The `k` best ids of all lanes, score descending, then id ascending.
///
/// When only one lane found anything, its first `k` hits come as they are: those of a distance lane with their distance and
/// score 0, those of a score lane with their score.
///
/// Cost: a hash-map update per hit (about 30 ns) and a sort of the distinct ids.
///
/// # Panics
/// When the method's weights are not one per lane.
pub fn fuse(lanes: &[Lane<'_>], method: Fusion<'_>, k: usize) -> Vec<FusedHit> {
    if let Fusion::Weighted(weights) | Fusion::Dbsf(weights) = method {
        assert_eq!(weights.len(), lanes.len(), "one weight per lane");
    }
    let mut found = lanes.iter().filter(|lane| !lane.hits.is_empty());
    if let (Some(only), None) = (found.next(), found.next()) {
        return only.hits.iter().take(k).map(|&(id, value)| as_found(only.ranking, id, value)).collect();
    }

    let total = lanes.iter().map(|lane| lane.hits.len()).sum();
    let mut place: HashMap<u64, usize, RandomState> =
        HashMap::with_capacity_and_hasher(total, RandomState::new());
    let mut sums: Vec<(u64, f64, Option<f32>)> = Vec::with_capacity(total);
    for (at, lane) in lanes.iter().enumerate() {
        let scale = match method {
            Fusion::Rrf { .. } => Scale::None,
            Fusion::Weighted(_) => Scale::min_max(lane),
            Fusion::Dbsf(_) => Scale::distribution(lane),
        };
        for (rank, &(id, value)) in lane.hits.iter().enumerate() {
            let share = match method {
                Fusion::Rrf { c } => {
                    let c = if c > 0.0 { c } else { RRF_K_DEFAULT };
                    1.0 / (c + (rank + 1) as f64)
                }
                Fusion::Weighted(weights) | Fusion::Dbsf(weights) => {
                    weights[at] * scale.of(lane.ranking, value)
                }
            };
            let place = *place.entry(id).or_insert_with(|| {
                sums.push((id, 0.0, None));
                sums.len() - 1
            });
            let (_, sum, distance) = &mut sums[place];
            *sum += share;
            if lane.ranking == Ranking::Distance {
                distance.get_or_insert(value);
            }
        }
    }
    let fused = |(id, sum, distance): (u64, f64, Option<f32>)| FusedHit { id, distance, score: sum as f32 };
    let mut hits: Vec<FusedHit> = sums.into_iter().map(fused).collect();
    hits.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.id.cmp(&b.id)));
    hits.truncate(k);
    hits
}

fn as_found(ranking: Ranking, id: u64, value: f32) -> FusedHit {
    match ranking {
        Ranking::Distance => FusedHit { id, distance: Some(value), score: 0.0 },
        Ranking::Score => FusedHit { id, distance: None, score: value },
    }
}

/// How values of a lane map to 0..=1.
#[derive(Clone, Copy, Debug)]
enum Scale {
    /// Ranks need none.
    None,
    /// All finite values are equal.
    Constant,
    /// From `start`, over `span`.
    Linear { start: f64, span: f64 },
}

impl Scale {
    fn min_max(lane: &Lane<'_>) -> Scale {
        let (low, high) = finite(lane)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        Scale::linear(low, high - low)
    }

    fn distribution(lane: &Lane<'_>) -> Scale {
        let count = finite(lane).count() as f64;
        let mean = finite(lane).sum::<f64>() / count;
        let sigma = (finite(lane).map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        Scale::linear(mean - 3.0 * sigma, 6.0 * sigma)
    }

    fn linear(start: f64, span: f64) -> Scale {
        if span > 0.0 { Scale::Linear { start, span } } else { Scale::Constant }
    }

    /// 1 is best. Infinities take the end they stand for, what is not a number takes 0.
    fn of(self, ranking: Ranking, value: f32) -> f64 {
        if value.is_nan() {
            return 0.0;
        }
        let ascending = match self {
            _ if value.is_infinite() => f64::from(value > 0.0),
            Scale::Linear { start, span } => ((f64::from(value) - start) / span).clamp(0.0, 1.0),
            Scale::None | Scale::Constant => return 1.0,
        };
        match ranking {
            Ranking::Distance => 1.0 - ascending,
            Ranking::Score => ascending,
        }
    }
}

fn finite(lane: &Lane<'_>) -> impl Iterator<Item = f64> {
    lane.hits.iter().map(|&(_, value)| f64::from(value)).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn distance(hits: &[(u64, f32)]) -> Lane<'_> {
        Lane { ranking: Ranking::Distance, hits }
    }

    fn score(hits: &[(u64, f32)]) -> Lane<'_> {
        Lane { ranking: Ranking::Score, hits }
    }

    fn check(lanes: &[Lane<'_>], method: Fusion<'_>, expected: &[(u64, Option<f32>, f32)]) {
        let found = fuse(lanes, method, 10);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (hit, &(id, distance, score)) in found.iter().zip(expected) {
            assert_eq!((hit.id, hit.distance), (id, distance), "{found:?}");
            assert!((hit.score - score).abs() < 1e-6, "{found:?}");
        }
    }

    #[test]
    fn the_methods_by_hand() {
        let dense = [(1, 0.1), (2, 0.3), (3, 0.5)];
        let sparse = [(3, 8.0), (4, 6.0), (1, 4.0)];
        let lanes = [distance(&dense), score(&sparse)];
        let rrf = |a: u32, b: u32| 1.0 / (60.0 + a as f32) + 1.0 / (60.0 + b as f32);
        let alone = 1.0 / 62.0;
        // 1 and 3 tie, 2 and 4 tie: lower id first.
        check(
            &lanes,
            Fusion::Rrf { c: 0.0 },
            &[(1, Some(0.1), rrf(1, 3)), (3, Some(0.5), rrf(3, 1)), (2, Some(0.3), alone), (4, None, alone)],
        );
        check(
            &lanes,
            Fusion::Weighted(&[0.75, 0.25]),
            &[(1, Some(0.1), 0.75), (2, Some(0.3), 0.375), (3, Some(0.5), 0.25), (4, None, 0.125)],
        );
        // sigma of (4, 6, 8) is sqrt(8/3): the ends lie 2 / (6 sigma) from the middle.
        let off = (2.0 / (6.0 * (8.0f64 / 3.0).sqrt())) as f32;
        check(
            &lanes,
            Fusion::Dbsf(&[0.5, 0.5]),
            &[(1, Some(0.1), 0.5), (3, Some(0.5), 0.5), (2, Some(0.3), 0.25), (4, None, 0.25)],
        );
        check(
            &[score(&sparse), distance(&[(9, 1.0)])],
            Fusion::Dbsf(&[1.0, 0.0]),
            &[(3, None, 0.5 + off), (4, None, 0.5), (1, None, 0.5 - off), (9, Some(1.0), 0.0)],
        );
    }

    #[test]
    fn one_lane_that_found_something_is_returned_as_it_is() {
        let hits = [(7, 0.5), (3, 0.9)];
        let method = Fusion::Rrf { c: 60.0 };
        check(&[distance(&hits), score(&[])], method, &[(7, Some(0.5), 0.0), (3, Some(0.9), 0.0)]);
        check(&[distance(&[]), score(&[]), score(&hits)], method, &[(7, None, 0.5), (3, None, 0.9)]);
        check(&[distance(&[])], method, &[]);
        check(&[], method, &[]);
        assert_eq!(fuse(&[score(&hits)], method, 1).len(), 1);
    }

    #[test]
    fn a_late_lane_keeps_what_early_lanes_gave() {
        // Id 9 is last in two lanes and first in the third; folding pairwise with k = 2 would have dropped it.
        let (a, b, c) = ([(1, 3.0), (2, 2.0), (9, 1.0)], [(3, 3.0), (4, 2.0), (9, 1.0)], [(9, 1.0)]);
        let fused = fuse(&[score(&a), score(&b), score(&c)], Fusion::Rrf { c: 60.0 }, 2);
        assert_eq!(fused[0].id, 9);
        assert!((fused[0].score - (1.0 / 61.0 + 2.0 / 63.0)).abs() < 1e-7);
    }

    #[test]
    fn equal_values_and_values_that_are_no_numbers() {
        let (same, odd) = ([(1, 2.0), (2, 2.0)], [(3, f32::INFINITY), (4, 1.0), (5, 0.0), (6, f32::NAN)]);
        for method in [Fusion::Weighted(&[0.5, 0.5]), Fusion::Dbsf(&[0.5, 0.5])] {
            let fused = fuse(&[distance(&same), score(&odd)], method, 10);
            let of = |id| fused.iter().find(|hit| hit.id == id).unwrap().score;
            assert_eq!((of(1), of(2), of(3), of(6)), (0.5, 0.5, 0.5, 0.0));
        }
    }

    #[test]
    fn weights() {
        assert_eq!(lane_weights(None, 2), [0.5, 0.5]);
        assert_eq!(lane_weights(Some(0.0), 2), [0.0, 1.0]);
        assert_eq!(lane_weights(Some(7.0), 2), [1.0, 0.0]);
        assert_eq!(lane_weights(Some(0.5), 3), [0.5, 0.25, 0.25]);
        assert_eq!(lane_weights(Some(f64::NAN), 4), [0.25; 4]);
        assert_eq!((lane_weights(Some(0.2), 1), lane_weights(None, 0)), (vec![1.0], vec![]));
    }

    /// Id by id, with a look through every lane.
    fn twin(lanes: &[Lane<'_>], method: Fusion<'_>, k: usize) -> Vec<FusedHit> {
        let filled: Vec<&Lane<'_>> = lanes.iter().filter(|lane| !lane.hits.is_empty()).collect();
        if let [lane] = filled[..] {
            return lane.hits[..k.min(lane.hits.len())]
                .iter()
                .map(|h| as_found(lane.ranking, h.0, h.1))
                .collect();
        }
        let ids: BTreeSet<u64> = lanes.iter().flat_map(|lane| lane.hits).map(|hit| hit.0).collect();
        let mut out = Vec::new();
        for id in ids {
            let (mut sum, mut distance) = (0.0f64, None);
            for (at, lane) in lanes.iter().enumerate() {
                let Some(rank) = lane.hits.iter().position(|hit| hit.0 == id) else { continue };
                let x: Vec<f64> = lane.hits.iter().map(|hit| f64::from(hit.1)).collect();
                let (v, n) = (x[rank], x.len() as f64);
                let least = x.iter().copied().fold(f64::INFINITY, f64::min);
                let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let mean = x.iter().sum::<f64>() / n;
                let sigma = (x.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / n).sqrt();
                let turned = |n: f64| if lane.ranking == Ranking::Distance { 1.0 - n } else { n };
                sum += match method {
                    Fusion::Rrf { c } => 1.0 / (c + rank as f64 + 1.0),
                    Fusion::Weighted(w) if most == least => w[at],
                    Fusion::Weighted(w) => w[at] * turned((v - least) / (most - least)),
                    Fusion::Dbsf(w) if sigma == 0.0 => w[at],
                    Fusion::Dbsf(w) => {
                        w[at] * turned(((v - (mean - 3.0 * sigma)) / (6.0 * sigma)).clamp(0.0, 1.0))
                    }
                };
                if lane.ranking == Ranking::Distance && distance.is_none() {
                    distance = Some(lane.hits[rank].1);
                }
            }
            out.push(FusedHit { id, distance, score: sum as f32 });
        }
        out.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap().then(a.id.cmp(&b.id)));
        out.truncate(k);
        out
    }

    fn lane() -> impl Strategy<Value = (bool, Vec<(u64, f32)>)> {
        let values = prop_oneof![-3.0f32..3.0, Just(1.0), Just(0.0)];
        (any::<bool>(), proptest::collection::btree_map(0u64..30, values, 0..20)).prop_map(
            |(by_score, hits)| {
                let mut hits: Vec<(u64, f32)> = hits.into_iter().collect();
                hits.sort_by(|a, b| if by_score { b.1.total_cmp(&a.1) } else { a.1.total_cmp(&b.1) });
                (by_score, hits)
            },
        )
    }

    proptest! {
        #[test]
        fn any_lanes_fuse_as_the_twin_does(
            lanes in proptest::collection::vec(lane(), 0..6),
            alpha in proptest::option::of(0.0f64..=1.0),
            c in 1.0f64..100.0,
            k in 0usize..40,
        ) {
            let lanes: Vec<Lane<'_>> = lanes.iter()
                .map(|(by_score, hits)| if *by_score { score(hits) } else { distance(hits) }).collect();
            let weights = lane_weights(alpha, lanes.len());
            for method in [Fusion::Rrf { c }, Fusion::Weighted(&weights), Fusion::Dbsf(&weights)] {
                prop_assert_eq!(fuse(&lanes, method, k), twin(&lanes, method, k));
            }
        }
    }
}
