//! Aliases, the definitions of the indexes of keys and the API keys in backups: stored with each run by core 0, and restored as a whole. API keys are
//! restored by the crate that has their registry. For the keys see [`super::backup_keys`].

use super::Core;
use super::backups::{BackedUp, store_error};
use super::restore::{Restored, Verified};
use crate::backup::{
    ApiKeysFile, BackupError, BackupTarget, Job, Names, NodePart, PartContent, StoreError, Stored,
    back_up_part,
};
use crate::env::{call, compute};
use crate::error::OpError;
use std::rc::Rc;

impl Core {
    /// On core 0: stores the parts of the node, each as it is at the moment of its turn.
    pub(super) async fn back_up_parts(self: &Rc<Self>, job: &Job) -> Vec<BackedUp> {
        let mut done = Vec::new();
        for part in NodePart::ALL {
            let content = match part {
                NodePart::Keys => {
                    let stored = self.back_up_keys(job).await;
                    let keys = stored.as_ref().ok().and_then(|stored| stored.as_ref().map(|(_, keys)| *keys));
                    let stored = stored.map(|stored| stored.map(|(stored, _)| stored));
                    done.extend(backed_up(part, stored).map(|done| BackedUp { keys, ..done }));
                    continue;
                }
                // What the catalog publishes is durable already.
                NodePart::Aliases => PartContent::Aliases(self.ctx.catalog_copy().aliases),
                // Damaged keys have no definitions that could be read, and an empty list must not be taken for theirs.
                NodePart::KeyIndexes if !self.options().keys.query => continue,
                NodePart::KeyIndexes => match self.keys().healthy() {
                    Ok(()) => PartContent::KeyIndexes(self.keys().key_index_definitions()),
                    Err(error) => {
                        done.extend(backed_up(part, Err(BackupError::Source(error.to_string()))));
                        continue;
                    }
                },
                NodePart::ApiKeys => match self.api_keys_file().await {
                    None => continue,
                    Some(Ok(file)) => PartContent::ApiKeys(file),
                    Some(Err(error)) => {
                        done.extend(backed_up(part, Err(error)));
                        continue;
                    }
                },
            };
            done.extend(backed_up(part, back_up_part(&self.ctx, job, content).await));
        }
        done
    }

    /// The file of API keys as it is now; `None` if the node has no registry of them.
    async fn api_keys_file(&self) -> Option<Result<ApiKeysFile, BackupError>> {
        let text = self.options().backup.api_keys.clone()?;
        let text = compute(self.env(), move || String::from_utf8(text.read())).await;
        Some(text.map(ApiKeysFile).map_err(|_| BackupError::Source("the API keys are not UTF-8".to_owned())))
    }

    /// Reads a snapshot of the API keys: its key, and the text of their file, which the caller checks.
    ///
    /// # Errors
    /// No store is configured; there is no such snapshot; the store failed, or what it has is damaged.
    pub async fn backed_up_api_keys(
        self: &Rc<Self>,
        time: Option<String>,
    ) -> Result<(String, String), OpError> {
        let target = self.listed_target()?;
        let (key, content, _) = self.find_part(&target, NodePart::ApiKeys, time.as_deref()).await?;
        match content {
            PartContent::ApiKeys(ApiKeysFile(text)) => Ok((key, text)),
            _ => Err(store_error(&StoreError::Damaged { key, why: "it has no API keys".to_owned() })),
        }
    }

