//! Spaces come and go while a collection of named spaces serves. The owner's thread.
//!
//! What readers hold is never changed: there is another [`Dense`] with the same points and the spaces that stay. A space that is dropped
//! leaves its number behind, since logs and images know spaces by their numbers. What these say of the number is skipped from then on.
use super::{Arc, Dense, DenseWriter, SpaceWriter};
use crate::collection::named_config::{NamedConfig, SpaceNumber};
use crate::collection::points::{DroppedSparseSpace, PointsWriter};
use crate::collection::space::reserve_vectors;
use crate::memory::ArenaError;

/// Dead slots of dropped spaces that one reclamation hands over, some 50 ns each.
const LEAVING_PER_RECLAIM: usize = 4096;

/// A space without vectors, as `config` has the one of that number.
pub(super) fn make_space(
    config: &NamedConfig,
    number: usize,
    points: &PointsWriter,
) -> Result<SpaceWriter, ArenaError> {
    let space = &config.spaces[number];
    if space.is_dropped {
        return SpaceWriter::dropped(points, number);
    }
    let vectors = reserve_vectors(&space.config, points.slots_max(), None)?;
    SpaceWriter::create(space.config.clone(), vectors, points, Some(number))
}

/// What readers find of these points and spaces.
pub(super) fn view_of(points: &PointsWriter, spaces: &[SpaceWriter], is_named: bool) -> Dense {
    Dense {
        points: points.shared().clone(),
        spaces: spaces.iter().map(|space| space.shared().clone()).collect(),
        sparse_spaces: points.sparse_spaces().cloned().collect(),
        is_named,
    }
}

/// An empty space that is to be added, or the placeholder that keeps the number of a space that is to be dropped.
pub struct NewSpace(New);

enum New {
    Dense(usize, Box<SpaceWriter>),
    Sparse(usize),
}

/// A space that was dropped, with its vectors: to be kept until no reader has a view of it.
pub struct DroppedSpace(Dropped);

enum Dropped {
    Dense { _space: Box<SpaceWriter> },
    Sparse { _space: DroppedSparseSpace },
}

const _: () = {
    const fn owned<T: Send>() {}
    owned::<DroppedSpace>();
};

impl DroppedSpace {
    /// Whether the space was a dense one.
    pub fn is_dense(&self) -> bool {
        matches!(self.0, Dropped::Dense { .. })
    }
}

impl DenseWriter {
    /// Makes what [`Self::set_space`] puts in place: a space without vectors, as `config` has the one of that number. Reserves address space
    /// only.
    ///
    /// # Errors
    /// The kernel refuses a reservation.
    ///
    /// # Panics
    /// When there is no space of that number in `config`.
    pub fn new_space(&self, config: &NamedConfig, number: SpaceNumber) -> Result<NewSpace, ArenaError> {
        Ok(NewSpace(match number {
            SpaceNumber::Dense(number) => {
                New::Dense(number, Box::new(make_space(config, number, &self.points)?))
            }
            SpaceNumber::Sparse(number) => {
                assert!(number < config.sparse_spaces.len(), "there is a space of that number");
                New::Sparse(number)
            }
        }))
    }

    /// Bytes that a new space counts for: what a dense space has for each slot that is in use, whether its point will get a vector or not. A
    /// sparse space without vectors takes nothing.
    pub fn bytes_of_space(&self, space: &NewSpace) -> u64 {
        match &space.0 {
            New::Dense(_, space) => self.points.high_water() as u64 * space.shared().bytes_per_slot(),
            New::Sparse(_) => 0,
        }
    }

    /// Adds `space`, which [`Self::new_space`] made from the same `config`, to the spaces of the collection, or puts it in place of the space
    /// that is dropped. The dropped space is returned, and has to be kept until no reader has a view of it. [`Self::shared`] returns another
    /// view afterwards.
    ///
    /// Costs a look at each point in the tail of a dense space that is dropped.
    ///
    /// # Panics
    /// When the collection has no named spaces, a round is open, or images are read or written.
    pub fn set_space(&mut self, config: &NamedConfig, space: NewSpace) -> Option<DroppedSpace> {
        assert!(self.shared.is_named, "spaces come and go where they have names");
        assert!(!self.round_open(), "spaces come and go between rounds");
        assert!(
            self.capture.is_none() && self.restoring.is_none(),
            "images are of the same spaces from end to end"
        );
        let dropped = match space.0 {
            New::Dense(number, space) => self.set_dense_space(number, *space),
            New::Sparse(number) => self.set_sparse_space(number),
        };
        assert_eq!(self.spaces.len(), config.spaces.len(), "each dense space has its place");
        assert_eq!(
            self.points.sparse_spaces().count(),
            config.sparse_spaces.len(),
            "each sparse space has its place"
        );
        self.points.set_quota_bytes_per_point(config.quota_bytes_per_point());
        self.shared = Arc::new(view_of(&self.points, &self.spaces, true));
        self.note_bytes();
        dropped.map(DroppedSpace)
    }

    fn set_dense_space(&mut self, number: usize, space: SpaceWriter) -> Option<Dropped> {
        let Some(place) = self.spaces.get_mut(number) else {
            self.spaces.push(space);
            return None;
        };
        let mut dropped = std::mem::replace(place, space);
        place.shared().inherit_counters(dropped.shared());
        self.leaving.append(&mut dropped.abandon());
        Some(Dropped::Dense { _space: Box::new(dropped) })
    }

    fn set_sparse_space(&mut self, number: usize) -> Option<Dropped> {
        if number == self.points.sparse_spaces().count() {
            self.points.add_sparse_space();
            return None;
        }
        Some(Dropped::Sparse { _space: self.points.drop_sparse_space(number) })
    }

    /// Outside of a round: hands over dead slots that only a dropped space had not let go of, `most` of them at most.
    pub(super) fn leave(&mut self, most: usize) {
        let kept = self.leaving.len().saturating_sub(most);
        if kept < self.leaving.len() {
            self.points.let_go(self.leaving.split_off(kept));
        }
        if self.leaving.is_empty() {
            self.leaving = Vec::new();
        }
    }

    /// As [`Self::leave`], as many as one reclamation takes on.
    pub(super) fn leave_some(&mut self) {
        self.leave(LEAVING_PER_RECLAIM);
    }
}
