//! Payload changes on the owner core: the row that a change makes is logged, so that replay needs no merge.

use super::effect::{self, Effect};
use super::texts::settle_texts;
use super::{Collections, Owned};
use crate::account::Growth;
use crate::disk::BLOCK;
use crate::error::OpError;
use crate::journal::{Journal, Purpose, Ticket};
use crate::payload_change::id_changed;
use crate::payload_change::{PayloadChange, finish_row};
use crate::points::PointOperated;
use nigh_engine::collection::WriteError;
use nigh_engine::kv::operate::Call;
use nigh_engine::payload::{Operated, PayloadFormat, PayloadRow, operate};
use nigh_engine::point_id::ID_KEY;
use std::rc::Rc;

/// What a change makes of a payload.
enum Made<T> {
    /// Another row.
    Row(Vec<u8>, T),
    /// None: the point stays as it is, version included.
    Nothing(T),
}

/// A point that is about to be changed.
struct Looked<T> {
    /// The sequence number at which it was looked at.
    seq: u64,
    made: Made<T>,
    /// Its version before the change.
    version: u64,
    /// Bytes of its row before the change.
    old_bytes: usize,
}

/// A payload that was changed.
pub(crate) struct Changed {
    /// When it is durable.
    pub ticket: Option<Ticket>,
    /// Its version after the change.
    pub version: u64,
    /// Whether the point took another slot, as it does when its text changes.
    pub has_moved: bool,
}

/// What the record of a changed row is for. One that is shorter than before frees room once an image holds it, if its record takes no more
/// than that, or no more than that of a deletion: a block of the log.
fn purpose_of(old_bytes: usize, row: &[u8]) -> Purpose {
    let freed = old_bytes.saturating_sub(row.len());
    if freed > 0 && effect::payload_bytes(row) <= freed.max(BLOCK) { Purpose::Free } else { Purpose::Grow }
}

impl Collections {
    /// Changes the payload of one point on the owner core and answers when it is durable: the new version.
    pub(crate) async fn owned_change_payload(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        id: u64,
        change: PayloadChange,
        expected_version: Option<u64>,
    ) -> Result<u64, OpError> {
        let format = self.payload_format(uid, name)?;
        change.check_format(format)?;
        let make = |old: &[u8], now_ms| Ok(Made::Row(change.row(old, now_ms, format)?, ()));
        let ((), version) = self.owned_rewrite(uid, name, id, expected_version, make).await?;
        Ok(version)
    }

    /// Carries out a call on the record under `key` in the payload of one point, likewise. The version grows with every call whose
    /// operations are through, also where they change nothing.
    pub(crate) async fn owned_operate(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        id: u64,
        key: &str,
        args: &[u8],
        expected_version: Option<u64>,
    ) -> Result<PointOperated, OpError> {
        let program = Call::decode_in_payload(args)?;
        let format = self.payload_format(uid, name)?;
        let make = |old: &[u8], now_ms| {
            if key == ID_KEY && PayloadRow::trusted(old).id().is_some() {
                return Err(id_changed());
            }
            Ok(match operate(PayloadRow::trusted(old), key, &program, now_ms)? {
                Operated::NotFound => Made::Nothing(None),
                Operated::CheckFailed { result } => Made::Nothing(Some(result)),
                Operated::Done { mut row, result } => {
                    row.set_format(format);
                    Made::Row(finish_row(row)?, Some(result))
                }
            })
        };
        match self.owned_rewrite(uid, name, id, expected_version, make).await {
            Ok((Some(result), version)) => Ok(PointOperated::Done { result, version }),
            Ok((None, _)) => Ok(PointOperated::NoRecord),
            Err(OpError::PointNotFound(_)) => Ok(PointOperated::NoPoint),
            Err(error) => Err(error),
        }
    }

    /// Changes the payload of one point of many, for which nobody waits until it is durable.
    ///
    /// # Errors
    /// As of `owned_change_payload`.
    pub(crate) async fn change_one(
        self: &Rc<Self>,
        owned: &Owned,
        id: u64,
        change: &PayloadChange,
        expected_version: Option<u64>,
    ) -> Result<Changed, OpError> {
        let format = owned.handle.payload_format;
        change.check_format(format)?;
        let make = |old: &[u8], now_ms| Ok(Made::Row(change.row(old, now_ms, format)?, ()));
        Ok(self.rewrite(owned, id, expected_version, make).await?.1)
    }

