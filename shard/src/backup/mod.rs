//! Backups: the stores that they go to. A store holds objects under keys, in a directory, in a bucket or, for tests, in memory.

mod memory_store;
mod options;
mod store;

pub use memory_store::{Fault, MemoryStore, Requests};
pub use options::{BackupOptions, BackupTarget, Stores};
pub use store::{KEY_MAX_BYTES, Listing, Object, READ_MAX_BYTES, Store, StoreError, Upload, check_key};
