//! A quantizer and the codes that it has made of a graph's vectors.
use crate::memory::Arena;
use crate::quantizer::Codec;
use crate::slot::Slot;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A quantizer and its codes.
pub(super) struct Generation {
    /// Tells it from others of the graph, also in images; from 1 up, and from 1 again after 255.
    pub(super) number: u8,
    pub(super) codec: Arc<Codec>,
    /// Vectors that it was trained at.
    pub(super) trained_at: usize,
    pub(super) rows: Arena<u8>,
    /// One past the highest slot that ever had a code.
    pub(super) end: AtomicU32,
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Generation {
    pub(super) fn bytes(&self) -> usize {
        self.codec.bytes() + self.row_bytes()
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.end.load(Ordering::Relaxed) as usize * self.rows.row_len()
    }

    /// Owner: writes the code of a slot that nobody can reach; returns it.
    pub(super) fn write(&self, slot: Slot, vector: &[f32]) -> &[u8] {
        // SAFETY: the slot is not linked, so no walk reaches it, and the owner is alone.
        let row = unsafe { self.rows.row_mut_unchecked(slot as usize) };
        self.codec.encode(vector, row);
        self.end.fetch_max(slot + 1, Ordering::Relaxed);
        row
    }

    /// Owner, before this is published: copies codes that were made elsewhere to the slots from `first` on, but for those that `is_newer`
    /// says have been written since. Returns the number of codes.
    ///
    /// # Panics
    /// When a slot is out of range.
    pub(super) fn fill(&self, first: usize, codes: &[u8], is_newer: impl Fn(Slot) -> bool) -> usize {
        let codes = codes.chunks_exact(self.codec.code_len());
        let count = codes.len();
        for (slot, code) in (first..).zip(codes).filter(|&(slot, _)| !is_newer(slot as Slot)) {
            // SAFETY: no walk looks at codes of a generation before it is published, and the owner is alone.
            unsafe { self.rows.row_mut_unchecked(slot) }.copy_from_slice(code);
        }
        self.end.fetch_max((first + count) as Slot, Ordering::Relaxed);
        count
    }
}
