//! Exact search on an accelerator, behind one trait.
//!
//! [`ExactDevice`] says what a device does: hold rows, and find the nearest of them to a batch of queries, exactly.
//! [`Reference`] is the same on the CPU, in the plainest form: every device is tested against it, and it needs no
//! hardware, driver or runtime. [`open`] opens a device; this build carries no kernels, so it answers
//! [`DeviceError::NotCompiled`], which is also what creating a `gpu` collection answers.
//!
//! This crate knows the engine's metrics and nothing of collections, cores or sockets. It never touches the executor:
//! machines with accelerators may lack io_uring, and calls here block.
mod device;
mod reference;

pub use device::{DeviceError, ExactDevice, Found, K_MAX, open};
pub use reference::Reference;
