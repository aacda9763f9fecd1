//! The new edge list of a node that a round points at. Pure: reads the frozen graph, so any core may run it.
use super::graph::Shape;
use super::select::Selection;
use super::{Graph, NodePlan, Scratch, TargetJob, TargetPlan, round};
use crate::index::Neighbor;
use crate::slot::Slot;

impl Graph {
    /// Groups the edges that `plans` add by (level, target), in deterministic order.
    pub fn target_jobs(&self, plans: &[NodePlan]) -> Vec<TargetJob> {
        round::target_jobs(plans)
    }

    /// Any core: the new edge list of one target: old edges and in-coming ones, pruned by the heuristic when over
    /// the cap. Cost: nothing below the cap, a few distances for a list that was pruned before, up to
    /// `cap^2 / 2` for one that was not.
    pub fn plan_target(&self, job: &TargetJob, scratch: &mut Scratch) -> TargetPlan {
        let TargetJob { target, level, .. } = *job;
        let cap = self.config.degree_max(level);
        let mut old = std::mem::take(&mut scratch.fresh);
        match &job.own {
            Some(own) => own.clone_into(&mut old),
            None => self.links.read(target, level, &mut old),
        }
        let incoming: Vec<Neighbor> =
            job.incoming.iter().filter(|n| n.slot != target && !old.contains(&n.slot)).copied().collect();
        let plan = if old.len() + incoming.len() <= cap {
            let edges = old.iter().copied().chain(incoming.iter().map(|n| n.slot)).collect();
            TargetPlan { target, level, edges, kept: 0 }
        } else {
            let shape = if level == 0 && job.own.is_none() { self.shape(target) } else { Shape::default() };
            // What only the tree holds is no candidate: the heuristic dropped it before.
            old.truncate(old.len() - shape.tail);
            let selection = self.reselect((target, level), &old, shape.kept, &incoming, scratch);
            let kept = selection.kept.len().min(cap) as u16;
            let edges = selection.chosen(cap).map(|n| n.slot).collect();
            scratch.selection = selection;
            TargetPlan { target, level, edges, kept }
        };
        scratch.fresh = old;
        plan
    }

    /// The heuristic over `old` and `incoming` for a node on a level. The first `kept` of `old` are known to be what it kept of them.
    fn reselect(
        &self,
        (target, level): (Slot, u8),
        old: &[Slot],
        kept: usize,
        incoming: &[Neighbor],
        scratch: &mut Scratch,
    ) -> Selection {
        let Scratch { query, distances, .. } = scratch;
        distances.resize(old.len(), 0.0);
        self.score_slots(self.probe_node(target, query), old, distances);
        let scored = |range: std::ops::Range<usize>, distances: &[f32]| -> Vec<Neighbor> {
            range.map(|i| Neighbor { distance: distances[i], slot: old[i] }).collect()
        };
        let mut selection = std::mem::take(&mut scratch.selection);
        selection.clear();
        selection.alpha = self.config.alpha(level);
        if kept > 0 {
            selection.kept.extend(scored(0..kept, &scratch.distances));
            selection.discarded.extend(scored(kept..old.len(), &scratch.distances));
            // They were sorted by distances of vectors if codes came later.
            let sorted = selection.kept.is_sorted() && selection.discarded.is_sorted();
            if sorted && incoming.iter().all(|&new| selection.add(self, new)) {
                return selection;
            }
        }
        let mut candidates = scored(0..old.len(), &scratch.distances);
        candidates.extend(incoming);
        candidates.sort_unstable();
        selection.run(self, &candidates, self.config.degree_max(level));
        selection
    }
}
