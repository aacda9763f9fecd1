//! Searching, on any core: which way a search takes.
use super::cell_order::Passing;
use super::index::Index;
use super::search_state::{Explain, Search};
use super::tail::Window;
use super::tuning::Tuning;
use super::{Hit, Space};
use crate::collection::SearchError;
use crate::collection::points::View;
use crate::distance::{padded, prepare};
use crate::filter::cost::Situation;
use crate::filter::lists::look_up;
use crate::filter::planner::{Gate, Graph as Walked, Plan};
use crate::filter::{Path, Predicate};
use crate::index::{Precision, Scratch};
use crate::memory::Pin;
use crate::pace::{Pace, TooLong, Whole, at_once};
use crate::slot::Slot;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

/// Widest beam: its array is moved with each insertion, which from here on costs more than looking at everything.
const EF_MAX: usize = 16_384;

/// A search.
pub struct Query<'a> {
    /// `dim` floats, unprepared.
    pub vector: &'a [f32],
    /// Results wanted.
    pub k: usize,
    /// Beam override; 0 = collection default. The beam is at least k (2k with a filter).
    pub ef: usize,
    /// Filter.
    pub filter: Option<&'a Predicate>,
    /// Exact instead of graph search.
    pub exact: bool,
    /// Now, Unix ms.
    pub now_ms: u64,
}

/// The points among which candidates are sought.
pub(crate) struct Among<G> {
    /// Whether a point is one of them. It is asked about nearly every edge that the walk meets, so it must be cheap.
    pub gate: G,
    /// The share of all points that are expected to pass.
    pub share: f64,
    /// How many distances the walk may compute before it is given up.
    pub effort: usize,
}

/// What a search among some points costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AmongCost {
    /// How many distances it computes.
    pub distances: f64,
    /// The nanoseconds of one of them, and of looking through what does not pass, without asking the gate.
    pub distance_ns: f64,
    /// The steps of a pace that the walk takes for each distance.
    pub steps: usize,
    /// How often the gate is asked.
    pub asked: f64,
}

