//! Cells whose slots lie there with codes of what their vectors differ from the centroid by, as any core reads them.
//!
//! A cell is a chain of blocks of 32 postings, each a slot and another cell that it is filed in as well, with their codes behind one
//! another (or in the layout of a shuffle, see [`CellCodec`]). The first block of a chain is being filled, its root says how far.
//!
//! # Invariants
//!
//! 1. *A posting that a root counts, or that lies in a block behind the first, does not change*, but that it may be marked as dead.
//!    Codes are therefore read as plain bytes where a block is full, and word by word where it is being filled: there the owner writes
//!    bytes beside those that count.
//! 2. Two neighbours with few live postings are written anew as one, and a block without any is left out, by one store each; what was
//!    replaced keeps its content and where it leads until no reader is left who could have been on it. Whoever is on it meanwhile
//!    comes by the same postings.
//! 3. *A place (block and position) of a slot* is published after its posting, and taken back before the slot is born again. As for
//!    all lists: remove a slot's postings before that, and load the snapshot before the search.
use crate::distance::Metric;
use crate::memory::Rows;
use crate::quantizer::{BLOCK_CODES, CellCodec, CellQuery};
use crate::slot::Slot;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Where in the row of a block which numbers lie: what the chain goes on with (and 1), its cell, then one of each for every posting.
const NEXT: usize = 0;
const CELL: usize = 1;
const SLOTS: usize = 16;
const OTHERS: usize = SLOTS + BLOCK_CODES;
/// Under L2: the bits of what a cell and a code add to a distance.
const TERMS: usize = OTHERS + BLOCK_CODES;
/// What stands in place of another cell where a posting is dead.
const DEAD: u32 = u32::MAX;

const WORD: usize = size_of::<u64>();
const TERM: usize = size_of::<f32>();

/// First block of a chain and 1, and how many of its postings count.
#[derive(Clone, Copy)]
pub(super) struct Root {
    pub head: Option<u32>,
    pub count: usize,
}

/// Where a posting lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub block: u32,
    pub position: usize,
}

impl At {
    pub fn pack(self) -> u32 {
        self.block * BLOCK_CODES as u32 + self.position as u32 + 1
    }

    pub fn unpack(packed: u32) -> Option<At> {
        let packed = packed.checked_sub(1)? as usize;
        Some(At { block: (packed / BLOCK_CODES) as u32, position: packed % BLOCK_CODES })
    }
}

/// Blocks there may be: places are 32 bits.
pub(super) const BLOCKS_MAX: u32 = u32::MAX / BLOCK_CODES as u32;

/// See the module.
pub(crate) struct Coded {
    codec: CellCodec,
    metric: Metric,
    /// Under L2 the mean of the centroids: what is subtracted from queries so that their tables lose less.
    middle: Vec<f32>,
    roots: Box<[AtomicU64]>,
    /// Live postings.
    counts: Box<[AtomicU32]>,
    rows: Rows<AtomicU32>,
    codes: Rows<AtomicU64>,
    /// Per slot its two places, 0 = none.
    places: Rows<AtomicU32>,
    /// Kept by the owner.
    pub(super) bytes: AtomicU64,
}

impl Coded {
    /// `centroids`: rows of `dim`, back to back.
    pub fn new(codec: CellCodec, metric: Metric, dim: usize, centroids: &[f32]) -> Coded {
        let cells = centroids.len() / dim;
        let mut sums = vec![0.0_f64; if metric == Metric::L2 { dim } else { 0 }];
        for centroid in centroids.chunks_exact(dim) {
            sums.iter_mut().zip(centroid).for_each(|(sum, &x)| *sum += f64::from(x));
        }
        let terms = if metric == Metric::L2 { BLOCK_CODES } else { 0 };
        Coded {
            metric,
            middle: sums.into_iter().map(|sum| (sum / cells as f64) as f32).collect(),
            roots: (0..cells).map(|_| AtomicU64::new(0)).collect(),
            counts: (0..cells).map(|_| AtomicU32::new(0)).collect(),
            rows: Rows::new(TERMS + terms),
            codes: Rows::new(BLOCK_CODES * codec.code_len() / WORD),
            places: Rows::new(2),
            bytes: AtomicU64::new(0),
            codec,
        }
    }

