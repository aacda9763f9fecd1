//! The binary bodies: `RVB1` ingest, decoded as it arrives, and `RVQ1` query. All integers and floats are big-endian.
//!
//! Rows stay in their wire form (`Vectors::BigEndianRows`): the owner turns them into floats when it stores them, so a
//! vector is copied once from the receive buffer to the batch and once to the arena.

use crate::limits;
use crate::op::{ApiError, ErrorKind, ReadOptions};
use crate::wire::filter::WireFilter;
use crate::wire::json::in_words;
use crate::wire::payloads::{Payloads, encode_row};
use crate::wire::value::UnknownKeys;
use bytes::Bytes;
use nigh_engine::collection::WriteMode;
use nigh_engine::filter::Node;
use nigh_shard::core::{PointFields, Vectors, WriteBatch};
use std::fmt;

const INGEST_MAGIC: &[u8; 4] = b"RVB1";
const QUERY_MAGIC: &[u8; 4] = b"RVQ1";
const INGEST_HEADER_BYTES: usize = 16;
const QUERY_HEADER_BYTES: usize = 28;
const FLAG_PAYLOADS: u32 = 1;
const FLAG_UPSERT: u32 = 2;
const FLAG_FILTER: u32 = 1;
const K_WIRE_MAX: u32 = (1 << 31) - 1;

fn invalid_ingest(reason: impl fmt::Display) -> ApiError {
    ApiError::invalid(format!("invalid binary bulk body: {reason}"))
}

fn invalid_query(reason: impl fmt::Display) -> ApiError {
    ApiError::invalid(format!("invalid binary query body: {reason}"))
}

/// Whether flags, a count and a dimension were written by a machine that puts the low byte first: they are possible that way
/// round, and the dimension is not as it stands.
pub(super) fn is_swapped([flags, count, dim]: [u32; 3], known_flags: u32, count_max: u32) -> bool {
    let (flags, count, dim_swapped) = (flags.swap_bytes(), count.swap_bytes(), dim.swap_bytes());
    dim >= limits::DIM_MAX
        && flags & !known_flags == 0
        && (1..=count_max).contains(&count)
        && (1..limits::DIM_MAX).contains(&dim_swapped)
}

pub(super) fn swapped(name: &str, count: u32, dim: u32) -> String {
    format!(
        "its integers seem to be little-endian ({name} {count} would be {}, dimension {dim} would be {}); all integers and floats \
         are big-endian",
        count.swap_bytes(),
        dim.swap_bytes()
    )
}

/// What a JSON route says of a body that is not JSON.
const FALLBACK_WORDS: &str = "invalid JSON body";

/// The answer to a binary query that failed: clients that read the fallback words in it stop sending binary queries for
/// good. We never use them, but errors quote what they refuse, and a filter may say anything.
pub(super) fn without_fallback_words(mut error: ApiError) -> ApiError {
    if error.message.contains(FALLBACK_WORDS) {
        error.message = error.message.replace(FALLBACK_WORDS, "invalid JSON-body");
    }
    error
}

/// Which route an ingest body came over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IngestRoute {
    /// `points/batch`.
    Batch,
    /// `points/bulk`.
    Staging,
}

#[derive(Clone, Copy, Debug)]
struct IngestHeader {
    payloads: bool,
    upsert: bool,
    count: u32,
    dim: u32,
}

