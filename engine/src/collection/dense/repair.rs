//! The repair pass: leads the graph around its dead slots, so that they can be reused.
//!
//! A pass takes on the slots dead in the graph when it starts; for as long as it runs these, and no others, count as dead
//! (the graph gives up a dead slot's out-edges once, so what is dead must not change on the way). It walks all linked slots in
//! slices and replaces each edge to one of them by edges from its own neighbourhood (consolidation of FreshDiskANN,
//! arXiv:2105.09613). Rounds may run between slices: they link to nothing dead, so after the walk nothing leads to the slots
//! taken on, and they go to limbo. Slots that die meanwhile belong to the next pass; they are walked like live ones, as
//! way-points that stay must not lead to what goes.
use super::dirty::SlotSet;
use super::*;

/// Dead slots that never trigger a pass: walking the graph for less is not worth it.
const DEAD_MIN: usize = 64;
/// Nor do fewer than one in so many linked slots. A search walks through dead slots without filling its beam from them, so a
/// tenth of them costs it a tenth, and memory as much. A node is relinked once for all its dead neighbours, so more dead per pass
/// make each cheaper: at this share 0.1 ms of one core per replaced point of 384 dimensions, half of what inserting it took.
const DEAD_SHARE: usize = 10;
/// Most dead slots a pass takes on, or one in `DEAD_SHARE` if that is more. After a mass deletion several passes follow each
/// other, so that slots come back before all of it is done.
const DEAD_PER_PASS: usize = 1024;
/// Price of a node with dead neighbours, in nodes without: hundreds of distances against some bitset look-ups.
const RELINKED_NODE: usize = 8;
/// Nodes that lost their place in the graph's tree and get another in one step; each may take a search of 0.1 ms.
const ORPHANS_PER_STEP: usize = 2;
/// Nodes to walk for each node a round adds while a pass is due. A pass walks all linked slots, so at this pace it ends when a
/// tenth as many have been added, and about a tenth have died in their place.
const WALKED_PER_ADDED: usize = DEAD_SHARE;
/// Slots that are passed over (free, dead or in the tail) for the price of one that is looked at.
const SKIPPED_PER_NODE: usize = 32;
/// Entry point candidates a walk remembers.
const ENTRIES_MAX: usize = 64;

/// A pass under way.
pub(super) struct Pass {
    /// The dead slots it takes on; all of them are linked.
    dead: Vec<Slot>,
    /// The same, to look up. Not the time of death: points expire without a sequence number of their own, so more may die at the
    /// one at which the pass began.
    taken: SlotSet,
    /// Walked up to here.
    cursor: usize,
    /// Walk ends here: slots used later are linked without edges to dead ones.
    end: usize,
    /// Some live slots of the highest level met, candidates for the entry point.
    highest: (u8, Vec<Slot>),
}

impl DenseWriter {
    /// Whether [`Self::repair_step`] has work: a repair pass is due (dead slots in the graph over the threshold) or running, or
    /// slots it has retired wait to be freed. The latter may also wait for readers, so go by what `repair_step` returns.
    pub fn repair_due(&self) -> bool {
        self.pass_due() || self.retired() > 0
    }

    fn pass_due(&self) -> bool {
        if self.files_cells() {
            return false;
        }
        let worth_it = self.dead_linked.len() > DEAD_MIN.max(self.linked / DEAD_SHARE);
        // What was learned from points that are all gone is forgotten when nobody can find them any more.
        let emptied = !self.dead_linked.is_empty()
            && self.ordered_ids.is_empty()
            && self.shared.graph.codec_number() != 0;
        self.pass.is_some() || worth_it || emptied || (!self.dead_linked.is_empty() && !self.has_slot())
    }

    /// One slice of the repair pass (about `max_nodes` nodes): relink around dead slots, then retire them, then free them once
    /// quiescent. Returns true while there is more to do now; does nothing while a round is open.
    ///
    /// A node costs about 2m look-ups in a bitset; one with dead neighbours up to `4m^2` distances, and counts as eight. The node
    /// that first meets a dead slot may take several steps, in which all that hung on it finds another place.
    pub fn repair_step(&mut self, max_nodes: usize) -> bool {
        let (free, retired) = (self.free.len(), self.retired());
        self.reclaim();
        if self.round_open() {
            return false;
        }
        if !self.pass_due() {
            return self.retired() > 0 && (self.free.len() > free || self.retired() < retired);
        }
        let mut pass = self.pass.take().unwrap_or_else(|| self.begin_pass());
        if self.walk(&mut pass, max_nodes) {
            self.finish_pass(pass);
            return self.repair_due();
        }
        self.pass = Some(pass);
        true
    }

