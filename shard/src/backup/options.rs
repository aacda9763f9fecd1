//! Where a node's backups go, and how often. The crate that knows files and sockets gives the node what opens its stores.

use super::store::Store;
use crate::archive::{ArchiveOptions, RestoreMoment};
use std::rc::Rc;
use std::sync::Arc;

/// How a node makes backups. The default makes none.
#[derive(Clone, Debug, Default)]
pub struct BackupOptions {
    /// The backup directory.
    pub directory: Option<BackupTarget>,
    /// The bucket.
    pub bucket: Option<BackupTarget>,
    /// Between two backups, milliseconds; 0 makes none by itself.
    pub interval_ms: u64,
    /// Snapshots that are kept of each collection, 0 = all.
    pub retention: usize,
    /// What a backup may read and write, bytes per second; 0 = as much as it can.
    pub bytes_per_second: u64,
    /// Collections that were not used for so long move to the store, milliseconds; 0 = none moves by itself.
    pub cold_after_ms: u64,
    /// How the log is archived; `None`: it is not.
    pub archive: Option<ArchiveOptions>,
    /// Has the start fill an empty data directory with what there was at a moment.
    pub restore: Option<RestoreMoment>,
    /// The API keys that are backed up with the node, if it has a registry of them.
    pub api_keys: Option<ApiKeysText>,
}

impl BackupOptions {
    /// Whether there is a store.
    pub fn has_store(&self) -> bool {
        self.directory.is_some() || self.bucket.is_some()
    }
}

/// A store, and the part of it that is this node's.
#[derive(Clone, Debug)]
pub struct BackupTarget {
    /// What opens the store on a core.
    pub stores: Stores,
    /// What each key begins with, followed by a slash; empty: keys have nothing before the name of a collection.
    pub prefix: String,
}

/// Says what the file of API keys contains. The crate that knows API keys gives the node this; the text has no token.
#[derive(Clone)]
pub struct ApiKeysText(Arc<dyn Fn() -> Vec<u8> + Send + Sync>);

impl ApiKeysText {
    /// `text` returns the whole file as it is at that moment, in UTF-8. It may take some tenths of a second and is called on a thread beside the cores.
    pub fn new(text: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> ApiKeysText {
        ApiKeysText(Arc::new(text))
    }

    /// The file.
    pub fn read(&self) -> Vec<u8> {
        (self.0)()
    }
}

impl std::fmt::Debug for ApiKeysText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKeysText")
    }
}

type Open = dyn Fn() -> Rc<dyn Store> + Send + Sync;

/// Opens one store on as many cores as like: each has a handle of its own, and all handles share the thread that does the work.
#[derive(Clone)]
pub struct Stores(Arc<Open>);

impl Stores {
    /// `open` is called on the thread of a core and returns at once.
    pub fn new(open: impl Fn() -> Rc<dyn Store> + Send + Sync + 'static) -> Stores {
        Stores(Arc::new(open))
    }

    /// A handle for the calling core.
    pub fn open(&self) -> Rc<dyn Store> {
        (self.0)()
    }
}

impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stores")
    }
}
