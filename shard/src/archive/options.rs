//! How a node archives its log.

/// What the archive does. It needs a store of backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveOptions {
    /// A change is sent after so long at the latest, while the store answers, milliseconds.
    pub interval_ms: u64,
    /// What is older is removed after a backup, milliseconds; 0 = nothing is.
    pub retention_ms: u64,
    /// Bytes of segments that wait for the store at most; the oldest are given up beyond it.
    pub waiting_bytes: u64,
}

impl Default for ArchiveOptions {
    fn default() -> ArchiveOptions {
        ArchiveOptions { interval_ms: 10_000, retention_ms: 7 * 24 * 3_600_000, waiting_bytes: 4 << 30 }
    }
}

/// A start that brings an empty data directory to a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreMoment {
    /// Every change that was acknowledged by then is there, and none that was asked for later, Unix milliseconds by the clock of the server.
    pub until_unix_ms: u64,
}
