//! Converts the lines of an export to the columns of a file of Parquet.
use super::super::header::{End, Kind, hex};
use super::super::key_line::Key;
use super::super::line_reader::{Ended, LineReader};
use super::super::point::floats;
use super::cells::{Cell, Column, END, Form, HEADER, PROGRAM, Part, columns_of, render};
use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, FloatType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

/// Bytes of rows in memory at which they are written as a group. With what is made of them it is less than twice as much; one row is at most a
/// line.
const GROUP_BYTES: usize = 24 << 20;
/// Most rows of a group.
const GROUP_ROWS: usize = 1 << 20;
/// Most groups of a file, by the format.
const GROUPS_MAX: usize = i16::MAX as usize;
/// Bytes of a page.
const PAGE_BYTES: usize = 1 << 20;
/// Values that get their levels at once.
const VALUES_AT_ONCE: usize = 64 << 10;
const BUFFER_BYTES: usize = 256 << 10;

/// Converts a file of lines, which must be complete, to a file of Parquet.
///
/// # Errors
/// A sentence with the name of the file.
pub fn convert(lines: &Path, to: &Path) -> Result<(), String> {
    let name = |path: &Path| path.display().to_string();
    let from = File::open(lines).map_err(|error| format!("{}: {error}", name(lines)))?;
    let file = File::create(to).map_err(|error| format!("{}: {error}", name(to)))?;
    let file = write(BufReader::with_capacity(BUFFER_BYTES, from), file)
        .map_err(|error| format!("{}: {error}", name(to)))?;
    file.sync_all().map_err(|error| format!("{}: {error}", name(to)))
}

