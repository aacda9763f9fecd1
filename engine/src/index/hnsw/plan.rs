//! Planning one node's edges, in slices (Algorithm 1 up to the point where it changes the graph).
use super::scratch::QueryForms;
use super::search::Patience;
use super::select::Selection;
use super::{Graph, NodePlan, Round, Scratch, SearchStats};
use crate::index::{Neighbor, neighbor};
use crate::slot::Slot;

/// Peers scored between two looks at the budget.
const PEERS_PER_UNIT: usize = 64;
/// Dead candidates a beam may pass over, as a multiple of `ef_construction`. Around a point whose whole neighbourhood was just
/// deleted or replaced, an insert would otherwise walk through all of that: on a tenth of 118,000 points up to 55 ms.
const REFUSALS_PER_EF: usize = 8;

/// Plans one node in slices: `start`, then `step` until it returns the plan. Reusable; allocation-free once grown,
/// but for the plan. Holds no pin; the owner frees no slot while a round is in flight.
#[derive(Default)]
pub struct Planner {
    scratch: Scratch,
    /// The node as codes are compared with, when plans go over codes.
    forms: QueryForms,
    selection: Selection,
    candidates: Vec<Neighbor>,
    node: Slot,
    /// Place in the round: the slots before it are its peers.
    index: usize,
    /// Where the search on the next level begins.
    at: Option<Neighbor>,
    stage: Stage,
    /// Of the beam on the current level.
    patience: Patience,
    lists: Vec<Vec<Neighbor>>,
    copy: Option<Slot>,
    orders: Vec<u64>,
}

/// What the next unit of work is. Levels go down; `lists` is filled from the top level to level 0.
#[derive(Clone, Copy, Default)]
enum Stage {
    /// No node, or its plan was handed out.
    #[default]
    Idle,
    /// One hop on `level`, which is above the node's.
    Descend { level: u8 },
    /// The beam on `level` is to begin.
    Enter { level: u8 },
    /// One expansion.
    Beam { level: u8 },
    /// Peers from `next` on are to be scored.
    Peers { level: u8, next: usize },
    /// Neighbours of candidate `next` join the pool.
    Extend { level: u8, next: usize },
    /// The heuristic looks at candidate `next`.
    Select { level: u8, next: usize },
    /// All lists are made.
    Done,
}

impl Planner {
    /// Idle.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins node `index` of `round`, whose vectors are written.
    pub fn start(&mut self, graph: &Graph, round: &Round, index: usize) {
        self.node = round.slots[index];
        self.index = index;
        self.at = None;
        self.lists.clear();
        self.scratch.stats = SearchStats::default();
        let level = round.levels[index];
        self.stage = match graph.entry() {
            Some((entry, top)) => {
                let probe = graph.probe_new(self.node, &mut self.forms);
                self.at = Some(graph.begin_descent(probe, entry, &mut self.scratch));
                if top > level { Stage::Descend { level: top } } else { Stage::Enter { level } }
            }
            None => {
                graph.probe_new(self.node, &mut self.forms);
                Stage::Enter { level }
            }
        };
    }

    /// Works until at least `max_distances` distances are computed (one unit over at most: an expansion, or
    /// 64 peers); the plan when done. The same `graph`, `round` and meaning of `is_dead` as at the start.
    ///
    /// # Panics
    /// When no node was started.
    pub fn step(
        &mut self,
        graph: &Graph,
        round: &Round,
        max_distances: usize,
        is_dead: impl Fn(Slot) -> bool,
    ) -> Option<NodePlan> {
        let budget = self.scratch.stats.distances.saturating_add(max_distances as u64);
        loop {
            self.stage = self.unit(graph, round, &is_dead);
            if let Stage::Done = self.stage {
                self.stage = Stage::Idle;
                self.lists.reverse();
                let levels = std::mem::take(&mut self.lists);
                return Some(NodePlan { slot: self.node, levels, copy: self.copy });
            }
            if self.scratch.stats.distances >= budget {
                return None;
            }
        }
    }

    fn unit(&mut self, graph: &Graph, round: &Round, is_dead: &impl Fn(Slot) -> bool) -> Stage {
        match self.stage {
            Stage::Idle => panic!("a planner was stepped without a node"),
            Stage::Descend { level } => self.descend(graph, level, round.levels[self.index]),
            Stage::Enter { level } => self.enter(graph, level, is_dead),
            Stage::Beam { level } => {
                let Planner { patience, scratch, forms, node, .. } = self;
                // A linked node meets itself.
                let fits = |slot| slot != *node && !is_dead(slot);
                if graph.expand(graph.started(*node, forms), level, scratch, &mut |slot| {
                    patience.admits(fits(slot))
                }) {
                    return Stage::Beam { level };
                }
                self.candidates.extend(scratch.pool.counted().filter(|near| fits(near.slot)));
                self.at = self.candidates.first().copied().or(self.at);
                Stage::Peers { level, next: 0 }
            }
            Stage::Peers { level, next } if next < self.index && !round.relinks => {
                let end = self.index.min(next + PEERS_PER_UNIT);
                let peers = (next..end).filter(|&i| round.levels[i] >= level).map(|i| round.slots[i]);
                self.add_candidates(graph, peers.filter(|&slot| !is_dead(slot)));
                Stage::Peers { level, next: end }
            }
            Stage::Peers { level, .. } => {
                self.sort_candidates();
                // Peers may be copies of one vector as well.
                graph.thin(&mut self.candidates, graph.config.ef_construction);
                if round.relinks {
                    self.add_own(graph, is_dead);
                }
                if graph.config.extend_candidates {
                    self.begin_extension(graph);
                    return Stage::Extend { level, next: 0 };
                }
                self.begin_selection(graph, level)
            }
            Stage::Extend { level, next } => self.extend(graph, level, next, is_dead),
            Stage::Select { level, next } => self.select(graph, level, next),
            Stage::Done => Stage::Done,
        }
    }

