//! Loading edges from images, slot by slot, straight into the blocks that serve: nothing of them waits in memory for the rest.

use super::Graph;
use super::graph::LINKED;
use super::links::LEVEL_MAX;
use crate::slot::Slot;
use std::sync::atomic::Ordering::Release;
use std::sync::atomic::fence;

impl Graph {
    /// Owner: restores a linked slot (checkpoint load) whose vector is written. Lists may name slots that are
    /// restored later; one that never is routes nowhere and is dropped by [`Self::repair`].
    ///
    /// # Errors
    /// A sentence that says so when lists are missing, too long or too many, name slots beyond the capacity, their
    /// own slot or one twice, or when the slot is linked already. Nothing is changed then.
    pub fn restore(&self, slot: Slot, levels: &[Vec<Slot>]) -> Result<(), String> {
        let mut owner = self.owner_for_codes();
        self.check_restorable(slot, levels)
            .map_err(|reason| format!("edges of slot {slot} cannot be restored: {reason}"))?;
        let level = self.place_node(&mut owner, slot, (levels.len() - 1) as u8);
        for (at, edges) in (0..=level).zip(levels) {
            self.links.write(slot, at, edges);
        }
        self.set_parent(slot, levels[0].first().copied());
        owner.tree_stale = true;
        fence(Release);
        self.set_mark(slot, LINKED);
        Ok(())
    }

    fn check_restorable(&self, slot: Slot, levels: &[Vec<Slot>]) -> Result<(), String> {
        let capacity = self.config.capacity;
        if slot as usize >= capacity {
            return Err(format!("the graph has {capacity} slots"));
        }
        if self.is_linked(slot) {
            return Err("it is linked already".into());
        }
        if levels.is_empty() || levels.len() > usize::from(LEVEL_MAX) + 1 {
            return Err(format!("{} levels; 1..={} are possible", levels.len(), LEVEL_MAX + 1));
        }
        for (level, edges) in levels.iter().enumerate() {
            let max = self.config.degree_max(level as u8);
            if edges.len() > max {
                return Err(format!("{} edges on level {level}; at most {max} fit", edges.len()));
            }
            for (i, &edge) in edges.iter().enumerate() {
                if edge as usize >= capacity {
                    return Err(format!("an edge on level {level} names slot {edge} of {capacity}"));
                }
                if edge == slot || edges[..i].contains(&edge) {
                    return Err(format!(
                        "the edge to slot {edge} on level {level} is a loop or a repetition"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Owner, before anybody reads: a later image has other lists for the slot, or none. Nothing happens when it is not linked.
    pub fn take_back(&self, slot: Slot) {
        if !self.is_linked(slot) {
            return;
        }
        let mut owner = self.owner_for_codes();
        let level = self.links.level(slot);
        for level in 0..=level {
            self.links.write(slot, level, &[]);
        }
        if level > 0 {
            owner.runs.free(self.links.upper_run(slot), level);
            self.links.set_place(slot, 0, 0);
        }
        self.set_parent(slot, None);
        owner.tree_stale = true;
        self.set_mark(slot, 0);
    }

    /// The highest level of a slot that is linked.
    pub fn level(&self, slot: Slot) -> u8 {
        self.links.level(slot)
    }

    /// Owner, once all lists of the first `slots` slots are restored: drops edges that lead to no node of their level.
    pub fn end_restore(&self, slots: Slot) {
        let mut edges = Vec::new();
        for slot in (0..slots).filter(|&slot| self.is_linked(slot)) {
            for level in 0..=self.links.level(slot) {
                self.links.read(slot, level, &mut edges);
                let before = edges.len();
                edges.retain(|&to| self.is_linked(to) && self.links.level(to) >= level);
                if edges.len() < before {
                    self.links.write(slot, level, &edges);
                }
                if level == 0 {
                    self.set_parent(slot, edges.first().copied());
                }
            }
        }
        self.owner_for_codes().tree_stale = true;
    }
}
