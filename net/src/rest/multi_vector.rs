//! Routes of multi-vector collections, `/v1/multivector/{n}`.

use super::multi_vector_bodies::{
    decode_add, decode_create, decode_hybrid, decode_query, decode_search, read_batch, read_staged,
};
use super::parameters::{Query, ReadParameters, WriteParameters, with_version};
use super::points::BatchPages;
use super::routes::Reached;
use super::search::HitKind;
use super::{
    RestService, batch_reply, decode_body, json_body, named_answer, not_found, ok, points, put_existed,
    shared, written_reply,
};
use crate::door::Permit;
use crate::http::{BodyReader, Collected, Reply, ReplyBody, json_reply};
use crate::limits;
use crate::op::{
    ApiError, CreateCollection, DropCollection, GetMultiVectorConfig, MultiVectorOp, QueryDocuments, SentId,
    VectorOp, check_name,
};
use crate::wire::config::tokens_object;
use crate::wire::value::write_json;
use http::StatusCode;
use nigh_shard::core::QueryOutcome;
use serde_json::json;
use std::time::Instant;

impl RestService {
    pub(super) async fn multi_vector(
        &self,
        permit: &Permit,
        op: MultiVectorOp,
        reached: Reached<'_>,
        query: Query<'_>,
        mut body: BodyReader,
    ) -> Result<Reply, ApiError> {
        let Reached { collection, id, .. } = reached;
        let collection = collection.into_owned();
        match op {
            MultiVectorOp::CreateCollection => {
                let body = json_body(&mut body).await?;
                check_name(&collection)?;
                let config = decode_body(permit, body, decode_create).await?;
                let mut answer = named_answer("name", &collection);
                answer.extend_from_slice(b"}\n");
                permit.run(CreateCollection { collection, config: config.into() }).await?;
                Ok(json_reply(StatusCode::CREATED, ReplyBody::whole(answer)))
            }
            MultiVectorOp::DropCollection => {
                let mut answer = named_answer("dropped", &collection);
                let family = Some(permit.family());
                put_existed(&mut answer, permit.run(DropCollection { collection, family }).await?);
                Ok(ok(answer))
            }
            MultiVectorOp::GetConfig => {
                let read = ReadParameters::of(query)?.with_body(ReadParameters::default())?;
                let request = GetMultiVectorConfig { collection: collection.clone(), read };
                let config = tokens_object(&permit.run(request).await?);
                let mut answer = Vec::new();
                write_json(&mut answer, &json!({ "name": collection, "config": config }));
                answer.push(b'\n');
                Ok(ok(answer))
            }
            MultiVectorOp::ChangeConfig => shared::change_config(permit, collection, body).await,
            MultiVectorOp::Add => {
                let (payloads, write) = (permit.payloads(&collection), WriteParameters::of(query)?);
                let with_version = with_version(query)?;
                body.limit(limits::JSON_BULK_BODY_MAX_BYTES)?;
                let body = body.whole().await?;
                let decode = move |body: &[u8]| decode_add(collection, body, write, payloads);
                let request = decode_body(permit, body, decode).await?;
                let id = request
                    .documents
                    .first()
                    .map(|document| SentId::stored(document.fields.id, &document.fields.row))
                    .unwrap_or_default();
                // A write of one document has no documents before it that the answer could count.
                let written =
                    permit.run(request).await.map_err(|error| ApiError { committed: None, ..error })?;
                written_reply(&id, &written, with_version)
            }
            MultiVectorOp::AddBatch => {
                let (write, with_versions) = (WriteParameters::of(query)?, with_version(query)?);
                points::check_batch_options(write.write_consistency_factor, write.wait)?;
                let write = write.with_body(WriteParameters::default())?;
                let payloads = permit.payloads(&collection);
                let request = read_batch(collection, body, write, payloads).await?;
                let fields = request.documents.iter().map(|document| &document.fields);
                let pages = BatchPages::before(fields, with_versions);
                batch_reply(permit, pages, request.documents.len(), request).await
            }
            MultiVectorOp::BulkStage => {
                // Write options are checked and then ignored, because staged documents are held in memory only.
                WriteParameters::of(query)?.with_body(WriteParameters::default())?.validate()?;
                let payloads = permit.payloads(&collection);
                let staged = permit.run(read_staged(collection, body, payloads).await?).await?;
                Ok(ok(format!("{{\"staged\":{staged}}}\n")))
            }
            MultiVectorOp::BulkBuild => shared::build(permit, collection, query, body).await,
            MultiVectorOp::Delete => shared::delete(permit, collection, &id, query, body).await,
            MultiVectorOp::DeletePoints => shared::delete_points(permit, collection, query, body).await,
            MultiVectorOp::Get => shared::get(permit, collection, &id, query, body).await,
            MultiVectorOp::GetBatch => shared::get_batch(permit, collection, query, body).await,
            MultiVectorOp::SetPayload
            | MultiVectorOp::OverwritePayload
            | MultiVectorOp::DeletePayloadKeys
            | MultiVectorOp::ClearPayload => {
                shared::change_payload(permit, change_of(op), collection, &id, query, body).await
            }
            MultiVectorOp::Info => shared::info(permit, collection).await,
            MultiVectorOp::SetPayloadByFilter
            | MultiVectorOp::OverwritePayloadByFilter
            | MultiVectorOp::DeletePayloadKeysByFilter
            | MultiVectorOp::ClearPayloadByFilter => {
                shared::change_payloads(permit, change_of(op), collection, query, body).await
            }
            MultiVectorOp::Operate => shared::operate(permit, collection, &id, query, body).await,
            MultiVectorOp::Scroll => shared::scroll(permit, collection, query, body).await,
            MultiVectorOp::Count => shared::count(permit, collection, body).await,
            MultiVectorOp::Facet => shared::facet(permit, collection, body).await,
            MultiVectorOp::Sample => shared::sample(permit, collection, body).await,
            MultiVectorOp::SearchBatch => self.search_batch(permit, collection, query, body, false).await,
            MultiVectorOp::Search | MultiVectorOp::HybridSearch | MultiVectorOp::Query => {
                let read = ReadParameters::of(query)?;
                let (body, received) = (json_body(&mut body).await?, Instant::now());
                let outcome = found(permit, op, collection.clone(), body, read).await?;
                let kind = if op == MultiVectorOp::Search { HitKind::Scored } else { HitKind::Result };
                // A hybrid search says nothing about partitions.
                let says_missing = op != MultiVectorOp::HybridSearch;
                self.lanes_reply(permit, &collection, outcome, (kind, says_missing), received)
            }
            // The table has no routes for these operations.
            MultiVectorOp::AddIfAbsent | MultiVectorOp::Exists => Ok(not_found()),
        }
    }
}

