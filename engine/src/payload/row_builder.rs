//! Building a row.

use super::json::{self, JsonError, JsonLimits, Marks};
use super::row_layout as layout;
use super::token_codes::TokenCodes;
use super::{PayloadFormat, PayloadRow, RowEntry, Value};
use crate::sparse::{SparseError, check_sparse};
use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, WIPOffset};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Collects entries and encodes one row.
///
/// Starts empty or from a stored row (`RowBuilder::from`), so it is also the place where payload edits happen:
///
/// * merge: `from` the old row, [`drop_expired`](Self::drop_expired), then [`set_value`](Self::set_value) per key of
///   the patch, then [`set_deadline`](Self::set_deadline) per key of `key_ttl_ms`;
/// * overwrite: `from` the old row, [`remove_all`](Self::remove_all), then [`set`](Self::set) per key;
/// * delete keys: `from` the old row, [`remove`](Self::remove) per key.
///
/// The encoding depends on what was set (entries, vectors, format and id) and not on the order in which it was set.
///
/// A row with JSON values has derived entries for what is inside these ([`Self::derive`]). Edits concern what was sent: a derived entry is
/// neither found nor removed by its path, and a key that is spelled like a path takes its place.
#[derive(Clone, Debug, Default)]
pub struct RowBuilder {
    entries: BTreeMap<String, Draft>,
    /// For each sparse space, up to the last that was set.
    sparse: Vec<Vec<(u32, f32)>>,
    /// For each token vector, the number of its point in the index. All tokens of a document have the same number if the index holds encodings.
    token_numbers: Vec<u32>,
    /// Components of the token vectors, as many of each, unless they are codes.
    tokens: Vec<f32>,
    token_codes: Option<TokenCodes>,
    format: PayloadFormat,
    /// The id of the point, where ids are strings.
    id: Option<Box<str>>,
    /// Something has changed since entries were derived.
    is_stale: bool,
}

#[derive(Clone, Debug)]
struct Draft {
    value: Value,
    deadline_ms: u64,
    is_derived: bool,
}

impl Draft {
    fn sent(value: Value, deadline_ms: u64) -> Draft {
        Draft { value, deadline_ms, is_derived: false }
    }
}

