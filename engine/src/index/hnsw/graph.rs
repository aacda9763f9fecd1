//! The graph itself: vectors and their codes, edges, marks and the entry point, and what loads and saves them.
//!
//! # Invariants
//!
//! 1. Every linked slot's vector is written and immutable until the slot is freed.
//! 2. No list names its own node or a node twice; level-0 lists name at most `3m` nodes, others `m`.
//! 3. The linked slots that were not given up (see `repair`) form a tree whose edges are in the level-0 lists of both
//!    their ends (see `tree`), so level 0 leads from every node to every other.
//! 4. The entry point is linked, on at least the level it is entered with.
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::codes::{Codes, Fit};
use super::links::{LEVEL_MAX, Links, UpperRuns};
use super::quantized::QuantizedRows;
use super::training::Training;
use super::{GraphConfig, Scratch};
use crate::distance::{Kernel, padded};
use crate::memory::{Arena, ArenaError, Owned, OwnerGuard, ScratchFiles, Storage};
use crate::random::{hash, mix};
use crate::slot::Slot;

/// CRC-32C of a row as it lies in memory.
fn checksum(row: &[f32]) -> u32 {
    // SAFETY: floats have no padding, and any byte may be read as a byte.
    let bytes = unsafe { std::slice::from_raw_parts(row.as_ptr().cast::<u8>(), size_of_val(row)) };
    crc32c::crc32c(bytes)
}

/// Codes written in one step of vectors in a file, and how many vectors the kernel fetches ahead.
pub(super) const FILE_ROWS_AT_ONCE: usize = 64;
const FILE_ROWS_AHEAD: usize = 16 * FILE_ROWS_AT_ONCE;

/// Marks of a slot: flags above, the [`Shape`] of its level-0 list below.
pub(super) const LINKED: u32 = 1 << 31;
const DIRTY: u32 = 1 << 30;
/// The slot is dead and no longer in the tree.
const GIVEN_UP: u32 = 1 << 29;
const SHAPE_BITS: u32 = 9;
const SHAPE: u32 = (1 << SHAPE_BITS) - 1;

/// How a level-0 list is laid out: the edges that the heuristic kept, nearest first; the refill, nearest first; then
/// edges that only the tree holds. Lets the next overflow look at the new edge instead of all pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shape {
    /// Edges kept; 0 when the layout is unknown (the list was never over its cap, or was restored).
    pub(super) kept: usize,
    /// Edges at the end held by the tree only.
    pub(super) tail: usize,
}

/// Vectors and edges. Shared by reference between cores; methods marked "owner" are for the single writer, which is
/// checked: two of them at once panic.
pub struct Graph {
    pub(super) config: GraphConfig,
    pub(super) kernel: Kernel,
    pub(super) vectors: Arena<f32>,
    /// The checksum of each vector when it was written. It shows whether a file still holds the vector, and whether two vectors are equal
    /// without reading either. It is 0 for a slot that was restored without its vector.
    sums: Arena<AtomicU32>,
    /// Where memory comes from that is made anew with each start.
    scratch: ScratchFiles,
    /// Rows that the file had when it was opened.
    rows_found: usize,
    /// Some of them are not in memory: searches say in advance which they will look at.
    cold: AtomicBool,
    /// Vectors are given up: there are codes only.
    bare: AtomicBool,
    /// Candidates per result that are scored exactly at least. It begins with what is configured.
    pub(super) rescore_factor: AtomicUsize,
    /// What is walked instead of the vectors; `None` when codes are not wanted.
    pub(super) codes: Option<Codes>,
    /// What is walked instead of either; `None` without a quantizer.
    pub(super) quantized: Option<QuantizedRows>,
    pub(super) links: Links,
    marks: Arena<AtomicU32>,
    /// Per slot: its parent in the tree + 1, 0 when it has none.
    parents: Arena<AtomicU32>,
    /// `(slot + 1) << 8 | level`, 0 when there is none.
    entry: AtomicU64,
    /// One past the highest slot ever written.
    slots_end: AtomicU32,
    owner: Owned<Owner>,
}

/// What only the owner uses.
pub(super) struct Owner {
    pub(super) runs: UpperRuns,
    dirty: Vec<Slot>,
    /// Top of the tree.
    pub(super) root: Option<Slot>,
    /// How well the codes fit.
    fit: Fit,
    /// Where the quantizer stands.
    pub(super) training: Training,
    /// Slots that lost their parent, or never had one, and wait for one.
    pub(super) orphans: Vec<Slot>,
    /// Restored slots are not in the tree yet.
    pub(super) tree_stale: bool,
    /// The list about to be stored, and the one it replaces.
    pub(super) new: Vec<Slot>,
    pub(super) old: Vec<Slot>,
    pub(super) scratch: Scratch,
}

