//! Schemas: the fields a record declares, in the bytes in which calls bring them and records keep them.

use super::cell::{TABLE, Type};
use super::error::{Fault, OperateError};
use super::op::{Policy, Segment};
use super::wire::Reader;
use super::{ROW_WIDTH_MAX, ROWS_MAX, SCHEMA_MAX, SCHEMA_NAMES_MAX};

/// A schema; borrows from its bytes.
///
/// ```text
/// schema = u16 version, u8 flags, uv nFields, field*, uv nameBytes, names
/// flags  = bit 0: names are stored
/// field  = u8 type, n?                         n:u8 of a fixed type
///        | 14, u8 keyType, n?, uv nCols, (u8 type, n?)*, uv cap, u8 policy, uv byCol
/// names  = (s8 of each field), (s8 of each column) of each table
/// ```
/// Numbers are little-endian, `uv` is LEB128. A name may be empty, which is none; others are unique among fields, and among
/// columns of a table.
#[derive(Clone, Debug)]
pub(super) struct Schema<'a> {
    /// The encoding.
    pub bytes: &'a [u8],
    pub version: u16,
    pub named: bool,
    pub fields: Vec<Field<'a>>,
    names: Names,
}

#[derive(Clone, Debug)]
pub(super) struct Field<'a> {
    /// Empty = none.
    pub name: &'a [u8],
    pub kind: FieldKind<'a>,
}

#[derive(Clone, Debug)]
pub(super) enum FieldKind<'a> {
    Cell(Type),
    Table(TableSchema<'a>),
}

/// What a schema says of a table: rows of one width, the key first.
#[derive(Clone, Debug)]
pub(super) struct TableSchema<'a> {
    /// An unsigned integer or a fixed type.
    pub key: Type,
    pub columns: Vec<Column<'a>>,
    /// Most rows; 0 = as many as a record may have.
    pub cap: u32,
    pub policy: Policy,
    /// Position of the column that the policy looks at, if it does.
    pub by_column: usize,
    /// Bytes of a row.
    pub stride: usize,
    names: Names,
}

#[derive(Clone, Debug)]
pub(super) struct Column<'a> {
    /// Empty = none.
    pub name: &'a [u8],
    /// Of fixed width.
    pub kind: Type,
    /// First byte in a row.
    pub offset: usize,
}

/// Positions that have a name, in its order.
#[derive(Clone, Debug, Default)]
struct Names(Vec<u16>);

impl Names {
    /// Of `count` positions; `None` when two have the same.
    fn of<'a>(count: usize, name: impl Fn(usize) -> &'a [u8]) -> Option<Names> {
        let mut order: Vec<u16> = (0..count).filter(|&at| !name(at).is_empty()).map(|at| at as u16).collect();
        order.sort_unstable_by_key(|&at| name(at.into()));
        let unique = order.windows(2).all(|pair| name(pair[0].into()) != name(pair[1].into()));
        unique.then_some(Names(order))
    }

    fn find<'a>(&self, wanted: &[u8], name: impl Fn(usize) -> &'a [u8]) -> Option<usize> {
        let found = self.0.binary_search_by_key(&wanted, |&at| name(at.into())).ok()?;
        Some(self.0[found].into())
    }
}

