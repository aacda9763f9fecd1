//! Operations on keys of one core, on their way to it.

use super::apply::{apply_later, apply_now};
use super::op::KeyOp;
use super::results::KeyResults;
use super::settling::{Unkept, Unsettled};
use super::turn::{Turn, may_take_long};
use crate::env::call;
use crate::error::OpError;
use crate::journal::Ticket;
use crate::kv::change::Moment;
use crate::kv::shard::Refused;
use crate::kv::store::Keys;
use crate::kv::store::{KeyHome, PREFETCHED_MAX};
use nigh_engine::kv::{KeyHash, Op};
use std::rc::Rc;
use std::sync::Arc;

/// Operations of a batch between two chances for other work of the owner: some 50 us.
const SLICE_OPS: usize = 256;
/// Bytes of operations and results likewise.
const SLICE_BYTES: usize = 1 << 20;
/// Between two attempts to send to a core that has too much to do.
const BUSY_POLL_US: u64 = 500;
/// And how long that goes on before the client is told.
const BUSY_MAX_US: u64 = 2_000_000;

/// Operations on keys of one core, copied so that they can travel.
#[derive(Debug)]
pub struct KeyBatch {
    owner: usize,
    entries: Vec<BatchEntry>,
    /// Key, value and expected value of each.
    bytes: Vec<u8>,
    /// The most bytes that an operation of it has.
    largest: usize,
    /// Bytes of values that are asked for.
    asked: usize,
}

/// One operation. Lengths count bytes of the buffer, each after those before.
#[derive(Clone, Copy, Debug)]
struct BatchEntry {
    /// So that the owner need not hash the key again.
    hash: KeyHash,
    /// What is added.
    delta: i64,
    ttl_ms: u64,
    key_len: u32,
    /// Of a value, or of a call.
    value_len: u32,
    expected_len: u32,
    kind: Kind,
}

/// Which operation it is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Get,
    Exists,
    Ttl,
    Operate,
    Put,
    Del,
    Expire,
    Incr,
    IncrEx,
    SetNx,
    GetSet,
    GetDel,
    Persist,
    Cas,
    /// A [`Kind::Cas`] that expects no value.
    CasAbsent,
    Cad,
    Caex,
    Flush,
}

/// What an operation has beside its key.
#[derive(Default)]
struct Parts<'a> {
    value: &'a [u8],
    expected: &'a [u8],
    delta: i64,
    ttl_ms: u64,
}

impl<'a> Parts<'a> {
    fn of(op: &KeyOp<'a>) -> (Kind, Parts<'a>) {
        let none = Parts::default();
        match *op {
            KeyOp::Get { .. } => (Kind::Get, none),
            KeyOp::Exists { .. } => (Kind::Exists, none),
            KeyOp::Ttl { .. } => (Kind::Ttl, none),
            KeyOp::Operate { call, .. } => (Kind::Operate, Parts { value: call, ..none }),
            KeyOp::Change(op) => match op {
                Op::Put { value, ttl_ms, .. } => (Kind::Put, Parts { value, ttl_ms, ..none }),
                Op::Del { .. } => (Kind::Del, none),
                Op::Expire { ttl_ms, .. } => (Kind::Expire, Parts { ttl_ms, ..none }),
                Op::Incr { delta, .. } => (Kind::Incr, Parts { delta, ..none }),
                Op::IncrEx { delta, ttl_ms, .. } => (Kind::IncrEx, Parts { delta, ttl_ms, ..none }),
                Op::SetNx { value, ttl_ms, .. } => (Kind::SetNx, Parts { value, ttl_ms, ..none }),
                Op::GetSet { value, ttl_ms, .. } => (Kind::GetSet, Parts { value, ttl_ms, ..none }),
                Op::GetDel { .. } => (Kind::GetDel, none),
                Op::Persist { .. } => (Kind::Persist, none),
                Op::Cas { value, expected: Some(expected), ttl_ms, .. } => {
                    (Kind::Cas, Parts { value, expected, ttl_ms, ..none })
                }
                Op::Cas { value, expected: None, ttl_ms, .. } => {
                    (Kind::CasAbsent, Parts { value, ttl_ms, ..none })
                }
                Op::Cad { expected, .. } => (Kind::Cad, Parts { expected, ..none }),
                Op::Caex { expected, ttl_ms, .. } => (Kind::Caex, Parts { expected, ttl_ms, ..none }),
                Op::Flush => (Kind::Flush, none),
            },
        }
    }

