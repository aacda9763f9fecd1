//! Carrying out what calls ask for, through the door that serves the other transports as well.

use super::answers::{self, Answer};
use super::request::Request;
use crate::door::{Permit, Shape};
use crate::limits::{PAGE_BYTES, PAGE_POINTS};
use crate::op::{ApiError, ChangeAliases, ErrorKind, GetPoints, ListCollections, Operation, Scroll};
use crate::paged::{PointReader, ScrollReader};
use crate::wire::proto::messages::*;
use nigh_shard::core::{
    AliasChange, FoundGroup, FoundPoint, PointFields, QueryAnswer, QueryOutcome, Written,
};

/// Bytes of a result of a batch at most.
const BATCH_RESULT_BYTES: usize = 2 + 11 + 11 + 2;

/// What a call is answered with.
///
/// # Errors
/// Those of the operation; an answer that is longer than a message may be, or that other answers leave no room for.
pub async fn answer(permit: &Permit, request: Request) -> Result<Answer, ApiError> {
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
        Request::GetNamedConfig(request) => {
            let name = request.collection.clone();
            out.put(&answers::named_config(&name, &permit.run(request).await?));
        }
        Request::ListCollections => {
            let all = permit.run(ListCollections).await?;
            for page in all.chunks(PAGE_POINTS) {
                let collections = page.iter().map(answers::entry).collect();
                out.put(&ListCollectionsResponse { collections });
                permit.env().breathe().await;
            }
        }
        Request::Upsert(request) => {
            let id = request.batch.points.first().map_or(0, |point| point.id);
            upsert(permit, id, request, out).await?;
        }
        Request::UpsertNamed(request) => {
            let id = request.points.first().map_or(0, |point| point.fields.id);
            upsert(permit, id, request, out).await?;
        }
        Request::AddDocuments(request) => {
            let id = request.documents.first().map_or(0, |document| document.fields.id);
            upsert(permit, id, request, out).await?;
        }
        Request::UpsertBatch(request) => {
            let ids = ids_of(request.batch.points.iter());
            upsert_batch(permit, ids, request, out).await?;
        }
        Request::UpsertNamedBatch(request) => {
            let ids = ids_of(request.points.iter().map(|point| &point.fields));
            upsert_batch(permit, ids, request, out).await?;
        }
        Request::Delete(request) => out.put(&DeleteResponse { deleted: permit.run(request).await? }),
        Request::DeleteByFilter(request) => {
            let deleted = i32::try_from(permit.run(request).await?).unwrap_or(i32::MAX);
            out.put(&DeleteByFilterResponse { deleted });
        }
        Request::Get(request) => {
            let (collection, id) = (request.collection.clone(), request.ids.first().copied().unwrap_or(0));
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
        Request::ChangePayload(request) => {
            permit.run(request).await?;
            out.put(&PayloadResponse { applied: true });
        }
        Request::Search(request) => put_results(permit, &permit.run(request).await?, out, results).await,
        Request::SearchDocs(request) => {
            put_documents(permit, &permit.run(request).await?, out, documents).await;
        }
        Request::SearchGroups(request) => {
            let QueryOutcome { answer, incomplete, .. } = permit.run(request).await?;
            if let QueryAnswer::Groups(groups) = answer {
                let page = |groups| SearchGroupsResponse { groups, ..Default::default() };
                put_groups(permit, &groups, out, page).await;
            }
            out.put(&SearchGroupsResponse { incomplete, ..Default::default() });
        }
        Request::Hybrid(request) => {
            if let QueryAnswer::Hits(hits) = permit.run(request).await?.answer {
                put_results(permit, &hits, out, results).await;
            }
        }
        Request::SearchText(request) => {
            if let QueryAnswer::Hits(hits) = permit.run(request).await?.answer {
                put_documents(permit, &hits, out, documents).await;
            }
        }
        Request::Query(request) => query(permit, request, out).await?,
        Request::SearchNamed(request) => {
            let with_rows = request.with_rows;
            if let QueryAnswer::Hits(hits) = permit.run(request).await?.answer {
                match with_rows {
                    true => put_documents(permit, &hits, out, documents).await,
                    false => put_results(permit, &hits, out, results).await,
                }
            }
        }
        Request::HybridNamed(request) => {
            if let QueryAnswer::Hits(hits) = permit.run(request).await?.answer {
                put_results(permit, &hits, out, results).await;
            }
        }
        Request::QueryNamed(request) => query(permit, request, out).await?,
        Request::SearchDocuments(request) => {
            if let QueryAnswer::Hits(hits) = permit.run(request).await?.answer {
                let scored = |hit: &FoundPoint, now_ms| MVSearchResponse {
                    results: vec![answers::scored(hit, now_ms)],
                    ..Default::default()
                };
                put_each(permit, &hits, out, scored).await;
            }
        }
        Request::HybridDocuments(request) => {
            if let QueryAnswer::Hits(hits) = permit.run(request).await?.answer {
                put_results(permit, &hits, out, results).await;
            }
        }
        Request::QueryDocuments(request) => query(permit, request, out).await?,
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
    id: u64,
    write: O,
    out: &mut Answer,
) -> Result<(), ApiError> {
    match permit.run(write).await?.contains(&Written::Conflict) {
        true => Err(ApiError::version_conflict(id)),
        false => {
            out.put(&UpsertResponse { id });
            Ok(())
        }
    }
}

/// The ids of a batch whose answer has an outcome for each: where any has a condition.
fn ids_of<'a>(points: impl Iterator<Item = &'a PointFields> + Clone) -> Vec<u64> {
    let conditional = points.clone().any(|point| point.expected_version.is_some());
    if conditional { points.map(|point| point.id).collect() } else { Vec::new() }
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

/// A query of any lanes.
async fn query<O: Operation<Output = QueryOutcome>>(
    permit: &Permit,
    request: O,
    out: &mut Answer,
) -> Result<(), ApiError> {
    let QueryOutcome { answer, incomplete, .. } = permit.run(request).await?;
    match answer {
        QueryAnswer::Hits(hits) => put_results(permit, &hits, out, results).await,
        QueryAnswer::Groups(groups) => {
            let page = |groups| SearchResponse { groups, ..Default::default() };
            put_groups(permit, &groups, out, page).await;
            out.put(&SearchResponse { incomplete, ..Default::default() });
        }
    }
    Ok(())
}

fn results(results: Vec<SearchResult>) -> SearchResponse {
    SearchResponse { results, ..Default::default() }
}

fn documents(documents: Vec<Document>) -> SearchDocsResponse {
    SearchDocsResponse { documents, ..Default::default() }
}

/// Appends results, with a chance for others after each page. One that becomes too long is given up.
pub async fn put_results<M: prost::Message>(
    permit: &Permit,
    hits: &[FoundPoint],
    out: &mut Answer,
    page: impl Fn(Vec<SearchResult>) -> M,
) {
    for hits in hits.chunks(8 * PAGE_POINTS) {
        out.put(&page(hits.iter().map(answers::result).collect()));
        if out.is_full() {
            return;
        }
        permit.env().breathe().await;
    }
}

/// Appends documents, likewise.
pub async fn put_documents<M: prost::Message>(
    permit: &Permit,
    hits: &[FoundPoint],
    out: &mut Answer,
    page: impl Fn(Vec<Document>) -> M,
) {
    put_each(permit, hits, out, |hit, now_ms| page(vec![answers::document(hit, now_ms)])).await;
}

/// Appends a message for each hit, with a chance for others after so many bytes.
async fn put_each<M: prost::Message>(
    permit: &Permit,
    hits: &[FoundPoint],
    out: &mut Answer,
    message: impl Fn(&FoundPoint, u64) -> M,
) {
    let now_ms = permit.unix_ms();
    let mut before = out.len();
    for hit in hits {
        out.put(&message(hit, now_ms));
        if out.len() - before > PAGE_BYTES {
            if out.is_full() {
                return;
            }
            before = out.len();
            permit.env().breathe().await;
        }
    }
}

/// Appends groups, likewise: whole ones.
async fn put_groups<M: prost::Message>(
    permit: &Permit,
    groups: &[FoundGroup],
    out: &mut Answer,
    page: impl Fn(Vec<Group>) -> M,
) {
    let now_ms = permit.unix_ms();
    let (mut before, mut hits) = (out.len(), 0);
    for group in groups {
        out.put(&page(vec![answers::group(group, now_ms)]));
        hits += group.hits.len();
        if hits >= PAGE_POINTS || out.len() - before > PAGE_BYTES {
            if out.is_full() {
                return;
            }
            (before, hits) = (out.len(), 0);
            permit.env().breathe().await;
        }
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
