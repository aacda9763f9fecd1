//! The effect of a decision on one collection: the body of its log record, and how a writer applies it. A command that was decided is
//! recorded and applied as its effect, and a start applies the same effect again.
//!
//! ```text
//! record   = kind:u8 rest
//! write    = 1 id:u64 version:u64 deadline_ms:u64 dim:u32 row_len:u32 vector:f32*dim row:u8*row_len
//! delete   = 2 id:u64
//! payload  = 3 id:u64 version:u64 row_len:u32 row:u8*row_len
//! named    = 4 id:u64 version:u64 deadline_ms:u64 row_len:u32 parts:u16 part*parts row:u8*row_len      a write into named spaces
//! part     = space:u16 dim:u32 vector:f32*dim             dim 0xffffffff: the point keeps the vector that it has there
//! ```
//! Little-endian. The collection and its sequence number stand in the log's own record key. Deadlines are absolute,
//! so replay never prolongs a life. In a space that no part names a point has no vector from then on. Kinds are never reused; an unknown one stops the collection it belongs to.

use nigh_engine::collection::{DenseWriter, Part, Parts, RowWrite, SPACES_MAX, Write};
use nigh_engine::payload::PayloadRow;
use std::borrow::Cow;

/// One accepted change of one collection.
#[derive(Debug, PartialEq)]
pub enum Effect<'a> {
    /// Insert or replace.
    Write {
        /// Point.
        id: u64,
        /// Version it got.
        version: u64,
        /// Absolute, Unix ms, 0 = none.
        deadline_ms: u64,
        /// Stored form. Decoded it is a copy: its alignment in the log is arbitrary.
        vector: Cow<'a, [f32]>,
        /// Encoded payload row, empty = none.
        row: &'a [u8],
    },
    /// Insert or replace in a collection of named spaces.
    WriteNamed {
        /// Point.
        id: u64,
        /// Version it got.
        version: u64,
        /// Absolute, Unix ms, 0 = none.
        deadline_ms: u64,
        /// By the numbers of the spaces, in ascending order: its vectors, or that it keeps the one that it has.
        parts: Vec<(u16, NamedPart<'a>)>,
        /// Encoded payload row, empty = none.
        row: &'a [u8],
    },
    /// Another payload; vector and deadline stay.
    Payload {
        /// Point.
        id: u64,
        /// Version it got.
        version: u64,
        /// Encoded payload row, whole; empty = none.
        row: &'a [u8],
    },
    /// Removal.
    Delete {
        /// Point.
        id: u64,
    },
}

/// What a write says of a point in one of several spaces.
#[derive(Debug, PartialEq)]
pub enum NamedPart<'a> {
    /// This vector. Decoded it is a copy.
    Given(Cow<'a, [f32]>),
    /// The point keeps the vector that it has.
    Kept,
}

/// Why a body does not decode although its checksum is good: a newer writer or our own bug.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Unknown kind.
    #[error("unknown record kind {0}")]
    UnknownKind(u8),
    /// Lengths do not add up.
    #[error("record of {found} bytes does not hold what it declares ({what})")]
    Length {
        /// Bytes found.
        found: usize,
        /// Part.
        what: &'static str,
    },
    /// Payload row.
    #[error("record holds a corrupt payload row: {0}")]
    Row(String),
}

/// Bytes of a write's body before its vector.
const WRITE_HEADER_BYTES: usize = 33;

/// Bytes of a write's body.
pub fn write_bytes(dim: usize, row: &[u8]) -> usize {
    WRITE_HEADER_BYTES + 4 * dim + row.len()
}

/// Bytes of the body of a write into named spaces before its parts.
const NAMED_HEADER_BYTES: usize = 31;

/// Bytes of a part before its vector.
const PART_HEADER_BYTES: usize = 6;

/// A part that says that the point keeps what it has.
const KEPT: u32 = u32::MAX;

/// Bytes of the body of a write into so many named spaces, with so many floats.
pub fn named_bytes(spaces: usize, floats: usize, row: usize) -> usize {
    NAMED_HEADER_BYTES + spaces * PART_HEADER_BYTES + 4 * floats + row
}

