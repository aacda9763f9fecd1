//! What a core knows of each open connection, and the sweep that ends those which take too long.
//!
//! A connection is always in one [`Phase`]; the sweep adds a second to its age in that phase and shuts the socket down
//! when the phase's limit is reached. The connection's task then sees the end of its stream like any other.

use crate::limits;
use nigh_shard::reactor::Source;
use std::cell::{Cell, RefCell};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::task::{Context, Waker};

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The client sends a request's headers, or has just connected.
    Head,
    /// Kept alive between requests.
    Idle,
    /// A request waits for bytes of its body.
    Body,
    /// The server works on a request.
    Handling,
    /// The answer is on its way.
    Replying,
}

/// One open connection; shared by its stream, its requests and the sweep, all on one core.
pub struct Connection {
    /// The socket.
    pub source: Source,
    phase: Cell<Phase>,
    age_seconds: Cell<u32>,
    body_wait_seconds: Cell<u32>,
    body_bytes: Cell<u64>,
    write_blocked: Cell<bool>,
    ended: Cell<bool>,
    unread: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl Connection {
    /// A connection just accepted.
    pub fn new(source: Source) -> Self {
        Connection {
            source,
            phase: Cell::new(Phase::Head),
            age_seconds: Cell::new(0),
            body_wait_seconds: Cell::new(0),
            body_bytes: Cell::new(0),
            write_blocked: Cell::new(false),
            ended: Cell::new(false),
            unread: Cell::new(false),
            task: RefCell::new(None),
        }
    }

    /// Enters a phase; its age starts anew.
    pub fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.age_seconds.set(0);
    }

    /// A request's headers are complete.
    pub fn begin_request(&self) {
        self.enter(Phase::Handling);
        self.body_wait_seconds.set(0);
        self.body_bytes.set(0);
        self.unread.set(false);
    }

    /// The request was answered without reading its body to the end.
    pub fn left_body_unread(&self) {
        self.unread.set(true);
    }

    /// Whether the client may still be sending the body of a request that has its answer.
    pub fn has_unread_body(&self) -> bool {
        self.unread.get() && !self.ended.get()
    }

    /// Bytes came from the client.
    pub fn received(&self) {
        if self.phase.get() == Phase::Idle {
            self.enter(Phase::Head);
        }
    }

    /// Body bytes reached the request.
    pub fn received_body(&self, bytes: usize) {
        self.body_bytes.set(self.body_bytes.get() + bytes as u64);
    }

    /// The client took bytes, or (`blocked`) does not take any at the moment.
    pub fn wrote(&self, blocked: bool) {
        let was_blocked = self.write_blocked.replace(blocked);
        if was_blocked && !blocked {
            // For whoever waits by [`Self::is_write_blocked`].
            self.wake();
        }
        if !blocked && matches!(self.phase.get(), Phase::Replying | Phase::Idle) {
            self.age_seconds.set(0);
        }
    }

    /// Whether the client leaves bytes untaken. The connection's task is woken when it takes them.
    pub fn is_write_blocked(&self) -> bool {
        self.write_blocked.get()
    }

    /// The client will send no more.
    pub fn saw_end(&self) {
        self.ended.set(true);
    }

    /// Remembers the connection's task so that it can be told to drain.
    pub fn note_task(&self, cx: &Context<'_>) {
        let mut task = self.task.borrow_mut();
        match &*task {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => *task = Some(cx.waker().clone()),
        }
    }

    /// Wakes the connection's task.
    pub fn wake(&self) {
        let waker = self.task.borrow().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the stream in one or both directions.
    pub fn shutdown(&self, how: libc::c_int) {
        // SAFETY: the descriptor belongs to `self.source`, which outlives this call; shutdown touches no memory. Its
        // only failure, a peer already gone, needs nothing more.
        unsafe { libc::shutdown(self.source.as_raw_fd(), how) };
    }

    /// One second has passed. Returns whether the connection has used up its phase's time.
    fn tick(&self) -> bool {
        let age = self.age_seconds.get().saturating_add(1);
        match self.phase.get() {
            Phase::Head => {
                self.age_seconds.set(age);
                age > limits::HEADER_READ_MAX_SECONDS
            }
            Phase::Idle => {
                self.age_seconds.set(age);
                age > limits::IDLE_MAX_SECONDS
            }
            Phase::Body => {
                let waited = self.body_wait_seconds.get().saturating_add(1);
                self.body_wait_seconds.set(waited);
                let earned = self.body_bytes.get() / limits::BODY_BYTES_PER_EXTRA_SECOND;
                u64::from(waited) > u64::from(limits::BODY_READ_MAX_SECONDS) + earned
            }
            // Only the client's slowness counts, never the server's: a bulk build may take hours.
            Phase::Handling => false,
            Phase::Replying => {
                if self.write_blocked.get() {
                    self.age_seconds.set(age);
                }
                age > limits::WRITE_STALL_MAX_SECONDS
            }
        }
    }
}

/// The open connections of one core.
#[derive(Default)]
pub struct Connections {
    slots: RefCell<Vec<Option<Rc<Connection>>>>,
    free: RefCell<Vec<usize>>,
    open: Cell<usize>,
}

/// Keeps a connection listed while it lives.
pub struct Listed {
    connections: Rc<Connections>,
    slot: usize,
}

impl Connections {
    /// How many are open.
    pub fn open(&self) -> usize {
        self.open.get()
    }

    /// Lists a connection until the guard drops.
    pub fn list(self: &Rc<Self>, connection: Rc<Connection>) -> Listed {
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
    fn visit(&self, from: usize, count: usize, mut f: impl FnMut(&Connection)) -> bool {
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
    pub fn sweep(&self, from: usize, count: usize) -> (u64, bool) {
        let mut cut = 0;
        let more = self.visit(from, count, |connection| {
            if connection.tick() {
                connection.shutdown(libc::SHUT_RDWR);
                cut += 1;
            }
        });
        (cut, more)
    }

    /// Wakes every connection's task.
    pub fn wake_all(&self) {
        self.visit(0, usize::MAX / 2, Connection::wake);
    }

    /// Ends every stream.
    pub fn shutdown_all(&self) {
        self.visit(0, usize::MAX / 2, |connection| connection.shutdown(libc::SHUT_RDWR));
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.connections.slots.borrow_mut()[self.slot] = None;
        self.connections.free.borrow_mut().push(self.slot);
        self.connections.open.set(self.connections.open.get() - 1);
    }
}
