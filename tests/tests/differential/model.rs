//! What collections of all families have in common, and each of them as simple as can be: points in a map, every question answered by
//! looking at all of them.
//!
//! A dense collection and one of documents have one dense and one sparse space without a name. A vector is a list of tokens, of which only
//! documents have more than one.
use nigh_tests::twin::{Filter, Payload, Val, words};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Rounding of distances and scores, relative to one.
const CLOSE: f64 = 1e-4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Dense,
    Named,
    Documents,
}

/// A space of vectors; those of documents are compared by MaxSim over `cosine`.
#[derive(Clone, Debug)]
pub struct Space {
    pub name: &'static str,
    pub dim: usize,
    pub metric: &'static str,
}

/// What a collection is.
#[derive(Clone, Debug)]
pub struct Collection {
    pub name: &'static str,
    pub family: Family,
    pub dense: Vec<Space>,
    pub sparse: Vec<&'static str>,
    pub seed: u64,
    /// Whether the documents of a multi-vector collection are found by encodings.
    pub is_encoded: bool,
    /// Whether points are named by strings; see [`super::ids`].
    pub has_text_ids: bool,
}

/// How often the space is divided for encodings.
pub const ENCODING_REPETITIONS: u32 = 5;

impl Collection {
    pub fn space(&self, name: &str) -> &Space {
        self.dense.iter().find(|space| space.name == name).expect("a space of the collection")
    }
}

/// Tokens of equal length.
pub type Matrix = Vec<Vec<f32>>;
/// Components by dimension.
pub type Sparse = BTreeMap<u32, f32>;

/// When something ends: not before `earliest`, and surely by `latest`, because the server read its clock between a request and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    pub earliest: Instant,
    pub latest: Instant,
}

impl Deadline {
    pub fn new(sent: Instant, answered: Instant, ttl_ms: i64) -> Deadline {
        let ttl = Duration::from_millis(ttl_ms as u64);
        // Clocks of processes that read them in milliseconds differ by as many.
        let margin = Duration::from_millis(3);
        Deadline { earliest: sent + ttl.saturating_sub(margin), latest: answered + ttl + margin }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Point {
    pub dense: BTreeMap<&'static str, Matrix>,
    pub sparse: BTreeMap<&'static str, Sparse>,
    /// The document is among it, as `$content`.
    pub payload: Payload,
    pub version: u64,
    pub ends: Option<Deadline>,
    pub keys_end: BTreeMap<String, Deadline>,
}

/// A point to be written. A space that a named collection does not find in it keeps what it has.
#[derive(Clone, Debug, Default)]
pub struct Put {
    pub id: u64,
    pub dense: BTreeMap<&'static str, Matrix>,
    /// An empty one removes what is there.
    pub sparse: BTreeMap<&'static str, Sparse>,
    pub payload: Payload,
    /// 0 = none.
    pub ttl_ms: i64,
    pub key_ttl_ms: BTreeMap<String, i64>,
    pub expected: Option<u64>,
    /// One that is there is refused; only dense collections have it.
    pub create_only: bool,
}

/// A change of a point that keeps the rest of it.
#[derive(Clone, Debug)]
pub enum Change {
    Merge(Payload, BTreeMap<String, i64>),
    Overwrite(Payload, BTreeMap<String, i64>),
    DeleteKeys(Vec<String>),
    Clear,
    /// Vectors of the point are set or removed, one space at a time. Only collections of named spaces have this change.
    Vectors(Vectors),
}

/// Vectors that a point gets, and spaces that it leaves.
#[derive(Clone, Debug, Default)]
pub struct Vectors {
    pub dense: BTreeMap<&'static str, Matrix>,
    /// An empty one removes what is there.
    pub sparse: BTreeMap<&'static str, Sparse>,
    pub delete: Vec<&'static str>,
}

/// Several points to be deleted.
#[derive(Clone, Debug)]
pub enum Doomed {
    Ids(Vec<u64>),
    Matching(Filter),
}

/// What is searched for.
#[derive(Clone, Debug)]
pub enum Lane {
    Dense(&'static str, Matrix),
    Sparse(&'static str, Sparse),
    Text(String),
    /// The result of a query of other lanes, fused by reciprocal ranks.
    Query(Vec<Lane>),
}

/// A question that hits answer.
#[derive(Clone, Debug)]
pub enum Question {
    /// One lane, on a route of its own.
    One(Lane),
    /// One dense lane, and what the documents hold.
    WithDocuments(Lane),
    /// Two lanes on the route of hybrid searches, by reciprocal ranks.
    Hybrid(Lane, Lane),
    /// Lanes on the route of queries, by reciprocal ranks; one lane keeps its own figures.
    Query(Vec<Lane>),
    /// What the lanes find, ranked by another.
    Rerank(Vec<Lane>, Lane),
}

/// A question with what all of them have.
#[derive(Clone, Debug)]
pub struct Ask {
    pub question: Question,
    pub k: usize,
    pub filter: Option<Filter>,
}

/// Pools as large as the collection, so that a tie at the end of a pool decides nothing.
pub const POOL: usize = 500;

/// What a transport says of a stored point.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub dense: BTreeMap<String, Matrix>,
    /// `None` where the format has no place for it.
    pub sparse: Option<BTreeMap<String, Sparse>>,
    pub payload: Payload,
    pub version: u64,
    /// Whether it ends; `None` where the format has no place for it.
    pub ends: Option<bool>,
}

/// A hit. Floats are bits, so that transports must agree in all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    pub id: u64,
    pub distance: f32,
    pub score: f32,
    /// The payload, where documents were asked for.
    pub payload: Payload,
}

/// Which of the two figures of a hit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Smaller is better.
    Distance,
    /// Greater is better.
    Score,
}

/// What a point may be worth: greater is better, and rounding may put it anywhere between the two.
#[derive(Clone, Copy, Debug)]
pub struct Worth {
    pub id: u64,
    pub low: f64,
    pub high: f64,
}

impl Worth {
    fn about(id: u64, worth: f64, close: f64) -> Worth {
        let error = close * worth.abs().max(1.0);
        Worth { id, low: worth - error, high: worth + error }
    }
}

/// A collection as simple as can be.
#[derive(Clone, Debug, Default)]
pub struct Twin {
    pub points: BTreeMap<u64, Point>,
    /// The last version of every id that was there: it is never given again.
    pub given: BTreeMap<u64, u64>,
}

impl Twin {
    pub fn next_version(&self, id: u64) -> u64 {
        self.given.get(&id).map_or(1, |given| given + 1)
    }

