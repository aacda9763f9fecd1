//! Applies the options of a query to what its lanes have found: thresholds, scores, and the offset.

use super::fusion::Ranking;
use super::lane_query::{Combine, Found, LaneError, LaneQuery, Leaf};
use super::options::similarity;
use super::run::Run;

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
