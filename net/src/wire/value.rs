//! Payload values on the wire: tagged objects (`{"kind":"int","int":5}`) in both directions, and native JSON scalars
//! and arrays on input as well.

use crate::op::{ApiError, check_key_ttls};
use crate::wire::json::{Key, field, field_seed, one_of};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nigh_engine::payload::{CONTENT_KEY, Kind, PayloadRow, RowBuilder, Value, ValueRef};
use nigh_engine::quoted::quoted;
use nigh_shard::core::{FacetValue, finish_row};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// How unknown keys inside a value object are taken: refused in typed bodies, ignored in the payload JSON of binary
/// bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownKeys {
    /// 400.
    Refused,
    /// Skipped.
    Ignored,
}

/// Reads one value.
#[derive(Clone, Copy)]
pub struct ValueSeed(pub UnknownKeys);

impl<'de> DeserializeSeed<'de> for ValueSeed {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a payload value")
    }
    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::None)
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        match i64::try_from(value) {
            Ok(value) => Ok(Value::Int(value)),
            Err(_) => Err(E::custom(format_args!("integer {value} is out of the range of a 64-bit integer"))),
        }
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }
    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        // An array without a tag takes the kind of its elements; integers and floats together read as floats.
        let mut strings: Vec<String> = Vec::new();
        let mut ints: Vec<i64> = Vec::new();
        let mut floats: Vec<f64> = Vec::new();
        let mut all_ints = true;
        while let Some(element) = seq.next_element_seed(self)? {
            match element {
                Value::String(text) if floats.is_empty() => strings.push(text),
                Value::Int(value) if strings.is_empty() => {
                    ints.push(value);
                    floats.push(value as f64);
                }
                Value::Float(value) if strings.is_empty() => {
                    all_ints = false;
                    floats.push(value);
                }
                _ => {
                    return Err(de::Error::custom("an array value must hold only strings or only numbers"));
                }
            }
        }
        Ok(if floats.is_empty() {
            Value::Strings(strings)
        } else if all_ints {
            Value::Ints(ints)
        } else {
            Value::Floats(floats)
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut kind: Option<String> = None;
        let mut string: Option<String> = None;
        let mut int: Option<i64> = None;
        let mut float: Option<f64> = None;
        let mut boolean: Option<bool> = None;
        let mut strings: Option<Vec<String>> = None;
        let mut ints: Option<Vec<i64>> = None;
        let mut floats: Option<Vec<f64>> = None;
        let mut lat: Option<f64> = None;
        let mut lon: Option<f64> = None;
        let mut record: Option<String> = None;
        while let Some(Key(key)) = map.next_key()? {
            match key.as_ref() {
                "kind" => kind = field(&mut map, &key)?.or(kind),
                "str" => string = field(&mut map, &key)?.or(string),
                "int" => int = field(&mut map, &key)?.or(int),
                "flt" => float = field(&mut map, &key)?.or(float),
                "bool" => boolean = field(&mut map, &key)?.or(boolean),
                "strs" => strings = field(&mut map, &key)?.or(strings),
                "ints" => ints = field(&mut map, &key)?.or(ints),
                "flts" => floats = field(&mut map, &key)?.or(floats),
                "lat" => lat = field(&mut map, &key)?.or(lat),
                "lon" => lon = field(&mut map, &key)?.or(lon),
                "rec" => record = field(&mut map, &key)?.or(record),
                _ if self.0 == UnknownKeys::Ignored => {
                    map.next_value::<de::IgnoredAny>()?;
                }
                _ => {
                    let known =
                        "it must be one of kind, str, int, flt, bool, strs, ints, flts, lat, lon, rec";
                    return Err(de::Error::custom(format_args!(
                        "unknown field {} in a value; {known}",
                        quoted(&key)
                    )));
                }
            }
        }
        let refused = |sentence: String| {
            let kinds = one_of(Kind::ALL.into_iter().map(Kind::name));
            de::Error::custom(format_args!("{sentence}; {kinds}"))
        };
        let kind = kind.ok_or_else(|| refused("a value object needs a \"kind\"".to_owned()))?;
        let kind =
            Kind::from_name(&kind).ok_or_else(|| refused(format!("unknown kind {}", quoted(&kind))))?;
        // A zero may be left out, and so may the zeros of other kinds be sent along. But a number under the key of another kind and
        // nothing under its own is a mistake, which would be stored as zero.
        let (key, own) = match kind {
            Kind::None => ("kind", true),
            Kind::String => ("str", string.is_some()),
            Kind::Int => ("int", int.is_some()),
            Kind::Float => ("flt", float.is_some()),
            Kind::Bool => ("bool", boolean.is_some()),
            Kind::Strings => ("strs", strings.is_some()),
            Kind::Ints => ("ints", ints.is_some()),
            Kind::Floats => ("flts", floats.is_some()),
            Kind::Geo => ("lat", lat.is_some() || lon.is_some()),
            Kind::Record => ("rec", record.is_some()),
        };
        if !own {
            let others = [
                ("str", string.as_ref().is_some_and(|text| !text.is_empty())),
                ("int", int.is_some_and(|number| number != 0)),
                ("flt", float.is_some_and(|number| number != 0.0)),
                ("bool", boolean == Some(true)),
                ("strs", strings.as_ref().is_some_and(|list| !list.is_empty())),
                ("ints", ints.as_ref().is_some_and(|list| !list.is_empty())),
                ("flts", floats.as_ref().is_some_and(|list| !list.is_empty())),
                ("lat", lat.is_some_and(|degrees| degrees != 0.0)),
                ("lon", lon.is_some_and(|degrees| degrees != 0.0)),
                ("rec", record.as_ref().is_some_and(|text| !text.is_empty())),
            ];
            if let Some((other, _)) = others.iter().find(|(_, sent)| *sent) {
                return Err(de::Error::custom(format_args!(
                    "a value of kind {:?} lies under {key:?}, not under {other:?}",
                    kind.name()
                )));
            }
        }
        Ok(match kind {
            Kind::None => Value::None,
            Kind::String => Value::String(string.unwrap_or_default()),
            Kind::Int => Value::Int(int.unwrap_or_default()),
            Kind::Float => Value::Float(float.unwrap_or_default()),
            Kind::Bool => Value::Bool(boolean.unwrap_or_default()),
            Kind::Strings => Value::Strings(strings.unwrap_or_default()),
            Kind::Ints => Value::Ints(ints.unwrap_or_default()),
            Kind::Floats => Value::Floats(floats.unwrap_or_default()),
            Kind::Geo => Value::Geo { lat: lat.unwrap_or_default(), lon: lon.unwrap_or_default() },
            Kind::Record => {
                let bytes = STANDARD.decode(record.unwrap_or_default()).map_err(|error| {
                    de::Error::custom(format_args!("field \"rec\": a record is sent as base64: {error}"))
                })?;
                Value::Record(bytes)
            }
        })
    }
}

