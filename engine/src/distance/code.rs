//! Distances between int8 codes: a vector in a quarter of its bytes, for walks that score far more than they return.
//!
//! One step serves all components of all vectors of a table: `code = round(component / step)`, held to -127..=127 and stored
//! with 128 added, so that a zero is 128. Under cosine and dot a query has a step of its own, under L2 that of the
//! table. Sums are integers, the same on every machine, and a distance is one multiplication and one addition away from them,
//! so a code as the query and the same code as a row give the same distance to the bit.
use super::dispatch::{CodeEntry, Kernels, Runnable, SimdLevel, best_kernels};
use super::{Metric, RowTable};

/// Bytes per padded unit of a code row.
pub const CODE_LANES: usize = 64;

/// Longest vector that has codes: 32,768 * 255^2 and 32,768 * 255 * 127 stay below 2^31.
pub const CODE_DIM_MAX: usize = 32_768;

/// What is added to a code to store it, and so the code of zero.
const ZERO: u8 = 128;
/// Largest code.
const LARGEST: f32 = 127.0;

/// Length of a code row of `dim` components: rounded up to [`CODE_LANES`].
pub const fn padded_code(dim: usize) -> usize {
    dim.div_ceil(CODE_LANES) * CODE_LANES
}

/// Adding this to a small number leaves it no bits for a fraction: the sum is rounded, to even at a tie, and its lowest byte is
/// the integer in two's complement. Rounding itself would be a call on the least of x86-64.
const ROUNDER: f32 = 1.5 * (1 << 23) as f32;

/// The code of one component, on top of [`ROUNDER`].
#[inline]
fn code_of(component: f32, per_step: f32) -> f32 {
    (component * per_step).clamp(-LARGEST, LARGEST) + ROUNDER
}

/// Writes the code of `vector` over `row`, padded with zeros, and returns the squared distance between the two.
///
/// # Panics
/// When `row` is shorter than `vector`.
pub fn encode(vector: &[f32], step: f32, row: &mut [u8]) -> f32 {
    let (row, padding) = row.split_at_mut(vector.len());
    padding.fill(ZERO);
    let per_step = 1.0 / step;
    // What scans rely on as a bound must not get lost among many components.
    let mut error = 0.0_f64;
    for (byte, &component) in row.iter_mut().zip(vector) {
        let code = code_of(component, per_step);
        let lost = component - (code - ROUNDER) * step;
        error += f64::from(lost) * f64::from(lost);
        *byte = code.to_bits() as u8 ^ ZERO;
    }
    error as f32
}

/// Squared distance between `vectors` and their codes under `step`, summed.
pub fn encoding_error<'v>(vectors: impl Iterator<Item = &'v [f32]>, step: f32) -> f64 {
    let per_step = 1.0 / step;
    let lost = |component: &f32| component - (code_of(*component, per_step) - ROUNDER) * step;
    let mut sum = 0.0;
    for vector in vectors {
        // In lanes: one after the other, each addition would wait for the one before.
        let mut lanes = [0.0_f32; 16];
        let (whole, rest) = vector.as_chunks::<16>();
        for chunk in whole {
            lanes.iter_mut().zip(chunk).for_each(|(lane, component)| *lane += lost(component).powi(2));
        }
        lanes.iter_mut().zip(rest).for_each(|(lane, component)| *lane += lost(component).powi(2));
        sum += lanes.iter().map(|&lane| f64::from(lane)).sum::<f64>();
    }
    sum
}

/// A query in the form the kernels read. Reusable: setting it keeps the allocation.
#[derive(Clone, Debug, Default)]
pub struct CodeQuery {
    /// Signed codes under cosine and dot, stored codes under L2.
    bytes: Vec<u8>,
    /// What the kernels' sum has too much.
    shift: i32,
    /// `distance = base + factor * sum`.
    base: f32,
    factor: f32,
    /// Step of the query's own code.
    own: f32,
}

impl CodeQuery {
    /// Sets a prepared vector, for a table of codes with `step`.
    ///
    /// # Panics
    /// Over [`CODE_DIM_MAX`] components.
    pub fn set(&mut self, metric: Metric, vector: &[f32], step: f32) {
        assert!(
            vector.len() <= CODE_DIM_MAX,
            "{} components; at most {CODE_DIM_MAX} have codes",
            vector.len()
        );
        let own = match metric {
            Metric::L2 => step,
            // The largest component gets the largest code. A zero vector has no step, and no product.
            Metric::Cosine | Metric::Dot => vector.iter().fold(0.0, |max: f32, x| max.max(x.abs())) / LARGEST,
        };
        let per_step = if own > 0.0 { 1.0 / own } else { 0.0 };
        self.bytes.clear();
        self.bytes
            .extend(vector.iter().map(|&component| code_of(component, per_step).to_bits() as u8 ^ ZERO));
        self.finish(metric, step, own);
    }

