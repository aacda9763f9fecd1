//! Vectors, places in the index and what was learned, as images bring them back.
//!
//! Nothing is trusted: lengths, edges, codes and the entry point are checked.
use super::index::IndexWriter;
use super::{Cow, Slot, SlotSet, SpaceWriter, Watch};
use crate::collection::IvfConfig;
use crate::index::{Cells, SavedCodes};
use crate::memory::{Spill, Spilled};
use crate::quantizer::CellCodec;
use crate::record::image::{CellsRecord, Levels, Record, StoredVector};

/// What is known while images come in.
pub(crate) struct RestoringSpace {
    /// Slots with a vector.
    held: SlotSet,
    /// Where walks enter, by the last whole image.
    entry: Option<(Slot, u8)>,
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

/// Bytes of a quantizer at most: the centroids of very long vectors in many layers.
const CODEC_MAX: usize = 1 << 31;

impl RestoringSpace {
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

impl SpaceWriter {
    /// Nothing has come in yet.
    pub(crate) fn begin_restore(&self) -> RestoringSpace {
        RestoringSpace {
            held: SlotSet::default(),
            entry: None,
            lists: Spill::new(self.shared.graph.scratch().clone()),
            lists_at: Vec::new(),
            encoded: Vec::new(),
            edges: Vec::new(),
            vector: Vec::new(),
            cells: None,
            codec: Vec::new(),
            saved: None,
            coded: SlotSet::default(),
            codes_at: Vec::new(),
            bare: SlotSet::default(),
            watch: None,
        }
    }

    /// A record of what was learned, or of a code.
    ///
    /// # Errors
    /// One that does not fit.
    pub(crate) fn restore_learned(
        &mut self,
        restoring: &mut RestoringSpace,
        record: Record<'_>,
    ) -> Result<(), String> {
        match (record, self.files_cells()) {
            (Record::Cells(cells), true) => {
                // A record of 0 cells says that the cells of earlier images are forgotten.
                restoring.cells = (cells.cells > 0).then(|| (cells, Vec::new()));
                restoring.codec.clear();
                restoring.watch = None;
                Ok(())
            }
            (Record::Centroid(cell, centroid), true) => {
                restoring.centroid(cell, centroid, self.shared.config.dim)
            }
            (Record::Cells(_) | Record::Centroid(..), false) => Err("cells in the image of a graph".into()),
            (Record::Codec(0, ..), _) => {
                restoring.codec.clear();
                (restoring.saved, restoring.coded, restoring.watch) = (None, SlotSet::default(), None);
                Ok(())
            }
            (Record::Codec(total, at, piece), files_cells) => {
                if restoring.piece(total, at, piece)? && !files_cells {
                    let saved = self.shared.graph.load_codec(&restoring.codec)?;
                    // One that comes again has its codes already.
                    if restoring.saved.as_ref().is_none_or(|before| !before.is_same(&saved)) {
                        restoring.saved = Some(saved);
                        (restoring.coded, restoring.watch) = (SlotSet::default(), None);
                    }
                }
                Ok(())
            }
            (Record::Code(slot, codes), true) => {
                if !restoring.held.contains(slot) {
                    return Err(format!("codes of slot {slot}, which no image holds"));
                }
                restoring.set_codes(slot, codes)
            }
            (Record::Code(slot, codes), false) => {
                if !restoring.held.contains(slot) {
                    return Err(format!("a code of slot {slot}, which no image holds"));
                }
                let Some(saved) = &mut restoring.saved else { return Ok(()) };
                let (&number, code) = codes.split_first().ok_or("a code of no quantizer")?;
                if saved.set(slot, number, code)? {
                    restoring.coded.insert(slot);
                }
                Ok(())
            }
            (Record::Watch(watch), _) => {
                restoring.watch = Some(watch);
                Ok(())
            }
            _ => Err("a record of points where one of vectors belongs".into()),
        }
    }