    /// Restores a part of the node from the store of backups: what it says takes the place of all that the node has of this part. A start finds the
    /// one or the other.
    ///
    /// # Errors
    /// No store is configured; there is no such snapshot; the store failed or has a damaged object; an alias stands for a collection that is not
    /// there; the server was started without indexes of keys; the part is [`NodePart::ApiKeys`], for which there is [`Self::backed_up_api_keys`]. Nothing
    /// has changed then.
    pub async fn restore_part(
        self: &Rc<Self>,
        part: NodePart,
        time: Option<String>,
    ) -> Result<Restored, OpError> {
        if self.env().disk().is_none() {
            return Err(OpError::NotConfigured(
                "backups are restored into a data directory, and this server was started without -data"
                    .into(),
            ));
        }
        if part == NodePart::KeyIndexes && !self.options().keys.query {
            return Err(OpError::NotConfigured(
                "this server has no indexes of keys; start it with -kv-query to restore their definitions"
                    .into(),
            ));
        }
        let target = self.listed_target()?;
        call(self, 0, move |there| async move {
            there.restore_part_on_core_0(&target, part, time.as_deref()).await
        })
        .await?
        .map_err(|error| self.note_refusal(error))
    }

    /// Reads a snapshot of a part of the node through.
    ///
    /// # Errors
    /// No store is configured; there is no such snapshot; the store failed, or what it has is damaged.
    pub async fn verify_part(
        self: &Rc<Self>,
        part: NodePart,
        time: Option<String>,
    ) -> Result<Verified, OpError> {
        let target = self.listed_target()?;
        if part == NodePart::Keys {
            return self.verify_keys(&target, time.as_deref()).await;
        }
        let (key, _, bytes) = self.find_part(&target, part, time.as_deref()).await?;
        Ok(Verified { key, bytes, keys: None })
    }

    async fn restore_part_on_core_0(
        self: &Rc<Self>,
        target: &BackupTarget,
        part: NodePart,
        time: Option<&str>,
    ) -> Result<Restored, OpError> {
        self.ctx.refuse_while_opening()?;
        let _one_at_a_time = self.backups.restoring.lock().await;
        if part == NodePart::Keys {
            return self.restore_keys(target, time).await;
        }
        let (key, content, bytes) = self.find_part(target, part, time).await?;
        match content {
            PartContent::Aliases(aliases) => self.replace_aliases(&aliases).await?,
            PartContent::KeyIndexes(indexes) => self.keys().replace_key_indexes(indexes).await?,
            PartContent::ApiKeys(_) => {
                return Err(OpError::BadRequest("API keys are restored by their registry".to_owned()));
            }
        }
        tracing::info!(part = part.name(), key, bytes, "a part of a backup was restored");
        Ok(Restored { collection: part.name().to_owned(), key, bytes, has_replaced: true })
    }

    /// The snapshot of that time, or the newest: its key, what it says, and the bytes of its texts.
    async fn find_part(
        &self,
        target: &BackupTarget,
        part: NodePart,
        time: Option<&str>,
    ) -> Result<(String, PartContent, u64), OpError> {
        let prefix = Names::new(&target.prefix).of_part(part.name());
        let none = |time| OpError::NoPartSnapshot { part: part.name(), time };
        let (key, snapshot) = self.find_snapshot(target, &prefix, time, none).await?;
        let content = PartContent::decode(&key, part, &snapshot).map_err(|error| store_error(&error))?;
        let texts = snapshot.stores.iter().flat_map(|store| &store.texts);
        let bytes = texts.map(|(_, text)| text.len() as u64).sum();
        Ok((key, content, bytes))
    }
}

/// What a run says of a part; `None` if there was nothing to store.
fn backed_up(part: NodePart, stored: Result<Option<Stored>, BackupError>) -> Option<BackedUp> {
    let collection = part.name().to_owned();
    match stored {
        Ok(None) => None,
        Ok(Some(stored)) => Some(BackedUp {
            collection,
            key: Some(stored.key),
            bytes: stored.bytes,
            sent_bytes: stored.sent_bytes,
            keys: None,
            error: None,
        }),
        Err(error) => {
            if !matches!(error, BackupError::Stopping) {
                tracing::error!(part = part.name(), %error, "a part of the node was not backed up");
            }
            Some(BackedUp::failed(collection, &error))
        }
    }
}
