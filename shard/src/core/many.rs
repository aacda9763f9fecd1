//! Deleting many points, or changing their payloads: those that match a filter or those that are named, on the core that owns them.

use super::Core;
use crate::account::{Account, Charge, MemoryUse};
use crate::error::OpError;
use crate::journal::{Journal, Purpose, Ticket};
use crate::owner::{Owned, effect, settle_texts};
use crate::payload_change::PayloadChange;
use crate::question::{self, Asked, OpenPoint};
use crate::slice::Slice;
use nigh_engine::collection::{MatchCursor, WriteError};
use nigh_engine::filter::Predicate;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

/// Which points.
#[derive(Clone)]
pub enum Selection {
    /// Those that match.
    Matching(Arc<Predicate>),
    /// Those with these ids, in this order. Repeats and absent ids change nothing.
    Named(Vec<u64>),
}

/// What happens to each of them.
enum Act {
    Delete,
    Change(PayloadChange),
}

/// An act on many points, and what it has come to so far.
struct Many<'a> {
    owned: &'a Owned,
    act: Act,
    points: u64,
    last_ticket: Option<Ticket>,
    record: Vec<u8>,
    /// Points that took another slot when they were changed. A walk over slots may meet them there once more.
    moved: Moved,
}

/// Ids of points that have moved, whose memory counts as that of a request.
#[derive(Default)]
struct Moved {
    ids: HashSet<u64>,
    charge: Option<Charge>,
}

/// The bytes of an id in a hash set, with the room that is left for others.
const MOVED_BYTES: usize = 32;
/// This many ids are not counted.
const MOVED_UNCOUNTED: usize = 1 << 12;

impl Moved {
    /// Makes room for one more id.
    ///
    /// # Errors
    /// [`OpError::Busy`] if there is no memory for it.
    fn make_room(&mut self, account: &Arc<Account>) -> Result<(), OpError> {
        let wanted = (self.ids.len() + 1) * MOVED_BYTES;
        let charged =
            self.charge.as_ref().map_or(MOVED_UNCOUNTED * MOVED_BYTES, |charge| charge.bytes() as usize);
        if wanted <= charged {
            return Ok(());
        }
        drop(self.charge.take());
        self.charge = account.charge(MemoryUse::Requests, 2 * wanted as u64, u64::MAX);
        match self.charge {
            Some(_) => Ok(()),
            None => Err(OpError::Busy(format!(
                "there is no memory left to change more than {} texts in one request; name fewer points",
                self.ids.len()
            ))),
        }
    }
}

impl Core {
    /// Deletes the points that are selected; how many there were.
    pub(crate) async fn owned_delete_many(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        selection: &Selection,
    ) -> Result<u64, OpError> {
        self.owned_many(uid, name, selection, Act::Delete).await
    }

    /// Changes the payloads of the points that are selected; how many there were.
    pub(crate) async fn owned_change_many(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        selection: &Selection,
        change: PayloadChange,
    ) -> Result<u64, OpError> {
        self.owned_many(uid, name, selection, Act::Change(change)).await
    }

    async fn owned_many(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        selection: &Selection,
        act: Act,
    ) -> Result<u64, OpError> {
        let owned = self.collections.owned(uid).ok_or_else(|| OpError::UnknownCollection(name.to_owned()))?;
        let (record, moved) = (Vec::new(), Moved::default());
        let mut many = Many { owned: &owned, act, points: 0, last_ticket: None, record, moved };
        let ended = match selection {
            Selection::Matching(filter) => self.each_matching(&mut many, filter).await,
            Selection::Named(ids) => self.each_named(&mut many, ids).await,
        };
        // What was done before a refusal stays done, so the indexer has work even then.
        owned.changed.notify();
        self.wait_durable(many.last_ticket).await?;
        ended.map(|()| many.points)
    }

    async fn each_named(self: &Rc<Self>, many: &mut Many<'_>, ids: &[u64]) -> Result<(), OpError> {
        let mut slice = Slice::begin(self.env());
        // A change that is made twice raises the version twice, and a repeat of an id asks for one.
        let mut done = HashSet::new();
        for id in ids {
            let is_first = matches!(many.act, Act::Delete) || done.insert(*id);
            if is_first {
                self.make_room(many).await?;
                self.act_on(many, *id, None).await?;
            }
            slice.check().await;
        }
        Ok(())
    }