/// A payload object as sent: entries in order, repeats included.
#[derive(Default)]
pub struct WirePayload(pub Vec<(String, Value)>);

impl<'de> Deserialize<'de> for WirePayload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        PayloadSeed(UnknownKeys::Refused).deserialize(deserializer)
    }
}

/// Reads one payload object.
pub struct PayloadSeed(pub UnknownKeys);

impl<'de> DeserializeSeed<'de> for PayloadSeed {
    type Value = WirePayload;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<WirePayload, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for PayloadSeed {
    type Value = WirePayload;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of payload values")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WirePayload, A::Error> {
        let mut entries = Vec::new();
        while let Some(Key(key)) = map.next_key()? {
            let value = field_seed(&mut map, &key, ValueSeed(self.0))?;
            entries.push((key.into_owned(), value));
        }
        Ok(WirePayload(entries))
    }
}

/// Encodes a payload row: entries, then `content` (when not empty) over `$content`, with absolute key deadlines for the
/// keys in `key_ttl_ms` whose time is positive. Nothing at all encodes as no bytes.
///
/// # Errors
/// 413 when the row would have too many bytes or keys, see [`finish_row`].
pub fn encode_row(
    metadata: WirePayload,
    content: Option<String>,
    key_ttl_ms: &[(String, i64)],
    now_ms: u64,
) -> Result<Vec<u8>, ApiError> {
    encode_point_row(metadata, content, Vec::new(), key_ttl_ms, now_ms)
}

