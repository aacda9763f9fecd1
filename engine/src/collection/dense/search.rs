//! Searching, on any core.
use super::hit_order::by_distance_then_id;
use super::probe::Passing;
use super::tail::Window;
use super::{Dense, Hit, Query, SearchError};
use crate::distance::{padded, prepare};
use crate::filter::lists::{Lists, look_up};
use crate::filter::planner::{Gate, Graph as Walked, Plan, Situation, bit, plan};
use crate::filter::{Allowance, Estimate, Path, Predicate};
use crate::index::{Admit, Graph, Scan, Scratch, Slot};
use crate::memory::Pin;
use crate::pace::{Pace, TooLong, Whole, at_once};
use crate::payload::PayloadRow;
use crate::top_k::TopK;
use ahash::HashMap;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

/// `max_ef_search` when the configuration leaves it at 0.
const MAX_EF_SEARCH_DEFAULT: usize = 1024;

/// Widest beam: its array is moved with each insertion, which from here on costs more than looking at everything.
const EF_MAX: usize = 16_384;

/// Slots scored per call of the kernel.
const CHUNK: usize = 64;

/// Slots of a scan between two questions to the pace; a multiple of 64.
pub(super) const SCAN_PART: Slot = 256;
/// Looks into the payload index that make a step.
const LOOKS_PER_STEP: usize = 4;
/// Rows fetched ahead of the one that the predicate is asked about.
pub(super) const ROWS_AHEAD: usize = 8;

/// Candidates of a scan that are scored in one piece where codes tell too few apart: under 1 ms.
const CROWD_SCORED: usize = 2048;

/// What a distance costs in steps.
pub(super) fn steps_scored(dim: usize) -> usize {
    1 + dim / 768
}

/// A pace to which questions to the predicate count as well, and which renews what they may take.
struct Asking<'a, P> {
    pace: &'a mut P,
    allowance: &'a Allowance,
}

impl<P: Pace> Pace for Asking<'_, P> {
    async fn step(&mut self, steps: usize) -> Result<(), TooLong> {
        self.pace.step(steps + self.allowance.renew(WALK_ALLOWANCE_NS)).await
    }

    fn foresee(&self, steps: usize) -> Result<(), TooLong> {
        self.pace.foresee(steps)
    }
}

/// Nanoseconds of questions between two calls of the pace: of scans, and of walks, where one answered later means to walk again.
const PIECE_ALLOWANCE_NS: u64 = 200_000;
const WALK_ALLOWANCE_NS: u64 = 1_000_000;
/// Answers that took longer than this are not asked for twice.
const REMEMBERED_NS: u64 = 1_000;
/// Most answers remembered, at 16 bytes each; a walk that would need more is given up for the exact way.
const ANSWERS_MAX: usize = 1 << 20;

/// How a search went, for `explain`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Explain {
    /// What the planner expected of the filter; all default without one.
    pub estimate: Estimate,
    /// The way that gave the result: another than the estimate's when a walk was given up.
    pub path: Path,
    /// The result is exact.
    pub exact: bool,
    /// Distances computed; in a scan one for each point, whether by its code alone or exactly as well.
    pub distances: u64,
    /// Candidates that the filter refused: by the predicate, or by a gate where it came near.
    pub rejects: u64,
}

/// What one search sees and counts.
pub(super) struct View<'a> {
    pub dense: &'a Dense,
    pub seq: u64,
    /// Of the tail, from before the snapshot: what left it since is dead, or was linked or filed before it left (see `tail.rs`).
    pub window: Window,
    pub now_ms: u64,
    pub filter: Option<&'a Predicate>,
    pub filter_rejects: u64,
    pub distances: u64,
    /// What questions to the filter may still take in this piece of the search.
    allowance: Allowance,
    /// Visible slots of which the allowance did not suffice to say whether they match.
    pub open: Vec<Slot>,
    /// Payloads replaced before anything was looked up.
    replacements: u64,
}

