//! Create and drop: decided on core 0, one at a time, durable before the answer.

use super::Core;
use crate::catalog::{ColdCollection, CollectionHandle, checked_name, full_name};
use crate::checkpoint::collection_dir;
use crate::checkpoint::{Manifest, VectorsFile};
use crate::collection_file;
use crate::disk::Disk;
use crate::env::{call, call_own};
use crate::error::{OpError, file_error, io_error};
use crate::family::{CollectionConfig, Family, tokens_of};
use crate::owner::Owned;
use crate::restored_mark;
use crate::twin;
use nigh_engine::collection::{DenseWriter, IndexType};
use nigh_engine::quoted::quoted;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

impl Core {
    /// Creates a collection; durable on return.
    ///
    /// # Errors
    /// A bad name or configuration, a name in use, no space, no memory, no device for an index on one.
    pub async fn create_collection(
        self: &Rc<Self>,
        name: &str,
        config: impl Into<CollectionConfig>,
    ) -> Result<(), OpError> {
        let (full, config) = (checked_name(name)?, config.into());
        config.validate()?;
        if let Some(config) = config.dense().filter(|config| config.index == IndexType::Gpu) {
            let opened = self.node().lane.try_open(config.dim, config.metric).await;
            opened.map_err(|error| {
                OpError::BadRequest(format!("vector: IndexGPU requires a device: {error}"))
            })?;
        }
        call(self, 0, move |there| async move { there.create_on_core_0(full, config).await })
            .await
            .unwrap_or_else(|busy| Err(busy.into()))
            .map_err(|error| self.note_refusal(error))
    }

    /// Drops a collection with its files and aliases; complete on return; false when there is none of that name, in the family that is given or
    /// in any.
    ///
    /// # Errors
    /// File errors: the collection is gone for clients, its files are removed at the next start.
    pub async fn drop_collection(
        self: &Rc<Self>,
        name: &str,
        family: Option<Family>,
    ) -> Result<bool, OpError> {
        let Some(full) = full_name(name) else {
            return Err(OpError::BadRequest(format!("invalid collection name {}", quoted(name))));
        };
        call(self, 0, move |there| async move { there.drop_on_core_0(full, family).await }).await?
    }

    async fn create_on_core_0(
        self: &Rc<Self>,
        name: String,
        config: CollectionConfig,
    ) -> Result<(), OpError> {
        let _name = self.cold.names.lock(&name).await;
        let _held = self.catalog_lock.lock().await;
        self.ctx.refuse_while_opening()?;
        let catalog = self.ctx.catalog_copy();
        if catalog.by_name.contains_key(&name) || catalog.cold.contains_key(&name) {
            return Err(OpError::CollectionExists(name));
        }
        if catalog.aliases.contains_key(&name) {
            return Err(OpError::Conflict(format!("an alias named {name:?} already exists")));
        }
        if self.aliases_behind.get() {
            // After a restart what the file says of a dropped collection would hold for a new one of its name.
            self.store_aliases(&catalog.aliases).await?;
        }
        if !self.node().reserve.is_intact() {
            return Err(OpError::NoSpace(
                "the disk is full, and what is left of it is kept for deletes, drops and changes that make data smaller".into(),
            ));
        }
        let uid = self.node().next_uid();
        // The index is created first: if a crash leaves it without its collection, the next start removes it.
        let tokens = match config.multi_vector() {
            Some(config) => {
                let (uid, name) = (tokens_of(uid), format!("{name}#tokens"));
                Some(self.make(uid, name, config.index().into()).await?)
            }
            None => None,
        };
        let made = self.make(uid, name.clone(), config).await;
        let handle = match made {
            Ok(handle) => handle,
            Err(error) => {
                if let Some(tokens) = tokens {
                    self.unmake(&tokens).await;
                }
                return Err(error);
            }
        };
        if let Some(tokens) = tokens {
            let _only_once = handle.tokens.set(tokens);
            call_own(self, handle.owner, move |there| async move { there.collections.join_tokens(uid) })
                .await;
        }
        // Before anything can be written to it.
        let config = handle.config(&self.pin()).clone();
        if let Err(error) = self.ctx.log_collection(uid, &name, &config, None).await {
            self.unmake(&handle).await;
            if let Some(tokens) = handle.tokens.get() {
                self.unmake(tokens).await;
            }
            return Err(error);
        }
        let mut catalog = self.ctx.catalog_copy();
        catalog.by_name.insert(name, handle);
        self.ctx.publish_catalog(catalog);
        Ok(())
    }