    pub fn codec(&self) -> &CellCodec {
        &self.codec
    }

    /// Bytes of what is kept of a vector in one cell: the code, and under L2 the term.
    pub fn row_len(&self) -> usize {
        self.codec.code_len() + if self.metric == Metric::L2 { TERM } else { 0 }
    }

    /// Appends what is kept of a vector in the cell of `centroid`, both of `dim` components.
    pub fn encode(&self, vector: &[f32], centroid: &[f32], out: &mut Vec<u8>) {
        let mut residual: Vec<f32> = vector.iter().zip(centroid).map(|(x, c)| x - c).collect();
        let from = out.len();
        out.resize(from + self.codec.code_len(), 0);
        self.codec.encode(&residual, &mut out[from..]);
        if self.metric == Metric::L2 {
            // |q - c - r|^2 = |q - c|^2 - 2 (q - m) . r + (2 (c - m) . r + |r|^2)
            self.codec.decode(&out[from..], &mut residual);
            let along: f64 = (residual.iter().zip(centroid).zip(&self.middle))
                .map(|((&r, &c), &middle)| f64::from(r) * (f64::from(r) + 2.0 * f64::from(c - middle)))
                .sum();
            out.extend_from_slice(&(along as f32).to_le_bytes());
        }
    }

    /// Whether a row may have come from [`Self::encode`].
    pub fn is_row(&self, row: &[u8]) -> bool {
        let Some((code, term)) = row.split_at_checked(self.codec.code_len()) else { return false };
        self.codec.is_code(code)
            && match term.as_array::<TERM>() {
                Some(term) => self.metric == Metric::L2 && f32::from_le_bytes(*term).is_finite(),
                None => self.metric != Metric::L2 && term.is_empty(),
            }
    }

    /// Sets `query` to a prepared vector of `dim` components.
    pub fn query(&self, vector: &[f32], query: &mut CellQuery) {
        match self.metric {
            Metric::L2 => {
                let twice: Vec<f32> =
                    vector.iter().zip(&self.middle).map(|(x, middle)| 2.0 * (x - middle)).collect();
                self.codec.query(&twice, query);
            }
            Metric::Cosine | Metric::Dot => self.codec.query(vector, query),
        }
    }

    pub(super) fn root(&self, cell: u32) -> Root {
        let root = self.roots[cell as usize].load(Ordering::Acquire);
        Root { head: (root as u32).checked_sub(1), count: (root >> 32) as usize }
    }

    /// Owner: what the root counts is in place.
    pub(super) fn set_root(&self, cell: u32, root: Root) {
        let head = root.head.map_or(0, |head| head + 1);
        self.roots[cell as usize].store(u64::from(head) | (root.count as u64) << 32, Ordering::Release);
    }

    /// Postings in a cell.
    pub fn filed(&self, cell: u32) -> u32 {
        self.counts[cell as usize].load(Ordering::Relaxed)
    }

    /// Owner: one more, or one less.
    pub(super) fn count(&self, cell: u32, more: bool) {
        let filed = self.filed(cell);
        self.counts[cell as usize].store(if more { filed + 1 } else { filed - 1 }, Ordering::Relaxed);
    }

