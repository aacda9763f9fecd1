//! Converts the rows of a file of Parquet, of this program or of another one, to lines.
use super::super::header::{End, Family, Header, Kind, hex};
use super::super::line_reader::{Ended, LINE_BYTES_MAX, Lines};
use super::super::options::ColumnFlags;
use super::super::shape::Shape;
use super::cells::{
    Cell, Column, END, Form, HEADER, PROGRAM, Part, column_of, columns_of, float, render, text,
};
use parquet::basic::{Compression, ConvertedType, Type as Physical};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, List};
use parquet::schema::types::Type;
use std::cell::Cell as Flag;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::Once;

/// The names under which other programs keep vectors, in the order in which they are looked for.
const VECTOR_NAMES: [&str; 2] = ["vector", "embedding"];

/// Reads the rows of a file one by one. The library holds a page of each column and a thousand of its values.
pub struct RowReader {
    rows: RowIter<'static>,
    schema: Vec<Found>,
    /// Whether this program wrote the file.
    is_own: bool,
    flags: ColumnFlags,
    columns: Vec<Column>,
    /// Where the cell of each column is in a row.
    places: Vec<usize>,
    number: u64,
    crc: u32,
    /// Rows that the footer promises.
    promised: u64,
    end: Option<End>,
    ended: Option<Ended>,
}

/// A column that a file has.
struct Found {
    name: String,
    /// Its type in words.
    kind: String,
    /// What can be read of it.
    forms: Vec<Form>,
}