/// Writes the lines of `from` to `to`.
pub(super) fn write<W: std::io::Write + Send>(from: impl BufRead, to: W) -> Result<W, String> {
    let (header, mut lines) = LineReader::open(from)?;
    let columns = columns_of(&header)?;
    let schema = schema(&columns).map_err(in_words)?;
    let properties = WriterProperties::builder()
        .set_created_by(format!("{PROGRAM} {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::SNAPPY)
        // Vectors and texts hardly repeat, and what has no dictionary is written page by page.
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_data_page_size_limit(PAGE_BYTES)
        .build();
    let mut writer = SerializedFileWriter::new(to, schema, Arc::new(properties)).map_err(in_words)?;
    // A header that was read has a JSON form.
    let text = serde_json::to_string(&header).unwrap_or_default();
    let mut crc = crc32c::crc32c_append(crc32c::crc32c(text.as_bytes()), b"\n");
    writer.append_key_value_metadata(KeyValue::new(HEADER.to_owned(), text));
    let (mut rows, mut bytes, mut count, mut groups) = (Vec::new(), 0_usize, 0_u64, 0_usize);
    let (mut line, mut again) = (Vec::new(), Vec::new());
    loop {
        let is_there = lines.next(&mut line)?;
        // The more groups there are, the larger they become, so that no file has too many.
        let most = GROUP_BYTES << (groups / (GROUPS_MAX / 2));
        if !rows.is_empty() && (!is_there || bytes >= most || rows.len() >= GROUP_ROWS) {
            write_group(&mut writer, &columns, &rows).map_err(in_words)?;
            rows.clear();
            (bytes, groups) = (0, groups + 1);
        }
        if !is_there {
            break;
        }
        let row =
            row(&columns, header.kind, &line).map_err(|error| format!("line {}: {error}", lines.number()))?;
        render(&columns, &row, &mut again);
        crc = crc32c::crc32c_append(crc, &again);
        bytes += row.iter().map(Cell::bytes).sum::<usize>();
        count += 1;
        rows.push(row);
    }
    if let Some(Ended::Broken(reason)) = lines.ended() {
        return Err(reason.clone());
    }
    let end = End { lines: count, crc32c: hex(crc), vectors_crc32c: None };
    writer.append_key_value_metadata(KeyValue::new(
        END.to_owned(),
        serde_json::to_string(&end).unwrap_or_default(),
    ));
    writer.into_inner().map_err(in_words)
}

/// An error of the library as a sentence.
fn in_words(error: ParquetError) -> String {
    format!("writing Parquet: {error}")
}

/// The schema of the columns. Lists have three levels, as the format wants them.
fn schema(columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let fields: Result<Vec<TypePtr>, ParquetError> = columns.iter().map(field).collect();
    Ok(Arc::new(Type::group_type_builder("schema").with_fields(fields?).build()?))
}

fn field(column: &Column) -> Result<TypePtr, ParquetError> {
    let repetition = if column.is_required() { Repetition::REQUIRED } else { Repetition::OPTIONAL };
    let element = |physical, converted| primitive("element", Repetition::REQUIRED, physical, converted);
    let name = &column.name;
    match column.form {
        Form::Int => primitive(name, repetition, Physical::INT64, ConvertedType::UINT_64),
        Form::Text | Form::Json => primitive(name, repetition, Physical::BYTE_ARRAY, ConvertedType::UTF8),
        Form::Bytes => primitive(name, repetition, Physical::BYTE_ARRAY, ConvertedType::NONE),
        Form::Floats => list_of(name, repetition, element(Physical::FLOAT, ConvertedType::NONE)?),
        Form::Ints => list_of(name, repetition, element(Physical::INT32, ConvertedType::UINT_32)?),
        Form::Tokens => {
            let token =
                list_of("element", Repetition::REQUIRED, element(Physical::FLOAT, ConvertedType::NONE)?)?;
            list_of(name, repetition, token)
        }
    }
}

fn primitive(
    name: &str,
    repetition: Repetition,
    physical: Physical,
    converted: ConvertedType,
) -> Result<TypePtr, ParquetError> {
    let builder = Type::primitive_type_builder(name, physical);
    Ok(Arc::new(builder.with_repetition(repetition).with_converted_type(converted).build()?))
}

fn list_of(name: &str, repetition: Repetition, element: TypePtr) -> Result<TypePtr, ParquetError> {
    let repeated =
        Type::group_type_builder("list").with_repetition(Repetition::REPEATED).with_fields(vec![element]);
    let list = Type::group_type_builder(name)
        .with_repetition(repetition)
        .with_converted_type(ConvertedType::LIST)
        .with_fields(vec![Arc::new(repeated.build()?)]);
    Ok(Arc::new(list.build()?))
}

/// A line of points, whose parts are copied or read as their columns need them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    version: u64,
    expires_at_ms: Option<u64>,
    #[serde(borrow)]
    vector: Option<&'a RawValue>,
    #[serde(borrow)]
    vectors: Option<BTreeMap<String, &'a RawValue>>,
    tokens: Option<Vec<Vec<f32>>>,
    sparse: Option<Sparse>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sparse {
    indices: Vec<u32>,
    values: Vec<f32>,
}

/// The row of a line.
fn row(columns: &[Column], kind: Kind, line: &[u8]) -> Result<Vec<Cell>, String> {
    let number = |value: Option<u64>| value.map_or(Cell::Empty, Cell::Int);
    if kind == Kind::Keys {
        // Whether a key has expired is for the import to say.
        let key = Key::read(line, 0).map_err(|error| format!("{error:?}"))?;
        return Ok(vec![Cell::Bytes(key.key), Cell::Bytes(key.value), number(key.expires_at_ms)]);
    }
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let cell = |column: &Column| -> Result<Cell, String> {
        let vector = |text: &RawValue| floats(text.get()).map(Cell::Singles);
        Ok(match &column.part {
            Part::Id if column.form == Form::Text => {
                Cell::Text(serde_json::from_str(line.id.get()).map_err(|error| error.to_string())?)
            }
            Part::Id => Cell::Int(serde_json::from_str(line.id.get()).map_err(|error| error.to_string())?),
            Part::Version => Cell::Int(line.version),
            Part::ExpiresAt => number(line.expires_at_ms),
            Part::Vector => line.vector.map_or(Ok(Cell::Empty), vector)?,
            Part::Space(space) => {
                let found = line.vectors.as_ref().and_then(|vectors| vectors.get(space));
                found.map_or(Ok(Cell::Empty), |text| vector(text))?
            }
            Part::Tokens => line.tokens.clone().map_or(Cell::Empty, Cell::Tokens),
            Part::SparseIndices => {
                line.sparse.as_ref().map_or(Cell::Empty, |sparse| Cell::Ints(sparse.indices.clone()))
            }
            Part::SparseValues => {
                line.sparse.as_ref().map_or(Cell::Empty, |sparse| Cell::Singles(sparse.values.clone()))
            }
            Part::Payload => line.payload.map_or(Cell::Empty, |text| Cell::Text(text.get().to_owned())),
            Part::Field(_) | Part::Key | Part::Value => Cell::Empty,
        })
    };
    let spaces = line.vectors.iter().flat_map(BTreeMap::keys);
    for space in spaces {
        if !columns.iter().any(|column| column.part == Part::Space(space.clone())) {
            return Err(format!("the collection has no space {space:?}"));
        }
    }
    columns.iter().map(cell).collect()
}

fn write_group<W: std::io::Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    columns: &[Column],
    rows: &[Vec<Cell>],
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for (at, column) in columns.iter().enumerate() {
        let mut to = group
            .next_column()?
            .ok_or_else(|| ParquetError::General("the schema has too few columns".into()))?;
        let mut batch = Levels::default();
        for row in rows {
            batch.add(&row[at]);
            if batch.definitions.len() >= VALUES_AT_ONCE || batch.blob_bytes >= PAGE_BYTES {
                batch.write(&mut to, column)?;
            }
        }
        if !batch.definitions.is_empty() {
            batch.write(&mut to, column)?;
        }
        to.close()?;
    }
    group.close()?;
    Ok(())
}

/// Cells of a column as the format has them: values, how much of each is there, and where lists begin.
#[derive(Default)]
struct Levels {
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    floats: Vec<f32>,
    ints: Vec<i32>,
    longs: Vec<i64>,
    blobs: Vec<ByteArray>,
    blob_bytes: usize,
}

impl Levels {
    fn add(&mut self, cell: &Cell) {
        match cell {
            Cell::Empty => self.level(0, 0),
            Cell::Int(value) => {
                self.level(1, 0);
                self.longs.push(value.cast_signed());
            }
            Cell::Text(text) | Cell::Json(text) => self.blob(text.as_bytes()),
            Cell::Bytes(bytes) => self.blob(bytes),
            Cell::Singles(values) => {
                self.list(values.len());
                self.floats.extend_from_slice(values);
            }
            Cell::Floats(values) => {
                self.list(values.len());
                self.floats.extend(values.iter().map(|value| *value as f32));
            }
            Cell::Ints(values) => {
                self.list(values.len());
                self.ints.extend(values.iter().map(|value| value.cast_signed()));
            }
            Cell::Tokens(tokens) => {
                if tokens.is_empty() {
                    self.level(1, 0);
                }
                for (at, token) in tokens.iter().enumerate() {
                    let begins = i16::from(at > 0);
                    match token.len() {
                        0 => self.level(2, begins),
                        len => (0..len).for_each(|at| self.level(3, if at > 0 { 2 } else { begins })),
                    }
                    self.floats.extend_from_slice(token);
                }
            }
        }
    }

    fn level(&mut self, definition: i16, repetition: i16) {
        self.definitions.push(definition);
        self.repetitions.push(repetition);
    }

    fn blob(&mut self, bytes: &[u8]) {
        self.level(1, 0);
        self.blob_bytes += bytes.len();
        self.blobs.push(ByteArray::from(bytes.to_vec()));
    }

    fn list(&mut self, len: usize) {
        match len {
            0 => self.level(1, 0),
            _ => (0..len).for_each(|at| self.level(2, i16::from(at > 0))),
        }
    }

    /// Writes what was added, and begins anew.
    fn write(&mut self, to: &mut SerializedColumnWriter<'_>, column: &Column) -> Result<(), ParquetError> {
        let definitions = (!column.is_required()).then_some(&self.definitions[..]);
        let repetitions =
            matches!(column.form, Form::Floats | Form::Ints | Form::Tokens).then_some(&self.repetitions[..]);
        match column.form {
            Form::Int => to.typed::<Int64Type>().write_batch(&self.longs, definitions, repetitions)?,
            Form::Ints => to.typed::<Int32Type>().write_batch(&self.ints, definitions, repetitions)?,
            Form::Floats | Form::Tokens => {
                to.typed::<FloatType>().write_batch(&self.floats, definitions, repetitions)?
            }
            Form::Text | Form::Json | Form::Bytes => {
                to.typed::<ByteArrayType>().write_batch(&self.blobs, definitions, repetitions)?
            }
        };
        *self = Levels::default();
        Ok(())
    }
}
