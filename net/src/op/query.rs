//! Operations that search by lanes: hybrid and full-text searches, groups, diverse results, and queries of any lanes.

use crate::limits;
use crate::op::{Action, ApiError, Operation, ReadOptions, SearchOptions};
use nigh_engine::filter::Predicate;
use nigh_engine::query::{Combine, InnerQuery, LaneQuery, Leaf, Method, QueryOptions, Source, Strategy};
use nigh_engine::quoted::quoted;
use nigh_engine::text::TextMatch;
use nigh_shard::core::{Core, GroupBy, QueryOutcome, QueryRequest};
use std::rc::Rc;
use std::sync::Arc;

/// Fuses a dense lane and one that ranks by score.
pub struct HybridPoints {
    /// Name as sent.
    pub collection: String,
    /// Query vector of the dense lane, empty = no such lane.
    pub dense: Vec<f32>,
    /// The other lane: sparse or text.
    pub other: Source,
    /// Results, checked against `1..=65536`.
    pub k: i64,
    /// Which points, for both lanes.
    pub filter: Option<Arc<Predicate>>,
    /// How they are fused.
    pub method: Method,
    /// Hits of the dense lane, 0 = `max(k, 50)`.
    pub dense_k: i64,
    /// Hits of the other lane, likewise.
    pub other_k: i64,
    /// The beam width, thresholds, the offset, what is returned with hits, and whether the answer has a report of the search.
    pub options: SearchOptions,
    /// Consistency.
    pub read: ReadOptions,
}

/// Finds the documents that match a text best.
pub struct TextPoints {
    /// Name as sent.
    pub collection: String,
    /// An analyzed text.
    pub text: Source,
    /// Results, checked against `1..=65536`.
    pub k: i64,
    /// Which points.
    pub filter: Option<Arc<Predicate>>,
    /// The beam width, thresholds, the offset, what is returned with hits, and whether the answer has a report of the search.
    pub options: SearchOptions,
    /// Consistency.
    pub read: ReadOptions,
}

/// Groups the nearest neighbours by the value of a payload key.
pub struct GroupPoints {
    /// Name as sent.
    pub collection: String,
    /// Query vector.
    pub vector: Vec<f32>,
    /// Groups, checked against `1..=65536`.
    pub k: i64,
    /// Payload key.
    pub group_by: String,
    /// Hits per group, below 1 = 1.
    pub group_size: i64,
    /// The number of neighbours from which the groups are made. A value below `k * group_size` means four times that product, but at least 50.
    pub fetch_k: i64,
    /// Which points.
    pub filter: Option<Arc<Predicate>>,
    /// The beam width, thresholds, the offset, what is returned with hits, and whether the answer has a report of the search.
    pub options: SearchOptions,
    /// Consistency.
    pub read: ReadOptions,
}

/// A search for diverse results (MMR).
pub struct DiversePoints {
    /// Name as sent.
    pub collection: String,
    /// The query vector.
    pub vector: Vec<f32>,
    /// The number of results, 1 to [`limits::DIVERSE_K_MAX`].
    pub k: i64,
    /// How they are chosen.
    pub diversity: Diversity,
    /// Which points.
    pub filter: Option<Arc<Predicate>>,
    /// The beam width, thresholds, the offset, what is returned with hits, and whether the answer has a report of the search.
    pub options: SearchOptions,
    /// Consistency.
    pub read: ReadOptions,
}

/// How diverse results (MMR) are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Diversity {
    /// The weight of nearness, above 0 and at most 1; with 1 only the distance counts.
    pub lambda: f64,
    /// Number of nearest neighbours to choose from. Without an offset, a value below `k` means four times `k`, but at least 50; with an offset it
    /// must be at least `offset + k`.
    pub fetch_k: i64,
}

impl Diversity {
    /// The default weight of nearness.
    pub const LAMBDA_DEFAULT: f64 = 0.5;

