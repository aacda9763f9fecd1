//! Operations on payloads, of one point or of many.

use crate::limits;
use crate::op::{
    Action, ApiError, ErrorKind, Operation, SentId, SentIds, WriteOptions, check_ids, check_key_ttls,
};
use nigh_engine::filter::Predicate;
use nigh_engine::kv::operate::{Call, OperateError};
use nigh_engine::point_id::IdKind;
use nigh_engine::quoted::quoted;
use nigh_shard::core::{Core, OpError, PayloadChange, PointOperated, Selection};
use std::rc::Rc;
use std::sync::Arc;

/// Checks what can be checked of a change without its point.
fn check_change(change: &PayloadChange) -> Result<(), ApiError> {
    match change {
        PayloadChange::Merge { key_ttl_ms, .. } | PayloadChange::Overwrite { key_ttl_ms, .. } => {
            check_key_ttls(key_ttl_ms)
        }
        // Each of these keys is searched in the row of each point, so their number is limited.
        PayloadChange::DeleteKeys(keys) if keys.len() > limits::PAYLOAD_KEYS_MAX => {
            let most = limits::PAYLOAD_KEYS_MAX;
            Err(ApiError::invalid(format!("a request may name at most {most} keys to delete, found more")))
        }
        PayloadChange::DeleteKeys(_) | PayloadChange::Clear => Ok(()),
    }
}

/// Checks that a change that overwrites the payloads of many points has a payload. One that was left out by mistake must not erase them.
///
/// # Errors
/// 400.
pub fn check_overwriting(is_given: bool) -> Result<(), ApiError> {
    match is_given {
        true => Ok(()),
        false => Err(ApiError::invalid(
            "payload is missing; to overwrite the payloads of many points, send an object ({} is allowed), or clear the payloads",
        )),
    }
}

/// Changes the payload of one point.
pub struct ChangePayload {
    /// Name as sent.
    pub collection: String,
    /// The id.
    pub id: SentId,
    /// What to change.
    pub change: PayloadChange,
    /// Conditions.
    pub write: WriteOptions,
}

impl Operation for ChangePayload {
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
        check_change(&self.change)?;
        self.write.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<u64, ApiError> {
        let expected = self.write.expected_version;
        Ok(core.change_payload(&self.collection, self.id.number(), self.change, expected).await?)
    }
}

/// Changes the payloads of every point that matches, or of every point that is named, in the same way.
pub struct ChangePayloads {
    /// Name as sent.
    pub collection: String,
    /// The filter; one that matches everything is refused.
    pub filter: Option<Arc<Predicate>>,
    /// The ids, if there is no filter, in any order. Repeated and absent ids have no effect.
    pub ids: Option<SentIds>,
    /// What to change.
    pub change: PayloadChange,
    /// Conditions.
    pub write: WriteOptions,
}

impl Operation for ChangePayloads {
    /// How many points were changed.
    type Output = u64;
    const RIGHT: Action = Action::Write;
    const MUTATES: bool = true;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn id_kind(&self) -> Option<IdKind> {
        self.ids.as_ref().and_then(|ids| ids.kind)
    }
    fn validate(&self) -> Result<(), ApiError> {
        check_change(&self.change)?;
        self.write.validate()?;
        match (&self.filter, &self.ids) {
            (Some(_), Some(_)) => {
                Err(ApiError::invalid("filter and ids are both set; change payloads by one of them"))
            }
            (None, Some(ids)) => check_ids(ids.len()),
            (None, None) => Err(ApiError::invalid("a change of many payloads needs a filter or ids")),
            (Some(filter), None) if filter.is_trivially_true() => {
                Err(ApiError::invalid("a change of many payloads refuses a filter that matches every point"))
            }
            (Some(_), None) => Ok(()),
        }
    }
    async fn run(self, core: Rc<Core>) -> Result<u64, ApiError> {
        let selection = match (self.filter, self.ids) {
            (_, Some(ids)) => Selection::Named(ids.numbers),
            (Some(filter), None) => Selection::Matching(filter),
            (None, None) => return Ok(0),
        };
        Ok(core.change_payloads(&self.collection, selection, self.change).await?)
    }
}

/// Decodes as much of a call of `operate` as is possible without the record, so that a wrong call is refused early.
///
/// # Errors
/// A bad request: `operate call arguments invalid` also for a key without a name.
pub fn check_call(key: &str, call: &[u8]) -> Result<(), ApiError> {
    let refused = |error: OperateError| ApiError::invalid(error.to_string());
    if key.is_empty() {
        return Err(refused(OperateError::ArgumentsInvalid));
    }
    Call::decode_in_payload(call).map(drop).map_err(refused)
}

/// Makes the result of a call of `operate`: what it returned, and the version of the point.
///
/// # Errors
/// There is no such point, or no record under the key.
pub fn operated(id: &SentId, key: &str, outcome: PointOperated) -> Result<(Vec<u8>, u64), ApiError> {
    match outcome {
        PointOperated::Done { result, version } => Ok((result, version)),
        PointOperated::NoPoint => Err(ApiError::from(OpError::PointNotFound(id.number())).naming(id)),
        PointOperated::NoRecord => {
            let text =
                format!("record not found: the point with id {id} has none under the key {}", quoted(key));
            Err(ApiError::new(ErrorKind::NotFound, text))
        }
    }
}

/// Carries out a call of `operate` on a record in the payload of one point.
pub struct OperatePoint {
    /// Name as sent.
    pub collection: String,
    /// The id.
    pub id: SentId,
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
    fn point(&self) -> Option<&SentId> {
        Some(&self.id)
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.write.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<PointOperated, ApiError> {
        let OperatePoint { collection, id, key, call, write } = self;
        Ok(core.operate_point(&collection, id.number(), key, call, write.expected_version).await?)
    }
}

/// A change of a payload whose result says whether there was a point to change.
pub struct ChangePayloadIfPresent(pub ChangePayload);

impl Operation for ChangePayloadIfPresent {
    type Output = bool;
    const RIGHT: Action = ChangePayload::RIGHT;
    const MUTATES: bool = ChangePayload::MUTATES;
    fn collection(&self) -> &str {
        self.0.collection()
    }
    fn point(&self) -> Option<&SentId> {
        self.0.point()
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.0.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<bool, ApiError> {
        let ChangePayload { collection, id, change, write } = self.0;
        match core.change_payload(&collection, id.number(), change, write.expected_version).await {
            Ok(_) => Ok(true),
            Err(OpError::PointNotFound(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
