//! Points that wait for a bulk build.

use super::token_index::TokenIndex;
use super::write::batch_vector;
use super::{Collections, Owned};
use crate::account::Growth;
use crate::error::OpError;
use crate::owner::sweeper::sweep_points;
use crate::payload_change::{check_row, finish_row};
use crate::points::{NamedVectors, PointFields, Vectors, WriteBatch};
use crate::slice::Slice;
use ahash::HashSet;
use nigh_engine::collection::WriteError;
use nigh_engine::payload::{PayloadRow, RowBuilder};
use nigh_engine::point_id::SentId;
use std::rc::Rc;

/// Bytes of a staged point beside its vector and row: its fields, its id in the set.
pub(super) const ID_BYTES: u64 = 80;

/// Points waiting for a build; in memory only, as the interface says.
#[derive(Default)]
pub struct Staged {
    pub(super) batches: Vec<Rc<WriteBatch>>,
    ids: HashSet<u64>,
    bytes: u64,
    /// Number of all vectors that a build will index. For documents these are the points of their index.
    pub(super) vectors: u64,
    /// Number of the token vectors of all documents.
    pub(super) tokens: u64,
}

impl Staged {
    /// Points staged.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Bytes they take, about.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.ids.len() as u64 * ID_BYTES
    }

    /// Nothing staged.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// Bytes beside the components, counted once for each point and once for each of its vectors; an upper bound.
const LIST_BYTES: usize = size_of::<NamedVectors>() + size_of::<(usize, Vec<f32>)>();

/// Bytes of the vectors and rows of a batch.
fn staged_bytes(batch: &WriteBatch) -> u64 {
    let rows: usize = batch.points.iter().map(|point| point.row.len()).sum();
    let vectors = match &batch.vectors {
        Vectors::Named(all) => {
            let lists = |vectors: &NamedVectors| {
                let count = 1 + vectors.dense.len() + vectors.sparse.len() + vectors.tokens.len();
                count * LIST_BYTES
            };
            all.iter().map(|vectors| vectors.numbers() * size_of::<f32>() + lists(vectors)).sum()
        }
        _ => batch.points.len() * batch.dim * size_of::<f32>(),
    };
    (rows + vectors) as u64
}

