//! What a core knows of each open connection.
//!
//! A connection is always in one [`Phase`]; the sweep ([`Connections`](crate::connections::Connections)) adds a second to its
//! age in that phase and shuts the socket down when the phase's limit is reached. The connection's task then sees the end of its stream like any other.

use super::heads::Heads;
use super::memory::Memory;
use super::refusal::{Refusal, Refused};
use crate::auth::{Bill, Presence};
use crate::connections::Aging;
use crate::limits;
use crate::socket::Socket;
use hyper::body::Incoming;
use nigh_shard::account::Charge;
use rustix::net::Shutdown;
use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The client sends a request's headers, or has just connected.
    Head,
    /// Kept alive between requests.
    Idle,
    /// A request waits for bytes of its body, or it has been answered and the rest of its body is discarded.
    Body,
    /// The server works on a request.
    Handling,
    /// The answer is on its way.
    Replying,
}

/// One open connection; shared by its stream, its requests and the sweep, all on one core.
pub struct Connection {
    /// The socket.
    pub socket: Socket,
    /// What it takes of the memory however little it does.
    #[allow(dead_code, reason = "held until the connection is gone")]
    charge: Charge,
    phase: Cell<Phase>,
    age_seconds: Cell<u32>,
    body_wait_seconds: Cell<u32>,
    body_bytes: Cell<u64>,
    heads: RefCell<Heads>,
    /// An answer that stands in for one of the parser's.
    pub(super) refusal: RefCell<Option<Refusal>>,
    /// The refusal of a request's head, which ends the connection.
    refused: Cell<Option<Refused>>,
    write_blocked: Cell<bool>,
    /// Whether the client has left bytes untaken since the request under way began.
    was_blocked: Cell<bool>,
    /// Seconds in which the client took nothing of the answer under way, all together, and bytes that it took.
    write_wait_seconds: Cell<u32>,
    write_bytes: Cell<u64>,
    /// Whether bytes were received or sent since [`Aging::is_stalled`] was last called.
    has_moved: Cell<bool>,
    ended: Cell<bool>,
    unread: Cell<bool>,
    /// The unread rest of the body of a request that has been answered.
    unread_body: Cell<Option<Incoming>>,
    /// Which API key the connection counts for.
    presence: Presence,
    /// What charges the bytes of the request under way, and of its answer, if its sender has limits.
    bill: RefCell<Option<Bill>>,
    /// Requests begun so far.
    requests: Cell<u64>,
    /// The number of the answered request whose body is being discarded.
    drained_request: Cell<Option<u64>>,
    task: RefCell<Option<Waker>>,
}

impl Connection {
    /// A connection just accepted.
    pub(super) fn new(socket: Socket, memory: &Memory, charge: Charge) -> Self {
        Connection {
            socket,
            charge,
            phase: Cell::new(Phase::Head),
            age_seconds: Cell::new(0),
            body_wait_seconds: Cell::new(0),
            body_bytes: Cell::new(0),
            heads: RefCell::new(Heads::new(memory.heads.holder())),
            refusal: RefCell::new(None),
            refused: Cell::new(None),
            write_wait_seconds: Cell::new(0),
            write_bytes: Cell::new(0),
            has_moved: Cell::new(false),
            write_blocked: Cell::new(false),
            was_blocked: Cell::new(false),
            ended: Cell::new(false),
            unread: Cell::new(false),
            unread_body: Cell::new(None),
            presence: Presence::default(),
            bill: RefCell::new(None),
            requests: Cell::new(0),
            drained_request: Cell::new(None),
            task: RefCell::new(None),
        }
    }

