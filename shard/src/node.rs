//! A node: how it runs, and the state that all cores share.

use crate::account::Account;
use crate::archive::ArchiveCounters;
use crate::backup::BackupOptions;
use crate::catalog::Catalog;
use crate::device::{Devices, Lane};
use crate::family::CollectionConfig;
use crate::kv::{KeysOptions, KeysShared};
use crate::log::{Owners, SyncMode};
use crate::progress::Progress;
use crate::refusals::Refusals;
use crate::reserve::Reserve;
use nigh_engine::memory::{Domain, Published, reserved_address_space};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Usual log segment size, bytes. Two always exist per core, zero-written.
pub const SEGMENT_BYTES: u64 = 8 << 20;
/// Usual log bytes of one core at which collections that pin it are checkpointed: half of the 64 MiB that recovery
/// may replay, so that the log has room while images are written.
pub const LOG_BYTES_SOFT: u64 = 32 << 20;
/// Usual records above a collection's newest image that make another worth writing, although the log has room, when it has had
/// no write for seconds or the server stops: a start puts replayed points into the graph once more, some thousands per second.
pub const IMAGE_RECORDS_MIN: u64 = 4096;
/// Up to this many bytes of vectors, over all collections, are compared before anything is served: some tenths of a second. The vectors of further
/// collections are compared while they serve.
const BEFORE_SERVING_BYTES: u64 = 256 << 20;

/// How a node runs.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Data directory; `None` = memory only, nothing survives.
    pub data: Option<PathBuf>,
    /// Units of ownership; collections map to shards, shards to cores. A power of two.
    pub shards: usize,
    /// Durability of acknowledged writes.
    pub sync: SyncMode,
    /// Past it writes are refused, bytes.
    pub memory_limit_bytes: u64,
    /// Log segment size, bytes ([`SEGMENT_BYTES`]).
    pub segment_bytes: u64,
    /// Log bytes per core that start checkpoints ([`LOG_BYTES_SOFT`]).
    pub log_bytes_soft: u64,
    /// Records that make an image worth writing at rest ([`IMAGE_RECORDS_MIN`]).
    pub image_records_min: u64,
    /// Between two sweeps for expired points, 0 = never.
    pub sweep_interval_ms: u64,
    /// How keys are kept.
    pub keys: KeysOptions,
    /// What opens devices for collections of `index_type` "gpu".
    pub devices: Devices,
    /// Where backups go.
    pub backup: BackupOptions,
    /// Has the allocator of the process return unused memory to the kernel. It should take some milliseconds at most. It is called on the
    /// thread of each core, because allocators keep what each thread has freed.
    pub give_back_memory: fn(),
}

impl NodeOptions {
    /// Bytes of the disk that are kept back for what frees room, for so many cores: two usual log segments for each core, whose records may
    /// have no image yet, one for deletes and one for small files. A small disk has less. 0 without a disk.
    pub fn reserve_bytes(&self, cores: usize) -> u64 {
        match self.data {
            Some(_) => (2 + 2 * cores as u64) * self.segment_bytes,
            None => 0,
        }
    }
}

/// Counts backups since the start.
#[derive(Debug, Default)]
pub struct BackupCounters {
    /// Runs that have ended.
    pub runs: AtomicU64,
    /// Collections that were not backed up, and stores to which nothing could be.
    pub failures: AtomicU64,
    /// Bytes that were sent.
    pub sent_bytes: AtomicU64,
    /// When the last run without a failure began, Unix milliseconds; 0 = there was none.
    pub complete_unix_ms: AtomicU64,
}

/// Counts collections that leave memory and come back, since the start.
#[derive(Debug, Default)]
pub struct ColdCounters {
    /// Cold collections now.
    pub collections: AtomicUsize,
    /// Collections that have left memory.
    pub evictions: AtomicU64,
    /// Evictions that failed, so that the collection stayed.
    pub eviction_failures: AtomicU64,
    /// Collections that have come back.
    pub promotions: AtomicU64,
    /// Promotions that failed, so that the collection stayed cold.
    pub promotion_failures: AtomicU64,
    /// How long those that have come back took, microseconds.
    pub promotion_us: AtomicU64,
}

