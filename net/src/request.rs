//! The typed request set: what any front end may ask for, independent of the wire it came over.
//!
//! Each request is a struct that implements [`Operation`]: it states the right it needs and the collection it touches,
//! and [`crate::dispatch::dispatch`] carries it out. Codecs fill these structs and render their outputs.

use crate::limits;
use nigh_engine::collection::{DenseConfig, WriteError, WriteMode};
use nigh_engine::filter::{Node, Predicate};
use nigh_engine::kv::TTL_MS_MAX;
use nigh_engine::query::LaneError;
use nigh_shard::core::{
    AliasChange, Core, OpError, OrderedScroll, PayloadChange, PointFields, Vectors, WriteBatch,
};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// The right an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Look at points or counters.
    Read,
    /// Change points.
    Write,
    /// Create, drop, administer.
    Admin,
}

/// One operation of the request set.
pub trait Operation: Sized + 'static {
    /// What it answers.
    type Output: 'static;
    /// The right it needs.
    const ACTION: Action;
    /// Whether it changes data. Such an operation runs to its end even when the connection that asked for it breaks.
    const MUTATES: bool;
    /// Whether it may take hours: who waits for it is answered when the process stops.
    const LASTS: bool = false;
    /// The collection it names, as sent.
    fn collection(&self) -> &str;
    /// Checks what can be checked without storage.
    ///
    /// # Errors
    /// What is wrong, as a bad request.
    fn validate(&self) -> Result<(), ApiError> {
        Ok(())
    }
    /// Carries it out; called by the dispatcher after [`Operation::validate`].
    fn run(self, core: Rc<Core>) -> impl Future<Output = Result<Self::Output, ApiError>>;
}

/// Makes a collection.
pub struct CreateCollection {
    /// Name as sent.
    pub collection: String,
    /// Configuration, defaults applied.
    pub config: DenseConfig,
}
/// Removes a collection and its files; an unknown name is fine.
pub struct DropCollection {
    /// Name as sent.
    pub collection: String,
}
/// Makes or removes aliases, all or none.
pub struct ChangeAliases {
    /// In order.
    pub changes: Vec<AliasChange>,
}
/// Aliases in order.
pub struct ListAliases {
    /// Those of one collection.
    pub target: Option<String>,
}
/// Inserts or upserts points in order.
pub struct WritePoints {
    /// Name as sent.
    pub collection: String,
    /// The points.
    pub batch: WriteBatch,
}
/// Stages points for a bulk build.
pub struct StagePoints {
    /// Name as sent.
    pub collection: String,
    /// The points; its mode is ignored.
    pub batch: WriteBatch,
}
/// Builds the index of what is staged.
pub struct BuildStaged {
    /// Name as sent.
    pub collection: String,
    /// Cores to use, 0 = all.
    pub workers: usize,
    /// Answer when it is built, not when it has begun.
    pub wait: bool,
}
/// Reads points by id.
pub struct GetPoints {
    /// Name as sent.
    pub collection: String,
    /// Ids, repeats allowed.
    pub ids: Vec<u64>,
    /// Return vectors.
    pub with_vector: bool,
    /// Return payloads.
    pub with_payload: bool,
    /// Consistency.
    pub read: ReadOptions,
}
/// Deletes one point.
pub struct DeletePoint {
    /// Name as sent.
    pub collection: String,
    /// The id.
    pub id: u64,
    /// Conditions.
    pub write: WriteOptions,
}
/// Changes the payload of one point.
pub struct ChangePayload {
    /// Name as sent.
    pub collection: String,
    /// The id.
    pub id: u64,
    /// What to change.
    pub change: PayloadChange,
    /// Conditions.
    pub write: WriteOptions,
}
/// Carries out a call of `operate` on a record in the payload of one point.
pub struct OperatePoint {
    /// Name as sent.
    pub collection: String,
    /// The id.
    pub id: u64,
    /// The payload key that holds the record.
    pub key: String,
    /// Arguments of the call, which have been decoded once.
    pub call: Vec<u8>,
    /// Conditions.
    pub write: WriteOptions,
}
/// Deletes every point that matches.
pub struct DeleteByFilter {
    /// Name as sent.
    pub collection: String,
    /// The filter; one that matches everything is refused.
    pub filter: Option<Arc<Predicate>>,
    /// Conditions.
    pub write: WriteOptions,
}
/// One page of points in id order.
#[derive(Clone)]
pub struct ScrollPoints {
    /// Name as sent.
    pub collection: String,
    /// Which points.
    pub filter: Option<Arc<Predicate>>,
    /// Continue after this id.
    pub after: Option<u64>,
    /// Page size, 0 = everything.
    pub limit: usize,
    /// Consistency.
    pub read: ReadOptions,
}
/// The first positions in the order of payload values; the points are read by id.
#[derive(Clone)]
pub struct ScrollOrdered {
    /// Name as sent.
    pub collection: String,
    /// Which points in which order.
    pub order: OrderedScroll,
    /// Consistency.
    pub read: ReadOptions,
}
/// Background tasks.
pub struct ListTasks;
/// Every collection.
pub struct ListCollections;
/// One collection with its figures.
pub struct GetCollection {
    /// Name as sent.
    pub collection: String,
}
/// Counts points.
pub struct CountPoints {
    /// Name as sent.
    pub collection: String,
    /// Which points.
    pub filter: Option<Arc<Predicate>>,
}
/// Counts the values of a payload key.
pub struct FacetPoints {
    /// Name as sent.
    pub collection: String,
    /// Payload key.
    pub key: String,
    /// Which points.
    pub filter: Option<Arc<Predicate>>,
    /// Most values.
    pub limit: usize,
}
/// Draws points at random.
pub struct SamplePoints {
    /// Name as sent.
    pub collection: String,
    /// Which points.
    pub filter: Option<Arc<Predicate>>,
    /// Most points.
    pub limit: usize,
    /// The same seed draws the same points.
    pub seed: u64,
}
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
    /// Say how it went; see [`crate::lane_requests::ExplainedSearch`].
    pub explain: bool,
    /// Consistency.
    pub read: ReadOptions,
}

