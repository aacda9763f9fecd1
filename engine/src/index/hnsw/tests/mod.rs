//! Graphs against exact search. Everything is seeded; sizes keep the room's tests within seconds, and
//! `NIGH_TEST_LONG=1` runs the long forms.
mod build;
mod churn;
mod codes;
mod concurrent;
mod equal;
mod parts;
mod quantized;

use std::collections::{BTreeSet, VecDeque};

use super::*;
use crate::distance::{Metric, padded, prepare};
use crate::index::{Neighbor, exact_search};
use crate::slot::Slot;

/// A small seeded generator: tests must not depend on a library's stream.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }
    /// Uniform in -1..1.
    pub(super) fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// Points around random centres.
pub(super) struct Clusters {
    centres: Vec<Vec<f32>>,
    spread: f32,
}

impl Clusters {
    pub(super) fn new(rng: &mut Rng, dim: usize, count: usize, spread: f32) -> Self {
        Clusters { centres: (0..count).map(|_| (0..dim).map(|_| rng.float()).collect()).collect(), spread }
    }
    /// A padded, prepared point.
    pub(super) fn point(&self, rng: &mut Rng, metric: Metric) -> Vec<f32> {
        let centre = &self.centres[rng.below(self.centres.len())];
        let raw: Vec<f32> = centre.iter().map(|c| c + self.spread * rng.float()).collect();
        let mut row = vec![0.0; padded(raw.len())];
        prepare(metric, &raw, &mut row);
        row
    }
}

pub(super) fn config(dim: usize, metric: Metric, m: usize, capacity: usize) -> GraphConfig {
    GraphConfig {
        dim,
        metric,
        m,
        ef_construction: 64,
        seed: 7,
        level0_full_degree: false,
        extend_candidates: false,
        extend_candidates_max: 0,
        codes: true,
        rescore_factor: 0,
        quantized: None,
        flat: None,
        capacity,
    }
}

/// A graph of `n` clustered points in slots 0..n, and what made them.
pub(super) fn built(config: GraphConfig, n: usize, clusters: usize) -> (Graph, Clusters, Rng) {
    let mut rng = Rng::new(n as u64);
    let data = Clusters::new(&mut rng, config.dim, clusters, 0.3);
    let graph = Graph::new(config).unwrap();
    let points: Vec<(Slot, u64)> = (0..n as Slot).map(|slot| (slot, u64::from(slot))).collect();
    for &(slot, _) in &points {
        graph.write_vector(slot, &data.point(&mut rng, graph.config().metric));
    }
    insert_all(&graph, &points, |_| false);
    (graph, data, rng)
}

/// Share of the exact `k` nearest among `live` slots that a search of width `ef` finds.
pub(super) fn recall(graph: &Graph, queries: &[Vec<f32>], live: &BTreeSet<Slot>, k: usize, ef: usize) -> f64 {
    let mut scratch = Scratch::new();
    let (mut hits, mut wanted) = (0, 0);
    for query in queries {
        let exact = exact_search(graph.kernel(), graph.vectors(), query, live.iter().copied(), k, |_| true);
        let found = graph.search(query, k, ef, &mut scratch, |slot| live.contains(&slot));
        let found: BTreeSet<Slot> = found.iter().take(k).map(|n| n.slot).collect();
        hits += exact.iter().filter(|n| found.contains(&n.slot)).count();
        wanted += exact.len();
    }
    hits as f64 / wanted.max(1) as f64
}

/// Asserts the graph's invariants over its linked slots.
pub(super) fn check_invariants(graph: &Graph, linked: &BTreeSet<Slot>) {
    let mut lists: Vec<Vec<Slot>> = vec![Vec::new(); graph.config().capacity];
    for slot in 0..graph.config().capacity as Slot {
        assert_eq!(graph.is_linked(slot), linked.contains(&slot), "slot {slot}");
        graph.edges(slot, &mut |level, edges| {
            assert!(edges.len() <= graph.config().degree_max(level));
            let distinct: BTreeSet<Slot> = edges.iter().copied().collect();
            assert!(
                distinct.len() == edges.len() && !distinct.contains(&slot),
                "{slot} on {level}: {edges:?}"
            );
            for &edge in edges {
                assert!(linked.contains(&edge), "{slot} on {level} names the free slot {edge}");
                assert!(graph.links.level(edge) >= level, "{slot} names {edge} above its level");
            }
            if level == 0 {
                lists[slot as usize] = edges.to_vec();
            }
        });
    }
    let Some((entry, level)) = graph.entry() else {
        assert!(linked.is_empty(), "no entry point to {} nodes", linked.len());
        return;
    };
    assert!(linked.contains(&entry) && graph.links.level(entry) >= level);
    let in_tree = || linked.iter().copied().filter(|&slot| !graph.is_given_up(slot));
    for slot in in_tree() {
        if let Some(parent) = graph.parent(slot) {
            assert!(lists[slot as usize].contains(&parent), "{slot} does not name its parent {parent}");
            assert!(lists[parent as usize].contains(&slot), "{parent} does not name its child {slot}");
        }
    }
}

/// How many of `live` level 0 does not reach from the entry point.
pub(super) fn unreachable(graph: &Graph, live: &BTreeSet<Slot>) -> usize {
    let Some((entry, _)) = graph.entry() else { return live.len() };
    let mut reached = BTreeSet::from([entry]);
    let mut queue = VecDeque::from([entry]);
    while let Some(slot) = queue.pop_front() {
        graph.links.for_each(slot, 0, |edge| {
            if reached.insert(edge) {
                queue.push_back(edge);
            }
        });
    }
    live.difference(&reached).count()
}

/// Every list of every slot.
pub(super) fn dump(graph: &Graph) -> Vec<Vec<Vec<Slot>>> {
    (0..graph.config().capacity as Slot)
        .map(|slot| {
            let mut levels = Vec::new();
            graph.edges(slot, &mut |_, edges| levels.push(edges.to_vec()));
            levels
        })
        .collect()
}

pub(super) fn slots(found: &[Neighbor]) -> Vec<Slot> {
    found.iter().map(|n| n.slot).collect()
}
