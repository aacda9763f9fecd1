//! Messages to the operations that REST and the binary protocol fill as well.

use super::configuration::config_of;
use crate::limits;
use crate::op::table::{Op, PlacementOp, ProcessOp, Row, VectorOp};
use crate::op::{
    ApiError, BatchBuilder, ChangeAliases, ChangePayload, CreateCollection, DeletePoint, DeletePoints,
    DropCollection, ErrorKind, GetCollection, GetPoints, GroupPoints, HybridPoints, Lack, ListAliases,
    QueryPoints, ReadOptions, Scroll, ScrollOrdered, ScrollPoints, SearchPoints, TextPoints, Unmet,
    WriteOptions, WritePoints, ZeroAlpha, check_key_field, check_partitions, check_ttl, fusion_method,
    text_source,
};
use crate::wire::cursors;
use crate::wire::embedded::{filter_of, payload_of, sparse_of};
use crate::wire::order::{key_of, order_of, refuse};
use crate::wire::proto::messages::*;
use crate::wire::proto::{self, Bounded, UpsertBatchParts};
use crate::wire::query::query_of;
use crate::wire::value::encode_point_row;
use nigh_engine::collection::WriteMode;
use nigh_engine::filter::{Predicate, unix_ms_of_rfc3339};
use nigh_engine::query::{Method, Source};
use nigh_engine::quoted::quoted;
use nigh_shard::core::{AliasChange, OrderKey, OrderedScroll, PayloadChange, PointFields};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The read options of a message.
macro_rules! read_options {
    ($message:ident) => {
        read_options($message.read_consistency, $message.on_partition_unavailable, $message.max_staleness)?
    };
}

/// The conditions of a message that writes one point.
macro_rules! write_options {
    ($message:ident) => {
        WriteOptions {
            write_consistency_factor: $message.write_consistency_factor.into(),
            expected_version: $message.has_expected_version.then_some($message.expected_version),
        }
    };
}

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
            explain: false,
        }
    };
}

/// What a call asks for, and by its kind the message it is answered with.
pub enum Request {
    /// `HealthResponse`.
    Health,
    /// `CreateCollectionResponse`.
    Create(CreateCollection),
    /// `DropCollectionResponse`, also when it is absent.
    Drop(DropCollection),
    /// `GetConfigResponse`.
    GetConfig(GetCollection),
    /// `ListCollectionsResponse`.
    ListCollections,
    /// `UpsertResponse`, or the refusal of a version that is another.
    Upsert(WritePoints),
    /// `UpsertBatchResponse`.
    UpsertBatch(WritePoints),
    /// `DeleteResponse`.
    Delete(DeletePoint),
    /// `DeleteByFilterResponse`.
    DeleteByFilter(DeletePoints),
    /// `GetResponse`, or that there is none.
    Get(GetPoints),
    /// `GetBatchResponse`.
    GetBatch(GetPoints),
    /// `PayloadResponse`.
    ChangePayload(ChangePayload),
    /// `SearchResponse`.
    Search(SearchPoints),
    /// `SearchBatchResponse`, one for each.
    SearchBatch(SearchBatch),
    /// `SearchDocsResponse`.
    SearchDocs(SearchPoints),
    /// `SearchGroupsResponse`.
    SearchGroups(GroupPoints),
    /// `SearchResponse`.
    Hybrid(HybridPoints),
    /// `SearchDocsResponse`.
    SearchText(TextPoints),
    /// `SearchResponse`.
    Query(QueryPoints),
    /// `ScrollResponse`, one or many.
    Scroll(Scroll),
    /// `CreateAliasResponse` or `DeleteAliasResponse`, which hold what was sent.
    ChangeAlias(AliasChange),
    /// `AliasBatchResponse`.
    ChangeAliases(ChangeAliases),
    /// `ListAliasesResponse`.
    ListAliases(ListAliases),
    /// What the node lacks.
    Unmet(Unmet),
}

impl Request {
    /// Whether it changes data. Such a request runs to its end, whoever waits for it.
    pub fn mutates(&self) -> bool {
        matches!(
            self,
            Request::Create(_)
                | Request::Drop(_)
                | Request::Upsert(_)
                | Request::UpsertBatch(_)
                | Request::Delete(_)
                | Request::DeleteByFilter(_)
                | Request::ChangePayload(_)
                | Request::ChangeAlias(_)
                | Request::ChangeAliases(_)
        )
    }

