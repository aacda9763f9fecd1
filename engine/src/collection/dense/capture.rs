//! Checkpoint images: a consistent state written in slices while the collection serves.
//!
//! A capture writes each pending slot as it is when its turn comes. What changes afterwards is pending in the next pass;
//! passes shrink as long as writing is faster than changing, and the last small one is written in one go together with the end
//! record, so the image as a whole shows one moment.
use super::DenseWriter;
use super::dirty::{Dirty, DirtySlot};
use crate::collection::space::LearnedImage;
use crate::record::image::{
    EdgesRecord, EndRecord, Levels, LevelsBuilder, PartRecord, PointRecord, StoredVector, put_code,
    put_edges, put_end, put_entry, put_free, put_part, put_point, put_space, put_watch,
};
use crate::slot::Slot;

/// Slots that the last pass may write in one go; doubled with each pass, so that a capture ends under any load. About 2 KB
/// and 1 µs each.
const LAST_PASS_SLOTS: usize = 256;

/// Bytes that count for a slot which turns out to need no record.
const BYTES_PER_LOOK: usize = 64;

/// Bytes of a point record without vector, code, edges and row.
const POINT_RECORD_BYTES: u64 = 54;
/// Bytes of the record of a point's part in one space without vector, code and edges, with the record that names the space before it.
const PART_RECORD_BYTES: u64 = 22;

