//! Opening the stores of keys: manifest, images, log.
//!
//! Where the number of shards has changed, or keys hash otherwise than when they were written, each effect goes to the shard in which its
//! key is looked for now, everything is written to new images, and then the manifest is replaced.
//!
//! Nothing that the budget holds is lost on the way: what has expired by the clock is not applied, what the log supersedes is not taken from
//! images ([`super::outcome`]), and what had to go for a moment all the same is read a second time.
//!
//! If an image, the manifest or a part of the log is damaged or missing, all keys count as damaged, because it is not known which of them are
//! affected; collections are served. An operator may accept the damage ([`crate::damage_mark`]): then what can be read is served.

use super::book::Book;
use super::manifest::{self, DIR, FILE, Image, Manifest, RESTORE_DIR, kept_name};
use super::outcome::{Outcome, Records};
use super::record;
use super::shard::{Refused, Shard};
use super::shared::{Opened, Withheld, count};
use super::store::new_shards;
use crate::checkpoint::{CheckpointError, read_image};
use crate::damage_mark;
use crate::disk::Disk;
use crate::env::call_own;
use crate::error::OpError;
use crate::journal::Journal;
use crate::kv::store::Keys;
use crate::log::ChainFound;
use crate::sealed_json::Unreadable;
use crate::slice::Slice;
use crate::twin::{self, TwinError};
use ahash::{HashMap, HashSet};
use nigh_engine::kv::{Effect, KeyHasher, View};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that are sent to another core at once.
const PARCEL_BYTES: usize = 1 << 20;
/// Keys displaced at a start that are logged one by one.
const DISPLACED_BYTES_MAX: usize = 1 << 20;

/// What a data directory has of keys.
#[derive(Default)]
pub(crate) struct Found {
    manifest: Option<Manifest>,
    covered: Vec<u64>,
    records: HashMap<usize, Records>,
    /// Damaged log records.
    lost: u64,
    /// Why the keys are damaged and not served; `None` while they are whole.
    damage: Option<String>,
    /// An operator accepts the damage.
    is_accepted: bool,
}

impl Found {
    /// Reads the manifest and the marks beside it.
    ///
    /// # Errors
    /// A sentence when the manifest is of a newer format, or the directory cannot be used.
    pub(crate) async fn read(disk: &dyn Disk) -> Result<Found, String> {
        let io = |error: std::io::Error| format!("{DIR}: {error}");
        disk.create_dir(Path::new(DIR)).await.map_err(io)?;
        // What a kill has left of a restore. It is in nobody's way but for the room.
        if let Err(error) = disk.remove_dir(Path::new(RESTORE_DIR)).await {
            tracing::warn!(%error, "the files of a restore of keys that was cut short stay");
        }
        let marks = damage_mark::read(disk, Path::new(DIR)).await;
        let mut found = Found { damage: marks.damage, is_accepted: marks.is_accepted, ..Found::default() };
        let path = Path::new(DIR).join(FILE);
        let is_newer = |why: &Unreadable| matches!(why, Unreadable::Newer { .. });
        let failed = match twin::read(disk, &path, manifest::decode, is_newer).await {
            Ok(Some(manifest)) => {
                found.covered = manifest.covered();
                found.manifest = Some(manifest);
                return Ok(found);
            }
            Ok(None) => {
                let names = disk.list(Path::new(DIR)).await.map_err(io)?;
                if !names.iter().any(|name| is_image(name)) {
                    return Ok(found);
                }
                "it is missing, and there are images that it should name".to_owned()
            }
            Err(TwinError::Bad(why @ Unreadable::Newer { .. })) => {
                return Err(format!("{}: {why}", path.display()));
            }
            Err(why) => why.to_string(),
        };
        // Without a manifest no image belongs to anything, and the start would remove them all.
        if !found.is_accepted {
            found.damage.get_or_insert(format!("{}: {failed}", path.display()));
        }
        Ok(found)
    }

