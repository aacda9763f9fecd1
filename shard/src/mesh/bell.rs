//! The bell: a flag and an eventfd, one per consuming core. The protocol and its argument are in the room's chapter.

use super::sync::{AtomicU32, Ordering, fence};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Whether the consumer sleeps, or is about to. Apart from the descriptor, so that the models can use it.
///
/// All changes are exchanges. Stores would do, and cost the same instruction on x86; but a producer's exchange that finds
/// the flag down and the consumer's next raise are ordered only because nothing comes between an exchange and the value it
/// found, a rule that loom does not apply to plain stores.
///
/// Alone on its cache lines: producers read it after every batch.
#[repr(align(128))]
pub(super) struct SleepFlag(AtomicU32);

impl SleepFlag {
    pub(super) fn new() -> Self {
        SleepFlag(AtomicU32::new(0))
    }

    /// Consumer: up, and the fence that orders it before the check of the rings.
    pub(super) fn raise(&self) {
        self.0.swap(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Consumer: down.
    pub(super) fn lower(&self) {
        // A producer that took the flag before us writes the descriptor; that wake-up is spurious and harmless.
        self.0.swap(0, Ordering::SeqCst);
    }

    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    /// Producer, after its pushes: true when the flag was up and this call took it down, which obliges to wake.
    pub(super) fn take(&self) -> bool {
        fence(Ordering::SeqCst);
        // The load first: while the consumer is awake, its flag stays shared between the producers' caches.
        self.0.load(Ordering::Relaxed) != 0 && self.0.swap(0, Ordering::SeqCst) != 0
    }
}

/// Wakes one consuming core. Shared by its producers; `arm` and `disarm` are the consumer's.
pub struct Bell {
    sleeping: SleepFlag,
    eventfd: OwnedFd,
}

impl Bell {
    /// A fresh bell with a non-blocking eventfd (closed on exec).
    ///
    /// # Errors
    ///
    /// The kernel's, typically that the process has too many descriptors open.
    pub fn new() -> io::Result<Bell> {
        let eventfd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Bell { sleeping: SleepFlag::new(), eventfd })
    }

    /// Consumer: declares that it is about to sleep. The caller re-checks its rings afterwards, and sleeps only if all
    /// are empty.
    pub fn arm(&self) {
        self.sleeping.raise();
    }

    /// Consumer: awake again.
    pub fn disarm(&self) {
        self.sleeping.lower();
    }

    /// Whether the consumer has declared that it sleeps and no producer has rung since.
    pub fn is_armed(&self) -> bool {
        self.sleeping.is_raised()
    }

    /// Producer, after all pushes of a batch: wakes the consumer if it sleeps; at most one write per sleep. A fence and
    /// a load when it is awake.
    pub fn ring(&self) {
        if self.sleeping.take() {
            self.write();
        }
    }

    /// Shutdown: writes regardless.
    pub fn ring_always(&self) {
        self.write();
    }

    fn write(&self) {
        let written = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
        // An eventfd takes 8 bytes whole; it refuses only when 2^64 - 2 wake-ups are unread.
        debug_assert_eq!(written, Ok(8), "ringing the bell");
    }
}

impl AsFd for Bell {
    /// For epoll, edge-triggered. Never read it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}
