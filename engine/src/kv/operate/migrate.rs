//! MIGRATE: a record in the bytes of another schema.

use super::cell::Cell;
use super::error::{Fault, OperateError};
use super::layered::Key;
use super::op::{Op, Segment};
use super::record::{DynamicField, Opened};
use super::row::NamedCells;
use super::schema::{Field, FieldKind, Schema, TableSchema};
use super::table::NamedTable;
use super::wire::{Reader, put_uv};
use super::{RECORD_MAX, SCHEMA_RECORD};
use std::collections::BTreeMap;

/// The record `stored` under the schema that `op` brings. Caps of the new schema may not hold yet.
///
/// `op.a` is the version that the record must have, or -1 for a dynamic one. From schema to schema nothing is lost: the new
/// schema appends (see [`Schema::check_successor`]). From dynamic to schema fields and columns are matched by name; those
/// that the schema does not have are dropped if `op.aux` says so. Cost: a pass over the record.
///
/// # Errors
/// `RecordModeMismatch`, `SchemaVersionMismatch`: the record is not what `op.a` says. `SchemaInvalid`: the schema breaks its
/// grammar, does not append, or has no names for a dynamic record. `TypeNotApplicable`: a value of another domain, or of a
/// length that a fixed type does not have. `PathDoesNotFit`: a field or column without a place, a row key of another width.
/// `CapExceeded`: the result is too large. `StoredRecordMalformed`.
pub(super) fn migrate(stored: &[u8], op: &Op<'_>) -> Result<Vec<u8>, OperateError> {
    let opened = Opened::of(stored)?;
    let next = Schema::decode(op.bytes)?;
    let mut out = vec![SCHEMA_RECORD];
    out.extend_from_slice(next.bytes);
    match (&opened.schema, u16::try_from(op.a)) {
        (Some(schema), Ok(version)) => {
            if schema.version != version {
                return Err(OperateError::SchemaVersionMismatch);
            }
            schema.check_successor(&next)?;
            append(schema, &next, opened.fields, &mut out)?;
        }
        (None, Err(_)) => from_dynamic(&opened, &next, op.aux & 1 == 1, &mut out)?,
        _ => return Err(OperateError::RecordModeMismatch),
    }
    if out.len() > RECORD_MAX { Err(OperateError::CapExceeded) } else { Ok(out) }
}

/// Appends `fields` of schema `old` as those of its successor `next`: what is new is zero.
fn append(old: &Schema<'_>, next: &Schema<'_>, fields: &[u8], out: &mut Vec<u8>) -> Result<(), OperateError> {
    let malformed = Fault::in_stored;
    let added = &next.fields[old.fields.len()..];
    let fixed_len = |fields: &[Field<'_>]| fields.iter().filter_map(|field| field.kind.width()).sum();
    let mut reader = Reader(fields);
    out.extend_from_slice(reader.take(fixed_len(&old.fields)).map_err(malformed)?);
    let added_len: usize = fixed_len(added);
    out.resize(out.len() + added_len, 0);
    for (field, next) in old.fields.iter().zip(&next.fields) {
        match (&field.kind, &next.kind) {
            (FieldKind::Cell(kind), _) if kind.width().is_none() => {
                Cell::read(*kind, &mut reader).map_err(malformed)?.put(out);
            }
            (FieldKind::Table(table), FieldKind::Table(next)) => {
                let rows = table.take_rows(&mut reader).map_err(malformed)?;
                let count = rows.len() / table.stride;
                reserve_rows(count, next, out)?;
                put_uv(out, count as u64);
                for row in rows.chunks_exact(table.stride) {
                    out.extend_from_slice(row);
                    out.resize(out.len() + next.stride - table.stride, 0);
                }
            }
            _ => {}
        }
    }
    if !reader.is_empty() {
        return Err(OperateError::StoredRecordMalformed);
    }
    out.resize(out.len() + added.iter().filter(|field| field.kind.width().is_none()).count(), 0);
    Ok(())
}

/// Room for `count` rows; refuses a result that would be too large before it is made.
fn reserve_rows(count: usize, table: &TableSchema<'_>, out: &mut Vec<u8>) -> Result<(), OperateError> {
    // At most 2^20 rows of 4,096 bytes.
    let len = count * table.stride;
    if out.len() + len > RECORD_MAX {
        return Err(OperateError::CapExceeded);
    }
    out.reserve(len);
    Ok(())
}

fn from_dynamic(
    opened: &Opened<'_>,
    next: &Schema<'_>,
    drop_extra: bool,
    out: &mut Vec<u8>,
) -> Result<(), OperateError> {
    if !next.named {
        return Err(OperateError::SchemaInvalid);
    }
    let record = opened.record()?;
    let mut by_position = BTreeMap::new();
    for field in record.dynamic_fields() {
        let (name, field) = field?;
        match next.find(Segment::Name(name)) {
            Ok(at) => drop(by_position.insert(at, field)),
            Err(_) if drop_extra => {}
            Err(error) => return Err(error),
        }
    }
    let widths = [true, false];
    for fixed in widths {
        for (at, declared) in next.fields.iter().enumerate() {
            if declared.kind.width().is_some() != fixed {
                continue;
            }
            match (&declared.kind, by_position.get(&at)) {
                (FieldKind::Cell(kind), None) => kind.zero().put(out),
                (FieldKind::Table(_), None) => out.push(0),
                (FieldKind::Cell(kind), Some(DynamicField::Cell(cell))) => {
                    cell.convert(*kind).ok_or(OperateError::TypeNotApplicable)?.put(out);
                }
                (FieldKind::Table(schema), Some(DynamicField::Table(table))) => {
                    pack(*table, schema, drop_extra, out)?;
                }
                _ => return Err(OperateError::TypeNotApplicable),
            }
        }
    }
    Ok(())
}

/// Appends a table of named rows as one of rows of fixed width.
fn pack(
    table: NamedTable<'_>,
    schema: &TableSchema<'_>,
    drop_extra: bool,
    out: &mut Vec<u8>,
) -> Result<(), OperateError> {
    let table = table.load()?;
    reserve_rows(table.len(), schema, out)?;
    put_uv(out, table.len() as u64);
    let mut rows = Vec::with_capacity(table.len());
    for (key, body) in table.stored_rows() {
        let Key::Bytes(key) = key else { unreachable!("keys of named rows are bytes") };
        rows.push((Key::of(schema.key, key).ok_or(OperateError::PathDoesNotFit)?, body));
    }
    // Bytewise is not the order of little-endian numbers.
    rows.sort_unstable_by_key(|&(key, _)| key);
    let mut cells: Vec<Cell<'_>> = Vec::with_capacity(schema.columns.len());
    for (key, body) in rows {
        cells.clear();
        cells.extend(schema.columns.iter().map(|column| column.kind.zero()));
        for cell in NamedCells::of(body).map_err(Fault::in_stored)? {
            let (name, cell) = cell.map_err(Fault::in_stored)?;
            match schema.find(Segment::Name(name)) {
                Ok(at) => {
                    let kind = schema.columns[at].kind;
                    cells[at] = cell.convert(kind).ok_or(OperateError::TypeNotApplicable)?;
                }
                Err(_) if drop_extra => {}
                Err(error) => return Err(error),
            }
        }
        key.put(schema.key.width().expect("keys of schemas have a width"), out);
        cells.iter().for_each(|cell| cell.put(out));
    }
    Ok(())
}
