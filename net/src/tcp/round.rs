//! One round: requests of a connection that arrived together, answered together.
//!
//! Responses leave in the order of their requests, and no client can tell how its requests were carried out from one after the
//! other: a request never overtakes an earlier one on the same key or collection. Within that, what can is done at the same time:
//!
//! * a key is read on the spot, and changed on the spot where this core owns it;
//! * requests about keys of another core are gathered, and go there in one message, where they are carried out in order. A read of a
//!   key joins them when there is already one for the same core;
//! * reads of collections are under way together; points written one after the other become one batch;
//! * anything else waits for all of the round before it.
//!
//! The log is waited for once, at the end.

use crate::limits;
use crate::request::ApiError;
use crate::tcp::buffers::Inbound;
use crate::tcp::counters::{Count, Stage};
use crate::tcp::execute::keys::{self, Answers, Batch, Changes, Ran};
use crate::tcp::execute::upserts::Upserts;
use crate::tcp::execute::vector::Kind;
use crate::tcp::execute::{key_lists, kv_query, process, vector};
use crate::tcp::frame;
use crate::tcp::here::Here;
use crate::tcp::laps::Laps;
use crate::tcp::ops::{KvOp, KvQueryOp, Op, ProcessOp, VectorOp};
use crate::tcp::requests::{Request, UNKNOWN, What};
use crate::tcp::room::Room;
use crate::tcp::turn::{Turn, may_take_long};
use crate::tcp::vector::{VectorRequest, decode};
use nigh_shard::account::Charge;
use nigh_shard::core::{ANSWER_UNCOUNTED_BYTES, ANSWERS_CROWDED};
use nigh_shard::keys::{Moment, Place, Refused};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// How long a round works on requests that were gathered before other connections of the core get a turn.
const TURN: Duration = Duration::from_micros(300);

/// What became of a request on the spot.
enum Spot {
    Done,
    /// A change of a key of this core waits for the log.
    Later(Box<Refused>, KvOp, Place),
    /// Nothing has happened: it is carried out in another way.
    Elsewhere,
}

/// The place of what is being gathered for a core.
fn gathering(awaited: &[Awaited], core: usize) -> Option<usize> {
    awaited.iter().position(|awaited| matches!(awaited, Awaited::Keys(to, _) if *to == core))
}

/// Responses that come later, in order.
enum Awaited {
    /// Of requests that are still being gathered for a core.
    Keys(usize, Batch),
    /// Of points that are still being gathered.
    Upserts(Upserts),
    /// Of what is under way.
    Running(Pin<Box<dyn Future<Output = Ran>>>),
    /// All of them.
    Done(Vec<u8>),
}

/// See the module.
pub struct Round<'a, 'h> {
    here: &'h Here,
    laps: &'a mut Laps<'h>,
    started: Instant,
    /// Responses that did not have to be waited for, in order.
    out: Vec<u8>,
    /// How many.
    written: usize,
    /// For each response where it comes from: `None` is `out`. Empty while that holds of all.
    sources: Vec<Option<usize>>,
    awaited: Vec<Awaited>,
    /// Reads of collections that are not settled.
    reads: usize,
    /// The place among `awaited` of points that are being gathered.
    upserts: Option<usize>,
    /// Responses in `out` that wait for the log.
    changes: Changes,
    moment: Moment,
    /// Of all responses but those of reads of collections, which have their own.
    room: Room,
    /// Bytes of responses from other cores.
    from_others: usize,
    charges: Vec<Charge>,
}

impl<'a, 'h> Round<'a, 'h> {
    /// With nothing done; it starts with the end of the last of `laps`.
    pub fn new(here: &'h Here, laps: &'a mut Laps<'h>) -> Round<'a, 'h> {
        Round {
            here,
            started: laps.last(),
            laps,
            out: here.buffers.take(),
            written: 0,
            sources: Vec::new(),
            awaited: Vec::new(),
            reads: 0,
            upserts: None,
            changes: Changes::default(),
            moment: Moment::default(),
            room: Room::new(&here.core),
            from_others: 0,
            charges: Vec::new(),
        }
    }

