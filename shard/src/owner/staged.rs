//! Points that wait for a bulk build.

use crate::points::WriteBatch;
use ahash::HashSet;
use std::rc::Rc;

/// Bytes of a staged point beside its vector and row: its fields, its id in the set.
pub(super) const ID_BYTES: u64 = 80;

/// Points waiting for a build; in memory only, as the interface says.
#[derive(Default)]
pub struct Staged {
    pub(super) batches: Vec<Rc<WriteBatch>>,
    pub(super) ids: HashSet<u64>,
    pub(super) bytes: u64,
}

impl Staged {
    /// Points staged.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Bytes they take, about.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.ids.len() as u64 * ID_BYTES
    }

    /// Nothing staged.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// Bytes of the vectors and rows of a batch.
pub(super) fn staged_bytes(batch: &WriteBatch, dim: usize) -> u64 {
    let rows: usize = batch.points.iter().map(|point| point.row.len()).sum();
    (rows + batch.points.len() * dim * size_of::<f32>()) as u64
}
