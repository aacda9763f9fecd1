//! Carrying out operations on lists of keys, which several cores own: `mget` and `put_batch`.

use crate::door::logged;
use crate::op::{ApiError, ErrorKind, KvOp};
use crate::room::Room;
use crate::tcp::frame::{self, Begun};
use crate::tcp::kv::{self, KvRequest};
use nigh_engine::kv::{Op, Read};
use nigh_shard::core::ANSWERS_CROWDED;
use nigh_shard::kv::Keys;
use nigh_shard::kv::batch::{Answers, KeyOp, KeyResult};
use std::rc::Rc;
use std::time::Duration;

/// Appends the response to a request about a list of keys. Whatever of the connection came before has been carried out. Returns the
/// longest of the waits for logs.
pub async fn carry_out(kv: &Rc<Keys>, op: KvOp, args: &[u8], out: &mut Vec<u8>, room: &mut Room) -> Duration {
    let start = out.len();
    let (done, log) = match kv::decode(op, args) {
        Ok(KvRequest::Mget { keys }) => (mget(kv, &keys, out, room).await, Duration::ZERO),
        Ok(KvRequest::PutBatch { puts }) => put_batch(kv, &puts, out).await,
        // Single keys have one owner.
        Ok(_) => (Err(ApiError::invalid("no list of keys")), Duration::ZERO),
        Err(error) => (Err(error.into()), Duration::ZERO),
    };
    if let Err(error) = done {
        out.truncate(start);
        frame::put_refusal(out, &logged(error));
    }
    log
}

/// Each key as it is when its turn comes.
async fn mget(kv: &Rc<Keys>, wanted: &[&[u8]], out: &mut Vec<u8>, room: &mut Room) -> Result<(), ApiError> {
    let begun = Begun::at(out);
    kv::put_mget_head(out, wanted);
    let mut values = Values { out, begun, room, is_crowded: false };
    kv.get_keys(wanted, &mut values).await?;
    let Values { begun, is_crowded, .. } = values;
    if is_crowded {
        return Err(ApiError::new(ErrorKind::Unavailable, ANSWERS_CROWDED));
    }
    begun.finish(out);
    Ok(())
}

/// The values of one response, which is being appended.
struct Values<'a> {
    out: &'a mut Vec<u8>,
    begun: Begun,
    room: &'a mut Room,
    /// There is no room for more.
    is_crowded: bool,
}

impl Answers for Values<'_> {
    fn answer(&mut self, result: KeyResult<'_>) {
        match result {
            KeyResult::Value(value) => kv::put_found(self.out, Some(value)),
            _ => kv::put_found(self.out, None),
        }
    }

    fn value(&mut self, append: impl FnOnce(&mut Vec<u8>) -> Read) -> Read {
        let out = &mut *self.out;
        let start = out.len();
        out.extend_from_slice(&[1, 0, 0, 0, 0]);
        let value_start = out.len();
        let read = append(out);
        match read {
            Read::Found { .. } => {
                let len = (out.len() - value_start) as u32;
                out[start + 1..value_start].copy_from_slice(&len.to_be_bytes());
            }
            Read::Missing => {
                out.truncate(start);
                kv::put_found(out, None);
            }
            Read::Contended => out.truncate(start),
        }
        read
    }

    /// Neither more memory nor more time is for an answer that cannot be sent.
    fn is_full(&mut self) -> bool {
        self.is_crowded = !self.room.holds(self.out.len());
        self.is_crowded || self.begun.is_too_long(self.out)
    }
}

/// Each put on its own, all owners at the same time; the first error, in the order of the puts, takes the place of their number.
async fn put_batch(kv: &Rc<Keys>, puts: &[Op<'_>], out: &mut Vec<u8>) -> (Result<(), ApiError>, Duration) {
    let results = kv.carry_out_keys(puts.iter().map(|&put| KeyOp::Change(put))).await;
    let done = results.all_done().map_err(ApiError::from);
    if done.is_ok() {
        frame::put_ok(out, |out| kv::put_applied(out, results.len() as u32));
    }
    (done, Duration::from_nanos(results.log_ns()))
}