    /// Whether it asks for what is nearest, by any lane.
    pub fn is_search(&self) -> bool {
        matches!(
            self,
            Request::Search(_)
                | Request::SearchDocs(_)
                | Request::SearchGroups(_)
                | Request::Hybrid(_)
                | Request::SearchText(_)
                | Request::Query(_)
        )
    }
}

/// Many searches of one collection. Their filters are compiled when it is their turn: all of them at once would take a multiple of the message.
pub struct SearchBatch {
    /// Name as sent.
    pub collection: String,
    /// The searches, in order.
    pub searches: Vec<BatchSearch>,
    /// Whether documents are asked for.
    pub with_rows: bool,
    /// Consistency.
    pub read: ReadOptions,
}

/// A message that was looked at.
pub struct Decoded {
    /// The collection that it names; `None` when it names none, or no name that one can have.
    pub collection: Option<String>,
    /// What it asks for, or what is wrong with it, which is for those to know who may ask.
    pub request: Result<Request, ApiError>,
}

/// Decodes the message of a method; deadlines in payloads count from `now_ms`.
///
/// Cost: that of its JSON and of copying its vectors; nothing is reserved beyond a small multiple of the message.
pub fn decode(row: &Row, bytes: &[u8], now_ms: u64) -> Decoded {
    let request = request(row, bytes, now_ms);
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

fn request(row: &Row, bytes: &[u8], now_ms: u64) -> Result<Request, ApiError> {
    match row.op {
        Op::Process(op) => process(op, bytes),
        Op::Placement(op) => placement(op, bytes).map(Request::Unmet),
        Op::Vector(op) => vector(op, bytes, now_ms),
        Op::Named(_) | Op::Absent => Err(absent(row)),
        Op::Kv(_) | Op::KvQuery(_) => Err(not_here(row)),
    }
}

/// The refusal of a family that this build lacks.
fn absent(row: &Row) -> ApiError {
    let what = match row.name.starts_with("vector_mv_") {
        true => "collections with several vectors per point",
        false => "collections with named vectors",
    };
    ApiError::new(ErrorKind::Unsupported, format!("this server does not offer {what}"))
}

/// The refusal of a collection without a configuration.
fn no_config() -> ApiError {
    ApiError::invalid("vector: invalid Dim: config is missing; it states dim at least")
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
            Request::ChangeAlias(AliasChange::Delete { alias: named(alias, "alias")? })
        }
        ProcessOp::AliasBatch => {
            let AliasBatchRequest { actions } = read(bytes)?;
            let mut changes = Vec::with_capacity(actions.len());
            for (index, action) in actions.into_iter().enumerate() {
                let AliasAction { alias, collection, delete } = action;
                let change = match delete {
                    true => named(alias, "alias").map(|alias| AliasChange::Delete { alias }),
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
            let KeysAddRequest { token, tenant, .. } = read(bytes)?;
            check_key_field(&token, "token")?;
            check_key_field(&tenant, "tenant")?;
            keys()
        }
        ProcessOp::KeysRevoke => {
            check_key_field(&read::<KeysRevokeRequest>(bytes)?.token, "token")?;
            keys()
        }
        ProcessOp::KeysList => read::<KeysListRequest>(bytes).map(|_| keys())?,
        ProcessOp::Ready
        | ProcessOp::Metrics
        | ProcessOp::KvMetrics
        | ProcessOp::ReplMetrics
        | ProcessOp::OpenApi
        | ProcessOp::Tasks
        | ProcessOp::Backup
        | ProcessOp::BackupsList
        | ProcessOp::Envelope => {
            return Err(ApiError::new(ErrorKind::Internal, format!("{op:?} has no message")));
        }
    })
}

fn keys() -> Request {
    Request::Unmet(Unmet { collection: String::new(), lack: Lack::KeyRegistry })
}

fn named(name: String, key: &str) -> Result<String, ApiError> {
    match name.is_empty() {
        true => Err(ApiError::invalid(format!("alias: {key} is required"))),
        false => Ok(name),
    }
}

