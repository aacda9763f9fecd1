//! Bytes to requests and back: the front ends of Nigh.
//!
//! The operations ([`op`]) and one [`door`] stand between every wire format and the storage behind `nigh_shard::core::Core`; a front
//! end is a codec around them and decides nothing about data.
//! This crate knows sockets, HTTP, JSON, the binary protocol and gRPC. It knows no engine internals, spawns nothing but connections, and every
//! limit on what a client may send has a name in [`limits`].
//!
//! Reading order: [`op::table`], [`op`], [`door`], then [`rest`] (the REST codec), [`http`] (connections on a core),
//! [`tcp`] (the codec of the binary protocol) and [`grpc`].

#![forbid(unsafe_code)]

mod accept;
pub mod access_log;
pub mod auth;
mod collected;
mod connections;
pub mod door;
mod exposition;
pub mod grpc;
mod gunzip;
pub mod http;
mod kv_metrics;
pub mod limits;
pub mod metrics;
pub mod op;
mod paged;
pub mod rest;
mod room;
#[cfg(test)]
mod sim_tests;
mod socket;
pub mod tcp;
pub mod tls;
mod together;
pub mod trace_context;
mod wire;

use nigh_shard::disk::LocalBoxFuture;
use nigh_shard::runtime::CoreRuntime;

pub use http::{HttpConfig, bind};
pub use rest::serve;

/// What a front end does on its core until the process is asked to stop.
pub type Serving = LocalBoxFuture<'static, std::io::Result<()>>;

/// The executor of the calling thread's core.
///
/// # Panics
/// On threads that are no cores: front ends are served by cores alone.
fn executor() -> CoreRuntime {
    CoreRuntime::current().expect("a front end is served on a core")
}
