//! NEON, part of every 64-bit Arm CPU: four floats per register, four sums in flight.
use std::arch::aarch64::*;

use super::entries::{code_entry, float_entries};
use super::plane_entries::plane_entries;

/// # Safety
/// `a` and `b` point to `len` readable floats; `len` is a multiple of 16.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn dot(a: *const f32, b: *const f32, len: usize) -> f32 {
    let mut sums = [vdupq_n_f32(0.0); 4];
    let mut at = 0;
    while at < len {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: `at + 16 <= len`, as `len` is a multiple of 16.
            let (x, y) = unsafe { (vld1q_f32(a.add(at + 4 * i)), vld1q_f32(b.add(at + 4 * i))) };
            *sum = vfmaq_f32(*sum, x, y);
        }
        at += 16;
    }
    vaddvq_f32(vaddq_f32(vaddq_f32(sums[0], sums[1]), vaddq_f32(sums[2], sums[3])))
}

/// # Safety
/// As [`dot`].
#[target_feature(enable = "neon")]
#[inline]
unsafe fn l2(a: *const f32, b: *const f32, len: usize) -> f32 {
    let mut sums = [vdupq_n_f32(0.0); 4];
    let mut at = 0;
    while at < len {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: `at + 16 <= len`, as `len` is a multiple of 16.
            let (x, y) = unsafe { (vld1q_f32(a.add(at + 4 * i)), vld1q_f32(b.add(at + 4 * i))) };
            let difference = vsubq_f32(x, y);
            *sum = vfmaq_f32(*sum, difference, difference);
        }
        at += 16;
    }
    vaddvq_f32(vaddq_f32(vaddq_f32(sums[0], sums[1]), vaddq_f32(sums[2], sums[3])))
}

/// Generates a sum over two rows of bytes, sixteen at a time; `$add` adds those of one half to four sums.
macro_rules! byte_sum {
    ($name:ident, $what:literal, $add:expr) => {
        #[doc = $what]
        ///
        /// # Safety
        /// `a` and `b` point to `len` readable bytes; `len` is a multiple of 64.
        #[target_feature(enable = "neon")]
        #[inline]
        unsafe fn $name(a: *const u8, b: *const u8, len: usize) -> i32 {
            let mut sums = [vdupq_n_s32(0); 2];
            let mut at = 0;
            while at < len {
                // SAFETY: `at + 16 <= len`, as `len` is a multiple of 64.
                let (x, y) = unsafe { (vld1q_u8(a.add(at)), vld1q_u8(b.add(at))) };
                sums[0] = $add(sums[0], vget_low_u8(x), vget_low_u8(y));
                sums[1] = $add(sums[1], vget_high_u8(x), vget_high_u8(y));
                at += 16;
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
code_entry!(CODE_DOT, dot_rows, product_between, product, #[target_feature(enable = "neon")]);
code_entry!(CODE_L2, l2_rows, square, square, #[target_feature(enable = "neon")]);

/// Adds the products of 16 components.
///
/// # Safety
/// `query` points to 16 readable bytes.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn add_sixteen(sum: int32x4_t, query: *const i8, components: uint8x16_t) -> int32x4_t {
    // SAFETY: the caller's.
    let query = unsafe { vld1q_s8(query) };
    let low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(components)));
    let high = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(components)));
    let (q_low, q_high) = (vmovl_s8(vget_low_s8(query)), vmovl_s8(vget_high_s8(query)));
    let sum = vmlal_high_s16(vmlal_s16(sum, vget_low_s16(q_low), vget_low_s16(low)), q_low, low);
    vmlal_high_s16(vmlal_s16(sum, vget_low_s16(q_high), vget_low_s16(high)), q_high, high)
}

/// # Safety
/// `query` points to 64 readable bytes, `code` to 8.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn one(mut sum: int32x4_t, query: *const i8, code: *const u8, _: u32) -> int32x4_t {
    let bits = vcreate_u8(0x8040_2010_0804_0201);
    let bit_of = vcombine_u8(bits, bits);
    for quarter in 0..4 {
        // SAFETY: the caller's: 2 bytes of the code and 16 of the query for each quarter.
        unsafe {
            let code = vcombine_u8(vdup_n_u8(*code.add(2 * quarter)), vdup_n_u8(*code.add(2 * quarter + 1)));
            let ones = vandq_u8(vtstq_u8(code, bit_of), vdupq_n_u8(1));
            sum = add_sixteen(sum, query.add(16 * quarter), ones);
        }
    }
    sum
}

/// # Safety
/// `query` points to 64 readable bytes, `code` to 16; `up` is at most 4.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn two(mut sum: int32x4_t, query: *const i8, code: *const u8, up: u32) -> int32x4_t {
    // SAFETY: the caller's.
    let code = unsafe { vld1q_u8(code) };
    for quarter in 0..4 {
        let pairs = vandq_u8(vshlq_u8(code, vdupq_n_s8(-2 * quarter)), vdupq_n_u8(3));
        // SAFETY: the caller's: 16 bytes of the query for each quarter.
        sum = unsafe {
            add_sixteen(sum, query.add(16 * quarter as usize), vshlq_u8(pairs, vdupq_n_s8(up as i8)))
        };
    }
    sum
}

/// # Safety
/// `query` points to 64 readable bytes, `code` to 32.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn four(mut sum: int32x4_t, query: *const i8, code: *const u8, _: u32) -> int32x4_t {
    for half in 0..2 {
        // SAFETY: the caller's: 16 bytes of the code hold components of either half of the query.
        unsafe {
            let code = vld1q_u8(code.add(16 * half));
            sum = add_sixteen(sum, query.add(16 * half), vandq_u8(code, vdupq_n_u8(15)));
            sum = add_sixteen(sum, query.add(32 + 16 * half), vshrq_n_u8::<4>(code));
        }
    }
    sum
}

/// # Safety
/// `query` and `code` point to 64 readable bytes.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn eight(mut sum: int32x4_t, query: *const i8, code: *const u8, _: u32) -> int32x4_t {
    for quarter in 0..4 {
        // SAFETY: the caller's: 16 bytes of both for each quarter.
        sum = unsafe { add_sixteen(sum, query.add(16 * quarter), vld1q_u8(code.add(16 * quarter))) };
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
///
/// # Safety
/// `tables` and `codes` point to `32 * pairs` readable bytes, `out` to 32 sums.
#[target_feature(enable = "neon")]
pub(super) unsafe fn shuffle_sums(tables: *const u8, codes: *const u8, pairs: usize, out: *mut u16) {
    let mut sums = [vdupq_n_u16(0); 4];
    for pair in 0..pairs {
        // SAFETY: the caller's, for this pair.
        let (low, high) = unsafe { (vld1q_u8(tables.add(32 * pair)), vld1q_u8(tables.add(32 * pair + 16))) };
        for half in 0..2 {
            // SAFETY: the caller's: 16 bytes for each half.
            let codes = unsafe { vld1q_u8(codes.add(32 * pair + 16 * half)) };
            for entries in
                [vqtbl1q_u8(low, vandq_u8(codes, vdupq_n_u8(15))), vqtbl1q_u8(high, vshrq_n_u8::<4>(codes))]
            {
                sums[2 * half] = vaddw_u8(sums[2 * half], vget_low_u8(entries));
                sums[2 * half + 1] = vaddw_high_u8(sums[2 * half + 1], entries);
            }
        }
    }
    for (at, sums) in sums.into_iter().enumerate() {
        // SAFETY: the caller's: 8 sums each.
        unsafe { vst1q_u16(out.add(8 * at), sums) }
    }
}
