//! Changes of single vectors of a point in a collection of named spaces, on the owner core. What is logged is the whole point, as after a write
//! into its spaces, with a mark in place of each vector that it keeps: replay needs no other record.

use super::effect::{self, Effect, NamedPart};
use super::texts::settle_texts;
use super::write::SPARSE_ROW_BYTES;
use super::{Collections, Owned};
use crate::error::OpError;
use crate::journal::{Journal, Purpose, Ticket};
use crate::payload_change::finish_row;
use crate::points::VectorsChange;
use nigh_engine::collection::{DenseWriter, Part, Parts, WriteMode};
use nigh_engine::payload::{PayloadRow, RowBuilder};
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

impl Collections {
    /// Changes vectors of one point on the owner core and answers when that is durable: the new version.
    pub(crate) async fn owned_change_vectors(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        id: u64,
        change: VectorsChange,
        expected_version: Option<u64>,
    ) -> Result<u64, OpError> {
        let unknown = || OpError::UnknownCollection(name.to_owned());
        let owned = self.owned(uid).ok_or_else(unknown)?;
        if !owned.writer.borrow().shared().is_named() || owned.token_index.get().is_some() {
            // It is of another family.
            return Err(unknown());
        }
        let must_wait = || !owned.dropped.get() && owned.tail_is_full();
        owned.tail_room.wait(&owned.changed, must_wait).await;
        // The point may change while this waits. A record that then needs more room than there is gets refused when it is appended.
        let bytes = record_bytes(&owned.writer.borrow(), id, &change);
        self.ctx().wait_for_room(Purpose::Grow, bytes).await?;
        let (version, ticket) = self
            .change_vectors(&owned, id, &change, expected_version)
            .inspect_err(|error| owned.count_refusal(error))?;
        owned.handle.counters.insert_ops.fetch_add(1, Relaxed);
        settle_texts(self.env(), &owned.writer).await;
        owned.changed.notify();
        self.ctx().wait_durable(ticket).await?;
        Ok(version)
    }

    /// All checks, the record and the change, without an await in between.
    fn change_vectors(
        &self,
        owned: &Owned,
        id: u64,
        change: &VectorsChange,
        expected_version: Option<u64>,
    ) -> Result<(u64, Option<Ticket>), OpError> {
        owned.usable()?;
        let mut writer = owned.writer.borrow_mut();
        let now_ms = self.env().unix_ms();
        self.check_spaces(owned, &writer, &change.set, &change.removed)?;
        let row = {
            let found = writer.points().check_rewrite(id, expected_version, now_ms)?;
            let (old, _) = found.ok_or(OpError::PointNotFound(id))?;
            changed_row(&writer, old, change, now_ms)?
        };
        self.room_for(&writer, row.len())?;
        let (version, parts) = decide(&writer, id, change, owned.has_rate(self.env()), now_ms)?;
        let deadline_ms = writer.points().deadline_of(id, now_ms);
        let effect = Effect::WriteNamed { id, version, deadline_ms, parts, row: &row };
        let ticket = self.commit(owned, &mut writer, &effect, Purpose::Grow, &mut Vec::new())?;
        self.populate_due(writer);
        Ok((version, ticket))
    }
}

/// Bytes of the log record of a change, at most, while the point is as it is.
fn record_bytes(writer: &DenseWriter, id: u64, change: &VectorsChange) -> usize {
    let row = writer.points().row_bytes(id) + SPARSE_ROW_BYTES;
    effect::named_bytes(writer.spaces().len(), change.set.numbers(), row)
}

/// The row of a point with other sparse vectors. Keys that have expired leave it, and so do vectors in sparse spaces that were dropped.
///
/// # Errors
/// A row that is too large; a vector that does not ascend.
fn changed_row(
    writer: &DenseWriter,
    old: &[u8],
    change: &VectorsChange,
    now_ms: u64,
) -> Result<Vec<u8>, OpError> {
    let stored = PayloadRow::trusted(old);
    let is_left =
        |space: &usize| stored.sparse_of(*space).len() > 0 && !writer.points().has_sparse_space(*space);
    let left: Vec<usize> = (0..stored.sparse_spaces()).filter(is_left).collect();
    if change.set.sparse.is_empty() && left.is_empty() {
        return Ok(old.to_vec());
    }
    let mut row = RowBuilder::from(stored);
    row.drop_expired(now_ms);
    let removed = left.into_iter().map(|space| (space, Vec::new()));
    for (space, vector) in change.set.sparse.iter().cloned().chain(removed) {
        row.set_sparse_of(space, vector).map_err(|error| OpError::Search(error.into()))?;
    }
    finish_row(row)
}

/// The version that the point gets, and what becomes of it in each dense space.
///
/// # Errors
/// What the writer refuses.
fn decide<'a>(
    writer: &DenseWriter,
    id: u64,
    change: &'a VectorsChange,
    has_rate: impl FnOnce() -> bool,
    now_ms: u64,
) -> Result<(u64, Vec<(u16, NamedPart<'a>)>), OpError> {
    let spaces = writer.spaces().len();
    let has = writer.spaces_of(id, now_ms);
    let mut each = vec![Part::Absent; spaces];
    let mut parts = Vec::with_capacity(spaces);
    for (number, part) in each.iter_mut().enumerate() {
        if let Some((_, vector)) = change.set.dense.iter().find(|(space, _)| *space == number) {
            *part = Part::Given(vector);
            parts.push((number as u16, NamedPart::Given(Cow::Borrowed(&vector[..]))));
        } else if has >> number & 1 == 1 && !change.removed.contains(&number) {
            *part = Part::Kept;
            parts.push((number as u16, NamedPart::Kept));
        }
    }
    // The version that is expected was compared before: an absent point has none.
    let version = writer.check_write(id, Parts::Each(&each), WriteMode::Upsert, None, has_rate, now_ms)?;
    Ok((version, parts))
}
