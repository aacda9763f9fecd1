//! Opening a data directory: catalog, images, log, in that order, with any number of cores and shards.
//!
//! Core 0 reads the catalog and every core's old log; each owner loads its collections' images and replays the
//! records above them by sequence number, whatever core wrote them. A hole in a collection's sequence means a lost
//! record: that collection is reported damaged and serves nothing, the others go on. New log segments get a generation above
//! every old one; old segments are read-only and go once checkpoints cover them.

use crate::alias_file;
use crate::archive;
use crate::catalog::{Catalog, ColdCollection, OpeningCollection, within_tenant};
use crate::checkpoint::{CheckpointError, Manifest, VectorsFile, collection_dir};
use crate::cold_stub::{self, ColdStub};
use crate::collection_file;
use crate::core::Core;
use crate::damage_mark;
use crate::directory::{FORMAT_FILE, format_text};
use crate::disk::{Disk, SmallFiles, is_full};
use crate::env::call_own;
use crate::event::some_at_once;
use crate::family::{CollectionConfig, Family, collection_of, is_of_tokens};
use crate::kv::{self, index_file};
use crate::lanes::{self, Unit};
use crate::log::{self, ChainFound, Ledgers, OldSegments};
use crate::opening::Tally;
use crate::owner::Owned;
use crate::owner::load::{ToLoad, is_stray};
use crate::progress::Stage;
use crate::restored_mark;
use crate::sealed_json::Unreadable;
use crate::twin::{self, TwinError};
use ahash::{HashMap, HashSet};
use nigh_engine::collection::DenseConfig;
use nigh_engine::collection::config_keys::with_live_values;
use nigh_engine::distance::Metric;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What the names begin with that stand for directories of unknown collections; no collection may have such a name.
const NAMELESS: &str = "default/#damaged-";

/// Collections whose small files are read with one call of the disk, and such calls that are under way at the same time.
const COLLECTIONS_AT_ONCE: usize = 32;
const CALLS_AT_ONCE: usize = 4;
/// Files that are longer are read by calls of their own.
const SMALL_BYTES: u64 = 64 << 10;

