//! Changes of the catalog, as the archive has them: which collections there were, with which configuration, and the aliases and the definitions of key
//! indexes beside them. The files of the data directory have only the newest state of these.
//!
//! A change is a record of the log of core 0, durable before whoever asked for it is answered. A collection is there for the archive before anything can
//! be written to it, and gone only when nothing can be any more. The whole catalog is stored by each run, and again by each backup.

use super::{CATALOG_UID, Keeper};
use crate::catalog::{Catalog, CollectionHandle};
use crate::collection_file;
use crate::ctx::Ctx;
use crate::disk::Disk;
use crate::error::OpError;
use crate::event::Lock;
use crate::family::CollectionConfig;
use crate::journal::{Journal, Purpose, RecordKey};
use crate::sealed_json::{self, Layout, Unreadable};
use crate::slice::Slice;
use crate::twin;
use ahash::HashMap;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The newest format of a stored catalog.
pub(super) const FORMAT: u32 = 1;
/// Positions of changes are the lower half of the numbers of their records; the upper half is that of the run.
const POSITION_BITS: u32 = 32;

/// A collection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ArchivedCollection {
    pub uid: u64,
    /// The text of its `collection.json`.
    pub file: String,
    /// Its images have all changes up to this number.
    #[serde(default)]
    pub seq: u64,
    #[serde(flatten)]
    pub beside: Beside,
}

/// What is known of data that no log has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Beside {
    /// The key of the snapshot that the collection was made of, by a restore or because it was cold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// When data came in beside the log for the last time (a bulk build), Unix milliseconds: only snapshots from then on have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlogged_ms: Option<u64>,
}

/// How the keys are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeysEntry {
    /// Log records of shard `n` carry the uid `uid_base + n`.
    pub uid_base: u64,
    /// Up to which number images have each shard; one per shard.
    pub covered: Vec<u64>,
    /// When the keys were replaced or spread over shards for the last time, Unix milliseconds: only snapshots from then on have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlogged_ms: Option<u64>,
}

/// The catalog at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CatalogState {
    /// By full name.
    pub collections: BTreeMap<String, ArchivedCollection>,
    pub aliases: BTreeMap<String, String>,
    /// The text of their file.
    pub key_indexes: Option<String>,
    pub keys: Option<KeysEntry>,
}

/// A change of the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Change {
    /// A run with an archive has begun.
    Began,
    Collection {
        name: String,
        entry: ArchivedCollection,
    },
    Dropped {
        name: String,
    },
    Aliases {
        aliases: BTreeMap<String, String>,
    },
    KeyIndexes {
        file: String,
    },
    Keys {
        entry: KeysEntry,
    },
}

impl Beside {
    fn is_empty(&self) -> bool {
        *self == Beside::default()
    }
}

impl CatalogState {
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Began => {}
            Change::Collection { name, mut entry } => {
                if let Some(before) = self.collections.get(&name).filter(|before| before.uid == entry.uid) {
                    entry.seq = entry.seq.max(before.seq);
                    entry.beside.from = entry.beside.from.or_else(|| before.beside.from.clone());
                    entry.beside.unlogged_ms = entry.beside.unlogged_ms.max(before.beside.unlogged_ms);
                }
                self.collections.insert(name, entry);
            }
            Change::Dropped { name } => drop(self.collections.remove(&name)),
            Change::Aliases { aliases } => self.aliases = aliases,
            Change::KeyIndexes { file } => self.key_indexes = Some(file),
            Change::Keys { mut entry } => {
                let before = self.keys.as_ref().filter(|before| before.uid_base == entry.uid_base);
                entry.unlogged_ms = entry.unlogged_ms.max(before.and_then(|before| before.unlogged_ms));
                self.keys = Some(entry);
            }
        }
    }

    /// Takes over what an earlier run has noted of what is there.
    fn note(&mut self, marks: Marks) {
        let collections: HashMap<u64, Beside> = marks.collections.into_iter().collect();
        for entry in self.collections.values_mut() {
            if let Some(beside) = collections.get(&entry.uid) {
                entry.beside.from = entry.beside.from.take().or_else(|| beside.from.clone());
                entry.beside.unlogged_ms = beside.unlogged_ms;
            }
        }
        if let (Some(keys), Some((uid_base, unlogged_ms))) = (&mut self.keys, marks.keys)
            && keys.uid_base == uid_base
        {
            keys.unlogged_ms = keys.unlogged_ms.max(Some(unlogged_ms));
        }
    }

    fn is_changed_by(&self, change: &Change) -> bool {
        let mut after = self.clone_of(change);
        let before = after.clone();
        after.apply(change.clone());
        matches!(change, Change::Began) || after != before
    }

    /// What `change` is about, alone: the whole may have ten thousand collections.
    fn clone_of(&self, change: &Change) -> CatalogState {
        let mut part = CatalogState::default();
        match change {
            Change::Began => {}
            Change::Collection { name, .. } | Change::Dropped { name } => {
                let found = self.collections.get(name).map(|entry| (name.clone(), entry.clone()));
                part.collections.extend(found);
            }
            Change::Aliases { .. } => part.aliases.clone_from(&self.aliases),
            Change::KeyIndexes { .. } => part.key_indexes.clone_from(&self.key_indexes),
            Change::Keys { .. } => part.keys.clone_from(&self.keys),
        }
        part
    }

    pub fn encode(&self) -> Vec<u8> {
        sealed_json::encode(FORMAT, self, Layout::Compact)
    }

    pub fn decode(bytes: &[u8]) -> Result<CatalogState, Unreadable> {
        sealed_json::decode(FORMAT, bytes, "a catalog of an archive")
    }
}

