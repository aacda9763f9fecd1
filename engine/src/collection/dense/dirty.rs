//! Which slots changed since the last checkpoint image. Only the owner has these.
use crate::slot::Slot;

/// A growing set of slots with a count.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotSet {
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
        first_member(&self.words, &[], from)
    }

    pub fn bytes(&self) -> u64 {
        self.words.capacity() as u64 * 8
    }
}

/// The first member of either set at or after `from`. Both at once: one may be empty for a long way ahead.
fn first_member(one: &[u64], other: &[u64], from: Slot) -> Option<Slot> {
    let mut mask = u64::MAX << (from % 64);
    for index in from as usize / 64..one.len().max(other.len()) {
        let word = |words: &[u64]| words.get(index).copied().unwrap_or(0);
        let found = (word(one) | word(other)) & mask;
        if found != 0 {
            return Some((index * 64) as Slot + found.trailing_zeros());
        }
        mask = u64::MAX;
    }
    None
}

/// Changed slots, in two degrees.
#[derive(Clone, Debug, Default)]
pub(super) struct Dirty {
    /// Id, vector, row: all is to be written.
    pub data: SlotSet,
    /// Edges, death or freeing: the vector and row of the image before still hold unless `data` says otherwise.
    pub state: SlotSet,
    /// Centroids that changed: all of them, or 0.
    pub cells: usize,
    /// What the quantizer of a graph has learned.
    pub codec: bool,
}

impl Dirty {
    /// Members, those in both degrees counted twice (a bound is all that is needed).
    pub fn len(&self) -> usize {
        self.data.len() + self.state.len() + self.cells + usize::from(self.codec)
    }

    /// The first member of either at or after `from`.
    pub fn next(&self, from: Slot) -> Option<Slot> {
        first_member(&self.data.words, &self.state.words, from)
    }

    pub fn insert_all(&mut self, other: &Dirty) {
        self.data.insert_all(&other.data);
        self.state.insert_all(&other.state);
        self.cells = self.cells.max(other.cells);
        self.codec |= other.codec;
    }

    pub fn bytes(&self) -> u64 {
        self.data.bytes() + self.state.bytes()
    }
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
            let both = Dirty { data: set.clone(), ..Dirty::default() };
            prop_assert_eq!(both.next(from), twin.range(from..).next().copied());
            let both = Dirty { state: set.clone(), ..Dirty::default() };
            prop_assert_eq!(both.next(from), twin.range(from..).next().copied());
            prop_assert!((0..400).all(|slot| set.contains(slot) == twin.contains(&slot)));
        }
    }
}
