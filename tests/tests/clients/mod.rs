//! What existing clients send, byte by byte, and how they read the answers.
//!
//! The clients cannot be changed, so their half of each exchange is written out here instead of being produced by code
//! of ours: the requests are literals, and the answers are read by the few rules those clients have ([`wire::Answer`]).

mod adapters;
mod collections;
mod lanes;
mod reads;
mod search;
mod transport;
mod values;
mod wire;
mod writes;
