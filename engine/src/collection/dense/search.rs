//! Searching, on any core: which way a search takes.
use super::cell_order::Passing;
use super::search_state::{Explain, Search};
use super::view::View;
use super::{Dense, Hit, Query, SearchError};
use crate::distance::{padded, prepare};
use crate::filter::cost::Situation;
use crate::filter::lists::look_up;
use crate::filter::narrow::Lists;
use crate::filter::planner::{Gate, Graph as Walked, Plan, plan};
use crate::filter::{Estimate, Path, Predicate};
use crate::index::Scratch;
use crate::memory::Pin;
use crate::pace::{Pace, TooLong, Whole, at_once};
use crate::slot::Slot;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

/// Widest beam: its array is moved with each insertion, which from here on costs more than looking at everything.
const EF_MAX: usize = 16_384;

impl Dense {
    /// Any core. Replaces `out` with the `k` nearest visible points, nearest first, ties by id; fewer only when fewer match.
    ///
    /// The beam is `max(ef, k)`, `2k` with a filter, `rescore_factor` times `k` with a quantizer. Collections so small that the
    /// graph would score most of them anyway are scanned, exactly, and so is everything when `query.exact`. With a filter the
    /// planner decides by cost (`filter::planner`): the points the payload index names are scored, or the graph is walked among those
    /// that pass a gate, or asking the predicate. Only what matches fills the beam, so it never has to be widened and walked again.
    /// A walk that meets too many candidates it may not return, spends more than the exact way would have cost, or ends with
    /// fewer than `k` results, is given up for an exact scan of the matching points, so `k` results come whenever `k` points match.
    /// For a walk that asks the predicate too many is `max(max_ef_search * m, points / 4)`: a walked candidate costs about three
    /// scanned ones, so giving up never doubles the price of scanning at once.
    ///
    /// Cost: about `ef * 2m` distances and one distance per tail slot; for a scan one distance per match.
    /// Allocates the padded query, for the tail or a scan a heap of at most `k`, for a gate one bit per slot.
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
        self.search_explained(pin, query, scratch, out).map(|_| ())
    }

    /// As [`Self::search`], and says how.
    ///
    /// # Errors
    /// As [`Self::search`].
    pub fn search_explained(
        &self,
        pin: &Pin<'_>,
        query: &Query<'_>,
        scratch: &mut Scratch,
        out: &mut Vec<Hit>,
    ) -> Result<Explain, SearchError> {
        at_once(self.search_paced(pin, query, &mut Whole::unbounded(), scratch, out))
    }

    /// As [`Self::search_explained`], at a pace. What changes between its pieces does not show: the search sees the points of the
    /// moment it began, with the payloads of the moment each is looked at.
    ///
    /// # Errors
    /// As [`Self::search`], and [`SearchError::TooLong`].
    pub async fn search_paced(
        &self,
        pin: &Pin<'_>,
        query: &Query<'_>,
        pace: &mut impl Pace,
        scratch: &mut Scratch,
        out: &mut Vec<Hit>,
    ) -> Result<Explain, SearchError> {
        out.clear();
        self.check_query(query.vector)?;
        if query.k == 0 {
            return Ok(Explain { exact: true, ..Explain::default() });
        }
        let mut prepared = vec![0.0; padded(self.config.dim)];
        prepare(self.config.metric, query.vector, &mut prepared);

        let view = self.view_at(pin, query.filter, query.now_ms);
        let ef = self.beam_of(query, view.filter.is_some());
        let live = self.live.load(Ordering::Relaxed) as usize;
        let scan_at_once = query.exact
            || match self.config.ivf() {
                Some(_) => self.probed().is_none(),
                None => ef > EF_MAX || ef.saturating_mul(self.config.m) >= live,
            };
        let explain = Explain { exact: scan_at_once, ..Explain::default() };
        let (query, k) = (&prepared[..], query.k);
        let mut search = Search { dense: self, pin, query, k, ef, live, view, pace, scratch, out, explain };
        match search.view.filter {
            Some(filter) => search.filtered(filter, scan_at_once).await?,
            None if scan_at_once => search.scan().await?,
            None => search.unfiltered().await?,
        }
        Ok(search.counted())
    }

    /// How wide the beam of a query is.
    fn beam_of(&self, query: &Query<'_>, has_filter: bool) -> usize {
        let rescored = query.k.saturating_mul(self.config.rescored_per_result());
        let pool = if has_filter { query.k.saturating_mul(2) } else { query.k }.max(rescored);
        if query.ef == 0 { self.config.beam() } else { query.ef }.max(pool)
    }

    /// Whether a query vector fits.
    ///
    /// # Errors
    /// Wrong length, or a component that is not finite.
    pub(crate) fn check_query(&self, vector: &[f32]) -> Result<(), SearchError> {
        if vector.len() != self.config.dim {
            return Err(SearchError::DimensionMismatch { expected: self.config.dim, found: vector.len() });
        }
        match vector.iter().position(|component| !component.is_finite()) {
            Some(index) => Err(SearchError::NotFinite(index)),
            None => Ok(()),
        }
    }

    /// The padded vector of a slot found under this pin.
    pub(crate) fn stored_vector<'p>(&'p self, pin: &'p Pin<'_>, slot: Slot) -> Cow<'p, [f32]> {
        // Filed after these cells were loaded: then its floats are there as long as this pin is.
        if self.config.drops_vectors()
            && let Some(cells) = self.cells(pin)
        {
            let mut vector = vec![0.0; padded(self.config.dim)];
            if cells.decode(slot, &mut vector) {
                return Cow::Owned(vector);
            }
        }
        // Bare since this pin was taken: then its floats are there as long as the pin is.
        if self.graph.is_bare() {
            let mut vector = vec![0.0; padded(self.config.dim)];
            if self.graph.decode(slot, &mut vector) {
                return Cow::Owned(vector);
            }
        }
        Cow::Borrowed(self.graph.vector(slot))
    }

    /// The planner's choice. One that leaves points out by complements holds only if no row was replaced since `view` was taken, or
    /// every point is asked.
    pub(super) fn planned<'p>(
        &'p self,
        filter: &Predicate,
        pin: &'p Pin<'_>,
        lists: &Lists<'_>,
        situation: &Situation,
        view: &View<'_>,
    ) -> (Plan<'p>, Estimate) {
        let (chosen, estimate) = plan(filter, self.index.view(pin), lists, situation);
        if estimate.by_complement && view.was_replaced() {
            return (Plan::Everything, Estimate { path: Path::Everything, ..estimate });
        }
        (chosen, estimate)
    }

    /// What the planner goes by.
    pub(super) fn situation(&self, ef: usize, exact: bool) -> Situation {
        let live = self.live.load(Ordering::Relaxed);
        Situation {
            live,
            filed: live + self.tombstoned.load(Ordering::Relaxed),
            slots: self.slots.load(Ordering::Acquire) as usize,
            dim: self.config.dim,
            codes: self.graph.code_step().is_some() || self.graph.is_quantized(),
            m: self.config.m,
            ef,
            probed: self.probed(),
            exact,
            relative_bp: u64::from(self.config.filter_first_relative_bp),
        }
    }
}

