//! Routes of collections of named spaces, `/v1/named/{n}`.

use super::named_bodies::{
    decode_add_space, decode_create, decode_hybrid, decode_mmr, decode_query, decode_search,
    decode_sparse_search, decode_update_vectors, decode_upsert, read_batch, read_staged,
};
use super::parameters::{Query, ReadParameters, WriteParameters, with_version};
use super::points::BatchPages;
use super::routes::{Reached, point_id};
use super::search::HitKind;
use super::{
    RestService, batch_reply, decode_body, json_body, named_answer, not_found, ok, points, put_existed,
    shared, written_reply,
};
use crate::door::Permit;
use crate::http::{BodyReader, Collected, Reply, ReplyBody, json_reply};
use crate::op::{
    ApiError, CreateCollection, DropCollection, DropSpace, GetNamedConfig, NamedOp, QueryNamed, SentId,
    VectorOp, check_name,
};
use crate::wire::config::{spaces_object, whole_object};
use crate::wire::value::write_json;
use http::StatusCode;
use nigh_engine::collection::NamedConfig;
use nigh_shard::core::QueryOutcome;
use serde_json::Map;
use std::time::Instant;

impl RestService {
    pub(super) async fn named(
        &self,
        permit: &Permit,
        op: NamedOp,
        reached: Reached<'_>,
        query: Query<'_>,
        mut body: BodyReader,
    ) -> Result<Reply, ApiError> {
        let Reached { collection, id, space, .. } = reached;
        let collection = collection.into_owned();
        match op {
            NamedOp::CreateCollection => {
                let body = json_body(&mut body).await?;
                check_name(&collection)?;
                let config = decode_body(permit, body, decode_create).await?;
                let mut answer = named_answer("name", &collection);
                answer.extend_from_slice(b"}\n");
                permit.run(CreateCollection { collection, config: config.into() }).await?;
                Ok(json_reply(StatusCode::CREATED, ReplyBody::whole(answer)))
            }
            NamedOp::DropCollection => {
                let mut answer = named_answer("dropped", &collection);
                let family = Some(permit.family());
                put_existed(&mut answer, permit.run(DropCollection { collection, family }).await?);
                Ok(ok(answer))
            }
            NamedOp::AddSpace => {
                let body = json_body(&mut body).await?;
                let request =
                    decode_body(permit, body, move |body| decode_add_space(collection, body)).await?;
                let mut answer = named_answer("name", &request.space);
                answer.extend_from_slice(b"}\n");
                permit.run(request).await?;
                Ok(json_reply(StatusCode::CREATED, ReplyBody::whole(answer)))
            }
            NamedOp::DropSpace => {
                let space = space.into_owned();
                let mut answer = named_answer("dropped", &space);
                answer.extend_from_slice(b"}\n");
                permit.run(DropSpace { collection, space }).await?;
                Ok(ok(answer))
            }
            NamedOp::GetConfig => {
                let read = ReadParameters::of(query)?.with_body(ReadParameters::default())?;
                let config = permit.run(GetNamedConfig { collection: collection.clone(), read }).await?;
                Ok(ok(config_answer(&collection, &config)))
            }
            NamedOp::ChangeConfig => shared::change_config(permit, collection, body).await,
            NamedOp::Upsert => {
                let (payloads, write) = (permit.payloads(&collection), WriteParameters::of(query)?);
                let with_version = with_version(query)?;
                let body = json_body(&mut body).await?;
                let decode = move |body: &[u8]| decode_upsert(collection, body, write, payloads);
                let request = decode_body(permit, body, decode).await?;
                let id = request
                    .points
                    .first()
                    .map(|point| SentId::stored(point.fields.id, &point.fields.row))
                    .unwrap_or_default();
                // A write of one point has no points before it that the answer could count.
                let written =
                    permit.run(request).await.map_err(|error| ApiError { committed: None, ..error })?;
                written_reply(&id, &written, with_version)
            }
            NamedOp::UpsertBatch => {
                let (write, with_versions) = (WriteParameters::of(query)?, with_version(query)?);
                points::check_batch_options(write.write_consistency_factor, write.wait)?;
                let write = write.with_body(WriteParameters::default())?;
                let payloads = permit.payloads(&collection);
                let request = read_batch(collection, body, write, payloads).await?;
                let pages =
                    BatchPages::before(request.points.iter().map(|point| &point.fields), with_versions);
                batch_reply(permit, pages, request.points.len(), request).await
            }
            NamedOp::BulkStage => {
                // Write options are checked and then ignored, because staged points are held in memory only.
                WriteParameters::of(query)?.with_body(WriteParameters::default())?.validate()?;
                let payloads = permit.payloads(&collection);
                let staged = permit.run(read_staged(collection, body, payloads).await?).await?;
                Ok(ok(format!("{{\"staged\":{staged}}}\n")))
            }
            NamedOp::BulkBuild => shared::build(permit, collection, query, body).await,
            NamedOp::UpdateVectors => {
                let (id, write) = (point_id(permit, &collection, &id)?, WriteParameters::of(query)?);
                let body = json_body(&mut body).await?;
                let decode = move |body: &[u8]| decode_update_vectors(collection, id, body, write);
                let version = permit.run(decode_body(permit, body, decode).await?).await?;
                Ok(ok(format!("{{\"applied\":true,\"version\":{version}}}\n")))
            }
            NamedOp::Delete => shared::delete(permit, collection, &id, query, body).await,
            NamedOp::DeletePoints => shared::delete_points(permit, collection, query, body).await,
            NamedOp::Get => shared::get(permit, collection, &id, query, body).await,
            NamedOp::GetBatch => shared::get_batch(permit, collection, query, body).await,
            NamedOp::SetPayload
            | NamedOp::OverwritePayload
            | NamedOp::DeletePayloadKeys
            | NamedOp::ClearPayload => {
                shared::change_payload(permit, change_of(op), collection, &id, query, body).await
            }
            NamedOp::Info => shared::info(permit, collection).await,
            NamedOp::SetPayloadByFilter
            | NamedOp::OverwritePayloadByFilter
            | NamedOp::DeletePayloadKeysByFilter
            | NamedOp::ClearPayloadByFilter => {
                shared::change_payloads(permit, change_of(op), collection, query, body).await
            }
            NamedOp::Operate => shared::operate(permit, collection, &id, query, body).await,
            NamedOp::Scroll => shared::scroll(permit, collection, query, body).await,
            NamedOp::Count => shared::count(permit, collection, body).await,
            NamedOp::Facet => shared::facet(permit, collection, body).await,
            NamedOp::Sample => shared::sample(permit, collection, body).await,
            // The table has no routes for these operations.
            NamedOp::Exists => Ok(not_found()),
            NamedOp::SearchBatch => self.search_batch(permit, collection, query, body, false).await,
            NamedOp::Search
            | NamedOp::SearchDocs
            | NamedOp::SearchMmr
            | NamedOp::SparseSearch
            | NamedOp::HybridSearch
            | NamedOp::Query => {
                let read = ReadParameters::of(query)?;
                let (body, received) = (json_body(&mut body).await?, Instant::now());
                let outcome = found(permit, op, collection.clone(), body, read).await?;
                let kind = match op {
                    NamedOp::SearchDocs | NamedOp::SearchMmr => HitKind::Document,
                    _ => HitKind::Result,
                };
                self.lanes_reply(permit, &collection, outcome, (kind, op == NamedOp::Query), received)
            }
        }
    }
}

