//! Backups: made, listed, and brought back.

use crate::limits::BACKUPS_LISTED_MAX;
use crate::op::{Action, ApiError, ErrorKind, Operation};
use nigh_shard::core::{BackupObject, BackupRun, Core, RestoreRequest, Restored};
use std::rc::Rc;

/// Refuses what needs a store where none is configured.
fn check_store(core: &Core) -> Result<(), ApiError> {
    match core.has_backups() {
        true => Ok(()),
        false => Err(ApiError::new(ErrorKind::Unmet, "no object store is configured on this node")),
    }
}

/// Backs up every collection now.
pub struct BackUp;

impl Operation for BackUp {
    type Output = BackupRun;
    const RIGHT: Action = Action::Admin;
    // A client that goes away must not leave a run half done.
    const MUTATES: bool = true;
    const LASTS: bool = true;
    async fn run(self, core: Rc<Core>) -> Result<BackupRun, ApiError> {
        check_store(&core)?;
        Ok(core.back_up().await?)
    }
}

/// The snapshots and configurations in the store.
pub struct ListBackups;

impl Operation for ListBackups {
    type Output = Vec<BackupObject>;
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = false;
    async fn run(self, core: Rc<Core>) -> Result<Vec<BackupObject>, ApiError> {
        check_store(&core)?;
        let (objects, has_more) = core.backups(BACKUPS_LISTED_MAX).await?;
        match has_more {
            false => Ok(objects),
            true => Err(ApiError::new(
                ErrorKind::Exhausted,
                format!(
                    "there are more than {BACKUPS_LISTED_MAX} objects of backups, which one answer cannot list; list them in the store itself"
                ),
            )),
        }
    }
}

/// Reads a snapshot through.
pub struct VerifyBackup {
    /// The collection of which it is.
    pub collection: String,
    /// The time of its run; `None` for the newest.
    pub time: Option<String>,
}

impl Operation for VerifyBackup {
    /// The key of the snapshot, and the bytes of its files.
    type Output = (String, u64);
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = false;
    async fn run(self, core: Rc<Core>) -> Result<(String, u64), ApiError> {
        check_store(&core)?;
        check_collection(&self.collection)?;
        Ok(core.verify_backup(&self.collection, self.time).await?)
    }
}

fn check_collection(name: &str) -> Result<(), ApiError> {
    match name.is_empty() {
        true => Err(ApiError::invalid(
            "collection is required: the name of the collection of which the snapshot is",
        )),
        false => Ok(()),
    }
}

/// Puts a collection back as a snapshot has it.
pub struct RestoreBackup(pub RestoreRequest);

impl Operation for RestoreBackup {
    type Output = Restored;
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = true;
    const LASTS: bool = true;
    async fn run(self, core: Rc<Core>) -> Result<Restored, ApiError> {
        check_store(&core)?;
        check_collection(&self.0.collection)?;
        Ok(core.restore_collection(self.0).await?)
    }
}
