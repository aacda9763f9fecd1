//! Backups of the whole node: asked for, or made by themselves every so often. Core 0 decides on a run; each core backs up the collections that it owns.

use super::Core;
use crate::archive;
use crate::backup::{
    BackupError, BackupTarget, CONFIG, Job, Names, PerStore, SNAPSHOT, StoreError, put, read_whole, time_text,
};
use crate::cold_stub::ColdStore;
use crate::env::{call, call_own};
use crate::error::OpError;
use crate::event::{Lock, together};
use crate::sealed_json::{self, Layout, Unreadable};
use crate::twin;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Between two looks at the clock of whoever waits for the next run or the next second, microseconds.
const POLL_US: u64 = 100_000;
/// The file of the data directory that says under which identity it writes to stores.
const IDENTITY_FILE: &str = "backup.json";
/// The newest format of that file.
pub(crate) const IDENTITY_FORMAT: u32 = 1;
/// The longest object that says which server writes to a store, bytes.
const OWNER_BYTES_MAX: usize = 4096;

/// What core 0 knows of backups.
#[derive(Default)]
pub(super) struct Backups {
    /// Held by the run under way: there is one at a time.
    running: Rc<Lock>,
    /// Held by the restore under way: there is one at a time.
    pub(super) restoring: Rc<Lock>,
    /// Held while the keys are brought to one moment, and while they are replaced.
    pub(super) keys_lock: Rc<Lock>,
    /// The key of the last snapshot of the keys that this process has stored in each store.
    pub(super) last_keys: RefCell<PerStore<String>>,
    /// The time of the last run, in Unix seconds.
    last_second: Cell<u64>,
}

/// What a run has done with one collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackedUp {
    /// The full name of the collection, or the name of a part of the node.
    pub collection: String,
    /// The key of its snapshot, if there is one.
    pub key: Option<String>,
    /// Bytes of its files; without a snapshot 0.
    pub bytes: u64,
    /// Bytes that were sent; the store had the others already.
    pub sent_bytes: u64,
    /// Of the part [`NodePart::Keys`](crate::backup::NodePart::Keys): how many keys there are, those that have expired and are not removed yet
    /// included.
    pub keys: Option<u64>,
    /// Why there is no snapshot.
    pub error: Option<String>,
}

impl BackedUp {
    /// There is no snapshot, and this is why.
    pub(super) fn failed(collection: String, error: &BackupError) -> BackedUp {
        let error = Some(error.to_string());
        BackedUp { collection, key: None, bytes: 0, sent_bytes: 0, keys: None, error }
    }
}

/// What a run has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupRun {
    /// Each collection in each store, by name.
    pub collections: Vec<BackedUp>,
    /// The aliases, the definitions of the indexes of keys, the API keys and the keys, in each store; those that are empty and always were are not
    /// there.
    pub parts: Vec<BackedUp>,
    /// Why the run as a whole failed in a store: nothing was sent there.
    pub failures: Vec<String>,
}

/// An object of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupObject {
    /// The key of the object.
    pub key: String,
    /// The length of the object.
    pub bytes: u64,
    /// When it was stored, Unix milliseconds.
    pub modified_unix_ms: u64,
}

/// Says which data directory writes to a part of a store.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    id: String,
}

impl Core {
    /// Whether there is a store to back up to.
    pub fn has_backups(&self) -> bool {
        self.options().backup.has_store()
    }

    /// Backs up every collection to every store that is configured, and waits until that is done. Failures of single collections are in the answer.
    ///
    /// # Errors
    /// Nothing is configured; the node keeps its data in memory only; it is busy or stops.
    pub async fn back_up(self: &Rc<Self>) -> Result<BackupRun, OpError> {
        if self.env().disk().is_none() {
            return Err(OpError::NotConfigured(
                "backups are made of the files of a data directory, and this server was started without -data".into(),
            ));
        }
        call(self, 0, move |there| async move { there.back_up_on_core_0().await }).await?
    }

    /// The snapshots and their configurations, in the order of their keys: at most `most` of them, and whether there are more.
    ///
    /// # Errors
    /// The store's, in its words; nothing is configured.
    pub async fn backups(self: &Rc<Self>, most: usize) -> Result<(Vec<BackupObject>, bool), OpError> {
        let target = self.listed_target()?;
        let (store, names) = (target.stores.open(), Names::new(&target.prefix));
        let (pieces, mut found) = (names.all_pieces(), Vec::new());
        // Keys of pieces and of the archive are passed over: there may be many times as many of them.
        let passed_over = [pieces, names.of_log()];
        let mut after: Option<String> = None;
        loop {
            let page =
                store.list(names.all(), after.as_deref()).await.map_err(|error| store_error(&error))?;
            for object in page.objects {
                if object.key.ends_with(SNAPSHOT) || object.key.ends_with(CONFIG) {
                    if found.len() == most {
                        return Ok((found, true));
                    }
                    let (key, bytes) = (object.key, object.bytes);
                    found.push(BackupObject { key, bytes, modified_unix_ms: object.modified_unix_ms });
                }
            }
            let Some(next) = page.next else { return Ok((found, false)) };
            let within = passed_over.iter().find(|prefix| next.starts_with(*prefix));
            after = Some(within.map_or(next.clone(), |prefix| format!("{prefix}~")));
        }
    }

