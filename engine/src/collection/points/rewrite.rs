//! Replacing a point's payload in its slot: vector, place in the graph and deadline stay.
//!
//! The new row's terms are filed, then row and version are swung in one store. The old row waits in limbo, and so do its terms: a
//! reader that pinned before may look for the point under any of them. When no such reader is left the terms that no newer row of
//! the slot has are taken out.
//!
//! A change of a text that is searched moves the point to another slot, with the same vector: statistics of documents count a slot
//! once, and a reader must find it under its old words until it no longer can.
//!
//! Keys that have expired are taken out the same way, by the sweeper.
use super::{PointsWriter, Retired};
use crate::collection::WriteError;
use crate::payload::{PayloadRow, RowBuilder};
use crate::slot::Slot;

/// A new payload, as logged and applied.
pub struct RowWrite<'a> {
    /// As [`super::super::Write::seq`].
    pub seq: u64,
    /// Point id.
    pub id: u64,
    /// Its next version.
    pub version: u64,
    /// Encoded payload row, empty = none.
    pub row: &'a [u8],
}

/// When keys of a row expire.
#[derive(Clone, Copy)]
pub(super) struct KeyDeadlines {
    /// The first of them.
    next: Option<u64>,
    /// The document's text.
    content: Option<u64>,
}

impl KeyDeadlines {
    pub fn of(row: PayloadRow<'_>) -> KeyDeadlines {
        KeyDeadlines { next: row.next_deadline(), content: row.content_deadline() }
    }
}

/// What became of a change of payload.
pub(crate) enum Rewritten {
    /// Nothing: there is no such point.
    Absent,
    /// The row was replaced in its slot; the number of terms that were filed.
    InPlace(usize),
    /// Nothing yet: the point, which has this deadline, is to be written to another slot.
    Moves { deadline_ms: u64 },
}

impl PointsWriter {
    /// All checks of a change of payload: the point's row and version, `None` when the id is absent (or expired).
    ///
    /// # Errors
    /// [`WriteError::VersionConflict`].
    pub fn check_rewrite(
        &self,
        id: u64,
        expected_version: Option<u64>,
        now_ms: u64,
    ) -> Result<Option<(&[u8], u64)>, WriteError> {
        let Some(slot) = self.live_slot(id, now_ms) else { return Ok(None) };
        let (row, found) = self.shared.meta.owned_row_and_version(&self.rows, slot);
        Self::check_version(id, expected_version, found)?;
        Ok(Some((row, found)))
    }

    /// The deadline of a live point, 0 for none and where there is no such point.
    pub fn deadline_of(&self, id: u64, now_ms: u64) -> u64 {
        self.live_slot(id, now_ms).map_or(0, |slot| self.shared.meta.deadline_ms(slot))
    }

    /// Applies a checked change of payload, unless the point has to move: visible when it returns.
    pub(crate) fn apply_row(&mut self, write: &RowWrite<'_>) -> Rewritten {
        let slot = self.shared.ids.get_owned(write.id);
        let rewritten = match slot {
            Some(slot) if self.moves(write.id, write.row) => {
                return Rewritten::Moves { deadline_ms: self.shared.meta.deadline_ms(slot) };
            }
            Some(slot) => Rewritten::InPlace(self.rewrite(slot, write.row, write.version)),
            None => Rewritten::Absent,
        };
        self.publish(write.seq);
        rewritten
    }

    /// Whether this row's text differs from the one the point is found by, so that the change takes another slot and a place in the
    /// tail, like a write.
    pub fn moves(&self, id: u64, row: &[u8]) -> bool {
        let shared = &self.shared;
        let row_of = |slot| PayloadRow::trusted(shared.meta.owned_row(&self.rows, slot));
        shared
            .ids
            .get_owned(id)
            .is_some_and(|slot| self.lanes.texts_differ(row_of(slot), PayloadRow::trusted(row)))
    }

    /// Ids of points with keys whose deadline is at or before `now_ms`, at most `max`, earliest first (for the sweeper).
    pub fn with_expired_keys(&self, now_ms: u64, max: usize) -> Vec<u64> {
        self.key_deadlines.range(..=(now_ms, u64::MAX)).take(max).map(|&(_, id)| id).collect()
    }

    /// Takes the keys out of a point whose deadline has passed. No reader sees them any more, so version and sequence number stay and
    /// nothing is logged: deadlines are absolute, and what comes back at replay is taken out again. The number of terms that were filed;
    /// `None` when there is no such key.
    pub(crate) fn drop_expired_keys(&mut self, id: u64, now_ms: u64) -> Option<usize> {
        let slot = self.shared.ids.get_owned(id)?;
        let shared = self.shared.clone();
        let (row, version) = shared.meta.owned_row_and_version(&self.rows, slot);
        let row = PayloadRow::trusted(row);
        if row.next_deadline().is_none_or(|deadline| deadline > now_ms) {
            return None;
        }
        let mut left = RowBuilder::from(row);
        left.drop_expired(now_ms);
        if row.content(now_ms).is_none() {
            // No reader may find it any more, so it need not wait for them.
            self.lanes.retract_text(slot, row);
        }
        Some(self.rewrite(slot, &left.finish(), version))
    }

    /// Notes when the first key of a new row expires.
    pub(super) fn watch_keys(&mut self, id: u64, deadlines: KeyDeadlines) {
        if let Some(deadline_ms) = deadlines.next {
            self.key_deadlines.insert((deadline_ms, id));
            if self.shared.has_text()
                && let Some(deadline_ms) = deadlines.content
            {
                self.expiry.text_deadlines.insert((deadline_ms, id));
            }
        }
    }

    /// The row that a slot has so far is about to go.
    pub(super) fn unwatch_keys(&mut self, slot: Slot) {
        if self.key_deadlines.is_empty() {
            return;
        }
        let meta = &self.shared.meta;
        let deadlines = KeyDeadlines::of(PayloadRow::trusted(meta.owned_row(&self.rows, slot)));
        if let Some(deadline_ms) = deadlines.next {
            self.key_deadlines.remove(&(deadline_ms, meta.id(slot)));
            if let Some(deadline_ms) = deadlines.content {
                self.expiry.text_deadlines.remove(&(deadline_ms, meta.id(slot)));
            }
        }
    }

    /// Gives a slot another row; the number of terms that were filed.
    fn rewrite(&mut self, slot: Slot, row: &[u8], version: u64) -> usize {
        let shared = self.shared.clone();
        self.unwatch_keys(slot);
        self.watch_keys(shared.meta.id(slot), KeyDeadlines::of(PayloadRow::trusted(row)));
        let old = PayloadRow::trusted(shared.meta.owned_row(&self.rows, slot));
        let deadlines = old.next_deadline().is_some() || PayloadRow::trusted(row).next_deadline().is_some();
        let terms = shared.index.supersede(slot, old, PayloadRow::trusted(row));
        if shared.meta.replace_row(slot, row, version) {
            self.limbo.push(&shared.domain, Retired::Row(slot));
        } else {
            // Nothing was filed, and nothing is there to be freed.
            shared.index.release(slot, PayloadRow::trusted(&[]), &[]);
        }
        if deadlines {
            // The key of a text that stays may expire at another time than before.
            self.settle_text(slot);
        }
        self.changes.data.insert(slot);
        terms
    }
}
