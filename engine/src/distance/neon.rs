//! NEON, part of every 64-bit Arm CPU: four floats per register, four sums in flight.
use std::arch::aarch64::*;

use super::entries::{code_rows, float_entries, plane_entries};

/// Four floats.
#[target_feature(enable = "neon")]
#[inline]
fn floats(from: &[f32; 4]) -> float32x4_t {
    // SAFETY: the array has the four floats.
    unsafe { vld1q_f32(from.as_ptr()) }
}

/// Sixteen bytes.
#[target_feature(enable = "neon")]
#[inline]
fn sixteen(from: &[u8; 16]) -> uint8x16_t {
    // SAFETY: the array has the 16 bytes.
    unsafe { vld1q_u8(from.as_ptr()) }
}

/// Generates a sum over two rows of whole units of `LANES` floats; `$add` adds what four floats of either are worth.
macro_rules! float_sum {
    ($name:ident, $add:expr) => {
        #[target_feature(enable = "neon")]
        #[inline]
        fn $name(a: &[f32], b: &[f32]) -> f32 {
            let mut sums = [vdupq_n_f32(0.0); 4];
            for (a, b) in a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0) {
                for (sum, (x, y)) in
                    sums.iter_mut().zip(a.as_chunks::<4>().0.iter().zip(b.as_chunks::<4>().0))
                {
                    *sum = $add(*sum, floats(x), floats(y));
                }
            }
            vaddvq_f32(vaddq_f32(vaddq_f32(sums[0], sums[1]), vaddq_f32(sums[2], sums[3])))
        }
    };
}

float_sum!(dot, |sum, x, y| vfmaq_f32(sum, x, y));
float_sum!(l2, |sum, x, y| {
    let difference = vsubq_f32(x, y);
    vfmaq_f32(sum, difference, difference)
});

/// Generates a sum over two rows of bytes, sixteen at a time; `$add` adds those of one half to four sums.
macro_rules! byte_sum {
    ($name:ident, $what:literal, $add:expr) => {
        #[doc = $what]
        /// The rows are whole units of `CODE_LANES`.
        #[target_feature(enable = "neon")]
        #[inline]
        pub(super) fn $name(a: &[u8], b: &[u8]) -> i32 {
            let mut sums = [vdupq_n_s32(0); 2];
            for (x, y) in a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0) {
                let (x, y) = (sixteen(x), sixteen(y));
                sums[0] = $add(sums[0], vget_low_u8(x), vget_low_u8(y));
                sums[1] = $add(sums[1], vget_high_u8(x), vget_high_u8(y));
            }
            vaddvq_s32(vaddq_s32(sums[0], sums[1]))
        }
    };
}

// Widened to 16 bits: the mixed-sign byte product is an extension that not every CPU has.
byte_sum!(product, "A signed query times a stored code.", |sum, q: uint8x8_t, c: uint8x8_t| {
    // Unsigned bytes widened to 16 bits are below 256, so reading them as signed changes nothing.
    let (q, c) = (vmovl_s8(vreinterpret_s8_u8(q)), vreinterpretq_s16_u16(vmovl_u8(c)));
    vmlal_high_s16(vmlal_s16(sum, vget_low_s16(q), vget_low_s16(c)), q, c)
});
byte_sum!(
    product_between,
    "What two stored codes stand for, multiplied.",
    |sum, x: uint8x8_t, y: uint8x8_t| {
        // Flipping the top bit takes 128 away. A product of signed bytes fits 16 bits.
        let signed = |bytes| vreinterpret_s8_u8(veor_u8(bytes, vdup_n_u8(128)));
        vpadalq_s16(sum, vmull_s8(signed(x), signed(y)))
    }
);
byte_sum!(square, "Squared differences.", |sum, x: uint8x8_t, y: uint8x8_t| {
    let difference = vreinterpretq_s16_u16(vabdl_u8(x, y));
    let low = vget_low_s16(difference);
    vmlal_high_s16(vmlal_s16(sum, low, low), difference, difference)
});

