//! Walks over all points that match, on the owner core in slices.

use super::Core;
use super::read::MATCHING_STEP;
use super::types::OpError;
use crate::owner::Owned;
use crate::owner::indexer::Slice;
use nigh_engine::collection::{MatchCursor, Point};
use nigh_engine::filter::Predicate;

/// Points looked up by id between two looks at the clock.
const IDS_STEP: usize = 64;

impl Core {
    /// Hands on every point that matches, with the time of its look, in no order that a caller may rely on. The walk shows no single
    /// moment: what is written meanwhile may be met or missed. Without a filter no point that was there throughout is missed or met
    /// twice; with one a point may be when it is replaced meanwhile, as slots are walked then.
    ///
    /// # Errors
    /// The collection is dropped or damaged meanwhile.
    pub(super) async fn each_match(
        &self,
        owned: &Owned,
        filter: Option<&Predicate>,
        mut each: impl FnMut(&Point<'_>, u64),
    ) -> Result<(), OpError> {
        let mut slice = Slice::begin(self.env());
        let Some(filter) = filter.filter(|filter| !filter.is_trivially_true()) else {
            let mut next = Some(0);
            while let Some(from) = next {
                owned.usable()?;
                {
                    let writer = owned.writer.borrow();
                    let ids: Vec<u64> = writer.ids_from(from).take(IDS_STEP).collect();
                    let last = ids.last().filter(|_| ids.len() == IDS_STEP);
                    next = last.and_then(|id| id.checked_add(1));
                    let (pin, now_ms) = (self.pin(), self.env().unix_ms());
                    for id in ids {
                        if let Some(point) = writer.shared().get(&pin, id, now_ms) {
                            each(&point, now_ms);
                        }
                    }
                }
                slice.check().await;
            }
            return Ok(());
        };
        let mut cursor = MatchCursor::default();
        while !cursor.is_done() {
            owned.usable()?;
            {
                let (pin, now_ms) = (self.pin(), self.env().unix_ms());
                let dense = owned.handle.dense(&pin);
                dense.match_slice(&pin, filter, now_ms, &mut cursor, MATCHING_STEP, |slot| {
                    each(&dense.point(&pin, slot), now_ms);
                });
            }
            slice.check().await;
        }
        Ok(())
    }
}
