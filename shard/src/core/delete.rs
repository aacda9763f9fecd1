//! Deleting many points, those that match a filter or those that are named, on the core that owns them.

use super::Core;
use crate::error::OpError;
use crate::journal::{Journal, Purpose, Ticket};
use crate::owner::{Owned, effect, settle_texts};
use crate::question::{self, Asked, OpenPoint};
use crate::slice::Slice;
use nigh_engine::collection::MatchCursor;
use nigh_engine::filter::Predicate;
use std::rc::Rc;

/// What a deletion has done so far.
#[derive(Default)]
struct Deleted {
    points: u64,
    last_ticket: Option<Ticket>,
}

impl Core {
    pub(crate) async fn owned_delete_by_filter(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        filter: &Predicate,
    ) -> Result<u64, OpError> {
        let owned = self.collections.owned(uid).ok_or_else(|| OpError::UnknownCollection(name.to_owned()))?;
        let mut done = Deleted::default();
        let ended = self.delete_matching(&owned, filter, &mut done).await;
        // Points deleted before a refusal stay deleted, so the indexer has work even then.
        owned.changed.notify();
        self.wait_durable(done.last_ticket).await?;
        ended.map(|()| done.points)
    }

    /// Deletes the points with these ids; how many there were.
    pub(crate) async fn owned_delete_ids(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        ids: &[u64],
    ) -> Result<u64, OpError> {
        let owned = self.collections.owned(uid).ok_or_else(|| OpError::UnknownCollection(name.to_owned()))?;
        let mut done = Deleted::default();
        let ended = self.delete_named(&owned, ids, &mut done).await;
        owned.changed.notify();
        self.wait_durable(done.last_ticket).await?;
        ended.map(|()| done.points)
    }

    async fn delete_named(&self, owned: &Owned, ids: &[u64], done: &mut Deleted) -> Result<(), OpError> {
        let mut record = Vec::new();
        let mut slice = Slice::begin(self.env());
        for id in ids {
            self.ctx.wait_for_room(Purpose::Free, effect::DELETE_BYTES).await?;
            self.delete_one(owned, *id, &mut record, done).await?;
            slice.check().await;
        }
        Ok(())
    }

    async fn delete_one(
        &self,
        owned: &Owned,
        id: u64,
        record: &mut Vec<u8>,
        done: &mut Deleted,
    ) -> Result<(), OpError> {
        let (gone, ticket) = self.collections.delete_point(owned, id, None, record).await?;
        done.points += u64::from(gone);
        done.last_ticket = ticket.or(done.last_ticket);
        settle_texts(self.env(), &owned.writer).await;
        Ok(())
    }

    async fn delete_matching(
        &self,
        owned: &Owned,
        filter: &Predicate,
        done: &mut Deleted,
    ) -> Result<(), OpError> {
        let mut record = Vec::new();
        let mut slice = Slice::begin(self.env());
        let (mut cursor, mut asked) = (MatchCursor::default(), Asked::default());
        while !cursor.is_done() {
            let mut matching = Vec::new();
            let take = |id| matching.push(id);
            let open = asked.count(&slice, || self.some_matches(owned, filter, &mut cursor, take));
            slice.check().await;
            for id in matching {
                self.ctx.wait_for_room(Purpose::Free, effect::DELETE_BYTES).await?;
                // Again: it may have been replaced since.
                let still = asked.count(&slice, || {
                    let (pin, now_ms) = (self.pin(), self.env().unix_ms());
                    let point = owned.handle.dense(&pin).get(&pin, id, now_ms)?;
                    let answer = question::ask(Some(filter), &point, now_ms, &question::allowance());
                    Some(answer.ok_or_else(|| OpenPoint::of(&point)))
                });
                let still = match still {
                    None => false,
                    Some(Ok(still)) => still,
                    Some(Err(open)) => self.is_settled(owned, filter, &open, &mut asked, &mut slice).await?,
                };
                if still {
                    self.delete_one(owned, id, &mut record, done).await?;
                }
                slice.check().await;
            }
            if let Some(open) = open {
                self.ctx.wait_for_room(Purpose::Free, effect::DELETE_BYTES).await?;
                // Nothing comes between its answer and its end.
                if self.is_settled(owned, filter, &open, &mut asked, &mut slice).await? {
                    self.delete_one(owned, open.id(), &mut record, done).await?;
                }
            }
            asked.check()?;
            slice.check().await;
        }
        Ok(())
    }

    /// Whether a point that was left open matches and is still what it was.
    async fn is_settled(
        &self,
        owned: &Owned,
        filter: &Predicate,
        open: &OpenPoint,
        asked: &mut Asked,
        slice: &mut Slice,
    ) -> Result<bool, OpError> {
        Ok(self.ctx.settle_point(owned, filter, open, (asked, slice), |_, _| ()).await?.is_some())
    }
}
