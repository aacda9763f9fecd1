//! The dense collection: ids, versions, deadlines, vectors, payload rows and graph, one writer and many readers.
//!
//! A write becomes visible at once through the *tail* (fresh slots searched exactly) and moves into the graph in
//! rounds planned on any core. Visibility is by sequence number: a slot is visible to a reader with snapshot `s`
//! when `born <= s < died` and its deadline has not passed, so an upsert is never missing and never seen twice.
mod config;
mod dense;
mod index_type;
pub use config::{ConfigError, DenseConfig, EF_MAX, Quantizer};
pub use dense::{
    CellsInfo, Clustering, Dense, DenseWriter, Explain, Filed, FilingRound, Hit, MatchCursor, Matching,
    Moment, Point, Query, RestoreError, RowWrite, SearchError, Stats, TrainingSample, TrainingTicket, Usage,
    Write, WriteError, WriteMode,
};
pub use index_type::{Drift, IndexType, IvfConfig, IvfProduct, VamanaConfig};
