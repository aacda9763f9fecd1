//! The points of a collection without their vectors: ids, versions, deadlines, payload rows, what finds points by their payloads, and which
//! of them a reader sees. [`PointsWriter`] is the owner's handle, [`Points`] what any core reads.
//!
//! A point lies in a *slot*, a number that its vectors have in every space. A space asks little of the points: whether a slot is dead,
//! whether a snapshot shows it and which id it has, what matches a filter ([`View`]), and, for the owner, how many points there are and
//! which. It says when nothing in it leads to a slot any more (`PointsWriter::let_go`); a point may have vectors in several spaces, or in
//! none. Points know nothing else of spaces.
//!
//! # Invariants
//!
//! 1. *Snapshots.* A reader loads `published_seq` once, after it pinned, and sees exactly the slots with
//!    `born <= seq < died` whose deadline has not passed. At every sequence number each id has at most one such slot, so no
//!    result holds an id twice and a replaced id is never missing.
//! 2. *Order of a write.* Row and line of the new slot; payload index, sparse and text lists; what spaces have of it; id map; death of the
//!    old slot; `published_seq` (Release). What a snapshot includes is therefore in place for every reader that has it.
//! 3. *Reuse.* A slot is freed only when no id and nothing in any space leads to it, and every reader that could have seen it has unpinned.
//!    Where vectors lie in a file, it is also not reused before an image without it is durable.
//! 4. A payload is replaced in its slot (`rewrite.rs`): row and version in one store, a snapshot does not keep the old ones. What a
//!    reader looks up, asks and returns is each the row of some moment of its pin; a filter that holds before and after a
//!    replacement finds the point.
//! 5. A version is never given twice to one id (`gone.rs`).
//! 6. All methods of [`PointsWriter`] run on one thread at a time; nothing else changes anything.
mod expiry;
mod filing;
mod gone;
mod images;
mod lane_search;
mod lanes;
mod matching;
mod meta;
mod parents;
mod phrase_search;
mod reclaim;
mod rewrite;
mod row_block;
mod sparse_lists;
mod view;
mod writer;

use super::stats::{Stats, Usage};
use crate::filter::cost::Situation;
use crate::filter::narrow::Lists;
use crate::filter::planner::{self, GatePlan, Plan, plan};
use crate::filter::{Estimate, Path, Predicate};
use crate::memory::{Domain, IdMap, Limbo, Pin, RetireTag};
use crate::payload::index::{PayloadIndex, View as IndexView};
use crate::slot::Slot;
use crate::text::TextIndex;
use ahash::HashMap;
use expiry::Expiry;
use lanes::LaneWriters;
use meta::{Meta, RowsOwner};
use parents::Parents;
use rewrite::KeyDeadlines;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use filing::RowsToFile;
pub(crate) use gone::Gone;
pub(crate) use images::Changes;
pub(crate) use lane_search::Listing;
pub use lane_search::{HitsWanted, SparseQuery};
pub(crate) use matching::Sought;
pub use matching::{MatchCursor, Matching};
pub(crate) use meta::Birth;
pub(crate) use parents::{ParentsView, RefusedParents};
pub(crate) use reclaim::{Retired, Unseen, UnseenCodes, UnseenSlot, UnseenVectors, slot_steps};
pub(crate) use rewrite::Rewritten;
pub use rewrite::RowWrite;
pub(crate) use sparse_lists::DroppedSparseSpace;
pub use sparse_lists::SparseSpace;
pub(crate) use view::View;
pub(crate) use writer::{Buried, PointsConfig, Quota};

/// A number that searches of any core add to, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Rejects(AtomicU64);

/// The shared, readable side. `Sync`.
pub struct Points {
    domain: Arc<Domain>,
    meta: Meta,
    parents: Parents,
    ids: IdMap,
    /// Every slot that holds a row, dead ones until they are freed.
    index: PayloadIndex,
    /// The full-text lane; `None` where texts are not searched.
    text: Option<Arc<TextIndex>>,
    /// Writes up to here are visible.
    published_seq: AtomicU64,
    /// Slots ever used; every slot that anything leads to is below.
    slots: AtomicU64,
    /// Gauges kept by the owner.
    live: AtomicU64,
    expired: AtomicU64,
    tombstoned: AtomicU64,
    /// Bytes of what only the owner has.
    owner_bytes: AtomicU64,
    column_drops: AtomicU64,
    /// Candidates that filters refused.
    rejects: Rejects,
}