    /// Carries out `requests`, which lie at the front of `inbound`, and returns their responses. May end early, when those are long:
    /// the second number says how many there are, at least one of any. The charge is to be kept as long as the responses.
    pub async fn carry_out(
        mut self,
        inbound: &mut Inbound,
        requests: &[Request],
    ) -> (Vec<u8>, usize, Option<Charge>) {
        let (mut done, mut turn) = (0, None);
        self.prefetch(inbound, requests);
        for request in requests {
            let before = self.out.len();
            match self.on_the_spot(inbound, request) {
                Spot::Done => {}
                Spot::Later(refused, op, place) => {
                    let core = &self.here.core;
                    let args = &inbound.unread()[request.args.clone()];
                    let Round { moment, out, changes, .. } = &mut self;
                    let mut answers = Answers { out, changes, moment };
                    // Boxed, as elsewhere: its state would make that of every idle connection large.
                    Box::pin(keys::carry_out_later(refused, core, op, place, args, &mut answers)).await;
                    self.wrote();
                }
                Spot::Elsewhere => self.one(inbound, request).await,
            }
            done += 1;
            self.grow();
            let bytes = request.args.len() + self.out.len().saturating_sub(before);
            if let What::Run(Op::Kv(op)) = request.what
                && may_take_long(op, bytes)
            {
                let turn = turn.get_or_insert_with(|| Turn::begin(&self.here.core));
                if Box::pin(turn.gives_way(&self.here.core, op, bytes)).await {
                    self.moment.passes();
                }
            }
            if self.reads == limits::TCP_READS_TOGETHER_MAX {
                self.settle().await;
            }
            if self.response_bytes() > limits::TCP_ROUND_RESPONSES_BYTES {
                break;
            }
        }
        self.settle().await;
        let changes = std::mem::take(&mut self.changes);
        if changes.are_awaited() {
            self.laps.end(Stage::Run);
            changes.settle(&self.here.core, &mut self.out).await;
            self.laps.end(Stage::Log);
        }
        self.here.count(Count::Requests, done as u64);
        self.here.count(Count::Rounds, 1);
        let (responses, charge) = self.assemble(&requests[..done]);
        (responses, done, charge)
    }

    /// Counts what there is of responses.
    fn grow(&mut self) {
        let bytes = self.out.len() + self.from_others;
        if bytes > ANSWER_UNCOUNTED_BYTES {
            self.room.holds(bytes);
        }
    }

    /// Bytes of responses that are there.
    fn response_bytes(&self) -> usize {
        let done = self.awaited.iter().map(|awaited| match awaited {
            Awaited::Done(responses) => responses.len(),
            _ => 0,
        });
        self.out.len() + done.sum::<usize>()
    }

    async fn one(&mut self, inbound: &mut Inbound, request: &Request) {
        match &request.what {
            What::Unauthorized => frame::put_unauthorized(&mut self.out),
            What::Refused(text) => frame::put_error(&mut self.out, text),
            What::Run(op) => return self.run(*op, inbound, request).await,
        }
        self.wrote();
    }

    /// Carries out a request about one key as far as nothing has to be waited for.
    fn on_the_spot(&mut self, inbound: &Inbound, request: &Request) -> Spot {
        let What::Run(Op::Kv(op)) = request.what else { return Spot::Elsewhere };
        if matches!(op, KvOp::Mget | KvOp::PutBatch | KvOp::Flush) {
            return Spot::Elsewhere;
        }
        if keys::changes_and_returns_value(op) && self.room.is_exhausted() {
            // It is refused before anything has changed.
            frame::put_error(&mut self.out, ANSWERS_CROWDED);
            self.wrote();
            return Spot::Done;
        }
        let args = &inbound.unread()[request.args.clone()];
        let Ok(key) = keys::key_of(args) else { return Spot::Elsewhere };
        let core = &self.here.core;
        let place = core.keys().place_of(key);
        let Round { moment, out, changes, .. } = self;
        if place.core == core.env().index() {
            if let Some(refused) =
                keys::carry_out_now(core, op, place, args, &mut Answers { out, changes, moment })
            {
                return Spot::Later(refused, op, place);
            }
        } else {
            // A read on the spot would overtake the changes that are gathered.
            let is_read = keys::is_read(op) && gathering(&self.awaited, place.core).is_none();
            if !is_read || !keys::read(core, op, place, key, moment, out) {
                return Spot::Elsewhere;
            }
        }
        self.wrote();
        Spot::Done
    }

