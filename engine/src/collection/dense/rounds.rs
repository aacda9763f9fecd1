//! Indexing rounds: tail slots move into the graph. Planned on any core, opened and committed by the owner.
use super::writer::{add, sub};
use super::*;
use crate::index::{JobDone, JobStep, JobTicket, Living, ROUND_NODES_MAX};

/// Round size while the graph is smaller than that: its nodes all see each other, so an empty graph can start there.
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
        assert!(!self.round_open() && !self.files_cells(), "one round at a time, and of a graph");
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
        shared.graph.begin_round();
        let levels = slots.iter().map(|&slot| shared.graph.level_of(shared.meta.id(slot))).collect();
        let round = Arc::new(Round { slots, levels, relinks: false });
        self.round = Some((round.clone(), position));
        Some(round)
    }

    /// Whether a bulk build is to link every point twice: the second time each chooses its edges among all points.
    pub fn links_twice(&self) -> bool {
        self.shared.config.flat().is_some()
    }

    /// Starts a round in which at most `max` linked points from `next` on choose their edges anew, and moves `next` behind them. None
    /// when there are no more. Planned and committed as others are.
    ///
    /// # Panics
    /// When a round is open.
    pub fn begin_relinking(&mut self, next: &mut Slot, max: usize) -> Option<Arc<Round>> {
        assert!(!self.round_open() && !self.files_cells(), "one round at a time, and of a graph");
        let shared = &self.shared;
        let mut slots = Vec::new();
        while (*next as usize) < self.high_water() && slots.len() < max.clamp(1, ROUND_NODES_MAX) {
            if self.is_linked(*next) && !shared.meta.is_dead(*next) {
                slots.push(*next);
            }
            *next += 1;
        }
        if slots.is_empty() {
            return None;
        }
        let round = Arc::new(Round::again(&shared.graph, slots));
        // The tail stays as it is.
        self.round = Some((round.clone(), shared.tail.window().start));
        Some(round)
    }

    /// Between two rounds: writes some of the codes that are missing since a collection whose vectors lie in a file was opened; true
    /// while there are more. Until all are there, walks go over the vectors. Some 50 µs.
    pub fn encode_step(&mut self) -> bool {
        !self.round_open() && self.shared.graph.encode_step()
    }

    /// Jobs of the second phase, from the plans in round order.
    pub fn target_jobs(&self, plans: &[NodePlan]) -> Vec<TargetJob> {
        self.shared.graph.target_jobs(plans)
    }

    /// Ends the round in one go: [`Self::begin_commit`] and all its steps.
    ///
    /// # Panics
    /// As [`Self::begin_commit`].
    pub fn commit_round(&mut self, plans: Vec<NodePlan>, targets: Vec<TargetPlan>) {
        self.begin_commit(plans, targets);
        while !self.commit_step(usize::MAX) {}
    }

    /// Begins to link the round's nodes; [`Self::commit_step`] does it. Slots that died meanwhile are not linked, and nothing is
    /// linked to them.
    ///
    /// # Panics
    /// When no round is open or this one is being committed already, or `plans` are not those of its slots in order.
    pub fn begin_commit(&mut self, plans: Vec<NodePlan>, targets: Vec<TargetPlan>) {
        let (round, _) = self.round.as_ref().expect("a round is open");
        assert!(self.committing.is_none(), "a round is committed once");
        self.committing = Some(Commit::new(round, plans, targets));
    }

    /// Stores about `lists` more edge lists, each some hundred nanoseconds; true when no commit is under way (any more). The
    /// round stays open until then; writes may come between steps.
    pub fn commit_step(&mut self, lists: usize) -> bool {
        let Some(mut commit) = self.committing.take() else { return true };
        let shared = self.shared.clone();
        let is_dead = |slot: Slot| shared.meta.is_dead(slot);
        let mut linked = 0;
        let done = shared.graph.commit_step(&mut commit, lists, &is_dead, |slot| {
            linked += 1;
            self.dirty.state.insert(slot);
        });
        // Who dies from here on is counted by what is linked.
        self.linked += linked;
        sub(&shared.tail_live, linked as u64);
        self.owe_repair(linked);
        if done {
            let (_, end) = self.round.take().expect("the round is open while it is committed");
            self.pass_tail(end);
            self.reclaim();
        } else {
            self.committing = Some(commit);
        }
        done
    }

    /// Owner: what is to be done next for a trained quantizer; see [`crate::index::Graph::next_job`].
    pub fn next_job(&mut self, force: bool) -> JobStep {
        let graph = &self.shared.graph;
        let before = graph.codes_number();
        let is_live = |slot| !self.shared.meta.is_dead(slot);
        let step = graph
            .next_job(force, &Living { count: self.ordered_ids.len(), seq: self.seq, is_live: &is_live });
        self.dirty.codec |= graph.codes_number() != before;
        step
    }

    /// Owner: takes what came out of the job that [`Self::next_job`] gave last.
    ///
    /// # Errors
    /// Address space for codes runs out; searches go on without.
    pub fn finish_job(&mut self, done: JobDone) -> Result<(), ArenaError> {
        let before = self.shared.graph.codec_number();
        let finished = self.shared.graph.finish_job(done);
        self.dirty.codec |= self.shared.graph.codec_number() != before;
        finished
    }

    /// Owner: the job with that ticket failed. Searches go on without its codes.
    pub fn fail_job(&mut self, ticket: JobTicket) {
        self.shared.graph.fail_job(ticket);
    }

    /// Drives indexing to an empty tail, and cells or a quantizer that are due to their end, on the calling thread (tests, library use).
    ///
    /// # Panics
    /// When a round is open, or address space for codes runs out.
    pub fn index_all(&mut self) {
        self.index_all_counting(&mut 0);
    }

    /// As [`Self::index_all`]; counts the trainings.
    pub(super) fn index_all_counting(&mut self, trainings: &mut usize) {
        if self.files_cells() {
            return self.file_all(trainings);
        }
        self.link_all();
        loop {
            match self.next_job(false) {
                JobStep::Idle if self.rest() => {}
                JobStep::Idle => break,
                JobStep::More => {}
                JobStep::Run(job) => {
                    *trainings += usize::from(job.is_training());
                    self.finish_job(job.run()).expect("address space for codes");
                }
            }
        }
        self.give_up_step();
    }

    fn link_all(&mut self) {
        while let Some(round) = self.begin_round(ROUND_ALONE) {
            self.carry_out(&round);
        }
    }

    /// Every linked point chooses its edges anew, on the calling thread, where a bulk build links twice.
    ///
    /// # Panics
    /// When a round is open.
    pub fn relink_all(&mut self) {
        let mut next = 0;
        while self.links_twice()
            && let Some(round) = self.begin_relinking(&mut next, ROUND_ALONE)
        {
            self.carry_out(&round);
        }
    }

    fn carry_out(&mut self, round: &Round) {
        let shared = self.shared.clone();
        let mut planner = Planner::new();
        let mut plans = Vec::with_capacity(round.slots.len());
        for index in 0..round.slots.len() {
            shared.plan_start(&mut planner, round, index);
            plans.push(loop {
                if let Some(plan) = shared.plan_step(&mut planner, round, usize::MAX) {
                    break plan;
                }
            });
        }
        let jobs = self.target_jobs(&plans);
        let targets = jobs.iter().map(|job| shared.plan_target(job, &mut self.scratch)).collect();
        self.commit_round(plans, targets);
    }

    /// Restore: a live slot the image shows unlinked waits in the tail again.
    pub(super) fn requeue(&mut self, slot: Slot) {
        self.shared.tail.push(slot);
        add(&self.shared.tail_live, 1);
    }
}
