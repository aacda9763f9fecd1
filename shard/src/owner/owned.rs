//! A collection on its owner core.

use super::staged::Staged;
use super::tail_room::TailRoom;
use super::token_index::TokenIndex;
use crate::backup::{LastSnapshot, PerStore};
use crate::catalog::CollectionHandle;
use crate::checkpoint::{Manifest, VectorsFile};
use crate::env::Env;
use crate::error::OpError;
use crate::event::{Event, Lock, LockGuard};
use crate::family::CollectionConfig;
use nigh_engine::collection::{DenseWriter, WriteError};
use nigh_engine::memory::Pin;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

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
    /// The last snapshots that this process has stored: their images are those of now, as far as their names are the same.
    pub(crate) last_snapshots: RefCell<PerStore<LastSnapshot>>,
    /// Serialises snapshots for a store of backups, and holds them off while the collection leaves memory.
    pub(crate) snapshot_lock: Rc<Lock>,
    /// Held from the moment at which nothing may change any more, because the collection leaves memory as its snapshot has it.
    pub(super) sealed: RefCell<Option<LockGuard>>,
    /// Snapshots that are being read.
    pub(super) snapshots: Cell<usize>,
    /// The writes that are allowed now, if the collection limits their rate.
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
    pub fn new(handle: Arc<CollectionHandle>, pin: &Pin<'_>, writer: DenseWriter, now_ns: u64) -> Rc<Owned> {
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
            last_snapshots: RefCell::default(),
            snapshot_lock: Rc::default(),
            sealed: RefCell::default(),
            snapshots: Cell::new(0),
            tokens: RefCell::new(TokenBucket::new(rate, now_ns)),
            dropped: Cell::new(false),
            token_index: OnceCell::new(),
            round_lock: Rc::default(),
        })
    }

    /// Searches and writes that begin from now on go by `config`, which differs in values alone that may change while a collection serves.
    pub(super) fn reconfigure(&self, config: Arc<CollectionConfig>, now_ns: u64) {
        config.tune(&mut self.writer.borrow_mut());
        self.tokens.borrow_mut().set_rate(config.max_inserts_per_second(), now_ns);
        self.handle.config.swap(config);
    }

    /// Returns a function that says whether the rate allows one more write now and, if so, counts it.
    pub(super) fn has_rate(&self, env: &Rc<dyn Env>) -> impl FnOnce() -> bool {
        move || {
            let mut tokens = self.tokens.borrow_mut();
            // Most collections have no limit, and their writes need no clock.
            tokens.rate == 0 || tokens.take(env.now_ns())
        }
    }

    /// Counts a write that a quota of the collection refused.
    pub(super) fn count_refusal(&self, error: &OpError) {
        if matches!(error, OpError::Write(WriteError::Full | WriteError::RateLimited)) {
            self.handle.counters.quota_rejects.fetch_add(1, Relaxed);
        }
    }

    /// Refuses when the collection is going away or damaged.
    pub fn usable(&self) -> Result<(), OpError> {
        if self.dropped.get() {
            return Err(OpError::UnknownCollection(self.handle.name.clone()));
        }
        self.check_not_sealed()?;
        self.handle.healthy()
    }

    /// Refuses while the collection leaves memory. Requests of clients wait for that before they come here.
    pub(super) fn check_not_sealed(&self) -> Result<(), OpError> {
        match *self.sealed.borrow() {
            None => Ok(()),
            Some(_) => Err(OpError::Busy(format!(
                "the collection {:?} is being moved to the store of backups; try again",
                self.handle.name
            ))),
        }
    }

    /// What has the tail that writes fill: the collection itself, or the index of its tokens.
    pub(super) fn with_tail(&self) -> &Owned {
        self.token_index.get().map_or(self, |index| &**index.owned())
    }

    /// The index of its tokens, if there is one, and then the collection itself.
    pub(super) fn index_first(self: &Rc<Self>) -> impl Iterator<Item = &Rc<Owned>> {
        self.token_index.get().map(TokenIndex::owned).into_iter().chain(std::iter::once(self))
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

/// A token bucket that starts full and is refilled continuously. A write takes one token, even if a later check refuses it. The bucket uses the
/// monotonic clock, so that no write waits because the wall clock was set back.
pub struct TokenBucket {
    rate: u64,
    tokens: f64,
    at_ns: u64,
}

impl TokenBucket {
    /// `rate` tokens per second and at most as many saved up; 0 = unlimited.
    pub fn new(rate: u64, now_ns: u64) -> Self {
        Self { rate, tokens: rate as f64, at_ns: now_ns }
    }

    /// Another rate. What was saved up stays, as far as the rate allows; what had no limit before starts full.
    pub fn set_rate(&mut self, rate: u64, now_ns: u64) {
        if self.rate == 0 {
            *self = TokenBucket::new(rate, now_ns);
        }
        self.refill(now_ns);
        self.rate = rate;
        self.tokens = self.tokens.min(rate as f64);
    }

    fn refill(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns = now_ns.max(self.at_ns);
        self.tokens = (self.tokens + passed_ns as f64 * self.rate as f64 / 1e9).min(self.rate as f64);
    }

    /// Takes one token.
    pub fn take(&mut self, now_ns: u64) -> bool {
        if self.rate == 0 {
            return true;
        }
        self.refill(now_ns);
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
    /// A dense space was dropped since the last base image, and images still have its vectors: the next image is a base.
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
        let ms = |ms: u64| ms * 1_000_000;
        let mut bucket = TokenBucket::new(2, ms(1000));
        assert!(bucket.take(ms(1000)) && bucket.take(ms(1000)) && !bucket.take(ms(1000)));
        assert!(!bucket.take(ms(1400)));
        assert!(bucket.take(ms(1500)));
        assert!(bucket.take(ms(9999)) && bucket.take(ms(9999)) && !bucket.take(ms(9999)));
        // Another rate keeps what was saved up, and no more than a second's worth of itself.
        bucket.set_rate(10, ms(9999));
        assert!(!bucket.take(ms(9999)) && bucket.take(ms(10_099)) && !bucket.take(ms(10_099)));
        assert!((0..10).all(|_| bucket.take(ms(20_000))) && !bucket.take(ms(20_000)));
        assert!(!bucket.take(ms(20_000)));
        bucket.set_rate(0, ms(20_000));
        assert!((0..1000).all(|_| bucket.take(ms(20_000))));
        bucket.set_rate(3, ms(20_000));
        assert!((0..3).all(|_| bucket.take(ms(20_000))) && !bucket.take(ms(20_000)), "it starts full");
        bucket.set_rate(1000, ms(30_000));
        bucket.set_rate(1, ms(30_000));
        assert!(bucket.take(ms(30_000)) && !bucket.take(ms(30_000)));
        let mut unlimited = TokenBucket::new(0, ms(0));
        assert!((0..1000).all(|_| unlimited.take(ms(0))));
    }
}
