//! Changes of payloads: `…/points/{id}/payload` and what is below it for one point, `…/points/payload` and what is below it for many.
//!
//! The body of a merge or an overwrite of one point is the payload itself; one key in it is reserved for the times to live. That of many
//! points has a key for each of its parts.

use super::delete::Ids;
use crate::limits;
use crate::op::{
    ApiError, ChangePayloads, ErrorKind, VectorOp, WriteOptions, check_overwriting, compile_filter,
};
use crate::rest::parameters::{ConditionsBody, WriteParameters};
use crate::wire::filter::WireFilter;
use crate::wire::json::{IntMap, Key, UpTo, decode, decode_seed, field, field_seed, is_object, json_object};
use crate::wire::payloads::{PayloadValueSeed, Payloads, SentPayload};
use crate::wire::value::UnknownKeys;
use nigh_engine::payload::{PayloadFormat, Value};
use nigh_shard::core::PayloadChange;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use std::fmt;

/// The key of a body that holds times to live and is never a payload key.
const KEY_TTL_MS: &str = "key_ttl_ms";

/// A payload with its times to live.
#[derive(Default)]
struct PayloadBody {
    entries: Vec<(String, Value)>,
    key_ttl_ms: Vec<(String, i64)>,
}

/// Reads a payload of that format with its times to live.
struct PayloadBodySeed(PayloadFormat);

