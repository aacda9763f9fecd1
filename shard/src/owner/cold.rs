//! A collection leaves memory: the owner's part of it.
//!
//! The snapshot is stored while the collection serves. Then, with no request under way, the collection is *sealed* if it is what the snapshot
//! has, in one piece: from there on nothing can change, until it is disowned or, if its stub cannot be written, unsealed.

use super::{Collections, Owned};
use crate::backup::{BackupError, ColdSnapshot, Job, LastSnapshot};
use crate::cold_stub::ColdStore;
use crate::collection_file;
use crate::error::OpError;
use std::rc::Rc;

impl Owned {
    /// Refuses what has something in memory that no snapshot holds.
    fn check_evictable(&self) -> Result<(), OpError> {
        self.usable()?;
        let name = &self.handle.name;
        if !self.staged.borrow().is_empty() {
            return Err(OpError::Conflict(format!(
                "collection {name:?} has points that are staged for a bulk build and are in memory only; build them first"
            )));
        }
        if self.build_delta.borrow().is_some() {
            return Err(OpError::Conflict(format!(
                "a bulk build of collection {name:?} is running; repeat the request when it has ended"
            )));
        }
        Ok(())
    }

    /// How many points the collection has, and how many bytes of memory it holds with its index.
    pub(crate) fn points_and_memory(&self) -> (u64, u64) {
        let stats_of = |owned: &Owned| owned.writer.borrow().shared().stats();
        let (stats, index) = (stats_of(self), self.token_index.get().map(|index| stats_of(index.owned())));
        (stats.live, stats.bytes + index.map_or(0, |stats| stats.bytes))
    }

    /// Whether the collection is what a snapshot of it in a store has.
    fn is_as_in(&self, snapshot: &ColdSnapshot, config: &[u8], store: ColdStore) -> bool {
        let seq_of = |owned: &Owned| (owned.handle.uid, owned.writer.borrow().seq());
        let now = [Some(seq_of(self)), self.token_index.get().map(|index| seq_of(index.owned()))];
        now.iter().flatten().eq(&snapshot.seqs)
            && snapshot.config.as_bytes() == config
            && self.last_snapshots.borrow().of(store).is_some_and(|last| last.key == snapshot.key)
    }
}

impl Collections {
    /// Stores a snapshot of a collection of this core, which goes on serving. A backup of it that is under way is waited for if `waits`: it may take as
    /// long as its rate says.
    ///
    /// # Errors
    /// It cannot leave memory now; the store of backups; it was dropped.
    pub(crate) async fn prepare_eviction(
        self: &Rc<Self>,
        uid: u64,
        job: &Job,
        waits: bool,
    ) -> Result<ColdSnapshot, OpError> {
        let owned = self.owned(uid).ok_or(BackupError::Dropped)?;
        owned.check_evictable()?;
        let _alone = match owned.snapshot_lock.try_lock() {
            Some(alone) => alone,
            None if waits => owned.snapshot_lock.lock().await,
            None => {
                let name = &owned.handle.name;
                return Err(OpError::Conflict(format!("a backup of collection {name:?} is under way")));
            }
        };
        owned.check_evictable()?;
        Ok(self.store_cold_snapshot(&owned, job).await?)
    }

    /// Seals a collection of this core about which no request is under way, and returns the snapshot that has all of it: `snapshot`, or with
    /// `may_store`
    /// another one if it has changed since. `None` if it has changed and no other one may be stored, or if a backup of it has begun, for which requests that
    /// wait already do not wait.
    ///
    /// # Errors
    /// As [`Self::prepare_eviction`]; it is not sealed then.
    pub(crate) async fn seal(
        self: &Rc<Self>,
        uid: u64,
        job: &Job,
        mut snapshot: ColdSnapshot,
        may_store: bool,
    ) -> Result<Option<ColdSnapshot>, OpError> {
        let owned = self.owned(uid).ok_or(BackupError::Dropped)?;
        let Some(alone) = owned.snapshot_lock.try_lock() else { return Ok(None) };
        for is_second in [false, true] {
            owned.check_evictable()?;
            let handle = &owned.handle;
            let config = handle.config(&self.ctx().pin()).clone();
            let config = collection_file::encode(uid, &handle.name, &config);
            if owned.is_as_in(&snapshot, &config, job.store) {
                // Without an await since it was looked at.
                *owned.sealed.borrow_mut() = Some(alone);
                return Ok(Some(snapshot));
            }
            if is_second || !may_store {
                break;
            }
            snapshot = self.store_cold_snapshot(&owned, job).await?;
        }
        Ok(None)
    }

    /// Takes [`Self::seal`] back.
    pub(crate) fn unseal(&self, uid: u64) {
        if let Some(owned) = self.owned(uid) {
            owned.sealed.take();
        }
    }

    /// Notes the snapshot that a collection of this core has come back from: its images are those of the files that it has now.
    pub(crate) fn note_snapshot(&self, uid: u64, store: ColdStore, key: String) {
        if let Some(owned) = self.owned(uid) {
            owned.last_snapshots.borrow_mut().set(store, LastSnapshot { key, held_ns: 0 });
        }
    }
}
