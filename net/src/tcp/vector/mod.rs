//! Operations on collections: arguments to the typed requests that REST fills as well, and their outputs to results.
//!
//! Layouts stand where they are decoded, in `create`, `points`, `search` and `scroll`, those of collections of named spaces alone in `named`, those of multi-vector collections in `multi_vector`,
//! with what they share in `parts`, what is beyond the interface in `inspect`; those of results in [`answers`]. Bytes behind a layout are ignored except where it says otherwise. Values, filters and payloads are the
//! JSON of REST.

pub mod answers;
mod config;
mod create;
mod inspect;
mod multi_vector;
mod named;
mod parts;
mod points;
mod scroll;
mod search;

#[cfg(test)]
mod golden_family_tests;
#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod options_tests;
#[cfg(test)]
mod version_tests;

pub use config::put_config;
#[cfg(test)]
pub use create::fields as fields_of_create;
pub use create::put_multi_vector as put_multi_vector_config;

use crate::op::{
    AddDocuments, GetMultiVectorConfig, HybridDocuments, MultiVectorOp, QueryDocuments, SearchDocuments,
};
use crate::op::{
    AddSpace, DropSpace, GetNamedConfig, HybridNamed, NamedOp, Op, QueryNamed, SearchNamed, UpdateVectors,
    UpsertNamed, VectorOp,
};
use crate::op::{
    ApiError, BuildStaged, ChangeConfig, ChangePayload, ChangePayloads, CountPoints, CreateCollection,
    DeletePoint, DeletePoints, DropCollection, FacetPoints, GetCollection, GetPoints, OperatePoint,
    SamplePoints, SearchPoints, StagePoints, WritePoints,
};
use crate::op::{GroupPoints, HybridPoints, QueryPoints, Scroll, TextPoints};
use crate::tcp::reader::{ArgsError, ArgsReader};
use crate::wire::config_change::decode_bare_change;
pub use crate::wire::payloads::Decoding;
use nigh_shard::family::Family;
use points::Write;

