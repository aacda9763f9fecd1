//! Payload values: what clients write, and how they read what comes back.

use super::wire::{Wire, counted, hex, server};
use nigh_tests::{Access, in_every_mode};
use serde_json::{Value, json};

in_every_mode!(
    values_come_back_as_they_were_meant,
    zeros_may_be_left_out_in_both_directions,
    none_and_geo_come_back_only_when_stored,
);

/// A tagged value as clients read it: an absent field is the kind's zero, `none` is null, and anything else raises.
fn read(value: &Value) -> Result<Value, String> {
    let or = |field: &str, zero: Value| if value[field].is_null() { zero } else { value[field].clone() };
    Ok(match value["kind"].as_str() {
        None | Some("none") => Value::Null,
        Some("string") => or("str", json!("")),
        Some("int") => or("int", json!(0)),
        Some("float") => or("flt", json!(0.0)),
        Some("bool") => or("bool", json!(false)),
        Some("strings") => or("strs", json!([])),
        Some("ints") => or("ints", json!([])),
        Some("floats") => or("flts", json!([])),
        Some(kind) => return Err(format!("kind {kind} is not supported")),
    })
}

fn read_all(metadata: &Value) -> Value {
    let fields = metadata.as_object().expect("an object").iter();
    Value::Object(fields.map(|(key, value)| (key.clone(), read(value).expect(key))).collect())
}

/// What clients write: a bool is told from an int, and no list is empty or mixed.
const WRITTEN: &str = r#"{"s": {"kind": "string", "str": "Stra\u00dfe \ud83d\ude80"}, "i": {"kind": "int", "int": -9223372036854775808}, "f": {"kind": "float", "flt": 0.1}, "b": {"kind": "bool", "bool": true}, "ss": {"kind": "strings", "strs": ["a", ""]}, "is": {"kind": "ints", "ints": [0, 9223372036854775807]}, "fs": {"kind": "floats", "flts": [1.5, 0.0]}, "dotted.name": {"kind": "int", "int": 1}, "": {"kind": "int", "int": 2}}"#;

/// And what that means.
fn meant() -> Value {
    json!({"s": "Straße 🚀", "i": i64::MIN, "f": 0.1, "b": true, "ss": ["a", ""], "is": [0, i64::MAX],
        "fs": [1.5, 0.0], "dotted.name": 1, "": 2})
}

/// The metadata of point 1 over every route that returns one, with the content taken out.
fn everywhere(wire: &mut Wire) -> Vec<Value> {
    let points = "/v1/collections/docs/points";
    let stripped = |payload: &Value| {
        let mut payload = payload.clone();
        payload.as_object_mut().expect("an object").remove("$content");
        payload
    };
    let docs = wire.ok("POST", &format!("{points}/search/docs"), r#"{"query": [1], "k": 1}"#);
    let scrolled = wire.ok("POST", &format!("{points}/scroll"), r#"{"limit": 0}"#);
    let texts = wire.ok("POST", &format!("{points}/search/text"), r#"{"text": "word", "k": 1}"#);
    let batch = r#"{"ids": [1], "with_vector": false, "with_payload": true}"#;
    let got = wire.ok("POST", &format!("{points}/batch-get"), batch);
    let single = wire.ok("GET", &format!("{points}/1"), "");
    vec![
        docs["documents"][0]["metadata"].clone(),
        scrolled["documents"][0]["metadata"].clone(),
        texts["documents"][0]["metadata"].clone(),
        stripped(&got["points"][0]["payload"]),
        stripped(&single["payload"]),
    ]
}

fn values_come_back_as_they_were_meant(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("docs", 1, "l2", r#", "full_text": {}"#);
    let body = format!(
        r#"{{"id": 1, "vector": [1], "content": "word", "ttl_ms": 0, "metadata": {WRITTEN}, "upsert": true}}"#
    );
    wire.ok("POST", "/v1/collections/docs/points", &body);
    let one_by_one = everywhere(&mut wire);
    for metadata in &one_by_one {
        assert_eq!(read_all(metadata), meant(), "{metadata}");
        // Seven kinds were stored, and no other comes back.
        for (key, value) in metadata.as_object().expect("an object") {
            assert!(!matches!(value["kind"].as_str(), None | Some("geo" | "none")), "{key}: {value}");
        }
    }
    let mut binary = hex("52564231 00000003 00000001 00000001 0000000000000001 3f800000");
    let payload = WRITTEN.replacen('{', r#"{"$content": {"kind": "string", "str": "word"}, "#, 1);
    binary.extend(counted(&payload));
    assert_eq!(wire.binary("/v1/collections/docs/points/batch", &binary).ok(), json!({"count": 1}));
    assert_eq!(everywhere(&mut wire), one_by_one);
}

fn zeros_may_be_left_out_in_both_directions(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("docs", 1, "l2", r#", "full_text": {}"#);
    for metadata in [
        r#"{"s": {"kind": "string", "str": ""}, "i": {"kind": "int", "int": 0}, "f": {"kind": "float", "flt": 0.0}, "b": {"kind": "bool", "bool": false}}"#,
        r#"{"s": {"kind": "string"}, "i": {"kind": "int"}, "f": {"kind": "float"}, "b": {"kind": "bool"}}"#,
    ] {
        let body = format!(
            r#"{{"id": 1, "vector": [1], "content": "word", "ttl_ms": 0, "metadata": {metadata}, "upsert": true}}"#
        );
        wire.ok("POST", "/v1/collections/docs/points", &body);
        for found in everywhere(&mut wire) {
            assert_eq!(read_all(&found), json!({"s": "", "i": 0, "f": 0.0, "b": false}), "{found}");
        }
        // A zero is a value: it is found by equality and is not missing.
        for (filter, count) in [
            (r#"{"op": "eq", "field": "b", "value": {"kind": "bool", "bool": false}}"#, 1),
            (r#"{"op": "eq", "field": "b", "value": {"kind": "bool"}}"#, 1),
            (r#"{"op": "eq", "field": "i", "value": {"kind": "bool"}}"#, 0),
            (r#"{"op": "eq", "field": "i", "value": {"kind": "float", "flt": 0.0}}"#, 0),
        ] {
            let body = format!(r#"{{"limit": 0, "filter": {filter}}}"#);
            let found = wire.ok("POST", "/v1/collections/docs/points/scroll", &body);
            assert_eq!(found["documents"].as_array().map(Vec::len), Some(count), "{filter}");
        }
    }
}

fn none_and_geo_come_back_only_when_stored(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("docs", 1, "l2", r#", "full_text": {}"#);
    wire.ok(
        "POST",
        "/v1/collections/docs/points",
        r#"{"id": 1, "vector": [1], "content": "word", "ttl_ms": 0, "metadata": {"n": {"kind": "none"}, "m": null, "i": {"kind": "int"}}, "upsert": true}"#,
    );
    for found in everywhere(&mut wire) {
        assert_eq!(read_all(&found), json!({"n": null, "m": null, "i": 0}), "{found}");
    }
    // Somebody else's: clients raise on it rather than show something wrong.
    wire.ok(
        "POST",
        "/v1/collections/docs/points",
        r#"{"id": 1, "vector": [1], "content": "word", "metadata": {"g": {"kind": "geo", "lat": 59.9, "lon": 0}}, "upsert": true}"#,
    );
    for found in everywhere(&mut wire) {
        assert_eq!(read(&found["g"]), Err("kind geo is not supported".to_owned()));
        assert_eq!(found["g"]["lat"], json!(59.9));
    }
}
