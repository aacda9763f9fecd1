//! Answers in a stream of messages. Each is made when the client has room for the one before it, so that a long answer takes no more
//! memory than a message of it.

use super::answers::{self, Answer, HitFormat};
use super::batch::One;
use super::call::Call;
use super::execute::{put_found, put_grouped};
use super::message::Fault;
use super::request::{Common, Request, SearchBatch};
use super::status::Status;
use crate::door::{Permit, Shape};
use crate::limits::{GRPC_INLINE_BYTES, SEARCHES_TOGETHER_MAX};
use crate::op::{ApiError, ErrorKind, Scroll};
use crate::paged::ScrollReader;
use crate::room::Room;
use crate::together::together;
use crate::wire::proto::messages::{MVSearchBatchResponse, ScrollResponse, SearchBatchResponse};
use bytes::Bytes;
use nigh_shard::account::MemoryUse;
use nigh_shard::core::{FoundPoint, QueryAnswer, QueryOutcome};
use nigh_shard::family::Family;
use std::time::Instant;

/// The number of `groups` in the answers to one search of a batch, in all families.
const BATCH_GROUPS_FIELD: u32 = 103;

/// What one search of a batch has found.
struct Found {
    outcome: QueryOutcome,
    /// The shape of the vectors that its hits are shown with.
    shape: Option<Shape>,
    /// Whether it is a query of lanes.
    is_query: bool,
}

/// Answers a call of a method with a stream. Each message is sent before the next one is made.
///
/// # Errors
/// Returns the error of the operation, after the messages before it have been sent, or an error if a message is longer than is allowed.
pub async fn answer(call: &Call, permit: &Permit, request: Request) -> Result<(), Fault> {
    match request {
        Request::Scroll(request) => scroll(call, permit, request).await,
        Request::SearchBatch(batch) => search_batch(call, permit, batch).await,
        _ => Err(ApiError::new(ErrorKind::Internal, "the operation has one answer").into()),
    }
}

async fn scroll(call: &Call, permit: &Permit, request: Scroll) -> Result<(), Fault> {
    let mut reader = ScrollReader::new(permit, request);
    // A client may take its time, in which what was found is held.
    let mut held = Room::beyond(permit.account(), 0);
    loop {
        let page = reader.next().await?;
        if !held.holds(reader.waiting_bytes()) {
            return Err(answers::crowded().into());
        }
        let now_ms = permit.unix_ms();
        let mut out = Answer::new(permit.account());
        for point in &page {
            let documents = vec![answers::row_document(point.id, &point.row, now_ms)];
            out.put(&ScrollResponse { documents, ..Default::default() });
        }
        reader.wrote(out.len());
        let is_empty = page.is_empty();
        // They are in the message, whose client may take its time.
        drop(page);
        // A filter may pass over many pages.
        if !is_empty || reader.is_done() {
            out.put(&ScrollResponse { next_cursor: reader.cursor().to_owned(), ..Default::default() });
            call.send(out).await?;
        }
        if reader.is_done() {
            return Ok(());
        }
        permit.env().breathe().await;
    }
}

async fn search_batch(call: &Call, permit: &Permit, batch: SearchBatch) -> Result<(), Fault> {
    let SearchBatch { mut searches, with_errors, common } = batch;
    // No search may be there to do it.
    permit.expect(&common.collection)?;
    let (mut at, mut most) = (0, SEARCHES_TOGETHER_MAX);
    while at < searches.len() {
        let end = searches.len().min(at + most);
        let group = searches[at..end].iter().map(|one| search(call, permit, common.clone(), one.clone()));
        // All of them end before any is sent: one that waits while the client takes its time might keep what other searches wait for.
        // And what was found becomes messages, which are counted, before that.
        let (mut messages, mut fault) = (Vec::with_capacity(most), None);
        for (index, found) in (at as u32..).zip(together(&**permit.env(), group).await) {
            match search_message(permit, index, found, &common).await {
                Ok(message) => messages.push(message),
                // Messages that find no room together may find it one by one.
                Err(error) if with_errors && (error.kind != ErrorKind::Unavailable || most == 1) => {
                    match refused_message(permit, index, error) {
                        Ok(message) => messages.push(message),
                        Err(error) => fault = Some(located(index, error)),
                    }
                }
                Err(error) => fault = Some(located(index, error)),
            }
            if fault.is_some() {
                break;
            }
        }
        let made = messages.len();
        for message in messages {
            call.send_message(message).await?;
        }
        match fault {
            Some(error) if most > 1 && error.kind == ErrorKind::Unavailable => {
                most = 1;
                call.taken().await?;
            }
            Some(error) => return Err(error.into()),
            None => {}
        }
        searches[at..at + made].fill(Bytes::new());
        at += made;
        permit.env().breathe().await;
    }
    Ok(())
}

