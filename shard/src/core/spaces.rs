//! Vector spaces of live collections are added and dropped: one change of the catalog at a time, like creating and dropping collections.

use super::Core;
use crate::catalog::full_name;
use crate::env::{call, call_own};
use crate::error::OpError;
use crate::family::CollectionConfig;
use crate::points::SpaceChange;
use std::rc::Rc;

impl Core {
    /// Adds a space to a collection of named spaces, or drops one; durable on return. Only the name of the collection itself is accepted, not
    /// an alias. Costs a replacement of the collection's file, and waits for an image that is being written.
    ///
    /// # Errors
    /// Unknown collection or one of another family; a name that is in use, or that no space has; a configuration or name that no space can
    /// have; the last space; no number left; no memory or room on the disk. A file error leaves open which of the two a start will find.
    pub async fn change_spaces(self: &Rc<Self>, name: &str, change: SpaceChange) -> Result<(), OpError> {
        let unknown = || OpError::UnknownCollection(name.to_owned());
        let full = full_name(name).ok_or_else(unknown)?;
        let name = name.to_owned();
        call(self, 0, move |there| async move { there.change_spaces_on_core_0(full, &name, change).await })
            .await
            .unwrap_or_else(|busy| Err(busy.into()))
            .map_err(|error| self.note_refusal(error))
    }

    async fn change_spaces_on_core_0(
        self: &Rc<Self>,
        full: String,
        name: &str,
        change: SpaceChange,
    ) -> Result<(), OpError> {
        let found = || {
            let catalog = self.ctx.catalog_copy();
            catalog.by_name.get(&full).cloned().ok_or_else(|| catalog.lacks(&full, name))
        };
        let handle = found()?;
        let uid = handle.uid;
        // Waiting here spares others who change the catalog the wait.
        call_own(
            self,
            handle.owner,
            move |there| async move { there.collections.owned_await_image(uid).await },
        )
        .await;
        let _held = self.catalog_lock.lock().await;
        let handle = found()?;
        handle.healthy()?;
        if !matches!(change, SpaceChange::Drop { .. }) && !self.node().reserve.is_intact() {
            return Err(OpError::NoSpace(
                "the disk is full, and what is left of it is kept for deletes, drops and changes that make data smaller".into(),
            ));
        }
        let before = handle.config(&self.pin()).clone();
        if let Some(after) = with_new_space(&before, &change) {
            // Before anything can be written into the space.
            self.ctx.log_collection(uid, &handle.name, &after, None).await?;
        }
        let (uid, name) = (handle.uid, name.to_owned());
        let changed = call_own(self, handle.owner, move |there| async move {
            there.collections.owned_change_spaces(uid, &name, change).await
        })
        .await;
        // Whatever it has come to: a space that was dropped, or one that could not be added.
        let after = handle.config(&self.pin()).clone();
        self.ctx.log_configured(handle.uid, &handle.name, &after).await;
        changed
    }
}

/// The configuration with the space that `change` adds; `None` if it adds none, or cannot.
fn with_new_space(before: &CollectionConfig, change: &SpaceChange) -> Option<CollectionConfig> {
    let named = before.named()?;
    let with = match change {
        SpaceChange::Add { name, config } => named.with_space(name, (**config).clone()),
        SpaceChange::AddSparse { name } => named.with_sparse_space(name),
        SpaceChange::Drop { .. } => return None,
    };
    with.ok().map(Into::into)
}
