//! What travels between front ends and [`super::Core`]: requests, answers, errors. All of it is `Send`.
use super::read::PAGE_BYTES;
use bytes::Bytes;
use nigh_engine::collection::{ConfigError, SearchError, Stats, WriteError, WriteMode};
use nigh_engine::filter::Predicate;
use nigh_engine::kv::operate::OperateError;
use nigh_engine::query::LaneError;
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
    /// The point that failed, where it was one.
    pub point: Option<u64>,
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
    /// 404.
    #[error("unknown index {0:?}")]
    UnknownKeyIndex(String),
    /// 404.
    #[error("point not found: id {0}")]
    PointNotFound(u64),
    /// 413.
    #[error("payload too large: at most {} bytes per point", super::PAYLOAD_ROW_MAX_BYTES)]
    PayloadTooLarge,
    /// 409.
    #[error("collection {0:?} already exists")]
    CollectionExists(String),
    /// 400.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// 400/409/429 by kind.
    #[error(transparent)]
    Write(WriteError),
    /// 400.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// 404 for an example that is not there, else 400.
    #[error(transparent)]
    Lanes(LaneError),
    /// 400; text names what is wrong.
    #[error("{0}")]
    BadRequest(String),
    /// 400: a call of `operate` on a record in a payload.
    #[error(transparent)]
    Operate(#[from] OperateError),
    /// 409.
    #[error("{0}")]
    Conflict(String),
    /// 507: disk full; retry when space returns.
    #[error("insufficient storage: {0}")]
    NoSpace(String),
    /// 429/507: the memory limit is reached.
    #[error("memory limit reached: {0}")]
    NoMemory(String),
    /// 507: a value that the keys' budget does not hold, or the moment is bad.
    #[error("store full")]
    StoreFull,
    /// 503.
    #[error("busy: {0}")]
    Busy(String),
    /// 500: the collection or the keys named are damaged and serve nothing.
    #[error("{0} damaged and cannot be read or written; the server's log says why")]
    Damaged(String),
    /// 500 with the reason logged: failed log.
    #[error("{0}")]
    Unavailable(String),
}

impl From<WriteError> for OpError {
    fn from(error: WriteError) -> OpError {
        match error {
            WriteError::NoSpace(why) => OpError::NoSpace(why),
            other => OpError::Write(other),
        }
    }
}

impl From<LaneError> for OpError {
    fn from(error: LaneError) -> Self {
        match error {
            LaneError::Search(error) => OpError::Search(error),
            LaneError::TooLong(error) => OpError::Search(error.into()),
            error => OpError::Lanes(error),
        }
    }
}

/// What a call of `operate` on a record in a payload has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PointOperated {
    /// There is no such point.
    NoPoint,
    /// The point has no record under the key, and the call makes none.
    NoRecord,
    /// All operations are through, or a CHECK has failed.
    Done {
        /// What the caller is told.
        result: Vec<u8>,
        /// Version of the point afterwards; as before when a CHECK has failed.
        version: u64,
    },
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
    /// Distance; 0 in lanes that rank by score.
    pub distance: f32,
    /// Score of a query of lanes; 0 where only distances rank.
    pub score: f32,
    /// Encoded row when asked for and present, else empty. Those of one answer share their memory.
    pub row: Bytes,
}
/// A point read by id.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredPoint {
    /// Id.
    pub id: u64,
    /// Vector when asked for.
    pub vector: Option<Vec<f32>>,
    /// Row when asked for and present; with a vector but no payload asked for, a row with the sparse vector alone.
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
    /// Bytes of the points.
    bytes: usize,
}

impl StoredPoint {
    /// Bytes of row and vector.
    pub(super) fn bytes(&self) -> usize {
        self.row.len() + self.vector.as_ref().map_or(0, |vector| size_of_val(&vector[..]))
    }
}

impl ScrollPage {
    pub(super) fn push(&mut self, point: StoredPoint) {
        self.bytes += point.bytes();
        self.points.push(point);
    }

    /// Asked when one more match has been found: whether the page has its `limit` (0 = none) or all the bytes it may, and so a successor.
    pub(super) fn is_full(&mut self, limit: usize) -> bool {
        let full = (limit > 0 && self.points.len() == limit) || self.bytes >= PAGE_BYTES;
        if full {
            self.next_after = self.points.last().map(|point| point.id);
        }
        full
    }
}

/// How many collections serve nothing, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unserved {
    /// Their files are damaged, or their writes were refused by a log that failed.
    pub damaged: usize,
    /// They did not fit into memory at the start.
    pub closed: usize,
}

/// Counters of one collection for the metrics page.
#[derive(Clone, Debug, Default)]
pub struct CollectionMetrics {
    /// `<tenant>/<name>`.
    pub name: String,
    /// It serves nothing, as something of it is damaged.
    pub is_damaged: bool,
    /// It serves nothing, as it does not fit into memory.
    pub is_closed: bool,
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
    /// Distances that searches computed.
    pub distances: u64,
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
