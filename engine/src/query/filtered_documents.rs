//! A MaxSim search with a filter takes the cheapest of three strategies, so that neither its speed nor its recall drops sharply at any selectivity.
//!
//! * It scores all documents that match, and the result is exact. The payload index lists them, or the predicate is evaluated for every document.
//! * It searches the index as without a filter, but for more points (tokens or encodings), in inverse proportion to the share of documents that
//!   match, and discards the documents that do not match before any is scored. If the documents near the query match less often than others, the
//!   search is repeated for more points, until at least half as many candidates match as a search without a filter would score, or until the first
//!   strategy costs less.
//! * It searches the index behind a gate, so that it finds only points of documents that match (`index_gate`).
//!
//! All searches for one query together find at most [`CANDIDATES_MAX`] points, and each finds at most [`PER_PROBE_MAX`]. If that is too few for the
//! share of the documents that match, and the first strategy costs more, the candidates found are used nevertheless, provided that there are at least
//! `k`.

use super::document_index::Probes;
use super::index_gate::{CANDIDATE_NS, Limits, STEP_NS};
use super::lane_query::{CANDIDATES_MAX, LaneError};
use super::lanes::QueryScratch;
use super::matching_slots::MatchingSlots;
use super::max_sim::{Best, Scorer};
use super::run::Run;
use crate::collection::Explain;
use crate::filter::cost::Situation;
use crate::filter::lists::look_up;
use crate::filter::planner::Plan;
use crate::filter::{Estimate, Path, Predicate};
use crate::pace::Pace;
use ahash::{HashSet, HashSetExt};

/// A search of the index looks for at least this many times `k` points, and at least [`PER_PROBE_MIN`].
const PER_HIT: usize = 8;
const PER_PROBE_MIN: usize = 100;
/// The two rules above ask for at most this many points.
const PER_PROBE_MIN_CUT: usize = 1_024;
/// With a filter, a search of the index looks for at most this many points: they are sorted in one piece, and a graph is not walked for more.
const PER_PROBE_MAX: usize = 1 << 14;
/// Each repetition of the search multiplies the number of points by at most this factor.
const WIDENING_MAX: usize = 8;
/// If at most so many documents match, they are scored without estimating what a search of the index would cost.
const FEW: f64 = 512.0;

// The costs below are nanoseconds on one core, as measured on a server with AVX2 (`benches/families.py`). They are compared with the costs of
// `filter/cost.rs`.

/// The cost to evaluate the predicate for one document.
const PREDICATE_NS: f64 = 60.0;
/// The cost to look up the row of a document.
const ROW_NS: f64 = 250.0;
/// The cost to fetch one byte of a row from memory.
const BYTE_NS: f64 = 0.2;
/// The cost to multiply one component of a token of a document with one of a token of the query.
const PRODUCT_NS: f64 = 0.05;

/// What one query costs in each of the two ways.
struct Costs {
    /// The number of documents that are alive.
    documents: f64,
    /// The time to score one document of average length.
    document_ns: f64,
    /// Whether the predicate has to be evaluated for every document to find those that match.
    asks_all: bool,
}

impl Costs {
    /// The time to score all documents that match, which are this share of all documents.
    fn exact_ns(&self, share: f64) -> f64 {
        let matching = self.documents * share;
        let asked = if self.asks_all { self.documents } else { matching };
        asked * PREDICATE_NS + matching * self.document_ns
    }
}