/// State of a node that every core sees.
pub struct NodeShared {
    /// Start options.
    pub options: NodeOptions,
    /// Readers of published state.
    pub domain: Arc<Domain>,
    /// Names to collections.
    pub catalog: Published<Catalog>,
    /// Searches waiting or running per core.
    pub loads: Vec<AtomicU32>,
    /// The keys of all cores.
    pub(crate) keys: Arc<KeysShared>,
    /// Searches on devices.
    pub(crate) lane: Lane,
    /// What the process holds in memory.
    pub account: Arc<Account>,
    /// Room on the disk for what frees room.
    pub reserve: Arc<Reserve>,
    /// Writes that were refused.
    pub refusals: Refusals,
    /// What backups have come to.
    pub backups: BackupCounters,
    /// What the archive of the log has come to.
    pub archive: ArchiveCounters,
    /// The newest moment that was told, Unix milliseconds; see [`Self::moment_ms`].
    newest_moment_ms: AtomicU64,
    /// What has become of collections that were not used.
    pub cold: ColdCounters,
    /// Bytes of vectors that this start may still compare with their checksums before it serves.
    pub(crate) compared_before_serving: AtomicU64,
    pub(crate) cores_ready: AtomicUsize,
    next_uid: AtomicU64,
    next_task_id: AtomicU64,
    /// Of each core, why its log takes nothing more.
    log_failures: Vec<OnceLock<String>>,
    /// How far the opening of the store is.
    pub progress: Progress,
    /// Why the node could not start, when it could not.
    pub failure: OnceLock<String>,
}

impl NodeShared {
    /// State for `cores` cores.
    pub fn new(options: NodeOptions, cores: usize) -> Arc<NodeShared> {
        // Two seats each: see `Core::long_pin`. And the last for the lane.
        let domain = Domain::new(2 * cores + 1);
        let account = Account::with_keys(options.memory_limit_bytes, options.keys.budget_bytes);
        let reserve = Reserve::new(options.reserve_bytes(cores), cores);
        Arc::new(NodeShared {
            lane: Lane::new(options.devices.clone(), domain.clone(), account.clone()),
            options,
            keys: Arc::new(KeysShared::new(cores)),
            catalog: Published::new(domain.clone(), Catalog::default()),
            domain,
            loads: (0..cores).map(|_| AtomicU32::new(0)).collect(),
            account,
            reserve,
            refusals: Refusals::default(),
            backups: BackupCounters::default(),
            archive: ArchiveCounters::new(cores),
            newest_moment_ms: AtomicU64::new(0),
            cold: ColdCounters::default(),
            compared_before_serving: AtomicU64::new(BEFORE_SERVING_BYTES),
            cores_ready: AtomicUsize::new(0),
            next_uid: AtomicU64::new(1),
            next_task_id: AtomicU64::new(1),
            log_failures: (0..cores).map(|_| OnceLock::new()).collect(),
            progress: Progress::default(),
            failure: OnceLock::new(),
        })
    }

    /// A number no task of this process has.
    pub(crate) fn next_task_id(&self) -> u64 {
        self.next_task_id.fetch_add(1, Relaxed)
    }

    /// The moment `now_unix_ms` as logs and their archive tell it: never less than one that was told before on any core, however the clock is set. Else
    /// one core could be behind a moment and another one before it.
    pub(crate) fn moment_ms(&self, now_unix_ms: u64) -> u64 {
        self.newest_moment_ms.fetch_max(now_unix_ms, Relaxed).max(now_unix_ms)
    }

    /// A uid greater than every one before, also before a restart: it starts at the wall clock in microseconds.
    pub(crate) fn next_uid(&self) -> u64 {
        self.next_uid.fetch_add(1, Relaxed)
    }

    /// The first of `count` such numbers that follow each other.
    pub(crate) fn reserve_uids(&self, count: u64) -> u64 {
        self.next_uid.fetch_add(count, Relaxed)
    }

    /// All uids below this one may have been given.
    pub(crate) fn uid_end(&self) -> u64 {
        self.next_uid.load(Relaxed)
    }

    pub(crate) fn raise_uid(&self, at_least: u64) {
        self.next_uid.fetch_max(at_least, Relaxed);
    }

    /// The core that owns a collection: uid to shard to core.
    pub fn owner_of(&self, uid: u64, cores: usize) -> usize {
        Owners { shards: self.options.shards, cores }.of_collection(uid)
    }

    /// Slots a collection may grow to that has `held` slots already: what the memory limit holds, at least one million so that a small limit does
    /// not turn into an odd slot limit, at most 2^32 - 2. What lies in files may be many times as large, up to what every file system
    /// takes. Collections share the address space, so that of many the later ones may get less, but never less than twice what they hold.
    pub(crate) fn slots_max(&self, config: &CollectionConfig, held: usize) -> usize {
        let bytes = config.quota_bytes_per_point().max(1);
        let by_memory = match config.is_persistent() {
            false => self.options.memory_limit_bytes / bytes,
            true => (self.options.memory_limit_bytes.saturating_mul(PERSISTENT_FACTOR) / bytes)
                .min(FILE_MAX / bytes),
        };
        let by_memory = by_memory.clamp(SLOTS_MIN, u64::from(u32::MAX) - 1);
        let by_address_space = address_space_share(reserved_address_space()) / (ARENAS_FACTOR * bytes);
        slots_within(by_memory, by_address_space, held as u64) as usize
    }

