//! Operations on collections of named spaces. Clients name spaces, and the core knows them by numbers. Names are looked up when an operation is
//! carried out, because only then it is certain on which collection.

use crate::limits;
use crate::op::SentId;
use crate::op::points::{refused_at, stopped_at};
use crate::op::query::{check_k, check_pool, check_source, one_lane, pool_of};
use crate::op::{
    Action, ApiError, Diversity, Operation, QueryLeaf, QueryPoints, ReadOptions, SearchOptions, WriteOptions,
    check_ttl,
};
use nigh_engine::collection::{NamedConfig, WriteMode};
use nigh_engine::filter::Predicate;
use nigh_engine::query::{Combine, LaneQuery, Leaf, Method, Source};
use nigh_engine::quoted::quoted;
use nigh_shard::core::{
    Core, NamedVectors, OpError, PointFields, QueryAnswer, QueryOutcome, Shown, Vectors, WriteBatch, Written,
};
use nigh_shard::family::CollectionConfig;
use std::rc::Rc;
use std::sync::Arc;

/// The configuration of a collection of named spaces.
pub struct GetNamedConfig {
    /// Name as sent.
    pub collection: String,
    /// Consistency.
    pub read: ReadOptions,
}

/// Writes points in order, each into the spaces that it names. In other spaces a point keeps the vectors that it has.
pub struct UpsertNamed {
    /// Name as sent.
    pub collection: String,
    /// The points.
    pub points: Vec<NamedPoint>,
    /// Conditions for all of them. The expected version is a field of each point.
    pub write: WriteOptions,
}

/// A point to be written, with the names of its spaces.
#[derive(Clone, Debug)]
pub struct NamedPoint {
    /// Everything but the vectors.
    pub fields: PointFields,
    /// Vectors by the names of dense spaces, each at most once.
    pub dense: Vec<(String, Vec<f32>)>,
    /// Vectors by the names of sparse spaces, each at most once; one without components removes the point from the space.
    pub sparse: Vec<(String, Vec<(u32, f32)>)>,
}

/// Finds the points that are nearest in a dense space, or that score best in a sparse one.
pub struct SearchNamed {
    /// Name as sent.
    pub collection: String,
    /// Name of the space.
    pub space: String,
    /// A dense or a sparse vector.
    pub source: Source,
    /// Results; below 1 = none.
    pub k: i64,
    /// Which points.
    pub filter: Option<Arc<Predicate>>,
    /// Return payload rows.
    pub with_rows: bool,
    /// How diverse results are chosen; `None` returns the nearest.
    pub diversity: Option<Diversity>,
    /// The beam width, thresholds, the offset, what is returned with hits, and whether the answer has a report of the search.
    pub options: SearchOptions,
    /// Consistency.
    pub read: ReadOptions,
}

/// Fuses a lane of a dense space and one of a sparse space or of a text.
pub struct HybridNamed {
    /// Name as sent.
    pub collection: String,
    /// Name of the dense space, and the query vector. If the vector is empty, there is no dense lane. With a text the name may be empty as well.
    pub dense: (String, Vec<f32>),
    /// Name of the sparse space, and the query vector. If the vector is empty, there is no sparse lane. With a text both are empty.
    pub sparse: (String, Vec<(u32, f32)>),
    /// An analyzed text, which takes the place of the sparse lane.
    pub text: Option<Source>,
    /// Results; below 1 = none.
    pub k: i64,
    /// Which points, for both lanes.
    pub filter: Option<Arc<Predicate>>,
    /// How they are fused.
    pub method: Method,
    /// Hits of the dense lane, 0 = `max(offset + k, 50)`.
    pub dense_k: i64,
    /// Hits of the sparse lane or of the text, 0 = `max(offset + k, 50)`.
    pub sparse_k: i64,
    /// The beam width, thresholds, the offset, what is returned with hits, and whether the answer has a report of the search.
    pub options: SearchOptions,
    /// Consistency.
    pub read: ReadOptions,
}

/// A query of any lanes in any spaces, which are fused or reranked.
pub struct QueryNamed(pub QueryPoints);

pub(super) fn named<'c>(config: &'c CollectionConfig, collection: &str) -> Result<&'c NamedConfig, ApiError> {
    let unknown = || OpError::UnknownCollection(collection.to_owned());
    Ok(config.named().ok_or_else(unknown)?)
}

/// Finds the number of the space of a dense vector.
fn dense_space(config: &NamedConfig, name: &str, found: Option<usize>) -> Result<usize, ApiError> {
    let Some(number) = config.number_of(name) else {
        return Err(match config.sparse_number_of(name) {
            Some(_) => {
                let name = quoted(name);
                ApiError::invalid(format!("the vector space {name} is sparse; this needs a dense one"))
            }
            None => unknown_space(config, name),
        });
    };
    let expected = config.spaces[number].config.dim;
    match found.filter(|found| *found != expected) {
        Some(found) => Err(ApiError::invalid(format!(
            "dimension mismatch in the vector space {}: expected {expected} components, found {found}",
            quoted(name)
        ))),
        None => Ok(number),
    }
}

