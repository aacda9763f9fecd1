//! Operations on points: writing, reading by id, deleting.

use crate::limits;
use crate::op::{Action, ApiError, Operation, ReadOptions, SentId, SentIds, WriteOptions, place_of};
use nigh_engine::collection::WriteMode;
use nigh_engine::filter::Predicate;
use nigh_engine::point_id::IdKind;
use nigh_shard::core::{BatchError, Core, PointFields, Selection, StoredPoint, Vectors, WriteBatch, Written};
use std::rc::Rc;
use std::sync::Arc;

/// Inserts or upserts points in order.
pub struct WritePoints {
    /// Name as sent.
    pub collection: String,
    /// The points.
    pub batch: WriteBatch,
}

impl Operation for WritePoints {
    type Output = Vec<Written>;
    const RIGHT: Action = Action::Write;
    const MUTATES: bool = true;
    // The owner of the collection checks the points, and its refusal says how many points were written before.
    const OF_FAMILY: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<Written>, ApiError> {
        let of_several = (self.batch.points.len() > 1).then_some("points");
        core.write(&self.collection, self.batch).await.map_err(|stopped| stopped_at(stopped, of_several))
    }
}

/// Makes the error of a write that stopped. It names the point, if the point was one of several in a list of this name.
pub(super) fn stopped_at(stopped: BatchError, of_several: Option<&str>) -> ApiError {
    let committed = stopped.written.len();
    let mut error = ApiError::from(stopped.error);
    if let Some(point) = &stopped.point {
        error = error.naming(point);
    }
    ApiError { written: stopped.written, ..refused_at(committed, of_several.zip(stopped.point), error) }
}

/// Makes the error of a write of which the points before `at` were written. It names the list and the refused point if both are given. The caller
/// adds the outcomes of the written points.
pub(super) fn refused_at(at: usize, point: Option<(&str, SentId)>, error: ApiError) -> ApiError {
    let message = match point {
        Some((list, id)) => format!("{}: {error}", place_of(list, at, Some(&id))),
        None => error.message,
    };
    ApiError { committed: Some(at), ..ApiError::new(error.kind, message) }
}

/// Reads points by id.
pub struct GetPoints {
    /// Name as sent.
    pub collection: String,
    /// Ids, repeats allowed.
    pub ids: SentIds,
    /// Return vectors.
    pub with_vector: bool,
    /// Return payloads.
    pub with_payload: bool,
    /// Consistency.
    pub read: ReadOptions,
}

impl Operation for GetPoints {
    type Output = Vec<Option<StoredPoint>>;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn id_kind(&self) -> Option<IdKind> {
        self.ids.kind
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<Option<StoredPoint>>, ApiError> {
        Ok(core.get(&self.collection, self.ids.numbers, self.with_vector, self.with_payload).await?)
    }
}

/// Deletes one point.
pub struct DeletePoint {
    /// Name as sent.
    pub collection: String,
    /// The id.
    pub id: SentId,
    /// Conditions.
    pub write: WriteOptions,
}

impl Operation for DeletePoint {
    type Output = bool;
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
    async fn run(self, core: Rc<Core>) -> Result<bool, ApiError> {
        Ok(core.delete(&self.collection, self.id.number(), self.write.expected_version).await?)
    }
}

/// Deletes every point that matches a filter, or every point that is named.
pub struct DeletePoints {
    /// Name as sent.
    pub collection: String,
    /// The filter; one that matches everything is refused.
    pub filter: Option<Arc<Predicate>>,
    /// The ids, if there is no filter, in any order; repeats are allowed. An empty list is no error, and neither is an absent id.
    pub ids: Option<SentIds>,
    /// Conditions.
    pub write: WriteOptions,
}

impl Operation for DeletePoints {
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
        self.write.validate()?;
        match (&self.filter, &self.ids) {
            (Some(_), Some(_)) => {
                Err(ApiError::invalid("filter and ids are both set; delete by one of them"))
            }
            (None, Some(ids)) => check_ids(ids.len()),
            (None, None) => Err(ApiError::invalid("delete by filter needs a filter")),
            (Some(filter), None) if filter.is_trivially_true() => Err(ApiError::invalid(
                "delete by filter refuses a filter that matches every point; drop the collection instead",
            )),
            (Some(_), None) => Ok(()),
        }
    }
    async fn run(self, core: Rc<Core>) -> Result<u64, ApiError> {
        match (self.filter, self.ids) {
            (_, Some(ids)) => Ok(core.delete_many(&self.collection, Selection::Named(ids.numbers)).await?),
            (Some(filter), None) => {
                Ok(core.delete_many(&self.collection, Selection::Matching(filter)).await?)
            }
            (None, None) => Ok(0),
        }
    }
}

/// Checks the number of points that one deletion, or one change of payloads, names.
///
/// # Errors
/// A bad request beyond [`limits::DELETE_IDS_MAX`].
pub fn check_ids(count: usize) -> Result<(), ApiError> {
    let most = limits::DELETE_IDS_MAX;
    if count > most {
        return Err(ApiError::invalid(format!("ids: at most {most} in one request")));
    }
    Ok(())
}

/// Collects the points of a body into one batch. Vectors of one length share a buffer. Vectors of other lengths are kept apart, so that each point
/// can be refused on its own.
pub struct BatchBuilder {
    flat: Vec<f32>,
    dim: Option<usize>,
    apart: Vec<Vec<f32>>,
    points: Vec<PointFields>,
}

impl BatchBuilder {
    /// Makes an empty batch.
    pub fn new() -> Self {
        BatchBuilder { flat: Vec::new(), dim: None, apart: Vec::new(), points: Vec::new() }
    }

    /// The number of points so far.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Whether there is no point yet.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Whether all vectors so far have one length.
    pub fn is_uniform(&self) -> bool {
        self.apart.is_empty()
    }

    /// Appends a point.
    pub fn push(&mut self, vector: Vec<f32>, fields: PointFields) {
        if !self.apart.is_empty() {
            self.apart.push(vector);
        } else if *self.dim.get_or_insert(vector.len()) == vector.len() {
            self.flat.extend_from_slice(&vector);
        } else {
            let dim = self.dim.unwrap_or(0);
            let count = self.points.len();
            self.apart.reserve(count + 1);
            for index in 0..count {
                self.apart.push(self.flat[index * dim..(index + 1) * dim].to_vec());
            }
            self.flat = Vec::new();
            self.apart.push(vector);
        }
        self.points.push(fields);
    }

    /// Returns the batch.
    pub fn finish(self, mode: WriteMode) -> WriteBatch {
        let dim = self.dim.unwrap_or(0);
        let vectors =
            if self.apart.is_empty() { Vectors::Native(self.flat) } else { Vectors::PerPoint(self.apart) };
        WriteBatch { mode, dim, vectors, points: self.points }
    }
}

impl Default for BatchBuilder {
    fn default() -> Self {
        BatchBuilder::new()
    }
}
