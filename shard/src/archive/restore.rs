//! Brings an empty data directory to a moment: the newest snapshots that are not newer, and the frames of the logs behind them.
//!
//! What is there at the end is what a process that was killed at the moment would have left: the start opens it as it opens everything. Until then the
//! directory has the file [`MARK`], and a start that finds it without being asked for a restore refuses the directory.

use super::catalog_log::{ArchivedCollection, CatalogState, ChainEnd, Change, KeysEntry, position_of};
use super::names::{CatalogName, PartName};
use super::options::RestoreMoment;
use super::part;
use super::sender::list;
use super::set_back::{self, SetBack};
use super::{CATALOG_UID, DIR};
use crate::account::MemoryUse;
use crate::alias_file;
use crate::backup::{
    BackupTarget, Names, NodePart, SNAPSHOT, Snapshot, Store, StoreSnapshot, fetch_store, keys_text,
    read_snapshot, read_whole, times,
};
use crate::checkpoint::{Manifest, VectorsFile, collection_dir};
use crate::collection_file;
use crate::core::Core;
use crate::disk::{BLOCK, Disk, DiskFile};
use crate::family::{CollectionConfig, tokens_of};
use crate::kv::{index_file, manifest as keys_manifest};
use crate::log::{KeptFrame, RecordKey, SegmentId, segment_header, split_frames};
use crate::twin;
use ahash::HashMap;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The file of a directory that is being restored, until all of it is open.
pub(crate) const MARK: &str = "restoring";
/// The longest object that is read: a frame with the longest record, and what stands around it.
const PART_BYTES_MAX: usize = 96 << 20;
/// The longest catalog that is read.
const CATALOG_BYTES_MAX: usize = 1 << 30;
/// Frames are read from so long before the oldest snapshot on, in case clocks differ, milliseconds.
const MARGIN_MS: u64 = 300_000;

/// A time for people, with its milliseconds.
fn shown(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| format!("{unix_ms} ms"), |time| format!("{time:.3}"))
}

/// What is to be restored, and from where.
struct Restore<'a> {
    core: &'a Rc<Core>,
    disk: Rc<dyn Disk>,
    target: BackupTarget,
    store: Rc<dyn Store>,
    names: Names,
    until_ms: u64,
    /// When the clock was set back between two runs.
    set_back: Vec<SetBack>,
}

/// The catalog at the moment.
struct CatalogThen {
    state: CatalogState,
    /// The uids of the collections of the stored catalog that it was made of.
    stored: BTreeSet<u64>,
    /// The runs of which it is known how they changed it.
    journaled: BTreeSet<u64>,
}

/// A snapshot that a collection begins with.
struct Base {
    key: String,
    snapshot: Snapshot,
    /// Every change that was made before is in it, Unix milliseconds: its images were begun then.
    begun_ms: u64,
}

/// How far the changes of each store are there without a gap, by the uid of its log records.
#[derive(Default)]
struct Reached {
    seqs: HashMap<u64, u64>,
    /// The first gap of a store: the number that is missing.
    gaps: BTreeMap<u64, u64>,
}

impl Reached {
    fn note(&mut self, key: RecordKey) {
        if let Some(seq) = self.seqs.get_mut(&key.collection) {
            match key.seq {
                next if next == *seq + 1 => *seq = next,
                seen if seen <= *seq => {}
                _ => _ = self.gaps.entry(key.collection).or_insert(*seq + 1),
            }
        }
    }
}

/// On core 0, before anything is opened: fills the data directory, if a restore is asked for.
///
/// # Errors
/// A sentence: the directory has data; the archive does not reach the moment; the store or the disk failed.
pub(crate) async fn restore(core: &Rc<Core>, disk: &Rc<dyn Disk>) -> Result<(), String> {
    let is_begun = match disk.read(Path::new(MARK)).await {
        Ok(_) => true,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(format!("{MARK}: {error}")),
    };
    let Some(RestoreMoment { until_unix_ms }) = core.options().backup.restore else {
        return match is_begun {
            true => Err("the data directory is one that `nigh backup restore -until` has not finished; repeat the restore, or remove the directory".to_owned()),
            false => Ok(()),
        };
    };
    let options = &core.options().backup;
    let target = options.bucket.as_ref().or(options.directory.as_ref()).cloned();
    let target = target.ok_or("a restore needs the store of the backups: -backup-bucket or -backup-dir")?;
    let mut restore = Restore {
        core,
        disk: disk.clone(),
        store: target.stores.open(),
        names: Names::new(&target.prefix),
        target,
        until_ms: until_unix_ms,
        set_back: Vec::new(),
    };
    restore.clear(is_begun).await.map_err(|error| format!("the data directory: {error}"))?;
    restore.run().await
}

