//! Collections: points, spaces of their vectors, and what is made of the two. One writer and many readers.
//!
//! A write becomes visible at once through the *tail* (fresh slots searched exactly) and moves into the index in
//! rounds planned on any core. Visibility is by sequence number: a slot is visible to a reader with snapshot `s`
//! when `born <= s < died` and its deadline has not passed, so an upsert is never missing and never seen twice.
mod config;
pub mod config_keys;
mod config_limits;
mod dense;
mod error;
mod first_stage;
mod index_type;
mod multi_vector_config;
mod named_config;
mod parts;
mod points;
mod quantizer_config;
mod slot_set;
mod space;
mod stats;
mod whole_config;
pub use config::DenseConfig;
pub use config_limits::{ConfigError, EF_MAX};
pub use dense::{Dense, DenseWriter, DroppedSpace, NewSpace, Point, RestoreError, Write, WriteMode};
pub use error::{SearchError, WriteError};
pub use first_stage::{BITS_MAX, EncodingConfig, FirstStage, REPETITIONS_MAX};
pub use index_type::{Drift, IndexType, IvfConfig, IvfProduct, VamanaConfig};
pub use multi_vector_config::{MultiVectorConfig, QUERY_TOKENS_MAX, TOKENS_MAX};
pub use named_config::{
    NamedConfig, NamedSpace, NamedSparseSpace, SPACE_NAME_MAX, SPACES_MAX, SpaceChangeError, SpaceNumber,
};
pub use parts::{Part, Parts};
pub use points::{
    HitsWanted, MatchCursor, Matching, Points, PointsWriter, RowWrite, RowsToFile, SparseQuery, SparseSpace,
};
pub(crate) use points::{ParentsView, RefusedParents, View};
pub use quantizer_config::Quantizer;
pub(crate) use space::Among;
pub use space::{
    CellsInfo, Clustering, Explain, Filed, FilingRound, Hit, Moment, Query, Space, SpaceWriter,
    TrainingSample, TrainingTicket,
};
pub use stats::{Stats, Usage};
pub use whole_config::WholeConfig;
