//! Checks of writes, and how points come, go and are counted. The owner's thread.
use super::meta::expired;
use super::sparse_lists::{DroppedSparseSpace, SparseSpace};
use super::{
    Birth, Changes, Expiry, Gone, KeyDeadlines, LaneWriters, Meta, Parents, Points, PointsWriter, Rejects,
    add, sub,
};
use crate::collection::{WriteError, WriteMode};
use crate::memory::{ArenaError, Domain, IdMap, Limbo, ScratchFiles};
use crate::payload::PayloadRow;
use crate::payload::index::PayloadIndex;
use crate::slot::Slot;
use crate::text::TextConfig;
use ahash::HashMap;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Expired points that an insert looks at to find out whether there is room for it: some 10 us.
const EXPIRED_LOOKED_AT: usize = 4_096;

/// How many points there may be.
#[derive(Clone, Copy, Default)]
pub(crate) struct Quota {
    /// Points; 0 = any number.
    pub points: u64,
    /// Bytes; 0 = any number.
    pub bytes: u64,
    /// What a point counts for.
    pub bytes_per_point: u64,
}

/// What points are made with.
pub(crate) struct PointsConfig {
    /// Slots they may ever use.
    pub slots_max: usize,
    /// For each sparse space whether it was dropped.
    pub sparse_spaces: Vec<bool>,
    /// How texts are analyzed and ranked; `None` where texts are not searched.
    pub full_text: Option<TextConfig>,
    pub quota: Quota,
    /// Whether a freed slot waits for an image before it is used again.
    pub holds_freed: bool,
}

/// A slot whose point has just died, and when it was born.
#[derive(Clone, Copy)]
pub(crate) struct Buried {
    pub slot: Slot,
    pub born: u64,
}

impl PointsWriter {
    /// No points. Lines of facts come from `scratch`. Reserves address space only.
    ///
    /// # Errors
    /// The kernel refuses a reservation.
    pub(crate) fn create(
        config: &PointsConfig,
        domain: Arc<Domain>,
        scratch: &ScratchFiles,
    ) -> Result<PointsWriter, ArenaError> {
        let slots_max = config.slots_max;
        // Random on purpose: nobody may craft ids that collide. It decides where the map keeps an id and no result.
        let id_seed = RandomState::new().hash_one(slots_max);
        let lanes = LaneWriters::new(&config.sparse_spaces, config.full_text, domain.clone(), id_seed);
        let (meta, rows) = Meta::reserve(slots_max, scratch, domain.clone())?;
        let shared = Points {
            meta,
            parents: Parents::default(),
            ids: IdMap::new(domain.clone(), id_seed),
            index: PayloadIndex::new(slots_max, domain.clone()),
            text: lanes.text().cloned(),
            published_seq: AtomicU64::new(0),
            slots: AtomicU64::new(0),
            live: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            tombstoned: AtomicU64::new(0),
            owner_bytes: AtomicU64::new(0),
            column_drops: AtomicU64::new(0),
            rejects: Rejects::default(),
            domain,
        };
        Ok(PointsWriter {
            shared: Arc::new(shared),
            rows: Arc::new(rows),
            slots_max,
            quota: config.quota,
            seq: 0,
            free: Vec::new(),
            holds_freed: config.holds_freed,
            held: Vec::new(),
            kept_for_snapshots: None,
            ordered_ids: BTreeSet::new(),
            gone: Gone::default(),
            expiry: Expiry::default(),
            deadlines: BTreeSet::new(),
            key_deadlines: BTreeSet::new(),
            newborn: Vec::new(),
            newborn_look: Self::NEWBORN_MAX,
            settling: None,
            awaited: HashMap::default(),
            limbo: Limbo::new(),
            freeing: Vec::new(),
            reclaim_owed: 0,
            lanes,
            changes: Changes::default(),
        })
    }

    /// The readable side.
    pub(crate) fn shared(&self) -> &Arc<Points> {
        &self.shared
    }

    /// The sparse spaces in the order of their numbers; a dropped one keeps its place. A dense collection has one.
    pub(crate) fn sparse_spaces(&self) -> impl Iterator<Item = &Arc<SparseSpace>> {
        self.lanes.sparse_spaces()
    }

    /// Whether there is a sparse space of that number that was not dropped.
    pub fn has_sparse_space(&self, number: usize) -> bool {
        self.lanes.sparse_spaces().nth(number).is_some_and(|space| !space.is_dropped())
    }

    /// Adds a sparse space without vectors, which gets the next number.
    pub(crate) fn add_sparse_space(&mut self) {
        self.lanes.add_sparse_space();
    }

