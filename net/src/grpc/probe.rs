//! The codec without connections, for fuzz targets and tests outside this crate.

use super::decode;
use super::frames::Frames;
use crate::op::ApiError;
use crate::op::table::{GRPC_METHODS, grpc_methods};
use crate::wire::payloads::Decoding;

/// Names of the methods, in the order of their numbers.
pub fn methods() -> impl Iterator<Item = &'static str> {
    grpc_methods().map(|(_, method)| method.name)
}

/// Decodes the message of the method with this number, or one with so many fewer as there are: the collection that it names.
///
/// # Errors
/// What a client would be told.
pub fn message(method: usize, bytes: &[u8], now_ms: u64) -> Result<Option<String>, ApiError> {
    let Some((row, _)) = grpc_methods().nth(method % GRPC_METHODS) else { return Ok(None) };
    let decoded = decode::decode(row, bytes, &Decoding::tagged(now_ms));
    decoded.request.map(|_| decoded.collection)
}

/// Whether a connection that has sent `bytes` in pieces of `piece_bytes` is to go on soon, and whether it floods.
pub fn frames(bytes: &[u8], piece_bytes: usize) -> (bool, bool) {
    let mut frames = Frames::new();
    bytes.chunks(piece_bytes).for_each(|piece| frames.received(piece));
    (frames.is_unfinished(), frames.is_flood())
}
