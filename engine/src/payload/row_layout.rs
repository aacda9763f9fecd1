//! The bytes of a row: field slots, checked reads, and the shape the flatbuffers verifier walks.
//!
//! All reads are bounds-checked and text is re-checked as UTF-8 when it is handed out, so bytes that are not a row can
//! give a wrong answer or a panic but never undefined behaviour. It costs a few nanoseconds per value and keeps this
//! room free of unsafe code.

use flatbuffers::{
    ForwardsUOffset, InvalidFlatbuffer, VOffsetT, Vector, Verifiable, Verifier, VerifierOptions,
};

/// Marks version 1 of the row layout, at byte 4.
pub(super) const IDENTIFIER: &str = "NPR1";

/// Slot of the field with declaration index `id`: two 16-bit sizes precede the fields in a vtable.
const fn slot(id: VOffsetT) -> VOffsetT {
    4 + 2 * id
}

pub(super) const ROW_ENTRIES: VOffsetT = slot(0);
pub(super) const ROW_NEXT_DEADLINE: VOffsetT = slot(1);
pub(super) const ROW_SPARSE_INDICES: VOffsetT = slot(2);
pub(super) const ROW_SPARSE_VALUES: VOffsetT = slot(3);
/// For each sparse space, components up to the end of its vector; left out where all belong to the first.
pub(super) const ROW_SPARSE_ENDS: VOffsetT = slot(4);
/// Components of the token vectors of a document, one vector after the other.
pub(super) const ROW_TOKENS: VOffsetT = slot(5);
/// For each token vector, the number of its point in the index. All tokens of a document have the same number if the index holds encodings.
pub(super) const ROW_TOKEN_NUMBERS: VOffsetT = slot(6);
/// How the payload is answered, see [`PayloadFormat`](super::PayloadFormat).
pub(super) const ROW_FORMAT: VOffsetT = slot(7);
/// Packed values of token vectors that are stored as codes, see [`TokenCodes`](super::TokenCodes).
pub(super) const ROW_TOKEN_CODES: VOffsetT = slot(8);
/// For each of these vectors, the factor of its values.
pub(super) const ROW_TOKEN_FACTORS: VOffsetT = slot(9);
/// Components of each of these vectors.
pub(super) const ROW_TOKEN_DIM: VOffsetT = slot(10);
/// Bits of a value.
pub(super) const ROW_TOKEN_BITS: VOffsetT = slot(11);
/// The id of the point, where ids are strings.
pub(super) const ROW_ID: VOffsetT = slot(12);

pub(super) const ENTRY_KEY: VOffsetT = slot(0);
pub(super) const ENTRY_KIND: VOffsetT = slot(1);
pub(super) const ENTRY_DEADLINE: VOffsetT = slot(2);
pub(super) const ENTRY_INT: VOffsetT = slot(3);
pub(super) const ENTRY_FLOAT: VOffsetT = slot(4);
pub(super) const ENTRY_LON: VOffsetT = slot(5);
pub(super) const ENTRY_STRING: VOffsetT = slot(6);
pub(super) const ENTRY_STRINGS: VOffsetT = slot(7);
pub(super) const ENTRY_INTS: VOffsetT = slot(8);
pub(super) const ENTRY_FLOATS: VOffsetT = slot(9);
pub(super) const ENTRY_RECORD: VOffsetT = slot(10);
/// 1 in an entry that was derived from another one.
pub(super) const ENTRY_DERIVED: VOffsetT = slot(11);

fn array<const N: usize>(row: &[u8], position: usize) -> [u8; N] {
    *row[position..].first_chunk().expect("a field of a payload row ends inside the row")
}

pub(super) fn u8_at(row: &[u8], position: usize) -> u8 {
    row[position]
}

fn u16_at(row: &[u8], position: usize) -> u16 {
    u16::from_le_bytes(array(row, position))
}

pub(super) fn u32_at(row: &[u8], position: usize) -> u32 {
    u32::from_le_bytes(array(row, position))
}

pub(super) fn u64_at(row: &[u8], position: usize) -> u64 {
    u64::from_le_bytes(array(row, position))
}

/// Where the forward offset at `position` leads.
pub(super) fn target(row: &[u8], position: usize) -> usize {
    position + u32_at(row, position) as usize
}

/// Position of the field in `slot` of the table at `table`, `None` when it was left out (holds its default).
pub(super) fn field(row: &[u8], table: usize, slot: VOffsetT) -> Option<usize> {
    let back = i32::from_le_bytes(array(row, table));
    let vtable = (table as i64 - i64::from(back)) as usize;
    if slot >= u16_at(row, vtable) {
        return None;
    }
    match u16_at(row, vtable + usize::from(slot)) {
        0 => None,
        offset => Some(table + usize::from(offset)),
    }
}

/// Bytes of the length-prefixed vector of single bytes at `position`.
fn bytes_at(row: &[u8], position: usize) -> &[u8] {
    let len = u32_at(row, position) as usize;
    &row[position + 4..][..len]
}

/// Bytes of the string behind the forward offset at `position`.
pub(super) fn bytes_behind(row: &[u8], position: usize) -> &[u8] {
    bytes_at(row, target(row, position))
}

