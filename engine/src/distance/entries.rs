//! What every instruction set offers (one table entry per metric) and the loop that is the same for all of them.

/// Distance of two padded rows: `(a, b, len)`.
pub(super) type Pair = unsafe fn(*const f32, *const f32, usize) -> f32;
/// Distances of a query to rows of a table: `(query, table, len, slots, count, out)`.
pub(super) type Rows = unsafe fn(*const f32, *const f32, usize, *const u32, usize, *mut f32);
/// A sum over two codes: `(query, code, len)`.
pub(super) type CodePair = unsafe fn(*const u8, *const u8, usize) -> i32;
/// As [`Rows`] for codes.
pub(super) type CodeRows = unsafe fn(*const u8, *const u8, usize, *const u32, usize, *mut i32);
/// Sums of the entries that 32 codes of four bits have in tables: `(tables, block, pairs, out)`.
pub(super) type ShuffleSums = unsafe fn(*const u8, *const u8, usize, *mut u16);

/// The two forms of one metric.
#[derive(Clone, Copy)]
pub(super) struct FloatEntry {
    pub(super) pair: Pair,
    pub(super) rows: Rows,
}

/// The two forms of a sum over codes.
#[derive(Clone, Copy)]
pub(super) struct CodeEntry {
    /// Two stored codes: the products of what they stand for, or the squares of their differences.
    pub(super) between: CodePair,
    /// A query and rows: the products of a signed query with stored codes, or squared differences of stored ones.
    pub(super) rows: CodeRows,
}

/// Index of each metric in a level's table, and the const parameter its functions are generated for.
pub(super) const COSINE: usize = 0;
pub(super) const L2: usize = 1;
pub(super) const DOT: usize = 2;

/// Rows of floats fetched ahead of the one being scored: a plateau from 4 to 8 (384 floats, Zen 4).
pub(super) const FLOAT_ROWS_AHEAD: usize = 6;
/// Rows of codes fetched ahead: they are a quarter of the size.
pub(super) const CODE_ROWS_AHEAD: usize = 8;

const LINE_BYTES: usize = 64;

/// Asks for the cache line at `p`, into the second-level cache. A hint: any address is allowed.
///
/// Not into the first level: its few miss buffers are held until the line arrives, and a row ahead wants more of them
/// than there are (24 lines at 384 floats). The second level has more; graph searches over 117,659 rows of 384 floats
/// ran 1.5 times faster for this (11,300 against 7,400 per CPU-second at recall 0.95, Zen 4).
#[inline(always)]
pub fn prefetch_line<T>(p: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch never faults, whatever the address; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: PRFM never faults, whatever the address, and changes no register or flag.
        unsafe {
            std::arch::asm!("prfm pldl2keep, [{p}]", p = in(reg) p, options(nostack, preserves_flags, readonly))
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = p;
}

/// Asks for the `bytes` bytes from `p` on. A hint: any address is allowed.
#[inline(always)]
pub fn prefetch_row<T>(p: *const T, bytes: usize) {
    let mut at = 0;
    while at < bytes {
        prefetch_line(p.cast::<u8>().wrapping_add(at));
        at += LINE_BYTES;
    }
}

/// Generates a level's float table from its `dot` and `l2` functions. A macro, because `target_feature` must stand
/// on each function for the kernel to be inlined into the loop.
macro_rules! float_entries {
    ($(#[$feature:meta])*) => {
        /// Distance under metric `METRIC` (an index of [`crate::distance::entries`]).
        ///
        /// # Safety
        /// `a` and `b` point to `len` readable floats, `len` is a multiple of `LANES`, and the CPU has the level's
        /// features.
        $(#[$feature])*
        #[inline]
        unsafe fn pair<const METRIC: usize>(a: *const f32, b: *const f32, len: usize) -> f32 {
            // SAFETY: the caller's duties are those of `dot` and `l2`.
            unsafe {
                match METRIC {
                    $crate::distance::entries::COSINE => 1.0 - dot(a, b, len),
                    $crate::distance::entries::L2 => l2(a, b, len),
                    _ => -dot(a, b, len),
                }
            }
        }

        /// Distances of `query` to rows `slots[0..count]` of `table`, in that order.
        ///
        /// # Safety
        /// As [`pair`] for `query` and every named row (`table + slot * len`); `slots` and `out` hold `count`.
        $(#[$feature])*
        unsafe fn rows<const METRIC: usize>(
            query: *const f32,
            table: *const f32,
            len: usize,
            slots: *const u32,
            count: usize,
            out: *mut f32,
        ) {
            use $crate::distance::entries::{FLOAT_ROWS_AHEAD, prefetch_row};
            // SAFETY: only called with `i < count`; every named row lies inside the table.
            let row = |i: usize| unsafe { table.add(*slots.add(i) as usize * len) };
            for i in 0..count.min(FLOAT_ROWS_AHEAD) {
                prefetch_row(row(i), len * size_of::<f32>());
            }
            for i in 0..count {
                if i + FLOAT_ROWS_AHEAD < count {
                    prefetch_row(row(i + FLOAT_ROWS_AHEAD), len * size_of::<f32>());
                }
                // SAFETY: the caller vouches for `query`, the row and `out`.
                unsafe { *out.add(i) = pair::<METRIC>(query, row(i), len) };
            }
        }

        /// One entry per metric, by its index.
        pub(super) const FLOAT: [$crate::distance::entries::FloatEntry; 3] = {
            use $crate::distance::entries::{COSINE, DOT, FloatEntry, L2};
            [
                FloatEntry { pair: pair::<COSINE>, rows: rows::<COSINE> },
                FloatEntry { pair: pair::<L2>, rows: rows::<L2> },
                FloatEntry { pair: pair::<DOT>, rows: rows::<DOT> },
            ]
        };
    };
}

/// Generates the code entry `$name` from the sum of two stored codes and that of a query and a stored code.
macro_rules! code_entry {
    ($name:ident, $rows:ident, $between:ident, $sum:ident $(, #[$feature:meta])*) => {
        /// Sums of `query` with rows `slots[0..count]` of `table`, in that order.
        ///
        /// # Safety
        /// As the sum for `query` and every named row (`table + slot * len`); `slots` and `out` hold `count`.
        $(#[$feature])*
        unsafe fn $rows(
            query: *const u8,
            table: *const u8,
            len: usize,
            slots: *const u32,
            count: usize,
            out: *mut i32,
        ) {
            use $crate::distance::entries::{CODE_ROWS_AHEAD, prefetch_row};
            // SAFETY: only called with `i < count`; every named row lies inside the table.
            let row = |i: usize| unsafe { table.add(*slots.add(i) as usize * len) };
            for i in 0..count.min(CODE_ROWS_AHEAD) {
                prefetch_row(row(i), len);
            }
            for i in 0..count {
                if i + CODE_ROWS_AHEAD < count {
                    prefetch_row(row(i + CODE_ROWS_AHEAD), len);
                }
                // SAFETY: the caller vouches for `query`, the row and `out`.
                unsafe { *out.add(i) = $sum(query, row(i), len) };
            }
        }

        /// Sums over codes at this level.
        pub(super) const $name: $crate::distance::entries::CodeEntry =
            $crate::distance::entries::CodeEntry { between: $between, rows: $rows };
    };
}

pub(super) use {code_entry, float_entries};
