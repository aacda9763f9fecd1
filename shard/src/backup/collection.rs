//! The backup of one collection, on the core that owns it.

use super::error::BackupError;
use super::names::{CONFIG, Names, SNAPSHOT, is_time};
use super::options::BackupTarget;
use super::pieces::{Pace, Pieces, put, read_whole};
use super::snapshot::{Digest, PIECE_BYTES, SNAPSHOT_BYTES_MAX, Snapshot, StoreSnapshot};
use super::store::{Store, StoreError};
use crate::account::MemoryUse;
use crate::catalog::CollectionHandle;
use crate::checkpoint::{ImageCheck, collection_dir, rebind_vectors};
use crate::collection_file;
use crate::ctx::Ctx;
use crate::env::{Env, compute};
use crate::owner::{Collections, HeldCollection};
use ahash::{HashMap, HashSet};
use std::rc::Rc;

/// Memory that one core takes for a backup: a piece, and what is read and sent of it.
pub(super) const MEMORY_BYTES: u64 = 3 * PIECE_BYTES as u64;

/// What a run does with each collection.
#[derive(Clone)]
pub(crate) struct Job {
    pub target: BackupTarget,
    /// The time of the run, as keys have it, and in Unix milliseconds.
    pub time: String,
    pub taken_unix_ms: u64,
    pub retention: usize,
    /// What one core may read and send; 0 = as much as it can.
    pub bytes_per_second: u64,
}

/// A snapshot that was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The key of the snapshot.
    pub key: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes that were sent: not those that the store had already.
    pub sent_bytes: u64,
}

/// The times of the snapshots under `prefix` of a store, ascending. Other objects are left alone.
pub(crate) async fn times(store: &dyn Store, prefix: &str) -> Result<Vec<String>, StoreError> {
    let mut times = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.list(prefix, after.as_deref()).await?;
        let of_key = |key: &str| Some(key.strip_prefix(prefix)?.strip_suffix(SNAPSHOT)?.to_owned());
        times.extend(
            page.objects.iter().filter_map(|object| of_key(&object.key)).filter(|time| is_time(time)),
        );
        after = page.next;
        if after.is_none() {
            times.sort_unstable();
            return Ok(times);
        }
    }
}

/// A longer snapshot file is decoded beside the cores.
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

/// Removes all snapshots under `prefix` but the newest `retention` ones, and the pieces that only they have. `newest` is the one that was stored last.
pub(super) async fn retire(
    env: &Rc<dyn Env>,
    store: &Rc<dyn Store>,
    names: &Names,
    prefix: &str,
    retention: usize,
    newest: &Snapshot,
) -> Result<(), StoreError> {
    let times = times(&**store, prefix).await?;
    let Some(gone) = times.len().checked_sub(retention).filter(|gone| retention > 0 && *gone > 0) else {
        return Ok(());
    };
    let (old, kept) = times.split_at(gone);
    let key_of = |time: &String| format!("{prefix}{time}{SNAPSHOT}");
    let still: HashSet<(u64, Digest)> = newest.pieces().collect();
    let mut unused: HashSet<(u64, Digest)> = HashSet::default();
    for time in old {
        match read_snapshot(env, &**store, &key_of(time)).await {
            Ok(snapshot) => unused.extend(snapshot.pieces().filter(|piece| !still.contains(piece))),
            // What it names cannot be known. Pieces without a snapshot cost space, and nothing else.
            Err(error @ StoreError::Damaged { .. }) => {
                tracing::warn!(%error, "an old snapshot cannot be read; its pieces stay")
            }
            Err(error) => return Err(error),
        }
    }
    if !unused.is_empty() {
        for time in kept {
            // Without knowing what every one of them needs nothing may be removed.
            read_snapshot(env, &**store, &key_of(time))
                .await?
                .pieces()
                .for_each(|piece| _ = unused.remove(&piece));
        }
    }
    // A crash in between leaves pieces without a snapshot, never the reverse.
    for time in old {
        store.delete(&key_of(time)).await?;
        store.delete(&format!("{prefix}{time}{CONFIG}")).await?;
    }
    for (uid, digest) in unused {
        store.delete(&names.piece(uid, &digest)).await?;
    }
    Ok(())
}

