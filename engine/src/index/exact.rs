//! Exact search over an explicit list of slots.
use super::Neighbor;
use super::pool::Pool;
use crate::distance::Kernel;
use crate::memory::Arena;
use crate::slot::Slot;

/// Slots scored per kernel call: enough to keep the prefetcher ahead, small enough for the stack.
const CHUNK: usize = 64;

/// Scores `slots` against the padded, prepared `query` and returns the nearest `k` that `admit` accepts, nearest
/// first, ties by slot. `admit` is asked before a slot is scored. Cost: one distance per admitted slot.
///
/// The rows named by `slots` must be published: written, and not rewritten while the caller may see them.
///
/// # Panics
/// When a slot is outside the arena or `query` is not a row long.
pub fn exact_search(
    kernel: Kernel,
    vectors: &Arena<f32>,
    query: &[f32],
    slots: impl Iterator<Item = Slot>,
    k: usize,
    mut admit: impl FnMut(Slot) -> bool,
) -> Vec<Neighbor> {
    if k == 0 {
        return Vec::new();
    }
    let mut pool = Pool::default();
    pool.reset(k, k);
    let mut slots = slots.filter(|&slot| admit(slot));
    let mut distances = [0.0; CHUNK];
    let mut chunk = Vec::with_capacity(CHUNK);
    loop {
        chunk.clear();
        chunk.extend(slots.by_ref().take(CHUNK));
        if chunk.is_empty() {
            return pool.admitted().collect();
        }
        kernel.distances(query, vectors.table(), &chunk, &mut distances);
        for (&slot, &distance) in chunk.iter().zip(&distances) {
            let order = Neighbor { distance, slot }.order();
            if pool.wants(order) {
                // Copies count as others do.
                pool.insert(order, true, &|_| 0);
            }
        }
    }
}
