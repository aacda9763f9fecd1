//! Rounds driven on the calling thread, for tests, tools and embedders without cores to spare.
use super::{Commit, Graph, Planner, ROUND_NODES_MAX, Round, Scratch};
use crate::slot::Slot;

impl Round {
    /// Owner: begins a round in which linked `slots` choose their edges anew.
    pub fn again(graph: &Graph, slots: Vec<Slot>) -> Round {
        graph.begin_round();
        Round { levels: vec![0; slots.len()], slots, relinks: true }
    }

    /// Owner: begins a round of `points` (slot and key; vectors written), with the levels their keys draw.
    pub fn of(graph: &Graph, points: &[(Slot, u64)]) -> Round {
        graph.begin_round();
        Round {
            slots: points.iter().map(|p| p.0).collect(),
            levels: points.iter().map(|p| graph.level_of(p.1)).collect(),
            relinks: false,
        }
    }
}

/// Owner: inserts `points` (slot and key; vectors written) in rounds of at most [`ROUND_NODES_MAX`], planned and
/// committed on this thread. `is_dead` slots are not linked, nor linked to.
pub fn insert_all(graph: &Graph, points: &[(Slot, u64)], is_dead: impl Fn(Slot) -> bool) {
    let rounds = points.chunks(ROUND_NODES_MAX).map(|points| Round::of(graph, points));
    carry_out(graph, rounds, &is_dead);
}

/// Owner: `slots`, linked and not dead, choose their edges anew, in such rounds.
pub fn relink_all(graph: &Graph, slots: &[Slot], is_dead: impl Fn(Slot) -> bool) {
    let rounds = slots.chunks(ROUND_NODES_MAX).map(|slots| Round::again(graph, slots.to_vec()));
    carry_out(graph, rounds, &is_dead);
}

fn carry_out(graph: &Graph, rounds: impl Iterator<Item = Round>, is_dead: &impl Fn(Slot) -> bool) {
    let mut planner = Planner::new();
    let mut scratch = Scratch::new();
    for round in rounds {
        let plans: Vec<_> = (0..round.slots.len())
            .map(|index| {
                planner.start(graph, &round, index);
                loop {
                    if let Some(plan) = planner.step(graph, &round, usize::MAX, is_dead) {
                        return plan;
                    }
                }
            })
            .collect();
        let jobs = graph.target_jobs(&plans);
        let targets: Vec<_> = jobs.iter().map(|job| graph.plan_target(job, &mut scratch)).collect();
        graph.commit(Commit::new(&round, plans, targets), is_dead);
    }
}