    /// The log of core `core` has failed for good. Whether that is new: a log fails once.
    pub(crate) fn note_log_failure(&self, core: usize, cause: String) -> bool {
        self.log_failures[core].set(cause).is_ok()
    }

    /// Per core, whether its log has failed.
    pub fn failed_logs(&self) -> Vec<bool> {
        self.log_failures.iter().map(|cause| cause.get().is_some()).collect()
    }

    /// Which logs have failed, so that writes are refused until a restart, and why.
    pub fn log_failure(&self) -> Option<String> {
        let failed = self.log_failures.iter().enumerate();
        let failed = failed.filter_map(|(core, cause)| Some(format!("core {core}: {}", cause.get()?)));
        let failed: Vec<String> = failed.collect();
        (!failed.is_empty()).then(|| {
            format!("the log has failed, and writes are refused until a restart: {}", failed.join("; "))
        })
    }

    /// Whether any log has failed.
    pub(crate) fn has_log_failed(&self) -> bool {
        self.log_failures.iter().any(|cause| cause.get().is_some())
    }
}

/// Address space that collections share, of the 128 TiB that a process has on most machines. The rest is for keys, files and the allocator.
const ADDRESS_SPACE: u64 = 96 << 40;
/// Arenas reserve at most so many times what a point takes by its configuration. Codes of a quantizer, which are reserved later, are included.
const ARENAS_FACTOR: u64 = 2;
/// Slots that a collection gets when address space is short.
const SHARED_SLOTS_MIN: u64 = 1 << 16;

/// Bytes of address space that the next collection may reserve when `reserved` bytes are. The first one may take a quarter of all. The share falls with
/// the fifth power of what is left, so that it never runs out: if every collection takes its whole share, the n-th gets about a quarter of
/// all divided by `n^(5/4)`, for example 24 TiB, 75 GiB (the 100th) and 0.25 GiB (the 10,000th).
fn address_space_share(reserved: u64) -> u64 {
    let left = ADDRESS_SPACE.saturating_sub(reserved) as f64 / ADDRESS_SPACE as f64;
    (ADDRESS_SPACE as f64 / 4.0 * left.powi(5)) as u64
}

/// Slots of a collection that has `held` already, when memory and its share of the address space hold so many.
fn slots_within(by_memory: u64, by_address_space: u64, held: u64) -> u64 {
    by_memory.min(by_address_space.max(SHARED_SLOTS_MIN).max(2 * held)).max(held)
}

/// Slots that every collection may have. In tests so few that a collection can have more than a lower limit allows.
const SLOTS_MIN: u64 = if cfg!(test) { 256 } else { 1 << 20 };
/// Persistent collections may hold so many times what fits into memory.
const PERSISTENT_FACTOR: u64 = 64;
/// Bytes of a file of vectors; ext4 takes 16 TiB.
const FILE_MAX: u64 = 8 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_space_lasts_for_very_many_collections() {
        let (mut reserved, mut last) = (0, u64::MAX);
        for number in 1..=20_000u64 {
            let share = address_space_share(reserved);
            assert!(
                share <= last,
                "the share of collection {number} is {share}, and that of the one before {last}"
            );
            (reserved, last) = (reserved + share, share);
            match number {
                1 => assert_eq!(share, 24 << 40),
                100 => assert!(share > 70 << 30, "{share}"),
                10_000 => assert!(share > 240 << 20, "{share}"),
                _ => {}
            }
        }
        assert!(reserved < ADDRESS_SPACE);
        assert_eq!(address_space_share(u64::MAX), 0);
    }

    #[test]
    fn a_collection_keeps_what_it_holds_and_room_beside_it() {
        assert_eq!(slots_within(1 << 20, 1 << 30, 0), 1 << 20, "memory decides while there is address space");
        assert_eq!(slots_within(1 << 30, 1 << 20, 0), 1 << 20);
        assert_eq!(slots_within(1 << 30, 0, 0), SHARED_SLOTS_MIN);
        assert_eq!(slots_within(1 << 30, 0, 1 << 20), 1 << 21);
        assert_eq!(slots_within(100, 0, 1000), 1000, "what is stored opens under any limit");
        // What a build makes in the place of a collection may grow as far, however little address space is left.
        for before in [1, 1000, SHARED_SLOTS_MIN + 1, 90_000_000] {
            assert!(slots_within(1 << 30, 0, before.div_ceil(2)) >= before);
        }
    }
}
