//! The binary protocol over TCP: frames, operations, the layouts of their arguments and results, and connections.
//!
//! The codec, from bytes to requests and from results to bytes, knows no socket and decides nothing about data. Reading order:
//! [`frame`] (what travels), [`ops`] (what may be asked for, and by whom), then [`kv`], [`kv_query`], [`process`] and [`vector`], decoded by the
//! cursor of [`reader`].
//!
//! A caller takes frames from the front of its buffer with [`frame::decode`], asks [`ops::required`] for the right each
//! needs, looks its operation up with [`ops::find`], and appends responses with the functions of [`frame`].
//!
//! Connections are [`serve`]d: `server` accepts, `connection` is the life of one, over a `transport` (`completion` is the other, and `secured` puts TLS over
//! either) and in `buffers` that the core
//! lends; `requests` makes requests of frames, `round` carries out those that have arrived together, by `execute`.

mod access;
mod buffers;
mod completion;
mod config;
mod connection;
pub mod counters;
mod execute;
pub mod frame;
mod here;
pub mod kv;
pub mod kv_query;
mod laps;
pub mod ops;
pub mod process;
pub mod reader;
mod requests;
mod round;
mod secured;
mod server;
mod topology;
mod transport;
pub mod vector;

pub use config::{Loops, TcpConfig};
pub use server::serve;
pub use topology::check_advertised;

#[cfg(test)]
mod hex;

#[cfg(test)]
pub(crate) use server::sim as sim_server;
