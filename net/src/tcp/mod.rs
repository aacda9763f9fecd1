//! The binary protocol over TCP: frames, operations, and the layouts of their arguments and results.
//!
//! This is the codec alone, from bytes to requests and from results to bytes; it knows no socket and decides nothing about
//! data. Reading order: [`frame`] (what travels), then the cursor of [`reader`] that arguments are decoded with.

pub mod frame;
pub mod reader;

#[cfg(test)]
mod hex;