/// Vectors by the numbers of their spaces.
pub(super) fn numbered(
    config: &NamedConfig,
    dense: Vec<(String, Vec<f32>)>,
    sparse: Vec<(String, Vec<(u32, f32)>)>,
) -> Result<NamedVectors, ApiError> {
    let mut vectors = NamedVectors::default();
    for (name, vector) in dense {
        vectors.dense.push((dense_space(config, &name, Some(vector.len()))?, vector));
    }
    for (name, vector) in sparse {
        vectors.sparse.push((sparse_space(config, &name)?, vector));
    }
    Ok(vectors)
}

/// Finds the number of the space of a sparse vector.
fn sparse_space(config: &NamedConfig, name: &str) -> Result<usize, ApiError> {
    config.sparse_number_of(name).ok_or_else(|| match config.number_of(name) {
        Some(_) => {
            let name = quoted(name);
            ApiError::invalid(format!("the vector space {name} is dense; this needs a sparse one"))
        }
        None => unknown_space(config, name),
    })
}

pub(super) fn unknown_space(config: &NamedConfig, name: &str) -> ApiError {
    let names: Vec<&str> = config.names().collect();
    let names = names.join(", ");
    ApiError::invalid(match name {
        "" => format!("the name of a vector space is missing; the collection has {names}"),
        name => format!("unknown vector space {}; the collection has {names}", quoted(name)),
    })
}

/// Checks that a lane names a space if it ranks in one. Texts belong to points, not to spaces.
///
/// # Errors
/// 400.
pub fn check_lane_space(lane: &QueryLeaf) -> Result<(), ApiError> {
    match (&lane.source, lane.space.is_empty()) {
        (Source::Text(_), false) => {
            let space = quoted(&lane.space);
            Err(ApiError::invalid(format!(
                "space {space} is not allowed in a lane with text: a text belongs to the point; leave out space"
            )))
        }
        (Source::Text(_), true) | (_, false) => Ok(()),
        (_, true) => {
            Err(ApiError::invalid("space is required: each lane names the vector space that it ranks in"))
        }
    }
}

/// Checks that a hybrid search has a text or a sparse lane, and not both.
///
/// # Errors
/// 400.
pub(super) fn check_one_of_two(text: Option<&Source>, has_sparse: bool) -> Result<(), ApiError> {
    match text.is_some() && has_sparse {
        true => Err(ApiError::invalid(
            "text cannot be combined with a sparse vector or a sparse space in a hybrid search; leave one of them out, or use query, which takes any \
             number of lanes",
        )),
        false => Ok(()),
    }
}

/// Finds the number of the space in which a vector ranks points.
fn space_of(config: &NamedConfig, name: &str, source: &Source) -> Result<usize, ApiError> {
    match source {
        Source::Sparse(_) => sparse_space(config, name),
        Source::MaxSim(_) => {
            Err(ApiError::invalid("a lane of token vectors does not work on a collection of named spaces"))
        }
        // All texts of a collection are in lane 0. The core refuses the query if the collection has no full text.
        Source::Text(_) => Ok(0),
        // A lane without any vector is decoded as an empty dense one.
        Source::Dense(vector) if vector.is_empty() && config.sparse_number_of(name).is_some() => {
            let name = quoted(name);
            Err(ApiError::invalid(format!(
                "a lane in the sparse space {name} needs a sparse vector with entries"
            )))
        }
        Source::Dense(vector) => dense_space(config, name, Some(vector.len())),
        _ => dense_space(config, name, None),
    }
}

pub(super) fn nothing_found() -> QueryOutcome {
    QueryOutcome {
        answer: QueryAnswer::Hits(Vec::new()),
        incomplete: false,
        explained: None,
        shown: Shown::default(),
    }
}

/// Checks a number of results that may be 0 or less.
pub(super) fn check_results(k: i64) -> Result<(), ApiError> {
    if k < 1 { Ok(()) } else { check_k(k) }
}

impl Operation for GetNamedConfig {
    type Output = NamedConfig;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<NamedConfig, ApiError> {
        let found = core.collection_info(&self.collection)?;
        // Only the name of the collection itself is accepted.
        if Core::full_name(&self.collection).ok().as_ref() != Some(&found.name) {
            return Err(OpError::UnknownCollection(self.collection).into());
        }
        named(&found.config, &self.collection).cloned()
    }
}

