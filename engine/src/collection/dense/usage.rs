//! Memory of a collection by part.
use super::row_block::row_cost;
use super::{Dense, DenseWriter};
use crate::memory::Pin;
use crate::slot::Slot;
use std::sync::atomic::Ordering;

/// An id takes some 16 bytes of the map of ids, 12 of the ordered set and 4 of the tail.
const BYTES_PER_ID: u64 = 32;

/// Committed bytes by part; their sum is [`super::Stats::bytes`] but for what changes between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Vectors, edges or cells, and what only the owner has.
    pub graph: u64,
    /// Codes of the vectors: int8 ones that walks go over, or went over until they were given up, and those of a quantizer.
    pub codes: u64,
    /// A line of facts per slot.
    pub slots: u64,
    /// Payload rows, replaced ones that wait for readers included.
    pub rows: u64,
    /// From id to slot.
    pub ids: u64,
    /// Points not in the graph yet.
    pub tail: u64,
    /// From value to slots, with columns.
    pub payload_index: u64,
    /// Inverted lists of sparse vectors and of text.
    pub lanes: u64,
    /// Of a persistent collection, bytes that lie in files and not in the sum: vectors,
    pub file_vectors: u64,
    /// and what is made anew with each start: codes, edges, lines of facts.
    pub file_index: u64,
}

impl Dense {
    /// Any core: memory by part. Costs nothing to speak of.
    pub fn usage(&self) -> Usage {
        let codes = self.graph.memory_code_bytes() as u64;
        let slots = self.slots.load(Ordering::Relaxed);
        let (file_vectors, file_index) = self.graph.file_bytes(self.cells.is_none());
        Usage {
            // Measured by the owner now and then, codes included.
            graph: self.owner_bytes.load(Ordering::Relaxed).saturating_sub(codes),
            codes,
            slots: self.meta.bytes(slots),
            rows: self.meta.row_bytes(),
            ids: self.ids.bytes() as u64,
            tail: self.tail.bytes(),
            payload_index: self.index.bytes(),
            lanes: self.lanes.bytes(),
            file_vectors: file_vectors as u64,
            file_index: file_index as u64 + self.meta.file_bytes(slots),
        }
    }

    /// Bytes that a new point with a payload row of `row_bytes` takes, about: in a new slot, or in that of a point that is gone. The row's
    /// terms in the payload index take as much again as it does, more or less; what was taken in truth shows in [`super::Stats::bytes`].
    #[inline]
    pub fn bytes_of_point(&self, row_bytes: usize, new_slot: bool) -> u64 {
        let slot = match new_slot {
            true => self.graph.bytes_per_slot() as u64 + self.meta.bytes(1) + BYTES_PER_ID,
            false => 0,
        };
        slot + 2 * row_cost(row_bytes)
    }

    /// Of [`Usage::file_vectors`], bytes that are in memory now, of a large collection by sample: some 10 µs per 4 MiB, at most 64 times.
    pub fn resident_vector_bytes(&self) -> u64 {
        self.graph.resident_vector_bytes() as u64
    }

    /// Looks whether vectors of a file have left memory, so that searches have them fetched in advance; nothing to do where they lie in
    /// none. Some 100 µs.
    pub fn note_residency(&self) {
        self.graph.note_residency();
    }

    /// Any core, under the pin: of `rows`, read from the file of vectors from slot `first` on, the first that is not what was written there
    /// for a point that lives. One that differs is looked at in memory as well, as another may have come there since it was read.
    pub fn differs(&self, pin: &Pin<'_>, first: Slot, rows: &[u8]) -> Option<Slot> {
        let row_bytes = self.graph.vectors().row_len() * size_of::<f32>();
        let end = self.slots.load(Ordering::Acquire) as Slot;
        let read = (first..end).zip(rows.chunks_exact(row_bytes));
        let mut suspects = read
            .filter(|&(slot, row)| self.graph.checksum(slot).is_some_and(|sum| crc32c::crc32c(row) != sum))
            .map(|(slot, _)| slot);
        suspects.find(|&slot| !self.is_sound(pin, slot, slot + 1))
    }

    /// Any core, under the pin: whether the vectors of slots `from..to` that hold a point are what was written there. Where they lie
    /// in no file there is nothing to ask.
    pub fn is_sound(&self, pin: &Pin<'_>, from: Slot, to: Slot) -> bool {
        let _ = pin;
        let end = (self.slots.load(Ordering::Acquire) as Slot).min(to);
        (from..end).filter(|&slot| !self.meta.is_dead(slot)).all(|slot| self.graph.is_sound(slot))
    }
}

impl DenseWriter {
    /// [`super::Stats::bytes`] of a collection that is being opened: while images come in nothing of it is published, and slots that had
    /// no point when it was captured have no memory yet.
    pub fn bytes_while_opened(&self) -> u64 {
        let shared = &self.shared;
        let per_slot = |slots: u64| slots * shared.graph.bytes_per_slot() as u64 + shared.meta.bytes(slots);
        let stats = shared.stats();
        match &self.restoring {
            Some(restoring) => stats.bytes + per_slot(restoring.points() as u64),
            None => {
                let empty = stats.slots.saturating_sub(stats.live + stats.tombstoned);
                stats.bytes.saturating_sub(per_slot(empty))
            }
        }
    }
}
