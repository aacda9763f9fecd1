//! What opens devices.

use nigh_engine::device::{DeviceError, ExactDevice};
use nigh_engine::distance::Metric;
use std::sync::Arc;

type Open = dyn Fn(usize, Metric) -> Result<Box<dyn ExactDevice>, DeviceError> + Send + Sync;

/// What opens a device for rows of so many values under a metric. By default there is none, as in a build without device code.
#[derive(Clone)]
pub struct Devices(Arc<Open>);

impl Devices {
    /// `open` runs on the lane's thread, and may take its time.
    pub fn new(
        open: impl Fn(usize, Metric) -> Result<Box<dyn ExactDevice>, DeviceError> + Send + Sync + 'static,
    ) -> Devices {
        Devices(Arc::new(open))
    }

    pub(super) fn open(&self, dim: usize, metric: Metric) -> Result<Box<dyn ExactDevice>, DeviceError> {
        (self.0)(dim, metric)
    }
}

impl Default for Devices {
    fn default() -> Devices {
        Devices::new(|_, _| Err(DeviceError::NotCompiled))
    }
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Devices")
    }
}
