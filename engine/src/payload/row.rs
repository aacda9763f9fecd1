//! Reading an encoded row in place.

use super::row_layout as layout;
use super::token_codes::{DIM_MAX, TokenCode};
use super::{CONTENT_KEY, FloatArray, IntArray, JsonRef, Kind, RowTokens, StrArray, ValueRef};
use crate::point_id::check_text_id;
use crate::sparse::check_sparse;
use std::cmp::Ordering;
use std::fmt;

/// Why bytes are not a payload row.
#[derive(Debug, thiserror::Error)]
#[error("corrupt payload row: {0}")]
pub struct RowError(pub String);

/// One stored entry, expired or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowEntry<'a> {
    /// The key.
    pub key: &'a str,
    /// The value.
    pub value: ValueRef<'a>,
    /// Unix milliseconds at which the key expires, 0 = never.
    pub deadline_ms: u64,
    /// It was derived from the JSON text of another entry, for filters.
    pub is_derived: bool,
}

/// How a payload is sent and answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum PayloadFormat {
    /// Each value says of which kind it is.
    #[default]
    Tagged = 0,
    /// Any JSON object.
    Plain = 1,
}

impl PayloadFormat {
    /// Every format.
    pub const ALL: [PayloadFormat; 2] = [PayloadFormat::Tagged, PayloadFormat::Plain];

    /// The name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            PayloadFormat::Tagged => "tagged",
            PayloadFormat::Plain => "plain",
        }
    }

    /// The format of that name; names are case-sensitive.
    pub fn from_name(name: &str) -> Option<PayloadFormat> {
        PayloadFormat::ALL.into_iter().find(|format| format.name() == name)
    }
}

/// A view on an encoded row: entries in ascending byte order of their keys. Empty bytes are the empty row.
///
/// A key is *live* at `now_ms` when its deadline is 0 or after `now_ms`; an expired key is absent for every reader that
/// passes the time. Equality compares all stored entries, deadlines included, the vectors and the id, not bytes: rows written by different
/// versions may differ in bytes and still be equal.
#[derive(Clone, Copy)]
pub struct PayloadRow<'a> {
    bytes: &'a [u8],
    /// Position of the first entry's offset.
    first: usize,
    /// Entries.
    len: usize,
    /// Earliest deadline of any entry, 0 = none.
    next_deadline_ms: u64,
}

impl<'a> PayloadRow<'a> {
    /// Checks every offset, every string and the order of the keys once; use on bytes from disk or network. Linear in
    /// the length, never panics.
    ///
    /// # Errors
    /// [`RowError`] when the bytes are not a row this version can read in full.
    pub fn verify(bytes: &'a [u8]) -> Result<Self, RowError> {
        if bytes.is_empty() {
            return Ok(Self::trusted(bytes));
        }
        match bytes.get(4..8) {
            Some(found) if found == layout::IDENTIFIER.as_bytes() => {}
            _ => return Err(RowError(format!("no {} identifier at byte 4", layout::IDENTIFIER))),
        }
        layout::check_structure(bytes).map_err(|error| RowError(error.to_string().trim_end().to_owned()))?;

        let row = Self::trusted(bytes);
        let mut earliest = 0;
        let mut previous: Option<&[u8]> = None;
        for index in 0..row.len {
            let table = row.table(index);
            let key = row.key_bytes(table);
            if previous.is_some_and(|previous| previous >= key) {
                return Err(RowError(format!("key of entry {index} is not above the one before it")));
            }
            previous = Some(key);
            let kind = row.stored_kind(table);
            match Kind::from_stored(kind) {
                None => return Err(RowError(format!("entry {index} has unknown kind {kind}"))),
                Some(Kind::Json) => row.verify_json(index)?,
                Some(_) => {}
            }
            let deadline = row.deadline(table);
            if deadline != 0 && (earliest == 0 || deadline < earliest) {
                earliest = deadline;
            }
        }
        if earliest != row.next_deadline_ms {
            return Err(RowError(format!(
                "next deadline is {}, the entries say {earliest}",
                row.next_deadline_ms
            )));
        }
        let [indices, values] = row.sparse_parts();
        if indices.len() != values.len() {
            return Err(RowError(format!("{} sparse indices, {} values", indices.len(), values.len())));
        }
        let ends = row.sparse_ends();
        if !ends.is_empty() {
            let end = |end: &[u8; 4]| u32::from_le_bytes(*end) as usize;
            if !ends.is_sorted_by_key(end) || ends.last().map(end) != Some(indices.len()) {
                return Err(RowError(format!("sparse vectors do not end with {} components", indices.len())));
            }
        }
        let (numbers, components) = (row.quads(layout::ROW_TOKEN_NUMBERS), row.quads(layout::ROW_TOKENS));
        if components.len().checked_rem(numbers.len()).unwrap_or(components.len()) != 0 {
            let (numbers, components) = (numbers.len(), components.len());
            return Err(RowError(format!("{components} components of {numbers} token vectors")));
        }
        row.verify_codes()?;
        if let Some(id) = row.id() {
            check_text_id(id).map_err(|error| RowError(error.to_string()))?;
        }
        for space in 0..row.sparse_spaces() {
            let sparse: Vec<(u32, f32)> = row.sparse_of(space).collect();
            check_sparse(&sparse).map_err(|error| RowError(error.to_string()))?;
        }
        Ok(row)
    }

