//! The owner's side of a collection: what only the core that holds its shard may do.
//!
//! Life of a write: checks against the writer, append to the core's log, apply (visible at once through the tail),
//! answer when the log is durable. From append to apply there is no await, so the order in the log is the order in
//! memory. Tasks of a collection: [`indexer`] moves the tail into the graph and repairs around the dead ([`filer`]: into cells, which it
//! trains),
//! [`checkpointer`] bounds the log, [`scrubber`] reads the vectors of a file once, [`expiry`] takes the expired out of the figures and [`sweeper`] out of memory, [`build`] loads staged points aside.

pub mod build;
pub mod checkpointer;
pub mod expiry;
pub mod filer;
pub mod indexer;
pub mod op_record;
mod payload;
pub mod quantizer;
pub mod scrubber;
pub mod sweeper;
mod tail_room;

use crate::account::Growth;
use crate::catalog::CollectionHandle;
use crate::checkpoint::VectorsFile;
use crate::core::Core;
use crate::core::{BatchError, OpError, PointFields, Vectors, WriteBatch, Written};
use crate::event::{Event, Lock};
use crate::log::{Log, LogError, Purpose, RecordKey, Ticket};
use bytes::Bytes;
use indexer::settle_texts;
use nigh_engine::collection::{DenseWriter, Write, WriteError};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tail_room::TailRoom;

/// Fresh points searched exactly beside the graph before writes must wait for the indexer. At 384 dimensions and
/// 10 GB/s a scan of 512 rows costs 80 µs, half of a graph search.
///
/// What a start has replayed from the log is allowed for on top (`tail_room`).
pub const TAIL_MAX: usize = 512;

/// Log bytes of a core beyond which writes wait for checkpoints, as a multiple of those that start them: 256 MiB usually. What
/// a recovery reads and holds in memory, and what a log can take of a full disk, is bounded by it.
const LOG_HARD_FACTOR: u64 = 8;
/// How long a write waits for them before it is refused, microseconds, and how often it looks.
pub(crate) const CHECKPOINT_WAIT_MAX_US: u64 = 30_000_000;
pub(crate) const CHECKPOINT_POLL_US: u64 = 5_000;
/// How long what frees room waits on a full disk for images that make room for it, microseconds: an image that found no room is tried again
/// after 10 s.
const FREE_WAIT_MAX_US: u64 = 25_000_000;

/// Longest stretch of unbroken work of one write batch, nanoseconds.
const WRITE_SLICE_NS: u64 = 250_000;

/// A collection on its owner core.
pub struct Owned {
    /// What every core knows of it.
    pub handle: Arc<CollectionHandle>,
    /// The single writer. Borrowed for moments, never across an await.
    pub writer: RefCell<DenseWriter>,
    /// Where writers wait for the indexer.
    pub tail_room: TailRoom,
    /// The tail has grown or something died.
    pub changed: Event,
    /// Asks the quantizing task for a look, beside `changed`.
    pub quantize: Event,
    /// Staged points of a bulk load.
    pub staged: RefCell<build::Staged>,
    /// Bytes of the writer that a running build fills.
    pub aside_bytes: Cell<u64>,
    /// Ids written since a running build began; `None` when none runs.
    pub build_delta: RefCell<Option<std::collections::BTreeSet<u64>>>,
    /// Serialises checkpoints and the swap of a build.
    pub checkpoint_lock: Rc<Lock>,
    /// State of the files.
    pub checkpoint: RefCell<checkpointer::CheckpointState>,
    /// Of a persistent collection with a disk, the file that [`Self::writer`] keeps its vectors in.
    pub vectors: RefCell<Option<Rc<VectorsFile>>>,
    /// Inserts allowed now, when the collection has a rate quota.
    pub tokens: RefCell<TokenBucket>,
    /// The collection is being dropped: tasks end, writes are refused.
    pub dropped: Cell<bool>,
    /// The indexer is the only task that opens rounds; a build of its own collection pauses it before the swap.
    pub round_lock: Rc<Lock>,
}

