//! Indexes over slots: the HNSW graph and exact search.
//!
//! One owner changes the graph; any core searches and plans against it at the same time ("plan anywhere, commit at
//! the owner"). The graph knows slots, vectors and edges, never ids, payloads or deletes' meaning: admission is a
//! closure.
mod exact;
mod hnsw;

pub use exact::exact_search;
pub use hnsw::{Graph, GraphConfig, NodePlan, Planner, Round, Scratch, SearchStats, TargetJob, TargetPlan};

/// A slot: row number of a point in every arena of its collection.
pub type Slot = u32;

/// A found slot; ordered by (distance, slot) with NaN last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbor {
    /// Distance to the query, smaller is closer.
    pub distance: f32,
    /// The slot.
    pub slot: Slot,
}
