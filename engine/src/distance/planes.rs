//! Codes of few bits a component, packed in blocks of 64 components, and their products with a query of signed bytes. How components
//! lie in a block is said in `entries`.
use super::RowTable;
use super::dispatch::{Kernels, PlaneEntry, Runnable, SimdLevel, best_kernels};
use super::entries::{BLOCK, place};

/// Bits of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// Signs.
    One,
    /// 0..=15.
    Four,
    /// 0..=63.
    Six,
    /// 0..=255.
    Eight,
}

impl Width {
    /// How many.
    pub const fn bits(self) -> usize {
        match self {
            Width::One => 1,
            Width::Four => 4,
            Width::Six => 6,
            Width::Eight => 8,
        }
    }

    /// By how many.
    pub fn from_bits(bits: usize) -> Option<Width> {
        [Width::One, Width::Four, Width::Six, Width::Eight].into_iter().find(|width| width.bits() == bits)
    }

    /// The largest code.
    pub const fn largest(self) -> u8 {
        ((1_u16 << self.bits()) - 1) as u8
    }

    /// Bytes of a packed vector of `dim` components.
    pub const fn bytes(self, dim: usize) -> usize {
        dim.div_ceil(BLOCK) * (BLOCK / 8) * self.bits()
    }

    /// Packs a code per component over `row`; what is left of the last block is 0.
    ///
    /// # Panics
    /// When `row` is shorter than [`Self::bytes`].
    pub fn pack(self, codes: &[u8], row: &mut [u8]) {
        let row = &mut row[..self.bytes(codes.len())];
        row.fill(0);
        let (low, high) =
            row.split_at_mut(if self == Width::Six { Width::Four.bytes(codes.len()) } else { row.len() });
        match self {
            Width::Eight => low[..codes.len()].copy_from_slice(codes),
            Width::Four => pack::<4>(codes.iter().copied(), low),
            Width::One => pack::<1>(codes.iter().copied(), low),
            Width::Six => {
                pack::<4>(codes.iter().map(|code| code & 15), low);
                pack::<2>(codes.iter().map(|code| code >> 4), high);
            }
        }
    }

    /// The code of each component, from a packed row.
    ///
    /// # Panics
    /// When `row` is shorter than [`Self::bytes`] of as many.
    pub fn unpack(self, row: &[u8], codes: &mut [u8]) {
        let row = &row[..self.bytes(codes.len())];
        let each = codes.iter_mut().enumerate();
        match self {
            Width::Eight => codes.copy_from_slice(&row[..codes.len()]),
            Width::Four => each.for_each(|(at, code)| *code = component::<4>(row, at)),
            Width::One => each.for_each(|(at, code)| *code = component::<1>(row, at)),
            Width::Six => {
                let (low, high) = row.split_at(Width::Four.bytes(codes.len()));
                let codes = codes.iter_mut().enumerate();
                codes.for_each(|(at, code)| *code = component::<4>(low, at) | component::<2>(high, at) << 4);
            }
        }
    }
}

fn pack<const BITS: usize>(codes: impl Iterator<Item = u8>, row: &mut [u8]) {
    for (at, code) in codes.enumerate() {
        debug_assert!(usize::from(code) < 1 << BITS, "{code} has more than {BITS} bits");
        let (byte, shift) = place::<BITS>(at);
        row[byte] |= code << shift;
    }
}

#[inline]
fn component<const BITS: usize>(row: &[u8], at: usize) -> u8 {
    let (byte, shift) = place::<BITS>(at);
    row[byte] >> shift & ((1_u16 << BITS) - 1) as u8
}

/// Products with packed codes of one width on this machine.
#[derive(Clone, Copy)]
pub struct PlaneKernel {
    entry: Runnable<PlaneEntry>,
    width: Width,
}

impl PlaneKernel {
    /// At the fastest level of this CPU.
    pub fn of(width: Width) -> PlaneKernel {
        PlaneKernel::from_kernels(best_kernels(), width)
    }

    /// At `level`; `None` when this CPU cannot run it. For tests.
    pub fn at_level(width: Width, level: SimdLevel) -> Option<PlaneKernel> {
        Some(PlaneKernel::from_kernels(level.kernels()?, width))
    }

    fn from_kernels(kernels: Kernels, width: Width) -> PlaneKernel {
        PlaneKernel { entry: kernels.planes(width.bits()), width }
    }

    /// Sums of `query[i] * code[i]` for rows `slots` of `table`, which begin with a packed vector of as many components as `query` has;
    /// later rows are prefetched while earlier ones are summed.
    ///
    /// # Panics
    /// When a slot is outside the table, `query` is not whole blocks of 64, a packed vector is longer than a row, or `out` is shorter
    /// than `slots`.
    #[inline]
    pub fn sums(&self, query: &[i8], table: RowTable<'_, u8>, slots: &[u32], out: &mut [i32]) {
        let row_len = table.row_len();
        assert!(query.len().is_multiple_of(BLOCK), "{} components", query.len());
        assert!(self.width.bytes(query.len()) <= row_len, "{} components in {row_len} bytes", query.len());
        self.entry.rows(query, table, slots, &mut out[..slots.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    const WIDTHS: [Width; 4] = [Width::One, Width::Four, Width::Six, Width::Eight];

    #[test]
    fn what_is_packed_comes_out_again() {
        for width in WIDTHS {
            for dim in [1, 15, 16, 63, 64, 65, 200, 384] {
                let mut random = SplitMix64(dim as u64);
                let codes: Vec<u8> = (0..dim).map(|_| random.next() as u8 & width.largest()).collect();
                let mut row = vec![0xaa; width.bytes(dim) + 3];
                width.pack(&codes, &mut row);
                assert!(row.ends_with(&[0xaa; 3]), "nothing behind it");
                let mut back = vec![0; dim];
                width.unpack(&row, &mut back);
                assert_eq!(back, codes, "{width:?} {dim}");
            }
        }
    }

    #[test]
    fn all_levels_sum_what_plain_products_sum() {
        for width in WIDTHS {
            for dim in [64, 128, 384, 1088] {
                for stride in [width.bytes(dim), width.bytes(dim) + 8] {
                    let mut random = SplitMix64(stride as u64);
                    let count = 37;
                    let mut table = vec![0; stride * count];
                    let mut codes = Vec::new();
                    for row in table.chunks_exact_mut(stride) {
                        // The last row is as large as can be.
                        let full = codes.len() == count - 1;
                        let code: Vec<u8> = (0..dim)
                            .map(|_| if full { 255 } else { random.next() as u8 } & width.largest())
                            .collect();
                        width.pack(&code, row);
                        codes.push(code);
                    }
                    for extreme in [false, true] {
                        let query: Vec<i8> =
                            (0..dim).map(|_| if extreme { -128 } else { random.next() as i8 }).collect();
                        let slots: Vec<u32> = (0..count as u32).rev().chain([5, 5]).collect();
                        for level in SimdLevel::ALL {
                            let Some(kernel) = PlaneKernel::at_level(width, level) else { continue };
                            let mut sums = vec![0; slots.len()];
                            kernel.sums(&query, RowTable::of(&table, stride), &slots, &mut sums);
                            for (&slot, sum) in slots.iter().zip(sums) {
                                let pairs = query.iter().zip(&codes[slot as usize]);
                                let plain: i32 = pairs.map(|(&q, &c)| i32::from(q) * i32::from(c)).sum();
                                assert_eq!(sum, plain, "{width:?} {dim} {level:?}");
                            }
                        }
                    }
                }
            }
        }
    }
}
