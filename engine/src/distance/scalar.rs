//! The reference: portable, and what every other level is tested against. Sixteen partial sums let any compiler use
//! the registers its baseline has.
use super::LANES;
use super::entries::{code_entry, float_entries};
use super::plane_entries::{plane_entries, widened};

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

/// Sum of `f` over two rows of bytes.
///
/// # Safety
/// `a` and `b` point to `len` readable bytes.
#[inline(always)]
unsafe fn bytes(a: *const u8, b: *const u8, len: usize, f: impl Fn(u8, u8) -> i32) -> i32 {
    // SAFETY: the caller's duty.
    let (a, b) = unsafe { (std::slice::from_raw_parts(a, len), std::slice::from_raw_parts(b, len)) };
    a.iter().zip(b).map(|(&a, &b)| f(a, b)).sum()
}

/// A signed query times a stored code.
///
/// # Safety
/// As [`bytes`].
unsafe fn product(query: *const u8, code: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's duty.
    unsafe { bytes(query, code, len, |q, c| i32::from(q as i8) * i32::from(c)) }
}

/// What two stored codes stand for, multiplied.
///
/// # Safety
/// As [`bytes`].
unsafe fn product_between(a: *const u8, b: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's duty.
    unsafe { bytes(a, b, len, |a, b| (i32::from(a) - 128) * (i32::from(b) - 128)) }
}

/// Squared differences.
///
/// # Safety
/// As [`bytes`].
unsafe fn square(a: *const u8, b: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's duty.
    unsafe { bytes(a, b, len, |a, b| (i32::from(a) - i32::from(b)).pow(2)) }
}

float_entries!();
code_entry!(CODE_DOT, dot_rows, product_between, product);
code_entry!(CODE_L2, l2_rows, square, square);

/// Adds the products of a block, each `shift` bits to the left.
///
/// # Safety
/// `query` points to 64 bytes, `code` to a block of `BITS` bits.
#[inline]
unsafe fn block<const BITS: usize>(sum: i32, query: *const i8, code: *const u8, shift: u32) -> i32 {
    let mut added = 0;
    for at in 0..64 {
        // SAFETY: `at` is within the query and the block.
        added += unsafe { i32::from(*query.add(at)) * i32::from(widened::<BITS>(code, at)) };
    }
    sum + (added << shift)
}

fn finish(sum: i32) -> i32 {
    sum
}

const ONE: unsafe fn(i32, *const i8, *const u8, u32) -> i32 = block::<1>;
const TWO: unsafe fn(i32, *const i8, *const u8, u32) -> i32 = block::<2>;
const FOUR: unsafe fn(i32, *const i8, *const u8, u32) -> i32 = block::<4>;
const EIGHT: unsafe fn(i32, *const i8, *const u8, u32) -> i32 = block::<8>;
plane_entries!(0, finish, ONE, TWO, FOUR, EIGHT);

/// Sums of 32 codes.
///
/// # Safety
/// `tables` and `codes` point to `32 * pairs` readable bytes, `out` to 32 sums.
pub(super) unsafe fn shuffle_sums(tables: *const u8, codes: *const u8, pairs: usize, out: *mut u16) {
    let mut sums = [0_u16; 32];
    for pair in 0..pairs {
        // SAFETY: the caller's, for this pair; nibbles are below 16.
        unsafe {
            let (tables, codes) = (tables.add(32 * pair), codes.add(32 * pair));
            for (at, sum) in sums.iter_mut().enumerate() {
                let byte = usize::from(*codes.add(at));
                let entries = u16::from(*tables.add(byte & 15)) + u16::from(*tables.add(16 + (byte >> 4)));
                *sum = sum.wrapping_add(entries);
            }
        }
    }
    // SAFETY: the caller's.
    unsafe { out.copy_from_nonoverlapping(sums.as_ptr(), 32) }
}
