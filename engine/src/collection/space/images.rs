//! What checkpoint images say of vectors, of their places in the index, and of what was learned from them.
use super::{Slot, SlotSet, SpaceWriter};
use crate::record::image::{CellsRecord, LevelsBuilder, StoredVector, put_cells, put_centroid, put_codec};

/// Bytes of what a quantizer has learned that are written in one go.
pub(crate) const CODEC_PIECE: usize = 1 << 14;

/// What changed since the last image.
#[derive(Default)]
pub(crate) struct Changes {
    /// Slots whose place in the index did.
    pub state: SlotSet,
    /// Centroids that changed: all of them, or 0.
    pub cells: usize,
    /// What the quantizer of a graph has learned.
    pub codec: bool,
}

impl Changes {
    pub fn insert_all(&mut self, other: &Changes) {
        self.state.insert_all(&other.state);
        self.cells = self.cells.max(other.cells);
        self.codec |= other.codec;
    }

    pub fn bytes(&self) -> u64 {
        self.state.bytes()
    }
}

/// An image of what was learned, as far as it is written.
#[derive(Default)]
pub(crate) struct LearnedImage {
    /// Centroids and pieces of a quantizer written, and one for what comes before them.
    cells_cursor: usize,
    /// What a quantizer has learned, while it is being written.
    codec: Vec<u8>,
    /// Pieces of it written, of the quantizer of a graph.
    codec_cursor: usize,
}

impl LearnedImage {
    /// There are other cells.
    pub fn restart_cells(&mut self) {
        self.cells_cursor = 0;
    }

    /// There is another quantizer.
    pub fn restart_codec(&mut self) {
        self.codec_cursor = 0;
    }

    fn put_piece(&self, piece: usize, out: &mut Vec<u8>) {
        let at = piece * CODEC_PIECE;
        let end = (at + CODEC_PIECE).min(self.codec.len());
        put_codec(out, self.codec.len() as u32, at as u32, &self.codec[at..end]);
    }
}

impl SpaceWriter {
    /// What changed since it was taken last.
    pub(crate) fn take_changes(&mut self) -> Changes {
        let state = &mut self.changes.state;
        self.shared.graph.take_dirty(&mut |slot| state.insert(slot));
        std::mem::take(&mut self.changes)
    }

