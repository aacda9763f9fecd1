//! A query of several lanes over one collection, carried out under one pin: each lane ranks points in its own way, then the
//! lanes are fused, or what they found is ranked anew by one more query.

use super::cut::RankedBy;
use super::examples::Examples;
use super::fusion::{FusedHit, Fusion, Lane, Ranking, fuse, lane_weights};
use super::lane_query::{
    Combine, Found, InnerQuery, LaneError, LaneQuery, Leaf, Method, Source, by_score, first_by_distance,
};
use super::matching_slots::MatchingSlots;
use super::run::{Run, Searched};
use crate::collection::{Dense, Explain, HitsWanted, IndexType, Query, SearchError, SparseQuery};
use crate::filter::lists::look_up;
use crate::filter::planner::Plan;
use crate::filter::{Allowance, Predicate};
use crate::index::Scratch;
use crate::memory::Pin;
use crate::pace::{Pace, TooLong, Whole, at_once};
use crate::payload::{CONTENT_KEY, PayloadRow, Value, ValueRef};
use crate::slot::Slot;
use crate::sparse::{LaneScratch, LaneStats};
use ahash::{HashMap, HashMapExt, HashSet, HashSetExt};

/// How many points are scored between two calls of the pace: one may take some hundred distances.
const SCORED_STEP: usize = 16;
/// Hits of a lane that room is made for before any is found.
const HITS_AT_FIRST: usize = 1024;

/// Buffers, to be reused.
#[derive(Default)]
pub struct QueryScratch {
    /// Of walks.
    pub dense: Scratch,
    /// Of lists; made when first needed, as it is large.
    pub lists: Option<LaneScratch>,
    /// How the lanes of the last query went, in their order, as far as it came.
    pub reports: Vec<LaneReport>,
    /// Nanoseconds between the last lane and the result, by `clock`.
    pub combined_ns: u64,
    /// Whether a threshold of the last query removed a hit, and all hits that it did not find lie beyond the threshold too.
    pub ends_at_threshold: bool,
    /// For the times in reports; none are taken without.
    pub clock: Option<fn() -> u64>,
    /// The last search of the graph.
    pub(super) explain: Option<Explain>,
}

/// How a lane went, for `explain`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaneReport {
    /// `dense`, `sparse`, `text`, `recommend`, `discover`, `maxsim`, or `query` behind the lanes of a query that is a lane.
    pub lane: &'static str,
    /// Hits it might have contributed.
    pub pool: usize,
    /// Hits it has.
    pub hits: usize,
    /// The search for what is near: of a dense lane, and of candidates where examples rank.
    pub near: Option<Explain>,
    /// What a lane of lists looked at.
    pub lists: Option<LaneStats>,
    /// Nanoseconds it took, pauses included.
    pub ns: u64,
}

impl QueryScratch {
    /// Buffers made of those of others.
    pub fn new(dense: Scratch, lists: Option<LaneScratch>) -> QueryScratch {
        QueryScratch { dense, lists, ..QueryScratch::default() }
    }

    fn now_ns(&self) -> u64 {
        self.clock.map_or(0, |clock| clock())
    }

    fn report(&self, leaf: &Leaf, hits: usize, ns: u64) -> LaneReport {
        let lists = || self.lists.as_ref().map(LaneScratch::stats);
        let (lane, lists) = match &leaf.source {
            Source::Dense(_) => ("dense", None),
            Source::Sparse(_) => ("sparse", lists()),
            Source::Text(_) => ("text", lists()),
            Source::Recommend(_) => ("recommend", None),
            Source::Discover(_) => ("discover", None),
            Source::MaxSim(_) => ("maxsim", None),
            Source::Query(_) => ("query", None),
        };
        LaneReport { lane, pool: leaf.pool, hits, near: self.explain, lists, ns }
    }
}

/// Carries a query out, best first, ties by id.
///
/// With a single lane, or if only one found anything, its hits come as they are. Points that a recommend lane (or root) names
/// as examples are not in the result; the query looks for as many more.
///
/// Each lane takes its snapshot when its turn comes: a point replaced meanwhile may be found as it was by one lane and as
/// it is by another, once in the result.
///
/// Cost: that of the lanes' searches, about 50 ns per hit of each to fuse, a distance per point and example to rerank.
///
/// # Errors
/// A vector that does not fit, a lane that is not there, examples that are not.
pub fn search_lanes(
    dense: &Dense,
    pin: &Pin<'_>,
    query: &LaneQuery,
    now_ms: u64,
    scratch: &mut QueryScratch,
) -> Result<Vec<Found>, LaneError> {
    at_once(search_lanes_paced(dense.into(), pin, query, now_ms, &mut Whole::unbounded(), scratch))
}

