//! Payload changes on the owner core: the row that a change makes is logged, so that replay needs no merge.

use super::indexer::settle_texts;
use super::{Owned, log_error, op_record};
use crate::account::Growth;
use crate::core::{Core, OpError, PAYLOAD_ROW_MAX_BYTES, PayloadChange, PointOperated};
use crate::log::{Purpose, RecordKey, Ticket};
use nigh_engine::collection::{RowWrite, WriteError};
use nigh_engine::kv::operate::Call;
use nigh_engine::payload::{Operated, PayloadRow, operate};
use std::rc::Rc;

/// What a change makes of a payload.
enum Made<T> {
    /// Another row.
    Row(Vec<u8>, T),
    /// None: the point stays as it is, version included.
    Nothing(T),
}

impl Core {
    /// Changes the payload of one point on the owner core and answers when it is durable: the new version.
    pub(crate) async fn owned_change_payload(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        id: u64,
        change: PayloadChange,
        expected_version: Option<u64>,
    ) -> Result<u64, OpError> {
        let make = |old: &[u8], now_ms| Ok(Made::Row(change.row(old, now_ms)?, ()));
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
        let make = |old: &[u8], now_ms| {
            Ok(match operate(PayloadRow::trusted(old), key, &program, now_ms)? {
                Operated::NotFound => Made::Nothing(None),
                Operated::CheckFailed { result } => Made::Nothing(Some(result)),
                Operated::Done { row, .. } if row.encoded_bound() > PAYLOAD_ROW_MAX_BYTES => {
                    return Err(OpError::PayloadTooLarge);
                }
                Operated::Done { row, result } => Made::Row(row.finish(), Some(result)),
            })
        };
        match self.owned_rewrite(uid, name, id, expected_version, make).await {
            Ok((Some(result), version)) => Ok(PointOperated::Done { result, version }),
            Ok((None, _)) => Ok(PointOperated::NoRecord),
            Err(OpError::PointNotFound(_)) => Ok(PointOperated::NoPoint),
            Err(error) => Err(error),
        }
    }

    /// Replaces the payload of a point by what `make` makes of it, and answers when that is durable: what `make` has to say, and the
    /// version of the point. `make` may be asked more than once, and only the last answer counts.
    async fn owned_rewrite<T>(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        id: u64,
        expected_version: Option<u64>,
        make: impl Fn(&[u8], u64) -> Result<Made<T>, OpError>,
    ) -> Result<(T, u64), OpError> {
        let owned = self.owned(uid).ok_or_else(|| OpError::UnknownCollection(name.to_owned()))?;
        loop {
            let (seq, made, version) = self.made_row(&owned, id, expected_version, &make)?;
            let (row, answer) = match made {
                Made::Row(row, answer) => (row, answer),
                Made::Nothing(answer) => return Ok((answer, version)),
            };
            let version = version + 1;
            // A change of text takes a place in the tail.
            let must_wait =
                || !owned.dropped.get() && owned.tail_is_full() && owned.writer.borrow().moves(id, &row);
            owned.tail_room.wait(&owned.changed, must_wait).await;
            self.room_in_log(Purpose::Grow, op_record::payload_bytes(&row)).await?;
            // Waiting for room is rare, and expiry takes no number; if anything was written meanwhile the change is made of what is there now.
            let alive = owned.writer.borrow().check_rewrite(id, None, self.env().unix_ms())?.is_some();
            if owned.writer.borrow().seq() != seq || !alive {
                continue;
            }
            let ticket = self.write_row(&owned, id, version, &row)?;
            settle_texts(self.env(), &owned.writer).await;
            self.wait_durable(ticket).await?;
            return Ok((answer, version));
        }
    }

    /// All checks, and what `make` makes of the point: the sequence number it was looked at, that, and the version it has now.
    fn made_row<T>(
        &self,
        owned: &Owned,
        id: u64,
        expected_version: Option<u64>,
        make: &impl Fn(&[u8], u64) -> Result<Made<T>, OpError>,
    ) -> Result<(u64, Made<T>, u64), OpError> {
        owned.usable()?;
        let now_ms = self.env().unix_ms();
        let writer = owned.writer.borrow();
        let Some((old, version)) = writer.check_rewrite(id, expected_version, now_ms)? else {
            return Err(OpError::PointNotFound(id));
        };
        let made = make(old, now_ms)?;
        if let Made::Row(row, _) = &made {
            // A payload that shrinks or stays takes no more, once the old one is gone; one that grows is let through as a replacement of
            // the point is.
            let bytes = writer.shared().bytes_of_point(row.len(), false);
            self.room_in_memory(bytes, Growth::Reuse)?;
        }
        Ok((writer.seq(), made, version))
    }

    /// Logs and applies, without an await in between.
    fn write_row(&self, owned: &Owned, id: u64, version: u64, row: &[u8]) -> Result<Option<Ticket>, OpError> {
        owned.usable()?;
        let mut writer = owned.writer.borrow_mut();
        if writer.moves(id, row) {
            if !writer.has_slot() {
                return Err(OpError::Write(WriteError::Full));
            }
            writer.commit_next()?;
        }
        let seq = writer.seq() + 1;
        let ticket = match self.log() {
            None => None,
            Some(log) => {
                let mut record = Vec::new();
                op_record::encode_payload(&mut record, id, version, row);
                let key = RecordKey { collection: owned.handle.uid, seq };
                Some(log.append(key, &record).map_err(log_error)?)
            }
        };
        writer.apply_row(&RowWrite { seq, id, version, row });
        drop(writer);
        owned.changed.notify();
        owned.note_delta(id);
        Ok(ticket)
    }
}
