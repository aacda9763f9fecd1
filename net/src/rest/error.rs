//! Errors as HTTP answers.

use crate::http::{Reply, ReplyBody, json_reply};
use crate::op::{ApiError, ErrorKind};
use crate::wire::value::write_string;
use http::StatusCode;
use http::header::{ALLOW, HeaderValue, RETRY_AFTER};
use std::io::Write;

/// The status of a failure.
pub fn status(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::Unsupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ErrorKind::Unauthorized => StatusCode::UNAUTHORIZED,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Exists | ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::Unmet => StatusCode::PRECONDITION_FAILED,
        ErrorKind::Exhausted => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Storage => StatusCode::INSUFFICIENT_STORAGE,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Damaged | ErrorKind::Backup | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Appends `{"error":…` of a failure.
fn write_reason(out: &mut Vec<u8>, error: &ApiError) {
    out.extend_from_slice(b"{\"error\":");
    // The reason of an internal error is for the log, not for strangers.
    write_string(out, if error.kind == ErrorKind::Internal { "internal error" } else { &error.message });
}

/// Appends the answer to a part of a request that has failed, with the status that it would have as a request of its own.
pub fn write_failure(out: &mut Vec<u8>, error: &ApiError) {
    write_reason(out, error);
    // Writing to memory does not fail.
    let _ = write!(out, ",\"status\":{}}}", status(error.kind).as_u16());
}

/// The answer to a failed request.
pub fn error_reply(error: &ApiError) -> Reply {
    let mut body = Vec::with_capacity(64 + error.message.len());
    write_reason(&mut body, error);
    if let Some(committed) = error.committed {
        // Writing to memory does not fail.
        let _ = write!(body, ",\"committed\":{committed}");
    }
    body.extend_from_slice(b"}\n");
    let mut reply = json_reply(status(error.kind), ReplyBody::whole(body));
    let seconds = match (error.retry_after_ms, error.kind) {
        (Some(ms), _) => Some(ms.div_ceil(1000).max(1)),
        (None, ErrorKind::Unavailable) => Some(1),
        (None, _) => None,
    };
    if let Some(seconds) = seconds {
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    reply
}

/// The node should get no requests.
pub fn not_ready(detail: &str) -> Reply {
    let mut body = b"{\"status\":\"not ready\",\"detail\":".to_vec();
    write_string(&mut body, detail);
    body.extend_from_slice(b"}\n");
    json_reply(StatusCode::SERVICE_UNAVAILABLE, ReplyBody::whole(body))
}

/// No such path.
pub fn not_found() -> Reply {
    json_reply(StatusCode::NOT_FOUND, ReplyBody::whole(&b"{\"error\":\"not found\"}\n"[..]))
}

/// A known path under another method.
pub fn wrong_method(allow: &str) -> Reply {
    let mut reply = json_reply(
        StatusCode::METHOD_NOT_ALLOWED,
        ReplyBody::whole(&b"{\"error\":\"method not allowed\"}\n"[..]),
    );
    reply
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_str(allow).expect("methods and commas make a header"));
    reply
}
