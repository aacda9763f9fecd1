//! Parts of messages that the methods of all families share.

use super::request::Request;
use crate::op::{
    ApiError, ChangePayload, DeletePoint, DeletePoints, GetPoints, ReadOptions, Scroll, ScrollOrdered,
    ScrollPoints, SearchOptions, SentIds, WriteOptions, ZeroAlpha, fusion_method, text_source,
};
use crate::wire::cursors;
use crate::wire::embedded::{filter_of, payload_of};
use crate::wire::order::{key_of, order_of, refuse};
use crate::wire::payloads::Decoding;
use crate::wire::proto::messages::*;
use crate::wire::proto::{self, Bounded};
use crate::wire::search_options::options_of;
use nigh_engine::filter::{Predicate, unix_ms_of_rfc3339};
use nigh_engine::query::{Method, Source};
use nigh_engine::quoted::quoted;
use nigh_shard::core::{OrderKey, OrderedScroll, PayloadChange};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The read options of a message.
macro_rules! read_options {
    ($message:ident) => {
        $crate::grpc::parts::read_options_of(
            $message.read_consistency,
            $message.on_partition_unavailable,
            $message.max_staleness,
        )?
    };
}

/// The conditions of a message that writes one point.
macro_rules! write_options {
    ($message:ident) => {
        $crate::op::WriteOptions {
            write_consistency_factor: $message.write_consistency_factor.into(),
            expected_version: $message.has_expected_version.then_some($message.expected_version),
        }
    };
}
pub(super) use {read_options, write_options};

/// The refusal of a collection without a configuration.
pub(super) fn no_config() -> ApiError {
    ApiError::invalid("vector: invalid Dim: config is missing; it states dim at least")
}

/// Decodes the deletion of one point, in any family: the messages of all families have the same fields. The same holds for the functions
/// below.
pub(super) fn delete(bytes: &[u8]) -> Result<DeletePoint, ApiError> {
    let message: DeleteRequest = read(bytes)?;
    let write = write_options!(message);
    Ok(DeletePoint { collection: message.collection, id: message.id.into(), write })
}

pub(super) fn delete_by_filter(bytes: &[u8]) -> Result<DeletePoints, ApiError> {
    let message: DeleteByFilterRequest = read(bytes)?;
    Ok(DeletePoints {
        collection: message.collection,
        filter: filter(&message.filter_json)?,
        ids: Some(message.ids).filter(|ids| !ids.is_empty()).map(SentIds::from),
        write: WriteOptions {
            write_consistency_factor: message.write_consistency_factor.into(),
            expected_version: None,
        },
    })
}

pub(super) fn get(bytes: &[u8]) -> Result<GetPoints, ApiError> {
    let message: GetRequest = read(bytes)?;
    let read = read_options!(message);
    let (with_vector, with_payload) = projection(message.with_vector, message.with_payload);
    let (collection, ids) = (message.collection, vec![message.id]);
    Ok(GetPoints { collection, ids: ids.into(), with_vector, with_payload, read })
}

/// The options of a search.
pub(super) fn search_options(json: &str) -> Result<SearchOptions, ApiError> {
    options_of("options_json", json.as_bytes())
}

pub(super) fn get_batch(bytes: &[u8]) -> Result<GetPoints, ApiError> {
    let GetBatchRequest { collection, ids, with_vector, with_payload } = read(bytes)?;
    let (with_vector, with_payload) = projection(with_vector, with_payload);
    Ok(GetPoints { collection, ids: ids.into(), with_vector, with_payload, read: ReadOptions::default() })
}

/// A payload that is merged, or replaces the one that is there.
pub(super) fn set_payload(bytes: &[u8], overwrite: bool, decoding: &Decoding) -> Result<Request, ApiError> {
    let message: SetPayloadRequest = read(bytes)?;
    let (write, with_version) = (write_options!(message), message.with_version);
    let entries =
        payload_of("payload_json", message.payload_json.as_bytes(), decoding.of(&message.collection))?.0;
    let key_ttl_ms = ttls(message.key_ttl_ms);
    let change = match overwrite {
        true => PayloadChange::Overwrite { entries, key_ttl_ms },
        false => PayloadChange::Merge { entries, key_ttl_ms },
    };
    let change = ChangePayload { collection: message.collection, id: message.id.into(), change, write };
    Ok(Request::ChangePayload(change, with_version))
}

pub(super) fn delete_payload_keys(bytes: &[u8]) -> Result<Request, ApiError> {
    let message: DeletePayloadKeysRequest = read(bytes)?;
    let (write, with_version) = (write_options!(message), message.with_version);
    let change = PayloadChange::DeleteKeys(message.keys);
    let change = ChangePayload { collection: message.collection, id: message.id.into(), change, write };
    Ok(Request::ChangePayload(change, with_version))
}

