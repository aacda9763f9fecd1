//! A collection: points and the spaces of their vectors. [`DenseWriter`] is the owner's handle, [`Dense`] what any core reads.
//!
//! A dense collection has one space, in which every point has a vector. A collection of named spaces has any number, and a point may lack
//! a vector in each; what is here knows the spaces by their numbers.
//!
//! # Invariants
//!
//! Those of `points` and `space`, and these:
//!
//! 1. *Order of a write.* The vectors of the new slot; its row and line, payload index, sparse and text lists; its entries in the tails; then
//!    the points show it. What a snapshot includes is therefore in place for every reader that has it.
//! 2. *Reuse.* A slot is retired when every space that has a vector of it has let go of it. It is freed by the spaces first, then by the
//!    points, and never while an indexing round is open in any of them (planners hold no pin).
//! 3. All methods of [`DenseWriter`] run on one thread at a time; nothing else changes anything.
mod ahead;
mod capture;
mod dirty;
mod indexing;
mod restore;
mod spaces;
#[cfg(test)]
mod tests;
mod writer;

use super::config::DenseConfig;
use super::error::{SearchError, WriteError};
use super::points::{
    HitsWanted, Listing, MatchCursor, Matching, Points, PointsWriter, Sought, SparseQuery, SparseSpace,
};
use super::space::{Explain, Hit, Moment, Query, Space, SpaceWriter};
use super::stats::{Stats, Usage};
use crate::filter::Predicate;
use crate::filter::cost::Situation;
use crate::index::Scratch;
use crate::memory::Pin;
use crate::pace::Pace;
use crate::slot::Slot;
use crate::sparse::{LaneHit, LaneScratch};
use crate::text::TextMatch;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

pub use restore::RestoreError;
pub use spaces::{DroppedSpace, NewSpace};
pub use writer::{Write, WriteMode};

/// An id takes some 16 bytes of the map of ids, 12 of the ordered set and 4 of the tail.
const BYTES_PER_ID: u64 = 32;

/// A point read in place.
pub struct Point<'p> {
    /// Id.
    pub id: u64,
    /// Version.
    pub version: u64,
    /// `dim` floats as stored, or what a code stands for; none in a collection of named spaces, see [`Dense::vector`].
    pub vector: Cow<'p, [f32]>,
    /// Encoded row, empty = none.
    pub row: &'p [u8],
    /// Absolute deadline, 0 = none.
    pub deadline_ms: u64,
}

/// The shared, readable side. `Sync`.
pub struct Dense {
    points: Arc<Points>,
    spaces: Box<[Arc<Space>]>,
    sparse_spaces: Box<[Arc<SparseSpace>]>,
    /// Whether spaces have names, and points may lack vectors.
    is_named: bool,
}

/// The owner's side: the only handle that changes anything. `Send`, one per collection.
pub struct DenseWriter {
    shared: Arc<Dense>,
    points: PointsWriter,
    spaces: Vec<SpaceWriter>,
    /// Slots whose memory was asked for ahead of their use, and all below.
    populated: usize,
    capture: Option<capture::Capture>,
    restoring: Option<restore::Restoring>,
    /// Dead slots that dropped spaces have not let go of.
    leaving: Vec<Slot>,
    /// Images that were restored had vectors of spaces that were dropped since.
    has_skipped: bool,
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn owned<T: Send>() {}
    shared::<Dense>();
    owned::<DenseWriter>();
};

impl Dense {
    /// Configuration of the only space.
    ///
    /// # Panics
    /// In a collection of named spaces that has none.
    pub fn config(&self) -> &DenseConfig {
        self.space().config()
    }

    /// Its points.
    pub fn points(&self) -> &Points {
        &self.points
    }

    /// Whether its spaces have names, so that points may lack vectors.
    pub fn is_named(&self) -> bool {
        self.is_named
    }

    /// Their vectors in the only space, or the first.
    ///
    /// # Panics
    /// In a collection of named spaces that has none.
    #[inline]
    pub fn space(&self) -> &Space {
        &self.spaces[0]
    }

    /// Their vectors in each space, in the order of their numbers; of a dropped space its place is left.
    pub fn spaces(&self) -> &[Arc<Space>] {
        &self.spaces
    }

    /// Their sparse spaces, in the order of their numbers; a dropped space keeps its place. A dense collection has one.
    pub fn sparse_spaces(&self) -> &[Arc<SparseSpace>] {
        &self.sparse_spaces
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
        Point {
            id: self.points.id(slot),
            version,
            vector: match self.is_named {
                true => Cow::Borrowed(&[]),
                false => self.vector(pin, slot, 0).unwrap_or_default(),
            },
            row,
            deadline_ms: self.points.deadline_ms(slot),
        }
    }

