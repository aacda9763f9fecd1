//! One core's owner of data, tasks, files and time.
//!
//! The only crate that spawns, and the only one that knows glommio (in [`runtime`] alone). Disk, clock and mesh are
//! behind traits so a simulator can stand in for all three.

// Under `--cfg loom` the mesh is built alone, for its models: the executor beneath the other rooms does not know loom.
#[cfg(not(loom))]
pub mod access;
pub mod account;
#[cfg(not(loom))]
pub mod alias_file;
#[cfg(not(loom))]
pub mod answer;
#[cfg(not(loom))]
pub mod archive;
#[cfg(not(loom))]
pub mod backup;
#[cfg(not(loom))]
pub mod catalog;
#[cfg(not(loom))]
pub mod checkpoint;
#[cfg(not(loom))]
mod cold_stub;
#[cfg(not(loom))]
pub mod collection_file;
#[cfg(not(loom))]
pub mod completions;
#[cfg(not(loom))]
pub mod core;
#[cfg(not(loom))]
pub mod cores;
#[cfg(not(loom))]
pub mod ctx;
#[cfg(not(loom))]
mod damage_mark;
#[cfg(not(loom))]
pub mod device;
#[cfg(not(loom))]
pub mod directory;
#[cfg(not(loom))]
pub mod disk;
#[cfg(not(loom))]
pub mod env;
#[cfg(not(loom))]
pub mod error;
#[cfg(not(loom))]
pub mod event;
#[cfg(not(loom))]
pub mod family;
#[cfg(not(loom))]
pub mod formats;
#[cfg(not(loom))]
pub mod found;
mod found_vectors;
#[cfg(not(loom))]
mod journal;
#[cfg(not(loom))]
pub mod kv;
#[cfg(not(loom))]
mod lanes;
#[cfg(not(loom))]
pub mod latency;
#[cfg(not(loom))]
pub mod log;
pub mod mesh;
#[cfg(not(loom))]
pub mod node;
#[cfg(not(loom))]
mod opening;
#[cfg(not(loom))]
pub mod owner;
#[cfg(not(loom))]
pub mod payload_change;
#[cfg(not(loom))]
pub mod points;
#[cfg(not(loom))]
pub mod progress;
#[cfg(not(loom))]
pub mod question;
#[cfg(not(loom))]
pub mod reactor;
#[cfg(not(loom))]
mod recovery;
#[cfg(not(loom))]
pub mod refusals;
#[cfg(not(loom))]
pub mod reserve;
#[cfg(not(loom))]
mod restored_mark;
#[cfg(not(loom))]
mod ring;
#[cfg(not(loom))]
pub mod runtime;
#[cfg(not(loom))]
pub mod sealed_json;
#[cfg(not(loom))]
pub mod sim;
#[cfg(not(loom))]
pub mod slice;
#[cfg(not(loom))]
pub mod start;
#[cfg(not(loom))]
pub mod system;
#[cfg(not(loom))]
pub mod twin;
