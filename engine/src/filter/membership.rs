//! The list of an `in` leaf, held so that one lookup does not depend on its length, and its elements come in order.

use ahash::RandomState;
use hashbrown::HashTable;
use std::cmp::Ordering;
use std::hash::Hash;

/// Lists up to this length are walked: eight comparisons cost less than one hash.
const WALKED_MAX: usize = 8;

/// The elements of an `in` list, by kind, each once, neighbours together: texts and ints ascending, floats by their bits.
#[derive(Debug)]
pub(crate) enum Members {
    /// Of strings.
    Strings(Texts),
    /// Of ints.
    Ints(Numbers<i64>),
    /// Of floats.
    Floats(Floats),
}

impl Members {
    /// Elements.
    pub(super) fn len(&self) -> usize {
        match self {
            Members::Strings(texts) => texts.ends.len(),
            Members::Ints(numbers) => numbers.sorted.len(),
            Members::Floats(floats) => floats.0.sorted.len(),
        }
    }
}

/// Finds the place of an element by its hash; empty for lists that are walked.
#[derive(Debug)]
struct Places {
    table: HashTable<u32>,
    hasher: RandomState,
}

impl Places {
    fn of<T: Hash>(len: usize, element: impl Fn(usize) -> T) -> Places {
        let hasher = RandomState::new();
        let mut table = HashTable::new();
        if len > WALKED_MAX {
            let len = u32::try_from(len).expect("a list that was sent has fewer elements");
            let hash = |place: &u32| hasher.hash_one(element(*place as usize));
            table.reserve(len as usize, hash);
            for place in 0..len {
                table.insert_unique(hash(&place), place, hash);
            }
        }
        Places { table, hasher }
    }

    #[inline]
    fn holds<T: Hash>(&self, len: usize, wanted: &T, is_at: impl Fn(usize) -> bool) -> bool {
        if len <= WALKED_MAX {
            return (0..len).any(is_at);
        }
        self.table.find(self.hasher.hash_one(wanted), |&place| is_at(place as usize)).is_some()
    }
}

/// Integers, or the bits of floats.
#[derive(Debug)]
pub(crate) struct Numbers<T> {
    sorted: Box<[T]>,
    places: Places,
}

impl<T: Copy + Ord + Hash> Numbers<T> {
    /// Collects the elements.
    pub(super) fn new(elements: impl Iterator<Item = T>) -> Self {
        let mut sorted: Vec<T> = elements.collect();
        sorted.sort_unstable();
        sorted.dedup();
        let places = Places::of(sorted.len(), |place| sorted[place]);
        Numbers { sorted: sorted.into(), places }
    }

    /// The elements, ascending.
    pub(super) fn sorted(&self) -> &[T] {
        &self.sorted
    }

    /// Whether `number` is in the list.
    pub(super) fn contains(&self, number: T) -> bool {
        self.places.holds(self.sorted.len(), &number, |place| self.sorted[place] == number)
    }
}

impl Numbers<i64> {
    /// Whether an integer of the list, as f64, is `number`.
    pub(super) fn contains_float(&self, number: f64) -> bool {
        // The order of integers is that of their roundings, so the list is in order for this search as well.
        let order = |int: &i64| (*int as f64).partial_cmp(&number).unwrap_or(Ordering::Less);
        self.sorted.binary_search_by(order).is_ok()
    }
}

/// Floats compared as numbers: -0.0 is 0.0, NaN is never in the list.
#[derive(Debug)]
pub(crate) struct Floats(Numbers<u64>);

impl Floats {
    /// Collects the elements; NaN stays out.
    pub(super) fn new(elements: &[f64]) -> Self {
        Self(Numbers::new(elements.iter().filter(|x| !x.is_nan()).map(|x| bits(*x))))
    }

    /// The elements from place `from` on below `to`, by their bits.
    pub(super) fn part(&self, from: usize, to: usize) -> impl Iterator<Item = f64> + Clone {
        self.0.sorted[from..to].iter().map(|&bits| f64::from_bits(bits))
    }

