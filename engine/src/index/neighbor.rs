//! A found slot and the one order of results.
use std::cmp::Ordering;

use crate::slot::Slot;

/// A found slot. Ordered by distance, then slot; a NaN distance comes after every number, and -0 equals 0.
#[derive(Clone, Copy, Debug)]
pub struct Neighbor {
    /// Distance to the query, smaller is closer.
    pub distance: f32,
    /// The slot.
    pub slot: Slot,
}

impl Neighbor {
    /// An integer that orders as the neighbour does: distance in the upper half, slot in the lower.
    #[inline]
    pub fn order(self) -> u64 {
        u64::from(order_of(self.distance)) << 32 | u64::from(self.slot)
    }

    /// Whether the two are at the same distance. Nothing is as far as a NaN.
    #[inline]
    pub(super) fn is_as_far_as(self, other: Neighbor) -> bool {
        self.distance == other.distance
    }

    /// The neighbour of an [`Self::order`] (a NaN comes back as the canonical one).
    #[inline]
    pub(super) fn from_order(order: u64) -> Neighbor {
        Neighbor { distance: distance_of((order >> 32) as u32), slot: order as u32 }
    }
}

/// Sorts neighbours by way of their orders, which costs a third of comparing them as they are: an order is made once for each and not for each
/// comparison. `orders` is memory to work in.
pub(super) fn sort(neighbors: &mut [Neighbor], orders: &mut Vec<u64>) {
    orders.clear();
    orders.extend(neighbors.iter().map(|near| near.order()));
    orders.sort_unstable();
    neighbors.iter_mut().zip(orders).for_each(|(near, order)| *near = Neighbor::from_order(*order));
}

/// Floats compare like sign and magnitude; flipping the bits of negatives, and the sign of the others, makes them
/// compare like unsigned integers.
#[inline]
fn order_of(distance: f32) -> u32 {
    if distance.is_nan() {
        return u32::MAX;
    }
    // Adding zero turns -0 into 0.
    let bits = (distance + 0.0).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

#[inline]
fn distance_of(order: u32) -> f32 {
    if order == u32::MAX {
        return f32::NAN;
    }
    f32::from_bits(if order >> 31 == 1 { order & !(1 << 31) } else { !order })
}

impl PartialEq for Neighbor {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Neighbor {}

impl PartialOrd for Neighbor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Neighbor {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_order_as_numbers_with_nan_last_and_ties_by_slot() {
        let sorted = [f32::NEG_INFINITY, -2.0, -1e-40, 0.0, 1e-40, 1.0, f32::MAX, f32::INFINITY, f32::NAN];
        for pair in sorted.windows(2) {
            let at = |distance| Neighbor { distance, slot: 3 };
            assert!(at(pair[0]) < at(pair[1]), "{pair:?}");
        }
        assert_eq!(Neighbor { distance: -0.0, slot: 1 }, Neighbor { distance: 0.0, slot: 1 });
        assert_eq!(Neighbor { distance: -f32::NAN, slot: 1 }, Neighbor { distance: f32::NAN, slot: 1 });
        assert!(Neighbor { distance: 1.0, slot: 4 } < Neighbor { distance: 1.0, slot: 5 });
        for distance in sorted {
            let back = Neighbor::from_order(Neighbor { distance, slot: 9 }.order());
            assert_eq!((back.slot, back.distance.to_bits()), (9, distance.to_bits()));
        }
    }
}
