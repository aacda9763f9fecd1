//! A growing set of slots, one bit each. Only owners have these.
use crate::slot::Slot;

/// A growing set of slots with a count.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotSet {
    words: Vec<u64>,
    len: usize,
}

impl SlotSet {
    /// Slots `0..slots`.
    pub fn all(slots: usize) -> SlotSet {
        let mut words = vec![u64::MAX; slots / 64];
        if !slots.is_multiple_of(64) {
            words.push((1 << (slots % 64)) - 1);
        }
        SlotSet { words, len: slots }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn contains(&self, slot: Slot) -> bool {
        self.words.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    pub fn insert(&mut self, slot: Slot) {
        let index = slot as usize / 64;
        if index >= self.words.len() {
            self.words.resize(index + 1, 0);
        }
        let bit = 1 << (slot % 64);
        self.len += usize::from(self.words[index] & bit == 0);
        self.words[index] |= bit;
    }

    /// Whether it was there.
    pub fn remove(&mut self, slot: Slot) -> bool {
        let there = self.contains(slot);
        if there {
            self.words[slot as usize / 64] &= !(1 << (slot % 64));
            self.len -= 1;
        }
        there
    }

    pub fn insert_all(&mut self, other: &SlotSet) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            self.len += (more & !*word).count_ones() as usize;
            *word |= more;
        }
    }

    pub fn contains_all(&self, other: &SlotSet) -> bool {
        let word = |at: usize| self.words.get(at).copied().unwrap_or(0);
        other.words.iter().enumerate().all(|(at, wanted)| wanted & !word(at) == 0)
    }

    /// The first member at or after `from`.
    pub fn next(&self, from: Slot) -> Option<Slot> {
        first_member(std::iter::once(self), from)
    }

    /// The first member of any of the sets at or after `from`.
    pub fn next_of_all<'a>(sets: impl Iterator<Item = &'a SlotSet> + Clone, from: Slot) -> Option<Slot> {
        first_member(sets, from)
    }

    pub fn bytes(&self) -> u64 {
        self.words.capacity() as u64 * 8
    }
}

/// The first member of any of the sets at or after `from`. All at once: one may be empty for a long way ahead.
fn first_member<'a>(sets: impl Iterator<Item = &'a SlotSet> + Clone, from: Slot) -> Option<Slot> {
    let mut mask = u64::MAX << (from % 64);
    let words = sets.clone().map(|set| set.words.len()).max().unwrap_or(0);
    for index in from as usize / 64..words {
        let word = |set: &SlotSet| set.words.get(index).copied().unwrap_or(0);
        let found = sets.clone().fold(0, |found, set| found | word(set)) & mask;
        if found != 0 {
            return Some((index * 64) as Slot + found.trailing_zeros());
        }
        mask = u64::MAX;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_set(
            start in 0usize..200,
            steps in proptest::collection::vec((any::<bool>(), 0u32..300), 0..80),
            others in proptest::collection::vec(0u32..400, 0..20),
            from in 0u32..400,
        ) {
            let mut set = SlotSet::all(start);
            let mut twin: BTreeSet<u32> = (0..start as u32).collect();
            for (add, slot) in steps {
                if add {
                    set.insert(slot);
                    twin.insert(slot);
                } else {
                    prop_assert_eq!(set.remove(slot), twin.remove(&slot));
                }
            }
            let mut other = SlotSet::default();
            others.iter().for_each(|&slot| other.insert(slot));
            set.insert_all(&other);
            twin.extend(others);
            prop_assert_eq!(set.len(), twin.len());
            let none = SlotSet::default();
            prop_assert_eq!(set.next(from), twin.range(from..).next().copied());
            for sets in [[&set, &none], [&none, &set]] {
                prop_assert_eq!(SlotSet::next_of_all(sets.into_iter(), from), twin.range(from..).next().copied());
            }
            prop_assert!((0..400).all(|slot| set.contains(slot) == twin.contains(&slot)));
        }
    }
}
