//! The operations that move a collection to the store of backups (eviction) and bring it back (promotion).

use crate::op::{Action, ApiError, Lack, Operation, Unmet};
use nigh_shard::core::Core;
use std::rc::Rc;

/// Refuses an operation that needs a store if none is configured. If the collection does not exist, the error says that instead.
async fn check_store(core: &Rc<Core>, collection: &str) -> Result<(), ApiError> {
    if core.has_backups() {
        return Ok(());
    }
    let unmet = Unmet { collection: collection.to_owned(), lack: Lack::ObjectStore };
    match unmet.run(core.clone()).await? {}
}

/// Moves a collection out of memory.
pub struct EvictCollection {
    /// Its name, as sent; not an alias.
    pub collection: String,
}

impl Operation for EvictCollection {
    type Output = ();
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = true;
    const LASTS: bool = true;
    const OF_FAMILY: bool = false;
    const ENTERS: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<(), ApiError> {
        check_store(&core, &self.collection).await?;
        Ok(core.evict_collection(&self.collection).await?)
    }
}

/// Brings a cold collection back.
pub struct PromoteCollection {
    /// Its name, as sent; not an alias.
    pub collection: String,
}

impl Operation for PromoteCollection {
    type Output = ();
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = true;
    const LASTS: bool = true;
    const OF_FAMILY: bool = false;
    const ENTERS: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<(), ApiError> {
        check_store(&core, &self.collection).await?;
        Ok(core.promote_collection(&self.collection).await?)
    }
}
