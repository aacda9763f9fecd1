//! The search for nearest neighbours.

use crate::limits;
use crate::op::query::{check_k, one_lane};
use crate::op::{Action, ApiError, Operation, ReadOptions, SearchOptions};
use nigh_engine::filter::Predicate;
use nigh_engine::query::{Leaf, Source};
use nigh_shard::core::{Core, QueryAnswer, QueryOutcome, SearchRequest};
use std::rc::Rc;
use std::sync::Arc;

/// Finds the nearest neighbours of a vector.
pub struct SearchPoints {
    /// Name as sent.
    pub collection: String,
    /// Query vector.
    pub vector: Vec<f32>,
    /// Results, checked against `1..=65536`.
    pub k: i64,
    /// Which points.
    pub filter: Option<Arc<Predicate>>,
    /// Return payload rows.
    pub with_rows: bool,
    /// The beam width, thresholds, the offset, what is returned with hits, and whether the answer has a report of the search.
    pub options: SearchOptions,
    /// Consistency.
    pub read: ReadOptions,
}

impl Operation for SearchPoints {
    type Output = QueryOutcome;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        check_k(self.k)?;
        self.options.validate(self.k, limits::K_MAX)?;
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<QueryOutcome, ApiError> {
        let SearchPoints { collection, vector, k, filter, with_rows, options, .. } = self;
        let k = k as usize;
        if options != SearchOptions::default() {
            let lane = Leaf { source: Source::Dense(vector), space: 0, pool: options.reach(k), filter };
            let request = |lanes| options.request(lanes, with_rows);
            return one_lane(&core, &collection, lane, options.query(false), request).await;
        }
        // A device may carry out this search.
        let hits = core.search(&collection, SearchRequest { vector, k, filter, with_rows }).await?;
        let shown = options.shown(with_rows);
        Ok(QueryOutcome { answer: QueryAnswer::Hits(hits), incomplete: false, explained: None, shown })
    }
}
