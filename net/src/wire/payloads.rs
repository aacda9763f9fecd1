//! Payloads on the wire: how they are read, stored and answered. Their collection says whether values are tagged or plain JSON.

use crate::op::{ApiError, SentId, check_key_ttls};
use crate::wire::json::{Key, field_seed, in_words, invalid_json};
use crate::wire::plain::{plain_value, write_plain};
use crate::wire::value::{UnknownKeys, ValueSeed, write_json, write_string, write_value};
use nigh_engine::payload::{CONTENT_KEY, PayloadFormat, PayloadRow, RowBuilder, Value, ValueRef};
use nigh_engine::point_id::{ID_KEY, IdKind};
use nigh_engine::quoted::quoted;
use nigh_shard::core::{Conventions, finish_row};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// What decoding a request needs beside its bytes, when they say which collection it is about.
#[derive(Clone, Debug, Default)]
pub struct Decoding {
    /// When times to live begin, Unix milliseconds.
    pub now_ms: u64,
    /// How the payloads of each collection are sent, and the kind of its ids.
    pub conventions: Conventions,
}

impl Decoding {
    /// For requests at that time, where all payloads are tagged.
    pub fn tagged(now_ms: u64) -> Decoding {
        Decoding { now_ms, ..Decoding::default() }
    }

    /// For the payloads of one collection.
    pub fn of(&self, collection: &str) -> Payloads {
        let (format, ids) = (self.conventions.format_of(collection), self.conventions.ids_of(collection));
        Payloads { now_ms: self.now_ms, format, ids }
    }
}

/// How the payloads of one collection are decoded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Payloads {
    /// When times to live begin, Unix milliseconds.
    pub now_ms: u64,
    /// How payloads are sent.
    pub format: PayloadFormat,
    /// The kind of ids.
    pub ids: IdKind,
}

impl Payloads {
    /// For tagged payloads that come at that time.
    pub fn tagged(now_ms: u64) -> Payloads {
        Payloads { now_ms, ..Payloads::default() }
    }

    /// Reads a payload object from its JSON, which may stand within another text. `unknown` is about keys inside of tagged values.
    ///
    /// # Errors
    /// What is no payload, in the words of serde.
    pub fn read(self, json: &[u8], unknown: UnknownKeys) -> Result<WirePayload, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let seed = PayloadSeed(PayloadValueSeed { format: self.format, unknown });
        let payload = seed.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(payload)
    }
}

/// A payload in a body, kept as text: the decoder of the body is not told in which format the collection takes payloads.
#[derive(Debug)]
pub struct SentPayload(Box<RawValue>);

impl<'de> Deserialize<'de> for SentPayload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(SentPayload)
    }
}

impl SentPayload {
    /// Reads it, the value of `field` of a body; `None` is empty.
    ///
    /// # Errors
    /// A sentence that names the field.
    pub fn read(sent: Option<SentPayload>, field: &str, payloads: Payloads) -> Result<WirePayload, String> {
        let Some(SentPayload(text)) = sent else { return Ok(WirePayload::default()) };
        payloads
            .read(text.get().as_bytes(), UnknownKeys::Refused)
            .map_err(|error| format!("field {}: {}", quoted(field), in_words(&error)))
    }

    /// As [`Self::read`], where nothing more is to be said of where the payload stands.
    ///
    /// # Errors
    /// 400.
    pub fn read_in_body(
        sent: Option<SentPayload>,
        field: &str,
        payloads: Payloads,
    ) -> Result<WirePayload, ApiError> {
        SentPayload::read(sent, field, payloads).map_err(invalid_json)
    }
}

/// Reads one value of a payload.
#[derive(Clone, Copy)]
pub struct PayloadValueSeed {
    /// How it is sent.
    pub format: PayloadFormat,
    /// About keys inside of a tagged value.
    pub unknown: UnknownKeys,
}

impl<'de> DeserializeSeed<'de> for PayloadValueSeed {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.format {
            PayloadFormat::Tagged => ValueSeed(self.unknown).deserialize(deserializer),
            PayloadFormat::Plain => {
                let text = <&RawValue>::deserialize(deserializer)?.get();
                plain_value(text).map_err(de::Error::custom)
            }
        }
    }
}

/// A payload object as sent: entries in order, repeats included.
#[derive(Debug, Default)]
pub struct WirePayload(pub Vec<(String, Value)>);

