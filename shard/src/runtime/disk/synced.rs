//! Writes that are durable when they complete, for the log: a write and an `fdatasync` linked to it, in a ring of the core's own.
//!
//! Through the executor's rings they are two operations, each of which the executor hands over and notices only when its run queue is
//! empty, and while one is under way the core loop has to look there all the time: some 17 system calls per flush, measured. Here it is
//! one, and the reactor announces the end. (`RWF_DSYNC` would be a single operation. It was as fast as this on one machine and fifty
//! times slower on another, and file systems in user space may overlook it.)
//!
//! # Beside others
//!
//! A sync is carried out by a thread of the kernel, so a flush wakes that thread and then this one. On a machine whose CPUs are all taken each
//! waits for a slice of its CPU, unless they are on the same one: with eight busy threads per CPU, a thread that has another write and sync for
//! it takes 0.16 ms (median) and 3.6 (p99) where both are on one CPU, and 32 and 140 where they are on two. So the kernel's threads of a pinned
//! core are kept on its CPU.
//!
//! # Pairs that come apart
//!
//! Both operations are queued together or not at all, and the kernel takes both with one call. Only where it has no memory for the second does
//! it take the first alone: the link is broken then, the sync may come before the write, and a write that succeeds says nothing of
//! its end. Such a write is *torn*. What its sync says is not believed, its buffer is never used again, as the kernel may still read from it, and
//! both steps are done in the other way. From then on all are: a machine that is so short of memory has other worries than system calls.

use super::{Backing, CoreRuntime};
use crate::reactor::Source;
use crate::ring::{Ring, Running};
use io_uring::opcode;
use io_uring::squeue::Flags;
use io_uring::types::{Fd, FsyncFlags};
use memmap2::MmapMut;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Longest write taken here: longer ones are about the device's rate, not about round trips. Copying it takes 0.1 ms.
pub(super) const BYTES_MAX: usize = 1 << 20;
/// Operations that are handed over together; a log has one write under way.
const QUEUE: u32 = 64;
/// Buffers kept for the next.
const SPARES_MAX: usize = 2;
/// How often an operation is handed over again that the kernel had no memory for, and the pause before.
const HAND_OVERS_MAX: u32 = 1000;
const HAND_OVER_US: u64 = 10_000;

/// See the module. Memory that an operation uses belongs to its slot until the operation has completed, whatever becomes of the future.
pub(super) struct SyncedWrites {
    runtime: CoreRuntime,
    ring: Ring,
    /// The ring's announcements.
    ready: Source,
    slots: ManuallyDrop<RefCell<Slots>>,
    spare: RefCell<Vec<MmapMut>>,
    /// A pair has come apart.
    is_given_up: Cell<bool>,
}

#[derive(Default)]
struct Slots {
    slots: Vec<Option<WriteSlot>>,
}

struct WriteSlot {
    buffer: MmapMut,
    /// Keeps the descriptor open.
    file: Rc<Backing>,
    end: Option<End>,
    waker: Option<Waker>,
    /// Nobody waits any more.
    is_abandoned: bool,
    /// The kernel has taken the write without its sync: kept for ever.
    is_torn: bool,
    /// Operations that were queued before it.
    first: u64,
}

/// How it has ended. There is one completion: of the sync, or of a write that was not done whole, and that one says nothing of its sync.
#[derive(Clone, Copy, Debug)]
enum End {
    /// A count, or an error's negative number.
    CutShort(i32),
    /// 0, or an error's negative number.
    Synced(i32),
}

/// Which of the two operations of a slot: the lowest bit of a token.
const WRITE: u64 = 0;
const SYNC: u64 = 1;

fn token(slot: usize, operation: u64) -> u64 {
    (slot as u64) << 1 | operation
}

impl SyncedWrites {
    /// For the calling thread, which runs this core.
    ///
    /// # Errors
    /// io_uring is refused, the kernel is older than 6.1, or no descriptors are left.
    pub(super) fn new(runtime: &CoreRuntime) -> io::Result<SyncedWrites> {
        let ring = Ring::new(QUEUE, 4 * QUEUE, Running::WithAnySystemCall)?;
        if let Err(error) = ring.keep_workers_here() {
            tracing::debug!(%error, "syncs are carried out on any CPU");
        }
        let ready = runtime.reactor().register(ring.descriptor()?)?;
        Ok(SyncedWrites {
            runtime: runtime.clone(),
            ring,
            ready,
            slots: ManuallyDrop::default(),
            spare: RefCell::default(),
            is_given_up: Cell::new(false),
        })
    }

