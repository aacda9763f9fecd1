//! The pool of a best-first beam: what it has found, and the queue of nodes to expand.
//!
//! Rejected entries (dead, filtered) are walked through but not returned, so they do not count towards `ef`: the
//! pool knows every entry up to the `ef`-th that counts. Admitted ones are a sorted array, which at this size beats
//! two heaps. Rejected ones may be a hundred times as many (a walk through a deleted cluster), so they wait in a heap.
//!
//! Copies of a vector lead to the same places, and sixty of them would leave a beam of 64 no room for a second vector. So only the
//! first [`COPIES_MAX`] of entries that are equal count and have their turn. Others are *spare*: they stay while they are among the `ef`
//! nearest, as results, and are expanded when nothing else is left to do, as are rejected ones that were *put off*: what only
//! they lead to is more copies, as a rule. Whoever looks for different vectors has none of that.
use super::{Neighbor, Slot};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How many copies of a vector count, in a beam and among the candidates of a plan. A second one makes up for a first whose edges
/// lead to copies only (it holds them in the tree).
const COPIES_MAX: u32 = 2;

#[derive(Clone, Copy)]
struct Entry {
    order: u64,
    /// Tells it from others at the same distance; 0 = not known yet, or not to be known.
    print: u32,
    expanded: bool,
    /// Does not count.
    spare: bool,
}

/// What an order says of the distance.
#[inline]
fn distance_bits(order: u64) -> u32 {
    (order >> 32) as u32
}

/// Counts what is equal among slots at one distance.
#[derive(Default)]
pub(super) struct Copies(Vec<(u32, u32)>);

impl Copies {
    /// None so far.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// One more of this print; false when it is one too many. A print of 0 says nothing.
    pub(super) fn add(&mut self, print: u32) -> bool {
        if print == 0 {
            return true;
        }
        match self.0.iter_mut().find(|(other, _)| *other == print) {
            Some((_, count)) => {
                *count += 1;
                *count <= COPIES_MAX
            }
            None => {
                self.0.push((print, 1));
                true
            }
        }
    }
}

/// Rejected entries that came one after the other at one distance.
#[derive(Default)]
struct Run {
    distance: Option<u32>,
    /// The first of them, while it is alone.
    alone: Option<Slot>,
    copies: Copies,
}

impl Run {
    /// One more; false when it is one too many of its print.
    fn add(&mut self, order: u64, print: &impl Fn(Slot) -> u32) -> bool {
        let distance = distance_bits(order);
        if self.distance != Some(distance) {
            self.distance = Some(distance);
            self.alone = Some(order as Slot);
            self.copies.clear();
            return true;
        }
        if let Some(first) = self.alone.take() {
            self.copies.add(print(first));
        }
        self.copies.add(print(order as Slot))
    }
}

/// See the module docs. Reusable; allocation-free once grown.
#[derive(Default)]
pub(super) struct Pool {
    /// Admitted, ascending by order: at most `ef` that count, and no spare one after the first `ef`.
    entries: Vec<Entry>,
    /// Spare ones among them.
    spare: usize,
    /// Everything before it is expanded or spare.
    cursor: usize,
    /// Everything before it is expanded.
    spare_cursor: usize,
    /// Rejected and not expanded.
    rejected: BinaryHeap<Reverse<u64>>,
    /// Of these, those put off.
    put_off: BinaryHeap<Reverse<u64>>,
    run: Run,
    ef: usize,
    /// So many of the nearest are to be found, copies or not.
    wanted: usize,
    /// Order of the `ef`-th entry that counts: nothing from there on can matter.
    bound: u64,
}

impl Pool {
    /// Empties the pool for a beam of width `ef` (at least 1) that also sees to it that the `wanted` nearest (at most `ef`) are
    /// found, although they are copies of one vector.
    pub(super) fn reset(&mut self, ef: usize, wanted: usize) {
        debug_assert!(ef > 0 && wanted <= ef);
        self.entries.clear();
        self.spare = 0;
        self.cursor = 0;
        self.spare_cursor = 0;
        self.rejected.clear();
        self.put_off.clear();
        self.run.distance = None;
        self.ef = ef;
        self.wanted = wanted;
        self.bound = u64::MAX;
    }

    /// Whether an entry with this order would be kept.
    #[inline]
    pub(super) fn wants(&self, order: u64) -> bool {
        order < self.bound
    }

    /// Adds a neighbour that [`Self::wants`]; the caller adds a slot once. `print` is the same for equal ones, 0 where that cannot be
    /// said. Its cost counts only where distances are equal.
    #[inline]
    pub(super) fn insert(&mut self, order: u64, admitted: bool, print: &impl Fn(Slot) -> u32) {
        if !admitted {
            self.rejected.push(Reverse(order));
            return;
        }
        let at = self.entries.partition_point(|e| e.order < order);
        let mut entry = Entry { order, print: 0, expanded: false, spare: false };
        let mut displaced = None;
        if self.is_at(at, order) || at > 0 && self.is_at(at - 1, order) {
            displaced = self.number(at, &mut entry, print);
        }
        self.entries.insert(at, entry);
        self.spare += usize::from(entry.spare);
        self.cursor = self.cursor.min(at);
        self.spare_cursor = self.spare_cursor.min(at);
        if self.entries.len() > self.ef {
            self.cut(displaced);
        }
        if self.entries.len() - self.spare == self.ef {
            self.bound = self.entries[self.entries.len() - 1].order;
        }
    }

