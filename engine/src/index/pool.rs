//! The pool of a best-first beam: one sorted array that is both the queue of nodes to expand and the result.
//!
//! Rejected entries (dead, filtered) are walked through but not returned, so they do not count towards `ef`: the
//! pool holds every known entry up to the `ef`-th admitted one. Without rejections that is the usual array of `ef`.
use super::{Neighbor, Slot};

/// Not expanded, admitted.
const OPEN: u32 = 0;
const EXPANDED: u32 = 1;
const REJECTED: u32 = 2;

#[derive(Clone, Copy)]
struct Entry {
    order: u64,
    state: u32,
}

/// See the module docs. Reusable; allocation-free once grown.
#[derive(Default)]
pub(super) struct Pool {
    /// Ascending by order.
    entries: Vec<Entry>,
    /// Everything before it is expanded.
    cursor: usize,
    admitted: usize,
    ef: usize,
    /// Order of the `ef`-th admitted entry: nothing from there on can matter.
    bound: u64,
}

impl Pool {
    /// Empties the pool for a beam of width `ef` (at least 1).
    pub(super) fn reset(&mut self, ef: usize) {
        debug_assert!(ef > 0);
        self.entries.clear();
        self.cursor = 0;
        self.admitted = 0;
        self.ef = ef;
        self.bound = u64::MAX;
    }

    /// Whether an entry with this order would be kept.
    #[inline]
    pub(super) fn wants(&self, order: u64) -> bool {
        order < self.bound
    }

    /// Adds a neighbour that [`Self::wants`]; the caller adds a slot once.
    #[inline]
    pub(super) fn insert(&mut self, order: u64, admitted: bool) {
        let at = self.entries.partition_point(|e| e.order < order);
        self.entries.insert(at, Entry { order, state: if admitted { OPEN } else { REJECTED } });
        self.cursor = self.cursor.min(at);
        if admitted {
            self.admitted += 1;
            if self.admitted >= self.ef {
                self.trim();
            }
        }
    }

    /// Drops what lies beyond the `ef`-th admitted entry and moves the bound there.
    #[inline]
    fn trim(&mut self) {
        while let Some(last) = self.entries.last() {
            if last.state & REJECTED == 0 {
                if self.admitted == self.ef {
                    self.bound = last.order;
                    return;
                }
                self.admitted -= 1;
            }
            self.entries.pop();
        }
    }

    /// The nearest entry that was not expanded yet, marked expanded.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Slot> {
        while let Some(entry) = self.entries.get_mut(self.cursor) {
            self.cursor += 1;
            if entry.state & EXPANDED == 0 {
                entry.state |= EXPANDED;
                return Some(entry.order as Slot);
            }
        }
        None
    }

    /// The admitted entries, nearest first.
    pub(super) fn admitted(&self) -> impl Iterator<Item = Neighbor> {
        self.entries.iter().filter(|e| e.state & REJECTED == 0).map(|e| Neighbor::from_order(e.order))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a map of everything ever offered: the pool returns its `ef` least admitted entries, and every
        /// entry up to the last of them is popped once.
        #[test]
        fn behaves_as_a_sorted_map_cut_at_the_ef_th_admitted(
            ef in 1usize..8,
            ops in prop::collection::vec((any::<u16>(), 0u8..5), 0..80),
        ) {
            let mut pool = Pool::default();
            pool.reset(ef);
            let mut model: BTreeMap<u64, (bool, bool)> = BTreeMap::new();
            for (order, op) in ops {
                let order = u64::from(order);
                let bound = model.iter().filter(|(_, e)| e.0).nth(ef - 1).map(|(&o, _)| o);
                let known = model.contains_key(&order);
                if op == 0 {
                    let next = model.iter().find(|(_, e)| !e.1).map(|(&o, _)| o);
                    let next = next.filter(|&o| bound.is_none_or(|b| o <= b));
                    prop_assert_eq!(pool.pop(), next.map(|o| o as Slot));
                    next.and_then(|o| model.get_mut(&o)).into_iter().for_each(|e| e.1 = true);
                } else if !known {
                    prop_assert_eq!(pool.wants(order), bound.is_none_or(|b| order < b));
                    if pool.wants(order) {
                        pool.insert(order, op < 4);
                        model.insert(order, (op < 4, false));
                    }
                }
                let expected: Vec<u64> = model.iter().filter(|(_, e)| e.0).map(|(&o, _)| o).take(ef).collect();
                let got: Vec<u64> = pool.admitted().map(|n| u64::from(n.slot)).collect();
                prop_assert_eq!(got, expected);
            }
        }
    }
}
