//! Adding and dropping vector spaces of a live collection of named spaces.

use crate::op::{Action, ApiError, Operation};
use nigh_engine::collection::DenseConfig;
use nigh_shard::core::{Core, SpaceChange};
use std::rc::Rc;

/// Adds a dense space, in which no point has a vector yet.
#[derive(Clone, Debug, PartialEq)]
pub struct AddSpace {
    /// Name of the collection as sent; an alias is not accepted.
    pub collection: String,
    /// Name of the space.
    pub space: String,
    /// Configuration, defaults applied.
    pub config: Box<DenseConfig>,
}

/// Drops a dense space with the vectors that points have in it.
#[derive(Clone, Debug, PartialEq)]
pub struct DropSpace {
    /// Name of the collection as sent; an alias is not accepted.
    pub collection: String,
    /// Name of the space.
    pub space: String,
}

impl Operation for AddSpace {
    type Output = ();
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<(), ApiError> {
        let change = SpaceChange::Add { name: self.space, config: self.config };
        Ok(core.change_spaces(&self.collection, change).await?)
    }
}

impl Operation for DropSpace {
    type Output = ();
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<(), ApiError> {
        Ok(core.change_spaces(&self.collection, SpaceChange::Drop { name: self.space }).await?)
    }
}
