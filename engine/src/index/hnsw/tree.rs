//! The tree that keeps every node reachable.
//!
//! Pruning looks at one list at a time and may cut off a node, or a whole cluster, that no other list leads to. So
//! each node has a parent, and the edges between the two are held in both level-0 lists whatever the heuristic says.
//! The parent of a new node is its nearest neighbour that lists it anyway, so the tree's edges are mostly ones the
//! heuristic would keep: it takes about two of a list's `3m` places. Edge lists name only a few of equal vectors, so the
//! tree holds these together: a new copy becomes a child of another copy.
//!
//! A dead node stays in the tree, as it still routes, until repair gives it up; its children then look for a new
//! parent among their neighbours. No parent is taken from a node's own subtree: one walk towards the root decides.
use super::Graph;
use super::NodePlan;
use super::graph::Owner;
use crate::random::mix;
use crate::slot::Slot;
use std::cell::Cell;

/// Beam of the search for a parent: one is enough.
const FOSTER_EF: usize = 16;
/// Candidates that search may refuse. Must exceed what lies between two clusters, not what a cluster holds: whoever finds
/// nobody near hangs below the root.
const FOSTER_REFUSALS_MAX: usize = 512;
/// Steps towards the root that all candidates together may take. Points that come along a line hang one below the other, as
/// deep as the line is long; whoever is too deep is no host.
const FOSTER_CLIMB_MAX: usize = 8192;
/// How many copies of a node may be its children: a quarter of a list of usual length. With more, the list would lead nowhere else. With
/// fewer, searches through a filter, which look two steps ahead, find too little among copies that do not pass.
const COPIES_MAX: usize = 12;

/// A child that depends on the node. If it were always the same one, a thousand equal points would hang below one another in a row.
fn any_of(children: &[Slot], node: Slot, host: Slot) -> Option<Slot> {
    let pick = mix(u64::from(node) << 32 | u64::from(host)) % children.len().max(1) as u64;
    children.get(pick as usize).copied()
}

impl Graph {
    /// Whether the tree holds the edge between two nodes.
    #[inline]
    pub(super) fn is_tree_edge(&self, a: Slot, b: Slot) -> bool {
        self.parent(b) == Some(a) || self.parent(a) == Some(b)
    }

    /// Gives a new node its place in the tree, or lets it wait among the orphans.
    pub(super) fn join_tree(&self, owner: &mut Owner, plan: &NodePlan, is_dead: &dyn Fn(Slot) -> bool) {
        let node = plan.slot;
        if is_dead(node) {
            // It died since it was linked. It routes until repair, but nobody shall hang on it.
            self.mark_given_up(node);
            return;
        }
        // Neighbours precede the node in the tree, so none of them is below it. They may have died since the plan.
        let near = || plan.levels[0].iter().map(|n| n.slot).filter(|&slot| !is_dead(slot));
        let lists_it = |slot: Slot| {
            let mut found = false;
            self.links.for_each(slot, 0, |edge| found |= edge == node);
            found
        };
        // Lists name only a few copies of a vector, so copies are kept together: whoever finds one finds all.
        let copy = plan.copy.filter(|&slot| !is_dead(slot));
        match copy.or_else(|| near().find(|&slot| lists_it(slot))).or_else(|| near().next()) {
            Some(host) => self.hang(owner, node, host, is_dead),
            None => owner.orphans.push(node),
        }
    }

    /// Makes `node`, which has no parent, a child of `host`, or of a node below that has a place in its list.
    fn hang(&self, owner: &mut Owner, node: Slot, host: Slot, is_dead: &dyn Fn(Slot) -> bool) {
        let mut host = self.below_copies(node, host, is_dead);
        while !self.has_place(host) {
            // The tree holds the whole list. A dead child can be given up, which frees its place; else look below:
            // leaves have places, as lists hold at least four edges.
            let children = self.children(host);
            if let Some(&child) = children.iter().find(|&&child| is_dead(child)) {
                self.give_up(owner, child);
                continue;
            }
            host = any_of(&children, node, host)
                .unwrap_or_else(|| unreachable!("{host} has no children, yet the tree holds its whole list"));
        }
        assert_ne!(node, host, "a node would hang on itself");
        let down = self.push_edge(owner, host, node);
        self.set_parent(node, Some(host));
        let up = self.push_edge(owner, node, host);
        assert!(down && up, "no place for the edges between {node} and its parent {host}");
    }

    /// Where `host` is a copy of `node`: that copy or one below it that has few copies as children. Else `host`.
    fn below_copies(&self, node: Slot, host: Slot, is_dead: &dyn Fn(Slot) -> bool) -> Slot {
        let mut host = host;
        if self.is_copy(host, node) {
            loop {
                let mut copies = self.children(host);
                copies.retain(|&child| !is_dead(child) && self.is_copy(child, node));
                match any_of(&copies, node, host) {
                    Some(copy) if copies.len() >= COPIES_MAX => host = copy,
                    _ => break,
                }
            }
        }
        host
    }

