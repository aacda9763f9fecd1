//! Decodes messages about collections of named spaces into the same operations that REST and the binary protocol use.

use super::parts::{
    clear_payload, delete, delete_by_filter, delete_payload_keys, filter, fusion, get, get_batch, read,
    read_options, scroll, search_options, set_payload, text_of, ttls, write_options,
};
use super::request::Request;
use super::{batch, inspect};
use crate::op::NamedOp;
use crate::op::{
    ApiError, CreateCollection, Diversity, DropCollection, DropSpace, ErrorKind, GetNamedConfig, HybridNamed,
    NamedPoint, SearchNamed, UpdateVectors, UpsertNamed, WriteOptions, check_partitions_of_one, check_ttl,
};
use crate::wire::config::{SpaceConfig, SpaceConfigs, WholeKeys};
use crate::wire::embedded::{payload_of, sparse_of};
use crate::wire::json::in_words;
use crate::wire::payloads::{Decoding, Payloads, encode_row};
use crate::wire::proto::messages::*;
use crate::wire::proto::{self, NamedUpsertBatchParts};
use crate::wire::query::named_query_of;
use nigh_engine::query::Source;
use nigh_engine::quoted::quoted;
use nigh_shard::core::PointFields;
use nigh_shard::family::Family;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// Decodes the message of a method into its request.
///
/// # Errors
/// The message is not a valid request.
pub fn decode(op: NamedOp, bytes: &[u8], decoding: &Decoding) -> Result<Request, ApiError> {
    Ok(match op {
        NamedOp::CreateCollection => Request::Create(create(read(bytes)?)?),
        NamedOp::DropCollection => {
            let collection = read::<DropCollectionRequest>(bytes)?.name;
            Request::Drop(DropCollection { collection, family: Some(Family::Named) })
        }
        NamedOp::AddSpace => {
            let NamedAddSpaceRequest { name, space, config_json } = read(bytes)?;
            let config: SpaceConfig = in_json("config_json", &config_json)?;
            Request::AddSpace(config.into_added(name, space)?)
        }
        NamedOp::DropSpace => {
            let NamedDropSpaceRequest { name: collection, space } = read(bytes)?;
            Request::DropSpace(DropSpace { collection, space })
        }
        NamedOp::GetConfig => {
            let message: NamedGetConfigRequest = read(bytes)?;
            Request::GetNamedConfig(GetNamedConfig { read: read_options!(message), collection: message.name })
        }
        NamedOp::ChangeConfig => inspect::change_config(Family::Named, bytes)?,
        NamedOp::Upsert => upsert(read(bytes)?, decoding)?,
        NamedOp::UpsertBatch => upsert_batch(read(bytes)?, decoding)?,
        NamedOp::UpdateVectors => {
            let message: NamedUpdateVectorsRequest = read(bytes)?;
            let write = write_options!(message);
            let (dense, sparse) = by_space(message.vectors)?;
            Request::UpdateVectors(UpdateVectors {
                collection: message.name,
                id: message.id.into(),
                dense,
                sparse,
                delete: message.delete,
                write,
            })
        }
        NamedOp::Delete => Request::Delete(delete(bytes)?),
        NamedOp::DeletePoints => Request::DeleteByFilter(delete_by_filter(bytes)?),
        NamedOp::Get => Request::Get(get(bytes)?),
        NamedOp::GetBatch => Request::GetBatch(get_batch(bytes)?),
        NamedOp::SetPayload => set_payload(bytes, false, decoding)?,
        NamedOp::OverwritePayload => set_payload(bytes, true, decoding)?,
        NamedOp::DeletePayloadKeys => delete_payload_keys(bytes)?,
        NamedOp::ClearPayload => clear_payload(bytes)?,
        NamedOp::Search => Request::SearchNamed(search(read(bytes)?, false)?),
        NamedOp::SearchDocs => Request::SearchNamed(search(read(bytes)?, true)?),
        NamedOp::SearchMmr => {
            let message: NamedMmrRequest = read(bytes)?;
            let lambda = message.lambda.unwrap_or(Diversity::LAMBDA_DEFAULT);
            Request::SearchNamed(SearchNamed {
                read: read_options!(message),
                source: Source::Dense(message.query),
                filter: filter(&message.filter_json)?,
                collection: message.name,
                space: message.vector_name,
                k: message.k.into(),
                with_rows: true,
                diversity: Some(Diversity { lambda, fetch_k: message.fetch_k.into() }),
                options: search_options(&message.options_json)?,
            })
        }
        NamedOp::SearchBatch => batch::decode(Family::Named, bytes)?,
        NamedOp::SparseSearch => {
            let message: NamedSparseSearchRequest = read(bytes)?;
            Request::SearchNamed(SearchNamed {
                read: read_options!(message),
                source: Source::Sparse(sparse_of(message.sparse_indices, message.sparse_values)?),
                filter: filter(&message.filter_json)?,
                collection: message.name,
                space: message.vector_name,
                k: message.k.into(),
                with_rows: false,
                diversity: None,
                options: search_options(&message.options_json)?,
            })
        }
        NamedOp::HybridSearch => {
            let message: NamedHybridRequest = read(bytes)?;
            let sparse = sparse_of(message.sparse_indices, message.sparse_values)?;
            Request::HybridNamed(HybridNamed {
                read: read_options!(message),
                method: fusion(&message.method, message.alpha, message.rrf_k)?,
                filter: filter(&message.filter_json)?,
                collection: message.name,
                dense: (message.dense_space, message.dense),
                sparse: (message.sparse_space, sparse),
                text: text_of(message.text, message.phrase, message.prefix)?,
                k: message.k.into(),
                dense_k: message.dense_k.into(),
                sparse_k: message.sparse_k.into(),
                options: search_options(&message.options_json)?,
            })
        }
        NamedOp::Query => {
            let message: NamedVectorQueryRequest = read(bytes)?;
            let (read, options) = (read_options!(message), search_options(&message.options_json)?);
            let spec =
                message.spec.ok_or_else(|| ApiError::invalid("spec is required: that of the query"))?;
            let mut named = named_query_of(spec)?;
            (named.0.collection, named.0.read, named.0.options) = (message.collection, read, options);
            Request::QueryNamed(named)
        }
        NamedOp::Scroll => {
            let message: NamedScrollRequest = read(bytes)?;
            Request::Scroll(scroll(ScrollRequest {
                collection: message.name,
                filter_json: message.filter_json,
                limit: message.limit,
                cursor: message.cursor,
                read_consistency: message.read_consistency,
                on_partition_unavailable: message.on_partition_unavailable,
                order_by: message.order_by,
                max_staleness: message.max_staleness,
            })?)
        }
        NamedOp::Info => inspect::info(bytes)?,
        NamedOp::SetPayloadByFilter => inspect::set_payloads(bytes, false, decoding)?,
        NamedOp::OverwritePayloadByFilter => inspect::set_payloads(bytes, true, decoding)?,
        NamedOp::DeletePayloadKeysByFilter => inspect::delete_keys_of_payloads(bytes)?,
        NamedOp::ClearPayloadByFilter => inspect::clear_payloads(bytes)?,
        NamedOp::Count => inspect::count(bytes)?,
        NamedOp::Facet => inspect::facet(bytes)?,
        NamedOp::Sample => inspect::sample(bytes, decoding.now_ms)?,
        NamedOp::Operate => inspect::operate(bytes)?,
        NamedOp::Exists | NamedOp::BulkStage | NamedOp::BulkBuild => {
            return Err(ApiError::new(ErrorKind::Internal, format!("{op:?} has no message")));
        }
    })
}

