//! Carrying out what calls ask for, through the door that serves the other transports as well.

use super::answers::{self, Answer, HitFormat};
use super::request::Request;
use crate::auth::Authenticator;
use crate::door::{Permit, Shape};
use crate::limits::{PAGE_BYTES, PAGE_POINTS};
use crate::op::{
    AddKey, ApiError, ChangeAliases, ErrorKind, GetPoints, ListCollections, ListKeys, Operation, RevokeKey,
    Scroll, SearchOptions, SentId, operated,
};
use crate::paged::{PointReader, ScrollReader};
use crate::wire::proto::messages::*;
use nigh_shard::core::{
    AliasChange, FoundGroup, FoundPoint, PointFields, QueryAnswer, QueryOutcome, Shown, Written,
};
use nigh_shard::family::CollectionConfig;
use prost::Message as _;
use std::sync::Arc;

/// Bytes of a result of a batch at most.
const BATCH_RESULT_BYTES: usize = 2 + 11 + 11 + 2;

/// What a call is answered with.
///
/// # Errors
/// Returns the error of the operation, or an error if the answer is longer than a message may be or other answers leave no memory for it.
pub async fn answer(
    permit: &Permit,
    auth: &Arc<dyn Authenticator>,
    request: Request,
) -> Result<Answer, ApiError> {
    let mut answer = Answer::new(permit.account());
    let out = &mut answer;
    match request {
        Request::Health => out.put(&HealthResponse { status: "ok".to_owned() }),
        Request::Create(request) => {
            let name = request.collection.clone();
            permit.run(request).await?;
            out.put(&CreateCollectionResponse { name });
        }
        Request::Drop(request) => {
            let name = request.collection.clone();
            permit.run(request).await?;
            out.put(&DropCollectionResponse { name });
        }
        Request::GetConfig(request) => out.put(&answers::config(&permit.run(request).await?)?),
        Request::ChangeConfig(request) => {
            let name = request.collection.clone();
            let info = permit.run(request).await?;
            match &*info.config {
                CollectionConfig::Dense(_) => out.put(&answers::config(&info)?),
                CollectionConfig::Named(config) => out.put(&answers::named_config(&name, config)),
                CollectionConfig::MultiVector(config) => out.put(&answers::tokens_config(&name, config)),
            }
        }
        Request::GetNamedConfig(request) => {
            let name = request.collection.clone();
            out.put(&answers::named_config(&name, &permit.run(request).await?));
        }
        Request::GetInfo(request) => out.put(&answers::info(&permit.run(request).await?)),
        Request::GetMultiVectorConfig(request) => {
            let name = request.collection.clone();
            out.put(&answers::tokens_config(&name, &permit.run(request).await?));
        }
        Request::ListCollections => {
            let all = permit.run(ListCollections).await?;
            for page in all.chunks(PAGE_POINTS) {
                let collections = page.iter().map(answers::entry).collect();
                out.put(&ListCollectionsResponse { collections });
                permit.env().breathe().await;
            }
        }
        Request::Upsert(request, with_version) => {
            let id = request
                .batch
                .points
                .first()
                .map(|point| SentId::stored(point.id, &point.row))
                .unwrap_or_default();
            upsert(permit, id, request, with_version, out).await?;
        }
        Request::UpsertNamed(request, with_version) => {
            let id = request
                .points
                .first()
                .map(|point| SentId::stored(point.fields.id, &point.fields.row))
                .unwrap_or_default();
            upsert(permit, id, request, with_version, out).await?;
        }
        Request::AddDocuments(request, with_version) => {
            let id = request
                .documents
                .first()
                .map(|document| SentId::stored(document.fields.id, &document.fields.row))
                .unwrap_or_default();
            upsert(permit, id, request, with_version, out).await?;
        }
        Request::UpsertBatch(request, with_version) => {
            let ids = ids_of(request.batch.points.iter(), with_version);
            upsert_batch(permit, ids, request, out).await?;
        }
        Request::UpsertNamedBatch(request, with_version) => {
            let ids = ids_of(request.points.iter().map(|point| &point.fields), with_version);
            upsert_batch(permit, ids, request, out).await?;
        }
        Request::AddSpace(request) => {
            let space = request.space.clone();
            permit.run(request).await?;
            out.put(&NamedAddSpaceResponse { space });
        }
        Request::DropSpace(request) => {
            let space = request.space.clone();
            permit.run(request).await?;
            out.put(&NamedDropSpaceResponse { space });
        }
        Request::UpdateVectors(request) => {
            out.put(&NamedUpdateVectorsResponse { version: permit.run(request).await? });
        }
        Request::Delete(request) => out.put(&DeleteResponse { deleted: permit.run(request).await? }),
        Request::DeleteByFilter(request) => {
            let deleted = i32::try_from(permit.run(request).await?).unwrap_or(i32::MAX);
            out.put(&DeleteByFilterResponse { deleted });
        }
        Request::Get(request) => {
            let (collection, id) =
                (request.collection.clone(), request.ids.numbers.first().copied().unwrap_or(0));
            let (shape, with_vector) = (permit.shape(&collection)?, request.with_vector);
            let point = permit.run(request).await?.pop().flatten().ok_or_else(|| {
                let text = format!("point {id} not found in collection {collection:?}");
                ApiError::new(ErrorKind::NotFound, text)
            })?;
            let now_ms = permit.unix_ms();
            match shape {
                Shape::Spaces(spaces) => {
                    out.put(&answers::named_found(&point, &spaces, with_vector, now_ms));
                }
                Shape::Tokens => out.put(&answers::document_found(point, now_ms)),
                Shape::One => out.put(&answers::found(point, now_ms)),
            }
        }
        Request::GetBatch(request) => get_batch(permit, request, out).await?,
        Request::ChangePayload(request, with_version) => {
            let version = permit.run(request).await?;
            // A zero is not sent.
            out.put(&PayloadResponse { applied: true, version: if with_version { version } else { 0 } });
        }
        Request::ChangePayloads(request) => {
            out.put(&PayloadByFilterResponse { changed: permit.run(request).await? });
        }
        Request::Operate(request) => {
            let (id, key) = (request.id.clone(), request.key.clone());
            let (result, version) = operated(&id, &key, permit.run(request).await?)?;
            out.put(&OperateResponse { result, version });
        }
        Request::Count(request) => out.put(&CountResponse { count: permit.run(request).await? }),
        Request::Facet(request) => {
            let format = permit.payloads(&request.collection).format;
            let found = permit.run(request).await?;
            for page in found.chunks(PAGE_POINTS) {
                out.put(&FacetResponse {
                    facets: page.iter().map(|found| answers::facet_count(found, format)).collect(),
                });
                if out.is_full() {
                    break;
                }
                permit.env().breathe().await;
            }
        }
        Request::Sample(request) => {
            let (collection, filter) = (request.collection.clone(), request.filter.clone());
            let ids = permit.run(request).await?;
            let mut reader = ScrollReader::of_ids(permit, collection, filter, ids);
            loop {
                let before = out.len();
                let page = reader.next().await?;
                let now_ms = permit.unix_ms();
                for point in &page {
                    let documents = vec![answers::row_document(point.id, &point.row, now_ms)];
                    out.put(&SampleResponse { documents });
                }
                if reader.is_done() || out.is_full() {
                    break;
                }
                reader.wrote(out.len() - before);
                permit.env().breathe().await;
            }
        }
        Request::Search(request) => {
            let shape = shape(permit, &request.options, &request.collection)?;
            put_found(permit, permit.run(request).await?, shape, out, results).await;
        }
        Request::SearchDocs(request) => {
            let shape = shape(permit, &request.options, &request.collection)?;
            put_found(permit, permit.run(request).await?, shape, out, documents).await;
        }
        Request::SearchGroups(request) => {
            let shape = shape(permit, &request.options, &request.collection)?;
            let outcome = permit.run(request).await?;
            let incomplete = outcome.incomplete;
            put_grouped(permit, outcome, shape, out, SEARCH_GROUPS_FIELD).await;
            out.put(&SearchGroupsResponse { incomplete, ..Default::default() });
        }
        Request::Hybrid(request) => {
            let shape = shape(permit, &request.options, &request.collection)?;
            put_found(permit, permit.run(request).await?, shape, out, results).await;
        }
        Request::SearchText(request) => {
            let shape = shape(permit, &request.options, &request.collection)?;
            put_found(permit, permit.run(request).await?, shape, out, documents).await;
        }
        Request::Query(request) => {
            let shape = shape(permit, &request.options, &request.collection)?;
            query(permit, request, shape, out).await?;
        }
        Request::SearchNamed(request) => {
            let shape = shape(permit, &request.options, &request.collection)?;
            let with_rows = request.with_rows;
            let outcome = permit.run(request).await?;
            match with_rows {
                true => put_found(permit, outcome, shape, out, documents).await,
                false => put_found(permit, outcome, shape, out, results).await,
            }
        }
        Request::HybridNamed(request) => {
            let shape = shape(permit, &request.options, &request.collection)?;
            put_found(permit, permit.run(request).await?, shape, out, results).await;
        }
        Request::QueryNamed(request) => {
            let shape = shape(permit, &request.0.options, &request.0.collection)?;
            query(permit, request, shape, out).await?;
        }
        Request::SearchDocuments(request) => {
            let shape = shape(permit, &request.options, &request.collection)?;
            put_found(permit, permit.run(request).await?, shape, out, scored).await;
        }
        Request::HybridDocuments(request) => {
            let shape = shape(permit, &request.options, &request.collection)?;
            put_found(permit, permit.run(request).await?, shape, out, results).await;
        }
        Request::QueryDocuments(request) => {
            let shape = shape(permit, &request.0.options, &request.0.collection)?;
            query(permit, request, shape, out).await?;
        }
        Request::Scroll(request) => scroll(permit, request, out).await?,
        Request::ChangeAlias(change) => {
            permit.run(ChangeAliases { changes: vec![change.clone()] }).await?;
            match change {
                AliasChange::Create { alias, collection } => {
                    out.put(&CreateAliasResponse { alias, collection });
                }
                AliasChange::Delete { alias } => out.put(&DeleteAliasResponse { alias }),
            }
        }
        Request::ChangeAliases(request) => {
            let applied = i32::try_from(request.changes.len()).unwrap_or(i32::MAX);
            permit.run(request).await?;
            out.put(&AliasBatchResponse { applied });
        }
        Request::ListAliases(request) => {
            let all = permit.run(request).await?;
            for page in all.chunks(PAGE_POINTS) {
                out.put(&ListAliasesResponse { aliases: page.iter().map(answers::alias).collect() });
                permit.env().breathe().await;
            }
        }
        Request::AddKey(key) => {
            permit.run(AddKey { auth: auth.clone(), key }).await?;
            out.put(&KeysAck {});
        }
        Request::RevokeKey(token) => {
            permit.run(RevokeKey { auth: auth.clone(), token }).await?;
            out.put(&KeysAck {});
        }
        Request::ListKeys => {
            let keys = permit.run(ListKeys { auth: auth.clone() }).await?;
            // Pages of one message follow each other, and decoders join their lists.
            for page in keys.chunks(PAGE_POINTS) {
                out.put(&KeysListResponse { keys: page.iter().map(answers::key).collect() });
                permit.env().breathe().await;
            }
        }
        Request::Unmet(request) => match permit.run(request).await? {},
        Request::SearchBatch(_) => {
            return Err(ApiError::new(ErrorKind::Internal, "a batch of searches has many answers"));
        }
    }
    Ok(answer)
}

