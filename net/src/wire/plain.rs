//! Values of plain payloads on the wire: any JSON.

use crate::wire::value::{UnknownKeys, ValueSeed, write_json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nigh_engine::payload::{Json, Value, ValueRef};
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use std::fmt;

/// Reads a value of a plain payload. What has a kind is stored by it, and comes back the same; the rest is kept as text.
///
/// # Errors
/// What is no JSON, or an integer that 64 bits do not hold.
pub fn plain_value(text: &str) -> Result<Value, serde_json::Error> {
    if let Some(number) = integer_out_of_range(text) {
        let reason = format_args!("integer {} is out of the range of a 64-bit integer", shown(number));
        return Err(de::Error::custom(reason));
    }
    let json = || Value::Json(Json { text: text.to_owned(), ..Json::default() });
    match text.as_bytes().first() {
        Some(b'{') => Ok(json()),
        Some(b'[') => Ok(serde_json::from_str::<OneKind>(text)?.0.unwrap_or_else(json)),
        _ => ValueSeed(UnknownKeys::Refused).deserialize(&mut serde_json::Deserializer::from_str(text)),
    }
}

/// A number as an error shows it.
fn shown(number: &str) -> String {
    const SHOWN: usize = 40;
    if number.len() <= SHOWN { number.to_owned() } else { format!("{}…", &number[..SHOWN]) }
}

/// The first integer in a JSON text that 64 bits do not hold. The parser makes a float of one that is long enough, which is another number.
fn integer_out_of_range(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'"' => {
                while let Some(&byte) = bytes.get(at)
                    && byte != b'"'
                {
                    at += if byte == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let is_part =
                    |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
                while bytes.get(at).is_some_and(is_part) {
                    at += 1;
                }
                let number = &text[start..at];
                let is_integer = !number.contains(['.', 'e', 'E']);
                if is_integer && number.len() >= 19 && number.parse::<i64>().is_err() {
                    return Some(number);
                }
            }
            _ => {}
        }
    }
    None
}

/// An array of one kind, or nothing: integers and floats are two.
struct OneKind(Option<Value>);

impl<'de> Deserialize<'de> for OneKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(OneKindVisitor)
    }
}

struct OneKindVisitor;

impl<'de> Visitor<'de> for OneKindVisitor {
    type Value = OneKind;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON array")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<OneKind, A::Error> {
        let mut all = Value::Strings(Vec::new());
        let mut is_first = true;
        while let Some(element) = array.next_element::<Element>()? {
            if std::mem::take(&mut is_first) {
                match &element {
                    Element::Int(_) => all = Value::Ints(Vec::new()),
                    Element::Float(_) => all = Value::Floats(Vec::new()),
                    _ => {}
                }
            }
            match (&mut all, element) {
                (Value::Strings(all), Element::String(text)) => all.push(text),
                (Value::Ints(all), Element::Int(number)) => all.push(number),
                (Value::Floats(all), Element::Float(number)) => all.push(number),
                _ => {
                    while array.next_element::<IgnoredAny>()?.is_some() {}
                    return Ok(OneKind(None));
                }
            }
        }
        Ok(OneKind(Some(all)))
    }
}

/// An element of an array.
enum Element {
    String(String),
    Int(i64),
    Float(f64),
    Other,
}

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ElementVisitor)
    }
}

struct ElementVisitor;

impl<'de> Visitor<'de> for ElementVisitor {
    type Value = Element;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E: de::Error>(self) -> Result<Element, E> {
        Ok(Element::Other)
    }
    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Element, E> {
        Ok(Element::Other)
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Element, E> {
        Ok(Element::Int(number))
    }
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Element, E> {
        // What is out of range was refused before.
        Ok(i64::try_from(number).map_or(Element::Other, Element::Int))
    }
    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Element, E> {
        Ok(Element::Float(number))
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Element, E> {
        Ok(Element::String(text.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Element, A::Error> {
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Element::Other)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Element, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Element::Other)
    }
}

/// Writes a value of a plain payload.
pub fn write_plain(out: &mut Vec<u8>, value: &ValueRef<'_>) {
    match value {
        ValueRef::None => out.extend_from_slice(b"null"),
        ValueRef::String(text) => write_json(out, text),
        ValueRef::Int(number) => write_json(out, number),
        ValueRef::Float(number) => write_json(out, number),
        ValueRef::Bool(flag) => write_json(out, flag),
        ValueRef::Strings(array) => write_array(out, array.iter()),
        ValueRef::Ints(array) => write_array(out, array.iter()),
        ValueRef::Floats(array) => write_array(out, array.iter()),
        // Neither is ever sent as JSON: places are objects, and records are made by operations.
        ValueRef::Geo { lat, lon } => write_json(out, &serde_json::json!({"lat": lat, "lon": lon})),
        ValueRef::Record(bytes) => write_json(out, &STANDARD.encode(bytes)),
        ValueRef::Json(json) => out.extend_from_slice(json.text().as_bytes()),
    }
}

fn write_array<T: serde::Serialize>(out: &mut Vec<u8>, values: impl Iterator<Item = T>) {
    out.push(b'[');
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_json(out, &value);
    }
    out.push(b']');
}
