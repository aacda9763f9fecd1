//! Asking a filter about points in walks that hold no pin while others run: what takes longer than a moment is asked of a copy of the
//! row, in slices.

use crate::ctx::Ctx;
use crate::error::OpError;
use crate::owner::Owned;
use crate::slice::Slice;
use nigh_engine::collection::{Dense, Point};
use nigh_engine::filter::{Allowance, Predicate};
use nigh_engine::memory::Pin;
use nigh_engine::pace::{Pace, TooLong};
use nigh_engine::payload::PayloadRow;

/// What questions may take between two looks at the clock, in nanoseconds.
const ASKED_NS: u64 = 200_000;
/// Longest that one request may ask a filter, without the time that others had meanwhile: as long as a search may take.
const ASKED_MAX_NS: u64 = 30_000_000_000;

/// A point of which the filter could not say at once whether it matches.
pub(crate) struct OpenPoint {
    id: u64,
    version: u64,
    row: Vec<u8>,
}

impl OpenPoint {
    /// To be asked of a copy of its row.
    pub fn of(point: &Point<'_>) -> OpenPoint {
        OpenPoint { id: point.id, version: point.version, row: point.row.to_vec() }
    }

    /// As [`Self::of`], of a slot that was found visible under the pin.
    pub fn at(dense: &Dense, pin: &Pin<'_>, slot: u32) -> OpenPoint {
        OpenPoint::of(&dense.point(pin, slot))
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its version when its row was copied.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The point as it is now, unless it has been replaced since.
    pub fn get<'p>(&self, dense: &'p Dense, pin: &'p Pin<'_>, now_ms: u64) -> Option<Point<'p>> {
        dense.get(pin, self.id, now_ms).filter(|point| point.version == self.version)
    }
}

/// What questions of one piece of a walk may take.
pub(crate) fn allowance() -> Allowance {
    Allowance::of(ASKED_NS)
}

/// Whether a point matches, `None` when the allowance is used up before.
pub(crate) fn ask(
    filter: Option<&Predicate>,
    point: &Point<'_>,
    now_ms: u64,
    allowance: &Allowance,
) -> Option<bool> {
    filter.map_or(Some(true), |filter| filter.ask(point.id, payload(point.row), now_ms, allowance))
}

fn payload(row: &[u8]) -> Option<PayloadRow<'_>> {
    (!row.is_empty()).then(|| PayloadRow::trusted(row))
}

/// How long one request has asked its filter.
#[derive(Default)]
pub struct Asked {
    ns: u64,
}

impl Asked {
    /// Runs what asks the filter, and counts how long it takes.
    pub(crate) fn count<T>(&mut self, slice: &Slice, f: impl FnOnce() -> T) -> T {
        let before_ns = slice.used_ns();
        let done = f();
        self.ns += slice.used_ns() - before_ns;
        done
    }

    /// Counts what was measured elsewhere.
    pub(crate) fn add(&mut self, ns: u64) {
        self.ns += ns;
    }

    /// # Errors
    /// [`OpError::Busy`] when that is longer than a request may.
    pub(crate) fn check(&self) -> Result<(), OpError> {
        if self.ns > ASKED_MAX_NS { Err(too_long()) } else { Ok(()) }
    }

    /// The same, with all that was done in `slice`.
    ///
    /// # Errors
    /// Likewise.
    pub(crate) fn check_with(&self, slice: &Slice) -> Result<(), OpError> {
        if self.ns + slice.used_ns() > ASKED_MAX_NS { Err(too_long()) } else { Ok(()) }
    }

    /// Whether an open point matches.
    ///
    /// # Errors
    /// [`OpError::Busy`] as in [`Self::check`].
    pub(crate) async fn settle(
        &mut self,
        filter: &Predicate,
        open: &OpenPoint,
        now_ms: u64,
        slice: &mut Slice,
    ) -> Result<bool, OpError> {
        self.settle_row(filter, (open.id, &open.row), now_ms, slice).await
    }

