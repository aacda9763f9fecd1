//! Segments of earlier runs, kept until checkpoints cover them; and the book of newest records that decides it.
use super::format::{FoundRecord, SegmentId, leading_records, surviving_records};
use super::keep::Keep;
use super::ledger::{ChainFound, ChainId, Ledgers, MakeRoom, NoRoom};
use super::{LogError, RecordKey};
use crate::damage_mark;
use crate::disk::Disk;
use crate::disk::is_full;
use crate::twin;
use ahash::{HashMap, HashSet};
use std::cell::RefCell;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Newest sequence number of each collection in a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Highest(HashMap<u64, u64>);

impl Highest {
    /// Uid and sequence number of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(uid, seq)| (*uid, *seq))
    }

    pub(super) fn note(&mut self, key: RecordKey) {
        let seq = self.0.entry(key.collection).or_insert(key.seq);
        *seq = key.seq.max(*seq);
    }

    /// Collections that still need this segment, ascending.
    pub(super) fn uncovered(&self, covered: &dyn Fn(u64) -> Option<u64>) -> Vec<u64> {
        let needs = |(&collection, &seq): (&u64, &u64)| {
            covered(collection).is_some_and(|upto| upto < seq).then_some(collection)
        };
        let mut collections: Vec<u64> = self.0.iter().filter_map(needs).collect();
        collections.sort_unstable();
        collections
    }

    pub(super) fn covered(&self, covered: &dyn Fn(u64) -> Option<u64>) -> bool {
        self.0.iter().all(|(&collection, &seq)| covered(collection).is_none_or(|upto| upto >= seq))
    }
}

/// One segment of an earlier run.
#[derive(Clone, Debug)]
pub(super) struct OldSegment {
    pub(super) path: PathBuf,
    /// Bytes of frames in it.
    pub(super) bytes: u64,
    /// Where the unused rest of the file begins, if there is one.
    pub(super) unused: Option<u64>,
    pub(super) highest: Highest,
    /// What a scan has delivered from it, in order.
    pub(super) delivered: Vec<Delivered>,
    pub(super) id: SegmentId,
}

/// Bytes of a segment with good records of one flush.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivered {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) flush: u64,
    /// They are damaged: all good records count, and else the first up to a bad one.
    pub(super) survivors: bool,
}

/// Segments of one chain (one core in one run), oldest first.
#[derive(Debug, Default)]
pub(super) struct OldChain {
    pub(super) id: ChainId,
    /// Its files are left unchanged for now, see [`ChainFound`].
    pub(super) is_left: bool,
    pub(super) segments: Vec<OldSegment>,
    /// The run's ledger, which goes after its last segment.
    pub(super) ledger: Option<PathBuf>,
}

/// What a scan has found and the ledgers do not say yet, and the stores that could not be judged.
#[derive(Clone, Debug)]
struct Unsettled {
    ledgers: Ledgers,
    found: Vec<ChainFound>,
    undecided: HashSet<u64>,
}

impl Unsettled {
    async fn settle(&self, disk: &dyn Disk, room: &dyn MakeRoom) -> io::Result<()> {
        self.ledgers.settle(disk, &self.found, &|uid| self.undecided.contains(&uid), room).await
    }
}

/// The segments a [`super::scan`] has read. `Send`: recovery may hand it to the core that trims.
#[derive(Debug, Default)]
pub struct OldSegments {
    chains: RefCell<Vec<OldChain>>,
    /// What could not be written to the ledgers because the disk is full. Until it is, they expect every segment.
    unsettled: RefCell<Option<Unsettled>>,
}

impl OldSegments {
    pub(super) fn push_chain(&mut self, chain: OldChain) {
        self.chains.get_mut().push(chain);
    }

