//! AVX-512: sixteen floats per register, four sums in flight. The code product uses VNNI, a level of its own as
//! some CPUs have the one without the other.
use std::arch::x86_64::*;

use super::entries::{code_rows, float_entries, plane_entries};

/// Sixteen floats.
#[target_feature(enable = "avx512f")]
#[inline]
fn floats(from: &[f32; 16]) -> __m512 {
    // SAFETY: the array has 64 bytes, all of them initialised; any alignment will do.
    unsafe { _mm512_loadu_ps(from.as_ptr()) }
}

/// 64 bytes.
#[target_feature(enable = "avx512f")]
#[inline]
fn bytes<T: Into<i16>>(from: &[T; 64]) -> __m512i {
    const { assert!(size_of::<T>() == 1) }
    // SAFETY: the array has 64 bytes, all of them initialised; any alignment will do.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

/// Generates a sum over two rows of whole units of `LANES` floats; `$add` adds what sixteen floats of either are worth.
macro_rules! float_sum {
    ($name:ident, $add:expr) => {
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn $name(a: &[f32], b: &[f32]) -> f32 {
            let mut sums = [_mm512_setzero_ps(); 4];
            let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<64>(), b.as_chunks::<64>());
            for (a, b) in a.iter().zip(b) {
                for (sum, (x, y)) in
                    sums.iter_mut().zip(a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0))
                {
                    *sum = $add(*sum, floats(x), floats(y));
                }
            }
            for (x, y) in a_rest.as_chunks::<16>().0.iter().zip(b_rest.as_chunks::<16>().0) {
                sums[0] = $add(sums[0], floats(x), floats(y));
            }
            _mm512_reduce_add_ps(_mm512_add_ps(
                _mm512_add_ps(sums[0], sums[1]),
                _mm512_add_ps(sums[2], sums[3]),
            ))
        }
    };
}

float_sum!(dot, |sum, x, y| _mm512_fmadd_ps(x, y, sum));
float_sum!(l2, |sum, x, y| {
    let difference = _mm512_sub_ps(x, y);
    _mm512_fmadd_ps(difference, difference, sum)
});

/// A signed query times a stored code. The rows are whole units of `CODE_LANES`, here and below.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
fn product(query: &[u8], code: &[u8]) -> i32 {
    let mut sums = [_mm512_setzero_si512(); 2];
    let ((query, query_rest), (code, code_rest)) = (query.as_chunks::<128>(), code.as_chunks::<128>());
    for (query, code) in query.iter().zip(code) {
        for (sum, (q, c)) in
            sums.iter_mut().zip(query.as_chunks::<64>().0.iter().zip(code.as_chunks::<64>().0))
        {
            *sum = _mm512_dpbusd_epi32(*sum, bytes(c), bytes(q));
        }
    }
    if let (Some(q), Some(c)) = (query_rest.first_chunk::<64>(), code_rest.first_chunk::<64>()) {
        sums[0] = _mm512_dpbusd_epi32(sums[0], bytes(c), bytes(q));
    }
    _mm512_reduce_add_epi32(_mm512_add_epi32(sums[0], sums[1]))
}

/// What two stored codes stand for, multiplied: `sum(a * (b - 128)) - 128 * sum(b - 128)`.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
pub(super) fn product_between(a: &[u8], b: &[u8]) -> i32 {
    let zero = _mm512_set1_epi8(i8::MIN);
    let (mut sum, mut shift) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    for (x, y) in a.as_chunks::<64>().0.iter().zip(b.as_chunks::<64>().0) {
        // The bits of 128 are those of the least signed byte; flipping them takes 128 away.
        let signed = _mm512_xor_si512(bytes(y), zero);
        sum = _mm512_dpbusd_epi32(sum, bytes(x), signed);
        shift = _mm512_dpbusd_epi32(shift, zero, signed);
    }
    _mm512_reduce_add_epi32(_mm512_sub_epi32(sum, shift))
}

/// Squared differences.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
pub(super) fn square(a: &[u8], b: &[u8]) -> i32 {
    let zero = _mm512_setzero_si512();
    let mut sums = [zero; 2];
    for (x, y) in a.as_chunks::<64>().0.iter().zip(b.as_chunks::<64>().0) {
        let (x, y) = (bytes(x), bytes(y));
        // One of the two saturates at zero.
        let difference = _mm512_or_si512(_mm512_subs_epu8(x, y), _mm512_subs_epu8(y, x));
        let (low, high) = (_mm512_unpacklo_epi8(difference, zero), _mm512_unpackhi_epi8(difference, zero));
        sums[0] = _mm512_dpwssd_epi32(sums[0], low, low);
        sums[1] = _mm512_dpwssd_epi32(sums[1], high, high);
    }
    _mm512_reduce_add_epi32(_mm512_add_epi32(sums[0], sums[1]))
}

