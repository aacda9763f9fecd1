//! The order of hits by distance.
use super::Hit;
use crate::top_k::Rank;
use std::cmp::Ordering;

/// Nearest first, ties by ascending id, NaN after every number (+Inf included). Zeros of both signs are equal.
pub(super) fn by_distance_then_id(a: &Hit, b: &Hit) -> Ordering {
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
