//! The trait, its errors, and where devices come from.
use nigh_engine::distance::Metric;

/// Largest `k` a device answers; above it the caller searches on the CPU. A block of threads keeps its candidates in
/// on-chip memory, and 256 pairs of id and distance are what fits beside the rows.
pub const K_MAX: usize = 256;

/// A found row; ordered by (distance, row) ascending, smaller is closer in every metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Row number, in order of upload from 0.
    pub row: u32,
    /// Distance to the query, as the engine's metrics define it.
    pub distance: f32,
}

/// Why a device refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// This build carries no device code.
    #[error("gpu: not compiled: this build has no accelerator support")]
    NotCompiled,
    /// More results asked for than [`K_MAX`], or none.
    #[error("gpu: k must be between 1 and {K_MAX}, found {0}")]
    BadK(usize),
    /// A slice is no whole number of rows, or holds more rows than 2^32 - 1.
    #[error("gpu: {values} values are no whole number of rows of {dim}")]
    BadShape {
        /// Values passed.
        values: usize,
        /// Row length of the device.
        dim: usize,
    },
    /// The device's memory is full; what was uploaded before is intact.
    #[error("gpu: the device has no memory for {bytes} more bytes")]
    OutOfMemory {
        /// Bytes that did not fit.
        bytes: usize,
    },
}

/// Rows on a device, and exact search over them.
///
/// One owner uses a device at a time; calls block until the device is done, so they belong on a thread of their own.
/// Under cosine rows and queries are of unit length when they arrive (the engine prepares them), a zero row stays zero.
pub trait ExactDevice {
    /// What it is, for the start log.
    fn name(&self) -> String;

    /// Row length.
    fn dim(&self) -> usize;

    /// Rows held.
    fn len(&self) -> usize;

    /// Whether no row is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends rows, `dim` finite f32 values each; they are numbered from [`Self::len`].
    ///
    /// # Errors
    /// [`DeviceError::BadShape`], [`DeviceError::OutOfMemory`]; nothing is appended then.
    fn append(&mut self, rows: &[f32]) -> Result<(), DeviceError>;

    /// Finds the `k` nearest live rows of each query (`dim` values each), nearest first, ties by ascending row.
    ///
    /// `live` holds one bit per row, least significant first; rows whose bit is missing or 0 are passed over. `out`
    /// gets one list per query, shorter than `k` when fewer rows are live. Cost: every row, for every query.
    ///
    /// # Errors
    /// [`DeviceError::BadK`], [`DeviceError::BadShape`].
    fn search(&self, queries: &[f32], k: usize, live: &[u64]) -> Result<Vec<Vec<Found>>, DeviceError>;
}

/// Opens a device for rows of `dim` values under `metric`.
///
/// # Errors
/// [`DeviceError::NotCompiled`] in a build without device code, which today is every build.
pub fn open(dim: usize, metric: Metric) -> Result<Box<dyn ExactDevice>, DeviceError> {
    let _ = (dim, metric);
    Err(DeviceError::NotCompiled)
}