    fn op(self, kind: Kind, key: &'a [u8]) -> KeyOp<'a> {
        let Parts { value, expected, delta, ttl_ms } = self;
        KeyOp::Change(match kind {
            Kind::Get => return KeyOp::Get { key },
            Kind::Exists => return KeyOp::Exists { key },
            Kind::Ttl => return KeyOp::Ttl { key },
            Kind::Operate => return KeyOp::Operate { key, call: value },
            Kind::Put => Op::Put { key, value, ttl_ms },
            Kind::Del => Op::Del { key },
            Kind::Expire => Op::Expire { key, ttl_ms },
            Kind::Incr => Op::Incr { key, delta },
            Kind::IncrEx => Op::IncrEx { key, delta, ttl_ms },
            Kind::SetNx => Op::SetNx { key, value, ttl_ms },
            Kind::GetSet => Op::GetSet { key, value, ttl_ms },
            Kind::GetDel => Op::GetDel { key },
            Kind::Persist => Op::Persist { key },
            Kind::Cas => Op::Cas { key, value, expected: Some(expected), ttl_ms },
            Kind::CasAbsent => Op::Cas { key, value, expected: None, ttl_ms },
            Kind::Cad => Op::Cad { key, expected },
            Kind::Caex => Op::Caex { key, expected, ttl_ms },
            Kind::Flush => Op::Flush,
        })
    }
}

fn len_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("front ends bound what they receive far below 4 GiB")
}

impl KeyBatch {
    /// Of no operation yet, for the core with this index.
    pub fn new(owner: usize) -> KeyBatch {
        KeyBatch { owner, entries: Vec::new(), bytes: Vec::new(), largest: 0, asked: 0 }
    }

    /// The core that is to carry it out.
    pub fn owner(&self) -> usize {
        self.owner
    }

    /// How many operations.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an operation on a key that lies at `place`, which the owner has. Returns how many bytes were copied.
    pub fn push(&mut self, place: KeyHome, op: &KeyOp<'_>) -> usize {
        debug_assert_eq!(place.core, self.owner, "the batch is for another core");
        let (kind, Parts { value, expected, delta, ttl_ms }) = Parts::of(op);
        let (key, start) = (op.key(), self.bytes.len());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(expected);
        let (key_len, value_len, expected_len) = (len_of(key), len_of(value), len_of(expected));
        self.entries.push(BatchEntry {
            hash: place.hash,
            delta,
            ttl_ms,
            key_len,
            value_len,
            expected_len,
            kind,
        });
        let copied = self.bytes.len() - start;
        self.largest = self.largest.max(copied);
        copied
    }

    /// Notes that the operation pushed last returns a value, which has `len` bytes unless one before it changes that. Returns about how
    /// many bytes of values the results have altogether.
    pub(super) fn asks_for(&mut self, len: usize) -> usize {
        self.asked += len.max(self.largest);
        self.asked
    }

    /// About how many bytes of values the results have altogether.
    pub(super) fn asked(&self) -> usize {
        self.asked
    }

    /// Carries out the operations in order on the core that owns their keys, and returns their results when they are durable.
    ///
    /// The owner may have too much to do. Nothing has run then, and it is asked again: the client is not read from meanwhile, which
    /// slows it down better than an error.
    pub async fn carry_out(self, kv: Rc<Keys>) -> KeyResults {
        let batch = Arc::new(self);
        let mut waited_us = 0;
        loop {
            let travels = batch.clone();
            let work = move |there: Rc<Keys>| async move { travels.carry_out_here(&there).await };
            match call(&kv, batch.owner, work).await {
                Ok(results) => return results,
                Err(_) if waited_us < BUSY_MAX_US => {
                    waited_us += BUSY_POLL_US;
                    kv.ctx.env().sleep_us(BUSY_POLL_US).await;
                }
                Err(busy) => return KeyResults::failed(batch.len(), OpError::from(busy)),
            }
        }
    }

    async fn carry_out_here(&self, kv: &Keys) -> KeyResults {
        let env = kv.ctx.env();
        let (mut run, mut turn) = (Run::of(self), Turn::begin(&**env));
        let mut pause = run.go_on(kv);
        loop {
            match pause {
                Pause::Waits(refused) => {
                    // It may have been answered without a wait, as it is on a full disk: slices end behind it all the same.
                    if let Some(due) = run.wait(refused, kv).await {
                        pause = due;
                        continue;
                    }
                }
                Pause::MayHaveTakenLong { is_program, bytes } => {
                    if turn.gives_way(&**env, is_program, bytes).await {
                        run.has_paused();
                    }
                }
                Pause::SliceEnds => {
                    env.yield_now().await;
                    run.has_paused();
                }
                Pause::Done => break,
            }
            pause = run.go_on(kv);
        }
        let Run { mut results, unsettled, .. } = run;
        if unsettled.is_awaited() {
            let began_ns = env.now_ns();
            if let Err(Unkept { error, promised }) = unsettled.settle(kv).await {
                results.take_back(&promised, error);
            }
            results.log_ns = env.now_ns().saturating_sub(began_ns);
        }
        results
    }
}

