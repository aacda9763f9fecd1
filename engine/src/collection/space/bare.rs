//! Vectors given up for codes: `ivf_pq` without `ivf_rerank`, and `pq_drop_vecs`.
//!
//! In a graph all go at once, when it is trained and everything is linked; nothing is inserted from the training on. In cells each goes for itself:
//!
//! For readers a slot's vector is what its code stands for from the moment it is filed. For the owner that is so from when the codes are
//! proven, whether its floats are still there or not: so what is learned and filed later does not depend on when readers unpin. The floats
//! wait for readers that may have found the slot in the tail;
//! then whole pages of them go back to the kernel. A slot that is born again is written into its old place.
//!
//! Codes are proven when a look at how well they fit has found nothing better, or there is nothing to look at and nothing is being written.
//! Where data moves away from what codes were learned from, what is filed meanwhile keeps its floats until then: the next training learns
//! from them, and codes them as they are. With codes that do not fit, floats would be gone for nothing.
use super::{Cow, PointsWriter, Retired, Slot, SlotSet, SpaceWriter};
use crate::collection::points::UnseenVectors;

impl SpaceWriter {
    /// Whether inserts are refused: the quantizer is trained that vectors are given up for.
    pub(crate) fn is_read_only(&self) -> bool {
        self.shared.config.pq_drop_vecs && self.shared.graph.codec_number() != 0
    }

    /// Owner, between rounds: gives the vectors of a graph up when their time has come; true when it did.
    pub(crate) fn give_up_step(&mut self, points: &mut PointsWriter) -> bool {
        let graph = &self.shared.graph;
        let due = self.shared.config.pq_drop_vecs && !graph.is_bare() && graph.is_quantized();
        if !due || self.shared.tail_len() > 0 || self.round_open() {
            return false;
        }
        graph.give_up_vectors();
        let end = points.high_water() as Slot;
        for from in (0..end).step_by(SLOTS_AT_ONCE) {
            let slots = (from..end.min(from + SLOTS_AT_ONCE as Slot)).collect();
            points.retire(Retired::Vectors { space: self.number, slots });
        }
        true
    }

    /// Some of what was restored into the first `slots` slots has no vectors any more.
    pub(super) fn restore_bare(&mut self, slots: u32) {
        self.shared.graph.give_up_vectors();
        self.bare = SlotSet::all(slots as usize);
        // An older image may have had vectors of these slots.
        self.release_bare(0, slots);
    }

    /// The padded vector of a slot: as it was written, or what its code stands for.
    pub(super) fn vector_of(&self, slot: Slot) -> Cow<'_, [f32]> {
        if self.shared.config.drops_vectors()
            && let Some(filing) = self.index.filing()
            && let Some(current) = filing.current.as_ref().filter(|_| !filing.unproven.contains(slot))
        {
            let mut vector = vec![0.0; crate::distance::padded(self.shared.config.dim)];
            if current.cells().decode(slot, &mut vector) {
                return Cow::Owned(vector);
            }
        }
        Cow::Borrowed(self.shared.graph.vector(slot))
    }

    /// These slots have just been filed in the cells that are searched. What lies in a file stays there: the kernel keeps no more
    /// of it in memory than it is asked for.
    pub(super) fn give_up_vectors(&self, points: &mut PointsWriter, mut slots: Vec<Slot>) {
        slots.retain(|&slot| !self.is_unproven(slot));
        if self.shared.config.drops_vectors() && !self.shared.graph.keeps_file() && !slots.is_empty() {
            points.retire(Retired::Vectors { space: self.number, slots });
        }
    }

    /// Whether a filed slot keeps its vector as it is not proven that codes fit it.
    pub(super) fn is_unproven(&self, slot: Slot) -> bool {
        self.index.filing().is_some_and(|filing| filing.unproven.contains(slot))
    }

    /// Codes are as good as others would be: what is filed gives its vectors up.
    pub(super) fn prove_codes(&mut self, points: &mut PointsWriter) {
        let Some(filing) = self.index.filing_mut() else { return };
        let proven = std::mem::take(&mut filing.unproven);
        self.give_up_vectors_of(points, &proven);
    }

    /// Nothing is being written, codes are not seen to misfit what was written since the training, and there is too little of it to ask for
    /// another.
    pub(super) fn prove_at_rest(&mut self, points: &mut PointsWriter) {
        let Some(filing) = self.index.filing() else { return };
        let fits = filing.watch.fits() != Some(false);
        let rests = filing.watch.resting && filing.current.is_some() && filing.next.is_none();
        if rests && fits && !self.training_due() {
            self.prove_codes(points);
        }
    }

    /// No reader can have found the slots otherwise than filed. What it costs in steps.
    pub(crate) fn drop_vectors(&mut self, vectors: &UnseenVectors) -> usize {
        let mut dropped: Vec<Slot> = vectors.slots().to_vec();
        dropped.sort_unstable();
        dropped.iter().for_each(|&slot| self.bare.insert(slot));
        // So many slots share a page with a given one, at most.
        let near = (PAGE_BYTES / self.shared.graph.vector_row_bytes() + 1) as Slot;
        let mut released = 0;
        for &slot in &dropped {
            if slot < released {
                continue;
            }
            let mut from = slot;
            while from > slot.saturating_sub(near) && self.bare.contains(from - 1) {
                from -= 1;
            }
            // Up to a bare slot that nobody drops now: it has been tried before.
            let (mut to, mut last) = (slot + 1, slot);
            while self.bare.contains(to) && to <= last + near {
                if dropped.binary_search(&to).is_ok() {
                    last = to;
                }
                to += 1;
            }
            self.release_bare(from, to);
            released = to;
        }
        dropped.len()
    }
}

/// Slots whose vectors go to the kernel in one go.
const SLOTS_AT_ONCE: usize = 1 << 12;

/// The largest page there may be under a vector, as far as neighbours are looked at.
const PAGE_BYTES: usize = 1 << 16;
