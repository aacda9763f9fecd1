//! A hit of a search by vector, and the order of hits.
use crate::slot::Slot;
use crate::top_k::Rank;
use std::cmp::Ordering;

/// A result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Point id.
    pub id: u64,
    /// Distance; ties ordered by id.
    pub distance: f32,
    /// Slot, valid while the pin under which it was found lives.
    pub slot: Slot,
}

/// Nearest first, ties by ascending id, NaN after every number (+Inf included). Zeros of both signs are equal.
pub(crate) fn by_distance_then_id(a: &Hit, b: &Hit) -> Ordering {
    a.distance
        .partial_cmp(&b.distance)
        .unwrap_or_else(|| a.distance.is_nan().cmp(&b.distance.is_nan()))
        .then(a.id.cmp(&b.id))
}

impl Rank for Hit {
    fn rank(&self, other: &Hit) -> Ordering {
        by_distance_then_id(self, other)
    }
}
