//! One generator thread: its connections, what it asks on them and when.
//!
//! The clock is read once per read of a socket, and all answers of that read share the time. Nothing is allocated per request.
use super::connection::{Connection, Pending};
use super::measure::Tally;
use super::poll::Poll;
use super::protocol::{Answer, Protocol};
use super::workload::{Class, Draws, Keys, Schedule, Values};
use crate::tls::explain;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A thread looks so often whether another one has failed.
const TICK: Duration = Duration::from_millis(50);
/// Answers are waited for so long after the end of a stretch; then what is owed counts as unanswered.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// A server that answers nothing for so long while the key space is filled has hung.
const STALL_MAX: Duration = Duration::from_secs(30);

/// What the threads of one stretch share.
pub struct Shared<'a, P> {
    /// Encoder and parser.
    pub protocol: &'a P,
    /// The value of every key.
    pub values: &'a Values,
    /// Whether values are compared.
    pub verify: bool,
    /// Whether latency counts from due times; a request is then measured when it was due in the window, else when its answer
    /// came in the window.
    pub open: bool,
    /// Most outstanding requests of a connection.
    pub depth: usize,
    /// When the stretch began.
    pub start: Instant,
    /// When measuring begins and ends, nanoseconds after the start.
    pub window: (u64, u64),
    /// Set by the first thread that fails.
    pub stop: &'a AtomicBool,
    /// Answers of a fill so far, over all threads.
    pub filled: &'a AtomicU64,
}

/// What a thread asks, and when.
pub enum Plan {
    /// SET every key of the range once.
    Fill(std::ops::Range<u64>),
    /// Batches, the next one when all of the last is answered.
    Closed(Draws),
    /// One request at each of the due times.
    Open(Draws, Schedule),
}

/// See the module.
pub struct Generator<'a, P> {
    shared: &'a Shared<'a, P>,
    connections: Vec<Connection>,
    poll: Poll,
    keys: Keys,
    tally: Tally,
    /// Requests without an answer on all connections.
    outstanding: usize,
}

