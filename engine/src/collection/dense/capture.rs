//! Checkpoint images: a consistent state written in slices while the collection serves.
//!
//! A capture writes each pending slot as it is when its turn comes. What changes afterwards is pending in the next pass;
//! passes shrink as long as writing is faster than changing, and the last small one is written in one go together with the end
//! record, so the image as a whole shows one moment.
use super::*;
use crate::record::image::{
    CellsRecord, EdgesRecord, EndRecord, LevelsBuilder, PointRecord, StoredVector, put_cells, put_centroid,
    put_code, put_codec, put_edges, put_end, put_free, put_gone, put_point, put_watch,
};

/// Slots that the last pass may write in one go; doubled with each pass, so that a capture ends under any load. About 2 KB
/// and 1 µs each.
const LAST_PASS_SLOTS: usize = 256;

/// Bytes of what a quantizer has learned that are written in one go.
pub(super) const CODEC_PIECE: usize = 1 << 14;

/// Versions of absent ids per record. All of them are written in one go with the end of an image: 256 KiB at most.
const GONE_PER_RECORD: usize = 1024;

/// Bytes that count for a slot which turns out to need no record.
const BYTES_PER_LOOK: usize = 64;

/// A capture under way.
pub(super) struct Capture {
    /// To be written in this pass.
    pending: Dirty,
    cursor: Slot,
    /// Centroids and pieces of a quantizer written, and one for what comes before them.
    cells_cursor: usize,
    /// What a quantizer has learned, while it is being written.
    codec: Vec<u8>,
    /// Pieces of it written, of the quantizer of a graph.
    codec_cursor: usize,
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

impl Capture {
    fn put_piece(&self, piece: usize, out: &mut Vec<u8>) {
        let at = piece * CODEC_PIECE;
        let end = (at + CODEC_PIECE).min(self.codec.len());
        put_codec(out, self.codec.len() as u32, at as u32, &self.codec[at..end]);
    }
}

impl DenseWriter {
    /// Starts a capture: `full` = every point, else what changed since the last capture that became durable. One that was
    /// not ended counts as lost.
    pub fn begin_capture(&mut self, full: bool) {
        self.end_capture(false);
        self.collect_edge_changes();
        let changed = std::mem::take(&mut self.dirty);
        let (pending, changed) = if full {
            let all = Dirty {
                data: SlotSet::all(self.high_water()),
                cells: self.shared.cell_count.load(Ordering::Relaxed) as usize,
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
            cells_cursor: 0,
            codec: Vec::new(),
            codec_cursor: 0,
            codes: Vec::new(),
            codes_number: full
                .then(|| if self.images_have_codes() { self.shared.graph.codes_number() } else { 0 }),
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
            self.collect_edge_changes();
            capture.takes_all = false;
            capture.pending = std::mem::take(&mut self.dirty);
            capture.cursor = 0;
            if capture.pending.len() <= LAST_PASS_SLOTS << capture.passes.min(16) {
                // A round half linked would come back with nodes that few lead to.
                while !self.commit_step(usize::MAX) {}
                self.collect_edge_changes();
                capture.pending.insert_all(&std::mem::take(&mut self.dirty));
                capture.passes += 1;
                if capture.pending.len() > LAST_PASS_SLOTS << capture.passes.min(16) {
                    continue;
                }
                while self.write_next(&mut capture, out) {}
                if capture.full || self.gone.changed {
                    self.write_gone(out);
                    capture.has_gone = std::mem::take(&mut self.gone.changed);
                }
                if let Some(watch) = self.watch() {
                    put_watch(out, &watch);
                }
                put_end(
                    out,
                    &EndRecord {
                        seq: self.seq,
                        slots: self.high_water() as u32,
                        entry: self.shared.graph.entry(),
                    },
                );
                capture.released = std::mem::take(&mut self.held);
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
            self.free.extend(capture.released);
            // Another may be in use since then; its codes are not there.
            self.imaged_codes = capture.codes_number.unwrap_or(self.imaged_codes);
        } else {
            self.held.extend(capture.released);
            self.gone.changed |= capture.has_gone;
            self.dirty.insert_all(&capture.changed);
            if !capture.takes_all {
                self.dirty.insert_all(&capture.pending);
            }
        }
    }

    /// Whether images lack codes that a search after the next start would go over: the next image is to be a full one. Codes are in
    /// images where vectors are not: writing them anew would read all vectors from the disk, and searches would do so until then.
    pub fn codes_unsaved(&self) -> bool {
        let number = self.shared.graph.codes_number();
        self.images_have_codes() && number != 0 && number != self.imaged_codes
    }

    fn images_have_codes(&self) -> bool {
        self.shared.graph.keeps_file() || self.shared.graph.is_bare()
    }

    /// Bytes a full image would take, about; `repaired`: once nothing leads through deleted points any more.
    pub fn image_bytes(&self, repaired: bool) -> u64 {
        let config = &self.shared.config;
        // Point record without edges and row, and on average about 1.5 m edges.
        let vector = match (self.shared.graph.keeps_file(), self.shared.graph.is_bare()) {
            (true, _) => 4,
            (_, true) => 0,
            _ => 4 * config.dim as u64,
        };
        let code = self.code_of_image(0).map_or(0, |(_, code)| code.len() as u64);
        let per_point = 54 + code + vector + 6 * config.m as u64;
        let (live, dead) = (self.shared.live.load(Ordering::Relaxed), self.dead_linked.len() as u64);
        let points = if repaired { live } else { live + dead };
        // Rows of the deleted are there until their slots are freed, and in no image.
        let rows = self.shared.meta.row_bytes() as f64 * live as f64 / (live + dead).max(1) as f64;
        points * per_point + rows as u64
    }

    fn write_gone(&self, out: &mut Vec<u8>) {
        let pairs: Vec<(u64, u64)> = self.gone.iter().collect();
        let floor = self.gone.floor();
        // The first piece is there when there is nothing to say as well: then every absent id begins at 1.
        put_gone(out, 0, floor, &pairs[..pairs.len().min(GONE_PER_RECORD)]);
        for (at, piece) in pairs.chunks(GONE_PER_RECORD).enumerate().skip(1) {
            put_gone(out, at as u32, floor, piece);
        }
    }

    pub(super) fn collect_edge_changes(&mut self) {
        let state = &mut self.dirty.state;
        self.shared.graph.take_dirty(&mut |slot| state.insert(slot));
    }

    /// Writes the next centroid or piece of a quantizer, or what comes before all of them.
    fn write_cells(&mut self, capture: &mut Capture, out: &mut Vec<u8>) {
        let others = std::mem::take(&mut self.dirty.cells);
        if others > 0 {
            capture.cells_cursor = 0;
        }
        let changed = if capture.takes_all { others } else { others.max(capture.pending.cells) };
        capture.changed.cells = capture.changed.cells.max(changed);
        let cells =
            self.filing.as_ref().and_then(|filing| filing.current.as_ref()).map(|current| current.cells());
        let Some(cells) = cells else {
            // Forgotten since the image before.
            if !capture.full {
                put_cells(out, &CellsRecord { cells: 0, trained_on: 0, mean: 0.0 });
            }
            (capture.pending.cells, capture.cells_cursor) = (0, 0);
            return;
        };
        match capture.cells_cursor.checked_sub(1) {
            None => {
                capture.codec = cells.coded().map_or_else(Vec::new, |coded| coded.codec().save());
                put_cells(
                    out,
                    &CellsRecord {
                        cells: cells.len() as u32,
                        trained_on: cells.trained_on(),
                        mean: cells.mean(),
                    },
                );
            }
            Some(cell) if cell < cells.len() => put_centroid(out, cell as u32, cells.centroid(cell as u32)),
            Some(piece) => capture.put_piece(piece - cells.len(), out),
        }
        capture.cells_cursor += 1;
        if capture.cells_cursor > cells.len() + capture.codec.len().div_ceil(CODEC_PIECE) {
            (capture.pending.cells, capture.cells_cursor) = (0, 0);
            capture.codec = Vec::new();
        }
    }

    /// Writes the next piece of what the quantizer of a graph has learned.
    fn write_codec(&mut self, capture: &mut Capture, out: &mut Vec<u8>) {
        let another = std::mem::take(&mut self.dirty.codec);
        capture.changed.codec |= another || !capture.takes_all;
        if another {
            // All of its pieces come before the next slot.
            (capture.pending.codec, capture.codec_cursor) = (true, 0);
        }
        if capture.codec_cursor == 0 {
            capture.codec = self.shared.graph.save_codec();
            if capture.codec.is_empty() && !capture.full && !self.files_cells() {
                // Forgotten since the image before.
                put_codec(out, 0, 0, &[]);
            }
        }
        let pieces = capture.codec.len().div_ceil(CODEC_PIECE);
        if capture.codec_cursor < pieces {
            capture.put_piece(capture.codec_cursor, out);
            capture.codec_cursor += 1;
        }
        if capture.codec_cursor == pieces {
            (capture.pending.codec, capture.codec_cursor, capture.codec) = (false, 0, Vec::new());
        }
    }

    /// What walks go over for a slot of a graph whose vectors are in a file, or nowhere.
    fn code_of_image(&self, slot: Slot) -> Option<(u8, &[u8])> {
        if self.images_have_codes() { self.shared.graph.saved_code(slot) } else { None }
    }

    /// Writes the next pending slot; false when none is left.
    fn write_next(&mut self, capture: &mut Capture, out: &mut Vec<u8>) -> bool {
        if capture.pending.cells > 0 {
            self.write_cells(capture, out);
            return true;
        }
        // Before a code of it.
        if capture.pending.codec || self.dirty.codec {
            self.write_codec(capture, out);
            return true;
        }
        let Some(slot) = capture.pending.next(capture.cursor) else { return false };
        capture.cursor = slot + 1;
        // What is written now includes what changed up to now.
        let mut changed = (self.dirty.data.remove(slot), self.dirty.state.remove(slot));
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

        let shared = &self.shared;
        let (dead, linked) = (shared.meta.is_dead(slot), self.is_linked(slot));
        // Nothing leads through the dead of a cell.
        if dead && (!linked || self.files_cells()) {
            if !capture.takes_all {
                put_free(out, slot);
            }
            return true;
        }
        capture.levels.clear();
        match &self.filing {
            Some(filing) if linked => match filing.place(slot) {
                Some((cell, Some(second))) => capture.levels.push(&[cell, second]),
                Some((cell, None)) => capture.levels.push(&[cell]),
                None => capture.levels.push(&[]),
            },
            None if linked => shared.graph.edges(slot, &mut |_, edges| capture.levels.push(edges)),
            _ => {}
        }
        let levels = capture.levels.levels();
        capture.codes.clear();
        if let Some(filing) = self.filing.as_ref().filter(|_| linked) {
            filing.codes(slot, &mut capture.codes);
        }
        if !data {
            put_edges(out, &EdgesRecord { slot, dead, levels });
            if !capture.codes.is_empty() {
                put_code(out, slot, &capture.codes);
            }
            return true;
        }
        let (row, version) = shared.meta.owned_row_and_version(&self.rows, slot);
        let point = PointRecord {
            slot,
            dead,
            id: shared.meta.id(slot),
            version,
            born: shared.meta.born(slot),
            deadline_ms: shared.meta.deadline_ms(slot),
            levels,
            vector: shared.graph.checksum(slot).map_or(StoredVector::Here(&[]), StoredVector::Filed),
            // A way-point's row is of no use any more.
            row: if dead { &[] } else { row },
        };
        if let Some((number, code)) = self.code_of_image(slot) {
            capture.codes.push(number);
            capture.codes.extend_from_slice(code);
        }
        let vector = match point.vector {
            // Not so much as looked at: it may be on the disk only.
            StoredVector::Filed(_) => &[],
            // Where vectors are given up the codes say it all.
            StoredVector::Here(_)
                if shared.config.drops_vectors() && !capture.codes.is_empty() && !self.is_unproven(slot) =>
            {
                &[]
            }
            StoredVector::Here(_) => &shared.graph.vector(slot)[..shared.config.dim],
        };
        put_point(out, &point, vector);
        if !capture.codes.is_empty() {
            put_code(out, slot, &capture.codes);
        }
        true
    }
}
