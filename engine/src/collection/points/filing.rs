//! Filing the rows of a collection that is being opened, on another thread than the one that opens it.

use super::images::TERMS_PER_STEP;
use super::meta::RowsOwner;
use super::{Points, PointsWriter};
use crate::collection::slot_set::SlotSet;
use crate::payload::PayloadRow;
use crate::slot::Slot;
use std::sync::Arc;

/// Rows that are yet to be filed in the payload index. While it exists the rows stay, and nobody else changes the payload index.
pub struct RowsToFile {
    points: Arc<Points>,
    /// Shared, so that no row is freed.
    rows: Arc<RowsOwner>,
    present: SlotSet,
    /// The next slot that is not collected.
    next: Option<Slot>,
    /// What was collected is being filed.
    is_filing: bool,
}

impl RowsToFile {
    /// Collects the rows of so many slots, or files a piece of what was collected, some 100 µs; whether there is more.
    pub fn step(&mut self, slots: u32) -> bool {
        let index = &self.points.index;
        if self.is_filing {
            self.is_filing = index.file_step(TERMS_PER_STEP);
            return self.is_filing || self.next.is_some();
        }
        for _ in 0..slots {
            let Some(slot) = self.next else { break };
            index.insert_later(slot, PayloadRow::trusted(self.points.meta.owned_row(&self.rows, slot)));
            self.next = self.present.next(slot + 1);
            if index.collected().1 {
                break;
            }
        }
        let (is_any_collected, is_full) = index.collected();
        self.is_filing = is_full || (is_any_collected && self.next.is_none());
        self.is_filing || self.next.is_some()
    }
}

impl PointsWriter {
    /// End of a restore: the rows of the slots `present`, to be filed on any thread. Until that is dropped no slot may be freed, and the payload
    /// index be left alone.
    pub(crate) fn rows_to_file(&self, present: SlotSet) -> RowsToFile {
        let (points, rows, next) = (self.shared.clone(), self.rows.clone(), present.next(0));
        RowsToFile { points, rows, present, next, is_filing: false }
    }

    /// Whether no [`RowsToFile`] is left.
    pub(crate) fn is_sole_owner(&mut self) -> bool {
        Arc::get_mut(&mut self.rows).is_some()
    }

    /// The right to free rows.
    ///
    /// # Panics
    /// While rows are being filed on another thread.
    pub(super) fn sole_owner(rows: &mut Arc<RowsOwner>) -> &mut RowsOwner {
        Arc::get_mut(rows).expect("rows that are being filed stay")
    }
}
