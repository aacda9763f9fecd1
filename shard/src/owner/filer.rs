//! Rounds and trainings of collections of cells: what `indexer` is to graphs.
//!
//! In a round every core finds the nearest centroids of slots, and the owner files them. A training draws its sample in slices
//! between rounds, is computed apart from the cores, and is filled by rounds again; nobody waits for it.

use crate::env::{Env, Length, train};
use crate::owner::shared_round::{SHARED_ROUND_MIN, collect, on_cores};
use crate::owner::{Collections, Owned};
use crate::slice::Slice;
use nigh_engine::collection::{DenseWriter, Filed, FilingRound, Space};
use nigh_engine::index::FiledAt;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Distances between two looks at the clock.
const CELLS_PER_STEP: usize = 512;
/// Points drawn or copied for a sample in one go, and components of them: some 100 µs.
const SAMPLED_PER_STEP: usize = 256;
const COMPONENTS_PER_STEP: usize = SAMPLED_PER_STEP * 384;

/// A round shared by the cores that plan it.
struct PlaceWork {
    space: Arc<Space>,
    round: Arc<FilingRound>,
    next: AtomicUsize,
    places: Vec<OnceLock<FiledAt>>,
}

async fn place_all(env: Rc<dyn Env>, work: Arc<PlaceWork>) {
    let mut buffer = Vec::new();
    let mut slice = Slice::begin(&env);
    loop {
        let index = work.next.fetch_add(1, Relaxed);
        let Some(place) = work.places.get(index) else { return };
        let found = loop {
            if let Some(found) = work.space.place_step(&work.round, index, &mut buffer, CELLS_PER_STEP) {
                break found;
            }
            slice.check().await;
        };
        assert!(place.set(found).is_ok(), "an index is taken once");
        slice.check().await;
    }
}

/// Plans and ends one round of a space; how many points have left the tail, `None` when there was nothing to do.
///
/// As for `run_round`, the caller holds the collection's round lock.
pub async fn run_filing(
    collections: &Rc<Collections>,
    writer: &RefCell<DenseWriter>,
    number: usize,
    round_max: usize,
    workers: usize,
) -> Option<usize> {
    let (round, space) = {
        let mut writer = writer.borrow_mut();
        match writer.begin_filing(number, round_max) {
            Filed::Nothing => return None,
            Filed::Moved(points) => return Some(points),
            Filed::Round(round) => (round, writer.shared().spaces()[number].clone()),
        }
    };
    let slots = round.len();
    let workers = if slots < SHARED_ROUND_MIN { 1 } else { workers };
    let work = Arc::new(PlaceWork {
        space,
        round,
        next: AtomicUsize::new(0),
        places: (0..slots).map(|_| OnceLock::new()).collect(),
    });
    let shared = work.clone();
    on_cores(collections, workers, move |env| place_all(env, shared.clone())).await;
    let places = collect(work, |work| &mut work.places);
    let grown = writer.borrow().spaces()[number].tail_len();
    writer.borrow_mut().end_filing(number, &places);
    Some(grown.saturating_sub(writer.borrow().spaces()[number].tail_len()))
}

/// A slice of a training of a space of a collection that serves, if one is due; whether there was one. Clustering goes on in a task of its own.
pub fn train_on(env: &Rc<dyn Env>, owned: &Rc<Owned>, space: usize) -> bool {
    if !owned.writer.borrow().spaces()[space].training_due() {
        return false;
    }
    let step = sampled_per_step(&owned.writer.borrow(), space);
    let sample = owned.writer.borrow_mut().training_step(space, step);
    if let Some(sample) = sample {
        // What is dropped meanwhile is not kept for this.
        let (tasks, owned) = (env.clone(), Rc::downgrade(owned));
        let (points, from_ns) = (sample.len(), env.now_ns());
        env.spawn(Box::pin(async move {
            let (ticket, clustering) =
                (sample.ticket(), train(&tasks, Length::Long, move || sample.cluster()).await);
            let Some(owned) = owned.upgrade().filter(|owned| !owned.dropped.get()) else { return };
            match clustering {
                Some(clustering) => {
                    let (collection, cells) = (&owned.handle.name, clustering.cells());
                    let took_ms = (tasks.now_ns() - from_ns) / 1_000_000;
                    tracing::info!(collection, points, cells, took_ms, "an index of cells is trained");
                    owned.writer.borrow_mut().end_training(space, clustering);
                }
                None => owned.writer.borrow_mut().spaces_mut()[space].fail_training(ticket),
            }
            owned.changed.notify();
        }));
    }
    true
}

fn sampled_per_step(writer: &DenseWriter, space: usize) -> usize {
    (COMPONENTS_PER_STEP / writer.shared().spaces()[space].config().dim).clamp(1, SAMPLED_PER_STEP)
}

/// Trains what a bulk build has loaded into a space, however little it is, and waits for it. Nothing without cells.
pub async fn train_now(env: &Rc<dyn Env>, writer: &RefCell<DenseWriter>, space: usize) {
    let mut slice = Slice::begin(env);
    writer.borrow_mut().spaces_mut()[space].want_training();
    let step = sampled_per_step(&writer.borrow(), space);
    while writer.borrow().spaces()[space].training_due() {
        let sample = writer.borrow_mut().training_step(space, step);
        if let Some(sample) = sample {
            let ticket = sample.ticket();
            match train(env, Length::Long, move || sample.cluster()).await {
                Some(clustering) => writer.borrow_mut().end_training(space, clustering),
                // The index is not trained then: searches look at everything.
                None => writer.borrow_mut().spaces_mut()[space].fail_training(ticket),
            }
        }
        slice.check().await;
    }
}
