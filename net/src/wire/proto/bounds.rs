//! What messages of gRPC may hold. Numbers, texts and lists of floats take a small multiple of their bytes; lists of anything else have a bound.

use super::messages::*;
use super::{Bound, Bounded, Item, QuerySpec};
use crate::limits;
use nigh_engine::collection::SPACES_MAX;

/// A list of `most` items at most.
const fn list(number: u32, before: &'static str, most: usize, behind: &'static str, item: Item) -> Bound {
    Bound { number, most, refusal: (before, behind), item }
}

/// The indices of a sparse vector that is written: the row that they travel in holds no more, and may hold fewer.
const fn indices(number: u32) -> Bound {
    list(number, "a sparse vector may have", limits::PAYLOAD_ROW_MAX_BYTES / 8, "dimensions", Item::Index)
}

/// The indices of a sparse vector that is searched for.
const fn sought(number: u32) -> Bound {
    list(number, "a lane may have", limits::QUERY_DIMENSIONS_MAX, "dimensions", Item::Index)
}

/// Times to live of the keys of a payload.
const fn ttls(number: u32) -> Bound {
    list(number, "key_ttl_ms may have", limits::PAYLOAD_KEYS_MAX, "keys", Item::Message(&[]))
}

/// The points whose payloads are changed.
const fn changed_ids() -> Bound {
    list(3, "a change of payloads may name", limits::DELETE_IDS_MAX, "ids", Item::Integer)
}

/// A vector of a space, dense or sparse.
const SPACE_VECTOR: &[Bound] = &[indices(2)];
/// A name of a space and its vector.
const SPACE: &[Bound] = &[Bound::one(2, "a space of a point may have its vector", SPACE_VECTOR)];

/// The vectors of a point by the names of their spaces.
const fn spaces(number: u32) -> Bound {
    list(number, "a point may have", SPACES_MAX, "vectors", Item::Message(SPACE))
}

/// The token vectors of a query.
const fn query_tokens(number: u32) -> Bound {
    list(number, "a query may have", limits::QUERY_TOKENS_MAX, "token vectors", Item::Message(&[]))
}

/// The token vectors of a document.
const fn tokens(number: u32) -> Bound {
    list(number, "a document may have", limits::TOKENS_MAX, "token vectors", Item::Message(&[]))
}

/// The spec of a search of a batch. It is checked when its search is decoded, not with the batch, so that only this search is refused.
const SEARCH_SPEC: Bound = Bound::one(101, "a search may have its spec", QuerySpec::BOUNDS);
/// A search of a batch in a collection of named spaces.
const SPACE_SEARCH: &[Bound] = &[sought(3)];
/// A search of a batch in a multi-vector collection.
const TOKEN_SEARCH: &[Bound] = &[query_tokens(1)];
const NAMED_BATCH_POINT: &[Bound] = &[spaces(2), ttls(7)];
const BATCH_POINT: &[Bound] = &[indices(6), ttls(10)];
const CONFIG: &[Bound] = &[Bound::one(26, "a config may have its full_text", &[])];
const MV_CONFIG: &[Bound] = &[Bound::one(100, "a config may have its full_text", &[])];
/// Tail keys of a tail key have no effect, but the decoder takes memory for each, as deep as they go.
const IGNORED_KEY: &[Bound] =
    &[list(7, "a tail key of a tail key may have", 0, "tail keys of its own", Item::Message(&[]))];
const TAIL_KEY: &[Bound] = &[list(
    7,
    "a tail key may have",
    limits::ORDER_KEYS_MAX - 1,
    "tail keys of its own",
    Item::Message(IGNORED_KEY),
)];
const ORDER: &[Bound] =
    &[list(7, "an order may have", limits::ORDER_KEYS_MAX - 1, "tail keys", Item::Message(TAIL_KEY))];

macro_rules! bounded {
    ($($message:ident $([$($bound:expr),+ $(,)?])?,)+) => {$(
        impl Bounded for $message {
            const NAME: &'static str = stringify!($message);
            const BOUNDS: &'static [Bound] = &[$($($bound),+)?];
        }
    )+};
}

