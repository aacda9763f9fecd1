//! The ledger of one run of one core's log: which segments must be there, and how far they went.
//!
//! The segments alone cannot show that the newest of them is missing. So each segment is entered here before its first record is written, together
//! with the newest record of each collection that is on the device by then. When a run is stopped cleanly, the ledger says that nothing
//! follows. A scan compares what it finds with the ledger ([`ChainFound`]). What a crash may leave behind (a segment that was never used, a torn
//! tail) contradicts no entry.
//!
//! A file as [`crate::sealed_json`] has it, kept twice ([`crate::twin`]).

use crate::disk::is_full;
use crate::disk::{BLOCK, Disk, LocalBoxFuture};
use crate::family::collection_of;
use crate::sealed_json::{self, Layout, Unreadable};
use crate::twin;
use ahash::HashMap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Newest format this build reads and the one it writes.
pub(super) const FORMAT: u32 = 1;

/// Something that can make room on a full disk.
pub trait MakeRoom {
    /// Makes room if it can; whether it may have made some.
    fn make_room(&self) -> LocalBoxFuture<'_, bool>;
}

/// Makes no room, for callers that have nothing to give up.
pub(super) struct NoRoom;

impl MakeRoom for NoRoom {
    fn make_room(&self) -> LocalBoxFuture<'_, bool> {
        Box::pin(async { false })
    }
}

/// Run and core of a chain of segments.
pub type ChainId = (u64, u32);

/// What decides which core owns what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owners {
    /// Shards of collections, a power of two.
    pub shards: usize,
    /// Cores of the node.
    pub cores: usize,
}

impl Owners {
    /// The core that owns the collection `uid`.
    pub fn of_collection(&self, uid: u64) -> usize {
        // Fibonacci hashing: uids are consecutive, neighbours go to different shards.
        // An index of tokens is owned by whoever owns its collection.
        let hash = collection_of(uid).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (hash as usize & (self.shards.max(1) - 1)) % self.cores.max(1)
    }

    /// The core that owns a shard of keys.
    pub fn of_keys(&self, shard: usize) -> usize {
        shard % self.cores.max(1)
    }
}

/// A segment that must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LedgerEntry {
    pub(super) number: u64,
    /// Its length.
    pub(super) bytes: u64,
    /// Its last flush (or the last one before it, if it holds none). It is set once the segment is closed: nothing more is written to it, and all
    /// of it is on the device. Only a segment for which the ledger on the disk has this may be trimmed. So a missing segment without it is lost.
    pub(super) last_flush: Option<u64>,
}

impl LedgerEntry {
    /// Whether `found` is this segment and at least as long as this entry says.
    fn is_in(&self, found: &LedgerEntry) -> bool {
        self.number == found.number && self.bytes <= found.bytes
    }
}

/// What must be there of one chain (one core in one run); the module says why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    pub(super) generation: u64,
    pub(super) core: u32,
    pub(super) owners: Owners,
    pub(super) segments: Vec<LedgerEntry>,
    /// Flushes up to this one were on the device, and `highest` knows their records.
    pub(super) synced: u64,
    /// Newest record of each collection up to then: uid and sequence number.
    pub(super) highest: Vec<(u64, u64)>,
    /// The run has ended, and nothing came after `synced`.
    pub(super) is_complete: bool,
    /// A scan is cutting the torn tail, which begins in this segment.
    pub(super) cutting: Option<u64>,
}

impl Ledger {
    /// The file of the run `generation` in the directory of a core.
    pub(super) fn path_in(dir: &Path, generation: u64) -> PathBuf {
        dir.join(format!("{generation:010}.ledger"))
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = sealed_json::encode(FORMAT, self, Layout::Compact);
        // A ledger fills whole blocks, as the disk counts them, so that replacing it takes no more room than it had.
        bytes.resize(bytes.len().next_multiple_of(BLOCK), b' ');
        bytes
    }

    /// Replaces the file at `path`, with its copy.
    pub(super) async fn store(&self, disk: &dyn Disk, path: &Path, room: &dyn MakeRoom) -> io::Result<()> {
        let bytes = self.encode();
        match twin::replace(disk, path, &bytes).await {
            Err(error) if is_full(&error) => {
                room.make_room().await;
                twin::replace_on_full_disk(disk, path, &bytes).await
            }
            stored => stored,
        }
    }

    fn decode(bytes: &[u8], id: ChainId) -> Result<Ledger, Unreadable> {
        let ledger: Ledger = sealed_json::decode(FORMAT, bytes, "a ledger of a log")?;
        match (ledger.generation, ledger.core) == id {
            true => Ok(ledger),
            false => Err(Unreadable::Damaged("it is the ledger of another run or core".to_owned())),
        }
    }
}

