//! Files the rows of a collection that is being opened: enters them into its payload index, on another thread than the one that opens the
//! collection.

use super::images::TERMS_PER_STEP;
use super::meta::RowsOwner;
use super::{Points, PointsWriter};
use crate::collection::slot_set::SlotSet;
use crate::payload::PayloadRow;
use crate::slot::Slot;
use std::sync::Arc;

/// Rows that are yet to be filed in the payload index. While this exists, no row is freed, and nobody else changes the payload index.
pub struct RowsToFile {
    points: Arc<Points>,
    /// Shared, so that nobody can free a row.
    rows: Arc<RowsOwner>,
    present: SlotSet,
    /// The next slot whose row has not been collected; `None` if all have been.
    next: Option<Slot>,
    /// Whether the collected rows are being filed.
    is_filing: bool,
}

impl RowsToFile {
    /// Collects the rows of at most `slots` slots, or files a part of the collected rows, which takes some 100 µs. Returns whether there is more
    /// to do.
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
    /// Returns, at the end of a restore, the rows of the slots `present`, which may be filed on any thread. Until the returned value is dropped,
    /// no slot may be freed, and the payload index must be left alone.
    pub(crate) fn rows_to_file(&self, present: SlotSet) -> RowsToFile {
        let (points, rows, next) = (self.shared.clone(), self.rows.clone(), present.next(0));
        RowsToFile { points, rows, present, next, is_filing: false }
    }

    /// Whether no [`RowsToFile`] is left.
    pub(crate) fn is_sole_owner(&mut self) -> bool {
        Arc::get_mut(&mut self.rows).is_some()
    }

    /// Returns the owner of the rows, which alone may free them.
    ///
    /// # Panics
    /// While rows are being filed on another thread.
    pub(super) fn sole_owner(rows: &mut Arc<RowsOwner>) -> &mut RowsOwner {
        Arc::get_mut(rows).expect("rows that are being filed stay")
    }
}
