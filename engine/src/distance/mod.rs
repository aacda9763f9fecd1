//! Distance kernels: a scalar reference, AVX2, AVX-512 (VNNI) and NEON behind one table chosen at first use.
//!
//! Smaller distance means closer, in every metric. Rows are padded with zeros to a multiple of [`LANES`] floats
//! ([`CODE_LANES`] bytes for int8 codes), so kernels have no tails and rows start on cache lines.
//!
//! * [`Kernel`] scores f32 rows under a [`Metric`]: one pair, or one query against many rows of a table with
//!   prefetch. Both forms run the same instructions in the same order, so their results are bit-identical on one
//!   machine; across instruction sets sums are reordered and differ in the last bits.
//! * [`CodeKernel`] scores int8 codes; every level gives the same distance.
//! * [`PlaneKernel`] multiplies packed codes of 1, 4, 6 or 8 bits with a query of signed bytes, for quantizers.
//! * [`ShuffleKernel`] sums table entries for 32 codes of four bits a number at once.
//! * [`GreatestProducts`] finds the greatest product of each of several vectors with any of many rows, for MaxSim.
//!   Its rows are not padded.
//! * [`ColumnKernel`] compares 64 values of a column with the bounds of a range at once, for filters.
//!
//! This room knows nothing of slots' meaning, graphs or collections.

mod code;
mod column;
mod compare;
mod dispatch;
mod entries;
mod greatest;
mod kernel;
mod planes;
mod prepare;
mod rows;
mod scalar;
mod shuffle;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(test)]
mod tests;

pub use code::{CODE_DIM_MAX, CODE_LANES, CodeKernel, CodeQuery, encode, encoding_error, padded_code};
pub use column::ColumnKernel;
pub use compare::{BucketCells, BucketRange, PACKED as BUCKETS_PACKED, WORD as COLUMN_WORD};
pub use dispatch::{SimdLevel, simd_level};
pub use entries::BLOCK as PLANE_BLOCK;
pub use greatest::{GROUP as PRODUCT_GROUP, GreatestProducts};
pub use kernel::Kernel;
pub use planes::{PlaneKernel, Width};
pub use prepare::prepare;
pub use rows::{RowTable, prefetch_line, prefetch_row};
pub use shuffle::{CODES as SHUFFLED_CODES, PAIR_BYTES as SHUFFLED_PAIR, ShuffleKernel};

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
