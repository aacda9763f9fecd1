//! Writes and deletes of points: checks against the writer, a record in the log, and the change, without an await in between.

use super::effect::{self, Effect, NamedPart};
use super::texts::settle_texts;
use super::{Collections, Owned};
use crate::account::Growth;
use crate::error::{BatchError, OpError};
use crate::journal::{Journal, Purpose, RECORD_BYTES_MAX, RecordKey, Ticket};
use crate::payload_change::{check_row, check_same_id, finish_row};
use crate::points::{NamedVectors, PointFields, Vectors, WriteBatch, Written};
use crate::slice::WRITE_SLICE_NS;
use bytes::Bytes;
use nigh_engine::collection::{DenseWriter, Part, Parts, WriteError, WriteMode};
use nigh_engine::payload::{PayloadRow, RowBuilder};
use nigh_engine::point_id::SentId;
use std::borrow::Cow;
use std::cell::RefMut;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Row `index` of a batch as floats, decoded into `buffer` when it is not native.
pub fn batch_vector<'a>(
    vectors: &'a Vectors,
    dim: usize,
    index: usize,
    buffer: &'a mut Vec<f32>,
) -> &'a [f32] {
    match vectors {
        Vectors::Native(all) => &all[index * dim..(index + 1) * dim],
        Vectors::PerPoint(rows) => &rows[index],
        Vectors::Named(_) => &[],
        Vectors::BigEndianRows(bytes) => {
            decode_row(bytes, dim, index, buffer);
            buffer
        }
    }
}

fn decode_row(bytes: &Bytes, dim: usize, index: usize, buffer: &mut Vec<f32>) {
    let row = &bytes[index * (8 + 4 * dim)..][8..8 + 4 * dim];
    buffer.clear();
    buffer.extend(row.as_chunks::<4>().0.iter().map(|b| f32::from_be_bytes(*b)));
}

impl Collections {
    /// Writes a batch on the owner core, points in order.
    pub(crate) async fn owned_write(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        batch: WriteBatch,
    ) -> Result<Vec<Written>, BatchError> {
        let nothing = |error| BatchError { written: Vec::new(), point: None, error };
        let owned = self.owned(uid).ok_or_else(|| nothing(OpError::UnknownCollection(name.to_owned())))?;
        if matches!(batch.vectors, Vectors::Named(_)) != owned.writer.borrow().shared().is_named() {
            // It is of another family.
            return Err(nothing(OpError::UnknownCollection(name.to_owned())));
        }
        let env = self.env().clone();
        let mut written = Vec::with_capacity(batch.points.len());
        let mut ticket = None;
        let mut failure = None;
        let (mut vector_buffer, mut record) = (Vec::new(), Vec::new());
        let mut slice_start = env.now_ns();
        for (index, point) in batch.points.iter().enumerate() {
            let tail = owned.with_tail();
            let must_wait = || !owned.dropped.get() && tail.tail_is_full();
            if must_wait() {
                tail.tail_room.wait(&tail.changed, must_wait).await;
                slice_start = env.now_ns();
            }
            let began_ns = env.now_ns();
            let mut room = Ok(());
            for bytes in record_bytes(&owned, &batch, index) {
                if room.is_ok() && bytes > 0 {
                    room = self.ctx().wait_for_room(Purpose::Grow, bytes).await;
                }
            }
            if let Err(error) = room {
                failure = Some(error);
                break;
            }
            let vectors = match &batch.vectors {
                Vectors::Named(vectors) => PointVectors::Named(&vectors[index]),
                _ => PointVectors::Only(batch_vector(&batch.vectors, batch.dim, index, &mut vector_buffer)),
            };
            let outcome = match (owned.token_index.get(), vectors) {
                (Some(index), PointVectors::Named(vectors)) => {
                    self.write_document(&owned, index, (point, vectors), &mut record).await
                }
                _ => self.write_point(&owned, &batch, point, vectors, &mut record),
            };
            match outcome {
                Ok((version, logged)) => {
                    written.push(Written::Ok { version });
                    ticket = logged.or(ticket);
                    owned.handle.counters.insert_ops.fetch_add(1, Relaxed);
                }
                Err(OpError::Write(WriteError::VersionConflict { .. })) => written.push(Written::Conflict),
                Err(error) => {
                    owned.count_refusal(&error);
                    failure = Some(error);
                }
            }
            let is_long = owned.writer.borrow().points().has_texts_waiting();
            if is_long {
                settle_texts(&env, &owned.writer).await;
                slice_start = env.now_ns();
            }
            let now_ns = env.now_ns();
            owned.handle.counters.insert_latency.record_us((now_ns - began_ns) / 1000);
            if failure.is_some() {
                break;
            }
            if now_ns - slice_start > WRITE_SLICE_NS {
                owned.with_tail().changed.notify();
                env.yield_now().await;
                slice_start = env.now_ns();
            }
        }
        owned.changed.notify();
        owned.with_tail().changed.notify();
        if let Err(error) = self.ctx().wait_durable(ticket).await {
            return Err(nothing(error));
        }
        match failure {
            None => Ok(written),
            Some(error) => {
                let point = batch.points.get(written.len()).map(|point| SentId::stored(point.id, &point.row));
                Err(BatchError { written, point, error })
            }
        }
    }