/// On core 0, when all is open: whoever finds the directory from here on may take it for what it was to be.
///
/// # Errors
/// A sentence: something that was restored is damaged or does not fit; the disk failed.
pub(crate) async fn end_restore(core: &Rc<Core>, disk: &Rc<dyn Disk>) -> Result<(), String> {
    if core.options().backup.restore.is_none() {
        return Ok(());
    }
    let closed = {
        let pin = core.pin();
        let catalog = core.node().catalog.load(&pin);
        catalog.by_name.values().find_map(|handle| Some((handle.name.clone(), handle.damage.get()?.clone())))
    };
    if let Some((name, why)) = closed {
        return Err(format!("the collection {name:?} was restored and cannot be opened: {why}"));
    }
    if let Some(why) = core.keys().damage() {
        return Err(format!("the keys were restored and cannot be opened: {why}"));
    }
    disk.remove(Path::new(MARK)).await.map_err(|error| format!("{MARK}: {error}"))
}

fn io(what: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", what.display())
}

impl Restore<'_> {
    /// Makes sure that the directory is empty, and marks it. What an earlier attempt has left is removed.
    async fn clear(&self, is_begun: bool) -> std::io::Result<()> {
        let aliases = Path::new(alias_file::FILE);
        for dir in ["collections", "log", "keys", DIR].map(Path::new) {
            let is_empty = self.disk.list(dir).await?.is_empty();
            if !is_begun && !is_empty {
                return Err(std::io::Error::other(format!(
                    "it has data in {}; a restore to a moment needs an empty directory",
                    dir.display()
                )));
            }
            self.disk.remove_dir(&twin::copy_of(dir)).await?;
            self.disk.remove_dir(dir).await?;
        }
        self.disk.replace(Path::new(MARK), b"restoring\n").await?;
        self.disk.remove(&twin::copy_of(aliases)).await?;
        self.disk.remove(aliases).await?;
        for dir in ["collections", "log", "keys"] {
            self.disk.create_dir(Path::new(dir)).await?;
        }
        Ok(())
    }

    async fn run(&mut self) -> Result<(), String> {
        let mut memory = self.core.node().account.hold(MemoryUse::Images, 0);
        let listed = list(&*self.store, &self.names, &mut memory).await;
        let (parts, catalogs) = listed.map_err(|error| error.to_string())?;
        self.set_back = set_back::find(&parts, &catalogs);
        self.check_came_once()?;
        let catalog = self.catalog_before(&catalogs)?;
        let CatalogThen { state, stored, journaled } = self.catalog_at(catalog, &catalogs, &parts).await?;
        let next = self.catalog_after(catalog, &catalogs).await?;
        let mut reached = Reached::default();
        let mut covered_ms = u64::MAX;
        let mut bases = BTreeMap::new();
        for (name, entry) in &state.collections {
            let base = self.base_of(name, entry).await?;
            // One that was made after the stored catalog has nothing in the log before that.
            let made_ms = if stored.contains(&entry.uid) { 0 } else { catalog.unix_ms };
            covered_ms = covered_ms.min(base.as_ref().map_or(made_ms, |base| base.begun_ms));
            reached.seqs.insert(entry.uid, base.as_ref().map_or(0, |base| base.snapshot.stores[0].seq));
            let tokens = base.as_ref().and_then(|base| base.snapshot.stores.get(1));
            reached.seqs.insert(tokens_of(entry.uid), tokens.map_or(0, |store| store.seq));
            bases.insert(name.clone(), base);
        }
        let keys_base = match &state.keys {
            Some(keys) => self.base_of_keys(keys).await?,
            None => None,
        };
        if let Some(keys) = &state.keys {
            covered_ms = covered_ms.min(keys_base.as_ref().map_or(0, |base| base.begun_ms));
            for (shard, seq) in keys_manifest_of(keys, keys_base.as_ref())?.covered().into_iter().enumerate()
            {
                reached.seqs.insert(keys.uid_base + shard as u64, seq);
            }
        }
        let (runs, ends) = self.place_logs(&parts, covered_ms, &mut reached).await?;
        if let Some(run) = runs.iter().find(|run| **run > catalog.generation && !journaled.contains(run)) {
            return Err(format!(
                "the server ran without -archive at {} (its run {run}), and it is not known which collections there were; choose a moment of a run with -archive",
                shown(self.until_ms)
            ));
        }
        let ended = state.ended.iter().chain(next.iter().flat_map(|next| &next.ended));
        let ended = ended.filter(|end| end.generation <= catalog.generation);
        check_ends(ended, &ends, set_back::earliest(&self.set_back, covered_ms))?;
        let newest_ms = ends.values().map(|end| end.unix_ms).fold(catalog.unix_ms, u64::max);
        if next.is_some_and(|next| next.is_after_gap) && !ends.values().any(|end| end.is_cut) {
            return Err(format!(
                "the archive ends at {} until the server was started with -archive again, so it is not known what there was at {}; choose a moment until then",
                shown(newest_ms),
                shown(self.until_ms)
            ));
        }
        check_reached(&state, &reached)?;
        for (name, entry) in &state.collections {
            self.place_collection(name, entry, bases[name].as_ref()).await?;
        }
        if let Some(keys) = &state.keys {
            self.place_keys(keys, keys_base.as_ref()).await?;
        }
        if let Some(file) = &state.key_indexes {
            let path = index_file::path();
            twin::replace(&*self.disk, &path, file.as_bytes()).await.map_err(io(&path))?;
        }
        let path = Path::new(alias_file::FILE);
        twin::replace(&*self.disk, path, &alias_file::encode(&state.aliases)).await.map_err(io(path))?;
        tracing::info!(
            until = shown(self.until_ms),
            collections = state.collections.len(),
            "the data directory was restored to a moment; it is opened now"
        );
        Ok(())
    }

    /// Refuses a moment that came twice: it is not known which of the two is meant.
    fn check_came_once(&self) -> Result<(), String> {
        match self.set_back.iter().find(|set_back| set_back.has(self.until_ms)) {
            None => Ok(()),
            Some(SetBack { later_run, from_ms, to_ms }) => Err(format!(
                "the clock of the server was set back from {} to {} before its run {later_run}, so {} came twice; choose a moment before the latter or behind the former",
                shown(*to_ms),
                shown(*from_ms),
                shown(self.until_ms)
            )),
        }
    }

    /// Whether a snapshot has everything that was there at `cut_ms`, a time that came once, and no later change than the moment; `earliest_ms`: it needs
    /// what came in then.
    fn is_fit(&self, cut_ms: u64, earliest_ms: Option<u64>) -> bool {
        let earliest_ms = set_back::latest(&self.set_back, earliest_ms.unwrap_or(0));
        (earliest_ms..=self.until_ms).contains(&cut_ms)
            && !self.set_back.iter().any(|set_back| set_back.has(cut_ms))
    }

    /// The newest stored catalog that is not newer than the moment.
    fn catalog_before(&self, catalogs: &[CatalogName]) -> Result<CatalogName, String> {
        let found = catalogs.iter().rev().find(|catalog| catalog.unix_ms <= self.until_ms);
        found.copied().ok_or_else(|| match catalogs.iter().map(|catalog| catalog.unix_ms).min() {
            Some(first) => {
                format!("the archive begins at {}, and {} is before that", shown(first), shown(self.until_ms))
            }
            None => format!(
                "the store has no archive of a log under {:?}; a server writes one with -archive",
                self.names.of_log()
            ),
        })
    }

    /// The first catalog of the run behind that of `catalog`, which knows where the logs before it end. One that is damaged is done without.
    async fn catalog_after(
        &self,
        catalog: CatalogName,
        catalogs: &[CatalogName],
    ) -> Result<Option<CatalogState>, String> {
        let Some(next) = catalogs.iter().find(|next| next.generation > catalog.generation) else {
            return Ok(None);
        };
        let key = next.key(&self.names);
        let read = read_whole(&*self.store, &key, CATALOG_BYTES_MAX).await;
        match CatalogState::decode(&read.map_err(|error| error.to_string())?) {
            Ok(state) => Ok(Some(state)),
            Err(why) => {
                tracing::warn!(key, %why, "a catalog behind the moment cannot be read, so it is not known whether the log before it is complete");
                Ok(None)
            }
        }
    }

    /// The catalog at the moment: a stored one, with the changes behind it.
    async fn catalog_at(
        &self,
        catalog: CatalogName,
        catalogs: &[CatalogName],
        parts: &[(PartName, u64)],
    ) -> Result<CatalogThen, String> {
        let key = catalog.key(&self.names);
        let bytes =
            read_whole(&*self.store, &key, CATALOG_BYTES_MAX).await.map_err(|error| error.to_string())?;
        let mut state = CatalogState::decode(&bytes).map_err(|why| format!("The object {key:?}: {why}."))?;
        let stored = state.collections.values().map(|entry| entry.uid).collect();
        let mut journaled: BTreeSet<u64> = catalogs.iter().map(|catalog| catalog.generation).collect();
        let mut changes: Vec<(u64, Change)> = Vec::new();
        let is_wanted = |id: SegmentId| id.generation >= catalog.generation && id.core == 0;
        let mut frames = ChainReader::new(self, parts, catalog.unix_ms, is_wanted);
        while let Some(piece) = frames.next().await? {
            let mut bad = None;
            for frame in piece.frames()? {
                let is_whole = frame.records(|record, body| {
                    if record.collection == CATALOG_UID {
                        match Change::decode(body) {
                            Ok(change) => changes.push((record.seq, change)),
                            Err(why) => bad = Some(why),
                        }
                    }
                });
                piece.check(is_whole)?;
            }
            if let Some(why) = bad {
                return Err(format!(
                    "The object {:?} has a change of the catalog that this build does not know: {why}.",
                    piece.key
                ));
            }
        }
        journaled.extend(
            changes.iter().filter(|(_, change)| *change == Change::Began).map(|(seq, _)| position_of(*seq).0),
        );
        changes.sort_by_key(|(seq, _)| *seq);
        let from = (catalog.generation, catalog.position);
        let mut next = from;
        for (run, position) in changes.iter().map(|(seq, _)| position_of(*seq)).filter(|at| *at > from) {
            let expected = if run == next.0 { next.1 + 1 } else { 1 };
            if position > expected {
                return Err(format!(
                    "changes {expected} to {} of the catalog of run {run} are not in the archive; choose a moment after the next backup",
                    position - 1
                ));
            }
            next = (run, position);
        }
        changes
            .into_iter()
            .filter(|(seq, _)| position_of(*seq) > from)
            .for_each(|(_, change)| state.apply(change));
        Ok(CatalogThen { state, stored, journaled })
    }

    /// The newest snapshot of a collection that is not newer than the moment and has all data that no log has; `None` if the log has everything since
    /// the collection was made.
    async fn base_of(&self, name: &str, entry: &ArchivedCollection) -> Result<Option<Base>, String> {
        let prefix = self.names.of_collection(name);
        let found = times(&*self.store, &prefix).await.map_err(|error| error.to_string())?;
        let mut keys: Vec<String> =
            found.iter().rev().map(|time| format!("{prefix}{time}{SNAPSHOT}")).collect();
        // The one that it was made of has another uid, and counts by what the catalog says.
        let origin = entry.beside.from.clone();
        keys.retain(|key| Some(key) != origin.as_ref());
        let earliest_ms = entry.beside.unlogged_ms;
        for key in keys.into_iter().chain(origin.clone()) {
            let is_origin = Some(&key) == origin.as_ref();
            let read = read_snapshot(self.core.env(), &*self.store, &key).await;
            let snapshot = match read {
                Ok(snapshot) => snapshot,
                Err(error) if is_origin => {
                    return Err(format!(
                        "the collection {name:?} was made of a snapshot that cannot be read: {error}"
                    ));
                }
                Err(error) => return Err(error.to_string()),
            };
            let cut_ms = snapshot.cut_unix_ms.unwrap_or(u64::MAX);
            let is_own = snapshot.stores.first().is_some_and(|store| store.uid == entry.uid);
            let is_fit = is_own && self.is_fit(cut_ms, earliest_ms);
            if is_fit || (is_origin && earliest_ms.is_none()) {
                let begun_ms = snapshot.cut_unix_ms.unwrap_or(0).min(snapshot.taken_unix_ms);
                return Ok(Some(Base { key, snapshot, begun_ms }));
            }
        }
        match entry.beside.unlogged_ms {
            Some(unlogged_ms) => Err(format!(
                "the collection {name:?} has data of {} that is in no log (of a bulk build, or of a run without -archive), and no backup between that and {} has it; choose a moment after its next backup, or an earlier one",
                shown(unlogged_ms),
                shown(self.until_ms)
            )),
            None => Ok(None),
        }
    }

    /// The newest snapshot of the keys that is not newer than the moment; `None` if the log has everything.
    async fn base_of_keys(&self, keys: &KeysEntry) -> Result<Option<Base>, String> {
        let prefix = self.names.of_part(NodePart::Keys.name());
        let found = times(&*self.store, &prefix).await.map_err(|error| error.to_string())?;
        for key in found.iter().rev().map(|time| format!("{prefix}{time}{SNAPSHOT}")) {
            let snapshot = read_snapshot(self.core.env(), &*self.store, &key).await;
            let snapshot = snapshot.map_err(|error| error.to_string())?;
            let text = keys_text(&key, &snapshot).map_err(|error| error.to_string())?;
            let cut_ms = snapshot.cut_unix_ms.unwrap_or(text.cut_unix_ms);
            if snapshot.stores[0].uid == keys.uid_base && self.is_fit(cut_ms, keys.unlogged_ms) {
                let begun_ms = cut_ms.min(snapshot.taken_unix_ms);
                return Ok(Some(Base { key, snapshot, begun_ms }));
            }
        }
        match keys.unlogged_ms {
            Some(unlogged_ms) => Err(format!(
                "the keys have data of {} that is in no log (of a restore, of another number of shards, or of a run without -archive), and no backup between that and {} has it; choose a moment after their next backup, or an earlier one",
                shown(unlogged_ms),
                shown(self.until_ms)
            )),
            None => Ok(None),
        }
    }

    /// Writes the frames of all cores up to the moment as logs of earlier runs, and returns these runs, and where each chain ends.
    async fn place_logs(
        &self,
        parts: &[(PartName, u64)],
        covered_ms: u64,
        reached: &mut Reached,
    ) -> Result<(BTreeSet<u64>, Ends), String> {
        let mut runs = BTreeSet::new();
        let mut writer = SegmentWriter { disk: self.disk.clone(), open: None, written: Vec::new() };
        let mut frames = ChainReader::new(self, parts, covered_ms, |_| true);
        while let Some(piece) = frames.next().await? {
            runs.insert(piece.id.generation);
            for frame in piece.frames()? {
                let is_whole = frame.records(|key, _| reached.note(key));
                piece.check(is_whole)?;
            }
            writer.write(&piece).await?;
            self.core.ctx().env().yield_now().await;
        }
        writer.end().await?;
        let newest = frames.ends.keys().map(|(run, _)| *run).max();
        for ((run, core), end) in frames.ends.iter().filter(|((run, _), _)| Some(*run) == newest) {
            if !end.is_cut {
                tracing::warn!(
                    run,
                    core,
                    archived_until = shown(end.unix_ms),
                    "the archive has nothing of this core behind that time: what it had changed and not sent by the moment is not restored"
                );
            }
        }
        Ok((runs, frames.ends))
    }

    async fn place_collection(
        &self,
        name: &str,
        entry: &ArchivedCollection,
        base: Option<&Base>,
    ) -> Result<(), String> {
        let damaged = |why: String| format!("the archive has no usable configuration of {name:?}: {why}");
        let (uid, _, config) =
            collection_file::decode(entry.file.as_bytes()).map_err(|why| damaged(why.to_string()))?;
        if uid != entry.uid {
            return Err(damaged("it is that of another collection".to_owned()));
        }
        let tokens = config.multi_vector().map(|config| CollectionConfig::from(config.index()));
        let mut stores = vec![(uid, name.to_owned(), config)];
        stores.extend(tokens.map(|config| (tokens_of(uid), format!("{name}#tokens"), config)));
        let found = base.map_or(&[][..], |base| &base.snapshot.stores);
        if let Some(base) = base.filter(|base| base.snapshot.stores.len() != stores.len()) {
            return Err(format!(
                "The object {:?} is of a collection of another family than {name:?}.",
                base.key
            ));
        }
        // The index is a collection on the disk before its documents are one.
        for (index, (uid, name, config)) in stores.into_iter().enumerate().rev() {
            self.place_store(uid, &name, &config, found.get(index)).await?;
        }
        Ok(())
    }

    async fn place_store(
        &self,
        uid: u64,
        name: &str,
        config: &CollectionConfig,
        snapshot: Option<&StoreSnapshot>,
    ) -> Result<(), String> {
        let dir = collection_dir(uid);
        self.disk.create_dir(&dir).await.map_err(io(&dir))?;
        let manifest = match snapshot {
            Some(snapshot) => {
                let rate = self.core.options().backup.bytes_per_second;
                let fetched = fetch_store(self.core.ctx(), &self.target, snapshot, &dir, uid, rate).await;
                fetched.map_err(|error| format!("the collection {name:?}: {error}"))?
            }
            None => {
                let vectors = match config.dense().filter(|config| config.persistent) {
                    Some(config) => {
                        let made = VectorsFile::create(&*self.disk, &dir, 0, uid, config).await;
                        Some(made.map_err(|error| error.to_string())?.name().to_owned())
                    }
                    None => None,
                };
                Manifest { vectors, ..Manifest::default() }
            }
        };
        manifest.store_twin(&*self.disk, &dir, uid).await.map_err(|error| error.to_string())?;
        let file = dir.join(collection_file::FILE);
        twin::replace(&*self.disk, &file, &collection_file::encode(uid, name, config))
            .await
            .map_err(io(&file))
    }

    async fn place_keys(&self, keys: &KeysEntry, base: Option<&Base>) -> Result<(), String> {
        let manifest = keys_manifest_of(keys, base)?;
        let dir = Path::new(keys_manifest::DIR);
        if let Some(base) = base {
            // Files of records above the images are not needed: the log has these records.
            let is_image = |name: &str| manifest.images.iter().any(|image| image.name == name);
            let mut store = base.snapshot.stores[0].clone();
            store.files.retain(|file| is_image(&file.name));
            let rate = self.core.options().backup.bytes_per_second;
            let fetched = fetch_store(self.core.ctx(), &self.target, &store, dir, store.uid, rate).await;
            fetched.map_err(|error| format!("the keys: {error}"))?;
        }
        let path = dir.join(keys_manifest::FILE);
        twin::replace(&*self.disk, &path, &keys_manifest::encode(&manifest)).await.map_err(io(&path))
    }
}