bounded! {
    HealthRequest,
    CreateCollectionRequest[Bound::one(2, "a request may have its config", CONFIG)],
    DropCollectionRequest,
    GetConfigRequest,
    ListCollectionsRequest,
    ResplitRequest,
    ResplitCleanupRequest,
    ReshardRequest,
    ReshardAbortRequest,
    UpsertRequest[indices(7), ttls(14)],
    UpsertBatchRequest[list(2, "a batch may have", limits::JSON_INGEST_MAX_POINTS, "points", Item::Message(BATCH_POINT))],
    DeleteRequest,
    DeleteByFilterRequest[list(16, "a deletion may name", limits::DELETE_IDS_MAX, "ids", Item::Integer)],
    GetRequest,
    GetBatchRequest[list(2, "a request may name", limits::GRPC_IDS_MAX, "ids", Item::Integer)],
    SetPayloadRequest[ttls(6)],
    DeletePayloadKeysRequest[list(3, "a request may name", limits::PAYLOAD_KEYS_MAX, "keys", Item::Text)],
    ClearPayloadRequest,
    SearchRequest,
    SearchBatchRequest[list(2, "a batch may have", limits::SEARCHES_MAX, "searches", Item::Message(&[]))],
    BatchSearch[SEARCH_SPEC],
    SearchGroupsRequest,
    HybridRequest[sought(4)],
    TextSearchRequest,
    HybridTextRequest,
    VectorQueryRequest[Bound::one(2, "a request may have its spec", QuerySpec::BOUNDS)],
    ScrollRequest[Bound::one(7, "a request may have its order_by", ORDER)],
    CountRequest,
    FacetRequest,
    SampleRequest,
    GetInfoRequest,
    ChangeConfigRequest,
    MVGetConfigRequest,
    SetPayloadByFilterRequest[changed_ids(), ttls(5)],
    DeletePayloadKeysByFilterRequest[changed_ids(), list(4, "a request may name", limits::PAYLOAD_KEYS_MAX, "keys", Item::Text)],
    ClearPayloadByFilterRequest[changed_ids()],
    OperateRequest,
    NamedCreateRequest,
    NamedAddSpaceRequest,
    NamedDropSpaceRequest,
    NamedUpsertRequest[spaces(3), ttls(10)],
    NamedUpsertBatchRequest[
        list(2, "a batch may have", limits::JSON_INGEST_MAX_POINTS, "points", Item::Message(NAMED_BATCH_POINT)),
    ],
    NamedUpdateVectorsRequest[spaces(3), list(4, "delete may name", SPACES_MAX, "spaces", Item::Text)],
    NamedSearchRequest,
    NamedMmrRequest,
    NamedSparseSearchRequest[sought(3)],
    NamedSearchBatchRequest[list(2, "a batch may have", limits::SEARCHES_MAX, "searches", Item::Message(SPACE_SEARCH))],
    NamedBatchSearch[SEARCH_SPEC],
    NamedHybridRequest[sought(5)],
    NamedScrollRequest[Bound::one(7, "a request may have its order_by", ORDER)],
    NamedGetConfigRequest,
    NamedVectorQueryRequest[Bound::one(2, "a request may have its spec", QuerySpec::BOUNDS)],
    MVCreateRequest[Bound::one(2, "a request may have its config", MV_CONFIG)],
    MVAddRequest[tokens(3), ttls(9), indices(10)],
    MVSearchRequest[query_tokens(2)],
    MVSearchBatchRequest[list(2, "a batch may have", limits::SEARCHES_MAX, "searches", Item::Message(TOKEN_SEARCH))],
    MVBatchSearch[SEARCH_SPEC],
    MVHybridRequest[query_tokens(2), sought(3)],
    MVScrollRequest[Bound::one(7, "a request may have its order_by", ORDER)],
    MVVectorQueryRequest[Bound::one(2, "a request may have its spec", QuerySpec::BOUNDS)],
    CreateAliasRequest,
    DeleteAliasRequest,
    ListAliasesRequest,
    AliasBatchRequest[list(1, "a request may have", limits::ALIAS_ACTIONS_MAX, "actions", Item::Message(&[]))],
    KeysAddRequest[list(3, "a key may have", limits::GRPC_KEY_SCOPES_MAX, "scopes", Item::Text)],
    KeysRevokeRequest,
    KeysListRequest,
}