impl<'a, P: Protocol> Generator<'a, P> {
    /// A generator over connections that are open.
    ///
    /// # Errors
    /// Of epoll.
    pub fn new(
        shared: &'a Shared<'a, P>,
        connections: Vec<Connection>,
        keys: Keys,
    ) -> io::Result<Generator<'a, P>> {
        let poll = Poll::new()?;
        for (token, connection) in connections.iter().enumerate() {
            poll.add(connection, token)?;
        }
        Ok(Generator { shared, connections, poll, keys, tally: Tally::new(), outstanding: 0 })
    }

    /// Carries out `plan`; what came of it.
    ///
    /// # Errors
    /// Of a connection: closed, reset, or bytes that are no answer. Unexpected answers are counted instead.
    pub fn run(mut self, plan: Plan) -> io::Result<Tally> {
        let ended = match plan {
            Plan::Fill(mut numbers) => self.fill(&mut numbers),
            Plan::Closed(draws) => self.closed(draws),
            Plan::Open(draws, schedule) => self.open(draws, schedule),
        };
        match (ended, &self.tally.first_error) {
            (Ok(()), _) => Ok(self.tally),
            (Err(error), None) => Err(error),
            // A server may say why before it closes a connection.
            (Err(error), Some(first)) => Err(io::Error::new(
                error.kind(),
                format!("{error}; before that, an unexpected answer to {first}"),
            )),
        }
    }

    fn now_ns(&self) -> u64 {
        // Five centuries fit.
        self.shared.start.elapsed().as_nanos() as u64
    }

    fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    fn fill(&mut self, numbers: &mut std::ops::Range<u64>) -> io::Result<()> {
        let mut next = || numbers.next().map(|number| (Class::Set, number));
        for index in 0..self.connections.len() {
            self.batch(index, 0, &mut next)?;
        }
        let mut last_answer_ns = self.now_ns();
        while self.outstanding > 0 && !self.stopped() {
            for event in 0..self.poll.wait(TICK)? {
                let before = self.outstanding;
                if let Some((index, now)) = self.handle(event)? {
                    self.shared.filled.fetch_add((before - self.outstanding) as u64, Ordering::Relaxed);
                    last_answer_ns = now;
                    self.batch(index, now, &mut next)?;
                }
            }
            if self.now_ns().saturating_sub(last_answer_ns) > STALL_MAX.as_nanos() as u64 {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer for 30 s"));
            }
        }
        Ok(())
    }

    fn closed(&mut self, mut draws: Draws) -> io::Result<()> {
        let mut next = || Some(draws.next());
        let end = self.shared.window.1;
        for index in 0..self.connections.len() {
            let now = self.now_ns();
            self.batch(index, now, &mut next)?;
        }
        while self.outstanding > 0 && !self.stopped() {
            for event in 0..self.poll.wait(TICK)? {
                if let Some((index, now)) = self.handle(event)?
                    && now < end
                {
                    self.batch(index, now, &mut next)?;
                }
            }
            if self.now_ns() > end + DRAIN_MAX.as_nanos() as u64 {
                break;
            }
        }
        self.give_up();
        Ok(())
    }

    fn open(&mut self, mut draws: Draws, mut schedule: Schedule) -> io::Result<()> {
        let (begin, end) = self.shared.window;
        let room = self.connections.len() * self.shared.depth;
        let mut dirty = Vec::with_capacity(room);
        let mut turn = 0;
        while !self.stopped() {
            let now = self.now_ns();
            while schedule.due_ns() <= now && schedule.due_ns() < end && self.outstanding < room {
                // Connections take turns; one that has all it may have is passed over.
                while self.connections[turn].pending() == self.shared.depth {
                    turn = (turn + 1) % self.connections.len();
                }
                let due = schedule.due_ns();
                schedule.advance();
                if due >= begin {
                    self.tally.late.saturating_record((now - due).max(1));
                }
                self.put(turn, due, draws.next());
                dirty.push(turn);
                turn = (turn + 1) % self.connections.len();
            }
            for index in dirty.drain(..) {
                if self.connections[index].is_dirty() {
                    self.flush(index, now)?;
                }
            }
            let all_sent = schedule.due_ns() >= end;
            if (all_sent && self.outstanding == 0) || now > end + DRAIN_MAX.as_nanos() as u64 {
                break;
            }
            let timeout = match all_sent || self.outstanding == room {
                true => TICK,
                false => TICK.min(Duration::from_nanos(schedule.due_ns().saturating_sub(self.now_ns()))),
            };
            for event in 0..self.poll.wait(timeout)? {
                self.handle(event)?;
            }
        }
        self.give_up();
        // What was due and never sent has waited as well: leaving it out would hide the overload.
        let now = self.now_ns();
        while schedule.due_ns() < end && !self.stopped() {
            let since_ns = schedule.due_ns();
            let (class, number) = draws.next();
            self.tally_unanswered(Pending { since_ns, number, class }, now);
            schedule.advance();
        }
        Ok(())
    }

    /// Sends a batch on a connection that owes nothing.
    fn batch(
        &mut self,
        index: usize,
        now: u64,
        next: &mut impl FnMut() -> Option<(Class, u64)>,
    ) -> io::Result<()> {
        if self.connections[index].pending() > 0 {
            return Ok(());
        }
        for _ in 0..self.shared.depth {
            let Some(request) = next() else { break };
            self.put(index, now, request);
        }
        self.flush(index, now)
    }

    fn put(&mut self, index: usize, since_ns: u64, (class, number): (Class, u64)) {
        let out = self.connections[index].request(Pending { since_ns, number, class });
        let key = self.keys.text(number);
        match class {
            Class::Get => self.shared.protocol.put_get(out, key),
            Class::Set => self.shared.protocol.put_set(out, key, &self.shared.values.of(number)),
        }
        self.outstanding += 1;
    }

    fn flush(&mut self, index: usize, now: u64) -> io::Result<()> {
        let sent = match self.connections[index].flush() {
            Ok(sent) => sent,
            Err(error) => {
                // An answer that says why the server has closed the connection may wait to be read.
                return Err(self.receive(index).err().filter(explain::is_reason).unwrap_or(error));
            }
        };
        let connection = &mut self.connections[index];
        if self.shared.measures(now) {
            self.tally.sent_bytes += sent as u64;
        }
        let must_watch = connection.is_dirty();
        if must_watch != connection.watches_writing {
            self.poll.watch_writing(connection, index, must_watch)?;
            connection.watches_writing = must_watch;
        }
        Ok(())
    }

    /// Follows up one event. The connection and the time when something was read from it.
    fn handle(&mut self, event: usize) -> io::Result<Option<(usize, u64)>> {
        let event = self.poll.event(event);
        if event.writable {
            let now = self.now_ns();
            self.flush(event.token, now)?;
        }
        if !event.readable {
            return Ok(None);
        }
        self.receive(event.token).map(|now| Some((event.token, now)))
    }

    /// Reads what has come on a connection. Returns the time of the last read.
    fn receive(&mut self, index: usize) -> io::Result<u64> {
        let Generator { shared, connections, tally, outstanding, keys, .. } = self;
        let connection = &mut connections[index];
        loop {
            let received = connection.receive()?;
            let now = shared.start.elapsed().as_nanos() as u64;
            let measured = shared.measures(now);
            if measured {
                tally.received_bytes += received as u64;
            }
            connection.answers(shared.protocol, |pending, answer| {
                *outstanding -= 1;
                tally.completed += u64::from(measured);
                let counts = match shared.open {
                    true => shared.measures(pending.since_ns),
                    false => measured,
                };
                if counts {
                    // An answer within the resolution of the clock counts as a nanosecond.
                    let latency = now.saturating_sub(pending.since_ns).max(1);
                    tally.class(pending.class).saturating_record(latency);
                }
                shared.judge(tally, keys, pending, answer, measured);
            })?;
            // No event tells of bytes that TLS has taken from the socket and not handed out.
            if !connection.has_more() {
                return Ok(now);
            }
        }
    }

    /// Counts what is still owed.
    fn give_up(&mut self) {
        let now = self.now_ns();
        for index in 0..self.connections.len() {
            while let Some(pending) = self.connections[index].give_up() {
                self.tally_unanswered(pending, now);
            }
        }
        self.outstanding = 0;
    }

    /// An unanswered request has taken at least until now.
    fn tally_unanswered(&mut self, pending: Pending, now: u64) {
        self.tally.unanswered += 1;
        if self.shared.measures(pending.since_ns) {
            self.tally.class(pending.class).saturating_record(now.saturating_sub(pending.since_ns).max(1));
        }
    }
}

