//! Errors of requests, the same for all transports.

use nigh_engine::collection::WriteError;
use nigh_engine::payload::JsonError;
use nigh_engine::query::LaneError;
use nigh_shard::core::{OpError, Written};
use std::fmt;

/// The kind of an error, for which each transport has a status or a code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request is wrong.
    Invalid,
    /// The body is over its limit.
    TooLarge,
    /// The body has an encoding that the server does not support.
    Unsupported,
    /// The credentials are missing or wrong, or do not allow the request.
    Unauthorized,
    /// There is no such collection or point.
    NotFound,
    /// What is to be created exists already.
    Exists,
    /// The point has another version, or the collection is in a state that does not allow the request.
    Conflict,
    /// The node lacks what the request needs.
    Unmet,
    /// A quota or rate of the collection, or a limit of the API key.
    Exhausted,
    /// Disk or memory of the server is full.
    Storage,
    /// The request may succeed later.
    Unavailable,
    /// The collection or the keys are damaged on the disk.
    Damaged,
    /// The store of backups has failed, or an object there is damaged.
    Backup,
    /// The server has failed. The reason is in the log and not in the answer.
    Internal,
}

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// Its kind.
    pub kind: ErrorKind,
    /// The reason; that of [`ErrorKind::Internal`] is only for the log.
    pub message: String,
    /// Points of a batch that were processed before the failure.
    pub committed: Option<usize>,
    /// The outcomes of these points, in their order.
    pub written: Vec<Written>,
    /// After how many milliseconds the request may be sent again, if that is known.
    pub retry_after_ms: Option<u64>,
}

impl ApiError {
    /// An error of `kind`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        ApiError { kind, message, committed: None, written: Vec::new(), retry_after_ms: None }
    }

    /// A bad request.
    pub fn invalid(message: impl Into<String>) -> Self {
        ApiError::new(ErrorKind::Invalid, message)
    }

    /// The error of a part of a request, with the place of the part in front.
    pub fn at(self, place: &str) -> Self {
        ApiError { message: format!("{place}: {}", self.message), ..self }
    }

    /// The error of a write that found another version than its condition names.
    pub fn version_conflict(id: impl std::fmt::Display) -> Self {
        let text = format!("version conflict on id {id}: expected_version is not the stored one");
        ApiError::new(ErrorKind::Conflict, text)
    }

    /// The error about a body over its limit.
    pub fn too_large(limit_bytes: u64) -> Self {
        ApiError::too_many("bytes", limit_bytes)
    }

    /// The error about a body that contains more of something than is allowed.
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
            | OpError::UnknownSpace(_)
            | OpError::PointNotFound(_)
            | OpError::NoSnapshot { .. }
            | OpError::NoPartSnapshot { .. }
            | OpError::Lanes(LaneError::UnknownExample(_) | LaneError::ExampleLacksVector(_)) => {
                ErrorKind::NotFound
            }
            OpError::PayloadTooLarge
            | OpError::PayloadKeys(_)
            | OpError::PayloadJson(JsonError::TooManyPaths(_) | JsonError::TooLarge(_)) => {
                ErrorKind::TooLarge
            }
            OpError::CollectionExists(_)
            | OpError::SpaceExists(_)
            | OpError::Write(WriteError::DuplicateId(_)) => ErrorKind::Exists,
            OpError::Conflict(_) => ErrorKind::Conflict,
            OpError::Config(_)
            | OpError::Search(_)
            | OpError::Lanes(_)
            | OpError::BadRequest(_)
            | OpError::PayloadJson(JsonError::Json { .. })
            | OpError::Operate(_) => ErrorKind::Invalid,
            OpError::Write(error) => match error {
                WriteError::VersionConflict { .. } | WriteError::ReadOnly => ErrorKind::Conflict,
                WriteError::Full | WriteError::RateLimited => ErrorKind::Exhausted,
                _ => ErrorKind::Invalid,
            },
            OpError::NoSpace(_) | OpError::NoMemory(_) | OpError::StoreFull => ErrorKind::Storage,
            OpError::Busy(_) | OpError::Opening(_) => ErrorKind::Unavailable,
            OpError::Damaged(_) => ErrorKind::Damaged,
            OpError::NotConfigured(_) => ErrorKind::Unmet,
            OpError::Backup(_) => ErrorKind::Backup,
            _ => ErrorKind::Internal,
        };
        ApiError::new(kind, error.to_string())
    }
}
