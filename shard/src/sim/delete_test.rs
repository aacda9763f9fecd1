//! Deleting by ids in simulation: an acknowledged deletion holds after a crash, and after a start with another number of cores.

use super::node::{node_options, open, patiently};
use super::{Random, Sim};
use crate::core::{Core, Selection};
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::points::{PointFields, Vectors, WriteBatch};
use nigh_engine::collection::{DenseConfig, WriteMode};
use nigh_engine::distance::Metric;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

const NAME: &str = "docs";
const POINTS: u64 = 500;

async fn fill(core: &Rc<Core>) {
    patiently(|| core.create_collection(NAME, DenseConfig::new(1, Metric::L2))).await;
    let points = (0..POINTS)
        .map(|id| PointFields { id, row: Vec::new(), ttl_ms: 0, expected_version: None })
        .collect();
    let vectors = Vectors::Native((0..POINTS).map(|id| id as f32).collect());
    let batch = WriteBatch { mode: WriteMode::Insert, dim: 1, vectors, points };
    core.write(NAME, batch).await.map_err(|stopped| stopped.error).unwrap();
}

async fn present(core: &Rc<Core>) -> BTreeSet<u64> {
    let got = patiently(|| core.get(NAME, (0..POINTS).collect(), false, false)).await;
    got.iter().zip(0..).filter_map(|(point, id)| point.as_ref().map(|_| id)).collect()
}

/// Fills the collection in the first life, and deletes in each.
async fn life(sim: Sim, disk: Rc<SimDisk>, left: Rc<RefCell<BTreeSet<u64>>>, is_first: bool) {
    let random = sim.random().fork();
    let node = open(&sim, &disk, 1 + random.index(3), node_options()).await;
    let core = node.cores[random.index(node.cores.len())].clone();
    if is_first {
        fill(&core).await;
        left.borrow_mut().extend(0..POINTS);
    }
    assert_eq!(present(&core).await, *left.borrow());
    // Some of these are there, some were deleted before, some were never there, and some are named twice.
    let ids: Vec<u64> = (0..100).map(|_| random.below(2 * POINTS)).collect();
    let deleted = patiently(|| core.delete_many(NAME, Selection::Named(ids.clone()))).await;
    let gone = ids.iter().filter(|id| left.borrow_mut().remove(*id)).count();
    assert_eq!(deleted, gone as u64);
    assert_eq!(patiently(|| core.delete_many(NAME, Selection::Named(ids.clone()))).await, 0);
    assert_eq!(patiently(|| core.delete_many(NAME, Selection::Named(Vec::new()))).await, 0);
    assert_eq!(present(&core).await, *left.borrow());
    let unknown = core.delete_many("none", Selection::Named(vec![1])).await;
    assert!(matches!(unknown, Err(OpError::UnknownCollection(_))), "{unknown:?}");
}

#[test]
fn deletions_by_ids_hold_after_a_crash() {
    for seed in 1..=10 {
        println!("seed {seed}");
        let random = Random::new(seed);
        let mut disk = SimDisk::new(random.next());
        let left = Rc::default();
        for number in 0..4 {
            let shared = Rc::new(disk);
            super::run(random.next(), |sim| life(sim, shared.clone(), Rc::clone(&left), number == 0));
            Core::set_current(None);
            disk = shared.crash_clone(random.next());
        }
        assert!(!left.borrow().is_empty());
    }
}
