//! The binary body of many searches, `RVS1`: what they have in common as one JSON object, then a vector for each. All integers and floats are
//! big-endian.
//!
//! A vector of JSON costs its client and its server several hundred times the copy that it takes here: of 1,000 searches of 384 components,
//! as much as the searches themselves.

use super::binary::{be_u32, is_swapped, swapped, without_fallback_words};
use super::parameters::ReadParameters;
use super::search::{CommonSearch, SearchBody};
use crate::http::BodyReader;
use crate::limits;
use crate::op::ApiError;
use crate::wire::json::in_words;
use bytes::Bytes;
use std::fmt;

const MAGIC: &[u8; 4] = b"RVS1";
const HEADER_BYTES: usize = 20;

fn invalid(reason: impl fmt::Display) -> ApiError {
    without_fallback_words(ApiError::invalid(format!("invalid binary searches body: {reason}")))
}

#[derive(Clone, Copy)]
struct Header {
    count: usize,
    row_bytes: usize,
    common_bytes: usize,
}

impl Header {
    /// Of [`HEADER_BYTES`] bytes.
    fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        if &bytes[..4] != MAGIC {
            return Err(invalid("bad magic, expected RVS1"));
        }
        let (flags, count, dim) = (be_u32(&bytes[4..]), be_u32(&bytes[8..]), be_u32(&bytes[12..]));
        if is_swapped([flags, count, dim], 0, limits::SEARCHES_MAX as u32) {
            return Err(invalid(swapped("count", count, dim)));
        }
        if flags != 0 {
            return Err(invalid(format_args!("unknown flags {flags:#x}")));
        }
        if count as usize > limits::SEARCHES_MAX {
            return Err(ApiError::too_many("searches", limits::SEARCHES_MAX as u64));
        }
        if count > 0 && dim == 0 {
            return Err(invalid("dimension 0 with a count above 0"));
        }
        if dim > limits::DIM_MAX {
            return Err(invalid(format_args!("dimension {dim} is above {}", limits::DIM_MAX)));
        }
        let common_bytes = be_u32(&bytes[16..]);
        if common_bytes > limits::BINARY_SEARCHES_COMMON_MAX_BYTES {
            return Err(invalid(format_args!(
                "common keys of {common_bytes} bytes are above {}",
                limits::BINARY_SEARCHES_COMMON_MAX_BYTES
            )));
        }
        Ok(Header { count: count as usize, row_bytes: 4 * dim as usize, common_bytes: common_bytes as usize })
    }
}

/// Decodes what the searches of a body have in common. The query string states `read`.
///
/// # Errors
/// 400.
pub fn decode_common(json: &[u8], read: ReadParameters) -> Result<CommonSearch, ApiError> {
    let body = serde_json::from_slice::<Option<SearchBody>>(json)
        .map_err(|error| invalid(format_args!("common keys: {}", in_words(&error))))?;
    CommonSearch::new(body.unwrap_or_default(), read).map_err(without_fallback_words)
}

/// The components of a row.
pub fn vector_of(row: &[u8]) -> Vec<f32> {
    row.as_chunks::<4>().0.iter().map(|bytes| f32::from_be_bytes(*bytes)).collect()
}

/// Takes a body apart as it arrives; memory grows with what has arrived, not with what was declared.
#[derive(Default)]
pub struct SearchesDecoder {
    header: Option<Header>,
    common: Option<Bytes>,
    rows: Vec<Bytes>,
    /// The bytes so far of the header, of the common keys or of a row.
    pending: Vec<u8>,
}

