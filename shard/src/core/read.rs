//! Reads: searches and gets run on any core against the published view; scrolls at the owner, who keeps the ids in order.

use super::{Core, QueryRequest};
use crate::catalog::{CollectionHandle, CollectionMetrics};
use crate::env::call;
use crate::error::OpError;
use crate::found::Shown;
use crate::owner::Owned;
use crate::points::{FoundPoint, PAGE_BYTES, ScrollPage, SearchRequest, StoredPoint};
use crate::question::{self, Asked, OpenPoint};
use crate::slice::Slice;
use nigh_engine::collection::{IndexType, MatchCursor, Point};
use nigh_engine::filter::Predicate;
use nigh_engine::payload::{PayloadRow, narrowed, only_id, without_tokens};
use nigh_engine::query::LaneQuery;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A search moves to another core when this many more wait here than there: one message each way costs some 15 µs,
/// a search 100 to 1000.
const HAND_OFF_LEAD: u32 = 1;
/// Points looked at between two looks at the clock of a scroll or delete by filter.
const SCROLL_STEP: usize = 64;
/// Points asked in the order of ids before a filtered scroll goes by the payload index, which has no such order.
const SCROLL_BY_ID_MAX: usize = 4096;
/// Points looked at before the planner is asked again.
pub(super) const MATCHING_STEP: usize = 2048;

fn stored(point: &Point<'_>, with_vector: bool, with_payload: bool, now_ms: u64) -> StoredPoint {
    StoredPoint {
        id: point.id,
        vector: (with_vector && !point.vector.is_empty()).then(|| point.vector.to_vec()),
        vectors: Vec::new(),
        row: match (with_payload, with_vector) {
            (true, _) => without_tokens(point.row).into_owned(),
            // Sparse vectors are vectors.
            (false, true) => narrowed(point.row, |_| false, true),
            (false, false) => only_id(point.row),
        },
        ttl_ms: match point.deadline_ms {
            0 => 0,
            deadline => deadline.saturating_sub(now_ms).max(1),
        },
        version: point.version,
    }
}

/// The token vectors of a document, each with its position.
fn token_vectors(row: &[u8]) -> Vec<(usize, Vec<f32>)> {
    PayloadRow::trusted(row).tokens().vectors().enumerate().collect()
}

/// One search counted in its core's load while it waits or runs.
struct Waiting<'a>(&'a std::sync::atomic::AtomicU32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Core {
    /// Nearest neighbours, nearest first, ties by id. Runs here, or on the least loaded core when searches queue up; on the
    /// device where the collection has one, exactly in either case.
    ///
    /// # Errors
    /// Unknown or damaged collection, wrong dimension, non-finite query.
    pub async fn search(
        self: &Rc<Self>,
        name: &str,
        request: SearchRequest,
    ) -> Result<Vec<FoundPoint>, OpError> {
        let handle = self.ctx.handle(name)?;
        handle.healthy()?;
        self.check_filter(&handle, request.filter.as_deref())?;
        let began_ns = self.env().now_ns();
        // The thread of the devices is not to wait for a filter that looks through texts.
        let is_brief = request.filter.as_ref().is_none_or(|filter| filter.is_brief());
        let has_device = handle.dense_config(&self.pin())?.index == IndexType::Gpu;
        if has_device
            && is_brief
            && let Some(found) = self.search_on_device(&handle, &request).await
        {
            let found = found?;
            self.count_search(&handle, began_ns);
            return Ok(found);
        }
        let SearchRequest { vector, k, filter, with_rows } = request;
        let lanes = LaneQuery::nearest(vector, k, filter);
        let query = QueryRequest { lanes, group: None, shown: Shown::payloads_if(with_rows), explain: false };
        let outcome = self.run_search(async move |core| core.query_here(&handle, &query, began_ns).await);
        Ok(outcome.await?.answer.into_hits())
    }