    /// The format of the payloads of a collection that this core owns.
    fn payload_format(&self, uid: u64, name: &str) -> Result<PayloadFormat, OpError> {
        let owned = self.owned(uid).ok_or_else(|| OpError::UnknownCollection(name.to_owned()))?;
        Ok(owned.handle.payload_format)
    }

    /// Replaces the payload of a point by what `make` makes of it, and answers when that is durable: what `make` has to say, and the
    /// version of the point.
    async fn owned_rewrite<T>(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        id: u64,
        expected_version: Option<u64>,
        make: impl Fn(&[u8], u64) -> Result<Made<T>, OpError>,
    ) -> Result<(T, u64), OpError> {
        let owned = self.owned(uid).ok_or_else(|| OpError::UnknownCollection(name.to_owned()))?;
        let (answer, Changed { ticket, version, .. }) =
            self.rewrite(&owned, id, expected_version, make).await?;
        self.ctx().wait_durable(ticket).await?;
        Ok((answer, version))
    }

    /// The same, without waiting until it is durable. `make` may be asked more than once, and only the last answer counts.
    async fn rewrite<T>(
        self: &Rc<Self>,
        owned: &Owned,
        id: u64,
        expected_version: Option<u64>,
        make: impl Fn(&[u8], u64) -> Result<Made<T>, OpError>,
    ) -> Result<(T, Changed), OpError> {
        loop {
            let Looked { seq, made, version, old_bytes } =
                self.made_row(owned, id, expected_version, &make)?;
            let (row, answer) = match made {
                Made::Row(row, answer) => (row, answer),
                Made::Nothing(answer) => {
                    return Ok((answer, Changed { ticket: None, version, has_moved: false }));
                }
            };
            let purpose = purpose_of(old_bytes, &row);
            let version = version + 1;
            // A change of text takes a place in the tail.
            let must_wait = || {
                !owned.dropped.get() && owned.tail_is_full() && owned.writer.borrow().points().moves(id, &row)
            };
            owned.tail_room.wait(&owned.changed, must_wait).await;
            self.ctx().wait_for_room(purpose, effect::payload_bytes(&row)).await?;
            // Waiting for room is rare, and expiry takes no number; if anything was written meanwhile the change is made of what is there now.
            let alive =
                owned.writer.borrow().points().check_rewrite(id, None, self.env().unix_ms())?.is_some();
            if owned.writer.borrow().seq() != seq || !alive {
                continue;
            }
            let has_moved = owned.writer.borrow().points().moves(id, &row);
            let ticket = self.write_row(owned, id, version, &row, purpose)?;
            settle_texts(self.env(), &owned.writer).await;
            return Ok((answer, Changed { ticket, version, has_moved }));
        }
    }

    /// All checks, and what `make` makes of the point.
    fn made_row<T>(
        &self,
        owned: &Owned,
        id: u64,
        expected_version: Option<u64>,
        make: &impl Fn(&[u8], u64) -> Result<Made<T>, OpError>,
    ) -> Result<Looked<T>, OpError> {
        owned.usable()?;
        let now_ms = self.env().unix_ms();
        let writer = owned.writer.borrow();
        let Some((old, version)) = writer.points().check_rewrite(id, expected_version, now_ms)? else {
            return Err(OpError::PointNotFound(id));
        };
        let made = make(old, now_ms)?;
        if let Made::Row(row, _) = &made {
            // A payload that shrinks or stays takes no more, once the old one is gone; one that grows is let through as a replacement of
            // the point is.
            let bytes = writer.shared().bytes_of_point(row.len(), false);
            self.ctx().room_in_memory(bytes, Growth::Reuse)?;
        }
        Ok(Looked { seq: writer.seq(), made, version, old_bytes: old.len() })
    }

    /// Commits the new row, without an await since its checks.
    fn write_row(
        &self,
        owned: &Owned,
        id: u64,
        version: u64,
        row: &[u8],
        purpose: Purpose,
    ) -> Result<Option<Ticket>, OpError> {
        owned.usable()?;
        let mut writer = owned.writer.borrow_mut();
        if writer.points().moves(id, row) {
            if !writer.points().has_slot() {
                return Err(OpError::Write(WriteError::Full));
            }
            writer.commit_next()?;
        }
        let effect = Effect::Payload { id, version, row };
        let ticket = self.commit(owned, &mut writer, &effect, purpose, &mut Vec::new())?;
        drop(writer);
        owned.changed.notify();
        Ok(ticket)
    }
}
