//! Operations of a bulk build: staging points, and building the index of what is staged.

use crate::op::{Action, ApiError, Operation};
use nigh_shard::core::{Core, WriteBatch};
use std::rc::Rc;

/// Stages points for a bulk build.
pub struct StagePoints {
    /// Name as sent.
    pub collection: String,
    /// The points; its mode is ignored.
    pub batch: WriteBatch,
}

impl Operation for StagePoints {
    type Output = usize;
    const RIGHT: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<usize, ApiError> {
        Ok(core.stage(&self.collection, self.batch).await?)
    }
}

/// Builds the index of what is staged.
pub struct BuildStaged {
    /// Name as sent.
    pub collection: String,
    /// Cores to use, 0 = all.
    pub workers: usize,
    /// Answer when it is built, not when it has begun.
    pub wait: bool,
}

impl Operation for BuildStaged {
    type Output = Option<u64>;
    const RIGHT: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    const LASTS: bool = true;
    async fn run(self, core: Rc<Core>) -> Result<Option<u64>, ApiError> {
        Ok(core.build(&self.collection, self.workers, self.wait).await?)
    }
}
