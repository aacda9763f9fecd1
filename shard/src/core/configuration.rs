//! Changes of configurations: decided on core 0 with the lock of the catalog, durable, then applied by the owner.

use super::Core;
use crate::catalog::{CollectionHandle, full_name};
use crate::checkpoint::collection_dir;
use crate::collection_file;
use crate::disk::Disk;
use crate::env::{call, call_own};
use crate::error::{OpError, io_error};
use crate::family::{CollectionConfig, ConfigChange};
use crate::twin;
use std::rc::Rc;
use std::sync::Arc;

impl Core {
    /// Changes values of a collection's configuration. The change is durable on return, and searches and writes that begin afterwards go by it.
    /// Returns the whole configuration. Points beyond a quota that is smaller now stay; only more of them are refused.
    ///
    /// Costs two files that are replaced, unless nothing differs.
    ///
    /// # Errors
    /// No collection of that name and family, or one that is damaged; an alias; values that the configuration cannot have; no space. A file error
    /// after which nothing has changed, or says that a restart may find the change done.
    pub async fn change_config(
        self: &Rc<Self>,
        name: &str,
        change: ConfigChange,
    ) -> Result<Arc<CollectionConfig>, OpError> {
        change.validate()?;
        let name = name.to_owned();
        call(self, 0, move |there| async move { there.change_config_on_core_0(name, change).await })
            .await
            .unwrap_or_else(|busy| Err(busy.into()))
            .map_err(|error| self.note_refusal(error))
    }

    async fn change_config_on_core_0(
        self: &Rc<Self>,
        name: String,
        change: ConfigChange,
    ) -> Result<Arc<CollectionConfig>, OpError> {
        let _held = self.catalog_lock.lock().await;
        let catalog = self.ctx.catalog_copy();
        let unknown = || OpError::UnknownCollection(name.clone());
        let full = full_name(&name).ok_or_else(unknown)?;
        if !catalog.is_read {
            return Err(catalog.lacks(&full, &name));
        }
        if catalog.aliases.contains_key(&full) {
            return Err(OpError::BadRequest(format!(
                "{name:?} is an alias; a configuration is changed under the name of its collection"
            )));
        }
        let handle = catalog.by_name.get(&full).ok_or_else(|| catalog.lacks(&full, &name))?;
        if handle.family != change.family() {
            return Err(unknown());
        }
        handle.healthy()?;
        let before = handle.config(&self.pin()).clone();
        let after = change.applied_to(&before).ok_or_else(unknown)??;
        if after == *before {
            return Ok(before);
        }
        if let Some(disk) = self.env().disk() {
            if !self.node().reserve.is_intact() {
                return Err(OpError::NoSpace("the disk is full, and no configuration can be changed".into()));
            }
            store(&*disk, handle, &before, &after).await?;
        }
        let (uid, config) = (handle.uid, after.clone());
        call_own(self, handle.owner, move |there| async move { there.collections.reconfigure(uid, config) })
            .await;
        self.ctx.log_configured(handle.uid, &handle.name, &after).await;
        Ok(Arc::new(after))
    }
}

/// Makes the file of a collection say `after`.
///
/// This is the only file that is written, also for a multi-vector collection, so that a change is done as a whole or not at all: a start takes
/// the values of the index of tokens from there.
async fn store(
    disk: &dyn Disk,
    handle: &CollectionHandle,
    before: &CollectionConfig,
    after: &CollectionConfig,
) -> Result<(), OpError> {
    let file = collection_dir(handle.uid).join(collection_file::FILE);
    let encode = |config| collection_file::encode(handle.uid, &handle.name, config);
    let Err(error) = twin::replace(disk, &file, &encode(after)).await else { return Ok(()) };
    let error = io_error(&error);
    let before = encode(before);
    // What is told to have failed must not be there after the next start.
    if disk.read(&file).await.is_ok_and(|bytes| bytes == before)
        || twin::replace(disk, &file, &before).await.is_ok()
    {
        return Err(error);
    }
    Err(OpError::Unavailable(format!(
        "{error}; that could not be taken back, so that a restart may find it done"
    )))
}