    /// Whether `number` is in the list.
    pub(super) fn contains(&self, number: f64) -> bool {
        !number.is_nan() && self.0.contains(bits(number))
    }
}

/// Bits that are equal exactly when the numbers are.
fn bits(number: f64) -> u64 {
    if number == 0.0 { 0 } else { number.to_bits() }
}

/// Strings, one behind the other: a hundred thousand of them are two allocations, and so is forgetting them.
#[derive(Debug)]
pub(crate) struct Texts {
    joined: Box<str>,
    ends: Box<[u32]>,
    places: Places,
}

impl Texts {
    /// Collects the elements. They hold less than 4 GiB together, as bodies do.
    pub(super) fn new(elements: &[String]) -> Self {
        let mut sorted: Vec<&str> = elements.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut joined = String::with_capacity(sorted.iter().map(|text| text.len()).sum());
        let ends = sorted.iter().map(|text| {
            joined.push_str(text);
            u32::try_from(joined.len()).expect("less than 4 GiB of text")
        });
        let ends = ends.collect();
        let places = Places::of(sorted.len(), |place| sorted[place]);
        Texts { joined: joined.into(), ends, places }
    }

    fn get(&self, place: usize) -> &str {
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.joined[start as usize..self.ends[place] as usize]
    }

    /// The elements from place `from` on below `to`, ascending.
    pub(super) fn part(&self, from: usize, to: usize) -> impl Iterator<Item = &str> {
        (from..to).map(|place| self.get(place))
    }

    /// Whether `text` is in the list.
    pub(super) fn contains(&self, text: &str) -> bool {
        self.places.holds(self.ends.len(), &text, |place| self.get(place) == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Short and long lists hold what a set holds, in order.
        #[test]
        fn holds_what_a_set_holds(
            numbers in prop::collection::vec(-20i64..20, 0..30),
            texts in prop::collection::vec("[ab\u{e9}]{0,3}", 0..30),
        ) {
            let (ints, set) = (Numbers::new(numbers.iter().copied()), BTreeSet::from_iter(numbers));
            prop_assert!(ints.sorted().iter().eq(&set));
            for number in -21..21 {
                prop_assert_eq!(ints.contains(number), set.contains(&number));
            }
            let (list, set) = (Texts::new(&texts), BTreeSet::from_iter(texts));
            prop_assert!(list.part(0, set.len()).eq(set.iter().map(String::as_str)));
            for text in ["", "a", "b", "ab", "aba", "\u{e9}", "ba\u{e9}", "\u{e9}\u{e9}\u{e9}", "abab"] {
                prop_assert_eq!(list.contains(text), set.contains(text));
            }
        }
    }

    #[test]
    fn a_float_is_found_among_integers_by_its_value() {
        let big = 1i64 << 53;
        let list = Numbers::new([5, -3, 0, big + 1, i64::MAX].into_iter());
        for (number, held) in
            [(5.0, true), (-0.0, true), (-3.0, true), (big as f64, true), (2f64.powi(63), true)]
        {
            assert_eq!(list.contains_float(number), held, "{number}");
        }
        for number in [5.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -2.0, 2f64.powi(62)] {
            assert!(!list.contains_float(number), "{number}");
        }
    }

    #[test]
    fn floats_are_numbers() {
        for more in [0, 20] {
            let mut list = vec![0.5, -0.0, f64::NAN, f64::INFINITY];
            list.extend((0..more).map(f64::from));
            let floats = Floats::new(&list);
            for (number, held) in [(0.0, true), (-0.0, true), (0.5, true), (f64::INFINITY, true)] {
                assert_eq!(floats.contains(number), held, "{number}");
            }
            for number in [f64::NAN, -0.5, f64::NEG_INFINITY, 1e300] {
                assert!(!floats.contains(number), "{number}");
            }
        }
    }
}
