//! Writes: each goes to the points and to the space, in the order that readers rely on. The owner's thread.
use super::spaces::{make_space, view_of};
use super::{Dense, DenseConfig, DenseWriter, PointsWriter, SpaceWriter, WriteError};
use crate::collection::named_config::NamedConfig;
use crate::collection::parts::{Part, Parts};
use crate::collection::points::{
    Birth, Buried, PointsConfig, Quota, Rewritten, RowWrite, Unseen, UnseenSlot, slot_steps,
};
use crate::collection::space::reserve_vectors;
use crate::memory::{ArenaError, Domain, ScratchFiles, Storage};
use crate::slot::Slot;
use std::sync::Arc;

/// How a write treats a live id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Create-only.
    Insert,
    /// Insert or replace.
    Upsert,
}

/// One accepted write, as logged and applied.
pub struct Write<'a> {
    /// Collection sequence number, growing from 1. A write at or below [`DenseWriter::seq`] is already part of the
    /// state (log replay over a checkpoint) and is ignored.
    pub seq: u64,
    /// Point id.
    pub id: u64,
    /// Version given by `check_write`.
    pub version: u64,
    /// Its vectors, raw; `apply` prepares them (normalises under cosine).
    pub parts: Parts<'a>,
    /// Encoded payload row, empty = none.
    pub row: &'a [u8],
    /// Absolute deadline in Unix ms, 0 = none.
    pub deadline_ms: u64,
}

/// Slots of a collection that may grow to so many.
fn slots_of(max_slots: usize) -> usize {
    max_slots.clamp(1, crate::index::SLOTS_MAX)
}

impl DenseWriter {
    /// Makes an empty collection that may grow to `max_slots` (at most [`crate::index::SLOTS_MAX`]; live points, dead ones not yet
    /// reclaimed and everything in between take one each). Reserves address space only.
    ///
    /// # Errors
    /// The kernel refuses a reservation.
    pub fn create(
        config: DenseConfig,
        max_slots: usize,
        domain: Arc<Domain>,
    ) -> Result<DenseWriter, ArenaError> {
        Self::create_in(config, max_slots, domain, None)
    }

    /// As [`Self::create`]; with `storage` its vectors are rows of a file, one padded row per slot, and what is as large and made
    /// anew with each start lies in files as well.
    ///
    /// A vector is written once, to a slot of which no durable image tells, so that images may name the slot in place of the
    /// vector: sync the file after the capture of an image and before the image counts.
    ///
    /// # Errors
    /// As [`Self::create`], and when a file cannot be made.
    pub fn create_in(
        config: DenseConfig,
        max_slots: usize,
        domain: Arc<Domain>,
        storage: Option<Storage>,
    ) -> Result<DenseWriter, ArenaError> {
        let slots_max = slots_of(max_slots);
        let vectors = reserve_vectors(&config, slots_max, storage)?;
        let quota = Quota {
            points: config.max_vectors,
            bytes: config.max_bytes,
            bytes_per_point: config.quota_bytes_per_point(),
        };
        let holds_freed = vectors.keeps_file();
        let full_text = config.full_text;
        let of_points = PointsConfig { slots_max, sparse_spaces: vec![false], full_text, quota, holds_freed };
        let points = PointsWriter::create(&of_points, domain, vectors.scratch())?;
        let space = SpaceWriter::create(config, vectors, &points, None)?;
        Ok(Self::of(points, vec![space], false))
    }

