//! Loading checkpoint images: a base, then deltas, then the check that makes them a collection again.
//!
//! Nothing is trusted: slots, lengths, rows, edges, ids and the entry point are checked, so damaged bytes that got past a
//! checksum end in an error or in fewer edges, never in a panic or a wild slot.
use super::{DenseWriter, PointsWriter, Slot, SpaceWriter};
use crate::collection::points::{Birth, Gone, RowsToFile};
use crate::collection::slot_set::SlotSet;
use crate::collection::space::RestoringSpace;
use crate::record::image::{EndRecord, Levels, PartRecord, PointRecord, Record, Records, StoredVector};

/// Why an image does not load.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("corrupt collection image at byte {offset}: {what}")]
pub struct RestoreError {
    /// Where, from the start of the bytes of the call (0 for what only shows at the end).
    pub offset: usize,
    /// What is wrong.
    pub what: String,
}

/// What is known while images come in.
pub(super) struct Restoring {
    /// Slots that hold a point or a way-point.
    present: SlotSet,
    /// One past the highest slot that a point was restored to.
    top: Slot,
    /// Those that are way-points.
    dead: SlotSet,
    /// The end of the last whole image.
    end: Option<EndRecord>,
    /// Records came after it.
    open: bool,
    /// Versions of absent ids, if an image says something of them.
    gone: Option<Gone>,
    spaces: Vec<RestoringSpace>,
    /// The one that records are of: the only one, or the one that a record has named.
    space: Option<usize>,
    /// Rows are filed by whoever has them from [`DenseWriter::rows_to_file`].
    is_filed_elsewhere: bool,
    /// How far the end of the restore is, once it has begun.
    entering: Option<Entering>,
}

/// The end of a restore, which enters every point into what finds it.
struct Entering {
    /// The first slot that is not entered.
    next: Slot,
    /// For each space, the points that its index lacks, with the sequence numbers of their births.
    tails: Vec<Vec<(u64, Slot)>>,
    /// The rows of the points entered so far are being filed in the payload index.
    is_filing: bool,
    /// Sum over points. Every version but that of a bulk build was a write with a number of its own.
    versions: u64,
}

/// The space that records are of.
fn current(restoring: &Restoring) -> Result<usize, String> {
    restoring.space.ok_or_else(|| "a record of vectors that names no space".to_owned())
}

/// Slots filed between two looks for what nobody sees any more.
const RECLAIM_SLOTS: Slot = 4096;

impl DenseWriter {
    /// Applies encoded records of one image in order; images of one collection one after another, base first. The bytes
    /// passed hold whole records.
    ///
    /// # Errors
    /// Bytes that are not records, or records that do not fit this collection. The collection is then of no use.
    ///
    /// # Panics
    /// When writes have been applied.
    pub fn restore(&mut self, records: &[u8]) -> Result<(), RestoreError> {
        assert_eq!(self.seq(), 0, "restore comes before writes");
        let mut restoring = self.restoring.take().unwrap_or_else(|| self.new_restoring());
        let restored = Records::new(records).try_for_each(|record| {
            let (offset, record) =
                record.map_err(|error| RestoreError { offset: error.offset, what: error.what.into() })?;
            self.restore_record(&mut restoring, record).map_err(|what| RestoreError { offset, what })
        });
        // Kept after a failure too: it knows which rows to free.
        self.restoring = Some(restoring);
        restored
    }

    /// One past the highest slot that images have shown a point in so far.
    pub(super) fn slots_restored(&self) -> Slot {
        self.restoring.as_ref().map_or(0, |restoring| restoring.top)
    }

    fn only_space(&self) -> Option<usize> {
        (!self.shared.is_named).then_some(0)
    }

    fn new_restoring(&self) -> Restoring {
        Restoring {
            present: SlotSet::default(),
            top: 0,
            dead: SlotSet::default(),
            end: None,
            open: false,
            gone: None,
            spaces: self.spaces.iter().map(|space| space.begin_restore()).collect(),
            space: self.only_space(),
            is_filed_elsewhere: false,
            entering: None,
        }
    }