impl<'de> DeserializeSeed<'de> for PayloadBodySeed {
    type Value = PayloadBody;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PayloadBody, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for PayloadBodySeed {
    type Value = PayloadBody;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of payload values")
    }
    fn visit_none<E: de::Error>(self) -> Result<PayloadBody, E> {
        Ok(PayloadBody::default())
    }
    fn visit_unit<E: de::Error>(self) -> Result<PayloadBody, E> {
        Ok(PayloadBody::default())
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<PayloadBody, D::Error> {
        deserializer.deserialize_map(self)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PayloadBody, A::Error> {
        let seed = PayloadValueSeed { format: self.0, unknown: UnknownKeys::Ignored };
        let mut body = PayloadBody::default();
        while let Some(Key(key)) = map.next_key()? {
            if key == KEY_TTL_MS {
                if let Some(IntMap(ttls)) = field(&mut map, &key)? {
                    body.key_ttl_ms = ttls;
                }
                continue;
            }
            let value = field_seed(&mut map, &key, seed)?;
            body.entries.push((key.into_owned(), value));
        }
        Ok(body)
    }
}

json_object! {
    /// Body of `…/payload/delete`.
    pub struct KeysBody {
        "keys" => keys: UpTo<String, { limits::PAYLOAD_KEYS_MAX }>,
        "write_consistency_factor" => write_consistency_factor: i64,
        "wait" => wait: bool,
        "expected_version" => expected_version: u64,
    }
}

json_object! {
    /// Body of `…/points/payload` and `…/points/payload/overwrite`.
    pub struct SetManyBody {
        "filter" => filter: WireFilter,
        "ids" => ids: Ids,
        "payload" => payload: SentPayload,
        "key_ttl_ms" => key_ttl_ms: IntMap,
        "write_consistency_factor" => write_consistency_factor: i64,
        "wait" => wait: bool,
    }
}

json_object! {
    /// Body of `…/points/payload/delete`.
    pub struct DeleteKeysOfManyBody {
        "filter" => filter: WireFilter,
        "ids" => ids: Ids,
        "keys" => keys: UpTo<String, { limits::PAYLOAD_KEYS_MAX }>,
        "write_consistency_factor" => write_consistency_factor: i64,
        "wait" => wait: bool,
    }
}

json_object! {
    /// Body of `…/points/payload/clear`.
    pub struct ClearManyBody {
        "filter" => filter: WireFilter,
        "ids" => ids: Ids,
        "write_consistency_factor" => write_consistency_factor: i64,
        "wait" => wait: bool,
    }
}

/// What a body asks for that changes the payloads of many points; the query string states `write`.
///
/// # Errors
/// 400.
pub fn decode_changes(
    op: VectorOp,
    collection: String,
    body: &[u8],
    write: WriteParameters,
    payloads: Payloads,
) -> Result<ChangePayloads, ApiError> {
    /// The parts that all these bodies have.
    macro_rules! request {
        ($body:ident, $change:expr) => {
            ChangePayloads {
                collection,
                filter: compile_filter($body.filter.map(|filter| filter.0))?,
                ids: $body.ids.map(|ids| ids.0),
                change: $change,
                write: write.with_body(WriteParameters {
                    write_consistency_factor: $body.write_consistency_factor,
                    wait: $body.wait,
                    expected_version: None,
                })?,
            }
        };
    }
    Ok(match op {
        VectorOp::SetPayloadByFilter | VectorOp::OverwritePayloadByFilter => {
            let body: SetManyBody = decode(body)?;
            if op == VectorOp::OverwritePayloadByFilter {
                check_overwriting(body.payload.is_some())?;
            }
            let entries = SentPayload::read_in_body(body.payload, "payload", payloads)?.0;
            let key_ttl_ms = body.key_ttl_ms.unwrap_or_default().0;
            let change = match op {
                VectorOp::SetPayloadByFilter => PayloadChange::Merge { entries, key_ttl_ms },
                _ => PayloadChange::Overwrite { entries, key_ttl_ms },
            };
            request!(body, change)
        }
        VectorOp::DeletePayloadKeysByFilter => {
            let body: DeleteKeysOfManyBody = decode(body)?;
            let change = PayloadChange::DeleteKeys(body.keys.unwrap_or_default().0);
            request!(body, change)
        }
        VectorOp::ClearPayloadByFilter => {
            let body: ClearManyBody = decode(body)?;
            request!(body, PayloadChange::Clear)
        }
        _ => return Err(ApiError::new(ErrorKind::Internal, format!("{op:?} changes no payloads"))),
    })
}

/// The change a body asks for, and on what conditions; the query string states `write`.
///
/// # Errors
/// 400.
pub fn decode_change(
    op: VectorOp,
    body: &[u8],
    write: WriteParameters,
    format: PayloadFormat,
) -> Result<(PayloadChange, WriteOptions), ApiError> {
    let mut stated = WriteParameters::default();
    let payload = || decode_seed(body, PayloadBodySeed(format));
    let change = match op {
        VectorOp::SetPayload => {
            let PayloadBody { entries, key_ttl_ms } = payload()?;
            PayloadChange::Merge { entries, key_ttl_ms }
        }
        VectorOp::OverwritePayload => {
            let PayloadBody { entries, key_ttl_ms } = payload()?;
            PayloadChange::Overwrite { entries, key_ttl_ms }
        }
        VectorOp::DeletePayloadKeys => {
            let body: KeysBody = decode(body)?;
            stated = WriteParameters {
                write_consistency_factor: body.write_consistency_factor,
                wait: body.wait,
                expected_version: body.expected_version,
            };
            PayloadChange::DeleteKeys(body.keys.unwrap_or_default().0)
        }
        VectorOp::ClearPayload => {
            // The interface ignores this body. An object in it is meant, and may hold a condition.
            if is_object(body) {
                stated = decode::<ConditionsBody>(body)?.parameters();
            }
            PayloadChange::Clear
        }
        _ => return Err(ApiError::new(ErrorKind::Internal, format!("{op:?} changes no payload"))),
    };
    Ok((change, write.with_body(stated)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Operation;

    fn change(op: VectorOp, body: &str) -> Result<PayloadChange, String> {
        let changed = decode_change(op, body.as_bytes(), WriteParameters::default(), PayloadFormat::Tagged);
        changed.map(|(change, _)| change).map_err(|error| error.message)
    }

    #[test]
    fn bodies_are_payloads() {
        let body = r#"{"a":{"kind":"int","int":1,"x":2},"key_ttl_ms":{"a":5,"b":null},"Key_TTL_ms":"text","n":null,"":true}"#;
        let entries = vec![
            ("a".to_owned(), Value::Int(1)),
            ("Key_TTL_ms".to_owned(), Value::String("text".into())),
            ("n".to_owned(), Value::None),
            (String::new(), Value::Bool(true)),
        ];
        let key_ttl_ms = vec![("a".to_owned(), 5)];
        let merge = PayloadChange::Merge { entries: entries.clone(), key_ttl_ms: key_ttl_ms.clone() };
        assert_eq!(change(VectorOp::SetPayload, body), Ok(merge));
        assert_eq!(
            change(VectorOp::OverwritePayload, body),
            Ok(PayloadChange::Overwrite { entries, key_ttl_ms })
        );
        let nothing = PayloadChange::Merge { entries: Vec::new(), key_ttl_ms: Vec::new() };
        for body in ["{}", "null", r#"{"key_ttl_ms":null}"#, r#"{"key_ttl_ms":{}}"#] {
            assert_eq!(change(VectorOp::SetPayload, body), Ok(nothing.clone()), "{body}");
        }
        let keys = PayloadChange::DeleteKeys(vec!["a".into(), "$content".into()]);
        assert_eq!(change(VectorOp::DeletePayloadKeys, r#"{"keys":["a","$content"]}"#), Ok(keys));
        assert_eq!(change(VectorOp::DeletePayloadKeys, "{}"), Ok(PayloadChange::DeleteKeys(Vec::new())));
        assert_eq!(change(VectorOp::ClearPayload, "whatever"), Ok(PayloadChange::Clear));
    }

    #[test]
    fn changes_of_many() {
        let decoded = |op, body: &str| {
            let (write, payloads) = (WriteParameters::default(), Payloads::tagged(1));
            let changes = decode_changes(op, "docs".into(), body.as_bytes(), write, payloads);
            let valid = changes.and_then(|changes| changes.validate().map(|()| changes));
            valid
                .map(|changes| (changes.filter.is_some(), changes.ids.map(|ids| ids.numbers), changes.change))
                .map_err(|error| error.message)
        };
        let entries = vec![("a".to_owned(), Value::Int(1))];
        let key_ttl_ms = vec![("a".to_owned(), 5)];
        let body = r#"{"ids":[3,3,1],"payload":{"a":1},"key_ttl_ms":{"a":5}}"#;
        let merge = PayloadChange::Merge { entries: entries.clone(), key_ttl_ms: key_ttl_ms.clone() };
        assert_eq!(decoded(VectorOp::SetPayloadByFilter, body), Ok((false, Some(vec![3, 3, 1]), merge)));
        let overwrite = PayloadChange::Overwrite { entries, key_ttl_ms };
        let body = r#"{"filter":{"op":"is_null","field":"n"},"payload":{"a":1},"key_ttl_ms":{"a":5}}"#;
        assert_eq!(decoded(VectorOp::OverwritePayloadByFilter, body), Ok((true, None, overwrite)));
        let keys = PayloadChange::DeleteKeys(vec!["a".into()]);
        let body = r#"{"ids":[],"keys":["a"]}"#;
        assert_eq!(decoded(VectorOp::DeletePayloadKeysByFilter, body), Ok((false, Some(vec![]), keys)));
        let cleared = decoded(VectorOp::ClearPayloadByFilter, r#"{"ids":[7]}"#);
        assert_eq!(cleared, Ok((false, Some(vec![7]), PayloadChange::Clear)));
        for (body, fragment) in [
            ("{}", "needs a filter or ids"),
            (r#"{"filter":{}}"#, "needs a filter or ids"),
            (r#"{"filter":{"op":"and","and":[]}}"#, "matches every point"),
            (r#"{"ids":[1],"filter":{"op":"is_null","field":"n"}}"#, "filter and ids are both set"),
            (r#"{"ids":[null]}"#, "field \"ids\""),
            (r#"{"ids":[1],"keys":["a"]}"#, "unknown field \"keys\""),
        ] {
            let refused = decoded(VectorOp::ClearPayloadByFilter, body).expect_err(body);
            assert!(refused.contains(fragment), "{body}: {refused}");
        }
        let long = decoded(VectorOp::SetPayloadByFilter, r#"{"ids":[1],"key_ttl_ms":{"a":9223372036855}}"#);
        assert!(long.unwrap_err().contains("out of range"));
    }

    #[test]
    fn conditions_of_bodies_count() {
        let expected = |op, body: &str, version| {
            let write = WriteParameters { expected_version: version, ..WriteParameters::default() };
            decode_change(op, body.as_bytes(), write, PayloadFormat::Tagged)
                .map(|(_, write)| write.expected_version)
        };
        let keys = r#"{"keys":["a"],"expected_version":3}"#;
        for (op, body) in
            [(VectorOp::DeletePayloadKeys, keys), (VectorOp::ClearPayload, r#" {"expected_version":3}"#)]
        {
            assert_eq!(expected(op, body, None).unwrap(), Some(3), "{body}");
            assert_eq!(expected(op, body, Some(3)).unwrap(), Some(3), "{body}");
            assert!(expected(op, body, Some(4)).unwrap_err().message.contains("state it once"), "{body}");
        }
        // A payload has no place for options: this is a key of that name.
        assert_eq!(expected(VectorOp::SetPayload, r#"{"expected_version":3}"#, None).unwrap(), None);
        for body in ["", "null", "[1]", "{}"] {
            assert_eq!(expected(VectorOp::ClearPayload, body, None).unwrap(), None, "{body}");
        }
        let misspelt = r#"{"expected_verison":3}"#;
        assert!(
            expected(VectorOp::ClearPayload, misspelt, None).unwrap_err().message.contains("unknown field")
        );
    }

    #[test]
    fn refusals_name_the_field() {
        for (op, body, fragment) in [
            (VectorOp::SetPayload, "", "empty"),
            (VectorOp::SetPayload, "[]", "an object of payload values"),
            (VectorOp::SetPayload, r#"{"a":{"kind":"blob"}}"#, "field \"a\""),
            (VectorOp::OverwritePayload, r#"{"a":{}}"#, "field \"a\""),
            (VectorOp::OverwritePayload, r#"{"key_ttl_ms":{"a":1.5}}"#, "field \"key_ttl_ms\""),
            (VectorOp::OverwritePayload, r#"{"key_ttl_ms":7}"#, "field \"key_ttl_ms\""),
            (VectorOp::DeletePayloadKeys, r#"{"keys":[1]}"#, "field \"keys\""),
            (VectorOp::DeletePayloadKeys, r#"{"key":[]}"#, "unknown field \"key\""),
        ] {
            let message = change(op, body).expect_err(body);
            assert!(message.starts_with("invalid JSON body: ") && message.contains(fragment), "{message}");
        }
    }
}