/// Opens the store on every core; runs on core 0.
pub async fn open(core: &Rc<Core>) -> Result<(), String> {
    let progress = &core.node().progress;
    let Some(disk) = core.env().disk() else {
        core.ctx.publish_catalog(Catalog { is_read: true, ..Catalog::default() });
        kv::recovery::open(&core.keys, kv::recovery::Found::default(), HashSet::default()).await?;
        serve_keys(core).await;
        progress.finish(core.env().now_ns());
        return Ok(());
    };
    let text = |what: &'static str| move |e: std::io::Error| format!("{what}: {e}");
    archive::restore(core, &disk).await?;
    disk.remove_dir(Path::new("trash")).await.map_err(text("removing dropped collections"))?;
    for dir in ["collections", "log"] {
        disk.create_dir(Path::new(dir)).await.map_err(text("making the data directory"))?;
    }

    raise_format(core, &*disk).await?;
    let (entries, restored) = read_catalog(&*disk).await?;
    let known: HashSet<u64> = entries.iter().map(|entry| entry.uid).collect();
    let (cold, mut entries): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| entry.cold.is_some() && entry.damage.is_none());
    let cold = cold_collections(&*disk, cold).await;
    let aliases = read_aliases(&*disk).await?;

    // Before the log: records that images cover are not even counted.
    let whole = entries.iter_mut().filter(|entry| entry.damage.is_none());
    let manifests: HashMap<u64, Result<Manifest, CheckpointError>> =
        whole.filter_map(|entry| Some((entry.uid, entry.manifest.take()?))).collect();
    remove_orphans(&*disk, &mut entries).await?;
    for uid in restored.into_iter().filter(|uid| known.contains(uid)) {
        // What was replaced is gone.
        let removed = restored_mark::remove(&*disk, &collection_dir(uid)).await;
        removed.map_err(text("removing the mark of a restored collection"))?;
    }
    configure_tokens(&mut entries);
    let found = aliases.len();
    let aliases = live_aliases(aliases, &entries, &cold);
    let aliases_gone = aliases.len() < found;
    // From here on every name is known: one that stands for nothing is, and what is not open yet is said to be opened. No name changes until
    // all is open.
    core.ctx.publish_catalog(Catalog {
        aliases: aliases.clone(),
        opening: opening(&entries),
        cold,
        is_read: true,
        ..Catalog::default()
    });
    progress.enter(Stage::Log);
    // Uids of dropped collections count too: their records may still lie in the log.
    let mut uid_max = known.iter().map(|uid| collection_of(*uid)).max().unwrap_or(0);
    let mut keys = kv::recovery::Found::read(&*disk).await?;
    uid_max = uid_max.max(keys.uid_max());
    // Records of collections are only counted now: they are read again when it is their turn.
    let mut tallies: HashMap<u64, Tally> = HashMap::default();
    let ledgers = Ledgers::read(&*disk, Path::new("log")).await.map_err(text("reading the log"))?;
    let mut scanned = log::scan_with(&*disk, Path::new("log"), &ledgers, &*core.ctx, &mut |key, bytes| {
        if key.collection == archive::CATALOG_UID {
            return;
        }
        uid_max = uid_max.max(collection_of(key.collection));
        if keys.take(key.collection, key.seq, bytes) {
            return;
        }
        match manifests.get(&key.collection) {
            Some(Ok(manifest)) if key.seq > manifest.seq => {
                let tally = tallies.entry(key.collection).or_default();
                tally.records += 1;
                tally.newest = tally.newest.max(key.seq);
                tally.bytes += bytes.len() as u64;
            }
            // Covered by an image, dropped, or of a collection that does not load anyway.
            _ => {}
        }
    })
    .await
    .map_err(text("reading the log"))?;
    if scanned.torn_bytes > 0 {
        tracing::info!(
            bytes = scanned.torn_bytes,
            "cut the torn tail of the log: no acknowledged write was in it"
        );
    }
    // A record whose body is damaged leaves a hole, also where no later record shows it.
    let mut lost: HashMap<u64, u64> = HashMap::default();
    for key in &scanned.lost {
        let first = lost.entry(key.collection).or_insert(key.seq);
        *first = key.seq.min(*first);
        keys.note_lost(key.collection, key.seq);
    }
    core.node().raise_uid(uid_max.saturating_add(1));

    // Damage marks become durable before the ledgers no longer show the loss.
    for entry in entries.iter_mut().filter(|entry| !entry.is_accepted) {
        let uid = entry.uid;
        let newest = tallies.get(&uid).map_or(0, |tally| tally.newest);
        let have = match manifests.get(&uid) {
            Some(Ok(manifest)) => newest.max(manifest.seq),
            // Its manifest cannot be read, so what its images hold is unknown. It is judged once the manifest has been repaired.
            _ => u64::MAX,
        };
        let lacking = |chain: &&mut ChainFound| chain.may_lack(uid, have, |owners| owners.of_collection(uid));
        if let Some(chain) = scanned.chains.iter_mut().find(lacking) {
            let noted = core.ctx.note_damage(&*disk, &collection_dir(uid), chain).await;
            let why = noted.map_err(text("marking a store as damaged"))?;
            entry.damage.get_or_insert(why);
        }
    }
    keys.judge(&core.keys, &*disk, &mut scanned.chains).await.map_err(text("marking a store as damaged"))?;
    let uids: HashSet<u64> = entries.iter().map(|entry| entry.uid).collect();
    let undecided = |uid: u64| match uids.contains(&uid) {
        true => !matches!(manifests.get(&uid), Some(Ok(_))),
        false => keys.is_undecided(),
    };
    let settled = scanned.segments.settle(&*disk, ledgers, scanned.chains, &undecided, &*core.ctx).await;
    settled.map_err(text("updating the ledgers of the log"))?;

    let generation = scanned.generation_max + 1;
    // Of starts that came to nothing, and allocated ahead by runs that wrote no more. Sequence numbers begin at 1.
    if let Err(error) = scanned.segments.trim(&*disk, &|_| Some(0)).await {
        tracing::warn!(%error, "old log segments without records are not removed");
    }
    if let Ok(space) = disk.space().await {
        core.node().reserve.fit(space);
    }
    core.node().reserve.find(&*disk).await;
    // Before the logs, which wait with new data for it; on a full disk they may have it.
    match core.node().reserve.fill(&*disk).await {
        Err(error) if !is_full(&error) => return Err(format!("making the reserve of the disk: {error}")),
        // Writes are refused until there is room.
        _ => {}
    }
    let mut old = Some(scanned.segments);
    for to in 0..core.env().cores() {
        // Old segments are trimmed by core 0, which can ask every owner how far it is covered.
        let old = if to == 0 { old.take() } else { None };
        if to == 0 {
            core.ctx.create_log(generation, old.unwrap_or_default()).await?;
        } else {
            call_own(core, to, move |there| async move {
                there.ctx.create_log(generation, OldSegments::default()).await
            })
            .await?;
        }
    }

    progress.enter(Stage::Keys);
    kv::recovery::open(&core.keys, keys, uids).await?;
    serve_keys(core).await;

    if aliases_gone && let Err(error) = core.store_aliases(&aliases).await {
        // The next change of aliases or new collection tries again.
        tracing::warn!(target: "nigh", %error, "the file of aliases still has those that were removed");
    }
    progress.enter(Stage::Collections);
    lanes::open(core, units(entries, manifests, &lost, &tallies), tallies).await?;
    core.ctx.old_segments().end_reading();
    begin_archive(core).await?;
    progress.finish(core.env().now_ns());
    Ok(())
}