/// The owner's side: the only handle that changes anything. `Send`, one per collection.
pub struct PointsWriter {
    shared: Arc<Points>,
    /// The right to free payload rows, which nobody has while rows are filed on another thread.
    rows: Arc<RowsOwner>,
    slots_max: usize,
    quota: Quota,
    /// Last applied sequence number.
    seq: u64,
    /// Slots ready for reuse, last freed first.
    free: Vec<Slot>,
    /// Whether a freed slot waits for an image: the newest durable one may name its vector in a file.
    holds_freed: bool,
    /// Free slots that wait for it.
    held: Vec<Slot>,
    /// While a snapshot is read, slots that would be free without it.
    kept_for_snapshots: Option<Vec<Slot>>,
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
    /// Dead slots that several spaces have vectors of: how many of these, but for one, have yet to let go of it.
    awaited: HashMap<Slot, usize>,
    /// Dead slots nothing leads to, replaced rows, and what spaces have put aside, waiting for readers.
    limbo: Limbo<Retired>,
    /// Dead slots no reader can see, to be freed.
    freeing: Vec<Slot>,
    /// Steps that the writes since the last reclamation ask of the next.
    reclaim_owed: usize,
    lanes: LaneWriters,
    /// Slots that changed since the last image.
    changes: Changes,
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn owned<T: Send>() {}
    shared::<Points>();
    owned::<PointsWriter>();
};

/// What a space asks, on any core.
impl Points {
    /// Whether a reader with snapshot `seq` sees the slot.
    #[inline]
    pub(crate) fn visible(&self, slot: Slot, seq: u64, now_ms: u64) -> bool {
        self.meta.visible(slot, seq, now_ms)
    }

    /// As [`Self::visible`], where [`Self::special_word`] says that the slot needs a closer look.
    #[inline]
    pub(crate) fn visible_by_line(&self, slot: Slot, seq: u64, now_ms: u64) -> bool {
        self.meta.visible_by_line(slot, seq, now_ms)
    }

    /// One bit for each of the slots `64 * index ..`: whether it needs a closer look. One without is visible.
    #[inline]
    pub(crate) fn special_word(&self, index: usize) -> u64 {
        self.meta.special_word(index)
    }

    /// Whether the slot's death lies after `seq`.
    pub(crate) fn survives(&self, slot: Slot, seq: u64) -> bool {
        self.meta.survives(slot, seq)
    }

    /// Whether the slot has died (or was never used).
    #[inline]
    pub(crate) fn is_dead(&self, slot: Slot) -> bool {
        self.meta.is_dead(slot)
    }

    /// The id of the point in a slot.
    #[inline]
    pub(crate) fn id(&self, slot: Slot) -> u64 {
        self.meta.id(slot)
    }

    /// The sequence number at which a slot died.
    pub(crate) fn died(&self, slot: Slot) -> u64 {
        self.meta.died(slot)
    }

    /// Asks for what [`Self::visible_by_line`] looks at. A hint.
    #[inline]
    pub(crate) fn prefetch_line(&self, slot: Slot) {
        self.meta.prefetch_line(slot);
    }

    /// Asks for the first of a slot's row, whose line is at hand. A hint.
    #[inline]
    pub(crate) fn prefetch_row(&self, slot: Slot) {
        self.meta.prefetch_row(slot);
    }

    /// Every slot that a snapshot taken before includes is below.
    #[inline]
    pub(crate) fn slots(&self) -> Slot {
        self.slots.load(Ordering::Acquire) as Slot
    }

    /// A situation with the numbers of points as of now. They are read after the snapshot of a search, so that all slots that it shows are
    /// within what the planner lists.
    pub(crate) fn counted(&self, situation: Situation) -> Situation {
        Situation { live: self.live(), filed: self.filed(), slots: self.slots() as usize, ..situation }
    }

    /// Points present, expired ones that are not swept included.
    pub(crate) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Slots that hold a point, dead ones included.
    pub(crate) fn filed(&self) -> u64 {
        self.live() + self.tombstoned.load(Ordering::Relaxed)
    }

    /// Owner: the slot of an id that is present.
    pub(crate) fn slot_of(&self, id: u64) -> Option<Slot> {
        self.ids.get_owned(id)
    }

    /// What the pins and retirements of the collection belong to.
    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Bytes of what there is for each of `slots` slots.
    pub(crate) fn slot_bytes(&self, slots: u64) -> u64 {
        self.meta.bytes(slots) + self.parents.bytes(slots)
    }

