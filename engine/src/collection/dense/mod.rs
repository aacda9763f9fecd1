//! A dense collection: points and one space of vectors. [`DenseWriter`] is the owner's handle, [`Dense`] what any core reads.
//!
//! # Invariants
//!
//! Those of `points` and `space`, and these:
//!
//! 1. *Order of a write.* The vector of the new slot; its row and line, payload index, sparse and text lists; its entry in the tail; then the
//!    points show it. What a snapshot includes is therefore in place for every reader that has it.
//! 2. *Reuse.* A slot is freed by the space first, then by the points, and never while an indexing round is open (planners hold no pin).
//! 3. All methods of [`DenseWriter`] run on one thread at a time; nothing else changes anything.
mod ahead;
mod capture;
mod dirty;
mod indexing;
mod restore;
#[cfg(test)]
mod tests;
mod writer;

use super::config::DenseConfig;
use super::error::{SearchError, WriteError};
use super::points::{HitsWanted, Listing, MatchCursor, Matching, Points, PointsWriter, Sought};
use super::space::{Explain, Hit, Moment, Query, Space, SpaceWriter};
use super::stats::{Stats, Usage};
use crate::filter::Predicate;
use crate::index::Scratch;
use crate::memory::Pin;
use crate::pace::Pace;
use crate::slot::Slot;
use crate::sparse::{LaneHit, LaneScratch};
use crate::text::TextQuery;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

pub use restore::RestoreError;
pub use writer::{Write, WriteMode};

/// An id takes some 16 bytes of the map of ids, 12 of the ordered set and 4 of the tail.
const BYTES_PER_ID: u64 = 32;

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

/// The shared, readable side. `Sync`.
pub struct Dense {
    config: DenseConfig,
    points: Arc<Points>,
    space: Arc<Space>,
}

/// The owner's side: the only handle that changes anything. `Send`, one per collection.
pub struct DenseWriter {
    shared: Arc<Dense>,
    points: PointsWriter,
    space: SpaceWriter,
    /// Slots whose memory was asked for ahead of their use, and all below.
    populated: usize,
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

    /// Its points.
    pub fn points(&self) -> &Points {
        &self.points
    }

