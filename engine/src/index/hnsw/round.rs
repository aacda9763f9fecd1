//! What travels between planners and the owner in a round, and how its edges are grouped.
use crate::index::Neighbor;
use crate::slot::Slot;

/// Most nodes of one round. Every node is scored against its earlier peers; they stay in the second-level cache at
/// this size, so 256 of them on average cost about 3 % of a plan, while a round is long enough that cores waiting
/// for its last node lose less.
pub const ROUND_NODES_MAX: usize = 512;

/// A batch of fresh slots planned together: each sees the frozen graph and, every one of them scored, its earlier peers.
///
/// The owner writes the vectors, any cores plan the nodes ([`super::Planner`]), the owner groups what was planned
/// ([`super::Graph::target_jobs`]), any cores plan the targets ([`super::Graph::plan_target`]), the owner commits.
/// Between the first plan and the commit the graph does not change.
#[derive(Clone, Debug)]
pub struct Round {
    /// Slots in insertion order.
    pub slots: Vec<Slot>,
    /// Their levels.
    pub levels: Vec<u8>,
    /// They are linked already and choose their edges on level 0 anew, among what a beam finds and those they have: the second pass of
    /// Vamana (DiskANN, NeurIPS 2019, algorithm 3).
    pub relinks: bool,
}

/// Edge lists of one new node, level 0 first.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    /// The node.
    pub slot: Slot,
    /// Its edges per level: those the heuristic kept, nearest first, then the refill, nearest first.
    pub levels: Vec<Vec<Neighbor>>,
    /// A node of the graph, or an earlier one of the round, with the same vector.
    pub copy: Option<Slot>,
}

/// Edges a round adds to one existing (or same-round) node.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetJob {
    /// Node whose list changes.
    pub target: Slot,
    /// Level.
    pub level: u8,
    /// New in-coming neighbours.
    pub incoming: Vec<Neighbor>,
    /// Edges the round itself gives the target at this level, when it is a node of the round.
    pub own: Option<Vec<Slot>>,
}

/// The list to store.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetPlan {
    /// Node.
    pub target: Slot,
    /// Level.
    pub level: u8,
    /// New list.
    pub edges: Vec<Slot>,
    /// How many of them, from the front, the heuristic kept (the rest is refill); 0 when it did not run. Lets the
    /// next overflow check the new edge only.
    pub kept: u16,
}

/// Groups the edges that `plans` add by (level, target): jobs ascending by both, each with its in-coming neighbours
/// in round order.
pub(super) fn target_jobs(plans: &[NodePlan]) -> Vec<TargetJob> {
    let mut edges: Vec<(u8, Slot, u32, Neighbor)> = Vec::new();
    for (index, plan) in plans.iter().enumerate() {
        for (level, list) in plan.levels.iter().enumerate() {
            edges.extend(list.iter().map(|to| {
                let back = Neighbor { distance: to.distance, slot: plan.slot };
                (level as u8, to.slot, index as u32, back)
            }));
        }
    }
    edges.sort_unstable_by_key(|&(level, target, index, _)| (level, target, index));
    let mut members: Vec<(Slot, usize)> = plans.iter().map(|p| p.slot).zip(0..).collect();
    members.sort_unstable();

    edges
        .chunk_by(|a, b| (a.0, a.1) == (b.0, b.1))
        .map(|group| {
            let (level, target, ..) = group[0];
            let member = members.binary_search_by_key(&target, |m| m.0).ok().map(|at| &plans[members[at].1]);
            let own = member.map(|plan| {
                plan.levels
                    .get(usize::from(level))
                    .map_or(vec![], |list| list.iter().map(|n| n.slot).collect())
            });
            TargetJob { target, level, incoming: group.iter().map(|e| e.3).collect(), own }
        })
        .collect()
}
