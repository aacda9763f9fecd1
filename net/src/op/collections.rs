//! Operations on collections as a whole.

use crate::op::{Action, ApiError, Operation};
use nigh_shard::core::{CollectionInfo, Core};
use nigh_shard::family::{CollectionConfig, ConfigChange, Family};
use std::rc::Rc;

/// Makes a collection.
pub struct CreateCollection {
    /// Name as sent.
    pub collection: String,
    /// Configuration, defaults applied.
    pub config: CollectionConfig,
}

impl Operation for CreateCollection {
    type Output = ();
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = true;
    const OF_FAMILY: bool = false;
    const ENTERS: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        Core::full_name(&self.collection)?;
        self.config.validate().map_err(|error| ApiError::invalid(error.to_string()))
    }
    async fn run(self, core: Rc<Core>) -> Result<(), ApiError> {
        Ok(core.create_collection(&self.collection, self.config).await?)
    }
}

/// Removes a collection and its files. It is no error if there is none of this name.
pub struct DropCollection {
    /// Name as sent.
    pub collection: String,
    /// Its family; `None` = any.
    pub family: Option<Family>,
}

impl Operation for DropCollection {
    type Output = bool;
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = true;
    const OF_FAMILY: bool = false;
    const ENTERS: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        Core::full_name(&self.collection)?;
        Ok(())
    }
    async fn run(self, core: Rc<Core>) -> Result<bool, ApiError> {
        Ok(core.drop_collection(&self.collection, self.family).await?)
    }
}

/// Changes those values of a configuration that can be changed while the collection serves.
pub struct ChangeConfig {
    /// Name as sent.
    pub collection: String,
    /// The new values.
    pub change: ConfigChange,
}

impl Operation for ChangeConfig {
    /// The collection with the configuration that it has now.
    type Output = CollectionInfo;
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.change.validate().map_err(|error| ApiError::invalid(error.to_string()))
    }
    async fn run(self, core: Rc<Core>) -> Result<CollectionInfo, ApiError> {
        let config = core.change_config(&self.collection, self.change).await?;
        Ok(CollectionInfo { config, ..core.collection_info(&self.collection)? })
    }
}

/// Every collection.
pub struct ListCollections;

impl Operation for ListCollections {
    type Output = Vec<CollectionInfo>;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    async fn run(self, core: Rc<Core>) -> Result<Vec<CollectionInfo>, ApiError> {
        Ok(core.collections()?)
    }
}

/// One collection with its figures.
pub struct GetCollection {
    /// Name as sent.
    pub collection: String,
}

impl Operation for GetCollection {
    type Output = CollectionInfo;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<CollectionInfo, ApiError> {
        Ok(core.collection_info(&self.collection)?)
    }
}
