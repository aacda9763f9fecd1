//! The k nearest of a stream, ties by id.
use super::Hit;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Nearest first, ties by ascending id, NaN after every number (+Inf included). Zeros of both signs are equal.
pub(super) fn by_distance_then_id(a: &Hit, b: &Hit) -> Ordering {
    a.distance
        .partial_cmp(&b.distance)
        .unwrap_or_else(|| a.distance.is_nan().cmp(&b.distance.is_nan()))
        .then(a.id.cmp(&b.id))
}

struct Ranked(Hit);
impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        by_distance_then_id(&self.0, &other.0)
    }
}
impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Ranked {}

/// Keeps the `k` first of all hits offered.
pub(super) struct TopK {
    k: usize,
    worst_first: BinaryHeap<Ranked>,
}

impl TopK {
    pub fn new(k: usize) -> TopK {
        TopK { k, worst_first: BinaryHeap::new() }
    }

    /// Whether a hit at this distance could still enter: spares the caller the look-up of its id.
    #[inline]
    pub fn admits(&self, distance: f32) -> bool {
        let Some(worst) = self.worst_first.peek() else { return self.k > 0 };
        // Equal goes on to the comparison by id, and so does what cannot be compared (NaN).
        self.worst_first.len() < self.k || distance.partial_cmp(&worst.0.distance) != Some(Ordering::Greater)
    }

    pub fn offer(&mut self, hit: Hit) {
        if self.worst_first.len() < self.k {
            self.worst_first.push(Ranked(hit));
        } else if let Some(mut worst) = self.worst_first.peek_mut()
            && by_distance_then_id(&hit, &worst.0).is_lt()
        {
            worst.0 = hit;
        }
    }

    /// Appends the hits kept, in no particular order.
    pub fn append_to(self, out: &mut Vec<Hit>) {
        out.extend(self.worst_first.into_iter().map(|ranked| ranked.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
                if top.admits(hit.distance) {
                    top.offer(hit);
                }
            }
            let mut found = Vec::new();
            top.append_to(&mut found);
            found.sort_by(by_distance_then_id);
            let mut all = hits;
            all.sort_by(by_distance_then_id);
            all.truncate(k);
            prop_assert_eq!(found.iter().map(|h| h.id).collect::<Vec<_>>(), all.iter().map(|h| h.id).collect::<Vec<_>>());
        }
    }
}
