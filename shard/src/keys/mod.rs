//! The key-value store of a node: one store per shard, written by the core that owns the shard, read by all.
//!
//! A key's hash says its shard ([`Keys::place_of`]), a shard's number its core. Reads go to the published table of the shard,
//! on whatever core they arrive. Writes are for the owner: it prepares, appends the effect to the core's log, applies, and does not await
//! in between, so the order in the log is the order in memory; whoever asked waits for the log ([`Core::wait_durable`]).
//!
//! [`indexes`] has keys in order for those that [`query`] is asked about.
//!
//! Sequence numbers count the log records of a shard. [`checkpoint`] writes images of what changed, all shards of a core in one file;
//! `recovery` reads them and the log above them. What expires is not logged, deadlines being absolute; what is evicted is, or a
//! restart would bring it back.

mod change;
pub mod checkpoint;
pub mod index_file;
pub mod indexes;
pub mod manifest;
mod outcome;
pub mod query;
pub mod record;
pub(crate) mod recovery;
mod shard;
pub mod upkeep;

pub use change::Moment;
pub use shard::Refused;

use crate::account::{Account, Growth, MemoryUse, Share};
use crate::core::{Core, OpError};
use crate::event::{Event, Lock};
use ahash::HashSet;
use indexes::Indexes;
use manifest::Manifest;
use nigh_engine::kv::{Config, KeyHash, KeyHasher, Read, Stats, View, Writer};
use nigh_engine::memory::{Domain, Participant, Pin};
use shard::Shard;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Usual least bytes of a shard: twice the longest value, so that one fits beside others, whatever the budget is.
pub const SHARD_BYTES_MIN: u64 = 32 << 20;

/// Keys for which [`Keys::prefetch`] asks at once: the first lines are still there when the last have been asked for.
pub const PREFETCHED_MAX: usize = 64;

/// How keys are kept.
#[derive(Clone, Debug)]
pub struct KeysOptions {
    /// Bytes of pages, tables of keys and deadlines of all shards together.
    pub budget_bytes: u64,
    /// Smallest page of a shard ([`Config::PAGE_BYTES_MIN`]).
    pub page_bytes_min: usize,
    /// A shard has at least so many bytes, or there is only one: the longest value has to fit ([`SHARD_BYTES_MIN`]).
    pub shard_bytes_min: u64,
    /// See [`Config::relocating_eviction`].
    pub relocating_eviction: bool,
    /// Between two looks whether a reserve of free pages is due, 0 = none is kept. Acts with `relocating_eviction` alone.
    pub reserve_interval_ms: u64,
    /// See [`Config::in_place_same_size`].
    pub in_place_same_size: bool,
    /// See [`Config::sieve_visited_bit`].
    pub sieve_visited_bit: bool,
    /// Keys can be queried: a quarter of the budget is for their indexes.
    pub query: bool,
    /// Of the hash of keys in a directory that has none yet; `None` = a random one, which nobody can guess. For simulations.
    pub seed: Option<u64>,
}

impl KeysOptions {
    /// A budget, and every policy off.
    pub fn new(budget_bytes: u64) -> KeysOptions {
        KeysOptions {
            budget_bytes,
            page_bytes_min: Config::PAGE_BYTES_MIN,
            shard_bytes_min: SHARD_BYTES_MIN,
            relocating_eviction: false,
            reserve_interval_ms: 0,
            in_place_same_size: false,
            sieve_visited_bit: false,
            query: false,
            seed: None,
        }
    }

    /// Into how many shards keys are spread: `shards`, a power of two, or as many fewer as leave each its least.
    pub fn shards(&self, shards: usize) -> usize {
        let most = ((self.budget_bytes - self.index_bytes()) / self.shard_bytes_min.max(1)).max(1);
        1 << (usize::try_from(most).unwrap_or(usize::MAX).ilog2()).min(shards.ilog2())
    }