    /// Runs a search here, or on the least loaded core when searches queue up.
    pub(super) async fn run_search<T: Send + 'static>(
        self: &Rc<Self>,
        search: impl AsyncFnOnce(Rc<Core>) -> Result<T, OpError> + Send + 'static,
    ) -> Result<T, OpError> {
        let loads = &self.node().loads;
        let me = self.env().index();
        loads[me].fetch_add(1, Relaxed);
        let waiting = Waiting(&loads[me]);
        if loads.len() > 1 {
            // Requests that arrived in the same turn count themselves before the first of them runs.
            self.env().yield_now().await;
            let mine = loads[me].load(Relaxed);
            let (least, load) = (0..loads.len())
                .filter(|core| *core != me)
                .map(|core| (core, loads[core].load(Relaxed)))
                .min_by_key(|(_, load)| *load)
                .expect("there are other cores");
            if mine > load + HAND_OFF_LEAD {
                drop(waiting);
                loads[least].fetch_add(1, Relaxed);
                let _waiting = Waiting(&loads[least]);
                return call(self, least, move |there| async move { search(there).await }).await?;
            }
        }
        search(self.clone()).await
    }

    /// Counts a search that gave a result.
    pub(super) fn count_search(&self, handle: &CollectionHandle, began_ns: u64) {
        let us = self.env().now_ns().saturating_sub(began_ns) / 1000;
        handle.counters.search_ops.fetch_add(1, Relaxed);
        handle.counters.search_latency.record_us(us);
    }

    /// Points by id, in request order, `None` = absent, deleted or expired. With [`PAGE_BYTES`] of them the answer ends early, and has
    /// fewer points than were asked for, but one at least of any: the rest is asked for again.
    ///
    /// # Errors
    /// Unknown or damaged collection.
    pub async fn get(
        self: &Rc<Self>,
        name: &str,
        ids: Vec<u64>,
        with_vector: bool,
        with_payload: bool,
    ) -> Result<Vec<Option<StoredPoint>>, OpError> {
        let handle = self.ctx.handle(name)?;
        handle.healthy()?;
        let mut slice = Slice::begin(self.env());
        let (mut points, mut bytes) = (Vec::with_capacity(ids.len()), 0);
        for ids in ids.chunks(SCROLL_STEP) {
            let now_ms = self.env().unix_ms();
            {
                let pin = self.pin();
                let dense = handle.dense(&pin);
                for id in ids {
                    let slot = dense.points().find(&pin, *id, now_ms);
                    let point = slot.map(|slot| {
                        let point = dense.point(&pin, slot);
                        let vectors = match with_vector {
                            true if handle.tokens.get().is_some() => token_vectors(point.row),
                            true => dense.named_vectors(&pin, slot),
                            false => Vec::new(),
                        };
                        StoredPoint { vectors, ..stored(&point, with_vector, with_payload, now_ms) }
                    });
                    bytes += point.as_ref().map_or(0, StoredPoint::bytes);
                    points.push(point);
                    if bytes >= PAGE_BYTES {
                        return Ok(points);
                    }
                }
            }
            slice.check().await;
        }
        Ok(points)
    }

    /// A page in ascending id order of points that match; `limit` 0 = everything; starts after id `after`. With [`PAGE_BYTES`] of points
    /// it ends early.
    ///
    /// # Errors
    /// Unknown or damaged collection.
    pub async fn scroll(
        self: &Rc<Self>,
        name: &str,
        filter: Option<Arc<Predicate>>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<ScrollPage, OpError> {
        let handle = self.ctx.handle(name)?;
        handle.healthy()?;
        self.check_filter(&handle, filter.as_deref())?;
        let (uid, name) = (handle.uid, name.to_owned());
        call(self, handle.owner, move |there| async move {
            there.owned_scroll(uid, &name, filter.as_deref(), after, limit).await
        })
        .await?
    }

    async fn owned_scroll(
        self: &Rc<Self>,
        uid: u64,
        name: &str,
        filter: Option<&Predicate>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<ScrollPage, OpError> {
        let owned = self.collections.owned(uid).ok_or_else(|| OpError::UnknownCollection(name.to_owned()))?;
        let mut page = ScrollPage::default();
        let (mut slice, mut asked) = (Slice::begin(self.env()), Asked::default());
        let mut looked = 0;
        let mut next = match after {
            None => Some(0),
            Some(id) => id.checked_add(1),
        };
        while let Some(from) = next {
            owned.usable()?;
            if let Some(filter) = filter
                && (looked >= SCROLL_BY_ID_MAX || filter.is_within_ids())
            {
                // Few match: what the payload index names is found without asking every point.
                let room = if limit > 0 { limit + 1 - page.points.len() } else { usize::MAX };
                let ids = self.lowest_matches(&owned, filter, from, room, (&mut asked, &mut slice)).await?;
                return self.finish_page(&owned, filter, &ids, limit, page, (&mut asked, &mut slice)).await;
            }
            let mut open = None;
            {
                let writer = owned.writer.borrow();
                let ids: Vec<u64> = writer.points().ids_from(from).take(SCROLL_STEP).collect();
                looked += ids.len();
                next =
                    if ids.len() == SCROLL_STEP { ids.last().and_then(|id| id.checked_add(1)) } else { None };
                let now_ms = self.env().unix_ms();
                let (pin, allowance) = (self.pin(), question::allowance());
                let before_ns = slice.used_ns();
                for id in ids {
                    let Some(point) = writer.shared().get(&pin, id, now_ms) else { continue };
                    match question::ask(filter, &point, now_ms, &allowance) {
                        Some(false) => continue,
                        Some(true) => {}
                        None => {
                            open = Some(OpenPoint::of(&point));
                            next = id.checked_add(1);
                            break;
                        }
                    }
                    if page.is_full(limit) {
                        return Ok(page);
                    }
                    page.push(stored(&point, false, true, now_ms));
                }
                asked.add(slice.used_ns() - before_ns);
            }
            slice.check().await;
            if let Some((filter, open)) = filter.zip(open) {
                let keep = |point: &Point<'_>, now_ms| stored(point, false, true, now_ms);
                let found =
                    self.ctx.settle_point(&owned, filter, &open, (&mut asked, &mut slice), keep).await?;
                if let Some(found) = found {
                    if page.is_full(limit) {
                        return Ok(page);
                    }
                    page.push(found);
                }
            }
            asked.check()?;
        }
        Ok(page)
    }

    /// The `room` lowest ids from `from` on whose points match, ascending.
    async fn lowest_matches(
        &self,
        owned: &Owned,
        filter: &Predicate,
        from: u64,
        room: usize,
        (asked, slice): (&mut Asked, &mut Slice),
    ) -> Result<Vec<u64>, OpError> {
        let mut lowest = BTreeSet::new();
        let mut cursor = MatchCursor::default();
        while !cursor.is_done() {
            owned.usable()?;
            let mut take = |id| {
                if id >= from && (lowest.len() < room || lowest.last().is_some_and(|&last| id < last)) {
                    lowest.insert(id);
                    if lowest.len() > room {
                        lowest.pop_last();
                    }
                }
            };
            let open = asked.count(slice, || self.some_matches(owned, filter, &mut cursor, &mut take));
            slice.check().await;
            if let Some(open) = open {
                self.ctx
                    .settle_point(owned, filter, &open, (&mut *asked, &mut *slice), |point, _| take(point.id))
                    .await?;
            }
            asked.check()?;
        }
        Ok(lowest.into_iter().collect())
    }

    /// Hands ids of some more matching points to `each`; a point that is left to be asked in slices.
    pub(super) fn some_matches(
        &self,
        owned: &Owned,
        filter: &Predicate,
        cursor: &mut MatchCursor,
        mut each: impl FnMut(u64),
    ) -> Option<OpenPoint> {
        let pin = self.pin();
        let dense = owned.handle.dense(&pin);
        dense.match_slice(&pin, filter, self.env().unix_ms(), cursor, MATCHING_STEP, |slot| {
            each(dense.point(&pin, slot).id);
        });
        cursor.take_open().map(|slot| OpenPoint::at(dense, &pin, slot))
    }

    /// Adds the points of `ids`, ascending, that still match.
    async fn finish_page(
        &self,
        owned: &Owned,
        filter: &Predicate,
        ids: &[u64],
        limit: usize,
        mut page: ScrollPage,
        (asked, slice): (&mut Asked, &mut Slice),
    ) -> Result<ScrollPage, OpError> {
        let room = (limit + 1).saturating_sub(page.points.len());
        let mut left = ids;
        while !left.is_empty() {
            let mut open = None;
            {
                let (pin, allowance) = (self.pin(), question::allowance());
                let dense = owned.handle.dense(&pin);
                let now_ms = self.env().unix_ms();
                let before_ns = slice.used_ns();
                for _ in 0..SCROLL_STEP {
                    let Some((id, rest)) = left.split_first() else { break };
                    left = rest;
                    let Some(point) = dense.get(&pin, *id, now_ms) else { continue };
                    match question::ask(Some(filter), &point, now_ms, &allowance) {
                        Some(false) => continue,
                        Some(true) => {}
                        None => {
                            open = Some(OpenPoint::of(&point));
                            break;
                        }
                    }
                    if page.is_full(limit) {
                        return Ok(page);
                    }
                    page.push(stored(&point, false, true, now_ms));
                }
                asked.add(slice.used_ns() - before_ns);
            }
            slice.check().await;
            if let Some(open) = open {
                let keep = |point: &Point<'_>, now_ms| stored(point, false, true, now_ms);
                if let Some(found) =
                    self.ctx.settle_point(owned, filter, &open, (&mut *asked, &mut *slice), keep).await?
                {
                    if page.is_full(limit) {
                        return Ok(page);
                    }
                    page.push(found);
                }
            }
            asked.check()?;
        }
        // Some have gone meanwhile; more may come after the last of these.
        if limit > 0 && ids.len() >= room {
            page.next_after = ids.last().copied();
        }
        Ok(page)
    }

    /// Counters and gauges of every collection, by name. Reads shared counters: no walk over points, no message.
    pub fn metrics(&self) -> Vec<CollectionMetrics> {
        let pin = self.pin();
        let mut all: Vec<CollectionMetrics> =
            self.node().catalog.load(&pin).by_name.values().map(|handle| handle.metrics(&pin)).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}