    /// Whether the entry there is as far as that.
    #[inline]
    fn is_at(&self, at: usize, order: u64) -> bool {
        self.entries.get(at).is_some_and(|entry| distance_bits(entry.order) == distance_bits(order))
    }

    /// Says whether an entry to come at `at` is spare; returns where one is that becomes spare in its place.
    #[cold]
    fn number(&mut self, at: usize, entry: &mut Entry, print: &impl Fn(Slot) -> u32) -> Option<usize> {
        entry.print = print(entry.order as Slot);
        if entry.print == 0 {
            return None;
        }
        let distance = distance_bits(entry.order);
        let from = self.entries[..at].partition_point(|e| distance_bits(e.order) < distance);
        let (mut copies, mut last) = (0, None);
        for (index, other) in self.entries.iter_mut().enumerate().skip(from) {
            if distance_bits(other.order) != distance || copies == COPIES_MAX {
                break;
            }
            if other.print == 0 {
                other.print = print(other.order as Slot);
            }
            if other.print == entry.print {
                copies += 1;
                last = Some(index);
            }
        }
        if copies < COPIES_MAX {
            return None;
        }
        let last = last.filter(|&last| last >= at);
        match last {
            Some(last) => {
                self.entries[last].spare = true;
                self.spare += 1;
            }
            None => entry.spare = true,
        }
        last
    }

    /// Takes out what an insert has left over. It has moved one entry out of the first `ef` at most, made that at `displaced`
    /// spare, which is one further by now, and added one that counts at most.
    fn cut(&mut self, displaced: Option<usize>) {
        if let Some(displaced) = displaced.map(|displaced| displaced + 1).filter(|&at| at > self.ef) {
            self.remove(displaced);
        }
        if self.entries.get(self.ef).is_some_and(|entry| entry.spare) {
            self.remove(self.ef);
        }
        if self.entries.len() - self.spare > self.ef {
            self.entries.pop();
        }
    }

    /// Takes out a spare entry.
    fn remove(&mut self, at: usize) {
        self.entries.remove(at);
        self.spare -= 1;
        self.cursor -= usize::from(at < self.cursor);
        self.spare_cursor -= usize::from(at < self.spare_cursor);
    }

    /// The nearest entry that was not expanded yet and counts, marked expanded; when there is none, another without which the nearest
    /// may not be found.
    #[inline]
    pub(super) fn pop(&mut self, print: &impl Fn(Slot) -> u32) -> Option<Slot> {
        while self.entries.get(self.cursor).is_some_and(|entry| entry.expanded || entry.spare) {
            self.cursor += 1;
        }
        let next = self.entries.get(self.cursor).map_or(self.bound, |entry| entry.order);
        while let Some(&Reverse(rejected)) = self.rejected.peek()
            && rejected < next
        {
            self.rejected.pop();
            if self.run.add(rejected, print) {
                return Some(rejected as Slot);
            }
            self.put_off.push(Reverse(rejected));
        }
        let Some(entry) = self.entries.get_mut(self.cursor) else { return self.pop_copy() };
        entry.expanded = true;
        self.cursor += 1;
        Some(entry.order as Slot)
    }

    /// The nearest spare one, or one that was put off, as long as it is among the wanted, or nearer.
    fn pop_copy(&mut self) -> Option<Slot> {
        if self.spare == 0 && self.put_off.is_empty() {
            return None;
        }
        while self.entries.get(self.spare_cursor).is_some_and(|entry| entry.expanded) {
            self.spare_cursor += 1;
        }
        let last = self.entries.get(self.wanted.checked_sub(1)?).map_or(u64::MAX, |entry| entry.order);
        let spare = self.entries.get_mut(self.spare_cursor).filter(|entry| entry.order <= last);
        if let Some(&Reverse(put_off)) = self.put_off.peek()
            && put_off < spare.as_ref().map_or(last, |entry| entry.order)
        {
            self.put_off.pop();
            return Some(put_off as Slot);
        }
        let entry = spare?;
        entry.expanded = true;
        Some(entry.order as Slot)
    }

    /// The `ef` nearest that were admitted, nearest first.
    pub(super) fn admitted(&self) -> impl Iterator<Item = Neighbor> {
        self.entries.iter().take(self.ef).map(|e| Neighbor::from_order(e.order))
    }

    /// These, and those after them that count, nearest first: up to `2 ef`.
    pub(super) fn held(&self) -> impl Iterator<Item = Neighbor> {
        self.entries.iter().map(|e| Neighbor::from_order(e.order))
    }