impl Owned {
    /// Takes ownership of `writer`.
    pub fn new(handle: Arc<CollectionHandle>, writer: DenseWriter, now_ms: u64) -> Rc<Owned> {
        let rate = handle.config.max_inserts_per_second;
        Rc::new(Owned {
            handle,
            tail_room: TailRoom::new(writer.tail_len()),
            writer: RefCell::new(writer),
            changed: Event::default(),
            quantize: Event::default(),
            staged: RefCell::default(),
            aside_bytes: Cell::new(0),
            build_delta: RefCell::default(),
            checkpoint_lock: Rc::default(),
            checkpoint: RefCell::default(),
            vectors: RefCell::default(),
            tokens: RefCell::new(TokenBucket::new(rate, now_ms)),
            dropped: Cell::new(false),
            round_lock: Rc::default(),
        })
    }

    /// Refuses when the collection is going away or damaged.
    pub fn usable(&self) -> Result<(), OpError> {
        if self.dropped.get() {
            return Err(OpError::UnknownCollection(self.handle.name.clone()));
        }
        self.handle.healthy()
    }

    /// Writes wait until the indexer has moved points of the tail into the graph.
    fn tail_is_full(&self) -> bool {
        self.tail_room.is_full(self.writer.borrow().tail_len())
    }

    /// Tells the tasks of this collection that it is going away.
    pub fn end_tasks(&self) {
        self.dropped.set(true);
        self.changed.notify();
        // Writers that wait for room look again, and find that nobody needs it any more.
        self.tail_room.note_round(0);
    }

    /// Notes a change of `id` for a build that runs beside.
    fn note_delta(&self, id: u64) {
        if let Some(delta) = self.build_delta.borrow_mut().as_mut() {
            delta.insert(id);
        }
    }
}

/// Continuous token bucket: starts full, one token per insert attempt.
pub struct TokenBucket {
    rate: u64,
    tokens: f64,
    at_ms: u64,
}

impl TokenBucket {
    /// `rate` tokens per second and at most as many saved up; 0 = unlimited.
    pub fn new(rate: u64, now_ms: u64) -> Self {
        Self { rate, tokens: rate as f64, at_ms: now_ms }
    }

    /// Takes one token.
    pub fn take(&mut self, now_ms: u64) -> bool {
        if self.rate == 0 {
            return true;
        }
        let passed_ms = now_ms.saturating_sub(self.at_ms);
        self.at_ms = now_ms.max(self.at_ms);
        self.tokens = (self.tokens + passed_ms as f64 * self.rate as f64 / 1000.0).min(self.rate as f64);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            true
        } else {
            false
        }
    }
}

/// Maps a refusal of the log.
pub fn log_error(error: LogError) -> OpError {
    match error {
        LogError::NoSpace(why) => OpError::NoSpace(why),
        LogError::TooLarge(bytes) => {
            OpError::BadRequest(format!("point of {bytes} bytes is larger than a log record may be"))
        }
        other => OpError::Unavailable(other.to_string()),
    }
}

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

