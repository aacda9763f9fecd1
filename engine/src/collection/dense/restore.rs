//! Loading checkpoint images: a base, then deltas, then the check that makes them a collection again.
//!
//! Nothing is trusted: slots, lengths, rows, edges, ids and the entry point are checked, so damaged bytes that got past a
//! checksum end in an error or in fewer edges, never in a panic or a wild slot.
use super::gone::Gone;
use super::meta::Birth;
use super::writer::add;
use super::*;
use crate::collection::IvfConfig;
use crate::index::{Cells, SavedCodes};
use crate::memory::{Spill, Spilled};
use crate::payload::PayloadRow;
use crate::quantizer::{CellCodec, Watch};
use crate::record::image::{CellsRecord, EndRecord, Levels, PointRecord, Record, Records, StoredVector};

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
#[derive(Default)]
pub(super) struct Restoring {
    /// Slots that hold a point or a way-point.
    present: SlotSet,
    /// Those that are way-points.
    dead: SlotSet,
    /// The end of the last whole image.
    end: Option<EndRecord>,
    /// Records came after it.
    open: bool,
    /// In a collection of cells, the encoded cells and codes of each point: they wait for the centroids of the last
    /// image. (Edges go straight to the graph.)
    lists: Spill,
    /// Per slot: its newest cells, empty = in none.
    lists_at: Vec<Spilled>,
    /// Of one slot.
    encoded: Vec<u8>,
    edges: Vec<Vec<Slot>>,
    vector: Vec<f32>,
    /// The last clustering, and its centroids as far as they came.
    cells: Option<(CellsRecord, Vec<f32>)>,
    /// What its quantizer has learned, as far as it came.
    codec: Vec<u8>,
    /// The same of a graph once it is whole, with codes that came after it, and the slots whose code it has.
    saved: Option<SavedCodes>,
    coded: SlotSet,
    /// Per slot: its codes in its cells, in `lists` too; empty = none.
    codes_at: Vec<Spilled>,
    /// Slots that came without a vector.
    bare: SlotSet,
    /// Versions of absent ids, if an image says something of them.
    gone: Option<Gone>,
    /// How well what was learned fits what was written, if an image says so.
    watch: Option<Watch>,
}

/// The byte string of a slot, empty without one.
fn kept<'a>(lists: &'a Spill, places: &[Spilled], slot: Slot) -> &'a [u8] {
    match places.get(slot as usize) {
        Some(&at) if at != Spilled::default() => lists.get(at),
        _ => &[],
    }
}

fn set(places: &mut Vec<Spilled>, slot: Slot, at: Spilled) {
    let index = slot as usize;
    if index >= places.len() {
        places.resize(index + 1, Spilled::default());
    }
    places[index] = at;
}

/// Slots filed between two looks for what nobody sees any more.
const RECLAIM_SLOTS: Slot = 4096;
/// Bytes of a quantizer at most: the centroids of very long vectors in many layers.
const CODEC_MAX: usize = 1 << 31;

impl Restoring {
    /// Slots with a point, dead ones included, as far as images have come.
    pub(super) fn points(&self) -> usize {
        self.present.len()
    }

    /// Centroids come in order, after the record that says how many.
    fn centroid(&mut self, cell: u32, centroid: &[u8], dim: usize) -> Result<(), String> {
        let Some((cells, rows)) = self.cells.as_mut().filter(|(cells, rows)| {
            cell < cells.cells && rows.len() == cell as usize * dim && centroid.len() == 4 * dim
        }) else {
            return Err(format!("centroid {cell} of {} bytes where another belongs", centroid.len()));
        };
        let _ = cells;
        rows.extend(centroid.as_chunks().0.iter().map(|c| f32::from_le_bytes(*c)));
        match rows[cell as usize * dim..].iter().all(|component| component.is_finite()) {
            true => Ok(()),
            false => Err(format!("centroid {cell} has a component that is not finite")),
        }
    }