    /// The part of the budget that is for indexes of keys.
    fn index_bytes(&self) -> u64 {
        if self.query { self.budget_bytes / indexes::BUDGET_PART } else { 0 }
    }

    /// Of one of `shards` shards.
    pub fn config(&self, shards: usize) -> Config {
        let budget_bytes = self.budget_bytes - self.index_bytes();
        let budget_bytes = usize::try_from(budget_bytes).unwrap_or(usize::MAX) / shards;
        Config {
            page_bytes_min: self.page_bytes_min,
            relocating_eviction: self.relocating_eviction,
            in_place_same_size: self.in_place_same_size,
            sieve_visited_bit: self.sieve_visited_bit,
            ..Config::new(budget_bytes)
        }
    }
}

/// What all cores share of the keys.
pub struct KeysShared {
    domain: Arc<Domain>,
    cores: usize,
    opened: OnceLock<Opened>,
    counters: Box<[Counters]>,
    /// Of the newest image file.
    last_file: AtomicU64,
    /// Why operations on keys are refused.
    damage: OnceLock<String>,
    /// An operator accepts the damage of the keys.
    is_accepted: AtomicBool,
    withheld: OnceLock<Withheld>,
}

/// Uids of damaged shards that are not open, whose log records stay for whoever repairs them.
struct Withheld {
    uids: Range<u64>,
    /// Uids in that range that are collections: without a manifest it is not known which of the others belong to shards.
    collections: HashSet<u64>,
}

/// What is known once the stores are open.
struct Opened {
    hasher: KeyHasher,
    views: Box<[View]>,
    uid_base: u64,
    /// Per shard, the sequence number up to which images have everything.
    covered: Box<[AtomicU64]>,
}

/// What one core counts; nobody else writes it.
#[derive(Default)]
#[repr(align(128))]
struct Counters {
    gets: AtomicU64,
    hits: AtomicU64,
    corruption_errors: AtomicU64,
    corruption_bytes: AtomicU64,
    images: AtomicU64,
    images_failed: AtomicU64,
    image_ms: AtomicU64,
    image_bytes_freed: AtomicU64,
}

/// Adds without a locked instruction: the counter has one writer.
fn count(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

impl KeysShared {
    pub(crate) fn new(cores: usize) -> KeysShared {
        KeysShared {
            // Stores have a domain of their own: searches of collections pin for longer than a full store can wait for its readers.
            domain: Domain::new(cores),
            cores,
            opened: OnceLock::new(),
            counters: (0..cores).map(|_| Counters::default()).collect(),
            last_file: AtomicU64::new(0),
            damage: OnceLock::new(),
            is_accepted: AtomicBool::new(false),
            withheld: OnceLock::new(),
        }
    }

    /// The shard whose log records carry `uid`.
    pub(crate) fn shard_of_uid(&self, uid: u64) -> Option<usize> {
        let opened = self.opened.get()?;
        let shard = usize::try_from(uid.checked_sub(opened.uid_base)?).ok()?;
        (shard < opened.views.len()).then_some(shard)
    }

    /// The core of a shard.
    pub(crate) fn core_of(&self, shard: usize) -> usize {
        shard % self.cores
    }

    /// Up to which sequence number the log of the shard with that uid is not needed any more; `None`: no such shard.
    pub(crate) fn covered(&self, uid: u64) -> Option<u64> {
        if let Some(withheld) = self.withheld.get()
            && withheld.uids.contains(&uid)
            && !withheld.collections.contains(&uid)
        {
            return Some(0);
        }
        let shard = self.shard_of_uid(uid)?;
        Some(self.opened.get()?.covered[shard].load(Relaxed))
    }
}

/// A key's place: its hash, and which core changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The hash.
    pub hash: KeyHash,
    /// The owner of its shard.
    pub core: usize,
    shard: usize,
}

