//! The search for nearest neighbours.

use crate::op::query::{check_k, one_lane};
use crate::op::{Action, ApiError, Operation, ReadOptions};
use nigh_engine::filter::Predicate;
use nigh_engine::query::{Leaf, Source};
use nigh_shard::core::{Core, FoundPoint, QueryOutcome, QueryRequest, SearchRequest};
use std::rc::Rc;
use std::sync::Arc;

/// Nearest neighbours.
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
    /// Say how it went; see [`ExplainedSearch`].
    pub explain: bool,
    /// Consistency.
    pub read: ReadOptions,
}

impl Operation for SearchPoints {
    type Output = Vec<FoundPoint>;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        check_k(self.k)?;
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<FoundPoint>, ApiError> {
        let request = SearchRequest {
            vector: self.vector,
            k: self.k as usize,
            filter: self.filter,
            with_rows: self.with_rows,
        };
        Ok(core.search(&self.collection, request).await?)
    }
}

/// A plain search that says how it went.
pub struct ExplainedSearch(pub SearchPoints);

impl Operation for ExplainedSearch {
    type Output = QueryOutcome;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.0.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.0.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<QueryOutcome, ApiError> {
        let SearchPoints { collection, vector, k, filter, with_rows, .. } = self.0;
        let lane = Leaf { source: Source::Dense(vector), space: 0, pool: k as usize, filter };
        let request = |lanes| QueryRequest { lanes, group: None, with_rows, explain: true };
        one_lane(&core, &collection, lane, request).await
    }
}
