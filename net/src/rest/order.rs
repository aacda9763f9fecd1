//! Scrolling in the order of payload values: `order_by`, its cursors, its pages.
//!
//! ```text
//! cursor  = base64url without padding of
//!   2 flags hash number id               one key, numbers
//!   3 flags hash text id                 one key, strings
//!   4 flags hash n:u8 n*(kind:u8 part) id
//! flags   = bit 0: descending (first key)          hash = of the keys, u16
//! kind    = 0 number, 1 datetime, 2 text; bit 7: descending, bit 6: ascending    number = f64   text = len:u16 bytes   id = u64
//! ```
//! Big-endian.

use crate::dispatch::dispatch;
use crate::http::{Reply, json_reply};
use crate::limits::{FIRST_PAGE_POINTS, PAGE_POINTS};
use crate::request::{ApiError, GetPoints, ReadOptions, ScrollOrdered};
use crate::rest::json::json_object;
use crate::rest::pages::{Pages, stream_pages};
use crate::rest::read::next_page;
use crate::rest::search::write_hit_document;
use crate::rest::value::{UnknownKeys, ValueSeed, write_json};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use nigh_engine::filter::{Predicate, unix_ms_of_rfc3339};
use nigh_engine::payload::Value;
use nigh_shard::core::{Asked, Core, OrderKey, OrderedScroll, Part, Position};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// Most keys of one order (interface).
pub const ORDER_KEYS_MAX: usize = 16;
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

const NUMBER: u8 = 0;
/// Numbers are written as such, whatever they count; tokens that tell the two apart are read as well.
const DATETIME: u8 = 1;
const TEXT: u8 = 2;
const DESCENDING: u8 = 0x80;
const ASCENDING: u8 = 0x40;