/// A request about a collection, and by its kind the result it is answered with. The flag beside a write of one point says whether its answer has the
/// version.
#[non_exhaustive]
pub enum VectorRequest {
    /// Nothing.
    Create(CreateCollection),
    /// Nothing, also when it is absent.
    Drop(DropCollection),
    /// Nothing.
    AddSpace(AddSpace),
    /// Nothing.
    DropSpace(DropSpace),
    /// [`put_config`], [`answers::put_spaces`] or [`put_multi_vector_config`], as when the configuration is read.
    ChangeConfig(ChangeConfig),
    /// [`put_config`].
    GetConfig(GetCollection),
    /// JSON, that of `GET …/{name}` over REST.
    Info(GetCollection),
    /// [`answers::put_spaces`].
    GetNamedConfig(GetNamedConfig),
    /// [`put_multi_vector_config`].
    GetMultiVectorConfig(GetMultiVectorConfig),
    /// Nothing, or [`answers::put_number`] of the version where that is asked for; [`ApiError::version_conflict`] when the outcome is a
    /// conflict.
    Write(WritePoints, bool),
    /// As of `Write`.
    WriteNamed(UpsertNamed, bool),
    /// As of `Write`.
    AddDocuments(AddDocuments, bool),
    /// As of `WriteIfAbsent`.
    AddDocumentIfAbsent(AddDocuments, bool),
    /// [`answers::put_done`]: whether it was written, which a conflict denies; [`answers::put_version`] where the version is asked for.
    WriteIfAbsent(WritePoints, bool),
    /// [`answers::put_done`].
    Delete(DeletePoint),
    /// [`answers::put_done`].
    Exists(GetPoints),
    /// [`answers::put_point`].
    Get(GetPoints),
    /// [`answers::put_point_of`].
    GetBatch(GetPoints),
    /// [`answers::put_done`]; if the point is absent, the answer is 0 and not an error.
    ChangePayload(ChangePayload),
    /// [`answers::put_version`]; if the point is absent, the answer is 0 and not an error.
    UpdateVectors(UpdateVectors),
    /// [`answers::put_deleted`].
    DeleteByFilter(DeletePoints),
    /// [`answers::put_number`]: how many points were changed.
    ChangePayloads(ChangePayloads),
    /// [`answers::put_number`].
    Count(CountPoints),
    /// [`answers::put_facet_value`] of each.
    Facet(FacetPoints),
    /// [`answers::put_docs`].
    Sample(SamplePoints),
    /// [`answers::put_hits12`].
    Search(SearchPoints),
    /// [`answers::put_docs`].
    SearchDocs(SearchPoints),
    /// [`answers::put_docs`] where rows are asked for, or else [`answers::put_hits12`] of a dense space and [`answers::put_hits16`] of a sparse one.
    SearchNamed(SearchNamed),
    /// [`answers::put_groups`].
    SearchGroups(GroupPoints),
    /// [`answers::put_hits16`].
    Hybrid(HybridPoints),
    /// [`answers::put_hits16`].
    HybridNamed(HybridNamed),
    /// [`answers::put_docs`].
    SearchText(TextPoints),
    /// [`answers::put_query`].
    Query(QueryPoints),
    /// [`answers::put_query`].
    QueryNamed(QueryNamed),
    /// [`answers::put_scored`].
    SearchDocuments(SearchDocuments),
    /// [`answers::put_hits16`].
    HybridDocuments(HybridDocuments),
    /// [`answers::put_query`].
    QueryDocuments(QueryDocuments),
    /// [`answers::ScrollAnswer`].
    Scroll(Scroll),
    /// Nothing.
    Stage(StagePoints),
    /// Nothing.
    Build(BuildStaged),
    /// [`answers::put_operated`], or NOT_FOUND where there is no record.
    Operate(OperatePoint),
}

/// Decodes the arguments of an operation on a collection.
///
/// Cost: that of its JSON and of copying its vectors; nothing is reserved beyond a small multiple of the arguments.
///
/// # Errors
/// A bad request: `args too short` with the part that is missing, or what is wrong with a part; a payload that is too
/// large. What needs no decoding to be seen (`k`, names, ranges of a configuration) is for the door. An operation that the protocol does not have.
pub fn decode(op: Op, args: &[u8], decoding: &Decoding) -> Result<VectorRequest, ApiError> {
    let args = &mut ArgsReader::new(args);
    match op {
        Op::Vector(op) => decode_dense(op, args, decoding),
        Op::Named(op) => decode_named(op, args, decoding),
        Op::MultiVector(op) => decode_multi_vector(op, args, decoding),
        _ => Err(ArgsError::NotRegistered.into()),
    }
}