impl<'a> Schema<'a> {
    /// Reads the schema at the front of `reader`.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Schema<'a>, Fault> {
        let start = *reader;
        let version = reader.u16_le()?;
        let flags = reader.u8()?;
        if flags > 1 {
            return Err(Fault::Invalid);
        }
        let named = flags == 1;
        // A field takes a byte, so the limit on the whole bounds the allocation.
        let count = reader.count(1, SCHEMA_MAX)?;
        let mut fields = Vec::with_capacity(count);
        for _ in 0..count {
            let code = reader.u8()?;
            let kind = match code {
                TABLE => FieldKind::Table(TableSchema::read(reader)?),
                code => FieldKind::Cell(Type::read_after(code, reader)?),
            };
            fields.push(Field { name: &[], kind });
            if start.len() - reader.len() > SCHEMA_MAX {
                return Err(Fault::Cap);
            }
        }
        let names_len = reader.count(1, SCHEMA_NAMES_MAX)?;
        let mut names = Reader(reader.take(names_len)?);
        if !named && names_len != 0 {
            return Err(Fault::Invalid);
        }
        let bytes = &start.0[..start.len() - reader.len()];
        if bytes.len() - names_len > SCHEMA_MAX {
            return Err(Fault::Cap);
        }
        let mut schema = Schema { bytes, version, named, fields, names: Names::default() };
        if named {
            schema.read_names(&mut names).map_err(|_| Fault::Invalid)?;
        }
        Ok(schema)
    }

    /// Reads a schema that a call brings along, which is all of `bytes`.
    ///
    /// # Errors
    /// `SchemaInvalid`, `CapExceeded`.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Schema<'a>, OperateError> {
        if bytes.len() > SCHEMA_MAX + SCHEMA_NAMES_MAX {
            return Err(OperateError::CapExceeded);
        }
        let mut reader = Reader(bytes);
        let schema = Schema::read(&mut reader).map_err(|fault| fault.in_schema())?;
        if reader.is_empty() { Ok(schema) } else { Err(OperateError::SchemaInvalid) }
    }

    fn read_names(&mut self, names: &mut Reader<'a>) -> Result<(), Fault> {
        for field in &mut self.fields {
            field.name = names.s8()?;
        }
        for field in &mut self.fields {
            let FieldKind::Table(table) = &mut field.kind else { continue };
            for column in &mut table.columns {
                column.name = names.s8()?;
            }
            let columns = &table.columns;
            table.names = Names::of(columns.len(), |at| columns[at].name).ok_or(Fault::Invalid)?;
        }
        let fields = &self.fields;
        self.names = Names::of(fields.len(), |at| fields[at].name).ok_or(Fault::Invalid)?;
        if names.is_empty() { Ok(()) } else { Err(Fault::Invalid) }
    }

    /// Position of a field.
    ///
    /// # Errors
    /// `PathDoesNotFit` when there is none.
    pub(super) fn find(&self, segment: Segment<'_>) -> Result<usize, OperateError> {
        let found = match segment {
            Segment::Position(at) => Some(at as usize).filter(|&at| at < self.fields.len()),
            Segment::Name(name) => self.names.find(name, |at| self.fields[at].name),
        };
        found.ok_or(OperateError::PathDoesNotFit)
    }

    /// Appends a record of this schema in which everything is zero: data of fixed width, then a zero byte for each
    /// field of variable width, be it a number, a length or a count of rows.
    pub(super) fn put_zero_fields(&self, out: &mut Vec<u8>) {
        let widths = self.fields.iter().map(|field| field.kind.width());
        let (fixed, variable) = widths.fold((0, 0), |(fixed, variable), width| match width {
            Some(width) => (fixed + width, variable),
            None => (fixed, variable + 1),
        });
        out.resize(out.len() + fixed + variable, 0);
    }

    /// Whether records of this schema can become ones of `next`: a greater version; every field and column where it was,
    /// of the same type and under the same name if it had one; new ones behind them.
    ///
    /// # Errors
    /// `SchemaVersionMismatch` when the version is not greater, else `SchemaInvalid`.
    pub(super) fn check_successor(&self, next: &Schema<'_>) -> Result<(), OperateError> {
        if next.version <= self.version {
            return Err(OperateError::SchemaVersionMismatch);
        }
        let same_name = |old: &[u8], new: &[u8]| old.is_empty() || old == new;
        let follows = next.fields.len() >= self.fields.len()
            && self.fields.iter().zip(&next.fields).all(|(old, new)| {
                same_name(old.name, new.name)
                    && match (&old.kind, &new.kind) {
                        (FieldKind::Cell(old), FieldKind::Cell(new)) => old == new,
                        (FieldKind::Table(old), FieldKind::Table(new)) => {
                            let columns = old.columns.iter().zip(&new.columns);
                            old.key == new.key
                                && new.columns.len() >= old.columns.len()
                                && columns
                                    .into_iter()
                                    .all(|(old, new)| old.kind == new.kind && same_name(old.name, new.name))
                        }
                        _ => false,
                    }
            });
        if follows { Ok(()) } else { Err(OperateError::SchemaInvalid) }
    }
}

impl FieldKind<'_> {
    /// Bytes of data, when that is the same for all values.
    pub(super) fn width(&self) -> Option<usize> {
        match self {
            FieldKind::Cell(kind) => kind.width(),
            FieldKind::Table(_) => None,
        }
    }
}

impl<'a> TableSchema<'a> {
    /// Reads what follows the type code.
    fn read(reader: &mut Reader<'a>) -> Result<TableSchema<'a>, Fault> {
        let code = reader.u8()?;
        let key = Type::read_after(code, reader)?;
        if !matches!(key, Type::U8 | Type::U16 | Type::U32 | Type::U64 | Type::Fixed(_)) {
            return Err(Fault::Invalid);
        }
        let mut stride = key.width().ok_or(Fault::Invalid)?;
        let count = reader.count(1, SCHEMA_MAX)?;
        let mut columns = Vec::with_capacity(count);
        for _ in 0..count {
            let code = reader.u8()?;
            let kind = Type::read_after(code, reader)?;
            columns.push(Column { name: &[], kind, offset: stride });
            stride += kind.width().ok_or(Fault::Invalid)?;
        }
        if stride > ROW_WIDTH_MAX {
            return Err(Fault::Cap);
        }
        let cap = reader.uv()?;
        if cap > ROWS_MAX as u64 {
            return Err(Fault::Cap);
        }
        let policy = Policy::of(reader.u8()?).ok_or(Fault::Invalid)?;
        // Where no column is looked at, 0 is the one that is not.
        let by_column = usize::try_from(reader.uv()?).map_err(|_| Fault::Invalid)?;
        let names_column = by_column < columns.len() || (by_column == 0 && !policy.is_by_column());
        if !names_column {
            return Err(Fault::Invalid);
        }
        Ok(TableSchema { key, columns, cap: cap as u32, policy, by_column, stride, names: Names::default() })
    }

    /// Bytes of a row behind its key.
    pub(super) fn columns_len(&self) -> usize {
        self.stride - self.key.width().expect("keys of schemas have a width")
    }

    /// Position of a column.
    ///
    /// # Errors
    /// `PathDoesNotFit` when there is none.
    pub(super) fn find(&self, segment: Segment<'_>) -> Result<usize, OperateError> {
        let found = match segment {
            Segment::Position(at) => Some(at as usize).filter(|&at| at < self.columns.len()),
            Segment::Name(name) => self.names.find(name, |at| self.columns[at].name),
        };
        found.ok_or(OperateError::PathDoesNotFit)
    }
}
