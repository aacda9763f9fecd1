//! Indexing rounds: tail slots move into the graph. Planned on any core, opened and committed by the owner.
use super::{Arc, ArenaError, NodePlan, PointsWriter, Round, Slot, SpaceWriter, TargetJob, TargetPlan, sub};
use crate::index::{Commit, JobDone, JobStep, JobTicket, Living, ROUND_NODES_MAX};

/// Round size while the graph is smaller than that: its nodes all see each other, so an empty graph can start there.
const ROUND_MIN: usize = 32;

impl SpaceWriter {
    /// Starts an indexing round over at most `max` of the oldest live tail slots, and at most as many as the graph holds
    /// (32 while it is smaller): a round's nodes find each other by scoring all their peers, which costs more than the graph
    /// in a round larger than it. None when the tail holds nothing alive.
    ///
    /// While a round is open nothing is freed.
    ///
    /// # Panics
    /// When a round is open.
    pub(crate) fn begin_round(&mut self, points: &mut PointsWriter, max: usize) -> Option<Arc<Round>> {
        assert!(!self.round_open() && !self.files_cells(), "one round at a time, and of a graph");
        self.drop_dead_front(points);
        let limit = max.max(1).min(self.linked.max(ROUND_MIN)).min(ROUND_NODES_MAX);
        let shared = &self.shared;
        let window = shared.tail.window();
        let mut slots = Vec::new();
        let mut position = window.start;
        while position < window.end && slots.len() < limit {
            let slot = shared.tail.slot(position);
            if !shared.points.is_dead(slot) {
                slots.push(slot);
            }
            position += 1;
        }
        if slots.is_empty() {
            return None;
        }
        shared.graph.begin_round();
        let levels = slots.iter().map(|&slot| shared.graph.level_of(shared.points.id(slot))).collect();
        let round = Arc::new(Round { slots, levels, relinks: false });
        self.index.of_graph().round = Some((round.clone(), position));
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
        while *next < shared.points.slots() && slots.len() < max.clamp(1, ROUND_NODES_MAX) {
            if self.is_linked(*next) && !shared.points.is_dead(*next) {
                slots.push(*next);
            }
            *next += 1;
        }
        if slots.is_empty() {
            return None;
        }
        let round = Arc::new(Round::again(&shared.graph, slots));
        // The tail stays as it is.
        let start = shared.tail.window().start;
        self.index.of_graph().round = Some((round.clone(), start));
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

    /// Begins to link the round's nodes; [`super::super::DenseWriter::commit_step`] does it. Slots that died meanwhile are not linked, and nothing is
    /// linked to them.
    ///
    /// # Panics
    /// When no round is open or this one is being committed already, or `plans` are not those of its slots in order.
    pub fn begin_commit(&mut self, plans: Vec<NodePlan>, targets: Vec<TargetPlan>) {
        let linking = self.index.of_graph();
        let (round, _) = linking.round.as_ref().expect("a round is open");
        assert!(linking.committing.is_none(), "a round is committed once");
        linking.committing = Some(Commit::new(round, plans, targets));
    }

    /// Stores about `lists` more edge lists, each some hundred nanoseconds; true when no commit is under way (any more). The
    /// round stays open until then; writes may come between steps.
    pub(crate) fn commit_step(&mut self, points: &mut PointsWriter, lists: usize) -> bool {
        let Some(linking) = self.index.linking_mut() else { return true };
        let Some(mut commit) = linking.committing.take() else { return true };
        let shared = self.shared.clone();
        let is_dead = |slot: Slot| shared.points.is_dead(slot);
        let mut linked = 0;
        let done = shared.graph.commit_step(&mut commit, lists, &is_dead, |slot| {
            linked += 1;
            self.changes.state.insert(slot);
        });
        // Who dies from here on is counted by what is linked.
        self.linked += linked;
        sub(&shared.tail_live, linked as u64);
        self.owe_repair(points, linked);
        let linking = self.index.of_graph();
        if done {
            let (_, end) = linking.round.take().expect("the round is open while it is committed");
            self.pass_tail(points, end);
        } else {
            linking.committing = Some(commit);
        }
        done
    }

    /// Owner: what is to be done next for a trained quantizer; see [`crate::index::Graph::next_job`].
    pub(crate) fn next_job(&mut self, points: &PointsWriter, force: bool) -> JobStep {
        let graph = &self.shared.graph;
        let before = graph.codes_number();
        let is_live = |slot| self.shared.lives(slot);
        let living = Living { count: self.shared.vectors() as usize, seq: points.seq(), is_live: &is_live };
        let step = graph.next_job(force, &living);
        self.changes.codec |= graph.codes_number() != before;
        step
    }

    /// Owner: takes what came out of the job that [`super::super::DenseWriter::next_job`] gave last.
    ///
    /// # Errors
    /// Address space for codes runs out; searches go on without.
    pub fn finish_job(&mut self, done: JobDone) -> Result<(), ArenaError> {
        let before = self.shared.graph.codec_number();
        let finished = self.shared.graph.finish_job(done);
        self.changes.codec |= self.shared.graph.codec_number() != before;
        finished
    }

    /// Owner: the job with that ticket failed. Searches go on without its codes.
    pub fn fail_job(&mut self, ticket: JobTicket) {
        self.shared.graph.fail_job(ticket);
    }
}
