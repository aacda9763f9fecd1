//! The group-commit log: one per core; all writes of a loop turn share one sync.
//!
//! Invariants:
//! * What [`Log::durable`] has returned for is delivered by every later [`scan`] until it is trimmed.
//! * What a scan delivers of one run is, record by record, a beginning of what was appended (but for damage, which is
//!   reported). So a lost record takes everything after it along, in every [`SyncMode`].
//! * [`Log::append`] never waits and never promises room it does not have: a record is given its place in a segment
//!   that is already allocated, or it is refused before anything changed.
//! * While the reserve of the disk is not intact a log takes only what frees room ([`Purpose::Free`]).
//! * After a failed write or sync the log takes nothing more; what the device holds is then unknown until a restart.
//! * A segment is written by one run only. Old ones are read, cut and removed, never continued.
//! * No record is written to a segment before the ledger names it, and no segment is trimmed before the ledger records its last flush. So a segment
//!   that is missing or short is detected (`ledger`).
//!
//! The bytes are described in `format`.
mod archive;
mod flush;
mod format;
mod keep;
mod ledger;
mod old;
mod scan;
mod signal;
mod writer;

pub(crate) use archive::{Frames, KeptFrame, read_frames, segment_header, split_frames};
pub(crate) use format::SegmentId;
pub(crate) use keep::Keep;
pub use ledger::{ChainFound, Ledgers, MakeRoom, Owners};
pub use old::OldSegments;
pub use scan::{ScanReport, scan, scan_with};
pub use writer::Log;

use std::num::NonZeroU64;
use std::path::PathBuf;

/// The formats of the files of logs, see [`crate::formats`].
pub(crate) const FORMATS: [(&str, u32); 2] =
    [("log segment", format::FORMAT_VERSION), ("ledger of a log", ledger::FORMAT)];

/// When an append counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// On the device before the answer (default).
    Always,
    /// Written at once, synced every so many milliseconds; a power loss may lose that much.
    Interval(u64),
    /// Never synced, except by [`Log::stop`]; a power loss may lose everything since the start.
    None,
}

/// Sizes of a log.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Directory of this core's segments, inside the data directory: `<root of all logs>/<core number>`.
    pub dir: PathBuf,
    /// Generation given to segments of this run (greater than any on disk).
    pub generation: u64,
    /// Usual bytes per segment; a record that needs more gets a longer one.
    pub segment_bytes: u64,
    /// Durability.
    pub sync: SyncMode,
    /// Keeps a ledger of the segments, which says who owns what; `None` = none is kept.
    pub owners: Option<Owners>,
}

/// Position of an append; pass to [`Log::durable`]. Appends of one flush share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(NonZeroU64);

#[cfg(test)]
impl Ticket {
    /// The ticket of some append.
    pub(crate) fn for_tests(number: NonZeroU64) -> Ticket {
        Ticket(number)
    }
}

/// What a record is for, which decides whether a full disk takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// New data: refused while the disk is full.
    Grow,
    /// A deletion: it may use the reserve of the disk.
    Free,
}

/// Why the log does not take or keep a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// No space for another segment: the write is refused before anything changed; retry when space returns (507).
    #[error("no space left for the log: {0}")]
    NoSpace(String),
    /// A write or sync failed: final, the shard takes no more writes.
    #[error("the log failed and takes no more writes: {0}")]
    Failed(String),
    /// Record larger than [`RECORD_BYTES_MAX`].
    #[error("record of {0} bytes is larger than the log takes")]
    TooLarge(usize),
    /// A segment that is no longer needed could not be removed; the log itself is well. Try again later.
    #[error("an old log segment cannot be removed: {0}")]
    Trim(String),
}

/// Largest record, bytes (64 MiB).
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// Owner of a record, for trimming: (collection uid, its sequence number).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordKey {
    /// Collection uid.
    pub collection: u64,
    /// Its sequence number.
    pub seq: u64,
}

#[cfg(test)]
mod tests;