    async fn each_matching(self: &Rc<Self>, many: &mut Many<'_>, filter: &Predicate) -> Result<(), OpError> {
        let mut slice = Slice::begin(self.env());
        let (mut cursor, mut asked) = (MatchCursor::default(), Asked::default());
        while !cursor.is_done() {
            let mut matching = Vec::new();
            let take = |id| matching.push(id);
            let open = asked.count(&slice, || self.some_matches(many.owned, filter, &mut cursor, take));
            slice.check().await;
            for id in matching {
                self.act_if_it_matches(many, (id, filter), &mut asked, &mut slice).await?;
                slice.check().await;
            }
            if let Some(open) = open {
                self.make_room(many).await?;
                let is_settled = self.is_settled(many.owned, filter, &open, &mut asked, &mut slice).await?;
                // Nothing comes between its answer and its end; a change that has to wait asks again.
                if is_settled && !self.act_on(many, open.id(), Some(open.version())).await? {
                    self.act_if_it_matches(many, (open.id(), filter), &mut asked, &mut slice).await?;
                }
            }
            asked.check()?;
            slice.check().await;
        }
        Ok(())
    }

    /// Acts on a point that was found to match, if it still does: it may have been replaced since.
    async fn act_if_it_matches(
        self: &Rc<Self>,
        many: &mut Many<'_>,
        (id, filter): (u64, &Predicate),
        asked: &mut Asked,
        slice: &mut Slice,
    ) -> Result<(), OpError> {
        loop {
            self.make_room(many).await?;
            let still = asked.count(slice, || {
                let (pin, now_ms) = (self.pin(), self.env().unix_ms());
                let point = many.owned.handle.dense(&pin).get(&pin, id, now_ms)?;
                let answer = question::ask(Some(filter), &point, now_ms, &question::allowance());
                Some(
                    answer
                        .map(|matches| matches.then_some(point.version))
                        .ok_or_else(|| OpenPoint::of(&point)),
                )
            });
            let version = match still {
                None => None,
                Some(Ok(version)) => version,
                Some(Err(open)) => {
                    let is_settled = self.is_settled(many.owned, filter, &open, asked, slice).await?;
                    is_settled.then_some(open.version())
                }
            };
            match version {
                Some(version) if !self.act_on(many, id, Some(version)).await? => asked.check()?,
                _ => return Ok(()),
            }
        }
    }

    /// Waits until the log has room for a deletion. A change waits for its own when its row is made.
    async fn make_room(&self, many: &Many<'_>) -> Result<(), OpError> {
        match many.act {
            Act::Delete => self.ctx.wait_for_room(Purpose::Free, effect::DELETE_BYTES).await,
            Act::Change(_) => Ok(()),
        }
    }

    /// Acts on one point, which has to have this version if one is given; false when it has another.
    async fn act_on(
        self: &Rc<Self>,
        many: &mut Many<'_>,
        id: u64,
        version: Option<u64>,
    ) -> Result<bool, OpError> {
        let Many { owned, act, points, last_ticket, record, moved } = many;
        if matches!(act, Act::Change(_)) {
            moved.make_room(&self.node().account)?;
        }
        let ticket = match act {
            Act::Delete => {
                let (is_gone, ticket) = self.collections.delete_point(owned, id, None, record).await?;
                *points += u64::from(is_gone);
                settle_texts(self.env(), &owned.writer).await;
                ticket
            }
            Act::Change(_) if moved.ids.contains(&id) => None,
            Act::Change(change) => match self.collections.change_one(owned, id, change, version).await {
                Ok(changed) => {
                    *points += 1;
                    if changed.has_moved {
                        moved.ids.insert(id);
                    }
                    changed.ticket
                }
                Err(OpError::PointNotFound(_)) => None,
                Err(OpError::Write(WriteError::VersionConflict { .. })) => return Ok(false),
                Err(error) => return Err(error),
            },
        };
        *last_ticket = ticket.or(*last_ticket);
        Ok(true)
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