    /// What changed and is not taken.
    pub(crate) fn changes_mut(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// Whether there is a clustering or a quantizer that no image has: a start would have to make it again.
    pub fn training_unsaved(&self) -> bool {
        self.changes.cells > 0 || self.changes.codec
    }

    /// Writes the next centroid or piece of a quantizer, or what comes before all of them; true at the end. `full`: of an image that has
    /// everything.
    pub(crate) fn put_cells(&self, image: &mut LearnedImage, full: bool, out: &mut Vec<u8>) -> bool {
        let Some(current) = self.index.filing().and_then(|filing| filing.current.as_ref()) else {
            // Forgotten since the image before.
            if !full {
                put_cells(out, &CellsRecord { cells: 0, trained_on: 0, mean: 0.0 });
            }
            image.cells_cursor = 0;
            return true;
        };
        let cells = current.cells();
        match image.cells_cursor.checked_sub(1) {
            None => {
                image.codec = cells.coded().map_or_else(Vec::new, |coded| coded.codec().save());
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
            Some(piece) => image.put_piece(piece - cells.len(), out),
        }
        image.cells_cursor += 1;
        let done = image.cells_cursor > cells.len() + image.codec.len().div_ceil(CODEC_PIECE);
        if done {
            (image.cells_cursor, image.codec) = (0, Vec::new());
        }
        done
    }

    /// Writes the next piece of what the quantizer of a graph has learned; true at the end. `full`: of an image that has everything.
    pub(crate) fn put_codec(&self, image: &mut LearnedImage, full: bool, out: &mut Vec<u8>) -> bool {
        if image.codec_cursor == 0 {
            image.codec = self.shared.graph.save_codec();
            if image.codec.is_empty() && !full && !self.files_cells() {
                // Forgotten since the image before.
                put_codec(out, 0, 0, &[]);
            }
        }
        let pieces = image.codec.len().div_ceil(CODEC_PIECE);
        if image.codec_cursor < pieces {
            image.put_piece(image.codec_cursor, out);
            image.codec_cursor += 1;
        }
        let done = image.codec_cursor == pieces;
        if done {
            (image.codec_cursor, image.codec) = (0, Vec::new());
        }
        done
    }

    /// Where walks enter.
    pub(crate) fn entry(&self) -> Option<(Slot, u8)> {
        self.shared.graph.entry()
    }

    /// Whether an image has a slot whose point is dead, as others lead through it.
    pub(crate) fn leads_through(&self, slot: Slot) -> bool {
        self.index.leads_through(&self.shared.graph, slot)
    }

    /// What an image says of the place of a slot in the index, and of the codes that it has there. Both are empty before.
    pub(crate) fn put_place(&self, slot: Slot, levels: &mut LevelsBuilder, codes: &mut Vec<u8>) {
        if self.is_linked(slot) {
            self.index.levels(&self.shared.graph, slot, levels);
            self.index.codes(slot, codes);
        }
    }

    /// The vector of a slot in an image: where it is, and its components where they are in the image. A code that goes with it is added to
    /// `codes`, which has those of its place.
    pub(crate) fn vector_of_image(&self, slot: Slot, codes: &mut Vec<u8>) -> (StoredVector<'static>, &[f32]) {
        let shared = &self.shared;
        if let Some((number, code)) = self.code_of_image(slot) {
            codes.push(number);
            codes.extend_from_slice(code);
        }
        match shared.graph.checksum(slot) {
            // Not so much as looked at: it may be on the disk only.
            Some(sum) => (StoredVector::Filed(sum), &[]),
            // Where vectors are given up the codes say it all.
            None if shared.config.drops_vectors() && !codes.is_empty() && !self.is_unproven(slot) => {
                (StoredVector::Here(&[]), &[])
            }
            None => (StoredVector::Here(&[]), &shared.graph.vector(slot)[..shared.config.dim]),
        }
    }

    /// What walks go over for a slot of a graph whose vectors are in a file, or nowhere.
    fn code_of_image(&self, slot: Slot) -> Option<(u8, &[u8])> {
        if self.images_have_codes() { self.shared.graph.saved_code(slot) } else { None }
    }

    fn images_have_codes(&self) -> bool {
        self.shared.graph.keeps_file() || self.shared.graph.is_bare()
    }

    /// The quantizer whose codes go with every point of an image that is begun now; 0 = none.
    pub(crate) fn codes_of_image(&self) -> u8 {
        if self.images_have_codes() { self.shared.graph.codes_number() } else { 0 }
    }

    /// An image of all points with these codes is durable. Others may be in use since then; theirs are not there.
    pub(crate) fn note_imaged_codes(&mut self, number: u8) {
        self.imaged_codes = number;
    }

    /// Whether images lack codes that a search after the next start would go over: the next image is to be a full one. Codes are in
    /// images where vectors are not: writing them anew would read all vectors from the disk, and searches would do so until then.
    pub fn codes_unsaved(&self) -> bool {
        let number = self.shared.graph.codes_number();
        self.images_have_codes() && number != 0 && number != self.imaged_codes
    }

    /// Bytes that a full image takes for each point, about: vector, codes, and on average about 1.5 m edges.
    pub(crate) fn image_bytes_per_point(&self) -> u64 {
        let config = &self.shared.config;
        let vector = match (self.shared.graph.keeps_file(), self.shared.graph.is_bare()) {
            (true, _) => 4,
            (_, true) => 0,
            _ => 4 * config.dim as u64,
        };
        let code = self.code_of_image(0).map_or(0, |(_, code)| code.len() as u64);
        code + vector + 6 * config.m as u64
    }

    /// Dead slots in the index.
    pub(crate) fn dead(&self) -> u64 {
        self.dead_linked.len() as u64
    }
}
