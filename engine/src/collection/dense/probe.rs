//! Searching a collection of cells.
use super::search::{ROWS_AHEAD, SCAN_PART, Scorer, View, steps_scored};
use super::*;
use crate::collection::dense::hit_order::by_distance_then_id;
use crate::filter::planner::{Gate, widened};
use crate::index::{Cells, Order};
use crate::pace::Pace;

/// Centroids scored between two questions to the pace.
const CENTROIDS_AT_ONCE: usize = 2048;
/// Components of them, so that long ones take no longer.
const COMPONENTS_AT_ONCE: usize = CENTROIDS_AT_ONCE * 384;

/// What a slot of a list has to pass.
pub(super) struct Passing<'a> {
    pub gate: &'a Gate<'a>,
    /// What passes the gate matches.
    pub exact: bool,
    /// The share of points that is expected to match; 1 without a filter.
    pub share: f64,
}

/// Cells that have been looked through.
pub(super) struct Seen(Vec<u64>);

impl Seen {
    pub fn new(cells: usize) -> Seen {
        Seen(vec![0; cells.div_ceil(64)])
    }

    pub fn insert(&mut self, cell: u32) {
        self.0[cell as usize / 64] |= 1 << (cell % 64);
    }

    pub fn contains(&self, cell: u32) -> bool {
        self.0[cell as usize / 64] >> (cell % 64) & 1 == 1
    }
}

/// What the index of cells looks like, for those who ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellsInfo {
    /// How many; 0 = not trained yet, searches look at everything.
    pub cells: u64,
}

impl Dense {
    /// Any core: how the points are clustered; `None` where they are in a graph.
    pub fn cells_info(&self) -> Option<CellsInfo> {
        self.config.ivf().map(|_| CellsInfo { cells: self.cell_count.load(Ordering::Relaxed) })
    }

    /// Points that a search without a filter looks at, about; `None` when it looks at all of them, or goes through a graph.
    pub(super) fn probed(&self) -> Option<f64> {
        let ivf = self.config.ivf()?;
        let cells = self.cell_count.load(Ordering::Relaxed) as usize;
        let points =
            self.live.load(Ordering::Relaxed) as f64 * if ivf.spills().is_some() { 2.0 } else { 1.0 };
        // By codes all of them are looked at faster than by their vectors.
        let looks_at_some = ivf.probes() < cells || (ivf.product.is_some() && cells > 0);
        looks_at_some.then(|| points * (ivf.probes() as f64 / cells as f64).min(1.0))
    }

    /// Cells that a search looks through at least. What matches is thinner than what there is, so the `k` nearest of it lie farther off:
    /// where one in n matches, in root n times as many cells, of which one in n is scored, which is less work than without a filter.
    pub(super) fn probes(&self, passing: &Passing<'_>) -> usize {
        let probes = self.config.ivf().map_or(1, crate::collection::IvfConfig::probes);
        (probes as f64 * widened(passing.share)) as usize
    }