/// What the keys of a snapshot are for a start. It has another seed than this process, so that a start spreads the keys over shards anew.
fn keys_manifest_of(keys: &KeysEntry, base: Option<&Base>) -> Result<keys_manifest::Manifest, String> {
    let text = base
        .map(|base| keys_text(&base.key, &base.snapshot))
        .transpose()
        .map_err(|error| error.to_string())?;
    let mut manifest = keys_manifest::Manifest::new(0, keys.covered.len(), keys.uid_base);
    if let Some(text) = text {
        (manifest.shards, manifest.images) = (text.shards, text.images);
    }
    manifest.probe = !manifest.probe;
    Ok(manifest)
}

/// Whether the archive lacks the end of a log that a later run has found on the disk, unless everything in it was before `covered_ms`.
fn check_ends<'a>(
    ended: impl Iterator<Item = &'a ChainEnd>,
    ends: &Ends,
    covered_ms: u64,
) -> Result<(), String> {
    for ChainEnd { generation, core, flush, unix_ms } in ended.filter(|end| end.unix_ms > covered_ms) {
        let found = ends.get(&(*generation, *core)).copied().unwrap_or_default();
        if !found.is_cut && found.flush < *flush {
            return Err(format!(
                "the archive lacks the end of the log of core {core}, run {generation}: frames {} to {flush}, the last one of {}",
                found.flush + 1,
                shown(*unix_ms)
            ));
        }
    }
    Ok(())
}