fn decode_dense(
    op: VectorOp,
    args: &mut ArgsReader<'_>,
    decoding: &Decoding,
) -> Result<VectorRequest, ApiError> {
    Ok(match op {
        VectorOp::CreateCollection => VectorRequest::Create(create::create(args)?),
        VectorOp::DropCollection => {
            VectorRequest::Drop(DropCollection { collection: parts::collection(args)?, family: None })
        }
        VectorOp::GetConfig => {
            let collection = parts::collection(args)?;
            // Checked, and no more: the configuration is the same on every replica.
            parts::trailer(args)?;
            VectorRequest::GetConfig(GetCollection { collection })
        }
        VectorOp::ChangeConfig => change_config(Family::Dense, args)?,
        VectorOp::Insert => {
            let (write, with_version) = points::write(args, Write::Insert, decoding)?;
            VectorRequest::Write(write, with_version)
        }
        VectorOp::Upsert => {
            let (write, with_version) = points::write(args, Write::Upsert, decoding)?;
            VectorRequest::Write(write, with_version)
        }
        VectorOp::InsertIfAbsent => {
            let (write, with_version) = points::write(args, Write::InsertIfAbsent, decoding)?;
            VectorRequest::WriteIfAbsent(write, with_version)
        }
        VectorOp::Delete => VectorRequest::Delete(points::delete(args)?),
        VectorOp::Exists => VectorRequest::Exists(points::exists(args)?),
        VectorOp::Get => VectorRequest::Get(points::get(args)?),
        VectorOp::GetBatch => VectorRequest::GetBatch(points::get_batch(args)?),
        VectorOp::SetPayload => VectorRequest::ChangePayload(points::set_payload(args, false, decoding)?),
        VectorOp::OverwritePayload => {
            VectorRequest::ChangePayload(points::set_payload(args, true, decoding)?)
        }
        VectorOp::DeletePayloadKeys => VectorRequest::ChangePayload(points::delete_payload_keys(args)?),
        VectorOp::ClearPayload => VectorRequest::ChangePayload(points::clear_payload(args)?),
        VectorOp::DeleteByFilter => VectorRequest::DeleteByFilter(points::delete_by_filter(args)?),
        VectorOp::Search => VectorRequest::Search(search::search(args, false)?),
        VectorOp::SearchDocs => VectorRequest::SearchDocs(search::search(args, true)?),
        VectorOp::SearchGroups => VectorRequest::SearchGroups(search::groups(args)?),
        VectorOp::HybridSearch => VectorRequest::Hybrid(search::hybrid(args)?),
        VectorOp::SearchText => VectorRequest::SearchText(search::text(args)?),
        VectorOp::HybridText => VectorRequest::Hybrid(search::hybrid_text(args)?),
        VectorOp::Query => VectorRequest::Query(search::query(args)?),
        VectorOp::Scroll => VectorRequest::Scroll(scroll::scroll(args)?),
        VectorOp::BulkStage => VectorRequest::Stage(points::stage(args, false, decoding)?),
        VectorOp::BulkStagePayload => VectorRequest::Stage(points::stage(args, true, decoding)?),
        VectorOp::BulkBuild => VectorRequest::Build(points::build(args)?),
        VectorOp::Info => VectorRequest::Info(inspect::info(args)?),
        VectorOp::SetPayloadByFilter => {
            VectorRequest::ChangePayloads(inspect::set_payload(args, false, decoding)?)
        }
        VectorOp::OverwritePayloadByFilter => {
            VectorRequest::ChangePayloads(inspect::set_payload(args, true, decoding)?)
        }
        VectorOp::DeletePayloadKeysByFilter => {
            VectorRequest::ChangePayloads(inspect::delete_payload_keys(args)?)
        }
        VectorOp::ClearPayloadByFilter => VectorRequest::ChangePayloads(inspect::clear_payload(args)?),
        VectorOp::Count => VectorRequest::Count(inspect::count(args)?),
        VectorOp::Facet => VectorRequest::Facet(inspect::facet(args)?),
        VectorOp::Sample => VectorRequest::Sample(inspect::sample(args, decoding.now_ms)?),
        VectorOp::Operate => VectorRequest::Operate(points::operate(args)?),
        VectorOp::Write | VectorOp::WriteBatch | VectorOp::SearchBatch | VectorOp::SearchMmr => {
            return Err(ArgsError::NotRegistered.into());
        }
    })
}

/// `C`, `s32 JSON`: new values for keys of a configuration; then nothing, or `s32 JSON` with new values for the collection keys of a collection of
/// named spaces.
fn change_config(family: Family, args: &mut ArgsReader<'_>) -> Result<VectorRequest, ApiError> {
    let (collection, json) = (parts::collection(args)?, args.s32("change")?);
    let whole = if args.is_empty() { &[] } else { args.s32("collectionKeys")? };
    let change = decode_bare_change(family, ("change", json), ("collectionKeys", whole))?;
    Ok(VectorRequest::ChangeConfig(ChangeConfig { collection, change }))
}