    /// One point: admitted, decided on and committed, without an await in between.
    fn write_point(
        &self,
        owned: &Owned,
        batch: &WriteBatch,
        point: &PointFields,
        vectors: PointVectors<'_>,
        record: &mut Vec<u8>,
    ) -> Result<(u64, Option<Ticket>), OpError> {
        owned.usable()?;
        check_row(&point.row, &owned.handle)?;
        let mut writer = owned.writer.borrow_mut();
        let now_ms = self.env().unix_ms();
        check_same_id(&writer, point.id, &point.row, now_ms)?;
        let row;
        let (version, effect) = match vectors {
            PointVectors::Only(vector) => {
                self.room_for(&writer, point.row.len())?;
                decide_write(&writer, batch.mode, point, vector, owned.has_rate(self.env()), now_ms)?
            }
            PointVectors::Named(vectors) => {
                self.check_spaces(owned, &writer, vectors, &[])?;
                row = row_with_sparse(&writer, point, vectors, now_ms)?;
                self.room_for(&writer, row.len())?;
                decide_named(&writer, batch.mode, point, (vectors, &row), owned.has_rate(self.env()), now_ms)?
            }
        };
        let ticket = self.commit(owned, &mut writer, &effect, Purpose::Grow, record)?;
        self.populate_due(writer);
        Ok((version, ticket))
    }

    /// Lets go of the writer after a write. Slots that are to come get their memory on a thread that gives way to the cores.
    pub(super) fn populate_due(&self, mut writer: RefMut<'_, DenseWriter>) {
        let pages_due = writer.pages_due().map(|slots| (writer.shared().clone(), slots));
        drop(writer);
        if let Some((dense, slots)) = pages_due {
            self.env().spawn_compute(Box::new(move || dense.populate(slots)));
        }
    }

    /// Whether there is memory for a point with so large a row.
    pub(super) fn room_for(&self, writer: &DenseWriter, row_bytes: usize) -> Result<(), OpError> {
        let growth = if writer.points().reuses_slot() { Growth::Reuse } else { Growth::New };
        let bytes = writer.shared().bytes_of_point(row_bytes, growth == Growth::New);
        self.ctx().room_in_memory(bytes, growth)
    }

