//! Indexes over slots: the HNSW graph, cells of a clustering, and exact search.
//!
//! One owner changes the graph; any core searches and plans against it at the same time ("plan anywhere, commit at
//! the owner"). The graph knows slots, vectors and edges, never ids, payloads or deletes' meaning: admission is a
//! closure.
mod exact;
mod hnsw;
mod ivf;
mod neighbor;
mod pool;

pub use exact::exact_search;
pub use hnsw::{
    Admit, Commit, Flat, GatedBeam, Graph, GraphConfig, Job, JobDone, JobStep, JobTicket, Living, NodePlan,
    Planner, Precision, Quantized, ROUND_NODES_MAX, Round, SLOTS_MAX, SavedCodes, Scan, Scratch, SearchStats,
    TargetJob, TargetPlan, Wanted, insert_all, relink_all,
};
pub use ivf::{Cells, FiledAt};
pub(crate) use ivf::{CellsWriter, CodeBlock, Coded, Measured, Order};
pub use neighbor::Neighbor;

pub use crate::slot::Slot;