/// A capture under way.
pub(super) struct Capture {
    /// To be written in this pass.
    pending: Dirty,
    cursor: Slot,
    /// For each space.
    learned: Vec<LearnedImage>,
    codes: Vec<u8>,
    /// For each space, the number of the quantizer whose codes go with every point; `None` when the image does not have all points.
    codes_numbers: Option<Vec<u8>>,
    /// The space that the last written space record names; records of parts that follow belong to it. `None` before the first one, and always
    /// in a dense collection.
    space: Option<usize>,
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
        let spaces = self.spaces.len();
        let (pending, changed) = if full {
            let mut all = Dirty::all(self.points.high_water(), spaces);
            for (pending, space) in all.spaces.iter_mut().zip(self.shared.spaces()) {
                pending.cells = space.cells_info().map_or(0, |info| info.cells as usize);
                pending.codec = true;
            }
            (all, changed)
        } else {
            (changed, Dirty::all(0, spaces))
        };
        self.capture = Some(Capture {
            pending,
            cursor: 0,
            learned: (0..spaces).map(|_| LearnedImage::default()).collect(),
            codes: Vec::new(),
            codes_numbers: full.then(|| self.spaces.iter().map(|space| space.codes_of_image()).collect()),
            space: None,
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
                for space in 0..self.spaces.len() {
                    while !self.commit_step(space, usize::MAX) {}
                }
                capture.pending.insert_all(&self.take_dirty());
                capture.passes += 1;
                if capture.pending.len() > LAST_PASS_SLOTS << capture.passes.min(16) {
                    continue;
                }
                while self.write_next(&mut capture, out) {}
                if capture.full || self.points.gone_changed() {
                    capture.has_gone = self.points.put_gone(out);
                }
                self.write_end(&mut capture, out);
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
            for (space, number) in self.spaces.iter_mut().zip(capture.codes_numbers.into_iter().flatten()) {
                space.note_imaged_codes(number);
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

    /// The images of now and the file of vectors are about to be read: until [`Self::end_snapshots`], no vector that they name is overwritten.
    pub fn begin_snapshots(&mut self) {
        self.points.begin_snapshots();
    }

    /// Nobody reads images and vectors of an earlier moment any more.
    pub fn end_snapshots(&mut self) {
        self.points.end_snapshots();
    }

    /// What closes the image, but for the versions of absent ids.
    fn write_end(&self, capture: &mut Capture, out: &mut Vec<u8>) {
        let spaces = self.spaces.iter().enumerate().filter(|(_, space)| !space.is_dropped());
        for (number, space) in spaces {
            if let Some(watch) = space.watch() {
                self.write_space(capture, number, out);
                put_watch(out, &watch);
            }
            if self.shared.is_named {
                self.write_space(capture, number, out);
                put_entry(out, space.entry());
            }
        }
        let entry = if self.shared.is_named { None } else { self.space().entry() };
        put_end(out, &EndRecord { seq: self.seq(), slots: self.points.high_water() as u32, entry });
    }

    /// In a collection of named spaces, writes the record that names the space of the records that follow, unless the last one named it.
    fn write_space(&self, capture: &mut Capture, number: usize, out: &mut Vec<u8>) {
        if self.shared.is_named && capture.space != Some(number) {
            put_space(out, number as u16);
            capture.space = Some(number);
        }
    }

    /// All that changed since it was taken last.
    pub(super) fn take_dirty(&mut self) -> Dirty {
        Dirty {
            points: self.points.take_changes(),
            spaces: self.spaces.iter_mut().map(|space| space.take_changes()).collect(),
        }
    }

    fn put_dirty_back(&mut self, dirty: &Dirty) {
        self.points.changes_mut().insert_all(&dirty.points);
        for (space, changes) in self.spaces.iter_mut().zip(&dirty.spaces) {
            space.changes_mut().insert_all(changes);
        }
    }

    /// Bytes a full image would take, about; `repaired`: once nothing leads through deleted points any more.
    pub fn image_bytes(&self, repaired: bool) -> u64 {
        let dead_of = |dead: u64| if repaired { 0 } else { dead };
        let dead = self.spaces.iter().map(|space| space.dead()).max().unwrap_or(0);
        let points = (self.shared.points.live() + dead_of(dead)) * POINT_RECORD_BYTES;
        let of_record = if self.shared.is_named { PART_RECORD_BYTES } else { 0 };
        let vectors = self.spaces.iter().map(|space| {
            let vectors = space.shared().vectors() + dead_of(space.dead());
            vectors * (space.image_bytes_per_point() + of_record)
        });
        points + vectors.sum::<u64>() + self.points.live_row_bytes(dead)
    }

    /// Writes the next centroid or piece of a quantizer, or what comes before all of them.
    fn write_cells(&mut self, capture: &mut Capture, number: usize, out: &mut Vec<u8>) {
        self.write_space(capture, number, out);
        let space = &mut self.spaces[number];
        let others = std::mem::take(&mut space.changes_mut().cells);
        let learned = &mut capture.learned[number];
        if others > 0 {
            learned.restart_cells();
        }
        let pending = &mut capture.pending.spaces[number].cells;
        let changed = if capture.takes_all { others } else { others.max(*pending) };
        let before = &mut capture.changed.spaces[number].cells;
        *before = changed.max(*before);
        if space.put_cells(learned, capture.full, out) {
            *pending = 0;
        }
    }

    /// Writes the next piece of what the quantizer of a graph has learned.
    fn write_codec(&mut self, capture: &mut Capture, number: usize, out: &mut Vec<u8>) {
        self.write_space(capture, number, out);
        let space = &mut self.spaces[number];
        let another = std::mem::take(&mut space.changes_mut().codec);
        let learned = &mut capture.learned[number];
        capture.changed.spaces[number].codec |= another || !capture.takes_all;
        let pending = &mut capture.pending.spaces[number].codec;
        if another {
            // All of its pieces come before the next slot.
            *pending = true;
            learned.restart_codec();
        }
        if space.put_codec(learned, capture.full, out) {
            *pending = false;
        }
    }

    /// Writes the next piece of what was learned in some space; false when there is none, so that slots are next.
    fn write_learned(&mut self, capture: &mut Capture, out: &mut Vec<u8>) -> bool {
        for number in 0..self.spaces.len() {
            if capture.pending.spaces[number].cells > 0 {
                self.write_cells(capture, number, out);
                return true;
            }
            // Before a code of it.
            if capture.pending.spaces[number].codec || self.spaces[number].changes_mut().codec {
                self.write_codec(capture, number, out);
                return true;
            }
        }
        false
    }

    /// What changed of a slot and is in no pass so far; it counts as unchanged from now on.
    fn take_dirty_slot(&mut self, slot: Slot) -> DirtySlot {
        let mut places = 0;
        for (number, space) in self.spaces.iter_mut().enumerate() {
            places |= u64::from(space.changes_mut().state.remove(slot)) << number;
        }
        let points = self.points.changes_mut();
        DirtySlot { data: points.data.remove(slot), state: points.state.remove(slot), places }
    }

    /// Writes the next pending slot; false when none is left.
    fn write_next(&mut self, capture: &mut Capture, out: &mut Vec<u8>) -> bool {
        if self.write_learned(capture, out) {
            return true;
        }
        let Some(slot) = capture.pending.next(capture.cursor) else { return false };
        capture.cursor = slot + 1;
        // What is written now includes what changed up to now.
        let since = self.take_dirty_slot(slot);
        let dirty = since.or(capture.pending.take(slot));
        capture.changed.insert(slot, if capture.takes_all { since } else { dirty });

        let dead = self.shared.points.is_dead(slot);
        if dead && !self.spaces.iter().any(|space| !space.is_dropped() && space.leads_through(slot)) {
            if !capture.takes_all {
                put_free(out, slot);
            }
        } else if self.shared.is_named {
            self.write_parts(capture, slot, dirty, out);
        } else {
            self.write_point(capture, slot, dirty.data, out);
        }
        true
    }

    /// A point of the only space.
    fn write_point(&self, capture: &mut Capture, slot: Slot, data: bool, out: &mut Vec<u8>) {
        let (space, dead) = (self.space(), self.shared.points.is_dead(slot));
        let Capture { levels, codes, .. } = capture;
        levels.clear();
        codes.clear();
        space.put_place(slot, levels, codes);
        let levels = levels.levels();
        if data {
            let (vector, components) = space.vector_of_image(slot, codes);
            put_point(out, &PointRecord { levels, vector, ..self.point_record(slot, dead) }, components);
        } else {
            put_edges(out, &EdgesRecord { slot, dead, levels });
        }
        if !codes.is_empty() {
            put_code(out, slot, codes);
        }
    }

    /// A point of named spaces, or of it what changed.
    fn write_parts(&self, capture: &mut Capture, slot: Slot, dirty: DirtySlot, out: &mut Vec<u8>) {
        let dead = self.shared.points.is_dead(slot);
        if dirty.data {
            put_point(out, &self.point_record(slot, dead), &[]);
        }
        for (number, space) in self.spaces.iter().enumerate() {
            // A death is told by each space that leads through the slot.
            let changed = dirty.data || dirty.state || dirty.places >> number & 1 == 1;
            let there = space.shared().holds(slot) && (!dead || space.leads_through(slot));
            if !changed || !there {
                continue;
            }
            self.write_space(capture, number, out);
            let Capture { levels, codes, .. } = capture;
            levels.clear();
            codes.clear();
            space.put_place(slot, levels, codes);
            let levels = levels.levels();
            if dirty.data {
                let (vector, components) = space.vector_of_image(slot, codes);
                put_part(out, &PartRecord { slot, dead, levels, vector }, components);
            } else {
                put_edges(out, &EdgesRecord { slot, dead, levels });
            }
            if !codes.is_empty() {
                put_code(out, slot, codes);
            }
        }
    }

    /// What an image says of a point, but for its vectors.
    fn point_record(&self, slot: Slot, dead: bool) -> PointRecord<'_> {
        let point = self.points.image_of(slot);
        PointRecord {
            slot,
            dead,
            id: point.id,
            version: point.version,
            born: point.born,
            deadline_ms: point.deadline_ms,
            levels: Levels::default(),
            vector: StoredVector::Here(&[]),
            // A way-point's row is of no use any more.
            row: if dead { &[] } else { point.row },
        }
    }
}
