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
use crate::points::{NamedVectors, SpaceChange};
use crate::twin;
use nigh_engine::collection::{DenseWriter, NewSpace, SpaceChangeError, SpaceNumber};
use std::rc::Rc;
use std::sync::Arc;

impl From<SpaceChangeError> for OpError {
    fn from(error: SpaceChangeError) -> OpError {
        match error {
            SpaceChangeError::Exists(name) => OpError::SpaceExists(name),
            SpaceChangeError::TooMany | SpaceChangeError::Last(_) => OpError::Conflict(error.to_string()),
            SpaceChangeError::Unknown(name) => OpError::UnknownSpace(name),
            SpaceChangeError::Config(error) => OpError::Config(error),
        }
    }
}

impl Owned {
    /// Refuses a change of spaces while a bulk build runs.
    fn check_no_build(&self, name: &str) -> Result<(), OpError> {
        match *self.build_delta.borrow() {
            Some(_) => Err(OpError::Conflict(format!(
                "a bulk build of collection {name:?} is running, so its spaces cannot be changed; repeat the request when the build has ended"
            ))),
            None => Ok(()),
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
        // A build may hold the locks for long while it is saved. It is looked for again once they are held.
        owned.check_no_build(name)?;
        let _image = owned.checkpoint_lock.lock().await;
        let _round = owned.round_lock.lock().await;
        owned.usable()?;
        owned.check_no_build(name)?;
        let old = owned.handle.config(&self.ctx().pin()).clone();
        let named = old.named().ok_or_else(unknown)?;
        let (changed, number) = match &change {
            SpaceChange::Add { name, config } => {
                (named.with_space(name, (**config).clone())?, SpaceNumber::Dense(named.spaces.len()))
            }
            SpaceChange::AddSparse { name } => {
                (named.with_sparse_space(name)?, SpaceNumber::Sparse(named.sparse_spaces.len()))
            }
            SpaceChange::Drop { name } => named.without_space(name)?,
        };
        let drops = matches!(change, SpaceChange::Drop { .. });
        let space = {
            let writer = owned.writer.borrow();
            let space = writer.new_space(&changed, number);
            let space = space.map_err(|error| OpError::NoMemory(error.to_string()))?;
            if !drops {
                self.ctx().room_in_memory(writer.bytes_of_space(&space), Growth::New)?;
            }
            space
        };
        let new: Arc<CollectionConfig> = Arc::new(changed.into());
        match self.store_configuration(&owned, &old, &new, drops).await {
            // The file has the space or has it not. Nobody has written into it, so that either is right after a restart.
            Err((error, _)) if !drops => Err(error),
            Err((error, Certainty::Old)) => Err(error),
            // A start may find that the space was dropped, so nothing may be written into it any more.
            Err((error, Certainty::None)) => {
                self.install(&owned, new, space);
                Err(error)
            }
            Ok(()) => {
                self.install(&owned, new, space);
                Ok(())
            }
        }
    }

    /// Puts the changed spaces in place: on this core, without an await, and then for all readers.
    fn install(self: &Rc<Self>, owned: &Rc<Owned>, config: Arc<CollectionConfig>, space: NewSpace) {
        let named = config.named().expect("it was made from that of a collection of named spaces");
        let (dropped, view) = {
            let mut writer = owned.writer.borrow_mut();
            let dropped = writer.set_space(named, space);
            (dropped, writer.shared().clone())
        };
        let learns = config.has_quantizer();
        // Who sees the name of a new space finds the space. Who sees the name of a dropped one, but not the space any more, is told.
        match dropped {
            None => {
                owned.handle.view.swap(view);
                owned.handle.config.swap(config);
            }
            Some(dropped) => {
                owned.handle.config.swap(config);
                owned.handle.view.swap(view);
                // The next image leaves out the vectors that files have of a dense space. Sparse vectors are in the rows of points.
                owned.checkpoint.borrow_mut().has_dropped |= dropped.is_dense();
                self.retire_space(dropped);
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

    /// Checks that the spaces of a change still exist: those of `set`, and the dense ones in `removed`. Another core resolved their names, perhaps
    /// from an older configuration.
    ///
    /// # Errors
    /// The first space that was dropped, or that there never was.
    pub(super) fn check_spaces(
        &self,
        owned: &Owned,
        writer: &DenseWriter,
        set: &NamedVectors,
        removed: &[usize],
    ) -> Result<(), OpError> {
        let has_dense = |number: usize| writer.spaces().get(number).is_some_and(|space| !space.is_dropped());
        let mut dense = set.dense.iter().map(|(number, _)| *number).chain(removed.iter().copied());
        let mut sparse = set.sparse.iter().map(|(number, _)| *number);
        let missing = (dense.find(|number| !has_dense(*number)).map(SpaceNumber::Dense)).or_else(|| {
            sparse.find(|number| !writer.points().has_sparse_space(*number)).map(SpaceNumber::Sparse)
        });
        match missing {
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
