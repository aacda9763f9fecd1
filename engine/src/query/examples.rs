//! Queries by example: recommend (near some points, far from others) and discover (on the right side of pairs).

use super::lane_query::{Anchor, Discover, Found, LaneError, Recommend, Strategy, by_score};
use super::run::{Run, Stored};
use crate::distance::{Kernel, Metric};
use crate::point_id::SentId;
use crate::slot::Slot;
use std::cmp::Ordering;

/// Candidates per result of a lane that scores what is near a seed: the score is another than the distance to the seed, so
/// more than the lane's length have to be looked at.
const CANDIDATES_PER_HIT: usize = 4;
/// And at least so many.
const CANDIDATES_MIN: usize = 50;

/// The vector of an example as it is stored; `None` if its point is absent.
fn resolve(run: &Run<'_>, space: usize, example: &Anchor) -> Result<Option<Stored>, LaneError> {
    match example {
        Anchor::Id(id) => Ok(run.stored(space, id.number())),
        Anchor::Vector(vector) => run.prepared(space, vector).map(Some),
    }
}

/// The id of an example whose point is absent.
fn missing(run: &Run<'_>, space: usize, example: &Anchor) -> Option<SentId> {
    match example {
        Anchor::Id(id) if run.stored(space, id.number()).is_none() => Some(id.clone()),
        _ => None,
    }
}

/// What a query by example compares candidates with.
pub(super) enum Examples {
    /// The one vector that stands for all of them.
    Average(Stored),
    /// Scored against each.
    Best { positive: Vec<Stored>, negative: Vec<Stored>, seed: Stored },
    /// Sides of pairs.
    Pairs { pairs: Vec<(Stored, Stored)>, seed: Stored },
}

impl Examples {
    /// Looks the points of a recommendation up, by their vectors in a space, and prepares its own vectors.
    ///
    /// # Errors
    /// No positive example, none that is there, vectors that do not fit, or a strategy the metric does not know.
    pub fn of_recommend(run: &Run<'_>, space: usize, recommend: &Recommend) -> Result<Examples, LaneError> {
        let first = recommend.positive.first().ok_or(LaneError::NoPositive)?;
        let vectors = |examples: &[Anchor]| -> Result<Vec<Stored>, LaneError> {
            examples.iter().filter_map(|example| resolve(run, space, example).transpose()).collect()
        };
        let (positive, negative) = (vectors(&recommend.positive)?, vectors(&recommend.negative)?);
        if positive.is_empty() {
            // A vector would be there.
            return Err(run.lacks(missing(run, space, first).unwrap_or_default()));
        }
        let metric = run.space(space).config().metric;
        let mut seed = mean(&positive);
        match recommend.strategy {
            Strategy::Average => {
                if !negative.is_empty() {
                    let away = mean(&negative);
                    seed.iter_mut().zip(&away).for_each(|(to, from)| *to -= from);
                }
                Ok(Examples::Average(run.prepared(space, &seed[..run.space(space).config().dim])?))
            }
            // The negated square of a distance has no sign that could tell the better from the worse.
            Strategy::BestScore if metric == Metric::L2 && !recommend.negative.is_empty() => {
                Err(LaneError::NegativesUnderL2)
            }
            Strategy::BestScore => {
                let seed = run.prepared(space, &seed[..run.space(space).config().dim])?;
                Ok(Examples::Best { positive, negative, seed })
            }
        }
    }

