//! Points that wait for a bulk build.

use crate::points::{NamedVectors, Vectors, WriteBatch};
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
    /// Number of dense vectors of all staged points.
    pub(super) vectors: u64,
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

/// Bytes beside the components, counted once for each point and once for each of its vectors; an upper bound.
const LIST_BYTES: usize = size_of::<NamedVectors>() + size_of::<(usize, Vec<f32>)>();

/// Bytes of the vectors and rows of a batch.
pub(super) fn staged_bytes(batch: &WriteBatch) -> u64 {
    let rows: usize = batch.points.iter().map(|point| point.row.len()).sum();
    let vectors = match &batch.vectors {
        Vectors::Named(all) => {
            let lists =
                |vectors: &NamedVectors| (1 + vectors.dense.len() + vectors.sparse.len()) * LIST_BYTES;
            all.iter().map(|vectors| vectors.numbers() * size_of::<f32>() + lists(vectors)).sum()
        }
        _ => batch.points.len() * batch.dim * size_of::<f32>(),
    };
    (rows + vectors) as u64
}

/// Number of dense vectors of a batch.
pub(super) fn staged_vectors(batch: &WriteBatch) -> u64 {
    match &batch.vectors {
        Vectors::Named(all) => all.iter().map(|vectors| vectors.dense.len() as u64).sum(),
        _ => batch.points.len() as u64,
    }
}