/// As [`search_lanes`], at a pace. It counts searches of the graph, scores by examples and long lists of filters; walks over postings
/// and the fusion run in one piece each.
///
/// # Errors
/// As [`search_lanes`], and [`LaneError::TooLong`].
pub async fn search_lanes_paced(
    searched: Searched<'_>,
    pin: &Pin<'_>,
    query: &LaneQuery,
    now_ms: u64,
    pace: &mut impl Pace,
    scratch: &mut QueryScratch,
) -> Result<Vec<Found>, LaneError> {
    let Searched { dense, index } = searched;
    let run = Run { dense, index, pin, now_ms, effort: query.options.effort };
    query.check_options()?;
    let root = query.root();
    let examples = query.examples();
    scratch.reports.clear();
    let mut lanes = run.lanes(&query.lanes, pace, scratch).await?;
    let began_ns = scratch.now_ns();
    let found_max = query.wanted().saturating_add(examples.len());
    let none = HashSet::new();
    let (mut hits, ranked_by, is_cut) = match (&query.combine, root) {
        (Combine::Fuse(method), _) => {
            let ranked_by = ranked_by(&lanes);
            // Fused hits are not in the order of their distances: those that a threshold removes make room for others.
            let found_max = match query.options.distance_threshold {
                Some(_) => lanes.iter().map(|lane| lane.hits.len()).sum(),
                None => found_max,
            };
            let (mut hits, unmeasured) = fused(lanes, *method, found_max);
            let without_distance = run.measure(query, &mut hits, &unmeasured, pace).await?;
            let is_cut = run.keep_within(query, ranked_by, &mut hits, &without_distance);
            (hits, ranked_by, is_cut)
        }
        (Combine::Diversify { lambda }, _) => {
            let Ranked { by, hits: mut candidates } = lanes.swap_remove(0);
            let is_cut = run.keep_within(query, by, &mut candidates, &none);
            let hits = run.diverse(candidates, run.space(by.space), *lambda, found_max, pace).await?;
            (hits, by, is_cut)
        }
        (_, Some(root)) => {
            let mut hits = run.reranked(&lanes, root, pace, scratch).await?;
            let is_cut = run.keep_within(query, root.ranked_by(), &mut hits, &none);
            (hits, root.ranked_by(), is_cut)
        }
        (Combine::Rerank(_), None) => (Vec::new(), RankedBy::SCORE, false),
    };
    if !examples.is_empty() {
        hits.retain(|hit| !examples.contains(&hit.id));
    }
    run.page(query, ranked_by, &mut hits);
    scratch.ends_at_threshold = is_cut && query.ends_at_threshold();
    scratch.combined_ns = scratch.now_ns() - began_ns;
    Ok(hits)
}

/// What one lane found.
struct Ranked {
    by: RankedBy,
    hits: Vec<Found>,
}

/// What the values of fused lanes mean: those of the only lane that found anything stay as they are.
fn ranked_by(lanes: &[Ranked]) -> RankedBy {
    let mut filled = lanes.iter().filter(|lane| !lane.hits.is_empty());
    match (filled.next(), filled.next()) {
        (Some(lane), None) => lane.by,
        _ => RankedBy::SCORE,
    }
}

