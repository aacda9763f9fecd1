//! The archive of the log: the frames of every core's log, which go to the store of backups while the server runs, and the restore of a data directory
//! to a moment from a backup and these frames.
//!
//! Each core sends what is on the device of its own log (`sender`). A segment that the log needs no more and that is not sent yet moves to the
//! directory `archive` of the data directory (`keeper`), within a bound. Logs have the changes of points and keys, and not those of the catalog:
//! core 0 writes these to its own log as records of the uid `CATALOG_UID` (`catalog_log`), which a start passes over. Each run stores the catalog
//! that it began with before it sends anything else.
//!
//! A restore (`restore`) fetches the newest snapshot of each collection that is not newer than the moment, and the frames behind it up to the
//! moment, puts them into an empty data directory as a process that was killed at that moment would have left them, and lets the start do the rest.

mod catalog_log;
mod keeper;
mod names;
mod options;
mod part;
mod restore;
mod retention;
mod sender;
mod set_back;

pub(crate) use catalog_log::{CatalogLog, ChainEnd, KeysEntry, Unlogged};
pub(crate) use keeper::{DIR, Keeper};
pub use options::{ArchiveOptions, RestoreMoment};
pub(crate) use restore::{end_restore, restore};
pub(crate) use retention::retire;
pub(crate) use sender::{keep_bound, run};

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What the records of changes of the catalog carry in the place of the uid of a collection. No collection and no shard of keys has it: their numbers
/// begin with the time.
pub(crate) const CATALOG_UID: u64 = 0;

/// What the archive has come to since the start, and how far it is behind.
#[derive(Debug, Default)]
pub struct ArchiveCounters {
    /// Bytes that were sent.
    pub sent_bytes: AtomicU64,
    /// Attempts to send, or to remove what is too old, that failed; they are repeated.
    pub failures: AtomicU64,
    /// Segments that were given up before they were sent.
    pub gaps: AtomicU64,
    /// Segments that have moved to where they wait.
    moved: AtomicU64,
    /// The catalog of this run is stored, so that parts of its logs may be.
    is_begun: AtomicBool,
    /// Too old objects are being removed.
    is_removing: AtomicBool,
    /// Of each core.
    cores: Vec<Behind>,
    /// Of the logs of earlier runs.
    old: Behind,
}

/// How far the archive is behind a log.
#[derive(Debug, Default)]
struct Behind {
    bytes: AtomicU64,
    /// Core time since when, which nobody sets; 0 = it is not behind.
    since_ns: AtomicU64,
}

impl Behind {
    fn note(&self, bytes: u64, now_ns: u64) {
        self.bytes.store(bytes, Relaxed);
        match bytes {
            0 => self.since_ns.store(0, Relaxed),
            // The first look that found something waiting counts.
            _ => _ = self.since_ns.compare_exchange(0, now_ns.max(1), Relaxed, Relaxed),
        }
    }
}

impl ArchiveCounters {
    /// Counters for `cores` cores.
    pub(crate) fn new(cores: usize) -> ArchiveCounters {
        ArchiveCounters {
            cores: (0..cores).map(|_| Behind::default()).collect(),
            ..ArchiveCounters::default()
        }
    }

    fn all(&self) -> impl Iterator<Item = &Behind> {
        self.cores.iter().chain([&self.old])
    }

    /// Bytes of logs that are on the disk and not in the archive.
    pub fn behind_bytes(&self) -> u64 {
        self.all().map(|behind| behind.bytes.load(Relaxed)).sum()
    }

    /// For how long the oldest of these bytes have been waiting in this run, milliseconds, at the core time `now_ns`.
    pub fn behind_ms(&self, now_ns: u64) -> u64 {
        let since = self.all().map(|behind| behind.since_ns.load(Relaxed)).filter(|since| *since > 0).min();
        since.map_or(0, |since| now_ns.saturating_sub(since) / 1_000_000)
    }

    fn note_behind(&self, core: usize, bytes: u64, now_ns: u64) {
        if let Some(behind) = self.cores.get(core) {
            behind.note(bytes, now_ns);
        }
    }

    fn note_old_behind(&self, bytes: u64, now_ns: u64) {
        self.old.note(bytes, now_ns);
    }

    fn note_caught_up(&self, core: usize) {
        if let Some(behind) = self.cores.get(core) {
            behind.since_ns.store(0, Relaxed);
        }
    }
}
