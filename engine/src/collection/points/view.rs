//! What one search sees: the snapshot, the clock, the filter, and what questions to the filter may take.
use super::Points;
use super::meta::PinnedRows;
use crate::filter::ids::{IdSlots, slots_of};
use crate::filter::{Allowance, Predicate};
use crate::memory::Pin;
use crate::pace::{Pace, TooLong};
use crate::payload::PayloadRow;
use crate::slot::Slot;
use std::sync::atomic::Ordering;

/// Nanoseconds that questions to the filter may take between two calls of the pace of a scan.
const PIECE_ALLOWANCE_NS: u64 = 200_000;

/// How many snapshots are taken until one shows the newest point of every id in the filter. The second one is enough unless these ids are
/// written all the time; without, the filter is asked of points as if their ids were a field that is not indexed.
const SNAPSHOTS_FOR_IDS: usize = 4;
/// How often is looked whether a point that the map of ids leads to already is shown. The owner does that next, some hundred nanoseconds later.
const LOOKS_FOR_SNAPSHOT: usize = 1_000;

/// What one search sees and counts.
pub(crate) struct View<'a> {
    pub points: &'a Points,
    rows: PinnedRows<'a>,
    pub seq: u64,
    pub now_ms: u64,
    pub filter: Option<&'a Predicate>,
    pub filter_rejects: u64,
    /// The slots of the ids in the filter, where they have been looked up.
    pub ids: IdSlots<'a>,
    /// What questions to the filter may still take in this piece of the search.
    allowance: Allowance,
    /// Visible slots of which the allowance did not suffice to say whether they match.
    pub open: Vec<Slot>,
    /// Payloads replaced before anything was looked up.
    replacements: u64,
}

impl<'a> View<'a> {
    /// Looks up the slots of the ids in the filter; false when the snapshot may show others, because points have been replaced since.
    pub fn look_up_ids(&mut self, pin: &Pin<'_>) -> bool {
        let Some(filter) = self.filter else { return true };
        let lists = filter.id_lists();
        if lists.is_empty() {
            return true;
        }
        let (points, seq) = (self.points, self.seq);
        let slots = slots_of(&lists, |id| points.ids.get(pin, id), |slot| points.meta.born(slot) > seq);
        let found = slots.is_some();
        self.ids = slots.unwrap_or_default();
        found
    }
}