    fn restore_record(&mut self, restoring: &mut Restoring, record: Record<'_>) -> Result<(), String> {
        restoring.open = true;
        match record {
            Record::Point(point) => {
                self.restore_slot(point.slot)?;
                if restoring.present.contains(point.slot) {
                    self.restore_nothing(restoring, point.slot);
                }
                self.restore_point(restoring, &point)
            }
            Record::Part(part) => self.restore_part(restoring, &part),
            Record::Edges(edges) => {
                self.restore_slot(edges.slot)?;
                let space = current(restoring)?;
                // What is said of a space that was dropped later is skipped, but for the deaths of points.
                if !self.spaces[space].is_dropped()
                    && !self.spaces[space].is_restored(&restoring.spaces[space], edges.slot)
                {
                    return Err(format!("edges of slot {}, which no image holds", edges.slot));
                }
                self.restore_state(restoring, space, edges.slot, edges.dead, edges.levels)
            }
            Record::Free(slot) => {
                self.restore_slot(slot)?;
                if restoring.present.contains(slot) {
                    self.restore_nothing(restoring, slot);
                }
                Ok(())
            }
            Record::Gone(record) => PointsWriter::restore_gone(&mut restoring.gone, &record),
            Record::End(end) => {
                let slots_max = self.points.slots_max();
                if end.slots as usize > slots_max {
                    return Err(format!("{} slots, more than {slots_max}", end.slots));
                }
                if restoring.end.is_some_and(|last| last.seq > end.seq || last.slots > end.slots) {
                    return Err("image is older than the one before it".into());
                }
                if let Some(only) = self.only_space() {
                    self.spaces[only].restore_entry(&mut restoring.spaces[only], end.entry);
                }
                restoring.end = Some(end);
                restoring.open = false;
                Ok(())
            }
            Record::Space(number) => {
                if !self.shared.is_named || usize::from(number) >= self.spaces.len() {
                    return Err(format!("space {number} of a collection of {}", self.spaces.len()));
                }
                restoring.space = Some(number.into());
                Ok(())
            }
            Record::Entry(entry) => {
                let space = current(restoring)?;
                if self.spaces[space].is_dropped() {
                    return Ok(());
                }
                self.spaces[space].restore_entry(&mut restoring.spaces[space], entry);
                Ok(())
            }
            learned => {
                let space = current(restoring)?;
                if self.spaces[space].is_dropped() {
                    return Ok(());
                }
                self.spaces[space].restore_learned(&mut restoring.spaces[space], learned)
            }
        }
    }

    fn restore_slot(&self, slot: Slot) -> Result<(), String> {
        let slots_max = self.points.slots_max();
        if slot as usize >= slots_max {
            return Err(format!("slot {slot} of a collection of {slots_max} slots"));
        }
        Ok(())
    }

    fn restore_point(&mut self, restoring: &mut Restoring, point: &PointRecord<'_>) -> Result<(), String> {
        let &PointRecord { slot, dead, id, version, born, deadline_ms, levels, vector, row } = point;
        let only = self.only_space();
        match only {
            Some(only) => self.spaces[only].restore_vector(&mut restoring.spaces[only], slot, vector)?,
            None if levels.is_empty() && vector == StoredVector::Here(&[]) => {}
            None => return Err(format!("slot {slot} has a vector in no space")),
        }
        self.points.commit(slot as usize + 1).map_err(|error| error.to_string())?;
        self.points.restore_point(slot, &Birth { id, version, born, deadline_ms, row })?;
        restoring.present.insert(slot);
        restoring.top = restoring.top.max(slot + 1);
        if let Some(only) = only {
            self.spaces[only].note_birth(slot);
            return self.restore_state(restoring, only, slot, dead, levels);
        }
        if dead {
            self.restore_death(restoring, slot);
        }
        Ok(())
    }

    /// The vector of a present slot in the space that records are of.
    fn restore_part(&mut self, restoring: &mut Restoring, part: &PartRecord<'_>) -> Result<(), String> {
        let &PartRecord { slot, dead, levels, vector } = part;
        let number = current(restoring)?;
        self.restore_slot(slot)?;
        if !restoring.present.contains(slot) {
            return Err(format!("a vector of slot {slot}, which no image holds"));
        }
        if self.spaces[number].is_dropped() {
            self.has_skipped = true;
            return self.restore_state(restoring, number, slot, dead, levels);
        }
        let (space, so_far) = (&mut self.spaces[number], &mut restoring.spaces[number]);
        if space.is_restored(so_far, slot) {
            return Err(format!("slot {slot} has two vectors in space {number}"));
        }
        space.restore_vector(so_far, slot, vector)?;
        space.note_birth(slot);
        self.restore_state(restoring, number, slot, dead, levels)
    }

    fn restore_death(&mut self, restoring: &mut Restoring, slot: Slot) {
        self.points.restore_death(slot);
        restoring.dead.insert(slot);
    }

