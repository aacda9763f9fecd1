//! The repair pass: leads the graph around its dead slots, so that they can be reused.
//!
//! A pass takes on the slots dead in the graph when it starts; for as long as it runs these, and no others, count as dead
//! (the graph gives up a dead slot's out-edges once, so what is dead must not change on the way). It walks all linked slots in
//! slices and replaces each edge to one of them by edges from its own neighbourhood (consolidation of FreshDiskANN,
//! arXiv:2105.09613). Rounds may run between slices: they link to nothing dead, so after the walk nothing leads to the slots
//! taken on, and they go to limbo. Slots that die meanwhile belong to the next pass; they are walked like live ones, as
//! way-points that stay must not lead to what goes.
use super::{PointsWriter, Slot, SlotSet, SpaceWriter};

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

impl Pass {
    /// The dead slots that it has taken on.
    pub fn into_dead(self) -> Vec<Slot> {
        self.dead
    }
}

impl SpaceWriter {
    /// Whether a repair pass is due (dead slots in the graph over the threshold) or running.
    pub(crate) fn pass_due(&self, points: &PointsWriter) -> bool {
        let Some(linking) = self.index.linking() else { return false };
        let worth_it = self.dead_linked.len() > DEAD_MIN.max(self.linked / DEAD_SHARE);
        // What was learned from points that are all gone is forgotten when nobody can find them any more.
        let emptied = !self.dead_linked.is_empty()
            && self.shared.vectors() == 0
            && self.shared.graph.codec_number() != 0;
        linking.pass.is_some() || worth_it || emptied || (!self.dead_linked.is_empty() && !points.has_slot())
    }

    /// Walks about `max_nodes` nodes of a pass, which begins with this if none runs; true when that was the last of it.
    pub(crate) fn pass_step(&mut self, points: &mut PointsWriter, max_nodes: usize) -> bool {
        let pass = self.index.of_graph().pass.take();
        let mut pass = pass.unwrap_or_else(|| self.begin_pass(points));
        let done = self.walk(&mut pass, max_nodes);
        if done {
            self.finish_pass(points, pass);
        } else {
            self.index.of_graph().pass = Some(pass);
        }
        done
    }

    /// Whether there is a pass to make, below the threshold too.
    pub(crate) fn has_dead(&self) -> bool {
        self.index.linking().is_some_and(|linking| linking.pass.is_some() || !self.dead_linked.is_empty())
    }

    /// Nodes to walk before the next round, so that repair keeps pace with writes that never pause: a multiple of what rounds have added
    /// since it last did. 0 when no pass is due.
    pub(crate) fn repair_owed(&self, points: &PointsWriter) -> usize {
        match self.index.linking() {
            Some(linking) if self.pass_due(points) => linking.repair_owed,
            _ => 0,
        }
    }

    /// A round has added nodes.
    pub(super) fn owe_repair(&mut self, points: &PointsWriter, added: usize) {
        let due = self.pass_due(points);
        let linking = self.index.of_graph();
        linking.repair_owed = if due { linking.repair_owed + added * WALKED_PER_ADDED } else { 0 };
    }

    fn begin_pass(&mut self, points: &PointsWriter) -> Pass {
        let of = &self.shared.points;
        // In the order of their deaths, those that a restore brought first.
        debug_assert!(self.dead_linked.is_sorted_by_key(|&slot| of.died(slot)));
        let most = DEAD_PER_PASS.max(self.linked / DEAD_SHARE);
        let seq = self.dead_linked.iter().take(most).next_back().map_or(0, |&slot| of.died(slot));
        let taken = self.dead_linked.partition_point(|&slot| of.died(slot) <= seq);
        let later = self.dead_linked.split_off(taken);
        let dead = std::mem::replace(&mut self.dead_linked, later);
        let mut taken = SlotSet::default();
        dead.iter().for_each(|&slot| taken.insert(slot));
        Pass { dead, taken, cursor: 0, end: points.high_water(), highest: (0, Vec::new()) }
    }

    /// Walks on; true at the end.
    fn walk(&mut self, pass: &mut Pass, max_nodes: usize) -> bool {
        let shared = &self.shared;
        let linking = self.index.of_graph();
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
            let relinked = shared.graph.repair(slot, &is_taken, &mut linking.scratch);
            budget = budget.saturating_sub(SKIPPED_PER_NODE * if relinked { RELINKED_NODE } else { 1 });
            if !shared.points.is_dead(slot) {
                let level = shared.graph.level_of(shared.points.id(slot));
                if level > pass.highest.0 {
                    pass.highest = (level, Vec::new());
                }
                if level == pass.highest.0 && pass.highest.1.len() < ENTRIES_MAX {
                    pass.highest.1.push(slot);
                }
            }
        }
        linking.repair_owed = linking.repair_owed.saturating_sub(walked);
        pass.cursor >= pass.end
    }

    fn finish_pass(&mut self, points: &mut PointsWriter, pass: Pass) {
        let shared = &self.shared;
        let is_dead = |slot: Slot| shared.points.is_dead(slot);
        if shared.graph.entry().is_some_and(|(slot, _)| is_dead(slot)) {
            // Candidates of the walk spare a look at every slot. All of them gone is rare enough to look.
            let known = pass.highest.1.iter().any(|&slot| !is_dead(slot));
            let in_graph = |slot: &Slot| shared.graph.is_linked(*slot);
            if known {
                shared.graph.fix_entry(&mut pass.highest.1.iter().copied(), &is_dead);
            } else {
                let slots = 0..points.high_water() as Slot;
                shared.graph.fix_entry(&mut slots.filter(in_graph), &is_dead);
            }
        }
        // Readers that come from now on must not enter at a slot that is about to be freed.
        if shared.graph.entry().is_some_and(|(slot, _)| pass.taken.contains(slot)) {
            shared.graph.move_entry(self.dead_linked.first().copied());
        }
        if !pass.dead.is_empty() {
            points.let_go(pass.dead);
        }
    }
}