/// One core's side of the keys.
pub struct Keys {
    index: usize,
    shared: Arc<KeysShared>,
    seat: Participant,
    /// What the keys of this core hold.
    share: Arc<Share>,
    /// Those of this core, ascending: shard `n` stands at `n / cores`.
    owned: RefCell<Vec<Shard>>,
    /// Changes since it was looked whether the log has grown too long.
    unchecked: Cell<u32>,
    checkpoint_lock: Rc<Lock>,
    book: Cell<checkpoint::Book>,
    /// Bytes that were alive when the disk had no room for an image of everything.
    tried_bytes: Cell<Option<u64>>,
    indexes: RefCell<Indexes>,
    /// There is something to build.
    index_work: Event,
    /// On core 0: who may define indexes.
    indexes_lock: Rc<Lock>,
    /// Who may look at every key of this core.
    scan_lock: Rc<Lock>,
    /// Queries of this core's connections that look at every key.
    scans: Cell<usize>,
    /// On core 0: what the newest manifest says, and who may replace it.
    manifest: RefCell<Option<Manifest>>,
    manifest_lock: Rc<Lock>,
    /// On core 0: images that could not be read to their end.
    damaged: RefCell<BTreeSet<String>>,
}

impl Keys {
    pub(crate) fn new(index: usize, shared: Arc<KeysShared>, account: &Arc<Account>) -> Keys {
        Keys {
            index,
            seat: shared.domain.participant(index),
            share: Arc::new(Share::new(account, MemoryUse::Keys)),
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
        }
    }

    /// Why operations on keys are refused, if they are.
    #[inline]
    pub fn damage(&self) -> Option<&str> {
        self.shared.damage.get().map(String::as_str)
    }

    /// Refuses when the keys are damaged.
    ///
    /// # Errors
    /// [`OpError::Damaged`].
    #[inline]
    pub fn healthy(&self) -> Result<(), OpError> {
        match self.damage() {
            None => Ok(()),
            Some(_) => Err(OpError::Damaged("the keys are".to_owned())),
        }
    }

    /// The log has failed. Stops serving keys if this core has the shard `uid`: the shard has applied records whose writers were told that they
    /// are refused, and any core may read them.
    pub(crate) fn refused_by_log(&self, uid: u64) {
        if self.owned.borrow().iter().all(|shard| shard.uid != uid) {
            return;
        }
        let why = "writes of keys were refused when the log failed; a restart serves what is durable";
        if self.shared.damage.set(why.to_owned()).is_ok() {
            tracing::error!(why, "the keys serve nothing");
        }
    }

    fn opened(&self) -> &Opened {
        self.shared.opened.get().expect("keys are asked for once the store is open")
    }

    fn counters(&self) -> &Counters {
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
    pub fn place_of(&self, key: &[u8]) -> Place {
        let opened = self.opened();
        let hash = opened.hasher.hash_of(key);
        let shard = hash.part(opened.views.len());
        Place { hash, core: self.shared.core_of(shard), shard }
    }

    #[inline]
    fn view(&self, place: Place) -> &View {
        &self.opened().views[place.shard]
    }

    /// Asks the memory for what operations on these keys are about to look at; see [`View::prefetch_bucket`]. Worth it from two keys on, and
    /// of no more than [`PREFETCHED_MAX`].
    pub fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let mut places = [None; PREFETCHED_MAX];
        let pin = self.pin();
        for (slot, key) in places.iter_mut().zip(keys) {
            let place = self.place_of(key);
            self.view(place).prefetch_bucket(&pin, place.hash);
            *slot = Some(place);
        }
        for place in places.iter().flatten() {
            self.view(*place).prefetch_entry(&pin, place.hash);
        }
    }

    /// Appends the value of `key` to `out`; see [`View::get`]. On [`Read::Contended`] ask the owner: [`Core::key_get_here`].
    #[inline]
    pub fn get(&self, pin: &Pin<'_>, place: Place, key: &[u8], now_ms: u64, out: &mut Vec<u8>) -> Read {
        let read = self.view(place).get(pin, place.hash, key, now_ms, out);
        if !matches!(read, Read::Contended) {
            self.note_get(matches!(read, Read::Found { .. }));
        }
        read
    }