    /// Drops a sparse space; its number stays taken. The caller keeps the returned space until no reader has a view of it. Vectors in it stay in
    /// the rows of points.
    ///
    /// # Panics
    /// When there is no space of that number.
    pub(crate) fn drop_sparse_space(&mut self, number: usize) -> DroppedSparseSpace {
        self.lanes.drop_sparse_space(number)
    }

    /// Last applied sequence number.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The slot of a live id.
    pub(crate) fn live_slot(&self, id: u64, now_ms: u64) -> Option<Slot> {
        let slot = self.shared.ids.get_owned(id)?;
        (!expired(self.shared.meta.deadline_ms(slot), now_ms)).then_some(slot)
    }

    /// Version as conditions see it: 0 for absent, deleted and expired ids.
    pub(crate) fn live_version(&self, id: u64, now_ms: u64) -> u64 {
        let version = |slot| self.shared.meta.owned_row_and_version(&self.rows, slot).1;
        self.live_slot(id, now_ms).map_or(0, version)
    }

    /// Whether a point with version `found` may be written, 0 = none; the version that it will get.
    ///
    /// # Errors
    /// No room, or a duplicate.
    pub(crate) fn check_room(
        &self,
        id: u64,
        found: u64,
        mode: WriteMode,
        now_ms: u64,
    ) -> Result<u64, WriteError> {
        // A refused duplicate on a full collection is told "full": it would have needed room.
        let replaces = mode == WriteMode::Upsert && found != 0;
        if (!replaces && self.is_full(now_ms)) || !self.has_slot() {
            return Err(WriteError::Full);
        }
        if mode == WriteMode::Insert && found != 0 {
            return Err(WriteError::DuplicateId(id));
        }
        Ok(1 + if found != 0 { found } else { self.last_version(id) })
    }

    /// The version that a write gives to `id` now: one more than it has, or had when it was last there. An id that was never there
    /// gets 1; once very many ids have been deleted perhaps more (`gone.rs`).
    pub fn next_version(&self, id: u64) -> u64 {
        self.last_version(id) + 1
    }

    /// At least the version that `id` has or had, expired or not.
    fn last_version(&self, id: u64) -> u64 {
        self.present_version(id).unwrap_or_else(|| self.gone.last(id))
    }

    fn present_version(&self, id: u64) -> Option<u64> {
        let slot = self.shared.ids.get_owned(id)?;
        Some(self.shared.meta.owned_row_and_version(&self.rows, slot).1)
    }

    /// Bytes of the row of a point that is present, expired or not; 0 without one.
    pub fn row_bytes(&self, id: u64) -> usize {
        let slot = self.shared.ids.get_owned(id);
        slot.map_or(0, |slot| self.shared.meta.owned_row(&self.rows, slot).len())
    }

    /// What is known of the version of one id in particular: whether it is present (expired or not), and the version that it has or
    /// had, 0 when that is not remembered.
    pub fn known_version(&self, id: u64) -> (bool, u64) {
        match self.present_version(id) {
            Some(version) => (true, version),
            None => (false, self.gone.remembered(id).unwrap_or(0)),
        }
    }

    /// An empty writer that is to take the place of `other` gives no version again that `other` has given to an id that is absent
    /// there. Some 100 us.
    ///
    /// # Panics
    /// When something was written.
    pub fn inherit_versions(&mut self, other: &PointsWriter) {
        assert!(self.ordered_ids.is_empty(), "versions are inherited before anything is written");
        self.gone = other.gone.clone();
        self.gone.changed = true;
    }

    /// As [`Self::inherit_versions`], for one id that is absent here, and expired or absent in `other`.
    pub fn inherit_version(&mut self, other: &PointsWriter, id: u64) {
        self.gone.raise_floor(other.gone.floor());
        self.gone.note(id, other.last_version(id));
    }

    /// Checks of writes that begin from now on go by these quotas; 0 = none. What is there stays.
    pub(crate) fn set_quota(&mut self, points: u64, bytes: u64) {
        self.quota = Quota { points, bytes, ..self.quota };
    }

    /// Whether one more point would exceed a quota. Points expired but not yet swept do not count.
    ///
    /// Expired points that [`Self::follow_expiry`] has passed are counted already. Between its mark and now, [`EXPIRED_LOOKED_AT`] of them are looked at.
    fn is_full(&self, now_ms: u64) -> bool {
        let quota = self.quota;
        let by_bytes = match quota.bytes {
            0 => u64::MAX,
            bytes => bytes / quota.bytes_per_point,
        };
        let by_count = if quota.points == 0 { u64::MAX } else { quota.points };
        let limit = by_bytes.min(by_count);
        let present = self.ordered_ids.len() as u64;
        if present < limit {
            return false;
        }
        let passed = self.shared.expired.load(Ordering::Relaxed);
        let (mark, now) = (self.expiry.passed(), (now_ms, u64::MAX));
        let between = |after, end| {
            let range = self.deadlines.range((Bound::Excluded(after), Bound::Included(end)));
            range.take(EXPIRED_LOOKED_AT).count() as u64
        };
        let expired = match mark <= now {
            true => passed + between(mark, now),
            // The clock was set back, and the mark has not followed it yet.
            false => passed.saturating_sub(between(now, mark)),
        };
        present - expired.min(present) >= limit
    }

