//! The loops that are the same for every instruction set, generated for each: `target_feature` must stand on each function for a kernel to
//! be inlined into its loop.
//!
//! # Packed codes
//!
//! A code of `BITS` bits takes `8 * BITS` bytes a block. Components of 1, 2, 4 or 8 bits lie so that a block widens to 64 bytes in
//! order by shifts alone: byte `j` of a block of nibbles holds components `j` and `32 + j`, of pairs of bits `j`, `16 + j`, `32 + j`
//! and `48 + j`; bits lie in order. Six bits are the nibbles of all blocks and then the upper pairs. Sums are integers, the same on
//! every machine.

/// Components of a block.
pub const BLOCK: usize = 64;

/// Index of each metric in a level's table, and the const parameter its functions are generated for.
pub(super) const COSINE: usize = 0;
pub(super) const L2: usize = 1;
pub(super) const DOT: usize = 2;

/// Rows of floats fetched ahead of the one being scored: a plateau from 4 to 8 (384 floats, Zen 4).
pub(super) const FLOAT_ROWS_AHEAD: usize = 6;
/// Rows of codes fetched ahead: they are a quarter of the size.
pub(super) const CODE_ROWS_AHEAD: usize = 8;

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

/// Generates `$rows`, which calls `$body` for each row of a table, the rows after it fetched ahead.
macro_rules! for_each_row {
    ($table:ident, $slots:ident, $out:ident, $ahead:expr, |$row:ident| $value:expr) => {
        for &slot in $slots.iter().take($ahead) {
            $table.prefetch(slot);
        }
        for (at, (&slot, out)) in $slots.iter().zip($out).enumerate() {
            if let Some(&later) = $slots.get(at + $ahead) {
                $table.prefetch(later);
            }
            let $row = $table.row(slot);
            *out = $value;
        }
    };
}

/// Generates a level's functions for floats from its `dot` and `l2`.
macro_rules! float_entries {
    ($(#[$feature:meta])*) => {
        /// Distance of two rows of whole units of `LANES` under metric `METRIC` (an index of [`crate::distance::entries`]).
        $(#[$feature])*
        #[inline]
        pub(super) fn pair<const METRIC: usize>(a: &[f32], b: &[f32]) -> f32 {
            match METRIC {
                $crate::distance::entries::COSINE => 1.0 - dot(a, b),
                $crate::distance::entries::L2 => l2(a, b),
                _ => -dot(a, b),
            }
        }

        /// Distances of `query` to rows `slots` of `table`, in that order. Panics when one is not in the table.
        $(#[$feature])*
        pub(super) fn rows<const METRIC: usize>(
            query: &[f32],
            table: $crate::distance::RowTable<'_, f32>,
            slots: &[u32],
            out: &mut [f32],
        ) {
            use $crate::distance::entries::FLOAT_ROWS_AHEAD;
            $crate::distance::entries::for_each_row!(table, slots, out, FLOAT_ROWS_AHEAD, |row| pair::<METRIC>(query, row));
        }
    };
}

/// Generates `$rows` from the sum of a query and a stored code.
macro_rules! code_rows {
    ($rows:ident, $sum:ident $(, #[$feature:meta])*) => {
        /// Sums of `query` with rows `slots` of `table`, in that order: their bits, as they lie where distances will. Panics when a row is
        /// not in the table.
        $(#[$feature])*
        pub(super) fn $rows(
            query: &[u8],
            table: $crate::distance::RowTable<'_, u8>,
            slots: &[u32],
            out: &mut [f32],
        ) {
            use $crate::distance::entries::CODE_ROWS_AHEAD;
            $crate::distance::entries::for_each_row!(table, slots, out, CODE_ROWS_AHEAD, |row| {
                f32::from_bits($sum(query, row) as u32)
            });
        }
    };
}

/// Generates a level's function for packed codes from those that add a block: `$one`, `$two` and so on sum one block of as many bits.
macro_rules! plane_entries {
    ($zero:expr, $finish:ident, $one:ident, $two:ident, $four:ident, $eight:ident $(, #[$feature:meta])*) => {
        /// Sums of `query`, whole blocks, with rows `slots` of `table`, which begin with as many blocks of `BITS` bits. Panics when a row
        /// is not in the table.
        $(#[$feature])*
        pub(super) fn plane_rows<const BITS: usize>(
            query: &[i8],
            table: $crate::distance::RowTable<'_, u8>,
            slots: &[u32],
            out: &mut [i32],
        ) {
            use $crate::distance::entries::{BLOCK, CODE_ROWS_AHEAD};
            let query = query.as_chunks::<BLOCK>().0;
            $crate::distance::entries::for_each_row!(table, slots, out, CODE_ROWS_AHEAD, |row| {
                let mut sum = $zero;
                match BITS {
                    1 => {
                        for (query, code) in query.iter().zip(row.as_chunks::<8>().0) {
                            sum = $one(sum, query, code, 0);
                        }
                    }
                    4 => {
                        for (query, code) in query.iter().zip(row.as_chunks::<32>().0) {
                            sum = $four(sum, query, code, 0);
                        }
                    }
                    6 => {
                        let (low, high) = row.split_at(32 * query.len());
                        let codes = low.as_chunks::<32>().0.iter().zip(high.as_chunks::<16>().0);
                        for (query, (low, high)) in query.iter().zip(codes) {
                            sum = $two($four(sum, query, low, 0), query, high, 4);
                        }
                    }
                    _ => {
                        for (query, code) in query.iter().zip(row.as_chunks::<64>().0) {
                            sum = $eight(sum, query, code, 0);
                        }
                    }
                }
                $finish(sum)
            });
        }
    };
}

pub(super) use {code_rows, float_entries, for_each_row, plane_entries};