    /// As [`Self::create`], a collection of named spaces.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_named(
        config: &NamedConfig,
        max_slots: usize,
        domain: Arc<Domain>,
    ) -> Result<DenseWriter, ArenaError> {
        let slots_max = slots_of(max_slots);
        let quota = Quota {
            points: config.whole.max_vectors,
            bytes: config.whole.max_bytes,
            bytes_per_point: config.quota_bytes_per_point(),
        };
        let of_points = PointsConfig {
            slots_max,
            sparse_spaces: config.sparse_spaces.iter().map(|space| space.is_dropped).collect(),
            full_text: config.whole.full_text,
            quota,
            holds_freed: false,
        };
        let points = PointsWriter::create(&of_points, domain, &ScratchFiles::default())?;
        let mut spaces = Vec::with_capacity(config.spaces.len());
        for number in 0..config.spaces.len() {
            spaces.push(make_space(config, number, &points)?);
        }
        Ok(Self::of(points, spaces, true))
    }

    fn of(points: PointsWriter, spaces: Vec<SpaceWriter>, is_named: bool) -> DenseWriter {
        DenseWriter {
            shared: Arc::new(view_of(&points, &spaces, is_named)),
            points,
            spaces,
            populated: 0,
            capture: None,
            restoring: None,
            leaving: Vec::new(),
            has_skipped: false,
        }
    }

    /// The readable side.
    pub fn shared(&self) -> &Arc<Dense> {
        &self.shared
    }

    /// The owner's side of its points.
    pub fn points(&self) -> &PointsWriter {
        &self.points
    }

    /// As [`Self::points`].
    pub fn points_mut(&mut self) -> &mut PointsWriter {
        &mut self.points
    }

    /// The owner's side of their vectors in the only space, or the first.
    ///
    /// # Panics
    /// In a collection of named spaces that has none.
    pub fn space(&self) -> &SpaceWriter {
        &self.spaces[0]
    }

    /// As [`Self::space`].
    ///
    /// # Panics
    /// As that.
    pub fn space_mut(&mut self) -> &mut SpaceWriter {
        &mut self.spaces[0]
    }

    /// The owner's side of their vectors in each space, in the order of their numbers; of a dropped space its place is left.
    pub fn spaces(&self) -> &[SpaceWriter] {
        &self.spaces
    }

    /// As [`Self::spaces`].
    pub fn spaces_mut(&mut self) -> &mut [SpaceWriter] {
        &mut self.spaces
    }

    /// A dense collection: searches and checks of writes that begin from now on go by those values of `config` that may change
    /// ([`Key::is_live`]). Points beyond a quota that is smaller now stay; only more of them are refused.
    ///
    /// [`Key::is_live`]: crate::collection::config_keys::Key::is_live
    pub fn tune(&mut self, config: &DenseConfig) {
        self.points.set_quota(config.max_vectors, config.max_bytes);
        self.space_mut().tune(config);
    }

    /// Changes the live values of a collection of named spaces, as [`Self::tune`] does those of a dense one.
    ///
    /// # Panics
    /// When its spaces are not those of the configuration.
    pub fn tune_named(&mut self, config: &NamedConfig) {
        assert_eq!(self.spaces.len(), config.spaces.len(), "spaces neither come nor go");
        self.points.set_quota(config.whole.max_vectors, config.whole.max_bytes);
        for (space, named) in self.spaces.iter_mut().zip(&config.spaces) {
            space.tune(&named.config);
        }
    }

    /// Vectors in the longest tail.
    pub fn tail_len(&self) -> usize {
        self.spaces.iter().map(SpaceWriter::tail_len).max().unwrap_or(0)
    }

    /// Whether something is learned in some space that follows its points: see [`SpaceWriter::follows_points`].
    pub fn follows_points(&self) -> bool {
        self.spaces.iter().any(SpaceWriter::follows_points)
    }

    /// Whether codes of some space wait for the job that frees them.
    pub fn has_codes_to_free(&self) -> bool {
        self.spaces.iter().any(SpaceWriter::has_codes_to_free)
    }

    /// Whether images lack what was learned in some space: see [`SpaceWriter::training_unsaved`].
    pub fn training_unsaved(&self) -> bool {
        self.spaces.iter().any(SpaceWriter::training_unsaved)
    }

    /// Whether images lack codes of some space: see [`SpaceWriter::codes_unsaved`].
    pub fn codes_unsaved(&self) -> bool {
        self.spaces.iter().any(SpaceWriter::codes_unsaved)
    }

    /// Whether planners may look at slots without a pin.
    pub(super) fn round_open(&self) -> bool {
        self.spaces.iter().any(SpaceWriter::round_open)
    }

    /// Last applied sequence number.
    pub fn seq(&self) -> u64 {
        self.points.seq()
    }

    /// All checks of a write, in the order of the interface: length, finiteness, rate, version, quotas, duplicate. `has_rate` returns whether
    /// the limit on the rate of writes allows one more. It is called only after the vectors have passed their checks, because it counts the write.
    /// Returns the version the point will get: see [`PointsWriter::next_version`].
    ///
    /// # Errors
    /// The first check that fails; nothing has changed.
    pub fn check_write(
        &self,
        id: u64,
        parts: Parts<'_>,
        mode: WriteMode,
        expected_version: Option<u64>,
        has_rate: impl FnOnce() -> bool,
        now_ms: u64,
    ) -> Result<u64, WriteError> {
        for (number, space) in self.spaces.iter().enumerate() {
            if let Part::Given(vector) = parts.of(number) {
                space.check_vector(id, vector)?;
            }
        }
        if !has_rate() {
            return Err(WriteError::RateLimited);
        }
        let found = self.points.live_version(id, now_ms);
        PointsWriter::check_version(id, expected_version, found)?;
        if self.spaces.iter().any(SpaceWriter::is_read_only) {
            return Err(WriteError::ReadOnly);
        }
        let version = self.points.check_room(id, found, mode, now_ms)?;
        self.commit_next()?;
        Ok(version)
    }

    /// The spaces in which a live point has a vector, one bit for each by its number; 0 when there is no such point.
    pub fn spaces_of(&self, id: u64, now_ms: u64) -> u64 {
        let Some(slot) = self.points.live_slot(id, now_ms) else { return 0 };
        let holds = |(number, space): (usize, &SpaceWriter)| u64::from(space.shared().holds(slot)) << number;
        self.spaces.iter().enumerate().map(holds).sum()
    }

    /// Makes sure that the next point can be written: before [`Self::load`], and before
    /// [`Self::apply`] where there was no `check_write`.
    ///
    /// # Errors
    /// [`WriteError::NoSpace`]; nothing has changed.
    pub fn commit_next(&self) -> Result<(), WriteError> {
        let slot = self.points.next_slot() as usize;
        self.commit_slots(slot + 1).map_err(|error| WriteError::NoSpace(error.to_string()))
    }

    pub(super) fn commit_slots(&self, slots: usize) -> std::io::Result<()> {
        let slots = slots.min(self.points.slots_max());
        self.spaces.iter().try_for_each(|space| space.commit(slots))?;
        self.points.commit(slots)
    }

    /// Applies a checked write: visible when it returns (through the tail). Costs a row copy, an id-map and an ordered-set
    /// insert, two walks down a dictionary per term of the row, 30 ns per component of its sparse vector and 300 ns per
    /// token of its text; no distance.
    ///
    /// # Panics
    /// When the length of a vector is wrong, or all slots are taken: `check_write` refuses both. Replay of a log that was
    /// accepted once finds room by reclaiming dead slots first.
    pub fn apply(&mut self, write: Write<'_>) {
        debug_assert!(self.restoring.is_none(), "finish_restore comes before writes");
        if write.seq > self.seq() {
            self.put(&write);
        }
    }

    /// Fills a writer that no reader sees yet (a bulk build): as [`Self::apply`], at a sequence number that may repeat.
    ///
    /// # Panics
    /// As [`Self::apply`], and when `write.seq` is below [`Self::seq`].
    pub fn load(&mut self, write: Write<'_>) {
        assert!(write.seq >= self.seq(), "loaded at {} after {}", write.seq, self.seq());
        self.put(&write);
    }

    /// As [`Self::load`]: takes `id` out at the current sequence number; false when absent.
    pub fn unload(&mut self, id: u64) -> bool {
        self.remove(self.seq(), id)
    }

    /// Removes a point whose deadline has passed, at the current sequence number: no reader sees it any more, so nothing
    /// is logged and nothing changes for them. False when absent or not expired.
    pub fn expire(&mut self, id: u64, now_ms: u64) -> bool {
        self.points.has_expired(id, now_ms) && self.remove(self.seq(), id)
    }

    fn put(&mut self, write: &Write<'_>) {
        let &Write { seq, id, version, parts, row, deadline_ms } = write;
        self.points.make_quota_room();
        let slot = self.take_slot();
        let before = self.points.shared().slot_of(id);
        // What a log says of a space that was dropped later is skipped.
        for (number, space) in self.spaces.iter_mut().enumerate().filter(|(_, space)| !space.is_dropped()) {
            match parts.of(number) {
                Part::Given(vector) => {
                    assert_eq!(vector.len(), space.shared().config().dim, "vector length of id {id}");
                    space.write_vector(slot, vector);
                }
                Part::Kept => {
                    if let Some(before) = before.filter(|&before| space.shared().holds(before)) {
                        space.copy_vector(before, slot);
                    }
                }
                Part::Absent => assert!(self.shared.is_named, "id {id} has no vector"),
            }
        }
        let birth = Birth { id, version, born: seq, deadline_ms, row };
        let terms = self.points.fill(slot, &birth);
        let holding = self.spaces.iter().filter(|space| space.shared().holds(slot));
        holding.for_each(|space| space.enter(slot));
        if let Some(replaced) = self.points.admit(slot, &birth) {
            self.bury(replaced);
        }
        self.owe_reclaim(terms);
    }

    /// A point has died: the spaces that have a vector of it let go of it in time.
    fn bury(&mut self, buried: Buried) {
        let mut holding = 0;
        for space in self.spaces.iter_mut().filter(|space| space.shared().holds(buried.slot)) {
            space.bury(buried);
            holding += 1;
        }
        self.points.await_spaces(buried.slot, holding);
    }

    /// The last freed slot, or a fresh one.
    fn take_slot(&mut self) -> Slot {
        if !self.points.has_slot() {
            self.make_room();
        }
        let slot = self.points.take_slot();
        // Nothing to do after `commit_next`. What was not asked ends here, where the touch would end the process.
        self.commit_slots(slot as usize + 1).expect("there is room for what was not checked");
        slot
    }

    /// Out of slots during replay: takes back every dead one, at whatever cost.
    fn make_room(&mut self) {
        assert!(!self.round_open(), "out of slots with an indexing round open");
        self.reclaim();
        self.repair_all();
        let slots_max = self.points.slots_max();
        assert!(self.points.reuses_slot(), "all {slots_max} slots hold live points");
    }

    /// Applies a delete, also of an expired id; false when absent. As with [`Self::apply`], a `seq` already applied is
    /// ignored.
    pub fn apply_delete(&mut self, seq: u64, id: u64) -> bool {
        debug_assert!(self.restoring.is_none(), "finish_restore comes before writes");
        seq > self.seq() && self.remove(seq, id)
    }

    fn remove(&mut self, seq: u64, id: u64) -> bool {
        let buried: Option<Buried> = self.points.remove(seq, id);
        buried.map(|buried| self.bury(buried)).is_some()
    }

    /// Applies a checked change of payload: visible when it returns. False when the id is absent. As with [`Self::apply`], a `seq`
    /// already applied is ignored. Costs a row copy and two walks down a dictionary per term that is new, as many again later
    /// per term that is gone; no distance and no slot, unless the point moves ([`PointsWriter::moves`]).
    pub fn apply_row(&mut self, write: &RowWrite<'_>) -> bool {
        debug_assert!(self.restoring.is_none(), "finish_restore comes before writes");
        if write.seq <= self.seq() {
            return false;
        }
        match self.points.apply_row(write) {
            Rewritten::Absent => return false,
            Rewritten::InPlace(terms) => self.owe_reclaim(terms),
            Rewritten::Moves { deadline_ms } => {
                let &RowWrite { seq, id, version, row } = write;
                let kept = vec![Part::Kept; self.spaces.len()];
                self.put(&Write { seq, id, version, parts: Parts::Each(&kept), row, deadline_ms });
            }
        }
        true
    }

    /// Takes the keys out of a point whose deadline has passed. No reader sees them any more, so version and sequence number stay and
    /// nothing is logged: deadlines are absolute, and what comes back at replay is taken out again. False when there is none.
    pub fn drop_expired_keys(&mut self, id: u64, now_ms: u64) -> bool {
        let filed = self.points.drop_expired_keys(id, now_ms);
        filed.map(|terms| self.owe_reclaim(terms)).is_some()
    }

    /// A write has filed `terms`, and what it replaced is to be taken out in time.
    fn owe_reclaim(&mut self, terms: usize) {
        if self.points.owe_reclaim(terms) || self.reclaim_due() {
            self.reclaim();
        }
    }

    /// Whether writes have replaced so much that another [`Self::reclaim`] should come before the next round: while one is open
    /// nothing is freed.
    pub fn reclaim_due(&self) -> bool {
        !self.round_open() && self.points.owes_reclaim()
    }

    /// Frees what no reader can see any more (slots with their rows, replaced id-map segments, passed tail pages).
    /// Cheap and bounded; call often.
    pub fn reclaim(&mut self) {
        let steps = self.points.reclaim_steps();
        self.points.settle_newborn();
        for space in self.spaces.iter_mut().filter(|space| !space.round_open()) {
            space.let_go(&mut self.points);
        }
        if !self.round_open() {
            self.leave_some();
            self.points.take_emptied();
            let mut steps_left = steps;
            while steps_left > 0
                && let Some(unseen) = self.points.next_unseen()
            {
                let terms = match unseen {
                    Unseen::Slot(slot) => self.free_slot(slot),
                    Unseen::Row(row) => self.points.release_row(row),
                    // What readers hold of a dropped space goes with the space.
                    Unseen::Vectors { space, .. } | Unseen::Codes { space, .. }
                        if self.spaces[space].is_dropped() =>
                    {
                        1
                    }
                    Unseen::Vectors { space, vectors } => self.spaces[space].drop_vectors(&vectors),
                    Unseen::Codes { space, codes } => {
                        self.spaces[space].free_codes(codes);
                        1
                    }
                };
                steps_left = steps_left.saturating_sub(slot_steps(terms));
            }
            self.points.repay_reclaim(steps);
            if self.points.is_vacant() {
                self.spaces.iter_mut().for_each(SpaceWriter::forget_learned);
            }
        }
        self.spaces.iter_mut().for_each(SpaceWriter::reclaim);
        self.points.reclaim_tables(steps);
        self.note_bytes();
    }

    /// Frees a slot that nothing leads to and no reader sees, or begins to, if it has a long text, and is called again later; returns the
    /// number of its terms in the payload index and the lanes.
    fn free_slot(&mut self, slot: UnseenSlot) -> usize {
        if let Some(tokens) = self.points.empty_later(&slot) {
            return tokens;
        }
        for space in self.spaces.iter_mut().filter(|space| space.shared().holds(slot.slot())) {
            space.free(slot.slot());
        }
        self.points.free_slot(slot)
    }

    /// Whether something waits for readers, or for the job that frees it, and would wait on if there were no more calls: [`Self::reclaim`]
    /// and [`Self::next_job`].
    pub fn has_waiting(&self) -> bool {
        self.points.retired() > 0
            || !self.leaving.is_empty()
            || self.spaces.iter().any(SpaceWriter::has_retired_codes)
    }

    /// Nothing has been written for a while: what was learned may be looked at sooner, and vectors that wait for that are given up
    /// for their codes when there is nothing to look at. Whether there is.
    pub fn rest(&mut self) -> bool {
        let mut due = false;
        for space in &mut self.spaces {
            due |= space.rest(&mut self.points);
        }
        due
    }

    /// Publishes the bytes that only the owner can count.
    pub(super) fn note_bytes(&self) {
        let ahead = self.slots_ahead();
        self.points.note_bytes(ahead);
        self.spaces.iter().for_each(|space| space.note_bytes(ahead));
    }
}
