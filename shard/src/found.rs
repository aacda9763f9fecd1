//! Copies of what a search has found: the payload rows of one answer lie in one piece of memory, which is accounted until the last of
//! them is dropped.

use crate::account::{Account, Charge, MemoryUse};
use crate::error::OpError;
use crate::found_vectors::{FoundVectors, VECTOR_HEAD_BYTES};
use crate::points::FoundPoint;
use bytes::Bytes;
use nigh_engine::collection::{Dense, SearchError};
use nigh_engine::index::Slot;
use nigh_engine::memory::Pin;
use nigh_engine::pace::Pace;
use nigh_engine::payload::{PayloadRow, bytes_without_tokens, narrowed, only_id, without_tokens};
use nigh_engine::point_id::IdKind;
use nigh_engine::query::Found;
use std::borrow::Cow;
use std::sync::Arc;

/// Payloads in one answer, as stored. They are copied under one pin, so that they show one moment.
const ANSWER_ROWS_MAX_BYTES: usize = 256 << 20;
/// Bytes that are copied in a step of a [`Pace`], fresh pages included.
const STEP_BYTES: usize = 512;
/// Steps that it takes to build a part of a short row.
const PART_STEPS: usize = 3;
/// Additions and multiplications of the decoding of token vectors that take as long as one step.
const DECODED_PER_STEP: usize = 512;

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

/// Which part of the payload of a hit is returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ShownPayload {
    /// Nothing.
    #[default]
    None,
    /// All of it.
    All,
    /// The values of these keys, which ascend; the text of a document has the key `$content`.
    Keys(Vec<String>),
}

/// Which payloads and vectors are returned with the hits of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Payloads.
    pub payload: ShownPayload,
    /// Vectors, sparse ones and those of tokens among them.
    pub vectors: bool,
}

impl Shown {
    /// Whole payloads or none, and no vectors.
    pub fn payloads_if(shown: bool) -> Shown {
        Shown { payload: if shown { ShownPayload::All } else { ShownPayload::None }, vectors: false }
    }

    /// What is returned of a row: an id that is a string in any case.
    fn row<'r>(&self, row: &'r [u8]) -> Cow<'r, [u8]> {
        match (&self.payload, self.vectors) {
            (ShownPayload::All, _) => without_tokens(row),
            (ShownPayload::None, false) => Cow::Owned(only_id(row)),
            (ShownPayload::None, true) => Cow::Owned(narrowed(row, |_| false, true)),
            (ShownPayload::Keys(keys), vectors) => {
                let is_shown = |key: &str| keys.binary_search_by(|shown| shown.as_str().cmp(key)).is_ok();
                Cow::Owned(narrowed(row, is_shown, vectors))
            }
        }
    }
}

/// The bytes that the vectors of a hit take.
fn vectors_bytes(dense: &Dense, slot: Slot, row: &[u8]) -> usize {
    let bytes = |dim: usize| VECTOR_HEAD_BYTES + dim * size_of::<f32>();
    let held = dense.spaces().iter().filter(|space| space.holds(slot));
    let spaces: usize = held.map(|space| bytes(space.config().dim)).sum();
    let tokens = match row {
        [] => 0,
        row => {
            let tokens = PayloadRow::trusted(row).tokens();
            tokens.len() * bytes(tokens.dim())
        }
    };
    spaces + tokens
}

/// Appends the vectors of a hit.
fn put_vectors(out: &mut Vec<u8>, dense: &Dense, pin: &Pin<'_>, slot: Slot, row: &[u8]) {
    if !row.is_empty() {
        for (position, vector) in PayloadRow::trusted(row).tokens().vectors().enumerate() {
            FoundVectors::put(out, position, vector.into_iter());
        }
    }
    for space in 0..dense.spaces().len() {
        if let Some(vector) = dense.vector(pin, slot, space) {
            FoundVectors::put(out, space, vector.iter().copied());
        }
    }
}

/// Rows and vectors in one piece, with the memory they take.
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