/// Notes what the archive has to know of the beginning of this run, or forgets what an archive has left that there is no more.
async fn begin_archive(core: &Rc<Core>) -> Result<(), String> {
    if core.ctx.is_archived() {
        let indexes = core.keys.key_index_definitions();
        let indexes = (!indexes.is_empty())
            .then(|| String::from_utf8_lossy(&index_file::encode(&indexes)).into_owned());
        let mut seqs = HashMap::default();
        for to in 0..core.env().cores() {
            let own = call_own(core, to, |there| async move {
                let seq = |owned: &Rc<Owned>| (owned.handle.uid, owned.writer.borrow().seq());
                there.collections.all_owned().iter().map(seq).collect::<Vec<_>>()
            });
            seqs.extend(own.await);
        }
        let (keys, are_new) = (core.keys.archive_entry(), core.keys.are_new());
        return core.ctx.begin_catalog_log(keys, are_new, indexes, &seqs).await;
    }
    let (Some(disk), dir) = (core.env().disk(), Path::new(archive::DIR)) else { return Ok(()) };
    if disk.list(dir).await.is_ok_and(|names| names.is_empty()) {
        return Ok(());
    }
    tracing::warn!(
        "the log is not archived any more: what waited for that is removed, and moments from here on cannot be restored"
    );
    let removed = async {
        disk.remove_dir(&twin::copy_of(dir)).await?;
        disk.remove_dir(dir).await
    };
    if let Err(error) = removed.await {
        tracing::warn!(%error, "segments that waited for the archive stay until the next start");
    }
    Ok(())
}

/// The keys are loaded, or are damaged: they are served from here on, and every core starts its tasks.
async fn serve_keys(core: &Rc<Core>) {
    core.keys.serve();
    for to in 0..core.env().cores() {
        call_own(core, to, |there| async move {
            there.measure_memory();
            // The memory that reading logs and images has needed is free now; collections that are opened next need its room.
            there.ctx.give_back_memory(0);
            there.start_tasks();
        })
        .await;
    }
}

/// What collections are known by until they are open. Indexes of tokens have no name of their own.
fn opening(entries: &[CatalogEntry]) -> HashMap<String, Arc<OpeningCollection>> {
    let known = |entry: &CatalogEntry| {
        let config = Arc::new(entry.config.clone());
        (entry.name.clone(), Arc::new(OpeningCollection { name: entry.name.clone(), config }))
    };
    entries.iter().filter(|entry| !is_of_tokens(entry.uid)).map(known).collect()
}

