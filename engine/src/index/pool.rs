//! The pool of a best-first beam: what it has found, and the queue of nodes to expand.
//!
//! Rejected entries (dead, filtered) are walked through but not returned, so they do not count towards `ef`: the
//! pool knows every entry up to the `ef`-th that counts. Admitted ones are a sorted array, which at this size beats
//! two heaps. Rejected ones may be a hundred times as many (a walk through a deleted cluster), so they wait in a heap.
//!
//! Copies of a vector lead to the same places, and sixty of them would leave a beam of 64 no room for a second vector. So of equal
//! entries only the first [`COPIES_MAX`] count towards `ef` and are expanded in their turn. The others are *spare*: they stay as
//! results while they are among the `ef` nearest, and are expanded when nothing else is left to expand, as what only they lead to is
//! mostly more copies. Rejected copies beyond the first few are *put off* in the same way. Which entries are equal is told by
//! fingerprints of their vectors, which are asked for only where two entries are at the same distance.
use super::Neighbor;
use crate::slot::Slot;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How many copies of a vector count, in a beam and among the candidates of a plan. The second makes up for a first whose edges lead to
/// copies only, because it holds these in the tree.
pub(super) const COPIES_MAX: usize = 2;

#[derive(Clone, Copy)]
struct PoolEntry {
    order: u64,
    /// Tells its vector from others at the same distance; 0 while nobody has asked for it, and where it is not known.
    fingerprint: u32,
    expanded: bool,
    /// [`COPIES_MAX`] equal entries come before it, so that it does not count.
    spare: bool,
}

/// What an order says of the distance.
#[inline]
fn distance_bits(order: u64) -> u32 {
    (order >> 32) as u32
}

/// A set of fingerprints that may claim to have one that was never added (a Bloom filter with one hash function): most vectors are known to
/// have no copy by a look at one bit.
#[derive(Clone, Debug, Default)]
pub(super) struct Fingerprints([u64; 32]);

impl Fingerprints {
    /// Adds a fingerprint, and says whether it may have been there before.
    #[inline]
    pub(super) fn add(&mut self, fingerprint: u32) -> bool {
        let (word, bit) = ((fingerprint >> 6) as usize % self.0.len(), 1 << (fingerprint % 64));
        let before = self.0[word] & bit != 0;
        self.0[word] |= bit;
        before
    }
}

/// Most different vectors that a [`Run`] counts; it takes all further ones for different.
const RUN_FINGERPRINTS_MAX: usize = 256;

/// Rejected entries that came one after the other at one distance.
#[derive(Default)]
struct Run {
    distance: Option<u32>,
    /// The first of them, while it is alone.
    alone: Option<Slot>,
    /// How often each fingerprint has come.
    counts: Vec<(u32, usize)>,
}

impl Run {
    /// Adds one to the run; false when [`COPIES_MAX`] with its fingerprint came before it.
    fn add(&mut self, order: u64, fingerprint: &impl Fn(Slot) -> u32) -> bool {
        let distance = distance_bits(order);
        if self.distance != Some(distance) {
            self.distance = Some(distance);
            self.alone = Some(order as Slot);
            self.counts.clear();
            return true;
        }
        if let Some(first) = self.alone.take() {
            self.count(fingerprint(first));
        }
        self.count(fingerprint(order as Slot)) <= COPIES_MAX
    }

    /// Counts a fingerprint, and says how often it has come. An unknown one is new each time.
    fn count(&mut self, fingerprint: u32) -> usize {
        if fingerprint == 0 {
            return 1;
        }
        if let Some((_, count)) = self.counts.iter_mut().find(|(other, _)| *other == fingerprint) {
            *count += 1;
            return *count;
        }
        if self.counts.len() < RUN_FINGERPRINTS_MAX {
            self.counts.push((fingerprint, 1));
        }
        1
    }
}