    /// Asks the memory for the keys that several requests are about to look at.
    fn prefetch(&self, inbound: &Inbound, requests: &[Request]) {
        let on_key = |request: &&Request| matches!(request.what, What::Run(Op::Kv(op)) if !matches!(op, KvOp::Mget | KvOp::PutBatch | KvOp::Flush));
        if requests.len() > 1 {
            let args = requests.iter().filter(on_key).map(|request| &inbound.unread()[request.args.clone()]);
            keys::prefetch(self.here.core.keys(), args);
        }
    }

    async fn run(&mut self, op: Op, inbound: &mut Inbound, request: &Request) {
        if let Op::Kv(op) = op {
            return self.keys(op, &inbound.unread()[request.args.clone()]).await;
        }
        self.moment.passes();
        if let Op::Vector(op) = op {
            // Boxed, as elsewhere: its state would make that of every idle connection large.
            return Box::pin(self.vector(op, inbound, request)).await;
        }
        let here = self.here;
        if let Op::Process(ProcessOp::AliasBatch) | Op::KvQuery(_) = op {
            // Changes what names mean; finds what was written before.
            self.settle().await;
        }
        let args = &inbound.unread()[request.args.clone()];
        match op {
            Op::Process(op) => {
                let telemetry = &here.config.telemetry;
                Box::pin(process::carry_out(&here.core, telemetry, op, args, &mut self.out)).await;
            }
            Op::KvQuery(op) if here.core.options().keys.query => {
                self.laps.end(Stage::Run);
                Box::pin(kv_query::carry_out(&here.core, op, args, &mut self.out)).await;
                self.laps.end(Stage::Owners);
            }
            Op::Partition(op) => Box::pin(process::partition(&here.core, op, args, &mut self.out)).await,
            Op::Kv(_) | Op::KvQuery(_) | Op::Absent | Op::Vector(_) => {
                frame::put_error(&mut self.out, UNKNOWN)
            }
        }
        self.wrote();
    }

    async fn keys(&mut self, op: KvOp, args: &[u8]) {
        let core = &self.here.core;
        match op {
            KvOp::Mget | KvOp::PutBatch => {
                self.settle().await;
                self.moment.passes();
                self.laps.end(Stage::Run);
                let log = Box::pin(key_lists::carry_out(core, op, args, &mut self.out, &mut self.room)).await;
                // Values are found here, and set where their keys are owned.
                let stage = if op == KvOp::Mget { Stage::Run } else { Stage::Owners };
                self.laps.end_with_log(stage, log);
                return self.wrote();
            }
            KvOp::Flush => {
                self.settle().await;
                self.moment.passes();
                self.laps.end(Stage::Run);
                Box::pin(keys::flush(core, &mut self.out)).await;
                self.laps.end(Stage::Owners);
                return self.wrote();
            }
            _ => {}
        }
        let key = match keys::key_of(args) {
            Ok(key) => key,
            Err(error) => {
                frame::put_error(&mut self.out, &error.to_string());
                return self.wrote();
            }
        };
        let place = core.keys().place_of(key);
        debug_assert_ne!(place.core, core.env().index(), "carried out on the spot");
        let gathering = gathering(&self.awaited, place.core).unwrap_or_else(|| {
            self.awaited.push(Awaited::Keys(place.core, Batch::default()));
            self.awaited.len() - 1
        });
        let mut is_enough = false;
        if let Awaited::Keys(_, batch) = &mut self.awaited[gathering] {
            batch.push(op, args);
            if keys::returns_value(op) {
                let asked = batch.asks_for(core.keys().value_len(place, key));
                is_enough = asked > limits::TCP_ROUND_RESPONSES_BYTES;
            }
        }
        self.expect(gathering);
        if is_enough {
            // So that the bound on the responses of a round is looked at.
            self.settle().await;
        }
    }

    async fn vector(&mut self, op: VectorOp, inbound: &mut Inbound, request: &Request) {
        let now_ms = self.here.core.unix_ms();
        let request = if request.args.len() > limits::INLINE_JSON_MAX_BYTES {
            self.decode_apart(op, inbound, request, now_ms).await
        } else {
            decode(op, &inbound.unread()[request.args.clone()], now_ms)
        };
        self.decoded(request).await;
    }