impl Change {
    /// Reads the body of a record.
    pub fn decode(body: &[u8]) -> Result<Change, String> {
        serde_json::from_slice(body).map_err(|error| format!("not a change of the catalog: {error}"))
    }
}

/// The number of the record of a change, and the run and the position that it says.
pub(super) fn seq_of(generation: u64, position: u64) -> u64 {
    generation << POSITION_BITS | position
}

pub(super) fn position_of(seq: u64) -> (u64, u64) {
    (seq >> POSITION_BITS, seq & ((1 << POSITION_BITS) - 1))
}

/// A catalog that is to be stored.
#[derive(Clone)]
pub(super) struct CatalogCopy {
    pub generation: u64,
    pub position: u64,
    pub unix_ms: u64,
    pub state: CatalogState,
}

/// What core 0 has told the archive of the catalog.
#[derive(Default)]
pub(crate) struct CatalogLog {
    /// `None` until the store is open, and without an archive for good.
    state: RefCell<Option<CatalogState>>,
    generation: Cell<u64>,
    position: Cell<u64>,
    /// The catalog that this run began with, until it is stored.
    opening: RefCell<Option<CatalogCopy>>,
    /// Changes that could not be told yet, in order.
    pending: RefCell<VecDeque<Change>>,
    /// The file of what no log has is not as it should be.
    are_marks_behind: Cell<bool>,
    lock: Rc<Lock>,
    marks_lock: Rc<Lock>,
}

