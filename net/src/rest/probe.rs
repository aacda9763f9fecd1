//! The codec without connections, for fuzz targets and tests outside this crate: each function takes bytes as a client
//! would send them, as far as they can be judged without data.

use super::binary::{IngestDecoder, IngestRoute};
use super::collections::CreateBody;
use super::envelope::{Envelope, EnvelopeReader};
use super::parameters::{Query, ReadParameters, WriteParameters};
use super::payload::decode_change;
use super::read::BatchGetBody;
use super::routes::{Resolved, parse_id, resolve};
use super::scroll::decode_scroll;
use super::{lane_bodies, multi_vector_bodies, named_bodies, points, search};
use crate::op::{Action, ApiError, SearchPoints, VectorOp, check_name};
use crate::wire::json::{decode, invalid_json};
use crate::wire::payloads::{Payloads, WithId, write_document, write_payload};
use http::Method;
use nigh_engine::collection::DenseConfig;
use nigh_engine::payload::PayloadFormat;
use nigh_shard::core::WriteBatch;

/// Body of `POST …/points`.
///
/// # Errors
/// 400.
pub fn write(body: &[u8], now_ms: u64) -> Result<WriteBatch, ApiError> {
    points::decode_write(body, WriteParameters::default(), Payloads::tagged(now_ms)).map(|(_, batch)| batch)
}

/// Body of `POST …/points/batch` that arrives in pieces of `piece_bytes`: its points, and whether it asks to upsert.
///
/// # Errors
/// 400.
pub fn write_many(body: &[u8], piece_bytes: usize, now_ms: u64) -> Result<(Vec<WriteBatch>, bool), ApiError> {
    struct Points {
        now_ms: u64,
        batches: Vec<WriteBatch>,
        upsert: bool,
    }
    impl Envelope for Points {
        const ARRAY: &'static str = "points";
        fn restart(&mut self) {
            self.batches.clear();
        }
        fn element(&mut self, json: &[u8]) -> Result<(), ApiError> {
            self.batches.push(write(json, self.now_ms)?);
            Ok(())
        }
        fn field(&mut self, key: &str, json: &[u8]) -> Result<bool, ApiError> {
            if key == "upsert" {
                self.upsert = serde_json::from_slice(json).map_err(invalid_json)?;
            }
            Ok(key == "upsert")
        }
    }
    let mut reader = EnvelopeReader::new(Points { now_ms, batches: Vec::new(), upsert: false });
    for piece in body.chunks(piece_bytes) {
        reader.feed(piece)?;
    }
    reader.finish().map(|points| (points.batches, points.upsert))
}

/// Binary body of `POST …/points/batch` or `…/bulk` that arrives in pieces of `piece_bytes`.
///
/// # Errors
/// 400, 413.
pub fn ingest(
    body: &[u8],
    route: IngestRoute,
    piece_bytes: usize,
    now_ms: u64,
) -> Result<WriteBatch, ApiError> {
    let mut decoder = IngestDecoder::new(route, Payloads::tagged(now_ms));
    for piece in body.chunks(piece_bytes) {
        decoder.feed(piece)?;
    }
    decoder.finish()
}

/// Ids of a `POST …/points/batch-get` body that arrives in pieces of `piece_bytes`.
///
/// # Errors
/// 400.
pub fn batch_get(body: &[u8], piece_bytes: usize) -> Result<(), ApiError> {
    let mut reader = EnvelopeReader::new(BatchGetBody::default());
    for piece in body.chunks(piece_bytes) {
        reader.feed(piece)?;
    }
    reader.finish().map(drop)
}

/// Body of `POST …/points/search`, JSON or binary, with its filter compiled.
///
/// # Errors
/// 400.
pub fn search(body: &[u8], binary: bool) -> Result<SearchPoints, ApiError> {
    let read = ReadParameters::default();
    match binary {
        true => search::decode_binary(String::new(), body, read, true),
        false => search::decode_json(String::new(), body, read, true),
    }
}

/// Body of `POST …/points/scroll`, with its filter compiled.
///
/// # Errors
/// 400.
pub fn scroll(body: &[u8]) -> Result<(), ApiError> {
    decode_scroll(String::new(), body, ReadParameters::default()).map(drop)
}

/// Body of each route under `…/points/{id}/payload`.
///
/// # Errors
/// 400.
pub fn payload_changes(body: &[u8]) -> Result<(), ApiError> {
    [VectorOp::SetPayload, VectorOp::OverwritePayload, VectorOp::DeletePayloadKeys].into_iter().try_for_each(
        |op| {
            let format = PayloadFormat::Tagged;
            decode_change(op, body, WriteParameters::default(), format).map(drop)
        },
    )
}

/// Body of a search by lanes, read as each of them; whether any is right.
pub fn lanes(body: &[u8]) -> bool {
    let reads = lane_bodies::reads(body).into_iter().chain(named_bodies::reads(body));
    reads.chain(multi_vector_bodies::reads(body)).any(|reads| reads)
}

/// Body of `POST /v1/collections`.
///
/// # Errors
/// 400.
pub fn create(body: &[u8]) -> Result<DenseConfig, ApiError> {
    let body: CreateBody = decode(body)?;
    check_name(&body.name.unwrap_or_default())?;
    let config = body.config.ok_or_else(super::collections::no_config)?.into_config()?;
    config.validate().map_err(|error| ApiError::invalid(error.to_string()))?;
    Ok(config)
}

/// A request target: the right it needs and the collection it names; `None` when it leads nowhere or needs no right.
///
/// # Errors
/// 400.
pub fn target(method: &Method, path: &str, query: &str) -> Result<Option<(Action, String)>, ApiError> {
    let query = Query::new(Some(query));
    ReadParameters::of(query)?;
    WriteParameters::of(query)?;
    let _ = (query.boolean("with_vector")?, parse_id(path));
    Ok(match resolve(method, path)? {
        Resolved::Route(reached) => reached.right().map(|right| (right, reached.collection.into_owned())),
        Resolved::WrongMethod(_) | Resolved::NotFound => None,
    })
}

/// A stored row as answers show it: as the payload of a point, and as content and metadata of a document.
pub fn answers(row: &[u8], now_ms: u64) -> (Vec<u8>, Vec<u8>) {
    let (mut payload, mut document) = (Vec::new(), vec![b'{']);
    write_payload(&mut payload, row, WithId::No, now_ms);
    write_document(&mut document, row, now_ms);
    document.push(b'}');
    (payload, document)
}