/// What there is to open, in the order of the catalog; the index of the tokens of a collection together with it. `lost` has the first damaged log
/// record of each collection that has one.
fn units(
    entries: Vec<CatalogEntry>,
    mut manifests: HashMap<u64, Result<Manifest, CheckpointError>>,
    lost: &HashMap<u64, u64>,
    tallies: &HashMap<u64, Tally>,
) -> Vec<Unit> {
    let mut to_load = |CatalogEntry { uid, name, config, damage, has_strays, .. }: CatalogEntry| {
        let manifest = match (damage, manifests.remove(&uid)) {
            (Some(damage), _) => Err(damage),
            (None, manifest) => manifest.expect("every whole entry has one").map_err(|e| e.to_string()),
        };
        let manifest = manifest.and_then(|manifest| match lost.get(&uid) {
            Some(seq) if *seq > manifest.seq => Err(format!("log record {seq} is damaged")),
            _ => Ok(manifest),
        });
        let records_in_log = tallies.get(&uid).map_or(0, |tally| tally.records);
        ToLoad { uid, name, config, manifest, has_strays, records_in_log }
    };
    let (of_tokens, entries): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| is_of_tokens(entry.uid));
    let mut of_tokens: HashMap<u64, ToLoad> =
        of_tokens.into_iter().map(|entry| (collection_of(entry.uid), to_load(entry))).collect();
    let unit = |entry: CatalogEntry| {
        let is_accepted = entry.is_accepted;
        let collection = to_load(entry);
        let wants_tokens = collection.config.family() == Family::MultiVector;
        Unit { tokens: of_tokens.remove(&collection.uid), collection, wants_tokens, is_accepted }
    };
    entries.into_iter().map(unit).collect()
}

/// Collections that are cold, by name. What an eviction or a promotion has left of their files is removed.
async fn cold_collections(
    disk: &dyn Disk,
    entries: Vec<CatalogEntry>,
) -> HashMap<String, Arc<ColdCollection>> {
    let mut cold = HashMap::default();
    for CatalogEntry { uid, name, config, cold: stub, .. } in entries {
        let Some(stub) = stub else { continue };
        if let Err(error) = cold_stub::remove_data(disk, &collection_dir(uid)).await {
            tracing::warn!(collection = name, %error, "files of a cold collection remain; its promotion or the next start removes them");
        }
        let (config, is_settled) = (Arc::new(config), AtomicBool::new(true));
        cold.insert(name.clone(), Arc::new(ColdCollection { uid, name, config, stub, is_settled }));
    }
    cold
}

/// Removes indexes of tokens whose collections are gone: they were dropped or evicted, or their creation did not come to its end.
async fn remove_orphans(disk: &dyn Disk, entries: &mut Vec<CatalogEntry>) -> Result<(), String> {
    let uids: HashSet<u64> = entries.iter().map(|entry| entry.uid).collect();
    let is_orphan = |uid: u64| is_of_tokens(uid) && !uids.contains(&collection_of(uid));
    for entry in entries.iter().filter(|entry| is_orphan(entry.uid)) {
        let text = |error| format!("removing an index of tokens: {error}");
        twin::remove_dir(disk, &collection_dir(entry.uid)).await.map_err(text)?;
    }
    entries.retain(|entry| !is_orphan(entry.uid));
    Ok(())
}

/// Has indexes of tokens go by what the files of their collections say of the values that may change: a change is written there alone, so that
/// no crash leaves a part of it.
fn configure_tokens(entries: &mut [CatalogEntry]) {
    let whole = entries.iter().filter(|entry| entry.damage.is_none());
    let configured: HashMap<u64, DenseConfig> =
        whole.filter_map(|entry| Some((entry.uid, entry.config.multi_vector()?.index()))).collect();
    for entry in entries.iter_mut().filter(|entry| is_of_tokens(entry.uid)) {
        if let (CollectionConfig::Dense(tokens), Some(of_collection)) =
            (&mut entry.config, configured.get(&collection_of(entry.uid)))
        {
            *tokens = with_live_values(tokens, of_collection);
        }
    }
}

