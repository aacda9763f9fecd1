//! Which candidates become neighbours: the paper's diversity heuristic (Algorithm 4) with refill.
//!
//! Candidates are taken nearest first. One is kept unless some kept one is nearer to it than the base node is;
//! afterwards the nearest discarded ones fill the list up to its cap. Only kept candidates decide about others, so
//! the outcome for a set stays valid when discarded ones leave it: [`Selection::add`] uses that to put one more
//! candidate into a finished selection at the price of a few distances instead of hundreds.
//!
//! The heuristic does not thin out copies of the base node, as none is nearer to another than to the base, and the refill would take all
//! copies of any vector. A list full of copies leads nowhere else. So only the first few of equal candidates are considered; the
//! tree keeps the others reachable.
use super::Graph;
use crate::index::Neighbor;
use crate::index::pool::Fingerprints;
use crate::quantizer::CodecQuery;
use crate::slot::Slot;

/// How many copies of one vector a list may hold; this includes copies of the base. With two of sixty, searches with a filter come by too
/// few copies that pass.
const COPIES_MAX: usize = 3;

/// A finished or running choice. Both lists ascend; together they are every candidate seen, but for copies beyond the first
/// [`COPIES_MAX`] of a vector.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    /// See [`super::GraphConfig::alpha`].
    pub(super) alpha: f32,
    pub(super) kept: Vec<Neighbor>,
    pub(super) discarded: Vec<Neighbor>,
    /// Of each kept one in a running choice, and of one that is added to a finished one, its code as others are compared with, when
    /// plans go over codes of a quantizer.
    queries: Vec<CodecQuery>,
    /// Fingerprints of candidates that were offered right after another one at the same distance.
    seen: Fingerprints,
}

impl Default for Selection {
    fn default() -> Self {
        Selection::new(1.0)
    }
}

impl Selection {
    pub(super) fn new(alpha: f32) -> Self {
        Selection {
            alpha,
            kept: Vec::new(),
            discarded: Vec::new(),
            queries: Vec::new(),
            seen: Fingerprints::default(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.discarded.clear();
        self.seen = Fingerprints::default();
    }

    /// Offers the next candidate, not nearer than any before. Cost: at most one distance per kept one; returns how
    /// many were computed.
    pub(super) fn offer(&mut self, graph: &Graph, candidate: Neighbor) -> usize {
        // Equal vectors are at the same distance, so they were offered right before it.
        let is_tied = |list: &[Neighbor]| list.last().is_some_and(|last| last.is_as_far_as(candidate));
        if (is_tied(&self.kept) || is_tied(&self.discarded))
            && self.seen.add(graph.fingerprint(candidate.slot))
            && self.copies_of(graph, candidate).count() == COPIES_MAX
        {
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

    /// The copies of a candidate among those seen.
    fn copies_of(&self, graph: &Graph, candidate: Neighbor) -> impl Iterator<Item = Neighbor> {
        let first = Neighbor { slot: 0, ..candidate };
        let tied = [&self.kept, &self.discarded].into_iter().flat_map(move |list| {
            let from = list.partition_point(|&near| near < first);
            list[from..].iter().take_while(move |near| near.is_as_far_as(candidate))
        });
        tied.copied().filter(move |near| graph.is_copy(near.slot, candidate.slot))
    }

    /// Adds one candidate to the outcome of a run over other candidates; the result is that of a run over all of
    /// them. False when it would push out a kept one, which may bring back ones it had discarded: run again then.
    #[must_use]
    pub(super) fn add(&mut self, graph: &Graph, candidate: Neighbor) -> bool {
        if let Some(surplus) = self.surplus(graph, candidate) {
            if surplus == candidate {
                return true;
            }
            match self.discarded.binary_search(&surplus) {
                Ok(at) => self.discarded.remove(at),
                Err(_) => return false,
            };
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

    /// The farthest of a candidate and its copies, if there are too many with it.
    fn surplus(&self, graph: &Graph, candidate: Neighbor) -> Option<Neighbor> {
        let (mut count, mut last) = (0, candidate);
        for copy in self.copies_of(graph, candidate) {
            count += 1;
            last = last.max(copy);
        }
        (count == COPIES_MAX).then_some(last)
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
