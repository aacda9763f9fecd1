//! What operations on one key have come to, as responses.

use crate::door::logged;
use crate::op::KvOp;
use crate::tcp::frame::{self, Begun};
use crate::tcp::kv;
use nigh_engine::kv::Read;
use nigh_shard::kv::batch::{Answers, KeyResult, Unkept};

/// Whether an operation is about one key.
pub fn is_single(op: KvOp) -> bool {
    !matches!(op, KvOp::Mget | KvOp::PutBatch | KvOp::Flush)
}

/// Whether an operation only reads.
pub fn is_read(op: KvOp) -> bool {
    matches!(op, KvOp::Get | KvOp::Exists | KvOp::Ttl | KvOp::Mget)
}

/// Whether it is a change whose response has the value, or parts of it: what has changed has to be answered.
pub fn changes_and_returns_value(op: KvOp) -> bool {
    matches!(op, KvOp::GetSet | KvOp::GetDel | KvOp::Operate)
}

/// Response frames, to which results are appended as they come.
pub struct Responses<'a>(pub &'a mut Vec<u8>);

impl Answers for Responses<'_> {
    #[inline]
    fn answer(&mut self, result: KeyResult<'_>) {
        put_result(self.0, result);
    }

    #[inline]
    fn value(&mut self, append: impl FnOnce(&mut Vec<u8>) -> Read) -> Read {
        let begun = Begun::at(self.0);
        let read = append(self.0);
        match read {
            Read::Found { .. } => begun.finish(self.0),
            Read::Missing => {
                begun.abandon(self.0);
                frame::put_not_found(self.0);
            }
            Read::Contended => begun.abandon(self.0),
        }
        read
    }
}

/// Appends the response that says what an operation has come to.
#[inline]
pub fn put_result(out: &mut Vec<u8>, result: KeyResult<'_>) {
    match result {
        KeyResult::Done => frame::put_ok(out, |_| {}),
        KeyResult::Missing => frame::put_not_found(out),
        KeyResult::Flag(flag) => frame::put_ok(out, |out| kv::put_done(out, flag)),
        KeyResult::Number(number) => frame::put_ok(out, |out| kv::put_number(out, number)),
        KeyResult::Value(value) => frame::put_ok(out, |out| out.extend_from_slice(value)),
        KeyResult::Before(value) => frame::put_ok(out, |out| kv::put_found(out, value)),
        KeyResult::Refused(error) => frame::put_refusal(out, &logged(error.clone().into())),
        // Logged once, where the results of the batch have come.
        KeyResult::Failed(error) => frame::put_refusal(out, &error.clone().into()),
    }
}

/// Replaces the responses that were promised and that the log has not kept; they are named by where they start.
pub fn take_back(unkept: Unkept, out: &mut Vec<u8>) {
    let error = logged(unkept.error.into());
    let (mut rest, mut at) = (&out[..], 0);
    let mut kept = Vec::new();
    while !rest.is_empty() {
        let response = frame::take_response(&mut rest);
        match unkept.promised.binary_search(&at) {
            Ok(_) => frame::put_refusal(&mut kept, &error),
            Err(_) => kept.extend_from_slice(response),
        }
        at += response.len();
    }
    *out = kept;
}
