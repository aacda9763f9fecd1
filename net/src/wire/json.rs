//! Typed JSON bodies: unknown keys are refused by name, `null` reads as absent, the last of repeated keys wins, integers
//! must be integer literals and floats must fit `f32`.
//!
//! serde's derive refuses repeated keys and reads `1e39` as infinity, so the objects here are built by
//! [`json_object!`] and vectors by [`parse_floats`]; values go from text to their place without a tree in between.

use crate::limits::PAYLOAD_KEYS_MAX;
use crate::op::ApiError;
use crate::wire::floats::parse_floats;
use nigh_engine::point_id;
use nigh_engine::quoted::quoted;
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// A bad-JSON error; every text starts `invalid JSON body:`, which clients match.
pub fn invalid_json(reason: impl fmt::Display) -> ApiError {
    ApiError::invalid(format!("invalid JSON body: {reason}"))
}

/// Whether a body that a route may do without holds an object, which is meant to be read.
pub fn is_object(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'{')
}

/// The two bytes that every gzip stream begins with.
pub const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];

/// The refusal of a body that is compressed and does not say so.
pub fn compressed() -> ApiError {
    invalid_json("the body is compressed; say so with the header Content-Encoding: gzip")
}

/// What is expected in place of a type of ours, at the end of an error of serde.
const EXPECTED: [(&str, &str); 9] = [
    (
        point_id::EXPECTED,
        "an integer between 0 and 18446744073709551615, without quotes; or a string of 1 to 512 bytes, where ids are strings",
    ),
    ("u64", "an integer between 0 and 18446744073709551615, without quotes"),
    ("u32", "an integer between 0 and 4294967295, without quotes"),
    ("u8", "an integer between 0 and 255, without quotes"),
    ("i64", "an integer of 64 bits, without quotes"),
    ("f64", "a number, without quotes"),
    ("a boolean", "true or false, without quotes"),
    ("a string", "a string in quotes"),
    ("a sequence", "an array"),
];

/// An error of serde in words of JSON: it names the types of this program.
pub fn in_words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let Some((before, expected)) = text.rsplit_once(", expected ") else { return text };
    for (ours, words) in EXPECTED {
        if let Some(rest) = expected.strip_prefix(ours)
            && (rest.is_empty() || rest.starts_with(" at line "))
        {
            return format!("{}, expected {words}{rest}", shortened(before));
        }
    }
    format!("{}, expected {expected}", shortened(before))
}

/// The part of an error of serde that ends with what was found, which may be a text of any length, in quotes and escaped.
fn shortened(before: &str) -> Cow<'_, str> {
    const FOUND: &str = "string \"";
    const SHOWN_BYTES: usize = 100;
    let shown = before.find(FOUND).map(|start| before.floor_char_boundary(start + FOUND.len() + SHOWN_BYTES));
    match shown {
        // One more byte is the quote at the end.
        Some(end) if end + 1 < before.len() => {
            // Not within an escape.
            Cow::Owned(format!("{}…\"", before[..end].trim_end_matches('\\')))
        }
        _ => Cow::Borrowed(before),
    }
}

/// Decodes a whole body; `null` reads as `{}`.
///
/// # Errors
/// `invalid JSON body: …` naming the field.
pub fn decode<'de, T: Deserialize<'de> + Default>(body: &'de [u8]) -> Result<T, ApiError> {
    decode_seed(body, PhantomData::<Option<T>>).map(Option::unwrap_or_default)
}

/// As [`decode`], through a seed, which says what `null` reads as.
///
/// # Errors
/// The body is refused for the same reasons as by [`decode`].
pub fn decode_seed<'de, S: DeserializeSeed<'de>>(body: &'de [u8], seed: S) -> Result<S::Value, ApiError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(invalid_json("the body is empty"));
    }
    if body.starts_with(GZIP_MAGIC) {
        return Err(compressed());
    }
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    seed.deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| invalid_json(in_words(&error)))
}

/// An object key, borrowed from the body unless it holds escapes.
pub struct Key<'de>(pub Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object key")
            }
            fn visit_borrowed_str<E: de::Error>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }
            fn visit_str<E: de::Error>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

