//! The reference: portable, and what every other level is tested against. Sixteen partial sums let any compiler use
//! the registers its baseline has.
use super::LANES;
use super::entries::{code_entry, float_entries};

/// # Safety
/// `a` and `b` point to `len` readable floats; `len` is a multiple of [`LANES`].
#[inline]
unsafe fn dot(a: *const f32, b: *const f32, len: usize) -> f32 {
    // SAFETY: the caller's duty.
    let (a, b) = unsafe { (std::slice::from_raw_parts(a, len), std::slice::from_raw_parts(b, len)) };
    let mut sums = [0.0f32; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum()
}

/// # Safety
/// As [`dot`].
#[inline]
unsafe fn l2(a: *const f32, b: *const f32, len: usize) -> f32 {
    // SAFETY: the caller's duty.
    let (a, b) = unsafe { (std::slice::from_raw_parts(a, len), std::slice::from_raw_parts(b, len)) };
    let mut sums = [0.0f32; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for lane in 0..LANES {
            let difference = a[lane] - b[lane];
            sums[lane] += difference * difference;
        }
    }
    sums.iter().sum()
}

/// # Safety
/// `query` and `code` point to `len` readable bytes.
#[inline]
unsafe fn product(query: *const u8, code: *const i8, len: usize) -> i32 {
    // SAFETY: the caller's duty.
    let (query, code) =
        unsafe { (std::slice::from_raw_parts(query, len), std::slice::from_raw_parts(code, len)) };
    query.iter().zip(code).map(|(&q, &c)| i32::from(q) * i32::from(c)).sum()
}

float_entries!();
code_entry!(CODE, code_rows, product);
