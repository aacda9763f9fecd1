//! The face of the float kernels.
use super::dispatch::{SimdLevel, Table, best_table};
use super::entries::{COSINE, DOT, FloatEntry, L2};
use super::{LANES, Metric};

/// A metric bound to the kernels of this machine. Copy it freely: two function pointers.
#[derive(Clone, Copy)]
pub struct Kernel {
    entry: FloatEntry,
}

impl Kernel {
    /// The kernel of `metric` at the fastest level of this CPU.
    pub fn of(metric: Metric) -> Kernel {
        Kernel::from_table(best_table(), metric)
    }

    /// The kernel of `metric` at `level`; `None` when this CPU cannot run it. For tests and benches.
    pub fn at_level(metric: Metric, level: SimdLevel) -> Option<Kernel> {
        Some(Kernel::from_table(level.table()?, metric))
    }

    fn from_table(table: &Table, metric: Metric) -> Kernel {
        let index = match metric {
            Metric::Cosine => COSINE,
            Metric::L2 => L2,
            Metric::Dot => DOT,
        };
        Kernel { entry: table.float[index] }
    }

    /// Distance of two padded rows.
    ///
    /// # Panics
    /// When their lengths differ or are not a multiple of [`LANES`].
    #[inline]
    pub fn distance(&self, a: &[f32], b: &[f32]) -> f32 {
        assert!(
            a.len() == b.len() && a.len().is_multiple_of(LANES),
            "rows of {} and {} floats; equal multiples of {LANES} are needed",
            a.len(),
            b.len()
        );
        // SAFETY: both slices hold `a.len()` floats, a multiple of `LANES`.
        unsafe { self.distance_ptr(a.as_ptr(), b.as_ptr(), a.len()) }
    }

    /// As [`Self::distance`], by pointer.
    ///
    /// # Safety
    /// Both point to `len` readable floats, `len` a multiple of [`LANES`].
    #[inline]
    pub unsafe fn distance_ptr(&self, a: *const f32, b: *const f32, len: usize) -> f32 {
        debug_assert!(len.is_multiple_of(LANES));
        // SAFETY: the entry comes from a table whose features this CPU has (`SimdLevel::table`); the rest is the
        // caller's duty.
        unsafe { (self.entry.pair)(a, b, len) }
    }

    /// Distances of `query` to rows `slots` of `table`, in that order, later rows prefetched while earlier ones are
    /// scored. `out[i]` equals `distance_ptr(query, row of slots[i])` to the bit.
    ///
    /// # Safety
    /// * `query` holds `len` floats, `len` a multiple of [`LANES`].
    /// * For every slot, `table + slot * len` points to `len` readable floats that nobody writes meanwhile.
    ///
    /// # Panics
    /// When `out` is shorter than `slots` or `query` is not `len` long.
    #[inline]
    pub unsafe fn distances(
        &self,
        query: &[f32],
        table: *const f32,
        len: usize,
        slots: &[u32],
        out: &mut [f32],
    ) {
        assert!(query.len() == len && len.is_multiple_of(LANES) && out.len() >= slots.len());
        // SAFETY: lengths are asserted; the rows are the caller's duty; the CPU has the level's features.
        unsafe {
            (self.entry.rows)(query.as_ptr(), table, len, slots.as_ptr(), slots.len(), out.as_mut_ptr())
        }
    }
}
