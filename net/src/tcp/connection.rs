//! The life of one connection: receive what has arrived, carry out rounds of it, send, wait.
//!
//! Nothing a client sends ends a connection but what cannot be told apart from noise; nothing a client leaves undone keeps one for
//! ever. A connection that waits for its client holds no buffer, but for the beginning of a frame.

use crate::access_log::RequestIds;
use crate::connections::{Aging, Connections};
use crate::door::Verdicts;
use crate::limits;
use crate::tcp::access;
use crate::tcp::buffers::Inbound;
use crate::tcp::counters::Stage;
use crate::tcp::frame;
use crate::tcp::here::Here;
use crate::tcp::laps::Laps;
use crate::tcp::requests::{Gathered, charge_responses, gather, refuse_debtors};
use crate::tcp::round::Round;
use crate::tcp::transport::{Arrival, Insecure, Transport};
use futures_lite::future::or;
use nigh_shard::core::ANSWER_UNCOUNTED_BYTES;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Instant;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for a request.
    Idle,
    /// Waiting for the rest of one.
    Frame,
    /// The server works on requests, or sends what the client takes.
    Working,
    /// The client takes nothing.
    Blocked,
}

/// The front end on one core.
pub struct Server<T> {
    /// What its connections share.
    pub here: Here,
    /// Its connections.
    pub connections: Rc<Connections<Connection<T>>>,
    /// Names of requests in the access log.
    pub request_ids: RequestIds,
}

/// What the core knows of a connection beside its task.
pub struct Connection<T> {
    transport: T,
    phase: Cell<Phase>,
    age_seconds: Cell<u32>,
    /// Waiting for the frame that has begun, all waits together, and what has come of it.
    frame_seconds: Cell<u32>,
    frame_bytes: Cell<u64>,
    /// Seconds in which the client took nothing of the responses being sent, and the bytes of these.
    send_seconds: Cell<u32>,
    send_bytes: Cell<u64>,
    /// Bytes received or sent since the end of the process was last asked for.
    has_moved: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl<T> Connection<T> {
    /// A connection just accepted.
    pub fn new(transport: T) -> Connection<T> {
        Connection {
            transport,
            phase: Cell::new(Phase::Idle),
            age_seconds: Cell::new(0),
            frame_seconds: Cell::new(0),
            frame_bytes: Cell::new(0),
            send_seconds: Cell::new(0),
            send_bytes: Cell::new(0),
            has_moved: Cell::new(false),
            task: RefCell::new(None),
        }
    }

    /// Enters a phase; its age starts anew.
    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.age_seconds.set(0);
    }

    /// A frame is whole.
    fn ended_frame(&self) {
        self.frame_seconds.set(0);
        self.frame_bytes.set(0);
    }
}

impl<T: Transport> Aging for Connection<T> {
    fn shutdown(&self) {
        self.transport.shutdown();
    }

