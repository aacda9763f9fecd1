//! Operations on the payload of one point.

use crate::op::{Action, ApiError, Operation, WriteOptions, check_key_ttls};
use nigh_shard::core::{Core, OpError, PayloadChange, PointOperated};
use std::rc::Rc;

/// Changes the payload of one point.
pub struct ChangePayload {
    /// Name as sent.
    pub collection: String,
    /// The id.
    pub id: u64,
    /// What to change.
    pub change: PayloadChange,
    /// Conditions.
    pub write: WriteOptions,
}

impl Operation for ChangePayload {
    type Output = ();
    const RIGHT: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        if let PayloadChange::Merge { key_ttl_ms, .. } | PayloadChange::Overwrite { key_ttl_ms, .. } =
            &self.change
        {
            check_key_ttls(key_ttl_ms)?;
        }
        self.write.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<(), ApiError> {
        let expected = self.write.expected_version;
        core.change_payload(&self.collection, self.id, self.change, expected).await?;
        Ok(())
    }
}

/// Carries out a call of `operate` on a record in the payload of one point.
pub struct OperatePoint {
    /// Name as sent.
    pub collection: String,
    /// The id.
    pub id: u64,
    /// The payload key that holds the record.
    pub key: String,
    /// Arguments of the call, which have been decoded once.
    pub call: Vec<u8>,
    /// Conditions.
    pub write: WriteOptions,
}

impl Operation for OperatePoint {
    type Output = PointOperated;
    const RIGHT: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.write.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<PointOperated, ApiError> {
        let OperatePoint { collection, id, key, call, write } = self;
        Ok(core.operate_point(&collection, id, key, call, write.expected_version).await?)
    }
}

/// A change of a payload that answers whether there was a point to change.
pub struct ChangePayloadIfPresent(pub ChangePayload);

impl Operation for ChangePayloadIfPresent {
    type Output = bool;
    const RIGHT: Action = ChangePayload::RIGHT;
    const MUTATES: bool = ChangePayload::MUTATES;
    fn collection(&self) -> &str {
        self.0.collection()
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.0.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<bool, ApiError> {
        let ChangePayload { collection, id, change, write } = self.0;
        match core.change_payload(&collection, id, change, write.expected_version).await {
            Ok(_) => Ok(true),
            Err(OpError::PointNotFound(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
