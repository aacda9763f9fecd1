//! What a query of several lanes asks for, and what it finds.

use super::fusion::Ranking;
use super::options::QueryOptions;
use crate::collection::{Hit, SearchError};
use crate::filter::Predicate;
use crate::pace::TooLong;
use crate::point_id::{IdKind, SentId};
use crate::slot::Slot;
use crate::text::TextMatch;
use ahash::{HashSet, HashSetExt};
use std::cmp::Ordering;
use std::convert::Infallible;
use std::sync::Arc;

/// Documents that the tokens of one query may find.
pub(super) const CANDIDATES_MAX: usize = 1 << 20;

/// Why a query of lanes is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// A vector that does not fit, or a lane the collection does not have.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// A recommendation from nothing.
    #[error("query: recommend needs at least one positive id or vector")]
    NoPositive,
    /// A discovery without pairs.
    #[error("query: discover needs at least one context pair")]
    NoContext,
    /// An example that had to be there is not.
    #[error("query: example point not found: id {0}")]
    UnknownExample(SentId),
    /// One is there, but has no vector in the space of the lane.
    #[error("query: example point has no vector in the space of its lane: id {0}")]
    ExampleLacksVector(SentId),
    /// At a pace that does not wait.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// See the text.
    #[error("query: strategy best_score takes no negative ids under the l2 metric")]
    NegativesUnderL2,
    /// A lane of token vectors where documents have none.
    #[error("query: a lane of token vectors works on a multi-vector collection alone")]
    NoTokens,
    /// The tokens of a query found more documents than one search may hold in memory.
    #[error(
        "query: more than {CANDIDATES_MAX} documents are near its tokens; ask for a smaller k or fewer candidates per token"
    )]
    TooManyCandidates,
    /// A query ranks anew by another one.
    #[error("query: the root must rank by itself; a query cannot be the root of another one")]
    RootIsQuery,
    /// A threshold of distances for a result that scores rank.
    #[error("query: distance_threshold needs a lane that ranks by distance; use score_threshold")]
    NoDistance,
}

/// A point given by its id or by a vector.
#[derive(Clone, Debug)]
pub enum Anchor {
    /// A stored point.
    Id(SentId),
    /// `dim` floats.
    Vector(Vec<f32>),
}

/// How a recommendation weighs its examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Near the mean of the positives minus the mean of the negatives.
    Average,
    /// By the most similar example: its similarity if that is a positive one, else the negated similarity.
    BestScore,
}

/// Points like some and unlike others.
#[derive(Clone, Debug)]
pub struct Recommend {
    /// Points and vectors to be like. Absent points are skipped; one at least must be there.
    pub positive: Vec<Anchor>,
    /// Points and vectors to be unlike. Absent points are skipped.
    pub negative: Vec<Anchor>,
    /// Way of scoring.
    pub strategy: Strategy,
}

/// Points on the right side of pairs.
#[derive(Clone, Debug)]
pub struct Discover {
    /// Where to look; else around the mean of the positives.
    pub target: Option<Anchor>,
    /// Positive and negative; pairs with an absent id are skipped, one at least must remain.
    pub context: Vec<(Anchor, Anchor)>,
}

impl Anchor {
    fn id(&self) -> Option<u64> {
        match self {
            Anchor::Id(id) => Some(id.number()),
            Anchor::Vector(_) => None,
        }
    }

    /// What its id was sent as.
    fn id_kind(&self) -> Option<IdKind> {
        match self {
            Anchor::Id(id) => id.kind(),
            Anchor::Vector(_) => None,
        }
    }
}

impl Recommend {
    /// Ids of the points that it names.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.positive.iter().chain(&self.negative).filter_map(Anchor::id)
    }

    /// What the ids of its points were sent as, one after the other.
    pub fn id_kinds(&self) -> impl Iterator<Item = IdKind> {
        self.positive.iter().chain(&self.negative).filter_map(Anchor::id_kind)
    }
}