    /// Makes the ledgers expect what a scan has `found`, and gives back what was allocated behind the last frame of each segment. Where the
    /// disk is too full for that, [`Self::trim`] tries it again, and removes nothing before it is done.
    ///
    /// # Errors
    /// A ledger cannot be written, for another reason than a full disk.
    pub async fn settle(
        &self,
        disk: &dyn Disk,
        ledgers: Ledgers,
        mut found: Vec<ChainFound>,
        undecided: &dyn Fn(u64) -> bool,
        room: &dyn MakeRoom,
    ) -> io::Result<()> {
        for chain in &mut found {
            let ledger = ledgers.all.get(&chain.id);
            chain.is_kept = ledger.is_some_and(|(_, ledger)| chain.concerns(ledger, undecided));
        }
        self.leave(&found);
        let listed = ledgers.all.values().flat_map(|(_, ledger)| &ledger.highest).map(|(uid, _)| *uid);
        let undecided = listed.filter(|uid| undecided(*uid)).collect();
        let unsettled = Unsettled { ledgers, found, undecided };
        match unsettled.settle(disk, room).await {
            Ok(()) => {
                self.give_back(disk).await;
                if unsettled.found.iter().any(|chain| !chain.unmarked.is_empty()) {
                    self.unsettled.replace(Some(unsettled));
                }
            }
            Err(error) if is_full(&error) => {
                tracing::warn!(
                    "the disk is too full for the ledgers of the log: old segments stay until there is room"
                );
                self.unsettled.replace(Some(unsettled));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Notes which chains are left unchanged.
    fn leave(&self, found: &[ChainFound]) {
        let is_left = |id: ChainId| {
            found.iter().any(|chain| chain.id == id && (chain.is_kept || !chain.unmarked.is_empty()))
        };
        self.chains.borrow_mut().iter_mut().for_each(|chain| chain.is_left = is_left(chain.id));
    }

    async fn settle_again(&self, disk: &dyn Disk) -> Result<(), LogError> {
        let unsettled = self.unsettled.borrow().clone();
        if let Some(mut unsettled) = unsettled {
            // A mark that still finds no room is tried again by the next call; trimming the other chains may free some until then.
            for chain in &mut unsettled.found {
                while let Some((dir, why)) = chain.unmarked.pop() {
                    if let Err(error) = damage_mark::store(disk, &dir, &why).await {
                        if !is_full(&error) {
                            tracing::warn!(directory = %dir.display(), %error, "a store could not be marked as damaged; it is tried again");
                        }
                        chain.unmarked.push((dir, why));
                        break;
                    }
                }
            }
            self.leave(&unsettled.found);
            let settled = unsettled.settle(disk, &NoRoom).await;
            settled.map_err(|error| LogError::Trim(format!("the ledger of the log: {error}")))?;
            let is_done = unsettled.found.iter().all(|chain| chain.unmarked.is_empty());
            self.unsettled.replace((!is_done).then_some(unsettled));
            self.give_back(disk).await;
        }
        Ok(())
    }

    /// Truncates each segment behind its last frame, so that a start needs less disk space than the run before has left. The files themselves stay,
    /// with their headers, because their numbers tell damage from an end. The ledgers do not expect the truncated part any more.
    pub(super) async fn give_back(&self, disk: &dyn Disk) {
        let longer: Vec<(PathBuf, u64)> = {
            let mut chains = self.chains.borrow_mut();
            let segments =
                chains.iter_mut().filter(|chain| !chain.is_left).flat_map(|chain| &mut chain.segments);
            segments.filter_map(|segment| Some((segment.path.clone(), segment.unused.take()?))).collect()
        };
        for (path, end) in longer {
            let cut = async {
                let file = disk.open(&path).await?;
                file.truncate(end).await?;
                file.close().await
            };
            // A segment that cannot be truncated keeps its unused room until it is trimmed, and nothing else is lost.
            if let Err(error) = cut.await {
                tracing::warn!(segment = %path.display(), %error, "an old log segment keeps room that it does not need");
            }
        }
    }

    /// Whether all are gone.
    pub fn is_empty(&self) -> bool {
        self.chains.borrow().iter().all(|chain| chain.segments.is_empty())
    }

    /// Bytes of records in the segments that may be trimmed once images cover them, block padding included.
    pub fn live_bytes(&self) -> u64 {
        let chains = self.chains.borrow();
        chains
            .iter()
            .filter(|chain| !chain.is_left)
            .flat_map(|chain| &chain.segments)
            .map(|segment| segment.bytes)
            .sum()
    }

    /// Removes the segments of each run, oldest first, up to its first that is still needed, as [`super::Log::trim`] does.
    ///
    /// # Errors
    /// `Trim` when a file cannot be removed; it is tried again by the next call.
    pub async fn trim(&self, disk: &dyn Disk, covered: &dyn Fn(u64) -> Option<u64>) -> Result<(), LogError> {
        self.trim_for(disk, None, covered).await
    }

    /// As [`Self::trim`]; what `keep` wants is not removed but handed to it.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn trim_for(
        &self,
        disk: &dyn Disk,
        keep: Option<&dyn Keep>,
        covered: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<(), LogError> {
        self.settle_again(disk).await?;
        loop {
            let next = {
                let chains = self.chains.borrow();
                let mut fronts =
                    chains.iter().filter(|chain| !chain.is_left).filter_map(|chain| chain.segments.first());
                let front = fronts.find(|segment| segment.highest.covered(covered));
                front.map(|segment| (segment.id, segment.path.clone()))
            };
            let Some((id, path)) = next else { return Ok(()) };
            match keep {
                Some(keep) => {
                    let let_go = keep.let_go(id, &path, None).await;
                    let_go.map_err(|error| LogError::Trim(format!("{}: {error}", path.display())))?;
                }
                None => remove(disk, &path).await?,
            }
            let mut ledger = None;
            for chain in self.chains.borrow_mut().iter_mut() {
                let segments = chain.segments.len();
                chain.segments.retain(|segment| segment.path != path);
                if segments > 0 && chain.segments.is_empty() {
                    ledger = chain.ledger.take();
                }
            }
            if let Some(ledger) = ledger {
                // If the ledger cannot be removed now, the next start removes it: all the segments that it lists are covered.
                remove(disk, &ledger).await?;
                remove(disk, &twin::copy_of(&ledger)).await?;
            }
        }
    }

    /// Delivers the records of the scan once more, in its order, of those segments that have records of a collection which `wanted` is told
    /// of with the greatest sequence number in the segment; until `record` breaks off. Holds one frame in memory.
    ///
    /// # Errors
    /// A segment cannot be read, or has not what it had at the scan.
    pub async fn read_again(
        &self,
        disk: &dyn Disk,
        wanted: &dyn Fn(u64, u64) -> bool,
        record: &mut dyn FnMut(RecordKey, &[u8]) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let segments: Vec<OldSegment> =
            self.chains.borrow().iter().flat_map(|chain| &chain.segments).cloned().collect();
        for segment in &segments {
            if !segment.highest.0.iter().any(|(&collection, &seq)| wanted(collection, seq)) {
                continue;
            }
            let at_path = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", segment.path.display()))
            };
            let file = disk.open(&segment.path).await.map_err(at_path)?;
            let mut done = false;
            for frame in &segment.delivered {
                let bytes = file.read_at(frame.offset, frame.bytes as usize).await.map_err(at_path)?;
                let mut found = 0;
                let mut take = |key: RecordKey, body: &[u8]| {
                    found += 1;
                    done = done || record(key, body).is_break();
                };
                if frame.survivors {
                    surviving_records(&bytes, segment.id, frame.flush, |record| {
                        if let FoundRecord::Good { key, body, .. } = record {
                            take(key, body);
                        }
                    });
                } else {
                    leading_records(&bytes, segment.id, frame.flush, take);
                }
                if done {
                    break;
                }
                if found == 0 && !frame.survivors {
                    let text = format!("byte {}: records that were there are gone", frame.offset);
                    return Err(at_path(io::Error::new(io::ErrorKind::InvalidData, text)));
                }
            }
            file.close().await.map_err(at_path)?;
            if done {
                break;
            }
        }
        Ok(())
    }

    /// Every record has been read as often as it was to be.
    pub fn end_reading(&self) {
        for segment in self.chains.borrow_mut().iter_mut().flat_map(|chain| &mut chain.segments) {
            segment.delivered = Vec::new();
        }
    }

    /// Collections that keep the oldest segment of a run (candidates for a checkpoint), ascending.
    pub fn pinned_by(&self, covered: &dyn Fn(u64) -> Option<u64>) -> Vec<u64> {
        let chains = self.chains.borrow();
        let fronts = chains.iter().filter(|chain| !chain.is_left).filter_map(|chain| chain.segments.first());
        let mut collections: Vec<u64> =
            fronts.flat_map(|segment| segment.highest.uncovered(covered)).collect();
        collections.sort_unstable();
        collections.dedup();
        collections
    }
}

async fn remove(disk: &dyn Disk, path: &Path) -> Result<(), LogError> {
    let removed = disk.remove(path).await;
    removed.map_err(|error| LogError::Trim(format!("{}: {error}", path.display())))
}