    /// Judges whether the log has all records above the images that it should have. If not, the keys are marked as damaged in their directory.
    ///
    /// # Errors
    /// The disk refused.
    pub(crate) async fn judge(
        &mut self,
        kv: &Keys,
        disk: &dyn Disk,
        chains: &mut [ChainFound],
    ) -> std::io::Result<()> {
        if self.is_accepted {
            return Ok(());
        }
        if self.damage.is_some() {
            // A loss that the ledger can name is found again once the keys are repaired; one of unknown extent must be marked now.
            if let Some(chain) = chains.iter_mut().find(|chain| chain.is_end_unknown()) {
                kv.ctx.note_damage(disk, Path::new(DIR), chain).await?;
            }
            return Ok(());
        }
        let Some(manifest) = &self.manifest else { return Ok(()) };
        for shard in 0..manifest.shards {
            let mut newest = self.covered[shard];
            if let Some(records) = self.records.get_mut(&shard) {
                records.sort_by_key(|(seq, _)| *seq);
                for (seq, _) in records.iter() {
                    if *seq > newest + 1 {
                        self.damage = Some(format!("the log lacks record {} of shard {shard}", newest + 1));
                        return Ok(());
                    }
                    newest = newest.max(*seq);
                }
            }
            let uid = manifest.uid_base + shard as u64;
            let lacking =
                |chain: &&mut ChainFound| chain.may_lack(uid, newest, |owners| owners.of_keys(shard));
            if let Some(chain) = chains.iter_mut().find(lacking) {
                self.damage = Some(kv.ctx.note_damage(disk, Path::new(DIR), chain).await?);
                return Ok(());
            }
        }
        if self.lost > 0 {
            self.damage = Some(format!("{} log records of keys are damaged", self.lost));
        }
        Ok(())
    }

    /// Whether the keys are damaged, so that it cannot be judged yet what their log lacks.
    pub(crate) fn is_undecided(&self) -> bool {
        self.damage.is_some()
    }

    /// Greatest uid of a shard.
    pub(crate) fn uid_max(&self) -> u64 {
        self.manifest.as_ref().map_or(0, |manifest| manifest.uid_base + manifest.shards as u64)
    }

    /// Takes a record of the log if it is one of keys; whether it is.
    pub(crate) fn take(&mut self, uid: u64, seq: u64, body: &[u8]) -> bool {
        let Some(shard) = self.manifest.as_ref().and_then(|manifest| manifest.shard_of(uid)) else {
            return false;
        };
        // While the keys are damaged they are not opened, so their records need not be kept in memory.
        if seq > self.covered[shard] && self.damage.is_none() {
            self.records.entry(shard).or_default().push((seq, body.to_vec()));
        }
        true
    }

    /// A damaged record of the log.
    pub(crate) fn note_lost(&mut self, uid: u64, seq: u64) {
        if let Some(shard) = self.manifest.as_ref().and_then(|manifest| manifest.shard_of(uid))
            && seq > self.covered[shard]
        {
            self.lost += 1;
            tracing::error!(shard, seq, "a log record of keys is damaged");
        }
    }
}

impl Withheld {
    /// Withholds the shards of a manifest.
    fn of(manifest: &Manifest) -> Withheld {
        let uids = manifest.uid_base..manifest.uid_base + manifest.shards as u64;
        Withheld { uids, collections: HashSet::default() }
    }
}