    /// Checks a search for `k` results.
    ///
    /// # Errors
    /// 400.
    pub(super) fn validate(&self, k: i64, options: &SearchOptions) -> Result<(), ApiError> {
        if !(1..=limits::DIVERSE_K_MAX).contains(&k) {
            let max = limits::DIVERSE_K_MAX;
            return Err(ApiError::invalid(format!("k must be between 1 and {max}, found {k}")));
        }
        if !(self.lambda > 0.0 && self.lambda <= 1.0) {
            return Err(ApiError::invalid(format!(
                "lambda must be above 0 and at most 1, found {}",
                self.lambda
            )));
        }
        if self.fetch_k > limits::DIVERSE_POOL_MAX {
            let (max, fetch_k) = (limits::DIVERSE_POOL_MAX, self.fetch_k);
            return Err(ApiError::invalid(format!("fetch_k must be at most {max}, found {fetch_k}")));
        }
        options.validate(k, limits::DIVERSE_K_MAX)?;
        // All pages must be chosen from the same candidates; otherwise results would be missing or appear twice.
        let reach = options.offset.saturating_add(k);
        if options.offset > 0 && self.fetch_k < reach {
            let (offset, fetch_k) = (options.offset, self.fetch_k);
            return Err(ApiError::invalid(format!(
                "fetch_k must be at least {reach} when offset is {offset} and k is {k}, found {fetch_k}; use the same fetch_k for every page"
            )));
        }
        Ok(())
    }

    /// Makes the search of one lane that finds the candidates, for `k` results after an offset, which `reach` includes.
    pub(super) fn query(
        &self,
        source: Source,
        space: usize,
        filter: Option<Arc<Predicate>>,
        k: usize,
        reach: usize,
        options: QueryOptions,
    ) -> LaneQuery {
        let lane = Leaf { source, space, pool: group_pool(reach, 1, self.fetch_k), filter };
        LaneQuery {
            lanes: vec![lane],
            combine: Combine::Diversify { lambda: self.lambda as f32 },
            k,
            options,
        }
    }
}

/// A lane of a [`QueryNode`] that ranks points by itself.
pub struct QueryLeaf {
    /// What ranks.
    pub source: Source,
    /// The name of the space in which it ranks; empty except in collections of named spaces.
    pub space: String,
    /// The number of hits that it contributes without `lane_k`; below 1 = as many as the result needs, at least 50.
    pub k: i64,
    /// The number of hits that it contributes, if above 0.
    pub lane_k: i64,
    /// Which points.
    pub filter: Option<Arc<Predicate>>,
}

/// One lane of a [`QueryNode`].
pub enum QueryLane {
    /// Ranks by itself.
    Leaf(QueryLeaf),
    /// A query, whose results are the hits of the lane.
    Query(QueryNode),
}

/// Any lanes, fused or reranked. A lane may be a query itself, down to a depth of [`limits::QUERY_DEPTH_MAX`].
pub struct QueryNode {
    /// The lanes, 1 to 64.
    pub lanes: Vec<QueryLane>,
    /// What reranks the hits of the lanes; `None` fuses them.
    pub root: Option<QueryLeaf>,
    /// How they are fused.
    pub method: Method,
    /// Results, or groups; below 1 = 10.
    pub k: i64,
}

/// A query of any lanes.
pub struct QueryPoints {
    /// Name as sent.
    pub collection: String,
    /// What is searched for.
    pub node: QueryNode,
    /// Payload key to group by, empty = no groups.
    pub group_by: String,
    /// Hits per group, below 1 = 1.
    pub group_size: i64,
    /// The beam width, thresholds, the offset, what is returned with hits, and whether the answer has a report of the search.
    pub options: SearchOptions,
    /// Consistency.
    pub read: ReadOptions,
}

/// What a zero `alpha` means.
///
/// Known clients send every number of a request, including zeros, so their zero usually means that nobody has set the number. If a request shows that
/// another program has written it, or if the zero is the negative one, which no client sends by default, it is the number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroAlpha {
    /// Nobody set it.
    Unset,
    /// The number.
    Zero,
}

