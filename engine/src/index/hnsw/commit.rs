//! Linking a planned round: the owner's part of an insert.
use std::sync::atomic::{Ordering, fence};

use super::graph::{Owner, Shape};
use super::{Graph, NodePlan, Round, TargetPlan};
use crate::slot::Slot;

/// Lists that finding an orphan a parent counts for in [`Graph::commit_step`]: it may take a search.
const LISTS_PER_ORPHAN: usize = 64;

/// A planned round on its way into the graph.
///
/// First the new nodes get their own lists, then their targets get theirs, so a reader that meets a new node finds its edges;
/// then each new node joins the tree that keeps all nodes reachable.
#[derive(Debug)]
pub struct Commit {
    plans: Vec<NodePlan>,
    targets: Vec<TargetPlan>,
    relinks: bool,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Orphans of earlier changes find parents, as new nodes may hang on nobody who has none.
    Settle,
    Node(usize),
    Target(usize),
    Join(usize),
    Adopt,
    Done,
}

impl Commit {
    /// What was planned for `round`; nothing linked yet.
    ///
    /// # Panics
    /// When `plans` are not those of its slots in order.
    pub fn new(round: &Round, plans: Vec<NodePlan>, targets: Vec<TargetPlan>) -> Commit {
        let slots = plans.iter().map(|plan| plan.slot);
        assert!(slots.eq(round.slots.iter().copied()), "one plan for each slot of the round, in order");
        Commit { plans, targets, relinks: round.relinks, stage: Stage::Settle }
    }
}

impl Graph {
    /// Owner: links a planned round in one go; see [`Self::commit_step`].
    ///
    /// # Panics
    /// When a planned slot is linked already, or a plan holds more edges than fit.
    pub fn commit(&self, mut commit: Commit, is_dead: impl Fn(Slot) -> bool) {
        while !self.commit_step(&mut commit, usize::MAX, &is_dead, |_| ()) {}
    }

    /// Owner: the next `lists` lists (about, and at least one) of a planned round; true at its end. Nodes become reachable on
    /// the way; `linked` is called with each as it is linked. Slots that `is_dead` are not linked, nor linked to; more of them
    /// may be dead at each step. Cost: no distances; a few hundred nanoseconds per list.
    ///
    /// # Panics
    /// When a planned slot is linked already, or a plan holds more edges than fit.
    pub fn commit_step(
        &self,
        commit: &mut Commit,
        lists: usize,
        is_dead: &impl Fn(Slot) -> bool,
        mut linked: impl FnMut(Slot),
    ) -> bool {
        let mut owner = self.owner();
        let mut left = lists.max(1);
        while left > 0 {
            let mut cost = 1;
            commit.stage = match commit.stage {
                Stage::Settle | Stage::Adopt => {
                    let orphans = (left / LISTS_PER_ORPHAN).max(1);
                    cost = orphans.min(owner.orphans.len()) * LISTS_PER_ORPHAN;
                    match (self.adopt_some(&mut owner, orphans, is_dead), commit.stage) {
                        (false, stage) => stage,
                        (true, Stage::Settle) => Stage::Node(0),
                        (true, _) => {
                            self.raise_entry(&commit.plans, is_dead);
                            Stage::Done
                        }
                    }
                }
                Stage::Node(index) => match commit.plans.get(index) {
                    Some(plan) => {
                        match (is_dead(plan.slot), commit.relinks) {
                            (true, _) => {}
                            (false, true) => self.relink_node(&mut owner, plan, is_dead),
                            (false, false) => {
                                self.link_node(&mut owner, plan, is_dead);
                                linked(plan.slot);
                            }
                        }
                        Stage::Node(index + 1)
                    }
                    None => {
                        // Whoever copies an edge to a new node and fences sees the node's vector and lists.
                        fence(Ordering::Release);
                        Stage::Target(0)
                    }
                },
                Stage::Target(index) => match commit.targets.get(index) {
                    Some(plan) => {
                        // A dead target is a node of this round that was not linked, or a way-point, whose old edges serve as well.
                        if !is_dead(plan.target) {
                            self.link_target(&mut owner, plan, is_dead);
                        }
                        Stage::Target(index + 1)
                    }
                    None if commit.relinks => Stage::Adopt,
                    None => Stage::Join(0),
                },
                Stage::Join(index) => match commit.plans.get(index) {
                    Some(plan) => {
                        if self.is_linked(plan.slot) {
                            self.join_tree(&mut owner, plan, is_dead);
                        }
                        Stage::Join(index + 1)
                    }
                    None => Stage::Adopt,
                },
                Stage::Done => return true,
            };
            left = left.saturating_sub(cost);
        }
        matches!(commit.stage, Stage::Done)
    }

