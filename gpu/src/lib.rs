//! Exact search on an accelerator.
//!
//! [`ExactDevice`] says what a device does: hold rows, and find the nearest of them to a batch of queries, exactly.
//! [`Reference`] is the same on the CPU, in the plainest form: every device is tested against it, and it needs no
//! hardware, driver or runtime. [`open`] opens a device. Kernels are compiled in with the feature `cuda`, off by default; without
//! it [`open`] answers [`DeviceError::NotCompiled`], which is also what creating a `gpu` collection answers.
//!
//! With the feature nothing of CUDA is needed to build: driver and kernel compiler (NVRTC) are loaded when a device is opened.
//!
//! This crate knows the engine's metrics and nothing of collections, cores or sockets. It never touches the executor:
//! machines with accelerators may lack io_uring, and calls here block.
#[cfg(any(feature = "cuda", test))]
mod chunks;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(feature = "cuda", test))]
mod keys;
mod reference;

pub use nigh_engine::device::{DeviceError, ExactDevice, Found, K_MAX};
pub use reference::Reference;

use nigh_engine::distance::Metric;

/// Opens the first device for rows of `dim` values under `metric`. Takes some hundred milliseconds: the driver starts, and the
/// kernels are compiled.
///
/// # Errors
/// [`DeviceError::NotCompiled`] in a build without the feature `cuda`; [`DeviceError::NoDriver`], [`DeviceError::NoDevice`],
/// [`DeviceError::NoCompiler`], [`DeviceError::Kernels`] where something is missing, [`DeviceError::OutOfMemory`].
///
/// # Panics
/// When `dim` is 0.
pub fn open(dim: usize, metric: Metric) -> Result<Box<dyn ExactDevice>, DeviceError> {
    assert!(dim > 0, "rows of no values have no distance");
    #[cfg(feature = "cuda")]
    return Ok(Box::new(cuda::Cuda::open(dim, metric)?));
    #[cfg(not(feature = "cuda"))]
    {
        let _ = metric;
        Err(DeviceError::NotCompiled)
    }
}
