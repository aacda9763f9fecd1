//! Messages to the operations that REST and the binary protocol fill as well.

use super::configuration::config_of;
use super::named;
use crate::limits;
use crate::op::table::{Op, PlacementOp, ProcessOp, Row, VectorOp};
use crate::op::{
    ApiError, BatchBuilder, ChangeAliases, ChangePayload, CreateCollection, DeletePoint, DeletePoints,
    DropCollection, ErrorKind, GetCollection, GetNamedConfig, GetPoints, GroupPoints, HybridNamed,
    HybridPoints, Lack, ListAliases, QueryNamed, QueryPoints, ReadOptions, Scroll, ScrollOrdered,
    ScrollPoints, SearchNamed, SearchPoints, TextPoints, Unmet, UpsertNamed, WriteOptions, WritePoints,
    ZeroAlpha, check_key_field, check_partitions, check_ttl, fusion_method, text_source,
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
        $crate::grpc::decode::read_options_of(
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
    /// `NamedGetConfigResponse`.
    GetNamedConfig(GetNamedConfig),
    /// `UpsertResponse`, or the refusal of a version that is another.
    Upsert(WritePoints),
    /// As of `Upsert`.
    UpsertNamed(UpsertNamed),
    /// `UpsertBatchResponse`.
    UpsertBatch(WritePoints),
    /// `UpsertBatchResponse`.
    UpsertNamedBatch(UpsertNamed),
    /// `DeleteResponse`.
    Delete(DeletePoint),
    /// `DeleteByFilterResponse`.
    DeleteByFilter(DeletePoints),
    /// `GetResponse`, of named spaces `NamedGetResponse`, or that there is none.
    Get(GetPoints),
    /// `GetBatchResponse`, of named spaces `NamedGetBatchResponse`.
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
    /// `SearchDocsResponse` where rows are asked for, `SearchResponse` where not.
    SearchNamed(SearchNamed),
    /// `SearchResponse`.
    HybridNamed(HybridNamed),
    /// `SearchResponse`.
    QueryNamed(QueryNamed),
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
                | Request::UpsertNamed(_)
                | Request::UpsertBatch(_)
                | Request::UpsertNamedBatch(_)
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
                | Request::SearchNamed(_)
                | Request::HybridNamed(_)
                | Request::QueryNamed(_)
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
        Op::Named(op) => named::decode(op, bytes, now_ms),
        Op::Absent => Err(absent(row)),
        Op::Kv(_) | Op::KvQuery(_) => Err(not_here(row)),
    }
}

/// The refusal of a family that this build lacks.
fn absent(row: &Row) -> ApiError {
    debug_assert!(row.name.starts_with("vector_mv_"), "{row:?}");
    ApiError::new(
        ErrorKind::Unsupported,
        "this server does not offer collections with several vectors per point",
    )
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
        VectorOp::Delete => Request::Delete(delete(bytes)?),
        VectorOp::DeleteByFilter => Request::DeleteByFilter(delete_by_filter(bytes)?),
        VectorOp::Get => Request::Get(get(bytes)?),
        VectorOp::GetBatch => Request::GetBatch(get_batch(bytes)?),
        VectorOp::SetPayload => Request::ChangePayload(set_payload(bytes, false)?),
        VectorOp::OverwritePayload => Request::ChangePayload(set_payload(bytes, true)?),
        VectorOp::DeletePayloadKeys => Request::ChangePayload(delete_payload_keys(bytes)?),
        VectorOp::ClearPayload => Request::ChangePayload(clear_payload(bytes)?),
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

/// A deletion of one point, in either family: their messages have the same fields. So it is with those below.
pub(super) fn delete(bytes: &[u8]) -> Result<DeletePoint, ApiError> {
    let message: DeleteRequest = read(bytes)?;
    let write = write_options!(message);
    Ok(DeletePoint { collection: message.collection, id: message.id, write })
}

pub(super) fn delete_by_filter(bytes: &[u8]) -> Result<DeletePoints, ApiError> {
    let message: DeleteByFilterRequest = read(bytes)?;
    Ok(DeletePoints {
        collection: message.collection,
        filter: filter(&message.filter_json)?,
        ids: Some(message.ids).filter(|ids| !ids.is_empty()),
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
    Ok(GetPoints { collection, ids, with_vector, with_payload, read })
}

pub(super) fn get_batch(bytes: &[u8]) -> Result<GetPoints, ApiError> {
    let GetBatchRequest { collection, ids, with_vector, with_payload } = read(bytes)?;
    let (with_vector, with_payload) = projection(with_vector, with_payload);
    Ok(GetPoints { collection, ids, with_vector, with_payload, read: ReadOptions::default() })
}

/// A payload that is merged, or replaces the one that is there.
pub(super) fn set_payload(bytes: &[u8], overwrite: bool) -> Result<ChangePayload, ApiError> {
    let message: SetPayloadRequest = read(bytes)?;
    let write = write_options!(message);
    let entries = payload_of("payload_json", message.payload_json.as_bytes())?.0;
    let key_ttl_ms = ttls(message.key_ttl_ms);
    let change = match overwrite {
        true => PayloadChange::Overwrite { entries, key_ttl_ms },
        false => PayloadChange::Merge { entries, key_ttl_ms },
    };
    Ok(ChangePayload { collection: message.collection, id: message.id, change, write })
}

pub(super) fn delete_payload_keys(bytes: &[u8]) -> Result<ChangePayload, ApiError> {
    let message: DeletePayloadKeysRequest = read(bytes)?;
    let (write, change) = (write_options!(message), PayloadChange::DeleteKeys(message.keys));
    Ok(ChangePayload { collection: message.collection, id: message.id, change, write })
}

pub(super) fn clear_payload(bytes: &[u8]) -> Result<ChangePayload, ApiError> {
    let message: ClearPayloadRequest = read(bytes)?;
    let (write, change) = (write_options!(message), PayloadChange::Clear);
    Ok(ChangePayload { collection: message.collection, id: message.id, change, write })
}

/// A message within its bounds.
pub(super) fn read<M: Bounded>(bytes: &[u8]) -> Result<M, ApiError> {
    proto::decode(bytes)
}

pub(super) fn filter(json: &str) -> Result<Option<Arc<Predicate>>, ApiError> {
    filter_of("filter_json", json.as_bytes())
}

/// Neither means both.
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