fn create_alias(alias: String, collection: String) -> Result<AliasChange, ApiError> {
    Ok(AliasChange::Create { alias: named(alias, "alias")?, collection: named(collection, "collection")? })
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

fn vector(op: VectorOp, bytes: &[u8], now_ms: u64) -> Result<Request, ApiError> {
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
        VectorOp::Write => Request::Upsert(upsert(read(bytes)?, now_ms)?),
        VectorOp::WriteBatch => Request::UpsertBatch(upsert_batch(read(bytes)?, now_ms)?),
        VectorOp::Delete => {
            let message: DeleteRequest = read(bytes)?;
            let write = write_options!(message);
            Request::Delete(DeletePoint { collection: message.collection, id: message.id, write })
        }
        VectorOp::DeleteByFilter => {
            let message: DeleteByFilterRequest = read(bytes)?;
            Request::DeleteByFilter(DeletePoints {
                collection: message.collection,
                filter: filter(&message.filter_json)?,
                ids: Some(message.ids).filter(|ids| !ids.is_empty()),
                write: WriteOptions {
                    write_consistency_factor: message.write_consistency_factor.into(),
                    expected_version: None,
                },
            })
        }
        VectorOp::Get => {
            let message: GetRequest = read(bytes)?;
            let read = read_options!(message);
            let (with_vector, with_payload) = projection(message.with_vector, message.with_payload);
            let (collection, ids) = (message.collection, vec![message.id]);
            Request::Get(GetPoints { collection, ids, with_vector, with_payload, read })
        }
        VectorOp::GetBatch => {
            let GetBatchRequest { collection, ids, with_vector, with_payload } = read(bytes)?;
            let (with_vector, with_payload) = projection(with_vector, with_payload);
            let read = ReadOptions::default();
            Request::GetBatch(GetPoints { collection, ids, with_vector, with_payload, read })
        }
        VectorOp::SetPayload | VectorOp::OverwritePayload => {
            let message: SetPayloadRequest = read(bytes)?;
            let write = write_options!(message);
            let entries = payload_of("payload_json", message.payload_json.as_bytes())?.0;
            let key_ttl_ms = ttls(message.key_ttl_ms);
            let change = match op {
                VectorOp::OverwritePayload => PayloadChange::Overwrite { entries, key_ttl_ms },
                _ => PayloadChange::Merge { entries, key_ttl_ms },
            };
            let (collection, id) = (message.collection, message.id);
            Request::ChangePayload(ChangePayload { collection, id, change, write })
        }
        VectorOp::DeletePayloadKeys => {
            let message: DeletePayloadKeysRequest = read(bytes)?;
            let write = write_options!(message);
            let change = PayloadChange::DeleteKeys(message.keys);
            let (collection, id) = (message.collection, message.id);
            Request::ChangePayload(ChangePayload { collection, id, change, write })
        }
        VectorOp::ClearPayload => {
            let message: ClearPayloadRequest = read(bytes)?;
            let write = write_options!(message);
            let (collection, id, change) = (message.collection, message.id, PayloadChange::Clear);
            Request::ChangePayload(ChangePayload { collection, id, change, write })
        }
        VectorOp::Search => Request::Search(search(read(bytes)?, false)?),
        VectorOp::SearchBatch => {
            let message: SearchBatchRequest = read(bytes)?;
            let read: ReadOptions = read_options!(message);
            read.validate()?;
            let SearchBatchRequest { collection, searches, with_documents: with_rows, .. } = message;
            Request::SearchBatch(SearchBatch { collection, searches, with_rows, read })
        }
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
                explain: false,
            })
        }
        VectorOp::HybridSearch => {
            let message: HybridRequest = read(bytes)?;
            let other = Source::Sparse(sparse_of(message.sparse_indices, message.sparse_values)?);
            Request::Hybrid(hybrid!(message, other))
        }
        VectorOp::HybridText => {
            let message: HybridTextRequest = read(bytes)?;
            let other = text_source(&message.text)?;
            Request::Hybrid(hybrid!(message, other))
        }
        VectorOp::SearchText => {
            let message: TextSearchRequest = read(bytes)?;
            Request::SearchText(TextPoints {
                read: read_options!(message),
                text: text_source(&message.text)?,
                filter: filter(&message.filter_json)?,
                collection: message.collection,
                k: message.k.into(),
                explain: false,
            })
        }
        VectorOp::Query => {
            let message: VectorQueryRequest = read(bytes)?;
            let read = read_options!(message);
            let spec =
                message.spec.ok_or_else(|| ApiError::invalid("spec is required: that of the query"))?;
            Request::Query(QueryPoints { collection: message.collection, read, ..query_of(spec)? })
        }
        VectorOp::Scroll => Request::Scroll(scroll(read(bytes)?)?),
        VectorOp::Insert
        | VectorOp::Upsert
        | VectorOp::InsertIfAbsent
        | VectorOp::Exists
        | VectorOp::SearchMmr
        | VectorOp::Count
        | VectorOp::Facet
        | VectorOp::Sample
        | VectorOp::BulkStage
        | VectorOp::BulkStagePayload
        | VectorOp::BulkBuild
        | VectorOp::Operate => {
            return Err(ApiError::new(ErrorKind::Internal, format!("{op:?} has no message")));
        }
    })
}