/// Whether an image that cannot be read is damaged or gone: a disk that does not answer has lost nothing yet.
fn is_damage(error: &CheckpointError) -> bool {
    match error {
        CheckpointError::Corrupt { .. } => true,
        CheckpointError::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

fn is_image(name: &Path) -> bool {
    name.extension().is_some_and(|extension| extension == "img")
}

/// A seed that nobody can guess: the standard library draws it from the system.
fn random_seed(kv: &Keys) -> u64 {
    kv.ctx.options().keys.seed.unwrap_or_else(|| RandomState::new().hash_one(kv.ctx.unix_ms()))
}

/// For each shard of `manifest`, the first image that counts for it.
pub(super) fn first_images(manifest: &Manifest) -> Vec<usize> {
    let mut first = vec![0; manifest.shards];
    for (index, image) in manifest.images.iter().enumerate().filter(|(_, image)| image.is_base) {
        for (shard, _) in &image.shards {
            if let Some(first) = first.get_mut(*shard) {
                *first = index;
            }
        }
    }
    first
}

/// The shard and the effects of a block.
pub(super) fn block_parts(block: &[u8]) -> Result<(usize, &[u8]), String> {
    let (shard, effects) = block.split_first_chunk().ok_or("a block without the number of its shard")?;
    Ok((u32::from_le_bytes(*shard) as usize, effects))
}

/// Opens the stores of all cores; runs on core 0, logs are there. `collections` are the uids of those that the directory has.
pub(crate) async fn open(kv: &Rc<Keys>, found: Found, collections: HashSet<u64>) -> Result<(), String> {
    let shards = kv.ctx.options().keys.shards(kv.ctx.options().shards);
    let Found { manifest, records, lost, damage, is_accepted, .. } = found;
    count(&kv.counters().corruption_errors, lost);
    let shared = &kv.shared;
    shared.is_accepted.store(is_accepted, Relaxed);
    if let Some(why) = damage {
        // The log records of the shards stay, so that a repaired start can apply them.
        let withheld = match &manifest {
            Some(old) => Withheld::of(old),
            // The archive has its own records under the number 0.
            None => Withheld { uids: 1..kv.ctx.node().uid_end(), collections },
        };
        assert!(shared.withheld.set(withheld).is_ok(), "a node opens its keys once");
        make(kv, &Manifest::new(random_seed(kv), shards, kv.ctx.node().reserve_uids(shards as u64))).await?;
        kv.damage_keys(why);
        return Ok(());
    }
    let Some(old) = manifest else {
        shared.is_new.store(true, Relaxed);
        let uid_base = kv.ctx.node().reserve_uids(shards as u64);
        let manifest = Manifest::new(random_seed(kv), shards, uid_base);
        make(kv, &manifest).await?;
        if let Some(disk) = kv.ctx.env().disk() {
            kv.store_keys_manifest(manifest).await.map_err(|error| error.to_string())?;
            kv.open_key_indexes().await?;
            if is_accepted && kv.damage().is_none() {
                damage_mark::clear(&*disk, Path::new(DIR)).await;
            }
        }
        return Ok(());
    };
    let last_file =
        old.images.iter().filter_map(|image| u64::from_str_radix(image.name.split('.').next()?, 16).ok());
    kv.shared.last_file.store(last_file.max().unwrap_or(0), Relaxed);
    let replayed: usize = records.values().map(Vec::len).sum();
    if old.fits(shards) {
        make(kv, &old).await?;
        *kv.manifest.borrow_mut() = Some(old.clone());
        load_all(kv, &old, records).await?;
    } else {
        tracing::info!(before = old.shards, now = shards, "keys are spread over shards anew");
        shared.is_spread.store(true, Relaxed);
        if let Err(why) = spread(kv, &old, records).await {
            // Images that no manifest of the disk names: every attempt would leave as many.
            let before = old.shards;
            *kv.manifest.borrow_mut() = Some(old);
            remove_strays(kv).await;
            return Err(format!(
                "keys cannot be spread over {shards} shards ({before} before, as many as -shards and the memory limit were good for): {why}"
            ));
        }
    }
    if kv.damage().is_some() {
        return Ok(());
    }
    remove_strays(kv).await;
    kv.open_key_indexes().await?;
    if kv.damage().is_some() {
        return Ok(());
    }
    if is_accepted {
        tracing::warn!("the damage of the keys was accepted: what can be read of them is served");
        damage_mark::clear(&*kv.ctx.env().disk().expect("there was a manifest"), Path::new(DIR)).await;
    }
    tracing::info!(replayed, "keys are open");
    Ok(())
}

/// Makes empty stores on every core and publishes them.
async fn make(kv: &Rc<Keys>, manifest: &Manifest) -> Result<(), String> {
    let (seed, uid_base) = (manifest.seed, manifest.uid_base);
    let mut views: Vec<(usize, View)> = Vec::new();
    for to in 0..kv.ctx.env().cores() {
        let made = call_own(kv, to, move |there| async move {
            let shards = new_shards(&there, &KeyHasher::new(seed), uid_base)?;
            let views: Vec<_> = shards.iter().map(|shard| (shard.number, shard.writer.view())).collect();
            *there.owned.borrow_mut() = shards;
            Ok::<_, String>(views)
        });
        views.extend(made.await?);
    }
    views.sort_by_key(|(number, _)| *number);
    let covered = manifest.covered().into_iter().map(AtomicU64::new);
    let opened = Opened {
        hasher: KeyHasher::new(seed),
        covered: (0..views.len()).map(|_| AtomicU64::new(0)).collect(),
        views: views.into_iter().map(|(_, view)| view).collect(),
        uid_base,
    };
    for (to, from) in opened.covered.iter().zip(covered) {
        to.store(from.into_inner(), Relaxed);
    }
    assert!(kv.shared.opened.set(opened).is_ok(), "a node opens its keys once");
    Ok(())
}

/// Each core reads the images that have shards of its own, and replays the log above them.
async fn load_all(
    kv: &Rc<Keys>,
    manifest: &Manifest,
    mut records: HashMap<usize, Records>,
) -> Result<(), String> {
    let manifest = Arc::new(manifest.clone());
    for to in 0..kv.ctx.env().cores() {
        let own = (0..manifest.shards).filter(|&shard| kv.ctx.node().keys.core_of(shard) == to);
        let own: HashMap<usize, Records> =
            own.filter_map(|shard| Some((shard, records.remove(&shard)?))).collect();
        let manifest = manifest.clone();
        call_own(kv, to, move |there| async move { there.load_keys(&manifest, own).await }).await?;
        if kv.damage().is_some() {
            break;
        }
    }
    Ok(())
}

impl Keys {
    pub(super) async fn load_keys(
        self: &Rc<Self>,
        manifest: &Manifest,
        mut records: HashMap<usize, Records>,
    ) -> Result<(), String> {
        let keys = self;
        let disk = self.ctx.env().disk().expect("images lie on a disk");
        let (index, cores) = (keys.index, keys.shared.cores);
        let is_own = |shard: usize| shard % cores == index;
        let first = first_images(manifest);
        records.values_mut().for_each(|records| records.sort_by_key(|(seq, _)| *seq));
        let outcomes = outcomes_of(&records)?;
        let nothing = Outcome::default();
        // One moment for all: what has expired by now is left out, and what is applied stays alive until the end.
        let now_ms = self.ctx.env().unix_ms();
        keys.owned.borrow_mut().iter_mut().for_each(Shard::begin_restore);
        let (mut left_out, mut wants_base) = (0, false);
        loop {
            for (number, image) in manifest.images.iter().enumerate() {
                let counts =
                    |shard: usize| is_own(shard) && first.get(shard).is_some_and(|&first| first <= number);
                if !image.shards.iter().any(|(shard, _)| counts(*shard)) {
                    continue;
                }
                let mut read_bytes = 0;
                let mut take = |block: &[u8]| {
                    read_bytes += block.len() as u64;
                    let (shard, effects) = block_parts(block)?;
                    if !counts(shard) {
                        return Ok(());
                    }
                    let outcome = outcomes.get(&shard).unwrap_or(&nothing);
                    let shard = &mut keys.owned.borrow_mut()[shard / cores];
                    for effect in record::Effects::of(effects) {
                        let effect = effect.map_err(|error| error.to_string())?;
                        if let Some(effect) = outcome.of_image(effect, now_ms) {
                            left_out += u64::from(shard.restore(&effect, now_ms)?);
                        }
                    }
                    Ok(())
                };
                match read_image(&*disk, Path::new(DIR), &image.name, manifest.uid_base, &mut take).await {
                    Ok(_) => {}
                    Err(error @ CheckpointError::Newer { .. }) => return Err(error.to_string()),
                    Err(error) => {
                        wants_base = true;
                        self.note_damaged_image(image, read_bytes, &error).await;
                        if !keys.shared.is_accepted.load(Relaxed) || !is_damage(&error) {
                            self.damage_keys(error.to_string());
                            self.abandon_keys();
                            return Ok(());
                        }
                    }
                }
            }
            let mut wants_second_look = false;
            for shard in keys.owned.borrow_mut().iter_mut() {
                if let (Some(log), Some(outcome)) = (records.get(&shard.number), outcomes.get(&shard.number))
                {
                    // A hole is a damaged record, which has been reported: the others are worth what they say.
                    for (index, (_, body)) in log.iter().enumerate() {
                        for (part, effect) in record::Effects::of(body).enumerate() {
                            let effect = effect.map_err(|error| error.to_string())?;
                            if let Some(effect) = outcome.of_log((index, part), &effect, now_ms) {
                                left_out += u64::from(shard.restore(&effect, now_ms)?);
                            }
                        }
                    }
                }
                wants_second_look |= shard.wants_second_look();
            }
            if !wants_second_look {
                break;
            }
            self.ctx.env().yield_now().await;
        }
        let covered = manifest.covered();
        for shard in keys.owned.borrow_mut().iter_mut() {
            shard.seq = covered[shard.number];
            for (seq, body) in records.get(&shard.number).into_iter().flatten() {
                for effect in record::Effects::of(body) {
                    shard.touched.note(&effect.map_err(|error| error.to_string())?);
                }
                shard.note_record(*seq, body.len());
            }
        }
        wants_base |= self.start_keys(left_out).await?;
        keys.book.set(Book::of(manifest, is_own));
        if wants_base {
            // The next start finds nothing damaged, and nothing that has been displaced.
            let mut written = self.write_keys_image(disk.clone(), true, true).await;
            if written.as_ref().is_err_and(CheckpointError::is_full) && self.ctx.release_reserve().await {
                written = self.write_keys_image(disk, true, true).await;
            }
            match written {
                Err(error) if error.is_full() => {
                    tracing::warn!(%error, "the disk has no room for an image of the keys; what is displaced may come back with a restart until it has");
                    keys.book.set(Book { is_based: false, ..keys.book.get() });
                }
                written => written.map_err(|error| error.to_string())?,
            }
        }
        Ok(())
    }

    /// After everything has been applied: from now on keys expire. What the budget did not hold on the way is logged as evicted, as it would
    /// be while serving; where that is much, an image of everything is wanted in its place.
    async fn start_keys(&self, left_out: u64) -> Result<bool, String> {
        let keys = self;
        if left_out > 0 {
            tracing::warn!(left_out, "keys do not fit into the memory budget any more and were left out");
        }
        let own = keys.owned.borrow().len();
        let (mut logged, mut evicted, mut wants_base) = (0, 0, false);
        let mut slice = Slice::begin(self.ctx.env());
        for index in 0..own {
            let mut displaced = keys.owned.borrow_mut()[index].finish_restore();
            let now_ms = self.ctx.env().unix_ms();
            while keys.owned.borrow_mut()[index].writer.compact_restored(now_ms) {
                slice.check().await;
            }
            if !self.ctx.keeps_records() {
                continue;
            }
            evicted += displaced.len();
            logged += displaced.iter().map(Vec::len).sum::<usize>();
            wants_base |= logged > DISPLACED_BYTES_MAX;
            while !displaced.is_empty() && !wants_base {
                let appended = keys.owned.borrow_mut()[index].log_displaced(&*self.ctx, &mut displaced);
                match appended.map_err(|refused| *refused) {
                    Ok(()) => {}
                    Err(Refused::NoRoom(purpose, bytes)) => {
                        match self.ctx.wait_for_room(purpose, bytes).await {
                            Err(OpError::NoSpace(_)) => wants_base = true,
                            made => made.map_err(|error| error.to_string())?,
                        }
                    }
                    Err(Refused::Error(error)) => return Err(error.to_string()),
                }
            }
        }
        if evicted > 0 {
            tracing::warn!(
                core = keys.index,
                evicted,
                "the memory budget does not hold all keys: the oldest were evicted"
            );
        }
        Ok(wants_base)
    }

    /// Declares the keys damaged: from here on no operation on keys is served.
    pub(super) fn damage_keys(&self, why: String) {
        tracing::error!(
            why,
            "the keys are damaged: operations on keys are refused, and their files are left unchanged. Repair the cause and restart, or create a \
             file {DIR}/{} so that the next start serves what can be read",
            damage_mark::ACCEPT
        );
        // The keys may have been declared damaged before; the first reason is kept.
        let _first = self.shared.damage.set(why);
    }

    /// Ends the restore of this core's shards although it is not complete; nothing is served from them.
    fn abandon_keys(&self) {
        for shard in self.owned.borrow_mut().iter_mut() {
            let _served_by_nobody = shard.finish_restore();
        }
    }

    /// Counts and reports an image that cannot be read to its end, the first time one of the cores meets it. It keeps its name until other
    /// images have what could be read of it.
    async fn note_damaged_image(self: &Rc<Self>, image: &Image, read_bytes: u64, error: &CheckpointError) {
        let name = image.name.clone();
        let noted = call_own(self, 0, move |there| async move { there.damaged.borrow_mut().insert(name) });
        if noted.await {
            let (counters, unread) = (self.counters(), image.bytes.saturating_sub(read_bytes));
            count(&counters.corruption_errors, 1);
            count(&counters.corruption_bytes, unread);
            tracing::error!(%error, unread, "an image of keys cannot be read");
        }
    }

    /// Applies effects that belong to shards of this core, on the way to images of their own.
    fn take_spread_keys(&self, effects: &[u8], now_ms: u64) -> Result<u64, String> {
        let keys = self;
        let mut left_out = 0;
        for effect in record::Effects::of(effects) {
            let effect = effect.map_err(|error| error.to_string())?;
            let (Effect::Set { key, .. } | Effect::Deadline { key, .. } | Effect::Delete { key }) = &effect
            else {
                unreachable!("only effects on keys are sent")
            };
            let place = keys.place_of(key);
            let shard: &mut Shard = &mut keys.owned.borrow_mut()[place.shard / keys.shared.cores];
            left_out += u64::from(shard.restore(&effect, now_ms)?);
        }
        Ok(left_out)
    }
}

/// What the log of each shard comes to.
fn outcomes_of(records: &HashMap<usize, Records>) -> Result<HashMap<usize, Outcome<'_>>, String> {
    records.iter().map(|(shard, records)| Ok((*shard, Outcome::of(records)?))).collect()
}

/// Sends every effect of the old shards to where its key belongs now, writes images of the result and swings the manifest.
async fn spread(kv: &Rc<Keys>, old: &Manifest, mut records: HashMap<usize, Records>) -> Result<(), String> {
    let disk = kv.ctx.env().disk().expect("images lie on a disk");
    let shards = kv.ctx.options().keys.shards(kv.ctx.options().shards);
    let fresh = Manifest::new(random_seed(kv), shards, kv.ctx.node().reserve_uids(shards as u64));
    make(kv, &fresh).await?;
    records.values_mut().for_each(|records| records.sort_by_key(|(seq, _)| *seq));
    let outcomes = outcomes_of(&records)?;
    let nothing = Outcome::default();
    let first = last_flushes(kv, &*disk, Path::new(DIR), old).await;
    let now_ms = kv.ctx.unix_ms();
    for to in 0..kv.ctx.env().cores() {
        call_own(kv, to, |there| async move {
            there.owned.borrow_mut().iter_mut().for_each(Shard::begin_restore);
        })
        .await;
    }
    let mut left_out = 0;
    loop {
        let mut sender = Sender::new(kv, PARCEL_BYTES, now_ms);
        for (number, image) in old.images.iter().enumerate() {
            let mut parts: Vec<(usize, Vec<u8>)> = Vec::new();
            let mut read_bytes = 0;
            let mut take = |block: &[u8]| {
                read_bytes += block.len() as u64;
                let (shard, effects) = block_parts(block)?;
                if first.get(shard).is_some_and(|first| *first <= number) {
                    parts.push((shard, effects.to_vec()));
                }
                Ok(())
            };
            match read_image(&*disk, Path::new(DIR), &image.name, old.uid_base, &mut take).await {
                Ok(_) => {}
                Err(error @ CheckpointError::Newer { .. }) => return Err(error.to_string()),
                Err(error) => {
                    kv.note_damaged_image(image, read_bytes, &error).await;
                    let shared = &kv.shared;
                    if !shared.is_accepted.load(Relaxed) || !is_damage(&error) {
                        assert!(shared.withheld.set(Withheld::of(old)).is_ok(), "a node opens its keys once");
                        kv.damage_keys(error.to_string());
                        for to in 0..kv.ctx.env().cores() {
                            call_own(kv, to, |there| async move { there.abandon_keys() }).await;
                        }
                        return Ok(());
                    }
                }
            }
            for (shard, effects) in parts {
                sender.send_image(outcomes.get(&shard).unwrap_or(&nothing), &effects).await?;
            }
        }
        for (shard, outcome) in &outcomes {
            for (index, (_, body)) in records[shard].iter().enumerate() {
                sender.send_record(outcome, index, body).await?;
            }
        }
        left_out += sender.finish().await?;
        let mut wants_second_look = false;
        for to in 0..kv.ctx.env().cores() {
            wants_second_look |= call_own(kv, to, |there| async move {
                let mut wants = false;
                for shard in there.owned.borrow_mut().iter_mut() {
                    wants |= shard.wants_second_look();
                }
                wants
            })
            .await;
        }
        if !wants_second_look {
            break;
        }
    }
    *kv.manifest.borrow_mut() = Some(fresh);
    for to in 0..kv.ctx.env().cores() {
        call_own(kv, to, move |there| async move {
            let _a_base_follows = there.start_keys(if to == 0 { left_out } else { 0 }).await?;
            let disk = there.ctx.env().disk().expect("images lie on a disk");
            there.write_keys_image(disk, true, false).await.map_err(|error| error.to_string())
        })
        .await?;
    }
    let fresh = kv.manifest.borrow().clone().expect("set above");
    // The moment at which the old images and records stop to count.
    kv.store_keys_manifest(fresh).await.map_err(|error| error.to_string())
}

/// For each old shard, the first image that counts: what a flush in a later one has removed need not be sent.
pub(super) async fn last_flushes(kv: &Rc<Keys>, disk: &dyn Disk, dir: &Path, old: &Manifest) -> Vec<usize> {
    let mut first = first_images(old);
    for (number, image) in old.images.iter().enumerate().filter(|(_, image)| !image.is_base) {
        // A damaged image is reported when it is read for its content.
        let _read = read_image(disk, dir, &image.name, old.uid_base, &mut |block| {
            let (shard, effects) = block_parts(block)?;
            if let (Some(first), Some(Ok(Effect::Flush))) =
                (first.get_mut(shard), record::Effects::of(effects).next())
            {
                *first = number.max(*first);
            }
            Ok(())
        })
        .await;
        kv.ctx.env().yield_now().await;
    }
    first
}

/// Sends effects to the cores of their keys, in order.
pub(super) struct Sender<'a> {
    kv: &'a Rc<Keys>,
    /// What is sent to each core next, of about so many bytes.
    parcels: Vec<Vec<u8>>,
    parcel_bytes: usize,
    now_ms: u64,
    left_out: u64,
}

