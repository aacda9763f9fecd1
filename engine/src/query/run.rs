//! What a query is carried out with: one collection, one pin, one time.

use super::document_index::{DocumentIndex, Probes};
use super::lane_query::LaneError;
use super::options::Effort;
use crate::collection::{Dense, Space};
use crate::distance::{padded, prepare};
use crate::memory::Pin;
use crate::point_id::SentId;

/// A vector as the collection stores them: normalised under cosine, padded.
pub(super) type Stored = Vec<f32>;

/// The points that a query is about.
#[derive(Clone, Copy)]
pub struct Searched<'a> {
    /// The points and their spaces; in a multi-vector collection the points are documents.
    pub dense: &'a Dense,
    /// The index that finds the documents of a multi-vector collection; `None` in other families. The id and version of each of its points encode a
    /// document ([`document_of`](super::document_of)).
    pub index: Option<DocumentIndex<'a>>,
}

impl<'a> From<&'a Dense> for Searched<'a> {
    fn from(dense: &'a Dense) -> Searched<'a> {
        Searched { dense, index: None }
    }
}

/// What a query is carried out with.
pub(super) struct Run<'a> {
    pub dense: &'a Dense,
    pub index: Option<DocumentIndex<'a>>,
    pub pin: &'a Pin<'a>,
    pub now_ms: u64,
    pub effort: Effort,
}

impl<'a> Run<'a> {
    /// The beam width that the query asks for; 0 stands for that of the collection.
    pub(super) fn beam(&self) -> usize {
        match self.effort {
            Effort::Beam(ef) => ef,
            Effort::Configured | Effort::Exact => 0,
        }
    }

    /// The beam width of a search for `wanted` points of the index: what the query asks for, but at least `wanted` if the query sets a number of
    /// candidates; 0 stands for that of the collection.
    pub(super) fn probe_beam(&self, probes: &Probes<'_>, wanted: usize) -> usize {
        let least = if probes.is_given { wanted } else { 0 };
        self.beam().max(least)
    }

    /// Whether everything is to be compared.
    pub(super) fn is_exact(&self) -> bool {
        self.effort == Effort::Exact
    }

    /// The index that finds documents.
    ///
    /// # Errors
    /// [`LaneError::NoTokens`] in collections of other families.
    pub(super) fn document_index(&self) -> Result<DocumentIndex<'a>, LaneError> {
        self.index.ok_or(LaneError::NoTokens)
    }

    /// The dense space of that number.
    pub(super) fn space(&self, number: usize) -> &'a Space {
        &self.dense.spaces()[number]
    }

    /// The stored vector of a live point in a space; `None` when it lacks one.
    pub(super) fn stored(&self, space: usize, id: u64) -> Option<Stored> {
        let slot = self.dense.points().find(self.pin, id, self.now_ms)?;
        let vector = self.dense.vector(self.pin, slot, space)?;
        let mut stored = vec![0.0; padded(vector.len())];
        stored[..vector.len()].copy_from_slice(&vector);
        Some(stored)
    }

    /// Why there is no stored vector of an example.
    pub(super) fn lacks(&self, id: SentId) -> LaneError {
        match self.dense.points().find(self.pin, id.number(), self.now_ms) {
            Some(_) => LaneError::ExampleLacksVector(id),
            None => LaneError::UnknownExample(id),
        }
    }

    /// A vector sent along, as it would be stored in a space.
    ///
    /// # Errors
    /// Wrong length, or a component that is not finite.
    pub(super) fn prepared(&self, space: usize, vector: &[f32]) -> Result<Stored, LaneError> {
        let space = self.space(space);
        let config = space.config();
        space.check_query(vector)?;
        let mut prepared = vec![0.0; padded(config.dim)];
        prepare(config.metric, vector, &mut prepared);
        Ok(prepared)
    }
}
