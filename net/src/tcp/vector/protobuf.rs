//! Reading messages of protocol buffers, as far as a query needs them: fields in any order, unknown ones skipped, the last
//! of repeated scalars wins, lists packed or not.

use crate::request::ApiError;
use crate::tcp::reader::invalid;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<'a> {
    /// Integers, booleans, enums.
    Varint(u64),
    /// Eight bytes.
    Fixed64([u8; 8]),
    /// Texts, messages, packed lists.
    Bytes(&'a [u8]),
    /// Four bytes.
    Fixed32([u8; 4]),
}

/// The fields of one message, in the order in which they lie.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a>(&'a [u8]);

fn malformed(reason: &str) -> ApiError {
    invalid("QuerySpec", reason)
}

/// A varint from the front of `bytes`.
fn varint(bytes: &mut &[u8]) -> Result<u64, ApiError> {
    let mut value = 0_u64;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or_else(|| malformed("truncated"))?;
        *bytes = rest;
        // Bits beyond the 64th are dropped, as every reader of these does.
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(malformed("a number of more than ten bytes"))
}

impl<'a> Message<'a> {
    /// Of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Message(bytes)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], ApiError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or_else(|| malformed("truncated"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ApiError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or_else(|| malformed("truncated"))?;
        self.0 = rest;
        Ok(*taken)
    }

    /// The next field with its number; `None` at the end.
    ///
    /// # Errors
    /// A bad request.
    pub fn next(&mut self) -> Result<Option<(u64, Field<'a>)>, ApiError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = varint(&mut self.0)?;
        let field = match key & 7 {
            0 => Field::Varint(varint(&mut self.0)?),
            1 => Field::Fixed64(self.array()?),
            2 => {
                let len = usize::try_from(varint(&mut self.0)?).map_err(|_| malformed("truncated"))?;
                Field::Bytes(self.take(len)?)
            }
            5 => Field::Fixed32(self.array()?),
            _ => return Err(malformed("a field of no known type")),
        };
        match key >> 3 {
            0 => Err(malformed("a field without a number")),
            number => Ok(Some((number, field))),
        }
    }
}

impl<'a> Field<'a> {
    fn other(name: &str) -> ApiError {
        malformed(&format!("{name} has another type"))
    }

    /// # Errors
    /// When it is no bytes, as below for the other types.
    pub fn message(self, name: &str) -> Result<Message<'a>, ApiError> {
        self.bytes(name).map(Message)
    }

    fn bytes(self, name: &str) -> Result<&'a [u8], ApiError> {
        match self {
            Field::Bytes(bytes) => Ok(bytes),
            _ => Err(Field::other(name)),
        }
    }

    pub fn text(self, name: &str) -> Result<&'a str, ApiError> {
        std::str::from_utf8(self.bytes(name)?).map_err(|_| malformed(&format!("{name} is not UTF-8")))
    }

    pub fn u64(self, name: &str) -> Result<u64, ApiError> {
        match self {
            Field::Varint(value) => Ok(value),
            _ => Err(Field::other(name)),
        }
    }

    /// Of 32 bits, with its sign.
    pub fn i32(self, name: &str) -> Result<i64, ApiError> {
        Ok((self.u64(name)? as i32).into())
    }

    pub fn f64(self, name: &str) -> Result<f64, ApiError> {
        match self {
            Field::Fixed64(bytes) => Ok(f64::from_le_bytes(bytes)),
            _ => Err(Field::other(name)),
        }
    }

    /// Appends the items of a list of floats, one or packed.
    pub fn floats(self, name: &str, list: &mut Vec<f32>) -> Result<(), ApiError> {
        match self {
            Field::Fixed32(bytes) => list.push(f32::from_le_bytes(bytes)),
            Field::Bytes(bytes) => {
                let (items, rest) = bytes.as_chunks::<4>();
                if !rest.is_empty() {
                    return Err(malformed(&format!("{name} ends within a float")));
                }
                list.extend(items.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            }
            _ => return Err(Field::other(name)),
        }
        Ok(())
    }

    /// Appends the items of a list of integers, one or packed; more than `most` are refused.
    pub fn integers(self, name: &str, list: &mut Vec<u64>, most: usize) -> Result<(), ApiError> {
        match self {
            Field::Varint(value) => list.push(value),
            Field::Bytes(mut bytes) => {
                while !bytes.is_empty() && list.len() <= most {
                    list.push(varint(&mut bytes)?);
                }
            }
            _ => return Err(Field::other(name)),
        }
        match list.len() > most {
            true => Err(ApiError::invalid(format!("a lane may have at most {most} {name}"))),
            false => Ok(()),
        }
    }
}
