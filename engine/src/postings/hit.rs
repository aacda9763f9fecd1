//! Hits of the lanes that rank by score.

use crate::slot::Slot;
use crate::top_k::Rank;
use std::cmp::Ordering;

/// A result of a sparse or text search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaneHit {
    /// Point id.
    pub id: u64,
    /// Higher is better.
    pub score: f32,
    /// Slot, valid while the pin under which it was found lives.
    pub slot: Slot,
}

impl Rank for LaneHit {
    /// Score descending, then id ascending. Scores are never NaN; zeros of both signs are equal.
    fn rank(&self, other: &LaneHit) -> Ordering {
        let by_score = other.score.partial_cmp(&self.score).unwrap_or(Ordering::Equal);
        by_score.then(self.id.cmp(&other.id))
    }
}
