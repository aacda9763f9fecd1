//! Centroids and the lists of their cells, as any core reads them.
use super::coded::Coded;
use crate::distance::{Kernel, Metric, padded};
use crate::index::Neighbor;
use crate::memory::{Arena, ArenaError};
use crate::postings::{ListId, Lists, Summary};
use crate::quantizer::{CellCodec, squared_error};
use crate::slot::Slot;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Cells among which the second of a slot is looked for, nearest first: those of the paper's tuning that matter.
const SECOND_OF: usize = 8;

/// Where a slot is filed.
#[derive(Clone, Debug, PartialEq)]
pub struct FiledAt {
    /// The cell of the nearest centroid.
    pub cell: u32,
    /// Another one, with spilling.
    pub second: Option<u32>,
    /// To the nearest centroid.
    pub distance: f32,
    /// What is kept of the vector in each of the cells, where these have codes.
    pub codes: Vec<u8>,
}

/// What became of a vector, as squared distances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Squared distance from what its first code stands for; 0 without codes.
    pub error: f64,
    /// Squared distance from the centroid of its first cell.
    pub spread: f64,
}

/// Postings of cells have no bounds to be skipped by.
#[derive(Clone, Copy)]
pub(super) struct Nothing;

impl Summary for Nothing {
    const WORDS: usize = 0;
    const EMPTY: Self = Nothing;
    fn merge(&mut self, _: &Self) {}
    fn store(&self, _: &[AtomicU32]) {}
    fn load(_: &[AtomicU32]) -> Self {
        Nothing
    }
}

/// What is filed.
pub(super) enum Filed {
    Plain(Arc<Lists>),
    Coded(Box<Coded>),
}

/// A clustering and what is filed in it.
pub struct Cells {
    dim: usize,
    kernel: Kernel,
    metric: Metric,
    /// One padded row per cell, not changed once this is made.
    rows: Arena<f32>,
    /// 0, 1, 2 ...: what the kernel is to score.
    numbers: Vec<u32>,
    /// Squared lengths of the centroids, where spilling has to know them.
    squares: Vec<f32>,
    /// Weight of spilling; `None` without.
    soar: Option<f32>,
    pub(super) filed: Filed,
    /// Points that were alive when the centroids were trained.
    trained_on: AtomicU64,
    /// Bits of the mean distance to the nearest centroid then.
    mean: AtomicU32,
}