    /// Bytes of the value of `key` as far as this core knows; see [`View::value_len`].
    #[inline]
    pub fn value_len(&self, place: Place, key: &[u8]) -> usize {
        self.view(place).value_len(&self.pin(), place.hash, key)
    }

    fn note_get(&self, is_hit: bool) {
        count(&self.counters().gets, 1);
        count(&self.counters().hits, is_hit.into());
    }

    /// Whether `key` is there.
    #[inline]
    pub fn exists(&self, pin: &Pin<'_>, place: Place, key: &[u8], now_ms: u64) -> bool {
        self.view(place).exists(pin, place.hash, key, now_ms)
    }

    /// Milliseconds that `key` has left, −1 when it has no expiry, −2 when it is not there.
    #[inline]
    pub fn ttl(&self, pin: &Pin<'_>, place: Place, key: &[u8], now_ms: u64) -> i64 {
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
    fn is_stored(&self, key: &[u8]) -> bool {
        // At the beginning of time nothing has expired.
        self.exists(&self.pin(), self.place_of(key), key, 0)
    }

    /// A number that changes when keys have gone without a change of them: expired, evicted, flushed.
    fn gone_unnoticed(&self) -> u64 {
        let gone = |shard: &Shard| {
            let stats = shard.writer.stats();
            stats.expired + stats.evictions + stats.flushes
        };
        self.owned.borrow().iter().map(gone).sum()
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
    /// Images given up.
    pub compactions_aborted: u64,
    /// Time spent on them.
    pub compaction_ms: u64,
    /// Bytes of older images that they replaced.
    pub compaction_bytes_reclaimed: u64,
}

impl Core {
    /// This core's side of the keys.
    #[inline]
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Figures of all shards, those of other cores asked for: some 10 µs and a message to each.
    pub async fn keys_stats(self: &Rc<Self>) -> KeysStats {
        let mut sum = KeysStats::default();
        for to in 0..self.env().cores() {
            let part = crate::env::call_own(self, to, |there| async move { there.keys().own_stats() }).await;
            sum.add(&part);
        }
        sum
    }
}

impl Keys {
    fn own_stats(&self) -> KeysStats {
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
fn new_shards(core: &Core, hasher: &KeyHasher, uid_base: u64) -> Result<Vec<Shard>, String> {
    let (shared, options) = (&core.node().keys, core.options());
    let shards = options.keys.shards(options.shards);
    let own = (0..shards).filter(|&shard| shared.core_of(shard) == core.env().index());
    // As much as this core has of the keys.
    let index_bytes = options.keys.index_bytes() / shards as u64 * own.clone().count() as u64;
    let index_bytes = usize::try_from(index_bytes).unwrap_or(usize::MAX);
    core.keys().indexes.borrow_mut().set_bytes_max(index_bytes);
    own.map(|number| {
        let config = options.keys.config(shards);
        let writer = Writer::new(config, hasher.clone(), shared.domain.clone());
        let mut writer = writer.map_err(|error| format!("keys: {error}"))?;
        if core.env().disk().is_some() || options.keys.query {
            writer.note_evicted();
        }
        let share = core.keys().share.clone();
        writer.grow_with(Arc::new(move |bytes| share.take(bytes as u64, Growth::New).is_ok()));
        Ok(Shard::new(number, uid_base + number as u64, writer))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_as_many_as_the_budget_allows() {
        let shards = |budget: u64, shards| KeysOptions::new(budget).shards(shards);
        assert_eq!([256, 1].map(|wanted| shards(6 << 30, wanted)), [128, 1]);
        assert_eq!(
            [0, 1 << 20, 64 << 20, 512 << 20, 1 << 40].map(|budget| shards(budget, 256)),
            [1, 1, 2, 16, 256]
        );
    }
}