    /// Decodes arguments that take long on a thread that may be busy for long. It borrows the connection's bytes meanwhile, which
    /// nobody else needs.
    async fn decode_apart(
        &self,
        op: VectorOp,
        inbound: &mut Inbound,
        request: &Request,
        now_ms: u64,
    ) -> Result<VectorRequest, ApiError> {
        let (bytes, start) = inbound.lend();
        let args = request.args.start + start..request.args.end + start;
        let decode = move || {
            let decoded = decode(op, &bytes[args], now_ms);
            (bytes, decoded)
        };
        let (bytes, decoded) = self.here.core.runtime().computing(decode).await;
        inbound.take_back(bytes);
        decoded
    }

    async fn decoded(&mut self, request: Result<VectorRequest, ApiError>) {
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                frame::put_refusal(&mut self.out, &error);
                return self.wrote();
            }
        };
        let core = &self.here.core;
        match (vector::kind(&request), request) {
            (Kind::Read, request) => {
                if self.upserts.is_some() {
                    self.settle().await;
                }
                self.reads += 1;
                let core = core.clone();
                let searches = vector::is_search(&request).then(|| self.here.config.telemetry.clone());
                let started = self.started;
                self.expect_new(Awaited::Running(Box::pin(async move {
                    let (mut out, mut room) = (Vec::new(), Room::new(&core));
                    vector::carry_out(&core, request, &mut room, &mut out).await;
                    if let Some(telemetry) = searches
                        && frame::is_ok(&out)
                    {
                        telemetry.core(core.env().index()).tcp_searches.record(started.elapsed());
                    }
                    Ran { charge: room.into_charge(), ..Ran::without_log(out) }
                })));
            }
            (Kind::Upsert, VectorRequest::Write(write)) => {
                let joins = self.upserts.is_some_and(
                    |place| matches!(&self.awaited[place], Awaited::Upserts(upserts) if upserts.is_like(&write)),
                );
                if !joins {
                    self.settle().await;
                    self.upserts = Some(self.awaited.len());
                    self.awaited.push(Awaited::Upserts(Upserts::like(&write)));
                }
                if let Some(place) = self.upserts {
                    if let Awaited::Upserts(upserts) = &mut self.awaited[place] {
                        upserts.push(write);
                    }
                    self.expect(place);
                }
            }
            (_, request) => {
                self.settle().await;
                self.laps.end(Stage::Run);
                let mut room = Room::new(&self.here.core);
                vector::carry_out(&self.here.core, request, &mut room, &mut self.out).await;
                self.laps.end(Stage::Collections);
                self.wrote();
            }
        }
    }

    /// A response was appended to `out`.
    fn wrote(&mut self) {
        self.written += 1;
        if !self.awaited.is_empty() {
            self.sources.push(None);
        }
    }

    /// The next response is the next one of those awaited at `place`.
    fn expect(&mut self, place: usize) {
        // Those before the first that is awaited.
        let before = if self.sources.is_empty() { self.written } else { 0 };
        self.sources.extend(std::iter::repeat_n(None, before));
        self.sources.push(Some(place));
    }

    fn expect_new(&mut self, awaited: Awaited) {
        self.awaited.push(awaited);
        self.expect(self.awaited.len() - 1);
    }

    /// Waits until everything so far has been carried out.
    async fn settle(&mut self) {
        if self.awaited.is_empty() {
            return;
        }
        (self.reads, self.upserts) = (0, None);
        let here = self.here;
        let mut waits_for = None;
        for awaited in &mut self.awaited {
            *awaited = match std::mem::replace(awaited, Awaited::Done(Vec::new())) {
                Awaited::Upserts(upserts) => {
                    waits_for = Some(Stage::Collections);
                    let core = here.core.clone();
                    Awaited::Running(Box::pin(async { Ran::without_log(upserts.carry_out(core).await) }))
                }
                Awaited::Keys(owner, batch) => {
                    // Where there are collections as well, it is seldom keys that the wait is for.
                    waits_for.get_or_insert(Stage::Owners);
                    here.count(Count::Batches, 1);
                    here.count(Count::BatchedRequests, batch.len() as u64);
                    Awaited::Running(Box::pin(batch.carry_out_on(here.core.clone(), owner)))
                }
                Awaited::Running(work) => {
                    waits_for = Some(Stage::Collections);
                    Awaited::Running(work)
                }
                done => done,
            };
        }
        let Some(stage) = waits_for else { return };
        self.moment.passes();
        self.laps.end(Stage::Run);
        let mut log = Duration::ZERO;
        let mut next = 0;
        while !self.run_for_a_turn(&mut next, &mut log).await {
            here.core.runtime().yield_now().await;
        }
        self.laps.end_with_log(stage, log);
        self.grow();
    }

    /// Runs what is under way until all of it is done, or this core has worked on it for [`TURN`]; whether all is done. A turn begins with
    /// `next`, where the one before ended. `log` becomes the longest wait for a log.
    ///
    /// A search is carried out in one poll. Without the bound a connection that asks for many at once would keep all others
    /// of its core waiting until the last of them is done.
    async fn run_for_a_turn(&mut self, next: &mut usize, log: &mut Duration) -> bool {
        poll_fn(|cx| {
            let began = Instant::now();
            let mut all = true;
            let count = self.awaited.len();
            for place in (*next..count).chain(0..*next) {
                let awaited = &mut self.awaited[place];
                if let Awaited::Running(work) = awaited {
                    if began.elapsed() > TURN {
                        *next = place;
                        return Poll::Ready(false);
                    }
                    match work.as_mut().poll(cx) {
                        Poll::Ready(ran) => {
                            *log = (*log).max(ran.log);
                            match ran.charge {
                                Some(charge) => self.charges.push(charge),
                                None => self.from_others += ran.responses.len(),
                            }
                            *awaited = Awaited::Done(ran.responses);
                        }
                        Poll::Pending => all = false,
                    }
                }
            }
            if all { Poll::Ready(true) } else { Poll::Pending }
        })
        .await
    }

    /// All responses in the order of their requests, which `requests` are, and what counts their memory.
    fn assemble(mut self, requests: &[Request]) -> (Vec<u8>, Option<Charge>) {
        let is_crowded = self.room.was_refused();
        let mut charge = self.room.into_charge();
        for more in self.charges.drain(..) {
            match &mut charge {
                Some(charge) => charge.absorb(more),
                None => charge = Some(more),
            }
        }
        if self.sources.is_empty() && !is_crowded {
            return (self.out, charge);
        }
        let mut whole = self.here.buffers.take();
        let mut written = &self.out[..];
        let mut awaited: Vec<&[u8]> = self
            .awaited
            .iter()
            .map(|awaited| if let Awaited::Done(responses) = awaited { &responses[..] } else { &[] })
            .collect();
        for (place, request) in requests.iter().enumerate() {
            let from = match self.sources.get(place).copied().flatten() {
                None => &mut written,
                Some(place) => &mut awaited[place],
            };
            let response = take_response(from);
            if is_crowded && response.len() > CROWDED_KEPT_BYTES && reads_keys(request) {
                frame::put_error(&mut whole, ANSWERS_CROWDED);
            } else {
                whole.extend_from_slice(response);
            }
        }
        self.here.buffers.give(self.out);
        (whole, charge)
    }
}

/// Responses up to this length are sent although there is no room: refusing them would gain nothing.
const CROWDED_KEPT_BYTES: usize = 1 << 10;

/// Whether a request reads keys and changes nothing: it can be refused after it was carried out. Reads of collections refuse themselves.
fn reads_keys(request: &Request) -> bool {
    match request.what {
        What::Run(Op::Kv(op)) => keys::is_read(op) || op == KvOp::Mget,
        What::Run(Op::KvQuery(op)) => op == KvQueryOp::Query,
        _ => false,
    }
}

/// Takes the first response off the front of `responses`.
pub fn take_response<'r>(responses: &mut &'r [u8]) -> &'r [u8] {
    let len = responses.first_chunk().map_or(0, |len| 4 + u32::from_be_bytes(*len) as usize);
    let (response, rest) = responses.split_at(len.min(responses.len()));
    *responses = rest;
    response
}
