//! Cells: the types a value can have, and a value with its type.

use super::error::Fault;
use super::wire::{Reader, put_uv};
use std::cmp::Ordering;

/// Type code of a table.
pub(super) const TABLE: u8 = 14;
/// Type code of nothing: what a return says of a path that is absent.
pub(super) const UNSET: u8 = 15;
/// In a call: the type the cell has.
pub(super) const AS_STORED: u8 = 255;
/// Longest value of type bytes.
pub(super) const BYTES_MAX: usize = 65_535;

const FIXED: u8 = 13;
/// Zeros for every width of a fixed cell.
static ZEROS: [u8; 255] = [0; 255];
/// The one NaN that is stored.
const NAN_32: u32 = 0x7fc0_0000;
const NAN_64: u64 = 0x7ff8_0000_0000_0000;

/// Type of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
    Uvarint,
    Ivarint,
    Bytes,
    /// So many bytes, 1 to 255.
    Fixed(u8),
}

/// Types among which a value can be carried over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Domain {
    Int,
    Float,
    Bytes,
}

/// Types by code; that of fixed has a width beside it.
const BY_CODE: [Type; 13] = [
    Type::U8,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::I8,
    Type::I16,
    Type::I32,
    Type::I64,
    Type::F32,
    Type::F64,
    Type::Uvarint,
    Type::Ivarint,
    Type::Bytes,
];

impl Type {
    /// The type with this code; `fixed_len` is the width if it is a fixed one. `None` for codes of no cell, and for widths
    /// that no fixed cell has.
    pub(super) fn of(code: u8, fixed_len: usize) -> Option<Type> {
        if code == FIXED {
            return u8::try_from(fixed_len).ok().filter(|&len| len > 0).map(Type::Fixed);
        }
        BY_CODE.get(usize::from(code)).copied()
    }

    /// The byte that names the type.
    pub(super) fn code(self) -> u8 {
        match self {
            Type::U8 => 0,
            Type::U16 => 1,
            Type::U32 => 2,
            Type::U64 => 3,
            Type::I8 => 4,
            Type::I16 => 5,
            Type::I32 => 6,
            Type::I64 => 7,
            Type::F32 => 8,
            Type::F64 => 9,
            Type::Uvarint => 10,
            Type::Ivarint => 11,
            Type::Bytes => 12,
            Type::Fixed(_) => FIXED,
        }
    }

    /// What follows a code: the width of a fixed type. Codes of no cell are invalid.
    pub(super) fn read_after(code: u8, reader: &mut Reader<'_>) -> Result<Type, Fault> {
        let len = if code == FIXED { reader.u8()? } else { 0 };
        Type::of(code, len.into()).ok_or(Fault::Invalid)
    }

    /// Appends code and, of a fixed type, width.
    pub(super) fn put(self, out: &mut Vec<u8>) {
        out.push(self.code());
        if let Type::Fixed(len) = self {
            out.push(len);
        }
    }

    pub(super) fn domain(self) -> Domain {
        match self {
            Type::F32 | Type::F64 => Domain::Float,
            Type::Bytes | Type::Fixed(_) => Domain::Bytes,
            _ => Domain::Int,
        }
    }

    /// Bytes of data, when that is the same for all values.
    pub(super) fn width(self) -> Option<usize> {
        match self {
            Type::U8 | Type::I8 => Some(1),
            Type::U16 | Type::I16 => Some(2),
            Type::U32 | Type::I32 | Type::F32 => Some(4),
            Type::U64 | Type::I64 | Type::F64 => Some(8),
            Type::Fixed(len) => Some(len.into()),
            Type::Uvarint | Type::Ivarint | Type::Bytes => None,
        }
    }

    /// Least and greatest value of an integer type.
    pub(super) fn bounds(self) -> (i128, i128) {
        match self {
            Type::U8 => (0, u8::MAX.into()),
            Type::U16 => (0, u16::MAX.into()),
            Type::U32 => (0, u32::MAX.into()),
            Type::I8 => (i8::MIN.into(), i8::MAX.into()),
            Type::I16 => (i16::MIN.into(), i16::MAX.into()),
            Type::I32 => (i32::MIN.into(), i32::MAX.into()),
            Type::I64 | Type::Ivarint => (i64::MIN.into(), i64::MAX.into()),
            _ => (0, u64::MAX.into()),
        }
    }

    /// Zero, or no bytes.
    pub(super) fn zero(self) -> Cell<'static> {
        let value = match self {
            Type::F32 | Type::F64 => Value::Float(0.0),
            Type::Bytes => Value::Bytes(&[]),
            Type::Fixed(len) => Value::Bytes(&ZEROS[..usize::from(len)]),
            _ => Value::Int(0),
        };
        Cell { kind: self, value }
    }
}

