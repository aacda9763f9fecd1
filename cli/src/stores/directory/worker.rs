//! The thread that makes the blocking calls of a directory store, and its queue.

use nigh_shard::answer::answer;
use nigh_shard::backup::StoreError;
use nigh_shard::system::give_way;
use std::future::Future;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Jobs that may wait. Each belongs to a caller that waits for it, and a backup has few; past it callers are told to come back.
const JOBS_MAX: usize = 256;

type Job = Box<dyn FnOnce() + Send>;

/// Hands jobs to the thread, which carries them out one after the other. The thread ends with the last clone.
#[derive(Clone)]
pub(super) struct Worker(SyncSender<Job>);

impl Worker {
    /// Starts the thread.
    pub fn start() -> std::io::Result<Worker> {
        let (sender, receiver) = sync_channel::<Job>(JOBS_MAX);
        std::thread::Builder::new().name("nigh-backup-dir".into()).spawn(move || {
            give_way();
            work(&receiver);
        })?;
        Ok(Worker(sender))
    }

    /// Has the thread carry `work` out, which is about the object `key`. It does so also where the caller does not wait for the end.
    pub fn run<T: Send + 'static>(
        &self,
        key: String,
        work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> impl Future<Output = Result<T, StoreError>> + 'static {
        let (sender, awaited) = answer();
        let sent = self.0.try_send(Box::new(move || sender.give(work())));
        async move {
            let failed =
                |why: &str, is_temporary| Err(StoreError::Io { key, why: why.to_owned(), is_temporary });
            match sent {
                Ok(()) => match awaited.await {
                    Some(ended) => ended,
                    None => failed("the thread of the backup directory has ended", false),
                },
                Err(TrySendError::Full(_)) => failed("too many requests wait for the backup directory", true),
                Err(TrySendError::Disconnected(_)) => {
                    failed("the thread of the backup directory has ended", false)
                }
            }
        }
    }

    /// Has the thread carry `work` out when nobody waits for it; not at all where too much waits.
    pub fn leave(&self, work: impl FnOnce() + Send + 'static) {
        let _left_to_the_sweep = self.0.try_send(Box::new(work));
    }
}

fn work(jobs: &Receiver<Job>) {
    for job in jobs {
        job();
    }
}