    /// Looks the points of a discovery up, by their vectors in a space, and prepares its own.
    ///
    /// # Errors
    /// No pair, a target or all pairs that are not there, vectors that do not fit.
    pub fn of_discover(run: &Run<'_>, space: usize, discover: &Discover) -> Result<Examples, LaneError> {
        if discover.context.is_empty() {
            return Err(LaneError::NoContext);
        }
        let resolve = |anchor: &Anchor| resolve(run, space, anchor);
        let mut pairs = Vec::with_capacity(discover.context.len());
        for (positive, negative) in &discover.context {
            if let (Some(positive), Some(negative)) = (resolve(positive)?, resolve(negative)?) {
                pairs.push((positive, negative));
            }
        }
        let missing = |anchor: &Anchor| missing(run, space, anchor);
        if pairs.is_empty() {
            let mut sides = discover.context.iter().flat_map(|(positive, negative)| [positive, negative]);
            let id = sides.find_map(missing).expect("a pair that did not resolve names an absent id");
            return Err(run.lacks(id));
        }
        let seed = match &discover.target {
            Some(target) => {
                let found = resolve(target)?;
                found.ok_or_else(|| run.lacks(missing(target).unwrap_or_default()))?
            }
            None => {
                let positive: Vec<Stored> = pairs.iter().map(|(positive, _)| positive.clone()).collect();
                run.prepared(space, &mean(&positive)[..run.space(space).config().dim])?
            }
        };
        Ok(Examples::Pairs { pairs, seed })
    }

    /// Where candidates are sought.
    pub fn seed(&self) -> &[f32] {
        match self {
            Examples::Average(seed) | Examples::Best { seed, .. } | Examples::Pairs { seed, .. } => seed,
        }
    }

    /// How many are sought for a lane of `pool` hits.
    pub fn candidates(&self, pool: usize) -> usize {
        match self {
            Examples::Average(_) => pool,
            _ => pool.saturating_mul(CANDIDATES_PER_HIT).max(CANDIDATES_MIN),
        }
    }

    /// Distances it takes to score a point.
    pub fn distances(&self) -> usize {
        match self {
            Examples::Average(_) => 1,
            Examples::Best { positive, negative, .. } => positive.len() + negative.len(),
            Examples::Pairs { pairs, .. } => 1 + 2 * pairs.len(),
        }
    }

    /// Distance and score of a point that has a vector in the space; what a lane does not have is 0.
    pub fn score(&self, run: &Run<'_>, space: usize, slot: Slot) -> (f32, f32) {
        let metric = run.space(space).config().metric;
        let kernel = Kernel::of(metric);
        let vector = run.space(space).stored_vector(run.pin, slot);
        let distance = |to: &Stored| kernel.distance(to, &vector);
        match self {
            Examples::Average(query) => (distance(query), 0.0),
            Examples::Best { positive, negative, .. } => {
                let most = |to: &[Stored]| {
                    to.iter().map(|to| similarity(metric, distance(to))).fold(f32::NEG_INFINITY, f32::max)
                };
                let (near, far) = (most(positive), most(negative));
                (0.0, if negative.is_empty() || near > far { near } else { -far })
            }
            Examples::Pairs { pairs, seed } => {
                let score = pairs.iter().map(|(positive, negative)| {
                    let (near, far) = (distance(positive), distance(negative));
                    if near <= far { 1.0 } else { f64::from(far) - f64::from(near) }
                });
                (distance(seed), score.sum::<f64>() as f32)
            }
        }
    }

    /// The order of hits.
    pub fn order(&self, a: &Found, b: &Found) -> Ordering {
        let by_distance = a.distance.total_cmp(&b.distance);
        match self {
            Examples::Average(_) => by_distance,
            Examples::Best { .. } => by_score(a, b),
            Examples::Pairs { .. } => by_score(a, b).then(by_distance),
        }
        .then(a.id.cmp(&b.id))
    }
}

/// cos, dot product, or the negated square of the distance.
fn similarity(metric: Metric, distance: f32) -> f32 {
    match metric {
        Metric::Cosine => 1.0 - distance,
        Metric::Dot | Metric::L2 => -distance,
    }
}

/// Component by component.
fn mean(vectors: &[Stored]) -> Stored {
    let mut sums = vec![0.0f64; vectors[0].len()];
    for vector in vectors {
        sums.iter_mut().zip(vector).for_each(|(sum, &x)| *sum += f64::from(x));
    }
    sums.iter().map(|sum| (sum / vectors.len() as f64) as f32).collect()
}
