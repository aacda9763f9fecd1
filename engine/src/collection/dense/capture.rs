//! Checkpoint images: a consistent state written in slices while the collection serves.
//!
//! A capture writes each pending slot as it is when its turn comes. What changes afterwards is pending in the next pass;
//! passes shrink as long as writing is faster than changing, and the last small one is written in one go together with the end
//! record, so the image as a whole shows one moment.
use super::DenseWriter;
use super::dirty::Dirty;
use crate::collection::slot_set::SlotSet;
use crate::collection::space::LearnedImage;
use crate::record::image::{
    EdgesRecord, EndRecord, LevelsBuilder, PointRecord, put_code, put_edges, put_end, put_free, put_point,
    put_watch,
};
use crate::slot::Slot;

/// Slots that the last pass may write in one go; doubled with each pass, so that a capture ends under any load. About 2 KB
/// and 1 µs each.
const LAST_PASS_SLOTS: usize = 256;

/// Bytes that count for a slot which turns out to need no record.
const BYTES_PER_LOOK: usize = 64;

/// Bytes of a point record without vector, code, edges and row.
const POINT_RECORD_BYTES: u64 = 54;

/// A capture under way.
pub(super) struct Capture {
    /// To be written in this pass.
    pending: Dirty,
    cursor: Slot,
    learned: LearnedImage,
    codes: Vec<u8>,
    /// Of the quantizer whose codes go with every point; `None` when the image does not have all points.
    codes_number: Option<u8>,
    /// What had changed since the last durable image and is not pending any more: it counts as changed again if this image is lost.
    changed: Dirty,
    passes: u32,
    /// First pass of a full image: all slots are pending, whether they changed or not, and those without a point need no record.
    takes_all: bool,
    complete: bool,
    /// Every point is written, so the image is to say all else that there is, too.
    full: bool,
    /// Versions of absent ids that no image before has are in this one.
    has_gone: bool,
    /// Slots that were freed before it was complete: once it is durable no image has a point there, whose vector is in the file.
    released: Vec<Slot>,
    levels: LevelsBuilder,
}

impl DenseWriter {
    /// Starts a capture: `full` = every point, else what changed since the last capture that became durable. One that was
    /// not ended counts as lost.
    pub fn begin_capture(&mut self, full: bool) {
        self.end_capture(false);
        let changed = self.take_dirty();
        let (pending, changed) = if full {
            let all = Dirty {
                data: SlotSet::all(self.points.high_water()),
                cells: self.shared.space.cells_info().map_or(0, |info| info.cells as usize),
                codec: true,
                ..Dirty::default()
            };
            (all, changed)
        } else {
            (changed, Dirty::default())
        };
        self.capture = Some(Capture {
            pending,
            cursor: 0,
            learned: LearnedImage::default(),
            codes: Vec::new(),
            codes_number: full.then(|| self.space.codes_of_image()),
            changed,
            passes: 0,
            takes_all: full,
            complete: false,
            full,
            has_gone: false,
            released: Vec::new(),
            levels: LevelsBuilder::default(),
        });
    }

    /// Appends encoded slot records to `out` until about `max_bytes` are added; true when the image is complete and
    /// consistent as of `seq()` at that moment. Slots changed after they were captured are captured again (later records
    /// win); the last few are taken in one go, beyond `max_bytes`.
    ///
    /// # Panics
    /// When no capture was begun.
    pub fn capture_step(&mut self, max_bytes: usize, out: &mut Vec<u8>) -> bool {
        let mut capture = self.capture.take().expect("begin_capture comes first");
        let full_at = out.len().saturating_add(max_bytes);
        // Slots without a record cost a look as well.
        let mut looks = max_bytes / BYTES_PER_LOOK + 1;
        while !capture.complete && out.len() < full_at && looks > 0 {
            looks -= 1;
            if self.write_next(&mut capture, out) {
                continue;
            }
            capture.takes_all = false;
            capture.pending = self.take_dirty();
            capture.cursor = 0;
            if capture.pending.len() <= LAST_PASS_SLOTS << capture.passes.min(16) {
                // A round half linked would come back with nodes that few lead to.
                while !self.commit_step(usize::MAX) {}
                capture.pending.insert_all(&self.take_dirty());
                capture.passes += 1;
                if capture.pending.len() > LAST_PASS_SLOTS << capture.passes.min(16) {
                    continue;
                }
                while self.write_next(&mut capture, out) {}
                if capture.full || self.points.gone_changed() {
                    capture.has_gone = self.points.put_gone(out);
                }
                if let Some(watch) = self.space.watch() {
                    put_watch(out, &watch);
                }
                put_end(
                    out,
                    &EndRecord {
                        seq: self.seq(),
                        slots: self.points.high_water() as u32,
                        entry: self.space.entry(),
                    },
                );
                capture.released = self.points.take_held();
                capture.complete = true;
            }
            capture.passes += 1;
        }
        let complete = capture.complete;
        self.capture = Some(capture);
        complete
    }