    /// The version of the point that is there, 0 where there is none.
    pub fn version(&self, id: u64) -> u64 {
        self.points.get(&id).map_or(0, |point| point.version)
    }

    pub fn insert(&mut self, id: u64, point: Point) {
        self.given.insert(id, point.version);
        self.points.insert(id, point);
    }

    /// The point that a write leads to. It was sent and answered at these moments.
    pub fn after(&self, of: &Collection, put: &Put, sent: Instant, answered: Instant) -> Point {
        let mut point = match self.points.get(&put.id) {
            Some(old) if of.family == Family::Named => {
                Point { dense: old.dense.clone(), sparse: old.sparse.clone(), ..Point::default() }
            }
            _ => Point::default(),
        };
        point.dense.extend(put.dense.clone());
        point.sparse.extend(put.sparse.clone());
        point.sparse.retain(|_, vector| !vector.is_empty());
        point.payload = put.payload.clone();
        point.version = self.next_version(put.id);
        point.ends = (put.ttl_ms > 0).then(|| Deadline::new(sent, answered, put.ttl_ms));
        point.keys_end = deadlines(&point.payload, &put.key_ttl_ms, sent, answered);
        point
    }

    /// The point that a change leads to; `None` where there is none.
    pub fn changed(&self, id: u64, change: &Change, sent: Instant, answered: Instant) -> Option<Point> {
        let mut point = self.points.get(&id)?.clone();
        point.version += 1;
        match change {
            Change::Merge(patch, ttl) => {
                point.payload.extend(patch.clone());
                point.keys_end.extend(deadlines(&point.payload, ttl, sent, answered));
            }
            Change::Overwrite(all, ttl) => {
                point.payload = all.clone();
                point.keys_end = deadlines(all, ttl, sent, answered);
            }
            Change::DeleteKeys(keys) => keys.iter().for_each(|key| {
                point.payload.remove(key);
                point.keys_end.remove(key);
            }),
            Change::Clear => {
                point.payload.clear();
                point.keys_end.clear();
            }
            Change::Vectors(Vectors { dense, sparse, delete }) => {
                point.dense.extend(dense.clone());
                point.dense.retain(|name, _| !delete.contains(name));
                point.sparse.extend(sparse.clone());
                point.sparse.retain(|name, vector| !delete.contains(name) && !vector.is_empty());
            }
        }
        Some(point)
    }

    /// Every deadline that is still to come.
    pub fn deadlines(&self) -> impl Iterator<Item = (u64, Deadline)> + '_ {
        self.points.iter().flat_map(|(id, point)| {
            point.ends.iter().chain(point.keys_end.values()).map(move |end| (*id, *end))
        })
    }

    /// Removes what has surely ended by `now`.
    pub fn end(&mut self, now: Instant) {
        let is_over = |end: &Deadline| end.latest <= now;
        self.points.retain(|_, point| !point.ends.as_ref().is_some_and(is_over));
        for point in self.points.values_mut() {
            let over: Vec<String> =
                point.keys_end.iter().filter(|(_, end)| is_over(end)).map(|(key, _)| key.clone()).collect();
            for key in over {
                point.keys_end.remove(&key);
                point.payload.remove(&key);
            }
        }
    }

