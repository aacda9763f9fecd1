//! Payload changes on the owner core: the row that a change makes is logged, so that replay needs no merge.

use super::{Owned, log_error, op_record};
use crate::core::{Core, OpError, PayloadChange};
use crate::log::{RecordKey, Ticket};
use nigh_engine::collection::{RowWrite, WriteError};
use std::rc::Rc;

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
        let owned = self.owned(uid).ok_or_else(|| OpError::UnknownCollection(name.to_owned()))?;
        loop {
            let (seq, row, version) = self.changed_row(&owned, id, &change, expected_version)?;
            // A change of text takes a place in the tail.
            while !owned.dropped.get() && owned.tail_is_full() && owned.writer.borrow().moves(id, &row) {
                owned.indexed.wait().await;
            }
            self.room_in_log(op_record::payload_bytes(&row)).await?;
            // Waiting for room is rare, and expiry takes no number; if anything was written meanwhile the change is made of what is there now.
            let alive = owned.writer.borrow().check_rewrite(id, None, self.env().unix_ms())?.is_some();
            if owned.writer.borrow().seq() != seq || !alive {
                continue;
            }
            let ticket = self.write_row(&owned, id, version, &row)?;
            self.wait_durable(ticket).await?;
            return Ok(version);
        }
    }

    /// All checks, and what the change makes of the point: the sequence number it was looked at, the row and its version.
    fn changed_row(
        &self,
        owned: &Owned,
        id: u64,
        change: &PayloadChange,
        expected_version: Option<u64>,
    ) -> Result<(u64, Vec<u8>, u64), OpError> {
        owned.usable()?;
        // A payload that shrinks or stays needs no room; one that grows is let through as a replacement of the point is.
        self.room_in_memory(true)?;
        let now_ms = self.env().unix_ms();
        let writer = owned.writer.borrow();
        let Some((old, version)) = writer.check_rewrite(id, expected_version, now_ms)? else {
            return Err(OpError::PointNotFound(id));
        };
        Ok((writer.seq(), change.row(old, now_ms)?, version + 1))
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