/// Whether changes are missing of something that is there at the moment.
fn check_reached(state: &CatalogState, reached: &Reached) -> Result<(), String> {
    let lacking = |uid: u64, least: u64| {
        let seq = reached.seqs.get(&uid).copied().unwrap_or(0);
        reached.gaps.get(&uid).copied().or((seq < least).then_some(seq + 1))
    };
    let stores = state.collections.iter().flat_map(|(name, entry)| {
        [(name.clone(), entry.uid, entry.seq), (name.clone(), tokens_of(entry.uid), 0)]
    });
    let keys = state.keys.iter().flat_map(|keys| {
        let shards = keys.covered.iter().enumerate();
        shards.map(|(shard, seq)| (format!("keys of shard {shard}"), keys.uid_base + shard as u64, *seq))
    });
    for (what, uid, least) in stores.chain(keys) {
        if let Some(missing) = lacking(uid, least) {
            return Err(format!(
                "change {missing} of {what:?} is neither in a backup before the moment nor in the archive; choose a moment after its next backup"
            ));
        }
    }
    Ok(())
}

/// Whole frames of one segment, one behind the other.
struct Piece {
    key: String,
    id: SegmentId,
    begin: u64,
    /// Something is missing before it that snapshots have: the chain begins here.
    begins_anew: bool,
    bytes: Vec<u8>,
}