/// Decodes a field that holds JSON; an empty field means the default.
fn in_json<T: DeserializeOwned + Default>(field: &str, json: &str) -> Result<T, ApiError> {
    match json.as_bytes().trim_ascii() {
        b"" => Ok(T::default()),
        json => serde_json::from_slice(json)
            .map_err(|error| ApiError::invalid(format!("{field}: {}", in_words(&error)))),
    }
}

fn create(message: NamedCreateRequest) -> Result<CreateCollection, ApiError> {
    check_partitions_of_one(Some(message.partitions.into()))?;
    let spaces: SpaceConfigs = in_json("config_json", &message.config_json)?;
    let whole: WholeKeys = in_json("collection_json", &message.collection_json)?;
    Ok(CreateCollection { collection: message.name, config: spaces.into_config(whole)?.into() })
}

fn search(message: NamedSearchRequest, with_rows: bool) -> Result<SearchNamed, ApiError> {
    Ok(SearchNamed {
        read: read_options!(message),
        source: Source::Dense(message.query),
        filter: filter(&message.filter_json)?,
        collection: message.name,
        space: message.vector_name,
        k: message.k.into(),
        with_rows,
        diversity: None,
        options: search_options(&message.options_json)?,
    })
}

fn upsert(message: NamedUpsertRequest, decoding: &Decoding) -> Result<Request, ApiError> {
    let (write, with_version) = (write_options!(message), message.with_version);
    let point = NamedBatchPoint {
        id: message.id,
        vectors: message.vectors,
        metadata_json: message.metadata_json,
        ttl_ms: message.ttl_ms,
        expected_version: message.expected_version,
        has_expected_version: message.has_expected_version,
        key_ttl_ms: message.key_ttl_ms,
        content: message.content,
    };
    let points = vec![point_of(point, decoding.of(&message.name))?];
    Ok(Request::UpsertNamed(UpsertNamed { collection: message.name, points, write }, with_version))
}