/// Writes one point.
async fn upsert<O: Operation<Output = Vec<Written>>>(
    permit: &Permit,
    id: SentId,
    write: O,
    with_version: bool,
    out: &mut Answer,
) -> Result<(), ApiError> {
    let version = match permit.run(write).await?.first() {
        Some(Written::Conflict) => return Err(ApiError::version_conflict(id)),
        Some(Written::Ok { version }) if with_version => *version,
        // A zero is not sent.
        Some(Written::Ok { .. }) | None => 0,
    };
    out.put(&UpsertResponse { id: id.number(), version });
    Ok(())
}

/// The ids of a batch whose answer has an outcome for each: where that is wanted, or any has a condition.
fn ids_of<'a>(points: impl Iterator<Item = &'a PointFields> + Clone, with_version: bool) -> Vec<u64> {
    let are_due = with_version || points.clone().any(|point| point.expected_version.is_some());
    if are_due { points.map(|point| point.id).collect() } else { Vec::new() }
}

/// Writes a batch of points, of which these ids are answered.
async fn upsert_batch<O: Operation<Output = Vec<Written>>>(
    permit: &Permit,
    ids: Vec<u64>,
    write: O,
    out: &mut Answer,
) -> Result<(), ApiError> {
    // Before anything is written, since what was written must be answered.
    out.reserve(ids.len() * (BATCH_RESULT_BYTES + size_of::<u64>() + size_of::<Written>()))?;
    let written = permit.run(write).await?;
    out.put(&UpsertBatchResponse { count: written.len() as u64, results: Vec::new() });
    for (ids, written) in ids.chunks(PAGE_POINTS).zip(written.chunks(PAGE_POINTS)) {
        let results = ids.iter().zip(written).map(|(id, written)| answers::written(*id, written)).collect();
        out.put(&UpsertBatchResponse { count: 0, results });
        permit.env().breathe().await;
    }
    Ok(())
}

