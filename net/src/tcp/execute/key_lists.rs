//! Carrying out operations on lists of keys, which several cores own: `mget` and `put_batch`.

use super::keys::{Batch, Ran};
use crate::request::{ApiError, ErrorKind};
use crate::tcp::frame::{self, Begun};
use crate::tcp::kv::{self, KvRequest};
use crate::tcp::ops::KvOp;
use crate::tcp::room::Room;
use crate::tcp::round::take_response;
use nigh_engine::kv::{Op, Read};
use nigh_shard::core::{ANSWERS_CROWDED, Core};
use nigh_shard::event::together;
use std::rc::Rc;
use std::time::Duration;

/// Keys between two chances for other work.
const SLICE_KEYS: usize = 64;
/// Bytes copied likewise.
const SLICE_BYTES: usize = 1 << 20;

/// Appends the response to a request about a list of keys. Whatever of the connection came before has been carried out. Returns the
/// longest of the waits for logs.
pub async fn carry_out(
    core: &Rc<Core>,
    op: KvOp,
    args: &[u8],
    out: &mut Vec<u8>,
    room: &mut Room,
) -> Duration {
    let start = out.len();
    let result = match kv::decode(op, args) {
        Ok(KvRequest::Mget { keys }) => mget(core, &keys, out, room).await.map(|()| Duration::ZERO),
        Ok(KvRequest::PutBatch { puts }) => put_batch(core, &puts, out).await,
        // Single keys have one owner.
        Ok(_) => Err(ApiError::invalid("no list of keys")),
        Err(error) => Err(error.into()),
    };
    result.unwrap_or_else(|error| {
        out.truncate(start);
        frame::put_refusal(out, &error);
        Duration::ZERO
    })
}

/// Each key as it is when its turn comes.
async fn mget(core: &Rc<Core>, wanted: &[&[u8]], out: &mut Vec<u8>, room: &mut Room) -> Result<(), ApiError> {
    // While the keys are damaged their views are empty, and an answer from them would say that there are no keys.
    core.keys().healthy()?;
    let begun = Begun::at(out);
    kv::put_mget_head(out, wanted);
    for (slice, some) in wanted.chunks(SLICE_KEYS).enumerate() {
        if slice > 0 {
            core.runtime().breathe().await;
        }
        core.keys().prefetch(some.iter().copied());
        for key in some {
            let start = out.len();
            if !found(core, key, out) {
                out.truncate(start);
                let mut value = Vec::new();
                let is_there = core.key_value(key, &mut value).await?;
                kv::put_found(out, is_there.then_some(&value));
            }
            if !room.holds(out.len()) {
                return Err(ApiError::new(ErrorKind::Unavailable, ANSWERS_CROWDED));
            }
            if begun.is_too_long(out) {
                // Neither more memory nor more time for an answer that cannot be sent.
                begun.finish(out);
                return Ok(());
            }
        }
    }
    begun.finish(out);
    Ok(())
}

/// Appends what the published table says of a key; false when only its owner can tell.
fn found(core: &Core, key: &[u8], out: &mut Vec<u8>) -> bool {
    let (keys, now_ms) = (core.keys(), core.unix_ms());
    let start = out.len();
    out.extend_from_slice(&[1, 0, 0, 0, 0]);
    let value_start = out.len();
    let pin = keys.pin();
    match keys.get(&pin, keys.place_of(key), key, now_ms, out) {
        Read::Found { .. } => {
            let len = (out.len() - value_start) as u32;
            out[start + 1..value_start].copy_from_slice(&len.to_be_bytes());
        }
        Read::Missing => {
            out.truncate(start);
            kv::put_found(out, None);
        }
        Read::Contended => return false,
    }
    true
}

/// Each put on its own, all owners at the same time; the first error, in the order of the puts, takes the place of their number.
async fn put_batch(core: &Rc<Core>, puts: &[Op<'_>], out: &mut Vec<u8>) -> Result<Duration, ApiError> {
    let mut batches = vec![Batch::default(); core.env().cores()];
    let mut owners = Vec::with_capacity(puts.len());
    let mut copied = 0;
    for put in puts {
        // The decoder makes nothing else of such a list.
        let Op::Put { key, value, ttl_ms } = *put else { continue };
        let owner = core.keys().place_of(key).core;
        owners.push(owner);
        batches[owner].push_put(key, value, ttl_ms);
        copied += key.len() + value.len();
        if owners.len() % (16 * SLICE_KEYS) == 0 || copied > SLICE_BYTES {
            copied = 0;
            core.runtime().breathe().await;
        }
    }
    let running = batches.into_iter().enumerate().map(|(owner, batch)| {
        let core = core.clone();
        let nothing = Ran::without_log(Vec::new());
        async move { if batch.len() == 0 { nothing } else { batch.carry_out_on(core, owner).await } }
    });
    let ran = together(running.collect()).await;
    let log = ran.iter().map(|ran| ran.log).max().unwrap_or_default();
    let mut rest: Vec<&[u8]> = ran.iter().map(|ran| &ran.responses[..]).collect();
    for owner in &owners {
        let response = take_response(&mut rest[*owner]);
        if !frame::is_ok(response) {
            out.extend_from_slice(response);
            return Ok(log);
        }
    }
    frame::put_ok(out, |out| kv::put_applied(out, owners.len() as u32));
    Ok(log)
}
