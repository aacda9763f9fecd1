//! Lines become columns and lines again; files of other programs, and damaged ones.
use super::super::header::{End, Family, Header, Kind, Trailer, hex};
use super::super::line_reader::{Ended, Lines};
use super::super::options::ColumnFlags;
use super::super::shape::Shape;
use super::read::RowReader;
use super::write::write;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, FloatType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

fn flags(vector: &str) -> ColumnFlags {
    ColumnFlags { id_column: "id".into(), vector_column: vector.into() }
}

/// A whole file of these lines.
fn lines(header: &Header, points: &[Value]) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(header).unwrap();
    bytes.push(b'\n');
    for point in points {
        bytes.extend(serde_json::to_vec(point).unwrap());
        bytes.push(b'\n');
    }
    let end = End { lines: points.len() as u64, crc32c: hex(crc32c::crc32c(&bytes)), vectors_crc32c: None };
    bytes.extend(serde_json::to_vec(&Trailer { end }).unwrap());
    bytes
}

fn header(family: Family, config: &Value) -> Header {
    let mut header = Header::new(Kind::Collection, 7);
    (header.collection, header.family) = (Some("films".into()), Some(family));
    header.config = config.as_object().cloned();
    header
}

/// The lines of a file, and how it ended.
fn read(
    path: &Path,
    flags: &ColumnFlags,
    fit: Option<(Family, &Shape)>,
) -> Result<(Vec<String>, Ended), String> {
    let (_, mut rows) = RowReader::open(path, flags)?;
    if let Some((family, shape)) = fit {
        rows.fit(family, shape)?;
    }
    let (mut found, mut line) = (Vec::new(), Vec::new());
    while rows.next(&mut line)? {
        found.push(String::from_utf8(line.clone()).unwrap());
    }
    Ok((found, rows.ended().unwrap().clone()))
}

/// What comes back of these points.
#[track_caller]
fn comes_back(header: &Header, points: &[Value]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("films.parquet");
    std::fs::write(&path, write(&lines(header, points)[..], Vec::new()).unwrap()).unwrap();
    let (told, _) = RowReader::open(&path, &flags("")).unwrap();
    assert_eq!(told, *header);
    let (found, ended) = read(&path, &flags(""), None).unwrap();
    let found: Vec<Value> = found.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found, points);
    assert_eq!(ended, Ended::Whole { vectors_crc32c: None });
}

#[test]
fn every_family_comes_back() {
    comes_back(
        &header(Family::Dense, &json!({"dim": 2})),
        &[
            json!({"id": u64::MAX, "version": 3, "expires_at_ms": 99, "vector": [1.5, -0.25],
                "sparse": {"indices": [1, 4_000_000_000_u32], "values": [0.5, -2.0]},
                "payload": {"a": {"kind": "int", "int": 7}, "$content": {"kind": "string", "str": "x\n"}}}),
            json!({"id": 1, "version": 1, "vector": [0.0, 1.0], "sparse": {"indices": [], "values": []}}),
        ],
    );
    comes_back(&header(Family::Dense, &json!({"dim": 2})), &[]);
    let spaces = json!({"ids": "string", "named_vectors": {"image": {"dim": 2}, "id": {"dim": 1}, "words": {"sparse": true}}});
    comes_back(
        &header(Family::Named, &spaces),
        &[
            json!({"id": "ü\"", "version": 1, "vectors": {"image": [1.0, 2.0], "id": [3.0]}}),
            json!({"id": "", "version": 1, "vectors": {"id": [3.0]}, "payload": {}}),
            json!({"id": "c", "version": 1}),
        ],
    );
    comes_back(
        &header(Family::Multivector, &json!({"dim": 2})),
        &[
            json!({"id": 1, "version": 1, "tokens": [[1.0, 2.0], [3.0, 4.0]]}),
            json!({"id": 2, "version": 1, "tokens": []}),
            json!({"id": 3, "version": 1, "tokens": [[], [5.0], []]}),
        ],
    );
}

#[test]
fn keys_come_back() {
    comes_back(
        &Header::new(Kind::Keys, 1),
        &[
            json!({"key": "a", "value": ""}),
            json!({"key_base64": "/w==", "value_base64": "/v8=", "expires_at_ms": u64::from(u32::MAX)}),
        ],
    );
}

#[test]
fn a_large_file_has_several_groups() {
    let points: Vec<Value> = (0..3000)
        .map(|id| json!({"id": id, "version": 1, "vector": vec![0.5; 4096], "payload": {"n": id}}))
        .collect();
    comes_back(&header(Family::Dense, &json!({"dim": 4096})), &points);
}