    /// Enters at a new node that is higher than the entry point. Last, as the entry point may be the round's own.
    fn raise_entry(&self, plans: &[NodePlan], is_dead: &impl Fn(Slot) -> bool) {
        for plan in plans.iter().filter(|plan| self.is_linked(plan.slot) && !is_dead(plan.slot)) {
            let level = self.links.level(plan.slot);
            if self.entry().is_some_and(|(_, top)| level > top) {
                self.store_entry(Some((plan.slot, level)));
            }
        }
    }

    fn link_node(&self, owner: &mut Owner, plan: &NodePlan, is_dead: &impl Fn(Slot) -> bool) {
        assert!(!self.is_linked(plan.slot), "slot {} is linked already", plan.slot);
        let level = self.place_node(owner, plan.slot, (plan.levels.len() - 1) as u8);
        for (level, list) in (0..=level).zip(&plan.levels) {
            owner.new.clear();
            owner.new.extend(list.iter().map(|n| n.slot).filter(|&slot| !is_dead(slot)));
            self.replace_list(owner, plan.slot, level, 0);
        }
        self.mark_linked(plan.slot);
        self.mark_dirty(owner, plan.slot);
    }

    /// The tree stays as it is.
    fn relink_node(&self, owner: &mut Owner, plan: &NodePlan, is_dead: &impl Fn(Slot) -> bool) {
        assert!(self.is_linked(plan.slot), "slot {} is not linked", plan.slot);
        owner.new.clear();
        owner.new.extend(plan.levels[0].iter().map(|n| n.slot).filter(|&slot| !is_dead(slot)));
        self.replace_list(owner, plan.slot, 0, 0);
    }

    fn link_target(&self, owner: &mut Owner, plan: &TargetPlan, is_dead: &impl Fn(Slot) -> bool) {
        self.links.read(plan.target, plan.level, &mut owner.old);
        let Owner { old, new, .. } = owner;
        new.clear();
        // Dead ones that are linked already stay: they route until repair has replaced them.
        new.extend(plan.edges.iter().filter(|edge| !is_dead(**edge) || old.contains(edge)));
        if plan.level > 0 {
            // A node whose upper blocks could not be allocated ended lower than planned.
            new.retain(|&edge| self.links.level(edge) >= plan.level);
            if self.links.level(plan.target) < plan.level {
                return;
            }
        }
        let kept = if new.len() == plan.edges.len() { plan.kept } else { 0 };
        self.replace_list(owner, plan.target, plan.level, kept);
    }

    /// Stores `owner.new`, whose first `kept` edges the heuristic kept (0 = unknown), as the list of `slot`, with the
    /// tree's edges put back where they were pruned. Returns whether anything changed.
    pub(super) fn replace_list(&self, owner: &mut Owner, slot: Slot, level: u8, kept: u16) -> bool {
        self.links.read(slot, level, &mut owner.old);
        let Owner { old, new, .. } = owner;
        if level == 0 {
            let mut shape = Shape { kept: usize::from(kept), tail: 0 };
            for &edge in old.iter() {
                if self.is_tree_edge(slot, edge) && !new.contains(&edge) {
                    let put = self.put_edge(new, &mut shape, slot, edge);
                    assert!(put, "the tree holds more edges of {slot} than its list did");
                }
            }
            self.set_shape(slot, shape);
        }
        if old == new {
            return false;
        }
        self.links.write(slot, level, new);
        self.mark_dirty(owner, slot);
        true
    }

    /// Puts `edge` at the end of the level-0 list of `slot`, in the place of the last one that the tree does not hold
    /// when the list is full. False when it holds all.
    fn put_edge(&self, list: &mut Vec<Slot>, shape: &mut Shape, slot: Slot, edge: Slot) -> bool {
        if list.len() == self.config.degree_max(0) {
            let spare = list.iter().rposition(|&other| !self.is_tree_edge(slot, other));
            let Some(spare) = spare else { return false };
            if spare < shape.kept {
                // Without it, others would not have been discarded.
                *shape = Shape::default();
            } else if spare >= list.len() - shape.tail {
                shape.tail -= 1;
            }
            list.remove(spare);
        }
        list.push(edge);
        if shape.kept > 0 {
            shape.tail += 1;
        }
        true
    }

    /// Adds a level-0 edge outside the heuristic; see [`Self::put_edge`]. True when the edge is there.
    pub(super) fn push_edge(&self, owner: &mut Owner, from: Slot, to: Slot) -> bool {
        self.links.read(from, 0, &mut owner.new);
        if owner.new.contains(&to) {
            return true;
        }
        let mut shape = self.shape(from);
        let put = self.put_edge(&mut owner.new, &mut shape, from, to);
        if put {
            self.links.write(from, 0, &owner.new);
            self.set_shape(from, shape);
            self.mark_dirty(owner, from);
        }
        put
    }
}
