//! Distance kernels: scalar reference, AVX2, AVX-512/VNNI, NEON behind one dispatch table chosen at first use.
//!
//! Rows are padded with zeros to a multiple of [`LANES`] floats, so kernels have no tails. Smaller distance means closer.
/// Floats per padded unit: a row of `dim` occupies `padded(dim)` floats.
pub const LANES: usize = 16;
/// `dim` rounded up to [`LANES`].
pub const fn padded(dim: usize) -> usize {
    dim.div_ceil(LANES) * LANES
}
/// Distance measure of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// 1 - a.b on unit vectors (vectors and queries are normalised when they enter; a zero vector stays zero).
    Cosine,
    /// Squared Euclidean.
    L2,
    /// -(a.b).
    Dot,
}
/// A chosen metric bound to the chosen kernel: `f(a, b, padded_len) -> distance`.
#[derive(Clone, Copy)]
pub struct Kernel {}
impl Kernel {
    /// The kernel of `metric` on this machine.
    pub fn of(metric: Metric) -> Kernel {
        let _ = metric;
        todo!()
    }
    /// Distance of two padded rows of equal length (a multiple of [`LANES`]; asserted).
    pub fn distance(&self, a: &[f32], b: &[f32]) -> f32 {
        let _ = (a, b);
        todo!()
    }
    /// As `distance`, by pointer.
    /// # Safety
    /// Both point to `len` readable floats, `len` a multiple of [`LANES`].
    #[inline]
    pub unsafe fn distance_ptr(&self, a: *const f32, b: *const f32, len: usize) -> f32 {
        let _ = (a, b, len);
        todo!()
    }
}
/// Name of the SIMD level in use, for the start log: `avx512+vnni`, `avx512`, `avx2`, `neon`, `scalar`.
pub fn simd_level() -> &'static str {
    todo!()
}
/// Copies `src` (dim floats) into `dst` (padded), zero-fills the rest, normalises under cosine (norm in f64).
pub fn prepare(metric: Metric, src: &[f32], dst: &mut [f32]) {
    let _ = (metric, src, dst);
    todo!()
}