    /// Ids that match, ascending.
    pub fn matching(&self, filter: Option<&Filter>) -> Vec<u64> {
        let matches = |id: u64, point: &Point| {
            let mut payload = point.payload.clone();
            // The document is no field of the index.
            payload.remove("$content");
            filter.is_none_or(|filter| filter.matches(id, &payload))
        };
        self.points.iter().filter(|(id, point)| matches(**id, point)).map(|(id, _)| *id).collect()
    }

    /// Ids with a number under `key` in its order, ties by id.
    pub fn ordered(&self, filter: Option<&Filter>, key: &str, desc: bool) -> Vec<u64> {
        let value = |id: &u64| self.points[id].payload.get(key).and_then(Val::number);
        let mut ids = self.matching(filter);
        ids.retain(|id| value(id).is_some());
        ids.sort_by(|a, b| {
            let order = value(a).partial_cmp(&value(b)).expect("no NaN");
            if desc { order.reverse() } else { order }.then(a.cmp(b))
        });
        ids
    }

    /// What every point that a lane finds is worth.
    fn lane(&self, of: &Collection, lane: &Lane, filter: Option<&Filter>) -> Vec<Worth> {
        let ids = self.matching(filter);
        match lane {
            Lane::Dense(name, query) => {
                let space = of.space(name);
                let worth = |id: u64| {
                    let tokens = self.points[&id].dense.get(name)?;
                    let worth = match of.family {
                        Family::Documents => max_sim(query, tokens),
                        _ => -distance(space.metric, &query[0], &tokens[0]),
                    };
                    Some(Worth::about(id, worth, CLOSE))
                };
                ids.into_iter().filter_map(worth).collect()
            }
            Lane::Sparse(name, query) => {
                let worth = |id: u64| {
                    let of = self.points[&id].sparse.get(name)?;
                    let shared =
                        query.iter().filter_map(|(at, x)| Some(f64::from(*x) * f64::from(*of.get(at)?)));
                    let shared: Vec<f64> = shared.collect();
                    // Sums of eighths are exact.
                    (!shared.is_empty()).then(|| Worth::about(id, shared.iter().sum(), 0.0))
                };
                ids.into_iter().filter_map(worth).collect()
            }
            Lane::Text(text) => self.by_text(text, &ids),
            Lane::Query(lanes) => self.several(of, lanes, filter).1,
        }
    }

    /// What every point that a lane finds is worth, and the figure that says so.
    fn found(&self, of: &Collection, lane: &Lane, filter: Option<&Filter>) -> (Figure, Vec<Worth>) {
        match lane {
            Lane::Query(lanes) => self.several(of, lanes, filter),
            Lane::Dense(..) if of.family != Family::Documents => {
                (Figure::Distance, self.lane(of, lane, filter))
            }
            _ => (Figure::Score, self.lane(of, lane, filter)),
        }
    }

    /// What every point that lanes find is worth when they are fused. A lane that alone finds something keeps its own figures.
    fn several(&self, of: &Collection, lanes: &[Lane], filter: Option<&Filter>) -> (Figure, Vec<Worth>) {
        let mut found: Vec<_> = lanes.iter().map(|lane| self.found(of, lane, filter)).collect();
        found.retain(|(_, lane)| !lane.is_empty());
        match found.len() {
            0 => (Figure::Score, Vec::new()),
            1 => found.remove(0),
            _ => (Figure::Score, fused(&found.into_iter().map(|(_, lane)| lane).collect::<Vec<_>>())),
        }
    }

    /// All that hold a word of the query, by BM25 with k1 1.2 and b 0.75. The words are of two letters each, which no stemmer touches, and
    /// no stop words.
    fn by_text(&self, query: &str, ids: &[u64]) -> Vec<Worth> {
        let content = |point: &Point| match point.payload.get("$content") {
            Some(Val::Str(text)) => words(text).collect(),
            _ => Vec::new(),
        };
        let texts: BTreeMap<u64, Vec<String>> =
            self.points.iter().map(|(id, point)| (*id, content(point))).collect();
        let documents = || texts.values().filter(|words| !words.is_empty());
        let count = documents().count() as f64;
        let average = documents().map(Vec::len).sum::<usize>() as f64 / count.max(1.0);
        let worth = |id: &u64| {
            let text = &texts[id];
            let mut sum = 0.0;
            for word in words(query).collect::<BTreeSet<_>>() {
                let frequency = text.iter().filter(|other| **other == word).count() as f64;
                let with = documents().filter(|text| text.contains(&word)).count() as f64;
                let rarity = (1.0 + (count - with + 0.5) / (with + 0.5)).ln();
                let length = 1.0 - 0.75 + 0.75 * text.len() as f64 / average;
                sum += rarity * frequency * 2.2 / (frequency + 1.2 * length);
            }
            (sum > 0.0).then(|| Worth::about(*id, sum, CLOSE))
        };
        ids.iter().filter_map(worth).collect()
    }

