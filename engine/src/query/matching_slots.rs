//! All points that match a filter, for queries that score each of them.

use super::lane_query::LaneError;
use crate::collection::View;
use crate::pace::Pace;
use crate::payload::index::Walk;
use crate::slot::Slot;

/// How many slots are looked at together.
const SLOTS_STEP: usize = 2_048;
/// Skipping this many slots that do not match counts as one step.
const PASSED_PER_STEP: usize = 64;

/// The slots of the points that match, part by part, as one view shows them.
pub(super) struct MatchingSlots<'p> {
    /// The slots that the payload index names; `None` stands for all slots.
    walk: Option<Walk<'p>>,
    /// Whether the index decides the filter exactly, so that the predicate need not be evaluated.
    is_whole: bool,
    from: Option<Slot>,
    end: Slot,
}

impl<'p> MatchingSlots<'p> {
    /// The slots that the index names, or all `slots` of them.
    pub fn of(walk: Option<Walk<'p>>, is_whole: bool, slots: Slot) -> MatchingSlots<'p> {
        MatchingSlots { walk, is_whole, from: Some(0), end: slots.min(Slot::MAX - 1) }
    }

    /// Replaces `slots` with those of the next part; false if there is no further part.
    pub async fn next(
        &mut self,
        view: &mut View<'_>,
        slots: &mut Vec<Slot>,
        pace: &mut impl Pace,
    ) -> Result<bool, LaneError> {
        let Some(from) = self.from else { return Ok(false) };
        slots.clear();
        self.from = match &mut self.walk {
            Some(walk) => walk.part(from, self.end, SLOTS_STEP, slots),
            None => {
                let to = self.end.min(from.saturating_add(SLOTS_STEP as Slot));
                slots.extend(from..to);
                (to < self.end).then_some(to)
            }
        };
        let steps = SLOTS_STEP / PASSED_PER_STEP + slots.len();
        slots.retain(|&slot| view.visible(slot) && view.confirms(slot, self.is_whole));
        pace.step(steps + view.steps_taken()).await?;
        view.settle_open(pace, |slot| slots.push(slot)).await?;
        Ok(true)
    }
}
