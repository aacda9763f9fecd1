//! Deletes: relinking around dead slots, moving the entry point, freeing.
//!
//! The order of a pass, with `is_dead` the same throughout: [`Graph::fix_entry`]; [`Graph::repair`] of every linked
//! slot that stays; then, once no reader can hold a dead slot any more, [`Graph::free`] of each.
use super::graph::Owner;
use super::select::Selection;
use super::{Graph, Scratch, SearchStats};
use crate::index::Neighbor;
use crate::slot::Slot;

/// Dead slots that the search for candidates may pass over, as a multiple of its beam.
const REFUSALS_PER_EF: usize = 4;

impl Graph {
    /// Owner: gives up the dead neighbours of `node` and finds parents for at most `orphans` of the nodes that hung on them, or on
    /// dead ones that hung together with them. True when nothing is left to do: [`Self::repair`] is then bounded.
    pub fn settle_around(&self, node: Slot, orphans: usize, is_dead: &dyn Fn(Slot) -> bool) -> bool {
        let mut owner = self.owner();
        if self.is_linked(node) {
            let mut old = std::mem::take(&mut owner.old);
            self.links.read(node, 0, &mut old);
            for &edge in old.iter().filter(|&&edge| is_dead(edge)) {
                self.give_up(&mut owner, edge);
            }
            owner.old = old;
        }
        self.adopt_some(&mut owner, orphans, is_dead)
    }

    /// Owner: relinks `node`'s edge lists around dead slots (FreshDiskANN consolidation): candidates are its live
    /// neighbours and the live out-neighbours of its dead ones, the nearest `ef_construction` of them, chosen by the heuristic;
    /// when those are fewer than `m`, or many of them are copies, a search finds more. Returns whether something changed.
    ///
    /// Settles around the node first, if the caller has not, at whatever cost that is. Cost of the rest: nothing when no neighbour
    /// is dead, else up to `4m^2` distances and about as many again for the choice.
    pub fn repair(&self, node: Slot, is_dead: &dyn Fn(Slot) -> bool, scratch: &mut Scratch) -> bool {
        if !self.is_linked(node) {
            return false;
        }
        while !self.settle_around(node, usize::MAX, is_dead) {}
        let mut owner = self.owner();
        let mut changed = false;
        for level in (0..=self.links.level(node)).rev() {
            changed |= self.repair_list(&mut owner, node, level, is_dead, scratch);
        }
        changed
    }

    fn repair_list(
        &self,
        owner: &mut Owner,
        node: Slot,
        level: u8,
        is_dead: &dyn Fn(Slot) -> bool,
        scratch: &mut Scratch,
    ) -> bool {
        // An edge may also dangle: restored but its node never was, or reused with a lower level.
        let is_gone = |slot| is_dead(slot) || !self.is_linked(slot) || self.links.level(slot) < level;
        let mut edges = Vec::with_capacity(self.config.degree_max(level));
        self.links.read(node, level, &mut edges);
        let lonely = edges.is_empty() && level == 0 && self.entry().is_some_and(|(entry, _)| entry != node);
        if !lonely && !edges.iter().any(|&edge| is_gone(edge)) {
            return false;
        }
        scratch.stats = SearchStats::default();
        scratch.visited.reset(self.slots_end());
        scratch.visited.insert(node);
        scratch.fresh.clear();
        for &edge in &edges {
            if !is_gone(edge) {
                if scratch.visited.insert(edge) {
                    scratch.fresh.push(edge);
                }
                continue;
            }
            self.links.for_each(edge, level, |next| {
                if !is_gone(next) && scratch.visited.insert(next) {
                    scratch.fresh.push(next);
                }
            });
        }
        let candidates = self.repair_candidates(node, level, &is_gone, scratch);
        let cap = self.config.degree_max(level);
        let mut selection = Selection::new(self.config.alpha(level));
        selection.run(self, &candidates, cap);
        owner.new.clear();
        owner.new.extend(selection.chosen(cap).map(|n| n.slot));
        self.replace_list(owner, node, level, selection.kept.len() as u16)
    }