    /// Nodes that `repair_step` should walk before the next round, so that repair keeps pace with writes that never pause: a
    /// multiple of what rounds have added since it last did. 0 when no pass is due.
    pub fn repair_owed(&self) -> usize {
        if self.pass_due() { self.repair_owed } else { 0 }
    }

    /// A round has added nodes.
    pub(super) fn owe_repair(&mut self, added: usize) {
        self.repair_owed = if self.pass_due() { self.repair_owed + added * WALKED_PER_ADDED } else { 0 };
    }

    /// Passes over whatever is dead, below the threshold too, and as much reclamation as readers allow.
    pub(super) fn repair_all(&mut self) {
        self.retire_filed();
        while self.pass.is_some() || !self.dead_linked.is_empty() {
            let mut pass = self.pass.take().unwrap_or_else(|| self.begin_pass());
            while !self.walk(&mut pass, usize::MAX) {}
            self.finish_pass(pass);
        }
        loop {
            while self.text_step() {}
            let before = (self.free.len(), self.retired());
            self.reclaim();
            let has_texts = self.has_texts_waiting() || self.lanes.has_emptied();
            if (self.free.len(), self.retired()) == before && !has_texts {
                break;
            }
        }
    }

    fn begin_pass(&mut self) -> Pass {
        let meta = &self.shared.meta;
        // In the order of their deaths, those that a restore brought first.
        debug_assert!(self.dead_linked.is_sorted_by_key(|&slot| meta.died(slot)));
        let most = DEAD_PER_PASS.max(self.linked / DEAD_SHARE);
        let seq = self.dead_linked.iter().take(most).next_back().map_or(0, |&slot| meta.died(slot));
        let taken = self.dead_linked.partition_point(|&slot| meta.died(slot) <= seq);
        let later = self.dead_linked.split_off(taken);
        let dead = std::mem::replace(&mut self.dead_linked, later);
        let mut taken = SlotSet::default();
        dead.iter().for_each(|&slot| taken.insert(slot));
        Pass { dead, taken, cursor: 0, end: self.high_water(), highest: (0, Vec::new()) }
    }

    /// Walks on; true at the end.
    fn walk(&mut self, pass: &mut Pass, max_nodes: usize) -> bool {
        let shared = &self.shared;
        let taken = &pass.taken;
        let is_taken = |slot: Slot| taken.contains(slot);
        let mut budget = max_nodes.max(1).saturating_mul(SKIPPED_PER_NODE);
        let mut walked = 0;
        while pass.cursor < pass.end && budget > 0 {
            let slot = pass.cursor as Slot;
            pass.cursor += 1;
            if !shared.graph.is_linked(slot) || is_taken(slot) {
                budget -= 1;
                continue;
            }
            let orphans = if max_nodes == usize::MAX { usize::MAX } else { ORPHANS_PER_STEP };
            if !shared.graph.settle_around(slot, orphans, &is_taken) {
                pass.cursor -= 1;
                break;
            }
            walked += 1;
            let relinked = shared.graph.repair(slot, &is_taken, &mut self.scratch);
            budget = budget.saturating_sub(SKIPPED_PER_NODE * if relinked { RELINKED_NODE } else { 1 });
            if !shared.meta.is_dead(slot) {
                let level = shared.graph.level_of(shared.meta.id(slot));
                if level > pass.highest.0 {
                    pass.highest = (level, Vec::new());
                }
                if level == pass.highest.0 && pass.highest.1.len() < ENTRIES_MAX {
                    pass.highest.1.push(slot);
                }
            }
        }
        self.repair_owed = self.repair_owed.saturating_sub(walked);
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
        // Readers that come from now on must not enter at a slot that is about to be freed.
        if shared.graph.entry().is_some_and(|(slot, _)| pass.taken.contains(slot)) {
            shared.graph.move_entry(self.dead_linked.first().copied());
        }
        if !pass.dead.is_empty() {
            self.limbo.push(&shared.domain, Retired::Slots(pass.dead));
        }
    }
}
