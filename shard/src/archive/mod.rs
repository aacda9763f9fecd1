//! The archive of the log: while the server runs, it sends the frames of every core's log to the store of backups. From a backup and these frames, a
//! data directory can be restored to a moment.
//!
//! Each core sends the part of its own log that is on the device (`sender`). If the log needs a segment no longer before it was sent, the segment
//! moves to the directory `archive` of the data directory (`keeper`), whose size is bounded. Logs contain the changes of points and keys, but not
//! those of the catalog: core 0 writes these to its own log as records of the uid `CATALOG_UID` (`catalog_log`), which a start passes over. Each run
//! of the server stores the catalog that it began with before it sends anything else.
//!
//! In this module, a *run* is the time from a start of the server to its end, and a *chain* is the log of one core in one run. A *part* is an object
//! of the store with frames of one segment. A core is *behind* while its log has bytes that the store does not have.
//!
//! A restore (`restore`) fetches the newest snapshot of each collection that is not newer than the moment, and the later frames up to the moment. It
//! puts them into an empty data directory as a process that was killed at that moment would have left them, and the start does the rest.

mod catalog_log;
mod keeper;
mod names;
mod options;
mod part;
mod restore;
mod sender;

pub(crate) use catalog_log::{CatalogLog, KeysEntry};
pub(crate) use keeper::{DIR, Keeper};
pub use options::{ArchiveOptions, RestoreMoment};
pub(crate) use restore::restore;
pub(crate) use sender::{keep_bound, retire, run};

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The uid in the records of changes of the catalog, in the place of that of a collection. No collection and no shard of keys has it, because their
/// uids begin with the time.
pub(crate) const CATALOG_UID: u64 = 0;

/// Figures of the archive since the start, and how far it is behind.
#[derive(Debug, Default)]
pub struct ArchiveCounters {
    /// Bytes that were sent.
    pub sent_bytes: AtomicU64,
    /// Attempts to send that failed; they are repeated.
    pub failures: AtomicU64,
    /// Segments that were removed before they were sent.
    pub gaps: AtomicU64,
    /// Segments that have moved to the directory where they wait.
    moved: AtomicU64,
    /// The catalog of this run is stored, so parts of its logs may be stored as well.
    is_begun: AtomicBool,
    /// How far each core is behind.
    cores: Vec<Behind>,
}

/// How far the archive is behind the log of one core.
#[derive(Debug, Default)]
struct Behind {
    bytes: AtomicU64,
    /// Since when the core has been behind, Unix milliseconds; 0 = it is not behind.
    since_unix_ms: AtomicU64,
}

impl ArchiveCounters {
    /// Counters for `cores` cores.
    pub(crate) fn new(cores: usize) -> ArchiveCounters {
        ArchiveCounters {
            cores: (0..cores).map(|_| Behind::default()).collect(),
            ..ArchiveCounters::default()
        }
    }

    /// Bytes of logs that are on the disk and not in the archive.
    pub fn behind_bytes(&self) -> u64 {
        self.cores.iter().map(|core| core.bytes.load(Relaxed)).sum()
    }

    /// For how long the oldest of these bytes have been waiting, milliseconds, at the time `now_unix_ms`.
    pub fn behind_ms(&self, now_unix_ms: u64) -> u64 {
        let since =
            self.cores.iter().map(|core| core.since_unix_ms.load(Relaxed)).filter(|since| *since > 0).min();
        since.map_or(0, |since| now_unix_ms.saturating_sub(since))
    }

    fn note_behind(&self, core: usize, bytes: u64, now_unix_ms: u64) {
        let Some(behind) = self.cores.get(core) else { return };
        behind.bytes.store(bytes, Relaxed);
        match bytes {
            0 => behind.since_unix_ms.store(0, Relaxed),
            // The time stays that of the first look that found something waiting.
            _ => _ = behind.since_unix_ms.compare_exchange(0, now_unix_ms, Relaxed, Relaxed),
        }
    }

    fn note_caught_up(&self, core: usize) {
        if let Some(behind) = self.cores.get(core) {
            behind.since_unix_ms.store(0, Relaxed);
        }
    }
}
