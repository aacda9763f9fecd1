//! Changes of single vectors of a point in a collection of named spaces.

use super::named::{named, numbered, unknown_space};
use crate::op::{Action, ApiError, Operation, SentId, WriteOptions};
use nigh_engine::collection::SPACES_MAX;
use nigh_engine::quoted::quoted;
use nigh_shard::core::{Core, OpError, VectorsChange};
use std::rc::Rc;

/// Replaces or removes vectors of one point. Payload, deadlines and the vectors in other spaces stay.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdateVectors {
    /// Name as sent.
    pub collection: String,
    /// The id.
    pub id: SentId,
    /// New vectors by the names of dense spaces, each at most once.
    pub dense: Vec<(String, Vec<f32>)>,
    /// New vectors by the names of sparse spaces, each at most once; one without components removes the point from the space.
    pub sparse: Vec<(String, Vec<(u32, f32)>)>,
    /// Names of the dense or sparse spaces from which the point's vector is removed. A space in which it has none is not an error.
    pub delete: Vec<String>,
    /// Conditions.
    pub write: WriteOptions,
}

impl Operation for UpdateVectors {
    /// The version of the point afterwards.
    type Output = u64;
    const RIGHT: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn point(&self) -> Option<&SentId> {
        Some(&self.id)
    }
    fn validate(&self) -> Result<(), ApiError> {
        if self.delete.len() > SPACES_MAX {
            return Err(ApiError::invalid(format!(
                "delete may name at most {SPACES_MAX} spaces, found more"
            )));
        }
        let names = self.dense.iter().map(|(name, _)| name).chain(self.sparse.iter().map(|(name, _)| name));
        if let Some(name) = names.clone().find(|name| self.delete.contains(name)) {
            let name = quoted(name);
            return Err(ApiError::invalid(format!(
                "the vector space {name} is in delete and also in vectors or sparse_vectors; name it in one of them"
            )));
        }
        if let Some(name) = self
            .delete
            .iter()
            .enumerate()
            .find_map(|(at, name)| self.delete[..at].contains(name).then_some(name))
        {
            return Err(ApiError::invalid(format!(
                "delete names the vector space {} twice; name it once",
                quoted(name)
            )));
        }
        if names.count() + self.delete.len() == 0 {
            return Err(ApiError::invalid(
                "the request names no vector space; it needs a vector to set, or a space in delete",
            ));
        }
        self.write.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<u64, ApiError> {
        let id = self.id.number();
        Ok(self.change(&core).await?.ok_or(OpError::PointNotFound(id))?)
    }
}

impl UpdateVectors {
    /// The version of the point afterwards; `None` when there is none.
    async fn change(self, core: &Rc<Core>) -> Result<Option<u64>, ApiError> {
        let UpdateVectors { collection, id, dense, sparse, delete, write } = self;
        let config = core.config(&collection)?;
        let config = named(&config, &collection)?;
        let mut change = VectorsChange { set: numbered(config, dense, sparse)?, removed: Vec::new() };
        for name in delete {
            match (config.number_of(&name), config.sparse_number_of(&name)) {
                (Some(number), _) => change.removed.push(number),
                (None, Some(number)) => change.set.sparse.push((number, Vec::new())),
                (None, None) => return Err(unknown_space(config, &name)),
            }
        }
        match core.change_vectors(&collection, id.number(), change, write.expected_version).await {
            Ok(version) => Ok(Some(version)),
            Err(OpError::PointNotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A change of vectors whose result is the version of the point afterwards, or `None` if there is no such point.
pub struct UpdateVectorsIfPresent(pub UpdateVectors);

impl Operation for UpdateVectorsIfPresent {
    type Output = Option<u64>;
    const RIGHT: Action = UpdateVectors::RIGHT;
    const MUTATES: bool = UpdateVectors::MUTATES;
    fn collection(&self) -> &str {
        self.0.collection()
    }
    fn point(&self) -> Option<&SentId> {
        self.0.point()
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.0.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<Option<u64>, ApiError> {
        self.0.change(&core).await
    }
}
