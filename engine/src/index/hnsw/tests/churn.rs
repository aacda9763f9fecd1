//! Random inserts, deletes, repairs, frees and reuse against exact search.
use super::*;

/// A graph with the bookkeeping that a collection does: live, dead and free slots.
pub(super) struct Churn {
    pub(super) graph: Graph,
    data: Clusters,
    rng: Rng,
    pub(super) live: BTreeSet<Slot>,
    dead: BTreeSet<Slot>,
    free: Vec<Slot>,
    next_key: u64,
    scratch: Scratch,
}

impl Churn {
    pub(super) fn new(config: GraphConfig, clusters: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let data = Clusters::new(&mut rng, config.dim, clusters, 0.3);
        let free = (0..config.capacity as Slot).rev().collect();
        let graph = Graph::new(config).unwrap();
        let (live, dead) = (BTreeSet::new(), BTreeSet::new());
        Churn { graph, data, rng, live, dead, free, next_key: 0, scratch: Scratch::new() }
    }

    pub(super) fn insert(&mut self, count: usize) {
        let mut points = Vec::new();
        for _ in 0..count.min(self.free.len()) {
            let slot = self.free.pop().unwrap();
            let vector = self.data.point(&mut self.rng, self.graph.config().metric);
            self.graph.write_vector(slot, &vector);
            points.push((slot, self.next_key));
            self.next_key += 1;
        }
        insert_all(&self.graph, &points, |slot| self.dead.contains(&slot));
        self.live.extend(points.iter().map(|p| p.0));
    }

    pub(super) fn delete(&mut self, count: usize) {
        for _ in 0..count.min(self.live.len()) {
            let at = self.rng.below(self.live.len());
            let slot = *self.live.iter().nth(at).unwrap();
            self.live.remove(&slot);
            self.dead.insert(slot);
        }
    }

    pub(super) fn repair(&mut self) {
        let is_dead = |slot| self.dead.contains(&slot);
        self.graph.fix_entry(&mut self.live.iter().copied(), &is_dead);
        for &slot in &self.live {
            self.graph.repair(slot, &is_dead, &mut self.scratch);
        }
        for &slot in &self.live {
            self.graph.edges(slot, &mut |_, edges| assert!(!edges.iter().any(|&edge| is_dead(edge))));
        }
        for slot in std::mem::take(&mut self.dead) {
            self.graph.free(slot);
            self.free.push(slot);
        }
    }

    /// Live nodes that level 0 does not reach.
    pub(super) fn unreachable(&self) -> usize {
        let linked = self.live.union(&self.dead).copied().collect();
        check_invariants(&self.graph, &linked);
        unreachable(&self.graph, &self.live)
    }

    fn recall(&mut self, queries: usize, ef: usize) -> f64 {
        let metric = self.graph.config().metric;
        let queries: Vec<_> = (0..queries).map(|_| self.data.point(&mut self.rng, metric)).collect();
        recall(&self.graph, &queries, &self.live, 10, ef)
    }
}

#[test]
fn random_mutations_keep_every_live_point_reachable() {
    let long = std::env::var_os("NIGH_TEST_LONG").is_some();
    for seed in 0..if long { 400 } else { 40 } {
        let m = [2, 3, 4, 8, 16][seed % 5];
        let clusters = [1, 5, 60][seed % 3];
        let mut churn = Churn::new(config(8, Metric::L2, m, 400), clusters, seed as u64);
        for step in 0..40 {
            match churn.rng.below(10) {
                0..4 => {
                    let count = 1 + churn.rng.below(60);
                    churn.insert(count);
                }
                4..7 => {
                    let count = 1 + churn.rng.below(80);
                    churn.delete(count);
                }
                7 => {
                    let count = churn.rng.below(churn.live.len() + 1);
                    churn.delete(count);
                }
                _ => churn.repair(),
            }
            assert_eq!(churn.unreachable(), 0, "seed {seed}, step {step}: of {} live", churn.live.len());
        }
        churn.repair();
        if m >= 4 && !churn.live.is_empty() {
            let got = churn.recall(30, 100);
            assert!(got > 0.95, "seed {seed}, m {m}, {} live: recall {got}", churn.live.len());
        }
    }
}

#[test]
fn recall_survives_replacing_half_again_and_again() {
    let long = std::env::var_os("NIGH_TEST_LONG").is_some();
    let n = if long { 20_000 } else { 2000 };
    let mut churn = Churn::new(config(24, Metric::Cosine, 8, n * 3 / 2), 50, 1);
    churn.insert(n);
    let fresh = churn.recall(100, 64);
    for round in 0..if long { 20 } else { 5 } {
        churn.delete(n / 2);
        churn.insert(n / 2);
        churn.repair();
        assert_eq!(churn.live.len(), n);
        assert_eq!(churn.unreachable(), 0, "round {round}");
        let got = churn.recall(100, 64);
        assert!(got > fresh - 0.02, "round {round}: recall {got} after {fresh}");
    }
}

#[test]
fn everything_may_die_and_come_back() {
    let mut churn = Churn::new(config(8, Metric::L2, 4, 300), 10, 3);
    churn.insert(200);
    churn.delete(200);
    // Every path to the new points leads through dead ones, or there is none.
    churn.insert(50);
    assert_eq!(churn.unreachable(), 0);
    assert_eq!(churn.recall(20, 50), 1.0);
    churn.repair();
    assert_eq!(churn.unreachable(), 0);
    churn.delete(50);
    churn.repair();
    assert_eq!(churn.graph.entry(), None);
    churn.insert(100);
    assert_eq!((churn.unreachable(), churn.recall(20, 100)), (0, 1.0));
}

#[test]
fn deaths_between_plan_and_commit_are_not_linked() {
    let (graph, data, mut rng) = built(config(8, Metric::L2, 4, 210), 200, 5);
    let points: Vec<_> = (200..210).map(|slot| (slot, u64::from(slot))).collect();
    points.iter().for_each(|&(slot, _)| graph.write_vector(slot, &data.point(&mut rng, Metric::L2)));
    let round = Round::of(&graph, &points);
    let mut planner = Planner::new();
    let plans: Vec<_> = (0..10)
        .map(|index| {
            planner.start(&graph, &round, index);
            planner.step(&graph, &round, usize::MAX, |_| false).unwrap()
        })
        .collect();
    let mut scratch = Scratch::new();
    let jobs = graph.target_jobs(&plans);
    let targets: Vec<_> = jobs.iter().map(|job| graph.plan_target(job, &mut scratch)).collect();
    // All the neighbours of 200 and one new node die.
    let mut dead: BTreeSet<Slot> = plans[0].levels.iter().flatten().map(|n| n.slot).collect();
    dead.insert(205);
    graph.commit(Commit::new(&round, plans, targets), |slot| dead.contains(&slot));
    let linked: BTreeSet<Slot> = (0..210).filter(|slot| *slot != 205).collect();
    check_invariants(&graph, &linked);
    assert_eq!(unreachable(&graph, &linked.difference(&dead).copied().collect()), 0);
    for slot in 0..210 {
        graph.edges(slot, &mut |_, edges| assert!(!edges.contains(&205), "{slot} names the dead newcomer"));
    }
    for slot in (200..210).filter(|slot| *slot != 205) {
        graph.edges(slot, &mut |_, edges| assert!(!edges.iter().any(|edge| dead.contains(edge))));
    }
}
