//! Vectors of points and what finds points by them: codes, an index (a graph or inverted lists), and the tail of what is not in the index
//! yet. [`SpaceWriter`] is the owner's handle, [`Space`] what any core searches.
//!
//! A space names its vectors by the slots of [`Points`], of which it asks what `points/mod.rs` lists. The owner's calls that ask more get
//! the [`PointsWriter`] beside.
//!
//! # Invariants
//!
//! 1. *Index or tail.* The vector of a live slot is in the index, in the tail window, or both (`tail.rs`). It is there before the points
//!    show the slot.
//! 2. *Reuse.* A space lets go of a dead slot when nothing in it leads there (no tail entry before `start`, no edge of any linked slot).
//!    No slot is freed while an indexing round is open, since planners hold no pin.
//! 3. A dead slot of a graph (a cell just loses it) stays a way-point until a repair pass has led all edges around it (`repair.rs`).
//! 4. Where vectors are given up for codes (`bare.rs`) a filed slot's vector is what its code stands for, from the moment it is filed; its
//!    floats go when no reader is left that may have found it in the tail.
//! 5. *Absence.* A slot whose point has no vector here is in neither index nor tail, and no bit of the holdings says otherwise. The bit is set
//!    before the points show the slot, and cleared when the slot is freed.
//! 6. All methods of [`SpaceWriter`] run on one thread at a time; nothing else changes anything.
mod admission;
mod bare;
mod births;
mod by_code;
mod cell_order;
mod device;
mod filing;
mod hit;
mod holdings;
mod images;
mod index;
mod probe;
mod probe_codes;
mod repair;
mod restore;
mod rounds;
mod scan;
mod scorer;
mod search;
mod search_state;
mod tail;
mod training;
mod tuning;
mod walk;
mod writer;

use super::config::DenseConfig;
use super::points::{Points, PointsWriter, Retired};
use super::slot_set::SlotSet;
use super::stats::{Stats, Usage};
use crate::index::{Graph, NodePlan, Planner, Round, Scratch, TargetJob, TargetPlan};
use crate::memory::{ArenaError, Pin};
use crate::quantizer::Watch;
use crate::slot::Slot;
use births::Births;
use filing::Filing;
use holdings::Holdings;
use index::{Index, IndexWriter};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tail::{Passed, Tail};
use tuning::LiveTuning;

pub use device::Moment;
pub use filing::{Filed, FilingRound};
pub use hit::Hit;
pub(crate) use hit::by_distance_then_id;
#[cfg(test)]
pub(crate) use images::CODEC_PIECE;
pub(crate) use images::{Changes, LearnedImage};
pub use index::CellsInfo;
pub(crate) use restore::RestoringSpace;
pub(crate) use search::Among;
pub use search::Query;
pub use search_state::Explain;
pub use training::{Clustering, TrainingSample, TrainingTicket};
pub(crate) use writer::reserve_vectors;

/// Counters that readers add to, on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
struct SearchCounters {
    filter_gates: AtomicU64,
    filter_complement_gates: AtomicU64,
    filter_column_gates: AtomicU64,
    distances: AtomicU64,
}

/// The shared, readable side. `Sync`.
pub struct Space {
    config: DenseConfig,
    /// The values of the configuration that may change while searches run.
    tuning: LiveTuning,
    /// Whose vectors these are.
    points: Arc<Points>,
    holdings: Holdings,
    /// Vectors and their codes, and edges where the index is a graph.
    graph: Graph,
    index: Index,
    tail: Tail,
    tail_live: AtomicU64,
    /// Slots born since a device has asked.
    births: Births,
    /// Bytes of the index and of what only the owner has.
    owner_bytes: AtomicU64,
    counters: SearchCounters,
}

