//! The backup of one collection, on the core that owns it.

use super::error::BackupError;
use super::names::{CONFIG, EVICTED, Names, SNAPSHOT, is_time, time_text};
use super::options::BackupTarget;
use super::pieces::{Pace, Pieces, put, read_whole};
use super::snapshot::{Digest, PIECE_BYTES, SNAPSHOT_BYTES_MAX, Snapshot, StoreSnapshot};
use super::store::{Store, StoreError};
use crate::account::MemoryUse;
use crate::checkpoint::{ImageCheck, collection_dir, rebind_vectors};
use crate::cold_stub::ColdStore;
use crate::collection_file;
use crate::ctx::Ctx;
use crate::env::{Env, compute};
use crate::owner::{Collections, HeldCollection, Owned};
use ahash::HashSet;
use bytes::Bytes;
use nigh_engine::filter::unix_ms_of_rfc3339;
use std::rc::Rc;

/// Memory that one core takes for a backup: a piece, and what is read and sent of it.
pub(super) const MEMORY_BYTES: u64 = 3 * PIECE_BYTES as u64;

/// What a run does with each collection and each part of the node.
#[derive(Clone)]
pub(crate) struct Job {
    pub target: BackupTarget,
    /// Which of the stores that is.
    pub store: ColdStore,
    /// The time of the run, as it stands in keys of objects, and in Unix milliseconds.
    pub time: String,
    pub taken_unix_ms: u64,
    /// When it began, nanoseconds of the clock of the node, which nobody sets.
    pub begun_ns: u64,
    pub retention: usize,
    /// What one core may read and send; 0 = as much as it can.
    pub bytes_per_second: u64,
}

/// The last snapshot that this process has of a collection in one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastSnapshot {
    /// Its key.
    pub key: String,
    /// It has every change up to that time, nanoseconds of the clock of the node; 0 if the collection has come back from it.
    pub held_ns: u64,
}

/// Something for each store that a node may have.
#[derive(Debug)]
pub(crate) struct PerStore<T> {
    directory: Option<T>,
    bucket: Option<T>,
}

impl<T> Default for PerStore<T> {
    fn default() -> PerStore<T> {
        PerStore { directory: None, bucket: None }
    }
}

impl<T> PerStore<T> {
    /// What there is for a store.
    pub fn of(&self, store: ColdStore) -> Option<&T> {
        match store {
            ColdStore::Directory => self.directory.as_ref(),
            ColdStore::Bucket => self.bucket.as_ref(),
        }
    }

    /// Replaces it.
    pub fn set(&mut self, store: ColdStore, what: T) {
        match store {
            ColdStore::Directory => self.directory = Some(what),
            ColdStore::Bucket => self.bucket = Some(what),
        }
    }
}

/// A snapshot that was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The key of the snapshot.
    pub key: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes that were sent, without those that the store had already.
    pub sent_bytes: u64,
}

/// The times of the snapshots under `prefix` of a store, ascending. Other objects are left alone.
pub(crate) async fn times(store: &dyn Store, prefix: &str) -> Result<Vec<String>, StoreError> {
    Ok(runs_and_evictions(store, prefix).await?.0)
}

/// The times of all snapshots under `prefix`, ascending, and of those of evictions, in the same order.
async fn runs_and_evictions(
    store: &dyn Store,
    prefix: &str,
) -> Result<(Vec<String>, Vec<String>), StoreError> {
    let (mut times, mut evictions) = (Vec::new(), Vec::new());
    let mut after: Option<String> = None;
    loop {
        let page = store.list(prefix, after.as_deref()).await?;
        for object in &page.objects {
            let Some(name) = object.key.strip_prefix(prefix) else { continue };
            let time_of = |end: &str| name.strip_suffix(end).filter(|time| is_time(time)).map(str::to_owned);
            times.extend(time_of(SNAPSHOT));
            evictions.extend(time_of(EVICTED));
        }
        after = page.next;
        if after.is_none() {
            times.sort_unstable();
            // A crash may have left the mark of a snapshot that was never stored.
            evictions.retain(|time| times.binary_search(time).is_ok());
            evictions.sort_unstable();
            return Ok((times, evictions));
        }
    }
}

