//! Memory of a collection by part.
use super::Dense;
use super::meta::Meta;
use std::sync::atomic::Ordering;

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
}

impl Dense {
    /// Any core: memory by part. Costs nothing to speak of.
    pub fn usage(&self) -> Usage {
        let codes = (self.graph.code_bytes() + self.graph.quantized_bytes()) as u64;
        Usage {
            // Measured by the owner now and then, codes included.
            graph: self.owner_bytes.load(Ordering::Relaxed).saturating_sub(codes),
            codes,
            slots: Meta::bytes(self.slots.load(Ordering::Relaxed)),
            rows: self.meta.row_bytes(),
            ids: self.ids.bytes() as u64,
            tail: self.tail.bytes(),
            payload_index: self.index.bytes(),
            lanes: self.lanes.bytes(),
        }
    }
}
