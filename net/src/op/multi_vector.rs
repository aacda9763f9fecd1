//! Operations on multi-vector collections: documents with one vector for each of their tokens.

use crate::limits;
use crate::op::named::{check_one_of_two, check_results, nothing_found};
use crate::op::points::stopped_at;
use crate::op::query::{check_pool, check_source, one_lane, pool_of};
use crate::op::{
    Action, ApiError, Operation, QueryPoints, ReadOptions, SearchOptions, WriteOptions, check_ttl,
};
use nigh_engine::collection::{MultiVectorConfig, WriteMode};
use nigh_engine::filter::Predicate;
use nigh_engine::query::{Combine, LaneQuery, Leaf, MaxSim, Method, Source};
use nigh_shard::core::{
    Core, NamedVectors, OpError, PointFields, QueryOutcome, Vectors, WriteBatch, Written,
};
use std::rc::Rc;
use std::sync::Arc;

/// The configuration of a multi-vector collection.
pub struct GetMultiVectorConfig {
    /// Name as sent.
    pub collection: String,
    /// Consistency.
    pub read: ReadOptions,
}

/// Writes documents in order. Each replaces the whole document of its id: what it leaves out is removed.
pub struct AddDocuments {
    /// Name as sent.
    pub collection: String,
    /// The documents.
    pub documents: Vec<Document>,
    /// Options that all of them have in common. The expected version is a field of each document.
    pub write: WriteOptions,
}

/// A document to be written.
#[derive(Clone, Debug)]
pub struct Document {
    /// Everything but the vectors. A document has no time to live as a whole.
    pub fields: PointFields,
    /// Its token vectors, at least one.
    pub tokens: Vec<Vec<f32>>,
    /// Its sparse vector, empty = none.
    pub sparse: Vec<(u32, f32)>,
}

/// Finds the documents with the best scores by MaxSim.
pub struct SearchDocuments {
    /// Name as sent.
    pub collection: String,
    /// The token vectors of the query; none = no results.
    pub query: Vec<Vec<f32>>,
    /// The number of results; below 1 = none.
    pub k: i64,
    /// The number of nearest tokens to find for each token of the query; below 1 = four times `k`, at least 50.
    pub candidates_per_token: i64,
    /// The filter that documents must match.
    pub filter: Option<Arc<Predicate>>,
    /// The beam width, thresholds, the offset, what is returned with hits, and whether the answer has a report of the search.
    pub options: SearchOptions,
    /// Consistency.
    pub read: ReadOptions,
}

/// Fuses a lane of tokens and a lane of a sparse vector or of a text.
pub struct HybridDocuments {
    /// Name as sent.
    pub collection: String,
    /// The token vectors of the query, none = no such lane.
    pub query: Vec<Vec<f32>>,
    /// The sparse vector of the query, empty = no such lane.
    pub sparse: Vec<(u32, f32)>,
    /// An analyzed text, which takes the place of the sparse lane.
    pub text: Option<Source>,
    /// The number of results; below 1 = none.
    pub k: i64,
    /// The filter that documents of both lanes must match.
    pub filter: Option<Arc<Predicate>>,
    /// How they are fused.
    pub method: Method,
    /// The number of hits of the lane of tokens, 0 = `max(k, 50)`.
    pub dense_k: i64,
    /// The number of hits of the sparse lane or of the text, 0 = `max(k, 50)`.
    pub sparse_k: i64,
    /// The beam width, thresholds, the offset, what is returned with hits, and whether the answer has a report of the search.
    pub options: SearchOptions,
    /// Consistency.
    pub read: ReadOptions,
}

/// Fuses or reranks any lanes of tokens, of sparse vectors and of texts.
pub struct QueryDocuments(pub QueryPoints);

/// Makes the source of a lane from the token vectors of a query.
pub fn token_source(tokens: Vec<Vec<f32>>, candidates_per_token: i64) -> Source {
    let per_token = usize::try_from(candidates_per_token).unwrap_or(0);
    Source::MaxSim(MaxSim { tokens, per_token: per_token.min(limits::K_MAX as usize) })
}

impl Operation for GetMultiVectorConfig {
    type Output = MultiVectorConfig;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<MultiVectorConfig, ApiError> {
        let config = core.config(&self.collection)?;
        let unknown = || OpError::UnknownCollection(self.collection);
        Ok(config.multi_vector().cloned().ok_or_else(unknown)?)
    }
}

