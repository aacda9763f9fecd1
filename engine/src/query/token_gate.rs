//! A search of the index of tokens that finds only tokens of documents that match a filter.
//!
//! The payload index makes a gate for the documents, one bit or a few numbers each. The walk through the graph of tokens asks each token that it
//! meets for its document ([`ParentsView`](crate::collection::ParentsView)), and that document for its bit, and looks through the tokens that do not
//! pass as any filtered walk does. So a token of the query needs no more candidates than without a filter, however few documents match.

use super::lane_query::{CANDIDATES_MAX, Found, LaneError, MaxSim};
use super::lanes::QueryScratch;
use super::max_sim::{LOOKS_STEP, document_of};
use super::run::Run;
use crate::collection::{Among, Explain, ParentsView, Query, View};
use crate::filter::Path;
use crate::filter::cost::Situation;
use crate::filter::planner::{Gate, GatePlan, bit};
use crate::pace::Pace;
use crate::slot::Slot;
use ahash::{HashSet, HashSetExt};

/// The cost to look up the document of a token and the slot of that document, in nanoseconds.
pub(super) const CANDIDATE_NS: f64 = 150.0;
/// The time that one step of a pace stands for, in nanoseconds.
pub(super) const STEP_NS: f64 = 100.0;
/// The cost to look up the document of a token and its bit, in nanoseconds.
const ASKED_NS: f64 = 5.0;
/// About so many different documents own the tokens that are found for a query, per token found.
const DOCUMENTS_PER_TOKEN: f64 = 0.5;

/// What the other strategies cost, in nanoseconds.
pub(super) struct Limits {
    /// A search of the index of tokens without a gate, for more tokens, before anything is scored.
    pub walk_ns: f64,
    /// Scoring all documents that match.
    pub exact_ns: f64,
    /// Scoring one document.
    pub document_ns: f64,
}

/// A search behind a gate that was chosen and not begun.
pub(super) struct TokenGate<'p> {
    parents: ParentsView<'p>,
    plan: GatePlan<'p>,
    /// Nanoseconds to build the gate.
    gate_ns: f64,
    /// How many tokens are found for each token of the query.
    per_token: usize,
    /// The share of the documents that pass.
    share: f64,
    /// How many distances the walk for one token of the query may compute.
    effort: usize,
}

impl<'a> Run<'a> {
    /// The search behind a gate, if it is expected to cost less than the other strategies.
    pub(super) fn token_gate(
        &self,
        (query, per_token): (&MaxSim, usize),
        share: f64,
        (plan, gate_ns): (GatePlan<'a>, f64),
        limits: Limits,
    ) -> Option<TokenGate<'a>> {
        let index = self.tokens?;
        let parents = index.points().parents()?;
        let beam = self.token_beam(query, per_token);
        let of_token = index.space().candidates_among_ns(per_token, beam, share, ASKED_NS)?;
        let tokens = query.tokens.len() as f64;
        let found = tokens * per_token as f64;
        let walk_ns = gate_ns + tokens * of_token + found * CANDIDATE_NS;
        let scored = (found * DOCUMENTS_PER_TOKEN).min(share * self.dense.points().live() as f64);
        let is_cheapest = walk_ns < limits.walk_ns && walk_ns + scored * limits.document_ns < limits.exact_ns;
        let distance_ns = index.space().situation(per_token, false).walked_ns();
        let effort = (limits.exact_ns / tokens.max(1.0) / distance_ns) as usize;
        is_cheapest.then_some(TokenGate { parents, plan, gate_ns, per_token, share, effort })
    }

    /// Finds documents by their tokens that are near those of the query and pass the gate, and does not score them. Nothing is found if a walk
    /// was given up, or if rows have changed that a complement left out.
    pub(super) async fn gated_documents(
        &self,
        query: &MaxSim,
        gate: TokenGate<'_>,
        (view, situation): (&mut View<'_>, &Situation),
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
        explain: &mut Explain,
    ) -> Result<Vec<Found>, LaneError> {
        let TokenGate { parents, plan, gate_ns, per_token, share, effort } = gate;
        let (documents, is_complement) = plan.build(situation);
        pace.step((gate_ns / STEP_NS) as usize).await?;
        if is_complement && view.was_replaced() {
            return Ok(Vec::new());
        }
        explain.path = match (is_complement, &documents) {
            (true, _) => Path::Complement,
            (false, Gate::Columns(..)) => Path::Column,
            (false, _) => Path::Gate,
        };
        // A token whose document is not known passes.
        let slots = match &documents {
            Gate::Bits(words) => {
                let gate = |token: Slot| parents.get(token).is_none_or(|document| bit(words, document));
                self.tokens_among(
                    query,
                    Among { gate, share, effort },
                    (parents, per_token, view),
                    pace,
                    scratch,
                    explain,
                )
                .await?
            }
            documents => {
                let gate = |token: Slot| parents.get(token).is_none_or(|document| documents.passes(document));
                self.tokens_among(
                    query,
                    Among { gate, share, effort },
                    (parents, per_token, view),
                    pace,
                    scratch,
                    explain,
                )
                .await?
            }
        };
        let points = self.dense.points();
        let found = |slot| Found { id: points.id(slot), distance: 0.0, score: 0.0, slot };
        Ok(slots.into_iter().flatten().map(found).collect())
    }

    /// The slots of the documents that own the tokens found behind a gate; `None` if a walk was given up.
    async fn tokens_among(
        &self,
        query: &MaxSim,
        among: Among<impl Fn(Slot) -> bool>,
        (parents, per_token, view): (ParentsView<'_>, usize, &mut View<'_>),
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
        explain: &mut Explain,
    ) -> Result<Option<HashSet<Slot>>, LaneError> {
        let (index, points) = (self.tokens.ok_or(LaneError::NoTokens)?, self.dense.points());
        let (mut slots, mut near) = (HashSet::new(), Vec::new());
        let ef = self.token_beam(query, per_token);
        for token in &query.tokens {
            let query =
                Query { vector: token, k: per_token, ef, filter: None, exact: false, now_ms: self.now_ms };
            let searched = index
                .space()
                .candidates_among(self.pin, &query, &among, pace, &mut scratch.dense, &mut near)
                .await?;
            let Some(searched) = searched else { return Ok(None) };
            explain.distances += searched.distances;
            for near in near.chunks(LOOKS_STEP) {
                slots.extend(near.iter().filter_map(|hit| {
                    let parent = parents.get(hit.slot).filter(|slot| view.visible(*slot));
                    parent.or_else(|| {
                        let (_, version) = index.points().row_and_version(self.pin, hit.slot);
                        points.find(self.pin, document_of(hit.id, version), self.now_ms)
                    })
                }));
                if slots.len() > CANDIDATES_MAX {
                    return Err(LaneError::TooManyCandidates);
                }
                pace.step(near.len()).await?;
            }
        }
        Ok(Some(slots))
    }
}