impl IngestHeader {
    /// Checks in the interface's order: magic, flags, staging with upsert, sizes, dimension.
    fn parse(bytes: &[u8; INGEST_HEADER_BYTES], route: IngestRoute) -> Result<Self, ApiError> {
        if &bytes[..4] != INGEST_MAGIC {
            return Err(invalid_ingest("bad magic, expected RVB1"));
        }
        let (flags, count, dim) = (be_u32(&bytes[4..]), be_u32(&bytes[8..]), be_u32(&bytes[12..]));
        if is_swapped([flags, count, dim], FLAG_PAYLOADS | FLAG_UPSERT, limits::BINARY_INGEST_MAX_POINTS) {
            return Err(invalid_ingest(swapped("count", count, dim)));
        }
        if flags & !(FLAG_PAYLOADS | FLAG_UPSERT) != 0 {
            return Err(invalid_ingest(format_args!("unknown flags {flags:#x}")));
        }
        let header = IngestHeader {
            payloads: flags & FLAG_PAYLOADS != 0,
            upsert: flags & FLAG_UPSERT != 0,
            count,
            dim,
        };
        if route == IngestRoute::Staging && header.upsert {
            return Err(invalid_ingest("upsert is not possible when staging; use points/batch"));
        }
        if count > limits::BINARY_INGEST_MAX_POINTS {
            return Err(ApiError::new(
                ErrorKind::TooLarge,
                format!(
                    "request body too large: {count} points in a binary bulk body, at most {}",
                    limits::BINARY_INGEST_MAX_POINTS
                ),
            ));
        }
        if header.rows_bytes() > limits::BINARY_INGEST_MAX_BYTES - INGEST_HEADER_BYTES as u64 {
            return Err(ApiError::new(
                ErrorKind::TooLarge,
                format!(
                    "request body too large: {} bytes of rows in a binary bulk body, at most {}",
                    header.rows_bytes(),
                    limits::BINARY_INGEST_MAX_BYTES - INGEST_HEADER_BYTES as u64
                ),
            ));
        }
        if count > 0 && dim == 0 {
            return Err(invalid_ingest("dimension 0 with a count above 0"));
        }
        Ok(header)
    }

    fn row_bytes(&self) -> usize {
        8 + 4 * self.dim as usize
    }

    fn rows_bytes(&self) -> u64 {
        u64::from(self.count) * (8 + 4 * u64::from(self.dim))
    }
}

/// Decodes an ingest body piece by piece; memory grows with what arrived, not with what was declared.
pub struct IngestDecoder {
    route: IngestRoute,
    payloads: Payloads,
    header: Option<IngestHeader>,
    /// The header while it is incomplete, later payload bytes not yet decoded.
    pending: Vec<u8>,
    rows: Vec<u8>,
    points: Vec<PointFields>,
    payloads_done: usize,
    payload_bytes: u64,
}

impl IngestDecoder {
    /// For a body of `route` whose payloads are decoded so.
    pub fn new(route: IngestRoute, payloads: Payloads) -> Self {
        IngestDecoder {
            route,
            payloads,
            header: None,
            pending: Vec::new(),
            rows: Vec::new(),
            points: Vec::new(),
            payloads_done: 0,
            payload_bytes: 0,
        }
    }

    /// Whether bytes to come are payload JSON, which costs several times more to decode than rows.
    pub fn is_in_payloads(&self) -> bool {
        self.header.is_some_and(|header| self.rows.len() as u64 == header.rows_bytes())
    }

