//! Sockets whose operations complete on their own: one io_uring per core, apart from the executor's.
//!
//! A listener accepts until told otherwise, a connection receives until it is full; what has arrived lies in buffers that the kernel
//! picks from those of the ring. Operations are queued by tasks and handed over once per turn of [`Completions::drive`], which also
//! takes what has completed and wakes who waits for it: one system call for all connections of a turn.
//!
//! # Invariants
//!
//! * Memory that an operation uses belongs to its slot until the operation has completed, whatever becomes of the [`Socket`]: a slot whose
//!   socket was dropped is cancelled, and freed with its last completion. Dropping all waits for that, or leaks.
//! * What arrives is copied out at once and the buffer given back, so no connection holds the buffers of others. A connection that is
//!   not read from stops receiving at 256 KiB.
//!
//! Everything lives on one thread. Needs Linux 6.1.

mod buffers;
mod socket;

pub use socket::{Received, Socket};

use crate::reactor::Source;
use crate::ring::{Ring, Running};
use buffers::{Buffers, GROUP};
use io_uring::cqueue;
use io_uring::types::Fd;
use io_uring::{opcode, squeue};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::mem::ManuallyDrop;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Operations queued between two turns before they are handed over early.
const QUEUE: u32 = 2048;
/// Completions that fit without help: more wait in the kernel.
const COMPLETIONS: u32 = 8192;
/// A connection that has so many bytes waiting receives no more until they are read.
const PENDING_MAX_BYTES: usize = 256 << 10;
/// Room for what arrives and for what is sent that is kept for the next.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// Spare buffers.
const SPARES_MAX: usize = 256;

/// What a completion belongs to, in the upper half of its token; the lower is the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Kind {
    Accept = 0,
    Receive = 1,
    Send = 2,
    Cancel = 3,
}

fn token(kind: Kind, slot: usize) -> u64 {
    (kind as u64) << 32 | slot as u64
}

/// See the module.
pub struct Completions {
    ring: ManuallyDrop<Ring>,
    buffers: RefCell<ManuallyDrop<Buffers>>,
    slots: RefCell<Slots>,
    accepting: RefCell<Accepting>,
    driver: RefCell<Option<Waker>>,
    spare: RefCell<Vec<Vec<u8>>>,
}

#[derive(Default)]
struct Slots {
    slots: ManuallyDrop<Vec<ConnectionSlot>>,
    free: Vec<usize>,
}

/// One connection.
#[derive(Default)]
struct ConnectionSlot {
    socket: Option<OwnedFd>,
    /// Its [`Socket`] is gone.
    is_abandoned: bool,
    /// What has arrived and not been read, from `start` on.
    pending: Vec<u8>,
    start: usize,
    /// Receiving is under way; it is being cancelled.
    is_receiving: bool,
    is_cancelling: bool,
    /// Nothing more will arrive: 0, or an error's number.
    end: Option<i32>,
    reader: Option<Waker>,
    /// Being sent: the bytes, and how many have gone.
    sending: Option<(Vec<u8>, usize)>,
    /// What a send has come to: a count, or an error's negative number.
    sent: Option<i32>,
    writer: Option<Waker>,
}

impl ConnectionSlot {
    fn is_busy(&self) -> bool {
        self.is_receiving || self.is_cancelling || (self.sending.is_some() && self.sent.is_none())
    }
}

#[derive(Default)]
struct Accepting {
    listener: Option<TcpListener>,
    is_armed: bool,
    arrived: VecDeque<io::Result<OwnedFd>>,
    waker: Option<Waker>,
}

impl Completions {
    /// A ring for the calling thread, which alone may use it.
    ///
    /// # Errors
    /// io_uring is refused, or the kernel is older than 6.1.
    pub fn new() -> io::Result<Rc<Completions>> {
        let ring = Ring::new(QUEUE, COMPLETIONS, Running::WhenEntered)?;
        let buffers = ring.with(Buffers::new)?;
        Ok(Rc::new(Completions {
            ring: ManuallyDrop::new(ring),
            buffers: RefCell::new(ManuallyDrop::new(buffers)),
            slots: RefCell::default(),
            accepting: RefCell::default(),
            driver: RefCell::default(),
            spare: RefCell::default(),
        }))
    }

