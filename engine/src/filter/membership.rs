//! The list of an `in` leaf, held so that one lookup does not depend on its length.

use ahash::RandomState;
use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;

/// Lists up to this length are walked: eight comparisons cost less than one hash.
const WALKED_MAX: usize = 8;

/// The elements of an `in` list, by kind.
#[derive(Debug)]
pub(crate) enum Members {
    /// Of strings.
    Strings(Set<Box<str>>),
    /// Of ints.
    Ints(Set<i64>),
    /// Of floats.
    Floats(FloatSet),
}

/// Distinct elements.
#[derive(Debug)]
pub(crate) enum Set<T> {
    /// Few, walked.
    Walked(Box<[T]>),
    /// Many, hashed.
    Hashed(HashSet<T, RandomState>),
}

impl<T: Hash + Eq> Set<T> {
    /// Collects the elements.
    pub(super) fn new(elements: impl ExactSizeIterator<Item = T>) -> Self {
        if elements.len() <= WALKED_MAX {
            Set::Walked(elements.collect())
        } else {
            Set::Hashed(elements.collect())
        }
    }

    /// The elements, each once where they are hashed.
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = &T> + '_> {
        match self {
            Set::Walked(elements) => Box::new(elements.iter()),
            Set::Hashed(elements) => Box::new(elements.iter()),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Set::Walked(elements) => elements.len(),
            Set::Hashed(elements) => elements.len(),
        }
    }

    /// Whether `element` is in the set.
    pub(super) fn contains<Q>(&self, element: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        match self {
            Set::Walked(elements) => elements.iter().any(|other| other.borrow() == element),
            Set::Hashed(elements) => elements.contains(element),
        }
    }
}

/// A set of floats compared as numbers: -0.0 is 0.0, NaN is never in it.
#[derive(Debug)]
pub(crate) struct FloatSet(Set<u64>);

impl FloatSet {
    /// Collects the elements; NaN stays out.
    pub(super) fn new(elements: &[f64]) -> Self {
        let numbers: Vec<u64> = elements.iter().filter(|x| !x.is_nan()).map(|x| bits(*x)).collect();
        Self(Set::new(numbers.into_iter()))
    }

    /// The elements.
    pub(super) fn iter(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(|&bits| f64::from_bits(bits))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether `number` is in the set.
    pub(super) fn contains(&self, number: f64) -> bool {
        !number.is_nan() && self.0.contains(&bits(number))
    }
}

/// Bits that are equal exactly when the numbers are.
fn bits(number: f64) -> u64 {
    if number == 0.0 { 0 } else { number.to_bits() }
}
