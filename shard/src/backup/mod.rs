//! Backups: snapshots of collections and of keys in a store, which is a directory, a bucket or, for tests, memory. `names` says under which keys
//! of objects a store has them, and `snapshot` what a snapshot contains. A *run* ([`crate::core`]) stores a snapshot of each collection, made by
//! the core that owns it (`collection`), and sends its files in `pieces`. It also stores the *parts* of the node: the aliases, the definitions of
//! key indexes and the API keys (`part`), and the keys of all cores (`keys`).

mod collection;
mod error;
mod keys;
mod memory_store;
mod names;
mod options;
mod part;
mod pieces;
mod restore;
mod snapshot;
mod store;
mod verify;

pub(crate) use collection::{
    ColdSnapshot, Job, LastSnapshot, PerStore, Stored, read_snapshot, retire, times,
};
pub use error::BackupError;
pub(crate) use keys::{
    KeysText, SentImage, keys_text, not_held, send_held_keys, snapshot_of_keys, stored_pieces_of_keys,
};
pub use memory_store::{Fault, MemoryStore, Requests};
pub use names::time_text;
pub(crate) use names::{CONFIG, Names, SNAPSHOT, is_time};
pub use options::{ApiKeysText, BackupOptions, BackupTarget, Stores};
pub use part::NodePart;
pub(crate) use part::{ApiKeysFile, PartContent, back_up_part};
pub(crate) use pieces::{put, read_whole};
pub(crate) use restore::fetch_store;
pub(crate) use snapshot::{Snapshot, StoreSnapshot};
pub use store::{KEY_MAX_BYTES, Listing, Object, READ_MAX_BYTES, Store, StoreError, Upload, check_key};
pub(crate) use verify::verify;

/// The formats of the objects of backups, see [`crate::formats`].
pub(crate) const FORMATS: [(&str, u32); 2] =
    [("snapshot of a backup", snapshot::VERSION), ("keys.json of a snapshot", keys::FORMAT)];