    /// Takes the next bytes of the body.
    ///
    /// # Errors
    /// 400 or 413 as soon as the bytes so far cannot become a valid body.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), ApiError> {
        if self.header.is_none() {
            let wanted = INGEST_HEADER_BYTES - self.pending.len();
            let (head, rest) = bytes.split_at(wanted.min(bytes.len()));
            self.pending.extend_from_slice(head);
            bytes = rest;
            let Ok(head) = <&[u8; INGEST_HEADER_BYTES]>::try_from(self.pending.as_slice()) else {
                return Ok(());
            };
            self.header = Some(IngestHeader::parse(head, self.route)?);
            self.pending.clear();
        }
        let Some(header) = self.header else { return Ok(()) };
        let missing = (header.rows_bytes() - self.rows.len() as u64) as usize;
        let (rows, rest) = bytes.split_at(missing.min(bytes.len()));
        self.take_rows(&header, rows)?;
        if rest.is_empty() {
            return Ok(());
        }
        if !header.payloads || self.payloads_done == header.count as usize {
            return Err(invalid_ingest("trailing bytes after the frame"));
        }
        self.payload_bytes += rest.len() as u64;
        if self.payload_bytes > limits::BINARY_PAYLOADS_MAX_BYTES {
            return Err(ApiError::too_large(limits::BINARY_PAYLOADS_MAX_BYTES));
        }
        self.pending.extend_from_slice(rest);
        self.take_payloads(&header)
    }

    fn take_rows(&mut self, header: &IngestHeader, bytes: &[u8]) -> Result<(), ApiError> {
        self.rows.extend_from_slice(bytes);
        let row_bytes = header.row_bytes();
        for row in self.rows[self.points.len() * row_bytes..].chunks_exact(row_bytes) {
            let (id, vector) = row.split_at(8);
            let id = be_u64(id);
            if let Some(index) = first_not_finite(vector) {
                return Err(invalid_ingest(format_args!(
                    "component {index} of point {id} (row {}) is not a finite number",
                    self.points.len()
                )));
            }
            self.points.push(PointFields { id, ..PointFields::default() });
        }
        Ok(())
    }

    fn take_payloads(&mut self, header: &IngestHeader) -> Result<(), ApiError> {
        let mut at = 0;
        while self.payloads_done < header.count as usize {
            let Some(length) = self.pending[at..].first_chunk::<4>() else { break };
            let length = u32::from_be_bytes(*length);
            if length > limits::BINARY_PAYLOAD_MAX_BYTES {
                return Err(ApiError::new(
                    ErrorKind::TooLarge,
                    format!(
                        "request body too large: payload {} has {length} bytes, at most {}",
                        self.payloads_done,
                        limits::BINARY_PAYLOAD_MAX_BYTES
                    ),
                ));
            }
            let Some(json) = self.pending.get(at + 4..at + 4 + length as usize) else { break };
            let (index, id) = (self.payloads_done, self.points[self.payloads_done].id);
            let (id, row) = decode_payload(json, id, self.route, self.payloads).map_err(|reason| {
                invalid_ingest(format_args!("payload {index} (of point {id}): {reason}"))
            })?;
            (self.points[index].id, self.points[index].row) = (id, row);
            self.payloads_done += 1;
            at += 4 + length as usize;
        }
        self.pending.drain(..at);
        if self.payloads_done == header.count as usize && !self.pending.is_empty() {
            return Err(invalid_ingest("trailing bytes after the frame"));
        }
        Ok(())
    }

    /// The batch, once the body has ended.
    ///
    /// # Errors
    /// 400 when it ended too early.
    pub fn finish(self) -> Result<WriteBatch, ApiError> {
        let Some(header) = self.header else {
            return Err(invalid_ingest(format_args!(
                "truncated: {} bytes of a header of {INGEST_HEADER_BYTES}",
                self.pending.len()
            )));
        };
        if (self.rows.len() as u64) < header.rows_bytes() {
            return Err(invalid_ingest(format_args!(
                "truncated: {} bytes of rows of {}",
                self.rows.len(),
                header.rows_bytes()
            )));
        }
        if header.payloads && self.payloads_done < header.count as usize {
            return Err(invalid_ingest(format_args!(
                "truncated: {} payloads of {}",
                self.payloads_done, header.count
            )));
        }
        Ok(WriteBatch {
            mode: if header.upsert { WriteMode::Upsert } else { WriteMode::Insert },
            dim: header.dim as usize,
            vectors: Vectors::BigEndianRows(Bytes::from(self.rows)),
            points: self.points,
        })
    }
}

/// Turns the payload JSON of the point with this id into its row. The number of a string comes from the payload.
fn decode_payload(
    json: &[u8],
    id: u64,
    route: IngestRoute,
    payloads: Payloads,
) -> Result<(u64, Vec<u8>), String> {
    if json.is_empty() {
        return Ok((id, Vec::new()));
    }
    if json.trim_ascii() == b"null" {
        return match route {
            IngestRoute::Batch => Ok((id, Vec::new())),
            IngestRoute::Staging => Err("null is not an object".to_owned()),
        };
    }
    let payload = payloads.read(json, UnknownKeys::Ignored).map_err(|error| in_words(&error))?;
    encode_row(&id.into(), payload, None, &[], payloads).map_err(|error| error.message)
}

/// A decoded binary query.
#[derive(Debug, PartialEq)]
pub struct BinaryQuery {
    /// Results wanted, not yet checked against the search limits.
    pub k: u32,
    /// Query vector, finite.
    pub vector: Vec<f32>,
    /// Consistency, not yet checked.
    pub read: ReadOptions,
    /// Filter.
    pub filter: Option<Node>,
}