    /// The vector of the point behind a hit of the same pin in the space of that number: `dim` floats as stored, or what a code stands for;
    /// `None` when the point lacks one there.
    ///
    /// # Panics
    /// When there is no such space.
    pub fn vector<'p>(&'p self, pin: &'p Pin<'_>, slot: Slot, space: usize) -> Option<Cow<'p, [f32]>> {
        let space = &self.spaces[space];
        if !space.holds(slot) {
            return None;
        }
        let dim = space.config().dim;
        Some(match space.stored_vector(pin, slot) {
            Cow::Borrowed(vector) => Cow::Borrowed(&vector[..dim]),
            Cow::Owned(mut vector) => {
                vector.truncate(dim);
                Cow::Owned(vector)
            }
        })
    }

    /// As [`Self::vector`], in every space in which the point has one, by the number of the space; none where spaces have no names.
    pub fn named_vectors(&self, pin: &Pin<'_>, slot: Slot) -> Vec<(usize, Vec<f32>)> {
        let spaces = if self.is_named { 0..self.spaces.len() } else { 0..0 };
        spaces.filter_map(|space| Some((space, self.vector(pin, slot, space)?.into_owned()))).collect()
    }

    /// Any core. Gauges are exact between two writes; `bytes` follows with the next `reclaim`.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        self.points.add_to_stats(&mut stats);
        self.spaces.iter().for_each(|space| space.add_to_stats(&mut stats));
        stats.sparse_vectors = self.sparse_spaces.iter().map(|space| space.vectors()).sum();
        stats.bytes += self.sparse_bytes();
        stats
    }

    /// Any core: memory by part. Costs nothing to speak of.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        self.points.add_to_usage(&mut usage);
        self.spaces.iter().for_each(|space| space.add_to_usage(&mut usage));
        usage.lanes += self.sparse_bytes();
        usage
    }

    fn sparse_bytes(&self) -> u64 {
        self.sparse_spaces.iter().map(|space| space.bytes()).sum()
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
        let per_slot: u64 = self.spaces.iter().map(|space| space.bytes_per_slot()).sum();
        slots * per_slot + self.points.slot_bytes(slots)
    }

    /// Any thread: gives slots their memory, written or not, as [`DenseWriter::pages_due`] asks. Milliseconds.
    ///
    /// # Panics
    /// When a slot is beyond what the collection may grow to.
    pub fn populate(&self, slots: Range<Slot>) {
        let (from, to) = (slots.start as usize, slots.end as usize);
        self.spaces.iter().for_each(|space| space.populate(from, to));
        self.points.populate(from, to);
    }

    /// Any thread that holds a seat: the collection as of now.
    pub fn moment<'p>(&'p self, pin: &'p Pin<'_>, now_ms: u64) -> Moment<'p> {
        self.space().moment(pin, now_ms)
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
        self.space().search(pin, query, scratch, out)
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
        self.space().search_explained(pin, query, scratch, out)
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
        self.space().search_paced(pin, query, pace, scratch, out).await
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
    ///
    /// # Panics
    /// When there is no such sparse space.
    pub async fn search_sparse(
        &self,
        pin: &Pin<'_>,
        query: SparseQuery<'_>,
        wanted: HitsWanted<'_>,
        pace: &mut impl Pace,
        scratch: &mut LaneScratch,
        out: &mut Vec<LaneHit>,
    ) -> Result<(), SearchError> {
        let listing = Listing::new(&self.points, pin, wanted, self.situation(), pace);
        let space = &self.sparse_spaces[query.space];
        self.points.search_sparse(space, query.terms, listing, scratch, out).await
    }

    /// Any core. Replaces `out` with the visible points that match and whose `$content` scores best for `query` (BM25, see
    /// [`crate::text`]), best first, ties by id. Exact, with the statistics of all live documents at this moment.
    ///
    /// Cost: as [`Self::search_sparse`].
    ///
    /// # Errors
    /// [`SearchError::TextDisabled`], [`SearchError::Text`], [`SearchError::TooLong`].
    pub async fn search_text(
        &self,
        pin: &Pin<'_>,
        query: &TextMatch,
        wanted: HitsWanted<'_>,
        pace: &mut impl Pace,
        scratch: &mut LaneScratch,
        out: &mut Vec<LaneHit>,
    ) -> Result<(), SearchError> {
        let listing = Listing::new(&self.points, pin, wanted, self.situation(), pace);
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
        Sought { filter, now_ms, situation: self.situation() }
    }

    /// What the planner goes by where no vector is compared with.
    fn situation(&self) -> Situation {
        match self.spaces.iter().find(|space| !space.is_dropped()) {
            Some(space) => space.situation(0, true),
            None => self.points.counted(Situation { exact: true, ..Situation::default() }),
        }
    }
}
