//! Paths into records as people write them, and what lies there in a stored record.

use super::cell::{Cell, Type, Value};
use super::op::{Path, Segment};
use super::record::{Opened, Record, Target};
use crate::payload::ValueRef;
use std::cell::RefCell;

/// Where in a record, in text.
///
/// ```text
/// path  = part | part "/" row "/" part
/// part  = name, 1 to 255 bytes | "#" position, at most 65,535
/// row   = 1 to 20 decimal digits | '"' text, in which \" is a quote and \\ a backslash, '"'       1 to 255 bytes
/// count = part "#count"
/// ```
/// Digits are the number where rows have numbers for keys, else these digits. A name with a `/` in it, or with `#` in front,
/// can only be reached by its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    field: Part,
    column: Option<(RowKey, Part)>,
    is_count: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Position(u32),
    Name(Box<[u8]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RowKey {
    bytes: Box<[u8]>,
    /// What the digits say, little-endian, if these are digits.
    number: Option<[u8; 8]>,
}

/// Why a text is no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a path: {0}")]
pub struct PathError(&'static str);

const POSITION_MAX: u32 = 65_535;
const ROW_DIGITS_MAX: usize = 20;

impl Part {
    fn parse(text: &str) -> Result<Part, PathError> {
        if let Some(position) = text.strip_prefix('#') {
            let is_decimal = !position.is_empty() && position.bytes().all(|byte| byte.is_ascii_digit());
            let position = position.parse().ok().filter(|&position| is_decimal && position <= POSITION_MAX);
            return position.map(Part::Position).ok_or(PathError("behind # a position up to 65535"));
        }
        match text.len() {
            1..=255 => Ok(Part::Name(text.as_bytes().into())),
            _ => Err(PathError("a name has 1 to 255 bytes")),
        }
    }

    fn segment(&self) -> Segment<'_> {
        match self {
            Part::Position(position) => Segment::Position(*position),
            Part::Name(name) => Segment::Name(name),
        }
    }
}

impl RowKey {
    /// Reads the key at the front of `text`; what is behind it.
    fn parse(text: &str) -> Result<(RowKey, &str), PathError> {
        if let Some(quoted) = text.strip_prefix('"') {
            let mut key = String::new();
            let mut characters = quoted.char_indices();
            while let Some((at, character)) = characters.next() {
                match character {
                    '"' => {
                        let fits = (1..=255).contains(&key.len());
                        let key = RowKey { bytes: key.into_bytes().into(), number: None };
                        let rest = &quoted[at + 1..];
                        return fits.then_some((key, rest)).ok_or(PathError("a row has 1 to 255 bytes"));
                    }
                    '\\' => match characters.next() {
                        Some((_, escaped @ ('"' | '\\'))) => key.push(escaped),
                        _ => return Err(PathError("behind a backslash another or a quote")),
                    },
                    other => key.push(other),
                }
            }
            return Err(PathError("a quoted row without its end"));
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        if !(1..=ROW_DIGITS_MAX).contains(&digits) {
            return Err(PathError("a row is up to 20 digits or quoted"));
        }
        let (digits, rest) = text.split_at(digits);
        let number = digits.parse::<u64>().ok().map(u64::to_le_bytes);
        Ok((RowKey { bytes: digits.as_bytes().into(), number }, rest))
    }

    /// The key of a row in a table whose schema gives keys this type, if it does. `None`: no row can have it.
    fn of(&self, declared: Option<Type>) -> Option<&[u8]> {
        match (declared, &self.number) {
            (Some(Type::U8 | Type::U16 | Type::U32 | Type::U64), Some(number)) => {
                let (key, rest) = number.split_at(declared?.width()?);
                rest.iter().all(|&byte| byte == 0).then_some(key)
            }
            _ => Some(&self.bytes),
        }
    }
}

impl FieldPath {
    /// Parses a path.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<FieldPath, PathError> {
        let Some((field, rest)) = text.split_once('/') else {
            let (field, is_count) = match text.strip_suffix("#count") {
                Some(field) => (field, true),
                None => (text, false),
            };
            return Ok(FieldPath { field: Part::parse(field)?, column: None, is_count });
        };
        let (row, rest) = RowKey::parse(rest)?;
        let column = rest.strip_prefix('/').ok_or(PathError("behind a row a column"))?;
        if column.contains('/') {
            return Err(PathError("nothing lies in a column"));
        }
        let column = Some((row, Part::parse(column)?));
        Ok(FieldPath { field: Part::parse(field)?, column, is_count: false })
    }

    /// Whether it asks how many rows there are.
    pub fn is_count(&self) -> bool {
        self.is_count
    }

    /// Whether it leads to a column of a row.
    pub fn is_column(&self) -> bool {
        self.column.is_some()
    }
}

/// A stored record, for whoever only looks.
pub struct StoredRecord<'a>(Opened<'a>);

