//! Scrolling: pages of documents by id, or in the order of payload values (`order_by`).

use crate::door::Permit;
use crate::http::{Reply, json_reply};
use crate::limits;
use crate::op::{ApiError, Scroll, ScrollOrdered, ScrollPoints, compile_filter};
use crate::paged::ScrollReader;
use crate::rest::pages::{Pages, stream_pages};
use crate::rest::parameters::{ReadParameters, read_parameters};
use crate::rest::search::write_hit_document;
use crate::wire::cursors;
use crate::wire::filter::WireFilter;
use crate::wire::json::{UpTo, decode, json_object};
use crate::wire::order::{key_of, order_of};
use crate::wire::value::{UnknownKeys, ValueSeed, write_json};
use http::StatusCode;
use nigh_engine::filter::{Predicate, unix_ms_of_rfc3339};
use nigh_engine::payload::Value;
use nigh_shard::core::{OrderKey, OrderedScroll};
use nigh_shard::family::Family;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny};
use std::sync::Arc;

json_object! {
    /// Body of `…/scroll`.
    pub struct ScrollBody {
        "filter" => filter: WireFilter,
        "limit" => limit: i64,
        "cursor" => cursor: String,
        "order_by" => order_by: OrderBody,
        "read_consistency" => read_consistency: u8,
        "on_partition_unavailable" => on_partition_unavailable: u8,
        "max_staleness" => max_staleness: u64,
    }
}

/// Decodes the body of `…/scroll`; the request asks for all pages at once.
///
/// # Errors
/// 400.
pub fn decode_scroll(collection: String, body: &[u8], read: ReadParameters) -> Result<Scroll, ApiError> {
    let body: ScrollBody = decode(body)?;
    let order = body.order_by.map(OrderBody::into_order).transpose()?;
    let cursor = body.cursor.as_deref().filter(|cursor| !cursor.is_empty());
    let filter = compile_filter(body.filter.map(|filter| filter.0))?;
    // Negative limits mean no cap as well.
    let limit = body.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0);
    let read = read.with_body(read_parameters!(body))?;
    Ok(match order {
        None => {
            let after = cursor.map(cursors::after_id).transpose()?;
            Scroll::ById(ScrollPoints { collection, filter, after, limit, read })
        }
        Some((keys, start_from)) => {
            let after = cursor.map(|cursor| cursors::position_of(&keys, cursor)).transpose()?;
            let order = OrderedScroll { filter, keys, after, start_from, limit };
            Scroll::Ordered(ScrollOrdered { collection, order, read })
        }
    })
}

json_object! {
    /// `order_by` of a scroll.
    pub struct OrderBody {
        "key" => key: String,
        "desc" => desc: bool,
        "start_from" => start_from: StartFrom,
        "is_datetime" => is_datetime: bool,
        "is_string" => is_string: bool,
        "tail_keys" => tail_keys: UpTo<TailBody, { limits::ORDER_KEYS_MAX }>,
    }
}

json_object! {
    /// A further key, sent with all that the first one has. Where pages start and which keys follow is said by that one alone.
    pub struct TailBody {
        "key" => key: String,
        "desc" => desc: bool,
        "is_datetime" => is_datetime: bool,
        "is_string" => is_string: bool,
        "start_from" => start_from: IgnoredAny,
        "tail_keys" => tail_keys: IgnoredAny,
    }
}

/// A number, or a time as text.
#[derive(Debug, PartialEq)]
pub struct StartFrom(f64);

impl<'de> Deserialize<'de> for StartFrom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bound = match ValueSeed(UnknownKeys::Refused).deserialize(deserializer)? {
            Value::Int(number) => Some(number as f64),
            Value::Float(number) => Some(number),
            Value::String(text) => unix_ms_of_rfc3339(&text).map(|ms| ms as f64),
            _ => None,
        };
        bound.map(StartFrom).ok_or_else(|| de::Error::custom("expected a number or an RFC 3339 time"))
    }
}

impl OrderBody {
    /// Keys, and where the first page starts.
    ///
    /// # Errors
    /// 400.
    pub fn into_order(self) -> Result<(Vec<OrderKey>, Option<f64>), ApiError> {
        let first = order_key(self.key, self.desc, self.is_datetime, self.is_string)?;
        let start_from = self.start_from.map(|start| start.0);
        let tail = self.tail_keys.unwrap_or_default().0.into_iter();
        order_of(
            first,
            start_from,
            tail.map(|tail| order_key(tail.key, tail.desc, tail.is_datetime, tail.is_string)),
        )
    }
}

/// A key, of which everything may be absent.
fn order_key(
    key: Option<String>,
    desc: Option<bool>,
    datetime: Option<bool>,
    string: Option<bool>,
) -> Result<OrderKey, ApiError> {
    let given = |flag: Option<bool>| flag.unwrap_or(false);
    key_of(key.unwrap_or_default(), given(desc), given(datetime), given(string))
}

