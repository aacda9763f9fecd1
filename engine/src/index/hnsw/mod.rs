//! HNSW (Malkov, Yashunin, arXiv:1603.09320): single writer, readers on any core.
//!
//! Deviations from the paper: levels are drawn from a hash of the key, so a graph depends on data and order only;
//! inserts come in rounds that any cores plan and the owner commits; dead nodes keep routing until their neighbours
//! are relinked (FreshDiskANN, arXiv:2105.09613); a tree of edges that pruning may not touch keeps all nodes reachable;
//! only the first few of equal vectors count in beams and edge lists (`pool`, `select`), and the tree holds the others together.
//!
//! Reading order: [`config`](self) and `round` are the words, `graph`, `codes`, `quantized` (with `generation`, `training`, `quantizing`, `quantized_images` and `graph_codes`), `links` and `owner` the state, `search`,
//! `gated` and `scratch` the beam, `scan` what looks at many slots without edges, `select` the choice of neighbours, `plan`, `target`
//! and `commit` an insert, `tree` what keeps nodes reachable, `repair` a delete, `restored` a load from images.
mod admit;
mod codes;
mod commit;
mod config;
mod gated;
mod generation;
mod graph;
mod graph_codes;
mod insert_all;
mod links;
mod plan;
mod quantized;
mod quantized_images;
mod quantizing;
mod repair;
mod restored;
mod round;
mod scan;
mod scratch;
mod search;
mod select;
mod target;
mod training;
mod tree;
mod visited;

#[cfg(test)]
mod tests;

pub use admit::Admit;
pub use commit::Commit;
pub use config::{Flat, GraphConfig, SLOTS_MAX};
pub use gated::GatedBeam;
pub use graph::Graph;
pub use insert_all::{insert_all, relink_all};
pub use plan::Planner;
pub use quantized::Quantized;
pub use quantized_images::SavedCodes;
pub use quantizing::{Job, JobDone, JobStep, JobTicket, Living};
pub use round::{NodePlan, ROUND_NODES_MAX, Round, TargetJob, TargetPlan};
pub use scan::Scan;
pub use scratch::{Scratch, SearchStats};
pub use search::{Precision, Wanted};