/// Sends the files of a store of images. Files of `earlier`, an earlier snapshot of it, whose pieces the store still has are not read again: images
/// never change.
pub(super) async fn send_files(
    pieces: &Pieces<'_>,
    held: &HeldCollection,
    earlier: Option<&StoreSnapshot>,
    texts: Vec<(String, String)>,
) -> Result<(StoreSnapshot, u64), BackupError> {
    let mut stored: HashMap<Digest, u64> = pieces.stored().await?;
    let dir = collection_dir(held.uid);
    let (mut files, mut sent) = (Vec::new(), 0);
    for (name, bytes, file) in &held.files {
        let is_image = name.ends_with(".img");
        let earlier = earlier.iter().flat_map(|earlier| &earlier.files).find(|file| {
            let has = |(index, digest)| stored.get(digest) == Some(&(file.piece_bytes(index) as u64));
            is_image && file.name == *name && file.bytes == *bytes && file.pieces.iter().enumerate().all(has)
        });
        if let Some(earlier) = earlier {
            files.push(earlier.clone());
            continue;
        }
        // What is damaged here must not be taken for a good backup.
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

impl Collections {
    /// Backs up a collection of this core.
    pub(crate) async fn back_up(
        self: &Rc<Self>,
        handle: &CollectionHandle,
        job: &Job,
    ) -> Result<Stored, BackupError> {
        let ctx: &Rc<Ctx> = self.ctx();
        let _memory = ctx.node().account.hold(MemoryUse::Images, MEMORY_BYTES);
        let store = job.target.stores.open();
        let names = Names::new(&job.target.prefix);
        let prefix = names.of_collection(&handle.name);
        let pace = Pace::new(ctx, job.bytes_per_second);

        let newest = times(&*store, &prefix).await?.pop();
        if let Some(newest) = newest.as_ref().filter(|newest| **newest >= job.time) {
            return Err(BackupError::Time { newest: newest.clone(), time: job.time.clone() });
        }
        // A data directory that was put back from a copy writes other images under the names of earlier ones.
        let owned = self.owned(handle.uid).ok_or(BackupError::Dropped)?;
        let is_ours = |time: &&String| {
            let key = format!("{prefix}{time}{SNAPSHOT}");
            owned.last_snapshot.borrow().as_ref() == Some(&key)
        };
        let earlier = match newest.as_ref().filter(is_ours) {
            Some(time) => match read_snapshot(ctx.env(), &*store, &format!("{prefix}{time}{SNAPSHOT}")).await
            {
                Ok(snapshot) => Some(snapshot),
                Err(error @ (StoreError::Damaged { .. } | StoreError::NotFound { .. })) => {
                    tracing::warn!(collection = handle.name, %error, "the snapshot before is of no use");
                    None
                }
                Err(error) => return Err(error.into()),
            },
            None => None,
        };
        let mut snapshot =
            Snapshot { name: handle.name.clone(), taken_unix_ms: job.taken_unix_ms, stores: Vec::new() };
        let mut sent_bytes = 0;
        let held = self.hold_collection(handle.uid).await?;
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
        if self.owned(handle.uid).is_none() {
            return Err(BackupError::Dropped);
        }
        put(&*store, &format!("{prefix}{}{CONFIG}", job.time), config.into(), false).await?;
        let (key, file) = (format!("{prefix}{}{SNAPSHOT}", job.time), snapshot.encode());
        sent_bytes += file.len() as u64;
        put(&*store, &key, file.into(), false).await?;
        *owned.last_snapshot.borrow_mut() = Some(key.clone());
        // The backup is made; space that an old one takes is another matter.
        if let Err(error) = retire(ctx.env(), &store, &names, &prefix, job.retention, &snapshot).await {
            tracing::warn!(collection = handle.name, %error, "old snapshots are not removed; the next run tries again");
        }
        Ok(Stored { key, bytes: snapshot.bytes(), sent_bytes })
    }
}
