//! AVX-512: sixteen floats per register, four sums in flight. The code product uses VNNI, a level of its own as
//! some CPUs have the one without the other.
use std::arch::x86_64::*;

use super::entries::{code_entry, float_entries};
use super::plane_entries::plane_entries;

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

/// Adds the products of 64 components in a register.
///
/// # Safety
/// `query` points to 64 readable bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
unsafe fn add_block(sum: __m512i, query: *const i8, components: __m512i) -> __m512i {
    // SAFETY: the caller's.
    let query = unsafe { _mm512_loadu_si512(query.cast()) };
    _mm512_dpbusd_epi32(sum, components, query)
}

/// # Safety
/// `query` points to 64 readable bytes, `code` to 8.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
unsafe fn one(sum: __m512i, query: *const i8, code: *const u8, _: u32) -> __m512i {
    // SAFETY: the caller's.
    unsafe {
        let mask = code.cast::<u64>().read_unaligned();
        add_block(sum, query, _mm512_maskz_set1_epi8(mask, 1))
    }
}

/// # Safety
/// `query` points to 64 readable bytes, `code` to 16; `up` is at most 4.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
unsafe fn two(sum: __m512i, query: *const i8, code: *const u8, up: u32) -> __m512i {
    // SAFETY: the caller's.
    unsafe {
        let code = _mm512_broadcast_i32x4(_mm_loadu_si128(code.cast()));
        // A quarter for each pair of bits.
        let shifts = _mm512_set_epi64(6, 6, 4, 4, 2, 2, 0, 0);
        let pairs = _mm512_and_si512(_mm512_srlv_epi64(code, shifts), _mm512_set1_epi8(3));
        add_block(sum, query, _mm512_sll_epi64(pairs, _mm_cvtsi32_si128(up as i32)))
    }
}

/// # Safety
/// `query` points to 64 readable bytes, `code` to 32.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
unsafe fn four(sum: __m512i, query: *const i8, code: *const u8, _: u32) -> __m512i {
    // SAFETY: the caller's.
    unsafe {
        let code = _mm512_broadcast_i64x4(_mm256_loadu_si256(code.cast()));
        let shifts = _mm512_set_epi64(4, 4, 4, 4, 0, 0, 0, 0);
        add_block(sum, query, _mm512_and_si512(_mm512_srlv_epi64(code, shifts), _mm512_set1_epi8(15)))
    }
}

/// # Safety
/// `query` and `code` point to 64 readable bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
unsafe fn eight(sum: __m512i, query: *const i8, code: *const u8, _: u32) -> __m512i {
    // SAFETY: the caller's.
    unsafe { add_block(sum, query, _mm512_loadu_si512(code.cast())) }
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
///
/// # Safety
/// `tables` and `codes` point to `32 * pairs` readable bytes, `out` to 32 sums; the CPU has AVX2, AVX-512 F and BW.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw")]
pub(super) unsafe fn shuffle_sums(tables: *const u8, codes: *const u8, pairs: usize, out: *mut u16) {
    let nibble = _mm512_set1_epi8(15);
    let (mut both, mut odd) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    for pair in (0..pairs).step_by(2) {
        // An odd pair at the end: what is masked reads as zero and is not touched.
        let mask = if pair + 1 < pairs { u16::MAX } else { 0xff };
        // SAFETY: the caller's, for this pair and, but where it is masked, the next.
        let (tables, codes) = unsafe {
            (
                _mm512_maskz_loadu_epi32(mask, tables.add(32 * pair).cast()),
                _mm512_maskz_loadu_epi32(mask, codes.add(32 * pair).cast()),
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
    // SAFETY: the caller's.
    unsafe { super::avx2::store_sums(fold(both), fold(odd), out) }
}