/// What a cell holds. An integer lies within the bounds of its type, a float is one its type can hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Int(i128),
    Float(f64),
    Bytes(&'a [u8]),
}

/// A value with its type, of the type's domain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell<'a> {
    pub kind: Type,
    pub value: Value<'a>,
}

impl<'a> Cell<'a> {
    /// The integer of this type nearest to `value`.
    pub(super) fn int(kind: Type, value: i128) -> Cell<'a> {
        let (least, greatest) = kind.bounds();
        Cell { kind, value: Value::Int(value.clamp(least, greatest)) }
    }

    /// The float of this type nearest to `value`.
    pub(super) fn float(kind: Type, value: f64) -> Cell<'a> {
        let value = if kind == Type::F32 { f64::from(value as f32) } else { value };
        Cell { kind, value: Value::Float(value) }
    }

    /// Reads the data of a cell of type `kind`.
    pub(super) fn read(kind: Type, reader: &mut Reader<'a>) -> Result<Cell<'a>, Fault> {
        let value = match kind {
            Type::Bytes => {
                let len = reader.count(1, BYTES_MAX)?;
                Value::Bytes(reader.take(len)?)
            }
            Type::Fixed(len) => Value::Bytes(reader.take(len.into())?),
            Type::Uvarint => Value::Int(reader.uv()?.into()),
            Type::Ivarint => {
                let zigzag = reader.uv()?;
                Value::Int(((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64)).into())
            }
            Type::F32 => {
                let bits = u32::from_le_bytes(reader.array()?);
                let value = f32::from_bits(bits);
                if value.is_nan() && bits != NAN_32 {
                    return Err(Fault::Invalid);
                }
                Value::Float(value.into())
            }
            Type::F64 => {
                let bits = u64::from_le_bytes(reader.array()?);
                let value = f64::from_bits(bits);
                if value.is_nan() && bits != NAN_64 {
                    return Err(Fault::Invalid);
                }
                Value::Float(value)
            }
            Type::U8 => Value::Int(u8::from_le_bytes(reader.array()?).into()),
            Type::U16 => Value::Int(u16::from_le_bytes(reader.array()?).into()),
            Type::U32 => Value::Int(u32::from_le_bytes(reader.array()?).into()),
            Type::U64 => Value::Int(u64::from_le_bytes(reader.array()?).into()),
            Type::I8 => Value::Int(i8::from_le_bytes(reader.array()?).into()),
            Type::I16 => Value::Int(i16::from_le_bytes(reader.array()?).into()),
            Type::I32 => Value::Int(i32::from_le_bytes(reader.array()?).into()),
            Type::I64 => Value::Int(i64::from_le_bytes(reader.array()?).into()),
        };
        Ok(Cell { kind, value })
    }

    /// Reads type and data.
    pub(super) fn read_tagged(reader: &mut Reader<'a>) -> Result<Cell<'a>, Fault> {
        let code = reader.u8()?;
        let kind = Type::read_after(code, reader)?;
        Cell::read(kind, reader)
    }

    /// Appends the data.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        match (self.kind, self.value) {
            (Type::Uvarint, Value::Int(value)) => put_uv(out, value as u64),
            (Type::Ivarint, Value::Int(value)) => {
                let value = value as i64;
                put_uv(out, ((value << 1) ^ (value >> 63)) as u64);
            }
            (kind, Value::Int(value)) => {
                let width = kind.width().expect("varints are written above");
                out.extend_from_slice(&(value as u64).to_le_bytes()[..width]);
            }
            (Type::F32, Value::Float(value)) => {
                let bits = if value.is_nan() { NAN_32 } else { (value as f32).to_bits() };
                out.extend_from_slice(&bits.to_le_bytes());
            }
            (_, Value::Float(value)) => {
                let bits = if value.is_nan() { NAN_64 } else { value.to_bits() };
                out.extend_from_slice(&bits.to_le_bytes());
            }
            (kind, Value::Bytes(bytes)) => {
                if kind == Type::Bytes {
                    put_uv(out, bytes.len() as u64);
                }
                out.extend_from_slice(bytes);
            }
        }
    }

    /// Appends type and data.
    pub(super) fn put_tagged(&self, out: &mut Vec<u8>) {
        self.kind.put(out);
        self.put(out);
    }

    /// This value as one of another type of the same domain: integers saturate, floats round, bytes keep their length.
    /// `None` when the domain differs or a fixed width does not fit.
    pub(super) fn convert(&self, kind: Type) -> Option<Cell<'a>> {
        match self.value {
            Value::Int(value) if kind.domain() == Domain::Int => Some(Cell::int(kind, value)),
            Value::Float(value) if kind.domain() == Domain::Float => Some(Cell::float(kind, value)),
            Value::Bytes(bytes) => match kind {
                Type::Bytes => Some(Cell { kind, value: self.value }),
                Type::Fixed(len) if bytes.len() == usize::from(len) => Some(Cell { kind, value: self.value }),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Where a cell stands in the order in which rows are evicted: numbers by value, whatever their type, then NaN, then bytes.
///
/// Unlike the comparisons of IF and CHECK, for which NaN equals everything, this is a total order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rank<'a> {
    Unsigned(u64),
    Negative(i64),
    Float(f64),
    Bytes(&'a [u8]),
}

impl<'a> From<Cell<'a>> for Rank<'a> {
    fn from(cell: Cell<'a>) -> Rank<'a> {
        match cell.value {
            Value::Int(value) if value < 0 => Rank::Negative(value as i64),
            Value::Int(value) => Rank::Unsigned(value as u64),
            Value::Float(value) => Rank::Float(value),
            Value::Bytes(bytes) => Rank::Bytes(bytes),
        }
    }
}

impl Rank<'_> {
    fn int(&self) -> Option<i128> {
        match *self {
            Rank::Unsigned(value) => Some(value.into()),
            Rank::Negative(value) => Some(value.into()),
            _ => None,
        }
    }
}

impl Ord for Rank<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Rank::Bytes(a), Rank::Bytes(b)) => a.cmp(b),
            (Rank::Bytes(_), _) => Ordering::Greater,
            (_, Rank::Bytes(_)) => Ordering::Less,
            (Rank::Float(a), Rank::Float(b)) => {
                a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
            }
            (Rank::Float(a), b) => int_against_float(b.int().expect("neither bytes nor float"), *a).reverse(),
            (a, Rank::Float(b)) => int_against_float(a.int().expect("neither bytes nor float"), *b),
            (a, b) => a.int().cmp(&b.int()),
        }
    }
}

