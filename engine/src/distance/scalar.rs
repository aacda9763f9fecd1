//! The reference: portable, and what every other level is tested against. Sixteen partial sums let any compiler use
//! the registers its baseline has.
use super::LANES;
use super::entries::{code_rows, float_entries, place, plane_entries};
use super::greatest::{GROUP, ROWS, SUMMED, greatest_entry};

#[inline]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    for (a, b) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum()
}

#[inline]
fn l2(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    for (a, b) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            let difference = a[lane] - b[lane];
            sums[lane] += difference * difference;
        }
    }
    sums.iter().sum()
}

/// Sum of `f` over two rows of bytes.
#[inline(always)]
fn bytes(a: &[u8], b: &[u8], f: impl Fn(u8, u8) -> i32) -> i32 {
    a.iter().zip(b).map(|(&a, &b)| f(a, b)).sum()
}

/// A signed query times a stored code.
fn product(query: &[u8], code: &[u8]) -> i32 {
    bytes(query, code, |q, c| i32::from(q as i8) * i32::from(c))
}

/// What two stored codes stand for, multiplied.
pub(super) fn product_between(a: &[u8], b: &[u8]) -> i32 {
    bytes(a, b, |a, b| (i32::from(a) - 128) * (i32::from(b) - 128))
}

/// Squared differences.
pub(super) fn square(a: &[u8], b: &[u8]) -> i32 {
    bytes(a, b, |a, b| (i32::from(a) - i32::from(b)).pow(2))
}

float_entries!();
code_rows!(dot_rows, product);
code_rows!(l2_rows, square);

greatest_entry!(
    greatest,
    [f32; GROUP],
    [0.0; GROUP],
    |column: &[f32; GROUP]| *column,
    |sum: [f32; GROUP], column: [f32; GROUP], component: f32| {
        std::array::from_fn(|lane| sum[lane] + column[lane] * component)
    },
    |total: [f32; GROUP], sum: [f32; GROUP]| std::array::from_fn(|lane| total[lane] + sum[lane]),
    |greatest: &mut [f32; GROUP], products: [f32; GROUP]| {
        for (greatest, product) in greatest.iter_mut().zip(products) {
            *greatest = greatest.max(product);
        }
    }
);

/// Adds the products of a block of `BITS` bits, each `shift` bits to the left.
#[inline]
fn block<const BITS: usize, const BYTES: usize>(
    sum: i32,
    query: &[i8; 64],
    code: &[u8; BYTES],
    shift: u32,
) -> i32 {
    let mut added = 0;
    for (at, &query) in query.iter().enumerate() {
        let (byte, shift) = place::<BITS>(at);
        let component = code[byte] >> shift & ((1_u16 << BITS) - 1) as u8;
        added += i32::from(query) * i32::from(component);
    }
    sum + (added << shift)
}

fn finish(sum: i32) -> i32 {
    sum
}

const ONE: fn(i32, &[i8; 64], &[u8; 8], u32) -> i32 = block::<1, 8>;
const TWO: fn(i32, &[i8; 64], &[u8; 16], u32) -> i32 = block::<2, 16>;
const FOUR: fn(i32, &[i8; 64], &[u8; 32], u32) -> i32 = block::<4, 32>;
const EIGHT: fn(i32, &[i8; 64], &[u8; 64], u32) -> i32 = block::<8, 64>;
plane_entries!(0, finish, ONE, TWO, FOUR, EIGHT);

/// Sums of 32 codes.
pub(super) fn shuffle_sums(tables: &[u8], codes: &[u8], out: &mut [u16; 32]) {
    *out = [0; 32];
    for (tables, codes) in tables.as_chunks::<32>().0.iter().zip(codes.as_chunks::<32>().0) {
        for (sum, &byte) in out.iter_mut().zip(codes) {
            let byte = usize::from(byte);
            let entries = u16::from(tables[byte & 15]) + u16::from(tables[16 + (byte >> 4)]);
            *sum = sum.wrapping_add(entries);
        }
    }
}
