//! Rows of tables, in the two shapes they have: columns by position in a schema record, by name in a dynamic one.

use super::cell::{Cell, Type};
use super::error::{Fault, OperateError};
use super::layered::{Key, Layered, LayeredEntry, Stored};
use super::op::Segment;
use super::schema::TableSchema;
use super::wire::{Reader, ascends, put_framed, put_s8, put_uv};
use super::{COLUMNS_MAX, DYNAMIC_RECORD, SCHEMA_RECORD};
use std::collections::BTreeMap;

/// What the rows of a table look like.
///
/// ```text
/// packed = key, data of each column
/// named  = uv rowLen, s8 key, uv nCols, (s8 name, tagged cell)* ascending by name
/// ```
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    Packed(&'a TableSchema<'a>),
    Named,
}

/// A column of a table of some shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnId<'a> {
    Position(usize),
    Name(&'a [u8]),
}

/// A row that a call has touched: what it was, and the cells that were written since. So a wide row costs what it is
/// stored in, and little more where it changes.
#[derive(Clone, Debug)]
pub(super) enum Row<'a> {
    /// `stored` are the columns of a row that was there; those of a new one are zero.
    Packed {
        schema: &'a TableSchema<'a>,
        stored: Option<&'a [u8]>,
        written: BTreeMap<usize, Cell<'a>>,
    },
    Named(Layered<'a, Cell<'a>>),
}

impl<'a> Row<'a> {
    pub(super) fn get(&self, column: ColumnId<'a>) -> Option<Cell<'a>> {
        match (self, column) {
            (Row::Packed { schema, stored, written }, ColumnId::Position(at)) => {
                let stored = || packed_cell(schema, (*stored)?, at).ok();
                written.get(&at).copied().or_else(stored).or_else(|| Some(schema.columns[at].kind.zero()))
            }
            (Row::Named(cells), ColumnId::Name(name)) => {
                cells.get(&Key::Bytes(name)).map(|cell| match cell {
                    LayeredEntry::Changed(cell) => *cell,
                    LayeredEntry::Stored(bytes) => {
                        Cell::read_tagged(&mut Reader(bytes)).expect("read when the row was")
                    }
                })
            }
            _ => unreachable!("a column of another shape than its row"),
        }
    }

    /// # Errors
    /// `CapExceeded` when there are too many columns.
    pub(super) fn set(&mut self, column: ColumnId<'a>, cell: Cell<'a>) -> Result<(), OperateError> {
        match (self, column) {
            (Row::Packed { written, .. }, ColumnId::Position(at)) => drop(written.insert(at, cell)),
            (Row::Named(cells), ColumnId::Name(name)) => {
                cells.remove(&Key::Bytes(name));
                if cells.len() == COLUMNS_MAX {
                    return Err(OperateError::CapExceeded);
                }
                cells.insert(Key::Bytes(name), cell);
            }
            _ => unreachable!("a column of another shape than its row"),
        }
        Ok(())
    }

    /// Makes the column zero, or takes it out where columns come and go.
    pub(super) fn clear(&mut self, column: ColumnId<'a>) {
        match (self, column) {
            (Row::Packed { schema, written, .. }, ColumnId::Position(at)) => {
                written.insert(at, schema.columns[at].kind.zero());
            }
            (Row::Named(cells), ColumnId::Name(name)) => drop(cells.remove(&Key::Bytes(name))),
            _ => unreachable!("a column of another shape than its row"),
        }
    }

    /// Appends the cells as a return has them: a byte for the shape, their number, then each with its type.
    pub(super) fn put_returned(&self, out: &mut Vec<u8>) {
        match self {
            Row::Packed { schema, .. } => {
                out.push(SCHEMA_RECORD);
                put_uv(out, schema.columns.len() as u64);
                let cells = (0..schema.columns.len()).filter_map(|at| self.get(ColumnId::Position(at)));
                cells.for_each(|cell| cell.put_tagged(out));
            }
            Row::Named(cells) => {
                out.push(DYNAMIC_RECORD);
                put_cells(cells, out);
            }
        }
    }
}

fn put_cells<'a>(cells: &Layered<'a, Cell<'a>>, out: &mut Vec<u8>) {
    put_uv(out, cells.len() as u64);
    cells.put(out, |out, key, cell| {
        let Key::Bytes(name) = key else { unreachable!("columns have names") };
        put_s8(out, name);
        cell.put_tagged(out);
    });
}