impl View<'_> {
    /// Whether a slot that the index names matches, with `exact` by its word. That it gave for the rows of the time: a
    /// slot whose row is replaced meanwhile may be found under terms of both, which neither has. A slot of which that stays open
    /// is added to those that are settled later, and does not match for now.
    #[inline]
    pub fn confirms(&mut self, slot: Slot, exact: bool) -> bool {
        (exact && !self.was_replaced()) || self.matches(slot)
    }

    /// Whether some point's row was replaced since this view was taken.
    #[inline]
    pub fn was_replaced(&self) -> bool {
        self.dense.index.replacements() != self.replacements
    }

    #[inline]
    pub fn visible(&self, slot: Slot) -> bool {
        self.dense.meta.visible(slot, self.seq, self.now_ms)
    }

    /// What asking the predicate costs in steps.
    pub fn steps_asked(&self) -> usize {
        self.filter.map_or(0, Predicate::steps)
    }

    #[inline]
    pub fn admits(&mut self, slot: Slot) -> bool {
        self.visible(slot) && self.matches(slot)
    }

    /// Whether a visible slot matches, as [`Self::confirms`] has it.
    #[inline]
    pub fn matches(&mut self, slot: Slot) -> bool {
        let Some(filter) = self.filter else { return true };
        let answer = filter.ask(self.row(slot), self.now_ms, &self.allowance);
        self.count(slot, answer).unwrap_or(false)
    }

    /// As [`Self::matches`], within an allowance that others keep; `None` when it stays open.
    #[inline]
    pub fn ask(&mut self, slot: Slot, allowance: &Allowance) -> Option<bool> {
        let Some(filter) = self.filter else { return Some(true) };
        let answer = filter.ask(self.row(slot), self.now_ms, allowance);
        self.filter_rejects += u64::from(answer == Some(false));
        answer
    }

    #[inline]
    fn count(&mut self, slot: Slot, answer: Option<bool>) -> Option<bool> {
        match answer {
            Some(false) => self.filter_rejects += 1,
            Some(true) => {}
            None => self.open.push(slot),
        }
        answer
    }

    /// The payload of a slot that was found visible under the pin of the search.
    #[inline]
    fn row(&self, slot: Slot) -> Option<PayloadRow<'_>> {
        // SAFETY: `search` holds a pin, under which `slot` was found visible, so it is not freed meanwhile.
        let row = unsafe { self.dense.meta.row(slot) };
        (!row.is_empty()).then(|| PayloadRow::trusted(row))
    }

    /// Lets every question take what it takes: nobody waits.
    pub fn unhurried(mut self) -> Self {
        self.allowance = Allowance::unbounded();
        self
    }

    /// Steps that questions have taken since this was asked last, to be told to the pace; what comes has a whole allowance again.
    pub fn steps_taken(&self) -> usize {
        self.allowance.renew(PIECE_ALLOWANCE_NS)
    }

    /// Whether so much has been asked that others should get their turn.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.allowance.is_spent()
    }

    /// Whether a slot matches that was left open, however long that takes.
    pub async fn settle(&mut self, slot: Slot, pace: &mut impl Pace) -> Result<bool, TooLong> {
        let Some(filter) = self.filter else { return Ok(true) };
        let matches = filter.ask_in_pieces(self.row(slot), self.now_ms, pace).await?;
        self.filter_rejects += u64::from(!matches);
        Ok(matches)
    }

    /// Hands on those of the slots left open that match.
    pub async fn settle_open(
        &mut self,
        pace: &mut impl Pace,
        mut each: impl FnMut(Slot),
    ) -> Result<(), TooLong> {
        while let Some(slot) = self.open.pop() {
            if self.settle(slot, pace).await? {
                each(slot);
            }
        }
        Ok(())
    }
}

