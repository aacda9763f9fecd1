//! A dense collection: [`DenseWriter`] is the owner's handle, [`Dense`] what any core reads.
//!
//! # Invariants
//!
//! 1. *Snapshots.* A reader loads `published_seq` once, after it pinned, and sees exactly the slots with
//!    `born <= seq < died` whose deadline has not passed. At every sequence number each id has at most one such slot, so no
//!    result holds an id twice and a replaced id is never missing.
//! 2. *Order of a write.* Vector, row and line of the new slot; payload index, sparse and text lists; tail entry; id map; death of the old slot;
//!    `published_seq` (Release). What a snapshot includes is therefore in place for every reader that has it.
//! 3. *Graph or tail.* A live slot is in the graph, in the tail window, or both (`tail.rs`). Where the index is one of cells it takes the
//!    graph's place in all that is said here (`filing.rs`).
//! 4. *Reuse.* A slot is freed only when nothing leads to it (no tail entry before `start`, no edge of any linked slot, no
//!    id), every reader that could have seen it has unpinned, and no indexing round is open (planners hold no pin).
//!    Where vectors lie in a file, it is also not reused before an image without it is durable (`capture.rs`).
//! 5. A dead slot of the graph (a cell just loses it) stays a way-point until a repair pass has led all edges around it (`repair.rs`).
//! 6. A payload is replaced in its slot (`rewrite.rs`): row and version in one store, a snapshot does not keep the old ones. What a
//!    reader looks up, asks and returns is each the row of some moment of its pin; a filter that holds before and after a
//!    replacement finds the point.
//! 7. Where vectors are given up for codes (`bare.rs`) a filed slot's vector is what its code stands for, from the moment it is filed; its
//!    floats go when no reader is left that may have found it in the tail.
//! 8. A version is never given twice to one id (`gone.rs`).
//! 9. All methods of [`DenseWriter`] run on one thread at a time; nothing else changes anything.
mod admission;
mod ahead;
mod bare;
mod births;
mod by_code;
mod capture;
mod cell_order;
mod device;
mod dirty;
mod expiry;
mod filing;
mod gone;
mod hit_order;
mod lane_search;
mod lanes;
mod matching;
mod meta;
mod probe;
mod probe_codes;
mod repair;
mod restore;
mod rewrite;
mod rounds;
mod row_block;
mod scan;
mod scorer;
mod search;
mod search_state;
mod tail;
#[cfg(test)]
mod tests;
mod training;
mod usage;
mod view;
mod walk;
mod writer;

use super::config::DenseConfig;
use super::index_type::IndexType;
use crate::filter::Predicate;
use crate::index::{Commit, Graph, GraphConfig, NodePlan, Planner, Round, Scratch, TargetJob, TargetPlan};
use crate::memory::{ArenaError, Domain, IdMap, Limbo, Pin, RetireTag, Storage};
use crate::pace::TooLong;
use crate::payload::index::PayloadIndex;
use crate::quantizer::Watch;
use crate::slot::Slot;
use crate::sparse::SparseError;
use dirty::{Dirty, SlotSet};
use expiry::Expiry;
use filing::{CellsCell, Filing};
use gone::Gone;
use lanes::{LaneWriters, Lanes};
use meta::{Meta, RowsOwner};
use rewrite::{KeyDeadlines, Retired};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tail::{Passed, Tail};

pub use device::Moment;
pub use filing::{Filed, FilingRound};
pub use lane_search::HitsWanted;
pub use matching::{MatchCursor, Matching};
pub use probe::CellsInfo;
pub use restore::RestoreError;
pub use rewrite::RowWrite;
pub use search_state::Explain;
pub use training::{Clustering, TrainingSample, TrainingTicket};
pub use usage::Usage;

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
    /// Collection sequence number, growing from 1. A write at or below [`DenseWriter::seq`] is already part of the
    /// state (log replay over a checkpoint) and is ignored.
    pub seq: u64,
    /// Point id.
    pub id: u64,
    /// Version given by `check_write`.
    pub version: u64,
    /// Raw vector of `dim` floats; `apply` prepares it (normalises under cosine).
    pub vector: &'a [f32],
    /// Encoded payload row, empty = none.
    pub row: &'a [u8],
    /// Absolute deadline in Unix ms, 0 = none.
    pub deadline_ms: u64,
}