/// A message within its bounds.
fn read<M: Bounded>(bytes: &[u8]) -> Result<M, ApiError> {
    proto::decode(bytes)
}

fn filter(json: &str) -> Result<Option<Arc<Predicate>>, ApiError> {
    filter_of("filter_json", json.as_bytes())
}

/// Neither means both.
fn projection(with_vector: bool, with_payload: bool) -> (bool, bool) {
    if with_vector || with_payload { (with_vector, with_payload) } else { (true, true) }
}

fn read_options(consistency: u32, unavailable: u32, max_staleness: u64) -> Result<ReadOptions, ApiError> {
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
fn fusion(method: &str, alpha: Option<f64>, rrf_k: i32) -> Result<Method, ApiError> {
    if alpha.is_some_and(f64::is_nan) {
        return Err(ApiError::invalid("alpha: not a number"));
    }
    fusion_method(method, alpha, ZeroAlpha::Zero, Some(rrf_k.into()))
}

fn search(message: SearchRequest, with_rows: bool) -> Result<SearchPoints, ApiError> {
    Ok(SearchPoints {
        read: read_options!(message),
        filter: filter(&message.filter_json)?,
        collection: message.collection,
        vector: message.query,
        k: message.k.into(),
        with_rows,
        explain: false,
    })
}

fn upsert(message: UpsertRequest, now_ms: u64) -> Result<WritePoints, ApiError> {
    let write = write_options!(message);
    write.validate()?;
    let mode = if message.upsert { WriteMode::Upsert } else { WriteMode::Insert };
    let collection = message.collection;
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
    push_point(&mut batch, point, now_ms)?;
    Ok(WritePoints { collection, batch: batch.finish(mode) })
}

fn upsert_batch(message: UpsertBatchParts, now_ms: u64) -> Result<WritePoints, ApiError> {
    let mode = if message.upsert { WriteMode::Upsert } else { WriteMode::Insert };
    let mut batch = BatchBuilder::new();
    for (index, bytes) in message.points.into_iter().enumerate() {
        let point: BatchPoint = proto::decode_part::<UpsertBatchParts, _>(&bytes)
            .map_err(|error| ApiError::invalid(format!("points[{index}]: {error}")))?;
        let id = point.id;
        push_point(&mut batch, point, now_ms).map_err(|error| ApiError {
            message: format!("points[{index}] with id {id}: {error}"),
            ..error
        })?;
    }
    Ok(WritePoints { collection: message.collection, batch: batch.finish(mode) })
}

fn push_point(batch: &mut BatchBuilder, point: BatchPoint, now_ms: u64) -> Result<(), ApiError> {
    check_ttl("ttl_ms", point.ttl_ms)?;
    let sparse = sparse_of(point.sparse_indices, point.sparse_values)?;
    let payload = payload_of("metadata_json", point.metadata_json.as_bytes())?;
    let key_ttl_ms = ttls(point.key_ttl_ms);
    let row = encode_point_row(payload, Some(point.content), sparse, &key_ttl_ms, now_ms)?;
    let expected_version = point.has_expected_version.then_some(point.expected_version);
    let fields = PointFields { id: point.id, row, ttl_ms: point.ttl_ms, expected_version };
    batch.push(point.vector, fields);
    Ok(())
}

fn ttls(map: BTreeMap<String, i64>) -> Vec<(String, i64)> {
    map.into_iter().collect()
}

fn scroll(message: ScrollRequest) -> Result<Scroll, ApiError> {
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