    /// Appends the effect of a decision to the journal and applies it. The decision was made on this borrow of the writer.
    ///
    /// # Errors
    /// The log takes nothing; nothing has changed.
    pub(super) fn commit(
        &self,
        owned: &Owned,
        writer: &mut DenseWriter,
        effect: &Effect<'_>,
        purpose: Purpose,
        record: &mut Vec<u8>,
    ) -> Result<Option<Ticket>, OpError> {
        owned.check_not_sealed()?;
        let seq = writer.seq() + 1;
        let key = RecordKey { collection: owned.handle.uid, seq };
        let ticket = self.ctx().append(purpose, key, record, |out| effect.encode(out))?;
        effect.apply(writer, seq);
        if let Some(index) = owned.token_index.get() {
            index.follow(writer, effect.id());
        }
        owned.note_delta(effect.id());
        Ok(ticket)
    }

    /// Deletes one id on the owner core; false when absent.
    pub(crate) async fn owned_delete(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        id: u64,
        expected_version: Option<u64>,
    ) -> Result<bool, OpError> {
        let owned = self.owned(uid).ok_or_else(|| OpError::UnknownCollection(name.to_owned()))?;
        let mut record = Vec::new();
        self.ctx().wait_for_room(Purpose::Free, effect::DELETE_BYTES).await?;
        let (deleted, ticket) = self.delete_point(&owned, id, expected_version, &mut record).await?;
        settle_texts(self.env(), &owned.writer).await;
        owned.changed.notify();
        self.ctx().wait_durable(ticket).await?;
        Ok(deleted)
    }

    /// Removes one id: decided on and committed, without an await in between. Tokens leave their index behind that, in slices.
    pub(crate) async fn delete_point(
        &self,
        owned: &Owned,
        id: u64,
        expected_version: Option<u64>,
        record: &mut Vec<u8>,
    ) -> Result<(bool, Option<Ticket>), OpError> {
        owned.usable()?;
        let (numbers, ticket) = {
            let mut writer = owned.writer.borrow_mut();
            if !writer.points().check_delete(id, expected_version, self.env().unix_ms())? {
                return Ok((false, None));
            }
            let index = owned.token_index.get();
            let (numbers, tokens) = index
                .map(|index| (index.numbers_of(&writer, id), index.tokens_of(&writer, id)))
                .unwrap_or_default();
            let ticket = self.commit(owned, &mut writer, &Effect::Delete { id }, Purpose::Free, record)?;
            if let Some(index) = index {
                index.count(tokens, 0);
            }
            (numbers, ticket)
        };
        if let Some(index) = owned.token_index.get() {
            self.remove_tokens(index, id, numbers, record).await;
        }
        Ok((true, ticket))
    }
}

