//! Messages of gRPC. Each file below is made from the file of `net/proto/svc/v1` of the same name by a test, [`generated`], which also
//! holds that it still is what it would make.

#[rustfmt::skip]
#[allow(dead_code, reason = "answers of operations that this build refuses are never made")]
mod admin;
#[rustfmt::skip]
#[allow(dead_code, reason = "answers of operations that this build refuses are never made")]
mod collections;
#[cfg(test)]
mod generated;
#[rustfmt::skip]
mod inspect;
#[rustfmt::skip]
#[allow(dead_code, reason = "messages that have the fields of those of dense collections are read and sent as those")]
mod multi_vector;
#[rustfmt::skip]
#[allow(dead_code, reason = "messages that have the fields of those of dense collections are read and sent as those")]
mod named;
#[rustfmt::skip]
mod payloads;
#[rustfmt::skip]
#[allow(dead_code, reason = "answers of operations that this build refuses are never made")]
mod points;
#[rustfmt::skip]
#[allow(dead_code, reason = "answers of operations that this build refuses are never made")]
mod search;

pub use admin::*;
pub use collections::*;
pub use inspect::{
    ChangeConfigRequest, CountRequest, CountResponse, FacetCount, FacetRequest, FacetResponse,
    GetInfoRequest, GetInfoResponse, IndexInfo, MemoryInfo, MvGetConfigRequest as MVGetConfigRequest,
    MvGetConfigResponse as MVGetConfigResponse, SampleRequest, SampleResponse,
};
pub use multi_vector::{
    MvAddRequest as MVAddRequest, MvBatchGetPoint as MVBatchGetPoint, MvBatchSearch as MVBatchSearch,
    MvConfig as MVConfig, MvCreateRequest as MVCreateRequest, MvGetBatchResponse as MVGetBatchResponse,
    MvGetResponse as MVGetResponse, MvHybridRequest as MVHybridRequest, MvResult as MVResult,
    MvScrollRequest as MVScrollRequest, MvSearchBatchRequest as MVSearchBatchRequest,
    MvSearchBatchResponse as MVSearchBatchResponse, MvSearchRequest as MVSearchRequest,
    MvSearchResponse as MVSearchResponse, MvVectorQueryRequest as MVVectorQueryRequest,
};
pub use named::{
    NamedAddSpaceRequest, NamedAddSpaceResponse, NamedBatchGetPoint, NamedBatchPoint, NamedBatchSearch,
    NamedCreateRequest, NamedDropSpaceRequest, NamedDropSpaceResponse, NamedGetBatchResponse,
    NamedGetConfigRequest, NamedGetConfigResponse, NamedGetResponse, NamedHybridRequest, NamedMmrRequest,
    NamedScrollRequest, NamedSearchBatchRequest, NamedSearchRequest, NamedSparseSearchRequest,
    NamedUpdateVectorsRequest, NamedUpdateVectorsResponse, NamedUpsertBatchRequest, NamedUpsertRequest,
    NamedVectorQueryRequest,
};
pub use payloads::*;
pub use points::*;
pub use search::{
    BatchSearch, Document, Group, HitVectors, HybridRequest, HybridTextRequest, NamedVectorList, OrderBy,
    Result as SearchResult, ScrollRequest, ScrollResponse, SearchBatchRequest, SearchBatchResponse,
    SearchDocsResponse, SearchGroupsRequest, SearchGroupsResponse, SearchRequest, SearchResponse,
    TextSearchRequest, VectorQueryRequest,
};

/// Descriptors of every `.proto` file, as reflection serves them: a `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("../../../../proto/descriptors.bin");
