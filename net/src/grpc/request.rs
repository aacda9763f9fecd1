//! What calls ask for.

use crate::auth::registry::NewKey;
use crate::op::{
    AddDocuments, AddSpace, ChangeAliases, ChangeConfig, ChangePayload, ChangePayloads, CountPoints,
    CreateCollection, DeletePoint, DeletePoints, DropCollection, DropSpace, FacetPoints, GetCollection,
    GetMultiVectorConfig, GetNamedConfig, GetPoints, GroupPoints, HybridDocuments, HybridNamed, HybridPoints,
    ListAliases, OperatePoint, QueryDocuments, QueryNamed, QueryPoints, ReadOptions, SamplePoints, Scroll,
    SearchDocuments, SearchNamed, SearchOptions, SearchPoints, TextPoints, Unmet, UpdateVectors, UpsertNamed,
    WritePoints,
};
use bytes::Bytes;
use nigh_shard::core::AliasChange;

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
    /// `GetConfigResponse`, of named spaces `NamedGetConfigResponse`, of a multi-vector collection `MVGetConfigResponse`.
    ChangeConfig(ChangeConfig),
    /// `GetInfoResponse`.
    GetInfo(GetCollection),
    /// `MVGetConfigResponse`.
    GetMultiVectorConfig(GetMultiVectorConfig),
    /// `ListCollectionsResponse`.
    ListCollections,
    /// `NamedGetConfigResponse`.
    GetNamedConfig(GetNamedConfig),
    /// `UpsertResponse`, with the version where that is wanted, or the refusal of a version that is another.
    Upsert(WritePoints, bool),
    /// As of `Upsert`.
    UpsertNamed(UpsertNamed, bool),
    /// `MVAddResponse`, which has the fields of `UpsertResponse`; otherwise as of `Upsert`.
    AddDocuments(AddDocuments, bool),
    /// `UpsertBatchResponse`, with a result for each point where that is wanted or any has a condition.
    UpsertBatch(WritePoints, bool),
    /// As of `UpsertBatch`.
    UpsertNamedBatch(UpsertNamed, bool),
    /// `NamedAddSpaceResponse`.
    AddSpace(AddSpace),
    /// `NamedDropSpaceResponse`.
    DropSpace(DropSpace),
    /// `NamedUpdateVectorsResponse`.
    UpdateVectors(UpdateVectors),
    /// `DeleteResponse`.
    Delete(DeletePoint),
    /// `DeleteByFilterResponse`.
    DeleteByFilter(DeletePoints),
    /// `GetResponse`, of named spaces `NamedGetResponse`, of a multi-vector collection `MVGetResponse`, or that there is none.
    Get(GetPoints),
    /// `GetBatchResponse`, of named spaces `NamedGetBatchResponse`, of a multi-vector collection `MVGetBatchResponse`.
    GetBatch(GetPoints),
    /// `PayloadResponse`, with the version where that is wanted.
    ChangePayload(ChangePayload, bool),
    /// `PayloadByFilterResponse`.
    ChangePayloads(ChangePayloads),
    /// `OperateResponse`, or that there is no point, or no record.
    Operate(OperatePoint),
    /// `CountResponse`.
    Count(CountPoints),
    /// `FacetResponse`.
    Facet(FacetPoints),
    /// `SampleResponse`.
    Sample(SamplePoints),
    /// `SearchResponse`.
    Search(SearchPoints),
    /// `SearchBatchResponse` for each, in a multi-vector collection `MVSearchBatchResponse`.
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
    /// `MVSearchResponse`.
    SearchDocuments(SearchDocuments),
    /// `SearchResponse`.
    HybridDocuments(HybridDocuments),
    /// `SearchResponse`.
    QueryDocuments(QueryDocuments),
    /// `ScrollResponse`, one or many.
    Scroll(Scroll),
    /// `CreateAliasResponse` or `DeleteAliasResponse`, which hold what was sent.
    ChangeAlias(AliasChange),
    /// `AliasBatchResponse`.
    ChangeAliases(ChangeAliases),
    /// `ListAliasesResponse`.
    ListAliases(ListAliases),
    /// `KeysAck`.
    AddKey(NewKey),
    /// `KeysAck`.
    RevokeKey(String),
    /// `KeysListResponse`.
    ListKeys,
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
                | Request::Upsert(..)
                | Request::UpsertNamed(..)
                | Request::AddDocuments(..)
                | Request::UpsertBatch(..)
                | Request::UpsertNamedBatch(..)
                | Request::ChangeConfig(_)
                | Request::AddSpace(_)
                | Request::DropSpace(_)
                | Request::AddKey(_)
                | Request::RevokeKey(_)
                | Request::UpdateVectors(_)
                | Request::Delete(_)
                | Request::DeleteByFilter(_)
                | Request::ChangePayload(..)
                | Request::ChangePayloads(_)
                | Request::Operate(_)
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
                | Request::SearchDocuments(_)
                | Request::HybridDocuments(_)
                | Request::QueryDocuments(_)
        )
    }
}

/// Many searches of one collection, of which some may be queries of lanes.
pub struct SearchBatch {
    /// The messages of the searches, in order.
    pub searches: Vec<Bytes>,
    /// Whether a search that is refused has an answer, and does not end the call.
    pub with_errors: bool,
    /// What they have in common.
    pub common: Common,
}

/// What the searches of a batch have in common.
#[derive(Clone)]
pub struct Common {
    /// The name of the collection as sent.
    pub collection: String,
    /// Whether documents are asked for, which those of a multi-vector collection are in any case.
    pub with_rows: bool,
    /// The options of searches without options of their own.
    pub options: SearchOptions,
    /// Consistency.
    pub read: ReadOptions,
}
