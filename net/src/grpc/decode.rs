//! Messages to the operations that REST and the binary protocol fill as well.

use super::configuration::config_of;
use super::parts::{
    clear_payload, delete, delete_by_filter, delete_payload_keys, filter, fusion, get, get_batch, no_config,
    read, read_options, scroll, search_options, set_payload, ttls, write_options,
};
use super::request::Request;
use super::{batch, inspect, multi_vector, named};
use crate::auth::key_limits::KeyLimits;
use crate::auth::registry::NewKey;
use crate::limits;
use crate::op::table::Row;
use crate::op::{
    ApiError, BatchBuilder, ChangeAliases, CreateCollection, DropCollection, ErrorKind, GetCollection,
    GroupPoints, HybridPoints, Lack, ListAliases, QueryPoints, ReadOptions, SearchPoints, TextPoints, Unmet,
    WritePoints, check_partitions, check_ttl, text_source,
};
use crate::op::{Op, PlacementOp, ProcessOp, VectorOp};
use crate::wire::embedded::{payload_of, sparse_of};
use crate::wire::payloads::{Decoding, Payloads, encode_point_row};
use crate::wire::proto::messages::*;
use crate::wire::proto::{self, UpsertBatchParts};
use crate::wire::query::query_of;
use nigh_engine::collection::WriteMode;
use nigh_engine::query::Source;
use nigh_shard::core::{AliasChange, PointFields};
use nigh_shard::family::Family;
use prost::Message;

/// A hybrid search of a message, whose other lane is given.
macro_rules! hybrid {
    ($message:ident, $other:ident) => {
        HybridPoints {
            read: read_options!($message),
            method: fusion(&$message.method, $message.alpha, $message.rrf_k)?,
            filter: filter(&$message.filter_json)?,
            collection: $message.collection,
            dense: $message.dense,
            other: $other,
            k: $message.k.into(),
            dense_k: $message.dense_k.into(),
            other_k: $message.sparse_k.into(),
            options: search_options(&$message.options_json)?,
        }
    };
}

/// A message that was looked at.
pub struct Decoded {
    /// The collection that it names; `None` when it names none, or no name that one can have.
    pub collection: Option<String>,
    /// What it asks for, or what is wrong with it, which is for those to know who may ask.
    pub request: Result<Request, ApiError>,
}

/// Decodes the message of a method.
///
/// Cost: that of its JSON and of copying its vectors; nothing is reserved beyond a small multiple of the message.
pub fn decode(row: &Row, bytes: &[u8], decoding: &Decoding) -> Decoded {
    let request = request(row, bytes, decoding);
    let collection = NamesCollection::decode(bytes).ok().map(|message| message.collection);
    let is_name = |name: &String| (1..=limits::NAME_MAX_BYTES).contains(&name.len());
    Decoded { collection: collection.filter(is_name), request }
}

/// The field that comes first in every request about a collection.
#[derive(Clone, PartialEq, Message)]
struct NamesCollection {
    #[prost(string, tag = "1")]
    collection: String,
}

fn request(row: &Row, bytes: &[u8], decoding: &Decoding) -> Result<Request, ApiError> {
    match row.op {
        Op::Process(op) => process(op, bytes),
        Op::Placement(op) => placement(op, bytes).map(Request::Unmet),
        Op::Vector(op) => vector(op, bytes, decoding),
        Op::Named(op) => named::decode(op, bytes, decoding),
        Op::MultiVector(op) => multi_vector::decode(op, bytes, decoding),
        Op::Absent | Op::Kv(_) | Op::KvQuery(_) => Err(not_here(row)),
    }
}

/// The table gives gRPC no such method.
fn not_here(row: &Row) -> ApiError {
    ApiError::new(ErrorKind::Internal, format!("{} has no message", row.name))
}

