//! Queries of lanes: run like searches, on the receiving or a less loaded core, under one pin.

use super::Core;
use crate::catalog::CollectionHandle;
use crate::error::OpError;
use crate::family::CollectionConfig;
use crate::found::{Shown, found_points};
use crate::payload_change::check_id_kind;
use crate::points::FoundPoint;
use nigh_engine::collection::{Dense, SearchError, SpaceNumber};
use nigh_engine::memory::Pin;
use nigh_engine::pace::{Pace, Whole, at_once};
use nigh_engine::payload::{PayloadFormat, Value};
use nigh_engine::query::{
    Found, LaneQuery, LaneReport, Leaf, QueryScratch, Source, group_hits, search_lanes_paced,
};
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
    /// Which payloads and vectors are returned with the hits.
    pub shown: Shown,
    /// Say how it went.
    pub explain: bool,
}

/// A result, and how it came about when that was asked.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryOutcome {
    /// The result.
    pub answer: QueryAnswer,
    /// Groups: they are fewer or smaller than asked for, and hits that were not looked at may belong to them or make others.
    pub incomplete: bool,
    /// How.
    pub explained: Option<Explained>,
    /// Which payloads and vectors are returned with the hits.
    pub shown: Shown,
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
    /// The number of groups with better hits that are left out before these.
    pub offset: usize,
    /// Most hits of each.
    pub size: usize,
    /// Hits that a single lane may be asked for when fewer make too few groups.
    pub pool_max: usize,
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
    /// How the collection answers values.
    pub format: PayloadFormat,
    /// Best first.
    pub hits: Vec<FoundPoint>,
}

impl QueryAnswer {
    /// The hits, those of groups one group after the other.
    pub fn into_hits(self) -> Vec<FoundPoint> {
        match self {
            QueryAnswer::Hits(hits) => hits,
            QueryAnswer::Groups(groups) => groups.into_iter().flat_map(|group| group.hits).collect(),
        }
    }
}

/// Steps of about 100 ns that a search may make in one piece; about ten times those of an ordinary one. Those that take longer
/// begin anew, in pieces, when it is their turn.
const WHOLE_STEPS: usize = 40_000;

/// Whether a collection has the space that a lane ranks in. One that was dropped and made anew since the lane was asked for may not.
fn check_space(config: &CollectionConfig, leaf: &Leaf) -> Result<(), OpError> {
    let spaces = match leaf.source {
        Source::Text(_) | Source::MaxSim(_) | Source::Query(_) => return Ok(()),
        Source::Sparse(_) => config.sparse_spaces(),
        _ => match config {
            CollectionConfig::Dense(_) => 1,
            CollectionConfig::Named(config) => config.spaces.len(),
            CollectionConfig::MultiVector(_) => {
                let text = "a multi-vector collection is searched by tokens, by a sparse vector or by a text";
                return Err(OpError::BadRequest(text.into()));
            }
        },
    };
    match leaf.space < spaces {
        true => Ok(()),
        false => Err(OpError::BadRequest("the query is of a space that the collection does not have".into())),
    }
}

/// Whether the spaces that the lanes of a query rank in are still there. One may be dropped after its name was looked up.
fn check_dropped(
    handle: &CollectionHandle,
    dense: &Dense,
    pin: &Pin<'_>,
    query: &LaneQuery,
) -> Result<(), OpError> {
    query.check_leaves(|leaf| match leaf.source {
        Source::Text(_) | Source::MaxSim(_) => Ok(()),
        Source::Sparse(_) => match dense.sparse_spaces().get(leaf.space) {
            Some(space) if !space.is_dropped() => Ok(()),
            _ => Err(handle.no_such_space(pin, SpaceNumber::Sparse(leaf.space))),
        },
        _ => match dense.spaces().get(leaf.space) {
            Some(space) if !space.is_dropped() => Ok(()),
            _ => Err(handle.no_such_space(pin, SpaceNumber::Dense(leaf.space))),
        },
    })
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
        let handle = self.ctx.handle(name)?;
        handle.healthy()?;
        request.lanes.check_leaves(|leaf| {
            self.check_filter(&handle, leaf.filter.as_deref())?;
            leaf.source.id_kinds().into_iter().try_for_each(|kind| check_id_kind(kind, &handle))?;
            check_space(handle.config(&self.pin()), leaf)
        })?;
        if let Some(by) = &request.group {
            self.check_key(&handle, &by.field, "group_by")?;
        }
        let began_ns = self.env().now_ns();
        self.run_search(async move |core| core.query_here(&handle, &request, began_ns).await).await
    }

    /// Runs a query on this core: whole, or else, where it takes too long for that, in pieces when its turn comes.
    pub(super) async fn query_here(
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
                // Others use the buffers meanwhile: one per search that waits would be a lot.
                self.give_scratch(std::mem::take(&mut scratch.dense));
                LISTS.set(scratch.lists.take());
                let turn = self.long_turn().await?;
                (scratch.dense, scratch.lists) = (self.take_scratch(), LISTS.take());
                let (pin, mut pace) = (self.long_pin(&turn), self.pieces());
                // In a box: the state of a search in pieces is large, and would be copied with every search that waits for its turn here.
                Box::pin(self.query_paced(&pin, handle, request, &mut pace, &mut scratch))
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
            QueryOutcome { answer, incomplete: times.incomplete, explained, shown: request.shown.clone() }
        })
    }
}