/// What was found in place of a vector of the right length; one without components was nearly always forgotten.
fn found_components(found: usize) -> String {
    match found {
        0 => "found no vector".to_owned(),
        found => format!("found {found}"),
    }
}

/// Why a write is refused; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Wrong length.
    #[error("vector: dimension mismatch: expected {expected}, {}", found_components(*found))]
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
    /// No room for its vector's file.
    #[error("no space for the collection's files: {0}")]
    NoSpace(String),
    /// Its vectors were given up for codes, or are about to be.
    #[error("vector: collection is read-only: its quantizer is trained, and pq_drop_vecs gives vectors up")]
    ReadOnly,
    /// Token bucket empty.
    #[error("vector: collection rate limited")]
    RateLimited,
}

/// Why a search is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// Wrong length.
    #[error("vector: dimension mismatch: expected {expected}, {}", found_components(*found))]
    DimensionMismatch {
        /// Collection's.
        expected: usize,
        /// Sent.
        found: usize,
    },
    /// NaN or infinity.
    #[error("vector: query component {0} is not a finite number")]
    NotFinite(usize),
    /// Of a sparse query.
    #[error(transparent)]
    Sparse(#[from] SparseError),
    /// A text search of a collection without `full_text`.
    #[error("vector: full-text disabled: the collection was made without full_text")]
    TextDisabled,
    /// At a pace that does not wait.
    #[error(transparent)]
    TooLong(#[from] TooLong),
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
    /// `dim` floats as stored, or what a code stands for.
    pub vector: Cow<'p, [f32]>,
    /// Encoded row, empty = none.
    pub row: &'p [u8],
    /// Absolute deadline, 0 = none.
    pub deadline_ms: u64,
}

/// Counters and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Ids present (expired but unswept ones included).
    pub live: u64,
    /// Of these, the ones that have expired.
    pub expired: u64,
    /// Dead slots not yet reclaimed.
    pub tombstoned: u64,
    /// Live slots waiting in the tail.
    pub tail: u64,
    /// Slots ever committed (high-water mark).
    pub slots: u64,
    /// Points with a sparse vector that have not expired.
    pub sparse_vectors: u64,
    /// Committed bytes: vectors, edges, metadata, id map, rows, payload index, sparse and text lists.
    pub bytes: u64,
    /// Candidates a filter refused, since the collection was opened.
    pub filter_rejects: u64,
    /// Searches that walked the graph behind a gate of any sort.
    pub filter_gates: u64,
    /// Of these, behind the complement of a range.
    pub filter_complement_gates: u64,
    /// And behind a column of numbers.
    pub filter_column_gates: u64,
    /// Times that the columns were dropped to make room for a point.
    pub filter_column_drops: u64,
    /// Distances computed by searches, since the collection was opened.
    pub distances: u64,
}

impl Stats {
    /// Points that have not expired, as the owner last looked at the clock.
    pub fn points(&self) -> u64 {
        self.live.saturating_sub(self.expired)
    }

    /// How many of these are in the index. Expired points count for nothing here either, as if all of them were in the index.
    pub fn indexed(&self) -> u64 {
        self.points().saturating_sub(self.tail)
    }
}

/// Counters that readers add to, on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
struct SearchCounters {
    filter_rejects: AtomicU64,
    filter_gates: AtomicU64,
    filter_complement_gates: AtomicU64,
    filter_column_gates: AtomicU64,
    distances: AtomicU64,
}

/// The shared, readable side. `Sync`.
pub struct Dense {
    config: DenseConfig,
    domain: Arc<Domain>,
    /// Vectors and their codes, and edges where there is no other index.
    graph: Graph,
    /// Where the index is one of cells.
    cells: Option<CellsCell>,
    /// How many are searched, 0 before there are any.
    cell_count: AtomicU64,
    meta: Meta,
    tail: Tail,
    ids: IdMap,
    /// Every slot that holds a row, dead ones until they are freed.
    index: PayloadIndex,
    lanes: Lanes,
    /// Writes up to here are visible.
    published_seq: AtomicU64,
    /// Slots ever used; every slot that anything leads to is below.
    slots: AtomicU64,
    /// Gauges kept by the owner.
    live: AtomicU64,
    expired: AtomicU64,
    tombstoned: AtomicU64,
    tail_live: AtomicU64,
    /// Bytes of the graph and of what only the owner has.
    owner_bytes: AtomicU64,
    column_drops: AtomicU64,
    counters: SearchCounters,
}

