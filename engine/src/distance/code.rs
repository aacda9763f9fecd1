//! Products of int8 codes. The byte multiply-add of x86 takes an unsigned and a signed operand, so the query is
//! shifted by 128 once and the shift is taken back with the code's stored sum:
//! `sum(q * c) = sum((q + 128) * c) - 128 * sum(c)`. All levels share this form and give the same integer.
use super::dispatch::{SimdLevel, best_table};
use super::entries::CodeEntry;

/// Bytes per padded unit of a code row.
pub const CODE_LANES: usize = 64;

/// What is added to a query's components to make them unsigned.
const SHIFT: i32 = 128;

/// Longest row whose product cannot overflow: 65,535 * 255 * 128 < 2^31.
const LEN_MAX: usize = 65_535 / CODE_LANES * CODE_LANES;

/// A query in the shifted form the kernels read. Reusable: `set` keeps the allocation.
#[derive(Clone, Debug, Default)]
pub struct CodeQuery {
    shifted: Vec<u8>,
}

impl CodeQuery {
    /// A query from its signed components, padded to [`CODE_LANES`].
    pub fn new(components: &[i8]) -> Self {
        let mut query = CodeQuery::default();
        query.set(components);
        query
    }

    /// Replaces the query.
    ///
    /// # Panics
    /// Over 65,472 components.
    pub fn set(&mut self, components: &[i8]) {
        let len = components.len().div_ceil(CODE_LANES) * CODE_LANES;
        assert!(len <= LEN_MAX, "a code of {len} bytes; at most {LEN_MAX} keep sums inside 32 bits");
        self.shifted.clear();
        // Wrapping from signed to unsigned and flipping the top bit is the shift by 128.
        self.shifted.extend(components.iter().map(|&c| (c as u8) ^ 0x80));
        self.shifted.resize(len, 0);
    }

    /// Padded length in bytes.
    pub fn len(&self) -> usize {
        self.shifted.len()
    }

    /// No components.
    pub fn is_empty(&self) -> bool {
        self.shifted.is_empty()
    }
}

/// Sum of a code's components, stored beside it.
pub fn code_sum(code: &[i8]) -> i32 {
    code.iter().map(|&c| i32::from(c)).sum()
}

/// The code product of this machine.
#[derive(Clone, Copy)]
pub struct CodeKernel {
    entry: CodeEntry,
}

impl CodeKernel {
    /// The kernel at the fastest level of this CPU.
    pub fn best() -> CodeKernel {
        CodeKernel { entry: best_table().code }
    }

    /// The kernel at `level`; `None` when this CPU cannot run it. For tests and benches.
    pub fn at_level(level: SimdLevel) -> Option<CodeKernel> {
        Some(CodeKernel { entry: level.table()?.code })
    }

    /// `sum(q[i] * code[i])`; `sum` is [`code_sum`] of the code.
    ///
    /// # Panics
    /// When the padded lengths differ.
    #[inline]
    pub fn dot(&self, query: &CodeQuery, code: &[i8], sum: i32) -> i32 {
        assert_eq!(query.len(), code.len(), "query and code differ in padded length");
        // SAFETY: both hold `len` bytes, a multiple of `CODE_LANES` (made so by `CodeQuery::set`); the entry comes
        // from a table whose features this CPU has.
        let shifted = unsafe { (self.entry.pair)(query.shifted.as_ptr(), code.as_ptr(), code.len()) };
        shifted - SHIFT * sum
    }

    /// Products of `query` with rows `slots` of `table` (row length = the query's padded length), later rows
    /// prefetched. The results are **shifted**: subtract `128 * code_sum(row)` to get the product; callers that
    /// keep the sums in another table do so for the rows they need.
    ///
    /// # Safety
    /// For every slot, `table + slot * query.len()` points to as many readable bytes that nobody writes meanwhile.
    ///
    /// # Panics
    /// When `out` is shorter than `slots`.
    #[inline]
    pub unsafe fn shifted_dots(&self, query: &CodeQuery, table: *const i8, slots: &[u32], out: &mut [i32]) {
        assert!(out.len() >= slots.len());
        // SAFETY: lengths as above; the rows are the caller's duty; the CPU has the level's features.
        unsafe {
            (self.entry.rows)(
                query.shifted.as_ptr(),
                table,
                query.len(),
                slots.as_ptr(),
                slots.len(),
                out.as_mut_ptr(),
            )
        }
    }
}