/// As [`encode_row`], with the point's sparse vector, empty = none.
///
/// # Errors
/// 413 as there; 400 for a sparse vector that does not ascend strictly.
pub fn encode_point_row(
    metadata: WirePayload,
    content: Option<String>,
    sparse: Vec<(u32, f32)>,
    key_ttl_ms: &[(String, i64)],
    now_ms: u64,
) -> Result<Vec<u8>, ApiError> {
    check_key_ttls(key_ttl_ms)?;
    let mut row = RowBuilder::new();
    for (key, value) in metadata.0 {
        row.set(&key, value, 0);
    }
    if let Some(content) = content.filter(|content| !content.is_empty()) {
        row.set(CONTENT_KEY, Value::String(content), 0);
    }
    // One pass over the deadlines: looking for that of each key would take the product of both numbers. The last one of a key counts, and
    // those of keys that are not there do not.
    for (key, ttl_ms) in key_ttl_ms {
        let deadline_ms = if *ttl_ms > 0 { now_ms.saturating_add(*ttl_ms as u64) } else { 0 };
        let _is_there = row.set_deadline(key, deadline_ms);
    }
    row.set_sparse(sparse).map_err(|error| ApiError::invalid(error.to_string()))?;
    Ok(finish_row(row)?)
}

/// Writes a JSON string.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    write_json(out, text);
}

/// Writes anything serde knows as JSON. Numbers come out in their shortest form.
pub fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Writing scalars, strings and arrays of them to memory has no failure.
    if let Err(error) = serde_json::to_writer(&mut *out, value) {
        tracing::error!(target: "nigh", %error, "a response value does not serialise");
    }
}

/// Writes one tagged value; zero and empty values keep only their kind, as clients expect.
pub fn write_value(out: &mut Vec<u8>, value: &ValueRef<'_>) {
    let kind = value.kind().name();
    match value {
        ValueRef::None => tagged(out, kind, "", None::<&()>),
        ValueRef::String(text) => tagged(out, kind, "str", Some(text).filter(|text| !text.is_empty())),
        ValueRef::Int(value) => tagged(out, kind, "int", Some(value).filter(|value| **value != 0)),
        ValueRef::Float(value) => tagged(out, kind, "flt", Some(value).filter(|value| **value != 0.0)),
        ValueRef::Bool(value) => tagged(out, kind, "bool", Some(value).filter(|value| **value)),
        ValueRef::Strings(array) => tagged_array(out, kind, "strs", array.iter()),
        ValueRef::Ints(array) => tagged_array(out, kind, "ints", array.iter()),
        ValueRef::Floats(array) => tagged_array(out, kind, "flts", array.iter()),
        ValueRef::Record(bytes) => {
            let text = STANDARD.encode(bytes);
            tagged(out, kind, "rec", Some(&text).filter(|text| !text.is_empty()));
        }
        ValueRef::Geo { lat, lon } => {
            open_tagged(out, kind);
            for (name, value) in [("lat", lat), ("lon", lon)] {
                if *value != 0.0 {
                    open_field(out, name);
                    write_json(out, value);
                }
            }
            out.push(b'}');
        }
    }
}