/// Bytes of a payload change's body before its row.
const PAYLOAD_HEADER_BYTES: usize = 21;

/// Bytes of a payload change's body.
pub fn payload_bytes(row: &[u8]) -> usize {
    PAYLOAD_HEADER_BYTES + row.len()
}

/// Bytes of a delete's body.
pub const DELETE_BYTES: usize = 9;

const KIND_WRITE: u8 = 1;
const KIND_DELETE: u8 = 2;
const KIND_PAYLOAD: u8 = 3;
const KIND_NAMED: u8 = 4;

impl Effect<'_> {
    /// The point that it changes.
    pub fn id(&self) -> u64 {
        match *self {
            Effect::Write { id, .. }
            | Effect::WriteNamed { id, .. }
            | Effect::Payload { id, .. }
            | Effect::Delete { id } => id,
        }
    }

    /// Writes the body of its record into `out`, which is cleared first.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        match self {
            Effect::Write { id, version, deadline_ms, vector, row } => {
                out.reserve(write_bytes(vector.len(), row));
                out.push(KIND_WRITE);
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&deadline_ms.to_le_bytes());
                out.extend_from_slice(&(vector.len() as u32).to_le_bytes());
                out.extend_from_slice(&(row.len() as u32).to_le_bytes());
                for x in vector.iter() {
                    out.extend_from_slice(&x.to_le_bytes());
                }
                out.extend_from_slice(row);
            }
            Effect::WriteNamed { id, version, deadline_ms, parts, row } => {
                out.push(KIND_NAMED);
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&deadline_ms.to_le_bytes());
                out.extend_from_slice(&(row.len() as u32).to_le_bytes());
                out.extend_from_slice(&(parts.len() as u16).to_le_bytes());
                for (space, part) in parts {
                    out.extend_from_slice(&space.to_le_bytes());
                    let (dim, vector) = match part {
                        NamedPart::Given(vector) => (vector.len() as u32, &vector[..]),
                        NamedPart::Kept => (KEPT, &[][..]),
                    };
                    out.extend_from_slice(&dim.to_le_bytes());
                    vector.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
                }
                out.extend_from_slice(row);
            }
            Effect::Payload { id, version, row } => {
                out.reserve(payload_bytes(row));
                out.push(KIND_PAYLOAD);
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&(row.len() as u32).to_le_bytes());
                out.extend_from_slice(row);
            }
            Effect::Delete { id } => {
                out.push(KIND_DELETE);
                out.extend_from_slice(&id.to_le_bytes());
            }
        }
    }

    /// Whether it can be applied to a collection: one that was read from a log may be of another shape.
    ///
    /// # Errors
    /// What does not fit, for a sentence that begins with the record.
    pub fn check(&self, writer: &DenseWriter) -> Result<(), String> {
        let spaces = writer.shared().spaces();
        match self {
            Effect::Write { .. } if writer.shared().is_named() => {
                Err("holds a vector without the name of its space".to_owned())
            }
            Effect::Write { vector, .. } if vector.len() != spaces[0].config().dim => {
                Err(format!("holds a vector of {} floats", vector.len()))
            }
            Effect::WriteNamed { .. } if !writer.shared().is_named() => {
                Err("holds vectors of named spaces".to_owned())
            }
            Effect::WriteNamed { parts, .. } => {
                parts.iter().try_for_each(|(number, part)| match (spaces.get(usize::from(*number)), part) {
                    (None, _) => Err(format!("names space {number} of {}", spaces.len())),
                    // A space that was dropped after the record was written: the vector is skipped.
                    (Some(space), _) if space.is_dropped() => Ok(()),
                    (Some(space), NamedPart::Given(vector)) if vector.len() != space.config().dim => {
                        Err(format!("holds a vector of {} floats in space {number}", vector.len()))
                    }
                    _ => Ok(()),
                })
            }
            _ => Ok(()),
        }
    }

    /// Applies it as change `seq` of the collection of `writer`. Whether the writer has room for it was looked at before.
    pub fn apply(&self, writer: &mut DenseWriter, seq: u64) {
        match *self {
            Effect::Write { id, version, deadline_ms, ref vector, row } => {
                writer.apply(Write { seq, id, version, parts: Parts::Only(vector), row, deadline_ms });
            }
            Effect::WriteNamed { id, version, deadline_ms, ref parts, row } => {
                let mut each = vec![Part::Absent; writer.spaces().len()];
                for (space, part) in parts {
                    each[usize::from(*space)] = match part {
                        NamedPart::Given(vector) => Part::Given(vector),
                        NamedPart::Kept => Part::Kept,
                    };
                }
                writer.apply(Write { seq, id, version, parts: Parts::Each(&each), row, deadline_ms });
            }
            Effect::Payload { id, version, row } => {
                writer.apply_row(&RowWrite { seq, id, version, row });
            }
            Effect::Delete { id } => {
                writer.apply_delete(seq, id);
            }
        }
    }
}