float_entries!(#[target_feature(enable = "neon")]);
code_rows!(dot_rows, product, #[target_feature(enable = "neon")]);
code_rows!(l2_rows, square, #[target_feature(enable = "neon")]);

/// Adds the products of 16 components.
#[target_feature(enable = "neon")]
#[inline]
fn add_sixteen(sum: int32x4_t, query: &[i8; 16], components: uint8x16_t) -> int32x4_t {
    // SAFETY: the array has the 16 bytes.
    let query = unsafe { vld1q_s8(query.as_ptr()) };
    let low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(components)));
    let high = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(components)));
    let (q_low, q_high) = (vmovl_s8(vget_low_s8(query)), vmovl_s8(vget_high_s8(query)));
    let sum = vmlal_high_s16(vmlal_s16(sum, vget_low_s16(q_low), vget_low_s16(low)), q_low, low);
    vmlal_high_s16(vmlal_s16(sum, vget_low_s16(q_high), vget_low_s16(high)), q_high, high)
}

#[target_feature(enable = "neon")]
#[inline]
fn one(mut sum: int32x4_t, query: &[i8; 64], code: &[u8; 8], _: u32) -> int32x4_t {
    let bits = vcreate_u8(0x8040_2010_0804_0201);
    let bit_of = vcombine_u8(bits, bits);
    for (query, &[first, second]) in query.as_chunks::<16>().0.iter().zip(code.as_chunks::<2>().0) {
        let code = vcombine_u8(vdup_n_u8(first), vdup_n_u8(second));
        let ones = vandq_u8(vtstq_u8(code, bit_of), vdupq_n_u8(1));
        sum = add_sixteen(sum, query, ones);
    }
    sum
}

/// `up` is at most 4.
#[target_feature(enable = "neon")]
#[inline]
fn two(mut sum: int32x4_t, query: &[i8; 64], code: &[u8; 16], up: u32) -> int32x4_t {
    let code = sixteen(code);
    for (query, quarter) in query.as_chunks::<16>().0.iter().zip(0_i8..) {
        let pairs = vandq_u8(vshlq_u8(code, vdupq_n_s8(-2 * quarter)), vdupq_n_u8(3));
        sum = add_sixteen(sum, query, vshlq_u8(pairs, vdupq_n_s8(up as i8)));
    }
    sum
}

#[target_feature(enable = "neon")]
#[inline]
fn four(mut sum: int32x4_t, query: &[i8; 64], code: &[u8; 32], _: u32) -> int32x4_t {
    let (low, high) = query.split_at(32);
    let queries = low.as_chunks::<16>().0.iter().zip(high.as_chunks::<16>().0);
    for (code, (low, high)) in code.as_chunks::<16>().0.iter().zip(queries) {
        let code = sixteen(code);
        sum = add_sixteen(sum, low, vandq_u8(code, vdupq_n_u8(15)));
        sum = add_sixteen(sum, high, vshrq_n_u8::<4>(code));
    }
    sum
}

#[target_feature(enable = "neon")]
#[inline]
fn eight(mut sum: int32x4_t, query: &[i8; 64], code: &[u8; 64], _: u32) -> int32x4_t {
    for (query, code) in query.as_chunks::<16>().0.iter().zip(code.as_chunks::<16>().0) {
        sum = add_sixteen(sum, query, sixteen(code));
    }
    sum
}

#[target_feature(enable = "neon")]
#[inline]
fn finish(sum: int32x4_t) -> i32 {
    vaddvq_s32(sum)
}

plane_entries!(
    vdupq_n_s32(0),
    finish,
    one,
    two,
    four,
    eight,
    #[target_feature(enable = "neon")]
);

/// Sums of 32 codes.
#[target_feature(enable = "neon")]
pub(super) fn shuffle_sums(tables: &[u8], codes: &[u8], out: &mut [u16; 32]) {
    let mut sums = [vdupq_n_u16(0); 4];
    for (tables, codes) in tables.as_chunks::<32>().0.iter().zip(codes.as_chunks::<32>().0) {
        let [low, high] = tables.as_chunks::<16>().0 else { continue };
        let (low, high) = (sixteen(low), sixteen(high));
        for (half, codes) in codes.as_chunks::<16>().0.iter().enumerate() {
            let codes = sixteen(codes);
            for entries in
                [vqtbl1q_u8(low, vandq_u8(codes, vdupq_n_u8(15))), vqtbl1q_u8(high, vshrq_n_u8::<4>(codes))]
            {
                sums[2 * half] = vaddw_u8(sums[2 * half], vget_low_u8(entries));
                sums[2 * half + 1] = vaddw_high_u8(sums[2 * half + 1], entries);
            }
        }
    }
    for (out, sums) in out.as_chunks_mut::<8>().0.iter_mut().zip(sums) {
        // SAFETY: the array has room for the eight sums.
        unsafe { vst1q_u16(out.as_mut_ptr(), sums) }
    }
}
