//! What a core knows of each open connection, for the sweep ([`Connections`](crate::connections::Connections)) and for its calls.

use crate::auth::Presence;
use crate::connections::Aging;
use crate::grpc::frames::Frames;
use crate::limits;
use crate::socket::Socket;
use nigh_shard::account::{Charge, CoreCharge};
use rustix::net::Shutdown;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

/// One open connection; shared by its stream, its calls and the sweep, all on one core.
pub struct Connection {
    /// The socket.
    pub socket: Socket,
    /// The common name in the certificate of the client, which has been verified.
    certificate: RefCell<Option<Rc<str>>>,
    /// Which API key the connection counts for.
    presence: Presence,
    /// What it takes of the memory however little it does.
    #[allow(dead_code, reason = "held until the connection is gone")]
    charge: Charge,
    frames: RefCell<Frames>,
    /// Bytes that were received since its task was last woken, and the heads of calls before that.
    turn_bytes: Cell<usize>,
    heads_before: Cell<u64>,
    /// Bytes that were sent since then.
    turn_sent: Cell<usize>,
    /// Heads of calls that had been received when everything was last sent, and whether more are held back until that is so again.
    heads_flushed: Cell<u64>,
    is_held_back: Cell<bool>,
    /// Calls may have been received that could not begin in the last turn.
    is_behind: Cell<bool>,
    /// Calls whose tasks are there: a call that changes data outlives its stream.
    calls: Cell<usize>,
    /// Calls that wait for their client to send or to take something.
    waiting: Cell<usize>,
    /// Calls that watch the health of the server.
    watches: Cell<usize>,
    /// It has been ended for being slow, idle or a flood.
    is_cut: Cell<bool>,
    unfinished_seconds: Cell<u32>,
    idle_seconds: Cell<u32>,
    write_blocked: Cell<bool>,
    /// Seconds since the client last took something that was there for it, such seconds all together, and bytes that it took.
    write_age_seconds: Cell<u32>,
    write_wait_seconds: Cell<u32>,
    write_bytes: Cell<u64>,
    /// Whether bytes were received or sent since [`Aging::is_stalled`] was last called.
    has_moved: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

/// Counts a call while it lives.
pub struct OpenCall {
    connection: Rc<Connection>,
    /// What it takes of the memory however short it is.
    #[allow(dead_code, reason = "held until the call is gone")]
    charge: CoreCharge,
}

/// Counts a call that watches the health of the server while it lives.
pub struct Watch<'c>(&'c Connection);

/// Counts a call that waits for its client while it lives.
pub struct Waiting<'c>(&'c Connection);

impl Connection {
    /// A connection just accepted.
    pub fn new(socket: Socket, charge: Charge) -> Self {
        Connection {
            socket,
            certificate: RefCell::new(None),
            presence: Presence::default(),
            charge,
            frames: RefCell::new(Frames::new()),
            turn_bytes: Cell::new(0),
            heads_before: Cell::new(0),
            turn_sent: Cell::new(0),
            heads_flushed: Cell::new(0),
            is_held_back: Cell::new(false),
            is_behind: Cell::new(false),
            calls: Cell::new(0),
            waiting: Cell::new(0),
            watches: Cell::new(0),
            is_cut: Cell::new(false),
            unfinished_seconds: Cell::new(0),
            idle_seconds: Cell::new(0),
            write_blocked: Cell::new(false),
            write_age_seconds: Cell::new(0),
            write_wait_seconds: Cell::new(0),
            write_bytes: Cell::new(0),
            has_moved: Cell::new(false),
            task: RefCell::new(None),
        }
    }

    /// Which API key the connection counts for.
    pub fn presence(&self) -> &Presence {
        &self.presence
    }

    /// The client has shown a certificate.
    pub fn certify(&self, name: String) {
        *self.certificate.borrow_mut() = Some(name.into());
    }

    /// The common name in the certificate of the client, if it has shown one.
    pub fn certificate(&self) -> Option<Rc<str>> {
        self.certificate.borrow().clone()
    }

    /// Its task has a turn.
    pub fn begin_turn(&self, cx: &Context<'_>) {
        self.turn_bytes.set(0);
        self.turn_sent.set(0);
        self.heads_before.set(self.frames.borrow().heads());
        let mut task = self.task.borrow_mut();
        match &*task {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => *task = Some(cx.waker().clone()),
        }
    }

    /// Whether it has received as much as one turn may: bytes, or calls, whose headers wait in memory until each has its turn.
    pub fn has_had_its_turn(&self) -> bool {
        let heads = self.frames.borrow().heads() - self.heads_before.get();
        self.is_behind.get()
            || self.turn_bytes.get() >= limits::GRPC_RECEIVED_PER_TURN_BYTES
            || heads >= limits::GRPC_CALLS_PER_TURN as u64
    }

    /// Whether it may receive more. A client that takes nothing may begin a few calls and no more: how a call has ended is told in headers,
    /// which wait in a buffer of the parser that has no bound of its own.
    pub fn may_receive(&self) -> bool {
        let heads = self.frames.borrow().heads() - self.heads_flushed.get();
        let may = !self.write_blocked.get() || heads < limits::GRPC_CALLS_PER_TURN as u64;
        self.is_held_back.set(!may);
        may
    }

    /// All that there was to send has been sent. Returns whether the connection was held back until now.
    pub fn flushed(&self) -> bool {
        self.heads_flushed.set(self.frames.borrow().heads());
        self.is_held_back.replace(false)
    }

