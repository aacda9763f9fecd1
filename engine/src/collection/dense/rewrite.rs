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
use super::*;
use crate::payload::{PayloadRow, RowBuilder};

/// A new payload, as logged and applied.
pub struct RowWrite<'a> {
    /// As [`Write::seq`].
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

/// What waits until no reader can see it.
pub(super) enum Retired {
    /// Dead slots that nothing leads to.
    Slots(Vec<Slot>),
    /// The oldest replaced row of a slot.
    Row(Slot),
    /// Vectors that codes have taken the place of.
    Vectors(Vec<Slot>),
    /// The oldest codes that others have taken the place of.
    Codes,
}

impl DenseWriter {
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
        match expected_version {
            Some(expected) if expected != found => Err(WriteError::VersionConflict { id, expected, found }),
            _ => Ok(Some((row, found))),
        }
    }

    /// Applies a checked change of payload: visible when it returns. False when the id is absent. As with [`Self::apply`], a `seq`
    /// already applied is ignored. Costs a row copy and two walks down a dictionary per term that is new, as many again later
    /// per term that is gone; no distance and no slot.
    pub fn apply_row(&mut self, write: &RowWrite<'_>) -> bool {
        debug_assert!(self.restoring.is_none(), "finish_restore comes before writes");
        if write.seq <= self.seq {
            return false;
        }
        let slot = self.shared.ids.get_owned(write.id);
        if let Some(slot) = slot {
            if self.moves(write.id, write.row) {
                self.move_to_another_slot(slot, write);
                return true;
            }
            self.rewrite(slot, write.row, write.version);
        }
        self.shared.published_seq.store(write.seq, Ordering::Release);
        self.seq = write.seq;
        slot.is_some()
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

    fn move_to_another_slot(&mut self, slot: Slot, write: &RowWrite<'_>) {
        let shared = self.shared.clone();
        // To prepare a prepared vector again changes no more than its last bits.
        let vector = &shared.graph.vector(slot)[..shared.config.dim];
        let deadline_ms = shared.meta.deadline_ms(slot);
        let RowWrite { seq, id, version, row } = *write;
        self.put(Write { seq, id, version, vector, row, deadline_ms });
    }

    /// Ids of points with keys whose deadline is at or before `now_ms`, at most `max`, earliest first (for the sweeper).
    pub fn with_expired_keys(&self, now_ms: u64, max: usize) -> Vec<u64> {
        self.key_deadlines.range(..=(now_ms, u64::MAX)).take(max).map(|&(_, id)| id).collect()
    }

    /// Takes the keys out of a point whose deadline has passed. No reader sees them any more, so version and sequence number stay and
    /// nothing is logged: deadlines are absolute, and what comes back at replay is taken out again. False when there is none.
    pub fn drop_expired_keys(&mut self, id: u64, now_ms: u64) -> bool {
        let Some(slot) = self.shared.ids.get_owned(id) else { return false };
        let shared = self.shared.clone();
        let (row, version) = shared.meta.owned_row_and_version(&self.rows, slot);
        let row = PayloadRow::trusted(row);
        if row.next_deadline().is_none_or(|deadline| deadline > now_ms) {
            return false;
        }
        let mut left = RowBuilder::from(row);
        left.drop_expired(now_ms);
        if row.content(now_ms).is_none() {
            // No reader may find it any more, so it need not wait for them.
            self.lanes.retract_text(slot, row);
        }
        self.rewrite(slot, &left.finish(), version);
        true
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

    /// Gives a slot another row.
    fn rewrite(&mut self, slot: Slot, row: &[u8], version: u64) {
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
        self.dirty.data.insert(slot);
        self.owe_reclaim(terms);
    }

    /// Frees the oldest replaced row of a slot, which no reader can see any more; the number of its terms.
    pub(super) fn release_row(&mut self, slot: Slot) -> usize {
        let meta = &self.shared.meta;
        let rows = meta.rows_of(&self.rows, slot);
        let (&oldest, newer) = rows.split_first().expect("the row that the slot has");
        let terms = self.shared.index.release(slot, oldest, newer);
        // Each was looked for in every newer row.
        let terms = terms * newer.len();
        // SAFETY: quiescent, as it came out of limbo.
        unsafe { meta.free_oldest_replaced(&mut self.rows, slot) };
        terms
    }
}