impl<P: Pace> Search<'_, P> {
    /// The way that the planner chooses.
    async fn filtered(&mut self, filter: &Predicate, scan_at_once: bool) -> Result<(), TooLong> {
        let (dense, pin) = (self.dense, self.pin);
        // Cells are left when there are enough; a beam says nothing about them.
        let ef = if dense.cells.is_some() { self.k } else { self.ef };
        let situation = dense.situation(ef, scan_at_once);
        let lists = look_up(filter, dense.index.view(pin), &situation, self.pace).await?;
        let (plan, estimate) = dense.planned(filter, pin, &lists, &situation, &self.view);
        self.explain = Explain { estimate, path: estimate.path, ..self.explain };
        self.follow(plan).await
    }

    /// Cells or the graph, and a scan when the graph may not have led to all.
    async fn unfiltered(&mut self) -> Result<(), TooLong> {
        if self.dense.cells.is_some() {
            self.explain.exact = self.probe(&Passing::ALL).await?;
            return Ok(());
        }
        let open = Walked {
            gate: Gate::Open,
            leads: false,
            exact: false,
            widen: 1.0,
            effort: usize::MAX,
            selection: None,
        };
        if !self.search_graph(&open).await? {
            self.explain.exact = true;
            self.scan().await?;
        }
        Ok(())
    }

    /// Carries a plan out.
    async fn follow(&mut self, plan: Plan<'_>) -> Result<(), TooLong> {
        let walked = match plan {
            Plan::Nothing => {
                self.explain.exact = true;
                return Ok(());
            }
            Plan::Points { walk, exact } => {
                self.explain.exact = true;
                return self.score_points(walk, exact).await;
            }
            Plan::Everything => {
                self.explain.exact = true;
                return self.scan().await;
            }
            Plan::Graph(walked) => walked,
        };
        self.count_gate(&walked);
        if self.dense.cells.is_some() {
            let expected = self.explain.estimate.expected;
            let share = expected.map_or(1.0, |expected| expected as f64 / self.live.max(1) as f64);
            let passing = Passing { gate: &walked.gate, exact: walked.exact, share };
            self.explain.exact = self.probe(&passing).await?;
            return Ok(());
        }
        if self.search_graph(&walked).await? {
            return Ok(());
        }
        self.explain.exact = true;
        self.out.clear();
        match walked.selection.and_then(|selection| selection.walk(usize::MAX)) {
            Some((walk, whole)) => {
                self.explain.path = Path::Points;
                // A complement's bits say less than the terms do, but to ask once more is only a cost.
                self.score_points(walk, whole && walked.exact).await
            }
            None => {
                self.explain.path = Path::Everything;
                self.scan().await
            }
        }
    }

    fn count_gate(&self, walked: &Walked<'_>) {
        let counters = &self.dense.counters;
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        if !matches!(walked.gate, Gate::Open) {
            count(&counters.filter_gates);
        }
        match self.explain.path {
            Path::Complement => _ = count(&counters.filter_complement_gates),
            Path::Column => _ = count(&counters.filter_column_gates),
            _ => {}
        }
    }

    /// How the search went, which the collection's counters are told as well.
    fn counted(self) -> Explain {
        let View { distances, filter_rejects: rejects, .. } = self.view;
        let counters = &self.dense.counters;
        counters.distances.fetch_add(distances, Ordering::Relaxed);
        if rejects > 0 {
            counters.filter_rejects.fetch_add(rejects, Ordering::Relaxed);
        }
        Explain { distances, rejects, ..self.explain }
    }
}
