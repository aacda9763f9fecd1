//! See the module above.
use super::config::DenseConfig;
use crate::filter::Predicate;
use crate::index::{NodePlan, Planner, Round, Scratch, Slot, TargetJob, TargetPlan};
use crate::memory::{ArenaError, Domain, Pin};
use std::sync::Arc;
/// How a write treats a live id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Create-only.
    Insert,
    /// Insert or replace.
    Upsert,
}
/// One accepted write, as logged and applied.
pub struct Write<'a> {
    /// Collection sequence number, consecutive from 1.
    pub seq: u64,
    /// Point id.
    pub id: u64,
    /// Version given by `check_write`.
    pub version: u64,
    /// Prepared (normalised) or raw vector of `dim` floats; `apply` prepares it (idempotent).
    pub vector: &'a [f32],
    /// Encoded payload row, empty = none.
    pub row: &'a [u8],
    /// Absolute deadline in Unix ms, 0 = none.
    pub deadline_ms: u64,
}
/// Why a write is refused; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Wrong length.
    #[error("vector: dimension mismatch: expected {expected}, found {found}")]
    DimensionMismatch {
        /// Collection's.
        expected: usize,
        /// Sent.
        found: usize,
    },
    /// Create-only write of a live id.
    #[error("vector: id {0} already present")]
    DuplicateId(u64),
    /// `expected_version` differs.
    #[error("vector: version conflict on id {id}: expected {expected}, found {found}")]
    VersionConflict {
        /// The id.
        id: u64,
        /// Asked for.
        expected: u64,
        /// Stored (0 = absent).
        found: u64,
    },
    /// NaN or infinity.
    #[error("vector: component {index} of id {id} is not a finite number")]
    NotFinite {
        /// The id.
        id: u64,
        /// Which component.
        index: usize,
    },
    /// Quota.
    #[error("vector: collection full")]
    Full,
    /// Token bucket empty.
    #[error("vector: collection rate limited")]
    RateLimited,
}
/// Why a search is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// Wrong length.
    #[error("vector: dimension mismatch: expected {expected}, found {found}")]
    DimensionMismatch {
        /// Collection's.
        expected: usize,
        /// Sent.
        found: usize,
    },
    /// NaN or infinity.
    #[error("vector: query component {0} is not a finite number")]
    NotFinite(usize),
}
/// Errors of a bulk build over staged points.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The collection holds points.
    #[error("vector: bulk build needs an empty collection")]
    NotEmpty,
}
/// A search.
pub struct Query<'a> {
    /// `dim` floats, unprepared.
    pub vector: &'a [f32],
    /// Results wanted.
    pub k: usize,
    /// Beam override; 0 = collection default. The beam is at least k (2k with a filter).
    pub ef: usize,
    /// Filter.
    pub filter: Option<&'a Predicate>,
    /// Exact instead of graph search.
    pub exact: bool,
    /// Now, Unix ms.
    pub now_ms: u64,
}
/// A result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Point id.
    pub id: u64,
    /// Distance; ties ordered by id.
    pub distance: f32,
    /// Slot, valid while the pin under which it was found lives.
    pub slot: Slot,
}
/// A point read in place.
pub struct Point<'p> {
    /// Id.
    pub id: u64,
    /// Version.
    pub version: u64,
    /// `dim` floats as stored.
    pub vector: &'p [f32],
    /// Encoded row, empty = none.
    pub row: &'p [u8],
    /// Absolute deadline, 0 = none.
    pub deadline_ms: u64,
}
/// Counters and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Live ids (expired but unswept ones included).
    pub live: u64,
    /// Dead slots not yet reclaimed.
    pub tombstoned: u64,
    /// Slots waiting in the tail.
    pub tail: u64,
    /// Slots ever committed (high-water mark).
    pub slots: u64,
    /// Committed bytes: vectors, edges, metadata, id map, rows.
    pub bytes: u64,
}
/// The shared, readable side. `Sync`.
pub struct Dense {}
/// The owner's side: the only handle that changes anything. `Send`, one per collection.
pub struct DenseWriter {}
impl Dense {
    /// Configuration.
    pub fn config(&self) -> &DenseConfig {
        todo!()
    }
    /// Any core. Nearest first, ties by id. With a filter the beam doubles to the cap, then an exact filtered scan guarantees k results whenever k match.
    pub fn search(
        &self,
        pin: &Pin<'_>,
        query: &Query<'_>,
        scratch: &mut Scratch,
        out: &mut Vec<Hit>,
    ) -> Result<(), SearchError> {
        let _ = (pin, query, scratch, out);
        todo!()
    }
    /// Any core: a live point.
    pub fn get<'p>(&'p self, pin: &'p Pin<'_>, id: u64, now_ms: u64) -> Option<Point<'p>> {
        let _ = (pin, id, now_ms);
        todo!()
    }
    /// Point behind a hit of the same pin.
    pub fn point<'p>(&'p self, pin: &'p Pin<'_>, slot: Slot) -> Point<'p> {
        let _ = (pin, slot);
        todo!()
    }
    /// Any core.
    pub fn stats(&self) -> Stats {
        todo!()
    }
    /// Any core: plan part of a round in slices (see `Planner`).
    pub fn plan_step(&self, planner: &mut Planner, round: &Round, max_distances: usize) -> Option<NodePlan> {
        let _ = (planner, round, max_distances);
        todo!()
    }
    /// Any core.
    pub fn plan_start(&self, planner: &mut Planner, round: &Round, index: usize) {
        let _ = (planner, round, index);
    }
    /// Any core.
    pub fn plan_target(&self, job: &TargetJob, scratch: &mut Scratch) -> TargetPlan {
        let _ = (job, scratch);
        todo!()
    }
}
impl DenseWriter {
    /// Makes an empty collection that may grow to `max_slots`.
    pub fn create(
        config: DenseConfig,
        max_slots: usize,
        domain: Arc<Domain>,
    ) -> Result<DenseWriter, ArenaError> {
        let _ = (config, max_slots, domain);
        todo!()
    }
    /// The readable side.
    pub fn shared(&self) -> &Arc<Dense> {
        todo!()
    }
    /// Last applied sequence number.
    pub fn seq(&self) -> u64 {
        todo!()
    }
    /// All checks of a write in the interface's order except rate tokens (`rate_ok` says whether a token was had). Returns the version it will get.
    pub fn check_write(
        &self,
        id: u64,
        vector: &[f32],
        mode: WriteMode,
        expected_version: Option<u64>,
        rate_ok: bool,
        now_ms: u64,
    ) -> Result<u64, WriteError> {
        let _ = (id, vector, mode, expected_version, rate_ok, now_ms);
        todo!()
    }
    /// Applies a checked write: visible when it returns (through the tail).
    pub fn apply(&mut self, write: Write<'_>) {
        let _ = write;
    }
    /// Version check of a delete; Ok(false) = absent.
    pub fn check_delete(
        &self,
        id: u64,
        expected_version: Option<u64>,
        now_ms: u64,
    ) -> Result<bool, WriteError> {
        let _ = (id, expected_version, now_ms);
        todo!()
    }
    /// Applies a delete (no-op when absent).
    pub fn apply_delete(&mut self, seq: u64, id: u64) -> bool {
        let _ = (seq, id);
        todo!()
    }
    /// Ids in ascending order from `from` (inclusive), live ones, for scroll and delete by filter.
    pub fn ids_from(&self, from: u64) -> impl Iterator<Item = u64> + '_ {
        let _ = from;
        std::iter::empty()
    }
    /// Tail slots not yet in the graph.
    pub fn tail_len(&self) -> usize {
        todo!()
    }
    /// Starts an indexing round over at most `max` of the oldest tail slots (fewer while the graph is small); None when the tail is empty. One round at a time.
    pub fn begin_round(&mut self, max: usize) -> Option<Arc<Round>> {
        let _ = max;
        todo!()
    }
    /// Jobs of the second phase. `plans` in round order.
    pub fn target_jobs(&self, plans: &[NodePlan]) -> Vec<TargetJob> {
        let _ = plans;
        todo!()
    }
    /// Ends the round: links, removes from the tail.
    pub fn commit_round(&mut self, plans: Vec<NodePlan>, targets: Vec<TargetPlan>) {
        let _ = (plans, targets);
    }
    /// Drives indexing to an empty tail on the calling thread (tests, library use).
    pub fn index_all(&mut self) {}
    /// Whether a repair pass is due (dead slots over the threshold) or running.
    pub fn repair_due(&self) -> bool {
        todo!()
    }
    /// One slice of the repair pass (about `max_nodes` nodes): relink around dead slots, then retire, then reclaim when quiescent. Not while a round is open. Returns true while there is more to do now.
    pub fn repair_step(&mut self, max_nodes: usize) -> bool {
        let _ = max_nodes;
        todo!()
    }
    /// Frees what is quiescent (old rows, replaced id-map segments, retired slots). Cheap; call often.
    pub fn reclaim(&mut self) {}
    /// Ids whose deadline is at or before `now_ms`, at most `max` (for the sweeper, which deletes them).
    pub fn expired(&self, now_ms: u64, max: usize) -> Vec<u64> {
        let _ = (now_ms, max);
        todo!()
    }

    // ---- checkpoints: a consistent image written in slices while serving ----
    /// Starts a capture: `full` = every live slot, else what changed since the last finished capture.
    pub fn begin_capture(&mut self, full: bool) {
        let _ = full;
    }
    /// Appends encoded slot records to `out` until about `max_bytes` are added; true when the image is complete and consistent as of `seq()` at that moment.
    /// Slots changed after they were captured are captured again (later records win); the last few are taken in one go.
    pub fn capture_step(&mut self, max_bytes: usize, out: &mut Vec<u8>) -> bool {
        let _ = (max_bytes, out);
        todo!()
    }
    /// The image is durable (or was abandoned: everything counts as changed again).
    pub fn end_capture(&mut self, durable: bool) {
        let _ = durable;
    }
    /// Bytes a full image would take, about.
    pub fn image_bytes(&self) -> u64 {
        todo!()
    }
    /// Applies encoded records of one image in order. The bytes passed hold whole records.
    pub fn restore(&mut self, records: &[u8]) -> Result<(), RestoreError> {
        let _ = records;
        todo!()
    }
    /// After all images: checks edges against present slots, rebuilds id map and free list, sets `seq`.
    pub fn finish_restore(&mut self, seq: u64) -> Result<(), RestoreError> {
        let _ = seq;
        todo!()
    }
}
/// Why an image does not load.
#[derive(Debug, thiserror::Error)]
#[error("corrupt collection image at byte {offset}: {what}")]
pub struct RestoreError {
    /// Where.
    pub offset: usize,
    /// What is wrong.
    pub what: String,
}
