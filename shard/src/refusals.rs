//! Writes that were refused, counted by reason.

use crate::error::OpError;
use nigh_engine::collection::WriteError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why a write was refused although nothing is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The memory limit is reached.
    Memory,
    /// The budget of keys does not hold the value.
    StoreFull,
    /// The disk is full.
    DiskFull,
    /// The log of a core has failed.
    LogFailed,
    /// The collection or the keys are damaged, or a file of it cannot be written.
    Damaged,
    /// A quota of the collection.
    Quota,
    /// Too much waits already.
    Busy,
}

impl RefusalReason {
    /// Every reason, in the order of the metrics page.
    pub const ALL: [RefusalReason; 7] = [
        RefusalReason::Memory,
        RefusalReason::StoreFull,
        RefusalReason::DiskFull,
        RefusalReason::LogFailed,
        RefusalReason::Damaged,
        RefusalReason::Quota,
        RefusalReason::Busy,
    ];

    /// Its name on the metrics page.
    pub fn name(self) -> &'static str {
        match self {
            RefusalReason::Memory => "memory",
            RefusalReason::StoreFull => "store_full",
            RefusalReason::DiskFull => "disk_full",
            RefusalReason::LogFailed => "log_failed",
            RefusalReason::Damaged => "damaged",
            RefusalReason::Quota => "quota",
            RefusalReason::Busy => "busy",
        }
    }

    /// The reason of a refusal; `None` where the request itself is at fault.
    fn of(error: &OpError, has_log_failed: bool) -> Option<RefusalReason> {
        Some(match error {
            OpError::NoMemory(_) => RefusalReason::Memory,
            OpError::StoreFull => RefusalReason::StoreFull,
            OpError::NoSpace(_) | OpError::Write(WriteError::NoSpace(_)) => RefusalReason::DiskFull,
            OpError::Unavailable(_) | OpError::Damaged(_) if has_log_failed => RefusalReason::LogFailed,
            OpError::Unavailable(_) | OpError::Damaged(_) => RefusalReason::Damaged,
            OpError::Write(WriteError::Full | WriteError::RateLimited) => RefusalReason::Quota,
            OpError::Busy(_) => RefusalReason::Busy,
            _ => return None,
        })
    }
}

/// Counters of all cores: refusals are rare, so that they need no lines of their own.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; RefusalReason::ALL.len()]);

impl Refusals {
    /// Counts a write that ended with `error`, if that is a refusal.
    pub(crate) fn note(&self, error: &OpError, has_log_failed: bool) {
        if let Some(reason) = RefusalReason::of(error, has_log_failed) {
            self.0[reason as usize].fetch_add(1, Relaxed);
        }
    }

    /// Writes refused for a reason since the start. A batch that ends at one of its points counts once.
    pub fn count(&self, reason: RefusalReason) -> u64 {
        self.0[reason as usize].load(Relaxed)
    }
}