impl Operation for UpsertNamed {
    type Output = Vec<Written>;
    const RIGHT: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        for point in &self.points {
            check_ttl("ttl_ms", point.fields.ttl_ms)?;
        }
        self.write.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<Written>, ApiError> {
        let config = core.config(&self.collection)?;
        let config = named(&config, &self.collection)?;
        let of_several = (self.points.len() > 1).then_some("points");
        let (mut vectors, mut points) = (Vec::new(), Vec::with_capacity(self.points.len()));
        let mut refused = None;
        for point in self.points {
            let NamedPoint { fields, dense, sparse } = point;
            match numbered(config, dense, sparse) {
                Ok(numbered) => {
                    vectors.push(numbered);
                    points.push(fields);
                }
                Err(error) => {
                    refused = Some(refused_at(
                        points.len(),
                        of_several.map(|list| (list, SentId::stored(fields.id, &fields.row))),
                        error,
                    ));
                    break;
                }
            }
        }
        let vectors = Vectors::Named(vectors);
        let batch = WriteBatch { mode: WriteMode::Upsert, dim: 0, vectors, points };
        // Points before one that is refused are written, as in a dense collection.
        let written = core.write(&self.collection, batch).await;
        let written = written.map_err(|stopped| stopped_at(stopped, of_several))?;
        match refused {
            Some(error) => Err(ApiError { written, ..error }),
            None => Ok(written),
        }
    }
}

impl Operation for SearchNamed {
    type Output = QueryOutcome;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        check_source(&self.source)?;
        match &self.diversity {
            Some(diversity) => diversity.validate(self.k, &self.options)?,
            None => {
                check_results(self.k)?;
                self.options.validate(self.k, limits::K_MAX)?;
            }
        }
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<QueryOutcome, ApiError> {
        let config = core.config(&self.collection)?;
        let space = space_of(named(&config, &self.collection)?, &self.space, &self.source)?;
        if self.k < 1 {
            return Ok(nothing_found());
        }
        let pool = self.options.reach(self.k as usize);
        if let Some(diversity) = self.diversity {
            let (k, options) = (self.k as usize, self.options.query(false));
            let lanes = diversity.query(self.source, space, self.filter, k, pool, options);
            return Ok(core.query(&self.collection, self.options.request(lanes, self.with_rows)).await?);
        }
        let lane = Leaf { source: self.source, space, pool, filter: self.filter };
        let request = |lanes| self.options.request(lanes, self.with_rows);
        one_lane(&core, &self.collection, lane, self.options.query(false), request).await
    }
}

impl Operation for HybridNamed {
    type Output = QueryOutcome;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        check_results(self.k)?;
        check_pool("dense_k", self.dense_k)?;
        check_pool("sparse_k", self.sparse_k)?;
        check_one_of_two(self.text.as_ref(), self.sparse != Default::default())?;
        if self.sparse.1.len() > limits::QUERY_DIMENSIONS_MAX {
            check_source(&Source::Sparse(self.sparse.1.clone()))?;
        }
        self.options.validate(self.k, limits::K_MAX)?;
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<QueryOutcome, ApiError> {
        let Ok(k @ 1..) = usize::try_from(self.k) else { return Ok(nothing_found()) };
        let config = core.config(&self.collection)?;
        let config = named(&config, &self.collection)?;
        let ((dense_name, dense), (sparse_name, sparse)) = (self.dense, self.sparse);
        let has_sparse = !sparse.is_empty();
        let found = Some(dense.len()).filter(|found| *found > 0);
        let has_dense_lane = self.text.is_none() || !dense_name.is_empty() || !dense.is_empty();
        let dense_number = if has_dense_lane { dense_space(config, &dense_name, found)? } else { 0 };
        let (other, other_number) = match self.text {
            // An empty text is kept, so that a collection without `full_text` is reported as an error.
            Some(text) => (Some(text), 0),
            None => {
                let number = sparse_space(config, &sparse_name)?;
                (Some(Source::Sparse(sparse)).filter(|_| has_sparse), number)
            }
        };
        let mut lanes = Vec::with_capacity(2);
        let (filter, reach) = (self.filter, self.options.reach(k));
        if !dense.is_empty() {
            let (source, pool) = (Source::Dense(dense), pool_of(self.dense_k, reach));
            lanes.push(Leaf { source, space: dense_number, pool, filter: filter.clone() });
        }
        if let Some(source) = other {
            lanes.push(Leaf { source, space: other_number, pool: pool_of(self.sparse_k, reach), filter });
        }
        if lanes.is_empty() {
            return Ok(nothing_found());
        }
        let options = self.options.query(false);
        let lanes = LaneQuery { lanes, combine: Combine::Fuse(self.method), k, options };
        Ok(core.query(&self.collection, self.options.request(lanes, false)).await?)
    }
}

impl Operation for QueryNamed {
    type Output = QueryOutcome;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.0.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.0.node.check_roots(&|root| match root.source {
            Source::Dense(_) | Source::Sparse(_) | Source::Text(_) => Ok(()),
            _ => Err(ApiError::invalid("root must be a dense vector, a sparse vector or a text")),
        })?;
        self.0.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<QueryOutcome, ApiError> {
        let config = core.config(&self.0.collection)?;
        let config = named(&config, &self.0.collection)?;
        self.0.run_in(core, &|name, source| space_of(config, name, source)).await
    }
}