    /// Whether a node may have another child: its list keeps a place for a parent to come.
    fn has_place(&self, slot: Slot) -> bool {
        let mut held = usize::from(self.parent(slot).is_none());
        self.links.for_each(slot, 0, |edge| held += usize::from(self.is_tree_edge(slot, edge)));
        held < self.config.degree_max(0)
    }

    fn children(&self, slot: Slot) -> Vec<Slot> {
        let mut children = Vec::new();
        self.links.for_each(slot, 0, |edge| {
            if self.parent(edge) == Some(slot) {
                children.push(edge);
            }
        });
        children
    }

    /// Whether the ancestors of `slot` lead to `root`, within as many steps as are `left`; false when that is not known.
    fn hangs_on(&self, slot: Slot, root: Slot, left: &Cell<usize>) -> bool {
        let mut top = slot;
        while let Some(parent) = self.parent(top) {
            let Some(fewer) = left.get().checked_sub(1) else { return false };
            left.set(fewer);
            top = parent;
        }
        top == root
    }

    /// Ancestors of a node.
    #[cfg(test)]
    pub(crate) fn depth(&self, slot: Slot) -> usize {
        std::iter::successors(self.parent(slot), |&parent| self.parent(parent)).count()
    }

    /// Takes a dead node out of the tree. What hung on it becomes orphans; dead ones among them are given up when their turn
    /// comes.
    pub(super) fn give_up(&self, owner: &mut Owner, slot: Slot) {
        if self.is_linked(slot) && !self.is_given_up(slot) {
            self.leave_tree(owner, slot);
        }
    }

    /// Takes a node out of the tree; its children become orphans.
    pub(super) fn leave_tree(&self, owner: &mut Owner, slot: Slot) {
        for child in self.children(slot) {
            self.set_parent(child, None);
            owner.orphans.push(child);
        }
        self.set_parent(slot, None);
        self.mark_given_up(slot);
        owner.root = owner.root.filter(|&root| root != slot);
    }

    /// Finds a parent for every orphan. Dead ones are given up instead.
    pub(super) fn adopt_orphans(&self, owner: &mut Owner, is_dead: &dyn Fn(Slot) -> bool) {
        while !self.adopt_some(owner, usize::MAX, is_dead) {}
    }

    /// As [`Self::adopt_orphans`] for at most `max` of them; true when none is left. Each costs a look at its neighbours, or a
    /// search of up to a thousand distances.
    pub(super) fn adopt_some(&self, owner: &mut Owner, max: usize, is_dead: &dyn Fn(Slot) -> bool) -> bool {
        for _ in 0..max {
            let Some(orphan) = owner.orphans.pop() else { return true };
            // Meanwhile its slot may have been freed, and even reused by a node with a parent.
            let settled = self.parent(orphan).is_some() || owner.root == Some(orphan);
            if settled || !self.is_linked(orphan) || self.is_given_up(orphan) {
                continue;
            }
            if is_dead(orphan) {
                self.give_up(owner, orphan);
            } else if let Some(host) = self.foster(owner, orphan, is_dead) {
                self.hang(owner, orphan, host, is_dead);
            } else {
                self.start_tree(owner, orphan, is_dead);
            }
        }
        owner.orphans.is_empty()
    }

    /// A live node of the tree: a neighbour, else one that a search finds near it, else the root.
    fn foster(&self, owner: &mut Owner, orphan: Slot, is_dead: &dyn Fn(Slot) -> bool) -> Option<Slot> {
        let root = owner.root?;
        // Neither the orphan's own subtree nor that of another orphan, nor nodes of a round that have yet to join.
        let left = Cell::new(FOSTER_CLIMB_MAX);
        let may_host =
            |slot: Slot| self.is_linked(slot) && !is_dead(slot) && self.hangs_on(slot, root, &left);
        self.links.read(orphan, 0, &mut owner.old);
        if let Some(&near) = owner.old.iter().find(|&&slot| may_host(slot)) {
            return Some(near);
        }
        // An orphan with a large subtree has nothing else around it, so the search must not insist.
        let scratch = &mut owner.scratch;
        let mut forms = std::mem::take(&mut scratch.query);
        let probe = self.probe_node(orphan, &mut forms);
        let near = self
            .search_level_with_patience(probe, 0, FOSTER_EF, FOSTER_REFUSALS_MAX, scratch, &may_host)
            .next();
        scratch.query = forms;
        near.map(|n| n.slot).or(may_host(root).then_some(root))
    }

    /// There is no live node to hang on: the tree begins anew here, and so does the graph if its entry point died.
    fn start_tree(&self, owner: &mut Owner, node: Slot, is_dead: &dyn Fn(Slot) -> bool) {
        if let Some(root) = owner.root {
            self.give_up(owner, root);
        }
        owner.root = Some(node);
        if self.entry().is_none_or(|(entry, _)| is_dead(entry) || !self.is_linked(entry)) {
            self.store_entry(Some((node, self.links.level(node))));
        }
    }

