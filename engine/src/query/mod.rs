//! Queries of several lanes: what each lane found becomes one result.

mod fusion;

pub use fusion::{FusedHit, Fusion, Lane, RRF_K_DEFAULT, Ranking, fuse, lane_weights};