    /// Checks the codes of token vectors: either none of their fields is there, or all that belong to as many vectors as there are numbers.
    fn verify_codes(&self) -> Result<(), RowError> {
        let root = layout::target(self.bytes, 0);
        let fields = [
            layout::ROW_TOKEN_CODES,
            layout::ROW_TOKEN_FACTORS,
            layout::ROW_TOKEN_DIM,
            layout::ROW_TOKEN_BITS,
        ];
        if fields.iter().all(|slot| layout::field(self.bytes, root, *slot).is_none()) {
            return Ok(());
        }
        let refuse = |reason: &str| Err(RowError(format!("codes of token vectors: {reason}")));
        let Some((code, dim, packed)) = self.token_code() else {
            return refuse("a field is missing or unknown");
        };
        let factors = self.quads(layout::ROW_TOKEN_FACTORS);
        let count = self.quads(layout::ROW_TOKEN_NUMBERS).len();
        if count == 0 || dim > DIM_MAX {
            return refuse("no vectors, or too many components");
        }
        let is_whole = code.packed(dim).checked_mul(count) == Some(packed.len()) && factors.len() == count;
        if !is_whole || !self.quads(layout::ROW_TOKENS).is_empty() {
            return refuse("their length is not that of the vectors");
        }
        match factors.iter().all(|factor| f32::from_le_bytes(*factor).is_finite()) {
            true => Ok(()),
            false => refuse("a factor is not a finite number"),
        }
    }

    /// Checks the text of an entry of kind `json`, which is answered as it is. Only a derived one has none.
    fn verify_json(&self, index: usize) -> Result<(), RowError> {
        let table = self.table(index);
        let text = JsonRef::new(self.bytes, table).text();
        if text.is_empty() && self.is_derived(table) {
            return Ok(());
        }
        serde_json::from_str::<serde::de::IgnoredAny>(text)
            .map(|_| ())
            .map_err(|error| RowError(format!("entry {index} is not JSON: {error}")))
    }

    /// A row this process built or verified before; constant time.
    ///
    /// Other bytes give wrong answers or a panic here or at a later read.
    pub fn trusted(bytes: &'a [u8]) -> Self {
        if bytes.is_empty() {
            return Self { bytes, first: 0, len: 0, next_deadline_ms: 0 };
        }
        let root = layout::target(bytes, 0);
        let entries =
            layout::field(bytes, root, layout::ROW_ENTRIES).expect("a payload row has a vector of entries");
        let (first, len) = layout::vector_behind(bytes, entries);
        let next_deadline_ms = layout::field(bytes, root, layout::ROW_NEXT_DEADLINE)
            .map_or(0, |position| layout::u64_at(bytes, position));
        Self { bytes, first, len, next_deadline_ms }
    }

