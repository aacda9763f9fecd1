//! NEON, part of every 64-bit Arm CPU: four floats per register, four sums in flight.
use std::arch::aarch64::*;

use super::entries::{code_entry, float_entries};

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

/// Widens both codes to 16 bits; the mixed-sign byte product is an extension that not every CPU has.
///
/// # Safety
/// `query` and `code` point to `len` readable bytes; `len` is a multiple of 64.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn product(query: *const u8, code: *const i8, len: usize) -> i32 {
    let mut sums = [vdupq_n_s32(0); 4];
    let mut at = 0;
    while at < len {
        // SAFETY: `at + 16 <= len`, as `len` is a multiple of 64.
        let (q, c) = unsafe { (vld1q_u8(query.add(at)), vld1q_s8(code.add(at))) };
        // Unsigned bytes widened to 16 bits are below 256, so reading them as signed changes nothing.
        let (q_low, q_high) =
            (vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(q))), vreinterpretq_s16_u16(vmovl_high_u8(q)));
        let (c_low, c_high) = (vmovl_s8(vget_low_s8(c)), vmovl_high_s8(c));
        sums[0] = vmlal_s16(sums[0], vget_low_s16(q_low), vget_low_s16(c_low));
        sums[1] = vmlal_high_s16(sums[1], q_low, c_low);
        sums[2] = vmlal_s16(sums[2], vget_low_s16(q_high), vget_low_s16(c_high));
        sums[3] = vmlal_high_s16(sums[3], q_high, c_high);
        at += 16;
    }
    vaddvq_s32(vaddq_s32(vaddq_s32(sums[0], sums[1]), vaddq_s32(sums[2], sums[3])))
}

float_entries!(#[target_feature(enable = "neon")]);
code_entry!(CODE, code_rows, product, #[target_feature(enable = "neon")]);