    /// Looks through the nearest cells, as many as the configuration says and more until there are `k` that match, and through the
    /// tail. Exact distances; whether a nearer point lies in a cell farther off is not known, but when all have been looked through,
    /// which is what is returned.
    #[allow(clippy::too_many_arguments)] // As `search_graph`.
    pub(super) async fn probe(
        &self,
        pin: &Pin<'_>,
        query: &[f32],
        k: usize,
        passing: &Passing<'_>,
        view: &mut View<'_>,
        pace: &mut impl Pace,
        out: &mut Vec<Hit>,
    ) -> Result<bool, TooLong> {
        // What left the window of the view since is dead, or was filed before it left, in the lists of now or in those that a training
        // publishes meanwhile, which hold all that has left it up to then.
        let Some(cells) = self.cells(pin) else {
            self.scan(pin, query, k, view, pace, out).await?;
            return Ok(true);
        };
        if let Some(coded) = cells.coded() {
            self.probe_codes(cells, coded, query, k, passing, view, pace, out).await?;
            self.search_tail(query, k, view, pace, out).await?;
            return Ok(false);
        }
        let probes = self.probes(passing);
        let steps_each = steps_scored(self.config.dim);
        let distances = self.centroid_distances(cells, query, view, pace).await?;
        let mut order = Order::new(&distances, probes);
        let mut seen = Seen::new(cells.len());
        let mut scorer = Scorer::new(&self.graph, query, k);
        let mut filed = Vec::new();
        let (mut looked, mut found, mut untold) = (0, 0, 0);
        while (looked < probes || found < k)
            && let Some(cell) = order.next()
        {
            looked += 1;
            filed.clear();
            let mut rejects = 0;
            cells.for_each(cell, |slot, other| {
                if other.is_some_and(|other| seen.contains(other)) {
                    return;
                }
                if passing.gate.passes(slot) {
                    filed.push(slot);
                } else {
                    rejects += 1;
                }
            });
            view.filter_rejects += rejects;
            seen.insert(cell);
            for (part, slots) in filed.chunks(SCAN_PART as usize).enumerate() {
                let start = part * SCAN_PART as usize;
                for (index, &slot) in slots.iter().enumerate() {
                    if view.filter.is_some() && !passing.exact {
                        self.look_ahead(&filed, start + index);
                    }
                    if view.visible(slot) && view.confirms(slot, passing.exact) {
                        scorer.push(self, slot);
                        found += 1;
                    }
                }
                untold += slots.len() * steps_each + view.steps_taken();
                if untold >= SCAN_PART as usize {
                    pace.step(std::mem::take(&mut untold)).await?;
                }
                view.settle_open(pace, |slot| {
                    scorer.push(self, slot);
                    found += 1;
                })
                .await?;
            }
            untold += 1 + rejects as usize / ROWS_AHEAD;
        }
        view.distances += scorer.finish(self, pace, out).await?;
        self.search_tail(query, k, view, pace, out).await?;
        Ok(looked == cells.len())
    }

    /// Distances of a query to all centroids.
    pub(super) async fn centroid_distances(
        &self,
        cells: &Cells,
        query: &[f32],
        view: &mut View<'_>,
        pace: &mut impl Pace,
    ) -> Result<Vec<f32>, TooLong> {
        view.distances += cells.len() as u64;
        let mut distances = Vec::with_capacity(cells.len());
        let at_once = (COMPONENTS_AT_ONCE / self.config.dim).clamp(1, CENTROIDS_AT_ONCE);
        while !cells.distances(query, &mut distances, at_once) {
            pace.step(at_once * steps_scored(self.config.dim)).await?;
        }
        Ok(distances)
    }

    /// Adds the nearest of the view's window of the tail to what was found elsewhere.
    pub(super) async fn search_tail(
        &self,
        query: &[f32],
        k: usize,
        view: &mut View<'_>,
        pace: &mut impl Pace,
        out: &mut Vec<Hit>,
    ) -> Result<(), TooLong> {
        let mut scorer = Scorer::new(&self.graph, query, k);
        let window = view.window;
        for position in window.start..window.end {
            if (position - window.start + 1).is_multiple_of(u64::from(SCAN_PART)) || view.is_spent() {
                pace.step(SCAN_PART as usize * steps_scored(self.config.dim) + view.steps_taken()).await?;
                view.settle_open(pace, |slot| scorer.push(self, slot)).await?;
            }
            let slot = self.tail.slot(position);
            if view.admits(slot) {
                scorer.push(self, slot);
            }
        }
        view.settle_open(pace, |slot| scorer.push(self, slot)).await?;
        view.distances += scorer.finish(self, pace, out).await?;
        if self.config.drops_vectors() {
            // Once by its code and once exactly, which comes later.
            out.sort_by_key(|hit| hit.slot);
            out.dedup_by(|later, kept| {
                later.slot == kept.slot && {
                    *kept = *later;
                    true
                }
            });
        }
        // A slot linked meanwhile was found in both places, at the same distance: equal neighbours after sorting.
        out.sort_unstable_by(by_distance_then_id);
        out.dedup_by_key(|hit| hit.slot);
        out.truncate(k);
        Ok(())
    }
}