/// When the stages of a query began and ended.
struct Times {
    search_ns: u64,
    found_ns: u64,
    copied_ns: u64,
    /// See [`QueryOutcome::incomplete`].
    incomplete: bool,
}

/// How many times more hits a search is asked for that gave too few groups.
const WIDENED: usize = 4;

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
        // The view is loaded once: a second load might find another one.
        let searched = handle.searched(pin);
        let dense = searched.dense;
        check_dropped(handle, dense, pin, &request.lanes)?;
        let hits = search_lanes_paced(searched, pin, &request.lanes, now_ms, pace, scratch).await?;
        let Some(by) = &request.group else {
            let found_ns = self.env().now_ns();
            let account = &self.node().account;
            let hits = found_points((dense, handle.ids), pin, &hits, &request.shown, account, pace).await?;
            let answer = QueryAnswer::Hits(hits);
            let copied_ns = self.env().now_ns();
            return Ok((answer, Times { search_ns, found_ns, copied_ns, incomplete: false }));
        };
        // Those before the offset are made as well.
        let made = by.groups.saturating_add(by.offset);
        let grouped = |hits: &[Found]| group_hits(dense, pin, hits, &by.field, made, by.size, now_ms);
        let mut groups = grouped(&hits);
        let mut complete = is_exhausted(&hits, &request.lanes, scratch);
        // With several lanes, also those of a query within this one, more hits of each would change the scores of all.
        if let [lane] = &request.lanes.lanes[..]
            && !matches!(lane.source, Source::Query(_))
        {
            let (mut lane, mut pool) = (lane.clone(), request.lanes.k);
            let groups_max = dense.points().groups_at_most(pin, &by.field).min(made as u64);
            while (groups.len() as u64) < groups_max && !complete && pool < by.pool_max {
                pool = pool.saturating_mul(WIDENED).min(by.pool_max);
                lane.pool = pool;
                let combine = request.lanes.combine.clone();
                let options = request.lanes.options;
                let lanes = LaneQuery { lanes: vec![lane.clone()], combine, k: pool, options };
                let hits = search_lanes_paced(searched, pin, &lanes, now_ms, pace, scratch).await?;
                groups = grouped(&hits);
                complete = is_exhausted(&hits, &lanes, scratch);
            }
        }
        let full = groups.len() == made && groups.iter().all(|group| group.hits.len() == by.size);
        groups.drain(..by.offset.min(groups.len()));
        let found_ns = self.env().now_ns();
        // All together, so that the bound on an answer's rows holds for their sum.
        let hits: Vec<Found> = groups.iter().flat_map(|group| &group.hits).copied().collect();
        let copied =
            found_points((dense, handle.ids), pin, &hits, &request.shown, &self.node().account, pace);
        let mut copied = copied.await?.into_iter();
        let copied = groups.into_iter().map(|group| FoundGroup {
            hits: copied.by_ref().take(group.hits.len()).collect(),
            key: group.key,
            format: handle.payload_format,
        });
        let answer = QueryAnswer::Groups(copied.collect());
        let copied_ns = self.env().now_ns();
        Ok((answer, Times { search_ns, found_ns, copied_ns, incomplete: !full && !complete }))
    }
}

/// Whether no lane of the search that has just ended could have found more.
fn is_exhausted(hits: &[Found], lanes: &LaneQuery, scratch: &QueryScratch) -> bool {
    scratch.ends_at_threshold
        || hits.len() < lanes.k && scratch.reports.iter().all(|lane| lane.hits < lane.pool)
}