#[test]
fn a_cut_or_changed_file_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("films.parquet");
    let points: Vec<Value> = (0..40)
        .map(|id| json!({"id": id, "version": 1, "vector": [0.5, 1.0], "payload": {"n": id}}))
        .collect();
    let whole = write(&lines(&header(Family::Dense, &json!({"dim": 2})), &points)[..], Vec::new()).unwrap();
    for cut in 0..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let error = read(&path, &flags(""), None).unwrap_err();
        assert!(error.contains("cut short or damaged"), "{cut}: {error}");
    }
    let expected = {
        std::fs::write(&path, &whole).unwrap();
        read(&path, &flags(""), None).unwrap()
    };
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        std::fs::write(&path, &changed).unwrap();
        // A change of what nobody reads, such as the number of bytes of a page that the footer tells, changes no line.
        if let Ok((found, Ended::Whole { .. })) = read(&path, &flags(""), None) {
            assert_eq!(found, expected.0, "{at}");
        }
    }
}

/// A file as other programs write them: optional fields, elements that may be null, a dictionary.
fn of_another(path: &Path, message: &str, fill: impl FnOnce(&mut SerializedFileWriter<std::fs::File>)) {
    let schema = Arc::new(parse_message_type(message).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer =
        SerializedFileWriter::new(std::fs::File::create(path).unwrap(), schema, properties).unwrap();
    fill(&mut writer);
    writer.close().unwrap();
}

#[test]
fn files_of_other_programs_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("others.parquet");
    let message = "message schema { optional int64 id; optional binary title (UTF8);
        optional group embedding (LIST) { repeated group list { optional double element; } } optional double score; }";
    of_another(&path, message, |writer| {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&[1, -2, 3], Some(&[1, 1, 1]), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let titles = [ByteArray::from("Alien"), ByteArray::from("Ran")];
        column.typed::<ByteArrayType>().write_batch(&titles, Some(&[1, 0, 1]), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let (definitions, repetitions) = ([3, 3, 3, 3, 3, 2], [0, 1, 0, 1, 0, 1]);
        let values = [0.5, 0.1, 1.0, 2.0, 3.0];
        column.typed::<DoubleType>().write_batch(&values, Some(&definitions), Some(&repetitions)).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<DoubleType>().write_batch(&[7.0, f64::NAN], Some(&[1, 0, 1]), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    });
    let shape = Shape { dim: Some(2), spaces: None, has_string_ids: Some(false) };
    let (found, ended) = read(&path, &flags(""), Some((Family::Dense, &shape))).unwrap();
    assert_eq!(
        found,
        [
            r#"{"id":1,"vector":[0.5,0.1],"payload":{"title":"Alien","score":7.0}}"#,
            // The check of lines refuses these two.
            r#"{"id":-2,"vector":[1.0,2.0]}"#,
            r#"{"id":3,"vector":[3.0,null],"payload":{"title":"Ran","score":NaN}}"#,
        ]
    );
    assert_eq!(ended, Ended::Whole { vectors_crc32c: None });
    for (flags, family, part) in [
        (
            flags("title"),
            Family::Dense,
            "the column \"title\" is of the type BYTE_ARRAY (UTF8); it has to be of lists",
        ),
        (flags("none"), Family::Dense, "no column \"none\"; it has id, title"),
        (flags(""), Family::Multivector, "lists of lists"),
        (flags("=x"), Family::Dense, "SPACE=COLUMN"),
    ] {
        let error = read(&path, &flags, Some((family, &shape))).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn types_that_no_payload_has_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("others.parquet");
    let message = "message schema { required int64 id; required int32 day (DATE); required float vector; }";
    of_another(&path, message, |_| {});
    let shape = Shape::default();
    let error = read(&path, &flags(""), Some((Family::Dense, &shape))).unwrap_err();
    assert!(error.contains("\"vector\" is of the type FLOAT"), "{error}");
    let message = "message schema { required int64 id; required int32 day (DATE);
        required group vector (LIST) { repeated float array; } }";
    of_another(&path, message, |writer| {
        let mut group = writer.next_row_group().unwrap();
        for _ in 0..2 {
            group.next_column().unwrap().unwrap().close().unwrap();
        }
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<FloatType>().write_batch(&[], Some(&[]), Some(&[])).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    });
    let error = read(&path, &flags(""), Some((Family::Dense, &shape))).unwrap_err();
    assert!(error.contains("\"day\"") && error.contains("DATE"), "{error}");
}

#[test]
fn no_file_of_parquet_is_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("films.parquet");
    std::fs::write(&path, "{\"format\":\"nigh-export\"}\n").unwrap();
    let error = read(&path, &flags(""), None).unwrap_err();
    assert!(error.contains("no file of Parquet"), "{error}");
}
