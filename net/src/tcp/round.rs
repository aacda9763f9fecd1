//! One round: requests of a connection that arrived together, answered together.
//!
//! Responses leave in the order of their requests, and no client can tell how its requests were carried out from one after the
//! other: a request never overtakes an earlier one on the same key or collection. Within that, what can is done at the same time:
//!
//! * a key is read on the spot, and changed on the spot where this core owns it; requests about keys of another core go there in one
//!   message ([`Pipeline`] says how);
//! * reads of collections are under way together; points written one after the other become one batch;
//! * anything else waits for all of the round before it.
//!
//! The log is waited for once, at the end.

use crate::door::{Grant, Permit, logged};
use crate::limits;
use crate::op::{ApiError, FlushKeys, KvOp, KvQueryOp, Op, ProcessOp};
use crate::room::Room;
use crate::tcp::buffers::Inbound;
use crate::tcp::counters::{Count, Stage};
use crate::tcp::execute::keys::{self, Responses, put_result};
use crate::tcp::execute::upserts::Upserts;
use crate::tcp::execute::vector::Kind;
use crate::tcp::execute::{key_lists, kv_query, process, vector};
use crate::tcp::frame::{self, RESPONSE_HEAD_BYTES};
use crate::tcp::here::Here;
use crate::tcp::kv::{self, KvRequest};
use crate::tcp::laps::Laps;
use crate::tcp::requests::{Request, UNKNOWN, What};
use crate::tcp::vector::{VectorRequest, decode};
use crate::together::for_a_turn;
use crate::wire::payloads::Decoding;
use nigh_shard::account::Charge;
use nigh_shard::core::{ANSWER_UNCOUNTED_BYTES, ANSWERS_CROWDED};
use nigh_shard::kv::batch::{KeyResult, KeyResults, KeyResultsIter, Pipeline, Taken, Turn, may_take_long};
use nigh_shard::kv::{KeyHome, Refused};
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// What became of a request on the spot.
enum Spot {
    Done,
    /// A change of a key of this core waits for the log.
    Later(Box<Refused>, KeyHome, Grant, KvOp),
    /// It travels to the core that owns its key with the batch gathered at this place, whose results have about so many bytes.
    Joined(usize, usize),
    /// Nothing has happened: it is carried out in another way.
    Elsewhere,
}

/// The request at which [`Round::go_on`] has stopped.
struct Stop {
    /// How many it has carried out before that one.
    behind: usize,
    /// Where the response to that one starts, if it has one already.
    before: usize,
    /// What became of it.
    spot: Spot,
}

/// Responses that come later, in order.
enum Awaited {
    /// The requests are about keys of this other core, and are still being gathered.
    Keys(usize, Grant),
    /// The requests write points, and are still being gathered.
    Upserts(Permit, Upserts),
    /// The requests are being carried out.
    Running(Pin<Box<dyn Future<Output = Ran>>>),
    /// All responses are there.
    Done(Came),
}

/// Responses, and how the time they took divides.
struct Ran {
    came: Came,
    /// What of it was a wait for the log of the core that carried them out, as far as is known.
    log: Duration,
    /// What counts the memory of the responses, where something does.
    charge: Option<Charge>,
}

/// Responses in the order of their requests.
enum Came {
    Encoded(Vec<u8>),
    /// What is made a response where it is sent from.
    Results(KeyResults),
}

impl Ran {
    /// Responses that were encoded when they were made.
    fn encoded(responses: Vec<u8>, charge: Option<Charge>) -> Ran {
        Ran { came: Came::Encoded(responses), log: Duration::ZERO, charge }
    }

    fn of_keys(results: KeyResults) -> Ran {
        if let Some(error) = results.failure() {
            logged(error.clone().into());
        }
        let log = Duration::from_nanos(results.log_ns());
        Ran { came: Came::Results(results), log, charge: None }
    }
}

impl Came {
    /// Bytes of memory that they fill.
    fn bytes(&self) -> usize {
        match self {
            Came::Encoded(responses) => responses.len(),
            Came::Results(results) => results.held_bytes(),
        }
    }

    fn rest(&self) -> Rest<'_> {
        match self {
            Came::Encoded(responses) => Rest::Encoded(responses),
            Came::Results(results) => Rest::Results(results.iter()),
        }
    }
}

