//! Threads for calls that block: metadata of the file system, mostly.
//!
//! The executor has such a pool of its own, but its answers come as a wake from another thread, one of the two triggers of
//! the parking bug. Ours come through the core's inbox and bell.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Threads per process. Two, so that a long directory sync does not hold up a rename.
const THREADS: usize = 2;
/// Jobs that may wait; more and the caller is asked to come back.
const JOBS_MAX: usize = 1024;

/// Work for the pool.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// See the module.
pub(super) struct BlockingPool {
    jobs: Mutex<Option<SyncSender<Job>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl BlockingPool {
    /// Starts the threads.
    pub(super) fn start() -> std::io::Result<BlockingPool> {
        let (sender, receiver) = sync_channel::<Job>(JOBS_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        let pool = BlockingPool { jobs: Mutex::new(Some(sender)), threads: Mutex::default() };
        for number in 0..THREADS {
            let receiver = receiver.clone();
            let thread = std::thread::Builder::new()
                .name(format!("nigh-blocking-{number}"))
                .spawn(move || work(&receiver))?;
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

impl Drop for BlockingPool {
    fn drop(&mut self) {
        self.stop();
    }
}