/// `POST …/scroll`; the request's limit is that of the whole answer, 0 = none.
///
/// # Errors
/// 400, 404.
pub async fn scroll(permit: &Permit, request: Scroll) -> Result<Reply, ApiError> {
    answer(permit, ScrollReader::new(permit, request)).await
}

/// Documents by id, in this order, as a scroll shows them: those that are still there and match.
///
/// # Errors
/// 404.
pub async fn documents(
    permit: &Permit,
    collection: String,
    filter: Option<Arc<Predicate>>,
    ids: Vec<u64>,
) -> Result<Reply, ApiError> {
    answer(permit, ScrollReader::of_ids(permit, collection, filter, ids)).await
}

async fn answer(permit: &Permit, reader: ScrollReader) -> Result<Reply, ApiError> {
    let says_missing = permit.family() != Family::Named;
    let mut pages = ScrollPages { permit: permit.clone(), reader, says_missing, wrote_any: false };
    let mut first = b"{\"documents\":[".to_vec();
    pages.next(&mut first).await?;
    let found = pages.reader.waiting_bytes();
    Ok(json_reply(StatusCode::OK, stream_pages(permit, first, pages, found)?))
}

struct ScrollPages {
    permit: Permit,
    reader: ScrollReader,
    says_missing: bool,
    wrote_any: bool,
}

impl Pages for ScrollPages {
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let before = out.len();
        let page = self.reader.next().await?;
        let now_ms = self.permit.unix_ms();
        for point in &page {
            if self.wrote_any {
                out.push(b',');
            }
            self.wrote_any = true;
            write_hit_document(out, point.id, 0.0, &point.row, now_ms);
        }
        self.reader.wrote(out.len() - before);
        if self.reader.is_done() {
            out.push(b']');
            if self.says_missing {
                out.extend_from_slice(b",\"degraded\":false,\"missing\":[]");
            }
            out.extend_from_slice(b",\"next_cursor\":");
            write_json(out, self.reader.cursor());
            out.extend_from_slice(b"}\n");
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.reader.is_done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::json::decode;

    fn order(json: &str) -> Result<(Vec<OrderKey>, Option<f64>), String> {
        decode::<OrderBody>(json.as_bytes()).and_then(OrderBody::into_order).map_err(|error| error.message)
    }

    #[test]
    fn orders_as_sent() {
        let number =
            |key: &str, desc| OrderKey { key: key.into(), desc, is_string: false, is_datetime: false };
        assert_eq!(order(r#"{"key":"a"}"#), Ok((vec![number("a", false)], None)));
        assert_eq!(
            order(r#"{"key":"a","desc":true,"start_from":5}"#),
            Ok((vec![number("a", true)], Some(5.0)))
        );
        let day = r#"{"key":"a","is_datetime":true,"start_from":"1970-01-02T00:00:00Z"}"#;
        let time = OrderKey { is_datetime: true, ..number("a", false) };
        assert_eq!(order(day), Ok((vec![time], Some(86_400_000.0))));
        let text = OrderKey { key: "t".into(), desc: false, is_string: true, is_datetime: false };
        let tail = r#"{"key":"a","start_from":1.5,"tail_keys":[{"key":"t","is_string":true}]}"#;
        assert_eq!(order(tail), Ok((vec![number("a", false), text], None)));
        // A tail key is sent with all that a key has, but only its order counts.
        for rest in [
            r#""start_from":1"#,
            r#""start_from":[]"#,
            r#""tail_keys":[{"key":"b"}],"start_from":null"#,
            r#""tail_keys":7"#,
        ] {
            let tail =
                format!(r#"{{"key":"a","start_from":1.5,"tail_keys":[{{"key":"b","desc":true,{rest}}}]}}"#);
            assert_eq!(order(&tail), Ok((vec![number("a", false), number("b", true)], None)), "{rest}");
        }
        let many = format!(r#"{{"key":"a","tail_keys":[{}]}}"#, vec![r#"{"key":"b"}"#; 16].join(","));
        for (json, fragment) in [
            ("{}", "the key is empty"),
            (r#"{"key":""}"#, "the key is empty"),
            (r#"{"key":"a","tail_keys":[{}]}"#, "the key is empty"),
            (r#"{"key":"a","is_string":true,"is_datetime":true}"#, "is_string and is_datetime"),
            (r#"{"key":"a","is_string":true,"start_from":1}"#, "start_from"),
            (r#"{"key":"a","start_from":"yesterday"}"#, "start_from"),
            (r#"{"key":"a","start_from":[1]}"#, "start_from"),
            (r#"{"key":"a","start_from":true}"#, "start_from"),
            (r#"{"key":"a","tail_keys":[{"key":"b","start":1}]}"#, "unknown field \"start\""),
            (&many, "17 keys"),
        ] {
            let message = order(json).expect_err(json);
            assert!(message.contains(fragment), "{json}: {message}");
        }
    }
}
