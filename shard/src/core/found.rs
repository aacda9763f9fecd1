//! Copies of what a search has found: the payload rows of one answer lie in one piece of memory, which is accounted until the last of
//! them is dropped.

use super::types::{FoundPoint, OpError};
use crate::account::{Account, Charge, MemoryUse};
use bytes::Bytes;
use nigh_engine::collection::{Dense, Hit, SearchError};
use nigh_engine::memory::Pin;
use nigh_engine::pace::Pace;
use nigh_engine::query::Found;
use std::ops::Range;
use std::sync::Arc;

/// Payloads in one answer, as stored. They are copied under one pin, so that they show one moment.
const ANSWER_ROWS_MAX_BYTES: usize = 256 << 20;
/// Bytes that are copied in a step of a [`Pace`], fresh pages included.
const STEP_BYTES: usize = 512;

/// Answers up to this many bytes are not accounted: connections are capped, and counting would cost more than they do.
pub const ANSWER_UNCOUNTED_BYTES: usize = 16 << 10;
/// Bytes of answers being made or sent in the process: several of the largest. More are refused.
const ANSWERS_MAX_BYTES: u64 = 1 << 30;
/// The part of the memory limit that answers may hold at most.
const ANSWERS_SHARE: u64 = 4;

/// What a client is told whose answer finds no room beside those that others have not taken yet.
pub const ANSWERS_CROWDED: &str = "too many response bytes in flight; try again";

/// Most bytes that answers hold in a process with so much memory.
pub fn answers_most(limit_bytes: u64) -> u64 {
    ANSWERS_MAX_BYTES.min(limit_bytes / ANSWERS_SHARE)
}

/// Takes memory for an answer of so many bytes; none for a short one.
///
/// # Errors
/// [`OpError::Busy`] when answers hold as much as they may.
pub fn charge_answer(account: &Arc<Account>, bytes: usize) -> Result<Option<Charge>, OpError> {
    if bytes <= ANSWER_UNCOUNTED_BYTES {
        return Ok(None);
    }
    let most = answers_most(account.limit_bytes());
    match account.charge(MemoryUse::Answers, bytes as u64, most) {
        Some(charge) => Ok(Some(charge)),
        None => Err(OpError::Busy(ANSWERS_CROWDED.into())),
    }
}

/// A hit whose row can be copied.
pub(crate) trait Copied {
    fn slot(&self) -> u32;
    /// Id, distance, score.
    fn ranks(&self) -> (u64, f32, f32);
}

impl Copied for Hit {
    fn slot(&self) -> u32 {
        self.slot
    }
    fn ranks(&self) -> (u64, f32, f32) {
        (self.id, self.distance, 0.0)
    }
}

impl Copied for Found {
    fn slot(&self) -> u32 {
        self.slot
    }
    fn ranks(&self) -> (u64, f32, f32) {
        (self.id, self.distance, self.score)
    }
}

/// Rows in one piece, with the memory they take.
struct Rows {
    bytes: Vec<u8>,
    #[allow(dead_code, reason = "held until the rows are dropped")]
    charge: Option<Charge>,
}

impl AsRef<[u8]> for Rows {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Hits as they are answered, with their payload rows when asked for. Copying gives way at `pace`.
///
/// # Errors
/// [`OpError::BadRequest`] when the rows are too large for one answer, [`OpError::Busy`] when there is no room for them beside other
/// answers, [`SearchError::TooLong`] when the pace refuses.
pub(crate) async fn found_points<H: Copied>(
    dense: &Dense,
    pin: &Pin<'_>,
    hits: &[H],
    with_rows: bool,
    account: &Arc<Account>,
    pace: &mut impl Pace,
) -> Result<Vec<FoundPoint>, OpError> {
    let row = |hit: &H| dense.point(pin, hit.slot()).row;
    let bytes: usize = if with_rows { hits.iter().map(|hit| row(hit).len()).sum() } else { 0 };
    let found = |hit: &H, row: Bytes| {
        let (id, distance, score) = hit.ranks();
        FoundPoint { id, distance, score, row }
    };
    if bytes == 0 {
        return Ok(hits.iter().map(|hit| found(hit, Bytes::new())).collect());
    }
    if bytes > ANSWER_ROWS_MAX_BYTES {
        let text = format!(
            "{bytes} bytes of payload would be in the answer, which holds at most {ANSWER_ROWS_MAX_BYTES}; ask for fewer points"
        );
        return Err(OpError::BadRequest(text));
    }
    pace.foresee(hits.len() + bytes / STEP_BYTES).map_err(SearchError::from)?;
    let mut rows = Rows { charge: charge_answer(account, bytes)?, bytes: Vec::with_capacity(bytes) };
    for hit in hits {
        let row = row(hit);
        rows.bytes.extend_from_slice(row);
        pace.step(1 + row.len() / STEP_BYTES).await.map_err(SearchError::from)?;
    }
    let rows = Bytes::from_owner(rows);
    let mut at = 0;
    let mut place = |hit: &H| -> Range<usize> {
        let start = at;
        at += row(hit).len();
        start..at
    };
    Ok(hits.iter().map(|hit| found(hit, rows.slice(place(hit)))).collect())
}
