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
mod sender;

pub(crate) use catalog_log::{CatalogLog, KeysEntry};
pub(crate) use keeper::{DIR, Keeper};
pub use options::{ArchiveOptions, RestoreMoment};
pub(crate) use restore::restore;
pub(crate) use sender::{keep_bound, retire, run};

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The formats of the objects of archives, see [`crate::formats`].
pub(crate) const FORMATS: [(&str, u32); 2] =
    [("part of an archive", part::VERSION), ("catalog of an archive", catalog_log::FORMAT)];

/// What the records of changes of the catalog carry in the place of the uid of a collection. No collection and no shard of keys has it: their numbers
/// begin with the time.
pub(crate) const CATALOG_UID: u64 = 0;

/// What the archive has come to since the start, and how far it is behind.
#[derive(Debug, Default)]
pub struct ArchiveCounters {
    /// Bytes that were sent.
    pub sent_bytes: AtomicU64,
    /// Attempts that failed; they are repeated.
    pub failures: AtomicU64,
    /// Segments that were given up before they were sent.
    pub gaps: AtomicU64,
    /// Segments that have moved to where they wait.
    moved: AtomicU64,
    /// The catalog of this run is stored, so that parts of its logs may be.
    is_begun: AtomicBool,
    /// Of each core.
    cores: Vec<Behind>,
}

/// How far the archive is behind the log of one core.
#[derive(Debug, Default)]
struct Behind {
    bytes: AtomicU64,
    /// Since when, Unix milliseconds; 0 = it is not behind.
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
            // The first one that found something waiting counts.
            _ => _ = behind.since_unix_ms.compare_exchange(0, now_unix_ms, Relaxed, Relaxed),
        }
    }

    fn note_caught_up(&self, core: usize) {
        if let Some(behind) = self.cores.get(core) {
            behind.since_unix_ms.store(0, Relaxed);
        }
    }
}