/// The value of `key`, `None` when it is `null`; errors name the key.
pub fn field<'de, A: MapAccess<'de>, T: Deserialize<'de>>(
    map: &mut A,
    key: &str,
) -> Result<Option<T>, A::Error> {
    map.next_value::<Option<T>>()
        .map_err(|error| de::Error::custom(format_args!("field {}: {error}", quoted(key))))
}

/// The value of `key` through a seed; errors name the key.
pub fn field_seed<'de, A: MapAccess<'de>, S: DeserializeSeed<'de>>(
    map: &mut A,
    key: &str,
    seed: S,
) -> Result<S::Value, A::Error> {
    map.next_value_seed(seed)
        .map_err(|error| de::Error::custom(format_args!("field {}: {error}", quoted(key))))
}

/// The valid names, for whoever sent another.
pub fn one_of<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    match names.into_iter().collect::<Vec<_>>()[..] {
        [name] => format!("it must be {name}"),
        ref names => format!("it must be one of {}", names.join(", ")),
    }
}

/// The refusal of a key that is none of `known`.
pub fn unknown_field<'n, E: de::Error>(key: &str, known: impl IntoIterator<Item = &'n str>) -> E {
    E::custom(format_args!("unknown field {}; {}", quoted(key), one_of(known)))
}

/// Defines a body object: a struct of optional fields, read under the rules of this module. Keys match exactly, else
/// regardless of ASCII case.
macro_rules! json_object {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$field_meta:meta])* $key:literal => $field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Default)]
        $vis struct $name { $($(#[$field_meta])* pub $field: Option<$type>),* }

        impl $name {
            /// The keys it has.
            pub const KEYS: &'static [&'static str] = &[$($key),*];
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct ObjectVisitor;
                impl<'de> serde::de::Visitor<'de> for ObjectVisitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a JSON object")
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        let mut object = $name::default();
                        while let Some($crate::wire::json::Key(key)) = map.next_key()? {
                            let mut key = key;
                            let mut folded = false;
                            loop {
                                match key.as_ref() {
                                    $($key => if let Some(value) = $crate::wire::json::field(&mut map, $key)? {
                                        object.$field = Some(value);
                                    },)*
                                    _ if !folded && key.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                                        key = key.to_ascii_lowercase().into();
                                        folded = true;
                                        continue;
                                    }
                                    _ => {
                                        return Err($crate::wire::json::unknown_field(&key, $name::KEYS.iter().copied()));
                                    }
                                }
                                break;
                            }
                        }
                        Ok(object)
                    }
                }
                deserializer.deserialize_map(ObjectVisitor)
            }
        }
    };
}
pub(crate) use json_object;

/// The first items of an array, at most `MOST` + 1, so that a reader whose limit is `MOST` sees that there are more. The remaining items are
/// skipped and take no memory: an object of three bytes of text may take hundreds of bytes in memory.
pub struct UpTo<T, const MOST: usize>(pub Vec<T>);

impl<T, const MOST: usize> Default for UpTo<T, MOST> {
    fn default() -> Self {
        UpTo(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for UpTo<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T, const MOST: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Items<T, MOST> {
            type Value = UpTo<T, MOST>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // These are the words of serde for a list, which errors have always had.
                f.write_str("a sequence")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while items.len() <= MOST {
                    match array.next_element()? {
                        Some(item) => items.push(item),
                        None => return Ok(UpTo(items)),
                    }
                }
                while array.next_element::<IgnoredAny>()?.is_some() {}
                Ok(UpTo(items))
            }
        }
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

/// An array of finite `f32`, read straight into its vector by [`parse_floats`].
#[derive(Default)]
pub struct Floats(pub Vec<f32>);

impl<'de> Deserialize<'de> for Floats {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        parse_floats(raw.get()).map(Floats).map_err(de::Error::custom)
    }
}

/// A map of payload key to integer, last of repeated keys wins, `null` skipped. It has no more entries than a payload has keys: they would
/// have no effect, but each takes some 50 bytes where the shortest has 6 of text.
#[derive(Default)]
pub struct IntMap(pub Vec<(String, i64)>);

impl<'de> Deserialize<'de> for IntMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IntMapVisitor;
        impl<'de> Visitor<'de> for IntMapVisitor {
            type Value = IntMap;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of integers")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<IntMap, A::Error> {
                let mut entries = Vec::new();
                while let Some(Key(key)) = map.next_key()? {
                    if let Some(value) = field(&mut map, &key)? {
                        if entries.len() == PAYLOAD_KEYS_MAX {
                            return Err(de::Error::custom(format_args!("at most {PAYLOAD_KEYS_MAX} keys")));
                        }
                        entries.push((key.into_owned(), value));
                    }
                }
                Ok(IntMap(entries))
            }
        }
        deserializer.deserialize_map(IntMapVisitor)
    }
}