fn decode_named(
    op: NamedOp,
    args: &mut ArgsReader<'_>,
    decoding: &Decoding,
) -> Result<VectorRequest, ApiError> {
    Ok(match op {
        NamedOp::CreateCollection => VectorRequest::Create(named::create(args)?),
        NamedOp::DropCollection => {
            let (collection, family) = (parts::collection(args)?, Some(Family::Named));
            VectorRequest::Drop(DropCollection { collection, family })
        }
        NamedOp::AddSpace => VectorRequest::AddSpace(named::add_space(args)?),
        NamedOp::DropSpace => VectorRequest::DropSpace(named::drop_space(args)?),
        NamedOp::GetConfig => VectorRequest::GetNamedConfig(named::get_config(args)?),
        NamedOp::ChangeConfig => change_config(Family::Named, args)?,
        NamedOp::Upsert => {
            let (write, with_version) = named::upsert(args, decoding)?;
            VectorRequest::WriteNamed(write, with_version)
        }
        NamedOp::UpdateVectors => VectorRequest::UpdateVectors(named::update_vectors(args)?),
        NamedOp::Delete => VectorRequest::Delete(points::delete(args)?),
        NamedOp::DeletePoints => VectorRequest::DeleteByFilter(points::delete_by_filter(args)?),
        NamedOp::Exists => VectorRequest::Exists(points::exists(args)?),
        NamedOp::Get => VectorRequest::Get(points::get(args)?),
        NamedOp::GetBatch => VectorRequest::GetBatch(points::get_batch(args)?),
        NamedOp::SetPayload => VectorRequest::ChangePayload(points::set_payload(args, false, decoding)?),
        NamedOp::OverwritePayload => VectorRequest::ChangePayload(points::set_payload(args, true, decoding)?),
        NamedOp::DeletePayloadKeys => VectorRequest::ChangePayload(points::delete_payload_keys(args)?),
        NamedOp::ClearPayload => VectorRequest::ChangePayload(points::clear_payload(args)?),
        NamedOp::Search => VectorRequest::SearchNamed(named::search(args, false)?),
        NamedOp::SearchDocs => VectorRequest::SearchNamed(named::search(args, true)?),
        NamedOp::SearchMmr => VectorRequest::SearchNamed(named::mmr(args)?),
        NamedOp::SparseSearch => VectorRequest::SearchNamed(named::sparse_search(args)?),
        NamedOp::HybridSearch => VectorRequest::HybridNamed(named::hybrid(args)?),
        NamedOp::Query => VectorRequest::QueryNamed(named::query(args)?),
        NamedOp::Scroll => VectorRequest::Scroll(scroll::scroll_by_marker(args)?),
        NamedOp::Info => VectorRequest::Info(inspect::info(args)?),
        NamedOp::SetPayloadByFilter => {
            VectorRequest::ChangePayloads(inspect::set_payload(args, false, decoding)?)
        }
        NamedOp::OverwritePayloadByFilter => {
            VectorRequest::ChangePayloads(inspect::set_payload(args, true, decoding)?)
        }
        NamedOp::DeletePayloadKeysByFilter => {
            VectorRequest::ChangePayloads(inspect::delete_payload_keys(args)?)
        }
        NamedOp::ClearPayloadByFilter => VectorRequest::ChangePayloads(inspect::clear_payload(args)?),
        NamedOp::Count => VectorRequest::Count(inspect::count(args)?),
        NamedOp::Facet => VectorRequest::Facet(inspect::facet(args)?),
        NamedOp::Sample => VectorRequest::Sample(inspect::sample(args, decoding.now_ms)?),
        NamedOp::Operate => VectorRequest::Operate(points::operate(args)?),
        NamedOp::UpsertBatch | NamedOp::SearchBatch | NamedOp::BulkStage | NamedOp::BulkBuild => {
            return Err(ArgsError::NotRegistered.into());
        }
    })
}

