//! `operate`: one atomic list of checks and writes on one stored record.
//!
//! A record is a value with fields, some of which may be tables of rows with columns. A *schema record* carries a schema:
//! its fields are always there, addressed by position or by name, in data of a declared type. A *dynamic record* has the
//! fields that were written, by name, each with its type. A record with the same content has the same bytes.
//!
//! [`Call::decode`] reads a call, [`Program::apply`] carries it out on the stored bytes and says what becomes of them, as a
//! function of its arguments: whoever stores the value makes the change atomic. Records that lie in a point's payload are
//! served by the same program ([`Call::decode_in_payload`]).
//!
//! # Stored bytes
//!
//! ```text
//! record = 1 schema, data of each field of fixed width, data of each other field    in the order of the schema
//!        | 2 uv nFields, (s8 name, tagged cell or table)*                           ascending by name
//! tagged cell = u8 type, n?, data                                                   n:u8 of a fixed type
//! data   = little-endian integer or float; LEB128 (uvarint), zigzag LEB128 (ivarint); uv length, bytes (bytes); bytes (fixed)
//! table  = uv nRows, (key, columns)*                                                of a schema record, ascending by key
//!        | 14 uv byteLen, uv cap, u8 policy, s8 byCol, uv nRows, row*               of a dynamic one
//! row    = uv rowLen, s8 key, uv nCols, (s8 name, tagged cell)*                     ascending by name
//! ```
//! `uv` is LEB128 in its shortest form. The grammar of schemas is at `Schema`, that of calls at [`Program`].
//!
//! # Where the protocol leaves a choice
//!
//! * What is wrong with a call whatever the record holds is refused before anything is looked at, even behind an IF.
//! * Shifts are products and quotients and saturate; AND, OR, XOR take the operand's bits at the cell's width (`Arithmetic`).
//! * DEL, CONFIG, TRIM and MIGRATE do not look at the type byte.
//! * SET replaces a cell of a dynamic record by one of any type, but no table; a table is deleted first.
//! * The last column of a row may go, and the last row of a table: row and table stay.
//! * Empty names, which in a schema mean none, address nothing.
//! * A DEL of the record in a call that creates it is no operation: there is no key yet.
//! * A count return of a row, or of a cell, is 1 or 0.
//! * For eviction rows are ordered by a column across types: numbers by value, then NaN, then bytes; a missing column is 0.
//! * A call may order rows by column for [`RANKED_MAX`] bytes of tables, far more than one policy per table needs.

mod apply;
mod arithmetic;
mod call;
mod cell;
mod error;
mod field_path;
mod layered;
mod migrate;
mod op;
mod record;
mod row;
mod schema;
mod table;
mod wire;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod opcode_tests;
#[cfg(test)]
mod refusal_tests;
#[cfg(test)]
mod rule_tests;
#[cfg(test)]
mod test_calls;
#[cfg(test)]
mod twin;
#[cfg(test)]
mod twin_tests;

pub use apply::{Change, Expiry, Outcome};
pub use call::{Call, Program, TtlMode};
pub use error::OperateError;
pub use field_path::{FieldPath, PathError, StoredFields, StoredRecord};

/// Most operations in a call.
pub const CALL_OPS_MAX: usize = 4_096;
/// Most returns in a call.
pub const CALL_RETURNS_MAX: usize = 4_096;
/// Most bytes in all returns of a call: what a frame holds, less 64 KiB for everything around them.
pub const RETURNED_MAX: usize = 16_711_680;
/// Longest record in bytes.
pub const RECORD_MAX: usize = 16 << 20;
/// Longest schema in bytes, without its names.
pub const SCHEMA_MAX: usize = 4_096;
/// Most bytes of names in a schema.
pub const SCHEMA_NAMES_MAX: usize = 4_096;
/// Most fields of a dynamic record; a schema's are bounded by its bytes.
pub const FIELDS_MAX: usize = 65_535;
/// Most columns in a row of a dynamic record.
pub const COLUMNS_MAX: usize = 65_535;
/// Most rows in all tables of a record.
pub const ROWS_MAX: usize = 1 << 20;
/// Longest row of a schema's table in bytes, key included.
pub const ROW_WIDTH_MAX: usize = 4_096;
/// Most bytes of tables that a call may order by column: four times the largest record, some tenths of a second of work.
pub const RANKED_MAX: usize = 4 * RECORD_MAX;

/// First byte of a schema record, and of what a return says of its rows and tables.
const SCHEMA_RECORD: u8 = 1;
/// First byte of a dynamic record, likewise.
const DYNAMIC_RECORD: u8 = 2;