impl Discover {
    /// Ids of the points that it names.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        let sides = self.context.iter().flat_map(|(positive, negative)| [positive, negative]);
        sides.chain(&self.target).filter_map(Anchor::id)
    }

    /// What the ids of its points were sent as, one after the other.
    pub fn id_kinds(&self) -> impl Iterator<Item = IdKind> {
        let sides = self.context.iter().flat_map(|(positive, negative)| [positive, negative]);
        sides.chain(&self.target).filter_map(Anchor::id_kind)
    }
}

impl Source {
    /// What the ids of its examples were sent as, one after the other.
    pub fn id_kinds(&self) -> Vec<IdKind> {
        match self {
            Source::Recommend(recommend) => recommend.id_kinds().collect(),
            Source::Discover(discover) => discover.id_kinds().collect(),
            _ => Vec::new(),
        }
    }
}

/// What ranks points.
#[derive(Clone, Debug)]
pub enum Source {
    /// By distance to a vector of `dim` floats.
    Dense(Vec<f32>),
    /// By dot product with a sparse vector (dimension, value).
    Sparse(Vec<(u32, f32)>),
    /// By BM25.
    Text(TextMatch),
    /// By examples.
    Recommend(Recommend),
    /// By pairs of examples.
    Discover(Discover),
    /// By the sum over tokens of the query of the greatest cosine with a token of the document.
    MaxSim(MaxSim),
    /// By a query of its own, whose result is the lane.
    Query(Box<InnerQuery>),
}

/// The token vectors of a query.
#[derive(Clone, Debug, Default)]
pub struct MaxSim {
    /// Each of `dim` floats.
    pub tokens: Vec<Vec<f32>>,
    /// How many of the nearest tokens each token of the query looks for, 0 = four times the hits, at least 50.
    pub per_token: usize,
}

/// A query that is a lane of another one. The number of its results is the pool of the lane, and the lane has no filter.
#[derive(Clone, Debug)]
pub struct InnerQuery {
    /// At least one.
    pub lanes: Vec<Leaf>,
    /// Ranks anew what the lanes found, instead of fusion.
    pub root: Option<Leaf>,
    /// How the lanes are fused.
    pub method: Method,
}

/// Calls `visit` with each leaf below these lanes and the root, those of queries within them among them, until it fails.
fn visit_leaves<E>(
    lanes: &[Leaf],
    root: Option<&Leaf>,
    visit: &mut dyn FnMut(&Leaf) -> Result<(), E>,
) -> Result<(), E> {
    lanes.iter().chain(root).try_for_each(|leaf| match &leaf.source {
        Source::Query(inner) => visit_leaves(&inner.lanes, inner.root.as_ref(), visit),
        _ => visit(leaf),
    })
}

/// The ids of the points that recommendations below these lanes and the root name.
fn examples(lanes: &[Leaf], root: Option<&Leaf>) -> HashSet<u64> {
    let mut ids = HashSet::new();
    let Ok(()) = visit_leaves::<Infallible>(lanes, root, &mut |leaf| {
        if let Source::Recommend(recommend) = &leaf.source {
            ids.extend(recommend.ids());
        }
        Ok(())
    });
    ids
}

/// The first leaf that ranks by distance; in a query that ranks anew what its lanes found, only the leaf that does so counts.
pub(super) fn first_by_distance(lanes: &[Leaf]) -> Option<&Leaf> {
    lanes.iter().find_map(|leaf| match &leaf.source {
        Source::Query(inner) => match &inner.root {
            Some(root) => first_by_distance(std::slice::from_ref(root)),
            None => first_by_distance(&inner.lanes),
        },
        source => (source.ranking() == Ranking::Distance).then_some(leaf),
    })
}

impl InnerQuery {
    /// The ids of the points that its recommendations name.
    pub(super) fn examples(&self) -> HashSet<u64> {
        examples(&self.lanes, self.root.as_ref())
    }
}

