//! Changes of keys on the core that owns them.

use super::shard::{Refused, Shard};
use super::{Place, Refusal};
use crate::core::{Core, OpError};
use crate::env::call;
use crate::log::Ticket;
use nigh_engine::kv::operate::{Call, Change, Expiry, OperateError, Outcome};
use nigh_engine::kv::{Action, Op, Reply};
use std::rc::Rc;

/// What a change has come to: the answer, and the log position that must be durable before it is given.
pub type Changed<R> = (R, Option<Ticket>);

/// Changes between two looks whether the log has grown too long.
const UNCHECKED_MAX: u32 = 64;

impl Core {
    /// Carries out an operation on a key of this core's, [`Op::Flush`] excepted ([`Core::flush_keys`]). When it returns the change is
    /// visible to all cores, and durable once [`Core::wait_durable`] has returned for the ticket.
    ///
    /// Waits only while the log has no room. Some 200 ns, and what copies of the value take.
    ///
    /// # Errors
    /// [`OpError::BadRequest`] for mistakes of the caller (`incr value is not 8 bytes`, `value too large`, `ttlMs out of range`),
    /// [`OpError::StoreFull`], and those of the log.
    ///
    /// # Panics
    /// When another core owns the key.
    pub async fn change_key(&self, place: Place, op: Op<'_>) -> Result<Changed<Reply>, OpError> {
        self.change_with(place, |shard, now_ms| Ok(shard.writer.prepare(op, now_ms)?)).await
    }

    /// Carries out a call of `operate` on a record of this core's; `None`: there is no record and the call makes none. As
    /// [`Self::change_key`]. A call whose CHECK fails or that changes nothing leaves no trace in the log.
    ///
    /// # Errors
    /// As the record says, or as for [`Self::change_key`].
    pub async fn operate_key(
        &self,
        place: Place,
        args: &Call<'_>,
    ) -> Result<Changed<Option<Vec<u8>>>, Refusal> {
        let (answer, ticket) = self
            .change_with(place, |shard, now_ms| {
                Ok(shard.writer.prepare_update(args.key, now_ms, |stored| decide(args, stored, now_ms))?)
            })
            .await
            .map_err(Refusal::Store)?;
        Ok((answer.map_err(Refusal::Operate)?, ticket))
    }

    async fn change_with<'a, R>(
        &self,
        place: Place,
        mut prepare: impl FnMut(&mut Shard, u64) -> Result<nigh_engine::kv::Prepared<'a, R>, Refused>,
    ) -> Result<Changed<R>, OpError> {
        let keys = self.keys();
        assert_eq!(place.core, keys.index, "a key is changed by its owner");
        let log = self.log();
        if log.is_some() && keys.unchecked.replace((keys.unchecked.get() + 1) % UNCHECKED_MAX) == 0 {
            self.room_in_log(0).await?;
        }
        loop {
            let refused = {
                let now_ms = self.env().unix_ms();
                let shard = &mut keys.owned.borrow_mut()[place.shard / keys.shared.cores];
                let prepared = prepare(shard, now_ms);
                match prepared.and_then(|prepared| shard.commit(log.as_deref(), prepared, now_ms)) {
                    Ok(changed) => return Ok(changed),
                    Err(refused) => refused,
                }
            };
            match refused {
                Refused::NoRoom(bytes) => self.room_in_log(bytes).await?,
                Refused::Error(error) => return Err(error),
            }
        }
    }

    /// Reads a key of this core's where a view could not ([`nigh_engine::kv::Read::Contended`]): appends the value; whether it is there.
    ///
    /// # Panics
    /// When another core owns the key.
    pub fn key_get_here(&self, place: Place, key: &[u8], out: &mut Vec<u8>) -> bool {
        let keys = self.keys();
        assert_eq!(place.core, keys.index, "only the owner can always tell");
        let shard = &mut keys.owned.borrow_mut()[place.shard / keys.shared.cores];
        let is_hit = shard.writer.get(key, self.env().unix_ms(), out).is_some();
        keys.note_get(is_hit);
        is_hit
    }

    /// Removes all keys, shard by shard, and waits until that is durable. Keys that are written meanwhile may stay.
    ///
    /// # Errors
    /// Those of the log; some shards may be empty then.
    pub async fn flush_keys(self: &Rc<Self>) -> Result<(), OpError> {
        for to in 0..self.env().cores() {
            let flushed = call(self, to, |there| async move { there.flush_own_keys().await }).await;
            flushed.map_err(|busy| OpError::Busy(busy.to_string()))??;
        }
        Ok(())
    }

    async fn flush_own_keys(&self) -> Result<(), OpError> {
        let keys = self.keys();
        let own = keys.owned.borrow().len();
        let mut newest = None;
        for index in 0..own {
            let shard = index * keys.shared.cores + keys.index;
            // Any hash: a flush has no key.
            let place = Place { hash: keys.place_of(b"").hash, core: keys.index, shard };
            let (_, ticket) = self.change_key(place, Op::Flush).await?;
            newest = newest.max(ticket);
            self.env().yield_now().await;
        }
        self.wait_durable(newest).await
    }
}

/// What a call makes of what is stored.
fn decide(
    call: &Call<'_>,
    stored: Option<(&[u8], u64)>,
    now_ms: u64,
) -> (Action, Result<Option<Vec<u8>>, OperateError>) {
    let outcome = match call.program.apply(stored.map(|(value, _)| value), now_ms) {
        Ok(outcome) => outcome,
        Err(error) => return (Action::Keep, Err(error)),
    };
    let before_ms = stored.map_or(0, |(_, deadline_ms)| deadline_ms);
    let deadline_ms = match call.expiry(&outcome, stored.is_some()) {
        Expiry::Keep => before_ms,
        Expiry::Remove => 0,
        Expiry::Set(ttl_ms) => now_ms.saturating_add(ttl_ms),
    };
    match outcome {
        Outcome::NotFound => (Action::Keep, Ok(None)),
        Outcome::CheckFailed { result } => (Action::Keep, Ok(Some(result))),
        Outcome::Done { change, result } => {
            let action = match change {
                Change::Keep if deadline_ms == before_ms => Action::Keep,
                Change::Keep => Action::Deadline { deadline_ms },
                Change::Replace(value) => Action::Set { value, deadline_ms },
                Change::Delete => Action::Delete,
            };
            (action, Ok(Some(result)))
        }
    }
}
