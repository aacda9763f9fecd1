//! One core's side of the keys: the stores of its shards, and the published tables of all.

use super::book::Book;
use super::held::HeldKeys;
use super::indexes::Indexes;
use super::manifest::Manifest;
use super::shard::Shard;
use super::shared::{Counters, KeysShared, Opened, count};
use crate::account::{Growth, MemoryUse, Share};
use crate::ctx::Ctx;
use crate::env::{Env, Home, Replies};
use crate::error::OpError;
use crate::event::{Event, Lock};
use nigh_engine::kv::{KeyHash, KeyHasher, Read, Stats, View, Writer};
use nigh_engine::memory::{Participant, Pin};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Keys for which [`Keys::prefetch`] asks at once: the first lines are still there when the last have been asked for.
pub const PREFETCHED_MAX: usize = 64;

/// A key's place: its hash, and which core changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHome {
    /// The hash.
    pub hash: KeyHash,
    /// The owner of its shard.
    pub core: usize,
    pub(super) shard: usize,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Keys>>> = const { RefCell::new(None) };
}

/// One core's side of the keys.
pub struct Keys {
    pub(crate) ctx: Rc<Ctx>,
    pub(super) index: usize,
    pub(super) shared: Arc<KeysShared>,
    pub(super) seat: Participant,
    /// What the keys of this core hold.
    pub(super) share: Arc<Share>,
    /// Those of this core, ascending: shard `n` stands at `n / cores`.
    pub(super) owned: RefCell<Vec<Shard>>,
    /// Changes since it was looked whether the log has grown too long.
    pub(super) unchecked: Cell<u32>,
    pub(super) checkpoint_lock: Rc<Lock>,
    pub(super) book: Cell<Book>,
    /// Bytes that were alive when the disk had no room for an image of everything.
    pub(super) tried_bytes: Cell<Option<u64>>,
    pub(super) indexes: RefCell<Indexes>,
    /// There is something to build.
    pub(super) index_work: Event,
    /// On core 0: who may define indexes.
    pub(super) indexes_lock: Rc<Lock>,
    /// Who may look at every key of this core.
    pub(super) scan_lock: Rc<Lock>,
    /// Queries of this core's connections that look at every key.
    pub(super) scans: Cell<usize>,
    /// On core 0: what the newest manifest says, and who may replace it.
    pub(super) manifest: RefCell<Option<Manifest>>,
    pub(super) manifest_lock: Rc<Lock>,
    /// On core 0: images that could not be read to their end.
    pub(super) damaged: RefCell<BTreeSet<String>>,
    /// What a backup that is being made has of this core's keys.
    pub(super) held: RefCell<Option<HeldKeys>>,
}

impl Keys {
    pub(crate) fn new(ctx: Rc<Ctx>) -> Rc<Keys> {
        let (index, shared) = (ctx.env().index(), ctx.node().keys.clone());
        Rc::new(Keys {
            index,
            seat: shared.domain.participant(index),
            share: Arc::new(Share::new(&ctx.node().account, MemoryUse::Keys)),
            ctx,
            shared,
            owned: RefCell::default(),
            unchecked: Cell::new(0),
            checkpoint_lock: Rc::default(),
            book: Cell::default(),
            tried_bytes: Cell::new(None),
            indexes: RefCell::new(Indexes::new()),
            index_work: Event::default(),
            indexes_lock: Rc::default(),
            scan_lock: Rc::default(),
            scans: Cell::new(0),
            manifest: RefCell::default(),
            manifest_lock: Rc::default(),
            damaged: RefCell::default(),
            held: RefCell::default(),
        })
    }

    /// Names the keys of this thread's core.
    pub(crate) fn set_current(keys: Option<Rc<Keys>>) {
        CURRENT.set(keys);
    }

    /// What the core works with.
    pub fn ctx(&self) -> &Rc<Ctx> {
        &self.ctx
    }