/// The ledgers of a data directory, with their files.
#[derive(Clone, Debug, Default)]
pub struct Ledgers {
    pub(super) all: BTreeMap<ChainId, (PathBuf, Ledger)>,
    /// Runs whose ledger cannot be read: nothing can be said of their end.
    pub(super) unreadable: BTreeMap<ChainId, PathBuf>,
}

impl Ledgers {
    /// Reads the ledgers of all cores under `root`.
    ///
    /// # Errors
    /// A ledger has a newer format, or the disk fails.
    pub async fn read(disk: &dyn Disk, root: &Path) -> io::Result<Ledgers> {
        let mut paths: BTreeSet<(ChainId, PathBuf)> = BTreeSet::new();
        for top in [root.to_owned(), twin::copy_of(root)] {
            for core_name in disk.list(&top).await? {
                let Some(core) = core_name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                    continue;
                };
                for name in disk.list(&top.join(&core_name)).await? {
                    let generation = name.to_str().and_then(|name| name.strip_suffix(".ledger"));
                    if let Some(generation) = generation.and_then(|text| text.parse().ok()) {
                        let path = Ledger::path_in(&root.join(&core_name), generation);
                        paths.insert(((generation, core), path));
                    }
                }
            }
        }
        let mut ledgers = Ledgers::default();
        for (id, path) in paths {
            let is_newer = |error: &Unreadable| matches!(error, Unreadable::Newer { .. });
            match twin::read(disk, &path, |bytes| Ledger::decode(bytes, id), is_newer).await {
                Ok(Some(ledger)) => {
                    ledgers.all.insert(id, (path, ledger));
                }
                Ok(None) => {}
                Err(twin::TwinError::Bad(why @ Unreadable::Newer { .. })) => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("{}: {why}", path.display()),
                    ));
                }
                Err(why) => {
                    tracing::error!(file = %path.display(), %why, "a ledger of a log cannot be read");
                    ledgers.unreadable.insert(id, path);
                }
            }
        }
        Ok(ledgers)
    }

    /// Makes each ledger list only what the scan has found, so that segments that are trimmed from now on, and losses that are already marked, are
    /// not reported again. The damage marks are durable by now, except for stores that are `undecided`: a store that is damaged in another way
    /// cannot be judged yet, so its newest records stay in the ledger until it is repaired.
    ///
    /// # Errors
    /// The disk refused.
    pub(super) async fn settle(
        &self,
        disk: &dyn Disk,
        found: &[ChainFound],
        undecided: &dyn Fn(u64) -> bool,
        room: &dyn MakeRoom,
    ) -> io::Result<()> {
        for chain in found.iter().filter(|chain| chain.unmarked.is_empty()) {
            let Some((path, ledger)) = self.all.get(&chain.id) else { continue };
            if chain.segments.is_empty() && !chain.is_kept {
                remove_both(disk, path).await?;
                continue;
            }
            let is_settled = ledger.is_complete && ledger.cutting.is_none() && chain.cut_at.is_none();
            let expects_more =
                ledger.segments.iter().any(|listed| chain.segments.iter().all(|found| !listed.is_in(found)));
            if is_settled && chain.lost_until == 0 && !expects_more {
                continue;
            }
            let mut highest: BTreeMap<u64, u64> =
                ledger.highest.iter().copied().filter(|(uid, _)| undecided(*uid)).collect();
            for (uid, seq) in &chain.highest {
                let known = highest.entry(*uid).or_insert(*seq);
                *known = (*known).max(*seq);
            }
            // If an undecided store may lack records, the ledger goes on listing the missing segments.
            let segments = if chain.is_kept { &ledger.segments } else { &chain.segments };
            let settled = Ledger {
                segments: segments.clone(),
                // Never lowered: a damaged end must not look like a torn tail to the next scan, which would cut it.
                synced: ledger.synced.max(chain.last_flush),
                highest: highest.into_iter().collect(),
                is_complete: true,
                cutting: None,
                ..ledger.clone()
            };
            settled.store(disk, path, room).await?;
        }
        for (id, path) in &self.unreadable {
            if !found.iter().any(|chain| chain.id == *id) {
                remove_both(disk, path).await?;
            }
        }
        Ok(())
    }
}

async fn remove_both(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    disk.remove(path).await?;
    disk.remove(&twin::copy_of(path)).await
}