impl LaneQuery {
    /// What ranks anew what the lanes found.
    pub(super) fn root(&self) -> Option<&Leaf> {
        match &self.combine {
            Combine::Rerank(root) => Some(root),
            Combine::Fuse(_) | Combine::Diversify { .. } => None,
        }
    }

    /// Calls `check` with each leaf of the query, its root and those of the queries within it among them.
    ///
    /// # Errors
    /// The first error of `check`.
    pub fn check_leaves<E>(&self, mut check: impl FnMut(&Leaf) -> Result<(), E>) -> Result<(), E> {
        visit_leaves(&self.lanes, self.root(), &mut check)
    }

    /// The ids of the points that its recommendations name.
    pub(super) fn examples(&self) -> HashSet<u64> {
        examples(&self.lanes, self.root())
    }

    /// The `k` nearest points to a vector: one lane.
    pub fn nearest(vector: Vec<f32>, k: usize, filter: Option<Arc<Predicate>>) -> LaneQuery {
        let lane = Leaf { source: Source::Dense(vector), space: 0, pool: k, filter };
        let combine = Combine::Fuse(Method::Rrf { c: 0.0 });
        LaneQuery { lanes: vec![lane], combine, k, options: QueryOptions::default() }
    }
}

impl Source {
    /// What its values mean.
    pub(super) fn ranking(&self) -> Ranking {
        match self {
            Source::Dense(_) | Source::Recommend(Recommend { strategy: Strategy::Average, .. }) => {
                Ranking::Distance
            }
            _ => Ranking::Score,
        }
    }
}

/// One lane.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// What ranks.
    pub source: Source,
    /// The number of the space that it ranks in: of a sparse vector among the sparse spaces, of texts none, of the others among the dense ones.
    pub space: usize,
    /// Hits it contributes.
    pub pool: usize,
    /// Which points.
    pub filter: Option<Arc<Predicate>>,
}

/// A fusion method, its weights by one `alpha` (see [`lane_weights`](super::lane_weights)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// Reciprocal ranks; `c` not above 0 means 60.
    Rrf {
        /// Damps the first ranks.
        c: f64,
    },
    /// Min-max normalised values.
    Weighted {
        /// Share of the first lane.
        alpha: Option<f64>,
    },
    /// Values normalised by their distribution.
    Dbsf {
        /// Share of the first lane.
        alpha: Option<f64>,
    },
}

/// What becomes of what the lanes found.
#[derive(Clone, Debug)]
pub enum Combine {
    /// One score from all.
    Fuse(Method),
    /// Ranked anew, exactly, by this one; its pool does not count.
    Rerank(Box<Leaf>),
    /// The first lane, which ranks by distance, finds candidates; those that are near and unlike each other are chosen by maximal marginal
    /// relevance.
    Diversify {
        /// Above 0 and at most 1, where 1 is by distance alone.
        lambda: f32,
    },
}

/// A query of lanes.
#[derive(Clone, Debug)]
pub struct LaneQuery {
    /// At least one.
    pub lanes: Vec<Leaf>,
    /// What becomes of them.
    pub combine: Combine,
    /// Results wanted.
    pub k: usize,
    /// How thoroughly to search, and which part of the result to return.
    pub options: QueryOptions,
}

/// A result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Point id.
    pub id: u64,
    /// The distance in the first lane that ranks by distance and found the point. If only other lanes found it and they were fused with one
    /// that ranks by distance, it is the distance to the query of that lane; without any such lane it is 0.
    pub distance: f32,
    /// Fused, or of the only lane that found something, or of the reranking query; 0 where that ranks by distance.
    pub score: f32,
    /// Slot, valid while the pin lives.
    pub slot: Slot,
}

impl From<Hit> for Found {
    fn from(hit: Hit) -> Found {
        Found { id: hit.id, distance: hit.distance, score: 0.0, slot: hit.slot }
    }
}

/// Greatest first; zeros of both signs are equal.
pub(super) fn by_score(a: &Found, b: &Found) -> Ordering {
    (b.score + 0.0).total_cmp(&(a.score + 0.0))
}
