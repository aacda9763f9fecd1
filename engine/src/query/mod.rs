//! Queries of several lanes: what each lane found becomes one result.

mod cut;
mod document_index;
mod encoder;
#[cfg(test)]
mod encoder_tests;
mod examples;
mod filtered_documents;
#[cfg(test)]
mod filtered_documents_tests;
mod fusion;
mod index_gate;
#[cfg(test)]
mod inner_tests;
mod lane_query;
mod lanes;
mod matching_slots;
mod max_sim;
mod mmr;
mod options;
#[cfg(test)]
mod options_tests;
mod run;
#[cfg(test)]
mod tests;

pub use document_index::{DocumentIndex, Indexing};
pub use encoder::{Encoder, Encoding, Side};
pub use fusion::{FusedHit, Fusion, Lane, RRF_K_DEFAULT, Ranking, fuse, lane_weights};
pub use lane_query::{
    Anchor, Combine, Discover, Found, InnerQuery, LaneError, LaneQuery, Leaf, MaxSim, Method, Recommend,
    Source, Strategy,
};
pub use lanes::{Group, LaneReport, QueryScratch, group_hits, search_lanes, search_lanes_paced};
pub use max_sim::{document_of, token_of};
pub use options::{Effort, QueryOptions, similarity};
pub use run::Searched;