    /// Why operations on keys are refused, if they are.
    #[inline]
    pub fn damage(&self) -> Option<&str> {
        self.shared.damage.get().map(String::as_str)
    }

    /// Refuses until the keys are open, and while they are being replaced by those of a backup.
    ///
    /// # Errors
    /// [`OpError::Opening`], [`OpError::Busy`].
    #[inline]
    pub fn served(&self) -> Result<(), OpError> {
        // Acquired: whoever sees it sees the published tables too.
        match self.shared.is_served.load(Acquire) {
            true => Ok(()),
            false => Err(self.unserved()),
        }
    }

    #[cold]
    fn unserved(&self) -> OpError {
        match self.is_replaced() {
            true => {
                OpError::Busy("the keys are being replaced by those of a backup; try again soon".to_owned())
            }
            false => OpError::Opening("the keys are".to_owned()),
        }
    }

    /// Whether the keys are being replaced by those of a backup.
    pub(super) fn is_replaced(&self) -> bool {
        self.shared.is_replaced.load(Relaxed)
    }

    /// All cores have loaded their keys.
    pub(crate) fn serve(&self) {
        self.shared.is_served.store(true, Release);
    }

    /// Refuses as [`Self::served`] does, and when the keys are damaged.
    ///
    /// # Errors
    /// Those of [`Self::served`], [`OpError::Damaged`].
    #[inline]
    pub fn healthy(&self) -> Result<(), OpError> {
        self.served()?;
        match self.damage() {
            None => Ok(()),
            Some(_) => Err(OpError::Damaged("the keys are".to_owned())),
        }
    }

    pub(super) fn opened(&self) -> &Opened {
        self.shared.opened.get().expect("keys are asked for once the store is open")
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.shared.counters[self.index]
    }

