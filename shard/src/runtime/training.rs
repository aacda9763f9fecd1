//! Computations of seconds and minutes that serve no request: the training of an index.
//!
//! Not in the pools of `thread_pool`: bodies wait for those, and whoever stops the runtime waits for their jobs. Here a job has a thread
//! of its own, which ends with it or with the process. Long ones run one after the other; short ones, which are the rest of a long one,
//! do not wait behind the trainings of others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Between two looks whether a job is done, microseconds.
pub(super) const LOOK_US: u64 = 10_000;

/// How long a job takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Tenths of a second.
    Short,
    /// Seconds and minutes: one at a time.
    Long,
}

/// Held by the long job that runs, whatever the number of cores that ask.
static RUNNING: Mutex<()> = Mutex::new(());

/// A job that was started.
pub(super) struct Training(Arc<AtomicBool>);

impl Training {
    /// Whether it has run, or will not.
    pub(super) fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Sets the flag however the job ends.
struct Done(Arc<AtomicBool>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Starts a thread for `job`. One that cannot be started counts as done.
pub(super) fn start(length: Length, job: Box<dyn FnOnce() + Send>) -> Training {
    let flag = Arc::new(AtomicBool::new(false));
    let done = Done(flag.clone());
    let started = std::thread::Builder::new().name("nigh-training".into()).spawn(move || {
        let _done = done;
        crate::system::give_way();
        let _alone = (length == Length::Long).then(|| RUNNING.lock().unwrap_or_else(PoisonError::into_inner));
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("a computation apart from the cores failed");
        }
    });
    if let Err(error) = started {
        tracing::error!(%error, "a thread for a computation could not be started");
    }
    Training(flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(job: &Training) {
        while !job.is_done() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn jobs_run_and_a_panic_ends_one() {
        let ran = Arc::new(AtomicBool::new(false));
        let flag = ran.clone();
        wait(&start(Length::Long, Box::new(|| panic!("on purpose"))));
        wait(&start(Length::Long, Box::new(move || flag.store(true, Ordering::Release))));
        assert!(ran.load(Ordering::Acquire));
    }

    #[test]
    fn a_short_job_does_not_wait_for_a_long_one() {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let long = start(Length::Long, Box::new(move || held.recv().expect("released")));
        wait(&start(Length::Short, Box::new(|| ())));
        assert!(!long.is_done());
        release.send(()).expect("it waits");
        wait(&long);
    }
}
