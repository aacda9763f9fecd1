//! Restores a collection from a backup: into a copy beside the one of its name, which is replaced once the copy serves.

use super::Core;
use super::backups::store_error;
use crate::backup::{
    BackupError, BackupTarget, Names, SNAPSHOT, Snapshot, StoreError, fetch_store, is_time, read_snapshot,
    times, verify,
};
use crate::catalog::{ColdCollection, CollectionHandle, checked_name};
use crate::checkpoint::{Manifest, collection_dir};
use crate::collection_file;
use crate::disk::Disk;
use crate::env::{call, call_own};
use crate::error::{OpError, io_error};
use crate::family::{CollectionConfig, Family, tokens_of};
use crate::opening::LogRecords;
use crate::owner::load::{Loaded, ToLoad};
use crate::owner::scrubber;
use crate::restored_mark;
use crate::twin;
use nigh_engine::collection::IndexType;
use nigh_engine::collection::config_keys::with_live_values;
use nigh_engine::quoted::quoted;
use std::rc::Rc;
use std::sync::Arc;

/// What is to be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreRequest {
    /// The collection of which a snapshot is taken.
    pub collection: String,
    /// The time of the run, such as `2025-01-31T10:00:00Z`; `None` takes the newest.
    pub time: Option<String>,
    /// The name that the restored collection gets; `None` for the one that it had.
    pub into: Option<String>,
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The full name under which it serves, or the name of the part of the node that was restored.
    pub collection: String,
    /// The key of the snapshot.
    pub key: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// Whether it has replaced a collection; of a part of the node always.
    pub has_replaced: bool,
}

/// A snapshot that was read through and is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Its key.
    pub key: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// Of the keys: how many it has, those that had expired and were not removed yet included.
    pub keys: Option<u64>,
}

/// A store of images with its configuration.
pub(super) struct Part {
    pub uid: u64,
    pub name: String,
    pub config: CollectionConfig,
}

/// What a restored collection takes the place of.
enum Replaced {
    Hot(Arc<CollectionHandle>),
    Cold(Arc<ColdCollection>),
}

impl Replaced {
    fn uid(&self) -> u64 {
        match self {
            Replaced::Hot(handle) => handle.uid,
            Replaced::Cold(cold) => cold.uid,
        }
    }

    fn family(&self) -> Family {
        match self {
            Replaced::Hot(handle) => handle.family,
            Replaced::Cold(cold) => cold.config.family(),
        }
    }
}

impl From<BackupError> for OpError {
    fn from(error: BackupError) -> OpError {
        OpError::Backup(error.to_string())
    }
}

impl Core {
    /// Restores a collection from the store of backups. While it is read, the collection of that name serves; it is replaced by one store of a pointer
    /// once the copy has been opened, and its aliases stand for the copy then. If anything fails, it stays as it is.
    ///
    /// # Errors
    /// No store is configured; there is no such snapshot; the store failed or has a damaged object; disk or memory do not have the room; a
    /// collection of another family has the name.
    pub async fn restore_collection(self: &Rc<Self>, request: RestoreRequest) -> Result<Restored, OpError> {
        if self.env().disk().is_none() {
            return Err(OpError::NotConfigured(
                "collections are restored into a data directory, and this server was started without -data"
                    .into(),
            ));
        }
        let target = self.listed_target()?;
        call(self, 0, move |there| async move { there.restore_on_core_0(&target, &request).await })
            .await?
            .map_err(|error| self.note_refusal(error))
    }

    /// Reads a snapshot of a collection through and checks that all of it is there and whole; nothing is restored.
    ///
    /// # Errors
    /// No store is configured; there is no such snapshot; the store failed, or an object is missing or damaged, which the text names.
    pub async fn verify_backup(
        self: &Rc<Self>,
        collection: &str,
        time: Option<String>,
    ) -> Result<Verified, OpError> {
        let (target, source) = (self.listed_target()?, checked_name(collection)?);
        let (key, snapshot) = self.find_collection_snapshot(&target, &source, time.as_deref()).await?;
        verify(&self.ctx, &target, &snapshot, self.options().backup.bytes_per_second).await?;
        Ok(Verified { key, bytes: snapshot.bytes(), keys: None })
    }

