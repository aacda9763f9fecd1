//! What checkpoint images say of points, and points as images bring them back.
use super::meta::ALIVE;
use super::{Birth, Gone, KeyDeadlines, PointsWriter, add};
use crate::collection::slot_set::SlotSet;
use crate::payload::PayloadRow;
use crate::record::image::{GoneRecord, put_gone};
use crate::slot::Slot;
use std::sync::atomic::Ordering;

/// Versions of absent ids per record. All of them are written in one go with the end of an image: 256 KiB at most.
const GONE_PER_RECORD: usize = 1024;

/// Terms that are filed in one step of the end of a restore.
pub(super) const TERMS_PER_STEP: usize = 512;

/// Slots that changed since the last image, in two degrees.
#[derive(Default)]
pub(crate) struct Changes {
    /// Id or row: all is to be written.
    pub data: SlotSet,
    /// Death or freeing.
    pub state: SlotSet,
}

impl Changes {
    pub fn insert_all(&mut self, other: &Changes) {
        self.data.insert_all(&other.data);
        self.state.insert_all(&other.state);
    }

    pub fn bytes(&self) -> u64 {
        self.data.bytes() + self.state.bytes()
    }
}

/// A point that images have shown.
#[derive(Clone, Copy)]
pub(crate) struct RestoredPoint {
    pub born: u64,
    pub version: u64,
}

impl PointsWriter {
    /// What changed since it was taken last.
    pub(crate) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// What changed and is not taken.
    pub(crate) fn changes_mut(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// What an image says of the point in a slot: as it was born, but with the row and the version that it has now.
    pub(crate) fn image_of(&self, slot: Slot) -> Birth<'_> {
        let meta = &self.shared.meta;
        let (row, version) = meta.owned_row_and_version(&self.rows, slot);
        Birth { id: meta.id(slot), version, born: meta.born(slot), deadline_ms: meta.deadline_ms(slot), row }
    }

    /// Bytes of the rows of points that live, about, in an image; `dead` slots hold rows as well.
    pub(crate) fn live_row_bytes(&self, dead: u64) -> u64 {
        let live = self.shared.live();
        // Rows of the deleted are there until their slots are freed, and in no image.
        (self.shared.meta.row_bytes() as f64 * live as f64 / (live + dead).max(1) as f64) as u64
    }

    /// Slots that were freed since the last image was complete. Once this one is durable no image has a point there, whose vector is in a
    /// file.
    pub(crate) fn take_held(&mut self) -> Vec<Slot> {
        std::mem::take(&mut self.held)
    }

    /// An image without a point in these slots is durable. While a snapshot is read they wait for its end.
    pub(crate) fn release_held(&mut self, slots: Vec<Slot>) {
        match &mut self.kept_for_snapshots {
            Some(kept) => kept.extend(slots),
            None => self.free.extend(slots),
        }
    }

    /// From now on a file of vectors keeps what the images of now name: slots that are freed are not used again before
    /// [`Self::end_snapshots`].
    pub(crate) fn begin_snapshots(&mut self) {
        self.kept_for_snapshots.get_or_insert_default();
    }

    /// Nobody reads a snapshot any more.
    pub(crate) fn end_snapshots(&mut self) {
        self.free.extend(self.kept_for_snapshots.take().into_iter().flatten());
    }

    /// That image is lost.
    pub(crate) fn hold_again(&mut self, slots: Vec<Slot>) {
        self.held.extend(slots);
    }

    /// Whether no image has what is remembered of absent ids.
    pub(crate) fn gone_changed(&self) -> bool {
        self.gone.changed
    }

    /// Writes the versions of absent ids; whether no image had them.
    pub(crate) fn put_gone(&mut self, out: &mut Vec<u8>) -> bool {
        let pairs: Vec<(u64, u64)> = self.gone.iter().collect();
        let floor = self.gone.floor();
        // The first piece is there when there is nothing to say as well: then every absent id begins at 1.
        put_gone(out, 0, floor, &pairs[..pairs.len().min(GONE_PER_RECORD)]);
        for (at, piece) in pairs.chunks(GONE_PER_RECORD).enumerate().skip(1) {
            put_gone(out, at as u32, floor, piece);
        }
        std::mem::take(&mut self.gone.changed)
    }

    /// The image that [`Self::put_gone`] wrote to is lost.
    pub(crate) fn put_gone_again(&mut self) {
        self.gone.changed = true;
    }

    /// Restore: a record of versions of absent ids; those of a series come in order.
    ///
    /// # Errors
    /// One without its beginning.
    pub(crate) fn restore_gone(gone: &mut Option<Gone>, record: &GoneRecord<'_>) -> Result<(), String> {
        if record.at == 0 {
            *gone = Some(Gone::default());
        }
        let gone = gone.as_mut().ok_or("versions of absent ids without their beginning")?;
        gone.raise_floor(record.floor);
        record.iter().for_each(|(id, version)| gone.note(id, version));
        Ok(())
    }