/// How fresh and how complete a read must be. One node always answers completely and freshly, so beyond their ranges
/// these change nothing here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// 0 any replica, 1 leader, 2 linearizable, 3 bounded staleness.
    pub read_consistency: u8,
    /// 0 partial answers, 1 fail.
    pub on_partition_unavailable: u8,
    /// Bound of level 3; ignored otherwise.
    pub max_staleness: u64,
}

/// Conditions of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Replica acknowledgements wanted, clamped to what exists; negative is refused.
    pub write_consistency_factor: i64,
    /// Version the point must have, 0 = absent.
    pub expected_version: Option<u64>,
}

impl ReadOptions {
    /// Range checks.
    ///
    /// # Errors
    /// A bad request that names the field.
    pub fn validate(&self) -> Result<(), ApiError> {
        if self.read_consistency > 3 {
            return Err(ApiError::invalid(format!(
                "read_consistency must be 0, 1, 2 or 3, found {}",
                self.read_consistency
            )));
        }
        if self.on_partition_unavailable > 1 {
            return Err(ApiError::invalid(format!(
                "on_partition_unavailable must be 0 or 1, found {}",
                self.on_partition_unavailable
            )));
        }
        Ok(())
    }
}

impl WriteOptions {
    /// Range checks.
    ///
    /// # Errors
    /// A bad request that names the field.
    pub fn validate(&self) -> Result<(), ApiError> {
        if self.write_consistency_factor < 0 {
            return Err(ApiError::invalid(format!(
                "write_consistency_factor must not be negative, found {}",
                self.write_consistency_factor
            )));
        }
        Ok(())
    }
}

/// Compiles a filter as parsed; a node that says nothing at all is no filter.
///
/// # Errors
/// A bad request that names the node which does not compile.
pub fn compile_filter(node: Option<Node>) -> Result<Option<Arc<Predicate>>, ApiError> {
    match node {
        Some(node) if node != Node::default() => match Predicate::compile(&node) {
            Ok(predicate) => Ok(Some(Arc::new(predicate))),
            Err(error) => Err(ApiError::invalid(error.to_string())),
        },
        _ => Ok(None),
    }
}

/// Checks a time to live of the field `name`: one at most that every client can hold in nanoseconds, over every protocol. Zero and less
/// mean for ever (interface).
///
/// # Errors
/// Names the value and the largest.
pub fn check_ttl(name: &str, ttl_ms: i64) -> Result<(), ApiError> {
    match u64::try_from(ttl_ms) {
        Ok(ttl) if ttl > TTL_MS_MAX => {
            Err(ApiError::invalid(format!("{name} {ttl_ms} is out of range: at most {TTL_MS_MAX}")))
        }
        _ => Ok(()),
    }
}

/// Likewise of the keys of a payload.
///
/// # Errors
/// As [`check_ttl`], with the key.
pub fn check_key_ttls(key_ttl_ms: &[(String, i64)]) -> Result<(), ApiError> {
    match key_ttl_ms.iter().find(|(_, ttl_ms)| check_ttl("", *ttl_ms).is_err()) {
        Some((key, ttl_ms)) => check_ttl(&format!("key_ttl_ms of {key:?}"), *ttl_ms),
        None => Ok(()),
    }
}

/// Checks the length of a collection name.
///
/// # Errors
/// `collection name too long` beyond 247 bytes.
pub fn check_name(name: &str) -> Result<(), ApiError> {
    if name.len() > limits::NAME_MAX_BYTES {
        return Err(ApiError::invalid(format!(
            "collection name too long: {} bytes, at most {}",
            name.len(),
            limits::NAME_MAX_BYTES
        )));
    }
    Ok(())
}

