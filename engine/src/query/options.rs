//! What a request may ask of any query beside its lanes: how thoroughly to search, and which part of the result to return.

use super::fusion::Ranking;
use super::lane_query::{Combine, Found, LaneError, LaneQuery, Leaf};
use super::run::Run;
use crate::distance::Metric;

/// How thoroughly the lanes of a query that walk an index search it. Lanes over posting lists are always exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// The beam width (`ef_search`) of the collection or of the space.
    #[default]
    Configured,
    /// This beam width, or a wider one if the number of results needs it; the search for tokens of a multi-vector collection takes it as it is. An
    /// index of inverted lists has no beam and ignores it.
    Beam(usize),
    /// The query is compared with every vector that matches the filter. Costs one distance for each of them.
    Exact,
}

/// The options of a query. The default leaves the result as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueryOptions {
    /// How thoroughly the lanes search.
    pub effort: Effort,
    /// How many of the best results are left out. They are searched for nevertheless, so that an offset costs as much as so many more results.
    pub offset: usize,
    /// The least score of a result. Results that are ranked by distance are compared by their [`similarity`].
    pub score_threshold: Option<f32>,
    /// The greatest distance of a result, in the metric of the space: `1 - cosine`, the squared Euclidean distance, or the negated dot product.
    pub distance_threshold: Option<f32>,
    /// Whether results that are ranked by distance receive their [`similarity`] as their score, which is 0 otherwise.
    pub with_score: bool,
}

/// A score that grows as the distance shrinks: the cosine, the dot product, or `1 / (1 + distance)` of the squared Euclidean distance.
pub fn similarity(metric: Metric, distance: f32) -> f32 {
    match metric {
        Metric::Cosine => 1.0 - distance,
        Metric::Dot => -distance,
        Metric::L2 => 1.0 / (1.0 + distance),
    }
}

/// What the values of a result mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RankedBy {
    pub ranking: Ranking,
    /// The number of the dense space whose distances rank; 0 where scores rank.
    pub space: usize,
}

impl RankedBy {
    pub(super) const SCORE: RankedBy = RankedBy { ranking: Ranking::Score, space: 0 };
}

impl Leaf {
    pub(super) fn ranked_by(&self) -> RankedBy {
        match self.source.ranking() {
            Ranking::Distance => RankedBy { ranking: Ranking::Distance, space: self.space },
            Ranking::Score => RankedBy::SCORE,
        }
    }
}

impl LaneQuery {
    /// The number of results that the query has to find, those that the offset leaves out among them.
    pub(super) fn wanted(&self) -> usize {
        self.k.saturating_add(self.options.offset)
    }

    /// Checks that a threshold of distances has distances to compare.
    ///
    /// # Errors
    /// [`LaneError::NoDistance`].
    pub(super) fn check_options(&self) -> Result<(), LaneError> {
        let has_distances = match &self.combine {
            Combine::Rerank(root) => root.source.ranking() == Ranking::Distance,
            Combine::Fuse(_) | Combine::Diversify { .. } => {
                self.lanes.iter().any(|leaf| leaf.source.ranking() == Ranking::Distance)
            }
        };
        match self.options.distance_threshold {
            Some(_) if !has_distances => Err(LaneError::NoDistance),
            _ => Ok(()),
        }
    }
}

impl Run<'_> {
    /// Gives the results their scores, and removes those beyond a threshold and those before the offset. Returns whether a threshold removed any.
    pub(super) fn cut(&self, query: &LaneQuery, by: RankedBy, hits: &mut Vec<Found>) -> bool {
        let options = &query.options;
        let all = hits.len();
        if by.ranking == Ranking::Distance && (options.with_score || options.score_threshold.is_some()) {
            let metric = self.space(by.space).config().metric;
            let score = |hit: &Found| similarity(metric, hit.distance);
            if let Some(least) = options.score_threshold {
                hits.retain(|hit| score(hit) >= least);
            }
            if options.with_score {
                hits.iter_mut().for_each(|hit| hit.score = score(hit));
            }
        } else if let Some(least) = options.score_threshold {
            hits.retain(|hit| hit.score >= least);
        }
        if let Some(most) = options.distance_threshold {
            hits.retain(|hit| hit.distance <= most && self.has_distance(query, hit));
        }
        let is_cut = hits.len() < all;
        hits.drain(..options.offset.min(hits.len()));
        is_cut
    }

    /// Whether a result has a distance: a point may lack a vector in the space of each lane that ranks by distance.
    fn has_distance(&self, query: &LaneQuery, hit: &Found) -> bool {
        let mut ranking = match &query.combine {
            Combine::Rerank(root) => std::slice::from_ref(&**root).iter(),
            Combine::Fuse(_) | Combine::Diversify { .. } => query.lanes.iter(),
        };
        ranking
            .any(|leaf| leaf.source.ranking() == Ranking::Distance && self.space(leaf.space).holds(hit.slot))
    }
}