    /// Place in the index and life of a present slot, as one record has them.
    fn restore_state(
        &mut self,
        restoring: &mut Restoring,
        space: usize,
        slot: Slot,
        dead: bool,
        levels: Levels<'_>,
    ) -> Result<(), String> {
        if dead {
            if levels.is_empty() {
                return Err(format!("slot {slot} is kept as a way-point, but has no edges"));
            }
            self.restore_death(restoring, slot);
        } else if restoring.dead.contains(slot) {
            return Err(format!("slot {slot} comes back from the dead"));
        }
        if self.spaces[space].is_dropped() {
            return Ok(());
        }
        self.spaces[space].restore_place(&mut restoring.spaces[space], slot, levels)
    }

    /// A present slot becomes empty.
    fn restore_nothing(&mut self, restoring: &mut Restoring, slot: Slot) {
        restoring.present.remove(slot);
        restoring.dead.remove(slot);
        let spaces = self.spaces.iter().zip(&mut restoring.spaces).filter(|(space, _)| !space.is_dropped());
        for (space, so_far) in spaces {
            space.restore_nothing(so_far, slot);
        }
        self.points.restore_nothing(slot);
    }

    /// After all images, and before [`Self::finish_restore_step`]: the rows to file in the payload index, which another thread may do while this
    /// one does the rest. `None` where they have fewer than `least` slots, or something is wrong with the images, which the end of the
    /// restore will tell.
    pub fn rows_to_file(&mut self, least: Slot) -> Option<RowsToFile> {
        let restoring = self.restoring.as_mut()?;
        let slots = restoring.end.filter(|_| !restoring.open)?.slots;
        // Points that are only there for a space that was dropped are freed on the way.
        let frees = self.spaces.iter().any(SpaceWriter::is_dropped);
        if frees || restoring.is_filed_elsewhere || slots < least || restoring.present.next(slots).is_some() {
            return None;
        }
        restoring.is_filed_elsewhere = true;
        Some(self.points.rows_to_file(restoring.present.clone()))
    }

    /// Whether the end of the restore is there but for the rows that another thread files.
    pub fn waits_for_rows(&self) -> bool {
        let Some(restoring) = &self.restoring else { return false };
        let entered = restoring.entering.as_ref().map(|entering| entering.next);
        restoring.is_filed_elsewhere
            && entered.is_some_and(|next| Some(next) == restoring.end.map(|end| end.slots))
    }

    /// After all images: drops edges that lead nowhere, checks the entry point, rebuilds id map, payload index, ordered sets, tail and
    /// free list, sets `seq`, which is that of the last image (a later one says that the writes between left no trace).
    ///
    /// # Errors
    /// The last image has no end, is of a later `seq`, or two points have one id.
    pub fn finish_restore(&mut self, seq: u64) -> Result<(), RestoreError> {
        while self.finish_restore_step(seq, Slot::MAX)? {}
        Ok(())
    }

    /// As [`Self::finish_restore`], a piece of it with each call: about as many slots as are given, some microseconds each. Whether there is
    /// more, which is so as long as another thread files rows. All calls have the same `seq`, and nothing else is done with the collection before
    /// the last.
    ///
    /// # Errors
    /// As there.
    pub fn finish_restore_step(&mut self, seq: u64, slots: u32) -> Result<bool, RestoreError> {
        let mut restoring = self.restoring.take().unwrap_or_else(|| self.new_restoring());
        let finished = self.finish(&mut restoring, seq, slots);
        if !matches!(finished, Ok(false)) {
            self.restoring = Some(restoring);
        }
        finished.map_err(|what| RestoreError { offset: 0, what })
    }

