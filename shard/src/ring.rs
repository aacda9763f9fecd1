//! An io_uring of a core's own, apart from the executor's: what completes is announced by a descriptor that the reactor watches, so the
//! core loop need not go through the executor for it.

use io_uring::types::CancelBuilder;
use io_uring::{IoUring, cqueue, squeue};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Flag of `io_uring_enter`: run what completions wait for.
const ENTER_GETEVENTS: u32 = 1;

/// When the kernel does what follows the end of an operation: announce it, and begin what is linked to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Running {
    /// In [`Ring::enter`]: many ends in one go. The first is announced before.
    WhenEntered,
    /// In the thread's next system call of any kind, and at once if it waits in one: what is linked goes on without us.
    WithAnySystemCall,
}

/// See the module. Lives on one thread. Needs Linux 6.1.
pub(crate) struct Ring {
    ring: RefCell<IoUring>,
    /// Written by the kernel when something has completed. The ring's own descriptor would do, but that nobody who polls it is told of
    /// completions that have yet to be run.
    event: OwnedFd,
    /// Something was queued since the last [`Self::enter`].
    unsubmitted: Cell<bool>,
    enters: Cell<u64>,
    /// Operations queued so far.
    pushed: Cell<u64>,
    /// So many operations are handed over by the next [`Self::enter`], as if the kernel had memory for no more.
    #[cfg(test)]
    pub(crate) takes: Cell<Option<u32>>,
}

impl Ring {
    /// A ring for the calling thread, which alone may use it: so many operations may be queued before they are handed over, and so many
    /// completions wait without help.
    ///
    /// # Errors
    /// io_uring is refused, or the kernel is older than 6.1.
    pub(crate) fn new(queue: u32, completions: u32, running: Running) -> io::Result<Ring> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(completions).setup_single_issuer();
        match running {
            Running::WhenEntered => builder.setup_defer_taskrun(),
            Running::WithAnySystemCall => builder.setup_coop_taskrun(),
        };
        let ring = builder.build(queue).map_err(|error| match error.raw_os_error() {
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
        Ok(Ring {
            ring: RefCell::new(ring),
            event,
            unsubmitted: Cell::new(false),
            enters: Cell::new(0),
            pushed: Cell::new(0),
            #[cfg(test)]
            takes: Cell::new(None),
        })
    }

    /// Has the kernel's threads that carry out what cannot be begun at once (syncs are among it) run on this thread's CPU, if that is one: all
    /// rings of the thread share them. A sync is then handed over on that CPU. Where others take all CPUs, a thread that is woken on another one
    /// waits there for a slice, and so does this one when it is woken in turn.
    ///
    /// # Errors
    /// The kernel refuses; everything works without.
    pub(crate) fn keep_workers_here(&self) -> io::Result<()> {
        // SAFETY: zero is a valid set, which outlives the calls and is as long as is said.
        let (cpus, count) = unsafe {
            let mut cpus: libc::cpu_set_t = std::mem::zeroed();
            if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut cpus) != 0 {
                return Err(io::Error::last_os_error());
            }
            (cpus, libc::CPU_COUNT(&cpus))
        };
        match count {
            1 => self.ring.borrow().submitter().register_iowq_aff(&cpus),
            _ => Ok(()),
        }
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

    /// Queues operations that are handed over together, if there is room for all.
    ///
    /// # Safety
    /// What the operations point to stays where it is until they have completed, if this returns true.
    pub(crate) unsafe fn try_push(&self, entries: &[squeue::Entry]) -> bool {
        let mut ring = self.ring.borrow_mut();
        // SAFETY: as the caller promises.
        let is_pushed = unsafe { ring.submission().push_multiple(entries) }.is_ok();
        if is_pushed {
            self.unsubmitted.set(true);
            self.pushed.set(self.pushed.get() + entries.len() as u64);
        }
        is_pushed
    }

    /// Queues an operation; true when it is the first since the last [`Self::enter`].
    ///
    /// # Safety
    /// What the operation points to stays where it is until the operation has completed.
    pub(crate) unsafe fn push(&self, entry: &squeue::Entry) -> bool {
        loop {
            let is_first = !self.unsubmitted.get();
            // SAFETY: as the caller promises.
            let is_pushed = unsafe { self.try_push(std::slice::from_ref(entry)) };
            // Full: nobody has to wait for a turn. An error shows at the next one.
            if is_pushed || self.enter().is_err() {
                return is_first;
            }
        }
    }

    /// Whether the kernel has not taken everything that was handed over: it has no memory for more just now.
    pub(crate) fn has_queued(&self) -> bool {
        let mut ring = self.ring.borrow_mut();
        let mut queue = ring.submission();
        queue.sync();
        !queue.is_empty()
    }

    /// Operations queued so far, and how many of them the kernel has taken.
    pub(crate) fn progress(&self) -> (u64, u64) {
        let mut ring = self.ring.borrow_mut();
        let mut queue = ring.submission();
        queue.sync();
        (self.pushed.get(), self.pushed.get() - queue.len() as u64)
    }

    /// Whether completions wait in the kernel that found no room: [`Self::enter`] fetches them.
    pub(crate) fn has_overflow(&self) -> bool {
        self.ring.borrow_mut().submission().cq_overflow()
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
            #[cfg(test)]
            let queued = self.takes.take().map_or(queued, |most| queued.min(most));
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
