//! Searching a collection of cells.
use super::cell_order::{Passing, Seen};
use super::scorer::{ROWS_AHEAD, SCAN_PART, Scorer, steps_scored};
use super::search_state::Search;
use crate::index::{Cells, Order};
use crate::pace::{Pace, TooLong};

impl<P: Pace> Search<'_, P> {
    /// Looks through the nearest cells, as many as the configuration says and more until there are `k` that match, and through the
    /// tail. Exact distances; whether a nearer point lies in a cell farther off is not known, but when all have been looked through,
    /// which is what is returned.
    pub(super) async fn probe(&mut self, passing: &Passing<'_>) -> Result<bool, TooLong> {
        // What left the window of the view since is dead, or was filed before it left, in the lists of now or in those that a training
        // publishes meanwhile, which hold all that has left it up to then.
        let Some(cells) = self.space.index.cells(self.pin) else {
            self.scan().await?;
            return Ok(true);
        };
        let looked_through_all = match cells.coded() {
            Some(coded) => {
                self.probe_codes(cells, coded, passing).await?;
                false
            }
            None => self.probe_vectors(cells, passing).await?,
        };
        self.search_tail(|_| true).await?;
        Ok(looked_through_all)
    }

    /// By the vectors of what lies in the cells; whether all cells have been looked through.
    async fn probe_vectors(&mut self, cells: &Cells, passing: &Passing<'_>) -> Result<bool, TooLong> {
        let space = self.space;
        let probes = space.probes(passing);
        let steps_each = steps_scored(space.config.dim);
        let distances = self.centroid_distances(cells).await?;
        let mut order = Order::new(&distances, probes);
        let mut seen = Seen::new(cells.len());
        let mut scorer = Scorer::new(space, self.query, self.k);
        let (view, pace) = (&mut self.view, &mut *self.pace);
        let mut filed = Vec::new();
        let (mut looked, mut found, mut untold) = (0, 0, 0);
        while (looked < probes || found < self.k)
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
                        space.look_ahead(&filed, start + index);
                    }
                    if view.visible(slot) && view.confirms(slot, passing.exact) {
                        scorer.push(slot);
                        found += 1;
                    }
                }
                untold += slots.len() * steps_each + view.steps_taken();
                if untold >= SCAN_PART as usize {
                    pace.step(std::mem::take(&mut untold)).await?;
                }
                view.settle_open(pace, |slot| {
                    scorer.push(slot);
                    found += 1;
                })
                .await?;
            }
            untold += 1 + rejects as usize / ROWS_AHEAD;
        }
        self.distances += scorer.finish(pace, self.out).await?;
        Ok(looked == cells.len())
    }
}
