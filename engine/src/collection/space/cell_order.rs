//! What looking through cells takes, by vectors or by codes: how far the centroids are, which cells have been looked through, and what
//! is looked for.
use super::Space;
use super::scorer::steps_scored;
use super::search_state::Search;
use crate::filter::cost::widened;
use crate::filter::planner::Gate;
use crate::index::Cells;
use crate::pace::{Pace, TooLong};

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

impl Space {
    /// Cells that a search looks through at least. What matches is thinner than what there is, so the `k` nearest of it lie farther off:
    /// where one in n matches, in root n times as many cells, of which one in n is scored, which is less work than without a filter.
    pub(super) fn probes(&self, passing: &Passing<'_>) -> usize {
        let probes = self.index.probes();
        (probes as f64 * widened(passing.share)) as usize
    }
}

impl<P: Pace> Search<'_, P> {
    /// Distances of the query to all centroids.
    pub(super) async fn centroid_distances(&mut self, cells: &Cells) -> Result<Vec<f32>, TooLong> {
        self.distances += cells.len() as u64;
        let dim = self.space.config.dim;
        let mut distances = Vec::with_capacity(cells.len());
        let at_once = (COMPONENTS_AT_ONCE / dim).clamp(1, CENTROIDS_AT_ONCE);
        while !cells.distances(self.query, &mut distances, at_once) {
            self.pace.step(at_once * steps_scored(dim)).await?;
        }
        Ok(distances)
    }
}
