//! Records: stored bytes in, parts changed, stored bytes out.

use super::cell::{Cell, TABLE, Type};
use super::error::{Fault, OperateError};
use super::layered::{Key, Layered, LayeredEntry, Stored};
use super::op::{Path, Policy, Segment};
use super::row::{ColumnId, Row, Shape, named};
use super::schema::{FieldKind, Schema};
use super::table::{Limit, NamedTable, Table, Work};
use super::wire::{Reader, ascends, put_s8, put_uv};
use super::{DYNAMIC_RECORD, FIELDS_MAX, RECORD_MAX, ROWS_MAX, SCHEMA_RECORD};

/// A stored record, cut where its fields begin.
#[derive(Clone, Debug)]
pub(super) struct Opened<'a> {
    /// Of a schema record.
    pub schema: Option<Schema<'a>>,
    /// Everything behind it.
    pub fields: &'a [u8],
}

/// A record as a call works on it.
#[derive(Clone, Debug)]
pub(super) struct Record<'a> {
    fields: Fields<'a>,
    /// Rows of all tables.
    rows: usize,
    /// Whether anything was written, if only what was there before.
    pub written: bool,
}

#[derive(Clone, Debug)]
enum Fields<'a> {
    /// One each, in the order of the schema.
    Schema(&'a Schema<'a>, Vec<SchemaField<'a>>),
    /// By name.
    Dynamic(Layered<'a, Field<'a>>),
}

