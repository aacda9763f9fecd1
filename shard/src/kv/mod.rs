//! The key-value store of a node: one store per shard, written by the core that owns the shard, read by all.
//!
//! A key's hash says its shard ([`Keys::place_of`]), a shard's number its core. Reads go to the published table of the shard,
//! on whatever core they arrive. Writes are for the owner: it prepares, appends the effect to the core's log, applies, and does not await
//! in between, so the order in the log is the order in memory; whoever asked waits for the log ([`crate::ctx`]).
//!
//! What a front end asks for is a [`batch::KeyOp`]; [`batch`] brings it to the owner of its key and the result back.
//!
//! [`indexes`] has keys in order for those that [`query`] is asked about.
//!
//! Sequence numbers count the log records of a shard. [`checkpoint`] writes images of what changed, all shards of a core in one file;
//! `recovery` reads them and the log above them. What expires is not logged, deadlines being absolute; what is evicted is, or a
//! restart would bring it back.

pub mod batch;
mod book;
mod change;
pub mod checkpoint;
pub(crate) mod held;
mod hold;
pub mod index_file;
pub mod index_tasks;
pub mod indexes;
pub mod manifest;
mod outcome;
pub mod query;
pub mod record;
pub(crate) mod recovery;
pub(crate) mod replace;
mod shard;
mod shared;
mod store;
mod tape;
pub mod upkeep;

pub use change::Moment;
pub use shard::Refused;
pub use shared::{KeysOptions, KeysShared, SHARD_BYTES_MIN};
pub use store::{KeyHome, Keys, KeysStats, PREFETCHED_MAX};