impl PartialOrd for Rank<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Rank<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Rank<'_> {}

/// Exactly, without rounding the integer, which is one of 64 bits.
fn int_against_float(int: i128, float: f64) -> Ordering {
    if float.is_nan() {
        return Ordering::Less;
    }
    // Beyond these bounds a float is beyond every integer; within, its whole part is one exactly.
    let bound = 2f64.powi(65);
    if float >= bound {
        return Ordering::Less;
    }
    if float <= -bound {
        return Ordering::Greater;
    }
    let whole = float.trunc();
    int.cmp(&(whole as i128))
        .then_with(|| 0f64.partial_cmp(&(float - whole)).expect("a difference of finite numbers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_in_one_order() {
        let cell = |kind: Type, value| Cell { kind, value };
        let ascending = [
            cell(Type::F64, Value::Float(f64::NEG_INFINITY)),
            cell(Type::I64, Value::Int(i64::MIN.into())),
            cell(Type::F64, Value::Float(-1.5)),
            cell(Type::I8, Value::Int(-1)),
            cell(Type::F32, Value::Float(-0.5)),
            cell(Type::U8, Value::Int(0)),
            cell(Type::F64, Value::Float(0.5)),
            cell(Type::F64, Value::Float((1u64 << 53) as f64)),
            // Not a number a float of 64 bits can hold.
            cell(Type::U64, Value::Int((1 << 53) + 1)),
            cell(Type::U64, Value::Int(u64::MAX.into())),
            cell(Type::F64, Value::Float(2f64.powi(64))),
            cell(Type::F64, Value::Float(f64::INFINITY)),
            cell(Type::F64, Value::Float(f64::NAN)),
            cell(Type::Bytes, Value::Bytes(b"")),
            cell(Type::Fixed(1), Value::Bytes(b"a")),
        ];
        for (i, &a) in ascending.iter().enumerate() {
            for (j, &b) in ascending.iter().enumerate() {
                assert_eq!(Rank::from(a).cmp(&b.into()), i.cmp(&j), "{a:?} against {b:?}");
            }
        }
        let zeros = [Rank::Unsigned(0), Rank::Float(0.0), Rank::Float(-0.0)];
        assert!(zeros.iter().all(|a| zeros.iter().all(|b| a == b)));
    }

    #[test]
    fn only_one_nan_is_stored() {
        for kind in [Type::F32, Type::F64] {
            let width = kind.width().unwrap();
            let mut out = Vec::new();
            Cell::float(kind, f64::from_bits(0xfff0_0000_0000_0001)).put(&mut out);
            let expected: &[u8] =
                if width == 4 { &[0, 0, 0xc0, 0x7f] } else { &[0, 0, 0, 0, 0, 0, 0xf8, 0x7f] };
            assert_eq!(out, expected);
            assert!(Cell::read(kind, &mut Reader(&out)).is_ok());
            out[0] = 1;
            assert_eq!(Cell::read(kind, &mut Reader(&out)), Err(Fault::Invalid));
        }
    }
}
