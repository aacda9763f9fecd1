//! The operations that move a collection to the store of backups (eviction) and bring it back (promotion).

use crate::op::{Action, ApiError, Lack, Operation, Unmet};
use nigh_shard::core::Core;
use std::rc::Rc;

/// Where a collection moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Out of memory.
    Evict,
    /// Back, if it is cold.
    Promote,
}

/// Moves a collection out of memory, or brings it back.
pub struct MoveCollection {
    /// Its name, as sent; not an alias.
    pub collection: String,
    /// Where it moves.
    pub direction: Direction,
}

impl Operation for MoveCollection {
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
        let MoveCollection { collection, direction } = self;
        if !core.has_backups() {
            // If the collection does not exist, that is the error, and not what the node lacks.
            let unmet = Unmet { collection, lack: Lack::ObjectStore };
            match unmet.run(core).await? {}
        }
        match direction {
            Direction::Evict => core.evict_collection(&collection).await?,
            Direction::Promote => core.promote_collection(&collection).await?,
        }
        Ok(())
    }
}
