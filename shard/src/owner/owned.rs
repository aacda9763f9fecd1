//! A collection on its owner core.

use super::staged::Staged;
use super::tail_room::TailRoom;
use super::token_index::TokenIndex;
use crate::catalog::CollectionHandle;
use crate::checkpoint::{Manifest, VectorsFile};
use crate::error::OpError;
use crate::event::{Event, Lock};
use crate::family::CollectionConfig;
use nigh_engine::collection::DenseWriter;
use nigh_engine::memory::Pin;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

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
    /// There is a quantizing task.
    pub has_quantizing_task: Cell<bool>,
    /// Staged points of a bulk load.
    pub staged: RefCell<Staged>,
    /// Bytes of the writer that a running build fills.
    pub aside_bytes: Cell<u64>,
    /// Ids written since a running build began; `None` when none runs.
    pub build_delta: RefCell<Option<std::collections::BTreeSet<u64>>>,
    /// Serialises checkpoints, the swap of a build, and changes of named spaces.
    pub checkpoint_lock: Rc<Lock>,
    /// State of the files.
    pub checkpoint: RefCell<CheckpointState>,
    /// Of a persistent collection with a disk, the file that [`Self::writer`] keeps its vectors in.
    pub vectors: RefCell<Option<Rc<VectorsFile>>>,
    /// Inserts allowed now, when the collection has a rate quota.
    pub tokens: RefCell<TokenBucket>,
    /// The collection is being dropped: tasks end, writes are refused.
    pub dropped: Cell<bool>,
    /// The index of the tokens of a multi-vector collection; unset in other families.
    pub(super) token_index: OnceCell<TokenIndex>,
    /// The indexer is the only task that opens rounds; a build of its own collection and a change of its spaces pause it.
    pub round_lock: Rc<Lock>,
}

impl Owned {
    /// Takes ownership of `writer`.
    pub fn new(handle: Arc<CollectionHandle>, pin: &Pin<'_>, writer: DenseWriter, now_ms: u64) -> Rc<Owned> {
        let rate = handle.config(pin).max_inserts_per_second();
        Rc::new(Owned {
            handle,
            tail_room: TailRoom::new(writer.tail_len()),
            writer: RefCell::new(writer),
            changed: Event::default(),
            quantize: Event::default(),
            has_quantizing_task: Cell::new(false),
            staged: RefCell::default(),
            aside_bytes: Cell::new(0),
            build_delta: RefCell::default(),
            checkpoint_lock: Rc::default(),
            checkpoint: RefCell::default(),
            vectors: RefCell::default(),
            tokens: RefCell::new(TokenBucket::new(rate, now_ms)),
            dropped: Cell::new(false),
            token_index: OnceCell::new(),
            round_lock: Rc::default(),
        })
    }

    /// Searches and writes that begin from now on go by `config`, which differs in values alone that may change while a collection serves.
    pub(super) fn reconfigure(&self, config: Arc<CollectionConfig>, now_ms: u64) {
        config.tune(&mut self.writer.borrow_mut());
        self.tokens.borrow_mut().set_rate(config.max_inserts_per_second(), now_ms);
        self.handle.config.swap(config);
    }

    /// Refuses when the collection is going away or damaged.
    pub fn usable(&self) -> Result<(), OpError> {
        if self.dropped.get() {
            return Err(OpError::UnknownCollection(self.handle.name.clone()));
        }
        self.handle.healthy()
    }

    /// What has the tail that writes fill: the collection itself, or the index of its tokens.
    pub(super) fn with_tail(&self) -> &Owned {
        self.token_index.get().map_or(self, |index| index.owned())
    }

    /// Writes wait until the indexer has moved points of the tail into the graph.
    pub(super) fn tail_is_full(&self) -> bool {
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
    pub(super) fn note_delta(&self, id: u64) {
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

    /// Another rate. What was saved up stays, as far as the rate allows; what had no limit before starts full.
    pub fn set_rate(&mut self, rate: u64, now_ms: u64) {
        if self.rate == 0 {
            *self = TokenBucket::new(rate, now_ms);
        }
        self.refill(now_ms);
        self.rate = rate;
        self.tokens = self.tokens.min(rate as f64);
    }

    fn refill(&mut self, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.at_ms);
        self.at_ms = now_ms.max(self.at_ms);
        self.tokens = (self.tokens + passed_ms as f64 * self.rate as f64 / 1000.0).min(self.rate as f64);
    }

    /// Takes one token.
    pub fn take(&mut self, now_ms: u64) -> bool {
        if self.rate == 0 {
            return true;
        }
        self.refill(now_ms);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            true
        } else {
            false
        }
    }
}

/// The files of one collection.
#[derive(Debug, Default)]
pub struct CheckpointState {
    /// Newest durable manifest.
    pub manifest: Manifest,
    /// Number of the last file.
    pub last_file: u64,
    /// On the disk there may be another manifest, that of a build that failed: the next image comes as soon as it can, and its manifest
    /// replaces either.
    pub unsettled: bool,
    /// Bytes, as estimated, of the last base on a disk that is full since then, whether it found room or not.
    pub tried: Option<u64>,
    /// A space was dropped since the last base, of which images still have the vectors: the next one is a base.
    pub has_dropped: bool,
    /// Images of manifests that could not be stored, though the next start may find one: removed once a newer manifest is.
    pub strays: Vec<String>,
}

impl CheckpointState {
    /// A number for the next file.
    pub fn next_file(&mut self) -> u64 {
        self.last_file += 1;
        self.last_file
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
        // Another rate keeps what was saved up, and no more than a second's worth of itself.
        bucket.set_rate(10, 9999);
        assert!(!bucket.take(9999) && bucket.take(10_099) && !bucket.take(10_099));
        assert!((0..10).all(|_| bucket.take(20_000)) && !bucket.take(20_000));
        assert!(!bucket.take(20_000));
        bucket.set_rate(0, 20_000);
        assert!((0..1000).all(|_| bucket.take(20_000)));
        bucket.set_rate(3, 20_000);
        assert!((0..3).all(|_| bucket.take(20_000)) && !bucket.take(20_000), "it starts full");
        bucket.set_rate(1000, 30_000);
        bucket.set_rate(1, 30_000);
        assert!(bucket.take(30_000) && !bucket.take(30_000));
        let mut unlimited = TokenBucket::new(0, 0);
        assert!((0..1000).all(|_| unlimited.take(0)));
    }
}
