//! Maximal marginal relevance (Carbonell, Goldstein: The use of MMR, diversity-based reranking, SIGIR 1998): near the query, and
//! unlike what was chosen before.

use super::lane_query::Found;
use super::run::Run;
use crate::collection::Space;
use crate::distance::Kernel;
use crate::pace::{Pace, TooLong};

/// Candidates compared between two questions to the pace.
const PART: usize = 256;

impl Run<'_> {
    /// The `k` of `candidates` (nearest first in the space, with their distances to the query) that are chosen one by one, in the order chosen:
    /// each has the greatest `lambda * -d(query, c) - (1 - lambda) * max(-d(c, chosen))` of those left, ties go to the nearer. The
    /// first is the nearest.
    ///
    /// Cost: `k` distances per candidate.
    ///
    /// # Errors
    /// [`TooLong`].
    pub(super) async fn diverse(
        &self,
        mut candidates: Vec<Found>,
        space: &Space,
        lambda: f32,
        k: usize,
        pace: &mut impl Pace,
    ) -> Result<Vec<Found>, TooLong> {
        let kernel = Kernel::of(space.config().metric);
        let mut chosen: Vec<Found> = Vec::with_capacity(k.min(candidates.len()));
        // Of each candidate left: how near the nearest of those chosen is.
        let mut nearest = vec![f32::INFINITY; candidates.len()];
        pace.foresee(candidates.len().saturating_mul(k.saturating_sub(1)))?;
        while chosen.len() < k && !candidates.is_empty() {
            let best = if chosen.is_empty() {
                0
            } else {
                let value = |at: usize| -lambda * candidates[at].distance + (1.0 - lambda) * nearest[at];
                // The first of equals, which is the nearest: candidates keep their order.
                (1..candidates.len()).fold(0, |best, at| if value(at) > value(best) { at } else { best })
            };
            let next = candidates.remove(best);
            nearest.remove(best);
            chosen.push(next);
            if chosen.len() == k {
                break;
            }
            let vector = space.stored_vector(self.pin, next.slot);
            for (part, nearest) in candidates.chunks(PART).zip(nearest.chunks_mut(PART)) {
                for (candidate, nearest) in part.iter().zip(nearest) {
                    let other = space.stored_vector(self.pin, candidate.slot);
                    *nearest = nearest.min(kernel.distance(&vector, &other));
                }
                pace.step(part.len()).await?;
            }
        }
        Ok(chosen)
    }
}