fn process(op: ProcessOp, bytes: &[u8]) -> Result<Request, ApiError> {
    Ok(match op {
        ProcessOp::Ping => read::<HealthRequest>(bytes).map(|_| Request::Health)?,
        ProcessOp::Collections => read::<ListCollectionsRequest>(bytes).map(|_| Request::ListCollections)?,
        ProcessOp::AliasCreate => {
            let CreateAliasRequest { alias, collection } = read(bytes)?;
            Request::ChangeAlias(create_alias(alias, collection)?)
        }
        ProcessOp::AliasDelete => {
            let DeleteAliasRequest { alias } = read(bytes)?;
            Request::ChangeAlias(AliasChange::Delete { alias: required(alias, "alias")? })
        }
        ProcessOp::AliasBatch => {
            let AliasBatchRequest { actions } = read(bytes)?;
            let mut changes = Vec::with_capacity(actions.len());
            for (index, action) in actions.into_iter().enumerate() {
                let AliasAction { alias, collection, delete } = action;
                let change = match delete {
                    true => required(alias, "alias").map(|alias| AliasChange::Delete { alias }),
                    false => create_alias(alias, collection),
                };
                let located = |error: ApiError| ApiError::invalid(format!("actions[{index}]: {error}"));
                changes.push(change.map_err(located)?);
            }
            Request::ChangeAliases(ChangeAliases { changes })
        }
        ProcessOp::AliasList => {
            let ListAliasesRequest { collection } = read(bytes)?;
            Request::ListAliases(ListAliases { target: Some(collection).filter(|name| !name.is_empty()) })
        }
        ProcessOp::KeysAdd => {
            let request: KeysAddRequest = read(bytes)?;
            let KeysAddRequest { requests_per_second, bytes_per_second, connections, .. } = request;
            let limits = KeyLimits { requests_per_second, bytes_per_second, connections };
            let KeysAddRequest { token, tenant, scopes, cert_cn, .. } = request;
            Request::AddKey(NewKey { token, tenant, scopes, cert_cn, limits })
        }
        ProcessOp::KeysRevoke => Request::RevokeKey(read::<KeysRevokeRequest>(bytes)?.token),
        ProcessOp::KeysList => read::<KeysListRequest>(bytes).map(|_| Request::ListKeys)?,
        ProcessOp::Ready
        | ProcessOp::Metrics
        | ProcessOp::KvMetrics
        | ProcessOp::ReplMetrics
        | ProcessOp::OpenApi
        | ProcessOp::Tasks
        | ProcessOp::Topology
        | ProcessOp::Backup
        | ProcessOp::BackupsList
        | ProcessOp::BackupsRestore
        | ProcessOp::BackupsVerify
        | ProcessOp::Envelope => {
            return Err(ApiError::new(ErrorKind::Internal, format!("{op:?} has no message")));
        }
    })
}

fn required(name: String, key: &str) -> Result<String, ApiError> {
    match name.is_empty() {
        true => Err(ApiError::invalid(format!("alias: {key} is required"))),
        false => Ok(name),
    }
}

fn create_alias(alias: String, collection: String) -> Result<AliasChange, ApiError> {
    Ok(AliasChange::Create {
        alias: required(alias, "alias")?,
        collection: required(collection, "collection")?,
    })
}

fn placement(op: PlacementOp, bytes: &[u8]) -> Result<Unmet, ApiError> {
    let (collection, lack) = match op {
        PlacementOp::Resplit => {
            let ResplitRequest { name, new_partitions } = read(bytes)?;
            check_partitions(Some(new_partitions.into()))?;
            (name, Lack::Partitions)
        }
        PlacementOp::Reshard => {
            let ReshardRequest { name, new_partitions } = read(bytes)?;
            check_partitions(Some(new_partitions.into()))?;
            (name, Lack::Partitions)
        }
        PlacementOp::ResplitCleanup => (read::<ResplitCleanupRequest>(bytes)?.name, Lack::Partitions),
        PlacementOp::ReshardAbort => (read::<ReshardAbortRequest>(bytes)?.name, Lack::Partitions),
        // They have no method.
        PlacementOp::Evict | PlacementOp::Restore => (String::new(), Lack::ObjectStore),
    };
    Ok(Unmet { collection, lack })
}