/// The cell at position `at` of the row whose bytes behind the key are `body`.
fn packed_cell<'a>(schema: &TableSchema<'_>, body: &'a [u8], at: usize) -> Result<Cell<'a>, Fault> {
    let column = &schema.columns[at];
    let key_len = schema.stride - body.len();
    Cell::read(column.kind, &mut Reader(&body[column.offset - key_len..]))
}

/// Whether every cell of the row whose bytes behind the key are `body` can be read.
fn check_packed(schema: &TableSchema<'_>, body: &[u8]) -> Result<(), Fault> {
    let mut reader = Reader(body);
    schema.columns.iter().try_for_each(|column| Cell::read(column.kind, &mut reader).map(drop))
}

/// Shortest named column: a name of one byte, a type, a byte of data.
const COLUMN_LEN: usize = 4;

impl<'a> Shape<'a> {
    /// # Errors
    /// `PathDoesNotFit` when the key has not the width that the schema gives keys.
    pub(super) fn key(&self, bytes: &'a [u8]) -> Result<Key<'a>, OperateError> {
        match self {
            Shape::Packed(schema) => Key::of(schema.key, bytes).ok_or(OperateError::PathDoesNotFit),
            Shape::Named => Ok(Key::Bytes(bytes)),
        }
    }

    /// # Errors
    /// `PathDoesNotFit` for columns that the schema does not have, and positions or empty names where columns have names.
    pub(super) fn column(&self, segment: Segment<'a>) -> Result<ColumnId<'a>, OperateError> {
        match self {
            Shape::Packed(schema) => schema.find(segment).map(ColumnId::Position),
            Shape::Named => named(segment).map(ColumnId::Name),
        }
    }

    /// The type that the schema gives a column.
    pub(super) fn declared(&self, column: ColumnId<'_>) -> Option<Type> {
        match (self, column) {
            (Shape::Packed(schema), ColumnId::Position(at)) => Some(schema.columns[at].kind),
            _ => None,
        }
    }

    /// A row nothing was written to.
    pub(super) fn new_row(&self) -> Row<'a> {
        match self {
            Shape::Packed(schema) => Row::Packed { schema, stored: None, written: BTreeMap::new() },
            Shape::Named => Row::Named(Layered::new(Stored::none())),
        }
    }

    /// The row whose bytes behind the key are `body`; reads all of its cells to find out whether it can.
    pub(super) fn read(&self, body: &'a [u8]) -> Result<Row<'a>, OperateError> {
        let row = match self {
            Shape::Packed(schema) => check_packed(schema, body).map(|()| Row::Packed {
                schema,
                stored: Some(body),
                written: BTreeMap::new(),
            }),
            Shape::Named => NamedCells::find(body).map(|cells| Row::Named(Layered::new(cells))),
        };
        row.map_err(Fault::in_stored)
    }

    /// Whether `body` would be read without an error.
    pub(super) fn check(&self, body: &'a [u8]) -> Result<(), OperateError> {
        let checked = match self {
            Shape::Packed(schema) => check_packed(schema, body),
            Shape::Named => {
                NamedCells::of(body).and_then(|mut cells| cells.try_for_each(|cell| cell.map(drop)))
            }
        };
        checked.map_err(Fault::in_stored)
    }

    /// One cell of the row whose bytes behind the key are `body`.
    pub(super) fn cell(
        &self,
        body: &'a [u8],
        column: ColumnId<'_>,
    ) -> Result<Option<Cell<'a>>, OperateError> {
        let cell = match (self, column) {
            (Shape::Packed(schema), ColumnId::Position(at)) => packed_cell(schema, body, at).map(Some),
            (Shape::Named, ColumnId::Name(name)) => NamedCells::of(body).and_then(|mut cells| {
                let found = cells.find(|cell| cell.is_err() || cell.is_ok_and(|(found, _)| found == name));
                found.transpose().map(|found| found.map(|(_, cell)| cell))
            }),
            _ => unreachable!("a column of another shape than its row"),
        };
        cell.map_err(Fault::in_stored)
    }

    /// Appends a row as it is stored.
    pub(super) fn put(&self, out: &mut Vec<u8>, key: &Key<'a>, row: &Row<'a>) {
        match row {
            Row::Packed { schema, stored, written } => {
                key.put(schema.key.width().expect("keys of schemas have a width"), out);
                let start = out.len();
                match stored {
                    Some(stored) => out.extend_from_slice(stored),
                    // A zero of every type of fixed width is zeros.
                    None => out.resize(start + schema.columns_len(), 0),
                }
                let end = out.len();
                for (&at, cell) in written {
                    // Written behind the row, then moved into its place.
                    cell.put(out);
                    let offset = schema.columns[at].offset + schema.columns_len() - schema.stride;
                    out.copy_within(end.., start + offset);
                    out.truncate(end);
                }
            }
            Row::Named(cells) => put_framed(out, |out| {
                let Key::Bytes(key) = key else { unreachable!("keys of named rows are bytes") };
                put_s8(out, key);
                put_cells(cells, out);
            }),
        }
    }
}

/// The name of a field or column in a dynamic record.
///
/// # Errors
/// `PathDoesNotFit` for positions, which only schemas have, and for the empty name, which in schemas means none.
pub(super) fn named(segment: Segment<'_>) -> Result<&[u8], OperateError> {
    match segment {
        Segment::Name(name) if !name.is_empty() => Ok(name),
        _ => Err(OperateError::PathDoesNotFit),
    }
}

/// Cells of a named row, `uv nCols, (s8 name, tagged cell)*`; yields nothing more after an error.
#[derive(Clone, Debug)]
pub(super) struct NamedCells<'a> {
    reader: Reader<'a>,
    left: usize,
    last: &'a [u8],
}

