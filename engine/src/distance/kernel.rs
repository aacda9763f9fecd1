//! The face of the float kernels.
use super::dispatch::{FloatEntry, Kernels, Runnable, SimdLevel, best_kernels};
use super::{LANES, Metric, RowTable};

/// A metric bound to the kernels of this machine. Copy it freely: two function pointers.
#[derive(Clone, Copy)]
pub struct Kernel {
    entry: Runnable<FloatEntry>,
}

impl Kernel {
    /// The kernel of `metric` at the fastest level of this CPU.
    pub fn of(metric: Metric) -> Kernel {
        Kernel::from_kernels(best_kernels(), metric)
    }

    /// The kernel of `metric` at `level`; `None` when this CPU cannot run it. For tests and benches.
    pub fn at_level(metric: Metric, level: SimdLevel) -> Option<Kernel> {
        Some(Kernel::from_kernels(level.kernels()?, metric))
    }

    fn from_kernels(kernels: Kernels, metric: Metric) -> Kernel {
        Kernel { entry: kernels.floats(metric) }
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
        self.entry.pair(a, b)
    }

    /// Distances of `query` to rows `slots` of `table`, in that order, later rows prefetched while earlier ones are
    /// scored. `out[i]` equals `distance(query, row of slots[i])` to the bit.
    ///
    /// # Panics
    /// When a slot is outside the table, `out` is shorter than `slots`, or `query` is not as long as a row, a multiple of [`LANES`].
    #[inline]
    pub fn distances(&self, query: &[f32], table: RowTable<'_, f32>, slots: &[u32], out: &mut [f32]) {
        assert!(query.len() == table.row_len() && query.len().is_multiple_of(LANES), "a padded row");
        self.entry.rows(query, table, slots, &mut out[..slots.len()]);
    }
}