/// Finds a fusion method by its name; empty = `rrf`. An `rrf_k` that is not above 0 counts as 60.
///
/// # Errors
/// A bad request for another name, or for an `alpha` outside 0 to 1 of a method that has one.
pub fn fusion_method(
    name: &str,
    alpha: Option<f64>,
    zero: ZeroAlpha,
    rrf_k: Option<i64>,
) -> Result<Method, ApiError> {
    let unset = |alpha: f64| zero == ZeroAlpha::Unset && alpha == 0.0 && alpha.is_sign_positive();
    let weight = || match alpha.filter(|alpha| !unset(*alpha)) {
        Some(alpha) if !(0.0..=1.0).contains(&alpha) => {
            let exactly = "-0.0 is exactly 0 whatever else is sent";
            Err(ApiError::invalid(format!("alpha must be between 0 and 1, found {alpha}; {exactly}")))
        }
        alpha => Ok(alpha),
    };
    match name {
        "" | "rrf" => Ok(Method::Rrf { c: rrf_k.unwrap_or(0) as f64 }),
        "weighted" => Ok(Method::Weighted { alpha: weight()? }),
        "dbsf" => Ok(Method::Dbsf { alpha: weight()? }),
        other => Err(ApiError::invalid(format!("unknown fusion method {}", quoted(other)))),
    }
}

/// Finds the strategy of a recommendation by its name, ignoring case and surrounding blanks; empty = average.
///
/// # Errors
/// A bad request for another name.
pub fn recommend_strategy(name: &str) -> Result<Strategy, ApiError> {
    match name.trim().to_ascii_lowercase().as_str() {
        "" | "average" | "average_vector" | "0" => Ok(Strategy::Average),
        "best_score" | "best" | "1" => Ok(Strategy::BestScore),
        _ => Err(ApiError::invalid(format!(
            "recommend: unknown strategy {}; it must be one of average, average_vector, best_score, best",
            quoted(name)
        ))),
    }
}

/// Checks the number of results asked for.
///
/// # Errors
/// `k must be between 1 and 65536`.
pub(super) fn check_k(k: i64) -> Result<(), ApiError> {
    if (1..=limits::K_MAX).contains(&k) {
        return Ok(());
    }
    Err(ApiError::invalid(format!("k must be between 1 and {}, found {k}", limits::K_MAX)))
}

pub(super) fn check_pool(key: &str, pool: i64) -> Result<(), ApiError> {
    if (0..=limits::LANE_POOL_MAX).contains(&pool) {
        return Ok(());
    }
    Err(ApiError::invalid(format!("{key} must be between 0 and {}, found {pool}", limits::LANE_POOL_MAX)))
}

/// Makes the words of a text query. With `phrase`, a document must have them next to each other in this order; with `prefix`, the last one is a
/// prefix.
///
/// # Errors
/// 400 when the text is too long.
pub fn text_source(text: &str, phrase: bool, prefix: bool) -> Result<Source, ApiError> {
    let most = limits::QUERY_TEXT_MAX_BYTES;
    if text.len() > most {
        let found = text.len();
        return Err(ApiError::invalid(format!(
            "the text of a query may have at most {most} bytes, found {found}"
        )));
    }
    Ok(Source::Text(TextMatch { text: text.into(), phrase, prefix }))
}

/// Checks the number of examples of a query, which compares every candidate with each example without a pause.
pub(super) fn check_source(source: &Source) -> Result<(), ApiError> {
    let (what, found, most) = match source {
        Source::Recommend(of) => {
            ("examples", of.positive.len() + of.negative.len(), limits::QUERY_EXAMPLES_MAX)
        }
        Source::Discover(of) => ("pairs of examples", of.context.len(), limits::QUERY_EXAMPLES_MAX),
        Source::Sparse(of) => ("dimensions", of.len(), limits::QUERY_DIMENSIONS_MAX),
        Source::MaxSim(of) => ("token vectors", of.tokens.len(), limits::QUERY_TOKENS_MAX),
        // The number of words is checked later, where the analyzer of the collection is known.
        // The lanes of a query are checked one by one.
        Source::Dense(_) | Source::Text(_) | Source::Query(_) => return Ok(()),
    };
    if found > most {
        return Err(ApiError::invalid(format!("a lane may have at most {most} {what}, found {found}")));
    }
    Ok(())
}

fn positive(number: i64) -> Option<usize> {
    usize::try_from(number).ok().filter(|number| *number > 0)
}

/// The number of hits of a lane, for `k` results and a requested number of hits, of which 0 means `max(k, 50)`.
pub(super) fn pool_of(asked: i64, k: usize) -> usize {
    positive(asked).unwrap_or(k.max(limits::LANE_POOL_MIN))
}

/// The number of hits from which `groups` groups are made.
fn group_pool(groups: usize, size: usize, fetch_k: i64) -> usize {
    enough(groups, size, fetch_k).unwrap_or_else(|| {
        let needed = groups.saturating_mul(size);
        needed.saturating_mul(4).clamp(limits::LANE_POOL_MIN, limits::LANE_POOL_MAX as usize)
    })
}

