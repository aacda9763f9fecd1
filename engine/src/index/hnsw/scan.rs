//! The nearest of many slots: codes tell which are too far to be looked at.
use super::Graph;
use super::codes::{Bound, Codes};
use crate::distance::CodeQuery;
use crate::index::Neighbor;
use crate::quantizer::CodecQuery;
use crate::slot::Slot;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Candidates kept beyond `4 k` before those are dropped that cannot be among the nearest.
const KEPT_MORE: usize = 256;
/// And left after that, beyond as many, before some are to be scored: data that codes hardly tell apart would keep everything.
const CROWD: usize = if cfg!(test) { 256 } else { 4096 };

/// A query over many slots. Exact: what is left out is certainly farther than `k` others.
///
/// Slots are sifted by their codes as they come. An exact distance differs from that of a code by no more than a bound, so that
/// the `k`-th nearest by codes is surely at most that much farther than its code says, and no slot counts whose code is twice
/// the bound farther. Those that are left are handed out at the end, nearest first, until the exact distances of the first rule
/// out the rest.
pub struct Scan<'a> {
    graph: &'a Graph,
    query: &'a [f32],
    k: usize,
    /// Made when it is first of use: few slots are scored as they are.
    coded: Option<(&'a Codes, CodeQuery, Bound)>,
    /// Candidates with the distances of their codes.
    near: Vec<Neighbor>,
    /// As many are looked through.
    narrow_at: usize,
    /// And once they are handed out, nearest first.
    ordered: Option<BinaryHeap<Reverse<Neighbor>>>,
    /// Candidates of which codes say nothing.
    unsure: Vec<Slot>,
    /// Codes that say more are too far.
    reach: f32,
    distances: Vec<f32>,
    /// The query as codes are compared with that vectors were given up for.
    bare: Option<CodecQuery>,
}

impl<'a> Scan<'a> {
    /// For a padded, prepared `query` and its `k` nearest.
    ///
    /// # Panics
    /// When `query` is not a padded row.
    pub fn new(graph: &'a Graph, query: &'a [f32], k: usize) -> Self {
        assert_eq!(query.len(), graph.vectors.row_len(), "the query is not a padded row");
        Scan {
            graph,
            query,
            k: k.max(1),
            coded: None,
            near: Vec::new(),
            narrow_at: kept(k),
            ordered: None,
            unsure: Vec::new(),
            reach: f32::INFINITY,
            distances: Vec::new(),
            bare: None,
        }
    }

    fn coded(&mut self) -> Option<(&'a Codes, &CodeQuery, Bound)> {
        if self.coded.is_none() {
            let codes = self.graph.codes.as_ref()?;
            let mut code = CodeQuery::default();
            codes.set_query(&mut code, self.query, codes.step()?);
            let bound = codes.bound(&code, self.query);
            self.coded = Some((codes, code, bound));
        }
        self.coded.as_ref().map(|(codes, code, bound)| (*codes, code, *bound))
    }

    /// Keeps those of `slots` that may be among the nearest, to be handed out by [`Self::nearest`]; false when there are no codes,
    /// and they have to be scored as they are. The slots were visible when the scan began, and are not freed meanwhile (the
    /// caller is pinned).
    ///
    /// Cost: a code's distance each; once, a code of the query; and every so often a look through those kept.
    ///
    /// # Panics
    /// When a slot is out of range.
    pub fn sift(&mut self, slots: &[Slot]) -> bool {
        self.check(slots);
        let mut distances = std::mem::take(&mut self.distances);
        let Some((codes, code, bound)) = self.coded() else { return false };
        distances.resize(slots.len(), 0.0);
        codes.distances(code, slots, &mut distances);
        for (&slot, &distance) in slots.iter().zip(&distances) {
            // What cannot be compared (NaN) is kept.
            let too_far = distance > self.reach;
            if !too_far {
                self.near.push(Neighbor { distance, slot });
            } else if bound.but_rough && codes.is_rough(slot) {
                self.unsure.push(slot);
            }
        }
        self.distances = distances;
        if self.near.len() > self.narrow_at {
            self.narrow(codes, bound);
            self.narrow_at = kept(self.k).max(self.near.len().saturating_mul(2));
        }
        true
    }