/// The message of one search of a batch.
async fn search_message(
    permit: &Permit,
    index: u32,
    found: Result<Found, ApiError>,
    common: &Common,
) -> Result<Bytes, ApiError> {
    let Found { outcome, shape, is_query } = found?;
    let mut out = Answer::new(permit.account());
    // The fields of both answers have the same numbers.
    out.put(&SearchBatchResponse { index, ..Default::default() });
    if let QueryAnswer::Groups(_) = &outcome.answer {
        let incomplete = outcome.incomplete;
        put_grouped(permit, outcome, shape, &mut out, BATCH_GROUPS_FIELD).await;
        out.put(&SearchBatchResponse { incomplete, ..Default::default() });
        return out.finish();
    }
    match (permit.family(), is_query, common.with_rows) {
        (Family::MultiVector, true, _) => {
            let query_results = |format: &HitFormat, hits: &[FoundPoint]| {
                let query_results = hits.iter().map(|hit| format.result(hit)).collect();
                MVSearchBatchResponse { query_results, ..Default::default() }
            };
            put_found(permit, outcome, shape, &mut out, query_results).await;
        }
        (Family::MultiVector, false, _) => {
            let scored = |format: &HitFormat, hits: &[FoundPoint]| {
                let results = hits.iter().map(|hit| format.scored(hit)).collect();
                MVSearchBatchResponse { results, ..Default::default() }
            };
            put_found(permit, outcome, shape, &mut out, scored).await;
        }
        (_, false, true) => {
            let documents = |format: &HitFormat, hits: &[FoundPoint]| {
                let documents = hits.iter().map(|hit| format.document(hit)).collect();
                SearchBatchResponse { documents, ..Default::default() }
            };
            put_found(permit, outcome, shape, &mut out, documents).await;
        }
        // A query of lanes is answered as it would be alone, where nothing can ask for documents.
        (_, true, _) | (_, false, false) => {
            let results = |format: &HitFormat, hits: &[FoundPoint]| {
                let results = hits.iter().map(|hit| format.result(hit)).collect();
                SearchBatchResponse { results, ..Default::default() }
            };
            put_found(permit, outcome, shape, &mut out, results).await;
        }
    }
    out.finish()
}

/// The message of a search that was refused.
fn refused_message(permit: &Permit, index: u32, error: ApiError) -> Result<Bytes, ApiError> {
    let Status { code, message: error, .. } = error.into();
    let mut out = Answer::new(permit.account());
    out.put(&SearchBatchResponse { index, error, code: code as i32, ..Default::default() });
    out.finish()
}

/// Decodes one search of a batch and carries it out.
async fn search(call: &Call, permit: &Permit, common: Common, message: Bytes) -> Result<Found, ApiError> {
    let (began, family) = (Instant::now(), permit.family());
    let collection = common.collection.clone();
    // The threshold is that of a whole call, because a spec of this length may hold tens of thousands of token vectors.
    let is_short = message.len() <= GRPC_INLINE_BYTES;
    // Counted by itself: the work goes on when the call has been given up.
    let held = permit.account().hold(MemoryUse::Requests, if is_short { 0 } else { message.len() as u64 });
    let decode = move || {
        let _held = held;
        One::decode(family, common, &message)
    };
    let one = match is_short {
        true => decode(),
        false => permit.compute(decode).await,
    }?;
    let is_query = one.is_query();
    let outcome = one.run(permit).await?;
    let shape = outcome.shown.vectors.then(|| permit.shape(&collection)).transpose()?;
    call.searched(began.elapsed());
    Ok(Found { outcome, shape, is_query })
}

/// An error with the place of the search in its batch.
fn located(index: u32, error: ApiError) -> ApiError {
    ApiError { message: format!("searches[{index}]: {error}"), ..error }
}
