//! Searching cells by the codes that lie in them.
use super::by_code::ByCode;
use super::cell_order::{Passing, Seen};
use super::scorer::Scorer;
use super::search_state::Search;
use super::{Hit, Points};
use crate::collection::index_type::RERANKED_PER_RESULT;
use crate::collection::points::View;
use crate::index::{Cells, CodeBlock, Coded, Order};
use crate::pace::{Pace, TooLong};
use crate::quantizer::{BLOCK_CODES, CellQuery};
use crate::slot::Slot;
use crate::top_k::TopK;

/// Steps of blocks between two questions to the pace.
const STEPS_AT_ONCE: usize = 256;

/// Sums of floats in one order and in another differ by less than this share of their members.
const ROUNDING: f32 = 1e-6;

/// The best by their codes so far.
struct Pool<'a> {
    points: &'a Points,
    coded: &'a Coded,
    query: CellQuery,
    top: TopK<Hit>,
    /// How many match among those looked at; all of them as long as there are fewer than are kept.
    found: usize,
    code: Vec<u8>,
    steps: usize,
    /// Codes looked at.
    distances: u64,
    /// Slots of this block whose match is still open, in order: the position in the block, and the sum of distances.
    open: Vec<(usize, f32)>,
}

impl<P: Pace> Search<'_, P> {
    /// As [`Self::probe`], by codes, without the tail: of the best three times `k`, those that are nearest after exact scoring, or, where
    /// vectors are given up, by their first codes. Which these are depends on tables of floats alone: bytes that sums are made of only rule codes out.
    pub(super) async fn probe_codes(
        &mut self,
        cells: &Cells,
        coded: &Coded,
        passing: &Passing<'_>,
    ) -> Result<(), TooLong> {
        let Search { space, points, query, k, .. } = *self;
        let probes = space.probes(passing);
        let distances = self.centroid_distances(cells).await?;
        let mut order = Order::new(&distances, probes);
        let mut seen = Seen::new(cells.len());
        let mut pool = Pool {
            points,
            coded,
            query: CellQuery::default(),
            top: TopK::new(k.saturating_mul(RERANKED_PER_RESULT)),
            found: 0,
            code: Vec::new(),
            steps: 0,
            distances: 0,
            open: Vec::new(),
        };
        coded.query(&query[..space.config.dim], &mut pool.query);
        let (view, pace) = (&mut self.view, &mut *self.pace);
        let (mut looked, mut buffer) = (0, Vec::new());
        while (looked < probes || pool.found < k)
            && let Some(cell) = order.next()
        {
            looked += 1;
            let mut blocks = coded.blocks(cell);
            while let Some(block) = blocks.next(&mut buffer) {
                let base = distances[cell as usize];
                pool.offer(&block, base, &seen, passing, view);
                pool.steps += view.steps_taken();
                if pool.steps >= STEPS_AT_ONCE {
                    pace.step(std::mem::take(&mut pool.steps)).await?;
                }
                let open = std::mem::take(&mut view.open);
                for (slot, position) in open.iter().zip(std::mem::take(&mut pool.open)) {
                    if view.settle(*slot, pace).await? {
                        pool.take(&block, base, position, *slot);
                    }
                }
            }
            seen.insert(cell);
            pool.steps += 1;
        }
        self.distances += pool.distances;
        if space.config.drops_vectors() {
            let Pool { query, top, .. } = pool;
            let mut by_code = ByCode::new(coded, points, query, distances, k);
            top.into_hits().for_each(|hit| _ = by_code.offer(hit.slot));
            by_code.finish(self.out);
            return Ok(());
        }
        let mut scorer = Scorer::new(space, query, k);
        pool.top.into_hits().for_each(|hit| scorer.push(hit.slot));
        self.distances += scorer.finish(pace, self.out).await?;
        Ok(())
    }
}

impl Pool<'_> {
    /// Takes those of a block that are among the best.
    fn offer(
        &mut self,
        block: &CodeBlock<'_>,
        base: f32,
        seen: &Seen,
        passing: &Passing<'_>,
        view: &mut View<'_>,
    ) {
        let codec = self.coded.codec();
        let mut lowest = [0.0; BLOCK_CODES];
        codec.lowest(&self.query, block.codes(), block.len(), &mut lowest);
        self.distances += block.len() as u64;
        self.steps += codec.steps_per_block();
        let to_beat = |top: &TopK<Hit>| top.to_beat().map_or(f32::INFINITY, |worst| worst.distance);
        let mut reach = to_beat(&self.top);
        for (position, &lowest) in lowest.iter().enumerate().take(block.len()) {
            let term = block.term(position);
            let low = base + term + lowest;
            // What cannot be compared (NaN) goes on.
            if low - ROUNDING * (base.abs() + term.abs()) > reach {
                continue;
            }
            let Some((slot, other)) = block.posting(position) else { continue };
            if other.is_some_and(|other| seen.contains(other)) {
                continue;
            }
            if !passing.gate.passes(slot) {
                view.filter_rejects += 1;
                continue;
            }
            self.steps += 1;
            if !view.visible(slot) {
                continue;
            }
            let left_open = view.open.len();
            if !view.confirms(slot, passing.exact) {
                if view.open.len() > left_open {
                    self.open.push((position, lowest));
                }
                continue;
            }
            self.take(block, base, (position, lowest), slot);
            reach = to_beat(&self.top);
        }
    }

    /// Takes a slot of a block that matches: its position there, and the sum that its code was ruled in by.
    fn take(&mut self, block: &CodeBlock<'_>, base: f32, (position, lowest): (usize, f32), slot: Slot) {
        let codec = self.coded.codec();
        let term = block.term(position);
        self.found += 1;
        let distance = if codec.is_told_exactly() {
            base + term + lowest
        } else {
            block.code(codec, position, &mut self.code);
            base + term + codec.product(&self.query, &self.code)
        };
        self.top.offer(Hit { id: self.points.id(slot), distance, slot });
    }
}
