//! Comparisons of values with the bounds of a range, for each instruction set. What they mean stands in [`super::column`].
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots of a word of bits.
pub const WORD: usize = 64;
/// Slots whose buckets are packed into one cell, a byte each, the lowest slot in the lowest byte.
pub const PACKED: usize = 8;
/// The cells of a word of slots.
pub type BucketCells = [AtomicU64; WORD / PACKED];

/// A range of buckets, numbered from 1; bucket 0 stands for a slot without a value.
#[derive(Clone, Copy, Debug)]
pub struct BucketRange {
    /// First and last bucket that lie inside as a whole; none does when the first is above the last.
    pub inside: [u8; 2],
    /// Buckets of which some values may lie inside, or 0.
    pub unsure: [u8; 2],
}

pub(super) fn between(numbers: &[f64; WORD], low: f64, high: f64) -> u64 {
    let passes = |number: f64| u64::from((number >= low) & (number <= high));
    numbers.iter().enumerate().fold(0, |bits, (bit, &number)| bits | passes(number) << bit)
}

pub(super) fn buckets(words: &[BucketCells], range: BucketRange, out: &mut [(u64, u64)]) {
    for (cells, word) in words.iter().zip(out) {
        let (mut inside, mut unsure) = (0, 0);
        for slot in 0..WORD {
            let bucket = (cells[slot / PACKED].load(Ordering::Relaxed) >> (slot % PACKED * 8)) as u8;
            inside |= u64::from(bucket >= range.inside[0] && bucket <= range.inside[1]) << slot;
            unsure |= u64::from(bucket != 0 && range.unsure.contains(&bucket)) << slot;
        }
        *word = (inside, unsure);
    }
}

/// The same with AVX2.
#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    pub(in super::super) fn between(numbers: &[f64; WORD], low: f64, high: f64) -> u64 {
        let (low, high) = (_mm256_set1_pd(low), _mm256_set1_pd(high));
        let mut bits = 0;
        for (index, four) in numbers.as_chunks::<4>().0.iter().enumerate() {
            // The compiler makes one load of it.
            let number = _mm256_set_pd(four[3], four[2], four[1], four[0]);
            let above = _mm256_cmp_pd::<_CMP_GE_OQ>(number, low);
            let inside = _mm256_and_pd(above, _mm256_cmp_pd::<_CMP_LE_OQ>(number, high));
            bits |= (_mm256_movemask_pd(inside) as u64) << (4 * index);
        }
        bits
    }

    #[target_feature(enable = "avx2")]
    pub(in super::super) fn buckets(words: &[BucketCells], range: BucketRange, out: &mut [(u64, u64)]) {
        let all = |bucket: u8| _mm256_set1_epi8(bucket as i8);
        let ([first, last], [low, high]) = (range.inside.map(all), range.unsure.map(all));
        for (cells, word) in words.iter().zip(out) {
            let (mut inside, mut unsure) = (0, 0);
            for (half, four) in cells.as_chunks::<4>().0.iter().enumerate() {
                let cell = |index: usize| four[index].load(Ordering::Relaxed).cast_signed();
                let buckets = _mm256_set_epi64x(cell(3), cell(2), cell(1), cell(0));
                let above = _mm256_cmpeq_epi8(_mm256_max_epu8(buckets, first), buckets);
                let below = _mm256_cmpeq_epi8(_mm256_min_epu8(buckets, last), buckets);
                let edge = _mm256_or_si256(_mm256_cmpeq_epi8(buckets, low), _mm256_cmpeq_epi8(buckets, high));
                let none = _mm256_cmpeq_epi8(buckets, _mm256_setzero_si256());
                let bits = |bytes| u64::from(_mm256_movemask_epi8(bytes) as u32) << (32 * half);
                inside |= bits(_mm256_and_si256(above, below));
                unsure |= bits(_mm256_andnot_si256(none, edge));
            }
            *word = (inside, unsure);
        }
    }
}
