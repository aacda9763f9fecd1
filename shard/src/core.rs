//! What a core offers to front ends: the typed operations on collections, with owner routing, logging and waiting inside.
//!
//! One [`Core`] per core, `Rc`, not `Send`. Every method may be called on any core.
use bytes::Bytes;
use nigh_engine::collection::{ConfigError, DenseConfig, SearchError, Stats, WriteError, WriteMode};
use nigh_engine::filter::{Node, Predicate};
use std::rc::Rc;
use std::sync::Arc;
/// Where the f32 rows of a batch lie.
#[derive(Clone, Debug)]
pub enum Vectors {
    /// `count * dim` native floats.
    Native(Vec<f32>),
    /// Rows of the binary body: each `8 + 4 * dim` bytes (big-endian id, then big-endian f32s), validated for length.
    BigEndianRows(Bytes),
    /// One vector per point, any length (JSON).
    PerPoint(Vec<Vec<f32>>),
}
/// Points to write, in order.
#[derive(Clone, Debug)]
pub struct WriteBatch {
    /// Insert or upsert.
    pub mode: WriteMode,
    /// Vector length of `Native`/`BigEndianRows`.
    pub dim: usize,
    /// Vectors.
    pub vectors: Vectors,
    /// Everything else, one per point.
    pub points: Vec<PointFields>,
}
/// A point without its vector.
#[derive(Clone, Debug, Default)]
pub struct PointFields {
    /// Id.
    pub id: u64,
    /// Encoded payload row (`payload::RowBuilder`), empty = none.
    pub row: Vec<u8>,
    /// Relative, <= 0 = none; becomes absolute at the owner.
    pub ttl_ms: i64,
    /// Condition.
    pub expected_version: Option<u64>,
}
/// Per point outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Stored under this version.
    Ok {
        /// New version.
        version: u64,
    },
    /// `expected_version` differed; nothing changed.
    Conflict,
}
/// A batch that stopped: points before `committed` are stored and durable.
#[derive(Debug, Clone)]
pub struct BatchError {
    /// Processed points, conflicts included.
    pub committed: usize,
    /// Why the next one failed.
    pub error: OpError,
}
/// Why an operation failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// 404.
    #[error("unknown collection {0:?}")]
    UnknownCollection(String),
    /// 409.
    #[error("collection {0:?} already exists")]
    CollectionExists(String),
    /// 400.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// 400/409/429 by kind.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// 400.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// 400; text names what is wrong.
    #[error("{0}")]
    BadRequest(String),
    /// 409.
    #[error("{0}")]
    Conflict(String),
    /// 507: disk full; retry when space returns.
    #[error("insufficient storage: {0}")]
    NoSpace(String),
    /// 429/507: the memory limit is reached.
    #[error("memory limit reached: {0}")]
    NoMemory(String),
    /// 503.
    #[error("busy: {0}")]
    Busy(String),
    /// 500 with the reason logged: failed log, damaged collection.
    #[error("{0}")]
    Unavailable(String),
}
/// A search.
#[derive(Clone, Debug)]
pub struct SearchRequest {
    /// Query vector.
    pub vector: Vec<f32>,
    /// Results.
    pub k: usize,
    /// Filter.
    pub filter: Option<Arc<Predicate>>,
    /// Also return payload rows (docs).
    pub with_rows: bool,
}
/// A hit that may cross cores.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundPoint {
    /// Id.
    pub id: u64,
    /// Distance.
    pub distance: f32,
    /// Encoded row when asked for and present, else empty.
    pub row: Vec<u8>,
}
/// A point read by id.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredPoint {
    /// Id.
    pub id: u64,
    /// Vector when asked for.
    pub vector: Option<Vec<f32>>,
    /// Row when asked for and present.
    pub row: Vec<u8>,
    /// Remaining ms, 0 = none.
    pub ttl_ms: u64,
    /// Version.
    pub version: u64,
}
/// One page of a scroll.
#[derive(Clone, Debug, Default)]
pub struct ScrollPage {
    /// Points in id order, without vectors.
    pub points: Vec<StoredPoint>,
    /// Id to continue after, when more exist.
    pub next_after: Option<u64>,
}
/// Counters of one collection for the metrics page.
#[derive(Clone, Debug, Default)]
pub struct CollectionMetrics {
    /// `<tenant>/<name>`.
    pub name: String,
    /// Gauges.
    pub stats: Stats,
    /// Searches that passed validation.
    pub search_ops: u64,
    /// Successful inserts.
    pub insert_ops: u64,
    /// Points removed by the sweeper.
    pub expired: u64,
    /// Refused by quota.
    pub quota_rejects: u64,
    /// Candidates refused by a filter.
    pub filter_rejects: u64,
    /// Cumulative bucket counts (see `LATENCY_BOUNDS_US`), last = all; then sum in us.
    pub search_latency: [u64; 11],
    /// Likewise.
    pub insert_latency: [u64; 11],
}
/// Upper bounds of the latency buckets in microseconds; +Inf follows.
pub const LATENCY_BOUNDS_US: [u64; 9] =
    [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
/// See the module.
pub struct Core {}
impl Core {
    /// Checks a name for create (400 text), returns `<tenant>/<name>`.
    pub fn full_name(name: &str) -> Result<String, OpError> {
        let _ = name;
        todo!()
    }
    /// Creates; durable on return.
    pub async fn create_collection(self: &Rc<Self>, name: &str, config: DenseConfig) -> Result<(), OpError> {
        let _ = (name, config);
        todo!()
    }
    /// Drops; complete on return; false when unknown.
    pub async fn drop_collection(self: &Rc<Self>, name: &str) -> Result<bool, OpError> {
        let _ = name;
        todo!()
    }
    /// Configuration of a collection (also the existence check).
    pub fn config(&self, name: &str) -> Result<Arc<DenseConfig>, OpError> {
        let _ = name;
        todo!()
    }
    /// Writes points in order; results in input order.
    pub async fn write(self: &Rc<Self>, name: &str, batch: WriteBatch) -> Result<Vec<Written>, BatchError> {
        let _ = (name, batch);
        todo!()
    }
    /// Deletes one point; false when absent.
    pub async fn delete(
        self: &Rc<Self>,
        name: &str,
        id: u64,
        expected_version: Option<u64>,
    ) -> Result<bool, OpError> {
        let _ = (name, id, expected_version);
        todo!()
    }
    /// Deletes every match; the count removed.
    pub async fn delete_by_filter(
        self: &Rc<Self>,
        name: &str,
        filter: Arc<Predicate>,
    ) -> Result<u64, OpError> {
        let _ = (name, filter);
        todo!()
    }
    /// Points by id, in request order, `None` = absent.
    pub async fn get(
        self: &Rc<Self>,
        name: &str,
        ids: Vec<u64>,
        with_vector: bool,
        with_payload: bool,
    ) -> Result<Vec<Option<StoredPoint>>, OpError> {
        let _ = (name, ids, with_vector, with_payload);
        todo!()
    }
    /// Nearest neighbours.
    pub async fn search(
        self: &Rc<Self>,
        name: &str,
        request: SearchRequest,
    ) -> Result<Vec<FoundPoint>, OpError> {
        let _ = (name, request);
        todo!()
    }
    /// A page in id order; `limit` 0 = everything.
    pub async fn scroll(
        self: &Rc<Self>,
        name: &str,
        filter: Option<Arc<Predicate>>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<ScrollPage, OpError> {
        let _ = (name, filter, after, limit);
        todo!()
    }
    /// Stages points for a bulk build; the count staged by this call.
    pub async fn stage(self: &Rc<Self>, name: &str, batch: WriteBatch) -> Result<usize, OpError> {
        let _ = (name, batch);
        todo!()
    }
    /// Builds what is staged on `workers` cores (0 = all).
    pub async fn build(self: &Rc<Self>, name: &str, workers: usize) -> Result<(), OpError> {
        let _ = (name, workers);
        todo!()
    }
    /// All collections, by name.
    pub async fn metrics(self: &Rc<Self>) -> Vec<CollectionMetrics> {
        todo!()
    }
    /// Wall clock of this core, Unix ms.
    pub fn unix_ms(&self) -> u64 {
        todo!()
    }
    /// Runtime (reactor, spawn, timers) for front ends.
    pub fn runtime(&self) -> &crate::runtime::CoreRuntime {
        todo!()
    }
    #[doc(hidden)]
    pub fn _unused(_: &Node) {}
}
