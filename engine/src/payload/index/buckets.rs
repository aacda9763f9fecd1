//! A column in one byte per slot: which of 255 buckets of about equal size the slot's number is in, so that reading a column through
//! reads an eighth of the memory. What lies between the buckets of two bounds lies between the bounds; only in the buckets
//! of the bounds themselves, some hundredths of all, the numbers are looked at.
//!
//! The buckets' bounds are quantiles of a sample, taken when the column is filled and again when about as many numbers have
//! been written since as there were.

use crate::distance::{
    BUCKETS_PACKED as PACKED, BucketCells, BucketRange, COLUMN_WORD as WORD, ColumnKernel, prefetch_row,
};
use crate::memory::{Arena, Held, allocated};
use crate::slot::Slot;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that bounds are chosen from.
pub(super) const SAMPLE: usize = 8192;
/// Most buckets: a byte without 0, which stands for a slot without a number.
const BUCKETS: usize = 255;
/// Cells of a word of 64 slots.
const CELLS: usize = WORD / PACKED;
/// Words that are read together.
pub(super) const BLOCK: usize = 16;

/// Buckets of numbers, by slot.
pub(super) struct Buckets {
    /// The least numbers of all buckets but the first, ascending, none twice.
    bounds: Box<[f64]>,
    /// Eight slots each, the lowest first.
    of: Arena<AtomicU64>,
}

impl Held for Buckets {
    /// The arena is counted by the slots in use (`PayloadIndex::column_bytes`).
    fn held_bytes(&self) -> usize {
        allocated(size_of::<Self>()) + allocated(size_of_val(&*self.bounds))
    }
}

impl Buckets {
    /// Whether this CPU compares bytes many at a time; if not, columns are read as they are.
    pub(super) fn pay() -> bool {
        ColumnKernel::compares_bytes_at_once()
    }

    /// Empty buckets for slots below `slots_max`, bounded by quantiles of `sample`, which holds no NaN; `None` without address
    /// space.
    pub(super) fn new(mut sample: Vec<f64>, slots_max: usize) -> Option<Buckets> {
        sample.sort_unstable_by(f64::total_cmp);
        let quantile = |index: usize| sample.get(index * sample.len() / BUCKETS).copied();
        let mut bounds: Vec<f64> = (1..BUCKETS).filter_map(quantile).collect();
        // Both zeros are one number.
        bounds.dedup_by(|a, b| *a == *b);
        let of = Arena::reserve(slots_max.div_ceil(PACKED).next_multiple_of(CELLS), 1).ok()?;
        Some(Buckets { bounds: bounds.into(), of })
    }

    /// Bytes per slot.
    pub(super) const SLOT_BYTES: usize = 1;

    fn bucket(&self, number: f64) -> u8 {
        1 + self.bounds.partition_point(|&bound| bound <= number) as u8
    }

    /// Owner: files a slot, or takes it out.
    pub(super) fn set(&self, slot: Slot, number: Option<f64>) {
        let bucket = number.map_or(0, |number| self.bucket(number));
        let (index, shift) = (slot as usize / PACKED, slot as usize % PACKED * 8);
        let word = &self.of.cells(index)[0];
        let others = word.load(Ordering::Relaxed) & !(0xff << shift);
        word.store(others | u64::from(bucket) << shift, Ordering::Relaxed);
    }

    /// Of a range with both ends inside; neither is NaN.
    pub(super) fn ends(&self, low: f64, high: f64) -> BucketRange {
        let (of_low, of_high) = (self.bucket(low), self.bucket(high));
        let mut ends = BucketRange { inside: [of_low, of_high], unsure: [0; 2] };
        // The first bucket has no bound below, and the last none above.
        if low > f64::NEG_INFINITY {
            ends.unsure[0] = of_low;
            ends.inside[0] = of_low.saturating_add(1);
        }
        if high < f64::INFINITY {
            ends.unsure[1] = of_high;
            ends.inside[1] = of_high - 1;
        }
        if low > f64::NEG_INFINITY && of_low == u8::MAX {
            ends.inside = [1, 0];
        }
        ends
    }

    /// Of [`BLOCK`] words of 64 slots from word `first` on, those inside, and those whose numbers have to be looked at. Words
    /// beyond the last slot are empty.
    pub(super) fn block(&self, first: usize, ends: BucketRange) -> [(u64, u64); BLOCK] {
        let (from, capacity) = (first * CELLS, self.of.capacity());
        let cells = self.of.cells_of(from.min(capacity), (from + BLOCK * CELLS).min(capacity));
        let mut block = [(0, 0); BLOCK];
        let words: &[BucketCells] = cells.as_chunks::<CELLS>().0;
        ColumnKernel::best().buckets(words, ends, &mut block);
        block
    }

    /// Asks for what [`Self::block`] reads.
    pub(super) fn prefetch(&self, first: usize) {
        prefetch_row(self.of.row_ptr(0).wrapping_add(first * CELLS), BLOCK * WORD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = f64> {
        let special = [0.0, -0.0, 1.0, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE];
        prop_oneof![prop::sample::select(special.to_vec()), -2.0..2.0, (-5..5i32).prop_map(f64::from)]
    }

    proptest! {
        #[test]
        fn buckets_say_what_is_inside_or_that_they_do_not_know(
            sample in prop::collection::vec(number(), 0..600),
            numbers in prop::collection::vec(prop::option::of(number()), WORD),
            low in number(),
            high in number(),
        ) {
            let buckets = Buckets::new(sample, WORD).unwrap();
            for (slot, &number) in numbers.iter().enumerate() {
                buckets.set(slot as Slot, Some(0.5));
                buckets.set(slot as Slot, number);
            }
            let ends = buckets.ends(low, high);
            let block = buckets.block(0, ends);
            let (inside, unsure) = block[0];
            prop_assert!(block[1..].iter().all(|&word| word == (0, 0)), "no slots there");
            for (slot, number) in numbers.iter().enumerate() {
                let passes = number.is_some_and(|number| number >= low && number <= high);
                let bit = |bits: u64| bits >> slot & 1 == 1;
                prop_assert!(!bit(inside) || passes, "{number:?} in {low}..={high}");
                prop_assert!(bit(inside) || bit(unsure) || !passes, "{number:?} in {low}..={high}");
                prop_assert!(number.is_some() || !(bit(inside) || bit(unsure)));
            }
        }
    }

    #[test]
    fn few_numbers_are_unsure() {
        let sample: Vec<f64> = (0..SAMPLE).map(|n| (n as f64).exp2().log2() * 3.0).collect();
        let buckets = Buckets::new(sample.clone(), SAMPLE).unwrap();
        sample.iter().enumerate().for_each(|(slot, &number)| buckets.set(slot as Slot, Some(number)));
        let ends = buckets.ends(sample[1000], sample[5000]);
        let blocks = (0..SAMPLE / WORD).step_by(BLOCK).map(|first| buckets.block(first, ends));
        let unsure: u32 = blocks.flatten().map(|(_, unsure)| unsure.count_ones()).sum();
        assert!((1..100).contains(&unsure), "{unsure}");
    }
}
