//! What becomes of keys, as bytes: the body of a log record, and of a block of an image.
//!
//! ```text
//! record   = effect*
//! set      = 1 key_len:u16 value_len:u32 deadline_ms:u64 key value
//! deadline = 2 key_len:u16 deadline_ms:u64 key
//! delete   = 3 key_len:u16 key
//! flush    = 4
//! ```
//! Little-endian. Deadlines are absolute, so that replay never prolongs a life. Kinds are never reused. A record is applied whole or not
//! at all: what a write displaced and the write itself stand in one.

use nigh_engine::kv::Effect;
use std::borrow::Cow;

const KIND_SET: u8 = 1;
const KIND_DEADLINE: u8 = 2;
const KIND_DELETE: u8 = 3;
const KIND_FLUSH: u8 = 4;

/// Bytes of a set around its key and its value.
const SET_BYTES: usize = 15;

/// Why bytes under a good checksum are no effects: a newer writer, or our own bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Unknown kind.
    #[error("unknown kind of effect on keys, {0}")]
    UnknownKind(u8),
    /// They end inside an effect.
    #[error("an effect on keys is cut short")]
    Short,
}

/// Bytes that [`put`] appends.
pub fn effect_bytes(effect: &Effect<'_>) -> usize {
    match effect {
        Effect::Set { key, value, .. } => SET_BYTES + key.len() + value.len(),
        Effect::Deadline { key, .. } => 11 + key.len(),
        Effect::Delete { key } => 3 + key.len(),
        Effect::Flush => 1,
    }
}

/// Appends an effect. Keys and values are as long as a store takes them.
pub fn put(out: &mut Vec<u8>, effect: &Effect<'_>) {
    match effect {
        Effect::Set { key, value, deadline_ms } => {
            out.reserve(SET_BYTES + key.len() + value.len());
            out.push(KIND_SET);
            out.extend_from_slice(&(key.len() as u16).to_le_bytes());
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(&deadline_ms.to_le_bytes());
            out.extend_from_slice(key);
            out.extend_from_slice(value);
        }
        Effect::Deadline { key, deadline_ms } => {
            out.push(KIND_DEADLINE);
            out.extend_from_slice(&(key.len() as u16).to_le_bytes());
            out.extend_from_slice(&deadline_ms.to_le_bytes());
            out.extend_from_slice(key);
        }
        Effect::Delete { key } => {
            out.push(KIND_DELETE);
            out.extend_from_slice(&(key.len() as u16).to_le_bytes());
            out.extend_from_slice(key);
        }
        Effect::Flush => out.push(KIND_FLUSH),
    }
}

/// The effects of a record, in order. Ends after the first error.
pub struct Effects<'a> {
    rest: &'a [u8],
}

impl<'a> Effects<'a> {
    /// Of these bytes. Never panics and allocates nothing, whatever they are.
    pub fn of(record: &'a [u8]) -> Effects<'a> {
        Effects { rest: record }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], RecordError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(RecordError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(RecordError::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn key_len(&mut self) -> Result<usize, RecordError> {
        Ok(u16::from_le_bytes(self.number()?).into())
    }

    fn effect(&mut self) -> Result<Effect<'a>, RecordError> {
        let [kind] = self.number()?;
        Ok(match kind {
            KIND_SET => {
                let key_len = self.key_len()?;
                let value_len = u32::from_le_bytes(self.number()?) as usize;
                let deadline_ms = u64::from_le_bytes(self.number()?);
                Effect::Set {
                    key: self.take(key_len)?,
                    value: Cow::Borrowed(self.take(value_len)?),
                    deadline_ms,
                }
            }
            KIND_DEADLINE => {
                let key_len = self.key_len()?;
                let deadline_ms = u64::from_le_bytes(self.number()?);
                Effect::Deadline { key: self.take(key_len)?, deadline_ms }
            }
            KIND_DELETE => {
                let key_len = self.key_len()?;
                Effect::Delete { key: self.take(key_len)? }
            }
            KIND_FLUSH => Effect::Flush,
            kind => return Err(RecordError::UnknownKind(kind)),
        })
    }
}

impl<'a> Iterator for Effects<'a> {
    type Item = Result<Effect<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let effect = self.effect();
        if effect.is_err() {
            self.rest = &[];
        }
        Some(effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Result<Vec<Effect<'_>>, RecordError> {
        Effects::of(bytes).collect()
    }

    #[test]
    fn effects_round_trip_and_every_truncation_is_seen() {
        let long = vec![7; 70_000];
        let effects = [
            Effect::Delete { key: b"gone" },
            Effect::Set { key: b"k", value: Cow::Borrowed(b"value"), deadline_ms: 99 },
            Effect::Set { key: b"", value: Cow::Borrowed(&long), deadline_ms: 0 },
            Effect::Deadline { key: b"k", deadline_ms: u64::MAX },
            Effect::Flush,
        ];
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        for effect in &effects {
            put(&mut bytes, effect);
            assert_eq!(bytes.len(), ends[ends.len() - 1] + effect_bytes(effect));
            ends.push(bytes.len());
        }
        assert_eq!(decoded(&bytes).unwrap(), effects);
        for cut in 0..bytes.len() {
            match ends.iter().position(|&end| end == cut) {
                Some(whole) => assert_eq!(decoded(&bytes[..cut]).unwrap(), effects[..whole]),
                None => assert_eq!(decoded(&bytes[..cut]), Err(RecordError::Short), "cut at {cut}"),
            }
        }
        assert_eq!(decoded(&[4, 9]), Err(RecordError::UnknownKind(9)));
    }
}
