//! Decodes messages about many points, about collections as they are, and about records, which are the same in every family.

use super::parts::{filter, read, ttls};
use super::request::Request;
use crate::op::{
    ApiError, ChangeConfig, ChangePayloads, CountPoints, FacetPoints, GetCollection, OperatePoint,
    SamplePoints, SentIds, WriteOptions, check_call, check_overwriting, listed,
};
use crate::wire::config_change::decode_bare_change;
use crate::wire::embedded::{invalid, is_payload, payload_of};
use crate::wire::payloads::Decoding;
use crate::wire::proto::messages::*;
use nigh_engine::filter::Predicate;
use nigh_shard::core::PayloadChange;
use nigh_shard::family::Family;
use std::sync::Arc;

pub(super) fn info(bytes: &[u8]) -> Result<Request, ApiError> {
    Ok(Request::GetInfo(GetCollection { collection: read::<GetInfoRequest>(bytes)?.name }))
}

pub(super) fn change_config(family: Family, bytes: &[u8]) -> Result<Request, ApiError> {
    let ChangeConfigRequest { name, change_json, collection_json } = read(bytes)?;
    let change = decode_bare_change(
        family,
        ("change_json", change_json.as_bytes()),
        ("collection_json", collection_json.as_bytes()),
    )?;
    Ok(Request::ChangeConfig(ChangeConfig { collection: name, change }))
}

pub(super) fn count(bytes: &[u8]) -> Result<Request, ApiError> {
    let CountRequest { collection, filter_json } = read(bytes)?;
    Ok(Request::Count(CountPoints { collection, filter: filter(&filter_json)? }))
}

pub(super) fn facet(bytes: &[u8]) -> Result<Request, ApiError> {
    let FacetRequest { collection, key, filter_json, limit } = read(bytes)?;
    if key.is_empty() {
        return Err(invalid("key", "it is empty; it names the payload key whose values are counted"));
    }
    let (filter, limit) = (filter(&filter_json)?, limit_of(limit)?);
    Ok(Request::Facet(FacetPoints { collection, key, filter, limit }))
}

/// A sample; `seed` draws it where the message has none.
pub(super) fn sample(bytes: &[u8], seed: u64) -> Result<Request, ApiError> {
    let SampleRequest { collection, filter_json, limit, seed: sent } = read(bytes)?;
    let (filter, limit) = (filter(&filter_json)?, limit_of(limit)?);
    Ok(Request::Sample(SamplePoints { collection, filter, limit, seed: sent.unwrap_or(seed) }))
}

fn limit_of(limit: i32) -> Result<usize, ApiError> {
    listed(Some(limit.into()).filter(|limit| *limit != 0))
}

/// Points by a filter or by their ids, whose payloads are changed.
fn changed(
    collection: String,
    (filter, ids): (Option<Arc<Predicate>>, Vec<u64>),
    change: PayloadChange,
    factor: u32,
) -> Request {
    let write = WriteOptions { write_consistency_factor: factor.into(), expected_version: None };
    let ids = Some(ids).filter(|ids| !ids.is_empty());
    Request::ChangePayloads(ChangePayloads { collection, filter, ids: ids.map(SentIds::from), change, write })
}

/// A payload that is merged into many, or replaces them.
pub(super) fn set_payloads(bytes: &[u8], overwrite: bool, decoding: &Decoding) -> Result<Request, ApiError> {
    let message: SetPayloadByFilterRequest = read(bytes)?;
    if overwrite {
        check_overwriting(is_payload(message.payload_json.as_bytes()))?;
    }
    let entries =
        payload_of("payload_json", message.payload_json.as_bytes(), decoding.of(&message.collection))?.0;
    let key_ttl_ms = ttls(message.key_ttl_ms);
    let change = match overwrite {
        true => PayloadChange::Overwrite { entries, key_ttl_ms },
        false => PayloadChange::Merge { entries, key_ttl_ms },
    };
    let points = (filter(&message.filter_json)?, message.ids);
    Ok(changed(message.collection, points, change, message.write_consistency_factor))
}

pub(super) fn delete_keys_of_payloads(bytes: &[u8]) -> Result<Request, ApiError> {
    let message: DeletePayloadKeysByFilterRequest = read(bytes)?;
    let points = (filter(&message.filter_json)?, message.ids);
    let change = PayloadChange::DeleteKeys(message.keys);
    Ok(changed(message.collection, points, change, message.write_consistency_factor))
}

pub(super) fn clear_payloads(bytes: &[u8]) -> Result<Request, ApiError> {
    let message: ClearPayloadByFilterRequest = read(bytes)?;
    let points = (filter(&message.filter_json)?, message.ids);
    Ok(changed(message.collection, points, PayloadChange::Clear, message.write_consistency_factor))
}

/// A call on a record in the payload of a point.
pub(super) fn operate(bytes: &[u8]) -> Result<Request, ApiError> {
    let message: OperateRequest = read(bytes)?;
    let write = super::parts::write_options!(message);
    let OperateRequest { collection, id, key, call, .. } = message;
    check_call(&key, &call)?;
    Ok(Request::Operate(OperatePoint { collection, id: id.into(), key, call, write }))
}
