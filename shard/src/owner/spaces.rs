//! Named spaces are added and dropped while their collection serves, on the owner core.
//!
//! The configuration of `collection.json` is what counts: logs and images know spaces by their numbers, and what they say of a space that was
//! dropped is skipped by a start. So the file is replaced first, and a crash leaves the collection with either configuration, whole. Then
//! writer and view change without an await between them. Images and indexing rounds, which know the spaces that there were when they began,
//! are kept out meanwhile.

use super::{Collections, Owned};
use crate::account::Growth;
use crate::checkpoint::collection_dir;
use crate::collection_file;
use crate::error::{OpError, io_error};
use crate::family::CollectionConfig;
use crate::points::SpaceChange;
use crate::twin;
use nigh_engine::collection::{DenseWriter, SpaceChangeError, SpaceWriter};
use std::rc::Rc;
use std::sync::Arc;

impl From<SpaceChangeError> for OpError {
    fn from(error: SpaceChangeError) -> OpError {
        match error {
            SpaceChangeError::Exists(name) => OpError::SpaceExists(name),
            SpaceChangeError::TooMany | SpaceChangeError::Last(_) => OpError::Conflict(error.to_string()),
            SpaceChangeError::Unknown(name) => OpError::UnknownSpace(name),
            SpaceChangeError::Sparse(_) => OpError::BadRequest(error.to_string()),
            SpaceChangeError::Config(error) => OpError::Config(error),
        }
    }
}

impl Collections {
    /// Waits until no image of a collection of this core is being written.
    pub(crate) async fn owned_await_image(self: &Rc<Self>, uid: u64) {
        if let Some(owned) = self.owned(uid) {
            drop(owned.checkpoint_lock.lock().await);
        }
    }

    /// Adds or drops a space of a collection of named spaces on its owner core; durable when it answers. The caller sees to it that the
    /// collection is not dropped meanwhile.
    pub(crate) async fn owned_change_spaces(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        change: SpaceChange,
    ) -> Result<(), OpError> {
        let unknown = || OpError::UnknownCollection(name.to_owned());
        let owned = self.owned(uid).ok_or_else(unknown)?;
        let _image = owned.checkpoint_lock.lock().await;
        let _round = owned.round_lock.lock().await;
        owned.usable()?;
        let old = owned.handle.config(&self.ctx().pin()).clone();
        let named = old.named().ok_or_else(unknown)?;
        let (changed, number) = match &change {
            SpaceChange::Add { name, config } => {
                (named.with_space(name, (**config).clone())?, named.spaces.len())
            }
            SpaceChange::Drop { name } => named.without_space(name)?,
        };
        let space = {
            let writer = owned.writer.borrow();
            let space = writer.new_space(&changed, number);
            let space = space.map_err(|error| OpError::NoMemory(error.to_string()))?;
            if matches!(change, SpaceChange::Add { .. }) {
                self.ctx().room_in_memory(writer.bytes_of_space(&space), Growth::New)?;
            }
            space
        };
        let new: Arc<CollectionConfig> = Arc::new(changed.into());
        let frees = matches!(change, SpaceChange::Drop { .. });
        let stored = self.store_configuration(&owned, &old, &new, frees).await;
        match (stored, &change) {
            // The file has the space or has it not. Nobody has written into it, so that either is right after a restart.
            (Err((error, _)), SpaceChange::Add { .. }) => Err(error),
            (Err((error, Certainty::Old)), SpaceChange::Drop { .. }) => Err(error),
            // A start may find that the space was dropped, so nothing may be written into it any more.
            (Err((error, Certainty::None)), SpaceChange::Drop { .. }) => {
                self.install(&owned, new, number, space);
                Err(error)
            }
            (Ok(()), _) => {
                self.install(&owned, new, number, space);
                Ok(())
            }
        }
    }

    /// Puts the changed spaces in place: on this core, without an await, and then for all readers.
    fn install(
        self: &Rc<Self>,
        owned: &Rc<Owned>,
        config: Arc<CollectionConfig>,
        number: usize,
        space: SpaceWriter,
    ) {
        let named = config.named().expect("it was made from that of a collection of named spaces");
        let (replaced, view) = {
            let mut writer = owned.writer.borrow_mut();
            let replaced = writer.set_space(named, number, space);
            (replaced, writer.shared().clone())
        };
        let learns = config.has_quantizer();
        // Who sees the name of a new space finds the space. Who sees the name of a dropped one, but not the space any more, is told.
        match replaced {
            None => {
                owned.handle.view.swap(view);
                owned.handle.config.swap(config);
            }
            Some(replaced) => {
                owned.handle.config.swap(config);
                owned.handle.view.swap(view);
                self.retire_space(replaced);
                owned.checkpoint.borrow_mut().has_dropped = true;
            }
        }
        if learns {
            self.start_quantizing(owned);
        }
        // The tail may be shorter.
        owned.tail_room.note_round(0);
        owned.changed.notify();
        self.measure_memory();
    }

    /// Replaces the collection's file. An error says whether the file is certainly as before.
    async fn store_configuration(
        &self,
        owned: &Owned,
        old: &CollectionConfig,
        new: &CollectionConfig,
        may_use_reserve: bool,
    ) -> Result<(), (OpError, Certainty)> {
        let Some(disk) = self.env().disk() else { return Ok(()) };
        let (uid, name) = (owned.handle.uid, &owned.handle.name);
        let file = collection_dir(uid).join(collection_file::FILE);
        let [before, after] = [old, new].map(|config| collection_file::encode(uid, name, config));
        let replace = async || twin::replace(&*disk, &file, &after).await;
        let replaced = if may_use_reserve { self.ctx().with_reserve(replace).await } else { replace().await };
        let Err(error) = replaced else { return Ok(()) };
        let is_old = match disk.read(&file).await {
            Ok(found) if found == before => true,
            _ => twin::replace(&*disk, &file, &before).await.is_ok(),
        };
        Err((io_error(&error), if is_old { Certainty::Old } else { Certainty::None }))
    }

    /// Whether a collection has dense spaces with these numbers, for what was decided by the configuration that another core saw.
    ///
    /// # Errors
    /// The first that was dropped, or that there never was.
    pub(super) fn check_spaces(
        &self,
        owned: &Owned,
        writer: &DenseWriter,
        mut numbers: impl Iterator<Item = usize>,
    ) -> Result<(), OpError> {
        let is_missing = |number: &usize| writer.spaces().get(*number).is_none_or(SpaceWriter::is_dropped);
        match numbers.find(is_missing) {
            Some(number) => Err(owned.handle.no_such_space(&self.ctx().pin(), number)),
            None => Ok(()),
        }
    }
}

/// What is known of the file of a collection after it could not be replaced.
enum Certainty {
    /// The file is as before.
    Old,
    /// The file may have the old or the new configuration.
    None,
}