fn decode_multi_vector(
    op: MultiVectorOp,
    args: &mut ArgsReader<'_>,
    decoding: &Decoding,
) -> Result<VectorRequest, ApiError> {
    Ok(match op {
        MultiVectorOp::CreateCollection => VectorRequest::Create(create::create_multi_vector(args)?),
        MultiVectorOp::DropCollection => VectorRequest::Drop(multi_vector::drop_collection(args)?),
        MultiVectorOp::GetConfig => VectorRequest::GetMultiVectorConfig(multi_vector::get_config(args)?),
        MultiVectorOp::ChangeConfig => change_config(Family::MultiVector, args)?,
        MultiVectorOp::Add => {
            let (add, with_version) = multi_vector::add(args, decoding)?;
            VectorRequest::AddDocuments(add, with_version)
        }
        MultiVectorOp::AddIfAbsent => {
            let (add, with_version) = multi_vector::add_if_absent(args, decoding)?;
            VectorRequest::AddDocumentIfAbsent(add, with_version)
        }
        MultiVectorOp::Delete => VectorRequest::Delete(points::delete(args)?),
        MultiVectorOp::DeletePoints => VectorRequest::DeleteByFilter(points::delete_by_filter(args)?),
        MultiVectorOp::Exists => VectorRequest::Exists(points::exists(args)?),
        MultiVectorOp::Get => VectorRequest::Get(points::get(args)?),
        MultiVectorOp::GetBatch => VectorRequest::GetBatch(points::get_batch(args)?),
        MultiVectorOp::SetPayload => {
            VectorRequest::ChangePayload(points::set_payload(args, false, decoding)?)
        }
        MultiVectorOp::OverwritePayload => {
            VectorRequest::ChangePayload(points::set_payload(args, true, decoding)?)
        }
        MultiVectorOp::DeletePayloadKeys => VectorRequest::ChangePayload(points::delete_payload_keys(args)?),
        MultiVectorOp::ClearPayload => VectorRequest::ChangePayload(points::clear_payload(args)?),
        MultiVectorOp::Search => VectorRequest::SearchDocuments(multi_vector::search(args)?),
        MultiVectorOp::HybridSearch => VectorRequest::HybridDocuments(multi_vector::hybrid(args)?),
        MultiVectorOp::Query => VectorRequest::QueryDocuments(multi_vector::query(args)?),
        MultiVectorOp::Scroll => VectorRequest::Scroll(scroll::scroll_by_marker(args)?),
        MultiVectorOp::Info => VectorRequest::Info(inspect::info(args)?),
        MultiVectorOp::SetPayloadByFilter => {
            VectorRequest::ChangePayloads(inspect::set_payload(args, false, decoding)?)
        }
        MultiVectorOp::OverwritePayloadByFilter => {
            VectorRequest::ChangePayloads(inspect::set_payload(args, true, decoding)?)
        }
        MultiVectorOp::DeletePayloadKeysByFilter => {
            VectorRequest::ChangePayloads(inspect::delete_payload_keys(args)?)
        }
        MultiVectorOp::ClearPayloadByFilter => VectorRequest::ChangePayloads(inspect::clear_payload(args)?),
        MultiVectorOp::Count => VectorRequest::Count(inspect::count(args)?),
        MultiVectorOp::Facet => VectorRequest::Facet(inspect::facet(args)?),
        MultiVectorOp::Sample => VectorRequest::Sample(inspect::sample(args, decoding.now_ms)?),
        MultiVectorOp::Operate => VectorRequest::Operate(points::operate(args)?),
        MultiVectorOp::AddBatch
        | MultiVectorOp::SearchBatch
        | MultiVectorOp::BulkStage
        | MultiVectorOp::BulkBuild => return Err(ArgsError::NotRegistered.into()),
    })
}
