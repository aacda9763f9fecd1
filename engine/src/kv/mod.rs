//! The key-value store: one flat keyspace of byte strings.
//!
//! [`operate`] is the record model: an atomic list of checks and writes on one stored value.

pub mod operate;