impl Graph {
    /// Reserves arenas: address space for `capacity` slots, memory only as slots are written. Room is made for all slots ([`Self::make_room`]).
    ///
    /// # Errors
    /// When address space runs out.
    ///
    /// # Panics
    /// When a field of the configuration is out of its documented range.
    pub fn new(config: GraphConfig) -> Result<Self, ArenaError> {
        let capacity = config.capacity;
        let graph = Graph::create(config, None)?;
        graph.make_room(capacity, true).expect("anonymous pages are there");
        Ok(graph)
    }

    /// As [`Self::new`]; with `storage` vectors are those of its file, and codes and lists of level 0 lie in files too. Slots must
    /// then be made room for before they are written or restored.
    ///
    /// # Errors
    /// As [`Self::new`], and when a file cannot be made.
    ///
    /// # Panics
    /// As [`Self::new`].
    pub fn create(config: GraphConfig, storage: Option<Storage>) -> Result<Self, ArenaError> {
        config.check();
        let capacity = config.capacity;
        let (file, scratch) = match storage {
            Some(Storage { vectors, scratch }) => (Some(vectors), scratch),
            None => (None, ScratchFiles::default()),
        };
        let links = Links::reserve(&config, &scratch)?;
        let vectors = match file {
            Some(file) => Arena::reserve_in(file, capacity, padded(config.dim))?,
            None => Arena::reserve_to_grow(capacity, padded(config.dim))?,
        };
        Ok(Graph {
            kernel: Kernel::of(config.metric),
            sums: Arena::reserve_to_grow(capacity, 1)?,
            rows_found: vectors.committed(),
            cold: AtomicBool::new(false),
            bare: AtomicBool::new(false),
            rescore_factor: AtomicUsize::new(config.rescore_factor),
            vectors,
            codes: Codes::reserve(&config, &scratch)?,
            quantized: QuantizedRows::new(&config, scratch.clone()),
            marks: Arena::reserve_to_grow(capacity, 1)?,
            parents: Arena::reserve_to_grow(capacity, 1)?,
            entry: AtomicU64::new(0),
            slots_end: AtomicU32::new(0),
            owner: Owned::new(Owner {
                runs: UpperRuns::new(links.upper_capacity()),
                dirty: Vec::new(),
                root: None,
                fit: Fit::default(),
                training: Training::default(),
                orphans: Vec::new(),
                tree_stale: false,
                new: Vec::new(),
                old: Vec::new(),
                scratch: Scratch::new(),
            }),
            links,
            config,
            scratch,
        })
    }

    /// Its configuration.
    pub fn config(&self) -> &GraphConfig {
        &self.config
    }

    /// The kernel of its metric.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Where memory comes from that is made anew with each start.
    pub(crate) fn scratch(&self) -> &ScratchFiles {
        &self.scratch
    }

    /// The vector arena (padded rows).
    pub fn vectors(&self) -> &Arena<f32> {
        &self.vectors
    }

    /// Padded row of a written slot. Panics when out of range.
    #[inline]
    pub fn vector(&self, slot: Slot) -> &[f32] {
        self.vectors.row(slot as usize)
    }

    /// Gives the memory of the vectors of slots `from..to` back, but for pages that others share.
    ///
    /// # Safety
    /// Nobody reads these vectors before they are written again.
    ///
    /// # Panics
    /// When the range is not one of slots.
    pub unsafe fn release_vectors(&self, from: Slot, to: Slot) {
        // SAFETY: the caller's duty.
        let _taken = unsafe { self.vectors.forget(from as usize, to as usize) };
        // A kernel that refuses keeps the memory, and nothing else changes.
    }

    /// Bytes of a vector as it lies there.
    pub fn vector_row_bytes(&self) -> usize {
        self.vectors.row_len() * size_of::<f32>()
    }

    /// Level a node with `key` (the point id) draws: `floor(-ln(u) / ln(m))` with `u` a hash of seed and key, so
    /// `P(level >= l) = m^-l`. Integer arithmetic: the same on every machine.
    pub fn level_of(&self, key: u64) -> u8 {
        let hash = mix(hash(self.config.seed) ^ key);
        let mut threshold = u64::MAX / self.config.m as u64;
        let mut level = 0;
        while hash < threshold && level < LEVEL_MAX {
            level += 1;
            threshold /= self.config.m as u64;
        }
        level
    }