impl SearchesDecoder {
    /// Takes the next bytes of the body.
    ///
    /// # Errors
    /// 400 or 413 as soon as the bytes so far cannot become a valid body.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), ApiError> {
        loop {
            let wanted = match (&self.header, &self.common) {
                (None, _) => HEADER_BYTES,
                (Some(header), None) => header.common_bytes,
                (Some(header), Some(_)) if self.rows.len() < header.count => header.row_bytes,
                _ if bytes.is_empty() => return Ok(()),
                _ => return Err(invalid("trailing bytes after the frame")),
            };
            let (part, rest) = bytes.split_at(bytes.len().min(wanted - self.pending.len()));
            bytes = rest;
            if self.pending.len() + part.len() < wanted {
                self.pending.extend_from_slice(part);
                return Ok(());
            }
            // Most rows are in one piece, which need not be copied twice.
            if self.pending.is_empty() {
                self.take(part)?;
            } else {
                let mut whole = std::mem::take(&mut self.pending);
                whole.extend_from_slice(part);
                self.take(&whole)?;
            }
        }
    }

    /// Takes the next part of the frame, which is whole.
    fn take(&mut self, part: &[u8]) -> Result<(), ApiError> {
        if self.header.is_none() {
            self.header = Some(Header::parse(part)?);
        } else if self.common.is_none() {
            self.common = Some(Bytes::copy_from_slice(part));
        } else {
            self.rows.push(Bytes::copy_from_slice(part));
        }
        Ok(())
    }

    /// The common keys as they came, and the rows, once the body has ended.
    ///
    /// # Errors
    /// 400 when it ended too early.
    pub fn finish(self) -> Result<(Bytes, Vec<Bytes>), ApiError> {
        let Some(header) = self.header else {
            return Err(invalid(format_args!(
                "truncated: {} bytes of a header of {HEADER_BYTES}",
                self.pending.len()
            )));
        };
        let Some(common) = self.common else {
            return Err(invalid(format_args!(
                "truncated: {} bytes of common keys of {}",
                self.pending.len(),
                header.common_bytes
            )));
        };
        if self.rows.len() < header.count {
            return Err(invalid(format_args!("truncated: {} vectors of {}", self.rows.len(), header.count)));
        }
        Ok((common, self.rows))
    }
}

