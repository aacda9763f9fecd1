//! Rows as kernels read them, and lines of memory that are asked for ahead.
use std::marker::PhantomData;

const LINE_BYTES: usize = 64;

/// Rows of equal length that lie one after the other: those of an arena, which other threads may be filling elsewhere, or of a slice. It is
/// an address and two numbers, to be copied freely; access is checked.
#[derive(Clone, Copy)]
pub struct RowTable<'a, T> {
    first: *const T,
    row_len: usize,
    rows: usize,
    values: PhantomData<&'a [T]>,
}

impl<'a, T> RowTable<'a, T> {
    /// The whole rows of `values`.
    pub fn of(values: &'a [T], row_len: usize) -> RowTable<'a, T> {
        let rows = values.len().checked_div(row_len).unwrap_or(0);
        RowTable { first: values.as_ptr(), row_len, rows, values: PhantomData }
    }

    /// `rows` rows of `row_len` values from `first` on.
    ///
    /// # Safety
    /// During `'a` all of them lie in one allocation, are initialised and properly aligned, and a row that [`Self::row`] is asked for is not
    /// written as long as what it gave is used.
    #[inline]
    pub unsafe fn new(first: *const T, row_len: usize, rows: usize) -> RowTable<'a, T> {
        RowTable { first, row_len, rows, values: PhantomData }
    }

    /// How many rows.
    #[inline]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values of a row.
    #[inline]
    pub fn row_len(&self) -> usize {
        self.row_len
    }

    /// Row `at`. Panics when there is none.
    #[inline(always)]
    pub fn row(&self, at: u32) -> &'a [T] {
        assert!((at as usize) < self.rows, "row {at} of {}", self.rows);
        // SAFETY: the row is one of the table (asserted), whose rows are readable and not written meanwhile (`of`, `new`).
        unsafe { std::slice::from_raw_parts(self.first.add(at as usize * self.row_len), self.row_len) }
    }

    /// Asks for row `at`. A hint: there may be none.
    #[inline(always)]
    pub fn prefetch(&self, at: u32) {
        let start = self.first.wrapping_add((at as usize).wrapping_mul(self.row_len));
        prefetch_row(start, self.row_len * size_of::<T>());
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_of_the_slice() {
        let values: Vec<u32> = (0..11).collect();
        let table = RowTable::of(&values, 3);
        assert_eq!((table.rows(), table.row_len(), table.row(2)), (3, 3, &[6, 7, 8][..]));
        table.prefetch(u32::MAX);
        assert_eq!(RowTable::of(&values, 0).rows(), 0);
    }

    #[test]
    #[should_panic(expected = "row 3 of 3")]
    fn a_row_out_of_range_panics() {
        RowTable::of(&[0_u8; 11], 3).row(3);
    }
}