#[derive(Clone, Debug)]
enum SchemaField<'a> {
    Read(Field<'a>),
    /// Rows of a table that was not touched.
    Rows(&'a [u8]),
}

#[derive(Clone, Debug)]
enum Field<'a> {
    Cell(Cell<'a>),
    Table(Box<Table<'a>>),
}

/// What lies at a path.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    /// The record, of so many fields.
    Record(usize),
    /// A table, of so many rows.
    Table(usize),
    /// A row that is there, or not.
    Row(bool),
    /// A cell, or nothing.
    Cell(Option<Cell<'a>>),
}

/// A field of a dynamic record as it is stored.
pub(super) enum DynamicField<'a> {
    Cell(Cell<'a>),
    Table(NamedTable<'a>),
}

impl<'a> DynamicField<'a> {
    /// Reads `u8 type`, then the rest of a cell or a table.
    fn read(reader: &mut Reader<'a>) -> Result<DynamicField<'a>, Fault> {
        match reader.u8()? {
            TABLE => NamedTable::read(reader).map(DynamicField::Table),
            code => {
                let kind = Type::read_after(code, reader)?;
                Cell::read(kind, reader).map(DynamicField::Cell)
            }
        }
    }

    fn rows(&self) -> usize {
        match self {
            DynamicField::Cell(_) => 0,
            DynamicField::Table(table) => table.count,
        }
    }

    fn load(self) -> Result<Field<'a>, OperateError> {
        Ok(match self {
            DynamicField::Cell(cell) => Field::Cell(cell),
            DynamicField::Table(table) => Field::Table(table.load()?.into()),
        })
    }
}

/// The field whose bytes behind the name are `body`.
fn read_dynamic(body: &[u8]) -> Result<DynamicField<'_>, OperateError> {
    DynamicField::read(&mut Reader(body)).map_err(Fault::in_stored)
}

/// Shortest field of a dynamic record: a name of one byte, a type, a byte of data.
const FIELD_LEN: usize = 4;

impl<'a> Opened<'a> {
    /// Reads the mode of a stored record and, if it has one, its schema.
    ///
    /// # Errors
    /// `StoredRecordMalformed`.
    pub(super) fn of(stored: &'a [u8]) -> Result<Opened<'a>, OperateError> {
        let mut reader = Reader(stored);
        let schema = match reader.u8() {
            _ if stored.len() > RECORD_MAX => return Err(OperateError::StoredRecordMalformed),
            Ok(SCHEMA_RECORD) => Some(Schema::read(&mut reader).map_err(Fault::in_stored)?),
            Ok(DYNAMIC_RECORD) => None,
            _ => return Err(OperateError::StoredRecordMalformed),
        };
        Ok(Opened { schema, fields: reader.0 })
    }

    /// Finds all fields and reads those that are cells; tables are measured but not looked into. 10 ns per field.
    ///
    /// # Errors
    /// `StoredRecordMalformed`.
    pub(super) fn record(&'a self) -> Result<Record<'a>, OperateError> {
        let record = match &self.schema {
            Some(schema) => self.schema_record(schema),
            None => self.dynamic_record(),
        };
        record.map_err(Fault::in_stored)
    }

    fn schema_record(&'a self, schema: &'a Schema<'a>) -> Result<Record<'a>, Fault> {
        let mut fixed = Reader(self.fields);
        let fixed_len = schema.fields.iter().filter_map(|field| field.kind.width()).sum();
        let mut variable = fixed;
        variable.take(fixed_len)?;
        let mut fields = Vec::with_capacity(schema.fields.len());
        let mut rows = 0;
        for field in &schema.fields {
            fields.push(match &field.kind {
                FieldKind::Cell(kind) => {
                    let reader = if kind.width().is_some() { &mut fixed } else { &mut variable };
                    SchemaField::Read(Field::Cell(Cell::read(*kind, reader)?))
                }
                FieldKind::Table(table) => {
                    let bytes = table.take_rows(&mut variable)?;
                    rows += bytes.len() / table.stride;
                    SchemaField::Rows(bytes)
                }
            });
        }
        if !variable.is_empty() || rows > ROWS_MAX {
            return Err(Fault::Invalid);
        }
        Ok(Record { fields: Fields::Schema(schema, fields), rows, written: false })
    }

    fn dynamic_record(&'a self) -> Result<Record<'a>, Fault> {
        let mut reader = Reader(self.fields);
        let count = reader.count(FIELD_LEN, FIELDS_MAX)?;
        let mut starts = Vec::with_capacity(count + 1);
        let mut rows = 0;
        let mut last: &[u8] = &[];
        for _ in 0..count {
            starts.push((self.fields.len() - reader.len()) as u32);
            let name = reader.s8()?;
            if !ascends(last, name) {
                return Err(Fault::Invalid);
            }
            last = name;
            rows += DynamicField::read(&mut reader)?.rows();
        }
        if !reader.is_empty() || rows > ROWS_MAX {
            return Err(Fault::Invalid);
        }
        starts.push(self.fields.len() as u32);
        let stored = Stored::Keyed { bytes: self.fields, starts, framed: false };
        Ok(Record { fields: Fields::Dynamic(Layered::new(stored)), rows, written: false })
    }
}

impl<'a> Record<'a> {
    /// Fields: those of the schema, or those that were written.
    pub(super) fn len(&self) -> usize {
        match &self.fields {
            Fields::Schema(_, fields) => fields.len(),
            Fields::Dynamic(fields) => fields.len(),
        }
    }

    /// Whether it is a dynamic record without fields, which is not kept.
    pub(super) fn is_empty(&self) -> bool {
        self.is_dynamic() && self.len() == 0
    }

    fn is_dynamic(&self) -> bool {
        matches!(self.fields, Fields::Dynamic(_))
    }

    /// What lies at `path`; changes nothing.
    ///
    /// # Errors
    /// `PathDoesNotFit`: a field or column that the schema does not have; in a dynamic record, one without a name; a row or
    /// column of something that is no table; a row key of the wrong width. `StoredRecordMalformed`.
    pub(super) fn target(&mut self, path: Path<'a>) -> Result<Target<'a>, OperateError> {
        self.check_names(path)?;
        Ok(match path {
            Path::Record => Target::Record(self.len()),
            Path::Field(field) => match self.field(field)? {
                None => Target::Cell(None),
                Some(Field::Cell(cell)) => Target::Cell(Some(*cell)),
                Some(Field::Table(table)) => Target::Table(table.len()),
            },
            Path::Row(field, key) => match self.table(field)? {
                None => Target::Row(false),
                Some(table) => Target::Row(table.contains(table.shape.key(key)?)),
            },
            Path::Column(field, key, column) => match self.table(field)? {
                None => Target::Cell(None),
                Some(table) => {
                    let column = table.shape.column(column)?;
                    let row = table.row(table.shape.key(key)?)?;
                    Target::Cell(row.and_then(|row| row.get(column)))
                }
            },
        })
    }

    /// The type that a schema gives the cell at `path`.
    ///
    /// # Errors
    /// As [`Self::target`].
    pub(super) fn declared(&self, path: Path<'a>) -> Result<Option<Type>, OperateError> {
        let Fields::Schema(schema, _) = &self.fields else { return Ok(None) };
        let (Path::Field(field) | Path::Row(field, _) | Path::Column(field, ..)) = path else {
            return Ok(None);
        };
        let kind = &schema.fields[schema.find(field)?].kind;
        Ok(match (kind, path) {
            (FieldKind::Cell(kind), _) => Some(*kind),
            (FieldKind::Table(table), Path::Column(_, _, column)) => {
                Some(table.columns[table.find(column)?].kind)
            }
            _ => None,
        })
    }

    /// Rows of the table at `field`, which is not read for it; `None` when there is no field or it is no table.
    pub(super) fn rows_of(&self, field: Segment<'a>) -> Option<usize> {
        match &self.fields {
            Fields::Schema(schema, fields) => {
                let at = schema.find(field).ok()?;
                match (&schema.fields[at].kind, &fields[at]) {
                    (FieldKind::Table(table), SchemaField::Rows(rows)) => Some(rows.len() / table.stride),
                    (_, SchemaField::Read(Field::Table(table))) => Some(table.len()),
                    _ => None,
                }
            }
            Fields::Dynamic(fields) => match fields.get(&Key::Bytes(named(field).ok()?))? {
                LayeredEntry::Stored(body) => match read_dynamic(body).ok()? {
                    DynamicField::Table(table) => Some(table.count),
                    DynamicField::Cell(_) => None,
                },
                LayeredEntry::Changed(Field::Table(table)) => Some(table.len()),
                LayeredEntry::Changed(Field::Cell(_)) => None,
            },
        }
    }

    /// The type that a schema gives the keys of rows of a table.
    pub(super) fn key_type(&self, field: Segment<'a>) -> Option<Type> {
        let Fields::Schema(schema, _) = &self.fields else { return None };
        match &schema.fields[schema.find(field).ok()?].kind {
            FieldKind::Table(table) => Some(table.key),
            FieldKind::Cell(_) => None,
        }
    }

    /// Segments that a dynamic record can have, whether it has them or not.
    fn check_names(&self, path: Path<'a>) -> Result<(), OperateError> {
        if self.is_dynamic() {
            if let Path::Field(field) | Path::Row(field, _) | Path::Column(field, ..) = path {
                named(field)?;
            }
            if let Path::Column(_, _, column) = path {
                named(column)?;
            }
        }
        Ok(())
    }

    /// A field, read if it was not.
    fn field(&mut self, segment: Segment<'a>) -> Result<Option<&mut Field<'a>>, OperateError> {
        match &mut self.fields {
            Fields::Schema(schema, fields) => {
                let at = schema.find(segment)?;
                if let (SchemaField::Rows(rows), FieldKind::Table(table)) =
                    (&fields[at], &schema.fields[at].kind)
                {
                    fields[at] = SchemaField::Read(Field::Table(table.load(rows)?.into()));
                }
                match &mut fields[at] {
                    SchemaField::Read(field) => Ok(Some(field)),
                    SchemaField::Rows(_) => unreachable!("tables were read above"),
                }
            }
            Fields::Dynamic(fields) => {
                fields.load(&Key::Bytes(named(segment)?), |body| read_dynamic(body)?.load())
            }
        }
    }

    /// A field that is a table, or nothing.
    fn table(&mut self, segment: Segment<'a>) -> Result<Option<&mut Table<'a>>, OperateError> {
        match self.field(segment)? {
            None => Ok(None),
            Some(Field::Table(table)) => Ok(Some(table)),
            Some(Field::Cell(_)) => Err(OperateError::PathDoesNotFit),
        }
    }

    /// Gives the cell at `path`, a field or a column, the value that `compute` makes of the present one and of the declared
    /// type. Field, table and row are made where they are missing and the record is dynamic, rows in a schema record as well.
    ///
    /// # Errors
    /// As [`Self::target`]; those of `compute`; `TypeNotApplicable` for a field that is a table; `CapExceeded`.
    pub(super) fn write(
        &mut self,
        path: Path<'a>,
        compute: impl FnOnce(Option<Cell<'a>>, Option<Type>) -> Result<Cell<'a>, OperateError>,
        work: &mut Work,
    ) -> Result<(), OperateError> {
        self.check_names(path)?;
        match path {
            Path::Field(segment) => {
                let declared = self.declared(path)?;
                match self.field(segment)? {
                    Some(Field::Cell(cell)) => *cell = compute(Some(*cell), declared)?,
                    Some(Field::Table(_)) => return Err(OperateError::TypeNotApplicable),
                    None => {
                        let cell = compute(None, declared)?;
                        self.insert(segment, Field::Cell(cell))?;
                    }
                }
            }
            Path::Column(segment, key, column) => {
                if self.table(segment)?.is_none() {
                    self.insert(segment, Field::Table(Table::empty().into()))?;
                }
                let table = self.table(segment)?.expect("inserted above");
                let (key, column) = (table.shape.key(key)?, table.shape.column(column)?);
                let before = table.len();
                table.write(key, column, compute, work)?;
                let after = table.len();
                self.rows = self.rows - before + after;
                if self.rows > ROWS_MAX {
                    return Err(OperateError::CapExceeded);
                }
            }
            Path::Record | Path::Row(..) => return Err(OperateError::PathDoesNotFit),
        }
        self.written = true;
        Ok(())
    }

    /// Adds a field to a dynamic record, which has none of the name.
    fn insert(&mut self, segment: Segment<'a>, field: Field<'a>) -> Result<(), OperateError> {
        let Fields::Dynamic(fields) = &mut self.fields else {
            unreachable!("the fields of a schema are always there")
        };
        if fields.len() == FIELDS_MAX {
            return Err(OperateError::CapExceeded);
        }
        fields.insert(Key::Bytes(named(segment)?), field);
        Ok(())
    }

    /// Deletes a field, row or column: in a schema record makes it zero or empty, but rows do go.
    ///
    /// # Errors
    /// As [`Self::target`].
    ///
    /// # Panics
    /// For the record itself, which its owner deletes.
    pub(super) fn delete(&mut self, path: Path<'a>) -> Result<(), OperateError> {
        self.check_names(path)?;
        match path {
            Path::Record => unreachable!("records are deleted by whoever stores them"),
            Path::Field(segment) => self.delete_field(segment)?,
            Path::Row(segment, key) => {
                let Some(table) = self.table(segment)? else { return Ok(()) };
                if table.remove(table.shape.key(key)?) {
                    self.rows -= 1;
                }
            }
            Path::Column(segment, key, column) => {
                let Some(table) = self.table(segment)? else { return Ok(()) };
                let (key, column) = (table.shape.key(key)?, table.shape.column(column)?);
                table.clear(key, column)?;
            }
        }
        self.written = true;
        Ok(())
    }

    fn delete_field(&mut self, segment: Segment<'a>) -> Result<(), OperateError> {
        match &mut self.fields {
            Fields::Schema(schema, fields) => {
                let at = schema.find(segment)?;
                let (empty, rows) = match (&schema.fields[at].kind, &fields[at]) {
                    (FieldKind::Cell(kind), _) => (SchemaField::Read(Field::Cell(kind.zero())), 0),
                    (FieldKind::Table(table), SchemaField::Rows(rows)) => {
                        (SchemaField::Rows(&[]), rows.len() / table.stride)
                    }
                    (_, SchemaField::Read(field)) => (SchemaField::Rows(&[]), field.rows()),
                };
                fields[at] = empty;
                self.rows -= rows;
            }
            Fields::Dynamic(fields) => {
                let rows = match fields.remove(&Key::Bytes(named(segment)?)) {
                    None => 0,
                    Some(LayeredEntry::Stored(body)) => read_dynamic(body)?.rows(),
                    Some(LayeredEntry::Changed(field)) => field.rows(),
                };
                self.rows -= rows;
            }
        }
        Ok(())
    }

    /// Gives a table of a dynamic record a cap, and makes the table if it is missing.
    ///
    /// # Errors
    /// As [`Self::target`]; `RecordModeMismatch` in a schema record, whose schema has the caps; `TypeNotApplicable` for a
    /// field that is no table; `CapExceeded`.
    pub(super) fn configure(
        &mut self,
        segment: Segment<'a>,
        cap: u32,
        policy: Policy,
        by: &'a [u8],
        work: &mut Work,
    ) -> Result<(), OperateError> {
        if !self.is_dynamic() {
            return Err(OperateError::RecordModeMismatch);
        }
        if self.field(segment)?.is_none() {
            self.insert(segment, Field::Table(Table::empty().into()))?;
        }
        let Some(Field::Table(table)) = self.field(segment)? else {
            return Err(OperateError::TypeNotApplicable);
        };
        let by = (!by.is_empty()).then_some(ColumnId::Name(by));
        let before = table.len();
        table.configure(Limit { cap, policy, by }, work)?;
        let gone = before - table.len();
        self.rows -= gone;
        self.written = true;
        Ok(())
    }

    /// Lets rows of a table go until there are at most `keep`; no table is an empty one. `by` is asked for when the policy
    /// looks at a column.
    ///
    /// # Errors
    /// As [`Self::target`], of the column as well; `TypeNotApplicable` for a field that is no table; `CapExceeded`.
    pub(super) fn trim(
        &mut self,
        segment: Segment<'a>,
        keep: usize,
        policy: Policy,
        by: impl FnOnce() -> Segment<'a>,
        work: &mut Work,
    ) -> Result<(), OperateError> {
        let table = match self.field(segment)? {
            None => return Ok(()),
            Some(Field::Cell(_)) => return Err(OperateError::TypeNotApplicable),
            Some(Field::Table(table)) => table,
        };
        let by = if policy.is_by_column() { Some(table.shape.column(by())?) } else { None };
        let before = table.len();
        table.keep(keep, policy, by, work)?;
        let gone = before - table.len();
        self.rows -= gone;
        self.written |= gone > 0;
        Ok(())
    }

    /// Lets rows go where a new schema has lowered a cap.
    pub(super) fn keep_caps(&mut self, work: &mut Work) -> Result<(), OperateError> {
        let Fields::Schema(schema, _) = &self.fields else { return Ok(()) };
        let schema = *schema;
        for (at, field) in schema.fields.iter().enumerate() {
            let FieldKind::Table(_) = field.kind else { continue };
            let Some(Field::Table(table)) = self.field(Segment::Position(at as u32))? else { continue };
            let before = table.len();
            table.keep_cap(work)?;
            let gone = before - table.len();
            self.rows -= gone;
            self.written |= gone > 0;
        }
        Ok(())
    }

    /// Whether everything in the record can be read, what no operation has touched included.
    pub(super) fn check(&self) -> Result<(), OperateError> {
        let check_field = |field: &Field<'a>| match field {
            Field::Cell(_) => Ok(()),
            Field::Table(table) => table.check(),
        };
        match &self.fields {
            Fields::Schema(schema, fields) => {
                schema.fields.iter().zip(fields).try_for_each(|(declared, field)| {
                    match (&declared.kind, field) {
                        (_, SchemaField::Read(field)) => check_field(field),
                        (FieldKind::Table(table), SchemaField::Rows(rows)) => table.load(rows)?.check(),
                        (FieldKind::Cell(_), SchemaField::Rows(_)) => {
                            unreachable!("rows are those of tables")
                        }
                    }
                })
            }
            Fields::Dynamic(fields) => {
                fields.changed().try_for_each(|(_, field)| check_field(field))?;
                fields.stored().try_for_each(|(_, body)| check_field(&read_dynamic(body)?.load()?))
            }
        }
    }

    /// The record as it is stored. `len_hint` is about how long.
    ///
    /// # Errors
    /// `CapExceeded` when it is too large.
    pub(super) fn encode(&self, len_hint: usize) -> Result<Vec<u8>, OperateError> {
        let mut out = Vec::with_capacity(len_hint);
        match &self.fields {
            Fields::Schema(schema, fields) => {
                out.push(SCHEMA_RECORD);
                out.extend_from_slice(schema.bytes);
                let both = || schema.fields.iter().zip(fields);
                for (_, field) in both().filter(|(declared, _)| declared.kind.width().is_some()) {
                    if let SchemaField::Read(Field::Cell(cell)) = field {
                        cell.put(&mut out);
                    }
                }
                for (declared, field) in both().filter(|(declared, _)| declared.kind.width().is_none()) {
                    match (&declared.kind, field) {
                        (FieldKind::Table(table), SchemaField::Rows(rows)) => {
                            put_uv(&mut out, (rows.len() / table.stride) as u64);
                            out.extend_from_slice(rows);
                        }
                        (_, SchemaField::Read(Field::Table(table))) => table.put(&mut out),
                        (_, SchemaField::Read(Field::Cell(cell))) => cell.put(&mut out),
                        (FieldKind::Cell(_), SchemaField::Rows(_)) => {
                            unreachable!("rows are those of tables")
                        }
                    }
                }
            }
            Fields::Dynamic(fields) => {
                out.push(DYNAMIC_RECORD);
                put_uv(&mut out, fields.len() as u64);
                fields.put(&mut out, |out, key, field| {
                    let Key::Bytes(name) = key else { unreachable!("fields have names") };
                    put_s8(out, name);
                    match field {
                        Field::Cell(cell) => cell.put_tagged(out),
                        Field::Table(table) => {
                            out.push(TABLE);
                            table.put(out);
                        }
                    }
                });
            }
        }
        if out.len() > RECORD_MAX { Err(OperateError::CapExceeded) } else { Ok(out) }
    }

    /// Appends the table at `segment` as a return has it: the mode of the record, then the table as it is stored.
    ///
    /// # Errors
    /// As [`Self::target`].
    pub(super) fn put_table(&mut self, segment: Segment<'a>, out: &mut Vec<u8>) -> Result<(), OperateError> {
        let Some(table) = self.table(segment)? else { return Ok(()) };
        table.check()?;
        out.push(match table.shape {
            Shape::Packed(_) => SCHEMA_RECORD,
            Shape::Named => DYNAMIC_RECORD,
        });
        table.put(out);
        Ok(())
    }

    /// The row at `key`.
    ///
    /// # Errors
    /// As [`Self::target`].
    pub(super) fn row(
        &mut self,
        segment: Segment<'a>,
        key: &'a [u8],
    ) -> Result<Option<&Row<'a>>, OperateError> {
        let Some(table) = self.table(segment)? else { return Ok(None) };
        let key = table.shape.key(key)?;
        Ok(table.row(key)?.map(|row| &*row))
    }

    /// The fields of a dynamic record, ascending by name, for one in which nothing was changed.
    pub(super) fn dynamic_fields(
        &self,
    ) -> impl Iterator<Item = Result<(&'a [u8], DynamicField<'a>), OperateError>> {
        let stored = match &self.fields {
            Fields::Dynamic(fields) => Some(fields.stored()),
            Fields::Schema(..) => None,
        };
        stored.into_iter().flatten().map(|(key, body)| {
            let Key::Bytes(name) = key else { unreachable!("fields have names") };
            Ok((name, read_dynamic(body)?))
        })
    }
}

impl Field<'_> {
    fn rows(&self) -> usize {
        match self {
            Field::Cell(_) => 0,
            Field::Table(table) => table.len(),
        }
    }
}
