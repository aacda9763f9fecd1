//! The table of operations: their names, the rights that they need, and how each transport calls them.
//!
//! The routes of REST, the operations of the binary protocol, the methods of gRPC, the rights that each needs, the paths of the OpenAPI document and
//! the page of operations in the reference derive from this table. To add an operation, add a row here, a struct in a file beside this one, and a
//! decoder in each codec that offers it; tests walk the table and fail if one is missing.

use crate::op::Action;
use crate::op::identities::{KvOp, KvQueryOp, MultiVectorOp, NamedOp, Op, PlacementOp, ProcessOp, VectorOp};
use crate::op::row::row;
pub use crate::op::row::{CollectionAt, GrpcMethod, GrpcScope, RestRoute, Right, Row, Verb};

/// Query parameters of every read that has options.
pub const READ_OPTIONS: &[&str] = &["read_consistency", "on_partition_unavailable", "max_staleness"];
/// Query parameters of the read of many points by id.
pub const PROJECTION: &[&str] = &["with_vector", "with_payload"];
/// Query parameters of the read of one point.
pub const POINT_OPTIONS: &[&str] =
    &["with_vector", "with_payload", "read_consistency", "on_partition_unavailable", "max_staleness"];
/// Query parameters of writes of many points, which have no version in common.
pub const WRITE_OPTIONS: &[&str] = &["write_consistency_factor", "wait"];
/// Query parameters of writes of one point.
pub const CONDITIONS: &[&str] = &["write_consistency_factor", "wait", "expected_version"];

/// Query parameters of writes of one point that may answer with its version.
pub const VERSIONED: &[&str] = &["write_consistency_factor", "wait", "expected_version", "with_version"];
/// Query parameters of writes of many points that may answer with their versions.
pub const VERSIONED_BATCH: &[&str] = &["write_consistency_factor", "wait", "with_version"];

const fn kv(name: &'static str, op: KvOp, right: Action) -> Row {
    row(name, Op::Kv(op), right).tcp(CollectionAt::Nowhere)
}

const fn kv_query(name: &'static str, op: KvQueryOp, right: Action) -> Row {
    row(name, Op::KvQuery(op), right).tcp(CollectionAt::Nowhere)
}

const fn process(name: &'static str, op: ProcessOp, right: Action) -> Row {
    row(name, Op::Process(op), right)
}

const fn placement(name: &'static str, op: PlacementOp) -> Row {
    row(name, Op::Placement(op), Action::Admin)
}

const fn vector(name: &'static str, op: VectorOp, right: Action) -> Row {
    row(name, Op::Vector(op), right)
}

const fn in_named(name: &'static str, op: NamedOp, right: Action) -> Row {
    row(name, Op::Named(op), right)
}

const fn in_multi_vector(name: &'static str, op: MultiVectorOp, right: Action) -> Row {
    row(name, Op::MultiVector(op), right)
}

const fn absent(name: &'static str, right: Action, at: CollectionAt) -> Row {
    row(name, Op::Absent, right).tcp(at)
}

use Action::{Admin, Read, Write};
use CollectionAt::{AfterFlags, Aliases, First, FirstLong, Nowhere};
use Verb::{Delete, Get, Patch, Post, Put};