/// The owner's side: the only handle that changes anything. `Send`, one per space.
pub struct SpaceWriter {
    shared: Arc<Space>,
    /// Its number among the spaces of the collection.
    number: usize,
    index: IndexWriter,
    /// Slots that have left the tail, dead ones included.
    linked: usize,
    /// Dead slots in the index that no repair pass has taken on.
    dead_linked: Vec<Slot>,
    /// The quantizer whose codes of all points are in images; 0 = none.
    imaged_codes: u8,
    /// Slots whose vectors are gone, but for their codes.
    bare: SlotSet,
    passed: Passed,
    /// Padded vector being written.
    prepared: Vec<f32>,
    /// What changed since the last image.
    changes: Changes,
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn owned<T: Send>() {}
    shared::<Space>();
    owned::<SpaceWriter>();
};

impl Space {
    /// What it was made with. Values that may change while it is searched are as they were then.
    pub fn config(&self) -> &DenseConfig {
        &self.config
    }

    /// Any core: whether the point in a slot that the caller's pin keeps has a vector here.
    #[inline]
    pub fn holds(&self, slot: Slot) -> bool {
        self.holdings.contains(slot)
    }

    /// Whether it was dropped: then it stands for a number that is not given again, and no point has a vector in it.
    pub fn is_dropped(&self) -> bool {
        matches!(self.holdings, Holdings::None)
    }

    /// Vectors of points that are present, expired ones that are not swept included.
    pub fn vectors(&self) -> u64 {
        self.holdings.live().unwrap_or_else(|| self.points.live())
    }

    /// Any core: which quantizer's codes walks go over; 0 = none. Another one has another number.
    pub fn codes_number(&self) -> u8 {
        self.graph.codes_number()
    }

