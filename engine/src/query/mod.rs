//! Queries of several lanes: what each lane found becomes one result.

mod examples;
mod fusion;
mod lanes;
mod mmr;
#[cfg(test)]
mod tests;

pub use fusion::{FusedHit, Fusion, Lane, RRF_K_DEFAULT, Ranking, fuse, lane_weights};
pub use lanes::{
    Anchor, Combine, Discover, Found, Group, LaneError, LaneQuery, LaneReport, Leaf, Method, QueryScratch,
    Recommend, Source, Strategy, group_hits, search_lanes, search_lanes_paced,
};