impl<'a> Sender<'a> {
    /// `now_ms`: keys whose deadlines have passed by then are left out.
    pub(super) fn new(kv: &'a Rc<Keys>, parcel_bytes: usize, now_ms: u64) -> Sender<'a> {
        let parcels = vec![Vec::new(); kv.ctx.env().cores()];
        Sender { kv, parcels, parcel_bytes, now_ms, left_out: 0 }
    }

    /// A part of an image, from its flush on.
    pub(super) async fn send_image(&mut self, outcome: &Outcome<'_>, effects: &[u8]) -> Result<(), String> {
        let mut parts: Vec<Effect<'_>> = Vec::new();
        for effect in record::Effects::of(effects) {
            match effect.map_err(|error| error.to_string())? {
                Effect::Flush => parts.clear(),
                effect => parts.extend(outcome.of_image(effect, self.now_ms)),
            }
        }
        let mut slice = Slice::begin(self.kv.ctx.env());
        for effect in parts {
            self.send(&effect).await?;
            slice.check().await;
        }
        Ok(())
    }

    /// The record that stands at `index` of the log.
    pub(super) async fn send_record(
        &mut self,
        outcome: &Outcome<'_>,
        index: usize,
        body: &[u8],
    ) -> Result<(), String> {
        for (part, effect) in record::Effects::of(body).enumerate() {
            let effect = effect.map_err(|error| error.to_string())?;
            if let Some(effect) = outcome.of_log((index, part), &effect, self.now_ms) {
                self.send(&effect).await?;
            }
        }
        Ok(())
    }

    async fn send(&mut self, effect: &Effect<'_>) -> Result<(), String> {
        let (Effect::Set { key, .. } | Effect::Deadline { key, .. } | Effect::Delete { key }) = effect else {
            return Ok(());
        };
        let to = self.kv.place_of(key).core;
        record::put(&mut self.parcels[to], effect);
        if self.parcels[to].len() >= self.parcel_bytes {
            self.deliver(to).await?;
        }
        Ok(())
    }

    async fn deliver(&mut self, to: usize) -> Result<(), String> {
        let (parcel, now_ms) = (std::mem::take(&mut self.parcels[to]), self.now_ms);
        let taken =
            call_own(self.kv, to, move |there| async move { there.take_spread_keys(&parcel, now_ms) }).await;
        self.left_out += taken?;
        Ok(())
    }

    /// Delivers what is left; how many keys had no room.
    pub(super) async fn finish(mut self) -> Result<u64, String> {
        for to in 0..self.parcels.len() {
            self.deliver(to).await?;
        }
        Ok(self.left_out)
    }
}

/// Removes image files that the manifest does not name: what a crash interrupted.
pub(super) async fn remove_strays(kv: &Rc<Keys>) {
    let Some(disk) = kv.ctx.env().disk() else { return };
    let Ok(names) = disk.list(Path::new(DIR)).await else { return };
    let named: Vec<PathBuf> = match &*kv.manifest.borrow() {
        Some(manifest) => manifest.images.iter().map(|image| PathBuf::from(&image.name)).collect(),
        None => return,
    };
    for name in names.iter().filter(|name| is_image(name) && !named.contains(name)) {
        let path = Path::new(DIR).join(name);
        let is_damaged = name.to_str().is_some_and(|name| kv.damaged.borrow_mut().remove(name));
        let gone = match is_damaged {
            true => disk.rename(&path, &kept_name(name, kv.ctx.unix_ms())).await,
            false => disk.remove(&path).await,
        };
        if let Err(error) = gone {
            tracing::warn!(file = %name.display(), %error, "stray image of keys not removed");
        }
    }
}
