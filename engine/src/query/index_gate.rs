//! A search of the index that finds only points, tokens or encodings, of documents that match a filter.
//!
//! The payload index makes a gate for the documents, one bit each. The walk through the graph of the index looks up the document of each point that
//! it meets ([`ParentsView`]), and the bit of that document. Points that do not pass are traversed but not returned. If the walks would look up more
//! documents than there are points, each point gets a bit before the walks, in one pass over all points. So a search needs no more candidates than
//! without a filter, however few documents match.

use super::document_index::Probes;
use super::lane_query::{CANDIDATES_MAX, Found, LaneError};
use super::lanes::QueryScratch;
use super::max_sim::{LOOKS_STEP, document_of};
use super::run::Run;
use crate::collection::{Among, Explain, ParentsView, Query, RefusedParents, View};
use crate::filter::Path;
use crate::filter::cost::Situation;
use crate::filter::planner::{Gate, GatePlan, bit};
use crate::pace::Pace;
use crate::slot::Slot;
use ahash::{HashSet, HashSetExt};

/// The cost to look up the document of a point and the slot of that document, in nanoseconds.
pub(super) const CANDIDATE_NS: f64 = 150.0;
/// The time that one step of a pace stands for, in nanoseconds.
pub(super) const STEP_NS: f64 = 100.0;
/// Nanoseconds to look up, during a walk, the document of a point and the bit of that document.
const ASKED_NS: f64 = 12.0;
/// Nanoseconds to check a point whose own bit was set before the walk.
const BIT_NS: f64 = 3.0;
/// Nanoseconds for each point to set these bits before the walk.
const MARKED_NS: f64 = 1.2;
/// A time at which nothing has expired.
const NEVER: u64 = 0;
/// How many words of such bits are made between two calls of the pace.
const WORDS_STEP: usize = 256;

/// What the other strategies cost, in nanoseconds.
pub(super) struct Limits {
    /// A search of the index without a gate, for more points, before anything is scored.
    pub walk_ns: f64,
    /// Scoring all documents that match.
    pub exact_ns: f64,
    /// Scoring one document.
    pub document_ns: f64,
}

/// A search behind a gate that was chosen and not begun.
pub(super) struct IndexGate<'p> {
    parents: ParentsView<'p>,
    plan: GatePlan<'p>,
    /// Nanoseconds to build the gate.
    gate_ns: f64,
    /// Nanoseconds of the whole search, without scoring.
    walk_ns: f64,
    /// Nanoseconds of a distance of a walk, with what is asked and looked through for it.
    distance_ns: f64,
    /// The steps of a pace that the walk takes for each distance.
    steps: usize,
    /// How many points are found for each probe.
    per_probe: usize,
    /// The share of the documents that pass.
    share: f64,
    /// How many distances the walk for one probe may compute.
    effort: usize,
    /// Whether all points get a bit before the walks.
    marks: bool,
}

