//! Rows of packed codes with factors behind them, and queries in signed bytes: what scalar and sign quantizers share.
use crate::distance::{PLANE_BLOCK, PlaneKernel, RowTable, Width};
use crate::slot::Slot;

/// Largest byte of a query.
const LARGEST: f32 = 127.0;
/// Of what a byte stands for.
const REST_UNITS: f32 = 256.0;
/// Rows whose sums wait on the stack: as many as a walk looks at in one go, mostly.
const SUMMED_AT_ONCE: usize = 128;
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

    /// Distances of `query` to rows `slots` of `rows`, by what `distance` makes of a sum and a row.
    ///
    /// # Panics
    /// When a slot is out of range, or `out` is shorter than `slots`.
    #[inline]
    pub(super) fn distances(
        &self,
        query: &PlaneQuery,
        rows: RowTable<'_, u8>,
        slots: &[Slot],
        out: &mut [f32],
        distance: impl Fn(f32, &[u8]) -> f32,
    ) {
        let out = &mut out[..slots.len()];
        let (mut sums, mut rests) = ([0; SUMMED_AT_ONCE], [0; SUMMED_AT_ONCE]);
        for (slots, out) in slots.chunks(SUMMED_AT_ONCE).zip(out.chunks_mut(SUMMED_AT_ONCE)) {
            self.kernel.0.sums(&query.bytes, rows, slots, &mut sums);
            if !query.rest.is_empty() {
                self.kernel.0.sums(&query.rest, rows, slots, &mut rests);
            }
            for (((&slot, &sum), &rest), out) in slots.iter().zip(&sums).zip(&rests).zip(out) {
                *out = distance(sum as f32 + rest as f32 / REST_UNITS, rows.row(slot));
            }
        }
    }

    #[inline]
    pub(super) fn factor(&self, row: &[u8], at: usize) -> f32 {
        let from = self.code + at * size_of::<f32>();
        f32::from_le_bytes(row[from..from + size_of::<f32>()].try_into().expect("four bytes"))
    }
}

/// Sums and maxima go in so many lanes: one after the other, each operation would wait for the one before.
const LANES: usize = 16;

/// The largest magnitude; 0 of nothing.
fn largest(values: &[f32]) -> f32 {
    let (blocks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0.0_f32; LANES];
    for block in blocks {
        lanes
            .iter_mut()
            .zip(block)
            .for_each(|(lane, x)| *lane = if x.abs() > *lane { x.abs() } else { *lane });
    }
    lanes.iter().chain(rest).fold(0.0, |max: f32, x| max.max(x.abs()))
}

/// The product of two vectors of one length.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [0.0_f32; LANES];
    for (a, b) in a.iter().zip(b) {
        lanes.iter_mut().zip(a).zip(b).for_each(|((lane, a), b)| *lane += a * b);
    }
    lanes.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}

/// The nearest whole number of one below 2^22: without instructions newer than the oldest processors have, which a call would be needed
/// for.
#[inline]
fn whole(x: f32) -> f32 {
    const SHIFT: f32 = 3.0 * (1 << 22) as f32;
    (x + SHIFT) - SHIFT
}

/// A query as signed bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct PlaneQuery {
    pub(super) bytes: Vec<i8>,
    /// What these are off by, in units of 1/256 of what a byte stands for; empty where codes are off by more themselves.
    pub(super) rest: Vec<i8>,
    /// Sum of `bytes`.
    pub(super) total: f32,
    /// What a byte stands for, and whatever else a sum is multiplied with.
    pub(super) factor: f32,
    /// What is the same for all rows.
    pub(super) base: f32,
    weights: Vec<f32>,
}

impl PlaneQuery {
    /// Sets the bytes for `weights`, one per component; `base` is left for the caller.
    pub(super) fn set(&mut self, planar: &Planar, weights: impl Iterator<Item = f32>) {
        self.weights.clear();
        self.weights.extend(weights);
        let weights = &self.weights;
        let largest = largest(weights);
        self.factor = largest / LARGEST;
        let per_step = if self.factor.is_normal() { 1.0 / self.factor } else { 0.0 };
        self.bytes.clear();
        self.bytes.extend(weights.iter().map(|x| whole(x * per_step) as i8));
        self.total = self.bytes.iter().map(|&byte| i32::from(byte)).sum::<i32>() as f32;
        self.rest.clear();
        if planar.width == Width::Eight {
            let off = |(x, &byte): (&f32, &i8)| whole((x * per_step - f32::from(byte)) * REST_UNITS) as i8;
            self.rest.extend(weights.iter().zip(&self.bytes).map(off));
            self.rest.resize(planar.dim.next_multiple_of(PLANE_BLOCK), 0);
        }
        self.bytes.resize(planar.dim.next_multiple_of(PLANE_BLOCK), 0);
    }
}