impl Piece {
    fn frames(&self) -> Result<Vec<KeptFrame<'_>>, String> {
        split_frames(self.id, self.begin, &self.bytes).map_err(|at| {
            format!(
                "The object {:?} is damaged: no frame of its log begins at byte {at} of the segment.",
                self.key
            )
        })
    }

    fn check(&self, is_whole: bool) -> Result<(), String> {
        match is_whole {
            true => Ok(()),
            false => Err(format!(
                "The object {:?} is damaged: a record of its log has a wrong checksum.",
                self.key
            )),
        }
    }
}

/// Where the frames of each chain end that were read, by run and core.
type Ends = BTreeMap<(u64, u32), End>;

#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// The number and the time of the last one.
    flush: u64,
    unix_ms: u64,
    /// There are frames behind the moment.
    is_cut: bool,
}

/// Reads the frames up to the moment: those of the runs in order, core by core.
struct ChainReader<'a> {
    restore: &'a Restore<'a>,
    /// What is to be read, in order.
    parts: std::vec::IntoIter<PartName>,
    /// The last frame that was read: its segment, its number, where it ends, and its time.
    last: Option<(SegmentId, u64, u64, u64)>,
    /// The chain whose frames are behind the moment from some frame on.
    cut: Option<(u64, u32)>,
    ends: Ends,
    /// Everything that happened by then is known without the log, so that parts may be missing, Unix milliseconds.
    covered_ms: u64,
}