/// What vectors the hits of a search have, if it asks for vectors.
pub fn shape(permit: &Permit, options: &SearchOptions, collection: &str) -> Result<Option<Shape>, ApiError> {
    options.with_vector.then(|| permit.shape(collection)).transpose()
}

/// How the hits of an outcome are shown.
fn format(permit: &Permit, shape: Option<Shape>) -> HitFormat {
    HitFormat { shape, now_ms: permit.unix_ms() }
}

/// Appends the report of a search, if it has one.
fn put_explanation(outcome: &QueryOutcome, out: &mut Answer) {
    if let Some(explained) = &outcome.explained {
        // The field `explain_json` has the same number in the answers of all searches.
        out.put(&SearchResponse { explain_json: answers::explanation(explained), ..Default::default() });
    }
}

/// A query of any lanes.
async fn query<O: Operation<Output = QueryOutcome>>(
    permit: &Permit,
    request: O,
    shape: Option<Shape>,
    out: &mut Answer,
) -> Result<(), ApiError> {
    let outcome = permit.run(request).await?;
    if let QueryAnswer::Groups(_) = &outcome.answer {
        let incomplete = outcome.incomplete;
        put_grouped(permit, outcome, shape, out, QUERY_GROUPS_FIELD).await;
        out.put(&SearchResponse { incomplete, ..Default::default() });
        return Ok(());
    }
    put_found(permit, outcome, shape, out, results).await;
    Ok(())
}