    /// The vector of a slot that holds a point from now on.
    ///
    /// # Errors
    /// One that does not fit.
    pub(crate) fn restore_vector(
        &self,
        restoring: &mut RestoringSpace,
        slot: Slot,
        vector: StoredVector<'_>,
    ) -> Result<(), String> {
        restoring.coded.remove(slot);
        restoring.held.insert(slot);
        let (graph, dim) = (&self.shared.graph, self.shared.config.dim);
        let commit = || self.commit(slot as usize + 1).map_err(|error| error.to_string());
        restoring.bare.remove(slot);
        let vector = match vector {
            StoredVector::Here([]) if self.shared.config.drops_vectors() => {
                commit()?;
                restoring.bare.insert(slot);
                if !self.files_cells() {
                    graph.adopt_bare(slot);
                }
                return Ok(());
            }
            StoredVector::Here(vector) => vector,
            StoredVector::Filed(_) if !graph.keeps_file() => {
                return Err(format!("the vector of slot {slot} is in a file that is not here"));
            }
            StoredVector::Filed(sum) => {
                graph.adopt_vector(slot, sum)?;
                return commit();
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
        commit()?;
        graph.write_vector(slot, &restoring.vector);
        Ok(())
    }

    /// Whether images have shown a vector of the point in a slot.
    pub(crate) fn is_restored(&self, restoring: &RestoringSpace, slot: Slot) -> bool {
        restoring.held.contains(slot)
    }

    /// The point in a slot of [`Self::restore_vector`] is there.
    pub(crate) fn note_birth(&self, slot: Slot) {
        self.shared.births.note(slot);
    }

    /// The place of a present slot in the index, as one record has it.
    ///
    /// # Errors
    /// One that does not fit.
    pub(crate) fn restore_place(
        &mut self,
        restoring: &mut RestoringSpace,
        slot: Slot,
        levels: Levels<'_>,
    ) -> Result<(), String> {
        if levels.is_empty() && self.was_linked(restoring, slot) {
            return Err(format!("slot {slot} leaves the graph but keeps its point"));
        }
        match &self.index {
            IndexWriter::Graph(_) => self.restore_edges(&mut restoring.edges, slot, levels)?,
            IndexWriter::Cells(_) => restoring.set_levels(slot, levels)?,
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
        graph.restore_followable(slot, edges)
    }

    /// Whether images have shown the slot in the graph, or filed.
    pub(crate) fn was_linked(&self, restoring: &RestoringSpace, slot: Slot) -> bool {
        match &self.index {
            IndexWriter::Graph(_) => self.shared.graph.is_linked(slot),
            IndexWriter::Cells(_) => restoring.levels(slot).is_some(),
        }
    }

    /// A present slot becomes empty.
    pub(crate) fn restore_nothing(&self, restoring: &mut RestoringSpace, slot: Slot) {
        restoring.held.remove(slot);
        restoring.forget(slot);
        if !self.files_cells() {
            self.shared.graph.take_back(slot);
        }
    }

    /// Where walks enter, as an image has it.
    pub(crate) fn restore_entry(&self, restoring: &mut RestoringSpace, entry: Option<(Slot, u8)>) {
        restoring.entry = entry;
    }

    /// After all images: makes the index of what they have shown of so many `slots`. `dead` are those of them that are way-points.
    ///
    /// # Errors
    /// What is damaged, or does not fit together.
    pub(crate) fn finish_restore(
        &mut self,
        restoring: &mut RestoringSpace,
        dead: &SlotSet,
        slots: u32,
    ) -> Result<(), String> {
        match &self.index {
            IndexWriter::Graph(_) => self.restore_graph(restoring, dead, slots),
            IndexWriter::Cells(_) => self.restore_cells(restoring, dead, slots),
        }
    }

    fn restore_graph(
        &mut self,
        restoring: &mut RestoringSpace,
        dead: &SlotSet,
        slots: u32,
    ) -> Result<(), String> {
        self.enter_graph(restoring.entry, dead, slots);
        let whole = restoring.saved.is_some() && restoring.coded.contains_all(&restoring.held);
        let bare = restoring.bare.next(0);
        if let Some(slot) = bare.filter(|_| !whole) {
            return Err(format!("slot {slot} has neither a vector nor a code"));
        }
        if let Some(saved) = restoring.saved.take() {
            self.shared.graph.adopt_codes(saved, whole, restoring.watch)?;
            self.imaged_codes = self.shared.graph.codes_number();
            if bare.is_some() {
                self.restore_bare(slots);
            }
        } else if !restoring.codec.is_empty() {
            return Err("what a quantizer has learned is damaged".into());
        }
        Ok(())
    }

    /// Drops edges that lead nowhere and sets the entry point.
    fn enter_graph(&self, entry: Option<(Slot, u8)>, dead: &SlotSet, slots: u32) {
        let graph = &self.shared.graph;
        graph.end_restore(slots);
        let height = |slot: Slot| match slot < slots && graph.is_linked(slot) {
            true => usize::from(graph.level(slot)) + 1,
            false => 0,
        };
        match entry {
            Some((slot, level)) if height(slot) > usize::from(level) => graph.set_entry(entry),
            // An image of ours names a linked slot. Of another's, any entry serves that leads somewhere.
            _ => {
                graph.set_entry(None);
                graph.fix_entry(&mut (0..slots).filter(|&slot| graph.is_linked(slot)), &|slot| {
                    dead.contains(slot)
                });
            }
        }
    }

    /// Makes the last clustering, if there was one, and files in it what was filed. A slot whose cells it does not have goes back to
    /// the tail. `dead` ones are there for the graphs of other spaces alone: images say nothing more of their cells, which may not be
    /// there any more.
    fn restore_cells(
        &mut self,
        restoring: &mut RestoringSpace,
        dead: &SlotSet,
        slots: u32,
    ) -> Result<(), String> {
        let shared = self.shared.clone();
        shared.graph.set_entry(None);
        let mut count = 0;
        if let Some((record, rows)) = &restoring.cells {
            count = record.cells;
            if rows.len() != count as usize * shared.config.dim || count == 0 {
                return Err(format!("{} floats of {count} centroids", rows.len()));
            }
            let (metric, dim) = (shared.config.metric, shared.config.dim);
            let spills = shared.config.ivf().and_then(IvfConfig::spills);
            let product = shared.config.ivf().and_then(|ivf| ivf.product);
            let codec = match product {
                Some(product) => Some(
                    CellCodec::load(product.code, dim, &restoring.codec)
                        .ok_or("what a quantizer has learned is damaged")?,
                ),
                None => None,
            };
            let cells = Cells::new(metric, dim, rows, spills, codec, record.trained_on);
            let watch = restoring.watch.unwrap_or_else(|| Watch::unknown(record.trained_on));
            self.begin_refiling(cells.map_err(|error| error.to_string())?, watch);
        }
        let Some(filing) = self.index.filing_mut() else { return Ok(()) };
        if let Some((next, (record, _))) = filing.next.take().zip(restoring.cells.as_ref()) {
            next.cells.cells().set_trained(record.trained_on, record.mean);
            (filing.current, filing.watch) = (Some(next.cells), next.watch);
        }
        let mut lists = Vec::new();
        for slot in 0..slots {
            if dead.contains(slot) {
                restoring.bare.remove(slot);
                continue;
            }
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
        if let Some(slot) = restoring.bare.next(0).filter(|&slot| restoring.held.contains(slot)) {
            return Err(format!("slot {slot} has neither a vector nor a code"));
        }
        if let Some(cells) = cells {
            self.shared.index.show(Some(cells));
        }
        Ok(())
    }

    /// End of a restore: a slot of which images have shown a vector. One that lives and is in no index waits in the tail, of one that is dead
    /// and in no index there is nothing left; whether it is in one.
    pub(crate) fn enter_restored(&mut self, slot: Slot, dead: bool) -> bool {
        let linked = self.is_linked(slot);
        self.linked += usize::from(linked);
        self.shared.holdings.set(slot, linked || !dead);
        if dead {
            self.dead_linked.extend(linked.then_some(slot));
        } else {
            self.shared.holdings.count_in();
        }
        linked
    }

    /// End of a restore: what was just loaded is what the images hold.
    pub(crate) fn forget_changes(&mut self) {
        self.take_changes();
    }
}