impl Run<'_> {
    /// Scores the documents that match a filter: all of them, or those near the query.
    pub(super) async fn filtered_documents(
        &self,
        (filter, probes, query_tokens, k): (&Predicate, &Probes<'_>, usize, usize),
        scorer: &mut Scorer,
        best: &mut Best,
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
        explain: &mut Explain,
    ) -> Result<(), LaneError> {
        let document_index = self.document_index()?;
        let index = document_index.dense;
        let points = self.dense.points();
        let mut view = points.view_to_plan(self.pin, Some(filter), self.now_ms);
        let (live, indexed) = (points.live(), index.points().live() as usize);
        let components = document_index.components_per_document(points);
        let row_ns = ROW_NS + BYTE_NS * components * size_of::<f32>() as f64;
        let document_ns = row_ns + PRODUCT_NS * components * query_tokens as f64;
        let wanted = probes.wanted;
        let situation = Situation {
            live,
            filed: points.filed(),
            slots: points.slots() as usize,
            dim: Situation::dim_scored_in(document_ns),
            codes: false,
            probed: None,
            exact: true,
            ..index.space().situation(wanted.min(indexed), false)
        };
        let lists = look_up(filter, points.index(self.pin), view.ids.clone(), &situation, pace).await?;
        let known = points.expected_share(filter, self.pin, &lists, &situation);
        let costs = Costs { documents: live as f64, document_ns, asks_all: known.is_none() };
        let probe_count = probes.vectors.len();
        let searched_ns = |per_probe: usize| {
            let of_probe = index.space().candidates_ns(per_probe, self.probe_beam(probes, per_probe));
            probe_count as f64 * (of_probe + per_probe as f64 * CANDIDATE_NS)
        };

        let widest = (CANDIDATES_MAX / probe_count.max(1)).min(PER_PROBE_MAX).min(indexed);
        let least = k.saturating_mul(PER_HIT).clamp(PER_PROBE_MIN, PER_PROBE_MIN_CUT);
        // How many points each search looks for without a gate if this share of the documents matches.
        let ungated = |share: f64| ((wanted as f64 / share).ceil() as usize).max(least).min(widest);
        if !self.is_exact()
            && widest > 0
            && let Some(share) = known.filter(|share| share * costs.documents > FEW)
        {
            let per_probe = wanted.min(widest);
            let limits =
                Limits { walk_ns: searched_ns(ungated(share)), exact_ns: costs.exact_ns(share), document_ns };
            let gate = points.gate_of(filter, self.pin, &lists, &situation);
            if let Some(gate) =
                gate.and_then(|gate| self.index_gate((probes, per_probe), share, gate, limits))
            {
                let found =
                    self.gated_documents(probes, gate, (&view, &situation), pace, scratch, explain).await?;
                let all = found.len();
                let mut hits = self.matching(filter, found, pace).await?;
                explain.rejects += (all - hits.len()) as u64;
                let mut seen = HashSet::with_capacity(hits.len());
                hits.retain(|hit| seen.insert(hit.id));
                // If the gate is much wider than the filter, too few of the documents that it led to remain.
                if hits.len() >= k && 2 * hits.len() >= all {
                    let expected = Some((share * costs.documents) as u64);
                    let by_complement = explain.path == Path::Complement;
                    explain.estimate =
                        Estimate { path: explain.path, expected, by_complement, ..Estimate::default() };
                    explain.exact = false;
                    points.count_rejects(explain.rejects);
                    return self.score_hits(hits, scorer, best, pace).await;
                }
            }
        }

        let mut share = known.unwrap_or(1.0);
        let mut per_probe = ungated(share);
        let few = self.is_exact()
            || widest == 0
            || costs.documents <= FEW
            || known.is_some_and(|share| share * costs.documents <= FEW);
        explain.exact = few;
        while !explain.exact && searched_ns(per_probe) < costs.exact_ns(share) {
            let documents = self.near(probes, per_probe, pace, scratch, explain).await?;
            let found = self.present(documents, pace).await?;
            let all = found.len();
            let hits = self.matching(filter, found, pace).await?;
            explain.rejects += (all - hits.len()) as u64;
            // A search without a filter would have found about this many documents.
            let target = (all as f64 * wanted as f64 / per_probe as f64).max(k as f64);
            let are_enough = hits.len() as f64 >= target / 2.0 || per_probe == widest;
            if hits.len() >= k && are_enough {
                let expected = known.map(|share| (share * costs.documents) as u64);
                explain.path = Path::Predicate;
                explain.estimate = Estimate { path: Path::Predicate, expected, ..Estimate::default() };
                points.count_rejects(explain.rejects);
                return self.score_hits(hits, scorer, best, pace).await;
            }
            if known.is_none() {
                share = share.min(hits.len().max(1) as f64 / all.max(1) as f64);
            }
            let lacking = (target / hits.len().max(1) as f64).ceil() as usize;
            explain.exact = per_probe == widest;
            per_probe = per_probe.saturating_mul(lacking.clamp(2, WIDENING_MAX)).min(widest);
        }

        explain.exact = true;
        let least_ns = if known.is_none() { costs.documents * PREDICATE_NS } else { costs.exact_ns(share) };
        pace.foresee((least_ns / STEP_NS) as usize)?;
        let (plan, estimate) = points.planned(filter, self.pin, &lists, &situation, &view);
        (explain.estimate, explain.path) = (estimate, estimate.path);
        let (walk, is_whole) = match plan {
            Plan::Nothing => return Ok(()),
            Plan::Points { walk, exact } => (Some(walk), exact),
            Plan::Everything | Plan::Graph(_) => (None, false),
        };
        let mut matching = MatchingSlots::of(walk, is_whole, points.slots());
        let mut slots = Vec::new();
        while matching.next(&mut view, &mut slots, pace).await? {
            self.score_slots(&slots, scorer, best, pace).await?;
        }
        explain.rejects += view.filter_rejects;
        points.count_rejects(explain.rejects);
        Ok(())
    }
}
