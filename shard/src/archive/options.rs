//! How a node archives its log.

/// What the archive does. It needs a store of backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveOptions {
    /// The longest time before a change is sent, as long as the store answers, milliseconds.
    pub interval_ms: u64,
    /// Each backup removes what is older than this, milliseconds; 0 = it removes nothing.
    pub retention_ms: u64,
    /// The most bytes of segments that wait for the store; if there are more, the oldest are removed.
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
    /// The moment, Unix milliseconds by the clock of the server. Every change that was acknowledged by then is restored, and none that was requested
    /// later.
    pub until_unix_ms: u64,
}
