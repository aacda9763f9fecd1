//! Carrying out one operation: a read on any core, anything on the core that owns the key.

use super::op::{Answers, KeyOp, KeyResult};
use crate::error::OpError;
use crate::journal::Ticket;
use crate::kv::change::Moment;
use crate::kv::shard::Refused;
use crate::kv::store::KeyHome;
use crate::kv::store::Keys;
use nigh_engine::kv::Read;
use nigh_engine::kv::operate::Call;

/// Answers a read from the published table of whatever core owns the key; false, with nothing answered, when only the owner can tell.
#[inline]
pub(super) fn read(
    kv: &Keys,
    place: KeyHome,
    op: &KeyOp<'_>,
    moment: &mut Moment,
    answers: &mut impl Answers,
) -> bool {
    let (keys, now_ms) = (kv, moment.ms(kv));
    if let Err(error) = keys.healthy() {
        answers.answer(KeyResult::Refused(&error));
        return true;
    }
    let pin = keys.pin();
    match *op {
        KeyOp::Exists { key } => answers.answer(KeyResult::Flag(keys.exists(&pin, place, key, now_ms))),
        KeyOp::Ttl { key } => answers.answer(KeyResult::Number(keys.ttl(&pin, place, key, now_ms))),
        _ => {
            let key = op.key();
            let read = answers.value(|out| keys.get(&pin, place, key, now_ms, out));
            return !matches!(read, Read::Contended);
        }
    }
    true
}

/// Carries out an operation on a key of this core's. A change is visible then, and durable with the ticket.
///
/// No future, and `op` by reference, because a copy of it reads in large pieces what was written in small ones a moment before: the processor finishes
/// all stores before such a read, the cold lines of the entry before this one among them.
///
/// # Errors
/// A change that has to wait for the log: no key has been changed and nothing answered then, and [`apply_later`] goes on.
#[inline]
pub(super) fn apply_now(
    kv: &Keys,
    place: KeyHome,
    op: &KeyOp<'_>,
    moment: &mut Moment,
    answers: &mut impl Answers,
) -> Result<Option<Ticket>, Box<Refused>> {
    let changed = match op {
        KeyOp::Change(change) => {
            let now_ms = moment.ms(kv);
            kv.change_key_now(place, change, now_ms, |reply| answers.answer(reply.into()))
        }
        KeyOp::Operate { call, .. } => match Call::decode(call) {
            Ok(call) => {
                let now_ms = moment.ms(kv);
                kv.operate_key_now(place, &call, now_ms, |answer| match answer {
                    Ok(Some(result)) => answers.answer(KeyResult::Value(&result)),
                    Ok(None) => answers.answer(KeyResult::Missing),
                    Err(error) => answers.answer(KeyResult::Refused(&error.into())),
                })
            }
            Err(error) => Err(Box::new(Refused::Error(error.into()))),
        },
        KeyOp::Get { key } => {
            if !read(kv, place, op, moment, answers) {
                answers.value(|out| match kv.key_get_here(place, key, out) {
                    true => Read::Found { deadline_ms: 0 },
                    false => Read::Missing,
                });
            }
            Ok(None)
        }
        KeyOp::Exists { .. } | KeyOp::Ttl { .. } => {
            read(kv, place, op, moment, answers);
            Ok(None)
        }
    };
    match changed {
        Err(refused) => refuse(refused, answers),
        done => done,
    }
}

/// Answers a refusal for good; one for now is an error.
#[cold]
fn refuse(refused: Box<Refused>, answers: &mut impl Answers) -> Result<Option<Ticket>, Box<Refused>> {
    match *refused {
        Refused::NoRoom(..) => Err(refused),
        Refused::Error(error) => {
            answers.answer(KeyResult::Refused(&error));
            Ok(None)
        }
    }
}

/// Carries out an operation that [`apply_now`] has `refused` for now: waits for the log before each further attempt.
pub(super) async fn apply_later(
    mut refused: Box<Refused>,
    kv: &Keys,
    place: KeyHome,
    op: KeyOp<'_>,
    moment: &mut Moment,
    answers: &mut impl Answers,
) -> Option<Ticket> {
    loop {
        let waited: Result<(), OpError> = kv.after_refusal(*refused, moment).await;
        if let Err(error) = waited {
            answers.answer(KeyResult::Refused(&error));
            return None;
        }
        match apply_now(kv, place, &op, moment, answers) {
            Ok(ticket) => return ticket,
            Err(again) => refused = again,
        }
    }
}