/// Decodes a search and runs it.
async fn found(
    permit: &Permit,
    op: MultiVectorOp,
    collection: String,
    body: Collected,
    read: ReadParameters,
) -> Result<QueryOutcome, ApiError> {
    match op {
        MultiVectorOp::Search => {
            let decode = move |body: &[u8]| decode_search(collection, body, read);
            permit.run(decode_body(permit, body, decode).await?).await
        }
        MultiVectorOp::HybridSearch => {
            let decode = move |body: &[u8]| decode_hybrid(collection, body, read);
            permit.run(decode_body(permit, body, decode).await?).await
        }
        _ => {
            let decode = move |body: &[u8]| decode_query(collection, body, read);
            let request: QueryDocuments = decode_body(permit, body, decode).await?;
            permit.run(request).await
        }
    }
}

/// The operation of dense collections that changes a payload in the same way.
fn change_of(op: MultiVectorOp) -> VectorOp {
    match op {
        MultiVectorOp::SetPayload => VectorOp::SetPayload,
        MultiVectorOp::OverwritePayload => VectorOp::OverwritePayload,
        MultiVectorOp::DeletePayloadKeys => VectorOp::DeletePayloadKeys,
        MultiVectorOp::SetPayloadByFilter => VectorOp::SetPayloadByFilter,
        MultiVectorOp::OverwritePayloadByFilter => VectorOp::OverwritePayloadByFilter,
        MultiVectorOp::DeletePayloadKeysByFilter => VectorOp::DeletePayloadKeysByFilter,
        MultiVectorOp::ClearPayloadByFilter => VectorOp::ClearPayloadByFilter,
        _ => VectorOp::ClearPayload,
    }
}