/// Splits the times of snapshots into those to remove and those to keep. Of the snapshots of runs, the newest `retention` ones are kept, or all
/// if that is 0. Of the snapshots of evictions, only the newest one is kept, which may be all that there is of a collection.
fn split_by_retention(
    times: Vec<String>,
    evictions: &[String],
    retention: usize,
) -> (Vec<String>, Vec<String>) {
    let is_eviction = |time: &String| evictions.binary_search(time).is_ok();
    let runs = times.len() - evictions.len();
    let mut runs_left = if retention == 0 { 0 } else { runs.saturating_sub(retention) };
    times.into_iter().partition(|time| {
        if is_eviction(time) {
            return evictions.last() != Some(time);
        }
        let is_old = runs_left > 0;
        runs_left = runs_left.saturating_sub(1);
        is_old
    })
}

/// A snapshot file of more bytes is decoded on a thread beside the cores.
const DECODED_HERE_BYTES: usize = 64 << 10;

/// Reads the snapshot under `key`.
pub(crate) async fn read_snapshot(
    env: &Rc<dyn Env>,
    store: &dyn Store,
    key: &str,
) -> Result<Snapshot, StoreError> {
    let bytes = read_whole(store, key, SNAPSHOT_BYTES_MAX).await?;
    if bytes.len() <= DECODED_HERE_BYTES {
        return Snapshot::decode(key, &bytes);
    }
    let key = key.to_owned();
    compute(env, move || Snapshot::decode(&key, &bytes)).await
}

/// Removes the snapshots under `prefix` that [`split_by_retention`] selects, and the pieces that only they have. `newest` is the snapshot that
/// was stored last.
pub(crate) async fn retire(
    env: &Rc<dyn Env>,
    store: &Rc<dyn Store>,
    names: &Names,
    prefix: &str,
    retention: usize,
    newest: &Snapshot,
) -> Result<(), StoreError> {
    let (times, evictions) = runs_and_evictions(&**store, prefix).await?;
    let (old, kept) = split_by_retention(times, &evictions, retention);
    if old.is_empty() {
        return Ok(());
    }
    let key_of = |time: &String| format!("{prefix}{time}{SNAPSHOT}");
    let still: HashSet<(u64, Digest)> = newest.pieces().collect();
    let mut unused: HashSet<(u64, Digest)> = HashSet::default();
    for time in &old {
        match read_snapshot(env, &**store, &key_of(time)).await {
            Ok(snapshot) => unused.extend(snapshot.pieces().filter(|piece| !still.contains(piece))),
            // Nobody can tell which pieces it names, so they stay. Pieces without a snapshot cost space, and nothing else.
            Err(error @ StoreError::Damaged { .. }) => {
                tracing::warn!(%error, "an old snapshot cannot be read; its pieces stay")
            }
            Err(error) => return Err(error),
        }
    }
    if !unused.is_empty() {
        for time in &kept {
            // No piece may be removed before it is known what every one of them needs.
            read_snapshot(env, &**store, &key_of(time))
                .await?
                .pieces()
                .for_each(|piece| _ = unused.remove(&piece));
        }
    }
    // A crash in between leaves pieces without a snapshot, never the reverse.
    for time in &old {
        store.delete(&key_of(time)).await?;
        store.delete(&format!("{prefix}{time}{CONFIG}")).await?;
        if evictions.binary_search(time).is_ok() {
            store.delete(&format!("{prefix}{time}{EVICTED}")).await?;
        }
    }
    for (uid, digest) in unused {
        store.delete(&names.piece(uid, &digest)).await?;
    }
    Ok(())
}

/// Stores the configuration that belongs to a snapshot which is stored next. An attempt that was cut short may have left another one under the key.
async fn put_config(store: &dyn Store, key: &str, config: Bytes) -> Result<(), StoreError> {
    match put(store, key, config.clone(), false).await {
        Err(StoreError::Exists { .. }) => {
            store.delete(key).await?;
            put(store, key, config, false).await
        }
        stored => stored,
    }
}

