//! HNSW (Malkov, Yashunin, arXiv:1603.09320), single writer, readers on any core. To become a folder
//! `hnsw/{config,graph,scratch,search,plan,commit,repair}.rs`.
use super::{Neighbor, Slot};
use crate::distance::Metric;
use crate::memory::{Arena, ArenaError};
/// Shape of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphConfig {
    /// Vector length.
    pub dim: usize,
    /// Distance.
    pub metric: Metric,
    /// Degree on upper levels; twice that on level 0. 2..=128.
    pub m: usize,
    /// Beam while planning inserts.
    pub ef_construction: usize,
    /// Seeds the level draw: level = f(seed, key), so a graph depends on data and order only.
    pub seed: u64,
    /// Give a new node 2m forward edges on level 0.
    pub level0_full_degree: bool,
    /// Candidate pool is widened by the candidates' neighbours before selection.
    pub extend_candidates: bool,
    /// Cap of that pool, 0 = none.
    pub extend_candidates_max: usize,
    /// Slots reserved.
    pub capacity: usize,
}
/// Counters of one search.
#[derive(Clone, Copy, Debug, Default)]
pub struct SearchStats {
    /// Distances computed.
    pub distances: u64,
    /// Nodes expanded.
    pub expanded: u64,
}
/// Reusable beam state; one per concurrent search on a core; allocation-free once grown.
#[derive(Default)]
pub struct Scratch {}
/// Vectors and edges. Shared by reference between cores; methods marked "owner" are for the single writer.
pub struct Graph {}
impl Graph {
    /// Reserves arenas.
    pub fn new(config: GraphConfig) -> Result<Self, ArenaError> {
        let _ = config;
        todo!()
    }
    /// Its configuration.
    pub fn config(&self) -> &GraphConfig {
        todo!()
    }
    /// The vector arena (padded rows).
    pub fn vectors(&self) -> &Arena<f32> {
        todo!()
    }
    /// Padded row of a written slot.
    pub fn vector(&self, slot: Slot) -> &[f32] {
        let _ = slot;
        todo!()
    }
    /// Level a node with `key` (the point id) draws.
    pub fn level_of(&self, key: u64) -> u8 {
        let _ = key;
        todo!()
    }
    /// Owner: writes the (already prepared, padded or unpadded) vector of a fresh slot and clears its edges; readers cannot reach it yet.
    pub fn write_vector(&self, slot: Slot, prepared: &[f32]) {
        let _ = (slot, prepared);
    }
    /// The `ef` nearest reachable slots that `admit` accepts (nearest first, at most `ef`), walking through others.
    /// `query` is padded and prepared. Cost about ef * 2m distances.
    pub fn search<'s>(
        &self,
        query: &[f32],
        ef: usize,
        scratch: &'s mut Scratch,
        admit: impl FnMut(Slot) -> bool,
    ) -> &'s [Neighbor] {
        let _ = (query, ef, admit, scratch);
        todo!()
    }
    /// Counters of the last search in `scratch`.
    pub fn stats(scratch: &Scratch) -> SearchStats {
        let _ = scratch;
        todo!()
    }
    /// Groups the edges that `plans` add by (level, target), in deterministic order.
    pub fn target_jobs(&self, plans: &[NodePlan]) -> Vec<TargetJob> {
        let _ = plans;
        todo!()
    }
    /// Any core: the new edge list of one target (old edges + incoming, pruned by the heuristic when over the cap).
    pub fn plan_target(&self, job: &TargetJob, scratch: &mut Scratch) -> TargetPlan {
        let _ = (job, scratch);
        todo!()
    }
    /// Owner: links a planned round. Nodes become reachable here. `is_dead` slots are never linked to.
    pub fn commit(&self, plans: &[NodePlan], targets: &[TargetPlan], is_dead: impl Fn(Slot) -> bool) {
        let _ = (plans, targets, is_dead);
    }
    /// Owner: relinks `node`'s edge lists around dead slots (FreshDiskANN consolidation): dead neighbours are replaced from their own out-edges.
    /// Returns whether something changed.
    pub fn repair(&self, node: Slot, is_dead: &dyn Fn(Slot) -> bool, scratch: &mut Scratch) -> bool {
        let _ = (node, is_dead, scratch);
        todo!()
    }
    /// Owner: moves the entry point off dead slots (a live node of the highest level).
    pub fn fix_entry(&self, slots_in_use: &mut dyn Iterator<Item = Slot>, is_dead: &dyn Fn(Slot) -> bool) {
        let _ = (slots_in_use, is_dead);
    }
    /// Owner: frees a slot's edges and upper-level block once quiescent; afterwards `write_vector` may reuse the slot.
    pub fn free(&self, slot: Slot) {
        let _ = slot;
    }
    /// Whether the slot is linked (committed and not freed).
    pub fn is_linked(&self, slot: Slot) -> bool {
        let _ = slot;
        todo!()
    }
    /// Edges of a slot on every level, level 0 first, for checkpoints: calls `f(level, edges)`.
    pub fn edges(&self, slot: Slot, f: &mut dyn FnMut(u8, &[Slot])) {
        let _ = (slot, f);
    }
    /// Owner: restores a linked slot (checkpoint load); edges to slots >= capacity are refused with Err(text).
    pub fn restore(&self, slot: Slot, levels: &[Vec<Slot>]) -> Result<(), String> {
        let _ = (slot, levels);
        todo!()
    }
    /// Entry point and its level.
    pub fn entry(&self) -> Option<(Slot, u8)> {
        todo!()
    }
    /// Owner: sets the entry point (checkpoint load).
    pub fn set_entry(&self, entry: Option<(Slot, u8)>) {
        let _ = entry;
    }
    /// Owner: called with each slot whose edges `commit`/`repair` changed since the last call, then forgets them (dirty tracking for checkpoints).
    pub fn take_dirty(&self, f: &mut dyn FnMut(Slot)) {
        let _ = f;
    }
    /// Committed bytes of arenas in use.
    pub fn bytes(&self) -> usize {
        todo!()
    }
}
/// A batch of fresh slots planned together: each sees the frozen graph and, exactly scored, its earlier peers.
pub struct Round {
    /// Slots in insertion order.
    pub slots: Vec<Slot>,
    /// Their levels.
    pub levels: Vec<u8>,
}
/// Edge lists of one new node, level 0 first.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    /// The node.
    pub slot: Slot,
    /// Its edges per level.
    pub levels: Vec<Vec<Neighbor>>,
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
}
/// Plans one node in slices: `start`, then `step` until it returns the plan. Holds no pin; the owner frees no slot while a round is in flight.
pub struct Planner {}
impl Planner {
    /// Idle.
    pub fn new() -> Self {
        todo!()
    }
    /// Begins node `index` of `round`.
    pub fn start(&mut self, graph: &Graph, round: &Round, index: usize) {
        let _ = (graph, round, index);
    }
    /// Runs at most about `max_distances` distance computations; the plan when done.
    pub fn step(
        &mut self,
        graph: &Graph,
        round: &Round,
        max_distances: usize,
        is_dead: impl Fn(Slot) -> bool,
    ) -> Option<NodePlan> {
        let _ = (graph, round, max_distances, is_dead);
        todo!()
    }
}