    async fn restore_on_core_0(
        self: &Rc<Self>,
        target: &BackupTarget,
        request: &RestoreRequest,
    ) -> Result<Restored, OpError> {
        self.ctx.refuse_while_opening()?;
        let source = checked_name(&request.collection)?;
        let name = request.into.as_deref().map_or(Ok(source.clone()), checked_name)?;
        let _one_at_a_time = self.backups.restoring.lock().await;
        let (key, snapshot) = self.find_collection_snapshot(target, &source, request.time.as_deref()).await?;
        let parts = self.parts_of(&key, &snapshot, &name, self.node().next_uid())?;
        self.check_restorable(&name, &parts[0].config, snapshot.bytes()).await?;
        let restored = self.restore_beside(target, &snapshot, &parts).await;
        let handle = match restored {
            Ok(handle) => handle,
            Err(error) => {
                // Some may have been opened.
                self.disown_parts(&parts).await;
                self.remove_parts(&parts).await;
                return Err(error);
            }
        };
        let before = self.ctx.archived(&name);
        match self.replace_by(&handle, &parts, &key).await {
            Ok(has_replaced) => {
                let bytes = snapshot.bytes();
                tracing::info!(collection = name, key, bytes, "a collection was restored");
                Ok(Restored { collection: name, key, bytes, has_replaced })
            }
            Err(error) => {
                self.ctx.log_taken_back(&name, before).await;
                self.disown_parts(&parts).await;
                self.remove_parts(&parts).await;
                Err(error)
            }
        }
    }

    /// Reads the snapshot of a collection of that time, or the newest one, and returns it with its key.
    async fn find_collection_snapshot(
        &self,
        target: &BackupTarget,
        source: &str,
        time: Option<&str>,
    ) -> Result<(String, Snapshot), OpError> {
        let prefix = Names::new(&target.prefix).of_collection(source);
        let none = |time| OpError::NoSnapshot { collection: source.to_owned(), time };
        self.find_snapshot(target, &prefix, time, none).await
    }

    /// Reads the snapshot of that time, or the newest one, whose keys begin with `prefix`, and returns it with its key. `none` makes the error for
    /// the case that there is none.
    pub(super) async fn find_snapshot(
        &self,
        target: &BackupTarget,
        prefix: &str,
        time: Option<&str>,
        none: impl FnOnce(Option<String>) -> OpError,
    ) -> Result<(String, Snapshot), OpError> {
        let store = target.stores.open();
        if let Some(time) = time.filter(|time| !is_time(time)) {
            return Err(OpError::BadRequest(format!(
                "time: {} is not the time of a run, which looks like \"2025-01-31T10:00:00Z\"",
                quoted(time)
            )));
        }
        let times = times(&*store, prefix).await.map_err(|error| store_error(&error))?;
        let found = match time {
            Some(time) => times.iter().find(|found| *found == time),
            None => times.last(),
        };
        let Some(found) = found else {
            return Err(none(time.map(str::to_owned)));
        };
        let key = format!("{prefix}{found}{SNAPSHOT}");
        let snapshot = read_snapshot(self.env(), &*store, &key).await.map_err(|error| store_error(&error))?;
        Ok((key, snapshot))
    }

    /// What a snapshot consists of, under the uid that it gets: a collection, and the index of its tokens if it has one.
    pub(super) fn parts_of(
        &self,
        key: &str,
        snapshot: &Snapshot,
        name: &str,
        uid: u64,
    ) -> Result<Vec<Part>, OpError> {
        let damaged = |why: String| store_error(&StoreError::Damaged { key: key.to_owned(), why });
        let mut parts: Vec<Part> = Vec::new();
        for (index, store) in snapshot.stores.iter().enumerate() {
            let text = store.texts.iter().find(|(file, _)| file == collection_file::FILE);
            let (_, text) = text.ok_or_else(|| damaged("it lacks a configuration".to_owned()))?;
            let (of, _, config) = collection_file::decode(text.as_bytes())
                .map_err(|why| damaged(format!("its configuration cannot be read: {why}")))?;
            if of != store.uid {
                return Err(damaged(format!(
                    "it has the configuration of {of:016x}, and files of {:016x}",
                    store.uid
                )));
            }
            parts.push(match index {
                0 => Part { uid, name: name.to_owned(), config },
                _ => Part { uid: tokens_of(uid), name: format!("{name}#tokens"), config },
            });
        }
        let documents = parts.first().map(|part| part.config.multi_vector().map(|config| config.index()));
        match (documents, parts.len()) {
            (Some(None), 1) => {}
            (Some(Some(live)), 2) => {
                // A change of the configuration is written to the file of the documents alone.
                let CollectionConfig::Dense(index) = &mut parts[1].config else {
                    return Err(damaged("the index of its tokens is no dense collection".to_owned()));
                };
                *index = with_live_values(index, &live);
            }
            (_, found) => {
                return Err(damaged(format!("it has {found} parts, which no collection of its family has")));
            }
        }
        Ok(parts)
    }