    /// Whether it has sent as much as one turn may.
    pub fn has_sent_its_turn(&self) -> bool {
        self.turn_sent.get() >= limits::GRPC_SENT_PER_TURN_BYTES
    }

    /// Whether the client takes nothing at the moment.
    pub fn is_blocked(&self) -> bool {
        self.write_blocked.get()
    }

    /// Whether calls may wait that were received and could not begin yet: nothing more is received meanwhile.
    pub fn fall_behind(&self, is_behind: bool) {
        self.is_behind.set(is_behind);
    }

    /// Bytes came from the client.
    pub fn received(&self, bytes: &[u8]) {
        self.has_moved.set(true);
        self.turn_bytes.set(self.turn_bytes.get() + bytes.len());
        self.frames.borrow_mut().received(bytes);
    }

    /// The client took so many bytes.
    pub fn wrote(&self, bytes: usize) {
        self.has_moved.set(true);
        self.write_blocked.set(false);
        self.turn_sent.set(self.turn_sent.get() + bytes);
        self.write_age_seconds.set(0);
        self.write_bytes.set(self.write_bytes.get() + bytes as u64);
        self.frames.borrow_mut().sent(bytes);
    }

    /// The client does not take any bytes at the moment.
    pub fn blocked(&self) {
        self.write_blocked.set(true);
    }

    /// Whether the client sends more that does nothing than it may.
    pub fn is_flooded(&self) -> bool {
        self.frames.borrow().is_flood()
    }

    /// Whether no call has been there for as long as a connection is kept.
    pub fn has_been_idle(&self) -> bool {
        self.idle_seconds.get() > limits::GRPC_IDLE_MAX_SECONDS
    }

    /// Begins a call, unless as many are there as one connection may have, or there is no memory for it, which `charge` is to hold.
    pub fn begin_call(self: &Rc<Self>, mut charge: CoreCharge) -> Option<OpenCall> {
        let calls = self.calls.get();
        // The parser counts streams. A call ends a moment after its stream, in which the client may have begun the next.
        if calls >= limits::GRPC_STREAMS_MAX as usize + limits::GRPC_CALLS_PER_TURN
            || !charge.resize(limits::GRPC_CALL_BYTES)
        {
            return None;
        }
        self.calls.set(calls + 1);
        self.idle_seconds.set(0);
        Some(OpenCall { connection: self.clone(), charge })
    }

    /// Begins a watch of the health of the server, unless there are as many as one connection may have.
    pub fn begin_watch(&self) -> Option<Watch<'_>> {
        let watches = self.watches.get();
        (watches < limits::GRPC_WATCHES_MAX).then(|| {
            self.watches.set(watches + 1);
            Watch(self)
        })
    }

    /// It is ended for being slow, idle or a flood; whether this is the first reason for that, since each connection counts once.
    pub fn is_cut_now(&self) -> bool {
        !self.is_cut.replace(true)
    }

    /// A call waits for its client until the guard drops.
    pub fn wait(&self) -> Waiting<'_> {
        self.waiting.set(self.waiting.get() + 1);
        Waiting(self)
    }

    /// Ends the stream in one or both directions.
    pub fn shutdown(&self, how: Shutdown) {
        self.socket.shutdown(how);
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.connection.calls.set(self.connection.calls.get() - 1);
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.watches.set(self.0.watches.get() - 1);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

impl Aging for Connection {
    fn shutdown(&self) {
        Connection::shutdown(self, Shutdown::Both);
    }

    fn wake(&self) {
        let waker = self.task.borrow().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_stalled(&self) -> bool {
        let waits = self.calls.get() == 0 || self.waiting.get() > 0 || self.write_blocked.get();
        !self.has_moved.replace(false) && waits
    }

    fn tick(&self) -> bool {
        let is_overdue = self.is_overdue();
        if is_overdue && !self.is_cut_now() {
            // It has been counted, and has had time to take the reason.
            self.shutdown(Shutdown::Both);
            return false;
        }
        is_overdue
    }
}

impl Connection {
    /// A second has passed. Returns whether the connection has used up its time.
    fn is_overdue(&self) -> bool {
        let is_stuck = self.frames.borrow_mut().next_second();
        if self.write_blocked.get() {
            let (age, waited) = (self.write_age_seconds.get() + 1, self.write_wait_seconds.get() + 1);
            self.write_age_seconds.set(age);
            self.write_wait_seconds.set(waited);
            let earned = self.write_bytes.get() / limits::BODY_BYTES_PER_EXTRA_SECOND;
            return age > limits::WRITE_STALL_MAX_SECONDS
                || u64::from(waited) > u64::from(limits::WRITE_STALL_MAX_SECONDS) + earned;
        }
        if is_stuck {
            self.unfinished_seconds.set(self.unfinished_seconds.get() + 1);
            return self.unfinished_seconds.get() > limits::HEADER_READ_MAX_SECONDS;
        }
        self.unfinished_seconds.set(0);
        if self.calls.get() == 0 {
            self.idle_seconds.set(self.idle_seconds.get() + 1);
            if self.has_been_idle() {
                Aging::wake(self);
            }
            // It has been told to go away, and has had time for that.
            return self.idle_seconds.get() > limits::GRPC_IDLE_MAX_SECONDS + limits::HEADER_READ_MAX_SECONDS;
        }
        false
    }
}