fn vector(op: VectorOp, bytes: &[u8], decoding: &Decoding) -> Result<Request, ApiError> {
    Ok(match op {
        VectorOp::CreateCollection => {
            let CreateCollectionRequest { name, config } = read(bytes)?;
            let config = config.ok_or_else(no_config)?;
            Request::Create(CreateCollection { collection: name, config: config_of(&config)?.into() })
        }
        VectorOp::DropCollection => {
            let collection = read::<DropCollectionRequest>(bytes)?.name;
            Request::Drop(DropCollection { collection, family: None })
        }
        VectorOp::GetConfig => {
            let message: GetConfigRequest = read(bytes)?;
            let options: ReadOptions = read_options!(message);
            options.validate()?;
            Request::GetConfig(GetCollection { collection: message.name })
        }
        VectorOp::ChangeConfig => inspect::change_config(Family::Dense, bytes)?,
        VectorOp::Write => upsert(read(bytes)?, decoding)?,
        VectorOp::WriteBatch => upsert_batch(read(bytes)?, decoding)?,
        VectorOp::Delete => Request::Delete(delete(bytes)?),
        VectorOp::DeleteByFilter => Request::DeleteByFilter(delete_by_filter(bytes)?),
        VectorOp::Get => Request::Get(get(bytes)?),
        VectorOp::GetBatch => Request::GetBatch(get_batch(bytes)?),
        VectorOp::SetPayload => set_payload(bytes, false, decoding)?,
        VectorOp::OverwritePayload => set_payload(bytes, true, decoding)?,
        VectorOp::DeletePayloadKeys => delete_payload_keys(bytes)?,
        VectorOp::ClearPayload => clear_payload(bytes)?,
        VectorOp::Search => Request::Search(search(read(bytes)?, false)?),
        VectorOp::SearchBatch => batch::decode(Family::Dense, bytes)?,
        VectorOp::SearchDocs => Request::SearchDocs(search(read(bytes)?, true)?),
        VectorOp::SearchGroups => {
            let message: SearchGroupsRequest = read(bytes)?;
            Request::SearchGroups(GroupPoints {
                read: read_options!(message),
                filter: filter(&message.filter_json)?,
                collection: message.collection,
                vector: message.query,
                k: message.k.into(),
                group_by: message.group_by,
                group_size: message.group_size.into(),
                fetch_k: message.fetch_k.into(),
                options: search_options(&message.options_json)?,
            })
        }
        VectorOp::HybridSearch => {
            let message: HybridRequest = read(bytes)?;
            let other = Source::Sparse(sparse_of(message.sparse_indices, message.sparse_values)?);
            Request::Hybrid(hybrid!(message, other))
        }
        VectorOp::HybridText => {
            let message: HybridTextRequest = read(bytes)?;
            let other = text_source(&message.text, message.phrase, message.prefix)?;
            Request::Hybrid(hybrid!(message, other))
        }
        VectorOp::SearchText => {
            let message: TextSearchRequest = read(bytes)?;
            Request::SearchText(TextPoints {
                read: read_options!(message),
                text: text_source(&message.text, message.phrase, message.prefix)?,
                filter: filter(&message.filter_json)?,
                collection: message.collection,
                k: message.k.into(),
                options: search_options(&message.options_json)?,
            })
        }
        VectorOp::Query => {
            let message: VectorQueryRequest = read(bytes)?;
            let (read, options) = (read_options!(message), search_options(&message.options_json)?);
            let spec =
                message.spec.ok_or_else(|| ApiError::invalid("spec is required: that of the query"))?;
            Request::Query(QueryPoints { collection: message.collection, read, options, ..query_of(spec)? })
        }
        VectorOp::Scroll => Request::Scroll(scroll(read(bytes)?)?),
        VectorOp::Info => inspect::info(bytes)?,
        VectorOp::SetPayloadByFilter => inspect::set_payloads(bytes, false, decoding)?,
        VectorOp::OverwritePayloadByFilter => inspect::set_payloads(bytes, true, decoding)?,
        VectorOp::DeletePayloadKeysByFilter => inspect::delete_keys_of_payloads(bytes)?,
        VectorOp::ClearPayloadByFilter => inspect::clear_payloads(bytes)?,
        VectorOp::Count => inspect::count(bytes)?,
        VectorOp::Facet => inspect::facet(bytes)?,
        VectorOp::Sample => inspect::sample(bytes, decoding.now_ms)?,
        VectorOp::Operate => inspect::operate(bytes)?,
        VectorOp::Insert
        | VectorOp::Upsert
        | VectorOp::InsertIfAbsent
        | VectorOp::Exists
        | VectorOp::SearchMmr
        | VectorOp::BulkStage
        | VectorOp::BulkStagePayload
        | VectorOp::BulkBuild => {
            return Err(ApiError::new(ErrorKind::Internal, format!("{op:?} has no message")));
        }
    })
}

