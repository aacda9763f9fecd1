//! Where the backups of a node go, and how often they are made. The crate that knows files and sockets passes the functions that open the stores.

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
    /// Milliseconds between two runs; with 0, runs are made only on request.
    pub interval_ms: u64,
    /// Snapshots that are kept of each collection and of each part of the node; 0 = all.
    pub retention: usize,
    /// Bytes per second that a run, a restore, an eviction or a promotion may read and write; 0 = no limit.
    pub bytes_per_second: u64,
    /// A collection that was not used for this many milliseconds is evicted to the store; with 0, the server does not evict unused collections by
    /// itself.
    pub cold_after_ms: u64,
    /// How the log is archived; `None` = it is not archived.
    pub archive: Option<ArchiveOptions>,
    /// A moment to which the start restores an empty data directory.
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

/// A store, and the prefix under which this node writes to it.
#[derive(Clone, Debug)]
pub struct BackupTarget {
    /// Opens the store on a core.
    pub stores: Stores,
    /// The prefix of the key of each object, which a slash follows. If it is empty, keys begin with the name of a collection or of a part.
    pub prefix: String,
}

/// A function that returns the contents of the file of API keys, without any token. The crate that knows API keys passes it to the node.
#[derive(Clone)]
pub struct ApiKeysText(Arc<dyn Fn() -> Vec<u8> + Send + Sync>);

impl ApiKeysText {
    /// `text` returns the whole file as it is at that moment, in UTF-8. It may take some tenths of a second, and is called on a thread beside the
    /// cores.
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

/// Opens one store on any number of cores. Each core has a handle of its own, and all handles share the thread that does the work.
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