    /// The store that listings and restores are about: the bucket, or else the directory.
    pub(super) fn listed_target(&self) -> Result<BackupTarget, OpError> {
        let options = &self.options().backup;
        let target = options.bucket.as_ref().or(options.directory.as_ref());
        target.cloned().ok_or_else(|| {
            OpError::NotConfigured(
                "no store of backups is configured; start the server with -backup-bucket or -backup-dir"
                    .into(),
            )
        })
    }

    async fn back_up_on_core_0(self: &Rc<Self>) -> Result<BackupRun, OpError> {
        self.ctx.refuse_while_opening()?;
        let _running = self.backups.running.lock().await;
        // Snapshots are named by the second, and each run has its own.
        while self.unix_ms() / 1000 == self.backups.last_second.get() {
            self.check_not_stopping()?;
            self.env().sleep_us(POLL_US).await;
        }
        let now_ms = self.unix_ms();
        self.backups.last_second.set(now_ms / 1000);
        let options = self.options().backup.clone();
        let counters = &self.node().backups;
        let began_ns = self.env().now_ns();
        let mut run = BackupRun::default();
        let targets = [(ColdStore::Directory, &options.directory), (ColdStore::Bucket, &options.bucket)];
        for (store, target) in
            targets.into_iter().filter_map(|(store, target)| Some((store, target.as_ref()?)))
        {
            if let Err(error) = self.claim(target).await {
                tracing::error!(%error, "a backup was not begun");
                run.failures.push(error.to_string());
                continue;
            }
            let cores = self.env().cores();
            let job = Job {
                target: target.clone(),
                store,
                time: time_text(now_ms),
                taken_unix_ms: now_ms,
                begun_ns: began_ns,
                retention: options.retention,
                // A rate is never 0, which would be none.
                bytes_per_second: options.bytes_per_second.div_ceil(cores as u64),
            };
            // Before the collections: those that aliases stand for are there then.
            run.parts.extend(self.back_up_parts(&job).await);
            run.collections.extend(self.back_up_to(job).await);
        }
        if let Err(error) = archive::retire(self).await {
            tracing::error!(%error, "the archive of the log was not brought up to date after a backup");
            run.failures.push(error.to_string());
        }
        self.check_not_stopping()?;
        run.collections.sort_by(|a, b| a.collection.cmp(&b.collection));
        let all = || run.collections.iter().chain(&run.parts);
        let failed = all().filter(|done| done.error.is_some()).count() + run.failures.len();
        let sent: u64 = all().map(|done| done.sent_bytes).sum();
        counters.runs.fetch_add(1, Relaxed);
        counters.sent_bytes.fetch_add(sent, Relaxed);
        counters.failures.fetch_add(failed as u64, Relaxed);
        if failed == 0 {
            counters.complete_unix_ms.store(now_ms, Relaxed);
        }
        let seconds = (self.env().now_ns() - began_ns) as f64 / 1e9;
        let collections = run.collections.len();
        if failed == 0 {
            tracing::info!(collections, sent_bytes = sent, seconds, "a backup has ended");
        } else {
            tracing::warn!(
                collections,
                failed,
                sent_bytes = sent,
                seconds,
                "a backup has ended with failures"
            );
        }
        Ok(run)
    }

    fn check_not_stopping(&self) -> Result<(), OpError> {
        match self.is_stopping() {
            true => Err(OpError::Unavailable("the server is stopping".into())),
            false => Ok(()),
        }
    }

    /// Backs up the collections of all cores: those of one core one after the other, all cores at the same time.
    async fn back_up_to(self: &Rc<Self>, job: Job) -> Vec<BackedUp> {
        // A handle would keep the memory of a collection that leaves or is dropped until the run ends.
        let mut owned: Vec<Vec<(u64, String)>> = vec![Vec::new(); self.env().cores()];
        {
            let pin = self.pin();
            for handle in self.node().catalog.load(&pin).by_name.values() {
                owned[handle.owner].push((handle.uid, handle.name.clone()));
            }
        }
        let runs = owned.into_iter().enumerate().map(|(to, owned)| {
            let job = job.clone();
            call_own(self, to, move |there| async move {
                let mut done = Vec::with_capacity(owned.len());
                for (uid, name) in owned {
                    done.extend(there.back_up_collection(uid, name, &job).await);
                }
                done
            })
        });
        together(runs.collect()).await.into_iter().flatten().collect()
    }

