//! Backs up and restores the keys. For a backup, all cores hold their keys as they are at one moment, and then send them. A restore fetches all
//! files before it replaces any key.

use super::Core;
use super::backups::store_error;
use super::restore::{Restored, Verified};
use crate::backup::{
    BackupError, BackupTarget, Job, KeysCut, KeysText, Names, NodePart, SNAPSHOT, Snapshot, StoreError,
    Stored, fetch_store, keys_text, put, read_snapshot, retire, send_held_keys, snapshot_of_keys,
    stored_pieces_of_keys, times, verify,
};
use crate::env::call_own;
use crate::error::{OpError, io_error};
use crate::event::together;
use crate::kv::held::HeldFigures;
use crate::kv::manifest::RESTORE_DIR;
use crate::kv::replace::OtherKeys;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// How often a backup tries to bring all cores to one moment. A try fails if keys change so fast that the records of the changes need too much
/// memory.
const TRIES: usize = 5;

impl Core {
    /// On core 0: stores the keys of all cores as they are at one moment, and returns how many there are. Returns `None`, and stores nothing, if
    /// there are no keys and the store has no snapshot of keys.
    pub(super) async fn back_up_keys(
        self: &Rc<Self>,
        job: &Job,
    ) -> Result<Option<(Stored, u64)>, BackupError> {
        let store = job.target.stores.open();
        let names = Names::new(&job.target.prefix);
        let prefix = names.of_part(NodePart::Keys.name());
        let newest = times(&*store, &prefix).await?.pop();
        if let Some(newest) = newest.as_ref().filter(|newest| **newest >= job.time) {
            return Err(BackupError::Time { newest: newest.clone(), time: job.time.clone() });
        }
        let held = {
            let _alone = self.backups.keys_lock.lock().await;
            self.hold_all_keys().await
        };
        let (figures, cut) = match held {
            Ok(held) => held,
            Err(error) => {
                self.let_go_of_all_keys().await;
                return Err(error);
            }
        };
        // A restore to a moment has to know that there were none.
        if figures.keys == 0 && newest.is_none() && !self.ctx.is_archived() {
            self.let_go_of_all_keys().await;
            return Ok(None);
        }
        let sent = self.send_all_keys(job, newest).await;
        if sent.is_err() {
            self.let_go_of_all_keys().await;
        }
        let (sent, mut sent_bytes) = sent?;
        let snapshot = snapshot_of_keys(self.keys(), job, sent, figures, cut);
        let (key, file) = (format!("{prefix}{}{SNAPSHOT}", job.time), snapshot.encode());
        sent_bytes += file.len() as u64;
        put(&*store, &key, file.into(), false).await?;
        self.backups.last_keys.borrow_mut().set(job.store, key.clone());
        // As with collections, space that an old snapshot takes does not make the run fail.
        if let Err(error) = retire(self.env(), &store, &names, &prefix, job.retention, &snapshot).await {
            tracing::warn!(%error, "old snapshots of keys could not be removed; the next run tries again");
        }
        let (bytes, keys) = (snapshot.bytes(), figures.keys);
        tracing::info!(keys, bytes, sent_bytes, "the keys are backed up");
        Ok(Some((Stored { key, bytes, sent_bytes }, keys)))
    }

    /// Has every core hold its keys as they are at one moment. Returns how many these are, and the moment.
    async fn hold_all_keys(self: &Rc<Self>) -> Result<(HeldFigures, KeysCut), BackupError> {
        let cores = self.env().cores();
        for _ in 0..TRIES {
            if self.is_stopping() {
                return Err(BackupError::Stopping);
            }
            let number = self.keys().next_backup();
            let held = (0..cores).map(|to| {
                call_own(self, to, move |there| async move { there.keys().hold_keys(number).await })
            });
            let held: Result<Vec<()>, BackupError> = together(held.collect()).await.into_iter().collect();
            held?;
            self.keys().pass_cut(number);
            let cut = KeysCut { unix_ms: self.unix_ms(), moment_ms: self.ctx.moment_ms() };
            let ended = (0..cores)
                .map(|to| call_own(self, to, |there| async move { there.keys().end_tapes().await }));
            let ended: Result<Vec<Option<HeldFigures>>, BackupError> =
                together(ended.collect()).await.into_iter().collect();
            // If one core has given up its tapes, the whole try has failed. The images that were written make the next try shorter.
            if let Some(parts) = ended?.into_iter().collect::<Option<Vec<HeldFigures>>>() {
                let add = |a: HeldFigures, b: HeldFigures| HeldFigures {
                    keys: a.keys + b.keys,
                    live_bytes: a.live_bytes + b.live_bytes,
                };
                return Ok((parts.into_iter().fold(HeldFigures::default(), add), cut));
            }
        }
        Err(BackupError::Source(format!(
            "in {TRIES} tries, keys changed faster than images of them could be written; make the backup when fewer keys are written"
        )))
    }

    async fn let_go_of_all_keys(self: &Rc<Self>) {
        for to in 0..self.env().cores() {
            call_own(self, to, |there| async move { there.keys().let_go_of_keys() }).await;
        }
    }

