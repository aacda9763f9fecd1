//! The identities of operations, by which codecs choose their decoders.

use nigh_shard::family::Family;

/// The identity of an operation, by which codecs choose its decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// On keys.
    Kv(KvOp),
    /// On keys as a whole; offered only with `-kv-query`.
    KvQuery(KvQueryOp),
    /// On the process, its registries and its aliases.
    Process(ProcessOp),
    /// On the placement of a collection: eviction and promotion, partitions.
    Placement(PlacementOp),
    /// On dense collections and their points.
    Vector(VectorOp),
    /// On collections of named spaces and their points.
    Named(NamedOp),
    /// On multi-vector collections and their documents.
    MultiVector(MultiVectorOp),
    /// Part of the interface, but not supported by this build.
    Absent,
}

impl Op {
    /// The family of the collections that the operation is on; dense if it is on none.
    pub const fn family(self) -> Family {
        match self {
            Op::Named(_) => Family::Named,
            Op::MultiVector(_) => Family::MultiVector,
            _ => Family::Dense,
        }
    }
}

/// Operations on keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the table")]
pub enum KvOp {
    Get,
    Put,
    Del,
    Expire,
    Incr,
    IncrEx,
    SetNx,
    GetSet,
    GetDel,
    Exists,
    Persist,
    Ttl,
    Cas,
    Cad,
    Caex,
    Mget,
    PutBatch,
    Flush,
    Operate,
}

/// Operations on keys as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the table")]
pub enum KvQueryOp {
    Query,
    IndexSet,
    IndexList,
}

/// Operations on the process, its registries and its aliases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the table")]
pub enum ProcessOp {
    Ping,
    Ready,
    Metrics,
    KvMetrics,
    ReplMetrics,
    OpenApi,
    Tasks,
    Collections,
    Topology,
    KeysAdd,
    KeysRevoke,
    KeysList,
    Backup,
    BackupsList,
    BackupsRestore,
    BackupsVerify,
    AliasCreate,
    AliasDelete,
    AliasBatch,
    AliasList,
    /// An envelope: another operation, with the number of replicas that must acknowledge it.
    Envelope,
}

/// Operations on the placement of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the table")]
pub enum PlacementOp {
    Evict,
    Restore,
    Resplit,
    ResplitCleanup,
    Reshard,
    ReshardAbort,
}

/// Operations on dense collections and their points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the table")]
pub enum VectorOp {
    CreateCollection,
    DropCollection,
    GetConfig,
    ChangeConfig,
    Info,
    Write,
    WriteBatch,
    Insert,
    Upsert,
    InsertIfAbsent,
    Delete,
    Exists,
    Get,
    GetBatch,
    SetPayload,
    OverwritePayload,
    DeletePayloadKeys,
    ClearPayload,
    SetPayloadByFilter,
    OverwritePayloadByFilter,
    DeletePayloadKeysByFilter,
    ClearPayloadByFilter,
    DeleteByFilter,
    Search,
    SearchBatch,
    SearchDocs,
    SearchGroups,
    SearchMmr,
    HybridSearch,
    SearchText,
    HybridText,
    Query,
    Scroll,
    Count,
    Facet,
    Sample,
    BulkStage,
    BulkStagePayload,
    BulkBuild,
    Operate,
}

/// Operations on collections of named spaces and their points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the table")]
pub enum NamedOp {
    CreateCollection,
    DropCollection,
    AddSpace,
    DropSpace,
    GetConfig,
    ChangeConfig,
    Info,
    Upsert,
    UpsertBatch,
    BulkStage,
    BulkBuild,
    UpdateVectors,
    Delete,
    DeletePoints,
    Exists,
    Get,
    GetBatch,
    SetPayload,
    OverwritePayload,
    DeletePayloadKeys,
    ClearPayload,
    SetPayloadByFilter,
    OverwritePayloadByFilter,
    DeletePayloadKeysByFilter,
    ClearPayloadByFilter,
    Search,
    SearchBatch,
    SearchMmr,
    SearchDocs,
    SparseSearch,
    HybridSearch,
    Scroll,
    Query,
    Count,
    Facet,
    Sample,
    Operate,
}

/// Operations on multi-vector collections and their documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the table")]
pub enum MultiVectorOp {
    CreateCollection,
    DropCollection,
    GetConfig,
    ChangeConfig,
    Info,
    Add,
    AddIfAbsent,
    AddBatch,
    BulkStage,
    BulkBuild,
    Exists,
    Delete,
    DeletePoints,
    Get,
    GetBatch,
    SetPayload,
    OverwritePayload,
    DeletePayloadKeys,
    ClearPayload,
    SetPayloadByFilter,
    OverwritePayloadByFilter,
    DeletePayloadKeysByFilter,
    ClearPayloadByFilter,
    Search,
    SearchBatch,
    HybridSearch,
    Scroll,
    Query,
    Count,
    Facet,
    Sample,
    Operate,
}
