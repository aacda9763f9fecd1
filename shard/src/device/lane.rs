//! The thread of the devices and its queue.
use super::devices::Devices;
use super::mirror::Mirror;
use super::waiting::{Outcome, Search};
use crate::account::Account;
use crate::answer::{Answer, answer};
use crate::catalog::CollectionHandle;
use crate::error::OpError;
use crate::points::SearchRequest;
use nigh_engine::device::DeviceError;
use nigh_engine::distance::Metric;
use nigh_engine::memory::{Domain, Participant};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Searches that may wait; past them clients are told.
const WAITING_MAX: usize = 4096;
/// Searches that are answered together.
const BATCH_MAX: usize = 64;
/// How long a copy may outlive its collection.
const KEPT: Duration = Duration::from_secs(1);

enum Job {
    Try(usize, Metric, Answer<Result<(), DeviceError>>),
    Search(Search),
}

/// See the room. One per node; its thread ends with it.
pub(crate) struct Lane {
    devices: Devices,
    domain: Arc<Domain>,
    account: Arc<Account>,
    /// The thread's queue once it runs, or why it does not.
    queue: OnceLock<Result<SyncSender<Job>, String>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Lane {
    /// The last seat of `domain` is the lane's.
    pub fn new(devices: Devices, domain: Arc<Domain>, account: Arc<Account>) -> Lane {
        Lane { devices, domain, account, queue: OnceLock::new(), thread: Mutex::default() }
    }

    fn queue(&self) -> Result<&SyncSender<Job>, String> {
        let start = || {
            let (sender, receiver) = sync_channel(WAITING_MAX);
            let seat = self.domain.participant(self.domain.participants() - 1);
            let devices = self.devices.clone();
            let run = move || run(&devices, &seat, &receiver);
            let thread = std::thread::Builder::new().name("nigh-device".into()).spawn(run);
            *self.thread.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(thread.map_err(|error| error.to_string())?);
            Ok(sender)
        };
        self.queue.get_or_init(start).as_ref().map_err(Clone::clone)
    }

    /// Whether a device can be had for such rows: opens one and lets it go. Takes some hundred milliseconds.
    ///
    /// # Errors
    /// What opening it answers.
    pub async fn try_open(&self, dim: usize, metric: Metric) -> Result<(), DeviceError> {
        let (sender, awaited) = answer();
        let queue = self.queue().map_err(DeviceError::Failed)?;
        let busy = |error: TrySendError<Job>| DeviceError::Failed(error.to_string());
        queue.try_send(Job::Try(dim, metric, sender)).map_err(busy)?;
        awaited.await.unwrap_or_else(|| Err(DeviceError::Failed("its thread has ended".into())))
    }

    /// Answers a search on the device of its collection; `None` where the cores have to.
    pub async fn search(
        &self,
        handle: Arc<CollectionHandle>,
        request: SearchRequest,
        now_ms: u64,
    ) -> Outcome {
        let (sender, awaited) = answer();
        let account = self.account.clone();
        let search = Search { handle, request, now_ms, account, answer: sender };
        match self.queue().ok()?.try_send(Job::Search(search)) {
            Ok(()) => awaited.await.flatten(),
            Err(TrySendError::Full(_)) => {
                let text = format!("{WAITING_MAX} searches wait for the device; ask again later");
                Some(Err(OpError::Busy(text)))
            }
            Err(TrySendError::Disconnected(_)) => None,
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // The queue's end ends the thread.
        self.queue.take();
        if let Some(thread) = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // One that panicked has said so, and its searches went to the cores.
            let _ = thread.join();
        }
    }
}

fn run(devices: &Devices, seat: &Participant, jobs: &Receiver<Job>) {
    let mut mirrors: BTreeMap<u64, Mirror> = BTreeMap::new();
    loop {
        // Without copies there is nothing to give back.
        let timeout = if mirrors.is_empty() { Duration::MAX } else { KEPT };
        let first = match jobs.recv_timeout(timeout) {
            Ok(job) => Some(job),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        mirrors.retain(|_, mirror| mirror.is_wanted());
        let mut searches: BTreeMap<u64, Vec<Search>> = BTreeMap::new();
        for job in first.into_iter().chain(jobs.try_iter()).take(BATCH_MAX) {
            match job {
                Job::Try(dim, metric, answer) => answer.give(devices.open(dim, metric).map(|_| ())),
                Job::Search(search) if search.answer.is_abandoned() => {}
                Job::Search(search) => searches.entry(search.handle.uid).or_default().push(search),
            }
        }
        for (uid, searches) in searches {
            let mirror = mirrors.entry(uid).or_insert_with(|| Mirror::of(&searches[0].handle));
            mirror.answer(devices, seat, searches);
        }
    }
}