    /// Owner: writes the (already prepared, padded or unpadded) vector of a fresh slot; readers cannot reach it yet.
    ///
    /// # Panics
    /// When the slot is linked or out of range, or the vector is longer than a row.
    pub fn write_vector(&self, slot: Slot, prepared: &[f32]) {
        let mut owner = self.owner.enter();
        assert!(!self.is_linked(slot), "slot {slot} is in use");
        // SAFETY: the slot is not linked, so no list names it, no reader follows an edge to it and nobody asks for its vector; freed slots
        // are given back after quiescence only (contract of `free`). The guard keeps other writers out.
        let row = unsafe { self.vectors.row_mut_unchecked(slot as usize) };
        row[..prepared.len()].copy_from_slice(prepared);
        row[prepared.len()..].fill(0.0);
        self.sums.cells(slot as usize)[0].store(checksum(row), Relaxed);
        if let Some(codes) = &self.codes {
            codes.write(&mut owner.fit, slot, row);
        }
        if let Some(quantized) = &self.quantized {
            quantized.write(&mut owner.training, slot, row);
        }
        self.slots_end.fetch_max(slot + 1, Relaxed);
    }

    /// Owner: a slot whose vector the file has had since an earlier run: what [`Self::write_vector`] does beside writing it. `sum`
    /// is what [`Self::checksum`] said of it then.
    ///
    /// # Errors
    /// A sentence that says so when the file ends before it.
    ///
    /// # Panics
    /// When vectors do not lie in a file, or the slot is linked or out of range.
    pub fn adopt_vector(&self, slot: Slot, sum: u32) -> Result<(), String> {
        assert!(self.keeps_file(), "vectors do not lie in a file");
        assert!(!self.is_linked(slot), "slot {slot} is in use");
        if slot as usize >= self.rows_found {
            return Err(format!("the file of vectors ends before that of slot {slot}"));
        }
        self.sums.cells(slot as usize)[0].store(sum, Relaxed);
        self.slots_end.fetch_max(slot + 1, Relaxed);
        Ok(())
    }

    /// Owner: a slot that is restored with a code and no vector.
    ///
    /// # Panics
    /// When the slot is linked or out of range.
    pub fn adopt_bare(&self, slot: Slot) {
        assert!(!self.is_linked(slot), "slot {slot} is in use");
        self.sums.cells(slot as usize)[0].store(0, Relaxed);
        self.slots_end.fetch_max(slot + 1, Relaxed);
    }

    /// Whether vectors are given up ([`Self::give_up_vectors`]).
    #[inline]
    pub fn is_bare(&self) -> bool {
        // Acquire: the codes that stand for them are seen.
        self.bare.load(std::sync::atomic::Ordering::Acquire)
    }

    pub(super) fn set_bare(&self, bare: bool) {
        self.bare.store(bare, std::sync::atomic::Ordering::Release);
    }

    /// Whether vectors lie in a file.
    pub fn keeps_file(&self) -> bool {
        self.vectors.is_file()
    }

    /// CRC-32C of a written slot's row as it was written; `None` where vectors do not lie in a file.
    pub fn checksum(&self, slot: Slot) -> Option<u32> {
        self.keeps_file().then(|| self.fingerprint(slot))
    }

    /// A number that is the same for equal vectors and almost always differs for different ones. It is 0 for a slot that was restored without
    /// its vector.
    #[inline]
    pub(super) fn fingerprint(&self, slot: Slot) -> u32 {
        self.sums.cells(slot as usize)[0].load(Relaxed)
    }

    /// Whether the vectors of two written slots are known to be equal.
    pub(super) fn is_copy(&self, a: Slot, b: Slot) -> bool {
        let fingerprint = self.fingerprint(a);
        fingerprint != 0 && fingerprint == self.fingerprint(b)
    }

    /// Whether the row of a written slot is what was written there; true where vectors do not lie in a file. Reads the row, from the
    /// disk if need be.
    pub fn is_sound(&self, slot: Slot) -> bool {
        self.checksum(slot).is_none_or(|sum| checksum(self.vector(slot)) == sum)
    }