impl<'a> Run<'a> {
    /// The search behind a gate, if it is expected to cost less than the other strategies.
    pub(super) fn index_gate(
        &self,
        (probes, per_probe): (&Probes<'_>, usize),
        share: f64,
        (plan, gate_ns): (GatePlan<'a>, f64),
        limits: Limits,
    ) -> Option<IndexGate<'a>> {
        let document_index = self.index?;
        let index = document_index.dense;
        let parents = index.points().parents_in(self.dense.points())?;
        let beam = self.probe_beam(probes, per_probe);
        let cost = index.space().candidates_among_cost(per_probe, beam, share)?;
        let walks = probes.vectors.len() as f64;
        let found = walks * per_probe as f64;
        let bits_ns = f64::from(index.points().slots()) * MARKED_NS;
        let marks = bits_ns + walks * cost.asked * BIT_NS < walks * cost.asked * ASKED_NS;
        let (bits_ns, asked_ns) = if marks { (bits_ns, BIT_NS) } else { (0.0, ASKED_NS) };
        let distance_ns = cost.distance_ns + cost.asked / cost.distances.max(1.0) * asked_ns;
        let walk_ns = gate_ns + bits_ns + walks * cost.distances * distance_ns + found * CANDIDATE_NS;
        let scored =
            (found * document_index.documents_per_point()).min(share * self.dense.points().live() as f64);
        let is_cheapest = walk_ns < limits.walk_ns && walk_ns + scored * limits.document_ns < limits.exact_ns;
        let effort = (limits.exact_ns / walks.max(1.0) / distance_ns) as usize;
        is_cheapest.then_some(IndexGate {
            parents,
            plan,
            gate_ns,
            walk_ns,
            distance_ns,
            steps: cost.steps,
            per_probe,
            share,
            effort,
            marks,
        })
    }

    /// Finds the documents of points that are near the query vectors and pass the gate. It does not score them. A document may be found twice if it
    /// is replaced meanwhile. Nothing is found if a walk was given up, or if rows have changed that a complement left out.
    pub(super) async fn gated_documents(
        &self,
        probes: &Probes<'_>,
        gate: IndexGate<'_>,
        (view, situation): (&View<'_>, &Situation),
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
        explain: &mut Explain,
    ) -> Result<Vec<Found>, LaneError> {
        let index = self.document_index()?.dense;
        pace.foresee((gate.walk_ns / STEP_NS) as usize)?;
        let (documents, is_complement) = gate.plan.build(situation);
        pace.step((gate.gate_ns / STEP_NS) as usize).await?;
        if is_complement && view.was_replaced() {
            return Ok(Vec::new());
        }
        explain.path = match (is_complement, &documents) {
            (true, _) => Path::Complement,
            (false, Gate::Columns(..)) => Path::Column,
            (false, _) => Path::Gate,
        };
        let refused = self.refused(&documents, view, situation.slots, pace).await?;
        let parents = gate.parents;
        let walks = Walks {
            parents,
            per_probe: gate.per_probe,
            share: gate.share,
            effort: gate.effort,
            looked_ns: (gate.distance_ns - gate.steps as f64 * STEP_NS).max(0.0),
        };
        let slots = if gate.marks {
            let mut words = vec![0; (index.points().slots() as usize).div_ceil(64)];
            for (step, part) in words.chunks_mut(WORDS_STEP).enumerate() {
                parents.mark_refused(step * WORDS_STEP, part, &refused);
                pace.step((64.0 * part.len() as f64 * MARKED_NS / STEP_NS) as usize).await?;
            }
            self.points_among(probes, |point| !bit(&words, point), (&walks, view), pace, scratch, explain)
                .await?
        } else {
            let gate = |point| parents.passes(point, &refused);
            self.points_among(probes, gate, (&walks, view), pace, scratch, explain).await?
        };
        let points = self.dense.points();
        let found = |slot| Found { id: points.id(slot), distance: 0.0, score: 0.0, slot };
        Ok(slots.into_iter().flatten().map(found).collect())
    }

    /// The documents that do not pass the gate. Only those that the snapshot shows are among them: a slot that is free now may have another document
    /// before the search has ended, one that was replaced and matches.
    async fn refused(
        &self,
        documents: &Gate<'_>,
        view: &View<'_>,
        slots: usize,
        pace: &mut impl Pace,
    ) -> Result<RefusedParents, LaneError> {
        let points = self.dense.points();
        let mut refused = RefusedParents::none(slots);
        for index in 0..slots.div_ceil(64) {
            let first = 64 * index;
            let all = if slots - first < 64 { (1 << (slots - first)) - 1 } else { u64::MAX };
            let mut bits = all & !documents.word(index);
            let mut special = bits & points.special_word(index);
            while special != 0 {
                let at = special.trailing_zeros();
                special &= special - 1;
                // A document that has expired is there until it is swept.
                if !points.visible(first as Slot + at, view.seq, NEVER) {
                    bits &= !(1 << at);
                }
            }
            refused.refuse(index, bits);
            if index % WORDS_STEP == WORDS_STEP - 1 {
                pace.step(WORDS_STEP).await?;
            }
        }
        Ok(refused)
    }

    /// The slots of the documents that own the points found behind a gate; `None` if a walk was given up.
    async fn points_among(
        &self,
        probes: &Probes<'_>,
        gate: impl Fn(Slot) -> bool,
        (walks, view): (&Walks<'_>, &View<'_>),
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
        explain: &mut Explain,
    ) -> Result<Option<HashSet<Slot>>, LaneError> {
        let (index, points) = (self.document_index()?.dense, self.dense.points());
        let (mut slots, mut near) = (HashSet::new(), Vec::new());
        let Walks { parents, per_probe, share, effort, looked_ns } = *walks;
        let among = Among { gate, share, effort };
        let ef = self.probe_beam(probes, per_probe);
        for vector in &*probes.vectors {
            let query = Query { vector, k: per_probe, ef, filter: None, exact: false, now_ms: self.now_ms };
            let (searched, is_complete) = index
                .space()
                .candidates_among(self.pin, &query, &among, pace, &mut scratch.dense, &mut near)
                .await?;
            explain.distances += searched.distances;
            // The walk has told its distances alone.
            pace.step((searched.distances as f64 * looked_ns / STEP_NS) as usize).await?;
            if !is_complete {
                return Ok(None);
            }
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

/// How the graph of the index is walked for each probe.
struct Walks<'p> {
    parents: ParentsView<'p>,
    per_probe: usize,
    share: f64,
    effort: usize,
    /// Nanoseconds that a distance takes in addition to a step of the pace.
    looked_ns: f64,
}
