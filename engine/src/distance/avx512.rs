//! AVX-512: sixteen floats per register, four sums in flight. The code product uses VNNI, a level of its own as
//! some CPUs have the one without the other.
use std::arch::x86_64::*;

use super::entries::{code_entry, float_entries};

/// # Safety
/// `a` and `b` point to `len` readable floats; `len` is a multiple of 16.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn dot(a: *const f32, b: *const f32, len: usize) -> f32 {
    let mut sums = [_mm512_setzero_ps(); 4];
    let mut at = 0;
    // SAFETY: every load below lies in `at..len` of a row of `len` floats.
    unsafe {
        while at + 64 <= len {
            for (i, sum) in sums.iter_mut().enumerate() {
                let (x, y) = (_mm512_loadu_ps(a.add(at + 16 * i)), _mm512_loadu_ps(b.add(at + 16 * i)));
                *sum = _mm512_fmadd_ps(x, y, *sum);
            }
            at += 64;
        }
        while at < len {
            sums[0] = _mm512_fmadd_ps(_mm512_loadu_ps(a.add(at)), _mm512_loadu_ps(b.add(at)), sums[0]);
            at += 16;
        }
    }
    _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3])))
}

/// # Safety
/// As [`dot`].
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn l2(a: *const f32, b: *const f32, len: usize) -> f32 {
    let mut sums = [_mm512_setzero_ps(); 4];
    let mut at = 0;
    // SAFETY: every load below lies in `at..len` of a row of `len` floats.
    unsafe {
        while at + 64 <= len {
            for (i, sum) in sums.iter_mut().enumerate() {
                let (x, y) = (_mm512_loadu_ps(a.add(at + 16 * i)), _mm512_loadu_ps(b.add(at + 16 * i)));
                let difference = _mm512_sub_ps(x, y);
                *sum = _mm512_fmadd_ps(difference, difference, *sum);
            }
            at += 64;
        }
        while at < len {
            let difference = _mm512_sub_ps(_mm512_loadu_ps(a.add(at)), _mm512_loadu_ps(b.add(at)));
            sums[0] = _mm512_fmadd_ps(difference, difference, sums[0]);
            at += 16;
        }
    }
    _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3])))
}

/// A signed query times a stored code.
///
/// # Safety
/// `query` and `code` point to `len` readable bytes; `len` is a multiple of 64.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
unsafe fn product(query: *const u8, code: *const u8, len: usize) -> i32 {
    let mut sums = [_mm512_setzero_si512(); 2];
    let mut at = 0;
    // SAFETY: every load below lies in `at..len` of rows of `len` bytes.
    unsafe {
        while at + 128 <= len {
            for (i, sum) in sums.iter_mut().enumerate() {
                let q = _mm512_loadu_si512(query.add(at + 64 * i).cast());
                let c = _mm512_loadu_si512(code.add(at + 64 * i).cast());
                *sum = _mm512_dpbusd_epi32(*sum, c, q);
            }
            at += 128;
        }
        if at < len {
            let q = _mm512_loadu_si512(query.add(at).cast());
            let c = _mm512_loadu_si512(code.add(at).cast());
            sums[0] = _mm512_dpbusd_epi32(sums[0], c, q);
        }
    }
    _mm512_reduce_add_epi32(_mm512_add_epi32(sums[0], sums[1]))
}

/// What two stored codes stand for, multiplied: `sum(a * (b - 128)) - 128 * sum(b - 128)`.
///
/// # Safety
/// As [`product`].
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
unsafe fn product_between(a: *const u8, b: *const u8, len: usize) -> i32 {
    let zero = _mm512_set1_epi8(i8::MIN);
    let (mut sum, mut shift) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    for at in (0..len).step_by(64) {
        // SAFETY: the loads lie in `at..len` of rows of `len` bytes, a multiple of 64.
        let (x, y) = unsafe { (_mm512_loadu_si512(a.add(at).cast()), _mm512_loadu_si512(b.add(at).cast())) };
        // The bits of 128 are those of the least signed byte; flipping them takes 128 away.
        let signed = _mm512_xor_si512(y, zero);
        sum = _mm512_dpbusd_epi32(sum, x, signed);
        shift = _mm512_dpbusd_epi32(shift, zero, signed);
    }
    _mm512_reduce_add_epi32(_mm512_sub_epi32(sum, shift))
}

/// Squared differences.
///
/// # Safety
/// As [`product`].
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
unsafe fn square(a: *const u8, b: *const u8, len: usize) -> i32 {
    let zero = _mm512_setzero_si512();
    let mut sums = [zero; 2];
    for at in (0..len).step_by(64) {
        // SAFETY: the loads lie in `at..len` of rows of `len` bytes, a multiple of 64.
        let (x, y) = unsafe { (_mm512_loadu_si512(a.add(at).cast()), _mm512_loadu_si512(b.add(at).cast())) };
        // One of the two saturates at zero.
        let difference = _mm512_or_si512(_mm512_subs_epu8(x, y), _mm512_subs_epu8(y, x));
        let (low, high) = (_mm512_unpacklo_epi8(difference, zero), _mm512_unpackhi_epi8(difference, zero));
        sums[0] = _mm512_dpwssd_epi32(sums[0], low, low);
        sums[1] = _mm512_dpwssd_epi32(sums[1], high, high);
    }
    _mm512_reduce_add_epi32(_mm512_add_epi32(sums[0], sums[1]))
}

float_entries!(#[target_feature(enable = "avx512f")]);
code_entry!(CODE_DOT, dot_rows, product_between, product, #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]);
code_entry!(CODE_L2, l2_rows, square, square, #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]);
