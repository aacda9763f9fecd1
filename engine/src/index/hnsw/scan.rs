//! Distances to many slots of which only the nearest matter: codes tell which are too far to be looked at.
use super::Graph;
use super::codes::{Bound, Codes};
use crate::distance::CodeQuery;
use crate::index::Slot;

/// A query over many slots. Exact: what is left out is certainly farther than what was to be beaten.
pub struct Scan<'a> {
    graph: &'a Graph,
    query: &'a [f32],
    /// Made when it is first of use: a scan of few slots has nothing to beat.
    coded: Option<(&'a Codes, CodeQuery, Bound)>,
}

impl<'a> Scan<'a> {
    /// For a padded, prepared `query`.
    ///
    /// # Panics
    /// When `query` is not a padded row.
    pub fn new(graph: &'a Graph, query: &'a [f32]) -> Self {
        assert_eq!(query.len(), graph.vectors.row_len(), "the query is not a padded row");
        Scan { graph, query, coded: None }
    }

    fn coded(&mut self) -> Option<(&'a Codes, &CodeQuery, Bound)> {
        if self.coded.is_none() {
            let codes = self.graph.codes.as_ref()?;
            let mut code = CodeQuery::default();
            codes.set_query(&mut code, self.query, codes.step()?);
            let bound = codes.bound(&code, self.query);
            self.coded = Some((codes, code, bound));
        }
        self.coded.as_ref().map(|(codes, code, bound)| (*codes, code, *bound))
    }

    /// Leaves in `slots` those whose distance may be `to_beat` or less (all where it is `None`), with their exact distances in
    /// `distances`. The slots were visible when the scan began, and are not freed meanwhile (the caller is pinned).
    ///
    /// Cost: a code's distance each, and an exact one for those that are left; once, a code of the query.
    ///
    /// # Panics
    /// When a slot is out of range.
    pub fn score(&mut self, slots: &mut Vec<Slot>, to_beat: Option<f32>, distances: &mut Vec<f32>) {
        let capacity = self.graph.vectors.capacity();
        assert!(slots.iter().all(|&slot| (slot as usize) < capacity), "slots in range");
        distances.resize(slots.len(), 0.0);
        if let Some(to_beat) = to_beat
            && let Some((codes, code, bound)) = self.coded()
        {
            codes.distances(code, slots, distances);
            let mut coded = distances.iter();
            // What cannot be compared (NaN) stays.
            let too_far = |coded: &f32| bound.lowest(*coded) > to_beat;
            slots.retain(|_| coded.next().is_none_or(|coded| !too_far(coded)));
            distances.truncate(slots.len());
        }
        self.graph.distances(self.query, slots, distances);
    }
}