/// Decodes one body; never panics.
pub fn decode(body: &[u8]) -> Result<Effect<'_>, RecordError> {
    let found = body.len();
    let u64_at = |at: usize, what| -> Result<u64, RecordError> {
        let bytes = body.get(at..at + 8).ok_or(RecordError::Length { found, what })?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    };
    let u32_at = |at: usize, what| -> Result<usize, RecordError> {
        let bytes = body.get(at..at + 4).ok_or(RecordError::Length { found, what })?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize)
    };
    match body.first() {
        Some(&KIND_WRITE) => {
            let (id, version, deadline_ms) =
                (u64_at(1, "id")?, u64_at(9, "version")?, u64_at(17, "deadline")?);
            let (dim, row_len) = (u32_at(25, "dimension")?, u32_at(29, "row length")?);
            let rest = &body[WRITE_HEADER_BYTES..];
            if Some(rest.len()) != dim.checked_mul(4).and_then(|v| v.checked_add(row_len)) {
                return Err(RecordError::Length { found, what: "vector and row" });
            }
            let (vector, row) = rest.split_at(4 * dim);
            if !row.is_empty() {
                PayloadRow::verify(row).map_err(|e| RecordError::Row(e.to_string()))?;
            }
            let vector =
                vector.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect::<Vec<f32>>();
            Ok(Effect::Write { id, version, deadline_ms, vector: vector.into(), row })
        }
        Some(&KIND_NAMED) => decode_named(body),
        Some(&KIND_PAYLOAD) => {
            let (id, version, row_len) = (u64_at(1, "id")?, u64_at(9, "version")?, u32_at(17, "row length")?);
            let row = &body[PAYLOAD_HEADER_BYTES..];
            if row.len() != row_len {
                return Err(RecordError::Length { found, what: "row" });
            }
            if !row.is_empty() {
                PayloadRow::verify(row).map_err(|e| RecordError::Row(e.to_string()))?;
            }
            Ok(Effect::Payload { id, version, row })
        }
        Some(&KIND_DELETE) if found == DELETE_BYTES => Ok(Effect::Delete { id: u64_at(1, "id")? }),
        Some(&KIND_DELETE) => Err(RecordError::Length { found, what: "delete" }),
        Some(&kind) => Err(RecordError::UnknownKind(kind)),
        None => Err(RecordError::Length { found, what: "kind" }),
    }
}

