//! Work shared out among threads, as a round of an index is among cores.
use std::sync::atomic::{AtomicUsize, Ordering};

use nigh_engine::collection::DenseWriter;
use nigh_engine::index::{Planner, Scratch};

/// What a thread keeps from one piece of work to the next. Two of them share no cache line, nor a pair of lines that is fetched
/// together.
#[derive(Default)]
#[repr(align(128))]
pub struct Worker {
    /// Plans of nodes.
    pub planner: Planner,
    /// Plans of their targets, and searches.
    pub scratch: Scratch,
}

/// As many workers as threads.
pub fn workers(threads: usize) -> Vec<Worker> {
    (0..threads.max(1)).map(|_| Worker::default()).collect()
}

/// Moves the tail of a collection into its graph, in rounds of at most `round` points.
///
/// # Panics
/// As [`in_parallel`].
pub fn index_tail(writer: &mut DenseWriter, workers: &mut [Worker], round: usize) {
    let dense = writer.shared().clone();
    while let Some(round) = writer.begin_round(0, round) {
        let plans = in_parallel(workers, round.slots.len(), |worker, index| {
            dense.space().plan_start(&mut worker.planner, &round, index);
            dense
                .space()
                .plan_step(&mut worker.planner, &round, usize::MAX)
                .expect("an unbounded step finishes the plan")
        });
        let jobs = writer.space().target_jobs(&plans);
        let targets = in_parallel(workers, jobs.len(), |worker, index| {
            dense.space().plan_target(&jobs[index], &mut worker.scratch)
        });
        writer.commit_round(0, plans, targets);
    }
}

/// `work` of 0..count in index order, each item on whichever worker is free; the first runs on this thread.
///
/// # Panics
/// Without workers, or when `work` does.
pub fn in_parallel<W: Send, T: Send>(
    workers: &mut [W],
    count: usize,
    work: impl Fn(&mut W, usize) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let run = |worker: &mut W| {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return done;
            }
            done.push((index, work(worker, index)));
        }
    };
    let (first, others) = workers.split_first_mut().expect("at least one thread");
    let mut done = std::thread::scope(|scope| {
        let others: Vec<_> = others.iter_mut().map(|worker| scope.spawn(|| run(worker))).collect();
        let mut done = run(first);
        for other in others {
            done.extend(other.join().expect("a planning thread panicked"));
        }
        done
    });
    done.sort_unstable_by_key(|item| item.0);
    done.into_iter().map(|item| item.1).collect()
}