    /// Announces that this core reads keys. Short, never across an await, and never while this core changes a key: the owner waits for
    /// readers when it is short of pages.
    #[inline]
    pub fn pin(&self) -> Pin<'_> {
        self.seat.pin()
    }

    /// Where a key lies. Some 10 ns for a short one.
    #[inline]
    pub fn place_of(&self, key: &[u8]) -> KeyHome {
        self.place_of_hash(self.opened().hasher.hash_of(key))
    }

    /// Where a key with that hash lies.
    #[inline]
    pub(super) fn place_of_hash(&self, hash: KeyHash) -> KeyHome {
        let shard = hash.part(self.opened().views.len());
        KeyHome { hash, core: self.shared.core_of(shard), shard }
    }

    #[inline]
    pub(super) fn view(&self, place: KeyHome) -> &View {
        &self.opened().views[place.shard]
    }

    /// Asks the memory for what operations on these keys are about to look at; see [`View::prefetch_bucket`]. Worth it from two keys on, and
    /// of no more than [`PREFETCHED_MAX`]. Nothing is looked at while the keys are being opened.
    pub fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        if self.served().is_err() {
            return;
        }
        self.prefetch_places(keys.map(|key| self.place_of(key)));
    }

    /// As [`Self::prefetch`], of keys that have been hashed already.
    pub(super) fn prefetch_places(&self, wanted: impl Iterator<Item = KeyHome>) {
        let mut places = [None; PREFETCHED_MAX];
        let pin = self.pin();
        for (slot, place) in places.iter_mut().zip(wanted) {
            self.view(place).prefetch_bucket(&pin, place.hash);
            *slot = Some(place);
        }
        for place in places.iter().flatten() {
            self.view(*place).prefetch_entry(&pin, place.hash);
        }
    }

    /// Appends the value of `key` to `out`; see [`View::get`]. On [`Read::Contended`] ask the owner: [`Keys::key_get_here`].
    #[inline]
    pub fn get(&self, pin: &Pin<'_>, place: KeyHome, key: &[u8], now_ms: u64, out: &mut Vec<u8>) -> Read {
        let read = self.view(place).get(pin, place.hash, key, now_ms, out);
        if !matches!(read, Read::Contended) {
            self.note_get(matches!(read, Read::Found { .. }));
        }
        read
    }

    /// Bytes of the value of `key` as far as this core knows; see [`View::value_len`].
    #[inline]
    pub fn value_len(&self, place: KeyHome, key: &[u8]) -> usize {
        self.view(place).value_len(&self.pin(), place.hash, key)
    }

    pub(super) fn note_get(&self, is_hit: bool) {
        count(&self.counters().gets, 1);
        count(&self.counters().hits, is_hit.into());
    }

    /// Whether `key` is there.
    #[inline]
    pub fn exists(&self, pin: &Pin<'_>, place: KeyHome, key: &[u8], now_ms: u64) -> bool {
        self.view(place).exists(pin, place.hash, key, now_ms)
    }

    /// Milliseconds that `key` has left, −1 when it has no expiry, −2 when it is not there.
    #[inline]
    pub fn ttl(&self, pin: &Pin<'_>, place: KeyHome, key: &[u8], now_ms: u64) -> i64 {
        self.view(place).ttl(pin, place.hash, key, now_ms)
    }

    /// Tells the account what this core's keys hold: pages, tables, deadlines, indexes, and what the log and the next image are owed.
    pub(crate) fn measure_memory(&self) {
        self.share.measure(self.bytes());
    }

    pub(crate) fn bytes(&self) -> u64 {
        let bytes = |shard: &Shard| {
            let stats = shard.writer.stats();
            stats.pages_allocated * stats.page_bytes
                + stats.table_bytes
                + stats.wheel_bytes
                + shard.owed_bytes()
        };
        let stores: u64 = self.owned.borrow().iter().map(|shard| bytes(shard) as u64).sum();
        stores + self.indexes.borrow().bytes() as u64
    }

    /// Whether the store of the key has it, if only because what has expired has not been removed yet.
    pub(super) fn is_stored(&self, key: &[u8]) -> bool {
        // At the beginning of time nothing has expired.
        self.exists(&self.pin(), self.place_of(key), key, 0)
    }

    /// A number that changes when keys have gone without a change of them: expired, evicted, flushed.
    pub(super) fn gone_unnoticed(&self) -> u64 {
        let gone = |shard: &Shard| {
            let stats = shard.writer.stats();
            stats.expired + stats.evictions + stats.flushes
        };
        self.owned.borrow().iter().map(gone).sum()
    }
}

impl Home for Keys {
    fn here() -> Rc<Keys> {
        CURRENT.with_borrow(|current| current.clone()).expect("this thread runs no core")
    }

    fn env(&self) -> &Rc<dyn Env> {
        self.ctx.env()
    }

    fn replies(&self) -> &Replies {
        self.ctx.replies()
    }
}

/// Figures of all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeysStats {
    /// Sums over the stores of shards; sizes of pages are not summed.
    pub store: Stats,
    /// Bytes of pages that have memory.
    pub allocated_bytes: u64,
    /// Bytes that eviction could give back.
    pub reclaimable_bytes: u64,
    /// Keys in indexes.
    pub index_keys: u64,
    /// Bytes of these.
    pub index_bytes: u64,
    /// Parts of indexes that were given up, one per core.
    pub indexes_given_up: u64,
    /// Reads of values.
    pub gets: u64,
    /// Those that found one.
    pub hits: u64,
    /// Damaged parts of images and logs met at the start.
    pub corruption_errors: u64,
    /// Bytes in them that were not read.
    pub corruption_bytes: u64,
    /// Base images written.
    pub compactions: u64,
    /// Images of keys that could not be completed.
    pub compactions_aborted: u64,
    /// Time spent on them.
    pub compaction_ms: u64,
    /// Bytes of older images that they replaced.
    pub compaction_bytes_reclaimed: u64,
}

