//! Answers in a stream of messages. Each is made when the client has room for the one before it, so that a long answer takes no more
//! memory than a message of it.

use super::answers::{self, Answer};
use super::call::Call;
use super::decode::{Request, SearchBatch};
use super::execute::{put_documents, put_results};
use super::message::Fault;
use crate::door::Permit;
use crate::limits::{GRPC_SEARCHES_TOGETHER_MAX, INLINE_JSON_MAX_BYTES};
use crate::op::{ApiError, ErrorKind, ReadOptions, Scroll, SearchPoints};
use crate::paged::ScrollReader;
use crate::room::Room;
use crate::wire::embedded::filter_of;
use crate::wire::proto::messages::{BatchSearch, ScrollResponse, SearchBatchResponse};
use nigh_shard::core::FoundPoint;
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
        // A filter may pass over many pages.
        if !page.is_empty() || reader.is_done() {
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
    let SearchBatch { collection, searches, with_rows, read } = batch;
    // No search may be there to do it.
    permit.dim(&collection)?;
    let mut searches = (0..).zip(searches);
    loop {
        let group: Vec<_> = searches.by_ref().take(GRPC_SEARCHES_TOGETHER_MAX).collect();
        if group.is_empty() {
            return Ok(());
        }
        let group = group.into_iter().map(|(index, one)| {
            let collection = collection.clone();
            async move {
                let began = Instant::now();
                let found = search(permit, collection, one, with_rows, read).await;
                if found.is_ok() {
                    call.searched(began.elapsed());
                }
                (index, found)
            }
        });
        // All of them end before any is sent: one that waits while the client takes its time might keep what other searches wait for.
        for (index, found) in together(group).await {
            let found = found.map_err(|error| located(index, error))?;
            let mut out = Answer::new(permit.account());
            out.put(&SearchBatchResponse { index, ..Default::default() });
            match with_rows {
                true => {
                    let page = |documents| SearchBatchResponse { documents, ..Default::default() };
                    put_documents(permit, &found, &mut out, page).await;
                }
                false => {
                    let page = |results| SearchBatchResponse { results, ..Default::default() };
                    put_results(permit, &found, &mut out, page).await;
                }
            }
            drop(found);
            call.send_message(out.finish().map_err(|error| located(index, error))?).await?;
        }
        permit.env().breathe().await;
    }
}

async fn search(
    permit: &Permit,
    collection: String,
    search: BatchSearch,
    with_rows: bool,
    read: ReadOptions,
) -> Result<Vec<FoundPoint>, ApiError> {
    let BatchSearch { query: vector, k, filter_json } = search;
    let is_short = filter_json.len() <= INLINE_JSON_MAX_BYTES;
    let compile = move || filter_of("filter_json", filter_json.as_bytes());
    let filter = match is_short {
        true => compile(),
        false => permit.compute(compile).await,
    }?;
    let search = SearchPoints { collection, vector, k: k.into(), filter, with_rows, explain: false, read };
    permit.run(search).await
}

/// An error with the place of the search in its batch.
fn located(index: u32, error: ApiError) -> ApiError {
    ApiError { message: format!("searches[{index}]: {error}"), ..error }
}

/// Waits for all of them, which run at the same time; what they come to, in their order.
async fn together<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<(Pin<Box<F>>, Option<F::Output>)> = all.map(|one| (Box::pin(one), None)).collect();
    poll_fn(|cx| {
        let mut is_ready = true;
        for (one, output) in all.iter_mut().filter(|(_, output)| output.is_none()) {
            match one.as_mut().poll(cx) {
                Poll::Ready(ended) => *output = Some(ended),
                Poll::Pending => is_ready = false,
            }
        }
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    all.into_iter().filter_map(|(_, output)| output).collect()
}
