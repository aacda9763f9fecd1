//! Which of 64 numbers lie between two bounds, as bits: what reading a column through spends its time on.

#[cfg(target_arch = "x86_64")]
use crate::distance::SimdLevel;

/// Numbers of one word.
pub(super) const WORD: usize = 64;

/// Bit `i` is set when `low <= numbers[i] <= high`; NaN lies nowhere.
#[inline]
pub(super) fn between(numbers: &[f64; WORD], low: f64, high: f64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if SimdLevel::best().has_avx2() {
        // SAFETY: the CPU has AVX2, which its best level says.
        return unsafe { avx2(numbers, low, high) };
    }
    scalar(numbers, low, high)
}

fn scalar(numbers: &[f64; WORD], low: f64, high: f64) -> u64 {
    let passes = |number: f64| u64::from((number >= low) & (number <= high));
    numbers.iter().enumerate().fold(0, |bits, (bit, &number)| bits | passes(number) << bit)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(numbers: &[f64; WORD], low: f64, high: f64) -> u64 {
    use std::arch::x86_64::*;
    let (low, high) = (_mm256_set1_pd(low), _mm256_set1_pd(high));
    let mut bits = 0;
    for (index, four) in numbers.as_chunks::<4>().0.iter().enumerate() {
        // SAFETY: `four` is an array of four floats, all of which the load reads; it takes any alignment.
        let number = unsafe { _mm256_loadu_pd(four.as_ptr()) };
        let above = _mm256_cmp_pd::<_CMP_GE_OQ>(number, low);
        let inside = _mm256_and_pd(above, _mm256_cmp_pd::<_CMP_LE_OQ>(number, high));
        bits |= (_mm256_movemask_pd(inside) as u64) << (4 * index);
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = f64> {
        let special = [0.0, -0.0, 1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE];
        prop_oneof![prop::sample::select(special.to_vec()), -2.0..2.0, any::<f64>()]
    }

    proptest! {
        #[test]
        fn bits_are_those_of_comparing_one_by_one(
            numbers in prop::collection::vec(number(), WORD),
            low in number(),
            high in number(),
        ) {
            let numbers: [f64; WORD] = numbers.try_into().unwrap();
            let bits = between(&numbers, low, high);
            for (bit, &number) in numbers.iter().enumerate() {
                prop_assert_eq!(bits >> bit & 1 == 1, number >= low && number <= high, "{}", number);
            }
            prop_assert_eq!(bits, scalar(&numbers, low, high));
        }
    }
}