impl RowReader {
    /// Opens a file and reads its footer.
    ///
    /// # Errors
    /// A sentence without the name of the file.
    pub fn open(path: &Path, flags: &ColumnFlags) -> Result<(Header, RowReader), String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let reader = guarded(|| SerializedFileReader::new(file).map_err(|error| error.to_string())).map_err(|error| {
            format!("it is no file of Parquet, or it was cut short or damaged: its footer cannot be read: {error}")
        })?;
        let metadata = reader.metadata().clone();
        for group in metadata.row_groups() {
            for column in group.columns() {
                check_compression(&column.column_path().string(), column.compression())?;
            }
        }
        let file = metadata.file_metadata();
        let text = |wanted: &str| {
            let pairs = file.key_value_metadata().into_iter().flatten();
            pairs.into_iter().find(|pair| pair.key == wanted).and_then(|pair| pair.value.clone())
        };
        let schema: Vec<Found> =
            file.schema_descr().root_schema().get_fields().iter().map(|field| Found::of(field)).collect();
        let promised = u64::try_from(file.num_rows()).unwrap_or(0);
        let (header, crc, end) = match text(HEADER) {
            Some(line) => {
                let crc = crc32c::crc32c_append(crc32c::crc32c(line.as_bytes()), b"\n");
                let end = text(END).ok_or("the footer has no end, as a file of nigh export has")?;
                let end: End =
                    serde_json::from_str(&end).map_err(|error| format!("the end in the footer: {error}"))?;
                (Some(Header::parse(line.as_bytes())?), crc, Some(end))
            }
            // Taken for a file of another program, it would lose what its header says.
            None if text(END).is_some()
                || file.created_by().is_some_and(|by| by.split(' ').next() == Some(PROGRAM)) =>
            {
                return Err("nigh export has written the file, but its footer has no header: it was changed or damaged".into());
            }
            None => (None, 0, None),
        };
        let is_own = header.is_some();
        let has = |name: &str| schema.iter().any(|found| found.name == name);
        let is_keys = has("key") && has("value") && !has(&flags.id_column);
        let header =
            header.unwrap_or_else(|| Header::new(if is_keys { Kind::Keys } else { Kind::Collection }, 0));
        let rows = guarded(|| Ok(RowIter::from_file_into(Box::new(reader))))?;
        let mut rows = RowReader {
            rows,
            schema,
            is_own,
            flags: flags.clone(),
            columns: Vec::new(),
            places: Vec::new(),
            number: 1,
            crc,
            promised,
            end,
            ended: None,
        };
        if is_own {
            rows.take(columns_of(&header)?)?;
        } else if is_keys {
            let mut columns = vec![
                Column::new("key", Part::Key, Form::Bytes),
                Column::new("value", Part::Value, Form::Bytes),
            ];
            if rows.find("expires_at_ms").is_some() {
                columns.push(Column::new("expires_at_ms", Part::ExpiresAt, Form::Int));
            }
            rows.take(columns)?;
        }
        Ok((header, rows))
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.schema.iter().position(|found| found.name == name)
    }

    /// The names of its columns, as a list.
    fn names(&self) -> String {
        let names: Vec<&str> = self.schema.iter().map(|found| found.name.as_str()).collect();
        names.join(", ")
    }

    /// Takes these columns of the file.
    fn take(&mut self, columns: Vec<Column>) -> Result<(), String> {
        let mut places = Vec::with_capacity(columns.len());
        for column in &columns {
            let at = self.find(&column.name).ok_or_else(|| {
                let flag = match column.part {
                    Part::Id => "; -id-column NAME names the one with the ids",
                    _ => "",
                };
                format!("the file has no column {:?}; it has {}{flag}", column.name, self.names())
            })?;
            let found = &self.schema[at];
            if !found.forms.contains(&column.form) {
                return Err(format!(
                    "the column {:?} is of the type {}; {}",
                    found.name,
                    found.kind,
                    allowed(column.form)
                ));
            }
            places.push(at);
        }
        (self.columns, self.places) = (columns, places);
        Ok(())
    }

    /// The columns of a file of another program, for a collection.
    fn columns_for(&self, family: Family, shape: &Shape) -> Result<Vec<Column>, String> {
        let id = &self.flags.id_column;
        let ids = self.find(id).map(|at| self.schema[at].forms.contains(&Form::Text));
        let ids = if ids == Some(true) { Form::Text } else { Form::Int };
        let mut columns = vec![Column::new(id, Part::Id, ids)];
        let named = self.flags.vectors()?;
        let of_one = |part: Part, form: Form| -> Result<Column, String> {
            let name = match &named[..] {
                [(None, column)] => Some(column.as_str()),
                [] => VECTOR_NAMES.into_iter().chain(["tokens"]).find(|name| self.find(name).is_some()),
                _ => {
                    return Err(format!(
                        "-vector-column names one column for a collection of the family {}",
                        family.name()
                    ));
                }
            };
            let name = name.ok_or_else(|| {
                format!(
                    "the file has no column \"vector\"; it has {}; -vector-column NAME names the one with the vectors",
                    self.names()
                )
            })?;
            Ok(Column::new(name, part, form))
        };
        match family {
            Family::Dense => columns.push(of_one(Part::Vector, Form::Floats)?),
            Family::Multivector => columns.push(of_one(Part::Tokens, Form::Tokens)?),
            Family::Named => {
                for (space, dim) in shape.spaces.iter().flatten() {
                    let flag = named.iter().find(|(of, _)| of.as_ref() == Some(space));
                    let name = flag.map_or_else(|| column_of(space), |(_, column)| column.clone());
                    if dim.is_some() && (flag.is_some() || self.find(&name).is_some()) {
                        columns.push(Column::new(&name, Part::Space(space.clone()), Form::Floats));
                    }
                }
                let has_none = columns.len() == 1 && named.is_empty();
                if has_none && shape.spaces.iter().flatten().any(|(_, dim)| dim.is_some()) {
                    return Err(format!(
                        "no column has the name of a space of the collection; the file has {}; -vector-column SPACE=COLUMN,... names those with \
                         the vectors",
                        self.names()
                    ));
                }
                for (space, column) in &named {
                    if !columns.iter().any(|taken| taken.name == *column) {
                        return Err(format!(
                            "-vector-column: the collection has no space {:?}; write SPACE=COLUMN",
                            space.as_deref().unwrap_or(column)
                        ));
                    }
                }
            }
        }
        if family != Family::Named
            && self.find("sparse_indices").is_some()
            && self.find("sparse_values").is_some()
        {
            columns.push(Column::new("sparse_indices", Part::SparseIndices, Form::Ints));
            columns.push(Column::new("sparse_values", Part::SparseValues, Form::Floats));
        }
        if self.find("expires_at_ms").is_some() {
            columns.push(Column::new("expires_at_ms", Part::ExpiresAt, Form::Int));
        }
        // What is left becomes the payload.
        for found in &self.schema {
            if !columns.iter().any(|column| column.name == found.name) {
                columns.push(Column::new(&found.name, Part::Field(found.name.clone()), Form::Json));
            }
        }
        Ok(columns)
    }

    /// Reads the next row into `line`.
    fn read(&mut self, line: &mut Vec<u8>) -> Result<bool, String> {
        let number = self.number + 1;
        let at = |error: String| {
            format!("row {} (line {number}): the file was changed or damaged there: {error}", number - 1)
        };
        let rows = &mut self.rows;
        let row = guarded(|| rows.next().transpose().map_err(|error| error.to_string())).map_err(at)?;
        let Some(row) = row else { return Ok(false) };
        let fields: Vec<&Field> = row.get_column_iter().map(|(_, field)| field).collect();
        let cells: Vec<Cell> = self
            .columns
            .iter()
            .zip(&self.places)
            .map(|(column, place)| cell(column.form, fields.get(*place).copied().unwrap_or(&Field::Null)))
            .collect();
        render(&self.columns, &cells, line);
        if line.len() > LINE_BYTES_MAX {
            return Err(format!("row {} is longer than {} MiB as JSON", number - 1, LINE_BYTES_MAX >> 20));
        }
        self.crc = crc32c::crc32c_append(self.crc, line);
        self.number = number;
        let end = line.trim_ascii_end().len();
        line.truncate(end);
        Ok(true)
    }

    /// Holds what was read against what the footer says.
    fn compare(&self) -> Ended {
        let (read, crc) = (self.number - 1, hex(self.crc));
        let promised = self.end.as_ref().map_or(self.promised, |end| end.lines);
        match &self.end {
            _ if promised != read || self.promised != read => Ended::Broken(format!(
                "the footer says that the file has {promised} rows, and {read} were found"
            )),
            Some(end) if end.crc32c != crc => Ended::Broken(format!(
                "the file was changed or damaged: its checksum is {crc}, and the footer says {}",
                end.crc32c
            )),
            _ => Ended::Whole { vectors_crc32c: None },
        }
    }
}

