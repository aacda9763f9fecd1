//! Answers in a stream of messages. Each is made when the client has room for the one before it, so that a long answer takes no more
//! memory than a message of it.

use super::answers::{self, Answer, HitFormat};
use super::call::Call;
use super::execute::{put_found, shape};
use super::message::Fault;
use super::request::{Request, SearchBatch};
use crate::door::{Permit, Shape};
use crate::limits::{GRPC_SEARCHES_TOGETHER_MAX, INLINE_JSON_MAX_BYTES};
use crate::op::{ApiError, ErrorKind, ReadOptions, Scroll, SearchOptions, SearchPoints};
use crate::paged::ScrollReader;
use crate::room::Room;
use crate::wire::embedded::filter_of;
use crate::wire::proto::messages::{BatchSearch, ScrollResponse, SearchBatchResponse};
use bytes::Bytes;
use nigh_shard::account::MemoryUse;
use nigh_shard::core::{FoundPoint, QueryOutcome};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Instant;

/// Answers a call of a method with a stream. Each message is sent before the next one is made.
///
/// # Errors
/// Those of the operation, behind what was sent before; those of a message that is longer than one may be.
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
    let SearchBatch { collection, searches, with_rows, options, read } = batch;
    // No search may be there to do it.
    permit.components(&collection)?;
    let shape = shape(permit, &options, &collection)?;
    let (mut at, mut most) = (0, GRPC_SEARCHES_TOGETHER_MAX);
    while at < searches.len() {
        let group = searches[at..].iter().take(most).cloned().map(|one| {
            let (collection, options) = (collection.clone(), options.clone());
            async move {
                let began = Instant::now();
                let found = search(permit, collection, one, with_rows, options, read).await;
                if found.is_ok() {
                    call.searched(began.elapsed());
                }
                found
            }
        });
        // All of them end before any is sent: one that waits while the client takes its time might keep what other searches wait for.
        // And what was found becomes messages, which are counted, before that.
        let (mut messages, mut fault) = (Vec::with_capacity(most), None);
        for (index, found) in (at as u32..).zip(together(group).await) {
            match search_message(permit, index, found, shape.clone(), with_rows).await {
                Ok(message) => messages.push(message),
                Err(error) => {
                    fault = Some(error);
                    break;
                }
            }
        }
        let made = messages.len();
        for message in messages {
            call.send_message(message).await?;
        }
        match fault {
            // Messages that find no room together may find it one by one.
            Some(error) if made > 0 && error.kind == ErrorKind::Unavailable => {
                most = 1;
                call.taken().await?;
            }
            Some(error) => return Err(error.into()),
            None => {}
        }
        at += made;
        permit.env().breathe().await;
    }
    Ok(())
}

/// The message of one search of a batch.
async fn search_message(
    permit: &Permit,
    index: u32,
    found: Result<QueryOutcome, ApiError>,
    shape: Option<Shape>,
    with_rows: bool,
) -> Result<Bytes, ApiError> {
    let found = found.map_err(|error| located(index, error))?;
    let mut out = Answer::new(permit.account());
    out.put(&SearchBatchResponse { index, ..Default::default() });
    match with_rows {
        true => {
            let documents = |format: &HitFormat, hits: &[FoundPoint]| {
                let documents = hits.iter().map(|hit| format.document(hit)).collect();
                SearchBatchResponse { documents, ..Default::default() }
            };
            put_found(permit, found, shape, &mut out, documents).await;
        }
        false => {
            let results = |format: &HitFormat, hits: &[FoundPoint]| {
                let results = hits.iter().map(|hit| format.result(hit)).collect();
                SearchBatchResponse { results, ..Default::default() }
            };
            put_found(permit, found, shape, &mut out, results).await;
        }
    }
    out.finish().map_err(|error| located(index, error))
}

async fn search(
    permit: &Permit,
    collection: String,
    search: BatchSearch,
    with_rows: bool,
    options: SearchOptions,
    read: ReadOptions,
) -> Result<QueryOutcome, ApiError> {
    let BatchSearch { query: vector, k, filter_json } = search;
    let is_short = filter_json.len() <= INLINE_JSON_MAX_BYTES;
    // Counted by itself: the work goes on when the call has been given up.
    let held =
        permit.account().hold(MemoryUse::Requests, if is_short { 0 } else { filter_json.len() as u64 });
    let compile = move || {
        let _held = held;
        filter_of("filter_json", filter_json.as_bytes())
    };
    let filter = match is_short {
        true => compile(),
        false => permit.compute(compile).await,
    }?;
    let k = k.into();
    permit.run(SearchPoints { collection, vector, k, filter, with_rows, options, read }).await
}

/// An error with the place of the search in its batch.
fn located(index: u32, error: ApiError) -> ApiError {
    ApiError { message: format!("searches[{index}]: {error}"), ..error }
}

/// Waits for all of them, which run at the same time; what they come to, in their order.
async fn together<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = all.map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut is_ready = true;
        for (one, output) in running.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none()) {
            match one.as_mut().poll(cx) {
                Poll::Ready(ended) => *output = Some(ended),
                Poll::Pending => is_ready = false,
            }
        }
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
