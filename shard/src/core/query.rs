//! Queries of lanes: run like searches, on the receiving or a less loaded core, under one pin.

use super::Core;
use super::read::{ANSWER_ROWS_MAX_BYTES, WHOLE_STEPS};
use super::types::{FoundPoint, OpError};
use crate::catalog::CollectionHandle;
use nigh_engine::collection::{Dense, SearchError};
use nigh_engine::memory::Pin;
use nigh_engine::pace::{Pace, Whole, at_once};
use nigh_engine::payload::Value;
use nigh_engine::query::{Found, LaneQuery, LaneReport, QueryScratch, group_hits, search_lanes_paced};
use nigh_engine::sparse::LaneScratch;
use std::cell::Cell;
use std::rc::Rc;

/// A query.
#[derive(Clone, Debug)]
pub struct QueryRequest {
    /// Lanes and what becomes of them. When grouped, its `k` is the pool that groups are made from.
    pub lanes: LaneQuery,
    /// Group the result.
    pub group: Option<GroupBy>,
    /// Also return payload rows; groups always do.
    pub with_rows: bool,
    /// Say how it went.
    pub explain: bool,
}

/// A result, and how it came about when that was asked.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryOutcome {
    /// The result.
    pub answer: QueryAnswer,
    /// How.
    pub explained: Option<Explained>,
}

/// How a query went.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// Its lanes, in their order.
    pub lanes: Vec<LaneReport>,
    /// Microseconds from its arrival at a core to the end of the search.
    pub us: u64,
    /// Of these, until its first lane began: waiting for its turn, or for having been too long for one piece.
    pub waited_us: u64,
    /// Fusing, ranking anew, diversifying.
    pub combined_us: u64,
    /// Copying payloads, and grouping.
    pub copied_us: u64,
}

/// How a result is grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupBy {
    /// Payload key.
    pub field: String,
    /// Most groups.
    pub groups: usize,
    /// Most hits of each.
    pub size: usize,
}

/// A result.
#[derive(Clone, Debug, PartialEq)]
pub enum QueryAnswer {
    /// Best first.
    Hits(Vec<FoundPoint>),
    /// By their best hit.
    Groups(Vec<FoundGroup>),
}

/// Hits that share a value.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundGroup {
    /// The value.
    pub key: Value,
    /// Best first.
    pub hits: Vec<FoundPoint>,
}

thread_local! {
    /// Kept between queries: clearing it anew would cost more than a small query.
    static LISTS: Cell<Option<LaneScratch>> = const { Cell::new(None) };
}

impl Core {
    /// Carries out a query of lanes.
    ///
    /// # Errors
    /// Unknown or damaged collection; vectors that do not fit; full text where there is none; examples that are not there.
    pub async fn query(self: &Rc<Self>, name: &str, request: QueryRequest) -> Result<QueryOutcome, OpError> {
        let handle = self.handle(name)?;
        handle.healthy()?;
        let began_ns = self.env().now_ns();
        self.run_search(async move |core| core.query_here(&handle, &request, began_ns).await).await
    }

    async fn query_here(
        self: &Rc<Self>,
        handle: &CollectionHandle,
        request: &QueryRequest,
        began_ns: u64,
    ) -> Result<QueryOutcome, OpError> {
        let mut scratch = QueryScratch::new(self.take_scratch(), LISTS.take());
        scratch.clock = request.explain.then_some(|| Core::current().env().now_ns());
        let whole = {
            let (pin, mut pace) = (self.pin(), Whole::of(WHOLE_STEPS));
            at_once(self.query_paced(&pin, handle, request, &mut pace, &mut scratch))
        };
        let answer = match whole {
            Err(OpError::Search(SearchError::TooLong(_))) => {
                // As for a plain search.
                self.give_scratch(std::mem::take(&mut scratch.dense));
                LISTS.set(scratch.lists.take());
                let turn = self.long_turn().await?;
                (scratch.dense, scratch.lists) = (self.take_scratch(), LISTS.take());
                let (pin, mut pace) = (self.long_pin(&turn), self.pieces());
                self.query_paced(&pin, handle, request, &mut pace, &mut scratch)
                    .await
                    .map_err(|error| self.long_error(error))
            }
            whole => whole,
        };
        LISTS.set(scratch.lists);
        self.give_scratch(scratch.dense);
        if answer.is_ok() {
            self.count_search(handle, began_ns);
        }
        let (lanes, combined_us) = (scratch.reports, scratch.combined_ns / 1000);
        answer.map(|(answer, times)| {
            let us = |ns: u64| ns.saturating_sub(began_ns) / 1000;
            let explained = request.explain.then(|| Explained {
                lanes,
                us: us(self.env().now_ns()),
                waited_us: us(times.search_ns),
                combined_us,
                copied_us: us(times.copied_ns) - us(times.found_ns),
            });
            QueryOutcome { answer, explained }
        })
    }
}

/// When the stages of a query began and ended.
struct Times {
    search_ns: u64,
    found_ns: u64,
    copied_ns: u64,
}

impl Core {
    async fn query_paced(
        &self,
        pin: &Pin<'_>,
        handle: &CollectionHandle,
        request: &QueryRequest,
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
    ) -> Result<(QueryAnswer, Times), OpError> {
        let (now_ms, search_ns) = (self.env().unix_ms(), self.env().now_ns());
        let dense = handle.dense(pin);
        let hits = search_lanes_paced(dense, pin, &request.lanes, now_ms, pace, scratch).await?;
        let found_ns = self.env().now_ns();
        let answer = copy_out(dense, pin, &hits, request, now_ms)?;
        Ok((answer, Times { search_ns, found_ns, copied_ns: self.env().now_ns() }))
    }
}

fn copy_out(
    dense: &Dense,
    pin: &Pin<'_>,
    hits: &[Found],
    request: &QueryRequest,
    now_ms: u64,
) -> Result<QueryAnswer, OpError> {
    let mut room = ANSWER_ROWS_MAX_BYTES;
    let mut copied = |hits: &[Found], with_rows: bool| -> Result<Vec<FoundPoint>, OpError> {
        let mut points = Vec::with_capacity(hits.len());
        for hit in hits {
            let row = if with_rows { dense.point(pin, hit.slot).row } else { &[] };
            room = room.checked_sub(row.len()).ok_or_else(|| {
                OpError::BadRequest(format!(
                    "more than {ANSWER_ROWS_MAX_BYTES} bytes of payload would be in the answer; ask for fewer points"
                ))
            })?;
            let (id, distance, score) = (hit.id, hit.distance, hit.score);
            points.push(FoundPoint { id, distance, score, row: row.to_vec() });
        }
        Ok(points)
    };
    let Some(by) = &request.group else { return Ok(QueryAnswer::Hits(copied(hits, request.with_rows)?)) };
    let groups = group_hits(dense, pin, hits, &by.field, by.groups, by.size, now_ms)
        .into_iter()
        .map(|group| Ok(FoundGroup { hits: copied(&group.hits, true)?, key: group.key }))
        .collect::<Result<_, OpError>>()?;
    Ok(QueryAnswer::Groups(groups))
}
