//! AVX2 with FMA: eight floats per register, four sums in flight to cover the latency of a fused multiply-add.
use std::arch::x86_64::*;

use super::entries::{code_rows, float_entries, plane_entries};
use super::greatest::{GROUP, ROWS, SUMMED, greatest_entry};

/// Eight floats.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn floats(from: &[f32; 8]) -> __m256 {
    // SAFETY: the array has 32 bytes, all of them initialised; any alignment will do.
    unsafe { _mm256_loadu_ps(from.as_ptr()) }
}

/// Sixteen bytes.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn sixteen<T: Into<i16>>(from: &[T; 16]) -> __m128i {
    const { assert!(size_of::<T>() == 1) }
    // SAFETY: the array has 16 bytes, all of them initialised; any alignment will do.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

/// 32 bytes.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn thirty_two<T: Into<i16>>(from: &[T; 32]) -> __m256i {
    const { assert!(size_of::<T>() == 1) }
    // SAFETY: the array has 32 bytes, all of them initialised; any alignment will do.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

/// Sum of the eight lanes, in a fixed order.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn sum(v: __m256) -> f32 {
    let halves = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let pairs = _mm_add_ps(halves, _mm_movehl_ps(halves, halves));
    _mm_cvtss_f32(_mm_add_ss(pairs, _mm_shuffle_ps::<1>(pairs, pairs)))
}

/// Generates a sum over two rows of whole units of `LANES` floats; `$add` adds what eight floats of either are worth.
macro_rules! float_sum {
    ($name:ident, $add:expr) => {
        #[target_feature(enable = "avx2,fma")]
        #[inline]
        fn $name(a: &[f32], b: &[f32]) -> f32 {
            let mut sums = [_mm256_setzero_ps(); 4];
            let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<32>(), b.as_chunks::<32>());
            for (a, b) in a.iter().zip(b) {
                for (sum, (x, y)) in
                    sums.iter_mut().zip(a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0))
                {
                    *sum = $add(*sum, floats(x), floats(y));
                }
            }
            if let (Some(a), Some(b)) = (a_rest.first_chunk::<16>(), b_rest.first_chunk::<16>()) {
                for (sum, (x, y)) in
                    sums.iter_mut().zip(a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0))
                {
                    *sum = $add(*sum, floats(x), floats(y));
                }
            }
            sum(_mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])))
        }
    };
}

float_sum!(dot, |sum, x, y| _mm256_fmadd_ps(x, y, sum));
float_sum!(l2, |sum, x, y| {
    let difference = _mm256_sub_ps(x, y);
    _mm256_fmadd_ps(difference, difference, sum)
});