impl<'a> ChainReader<'a> {
    /// Reads segments that `is_wanted`, but for those at the beginning of a chain that end before `covered_ms`, with a margin.
    fn new(
        restore: &'a Restore<'a>,
        parts: &[(PartName, u64)],
        covered_ms: u64,
        is_wanted: impl Fn(SegmentId) -> bool,
    ) -> ChainReader<'a> {
        let covered_ms = set_back::earliest(&restore.set_back, covered_ms);
        let from_ms = covered_ms.saturating_sub(MARGIN_MS);
        let chain_of = |part: &PartName| (part.id.generation, part.id.core);
        // The newest time of each segment, and up to where it is there from its beginning.
        let mut segments: BTreeMap<SegmentId, (u64, u64)> = BTreeMap::new();
        for (part, _) in parts {
            let (last_ms, end) = segments.entry(part.id).or_insert((0, BLOCK as u64));
            *last_ms = part.last_ms.max(*last_ms);
            match part.begin <= *end {
                true => *end = part.end.max(*end),
                // Something is missing before it.
                false => *end = 0,
            }
        }
        // The first segment of each chain that has something new. A segment is read as a whole. One that is known without the log may be there in part:
        // a removal of what is too old was cut short.
        let mut first: BTreeMap<(u64, u32), u64> = BTreeMap::new();
        for (id, (last_ms, end)) in segments {
            if (last_ms == 0 || last_ms >= from_ms) && (end > 0 || last_ms > covered_ms) {
                first.entry((id.generation, id.core)).or_insert(id.number);
            }
        }
        let is_new =
            |part: &PartName| first.get(&chain_of(part)).is_some_and(|first| part.id.number >= *first);
        let parts = parts.iter().map(|(part, _)| *part).filter(|part| is_wanted(part.id) && is_new(part));
        ChainReader {
            restore,
            parts: parts.collect::<Vec<_>>().into_iter(),
            last: None,
            cut: None,
            ends: BTreeMap::new(),
            covered_ms,
        }
    }

    /// The frames of the next part, but for those that came already and those behind the moment.
    async fn next(&mut self) -> Result<Option<Piece>, String> {
        for name in self.parts.by_ref() {
            let chain = (name.id.generation, name.id.core);
            match self.cut {
                // A clock that was set back since does not bring a later run before the moment.
                Some((generation, _)) if generation < chain.0 => return Ok(None),
                Some(cut) if cut == chain => continue,
                _ => {}
            }
            let last = self.last.filter(|(id, ..)| (id.generation, id.core) == chain);
            let key = name.key(&self.restore.names);
            let object = read_whole(&*self.restore.store, &key, PART_BYTES_MAX)
                .await
                .map_err(|error| error.to_string())?;
            let bytes = part::decode(&key, name, &object).map_err(|error| error.to_string())?;
            let bytes = bytes.to_vec();
            let mut piece = Piece { key, id: name.id, begin: name.begin, begins_anew: false, bytes };
            let (mut begin, mut end, mut last, mut begins_anew) = (None, name.begin, last, false);
            if last.is_none() && name.begin > BLOCK as u64 {
                return Err(format!(
                    "the archive lacks a part of the log of core {}, run {}: it should lie before the object {:?}",
                    chain.1, chain.0, piece.key
                ));
            }
            for frame in piece.frames()? {
                let came = last.is_some_and(|(id, _, end, _)| id == name.id && frame.end <= end);
                if came {
                    continue;
                }
                let time = if frame.unix_ms == 0 { last.map_or(0, |(.., time)| time) } else { frame.unix_ms };
                if let Some((id, flush, ..)) = last.filter(|(_, flush, ..)| frame.flush != flush + 1) {
                    // Snapshots have everything that lies before it, so that the log may begin behind the hole.
                    if time > self.covered_ms || id == name.id {
                        return Err(format!(
                            "the archive lacks a part of the log of core {}, run {}: frames {} to {} should lie before the object {:?}",
                            chain.1,
                            chain.0,
                            flush + 1,
                            frame.flush.saturating_sub(1),
                            piece.key
                        ));
                    }
                    begins_anew = true;
                }
                if time > self.restore.until_ms {
                    self.cut = Some(chain);
                    self.ends.entry(chain).or_default().is_cut = true;
                    break;
                }
                self.ends.insert(chain, End { flush: frame.flush, unix_ms: time, is_cut: false });
                begin.get_or_insert(frame.begin);
                end = frame.end;
                last = Some((name.id, frame.flush, frame.end, time));
            }
            self.last = last.or(self.last);
            let Some(begin) = begin else { continue };
            let kept = (begin - name.begin) as usize..(end - name.begin) as usize;
            piece.bytes = piece.bytes[kept].to_vec();
            (piece.begin, piece.begins_anew) = (begin, begins_anew);
            return Ok(Some(piece));
        }
        Ok(None)
    }
}