/// The vectors of a point of a batch.
#[derive(Clone, Copy)]
enum PointVectors<'a> {
    Only(&'a [f32]),
    Named(&'a NamedVectors),
}

/// Bytes of the log record of the point at `index` of a batch, at most; behind them those of the tokens that enter an index with it, which
/// have records of their own.
fn record_bytes(owned: &Owned, batch: &WriteBatch, index: usize) -> [usize; 2] {
    let row = &batch.points[index].row;
    let bytes = match (&batch.vectors, owned.token_index.get()) {
        (Vectors::PerPoint(rows), _) => effect::write_bytes(rows[index].len(), row),
        (Vectors::Native(_) | Vectors::BigEndianRows(_), _) => effect::write_bytes(batch.dim, row),
        (Vectors::Named(vectors), Some(document_index)) => {
            let NamedVectors { sparse, tokens, .. } = &vectors[index];
            let sparse: usize = sparse.iter().map(|(_, vector)| 8 * vector.len()).sum();
            let row = row.len() + sparse + SPARSE_ROW_BYTES + document_index.row_bytes(tokens);
            // The log never waits for room for more than this at a time. Records beyond it are appended later, and are refused then if
            // there is no room.
            let records = document_index.record_bytes(tokens.len()).min(RECORD_BYTES_MAX);
            return [effect::named_bytes(0, 0, row), records];
        }
        (Vectors::Named(vectors), None) => {
            let writer = owned.writer.borrow();
            // The row gets sparse vectors: those that are sent, and those that the point keeps.
            let kept = writer.points().row_bytes(batch.points[index].id);
            let row = row.len() + kept + SPARSE_ROW_BYTES;
            effect::named_bytes(writer.spaces().len(), vectors[index].numbers(), row)
        }
    };
    [bytes, 0]
}

/// Bytes of a row with sparse vectors beside those of its entries and components, at most.
pub(super) const SPARSE_ROW_BYTES: usize = 2048;

/// The payload row of a point as it is written into a collection of named spaces: with the sparse vectors that are sent, and those that the
/// point keeps.
///
/// # Errors
/// A row that is too large; a vector that does not ascend.
fn row_with_sparse(
    writer: &DenseWriter,
    point: &PointFields,
    vectors: &NamedVectors,
    now_ms: u64,
) -> Result<Vec<u8>, OpError> {
    let old = writer.points().check_rewrite(point.id, None, now_ms)?.map_or(&[][..], |(row, _)| row);
    let old = PayloadRow::trusted(old);
    if vectors.sparse.is_empty() && old.sparse_spaces() == 0 {
        return Ok(point.row.clone());
    }
    let mut row = RowBuilder::from(PayloadRow::trusted(&point.row));
    let set = |row: &mut RowBuilder, space: usize, vector: Vec<(u32, f32)>| {
        row.set_sparse_of(space, vector).map_err(|error| OpError::Search(error.into()))
    };
    for space in (0..old.sparse_spaces()).filter(|space| writer.points().has_sparse_space(*space)) {
        set(&mut row, space, old.sparse_of(space).collect())?;
    }
    for (space, vector) in &vectors.sparse {
        set(&mut row, *space, vector.clone())?;
    }
    finish_row(row)
}

/// Decides on one write into named spaces at `now_ms`: the version that the point gets, and the effect.
///
/// # Errors
/// What the writer refuses.
fn decide_named<'a>(
    writer: &DenseWriter,
    mode: WriteMode,
    point: &PointFields,
    (vectors, row): (&'a NamedVectors, &'a [u8]),
    has_rate: impl FnOnce() -> bool,
    now_ms: u64,
) -> Result<(u64, Effect<'a>), OpError> {
    let has = writer.spaces_of(point.id, now_ms);
    let mut each = vec![Part::Absent; writer.spaces().len()];
    let mut parts = Vec::with_capacity(each.len());
    for (number, part) in each.iter_mut().enumerate() {
        if let Some((_, vector)) = vectors.dense.iter().find(|(space, _)| *space == number) {
            *part = Part::Given(vector);
            parts.push((number as u16, NamedPart::Given(Cow::Borrowed(&vector[..]))));
        } else if has >> number & 1 == 1 {
            *part = Part::Kept;
            parts.push((number as u16, NamedPart::Kept));
        }
    }
    let version =
        writer.check_write(point.id, Parts::Each(&each), mode, point.expected_version, has_rate, now_ms)?;
    let deadline_ms = deadline_of(point, now_ms);
    Ok((version, Effect::WriteNamed { id: point.id, version, deadline_ms, parts, row }))
}

fn deadline_of(point: &PointFields, now_ms: u64) -> u64 {
    if point.ttl_ms > 0 { now_ms.saturating_add(point.ttl_ms as u64) } else { 0 }
}

/// Decides on one write at `now_ms`: the version that the point gets, and the effect.
///
/// # Errors
/// What the writer refuses: a duplicate, a conflict, a vector that does not fit, a quota.
fn decide_write<'a>(
    writer: &DenseWriter,
    mode: WriteMode,
    point: &'a PointFields,
    vector: &'a [f32],
    has_rate: impl FnOnce() -> bool,
    now_ms: u64,
) -> Result<(u64, Effect<'a>), OpError> {
    let version =
        writer.check_write(point.id, Parts::Only(vector), mode, point.expected_version, has_rate, now_ms)?;
    let deadline_ms = deadline_of(point, now_ms);
    let effect =
        Effect::Write { id: point.id, version, deadline_ms, vector: Cow::Borrowed(vector), row: &point.row };
    Ok((version, effect))
}
