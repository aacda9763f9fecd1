//! Checks and application of writes, ordered walks, reclamation. The owner's thread.
use super::meta::{Birth, expired};
use super::*;
use crate::distance::{padded, prepare};
use crate::payload::PayloadRow;
use std::hash::{BuildHasher, RandomState};

/// Newborn slots after which a write looks for readers that have gone, so that callers who never `reclaim` stay bounded.
const NEWBORN_MAX: usize = 256;
/// Work of one `reclaim`, in steps of about 0.2 µs: a slice of the owner's time is 300 µs. More when writes have come faster than
/// calls.
const STEPS_PER_RECLAIM: usize = 512;
const STEPS_PER_RECLAIM_MAX: usize = 1536;
/// A slot is a step, to file it in the payload index and the lanes or to take it out is so many for each of its terms.
const TERM_STEPS: usize = 2;
/// Slots whose numbers are put into a column of the payload index per `reclaim`, about 0.1 µs each.
const COLUMN_SLOTS_PER_RECLAIM: usize = 1024;
/// Replaced parts of the payload index freed per step, some 50 ns each.
const PARTS_PER_STEP: usize = 2;
/// Bytes of an id in the ordered set: 8 in nodes that are on average three quarters full, and the node headers.
const ORDERED_ID_BYTES: u64 = 12;
/// Likewise for a deadline.
const DEADLINE_BYTES: u64 = 24;

