//! BM25 (Robertson, Zaragoza: The probabilistic relevance framework, 2009; idf with one added, as Lucene has it).

use super::Lengths;
use crate::postings::{Scorer, Summary};
use crate::slot::Slot;
use std::sync::atomic::{AtomicU32, Ordering};

/// Frequencies up to 1, 2, 4 and any.
const CLASSES: usize = 4;

/// A stored frequency of so much stands for any greater one.
const FREQUENCY_ANY: u32 = u16::MAX as u32;

/// Each f32 operation is off by at most 2^-24 of its result. Five of them on either side of a comparison make the computed
/// score of a posting exceed that of its bound by less than this, relatively.
const ROUNDING: f64 = 1e-6;

/// What bounds the scores of a set of postings, whatever idf and average length will be when it is asked: per class of
/// frequencies the greatest frequency and the least document length. The score grows with the one and falls with
/// the other. Documents with a high frequency tend to be long, so one pair for all would be a much looser bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frontier {
    /// Frequency in the upper half (0: none), length in the lower; both stay below 2^16 by rounding the one up to
    /// "any" and the other down.
    classes: [u32; CLASSES],
}

impl Frontier {
    pub fn of(frequency: u32, length: u32) -> Frontier {
        let class = match frequency {
            0..=1 => 0,
            2 => 1,
            3..=4 => 2,
            _ => 3,
        };
        let mut classes = [0; CLASSES];
        classes[class] = frequency.min(FREQUENCY_ANY) << 16 | length.min(u16::MAX.into());
        Frontier { classes }
    }
}

impl Summary for Frontier {
    const WORDS: usize = CLASSES;
    const EMPTY: Frontier = Frontier { classes: [0; CLASSES] };

    fn merge(&mut self, other: &Frontier) {
        for (mine, &other) in self.classes.iter_mut().zip(&other.classes) {
            if *mine == 0 || other == 0 {
                *mine |= other;
            } else {
                *mine = (*mine >> 16).max(other >> 16) << 16 | (*mine & 0xFFFF).min(other & 0xFFFF);
            }
        }
    }

    fn store(&self, words: &[AtomicU32]) {
        for (word, class) in words.iter().zip(self.classes) {
            word.store(class, Ordering::Relaxed);
        }
    }

    #[inline]
    fn load(words: &[AtomicU32]) -> Frontier {
        Frontier { classes: std::array::from_fn(|class| words[class].load(Ordering::Relaxed)) }
    }
}

/// idf, computed in f64 and used in f32. `df` above `docs` can only be a torn reading of the two; it counts as `docs`.
pub(super) fn idf(docs: u64, df: u64) -> f32 {
    let (n, df) = (docs.max(df) as f64, df as f64);
    (1.0 + (n - df + 0.5) / (df + 0.5)).ln() as f32
}

/// The constants of one search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saturation {
    k1: f32,
    flat: f32,
    slope: f32,
}

impl Saturation {
    pub fn new(k1: f32, b: f32, docs: u64, tokens: u64) -> Saturation {
        let average = tokens.max(1) as f32 / docs.max(1) as f32;
        Saturation { k1, flat: k1 * (1.0 - b), slope: k1 * b / average }
    }

    /// The weight of a term.
    pub fn weight(&self, idf: f32) -> f32 {
        idf * (self.k1 + 1.0)
    }

    /// `idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / average))`.
    #[inline]
    pub fn score(&self, weight: f32, frequency: u32, length: u32) -> f32 {
        let frequency = frequency as f32;
        weight * frequency / (frequency + (self.flat + self.slope * length as f32))
    }
}

/// The terms of a query.
pub(super) struct Bm25<'q> {
    pub saturation: Saturation,
    /// One per list.
    pub weights: &'q [f32],
    pub lengths: &'q Lengths,
}

impl Scorer for Bm25<'_> {
    type Summary = Frontier;

    #[inline]
    fn score(&self, term: usize, slot: Slot, value: u32) -> f64 {
        self.saturation.score(self.weights[term], value, self.lengths.get(slot)).into()
    }

    #[inline]
    fn bounds(&self, term: usize, frontier: &Frontier) -> (f64, f64) {
        let mut high = 0.0f32;
        for class in frontier.classes {
            let (frequency, length) = (class >> 16, class & 0xFFFF);
            let frequency = if frequency == FREQUENCY_ANY { u32::MAX } else { frequency };
            if frequency > 0 {
                high = high.max(self.saturation.score(self.weights[term], frequency, length));
            }
        }
        (0.0, f64::from(high) * (1.0 + ROUNDING))
    }

    #[inline]
    fn summarize(&self, slot: Slot, value: u32) -> Frontier {
        Frontier::of(value, self.lengths.get(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_formula_is_the_literature_s() {
        for (docs, df, tokens, tf, length) in [
            (10u64, 1u64, 100u64, 1u32, 10u32),
            (1000, 1000, 5000, 3, 1),
            (7, 2, 9, 40, 1_048_576),
            (1, 1, 1, 1, 1),
        ] {
            let (k1, b) = (1.2f64, 0.75f64);
            let idf64 = (1.0 + (docs as f64 - df as f64 + 0.5) / (df as f64 + 0.5)).ln();
            let average = tokens as f64 / docs as f64;
            let (tf64, length64) = (f64::from(tf), f64::from(length));
            let want = idf64 * tf64 * (k1 + 1.0) / (tf64 + k1 * (1.0 - b + b * length64 / average));
            let saturation = Saturation::new(1.2, 0.75, docs, tokens);
            let found = f64::from(saturation.score(saturation.weight(idf(docs, df)), tf, length));
            assert!((found - want).abs() < 1e-6 * want, "{found} {want}");
        }
        assert!(idf(3, 5) > 0.0, "torn statistics");
    }

    proptest! {
        /// A bound made long before idf and average length are known holds for every posting it covers.
        #[test]
        fn bounds_hold_under_any_statistics(
            postings in proptest::collection::vec((1u32..=1 << 20, 1u32..=1 << 20), 1..40),
            small in proptest::bool::ANY,
            docs in 1u64..1 << 40, tokens in 1u64..1 << 50, df in 1u64..1 << 40,
            k1 in 0.01f32..10.0, b in 0.01f32..=1.0,
        ) {
            let fit = |x: u32, to: u32| if small { 1 + x % to } else { x };
            let saturation = Saturation::new(k1, b, docs, tokens);
            let weights = [saturation.weight(idf(docs, df))];
            let lengths = Lengths::new();
            let bm25 = Bm25 { saturation, weights: &weights, lengths: &lengths };
            let mut frontier = Frontier::EMPTY;
            for &(tf, length) in &postings {
                frontier.merge(&Frontier::of(fit(tf, 9), fit(length, 40)));
            }
            let (_, high) = bm25.bounds(0, &frontier);
            for &(tf, length) in &postings {
                let score = saturation.score(weights[0], fit(tf, 9), fit(length, 40));
                prop_assert!(f64::from(score) <= high, "{score} above {high}");
            }
        }
    }
}
