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
use super::row_block::RowBlock;
use super::*;
use crate::memory::Owned;
use crate::payload::{PayloadRow, RowBuilder};
use ahash::HashMap;
use std::collections::VecDeque;

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

/// Replaced rows by slot, oldest first. Part of the readable side, as readers may outlive the owner's.
pub(super) struct Superseded(Owned<HashMap<Slot, VecDeque<RowBlock>>>);

impl Superseded {
    /// None yet.
    pub fn new() -> Superseded {
        Superseded(Owned::new(HashMap::default()))
    }
}

impl Drop for Superseded {
    fn drop(&mut self) {
        for (_, rows) in self.0.enter().drain() {
            // SAFETY: with the collection, when no reader is left; in no line any more, and dropped out of the map.
            rows.into_iter().for_each(|row| _ = unsafe { row.free() });
        }
    }
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
        // SAFETY: the owner, which frees no row while the answer is borrowed from it.
        let (row, found) = unsafe { self.shared.meta.row_and_version(slot) };
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
        // SAFETY: the owner, which frees no row meanwhile.
        let row_of = |slot| PayloadRow::trusted(unsafe { shared.meta.row(slot) });
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
        // SAFETY: the owner, which frees no row meanwhile.
        let (row, version) = unsafe { shared.meta.row_and_version(slot) };
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
    pub(super) fn watch_keys(&mut self, id: u64, row: &[u8]) {
        if let Some(deadline_ms) = PayloadRow::trusted(row).next_deadline() {
            self.key_deadlines.insert((deadline_ms, id));
            if self.shared.has_text()
                && let Some(deadline_ms) = PayloadRow::trusted(row).content_deadline()
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
        // SAFETY: the owner, which frees no row meanwhile.
        let row = PayloadRow::trusted(unsafe { meta.row(slot) });
        if let Some(deadline_ms) = row.next_deadline() {
            self.key_deadlines.remove(&(deadline_ms, meta.id(slot)));
            if let Some(deadline_ms) = row.content_deadline() {
                self.expiry.text_deadlines.remove(&(deadline_ms, meta.id(slot)));
            }
        }
    }

    /// Gives a slot another row.
    fn rewrite(&mut self, slot: Slot, row: &[u8], version: u64) {
        let shared = self.shared.clone();
        self.unwatch_keys(slot);
        self.watch_keys(shared.meta.id(slot), row);
        // SAFETY: the owner, which frees no row meanwhile.
        let old = PayloadRow::trusted(unsafe { shared.meta.row(slot) });
        let deadlines = old.next_deadline().is_some() || PayloadRow::trusted(row).next_deadline().is_some();
        let terms = shared.index.supersede(slot, old, PayloadRow::trusted(row));
        match shared.meta.swap_row(slot, row, version) {
            Some(old) => {
                shared.superseded.0.enter().entry(slot).or_default().push_back(old);
                self.limbo.push(&shared.domain, Retired::Row(slot));
            }
            // Nothing was filed, and nothing is there to be freed.
            None => _ = shared.index.release(slot, PayloadRow::trusted(&[]), &[]),
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
        let shared = &self.shared;
        let mut superseded = shared.superseded.0.enter();
        let rows = superseded.get_mut(&slot).expect("a row in limbo is kept here");
        let oldest = rows.pop_front().expect("as many as in limbo");
        // SAFETY: the owner, which frees no other row meanwhile.
        let newest = unsafe { shared.meta.row(slot) };
        // SAFETY: as above; these are freed when their own turn comes.
        let newer = rows.iter().map(|row| unsafe { row.bytes() }).chain([newest]);
        let newer: Vec<PayloadRow<'_>> = newer.map(PayloadRow::trusted).collect();
        // SAFETY: freed below.
        let terms = shared.index.release(slot, PayloadRow::trusted(unsafe { oldest.bytes() }), &newer);
        // Each was looked for in every newer row.
        let terms = terms * newer.len();
        if rows.is_empty() {
            superseded.remove(&slot);
        }
        // SAFETY: out of the line since it was replaced and out of the map just now, and quiescent: it came out of limbo.
        unsafe { shared.meta.free_block(oldest) };
        terms
    }
}
