//! How other threads reach a core: an inbox and the core's bell.
//!
//! Cores talk through rings; everything else (blocking pools, a signal thread, wakers that strayed to another thread) comes
//! in here. It is a mutex because it is rare; the flag beside it keeps the lock off the core loop's path.

use super::Message;
use super::health::CoreCell;
use super::task::TaskWaker;
use crate::mesh::Bell;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Messages from foreign threads that may wait per core. Wakes come on top (at most one per task), and so do answers of
/// the blocking pool (at most its queue and threads).
const INBOX_MESSAGES_MAX: usize = 4096;

/// The part of a core that other threads may touch.
pub(super) struct CoreShared {
    pub cell: CoreCell,
    pub bell: Bell,
    /// Something may lie in the inbox. SeqCst, as it takes part in the bell's arm-then-look-again protocol.
    pending: AtomicBool,
    inbox: Mutex<Inbox>,
}

#[derive(Default)]
struct Inbox {
    closed: bool,
    messages: Vec<Message>,
    wakes: Vec<Arc<TaskWaker>>,
}

/// One thing for a core to do.
pub(super) enum Foreign {
    Wake(Arc<TaskWaker>),
    /// An answer somebody waits for: never refused while the core lives.
    Answer(Message),
    Run(Message),
}

impl CoreShared {
    pub(super) fn new() -> std::io::Result<CoreShared> {
        Ok(CoreShared {
            cell: CoreCell::new(),
            bell: Bell::new()?,
            pending: AtomicBool::new(false),
            inbox: Mutex::default(),
        })
    }

    /// From any thread. False when the core has ended or its inbox is full; the item is dropped then.
    pub(super) fn post(&self, item: Foreign) -> bool {
        {
            let mut inbox = self.lock();
            if inbox.closed {
                return false;
            }
            match item {
                Foreign::Wake(waker) => inbox.wakes.push(waker),
                Foreign::Answer(message) => inbox.messages.push(message),
                Foreign::Run(message) if inbox.messages.len() < INBOX_MESSAGES_MAX => {
                    inbox.messages.push(message);
                }
                Foreign::Run(_) => return false,
            }
        }
        self.pending.store(true, SeqCst);
        self.bell.ring();
        true
    }

    /// Core loop: whether [`Self::take`] may find something.
    pub(super) fn has_post(&self) -> bool {
        self.pending.load(SeqCst)
    }

    /// Core loop: everything that waits.
    pub(super) fn take(&self) -> (Vec<Message>, Vec<Arc<TaskWaker>>) {
        self.pending.store(false, SeqCst);
        let mut inbox = self.lock();
        (std::mem::take(&mut inbox.messages), std::mem::take(&mut inbox.wakes))
    }

    /// The core has ended: what waits is dropped and nothing is accepted any more.
    pub(super) fn close(&self) {
        let rest = {
            let mut inbox = self.lock();
            inbox.closed = true;
            (std::mem::take(&mut inbox.messages), std::mem::take(&mut inbox.wakes))
        };
        drop(rest);
    }

    /// A panic while the lock is held cannot leave the two lists half changed, so poison is ignored.
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