    /// The encoded bytes.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Number of stored entries, expired ones included.
    pub fn stored_len(&self) -> usize {
        self.len
    }

    /// Value of `key` if present and live at `now_ms`. Binary search; allocates nothing.
    pub fn get(&self, key: &str, now_ms: u64) -> Option<ValueRef<'a>> {
        let table = self.find(key)?;
        self.is_live(table, now_ms).then(|| self.value(table))
    }

    /// As [`Self::get`], without what was derived.
    pub(super) fn get_sent(&self, key: &str, now_ms: u64) -> Option<ValueRef<'a>> {
        let table = self.find(key).filter(|table| !self.is_derived(*table))?;
        self.is_live(table, now_ms).then(|| self.value(table))
    }

    fn find(&self, key: &str) -> Option<usize> {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low + (high - low) / 2;
            let table = self.table(middle);
            match self.key_bytes(table).cmp(key.as_bytes()) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Some(table),
            }
        }
        None
    }

    /// The document text: [`CONTENT_KEY`] when it is live and of kind `string`.
    pub fn content(&self, now_ms: u64) -> Option<&'a str> {
        match self.get(CONTENT_KEY, now_ms) {
            Some(ValueRef::String(text)) => Some(text),
            _ => None,
        }
    }

    /// When the key of the text expires, `None` without a text or a deadline.
    pub fn content_deadline(&self) -> Option<u64> {
        // Most rows have no deadline at all.
        self.next_deadline()?;
        // No deadline lies at or before 0.
        self.content(0)?;
        let table = self.find(CONTENT_KEY)?;
        Some(self.deadline(table)).filter(|&deadline_ms| deadline_ms != 0)
    }

    /// How the payload is answered.
    pub fn format(&self) -> PayloadFormat {
        if self.bytes.is_empty() {
            return PayloadFormat::Tagged;
        }
        let root = layout::target(self.bytes, 0);
        match layout::field(self.bytes, root, layout::ROW_FORMAT) {
            Some(position) if layout::u8_at(self.bytes, position) == PayloadFormat::Plain as u8 => {
                PayloadFormat::Plain
            }
            _ => PayloadFormat::Tagged,
        }
    }

    /// The id of the point, where ids are strings. Constant time.
    pub fn id(&self) -> Option<&'a str> {
        if self.bytes.is_empty() {
            return None;
        }
        let root = layout::target(self.bytes, 0);
        let position = layout::field(self.bytes, root, layout::ROW_ID)?;
        Some(layout::string_behind(self.bytes, position))
    }

    /// The live entries that were sent, in key order, `$content` included: all but those that were derived.
    pub fn sent_entries(&self, now_ms: u64) -> impl Iterator<Item = (&'a str, ValueRef<'a>)> + use<'a> {
        let row = *self;
        (0..row.len).filter_map(move |index| {
            let table = row.table(index);
            (!row.is_derived(table) && row.is_live(table, now_ms)).then(|| (row.key(table), row.value(table)))
        })
    }

    /// All live entries in key order, `$content` and what was derived included.
    pub fn entries(&self, now_ms: u64) -> impl Iterator<Item = (&'a str, ValueRef<'a>)> + use<'a> {
        let row = *self;
        (0..row.len).filter_map(move |index| {
            let table = row.table(index);
            row.is_live(table, now_ms).then(|| (row.key(table), row.value(table)))
        })
    }

    /// All stored entries in key order with their deadlines, expired ones included.
    pub fn stored_entries(&self) -> impl Iterator<Item = RowEntry<'a>> + use<'a> {
        let row = *self;
        (0..row.len).map(move |index| {
            let table = row.table(index);
            RowEntry {
                key: row.key(table),
                value: row.value(table),
                deadline_ms: row.deadline(table),
                is_derived: row.is_derived(table),
            }
        })
    }

    /// The point's sparse vector as (dimension, value), dimensions strictly ascending; nothing when it has none. It is no
    /// entry: it has no key and no deadline, and entries, filters and the payload index do not see it.
    pub fn sparse(&self) -> impl ExactSizeIterator<Item = (u32, f32)> + use<'a> {
        self.sparse_of(0)
    }

    /// As [`Self::sparse`], in the sparse space of that number.
    pub fn sparse_of(&self, space: usize) -> impl ExactSizeIterator<Item = (u32, f32)> + use<'a> {
        let [mut indices, mut values] = self.sparse_parts();
        let ends = self.sparse_ends();
        if !ends.is_empty() || space > 0 {
            // Behind the last vector there are none.
            let end = |at: usize| ends.get(at).map_or(indices.len(), |end| u32::from_le_bytes(*end) as usize);
            let components = if space == 0 { 0 } else { end(space - 1) }..end(space);
            (indices, values) = (&indices[components.clone()], &values[components]);
        }
        let pair =
            |(index, value): (&[u8; 4], &[u8; 4])| (u32::from_le_bytes(*index), f32::from_le_bytes(*value));
        indices.iter().zip(values).map(pair)
    }

    fn sparse_parts(&self) -> [&'a [[u8; 4]]; 2] {
        [layout::ROW_SPARSE_INDICES, layout::ROW_SPARSE_VALUES].map(|slot| self.quads(slot))
    }

    /// The 4-byte elements of a vector of the row itself.
    fn quads(&self, slot: u16) -> &'a [[u8; 4]] {
        if self.bytes.is_empty() {
            return &[];
        }
        let root = layout::target(self.bytes, 0);
        layout::field(self.bytes, root, slot)
            .map_or(&[][..], |position| layout::quads_behind(self.bytes, position))
    }

    /// The token vectors of a document of a multi-vector collection. Like the sparse vectors they are no entry.
    pub fn tokens(&self) -> RowTokens<'a> {
        let numbers = self.quads(layout::ROW_TOKEN_NUMBERS);
        match self.token_code() {
            Some((code, dim, packed)) => {
                RowTokens::coded(numbers, (code, dim), self.quads(layout::ROW_TOKEN_FACTORS), packed)
            }
            None => RowTokens::floats(numbers, self.quads(layout::ROW_TOKENS)),
        }
    }

    /// The code of the token vectors, their number of components, and their packed values; `None` if they are floats.
    fn token_code(&self) -> Option<(TokenCode, usize, &'a [u8])> {
        if self.bytes.is_empty() {
            return None;
        }
        let root = layout::target(self.bytes, 0);
        let field = |slot| layout::field(self.bytes, root, slot);
        let code = TokenCode::of_bits(layout::u8_at(self.bytes, field(layout::ROW_TOKEN_BITS)?))?;
        let dim = layout::u32_at(self.bytes, field(layout::ROW_TOKEN_DIM)?) as usize;
        let packed = layout::bytes_behind(self.bytes, field(layout::ROW_TOKEN_CODES)?);
        (dim > 0).then_some((code, dim, packed))
    }

    /// Sparse spaces up to the last in which the point has a vector.
    pub fn sparse_spaces(&self) -> usize {
        match (self.sparse_ends().len(), self.sparse_parts()[0].len()) {
            (0, components) => usize::from(components > 0),
            (spaces, _) => spaces,
        }
    }

    fn sparse_ends(&self) -> &'a [[u8; 4]] {
        if self.bytes.is_empty() {
            return &[];
        }
        let root = layout::target(self.bytes, 0);
        layout::field(self.bytes, root, layout::ROW_SPARSE_ENDS)
            .map_or(&[][..], |position| layout::quads_behind(self.bytes, position))
    }

    /// The earliest deadline of any key, one already past included: at that time a sweep of this row is due. `None` when
    /// no key expires. Constant time.
    pub fn next_deadline(&self) -> Option<u64> {
        (self.next_deadline_ms != 0).then_some(self.next_deadline_ms)
    }

    fn table(&self, index: usize) -> usize {
        layout::target(self.bytes, self.first + 4 * index)
    }

    fn key_bytes(&self, table: usize) -> &'a [u8] {
        layout::bytes_behind(self.bytes, self.key_position(table))
    }

    fn key(&self, table: usize) -> &'a str {
        layout::string_behind(self.bytes, self.key_position(table))
    }

    fn key_position(&self, table: usize) -> usize {
        layout::field(self.bytes, table, layout::ENTRY_KEY).expect("an entry of a payload row has a key")
    }

    fn deadline(&self, table: usize) -> u64 {
        layout::field(self.bytes, table, layout::ENTRY_DEADLINE)
            .map_or(0, |position| layout::u64_at(self.bytes, position))
    }

    fn is_live(&self, table: usize, now_ms: u64) -> bool {
        // Most rows have no deadline at all; most others have none that is due.
        if self.next_deadline_ms == 0 || self.next_deadline_ms > now_ms {
            return true;
        }
        let deadline = self.deadline(table);
        deadline == 0 || deadline > now_ms
    }

    fn is_derived(&self, table: usize) -> bool {
        layout::field(self.bytes, table, layout::ENTRY_DERIVED)
            .is_some_and(|position| layout::u8_at(self.bytes, position) != 0)
    }

    fn stored_kind(&self, table: usize) -> u8 {
        layout::field(self.bytes, table, layout::ENTRY_KIND)
            .map_or(0, |position| layout::u8_at(self.bytes, position))
    }

    fn word(&self, table: usize, slot: u16) -> u64 {
        layout::field(self.bytes, table, slot).map_or(0, |position| layout::u64_at(self.bytes, position))
    }

    fn words(&self, table: usize, slot: u16) -> &'a [[u8; 8]] {
        layout::field(self.bytes, table, slot)
            .map_or(&[], |position| layout::words_behind(self.bytes, position))
    }

    fn value(&self, table: usize) -> ValueRef<'a> {
        let kind = Kind::from_stored(self.stored_kind(table)).expect("a payload row holds known kinds");
        match kind {
            Kind::None => ValueRef::None,
            Kind::String => ValueRef::String(
                layout::field(self.bytes, table, layout::ENTRY_STRING)
                    .map_or("", |position| layout::string_behind(self.bytes, position)),
            ),
            Kind::Int => ValueRef::Int(self.word(table, layout::ENTRY_INT) as i64),
            Kind::Float => ValueRef::Float(f64::from_bits(self.word(table, layout::ENTRY_FLOAT))),
            Kind::Bool => ValueRef::Bool(self.word(table, layout::ENTRY_INT) != 0),
            Kind::Strings => {
                let (first, len) = layout::field(self.bytes, table, layout::ENTRY_STRINGS)
                    .map_or((0, 0), |position| layout::vector_behind(self.bytes, position));
                ValueRef::Strings(StrArray::new(self.bytes, first, len))
            }
            Kind::Ints => ValueRef::Ints(IntArray::new(self.words(table, layout::ENTRY_INTS))),
            Kind::Floats => ValueRef::Floats(FloatArray::new(self.words(table, layout::ENTRY_FLOATS))),
            Kind::Geo => ValueRef::Geo {
                lat: f64::from_bits(self.word(table, layout::ENTRY_FLOAT)),
                lon: f64::from_bits(self.word(table, layout::ENTRY_LON)),
            },
            Kind::Record => ValueRef::Record(
                layout::field(self.bytes, table, layout::ENTRY_RECORD)
                    .map_or(&[], |position| layout::bytes_behind(self.bytes, position)),
            ),
            Kind::Json => ValueRef::Json(JsonRef::new(self.bytes, table)),
        }
    }
}

impl PartialEq for PayloadRow<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
            && self.format() == other.format()
            && self.id() == other.id()
            && self.stored_entries().eq(other.stored_entries())
            && self.tokens() == other.tokens()
            && (0..self.sparse_spaces().max(other.sparse_spaces()))
                .all(|space| self.sparse_of(space).eq(other.sparse_of(space)))
    }
}

impl fmt::Debug for PayloadRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.stored_entries()).finish()
    }
}