fn decode_named(body: &[u8]) -> Result<Effect<'_>, RecordError> {
    let cut = |what| RecordError::Length { found: body.len(), what };
    let mut rest = &body[1..];
    let (id, version) = (u64::from_le_bytes(take(&mut rest, cut("id"))?), take(&mut rest, cut("version"))?);
    let deadline_ms = u64::from_le_bytes(take(&mut rest, cut("deadline"))?);
    let row_len = u32::from_le_bytes(take(&mut rest, cut("row length"))?);
    let count = u16::from_le_bytes(take(&mut rest, cut("number of parts"))?);
    let mut parts = Vec::with_capacity(usize::from(count).min(SPACES_MAX));
    for _ in 0..count {
        let space = u16::from_le_bytes(take(&mut rest, cut("space"))?);
        let part = match u32::from_le_bytes(take(&mut rest, cut("dimension"))?) {
            KEPT => NamedPart::Kept,
            dim => {
                let bytes = (dim as usize).checked_mul(4).and_then(|bytes| rest.split_at_checked(bytes));
                let (vector, behind) = bytes.ok_or_else(|| cut("vector"))?;
                rest = behind;
                let floats = vector.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
                NamedPart::Given(floats.collect::<Vec<f32>>().into())
            }
        };
        if parts.last().is_some_and(|(last, _)| *last >= space) {
            return Err(cut("spaces in ascending order"));
        }
        parts.push((space, part));
    }
    if rest.len() != row_len as usize {
        return Err(cut("row"));
    }
    if !rest.is_empty() {
        PayloadRow::verify(rest).map_err(|e| RecordError::Row(e.to_string()))?;
    }
    Ok(Effect::WriteNamed { id, version: u64::from_le_bytes(version), deadline_ms, parts, row: rest })
}

/// The next bytes of a body.
fn take<const N: usize>(rest: &mut &[u8], cut: RecordError) -> Result<[u8; N], RecordError> {
    let (head, behind) = rest.split_first_chunk().ok_or(cut)?;
    *rest = behind;
    Ok(*head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_every_truncation_is_refused() {
        let mut out = Vec::new();
        let mut row = nigh_engine::payload::RowBuilder::new();
        row.set("a", nigh_engine::payload::Value::Int(1), 0);
        let row = row.finish();
        Effect::Payload { id: 7, version: 3, row: &row }.encode(&mut out);
        assert_eq!(
            (out.len(), decode(&out)),
            (payload_bytes(&row), Ok(Effect::Payload { id: 7, version: 3, row: &row }))
        );
        for cut in 0..out.len() {
            assert!(decode(&out[..cut]).is_err(), "cut at {cut}");
        }
        out[payload_bytes(&row) - 1] ^= 0xff;
        out[25] ^= 0xff;
        assert!(matches!(decode(&out), Err(RecordError::Row(_))));
        Effect::Payload { id: 7, version: 4, row: &[] }.encode(&mut out);
        assert_eq!(decode(&out), Ok(Effect::Payload { id: 7, version: 4, row: &[] }));
        let write =
            Effect::Write { id: 7, version: 3, deadline_ms: 99, vector: vec![1.5, -2.0].into(), row: &[] };
        write.encode(&mut out);
        assert_eq!(decode(&out).unwrap(), write);
        for cut in 0..out.len() {
            assert!(decode(&out[..cut]).is_err(), "cut at {cut}");
        }
        let parts = vec![
            (0, NamedPart::Given(vec![1.5, -2.0].into())),
            (3, NamedPart::Kept),
            (7, NamedPart::Given(vec![].into())),
        ];
        let floats = 2;
        let named = Effect::WriteNamed { id: 8, version: 2, deadline_ms: 5, parts, row: &row };
        named.encode(&mut out);
        assert_eq!((out.len(), decode(&out)), (named_bytes(3, floats, row.len()), Ok(named)));
        for cut in 0..out.len() {
            assert!(decode(&out[..cut]).is_err(), "cut at {cut}");
        }
        let twice = vec![(3, NamedPart::Kept), (3, NamedPart::Kept)];
        Effect::WriteNamed { id: 8, version: 2, deadline_ms: 5, parts: twice, row: &[] }.encode(&mut out);
        assert!(matches!(decode(&out), Err(RecordError::Length { .. })));
        Effect::Delete { id: 5 }.encode(&mut out);
        assert_eq!(decode(&out).unwrap(), Effect::Delete { id: 5 });
        for cut in 0..out.len() {
            assert!(decode(&out[..cut]).is_err(), "cut at {cut}");
        }
        assert_eq!(decode(&[9, 0]), Err(RecordError::UnknownKind(9)));
    }
}