/// A collection as the catalog of the disk has it.
struct CatalogEntry {
    uid: u64,
    name: String,
    config: CollectionConfig,
    /// Why it cannot be loaded. It keeps its place all the same, so that what the log holds of it is not taken for that of
    /// a dropped collection.
    damage: Option<String>,
    /// An operator accepts its damage.
    is_accepted: bool,
    /// If it comes from a backup, the uids of the collections that it replaces.
    replaces: Option<Vec<u64>>,
    /// If it is cold, where it is.
    cold: Option<ColdStub>,
    /// Its manifest, unless it is damaged or cold.
    manifest: Option<Result<Manifest, CheckpointError>>,
    /// Its directory may have files that its manifest does not name.
    has_strays: bool,
}

impl CatalogEntry {
    /// Whether it stands for a directory whose collection is not known by name.
    fn is_nameless(&self) -> bool {
        self.name.starts_with(NAMELESS)
    }

    /// An entry that serves nothing. Its name is made from its uid, which no collection of a client can have, and it can be dropped by it.
    fn damaged(uid: u64, why: String) -> CatalogEntry {
        let config = DenseConfig::new(1, Metric::L2).into();
        CatalogEntry {
            uid,
            name: format!("{NAMELESS}{uid:016x}"),
            config,
            damage: Some(why),
            is_accepted: false,
            replaces: None,
            cold: None,
            manifest: None,
            has_strays: true,
        }
    }
}

/// Makes the directory one of today's format, before anything is written to it that earlier builds do not know: they would trim logs and
/// drop collections without a word to ledgers and copies.
async fn raise_format(core: &Core, disk: &dyn Disk) -> Result<(), String> {
    let (path, bytes) = (Path::new(FORMAT_FILE), format_text());
    let decode = |found: &[u8]| if found == bytes.as_bytes() { Ok(()) } else { Err("it is another one") };
    // In a directory of this format, reading restores whichever of the two files is missing. In one of an older format it finds neither.
    if matches!(twin::read(disk, path, decode, |_| false).await, Ok(Some(()))) {
        return Ok(());
    }
    match core.ctx.with_reserve(async || twin::replace(disk, path, bytes.as_bytes()).await).await {
        Err(error) if is_full(&error) => {
            tracing::warn!(
                "the disk is too full to raise the format of the data directory: until there is room, do not open it with an earlier build"
            );
            Ok(())
        }
        raised => raised.map_err(|error| format!("{FORMAT_FILE}: {error}")),
    }
}

/// Reads what is under `collections/`, and what copies say was there. What is there and cannot be read is left alone and reported. Collections that a
/// restore has replaced are removed; returns the uids of those that were restored as well, which still have the mark that says so.
async fn read_catalog(disk: &dyn Disk) -> Result<(Vec<CatalogEntry>, Vec<u64>), String> {
    let text = |what: &'static str| move |e: std::io::Error| format!("{what}: {e}");
    // The newest first: of two with one name the older was never acknowledged, or its drop was.
    let mut names = disk.list(Path::new("collections")).await.map_err(text("reading the catalog"))?;
    let copies = disk.list(&twin::copy_of(Path::new("collections"))).await;
    names.extend(copies.map_err(text("reading the catalog"))?);
    names.sort_unstable_by(|a, b| b.cmp(a));
    names.dedup();
    let some = names.chunks(COLLECTIONS_AT_ONCE);
    let read = some_at_once(some, CALLS_AT_ONCE, |names| read_entries(disk, names)).await;
    let mut found: Vec<CatalogEntry> = Vec::new();
    for entry in read.into_iter().flatten() {
        found.extend(entry?);
    }
    // What serves is not to be lost for one that does not.
    let serving = found.iter().filter(|entry| entry.damage.is_none());
    let replaced: HashSet<u64> =
        serving.clone().flat_map(|entry| entry.replaces.iter().flatten().copied()).collect();
    let restored = serving.filter(|entry| entry.replaces.is_some()).map(|entry| entry.uid).collect();
    let mut known: HashSet<String> = HashSet::default();
    let mut entries: Vec<CatalogEntry> = Vec::new();
    for mut entry in found {
        if replaced.contains(&entry.uid) {
            let removed = twin::remove_dir(disk, &collection_dir(entry.uid)).await;
            removed.map_err(text("removing a replaced collection"))?;
            continue;
        }
        if !entry.is_nameless() && known.contains(&entry.name) {
            entry = CatalogEntry::damaged(
                entry.uid,
                format!("a newer collection has its name, {:?}", entry.name),
            );
        }
        if let Some(why) = &entry.damage {
            let file = collection_dir(entry.uid).join(collection_file::FILE);
            tracing::error!(path = %file.display(), why, "a collection cannot be read; it is left alone");
        }
        known.insert(entry.name.clone());
        entries.push(entry);
    }
    Ok((entries, restored))
}