impl View<'_> {
    /// Whether a slot that the index names matches, with `exact` by its word. That it gave for the rows of the time: a
    /// slot whose row is replaced meanwhile may be found under terms of both, which neither has. A slot of which that stays open
    /// is added to those that are settled later, and does not match for now.
    #[inline]
    pub fn confirms(&mut self, slot: Slot, exact: bool) -> bool {
        (exact && !self.was_replaced()) || self.matches(slot)
    }

    /// Whether some point's row was replaced since this view was taken.
    #[inline]
    pub fn was_replaced(&self) -> bool {
        self.points.index.replacements() != self.replacements
    }

    #[inline]
    pub fn visible(&self, slot: Slot) -> bool {
        self.points.visible(slot, self.seq, self.now_ms)
    }

    /// What asking the predicate costs in steps.
    pub fn steps_asked(&self) -> usize {
        self.filter.map_or(0, Predicate::steps)
    }

    #[inline]
    pub fn admits(&mut self, slot: Slot) -> bool {
        self.visible(slot) && self.matches(slot)
    }

    /// Whether a visible slot matches, as [`Self::confirms`] has it.
    #[inline]
    pub fn matches(&mut self, slot: Slot) -> bool {
        let Some(filter) = self.filter else { return true };
        let answer = filter.ask(self.id(slot), self.row(slot), self.now_ms, &self.allowance);
        self.count(slot, answer).unwrap_or(false)
    }

    /// As [`Self::matches`], within an allowance that others keep; `None` when it stays open.
    #[inline]
    pub fn ask(&mut self, slot: Slot, allowance: &Allowance) -> Option<bool> {
        let Some(filter) = self.filter else { return Some(true) };
        let answer = filter.ask(self.id(slot), self.row(slot), self.now_ms, allowance);
        self.filter_rejects += u64::from(answer == Some(false));
        answer
    }

    #[inline]
    fn count(&mut self, slot: Slot, answer: Option<bool>) -> Option<bool> {
        match answer {
            Some(false) => self.filter_rejects += 1,
            Some(true) => {}
            None => self.open.push(slot),
        }
        answer
    }

    /// The id of the point in a slot, in the line that leads to its row.
    #[inline]
    fn id(&self, slot: Slot) -> u64 {
        self.points.id(slot)
    }

    /// The payload of a slot that was found visible under the pin of the search.
    #[inline]
    pub fn row(&self, slot: Slot) -> Option<PayloadRow<'_>> {
        let row = self.rows.row(slot);
        (!row.is_empty()).then(|| PayloadRow::trusted(row))
    }

    /// Lets every question take what it takes: nobody waits.
    pub fn unhurried(mut self) -> Self {
        self.allowance = Allowance::unbounded();
        self
    }

    /// Steps that questions have taken since this was asked last, to be told to the pace; what comes has a whole allowance again.
    pub fn steps_taken(&self) -> usize {
        self.allowance.renew(PIECE_ALLOWANCE_NS)
    }

    /// Whether so much has been asked that others should get their turn.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.allowance.is_spent()
    }

    /// Whether a slot matches that was left open, however long that takes.
    pub async fn settle(&mut self, slot: Slot, pace: &mut impl Pace) -> Result<bool, TooLong> {
        let Some(filter) = self.filter else { return Ok(true) };
        let matches = filter.ask_in_pieces(self.id(slot), self.row(slot), self.now_ms, pace).await?;
        self.filter_rejects += u64::from(!matches);
        Ok(matches)
    }

    /// Hands on those of the slots left open that match.
    pub async fn settle_open(
        &mut self,
        pace: &mut impl Pace,
        mut each: impl FnMut(Slot),
    ) -> Result<(), TooLong> {
        while let Some(slot) = self.open.pop() {
            if self.settle(slot, pace).await? {
                each(slot);
            }
        }
        Ok(())
    }
}

impl Points {
    /// A snapshot as of now, for as long as the pin lives. The snapshot comes before any look into the index: what it includes is filed.
    pub(crate) fn view_at<'a>(
        &'a self,
        pin: &'a Pin<'_>,
        filter: Option<&'a Predicate>,
        now_ms: u64,
    ) -> View<'a> {
        let seq = self.published_seq.load(Ordering::Acquire);
        View {
            points: self,
            rows: self.meta.rows_under(pin),
            seq,
            replacements: self.index.replacements(),
            now_ms,
            filter: filter.filter(|filter| !filter.is_trivially_true()),
            allowance: Allowance::of(PIECE_ALLOWANCE_NS),
            open: Vec::new(),
            filter_rejects: 0,
            ids: IdSlots::default(),
        }
    }

    /// As [`Self::view_at`], with the slots of the ids in the filter, for the planner. Costs a miss or two for each of them.
    pub(crate) fn view_to_plan<'a>(
        &'a self,
        pin: &'a Pin<'_>,
        filter: Option<&'a Predicate>,
        now_ms: u64,
    ) -> View<'a> {
        let mut view = self.view_at(pin, filter, now_ms);
        for _ in 0..SNAPSHOTS_FOR_IDS {
            if view.look_up_ids(pin) {
                break;
            }
            for _ in 0..LOOKS_FOR_SNAPSHOT {
                if self.published_seq.load(Ordering::Acquire) != view.seq {
                    break;
                }
                std::hint::spin_loop();
            }
            view = self.view_at(pin, filter, now_ms);
        }
        view
    }
}
