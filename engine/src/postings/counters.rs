//! What all searches of an index have looked at.

use super::LaneStats;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that readers add to, on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct LaneCounters {
    postings: AtomicU64,
    scored: AtomicU64,
}

impl LaneCounters {
    /// Adds one search.
    pub fn add(&self, search: &LaneStats) {
        self.postings.fetch_add(search.postings, Ordering::Relaxed);
        self.scored.fetch_add(search.scored, Ordering::Relaxed);
    }

    /// All searches.
    pub fn sum(&self) -> LaneStats {
        LaneStats {
            postings: self.postings.load(Ordering::Relaxed),
            scored: self.scored.load(Ordering::Relaxed),
        }
    }
}