/// What a walk knows of slots whose questions took longer than a moment, so that it can be walked again when they are answered.
#[derive(Default)]
struct Answers {
    known: HashMap<Slot, bool>,
    /// Once some question stayed open: then the walk is walked again, and what took long is not asked twice.
    remembers: bool,
}

/// What a walk returns: visible points that match.
struct Admission<'a, 'v> {
    view: &'a mut View<'v>,
    /// What the walk meets matches.
    exact: bool,
    /// Once these are used up everything is admitted, so that the beam fills and the walk ends.
    refusals_left: usize,
    /// What questions may take until the pace is called, which renews it.
    allowance: &'a Allowance,
    answers: &'a mut Answers,
    /// Slots whose questions stayed open. They are admitted for now: the walk ends soon, and is walked again when they are answered.
    open: Vec<Slot>,
}

impl Admission<'_, '_> {
    #[inline]
    fn matches(&mut self, slot: Slot) -> bool {
        if self.exact && !self.view.was_replaced() {
            return true;
        }
        if self.answers.remembers {
            return self.matches_again(slot);
        }
        self.view.ask(slot, self.allowance).unwrap_or_else(|| {
            self.answers.remembers = true;
            self.open.push(slot);
            true
        })
    }

    #[cold]
    fn matches_again(&mut self, slot: Slot) -> bool {
        if let Some(&known) = self.answers.known.get(&slot) {
            return known;
        }
        let before = self.allowance.spent_ns();
        let Some(answer) = self.view.ask(slot, self.allowance) else {
            self.open.push(slot);
            return true;
        };
        if self.allowance.spent_ns() - before > REMEMBERED_NS {
            self.answers.known.insert(slot, answer);
        }
        answer
    }
}

impl Admit for Admission<'_, '_> {
    #[inline]
    fn admits(&mut self, slot: Slot) -> bool {
        let admitted = self.view.visible(slot) && self.matches(slot);
        self.refusals_left == 0 || admitted || {
            self.refusals_left -= 1;
            false
        }
    }

    /// The predicate follows a line to a row.
    #[inline]
    fn looks_ahead(&self) -> bool {
        !self.exact && self.view.filter.is_some()
    }

    #[inline]
    fn scored(&self, slot: Slot) {
        self.view.dense.meta.prefetch_line(slot);
    }

    #[inline]
    fn near(&self, slot: Slot) {
        self.view.dense.meta.prefetch_row(slot);
    }
}

/// What passes a gate first.
struct Gated<'a, A, G> {
    gate: G,
    admission: &'a mut A,
    rejects: u64,
}

impl<A: Admit, G: Fn(Slot) -> bool> Admit for Gated<'_, A, G> {
    #[inline]
    fn admits(&mut self, slot: Slot) -> bool {
        let passes = (self.gate)(slot);
        self.rejects += u64::from(!passes);
        passes && self.admission.admits(slot)
    }

    #[inline]
    fn looks_ahead(&self) -> bool {
        self.admission.looks_ahead()
    }

    #[inline]
    fn scored(&self, slot: Slot) {
        self.admission.scored(slot);
    }

    #[inline]
    fn near(&self, slot: Slot) {
        if (self.gate)(slot) {
            self.admission.near(slot);
        }
    }
}

/// The nearest of slots that come one by one, scored in chunks.
pub(super) struct Scorer<'a> {
    scan: Scan<'a>,
    k: usize,
    top: TopK<Hit>,
    chunk: Vec<Slot>,
    distances: Vec<f32>,
    scored: u64,
}

impl<'a> Scorer<'a> {
    /// After the snapshot of what is visible.
    pub fn new(graph: &'a Graph, query: &'a [f32], k: usize) -> Self {
        Scorer {
            scan: Scan::new(graph, query, k),
            k,
            top: TopK::new(k),
            chunk: Vec::with_capacity(CHUNK),
            distances: Vec::with_capacity(CHUNK),
            scored: 0,
        }
    }