    /// Sets a row of the table itself.
    pub fn set_row(&mut self, metric: Metric, row: &[u8], step: f32) {
        self.bytes.clear();
        self.bytes.extend_from_slice(row);
        self.finish(metric, step, step);
    }

    /// From stored codes to what the metric's kernel reads.
    fn finish(&mut self, metric: Metric, step: f32, own: f32) {
        self.own = own;
        self.bytes.resize(padded_code(self.bytes.len()), ZERO);
        (self.shift, self.base, self.factor) = match metric {
            Metric::L2 => (0, 0.0, step * step),
            Metric::Cosine | Metric::Dot => {
                // Wrapping from unsigned to signed and flipping the top bit takes 128 away.
                self.bytes.iter_mut().for_each(|byte| *byte ^= ZERO);
                let sum: i32 = self.bytes.iter().map(|&byte| i32::from(byte as i8)).sum();
                (i32::from(ZERO) * sum, base_of(metric), -(step * own))
            }
        };
    }

    /// Distance between `vector`, which was set, and its code.
    pub fn error(&self, metric: Metric, vector: &[f32]) -> f32 {
        let flipped = if metric == Metric::L2 { ZERO } else { 0 };
        let lost =
            |(&component, &byte): (&f32, &u8)| component - f32::from((byte ^ flipped) as i8) * self.own;
        let squares = vector.iter().zip(&self.bytes).map(lost).map(|lost| f64::from(lost) * f64::from(lost));
        squares.sum::<f64>().sqrt() as f32
    }

    /// Padded length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// No components.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    #[inline]
    fn distance(&self, sum: i32) -> f32 {
        self.base + self.factor * sum.wrapping_sub(self.shift) as f32
    }
}

fn base_of(metric: Metric) -> f32 {
    if metric == Metric::Cosine { 1.0 } else { 0.0 }
}

/// A metric bound to the code kernels of this machine.
#[derive(Clone, Copy)]
pub struct CodeKernel {
    entry: Runnable<CodeEntry>,
    metric: Metric,
}

impl CodeKernel {
    /// The kernel of `metric` at the fastest level of this CPU.
    pub fn of(metric: Metric) -> CodeKernel {
        CodeKernel::from_kernels(best_kernels(), metric)
    }

    /// The kernel of `metric` at `level`; `None` when this CPU cannot run it. For tests and benches.
    pub fn at_level(metric: Metric, level: SimdLevel) -> Option<CodeKernel> {
        Some(CodeKernel::from_kernels(level.kernels()?, metric))
    }

    fn from_kernels(kernels: Kernels, metric: Metric) -> CodeKernel {
        CodeKernel { entry: kernels.codes(metric), metric }
    }

    /// Its metric.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Distance of two rows of a table with `step`: what either gives as the query for the other.
    ///
    /// # Panics
    /// When their lengths differ or are not a multiple of [`CODE_LANES`].
    #[inline]
    pub fn between(&self, a: &[u8], b: &[u8], step: f32) -> f32 {
        assert!(
            a.len() == b.len() && a.len().is_multiple_of(CODE_LANES),
            "rows of {} and {} bytes; equal multiples of {CODE_LANES} are needed",
            a.len(),
            b.len()
        );
        let sum = self.entry.between(a, b);
        match self.metric {
            Metric::L2 => step * step * sum as f32,
            metric => base_of(metric) + -(step * step) * sum as f32,
        }
    }

    /// Distances of `query` to rows `slots` of `table`, in that order, later rows prefetched while earlier ones are scored.
    ///
    /// # Panics
    /// When a slot is outside the table, rows are not [`CodeQuery::len`] long, or `out` is shorter than `slots`.
    #[inline]
    pub fn distances(&self, query: &CodeQuery, table: RowTable<'_, u8>, slots: &[u32], out: &mut [f32]) {
        let out = &mut out[..slots.len()];
        assert_eq!(query.len(), table.row_len(), "bytes of a row");
        // The sums go where the distances will be: of the same size, and any bits are valid for both.
        self.entry.rows(&query.bytes, table, slots, out);
        for distance in out {
            *distance = query.distance(distance.to_bits() as i32);
        }
    }
}
