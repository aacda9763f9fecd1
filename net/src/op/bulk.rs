//! Operations of a bulk build: staging points, and building the index of what is staged.

use super::multi_vector::batch_of;
use super::named::{named, numbered};
use crate::op::{Action, ApiError, Document, NamedPoint, Operation, SentId};
use nigh_engine::collection::WriteMode;
use nigh_shard::core::{Core, Vectors, WriteBatch};
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

/// Stages points of named spaces for a bulk build.
pub struct StageNamed {
    /// Name as sent.
    pub collection: String,
    /// The points.
    pub points: Vec<NamedPoint>,
}

impl Operation for StageNamed {
    type Output = usize;
    const RIGHT: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<usize, ApiError> {
        let config = core.config(&self.collection)?;
        let config = named(&config, &self.collection)?;
        let (mut vectors, mut points) = (Vec::new(), Vec::with_capacity(self.points.len()));
        for (index, point) in self.points.into_iter().enumerate() {
            let NamedPoint { fields, dense, sparse } = point;
            vectors.push(numbered(config, dense, sparse).map_err(|error| {
                let id = SentId::stored(fields.id, &fields.row);
                ApiError { message: format!("points[{index}] with id {id}: {}", error.message), ..error }
            })?);
            points.push(fields);
        }
        let batch = WriteBatch { mode: WriteMode::Insert, dim: 0, vectors: Vectors::Named(vectors), points };
        Ok(core.stage(&self.collection, batch).await?)
    }
}

/// Stages documents of a multi-vector collection for a bulk build.
pub struct StageDocuments {
    /// Name as sent.
    pub collection: String,
    /// The documents.
    pub documents: Vec<Document>,
}

impl Operation for StageDocuments {
    type Output = usize;
    const RIGHT: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<usize, ApiError> {
        Ok(core.stage(&self.collection, batch_of(self.documents, WriteMode::Insert)).await?)
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