    /// Bytes that a point counts for from now on.
    pub(crate) fn set_quota_bytes_per_point(&mut self, bytes: u64) {
        self.quota.bytes_per_point = bytes;
    }

    /// Whether the points present leave less than `bytes` of the byte quota.
    fn quota_needs(&self, bytes: u64) -> bool {
        let used = self.ordered_ids.len() as u64 * self.quota.bytes_per_point;
        self.quota.bytes != 0 && used + bytes > self.quota.bytes
    }

    /// Slots it may ever use.
    pub fn slots_max(&self) -> usize {
        self.slots_max
    }

    /// Whether one more point fits, before anything dead is reclaimed.
    pub fn has_slot(&self) -> bool {
        !self.free.is_empty() || self.high_water() < self.slots_max
    }

    /// The slot that the next point takes.
    pub(crate) fn next_slot(&self) -> Slot {
        self.free.last().map_or(self.high_water() as Slot, |&slot| slot)
    }

    /// Whether the next point takes the place of one that is gone.
    pub fn reuses_slot(&self) -> bool {
        !self.free.is_empty()
    }

    /// Slots ever used.
    pub(crate) fn high_water(&self) -> usize {
        self.shared.slots.load(Ordering::Relaxed) as usize
    }

    /// Makes sure that lines of the first `slots` slots can be touched.
    ///
    /// # Errors
    /// The file system's, above all that it is full.
    pub(crate) fn commit(&self, slots: usize) -> std::io::Result<()> {
        self.shared.meta.commit(slots)
    }

    /// Raises [`Self::seq`] without a change: what lies between was applied elsewhere or changes nothing here.
    pub fn advance_seq(&mut self, seq: u64) {
        if seq > self.seq {
            self.publish(seq);
        }
    }

    /// Everything up to `seq` is in place.
    pub(super) fn publish(&mut self, seq: u64) {
        self.seq = seq;
        self.shared.published_seq.store(seq, Ordering::Release);
    }

    /// Before a point is written: columns of the payload index give way where the quota would have no room for it.
    pub(crate) fn make_quota_room(&self) {
        let shared = &self.shared;
        let columns = shared.index.column_bytes();
        if columns > 0
            && self.quota_needs(columns + self.quota.bytes_per_point)
            && shared.index.drop_columns()
        {
            add(&shared.column_drops, 1);
        }
    }

    /// The last freed slot, or a fresh one.
    pub(crate) fn take_slot(&mut self) -> Slot {
        self.free.pop().unwrap_or_else(|| self.high_water() as Slot)
    }

    /// Fills a slot that was taken: line, row, payload index and lanes. No reader sees it before [`Self::admit`]. The number of its terms.
    pub(crate) fn fill(&mut self, slot: Slot, birth: &Birth<'_>) -> usize {
        let shared = &self.shared;
        shared.parents.forget(slot);
        shared.meta.birth(slot, birth);
        let row = PayloadRow::trusted(birth.row);
        let terms = shared.index.insert(slot, row) + self.lanes.insert(slot, row);
        if slot as usize == self.high_water() {
            shared.slots.store(slot as u64 + 1, Ordering::Release);
        }
        terms
    }

    /// Shows a slot that was filled, once all spaces have what they are to have of it; the slot that it takes the place of.
    pub(crate) fn admit(&mut self, slot: Slot, birth: &Birth<'_>) -> Option<Buried> {
        let replaced = match self.shared.ids.insert(birth.id, slot) {
            Some(old) => Some(self.bury(old, birth.born)),
            None => {
                self.ordered_ids.insert(birth.id);
                self.gone.forget(birth.id);
                add(&self.shared.live, 1);
                None
            }
        };
        self.publish(birth.born);
        if birth.deadline_ms != 0 {
            self.deadlines.insert((birth.deadline_ms, birth.id));
        }
        let row = PayloadRow::trusted(birth.row);
        self.watch_keys(birth.id, KeyDeadlines::of(row));
        if birth.deadline_ms != 0 || row.next_deadline().is_some() {
            self.settle_counts(slot);
        }
        self.changes.data.insert(slot);
        self.newborn.push((slot, birth.born));
        replaced
    }

