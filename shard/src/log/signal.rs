//! Wakes everybody who waits for "something changed", on one core.
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A change counter with waiters. Look at the state, then `changed().await`: what changes in between is not missed,
/// because nothing else runs on this core before the first poll has noted the counter in [`Signal::changed`].
#[derive(Default)]
pub(super) struct Signal {
    changes: Cell<u64>,
    waiters: RefCell<Vec<Waker>>,
}

impl Signal {
    /// Something changed.
    pub(super) fn notify(&self) {
        self.changes.set(self.changes.get() + 1);
        let waiters = self.waiters.take();
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Resolves at the next `notify` after this call.
    pub(super) fn changed(&self) -> Changed<'_> {
        Changed { signal: self, seen: self.changes.get() }
    }
}

/// See [`Signal::changed`].
pub(super) struct Changed<'a> {
    signal: &'a Signal,
    seen: u64,
}

impl Future for Changed<'_> {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.signal.changes.get() != self.seen {
            return Poll::Ready(());
        }
        let mut waiters = self.signal.waiters.borrow_mut();
        if !waiters.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiters.push(cx.waker().clone());
        }
        Poll::Pending
    }
}