/// Hits as results.
pub fn results(format: &HitFormat, hits: &[FoundPoint]) -> SearchResponse {
    let results = hits.iter().map(|hit| format.result(hit)).collect();
    SearchResponse { results, ..Default::default() }
}

fn documents(format: &HitFormat, hits: &[FoundPoint]) -> SearchDocsResponse {
    let documents = hits.iter().map(|hit| format.document(hit)).collect();
    SearchDocsResponse { documents, ..Default::default() }
}

fn scored(format: &HitFormat, hits: &[FoundPoint]) -> MVSearchResponse {
    let results = hits.iter().map(|hit| format.scored(hit)).collect();
    MVSearchResponse { results, ..Default::default() }
}

/// Appends the hits of an outcome as messages of a few of them each, with a chance for others after a page. An answer that becomes too long is
/// given up.
pub async fn put_found<M: prost::Message>(
    permit: &Permit,
    outcome: QueryOutcome,
    shape: Option<Shape>,
    out: &mut Answer,
    message: impl Fn(&HitFormat, &[FoundPoint]) -> M,
) {
    let format = format(permit, shape);
    put_explanation(&outcome, out);
    let QueryAnswer::Hits(hits) = outcome.answer else { return };
    // Hits with payloads or vectors may be long, and are appended one by one.
    let has_rows = hits.first().is_some_and(|hit| !hit.row.is_empty());
    let is_bare = outcome.shown == Shown::default() && !has_rows;
    let (mut before, mut count) = (out.len(), 0);
    for hits in hits.chunks(if is_bare { 8 * PAGE_POINTS } else { 1 }) {
        out.put(&message(&format, hits));
        count += hits.len();
        if out.len() - before > PAGE_BYTES || count >= 8 * PAGE_POINTS {
            if out.is_full() {
                return;
            }
            (before, count) = (out.len(), 0);
            permit.env().breathe().await;
        }
    }
}