/// Decodes a whole query body.
///
/// # Errors
/// 400 with a text that begins `invalid binary query body:`.
pub fn decode_query(body: &[u8]) -> Result<BinaryQuery, ApiError> {
    let Some(header) = body.first_chunk::<QUERY_HEADER_BYTES>() else {
        return Err(invalid_query(format_args!(
            "truncated: {} bytes of a header of {QUERY_HEADER_BYTES}",
            body.len()
        )));
    };
    if &header[..4] != QUERY_MAGIC {
        return Err(invalid_query("bad magic, expected RVQ1"));
    }
    let (flags, k, dim) = (be_u32(&header[4..]), be_u32(&header[8..]), be_u32(&header[12..]));
    if is_swapped([flags, k, dim], FLAG_FILTER, limits::K_MAX as u32) {
        return Err(invalid_query(swapped("k", k, dim)));
    }
    if flags & !FLAG_FILTER != 0 {
        return Err(invalid_query(format_args!("unknown flags {flags:#x}")));
    }
    if header[18..20] != [0, 0] {
        return Err(invalid_query("reserved bytes are not zero"));
    }
    if dim > limits::DIM_MAX {
        return Err(invalid_query(format_args!("dimension {dim} is above {}", limits::DIM_MAX)));
    }
    if k > K_WIRE_MAX {
        return Err(invalid_query(format_args!("k {k} is above {K_WIRE_MAX}")));
    }
    let read = ReadOptions {
        read_consistency: header[16],
        on_partition_unavailable: header[17],
        max_staleness: be_u64(&header[20..]),
    };
    let rest = &body[QUERY_HEADER_BYTES..];
    let Some((vector, rest)) = rest.split_at_checked(4 * dim as usize) else {
        return Err(invalid_query(format_args!(
            "truncated: {} bytes of a vector of {}",
            rest.len(),
            4 * dim as usize
        )));
    };
    if let Some(index) = first_not_finite(vector) {
        return Err(invalid_query(format_args!("component {index} is not a finite number")));
    }
    let vector = vector.as_chunks::<4>().0.iter().map(|bytes| f32::from_be_bytes(*bytes)).collect();
    let (filter, rest) = if flags & FLAG_FILTER != 0 { decode_filter(rest)? } else { (None, rest) };
    if !rest.is_empty() {
        return Err(invalid_query(format_args!("{} trailing bytes after the frame", rest.len())));
    }
    Ok(BinaryQuery { k, vector, read, filter })
}

fn decode_filter(rest: &[u8]) -> Result<(Option<Node>, &[u8]), ApiError> {
    let Some((length, rest)) = rest.split_first_chunk::<4>() else {
        return Err(invalid_query("truncated: filter length missing"));
    };
    let length = u32::from_be_bytes(*length);
    if length > limits::BINARY_QUERY_FILTER_MAX_BYTES {
        return Err(invalid_query(format_args!(
            "filter of {length} bytes is above {}",
            limits::BINARY_QUERY_FILTER_MAX_BYTES
        )));
    }
    let Some((json, rest)) = rest.split_at_checked(length as usize) else {
        return Err(invalid_query(format_args!("truncated: {} bytes of a filter of {length}", rest.len())));
    };
    let filter: Option<WireFilter> = serde_json::from_slice(json)
        .map_err(|error| invalid_query(format_args!("filter: {}", in_words(&error))))?;
    Ok((filter.map(|filter| filter.0), rest))
}

/// Index of the first component that is infinite or not a number.
fn first_not_finite(vector: &[u8]) -> Option<usize> {
    const EXPONENT: u32 = 0x7f80_0000;
    let components = vector.as_chunks::<4>().0;
    // The usual answer is none: a pass without branches finds that out several times faster than a search.
    let any =
        components.iter().fold(false, |any, bytes| any | (u32::from_be_bytes(*bytes) & EXPONENT == EXPONENT));
    if !any {
        return None;
    }
    components.iter().position(|bytes| u32::from_be_bytes(*bytes) & EXPONENT == EXPONENT)
}

