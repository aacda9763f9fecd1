//! Linking a planned round: the owner's part of an insert.
use std::sync::atomic::{Ordering, fence};

use super::graph::{Owner, Shape};
use super::{Graph, NodePlan, TargetPlan};
use crate::index::Slot;

impl Graph {
    /// Owner: links a planned round. Nodes become reachable here. `is_dead` slots are never linked to.
    ///
    /// First the new nodes' own lists, then those of their targets, so a reader that meets a new node finds its edges;
    /// then each new node joins the tree that keeps all nodes reachable. Cost: no distances; a few hundred
    /// nanoseconds per target.
    ///
    /// # Panics
    /// When a planned slot is linked already, or a plan holds more edges than fit.
    pub fn commit(&self, plans: &[NodePlan], targets: &[TargetPlan], is_dead: impl Fn(Slot) -> bool) {
        let mut owner = self.owner();
        self.adopt_orphans(&mut owner, &is_dead);
        for plan in plans {
            self.link_node(&mut owner, plan, &is_dead);
        }
        // Whoever copies an edge to a new node and fences sees the node's vector and lists.
        fence(Ordering::Release);
        for plan in targets {
            self.link_target(&mut owner, plan, &is_dead);
        }
        for plan in plans {
            self.join_tree(&mut owner, plan, &is_dead);
            let level = self.links.level(plan.slot);
            if !is_dead(plan.slot) && self.entry().is_some_and(|(_, top)| level > top) {
                self.store_entry(Some((plan.slot, level)));
            }
        }
        self.adopt_orphans(&mut owner, &is_dead);
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
