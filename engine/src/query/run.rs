//! What a query is carried out with: one collection, one pin, one time.

use super::lane_query::LaneError;
use crate::collection::Dense;
use crate::distance::{padded, prepare};
use crate::memory::Pin;

/// A vector as the collection stores them: normalised under cosine, padded.
pub(super) type Stored = Vec<f32>;

/// What a query is carried out with.
pub(super) struct Run<'a> {
    pub dense: &'a Dense,
    pub pin: &'a Pin<'a>,
    pub now_ms: u64,
}

impl Run<'_> {
    /// The stored vector of a live point.
    pub(super) fn stored(&self, id: u64) -> Option<Stored> {
        let point = self.dense.get(self.pin, id, self.now_ms)?;
        let mut stored = vec![0.0; padded(point.vector.len())];
        stored[..point.vector.len()].copy_from_slice(&point.vector);
        Some(stored)
    }

    /// A vector sent along, as it would be stored.
    ///
    /// # Errors
    /// Wrong length, or a component that is not finite.
    pub(super) fn prepared(&self, vector: &[f32]) -> Result<Stored, LaneError> {
        let config = self.dense.config();
        self.dense.space().check_query(vector)?;
        let mut prepared = vec![0.0; padded(config.dim)];
        prepare(config.metric, vector, &mut prepared);
        Ok(prepared)
    }
}