/// Collects points of a body into one batch: vectors of one length share a buffer, mixed lengths are kept apart so
/// that each point can be refused on its own.
pub struct BatchBuilder {
    flat: Vec<f32>,
    dim: Option<usize>,
    apart: Vec<Vec<f32>>,
    points: Vec<PointFields>,
}

impl BatchBuilder {
    /// Empty.
    pub fn new() -> Self {
        BatchBuilder { flat: Vec::new(), dim: None, apart: Vec::new(), points: Vec::new() }
    }

    /// Points so far.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// No point yet.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Whether all vectors so far have one length.
    pub fn is_uniform(&self) -> bool {
        self.apart.is_empty()
    }

    /// Appends a point.
    pub fn push(&mut self, vector: Vec<f32>, fields: PointFields) {
        if !self.apart.is_empty() {
            self.apart.push(vector);
        } else if *self.dim.get_or_insert(vector.len()) == vector.len() {
            self.flat.extend_from_slice(&vector);
        } else {
            let dim = self.dim.unwrap_or(0);
            let count = self.points.len();
            self.apart.reserve(count + 1);
            for index in 0..count {
                self.apart.push(self.flat[index * dim..(index + 1) * dim].to_vec());
            }
            self.flat = Vec::new();
            self.apart.push(vector);
        }
        self.points.push(fields);
    }

    /// The batch.
    pub fn finish(self, mode: WriteMode) -> WriteBatch {
        let dim = self.dim.unwrap_or(0);
        let vectors =
            if self.apart.is_empty() { Vectors::Native(self.flat) } else { Vectors::PerPoint(self.apart) };
        WriteBatch { mode, dim, vectors, points: self.points }
    }
}

impl Default for BatchBuilder {
    fn default() -> Self {
        BatchBuilder::new()
    }
}

/// What kind of failure; each transport has its own number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request is wrong.
    Invalid,
    /// The body is over its limit.
    TooLarge,
    /// The body is in a form that is not read.
    Unsupported,
    /// No or wrong credentials, or not allowed.
    Unauthorized,
    /// Collection or point absent.
    NotFound,
    /// Exists already, or a version differs.
    Conflict,
    /// The node was started without what the request needs.
    Unmet,
    /// A quota or rate of the collection.
    Exhausted,
    /// Disk or memory of the server is full.
    Storage,
    /// Retry later.
    Unavailable,
    /// What the request is about has been damaged on the disk.
    Damaged,
    /// Ours; the client sees no reason, the log does.
    Internal,
}

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// Kind.
    pub kind: ErrorKind,
    /// Reason; for [`ErrorKind::Internal`] only for the log.
    pub message: String,
    /// Points of a batch that were processed before the failure.
    pub committed: Option<usize>,
}

impl ApiError {
    /// An error of `kind`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        ApiError { kind, message: message.into(), committed: None }
    }

    /// A bad request.
    pub fn invalid(message: impl Into<String>) -> Self {
        ApiError::new(ErrorKind::Invalid, message)
    }

    /// A body over its limit.
    pub fn too_large(limit_bytes: u64) -> Self {
        ApiError::too_many("bytes", limit_bytes)
    }

    /// A body that holds more of something than it may.
    pub fn too_many(of_what: &str, limit: u64) -> Self {
        ApiError::new(ErrorKind::TooLarge, format!("request body too large: at most {limit} {of_what}"))
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl From<OpError> for ApiError {
    fn from(error: OpError) -> Self {
        let kind = match &error {
            OpError::UnknownCollection(_)
            | OpError::UnknownKeyIndex(_)
            | OpError::PointNotFound(_)
            | OpError::Lanes(LaneError::UnknownExample(_)) => ErrorKind::NotFound,
            OpError::PayloadTooLarge => ErrorKind::TooLarge,
            OpError::CollectionExists(_) | OpError::Conflict(_) => ErrorKind::Conflict,
            OpError::Config(_)
            | OpError::Search(_)
            | OpError::Lanes(_)
            | OpError::BadRequest(_)
            | OpError::Operate(_) => ErrorKind::Invalid,
            OpError::Write(error) => match error {
                WriteError::DuplicateId(_) | WriteError::VersionConflict { .. } | WriteError::ReadOnly => {
                    ErrorKind::Conflict
                }
                WriteError::Full | WriteError::RateLimited => ErrorKind::Exhausted,
                _ => ErrorKind::Invalid,
            },
            OpError::NoSpace(_) | OpError::NoMemory(_) | OpError::StoreFull => ErrorKind::Storage,
            OpError::Busy(_) => ErrorKind::Unavailable,
            OpError::Damaged(_) => ErrorKind::Damaged,
            _ => ErrorKind::Internal,
        };
        ApiError::new(kind, error.to_string())
    }
}