    /// The slots in `scratch.fresh`, scored and ascending, together with what a search finds when they are few or many are copies.
    fn repair_candidates(
        &self,
        node: Slot,
        level: u8,
        is_gone: &impl Fn(Slot) -> bool,
        scratch: &mut Scratch,
    ) -> Vec<Neighbor> {
        let mut forms = std::mem::take(&mut scratch.query);
        let probe = self.probe_node(node, &mut forms);
        self.score(probe, scratch);
        let scored = scratch.fresh.iter().zip(&scratch.distances);
        let mut candidates: Vec<Neighbor> =
            scored.map(|(&slot, &distance)| Neighbor { distance, slot }).collect();
        candidates.sort_unstable();
        let ef = self.config.ef_construction;
        let has_more_copies = self.thin(&mut candidates, ef);
        // Where there are many copies, they have taken the places of neighbours that lead elsewhere.
        if has_more_copies || candidates.len() < self.config.m {
            let fits = |slot| slot != node && !is_gone(slot);
            let refusals = REFUSALS_PER_EF * ef;
            candidates.extend(self.search_level_with_patience(probe, level, ef, refusals, scratch, &fits));
            candidates.sort_unstable();
            candidates.dedup();
            self.thin(&mut candidates, ef);
        }
        scratch.query = forms;
        candidates
    }

    /// Owner: moves the entry point off dead slots (a live node of the highest level, the lowest slot of them).
    /// Looks at `slots_in_use` only when the entry point is dead or gone. When no live node is linked, it stays.
    pub fn fix_entry(&self, slots_in_use: &mut dyn Iterator<Item = Slot>, is_dead: &dyn Fn(Slot) -> bool) {
        let _owner = self.owner();
        let is_live = |slot: Slot| self.is_linked(slot) && !is_dead(slot);
        if self.entry().is_some_and(|(entry, _)| is_live(entry)) {
            return;
        }
        let best =
            slots_in_use.filter(|&slot| is_live(slot)).max_by_key(|&slot| (self.links.level(slot), !slot));
        if let Some(slot) = best {
            self.store_entry(Some((slot, self.links.level(slot))));
        }
    }

    /// Owner: enters at `slot` from now on, which is linked; nowhere when there is none.
    pub fn move_entry(&self, slot: Option<Slot>) {
        let _owner = self.owner();
        self.store_entry(slot.map(|slot| (slot, self.links.level(slot))));
    }

    /// Owner: frees a slot's edges and upper-level blocks. **Once quiescent**: no reader may hold the slot or a list
    /// that named it, and no round is in flight. Afterwards [`Self::write_vector`] may reuse the slot. Nothing
    /// happens when it is not linked.
    pub fn free(&self, slot: Slot) {
        if !self.is_linked(slot) {
            return;
        }
        let mut owner = self.owner();
        let level = self.links.level(slot);
        self.leave_entry(slot, level);
        if !self.is_given_up(slot) {
            self.leave_tree(&mut owner, slot);
        }
        for level in 0..=level {
            self.links.write(slot, level, &[]);
        }
        if level > 0 {
            owner.runs.free(self.links.upper_run(slot), level);
            self.links.set_place(slot, 0, 0);
        }
        self.mark_freed(slot);
    }

    /// A freed slot cannot stay the entry point: some neighbour from its highest level takes over.
    fn leave_entry(&self, slot: Slot, level: u8) {
        if self.entry().is_none_or(|(entry, _)| entry != slot) {
            return;
        }
        let mut next = None;
        for level in (0..=level).rev() {
            self.links.for_each(slot, level, |edge| {
                if next.is_none() && self.is_linked(edge) && edge != slot {
                    next = Some((edge, self.links.level(edge)));
                }
            });
        }
        self.store_entry(next);
    }
}