    /// Their vectors.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Any core: a live point. With one id-map look-up and one cache line; never misses an id that is being replaced.
    pub fn get<'p>(&'p self, pin: &'p Pin<'_>, id: u64, now_ms: u64) -> Option<Point<'p>> {
        self.points.find(pin, id, now_ms).map(|slot| self.point(pin, slot))
    }

    /// The payload row behind a hit of the same pin: see [`Points::row`].
    pub fn row<'p>(&'p self, pin: &'p Pin<'_>, slot: Slot) -> &'p [u8] {
        self.points.row(pin, slot)
    }

    /// Point behind a hit of the same pin.
    pub fn point<'p>(&'p self, pin: &'p Pin<'_>, slot: Slot) -> Point<'p> {
        let (row, version) = self.points.row_and_version(pin, slot);
        let dim = self.config.dim;
        Point {
            id: self.points.id(slot),
            version,
            vector: match self.space.stored_vector(pin, slot) {
                Cow::Borrowed(vector) => Cow::Borrowed(&vector[..dim]),
                Cow::Owned(mut vector) => {
                    vector.truncate(dim);
                    Cow::Owned(vector)
                }
            },
            row,
            deadline_ms: self.points.deadline_ms(slot),
        }
    }

    /// Any core. Gauges are exact between two writes; `bytes` follows with the next `reclaim`.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        self.points.add_to_stats(&mut stats);
        self.space.add_to_stats(&mut stats);
        stats
    }

    /// Any core: memory by part. Costs nothing to speak of.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        self.points.add_to_usage(&mut usage);
        self.space.add_to_usage(&mut usage);
        usage
    }

    /// Bytes that a new point with a payload row of `row_bytes` takes, about: in a new slot, or in that of a point that is gone. The row's
    /// terms in the payload index take as much again as it does, more or less; what was taken in truth shows in [`Stats::bytes`].
    #[inline]
    pub fn bytes_of_point(&self, row_bytes: usize, new_slot: bool) -> u64 {
        let slot = match new_slot {
            true => self.bytes_of_slots(1) + BYTES_PER_ID,
            false => 0,
        };
        slot + Points::row_cost(row_bytes)
    }

    /// Bytes of what there is for each of `slots` slots, used or not.
    fn bytes_of_slots(&self, slots: u64) -> u64 {
        slots * self.space.bytes_per_slot() + self.points.slot_bytes(slots)
    }

    /// Any thread: gives slots their memory, written or not, as [`DenseWriter::pages_due`] asks. Milliseconds.
    ///
    /// # Panics
    /// When a slot is beyond what the collection may grow to.
    pub fn populate(&self, slots: Range<Slot>) {
        let (from, to) = (slots.start as usize, slots.end as usize);
        self.space.populate(from, to);
        self.points.populate(from, to);
    }

    /// Any thread that holds a seat: the collection as of now.
    pub fn moment<'p>(&'p self, pin: &'p Pin<'_>, now_ms: u64) -> Moment<'p> {
        self.space.moment(pin, now_ms)
    }

    /// Any core: see [`Space::search`].
    ///
    /// # Errors
    /// As that.
    pub fn search(
        &self,
        pin: &Pin<'_>,
        query: &Query<'_>,
        scratch: &mut Scratch,
        out: &mut Vec<Hit>,
    ) -> Result<(), SearchError> {
        self.space.search(pin, query, scratch, out)
    }

    /// As [`Self::search`], and says how.
    ///
    /// # Errors
    /// As [`Self::search`].
    pub fn search_explained(
        &self,
        pin: &Pin<'_>,
        query: &Query<'_>,
        scratch: &mut Scratch,
        out: &mut Vec<Hit>,
    ) -> Result<Explain, SearchError> {
        self.space.search_explained(pin, query, scratch, out)
    }

    /// As [`Self::search_explained`], at a pace: see [`Space::search_paced`].
    ///
    /// # Errors
    /// As that.
    pub async fn search_paced(
        &self,
        pin: &Pin<'_>,
        query: &Query<'_>,
        pace: &mut impl Pace,
        scratch: &mut Scratch,
        out: &mut Vec<Hit>,
    ) -> Result<Explain, SearchError> {
        self.space.search_paced(pin, query, pace, scratch, out).await
    }

    /// Any core. Replaces `out` with the visible points that match and have the greatest dot product with `query`
    /// (dimension, value), best first, ties by id. Exact; a point that shares a dimension is a hit whatever its score.
    ///
    /// Cost: 1 to 3 ns per posting of the query's dimensions that has to be looked at; a filter is asked of those that could
    /// enter the result, or looked up in the payload index before if that names the points that match.
    ///
    /// The pace counts looking up long lists of the filter.
    ///
    /// # Errors
    /// Dimensions that do not ascend strictly, values that are not finite; [`SearchError::TooLong`].
    pub async fn search_sparse(
        &self,
        pin: &Pin<'_>,
        query: &[(u32, f32)],
        wanted: HitsWanted<'_>,
        pace: &mut impl Pace,
        scratch: &mut LaneScratch,
        out: &mut Vec<LaneHit>,
    ) -> Result<(), SearchError> {
        let listing = Listing::new(&self.points, pin, wanted, self.space.situation(0, true), pace);
        self.points.search_sparse(query, listing, scratch, out).await
    }

    /// Any core. Replaces `out` with the visible points that match and whose `$content` scores best for `query` (BM25, see
    /// [`crate::text`]), best first, ties by id. Exact, with the statistics of all live documents at this moment.
    ///
    /// Cost: as [`Self::search_sparse`].
    ///
    /// # Errors
    /// [`SearchError::TextDisabled`], [`SearchError::TooLong`].
    pub async fn search_text(
        &self,
        pin: &Pin<'_>,
        query: &TextQuery,
        wanted: HitsWanted<'_>,
        pace: &mut impl Pace,
        scratch: &mut LaneScratch,
        out: &mut Vec<LaneHit>,
    ) -> Result<(), SearchError> {
        let listing = Listing::new(&self.points, pin, wanted, self.space.situation(0, true), pace);
        self.points.search_text(query, listing, scratch, out).await
    }

    /// Any core: the slots from `from` on whose visible points match, ascending, as of now. Through the payload index where
    /// that costs less than asking about every point; the walk is lazy, so a caller that wants few pays for few (a range over
    /// many values is collected first).
    ///
    /// To go on under another pin start again one above the last slot: points written meanwhile may be missed or met, and one
    /// that was replaced meanwhile may be met twice (under its new slot).
    pub fn matching<'p>(
        &'p self,
        pin: &'p Pin<'_>,
        filter: &'p Predicate,
        now_ms: u64,
        from: Slot,
    ) -> Matching<'p> {
        self.points.matching(pin, self.sought(filter, now_ms), from)
    }

    /// Any core: the next slice of a walk as by [`Self::matching`], of up to `looks` slots, and of fewer where the filter takes long: then
    /// some 200 µs of questions, and [`MatchCursor::take_open`] may have one left. Terms of few values are planned again in
    /// each, which costs some hundred looks; what was collected is kept.
    pub fn match_slice(
        &self,
        pin: &Pin<'_>,
        filter: &Predicate,
        now_ms: u64,
        cursor: &mut MatchCursor,
        looks: usize,
        each: impl FnMut(Slot),
    ) {
        self.points.match_slice(pin, self.sought(filter, now_ms), cursor, looks, each);
    }

    fn sought<'p>(&self, filter: &'p Predicate, now_ms: u64) -> Sought<'p> {
        Sought { filter, now_ms, situation: self.space.situation(0, true) }
    }
}
