//! Products of weights and values, and their bounds.

use crate::postings::{Scorer, Summary};
use crate::slot::Slot;
use std::sync::atomic::{AtomicU32, Ordering};

/// Least and greatest value of a set of postings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    low: f32,
    high: f32,
}

impl Range {
    pub fn of(_slot: Slot, value: u32) -> Range {
        let value = f32::from_bits(value);
        Range { low: value, high: value }
    }
}

impl Summary for Range {
    const WORDS: usize = 2;
    const EMPTY: Range = Range { low: f32::INFINITY, high: f32::NEG_INFINITY };

    fn merge(&mut self, other: &Range) {
        self.low = self.low.min(other.low);
        self.high = self.high.max(other.high);
    }

    fn store(&self, words: &[AtomicU32]) {
        words[0].store(self.low.to_bits(), Ordering::Relaxed);
        words[1].store(self.high.to_bits(), Ordering::Relaxed);
    }

    #[inline]
    fn load(words: &[AtomicU32]) -> Range {
        let word = |at: usize| f32::from_bits(words[at].load(Ordering::Relaxed));
        Range { low: word(0), high: word(1) }
    }
}

/// The weights of a query, one per list.
pub(super) struct Product<'q> {
    pub weights: &'q [f32],
}

impl Scorer for Product<'_> {
    type Summary = Range;

    /// Exact: two 24-bit significands fit into 53 bits.
    #[inline]
    fn score(&self, term: usize, _slot: Slot, value: u32) -> f64 {
        f64::from(self.weights[term]) * f64::from(f32::from_bits(value))
    }

    /// A negative weight turns the range around.
    #[inline]
    fn bounds(&self, term: usize, range: &Range) -> (f64, f64) {
        let weight = f64::from(self.weights[term]);
        let (a, b) = (weight * f64::from(range.low), weight * f64::from(range.high));
        (a.min(b), a.max(b))
    }

    #[inline]
    fn summarize(&self, slot: Slot, value: u32) -> Range {
        Range::of(slot, value)
    }
}
