//! Indexing, training and repair: rounds of one space at a time, which asks the points. Opened and ended by the owner, planned on any core.
//! A space is named by its number.
use super::DenseWriter;
use crate::collection::space::{Clustering, Filed, TrainingSample};
use crate::index::{FiledAt, JobStep, NodePlan, Planner, Round, Scratch, TargetPlan};
use std::sync::Arc;

/// Round size of `index_all`: at one planner larger rounds only score more peers.
const ROUND_ALONE: usize = 64;
/// Likewise where points are filed in cells.
const FILED_ALONE: usize = 256;

impl DenseWriter {
    /// Starts an indexing round over at most `max` of the oldest live tail slots, and at most as many as the graph holds
    /// (32 while it is smaller): a round's nodes find each other by scoring all their peers, which costs more than the graph
    /// in a round larger than it. None when the tail holds nothing alive.
    ///
    /// While a round is open nothing is freed.
    ///
    /// # Panics
    /// When a round is open, or points are filed in cells ([`super::SpaceWriter::files_cells`]).
    pub fn begin_round(&mut self, space: usize, max: usize) -> Option<Arc<Round>> {
        assert!(!self.round_open(), "one round at a time");
        self.spaces[space].begin_round(&mut self.points, max)
    }

    /// Ends the round in one go: [`super::SpaceWriter::begin_commit`] and all steps.
    ///
    /// # Panics
    /// As that.
    pub fn commit_round(&mut self, space: usize, plans: Vec<NodePlan>, targets: Vec<TargetPlan>) {
        self.spaces[space].begin_commit(plans, targets);
        while !self.commit_step(space, usize::MAX) {}
    }

    /// Stores about `lists` more edge lists, each some hundred nanoseconds; true when no commit is under way (any more). The
    /// round stays open until then; writes may come between steps.
    pub fn commit_step(&mut self, space: usize, lists: usize) -> bool {
        let was_open = self.round_open();
        let done = self.spaces[space].commit_step(&mut self.points, lists);
        if done && was_open && !self.round_open() {
            self.reclaim();
        }
        done
    }

    /// Begins a round over at most `max` of the oldest live tail slots, or over slots that a new clustering is to take over, in turn.
    ///
    /// # Panics
    /// When a round is open, or there are no cells to file in ([`super::SpaceWriter::files_cells`]).
    pub fn begin_filing(&mut self, space: usize, max: usize) -> Filed {
        assert!(!self.round_open(), "one round at a time");
        self.spaces[space].begin_filing(&mut self.points, max)
    }

    /// Ends the round: files its slots where they were placed. Some hundred nanoseconds each, and one for each byte of codes. Slots of the
    /// tail that died meanwhile are not filed.
    ///
    /// # Panics
    /// When no round is open, or `places` are not those of its slots in order.
    pub fn end_filing(&mut self, space: usize, places: &[FiledAt]) {
        self.spaces[space].end_filing(&mut self.points, places);
        self.reclaim();
    }

    /// One slice of a training, of about `points` points, each some hundred nanoseconds. The sample once it is whole, to be
    /// clustered elsewhere and brought back to [`Self::end_training`].
    pub fn training_step(&mut self, space: usize, points: usize) -> Option<TrainingSample> {
        self.spaces[space].training_step(&self.points, points)
    }

    /// The clustering of a sample that this writer handed out: it is filled by the next rounds, and searched when it is full. One
    /// that another writer asked for is dropped.
    pub fn end_training(&mut self, space: usize, clustering: Clustering) {
        self.spaces[space].end_training(&mut self.points, clustering);
    }

    /// What is to be done next for a trained quantizer; see [`crate::index::Graph::next_job`].
    pub fn next_job(&mut self, space: usize, force: bool) -> JobStep {
        self.spaces[space].next_job(&self.points, force)
    }

    /// Between rounds: gives the vectors of a graph up when their time has come; true when it did.
    pub fn give_up_step(&mut self, space: usize) -> bool {
        self.spaces[space].give_up_step(&mut self.points)
    }

    /// Whether [`Self::repair_step`] has work: a repair pass is due (dead slots in the graph over the threshold) or running, or
    /// slots it has retired wait to be freed. The latter may also wait for readers, so go by what `repair_step` returns.
    pub fn repair_due(&self) -> bool {
        self.spaces.iter().any(|space| space.pass_due(&self.points)) || self.points.retired() > 0
    }

    /// Nodes that `repair_step` should walk before the next round, so that repair keeps pace with writes that never pause: a
    /// multiple of what rounds have added since it last did. 0 when no pass is due.
    pub fn repair_owed(&self) -> usize {
        self.spaces.iter().map(|space| space.repair_owed(&self.points)).sum()
    }

