//! Moves a collection's tail into its graph, in rounds planned on every core, and repairs the graph around the dead.
//!
//! A round has three parts: nodes are planned in parallel against the frozen graph, then the edge lists of the nodes
//! they point at, then the owner stores both. Only the owner changes the graph, so neither readers nor planners take
//! a lock, and the result depends on the data and the order of writes, not on who planned what.

use crate::env::Env;
use crate::owner::checkpointer::spares_images;
use crate::owner::filer::{run_filing, train_on};
use crate::owner::shared_round::{SHARED_ROUND_MIN, collect, on_cores};
use crate::owner::texts::settle_texts;
use crate::owner::{Collections, Owned, TAIL_MAX};
use crate::slice::Slice;
use futures_lite::future::or;
use nigh_engine::collection::{DenseWriter, Space};
use nigh_engine::index::{NodePlan, Planner, Round, Scratch, TargetJob, TargetPlan};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Points per round while serving: a writer that waits for the tail waits for no more than that.
const ROUND_SERVING: usize = 128;
/// Points per round of a bulk build, where nobody reads what is being built, and of a tail that a start has replayed.
pub const ROUND_BULK: usize = 512;
/// A tail longer than that was replayed.
const TAIL_REPLAYED: usize = 2 * TAIL_MAX;
/// Distances between two looks at the clock: about 30 µs at 384 dimensions.
const DISTANCES_PER_STEP: usize = 256;
/// Target lists taken at once from the shared counter.
const TARGETS_PER_GRAB: usize = 8;
/// Edge lists stored between two looks at the clock: about 30 µs.
const LISTS_PER_STEP: usize = 64;
/// Nodes repaired between two looks at the clock: eight without dead neighbours, or one with.
const REPAIR_NODES_PER_STEP: usize = 8;

/// A collection that has had no write for so long is at rest: what was learned from its points is looked at sooner.
const REST_US: u64 = 1_000_000;
/// What waits for readers is asked for again so often when nothing else happens. Most searches take a millisecond.
const WAITING_US: u64 = 10_000;

/// Steps of writing codes between two rounds, some 3 ms.
const ENCODE_STEPS: usize = 64;

/// A round shared by the cores that plan it: each takes the next index until none is left.
struct NodeWork {
    space: Arc<Space>,
    round: Arc<Round>,
    next: AtomicUsize,
    plans: Vec<OnceLock<NodePlan>>,
}

struct TargetWork {
    space: Arc<Space>,
    jobs: Vec<TargetJob>,
    next: AtomicUsize,
    plans: Vec<OnceLock<TargetPlan>>,
}

async fn plan_nodes(env: Rc<dyn Env>, work: Arc<NodeWork>) {
    let mut planner = Planner::new();
    let mut slice = Slice::begin(&env);
    loop {
        let index = work.next.fetch_add(1, Relaxed);
        let Some(place) = work.plans.get(index) else { return };
        work.space.plan_start(&mut planner, &work.round, index);
        let plan = loop {
            if let Some(plan) = work.space.plan_step(&mut planner, &work.round, DISTANCES_PER_STEP) {
                break plan;
            }
            slice.check().await;
        };
        assert!(place.set(plan).is_ok(), "an index is taken once");
        slice.check().await;
    }
}

async fn plan_targets(env: Rc<dyn Env>, work: Arc<TargetWork>) {
    let mut scratch = Scratch::default();
    let mut slice = Slice::begin(&env);
    loop {
        let from = work.next.fetch_add(TARGETS_PER_GRAB, Relaxed);
        if from >= work.jobs.len() {
            return;
        }
        for index in from..work.jobs.len().min(from + TARGETS_PER_GRAB) {
            let plan = work.space.plan_target(&work.jobs[index], &mut scratch);
            assert!(work.plans[index].set(plan).is_ok(), "an index is taken once");
            slice.check().await;
        }
    }
}

/// Plans and commits one round of the tail of a space of `writer`; the points it has moved, `None` when there was nothing to do.
///
/// The caller holds the collection's round lock. `writer` is borrowed only between awaits.
pub async fn run_round(
    collections: &Rc<Collections>,
    writer: &RefCell<DenseWriter>,
    space: usize,
    round_max: usize,
    workers: usize,
) -> Option<usize> {
    if writer.borrow().spaces()[space].files_cells() {
        return run_filing(collections, writer, space, round_max, workers).await;
    }
    let round = writer.borrow_mut().begin_round(space, round_max)?;
    Some(carry_out(collections, writer, space, round, workers).await)
}

/// One round of the second pass of a bulk build (see `begin_relinking` of the space), from slot `next` on; `None` when all have had it.
///
/// As [`run_round`].
pub async fn run_relinking(
    collections: &Rc<Collections>,
    writer: &RefCell<DenseWriter>,
    space: usize,
    next: &mut u32,
    workers: usize,
) -> Option<usize> {
    let round = writer.borrow_mut().spaces_mut()[space].begin_relinking(next, ROUND_BULK)?;
    Some(carry_out(collections, writer, space, round, workers).await)
}