    /// A descriptor that is readable when [`Self::drive`] has something to do, to be registered with the core's reactor.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.ring.descriptor()
    }

    /// Hands over what is queued and sees to what has completed, until dropped. `ready` is [`Self::descriptor`], registered. `turned` is told
    /// after each turn how many system calls it took.
    ///
    /// # Errors
    /// The ring is broken.
    pub async fn drive(&self, ready: &Source, turned: impl Fn(u64)) -> io::Result<()> {
        loop {
            poll_fn(|cx| {
                if self.ring.has_unsubmitted() || ready.poll_readable(cx).is_ready() {
                    return Poll::Ready(());
                }
                let mut driver = self.driver.borrow_mut();
                match &*driver {
                    Some(waker) if waker.will_wake(cx.waker()) => {}
                    _ => *driver = Some(cx.waker().clone()),
                }
                Poll::Pending
            })
            .await;
            // Before the turn: what completes from here on is a new edge.
            ready.clear_readable();
            self.turn()?;
            turned(self.ring.take_enters());
        }
    }

    /// One turn: hands over, runs what completions wait for, and takes them. Wakes tasks and runs none.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn turn(&self) -> io::Result<()> {
        loop {
            self.ring.enter()?;
            let mut taken = 0;
            // One at a time: handling one may queue operations.
            while let Some(entry) = self.ring.next() {
                taken += 1;
                self.complete(&entry);
            }
            if taken == 0 || !self.ring.has_unsubmitted() {
                return Ok(());
            }
        }
    }

    /// Queues an operation.
    fn push(&self, entry: &squeue::Entry) {
        // SAFETY: what the operation points to is kept by its slot until it completes; callers see to that.
        let is_first = unsafe { self.ring.push(entry) };
        if is_first && let Some(driver) = &*self.driver.borrow() {
            driver.wake_by_ref();
        }
    }

    fn complete(&self, entry: &cqueue::Entry) {
        let (kind, slot) = (entry.user_data() >> 32, entry.user_data() as u32 as usize);
        let waker = match kind {
            kind if kind == Kind::Accept as u64 => self.accepted(entry),
            kind if kind == Kind::Receive as u64 => self.received(slot, entry),
            kind if kind == Kind::Send as u64 => self.sent(slot, entry.result()),
            _ => {
                // The operation that was cancelled completes by itself.
                self.slots.borrow_mut().slots[slot].is_cancelling = false;
                None
            }
        };
        if kind != Kind::Accept as u64 {
            self.free_if_done(slot);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    // --- accepting -----------------------------------------------------------------------------------------------------

    /// Takes the listener that [`Self::accept`] accepts from.
    pub fn listen(&self, listener: TcpListener) {
        self.accepting.borrow_mut().listener = Some(listener);
    }

    /// The next connection, to be made a [`Socket`] of.
    ///
    /// # Errors
    /// Those of `accept`.
    pub async fn accept(&self) -> io::Result<OwnedFd> {
        poll_fn(|cx| {
            let arm = {
                let mut accepting = self.accepting.borrow_mut();
                if let Some(arrived) = accepting.arrived.pop_front() {
                    return Poll::Ready(arrived);
                }
                accepting.waker = Some(cx.waker().clone());
                let arm = !accepting.is_armed;
                accepting.is_armed = true;
                arm.then(|| accepting.listener.as_ref().map(|listener| listener.as_raw_fd())).flatten()
            };
            if let Some(listener) = arm {
                // Not non-blocking: a socket that is would fail where its operation should wait.
                let accept = opcode::AcceptMulti::new(Fd(listener)).flags(libc::SOCK_CLOEXEC).build();
                self.push(&accept.user_data(token(Kind::Accept, 0)));
            }
            Poll::Pending
        })
        .await
    }

    /// Closes the listener: nobody connects any more.
    pub fn end_accepting(&self) {
        let mut accepting = self.accepting.borrow_mut();
        // What has connected meanwhile is closed with it.
        accepting.arrived.clear();
        let Some(listener) = accepting.listener.take() else { return };
        // SAFETY: no memory is involved; the descriptor is the listener's. It ends the operation that holds it.
        unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
    }

    fn accepted(&self, entry: &cqueue::Entry) -> Option<Waker> {
        let mut accepting = self.accepting.borrow_mut();
        accepting.is_armed &= cqueue::more(entry.flags());
        let arrived = match entry.result() {
            error @ ..0 => Err(io::Error::from_raw_os_error(-error)),
            // SAFETY: the kernel has just made this descriptor for us.
            fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        };
        accepting.arrived.push_back(arrived);
        accepting.waker.take()
    }

    // --- connections ---------------------------------------------------------------------------------------------------

    /// Makes a slot for a connection.
    fn adopt(&self, socket: OwnedFd) -> usize {
        let mut slots = self.slots.borrow_mut();
        let index = slots.free.pop().unwrap_or_else(|| {
            slots.slots.push(ConnectionSlot::default());
            slots.slots.len() - 1
        });
        slots.slots[index] = ConnectionSlot { socket: Some(socket), ..ConnectionSlot::default() };
        index
    }

    fn with_slot<R>(&self, index: usize, f: impl FnOnce(&mut ConnectionSlot) -> R) -> R {
        f(&mut self.slots.borrow_mut().slots[index])
    }

    fn fd(&self, index: usize) -> Fd {
        let fd = self.with_slot(index, |slot| slot.socket.as_ref().map(AsRawFd::as_raw_fd));
        // Only slots that have a socket are asked.
        Fd(fd.unwrap_or(-1))
    }

    /// Starts receiving, unless that is under way, over, or there is enough.
    fn arm(&self, index: usize) {
        let wanted = self.with_slot(index, |slot| {
            let wanted = !slot.is_receiving
                && slot.end.is_none()
                && !slot.is_abandoned
                && slot.pending.len() - slot.start < PENDING_MAX_BYTES;
            slot.is_receiving |= wanted;
            wanted
        });
        if wanted {
            let receive = opcode::RecvMulti::new(self.fd(index), GROUP).build();
            self.push(&receive.user_data(token(Kind::Receive, index)));
        }
    }

    fn received(&self, index: usize, entry: &cqueue::Entry) -> Option<Waker> {
        let buffer = cqueue::buffer_select(entry.flags());
        let result = entry.result();
        if let Some(id) = buffer {
            let mut buffers = self.buffers.borrow_mut();
            if result > 0 {
                let mut slots = self.slots.borrow_mut();
                let slot = &mut slots.slots[index];
                if !slot.is_abandoned {
                    if slot.pending.capacity() == 0 {
                        slot.pending = self.spare.borrow_mut().pop().unwrap_or_default();
                    }
                    if slot.start > 0 && slot.start >= slot.pending.len() / 2 {
                        // Under a steady flow it is never empty.
                        slot.pending.drain(..slot.start);
                        slot.start = 0;
                    }
                    slot.pending.extend_from_slice(buffers.bytes(id, result as usize));
                }
            }
            buffers.give(id);
        }
        let (waker, rearm, cancel) = self.with_slot(index, |slot| {
            let goes_on = cqueue::more(entry.flags());
            slot.is_receiving = goes_on;
            match result {
                1.. => {}
                0 => slot.end = Some(0),
                // All buffers were taken for a moment; somebody else has asked for it to end.
                error if matches!(-error, libc::ENOBUFS | libc::ECANCELED | libc::EINTR) => {}
                error => slot.end = Some(-error),
            }
            let is_full = slot.pending.len() - slot.start >= PENDING_MAX_BYTES;
            let cancel = goes_on && is_full && !slot.is_cancelling && !slot.is_abandoned;
            slot.is_cancelling |= cancel;
            // A reader that waits still wants more.
            let rearm = !goes_on && result < 0 && slot.end.is_none() && slot.reader.is_some();
            let tells = result > 0 || slot.end.is_some();
            (if tells { slot.reader.take() } else { None }, rearm, cancel)
        });
        if rearm {
            self.arm(index);
        }
        if cancel {
            self.cancel(token(Kind::Receive, index), index);
        }
        waker
    }

    fn cancel(&self, what: u64, index: usize) {
        let cancel = opcode::AsyncCancel::new(what).build();
        self.push(&cancel.user_data(token(Kind::Cancel, index)));
    }

    /// Hands the rest of what is being sent to the kernel.
    fn send_rest(&self, index: usize) {
        let fd = self.fd(index);
        let entry = self.with_slot(index, |slot| {
            slot.sent = None;
            let (bytes, gone) = slot.sending.as_ref()?;
            let rest = &bytes[*gone..];
            // The kernel takes up to 2 GiB at once.
            let len = u32::try_from(rest.len()).unwrap_or(1 << 30);
            Some(opcode::Send::new(fd, rest.as_ptr(), len).flags(libc::MSG_NOSIGNAL).build())
        });
        if let Some(entry) = entry {
            self.push(&entry.user_data(token(Kind::Send, index)));
        }
    }

    fn sent(&self, index: usize, result: i32) -> Option<Waker> {
        self.with_slot(index, |slot| {
            slot.sent = Some(result);
            slot.writer.take()
        })
    }

    /// The socket of a slot is gone: ends its operations, or frees it.
    fn abandon(&self, index: usize) {
        let (receiving, sending) = self.with_slot(index, |slot| {
            slot.is_abandoned = true;
            (slot.reader, slot.writer) = (None, None);
            slot.pending = Vec::new();
            let sending = slot.sending.is_some() && slot.sent.is_none();
            let receiving = slot.is_receiving && !slot.is_cancelling;
            slot.is_cancelling |= receiving;
            (receiving, sending)
        });
        if sending {
            // It waits for the client, who may never take it.
            let fd = self.fd(index);
            // SAFETY: no memory is involved; the descriptor is the slot's.
            unsafe { libc::shutdown(fd.0, libc::SHUT_RDWR) };
        }
        if receiving {
            self.cancel(token(Kind::Receive, index), index);
        }
        self.free_if_done(index);
    }

    fn free_if_done(&self, index: usize) {
        let freed = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots.slots[index];
            if !slot.is_abandoned || slot.is_busy() || slot.socket.is_none() {
                return;
            }
            let freed = std::mem::take(slot);
            slots.free.push(index);
            freed
        };
        for buffer in [Some(freed.pending), freed.sending.map(|(bytes, _)| bytes)].into_iter().flatten() {
            self.keep(buffer);
        }
    }

    /// Keeps room for the next who needs some.
    fn keep(&self, mut buffer: Vec<u8>) {
        let mut spare = self.spare.borrow_mut();
        if (1..=KEPT_BYTES_MAX).contains(&buffer.capacity()) && spare.len() < SPARES_MAX {
            buffer.clear();
            spare.push(buffer);
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        let cancelled = self.ring.cancel_all();
        // SAFETY: dropped once, here, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        match cancelled {
            Ok(()) => {
                // SAFETY: as above; no operation is left that could use the memory.
                unsafe {
                    ManuallyDrop::drop(self.buffers.get_mut());
                    ManuallyDrop::drop(&mut self.slots.get_mut().slots);
                }
            }
            // Some operation may still write: its memory stays.
            Err(error) => tracing::warn!(%error, "operations of a completion loop could not be ended"),
        }
    }
}