/// Generates a sum over two rows of bytes, sixteen at a time: each is widened to 16 bits by its function, and `$combine` makes
/// pairs of products in 32 bits of them. The byte multiply-add of this instruction set saturates at 16 bits (255 * 127 * 2 = 64770)
/// and would be wrong for large codes.
macro_rules! byte_sum {
    ($name:ident, $what:literal, $combine:expr) => {
        #[doc = $what]
        /// The rows are whole units of `CODE_LANES`.
        #[target_feature(enable = "avx2,fma")]
        #[inline]
        pub(super) fn $name(a: &[u8], b: &[u8]) -> i32 {
            let mut sums = [_mm256_setzero_si256(); 2];
            for (a, b) in a.as_chunks::<32>().0.iter().zip(b.as_chunks::<32>().0) {
                for (sum, (x, y)) in
                    sums.iter_mut().zip(a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0))
                {
                    *sum = _mm256_add_epi32(*sum, $combine(sixteen(x), sixteen(y)));
                }
            }
            finish(_mm256_add_epi32(sums[0], sums[1]))
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
code_rows!(dot_rows, product, #[target_feature(enable = "avx2,fma")]);
code_rows!(l2_rows, square, #[target_feature(enable = "avx2,fma")]);

/// Adds the products of 32 components of at most 6 bits: pairs of them fit 16 bits.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn add_small(sum: __m256i, query: &[i8; 32], components: __m256i) -> __m256i {
    let pairs = _mm256_maddubs_epi16(components, thirty_two(query));
    _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn one(mut sum: __m256i, query: &[i8; 64], code: &[u8; 8], _: u32) -> __m256i {
    let byte_of = _mm256_setr_epi8(
        0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3,
    );
    let bit_of = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    for (query, &code) in query.as_chunks::<32>().0.iter().zip(code.as_chunks::<4>().0) {
        let code = _mm256_set1_epi32(i32::from_le_bytes(code));
        let bits = _mm256_and_si256(_mm256_shuffle_epi8(code, byte_of), bit_of);
        let ones = _mm256_and_si256(_mm256_cmpeq_epi8(bits, bit_of), _mm256_set1_epi8(1));
        sum = add_small(sum, query, ones);
    }
    sum
}

/// `up` is at most 4.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn two(mut sum: __m256i, query: &[i8; 64], code: &[u8; 16], up: u32) -> __m256i {
    let code = _mm256_broadcastsi128_si256(sixteen(code));
    let up = _mm_cvtsi32_si128(up as i32);
    for (query, half) in query.as_chunks::<32>().0.iter().zip(0..) {
        let shifts = _mm256_add_epi64(_mm256_setr_epi64x(0, 0, 2, 2), _mm256_set1_epi64x(4 * half));
        let pairs = _mm256_and_si256(_mm256_srlv_epi64(code, shifts), _mm256_set1_epi8(3));
        sum = add_small(sum, query, _mm256_sll_epi64(pairs, up));
    }
    sum
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn four(sum: __m256i, query: &[i8; 64], code: &[u8; 32], _: u32) -> __m256i {
    let [low, high] = *query.as_chunks::<32>().0 else { return sum };
    let code = thirty_two(code);
    let mask = _mm256_set1_epi8(15);
    let sum = add_small(sum, &low, _mm256_and_si256(code, mask));
    add_small(sum, &high, _mm256_and_si256(_mm256_srli_epi64::<4>(code), mask))
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn eight(mut sum: __m256i, query: &[i8; 64], code: &[u8; 64], _: u32) -> __m256i {
    for (query, code) in query.as_chunks::<16>().0.iter().zip(code.as_chunks::<16>().0) {
        let (q, c) = (_mm256_cvtepi8_epi16(sixteen(query)), _mm256_cvtepu8_epi16(sixteen(code)));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(q, c));
    }
    sum
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn finish(sum: __m256i) -> i32 {
    let halves = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
    let pairs = _mm_add_epi32(halves, _mm_unpackhi_epi64(halves, halves));
    _mm_cvtsi128_si32(_mm_add_epi32(pairs, _mm_shuffle_epi32::<1>(pairs)))
}

plane_entries!(
    _mm256_setzero_si256(),
    finish,
    one,
    two,
    four,
    eight,
    #[target_feature(enable = "avx2,fma")]
);

/// Replaces each number by the maximum of itself and the number in the same lane of the register.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn raise(greatest: &mut [f32; GROUP], products: __m256) {
    let raised = _mm256_max_ps(products, floats(greatest));
    // SAFETY: the array has the eight floats; any alignment will do.
    unsafe { _mm256_storeu_ps(greatest.as_mut_ptr(), raised) }
}

greatest_entry!(
    greatest,
    __m256,
    _mm256_setzero_ps(),
    floats,
    |sum, column, component| _mm256_fmadd_ps(column, _mm256_set1_ps(component), sum),
    _mm256_add_ps,
    raise,
    #[target_feature(enable = "avx2,fma")]
);

/// Sums of 32 codes. Entries of neighbouring codes share lanes of 16 bits: the upper ones are summed for themselves as well, and
/// taken away in the end.
#[target_feature(enable = "avx2,fma")]
pub(super) fn shuffle_sums(tables: &[u8], codes: &[u8], out: &mut [u16; 32]) {
    let nibble = _mm256_set1_epi8(15);
    let (mut both, mut odd) = (_mm256_setzero_si256(), _mm256_setzero_si256());
    for (tables, codes) in tables.as_chunks::<32>().0.iter().zip(codes.as_chunks::<32>().0) {
        let [low, high] = tables.as_chunks::<16>().0 else { continue };
        let (low, high) =
            (_mm256_broadcastsi128_si256(sixteen(low)), _mm256_broadcastsi128_si256(sixteen(high)));
        let codes = thirty_two(codes);
        let below = _mm256_shuffle_epi8(low, _mm256_and_si256(codes, nibble));
        let above = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16::<4>(codes), nibble));
        both = _mm256_add_epi16(both, _mm256_add_epi16(below, above));
        // The carry of the lower of two bytes goes to the upper one in `both`, and comes back below.
        odd = _mm256_add_epi16(
            odd,
            _mm256_add_epi16(_mm256_srli_epi16::<8>(below), _mm256_srli_epi16::<8>(above)),
        );
    }
    store_sums(both, odd, out);
}

/// Even codes are what is left of `both` without the odd ones; in order they go to `out`.
#[target_feature(enable = "avx2,fma")]
#[inline]
pub(super) fn store_sums(both: __m256i, odd: __m256i, out: &mut [u16; 32]) {
    let even = _mm256_sub_epi16(both, _mm256_slli_epi16::<8>(odd));
    let (low, high) = (_mm256_unpacklo_epi16(even, odd), _mm256_unpackhi_epi16(even, odd));
    let out = out.as_mut_ptr();
    // SAFETY: `out` has 32 sums, half of them for each register, of any alignment.
    unsafe {
        _mm256_storeu_si256(out.cast(), _mm256_permute2x128_si256::<0x20>(low, high));
        _mm256_storeu_si256(out.add(16).cast(), _mm256_permute2x128_si256::<0x31>(low, high));
    }
}
