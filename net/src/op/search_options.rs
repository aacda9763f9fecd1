//! The options that every kind of search takes, whatever its family and transport.

use crate::limits;
use crate::op::ApiError;
use nigh_engine::query::{Effort, LaneQuery, QueryOptions};
use nigh_shard::core::{GroupBy, QueryRequest, Shown, ShownPayload};

/// The options of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchOptions {
    /// The beam width, 1 to 65,536; `None` stands for that of the collection or of the space.
    pub ef_search: Option<i64>,
    /// Whether the query is compared with every vector that matches the filter.
    pub exact: bool,
    /// The number of best results, or of groups, that are left out.
    pub offset: i64,
    /// The lowest score of a result. For results that are ranked by distance, this is the score that `with_score` shows.
    pub score_threshold: Option<f64>,
    /// The greatest distance of a result.
    pub distance_threshold: Option<f64>,
    /// Whether results that are ranked by distance have a score as well, which is larger for closer hits.
    pub with_score: bool,
    /// Which part of the payload is returned; `None` stands for what the operation returns by default.
    pub with_payload: Option<ShownPayload>,
    /// Whether vectors are returned.
    pub with_vector: bool,
    /// Whether the answer reports how the search was carried out.
    pub explain: bool,
}

impl SearchOptions {
    /// Checks the options of a search for `k` results, of which there may be `most` together with the offset.
    ///
    /// # Errors
    /// 400 that names the option, its value and what is allowed.
    pub(super) fn validate(&self, k: i64, most: i64) -> Result<(), ApiError> {
        if let Some(ef) = self.ef_search {
            if !(1..=limits::K_MAX).contains(&ef) {
                let most = limits::K_MAX;
                return Err(ApiError::invalid(format!("ef_search must be between 1 and {most}, found {ef}")));
            }
            if self.exact {
                let text = "ef_search has no effect on a search with exact = true; leave one of them out";
                return Err(ApiError::invalid(text));
            }
        }
        if self.offset < 0 {
            let found = self.offset;
            return Err(ApiError::invalid(format!("offset must not be negative, found {found}")));
        }
        if self.offset > 0 && self.offset.saturating_add(k.max(0)) > most {
            let offset = self.offset;
            return Err(ApiError::invalid(format!(
                "offset and k together must be at most {most}, found {offset} and {k}; use a scroll to read more"
            )));
        }
        let thresholds =
            [("score_threshold", self.score_threshold), ("distance_threshold", self.distance_threshold)];
        for (name, threshold) in thresholds {
            if let Some(found) = threshold.filter(|threshold| !threshold.is_finite()) {
                return Err(ApiError::invalid(format!("{name} must be a finite number, found {found}")));
            }
        }
        Ok(())
    }

    /// Whether hits have parts that they do not have without options.
    pub fn extends_hits(&self) -> bool {
        self.with_vector || self.with_score || self.with_payload.is_some()
    }

    /// The number of hits that a search for `k` results needs.
    pub(super) fn reach(&self, k: usize) -> usize {
        k.saturating_add(self.skipped())
    }

    pub(super) fn skipped(&self) -> usize {
        usize::try_from(self.offset).unwrap_or(0)
    }

    /// What is returned with the hits, where the operation returns whole payloads by default, or none.
    pub(super) fn shown(&self, payloads: bool) -> Shown {
        let default = Shown::payloads_if(payloads).payload;
        Shown { payload: self.with_payload.clone().unwrap_or(default), vectors: self.with_vector }
    }

    /// The options of the query. An offset counts results, unless these are `grouped`: it counts groups then, and the query has none.
    pub(super) fn query(&self, grouped: bool) -> QueryOptions {
        QueryOptions {
            effort: match (self.exact, self.ef_search) {
                (true, _) => Effort::Exact,
                (false, Some(ef)) => Effort::Beam(usize::try_from(ef).unwrap_or(0)),
                (false, None) => Effort::Configured,
            },
            offset: if grouped { 0 } else { self.skipped() },
            score_threshold: self.score_threshold.map(|threshold| threshold as f32),
            distance_threshold: self.distance_threshold.map(|threshold| threshold as f32),
            with_score: self.with_score,
        }
    }

    /// The request for a query without groups.
    pub(super) fn request(&self, lanes: LaneQuery, payloads: bool) -> QueryRequest {
        QueryRequest { lanes, group: None, shown: self.shown(payloads), explain: self.explain }
    }

    /// The request for a query by groups, whose hits have whole payloads by default.
    pub(super) fn grouped(&self, lanes: LaneQuery, group: GroupBy) -> QueryRequest {
        QueryRequest { lanes, group: Some(group), shown: self.shown(true), explain: self.explain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_refused() {
        let refused = |options: SearchOptions, k: i64| options.validate(k, limits::K_MAX).err();
        let all = SearchOptions::default;
        assert_eq!(refused(all(), 0), None);
        assert_eq!(refused(SearchOptions { offset: limits::K_MAX - 7, ..all() }, 7), None);
        assert_eq!(refused(SearchOptions { ef_search: Some(65_536), ..all() }, 1), None);
        for (options, k, fragment) in [
            (
                SearchOptions { ef_search: Some(0), ..all() },
                1,
                "ef_search must be between 1 and 65536, found 0",
            ),
            (SearchOptions { ef_search: Some(65_537), ..all() }, 1, "found 65537"),
            (SearchOptions { ef_search: Some(8), exact: true, ..all() }, 1, "leave one of them out"),
            (SearchOptions { offset: -1, ..all() }, 1, "offset must not be negative, found -1"),
            (SearchOptions { offset: 65_530, ..all() }, 7, "at most 65536, found 65530 and 7"),
            (SearchOptions { offset: i64::MAX, ..all() }, i64::MAX, "at most 65536"),
            (
                SearchOptions { score_threshold: Some(f64::NAN), ..all() },
                1,
                "score_threshold must be a finite",
            ),
            (SearchOptions { distance_threshold: Some(f64::INFINITY), ..all() }, 1, "found inf"),
        ] {
            let refused = refused(options, k).expect(fragment);
            assert!(refused.message.contains(fragment), "{refused}");
        }
    }

    #[test]
    fn an_offset_counts_groups_where_there_are_any() {
        let options = SearchOptions { offset: 4, with_vector: true, ..SearchOptions::default() };
        assert_eq!((options.query(false).offset, options.query(true).offset), (4, 0));
        assert_eq!(options.reach(3), 7);
        assert_eq!(options.shown(true), Shown { payload: ShownPayload::All, vectors: true });
        assert_eq!(options.shown(false).payload, ShownPayload::None);
    }
}
