//! Carrying out operations on one key: reads on any core, changes on the core that owns the key, batches of both there.

use crate::limits;
use crate::request::{ApiError, ErrorKind};
use crate::tcp::frame::{self, Begun};
use crate::tcp::kv::{self, KvRequest};
use crate::tcp::ops::KvOp;
use crate::tcp::reader::{ArgsError, ArgsReader};
use crate::tcp::round::take_response;
use crate::tcp::turn::Turn;
use nigh_engine::kv::operate::{Call, OperateError};
use nigh_engine::kv::{Read, Reply};
use nigh_shard::account::Charge;
use nigh_shard::core::{Core, OpError};
use nigh_shard::env::call;
use nigh_shard::keys::{Keys, Moment, Place, Refused};
use nigh_shard::log::Ticket;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests of a batch between two chances for other work of the owner: some 50 us.
const SLICE_REQUESTS: usize = 256;
/// Bytes of arguments likewise.
const SLICE_BYTES: usize = 1 << 20;
/// Between two attempts to send to a core that has too much to do.
const BUSY_POLL_US: u64 = 500;
/// And how long that goes on before the client is told.
const BUSY_MAX_US: u64 = 2_000_000;
/// Requests that are looked ahead at: as many as make a round.
const AHEAD: usize = limits::TCP_ROUND_REQUESTS_MAX;

/// The key of a request, which in all but lists of keys comes first.
///
/// # Errors
/// [`ArgsError::Short`].
pub fn key_of(args: &[u8]) -> Result<&[u8], ArgsError> {
    ArgsReader::new(args).s16("key")
}

/// Whether an operation only reads.
pub fn is_read(op: KvOp) -> bool {
    matches!(op, KvOp::Get | KvOp::Exists | KvOp::Ttl)
}

/// Responses of changes that wait for the log.
#[derive(Default)]
pub struct Changes {
    ticket: Option<Ticket>,
    /// Where each starts.
    responses: Vec<usize>,
}

impl Changes {
    fn note(&mut self, response: usize, ticket: Option<Ticket>) {
        if ticket.is_some() {
            self.ticket = self.ticket.max(ticket);
            self.responses.push(response);
        }
    }

    /// Whether there is anything to wait for.
    pub fn are_awaited(&self) -> bool {
        self.ticket.is_some()
    }

    /// Waits until all are durable. Where the log has failed, what was promised in `out` is taken back.
    pub async fn settle(self, core: &Core, out: &mut Vec<u8>) {
        let Err(error) = core.wait_durable(self.ticket).await else { return };
        let error = internal_is_logged(core.note_refusal(error).into());
        let (mut rest, mut at) = (&out[..], 0);
        let mut kept = Vec::new();
        while !rest.is_empty() {
            let response = take_response(&mut rest);
            match self.responses.binary_search(&at) {
                Ok(_) => frame::put_refusal(&mut kept, &error),
                Err(_) => kept.extend_from_slice(response),
            }
            at += response.len();
        }
        *out = kept;
    }
}

/// Logs the cause of what the client sees as an internal error.
pub fn internal_is_logged(error: ApiError) -> ApiError {
    if error.kind == ErrorKind::Internal {
        tracing::error!(target: "nigh", reason = %error.message, "internal error");
    }
    error
}

/// Appends the response to a read, from the published table of whatever core owns the key; false, with nothing appended, when
/// only the owner can tell.
pub fn read(core: &Core, op: KvOp, place: Place, key: &[u8], moment: &mut Moment, out: &mut Vec<u8>) -> bool {
    let (keys, now_ms) = (core.keys(), moment.ms(core));
    if let Err(error) = keys.healthy() {
        frame::put_refusal(out, &error.into());
        return true;
    }
    let pin = keys.pin();
    match op {
        KvOp::Exists => {
            let exists = keys.exists(&pin, place, key, now_ms);
            frame::put_ok(out, |out| kv::put_done(out, exists));
        }
        KvOp::Ttl => {
            let ttl_ms = keys.ttl(&pin, place, key, now_ms);
            frame::put_ok(out, |out| kv::put_number(out, ttl_ms));
        }
        _ => {
            // The value goes to where it is sent from.
            let begun = Begun::at(out);
            match keys.get(&pin, place, key, now_ms, out) {
                Read::Found { .. } => begun.finish(out),
                Read::Missing => {
                    begun.abandon(out);
                    frame::put_not_found(out);
                }
                Read::Contended => {
                    begun.abandon(out);
                    return false;
                }
            }
        }
    }
    true
}

/// Where requests about keys of this core append their responses. A change is visible then; `changes` says what has to be waited for.
pub struct Answers<'a> {
    /// Response frames.
    pub out: &'a mut Vec<u8>,
    /// Of responses in `out`.
    pub changes: &'a mut Changes,
    /// When it is.
    pub moment: &'a mut Moment,
}

/// Appends the response to a request about a key that this core owns.
pub async fn carry_out(core: &Core, op: KvOp, place: Place, args: &[u8], answers: &mut Answers<'_>) {
    if let Some(refused) = carry_out_now(core, op, place, args, answers) {
        carry_out_later(refused, core, op, place, args, answers).await;
    }
}

