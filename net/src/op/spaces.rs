//! Adding and dropping vector spaces of a live collection of named spaces.

use crate::op::{Action, ApiError, Operation};
use nigh_engine::collection::DenseConfig;
use nigh_shard::core::{Core, SpaceChange};
use std::rc::Rc;

/// Adds a dense or sparse space, in which no point has a vector yet.
#[derive(Clone, Debug, PartialEq)]
pub struct AddSpace {
    /// Name of the collection as sent; an alias is not accepted.
    pub collection: String,
    /// Name of the space.
    pub space: String,
    /// Configuration of a dense space, defaults applied; `None` for a sparse space, which has none.
    pub config: Option<Box<DenseConfig>>,
}

/// Drops a dense or sparse space with the vectors that points have in it.
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
        let name = self.space;
        let change = match self.config {
            Some(config) => SpaceChange::Add { name, config },
            None => SpaceChange::AddSparse { name },
        };
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