/// The string behind the forward offset at `position`.
pub(super) fn string_behind(row: &[u8], position: usize) -> &str {
    std::str::from_utf8(bytes_behind(row, position)).expect("text in a payload row is UTF-8")
}

/// Position of the first element and number of elements of the vector behind the forward offset at `position`.
pub(super) fn vector_behind(row: &[u8], position: usize) -> (usize, usize) {
    let vector = target(row, position);
    (vector + 4, u32_at(row, vector) as usize)
}

/// The 8-byte elements of the vector behind the forward offset at `position`.
pub(super) fn words_behind(row: &[u8], position: usize) -> &[[u8; 8]] {
    let (first, len) = vector_behind(row, position);
    row[first..][..8 * len].as_chunks().0
}

/// The 4-byte elements of the vector behind the forward offset at `position`.
pub(super) fn quads_behind(row: &[u8], position: usize) -> &[[u8; 4]] {
    let (first, len) = vector_behind(row, position);
    row[first..][..4 * len].as_chunks().0
}

/// Checks every offset, bound and string of `row`, which is not empty, against the schema. Linear in `row.len()`.
pub(super) fn check_structure(row: &[u8]) -> Result<(), InvalidFlatbuffer> {
    let options = VerifierOptions {
        // Row and entry, nothing deeper.
        max_depth: 4,
        // A table is at least its 4-byte back offset.
        max_tables: row.len() / 4,
        // An honest row is visited about four times its length (the shared vtables count once per entry). Offsets that
        // overlap could make the visit quadratic; this bound keeps it linear.
        max_apparent_size: 64 + 16 * row.len(),
        ignore_missing_null_terminator: false,
    };
    let mut verifier = Verifier::new(&options, row);
    <ForwardsUOffset<RowTable>>::run_verifier(&mut verifier, 0)
}

/// Shape of the root table.
struct RowTable;

/// Shape of one entry.
struct EntryTable;

impl Verifiable for RowTable {
    fn run_verifier(verifier: &mut Verifier<'_, '_>, position: usize) -> Result<(), InvalidFlatbuffer> {
        verifier
            .visit_table(position)?
            .visit_field::<ForwardsUOffset<Vector<'_, ForwardsUOffset<EntryTable>>>>(
                "entries",
                ROW_ENTRIES,
                true,
            )?
            .visit_field::<u64>("next_deadline_ms", ROW_NEXT_DEADLINE, false)?
            .visit_field::<ForwardsUOffset<Vector<'_, u32>>>("sparse_indices", ROW_SPARSE_INDICES, false)?
            .visit_field::<ForwardsUOffset<Vector<'_, f32>>>("sparse_values", ROW_SPARSE_VALUES, false)?
            .visit_field::<ForwardsUOffset<Vector<'_, u32>>>("sparse_ends", ROW_SPARSE_ENDS, false)?
            .visit_field::<ForwardsUOffset<Vector<'_, f32>>>("tokens", ROW_TOKENS, false)?
            .visit_field::<ForwardsUOffset<Vector<'_, u32>>>("token_numbers", ROW_TOKEN_NUMBERS, false)?
            .visit_field::<u8>("format", ROW_FORMAT, false)?
            .visit_field::<ForwardsUOffset<Vector<'_, u8>>>("token_codes", ROW_TOKEN_CODES, false)?
            .visit_field::<ForwardsUOffset<Vector<'_, f32>>>("token_factors", ROW_TOKEN_FACTORS, false)?
            .visit_field::<u32>("token_dim", ROW_TOKEN_DIM, false)?
            .visit_field::<u8>("token_bits", ROW_TOKEN_BITS, false)?
            .visit_field::<ForwardsUOffset<&str>>("id", ROW_ID, false)?
            .finish();
        Ok(())
    }
}

impl Verifiable for EntryTable {
    fn run_verifier(verifier: &mut Verifier<'_, '_>, position: usize) -> Result<(), InvalidFlatbuffer> {
        verifier
            .visit_table(position)?
            .visit_field::<ForwardsUOffset<&str>>("key", ENTRY_KEY, true)?
            .visit_field::<u8>("kind", ENTRY_KIND, false)?
            .visit_field::<u64>("deadline_ms", ENTRY_DEADLINE, false)?
            .visit_field::<i64>("int", ENTRY_INT, false)?
            .visit_field::<f64>("float", ENTRY_FLOAT, false)?
            .visit_field::<f64>("lon", ENTRY_LON, false)?
            .visit_field::<ForwardsUOffset<&str>>("string", ENTRY_STRING, false)?
            .visit_field::<ForwardsUOffset<Vector<'_, ForwardsUOffset<&str>>>>(
                "strings",
                ENTRY_STRINGS,
                false,
            )?
            .visit_field::<ForwardsUOffset<Vector<'_, i64>>>("ints", ENTRY_INTS, false)?
            .visit_field::<ForwardsUOffset<Vector<'_, f64>>>("floats", ENTRY_FLOATS, false)?
            .visit_field::<ForwardsUOffset<Vector<'_, u8>>>("record", ENTRY_RECORD, false)?
            .visit_field::<u8>("derived", ENTRY_DERIVED, false)?
            .finish();
        Ok(())
    }
}
