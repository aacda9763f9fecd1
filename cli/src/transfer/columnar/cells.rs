//! The columns of a file, what is in a row of them, and the line that a row stands for.
use super::super::header::{Family, Header, Kind};
use super::super::key_line::Key;
use super::super::shape::Shape;
use std::io::Write;

/// The key of the footer under which the header is, as the first line of an export has it.
pub const HEADER: &str = "nigh.header";
/// The key of the footer under which the end is, as the last line of an export has it.
pub const END: &str = "nigh.end";
/// The program that has written an export, as its footer names it in front of the version.
pub const PROGRAM: &str = "nigh";

/// Which part of a line a column has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The id of a point.
    Id,
    /// Its version.
    Version,
    /// When a point or key expires.
    ExpiresAt,
    /// The vector of a point of a dense collection.
    Vector,
    /// The vector of a named space.
    Space(String),
    /// The token vectors of a document.
    Tokens,
    /// The indices of a sparse vector.
    SparseIndices,
    /// The values of a sparse vector.
    SparseValues,
    /// The whole payload as JSON.
    Payload,
    /// One key of the payload; files of other programs have them.
    Field(String),
    /// A key of the key-value store.
    Key,
    /// Its value.
    Value,
}

/// What the cells of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Integers from 0 on.
    Int,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// Lists of floats.
    Floats,
    /// Lists of integers from 0 on.
    Ints,
    /// Lists of lists of floats.
    Tokens,
    /// Any value that a payload can have, as JSON.
    Json,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its part of a line.
    pub part: Part,
    /// Its cells.
    pub form: Form,
}

impl Column {
    /// A column.
    pub fn new(name: &str, part: Part, form: Form) -> Column {
        Column { name: name.to_owned(), part, form }
    }

    /// Whether every row has a cell of it.
    pub fn is_required(&self) -> bool {
        matches!(self.part, Part::Id | Part::Key | Part::Value)
    }
}

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// There is none.
    Empty,
    /// A number.
    Int(u64),
    /// A text, or the text of something that the check of lines refuses.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Floats; those of other programs may have 64 bits, or be no numbers.
    Floats(Vec<f64>),
    /// Floats of 32 bits.
    Singles(Vec<f32>),
    /// Indices.
    Ints(Vec<u32>),
    /// Token vectors.
    Tokens(Vec<Vec<f32>>),
    /// A part as JSON.
    Json(String),
}

impl Cell {
    /// Bytes that it has in memory, roughly.
    pub fn bytes(&self) -> usize {
        size_of::<Cell>()
            + match self {
                Cell::Empty | Cell::Int(_) => 0,
                Cell::Text(text) | Cell::Json(text) => text.len(),
                Cell::Bytes(bytes) => bytes.len(),
                Cell::Floats(values) => values.len() * 8,
                Cell::Singles(values) => values.len() * 4,
                Cell::Ints(values) => values.len() * 4,
                Cell::Tokens(tokens) => tokens.iter().map(|token| token.len() * 4 + 24).sum(),
            }
    }
}

/// The columns whose names a space cannot have.
const TAKEN: [&str; 4] = ["id", "version", "expires_at_ms", "payload"];

/// The name of the column of a space.
pub fn column_of(space: &str) -> String {
    match TAKEN.contains(&space) {
        true => format!("vectors.{space}"),
        false => space.to_owned(),
    }
}

/// The columns of a file that has this header.
///
/// # Errors
/// A sentence: the header says too little.
pub fn columns_of(header: &Header) -> Result<Vec<Column>, String> {
    let expires = Column::new("expires_at_ms", Part::ExpiresAt, Form::Int);
    let family = match (header.kind, header.family) {
        (Kind::Keys, _) => {
            return Ok(vec![
                Column::new("key", Part::Key, Form::Bytes),
                Column::new("value", Part::Value, Form::Bytes),
                expires,
            ]);
        }
        (Kind::Collection, Some(family)) => family,
        (Kind::Collection, None) => return Err("the header names no family of a collection".into()),
    };
    let config = header.config.as_ref().ok_or(
        "the columns of a file of Parquet follow from the configuration of the collection, which the server does not tell; \
         -format jsonl needs none",
    )?;
    let shape = Shape::of(family, config);
    let ids = if shape.has_string_ids == Some(true) { Form::Text } else { Form::Int };
    let mut columns =
        vec![Column::new("id", Part::Id, ids), Column::new("version", Part::Version, Form::Int), expires];
    match family {
        Family::Dense => columns.extend([
            Column::new("vector", Part::Vector, Form::Floats),
            Column::new("sparse_indices", Part::SparseIndices, Form::Ints),
            Column::new("sparse_values", Part::SparseValues, Form::Floats),
        ]),
        Family::Multivector => columns.push(Column::new("tokens", Part::Tokens, Form::Tokens)),
        Family::Named => {
            let spaces = shape.spaces.iter().flatten().filter(|(_, dim)| dim.is_some());
            columns.extend(
                spaces.map(|(space, _)| {
                    Column::new(&column_of(space), Part::Space(space.clone()), Form::Floats)
                }),
            );
        }
    }
    columns.push(Column::new("payload", Part::Payload, Form::Text));
    Ok(columns)
}