    /// What every point that answers a question is worth, and the figure that says so.
    pub fn answer(&self, of: &Collection, ask: &Ask) -> (Figure, Vec<Worth>) {
        let filter = ask.filter.as_ref();
        match &ask.question {
            Question::One(lane) | Question::WithDocuments(lane) => self.found(of, lane, filter),
            Question::Hybrid(a, b) => self.several(of, &[a.clone(), b.clone()], filter),
            Question::Query(all) => self.several(of, all, filter),
            Question::Rerank(all, root) => {
                let found = all.iter().flat_map(|lane| self.lane(of, lane, filter));
                let found: BTreeSet<u64> = found.map(|worth| worth.id).collect();
                let (figure, mut ranked) = self.found(of, root, filter);
                ranked.retain(|worth| found.contains(&worth.id));
                (figure, ranked)
            }
        }
    }
}

fn deadlines(
    payload: &Payload,
    ttl_ms: &BTreeMap<String, i64>,
    sent: Instant,
    answered: Instant,
) -> BTreeMap<String, Deadline> {
    let known = ttl_ms.iter().filter(|(key, ttl)| **ttl > 0 && payload.contains_key(*key));
    known.map(|(key, ttl)| (key.clone(), Deadline::new(sent, answered, *ttl))).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(f64::MIN_POSITIVE)
}

fn distance(metric: &str, a: &[f32], b: &[f32]) -> f64 {
    match metric {
        "l2" => a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum(),
        "dot" => -dot(a, b),
        _ => 1.0 - cosine(a, b),
    }
}

fn max_sim(query: &Matrix, tokens: &Matrix) -> f64 {
    let best = |token: &Vec<f32>| tokens.iter().map(|other| cosine(token, other)).fold(f64::MIN, f64::max);
    query.iter().map(best).sum()
}

/// Reciprocal ranks of several lanes added up. Where rounding decides between two points of a lane, either order counts.
fn fused(lanes: &[Vec<Worth>]) -> Vec<Worth> {
    let mut sums: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for lane in lanes {
        for one in lane {
            let others = || lane.iter().filter(|other| other.id != one.id);
            // An exact tie goes by id.
            let is_exact = |other: &Worth| other.low == other.high && one.low == one.high;
            let ahead = |other: &&Worth| {
                other.low > one.high || (is_exact(other) && other.low == one.low && other.id < one.id)
            };
            let behind = |other: &&Worth| {
                other.high < one.low || (is_exact(other) && other.low == one.low && other.id > one.id)
            };
            let first = others().filter(ahead).count();
            let last = lane.len() - 1 - others().filter(behind).count();
            let sum = sums.entry(one.id).or_default();
            sum.0 += 1.0 / (61.0 + last as f64);
            sum.1 += 1.0 / (61.0 + first as f64);
        }
    }
    let close = 1e-7;
    sums.into_iter().map(|(id, (low, high))| Worth { id, low: low - close, high: high + close }).collect()
}

/// Asserts that hits are the best of all: each is worth what the twin says, they stand in their order, and none that is better is left out.
#[track_caller]
pub fn check_hits(hits: &[Hit], figure: Figure, all: &[Worth], k: usize, about: &dyn Fn() -> String) {
    assert_eq!(hits.len(), all.len().min(k), "{}\n{hits:?}\n{all:?}", about());
    let worth = |hit: &Hit| match figure {
        Figure::Distance => -f64::from(hit.distance),
        Figure::Score => f64::from(hit.score),
    };
    let by_id: BTreeMap<u64, &Worth> = all.iter().map(|worth| (worth.id, worth)).collect();
    let mut seen = BTreeSet::new();
    for hit in hits {
        let bounds = by_id.get(&hit.id);
        let fits = bounds.is_some_and(|of| of.low <= worth(hit) && worth(hit) <= of.high);
        assert!(fits && seen.insert(hit.id), "{}\n{hit:?} is {bounds:?}\n{hits:?}\n{all:?}", about());
    }
    for pair in hits.windows(2) {
        let (a, b) = (worth(&pair[0]), worth(&pair[1]));
        assert!(a > b || (a == b && pair[0].id < pair[1].id), "{}\n{pair:?} are out of order", about());
    }
    let Some(last) = hits.last().map(worth) else { return };
    let left_out = all.iter().find(|of| of.low > last && !seen.contains(&of.id));
    assert!(left_out.is_none(), "{}\n{left_out:?} is better than the last of {hits:?}", about());
}