    /// Looks whether vectors have left memory, so that searches have them fetched in advance; nothing to do where they lie in no file. Call now and then;
    /// some 100 µs.
    pub fn note_residency(&self) {
        if self.keeps_file() {
            self.cold.store(self.vectors.is_cold(self.slots_end()), Relaxed);
        }
    }

    /// Has the kernel fetch vectors that are about to be looked at, all at once, where they may have left memory.
    #[inline]
    pub(crate) fn fetch(&self, slots: impl Iterator<Item = Slot>) {
        if self.cold.load(Relaxed) {
            slots.for_each(|slot| self.vectors.will_need(slot as usize, slot as usize + 1));
        }
    }

    /// Owner: makes sure that the first `slots` slots can be written (and `linked`).
    ///
    /// # Errors
    /// The file system's, above all that it is full; slots committed before stay usable.
    pub fn make_room(&self, slots: usize, linked: bool) -> std::io::Result<()> {
        self.vectors.commit(slots)?;
        self.sums.commit(slots)?;
        self.codes.iter().try_for_each(|codes| codes.commit(slots))?;
        if let Some(quantized) = &self.quantized {
            quantized.commit(&self.owner_for_codes().training, slots)?;
        }
        if !linked {
            return Ok(());
        }
        self.marks.commit(slots)?;
        self.parents.commit(slots)?;
        self.links.commit(slots)
    }

    /// Whether the slot is linked (committed and not freed).
    pub fn is_linked(&self, slot: Slot) -> bool {
        self.mark(slot) & LINKED != 0
    }

    /// Edges of a slot on every level, level 0 first, for checkpoints: calls `f(level, edges)`; not at all when the
    /// slot is not linked. The first on level 0 is its parent in the tree, which [`Self::restore`] makes use of.
    pub fn edges(&self, slot: Slot, f: &mut dyn FnMut(u8, &[Slot])) {
        if !self.is_linked(slot) {
            return;
        }
        let mut edges = Vec::with_capacity(self.config.degree_max(0));
        for level in 0..=self.links.level(slot) {
            self.links.read(slot, level, &mut edges);
            if let (0, Some(parent)) = (level, self.parent(slot)) {
                let at = edges.iter().position(|&edge| edge == parent);
                at.into_iter().for_each(|at| edges[..=at].rotate_right(1));
            }
            f(level, &edges);
        }
    }

    /// Entry point and its level.
    pub fn entry(&self) -> Option<(Slot, u8)> {
        match self.entry.load(std::sync::atomic::Ordering::Acquire) {
            0 => None,
            word => Some(((word >> 8) as Slot - 1, word as u8)),
        }
    }

    /// Owner: sets the entry point, after all slots of a checkpoint are restored. Builds the tree over them and, where vectors do not
    /// lie in a file, writes their codes: about a microsecond per slot.
    ///
    /// # Panics
    /// When the slot is out of range.
    pub fn set_entry(&self, entry: Option<(Slot, u8)>) {
        if let Some((slot, _)) = entry {
            assert!((slot as usize) < self.config.capacity, "entry {slot} of {}", self.config.capacity);
        }
        let mut owner = self.owner.enter();
        self.store_entry(entry);
        if !self.keeps_file() {
            self.refit_codes(&mut owner, usize::MAX);
        }
        self.refresh_tree(&mut owner);
    }

    /// Owner: before a round: decides whether walks and plans go over codes from now on. Some milliseconds when the first
    /// thousand vectors are there and each time they are twice as many, and for each few thousand codes that are written at the
    /// start; nothing otherwise.
    pub fn begin_round(&self) {
        let most = match self.keeps_file() {
            true => FILE_ROWS_AT_ONCE,
            false => self.codes.as_ref().map_or(0, Codes::at_once),
        };
        self.refit_codes(&mut self.owner.enter(), most);
        self.quantized.iter().for_each(QuantizedRows::begin_round);
    }

    fn refit_codes(&self, owner: &mut Owner, most: usize) {
        if let Some(codes) = &self.codes {
            codes.refit(&mut owner.fit, &|slot| self.vector(slot), self.slots_end(), most);
        }
    }

    /// Owner, between two rounds: writes some of the codes that vectors of a file lack since it was opened, and has the kernel fetch
    /// the next vectors meanwhile; true while there are more. Some 50 µs, but for the first call after opening (see
    /// [`Self::begin_round`]).
    pub fn encode_step(&self) -> bool {
        let Some(codes) = self.codes.as_ref().filter(|_| self.keeps_file()) else { return false };
        let mut owner = self.owner.enter();
        if codes.missing(&owner.fit, self.slots_end()).is_none() {
            return false;
        }
        self.refit_codes(&mut owner, FILE_ROWS_AT_ONCE);
        let Some(missing) = codes.missing(&owner.fit, self.slots_end()) else { return false };
        self.vectors.will_need(missing.start, missing.end.min(missing.start + FILE_ROWS_AHEAD));
        true
    }