    /// Makes a collection, durably, and hands it to its owner. Nobody knows its name yet.
    async fn make(
        self: &Rc<Self>,
        uid: u64,
        name: String,
        config: CollectionConfig,
    ) -> Result<Arc<CollectionHandle>, OpError> {
        let Some(disk) = self.env().disk() else {
            let writer = self.ctx.new_writer(&config, None, 0)?;
            let handle = self.ctx.new_handle(uid, name, config, &writer);
            self.adopt(handle.clone(), writer, Manifest::default()).await?;
            return Ok(handle);
        };
        let dir = collection_dir(uid);
        let bytes = collection_file::encode(uid, &name, &config);
        let made = async {
            disk.create_dir(&dir).await.map_err(|error| io_error(&error))?;
            let vectors = match config.dense().filter(|config| config.persistent) {
                Some(config) => {
                    Some(VectorsFile::create(&*disk, &dir, 0, uid, config).await.map_err(file_error)?)
                }
                None => None,
            };
            let writer = self.ctx.new_writer(&config, vectors.as_ref(), 0)?;
            let vectors = vectors.map(|vectors| vectors.name().to_owned());
            let manifest = Manifest { vectors, ..Manifest::default() };
            // From the start, so that a missing one is damage and no empty collection.
            manifest.store_twin(&*disk, &dir, uid).await.map_err(file_error)?;
            let replaced = twin::replace(&*disk, &dir.join(collection_file::FILE), &bytes).await;
            replaced.map_err(|error| io_error(&error))?;
            let handle = self.ctx.new_handle(uid, name, config, &writer);
            self.adopt(handle.clone(), writer, manifest).await?;
            Ok(handle)
        };
        let made = made.await;
        if made.is_err() {
            self.remove_files(uid).await;
        }
        made
    }

    /// Removes a collection that was made but not published.
    async fn unmake(self: &Rc<Self>, handle: &CollectionHandle) {
        let uid = handle.uid;
        call_own(self, handle.owner, move |there| async move { there.collections.disown(uid).await }).await;
        self.remove_files(uid).await;
    }

    /// Removes the files of a collection that was made but not published.
    ///
    /// Without its file the directory is no collection; a leftover is removed at the next start. One with its file would come back then, though
    /// its creator was told that there is none. The copies are removed first: a start would restore the collection from them.
    pub(super) async fn remove_files(&self, uid: u64) {
        let Some(disk) = self.env().disk() else { return };
        let _leftover_is_harmless = twin::remove_dir(&*disk, &collection_dir(uid)).await;
    }

    async fn drop_on_core_0(self: &Rc<Self>, name: String, family: Option<Family>) -> Result<bool, OpError> {
        let _name = self.cold.names.lock(&name).await;
        let _held = self.catalog_lock.lock().await;
        self.ctx.refuse_while_opening()?;
        let mut catalog = self.ctx.catalog_copy();
        let is_meant = |found: Family| family.is_none_or(|family| found == family);
        let hot = catalog.by_name.get(&name).filter(|found| is_meant(found.family)).cloned();
        let cold = catalog.cold.get(&name).filter(|found| is_meant(found.config.family())).cloned();
        let uid = match (&hot, &cold) {
            (Some(handle), _) => handle.uid,
            (None, Some(cold)) => cold.uid,
            (None, None) => return Ok(false),
        };
        catalog.by_name.remove(&name);
        catalog.cold.remove(&name);
        let mut failed = self.move_to_trash(uid).await?;
        let aliases = catalog.aliases.len();
        catalog.aliases.retain(|_, target| *target != name);
        if catalog.aliases.len() < aliases {
            // After the rename, so that no failure takes the aliases of a collection that stays. What a crash leaves in the file is cleared
            // away by the next start, and what a failure leaves by the next change.
            failed = self.store_fewer_aliases(&catalog.aliases).await.err().or(failed);
        }
        let aliases = catalog.aliases.clone();
        self.ctx.publish_catalog(catalog);
        let emptied = match (hot, cold) {
            (Some(handle), _) => self.empty_trash(&handle).await,
            (None, Some(cold)) => self.empty_trash_of_cold(&cold).await,
            (None, None) => Ok(()),
        };
        // On a full disk the log has room now.
        self.ctx.log_dropped(&name).await;
        self.ctx.log_aliases(&aliases).await;
        emptied?;
        failed.map_or(Ok(true), Err)
    }

    /// Removes the files of a cold collection, which [`Self::move_to_trash`] has moved. What the store of backups has of it stays.
    async fn empty_trash_of_cold(&self, cold: &ColdCollection) -> Result<(), OpError> {
        let Some(disk) = self.env().disk() else { return Ok(()) };
        if cold.config.family() == Family::MultiVector {
            self.remove_files(tokens_of(cold.uid)).await;
        }
        disk.remove_dir(&trash_of(cold.uid)).await.map_err(|e| io_error(&e))
    }

