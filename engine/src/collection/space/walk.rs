//! Walking the graph, again where a question to the filter stayed open, and looking through the tail.
use super::Hit;
use super::admission::{Admission, Answers, Gated};
use super::search_state::Search;
use crate::filter::Allowance;
use crate::filter::planner::{Gate, Graph as Walked, bit};
use crate::index::{GatedBeam, Graph, Wanted};
use crate::pace::{Pace, TooLong};
use crate::slot::Slot;

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

/// Nanoseconds that questions to the filter may take between two calls of the pace of a walk, where a question that is answered later means
/// to walk again.
const WALK_ALLOWANCE_NS: u64 = 1_000_000;
/// Most answers remembered, at 16 bytes each; a walk that would need more is given up for the exact way.
const ANSWERS_MAX: usize = 1 << 20;

impl<P: Pace> Search<'_, P> {
    /// Graph and tail; false when there may be more matches than were found.
    pub(super) async fn search_graph(&mut self, walked: &Walked<'_>) -> Result<bool, TooLong> {
        let is_complete = match &walked.gate {
            // Asked of every edge: nothing else may stand between.
            Gate::Bits(words) => self.walk(walked, |slot| bit(words, slot)).await?,
            gate => self.walk(walked, |slot| gate.passes(slot)).await?,
        };
        if !is_complete {
            return Ok(false);
        }
        self.search_tail(|_| true).await?;
        Ok(self.out.len() == self.k)
    }

    /// As [`Self::search_graph`], for points that pass this gate instead of that of `walked`. False when the walk was given up.
    pub(super) async fn search_graph_behind(
        &mut self,
        walked: &Walked<'_>,
        gate: impl Fn(Slot) -> bool,
    ) -> Result<bool, TooLong> {
        let is_complete = self.walk(walked, &gate).await?;
        if is_complete {
            self.search_tail(gate).await?;
        }
        Ok(is_complete)
    }

    /// The graph alone; false when the walk was given up.
    async fn walk(&mut self, walked: &Walked<'_>, gate: impl Fn(Slot) -> bool) -> Result<bool, TooLong> {
        let Search { space, points, query, k, ef, precision, live, .. } = *self;
        let wanted = Wanted { k, precision };
        let widest = self.tuning.max_ef_search;
        let mut answers = Answers::default();
        let complete = loop {
            let allowance = Allowance::of(WALK_ALLOWANCE_NS);
            let asking = &mut Asking { pace: &mut *self.pace, allowance: &allowance };
            let mut admit = Admission {
                exact: walked.exact,
                refusals_left: widest.saturating_mul(space.config.m).max(live / 4),
                allowance: &allowance,
                answers: &mut answers,
                open: Vec::new(),
                view: &mut self.view,
            };
            let found = if walked.leads {
                let (ef, effort) = ((ef as f64 * walked.widen) as usize, walked.effort);
                let beam = GatedBeam { ef, effort, gate: &gate, admit: &mut admit };
                space.graph.search_gated(query, wanted, beam, asking, self.scratch).await?
            } else {
                let mut gated =
                    Gated { gate: &gate, admission: &mut admit, rejects: 0, effort: walked.effort as u64 };
                let found =
                    space.graph.search_paced(query, wanted, ef, asking, self.scratch, &mut gated).await?;
                let (rejects, is_spent) = (gated.rejects, gated.is_spent());
                admit.view.filter_rejects += rejects;
                (!is_spent).then_some(found)
            };
            let (refusals_left, open) = (admit.refusals_left, admit.open);
            if open.is_empty() {
                if let Some(found) = found {
                    // Only what may end among the first k, ties by id included, is worth the cache line that holds its id.
                    let worth = match found.get(k - 1) {
                        Some(kth) => found.partition_point(|near| near.distance <= kth.distance).max(k),
                        None => found.len(),
                    };
                    self.out.extend(found[..worth].iter().map(|near| Hit {
                        id: points.id(near.slot),
                        distance: near.distance,
                        slot: near.slot,
                    }));
                }
                break found.is_some() && refusals_left > 0;
            }
            self.pace.step(allowance.renew(0)).await?;
            for slot in open {
                let answer = self.view.settle(slot, self.pace).await?;
                answers.known.insert(slot, answer);
            }
            if answers.known.len() > ANSWERS_MAX {
                break false;
            }
            self.distances += Graph::stats(self.scratch).distances;
        };
        self.distances += Graph::stats(self.scratch).distances;
        Ok(complete)
    }
}