/// Big-endian u32 at the start of `bytes`, which the caller has checked to be long enough.
pub(super) fn be_u32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Likewise for a u64.
fn be_u64(bytes: &[u8]) -> u64 {
    u64::from(be_u32(bytes)) << 32 | u64::from(be_u32(&bytes[4..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_engine::filter::Node;

    fn ingest(flags: u32, dim: u32, rows: &[(u64, Vec<f32>)], payloads: &[&str]) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(b"RVB1");
        for word in [flags, rows.len() as u32, dim] {
            body.extend_from_slice(&word.to_be_bytes());
        }
        for (id, vector) in rows {
            body.extend_from_slice(&id.to_be_bytes());
            for value in vector {
                body.extend_from_slice(&value.to_be_bytes());
            }
        }
        for payload in payloads {
            body.extend_from_slice(&(payload.len() as u32).to_be_bytes());
            body.extend_from_slice(payload.as_bytes());
        }
        body
    }

    fn decode(route: IngestRoute, body: &[u8], piece: usize) -> Result<WriteBatch, ApiError> {
        let mut decoder = IngestDecoder::new(route, Payloads::tagged(1_000));
        for bytes in body.chunks(piece.max(1)) {
            decoder.feed(bytes)?;
        }
        decoder.finish()
    }

    fn rejected(route: IngestRoute, body: &[u8]) -> ApiError {
        decode(route, body, 7).expect_err("accepted")
    }

    #[test]
    fn ingest_in_pieces_of_any_size() {
        let rows = vec![(7, vec![1.0, -2.0]), (u64::MAX, vec![0.5, 0.25])];
        let body = ingest(3, 2, &rows, &["", r#"{"n":{"kind":"int","int":4,"extra":1}}"#]);
        for piece in 1..body.len() + 1 {
            let batch = decode(IngestRoute::Batch, &body, piece).unwrap();
            assert_eq!(batch.mode, WriteMode::Upsert);
            assert_eq!(batch.dim, 2);
            assert_eq!(batch.points.iter().map(|point| point.id).collect::<Vec<_>>(), [7, u64::MAX]);
            assert!(batch.points[0].row.is_empty());
            assert!(!batch.points[1].row.is_empty());
            let Vectors::BigEndianRows(bytes) = batch.vectors else { panic!("rows were converted") };
            assert_eq!(bytes, body[16..16 + 2 * 16]);
        }
    }

    #[test]
    fn ingest_cut_at_every_byte() {
        let body = ingest(1, 3, &[(1, vec![1.0; 3]), (2, vec![2.0; 3])], &[r#"{"a":1}"#, "null"]);
        for end in 0..body.len() {
            let error = rejected(IngestRoute::Batch, &body[..end]);
            assert_eq!(error.kind, ErrorKind::Invalid, "cut at {end}");
            assert!(
                error.message.starts_with("invalid binary bulk body: truncated"),
                "cut at {end}: {}",
                error.message
            );
        }
        assert!(decode(IngestRoute::Batch, &body, 5).is_ok());
        let mut longer = body;
        longer.push(0);
        assert!(rejected(IngestRoute::Batch, &longer).message.contains("trailing"));
    }

    #[test]
    fn ingest_of_nothing() {
        let batch = decode(IngestRoute::Staging, &ingest(0, 0, &[], &[]), 16).unwrap();
        assert!(batch.points.is_empty());
        assert!(decode(IngestRoute::Batch, &ingest(1, 5, &[], &[]), 16).is_ok());
    }

    #[test]
    fn ingest_refusals() {
        let one = [(1_u64, vec![1.0_f32])];
        let good = ingest(0, 1, &one, &[]);
        let with = |at: usize, bytes: &[u8]| {
            let mut body = good.clone();
            body[at..at + bytes.len()].copy_from_slice(bytes);
            body
        };
        let cases: Vec<(Vec<u8>, IngestRoute, ErrorKind, &str)> = vec![
            (with(0, b"RVB2"), IngestRoute::Batch, ErrorKind::Invalid, "magic"),
            (with(7, &[4]), IngestRoute::Batch, ErrorKind::Invalid, "flags"),
            (with(4, &[0x80]), IngestRoute::Batch, ErrorKind::Invalid, "flags"),
            (with(7, &[2]), IngestRoute::Staging, ErrorKind::Invalid, "upsert"),
            (with(8, &262_145_u32.to_be_bytes()), IngestRoute::Batch, ErrorKind::TooLarge, "points"),
            (with(12, &(1_u32 << 31).to_be_bytes()), IngestRoute::Batch, ErrorKind::TooLarge, "rows"),
            (with(12, &u32::MAX.to_be_bytes()), IngestRoute::Batch, ErrorKind::TooLarge, "rows"),
            (with(12, &[0; 4]), IngestRoute::Batch, ErrorKind::Invalid, "dimension 0"),
            (ingest(0, 1, &[(5, vec![f32::NAN])], &[]), IngestRoute::Batch, ErrorKind::Invalid, "point 5"),
            (
                ingest(0, 1, &[(5, vec![f32::NEG_INFINITY])], &[]),
                IngestRoute::Staging,
                ErrorKind::Invalid,
                "finite",
            ),
            (ingest(1, 1, &one, &["null"]), IngestRoute::Staging, ErrorKind::Invalid, "object"),
            (ingest(1, 1, &one, &["[1]"]), IngestRoute::Staging, ErrorKind::Invalid, "payload 0"),
            (ingest(1, 1, &one, &["{\"a\":1} x"]), IngestRoute::Batch, ErrorKind::Invalid, "payload 0"),
        ];
        for (body, route, kind, fragment) in cases {
            let error = rejected(route, &body);
            assert_eq!(error.kind, kind, "{}", error.message);
            assert!(error.message.contains(fragment), "{} lacks {fragment}", error.message);
        }
        let mut long = ingest(1, 1, &one, &[]);
        long.extend_from_slice(&((1_u32 << 20) + 1).to_be_bytes());
        assert_eq!(rejected(IngestRoute::Batch, &long).kind, ErrorKind::TooLarge);
    }

    fn query(flags: u32, k: u32, vector: &[f32], options: (u8, u8, u64), filter: Option<&str>) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(b"RVQ1");
        for word in [flags, k, vector.len() as u32] {
            body.extend_from_slice(&word.to_be_bytes());
        }
        body.extend_from_slice(&[options.0, options.1, 0, 0]);
        body.extend_from_slice(&options.2.to_be_bytes());
        for value in vector {
            body.extend_from_slice(&value.to_be_bytes());
        }
        if let Some(filter) = filter {
            body.extend_from_slice(&(filter.len() as u32).to_be_bytes());
            body.extend_from_slice(filter.as_bytes());
        }
        body
    }

    #[test]
    fn query_reads_back() {
        let decoded =
            decode_query(&query(1, 10, &[1.0, -0.5], (3, 1, 99), Some(r#"{"op":"is_null","field":"a"}"#)));
        let node = Node { op: Some("is_null".into()), field: Some("a".into()), ..Node::default() };
        assert_eq!(
            decoded.unwrap(),
            BinaryQuery {
                k: 10,
                vector: vec![1.0, -0.5],
                read: ReadOptions { read_consistency: 3, on_partition_unavailable: 1, max_staleness: 99 },
                filter: Some(node),
            }
        );
        assert!(decode_query(&query(0, 0, &[], (0, 0, 0), None)).unwrap().vector.is_empty());
    }

    #[test]
    fn query_cut_at_every_byte_and_extended() {
        let body = query(1, 10, &[1.0, 2.0], (0, 0, 0), Some("{}"));
        for end in 0..body.len() {
            let message = decode_query(&body[..end]).unwrap_err().message;
            assert!(message.starts_with("invalid binary query body: truncated"), "{end}: {message}");
        }
        let mut longer = body;
        longer.push(b' ');
        assert!(decode_query(&longer).unwrap_err().message.contains("trailing"));
    }

    #[test]
    fn query_refusals_never_mention_json_bodies() {
        let good = query(0, 10, &[1.0], (0, 0, 0), None);
        let with = |at: usize, bytes: &[u8]| {
            let mut body = good.clone();
            body[at..at + bytes.len()].copy_from_slice(bytes);
            body
        };
        for (body, fragment) in [
            (with(3, b"B"), "magic"),
            (with(7, &[2]), "flags"),
            (with(19, &[1]), "reserved"),
            (with(12, &65_537_u32.to_be_bytes()), "dimension"),
            (with(8, &(1_u32 << 31).to_be_bytes()), "k "),
            (query(0, 1, &[f32::INFINITY], (0, 0, 0), None), "finite"),
            (query(1, 1, &[1.0], (0, 0, 0), Some("")), "filter"),
            (query(1, 1, &[1.0], (0, 0, 0), Some(r#"{"opp":1}"#)), "unknown field"),
            (query(1, 1, &[1.0], (0, 0, 0), Some("{")), "filter"),
        ] {
            let message = decode_query(&body).unwrap_err().message;
            assert!(message.contains(fragment), "{message} lacks {fragment}");
            assert!(!message.contains("invalid JSON body"), "{message}");
        }
        let mut huge = query(1, 1, &[1.0], (0, 0, 0), None);
        huge.extend_from_slice(&((1_u32 << 20) + 1).to_be_bytes());
        assert!(decode_query(&huge).unwrap_err().message.contains("above"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_answered(
            body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
            piece in 1_usize..50,
        ) {
            let mut ingest = b"RVB1\0\0\0".to_vec();
            ingest.extend_from_slice(&body);
            let _ = decode(IngestRoute::Batch, &ingest, piece);
            let mut query = b"RVQ1\0\0\0".to_vec();
            query.extend_from_slice(&body);
            let _ = decode_query(&query);
        }
    }
}