    #[inline]
    pub fn push(&mut self, dense: &Dense, slot: Slot) {
        self.chunk.push(slot);
        if self.chunk.len() == CHUNK {
            self.sift(dense);
        }
    }

    fn sift(&mut self, dense: &Dense) {
        self.scored += self.chunk.len() as u64;
        if !self.scan.sift(&self.chunk) {
            return self.score(dense);
        }
        self.chunk.clear();
        if self.scan.is_crowded() {
            self.score_crowd(dense);
        }
    }

    /// As many candidates as came since, were nothing left out: the cost of a scan without codes.
    #[cold]
    fn score_crowd(&mut self, dense: &Dense) {
        for _ in 0..CROWD_SCORED / CHUNK {
            self.scan.some(CHUNK, &mut self.chunk);
            self.score(dense);
        }
    }

    fn score(&mut self, dense: &Dense) {
        self.scan.score(&self.chunk, &mut self.distances);
        for (&slot, &distance) in self.chunk.iter().zip(&self.distances) {
            // Spares the look-up of the id. Equal goes on to the comparison by id, and so does what cannot be compared (NaN).
            let beaten =
                |worst: &Hit| distance.partial_cmp(&worst.distance) == Some(std::cmp::Ordering::Greater);
            if !self.top.to_beat().is_some_and(beaten) {
                self.top.offer(Hit { id: dense.meta.id(slot), distance, slot });
            }
        }
        self.chunk.clear();
    }