/// Reads what some names under `collections/` stand for.
async fn read_entries(disk: &dyn Disk, names: &[PathBuf]) -> Vec<Result<Option<CatalogEntry>, String>> {
    let is_small = |name: &Path| {
        !["img", "vec", "tmp"].iter().any(|kind| name.extension().is_some_and(|found| found == *kind))
    };
    let dirs = names.iter().map(|name| Path::new("collections").join(name));
    let dirs = dirs.flat_map(|dir| [twin::copy_of(&dir), dir]).collect();
    let disk = SmallFiles::read_from(disk, dirs, SMALL_BYTES, is_small).await;
    let mut entries = Vec::with_capacity(names.len());
    for name in names {
        entries.push(read_entry(&disk, name).await);
    }
    entries
}

/// Reads what a name under `collections/` stands for; `None` where that is no collection.
async fn read_entry(disk: &dyn Disk, name: &Path) -> Result<Option<CatalogEntry>, String> {
    /// What a create that did not finish leaves.
    const UNFINISHED: [&str; 5] =
        ["manifest", "manifest.tmp", "collection.json", "collection.json.tmp", "restored.json.tmp"];
    let text = |what: &'static str| move |e: std::io::Error| format!("{what}: {e}");
    let dir = Path::new("collections").join(name);
    let uid = name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok());
    let Some(uid) = uid.filter(|uid| collection_dir(*uid) == dir) else {
        tracing::error!(path = %dir.display(), "this is no collection's directory; it is left alone");
        return Ok(None);
    };
    let file = dir.join(collection_file::FILE);
    let decode = |bytes: &[u8]| match collection_file::decode(bytes)? {
        (found, ..) if found != uid => Err(Unreadable::Damaged(format!("it is a copy of {found:016x}"))),
        (_, name, config) => Ok((name, config)),
    };
    let is_newer = |why: &Unreadable| matches!(why, Unreadable::Newer { .. });
    Ok(Some(match twin::read(disk, &file, decode, is_newer).await {
        Ok(Some((name, config))) => {
            let replaces = match restored_mark::read(disk, &dir).await {
                Ok(replaces) => replaces,
                Err(why) => {
                    tracing::error!(path = %dir.display(), why, "the mark of a restored collection cannot be read; it is left alone");
                    None
                }
            };
            match cold_stub::read(disk, &dir).await {
                Ok(None) => {}
                // Nothing of it is here, so nothing of it can be damaged.
                Ok(cold) => {
                    return Ok(Some(CatalogEntry {
                        uid,
                        name,
                        config,
                        damage: None,
                        is_accepted: false,
                        replaces,
                        cold,
                        manifest: None,
                        has_strays: false,
                    }));
                }
                Err(TwinError::Bad(why @ Unreadable::Newer { .. })) => {
                    return Err(format!("{}: {why}", dir.join(cold_stub::FILE).display()));
                }
                Err(why) => {
                    let why = format!("{}: {why}", cold_stub::FILE);
                    return Ok(Some(CatalogEntry { name, config, ..CatalogEntry::damaged(uid, why) }));
                }
            }
            let marks = damage_mark::read(disk, &dir).await;
            let (damage, is_accepted, cold) = (marks.damage, marks.is_accepted, None);
            let manifest = match damage {
                None => Some(load_manifest(disk, uid).await),
                Some(_) => None,
            };
            let has_strays = match (&manifest, disk.list(&dir).await) {
                (Some(Ok(manifest)), Ok(names)) => names.iter().any(|name| is_stray(name, manifest)),
                _ => true,
            };
            CatalogEntry { uid, name, config, damage, is_accepted, replaces, cold, manifest, has_strays }
        }
        Err(TwinError::Bad(why @ Unreadable::Newer { .. })) => {
            return Err(format!("{}: {why}", file.display()));
        }
        Ok(None) => {
            let names = disk.list(&dir).await.map_err(text("reading a collection's directory"))?;
            let of_a_create = |name: &PathBuf| {
                UNFINISHED.iter().any(|known| name == Path::new(known))
                    || name.to_str().is_some_and(VectorsFile::is_name)
            };
            let is_restore = names.iter().any(|name| name == Path::new(restored_mark::FILE));
            if is_restore || names.iter().all(of_a_create) {
                // Nothing of it was acknowledged.
                twin::remove_dir(disk, &dir).await.map_err(text("removing an unfinished collection"))?;
                return Ok(None);
            }
            CatalogEntry::damaged(uid, format!("{} is missing", collection_file::FILE))
        }
        Err(why) => CatalogEntry::damaged(uid, why.to_string()),
    }))
}