    /// Refuses early what would be refused at the end.
    async fn check_restorable(
        &self,
        name: &str,
        config: &CollectionConfig,
        bytes: u64,
    ) -> Result<(), OpError> {
        self.check_replaceable(name, config)?;
        self.check_device(config).await?;
        self.check_disk_room(bytes).await
    }

    /// Whether there is a device for an index that needs one.
    pub(super) async fn check_device(&self, config: &CollectionConfig) -> Result<(), OpError> {
        if let Some(config) = config.dense().filter(|config| config.index == IndexType::Gpu) {
            let opened = self.node().lane.try_open(config.dim, config.metric).await;
            opened.map_err(|error| {
                OpError::BadRequest(format!("vector: IndexGPU requires a device: {error}"))
            })?;
        }
        Ok(())
    }

    /// Whether the disk has room for the files of a snapshot.
    pub(super) async fn check_disk_room(&self, bytes: u64) -> Result<(), OpError> {
        let disk = self.env().disk().expect("looked for before");
        let free = disk.space().await.map_err(|error| io_error(&error))?.free;
        if free < bytes || !self.node().reserve.is_intact() {
            return Err(OpError::NoSpace(format!(
                "the snapshot has {bytes} bytes, and the disk has {free} free; a collection that it replaces is removed after it is restored"
            )));
        }
        Ok(())
    }

    /// Whether the name is free, or that of a collection of the same family; the collection.
    fn check_replaceable(&self, name: &str, config: &CollectionConfig) -> Result<Option<Replaced>, OpError> {
        let pin = self.pin();
        let catalog = self.node().catalog.load(&pin);
        if let Some(collection) = catalog.aliases.get(name) {
            return Err(OpError::Conflict(format!(
                "{name:?} is an alias of the collection {collection:?}; restore under the name of a collection, or under one that is free"
            )));
        }
        let hot = catalog.by_name.get(name).map(|handle| Replaced::Hot(handle.clone()));
        let found = hot.or_else(|| catalog.cold.get(name).map(|cold| Replaced::Cold(cold.clone())));
        match found {
            Some(found) if found.family() != config.family() => {
                Err(OpError::CollectionExists(name.to_owned()))
            }
            found => Ok(found),
        }
    }

    /// Fetches and opens all parts, on the core that is to own them. Nobody knows their name yet, and without a `collection.json` a start removes them.
    async fn restore_beside(
        self: &Rc<Self>,
        target: &BackupTarget,
        snapshot: &Snapshot,
        parts: &[Part],
    ) -> Result<Arc<CollectionHandle>, OpError> {
        let disk = self.env().disk().expect("looked for before");
        let rate = self.options().backup.bytes_per_second;
        let mut handles = Vec::new();
        for (part, store) in parts.iter().zip(&snapshot.stores) {
            let dir = collection_dir(part.uid);
            disk.create_dir(&dir).await.map_err(|error| io_error(&error))?;
            restored_mark::store(&*disk, &dir, &[]).await.map_err(|error| io_error(&error))?;
            let owner = self.node().owner_of(part.uid, self.env().cores());
            let (uid, name, config) = (part.uid, part.name.clone(), part.config.clone());
            let (target, store) = (target.clone(), store.clone());
            let handle = call_own(self, owner, move |there| async move {
                let dir = collection_dir(uid);
                let manifest = fetch_store(&there.ctx, &target, &store, &dir, uid, rate).await?;
                there.open_restored(uid, name, config, manifest).await
            })
            .await?;
            handles.push(handle);
        }
        self.join_parts(handles).await
    }

    /// Puts the parts of a collection together, which have been opened: the collection, and the index of its tokens if it has one.
    pub(super) async fn join_parts(
        self: &Rc<Self>,
        handles: Vec<Arc<CollectionHandle>>,
    ) -> Result<Arc<CollectionHandle>, OpError> {
        let mut handles = handles.into_iter();
        let handle = handles.next().expect("a snapshot has a collection");
        if let Some(tokens) = handles.next() {
            let _only_once = handle.tokens.set(tokens);
            let uid = handle.uid;
            call_own(self, handle.owner, move |there| async move {
                there.collections.join_tokens(uid);
                there.collections.reconcile_tokens(uid).await;
            })
            .await;
        }
        match handle.failure() {
            None => Ok(handle),
            Some((why, true)) => Err(OpError::NoMemory(why)),
            Some((why, false)) => Err(OpError::Backup(format!("What was restored cannot be opened: {why}."))),
        }
    }