/// The owner's side: the only handle that changes anything. `Send`, one per collection.
pub struct DenseWriter {
    shared: Arc<Dense>,
    /// The right to free payload rows.
    rows: RowsOwner,
    slots_max: usize,
    /// Slots whose memory was asked for ahead of their use, and all below.
    populated: usize,
    /// Last applied sequence number.
    seq: u64,
    /// Slots ready for reuse, last freed first.
    free: Vec<Slot>,
    /// Free slots whose vector in the file the newest durable image still names: not to be written before there is another.
    held: Vec<Slot>,
    /// The quantizer whose codes of all points are in images; 0 = none.
    imaged_codes: u8,
    /// Ids present, for ascending walks.
    ordered_ids: BTreeSet<u64>,
    /// Versions of those that are not.
    gone: Gone,
    /// What has expired and is still present.
    expiry: Expiry,
    /// (deadline, id) of ids present that have one.
    deadlines: BTreeSet<(u64, u64)>,
    /// (deadline, id) of ids present whose row has a key that expires, by the earliest of them.
    key_deadlines: BTreeSet<(u64, u64)>,
    /// Slots that still need a closer look because of their birth: (slot, born).
    newborn: Vec<(Slot, u64)>,
    /// So many of them make a look worth while.
    newborn_look: usize,
    /// An older batch of them, waiting for readers with snapshots before their births.
    settling: Option<(RetireTag, Vec<(Slot, u64)>)>,
    /// Dead slots nothing leads to and replaced rows, waiting for readers.
    limbo: Limbo<Retired>,
    /// Dead slots no reader can see, to be freed.
    freeing: Vec<Slot>,
    /// Slots whose vectors are gone, but for their codes.
    bare: SlotSet,
    passed: Passed,
    /// The open indexing round and the tail position after its last slot.
    round: Option<(Arc<Round>, u64)>,
    /// The open round once it is planned, while its nodes are linked.
    committing: Option<Commit>,
    /// Of a collection of cells.
    filing: Option<Filing>,
    /// Slots that have left the tail, dead ones included.
    linked: usize,
    /// Dead slots in the graph that no repair pass has taken on.
    dead_linked: Vec<Slot>,
    pass: Option<repair::Pass>,
    /// See `repair_owed`.
    repair_owed: usize,
    /// Steps that the writes since the last `reclaim` ask of the next.
    reclaim_owed: usize,
    scratch: Scratch,
    lanes: LaneWriters,
    /// Padded vector being written.
    prepared: Vec<f32>,
    dirty: Dirty,
    capture: Option<capture::Capture>,
    restoring: Option<restore::Restoring>,
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn owned<T: Send>() {}
    shared::<Dense>();
    owned::<DenseWriter>();
};

impl Dense {
    /// Configuration.
    pub fn config(&self) -> &DenseConfig {
        &self.config
    }

    /// Any core: which quantizer's codes walks go over; 0 = none. Another one has another number.
    pub fn codes_number(&self) -> u8 {
        self.graph.codes_number()
    }