    /// Enters a phase; its age starts anew.
    pub fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.age_seconds.set(0);
    }

    /// A request's headers are complete; its body has so many bytes, `None` when it is chunked. Returns why it is to be refused, if it is.
    pub(super) fn begin_request(&self, body_bytes: Option<u64>) -> Option<Refusal> {
        self.enter(Phase::Handling);
        self.body_wait_seconds.set(0);
        self.body_bytes.set(0);
        self.was_blocked.set(false);
        self.write_wait_seconds.set(0);
        self.write_bytes.set(0);
        self.unread.set(false);
        self.unread_body.set(None);
        *self.bill.borrow_mut() = None;
        self.requests.set(self.requests.get() + 1);
        self.drained_request.set(None);
        self.heads.borrow_mut().begin_request(body_bytes)
    }

    /// The request and its head are gone.
    pub fn end_request(&self) {
        self.heads.borrow_mut().end_request();
    }

    /// The request is answered without reading its body to the end.
    pub fn left_body_unread(&self, rest: Incoming) {
        self.unread.set(true);
        self.unread_body.set(Some(rest));
    }

    /// Takes the unread rest of a body; `None` after the first call.
    pub fn take_unread_body(&self) -> Option<Incoming> {
        self.unread_body.take()
    }

    /// Begins to discard the rest of the current request's body. Returns the request's number, for [`Self::end_drain`].
    pub fn begin_drain(&self) -> u64 {
        let request = self.requests.get();
        self.drained_request.set(Some(request));
        request
    }

    /// The body of that request has been discarded to its end, so the connection can serve further requests.
    pub fn end_drain(&self, request: u64) {
        // Its client may have sent the next request by now.
        if self.drained_request.get() == Some(request) {
            self.drained_request.set(None);
            self.unread.set(false);
            if self.phase.get() == Phase::Body {
                self.enter(Phase::Idle);
            }
        }
    }

    /// The answer has been sent, or given up.
    pub fn end_reply(&self) {
        self.enter(if self.drained_request.get().is_some() { Phase::Body } else { Phase::Idle });
    }

    /// Whether the client may still be sending the body of a request that has been answered.
    pub fn has_unread_body(&self) -> bool {
        self.unread.get() && !self.ended.get()
    }

    /// Bytes came from the client.
    ///
    /// # Errors
    /// They are of a head that is not to be received further.
    pub(super) fn received(&self, bytes: &[u8]) -> Result<(), Refusal> {
        self.has_moved.set(true);
        if self.phase.get() == Phase::Idle {
            self.enter(Phase::Head);
        }
        self.heads.borrow_mut().received(bytes, self.phase.get() == Phase::Head)
    }

    /// Notes that the head of a request was refused, so there will be no request.
    pub(super) fn refuse(&self, refusal: &Refusal) {
        self.refused.set(Some(refusal.refused()));
    }

    /// Takes the refusal of a head, if there is one.
    pub(super) fn take_refused(&self) -> Option<Refused> {
        self.refused.take()
    }

    /// Body bytes reached the request.
    pub fn received_body(&self, bytes: usize) {
        self.body_bytes.set(self.body_bytes.get() + bytes as u64);
        self.charge(bytes);
    }

    /// Which API key the connection counts for.
    pub fn presence(&self) -> &Presence {
        &self.presence
    }

    /// Charges the bytes of the request under way, and of its answer, by `bill` from now on.
    pub fn charge_to(&self, bill: Option<Bill>) {
        *self.bill.borrow_mut() = bill;
    }

    /// Charges bytes of the request under way, or of its answer.
    pub fn charge(&self, bytes: usize) {
        if let Some(bill) = &*self.bill.borrow() {
            bill.add(bytes);
        }
    }

    /// The client took so many bytes.
    pub fn wrote(&self, bytes: usize) {
        self.has_moved.set(true);
        self.write_bytes.set(self.write_bytes.get() + bytes as u64);
        if self.write_blocked.replace(false) {
            // For whoever waits by [`Self::is_write_blocked`].
            self.wake();
        }
        if matches!(self.phase.get(), Phase::Replying | Phase::Idle) {
            self.age_seconds.set(0);
        }
    }

    /// The client does not take any bytes at the moment.
    pub fn blocked(&self) {
        self.write_blocked.set(true);
        self.was_blocked.set(true);
    }

    /// Whether the client has left bytes untaken since the request under way began.
    pub fn was_write_blocked(&self) -> bool {
        self.was_blocked.get()
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

    /// Requests that have begun so far.
    pub fn requests(&self) -> u64 {
        self.requests.get()
    }

    /// Whether no request is under way and the kernel holds bytes of the next request, or the end of the stream.
    pub fn has_request_waiting(&self) -> bool {
        matches!(self.phase.get(), Phase::Idle | Phase::Head) && self.socket.has_arrived()
    }

    /// Wakes the connection's task.
    pub fn wake(&self) {
        let waker = self.task.borrow().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the stream in one or both directions.
    pub fn shutdown(&self, how: Shutdown) {
        self.socket.shutdown(how);
    }
}

impl Aging for Connection {
    fn shutdown(&self) {
        Connection::shutdown(self, Shutdown::Both);
    }

    fn wake(&self) {
        Connection::wake(self);
    }

    fn is_stalled(&self) -> bool {
        let waits = matches!(self.phase.get(), Phase::Head | Phase::Body) || self.write_blocked.get();
        !self.has_moved.replace(false) && waits
    }

    fn tick(&self) -> bool {
        let age = self.age_seconds.get().saturating_add(1);
        if self.write_blocked.get() && matches!(self.phase.get(), Phase::Replying | Phase::Idle) {
            let waited = self.write_wait_seconds.get().saturating_add(1);
            self.age_seconds.set(age);
            self.write_wait_seconds.set(waited);
            let earned = self.write_bytes.get() / limits::BODY_BYTES_PER_EXTRA_SECOND;
            return age > limits::WRITE_STALL_MAX_SECONDS
                || u64::from(waited) > u64::from(limits::WRITE_STALL_MAX_SECONDS) + earned;
        }
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
                let allowed = u64::from(limits::BODY_READ_MAX_SECONDS) + earned;
                u64::from(waited) > allowed.min(limits::BODY_LIFE_MAX_SECONDS.into())
            }
            // Only the client's slowness counts, never the server's: a bulk build may take hours.
            Phase::Handling | Phase::Replying => false,
        }
    }
}
