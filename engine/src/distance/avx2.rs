//! AVX2 with FMA: eight floats per register, four sums in flight to cover the latency of a fused multiply-add.
use std::arch::x86_64::*;

use super::entries::{code_entry, float_entries};
use super::plane_entries::plane_entries;

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
code_entry!(CODE_DOT, dot_rows, product_between, product, #[target_feature(enable = "avx2,fma")]);
code_entry!(CODE_L2, l2_rows, square, square, #[target_feature(enable = "avx2,fma")]);

/// Adds the products of 32 components of at most 6 bits: pairs of them fit 16 bits.
///
/// # Safety
/// `query` points to 32 readable bytes.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn add_small(sum: __m256i, query: *const i8, components: __m256i) -> __m256i {
    // SAFETY: the caller's.
    let query = unsafe { _mm256_loadu_si256(query.cast()) };
    let pairs = _mm256_maddubs_epi16(components, query);
    _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

/// # Safety
/// `query` points to 64 readable bytes, `code` to 8.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn one(mut sum: __m256i, query: *const i8, code: *const u8, _: u32) -> __m256i {
    let byte_of = _mm256_setr_epi8(
        0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3,
    );
    let bit_of = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    for half in 0..2 {
        // SAFETY: the caller's: 4 bytes of the code and 32 of the query for each half.
        unsafe {
            let code = _mm256_set1_epi32(code.add(4 * half).cast::<i32>().read_unaligned());
            let bits = _mm256_and_si256(_mm256_shuffle_epi8(code, byte_of), bit_of);
            let ones = _mm256_and_si256(_mm256_cmpeq_epi8(bits, bit_of), _mm256_set1_epi8(1));
            sum = add_small(sum, query.add(32 * half), ones);
        }
    }
    sum
}

/// # Safety
/// `query` points to 64 readable bytes, `code` to 16; `up` is at most 4.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn two(mut sum: __m256i, query: *const i8, code: *const u8, up: u32) -> __m256i {
    // SAFETY: the caller's.
    let code = unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(code.cast())) };
    let up = _mm_cvtsi32_si128(up as i32);
    for half in 0..2 {
        let shifts = _mm256_add_epi64(_mm256_setr_epi64x(0, 0, 2, 2), _mm256_set1_epi64x(4 * half));
        let pairs = _mm256_and_si256(_mm256_srlv_epi64(code, shifts), _mm256_set1_epi8(3));
        // SAFETY: the caller's: 32 bytes of the query for each half.
        sum = unsafe { add_small(sum, query.add(32 * half as usize), _mm256_sll_epi64(pairs, up)) };
    }
    sum
}

/// # Safety
/// `query` points to 64 readable bytes, `code` to 32.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn four(sum: __m256i, query: *const i8, code: *const u8, _: u32) -> __m256i {
    // SAFETY: the caller's.
    unsafe {
        let code = _mm256_loadu_si256(code.cast());
        let mask = _mm256_set1_epi8(15);
        let sum = add_small(sum, query, _mm256_and_si256(code, mask));
        add_small(sum, query.add(32), _mm256_and_si256(_mm256_srli_epi64::<4>(code), mask))
    }
}

/// # Safety
/// `query` and `code` point to 64 readable bytes.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn eight(mut sum: __m256i, query: *const i8, code: *const u8, _: u32) -> __m256i {
    for quarter in 0..4 {
        // SAFETY: the caller's: 16 bytes of both for each quarter.
        let (q, c) = unsafe {
            (_mm_loadu_si128(query.add(16 * quarter).cast()), _mm_loadu_si128(code.add(16 * quarter).cast()))
        };
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_cvtepi8_epi16(q), _mm256_cvtepu8_epi16(c)));
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

/// Sums of 32 codes. Entries of neighbouring codes share lanes of 16 bits: the upper ones are summed for themselves as well, and
/// taken away in the end.
///
/// # Safety
/// `tables` and `codes` point to `32 * pairs` readable bytes, `out` to 32 sums; the CPU has AVX2.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn shuffle_sums(tables: *const u8, codes: *const u8, pairs: usize, out: *mut u16) {
    let nibble = _mm256_set1_epi8(15);
    let (mut both, mut odd) = (_mm256_setzero_si256(), _mm256_setzero_si256());
    for pair in 0..pairs {
        // SAFETY: the caller's, for this pair.
        let (low, high, codes) = unsafe {
            (
                _mm256_broadcastsi128_si256(_mm_loadu_si128(tables.add(32 * pair).cast())),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(tables.add(32 * pair + 16).cast())),
                _mm256_loadu_si256(codes.add(32 * pair).cast()),
            )
        };
        let below = _mm256_shuffle_epi8(low, _mm256_and_si256(codes, nibble));
        let above = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16::<4>(codes), nibble));
        both = _mm256_add_epi16(both, _mm256_add_epi16(below, above));
        // The carry of the lower of two bytes goes to the upper one in `both`, and comes back below.
        odd = _mm256_add_epi16(
            odd,
            _mm256_add_epi16(_mm256_srli_epi16::<8>(below), _mm256_srli_epi16::<8>(above)),
        );
    }
    // SAFETY: the caller's.
    unsafe { store_sums(both, odd, out) }
}

/// Even codes are what is left of `both` without the odd ones; in order they go to `out`.
///
/// # Safety
/// `out` points to 32 sums; the CPU has AVX2.
#[target_feature(enable = "avx2,fma")]
#[inline]
pub(super) unsafe fn store_sums(both: __m256i, odd: __m256i, out: *mut u16) {
    let even = _mm256_sub_epi16(both, _mm256_slli_epi16::<8>(odd));
    let (low, high) = (_mm256_unpacklo_epi16(even, odd), _mm256_unpackhi_epi16(even, odd));
    // SAFETY: the caller's.
    unsafe {
        _mm256_storeu_si256(out.cast(), _mm256_permute2x128_si256::<0x20>(low, high));
        _mm256_storeu_si256(out.add(16).cast(), _mm256_permute2x128_si256::<0x31>(low, high));
    }
}