    /// Any core: what walks go over by now: `"float"` (the vectors), `"int8"`, the codes of the quantizer, by its name, or
    /// `"ivf_pq"`, those in cells.
    pub fn walks_over(&self) -> &'static str {
        if self.config.ivf().is_some_and(|ivf| ivf.product.is_some())
            && self.cell_count.load(Ordering::Relaxed) > 0
        {
            return "ivf_pq";
        }
        match (self.graph.is_quantized(), self.graph.code_step()) {
            (true, _) => self.config.quant.name(),
            (false, Some(_)) => "int8",
            (false, None) => "float",
        }
    }

    /// Any core: a live point. With one id-map look-up and one cache line; never misses an id that is being replaced.
    pub fn get<'p>(&'p self, pin: &'p Pin<'_>, id: u64, now_ms: u64) -> Option<Point<'p>> {
        // The snapshot comes before the look-up. A slot found dead at the snapshot then means the id was absent: were it
        // replaced, the map would have led to the new slot. A slot born after the snapshot is newer than asked for, which
        // is as good.
        let seq = self.published_seq.load(Ordering::Acquire);
        let slot = self.ids.get(pin, id)?;
        (self.meta.survives(slot, seq) && !meta::expired(self.meta.deadline_ms(slot), now_ms))
            .then(|| self.point(pin, slot))
    }

    /// The payload row behind a hit of the same pin, empty = none. The owner may give the slot another row at any time, so a second call
    /// may return another one; both stay until the pin drops.
    pub fn row<'p>(&'p self, pin: &'p Pin<'_>, slot: Slot) -> &'p [u8] {
        self.row_and_version(pin, slot).0
    }

    fn row_and_version<'p>(&'p self, pin: &'p Pin<'_>, slot: Slot) -> (&'p [u8], u64) {
        self.meta.rows_under(pin).row_and_version(slot)
    }

    /// Point behind a hit of the same pin.
    pub fn point<'p>(&'p self, pin: &'p Pin<'_>, slot: Slot) -> Point<'p> {
        let (row, version) = self.row_and_version(pin, slot);
        Point {
            id: self.meta.id(slot),
            version,
            vector: match self.stored_vector(pin, slot) {
                Cow::Borrowed(vector) => Cow::Borrowed(&vector[..self.config.dim]),
                Cow::Owned(mut vector) => {
                    vector.truncate(self.config.dim);
                    Cow::Owned(vector)
                }
            },
            row,
            deadline_ms: self.meta.deadline_ms(slot),
        }
    }

    /// Any core. Gauges are exact between two writes; `bytes` follows with the next `reclaim`.
    pub fn stats(&self) -> Stats {
        let slots = self.slots.load(Ordering::Relaxed);
        Stats {
            live: self.live.load(Ordering::Relaxed),
            expired: self.expired.load(Ordering::Relaxed),
            tombstoned: self.tombstoned.load(Ordering::Relaxed),
            tail: self.tail_live.load(Ordering::Relaxed),
            slots,
            sparse_vectors: self.lanes.sparse_vectors(),
            bytes: self.meta.bytes(slots)
                + self.meta.row_bytes()
                + self.tail.bytes()
                + self.ids.bytes() as u64
                + self.index.bytes()
                + self.lanes.bytes()
                + self.owner_bytes.load(Ordering::Relaxed),
            filter_rejects: self.counters.filter_rejects.load(Ordering::Relaxed),
            filter_gates: self.counters.filter_gates.load(Ordering::Relaxed),
            filter_complement_gates: self.counters.filter_complement_gates.load(Ordering::Relaxed),
            filter_column_gates: self.counters.filter_column_gates.load(Ordering::Relaxed),
            filter_column_drops: self.column_drops.load(Ordering::Relaxed),
            distances: self.counters.distances.load(Ordering::Relaxed),
        }
    }

    /// Any core: begins the plan of node `index` of `round` (see [`Planner::start`]).
    pub fn plan_start(&self, planner: &mut Planner, round: &Round, index: usize) {
        planner.start(&self.graph, round, index);
    }

    /// Any core: plans in slices of about `max_distances` distances; the plan when done. Between `begin_round` and
    /// the end of the commit no pin is needed, as the owner frees no slot.
    pub fn plan_step(&self, planner: &mut Planner, round: &Round, max_distances: usize) -> Option<NodePlan> {
        planner.step(&self.graph, round, max_distances, |slot| self.meta.is_dead(slot))
    }

    /// Any core: the second phase of a round, for one target. As `plan_step`, inside the round only.
    pub fn plan_target(&self, job: &TargetJob, scratch: &mut Scratch) -> TargetPlan {
        self.graph.plan_target(job, scratch)
    }
}

impl Drop for Dense {
    fn drop(&mut self) {
        self.meta.free_rows(self.slots.load(Ordering::Relaxed) as usize);
    }
}