/// `fetch_k` where it counts: where so many hits can fill all groups.
fn enough(groups: usize, size: usize, fetch_k: i64) -> Option<usize> {
    positive(fetch_k).filter(|fetch_k| *fetch_k >= groups.saturating_mul(size))
}

/// Carries out a search of one lane. Its hits are the results, and before them those that the offset leaves out.
pub(super) async fn one_lane(
    core: &Rc<Core>,
    collection: &str,
    lane: Leaf,
    options: QueryOptions,
    request: impl FnOnce(LaneQuery) -> QueryRequest,
) -> Result<QueryOutcome, ApiError> {
    let k = lane.pool.saturating_sub(options.offset);
    // Nothing is fused.
    let lanes = LaneQuery { lanes: vec![lane], combine: Combine::Fuse(Method::Rrf { c: 0.0 }), k, options };
    Ok(core.query(collection, request(lanes)).await?)
}

impl Operation for HybridPoints {
    type Output = QueryOutcome;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        check_k(self.k)?;
        check_pool("dense_k", self.dense_k)?;
        check_pool("sparse_k", self.other_k)?;
        check_source(&self.other)?;
        self.options.validate(self.k, limits::K_MAX)?;
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<QueryOutcome, ApiError> {
        let (k, options) = (self.k as usize, self.options.query(false));
        let reach = self.options.reach(k);
        let leaf =
            |source, pool| Leaf { source, space: 0, pool: pool_of(pool, reach), filter: self.filter.clone() };
        let mut lanes = Vec::with_capacity(2);
        if !self.dense.is_empty() {
            lanes.push(leaf(Source::Dense(self.dense), self.dense_k));
        }
        // An empty one is kept: if the collection does not have such a lane at all, that must be an error.
        lanes.push(leaf(self.other, self.other_k));
        let lanes = LaneQuery { lanes, combine: Combine::Fuse(self.method), k, options };
        Ok(core.query(&self.collection, self.options.request(lanes, false)).await?)
    }
}

impl Operation for TextPoints {
    type Output = QueryOutcome;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        check_k(self.k)?;
        check_source(&self.text)?;
        self.options.validate(self.k, limits::K_MAX)?;
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<QueryOutcome, ApiError> {
        let pool = self.options.reach(self.k as usize);
        let lane = Leaf { source: self.text, space: 0, pool, filter: self.filter };
        let request = |lanes| self.options.request(lanes, true);
        one_lane(&core, &self.collection, lane, self.options.query(false), request).await
    }
}

impl Operation for DiversePoints {
    type Output = QueryOutcome;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.diversity.validate(self.k, &self.options)?;
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<QueryOutcome, ApiError> {
        let k = self.k as usize;
        let (source, reach) = (Source::Dense(self.vector), self.options.reach(k));
        let lanes = self.diversity.query(source, 0, self.filter, k, reach, self.options.query(false));
        Ok(core.query(&self.collection, self.options.request(lanes, true)).await?)
    }
}

impl Operation for GroupPoints {
    type Output = QueryOutcome;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        check_k(self.k)?;
        if self.group_by.is_empty() {
            return Err(ApiError::invalid("group_by must name a payload key"));
        }
        check_pool("fetch_k", self.fetch_k.max(0))?;
        check_pool("group_size", self.group_size.max(0))?;
        self.options.validate(self.k, limits::K_MAX)?;
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<QueryOutcome, ApiError> {
        let (groups, size) = (self.k as usize, positive(self.group_size).unwrap_or(1));
        let (offset, made) = (self.options.skipped(), self.options.reach(groups));
        let pool = group_pool(made, size, self.fetch_k);
        let lane = Leaf { source: Source::Dense(self.vector), space: 0, pool, filter: self.filter };
        // A request that says from how many hits groups are made gets groups from exactly these.
        let pool_max = enough(made, size, self.fetch_k).unwrap_or(limits::LANE_POOL_MAX as usize);
        let group = GroupBy { field: self.group_by, groups, offset, size, pool_max };
        let request = |lanes| self.options.grouped(lanes, group);
        one_lane(&core, &self.collection, lane, self.options.query(true), request).await
    }
}

