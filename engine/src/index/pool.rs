//! The pool of a best-first beam: what it has found, and the queue of nodes to expand.
//!
//! Rejected entries (dead, filtered) are walked through but not returned, so they do not count towards `ef`: the
//! pool knows every entry up to the `ef`-th admitted one. Admitted ones are a sorted array of `ef`, which at this size beats
//! two heaps. Rejected ones may be a hundred times as many (a walk through a deleted cluster), so they wait in a heap.
use super::{Neighbor, Slot};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Clone, Copy)]
struct Entry {
    order: u64,
    expanded: bool,
}

/// See the module docs. Reusable; allocation-free once grown.
#[derive(Default)]
pub(super) struct Pool {
    /// Admitted, ascending by order, at most `ef`.
    entries: Vec<Entry>,
    /// Everything before it is expanded.
    cursor: usize,
    /// Rejected and not expanded.
    rejected: BinaryHeap<Reverse<u64>>,
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
        self.rejected.clear();
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
        if !admitted {
            self.rejected.push(Reverse(order));
            return;
        }
        let at = self.entries.partition_point(|e| e.order < order);
        self.entries.insert(at, Entry { order, expanded: false });
        self.cursor = self.cursor.min(at);
        self.entries.truncate(self.ef);
        if self.entries.len() == self.ef {
            self.bound = self.entries[self.ef - 1].order;
        }
    }

    /// The nearest entry that was not expanded yet, marked expanded.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Slot> {
        while self.entries.get(self.cursor).is_some_and(|entry| entry.expanded) {
            self.cursor += 1;
        }
        let open = self.entries.get_mut(self.cursor);
        if let Some(&Reverse(rejected)) = self.rejected.peek()
            && rejected < open.as_ref().map_or(self.bound, |entry| entry.order)
        {
            self.rejected.pop();
            return Some(rejected as Slot);
        }
        let entry = open?;
        entry.expanded = true;
        self.cursor += 1;
        Some(entry.order as Slot)
    }

    /// The admitted entries, nearest first.
    pub(super) fn admitted(&self) -> impl Iterator<Item = Neighbor> {
        self.entries.iter().map(|e| Neighbor::from_order(e.order))
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