/// Hits as they are answered, with their payload rows and vectors when asked for, and with rows that hold their ids where these are strings. Copying
/// gives way at `pace`.
///
/// # Errors
/// [`OpError::BadRequest`] when they are too large for one answer, [`OpError::Busy`] when there is no room for them beside other
/// answers, [`SearchError::TooLong`] when the pace refuses.
pub(crate) async fn found_points(
    (dense, ids): (&Dense, IdKind),
    pin: &Pin<'_>,
    hits: &[Found],
    shown: &Shown,
    account: &Arc<Account>,
    pace: &mut impl Pace,
) -> Result<Vec<FoundPoint>, OpError> {
    // Each is looked up once: meanwhile the owner may give a slot another row, of another length, and what was found stays as it is
    // under the pin.
    let reads_rows = shown.vectors || shown.payload != ShownPayload::None || ids == IdKind::String;
    let found_rows: Vec<&[u8]> = match reads_rows {
        true => hits.iter().map(|hit| dense.row(pin, hit.slot)).collect(),
        false => Vec::new(),
    };
    let too_long = |bytes: usize| {
        let what = if shown.vectors { "payload and vectors" } else { "payload" };
        let text = format!(
            "{bytes} bytes of {what} would be in the answer, which holds at most {ANSWER_ROWS_MAX_BYTES}; ask for fewer points"
        );
        OpError::BadRequest(text)
    };
    // Parts of rows are taken out before anything is counted, so that an answer is refused for what it would hold alone.
    let (mut parts, mut part_bytes) = (Vec::new(), 0);
    let mut parts_charge: Option<Charge> = None;
    if shown.payload != ShownPayload::All {
        for row in &found_rows {
            let part = shown.row(row);
            part_bytes += part.len();
            if part_bytes > ANSWER_ROWS_MAX_BYTES {
                return Err(too_long(part_bytes));
            }
            parts.push(part);
            let charged = parts_charge.as_ref().map_or(ANSWER_UNCOUNTED_BYTES as u64, Charge::bytes);
            if part_bytes as u64 > charged {
                // Twice as much each time, so that counting costs little.
                let bytes = (2 * part_bytes).min(ANSWER_ROWS_MAX_BYTES);
                drop(parts_charge.take());
                parts_charge = charge_answer(account, bytes)?;
            }
            pace.step(PART_STEPS + row.len() / STEP_BYTES).await.map_err(SearchError::from)?;
        }
    }
    if let Some(charge) = &mut parts_charge {
        let _less_is_always_held = charge.resize(charge.bytes().min(part_bytes as u64), u64::MAX);
    }
    let row_bytes = match shown.payload {
        ShownPayload::All => found_rows.iter().map(|row| bytes_without_tokens(row)).sum(),
        _ => part_bytes,
    };
    let vector_bytes: usize = match shown.vectors {
        true => hits.iter().zip(&found_rows).map(|(hit, row)| vectors_bytes(dense, hit.slot, row)).sum(),
        false => 0,
    };
    let bytes: usize = row_bytes + vector_bytes;
    let found = |hit: &Found, row: Bytes, vectors: Bytes| {
        let Found { id, distance, score, .. } = *hit;
        FoundPoint { id, distance, score, row, vectors: FoundVectors(vectors) }
    };
    if bytes == 0 {
        return Ok(hits.iter().map(|hit| found(hit, Bytes::new(), Bytes::new())).collect());
    }
    if bytes > ANSWER_ROWS_MAX_BYTES {
        return Err(too_long(bytes));
    }
    let decoding = |row: &&[u8]| match shown.vectors && !row.is_empty() {
        true => PayloadRow::trusted(row).tokens().decoding_work() / DECODED_PER_STEP,
        false => 0,
    };
    let decoded: usize = found_rows.iter().map(decoding).sum();
    pace.foresee(hits.len() + bytes / STEP_BYTES + decoded).map_err(SearchError::from)?;
    let mut rows = Rows { charge: charge_answer(account, bytes)?, bytes: Vec::with_capacity(bytes) };
    let mut places = Vec::with_capacity(found_rows.len());
    for (index, (hit, row)) in hits.iter().zip(&found_rows).enumerate() {
        let start = rows.bytes.len();
        match parts.get(index) {
            Some(part) => rows.bytes.extend_from_slice(part),
            None => rows.bytes.extend_from_slice(&shown.row(row)),
        }
        let middle = rows.bytes.len();
        if shown.vectors {
            put_vectors(&mut rows.bytes, dense, pin, hit.slot, row);
        }
        let end = rows.bytes.len();
        places.push((start..middle, middle..end));
        pace.step(1 + (end - start) / STEP_BYTES + decoding(row)).await.map_err(SearchError::from)?;
    }
    let rows = Bytes::from_owner(rows);
    let placed = |(hit, (row, vectors))| found(hit, rows.slice(row), rows.slice(vectors));
    Ok(hits.iter().zip(places).map(placed).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_engine::collection::{DenseConfig, DenseWriter, Parts, Query, RowWrite, Write};
    use nigh_engine::distance::Metric;
    use nigh_engine::index::Scratch;
    use nigh_engine::memory::Domain;
    use nigh_engine::pace::{TooLong, at_once};
    use nigh_engine::payload::{PayloadRow, RowBuilder, Value, ValueRef};

    /// A row that says whose it is, of a length that `round` decides.
    fn row(id: u64, round: u64) -> Vec<u8> {
        let mut row = RowBuilder::new();
        row.set("id", Value::Int(id as i64), 0);
        row.set("text", Value::String("x".repeat((id * 7 + round * 13) as usize % 50)), 0);
        row.finish()
    }

    /// An owner that gives every point another row at each step of the reader.
    struct Rewriting<'w> {
        writer: &'w mut DenseWriter,
        points: u64,
        round: u64,
    }

    impl Pace for Rewriting<'_> {
        async fn step(&mut self, _: usize) -> Result<(), TooLong> {
            self.round += 1;
            for id in 0..self.points {
                let (seq, version) = (self.writer.seq() + 1, self.round + 1);
                let row = row(id, self.round);
                assert!(self.writer.apply_row(&RowWrite { seq, id, version, row: &row }));
            }
            Ok(())
        }
        fn foresee(&self, _: usize) -> Result<(), TooLong> {
            Ok(())
        }
    }

    /// An answer has room for the payloads of documents and not for their tokens; what it takes is known before anything is copied.
    #[test]
    fn tokens_are_not_in_answers() {
        let domain = Domain::new(1);
        let seat = domain.participant(0);
        let mut writer =
            DenseWriter::create(DenseConfig::new(1, Metric::L2), 1 << 12, domain.clone()).unwrap();
        for id in 0..40_u64 {
            let mut document = RowBuilder::from(PayloadRow::trusted(&row(id, 3)));
            document.set_sparse((0..id as u32 % 5).map(|at| (at, 1.0)).collect()).unwrap();
            let beside = document.clone().finish();
            document.set_tokens((0..id as u32).collect(), vec![0.5; 7 * id as usize]);
            let (seq, row) = (writer.seq() + 1, document.finish());
            assert!((beside.len()..=row.len()).contains(&bytes_without_tokens(&row)), "{id}");
            let parts = Parts::Only(&[id as f32]);
            writer.apply(Write { seq, id, version: 1, parts, row: &row, deadline_ms: 0 });
        }
        let dense = writer.shared().clone();
        let (pin, mut hits) = (seat.pin(), Vec::new());
        let query = Query { vector: &[0.0], k: 40, ef: 0, filter: None, exact: true, now_ms: 1 };
        dense.search(&pin, &query, &mut Scratch::default(), &mut hits).unwrap();
        let hits: Vec<Found> = hits.into_iter().map(Found::from).collect();
        let account = Account::new(u64::MAX);
        let mut pace = nigh_engine::pace::Whole::unbounded();
        let found = at_once(found_points(
            (&dense, IdKind::Number),
            &pin,
            &hits,
            &Shown::payloads_if(true),
            &account,
            &mut pace,
        ))
        .unwrap();
        assert_eq!(found.len(), 40);
        for point in found {
            let row = PayloadRow::verify(&point.row).expect("a whole row");
            assert_eq!(row.get("id", 1), Some(ValueRef::Int(point.id as i64)));
            assert_eq!((row.sparse().len(), row.tokens().len()), (point.id as usize % 5, 0));
        }
    }

    /// Lengths were summed, rows copied and places computed from three look-ups: rows that were replaced between these shifted the rows of
    /// all points behind them.
    #[test]
    fn rows_are_whole_while_the_owner_replaces_them() {
        let domain = Domain::new(1);
        let seat = domain.participant(0);
        let mut writer =
            DenseWriter::create(DenseConfig::new(1, Metric::L2), 1 << 12, domain.clone()).unwrap();
        let points = 20;
        for id in 0..points {
            let (seq, row) = (writer.seq() + 1, row(id, 0));
            writer.apply(Write {
                seq,
                id,
                version: 1,
                parts: Parts::Only(&[id as f32]),
                row: &row,
                deadline_ms: 0,
            });
        }
        let dense = writer.shared().clone();
        let (pin, mut hits) = (seat.pin(), Vec::new());
        let query = Query { vector: &[0.0], k: 20, ef: 0, filter: None, exact: true, now_ms: 1 };
        dense.search(&pin, &query, &mut Scratch::default(), &mut hits).unwrap();
        let hits: Vec<Found> = hits.into_iter().map(Found::from).collect();
        let account = Account::new(u64::MAX);
        let mut owner = Rewriting { writer: &mut writer, points, round: 0 };
        let found = at_once(found_points(
            (&dense, IdKind::Number),
            &pin,
            &hits,
            &Shown::payloads_if(true),
            &account,
            &mut owner,
        ))
        .unwrap();
        assert_eq!(found.len(), points as usize);
        assert!(owner.round >= points, "every copy of a row is a step");
        for point in found {
            let row = PayloadRow::verify(&point.row).expect("a whole row");
            assert_eq!(row.get("id", 1), Some(ValueRef::Int(point.id as i64)));
        }
    }
}