/// The vectors of one point as they are staged.
enum StagedVectors<'a> {
    Only(&'a [f32]),
    Named(&'a mut NamedVectors),
}

impl Owned {
    /// Refuses what a build needs an empty collection for.
    pub(super) fn is_empty_for_build(&self, name: &str) -> Result<(), OpError> {
        match self.writer.borrow().shared().stats().live {
            0 => Ok(()),
            live => Err(OpError::Conflict(format!(
                "collection {name:?} is not empty: a bulk build needs an empty one, and it has {live} points"
            ))),
        }
    }

    /// Refuses points that no build would take. None at all are always taken.
    fn takes_staging(&self, name: &str, points: usize) -> Result<(), OpError> {
        if self.build_delta.borrow().is_some() {
            return Err(OpError::Conflict(format!("a bulk build of collection {name:?} is running")));
        }
        if points == 0 { Ok(()) } else { self.is_empty_for_build(name) }
    }
}

impl Collections {
    /// Checks one point that is to be staged, and returns how many of its vectors a build will index. Its sparse vectors move into its row.
    fn check_staged(
        &self,
        owned: &Owned,
        point: &mut PointFields,
        vectors: StagedVectors<'_>,
    ) -> Result<usize, OpError> {
        check_row(&point.row, &owned.handle)?;
        let writer = owned.writer.borrow();
        match vectors {
            StagedVectors::Only(vector) => {
                writer.space().check_vector(point.id, vector)?;
                Ok(1)
            }
            StagedVectors::Named(vectors) => {
                self.check_spaces(owned, &writer, vectors, &[])?;
                for (number, vector) in &vectors.dense {
                    writer.spaces()[*number].check_vector(point.id, vector)?;
                }
                if !vectors.sparse.is_empty() {
                    let mut row = RowBuilder::from(PayloadRow::trusted(&point.row));
                    for (space, vector) in std::mem::take(&mut vectors.sparse) {
                        row.set_sparse_of(space, vector).map_err(|error| OpError::Search(error.into()))?;
                    }
                    point.row = finish_row(row)?;
                }
                Ok(vectors.dense.len())
            }
        }
    }

    /// Stages a batch on the owner core; all or nothing.
    pub(crate) async fn owned_stage(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        mut batch: WriteBatch,
    ) -> Result<usize, OpError> {
        let unknown = || OpError::UnknownCollection(name.to_owned());
        let owned = self.owned(uid).ok_or_else(unknown)?;
        owned.usable()?;
        let is_named = owned.writer.borrow().shared().is_named();
        if is_named != matches!(batch.vectors, Vectors::Named(_)) {
            // It is of another family.
            return Err(unknown());
        }
        let bytes = staged_bytes(&batch) + batch.points.len() as u64 * ID_BYTES;
        self.ctx().room_in_memory(bytes, Growth::New)?;
        if !batch.points.is_empty() && owned.is_empty_for_build(name).is_err() {
            // What has expired is not in the way.
            sweep_points(self, &owned).await;
            owned.usable()?;
        }
        owned.takes_staging(name, batch.points.len())?;
        let array = if owned.token_index.get().is_some() { "docs" } else { "points" };
        let mut slice = Slice::begin(self.env());
        let mut buffer = Vec::new();
        let mut fresh = HashSet::default();
        let (mut indexed, mut tokens) = (0, 0);
        let WriteBatch { vectors, points, dim, .. } = &mut batch;
        for (index, point) in points.iter_mut().enumerate() {
            let vectors = match &mut *vectors {
                Vectors::Named(all) => StagedVectors::Named(&mut all[index]),
                vectors => StagedVectors::Only(batch_vector(vectors, *dim, index, &mut buffer)),
            };
            let checked = match (owned.token_index.get(), vectors) {
                (Some(index), StagedVectors::Named(vectors)) => {
                    tokens += vectors.tokens.len() as u64;
                    self.stage_document(&owned, index, point, std::mem::take(vectors)).await
                }
                (_, vectors) => self.check_staged(&owned, point, vectors),
            };
            indexed += checked.map_err(|error| {
                let id = SentId::stored(point.id, &point.row);
                OpError::BadRequest(match error {
                    OpError::Write(WriteError::NotFinite { index, .. }) => {
                        format!("vector: component {index} of id {id} is not a finite number")
                    }
                    error => format!("{array}[{index}] with id {id}: {error}"),
                })
            })? as u64;
            if owned.staged.borrow().ids.contains(&point.id) || !fresh.insert(point.id) {
                return Err(OpError::BadRequest(format!(
                    "id {} is staged twice; nothing of this request was staged",
                    SentId::stored(point.id, &point.row)
                )));
            }
            slice.check().await;
        }
        let count = batch.points.len();
        // What began while this request was checked in slices: a build would not see these points, and empty the stage.
        owned.usable()?;
        owned.takes_staging(name, count)?;
        let mut staged = owned.staged.borrow_mut();
        // Another request may have staged the same id while this one was being checked in slices.
        let is_again = |point: &&PointFields| staged.ids.contains(&point.id);
        if let Some(point) = batch.points.iter().find(is_again) {
            let id = SentId::stored(point.id, &point.row);
            return Err(OpError::BadRequest(format!(
                "id {id} is staged twice; nothing of this request was staged"
            )));
        }
        staged.ids.extend(fresh);
        staged.bytes += staged_bytes(&batch);
        staged.vectors += indexed;
        staged.tokens += tokens;
        staged.batches.push(Rc::new(batch));
        Ok(count)
    }

    /// Checks one document that is to be staged, and returns how many points its index will have for it. The vectors of the document move into its
    /// row, where each token has the number 0 until the build gives it another. This is done in slices, between which other tasks run.
    async fn stage_document(
        &self,
        owned: &Owned,
        index: &TokenIndex,
        point: &mut PointFields,
        vectors: NamedVectors,
    ) -> Result<usize, OpError> {
        check_row(&point.row, &owned.handle)?;
        let count = vectors.tokens.len();
        point.row = self.document_row(index, point, vectors).await?;
        Ok(index.indexing().points(count))
    }

    /// Frees what was built, in slices: a point of named spaces has several allocations.
    pub(super) async fn free_staged(&self, staged: Staged) {
        let mut slice = Slice::begin(self.env());
        for batch in staged.batches {
            let Ok(WriteBatch { vectors, points, .. }) = Rc::try_unwrap(batch) else { continue };
            if let Vectors::Named(all) = vectors {
                for vectors in all {
                    drop(vectors);
                    slice.check().await;
                }
            }
            for point in points {
                drop(point);
                slice.check().await;
            }
        }
    }
}