impl RowBuilder {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` (last wins); `deadline_ms` 0 = none, else absolute Unix milliseconds at which the key expires.
    pub fn set(&mut self, key: &str, value: Value, deadline_ms: u64) {
        self.is_stale = true;
        let sent = Draft::sent(value, deadline_ms);
        match self.entries.get_mut(key) {
            Some(draft) => *draft = sent,
            None => {
                self.entries.insert(key.to_owned(), sent);
            }
        }
    }

    /// Sets how the payload is answered.
    pub fn set_format(&mut self, format: PayloadFormat) {
        self.format = format;
    }

    /// Sets the id of the point, in a collection whose ids are strings. It is no entry, and stays when entries change.
    pub fn set_id(&mut self, id: Box<str>) {
        self.id = Some(id);
    }

    /// Derives entries from the texts of JSON values: [`Json`](super::Json) says which. They expire with the value. [`Self::finish`] does it
    /// without limits, for rows whose values were let in before. Linear in the texts; without JSON values, in the number of keys.
    ///
    /// # Errors
    /// [`JsonError`]; the row is not to be used then.
    pub fn derive(&mut self, limits: JsonLimits) -> Result<(), JsonError> {
        if !std::mem::take(&mut self.is_stale) {
            return Ok(());
        }
        // Most rows have neither.
        let concerns = |draft: &Draft| draft.is_derived || matches!(draft.value, Value::Json(_));
        if !self.entries.values().any(concerns) {
            return Ok(());
        }
        self.entries.retain(|_, draft| !draft.is_derived);
        let (mut derived, mut left) = (Vec::new(), limits);
        // An error tells the limit, and not what other keys have left of it.
        let told = |error| match error {
            JsonError::TooManyPaths(_) => JsonError::TooManyPaths(limits.paths),
            JsonError::TooLarge(_) => JsonError::TooLarge(limits.bytes),
            other => other,
        };
        for (key, draft) in &mut self.entries {
            let Value::Json(json) = &mut draft.value else { continue };
            let (elements, paths) = json::derive(key, &json.text, &mut left).map_err(told)?;
            json.elements = elements;
            derived.extend(paths.into_iter().map(|(path, value)| (path, value, draft.deadline_ms)));
        }
        for (path, value, deadline_ms) in derived {
            self.entries.entry(path).or_insert(Draft { value, deadline_ms, is_derived: true });
        }
        Ok(())
    }

    /// Sets the value of `key` and leaves its deadline as it is (none for a new key): what a merge does to the keys of its
    /// patch.
    pub fn set_value(&mut self, key: &str, value: Value) {
        self.is_stale = true;
        match self.entries.get_mut(key) {
            Some(draft) if !draft.is_derived => draft.value = value,
            _ => self.set(key, value, 0),
        }
    }

    /// Sets or, with 0, clears the deadline of `key`. False when there is no such key; nothing happens then.
    pub fn set_deadline(&mut self, key: &str, deadline_ms: u64) -> bool {
        match self.entries.get_mut(key) {
            Some(draft) if !draft.is_derived => {
                draft.deadline_ms = deadline_ms;
                self.is_stale = true;
                true
            }
            _ => false,
        }
    }

    /// Replaces the point's sparse vector (dimension, value); empty = none.
    ///
    /// # Errors
    /// Dimensions that do not ascend strictly, values that are not finite; nothing has changed then.
    pub fn set_sparse(&mut self, vector: Vec<(u32, f32)>) -> Result<(), SparseError> {
        self.set_sparse_of(0, vector)
    }

    /// As [`Self::set_sparse`], in the sparse space of that number.
    ///
    /// # Errors
    /// As that.
    pub fn set_sparse_of(&mut self, space: usize, vector: Vec<(u32, f32)>) -> Result<(), SparseError> {
        check_sparse(&vector)?;
        if space >= self.sparse.len() {
            self.sparse.resize_with(space + 1, Vec::new);
        }
        self.sparse[space] = vector;
        while self.sparse.pop_if(|vector| vector.is_empty()).is_some() {}
        Ok(())
    }

    /// Replaces the token vectors of a document: the components of one vector after the other, and the number of each in the index of
    /// tokens. None at all take the vectors out.
    ///
    /// # Panics
    /// When the components are not as many for each number.
    pub fn set_tokens(&mut self, numbers: Vec<u32>, components: Vec<f32>) {
        let rest = components.len().checked_rem(numbers.len()).unwrap_or(components.len());
        assert_eq!(rest, 0, "{} components of {} token vectors", components.len(), numbers.len());
        (self.token_numbers, self.tokens, self.token_codes) = (numbers, components, None);
    }

    /// As [`Self::set_tokens`], with token vectors that are codes.
    ///
    /// # Panics
    /// When there is not one number for each vector.
    pub fn set_token_codes(&mut self, numbers: Vec<u32>, codes: TokenCodes) {
        assert_eq!(numbers.len(), codes.len(), "numbers of token vectors");
        (self.token_numbers, self.tokens) = (numbers, Vec::new());
        self.token_codes = (!codes.is_empty()).then_some(codes);
    }

    /// Replaces the numbers that the token vectors have in the index of tokens.
    ///
    /// # Panics
    /// If there is not one number for each token vector.
    pub fn number_tokens(&mut self, numbers: Vec<u32>) {
        assert_eq!(numbers.len(), self.token_numbers.len(), "numbers of token vectors");
        self.token_numbers = numbers;
    }

    /// Removes `key` and its deadline; false when there was none.
    pub fn remove(&mut self, key: &str) -> bool {
        let is_there = self.entries.get(key).is_some_and(|draft| !draft.is_derived);
        if is_there {
            self.entries.remove(key);
            self.is_stale = true;
        }
        is_there
    }

    /// Removes every key.
    pub fn remove_all(&mut self) {
        self.entries.clear();
        self.is_stale = true;
    }

    /// Removes the keys whose deadline is at or before `now_ms`; returns how many. Called before a merge it makes a write
    /// to an expired key a fresh one, without the deadline that would hide it at once.
    pub fn drop_expired(&mut self, now_ms: u64) -> usize {
        let before = self.entries.len();
        self.entries.retain(|_, draft| draft.deadline_ms == 0 || draft.deadline_ms > now_ms);
        let dropped = before - self.entries.len();
        self.is_stale |= dropped > 0;
        dropped
    }

    /// The value `key` has so far.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key).filter(|draft| !draft.is_derived).map(|draft| &draft.value)
    }

    /// Number of keys, and of paths that were derived so far.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// No key set.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// An upper bound of the encoded length in bytes, for refusing rows before they are built. What was not derived yet is not counted.
    pub fn encoded_bound(&self) -> usize {
        // Per string: offset, length, terminator, padding. Per entry: its offset, back offset, and every scalar field
        // aligned. Per row: root, identifier, root table, and one vtable per shape of entry (eleven kinds, with and
        // without deadline, a few elided fields).
        const TEXT: usize = 12;
        const ENTRY: usize = 48 + TEXT;
        const ROW: usize = 160;
        const VTABLES: usize = 128 * 28;
        let entries = self.entries.iter().map(|(key, draft)| {
            let value = match &draft.value {
                Value::String(text) => TEXT + text.len(),
                Value::Strings(texts) => 8 + texts.iter().map(|text| TEXT + text.len()).sum::<usize>(),
                Value::Ints(numbers) => 12 + 8 * numbers.len(),
                Value::Floats(numbers) => 12 + 8 * numbers.len(),
                Value::Record(bytes) => TEXT + bytes.len(),
                Value::Json(json) => {
                    let of = &json.elements;
                    let texts = of.strings.iter().map(|text| TEXT + text.len()).sum::<usize>();
                    4 * TEXT + json.text.len() + texts + 8 * (of.ints.len() + of.floats.len())
                }
                Value::None | Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::Geo { .. } => 0,
            };
            ENTRY + key.len() + value
        });
        let sparse = self.sparse.iter().map(|vector| 4 + 8 * vector.len());
        let tokens = 4 * (self.token_numbers.len() + self.tokens.len());
        let codes =
            self.token_codes.as_ref().map_or(0, |codes| 24 + 4 * codes.factors.len() + codes.packed.len());
        let tokens = tokens + codes;
        let id = self.id.as_ref().map_or(0, |id| TEXT + id.len());
        let vtables = if self.entries.is_empty() { 0 } else { VTABLES };
        ROW + vtables + id + entries.sum::<usize>() + sparse.sum::<usize>() + tokens
    }

    /// The encoded row; empty when no key, no vector and no id is set.
    ///
    /// # Panics
    /// When the row would pass 2 GiB, which its offsets cannot span; see [`encoded_bound`](Self::encoded_bound). When a JSON value is none;
    /// see [`derive`](Self::derive).
    pub fn finish(mut self) -> Vec<u8> {
        self.derive(JsonLimits::NONE).expect("the text of a JSON value is JSON");
        let holds_vectors = !self.sparse.is_empty() || !self.token_numbers.is_empty();
        if self.entries.is_empty() && !holds_vectors && self.id.is_none() {
            return Vec::new();
        }
        let mut builder = FlatBufferBuilder::with_capacity(self.encoded_bound().next_multiple_of(8));
        // The buffer fills from its end, so the last key goes first; each key lies right behind its entry.
        let mut tables: Vec<WIPOffset<TableFinishedWIPOffset>> =
            self.entries.iter().rev().map(|(key, draft)| encode_entry(&mut builder, key, draft)).collect();
        tables.reverse();
        let entries = builder.create_vector(&tables);
        let next_deadline_ms =
            self.entries.values().map(|draft| draft.deadline_ms).filter(|&deadline| deadline != 0).min();

        let sparse = (!self.sparse.is_empty()).then(|| {
            let (indices, values): (Vec<u32>, Vec<f32>) = self.sparse.iter().flatten().copied().unzip();
            let ends = self.sparse.iter().scan(0, |end, vector| {
                *end += vector.len() as u32;
                Some(*end)
            });
            let ends = (self.sparse.len() > 1).then(|| builder.create_vector(&ends.collect::<Vec<u32>>()));
            (builder.create_vector(&indices), builder.create_vector(&values), ends)
        });

        let has_tokens = !self.token_numbers.is_empty();
        let codes = self.token_codes.as_ref().map(|codes| {
            (
                builder.create_vector(&codes.factors),
                builder.create_vector(&codes.packed),
                codes.dim,
                codes.code,
            )
        });
        let tokens = (codes.is_none() && has_tokens).then(|| builder.create_vector(&self.tokens));
        let numbers = has_tokens.then(|| builder.create_vector(&self.token_numbers));

        let id = self.id.as_deref().map(|id| builder.create_string(id));

        let table = builder.start_table();
        builder.push_slot_always(layout::ROW_ENTRIES, entries);
        if let Some(id) = id {
            builder.push_slot_always(layout::ROW_ID, id);
        }
        if let Some(components) = tokens {
            builder.push_slot_always(layout::ROW_TOKENS, components);
        }
        if let Some((factors, packed, dim, code)) = codes {
            builder.push_slot_always(layout::ROW_TOKEN_CODES, packed);
            builder.push_slot_always(layout::ROW_TOKEN_FACTORS, factors);
            builder.push_slot_always(layout::ROW_TOKEN_DIM, dim as u32);
            builder.push_slot_always(layout::ROW_TOKEN_BITS, code.bits() as u8);
        }
        if let Some(numbers) = numbers {
            builder.push_slot_always(layout::ROW_TOKEN_NUMBERS, numbers);
        }
        if let Some((indices, values, ends)) = sparse {
            builder.push_slot_always(layout::ROW_SPARSE_INDICES, indices);
            builder.push_slot_always(layout::ROW_SPARSE_VALUES, values);
            if let Some(ends) = ends {
                builder.push_slot_always(layout::ROW_SPARSE_ENDS, ends);
            }
        }
        builder.push_slot(layout::ROW_NEXT_DEADLINE, next_deadline_ms.unwrap_or(0), 0);
        builder.push_slot(layout::ROW_FORMAT, self.format as u8, 0);
        let root = builder.end_table(table);
        builder.finish(root, Some(layout::IDENTIFIER));
        builder.finished_data().to_vec()
    }
}

fn encode_entry(
    builder: &mut FlatBufferBuilder<'_>,
    key: &str,
    draft: &Draft,
) -> WIPOffset<TableFinishedWIPOffset> {
    // What the table refers to is written before the table starts.
    let mut texts: &[String] = &[];
    let (mut ints, mut floats): (&[i64], &[f64]) = (&[], &[]);
    let (mut text, mut record) = ("", &[][..]);
    match &draft.value {
        Value::String(value) => text = value,
        Value::Strings(values) => texts = values,
        Value::Ints(values) => ints = values,
        Value::Floats(values) => floats = values,
        Value::Record(bytes) => record = bytes,
        Value::Json(json) => {
            text = &json.text;
            (texts, ints, floats) = (&json.elements.strings, &json.elements.ints, &json.elements.floats);
        }
        Value::None | Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::Geo { .. } => {}
    }
    let text = (!text.is_empty()).then(|| builder.create_string(text));
    let texts = (!texts.is_empty()).then(|| {
        let mut offsets: Vec<_> = texts.iter().rev().map(|text| builder.create_string(text)).collect();
        offsets.reverse();
        builder.create_vector(&offsets)
    });
    let ints = (!ints.is_empty()).then(|| builder.create_vector(ints));
    let floats = (!floats.is_empty()).then(|| builder.create_vector(floats));
    let record = (!record.is_empty()).then(|| builder.create_vector(record));
    let key = builder.create_string(key);

    let table = builder.start_table();
    builder.push_slot(layout::ENTRY_DEADLINE, draft.deadline_ms, 0);
    match &draft.value {
        Value::Int(number) => builder.push_slot(layout::ENTRY_INT, *number, 0),
        Value::Bool(flag) => builder.push_slot(layout::ENTRY_INT, i64::from(*flag), 0),
        Value::Float(number) => push_float(builder, layout::ENTRY_FLOAT, *number),
        Value::Geo { lat, lon } => {
            push_float(builder, layout::ENTRY_FLOAT, *lat);
            push_float(builder, layout::ENTRY_LON, *lon);
        }
        Value::Json(json) => {
            let geo = if json.elements.geo.is_some() { Marks::GEO } else { 0 };
            builder.push_slot(layout::ENTRY_INT, i64::from(json.elements.marks.0 | geo), 0);
            if let Some((lat, lon)) = json.elements.geo {
                push_float(builder, layout::ENTRY_FLOAT, lat);
                push_float(builder, layout::ENTRY_LON, lon);
            }
        }
        _ => {}
    }
    builder.push_slot_always(layout::ENTRY_KEY, key);
    if let Some(text) = text {
        builder.push_slot_always(layout::ENTRY_STRING, text);
    }
    if let Some(texts) = texts {
        builder.push_slot_always(layout::ENTRY_STRINGS, texts);
    }
    if let Some(ints) = ints {
        builder.push_slot_always(layout::ENTRY_INTS, ints);
    }
    if let Some(floats) = floats {
        builder.push_slot_always(layout::ENTRY_FLOATS, floats);
    }
    if let Some(record) = record {
        builder.push_slot_always(layout::ENTRY_RECORD, record);
    }
    builder.push_slot(layout::ENTRY_KIND, draft.value.kind() as u8, 0);
    builder.push_slot(layout::ENTRY_DERIVED, u8::from(draft.is_derived), 0);
    builder.end_table(table)
}

/// Leaves out only positive zero: comparing by number would drop the sign of -0.0.
fn push_float(builder: &mut FlatBufferBuilder<'_>, slot: u16, number: f64) {
    if number.to_bits() != 0 {
        builder.push_slot_always(slot, number);
    }
}

/// The row as it is answered: a document without its token vectors, which may be a hundred times its payload. Any other row is given back as
/// it is.
pub fn without_tokens(row: &[u8]) -> Cow<'_, [u8]> {
    if row.is_empty() {
        return Cow::Borrowed(row);
    }
    let document = PayloadRow::trusted(row);
    match document.tokens().is_empty() {
        true => Cow::Borrowed(row),
        false => Cow::Owned(RowBuilder::beside_tokens(document).finish()),
    }
}

/// The row with the entries that `keeps` names alone, with its sparse vectors if asked for, and without token vectors. It keeps an id that is a
/// string, and is empty if nothing is left.
/// Takes time and memory in proportion to the row without its token vectors.
pub fn narrowed(row: &[u8], keeps: impl Fn(&str) -> bool, with_sparse: bool) -> Vec<u8> {
    if row.is_empty() {
        return Vec::new();
    }
    let mut builder = RowBuilder::beside_tokens(PayloadRow::trusted(row));
    builder.entries.retain(|key, draft| !draft.is_derived && keeps(key));
    if !with_sparse {
        builder.sparse.clear();
    }
    let is_empty = builder.entries.is_empty() && builder.sparse.iter().all(Vec::is_empty);
    match is_empty && builder.id.is_none() {
        true => Vec::new(),
        false => builder.finish(),
    }
}

/// The row with nothing but the id of its point, where ids are strings; else empty. Takes time in proportion to the id.
pub fn only_id(row: &[u8]) -> Vec<u8> {
    if row.is_empty() {
        return Vec::new();
    }
    let row = PayloadRow::trusted(row);
    match row.id() {
        Some(id) => {
            RowBuilder { id: Some(id.into()), format: row.format(), ..RowBuilder::default() }.finish()
        }
        None => Vec::new(),
    }
}

/// The bytes of [`without_tokens`], at most. Constant time, so that memory can be asked for before the row is built.
pub fn bytes_without_tokens(row: &[u8]) -> usize {
    if row.is_empty() {
        return 0;
    }
    row.len() - PayloadRow::trusted(row).tokens().bytes()
}

impl From<PayloadRow<'_>> for RowBuilder {
    /// Copies every stored entry with its deadline, expired ones included, the vectors and the id.
    fn from(row: PayloadRow<'_>) -> Self {
        let tokens = row.tokens();
        let token_codes = tokens.codes();
        let components = if token_codes.is_some() { Vec::new() } else { tokens.decoded() };
        let token_numbers = tokens.numbers().collect();
        Self { token_numbers, tokens: components, token_codes, ..RowBuilder::beside_tokens(row) }
    }
}

impl RowBuilder {
    /// Copies everything but the token vectors.
    fn beside_tokens(row: PayloadRow<'_>) -> Self {
        let entries = row
            .stored_entries()
            .map(|entry| {
                let RowEntry { value, deadline_ms, is_derived, .. } = entry;
                let draft = Draft { value: value.to_owned(), deadline_ms, is_derived };
                (entry.key.to_owned(), draft)
            })
            .collect();
        let sparse = (0..row.sparse_spaces()).map(|space| row.sparse_of(space).collect()).collect();
        let (format, is_stale) = (row.format(), false);
        let id = row.id().map(Box::from);
        Self { entries, sparse, format, id, is_stale, ..Self::default() }
    }
}