fn open_tagged(out: &mut Vec<u8>, kind: &str) {
    out.extend_from_slice(b"{\"kind\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.push(b'"');
}

fn open_field(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn tagged<T: serde::Serialize>(out: &mut Vec<u8>, kind: &str, name: &str, value: Option<&T>) {
    open_tagged(out, kind);
    if let Some(value) = value {
        open_field(out, name);
        write_json(out, value);
    }
    out.push(b'}');
}

fn tagged_array<T: serde::Serialize>(
    out: &mut Vec<u8>,
    kind: &str,
    name: &str,
    values: impl Iterator<Item = T>,
) {
    open_tagged(out, kind);
    let mut any = false;
    for value in values {
        if any {
            out.push(b',');
        } else {
            open_field(out, name);
            out.push(b'[');
            any = true;
        }
        write_json(out, &value);
    }
    if any {
        out.push(b']');
    }
    out.push(b'}');
}

/// Writes the whole payload of a row as an object, `$content` as a tagged string among the rest; `null` when nothing
/// lives in it at `now_ms`.
pub fn write_payload(out: &mut Vec<u8>, row: &[u8], now_ms: u64) {
    let start = out.len();
    out.push(b'{');
    if !row.is_empty() {
        write_entries(out, row, now_ms, |_| true);
    }
    if out.len() == start + 1 {
        out.truncate(start);
        out.extend_from_slice(b"null");
    } else {
        out.push(b'}');
    }
}

/// Writes `,"sparse":{"indices":[…],"values":[…]}` when the point has a sparse vector.
pub fn write_sparse(out: &mut Vec<u8>, row: &[u8]) {
    let (indices, values): (Vec<u32>, Vec<f32>) = PayloadRow::trusted(row).sparse().unzip();
    if indices.is_empty() {
        return;
    }
    out.extend_from_slice(b",\"sparse\":{\"indices\":");
    write_json(out, &indices);
    out.extend_from_slice(b",\"values\":");
    write_json(out, &values);
    out.push(b'}');
}

/// A group's value; only scalars make groups.
pub fn scalar(value: &Value) -> ValueRef<'_> {
    match value {
        Value::String(text) => ValueRef::String(text),
        Value::Int(number) => ValueRef::Int(*number),
        Value::Float(number) => ValueRef::Float(*number),
        Value::Bool(flag) => ValueRef::Bool(*flag),
        _ => ValueRef::None,
    }
}

/// A value that a facet counts.
pub fn facet_value(value: &FacetValue) -> ValueRef<'_> {
    match value {
        FacetValue::Bool(flag) => ValueRef::Bool(*flag),
        FacetValue::Int(number) => ValueRef::Int(*number),
        FacetValue::Float(number) => ValueRef::Float(number.get()),
        FacetValue::String(text) => ValueRef::String(text),
    }
}

/// The document text of a row: a `$content` of another kind than string is none, and stays in the metadata.
pub fn content(row: &[u8], now_ms: u64) -> Option<&str> {
    if row.is_empty() {
        return None;
    }
    match PayloadRow::trusted(row).get(CONTENT_KEY, now_ms) {
        Some(ValueRef::String(text)) => Some(text),
        _ => None,
    }
}

/// Writes what a row holds beside its document text as an object; nothing when it holds nothing.
pub fn write_metadata(out: &mut Vec<u8>, row: &[u8], now_ms: u64) {
    if row.is_empty() {
        return;
    }
    let has_content = content(row, now_ms).is_some();
    let start = out.len();
    out.push(b'{');
    if write_entries(out, row, now_ms, |key| !has_content || key != CONTENT_KEY) == 0 {
        out.truncate(start);
    } else {
        out.push(b'}');
    }
}

/// Writes `"content":"…"` and, when anything else lives in the row, `,"metadata":{…}`.
pub fn write_document(out: &mut Vec<u8>, row: &[u8], now_ms: u64) {
    out.extend_from_slice(b"\"content\":");
    write_string(out, content(row, now_ms).unwrap_or_default());
    let start = out.len();
    out.extend_from_slice(b",\"metadata\":");
    let value = out.len();
    write_metadata(out, row, now_ms);
    if out.len() == value {
        out.truncate(start);
    }
}