    /// The image is durable, or else was abandoned: then what had changed since the last durable one counts as changed again. Not
    /// all that was in a full one does: on a disk that has no room for it the next, smaller one has to fit. Nothing without a
    /// capture.
    pub fn end_capture(&mut self, durable: bool) {
        let Some(capture) = self.capture.take() else { return };
        if durable && capture.complete {
            self.points.release_held(capture.released);
            if let Some(number) = capture.codes_number {
                self.space.note_imaged_codes(number);
            }
        } else {
            self.points.hold_again(capture.released);
            if capture.has_gone {
                self.points.put_gone_again();
            }
            self.put_dirty_back(&capture.changed);
            if !capture.takes_all {
                self.put_dirty_back(&capture.pending);
            }
        }
    }

    /// All that changed since it was taken last.
    pub(super) fn take_dirty(&mut self) -> Dirty {
        let (points, space) = (self.points.take_changes(), self.space.take_changes());
        let mut dirty =
            Dirty { data: points.data, state: points.state, cells: space.cells, codec: space.codec };
        dirty.state.insert_all(&space.state);
        dirty
    }

    fn put_dirty_back(&mut self, dirty: &Dirty) {
        let points = self.points.changes_mut();
        points.data.insert_all(&dirty.data);
        points.state.insert_all(&dirty.state);
        let space = self.space.changes_mut();
        space.cells = space.cells.max(dirty.cells);
        space.codec |= dirty.codec;
    }

    /// Bytes a full image would take, about; `repaired`: once nothing leads through deleted points any more.
    pub fn image_bytes(&self, repaired: bool) -> u64 {
        let per_point = POINT_RECORD_BYTES + self.space.image_bytes_per_point();
        let (live, dead) = (self.shared.points.live(), self.space.dead());
        let points = if repaired { live } else { live + dead };
        points * per_point + self.points.live_row_bytes(dead)
    }

    /// Writes the next centroid or piece of a quantizer, or what comes before all of them.
    fn write_cells(&mut self, capture: &mut Capture, out: &mut Vec<u8>) {
        let others = std::mem::take(&mut self.space.changes_mut().cells);
        if others > 0 {
            capture.learned.restart_cells();
        }
        let changed = if capture.takes_all { others } else { others.max(capture.pending.cells) };
        capture.changed.cells = capture.changed.cells.max(changed);
        if self.space.put_cells(&mut capture.learned, capture.full, out) {
            capture.pending.cells = 0;
        }
    }

    /// Writes the next piece of what the quantizer of a graph has learned.
    fn write_codec(&mut self, capture: &mut Capture, out: &mut Vec<u8>) {
        let another = std::mem::take(&mut self.space.changes_mut().codec);
        capture.changed.codec |= another || !capture.takes_all;
        if another {
            // All of its pieces come before the next slot.
            capture.pending.codec = true;
            capture.learned.restart_codec();
        }
        if self.space.put_codec(&mut capture.learned, capture.full, out) {
            capture.pending.codec = false;
        }
    }

    /// Writes the next pending slot; false when none is left.
    fn write_next(&mut self, capture: &mut Capture, out: &mut Vec<u8>) -> bool {
        if capture.pending.cells > 0 {
            self.write_cells(capture, out);
            return true;
        }
        // Before a code of it.
        if capture.pending.codec || self.space.changes_mut().codec {
            self.write_codec(capture, out);
            return true;
        }
        let Some(slot) = capture.pending.next(capture.cursor) else { return false };
        capture.cursor = slot + 1;
        // What is written now includes what changed up to now.
        let moved = self.space.changes_mut().state.remove(slot);
        let points = self.points.changes_mut();
        let mut changed = (points.data.remove(slot), points.state.remove(slot) | moved);
        let pending = (capture.pending.data.remove(slot), capture.pending.state.remove(slot));
        let data = changed.0 | pending.0;
        if !capture.takes_all {
            changed = (data, changed.1 | pending.1);
        }
        if changed.0 {
            capture.changed.data.insert(slot);
        }
        if changed.1 {
            capture.changed.state.insert(slot);
        }

        let dead = self.shared.points.is_dead(slot);
        if dead && !self.space.leads_through(slot) {
            if !capture.takes_all {
                put_free(out, slot);
            }
            return true;
        }
        capture.levels.clear();
        capture.codes.clear();
        self.space.put_place(slot, &mut capture.levels, &mut capture.codes);
        let levels = capture.levels.levels();
        if data {
            let (vector, components) = self.space.vector_of_image(slot, &mut capture.codes);
            let point = self.points.image_of(slot);
            let point = PointRecord {
                slot,
                dead,
                id: point.id,
                version: point.version,
                born: point.born,
                deadline_ms: point.deadline_ms,
                levels,
                vector,
                // A way-point's row is of no use any more.
                row: if dead { &[] } else { point.row },
            };
            put_point(out, &point, components);
        } else {
            put_edges(out, &EdgesRecord { slot, dead, levels });
        }
        if !capture.codes.is_empty() {
            put_code(out, slot, &capture.codes);
        }
        true
    }
}