fn upsert_batch(message: NamedUpsertBatchParts, decoding: &Decoding) -> Result<Request, ApiError> {
    let payloads = decoding.of(&message.name);
    let mut points = Vec::with_capacity(message.points.len());
    for (index, bytes) in message.points.into_iter().enumerate() {
        let point: NamedBatchPoint = proto::decode_part::<NamedUpsertBatchParts, _>(&bytes)
            .map_err(|error| ApiError::invalid(format!("points[{index}]: {error}")))?;
        let id = point.id;
        points.push(point_of(point, payloads).map_err(|error| ApiError {
            message: format!("points[{index}] with id {id}: {error}"),
            ..error
        })?);
    }
    let write = UpsertNamed { collection: message.name, points, write: WriteOptions::default() };
    Ok(Request::UpsertNamedBatch(write, message.with_version))
}

fn point_of(point: NamedBatchPoint, payloads: Payloads) -> Result<NamedPoint, ApiError> {
    check_ttl("ttl_ms", point.ttl_ms)?;
    let payload = payload_of("metadata_json", point.metadata_json.as_bytes(), payloads)?;
    let (id, row) =
        encode_row(&point.id.into(), payload, Some(point.content), &ttls(point.key_ttl_ms), payloads)?;
    let expected_version = point.has_expected_version.then_some(point.expected_version);
    let fields = PointFields { id, row, ttl_ms: point.ttl_ms, expected_version };
    let (dense, sparse) = by_space(point.vectors)?;
    Ok(NamedPoint { fields, dense, sparse })
}

/// Dense and sparse vectors by the names of their spaces.
type Spaces = (Vec<(String, Vec<f32>)>, Vec<(String, Vec<(u32, f32)>)>);

fn by_space(vectors: BTreeMap<String, NamedVectorList>) -> Result<Spaces, ApiError> {
    let (mut dense, mut all_sparse) = (Vec::new(), Vec::new());
    for (name, vector) in vectors {
        let NamedVectorList { values, sparse_indices, sparse_values, sparse } = vector;
        let located = |error: ApiError| ApiError::invalid(format!("vectors {}: {error}", quoted(&name)));
        if !sparse && sparse_indices.is_empty() && sparse_values.is_empty() {
            dense.push((name, values));
            continue;
        }
        if !values.is_empty() {
            return Err(located(ApiError::invalid(
                "the values of a dense vector stand beside those of a sparse one",
            )));
        }
        let vector = sparse_of(sparse_indices, sparse_values).map_err(located)?;
        all_sparse.push((name, vector));
    }
    Ok((dense, all_sparse))
}
