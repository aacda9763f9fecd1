//! Finding neighbours: greedy descent through the upper levels, then a best-first beam (Algorithms 2 and 5).
use super::links::Links;
use super::{Graph, Scratch, SearchStats};
use crate::index::{Neighbor, Slot};
use crate::pace::{Pace, TooLong, Whole, at_once};

/// How many candidates a walk may still refuse. One that refuses without end (what it looks for is nowhere near, or lies
/// behind a cluster of deleted nodes) would visit the whole graph.
#[derive(Clone, Copy, Default)]
pub(super) struct Patience(pub(super) usize);

impl Patience {
    /// Whether the beam takes a candidate that `fits` or does not.
    #[inline]
    pub(super) fn admits(&mut self, fits: bool) -> bool {
        fits || match self.0.checked_sub(1) {
            Some(left) => {
                self.0 = left;
                false
            }
            None => true,
        }
    }
}

/// Expansions between two questions to the pace: some 100 µs.
pub(super) const EXPANSIONS_PER_STEP: usize = 16;

impl Graph {
    /// The `ef` nearest reachable slots that `admit` accepts, nearest first, ties by slot, walking through others.
    /// `query` is padded and prepared. Stops when `ef` admitted slots are held and the next candidate is farther than
    /// the worst of them; so with few admitted slots it may walk the whole graph. `admit` is asked once for each slot
    /// that comes near enough to matter. Cost: about `ef * 2m / 2` distances, counted in [`Self::stats`].
    ///
    /// The caller is pinned, or otherwise sure that no slot is freed meanwhile.
    ///
    /// # Panics
    /// When `query` is not a padded row.
    pub fn search<'s>(
        &self,
        query: &[f32],
        ef: usize,
        scratch: &'s mut Scratch,
        admit: impl FnMut(Slot) -> bool,
    ) -> &'s [Neighbor] {
        match at_once(self.search_paced(query, ef, &mut Whole::unbounded(), scratch, admit)) {
            Ok(found) => found,
            Err(TooLong) => unreachable!("unbounded"),
        }
    }

    /// As [`Self::search`], at a pace; its steps are distances.
    ///
    /// # Errors
    /// [`TooLong`].
    ///
    /// # Panics
    /// As [`Self::search`].
    pub async fn search_paced<'s>(
        &self,
        query: &[f32],
        ef: usize,
        pace: &mut impl Pace,
        scratch: &'s mut Scratch,
        mut admit: impl FnMut(Slot) -> bool,
    ) -> Result<&'s [Neighbor], TooLong> {
        assert_eq!(query.len(), self.vectors.row_len(), "the query is not a padded row");
        scratch.stats = SearchStats::default();
        scratch.found.clear();
        if ef > 0 {
            let mut counted = 0;
            let mut open = self.begin_level(query, 0, ef, scratch, &mut admit);
            while open {
                open = (0..EXPANSIONS_PER_STEP).all(|_| self.expand(query, 0, scratch, &mut admit));
                let distances = scratch.stats.distances;
                pace.step((distances - counted) as usize).await?;
                counted = distances;
            }
            scratch.found.extend(scratch.pool.admitted());
        }
        Ok(&scratch.found)
    }

    /// Leaves the `ef` nearest admitted nodes of `level` in the pool; none when the graph has no such level.
    pub(super) fn search_level(
        &self,
        query: &[f32],
        level: u8,
        ef: usize,
        scratch: &mut Scratch,
        admit: &mut impl FnMut(Slot) -> bool,
    ) {
        if self.begin_level(query, level, ef, scratch, admit) {
            while self.expand(query, level, scratch, admit) {}
        }
    }

    /// Descends to `level` and prepares its beam; false when the graph has no such level.
    fn begin_level(
        &self,
        query: &[f32],
        level: u8,
        ef: usize,
        scratch: &mut Scratch,
        admit: &mut impl FnMut(Slot) -> bool,
    ) -> bool {
        scratch.pool.reset(ef);
        let Some((entry, top)) = self.entry().filter(|&(_, top)| top >= level) else { return false };
        let mut at = self.begin_descent(query, entry, scratch);
        for above in (level + 1..=top).rev() {
            while let Some(nearer) = self.hop(query, above, at, scratch) {
                at = nearer;
            }
        }
        self.begin_beam(at, ef, scratch, admit);
        true
    }

    /// As [`Self::search_level`], for at most `refusals` slots that do not fit: from then on the beam fills with whatever
    /// comes, which lets the search end. Returns the fitting ones, nearest first; none does not mean that there are none.
    pub(super) fn search_level_with_patience<'s>(
        &self,
        query: &[f32],
        level: u8,
        ef: usize,
        refusals: usize,
        scratch: &'s mut Scratch,
        fits: &'s impl Fn(Slot) -> bool,
    ) -> impl Iterator<Item = Neighbor> + 's {
        let mut patience = Patience(refusals);
        self.search_level(query, level, ef, scratch, &mut |slot| patience.admits(fits(slot)));
        scratch.pool.admitted().filter(|near| fits(near.slot))
    }

    /// Counters of the last search in `scratch`.
    pub fn stats(scratch: &Scratch) -> SearchStats {
        scratch.stats
    }

    /// Scores the entry point.
    pub(super) fn begin_descent(&self, query: &[f32], entry: Slot, scratch: &mut Scratch) -> Neighbor {
        scratch.visited.reset(self.slots_end());
        scratch.visited.insert(entry);
        scratch.fresh.clear();
        scratch.fresh.push(entry);
        self.score(query, scratch);
        Neighbor { distance: scratch.distances[0], slot: entry }
    }

    /// The nearest neighbour of `at` on an upper level if it is nearer than `at` itself. Slots met earlier in the
    /// descent are not scored again: none was nearer than `at`.
    pub(super) fn hop(
        &self,
        query: &[f32],
        level: u8,
        at: Neighbor,
        scratch: &mut Scratch,
    ) -> Option<Neighbor> {
        scratch.fresh.clear();
        self.gather(at.slot, level, scratch);
        self.score(query, scratch);
        scratch.stats.expanded += 1;
        let scored = scratch.fresh.iter().zip(&scratch.distances);
        scored.map(|(&slot, &distance)| Neighbor { distance, slot }).min().filter(|&nearest| nearest < at)
    }

    /// Prepares a beam of width `ef` that starts at `start`.
    pub(super) fn begin_beam(
        &self,
        start: Neighbor,
        ef: usize,
        scratch: &mut Scratch,
        admit: &mut impl FnMut(Slot) -> bool,
    ) {
        scratch.visited.reset(self.slots_end());
        scratch.visited.insert(start.slot);
        scratch.pool.reset(ef);
        scratch.pool.insert(start.order(), admit(start.slot));
    }

    /// Expands the two nearest open nodes of the beam; false when none is left that could matter. Two, because the
    /// first row of a batch is waited for in full: halving the batches is worth 6 % of a search at ef 40, for 2 %
    /// more distances (and slightly more recall).
    #[inline]
    pub(super) fn expand(
        &self,
        query: &[f32],
        level: u8,
        scratch: &mut Scratch,
        admit: &mut impl FnMut(Slot) -> bool,
    ) -> bool {
        let Some(nearest) = scratch.pool.pop() else { return false };
        let second = scratch.pool.pop();
        scratch.fresh.clear();
        self.gather(nearest, level, scratch);
        second.into_iter().for_each(|second| self.gather(second, level, scratch));
        self.score(query, scratch);
        scratch.stats.expanded += 1 + u64::from(second.is_some());
        for (&slot, &distance) in scratch.fresh.iter().zip(&scratch.distances) {
            let order = Neighbor { distance, slot }.order();
            if scratch.pool.wants(order) {
                self.links.prefetch(slot);
                scratch.pool.insert(order, admit(slot));
            }
        }
        true
    }

    /// Adds the neighbours of `slot` that were not met yet to those to be scored.
    #[inline]
    fn gather(&self, slot: Slot, level: u8, scratch: &mut Scratch) {
        let Scratch { visited, fresh, .. } = scratch;
        self.links.for_each(slot, level, |edge| {
            if visited.insert(edge) {
                fresh.push(edge);
            }
        });
        Links::acquire();
    }

    /// Scores what was collected.
    #[inline]
    pub(super) fn score(&self, query: &[f32], scratch: &mut Scratch) {
        let Scratch { fresh, distances, stats, .. } = scratch;
        distances.resize(fresh.len(), 0.0);
        self.distances(query, fresh, distances);
        stats.distances += fresh.len() as u64;
    }

    /// Distances of a padded, prepared row to the vectors of `slots`, for scans: one call for many slots lets their rows be
    /// fetched ahead. The slots are written, and not freed meanwhile (the caller is pinned).
    ///
    /// # Panics
    /// When a slot is out of range, `query` is not a padded row, or `out` is shorter than `slots`.
    pub fn score_all(&self, query: &[f32], slots: &[Slot], out: &mut [f32]) {
        assert_eq!(query.len(), self.vectors.row_len(), "the query is not a padded row");
        assert!(out.len() >= slots.len(), "one distance per slot");
        assert!(slots.iter().all(|&slot| (slot as usize) < self.vectors.capacity()), "slots in range");
        self.distances(query, slots, out);
    }

    /// Distances of a padded row to the vectors of `slots`, all of them below the capacity.
    #[inline]
    pub(super) fn distances(&self, query: &[f32], slots: &[Slot], out: &mut [f32]) {
        debug_assert!(slots.iter().all(|&slot| (slot as usize) < self.vectors.capacity()));
        // SAFETY: slots come from lists (links invariant 1), the entry point or a round, all checked against the
        // capacity when they entered; rows that can be reached are not written (graph invariant 1).
        unsafe { self.kernel.distances(query, self.vectors.row_ptr(0), self.vectors.row_len(), slots, out) }
    }

    /// Distance of two slots' vectors.
    #[inline]
    pub(super) fn distance(&self, a: Slot, b: Slot) -> f32 {
        let (a, b) = (self.vector(a), self.vector(b));
        // SAFETY: two rows of one arena, both padded.
        unsafe { self.kernel.distance_ptr(a.as_ptr(), b.as_ptr(), a.len()) }
    }
}