/// As [`carry_out`], for a change that [`carry_out_now`] has `refused`: waits for the log first.
pub async fn carry_out_later(
    mut refused: Box<Refused>,
    core: &Core,
    op: KvOp,
    place: Place,
    args: &[u8],
    answers: &mut Answers<'_>,
) {
    loop {
        if let Err(error) = core.after_refusal(*refused, answers.moment).await {
            return frame::put_refusal(answers.out, &internal_is_logged(error.into()));
        }
        match carry_out_now(core, op, place, args, answers) {
            None => return,
            Some(again) => refused = again,
        }
    }
}

/// As [`carry_out`], but for a change that has to wait for the log: no key has been changed and nothing appended then, and
/// [`carry_out_later`] goes on.
///
/// No future, because that would keep `args` in memory, where they are read as one piece right after they were written as two: the
/// processor finishes all stores before that, the cold lines of the entry before this one among them.
#[inline]
#[must_use = "a change that was refused has no response yet"]
pub fn carry_out_now(
    core: &Core,
    op: KvOp,
    place: Place,
    args: &[u8],
    answers: &mut Answers<'_>,
) -> Option<Box<Refused>> {
    let Answers { out, changes, moment } = answers;
    let start = out.len();
    let error = match answer(core, op, place, args, moment, out) {
        Ok(ticket) => {
            changes.note(start, ticket);
            return None;
        }
        Err(Unanswered::Later(refused)) => {
            out.truncate(start);
            return Some(refused);
        }
        Err(Unanswered::Refused(error)) => error,
    };
    out.truncate(start);
    frame::put_refusal(out, &internal_is_logged(*error));
    None
}

/// Why a request has no answer.
enum Unanswered {
    /// The log has no room.
    Later(Box<Refused>),
    Refused(Box<ApiError>),
}

impl<E: Into<ApiError>> From<E> for Unanswered {
    fn from(error: E) -> Unanswered {
        Unanswered::Refused(Box::new(error.into()))
    }
}

fn unanswered(refused: Box<Refused>) -> Unanswered {
    match *refused {
        Refused::NoRoom(..) => Unanswered::Later(refused),
        Refused::Error(error) => error.into(),
    }
}

fn answer(
    core: &Core,
    op: KvOp,
    place: Place,
    args: &[u8],
    moment: &mut Moment,
    out: &mut Vec<u8>,
) -> Result<Option<Ticket>, Unanswered> {
    match kv::decode(op, args)? {
        KvRequest::Get { key } => {
            if !read(core, op, place, key, moment, out) {
                let begun = Begun::at(out);
                if core.key_get_here(place, key, out) {
                    begun.finish(out);
                } else {
                    begun.abandon(out);
                    frame::put_not_found(out);
                }
            }
        }
        KvRequest::Exists { key } | KvRequest::Ttl { key } => {
            read(core, op, place, key, moment, out);
        }
        KvRequest::Change(change) => {
            let now_ms = moment.ms(core);
            let changed = core.change_key_now(place, change, now_ms, |reply| put_reply(out, reply));
            return changed.map_err(unanswered);
        }
        KvRequest::Operate(args) => {
            let invalid = |error: OperateError| ApiError::invalid(error.to_string());
            let call = Call::decode(args).map_err(invalid)?;
            let now_ms = moment.ms(core);
            let changed = core.operate_key_now(place, &call, now_ms, |answer| match answer {
                Ok(Some(result)) => frame::put_ok(out, |out| out.extend_from_slice(&result)),
                Ok(None) => frame::put_not_found(out),
                Err(error) => frame::put_refusal(out, &invalid(error)),
            });
            return changed.map_err(unanswered);
        }
        // Lists of keys have several owners.
        KvRequest::Mget { .. } | KvRequest::PutBatch { .. } => {
            return Err(ApiError::invalid("several keys").into());
        }
    }
    Ok(None)
}

fn put_reply(out: &mut Vec<u8>, reply: &Reply) {
    match reply {
        Reply::Done => frame::put_ok(out, |_| {}),
        Reply::Missing => frame::put_not_found(out),
        Reply::Flag(flag) => frame::put_ok(out, |out| kv::put_done(out, *flag)),
        Reply::Number(number) => frame::put_ok(out, |out| kv::put_number(out, *number)),
        Reply::Value(value) => frame::put_ok(out, |out| kv::put_found(out, value.as_deref())),
    }
}

/// Whether the response has the value, or parts of it.
pub fn returns_value(op: KvOp) -> bool {
    matches!(op, KvOp::Get | KvOp::GetSet | KvOp::GetDel | KvOp::Operate)
}

/// Whether it is a change whose response has the value, or parts of it: what has changed has to be answered.
pub fn changes_and_returns_value(op: KvOp) -> bool {
    returns_value(op) && !is_read(op)
}

/// Asks the memory for what requests about single keys are about to look at.
pub fn prefetch<'a>(keys: &Keys, requests: impl Iterator<Item = &'a [u8]>) {
    keys.prefetch(requests.filter_map(|args| key_of(args).ok()));
}

