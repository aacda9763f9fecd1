//! Scrolling in the order of payload values: `order_by` and its pages.

use crate::door::Permit;
use crate::http::{Reply, json_reply};
use crate::limits::ORDER_KEYS_MAX;
use crate::limits::{FIRST_PAGE_POINTS, PAGE_POINTS};
use crate::op::{ApiError, GetPoints, ReadOptions, ScrollOrdered};
use crate::rest::pages::{Pages, stream_pages};
use crate::rest::search::write_hit_document;
use crate::wire::cursors;
use crate::wire::json::json_object;
use crate::wire::paging::next_page;
use crate::wire::value::{UnknownKeys, ValueSeed, write_json};
use http::StatusCode;
use nigh_engine::filter::{Predicate, unix_ms_of_rfc3339};
use nigh_engine::payload::Value;
use nigh_shard::core::{Asked, OrderKey, OrderedScroll, Position};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer};
use std::collections::VecDeque;
use std::sync::Arc;

/// Positions asked for at a time when there is no limit.
const POSITIONS: usize = 1 << 16;

json_object! {
    /// `order_by` of a scroll.
    pub struct OrderBody {
        "key" => key: String,
        "desc" => desc: bool,
        "start_from" => start_from: StartFrom,
        "is_datetime" => is_datetime: bool,
        "is_string" => is_string: bool,
        "tail_keys" => tail_keys: Vec<TailBody>,
    }
}

json_object! {
    /// A further key.
    pub struct TailBody {
        "key" => key: String,
        "desc" => desc: bool,
        "is_datetime" => is_datetime: bool,
        "is_string" => is_string: bool,
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

fn refuse<T>(what: impl std::fmt::Display) -> Result<T, ApiError> {
    Err(ApiError::invalid(format!("order_by: {what}")))
}

fn key(
    key: Option<String>,
    desc: Option<bool>,
    datetime: Option<bool>,
    string: Option<bool>,
) -> Result<OrderKey, ApiError> {
    let (is_datetime, is_string) = (datetime.unwrap_or(false), string.unwrap_or(false));
    let key = key.unwrap_or_default();
    if key.is_empty() {
        return refuse("the key is empty");
    }
    if is_string && is_datetime {
        return refuse(format_args!("key {key:?} cannot be is_string and is_datetime"));
    }
    Ok(OrderKey { key, desc: desc.unwrap_or(false), is_string, is_datetime })
}

impl OrderBody {
    /// Keys, and where the first page starts.
    ///
    /// # Errors
    /// 400.
    pub fn into_order(self) -> Result<(Vec<OrderKey>, Option<f64>), ApiError> {
        let mut keys = vec![key(self.key, self.desc, self.is_datetime, self.is_string)?];
        if keys[0].is_string && self.start_from.is_some() {
            return refuse("start_from is not possible with is_string");
        }
        for tail in self.tail_keys.unwrap_or_default() {
            keys.push(key(tail.key, tail.desc, tail.is_datetime, tail.is_string)?);
        }
        if keys.len() > ORDER_KEYS_MAX {
            return refuse(format_args!("{} keys, at most {ORDER_KEYS_MAX}", keys.len()));
        }
        // The interface ignores it for several keys.
        let start_from = self.start_from.map(|start| start.0).filter(|_| keys.len() == 1);
        Ok((keys, start_from))
    }
}

/// `POST …/scroll` with `order_by`; the request's limit is that of the whole answer, 0 = none.
///
/// # Errors
/// 400, 404.
pub async fn scroll(permit: &Permit, request: ScrollOrdered) -> Result<Reply, ApiError> {
    answer(permit, request, VecDeque::new(), true).await
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
    let order = OrderedScroll { filter, keys: Vec::new(), after: None, start_from: None, limit: 0 };
    let request = ScrollOrdered { collection, order, read: ReadOptions::default() };
    let found = ids.into_iter().map(|id| Position { parts: Vec::new(), id }).collect();
    answer(permit, request, found, false).await
}

async fn answer(
    permit: &Permit,
    request: ScrollOrdered,
    found: VecDeque<Position>,
    more: bool,
) -> Result<Reply, ApiError> {
    let left = (request.order.limit > 0).then_some(request.order.limit);
    let mut pages = OrderedPages {
        permit: permit.clone(),
        request,
        left,
        found,
        more,
        page_points: FIRST_PAGE_POINTS,
        asked: Asked::default(),
        wrote_any: false,
        done: false,
    };
    let mut first = b"{\"documents\":[".to_vec();
    pages.next(&mut first).await?;
    let found = pages.found.iter().map(Position::bytes).sum();
    Ok(json_reply(StatusCode::OK, stream_pages(permit, first, pages, found)?))
}

struct OrderedPages {
    permit: Permit,
    /// What comes next: after the last position found.
    request: ScrollOrdered,
    left: Option<usize>,
    /// Positions found and not written yet.
    found: VecDeque<Position>,
    /// There are more after those.
    more: bool,
    page_points: usize,
    /// Time that the filter has taken in this request.
    asked: Asked,
    wrote_any: bool,
    done: bool,
}

impl Pages for OrderedPages {
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        if self.found.is_empty() && self.more {
            self.request.order.limit = self.left.unwrap_or(POSITIONS);
            let ordered = self.permit.run(self.request.clone()).await?;
            (self.found, self.more) = (ordered.positions.into(), ordered.more);
            if let Some(last) = self.found.back() {
                self.request.order.after = Some(last.clone());
            }
        }
        let page = self.found.iter().take(self.page_points);
        let get = GetPoints {
            collection: self.request.collection.clone(),
            ids: page.map(|position| position.id).collect(),
            with_vector: false,
            with_payload: true,
            read: ReadOptions::default(),
        };
        let before = out.len();
        let now_ms = self.permit.unix_ms();
        let points = self.permit.run(get).await?;
        // Those that are long may be fewer than were asked for.
        let page: Vec<Position> = self.found.drain(..points.len()).collect();
        for point in points.into_iter().flatten() {
            // Again: it may have changed since it was found.
            let filter = self.request.order.filter.as_deref();
            if !self.permit.row_matches(filter, &point.row, now_ms, &mut self.asked).await? {
                continue;
            }
            if self.wrote_any {
                out.push(b',');
            }
            self.wrote_any = true;
            write_hit_document(out, point.id, 0.0, &point.row, now_ms);
        }
        self.page_points = next_page(self.page_points, PAGE_POINTS, out.len() - before);
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(page.len());
        }
        let more = self.more || !self.found.is_empty();
        self.done = !more || self.left == Some(0);
        if self.done {
            let cursor =
                page.last().filter(|_| more).map(|last| cursors::by_value(&self.request.order.keys, last));
            out.extend_from_slice(b"],\"degraded\":false,\"missing\":[],\"next_cursor\":");
            write_json(out, &cursor.unwrap_or_default());
            out.extend_from_slice(b"}\n");
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.done
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
            (r#"{"key":"a","tail_keys":[{"key":"b","start_from":1}]}"#, "unknown field \"start_from\""),
            (&many, "17 keys"),
        ] {
            let message = order(json).expect_err(json);
            assert!(message.contains(fragment), "{json}: {message}");
        }
    }
}
