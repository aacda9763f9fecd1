//! Reading many points through the door, page by page: a page is what a core may do in one go, and pages adapt to the payloads that they meet.
//!
//! Whoever writes an answer takes a page, says how many bytes it came to, and gives other work of the core a chance in between.

use crate::door::Permit;
use crate::limits::{FIRST_PAGE_POINTS, PAGE_COMPONENTS, PAGE_POINTS};
use crate::op::{ApiError, GetPoints, ReadOptions, Scroll, ScrollOrdered, SentIds};
use crate::wire::cursors;
use crate::wire::paging::next_page;
use nigh_engine::filter::Predicate;
use nigh_shard::core::{Asked, OrderedScroll, Position, StoredPoint};
use std::collections::VecDeque;
use std::sync::Arc;

/// Positions asked for at a time when there is no limit.
const POSITIONS: usize = 1 << 16;

/// Reads points by id.
pub struct PointReader {
    permit: Permit,
    /// All of it; its ids are read from `at` on.
    request: GetPoints,
    at: usize,
    page_points: usize,
    page_points_max: usize,
}

impl PointReader {
    /// For these points.
    ///
    /// # Errors
    /// No such collection, or none that is served.
    pub fn new(permit: &Permit, request: GetPoints) -> Result<PointReader, ApiError> {
        let mut page_points_max = PAGE_POINTS;
        if request.with_vector {
            let components = permit.components(&request.collection)?;
            page_points_max = (PAGE_COMPONENTS / components.max(1)).clamp(1, PAGE_POINTS);
        }
        let mut page_points = page_points_max;
        if request.with_payload {
            // Nothing is known yet of how large the payloads are.
            page_points = page_points_max.min(FIRST_PAGE_POINTS);
        }
        Ok(PointReader { permit: permit.clone(), request, at: 0, page_points, page_points_max })
    }

    /// The next points in the order of their ids, which the first call checks the collection for even if there are none.
    ///
    /// # Errors
    /// Of storage.
    pub async fn next(
        &mut self,
    ) -> Result<impl Iterator<Item = (u64, Option<StoredPoint>)> + use<>, ApiError> {
        let ids: Vec<u64> =
            self.request.ids.numbers[self.at..].iter().copied().take(self.page_points).collect();
        let page = GetPoints {
            collection: self.request.collection.clone(),
            ids: SentIds { numbers: ids.clone(), kind: self.request.ids.kind },
            ..self.request
        };
        let points = self.permit.run(page).await?;
        // Those that are long may be fewer than were asked for.
        self.at += points.len();
        Ok(ids.into_iter().zip(points))
    }

    /// Says how many bytes the last page came to.
    pub fn wrote(&mut self, bytes: usize) {
        self.page_points = next_page(self.page_points, self.page_points_max, bytes);
    }

    /// Whether all of them have been read.
    pub fn is_done(&self) -> bool {
        self.at == self.request.ids.len()
    }

    /// The numbers of all of them, in their order.
    pub fn ids(&self) -> &[u64] {
        &self.request.ids.numbers
    }

    /// How many they are.
    pub fn points(&self) -> usize {
        self.request.ids.len()
    }
}

/// Reads the points of a scroll.
pub struct ScrollReader {
    permit: Permit,
    /// What comes next: after the last point, or position, that was found.
    request: Scroll,
    /// Points that are still wanted, `None` = all.
    left: Option<usize>,
    /// Positions found and not read yet.
    found: VecDeque<Position>,
    /// There are more after those.
    more: bool,
    page_points: usize,
    /// Time that the filter has taken in this request.
    asked: Asked,
    cursor: Option<String>,
    is_done: bool,
}

impl ScrollReader {
    /// For a scroll, whose limit is that of all pages together, 0 = none.
    pub fn new(permit: &Permit, request: Scroll) -> ScrollReader {
        let limit = match &request {
            Scroll::ById(request) => request.limit,
            Scroll::Ordered(request) => request.order.limit,
        };
        ScrollReader {
            permit: permit.clone(),
            request,
            left: (limit > 0).then_some(limit),
            found: VecDeque::new(),
            more: true,
            page_points: FIRST_PAGE_POINTS,
            asked: Asked::default(),
            cursor: None,
            is_done: false,
        }
    }