/// A batch that is being carried out by the owner of its keys.
struct Run<'a> {
    batch: &'a KeyBatch,
    /// The next operation.
    at: usize,
    /// The bytes of that one and of those after it.
    rest: &'a [u8],
    results: KeyResults,
    unsettled: Unsettled,
    moment: Moment,
    /// In this slice.
    sliced_bytes: usize,
}

/// Why the operations of a batch are interrupted.
enum Pause {
    /// The next one has to wait for the log.
    Waits(Box<Refused>),
    /// It is time to look at the clock.
    MayHaveTakenLong { is_program: bool, bytes: usize },
    /// Others have a chance.
    SliceEnds,
    /// There are no more.
    Done,
}

impl<'a> Run<'a> {
    fn of(batch: &'a KeyBatch) -> Run<'a> {
        Run {
            batch,
            at: 0,
            rest: &batch.bytes,
            results: KeyResults::with_capacity(batch.len()),
            unsettled: Unsettled::default(),
            moment: Moment::default(),
            sliced_bytes: 0,
        }
    }

    /// Something else has run.
    fn has_paused(&mut self) {
        self.sliced_bytes = 0;
        self.moment.passes();
    }

    /// The next operation, where its key lies, and how many bytes it has.
    fn next_op(&self, kv: &Keys) -> Option<(KeyHome, KeyOp<'a>, usize)> {
        let entry = self.batch.entries.get(self.at)?;
        let (key, rest) = self.rest.split_at(entry.key_len as usize);
        let (value, rest) = rest.split_at(entry.value_len as usize);
        let expected = &rest[..entry.expected_len as usize];
        let &BatchEntry { delta, ttl_ms, kind, .. } = entry;
        let op = Parts { value, expected, delta, ttl_ms }.op(kind, key);
        Some((kv.place_of_hash(entry.hash), op, key.len() + value.len() + expected.len()))
    }

    /// The next operation has been answered.
    fn answered(&mut self, bytes: usize, ticket: Option<Ticket>) {
        self.unsettled.note(self.at, ticket);
        self.rest = &self.rest[bytes..];
        self.at += 1;
    }

    /// Carries out operations up to the next pause. No future, for the reason that [`apply_now`] gives.
    fn go_on(&mut self, kv: &Keys) -> Pause {
        let keys = kv;
        while let Some((place, op, bytes)) = self.next_op(kv) {
            if self.at.is_multiple_of(PREFETCHED_MAX) && self.batch.len() - self.at > 1 {
                let ahead = self.batch.entries[self.at..].iter().take(PREFETCHED_MAX);
                keys.prefetch_places(ahead.map(|entry| keys.place_of_hash(entry.hash)));
            }
            let before = self.results.value_bytes();
            match apply_now(kv, place, &op, &mut self.moment, &mut self.results) {
                Ok(ticket) => self.answered(bytes, ticket),
                Err(refused) => return Pause::Waits(refused),
            }
            let bytes = bytes + self.results.value_bytes() - before;
            if let Some(due) = self.pause_due(&op, bytes) {
                return due;
            }
        }
        Pause::Done
    }

    /// The pause that is due behind an operation that has read or written so many bytes.
    fn pause_due(&mut self, op: &KeyOp<'_>, bytes: usize) -> Option<Pause> {
        self.sliced_bytes += bytes;
        if self.at.is_multiple_of(SLICE_OPS) || self.sliced_bytes > SLICE_BYTES {
            return Some(Pause::SliceEnds);
        }
        let is_program = matches!(op, KeyOp::Operate { .. });
        may_take_long(is_program, bytes).then_some(Pause::MayHaveTakenLong { is_program, bytes })
    }

    /// Carries out the next operation, which was `refused` for now; the pause that is due behind it.
    async fn wait(&mut self, refused: Box<Refused>, kv: &Keys) -> Option<Pause> {
        let (place, op, bytes) = self.next_op(kv)?;
        let before = self.results.value_bytes();
        let ticket = apply_later(refused, kv, place, op, &mut self.moment, &mut self.results).await;
        self.answered(bytes, ticket);
        self.pause_due(&op, bytes + self.results.value_bytes() - before)
    }
}