impl QueryLeaf {
    /// The number of hits that were requested.
    fn asked(&self) -> Option<usize> {
        positive(self.lane_k).or(positive(self.k))
    }

    /// The lane of a query that needs `reach` results.
    fn into_leaf(self, reach: usize, spaces: &Spaces<'_>) -> Result<Leaf, ApiError> {
        let pool = self.asked().unwrap_or(reach.max(limits::LANE_POOL_MIN)).min(limits::QUERY_POOL_MAX);
        let space = spaces(&self.space, &self.source)?;
        Ok(Leaf { source: self.source, space, pool, filter: self.filter })
    }
}

/// Finds the number of the space that a source ranks in, by its name.
pub(super) type Spaces<'a> = dyn Fn(&str, &Source) -> Result<usize, ApiError> + 'a;

/// Counts the depth and the lanes of a query while it is decoded, so that a query that is too large is refused before it has taken much stack or
/// memory.
#[derive(Default)]
pub struct QueryBounds {
    /// The number of queries around the one that is being decoded.
    depth: usize,
    /// Lanes that have been decoded.
    leaves: usize,
}

impl QueryBounds {
    /// Counts a lane that ranks by itself.
    ///
    /// # Errors
    /// 400 when there are too many.
    pub fn leaf(&mut self) -> Result<(), ApiError> {
        self.leaves += 1;
        let most = limits::QUERY_LEAVES_MAX;
        match self.leaves > most {
            true => Err(ApiError::invalid(format!(
                "a query may have at most {most} lanes, those of the queries inside it included"
            ))),
            false => Ok(()),
        }
    }

    /// Decodes a query inside the one that is being decoded.
    ///
    /// # Errors
    /// 400 if it is too deep or has no lanes, because the number of such queries would not be bounded; errors of `decode`.
    pub fn inside(
        &mut self,
        decode: impl FnOnce(&mut QueryBounds) -> Result<QueryNode, ApiError>,
    ) -> Result<QueryLane, ApiError> {
        let most = limits::QUERY_DEPTH_MAX;
        if self.depth == most {
            return Err(ApiError::invalid(format!("queries may lie inside a query to a depth of {most}")));
        }
        self.depth += 1;
        let decoded = decode(self);
        self.depth -= 1;
        let query = decoded?;
        query.check_number_of_lanes()?;
        Ok(QueryLane::Query(query))
    }
}

impl QueryLane {
    /// Whether the request says how many hits it contributes.
    fn has_pool(&self) -> bool {
        match self {
            QueryLane::Leaf(leaf) => leaf.asked().is_some(),
            QueryLane::Query(_) => true,
        }
    }
}

impl QueryNode {
    /// The number of results that are requested.
    fn wanted(&self) -> usize {
        positive(self.k).unwrap_or(limits::QUERY_K_DEFAULT)
    }

    /// Calls `check` with each leaf, those of inner queries among them; errors say where it is.
    ///
    /// # Errors
    /// The first error of `check`.
    pub(super) fn check_leaves(
        &self,
        check: &mut dyn FnMut(&QueryLeaf) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        for (index, lane) in self.lanes.iter().enumerate() {
            match lane {
                QueryLane::Leaf(leaf) => check(leaf),
                QueryLane::Query(query) => query.check_leaves(check),
            }
            .map_err(|error| error.at(&format!("prefetch[{index}]")))?;
        }
        self.root.iter().try_for_each(check).map_err(|error| error.at("root"))
    }

    /// Calls `check` with each leaf that reranks the hits of lanes.
    ///
    /// # Errors
    /// The first error of `check`.
    pub(super) fn check_roots(
        &self,
        check: &dyn Fn(&QueryLeaf) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        for lane in &self.lanes {
            if let QueryLane::Query(query) = lane {
                query.check_roots(check)?;
            }
        }
        self.root.as_ref().map_or(Ok(()), check)
    }

    /// Checks the number of lanes of this query.
    fn check_number_of_lanes(&self) -> Result<(), ApiError> {
        let (found, most) = (self.lanes.len(), limits::QUERY_LANES_MAX);
        if found == 0 {
            return Err(ApiError::invalid("prefetch must hold at least one lane"));
        }
        if found > most {
            let text = format!("prefetch must hold at most {most} lanes, found {found}");
            return Err(ApiError::invalid(text));
        }
        Ok(())
    }