impl Run<'_> {
    /// What each lane finds, with a report of each in the scratch.
    async fn lanes(
        &self,
        leaves: &[Leaf],
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
    ) -> Result<Vec<Ranked>, LaneError> {
        let mut lanes = Vec::with_capacity(leaves.len());
        for leaf in leaves {
            scratch.explain = None;
            let began_ns = scratch.now_ns();
            let lane = self.lane(leaf, pace, scratch).await?;
            let report = scratch.report(leaf, lane.hits.len(), scratch.now_ns() - began_ns);
            scratch.reports.push(report);
            lanes.push(lane);
        }
        Ok(lanes)
    }

    /// The best `pool` results of a query that is a lane. Distances are only measured in the query that it is a lane of.
    async fn inner(
        &self,
        query: &InnerQuery,
        pool: usize,
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
    ) -> Result<Ranked, LaneError> {
        let lanes = self.lanes(&query.lanes, pace, scratch).await?;
        scratch.explain = None;
        let examples = query.examples();
        let found_max = pool.saturating_add(examples.len());
        let (by, mut hits) = match &query.root {
            Some(root) => (root.ranked_by(), self.reranked(&lanes, root, pace, scratch).await?),
            None => (ranked_by(&lanes), fused(lanes, query.method, found_max).0),
        };
        hits.retain(|hit| !examples.contains(&hit.id));
        hits.truncate(pool);
        Ok(Ranked { by, hits })
    }

    async fn lane(
        &self,
        leaf: &Leaf,
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
    ) -> Result<Ranked, LaneError> {
        // No more can be found, and a pool may be any number.
        let pool = leaf.pool.min(self.dense.points().live() as usize);
        let hits = match &leaf.source {
            Source::Dense(vector) => self.nearest(leaf, vector, pool, pace, scratch).await?,
            Source::Sparse(_) | Source::Text(_) => self.listed(leaf, pool, None, pace, scratch).await?,
            Source::Recommend(recommend) => {
                let examples = Examples::of_recommend(self, leaf.space, recommend)?;
                let named: HashSet<u64> = recommend.ids().collect();
                self.by_examples(&examples, &named, leaf, pool, pace, scratch).await?
            }
            Source::Discover(discover) => {
                let examples = Examples::of_discover(self, leaf.space, discover)?;
                // Results of dense collections include what a discovery names; those of named spaces do not.
                let named = match self.dense.is_named() {
                    true => discover.ids().collect(),
                    false => HashSet::new(),
                };
                self.by_examples(&examples, &named, leaf, pool, pace, scratch).await?
            }
            Source::MaxSim(query) => self.max_sim(leaf, query, pool, pace, scratch).await?,
            // In a box, as a future cannot contain another of its kind.
            Source::Query(query) => return Box::pin(self.inner(query, pool, pace, scratch)).await,
        };
        Ok(Ranked { by: leaf.ranked_by(), hits })
    }

    async fn nearest(
        &self,
        leaf: &Leaf,
        vector: &[f32],
        k: usize,
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
    ) -> Result<Vec<Found>, LaneError> {
        let mut hits = Vec::with_capacity(k.min(HITS_AT_FIRST));
        // Where devices search, nothing is indexed that would make it shorter.
        let (space, filter) = (self.space(leaf.space), leaf.filter.as_deref());
        let exact = self.is_exact() || space.config().index == IndexType::Gpu;
        let query = Query { vector, k, ef: self.beam(), filter, exact, now_ms: self.now_ms };
        let searched = space.search_paced(self.pin, &query, pace, &mut scratch.dense, &mut hits);
        scratch.explain = Some(searched.await?);
        Ok(hits.into_iter().map(Found::from).collect())
    }

    async fn listed(
        &self,
        leaf: &Leaf,
        k: usize,
        among: Option<&HashSet<u64>>,
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
    ) -> Result<Vec<Found>, LaneError> {
        let (dense, pin) = (self.dense, self.pin);
        let wanted = HitsWanted { k, filter: leaf.filter.as_deref(), among, now_ms: self.now_ms };
        let lists = scratch.lists.get_or_insert_default();
        let mut hits = Vec::new();
        match &leaf.source {
            Source::Sparse(query) => {
                let query = SparseQuery { space: leaf.space, terms: query };
                dense.search_sparse(pin, query, wanted, pace, lists, &mut hits).await?;
            }
            Source::Text(query) => {
                dense.search_text(pin, query, wanted, pace, lists, &mut hits).await?;
            }
            _ => {}
        }
        let found = |hit: crate::sparse::LaneHit| Found {
            id: hit.id,
            distance: 0.0,
            score: hit.score,
            slot: hit.slot,
        };
        Ok(hits.into_iter().map(found).collect())
    }

    /// The best `pool` points near the seed, without those `named`.
    async fn by_examples(
        &self,
        examples: &Examples,
        named: &HashSet<u64>,
        leaf: &Leaf,
        pool: usize,
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
    ) -> Result<Vec<Found>, LaneError> {
        if self.is_exact() && !matches!(examples, Examples::Average(_)) {
            return self.all_by_examples(examples, named, leaf, pool, pace, scratch).await;
        }
        let seed = &examples.seed()[..self.space(leaf.space).config().dim];
        let candidates = examples.candidates(pool).saturating_add(named.len());
        let mut hits = self.nearest(leaf, seed, candidates, pace, scratch).await?;
        hits.retain(|hit| !named.contains(&hit.id));
        if !matches!(examples, Examples::Average(_)) {
            self.rank_by(leaf.space, examples, &mut hits, pace).await?;
        }
        hits.truncate(pool);
        Ok(hits)
    }

    /// The best `pool` of all points, without those `named`.
    async fn all_by_examples(
        &self,
        examples: &Examples,
        named: &HashSet<u64>,
        leaf: &Leaf,
        pool: usize,
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
    ) -> Result<Vec<Found>, LaneError> {
        let (points, space) = (self.dense.points(), self.space(leaf.space));
        let filter = leaf.filter.as_deref().filter(|filter| !filter.is_trivially_true());
        let mut view = points.view_to_plan(self.pin, filter, self.now_ms);
        let mut explain = Explain { exact: true, ..Explain::default() };
        let situation = points.counted(space.situation(0, true));
        let plan = match filter {
            Some(filter) => {
                let index = points.index(self.pin);
                let lists = look_up(filter, index, view.ids.clone(), &situation, pace).await?;
                let (plan, estimate) = points.planned(filter, self.pin, &lists, &situation, &view);
                (explain.estimate, explain.path) = (estimate, estimate.path);
                plan
            }
            None => Plan::Everything,
        };
        let expected = explain.estimate.expected.unwrap_or(points.live());
        pace.foresee((expected as usize).saturating_mul(examples.distances()))?;
        let (walk, is_whole) = match plan {
            Plan::Nothing => {
                scratch.explain = Some(explain);
                return Ok(Vec::new());
            }
            Plan::Points { walk, exact } => (Some(walk), exact),
            Plan::Everything | Plan::Graph(_) => (None, false),
        };
        let mut matching = MatchingSlots::of(walk, is_whole, points.slots());
        let (mut slots, mut hits) = (Vec::new(), Vec::new());
        while matching.next(&mut view, &mut slots, pace).await? {
            slots.retain(|&slot| space.holds(slot));
            for part in slots.chunks(SCORED_STEP) {
                for &slot in part {
                    let (distance, score) = examples.score(self, leaf.space, slot);
                    hits.push(Found { id: points.id(slot), distance, score, slot });
                }
                explain.distances += (part.len() * examples.distances()) as u64;
                pace.step(part.len() * examples.distances()).await?;
            }
            if hits.len() >= 2 * pool + HITS_AT_FIRST {
                best_by(examples, named, pool, &mut hits);
            }
        }
        best_by(examples, named, pool, &mut hits);
        explain.rejects = view.filter_rejects;
        scratch.explain = Some(explain);
        points.count_rejects(view.filter_rejects);
        Ok(hits)
    }

    /// All points that any lane found, as `root` ranks them.
    async fn reranked(
        &self,
        lanes: &[Ranked],
        root: &Leaf,
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
    ) -> Result<Vec<Found>, LaneError> {
        let mut seen = HashSet::new();
        let mut hits: Vec<Found> = lanes.iter().flat_map(|lane| &lane.hits).copied().collect();
        hits.retain(|hit| seen.insert(hit.id));
        if let Some(filter) = &root.filter {
            hits = self.matching(filter, hits, pace).await?;
        }
        if !matches!(root.source, Source::Sparse(_) | Source::Text(_) | Source::MaxSim(_)) {
            // A point that lacks a vector there is none of its hits.
            hits.retain(|hit| self.space(root.space).holds(hit.slot));
        }
        match &root.source {
            Source::Dense(vector) => {
                self.rank_by(
                    root.space,
                    &Examples::Average(self.prepared(root.space, vector)?),
                    &mut hits,
                    pace,
                )
                .await?;
            }
            Source::Recommend(recommend) => {
                self.rank_by(
                    root.space,
                    &Examples::of_recommend(self, root.space, recommend)?,
                    &mut hits,
                    pace,
                )
                .await?;
            }
            Source::Discover(discover) => {
                self.rank_by(
                    root.space,
                    &Examples::of_discover(self, root.space, discover)?,
                    &mut hits,
                    pace,
                )
                .await?;
                hits.iter_mut().for_each(|hit| hit.distance = 0.0);
            }
            // A point that shares no dimension or term with the query is none of its hits here either.
            Source::Sparse(query) => {
                crate::sparse::check_sparse(query).map_err(SearchError::from)?;
                hits.retain_mut(|hit| {
                    let row = PayloadRow::trusted(self.dense.row(self.pin, hit.slot));
                    let score = product(query, row.sparse_of(root.space));
                    (hit.distance, hit.score) = (0.0, score.unwrap_or(0.0));
                    score.is_some()
                });
                hits.sort_unstable_by(|a, b| by_score(a, b).then(a.id.cmp(&b.id)));
            }
            Source::MaxSim(query) => hits = self.ranked_by_tokens(query, hits, pace).await?,
            Source::Text(_) => {
                hits = self.listed(root, seen.len(), Some(&seen), pace, scratch).await?;
            }
            Source::Query(_) => return Err(LaneError::RootIsQuery),
        }
        Ok(hits)
    }

    /// Gives the hits at these places their distance to what the first lane that ranks by distance asked for. Returns the ids of those that have
    /// none, because there is no such lane or because they lack a vector in its space.
    async fn measure(
        &self,
        query: &LaneQuery,
        hits: &mut [Found],
        unmeasured: &[usize],
        pace: &mut impl Pace,
    ) -> Result<HashSet<u64>, LaneError> {
        let all = |hits: &[Found]| unmeasured.iter().map(|place| hits[*place].id).collect();
        let first = first_by_distance(&query.lanes);
        let Some(first) = first.filter(|_| !unmeasured.is_empty()) else { return Ok(all(hits)) };
        let asked = match &first.source {
            Source::Recommend(recommend) => Examples::of_recommend(self, first.space, recommend)?,
            Source::Dense(vector) => Examples::Average(self.prepared(first.space, vector)?),
            _ => return Ok(all(hits)),
        };
        let mut without = HashSet::new();
        pace.foresee(unmeasured.len())?;
        for part in unmeasured.chunks(SCORED_STEP) {
            for &place in part {
                let hit = &mut hits[place];
                if self.space(first.space).holds(hit.slot) {
                    hit.distance = asked.score(self, first.space, hit.slot).0;
                } else {
                    without.insert(hit.id);
                }
            }
            pace.step(part.len()).await?;
        }
        Ok(without)
    }

    async fn rank_by(
        &self,
        space: usize,
        examples: &Examples,
        hits: &mut [Found],
        pace: &mut impl Pace,
    ) -> Result<(), TooLong> {
        pace.foresee(hits.len().saturating_mul(examples.distances()))?;
        for part in hits.chunks_mut(SCORED_STEP) {
            for hit in part.iter_mut() {
                (hit.distance, hit.score) = examples.score(self, space, hit.slot);
            }
            pace.step(part.len() * examples.distances()).await?;
        }
        hits.sort_unstable_by(|a, b| examples.order(a, b));
        Ok(())
    }

    /// Those of the hits that match.
    pub(super) async fn matching(
        &self,
        filter: &Predicate,
        hits: Vec<Found>,
        pace: &mut impl Pace,
    ) -> Result<Vec<Found>, TooLong> {
        let (allowance, mut left) = (Allowance::of(ASKED_NS), Vec::with_capacity(hits.len()));
        for hit in hits {
            let row = self.dense.row(self.pin, hit.slot);
            let row = (!row.is_empty()).then(|| PayloadRow::trusted(row));
            let matches = match filter.ask(hit.id, row, self.now_ms, &allowance) {
                Some(matches) => matches,
                None => filter.ask_in_pieces(hit.id, row, self.now_ms, pace).await?,
            };
            if matches {
                left.push(hit);
            }
            if allowance.is_spent() {
                pace.step(allowance.renew(ASKED_NS)).await?;
            }
        }
        pace.step(allowance.renew(0)).await?;
        Ok(left)
    }
}

