//! Tagged payload values on the wire: objects (`{"kind":"int","int":5}`) in both directions, and native JSON scalars
//! and arrays on input as well.

use crate::wire::json::{Key, field, one_of};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nigh_engine::payload::{Kind, Value, ValueRef};
use nigh_engine::quoted::quoted;
use nigh_shard::core::FacetValue;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
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
            let kinds = one_of(Kind::tagged().map(Kind::name));
            de::Error::custom(format_args!("{sentence}; {kinds}"))
        };
        let kind = kind.ok_or_else(|| refused("a value object needs a \"kind\"".to_owned()))?;
        let kind = Kind::tagged()
            .find(|tagged| tagged.name() == kind)
            .ok_or_else(|| refused(format!("unknown kind {}", quoted(&kind))))?;
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
            Kind::Json => unreachable!("it has no tag"),
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
            Kind::Json => unreachable!("it has no tag"),
        })
    }
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
        // Tagged payloads have none of these.
        ValueRef::Json(json) => write_string(out, json.text()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_engine::payload::{PayloadRow, RowBuilder};

    fn read(json: &str) -> Result<Value, String> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        ValueSeed(UnknownKeys::Refused).deserialize(&mut deserializer).map_err(|error| error.to_string())
    }

    fn written(value: Value) -> String {
        let mut row = RowBuilder::new();
        row.set("k", value, 0);
        let (row, mut out) = (row.finish(), Vec::new());
        write_value(&mut out, &PayloadRow::trusted(&row).get("k", 0).unwrap());
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
            assert_eq!(written(value), json);
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
}
