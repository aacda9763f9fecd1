//! How a call ends: codes of gRPC, and the headers that carry them.

use crate::op::{ApiError, ErrorKind};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// A status code of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of gRPC")]
#[repr(u8)]
pub enum Code {
    Ok,
    Cancelled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
}

use Code::*;

impl Code {
    /// Every code, in the order of their numbers.
    pub const ALL: [Code; 17] = [
        Ok,
        Cancelled,
        Unknown,
        InvalidArgument,
        DeadlineExceeded,
        NotFound,
        AlreadyExists,
        PermissionDenied,
        ResourceExhausted,
        FailedPrecondition,
        Aborted,
        OutOfRange,
        Unimplemented,
        Internal,
        Unavailable,
        DataLoss,
        Unauthenticated,
    ];

    /// The name, as gRPC spells it.
    pub fn name(self) -> &'static str {
        match self {
            Ok => "OK",
            Cancelled => "CANCELLED",
            Unknown => "UNKNOWN",
            InvalidArgument => "INVALID_ARGUMENT",
            DeadlineExceeded => "DEADLINE_EXCEEDED",
            NotFound => "NOT_FOUND",
            AlreadyExists => "ALREADY_EXISTS",
            PermissionDenied => "PERMISSION_DENIED",
            ResourceExhausted => "RESOURCE_EXHAUSTED",
            FailedPrecondition => "FAILED_PRECONDITION",
            Aborted => "ABORTED",
            OutOfRange => "OUT_OF_RANGE",
            Unimplemented => "UNIMPLEMENTED",
            Internal => "INTERNAL",
            Unavailable => "UNAVAILABLE",
            DataLoss => "DATA_LOSS",
            Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

/// The code of a failure.
pub fn code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::Invalid => InvalidArgument,
        ErrorKind::TooLarge | ErrorKind::Exhausted | ErrorKind::Storage => ResourceExhausted,
        ErrorKind::Unsupported => Unimplemented,
        ErrorKind::Unauthorized => Unauthenticated,
        ErrorKind::NotFound => NotFound,
        ErrorKind::Exists => AlreadyExists,
        ErrorKind::Conflict | ErrorKind::Unmet => FailedPrecondition,
        ErrorKind::Unavailable => Unavailable,
        ErrorKind::Damaged | ErrorKind::Backup | ErrorKind::Internal => Internal,
    }
}

/// Bytes of a message that a status carries: headers have a bound in most clients, and a text may quote what it refuses.
const MESSAGE_MAX_BYTES: usize = 2048;

/// What `grpc-message` carries as it is: printable ASCII but the percent sign.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// Metadata by which a server says when to repeat a call (gRFC A6, "Pushback"); clients that have a retry policy keep to it.
const GRPC_RETRY_PUSHBACK_MS: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// How a call ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The code.
    pub code: Code,
    /// What is wrong; empty where nothing is.
    pub message: String,
    /// After how many milliseconds the call may be repeated, where that is known.
    pub retry_after_ms: Option<u64>,
}

impl Status {
    /// A status with a sentence.
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        Status { code, message: message.into(), retry_after_ms: None }
    }

    /// A call that ends well.
    pub fn ok() -> Status {
        Status::new(Ok, "")
    }

    /// Adds it to the headers, or trailers, of an answer.
    pub fn put(&self, headers: &mut HeaderMap) {
        headers.insert(GRPC_STATUS, HeaderValue::from(self.code as u16));
        if let Some(ms) = self.retry_after_ms {
            // Clients read it as a signed number of 32 bits.
            headers.insert(GRPC_RETRY_PUSHBACK_MS, HeaderValue::from(ms.min(i32::MAX as u64)));
        }
        if !self.message.is_empty() {
            let shown = &self.message[..self.message.floor_char_boundary(MESSAGE_MAX_BYTES)];
            let escaped = utf8_percent_encode(shown, ESCAPED).to_string();
            if let Result::Ok(value) = HeaderValue::from_str(&escaped) {
                headers.insert(GRPC_MESSAGE, value);
            }
        }
    }
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Status {
        match error.kind {
            // The reason is for the log, not for strangers.
            ErrorKind::Internal => Status::new(Internal, "internal error"),
            kind => Status { retry_after_ms: error.retry_after_ms, ..Status::new(code(kind), error.message) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_numbers() {
        for (number, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, number, "{}", code.name());
        }
    }

    #[test]
    fn messages_travel_in_headers() {
        let sent = |message: &str| {
            let mut headers = HeaderMap::new();
            Status::new(NotFound, message).put(&mut headers);
            assert_eq!(headers["grpc-status"], "5");
            headers.get("grpc-message").map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(sent(""), None);
        assert_eq!(sent("unknown collection \"a b\"").unwrap(), "unknown collection \"a b\"");
        assert_eq!(sent("100 % ä\n\u{7f}").unwrap(), "100 %25 %C3%A4%0A%7F");
        assert_eq!(sent(&"ä".repeat(5000)).unwrap().len(), 1024 * 6);
        assert_eq!(sent(&format!("x{}", "ä".repeat(5000))).unwrap().len(), 1 + 1023 * 6);
    }

    #[test]
    fn a_wait_that_is_known_is_told() {
        let sent = |retry_after_ms| {
            let mut headers = HeaderMap::new();
            let error = ApiError { retry_after_ms, ..ApiError::new(ErrorKind::Exhausted, "too many") };
            Status::from(error).put(&mut headers);
            assert_eq!(headers["grpc-status"], "8");
            headers.get("grpc-retry-pushback-ms").map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!((sent(None), sent(Some(13))), (None, Some("13".to_owned())));
        assert_eq!(sent(Some(u64::MAX)).unwrap(), "2147483647");
    }

    #[test]
    fn reasons_of_internal_errors_stay_here() {
        let status = Status::from(ApiError::new(ErrorKind::Internal, "/srv/data: no space"));
        assert_eq!(status, Status::new(Internal, "internal error"));
        let status = Status::from(ApiError::new(ErrorKind::Damaged, "collection \"a\" is damaged"));
        assert_eq!(status, Status::new(Internal, "collection \"a\" is damaged"));
    }
}
