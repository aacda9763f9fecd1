//! Why a backup or a restore failed.

use super::store::StoreError;
use crate::checkpoint::CheckpointError;
use crate::owner::SnapshotError;

/// Why a backup or a restore of a collection, or of a part of the node, failed. Nothing was replaced then, and no snapshot was published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The store of backups failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The collection or the part could not be read.
    #[error("{0}")]
    Source(String),
    /// A file of the server could not be written, or what was read is damaged.
    #[error("{0}")]
    File(String),
    /// The time of the run is not after that of the newest snapshot.
    #[error(
        "The newest snapshot in the store is of {newest}, and this run is of {time}: another run has made it, or the clock was set back."
    )]
    Time {
        /// The time of the newest snapshot.
        newest: String,
        /// The time of this run.
        time: String,
    },
    /// The collection was dropped during the run, which is not a failure.
    #[error("The collection was dropped during the run.")]
    Dropped,
    /// The server is stopping.
    #[error("The server is stopping.")]
    Stopping,
}

impl From<SnapshotError> for BackupError {
    fn from(error: SnapshotError) -> BackupError {
        match error {
            SnapshotError::Dropped => BackupError::Dropped,
            other => BackupError::Source(other.to_string()),
        }
    }
}

impl From<CheckpointError> for BackupError {
    fn from(error: CheckpointError) -> BackupError {
        BackupError::File(error.to_string())
    }
}