/// Sends the files of a store of images, a collection or the index of its tokens, to the store of backups. An image that `earlier`, an earlier
/// snapshot, has as well is not read again if the store of backups still has its pieces: images never change.
pub(super) async fn send_files(
    pieces: &Pieces<'_>,
    held: &HeldCollection,
    earlier: Option<&StoreSnapshot>,
    texts: Vec<(String, String)>,
) -> Result<(StoreSnapshot, u64), BackupError> {
    let mut stored = pieces.stored().await?;
    let dir = collection_dir(held.uid);
    let (mut files, mut sent) = (Vec::new(), 0);
    for (name, bytes, file) in &held.files {
        let is_image = name.ends_with(".img");
        let earlier = earlier.iter().flat_map(|earlier| &earlier.files).find(|file| {
            let has = |(index, digest)| stored.bytes_of(digest) == Some(file.piece_bytes(index) as u64);
            is_image && file.name == *name && file.bytes == *bytes && file.pieces.iter().enumerate().all(has)
        });
        if let Some(earlier) = earlier {
            files.push(earlier.clone());
            continue;
        }
        // A file that is damaged here must not be taken for a good backup.
        let mut image = ImageCheck::new(&dir, name, held.uid, held.uid);
        let mut is_first = true;
        let mut check = |part: &mut [u8]| match (is_image, std::mem::take(&mut is_first)) {
            (true, _) => Ok(image.pass(part)?),
            (false, true) => Ok(rebind_vectors(&dir, name, held.uid, held.uid, part)?),
            (false, false) => Ok(()),
        };
        let mut check =
            |part: &mut [u8]| if held.is_dropped() { Err(BackupError::Dropped) } else { check(part) };
        let (snapshot, bytes) = pieces.send(name, &**file, *bytes, &mut stored, &mut check).await?;
        if is_image {
            image.end()?;
        }
        files.push(snapshot);
        sent += bytes;
    }
    Ok((StoreSnapshot { uid: held.uid, seq: held.seq, texts, files }, sent))
}

/// A snapshot of a collection that is to be evicted, and what must not have changed when the collection leaves memory.
#[derive(Clone, Debug)]
pub(crate) struct ColdSnapshot {
    /// The key of the snapshot.
    pub key: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// The uid of each of its stores, and the number of the last change that this store has in the snapshot.
    pub seqs: Vec<(u64, u64)>,
    /// The configuration in the snapshot, as the text of `collection.json`.
    pub config: String,
    /// Points of the collection, and bytes of memory that it held.
    pub points: u64,
    pub memory_bytes: u64,
}

/// What a snapshot is taken for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// A run, which has a snapshot of its own of each collection.
    Run,
    /// The collection is to be evicted, for which an existing snapshot will do if it has all of the collection.
    Eviction,
}

/// A clock that is behind the newest snapshot by more than this many milliseconds has been set back, and is not waited for.
const BEHIND_MS: u64 = 3_000;
/// Microseconds between two looks at the clock until a second has passed.
const POLL_US: u64 = 100_000;

impl Collections {
    /// Backs up a collection of this core.
    pub(crate) async fn back_up(self: &Rc<Self>, uid: u64, job: &Job) -> Result<Stored, BackupError> {
        let owned = self.owned(uid).ok_or(BackupError::Dropped)?;
        // An eviction relies on its snapshot until the collection has left memory, and a run could remove that snapshot as an old one.
        let _alone = owned.snapshot_lock.lock().await;
        if owned.dropped.get() {
            return Err(BackupError::Dropped);
        }
        self.store_snapshot(&owned, job, Reason::Run).await.map(|(stored, _)| stored)
    }

    /// Stores a snapshot of a collection of this core that is to be evicted, unless the newest snapshot has the same contents. The snapshot gets
    /// a time of its own, after those of all others, and not that of `job`. The caller holds `snapshot_lock` of `owned`.
    pub(crate) async fn store_cold_snapshot(
        self: &Rc<Self>,
        owned: &Rc<Owned>,
        job: &Job,
    ) -> Result<ColdSnapshot, BackupError> {
        let (stored, snapshot) = self.store_snapshot(owned, job, Reason::Eviction).await?;
        let text = snapshot.stores.first().and_then(|store| store.texts.first());
        let (points, memory_bytes) = owned.points_and_memory();
        Ok(ColdSnapshot {
            points,
            memory_bytes,
            key: stored.key,
            bytes: stored.bytes,
            seqs: snapshot.stores.iter().map(|store| (store.uid, store.seq)).collect(),
            config: text.map_or_else(String::new, |(_, text)| text.clone()),
        })
    }