impl<'de> DeserializeSeed<'de> for PayloadSeed {
    type Value = WirePayload;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<WirePayload, D::Error> {
        deserializer.deserialize_map(self)
    }
}

/// Reads one payload object, whose values this seed reads.
struct PayloadSeed(PayloadValueSeed);

impl<'de> Visitor<'de> for PayloadSeed {
    type Value = WirePayload;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0.format {
            PayloadFormat::Tagged => "an object of payload values",
            PayloadFormat::Plain => "a JSON object",
        })
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WirePayload, A::Error> {
        let mut entries = Vec::new();
        while let Some(Key(key)) = map.next_key()? {
            let value = field_seed(&mut map, &key, self.0)?;
            entries.push((key.into_owned(), value));
        }
        Ok(WirePayload(entries))
    }
}

/// Encodes a payload row: the id, if it is a string, entries, then `content` (when not empty) over `$content`, with absolute key deadlines for the
/// keys in `key_ttl_ms` whose time is positive. Nothing at all encodes as no bytes. Returns the number of the point, too.
///
/// In a collection whose ids are strings, [`ID_KEY`] among the entries is the id, because the messages of some transports have
/// room only for a number.
///
/// # Errors
/// 413 when the row would have too many bytes or keys, 400 when a value cannot be stored, see [`finish_row`].
pub fn encode_row(
    id: &SentId,
    metadata: WirePayload,
    content: Option<String>,
    key_ttl_ms: &[(String, i64)],
    payloads: Payloads,
) -> Result<(u64, Vec<u8>), ApiError> {
    encode_point_row(id, metadata, content, Vec::new(), key_ttl_ms, payloads)
}

/// As [`encode_row`], with the point's sparse vector, empty = none.
///
/// # Errors
/// 413 as there; 400 for a sparse vector that does not ascend strictly.
pub fn encode_point_row(
    id: &SentId,
    mut metadata: WirePayload,
    content: Option<String>,
    sparse: Vec<(u32, f32)>,
    key_ttl_ms: &[(String, i64)],
    payloads: Payloads,
) -> Result<(u64, Vec<u8>), ApiError> {
    check_key_ttls(key_ttl_ms)?;
    let id = match payloads.ids {
        IdKind::String => &stored_id(id, &mut metadata)?,
        IdKind::Number if id.text().is_some() => {
            // Clients know the first part of this sentence.
            return Err(invalid_json(format_args!(
                "field \"id\": invalid type: string {id}, expected an integer between 0 and 18446744073709551615, without quotes; a collection \
                 with \"ids\": \"string\" has strings as ids"
            )));
        }
        IdKind::Number => id,
    };
    let mut row = RowBuilder::new();
    row.set_format(payloads.format);
    if let Some(text) = id.text() {
        row.set_id(text.into());
    }
    for (key, value) in metadata.0 {
        row.set(&key, value, 0);
    }
    if let Some(content) = content.filter(|content| !content.is_empty()) {
        row.set(CONTENT_KEY, Value::String(content), 0);
    }
    // One pass over the deadlines: looking for that of each key would take the product of both numbers. The last one of a key counts, and
    // those of keys that are not there do not.
    for (key, ttl_ms) in key_ttl_ms {
        let deadline_ms = if *ttl_ms > 0 { payloads.now_ms.saturating_add(*ttl_ms as u64) } else { 0 };
        let _is_there = row.set_deadline(key, deadline_ms);
    }
    row.set_sparse(sparse).map_err(|error| ApiError::invalid(error.to_string()))?;
    Ok((id.number(), finish_row(row)?))
}

/// The id of a point in a collection whose ids are strings: where a message has a number, the string under [`ID_KEY`], which is taken out of the
/// payload. The number that was sent must be that of the string, or 0, which means not sent.
///
/// # Errors
/// 400 for an id that is no string, and for two that differ.
fn stored_id(id: &SentId, metadata: &mut WirePayload) -> Result<SentId, ApiError> {
    if id.kind() == Some(IdKind::Number) {
        return Err(ApiError::invalid(
            "field \"id\": the ids of the collection are strings, found an integer or no id; send the id as a string in quotes",
        ));
    }
    let mut sent = None;
    for (key, value) in metadata.0.extract_if(.., |(key, _)| key == ID_KEY) {
        let Value::String(text) = value else {
            return Err(ApiError::invalid(format!(
                "payload key {key:?}: the id of a point must be a string"
            )));
        };
        let text = SentId::string(&text)
            .map_err(|error| ApiError::invalid(format!("payload key {key:?}: {error}")))?;
        sent = Some(text);
    }
    match (id.kind(), sent) {
        (Some(_), None) => Ok(id.clone()),
        (Some(_), Some(sent)) if *id == sent => Ok(sent),
        (None, Some(sent)) if id.number() == 0 || id.number() == sent.number() => Ok(sent),
        (None, None) => Err(ApiError::invalid(format!(
            "the ids of the collection are strings; send the string of the point under the payload key {ID_KEY:?}"
        ))),
        (_, Some(sent)) => Err(ApiError::invalid(format!(
            "the id of the point is {id}, but the string under the payload key {ID_KEY:?} is {sent}; send only one of them. If the id of the \
             message is an integer, send 0 or the number of the string, {}",
            sent.number()
        ))),
    }
}