fn write_entries(out: &mut Vec<u8>, row: &[u8], now_ms: u64, keep: impl Fn(&str) -> bool) -> usize {
    let mut count = 0;
    for (key, value) in PayloadRow::trusted(row).entries(now_ms) {
        if keep(key) {
            if count > 0 {
                out.push(b',');
            }
            write_string(out, key);
            out.push(b':');
            write_value(out, &value);
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::ErrorKind;
    use proptest::prelude::*;

    fn read(json: &str) -> Result<Value, String> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        ValueSeed(UnknownKeys::Refused).deserialize(&mut deserializer).map_err(|error| error.to_string())
    }

    fn row_of(value: Value) -> Vec<u8> {
        encode_row(WirePayload(vec![("k".into(), value)]), None, &[], 0).unwrap()
    }

    fn written(value: Value) -> String {
        let mut out = Vec::new();
        write_payload(&mut out, &row_of(value), 0);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_kind_both_ways() {
        for (json, value) in [
            (r#"{"kind":"none"}"#, Value::None),
            (r#"{"kind":"string","str":"a\"b"}"#, Value::String("a\"b".into())),
            (r#"{"kind":"string"}"#, Value::String(String::new())),
            (r#"{"kind":"int","int":-5}"#, Value::Int(-5)),
            (r#"{"kind":"int"}"#, Value::Int(0)),
            (r#"{"kind":"float","flt":0.1}"#, Value::Float(0.1)),
            (r#"{"kind":"bool","bool":true}"#, Value::Bool(true)),
            (r#"{"kind":"bool"}"#, Value::Bool(false)),
            (r#"{"kind":"strings","strs":["x","y"]}"#, Value::Strings(vec!["x".into(), "y".into()])),
            (r#"{"kind":"strings"}"#, Value::Strings(vec![])),
            (r#"{"kind":"ints","ints":[1,-2]}"#, Value::Ints(vec![1, -2])),
            (r#"{"kind":"floats","flts":[1.5]}"#, Value::Floats(vec![1.5])),
            (r#"{"kind":"geo","lat":-1.5}"#, Value::Geo { lat: -1.5, lon: 0.0 }),
            (r#"{"kind":"record","rec":"AgD/"}"#, Value::Record(vec![2, 0, 255])),
            (r#"{"kind":"record","rec":"Ag=="}"#, Value::Record(vec![2])),
            (r#"{"kind":"record"}"#, Value::Record(vec![])),
        ] {
            assert_eq!(read(json), Ok(value.clone()), "{json}");
            assert_eq!(written(value), format!("{{\"k\":{json}}}"));
        }
    }

    #[test]
    fn native_forms_and_leniency() {
        for (json, value) in [
            ("null", Value::None),
            ("\"acme\"", Value::String("acme".into())),
            ("7", Value::Int(7)),
            ("7.0", Value::Float(7.0)),
            ("false", Value::Bool(false)),
            (r#"["a"]"#, Value::Strings(vec!["a".into()])),
            ("[]", Value::Strings(vec![])),
            ("[1,2]", Value::Ints(vec![1, 2])),
            ("[1,2.5]", Value::Floats(vec![1.0, 2.5])),
            (r#"{"kind":"float","flt":10}"#, Value::Float(10.0)),
            (r#"{"int":5,"kind":"string","str":"s","flt":null}"#, Value::String("s".into())),
            (r#"{"kind":"int","int":1,"int":2}"#, Value::Int(2)),
        ] {
            assert_eq!(read(json), Ok(value), "{json}");
        }
        for (json, fragment) in [
            ("{}", "needs a \"kind\"; it must be one of none, string, int,"),
            (r#"{"kind":"int","int":1.0}"#, "field \"int\""),
            (r#"{"kind":"blob"}"#, "unknown kind \"blob\"; it must be one of none, string, int,"),
            (r#"{"kind":"int","x":1}"#, "unknown field"),
            (r#"{"kind":"record","rec":"Ag"}"#, "base64"),
            (r#"{"kind":"record","rec":"A-__"}"#, "base64"),
            (r#"{"kind":"record","str":"Ag=="}"#, "lies under \"rec\", not under \"str\""),
            ("[1,\"a\"]", "only strings or only numbers"),
            ("[\"a\",1]", "only strings or only numbers"),
            ("[true]", "only strings or only numbers"),
            ("[[1]]", "only strings or only numbers"),
            ("9223372036854775808", "out of the range"),
            (r#"{"kind":"int","int":9223372036854775808}"#, "field \"int\""),
        ] {
            let message = read(json).expect_err(json);
            assert!(message.contains(fragment), "{json}: {message}");
        }
    }

    #[test]
    fn content_and_key_deadlines() {
        let payload = || {
            WirePayload(vec![("$content".into(), Value::String("old".into())), ("a".into(), Value::Int(1))])
        };
        let ttls = [("a".to_owned(), 5), ("$content".to_owned(), -1), ("zzz".to_owned(), 9)];
        let row = encode_row(payload(), Some("new".into()), &ttls, 1_000).unwrap();
        let document = |row: &[u8], now_ms| {
            let mut out = Vec::new();
            write_document(&mut out, row, now_ms);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(document(&row, 1_004), r#""content":"new","metadata":{"a":{"kind":"int","int":1}}"#);
        assert_eq!(document(&row, 1_005), r#""content":"new""#);
        let kept = encode_row(payload(), Some(String::new()), &[], 0).unwrap();
        assert!(document(&kept, 0).starts_with(r#""content":"old""#));
        assert!(encode_row(WirePayload::default(), None, &ttls, 0).unwrap().is_empty());
        assert_eq!(document(&[], 0), r#""content":"""#);
        let other_kind =
            encode_row(WirePayload(vec![("$content".into(), Value::Int(3))]), None, &[], 0).unwrap();
        assert_eq!(
            document(&other_kind, 0),
            r#""content":"","metadata":{"$content":{"kind":"int","int":3}}"#
        );
    }

    #[test]
    fn an_enormous_row_is_refused() {
        let payload = WirePayload(vec![("a".into(), Value::Strings(vec![String::new(); 4_000_000]))]);
        assert_eq!(encode_row(payload, None, &[], 0).unwrap_err().kind, ErrorKind::TooLarge);
    }

    fn values() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::None),
            ".{0,12}".prop_map(Value::String),
            any::<i64>().prop_map(Value::Int),
            prop::num::f64::NORMAL.prop_map(Value::Float),
            any::<bool>().prop_map(Value::Bool),
            prop::collection::vec(".{0,6}", 0..4).prop_map(Value::Strings),
            prop::collection::vec(any::<i64>(), 0..4).prop_map(Value::Ints),
            prop::collection::vec(prop::num::f64::NORMAL, 0..4).prop_map(Value::Floats),
            (-90.0..90.0, -180.0..180.0).prop_map(|(lat, lon)| Value::Geo { lat, lon }),
            prop::collection::vec(any::<u8>(), 0..9).prop_map(Value::Record),
        ]
    }

    proptest! {
        /// What is written reads back, whatever the keys and values.
        #[test]
        fn payloads_read_back(entries in prop::collection::btree_map(".{0,6}", values(), 1..6)) {
            let payload = WirePayload(entries.clone().into_iter().collect());
            let row = encode_row(payload, None, &[], 0).unwrap();
            let mut out = Vec::new();
            write_payload(&mut out, &row, 0);
            let mut deserializer = serde_json::Deserializer::from_slice(&out);
            let back = PayloadSeed(UnknownKeys::Refused).deserialize(&mut deserializer).unwrap();
            prop_assert_eq!(back.0.into_iter().collect::<std::collections::BTreeMap<_, _>>(), entries);
        }
    }
}
