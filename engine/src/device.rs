//! Rows held by a device beside the memory of the cores, and exact search over them: what an accelerator offers.
//!
//! The engine knows the trait only. A device numbers rows as it is told (collections use their slots), holds a copy of each, and
//! finds the nearest rows among those that a bit mask leaves. Devices, and the plain reference they are tested against, live in
//! crates of their own.

/// Largest `k` of one search on a device. Twice what a collection asks a device for at most ([`RESULTS_MAX`]): the rest shows
/// whether anything left out could belong into the result.
pub const K_MAX: usize = 512;

/// Most results of a search of a collection that a device answers; above it the cores do.
pub const RESULTS_MAX: usize = 256;

/// A found row; ordered by (distance, row) ascending, smaller is closer in every metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Row number.
    pub row: u32,
    /// Distance to the query, as the engine's metrics define it, summed in the device's own order; NaN sorts last.
    pub distance: f32,
}

/// Why a device refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// This build carries no device code.
    #[error("gpu: not compiled: this build has no accelerator support")]
    NotCompiled,
    /// The driver's library is not installed.
    #[error("gpu: no driver: {0}")]
    NoDriver(String),
    /// The driver finds no device, or none that it may use.
    #[error("gpu: no device: {0}")]
    NoDevice(String),
    /// The library that compiles the kernels is not installed.
    #[error("gpu: no kernel compiler: {0}")]
    NoCompiler(String),
    /// The kernels do not compile for the device, or it does not load them.
    #[error("gpu: the device does not take the kernels: {0}")]
    Kernels(String),
    /// More results asked for than [`K_MAX`], or none.
    #[error("gpu: k must be between 1 and {K_MAX}, found {0}")]
    BadK(usize),
    /// A slice does not hold `dim` values for every row or query.
    #[error("gpu: {values} values are not what {rows} rows of {dim} have")]
    BadShape {
        /// Values passed.
        values: usize,
        /// Rows or queries they are for; for queries the whole ones among them.
        rows: usize,
        /// Row length of the device.
        dim: usize,
    },
    /// A row number that no device holds: 2^32 - 1.
    #[error("gpu: row {0} is beyond the last that a device holds")]
    BadRow(u32),
    /// The device's memory is full; what was written before is intact.
    #[error("gpu: the device has no memory for {bytes} more bytes")]
    OutOfMemory {
        /// Bytes that did not fit.
        bytes: usize,
    },
    /// The device or its driver failed; what it holds is unknown, and it is of no more use.
    #[error("gpu: the device failed: {0}")]
    Failed(String),
}

/// Rows on a device, and exact search over them.
///
/// One owner uses a device at a time; calls block until the device is done, so they belong on a thread of their own.
/// Under cosine rows and queries are of unit length when they arrive (the engine prepares them), a zero row stays zero.
pub trait ExactDevice {
    /// What it is, for the log.
    fn name(&self) -> String;

    /// Row length.
    fn dim(&self) -> usize;

    /// Rows held: one more than the highest row ever written.
    fn len(&self) -> usize;

    /// Whether no row is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes rows, `dim` finite f32 values each: new ones, or over old ones. The device grows to the highest; rows that it jumps
    /// over are zero. Of two writes of one row in a call the later counts. Cost: the transfer of the values.
    ///
    /// # Errors
    /// [`DeviceError::BadShape`], [`DeviceError::BadRow`], [`DeviceError::OutOfMemory`]: nothing is written then.
    /// [`DeviceError::Failed`].
    fn write(&mut self, rows: &[u32], values: &[f32]) -> Result<(), DeviceError>;

    /// Finds the `k` nearest live rows of each query (`dim` values each), nearest first, ties by ascending row.
    ///
    /// `live` holds one bit per row, least significant first; rows whose bit is missing or 0 are passed over. Answers one list
    /// per query, shorter than `k` when fewer rows are live. Cost: every live row, for every query; several queries share the
    /// reading of the rows.
    ///
    /// # Errors
    /// [`DeviceError::BadK`], [`DeviceError::BadShape`], [`DeviceError::OutOfMemory`], [`DeviceError::Failed`].
    fn search(&mut self, queries: &[f32], k: usize, live: &[u64]) -> Result<Vec<Vec<Found>>, DeviceError>;

    /// Bytes per second that its memory delivers at best, where that is known.
    fn peak_bytes_per_s(&self) -> Option<f64> {
        None
    }
}

/// Whether `values` are those of `rows` rows of `dim`, and no row is 2^32 - 1: the checks of every [`ExactDevice::write`].
///
/// # Errors
/// [`DeviceError::BadShape`], [`DeviceError::BadRow`].
pub fn check_rows(dim: usize, rows: &[u32], values: &[f32]) -> Result<(), DeviceError> {
    if rows.len().checked_mul(dim) != Some(values.len()) {
        return Err(DeviceError::BadShape { values: values.len(), rows: rows.len(), dim });
    }
    if rows.contains(&u32::MAX) {
        return Err(DeviceError::BadRow(u32::MAX));
    }
    Ok(())
}

/// Whether `queries` are whole rows of `dim` and `k` is one that devices answer: the checks of every [`ExactDevice::search`].
///
/// # Errors
/// [`DeviceError::BadShape`], [`DeviceError::BadK`].
pub fn check_queries(dim: usize, queries: &[f32], k: usize) -> Result<(), DeviceError> {
    if !queries.len().is_multiple_of(dim) {
        return Err(DeviceError::BadShape { values: queries.len(), rows: queries.len() / dim, dim });
    }
    if k == 0 || k > K_MAX {
        return Err(DeviceError::BadK(k));
    }
    Ok(())
}
