//! Comparisons with a column of values, 64 slots at once: what reading a column through spends its time on.
//!
//! Answers are bits, the lowest of the first slot, and the same on every machine.
use super::compare::{BucketCells, BucketRange, WORD};
use super::dispatch::{ColumnEntry, Runnable, best_kernels};

/// Comparisons on this machine.
#[derive(Clone, Copy)]
pub struct ColumnKernel {
    entry: Runnable<ColumnEntry>,
}

/// A kernel is chosen once; nothing of it is worth printing.
impl std::fmt::Debug for ColumnKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ColumnKernel")
    }
}

impl ColumnKernel {
    /// At the fastest level of this CPU.
    #[inline]
    pub fn best() -> ColumnKernel {
        ColumnKernel { entry: best_kernels().columns() }
    }

    /// Whether this CPU compares bytes many at a time.
    pub fn compares_bytes_at_once() -> bool {
        cfg!(target_arch = "x86_64") && best_kernels().columns().compares_bytes_at_once()
    }

    /// Bit `i` is set when `low <= numbers[i] <= high`; NaN lies in no range.
    #[inline]
    pub fn between(self, numbers: &[f64; WORD], low: f64, high: f64) -> u64 {
        self.entry.between(numbers, low, high)
    }

    /// For each word of slots, into the element of `out` at its index: the slots whose bucket lies inside `range`, and those whose values
    /// have to be looked at.
    ///
    /// # Panics
    /// When there are more words than elements of `out`.
    #[inline]
    pub fn buckets(self, words: &[BucketCells], range: BucketRange, out: &mut [(u64, u64)]) {
        self.entry.buckets(words, range, &mut out[..words.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::SimdLevel;
    use super::super::compare::buckets;
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicU64;

    fn number() -> impl Strategy<Value = f64> {
        let special = [0.0, -0.0, 1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE];
        prop_oneof![prop::sample::select(special.to_vec()), -2.0..2.0, any::<f64>()]
    }

    /// The entries of every level that this CPU runs.
    fn levels() -> impl Iterator<Item = Runnable<ColumnEntry>> {
        SimdLevel::ALL.into_iter().filter_map(|level| Some(level.kernels()?.columns()))
    }

    proptest! {
        #[test]
        fn bits_are_those_of_comparing_one_by_one(
            numbers in prop::collection::vec(number(), WORD),
            low in number(),
            high in number(),
        ) {
            let numbers: [f64; WORD] = numbers.try_into().unwrap();
            for entry in levels() {
                let bits = entry.between(&numbers, low, high);
                for (bit, &number) in numbers.iter().enumerate() {
                    prop_assert_eq!(bits >> bit & 1 == 1, number >= low && number <= high, "{}", number);
                }
            }
        }

        #[test]
        fn all_levels_find_the_same_buckets(
            cells in prop::collection::vec(prop::array::uniform8(any::<u64>()), 0..4),
            inside in any::<[u8; 2]>(),
            unsure in any::<[u8; 2]>(),
        ) {
            let words: Vec<BucketCells> = cells.iter().map(|cells| cells.map(AtomicU64::new)).collect();
            let range = BucketRange { inside, unsure };
            let mut expected = vec![(1, 1); words.len()];
            buckets(&words, range, &mut expected);
            for entry in levels() {
                let mut found = vec![(1, 1); words.len()];
                entry.buckets(&words, range, &mut found);
                prop_assert_eq!(&found, &expected);
            }
        }
    }
}