/// FNV-1a of the keys, folded.
fn hash(keys: &[OrderKey]) -> u16 {
    let mut hash = 0x811c_9dc5_u32;
    for (index, key) in keys.iter().enumerate() {
        let separator = (index > 0).then_some(0x1f);
        for byte in separator.into_iter().chain(key.key.bytes()) {
            hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }
    (hash >> 16) as u16 ^ hash as u16
}

fn version(keys: &[OrderKey]) -> u8 {
    match keys {
        [key] if key.is_string => 3,
        [_] => 2,
        _ => 4,
    }
}

fn kind(key: &OrderKey) -> u8 {
    (if key.is_string { TEXT } else { NUMBER }) | if key.desc { DESCENDING } else { ASCENDING }
}

/// Whether a cursor's kind is that of `key`. One that states no direction, as the interface has it, fits either.
fn is_kind(found: u8, key: &OrderKey) -> bool {
    let direction = found & (DESCENDING | ASCENDING);
    let of_type = match found & !(DESCENDING | ASCENDING) {
        NUMBER | DATETIME => !key.is_string,
        TEXT => key.is_string,
        _ => false,
    };
    of_type && [0, if key.desc { DESCENDING } else { ASCENDING }].contains(&direction)
}

/// The cursor that continues after `position`.
pub fn encode_cursor(keys: &[OrderKey], position: &Position) -> String {
    let mut bytes = vec![version(keys), u8::from(keys[0].desc)];
    bytes.extend_from_slice(&hash(keys).to_be_bytes());
    let several = keys.len() > 1;
    if several {
        bytes.push(keys.len() as u8);
    }
    for (key, part) in keys.iter().zip(&position.parts) {
        if several {
            bytes.push(kind(key));
        }
        match part {
            Part::Number(number) => bytes.extend_from_slice(&number.to_be_bytes()),
            Part::Text(text) => {
                bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
                bytes.extend_from_slice(text);
            }
        }
    }
    bytes.extend_from_slice(&position.id.to_be_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The position of a cursor that was issued for these keys.
///
/// # Errors
/// 400.
pub fn decode_cursor(keys: &[OrderKey], cursor: &str) -> Result<Position, ApiError> {
    let malformed = || ApiError::invalid(format!("malformed cursor {cursor:?}"));
    let other = || ApiError::invalid("the cursor was issued for another order_by, or for none");
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| malformed())?;
    let mut rest = &bytes[..];
    let mut take = |n: usize| -> Result<&[u8], ApiError> {
        let (head, tail) = rest.split_at_checked(n).ok_or_else(malformed)?;
        rest = tail;
        Ok(head)
    };
    let found = take(1)?[0];
    if !(1..=4).contains(&found) {
        return Err(malformed());
    }
    let several = keys.len() > 1;
    if found != version(keys)
        || take(1)? != [u8::from(keys[0].desc)]
        || take(2)? != hash(keys).to_be_bytes()
        || (several && usize::from(take(1)?[0]) != keys.len())
    {
        return Err(other());
    }
    let mut parts = Vec::with_capacity(keys.len());
    for key in keys {
        if several && !is_kind(take(1)?[0], key) {
            return Err(other());
        }
        parts.push(if key.is_string {
            let len = u16::from_be_bytes(take(2)?.try_into().map_err(|_| malformed())?);
            Part::Text(take(usize::from(len))?.to_vec())
        } else {
            let number = f64::from_be_bytes(take(8)?.try_into().map_err(|_| malformed())?);
            if number.is_nan() {
                return Err(malformed());
            }
            Part::Number(number)
        });
    }
    let id = u64::from_be_bytes(take(8)?.try_into().map_err(|_| malformed())?);
    if rest.is_empty() { Ok(Position { parts, id }) } else { Err(malformed()) }
}

/// `POST …/scroll` with `order_by`; the request's limit is that of the whole answer, 0 = none.
///
/// # Errors
/// 400, 404.
pub async fn scroll(core: &Rc<Core>, request: ScrollOrdered) -> Result<Reply, ApiError> {
    answer(core, request, VecDeque::new(), true).await
}

/// Documents by id, in this order, as a scroll shows them: those that are still there and match.
///
/// # Errors
/// 404.
pub async fn documents(
    core: &Rc<Core>,
    collection: String,
    filter: Option<Arc<Predicate>>,
    ids: Vec<u64>,
) -> Result<Reply, ApiError> {
    let order = OrderedScroll { filter, keys: Vec::new(), after: None, start_from: None, limit: 0 };
    let request = ScrollOrdered { collection, order, read: ReadOptions::default() };
    let found = ids.into_iter().map(|id| Position { parts: Vec::new(), id }).collect();
    answer(core, request, found, false).await
}

async fn answer(
    core: &Rc<Core>,
    request: ScrollOrdered,
    found: VecDeque<Position>,
    more: bool,
) -> Result<Reply, ApiError> {
    let left = (request.order.limit > 0).then_some(request.order.limit);
    let mut pages = OrderedPages {
        core: core.clone(),
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
    let found = pages.found.len() * size_of::<Position>();
    Ok(json_reply(StatusCode::OK, stream_pages(core, first, pages, found)?))
}

struct OrderedPages {
    core: Rc<Core>,
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
            let ordered = dispatch(&self.core, self.request.clone()).await?;
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
        let now_ms = self.core.unix_ms();
        let points = dispatch(&self.core, get).await?;
        // Those that are long may be fewer than were asked for.
        let page: Vec<Position> = self.found.drain(..points.len()).collect();
        for point in points.into_iter().flatten() {
            // Again: it may have changed since it was found.
            let filter = self.request.order.filter.as_deref();
            if !self.core.row_matches(filter, &point.row, now_ms, &mut self.asked).await? {
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
                page.last().filter(|_| more).map(|last| encode_cursor(&self.request.order.keys, last));
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
    use crate::request::ErrorKind;
    use crate::rest::json::decode;
    use proptest::prelude::*;

    fn order(json: &str) -> Result<(Vec<OrderKey>, Option<f64>), String> {
        decode::<OrderBody>(json.as_bytes()).and_then(OrderBody::into_order).map_err(|error| error.message)
    }

    /// Kinds as the interface has them, without a direction, were taken for those of another order.
    #[test]
    fn cursors_with_the_kinds_of_the_interface() {
        let number =
            |key: &str, desc| OrderKey { key: key.into(), desc, is_string: false, is_datetime: false };
        let keys =
            [number("at", true), number("n", false), OrderKey { is_string: true, ..number("t", true) }];
        let token = |kinds: [u8; 3]| {
            let mut bytes = vec![4, 1];
            bytes.extend_from_slice(&hash(&keys).to_be_bytes());
            bytes.extend_from_slice(&[3, kinds[0]]);
            bytes.extend_from_slice(&5.0_f64.to_be_bytes());
            bytes.push(kinds[1]);
            bytes.extend_from_slice(&(-1.5_f64).to_be_bytes());
            bytes.extend_from_slice(&[kinds[2], 0, 1, b'x', 0, 0, 0, 0, 0, 0, 0, 9]);
            URL_SAFE_NO_PAD.encode(bytes)
        };
        let parts = vec![Part::Number(5.0), Part::Number(-1.5), Part::Text(b"x".to_vec())];
        let position = Position { parts, id: 9 };
        for kinds in [[1, 0, 2], [0, 1, 2], [0x81, 1, 0x82], [0x80, 0x40, 0x82]] {
            assert_eq!(decode_cursor(&keys, &token(kinds)).as_ref(), Ok(&position), "{kinds:?}");
        }
        assert_eq!(encode_cursor(&keys, &position), token([0x80, 0x40, 0x82]));
        for kinds in [[2, 0, 2], [0, 0, 0], [0, 0x80, 2], [0x40, 0, 2], [3, 0, 2], [0xc0, 0, 2]] {
            let error = decode_cursor(&keys, &token(kinds)).unwrap_err();
            assert!(error.message.contains("another order_by"), "{kinds:?}: {error}");
        }
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

    fn any_key() -> impl Strategy<Value = OrderKey> {
        ("[ab]{1,2}", any::<bool>(), any::<bool>()).prop_map(|(key, desc, is_string)| OrderKey {
            key,
            desc,
            is_string,
            is_datetime: false,
        })
    }

    proptest! {
        #[test]
        fn cursors_read_back_for_their_order_alone(
            keys in prop::collection::vec(any_key(), 1..4),
            others in prop::collection::vec(any_key(), 1..4),
            numbers in prop::collection::vec(prop::num::f64::ANY, 4),
            text in prop::collection::vec(any::<u8>(), 0..40),
            id in any::<u64>(),
        ) {
            let number = |n: f64| Part::Number(if n.is_nan() { 0.0 } else { n });
            let parts = keys.iter().zip(numbers);
            let parts = parts.map(|(key, n)| if key.is_string { Part::Text(text.clone()) } else { number(n) });
            let position = Position { parts: parts.collect(), id };
            let cursor = encode_cursor(&keys, &position);
            prop_assert_eq!(decode_cursor(&keys, &cursor), Ok(position));
            let for_others = decode_cursor(&others, &cursor);
            prop_assert_eq!(for_others.is_ok(), keys == others);
            let bytes = URL_SAFE_NO_PAD.decode(&cursor).unwrap();
            for cut in 0..bytes.len() {
                let cut = URL_SAFE_NO_PAD.encode(&bytes[..cut]);
                prop_assert_eq!(decode_cursor(&keys, &cut).unwrap_err().kind, ErrorKind::Invalid);
            }
            prop_assert!(decode_cursor(&keys, "!").is_err());
        }
    }
}
