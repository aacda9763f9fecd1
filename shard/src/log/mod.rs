//! The group-commit log: one per core; all writes of a loop turn share one sync.
use crate::disk::{Disk, LocalBoxFuture};
use std::path::PathBuf;
use std::rc::Rc;

/// When an append counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// fdatasync before the answer (default).
    Always,
    /// Written at once, synced every so many milliseconds; a power loss may lose that much.
    Interval(u64),
    /// Never synced.
    None,
}
/// Sizes of a log.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Directory of this core's segments, inside the data directory.
    pub dir: PathBuf,
    /// Generation given to segments of this run (greater than any on disk).
    pub generation: u64,
    /// Bytes per segment.
    pub segment_bytes: u64,
    /// Durability.
    pub sync: SyncMode,
}
/// Position of an append; pass to [`Log::durable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);
/// Why the log does not take or keep a record.
#[derive(Clone, Debug, thiserror::Error)]
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
/// See the module. `Rc`-shared on one core.
pub struct Log {}
impl Log {
    /// Creates the first segment and returns the log; run [`Log::flush_loop`] as a task.
    pub async fn create(disk: Rc<dyn Disk>, config: LogConfig) -> Result<Rc<Log>, LogError> {
        let _ = (disk, config);
        todo!()
    }
    /// Copies the record into the pending batch. Synchronous; refused when no space is left for it.
    pub fn append(&self, key: RecordKey, record: &[u8]) -> Result<Ticket, LogError> {
        let _ = (key, record);
        todo!()
    }
    /// Waits until the append is as durable as the mode promises.
    pub fn durable(&self, ticket: Ticket) -> LocalBoxFuture<'_, Result<(), LogError>> {
        let _ = ticket;
        todo!()
    }
    /// Writes and syncs batches until [`Log::stop`]; keeps the next segment allocated ahead; retries allocation after ENOSPC.
    /// `sleep` sleeps for the given microseconds (runtime's timer or the simulator's).
    pub async fn flush_loop(self: Rc<Self>, sleep: Rc<dyn Fn(u64) -> LocalBoxFuture<'static, ()>>) {
        let _ = sleep;
        todo!()
    }
    /// Flushes what is pending and ends the loop.
    pub async fn stop(&self) {
        todo!()
    }
    /// Bytes in segments not yet removed.
    pub fn live_bytes(&self) -> u64 {
        todo!()
    }
    /// Removes closed segments whose every record is covered: `covered(collection)` = checkpointed seq, None = dropped collection.
    pub async fn trim(&self, covered: &dyn Fn(u64) -> Option<u64>) -> Result<(), LogError> {
        let _ = covered;
        todo!()
    }
    /// Collections whose oldest uncovered record pins the oldest segment (candidates for a checkpoint).
    pub fn pinned_by(&self, covered: &dyn Fn(u64) -> Option<u64>) -> Vec<u64> {
        let _ = covered;
        todo!()
    }
}
/// What a scan of old segments found.
#[derive(Debug, Default)]
pub struct ScanReport {
    /// Records delivered.
    pub records: u64,
    /// Bytes cut off as a torn tail.
    pub torn_bytes: u64,
    /// Human-readable reports of damage in the middle (offset, file); each is logged loudly.
    pub damage: Vec<String>,
    /// Highest generation seen.
    pub generation_max: u64,
}
/// Reads every segment of every core's log under `root` in order, calling `record(key, bytes)`; cuts torn tails on disk.
pub async fn scan(
    disk: &dyn Disk,
    root: &std::path::Path,
    record: &mut dyn FnMut(RecordKey, &[u8]),
) -> std::io::Result<ScanReport> {
    let _ = (disk, root, record);
    todo!()
}
