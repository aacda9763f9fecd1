//! One core's owner of data, tasks, files and time.
//!
//! The only crate that spawns, and the only one that knows glommio (in [`runtime`] alone). Disk, clock and mesh are
//! behind traits so a simulator can stand in for all three.

pub mod checkpoint;
pub mod core;
pub mod cores;
pub mod disk;
pub mod log;
pub mod mesh;
pub mod reactor;
pub mod runtime;
pub mod sim;