    /// Opens what was fetched, on its owner.
    pub(super) async fn open_restored(
        self: &Rc<Self>,
        uid: u64,
        name: String,
        config: CollectionConfig,
        manifest: Manifest,
    ) -> Result<Arc<CollectionHandle>, OpError> {
        let disk = self.env().disk().expect("looked for before");
        let stored = manifest.store_twin(&*disk, &collection_dir(uid), uid).await;
        stored.map_err(|error| OpError::from(BackupError::from(error)))?;
        let what = ToLoad { uid, name, config, manifest: Ok(manifest), has_strays: true, records_in_log: 0 };
        match self.collections.load_collection(&what, LogRecords::default(), true).await {
            Ok(Loaded::Open { handle, .. }) => {
                // It is going to replace another one, which is still there now.
                if let Some(owned) = self.collections.owned(handle.uid) {
                    scrubber::compare_all(&self.collections, owned).await;
                }
                Ok(handle)
            }
            Ok(Loaded::Refused) => Err(OpError::NoMemory("the collection does not fit".to_owned())),
            Err(why) => Err(OpError::Backup(why)),
        }
    }

    /// Puts the restored collection in the place of the one of its name, if there is one; whether there was.
    async fn replace_by(
        self: &Rc<Self>,
        handle: &Arc<CollectionHandle>,
        parts: &[Part],
        key: &str,
    ) -> Result<bool, OpError> {
        let _name = self.cold.names.lock(&handle.name).await;
        let _held = self.catalog_lock.lock().await;
        let old = self.check_replaceable(&handle.name, &parts[0].config)?;
        if self.aliases_behind.get() {
            // After a restart what the file says of a dropped collection would hold for this one.
            let aliases = self.ctx.catalog_copy().aliases;
            self.store_aliases(&aliases).await?;
        }
        // Before anything can be written to it.
        let config = handle.config(&self.pin()).clone();
        let from = Some(key.to_owned());
        self.ctx.log_collection(handle.uid, &handle.name, &config, from).await?;
        let disk = self.env().disk().expect("looked for before");
        let dir = collection_dir(handle.uid);
        let replaces: Vec<u64> = old.iter().map(Replaced::uid).collect();
        restored_mark::store(&*disk, &dir, &replaces).await.map_err(|error| io_error(&error))?;
        if let Err(error) = write_files(&*disk, parts).await {
            if unwrite_files(&*disk, parts).await.is_ok() {
                return Err(io_error(&error));
            }
            // A start may find the restored collection and remove the other, so nothing may be written to that one any more.
            tracing::error!(collection = handle.name, %error, "a restore can neither be finished nor taken back on the disk; the restored collection serves");
        }
        // From here on a start finds the restored one.
        let mut catalog = self.ctx.catalog_copy();
        catalog.cold.remove(&handle.name);
        catalog.by_name.insert(handle.name.clone(), handle.clone());
        self.ctx.publish_catalog(catalog);
        let has_replaced = old.is_some();
        if let Some(old) = old
            && let Err(error) = match &old {
                Replaced::Hot(old) => self.discard_replaced(old).await,
                Replaced::Cold(old) => self.discard_cold(old).await,
            }
        {
            tracing::warn!(collection = handle.name, %error, "the files of a replaced collection stay until the next start");
            return Ok(has_replaced);
        }
        for part in parts {
            if let Err(error) = restored_mark::remove(&*disk, &collection_dir(part.uid)).await {
                tracing::warn!(collection = part.name, %error, "the mark of a restored collection stays until the next start");
            }
        }
        Ok(has_replaced)
    }

    pub(super) async fn disown_parts(self: &Rc<Self>, parts: &[Part]) {
        for part in parts {
            let (uid, owner) = (part.uid, self.node().owner_of(part.uid, self.env().cores()));
            call_own(self, owner, move |there| async move { there.collections.disown(uid).await }).await;
        }
    }

    async fn remove_parts(&self, parts: &[Part]) {
        for part in parts {
            self.remove_files(part.uid).await;
        }
    }
}

/// Makes the parts collections that a start opens. The index is none before its documents are one: a start removes it otherwise.
pub(super) async fn write_files(disk: &dyn Disk, parts: &[Part]) -> std::io::Result<()> {
    for part in parts.iter().rev() {
        let file = collection_dir(part.uid).join(collection_file::FILE);
        twin::replace(disk, &file, &collection_file::encode(part.uid, &part.name, &part.config)).await?;
    }
    Ok(())
}

/// Takes that back, durably: a start removes them then.
async fn unwrite_files(disk: &dyn Disk, parts: &[Part]) -> std::io::Result<()> {
    for part in parts {
        let file = collection_dir(part.uid).join(collection_file::FILE);
        disk.remove(&twin::copy_of(&file)).await?;
        disk.remove(&file).await?;
    }
    Ok(())
}