impl Lines for RowReader {
    fn number(&self) -> u64 {
        self.number
    }

    fn next(&mut self, line: &mut Vec<u8>) -> Result<bool, String> {
        if self.ended.is_some() {
            return Ok(false);
        }
        let is_there = self.read(line)?;
        if !is_there {
            self.ended = Some(self.compare());
        }
        Ok(is_there)
    }

    fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    fn fit(&mut self, family: Family, shape: &Shape) -> Result<(), String> {
        match self.is_own {
            true => Ok(()),
            false => self.columns_for(family, shape).and_then(|columns| self.take(columns)),
        }
    }
}

thread_local! {
    /// Whether the library reads on this thread.
    static IS_READING: Flag<bool> = const { Flag::new(false) };
}

/// Runs what the library does: it panics on some damaged files, which must end the import with a sentence, and with nothing besides.
fn guarded<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_READING.get() {
                before(panic);
            }
        }));
    });
    IS_READING.set(true);
    // What was read half is not used again: every error ends the reading.
    let read = catch_unwind(AssertUnwindSafe(read));
    IS_READING.set(false);
    read.unwrap_or_else(|_| Err("it cannot be decoded".into()))
}

/// Whether this build can decompress a column.
fn check_compression(column: &str, compression: Compression) -> Result<(), String> {
    match compression {
        Compression::UNCOMPRESSED
        | Compression::SNAPPY
        | Compression::GZIP(_)
        | Compression::LZ4
        | Compression::LZ4_RAW => Ok(()),
        other => {
            let name = other.to_string();
            // What is behind its name is a level.
            let name = name.split('(').next().unwrap_or_default();
            Err(format!(
                "the column {column:?} is compressed with {name}, and this build reads snappy, gzip and lz4: write the file with one of these"
            ))
        }
    }
}