/// The file that says what no log has, of collections that are there.
fn marks_path() -> PathBuf {
    Path::new(super::DIR).join("unlogged.json")
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Marks {
    /// Of the collections with these uids, in order.
    collections: Vec<(u64, Beside)>,
    /// The uid of the first shard of keys, and when keys came in beside the log.
    keys: Option<(u64, u64)>,
}

impl Marks {
    /// `None` if the run before had no archive.
    async fn read(disk: &dyn Disk) -> Result<Option<Marks>, String> {
        let decode = |bytes: &[u8]| sealed_json::decode::<Marks>(FORMAT, bytes, "a list of what no log has");
        let found =
            twin::read(disk, &marks_path(), decode, |why| matches!(why, Unreadable::Newer { .. })).await;
        found.map_err(|error| format!("{}: {error}", marks_path().display()))
    }

    async fn store(&self, disk: &dyn Disk) -> std::io::Result<()> {
        disk.create_dir(Path::new(super::DIR)).await?;
        twin::replace(disk, &marks_path(), &sealed_json::encode(FORMAT, self, Layout::Compact)).await
    }
}

fn entry_of(
    uid: u64,
    name: &str,
    config: &CollectionConfig,
    seq: u64,
    from: Option<String>,
) -> ArchivedCollection {
    let file = String::from_utf8_lossy(&collection_file::encode(uid, name, config)).into_owned();
    ArchivedCollection { uid, file, seq, beside: Beside { from, unlogged_ms: None } }
}

impl Ctx {
    /// Whether the log of this node is archived.
    pub(crate) fn is_archived(&self) -> bool {
        self.options().backup.archive.is_some() && self.env().disk().is_some()
    }

    /// The segments that the archive waits for; `None` without an archive.
    pub(crate) fn keeper(&self) -> Option<Rc<Keeper>> {
        self.keeper.get().cloned()
    }

    /// The collections of a catalog. Costs some 20 us for each, and gives way.
    async fn present_collections(&self, catalog: &Catalog) -> BTreeMap<String, ArchivedCollection> {
        let hot: Vec<(Arc<CollectionHandle>, Arc<CollectionConfig>)> = {
            let pin = self.pin();
            let whole = catalog.by_name.values().filter(|handle| handle.damage.get().is_none());
            whole.map(|handle| (handle.clone(), handle.config(&pin).clone())).collect()
        };
        let (mut present, mut slice) = (BTreeMap::new(), Slice::begin(self.env()));
        for (handle, config) in hot {
            let seq = handle.covered_seq.load(Relaxed);
            present.insert(handle.name.clone(), entry_of(handle.uid, &handle.name, &config, seq, None));
            slice.check().await;
        }
        for cold in catalog.cold.values() {
            let entry = entry_of(cold.uid, &cold.name, &cold.config, 0, Some(cold.stub.key.clone()));
            present.insert(cold.name.clone(), entry);
            slice.check().await;
        }
        present
    }

    /// On core 0 when all is open and nothing has changed yet: notes the catalog that this run begins with. After a run without an archive nobody knows
    /// what came in beside its log, so that moments need a backup of this run then. `are_keys_new`: there were none before this run.
    /// `seqs` has the number of the newest change of each collection by its uid; all of them are durable.
    ///
    /// # Errors
    /// What is known of data beside the log cannot be read; the log does not take the first record.
    pub(crate) async fn begin_catalog_log(
        &self,
        keys: Option<KeysEntry>,
        are_keys_new: bool,
        key_indexes: Option<String>,
        seqs: &HashMap<u64, u64>,
    ) -> Result<(), String> {
        let (Some(disk), Some(log), true) = (self.env().disk(), self.log(), self.is_archived()) else {
            return Ok(());
        };
        let (catalog, marks) = (self.catalog_copy(), Marks::read(&*disk).await?);
        let mut state = CatalogState {
            collections: self.present_collections(&catalog).await,
            aliases: catalog.aliases.clone(),
            key_indexes,
            keys,
        };
        for entry in state.collections.values_mut() {
            entry.seq = seqs.get(&entry.uid).copied().unwrap_or(0).max(entry.seq);
        }
        match marks {
            Some(marks) => state.note(marks),
            None => {
                let now_ms = self.unix_ms();
                state.collections.values_mut().for_each(|entry| entry.beside.unlogged_ms = Some(now_ms));
                if let Some(keys) = state.keys.as_mut().filter(|_| !are_keys_new) {
                    keys.unlogged_ms = Some(now_ms);
                }
            }
        }
        let own = &self.catalog_log;
        own.generation.set(log.generation());
        *own.opening.borrow_mut() = Some(CatalogCopy {
            generation: log.generation(),
            position: 0,
            unix_ms: self.unix_ms(),
            state: state.clone(),
        });
        *own.state.borrow_mut() = Some(state);
        self.store_marks().await.map_err(|error| format!("{}: {error}", marks_path().display()))?;
        self.log_change(Change::Began).await.map_err(|error| error.to_string())
    }

    async fn store_marks(&self) -> std::io::Result<()> {
        let Some(disk) = self.env().disk() else { return Ok(()) };
        // The one that comes last knows most.
        let _alone = self.catalog_log.marks_lock.lock().await;
        let marks = {
            let state = self.catalog_log.state.borrow();
            let Some(state) = &*state else { return Ok(()) };
            let beside = state.collections.values().filter(|entry| !entry.beside.is_empty());
            let mut collections: Vec<_> = beside.map(|entry| (entry.uid, entry.beside.clone())).collect();
            collections.sort_unstable_by_key(|(uid, _)| *uid);
            Marks {
                collections,
                keys: state.keys.as_ref().and_then(|keys| Some((keys.uid_base, keys.unlogged_ms?))),
            }
        };
        if Marks::read(&*disk).await.is_ok_and(|found| found.as_ref() == Some(&marks)) {
            return Ok(());
        }
        marks.store(&*disk).await
    }

    /// Makes a change durable in the log, behind those that could not be told before; at once where nothing is archived or nothing has changed.
    async fn log_change(&self, change: Change) -> Result<(), OpError> {
        let own = &self.catalog_log;
        let _held = own.lock.lock().await;
        self.log_pending().await?;
        self.log_one(change).await
    }

    /// The caller holds the lock.
    async fn log_pending(&self) -> Result<(), OpError> {
        loop {
            let next = self.catalog_log.pending.borrow().front().cloned();
            let Some(next) = next else { return Ok(()) };
            self.log_one(next).await?;
            self.catalog_log.pending.borrow_mut().pop_front();
        }
    }

    /// The caller holds the lock.
    async fn log_one(&self, change: Change) -> Result<(), OpError> {
        let own = &self.catalog_log;
        if !own.state.borrow().as_ref().is_some_and(|state| state.is_changed_by(&change)) {
            return Ok(());
        }
        let body = serde_json::to_vec(&change).expect("plain fields encode");
        // A change may be that of a drop, which frees room.
        self.wait_for_room(Purpose::Free, body.len()).await?;
        let position = own.position.get() + 1;
        let key = RecordKey { collection: CATALOG_UID, seq: seq_of(own.generation.get(), position) };
        let ticket =
            self.append(Purpose::Free, key, &mut Vec::new(), |buffer| buffer.extend_from_slice(&body))?;
        own.position.set(position);
        self.wait_durable(ticket).await?;
        if let Some(state) = &mut *own.state.borrow_mut() {
            state.apply(change);
        }
        Ok(())
    }

    /// [`Self::log_change`] of something that has happened: if it cannot be told now, the archive is told later.
    async fn log_done(&self, change: Change) {
        if let Err(error) = self.log_change(change.clone()).await {
            self.catalog_log.pending.borrow_mut().push_back(change);
            tracing::warn!(%error, "a change of the catalog is not in the archive yet; it is tried again");
        }
    }

    /// On core 0: a collection is about to be published under this name, or has another configuration. `from` is the snapshot that it was restored from.
    ///
    /// # Errors
    /// The log does not take it.
    pub(crate) async fn log_collection(
        &self,
        uid: u64,
        name: &str,
        config: &CollectionConfig,
        from: Option<String>,
    ) -> Result<(), OpError> {
        if self.catalog_log.state.borrow().is_none() {
            return Ok(());
        }
        let is_made_of = from.is_some();
        let entry = entry_of(uid, name, config, 0, from);
        self.log_change(Change::Collection { name: name.to_owned(), entry }).await?;
        if is_made_of {
            self.store_marks().await.map_err(|error| crate::error::io_error(&error))?;
        }
        Ok(())
    }

    /// On core 0: a collection has another configuration since a moment ago.
    pub(crate) async fn log_configured(&self, uid: u64, name: &str, config: &CollectionConfig) {
        if self.catalog_log.state.borrow().is_some() {
            let entry = entry_of(uid, name, config, 0, None);
            self.log_done(Change::Collection { name: name.to_owned(), entry }).await;
        }
    }

    /// On core 0: there is no collection of this name any more.
    pub(crate) async fn log_dropped(&self, name: &str) {
        self.log_done(Change::Dropped { name: name.to_owned() }).await;
    }

    /// On core 0: these are the aliases.
    pub(crate) async fn log_aliases(&self, aliases: &BTreeMap<String, String>) {
        self.log_done(Change::Aliases { aliases: aliases.clone() }).await;
    }

    /// On core 0: this is the file of the definitions of key indexes.
    pub(crate) async fn log_key_indexes(&self, file: &[u8]) {
        self.log_done(Change::KeyIndexes { file: String::from_utf8_lossy(file).into_owned() }).await;
    }

    /// On core 0: a collection has got data that no log has.
    pub(crate) async fn log_unlogged(&self, name: &str) {
        let found =
            self.catalog_log.state.borrow().as_ref().and_then(|state| state.collections.get(name).cloned());
        let Some(mut entry) = found else { return };
        entry.beside.unlogged_ms = Some(self.unix_ms());
        self.log_done(Change::Collection { name: name.to_owned(), entry }).await;
        self.store_marks_or_warn().await;
    }

    /// On core 0: the keys were replaced by others, which no log has.
    pub(crate) async fn log_keys_replaced(&self) {
        let found = self.catalog_log.state.borrow().as_ref().and_then(|state| state.keys.clone());
        let Some(mut entry) = found else { return };
        entry.unlogged_ms = Some(self.unix_ms());
        self.log_done(Change::Keys { entry }).await;
        self.store_marks_or_warn().await;
    }

    async fn store_marks_or_warn(&self) {
        if let Err(error) = self.store_marks().await {
            self.catalog_log.are_marks_behind.set(true);
            tracing::warn!(%error, "what no log has could not be noted; it is tried again");
        }
    }

    /// On core 0: tells the archive what it could not be told before. What cannot be told now is left for the next time.
    pub(super) async fn catch_up_catalog(&self) {
        let own = &self.catalog_log;
        if !own.pending.borrow().is_empty() {
            let _held = own.lock.lock().await;
            if self.log_pending().await.is_err() {
                return;
            }
            own.are_marks_behind.set(true);
        }
        if own.are_marks_behind.replace(false) {
            self.store_marks_or_warn().await;
        }
    }

    /// On core 0: what the archive knows of the collection of this name.
    pub(crate) fn archived(&self, name: &str) -> Option<ArchivedCollection> {
        self.catalog_log.state.borrow().as_ref()?.collections.get(name).cloned()
    }

    /// On core 0: a collection that was about to be published will not be; `before` is what the archive knew under its name.
    pub(crate) async fn log_taken_back(&self, name: &str, before: Option<ArchivedCollection>) {
        if self.catalog_log.state.borrow().is_none() {
            return;
        }
        match before {
            Some(entry) => self.log_done(Change::Collection { name: name.to_owned(), entry }).await,
            None => self.log_dropped(name).await,
        }
        self.store_marks_or_warn().await;
    }

    /// On core 0: the catalog that this run began with, until [`Self::opening_catalog_is_stored`].
    pub(super) fn opening_catalog(&self) -> Option<CatalogCopy> {
        self.catalog_log.opening.borrow().clone()
    }

    pub(super) fn opening_catalog_is_stored(&self) {
        *self.catalog_log.opening.borrow_mut() = None;
    }

    /// On core 0: the catalog as it is now, with what images have of everything; `keys` says that of the keys.
    pub(super) async fn catalog_now(&self, keys: Option<KeysEntry>) -> Option<CatalogCopy> {
        let own = &self.catalog_log;
        let _held = own.lock.lock().await;
        {
            let (mut state, pin) = (own.state.borrow_mut(), self.pin());
            let (state, catalog) = (state.as_mut()?, self.node().catalog.load(&pin));
            for (name, entry) in &mut state.collections {
                if let Some(handle) = catalog.by_name.get(name).filter(|handle| handle.uid == entry.uid) {
                    entry.seq = handle.covered_seq.load(Relaxed).max(entry.seq);
                }
            }
            if let (Some(known), Some(keys)) = (&mut state.keys, keys)
                && known.uid_base == keys.uid_base
            {
                known.covered = keys.covered;
            }
        }
        let state = own.state.borrow().clone()?;
        let (generation, position) = (own.generation.get(), own.position.get());
        Some(CatalogCopy { generation, position, unix_ms: self.unix_ms(), state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(uid: u64, seq: u64, from: Option<&str>, unlogged_ms: Option<u64>) -> ArchivedCollection {
        let from = from.map(str::to_owned);
        ArchivedCollection { uid, file: "{}".to_owned(), seq, beside: Beside { from, unlogged_ms } }
    }

    #[test]
    fn changes_come_back_from_their_records_and_say_what_was_known_before() {
        let mut state = CatalogState::default();
        let collection = |entry: ArchivedCollection| Change::Collection { name: "t/a".to_owned(), entry };
        let changes = [
            Change::Began,
            collection(entry(7, 3, Some("k.snap"), None)),
            collection(entry(7, 0, None, Some(9))),
            Change::Aliases { aliases: BTreeMap::from([("t/x".to_owned(), "t/a".to_owned())]) },
            Change::KeyIndexes { file: "[]".to_owned() },
            Change::Keys { entry: KeysEntry { uid_base: 1, covered: vec![4, 5], unlogged_ms: Some(8) } },
            Change::Keys { entry: KeysEntry { uid_base: 1, covered: vec![6, 7], unlogged_ms: None } },
        ];
        for change in changes {
            let body = serde_json::to_vec(&change).unwrap();
            let change = Change::decode(&body).unwrap();
            assert!(state.is_changed_by(&change), "{change:?}");
            state.apply(change.clone());
            assert_eq!(state.is_changed_by(&change), change == Change::Began, "{change:?}");
        }
        assert_eq!(state.collections["t/a"], entry(7, 3, Some("k.snap"), Some(9)));
        assert_eq!(state.keys, Some(KeysEntry { uid_base: 1, covered: vec![6, 7], unlogged_ms: Some(8) }));
        assert_eq!(CatalogState::decode(&state.encode()), Ok(state.clone()));
        // Another collection of that name has nothing of the one before.
        state.apply(collection(entry(8, 0, None, None)));
        assert_eq!(state.collections["t/a"], entry(8, 0, None, None));
        state.apply(Change::Dropped { name: "t/a".to_owned() });
        assert!(state.collections.is_empty());
        assert_eq!(position_of(seq_of(3, 9)), (3, 9));
        assert!(Change::decode(b"{\"moved\":{}}").is_err());
    }
}