    /// Drops what cannot be among the nearest.
    fn narrow(&mut self, codes: &Codes, bound: Bound) {
        let Scan { near, unsure, reach, .. } = self;
        near.retain(|near| {
            let told = near.distance.is_finite() && !(bound.but_rough && codes.is_rough(near.slot));
            if !told {
                unsure.push(near.slot);
            }
            told
        });
        if near.len() > self.k {
            let (_, kth, _) =
                near.select_nth_unstable_by(self.k - 1, |a, b| a.distance.total_cmp(&b.distance));
            *reach = reach.min(bound.reach(kth.distance));
            near.retain(|near| near.distance <= *reach);
        }
    }

    /// Whether so many are kept that some should be scored now, by [`Self::some`].
    pub fn is_crowded(&self) -> bool {
        self.near.len() > kept(self.k).saturating_add(CROWD) || self.unsure.len() > CROWD
    }

    /// Puts some of the candidates into `slots`, of which none was handed out before.
    pub fn some(&mut self, max: usize, slots: &mut Vec<Slot>) {
        slots.clear();
        slots.extend(self.unsure.drain(self.unsure.len().saturating_sub(max)..));
        let rest = self.near.len().saturating_sub(max - slots.len());
        slots.extend(self.near.drain(rest..).map(|near| near.slot));
    }

    /// Puts up to `max` candidates into `slots`, nearest by their codes first, of which none was handed out before; none are left
    /// when it stays empty. `to_beat`: the exact distance of the `k`-th nearest so far. Nothing is sifted after the first call.
    pub fn nearest(&mut self, to_beat: Option<f32>, max: usize, slots: &mut Vec<Slot>) {
        slots.clear();
        let Some((codes, _, bound)) = self.coded.as_ref().map(|(codes, code, bound)| (*codes, code, *bound))
        else {
            return;
        };
        if self.ordered.is_none() {
            self.narrow(codes, bound);
            self.ordered = Some(std::mem::take(&mut self.near).into_iter().map(Reverse).collect());
        }
        slots.extend(self.unsure.drain(self.unsure.len().saturating_sub(max)..));
        let Some(ordered) = &mut self.ordered else { return };
        while slots.len() < max
            && let Some(Reverse(next)) = ordered.pop()
        {
            if to_beat.is_some_and(|to_beat| bound.lowest(next.distance) > to_beat) {
                ordered.clear();
                return;
            }
            slots.push(next.slot);
        }
    }

    /// Exact distances to `slots`, in that order, or those of codes where vectors are given up. Vectors that may be on the disk are asked for
    /// all at once.
    ///
    /// # Panics
    /// When a slot is out of range.
    pub fn score(&mut self, slots: &[Slot], distances: &mut Vec<f32>) {
        self.check(slots);
        distances.resize(slots.len(), 0.0);
        if let Some(quantized) = self.graph.quantized.as_ref().filter(|_| self.graph.is_bare()) {
            let made = self.bare.is_some();
            let query = self.bare.get_or_insert_default();
            let coded = if made { quantized.started(query) } else { quantized.query(self.query, query) };
            return coded.expect("codes came before vectors went").distances(slots, distances);
        }
        self.graph.fetch(slots.iter().copied());
        self.graph.distances(self.query, slots, distances);
    }

    fn check(&self, slots: &[Slot]) {
        let capacity = self.graph.vectors.capacity();
        assert!(slots.iter().all(|&slot| (slot as usize) < capacity), "slots in range");
    }
}

/// Candidates that are kept without a look through them.
fn kept(k: usize) -> usize {
    k.saturating_mul(4).saturating_add(KEPT_MORE)
}