    /// The step of the codes that walks go over; `None` when they go over the vectors.
    pub fn code_step(&self) -> Option<f32> {
        self.codes.as_ref().and_then(Codes::step)
    }

    pub(super) fn store_entry(&self, entry: Option<(Slot, u8)>) {
        let word = entry.map_or(0, |(slot, level)| (u64::from(slot) + 1) << 8 | u64::from(level));
        // Release: a reader that enters here sees the node's vector and lists.
        self.entry.store(word, std::sync::atomic::Ordering::Release);
    }

    /// Owner: called with each slot whose edges changed since the last call, then forgets them (dirty tracking for
    /// checkpoints). A slot freed in between is still named; [`Self::edges`] then has nothing for it.
    pub fn take_dirty(&self, f: &mut dyn FnMut(Slot)) {
        let dirty = std::mem::take(&mut self.owner.enter().dirty);
        for slot in dirty {
            self.set_mark(slot, self.mark(slot) & !DIRTY);
            f(slot);
        }
    }

    /// Any thread: gives slots `from..to` their memory before they are written (see [`Arena::populate`]): vectors, int8 codes
    /// while they are in use, and where there are to be edges these and their marks. Some 100 µs for each 2 MiB, or milliseconds.
    ///
    /// # Panics
    /// When the range goes beyond the capacity.
    pub fn populate(&self, from: usize, to: usize, has_edges: bool) {
        self.vectors.populate(from, to);
        self.sums.populate(from, to);
        if let Some(codes) = self.codes_in_use() {
            codes.populate(from, to);
        }
        if has_edges {
            self.links.populate(from, to);
            self.marks.populate(from, to);
            self.parents.populate(from, to);
        }
    }

    /// Bytes that [`Self::populate`] takes for a slot at most.
    pub fn bytes_per_slot(&self) -> usize {
        let vector = if self.vectors.is_file() { 0 } else { self.vectors.row_len() * size_of::<f32>() };
        vector
            + 3 * size_of::<AtomicU32>()
            + self.codes_in_use().map_or(0, Codes::bytes_per_slot)
            + self.links.bytes(1, 0)
            - self.links.file_bytes(1)
    }

    fn codes_in_use(&self) -> Option<&Codes> {
        self.codes.as_ref().filter(|codes| codes.step().is_some())
    }

    /// Committed bytes of arenas in use: rows up to the highest slot ever written. Those of files are not among them.
    pub fn bytes(&self) -> usize {
        let slots = self.slots_end();
        let all = self.vector_bytes()
            + slots * 2 * size_of::<AtomicU32>()
            + self.quantized_bytes()
            + self.links.bytes(slots, self.owner.enter().runs.used());
        all - self.quantized.as_ref().map_or(0, QuantizedRows::file_bytes) - self.links.file_bytes(slots)
    }

    /// Bytes of the vectors with their checksums, and of the codes.
    pub fn vector_bytes(&self) -> usize {
        let sums = self.slots_end() * size_of::<AtomicU32>();
        if self.keeps_file() {
            return sums;
        }
        // What was released is for the owner to subtract.
        sums + self.slots_end() * self.vectors.row_len() * size_of::<f32>() + self.code_bytes()
    }

    /// Bytes of rows that lie in files: of vectors, and of codes and lists, which are made anew with each start. (Lists are there
    /// where slots are `linked`.)
    pub fn file_bytes(&self, linked: bool) -> (usize, usize) {
        if !self.keeps_file() {
            return (0, 0);
        }
        let slots = self.slots_end();
        let quantized = self.quantized.as_ref().map_or(0, QuantizedRows::file_bytes);
        let links = if linked { self.links.file_bytes(slots) } else { 0 };
        (slots * self.vectors.row_len() * size_of::<f32>(), self.code_bytes() + quantized + links)
    }

    /// Of the vectors' file, bytes that are in memory now; see [`Arena::resident_bytes`] for what it costs.
    pub fn resident_vector_bytes(&self) -> usize {
        if self.keeps_file() { self.vectors.resident_bytes(self.slots_end()) } else { 0 }
    }