    /// One slice of the repair pass (about `max_nodes` nodes): relink around dead slots, then retire them, then free them once
    /// quiescent. Returns true while there is more to do now; does nothing while a round is open.
    ///
    /// A node costs about 2m look-ups in a bitset; one with dead neighbours up to `4m^2` distances, and counts as eight. The node
    /// that first meets a dead slot may take several steps, in which all that hung on it finds another place.
    pub fn repair_step(&mut self, max_nodes: usize) -> bool {
        let (free, retired) = (self.points.free_slots(), self.points.retired());
        self.reclaim();
        if self.round_open() {
            return false;
        }
        let Some(space) = self.spaces.iter_mut().find(|space| space.pass_due(&self.points)) else {
            let left = self.points.retired();
            return left > 0 && (self.points.free_slots() > free || left < retired);
        };
        match space.pass_step(&mut self.points, max_nodes) {
            true => self.repair_due(),
            false => true,
        }
    }

    /// Passes over whatever is dead, below the threshold too, and as much reclamation as readers allow.
    pub(super) fn repair_all(&mut self) {
        self.leave(usize::MAX);
        for space in &mut self.spaces {
            space.retire_dead(&mut self.points);
            while space.has_dead() {
                while !space.pass_step(&mut self.points, usize::MAX) {}
            }
        }
        loop {
            while self.points.text_step() {}
            let before = (self.points.free_slots(), self.points.retired());
            self.reclaim();
            let has_texts = self.points.has_texts_waiting() || self.points.has_emptied();
            if (self.points.free_slots(), self.points.retired()) == before && !has_texts {
                break;
            }
        }
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
        for space in 0..self.spaces.len() {
            self.index_space(space, trainings);
        }
    }

    fn index_space(&mut self, space: usize, trainings: &mut usize) {
        if self.spaces[space].files_cells() {
            return self.file_all(space, trainings);
        }
        while let Some(round) = self.begin_round(space, ROUND_ALONE) {
            self.carry_out(space, &round);
        }
        loop {
            match self.next_job(space, false) {
                JobStep::Idle if self.spaces[space].rest(&mut self.points) => {}
                JobStep::Idle => break,
                JobStep::More => {}
                JobStep::Run(job) => {
                    *trainings += usize::from(job.is_training());
                    self.spaces[space].finish_job(job.run()).expect("address space for codes");
                }
            }
        }
        self.give_up_step(space);
    }

    /// Every linked point chooses its edges anew, on the calling thread, where a bulk build links twice.
    ///
    /// # Panics
    /// When a round is open.
    pub fn relink_all(&mut self) {
        for space in 0..self.spaces.len() {
            let mut next = 0;
            while self.spaces[space].links_twice()
                && let Some(round) = self.spaces[space].begin_relinking(&mut next, ROUND_ALONE)
            {
                self.carry_out(space, &round);
            }
        }
    }

    fn carry_out(&mut self, number: usize, round: &Round) {
        let space = self.shared.spaces[number].clone();
        let mut planner = Planner::new();
        let mut plans = Vec::with_capacity(round.slots.len());
        for index in 0..round.slots.len() {
            space.plan_start(&mut planner, round, index);
            plans.push(loop {
                if let Some(plan) = space.plan_step(&mut planner, round, usize::MAX) {
                    break plan;
                }
            });
        }
        let jobs = self.spaces[number].target_jobs(&plans);
        let mut scratch = Scratch::new();
        let targets = jobs.iter().map(|job| space.plan_target(job, &mut scratch)).collect();
        self.commit_round(number, plans, targets);
    }

    fn training_due_at_rest(&mut self, number: usize) -> bool {
        let space = &mut self.spaces[number];
        space.training_due() || space.rest(&mut self.points)
    }

    /// Drives filing and training to an end on the calling thread.
    fn file_all(&mut self, number: usize, trainings: &mut usize) {
        let space = self.shared.spaces[number].clone();
        let mut buffer = Vec::new();
        loop {
            while self.spaces[number].training_due() {
                if let Some(sample) = self.training_step(number, usize::MAX) {
                    *trainings += 1;
                    self.end_training(number, sample.cluster());
                }
            }
            match self.begin_filing(number, FILED_ALONE) {
                Filed::Nothing if self.training_due_at_rest(number) => {}
                Filed::Nothing => break,
                Filed::Moved(_) => {}
                Filed::Round(round) => {
                    let places: Vec<FiledAt> =
                        (0..round.len()).map(|index| space.place(&round, index, &mut buffer)).collect();
                    self.end_filing(number, &places);
                }
            }
        }
    }
}