    /// `None` for a collection that was dropped meanwhile.
    async fn back_up_collection(
        self: &Rc<Self>,
        uid: u64,
        collection: String,
        job: &Job,
    ) -> Option<BackedUp> {
        Some(match self.collections.back_up(uid, job).await {
            Ok(stored) => BackedUp {
                collection,
                key: Some(stored.key),
                bytes: stored.bytes,
                sent_bytes: stored.sent_bytes,
                keys: None,
                error: None,
            },
            Err(BackupError::Dropped) => return None,
            Err(error) => {
                if !matches!(error, BackupError::Stopping) {
                    tracing::error!(collection, %error, "a collection was not backed up");
                }
                BackedUp::failed(collection, &error)
            }
        })
    }

    /// Makes sure that this server alone writes to its part of a store: two would remove each other's pieces.
    pub(crate) async fn claim(&self, target: &BackupTarget) -> Result<(), BackupError> {
        let ours = self.identity().await?;
        let (store, key) = (target.stores.open(), Names::new(&target.prefix).owner());
        for _ in 0..2 {
            match read_whole(&*store, &key, OWNER_BYTES_MAX).await {
                Ok(found) => {
                    let found: Identity =
                        sealed_json::decode(IDENTITY_FORMAT, &found, "the mark of a server")
                            .map_err(|why| StoreError::Damaged { key: key.clone(), why: why.to_string() })?;
                    return match found == ours {
                        true => Ok(()),
                        false => Err(StoreError::Unfit {
                            key: key.clone(),
                            why: format!(
                                "the backups of another data directory are there, {:?}, and this one is {:?}; choose another -backup-prefix or -backup-tenant, or delete the object if that directory is gone for good",
                                found.id, ours.id
                            ),
                        }
                        .into()),
                    };
                }
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            let mark = sealed_json::encode(IDENTITY_FORMAT, &ours, Layout::Compact);
            match put(&*store, &key, mark.into(), false).await {
                // Another server was faster.
                Err(StoreError::Exists { .. }) => {}
                stored => return Ok(stored?),
            }
        }
        let why = "it appears and disappears while this server looks at it".to_owned();
        Err(StoreError::Unfit { key, why }.into())
    }

    /// Who this data directory is to stores. It is drawn when it is asked for the first time.
    async fn identity(&self) -> Result<Identity, BackupError> {
        let disk = self.env().disk().expect("backups are made of files");
        let path = Path::new(IDENTITY_FILE);
        let failed = |why: String| BackupError::File(format!("{IDENTITY_FILE}: {why}"));
        let decode = |bytes: &[u8]| {
            sealed_json::decode::<Identity>(IDENTITY_FORMAT, bytes, "the identity of a data directory")
        };
        let is_newer = |why: &Unreadable| matches!(why, Unreadable::Newer { .. });
        match twin::read(&*disk, path, decode, is_newer).await {
            Ok(Some(identity)) => Ok(identity),
            Ok(None) => {
                // The standard library draws its seeds from the system.
                let draw = || RandomState::new().hash_one(self.unix_ms());
                let identity = Identity { id: format!("{:016x}{:016x}", draw(), draw()) };
                let bytes = sealed_json::encode(IDENTITY_FORMAT, &identity, Layout::Lines);
                let stored = twin::replace(&*disk, path, &bytes).await;
                stored.map_err(|error| failed(error.to_string()))?;
                Ok(identity)
            }
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// On core 0: makes a backup every interval, the first one interval after the start.
    pub(super) async fn back_up_periodically(self: Rc<Self>) {
        let interval_ns = self.options().backup.interval_ms.saturating_mul(1_000_000);
        if interval_ns == 0 || !self.has_backups() || self.env().disk().is_none() {
            return;
        }
        let mut due_ns = self.env().now_ns().saturating_add(interval_ns);
        while !self.is_stopping() {
            let now_ns = self.env().now_ns();
            if now_ns < due_ns {
                self.env().sleep_us(((due_ns - now_ns) / 1000).clamp(1, POLL_US)).await;
                continue;
            }
            // Its failures are in the log and in the metrics.
            let _ended = self.back_up_on_core_0().await;
            // A run that takes longer than the interval is followed by a pause, not by the next one.
            due_ns = self.env().now_ns().saturating_add(interval_ns);
        }
    }
}

/// An error of the store, for a client.
pub(super) fn store_error(error: &StoreError) -> OpError {
    OpError::Backup(error.to_string())
}