    /// Pieces of a quantizer come in order; true after the last.
    fn piece(&mut self, total: u32, at: u32, piece: &[u8]) -> Result<bool, String> {
        if at == 0 {
            self.codec.clear();
        }
        let end = self.codec.len() + piece.len();
        if at as usize != self.codec.len() || end > total as usize || total as usize > CODEC_MAX {
            return Err(format!("{} bytes of a quantizer from {at} of {total}", piece.len()));
        }
        self.codec.extend_from_slice(piece);
        Ok(end == total as usize)
    }

    fn set_codes(&mut self, slot: Slot, codes: &[u8]) -> Result<(), String> {
        if !codes.is_empty() || self.codes_at.len() > slot as usize {
            let at = self.keep(codes)?;
            set(&mut self.codes_at, slot, at);
        }
        Ok(())
    }

    fn codes(&self, slot: Slot) -> &[u8] {
        kept(&self.lists, &self.codes_at, slot)
    }

    fn levels(&self, slot: Slot) -> Option<Levels<'_>> {
        Some(kept(&self.lists, &self.lists_at, slot)).filter(|lists| !lists.is_empty()).and_then(Levels::get)
    }

    fn set_levels(&mut self, slot: Slot, levels: Levels<'_>) -> Result<(), String> {
        self.encoded.clear();
        if !levels.is_empty() {
            levels.put(&mut self.encoded);
        }
        let encoded = std::mem::take(&mut self.encoded);
        let at = self.keep(&encoded);
        self.encoded = encoded;
        set(&mut self.lists_at, slot, at?);
        Ok(())
    }

    fn forget(&mut self, slot: Slot) {
        self.bare.remove(slot);
        for places in [&mut self.lists_at, &mut self.codes_at] {
            if let Some(at) = places.get_mut(slot as usize) {
                *at = Spilled::default();
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<Spilled, String> {
        if bytes.is_empty() {
            return Ok(Spilled::default());
        }
        self.lists.push(bytes).map_err(|error| error.to_string())
    }
}

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
        assert_eq!(self.seq, 0, "restore comes before writes");
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

    fn new_restoring(&self) -> Restoring {
        Restoring { lists: Spill::new(self.shared.graph.scratch().clone()), ..Restoring::default() }
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
            Record::Edges(edges) => {
                self.restore_slot(edges.slot)?;
                if !restoring.present.contains(edges.slot) {
                    return Err(format!("edges of slot {}, which no image holds", edges.slot));
                }
                self.restore_state(restoring, edges.slot, edges.dead, edges.levels)
            }
            Record::Free(slot) => {
                self.restore_slot(slot)?;
                if restoring.present.contains(slot) {
                    self.restore_nothing(restoring, slot);
                }
                Ok(())
            }
            Record::Cells(cells) if self.files_cells() => {
                // A record of 0 cells says that the cells of earlier images are forgotten.
                restoring.cells = (cells.cells > 0).then(|| (cells, Vec::new()));
                restoring.codec.clear();
                restoring.watch = None;
                Ok(())
            }
            Record::Codec(0, ..) => {
                restoring.codec.clear();
                (restoring.saved, restoring.coded, restoring.watch) = (None, SlotSet::default(), None);
                Ok(())
            }
            Record::Watch(watch) => {
                restoring.watch = Some(watch);
                Ok(())
            }
            Record::Codec(total, at, piece) => {
                if restoring.piece(total, at, piece)? && !self.files_cells() {
                    let saved = self.shared.graph.load_codec(&restoring.codec)?;
                    // One that comes again has its codes already.
                    if restoring.saved.as_ref().is_none_or(|before| !before.is_same(&saved)) {
                        restoring.saved = Some(saved);
                        (restoring.coded, restoring.watch) = (SlotSet::default(), None);
                    }
                }
                Ok(())
            }
            Record::Code(slot, codes) if self.files_cells() => {
                self.restore_slot(slot)?;
                if !restoring.present.contains(slot) {
                    return Err(format!("codes of slot {slot}, which no image holds"));
                }
                restoring.set_codes(slot, codes)
            }
            Record::Code(slot, codes) => {
                if !restoring.present.contains(slot) {
                    return Err(format!("a code of slot {slot}, which no image holds"));
                }
                let Some(saved) = &mut restoring.saved else { return Ok(()) };
                let (&number, code) = codes.split_first().ok_or("a code of no quantizer")?;
                if saved.set(slot, number, code)? {
                    restoring.coded.insert(slot);
                }
                Ok(())
            }
            Record::Centroid(cell, centroid) if self.files_cells() => {
                restoring.centroid(cell, centroid, self.shared.config.dim)
            }
            Record::Cells(_) | Record::Centroid(..) => Err("cells in the image of a graph".into()),
            Record::Gone(record) => {
                if record.at == 0 {
                    restoring.gone = Some(Gone::default());
                }
                let gone = restoring.gone.as_mut().ok_or("versions of absent ids without their beginning")?;
                gone.raise_floor(record.floor);
                record.iter().for_each(|(id, version)| gone.note(id, version));
                Ok(())
            }
            Record::End(end) => {
                if end.slots as usize > self.slots_max {
                    return Err(format!("{} slots, more than {}", end.slots, self.slots_max));
                }
                if restoring.end.is_some_and(|last| last.seq > end.seq || last.slots > end.slots) {
                    return Err("image is older than the one before it".into());
                }
                restoring.end = Some(end);
                restoring.open = false;
                Ok(())
            }
        }
    }

    fn restore_slot(&self, slot: Slot) -> Result<(), String> {
        if slot as usize >= self.slots_max {
            return Err(format!("slot {slot} of a collection of {} slots", self.slots_max));
        }
        Ok(())
    }

    fn restore_point(&mut self, restoring: &mut Restoring, point: &PointRecord<'_>) -> Result<(), String> {
        let slot = point.slot;
        let bare = matches!(point.vector, StoredVector::Here(vector) if vector.is_empty())
            && self.shared.config.drops_vectors();
        match bare {
            true => {
                self.commit_slots(slot as usize + 1).map_err(|error| error.to_string())?;
                restoring.bare.insert(slot);
                if !self.files_cells() {
                    self.shared.graph.adopt_bare(slot);
                }
            }
            false => {
                restoring.bare.remove(slot);
                self.restore_vector(restoring, slot, point.vector)?;
            }
        }
        if !point.row.is_empty() {
            PayloadRow::verify(point.row).map_err(|error| format!("row of slot {slot}: {error}"))?;
        }
        // Born at 0 is a bulk load into a collection that has seen no write.
        if point.version == 0 || point.born == u64::MAX {
            return Err(format!("slot {slot} was never written"));
        }
        self.shared.meta.birth(
            slot,
            &Birth {
                id: point.id,
                version: point.version,
                born: point.born,
                deadline_ms: point.deadline_ms,
                row: point.row,
            },
        );
        restoring.present.insert(slot);
        restoring.coded.remove(slot);
        self.restore_state(restoring, slot, point.dead, point.levels)
    }

    fn restore_vector(
        &self,
        restoring: &mut Restoring,
        slot: Slot,
        vector: StoredVector<'_>,
    ) -> Result<(), String> {
        let (graph, dim) = (&self.shared.graph, self.shared.config.dim);
        let vector = match vector {
            StoredVector::Here(vector) => vector,
            StoredVector::Filed(_) if !graph.keeps_file() => {
                return Err(format!("the vector of slot {slot} is in a file that is not here"));
            }
            StoredVector::Filed(sum) => {
                graph.adopt_vector(slot, sum)?;
                return self.commit_slots(slot as usize + 1).map_err(|error| error.to_string());
            }
        };
        if vector.len() != 4 * dim {
            return Err(format!("vector of {} components, not {dim}", vector.len() / 4));
        }
        restoring.vector.clear();
        restoring.vector.extend(vector.as_chunks().0.iter().map(|c| f32::from_le_bytes(*c)));
        if restoring.vector.iter().any(|component| !component.is_finite()) {
            return Err(format!("vector of slot {slot} has a component that is not finite"));
        }
        self.commit_slots(slot as usize + 1).map_err(|error| error.to_string())?;
        graph.write_vector(slot, &restoring.vector);
        Ok(())
    }

    /// Edges and life of a present slot, as one record has them.
    fn restore_state(
        &mut self,
        restoring: &mut Restoring,
        slot: Slot,
        dead: bool,
        levels: Levels<'_>,
    ) -> Result<(), String> {
        if dead {
            if levels.is_empty() {
                return Err(format!("slot {slot} is kept as a way-point, but has no edges"));
            }
            // When it died is not kept: before every snapshot there will be.
            self.shared.meta.bury(slot, 0);
            restoring.dead.insert(slot);
        } else if restoring.dead.contains(slot) {
            return Err(format!("slot {slot} comes back from the dead"));
        }
        if levels.is_empty() && self.was_linked(restoring, slot) {
            return Err(format!("slot {slot} leaves the graph but keeps its point"));
        }
        if self.files_cells() {
            restoring.set_levels(slot, levels)?;
        } else {
            self.restore_edges(&mut restoring.edges, slot, levels)?;
        }
        // Those of before belong to other cells, or to another vector.
        restoring.set_codes(slot, &[])
    }

    /// The edges of a slot, in place of those of an earlier image. Whether they lead to nodes shows when all images are there.
    fn restore_edges(
        &self,
        edges: &mut Vec<Vec<Slot>>,
        slot: Slot,
        levels: Levels<'_>,
    ) -> Result<(), String> {
        let graph = &self.shared.graph;
        graph.take_back(slot);
        if levels.is_empty() {
            return Ok(());
        }
        levels.read_into(edges);
        for list in edges.iter_mut() {
            let mut kept = 0;
            for at in 0..list.len() {
                let to = list[at];
                if to != slot && (to as usize) < self.slots_max && !list[..kept].contains(&to) {
                    list[kept] = to;
                    kept += 1;
                }
            }
            list.truncate(kept);
        }
        graph.restore(slot, edges)
    }

    /// Whether images have shown the slot in the graph, or filed.
    fn was_linked(&self, restoring: &Restoring, slot: Slot) -> bool {
        match self.files_cells() {
            true => restoring.levels(slot).is_some(),
            false => self.shared.graph.is_linked(slot),
        }
    }

    /// A present slot becomes empty.
    fn restore_nothing(&mut self, restoring: &mut Restoring, slot: Slot) {
        restoring.present.remove(slot);
        restoring.dead.remove(slot);
        restoring.forget(slot);
        if !self.files_cells() {
            self.shared.graph.take_back(slot);
        }
        self.free_unseen(slot);
    }

    /// Gives back the row of a slot that images have shown.
    fn free_unseen(&mut self, slot: Slot) {
        self.shared.meta.bury(slot, 0);
        // SAFETY: dead as of now; no reader has been given a slot of a collection that is being restored: ids and tail are
        // empty, and `slots` is 0.
        unsafe { self.shared.meta.free(&mut self.rows, slot) };
    }

    /// After all images: drops edges that lead nowhere, checks the entry point, rebuilds id map, payload index, ordered sets, tail and
    /// free list, sets `seq`, which is that of the last image (a later one says that the writes between left no trace).
    ///
    /// # Errors
    /// The last image has no end, is of a later `seq`, or two points have one id.
    pub fn finish_restore(&mut self, seq: u64) -> Result<(), RestoreError> {
        let mut restoring = self.restoring.take().unwrap_or_else(|| self.new_restoring());
        let finished = self.finish(&mut restoring, seq);
        if finished.is_err() {
            self.restoring = Some(restoring);
        }
        finished
    }

    fn finish(&mut self, restoring: &mut Restoring, seq: u64) -> Result<(), RestoreError> {
        let refuse = |what: String| Err(RestoreError { offset: 0, what });
        if restoring.open {
            return refuse("the image has no end".into());
        }
        let end = restoring.end.unwrap_or(EndRecord { seq: 0, slots: 0, entry: None });
        if end.seq > seq {
            return refuse(format!("the image shows seq {}, later than {seq}", end.seq));
        }
        if let Some(slot) = restoring.present.next(end.slots) {
            return refuse(format!("slot {slot} of an image of {} slots", end.slots));
        }
        self.commit_slots(end.slots as usize)
            .map_err(|error| RestoreError { offset: 0, what: error.to_string() })?;
        match self.files_cells() {
            true => self.restore_cells(restoring, &end)?,
            false => {
                self.restore_entry(restoring, &end);
                let whole = restoring.saved.is_some() && restoring.coded.contains_all(&restoring.present);
                let bare = restoring.bare.next(0);
                if let Some(slot) = bare.filter(|_| !whole) {
                    return refuse(format!("slot {slot} has neither a vector nor a code"));
                }
                if let Some(saved) = restoring.saved.take() {
                    let watch = restoring.watch;
                    self.shared.graph.adopt_codes(saved, whole, watch).or_else(refuse)?;
                    self.imaged_codes = self.shared.graph.codes_number();
                    if bare.is_some() {
                        self.restore_bare(end.slots);
                    }
                } else if !restoring.codec.is_empty() {
                    return refuse("what a quantizer has learned is damaged".into());
                }
            }
        }

        let shared = self.shared.clone();
        let mut tail = Vec::new();
        // Every version but that of a bulk build was a write with a number of its own.
        let mut versions = 0u64;
        for slot in 0..end.slots {
            // Tables grow by replacing themselves: what they leave behind would add up to as much again.
            if slot % RECLAIM_SLOTS == 0 {
                shared.ids.reclaim();
                shared.index.reclaim(usize::MAX);
                self.lanes.reclaim();
            }
            if !restoring.present.contains(slot) {
                shared.meta.bury(slot, 0);
                continue;
            }
            let (row, version) = shared.meta.owned_row_and_version(&self.rows, slot);
            let row = PayloadRow::trusted(row);
            shared.index.insert(slot, row);
            let linked = self.is_linked(slot);
            self.linked += usize::from(linked);
            if restoring.dead.contains(slot) {
                add(&shared.tombstoned, 1);
                self.dead_linked.push(slot);
                continue;
            }
            let (id, born) = (shared.meta.id(slot), shared.meta.born(slot));
            if born > end.seq {
                return refuse(format!("slot {slot} was written at {born}, after the image"));
            }
            if shared.ids.insert(id, slot).is_some() {
                return refuse(format!("id {id} has two points"));
            }
            self.lanes.insert(&shared.lanes, slot, row);
            while self.lanes.step() {}
            self.ordered_ids.insert(id);
            add(&shared.live, 1);
            versions = versions.saturating_add(version);
            let deadlines = KeyDeadlines::of(row);
            self.watch_keys(id, deadlines);
            match shared.meta.deadline_ms(slot) {
                0 => shared.meta.settle(slot, born),
                deadline_ms => _ = self.deadlines.insert((deadline_ms, id)),
            }
            if !linked {
                tail.push((born, slot));
            }
        }
        tail.sort_unstable();
        for (_, slot) in tail {
            self.requeue(slot);
        }
        self.free = (0..end.slots).rev().filter(|&slot| !restoring.present.contains(slot)).collect();
        // What was found out here is no image's yet; the next one has it, so that it is not found out again from other versions.
        let is_inferred = restoring.gone.is_none();
        self.gone = restoring.gone.take().unwrap_or_else(|| {
            // Images of before this was kept. No version exceeds the number of writes by more than the one that a bulk build gives,
            // and unless all writes are accounted for by what is there, something may be gone.
            let mut unknown = Gone::default();
            unknown.raise_floor(if versions == seq { 0 } else { seq.saturating_add(1) });
            unknown
        });
        self.gone.changed = is_inferred;
        // What was just loaded is what the images hold.
        self.collect_edge_changes();
        self.dirty = Dirty::default();
        shared.slots.store(end.slots.into(), Ordering::Release);
        self.seq = seq;
        shared.published_seq.store(seq, Ordering::Release);
        self.note_bytes();
        Ok(())
    }

    /// Drops edges that lead nowhere and sets the entry point.
    fn restore_entry(&mut self, restoring: &Restoring, end: &EndRecord) {
        let graph = &self.shared.graph;
        graph.end_restore(end.slots);
        let height = |slot: Slot| match slot < end.slots && graph.is_linked(slot) {
            true => usize::from(graph.level(slot)) + 1,
            false => 0,
        };
        match end.entry {
            Some((slot, level)) if height(slot) > usize::from(level) => graph.set_entry(end.entry),
            // An image of ours names a linked slot. Of another's, any entry serves that leads somewhere.
            _ => {
                graph.set_entry(None);
                graph.fix_entry(&mut (0..end.slots).filter(|&slot| graph.is_linked(slot)), &|slot| {
                    restoring.dead.contains(slot)
                });
            }
        }
    }
}

