//! The dense collection: ids, versions, deadlines, vectors, payload rows and graph, one writer and many readers.
//!
//! A write becomes visible at once through the *tail* (fresh slots searched exactly) and moves into the graph in
//! rounds planned on any core. Visibility is by sequence number: a slot is visible to a reader with snapshot `s`
//! when `born <= s < died` and its deadline has not passed, so an upsert is never missing and never seen twice.
mod config;
pub mod config_keys;
mod config_limits;
mod dense;
mod index_type;
mod quantizer_config;
pub use config::DenseConfig;
pub use config_limits::{ConfigError, EF_MAX};
pub use dense::{
    CellsInfo, Clustering, Dense, DenseWriter, Explain, Filed, FilingRound, Hit, HitsWanted, MatchCursor,
    Matching, Moment, Point, Query, RestoreError, RowWrite, SearchError, Stats, TrainingSample,
    TrainingTicket, Usage, Write, WriteError, WriteMode,
};
pub use index_type::{Drift, IndexType, IvfConfig, IvfProduct, VamanaConfig};
pub use quantizer_config::Quantizer;
