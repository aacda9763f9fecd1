//! Searching, on any core.
use super::top_k::{TopK, by_distance_then_id};
use super::{Dense, Hit, Query, SearchError};
use crate::distance::{Kernel, padded, prepare};
use crate::filter::Predicate;
use crate::index::{Graph, Scratch, Slot};
use crate::memory::Pin;
use crate::payload::PayloadRow;
use std::sync::atomic::Ordering;

/// `max_ef_search` when the configuration leaves it at 0.
const MAX_EF_SEARCH_DEFAULT: usize = 1024;

/// Widest beam: its array is moved with each insertion, which from here on costs more than looking at everything.
const EF_MAX: usize = 16_384;

/// What one search sees and counts.
struct View<'a> {
    dense: &'a Dense,
    seq: u64,
    now_ms: u64,
    filter: Option<&'a Predicate>,
    filter_rejects: u64,
    distances: u64,
}

impl View<'_> {
    #[inline]
    fn admits(&mut self, slot: Slot) -> bool {
        self.dense.meta.visible(slot, self.seq, self.now_ms) && self.matches(slot)
    }

    #[inline]
    fn matches(&mut self, slot: Slot) -> bool {
        let Some(filter) = self.filter else { return true };
        // SAFETY: `search` holds a pin, under which `slot` was found visible, so it is not freed meanwhile.
        let row = unsafe { self.dense.meta.row(slot) };
        let row = (!row.is_empty()).then(|| PayloadRow::trusted(row));
        let matches = filter.matches(row, self.now_ms);
        self.filter_rejects += u64::from(!matches);
        matches
    }

    fn offer(&mut self, kernel: Kernel, query: &[f32], slot: Slot, top: &mut TopK) {
        let distance = kernel.distance(query, self.dense.graph.vector(slot));
        self.distances += 1;
        if top.admits(distance) {
            top.offer(Hit { id: self.dense.meta.id(slot), distance, slot });
        }
    }
}

impl Dense {
    /// Any core. Replaces `out` with the `k` nearest visible points, nearest first, ties by id; fewer only when fewer match.
    ///
    /// The beam is `max(ef, k)`, `2k` with a filter. Collections so small that the graph would score most of them anyway
    /// are scanned, exactly, and so is everything when `query.exact`. A walk that meets too many candidates it may
    /// not return (a selective filter, many expired points), or ends with fewer than `k` results, is given up for an exact scan
    /// of all points, so `k` results come whenever `k` points match. Too many is `max(max_ef_search * m, points / 4)`:
    /// a walked candidate costs about three scanned ones, so giving up never doubles the price of scanning at once.
    ///
    /// Cost: about `ef * 2m` distances and one distance per tail slot; for a scan one distance per match.
    /// Allocates the padded query and, for the tail or a scan, a heap of at most `k`.
    ///
    /// # Errors
    /// Wrong length, or a component that is not finite.
    pub fn search(
        &self,
        pin: &Pin<'_>,
        query: &Query<'_>,
        scratch: &mut Scratch,
        out: &mut Vec<Hit>,
    ) -> Result<(), SearchError> {
        // Everything below lives on the caller's pin; nothing here outlives the borrow.
        let _ = pin;
        out.clear();
        if query.vector.len() != self.config.dim {
            return Err(SearchError::DimensionMismatch {
                expected: self.config.dim,
                found: query.vector.len(),
            });
        }
        if let Some(index) = query.vector.iter().position(|component| !component.is_finite()) {
            return Err(SearchError::NotFinite(index));
        }
        if query.k == 0 {
            return Ok(());
        }
        let mut prepared = vec![0.0; padded(self.config.dim)];
        prepare(self.config.metric, query.vector, &mut prepared);

        let mut view = View {
            dense: self,
            seq: self.published_seq.load(Ordering::Acquire),
            now_ms: query.now_ms,
            filter: query.filter.filter(|filter| !filter.is_trivially_true()),
            filter_rejects: 0,
            distances: 0,
        };
        let live = self.live.load(Ordering::Relaxed) as usize;
        let pool = if view.filter.is_some() { query.k.saturating_mul(2) } else { query.k };
        let ef = if query.ef == 0 { self.config.ef_search } else { query.ef }.max(pool);
        let scan_at_once = query.exact || ef > EF_MAX || ef.saturating_mul(self.config.m) >= live;
        if scan_at_once || !self.search_graph(&prepared, query.k, ef, live, &mut view, scratch, out) {
            self.scan(&prepared, query.k, &mut view, out);
        }
        self.counters.distances.fetch_add(view.distances, Ordering::Relaxed);
        if view.filter_rejects > 0 {
            self.counters.filter_rejects.fetch_add(view.filter_rejects, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Graph and tail; false when there may be more matches than were found.
    #[allow(clippy::too_many_arguments)] // One call site; a struct would only rename the list.
    fn search_graph(
        &self,
        query: &[f32],
        k: usize,
        ef: usize,
        live: usize,
        view: &mut View<'_>,
        scratch: &mut Scratch,
        out: &mut Vec<Hit>,
    ) -> bool {
        // Before the graph: what leaves the window from here on is linked before it leaves (see `tail.rs`).
        let window = self.tail.window();
        let widest = match self.config.max_ef_search {
            0 => MAX_EF_SEARCH_DEFAULT,
            ef => ef,
        };
        let mut refusals_left = widest.saturating_mul(self.config.m).max(live / 4);
        let found = self.graph.search(query, ef, scratch, |slot| {
            // Out of patience: admit anything, so that the beam fills and the walk ends.
            refusals_left == 0 || view.admits(slot) || {
                refusals_left -= 1;
                false
            }
        });
        // Only what may end among the first k, ties by id included, is worth the cache line that holds its id.
        let worth = match found.get(k - 1) {
            Some(kth) => found.partition_point(|near| near.distance <= kth.distance).max(k),
            None => found.len(),
        };
        out.extend(found[..worth].iter().map(|near| Hit {
            id: self.meta.id(near.slot),
            distance: near.distance,
            slot: near.slot,
        }));
        view.distances += Graph::stats(scratch).distances;
        if refusals_left == 0 {
            return false;
        }

        let kernel = Kernel::of(self.config.metric);
        let mut top = TopK::new(k);
        for position in window.start..window.end {
            let slot = self.tail.slot(position);
            if view.admits(slot) {
                view.offer(kernel, query, slot, &mut top);
            }
        }
        top.append_to(out);
        // A slot linked meanwhile was found in both places, at the same distance: equal neighbours after sorting.
        out.sort_unstable_by(by_distance_then_id);
        out.dedup_by_key(|hit| hit.slot);
        out.truncate(k);
        out.len() == k
    }

    /// All visible points.
    fn scan(&self, query: &[f32], k: usize, view: &mut View<'_>, out: &mut Vec<Hit>) {
        out.clear();
        let kernel = Kernel::of(self.config.metric);
        let mut top = TopK::new(k);
        // After the snapshot: every slot it includes is below.
        let slots = self.slots.load(Ordering::Acquire) as Slot;
        for first in (0..slots).step_by(64) {
            let special = self.meta.special_word(first as usize / 64);
            for slot in first..slots.min(first.saturating_add(64)) {
                let plain = special >> (slot % 64) & 1 == 0;
                if (plain || self.meta.visible_by_line(slot, view.seq, view.now_ms)) && view.matches(slot) {
                    view.offer(kernel, query, slot, &mut top);
                }
            }
        }
        top.append_to(out);
        out.sort_unstable_by(by_distance_then_id);
    }
}
