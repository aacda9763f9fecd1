//! AVX2 with FMA: eight floats per register, four sums in flight to cover the latency of a fused multiply-add.
use std::arch::x86_64::*;

use super::entries::{code_entry, float_entries};

/// Sum of the eight lanes, in a fixed order.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn sum(v: __m256) -> f32 {
    let halves = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let pairs = _mm_add_ps(halves, _mm_movehl_ps(halves, halves));
    _mm_cvtss_f32(_mm_add_ss(pairs, _mm_shuffle_ps::<1>(pairs, pairs)))
}

/// # Safety
/// `a` and `b` point to `len` readable floats; `len` is a multiple of 16.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn dot(a: *const f32, b: *const f32, len: usize) -> f32 {
    let mut sums = [_mm256_setzero_ps(); 4];
    let mut at = 0;
    // SAFETY: every load below lies in `at..len` of a row of `len` floats.
    unsafe {
        while at + 32 <= len {
            for (i, sum) in sums.iter_mut().enumerate() {
                let (x, y) = (_mm256_loadu_ps(a.add(at + 8 * i)), _mm256_loadu_ps(b.add(at + 8 * i)));
                *sum = _mm256_fmadd_ps(x, y, *sum);
            }
            at += 32;
        }
        if at < len {
            for (i, sum) in sums.iter_mut().take(2).enumerate() {
                let (x, y) = (_mm256_loadu_ps(a.add(at + 8 * i)), _mm256_loadu_ps(b.add(at + 8 * i)));
                *sum = _mm256_fmadd_ps(x, y, *sum);
            }
        }
    }
    sum(_mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])))
}

/// # Safety
/// As [`dot`].
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn l2(a: *const f32, b: *const f32, len: usize) -> f32 {
    let mut sums = [_mm256_setzero_ps(); 4];
    let mut at = 0;
    // SAFETY: every load below lies in `at..len` of a row of `len` floats.
    unsafe {
        while at + 32 <= len {
            for (i, sum) in sums.iter_mut().enumerate() {
                let (x, y) = (_mm256_loadu_ps(a.add(at + 8 * i)), _mm256_loadu_ps(b.add(at + 8 * i)));
                let difference = _mm256_sub_ps(x, y);
                *sum = _mm256_fmadd_ps(difference, difference, *sum);
            }
            at += 32;
        }
        if at < len {
            for (i, sum) in sums.iter_mut().take(2).enumerate() {
                let (x, y) = (_mm256_loadu_ps(a.add(at + 8 * i)), _mm256_loadu_ps(b.add(at + 8 * i)));
                let difference = _mm256_sub_ps(x, y);
                *sum = _mm256_fmadd_ps(difference, difference, *sum);
            }
        }
    }
    sum(_mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])))
}

/// Generates a sum over two rows of bytes, sixteen at a time: each is widened to 16 bits by its function, and `$combine` makes
/// pairs of products in 32 bits of them. The byte multiply-add of this instruction set saturates at 16 bits (255 * 127 * 2 = 64770)
/// and would be wrong for large codes.
macro_rules! byte_sum {
    ($name:ident, $what:literal, $combine:expr) => {
        #[doc = $what]
        ///
        /// # Safety
        /// `a` and `b` point to `len` readable bytes; `len` is a multiple of 64.
        #[target_feature(enable = "avx2,fma")]
        #[inline]
        unsafe fn $name(a: *const u8, b: *const u8, len: usize) -> i32 {
            let mut sums = [_mm256_setzero_si256(); 2];
            let mut at = 0;
            while at < len {
                for (i, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: `at + 32 <= len`, as `len` is a multiple of 64 and each round takes two times 16 bytes.
                    let (x, y) = unsafe {
                        (
                            _mm_loadu_si128(a.add(at + 16 * i).cast()),
                            _mm_loadu_si128(b.add(at + 16 * i).cast()),
                        )
                    };
                    *sum = _mm256_add_epi32(*sum, $combine(x, y));
                }
                at += 32;
            }
            let sums = _mm256_add_epi32(sums[0], sums[1]);
            let halves = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
            let pairs = _mm_add_epi32(halves, _mm_unpackhi_epi64(halves, halves));
            _mm_cvtsi128_si32(_mm_add_epi32(pairs, _mm_shuffle_epi32::<1>(pairs)))
        }
    };
}

byte_sum!(product, "A signed query times a stored code.", |q, c| {
    _mm256_madd_epi16(_mm256_cvtepi8_epi16(q), _mm256_cvtepu8_epi16(c))
});
byte_sum!(product_between, "What two stored codes stand for, multiplied.", |x, y| {
    let zero = _mm256_set1_epi16(128);
    _mm256_madd_epi16(
        _mm256_sub_epi16(_mm256_cvtepu8_epi16(x), zero),
        _mm256_sub_epi16(_mm256_cvtepu8_epi16(y), zero),
    )
});
byte_sum!(square, "Squared differences.", |x, y| {
    let difference = _mm256_sub_epi16(_mm256_cvtepu8_epi16(x), _mm256_cvtepu8_epi16(y));
    _mm256_madd_epi16(difference, difference)
});

float_entries!(#[target_feature(enable = "avx2,fma")]);
code_entry!(CODE_DOT, dot_rows, product_between, product, #[target_feature(enable = "avx2,fma")]);
code_entry!(CODE_L2, l2_rows, square, square, #[target_feature(enable = "avx2,fma")]);