impl<P: Protocol> Shared<'_, P> {
    fn measures(&self, now_ns: u64) -> bool {
        (self.window.0..self.window.1).contains(&now_ns)
    }

    /// Counts what the answer says.
    fn judge(
        &self,
        tally: &mut Tally,
        keys: &mut Keys,
        pending: Pending,
        answer: Answer<'_>,
        measured: bool,
    ) {
        let mut wrong = |what: &str, said: &[u8]| {
            tally.error(|| {
                let name = match pending.class {
                    Class::Get => "GET",
                    Class::Set => "SET",
                };
                let key = String::from_utf8_lossy(keys.text(pending.number)).into_owned();
                format!("{name} {key}: {what}{}", explain::with_hint(&String::from_utf8_lossy(said)))
            });
        };
        match (pending.class, answer) {
            (Class::Get, Answer::Value(value)) => {
                let size = self.values.size(pending.number);
                if value.len() != size {
                    wrong(&format!("{} bytes instead of {size}", value.len()), b"");
                } else if self.verify && !self.values.of(pending.number).is(value) {
                    wrong("not the value that was written", b"");
                }
            }
            (Class::Get, Answer::Missing) => tally.misses += u64::from(measured),
            (Class::Set, Answer::Stored) => {}
            (_, Answer::Refused(text)) => wrong("", text),
            (_, Answer::Value(_) | Answer::Missing | Answer::Stored) => {
                wrong("the answer to something else", b"")
            }
        }
    }
}