/// Keeps the best `pool` of the hits in their order, without those `named`.
fn best_by(examples: &Examples, named: &HashSet<u64>, pool: usize, hits: &mut Vec<Found>) {
    hits.retain(|hit| !named.contains(&hit.id));
    hits.sort_unstable_by(|a, b| examples.order(a, b));
    hits.truncate(pool);
}

/// What questions to a filter may take between two calls of the pace, in nanoseconds.
const ASKED_NS: u64 = 50_000;

/// The dot product of a query with a sparse vector, as the sparse lane sums it; `None` when they share no dimension.
fn product(query: &[(u32, f32)], vector: impl Iterator<Item = (u32, f32)>) -> Option<f32> {
    let (mut sum, mut shared) = (0.0f64, false);
    let mut wanted = query.iter().peekable();
    for (dimension, value) in vector {
        while wanted.next_if(|term| term.0 < dimension).is_some() {}
        if let Some(term) = wanted.next_if(|term| term.0 == dimension) {
            sum += f64::from(term.1) * f64::from(value);
            shared = true;
        }
    }
    shared.then_some(sum as f32)
}

/// The result, and the places in it of hits that no lane found that ranks by distance.
fn fused(mut lanes: Vec<Ranked>, method: Method, k: usize) -> (Vec<Found>, Vec<usize>) {
    let mut filled = (0..lanes.len()).filter(|&lane| !lanes[lane].hits.is_empty());
    let first = filled.next();
    if filled.next().is_none() {
        let Some(lane) = first else { return Default::default() };
        let Ranked { by, mut hits } = lanes.swap_remove(lane);
        hits.truncate(k);
        let unmeasured = if by.ranking == Ranking::Score { (0..hits.len()).collect() } else { Vec::new() };
        return (hits, unmeasured);
    }
    let mut slots: HashMap<u64, Slot> =
        HashMap::with_capacity(lanes.iter().map(|lane| lane.hits.len()).sum());
    let values: Vec<Vec<(u64, f32)>> = lanes
        .iter()
        .map(|lane| {
            let value = |hit: &Found| match lane.by.ranking {
                Ranking::Distance => (hit.id, hit.distance),
                Ranking::Score => (hit.id, hit.score),
            };
            lane.hits.iter().inspect(|hit| _ = slots.entry(hit.id).or_insert(hit.slot)).map(value).collect()
        })
        .collect();
    let lanes: Vec<Lane<'_>> =
        lanes.iter().zip(&values).map(|(lane, hits)| Lane { ranking: lane.by.ranking, hits }).collect();
    let weights = match method {
        Method::Rrf { .. } => Vec::new(),
        Method::Weighted { alpha } | Method::Dbsf { alpha } => lane_weights(alpha, lanes.len()),
    };
    let method = match method {
        Method::Rrf { c } => Fusion::Rrf { c },
        Method::Weighted { .. } => Fusion::Weighted(&weights),
        Method::Dbsf { .. } => Fusion::Dbsf(&weights),
    };
    let found = fuse(&lanes, method, k);
    let without = |(place, hit): (usize, &FusedHit)| hit.distance.is_none().then_some(place);
    let unmeasured = found.iter().enumerate().filter_map(without).collect();
    let hit = |hit: FusedHit| {
        let distance = hit.distance.unwrap_or(0.0);
        Found { id: hit.id, distance, score: hit.score, slot: slots[&hit.id] }
    };
    (found.into_iter().map(hit).collect(), unmeasured)
}