/// Its fields, read as they are asked for.
pub struct StoredFields<'a>(RefCell<Record<'a>>);

impl<'a> StoredRecord<'a> {
    /// Reads what kind of record a value is; `None` when it is none. A plain value is taken for a record only if it has the form of one
    /// (see [`Self::fields`]).
    pub fn of(stored: &'a [u8]) -> Option<StoredRecord<'a>> {
        Opened::of(stored).ok().map(StoredRecord)
    }

    /// Finds the fields, 10 ns for each; `None` when they are not those of a record.
    pub fn fields(&'a self) -> Option<StoredFields<'a>> {
        self.0.record().ok().map(|record| StoredFields(RefCell::new(record)))
    }
}

impl<'a> StoredFields<'a> {
    /// What lies at `path`, `None` where there is nothing, or where the record can have nothing.
    ///
    /// A number of rows and every integer up to 2^63 - 1 is an int, what is above a float; bytes that are UTF-8 are text, others are of
    /// a kind that equals nothing and has no order.
    pub fn get(&self, path: &'a FieldPath) -> Option<ValueRef<'a>> {
        let record = &mut *self.0.borrow_mut();
        let field = path.field.segment();
        let at = match &path.column {
            None => Path::Field(field),
            Some((row, column)) => Path::Column(field, row.of(record.key_type(field))?, column.segment()),
        };
        let count = |count: usize| Some(ValueRef::Int(i64::try_from(count).unwrap_or(i64::MAX)));
        if path.column.is_none()
            && let Some(rows) = record.rows_of(field)
        {
            return count(rows);
        }
        match (record.target(at).ok()?, path.is_count) {
            (Target::Record(rows) | Target::Table(rows), _) => count(rows),
            (Target::Row(is_there), _) => count(is_there.into()),
            (Target::Cell(cell), true) => count(cell.is_some().into()),
            (Target::Cell(cell), false) => cell.map(value_of),
        }
    }
}

fn value_of(cell: Cell<'_>) -> ValueRef<'_> {
    match cell.value {
        Value::Int(value) => i64::try_from(value).map_or(ValueRef::Float(value as f64), ValueRef::Int),
        Value::Float(value) => ValueRef::Float(value),
        Value::Bytes(bytes) => std::str::from_utf8(bytes).map_or(ValueRef::Record(bytes), ValueRef::String),
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_calls::*;
    use super::*;

    fn look<R>(stored: &[u8], path: &str, with: impl FnOnce(Option<ValueRef<'_>>) -> R) -> R {
        let path = FieldPath::parse(path).unwrap();
        let record = StoredRecord::of(stored).unwrap();
        with(record.fields().unwrap().get(&path))
    }

    #[track_caller]
    fn check(stored: &[u8], path: &str, expected: Option<ValueRef<'_>>) {
        look(stored, path, |found| assert_eq!(found, expected, "{path}"));
    }

    #[test]
    fn what_lies_in_a_dynamic_record() {
        let stored = dynamic(vec![
            op(SET, I64, field("n"), -3),
            op(SET, U64, field("max"), -1),
            op(SET, F64, field("x"), 1.5f64.to_bits() as i64),
            op_bytes(SET, BYTES, field("s"), "zwölf".as_bytes()),
            op_bytes(SET, BYTES, field("raw"), &[0xff, 0xfe]),
            op(SET, U16, column("t", b"7", "c"), 513),
            op(SET, U16, column("t", b"a/\"\\b", "c"), 5),
        ])
        .stored(None);
        check(&stored, "n", Some(ValueRef::Int(-3)));
        // An unsigned integer takes a negative operand for 0.
        check(&stored, "max", Some(ValueRef::Int(0)));
        check(&stored, "x", Some(ValueRef::Float(1.5)));
        check(&stored, "s", Some(ValueRef::String("zwölf")));
        check(&stored, "raw", Some(ValueRef::Record(&[0xff, 0xfe])));
        check(&stored, "none", None);
        check(&stored, "t", Some(ValueRef::Int(2)));
        check(&stored, "t#count", Some(ValueRef::Int(2)));
        check(&stored, "n#count", Some(ValueRef::Int(1)));
        check(&stored, "none#count", Some(ValueRef::Int(0)));
        check(&stored, "t/7/c", Some(ValueRef::Int(513)));
        check(&stored, "t/07/c", None);
        check(&stored, "t/\"7\"/c", Some(ValueRef::Int(513)));
        check(&stored, "t/\"a/\\\"\\\\b\"/c", Some(ValueRef::Int(5)));
        check(&stored, "t/7/d", None);
        check(&stored, "none/7/c", None);
        // Neither positions nor cells with rows.
        check(&stored, "#0", None);
        check(&stored, "n/7/c", None);
    }

    #[test]
    fn what_lies_in_a_schema_record() {
        let columns = vec![("c", U64, 0), ("", U8, 0)];
        let table = TestField::Table { key: (U16, 0), columns, cap: 0, policy: 0, by: 0 };
        let fixed =
            TestField::Table { key: (FIXED, 2), columns: vec![("c", U8, 0)], cap: 0, policy: 0, by: 0 };
        let blob = schema(1, &[("n", TestField::Cell(U64, 0)), ("t", table), ("f", fixed)]);
        let stored = with_schema(
            &blob,
            vec![
                op(SET, ANY, field("n"), 9),
                op(SET, ANY, column("t", &[1, 2], "c"), 77),
                op(SET, ANY, column("t", &[1, 2], 1u32), 6),
                op(SET, ANY, column("f", b"12", "c"), 4),
            ],
        )
        .stored(None);
        check(&stored, "n", Some(ValueRef::Int(9)));
        check(&stored, "#0", Some(ValueRef::Int(9)));
        check(&stored, "#1", Some(ValueRef::Int(1)));
        check(&stored, "#1#count", Some(ValueRef::Int(1)));
        check(&stored, "t/513/c", Some(ValueRef::Int(77)));
        check(&stored, "t/00513/c", Some(ValueRef::Int(77)));
        check(&stored, "#1/513/#1", Some(ValueRef::Int(6)));
        check(&stored, "t/\"\u{1}\u{2}\"/c", Some(ValueRef::Int(77)));
        check(&stored, "f/12/c", Some(ValueRef::Int(4)));
        for absent in
            ["#3", "m", "t/66049/c", "t/514/c", "t/99999999999999999999/c", "t/513/d", "f/123/c", "n/1/c"]
        {
            check(&stored, absent, None);
        }
        assert!(StoredRecord::of(b"plain").is_none() && StoredRecord::of(b"").is_none());
        assert!(StoredRecord::of(&stored[..stored.len() - 1]).unwrap().fields().is_none());
        assert!(StoredRecord::of(b"\x02\x05plain").unwrap().fields().is_none());
        let large = ValueRef::Float(u64::MAX as f64);
        check(
            &dynamic(vec![op(MAX, 10, field("n"), 1), op(SHL, 10, field("n"), 64)]).stored(None),
            "n",
            Some(large),
        );
    }

    #[test]
    fn paths_that_are_none() {
        let long = "x".repeat(256);
        for text in [
            "",
            "#",
            "#x",
            "#65536",
            "#-1",
            "#+1",
            "#count",
            "/1/c",
            "t/",
            "t/1",
            "t/1/",
            "t/x/c",
            "t/1c/d",
            "t//c",
            "t/\"\"/c",
            "t/\"a/c",
            "t/\"a\\n\"/c",
            "t/123456789012345678901/c",
            "t/1/c/d",
            &long,
        ] {
            assert!(FieldPath::parse(text).is_err(), "{text}");
        }
        for text in ["a", "#65535", "a#b", "a#count", "#1#count", "a b", "é", &long[1..]] {
            let path = FieldPath::parse(text).unwrap();
            assert_eq!((path.is_count(), path.is_column()), (text.ends_with("#count"), false));
        }
        assert!(FieldPath::parse("t/1/c#count").unwrap().is_column());
    }
}