    /// Owner: a block that was never used.
    pub(super) fn make(&self, block: u32) {
        self.rows.make(block);
        self.codes.make(block);
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(&self) -> usize {
        self.rows.bytes(1) + self.codes.bytes(1)
    }

    pub(super) fn next(&self, block: u32) -> Option<u32> {
        self.rows.cells(block)[NEXT].load(Ordering::Acquire).checked_sub(1)
    }

    /// Owner: where the chain goes on behind a block; what it leads to is in place.
    pub(super) fn set_next(&self, block: u32, next: Option<u32>) {
        self.rows.cells(block)[NEXT].store(next.map_or(0, |next| next + 1), Ordering::Release);
    }

    pub(super) fn cell(&self, block: u32) -> u32 {
        self.rows.cells(block)[CELL].load(Ordering::Relaxed)
    }

    pub(super) fn set_cell(&self, block: u32, cell: u32) {
        self.rows.cells(block)[CELL].store(cell, Ordering::Relaxed);
    }

    /// Owner: writes a posting that nobody counts yet.
    pub(super) fn write(&self, at: At, slot: Slot, other: Option<u32>, row: &[u8]) {
        let cells = self.rows.cells(at.block);
        cells[SLOTS + at.position].store(slot, Ordering::Relaxed);
        let (code, term) = row.split_at(self.codec.code_len());
        if let Some(term) = term.as_array::<TERM>() {
            cells[TERMS + at.position].store(u32::from_le_bytes(*term), Ordering::Relaxed);
        }
        let words = self.codes.cells(at.block);
        for (byte, &value) in code.iter().enumerate() {
            let place = self.codec.place(at.position, byte);
            let word = &words[place / WORD];
            let mut bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            bytes[place % WORD] = value;
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        cells[OTHERS + at.position].store(other.map_or(0, |other| other + 1), Ordering::Relaxed);
    }

    /// Owner: marks a posting, or a place of a block that never holds one.
    pub(super) fn mark_dead(&self, at: At) {
        self.rows.cells(at.block)[OTHERS + at.position].store(DEAD, Ordering::Relaxed);
    }

    /// Slot and other cell of a posting, when it is alive.
    pub(super) fn posting(&self, at: At) -> Option<(Slot, Option<u32>)> {
        CodeBlock { cells: self.rows.cells(at.block), count: BLOCK_CODES, codes: &[] }.posting(at.position)
    }

    /// Appends what was written of a posting's vector.
    pub(super) fn read(&self, at: At, out: &mut Vec<u8>) {
        let words = self.codes.cells(at.block);
        out.extend((0..self.codec.code_len()).map(|byte| {
            let place = self.codec.place(at.position, byte);
            words[place / WORD].load(Ordering::Relaxed).to_ne_bytes()[place % WORD]
        }));
        if self.metric == Metric::L2 {
            let term = self.rows.cells(at.block)[TERMS + at.position].load(Ordering::Relaxed);
            out.extend_from_slice(&term.to_le_bytes());
        }
    }

    /// Where a slot is filed, the cell of the nearest centroid first.
    pub(super) fn places(&self, slot: Slot) -> [Option<At>; 2] {
        match self.places.get(slot) {
            Some(places) => [0, 1].map(|which| At::unpack(places[which].load(Ordering::Acquire))),
            None => [None; 2],
        }
    }

    /// What the first code of a filed slot stands for, without the centroid of its cell, which is returned.
    pub fn decode(&self, slot: Slot, residual: &mut [f32]) -> Option<u32> {
        let at = self.places(slot)[0]?;
        let mut row = Vec::with_capacity(self.row_len());
        self.read(at, &mut row);
        self.codec.decode(&row[..self.codec.code_len()], residual);
        Some(self.cell(at.block))
    }

    /// Cell of a filed slot, and what its first code adds to a query's distance to the centroid there. `row` is any vector.
    pub fn score(&self, slot: Slot, query: &CellQuery, row: &mut Vec<u8>) -> Option<(u32, f32)> {
        let at = self.places(slot)[0]?;
        row.clear();
        self.read(at, row);
        let (code, term) = row.split_at(self.codec.code_len());
        let term = term.as_array::<TERM>().map_or(0.0, |term| f32::from_le_bytes(*term));
        Some((self.cell(at.block), term + self.codec.product(query, code)))
    }

    /// First and second cell of a filed slot.
    pub fn cells_of(&self, slot: Slot) -> Option<(u32, Option<u32>)> {
        let [first, second] = self.places(slot);
        Some((self.cell(first?.block), second.map(|second| self.cell(second.block))))
    }

    /// Appends what is kept of a filed slot in each of its cells.
    pub fn rows_of(&self, slot: Slot, out: &mut Vec<u8>) {
        self.places(slot).into_iter().flatten().for_each(|at| self.read(at, out));
    }

    /// Owner: the posting is in place.
    pub(super) fn set_place(&self, slot: Slot, which: usize, at: Option<At>) {
        self.places.make(slot);
        self.places.cells(slot)[which].store(at.map_or(0, At::pack), Ordering::Release);
    }

    pub(super) fn place_bytes(&self, slots: usize) -> usize {
        self.places.bytes(slots)
    }

    /// Any core: the blocks of a cell as it stands. The caller is pinned, has its snapshot from before, and asks whether a slot is
    /// visible.
    pub fn blocks(&self, cell: u32) -> Blocks<'_> {
        let Root { head, count } = self.root(cell);
        Blocks { coded: self, next: head, count }
    }

    /// Bytes of what was learned and of what is filed, about.
    pub fn bytes(&self) -> u64 {
        self.codec.bytes() as u64 + self.bytes.load(Ordering::Relaxed)
    }
}

/// A way along the chain of a cell.
pub(crate) struct Blocks<'a> {
    coded: &'a Coded,
    next: Option<u32>,
    /// Postings of the next block that count.
    count: usize,
}