/// What may be in a column, in words.
fn allowed(form: Form) -> &'static str {
    match form {
        Form::Int => "it has to be of integers (ids may be texts as well)",
        Form::Text => "it has to be of texts",
        Form::Bytes => "it has to be of bytes or texts",
        Form::Floats => "it has to be of lists (of any or of a fixed length) of floats, doubles or integers",
        Form::Ints => "it has to be of lists of integers",
        Form::Tokens => "it has to be of lists of lists of floats, doubles or integers",
        Form::Json => {
            "a column for the payload has to be of booleans, numbers, texts, lists or structures of these, or timestamps"
        }
    }
}

impl Found {
    fn of(field: &Type) -> Found {
        let (kind, mut forms) = described(field);
        if is_payload(field) {
            forms.push(Form::Json);
        }
        Found { name: field.name().to_owned(), kind, forms }
    }
}

/// The element of a list.
fn element(field: &Type) -> Option<&Type> {
    if !field.is_group() || field.get_basic_info().converted_type() != ConvertedType::LIST {
        return None;
    }
    let [repeated] = field.get_fields() else { return None };
    if repeated.is_primitive() {
        return Some(repeated);
    }
    // Files of old programs have no group around an element, which the library tells by these names.
    let is_bare = repeated.name() == "array" || repeated.name().ends_with("_tuple");
    match repeated.get_fields() {
        [element] if !is_bare => Some(element),
        _ => Some(repeated),
    }
}

/// The type of a field in words, and what can be read of it.
fn described(field: &Type) -> (String, Vec<Form>) {
    if let Some(inner) = element(field) {
        let (kind, forms) = described(inner);
        let is_float =
            inner.is_primitive() && matches!(inner.get_physical_type(), Physical::FLOAT | Physical::DOUBLE);
        let forms = match () {
            () if is_float => vec![Form::Floats],
            () if forms.contains(&Form::Int) => vec![Form::Ints, Form::Floats],
            () if forms.contains(&Form::Floats) => vec![Form::Tokens],
            () => Vec::new(),
        };
        return (format!("list of {kind}"), forms);
    }
    if field.is_group() {
        return (format!("group {}", field.get_basic_info().converted_type()), Vec::new());
    }
    let (physical, converted) = (field.get_physical_type(), field.get_basic_info().converted_type());
    let kind = match converted {
        ConvertedType::NONE => physical.to_string(),
        _ => format!("{physical} ({converted})"),
    };
    let forms = match (physical, converted) {
        (Physical::BYTE_ARRAY, ConvertedType::UTF8 | ConvertedType::NONE) => vec![Form::Text, Form::Bytes],
        (Physical::INT32 | Physical::INT64, _) if is_integer(converted) => vec![Form::Int],
        _ => Vec::new(),
    };
    (kind, forms)
}

fn is_integer(converted: ConvertedType) -> bool {
    matches!(
        converted,
        ConvertedType::NONE
            | ConvertedType::INT_8
            | ConvertedType::INT_16
            | ConvertedType::INT_32
            | ConvertedType::INT_64
            | ConvertedType::UINT_8
            | ConvertedType::UINT_16
            | ConvertedType::UINT_32
            | ConvertedType::UINT_64
    )
}

/// Whether a field can become a value of a payload.
fn is_payload(field: &Type) -> bool {
    if field.is_group() {
        let is_map = matches!(
            field.get_basic_info().converted_type(),
            ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE
        );
        return !is_map && field.get_fields().iter().all(|field| is_payload(field));
    }
    let converted = field.get_basic_info().converted_type();
    match field.get_physical_type() {
        Physical::BOOLEAN | Physical::FLOAT | Physical::DOUBLE => true,
        Physical::BYTE_ARRAY => {
            matches!(
                converted,
                ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON | ConvertedType::NONE
            )
        }
        Physical::INT32 | Physical::INT64 => {
            is_integer(converted)
                || matches!(converted, ConvertedType::TIMESTAMP_MILLIS | ConvertedType::TIMESTAMP_MICROS)
        }
        _ => false,
    }
}