    /// What finds slots by values.
    #[inline]
    pub(crate) fn index<'p>(&'p self, pin: &'p Pin<'_>) -> IndexView<'p> {
        self.index.view(pin)
    }

    /// The planner's choice. One that leaves points out by complements holds only if no row was replaced since `view` was taken, or
    /// every point is asked.
    pub(crate) fn planned<'p>(
        &'p self,
        filter: &Predicate,
        pin: &'p Pin<'_>,
        lists: &Lists<'_>,
        situation: &Situation,
        view: &View<'_>,
    ) -> (Plan<'p>, Estimate) {
        let (chosen, estimate) = plan(filter, self.index.view(pin), lists, situation);
        if estimate.by_complement && view.was_replaced() {
            return (Plan::Everything, Estimate { path: Path::Everything, ..estimate });
        }
        (chosen, estimate)
    }

    /// The share of the points that the payload index expects to match; `None` if it cannot estimate it.
    pub(crate) fn expected_share(
        &self,
        filter: &Predicate,
        pin: &Pin<'_>,
        lists: &Lists<'_>,
        situation: &Situation,
    ) -> Option<f64> {
        planner::expected_share(filter, self.index.view(pin), lists, situation)
    }

    /// A gate for the points that match and the nanoseconds that it takes to build, see [`planner::gate_of`].
    pub(crate) fn gate_of<'p>(
        &'p self,
        filter: &Predicate,
        pin: &'p Pin<'_>,
        lists: &Lists<'_>,
        situation: &Situation,
    ) -> Option<(GatePlan<'p>, f64)> {
        planner::gate_of(filter, self.index.view(pin), lists, situation)
    }

    /// Adds to the number of candidates that filters refused.
    pub(crate) fn count_rejects(&self, rejects: u64) {
        if rejects > 0 {
            self.rejects.0.fetch_add(rejects, Ordering::Relaxed);
        }
    }
}

impl Points {
    /// Any core: the slot of a live point. With one id-map look-up and one cache line; never misses an id that is being replaced.
    pub fn find(&self, pin: &Pin<'_>, id: u64, now_ms: u64) -> Option<Slot> {
        // The snapshot comes before the look-up. A slot found dead at the snapshot then means the id was absent: were it
        // replaced, the map would have led to the new slot. A slot born after the snapshot is newer than asked for, which
        // is as good.
        let seq = self.published_seq.load(Ordering::Acquire);
        let slot = self.ids.get(pin, id)?;
        (self.meta.survives(slot, seq) && !meta::expired(self.meta.deadline_ms(slot), now_ms)).then_some(slot)
    }

    /// Any core: the payload row behind a hit of the same pin, empty = none. The owner may give the slot another row at any time, so a
    /// second call may return another one; both stay until the pin drops.
    pub fn row<'p>(&'p self, pin: &'p Pin<'_>, slot: Slot) -> &'p [u8] {
        self.row_and_version(pin, slot).0
    }

    /// As [`Self::row`], with the version of the point that has it.
    pub(crate) fn row_and_version<'p>(&'p self, pin: &'p Pin<'_>, slot: Slot) -> (&'p [u8], u64) {
        self.meta.rows_under(pin).row_and_version(slot)
    }

    /// The deadline of the point in a slot, 0 = none.
    pub(crate) fn deadline_ms(&self, slot: Slot) -> u64 {
        self.meta.deadline_ms(slot)
    }

    /// Any thread: gives slots `from..to` their memory, written or not.
    pub(crate) fn populate(&self, from: usize, to: usize) {
        self.meta.populate(from, to);
    }

    /// Adds the figures of points.
    pub(crate) fn add_to_stats(&self, stats: &mut Stats) {
        let slots = self.slots.load(Ordering::Relaxed);
        stats.live = self.live();
        stats.expired = self.expired.load(Ordering::Relaxed);
        stats.tombstoned = self.tombstoned.load(Ordering::Relaxed);
        stats.slots = slots;
        stats.bytes += self.slot_bytes(slots)
            + self.meta.row_bytes()
            + self.ids.bytes() as u64
            + self.index.bytes()
            + self.text_bytes()
            + self.owner_bytes.load(Ordering::Relaxed);
        stats.filter_rejects = self.rejects.0.load(Ordering::Relaxed);
        stats.filter_column_drops = self.column_drops.load(Ordering::Relaxed);
    }

    /// Adds what points take.
    pub(crate) fn add_to_usage(&self, usage: &mut Usage) {
        let slots = self.slots.load(Ordering::Relaxed);
        usage.slots = self.slot_bytes(slots);
        usage.rows = self.meta.row_bytes();
        usage.ids = self.ids.bytes() as u64;
        usage.payload_index = self.index.bytes();
        usage.lanes += self.text_bytes();
        usage.graph += self.owner_bytes.load(Ordering::Relaxed);
        usage.file_index += self.meta.file_bytes(slots);
    }

    fn text_bytes(&self) -> u64 {
        self.text.as_ref().map_or(0, |text| text.bytes())
    }

    /// Heap bytes of all rows, including rows of dead points that have not been freed.
    pub(crate) fn rows_bytes(&self) -> u64 {
        self.meta.row_bytes()
    }

    /// Bytes that a payload row of `row_bytes` takes, about, with its terms in the payload index, which take as much again more or less.
    pub(crate) fn row_cost(row_bytes: usize) -> u64 {
        2 * row_block::row_cost(row_bytes)
    }
}

impl Drop for Points {
    fn drop(&mut self) {
        self.meta.free_rows(self.slots.load(Ordering::Relaxed) as usize);
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