/// The batch of these documents.
pub(super) fn batch_of(documents: Vec<Document>, mode: WriteMode) -> WriteBatch {
    let (mut vectors, mut points) = (Vec::new(), Vec::with_capacity(documents.len()));
    for Document { fields, tokens, sparse } in documents {
        // An empty sparse vector removes the one that the document has; leaving it out would keep it.
        vectors.push(NamedVectors { dense: Vec::new(), sparse: vec![(0, sparse)], tokens });
        points.push(fields);
    }
    WriteBatch { mode, dim: 0, vectors: Vectors::Named(vectors), points }
}

impl Operation for AddDocuments {
    type Output = Vec<Written>;
    const RIGHT: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        for document in &self.documents {
            check_ttl("ttl_ms", document.fields.ttl_ms)?;
        }
        self.write.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<Written>, ApiError> {
        let of_several = (self.documents.len() > 1).then_some("docs");
        core.write(&self.collection, batch_of(self.documents, WriteMode::Upsert))
            .await
            .map_err(|stopped| stopped_at(stopped, of_several))
    }
}

impl Operation for SearchDocuments {
    type Output = QueryOutcome;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        check_results(self.k)?;
        check_tokens(&self.query)?;
        self.options.validate(self.k, limits::K_MAX)?;
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<QueryOutcome, ApiError> {
        if self.k < 1 || self.query.is_empty() {
            return Ok(nothing_found());
        }
        let source = token_source(self.query, self.candidates_per_token);
        let pool = self.options.reach(self.k as usize);
        let lane = Leaf { source, space: 0, pool, filter: self.filter };
        let request = |lanes| self.options.request(lanes, true);
        one_lane(&core, &self.collection, lane, self.options.query(false), request).await
    }
}

impl Operation for HybridDocuments {
    type Output = QueryOutcome;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        check_results(self.k)?;
        check_tokens(&self.query)?;
        check_pool("dense_k", self.dense_k)?;
        check_pool("sparse_k", self.sparse_k)?;
        check_one_of_two(self.text.as_ref(), !self.sparse.is_empty())?;
        if self.sparse.len() > limits::QUERY_DIMENSIONS_MAX {
            check_source(&Source::Sparse(self.sparse.clone()))?;
        }
        self.options.validate(self.k, limits::K_MAX)?;
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<QueryOutcome, ApiError> {
        let Ok(k @ 1..) = usize::try_from(self.k) else { return Ok(nothing_found()) };
        let mut lanes = Vec::with_capacity(2);
        let (filter, reach) = (self.filter, self.options.reach(k));
        if !self.query.is_empty() {
            let (source, pool) = (token_source(self.query, 0), pool_of(self.dense_k, reach));
            lanes.push(Leaf { source, space: 0, pool, filter: filter.clone() });
        }
        // An empty text is kept, so that a collection without `full_text` is reported as an error.
        let sparse = Some(self.sparse).filter(|sparse| !sparse.is_empty()).map(Source::Sparse);
        if let Some(source) = self.text.or(sparse) {
            lanes.push(Leaf { source, space: 0, pool: pool_of(self.sparse_k, reach), filter });
        }
        if lanes.is_empty() {
            return Ok(nothing_found());
        }
        let options = self.options.query(false);
        let lanes = LaneQuery { lanes, combine: Combine::Fuse(self.method), k, options };
        Ok(core.query(&self.collection, self.options.request(lanes, false)).await?)
    }
}

impl Operation for QueryDocuments {
    type Output = QueryOutcome;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.0.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.0.node.check_leaves(&mut |leaf| match &leaf.source {
            Source::MaxSim(MaxSim { tokens, .. }) if tokens.is_empty() => {
                Err(ApiError::invalid("a lane of tokens needs at least one token vector"))
            }
            Source::MaxSim(_) | Source::Sparse(_) | Source::Text(_) => Ok(()),
            _ => {
                let text = "a lane of a multi-vector collection must have maxsim, sparse or text";
                Err(ApiError::invalid(text))
            }
        })?;
        self.0.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<QueryOutcome, ApiError> {
        self.0.run(core).await
    }
}

fn check_tokens(tokens: &[Vec<f32>]) -> Result<(), ApiError> {
    let (found, most) = (tokens.len(), limits::QUERY_TOKENS_MAX);
    match found > most {
        true => {
            Err(ApiError::invalid(format!("a query may have at most {most} token vectors, found {found}")))
        }
        false => Ok(()),
    }
}
