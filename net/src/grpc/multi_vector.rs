//! Decodes messages about multi-vector collections into the same operations that REST and the binary protocol use.

use super::configuration::tokens_config_of;
use super::parts::{
    clear_payload, delete, delete_by_filter, delete_payload_keys, filter, fusion, get, get_batch, no_config,
    read, read_options, scroll, search_options, set_payload, text_of, ttls, write_options,
};
use super::request::Request;
use super::{batch, inspect};
use crate::op::MultiVectorOp;
use crate::op::{
    AddDocuments, ApiError, CreateCollection, Document, DropCollection, ErrorKind, GetMultiVectorConfig,
    HybridDocuments, SearchDocuments,
};
use crate::wire::embedded::{payload_of, sparse_of};
use crate::wire::payloads::{Decoding, encode_row};
use crate::wire::proto::TokenVector;
use crate::wire::proto::messages::*;
use crate::wire::query::document_query_of;
use nigh_shard::core::PointFields;
use nigh_shard::family::Family;

/// Decodes the message of a method into its request.
///
/// # Errors
/// The message is not a valid request.
pub fn decode(op: MultiVectorOp, bytes: &[u8], decoding: &Decoding) -> Result<Request, ApiError> {
    Ok(match op {
        MultiVectorOp::CreateCollection => {
            let MVCreateRequest { name, config } = read(bytes)?;
            let config = tokens_config_of(config.ok_or_else(no_config)?)?;
            Request::Create(CreateCollection { collection: name, config: config.into() })
        }
        MultiVectorOp::DropCollection => {
            let collection = read::<DropCollectionRequest>(bytes)?.name;
            Request::Drop(DropCollection { collection, family: Some(Family::MultiVector) })
        }
        MultiVectorOp::Add => add(read(bytes)?, decoding)?,
        MultiVectorOp::Delete => Request::Delete(delete(bytes)?),
        MultiVectorOp::Get => Request::Get(get(bytes)?),
        MultiVectorOp::GetBatch => Request::GetBatch(get_batch(bytes)?),
        MultiVectorOp::SetPayload => set_payload(bytes, false, decoding)?,
        MultiVectorOp::OverwritePayload => set_payload(bytes, true, decoding)?,
        MultiVectorOp::DeletePayloadKeys => delete_payload_keys(bytes)?,
        MultiVectorOp::ClearPayload => clear_payload(bytes)?,
        MultiVectorOp::Search => {
            let message: MVSearchRequest = read(bytes)?;
            Request::SearchDocuments(SearchDocuments {
                read: read_options!(message),
                filter: filter(&message.filter_json)?,
                collection: message.name,
                query: tokens(message.query),
                k: message.k.into(),
                candidates_per_token: message.candidates_per_token.into(),
                options: search_options(&message.options_json)?,
            })
        }
        MultiVectorOp::SearchBatch => batch::decode(Family::MultiVector, bytes)?,
        MultiVectorOp::HybridSearch => {
            let message: MVHybridRequest = read(bytes)?;
            Request::HybridDocuments(HybridDocuments {
                read: read_options!(message),
                method: fusion(&message.method, message.alpha, message.rrf_k)?,
                filter: filter(&message.filter_json)?,
                collection: message.name,
                query: tokens(message.query),
                sparse: sparse_of(message.sparse_indices, message.sparse_values)?,
                text: text_of(message.text, message.phrase, message.prefix)?,
                k: message.k.into(),
                dense_k: message.dense_k.into(),
                sparse_k: message.sparse_k.into(),
                options: search_options(&message.options_json)?,
            })
        }
        MultiVectorOp::Query => {
            let message: MVVectorQueryRequest = read(bytes)?;
            let (read, options) = (read_options!(message), search_options(&message.options_json)?);
            let spec =
                message.spec.ok_or_else(|| ApiError::invalid("spec is required: that of the query"))?;
            let mut query = document_query_of(spec)?;
            (query.0.collection, query.0.read, query.0.options) = (message.collection, read, options);
            Request::QueryDocuments(query)
        }
        MultiVectorOp::Scroll => {
            let message: MVScrollRequest = read(bytes)?;
            Request::Scroll(scroll(ScrollRequest {
                collection: message.collection,
                filter_json: message.filter_json,
                limit: message.limit,
                cursor: message.cursor,
                read_consistency: message.read_consistency,
                on_partition_unavailable: message.on_partition_unavailable,
                order_by: message.order_by,
                max_staleness: message.max_staleness,
            })?)
        }
        MultiVectorOp::GetConfig => {
            let message: MVGetConfigRequest = read(bytes)?;
            let (read, collection) = (read_options!(message), message.name);
            Request::GetMultiVectorConfig(GetMultiVectorConfig { collection, read })
        }
        MultiVectorOp::ChangeConfig => inspect::change_config(Family::MultiVector, bytes)?,
        MultiVectorOp::DeletePoints => Request::DeleteByFilter(delete_by_filter(bytes)?),
        MultiVectorOp::Info => inspect::info(bytes)?,
        MultiVectorOp::SetPayloadByFilter => inspect::set_payloads(bytes, false, decoding)?,
        MultiVectorOp::OverwritePayloadByFilter => inspect::set_payloads(bytes, true, decoding)?,
        MultiVectorOp::DeletePayloadKeysByFilter => inspect::delete_keys_of_payloads(bytes)?,
        MultiVectorOp::ClearPayloadByFilter => inspect::clear_payloads(bytes)?,
        MultiVectorOp::Count => inspect::count(bytes)?,
        MultiVectorOp::Facet => inspect::facet(bytes)?,
        MultiVectorOp::Sample => inspect::sample(bytes, decoding.now_ms)?,
        MultiVectorOp::Operate => inspect::operate(bytes)?,
        MultiVectorOp::AddIfAbsent
        | MultiVectorOp::AddBatch
        | MultiVectorOp::BulkStage
        | MultiVectorOp::BulkBuild
        | MultiVectorOp::Exists => {
            return Err(ApiError::new(ErrorKind::Internal, format!("{op:?} has no message")));
        }
    })
}

fn tokens(vectors: Vec<TokenVector>) -> Vec<Vec<f32>> {
    vectors.into_iter().map(|token| token.values).collect()
}

fn add(message: MVAddRequest, decoding: &Decoding) -> Result<Request, ApiError> {
    let payloads = decoding.of(&message.name);
    let (write, with_version) = (write_options!(message), message.with_version);
    let payload = payload_of("metadata_json", message.metadata_json.as_bytes(), payloads)?;
    let (id, row) =
        encode_row(&message.id.into(), payload, Some(message.content), &ttls(message.key_ttl_ms), payloads)?;
    let fields = PointFields { id, row, ttl_ms: 0, expected_version: write.expected_version };
    let sparse = sparse_of(message.sparse_indices, message.sparse_values)?;
    let document = Document { fields, tokens: tokens(message.tokens), sparse };
    let add = AddDocuments { collection: message.name, documents: vec![document], write };
    Ok(Request::AddDocuments(add, with_version))
}