    /// Writes `bytes` (aligned as the file demands, at most [`BYTES_MAX`]) at `offset` and syncs them: they, and what is needed to read
    /// them, are on the device when this returns `Ok(true)`. `Ok(false)`: they may be there in part; both steps are to be done in another
    /// way, which sees what is the matter.
    ///
    /// # Errors
    /// Those of the write and of the sync.
    pub(super) async fn write(&self, file: &Rc<Backing>, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let Some(slot) = self.begin(file, offset, bytes)? else { return Ok(false) };
        let end = Completion { writes: self, slot: Some(slot) };
        let mut again = 0;
        while self.ring.has_queued() && !self.is_torn(slot) {
            if again == HAND_OVERS_MAX {
                return Err(io::Error::from_raw_os_error(libc::EAGAIN));
            }
            again += 1;
            self.runtime.sleep_us(HAND_OVER_US).await;
            self.hand_over()?;
        }
        if self.is_torn(slot) {
            return Ok(false);
        }
        match end.await? {
            End::Synced(0) => Ok(true),
            End::Synced(error) => Err(io::Error::from_raw_os_error(-error)),
            // The sync was cancelled with it.
            End::CutShort(0..) => Ok(false),
            End::CutShort(error) if matches!(-error, libc::EAGAIN | libc::EINTR) => Ok(false),
            End::CutShort(error) => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    /// Hands what is queued to the kernel, and looks whether it has taken pairs whole.
    fn hand_over(&self) -> io::Result<()> {
        let entered = self.ring.enter();
        let (_, taken) = self.ring.progress();
        // Nothing but pairs is queued: after an odd number the last write was taken without its sync.
        if taken % 2 == 1 {
            let mut slots = self.slots.borrow_mut();
            let apart =
                slots.slots.iter_mut().flatten().find(|slot| slot.first + 1 == taken && !slot.is_torn);
            if let Some(slot) = apart {
                slot.is_torn = true;
                self.is_given_up.set(true);
                tracing::warn!(
                    "the kernel has taken a write without its sync; durable writes take two steps from now on"
                );
            }
        }
        entered
    }

    fn is_torn(&self, slot: usize) -> bool {
        self.slots.borrow().slots[slot].as_ref().is_some_and(|slot| slot.is_torn)
    }

    /// Hands both operations to the kernel; their slot, or `None` when too many are queued, or a pair has come apart.
    fn begin(&self, file: &Rc<Backing>, offset: u64, bytes: &[u8]) -> io::Result<Option<usize>> {
        if self.is_given_up.get() {
            return Ok(None);
        }
        let spare = self.spare.borrow_mut().pop();
        let mut buffer = match spare {
            Some(buffer) => buffer,
            // Page-aligned, and only what is used is ever touched.
            None => MmapMut::map_anon(BYTES_MAX)?,
        };
        buffer[..bytes.len()].copy_from_slice(bytes);
        let (start, fd) = (buffer.as_ptr(), Fd(file.descriptor()));
        let slot = self.slots.borrow_mut().put(WriteSlot {
            buffer,
            file: file.clone(),
            end: None,
            waker: None,
            is_abandoned: false,
            is_torn: false,
            first: self.ring.progress().0,
        });
        let write = opcode::Write::new(fd, start, bytes.len() as u32).offset(offset).build();
        // A write that is cut short breaks the link as one that fails does, and then its completion is the only one.
        let write = write.flags(Flags::IO_LINK | Flags::SKIP_SUCCESS).user_data(token(slot, WRITE));
        let sync = opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build().user_data(token(slot, SYNC));
        // SAFETY: the mapping does not move with its owner, and descriptor and mapping stay in the slot until the completion is taken, which
        // comes when neither operation is under way any more; dropping all with operations under way leaks them.
        if !unsafe { self.ring.try_push(&[write, sync]) } {
            self.slots.borrow_mut().slots[slot] = None;
            return Ok(None);
        }
        self.hand_over()?;
        Ok(Some(slot))
    }

    /// Takes what has completed, and wakes those who wait for it.
    fn reap(&self) -> io::Result<()> {
        loop {
            while let Some(entry) = self.ring.next() {
                let completed = self.slots.borrow_mut().complete(entry.user_data(), entry.result());
                match completed {
                    Completed::Abandoned(slot) => self.free(slot),
                    Completed::Awaited(Some(waker)) => waker.wake(),
                    Completed::Awaited(None) => {}
                }
            }
            if !self.ring.has_overflow() {
                return Ok(());
            }
            self.hand_over()?;
        }
    }

    fn free(&self, slot: WriteSlot) {
        let WriteSlot { buffer, file, .. } = slot;
        {
            let mut spare = self.spare.borrow_mut();
            if spare.len() < SPARES_MAX {
                spare.push(buffer);
            }
        }
        if Rc::strong_count(&file) == 1 {
            // The executor queues the close when the file drops; the ring has to be given it.
            let _operation = self.runtime.inner.use_executor(true);
            drop(file);
        }
    }

    /// The one that the ring's announcements wake goes: another one looks from here on.
    fn pass_on(&self) {
        let next = self.slots.borrow().next_waker();
        if let Some(next) = next {
            next.wake();
        }
    }
}

/// What a completion leaves to do.
enum Completed {
    Abandoned(WriteSlot),
    Awaited(Option<Waker>),
}

impl Slots {
    fn put(&mut self, slot: WriteSlot) -> usize {
        let free = self.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[free] = Some(slot);
        free
    }

    fn complete(&mut self, token: u64, result: i32) -> Completed {
        let index = (token >> 1) as usize;
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else {
            tracing::error!(token, result, "a completion of a write that has ended before");
            return Completed::Awaited(None);
        };
        if slot.is_torn {
            // Of a sync that may have come first, or of a write whose sync nobody waits for. Woken, so that a waiter sees that it is torn.
            slot.end = Some(End::CutShort(0));
            return Completed::Awaited(slot.waker.take());
        }
        if slot.is_abandoned {
            return Completed::Abandoned(self.slots[index].take().expect("just seen"));
        }
        slot.end = Some(if token & 1 == SYNC { End::Synced(result) } else { End::CutShort(result) });
        Completed::Awaited(slot.waker.take())
    }

    /// Of one that still waits.
    fn next_waker(&self) -> Option<Waker> {
        let is_waiting = |slot: &&WriteSlot| slot.end.is_none() && !slot.is_abandoned && !slot.is_torn;
        let waiting = self.slots.iter().flatten().filter(is_waiting);
        waiting.filter_map(|slot| slot.waker.clone()).next()
    }
}

impl Drop for SyncedWrites {
    fn drop(&mut self) {
        let is_done = |slot: &WriteSlot| slot.end.is_some() && !slot.is_torn;
        if self.slots.borrow().slots.iter().flatten().all(is_done) {
            // SAFETY: dropped once, here, and not used afterwards; no operation is left that could use the memory.
            unsafe { ManuallyDrop::drop(&mut self.slots) };
        }
        // Otherwise the kernel still reads from it: its memory stays.
    }
}

/// The end of one write.
struct Completion<'a> {
    writes: &'a SyncedWrites,
    slot: Option<usize>,
}

impl Future for Completion<'_> {
    type Output = io::Result<End>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let writes = self.writes;
        let index = self.slot.expect("polled after its end");
        loop {
            {
                let mut slots = writes.slots.borrow_mut();
                let slot = slots.slots[index].as_mut().expect("it is freed here");
                if slot.is_torn {
                    // It stays, whatever its end is.
                    return Poll::Ready(Ok(End::CutShort(0)));
                }
                if let Some(end) = slot.end {
                    let slot = slots.slots[index].take().expect("just seen");
                    drop(slots);
                    self.slot = None;
                    writes.free(slot);
                    writes.pass_on();
                    return Poll::Ready(Ok(end));
                }
                slot.waker = Some(cx.waker().clone());
            }
            // The newest to look is woken by the ring and takes what has completed for all.
            if writes.ready.poll_readable(cx).is_pending() {
                return Poll::Pending;
            }
            // Before the look: what completes from here on is a new edge.
            writes.ready.clear_readable();
            if let Err(error) = writes.reap() {
                return Poll::Ready(Err(error));
            }
        }
    }
}

impl Drop for Completion<'_> {
    fn drop(&mut self) {
        let Some(index) = self.slot else { return };
        let mut slots = self.writes.slots.borrow_mut();
        let slot = slots.slots[index].as_mut().expect("it is freed when taken");
        slot.is_abandoned = true;
        let done = if slot.end.is_some() && !slot.is_torn { slots.slots[index].take() } else { None };
        drop(slots);
        if let Some(slot) = done {
            self.writes.free(slot);
        }
        self.writes.pass_on();
    }
}

#[cfg(test)]
impl SyncedWrites {
    /// The kernel takes so many of the operations that are handed to it next.
    pub(super) fn take_at_most(&self, operations: u32) {
        self.ring.takes.set(Some(operations));
    }

    /// Whether a pair has come apart.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.get()
    }
}