/// See the module docs. Reusable; allocation-free once grown.
#[derive(Default)]
pub(super) struct Pool {
    /// Admitted, ascending by order: at most `ef` that count, and no spare one after the first `ef`.
    entries: Vec<PoolEntry>,
    /// How many of them are spare.
    spare: usize,
    /// Index in `entries` before which everything is expanded or spare.
    cursor: usize,
    /// Index in `entries` before which everything is expanded.
    spare_cursor: usize,
    /// Rejected entries that wait for their turn.
    rejected: BinaryHeap<Reverse<u64>>,
    /// Rejected copies that wait until nothing else is left.
    put_off: BinaryHeap<Reverse<u64>>,
    run: Run,
    /// Fingerprints of entries that were ever at the same distance as another.
    fingerprints: Fingerprints,
    ef: usize,
    /// How many of the nearest are to be found even if they are copies.
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
        self.fingerprints = Fingerprints::default();
        self.ef = ef;
        self.wanted = wanted;
        self.bound = u64::MAX;
    }

    /// Whether an entry with this order would be kept.
    #[inline]
    pub(super) fn wants(&self, order: u64) -> bool {
        order < self.bound
    }

    /// Adds a neighbour that [`Self::wants`]; the caller adds a slot once. `fingerprint` is the same for equal vectors, and 0 for one of which
    /// that is not known. It is called only where distances are equal.
    #[inline]
    pub(super) fn insert(&mut self, order: u64, admitted: bool, fingerprint: &impl Fn(Slot) -> u32) {
        if !admitted {
            self.rejected.push(Reverse(order));
            return;
        }
        let at = self.entries.partition_point(|e| e.order < order);
        let mut entry = PoolEntry { order, fingerprint: 0, expanded: false, spare: false };
        let mut displaced = None;
        if self.is_at(at, order) || at > 0 && self.is_at(at - 1, order) {
            displaced = self.number(at, &mut entry, fingerprint);
            if entry.spare && at >= self.ef {
                return;
            }
        }
        self.entries.insert(at, entry);
        self.cursor = self.cursor.min(at);
        self.spare_cursor = self.spare_cursor.min(at);
        self.spare += usize::from(entry.spare);
        if self.spare > 0 {
            self.cut(displaced);
        } else {
            self.entries.truncate(self.ef);
        }
        if self.entries.len() - self.spare == self.ef {
            self.bound = self.entries[self.entries.len() - 1].order;
        }
    }

    /// Whether there is an entry at that index with the distance of `order`.
    #[inline]
    fn is_at(&self, at: usize, order: u64) -> bool {
        self.entries.get(at).is_some_and(|entry| distance_bits(entry.order) == distance_bits(order))
    }

    /// Decides whether an entry is spare that will be inserted at `at`, beside others at the same distance. Returns the index of the entry that
    /// becomes spare because of it, if there is one.
    #[inline(never)]
    fn number(
        &mut self,
        at: usize,
        entry: &mut PoolEntry,
        fingerprint: &impl Fn(Slot) -> u32,
    ) -> Option<usize> {
        entry.fingerprint = fingerprint(entry.order as Slot);
        // An entry that was alone at this distance until now has no fingerprint yet. It is beside `at`.
        for beside in at.saturating_sub(1)..(at + 1).min(self.entries.len()) {
            if self.is_at(beside, entry.order) && self.entries[beside].fingerprint == 0 {
                let beside = &mut self.entries[beside];
                beside.fingerprint = fingerprint(beside.order as Slot);
                self.fingerprints.add(beside.fingerprint);
            }
        }
        if self.fingerprints.add(entry.fingerprint) && entry.fingerprint != 0 {
            self.number_copy(at, entry)
        } else {
            None
        }
    }

    /// The part of [`Self::number`] for an entry whose fingerprint another entry may have.
    #[cold]
    fn number_copy(&mut self, at: usize, entry: &mut PoolEntry) -> Option<usize> {
        let distance = distance_bits(entry.order);
        let from = self.entries[..at].partition_point(|e| distance_bits(e.order) < distance);
        let (mut copies, mut last) = (0, None);
        for (index, other) in self.entries.iter().enumerate().skip(from) {
            if distance_bits(other.order) != distance || copies == COPIES_MAX {
                break;
            }
            if other.fingerprint == entry.fingerprint {
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

    /// Takes out what is left over after an insert. The insert has moved at most one entry out of the first `ef`, added at most one that
    /// counts, and may have made the entry at `displaced` spare, which has moved up by one since.
    #[cold]
    fn cut(&mut self, displaced: Option<usize>) {
        if self.entries.len() <= self.ef {
            return;
        }
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

    /// Takes out the spare entry at an index.
    fn remove(&mut self, at: usize) {
        self.entries.remove(at);
        self.spare -= 1;
        self.cursor -= usize::from(at < self.cursor);
        self.spare_cursor -= usize::from(at < self.spare_cursor);
    }

    /// The nearest entry that counts and was not expanded yet, which is expanded from now on. When there is none, a copy that may lead to others
    /// of the wanted nearest.
    #[inline]
    pub(super) fn pop(&mut self, fingerprint: &impl Fn(Slot) -> u32) -> Option<Slot> {
        while self.entries.get(self.cursor).is_some_and(|entry| entry.expanded || entry.spare) {
            self.cursor += 1;
        }
        let next = self.entries.get(self.cursor).map_or(self.bound, |entry| entry.order);
        if self.rejected.peek().is_some_and(|rejected| rejected.0 < next)
            && let Some(rejected) = self.pop_rejected(next, fingerprint)
        {
            return Some(rejected);
        }
        let Some(entry) = self.entries.get_mut(self.cursor) else { return self.pop_copy() };
        entry.expanded = true;
        self.cursor += 1;
        Some(entry.order as Slot)
    }

    /// The nearest rejected entry before `next`, after putting off the copies that come before it.
    #[inline(never)]
    fn pop_rejected(&mut self, next: u64, fingerprint: &impl Fn(Slot) -> u32) -> Option<Slot> {
        while let Some(&Reverse(rejected)) = self.rejected.peek()
            && rejected < next
        {
            self.rejected.pop();
            if self.run.add(rejected, fingerprint) {
                return Some(rejected as Slot);
            }
            self.put_off.push(Reverse(rejected));
        }
        None
    }

    /// The nearest spare entry, or rejected copy that was put off, if it is no farther than the last of the wanted nearest.
    #[cold]
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

    /// Those and the entries after them that count, nearest first: up to `2 ef`.
    pub(super) fn held(&self) -> impl Iterator<Item = Neighbor> {
        self.entries.iter().map(|e| Neighbor::from_order(e.order))
    }

    /// The vectors of which two or more admitted entries are held, nearest first: the fingerprint of each and its entries.
    pub(super) fn copies(&self) -> Vec<(u32, Vec<Neighbor>)> {
        let mut found: Vec<(u32, Vec<Neighbor>)> = Vec::new();
        for tied in self.entries.chunk_by(|a, b| distance_bits(a.order) == distance_bits(b.order)) {
            if tied.len() > 1 {
                let mut tied: Vec<&PoolEntry> = tied.iter().filter(|entry| entry.fingerprint != 0).collect();
                tied.sort_unstable_by_key(|entry| (entry.fingerprint, entry.order));
                let equal =
                    tied.chunk_by(|a, b| a.fingerprint == b.fingerprint).filter(|equal| equal.len() > 1);
                let near = |entry: &&PoolEntry| Neighbor::from_order(entry.order);
                found.extend(equal.map(|equal| (equal[0].fingerprint, equal.iter().map(near).collect())));
            }
        }
        found
    }

    /// The entries that count, nearest first: `ef` if so many were found, and at most [`COPIES_MAX`] of each vector.
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

    /// Few distances, and three fingerprints among the slots at each, of which one says nothing.
    fn order_of(distance: u8, slot: u8) -> u64 {
        u64::from(distance) << 32 | u64::from(slot)
    }

    fn fingerprint_of(slot: Slot) -> u32 {
        slot % 3
    }

    /// The entries that a pool holds, and whether each is spare: from the first, those that count, up to the `ef`-th, and spare ones
    /// among the first `ef`.
    fn held(model: &BTreeMap<u64, Offered>, ef: usize) -> Vec<(u64, bool)> {
        let mut held: Vec<(u64, bool)> = Vec::new();
        let mut seen: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        let mut counted = 0;
        for (&order, _) in model.iter().filter(|(_, offered)| offered.admitted) {
            let fingerprint = fingerprint_of(order as Slot);
            let copies = seen.entry((distance_bits(order), fingerprint)).or_default();
            *copies += 1;
            let spare = fingerprint != 0 && *copies > COPIES_MAX;
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
            let (mut run, mut run_at) = (BTreeMap::<u32, usize>::new(), None);
            for (distance, slot, op) in ops {
                let order = order_of(distance % distances, slot);
                let before = held(&model, ef);
                let counted = before.iter().filter(|(_, spare)| !spare).count();
                let bound = before.last().filter(|_| counted == ef).map_or(u64::MAX, |&(order, _)| order);
                let known = model.contains_key(&order);
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
                            let fingerprint = fingerprint_of(rejected as Slot);
                            let copies = run.entry(fingerprint).or_default();
                            *copies += 1;
                            if fingerprint == 0 || *copies <= COPIES_MAX {
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
                    prop_assert_eq!(pool.pop(&fingerprint_of), expected.map(|order| order as Slot));
                    expected.and_then(|order| model.get_mut(&order)).into_iter().for_each(|o| o.popped = true);
                } else if !known {
                    prop_assert_eq!(pool.wants(order), order < bound);
                    if pool.wants(order) {
                        let admitted = op < 5;
                        pool.insert(order, admitted, &fingerprint_of);
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
