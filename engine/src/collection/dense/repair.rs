//! The repair pass: leads the graph around its dead slots, so that they can be reused.
//!
//! A pass takes on the slots dead in the graph when it starts. It walks all linked slots in slices and replaces each edge to a
//! dead slot by edges from that slot's own neighbourhood (consolidation of FreshDiskANN, arXiv:2105.09613). Rounds may run
//! between slices: they link to no dead slot, so after the walk nothing leads to the ones taken on, and they go to limbo.
//! Slots that die during a pass are led around too where the walk still comes by, but are left to the next pass. They
//! are walked themselves, as way-points that stay must not lead to what goes.
use super::*;

/// Dead slots that never trigger a pass: walking the graph for less is not worth it.
const DEAD_MIN: usize = 64;
/// Nor do fewer than one in so many linked slots. A search walks through dead slots without filling its beam from them, so 5 %
/// of them cost it about 5 %, and memory is bounded by the same share.
const DEAD_SHARE: usize = 20;
/// Slots that are passed over (free, dead or in the tail) for the price of one that is looked at.
const SKIPPED_PER_NODE: usize = 32;
/// Entry point candidates a walk remembers.
const ENTRIES_MAX: usize = 64;

/// A pass under way.
pub(super) struct Pass {
    /// Slots that were dead at this sequence number are the pass's.
    seq: u64,
    /// They.
    dead: Vec<Slot>,
    /// Walked up to here.
    cursor: usize,
    /// Walk ends here: slots used later are linked without edges to dead ones.
    end: usize,
    /// Some live slots of the highest level met, candidates for the entry point.
    highest: (u8, Vec<Slot>),
}

impl DenseWriter {
    /// Whether a repair pass is due (dead slots in the graph over the threshold) or running.
    pub fn repair_due(&self) -> bool {
        self.pass.is_some() || self.dead_linked.len() > DEAD_MIN.max(self.linked / DEAD_SHARE)
    }

    /// One slice of the repair pass (about `max_nodes` nodes): relink around dead slots, then retire them; `reclaim` frees
    /// them once quiescent. Returns true while there is more to do now; does nothing while a round is open.
    ///
    /// A node costs about 2m look-ups in a bitset, one with dead neighbours up to `2m` times as many distances.
    pub fn repair_step(&mut self, max_nodes: usize) -> bool {
        self.reclaim();
        if self.round.is_some() || !self.repair_due() {
            return false;
        }
        let mut pass = self.pass.take().unwrap_or_else(|| self.begin_pass());
        if !self.walk(&mut pass, max_nodes) {
            self.pass = Some(pass);
            return true;
        }
        self.finish_pass(pass);
        self.repair_due()
    }

    /// A whole pass over whatever is dead, below the threshold too, and as much reclamation as readers allow.
    pub(super) fn repair_all(&mut self) {
        let mut pass = self.pass.take().unwrap_or_else(|| self.begin_pass());
        while !self.walk(&mut pass, usize::MAX) {}
        self.finish_pass(pass);
        loop {
            let free = self.free.len();
            self.reclaim();
            if self.free.len() == free {
                break;
            }
        }
    }

    fn begin_pass(&mut self) -> Pass {
        Pass {
            seq: self.seq,
            dead: std::mem::take(&mut self.dead_linked),
            cursor: 0,
            end: self.high_water(),
            highest: (0, Vec::new()),
        }
    }

    /// Walks on; true at the end.
    fn walk(&mut self, pass: &mut Pass, max_nodes: usize) -> bool {
        let shared = &self.shared;
        let is_dead = |slot: Slot| shared.meta.is_dead(slot);
        let mut budget = max_nodes.max(1).saturating_mul(SKIPPED_PER_NODE);
        while pass.cursor < pass.end && budget > 0 {
            let slot = pass.cursor as Slot;
            pass.cursor += 1;
            if !shared.graph.is_linked(slot) || !shared.meta.survives(slot, pass.seq) {
                budget -= 1;
                continue;
            }
            budget = budget.saturating_sub(SKIPPED_PER_NODE);
            shared.graph.repair(slot, &is_dead, &mut self.scratch);
            if !is_dead(slot) {
                let level = shared.graph.level_of(shared.meta.id(slot));
                if level > pass.highest.0 {
                    pass.highest = (level, Vec::new());
                }
                if level == pass.highest.0 && pass.highest.1.len() < ENTRIES_MAX {
                    pass.highest.1.push(slot);
                }
            }
        }
        pass.cursor >= pass.end
    }

    fn finish_pass(&mut self, pass: Pass) {
        let shared = &self.shared;
        let is_dead = |slot: Slot| shared.meta.is_dead(slot);
        if shared.graph.entry().is_some_and(|(slot, _)| is_dead(slot)) {
            // Candidates of the walk spare a look at every slot. All of them gone is rare enough to look.
            let known = pass.highest.1.iter().any(|&slot| !is_dead(slot));
            let in_graph = |slot: &Slot| shared.graph.is_linked(*slot);
            if known {
                shared.graph.fix_entry(&mut pass.highest.1.iter().copied(), &is_dead);
            } else {
                let slots = 0..self.high_water() as Slot;
                shared.graph.fix_entry(&mut slots.filter(in_graph), &is_dead);
            }
        }
        if !pass.dead.is_empty() {
            self.limbo.push(&shared.domain, pass.dead);
        }
    }
}
