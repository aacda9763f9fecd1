//! Reusable state of one beam.
use super::select::Selection;
use super::visited::Visited;
use crate::distance::CodeQuery;
use crate::index::Neighbor;
use crate::index::pool::Pool;
use crate::quantizer::CodecQuery;
use crate::slot::Slot;

/// Counters of one search.
#[derive(Clone, Copy, Debug, Default)]
pub struct SearchStats {
    /// Distances computed.
    pub distances: u64,
    /// Nodes expanded.
    pub expanded: u64,
}

/// Reusable beam state; one per concurrent search on a core; allocation-free once grown. Fits any graph.
#[derive(Default)]
pub struct Scratch {
    pub(super) pool: Pool,
    pub(super) visited: Visited,
    /// Slots to score and their distances.
    pub(super) fresh: Vec<Slot>,
    pub(super) distances: Vec<f32>,
    /// The query as codes are compared with.
    pub(super) query: QueryForms,
    /// Neighbours that do not pass a gate.
    pub(super) blocked: Vec<Slot>,
    /// Room for those of one that do.
    pub(super) passing: Vec<Slot>,
    /// Room for a choice of neighbours.
    pub(super) selection: Selection,
    pub(super) found: Vec<Neighbor>,
    pub(super) stats: SearchStats,
}

/// Room for a query in the forms that a walk may score.
#[derive(Default)]
pub(super) struct QueryForms {
    pub(super) code: CodeQuery,
    pub(super) codec: CodecQuery,
}

impl Scratch {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }
}
