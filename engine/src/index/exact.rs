//! Exact search over an explicit list of slots.
use super::{Neighbor, Slot};
use crate::distance::Kernel;
use crate::memory::Arena;
/// Scores `slots` against the padded `query` and keeps the nearest `k` that `admit` accepts, nearest first.
/// # Safety-free face: the caller guarantees (debug-asserted) that slots are below the arena's capacity and written.
pub fn exact_search(
    kernel: Kernel,
    vectors: &Arena<f32>,
    query: &[f32],
    slots: impl Iterator<Item = Slot>,
    k: usize,
    admit: impl FnMut(Slot) -> bool,
) -> Vec<Neighbor> {
    let _ = (kernel, vectors, query, slots.count(), k, admit);
    todo!()
}