    /// Removes a cold collection in whose place another one serves.
    pub(super) async fn discard_cold(self: &Rc<Self>, old: &ColdCollection) -> Result<(), OpError> {
        let moved = self.move_to_trash(old.uid).await;
        self.empty_trash_of_cold(old).await?;
        moved?.map_or(Ok(()), Err)
    }

    /// Moves the files of a collection where a start removes them. The rename is the moment of the drop: after a crash the collection is either whole or
    /// gone. Returns an error behind which it has happened all the same.
    async fn move_to_trash(self: &Rc<Self>, uid: u64) -> Result<Option<OpError>, OpError> {
        let Some(disk) = self.env().disk() else { return Ok(None) };
        let replaced = restored_mark::read(&*disk, &collection_dir(uid)).await;
        // What a restore has replaced and could not remove would come back without the mark that names it.
        for old in replaced.map_err(OpError::Unavailable)?.into_iter().flatten().filter(|old| *old != uid) {
            if let Some(error) = self.move_one_to_trash(&*disk, old).await? {
                return Err(error);
            }
        }
        self.move_one_to_trash(&*disk, uid).await
    }

    async fn move_one_to_trash(&self, disk: &dyn Disk, uid: u64) -> Result<Option<OpError>, OpError> {
        let (dir, trash) = (collection_dir(uid), trash_of(uid));
        // Both may take a block of a directory.
        let made = self.ctx.with_reserve(async || disk.create_dir(Path::new(twin::TRASH)).await).await;
        made.map_err(|e| io_error(&e))?;
        // The copies are removed before the directory: copies without a directory would mean that the collection was lost.
        disk.remove_dir(&twin::copy_of(&dir)).await.map_err(|e| io_error(&e))?;
        let Err(error) = self.ctx.with_reserve(async || disk.rename(&dir, &trash).await).await else {
            return Ok(None);
        };
        let is_gone = error.kind() == std::io::ErrorKind::NotFound;
        // It may have happened all the same (the sync behind it failed): then what is written from here on would
        // go with it at the next start.
        let file = disk.read(&dir.join(collection_file::FILE)).await;
        if !file.is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            return Err(io_error(&error));
        }
        // A collection whose directory was lost, and that is known by its copies alone, can be dropped all the same.
        Ok((!is_gone).then(|| io_error(&error)))
    }

    /// Ends a collection that nobody can find any more, and removes its files, which [`Self::move_to_trash`] has moved.
    async fn empty_trash(self: &Rc<Self>, handle: &CollectionHandle) -> Result<(), OpError> {
        let uid = handle.uid;
        call_own(self, handle.owner, move |there| async move { there.collections.disown(uid).await }).await;
        if let Some(tokens) = handle.tokens.get() {
            // What a crash leaves of it is removed by the next start, as its collection is gone.
            self.unmake(tokens).await;
        }
        match self.env().disk() {
            Some(disk) => disk.remove_dir(&trash_of(uid)).await.map_err(|e| io_error(&e)),
            None => Ok(()),
        }
    }

    /// Removes a collection in whose place another one serves.
    pub(super) async fn discard_replaced(self: &Rc<Self>, old: &CollectionHandle) -> Result<(), OpError> {
        let moved = self.move_to_trash(old.uid).await;
        self.empty_trash(old).await?;
        moved?.map_or(Ok(()), Err)
    }

    /// Hands a collection to its owner core, which starts its tasks.
    async fn adopt(
        self: &Rc<Self>,
        handle: Arc<CollectionHandle>,
        writer: DenseWriter,
        manifest: Manifest,
    ) -> Result<(), OpError> {
        call_own(self, handle.owner, move |there| async move {
            // A handle of this core's own; the mapping has gone to the writer.
            let vectors = match (&manifest.vectors, there.env().disk()) {
                (Some(name), Some(disk)) => {
                    let dir = collection_dir(handle.uid);
                    let config = handle.dense_config(&there.pin())?.clone();
                    let opened = VectorsFile::open(&*disk, &dir, name, handle.uid, &config).await;
                    Some(Rc::new(opened.map_err(file_error)?))
                }
                _ => None,
            };
            let owned = Owned::new(handle, &there.pin(), writer, there.env().now_ns());
            *owned.vectors.borrow_mut() = vectors;
            owned.checkpoint.borrow_mut().manifest = manifest;
            there.collections.start_owned(owned);
            Ok(())
        })
        .await
    }
}

/// Where the files of a dropped collection lie until they are removed.
fn trash_of(uid: u64) -> PathBuf {
    PathBuf::from(format!("{}/{uid:016x}", twin::TRASH))
}
