//! What existing clients send, byte by byte, and how they read the answers.
//!
//! The clients cannot be changed, so their half of each exchange is written out here instead of being produced by code
//! of ours: the requests are literals, and the answers are read by the few rules those clients have ([`wire::Answer`]).
//!
//! Every exchange takes place in every mode of access ([`nigh_tests::Mode`]), and is the same in all of them: only what the user of a client sets for
//! it, which is a token, a certificate and whom it trusts, is another.

mod adapters;
mod collections;
mod lanes;
mod reads;
mod search;
mod transport;
mod values;
mod wire;
mod writes;