    /// Builds the tree over restored slots: of the edges that were the tree's when they were saved (the first of each list), as far as they lead to
    /// the entry point, then from these nodes along any, then whatever is left finds a parent as orphans do. After a
    /// consistent checkpoint the first step reaches all and no list changes.
    pub(super) fn refresh_tree(&self, owner: &mut Owner) {
        if !std::mem::take(&mut owner.tree_stale) {
            return;
        }
        let linked = || (0..self.slots_end() as Slot).filter(|&slot| self.is_linked(slot));
        let highest = || linked().max_by_key(|&slot| (self.links.level(slot), !slot));
        let entry = self.entry().map(|(entry, _)| entry).filter(|&entry| self.is_linked(entry));
        let entry = entry.or_else(highest);
        let Some(root) = entry else { return };
        if self.entry().is_none_or(|(entry, _)| entry != root) {
            self.store_entry(Some((root, self.links.level(root))));
        }
        owner.root = Some(root);

        let (mut order, mut reached) = self.take_saved_tree(root);
        let mut edges = Vec::new();
        let mut next = if order.len() == linked().count() { order.len() } else { 0 };
        while let Some(&slot) = order.get(next) {
            self.links.read(slot, 0, &mut edges);
            for &edge in &edges {
                if self.is_linked(edge) && !reached[edge as usize] {
                    reached[edge as usize] = true;
                    order.push(edge);
                    self.set_parent(edge, Some(slot));
                    self.push_edge(owner, edge, slot);
                }
            }
            next += 1;
        }
        owner.orphans.extend(linked().filter(|&slot| !reached[slot as usize]));
        self.adopt_orphans(owner, &|_| false);
    }

    /// The tree that was saved, with `root` at its top: nodes whose saved parents lead there keep them, and the others have no parent. Returns the
    /// nodes of the tree by ascending slot, and for each slot whether it is one of them.
    fn take_saved_tree(&self, root: Slot) -> (Vec<Slot>, Vec<bool>) {
        let end = self.slots_end() as Slot;
        let lists = |slot: Slot, other: Slot| {
            let mut found = false;
            self.links.for_each(slot, 0, |edge| found |= edge == other);
            found
        };
        let mut above = vec![NOBODY; end as usize];
        for slot in 0..end {
            // The lists of parents lie all over memory.
            let ahead = slot.saturating_add(PARENTS_AHEAD).min(end - 1);
            self.parent(ahead).into_iter().for_each(|parent| self.links.prefetch(parent));
            let Some(parent) = self.parent(slot).filter(|_| self.is_linked(slot)) else { continue };
            // A restored root names some neighbour, as the first of its list. If the edge is one of both lists, it serves as well as any.
            if parent < end && self.is_linked(parent) && lists(parent, slot) && lists(slot, parent) {
                above[slot as usize] = parent;
            }
        }
        let mut state = vec![Known::Nothing; end as usize];
        // From the root upwards the edges are turned round.
        let (mut slot, mut below) = (root, NOBODY);
        while slot != NOBODY && state[slot as usize] == Known::Nothing {
            state[slot as usize] = Known::InTree;
            let next = std::mem::replace(&mut above[slot as usize], below);
            (slot, below) = (next, slot);
        }
        let mut chain = Vec::new();
        for first in (0..end).filter(|&slot| self.is_linked(slot)) {
            let mut slot = first;
            while slot != NOBODY && state[slot as usize] == Known::Nothing {
                state[slot as usize] = Known::Apart;
                chain.push(slot);
                slot = above[slot as usize];
            }
            // What leads to nobody or in a circle stays apart.
            if slot != NOBODY && state[slot as usize] == Known::InTree {
                chain.iter().for_each(|&slot| state[slot as usize] = Known::InTree);
            }
            chain.clear();
        }
        let reached: Vec<bool> = state.iter().map(|known| *known == Known::InTree).collect();
        let linked = (0..end).filter(|&slot| self.is_linked(slot));
        for (slot, is_reached) in linked.map(|slot| (slot, reached[slot as usize])) {
            let parent = Some(above[slot as usize]).filter(|&parent| is_reached && parent != NOBODY);
            if self.parent(slot) != parent {
                self.set_parent(slot, parent);
            }
        }
        ((0..end).filter(|&slot| reached[slot as usize]).collect(), reached)
    }
}

/// No slot.
const NOBODY: Slot = Slot::MAX;
/// How many slots ahead the lists of parents are asked for.
const PARENTS_AHEAD: Slot = 16;

/// What is known of a slot while the tree is taken over.
#[derive(Clone, Copy, PartialEq)]
enum Known {
    Nothing,
    InTree,
    Apart,
}