/// Writes a value as a collection of that format answers it.
pub fn write_in(format: PayloadFormat, out: &mut Vec<u8>, value: &ValueRef<'_>) {
    match format {
        PayloadFormat::Tagged => write_value(out, value),
        PayloadFormat::Plain => write_plain(out, value),
    }
}

/// Whether to write the id of a point, where ids are strings, under [`ID_KEY`] in its payload.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WithId {
    /// The answer itself has only the number.
    Yes,
    /// The answer has the id elsewhere.
    No,
}

/// Writes the whole payload of a row as an object, `$content` as a tagged string among the rest; `null` when nothing
/// lives in it at `now_ms`.
pub fn write_payload(out: &mut Vec<u8>, row: &[u8], with_id: WithId, now_ms: u64) {
    let start = out.len();
    out.push(b'{');
    if !row.is_empty() {
        write_entries(out, row, with_id, now_ms, |_| true);
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
pub fn write_metadata(out: &mut Vec<u8>, row: &[u8], with_id: WithId, now_ms: u64) {
    if row.is_empty() {
        return;
    }
    let has_content = content(row, now_ms).is_some();
    let start = out.len();
    out.push(b'{');
    if write_entries(out, row, with_id, now_ms, |key| !has_content || key != CONTENT_KEY) == 0 {
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
    write_metadata(out, row, WithId::No, now_ms);
    if out.len() == value {
        out.truncate(start);
    }
}

fn write_entries(
    out: &mut Vec<u8>,
    row: &[u8],
    with_id: WithId,
    now_ms: u64,
    keep: impl Fn(&str) -> bool,
) -> usize {
    let mut count = 0;
    let row = PayloadRow::trusted(row);
    if let Some(id) = row.id().filter(|_| with_id == WithId::Yes) {
        write_string(out, ID_KEY);
        out.push(b':');
        write_in(row.format(), out, &ValueRef::String(id));
        count += 1;
    }
    for (key, value) in row.sent_entries(now_ms) {
        if keep(key) {
            if count > 0 {
                out.push(b',');
            }
            write_string(out, key);
            out.push(b':');
            write_in(row.format(), out, &value);
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

    const PLAIN: Payloads = Payloads { now_ms: 0, format: PayloadFormat::Plain, ids: IdKind::Number };

    fn read(json: &str) -> Result<WirePayload, String> {
        PLAIN.read(json.as_bytes(), UnknownKeys::Refused).map_err(|error| error.to_string())
    }

    fn written(json: &str) -> String {
        let (_, row) = encode_row(&SentId::default(), read(json).unwrap(), None, &[], PLAIN).unwrap();
        let mut out = Vec::new();
        write_payload(&mut out, &row, WithId::No, 0);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn payloads_come_back_as_they_were_sent() {
        for json in [
            r#"{"a":0,"b":false,"c":"","d":[],"e":{},"f":null,"g":0.0}"#,
            r#"{"a":{"kind":"int","int":5},"b":{"kind":"none"}}"#,
            r#"{"a":[1,"x",null,true,[2],{"b": [ 1.50 ]}],"b":[true,false],"c":[1,2.5],"d":[1,2],"e":[1.5,2.5],"f":["x"]}"#,
            r#"{"$content":"text","a.b":1}"#,
        ] {
            assert_eq!(written(json), json);
        }
        // A key that is spelled like a path hides what is there.
        assert_eq!(written(r#"{"a":{"b":1},"a.b":2}"#), r#"{"a":{"b":1},"a.b":2}"#);
        assert_eq!(written("{}"), "null");
        let (_, row) = encode_row(
            &SentId::default(),
            read(r#"{"n":{"x":1}}"#).unwrap(),
            Some("text".into()),
            &[],
            PLAIN,
        )
        .unwrap();
        let mut out = Vec::new();
        write_document(&mut out, &row, 0);
        assert_eq!(out, br#""content":"text","metadata":{"n":{"x":1}}"#);
    }

    #[test]
    fn what_cannot_be_stored_is_refused() {
        for (json, fragment) in [
            ("[1]", "expected a JSON object"),
            ("{\"a\":}", "expected value"),
            ("{\"a\":9223372036854775808}", "field \"a\": integer 9223372036854775808 is out of the range"),
            ("{\"a\":1e999}", "out of range"),
            ("{\"a\":1} x", "trailing"),
        ] {
            let error = read(json).map(|_| ()).unwrap_err();
            assert!(error.contains(fragment), "{json}: {error}");
        }
        for json in [
            "{\"a\":[9223372036854775808]}",
            "{\"a\":{\"b\":9223372036854775808}}",
            "{\"a\":18446744073709551617}",
            "{\"a\":[\"9\\\"9\",-9223372036854775809]}",
            "{\"a\":{\"b\":[1,123456789012345678901234567890]}}",
        ] {
            let error = read(json).map(|_| ()).unwrap_err();
            assert!(error.contains("is out of the range of a 64-bit integer"), "{json}: {error}");
        }
        for json in [
            r#"{"a":9223372036854775807,"b":[-9223372036854775808,"18446744073709551617"],"c":{"d":1e300}}"#,
            r#"{"a":123456789012345678901234567890.5,"b":"\\\\"}"#,
        ] {
            assert!(read(json).is_ok(), "{json}");
        }
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let scalar = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            prop::num::f64::NORMAL.prop_map(Into::into),
            "\\PC{0,5}".prop_map(Into::into),
        ];
        scalar.prop_recursive(3, 30, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::Array),
                prop::collection::btree_map("\\PC{0,3}", inner, 0..4)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn content_and_key_deadlines() {
        let payload = || {
            WirePayload(vec![("$content".into(), Value::String("old".into())), ("a".into(), Value::Int(1))])
        };
        let ttls = [("a".to_owned(), 5), ("$content".to_owned(), -1), ("zzz".to_owned(), 9)];
        let (_, row) =
            encode_row(&SentId::default(), payload(), Some("new".into()), &ttls, Payloads::tagged(1_000))
                .unwrap();
        let document = |row: &[u8], now_ms| {
            let mut out = Vec::new();
            write_document(&mut out, row, now_ms);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(document(&row, 1_004), r#""content":"new","metadata":{"a":{"kind":"int","int":1}}"#);
        assert_eq!(document(&row, 1_005), r#""content":"new""#);
        let (_, kept) =
            encode_row(&SentId::default(), payload(), Some(String::new()), &[], Payloads::tagged(0)).unwrap();
        assert!(document(&kept, 0).starts_with(r#""content":"old""#));
        assert!(
            encode_row(&SentId::default(), WirePayload::default(), None, &ttls, Payloads::tagged(0))
                .unwrap()
                .1
                .is_empty()
        );
        assert_eq!(document(&[], 0), r#""content":"""#);
        let other_kind = encode_row(
            &SentId::default(),
            WirePayload(vec![("$content".into(), Value::Int(3))]),
            None,
            &[],
            Payloads::tagged(0),
        )
        .unwrap();
        assert_eq!(
            document(&other_kind.1, 0),
            r#""content":"","metadata":{"$content":{"kind":"int","int":3}}"#
        );
    }

    #[test]
    fn an_enormous_row_is_refused() {
        let payload = WirePayload(vec![("a".into(), Value::Strings(vec![String::new(); 4_000_000]))]);
        assert_eq!(
            encode_row(&SentId::default(), payload, None, &[], Payloads::tagged(0)).unwrap_err().kind,
            ErrorKind::TooLarge
        );
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

    #[test]
    fn the_id_is_a_string_where_ids_are_strings() {
        let payloads = Payloads { ids: IdKind::String, ..PLAIN };
        let text = SentId::string("a").expect("an id");
        let encoded = |id: &SentId, json: &str| {
            encode_row(id, read(json).unwrap(), None, &[], payloads).map_err(|error| error.message)
        };
        // Where a message has a number alone, the payload has the string, which is no entry of the row.
        for id in [SentId::from(0), text.number().into(), text.clone()] {
            let (number, row) = encoded(&id, r#"{"n":1,"$id":"a"}"#).expect("a row");
            let row = PayloadRow::trusted(&row);
            assert_eq!((number, row.id(), row.stored_len()), (text.number(), Some("a"), 1), "{id:?}");
        }
        let (number, row) = encoded(&text, "{}").expect("a row");
        assert_eq!((number, PayloadRow::trusted(&row).id()), (text.number(), Some("a")));
        for (id, json, reason) in [
            (
                7.into(),
                r#"{"$id":"a"}"#,
                "send only one of them. If the id of the message is an integer, send 0 or",
            ),
            (SentId::string("b").expect("an id"), r#"{"$id":"a"}"#, "the id of the point is \"b\""),
            (0.into(), r#"{"$id":7}"#, "payload key \"$id\": the id of a point must be a string"),
            (0.into(), r#"{"$id":""}"#, "must have 1 to 512 bytes"),
            (7.into(), "{}", "send the string of the point under the payload key \"$id\""),
            (
                SentId::integer(7),
                "{}",
                "field \"id\": the ids of the collection are strings, found an integer",
            ),
            (SentId::default(), r#"{"$id":"a"}"#, "send the id as a string in quotes"),
        ] {
            let refused = encoded(&id, json).expect_err(json);
            assert!(refused.contains(reason), "{json}: {refused}");
        }
        let refused = encode_row(&text, WirePayload::default(), None, &[], PLAIN).expect_err("a string");
        assert!(refused.message.contains("invalid type: string \"a\", expected an integer"), "{refused}");
        // Where ids are numbers, the key is a key like any other.
        let (number, row) = encode_row(&7.into(), read(r#"{"$id":"a"}"#).unwrap(), None, &[], PLAIN).unwrap();
        let row = PayloadRow::trusted(&row);
        assert_eq!((number, row.id(), row.stored_len()), (7, None, 1));
    }

    #[test]
    fn answers_have_the_id_where_it_is_wanted() {
        let payloads = Payloads { ids: IdKind::String, ..PLAIN };
        let id = SentId::string("é\"").expect("an id");
        let with_text = Some("text".to_owned());
        for (row, payload, metadata) in [
            (encode_row(&id, WirePayload::default(), None, &[], payloads), "null", ""),
            (
                encode_row(&id, read(r#"{"n":1}"#).unwrap(), with_text, &[], payloads),
                r#"{"$content":"text","n":1}"#,
                r#"{"n":1}"#,
            ),
        ] {
            let (_, row) = row.expect("a row");
            for with_id in [WithId::Yes, WithId::No] {
                let (mut all, mut beside) = (Vec::new(), Vec::new());
                write_payload(&mut all, &row, with_id, 0);
                write_metadata(&mut beside, &row, with_id, 0);
                let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
                let wanted = |text: &str| match (with_id, text) {
                    (WithId::No, text) => text.to_owned(),
                    (WithId::Yes, "" | "null") => r#"{"$id":"é\""}"#.to_owned(),
                    (WithId::Yes, text) => text.replacen('{', r#"{"$id":"é\"","#, 1),
                };
                assert_eq!((text(all), text(beside)), (wanted(payload), wanted(metadata)));
            }
        }
    }

    proptest! {
        /// What is written reads back, whatever the keys and values.
        #[test]
        fn payloads_read_back(entries in prop::collection::btree_map(".{0,6}", values(), 1..6)) {
            let payload = WirePayload(entries.clone().into_iter().collect());
            let (_, row) = encode_row(&SentId::default(), payload, None, &[], Payloads::tagged(0)).unwrap();
            let mut out = Vec::new();
            write_payload(&mut out, &row, WithId::No, 0);
            let back = Payloads::tagged(0).read(&out, UnknownKeys::Refused).unwrap();
            prop_assert_eq!(back.0.into_iter().collect::<std::collections::BTreeMap<_, _>>(), entries);
        }

        /// Any object comes back as it was sent.
        #[test]
        fn any_payload_comes_back(entries in prop::collection::btree_map("\\PC{0,3}", any_json(), 1..5)) {
            let sent = serde_json::Value::Object(entries.into_iter().collect());
            let back: serde_json::Value = serde_json::from_str(&written(&sent.to_string())).unwrap();
            prop_assert_eq!(back, sent);
        }
    }
}
