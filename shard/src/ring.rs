//! An io_uring of a core's own, apart from the executor's: what completes is announced by a descriptor that the reactor watches, so the
//! core loop need not go through the executor for it.

use io_uring::types::CancelBuilder;
use io_uring::{IoUring, cqueue, squeue};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Flag of `io_uring_enter`: run what completions wait for.
const ENTER_GETEVENTS: u32 = 1;

/// See the module. Lives on one thread. Needs Linux 6.1.
pub(crate) struct Ring {
    ring: RefCell<IoUring>,
    /// Written by the kernel when something has completed. The ring's own descriptor would do, but that nobody who polls it is told of
    /// completions that have yet to be run.
    event: OwnedFd,
    /// Something was queued since the last [`Self::enter`].
    unsubmitted: Cell<bool>,
    enters: Cell<u64>,
}

impl Ring {
    /// A ring for the calling thread, which alone may use it: so many operations may be queued before they are handed over, and so many
    /// completions wait without help.
    ///
    /// # Errors
    /// io_uring is refused, or the kernel is older than 6.1.
    pub(crate) fn new(queue: u32, completions: u32) -> io::Result<Ring> {
        let ring = IoUring::builder()
            .setup_cqsize(completions)
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(queue)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EINVAL) => io::Error::other("rings of a core's own need Linux 6.1 or newer"),
                _ => error,
            })?;
        // SAFETY: no pointers; the result is checked before it is owned.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else's.
        let event = unsafe { OwnedFd::from_raw_fd(event) };
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        Ok(Ring { ring: RefCell::new(ring), event, unsubmitted: Cell::new(false), enters: Cell::new(0) })
    }

    /// A descriptor that is readable (by edges) when something has completed, to be registered with the core's reactor.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.event.try_clone()
    }

    /// For registrations.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&IoUring) -> R) -> R {
        f(&self.ring.borrow())
    }

    /// Whether something waits to be handed over.
    pub(crate) fn has_unsubmitted(&self) -> bool {
        self.unsubmitted.get()
    }

    /// System calls since this was last asked.
    pub(crate) fn take_enters(&self) -> u64 {
        self.enters.take()
    }

    /// Queues an operation; true when it is the first since the last [`Self::enter`].
    ///
    /// # Safety
    /// What the operation points to stays where it is until the operation has completed.
    pub(crate) unsafe fn push(&self, entry: &squeue::Entry) -> bool {
        loop {
            {
                let mut ring = self.ring.borrow_mut();
                // SAFETY: as the caller promises.
                if unsafe { ring.submission().push(entry) }.is_ok() {
                    break;
                }
            }
            // Full: nobody has to wait for a turn. An error shows at the next one.
            if self.enter().is_err() {
                break;
            }
        }
        !self.unsubmitted.replace(true)
    }

    /// Hands over what is queued and runs what completions wait for.
    ///
    /// # Errors
    /// The ring is broken.
    pub(crate) fn enter(&self) -> io::Result<()> {
        self.unsubmitted.set(false);
        let mut ring = self.ring.borrow_mut();
        loop {
            let queued = {
                let mut queue = ring.submission();
                queue.sync();
                queue.len() as u32
            };
            self.enters.set(self.enters.get() + 1);
            // SAFETY: no argument is passed; what queued operations point to stays until they complete, as `push` demands.
            let entered =
                unsafe { ring.submitter().enter::<libc::sigset_t>(queued, 0, ENTER_GETEVENTS, None) };
            match entered {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Completions have to be taken first.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The next completion.
    pub(crate) fn next(&self) -> Option<cqueue::Entry> {
        self.ring.borrow_mut().completion().next()
    }

    /// Cancels all operations and waits for them; afterwards the kernel uses none of their memory.
    ///
    /// # Errors
    /// Some may still be under way.
    pub(crate) fn cancel_all(&self) -> io::Result<()> {
        match self.ring.borrow().submitter().register_sync_cancel(None, CancelBuilder::any()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}
