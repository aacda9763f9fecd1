//! The binary protocol over TCP: frames, operations, and the layouts of their arguments and results.
//!
//! This is the codec alone, from bytes to requests and from results to bytes; it knows no socket and decides nothing about
//! data. Reading order: [`frame`] (what travels), [`ops`] (what may be asked for, and by whom), then [`kv`], [`process`] and
//! [`vector`], decoded by the cursor of [`reader`].
//!
//! A caller takes frames from the front of its buffer with [`frame::decode`], asks [`ops::required`] for the right each
//! needs, looks its operation up with [`ops::find`], and appends responses with the functions of [`frame`].

pub mod frame;
pub mod kv;
pub mod ops;
pub mod process;
pub mod reader;
pub mod vector;

#[cfg(test)]
mod hex;