    /// Restore: an image shows a point in a slot that is empty so far.
    ///
    /// # Errors
    /// What is no point.
    pub(crate) fn restore_point(&mut self, slot: Slot, birth: &Birth<'_>) -> Result<(), String> {
        if !birth.row.is_empty() {
            PayloadRow::verify(birth.row).map_err(|error| format!("row of slot {slot}: {error}"))?;
        }
        // Born at 0 is a bulk load into a collection that has seen no write.
        if birth.version == 0 || birth.born == ALIVE {
            return Err(format!("slot {slot} was never written"));
        }
        self.shared.meta.birth(slot, birth);
        Ok(())
    }

    /// Restore: the point in a slot is dead. When it died is not kept: before every snapshot there will be.
    pub(crate) fn restore_death(&mut self, slot: Slot) {
        self.shared.meta.bury(slot, 0);
    }

    /// Restore: a slot is empty after all.
    pub(crate) fn restore_nothing(&mut self, slot: Slot) {
        self.free_unseen(slot);
    }

    /// End of a restore, now and then: tables grow by replacing themselves, and what they leave behind would add up to as much again. The payload
    /// index is left out where its rows are filed on another thread (`files` is false).
    pub(crate) fn reclaim_restored(&mut self, files: bool) {
        self.shared.ids.reclaim();
        if files {
            self.shared.index.reclaim(usize::MAX);
        }
        self.lanes.reclaim();
    }

    /// End of a restore: whether rows of points that were entered wait to be filed in the payload index; and whether these are so many that
    /// no other point is to be entered before.
    pub(crate) fn collected(&self) -> (bool, bool) {
        self.shared.index.collected()
    }

    /// End of a restore: files a piece of what was collected, some 100 µs; whether there is more, which comes before anything else.
    pub(crate) fn file_collected(&mut self) -> bool {
        self.shared.index.file_step(TERMS_PER_STEP)
    }

    /// End of a restore: a slot that spaces lead through, whose point is dead. `files` says whether its row is filed here.
    pub(crate) fn enter_dead(&mut self, slot: Slot, files: bool) {
        let shared = &self.shared;
        if files {
            shared.index.insert_later(slot, PayloadRow::trusted(shared.meta.owned_row(&self.rows, slot)));
        }
        add(&shared.tombstoned, 1);
    }

    /// End of a restore: a point of an image that shows everything up to `end_seq`. `files` says whether its row is filed here.
    ///
    /// # Errors
    /// A point that is later than the image, or has the id of another.
    pub(crate) fn enter(&mut self, slot: Slot, end_seq: u64, files: bool) -> Result<RestoredPoint, String> {
        let shared = self.shared.clone();
        let (row, version) = shared.meta.owned_row_and_version(&self.rows, slot);
        let row = PayloadRow::trusted(row);
        if files {
            shared.index.insert_later(slot, row);
        }
        let (id, born) = (shared.meta.id(slot), shared.meta.born(slot));
        if born > end_seq {
            return Err(format!("slot {slot} was written at {born}, after the image"));
        }
        if shared.ids.insert(id, slot).is_some() {
            return Err(format!("id {id} has two points"));
        }
        self.lanes.insert(slot, row);
        while self.lanes.step() {}
        self.ordered_ids.insert(id);
        add(&shared.live, 1);
        let deadlines = KeyDeadlines::of(row);
        self.watch_keys(id, deadlines);
        match shared.meta.deadline_ms(slot) {
            0 => shared.meta.settle(slot, born),
            deadline_ms => _ = self.deadlines.insert((deadline_ms, id)),
        }
        Ok(RestoredPoint { born, version })
    }

    /// End of a restore: `free` are the empty ones of so many `slots`, and the images show everything up to `seq`. `gone` is what they
    /// say of absent ids, and `versions` the sum of the versions of the points.
    pub(crate) fn finish_restore(
        &mut self,
        slots: u32,
        free: Vec<Slot>,
        seq: u64,
        gone: Option<Gone>,
        versions: u64,
    ) {
        self.free = free;
        // What was found out here is no image's yet; the next one has it, so that it is not found out again from other versions.
        let is_inferred = gone.is_none();
        self.gone = gone.unwrap_or_else(|| {
            // Images of before this was kept. No version exceeds the number of writes by more than the one that a bulk build gives,
            // and unless all writes are accounted for by what is there, something may be gone.
            let mut unknown = Gone::default();
            unknown.raise_floor(if versions == seq { 0 } else { seq.saturating_add(1) });
            unknown
        });
        self.gone.changed = is_inferred;
        // What was just loaded is what the images hold.
        self.changes = Changes::default();
        self.shared.slots.store(slots.into(), Ordering::Release);
        self.publish(seq);
    }
}
