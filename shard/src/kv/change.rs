//! Changes of keys on the core that owns them.

use super::indexes::Indexes;
use super::shard::{Refused, Shard, store_error};
use super::store::KeyHome;
use crate::ctx::{CHECKPOINT_POLL_US, CHECKPOINT_WAIT_MAX_US};
use crate::env::call;
use crate::error::OpError;
use crate::journal::{Journal, Purpose, Ticket};
use crate::kv::store::Keys;
use nigh_engine::kv::operate::{Call, Change, Expiry, OperateError, Outcome};
use nigh_engine::kv::{Action, Op, Prepared, Read, Reply, StoreError, Writer};
use std::rc::Rc;

/// The time as operations that come one after the other see it: looked at once between two things that may take long. A look costs half
/// of what a read does.
#[derive(Debug, Default)]
pub struct Moment(Option<u64>);

impl Moment {
    /// Milliseconds since 1970.
    pub fn ms(&mut self, kv: &Keys) -> u64 {
        *self.0.get_or_insert_with(|| kv.ctx.unix_ms())
    }

    /// Something has happened that may have taken long.
    pub fn passes(&mut self) {
        self.0 = None;
    }
}

/// Changes between two looks whether the log has grown too long,
const UNCHECKED_MAX: u32 = 64;
/// where a change counts once more for so many bytes of its record.
const UNCHECKED_BYTES: usize = 16 << 10;
/// Bytes of the record of a change that has not been looked at yet: it may be one that frees room.
const NOT_KNOWN: usize = 0;

impl Keys {
    /// Carries out an operation on a key of this core's, [`Op::Flush`] excepted ([`Keys::flush_keys`]). `answer` is told what it has come
    /// to, unless it is refused; it must not touch the keys of this core. When this returns the change is visible to all cores, and durable once `Journal::wait_durable` has
    /// returned for the ticket.
    ///
    /// Some 150 ns, and what copies of the value take.
    ///
    /// # Errors
    /// [`Refused::NoRoom`] when the log has to be waited for, by [`Self::after_refusal`]: whoever tries again without that is not held up by
    /// a log that is too long. No key has been changed, but some may have been evicted. For the rest as for [`Self::change_key`].
    ///
    /// # Panics
    /// When another core owns the key.
    #[inline]
    pub fn change_key_now(
        &self,
        place: KeyHome,
        op: &Op<'_>,
        now_ms: u64,
        answer: impl FnOnce(&Reply),
    ) -> Result<Option<Ticket>, Box<Refused>> {
        self.change_now(place, now_ms, |writer| writer.prepare(op, now_ms), |reply| answer(reply))
    }

    /// Carries out a call of `operate` on a record of this core's; the answer is `None` when there is no record and the call makes none. As
    /// [`Self::change_key_now`]. A call whose CHECK fails or that changes nothing leaves no trace in the log.
    ///
    /// # Errors
    /// As for [`Self::change_key_now`]. What the record does not allow is in the answer.
    pub fn operate_key_now(
        &self,
        place: KeyHome,
        args: &Call<'_>,
        now_ms: u64,
        answer: impl FnOnce(Result<Option<Vec<u8>>, OperateError>),
    ) -> Result<Option<Ticket>, Box<Refused>> {
        let prepare = |writer: &mut Writer| {
            writer.prepare_update(args.key, now_ms, |stored| {
                let (action, answer) = decide(args, stored, now_ms);
                (action, Some(answer))
            })
        };
        self.change_now(place, now_ms, prepare, |told| answer(told.take().expect("told once")))
    }

