//! Codes of few bits a component, packed in blocks of 64 components, and their products with a query of signed bytes.
//!
//! A code of `BITS` bits takes `8 * BITS` bytes a block. Components of 1, 2, 4 or 8 bits lie so that a block widens to 64 bytes in
//! order by shifts alone: byte `j` of a block of nibbles holds components `j` and `32 + j`, of pairs of bits `j`, `16 + j`, `32 + j`
//! and `48 + j`; bits lie in order. Six bits are the nibbles of all blocks and then the upper pairs. Sums are integers, the same on
//! every machine.
use super::dispatch::{SimdLevel, Table, best_table};

/// Components of a block.
pub const BLOCK: usize = 64;

/// Sums of a query with rows of packed codes: `(query, table, stride, blocks, slots, count, out)`.
pub(super) type PlaneRows = unsafe fn(*const i8, *const u8, usize, usize, *const u32, usize, *mut i32);

/// One entry for each width.
#[derive(Clone, Copy)]
pub(super) struct PlaneEntry {
    pub(super) bits1: PlaneRows,
    pub(super) bits4: PlaneRows,
    pub(super) bits6: PlaneRows,
    pub(super) bits8: PlaneRows,
}

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

/// Byte and shift of a component.
#[inline]
const fn place<const BITS: usize>(at: usize) -> (usize, usize) {
    let (block, within) = (at / BLOCK, at % BLOCK);
    let bytes = 8 * BITS;
    let start = block * bytes;
    match BITS {
        // Bits lie in order: they are used as masks.
        1 => (start + within / 8, within % 8),
        _ => (start + within % bytes, within / bytes * BITS),
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
    rows: PlaneRows,
    width: Width,
}

impl PlaneKernel {
    /// At the fastest level of this CPU.
    pub fn of(width: Width) -> PlaneKernel {
        PlaneKernel::from_table(best_table(), width)
    }

    /// At `level`; `None` when this CPU cannot run it. For tests.
    pub fn at_level(width: Width, level: SimdLevel) -> Option<PlaneKernel> {
        Some(PlaneKernel::from_table(level.table()?, width))
    }

    fn from_table(table: &Table, width: Width) -> PlaneKernel {
        let rows = match width {
            Width::One => table.planes.bits1,
            Width::Four => table.planes.bits4,
            Width::Six => table.planes.bits6,
            Width::Eight => table.planes.bits8,
        };
        PlaneKernel { rows, width }
    }

    /// Sums of `query[i] * code[i]` for rows `slots` of `table`, which are `stride` bytes apart and begin with a packed vector of
    /// as many components as `query` has; later rows are prefetched while earlier ones are summed.
    ///
    /// # Safety
    /// For every slot, `table + slot * stride` points to `stride` readable bytes that nobody writes meanwhile.
    ///
    /// # Panics
    /// When `query` is not whole blocks of 64, a packed vector is longer than `stride`, or `out` is shorter than `slots`.
    #[inline]
    pub unsafe fn sums(&self, query: &[i8], table: *const u8, stride: usize, slots: &[u32], out: &mut [i32]) {
        let out = &mut out[..slots.len()];
        assert!(query.len().is_multiple_of(BLOCK), "{} components", query.len());
        assert!(self.width.bytes(query.len()) <= stride, "{} components in {stride} bytes", query.len());
        let blocks = query.len() / BLOCK;
        // SAFETY: `query` holds whole blocks, rows hold as many (asserted; readable by the caller's word), `slots` and `out` hold
        // as many as there are slots, and the CPU has the level's features.
        unsafe {
            (self.rows)(query.as_ptr(), table, stride, blocks, slots.as_ptr(), slots.len(), out.as_mut_ptr());
        }
    }
}

/// Generates a level's entries from a function that widens a block: `$one`, `$two` and so on sum one block of as many bits.
macro_rules! plane_entries {
    ($zero:expr, $finish:ident, $one:ident, $two:ident, $four:ident, $eight:ident $(, #[$feature:meta])*) => {
        /// Sums of `query` with rows `slots[0..count]` of `table`.
        ///
        /// # Safety
        /// `query` holds `64 * blocks` bytes; every named row (`table + slot * stride`) as many components of `BITS` bits; `slots` and
        /// `out` hold `count`; the CPU has the level's features.
        $(#[$feature])*
        unsafe fn plane_rows<const BITS: usize>(
            query: *const i8,
            table: *const u8,
            stride: usize,
            blocks: usize,
            slots: *const u32,
            count: usize,
            out: *mut i32,
        ) {
            use $crate::distance::entries::{CODE_ROWS_AHEAD, prefetch_row};
            // SAFETY: only called with `i < count`; every named row lies inside the table.
            let row = |i: usize| unsafe { table.add(*slots.add(i) as usize * stride) };
            for i in 0..count.min(CODE_ROWS_AHEAD) {
                prefetch_row(row(i), stride);
            }
            for i in 0..count {
                if i + CODE_ROWS_AHEAD < count {
                    prefetch_row(row(i + CODE_ROWS_AHEAD), stride);
                }
                let (row, mut sum) = (row(i), $zero);
                for block in 0..blocks {
                    // SAFETY: block `block` of the query, and of the row at each of its widths, by the caller's word.
                    unsafe {
                        let query = query.add(64 * block);
                        sum = match BITS {
                            1 => $one(sum, query, row.add(8 * block), 0),
                            4 => $four(sum, query, row.add(32 * block), 0),
                            6 => {
                                let low = $four(sum, query, row.add(32 * block), 0);
                                $two(low, query, row.add(32 * blocks + 16 * block), 4)
                            }
                            _ => $eight(sum, query, row.add(64 * block), 0),
                        };
                    }
                }
                // SAFETY: `out` holds `count`.
                unsafe { *out.add(i) = $finish(sum) };
            }
        }

        /// Sums with packed codes at this level.
        pub(super) const PLANES: $crate::distance::planes::PlaneEntry = $crate::distance::planes::PlaneEntry {
            bits1: plane_rows::<1>,
            bits4: plane_rows::<4>,
            bits6: plane_rows::<6>,
            bits8: plane_rows::<8>,
        };
    };
}

pub(super) use plane_entries;

/// A component of block `code`, for the scalar level.
///
/// # Safety
/// `code` points to a block of `BITS` bits.
#[inline(always)]
pub(super) unsafe fn widened<const BITS: usize>(code: *const u8, at: usize) -> u8 {
    let (byte, shift) = place::<BITS>(at);
    // SAFETY: `at` is below 64, and so its byte is within the block.
    let byte = unsafe { *code.add(byte) };
    byte >> shift & ((1_u16 << BITS) - 1) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Random;

    const WIDTHS: [Width; 4] = [Width::One, Width::Four, Width::Six, Width::Eight];

    #[test]
    fn what_is_packed_comes_out_again() {
        for width in WIDTHS {
            for dim in [1, 15, 16, 63, 64, 65, 200, 384] {
                let mut random = Random(dim as u64);
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
                    let mut random = Random(stride as u64);
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
                            // SAFETY: the table holds `count` rows of `stride` bytes, and slots are below `count`.
                            unsafe { kernel.sums(&query, table.as_ptr(), stride, &slots, &mut sums) };
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