impl Cells {
    /// Cells without content. `centroids`: rows of `dim`, back to back, at least one. `soar`: weight of the direction of the
    /// residual when a second cell is chosen, `None` = one cell per slot. `codec`: keep codes of residuals beside the slots.
    ///
    /// # Errors
    /// When address space runs out.
    pub fn new(
        metric: Metric,
        dim: usize,
        centroids: &[f32],
        soar: Option<f32>,
        codec: Option<CellCodec>,
        trained_on: u64,
    ) -> Result<Cells, ArenaError> {
        debug_assert!(!centroids.is_empty() && centroids.len().is_multiple_of(dim));
        let count = centroids.len() / dim;
        let mut rows: Arena<f32> = Arena::reserve(count, padded(dim))?;
        for (cell, centroid) in centroids.chunks_exact(dim).enumerate() {
            rows.row_mut(cell)[..dim].copy_from_slice(centroid);
        }
        let squares = match soar {
            Some(_) => centroids.chunks_exact(dim).map(squared).collect(),
            None => Vec::new(),
        };
        Ok(Cells {
            dim,
            kernel: Kernel::of(metric),
            metric,
            rows,
            numbers: (0..count as u32).collect(),
            squares,
            soar: soar.filter(|_| count > 1),
            filed: match codec {
                Some(codec) => Filed::Coded(Box::new(Coded::new(codec, metric, dim, centroids))),
                None => Filed::Plain(Arc::new(Lists::new())),
            },
            trained_on: AtomicU64::new(trained_on),
            mean: AtomicU32::new(0),
        })
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Never: a clustering has at least one.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The centroid of a cell, unpadded.
    ///
    /// # Panics
    /// When there is no such cell.
    pub fn centroid(&self, cell: u32) -> &[f32] {
        &self.row(cell)[..self.dim]
    }

    fn row(&self, cell: u32) -> &[f32] {
        self.rows.row(cell as usize)
    }

    /// Points that were alive when the centroids were trained.
    pub fn trained_on(&self) -> u64 {
        self.trained_on.load(Ordering::Relaxed)
    }

    /// Mean distance of points to their nearest centroids then.
    pub fn mean(&self) -> f32 {
        f32::from_bits(self.mean.load(Ordering::Relaxed))
    }

    /// Owner: what further growth and drift are measured against.
    pub(crate) fn set_trained(&self, on: u64, mean: f32) {
        self.trained_on.store(on, Ordering::Relaxed);
        self.mean.store(mean.to_bits(), Ordering::Relaxed);
    }

    /// Appends the distances of a padded, prepared vector to up to `more` further centroids; `out` has those of the ones before.
    /// True when it has all.
    pub(crate) fn distances(&self, vector: &[f32], out: &mut Vec<f32>, more: usize) -> bool {
        assert_eq!(vector.len(), self.rows.row_len(), "a padded row");
        let from = out.len();
        let numbers = &self.numbers[from..];
        let numbers = &numbers[..more.min(numbers.len())];
        out.resize(from + numbers.len(), 0.0);
        self.kernel.distances(vector, self.rows.table(), numbers, &mut out[from..]);
        out.len() == self.len()
    }

    /// Distance of a padded, prepared vector to the centroid of one cell.
    pub(crate) fn distance(&self, vector: &[f32], cell: u32) -> f32 {
        self.kernel.distance(vector, self.row(cell))
    }

    /// Any core: where a padded, prepared vector belongs, in steps of at most `more` distances; the place when done. Costs a distance
    /// per cell. `buffer`: empty at the first step, and again after the last.
    pub fn place_step(&self, vector: &[f32], buffer: &mut Vec<f32>, more: usize) -> Option<FiledAt> {
        if !self.distances(vector, buffer, more) {
            return None;
        }
        let nearest = |buffer: &[f32]| {
            let each =
                buffer.iter().zip(&self.numbers).map(|(&distance, &cell)| Neighbor { distance, slot: cell });
            each.min().expect("there is a cell")
        };
        let first = nearest(buffer);
        let second = self.soar.map(|weight| self.second(vector, first.slot, weight, buffer));
        buffer.clear();
        let codes = self.encode(&vector[..self.dim], first.slot, second);
        Some(FiledAt { cell: first.slot, second, distance: first.distance, codes })
    }

    /// What is kept of a vector of `dim` components in each of its cells, where these have codes.
    pub(crate) fn encode(&self, vector: &[f32], cell: u32, second: Option<u32>) -> Vec<u8> {
        let mut codes = Vec::new();
        if let Filed::Coded(coded) = &self.filed {
            for cell in [Some(cell), second].into_iter().flatten() {
                coded.encode(vector, self.centroid(cell), &mut codes);
            }
        }
        codes
    }

    /// How far a vector of `dim` components is from the centroid of its first cell, and from what the first of its `codes` stands for.
    /// `decoded`: any buffer. Cost: some `dim` operations.
    pub(crate) fn measure(
        &self,
        vector: &[f32],
        cell: u32,
        codes: &[u8],
        decoded: &mut Vec<f32>,
    ) -> Measured {
        let centroid = self.centroid(cell);
        let spread = squared_error(vector, centroid);
        let Filed::Coded(coded) = &self.filed else { return Measured { error: 0.0, spread } };
        decoded.resize(self.dim, 0.0);
        coded.codec().decode(&codes[..coded.codec().code_len()], decoded);
        decoded.iter_mut().zip(centroid).for_each(|(x, c)| *x += c);
        Measured { error: squared_error(vector, decoded), spread }
    }

    /// Sets `vector`, `dim` components and what pads them, to what the first code of a slot stands for; false when it is not filed
    /// here. The caller is pinned, or the owner.
    pub(crate) fn decode(&self, slot: Slot, vector: &mut [f32]) -> bool {
        let Filed::Coded(coded) = &self.filed else { return false };
        let (vector, padding) = vector.split_at_mut(self.dim);
        let Some(cell) = coded.decode(slot, vector) else { return false };
        vector.iter_mut().zip(self.centroid(cell)).for_each(|(x, c)| *x += c);
        padding.fill(0.0);
        true
    }

    /// Whether [`Self::encode`] may have given these, for two cells or one.
    pub(crate) fn are_codes(&self, codes: &[u8], two: bool) -> bool {
        let Filed::Coded(coded) = &self.filed else { return codes.is_empty() };
        let len = coded.row_len();
        codes.len() == if two { 2 * len } else { len } && codes.chunks_exact(len).all(|row| coded.is_row(row))
    }

    /// The codes, where cells have them.
    pub(crate) fn coded(&self) -> Option<&Coded> {
        match &self.filed {
            Filed::Coded(coded) => Some(coded),
            Filed::Plain(_) => None,
        }
    }

    /// Among the nearest others by L2 the one that minimises `|r|^2 + weight (r . r1)^2`, `r` the residual against it and `r1` the
    /// residual against the first cell, at length 1: what the first centroid is bad at the second should be good at.
    fn second(&self, vector: &[f32], first: u32, weight: f32, distances: &mut [f32]) -> u32 {
        let square: f32 = squared(vector);
        for (distance, &of_centroid) in distances.iter_mut().zip(&self.squares) {
            *distance = match self.metric {
                Metric::L2 => *distance,
                Metric::Cosine => square - 2.0 * (1.0 - *distance) + of_centroid,
                Metric::Dot => square + 2.0 * *distance + of_centroid,
            };
        }
        distances[first as usize] = f32::INFINITY;
        let mut others: Vec<Neighbor> = distances
            .iter()
            .zip(&self.numbers)
            .map(|(&distance, &slot)| Neighbor { distance, slot })
            .collect();
        let last = SECOND_OF.min(others.len() - 1);
        others.select_nth_unstable(last - 1);
        let residual: Vec<f32> = vector.iter().zip(self.row(first)).map(|(x, c)| x - c).collect();
        let length = squared(&residual).sqrt();
        let loss = |other: &Neighbor| {
            let along: f32 =
                vector.iter().zip(self.row(other.slot)).zip(&residual).map(|((x, c), r)| (x - c) * r).sum();
            let along = if length > 0.0 { along / length } else { 0.0 };
            Neighbor { distance: other.distance + weight * along * along, slot: other.slot }
        };
        others[..last].iter().map(loss).min().expect("there are two cells").slot
    }

    /// Calls `f(slot, other)` for each slot that is filed in `cell`; `other` is the second cell that it is filed in as well. The
    /// caller is pinned, has its snapshot from before, and asks whether the slot is visible.
    pub(crate) fn for_each(&self, cell: u32, mut f: impl FnMut(Slot, Option<u32>)) {
        match &self.filed {
            Filed::Plain(lists) => {
                lists.for_each::<Nothing>(cell as ListId, |slot, other| f(slot, other.checked_sub(1)));
            }
            Filed::Coded(coded) => {
                let (mut blocks, mut space) = (coded.blocks(cell), Vec::new());
                while let Some(block) = blocks.next(&mut space) {
                    let live = (0..block.len()).filter_map(|position| block.posting(position));
                    live.for_each(|(slot, other)| f(slot, other));
                }
            }
        }
    }

    /// Postings in a cell.
    pub fn filed(&self, cell: u32) -> u32 {
        match &self.filed {
            Filed::Plain(lists) => lists.postings(cell as ListId),
            Filed::Coded(coded) => coded.filed(cell),
        }
    }

    /// Committed bytes, about.
    pub fn bytes(&self) -> u64 {
        (self.len() * (self.rows.row_len() * 4 + 8)) as u64
            + match &self.filed {
                Filed::Plain(lists) => lists.bytes(),
                Filed::Coded(coded) => coded.bytes(),
            }
    }
}

pub(super) fn squared(row: &[f32]) -> f32 {
    row.iter().map(|x| x * x).sum()
}
