//! Searches of collections with `index_type` "gpu": on a device, through one thread that all cores share.
//!
//! A core sends a plain search of up to 256 results to the lane and waits. The lane's thread takes all that wait at once,
//! brings the device's copy of each collection up to date (its mirror), and answers those of one collection under one pin, so
//! that it sees one moment of it: the unfiltered in one launch, and those whose matches the payload index names by a mask of
//! their own. What the device leaves unsure the core answers by an exact scan, as it does where there is no device.
//!
//! The thread starts with the first search or create that needs it. Devices block, which cores may not; a device's context likes
//! one thread; and one queue is what makes searches share a launch.
mod answer;
mod lane;
mod mirror;
#[cfg(test)]
mod tests;

pub(crate) use lane::Lane;

use crate::catalog::CollectionHandle;
use crate::core::{Core, FoundPoint, OpError, SearchRequest};
use nigh_engine::device::{DeviceError, ExactDevice, RESULTS_MAX};
use nigh_engine::distance::Metric;
use std::rc::Rc;
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

    fn open(&self, dim: usize, metric: Metric) -> Result<Box<dyn ExactDevice>, DeviceError> {
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

impl Core {
    /// Answers a search on the collection's device; `None` where the cores have to: more results than a device gives, no device, or
    /// none that is sure of the answer.
    pub(crate) async fn search_on_device(
        self: &Rc<Self>,
        handle: &Arc<CollectionHandle>,
        request: &SearchRequest,
    ) -> Option<Result<Vec<FoundPoint>, OpError>> {
        if !(1..=RESULTS_MAX).contains(&request.k) {
            return None;
        }
        self.node().lane.search(handle.clone(), request.clone(), self.env().unix_ms()).await
    }
}