    /// Reads the points with these ids in this order: those that are still there and match.
    pub fn of_ids(
        permit: &Permit,
        collection: String,
        filter: Option<Arc<Predicate>>,
        ids: Vec<u64>,
    ) -> ScrollReader {
        let order = OrderedScroll { filter, keys: Vec::new(), after: None, start_from: None, limit: 0 };
        let request = Scroll::Ordered(ScrollOrdered { collection, order, read: ReadOptions::default() });
        let found = ids.into_iter().map(|id| Position { parts: Vec::new(), id }).collect();
        ScrollReader { found, more: false, ..ScrollReader::new(permit, request) }
    }

    /// The next points, perhaps none although more follow.
    ///
    /// # Errors
    /// Of storage.
    pub async fn next(&mut self) -> Result<Vec<StoredPoint>, ApiError> {
        let want = self.left.unwrap_or(usize::MAX).min(self.page_points);
        match &mut self.request {
            Scroll::ById(request) => {
                request.limit = want;
                let page = self.permit.run(request.clone()).await?;
                request.after = page.next_after.or(request.after);
                self.took(page.points.len(), page.next_after.is_some());
                self.cursor = page.next_after.map(cursors::by_id);
                Ok(page.points)
            }
            Scroll::Ordered(_) => self.next_ordered().await,
        }
    }

    async fn next_ordered(&mut self) -> Result<Vec<StoredPoint>, ApiError> {
        let Scroll::Ordered(request) = &mut self.request else { return Ok(Vec::new()) };
        if self.found.is_empty() && self.more {
            request.order.limit = self.left.unwrap_or(POSITIONS);
            let ordered = self.permit.run(request.clone()).await?;
            (self.found, self.more) = (ordered.positions.into(), ordered.more);
            if let Some(last) = self.found.back() {
                request.order.after = Some(last.clone());
            }
        }
        let get = GetPoints {
            collection: request.collection.clone(),
            ids: self.found.iter().take(self.page_points).map(|position| position.id).collect(),
            with_vector: false,
            with_payload: true,
            read: ReadOptions::default(),
        };
        let now_ms = self.permit.unix_ms();
        let points = self.permit.run(get).await?;
        // Those that are long may be fewer than were asked for.
        let page: Vec<Position> = self.found.drain(..points.len()).collect();
        let mut matching = Vec::with_capacity(points.len());
        for point in points.into_iter().flatten() {
            // Again: it may have changed since it was found.
            let filter = request.order.filter.as_deref();
            if self.permit.row_matches(filter, (point.id, &point.row), now_ms, &mut self.asked).await? {
                matching.push(point);
            }
        }
        let more = self.more || !self.found.is_empty();
        // What is read by positions alone has no order that a cursor could name.
        let last = page.last().filter(|_| !request.order.keys.is_empty());
        let cursor = last.map(|last| cursors::by_value(&request.order.keys, last));
        self.took(page.len(), more);
        self.cursor = cursor.filter(|_| more);
        Ok(matching)
    }

    /// So many points, or positions, have been read.
    fn took(&mut self, points: usize, more: bool) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(points);
        }
        self.is_done = !more || self.left == Some(0);
    }

    /// Says how many bytes the last page came to.
    pub fn wrote(&mut self, bytes: usize) {
        self.page_points = next_page(self.page_points, PAGE_POINTS, bytes);
    }

    /// Whether the last page was read.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Where another scroll goes on behind what has been read; empty when nothing follows.
    pub fn cursor(&self) -> &str {
        self.cursor.as_deref().unwrap_or_default()
    }

    /// Bytes of what is found and not read yet.
    pub fn waiting_bytes(&self) -> usize {
        self.found.iter().map(Position::bytes).sum()
    }
}
