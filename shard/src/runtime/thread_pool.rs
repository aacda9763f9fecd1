//! Threads for what a core must not do itself: calls that block (metadata of the file system, mostly), and computations that cannot
//! be cut into slices. Each sort has its own: a rename does not wait behind a body of 32 MiB.
//!
//! The executor has such a pool of its own, but its answers come as a wake from another thread, one of the two triggers of
//! the parking bug. Ours come through the core's inbox and bell.

use crate::system::give_way;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Threads per pool. Two, so that a long directory sync does not hold up a rename.
const THREADS: usize = 2;
/// Jobs that may wait; more and the caller is asked to come back.
const JOBS_MAX: usize = 1024;

/// Work for the pool.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// See the module.
pub(super) struct ThreadPool {
    jobs: Mutex<Option<SyncSender<Job>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl ThreadPool {
    /// Starts the threads of calls that block.
    pub(super) fn start() -> std::io::Result<ThreadPool> {
        Self::start_as("nigh-blocking", || {})
    }

    /// Starts the threads of computations, which give way to cores.
    pub(super) fn start_computing() -> std::io::Result<ThreadPool> {
        Self::start_as("nigh-computing", give_way)
    }

    fn start_as(name: &str, begin: fn()) -> std::io::Result<ThreadPool> {
        let (sender, receiver) = sync_channel::<Job>(JOBS_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        let pool = ThreadPool { jobs: Mutex::new(Some(sender)), threads: Mutex::default() };
        for number in 0..THREADS {
            let receiver = receiver.clone();
            let thread = std::thread::Builder::new().name(format!("{name}-{number}")).spawn(move || {
                begin();
                work(&receiver);
            })?;
            pool.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(pool)
    }

    /// Queues a job; gives it back when too many wait.
    pub(super) fn submit(&self, job: Job) -> Result<(), Job> {
        match &*self.jobs.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(jobs) => jobs.try_send(job).map_err(|error| match error {
                TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
            }),
            None => Err(job),
        }
    }

    /// Finishes what is queued and ends the threads.
    pub(super) fn stop(&self) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // Jobs catch their own panics, so the thread cannot have failed.
            let _ = thread.join();
        }
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.stop();
    }
}
