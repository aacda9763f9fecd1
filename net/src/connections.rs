//! The open connections of one core, whatever is spoken on them: the list, the sweep that ends those which take too long,
//! and the end of all when the process stops.

use crate::limits;
use futures_lite::future::or;
use nigh_shard::env::Env;
use nigh_shard::reactor::Source;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// Connections the sweep looks at before other tasks get a turn: about 100 us.
const SWEEP_BATCH: usize = 1024;

/// Bytes that are thrown away with one system call, and in one turn of a task: about 1 ms.
const DISCARDED_AT_ONCE: usize = 32 << 10;
const DISCARDED_PER_TURN: usize = 8 << 20;

/// Between two looks whether all are closed while the process stops, microseconds.
const DRAIN_POLL_US: u64 = 5_000;

/// What a list needs of a connection.
pub trait Aging {
    /// Ends the stream in both directions; the connection's task then sees its end like any other.
    fn shutdown(&self);
    /// Wakes the connection's task.
    fn wake(&self);
    /// Asked now and then while the process stops: whether the client, for whom this connection waits, has sent or taken nothing since it
    /// was last asked.
    fn is_stalled(&self) -> bool;
    /// One second has passed. Returns whether the connection has used up its time.
    fn tick(&self) -> bool;
}

/// See the module.
pub struct Connections<C> {
    slots: RefCell<Vec<Option<Rc<C>>>>,
    free: RefCell<Vec<usize>>,
    open: Cell<usize>,
    draining: Cell<bool>,
}

/// Keeps a connection listed while it lives.
pub struct Listed<C> {
    connections: Rc<Connections<C>>,
    slot: usize,
}

impl<C> Default for Connections<C> {
    fn default() -> Self {
        Connections {
            slots: RefCell::default(),
            free: RefCell::default(),
            open: Cell::new(0),
            draining: Cell::new(false),
        }
    }
}

impl<C: Aging> Connections<C> {
    /// How many are open.
    pub fn open(&self) -> usize {
        self.open.get()
    }

    /// Whether they are to end as soon as they have nothing to do.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Lists a connection until the guard drops.
    pub fn list(self: &Rc<Self>, connection: Rc<C>) -> Listed<C> {
        let mut slots = self.slots.borrow_mut();
        let slot = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        slots[slot] = Some(connection);
        self.open.set(self.open.get() + 1);
        Listed { connections: self.clone(), slot }
    }

    /// Calls `f` on the connections in slots `from..from + count`; false when there are no slots beyond.
    fn visit(&self, from: usize, count: usize, mut f: impl FnMut(&C)) -> bool {
        for slot in from..from + count {
            let connection = match self.slots.borrow().get(slot) {
                None => return false,
                Some(connection) => connection.clone(),
            };
            if let Some(connection) = connection {
                f(&connection);
            }
        }
        true
    }

    /// Ages the connections of some slots by a second and ends the overdue; returns how many, and whether slots remain.
    fn sweep(&self, from: usize, count: usize) -> (u64, bool) {
        let mut cut = 0;
        let more = self.visit(from, count, |connection| {
            if connection.tick() {
                connection.shutdown();
                cut += 1;
            }
        });
        (cut, more)
    }

    /// Every `second` until it drains: ages every connection, cuts the overdue, and tells `swept` how many these were.
    pub async fn keep_sweeping(&self, env: &dyn Env, second: Duration, swept: impl Fn(u64)) {
        while !self.is_draining() {
            env.sleep_us(second.as_micros() as u64).await;
            let (mut from, mut timed_out) = (0, 0);
            loop {
                let (cut, more) = self.sweep(from, SWEEP_BATCH);
                timed_out += cut;
                if !more {
                    break;
                }
                from += SWEEP_BATCH;
                env.yield_now().await;
            }
            swept(timed_out);
        }
    }

    /// Lets requests in flight finish, then cuts what is left.
    pub async fn drain(&self, env: &dyn Env) {
        self.draining.set(true);
        self.visit(0, usize::MAX / 2, C::wake);
        let empty = async {
            let mut waits = 0;
            while self.open() > 0 {
                env.sleep_us(DRAIN_POLL_US).await;
                waits += 1;
                if waits % (limits::DRAIN_STALL_MAX_MS * 1000 / DRAIN_POLL_US) == 0 {
                    self.visit(0, usize::MAX / 2, |connection| {
                        if connection.is_stalled() {
                            connection.shutdown();
                        }
                    });
                }
            }
            true
        };
        let late = async {
            env.sleep_us(limits::DRAIN_MAX_MS * 1000).await;
            false
        };
        if !or(empty, late).await {
            tracing::warn!(target: "nigh", open = self.open(), "cutting connections that did not finish");
            self.visit(0, usize::MAX / 2, C::shutdown);
            // Their tasks see the end of the stream at their next turn; handlers still at work are left behind.
            env.sleep_us(50_000).await;
        }
    }
}

impl<C> Drop for Listed<C> {
    fn drop(&mut self) {
        self.connections.slots.borrow_mut()[self.slot] = None;
        self.connections.free.borrow_mut().push(self.slot);
        self.connections.open.set(self.connections.open.get() - 1);
    }
}

/// Ends a stream in one or both directions.
pub fn shutdown(source: &Source, how: Shutdown) {
    // The only failure, a peer already gone, needs nothing more.
    let _gone = rustix::net::shutdown(source, how);
}

/// Whether the kernel holds bytes of a stream that nobody has received yet, or its end. This makes a system call.
pub fn has_arrived(source: &Source) -> bool {
    let mut byte = [0_u8];
    let peeked = rustix::net::recv(source, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    // The end of the stream and a broken one are for the next receive to find.
    !matches!(peeked, Err(Errno::WOULDBLOCK | Errno::INTR))
}

/// Reads and throws away what the client still sends, until it ends its stream or fails.
pub async fn discard(source: &Source) {
    poll_fn(|cx| {
        let (mut buffer, mut taken) = ([0_u8; DISCARDED_AT_ONCE], 0);
        loop {
            if source.poll_readable(cx).is_pending() {
                return Poll::Pending;
            }
            match rustix::net::recv(source, &mut buffer, RecvFlags::empty()) {
                Ok((_, 0)) => return Poll::Ready(()),
                Ok((_, bytes)) => {
                    taken += bytes;
                    if taken > DISCARDED_PER_TURN {
                        // A client that sends as fast as memory allows must not keep the core to itself.
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Err(Errno::WOULDBLOCK) => source.clear_readable(),
                Err(Errno::INTR) => {}
                Err(_) => return Poll::Ready(()),
            }
        }
    })
    .await;
}