/// Responses, and how the time they took divides.
pub struct Ran {
    /// In the order of their requests.
    pub responses: Vec<u8>,
    /// What of it was a wait for the log of the core that carried them out, as far as is known.
    pub log: Duration,
    /// What counts the memory of the responses, where something does.
    pub charge: Option<Charge>,
}

impl Ran {
    /// Responses of which nothing else is known.
    pub fn without_log(responses: Vec<u8>) -> Ran {
        Ran { responses, log: Duration::ZERO, charge: None }
    }
}

/// Requests about keys of one core, copied so that they can travel.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Operation and length of its arguments.
    requests: Vec<(KvOp, usize)>,
    /// All arguments.
    args: Vec<u8>,
    /// The most bytes that a request of it may set.
    largest: usize,
    /// Bytes of values that are asked for.
    asked: usize,
}

impl Batch {
    /// Adds a request.
    pub fn push(&mut self, op: KvOp, args: &[u8]) {
        self.requests.push((op, args.len()));
        self.args.extend_from_slice(args);
        self.largest = self.largest.max(args.len());
    }

    /// Notes that the request pushed last returns a value, which has `len` bytes unless a request before it changes that. Returns
    /// about how many bytes the responses have altogether.
    pub fn asks_for(&mut self, len: usize) -> usize {
        self.asked += len.max(self.largest);
        self.asked
    }

    /// Adds a put.
    pub fn push_put(&mut self, key: &[u8], value: &[u8], ttl_ms: u64) {
        let start = self.args.len();
        // Both came behind lengths of these widths.
        self.args.extend_from_slice(&(key.len() as u16).to_be_bytes());
        self.args.extend_from_slice(key);
        self.args.extend_from_slice(&(value.len() as u32).to_be_bytes());
        self.args.extend_from_slice(value);
        self.args.extend_from_slice(&ttl_ms.to_be_bytes());
        self.requests.push((KvOp::Put, self.args.len() - start));
    }

    /// How many requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Operation and arguments of each.
    fn iter(&self) -> impl Iterator<Item = (KvOp, &[u8])> {
        let mut rest = &self.args[..];
        self.requests.iter().map(move |&(op, len)| {
            let (args, after) = rest.split_at(len);
            rest = after;
            (op, args)
        })
    }

    /// Carries out the requests in order on the core that owns their keys, and returns their responses when they are durable.
    pub async fn carry_out_on(self, core: Rc<Core>, owner: usize) -> Ran {
        let batch = Arc::new(self);
        let mut waited_us = 0;
        loop {
            let travels = batch.clone();
            let work = move |there: Rc<Core>| async move { travels.carry_out(&there).await };
            match call(&core, owner, work).await {
                Ok(ran) => return ran,
                // Nothing has run. The client is not read from meanwhile, which slows it down better than an error.
                Err(_) if waited_us < BUSY_MAX_US => {
                    waited_us += BUSY_POLL_US;
                    core.env().sleep_us(BUSY_POLL_US).await;
                }
                Err(busy) => {
                    let error = OpError::from(busy).into();
                    let mut out = Vec::new();
                    (0..batch.len()).for_each(|_| frame::put_refusal(&mut out, &error));
                    return Ran::without_log(out);
                }
            }
        }
    }

    async fn carry_out(&self, core: &Core) -> Ran {
        let mut out = Vec::new();
        let (mut moment, mut changes) = (Moment::default(), Changes::default());
        let keys = core.keys();
        let (mut sliced_bytes, mut turn) = (0, Turn::begin(core));
        let mut ahead = self.iter();
        for (place, (op, args)) in self.iter().enumerate() {
            if place % AHEAD == 0 && self.len() - place > 1 {
                prefetch(keys, ahead.by_ref().take(AHEAD).map(|(_, args)| args));
            }
            let before = out.len();
            match key_of(args) {
                Ok(key) => {
                    let place = keys.place_of(key);
                    let mut answers = Answers { out: &mut out, changes: &mut changes, moment: &mut moment };
                    carry_out(core, op, place, args, &mut answers).await;
                }
                Err(error) => frame::put_error(&mut out, &error.to_string()),
            }
            let bytes = args.len() + out.len() - before;
            sliced_bytes += bytes;
            if turn.gives_way(core, op, bytes).await {
                sliced_bytes = 0;
                moment.passes();
            }
            if place % SLICE_REQUESTS == SLICE_REQUESTS - 1 || sliced_bytes > SLICE_BYTES {
                sliced_bytes = 0;
                core.env().yield_now().await;
                moment.passes();
            }
        }
        if !changes.are_awaited() {
            return Ran::without_log(out);
        }
        let began = Instant::now();
        changes.settle(core, &mut out).await;
        Ran { responses: out, log: began.elapsed(), charge: None }
    }
}

/// Empties the store.
pub async fn flush(core: &Rc<Core>, out: &mut Vec<u8>) {
    match core.flush_keys().await {
        Ok(()) => frame::put_ok(out, |_| {}),
        Err(error) => frame::put_refusal(out, &internal_is_logged(error.into())),
    }
}