/// Every operation.
pub const TABLE: &[Row] = &[
    kv("get", KvOp::Get, Read),
    kv("exists", KvOp::Exists, Read),
    kv("ttl", KvOp::Ttl, Read),
    kv("mget", KvOp::Mget, Read),
    kv("put", KvOp::Put, Write),
    kv("del", KvOp::Del, Write),
    kv("expire", KvOp::Expire, Write),
    kv("incr", KvOp::Incr, Write),
    kv("incr_ex", KvOp::IncrEx, Write),
    kv("set_nx", KvOp::SetNx, Write),
    kv("getset", KvOp::GetSet, Write),
    kv("getdel", KvOp::GetDel, Write),
    kv("persist", KvOp::Persist, Write),
    kv("cas", KvOp::Cas, Write),
    kv("cad", KvOp::Cad, Write),
    kv("caex", KvOp::Caex, Write),
    kv("put_batch", KvOp::PutBatch, Write),
    kv("flush", KvOp::Flush, Write),
    kv("operate", KvOp::Operate, Write),
    kv_query("kv_query", KvQueryOp::Query, Read),
    kv_query("__kv_index_set__", KvQueryOp::IndexSet, Admin),
    kv_query("__kv_index_list__", KvQueryOp::IndexList, Admin),
    process("__ping__", ProcessOp::Ping, Read).tcp(Nowhere).open("/v1/health").grpc_open("Health"),
    process("__ready__", ProcessOp::Ready, Read).tcp(Nowhere).open("/v1/ready"),
    process("__metrics__", ProcessOp::Metrics, Read)
        .tcp(Nowhere)
        .rest(Get, "/metrics")
        .rest(Get, "/v1/metrics"),
    process("__kv_metrics__", ProcessOp::KvMetrics, Read)
        .tcp(Nowhere)
        .rest(Get, "/kv-metrics")
        .rest(Get, "/v1/kv-metrics"),
    process("__repl_metrics__", ProcessOp::ReplMetrics, Read).tcp(Nowhere).open("/v1/replication"),
    process("openapi", ProcessOp::OpenApi, Read).open("/v1/openapi.json"),
    process("tasks", ProcessOp::Tasks, Read).rest(Get, "/v1/tasks"),
    process("__collections__", ProcessOp::Collections, Read)
        .tcp(Nowhere)
        .rest(Get, "/v1/collections")
        .grpc_on_node("ListCollections"),
    process("__topology__", ProcessOp::Topology, Read).tcp(Nowhere),
    process("__keys_add__", ProcessOp::KeysAdd, Admin)
        .tcp(Nowhere)
        .rest(Post, "/v1/admin/keys")
        .grpc_on_node("KeysAdd"),
    process("__keys_revoke__", ProcessOp::KeysRevoke, Admin)
        .tcp(Nowhere)
        .rest(Delete, "/v1/admin/keys")
        .grpc_on_node("KeysRevoke"),
    process("__keys_list__", ProcessOp::KeysList, Admin)
        .tcp(Nowhere)
        .rest(Get, "/v1/admin/keys")
        .grpc_on_node("KeysList"),
    process("backup", ProcessOp::Backup, Admin).rest(Post, "/v1/admin/backup"),
    process("backups_list", ProcessOp::BackupsList, Admin).rest(Get, "/v1/admin/backups"),
    process("backups_verify", ProcessOp::BackupsVerify, Admin).rest(Post, "/v1/admin/backups/verify"),
    process("backups_restore", ProcessOp::BackupsRestore, Admin).rest(Post, "/v1/admin/backups/restore"),
    process("alias_create", ProcessOp::AliasCreate, Admin)
        .rest_on_body(Post, "/v1/aliases")
        .grpc_on_names("CreateAlias"),
    process("alias_delete", ProcessOp::AliasDelete, Admin)
        .rest(Delete, "/v1/aliases/{alias}")
        .grpc("DeleteAlias"),
    process("alias_batch", ProcessOp::AliasBatch, Admin)
        .tcp(Aliases)
        .rest_on_body(Post, "/v1/aliases/batch")
        .grpc_on_names("AliasBatch"),
    process("alias_list", ProcessOp::AliasList, Admin)
        .tcp(FirstLong)
        .rest(Get, "/v1/aliases")
        .takes(&["collection"])
        .grpc("ListAliases"),
    Row {
        name: "__wc__",
        op: Op::Process(ProcessOp::Envelope),
        right: Right::OfInner,
        rest: [None; 2],
        tcp: Some(Nowhere),
        grpc: [None; 2],
    },
    absent("__register_wasm__", Admin, Nowhere),
    placement("vector_evict", PlacementOp::Evict).rest(Post, "/v1/collections/{name}/evict"),
    placement("vector_restore", PlacementOp::Restore).rest(Post, "/v1/collections/{name}/restore"),
    placement("vector_resplit", PlacementOp::Resplit)
        .tcp(Nowhere)
        .rest(Post, "/v1/collections/{name}/resplit")
        .grpc("Resplit"),
    placement("vector_reshard", PlacementOp::Reshard)
        .tcp(Nowhere)
        .rest(Post, "/v1/collections/{name}/reshard")
        .grpc("Reshard"),
    placement("vector_reshard_abort", PlacementOp::ReshardAbort)
        .tcp(Nowhere)
        .rest(Post, "/v1/collections/{name}/reshard/abort")
        .grpc("ReshardAbort"),
    placement("vector_resplit_cleanup", PlacementOp::ResplitCleanup)
        .tcp(Nowhere)
        .rest(Post, "/v1/collections/{name}/resplit/cleanup")
        .grpc("ResplitCleanup"),
    placement("vector_mv_resplit", PlacementOp::Resplit)
        .tcp(Nowhere)
        .rest(Post, "/v1/multivector/{name}/resplit")
        .grpc("MVResplit"),
    placement("vector_mv_reshard", PlacementOp::Reshard)
        .tcp(Nowhere)
        .rest(Post, "/v1/multivector/{name}/reshard")
        .grpc("MVReshard"),
    placement("vector_mv_reshard_abort", PlacementOp::ReshardAbort)
        .tcp(Nowhere)
        .rest(Post, "/v1/multivector/{name}/reshard/abort")
        .grpc("MVReshardAbort"),
    placement("vector_mv_resplit_cleanup", PlacementOp::ResplitCleanup)
        .tcp(Nowhere)
        .rest(Post, "/v1/multivector/{name}/resplit/cleanup")
        .grpc("MVResplitCleanup"),
    vector("vector_create_collection", VectorOp::CreateCollection, Admin)
        .tcp(First)
        .rest_on_body(Post, "/v1/collections")
        .grpc("CreateCollection"),
    vector("vector_drop_collection", VectorOp::DropCollection, Admin)
        .tcp(First)
        .rest(Delete, "/v1/collections/{name}")
        .grpc("DropCollection"),
    vector("vector_get_config", VectorOp::GetConfig, Read)
        .tcp(First)
        .rest(Get, "/v1/collections/{name}/config")
        .takes(READ_OPTIONS)
        .grpc("GetConfig"),
    vector("vector_change_config", VectorOp::ChangeConfig, Admin)
        .tcp(First)
        .rest(Patch, "/v1/collections/{name}/config")
        .grpc("ChangeConfig"),
    vector("vector_info", VectorOp::Info, Read)
        .tcp(First)
        .rest(Get, "/v1/collections/{name}")
        .grpc("GetInfo"),
    vector("vector_write", VectorOp::Write, Write)
        .rest(Post, "/v1/collections/{name}/points")
        .takes(VERSIONED)
        .grpc("Upsert"),
    vector("vector_write_batch", VectorOp::WriteBatch, Write)
        .rest(Post, "/v1/collections/{name}/points/batch")
        .takes(VERSIONED_BATCH)
        .grpc("UpsertBatch"),
    vector("vector_insert", VectorOp::Insert, Write).tcp(AfterFlags),
    vector("vector_upsert", VectorOp::Upsert, Write).tcp(AfterFlags),
    vector("vector_insert_if_absent", VectorOp::InsertIfAbsent, Write).tcp(AfterFlags),
    vector("vector_delete", VectorOp::Delete, Write)
        .tcp(First)
        .rest(Delete, "/v1/collections/{name}/points/{id}")
        .takes(CONDITIONS)
        .grpc("Delete"),
    vector("vector_exists", VectorOp::Exists, Read).tcp(First),
    vector("vector_get", VectorOp::Get, Read)
        .tcp(First)
        .rest(Get, "/v1/collections/{name}/points/{id}")
        .takes(POINT_OPTIONS)
        .grpc("Get"),
    vector("vector_get_batch", VectorOp::GetBatch, Read)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/batch-get")
        .takes(PROJECTION)
        .grpc("GetBatch"),
    vector("vector_set_payload", VectorOp::SetPayload, Write)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/{id}/payload")
        .takes(VERSIONED)
        .grpc("SetPayload"),
    vector("vector_overwrite_payload", VectorOp::OverwritePayload, Write)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/{id}/payload/overwrite")
        .rest(Put, "/v1/collections/{name}/points/{id}/payload")
        .takes(VERSIONED)
        .grpc("OverwritePayload"),
    vector("vector_delete_payload_keys", VectorOp::DeletePayloadKeys, Write)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/{id}/payload/delete")
        .takes(VERSIONED)
        .grpc("DeletePayloadKeys"),
    vector("vector_clear_payload", VectorOp::ClearPayload, Write)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/{id}/payload/clear")
        .takes(VERSIONED)
        .grpc("ClearPayload"),
    vector("vector_set_payload_by_filter", VectorOp::SetPayloadByFilter, Write)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/payload")
        .takes(WRITE_OPTIONS)
        .grpc("SetPayloadByFilter"),
    vector("vector_overwrite_payload_by_filter", VectorOp::OverwritePayloadByFilter, Write)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/payload/overwrite")
        .rest(Put, "/v1/collections/{name}/points/payload")
        .takes(WRITE_OPTIONS)
        .grpc("OverwritePayloadByFilter"),
    vector("vector_delete_payload_keys_by_filter", VectorOp::DeletePayloadKeysByFilter, Write)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/payload/delete")
        .takes(WRITE_OPTIONS)
        .grpc("DeletePayloadKeysByFilter"),
    vector("vector_clear_payload_by_filter", VectorOp::ClearPayloadByFilter, Write)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/payload/clear")
        .takes(WRITE_OPTIONS)
        .grpc("ClearPayloadByFilter"),
    vector("vector_delete_by_filter", VectorOp::DeleteByFilter, Write)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/delete")
        .takes(WRITE_OPTIONS)
        .grpc("DeleteByFilter"),
    vector("vector_search", VectorOp::Search, Read)
        .tcp(AfterFlags)
        .rest(Post, "/v1/collections/{name}/points/search")
        .takes(READ_OPTIONS)
        .grpc("Search"),
    vector("vector_search_batch", VectorOp::SearchBatch, Read)
        .rest(Post, "/v1/collections/{name}/points/search/batch")
        .takes(READ_OPTIONS)
        .grpc_stream("SearchBatch"),
    vector("vector_search_docs", VectorOp::SearchDocs, Read)
        .tcp(AfterFlags)
        .rest(Post, "/v1/collections/{name}/points/search/docs")
        .takes(READ_OPTIONS)
        .grpc("SearchDocs"),
    vector("vector_search_groups", VectorOp::SearchGroups, Read)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/search/groups")
        .takes(READ_OPTIONS)
        .grpc("SearchGroups"),
    vector("vector_search_mmr", VectorOp::SearchMmr, Read)
        .rest(Post, "/v1/collections/{name}/points/search/mmr")
        .takes(READ_OPTIONS),
    vector("vector_hybrid_search", VectorOp::HybridSearch, Read)
        .tcp(AfterFlags)
        .rest(Post, "/v1/collections/{name}/points/search/hybrid")
        .takes(READ_OPTIONS)
        .grpc("HybridSearch"),
    vector("vector_search_text", VectorOp::SearchText, Read)
        .tcp(AfterFlags)
        .rest(Post, "/v1/collections/{name}/points/search/text")
        .takes(READ_OPTIONS)
        .grpc("TextSearch"),
    vector("vector_hybrid_text", VectorOp::HybridText, Read)
        .tcp(AfterFlags)
        .rest(Post, "/v1/collections/{name}/points/search/hybrid-text")
        .takes(READ_OPTIONS)
        .grpc("HybridTextSearch"),
    vector("vector_query", VectorOp::Query, Read)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/query")
        .takes(READ_OPTIONS)
        .grpc("VectorQuery"),
    vector("vector_scroll", VectorOp::Scroll, Read)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/scroll")
        .takes(READ_OPTIONS)
        .grpc("Scroll")
        .grpc_stream("ScrollStream"),
    vector("vector_count", VectorOp::Count, Read)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/count")
        .grpc("Count"),
    vector("vector_facet", VectorOp::Facet, Read)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/facet")
        .grpc("Facet"),
    vector("vector_sample", VectorOp::Sample, Read)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/sample")
        .grpc("Sample"),
    vector("vector_bulk_stage", VectorOp::BulkStage, Write)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/bulk")
        .takes(WRITE_OPTIONS),
    vector("vector_bulk_stage_payload", VectorOp::BulkStagePayload, Write).tcp(First),
    vector("vector_bulk_build", VectorOp::BulkBuild, Write)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/bulk/build")
        .takes(&["workers", "wait"]),
    vector("vector_operate", VectorOp::Operate, Write)
        .tcp(First)
        .rest(Post, "/v1/collections/{name}/points/{id}/operate")
        .takes(CONDITIONS)
        .grpc("Operate"),
    absent("vector_bm25_stats", Read, First),
    in_multi_vector("vector_mv_create_collection", MultiVectorOp::CreateCollection, Admin)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}")
        .grpc("MVCreateCollection"),
    in_multi_vector("vector_mv_drop_collection", MultiVectorOp::DropCollection, Admin)
        .tcp(First)
        .rest(Delete, "/v1/multivector/{name}")
        .grpc("MVDropCollection"),
    in_multi_vector("vector_mv_get_config", MultiVectorOp::GetConfig, Read)
        .tcp(First)
        .rest(Get, "/v1/multivector/{name}/config")
        .takes(READ_OPTIONS)
        .grpc("MVGetConfig"),
    in_multi_vector("vector_mv_change_config", MultiVectorOp::ChangeConfig, Admin)
        .tcp(First)
        .rest(Patch, "/v1/multivector/{name}/config")
        .grpc("MVChangeConfig"),
    in_multi_vector("vector_mv_info", MultiVectorOp::Info, Read)
        .tcp(First)
        .rest(Get, "/v1/multivector/{name}")
        .grpc("MVGetInfo"),
    in_multi_vector("vector_mv_add", MultiVectorOp::Add, Write)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/docs")
        .takes(VERSIONED)
        .grpc("MVAdd"),
    in_multi_vector("vector_mv_add_if_absent", MultiVectorOp::AddIfAbsent, Write).tcp(First),
    in_multi_vector("vector_mv_add_batch", MultiVectorOp::AddBatch, Write)
        .rest(Post, "/v1/multivector/{name}/docs/batch")
        .takes(VERSIONED_BATCH),
    in_multi_vector("vector_mv_bulk_stage", MultiVectorOp::BulkStage, Write)
        .rest(Post, "/v1/multivector/{name}/docs/bulk")
        .takes(WRITE_OPTIONS),
    in_multi_vector("vector_mv_bulk_build", MultiVectorOp::BulkBuild, Write)
        .rest(Post, "/v1/multivector/{name}/docs/bulk/build")
        .takes(&["workers", "wait"]),
    in_multi_vector("vector_mv_exists", MultiVectorOp::Exists, Read).tcp(First),
    in_multi_vector("vector_mv_delete", MultiVectorOp::Delete, Write)
        .tcp(First)
        .rest(Delete, "/v1/multivector/{name}/docs/{id}")
        .takes(CONDITIONS)
        .grpc("MVDelete"),
    in_multi_vector("vector_mv_delete_by_filter", MultiVectorOp::DeletePoints, Write)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/docs/delete")
        .takes(CONDITIONS)
        .grpc("MVDeleteByFilter"),
    in_multi_vector("vector_mv_get", MultiVectorOp::Get, Read)
        .tcp(First)
        .rest(Get, "/v1/multivector/{name}/points/{id}")
        .takes(POINT_OPTIONS)
        .grpc("MVGet"),
    in_multi_vector("vector_mv_get_batch", MultiVectorOp::GetBatch, Read)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/points/batch-get")
        .takes(PROJECTION)
        .grpc("MVGetBatch"),
    in_multi_vector("vector_mv_set_payload", MultiVectorOp::SetPayload, Write)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/points/{id}/payload")
        .takes(VERSIONED)
        .grpc("MVSetPayload"),
    in_multi_vector("vector_mv_overwrite_payload", MultiVectorOp::OverwritePayload, Write)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/points/{id}/payload/overwrite")
        .rest(Put, "/v1/multivector/{name}/points/{id}/payload")
        .takes(VERSIONED)
        .grpc("MVOverwritePayload"),
    in_multi_vector("vector_mv_delete_payload_keys", MultiVectorOp::DeletePayloadKeys, Write)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/points/{id}/payload/delete")
        .takes(VERSIONED)
        .grpc("MVDeletePayloadKeys"),
    in_multi_vector("vector_mv_clear_payload", MultiVectorOp::ClearPayload, Write)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/points/{id}/payload/clear")
        .takes(VERSIONED)
        .grpc("MVClearPayload"),
    in_multi_vector("vector_mv_set_payload_by_filter", MultiVectorOp::SetPayloadByFilter, Write)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/points/payload")
        .takes(WRITE_OPTIONS)
        .grpc("MVSetPayloadByFilter"),
    in_multi_vector("vector_mv_overwrite_payload_by_filter", MultiVectorOp::OverwritePayloadByFilter, Write)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/points/payload/overwrite")
        .rest(Put, "/v1/multivector/{name}/points/payload")
        .takes(WRITE_OPTIONS)
        .grpc("MVOverwritePayloadByFilter"),
    in_multi_vector(
        "vector_mv_delete_payload_keys_by_filter",
        MultiVectorOp::DeletePayloadKeysByFilter,
        Write,
    )
    .tcp(First)
    .rest(Post, "/v1/multivector/{name}/points/payload/delete")
    .takes(WRITE_OPTIONS)
    .grpc("MVDeletePayloadKeysByFilter"),
    in_multi_vector("vector_mv_clear_payload_by_filter", MultiVectorOp::ClearPayloadByFilter, Write)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/points/payload/clear")
        .takes(WRITE_OPTIONS)
        .grpc("MVClearPayloadByFilter"),
    in_multi_vector("vector_mv_search", MultiVectorOp::Search, Read)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/search")
        .takes(READ_OPTIONS)
        .grpc("MVSearch"),
    in_multi_vector("vector_mv_search_batch", MultiVectorOp::SearchBatch, Read)
        .rest(Post, "/v1/multivector/{name}/search/batch")
        .takes(READ_OPTIONS)
        .grpc_stream("MVSearchBatch"),
    in_multi_vector("vector_mv_hybrid_search", MultiVectorOp::HybridSearch, Read)
        .tcp(AfterFlags)
        .rest(Post, "/v1/multivector/{name}/hybrid-search")
        .takes(READ_OPTIONS)
        .grpc("MVHybridSearch"),
    in_multi_vector("vector_mv_scroll", MultiVectorOp::Scroll, Read)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/scroll")
        .takes(READ_OPTIONS)
        .grpc("MVScroll"),
    in_multi_vector("vector_mv_query", MultiVectorOp::Query, Read)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/query")
        .takes(READ_OPTIONS)
        .grpc("MVVectorQuery"),
    in_multi_vector("vector_mv_count", MultiVectorOp::Count, Read)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/count")
        .grpc("MVCount"),
    in_multi_vector("vector_mv_facet", MultiVectorOp::Facet, Read)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/facet")
        .grpc("MVFacet"),
    in_multi_vector("vector_mv_sample", MultiVectorOp::Sample, Read)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/sample")
        .grpc("MVSample"),
    in_multi_vector("vector_mv_operate", MultiVectorOp::Operate, Write)
        .tcp(First)
        .rest(Post, "/v1/multivector/{name}/points/{id}/operate")
        .takes(CONDITIONS)
        .grpc("MVOperate"),
    in_named("vector_named_create_collection", NamedOp::CreateCollection, Admin)
        .tcp(First)
        .rest(Post, "/v1/named/{name}")
        .grpc("NamedCreate"),
    in_named("vector_named_drop_collection", NamedOp::DropCollection, Admin)
        .tcp(First)
        .rest(Delete, "/v1/named/{name}")
        .grpc("NamedDrop"),
    in_named("vector_named_add_space", NamedOp::AddSpace, Admin)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/spaces")
        .grpc("NamedAddSpace"),
    in_named("vector_named_drop_space", NamedOp::DropSpace, Admin)
        .tcp(First)
        .rest(Delete, "/v1/named/{name}/spaces/{space}")
        .grpc("NamedDropSpace"),
    in_named("vector_named_get_config", NamedOp::GetConfig, Read)
        .tcp(First)
        .rest(Get, "/v1/named/{name}/config")
        .takes(READ_OPTIONS)
        .grpc("NamedGetConfig"),
    in_named("vector_named_change_config", NamedOp::ChangeConfig, Admin)
        .tcp(First)
        .rest(Patch, "/v1/named/{name}/config")
        .grpc("NamedChangeConfig"),
    in_named("vector_named_info", NamedOp::Info, Read)
        .tcp(First)
        .rest(Get, "/v1/named/{name}")
        .grpc("NamedGetInfo"),
    in_named("vector_named_insert", NamedOp::Upsert, Write)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/points")
        .takes(VERSIONED)
        .grpc("NamedUpsert"),
    in_named("vector_named_insert_batch", NamedOp::UpsertBatch, Write)
        .rest(Post, "/v1/named/{name}/points/batch")
        .takes(VERSIONED_BATCH)
        .grpc("NamedUpsertBatch"),
    in_named("vector_named_bulk_stage", NamedOp::BulkStage, Write)
        .rest(Post, "/v1/named/{name}/points/bulk")
        .takes(WRITE_OPTIONS),
    in_named("vector_named_bulk_build", NamedOp::BulkBuild, Write)
        .rest(Post, "/v1/named/{name}/points/bulk/build")
        .takes(&["workers", "wait"]),
    in_named("vector_named_update_vectors", NamedOp::UpdateVectors, Write)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/points/{id}/vectors")
        .takes(CONDITIONS)
        .grpc("NamedUpdateVectors"),
    in_named("vector_named_delete", NamedOp::Delete, Write)
        .tcp(First)
        .rest(Delete, "/v1/named/{name}/points/{id}")
        .takes(CONDITIONS)
        .grpc("NamedDelete"),
    in_named("vector_named_delete_by_filter", NamedOp::DeletePoints, Write)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/points/delete")
        .takes(CONDITIONS)
        .grpc("NamedDeleteByFilter"),
    in_named("vector_named_exists", NamedOp::Exists, Read).tcp(First),
    in_named("vector_named_get", NamedOp::Get, Read)
        .tcp(First)
        .rest(Get, "/v1/named/{name}/points/{id}")
        .takes(POINT_OPTIONS)
        .grpc("NamedGet"),
    in_named("vector_named_get_batch", NamedOp::GetBatch, Read)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/points/batch-get")
        .takes(PROJECTION)
        .grpc("NamedGetBatch"),
    in_named("vector_named_set_payload", NamedOp::SetPayload, Write)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/points/{id}/payload")
        .takes(VERSIONED)
        .grpc("NamedSetPayload"),
    in_named("vector_named_overwrite_payload", NamedOp::OverwritePayload, Write)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/points/{id}/payload/overwrite")
        .rest(Put, "/v1/named/{name}/points/{id}/payload")
        .takes(VERSIONED)
        .grpc("NamedOverwritePayload"),
    in_named("vector_named_delete_payload_keys", NamedOp::DeletePayloadKeys, Write)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/points/{id}/payload/delete")
        .takes(VERSIONED)
        .grpc("NamedDeletePayloadKeys"),
    in_named("vector_named_clear_payload", NamedOp::ClearPayload, Write)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/points/{id}/payload/clear")
        .takes(VERSIONED)
        .grpc("NamedClearPayload"),
    in_named("vector_named_set_payload_by_filter", NamedOp::SetPayloadByFilter, Write)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/points/payload")
        .takes(WRITE_OPTIONS)
        .grpc("NamedSetPayloadByFilter"),
    in_named("vector_named_overwrite_payload_by_filter", NamedOp::OverwritePayloadByFilter, Write)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/points/payload/overwrite")
        .rest(Put, "/v1/named/{name}/points/payload")
        .takes(WRITE_OPTIONS)
        .grpc("NamedOverwritePayloadByFilter"),
    in_named("vector_named_delete_payload_keys_by_filter", NamedOp::DeletePayloadKeysByFilter, Write)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/points/payload/delete")
        .takes(WRITE_OPTIONS)
        .grpc("NamedDeletePayloadKeysByFilter"),
    in_named("vector_named_clear_payload_by_filter", NamedOp::ClearPayloadByFilter, Write)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/points/payload/clear")
        .takes(WRITE_OPTIONS)
        .grpc("NamedClearPayloadByFilter"),
    in_named("vector_named_search", NamedOp::Search, Read)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/search")
        .takes(READ_OPTIONS)
        .grpc("NamedSearch"),
    in_named("vector_named_search_batch", NamedOp::SearchBatch, Read)
        .rest(Post, "/v1/named/{name}/search/batch")
        .takes(READ_OPTIONS)
        .grpc_stream("NamedSearchBatch"),
    in_named("vector_named_search_docs", NamedOp::SearchDocs, Read)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/search/docs")
        .takes(READ_OPTIONS)
        .grpc("NamedSearchDocs"),
    in_named("vector_named_search_mmr", NamedOp::SearchMmr, Read)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/search/mmr")
        .takes(READ_OPTIONS)
        .grpc("NamedSearchMmr"),
    in_named("vector_named_sparse_search", NamedOp::SparseSearch, Read)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/sparse-search")
        .takes(READ_OPTIONS)
        .grpc("NamedSparseSearch"),
    in_named("vector_named_hybrid_search", NamedOp::HybridSearch, Read)
        .tcp(AfterFlags)
        .rest(Post, "/v1/named/{name}/hybrid-search")
        .takes(READ_OPTIONS)
        .grpc("NamedHybridSearch"),
    in_named("vector_named_scroll", NamedOp::Scroll, Read)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/scroll")
        .takes(READ_OPTIONS)
        .grpc("NamedScroll")
        .grpc_stream("NamedScrollStream"),
    in_named("vector_named_query", NamedOp::Query, Read)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/query")
        .takes(READ_OPTIONS)
        .grpc("NamedVectorQuery"),
    in_named("vector_named_count", NamedOp::Count, Read)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/count")
        .grpc("NamedCount"),
    in_named("vector_named_facet", NamedOp::Facet, Read)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/facet")
        .grpc("NamedFacet"),
    in_named("vector_named_sample", NamedOp::Sample, Read)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/sample")
        .grpc("NamedSample"),
    in_named("vector_named_operate", NamedOp::Operate, Write)
        .tcp(First)
        .rest(Post, "/v1/named/{name}/points/{id}/operate")
        .takes(CONDITIONS)
        .grpc("NamedOperate"),
];

