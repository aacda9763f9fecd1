//! Operations that visit the points of a collection: pages, counts, facets and samples.

use crate::op::{Action, ApiError, Operation, ReadOptions};
use nigh_engine::filter::Predicate;
use nigh_shard::core::{Core, FacetValue, Ordered, OrderedScroll, ScrollPage};
use std::rc::Rc;
use std::sync::Arc;

/// One page of points in id order.
#[derive(Clone)]
pub struct ScrollPoints {
    /// Name as sent.
    pub collection: String,
    /// Which points.
    pub filter: Option<Arc<Predicate>>,
    /// Continue after this id.
    pub after: Option<u64>,
    /// Page size, 0 = everything.
    pub limit: usize,
    /// Consistency.
    pub read: ReadOptions,
}

impl Operation for ScrollPoints {
    type Output = ScrollPage;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<ScrollPage, ApiError> {
        Ok(core.scroll(&self.collection, self.filter, self.after, self.limit).await?)
    }
}

/// Finds the first positions in the order of payload values; the points are then read by id.
#[derive(Clone)]
pub struct ScrollOrdered {
    /// Name as sent.
    pub collection: String,
    /// Which points in which order.
    pub order: OrderedScroll,
    /// Consistency.
    pub read: ReadOptions,
}

impl Operation for ScrollOrdered {
    type Output = Ordered;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<Ordered, ApiError> {
        Ok(core.ordered(&self.collection, self.order).await?)
    }
}

/// A scroll as asked for.
pub enum Scroll {
    /// By id.
    ById(ScrollPoints),
    /// By values.
    Ordered(ScrollOrdered),
}

/// The number of values of a facet, or of points of a sample, if a request does not say it.
const LISTED_DEFAULT: i64 = 10;
/// Most values of a facet, or points of a sample, that a request may ask for.
const LISTED_MAX: i64 = 10_000;

/// How many values of a facet, or points of a sample, a request asks for.
///
/// # Errors
/// A bad request outside of 1 to 10,000.
pub fn listed(limit: Option<i64>) -> Result<usize, ApiError> {
    match limit.unwrap_or(LISTED_DEFAULT) {
        limit @ 1..=LISTED_MAX => Ok(limit as usize),
        other => Err(ApiError::invalid(format!("limit must be between 1 and {LISTED_MAX}, found {other}"))),
    }
}

/// Counts points.
pub struct CountPoints {
    /// Name as sent.
    pub collection: String,
    /// Which points.
    pub filter: Option<Arc<Predicate>>,
}

impl Operation for CountPoints {
    type Output = u64;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<u64, ApiError> {
        Ok(core.count(&self.collection, self.filter).await?)
    }
}

/// Counts the values of a payload key.
pub struct FacetPoints {
    /// Name as sent.
    pub collection: String,
    /// Payload key.
    pub key: String,
    /// Which points.
    pub filter: Option<Arc<Predicate>>,
    /// Most values.
    pub limit: usize,
}

impl Operation for FacetPoints {
    type Output = Vec<(FacetValue, u64)>;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<(FacetValue, u64)>, ApiError> {
        Ok(core.facet(&self.collection, self.key, self.filter, self.limit).await?)
    }
}

/// Draws points at random.
pub struct SamplePoints {
    /// Name as sent.
    pub collection: String,
    /// Which points.
    pub filter: Option<Arc<Predicate>>,
    /// Most points.
    pub limit: usize,
    /// The same seed draws the same points.
    pub seed: u64,
}

impl Operation for SamplePoints {
    type Output = Vec<u64>;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<u64>, ApiError> {
        Ok(core.sample(&self.collection, self.filter, self.limit, self.seed).await?)
    }
}