impl<'a> Blocks<'a> {
    /// The next block; `space` is any vector.
    pub fn next<'b>(&mut self, space: &'b mut Vec<u8>) -> Option<CodeBlock<'b>>
    where
        'a: 'b,
    {
        let block = self.next?;
        let coded = self.coded;
        let count = std::mem::replace(&mut self.count, BLOCK_CODES);
        self.next = coded.next(block);
        let words = coded.codes.cells(block);
        let codes = if count == BLOCK_CODES {
            // SAFETY: all 32 postings count, or the block lies behind the first of its chain, so nobody writes its codes (invariant
            // 1) before the caller has unpinned; atomics are as large as what they hold, and any bytes are.
            unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(words)) }
        } else {
            space.clear();
            let used = coded.codec.used(count).div_ceil(WORD);
            words[..used].iter().for_each(|word| space.extend(word.load(Ordering::Relaxed).to_ne_bytes()));
            space.resize(size_of_val(words), 0);
            &space[..]
        };
        Some(CodeBlock { cells: coded.rows.cells(block), count, codes })
    }
}

/// Up to 32 postings.
pub(crate) struct CodeBlock<'b> {
    cells: &'b [AtomicU32],
    count: usize,
    /// Of all 32; those that do not count hold anything.
    codes: &'b [u8],
}

impl CodeBlock<'_> {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn codes(&self) -> &[u8] {
        self.codes
    }

    /// Slot and other cell, when the posting is alive.
    #[inline]
    pub fn posting(&self, position: usize) -> Option<(Slot, Option<u32>)> {
        let other = self.cells[OTHERS + position].load(Ordering::Relaxed);
        let slot = self.cells[SLOTS + position].load(Ordering::Relaxed);
        (other != DEAD).then_some((slot, other.checked_sub(1)))
    }

    /// What the cell and the code add to a distance.
    #[inline]
    pub fn term(&self, position: usize) -> f32 {
        self.cells.get(TERMS + position).map_or(0.0, |bits| f32::from_bits(bits.load(Ordering::Relaxed)))
    }

    /// As [`CellCodec`] has it in a row.
    pub fn code(&self, codec: &CellCodec, position: usize, out: &mut Vec<u8>) {
        out.clear();
        out.extend((0..codec.code_len()).map(|byte| self.codes[codec.place(position, byte)]));
    }
}