    /// The time now, and the first one after `newest` that is not before it, in Unix milliseconds.
    fn now_and_next_ms(&self, newest: Option<&str>) -> (u64, u64) {
        let newest_ms = newest.and_then(unix_ms_of_rfc3339).and_then(|ms| u64::try_from(ms).ok());
        let now_ms = self.ctx().unix_ms();
        (now_ms, newest_ms.map_or(now_ms, |newest_ms| now_ms.max(newest_ms + 1000)))
    }

    /// Whether the clock has been set back since the snapshot of `newest`.
    fn is_clock_behind(&self, newest: &str) -> bool {
        let (now_ms, next_ms) = self.now_and_next_ms(Some(newest));
        next_ms - now_ms > BEHIND_MS
    }

    /// Returns a time for the next snapshot that is after `newest`, as it stands in keys of objects, and in Unix milliseconds.
    async fn time_after(&self, newest: Option<&str>) -> Result<(String, u64), BackupError> {
        loop {
            let (now_ms, next_ms) = self.now_and_next_ms(newest);
            let is_now = next_ms == now_ms && newest.is_none_or(|newest| time_text(now_ms).as_str() > newest);
            // A clock that was set back must not keep a collection in memory for hours.
            if is_now || next_ms - now_ms > BEHIND_MS {
                return Ok((time_text(next_ms), next_ms));
            }
            if self.ctx().is_stopping() {
                return Err(BackupError::Stopping);
            }
            self.env().sleep_us(POLL_US).await;
        }
    }