/// What a scan has found of one run of one core, as far as its end is concerned.
#[derive(Clone, Debug, Default)]
pub struct ChainFound {
    /// Run and core of the chain.
    pub id: ChainId,
    pub(super) segments: Vec<LedgerEntry>,
    /// Newest flush found.
    pub(super) last_flush: u64,
    /// Flushes up to this one have lost records that cannot all be identified; 0 when nothing is missing, `u64::MAX` when the end itself is
    /// unknown.
    pub(super) lost_until: u64,
    /// The last flush with a record of each collection.
    pub(super) seen: HashMap<u64, u64>,
    pub(super) highest: HashMap<u64, u64>,
    pub(super) synced: u64,
    pub(super) needs: HashMap<u64, u64>,
    pub(super) owners: Option<Owners>,
    /// The segment in which this scan has cut a torn tail.
    pub(super) cut_at: Option<u64>,
    /// Stores (their directories) that a full disk had no room to mark as damaged, and why they are. Until they are marked, the files of this
    /// chain are left unchanged.
    pub unmarked: Vec<(PathBuf, String)>,
    /// A store that cannot be judged yet may lack records here, so the files of this chain are left unchanged until the next start.
    pub(super) is_kept: bool,
}

impl std::fmt::Display for ChainFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (generation, core) = self.id;
        write!(
            f,
            "a part of the log of core {core}, run {generation}, is missing; acknowledged writes may be lost"
        )
    }
}

impl ChainFound {
    pub(super) fn lose(&mut self, until: u64) {
        self.lost_until = self.lost_until.max(until);
    }

    /// Holds the segments found against the ledger; call when all frames have been looked at.
    pub(super) fn compare(&mut self, ledger: &Ledger) {
        (self.synced, self.owners) = (ledger.synced, Some(ledger.owners));
        let cut = self.cut_at.or(ledger.cutting);
        let listed = ledger.segments.iter().filter(|entry| cut.is_none_or(|cut| entry.number <= cut));
        for entry in listed {
            let found = self.segments.iter().find(|found| found.number == entry.number);
            let is_whole = found.is_some_and(|found| found.bytes >= entry.bytes || cut == Some(entry.number));
            if is_whole {
                continue;
            }
            let is_last = self
                .segments
                .iter()
                .all(|found| found.number <= entry.number || found.last_flush.unwrap_or(0) == 0);
            match entry.last_flush {
                // It was never closed, so it was not trimmed: it is lost with all its records. A later segment would show where it ended.
                None if is_last && !ledger.is_complete => self.lost_until = u64::MAX,
                None => {}
                Some(last) => self.lose(last),
            }
        }
        if self.last_flush < ledger.synced {
            self.lose(ledger.synced);
        }
        if self.lost_until > 0 {
            self.needs = ledger.highest.iter().copied().collect();
        }
    }

    /// Whether one of the `undecided` stores may lack records here that the ledger names.
    pub(super) fn concerns(&self, ledger: &Ledger, undecided: &dyn Fn(u64) -> bool) -> bool {
        let lacks = |uid: u64, seq: u64| self.highest.get(&uid).is_none_or(|found| *found < seq);
        self.lost_until > 0 && ledger.highest.iter().any(|(uid, seq)| undecided(*uid) && lacks(*uid, *seq))
    }

    /// Whether the end of the run is unknown, so that more may be missing than the ledger says.
    pub fn is_end_unknown(&self) -> bool {
        self.lost_until > self.synced
    }

    /// What is found of a chain of which the ledger is there and no segment.
    pub(super) fn of_nothing(id: ChainId, ledger: &Ledger) -> ChainFound {
        let mut found = ChainFound { id, ..ChainFound::default() };
        found.compare(ledger);
        found
    }

    /// Whether this chain may have lost records of `uid`. `have` is the newest sequence number found elsewhere (in an image or another record);
    /// `core_of` returns the core that owned `uid` in this run.
    ///
    /// Returns false if a record of `uid` was found behind the loss: if any are missing, that record shows a gap in the sequence numbers.
    pub fn may_lack(&self, uid: u64, have: u64, core_of: impl Fn(&Owners) -> usize) -> bool {
        if self.lost_until == 0 || self.seen.get(&uid).is_some_and(|flush| *flush > self.lost_until) {
            return false;
        }
        match &self.owners {
            Some(_) if self.lost_until <= self.synced => have < self.needs.get(&uid).copied().unwrap_or(0),
            Some(owners) => core_of(owners) == self.id.1 as usize,
            // A run of a build that had no ledgers does not say who owned what, so every store may be concerned.
            None => true,
        }
    }
}
