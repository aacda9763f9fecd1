//! The k best of a stream.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The order of results: the best is the least, and no two of them are equal.
pub(crate) trait Rank {
    /// How one stands to another.
    fn rank(&self, other: &Self) -> Ordering;
}

struct Ranked<T>(T);

impl<T: Rank> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.rank(&other.0)
    }
}
impl<T: Rank> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T: Rank> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl<T: Rank> Eq for Ranked<T> {}

/// Keeps the `k` best of all hits offered.
pub(crate) struct TopK<T> {
    k: usize,
    worst_first: BinaryHeap<Ranked<T>>,
}

impl<T: Rank> TopK<T> {
    pub fn new(k: usize) -> Self {
        TopK { k, worst_first: BinaryHeap::new() }
    }

    /// What a further hit has to beat: the worst of `k`, `None` while there are fewer.
    #[inline]
    pub fn to_beat(&self) -> Option<&T> {
        self.worst_first.peek().filter(|_| self.worst_first.len() == self.k).map(|worst| &worst.0)
    }

    /// Takes a hit that is among the best.
    pub fn offer(&mut self, hit: T) {
        if self.worst_first.len() < self.k {
            self.worst_first.push(Ranked(hit));
        } else if let Some(mut worst) = self.worst_first.peek_mut()
            && hit.rank(&worst.0).is_lt()
        {
            worst.0 = hit;
        }
    }

    /// The hits kept, in no particular order.
    pub fn into_hits(self) -> impl Iterator<Item = T> {
        self.worst_first.into_iter().map(|ranked| ranked.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collection::Hit;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keeps_what_sorting_everything_keeps(
            distances in proptest::collection::vec(
                prop_oneof![Just(0.0f32), Just(-0.0), Just(1.0), Just(f32::NAN), Just(f32::INFINITY), -2.0f32..2.0],
                0..60,
            ),
            k in 0usize..20,
        ) {
            let hits: Vec<Hit> = distances.iter().enumerate()
                .map(|(i, &distance)| Hit { id: (i as u64 * 7919) % 61, distance, slot: i as u32 }).collect();
            let mut top = TopK::new(k);
            for &hit in &hits {
                prop_assert!(top.to_beat().is_none_or(|_| k > 0));
                if k > 0 && top.to_beat().is_none_or(|worst| hit.rank(worst).is_lt()) {
                    top.offer(hit);
                }
            }
            let mut found: Vec<Hit> = top.into_hits().collect();
            found.sort_by(Rank::rank);
            let mut all = hits;
            all.sort_by(Rank::rank);
            all.truncate(k);
            prop_assert_eq!(found.iter().map(|h| h.id).collect::<Vec<_>>(), all.iter().map(|h| h.id).collect::<Vec<_>>());
        }
    }
}