json_object! {
    /// A sparse vector as sent.
    pub struct SparseBody {
        "indices" => indices: Vec<u32>,
        "values" => values: Floats,
    }
}

impl SparseBody {
    /// As (dimension, value); empty = no sparse vector.
    ///
    /// # Errors
    /// 400: lengths differ, indices do not ascend strictly.
    pub fn into_vector(self) -> Result<Vec<(u32, f32)>, ApiError> {
        let indices = self.indices.unwrap_or_default();
        let values = self.values.unwrap_or_default().0;
        if indices.len() != values.len() {
            return Err(ApiError::invalid(format!(
                "sparse: {} indices but {} values",
                indices.len(),
                values.len()
            )));
        }
        let vector: Vec<(u32, f32)> = indices.into_iter().zip(values).collect();
        if let Some(at) = vector.windows(2).position(|pair| pair[0].0 >= pair[1].0) {
            return Err(ApiError::invalid(format!(
                "sparse: indices must be strictly ascending, but {} follows {}",
                vector[at + 1].0,
                vector[at].0
            )));
        }
        Ok(vector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    json_object! {
        struct Sample {
            "id" => id: u64,
            "k" => k: i64,
            "vector" => vector: Floats,
            "level" => level: u8,
            "on" => on: bool,
        }
    }

    fn error(body: &str) -> String {
        match decode::<Sample>(body.as_bytes()) {
            Ok(_) => panic!("{body} was accepted"),
            Err(error) => error.message,
        }
    }

    #[test]
    fn lists_end_behind_one_more_than_they_may_have() {
        let list = |json: &str| serde_json::from_str::<UpTo<u64, 2>>(json).map(|list| list.0);
        for (json, items) in [("[]", &[][..]), ("[1,2]", &[1, 2]), ("[1,2,3]", &[1, 2, 3])] {
            assert_eq!(list(json).unwrap(), items);
        }
        // Items behind the limit must be JSON, and may be of any type.
        assert_eq!(list(r#"[1,2,3,"x",{"a":[]}]"#).unwrap(), [1, 2, 3]);
        for wrong in ["[1,2,3,", "[1,2,3,x]", r#"[1,"2"]"#, "7", "{}"] {
            assert!(list(wrong).is_err(), "{wrong}");
        }
        assert!(list("7").unwrap_err().to_string().contains("expected a sequence"));
    }

    #[test]
    fn absent_null_repeated_and_folded_keys() {
        let sample: Sample =
            decode(br#" {"id":1,"id":7,"k":null,"Vector":[1,2.5,-3e0],"ON":true} "#).unwrap();
        assert_eq!(sample.id, Some(7));
        assert_eq!(sample.k, None);
        assert_eq!(sample.vector.unwrap().0, [1.0, 2.5, -3.0]);
        assert_eq!(sample.on, Some(true));
        assert!(sample.level.is_none());
        assert!(decode::<Sample>(b"null").unwrap().id.is_none());
        assert!(decode::<Sample>(b"{}").unwrap().id.is_none());
    }

    #[test]
    fn a_map_has_no_more_entries_than_a_payload_has_keys() {
        let of = |count: usize| {
            let entries: Vec<String> = (0..count).map(|key| format!("\"{key}\":1")).collect();
            let map = serde_json::from_str::<IntMap>(&format!("{{{}}}", entries.join(",")));
            map.map(|map| map.0.len()).map_err(|error| error.to_string())
        };
        assert_eq!(of(PAYLOAD_KEYS_MAX), Ok(PAYLOAD_KEYS_MAX));
        let refused = of(PAYLOAD_KEYS_MAX + 1).unwrap_err();
        assert!(refused.starts_with("at most 16384 keys"), "{refused}");
    }

    #[test]
    fn long_texts_are_quoted_in_part() {
        let long = "é\\\"".repeat(1 << 16);
        let check = |body: String, start: &str, end: &str| {
            let text = error(&body);
            assert!(text.starts_with(start) && text.ends_with(end) && text.len() < 500, "{text}");
        };
        check(
            format!(r#"{{"{long}":1}}"#),
            "invalid JSON body: unknown field \"é\\\"é",
            " at line 1 column 262147",
        );
        check(
            format!(r#"{{"id":"{long}"}}"#),
            "invalid JSON body: field \"id\": invalid type: string \"é\\\"é",
            "",
        );
        let text = error(&format!(r#"{{"on":"{}"}}"#, "x".repeat(9_000)));
        let shown = format!("string \"{}…\", expected true or false", "x".repeat(100));
        assert!(text.contains(&shown), "{text}");
        let text = error(&format!(r#"{{"on":"{}"}}"#, "x".repeat(100)));
        assert!(text.contains(&format!("string \"{}\", expected", "x".repeat(100))), "{text}");
    }

    #[test]
    fn refusals_name_the_field() {
        for (body, fragment) in [
            (r#"{"nope":1}"#, "unknown field \"nope\""),
            (r#"{"id":7.0}"#, "field \"id\""),
            (r#"{"id":7e0}"#, "field \"id\""),
            (r#"{"id":"7"}"#, "field \"id\""),
            (r#"{"id":-1}"#, "field \"id\""),
            (r#"{"id":18446744073709551616}"#, "field \"id\""),
            (r#"{"level":256}"#, "field \"level\""),
            (r#"{"vector":[1,null]}"#, "field \"vector\""),
            (r#"{"vector":[1,"2"]}"#, "field \"vector\""),
            (r#"{"vector":[1e39]}"#, "field \"vector\""),
            (r#"{"vector":[1e400]}"#, "field \"vector\""),
            (r#"{"vector":[NaN]}"#, "field \"vector\""),
            (r#"{"vector":[Infinity]}"#, "field \"vector\""),
            (r#"{"vector":3}"#, "field \"vector\""),
            (r#"{"on":1}"#, "field \"on\""),
            (r#"{"id":1"#, "EOF"),
            (r#"{"id":1} {}"#, "trailing"),
            ("", "empty"),
            (" \n", "empty"),
            ("[]", "a JSON object"),
            ("3", "a JSON object"),
        ] {
            let message = error(body);
            assert!(message.starts_with("invalid JSON body: "), "{body}: {message}");
            assert!(message.contains(fragment), "{body}: {message}");
        }
    }

    #[test]
    fn what_is_expected_is_said_in_words_of_json() {
        for (body, words) in [
            (
                r#"{"id":"7"}"#,
                "string \"7\", expected an integer between 0 and 18446744073709551615, without",
            ),
            (r#"{"id":-1}"#, "expected an integer between 0 and 18446744073709551615"),
            (r#"{"k":1.5}"#, "expected an integer of 64 bits"),
            (r#"{"level":256}"#, "expected an integer between 0 and 255"),
            (r#"{"on":1}"#, "expected true or false"),
            // What was sent is quoted as it was sent.
            (r#"{"id":", expected u64"}"#, "\", expected u64\", expected an integer between 0"),
            ("\u{1f}", "expected value at line 1"),
        ] {
            let message = error(body);
            assert!(message.contains(words), "{body}: {message}");
        }
        let compressed = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0];
        let refused = decode::<Sample>(&compressed).err().unwrap();
        assert!(refused.message.starts_with("invalid JSON body: the body is compressed"), "{refused}");
    }

    #[test]
    fn integers_at_their_bounds() {
        let sample: Sample =
            decode(br#"{"id":18446744073709551615,"k":-9223372036854775808,"level":255}"#).unwrap();
        assert_eq!((sample.id, sample.k, sample.level), (Some(u64::MAX), Some(i64::MIN), Some(255)));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_answered(body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
            let _ = decode::<Sample>(&body);
        }
    }
}
