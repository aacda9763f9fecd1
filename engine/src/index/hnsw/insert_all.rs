//! Rounds driven on the calling thread, for tests, tools and embedders without cores to spare.
use super::{Graph, Planner, ROUND_NODES_MAX, Round, Scratch};
use crate::index::Slot;

impl Round {
    /// Owner: begins a round of `points` (slot and key; vectors written), with the levels their keys draw.
    pub fn of(graph: &Graph, points: &[(Slot, u64)]) -> Round {
        graph.begin_round();
        Round {
            slots: points.iter().map(|p| p.0).collect(),
            levels: points.iter().map(|p| graph.level_of(p.1)).collect(),
        }
    }
}

/// Owner: inserts `points` (slot and key; vectors written) in rounds of at most [`ROUND_NODES_MAX`], planned and
/// committed on this thread. `is_dead` slots are not linked, nor linked to.
pub fn insert_all(graph: &Graph, points: &[(Slot, u64)], is_dead: impl Fn(Slot) -> bool) {
    let mut planner = Planner::new();
    let mut scratch = Scratch::new();
    for points in points.chunks(ROUND_NODES_MAX) {
        let round = Round::of(graph, points);
        let plans: Vec<_> = (0..points.len())
            .map(|index| {
                planner.start(graph, &round, index);
                loop {
                    if let Some(plan) = planner.step(graph, &round, usize::MAX, &is_dead) {
                        return plan;
                    }
                }
            })
            .collect();
        let jobs = graph.target_jobs(&plans);
        let targets: Vec<_> = jobs.iter().map(|job| graph.plan_target(job, &mut scratch)).collect();
        graph.commit(plans, targets, &is_dead);
    }
}