    /// Those that count, nearest first: `ef`, if so many were found, and of each vector a few.
    pub(super) fn counted(&self) -> impl Iterator<Item = Neighbor> {
        self.entries.iter().filter(|e| !e.spare).map(|e| Neighbor::from_order(e.order))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// What was offered.
    #[derive(Clone, Copy)]
    struct Offered {
        admitted: bool,
        popped: bool,
        put_off: bool,
    }

    /// Few distances, and three prints among the slots at each, of which one says nothing.
    fn order_of(distance: u8, slot: u8) -> u64 {
        u64::from(distance) << 32 | u64::from(slot)
    }

    fn print_of(slot: Slot) -> u32 {
        slot % 3
    }

    /// The entries that a pool holds, and whether each is spare: from the first, those that count, up to the `ef`-th, and spare ones
    /// among the first `ef`.
    fn held(model: &BTreeMap<u64, Offered>, ef: usize) -> Vec<(u64, bool)> {
        let mut held: Vec<(u64, bool)> = Vec::new();
        let mut seen: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        let mut counted = 0;
        for (&order, _) in model.iter().filter(|(_, offered)| offered.admitted) {
            let print = print_of(order as Slot);
            let copies = seen.entry((distance_bits(order), print)).or_default();
            *copies += 1;
            let spare = print != 0 && *copies > COPIES_MAX;
            if !spare || held.len() < ef {
                held.push((order, spare));
            }
            counted += usize::from(!spare);
            if counted == ef {
                break;
            }
        }
        held
    }

    proptest! {
        /// Against a map of everything ever offered: the pool returns its `ef` least admitted entries; those up to the `ef`-th that
        /// counts are popped once in their turn; then copies, up to the last that is wanted.
        #[test]
        fn behaves_as_a_sorted_map_cut_at_the_ef_th_that_counts(
            ef in 1usize..8,
            wanted in 0usize..8,
            distances in 1u8..40,
            ops in prop::collection::vec((0u8..40, 0u8..24, 0u8..6), 0..120),
        ) {
            let wanted = wanted.min(ef);
            let mut pool = Pool::default();
            pool.reset(ef, wanted);
            let mut model: BTreeMap<u64, Offered> = BTreeMap::new();
            let (mut run, mut run_at) = (BTreeMap::<u32, u32>::new(), None);
            for (distance, slot, op) in ops {
                let order = order_of(distance % distances, slot);
                let before = held(&model, ef);
                let counted = before.iter().filter(|(_, spare)| !spare).count();
                let bound = before.last().filter(|_| counted == ef).map_or(u64::MAX, |&(order, _)| order);
                if op < 2 {
                    let mut expected = None;
                    while expected.is_none() {
                        let open = |order: u64| !model[&order].popped;
                        let entry = before.iter().find(|&&(order, spare)| !spare && open(order)).map(|&(order, _)| order);
                        let rejected = model.iter().find(|(_, o)| !o.admitted && !o.popped && !o.put_off).map(|(&o, _)| o);
                        if let Some(rejected) = rejected.filter(|&r| r < entry.unwrap_or(bound)) {
                            if run_at != Some(distance_bits(rejected)) {
                                run.clear();
                                run_at = Some(distance_bits(rejected));
                            }
                            let print = print_of(rejected as Slot);
                            let copies = run.entry(print).or_default();
                            *copies += 1;
                            if print == 0 || *copies <= COPIES_MAX {
                                expected = Some(rejected);
                            } else if let Some(offered) = model.get_mut(&rejected) {
                                offered.put_off = true;
                            }
                            continue;
                        }
                        let last = match wanted {
                            0 => 0,
                            wanted => before.get(wanted - 1).map_or(u64::MAX, |&(order, _)| order),
                        };
                        let spare = before.iter().map(|&(order, _)| order).find(|&order| open(order) && order <= last);
                        let put_off = model.iter().find(|(_, o)| o.put_off && !o.popped).map(|(&o, _)| o);
                        let put_off = put_off.filter(|&o| o < last);
                        expected = entry.or_else(|| spare.into_iter().chain(put_off).min());
                        if expected.is_none() {
                            break;
                        }
                    }
                    prop_assert_eq!(pool.pop(&print_of), expected.map(|order| order as Slot));
                    expected.and_then(|order| model.get_mut(&order)).into_iter().for_each(|o| o.popped = true);
                } else if !model.contains_key(&order) {
                    prop_assert_eq!(pool.wants(order), order < bound);
                    if pool.wants(order) {
                        let admitted = op < 5;
                        pool.insert(order, admitted, &print_of);
                        model.insert(order, Offered { admitted, popped: false, put_off: false });
                    }
                }
                let after = held(&model, ef);
                let orders = |found: &mut dyn Iterator<Item = Neighbor>| found.map(|n| n.slot).collect::<Vec<_>>();
                let expected: Vec<Slot> = after.iter().take(ef).map(|&(order, _)| order as Slot).collect();
                prop_assert_eq!(orders(&mut pool.admitted()), expected);
                let expected: Vec<Slot> = after.iter().map(|&(order, _)| order as Slot).collect();
                prop_assert_eq!(orders(&mut pool.held()), expected);
                let expected: Vec<Slot> = after.iter().filter(|(_, spare)| !spare).map(|&(order, _)| order as Slot).collect();
                prop_assert_eq!(orders(&mut pool.counted()), expected);
            }
        }
    }
}