impl<'a> NamedCells<'a> {
    /// Of a row whose bytes behind the key are `body`.
    pub(super) fn of(body: &'a [u8]) -> Result<NamedCells<'a>, Fault> {
        let mut reader = Reader(body);
        let left = reader.count(COLUMN_LEN, COLUMNS_MAX)?;
        if left == 0 && !reader.is_empty() {
            return Err(Fault::Invalid);
        }
        Ok(NamedCells { reader, left, last: &[] })
    }

    /// Where each of them is.
    fn find(body: &'a [u8]) -> Result<Stored<'a>, Fault> {
        let mut cells = NamedCells::of(body)?;
        let mut starts = Vec::with_capacity(cells.left + 1);
        loop {
            starts.push((body.len() - cells.reader.len()) as u32);
            match cells.next() {
                Some(cell) => drop(cell?),
                None => return Ok(Stored::Keyed { bytes: body, starts, framed: false }),
            }
        }
    }

    fn read(&mut self) -> Result<(&'a [u8], Cell<'a>), Fault> {
        let name = self.reader.s8()?;
        if !ascends(self.last, name) {
            return Err(Fault::Invalid);
        }
        self.last = name;
        let cell = Cell::read_tagged(&mut self.reader)?;
        if self.left == 0 && !self.reader.is_empty() { Err(Fault::Invalid) } else { Ok((name, cell)) }
    }
}

impl<'a> Iterator for NamedCells<'a> {
    type Item = Result<(&'a [u8], Cell<'a>), Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let cell = self.read();
        if cell.is_err() {
            self.left = 0;
        }
        Some(cell)
    }
}