/// Writes the line, with its line feed, that the row stands for.
pub fn render(columns: &[Column], row: &[Cell], line: &mut Vec<u8>) {
    line.clear();
    let find = |wanted: &Part| {
        let found = columns.iter().zip(row).find(|(column, _)| column.part == *wanted);
        found.map(|(_, cell)| cell).filter(|cell| **cell != Cell::Empty)
    };
    let (key, value) = (find(&Part::Key), find(&Part::Value));
    let expires_at_ms = match find(&Part::ExpiresAt) {
        Some(Cell::Int(at)) => Some(Some(*at)),
        Some(_) => None,
        None => Some(None),
    };
    if let (Some(Cell::Bytes(key)), Some(Cell::Bytes(value)), Some(expires_at_ms)) =
        (key, value, expires_at_ms)
    {
        line.extend_from_slice(&Key { key: key.clone(), value: value.clone(), expires_at_ms }.line());
        return;
    }
    line.push(b'{');
    let part = |line: &mut Vec<u8>, name: &str, cell: Option<&Cell>| {
        if let Some(cell) = cell {
            name_of(line, name);
            json(line, cell);
        }
    };
    // A key that is not whole keeps what it has, so that the check of lines says what is wrong with it.
    part(line, "key", key);
    part(line, "value", value);
    part(line, "id", find(&Part::Id));
    part(line, "version", find(&Part::Version));
    part(line, "expires_at_ms", find(&Part::ExpiresAt));
    part(line, "vector", find(&Part::Vector));
    part(line, "tokens", find(&Part::Tokens));
    group(line, "vectors", columns, row, |part| match part {
        Part::Space(space) => Some(space),
        _ => None,
    });
    let (indices, values) = (find(&Part::SparseIndices), find(&Part::SparseValues));
    if indices.is_some() || values.is_some() {
        // Where one of them is missing, null is refused in its place.
        name_of(line, "sparse");
        line.extend_from_slice(b"{\"indices\":");
        json(line, indices.unwrap_or(&Cell::Empty));
        line.extend_from_slice(b",\"values\":");
        json(line, values.unwrap_or(&Cell::Empty));
        line.push(b'}');
    }
    match find(&Part::Payload) {
        // It is JSON already.
        Some(Cell::Text(payload)) => {
            name_of(line, "payload");
            line.extend(payload.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')));
        }
        _ => group(line, "payload", columns, row, |part| match part {
            Part::Field(field) => Some(field),
            _ => None,
        }),
    }
    line.extend_from_slice(b"}\n");
}

/// Writes an object of the cells of some columns, if there is one.
fn group(
    line: &mut Vec<u8>,
    name: &str,
    columns: &[Column],
    row: &[Cell],
    key: impl Fn(&Part) -> Option<&String>,
) {
    let mut is_begun = false;
    for (column, cell) in columns.iter().zip(row) {
        let Some(key) = key(&column.part).filter(|_| *cell != Cell::Empty) else { continue };
        if !is_begun {
            name_of(line, name);
            line.push(b'{');
            is_begun = true;
        }
        name_of(line, key);
        json(line, cell);
    }
    if is_begun {
        line.push(b'}');
    }
}

/// Writes the name of a part, behind a comma if it is not the first one.
fn name_of(line: &mut Vec<u8>, name: &str) {
    if line.last() != Some(&b'{') {
        line.push(b',');
    }
    // Text has a JSON form, and memory takes what is written.
    let _ = serde_json::to_writer(&mut *line, name);
    line.push(b':');
}

/// Writes a list.
fn list<T>(line: &mut Vec<u8>, values: &[T], mut write: impl FnMut(&mut Vec<u8>, &T)) {
    line.push(b'[');
    for (at, value) in values.iter().enumerate() {
        if at > 0 {
            line.push(b',');
        }
        write(line, value);
    }
    line.push(b']');
}

/// Writes bytes as text; bytes that are not UTF-8 have no JSON form, and the check of lines refuses what is written for them.
pub fn text(line: &mut Vec<u8>, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        // Text has a JSON form, and memory takes what is written.
        Ok(text) => drop(serde_json::to_writer(&mut *line, text)),
        Err(_) => line.extend_from_slice(b"<bytes that are not UTF-8>"),
    }
}

/// Writes a float; one that is no number has no JSON form, and the check of lines refuses what is written for it.
pub fn float(line: &mut Vec<u8>, value: f64) {
    let _ = match value.is_finite() {
        true => serde_json::to_writer(&mut *line, &value).map_err(Into::into),
        false => write!(line, "{value:?}"),
    };
}

/// Writes a float of 32 bits likewise.
fn single(line: &mut Vec<u8>, value: f32) {
    let _ = match value.is_finite() {
        true => serde_json::to_writer(&mut *line, &value).map_err(Into::into),
        false => write!(line, "{value:?}"),
    };
}

/// Writes a cell as JSON.
fn json(line: &mut Vec<u8>, cell: &Cell) {
    match cell {
        Cell::Empty => line.extend_from_slice(b"null"),
        Cell::Int(value) => line.extend_from_slice(value.to_string().as_bytes()),
        // Text has a JSON form, and memory takes what is written.
        Cell::Text(text) => drop(serde_json::to_writer(&mut *line, text)),
        Cell::Bytes(bytes) => text(line, bytes),
        Cell::Floats(values) => list(line, values, |line, value| float(line, *value)),
        Cell::Singles(values) => list(line, values, |line, value| single(line, *value)),
        Cell::Ints(values) => {
            list(line, values, |line, value| line.extend_from_slice(value.to_string().as_bytes()));
        }
        Cell::Tokens(tokens) => {
            list(line, tokens, |line, token| list(line, token, |line, value| single(line, *value)));
        }
        Cell::Json(text) => line.extend_from_slice(text.as_bytes()),
    }
}
