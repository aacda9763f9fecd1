//! Scoring slots that come one by one, in chunks, and keeping the nearest.
use super::{Hit, Points, Space};
use crate::index::Scan;
use crate::pace::{Pace, TooLong};
use crate::slot::Slot;
use crate::top_k::TopK;

/// Slots scored per call of the kernel.
const CHUNK: usize = 64;

/// Slots that are looked at between two questions to the pace; a multiple of 64.
pub(super) const SCAN_PART: Slot = 256;
/// Rows fetched ahead of the one that the predicate is asked about.
pub(super) const ROWS_AHEAD: usize = 8;

/// Candidates of a scan that are scored in one piece where codes tell too few apart: under 1 ms.
const CROWD_SCORED: usize = 2048;

/// What a distance costs in steps.
pub(super) fn steps_scored(dim: usize) -> usize {
    1 + dim / 768
}

/// The nearest of slots that come one by one, scored in chunks.
pub(super) struct Scorer<'a> {
    scan: Scan<'a>,
    points: &'a Points,
    dim: usize,
    k: usize,
    top: TopK<Hit>,
    chunk: Vec<Slot>,
    distances: Vec<f32>,
    scored: u64,
}

impl<'a> Scorer<'a> {
    /// After the snapshot of what is visible.
    pub fn new(space: &'a Space, query: &'a [f32], k: usize) -> Self {
        Scorer {
            scan: Scan::new(&space.graph, query, k),
            points: &space.points,
            dim: space.config.dim,
            k,
            top: TopK::new(k),
            chunk: Vec::with_capacity(CHUNK),
            distances: Vec::with_capacity(CHUNK),
            scored: 0,
        }
    }

    #[inline]
    pub fn push(&mut self, slot: Slot) {
        self.chunk.push(slot);
        if self.chunk.len() == CHUNK {
            self.sift();
        }
    }

    fn sift(&mut self) {
        self.scored += self.chunk.len() as u64;
        if !self.scan.sift(&self.chunk) {
            return self.score();
        }
        self.chunk.clear();
        if self.scan.is_crowded() {
            self.score_crowd();
        }
    }

    /// As many candidates as came since, were nothing left out: the cost of a scan without codes.
    #[cold]
    fn score_crowd(&mut self) {
        for _ in 0..CROWD_SCORED / CHUNK {
            self.scan.some(CHUNK, &mut self.chunk);
            self.score();
        }
    }

    fn score(&mut self) {
        self.scan.score(&self.chunk, &mut self.distances);
        for (&slot, &distance) in self.chunk.iter().zip(&self.distances) {
            // Spares the look-up of the id. Equal goes on to the comparison by id, and so does what cannot be compared (NaN).
            let beaten =
                |worst: &Hit| distance.partial_cmp(&worst.distance) == Some(std::cmp::Ordering::Greater);
            if !self.top.to_beat().is_some_and(beaten) {
                self.top.offer(Hit { id: self.points.id(slot), distance, slot });
            }
        }
        self.chunk.clear();
    }

    /// Appends what was kept, in no order; the number of distances.
    pub async fn finish(mut self, pace: &mut impl Pace, out: &mut Vec<Hit>) -> Result<u64, TooLong> {
        if self.scored == 0 {
            // So few that codes are not worth their making.
            self.scored = self.chunk.len() as u64;
            self.score();
        } else {
            self.sift();
        }
        loop {
            let to_beat = self.top.to_beat().map(|worst| worst.distance);
            let at_once = if to_beat.is_none() { self.k.clamp(CHUNK / 8, CHUNK) } else { CHUNK / 8 };
            self.scan.nearest(to_beat, at_once, &mut self.chunk);
            if self.chunk.is_empty() {
                break;
            }
            pace.step(self.chunk.len() * steps_scored(self.dim)).await?;
            self.score();
        }
        out.extend(self.top.into_hits());
        Ok(self.scored)
    }
}