/// Results that share a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The value.
    pub key: Value,
    /// Best first.
    pub hits: Vec<Found>,
}

/// The first `groups` values of `field` among `hits`, which come best first, each with its first `size` hits. Only strings,
/// numbers and booleans make groups, values of different kinds different ones; the document text makes none. Hits
/// without such a value are left out.
pub fn group_hits(
    dense: &Dense,
    pin: &Pin<'_>,
    hits: &[Found],
    field: &str,
    groups: usize,
    size: usize,
    now_ms: u64,
) -> Vec<Group> {
    let mut made: Vec<Group> = Vec::new();
    if field == CONTENT_KEY {
        return made;
    }
    let mut places: HashMap<GroupKey<'_>, usize> = HashMap::new();
    for hit in hits {
        let row = PayloadRow::trusted(dense.row(pin, hit.slot));
        let Some(value) = row.get(field, now_ms) else { continue };
        let Some(key) = GroupKey::of(value) else { continue };
        let place = match places.get(&key) {
            Some(&place) => place,
            None if made.len() == groups => continue,
            None => {
                places.insert(key, made.len());
                made.push(Group { key: value.to_owned(), hits: Vec::new() });
                made.len() - 1
            }
        };
        if made[place].hits.len() < size {
            made[place].hits.push(*hit);
        }
    }
    made
}

#[derive(PartialEq, Eq, Hash)]
enum GroupKey<'a> {
    String(&'a str),
    Int(i64),
    Float(u64),
    Bool(bool),
}

impl<'a> GroupKey<'a> {
    fn of(value: ValueRef<'a>) -> Option<GroupKey<'a>> {
        Some(match value {
            ValueRef::String(text) => GroupKey::String(text),
            ValueRef::Int(number) => GroupKey::Int(number),
            // Zeros of both signs are one value.
            ValueRef::Float(number) => GroupKey::Float((number + 0.0).to_bits()),
            ValueRef::Bool(flag) => GroupKey::Bool(flag),
            _ => return None,
        })
    }
}