    fn wake(&self) {
        let waker = self.task.borrow().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_stalled(&self) -> bool {
        let waits = matches!(self.phase.get(), Phase::Frame | Phase::Blocked);
        !self.has_moved.replace(false) && waits
    }

    fn tick(&self) -> bool {
        let age = self.age_seconds.get().saturating_add(1);
        self.age_seconds.set(age);
        match self.phase.get() {
            Phase::Idle => age > limits::TCP_IDLE_MAX_SECONDS,
            Phase::Frame => {
                let waited = self.frame_seconds.get().saturating_add(1);
                self.frame_seconds.set(waited);
                let earned = self.frame_bytes.get() / limits::BODY_BYTES_PER_EXTRA_SECOND;
                let allowed = u64::from(limits::TCP_FRAME_READ_MAX_SECONDS) + earned;
                u64::from(waited) > allowed.min(limits::TCP_FRAME_LIFE_MAX_SECONDS.into())
            }
            // Only the client's slowness counts, never the server's: a bulk build may take hours.
            Phase::Working => false,
            Phase::Blocked => {
                let waited = self.send_seconds.get().saturating_add(1);
                self.send_seconds.set(waited);
                let earned = self.send_bytes.get() / limits::TCP_RESPONSE_BYTES_PER_EXTRA_SECOND;
                age > limits::TCP_WRITE_STALL_MAX_SECONDS
                    || u64::from(waited) > u64::from(limits::TCP_WRITE_STALL_MAX_SECONDS) + earned
            }
        }
    }
}

/// What a client is told that does not speak TLS where it is expected.
const PLAIN: &str = "this port expects TLS";

/// Makes a connection secure, where connections are. Returns the common name in the certificate of the client, if it has shown one.
async fn secure<T: Transport>(
    server: &Server<T>,
    connection: &Connection<T>,
) -> Result<Option<String>, Insecure> {
    let Some(handshakes) = &server.here.handshakes else { return Ok(None) };
    connection.enter(Phase::Working);
    let second_us = server.here.config.second.as_micros() as u64;
    let secured = connection.transport.secure(handshakes, second_us).await;
    if secured == Err(Insecure::Plain) {
        let mut refusal = Vec::new();
        frame::put_error(&mut refusal, PLAIN);
        let _gone = connection.transport.send(&refusal, |_| {}).await;
    }
    secured
}

/// Requests that a round has left for the next one and that have been charged to an API key. If they were gathered again, they would be charged
/// again.
struct Left {
    /// The authenticator's generation at that time. If API keys have changed since, the requests are gathered again all the same.
    generation: u64,
    gathered: Gathered,
}

/// What a connection waits for has come.
enum Woken {
    /// Bytes, or the end of the stream.
    Arrived,
    /// The process stops.
    Draining,
}

/// Serves one connection to its end.
pub async fn run<T: Transport>(server: &Server<T>, connection: &Connection<T>) {
    let here = &server.here;
    let mut inbound = Inbound::new(here.buffers.clone(), here.requests_held.holder());
    let certificate = match secure(server, connection).await {
        Ok(certificate) => certificate,
        Err(_) if server.connections.is_draining() => {
            return finish(server, connection, limits::DRAIN_LINGER_MAX_MS).await;
        }
        Err(_) => return finish(server, connection, limits::LINGER_MAX_MS).await,
    };
    let mut verdicts = Verdicts::of(certificate);
    // Bytes from the first unread one to the end of the frame it begins, as far as is known.
    let mut needed = 0;
    let mut is_first = true;
    let mut is_trusted = false;
    let mut laps = Laps::new(here);
    loop {
        inbound.rest();
        if let Woken::Draining = wait(server, connection, &inbound).await {
            return finish(server, connection, limits::DRAIN_LINGER_MAX_MS).await;
        }
        laps.restart();
        let certificate = verdicts.certificate();
        let received = receive(server, connection, &mut inbound, needed, is_trusted, certificate).await;
        let Ok(ended) = received else { return end(server, connection).await };
        let mut requests = here.spare_requests.borrow_mut().pop().unwrap_or_default();
        let mut left: Option<Left> = None;
        loop {
            let authorizer = here.door.authorizer();
            let generation = authorizer.generation();
            let gathered = match left.take() {
                Some(left) if left.generation == generation => {
                    refuse_debtors(&mut requests, authorizer);
                    left.gathered
                }
                _ => {
                    requests.clear();
                    gather(inbound.unread(), authorizer, &mut verdicts, &mut requests)
                }
            };
            needed = gathered.needed;
            is_trusted |= gathered.is_trusted;
            if requests.is_empty() {
                if !inbound.is_at_rest() {
                    // Part of a frame has come.
                    laps.end(Stage::Receive);
                }
                break;
            }
            laps.end(Stage::Receive);
            if !is_first {
                // A client that sends without a pause must not keep the core to itself.
                here.door.env().yield_now().await;
                laps.end(Stage::Turn);
            }
            is_first = false;
            connection.ended_frame();
            let started = laps.last();
            let (responses, done, charge) =
                Round::new(here, &mut laps).carry_out(&mut inbound, &requests).await;
            if here.config.access_log {
                let (ids, done) = (&server.request_ids, &requests[..done]);
                access::log(ids, verdicts.certificate(), inbound.unread(), done, &responses, started);
            }
            charge_responses(&requests[..done], &responses);
            laps.end(Stage::Run);
            let all = done == requests.len();
            let bytes = if all { gathered.bytes } else { requests[done].at };
            inbound.consume(bytes);
            requests.drain(..done);
            if requests.iter().any(|request| request.bill.is_some()) {
                // These requests have been charged.
                requests.iter_mut().for_each(|request| request.consumed_before(bytes));
                let gathered = Gathered { bytes: gathered.bytes - bytes, ..gathered };
                left = Some(Left { generation, gathered });
            } else {
                // Others that were left for the next round are gathered again.
                requests.clear();
            }
            if responses.len() > ANSWER_UNCOUNTED_BYTES {
                // The client may take its time.
                inbound.rest();
            }
            let sent = send(connection, &responses).await;
            laps.end(Stage::Send);
            here.buffers.give(responses);
            drop(charge);
            if sent.is_err() {
                return;
            }
            if all && gathered.is_broken {
                return finish(server, connection, limits::LINGER_MAX_MS).await;
            }
        }
        here.keep_requests(requests);
        if ended {
            return end(server, connection).await;
        }
        // After a wait the next round is a first one again.
        is_first =
            std::future::poll_fn(|cx| Poll::Ready(connection.transport.poll_arrived(cx).is_pending())).await;
    }
}

/// Waits for bytes; the end of the process comes only between two requests.
async fn wait<T: Transport>(server: &Server<T>, connection: &Connection<T>, inbound: &Inbound) -> Woken {
    let at_rest = inbound.is_at_rest();
    connection.enter(if at_rest { Phase::Idle } else { Phase::Frame });
    let woken = poll_fn(|cx| {
        if connection.transport.poll_arrived(cx).is_ready() {
            return Poll::Ready(Woken::Arrived);
        }
        if at_rest && server.connections.is_draining() {
            // What was sent before the stop has reached this machine, though the core may not have looked since: it is answered.
            let woken = if connection.transport.has_arrived() { Woken::Arrived } else { Woken::Draining };
            return Poll::Ready(woken);
        }
        let mut task = connection.task.borrow_mut();
        match &*task {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => *task = Some(cx.waker().clone()),
        }
        Poll::Pending
    })
    .await;
    connection.phase.set(Phase::Working);
    woken
}

/// Receives what is there, up to a bound; whether that was the last. Of a frame for whose bytes the process has no room, the client is
/// told at once, and what comes of it is thrown away.
async fn receive<T: Transport>(
    server: &Server<T>,
    connection: &Connection<T>,
    inbound: &mut Inbound,
    mut needed: usize,
    is_trusted: bool,
    certificate: Option<&str>,
) -> io::Result<bool> {
    loop {
        let before = inbound.unread().len();
        let Some(room) = inbound.room(needed) else {
            if needed <= before {
                // There are whole ones before it.
                return Ok(false);
            }
            let mut refusal = Vec::new();
            frame::put_error(&mut refusal, CROWDED);
            if server.here.config.access_log {
                let (ids, now) = (&server.request_ids, Instant::now());
                access::log_one(ids, certificate, inbound.unread(), &refusal, now);
            }
            send(connection, &refusal).await?;
            inbound.consume(needed);
            needed = 0;
            continue;
        };
        let start = room.len();
        let arrival = connection.transport.receive(room)?;
        let received = room.len() - start;
        connection.has_moved.set(true);
        connection.frame_bytes.set(connection.frame_bytes.get() + received as u64);
        inbound.received();
        match arrival {
            Arrival::End => return Ok(true),
            Arrival::Nothing | Arrival::Bytes { more: false } => return Ok(false),
            Arrival::Bytes { more: true } => {}
        }
        let there = inbound.unread().len();
        if !is_trusted && there >= limits::TCP_STRANGER_BYTES {
            // Enough to judge what comes.
            return Ok(false);
        }
        if there >= limits::TCP_RECEIVE_BYTES_MAX && there >= needed {
            return Ok(false);
        }
        if there >= limits::TCP_RECEIVE_BYTES_MAX || inbound.unread().is_empty() || received == 0 {
            // Other tasks get a turn: this may be a part of a long frame, of a frame that is thrown away, or records of TLS without data.
            server.here.door.env().yield_now().await;
        }
        if needed == 0 {
            needed = frame_bytes(inbound.unread());
        }
    }
}

/// What a client is told whose frame does not fit beside what others send.
const CROWDED: &str = "too many request bytes in flight; try again";

/// Bytes of the frame at the front, as far as is known.
fn frame_bytes(unread: &[u8]) -> usize {
    match frame::decode(unread) {
        frame::Decoded::Incomplete { needed } => needed,
        _ => 0,
    }
}

async fn send<T: Transport>(connection: &Connection<T>, bytes: &[u8]) -> io::Result<()> {
    connection.send_seconds.set(0);
    connection.send_bytes.set(bytes.len() as u64);
    let blocked = |blocked: bool| {
        connection.has_moved.set(connection.has_moved.get() || !blocked);
        connection.enter(if blocked { Phase::Blocked } else { Phase::Working });
    };
    connection.transport.send(bytes, blocked).await
}

/// Ends a connection whose client sends no more, or nothing that can be read.
async fn end<T: Transport>(server: &Server<T>, connection: &Connection<T>) {
    connection.enter(Phase::Working);
    let limit = server.here.door.env().sleep_us(limits::DRAIN_LINGER_MAX_MS * 1000);
    or(connection.transport.end(), limit).await;
}

/// Ends a connection so that its last response arrives, and nothing sent meanwhile resets it. The client has `linger_ms` to end its half.
async fn finish<T: Transport>(server: &Server<T>, connection: &Connection<T>, linger_ms: u64) {
    connection.enter(Phase::Working);
    let limit = server.here.door.env().sleep_us(linger_ms * 1000);
    or(connection.transport.finish(), limit).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Context;

    /// Nothing comes and nothing goes.
    struct Silent;

    impl Transport for Silent {
        fn poll_arrived(&self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
        fn has_arrived(&self) -> bool {
            false
        }
        fn receive(&self, _: &mut Vec<u8>) -> io::Result<Arrival> {
            Ok(Arrival::Nothing)
        }
        async fn send(&self, _: &[u8], _: impl Fn(bool)) -> io::Result<()> {
            Ok(())
        }
        fn shutdown(&self) {}
        async fn finish(&self) {}
    }

    /// Seconds until a connection is cut that is in `phase` and in which `each` happens before every one of them.
    fn cut_after(phase: Phase, each: impl Fn(&Connection<Silent>)) -> u32 {
        let connection = Connection::new(Silent);
        connection.enter(phase);
        connection.send_bytes.set(16 << 20);
        (1..100_000)
            .find(|_| {
                each(&connection);
                connection.tick()
            })
            .expect("it is cut")
    }

    /// A frame of 16 MiB could be dripped for four hours, and a response of 16 MiB taken for ever.
    #[test]
    fn the_life_of_a_frame_and_of_a_response_is_bounded_whatever_drips() {
        let drip = |bytes| move |it: &Connection<Silent>| it.frame_bytes.set(it.frame_bytes.get() + bytes);
        assert_eq!(cut_after(Phase::Frame, drip(0)), limits::TCP_FRAME_READ_MAX_SECONDS + 1);
        assert_eq!(cut_after(Phase::Frame, drip(16 << 10)), limits::TCP_FRAME_LIFE_MAX_SECONDS + 1);
        assert_eq!(cut_after(Phase::Blocked, |_| {}), limits::TCP_WRITE_STALL_MAX_SECONDS + 1);
        // The client takes a byte now and then.
        let taken = |it: &Connection<Silent>| it.enter(Phase::Blocked);
        assert_eq!(cut_after(Phase::Blocked, taken), limits::TCP_WRITE_STALL_MAX_SECONDS + 1024 + 1);
    }
}