/// Responses that have not been taken yet.
enum Rest<'a> {
    Encoded(&'a [u8]),
    Results(KeyResultsIter<'a>),
}

impl Rest<'_> {
    /// Appends the next response to `out`, unless it `is_too_long`.
    fn put_next(&mut self, out: &mut Vec<u8>, is_too_long: impl FnOnce(usize) -> bool) {
        match self {
            Rest::Encoded(rest) => match frame::take_response(rest) {
                response if is_too_long(response.len()) => frame::put_error(out, ANSWERS_CROWDED),
                response => out.extend_from_slice(response),
            },
            Rest::Results(rest) => match rest.next() {
                Some(KeyResult::Value(value)) if is_too_long(RESPONSE_HEAD_BYTES + value.len()) => {
                    frame::put_error(out, ANSWERS_CROWDED);
                }
                Some(result) => put_result(out, result),
                None => {}
            },
        }
    }
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
    /// Requests about single keys. Responses in `out` that wait for the log are known by where they start.
    keys: Pipeline,
    /// The grant of one of them.
    on_keys: Option<Grant>,
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
            keys: Pipeline::default(),
            on_keys: None,
            room: Room::new(here.door.account()),
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
        loop {
            let Some(stop) = self.go_on(inbound.unread(), &requests[done..]) else {
                done = requests.len();
                break;
            };
            done += stop.behind;
            let (request, before) = (&requests[done], stop.before);
            match stop.spot {
                Spot::Done => {}
                Spot::Later(refused, place, grant, op) => {
                    let args = &inbound.unread()[request.args.clone()];
                    // Boxed, as elsewhere: its state would make that of every idle connection large.
                    Box::pin(self.later((refused, place), grant, op, args)).await;
                }
                Spot::Joined(place, asked) => {
                    self.expect(place);
                    if asked > limits::TCP_ROUND_RESPONSES_BYTES {
                        // So that the bound on the responses of a round is looked at.
                        self.settle().await;
                    }
                }
                Spot::Elsewhere => self.one(inbound, request).await,
            }
            done += 1;
            self.grow();
            let bytes = request.args.len() + self.out.len().saturating_sub(before);
            if let Some((_, op)) = on_keys(request)
                && may_take_long(op == KvOp::Operate, bytes)
            {
                let env = &**self.here.door.env();
                let turn = turn.get_or_insert_with(|| Turn::begin(env));
                if Box::pin(turn.gives_way(env, op == KvOp::Operate, bytes)).await {
                    self.keys.passes();
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
        let unsettled = self.keys.take_unsettled();
        if unsettled.is_awaited() {
            self.laps.end(Stage::Run);
            if let Some(grant) = self.on_keys
                && let Err(unkept) = unsettled.settle(self.here.door.kv(grant)).await
            {
                keys::take_back(unkept, &mut self.out);
            }
            self.laps.end(Stage::Log);
        }
        self.here.count(Count::Requests, done as u64);
        self.here.count(Count::Rounds, 1);
        let (responses, charge) = self.assemble(&requests[..done]);
        (responses, done, charge)
    }

    /// Carries out requests up to the first one that needs more than a few steps on the spot, or that makes the responses long; `None` if there is none.
    /// No future, so that what it works with stays in registers.
    fn go_on(&mut self, unread: &[u8], requests: &[Request]) -> Option<Stop> {
        for (behind, request) in requests.iter().enumerate() {
            let before = self.out.len();
            let spot = self.on_the_spot(unread, request);
            let bytes = request.args.len() + (self.out.len() - before);
            let is_short = on_keys(request).is_some_and(|(_, op)| !may_take_long(op == KvOp::Operate, bytes));
            if !matches!(spot, Spot::Done) || !is_short || !self.responses_are_few() {
                return Some(Stop { behind, before, spot });
            }
        }
        None
    }

    /// Whether neither the memory of the responses is counted yet nor the round ends because of them.
    fn responses_are_few(&self) -> bool {
        self.out.len() + self.from_others <= ANSWER_UNCOUNTED_BYTES
            && (self.awaited.is_empty() || self.response_bytes() <= limits::TCP_ROUND_RESPONSES_BYTES)
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
            Awaited::Done(came) => came.bytes(),
            _ => 0,
        });
        self.out.len() + done.sum::<usize>()
    }

    async fn one(&mut self, inbound: &mut Inbound, request: &Request) {
        match &request.what {
            What::Unauthorized => frame::put_unauthorized(&mut self.out),
            What::Refused(text) => frame::put_error(&mut self.out, text),
            What::Run(grant) => return self.run(*grant, inbound, request).await,
        }
        self.wrote();
    }

    /// Carries out a request about one key as far as nothing has to be waited for.
    #[inline]
    fn on_the_spot(&mut self, unread: &[u8], request: &Request) -> Spot {
        let Some((grant, op)) = on_keys(request) else { return Spot::Elsewhere };
        if !keys::is_single(op) {
            return Spot::Elsewhere;
        }
        if keys::changes_and_returns_value(op) && self.room.is_exhausted() {
            // It is refused before anything has changed.
            frame::put_error(&mut self.out, ANSWERS_CROWDED);
            self.wrote();
            return Spot::Done;
        }
        // Looked at where it was decoded to, without a copy: `Pipeline::take` says why.
        let decoded = kv::decode(op, &unread[request.args.clone()]);
        let key_op = match &decoded {
            Ok(KvRequest::One(key_op)) => key_op,
            Ok(_) => return Spot::Elsewhere,
            Err(error) => {
                frame::put_error(&mut self.out, &error.to_string());
                self.wrote();
                return Spot::Done;
            }
        };
        self.on_keys = Some(grant);
        let kv = self.here.door.kv(grant);
        let at = self.out.len();
        match self.keys.take(kv, key_op, at, &mut Responses(&mut self.out)) {
            Taken::Answered => self.wrote(),
            Taken::Waits(refused, place) => return Spot::Later(refused, place, grant, op),
            Taken::Joined { owner, asked } => return Spot::Joined(self.gathering(owner, grant), asked),
        }
        Spot::Done
    }

    /// The place of what is being gathered for a core.
    fn gathering(&mut self, owner: usize, grant: Grant) -> usize {
        let is_for_owner = |awaited: &Awaited| matches!(awaited, Awaited::Keys(to, _) if *to == owner);
        self.awaited.iter().position(is_for_owner).unwrap_or_else(|| {
            self.awaited.push(Awaited::Keys(owner, grant));
            self.awaited.len() - 1
        })
    }

    /// Goes on with a change that waits for the log.
    async fn later(&mut self, waits: (Box<Refused>, KeyHome), grant: Grant, op: KvOp, args: &[u8]) {
        let (kv, at) = (self.here.door.kv(grant), self.out.len());
        match kv::decode(op, args) {
            Ok(KvRequest::One(op)) => {
                self.keys.take_later(waits, kv, op, at, &mut Responses(&mut self.out)).await;
            }
            // It was about one key a moment ago.
            Ok(_) | Err(_) => frame::put_error(&mut self.out, UNKNOWN),
        }
        self.wrote();
    }

    /// Asks the memory for the keys that several requests are about to look at.
    fn prefetch(&self, inbound: &Inbound, requests: &[Request]) {
        if requests.len() < 2 {
            return;
        }
        let single = |request: &Request| on_keys(request).filter(|(_, op)| keys::is_single(*op));
        if let Some((grant, _)) = requests.iter().find_map(single) {
            let of_keys = requests.iter().filter(|request| single(request).is_some());
            let args = of_keys.map(|request| &inbound.unread()[request.args.clone()]);
            self.here.door.kv(grant).prefetch(args.filter_map(|args| kv::key_of(args).ok()));
        }
    }

    async fn run(&mut self, grant: Grant, inbound: &mut Inbound, request: &Request) {
        let op = grant.op();
        if let Op::Kv(op) = op {
            return self.many_keys(grant, op, &inbound.unread()[request.args.clone()]).await;
        }
        self.keys.passes();
        let permit = self.here.door.permit(grant);
        if let Op::Vector(_) | Op::Named(_) | Op::MultiVector(_) = op {
            // Boxed, as elsewhere: its state would make that of every idle connection large.
            return Box::pin(self.vector(permit, op, inbound, request)).await;
        }
        let here = self.here;
        if let Op::Process(ProcessOp::AliasBatch) | Op::KvQuery(_) = op {
            // Changes what names mean; finds what was written before.
            self.settle().await;
        }
        let args = &inbound.unread()[request.args.clone()];
        match op {
            Op::Process(op) => {
                Box::pin(process::carry_out(&permit, &here.config, op, args, &mut self.out)).await;
            }
            Op::KvQuery(op) if here.door.serves_key_queries() => {
                self.laps.end(Stage::Run);
                Box::pin(kv_query::carry_out(&permit, op, args, &mut self.out)).await;
                self.laps.end(Stage::Owners);
            }
            Op::Placement(op) => Box::pin(process::partition(&permit, op, args, &mut self.out)).await,
            Op::Kv(_) | Op::KvQuery(_) | Op::Absent | Op::Named(_) | Op::MultiVector(_) | Op::Vector(_) => {
                frame::put_error(&mut self.out, UNKNOWN)
            }
        }
        self.wrote();
    }

    /// Carries out a request about several keys; those about one were carried out on the spot.
    async fn many_keys(&mut self, grant: Grant, op: KvOp, args: &[u8]) {
        self.settle().await;
        self.keys.passes();
        self.laps.end(Stage::Run);
        if op == KvOp::Flush {
            match Box::pin(self.here.door.permit(grant).run(FlushKeys)).await {
                Ok(()) => frame::put_ok(&mut self.out, |_| {}),
                Err(error) => frame::put_refusal(&mut self.out, &error),
            }
            self.laps.end(Stage::Owners);
        } else {
            let kv = self.here.door.kv(grant);
            let log = Box::pin(key_lists::carry_out(kv, op, args, &mut self.out, &mut self.room)).await;
            // Values are found here, and set where their keys are owned.
            let stage = if op == KvOp::Mget { Stage::Run } else { Stage::Owners };
            self.laps.end_with_log(stage, log);
        }
        self.wrote();
    }

    async fn vector(&mut self, permit: Permit, op: Op, inbound: &mut Inbound, request: &Request) {
        if let Err(error) = permit.knows_collections() {
            return self.decoded(permit, Err(error)).await;
        }
        let decoding = permit.decoding();
        let request = if request.args.len() > limits::INLINE_JSON_MAX_BYTES {
            self.decode_apart(&permit, op, inbound, request, decoding).await
        } else {
            decode(op, &inbound.unread()[request.args.clone()], &decoding)
        };
        self.decoded(permit, request).await;
    }

    /// Decodes arguments that take long on a thread that may be busy for long. It borrows the connection's bytes meanwhile, which
    /// nobody else needs.
    async fn decode_apart(
        &self,
        permit: &Permit,
        op: Op,
        inbound: &mut Inbound,
        request: &Request,
        decoding: Decoding,
    ) -> Result<VectorRequest, ApiError> {
        let (bytes, start) = inbound.lend();
        let args = request.args.start + start..request.args.end + start;
        let decode = move || {
            let decoded = decode(op, &bytes[args], &decoding);
            (bytes, decoded)
        };
        let (bytes, decoded) = permit.compute(decode).await;
        inbound.take_back(bytes);
        decoded
    }

    async fn decoded(&mut self, permit: Permit, request: Result<VectorRequest, ApiError>) {
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                frame::put_refusal(&mut self.out, &error);
                return self.wrote();
            }
        };
        match (vector::kind(&permit, &request), request) {
            (Kind::Read, request) => {
                if self.upserts.is_some() {
                    self.settle().await;
                }
                self.reads += 1;
                let searches = vector::is_search(&request).then(|| self.here.config.telemetry.clone());
                let started = self.started;
                self.expect_new(Awaited::Running(Box::pin(async move {
                    let (mut out, mut room) = (Vec::new(), Room::new(permit.account()));
                    vector::carry_out(&permit, request, &mut room, &mut out).await;
                    if let Some(telemetry) = searches
                        && frame::is_ok(&out)
                    {
                        telemetry.core(permit.env().index()).tcp_searches.record(started.elapsed());
                    }
                    Ran::encoded(out, room.into_charge())
                })));
            }
            (Kind::Upsert, request) => {
                let joins = self.upserts.is_some_and(
                    |place| matches!(&self.awaited[place], Awaited::Upserts(_, upserts) if upserts.is_like(&request)),
                );
                if !joins {
                    self.settle().await;
                    if let Some(upserts) = Upserts::like(&request) {
                        self.upserts = Some(self.awaited.len());
                        self.awaited.push(Awaited::Upserts(permit, upserts));
                    }
                }
                if let Some(place) = self.upserts {
                    if let Awaited::Upserts(_, upserts) = &mut self.awaited[place] {
                        upserts.push(request);
                    }
                    self.expect(place);
                }
            }
            (Kind::Alone, request) => {
                self.settle().await;
                self.laps.end(Stage::Run);
                let mut room = Room::new(permit.account());
                vector::carry_out(&permit, request, &mut room, &mut self.out).await;
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
            *awaited = match std::mem::replace(awaited, Awaited::Done(Came::Encoded(Vec::new()))) {
                Awaited::Upserts(permit, upserts) => {
                    waits_for = Some(Stage::Collections);
                    Awaited::Running(Box::pin(async { Ran::encoded(upserts.carry_out(permit).await, None) }))
                }
                Awaited::Keys(owner, grant) => {
                    // Where there are collections as well, it is seldom keys that the wait is for.
                    waits_for.get_or_insert(Stage::Owners);
                    let (batch, kv) = (self.keys.batch_for(owner), here.door.kv(grant).clone());
                    here.count(Count::Batches, 1);
                    here.count(Count::BatchedRequests, batch.len() as u64);
                    Awaited::Running(Box::pin(async { Ran::of_keys(batch.carry_out(kv).await) }))
                }
                Awaited::Running(work) => {
                    waits_for = Some(Stage::Collections);
                    Awaited::Running(work)
                }
                done => done,
            };
        }
        let Some(stage) = waits_for else { return };
        self.keys.passes();
        self.laps.end(Stage::Run);
        let mut log = Duration::ZERO;
        let mut next = 0;
        while !self.run_for_a_turn(&mut next, &mut log).await {
            here.door.env().yield_now().await;
        }
        self.laps.end_with_log(stage, log);
        self.grow();
    }

    /// Runs what is under way for a turn of this core, which begins with `next`, where the one before was interrupted; whether all is done. `log`
    /// becomes the longest wait for a log.
    async fn run_for_a_turn(&mut self, next: &mut usize, log: &mut Duration) -> bool {
        let Round { awaited, charges, from_others, .. } = self;
        let is_running = |awaited: &Awaited| matches!(awaited, Awaited::Running(_));
        for_a_turn(awaited, next, is_running, |awaited, cx| {
            let Awaited::Running(work) = awaited else { return Poll::Ready(()) };
            work.as_mut().poll(cx).map(|ran| {
                *log = (*log).max(ran.log);
                match ran.charge {
                    Some(charge) => charges.push(charge),
                    None => *from_others += ran.came.bytes(),
                }
                *awaited = Awaited::Done(ran.came);
            })
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
        let mut written = Rest::Encoded(&self.out);
        let mut awaited: Vec<Rest<'_>> = self
            .awaited
            .iter()
            .map(|awaited| if let Awaited::Done(came) = awaited { came.rest() } else { Rest::Encoded(&[]) })
            .collect();
        for (place, request) in requests.iter().enumerate() {
            let from = match self.sources.get(place).copied().flatten() {
                None => &mut written,
                Some(place) => &mut awaited[place],
            };
            from.put_next(&mut whole, |len| is_crowded && len > CROWDED_KEPT_BYTES && reads_keys(request));
        }
        self.here.buffers.give(self.out);
        (whole, charge)
    }
}

/// Responses up to this length are sent although there is no room: refusing them would gain nothing.
const CROWDED_KEPT_BYTES: usize = 1 << 10;

/// Whether a request reads keys and changes nothing: it can be refused after it was carried out. Reads of collections refuse themselves.
fn reads_keys(request: &Request) -> bool {
    let What::Run(grant) = request.what else { return false };
    match grant.op() {
        Op::Kv(op) => keys::is_read(op),
        Op::KvQuery(op) => op == KvQueryOp::Query,
        _ => false,
    }
}

/// The operation on keys that a request is granted, if it is one.
fn on_keys(request: &Request) -> Option<(Grant, KvOp)> {
    let What::Run(grant) = request.what else { return None };
    match grant.op() {
        Op::Kv(op) => Some((grant, op)),
        _ => None,
    }
}
