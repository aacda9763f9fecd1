//! Lines of the access log for the requests of a round.

use crate::access_log::{AccessEntry, RequestIds};
use crate::auth::Credentials;
use crate::tcp::frame::{self, Decoded};
use crate::tcp::requests::Request;
use std::time::Instant;

/// Writes a line for each of `requests`, which were made from `unread` and have been answered by `responses`.
///
/// `certificate` is the common name in the certificate of the client.
pub fn log(
    ids: &RequestIds,
    certificate: Option<&str>,
    unread: &[u8],
    requests: &[Request],
    mut responses: &[u8],
    started: Instant,
) {
    for request in requests {
        let frame = unread.get(request.at..).unwrap_or_default();
        log_one(ids, certificate, frame, frame::take_response(&mut responses), started);
    }
}

/// Writes a line for a frame that has been answered by `response`. Perhaps only the beginning of the frame is there.
///
/// `certificate` is the common name in the certificate of the client.
pub fn log_one(ids: &RequestIds, certificate: Option<&str>, frame: &[u8], response: &[u8], started: Instant) {
    let (op, token) = match frame::decode(frame) {
        Decoded::Request { frame, .. } => (frame.operation, frame.token),
        // The frame was refused because of its beginning.
        Decoded::Incomplete { .. } => match frame::beginning(frame) {
            Ok(frame) => (frame.operation, frame.token),
            Err(_) => (&b""[..], None),
        },
        _ => (&b""[..], None),
    };
    let status = match response.get(4) {
        Some(0) => "ok",
        Some(1) => "not_found",
        Some(2) => "not_leader",
        Some(4) => "unauthorized",
        _ => "error",
    };
    // The line is written when this is dropped.
    let _line = AccessEntry {
        request_id: ids.choose(None),
        transport: "tcp",
        op: String::from_utf8_lossy(op).into_owned(),
        status: status.to_owned(),
        principal: Credentials { certificate, ..Credentials::token(token) }.name(),
        bytes: response.len() as u64,
        started,
        trace: None,
    };
}
