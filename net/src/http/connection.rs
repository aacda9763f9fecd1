//! What a core knows of each open connection.
//!
//! A connection is always in one [`Phase`]; the sweep ([`Connections`](crate::connections::Connections)) adds a second to its
//! age in that phase and shuts the socket down when the phase's limit is reached. The connection's task then sees the end of its stream like any other.

use crate::connections::{self, Aging};
use crate::limits;
use nigh_shard::reactor::Source;
use std::cell::{Cell, RefCell};
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
        connections::shutdown(&self.source, how);
    }
}

impl Aging for Connection {
    fn shutdown(&self) {
        Connection::shutdown(self, libc::SHUT_RDWR);
    }

    fn wake(&self) {
        Connection::wake(self);
    }

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
