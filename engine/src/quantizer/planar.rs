//! Rows of packed codes with factors behind them, and queries in signed bytes: what scalar and sign quantizers share.
use crate::distance::{PLANE_BLOCK, PlaneKernel, Width};

/// Largest byte of a query.
const LARGEST: f32 = 127.0;
/// Rows are multiples of this.
const ROW_UNIT: usize = 4;

/// How a row is laid out.
#[derive(Clone, Debug)]
pub(super) struct Planar {
    pub(super) width: Width,
    pub(super) kernel: Kernel,
    /// Bytes of the packed code; factors lie behind it.
    code: usize,
    pub(super) row_len: usize,
    dim: usize,
}

/// A kernel is chosen once; nothing of it is worth printing.
#[derive(Clone, Copy)]
pub(super) struct Kernel(pub(super) PlaneKernel);

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kernel")
    }
}

impl Planar {
    pub(super) fn new(width: Width, dim: usize, factors: usize) -> Planar {
        let code = width.bytes(dim);
        let row_len = (code + factors * size_of::<f32>()).next_multiple_of(ROW_UNIT);
        Planar { width, kernel: Kernel(PlaneKernel::of(width)), code, row_len, dim }
    }

    pub(super) fn write(&self, codes: &[u8], factors: &[f32], row: &mut [u8]) {
        self.width.pack(codes, row);
        let bytes = factors.iter().flat_map(|factor| factor.to_le_bytes());
        row[self.code..].iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    }

    #[inline]
    pub(super) fn factor(&self, row: &[u8], at: usize) -> f32 {
        let from = self.code + at * size_of::<f32>();
        f32::from_le_bytes(row[from..from + size_of::<f32>()].try_into().expect("four bytes"))
    }
}

/// A query as signed bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct PlaneQuery {
    pub(super) bytes: Vec<i8>,
    /// Sum of them.
    pub(super) total: i32,
    /// What a byte stands for, and whatever else a sum is multiplied with.
    pub(super) factor: f32,
    /// What is the same for all rows.
    pub(super) base: f32,
}

impl PlaneQuery {
    /// Sets the bytes for `weights`, one per component; `base` is left for the caller.
    pub(super) fn set(&mut self, planar: &Planar, weights: impl Iterator<Item = f32> + Clone) {
        let largest = weights.clone().fold(0.0, |max: f32, x| max.max(x.abs()));
        self.factor = largest / LARGEST;
        let per_step = if self.factor.is_normal() { 1.0 / self.factor } else { 0.0 };
        self.bytes.clear();
        self.bytes.extend(weights.map(|x| (x * per_step).round() as i8));
        self.total = self.bytes.iter().map(|&byte| i32::from(byte)).sum();
        self.bytes.resize(planar.dim.next_multiple_of(PLANE_BLOCK), 0);
    }
}
