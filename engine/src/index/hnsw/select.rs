//! Which candidates become neighbours: the paper's diversity heuristic (Algorithm 4) with refill.
//!
//! Candidates are taken nearest first. One is kept unless some kept one is nearer to it than the base node is;
//! afterwards the nearest discarded ones fill the list up to its cap. Only kept candidates decide about others, so
//! the outcome for a set stays valid when discarded ones leave it: [`Selection::add`] uses that to put one more
//! candidate into a finished selection at the price of a few distances instead of hundreds.
//!
//! Of equal vectors only [`EQUAL_MAX`] are taken, whether they are equal to the base node or to each other. None of them keeps another out
//! (at distance 0 none is nearer), so hundreds of them would take all places of each other's lists, and of those around, and nothing would
//! lead on from there. Equal ones lie at equal distances: where no two candidates do, nothing is compared and nothing changes.
use super::Graph;
use crate::index::{Neighbor, Slot};
use crate::quantizer::CodecQuery;

/// Of vectors that are equal, so many are taken. All of them stay reachable: the tree leads from one to the next.
pub(super) const EQUAL_MAX: usize = 4;

/// Candidates at the same distance that one is compared with, at most: vectors of few values have many at a distance that differ.
const COMPARED_MAX: usize = 16;

/// A finished or running choice. Both lists ascend; together they are every candidate seen but for surplus equals.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    /// See [`super::GraphConfig::alpha`].
    pub(super) alpha: f32,
    pub(super) kept: Vec<Neighbor>,
    pub(super) discarded: Vec<Neighbor>,
    /// Of each kept one in a running choice, and of one that is added to a finished one, its code as others are compared with, when
    /// plans go over codes of a quantizer.
    queries: Vec<CodecQuery>,
    /// What was taken last at one distance.
    level: Vec<Neighbor>,
}

impl Default for Selection {
    fn default() -> Self {
        Selection::new(1.0)
    }
}

impl Selection {
    pub(super) fn new(alpha: f32) -> Self {
        Selection { alpha, kept: Vec::new(), discarded: Vec::new(), queries: Vec::new(), level: Vec::new() }
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.discarded.clear();
        self.level.clear();
    }

    /// Whether enough equal ones were taken before a candidate, not nearer than any before.
    fn is_surplus(&mut self, graph: &Graph, candidate: Neighbor) -> bool {
        if self.level.last().is_none_or(|last| last.distance != candidate.distance) {
            self.level.clear();
        } else if self.level.len() >= EQUAL_MAX {
            let latest = self.level.iter().rev().take(COMPARED_MAX);
            if latest.filter(|near| graph.is_same(near.slot, candidate.slot)).count() >= EQUAL_MAX {
                return true;
            }
        }
        self.level.push(candidate);
        false
    }

    /// Offers the next candidate, not nearer than any before. Cost: at most one distance per kept one; returns how
    /// many were computed.
    pub(super) fn offer(&mut self, graph: &Graph, candidate: Neighbor) -> usize {
        if self.is_surplus(graph, candidate) {
            return 0;
        }
        // The latest kept ones first: they are about as far from the base as the candidate, so likely in its way.
        let coded = graph.plans_coded();
        let blocks = |at: usize| {
            let between = match coded {
                true => graph.coded_distance(&self.queries[at], candidate.slot),
                false => graph.distance(self.kept[at].slot, candidate.slot),
            };
            self.alpha * between < candidate.distance
        };
        let blocker = (0..self.kept.len()).rev().position(blocks);
        match blocker {
            Some(at) => {
                self.discarded.push(candidate);
                at + 1
            }
            None => {
                if coded {
                    self.set_query(graph, self.kept.len(), candidate.slot);
                }
                self.kept.push(candidate);
                self.kept.len() - 1
            }
        }
    }

    /// Runs the heuristic over `candidates` (ascending) until `cap` are kept.
    pub(super) fn run(&mut self, graph: &Graph, candidates: &[Neighbor], cap: usize) {
        self.clear();
        for &candidate in candidates {
            if self.kept.len() == cap {
                break;
            }
            self.offer(graph, candidate);
        }
    }

    /// Adds one candidate to the outcome of a run over other candidates; the result is that of a run over all of
    /// them. False when it would push out a kept one, which may bring back ones it had discarded, or one of its equals: run again then.
    #[must_use]
    pub(super) fn add(&mut self, graph: &Graph, candidate: Neighbor) -> bool {
        match self.equals_taken(graph, candidate) {
            (before, _) if before >= EQUAL_MAX => return true,
            (before, after) if before + after >= EQUAL_MAX => return false,
            _ => {}
        }
        let at = self.kept.partition_point(|&kept| kept < candidate);
        let coded = graph.plans_coded();
        if coded {
            self.set_query(graph, 0, candidate.slot);
        }
        let between = |other: Slot| match coded {
            true => graph.coded_distance(&self.queries[0], other),
            false => graph.distance(other, candidate.slot),
        };
        let (nearer, farther) = self.kept.split_at(at);
        if nearer.iter().rev().any(|kept| self.alpha * between(kept.slot) < candidate.distance) {
            let at = self.discarded.partition_point(|&other| other < candidate);
            self.discarded.insert(at, candidate);
            return true;
        }
        if farther.iter().any(|kept| self.alpha * between(kept.slot) < kept.distance) {
            return false;
        }
        self.kept.insert(at, candidate);
        true
    }

    /// Equal ones that were taken and come before a candidate, and those that come after it.
    fn equals_taken(&self, graph: &Graph, candidate: Neighbor) -> (usize, usize) {
        let (mut before, mut after) = (0, 0);
        for list in [&self.kept, &self.discarded] {
            let from = list.partition_point(|near| near.distance < candidate.distance);
            let level = list[from..].iter().take_while(|near| near.distance == candidate.distance);
            for near in level.take(COMPARED_MAX).filter(|near| graph.is_same(near.slot, candidate.slot)) {
                *if *near < candidate { &mut before } else { &mut after } += 1;
            }
        }
        (before, after)
    }

    fn set_query(&mut self, graph: &Graph, at: usize, slot: Slot) {
        if self.queries.len() <= at {
            self.queries.resize_with(at + 1, CodecQuery::default);
        }
        graph.set_coded(slot, &mut self.queries[at]);
    }

    /// The chosen neighbours, at most `cap`: kept ones, then refill.
    pub(super) fn chosen(&self, cap: usize) -> impl Iterator<Item = Neighbor> {
        self.kept.iter().chain(&self.discarded).take(cap).copied()
    }
}