fn slot_steps(terms: usize) -> usize {
    1 + terms * TERM_STEPS
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
        let max_slots = max_slots.clamp(1, crate::index::SLOTS_MAX);
        let graph = GraphConfig {
            dim: config.dim,
            metric: config.metric,
            m: config.m,
            ef_construction: config.build_beam(),
            seed: config.seed as u64,
            level0_full_degree: config.level0_full_degree,
            extend_candidates: config.extend_candidates,
            extend_candidates_max: config.extend_candidates_max,
            codes: config.keeps_codes(),
            rescore_factor: config.rescored_per_result(),
            quantized: config.quantized(),
            flat: config.flat(),
            capacity: max_slots,
        };
        let graph = Graph::create(graph, storage)?;
        // Random on purpose: nobody may craft ids that collide. It decides where the map keeps an id and no result.
        let id_seed = RandomState::new().hash_one(config.seed);
        let prepared = vec![0.0; padded(config.dim)];
        let filing = config.ivf().cloned().map(Filing::new);
        let (lane_writers, lanes) = LaneWriters::new(&config, domain.clone(), id_seed);
        let watched = config.index == IndexType::Gpu;
        let (meta, rows) = Meta::reserve(max_slots, watched, graph.scratch(), domain.clone())?;
        let shared = Dense {
            graph,
            cells: filing.is_some().then(|| CellsCell::new(domain.clone(), None)),
            cell_count: AtomicU64::new(0),
            meta,
            tail: Tail::reserve(max_slots)?,
            ids: IdMap::new(domain.clone(), id_seed),
            index: PayloadIndex::new(max_slots, domain.clone()),
            lanes,
            published_seq: AtomicU64::new(0),
            slots: AtomicU64::new(0),
            live: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            tombstoned: AtomicU64::new(0),
            tail_live: AtomicU64::new(0),
            owner_bytes: AtomicU64::new(0),
            column_drops: AtomicU64::new(0),
            counters: SearchCounters::default(),
            config,
            domain,
        };
        Ok(DenseWriter {
            shared: Arc::new(shared),
            rows,
            slots_max: max_slots,
            populated: 0,
            seq: 0,
            free: Vec::new(),
            held: Vec::new(),
            imaged_codes: 0,
            ordered_ids: BTreeSet::new(),
            gone: Gone::default(),
            expiry: Expiry::default(),
            deadlines: BTreeSet::new(),
            key_deadlines: BTreeSet::new(),
            newborn: Vec::new(),
            newborn_look: NEWBORN_MAX,
            settling: None,
            limbo: Limbo::new(),
            freeing: Vec::new(),
            bare: SlotSet::default(),
            passed: Passed::new(),
            round: None,
            committing: None,
            filing,
            linked: 0,
            dead_linked: Vec::new(),
            pass: None,
            repair_owed: 0,
            reclaim_owed: 0,
            scratch: Scratch::default(),
            lanes: lane_writers,
            prepared,
            dirty: Dirty::default(),
            capture: None,
            restoring: None,
        })
    }

    /// The readable side.
    pub fn shared(&self) -> &Arc<Dense> {
        &self.shared
    }

    /// Last applied sequence number.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The slot of a live id.
    pub(super) fn live_slot(&self, id: u64, now_ms: u64) -> Option<Slot> {
        let slot = self.shared.ids.get_owned(id)?;
        (!expired(self.shared.meta.deadline_ms(slot), now_ms)).then_some(slot)
    }

    /// Version as conditions see it: 0 for absent, deleted and expired ids.
    pub(super) fn live_version(&self, id: u64, now_ms: u64) -> u64 {
        let version = |slot| self.shared.meta.owned_row_and_version(&self.rows, slot).1;
        self.live_slot(id, now_ms).map_or(0, version)
    }

    /// All checks of a write except the rate itself (`rate_ok` says whether a token was had), in the order of the interface:
    /// length, finiteness, rate token, version, quotas, duplicate. Returns the version it will get: see [`Self::next_version`].
    ///
    /// # Errors
    /// The first check that fails; nothing has changed.
    pub fn check_write(
        &self,
        id: u64,
        vector: &[f32],
        mode: WriteMode,
        expected_version: Option<u64>,
        rate_ok: bool,
        now_ms: u64,
    ) -> Result<u64, WriteError> {
        let config = &self.shared.config;
        if vector.len() != config.dim {
            return Err(WriteError::DimensionMismatch { expected: config.dim, found: vector.len() });
        }
        if let Some(index) = vector.iter().position(|component| !component.is_finite()) {
            return Err(WriteError::NotFinite { id, index });
        }
        if !rate_ok {
            return Err(WriteError::RateLimited);
        }
        let found = self.live_version(id, now_ms);
        if let Some(expected) = expected_version
            && expected != found
        {
            return Err(WriteError::VersionConflict { id, expected, found });
        }
        if self.is_read_only() {
            return Err(WriteError::ReadOnly);
        }
        // A refused duplicate on a full collection is told "full": it would have needed room.
        let replaces = mode == WriteMode::Upsert && found != 0;
        if (!replaces && self.is_full(now_ms)) || !self.has_slot() {
            return Err(WriteError::Full);
        }
        if mode == WriteMode::Insert && found != 0 {
            return Err(WriteError::DuplicateId(id));
        }
        self.commit_next()?;
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
    pub fn inherit_versions(&mut self, other: &DenseWriter) {
        assert!(self.ordered_ids.is_empty(), "versions are inherited before anything is written");
        self.gone = other.gone.clone();
        self.gone.changed = true;
    }

    /// As [`Self::inherit_versions`], for one id that is absent here, and expired or absent in `other`.
    pub fn inherit_version(&mut self, other: &DenseWriter, id: u64) {
        self.gone.raise_floor(other.gone.floor());
        self.gone.note(id, other.last_version(id));
    }

    /// Whether one more point would exceed a quota. Points expired but not yet swept do not count.
    fn is_full(&self, now_ms: u64) -> bool {
        let config = &self.shared.config;
        let by_bytes = match config.max_bytes {
            0 => u64::MAX,
            bytes => bytes / config.quota_bytes_per_point(),
        };
        let by_count = if config.max_vectors == 0 { u64::MAX } else { config.max_vectors };
        let limit = by_bytes.min(by_count);
        let present = self.ordered_ids.len() as u64;
        if present < limit {
            return false;
        }
        let to_spare = present - limit + 1;
        let expired = self.deadlines.range(..=(now_ms, u64::MAX)).take(to_spare as usize).count();
        (expired as u64) < to_spare
    }

    /// Slots it may ever use.
    pub fn slots_max(&self) -> usize {
        self.slots_max
    }

    /// Whether one more point fits, before anything dead is reclaimed.
    pub fn has_slot(&self) -> bool {
        !self.free.is_empty() || self.high_water() < self.slots_max
    }

    /// Makes sure that the next point can be written, where vectors lie in a file: before [`Self::load`], and before
    /// [`Self::apply`] where there was no `check_write`.
    ///
    /// # Errors
    /// [`WriteError::NoSpace`]; nothing has changed.
    pub fn commit_next(&self) -> Result<(), WriteError> {
        let slot = self.free.last().map_or(self.high_water(), |&slot| slot as usize);
        self.commit_slots(slot + 1).map_err(|error| WriteError::NoSpace(error.to_string()))
    }

    pub(super) fn commit_slots(&self, slots: usize) -> std::io::Result<()> {
        let slots = slots.min(self.slots_max);
        self.shared.graph.make_room(slots, !self.files_cells())?;
        self.shared.meta.commit(slots)
    }

    /// Whether the next point takes the place of one that is gone.
    pub fn reuses_slot(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn high_water(&self) -> usize {
        self.shared.slots.load(Ordering::Relaxed) as usize
    }

    /// Applies a checked write: visible when it returns (through the tail). Costs a row copy, an id-map and an ordered-set
    /// insert, two walks down a dictionary per term of the row, 30 ns per component of its sparse vector and 300 ns per
    /// token of its text; no distance.
    ///
    /// # Panics
    /// When the vector's length is wrong, or all slots are taken: `check_write` refuses both. Replay of a log that was
    /// accepted once finds room by reclaiming dead slots first.
    pub fn apply(&mut self, write: Write<'_>) {
        debug_assert!(self.restoring.is_none(), "finish_restore comes before writes");
        if write.seq > self.seq {
            self.put(write);
        }
    }

    /// Fills a writer that no reader sees yet (a bulk build): as [`Self::apply`], at a sequence number that may repeat.
    ///
    /// # Panics
    /// As [`Self::apply`], and when `write.seq` is below [`Self::seq`].
    pub fn load(&mut self, write: Write<'_>) {
        assert!(write.seq >= self.seq, "loaded at {} after {}", write.seq, self.seq);
        self.put(write);
    }

    /// As [`Self::load`]: takes `id` out at the current sequence number; false when absent.
    pub fn unload(&mut self, id: u64) -> bool {
        self.remove(self.seq, id)
    }

    /// Removes a point whose deadline has passed, at the current sequence number: no reader sees it any more, so nothing
    /// is logged and nothing changes for them. False when absent or not expired.
    pub fn expire(&mut self, id: u64, now_ms: u64) -> bool {
        let gone = self
            .shared
            .ids
            .get_owned(id)
            .is_some_and(|slot| expired(self.shared.meta.deadline_ms(slot), now_ms));
        gone && self.remove(self.seq, id)
    }

    /// Raises [`Self::seq`] without a change: what lies between was applied elsewhere or changes nothing here.
    pub fn advance_seq(&mut self, seq: u64) {
        if seq > self.seq {
            self.seq = seq;
            self.shared.published_seq.store(seq, Ordering::Release);
        }
    }

    pub(super) fn put(&mut self, write: Write<'_>) {
        assert_eq!(write.vector.len(), self.shared.config.dim, "vector length of id {}", write.id);
        let shared = self.shared.clone();
        let columns = shared.index.column_bytes();
        if columns > 0
            && self.quota_needs(columns + shared.config.quota_bytes_per_point())
            && shared.index.drop_columns()
        {
            add(&shared.column_drops, 1);
        }
        let slot = self.take_slot();
        self.bare.remove(slot);
        prepare(shared.config.metric, write.vector, &mut self.prepared);
        shared.graph.write_vector(slot, &self.prepared);
        shared.meta.birth(
            slot,
            &Birth {
                id: write.id,
                version: write.version,
                born: write.seq,
                deadline_ms: write.deadline_ms,
                row: write.row,
            },
        );
        let row = PayloadRow::trusted(write.row);
        let terms = shared.index.insert(slot, row) + self.lanes.insert(&shared.lanes, slot, row);
        if slot as usize == self.high_water() {
            shared.slots.store(slot as u64 + 1, Ordering::Release);
        }
        shared.tail.push(slot);
        add(&shared.tail_live, 1);
        match shared.ids.insert(write.id, slot) {
            Some(old) => self.bury(old, write.seq),
            None => {
                self.ordered_ids.insert(write.id);
                self.gone.forget(write.id);
                add(&shared.live, 1);
            }
        }
        shared.published_seq.store(write.seq, Ordering::Release);
        self.seq = write.seq;
        if write.deadline_ms != 0 {
            self.deadlines.insert((write.deadline_ms, write.id));
        }
        self.watch_keys(write.id, KeyDeadlines::of(PayloadRow::trusted(write.row)));
        if write.deadline_ms != 0 || row.next_deadline().is_some() {
            self.settle_counts(slot);
        }
        self.dirty.data.insert(slot);
        self.newborn.push((slot, write.seq));
        self.owe_reclaim(terms);
    }

    /// A write has filed `terms`, and what it replaced is to be taken out in time.
    pub(super) fn owe_reclaim(&mut self, terms: usize) {
        // Twice what the write took: what dies is freed faster than it can be replaced.
        self.reclaim_owed += 2 * slot_steps(terms);
        if self.newborn.len() >= self.newborn_look || self.reclaim_due() {
            self.reclaim();
        }
    }

    /// The last freed slot, or a fresh one.
    fn take_slot(&mut self) -> Slot {
        if self.free.is_empty() && self.high_water() == self.slots_max {
            self.make_room();
        }
        let slot = self.free.pop().unwrap_or_else(|| self.high_water() as Slot);
        // Nothing to do after `commit_next`. What was not asked ends here, where the touch would end the process.
        self.commit_slots(slot as usize + 1).expect("there is room for what was not checked");
        slot
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

    /// Out of slots during replay: takes back every dead one, at whatever cost.
    fn make_room(&mut self) {
        assert!(!self.round_open(), "out of slots with an indexing round open");
        self.reclaim();
        self.repair_all();
        assert!(!self.free.is_empty(), "all {} slots hold live points", self.slots_max);
    }

    /// A slot dies at `seq`: its id is gone or leads elsewhere.
    fn bury(&mut self, slot: Slot, seq: u64) {
        let counts = self.counts(slot);
        let shared = &self.shared;
        let deadline_ms = shared.meta.deadline_ms(slot);
        if deadline_ms != 0 {
            self.deadlines.remove(&(deadline_ms, shared.meta.id(slot)));
        }
        self.unwatch_keys(slot);
        let shared = self.shared.clone();
        let row = PayloadRow::trusted(shared.meta.owned_row(&self.rows, slot));
        match counts {
            true => self.lanes.forget(&shared.lanes, slot, row),
            false => sub(&shared.expired, 1),
        }
        match &mut self.filing {
            Some(filing) => filing.bury(shared.meta.born(slot)),
            None => shared.graph.bury(shared.meta.born(slot)),
        }
        shared.meta.bury(slot, seq);
        add(&shared.tombstoned, 1);
        if self.is_linked(slot) {
            self.dead_linked.push(slot);
        } else {
            sub(&shared.tail_live, 1);
        }
        self.dirty.state.insert(slot);
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
        match expected_version {
            Some(expected) if expected != found => Err(WriteError::VersionConflict { id, expected, found }),
            _ => Ok(found != 0),
        }
    }

    /// Applies a delete, also of an expired id; false when absent. As with [`Self::apply`], a `seq` already applied is
    /// ignored.
    pub fn apply_delete(&mut self, seq: u64, id: u64) -> bool {
        debug_assert!(self.restoring.is_none(), "finish_restore comes before writes");
        seq > self.seq && self.remove(seq, id)
    }

    fn remove(&mut self, seq: u64, id: u64) -> bool {
        self.seq = seq;
        let shared = self.shared.clone();
        let slot = shared.ids.get_owned(id);
        if let Some(slot) = slot {
            self.gone.note(id, shared.meta.owned_row_and_version(&self.rows, slot).1);
            self.bury(slot, seq);
            self.ordered_ids.remove(&id);
            sub(&shared.live, 1);
        }
        // Published before the id goes: a reader that no longer finds the id then has no older snapshot to contradict it.
        shared.published_seq.store(seq, Ordering::Release);
        if slot.is_some() {
            shared.ids.remove(id);
        }
        slot.is_some()
    }

    /// Ids present in ascending order from `from` (inclusive), for scroll and delete by filter. Expired ids are included
    /// until swept; `get` tells.
    pub fn ids_from(&self, from: u64) -> impl Iterator<Item = u64> + '_ {
        self.ordered_ids.range(from..).copied()
    }

    /// Ids whose deadline is at or before `now_ms`, at most `max`, earliest first (for the sweeper, which deletes them).
    pub fn expired(&self, now_ms: u64, max: usize) -> Vec<u64> {
        self.deadlines.range(..=(now_ms, u64::MAX)).take(max).map(|&(_, id)| id).collect()
    }

    /// Frees what no reader can see any more (slots with their rows, replaced id-map segments, passed tail pages).
    /// Cheap and bounded; call often.
    pub fn reclaim(&mut self) {
        let shared = self.shared.clone();
        let steps = self.reclaim_owed.clamp(STEPS_PER_RECLAIM, STEPS_PER_RECLAIM_MAX);
        self.settle_newborn();
        if !self.round_open() {
            self.drop_dead_front();
            self.retire_filed();
            for _ in 0..shared.graph.retire_codes() {
                self.limbo.push(&shared.domain, Retired::Codes);
            }
            self.freeing.extend(self.lanes.take_emptied());
            let mut steps_left = steps;
            while steps_left > 0 {
                let terms = if let Some(slot) = self.freeing.pop() {
                    self.free_slot(slot)
                } else {
                    // In order: the replaced rows of a slot come before its own end.
                    match self.limbo.pop(&shared.domain) {
                        Some(Retired::Slots(slots)) => {
                            self.freeing = slots;
                            continue;
                        }
                        Some(Retired::Row(slot)) => self.release_row(slot),
                        Some(Retired::Vectors(slots)) => self.drop_vectors(&slots),
                        Some(Retired::Codes) => {
                            // SAFETY: the oldest that `retire_codes` has told, which went to limbo then: no reader of that time is left.
                            unsafe { self.shared.graph.codes_are_quiescent() };
                            1
                        }
                        // What is owed is asked for when there is something again.
                        None => {
                            self.reclaim_owed = 0;
                            break;
                        }
                    }
                };
                steps_left = steps_left.saturating_sub(slot_steps(terms));
            }
            self.reclaim_owed = self.reclaim_owed.saturating_sub(steps);
            self.forget_learned();
        }
        self.passed.reclaim(&shared.tail, &shared.domain);
        shared.ids.reclaim();
        shared.index.reclaim(steps * PARTS_PER_STEP);
        self.lanes.reclaim();
        if let Some(filing) = &mut self.filing {
            filing.reclaim();
            shared.cells.as_ref().map(CellsCell::reclaim);
        }
        self.fill_columns(COLUMN_SLOTS_PER_RECLAIM);
        self.note_bytes();
    }

    /// What was learned from points says nothing of others: once all are gone, and nobody can find them any more, it is forgotten. A
    /// collection that has given its vectors up takes points again then.
    fn forget_learned(&mut self) {
        let slots = self.high_water();
        let vacant = slots > 0 && self.ordered_ids.is_empty() && self.free.len() + self.held.len() == slots;
        if !vacant {
            return;
        }
        self.forget_cells();
        if self.shared.graph.codec_number() != 0 {
            self.shared.graph.forget_codes();
            (self.dirty.codec, self.imaged_codes) = (true, 0);
        }
    }

    /// Nothing has been written for a while: what was learned may be looked at sooner, and vectors that wait for that are given up
    /// for their codes when there is nothing to look at. Whether there is.
    pub fn rest(&mut self) -> bool {
        let Some(filing) = &mut self.filing else { return self.shared.graph.rest(self.ordered_ids.len()) };
        filing.watch.resting = true;
        self.prove_at_rest();
        self.training_due()
    }

    /// Whether something waits for readers, or for the job that frees it, and would wait on if there were no more calls: [`Self::reclaim`]
    /// and [`Self::next_job`].
    pub fn has_waiting(&self) -> bool {
        self.retired() > 0 || self.shared.graph.has_retired_codes()
    }

    /// Whether something is learned from its points that follows them: then [`Self::rest`] is to be called.
    pub fn follows_points(&self) -> bool {
        self.files_cells() || self.shared.config.quantized().is_some()
    }

    /// Whether codes wait for the job that frees them.
    pub fn has_codes_to_free(&self) -> bool {
        self.shared.graph.has_codes_to_free()
    }

    /// How well what was learned fits what is written, for images; `None` before anything is.
    pub(super) fn watch(&self) -> Option<Watch> {
        match &self.filing {
            Some(filing) => filing.current.as_ref().map(|_| filing.watch),
            None => self.shared.graph.watch(),
        }
    }

    /// Whether writes have replaced so much that another [`Self::reclaim`] should come before the next round: while one is open
    /// nothing is freed.
    pub fn reclaim_due(&self) -> bool {
        !self.round_open() && self.reclaim_owed >= STEPS_PER_RECLAIM && self.retired() > 0
    }

    /// One slice of building a column that searches want, as long as the quota has room for it. Part of [`Self::reclaim`].
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

    /// Whether the points present leave less than `bytes` of the byte quota.
    fn quota_needs(&self, bytes: u64) -> bool {
        let config = &self.shared.config;
        let used = self.ordered_ids.len() as u64 * config.quota_bytes_per_point();
        config.max_bytes != 0 && used + bytes > config.max_bytes
    }

    /// Slots nothing leads to that are not free yet, and replaced rows; a batch of slots in limbo counts as one.
    pub(super) fn retired(&self) -> usize {
        self.freeing.len()
            + self.limbo.len()
            + usize::from(self.lanes.has_waiting() || self.lanes.has_emptied())
    }

    /// Slots whose birth every reader's snapshot includes need no closer look any more.
    fn settle_newborn(&mut self) {
        let domain = &self.shared.domain;
        if let Some((tag, _)) = &self.settling
            && domain.is_quiescent(*tag)
        {
            for (slot, born) in self.settling.take().into_iter().flat_map(|(_, slots)| slots) {
                self.shared.meta.settle(slot, born);
            }
        }
        if self.settling.is_none() && !self.newborn.is_empty() {
            self.settling = Some((domain.retire(), std::mem::take(&mut self.newborn)));
        }
        // While a long search keeps its pin nothing settles, and not every write is to ask anew.
        self.newborn_look = self.newborn.len() + NEWBORN_MAX;
    }

    /// Moves the tail's start past dead slots at its front.
    pub(super) fn drop_dead_front(&mut self) {
        let shared = &self.shared;
        let window = shared.tail.window();
        let alive =
            (window.start..window.end).find(|&position| !shared.meta.is_dead(shared.tail.slot(position)));
        self.pass_tail(alive.unwrap_or(window.end));
    }

    /// Moves the tail's start to `position`. What it passes is linked or dead; the dead that were never linked have lost
    /// their last trace.
    pub(super) fn pass_tail(&mut self, position: u64) {
        let shared = &self.shared;
        let passed = shared.tail.window().start..position;
        if passed.is_empty() {
            return;
        }
        let gone: Vec<Slot> =
            passed.map(|position| shared.tail.slot(position)).filter(|&slot| !self.is_linked(slot)).collect();
        debug_assert!(gone.iter().all(|&slot| shared.meta.is_dead(slot)));
        shared.tail.advance(position);
        if !gone.is_empty() {
            self.limbo.push(&shared.domain, Retired::Slots(gone));
        }
    }

    /// Frees a slot that nothing leads to and no reader sees, or begins to, if it has a long text, and is called again later; returns the
    /// number of its terms in the payload index and the lanes.
    fn free_slot(&mut self, slot: Slot) -> usize {
        debug_assert!(!self.round_open(), "slot {slot} freed while planners may look at it");
        let shared = self.shared.clone();
        let row = PayloadRow::trusted(shared.meta.owned_row(&self.rows, slot));
        if let Some(tokens) = self.lanes.remove_later(slot, row) {
            return tokens;
        }
        if self.is_linked(slot) {
            match &mut self.filing {
                Some(filing) => filing.free(slot),
                None => self.shared.graph.free(slot),
            }
            self.linked -= 1;
        }
        let terms = shared.index.remove(slot, row) + self.lanes.remove(slot, row);
        // SAFETY: dead (only dead slots are retired), and quiescent: it came out of limbo.
        unsafe { shared.meta.free(&mut self.rows, slot) };
        sub(&shared.tombstoned, 1);
        if shared.graph.keeps_file() {
            self.held.push(slot);
        } else {
            self.free.push(slot);
        }
        self.dirty.state.insert(slot);
        terms
    }

    /// Publishes the bytes that only the owner can count.
    pub(super) fn note_bytes(&self) {
        let index = match &self.filing {
            Some(filing) => {
                let bare = self.bare.len() * self.shared.graph.vector_row_bytes();
                self.shared.graph.vector_bytes().saturating_sub(bare) as u64
                    + self.bare.bytes()
                    + filing.bytes()
            }
            None => {
                let bare = self.bare.len() * self.shared.graph.vector_row_bytes();
                self.shared.graph.bytes().saturating_sub(bare) as u64 + self.bare.bytes()
            }
        };
        let bytes = index
            + self.ordered_ids.len() as u64 * ORDERED_ID_BYTES
            + (self.deadlines.len() + self.key_deadlines.len() + self.expiry.text_deadlines.len()) as u64
                * DEADLINE_BYTES
            + (self.free.capacity() + self.held.capacity() + self.dead_linked.capacity()) as u64 * 4
            + self.dirty.bytes()
            + self.gone.bytes()
            + self.ahead_bytes();
        self.shared.owner_bytes.store(bytes, Ordering::Relaxed);
    }
}

/// One writer: plain load and store.
pub(super) fn add(gauge: &AtomicU64, n: u64) {
    gauge.store(gauge.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

/// See [`add`].
pub(super) fn sub(gauge: &AtomicU64, n: u64) {
    gauge.store(gauge.load(Ordering::Relaxed) - n, Ordering::Relaxed);
}
