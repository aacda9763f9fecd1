//! The key-value store of one shard: the owner writes, any core reads.
//!
//! * [`Writer`]: decides about operations and applies what they come to; makes room, sweeps, empties, reads out.
//! * [`View`]: lookups on any core, under a pin.
//! * [`KeyHasher`]: one hash of a key for shard, bucket and mark.
//! * [`KeyIndex`]: keys in order and by what their records hold, for queries.
//! * [`operate`]: the record model, an atomic list of checks and writes on one stored value.
//!
//! # Shape
//!
//! ```text
//! key -- hash --> bucket (one cache line) -- place --> entry in a page (header, key, value)
//! ```
//!
//! A hash table grows bucket by bucket (`table`, `index`). Entries are appended to pages of a fixed budget (`entry`, `pages`), a
//! log without a file: the page that was written first is emptied and written again (`evict`). A wheel knows what expires when
//! (`wheel`, `sweep`); while a store is read from images and a log, room is made in an order of its own (`restore`). An operation is first *prepared*, which changes no key and gives an [`Effect`], then *applied*; the owner
//! appends the effect to its log between the two.
//!
//! # Invariants
//!
//! 1. *One writer*: `&mut Writer` says so. Nothing here waits, and no step is longer than what a request asks for, but for
//!    those that take a budget.
//! 2. *Readers see the old or the new value, never a mixture, never another key's, never one that has expired.* Slots are swung in
//!    one store after the entry is complete; entries do not change afterwards but for one word (the deadline), or under a
//!    sequence (`entry`); memory is reused by quiescence (`memory::quiescence`).
//! 3. Time, seed, budget and domain are given by the caller.
//! 4. All words are atomics: this room has no `unsafe`.

mod config;
mod drain;
mod entry;
mod evict;
mod flush;
mod hash;
mod index;
mod key_index;
mod op;
pub mod operate;
mod pages;
mod prepare;
mod record_filter;
mod restore;
mod ruins;
mod snapshot;
mod stats;
mod sweep;
mod table;
mod view;
mod wheel;
mod words;
mod writer;

pub use config::{Config, ConfigError, Geometry};
pub use entry::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use hash::{KeyHash, KeyHasher};
pub use key_index::{KeyIndex, Rank};
pub use op::{Action, Effect, Op, Prepared, Reply, StoreError, TTL_MS_MAX};
pub use pages::Grow;
pub use record_filter::{RecordFilter, RecordFilterError};
pub use snapshot::SnapshotCursor;
pub use stats::Stats;
pub use view::{Read, View};
pub use writer::Writer;

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom), not(miri)))]
mod tests;
