//! Why an operation on collections or keys failed, in the caller's terms.

use crate::account::Refusal;
use crate::checkpoint::CheckpointError;
use crate::disk::is_full;
use crate::points::Written;
use nigh_engine::collection::{ConfigError, SearchError, WriteError};
use nigh_engine::kv::operate::OperateError;
use nigh_engine::payload::JsonError;
use nigh_engine::point_id::SentId;
use nigh_engine::query::LaneError;
use nigh_engine::quoted::quoted;

/// Most bytes of one encoded payload row. A single-point body may hold 32 MiB of text; a row has to fit one log record with room
/// to spare.
pub const PAYLOAD_ROW_MAX_BYTES: usize = 33 << 20;
/// Bytes of the objects and arrays of several kinds in one payload, and of what is found in them: they are read again, some 10 ns per byte in
/// one piece, whenever the payload changes.
pub const PAYLOAD_JSON_MAX_BYTES: usize = 1 << 20;
/// Keys of one payload: each is filed under its name, some 1.5 us each in one piece.
pub const PAYLOAD_KEYS_MAX: usize = 16 << 10;

/// A batch that stopped: the points before the one that failed are stored and durable.
#[derive(Debug, Clone)]
pub struct BatchError {
    /// What became of those points, conflicts included, in their order.
    pub written: Vec<Written>,
    /// The point that failed, where it was one.
    pub point: Option<SentId>,
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
    #[error("unknown index {}", quoted(.0))]
    UnknownKeyIndex(String),
    /// 404.
    #[error("the vector space {} does not exist", quoted(.0))]
    UnknownSpace(String),
    /// 404.
    #[error("point not found: id {0}")]
    PointNotFound(u64),
    /// 413.
    #[error("payload too large: at most {} bytes per point", PAYLOAD_ROW_MAX_BYTES)]
    PayloadTooLarge,
    /// 413.
    #[error("payload too large: at most {most} keys per point, found {0}", most = PAYLOAD_KEYS_MAX)]
    PayloadKeys(usize),
    /// 400 or 413: a JSON value that cannot be stored.
    #[error(transparent)]
    PayloadJson(#[from] JsonError),
    /// 409.
    #[error("collection {0:?} already exists")]
    CollectionExists(String),
    /// 409.
    #[error("the vector space {} already exists", quoted(.0))]
    SpaceExists(String),
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
    /// 503: the server has been started a moment ago, and what is named is not open yet. Nothing has been done.
    #[error("{0} still being opened; try again soon")]
    Opening(String),
    /// 500: the collection or the keys named are damaged and serve nothing.
    #[error("{0} damaged and cannot be read or written; the server's log says why")]
    Damaged(String),
    /// 404: the store of backups has no such snapshot.
    #[error("there is no snapshot of the collection {collection:?}{}", time.as_ref().map_or(String::new(), |time| format!(" of {time}")))]
    NoSnapshot {
        /// The full name of the collection.
        collection: String,
        /// The time that was asked for.
        time: Option<String>,
    },
    /// 404: the store of backups has no such snapshot of a part of the node.
    #[error("there is no snapshot of {part}{}", time.as_ref().map_or(String::new(), |time| format!(" of {time}")))]
    NoPartSnapshot {
        /// The name of the part.
        part: &'static str,
        /// The time that was asked for.
        time: Option<String>,
    },
    /// 412: the node lacks what the operation needs; text names the flag.
    #[error("{0}")]
    NotConfigured(String),
    /// 500, with the text: a store of backups failed, or what it has is damaged.
    #[error("{0}")]
    Backup(String),
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

/// Maps a file error of an administrative change.
pub(crate) fn io_error(error: &std::io::Error) -> OpError {
    if is_full(error) {
        OpError::NoSpace(error.to_string())
    } else {
        OpError::Unavailable(format!("file error: {error}"))
    }
}

/// As [`io_error`], of a checkpoint's file.
pub(crate) fn file_error(error: CheckpointError) -> OpError {
    match error {
        CheckpointError::Io { source, .. } => io_error(&source),
        other => OpError::Unavailable(other.to_string()),
    }
}

/// As a client is told.
pub(crate) fn refused_memory(refusal: Refusal) -> OpError {
    match refusal {
        Refusal::Full { used_bytes, limit_bytes } => OpError::NoMemory(format!(
            "{used_bytes} of {limit_bytes} bytes for points and keys would be in use"
        )),
        Refusal::Promised { used_bytes, limit_bytes } => OpError::Busy(format!(
            "collections that are still being opened need the memory: {used_bytes} of {limit_bytes} bytes would be in use with them; try again"
        )),
        Refusal::Crowded { used_bytes, limit_bytes } => OpError::Busy(format!(
            "requests in flight leave no memory: {used_bytes} of {limit_bytes} bytes would be in use; try again"
        )),
    }
}