/// The number of `groups` in `SearchGroupsResponse`.
const SEARCH_GROUPS_FIELD: u32 = 1;
/// The number of `groups` in `SearchResponse`.
const QUERY_GROUPS_FIELD: u32 = 4;

/// Appends the groups of an outcome as the field with this number, behind its report. An answer that becomes too long is given up.
pub async fn put_grouped(
    permit: &Permit,
    outcome: QueryOutcome,
    shape: Option<Shape>,
    out: &mut Answer,
    field: u32,
) {
    put_explanation(&outcome, out);
    if let QueryAnswer::Groups(groups) = outcome.answer {
        put_groups(permit, &groups, &format(permit, shape), out, field).await;
    }
}

/// Appends groups, likewise, as the field with this number. Each is encoded hit by hit, as it may have thousands of long ones.
async fn put_groups(
    permit: &Permit,
    groups: &[FoundGroup],
    format: &HitFormat,
    out: &mut Answer,
    field: u32,
) {
    let (mut before, mut hits) = (out.len(), 0);
    for group in groups {
        let mut encoded = answers::group_key(group).encode_to_vec();
        for hit in &group.hits {
            // A vector of bytes grows as needed, so that there is always room.
            let _fits = format.part_of_group(hit).encode(&mut encoded);
            hits += 1;
            if hits >= PAGE_POINTS || out.len() + encoded.len() - before > PAGE_BYTES {
                if out.is_full_with(encoded.len()) {
                    // Too long from now on, or refused for want of room, which the end of the answer finds.
                    out.put_encoded(field, &encoded);
                    return;
                }
                (before, hits) = (out.len() + encoded.len(), 0);
                permit.env().breathe().await;
            }
        }
        out.put_encoded(field, &encoded);
    }
}

async fn get_batch(permit: &Permit, request: GetPoints, out: &mut Answer) -> Result<(), ApiError> {
    let (shape, with_vector) = (permit.shape(&request.collection)?, request.with_vector);
    let mut reader = PointReader::new(permit, request)?;
    loop {
        let before = out.len();
        let page = reader.next().await?;
        let mut missing = Vec::new();
        let now_ms = permit.unix_ms();
        for (id, point) in page {
            match (point, &shape) {
                (Some(point), Shape::One) => {
                    let points = vec![answers::point(point, now_ms)];
                    out.put(&GetBatchResponse { points, missing: Vec::new() });
                }
                (Some(point), Shape::Tokens) => {
                    let points = vec![answers::token_document(point, now_ms)];
                    out.put(&MVGetBatchResponse { points, missing: Vec::new() });
                }
                (Some(point), Shape::Spaces(spaces)) => {
                    let points = vec![answers::named_point(&point, spaces, with_vector, now_ms)];
                    out.put(&NamedGetBatchResponse { points, missing: Vec::new() });
                }
                (None, _) => missing.push(id),
            }
        }
        // The field `missing` has the same number in the answers of all families.
        out.put(&GetBatchResponse { points: Vec::new(), missing });
        if reader.is_done() || out.is_full() {
            return Ok(());
        }
        reader.wrote(out.len() - before);
        permit.env().breathe().await;
    }
}

async fn scroll(permit: &Permit, request: Scroll, out: &mut Answer) -> Result<(), ApiError> {
    let mut reader = ScrollReader::new(permit, request);
    loop {
        let before = out.len();
        let page = reader.next().await?;
        let now_ms = permit.unix_ms();
        for point in &page {
            let documents = vec![answers::row_document(point.id, &point.row, now_ms)];
            out.put(&ScrollResponse { documents, ..Default::default() });
        }
        if reader.is_done() || out.is_full() {
            out.put(&ScrollResponse { next_cursor: reader.cursor().to_owned(), ..Default::default() });
            return Ok(());
        }
        reader.wrote(out.len() - before);
        permit.env().breathe().await;
    }
}