    /// Of codes of either kind, bytes that do not lie in files.
    pub fn memory_code_bytes(&self) -> usize {
        let quantized =
            self.quantized.as_ref().map_or(0, |quantized| quantized.bytes() - quantized.file_bytes());
        quantized + if self.keeps_file() { 0 } else { self.code_bytes() }
    }

    /// Bytes of the code of a slot, for walks over codes; 0 if there are none.
    pub(super) fn code_bytes_per_slot(&self) -> usize {
        self.codes_in_use().map_or(0, Codes::bytes_per_slot)
    }

    /// Bytes of the codes of all slots, for walks over codes.
    pub fn code_bytes(&self) -> usize {
        self.codes.as_ref().map_or(0, Codes::bytes)
    }

    /// One past the highest slot ever written.
    #[inline]
    pub(super) fn slots_end(&self) -> usize {
        self.slots_end.load(Relaxed) as usize
    }

    /// The owner's state, for what does not concern the tree.
    pub(super) fn owner_for_codes(&self) -> OwnerGuard<'_, Owner> {
        self.owner.enter()
    }

    /// Owner: the oldest of what [`Self::retire_codes`] has told can be seen by nobody; the next job frees it.
    ///
    /// # Safety
    /// No reader is pinned any more that was when it was told.
    pub unsafe fn codes_are_quiescent(&self) {
        let training = &mut self.owner_for_codes().training;
        training.quiescent.extend(training.retired.pop_front());
    }

    /// The owner's state, with the tree in order.
    pub(super) fn owner(&self) -> OwnerGuard<'_, Owner> {
        let mut owner = self.owner.enter();
        self.refresh_tree(&mut owner);
        owner
    }

    /// Owner: gives a fresh node its upper blocks. The level may come out lower when address space for them ran out
    /// (the graph only gets a little slower). Returns it.
    pub(super) fn place_node(&self, owner: &mut Owner, slot: Slot, level: u8) -> u8 {
        let run = if level == 0 { None } else { owner.runs.allocate(level) };
        self.links.commit_upper(owner.runs.used());
        let level = if run.is_some() { level } else { 0 };
        self.links.set_place(slot, run.unwrap_or(0), level);
        level
    }

    #[inline]
    fn mark(&self, slot: Slot) -> u32 {
        self.marks.cells(slot as usize)[0].load(Relaxed)
    }

    /// Only the owner stores marks, so load and store need not be one step.
    pub(super) fn set_mark(&self, slot: Slot, mark: u32) {
        self.marks.cells(slot as usize)[0].store(mark, Relaxed);
    }

    pub(super) fn mark_linked(&self, slot: Slot) {
        self.set_mark(slot, self.mark(slot) | LINKED);
    }

    /// Forgets everything about the slot except that it is dirty.
    pub(super) fn mark_freed(&self, slot: Slot) {
        self.set_mark(slot, self.mark(slot) & DIRTY);
    }

    pub(super) fn mark_dirty(&self, owner: &mut Owner, slot: Slot) {
        if self.mark(slot) & DIRTY == 0 {
            self.set_mark(slot, self.mark(slot) | DIRTY);
            owner.dirty.push(slot);
        }
    }

    pub(super) fn is_given_up(&self, slot: Slot) -> bool {
        self.mark(slot) & GIVEN_UP != 0
    }

    pub(super) fn mark_given_up(&self, slot: Slot) {
        self.set_mark(slot, self.mark(slot) | GIVEN_UP);
    }

    pub(super) fn shape(&self, slot: Slot) -> Shape {
        let mark = self.mark(slot);
        Shape { kept: (mark & SHAPE) as usize, tail: (mark >> SHAPE_BITS & SHAPE) as usize }
    }

    pub(super) fn set_shape(&self, slot: Slot, shape: Shape) {
        let bits = shape.kept as u32 | (shape.tail as u32) << SHAPE_BITS;
        self.set_mark(slot, self.mark(slot) & !(SHAPE | SHAPE << SHAPE_BITS) | bits);
    }

    pub(super) fn parent(&self, slot: Slot) -> Option<Slot> {
        self.parents.cells(slot as usize)[0].load(Relaxed).checked_sub(1)
    }

    pub(super) fn set_parent(&self, slot: Slot, parent: Option<Slot>) {
        self.parents.cells(slot as usize)[0].store(parent.map_or(0, |parent| parent + 1), Relaxed);
    }
}