impl Core {
    /// Writes a batch on the owner core, points in order.
    pub(crate) async fn owned_write(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        batch: WriteBatch,
    ) -> Result<Vec<Written>, BatchError> {
        let nothing = |error| BatchError { committed: 0, point: None, error };
        let owned = self.owned(uid).ok_or_else(|| nothing(OpError::UnknownCollection(name.to_owned())))?;
        let env = self.env().clone();
        let mut written = Vec::with_capacity(batch.points.len());
        let mut ticket = None;
        let mut failure = None;
        let (mut vector_buffer, mut record) = (Vec::new(), Vec::new());
        let mut slice_start = env.now_ns();
        for (index, point) in batch.points.iter().enumerate() {
            let must_wait = || !owned.dropped.get() && owned.tail_is_full();
            if must_wait() {
                owned.tail_room.wait(&owned.changed, must_wait).await;
                slice_start = env.now_ns();
            }
            let began_ns = env.now_ns();
            let dim = match &batch.vectors {
                Vectors::PerPoint(rows) => rows[index].len(),
                Vectors::Native(_) | Vectors::BigEndianRows(_) => batch.dim,
            };
            if let Err(error) = self.room_in_log(Purpose::Grow, op_record::write_bytes(dim, &point.row)).await
            {
                failure = Some(error);
                break;
            }
            let vector = batch_vector(&batch.vectors, batch.dim, index, &mut vector_buffer);
            match self.write_point(&owned, &batch, point, vector, &mut record) {
                Ok((version, logged)) => {
                    written.push(Written::Ok { version });
                    ticket = logged.or(ticket);
                    owned.handle.counters.insert_ops.fetch_add(1, Relaxed);
                }
                Err(OpError::Write(WriteError::VersionConflict { .. })) => written.push(Written::Conflict),
                Err(error) => {
                    if matches!(error, OpError::Write(WriteError::Full | WriteError::RateLimited)) {
                        owned.handle.counters.quota_rejects.fetch_add(1, Relaxed);
                    }
                    failure = Some(error);
                }
            }
            let is_long = owned.writer.borrow().has_texts_waiting();
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
                owned.changed.notify();
                env.yield_now().await;
                slice_start = env.now_ns();
            }
        }
        owned.changed.notify();
        if let Err(error) = self.wait_durable(ticket).await {
            return Err(nothing(error));
        }
        match failure {
            None => Ok(written),
            Some(error) => {
                let point = batch.points.get(written.len()).map(|point| point.id);
                Err(BatchError { committed: written.len(), point, error })
            }
        }
    }

    /// One point: check, log, apply, without an await in between.
    fn write_point(
        &self,
        owned: &Owned,
        batch: &WriteBatch,
        point: &PointFields,
        vector: &[f32],
        record: &mut Vec<u8>,
    ) -> Result<(u64, Option<Ticket>), OpError> {
        owned.usable()?;
        let mut writer = owned.writer.borrow_mut();
        let growth = if writer.reuses_slot() { Growth::Reuse } else { Growth::New };
        let bytes = writer.shared().bytes_of_point(point.row.len(), growth == Growth::New);
        self.room_in_memory(bytes, growth)?;
        let now_ms = self.env().unix_ms();
        let rate_ok = vector.len() != owned.handle.config.dim || owned.tokens.borrow_mut().take(now_ms);
        let version =
            writer.check_write(point.id, vector, batch.mode, point.expected_version, rate_ok, now_ms)?;
        let deadline_ms = if point.ttl_ms > 0 { now_ms.saturating_add(point.ttl_ms as u64) } else { 0 };
        let seq = writer.seq() + 1;
        let ticket = match self.log() {
            None => None,
            Some(log) => {
                op_record::encode_write(record, point.id, version, deadline_ms, vector, &point.row);
                let key = RecordKey { collection: owned.handle.uid, seq };
                Some(log.append(key, record).map_err(log_error)?)
            }
        };
        writer.apply(Write { seq, id: point.id, version, vector, row: &point.row, deadline_ms });
        let pages_due = writer.pages_due().map(|slots| (writer.shared().clone(), slots));
        drop(writer);
        if let Some((dense, slots)) = pages_due {
            self.env().aside(Box::new(move || dense.populate(slots)));
        }
        owned.note_delta(point.id);
        Ok((version, ticket))
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
        self.room_in_log(Purpose::Free, op_record::DELETE_BYTES).await?;
        let (deleted, ticket) = self.delete_point(&owned, id, expected_version, &mut record)?;
        settle_texts(self.env(), &owned.writer).await;
        owned.changed.notify();
        self.wait_durable(ticket).await?;
        Ok(deleted)
    }

    /// Removes one id: check, log, apply, without an await in between.
    pub(crate) fn delete_point(
        &self,
        owned: &Owned,
        id: u64,
        expected_version: Option<u64>,
        record: &mut Vec<u8>,
    ) -> Result<(bool, Option<Ticket>), OpError> {
        owned.usable()?;
        let mut writer = owned.writer.borrow_mut();
        if !writer.check_delete(id, expected_version, self.env().unix_ms())? {
            return Ok((false, None));
        }
        let seq = writer.seq() + 1;
        let ticket = match self.log() {
            None => None,
            Some(log) => {
                op_record::encode_delete(record, id);
                let key = RecordKey { collection: owned.handle.uid, seq };
                Some(log.append_for(Purpose::Free, key, record).map_err(log_error)?)
            }
        };
        writer.apply_delete(seq, id);
        drop(writer);
        owned.note_delta(id);
        Ok((true, ticket))
    }

    /// Waits while the log allocates room for a record of `bytes`; an append right after, without an await, is taken.
    ///
    /// # Errors
    /// [`OpError::NoSpace`] when the disk is full, [`OpError::Unavailable`] when the log has failed, [`OpError::Busy`] when
    /// checkpoints are far behind. What frees room does not wait for checkpoints that a full disk has no room for: they may wait for it.
    pub(crate) async fn room_in_log(&self, purpose: Purpose, bytes: usize) -> Result<(), OpError> {
        let Some(log) = self.log() else { return Ok(()) };
        let mut waited_us = 0;
        while self.is_log_too_long(&log) || (purpose == Purpose::Grow && self.node().reserve.is_low()) {
            if self.is_disk_short() {
                match purpose {
                    Purpose::Free => break,
                    Purpose::Grow => {
                        let waiting = log.live_bytes();
                        return Err(OpError::NoSpace(format!(
                            "the disk is full, and {waiting} bytes of log wait for images that find no room"
                        )));
                    }
                }
            }
            if waited_us >= CHECKPOINT_WAIT_MAX_US || self.is_stopping() {
                return Err(OpError::Busy(format!(
                    "checkpoints do not keep up: {} bytes of log wait for them; try again",
                    log.live_bytes()
                )));
            }
            self.env().sleep_us(CHECKPOINT_POLL_US).await;
            waited_us += CHECKPOINT_POLL_US;
        }
        let mut waited_us = 0;
        loop {
            match log.make_room_for(purpose, bytes).await {
                // Deletes may come faster than the images that let their records go.
                Err(LogError::NoSpace(_))
                    if purpose == Purpose::Free && waited_us < FREE_WAIT_MAX_US && !self.is_stopping() =>
                {
                    self.images_wanted.set(true);
                    self.env().sleep_us(CHECKPOINT_POLL_US).await;
                    waited_us += CHECKPOINT_POLL_US;
                }
                made => return made.map_err(log_error),
            }
        }
    }

    /// Whether images find no room on the disk, or what would be refused now because of it.
    pub(crate) fn is_disk_short(&self) -> bool {
        let reserve = &self.node().reserve;
        reserve.is_disk_full() || reserve.is_image_short()
    }

    /// Whether writes have to wait for checkpoints.
    pub(crate) fn is_log_too_long(&self, log: &Log) -> bool {
        log.live_bytes() > self.options().log_bytes_soft.saturating_mul(LOG_HARD_FACTOR)
    }

    /// Waits until `ticket` is as durable as the configured mode promises; at once when there is none, or no log.
    ///
    /// # Errors
    /// The log has failed: nothing behind what was durable before is known to be.
    pub async fn wait_durable(&self, ticket: Option<Ticket>) -> Result<(), OpError> {
        match (ticket, self.log()) {
            (Some(ticket), Some(log)) => log.durable(ticket).await.map_err(|error| {
                // Before anybody is told: who is told looks, and must see it.
                self.note_failed_log(&log);
                log_error(error)
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_bucket_starts_full_and_refills_continuously() {
        let mut bucket = TokenBucket::new(2, 1000);
        assert!(bucket.take(1000) && bucket.take(1000) && !bucket.take(1000));
        assert!(!bucket.take(1400));
        assert!(bucket.take(1500));
        assert!(bucket.take(9999) && bucket.take(9999) && !bucket.take(9999));
        let mut unlimited = TokenBucket::new(0, 0);
        assert!((0..1000).all(|_| unlimited.take(0)));
    }
}