    /// One change: admitted, decided on by `prepare` and committed, without an await in between.
    #[inline]
    fn change_now<'a, R>(
        &self,
        place: KeyHome,
        now_ms: u64,
        prepare: impl FnOnce(&mut Writer) -> Result<Prepared<'a, R>, StoreError>,
        answer: impl FnOnce(&mut R),
    ) -> Result<Option<Ticket>, Box<Refused>> {
        let keys = self;
        assert_eq!(place.core, keys.index, "a key is changed by its owner");
        let must_free = self.admit_change()?;
        let shard = &mut keys.owned.borrow_mut()[place.shard / keys.shared.cores];
        // Looked at where it lies: see `Shard::commit`.
        match &mut prepare(&mut shard.writer) {
            Ok(Prepared { effect, reply }) => {
                let indexes = &mut *keys.indexes.borrow_mut();
                if must_free && shard.purpose_of(effect.as_ref(), now_ms) == Purpose::Grow {
                    shard.tell_evicted(&*self.ctx, indexes);
                    return Err(Box::new(Refused::NoRoom(Purpose::Grow, 1)));
                }
                let committed = shard.commit(&*self.ctx, effect.as_ref(), now_ms, indexes);
                let ticket = committed.map_err(|refused| self.note_refused(shard, indexes, *refused))?;
                let looks_due = 1 + (shard.record_bytes() / UNCHECKED_BYTES) as u32;
                keys.unchecked.set(keys.unchecked.get() + looks_due);
                answer(reply);
                Ok(ticket)
            }
            Err(error) => Err(Box::new(Refused::Error(self.ctx.note_refusal(store_error(error))))),
        }
    }

    /// What depends on this node alone, before a change is decided on: whether the keys are served, and now and then whether images are
    /// far behind. True: the change is let through only if it frees room.
    #[inline]
    fn admit_change(&self) -> Result<bool, Box<Refused>> {
        if let Err(error) = self.healthy() {
            return Err(Box::new(Refused::Error(self.ctx.note_refusal(error))));
        }
        if self.ctx.node().account.holds_keys_back() {
            let error = OpError::Busy(
                "collections that are still being opened need the memory that keys would take; try again"
                    .to_owned(),
            );
            return Err(Box::new(Refused::Error(self.ctx.note_refusal(error))));
        }
        if self.unchecked.get() < UNCHECKED_MAX {
            return Ok(false);
        }
        self.unchecked.set(0);
        let is_behind = self.ctx.awaits_checkpoints(Purpose::Grow) || self.is_keys_log_too_long();
        // On a full disk it may be this deletion that lets the images be written that the log waits for.
        if is_behind && !self.ctx.is_disk_short() {
            return Err(Box::new(Refused::NoRoom(Purpose::Grow, NOT_KNOWN)));
        }
        Ok(is_behind)
    }

    /// The log has not taken a change.
    #[cold]
    fn note_refused(&self, shard: &mut Shard, indexes: &mut Indexes, refused: Refused) -> Box<Refused> {
        if !self.ctx.node().reserve.is_intact() {
            shard.tell_evicted(&*self.ctx, indexes);
        }
        Box::new(match refused {
            Refused::Error(error) => Refused::Error(self.ctx.note_refusal(error)),
            waits => waits,
        })
    }

    /// As [`Self::change_key_now`], at a `moment`, which has passed if the log had to be waited for.
    ///
    /// # Errors
    /// [`OpError::BadRequest`] for mistakes of the caller (`incr value is not 8 bytes`, `value too large`, `ttlMs out of range`),
    /// [`OpError::StoreFull`], and those of the log.
    ///
    /// # Panics
    /// When another core owns the key.
    pub async fn change_key(
        &self,
        place: KeyHome,
        op: Op<'_>,
        moment: &mut Moment,
        mut answer: impl FnMut(&Reply),
    ) -> Result<Option<Ticket>, OpError> {
        loop {
            match self.change_key_now(place, &op, moment.ms(self), &mut answer) {
                Ok(ticket) => return Ok(ticket),
                Err(refused) => self.after_refusal(*refused, moment).await?,
            }
        }
    }

    /// Waits until a start would not hold too many log records of keys any more. Not on a full disk: there room for the record decides.
    async fn wait_for_keys_image(&self) -> Result<(), OpError> {
        let mut waited_us = 0;
        // Writing to a failed log gives its own error.
        while self.is_keys_log_too_long() && !self.ctx.is_disk_short() && !self.ctx.has_failed() {
            if waited_us >= CHECKPOINT_WAIT_MAX_US || self.ctx.is_stopping() {
                return Err(OpError::Busy("checkpoints of keys do not keep up; try again".to_owned()));
            }
            self.ctx.env().sleep_us(CHECKPOINT_POLL_US).await;
            waited_us += CHECKPOINT_POLL_US;
        }
        Ok(())
    }

    /// Waits until what was refused for want of room may be tried again; the moment has passed then, whatever comes of it.
    ///
    /// # Errors
    /// That of the refusal, or of the log.
    pub async fn after_refusal(&self, refused: Refused, moment: &mut Moment) -> Result<(), OpError> {
        match refused {
            Refused::NoRoom(purpose, bytes) => {
                moment.passes();
                if purpose == Purpose::Grow {
                    self.wait_for_keys_image().await.map_err(|error| self.ctx.note_refusal(error))?;
                }
                match self.ctx.wait_for_room(purpose, bytes).await {
                    // The disk has become full meanwhile: what frees room is taken all the same, and the log refuses the rest.
                    Err(OpError::NoSpace(_)) if bytes == NOT_KNOWN => Ok(()),
                    made => made.map_err(|error| self.ctx.note_refusal(error)),
                }
            }
            Refused::Error(error) => Err(error),
        }
    }

    /// Reads a key of this core's where a view could not ([`nigh_engine::kv::Read::Contended`]): appends the value; whether it is there.
    ///
    /// # Panics
    /// When another core owns the key.
    pub fn key_get_here(&self, place: KeyHome, key: &[u8], out: &mut Vec<u8>) -> bool {
        let keys = self;
        assert_eq!(place.core, keys.index, "only the owner can always tell");
        let shard = &mut keys.owned.borrow_mut()[place.shard / keys.shared.cores];
        let is_hit = shard.writer.get(key, self.ctx.env().unix_ms(), out).is_some();
        keys.note_get(is_hit);
        is_hit
    }

    /// Appends the value of a key of whatever core, from the published table or, where that cannot tell, from its owner; whether it is
    /// there.
    ///
    /// # Errors
    /// Those of [`Self::healthy`]; [`OpError::Busy`].
    pub async fn key_value(self: &Rc<Self>, key: &[u8], out: &mut Vec<u8>) -> Result<bool, OpError> {
        let (keys, start) = (self, out.len());
        keys.healthy()?;
        let place = keys.place_of(key);
        match keys.get(&keys.pin(), place, key, self.ctx.unix_ms(), out) {
            Read::Found { .. } => return Ok(true),
            Read::Missing => return Ok(false),
            Read::Contended => out.truncate(start),
        }
        let key = key.to_vec();
        let asked = call(self, place.core, move |there| async move {
            // A restore of keys may have begun on the way.
            there.healthy()?;
            let mut value = Vec::new();
            Ok::<_, OpError>(there.key_get_here(place, &key, &mut value).then_some(value))
        });
        let value = asked.await??;
        out.extend_from_slice(value.as_deref().unwrap_or_default());
        Ok(value.is_some())
    }

    /// Removes all keys, shard by shard, and waits until that is durable. Keys that are written meanwhile may stay.
    ///
    /// # Errors
    /// Those of the log; some shards may be empty then.
    pub async fn flush_keys(self: &Rc<Self>) -> Result<(), OpError> {
        self.served()?;
        for to in 0..self.ctx.env().cores() {
            let flushed = call(self, to, |there| async move { there.flush_own_keys().await }).await;
            flushed.map_err(|busy| OpError::Busy(busy.to_string()))??;
        }
        Ok(())
    }

    async fn flush_own_keys(&self) -> Result<(), OpError> {
        let keys = self;
        let own = keys.owned.borrow().len();
        let mut newest = None;
        for index in 0..own {
            let shard = index * keys.shared.cores + keys.index;
            // Any hash: a flush has no key.
            let place = KeyHome { hash: keys.place_of(b"").hash, core: keys.index, shard };
            let ticket = self.change_key(place, Op::Flush, &mut Moment::default(), |_| {}).await?;
            newest = newest.max(ticket);
            self.ctx.env().yield_now().await;
        }
        keys.index_work.notify();
        self.ctx.wait_durable(newest).await
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