impl DenseWriter {
    /// Makes the last clustering, if there was one, and files in it what was filed. A slot whose cells it does not have goes back to
    /// the tail.
    fn restore_cells(&mut self, restoring: &mut Restoring, end: &EndRecord) -> Result<(), RestoreError> {
        let shared = self.shared.clone();
        let refuse = |what: String| RestoreError { offset: 0, what };
        shared.graph.set_entry(None);
        let mut count = 0;
        if let Some((record, rows)) = &restoring.cells {
            count = record.cells;
            if rows.len() != count as usize * shared.config.dim || count == 0 {
                return Err(refuse(format!("{} floats of {count} centroids", rows.len())));
            }
            let (metric, dim) = (shared.config.metric, shared.config.dim);
            let spills = shared.config.ivf().and_then(IvfConfig::spills);
            let product = shared.config.ivf().and_then(|ivf| ivf.product);
            let codec = match product {
                Some(product) => Some(
                    CellCodec::load(product.code, dim, &restoring.codec)
                        .ok_or_else(|| refuse("what a quantizer has learned is damaged".into()))?,
                ),
                None => None,
            };
            let cells = Cells::new(metric, dim, rows, spills, codec, record.trained_on);
            let watch = restoring.watch.unwrap_or_else(|| Watch::unknown(record.trained_on));
            self.begin_refiling(cells.map_err(|error| refuse(error.to_string()))?, watch);
        }
        let Some(filing) = &mut self.filing else { return Ok(()) };
        if let Some((next, (record, _))) = filing.next.take().zip(restoring.cells.as_ref()) {
            next.cells.cells().set_trained(record.trained_on, record.mean);
            (filing.current, filing.watch) = (Some(next.cells), next.watch);
        }
        let mut lists = Vec::new();
        for slot in 0..end.slots {
            let Some(levels) = restoring.levels(slot) else { continue };
            levels.read_into(&mut lists);
            let place = match (count, &lists[0][..]) {
                (0, []) => {
                    filing.restore(slot, None, &[]);
                    continue;
                }
                (1.., &[cell]) if cell < count => (cell, None),
                (1.., &[cell, second]) if cell < count && second < count && cell != second => {
                    (cell, Some(second))
                }
                _ => continue,
            };
            let cells = filing.current.as_ref().expect("there is a clustering").cells();
            let codes = restoring.codes(slot);
            let bare = restoring.bare.contains(slot);
            let vector = || &shared.graph.vector(slot)[..shared.config.dim];
            let codes = match cells.are_codes(codes, place.1.is_some()) {
                true => Cow::Borrowed(codes),
                false if bare => continue,
                false => Cow::Owned(cells.encode(vector(), place.0, place.1)),
            };
            if shared.config.drops_vectors() && !bare {
                filing.unproven.insert(slot);
            }
            filing.restore(slot, Some(place), &codes);
            restoring.bare.remove(slot);
        }
        let cells = filing.current.as_mut().map(|current| {
            current.seal();
            current.cells().clone()
        });
        if let Some(slot) = restoring.bare.next(0).filter(|&slot| restoring.present.contains(slot)) {
            return Err(refuse(format!("slot {slot} has neither a vector nor a code")));
        }
        if let Some(cells) = cells {
            self.show_cells(cells);
        }
        Ok(())
    }
}

impl Drop for DenseWriter {
    /// A restore that did not finish leaves rows that the readable side does not know of.
    fn drop(&mut self) {
        let Some(restoring) = self.restoring.take() else { return };
        let mut next = restoring.present.next(0);
        while let Some(slot) = next {
            self.free_unseen(slot);
            next = restoring.present.next(slot + 1);
        }
    }
}
