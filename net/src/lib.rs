//! Bytes to requests and back: the front ends of Nigh.
//!
//! One typed request set ([`request`]) and one dispatcher ([`dispatch`]) stand between every wire format and
//! the storage behind `nigh_shard::core::Core`; a front end is a codec around them and decides nothing about data.
//! This crate knows sockets, HTTP, JSON and the binary protocol. It knows no engine internals, spawns nothing but connections, and every
//! limit on what a client may send has a name in [`limits`].
//!
//! Reading order: [`request`], [`dispatch`], then [`rest`] (the REST codec), [`http`] (connections on a core) and
//! [`tcp`] (the codec of the binary protocol).

pub mod absent_requests;
mod accept;
pub mod access_log;
pub mod auth;
mod connections;
pub mod dispatch;
pub mod http;
mod kv_metrics;
pub mod lane_requests;
pub mod limits;
pub mod metrics;
pub mod request;
pub mod rest;
pub mod tcp;

pub use http::{HttpConfig, bind, serve};