fn search(message: SearchRequest, with_rows: bool) -> Result<SearchPoints, ApiError> {
    Ok(SearchPoints {
        read: read_options!(message),
        filter: filter(&message.filter_json)?,
        collection: message.collection,
        vector: message.query,
        k: message.k.into(),
        with_rows,
        options: search_options(&message.options_json)?,
    })
}

fn upsert(message: UpsertRequest, decoding: &Decoding) -> Result<Request, ApiError> {
    let write = write_options!(message);
    write.validate()?;
    let mode = if message.upsert { WriteMode::Upsert } else { WriteMode::Insert };
    let (collection, with_version) = (message.collection, message.with_version);
    let point = BatchPoint {
        id: message.id,
        vector: message.vector,
        content: message.content,
        ttl_ms: message.ttl_ms,
        metadata_json: message.metadata_json,
        sparse_indices: message.sparse_indices,
        sparse_values: message.sparse_values,
        expected_version: message.expected_version,
        has_expected_version: message.has_expected_version,
        key_ttl_ms: message.key_ttl_ms,
    };
    let mut batch = BatchBuilder::new();
    push_point(&mut batch, point, decoding.of(&collection))?;
    Ok(Request::Upsert(WritePoints { collection, batch: batch.finish(mode) }, with_version))
}

fn upsert_batch(message: UpsertBatchParts, decoding: &Decoding) -> Result<Request, ApiError> {
    let payloads = decoding.of(&message.collection);
    let mode = if message.upsert { WriteMode::Upsert } else { WriteMode::Insert };
    let mut batch = BatchBuilder::new();
    for (index, bytes) in message.points.into_iter().enumerate() {
        let point: BatchPoint = proto::decode_part::<UpsertBatchParts, _>(&bytes)
            .map_err(|error| ApiError::invalid(format!("points[{index}]: {error}")))?;
        let id = point.id;
        push_point(&mut batch, point, payloads).map_err(|error| ApiError {
            message: format!("points[{index}] with id {id}: {error}"),
            ..error
        })?;
    }
    let write = WritePoints { collection: message.collection, batch: batch.finish(mode) };
    Ok(Request::UpsertBatch(write, message.with_version))
}

fn push_point(batch: &mut BatchBuilder, point: BatchPoint, payloads: Payloads) -> Result<(), ApiError> {
    check_ttl("ttl_ms", point.ttl_ms)?;
    let sparse = sparse_of(point.sparse_indices, point.sparse_values)?;
    let payload = payload_of("metadata_json", point.metadata_json.as_bytes(), payloads)?;
    let key_ttl_ms = ttls(point.key_ttl_ms);
    let (id, row) =
        encode_point_row(&point.id.into(), payload, Some(point.content), sparse, &key_ttl_ms, payloads)?;
    let expected_version = point.has_expected_version.then_some(point.expected_version);
    let fields = PointFields { id, row, ttl_ms: point.ttl_ms, expected_version };
    batch.push(point.vector, fields);
    Ok(())
}