    async fn send_all_keys(
        self: &Rc<Self>,
        job: &Job,
        newest: Option<String>,
    ) -> Result<(Vec<crate::backup::SentImage>, u64), BackupError> {
        let store = job.target.stores.open();
        let prefix = Names::new(&job.target.prefix).of_part(NodePart::Keys.name());
        let newest = newest.map(|time| format!("{prefix}{time}{SNAPSHOT}"));
        // A data directory that was put back from a copy writes other images under the names of earlier ones. So only a snapshot that this
        // process has stored is known to be of these files.
        let is_ours = |newest: &String| self.backups.last_keys.borrow().of(job.store) == Some(newest);
        let earlier = match newest.filter(is_ours) {
            Some(key) => match read_snapshot(self.env(), &*store, &key).await {
                Ok(snapshot) => snapshot.stores.into_iter().next().map(Arc::new),
                Err(error @ (StoreError::Damaged { .. } | StoreError::NotFound { .. })) => {
                    tracing::warn!(%error, "the previous snapshot of the keys cannot be used; all files are read anew");
                    None
                }
                Err(error) => return Err(error.into()),
            },
            None => None,
        };
        let stored = stored_pieces_of_keys(self.keys(), job).await?;
        let sent = (0..self.env().cores()).map(|to| {
            let (job, stored, earlier) = (job.clone(), stored.clone(), earlier.clone());
            call_own(self, to, move |there| async move {
                send_held_keys(there.keys(), &job, stored, earlier).await
            })
        });
        let (mut all, mut bytes) = (Vec::new(), 0);
        for sent in together(sent.collect()).await {
            let (files, sent_bytes) = sent?;
            all.extend(files);
            bytes += sent_bytes;
        }
        Ok((all, bytes))
    }

    /// Finds the snapshot of the keys of that time, or the newest one. Returns its key, the snapshot, and the description of its files.
    async fn find_keys(
        &self,
        target: &BackupTarget,
        time: Option<&str>,
    ) -> Result<(String, Snapshot, KeysText), OpError> {
        let prefix = Names::new(&target.prefix).of_part(NodePart::Keys.name());
        let none = |time| OpError::NoPartSnapshot { part: NodePart::Keys.name(), time };
        let (key, snapshot) = self.find_snapshot(target, &prefix, time, none).await?;
        let text = keys_text(&key, &snapshot).map_err(|error| store_error(&error))?;
        Ok((key, snapshot, text))
    }

    /// Reads a whole snapshot of the keys and checks it.
    pub(super) async fn verify_keys(
        &self,
        target: &BackupTarget,
        time: Option<&str>,
    ) -> Result<Verified, OpError> {
        let (key, snapshot, text) = self.find_keys(target, time).await?;
        verify(&self.ctx, target, &snapshot, self.options().backup.bytes_per_second).await?;
        Ok(Verified { key, bytes: snapshot.bytes(), keys: Some(text.keys) })
    }

    /// On core 0: fetches a snapshot of the keys and puts it in the place of all keys that there are.
    pub(super) async fn restore_keys(
        self: &Rc<Self>,
        target: &BackupTarget,
        time: Option<&str>,
    ) -> Result<Restored, OpError> {
        let (key, snapshot, text) = self.find_keys(target, time).await?;
        let bytes = snapshot.bytes();
        let tapes = snapshot.stores[0].files.iter().filter(|file| text.tapes.contains(&file.name));
        let tape_bytes = tapes.map(|file| file.bytes).sum();
        let other = OtherKeys {
            tape_bytes,
            shards: text.shards,
            uid: snapshot.stores[0].uid,
            images: text.images,
            tapes: text.tapes,
            cut_unix_ms: text.cut_unix_ms,
            live_bytes: text.live_bytes,
        };
        self.keys().check_replaceable(&other)?;
        let disk = self.env().disk().expect("looked for before");
        let free = disk.space().await.map_err(|error| io_error(&error))?.free;
        // The disk needs room for the files that are fetched, and for the images that are made of them.
        if free < 2 * bytes || !self.node().reserve.is_intact() {
            return Err(OpError::NoSpace(format!(
                "the snapshot has {bytes} bytes, a restore needs twice as much room, and the disk has {free} bytes free"
            )));
        }
        let dir = Path::new(RESTORE_DIR);
        disk.remove_dir(dir).await.map_err(|error| io_error(&error))?;
        disk.create_dir(dir).await.map_err(|error| io_error(&error))?;
        let rate = self.options().backup.bytes_per_second;
        let fetched = fetch_store(&self.ctx, target, &snapshot.stores[0], dir, other.uid, rate).await;
        let replaced = match fetched {
            Ok(_) => {
                let _alone = self.backups.keys_lock.lock().await;
                self.keys().replace_keys(other).await
            }
            Err(error) => Err(error.into()),
        };
        if let Err(error) = disk.remove_dir(dir).await {
            tracing::warn!(%error, "the files of a restore of keys stay until the next start");
        }
        replaced?;
        let keys = text.keys;
        tracing::info!(key, keys, bytes, "the keys were restored");
        Ok(Restored { collection: NodePart::Keys.name().to_owned(), key, bytes, has_replaced: true })
    }
}
