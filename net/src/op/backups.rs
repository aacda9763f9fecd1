//! Operations on backups: making, listing, verifying and restoring them.

use super::keys::{changed, registry};
use crate::auth::Authenticator;
use crate::auth::keys_file;
use crate::auth::registry::{Caller, KeyError};
use crate::limits::BACKUPS_LISTED_MAX;
use crate::op::{Action, ApiError, ErrorKind, Operation};
use nigh_engine::quoted::quoted;
use nigh_shard::backup::NodePart;
use nigh_shard::core::{BackupObject, BackupRun, Core, RestoreRequest, Restored, Verified};
use nigh_shard::env::{self, Length};
use std::rc::Rc;
use std::sync::Arc;

/// Refuses a request that needs a store if none is configured.
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
    // If the client closes the connection, the run continues to its end.
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

/// What a snapshot is of. A request names it by exactly one of its fields `collection` and `part`.
pub enum Subject {
    /// The snapshot is of the collection with this name.
    Collection(String),
    /// The snapshot is of this part of the node.
    Part(NodePart),
}

impl Subject {
    /// Makes the subject from the fields `collection` and `part` of a request, of which exactly one must be given.
    ///
    /// # Errors
    /// Both fields are given, or neither, or `part` names no part.
    pub fn of(collection: Option<String>, part: Option<String>) -> Result<Subject, ApiError> {
        match (collection.filter(|name| !name.is_empty()), part) {
            (Some(_), Some(_)) => {
                Err(ApiError::invalid("collection and part are both given; a snapshot is of one of them"))
            }
            (Some(name), None) => Ok(Subject::Collection(name)),
            (None, Some(part)) => match NodePart::of_name(&part) {
                Some(part) => Ok(Subject::Part(part)),
                None => Err(ApiError::invalid(format!(
                    "part must be \"aliases\", \"key-indexes\", \"api-keys\" or \"keys\", not {}",
                    quoted(&part)
                ))),
            },
            (None, None) => Err(ApiError::invalid(
                "collection is required: the name of the collection of which the snapshot is; or part, \"aliases\", \"key-indexes\", \"api-keys\" or \"keys\"",
            )),
        }
    }
}

/// Reads a whole snapshot and checks it.
pub struct VerifyBackup {
    /// The collection or part whose snapshot is read.
    pub subject: Subject,
    /// The time of its run; `None` for the newest.
    pub time: Option<String>,
}

impl Operation for VerifyBackup {
    type Output = Verified;
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = false;
    async fn run(self, core: Rc<Core>) -> Result<Verified, ApiError> {
        check_store(&core)?;
        Ok(match self.subject {
            Subject::Collection(name) => core.verify_backup(&name, self.time).await?,
            Subject::Part(NodePart::ApiKeys) => verify_api_keys(&core, self.time).await?,
            Subject::Part(part) => core.verify_part(part, self.time).await?,
        })
    }
}

/// The error about a snapshot of API keys whose text cannot be used.
fn unfit(key: &str, why: &str) -> ApiError {
    ApiError::new(ErrorKind::Backup, format!("The API keys of {key:?} cannot be used: {why}."))
}

/// Reads a whole snapshot of the API keys and checks it.
async fn verify_api_keys(core: &Rc<Core>, time: Option<String>) -> Result<Verified, ApiError> {
    let (key, text) = core.backed_up_api_keys(time).await?;
    let bytes = text.len() as u64;
    let read = move || keys_file::read(text.as_bytes()).map(drop);
    let failed = || ApiError::new(ErrorKind::Internal, "reading API keys ended without a result");
    let read = env::train(core.env(), Length::Short, read).await.ok_or_else(failed)?;
    read.map_err(|why| unfit(&key, &why))?;
    Ok(Verified { key, bytes, keys: None })
}

/// Restores a collection or a part of the node from a snapshot.
pub struct RestoreBackup {
    /// The collection or part whose snapshot is restored.
    pub subject: Subject,
    /// The time of its run; `None` for the newest.
    pub time: Option<String>,
    /// The name of the restored collection; `None` for the name that it had.
    pub into: Option<String>,
    /// Has the registry of API keys.
    pub auth: Arc<dyn Authenticator>,
    /// The sender of the request, who must also be an administrator by the restored API keys.
    pub caller: Caller,
}

impl Operation for RestoreBackup {
    type Output = Restored;
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = true;
    const LASTS: bool = true;
    async fn run(self, core: Rc<Core>) -> Result<Restored, ApiError> {
        check_store(&core)?;
        let RestoreBackup { subject, time, into, auth, caller } = self;
        match subject {
            Subject::Collection(collection) => {
                Ok(core.restore_collection(RestoreRequest { collection, time, into }).await?)
            }
            Subject::Part(_) if into.is_some() => {
                Err(ApiError::invalid("into is the name of a restored collection, and a part has none"))
            }
            Subject::Part(NodePart::ApiKeys) => restore_api_keys(&core, auth, caller, time).await,
            Subject::Part(part) => Ok(core.restore_part(part, time).await?),
        }
    }
}

/// Replaces all API keys by those of a snapshot.
async fn restore_api_keys(
    core: &Rc<Core>,
    auth: Arc<dyn Authenticator>,
    caller: Caller,
    time: Option<String>,
) -> Result<Restored, ApiError> {
    registry(&*auth)?;
    let (key, text) = core.backed_up_api_keys(time).await?;
    let (bytes, now_s, of) = (text.len() as u64, core.unix_ms() / 1000, key.clone());
    changed(
        core,
        auth,
        move |registry| registry.replace(text.as_bytes(), &caller, now_s),
        move |error| match error {
            KeyError::Invalid(why) => unfit(&of, &why),
            other => other.into(),
        },
    )
    .await?;
    let part = NodePart::ApiKeys.name();
    tracing::info!(part, key, bytes, "a part of a backup was restored");
    Ok(Restored { collection: part.to_owned(), key, bytes, has_replaced: true })
}
