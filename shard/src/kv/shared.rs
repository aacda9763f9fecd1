//! What all cores know of the keys: how they are kept, which tables are published, and what is counted.

use super::tape::Cut;
use ahash::HashSet;
use nigh_engine::kv::{Config, KeyHasher, View};
use nigh_engine::memory::Domain;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Part of the budget of keys that indexes may take, and the store then does not.
pub(super) const BUDGET_PART: u64 = 4;

/// Usual least bytes of a shard: twice the longest value, so that one fits beside others, whatever the budget is.
pub const SHARD_BYTES_MIN: u64 = 32 << 20;

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
    /// Bytes of changes that each core keeps while a backup is brought to one moment; `None` = a 64th of the memory limit for all cores, and at least
    /// 32 MiB each. For simulations.
    pub tape_bytes: Option<usize>,
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
            tape_bytes: None,
        }
    }

    /// Into how many shards keys are spread: `shards`, a power of two, or as many fewer as leave each its least.
    pub fn shards(&self, shards: usize) -> usize {
        let most = ((self.budget_bytes - self.index_bytes()) / self.shard_bytes_min.max(1)).max(1);
        1 << (usize::try_from(most).unwrap_or(usize::MAX).ilog2()).min(shards.ilog2())
    }

    /// The part of the budget that is for indexes of keys.
    pub(super) fn index_bytes(&self) -> u64 {
        if self.query { self.budget_bytes / BUDGET_PART } else { 0 }
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
    pub(super) domain: Arc<Domain>,
    pub(super) cores: usize,
    pub(super) opened: OnceLock<Opened>,
    /// The stores hold what the disk has of keys, or it is known that they are damaged.
    pub(super) is_served: AtomicBool,
    pub(super) counters: Box<[Counters]>,
    /// Of the newest image file.
    pub(super) last_file: AtomicU64,
    /// Why operations on keys are refused.
    pub(super) damage: OnceLock<String>,
    /// An operator accepts the damage of the keys.
    pub(super) is_accepted: AtomicBool,
    pub(super) withheld: OnceLock<Withheld>,
    /// How many backups of the keys were begun; used on core 0 only.
    pub(super) backups: AtomicU64,
    /// The moments of these.
    pub(super) cut: Arc<Cut>,
    /// The keys are being replaced by those of a backup: nothing is served, and no images are written of what is there meanwhile.
    pub(super) is_replaced: AtomicBool,
    /// How often that was begun.
    pub(super) replacements: AtomicU64,
    /// This start has spread the keys over shards anew, which no log tells.
    pub(super) is_spread: AtomicBool,
    /// There were no keys before this run.
    pub(super) is_new: AtomicBool,
}

/// Uids of damaged shards that are not open, whose log records stay for whoever repairs them.
pub(super) struct Withheld {
    pub(super) uids: Range<u64>,
    /// Uids in that range that are collections: without a manifest it is not known which of the others belong to shards.
    pub(super) collections: HashSet<u64>,
}

/// What is known once the stores are open.
pub(super) struct Opened {
    pub(super) hasher: KeyHasher,
    pub(super) views: Box<[View]>,
    pub(super) uid_base: u64,
    /// Per shard, the sequence number up to which images have everything.
    pub(super) covered: Box<[AtomicU64]>,
}

/// What one core counts; nobody else writes it.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Counters {
    pub(super) gets: AtomicU64,
    pub(super) hits: AtomicU64,
    pub(super) corruption_errors: AtomicU64,
    pub(super) corruption_bytes: AtomicU64,
    pub(super) images: AtomicU64,
    pub(super) images_failed: AtomicU64,
    pub(super) image_ms: AtomicU64,
    pub(super) image_bytes_freed: AtomicU64,
}

/// Adds without a locked instruction: the counter has one writer.
pub(super) fn count(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

impl KeysShared {
    pub(crate) fn new(cores: usize) -> KeysShared {
        KeysShared {
            // Stores have a domain of their own: searches of collections pin for longer than a full store can wait for its readers.
            domain: Domain::new(cores),
            cores,
            opened: OnceLock::new(),
            is_served: AtomicBool::new(false),
            counters: (0..cores).map(|_| Counters::default()).collect(),
            last_file: AtomicU64::new(0),
            damage: OnceLock::new(),
            is_accepted: AtomicBool::new(false),
            withheld: OnceLock::new(),
            backups: AtomicU64::new(0),
            cut: Arc::default(),
            is_replaced: AtomicBool::new(false),
            replacements: AtomicU64::new(0),
            is_spread: AtomicBool::new(false),
            is_new: AtomicBool::new(false),
        }
    }

    /// The shard whose log records carry `uid`.
    pub(crate) fn shard_of_uid(&self, uid: u64) -> Option<usize> {
        let opened = self.opened.get()?;
        let shard = usize::try_from(uid.checked_sub(opened.uid_base)?).ok()?;
        (shard < opened.views.len()).then_some(shard)
    }

    /// The log of the core that has the shard `uid` has failed. Stops serving keys: the shard has applied records whose writers were told that
    /// they are refused, and any core may read them.
    pub(crate) fn refused_by_log(&self, uid: u64) {
        if self.shard_of_uid(uid).is_none() {
            return;
        }
        let why = "writes of keys were refused when the log failed; a restart serves what is durable";
        if self.damage.set(why.to_owned()).is_ok() {
            tracing::error!(why, "the keys serve nothing");
        }
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