impl Keys {
    /// Figures of all shards, those of other cores asked for: some 10 µs and a message to each.
    pub async fn keys_stats(self: &Rc<Self>) -> KeysStats {
        let mut sum = KeysStats::default();
        for to in 0..self.ctx.env().cores() {
            let part = crate::env::call_own(self, to, |there| async move { there.own_stats() }).await;
            sum.add(&part);
        }
        sum
    }
}

impl Keys {
    pub(super) fn own_stats(&self) -> KeysStats {
        let counters = self.counters();
        let indexes = self.indexes.borrow();
        let mut sum = KeysStats {
            index_keys: indexes.keys() as u64,
            index_bytes: indexes.bytes() as u64,
            indexes_given_up: indexes.given_up() as u64,
            gets: counters.gets.load(Relaxed),
            hits: counters.hits.load(Relaxed),
            corruption_errors: counters.corruption_errors.load(Relaxed),
            corruption_bytes: counters.corruption_bytes.load(Relaxed),
            compactions: counters.images.load(Relaxed),
            compactions_aborted: counters.images_failed.load(Relaxed),
            compaction_ms: counters.image_ms.load(Relaxed),
            compaction_bytes_reclaimed: counters.image_bytes_freed.load(Relaxed),
            ..KeysStats::default()
        };
        for shard in self.owned.borrow().iter() {
            let stats = shard.writer.stats();
            sum.add(&KeysStats {
                allocated_bytes: (stats.pages_allocated * stats.page_bytes) as u64,
                reclaimable_bytes: stats.reclaimable_bytes() as u64,
                store: stats,
                ..KeysStats::default()
            });
        }
        sum
    }
}

impl KeysStats {
    fn add(&mut self, other: &KeysStats) {
        self.store.add(&other.store);
        for (to, from) in [
            (&mut self.allocated_bytes, other.allocated_bytes),
            (&mut self.reclaimable_bytes, other.reclaimable_bytes),
            (&mut self.index_keys, other.index_keys),
            (&mut self.index_bytes, other.index_bytes),
            (&mut self.indexes_given_up, other.indexes_given_up),
            (&mut self.gets, other.gets),
            (&mut self.hits, other.hits),
            (&mut self.corruption_errors, other.corruption_errors),
            (&mut self.corruption_bytes, other.corruption_bytes),
            (&mut self.compactions, other.compactions),
            (&mut self.compactions_aborted, other.compactions_aborted),
            (&mut self.compaction_ms, other.compaction_ms),
            (&mut self.compaction_bytes_reclaimed, other.compaction_bytes_reclaimed),
        ] {
            *to += from;
        }
    }
}

/// Empty stores of this core's shards.
pub(super) fn new_shards(kv: &Keys, hasher: &KeyHasher, uid_base: u64) -> Result<Vec<Shard>, String> {
    let (shared, options) = (&kv.ctx.node().keys, kv.ctx.options());
    let shards = options.keys.shards(options.shards);
    let own = (0..shards).filter(|&shard| shared.core_of(shard) == kv.ctx.env().index());
    // As much as this core has of the keys.
    let index_bytes = options.keys.index_bytes() / shards as u64 * own.clone().count() as u64;
    let index_bytes = usize::try_from(index_bytes).unwrap_or(usize::MAX);
    kv.indexes.borrow_mut().set_bytes_max(index_bytes);
    own.map(|number| {
        let config = options.keys.config(shards);
        let writer = Writer::new(config, hasher.clone(), shared.domain.clone());
        let mut writer = writer.map_err(|error| format!("keys: {error}"))?;
        if kv.ctx.env().disk().is_some() || options.keys.query {
            writer.note_evicted();
        }
        let share = kv.share.clone();
        writer.grow_with(Arc::new(move |bytes| share.take(bytes as u64, Growth::New).is_ok()));
        Ok(Shard::new(number, uid_base + number as u64, writer))
    })
    .collect()
}