    /// Appends what was kept, in no order; the number of distances.
    pub async fn finish(
        mut self,
        dense: &Dense,
        pace: &mut impl Pace,
        out: &mut Vec<Hit>,
    ) -> Result<u64, TooLong> {
        if self.scored == 0 {
            // So few that codes are not worth their making.
            self.scored = self.chunk.len() as u64;
            self.score(dense);
        } else {
            self.sift(dense);
        }
        loop {
            let to_beat = self.top.to_beat().map(|worst| worst.distance);
            let at_once = if to_beat.is_none() { self.k.clamp(CHUNK / 8, CHUNK) } else { CHUNK / 8 };
            self.scan.nearest(to_beat, at_once, &mut self.chunk);
            if self.chunk.is_empty() {
                break;
            }
            pace.step(self.chunk.len() * steps_scored(dense.config.dim)).await?;
            self.score(dense);
        }
        out.extend(self.top.into_hits());
        Ok(self.scored)
    }
}

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

        let mut view = self.view_at(query.filter, query.now_ms);
        let live = self.live.load(Ordering::Relaxed) as usize;
        let rescored = query.k.saturating_mul(self.config.rescored_per_result());
        let pool = if view.filter.is_some() { query.k.saturating_mul(2) } else { query.k }.max(rescored);
        let ef = if query.ef == 0 { self.config.beam() } else { query.ef }.max(pool);
        let scan_at_once = query.exact
            || match self.config.ivf() {
                Some(_) => self.probed().is_none(),
                None => ef > EF_MAX || ef.saturating_mul(self.config.m) >= live,
            };
        let mut explain = Explain { exact: scan_at_once, ..Explain::default() };
        match view.filter {
            Some(filter) => {
                // Cells are left when there are enough; a beam says nothing about them.
                let ef = if self.cells.is_some() { query.k } else { ef };
                let situation = self.situation(ef, scan_at_once);
                let lists = look_up(filter, self.index.view(pin), &situation, pace).await?;
                let (plan, estimate) = self.planned(filter, pin, &lists, &situation, &view);
                explain = Explain { estimate, path: estimate.path, ..explain };
                self.follow(
                    plan,
                    pin,
                    &prepared,
                    query.k,
                    ef,
                    live,
                    &mut view,
                    pace,
                    scratch,
                    out,
                    &mut explain,
                )
                .await?;
            }
            None if scan_at_once => self.scan(pin, &prepared, query.k, &mut view, pace, out).await?,
            None if self.cells.is_some() => {
                let passing = Passing { gate: &Gate::Open, exact: false, share: 1.0 };
                explain.exact = self.probe(pin, &prepared, query.k, &passing, &mut view, pace, out).await?;
            }
            None => {
                let open = Walked {
                    gate: Gate::Open,
                    leads: false,
                    exact: false,
                    widen: 1.0,
                    effort: usize::MAX,
                    selection: None,
                };
                if !self
                    .search_graph(&prepared, query.k, ef, live, &open, &mut view, pace, scratch, out)
                    .await?
                {
                    explain.exact = true;
                    self.scan(pin, &prepared, query.k, &mut view, pace, out).await?;
                }
            }
        }
        explain.distances = view.distances;
        explain.rejects = view.filter_rejects;
        self.counters.distances.fetch_add(view.distances, Ordering::Relaxed);
        if view.filter_rejects > 0 {
            self.counters.filter_rejects.fetch_add(view.filter_rejects, Ordering::Relaxed);
        }
        Ok(explain)
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

    /// A snapshot as of now. The snapshot comes before any look into the index: what it includes is filed.
    pub(super) fn view_at<'a>(&'a self, filter: Option<&'a Predicate>, now_ms: u64) -> View<'a> {
        // The start of the tail comes before the snapshot: a slot that dies after it may leave the tail without ever having been in the
        // graph, and what took its place is too new. The end comes after: what the snapshot includes is before it.
        let start = self.tail.start();
        let seq = self.published_seq.load(Ordering::Acquire);
        View {
            dense: self,
            seq,
            window: self.tail.window_from(start),
            replacements: self.index.replacements(),
            now_ms,
            filter: filter.filter(|filter| !filter.is_trivially_true()),
            allowance: Allowance::of(PIECE_ALLOWANCE_NS),
            open: Vec::new(),
            filter_rejects: 0,
            distances: 0,
        }
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

    /// Carries a plan out.
    #[allow(clippy::too_many_arguments)] // One call site; a struct would only rename the list.
    async fn follow(
        &self,
        plan: Plan<'_>,
        pin: &Pin<'_>,
        query: &[f32],
        k: usize,
        ef: usize,
        live: usize,
        view: &mut View<'_>,
        pace: &mut impl Pace,
        scratch: &mut Scratch,
        out: &mut Vec<Hit>,
        explain: &mut Explain,
    ) -> Result<(), TooLong> {
        let walked = match plan {
            Plan::Nothing => {
                explain.exact = true;
                return Ok(());
            }
            Plan::Points { walk, exact } => {
                explain.exact = true;
                let at_most = explain.estimate.at_most;
                return self.score_points(pin, walk, exact, at_most, query, k, view, pace, out).await;
            }
            Plan::Everything => {
                explain.exact = true;
                return self.scan(pin, query, k, view, pace, out).await;
            }
            Plan::Graph(walked) => walked,
        };
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        if !matches!(walked.gate, Gate::Open) {
            count(&self.counters.filter_gates);
        }
        match explain.path {
            Path::Complement => _ = count(&self.counters.filter_complement_gates),
            Path::Column => _ = count(&self.counters.filter_column_gates),
            _ => {}
        }
        if self.cells.is_some() {
            let expected =
                explain.estimate.expected.map_or(1.0, |expected| expected as f64 / live.max(1) as f64);
            let passing = Passing { gate: &walked.gate, exact: walked.exact, share: expected };
            explain.exact = self.probe(pin, query, k, &passing, view, pace, out).await?;
            return Ok(());
        }
        if self.search_graph(query, k, ef, live, &walked, view, pace, scratch, out).await? {
            return Ok(());
        }
        explain.exact = true;
        out.clear();
        match walked.selection.and_then(|selection| selection.walk(usize::MAX)) {
            Some((walk, whole)) => {
                explain.path = Path::Points;
                // A complement's bits say less than the terms do, but to ask once more is only a cost.
                let (exact, at_most) = (whole && walked.exact, explain.estimate.at_most);
                self.score_points(pin, walk, exact, at_most, query, k, view, pace, out).await
            }
            None => {
                explain.path = Path::Everything;
                self.scan(pin, query, k, view, pace, out).await
            }
        }
    }

    /// Graph and tail; false when there may be more matches than were found.
    #[allow(clippy::too_many_arguments)] // As above.
    async fn search_graph(
        &self,
        query: &[f32],
        k: usize,
        ef: usize,
        live: usize,
        walked: &Walked<'_>,
        view: &mut View<'_>,
        pace: &mut impl Pace,
        scratch: &mut Scratch,
        out: &mut Vec<Hit>,
    ) -> Result<bool, TooLong> {
        let widest = match self.config.max_ef_search {
            0 => MAX_EF_SEARCH_DEFAULT,
            ef => ef,
        };
        let gate = |slot: Slot| walked.gate.passes(slot);
        let mut answers = Answers::default();
        let complete = loop {
            let allowance = Allowance::of(WALK_ALLOWANCE_NS);
            let asking = &mut Asking { pace: &mut *pace, allowance: &allowance };
            let mut admit = Admission {
                exact: walked.exact,
                refusals_left: widest.saturating_mul(self.config.m).max(live / 4),
                allowance: &allowance,
                answers: &mut answers,
                open: Vec::new(),
                view: &mut *view,
            };
            let found = if walked.leads {
                let (ef, effort) = ((ef as f64 * walked.widen) as usize, walked.effort);
                let graph = &self.graph;
                match &walked.gate {
                    // Asked of every edge: nothing else may stand between.
                    Gate::Bits(words) => {
                        let gate = |slot| bit(words, slot);
                        graph.search_gated(query, k, ef, effort, asking, scratch, gate, &mut admit).await?
                    }
                    _ => graph.search_gated(query, k, ef, effort, asking, scratch, gate, &mut admit).await?,
                }
            } else {
                let mut gated = Gated { gate, admission: &mut admit, rejects: 0 };
                let found = self.graph.search_paced(query, k, ef, asking, scratch, &mut gated).await?;
                let rejects = gated.rejects;
                admit.view.filter_rejects += rejects;
                Some(found)
            };
            let (refusals_left, open) = (admit.refusals_left, admit.open);
            if open.is_empty() {
                if let Some(found) = found {
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
                }
                break found.is_some() && refusals_left > 0;
            }
            pace.step(allowance.renew(0)).await?;
            for slot in open {
                let answer = view.settle(slot, pace).await?;
                answers.known.insert(slot, answer);
            }
            if answers.known.len() > ANSWERS_MAX {
                break false;
            }
            view.distances += Graph::stats(scratch).distances;
        };
        view.distances += Graph::stats(scratch).distances;
        if !complete {
            return Ok(false);
        }

        self.search_tail(query, k, view, pace, out).await?;
        Ok(out.len() == k)
    }

    /// The visible ones of the points that the index names.
    #[allow(clippy::too_many_arguments)] // As above.
    async fn score_points(
        &self,
        pin: &Pin<'_>,
        mut walk: crate::payload::index::Walk<'_>,
        exact: bool,
        at_most: Option<u64>,
        query: &[f32],
        k: usize,
        view: &mut View<'_>,
        pace: &mut impl Pace,
        out: &mut Vec<Hit>,
    ) -> Result<(), TooLong> {
        let mut by_code = self.by_code(pin, query, k, view, pace).await?;
        let mut scorer = Scorer::new(&self.graph, query, k);
        let end = (self.slots.load(Ordering::Acquire) as Slot).min(Slot::MAX - 1);
        let steps_each = steps_scored(self.config.dim);
        // A complement does not know how many it names.
        let at_most = at_most.unwrap_or(u64::MAX).min(end.into());
        pace.foresee(at_most as usize / LOOKS_PER_STEP)?;
        let mut part = Vec::with_capacity(SCAN_PART as usize);
        let mut from = Some(0);
        while let Some(first) = from {
            part.clear();
            from = walk.part(first, end, SCAN_PART as usize, &mut part);
            let mut take = |slot| {
                if !by_code.as_mut().is_some_and(|by_code| by_code.offer(self, slot)) {
                    scorer.push(self, slot);
                }
            };
            for (index, &slot) in part.iter().enumerate() {
                if !exact {
                    self.look_ahead(&part, index);
                }
                if view.visible(slot) && view.confirms(slot, exact) {
                    take(slot);
                }
            }
            let steps = SCAN_PART as usize / LOOKS_PER_STEP + part.len() * steps_each;
            pace.step(steps + view.steps_taken()).await?;
            view.settle_open(pace, take).await?;
        }
        view.distances += scorer.finish(self, pace, out).await?;
        if let Some(by_code) = by_code {
            view.distances += by_code.finish(out);
        }
        out.sort_unstable_by(by_distance_then_id);
        out.truncate(k);
        Ok(())
    }

    /// Asks for lines and rows of the slots that the predicate will be asked about after the one at `index`.
    #[inline]
    pub(super) fn look_ahead(&self, slots: &[Slot], index: usize) {
        if let Some(&slot) = slots.get(index + 2 * ROWS_AHEAD) {
            self.meta.prefetch_line(slot);
        }
        if let Some(&slot) = slots.get(index + ROWS_AHEAD) {
            self.meta.prefetch_row(slot);
        }
    }

    /// All visible points.
    pub(super) async fn scan(
        &self,
        pin: &Pin<'_>,
        query: &[f32],
        k: usize,
        view: &mut View<'_>,
        pace: &mut impl Pace,
        out: &mut Vec<Hit>,
    ) -> Result<(), TooLong> {
        out.clear();
        let mut by_code = self.by_code(pin, query, k, view, pace).await?;
        let mut scorer = Scorer::new(&self.graph, query, k);
        let steps_each = steps_scored(self.config.dim);
        // After the snapshot: every slot it includes is below.
        let slots = self.slots.load(Ordering::Acquire) as Slot;
        pace.foresee((slots as usize).saturating_mul(view.steps_asked() + steps_each))?;
        for first in (0..slots).step_by(64) {
            let mut take = |slot| {
                if !by_code.as_mut().is_some_and(|by_code| by_code.offer(self, slot)) {
                    scorer.push(self, slot);
                }
            };
            if first > 0 && (first.is_multiple_of(SCAN_PART) || view.is_spent()) {
                pace.step(SCAN_PART as usize * steps_each + view.steps_taken()).await?;
                view.settle_open(pace, &mut take).await?;
            }
            let special = self.meta.special_word(first as usize / 64);
            let end = slots.min(first.saturating_add(64));
            for slot in first..end {
                // Lines come in order, as the CPU foresees.
                let ahead = slot.saturating_add(ROWS_AHEAD as Slot);
                if view.filter.is_some() && ahead < slots {
                    self.meta.prefetch_row(ahead);
                }
                let plain = special >> (slot % 64) & 1 == 0;
                if (plain || self.meta.visible_by_line(slot, view.seq, view.now_ms)) && view.matches(slot) {
                    take(slot);
                }
            }
        }
        view.settle_open(pace, |slot| {
            if !by_code.as_mut().is_some_and(|by_code| by_code.offer(self, slot)) {
                scorer.push(self, slot);
            }
        })
        .await?;
        view.distances += scorer.finish(self, pace, out).await?;
        if let Some(by_code) = by_code {
            view.distances += by_code.finish(out);
        }
        out.sort_unstable_by(by_distance_then_id);
        out.truncate(k);
        Ok(())
    }
}
