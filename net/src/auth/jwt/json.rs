//! JSON read without ambiguity. RFC 7515 (section 4) and RFC 7519 (section 4) let a reader refuse an object that has one name twice, and it must:
//! two readers that take different ones of the two would see two different tokens under one signature.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A JSON object.
pub(super) type Object = Map<String, Value>;

/// A member of an object is there, and not of the type that is wanted.
pub(super) struct WrongType;

/// The one JSON object that `text` consists of. Arrays and objects nest to the 128 levels that `serde_json` allows, so the stack is safe.
///
/// # Errors
/// When `text` is no JSON, is another value than an object, or has an object, at any depth, with one name twice.
pub(super) fn object(text: &[u8]) -> Result<Object, serde_json::Error> {
    match serde_json::from_slice::<Unambiguous>(text)?.0 {
        Value::Object(object) => Ok(object),
        _ => Err(Error::custom("a JSON object is wanted here")),
    }
}

/// The string called `name`, or `None` where the object has no such member.
///
/// # Errors
/// [`WrongType`] when the member is something else than a string, `null` included.
pub(super) fn text<'a>(object: &'a Object, name: &str) -> Result<Option<&'a str>, WrongType> {
    object.get(name).map(|value| value.as_str().ok_or(WrongType)).transpose()
}

/// The strings of an array.
///
/// # Errors
/// [`WrongType`] when one of its values is no string.
pub(super) fn texts(values: &[Value]) -> Result<Vec<&str>, WrongType> {
    values.iter().map(|value| value.as_str().ok_or(WrongType)).collect()
}

/// Any JSON value none of whose objects has one name twice. `Value` itself would keep the last of the two.
struct Unambiguous(Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyValue).map(Self)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("a JSON value")
    }
    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }
    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unambiguous(value)) = from.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = from.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(Error::custom(format_args!("an object has the name {name:?} twice")));
            }
            let Unambiguous(value) = from.next_value()?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}