float_entries!(#[target_feature(enable = "avx512f")]);
code_rows!(dot_rows, product, #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]);
code_rows!(l2_rows, square, #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]);

/// Adds the products of 64 components in a register.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
fn add_block(sum: __m512i, query: &[i8; 64], components: __m512i) -> __m512i {
    _mm512_dpbusd_epi32(sum, components, bytes(query))
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
fn one(sum: __m512i, query: &[i8; 64], code: &[u8; 8], _: u32) -> __m512i {
    add_block(sum, query, _mm512_maskz_set1_epi8(u64::from_le_bytes(*code), 1))
}

/// `up` is at most 4.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
fn two(sum: __m512i, query: &[i8; 64], code: &[u8; 16], up: u32) -> __m512i {
    // SAFETY: the array has 16 bytes, all of them initialised; any alignment will do.
    let code = unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(code.as_ptr().cast())) };
    // A quarter for each pair of bits.
    let shifts = _mm512_set_epi64(6, 6, 4, 4, 2, 2, 0, 0);
    let pairs = _mm512_and_si512(_mm512_srlv_epi64(code, shifts), _mm512_set1_epi8(3));
    add_block(sum, query, _mm512_sll_epi64(pairs, _mm_cvtsi32_si128(up as i32)))
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
fn four(sum: __m512i, query: &[i8; 64], code: &[u8; 32], _: u32) -> __m512i {
    // SAFETY: the array has 32 bytes, all of them initialised; any alignment will do.
    let code = unsafe { _mm512_broadcast_i64x4(_mm256_loadu_si256(code.as_ptr().cast())) };
    let shifts = _mm512_set_epi64(4, 4, 4, 4, 0, 0, 0, 0);
    add_block(sum, query, _mm512_and_si512(_mm512_srlv_epi64(code, shifts), _mm512_set1_epi8(15)))
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
fn eight(sum: __m512i, query: &[i8; 64], code: &[u8; 64], _: u32) -> __m512i {
    add_block(sum, query, bytes(code))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn finish(sum: __m512i) -> i32 {
    _mm512_reduce_add_epi32(sum)
}

plane_entries!(
    _mm512_setzero_si512(),
    finish,
    one,
    two,
    four,
    eight,
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
);

/// Sums of 32 codes, two pairs of numbers at a time; otherwise as AVX2 does it.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw")]
pub(super) fn shuffle_sums(tables: &[u8], codes: &[u8], out: &mut [u16; 32]) {
    let nibble = _mm512_set1_epi8(15);
    let (mut both, mut odd) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    for (tables, codes) in tables.chunks(64).zip(codes.chunks(64)) {
        // An odd pair at the end: what is masked reads as zero and is not touched.
        let mask = if tables.len().min(codes.len()) == 64 { u16::MAX } else { 0xff };
        assert!(tables.len() >= 32 && codes.len() >= 32, "whole pairs of numbers");
        // SAFETY: either has the bytes of this pair (asserted) and, but where it is masked, of the next.
        let (tables, codes) = unsafe {
            (
                _mm512_maskz_loadu_epi32(mask, tables.as_ptr().cast()),
                _mm512_maskz_loadu_epi32(mask, codes.as_ptr().cast()),
            )
        };
        let low = _mm512_shuffle_i32x4::<0b10_10_00_00>(tables, tables);
        let high = _mm512_shuffle_i32x4::<0b11_11_01_01>(tables, tables);
        let below = _mm512_shuffle_epi8(low, _mm512_and_si512(codes, nibble));
        let above = _mm512_shuffle_epi8(high, _mm512_and_si512(_mm512_srli_epi16::<4>(codes), nibble));
        both = _mm512_add_epi16(both, _mm512_add_epi16(below, above));
        odd = _mm512_add_epi16(
            odd,
            _mm512_add_epi16(_mm512_srli_epi16::<8>(below), _mm512_srli_epi16::<8>(above)),
        );
    }
    let fold = |sums| _mm256_add_epi16(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64::<1>(sums));
    super::avx2::store_sums(fold(both), fold(odd), out);
}
