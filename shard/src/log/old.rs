//! Segments of earlier runs, kept until checkpoints cover them; and the book of newest records that decides it.
use super::{LogError, RecordKey};
use crate::disk::Disk;
use crate::twin;
use ahash::HashMap;
use std::cell::RefCell;
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
    pub(super) highest: Highest,
}

/// Segments of one run, oldest first.
#[derive(Debug, Default)]
pub(super) struct OldChain {
    pub(super) segments: Vec<OldSegment>,
    /// The run's ledger, which goes after its last segment.
    pub(super) ledger: Option<PathBuf>,
}

/// The segments a [`super::scan`] has read. `Send`: recovery may hand it to the core that trims.
#[derive(Debug, Default)]
pub struct OldSegments {
    chains: RefCell<Vec<OldChain>>,
}

impl OldSegments {
    pub(super) fn push_chain(&mut self, chain: OldChain) {
        self.chains.get_mut().push(chain);
    }

    /// Whether all are gone.
    pub fn is_empty(&self) -> bool {
        self.chains.borrow().iter().all(|chain| chain.segments.is_empty())
    }

    /// Bytes of records in them, block padding included.
    pub fn live_bytes(&self) -> u64 {
        self.chains.borrow().iter().flat_map(|chain| &chain.segments).map(|segment| segment.bytes).sum()
    }

    /// Removes the segments of each run, oldest first, up to its first that is still needed, as [`super::Log::trim`] does.
    ///
    /// # Errors
    /// `Trim` when a file cannot be removed; it is tried again by the next call.
    pub async fn trim(&self, disk: &dyn Disk, covered: &dyn Fn(u64) -> Option<u64>) -> Result<(), LogError> {
        loop {
            let next = {
                let chains = self.chains.borrow();
                let mut fronts = chains.iter().filter_map(|chain| chain.segments.first());
                fronts.find(|segment| segment.highest.covered(covered)).map(|segment| segment.path.clone())
            };
            let Some(path) = next else { return Ok(()) };
            remove(disk, &path).await?;
            let mut ledger = None;
            for chain in self.chains.borrow_mut().iter_mut() {
                let segments = chain.segments.len();
                chain.segments.retain(|segment| segment.path != path);
                if segments > 0 && chain.segments.is_empty() {
                    ledger = chain.ledger.take();
                }
            }
            if let Some(ledger) = ledger {
                // One that stays names segments that are all covered, and goes at the next start.
                remove(disk, &ledger).await?;
                remove(disk, &twin::copy_of(&ledger)).await?;
            }
        }
    }

    /// Collections that keep the oldest segment of a run (candidates for a checkpoint), ascending.
    pub fn pinned_by(&self, covered: &dyn Fn(u64) -> Option<u64>) -> Vec<u64> {
        let chains = self.chains.borrow();
        let fronts = chains.iter().filter_map(|chain| chain.segments.first());
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