/// The cell of a field. One that does not fit becomes a part that the check of lines refuses, with its line.
fn cell(form: Form, field: &Field) -> Cell {
    let any = || {
        let mut text = Vec::new();
        json(&mut text, field);
        Cell::Json(String::from_utf8_lossy(&text).into_owned())
    };
    match (form, field) {
        (_, Field::Null) => Cell::Empty,
        (Form::Bytes, Field::Bytes(bytes)) => Cell::Bytes(bytes.data().to_vec()),
        (Form::Bytes, Field::Str(text)) => Cell::Bytes(text.clone().into_bytes()),
        (Form::Text, Field::Str(text)) => Cell::Text(text.clone()),
        // Bytes that are not UTF-8 become what no line may have.
        (Form::Text, Field::Bytes(bytes)) => {
            String::from_utf8(bytes.data().to_vec()).map_or_else(|_| any(), Cell::Text)
        }
        (Form::Floats, Field::ListInternal(list)) => doubles(list).map_or_else(any, Cell::Floats),
        (Form::Int, Field::ULong(value)) => Cell::Int(*value),
        (Form::Int, Field::Long(value)) => u64::try_from(*value).map_or_else(|_| any(), Cell::Int),
        _ => any(),
    }
}

/// The floats of a list of doubles; a list of floats of 32 bits is written as it is.
fn doubles(list: &List) -> Option<Vec<f64>> {
    let value = |field: &Field| match field {
        Field::Double(value) => Some(*value),
        _ => None,
    };
    list.elements().iter().map(value).collect::<Option<Vec<f64>>>().filter(|values| !values.is_empty())
}

/// Writes a field as JSON.
fn json(line: &mut Vec<u8>, field: &Field) {
    match field {
        Field::Bool(value) => line.extend_from_slice(if *value { b"true" } else { b"false" }),
        Field::Byte(value) => line.extend_from_slice(value.to_string().as_bytes()),
        Field::Short(value) => line.extend_from_slice(value.to_string().as_bytes()),
        Field::Int(value) => line.extend_from_slice(value.to_string().as_bytes()),
        Field::Long(value) => line.extend_from_slice(value.to_string().as_bytes()),
        Field::UByte(value) => line.extend_from_slice(value.to_string().as_bytes()),
        Field::UShort(value) => line.extend_from_slice(value.to_string().as_bytes()),
        Field::UInt(value) => line.extend_from_slice(value.to_string().as_bytes()),
        Field::ULong(value) => line.extend_from_slice(value.to_string().as_bytes()),
        Field::TimestampMillis(value) | Field::TimestampMicros(value) => {
            line.extend_from_slice(value.to_string().as_bytes());
        }
        Field::Float(value) if value.is_finite() => drop(serde_json::to_writer(&mut *line, value)),
        Field::Float(value) => float(line, f64::from(*value)),
        Field::Double(value) => float(line, *value),
        Field::Str(text) => drop(serde_json::to_writer(&mut *line, text)),
        Field::Bytes(bytes) => text(line, bytes.data()),
        Field::ListInternal(list) => {
            line.push(b'[');
            for (at, field) in list.elements().iter().enumerate() {
                if at > 0 {
                    line.push(b',');
                }
                json(line, field);
            }
            line.push(b']');
        }
        Field::Group(row) => {
            line.push(b'{');
            for (at, (name, field)) in row.get_column_iter().enumerate() {
                if at > 0 {
                    line.push(b',');
                }
                let _ = serde_json::to_writer(&mut *line, name);
                line.push(b':');
                json(line, field);
            }
            line.push(b'}');
        }
        _ => line.extend_from_slice(b"null"),
    }
}
