//! Indexing rounds: tail slots move into the graph. Planned on any core, opened and committed by the owner.
use super::writer::{add, sub};
use super::*;
use crate::index::ROUND_NODES_MAX;

/// Round size while the graph is smaller than that: its nodes see each other exactly, so an empty graph can start there.
const ROUND_MIN: usize = 32;
/// Round size of `index_all`: at one planner larger rounds only score more peers.
const ROUND_ALONE: usize = 64;

impl DenseWriter {
    /// Live tail slots not yet in the graph.
    pub fn tail_len(&self) -> usize {
        self.shared.tail_live.load(Ordering::Relaxed) as usize
    }

    /// Starts an indexing round over at most `max` of the oldest live tail slots, and at most as many as the graph holds
    /// (32 while it is smaller): a round's nodes find each other by scoring all their peers, which costs more than the graph
    /// in a round larger than it. None when the tail holds nothing alive.
    ///
    /// While a round is open nothing is freed.
    ///
    /// # Panics
    /// When a round is open.
    pub fn begin_round(&mut self, max: usize) -> Option<Arc<Round>> {
        assert!(self.round.is_none(), "one round at a time");
        self.drop_dead_front();
        let limit = max.max(1).min(self.linked.max(ROUND_MIN)).min(ROUND_NODES_MAX);
        let shared = &self.shared;
        let window = shared.tail.window();
        let mut slots = Vec::new();
        let mut position = window.start;
        while position < window.end && slots.len() < limit {
            let slot = shared.tail.slot(position);
            if !shared.meta.is_dead(slot) {
                slots.push(slot);
            }
            position += 1;
        }
        if slots.is_empty() {
            return None;
        }
        let levels = slots.iter().map(|&slot| shared.graph.level_of(shared.meta.id(slot))).collect();
        let round = Arc::new(Round { slots, levels });
        self.round = Some((round.clone(), position));
        Some(round)
    }

    /// Jobs of the second phase, from the plans in round order.
    pub fn target_jobs(&self, plans: &[NodePlan]) -> Vec<TargetJob> {
        self.shared.graph.target_jobs(plans)
    }

    /// Ends the round: links its nodes, then takes them out of the tail. Slots that died meanwhile are not linked, and
    /// nothing is linked to them.
    ///
    /// # Panics
    /// When no round is open, or `plans` are not those of its slots in order.
    pub fn commit_round(&mut self, mut plans: Vec<NodePlan>, mut targets: Vec<TargetPlan>) {
        let (round, end) = self.round.take().expect("a round is open");
        assert!(
            plans.iter().map(|plan| plan.slot).eq(round.slots.iter().copied()),
            "one plan for each slot of the round, in order"
        );
        let shared = self.shared.clone();
        let is_dead = |slot: Slot| shared.meta.is_dead(slot);
        plans.retain(|plan| !is_dead(plan.slot));
        // A dead target is either a node of this round, which must not come to life in the graph, or a way-point, whose
        // old edges serve as well.
        targets.retain(|target| !is_dead(target.target));
        shared.graph.commit(&plans, &targets, is_dead);
        self.linked += plans.len();
        sub(&shared.tail_live, plans.len() as u64);
        for plan in &plans {
            self.dirty.state.insert(plan.slot);
        }
        self.owe_repair(plans.len());
        self.pass_tail(end);
        self.reclaim();
    }

    /// Drives indexing to an empty tail on the calling thread (tests, library use).
    ///
    /// # Panics
    /// When a round is open.
    pub fn index_all(&mut self) {
        let shared = self.shared.clone();
        let mut planner = Planner::new();
        while let Some(round) = self.begin_round(ROUND_ALONE) {
            let mut plans = Vec::with_capacity(round.slots.len());
            for index in 0..round.slots.len() {
                shared.plan_start(&mut planner, &round, index);
                plans.push(loop {
                    if let Some(plan) = shared.plan_step(&mut planner, &round, usize::MAX) {
                        break plan;
                    }
                });
            }
            let jobs = self.target_jobs(&plans);
            let targets = jobs.iter().map(|job| shared.plan_target(job, &mut self.scratch)).collect();
            self.commit_round(plans, targets);
        }
    }

    /// Restore: a live slot the image shows unlinked waits in the tail again.
    pub(super) fn requeue(&mut self, slot: Slot) {
        self.shared.tail.push(slot);
        add(&self.shared.tail_live, 1);
    }
}
