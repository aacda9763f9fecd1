//! Scoring slots by the first codes of their cells, where vectors are given up.
use super::search_state::Search;
use super::{Hit, Points};
use crate::index::Coded;
use crate::pace::{Pace, TooLong};
use crate::quantizer::CellQuery;
use crate::slot::Slot;
use crate::top_k::TopK;

/// The nearest of slots that come one by one, scored by their first codes: what is filed where vectors are given up.
pub(super) struct ByCode<'a> {
    coded: &'a Coded,
    points: &'a Points,
    query: CellQuery,
    /// To all centroids.
    distances: Vec<f32>,
    top: TopK<Hit>,
    row: Vec<u8>,
    scored: u64,
}

impl<'a> ByCode<'a> {
    /// `distances` are those of the query to all centroids.
    pub fn new(
        coded: &'a Coded,
        points: &'a Points,
        query: CellQuery,
        distances: Vec<f32>,
        k: usize,
    ) -> ByCode<'a> {
        ByCode { coded, points, query, distances, top: TopK::new(k), row: Vec::new(), scored: 0 }
    }

    /// False when the slot is not filed: then its vector is there.
    pub fn offer(&mut self, slot: Slot) -> bool {
        let Some((cell, more)) = self.coded.score(slot, &self.query, &mut self.row) else { return false };
        self.scored += 1;
        let distance = self.distances[cell as usize] + more;
        self.top.offer(Hit { id: self.points.id(slot), distance, slot });
        true
    }

    /// Appends what was kept, in no order; how many were scored.
    pub fn finish(self, out: &mut Vec<Hit>) -> u64 {
        out.extend(self.top.into_hits());
        self.scored
    }
}

impl<'a, P: Pace> Search<'a, P> {
    /// For scans of a collection that gives up vectors, once it has cells. Cost: a distance per cell.
    pub(super) async fn by_code(&mut self) -> Result<Option<ByCode<'a>>, TooLong> {
        let space = self.space;
        let cells = if space.config.drops_vectors() { space.index.cells(self.pin) } else { None };
        let Some((cells, coded)) = cells.and_then(|cells| Some((cells, cells.coded()?))) else {
            return Ok(None);
        };
        let distances = self.centroid_distances(cells).await?;
        let mut prepared = CellQuery::default();
        coded.query(&self.query[..space.config.dim], &mut prepared);
        Ok(Some(ByCode::new(coded, self.points, prepared, distances, self.k)))
    }
}