/// Reads the aliases. A file that cannot be read, nor its copy, stops the start: without it names would lead nowhere, and the next change would
/// replace what may yet be rescued.
async fn read_aliases(disk: &dyn Disk) -> Result<BTreeMap<String, String>, String> {
    let failed = |why: String| {
        format!(
            "{}: {why}; repair it, or move it and its copy away to start without aliases",
            alias_file::FILE
        )
    };
    let is_newer = |why: &Unreadable| matches!(why, Unreadable::Newer { .. });
    let found = twin::read(disk, Path::new(alias_file::FILE), alias_file::decode, is_newer).await;
    Ok(found.map_err(|why| failed(why.to_string()))?.unwrap_or_default())
}

/// The aliases that stand for collections. Others are removed, from the file as well: it would name a collection made later under the
/// name of one that was dropped.
fn live_aliases(
    mut aliases: BTreeMap<String, String>,
    entries: &[CatalogEntry],
    cold: &HashMap<String, Arc<ColdCollection>>,
) -> BTreeMap<String, String> {
    let names = entries.iter().map(|entry| entry.name.as_str());
    let names: HashSet<&str> = names.chain(cold.keys().map(String::as_str)).collect();
    // A collection whose file is damaged has lost its name until the file is repaired; it may be what an alias stands for.
    let all_named = entries.iter().all(|entry| !entry.is_nameless());
    aliases.retain(|alias, target| {
        let why = if names.contains(alias.as_str()) {
            // A change of aliases that failed after its file was in place, and a collection made since under the name.
            "it has the name of a collection"
        } else if !within_tenant(alias, target) {
            "it stands for a collection of another tenant"
        } else if all_named && !names.contains(target.as_str()) {
            // The server ended between dropping the collection and its aliases.
            "the collection it stands for was dropped"
        } else {
            return true;
        };
        tracing::warn!(target: "nigh", %alias, %target, why, "an alias is removed");
        false
    });
    aliases
}

/// A collection's manifest, which its create has written.
async fn load_manifest(disk: &dyn Disk, uid: u64) -> Result<Manifest, CheckpointError> {
    let dir = collection_dir(uid);
    let manifest = Manifest::load_twin(disk, &dir, uid).await?;
    if manifest == Manifest::default() {
        let io = |source| CheckpointError::Io { path: dir.clone(), source };
        let names = disk.list(&dir).await.map_err(io)?;
        let is = |name: &PathBuf, what: &str| name.to_str().is_some_and(|name| name.ends_with(what));
        if names.iter().any(|name| is(name, ".img")) && !names.iter().any(|name| is(name, "manifest")) {
            return Err(CheckpointError::Missing { path: dir.join("manifest") });
        }
    }
    Ok(manifest)
}