/// How many methods of gRPC there are.
pub const GRPC_METHODS: usize = {
    let (mut count, mut row) = (0, 0);
    while row < TABLE.len() {
        count += TABLE[row].grpc[0].is_some() as usize + TABLE[row].grpc[1].is_some() as usize;
        row += 1;
    }
    count
};

/// Every method of gRPC with its row; the place of a method among them is its number.
pub fn grpc_methods() -> impl Iterator<Item = (&'static Row, GrpcMethod)> {
    TABLE.iter().flat_map(|row| row.methods().map(move |method| (row, *method)))
}

/// The row of an operation that has only one row.
///
/// # Panics
/// The table has no such name. Names are written in code, and a test finds every wrong one.
pub fn named(name: &str) -> &'static Row {
    TABLE.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("the table has no operation {name:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_and_routes_are_there_once() {
        let names: HashSet<_> = TABLE.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), TABLE.len());
        let routes: Vec<_> =
            TABLE.iter().flat_map(Row::routes).map(|route| (route.method, route.path)).collect();
        assert_eq!(routes.iter().collect::<HashSet<_>>().len(), routes.len());
        for row in TABLE {
            let is_called = row.tcp.is_some() || row.rest[0].is_some() || row.grpc[0].is_some();
            assert!(is_called, "nobody can call {}", row.name);
        }
        let methods: HashSet<_> = grpc_methods().map(|(_, method)| method.name).collect();
        assert_eq!((methods.len(), grpc_methods().count()), (GRPC_METHODS, GRPC_METHODS));
    }

    #[test]
    fn rows_by_class() {
        let of = |op: fn(Op) -> bool| TABLE.iter().filter(|row| row.tcp.is_some() && op(row.op)).count();
        assert_eq!(of(|op| matches!(op, Op::Kv(_))), 19);
        assert_eq!(of(|op| matches!(op, Op::Vector(_))), 36);
        assert_eq!((GRPC_METHODS, grpc_methods().filter(|(_, method)| method.is_streamed).count()), (112, 5));
        assert_eq!(TABLE.iter().filter(|row| row.right == Right::OfInner).count(), 1);
    }
}
