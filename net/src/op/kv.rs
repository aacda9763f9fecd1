//! Operations on keys as a whole. Those on single keys have a path of their own, see [`crate::door::Door::kv`].

use crate::op::{Action, ApiError, Operation};
use nigh_shard::core::Core;
use nigh_shard::kv::indexes::IndexDefinition;
use nigh_shard::kv::query::{KeyPage, KeyQuery};
use std::rc::Rc;

/// A page of the keys that match a query.
pub struct QueryKeys {
    /// The query.
    pub query: Box<KeyQuery>,
}

impl Operation for QueryKeys {
    type Output = KeyPage;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    async fn run(self, core: Rc<Core>) -> Result<KeyPage, ApiError> {
        Ok(core.keys().query_keys(*self.query).await?)
    }
}

/// Defines a key index, or drops it.
pub struct DefineKeyIndex {
    /// The index. Only its name counts when it is dropped.
    pub definition: IndexDefinition,
    /// Whether the index is to exist; false drops it.
    pub enabled: bool,
}

impl Operation for DefineKeyIndex {
    type Output = ();
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = true;
    async fn run(self, core: Rc<Core>) -> Result<(), ApiError> {
        Ok(core.keys().define_key_index(self.definition, self.enabled).await?)
    }
}

/// Lists all key indexes, and says of each whether it can be used.
pub struct ListKeyIndexes;

impl Operation for ListKeyIndexes {
    type Output = Vec<(IndexDefinition, bool)>;
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = false;
    async fn run(self, core: Rc<Core>) -> Result<Vec<(IndexDefinition, bool)>, ApiError> {
        core.keys().served()?;
        Ok(core.keys().key_indexes().await)
    }
}

/// Removes every key.
pub struct FlushKeys;

impl Operation for FlushKeys {
    type Output = ();
    const RIGHT: Action = Action::Write;
    const MUTATES: bool = true;
    async fn run(self, core: Rc<Core>) -> Result<(), ApiError> {
        Ok(core.keys().flush_keys().await?)
    }
}