    async fn store_snapshot(
        self: &Rc<Self>,
        owned: &Rc<Owned>,
        job: &Job,
        reason: Reason,
    ) -> Result<(Stored, Snapshot), BackupError> {
        let (ctx, handle): (&Rc<Ctx>, _) = (self.ctx(), &owned.handle);
        let _memory = ctx.node().account.hold(MemoryUse::Images, MEMORY_BYTES);
        let store = job.target.stores.open();
        let names = Names::new(&job.target.prefix);
        let prefix = names.of_collection(&handle.name);
        let pace = Pace::new(ctx, job.bytes_per_second);

        let newest = times(&*store, &prefix).await?.pop();
        // A data directory that was put back from a copy writes other images under the names of earlier ones. So only a snapshot that this
        // process has stored, or has brought the collection back from, is known to be of these files.
        let is_ours = |time: &&String| {
            let key = format!("{prefix}{time}{SNAPSHOT}");
            owned.last_snapshots.borrow().of(job.store).is_some_and(|last| last.key == key)
        };
        let ours = newest.as_ref().filter(is_ours).map(|time| format!("{prefix}{time}{SNAPSHOT}"));
        let mut has_own_time = reason == Reason::Eviction;
        if reason == Reason::Run
            && let Some(newest) = newest.as_ref().filter(|newest| **newest >= job.time)
        {
            let held_ns = owned.last_snapshots.borrow().of(job.store).map_or(0, |last| last.held_ns);
            match ours.clone() {
                // An eviction has stored this snapshot after the run had begun, so it is of a moment of the run as well.
                Some(key) if held_ns >= job.begun_ns => {
                    let snapshot = read_snapshot(ctx.env(), &*store, &key).await?;
                    // From here on it counts as a snapshot of a run, which the next eviction does not remove.
                    store.delete(&format!("{prefix}{newest}{EVICTED}")).await?;
                    return Ok((Stored { key, bytes: snapshot.bytes(), sent_bytes: 0 }, snapshot));
                }
                // It was to leave in the same second before the run, or has come back during it.
                Some(_) if !self.is_clock_behind(newest) => has_own_time = true,
                _ => return Err(BackupError::Time { newest: newest.clone(), time: job.time.clone() }),
            }
        }
        let earlier = match &ours {
            Some(key) => match read_snapshot(ctx.env(), &*store, key).await {
                Ok(snapshot) => Some(snapshot),
                Err(error @ (StoreError::Damaged { .. } | StoreError::NotFound { .. })) => {
                    tracing::warn!(collection = handle.name, %error, "the previous snapshot cannot be used; all files are read anew");
                    None
                }
                Err(error) => return Err(error.into()),
            },
            None => None,
        };
        let mut snapshot = Snapshot {
            name: handle.name.clone(),
            taken_unix_ms: job.taken_unix_ms,
            cut_unix_ms: None,
            stores: Vec::new(),
        };
        let mut sent_bytes = 0;
        let held_ns = self.env().now_ns();
        let held = self.hold_collection(handle.uid).await?;
        snapshot.cut_unix_ms = Some(ctx.moment_ms());
        for held in &held {
            let pieces = Pieces { ctx, store: &store, names: &names, pace: &pace, uid: held.uid };
            let earlier =
                earlier.iter().flat_map(|earlier| &earlier.stores).find(|store| store.uid == held.uid);
            let text = String::from_utf8_lossy(&held.config).into_owned();
            let texts = vec![(collection_file::FILE.to_owned(), text)];
            let (sent, bytes) = send_files(&pieces, held, earlier, texts).await?;
            snapshot.stores.push(sent);
            sent_bytes += bytes;
        }
        let config = held.first().map_or_else(Vec::new, |held| held.config.clone());
        drop(held);
        if owned.dropped.get() {
            return Err(BackupError::Dropped);
        }
        let mut time = job.time.clone();
        if reason == Reason::Eviction
            && let (Some(key), Some(earlier)) = (ours, earlier)
            && earlier.stores == snapshot.stores
        {
            // The store has just listed all of its pieces.
            return Ok((Stored { key, bytes: earlier.bytes(), sent_bytes }, earlier));
        }
        if has_own_time {
            (time, snapshot.taken_unix_ms) = self.time_after(newest.as_deref()).await?;
        }
        if reason == Reason::Eviction {
            // An attempt that was killed may have left this object.
            put(&*store, &format!("{prefix}{time}{EVICTED}"), "evicted\n".into(), true).await?;
        }
        put_config(&*store, &format!("{prefix}{time}{CONFIG}"), config.into()).await?;
        let (key, file) = (format!("{prefix}{time}{SNAPSHOT}"), snapshot.encode());
        sent_bytes += file.len() as u64;
        put(&*store, &key, file.into(), false).await?;
        owned.last_snapshots.borrow_mut().set(job.store, LastSnapshot { key: key.clone(), held_ns });
        // The snapshot is stored. Space that an old one takes does not make the run fail.
        if let Err(error) = retire(ctx.env(), &store, &names, &prefix, job.retention, &snapshot).await {
            tracing::warn!(collection = handle.name, %error, "old snapshots could not be removed; the next run tries again");
        }
        Ok((Stored { key, bytes: snapshot.bytes(), sent_bytes }, snapshot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evictions_do_not_push_out_what_runs_have_stored() {
        let split = |all: &[&str], evictions: &[&str], retention| {
            let owned = |times: &[&str]| times.iter().map(|time| (*time).to_owned()).collect::<Vec<_>>();
            let (old, kept) = split_by_retention(owned(all), &owned(evictions), retention);
            (old.concat(), kept.concat())
        };
        let expect = |old: &str, kept: &str| (old.to_owned(), kept.to_owned());
        assert_eq!(split(&["1", "2", "3", "4"], &[], 2), expect("12", "34"));
        assert_eq!(split(&["1", "2", "3", "4"], &[], 0), expect("", "1234"));
        assert_eq!(split(&["1", "2", "3", "4", "5"], &["2", "4", "5"], 2), expect("24", "135"));
        assert_eq!(split(&["1", "2", "3", "4", "5"], &["1", "3"], 1), expect("124", "35"));
        assert_eq!(split(&["1", "2", "3"], &["1", "2", "3"], 1), expect("12", "3"));
        assert_eq!(split(&["1", "2"], &["1"], 0), expect("", "12"));
        assert_eq!(split(&[], &[], 1), expect("", ""));
    }
}
