//! Writes that are durable when they complete, for the log: one operation of a ring of the core's own.
//!
//! Through the executor's rings a write and a sync are two operations, each of which the executor hands over and notices only when its
//! run queue is empty, and while one is under way the core loop has to look there all the time: some 17 system calls per flush, measured.
//! Here it is one, and the reactor announces its end.

use super::Backing;
use crate::reactor::{Reactor, Source};
use crate::ring::Ring;
use io_uring::opcode;
use io_uring::types::Fd;
use memmap2::MmapMut;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Longest write taken here: longer ones are about the device's rate, not about round trips.
pub(super) const BYTES_MAX: usize = 1 << 20;
/// Operations between two completions; a log has one under way.
const QUEUE: u32 = 64;
/// Buffers kept for the next.
const SPARES_MAX: usize = 2;

/// See the module. Memory that an operation uses belongs to its slot until the operation has completed, whatever becomes of the future.
pub(super) struct SyncedWrites {
    ring: Ring,
    /// The ring's announcements.
    ready: Source,
    slots: ManuallyDrop<RefCell<Slots>>,
    spare: RefCell<Vec<MmapMut>>,
    /// The file system takes no such writes.
    refused: Cell<bool>,
}

#[derive(Default)]
struct Slots {
    slots: Vec<Option<Slot>>,
    under_way: usize,
}

struct Slot {
    buffer: MmapMut,
    /// Keeps the descriptor open.
    _file: Rc<Backing>,
    /// What the operation has come to: a count, or an error's negative number.
    result: Option<i32>,
    waker: Option<Waker>,
    /// Nobody waits any more.
    is_abandoned: bool,
}

impl SyncedWrites {
    /// For the calling thread, whose reactor this is.
    ///
    /// # Errors
    /// io_uring is refused, the kernel is older than 6.1, or no descriptors are left.
    pub(super) fn new(reactor: &Rc<Reactor>) -> io::Result<SyncedWrites> {
        let ring = Ring::new(QUEUE, 2 * QUEUE)?;
        let ready = reactor.register(ring.descriptor()?)?;
        Ok(SyncedWrites {
            ring,
            ready,
            slots: ManuallyDrop::default(),
            spare: RefCell::default(),
            refused: Cell::new(false),
        })
    }

    /// Whether a write of so many bytes is taken.
    pub(super) fn takes(&self, bytes: usize) -> bool {
        bytes <= BYTES_MAX && !self.refused.get()
    }

    /// Writes `bytes` (aligned as the file demands) at `offset`, durably: they, and what is needed to read them, are on the device when
    /// this returns `Ok(true)`. `Ok(false)`: the file system takes no such writes.
    pub(super) async fn write(&self, file: &Rc<Backing>, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        loop {
            let slot = self.begin(file, offset, bytes)?;
            match (Completion { writes: self, slot: Some(slot) }).await? {
                // The rest of a torn write would be another one; all of it again is simpler, and as rare.
                written if written == bytes.len() as i32 => return Ok(true),
                0 => return Err(io::ErrorKind::WriteZero.into()),
                1.. => {}
                error => match -error {
                    libc::EAGAIN | libc::EINTR => {}
                    libc::EOPNOTSUPP | libc::EINVAL => {
                        self.refused.set(true);
                        return Ok(false);
                    }
                    error => return Err(io::Error::from_raw_os_error(error)),
                },
            }
        }
    }

    /// Hands the operation to the kernel; its slot.
    fn begin(&self, file: &Rc<Backing>, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let spare = self.spare.borrow_mut().pop();
        let mut buffer = match spare {
            Some(buffer) => buffer,
            // Page-aligned, and only what is used is ever touched.
            None => MmapMut::map_anon(BYTES_MAX)?,
        };
        buffer[..bytes.len()].copy_from_slice(bytes);
        let (start, fd) = (buffer.as_ptr(), file.descriptor());
        let slot = self.slots.borrow_mut().put(Slot {
            buffer,
            _file: file.clone(),
            result: None,
            waker: None,
            is_abandoned: false,
        });
        let write = opcode::Write::new(Fd(fd), start, bytes.len() as u32)
            .offset(offset)
            .rw_flags(libc::RWF_DSYNC)
            .build()
            .user_data(slot as u64);
        // SAFETY: the mapping does not move with its owner, and descriptor and mapping stay in the slot until the completion is taken;
        // dropping all with operations under way leaks them.
        unsafe { self.ring.push(&write) };
        self.ring.enter()?;
        Ok(slot)
    }

    /// Takes what has completed, and wakes those who wait for it.
    fn reap(&self) -> io::Result<()> {
        self.ring.enter()?;
        while let Some(entry) = self.ring.next() {
            let waker = self.slots.borrow_mut().complete(entry.user_data() as usize, entry.result());
            match waker {
                Completed::Abandoned(buffer) => self.keep(buffer),
                Completed::Awaited(Some(waker)) => waker.wake(),
                Completed::Awaited(None) => {}
            }
        }
        Ok(())
    }

    fn keep(&self, buffer: MmapMut) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARES_MAX {
            spare.push(buffer);
        }
    }
}

/// What a completion leaves to do.
enum Completed {
    Abandoned(MmapMut),
    Awaited(Option<Waker>),
}

impl Slots {
    fn put(&mut self, slot: Slot) -> usize {
        self.under_way += 1;
        let free = self.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[free] = Some(slot);
        free
    }

    fn complete(&mut self, index: usize, result: i32) -> Completed {
        self.under_way -= 1;
        let slot = self.slots[index].as_mut().expect("a slot stays until its operation has completed");
        if slot.is_abandoned {
            let slot = self.slots[index].take().expect("just seen");
            return Completed::Abandoned(slot.buffer);
        }
        slot.result = Some(result);
        Completed::Awaited(slot.waker.take())
    }
}

impl Drop for SyncedWrites {
    fn drop(&mut self) {
        if self.slots.borrow().under_way == 0 {
            // SAFETY: dropped once, here, and not used afterwards; no operation is left that could use the memory.
            unsafe { ManuallyDrop::drop(&mut self.slots) };
        }
        // Otherwise the kernel still reads from it: its memory stays.
    }
}

/// The end of one write: a count, or an error's negative number.
struct Completion<'a> {
    writes: &'a SyncedWrites,
    slot: Option<usize>,
}

impl Future for Completion<'_> {
    type Output = io::Result<i32>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let writes = self.writes;
        let index = self.slot.expect("polled after its end");
        loop {
            {
                let mut slots = writes.slots.borrow_mut();
                let slot = slots.slots[index].as_mut().expect("it is freed here");
                if let Some(result) = slot.result {
                    let slot = slots.slots[index].take().expect("just seen");
                    drop(slots);
                    self.slot = None;
                    writes.keep(slot.buffer);
                    return Poll::Ready(Ok(result));
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
        if slot.result.is_some() {
            slots.slots[index] = None;
        } else {
            slot.is_abandoned = true;
        }
        // It may have been the one that the ring wakes: another one looks from here on.
        let next =
            slots.slots.iter().flatten().find(|slot| !slot.is_abandoned).and_then(|slot| slot.waker.clone());
        drop(slots);
        if let Some(next) = next {
            next.wake();
        }
    }
}
