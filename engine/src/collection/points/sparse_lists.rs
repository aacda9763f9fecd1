//! A sparse space of a collection: an inverted list for each dimension over the slots that hold its points, made with the first vector.
//!
//! A space that is dropped leaves its number behind, because the rows of points know sparse spaces by their numbers. Vectors that rows still
//! have in it are neither filed nor counted.
use super::{add, sub};
use crate::memory::Domain;
use crate::slot::Slot;
use crate::sparse::{SparseIndex, SparseWriter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// What readers search.
pub struct SparseSpace {
    /// Made with the first vector: most collections have none, and an empty map of dimensions takes 16 KiB.
    index: OnceLock<Arc<SparseIndex>>,
    /// Vectors of live slots, without those that have expired.
    live: AtomicU64,
    is_dropped: bool,
}

/// The owner's handle.
pub(super) struct SparseSpaceWriter {
    shared: Arc<SparseSpace>,
    index: Option<SparseWriter>,
}

/// A sparse space that was dropped: to be kept until no reader has a view of it. Until then the slots that are freed leave its lists, so that a
/// reader does not find another point under such a slot.
pub struct DroppedSparseSpace {
    _held: Arc<()>,
}

/// The owner's side of a [`DroppedSparseSpace`].
pub(super) struct LeavingSpace {
    pub number: usize,
    pub space: SparseSpaceWriter,
    held: Weak<()>,
}

impl LeavingSpace {
    /// The space of that number leaves until what is returned beside it is dropped.
    pub fn new(number: usize, space: SparseSpaceWriter) -> (LeavingSpace, DroppedSparseSpace) {
        let held = Arc::new(());
        (LeavingSpace { number, space, held: Arc::downgrade(&held) }, DroppedSparseSpace { _held: held })
    }

    /// Whether readers may still have a view of the space.
    pub fn is_held(&self) -> bool {
        self.held.strong_count() > 0
    }
}

impl SparseSpace {
    /// The index; `None` before the first vector.
    pub(super) fn index(&self) -> Option<&SparseIndex> {
        self.index.get().map(Arc::as_ref)
    }

    /// Whether the space was dropped, so that only its number is left.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped
    }

    /// Any core: vectors of live points.
    pub(crate) fn vectors(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Any core: committed bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.index().map_or(0, SparseIndex::bytes)
    }
}

impl SparseSpaceWriter {
    /// A space without vectors, or the place of one that was dropped.
    pub(super) fn new(is_dropped: bool) -> SparseSpaceWriter {
        let shared = SparseSpace { index: OnceLock::new(), live: AtomicU64::new(0), is_dropped };
        SparseSpaceWriter { shared: Arc::new(shared), index: None }
    }

    /// The readable side.
    pub(super) fn shared(&self) -> &Arc<SparseSpace> {
        &self.shared
    }

    /// Files the vector of a live slot that no reader sees yet, where the space was not dropped; the number of components. The first one makes
    /// the index, with a hash of dimensions that `seed` keys.
    ///
    /// # Panics
    /// When `vector` is no sparse vector.
    pub(super) fn insert(
        &mut self,
        slot: Slot,
        vector: &[(u32, f32)],
        domain: &Arc<Domain>,
        seed: u64,
    ) -> usize {
        if vector.is_empty() || self.shared.is_dropped {
            return 0;
        }
        let index = self.index.get_or_insert_with(|| {
            let writer = SparseWriter::new(domain.clone(), seed);
            assert!(self.shared.index.set(writer.shared().clone()).is_ok(), "a space has one index");
            writer
        });
        index.insert(slot, vector).expect("a sparse vector of a row ascends and is finite");
        add(&self.shared.live, 1);
        vector.len()
    }

    /// Takes the vector of a dead slot out that no reader sees; what was never filed is fine. The number of components.
    pub(super) fn remove(&mut self, slot: Slot, vector: &[(u32, f32)]) -> usize {
        match &mut self.index {
            Some(index) if !vector.is_empty() => {
                index.remove(slot, vector);
                vector.len()
            }
            _ => 0,
        }
    }

    /// A vector of this space counts from now on, or does not any more.
    pub(super) fn count(&mut self, counts: bool) {
        match counts {
            _ if self.shared.is_dropped => {}
            true => add(&self.shared.live, 1),
            false => sub(&self.shared.live, 1),
        }
    }

    /// Gives back what no reader sees any more.
    pub(super) fn reclaim(&mut self) {
        self.index.iter_mut().for_each(SparseWriter::reclaim);
    }
}