    fn descend(&mut self, graph: &Graph, level: u8, node_level: u8) -> Stage {
        let probe = graph.started(self.node, &self.forms);
        let nearer = self.at.and_then(|at| graph.hop(probe, level, at, &mut self.scratch));
        match nearer {
            Some(nearer) => {
                self.at = Some(nearer);
                Stage::Descend { level }
            }
            None if level - 1 > node_level => Stage::Descend { level: level - 1 },
            None => Stage::Enter { level: level - 1 },
        }
    }

    /// Levels above the entry point have peers only.
    fn enter(&mut self, graph: &Graph, level: u8, is_dead: &impl Fn(Slot) -> bool) -> Stage {
        self.candidates.clear();
        match (self.at, graph.entry()) {
            (Some(start), Some((_, top))) if level <= top => {
                let ef = graph.config.ef_construction;
                let Planner { patience, scratch, .. } = self;
                *patience = Patience(REFUSALS_PER_EF * ef);
                let node = self.node;
                graph.begin_beam(start, (ef, 1), scratch, &mut |slot: Slot| {
                    patience.admits(slot != node && !is_dead(slot))
                });
                Stage::Beam { level }
            }
            _ => Stage::Peers { level, next: 0 },
        }
    }

    /// Scores slots and adds them to the candidates.
    fn add_candidates(&mut self, graph: &Graph, slots: impl Iterator<Item = Slot>) {
        self.scratch.fresh.clear();
        self.scratch.fresh.extend(slots);
        graph.score(graph.started(self.node, &self.forms), &mut self.scratch);
        let scored = self.scratch.fresh.iter().zip(&self.scratch.distances);
        self.candidates.extend(scored.map(|(&slot, &distance)| Neighbor { distance, slot }));
    }

    /// The edges that a linked node has are candidates, however far they lead.
    fn add_own(&mut self, graph: &Graph, is_dead: &impl Fn(Slot) -> bool) {
        let mut own = Vec::with_capacity(graph.config.degree_max(0));
        graph.links.read(self.node, 0, &mut own);
        own.retain(|&edge| !is_dead(edge) && self.candidates.iter().all(|near| near.slot != edge));
        self.add_candidates(graph, own.into_iter());
        self.sort_candidates();
    }

    fn sort_candidates(&mut self) {
        neighbor::sort(&mut self.candidates, &mut self.orders);
    }

    /// From here on the visited set holds the candidates: a slot that the beam met and let go may come back.
    fn begin_extension(&mut self, graph: &Graph) {
        self.scratch.visited.reset(graph.slots_end());
        self.scratch.visited.insert(self.node);
        for candidate in &self.candidates {
            self.scratch.visited.insert(candidate.slot);
        }
    }

    /// The neighbours of the first `ef_construction` candidates, those of the nearest first, up to the cap.
    fn extend(&mut self, graph: &Graph, level: u8, next: usize, is_dead: &impl Fn(Slot) -> bool) -> Stage {
        let max = match graph.config.extend_candidates_max {
            0 => usize::MAX,
            max => max,
        };
        // Candidates added below lie past those that are extended: the pool ascends up to `ef_construction`.
        if next < self.candidates.len().min(graph.config.ef_construction) && self.candidates.len() < max {
            let room = max - self.candidates.len();
            let from = self.candidates[next].slot;
            let visited = &mut self.scratch.visited;
            let mut near = Vec::with_capacity(graph.config.degree_max(level));
            graph.links.for_each(from, level, |edge| {
                if near.len() < room && !is_dead(edge) && visited.insert(edge) {
                    near.push(edge);
                }
            });
            super::links::Links::acquire();
            self.add_candidates(graph, near.into_iter());
            return Stage::Extend { level, next: next + 1 };
        }
        self.sort_candidates();
        self.begin_selection(graph, level)
    }

    /// A candidate with the node's own vector. It need not be the nearest one: by inner product a longer vector is nearer to the node than the
    /// node is to itself.
    fn find_copy(&mut self, graph: &Graph) -> Option<Slot> {
        self.scratch.fresh.clear();
        self.scratch.fresh.push(self.node);
        graph.score(graph.started(self.node, &self.forms), &mut self.scratch);
        let own = Neighbor { distance: self.scratch.distances[0], slot: 0 };
        let from = self.candidates.partition_point(|&near| near < own);
        let mut tied = self.candidates[from..].iter().take_while(|near| near.is_as_far_as(own));
        tied.find(|near| graph.is_copy(near.slot, self.node)).map(|near| near.slot)
    }

    fn begin_selection(&mut self, graph: &Graph, level: u8) -> Stage {
        self.selection.clear();
        self.selection.alpha = graph.config.alpha(level);
        Stage::Select { level, next: 0 }
    }

    fn select(&mut self, graph: &Graph, level: u8, next: usize) -> Stage {
        let cap = graph.config.degree_forward(level);
        if next < self.candidates.len() && self.selection.kept.len() < cap {
            let computed = self.selection.offer(graph, self.candidates[next]);
            self.scratch.stats.distances += computed as u64;
            return Stage::Select { level, next: next + 1 };
        }
        // What the heuristic did not look at is farther than everything it saw, and it stops only when the list is
        // full, so the refill misses nothing.
        self.lists.push(self.selection.chosen(cap).collect());
        if level > 0 {
            return Stage::Enter { level: level - 1 };
        }
        self.copy = self.find_copy(graph);
        Stage::Done
    }
}