impl Space {
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
        self.search_as(Precision::Exact, pin, query, pace, scratch, out).await
    }

    /// Finds points for a caller that computes exact scores itself: like [`Self::search_paced`], but the hits carry the distances that the index
    /// used. In a graph these may be distances of codes; then no vectors are read for exact ones, and the beam is not widened for them. Coarse codes
    /// (binary or product quantization) are the exception: the `k` nearest among their candidates are chosen by exact distances.
    ///
    /// # Errors
    /// As [`Self::search_paced`].
    pub(crate) async fn candidates_paced(
        &self,
        pin: &Pin<'_>,
        query: &Query<'_>,
        pace: &mut impl Pace,
        scratch: &mut Scratch,
        out: &mut Vec<Hit>,
    ) -> Result<Explain, SearchError> {
        self.search_as(self.precision_of_candidates(), pin, query, pace, scratch, out).await
    }

    /// Finds points as [`Self::candidates_paced`] does without a filter, but only among those that pass a gate. The graph is walked in any case.
    /// Fewer than `k` hits may come although more points pass. Returns how the search went, and false if the walk was given up.
    ///
    /// # Errors
    /// As [`Self::search_paced`].
    pub(crate) async fn candidates_among(
        &self,
        pin: &Pin<'_>,
        query: &Query<'_>,
        among: &Among<impl Fn(Slot) -> bool>,
        pace: &mut impl Pace,
        scratch: &mut Scratch,
        out: &mut Vec<Hit>,
    ) -> Result<(Explain, bool), SearchError> {
        out.clear();
        self.check_query(query.vector)?;
        let precision = self.precision_of_candidates();
        let mut prepared = vec![0.0; padded(self.config.dim)];
        prepare(self.config.metric, query.vector, &mut prepared);
        let mut search = self.begin_search(precision, (pin, query, &prepared), pace, scratch, out);
        let walk = search.space.situation(search.ef, false).gated_walk(among.share);
        let walked = Walked {
            gate: Gate::Open,
            leads: walk.leads,
            exact: true,
            widen: walk.widen,
            effort: among.effort,
            selection: None,
        };
        let is_complete = search.search_graph_behind(&walked, &among.gate).await?;
        let explain = search.counted();
        Ok((explain, is_complete))
    }

    async fn search_as(
        &self,
        precision: Precision,
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
        let mut search = self.begin_search(precision, (pin, query, &prepared), pace, scratch, out);
        let scan_at_once = query.exact || self.scans_at_once(search.ef, self.vectors() as usize);
        search.explain.exact = scan_at_once;
        match search.view.filter {
            Some(filter) => search.filtered(filter, scan_at_once).await?,
            None if scan_at_once => search.scan().await?,
            None => search.unfiltered().await?,
        }
        Ok(search.counted())
    }

    /// A search that sees the points of this moment. `prepared` is the vector of the query as the space compares it.
    fn begin_search<'a, P>(
        &'a self,
        precision: Precision,
        (pin, query, prepared): (&'a Pin<'a>, &Query<'a>, &'a [f32]),
        pace: &'a mut P,
        scratch: &'a mut Scratch,
        out: &'a mut Vec<Hit>,
    ) -> Search<'a, P> {
        let (view, window) = self.view_at(pin, query.filter, query.now_ms);
        let tuning = self.tuning.get();
        let ef = self.beam_of(tuning, query.k, query.ef, precision, view.filter.is_some());
        Search {
            tuning,
            space: self,
            points: &self.points,
            pin,
            query: prepared,
            k: query.k,
            ef,
            precision,
            live: self.points.live() as usize,
            view,
            window,
            distances: 0,
            pace,
            scratch,
            out,
            explain: Explain::default(),
        }
    }

    /// A snapshot of the points as of now, and the window of the tail that goes with it, for as long as the pin lives.
    pub(crate) fn view_at<'a>(
        &'a self,
        pin: &'a Pin<'_>,
        filter: Option<&'a Predicate>,
        now_ms: u64,
    ) -> (View<'a>, Window) {
        // The start of the tail comes before the snapshot: a slot that dies after it may leave the tail without ever having been in the
        // index, and what took its place is too new. The end comes after: what the snapshot includes is before it.
        let start = self.tail.start();
        let view = self.points.view_to_plan(pin, filter, now_ms);
        (view, self.tail.window_from(start))
    }

    /// Whether the index would have most of so many live points scored anyway, so that all of them are.
    fn scans_at_once(&self, ef: usize, live: usize) -> bool {
        match &self.index {
            Index::Graph => ef > EF_MAX || ef.saturating_mul(self.config.m) >= live,
            Index::Cells(_) => self.probed().is_none(),
        }
    }

    /// The number of candidates from which on a search for them compares all points instead of walking a graph; `None` if there is no graph.
    pub(crate) fn most_walked_for(&self) -> Option<usize> {
        let beam_per_candidate = match self.precision_of_candidates() {
            Precision::Exact => self.tuning.get().rescored_per_result.max(1),
            Precision::AsCompared => 1,
        };
        matches!(self.index, Index::Graph).then_some(EF_MAX / beam_per_candidate)
    }

    /// How wide the beam of a query is.
    fn beam_of(&self, tuning: Tuning, k: usize, ef: usize, precision: Precision, has_filter: bool) -> usize {
        let rescored = match precision {
            Precision::Exact => k.saturating_mul(tuning.rescored_per_result),
            Precision::AsCompared => 0,
        };
        let pool = if has_filter { k.saturating_mul(2) } else { k }.max(rescored);
        if ef == 0 { tuning.beam } else { ef }.max(pool)
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
            && let Some(cells) = self.index.cells(pin)
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

    /// About what [`Self::candidates_among`] costs for `k` candidates with this beam (0 = the collection's) if this share of the points passes the
    /// gate; `None` if there is no graph to walk, or so few points that all are
    /// compared.
    pub(crate) fn candidates_among_cost(&self, k: usize, ef: usize, share: f64) -> Option<AmongCost> {
        let ef = self.beam_of(self.tuning.get(), k, ef, self.precision_of_candidates(), false);
        let has_walk = matches!(self.index, Index::Graph) && !self.scans_at_once(ef, self.vectors() as usize);
        let situation = self.situation(ef, false);
        let walk = situation.gated_walk(share);
        let distance_ns = situation.walked_ns() + walk.look_ns;
        let steps = self.graph.steps_per_walked_distance();
        has_walk.then(|| AmongCost {
            distances: walk.distances,
            distance_ns,
            steps,
            asked: situation.asked(share),
        })
    }

    /// About how many nanoseconds [`Self::candidates_paced`] takes for `k` candidates without a filter, with this beam (0 = the collection's).
    pub(crate) fn candidates_ns(&self, k: usize, ef: usize) -> f64 {
        let ef = self.beam_of(self.tuning.get(), k, ef, self.precision_of_candidates(), false);
        let situation = self.situation(ef, false);
        if self.scans_at_once(ef, self.vectors() as usize) {
            situation.scan_ns()
        } else {
            situation.walk_ns()
        }
    }

    /// The kind of distances that candidates need: those that the index uses, unless its codes are coarse.
    fn precision_of_candidates(&self) -> Precision {
        if self.graph.compares_finely() { Precision::AsCompared } else { Precision::Exact }
    }

    /// What the planner goes by.
    pub(crate) fn situation(&self, ef: usize, exact: bool) -> Situation {
        Situation {
            live: self.points.live(),
            filed: self.points.filed(),
            slots: self.points.slots() as usize,
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
        let (space, points, pin) = (self.space, self.points, self.pin);
        // Cells are left when there are enough; a beam says nothing about them.
        let ef = match &space.index {
            Index::Graph => self.ef,
            Index::Cells(_) => self.k,
        };
        let situation = space.situation(ef, scan_at_once);
        let lists = look_up(filter, points.index(pin), self.view.ids.clone(), &situation, self.pace).await?;
        let (plan, estimate) = points.planned(filter, pin, &lists, &situation, &self.view);
        self.explain = Explain { estimate, path: estimate.path, ..self.explain };
        self.follow(plan).await
    }

    /// The index, and a scan when it may not have led to all.
    async fn unfiltered(&mut self) -> Result<(), TooLong> {
        let open = Walked {
            gate: Gate::Open,
            leads: false,
            exact: false,
            widen: 1.0,
            effort: usize::MAX,
            selection: None,
        };
        if !self.search_index(&open, 1.0).await? {
            self.explain.exact = true;
            self.scan().await?;
        }
        Ok(())
    }

    /// What passes the gate and lies near, by the index, and the tail. `share` of the points are expected to pass. False when there may be
    /// more matches than were found.
    async fn search_index(&mut self, walked: &Walked<'_>, share: f64) -> Result<bool, TooLong> {
        match &self.space.index {
            Index::Graph => self.search_graph(walked).await,
            Index::Cells(_) => {
                let passing = Passing { gate: &walked.gate, exact: walked.exact, share };
                self.explain.exact = self.probe(&passing).await?;
                Ok(true)
            }
        }
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
        let expected = self.explain.estimate.expected;
        let share = expected.map_or(1.0, |expected| expected as f64 / self.live.max(1) as f64);
        if self.search_index(&walked, share).await? {
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
        let counters = &self.space.counters;
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
        let (distances, View { filter_rejects: rejects, .. }) = (self.distances, self.view);
        self.space.counters.distances.fetch_add(distances, Ordering::Relaxed);
        self.points.count_rejects(rejects);
        Explain { distances, rejects, ..self.explain }
    }
}
