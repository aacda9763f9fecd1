//! Create and drop: decided on core 0, one at a time, durable before the answer.

use super::Core;
use super::types::OpError;
use crate::catalog::{Catalog, CollectionHandle, Counters, checked_name, full_name};
use crate::checkpoint::{CheckpointError, Manifest};
use crate::collection_file;
use crate::env::{call, call_own};
use crate::owner::checkpointer::collection_dir;
use crate::owner::{Owned, indexer, quantizer};
use nigh_engine::collection::{DenseConfig, DenseWriter, IndexType, Quantizer};
use nigh_engine::memory::Published;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

impl Core {
    /// Creates a dense collection; durable on return.
    ///
    /// # Errors
    /// A bad name or configuration, a name in use, no space, no memory, no device for an index on one.
    pub async fn create_collection(self: &Rc<Self>, name: &str, config: DenseConfig) -> Result<(), OpError> {
        let full = checked_name(name)?;
        config.validate()?;
        if config.index == IndexType::Gpu {
            let opened = self.node().lane.try_open(config.dim, config.metric).await;
            opened.map_err(|error| {
                OpError::BadRequest(format!("vector: IndexGPU requires a device: {error}"))
            })?;
        }
        call(self, 0, move |there| async move { there.create_on_core_0(full, config).await }).await?
    }

    /// Drops a collection with its files; complete on return; false when unknown.
    ///
    /// # Errors
    /// File errors: the collection is gone for clients, its files are removed at the next start.
    pub async fn drop_collection(self: &Rc<Self>, name: &str) -> Result<bool, OpError> {
        let Some(full) = full_name(name) else {
            return Err(OpError::BadRequest(format!("invalid collection name {name:?}")));
        };
        call(self, 0, move |there| async move { there.drop_on_core_0(full).await }).await?
    }

    async fn create_on_core_0(self: &Rc<Self>, name: String, config: DenseConfig) -> Result<(), OpError> {
        let _held = self.catalog_lock.lock().await;
        let catalog = self.catalog_copy();
        if catalog.by_name.contains_key(&name) {
            return Err(OpError::CollectionExists(name));
        }
        if catalog.aliases.contains_key(&name) {
            return Err(OpError::Conflict(format!("an alias named {name:?} already exists")));
        }
        let uid = self.node().next_uid();
        let writer = self.new_writer(&config)?;
        let handle = self.new_handle(uid, name.clone(), config, &writer);
        if let Some(disk) = self.env().disk() {
            let dir = collection_dir(uid);
            let bytes = collection_file::encode(uid, &name, &handle.config);
            let written = async {
                disk.create_dir(&dir).await?;
                // From the start, so that a missing one is damage and no empty collection.
                let stored = Manifest::default().store(&*disk, &dir).await;
                stored.map_err(|error| match error {
                    CheckpointError::Io { source, .. } => source,
                    other => std::io::Error::other(other.to_string()),
                })?;
                disk.replace(&dir.join(collection_file::FILE), &bytes).await
            };
            if let Err(error) = written.await {
                // Without its file the directory is no collection; a leftover is removed at the next start.
                let _leftover_is_harmless = disk.remove_dir(&dir).await;
                return Err(io_error(&error));
            }
        }
        self.adopt(handle.clone(), writer).await;
        let mut catalog = self.catalog_copy();
        catalog.by_name.insert(name, handle);
        self.publish_catalog(catalog);
        Ok(())
    }

    async fn drop_on_core_0(self: &Rc<Self>, name: String) -> Result<bool, OpError> {
        let _held = self.catalog_lock.lock().await;
        let mut catalog = self.catalog_copy();
        let Some(handle) = catalog.by_name.remove(&name) else { return Ok(false) };
        // The rename is the moment of the drop: after a crash the collection is either whole or gone.
        let trash = PathBuf::from(format!("trash/{:016x}", handle.uid));
        let mut failed = None;
        if let Some(disk) = self.env().disk() {
            disk.create_dir(&PathBuf::from("trash")).await.map_err(|e| io_error(&e))?;
            let dir = collection_dir(handle.uid);
            if let Err(error) = disk.rename(&dir, &trash).await {
                // It may have happened all the same (the sync behind it failed): then what is written from here on would
                // go with it at the next start.
                let file = disk.read(&dir.join(collection_file::FILE)).await;
                if !file.is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
                    return Err(io_error(&error));
                }
                failed = Some(io_error(&error));
            }
        }
        self.publish_catalog(catalog);
        let uid = handle.uid;
        call_own(self, handle.owner, move |there| async move { there.disown(uid).await }).await;
        if let Some(disk) = self.env().disk() {
            disk.remove_dir(&trash).await.map_err(|e| io_error(&e))?;
        }
        failed.map_or(Ok(true), Err)
    }

    pub(crate) fn catalog_copy(&self) -> Catalog {
        let pin = self.pin();
        self.node().catalog.load(&pin).clone()
    }

    /// The shared handle of a collection whose owner follows from its uid.
    pub(crate) fn new_handle(
        &self,
        uid: u64,
        name: String,
        config: DenseConfig,
        writer: &DenseWriter,
    ) -> Arc<CollectionHandle> {
        Arc::new(CollectionHandle {
            uid,
            name,
            config: Arc::new(config),
            owner: self.node().owner_of(uid, self.env().cores()),
            view: Published::new(self.node().domain.clone(), writer.shared().clone()),
            counters: Counters::default(),
            covered_seq: AtomicU64::new(0),
            damage: OnceLock::new(),
        })
    }

    /// Hands a collection to its owner core, which starts its tasks.
    async fn adopt(self: &Rc<Self>, handle: Arc<CollectionHandle>, writer: DenseWriter) {
        call_own(self, handle.owner, move |there| async move {
            let owned = Owned::new(handle, writer, there.env().unix_ms());
            there.start_owned(owned);
        })
        .await;
    }

    /// Registers a collection of this core and starts its tasks.
    pub(crate) fn start_owned(self: &Rc<Self>, owned: Rc<Owned>) {
        self.insert_owned(owned.clone());
        if matches!(owned.handle.config.quant, Quantizer::Trained(_)) {
            self.env().spawn_background(Box::pin(quantizer::run(self.clone(), owned.clone())));
        }
        self.env().spawn_background(Box::pin(indexer::run(self.clone(), owned)));
    }

    /// Ends a collection's tasks on its owner core and gives its memory back once no reader holds it.
    async fn disown(self: &Rc<Self>, uid: u64) {
        let Some(owned) = self.remove_owned(uid) else { return };
        owned.dropped.set(true);
        owned.changed.notify();
        owned.indexed.notify();
        while !owned.indexer_ended.get() {
            owned.indexed.wait().await;
        }
        // A checkpoint in flight writes into the renamed directory's open file; it must end before the files go.
        drop(owned.checkpoint_lock.lock().await);
    }
}

/// Maps a file error of an administrative change.
pub(crate) fn io_error(error: &std::io::Error) -> OpError {
    if error.kind() == std::io::ErrorKind::StorageFull || error.kind() == std::io::ErrorKind::QuotaExceeded {
        OpError::NoSpace(error.to_string())
    } else {
        OpError::Unavailable(format!("file error: {error}"))
    }
}
