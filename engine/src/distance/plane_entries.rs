//! What a level offers for packed codes, and how components lie in them.
//!
//! A code of `BITS` bits takes `8 * BITS` bytes a block. Components of 1, 2, 4 or 8 bits lie so that a block widens to 64 bytes in
//! order by shifts alone: byte `j` of a block of nibbles holds components `j` and `32 + j`, of pairs of bits `j`, `16 + j`, `32 + j`
//! and `48 + j`; bits lie in order. Six bits are the nibbles of all blocks and then the upper pairs. Sums are integers, the same on
//! every machine.

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

/// Byte and shift of a component.
#[inline]
pub(super) const fn place<const BITS: usize>(at: usize) -> (usize, usize) {
    let (block, within) = (at / BLOCK, at % BLOCK);
    let bytes = 8 * BITS;
    let start = block * bytes;
    match BITS {
        // Bits lie in order: they are used as masks.
        1 => (start + within / 8, within % 8),
        _ => (start + within % bytes, within / bytes * BITS),
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
        pub(super) const PLANES: $crate::distance::plane_entries::PlaneEntry = $crate::distance::plane_entries::PlaneEntry {
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