pub(super) fn clear_payload(bytes: &[u8]) -> Result<Request, ApiError> {
    let message: ClearPayloadRequest = read(bytes)?;
    let (write, with_version) = (write_options!(message), message.with_version);
    let change = PayloadChange::Clear;
    let change = ChangePayload { collection: message.collection, id: message.id.into(), change, write };
    Ok(Request::ChangePayload(change, with_version))
}

/// Decodes a message, which must keep its bounds.
pub(super) fn read<M: Bounded>(bytes: &[u8]) -> Result<M, ApiError> {
    proto::decode(bytes)
}

pub(super) fn filter(json: &str) -> Result<Option<Arc<Predicate>>, ApiError> {
    filter_of("filter_json", json.as_bytes())
}

/// Whether the vectors and the payload are returned: a request that asks for neither gets both.
fn projection(with_vector: bool, with_payload: bool) -> (bool, bool) {
    if with_vector || with_payload { (with_vector, with_payload) } else { (true, true) }
}

pub(super) fn read_options_of(
    consistency: u32,
    unavailable: u32,
    max_staleness: u64,
) -> Result<ReadOptions, ApiError> {
    // What no byte holds is out of range as well, and is told as it was sent.
    let Ok(read_consistency) = u8::try_from(consistency) else {
        return Err(ApiError::invalid(format!("read_consistency must be 0, 1, 2 or 3, found {consistency}")));
    };
    let Ok(on_partition_unavailable) = u8::try_from(unavailable) else {
        return Err(ApiError::invalid(format!(
            "on_partition_unavailable must be 0 or 1, found {unavailable}"
        )));
    };
    Ok(ReadOptions { read_consistency, on_partition_unavailable, max_staleness })
}

/// How lanes are fused. A zero that nobody set is not sent.
pub(super) fn fusion(method: &str, alpha: Option<f64>, rrf_k: i32) -> Result<Method, ApiError> {
    if alpha.is_some_and(f64::is_nan) {
        return Err(ApiError::invalid("alpha: not a number"));
    }
    fusion_method(method, alpha, ZeroAlpha::Zero, Some(rrf_k.into()))
}

/// Decodes the text of a hybrid search of a collection of named spaces or of a multi-vector collection.
pub(super) fn text_of(text: Option<String>, phrase: bool, prefix: bool) -> Result<Option<Source>, ApiError> {
    match text {
        Some(text) => text_source(&text, phrase, prefix).map(Some),
        None if phrase || prefix => {
            let sent = if phrase { "phrase" } else { "prefix" };
            Err(ApiError::invalid(format!("{sent} is only allowed together with text")))
        }
        None => Ok(None),
    }
}

pub(super) fn ttls(map: BTreeMap<String, i64>) -> Vec<(String, i64)> {
    map.into_iter().collect()
}

pub(super) fn scroll(message: ScrollRequest) -> Result<Scroll, ApiError> {
    let read = read_options!(message);
    let filter = filter(&message.filter_json)?;
    let limit = usize::try_from(message.limit)
        .map_err(|_| ApiError::invalid(format!("limit must not be negative, found {}", message.limit)))?;
    let cursor = Some(message.cursor).filter(|cursor| !cursor.is_empty());
    let collection = message.collection;
    let Some(order) = message.order_by else {
        let after = cursor.as_deref().map(cursors::after_id).transpose()?;
        return Ok(Scroll::ById(ScrollPoints { collection, filter, after, limit, read }));
    };
    let (keys, start_from) = order_by(order)?;
    let after = cursor.map(|cursor| cursors::position_of(&keys, &cursor)).transpose()?;
    let order = OrderedScroll { filter, keys, after, start_from, limit };
    Ok(Scroll::Ordered(ScrollOrdered { collection, order, read }))
}

fn order_by(order: OrderBy) -> Result<(Vec<OrderKey>, Option<f64>), ApiError> {
    let key = |order: OrderBy| key_of(order.key, order.desc, order.is_datetime, order.is_string);
    let start_from = match (order.start_from, &order.start_from_datetime) {
        (Some(_), Some(_)) => return refuse("start_from and start_from_datetime are both set"),
        (Some(number), None) if number.is_nan() => return refuse("start_from is not a number"),
        (number, None) => number,
        (None, Some(text)) => match unix_ms_of_rfc3339(text) {
            Some(ms) => Some(ms as f64),
            None => {
                return refuse(format_args!("start_from_datetime {} is not an RFC 3339 time", quoted(text)));
            }
        },
    };
    let mut order = order;
    let tail = std::mem::take(&mut order.tail_keys);
    order_of(key(order)?, start_from, tail.into_iter().map(key))
}
