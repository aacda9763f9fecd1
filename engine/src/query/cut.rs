//! Applies the options of a query to what its lanes have found: thresholds, scores, and the offset.

use super::fusion::Ranking;
use super::lane_query::{Combine, Found, LaneError, LaneQuery, Leaf, Source, Strategy, first_by_distance};
use super::options::similarity;
use super::run::Run;
use ahash::HashSet;

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

    /// Whether a hit that a threshold removes shows that all hits behind it lie beyond the threshold too: there is one lane, and it finds its hits
    /// in the order of what the threshold compares.
    pub(super) fn ends_at_threshold(&self) -> bool {
        let is_in_order = |source: &Source| match source {
            Source::Dense(_) | Source::Sparse(_) | Source::Text(_) | Source::MaxSim(_) => true,
            Source::Recommend(recommend) => recommend.strategy == Strategy::Average,
            Source::Discover(_) | Source::Query(_) => false,
        };
        matches!((&self.combine, &self.lanes[..]), (Combine::Fuse(_), [lane]) if is_in_order(&lane.source))
    }

    /// Checks that a threshold of distances has distances to compare.
    ///
    /// # Errors
    /// [`LaneError::NoDistance`].
    pub(super) fn check_options(&self) -> Result<(), LaneError> {
        let has_distances = match &self.combine {
            Combine::Rerank(root) => root.source.ranking() == Ranking::Distance,
            Combine::Fuse(_) | Combine::Diversify { .. } => first_by_distance(&self.lanes).is_some(),
        };
        match self.options.distance_threshold {
            Some(_) if !has_distances => Err(LaneError::NoDistance),
            _ => Ok(()),
        }
    }
}

impl Run<'_> {
    /// Removes the results beyond a threshold, and those without a distance, which are named by id, if there is a threshold of distances. Returns
    /// whether any was removed.
    pub(super) fn keep_within(
        &self,
        query: &LaneQuery,
        by: RankedBy,
        hits: &mut Vec<Found>,
        without_distance: &HashSet<u64>,
    ) -> bool {
        let options = &query.options;
        let all = hits.len();
        if let Some(least) = options.score_threshold {
            match by.ranking {
                Ranking::Distance => {
                    let metric = self.space(by.space).config().metric;
                    hits.retain(|hit| similarity(metric, hit.distance) >= least);
                }
                Ranking::Score => hits.retain(|hit| hit.score >= least),
            }
        }
        if let Some(most) = options.distance_threshold {
            hits.retain(|hit| hit.distance <= most && !without_distance.contains(&hit.id));
        }
        hits.len() < all
    }

    /// Gives the results their scores, and keeps those that the query returns: `k` after the offset.
    pub(super) fn page(&self, query: &LaneQuery, by: RankedBy, hits: &mut Vec<Found>) {
        let options = &query.options;
        hits.truncate(query.wanted());
        hits.drain(..options.offset.min(hits.len()));
        if by.ranking == Ranking::Distance && options.with_score {
            let metric = self.space(by.space).config().metric;
            hits.iter_mut().for_each(|hit| hit.score = similarity(metric, hit.distance));
        }
    }
}