/// Decodes a search and runs it.
async fn found(
    permit: &Permit,
    op: NamedOp,
    collection: String,
    body: Collected,
    read: ReadParameters,
) -> Result<QueryOutcome, ApiError> {
    match op {
        NamedOp::SearchMmr => {
            let decode = move |body: &[u8]| decode_mmr(collection, body, read);
            permit.run(decode_body(permit, body, decode).await?).await
        }
        NamedOp::SparseSearch => {
            let decode = move |body: &[u8]| decode_sparse_search(collection, body, read);
            permit.run(decode_body(permit, body, decode).await?).await
        }
        NamedOp::HybridSearch => {
            let decode = move |body: &[u8]| decode_hybrid(collection, body, read);
            permit.run(decode_body(permit, body, decode).await?).await
        }
        NamedOp::Query => {
            let decode = move |body: &[u8]| decode_query(collection, body, read);
            let request: QueryNamed = decode_body(permit, body, decode).await?;
            permit.run(request).await
        }
        _ => {
            let with_rows = op == NamedOp::SearchDocs;
            let decode = move |body: &[u8]| decode_search(collection, body, read, with_rows);
            permit.run(decode_body(permit, body, decode).await?).await
        }
    }
}

/// The change of a payload by its name in a dense collection.
fn change_of(op: NamedOp) -> VectorOp {
    match op {
        NamedOp::SetPayload => VectorOp::SetPayload,
        NamedOp::OverwritePayload => VectorOp::OverwritePayload,
        NamedOp::DeletePayloadKeys => VectorOp::DeletePayloadKeys,
        NamedOp::SetPayloadByFilter => VectorOp::SetPayloadByFilter,
        NamedOp::OverwritePayloadByFilter => VectorOp::OverwritePayloadByFilter,
        NamedOp::DeletePayloadKeysByFilter => VectorOp::DeletePayloadKeysByFilter,
        NamedOp::ClearPayloadByFilter => VectorOp::ClearPayloadByFilter,
        _ => VectorOp::ClearPayload,
    }
}

/// The answer of `GET …/config`. It has, for each dense space, `dim` and every key that is not 0, and the collection keys that are set.
fn config_answer(collection: &str, config: &NamedConfig) -> Vec<u8> {
    let mut out = Vec::new();
    let mut answer = Map::from_iter([
        ("name".to_owned(), collection.into()),
        ("named_vectors".to_owned(), spaces_object(config).into()),
    ]);
    answer.append(&mut whole_object(&config.whole));
    write_json(&mut out, &answer);
    out.push(b'\n');
    out
}