    /// A slot dies at `seq`: its id is gone or leads elsewhere.
    fn bury(&mut self, slot: Slot, seq: u64) -> Buried {
        let counts = self.counts(slot);
        let shared = self.shared.clone();
        let deadline_ms = shared.meta.deadline_ms(slot);
        if deadline_ms != 0 {
            self.deadlines.remove(&(deadline_ms, shared.meta.id(slot)));
        }
        self.unwatch_keys(slot);
        let row = PayloadRow::trusted(shared.meta.owned_row(&self.rows, slot));
        match counts {
            true => self.lanes.forget(slot, row),
            false => sub(&shared.expired, 1),
        }
        let born = shared.meta.born(slot);
        shared.meta.bury(slot, seq);
        add(&shared.tombstoned, 1);
        self.changes.state.insert(slot);
        Buried { slot, born }
    }

    /// Whether `found`, the version of a point, is the one that is expected.
    ///
    /// # Errors
    /// [`WriteError::VersionConflict`]; an absent id counts as version 0.
    pub(crate) fn check_version(id: u64, expected: Option<u64>, found: u64) -> Result<(), WriteError> {
        match expected {
            Some(expected) if expected != found => Err(WriteError::VersionConflict { id, expected, found }),
            _ => Ok(()),
        }
    }

    /// Version check of a delete; Ok(false) = absent (or expired).
    ///
    /// # Errors
    /// [`WriteError::VersionConflict`]; an absent id counts as version 0.
    pub fn check_delete(
        &self,
        id: u64,
        expected_version: Option<u64>,
        now_ms: u64,
    ) -> Result<bool, WriteError> {
        let found = self.live_version(id, now_ms);
        Self::check_version(id, expected_version, found)?;
        Ok(found != 0)
    }

    /// Whether `id` is present and its deadline has passed.
    pub(crate) fn has_expired(&self, id: u64, now_ms: u64) -> bool {
        let meta = &self.shared.meta;
        self.shared.ids.get_owned(id).is_some_and(|slot| expired(meta.deadline_ms(slot), now_ms))
    }

    /// Takes `id` out; the slot that it had.
    pub(crate) fn remove(&mut self, seq: u64, id: u64) -> Option<Buried> {
        self.seq = seq;
        let shared = self.shared.clone();
        let buried = shared.ids.get_owned(id).map(|slot| {
            self.gone.note(id, shared.meta.owned_row_and_version(&self.rows, slot).1);
            let buried = self.bury(slot, seq);
            self.ordered_ids.remove(&id);
            sub(&shared.live, 1);
            buried
        });
        // Published before the id goes: a reader that no longer finds the id then has no older snapshot to contradict it.
        self.publish(seq);
        if buried.is_some() {
            shared.ids.remove(id);
        }
        buried
    }

    /// Ids present in ascending order from `from` (inclusive), for scroll and delete by filter. Expired ids are included
    /// until swept.
    pub fn ids_from(&self, from: u64) -> impl Iterator<Item = u64> + '_ {
        self.ordered_ids.range(from..).copied()
    }

    /// Ids whose deadline is at or before `now_ms`, at most `max`, earliest first (for the sweeper, which deletes them).
    pub fn expired(&self, now_ms: u64, max: usize) -> Vec<u64> {
        self.deadlines.range(..=(now_ms, u64::MAX)).take(max).map(|&(_, id)| id).collect()
    }

    /// Does a piece of what was put off with long texts, up to some 100 µs; false when nothing was. Whoever has written, deleted or expired
    /// something calls it until there is nothing more, before the change is acknowledged: searches for words find all of it then.
    pub fn text_step(&mut self) -> bool {
        self.lanes.step()
    }

    /// Whether [`Self::text_step`] has something to do.
    pub fn has_texts_waiting(&self) -> bool {
        self.lanes.has_waiting()
    }

    /// How many pieces of work on long texts were ever put off, and how many of them are done. They are done in order, so whoever has written
    /// waits until as many are done as were put off when it had.
    pub fn texts_progress(&self) -> (u64, u64) {
        self.lanes.progress()
    }

    /// One slice of building a column that searches want, as long as the quota has room for it. Part of a reclamation.
    pub fn fill_columns(&self, max_slots: usize) {
        let shared = &self.shared;
        let slots = self.high_water();
        if let Some(more) = shared.index.column_due()
            && !self.quota_needs(shared.index.column_bytes() + more * PayloadIndex::column_bytes_of(slots))
        {
            let row = |slot| PayloadRow::trusted(shared.meta.owned_row(&self.rows, slot));
            shared.index.column_step(slots, max_slots, row);
        }
    }
}