    /// Checks the number of lanes of each query.
    fn check_lanes(&self) -> Result<(), ApiError> {
        self.check_number_of_lanes()?;
        self.lanes.iter().enumerate().try_for_each(|(index, lane)| match lane {
            QueryLane::Leaf(_) => Ok(()),
            QueryLane::Query(query) => {
                query.check_lanes().map_err(|error| error.at(&format!("prefetch[{index}]")))
            }
        })
    }

    /// The lanes of a query that needs `reach` results, and what reranks their hits.
    fn into_lanes(
        self,
        reach: usize,
        spaces: &Spaces<'_>,
    ) -> Result<(Vec<Leaf>, Option<Leaf>, Method), ApiError> {
        let mut lanes = Vec::with_capacity(self.lanes.len());
        for (index, lane) in self.lanes.into_iter().enumerate() {
            let lane = match lane {
                QueryLane::Leaf(leaf) => leaf.into_leaf(reach, spaces),
                QueryLane::Query(query) => query.into_leaf(spaces),
            };
            lanes.push(lane.map_err(|error| error.at(&format!("prefetch[{index}]")))?);
        }
        let root = self.root.map(|root| root.into_leaf(reach, spaces)).transpose();
        Ok((lanes, root.map_err(|error| error.at("root"))?, self.method))
    }

    /// The lane that this query is.
    fn into_leaf(self, spaces: &Spaces<'_>) -> Result<Leaf, ApiError> {
        let pool = self.wanted().min(limits::QUERY_POOL_MAX);
        let (lanes, root, method) = self.into_lanes(pool, spaces)?;
        let source = Source::Query(Box::new(InnerQuery { lanes, root, method }));
        Ok(Leaf { source, space: 0, pool, filter: None })
    }
}

#[cfg(test)]
impl QueryNode {
    /// The lanes of a query without inner queries.
    pub fn leaves(&self) -> Vec<&QueryLeaf> {
        fn leaf(lane: &QueryLane) -> &QueryLeaf {
            match lane {
                QueryLane::Leaf(leaf) => leaf,
                QueryLane::Query(_) => panic!("a query inside the query"),
            }
        }
        self.lanes.iter().map(leaf).collect()
    }
}

impl QueryPoints {
    /// Carries the query out, with the numbers of its spaces from `spaces`.
    pub(super) async fn run_in(self, core: Rc<Core>, spaces: &Spaces<'_>) -> Result<QueryOutcome, ApiError> {
        let wanted = self.node.wanted();
        let size = positive(self.group_size).unwrap_or(1);
        let grouped = !self.group_by.is_empty();
        let (offset, reach) = (self.options.skipped(), self.options.reach(wanted));
        let (k, pool) = match grouped {
            true => (group_pool(reach, size, 0), group_pool(reach, size, 0)),
            false => (wanted, reach),
        };
        let said = self.node.lanes.iter().any(QueryLane::has_pool);
        let pool_max = if said { 0 } else { limits::QUERY_POOL_MAX };
        let (lanes, root, method) = self.node.into_lanes(pool, spaces)?;
        let combine = root.map_or(Combine::Fuse(method), |root| Combine::Rerank(Box::new(root)));
        let lanes = LaneQuery { lanes, combine, k, options: self.options.query(grouped) };
        let request = match grouped {
            true => {
                let group = GroupBy { field: self.group_by, groups: wanted, offset, size, pool_max };
                self.options.grouped(lanes, group)
            }
            false => self.options.request(lanes, false),
        };
        Ok(core.query(&self.collection, request).await?)
    }
}

impl Operation for QueryPoints {
    type Output = QueryOutcome;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    fn validate(&self) -> Result<(), ApiError> {
        self.node.check_lanes()?;
        self.node.check_leaves(&mut |leaf| check_source(&leaf.source))?;
        // A lane has at most this many candidates. An offset beyond them would return nothing without an error.
        self.options.validate(self.node.wanted() as i64, limits::QUERY_POOL_MAX as i64)?;
        self.read.validate()
    }
    async fn run(self, core: Rc<Core>) -> Result<QueryOutcome, ApiError> {
        // The points of a dense collection have one space; other collections too have one space for texts and one for sparse vectors.
        self.run_in(core, &|_, _| Ok(0)).await
    }
}