/// Reads a body as it arrives: the common keys as they came, and the rows.
///
/// # Errors
/// 400, 413.
pub async fn read_searches(body: &mut BodyReader) -> Result<(Bytes, Vec<Bytes>), ApiError> {
    // A row costs a copy and a place in memory, which a piece of JSON takes several times as long for.
    const SLICE_BYTES: usize = 4 * limits::SLICE_BYTES;
    let mut decoder = SearchesDecoder::default();
    let mut slice = 0;
    while let Some(bytes) = body.next().await? {
        for piece in bytes.chunks(limits::SLICE_BYTES) {
            if slice + piece.len() > SLICE_BYTES {
                slice = 0;
                body.breathe().await;
            }
            slice += piece.len();
            decoder.feed(piece)?;
        }
    }
    decoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::ErrorKind;

    fn frame(count: u32, dim: u32, common: &str, components: &[f32]) -> Vec<u8> {
        let mut body = b"RVS1".to_vec();
        for word in [0, count, dim, common.len() as u32] {
            body.extend_from_slice(&word.to_be_bytes());
        }
        body.extend_from_slice(common.as_bytes());
        components.iter().for_each(|component| body.extend_from_slice(&component.to_be_bytes()));
        body
    }

    fn decode(body: &[u8], piece: usize) -> Result<(Bytes, Vec<Vec<f32>>), ApiError> {
        let mut decoder = SearchesDecoder::default();
        for bytes in body.chunks(piece) {
            decoder.feed(bytes)?;
        }
        decoder.finish().map(|(common, rows)| (common, rows.iter().map(|row| vector_of(row)).collect()))
    }

    #[test]
    fn searches_in_pieces_of_any_size() {
        let body = frame(3, 2, r#"{"k":1}"#, &[0.5, 2.0, -1.0, 0.0, f32::MAX, f32::NAN]);
        for piece in 1..=body.len() {
            let (common, rows) = decode(&body, piece).unwrap();
            assert_eq!(common, r#"{"k":1}"#);
            assert_eq!(rows[..2], [[0.5, 2.0], [-1.0, 0.0]]);
            // Whether it is a number is for the search to say, which is refused alone.
            assert!(rows[2][0] == f32::MAX && rows[2][1].is_nan());
        }
        for (count, dim) in [(0, 0), (0, 2)] {
            assert_eq!(decode(&frame(count, dim, "{}", &[]), 3).unwrap(), (Bytes::from("{}"), vec![]));
        }
    }

    #[test]
    fn searches_cut_at_every_byte_and_extended() {
        let body = frame(2, 1, "{}", &[1.0, 2.0]);
        for end in 0..body.len() {
            let message = decode(&body[..end], 5).unwrap_err().message;
            assert!(message.starts_with("invalid binary searches body: truncated"), "{end}: {message}");
        }
        let mut longer = body;
        longer.push(b' ');
        for piece in [1, 7, 100] {
            assert!(decode(&longer, piece).unwrap_err().message.contains("trailing"));
        }
    }

    #[test]
    fn headers_that_are_refused() {
        let good = frame(1, 1, "{}", &[1.0]);
        let with = |at: usize, bytes: &[u8]| {
            let mut body = good.clone();
            body[at..at + bytes.len()].copy_from_slice(bytes);
            decode(&body, 1).unwrap_err()
        };
        for (error, kind, fragment) in [
            (with(3, b"2"), ErrorKind::Invalid, "magic"),
            (with(0, b"{\"se"), ErrorKind::Invalid, "magic"),
            (with(7, &[1]), ErrorKind::Invalid, "flags 0x1"),
            (with(8, &65_537_u32.to_be_bytes()), ErrorKind::TooLarge, "at most 65536 searches"),
            (with(12, &65_537_u32.to_be_bytes()), ErrorKind::Invalid, "dimension 65537"),
            (with(12, &[0; 4]), ErrorKind::Invalid, "dimension 0"),
            (with(8, &[1, 0, 0, 0, 0, 1, 0, 0]), ErrorKind::Invalid, "little-endian"),
            (with(16, &(2_u32 << 20).to_be_bytes()), ErrorKind::Invalid, "2097152 bytes"),
        ] {
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.message.contains(fragment), "{error} lacks {fragment}");
        }
    }

    #[test]
    fn common_keys() {
        let read = ReadParameters::default();
        let common = decode_common(
            br#"{"k":3,"exact":true,"filter":{"op":"is_null","field":"a"},"read_consistency":1}"#,
            read,
        );
        let search = common.unwrap().of("docs".into(), vec![1.0]);
        assert_eq!((search.k, search.vector.as_slice(), search.with_rows), (3, &[1.0][..], false));
        assert!(search.options.exact && search.filter.is_some());
        assert_eq!(search.read.read_consistency, 1);
        assert_eq!(decode_common(b"null", read).unwrap().of("docs".into(), vec![]).k, 0);
        for (json, fragment) in [
            ("", "common keys"),
            ("[]", "common keys"),
            (r#"{"limit":1}"#, "unknown field \"limit\""),
            (r#"{"query":[1]}"#, "query"),
            (r#"{"filter":{"op":"invalid JSON body"}}"#, "JSON-body"),
        ] {
            let message = decode_common(json.as_bytes(), read).unwrap_err().message;
            assert!(message.contains(fragment), "{message} lacks {fragment}");
            assert!(!message.contains("invalid JSON body"), "{message}");
        }
        let stated = ReadParameters { read_consistency: Some(2), ..read };
        assert!(decode_common(br#"{"read_consistency":1}"#, stated).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_answered(
            body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
            piece in 1_usize..50,
        ) {
            let mut searches = b"RVS1\0\0\0\0\0\0\0".to_vec();
            searches.extend_from_slice(&body);
            let _ = decode(&searches, piece);
        }
    }
}