    fn finish(&mut self, restoring: &mut Restoring, seq: u64, slots: u32) -> Result<bool, String> {
        let end = restoring.end.unwrap_or(EndRecord { seq: 0, slots: 0, entry: None });
        let Some(mut entering) = restoring.entering.take() else {
            if restoring.open {
                return Err("the image has no end".into());
            }
            if end.seq > seq {
                return Err(format!("the image shows seq {}, later than {seq}", end.seq));
            }
            if let Some(slot) = restoring.present.next(end.slots) {
                return Err(format!("slot {slot} of an image of {} slots", end.slots));
            }
            self.commit_slots(end.slots as usize).map_err(|error| error.to_string())?;
            for (space, so_far) in self.spaces.iter_mut().zip(&mut restoring.spaces) {
                if !space.is_dropped() {
                    space.finish_restore(so_far, &restoring.dead, end.slots)?;
                }
            }
            let tails = vec![Vec::new(); restoring.spaces.len()];
            restoring.entering = Some(Entering { next: 0, tails, is_filing: false, versions: 0 });
            return Ok(true);
        };
        if entering.is_filing {
            entering.is_filing = self.points.file_collected();
            restoring.entering = Some(entering);
            return Ok(true);
        }
        let until = entering.next.saturating_add(slots.max(1)).min(end.slots);
        self.enter_points(restoring, &mut entering, until, end.seq)?;
        if !restoring.is_filed_elsewhere {
            let (is_any_collected, is_full) = self.points.collected();
            entering.is_filing = is_full || (is_any_collected && entering.next == end.slots);
        }
        if entering.is_filing || entering.next < end.slots || !self.points.is_sole_owner() {
            restoring.entering = Some(entering);
            return Ok(true);
        }
        for (space, mut tail) in self.spaces.iter().zip(entering.tails) {
            tail.sort_unstable();
            tail.into_iter().for_each(|(_, slot)| space.requeue(slot));
        }
        let free = (0..end.slots).rev().filter(|&slot| !restoring.present.contains(slot)).collect();
        self.spaces.iter_mut().for_each(|space| space.forget_changes());
        self.points.finish_restore(end.slots, free, seq, restoring.gone.take(), entering.versions);
        self.note_bytes();
        Ok(false)
    }

    /// Enters the points of the slots up to `until` into what finds them, or of fewer when their rows have to be filed first.
    fn enter_points(
        &mut self,
        restoring: &mut Restoring,
        entering: &mut Entering,
        until: Slot,
        end_seq: u64,
    ) -> Result<(), String> {
        let Restoring { present, dead, spaces, is_filed_elsewhere, .. } = restoring;
        let files = !*is_filed_elsewhere;
        let has_dropped = self.spaces.iter().any(SpaceWriter::is_dropped);
        for slot in entering.next..until {
            if files && self.points.collected().1 {
                break;
            }
            entering.next = slot + 1;
            if slot % RECLAIM_SLOTS == 0 {
                self.points.reclaim_restored(files);
            }
            if !present.contains(slot) {
                self.points.restore_death(slot);
                continue;
            }
            let is_dead = dead.contains(slot);
            let (mut leading, mut waiting) = (0, 0u64);
            for (number, space) in self.spaces.iter_mut().enumerate() {
                if space.is_restored(&spaces[number], slot) {
                    match space.enter_restored(slot, is_dead) {
                        true => leading += 1,
                        false => waiting |= 1 << number,
                    }
                }
            }
            if is_dead {
                if leading == 0 && has_dropped {
                    // It was kept because a space led through it that was dropped later.
                    present.remove(slot);
                    self.points.restore_nothing(slot);
                    continue;
                }
                if leading == 0 {
                    return Err(format!("slot {slot} is kept as a way-point, but has no edges"));
                }
                self.points.enter_dead(slot, files);
                self.points.await_spaces(slot, leading);
                continue;
            }
            let point = self.points.enter(slot, end_seq, files)?;
            entering.versions = entering.versions.saturating_add(point.version);
            while waiting != 0 {
                entering.tails[waiting.trailing_zeros() as usize].push((point.born, slot));
                waiting &= waiting - 1;
            }
        }
        Ok(())
    }

    /// Whether images that were restored had vectors of spaces that were dropped since. An image of everything has none of them any more.
    pub fn has_skipped_vectors(&self) -> bool {
        self.has_skipped
    }

    /// [`super::Stats::bytes`] of a collection that is being opened: while images come in nothing of it is published, and slots that had
    /// no point when it was captured have no memory yet.
    pub fn bytes_while_opened(&self) -> u64 {
        let stats = self.shared.stats();
        match &self.restoring {
            Some(restoring) => stats.bytes + self.shared.bytes_of_slots(restoring.present.len() as u64),
            None => {
                let empty = stats.slots.saturating_sub(stats.live + stats.tombstoned);
                stats.bytes.saturating_sub(self.shared.bytes_of_slots(empty))
            }
        }
    }
}

impl Drop for DenseWriter {
    /// A restore that did not finish leaves rows that the readable side does not know of.
    fn drop(&mut self) {
        let Some(restoring) = self.restoring.take() else { return };
        if !self.points.is_sole_owner() {
            // Another thread reads them. The process ends; a restore that merely fails waits for that thread.
            return;
        }
        let mut next = restoring.present.next(0);
        while let Some(slot) = next {
            self.points.restore_nothing(slot);
            next = restoring.present.next(slot + 1);
        }
    }
}
