//! Loading edges from images, slot by slot, straight into the blocks that serve: nothing of them waits in memory for the rest.

use super::Graph;
use super::graph::LINKED;
use super::links::LEVEL_MAX;
use crate::slot::Slot;
use std::sync::atomic::Ordering::Release;
use std::sync::atomic::fence;

/// Words of the set of residues by which repetitions are looked for: of 64 edges, some two are compared with others.
const MET_WORDS: usize = 16;

impl Graph {
    /// Owner: restores a linked slot (checkpoint load) whose vector is written. Lists may name slots that are
    /// restored later; one that never is routes nowhere and is dropped by [`Self::repair`].
    ///
    /// # Errors
    /// A sentence that says so when lists are missing, too long or too many, name slots beyond the capacity, their
    /// own slot or one twice, or when the slot is linked already. Nothing is changed then.
    pub fn restore(&self, slot: Slot, levels: &[Vec<Slot>]) -> Result<(), String> {
        let mut cleared = levels.to_vec();
        for (level, (cleared, edges)) in cleared.iter_mut().zip(levels).enumerate() {
            self.keep_followable(slot, cleared);
            let dropped = edges.iter().enumerate().find(|&(at, edge)| cleared.get(at) != Some(edge));
            let Some((_, &edge)) = dropped else { continue };
            let capacity = self.config.capacity;
            let reason = match (edge as usize) < capacity {
                true => format!("the edge to slot {edge} on level {level} is a loop or a repetition"),
                false => format!("an edge on level {level} names slot {edge} of {capacity}"),
            };
            return Err(format!("edges of slot {slot} cannot be restored: {reason}"));
        }
        self.restore_followable(slot, &mut cleared)
    }

    /// Owner: as [`Self::restore`], but leaves out edges that nobody can follow: of lists of another graph the rest serves. `levels` are what
    /// is left then.
    ///
    /// # Errors
    /// As there, but for these edges.
    pub fn restore_followable(&self, slot: Slot, levels: &mut [Vec<Slot>]) -> Result<(), String> {
        levels.iter_mut().for_each(|edges| self.keep_followable(slot, edges));
        let mut owner = self.owner_for_codes();
        self.check_restorable(slot, levels)
            .map_err(|reason| format!("edges of slot {slot} cannot be restored: {reason}"))?;
        let level = self.place_node(&mut owner, slot, (levels.len() - 1) as u8);
        for (at, edges) in (0..=level).zip(&*levels) {
            self.links.fill(slot, at, edges);
        }
        self.set_parent(slot, levels[0].first().copied());
        owner.tree_stale = true;
        fence(Release);
        self.set_mark(slot, LINKED);
        Ok(())
    }

    /// Drops edges to the slot itself, beyond the capacity, and to a slot that was named before.
    fn keep_followable(&self, slot: Slot, edges: &mut Vec<Slot>) {
        // A bit for each residue of a slot: an edge whose bit is not set was not named before, so that few are compared with others.
        let mut met = [0u64; MET_WORDS];
        let mut kept = 0;
        for at in 0..edges.len() {
            let to = edges[at];
            if to == slot || to as usize >= self.config.capacity {
                continue;
            }
            let (word, bit) = (&mut met[to as usize / 64 % MET_WORDS], 1 << (to % 64));
            if *word & bit != 0 && edges[..kept].contains(&to) {
                continue;
            }
            *word |= bit;
            edges[kept] = to;
            kept += 1;
        }
        edges.truncate(kept);
    }

    /// Of lists that [`Self::keep_followable`] has seen.
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