    fn left_ns(&self) -> u64 {
        ASKED_MAX_NS.saturating_sub(self.ns)
    }

    async fn settle_row(
        &mut self,
        filter: &Predicate,
        (id, row): (u64, &[u8]),
        now_ms: u64,
        slice: &mut Slice,
    ) -> Result<bool, OpError> {
        let (left_ns, before_ns) = (self.left_ns(), slice.used_ns());
        let answer = filter.ask_in_pieces(id, payload(row), now_ms, &mut Sliced::new(slice, left_ns)).await;
        self.ns += slice.used_ns() - before_ns;
        answer.map_err(|TooLong| too_long())
    }
}

fn too_long() -> OpError {
    OpError::Busy(format!(
        "the filter took longer than {} s; ask for less, or of fewer points",
        ASKED_MAX_NS / 1_000_000_000
    ))
}

/// The pace of work in slices, until it has run too long.
pub(crate) struct Sliced<'a> {
    slice: &'a mut Slice,
    until_ns: u64,
}

impl Sliced<'_> {
    /// For so long, without the time that others have meanwhile.
    pub(crate) fn new(slice: &mut Slice, ns: u64) -> Sliced<'_> {
        let until_ns = slice.used_ns().saturating_add(ns);
        Sliced { slice, until_ns }
    }
}

impl Pace for Sliced<'_> {
    async fn step(&mut self, _steps: usize) -> Result<(), TooLong> {
        self.slice.check().await;
        self.foresee(0)
    }

    fn foresee(&self, _steps: usize) -> Result<(), TooLong> {
        if self.slice.used_ns() > self.until_ns { Err(TooLong) } else { Ok(()) }
    }
}

impl Ctx {
    /// Whether a point matches of which id and row were copied, however long that takes; others run meanwhile. The time is added to `asked`,
    /// which counts for the whole request.
    ///
    /// # Errors
    /// [`OpError::Busy`] when the filter takes longer than a request may.
    pub async fn row_matches(
        &self,
        filter: Option<&Predicate>,
        (id, row): (u64, &[u8]),
        now_ms: u64,
        asked: &mut Asked,
    ) -> Result<bool, OpError> {
        let Some(filter) = filter else { return Ok(true) };
        let mut slice = Slice::begin(self.env());
        match asked.count(&slice, || filter.ask(id, payload(row), now_ms, &allowance())) {
            Some(matches) => asked.check().map(|()| matches),
            None => asked.settle_row(filter, (id, row), now_ms, &mut slice).await,
        }
    }

    /// Whether a copied value matches a filter over records, likewise. The time is added to `asked` here as well.
    ///
    /// # Errors
    /// Likewise.
    pub(crate) async fn record_matches(
        &self,
        filter: &nigh_engine::kv::RecordFilter,
        value: &[u8],
        asked: &mut Asked,
    ) -> Result<bool, OpError> {
        let mut slice = Slice::begin(self.env());
        let before_ns = slice.used_ns();
        let answer = filter.ask_in_pieces(value, &mut Sliced::new(&mut slice, asked.left_ns())).await;
        asked.ns += slice.used_ns() - before_ns;
        answer.map_err(|TooLong| too_long())
    }

    /// Hands a point that was left open on to `each` if it matches and is still what it was.
    ///
    /// # Errors
    /// [`OpError::Busy`].
    pub(crate) async fn settle_point<T>(
        &self,
        owned: &Owned,
        filter: &Predicate,
        open: &OpenPoint,
        (asked, slice): (&mut Asked, &mut Slice),
        each: impl FnOnce(&Point<'_>, u64) -> T,
    ) -> Result<Option<T>, OpError> {
        if !asked.settle(filter, open, self.env().unix_ms(), slice).await? {
            return Ok(None);
        }
        let (pin, now_ms) = (self.pin(), self.env().unix_ms());
        let point = open.get(owned.handle.dense(&pin), &pin, now_ms);
        Ok(point.map(|point| each(&point, now_ms)))
    }
}