/// Writes segments, one after the other.
struct SegmentWriter {
    disk: Rc<dyn Disk>,
    open: Option<(SegmentId, PathBuf, Rc<dyn DiskFile>)>,
    /// The segments that were written.
    written: Vec<(SegmentId, PathBuf)>,
}

impl SegmentWriter {
    async fn write(&mut self, piece: &Piece) -> Result<(), String> {
        if self.open.as_ref().is_none_or(|(id, ..)| *id != piece.id) {
            self.end().await?;
            if piece.begins_anew {
                let of_chain =
                    |id: SegmentId| (id.generation, id.core) == (piece.id.generation, piece.id.core);
                for (_, path) in self.written.iter().filter(|(id, _)| of_chain(*id)) {
                    self.disk.remove(path).await.map_err(io(path))?;
                }
                self.written.retain(|(id, _)| !of_chain(*id));
            }
            let dir = PathBuf::from(format!("log/{:04}", piece.id.core));
            let path = dir.join(piece.id.file_name());
            let made = async {
                self.disk.create_dir(&dir).await?;
                let file = self.disk.create(&path).await?;
                file.write_at(0, &segment_header(piece.id)).await?;
                Ok(file)
            };
            self.written.push((piece.id, path.clone()));
            self.open = Some((piece.id, path.clone(), made.await.map_err(io(&path))?));
        }
        let (_, path, file) = self.open.as_ref().expect("just opened");
        file.write_at(piece.begin, &piece.bytes).await.map_err(io(path))
    }

    async fn end(&mut self) -> Result<(), String> {
        let Some((_, path, file)) = self.open.take() else { return Ok(()) };
        let ended = async {
            file.sync().await?;
            file.close().await?;
            self.disk.sync_dir(path.parent().unwrap_or(Path::new("log"))).await
        };
        ended.await.map_err(io(&path))
    }
}
