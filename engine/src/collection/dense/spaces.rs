//! Spaces come and go while a collection of named spaces serves. The owner's thread.
//!
//! What readers hold is never changed: there is another [`Dense`] with the same points and the spaces that stay. A space that is dropped
//! leaves its number behind, since logs and images know spaces by their numbers. What these say of the number is skipped from then on.
use super::{Arc, Dense, DenseWriter, SpaceWriter};
use crate::collection::named_config::NamedConfig;
use crate::collection::points::PointsWriter;
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

impl DenseWriter {
    /// Makes what [`Self::set_space`] puts in place: a space without vectors, as `config` has the one of that number. Reserves address space
    /// only.
    ///
    /// # Errors
    /// The kernel refuses a reservation.
    ///
    /// # Panics
    /// When there is no space of that number in `config`.
    pub fn new_space(&self, config: &NamedConfig, number: usize) -> Result<SpaceWriter, ArenaError> {
        make_space(config, number, &self.points)
    }

    /// Bytes that a new space counts for: what there is for each slot that is in use, whether its point will get a vector or not.
    pub fn bytes_of_space(&self, space: &SpaceWriter) -> u64 {
        self.points.high_water() as u64 * space.shared().bytes_per_slot()
    }

    /// Adds `space`, which [`Self::new_space`] made with the same arguments, to the spaces of the collection, or puts it in place of the space
    /// that is dropped. The dropped space is returned, and has to be kept until no reader has a view of it. [`Self::shared`] returns another
    /// view afterwards.
    ///
    /// Costs a look at each point in the tail of a space that is dropped.
    ///
    /// # Panics
    /// When the collection has no named spaces, a round is open, or images are read or written.
    pub fn set_space(
        &mut self,
        config: &NamedConfig,
        number: usize,
        space: SpaceWriter,
    ) -> Option<SpaceWriter> {
        assert!(self.shared.is_named, "spaces come and go where they have names");
        assert!(!self.round_open(), "spaces come and go between rounds");
        assert!(
            self.capture.is_none() && self.restoring.is_none(),
            "images are of the same spaces from end to end"
        );
        let replaced = match self.spaces.get_mut(number) {
            Some(place) => {
                let mut replaced = std::mem::replace(place, space);
                place.shared().inherit_counters(replaced.shared());
                self.leaving.append(&mut replaced.abandon());
                Some(replaced)
            }
            None => {
                self.spaces.push(space);
                None
            }
        };
        assert_eq!(self.spaces.len(), config.spaces.len(), "each space has its place");
        self.points.set_quota_bytes_per_point(config.quota_bytes_per_point());
        self.shared = Arc::new(Dense {
            points: self.points.shared().clone(),
            spaces: self.spaces.iter().map(|space| space.shared().clone()).collect(),
            is_named: true,
        });
        self.note_bytes();
        replaced
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