async fn carry_out(
    collections: &Rc<Collections>,
    writer: &RefCell<DenseWriter>,
    number: usize,
    round: Arc<Round>,
    workers: usize,
) -> usize {
    let space = writer.borrow().shared().spaces()[number].clone();
    let nodes = round.slots.len();
    let workers = if nodes < SHARED_ROUND_MIN { 1 } else { workers };
    let work = Arc::new(NodeWork {
        space: space.clone(),
        round,
        next: AtomicUsize::new(0),
        plans: (0..nodes).map(|_| OnceLock::new()).collect(),
    });
    let shared = work.clone();
    on_cores(collections, workers, move |env| plan_nodes(env, shared.clone())).await;
    let plans = collect(work, |work| &mut work.plans);

    let jobs = writer.borrow().spaces()[number].target_jobs(&plans);
    let count = jobs.len();
    let work = Arc::new(TargetWork {
        space,
        jobs,
        next: AtomicUsize::new(0),
        plans: (0..count).map(|_| OnceLock::new()).collect(),
    });
    let shared = work.clone();
    on_cores(collections, workers, move |env| plan_targets(env, shared.clone())).await;
    let targets = collect(work, |work| &mut work.plans);
    writer.borrow_mut().spaces_mut()[number].begin_commit(plans, targets);
    let mut slice = Slice::begin(collections.env());
    while !writer.borrow_mut().commit_step(number, LISTS_PER_STEP) {
        slice.check().await;
    }
    nodes
}

/// Points in the tail of a writer just opened, 0 when they are no more than usual.
pub fn replayed(writer: &DenseWriter) -> usize {
    Some(writer.tail_len()).filter(|&points| points > TAIL_REPLAYED).unwrap_or(0)
}

/// Tells when what a start has replayed is indexed; that it is being indexed was told when it was opened.
struct Replayed {
    env: Rc<dyn Env>,
    name: String,
    points: usize,
    left: usize,
    from_ns: u64,
}

impl Replayed {
    fn new(env: &Rc<dyn Env>, owned: &Owned) -> Replayed {
        let points = replayed(&owned.writer.borrow());
        Replayed {
            env: env.clone(),
            name: owned.handle.name.clone(),
            points,
            left: points,
            from_ns: env.now_ns(),
        }
    }

    /// The oldest are indexed first.
    fn moved(&mut self, points: usize) {
        if self.left > 0 {
            self.left = self.left.saturating_sub(points);
            if self.left == 0 {
                let took_ms = (self.env.now_ns() - self.from_ns) / 1_000_000;
                tracing::info!(
                    collection = self.name,
                    points = self.points,
                    took_ms,
                    "points from the log are indexed"
                );
            }
        }
    }
}

/// The indexing task of one collection; ends when the collection is dropped.
pub async fn run(collections: Rc<Collections>, owned: Rc<Owned>) {
    let env = collections.env().clone();
    let mut replayed = Replayed::new(&env, &owned);
    // The sequence number at which the collection came to rest.
    let mut rested_at = None;
    while !owned.dropped.get() {
        let waiting = owned.changed.wait();
        let guard = owned.round_lock.lock().await;
        let spaces = owned.writer.borrow().spaces().len();
        let (mut worked, mut moved) = (false, 0);
        for space in 0..spaces {
            let long = owned.writer.borrow().spaces()[space].tail_len() > TAIL_REPLAYED;
            let round_max = if long { ROUND_BULK } else { ROUND_SERVING };
            let of_space = run_round(&collections, &owned.writer, space, round_max, env.cores()).await;
            worked |= of_space.is_some();
            moved = moved.max(of_space.unwrap_or(0));
        }
        owned.tail_room.note_round(moved);
        replayed.moved(moved);
        let mut slice = Slice::begin(&env);
        for space in 0..spaces {
            worked |= train_on(&env, &owned, space);
            worked |= owned.writer.borrow_mut().give_up_step(space);
            for _ in 0..ENCODE_STEPS {
                if !owned.writer.borrow_mut().spaces_mut()[space].encode_step() {
                    break;
                }
                worked = true;
                slice.check().await;
            }
        }
        while owned.writer.borrow().repair_due() && !spares_images(&collections, &owned) {
            let more = owned.writer.borrow_mut().repair_step(REPAIR_NODES_PER_STEP);
            worked |= more;
            slice.check().await;
            // Writers waiting for the tail come before a long repair pass, unless writes have outrun it: then they
            // wait, or dead slots would grow without bound. Whoever waits for the lock may hold others that the whole node waits for.
            let writer = owned.writer.borrow();
            let outrun = writer.repair_owed() > 0;
            let is_awaited = owned.round_lock.is_awaited();
            if !more || (writer.tail_len() > 0 && !outrun) || is_awaited || owned.dropped.get() {
                break;
            }
        }
        owned.writer.borrow_mut().reclaim();
        // Slots with long texts are freed once these are taken out.
        settle_texts(&env, &owned.writer).await;
        while owned.writer.borrow().reclaim_due() {
            owned.writer.borrow_mut().reclaim();
            slice.check().await;
            settle_texts(&env, &owned.writer).await;
        }
        drop(guard);
        if owned.writer.borrow().has_codes_to_free() {
            owned.quantize.notify();
        }
        if worked {
            env.breathe().await;
            continue;
        }
        // Nothing else may wake this task: what is written once is given back all the same, and nobody tells when repairs may go on.
        let is_held_back = owned.writer.borrow().repair_due() && spares_images(&collections, &owned);
        let (waits, seq) = (is_held_back || owned.writer.borrow().has_waiting(), owned.writer.borrow().seq());
        let rests = rested_at != Some(seq) && owned.writer.borrow().follows_points();
        let pause = if waits { Some(WAITING_US) } else { rests.then_some(REST_US) };
        let Some(pause_us) = pause else {
            waiting.await;
            continue;
        };
        let woken = async {
            waiting.await;
            true
        };
        let slept = async {
            env.sleep_us(pause_us).await;
            false
        };
        if !or(woken, slept).await && !waits && owned.writer.borrow().seq() == seq {
            rested_at = Some(seq);
            if owned.writer.borrow_mut().rest() {
                owned.quantize.notify();
            }
        }
    }
    owned.tail_room.end();
}
