//! Hits of the lanes that rank by score, and the best k of a stream of them.

use crate::index::Slot;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

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

impl LaneHit {
    /// The order of results: score descending, then id ascending. Scores are never NaN; zeros of both signs are equal.
    pub fn rank(&self, other: &LaneHit) -> Ordering {
        let by_score = other.score.partial_cmp(&self.score).unwrap_or(Ordering::Equal);
        by_score.then(self.id.cmp(&other.id))
    }
}

struct Ranked(LaneHit);

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.rank(&other.0)
    }
}
impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Ranked {}

/// Keeps the `k` best of all hits offered.
pub(super) struct TopK {
    k: usize,
    worst_first: BinaryHeap<Ranked>,
}

impl TopK {
    pub fn new(k: usize) -> TopK {
        TopK { k, worst_first: BinaryHeap::new() }
    }

    /// A hit below this score cannot enter any more; one with just this score can, by its id.
    #[inline]
    pub fn threshold(&self) -> f32 {
        match self.worst_first.peek() {
            Some(worst) if self.worst_first.len() == self.k => worst.0.score,
            _ => f32::NEG_INFINITY,
        }
    }

    pub fn offer(&mut self, hit: LaneHit) {
        if self.worst_first.len() < self.k {
            self.worst_first.push(Ranked(hit));
        } else if let Some(mut worst) = self.worst_first.peek_mut()
            && hit.rank(&worst.0).is_lt()
        {
            worst.0 = hit;
        }
    }

    /// Replaces `out` with the hits kept, best first.
    pub fn write_to(self, out: &mut Vec<LaneHit>) {
        out.clear();
        out.extend(self.worst_first.into_iter().map(|ranked| ranked.0));
        out.sort_unstable_by(LaneHit::rank);
    }
}