    /// Any core: what walks go over by now: `"float"` (the vectors), `"int8"`, the codes of the quantizer, by its name, or
    /// `"ivf_pq"`, those in cells.
    pub fn walks_over(&self) -> &'static str {
        if self.index.probes_codes() {
            return "ivf_pq";
        }
        match (self.graph.is_quantized(), self.graph.code_step()) {
            (true, _) => self.config.quant.name(),
            (false, Some(_)) => "int8",
            (false, None) => "float",
        }
    }

    /// Any core: begins the plan of node `index` of `round` (see [`Planner::start`]).
    pub fn plan_start(&self, planner: &mut Planner, round: &Round, index: usize) {
        planner.start(&self.graph, round, index);
    }

    /// Any core: plans in slices of about `max_distances` distances; the plan when done. Between the beginning of a round and
    /// the end of its commit no pin is needed, as the owner frees no slot.
    pub fn plan_step(&self, planner: &mut Planner, round: &Round, max_distances: usize) -> Option<NodePlan> {
        planner.step(&self.graph, round, max_distances, |slot| self.points.is_dead(slot))
    }

    /// Any core: the second phase of a round, for one target. As `plan_step`, inside the round only.
    pub fn plan_target(&self, job: &TargetJob, scratch: &mut Scratch) -> TargetPlan {
        self.graph.plan_target(job, scratch)
    }

    /// Any thread: gives slots `from..to` their memory, written or not.
    pub(crate) fn populate(&self, from: usize, to: usize) {
        if !self.is_dropped() {
            self.graph.populate(from, to, self.index.has_edges());
        }
    }

    /// Bytes of what there is for each slot.
    pub(crate) fn bytes_per_slot(&self) -> u64 {
        if self.is_dropped() { 0 } else { self.graph.bytes_per_slot() as u64 }
    }

    /// Bytes of a stored vector; 0 in a space that was dropped.
    pub(crate) fn row_bytes(&self) -> usize {
        if self.is_dropped() { 0 } else { self.graph.vectors().row_len() * size_of::<f32>() }
    }

    /// Whether the point in a slot lives and has a vector here.
    fn lives(&self, slot: Slot) -> bool {
        !self.points.is_dead(slot) && self.holds(slot)
    }

    /// Owner: whether a present point has a vector here.
    fn has_vector_of(&self, id: u64) -> bool {
        self.holdings.live().is_none() || self.points.slot_of(id).is_some_and(|slot| self.holds(slot))
    }

    /// Live points that are in the tail.
    pub(crate) fn tail_len(&self) -> u64 {
        self.tail_live.load(Ordering::Relaxed)
    }

    /// Counts what was counted in a space whose number this one has, so that sums over all spaces never become less.
    pub(crate) fn inherit_counters(&self, from: &Space) {
        for (ours, theirs) in [
            (&self.counters.filter_gates, &from.counters.filter_gates),
            (&self.counters.filter_complement_gates, &from.counters.filter_complement_gates),
            (&self.counters.filter_column_gates, &from.counters.filter_column_gates),
            (&self.counters.distances, &from.counters.distances),
        ] {
            ours.fetch_add(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Adds the figures of vectors and searches.
    pub(crate) fn add_to_stats(&self, stats: &mut Stats) {
        stats.tail += self.tail_len();
        stats.bytes += self.tail.bytes() + self.owner_bytes.load(Ordering::Relaxed);
        stats.filter_gates += self.counters.filter_gates.load(Ordering::Relaxed);
        stats.filter_complement_gates += self.counters.filter_complement_gates.load(Ordering::Relaxed);
        stats.filter_column_gates += self.counters.filter_column_gates.load(Ordering::Relaxed);
        stats.distances += self.counters.distances.load(Ordering::Relaxed);
    }

    /// Adds what vectors and their index take.
    pub(crate) fn add_to_usage(&self, usage: &mut Usage) {
        let codes = self.graph.memory_code_bytes() as u64;
        let (file_vectors, file_index) = self.graph.file_bytes(self.index.has_edges());
        // Measured by the owner now and then, codes included.
        usage.graph = (usage.graph + self.owner_bytes.load(Ordering::Relaxed)).saturating_sub(codes);
        usage.codes += codes;
        usage.tail += self.tail.bytes();
        usage.file_vectors += file_vectors as u64;
        usage.file_index += file_index as u64;
    }

    /// Of [`Usage::file_vectors`], bytes that are in memory now, of a large collection by sample: some 10 µs per 4 MiB, at most 64 times.
    pub fn resident_vector_bytes(&self) -> u64 {
        self.graph.resident_vector_bytes() as u64
    }

    /// Looks whether vectors of a file have left memory, so that searches have them fetched in advance; nothing to do where they lie in
    /// none. Some 100 µs.
    pub fn note_residency(&self) {
        self.graph.note_residency();
    }

    /// Any core, under the pin: of `rows`, read from the file of vectors from slot `first` on, the first that is not what was written there
    /// for a point that lives. One that differs is looked at in memory as well, as another may have come there since it was read.
    pub fn differs(&self, pin: &Pin<'_>, first: Slot, rows: &[u8]) -> Option<Slot> {
        let end = self.points.slots();
        let read = (first..end).zip(rows.chunks_exact(self.row_bytes()));
        let mut suspects = read
            .filter(|&(slot, row)| self.graph.checksum(slot).is_some_and(|sum| crc32c::crc32c(row) != sum))
            .map(|(slot, _)| slot);
        suspects.find(|&slot| !self.is_sound(pin, slot, slot + 1))
    }

    /// Any core, under the pin: whether the vectors of slots `from..to` that hold a point are what was written there. Where they lie
    /// in no file there is nothing to ask.
    pub fn is_sound(&self, pin: &Pin<'_>, from: Slot, to: Slot) -> bool {
        let _ = pin;
        let end = self.points.slots().min(to);
        (from..end).filter(|&slot| self.lives(slot)).all(|slot| self.graph.is_sound(slot))
    }
}

/// What tests of collections look at.
#[cfg(test)]
impl Space {
    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    pub(crate) fn tail(&self) -> &Tail {
        &self.tail
    }
}

/// As above.
#[cfg(test)]
impl SpaceWriter {
    pub(crate) fn filing(&self) -> Option<&Filing> {
        self.index.filing()
    }
}

/// One writer: plain load and store.
fn add(gauge: &AtomicU64, n: u64) {
    gauge.store(gauge.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

/// See [`add`].
fn sub(gauge: &AtomicU64, n: u64) {
    gauge.store(gauge.load(Ordering::Relaxed) - n, Ordering::Relaxed);
}
