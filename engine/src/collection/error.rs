//! Why writes and searches of a collection are refused.
use crate::pace::TooLong;
use crate::sparse::SparseError;
use crate::text::TextError;

/// What was found in place of a vector of the right length; one without components was nearly always forgotten.
fn found_components(found: usize) -> String {
    match found {
        0 => "found no vector".to_owned(),
        found => format!("found {found}"),
    }
}

/// Why a write is refused; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Wrong length.
    #[error("vector: dimension mismatch: expected {expected}, {}", found_components(*found))]
    DimensionMismatch {
        /// Collection's.
        expected: usize,
        /// Sent.
        found: usize,
    },
    /// Create-only write of a live id.
    #[error("vector: id {0} already present")]
    DuplicateId(u64),
    /// `expected_version` differs.
    #[error("vector: version conflict on id {id}: expected {expected}, found {found}")]
    VersionConflict {
        /// The id.
        id: u64,
        /// Asked for.
        expected: u64,
        /// Stored (0 = absent).
        found: u64,
    },
    /// NaN or infinity.
    #[error("vector: component {index} of id {id} is not a finite number")]
    NotFinite {
        /// The id.
        id: u64,
        /// Which component.
        index: usize,
    },
    /// Quota.
    #[error("vector: collection full")]
    Full,
    /// No room for its vector's file.
    #[error("no space for the collection's files: {0}")]
    NoSpace(String),
    /// Its vectors were given up for codes, or are about to be.
    #[error("vector: collection is read-only: its quantizer is trained, and pq_drop_vecs gives vectors up")]
    ReadOnly,
    /// Token bucket empty.
    #[error("vector: collection rate limited")]
    RateLimited,
}

/// Why a search is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// Wrong length.
    #[error("vector: dimension mismatch: expected {expected}, {}", found_components(*found))]
    DimensionMismatch {
        /// Collection's.
        expected: usize,
        /// Sent.
        found: usize,
    },
    /// NaN or infinity.
    #[error("vector: query component {0} is not a finite number")]
    NotFinite(usize),
    /// Of a sparse query.
    #[error(transparent)]
    Sparse(#[from] SparseError),
    /// A text search of a collection without `full_text`.
    #[error("vector: full-text disabled: the collection was made without full_text")]
    TextDisabled,
    /// Of a query by text.
    #[error(transparent)]
    Text(#[from] TextError),
    /// At a pace that does not wait.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}
