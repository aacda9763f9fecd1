//! Queries of any lanes.
//!
//! Encoders leave fields of value 0 out and write the others in ascending order. A query inside a query is kept as the bytes that it comes as, and
//! decoded when its turn comes: it is checked how deep it lies before that.

use super::{Bound, Bounded, Item};
use crate::limits::{QUERY_DIMENSIONS_MAX, QUERY_EXAMPLES_MAX, QUERY_LANES_MAX, QUERY_TOKENS_MAX};
use prost::{Enumeration, Message, Oneof};

/// A query.
#[derive(Clone, PartialEq, Message)]
pub struct QuerySpec {
    #[prost(message, optional, tag = "1")]
    pub root: Option<QueryLeaf>,
    #[prost(message, repeated, tag = "2")]
    pub prefetch: Vec<QueryLeaf>,
    #[prost(enumeration = "QueryMode", tag = "3")]
    pub mode: i32,
    #[prost(string, tag = "4")]
    pub fusion_method: String,
    /// A weight of 0 is not the same as none.
    #[prost(double, optional, tag = "5")]
    pub alpha: Option<f64>,
    #[prost(int32, tag = "6")]
    pub rrf_k: i32,
    #[prost(int32, tag = "7")]
    pub k: i32,
    #[prost(message, repeated, tag = "8")]
    pub prefetch_sources: Vec<QuerySource>,
    #[prost(string, tag = "9")]
    pub group_by: String,
    #[prost(uint32, tag = "10")]
    pub group_size: u32,
}

/// What is done with the hits of the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub enum QueryMode {
    Fusion = 0,
    Rerank = 1,
}

/// Where hits to be fused come from.
#[derive(Clone, PartialEq, Message)]
pub struct QuerySource {
    #[prost(oneof = "Source", tags = "1, 2")]
    pub source: Option<Source>,
}

/// See [`QuerySource`].
#[derive(Clone, PartialEq, Oneof)]
pub enum Source {
    #[prost(message, tag = "1")]
    Leaf(QueryLeaf),
    /// A [`QuerySpec`], not decoded.
    #[prost(bytes = "vec", tag = "2")]
    Spec(Vec<u8>),
}

/// A lane.
#[derive(Clone, PartialEq, Message)]
pub struct QueryLeaf {
    #[prost(oneof = "Leaf", tags = "1, 2, 3, 4, 5, 6, 7, 100")]
    pub leaf: Option<Leaf>,
}

/// See [`QueryLeaf`].
#[derive(Clone, PartialEq, Oneof)]
pub enum Leaf {
    #[prost(message, tag = "1")]
    Dense(DenseLeaf),
    #[prost(message, tag = "2")]
    Sparse(SparseLeaf),
    #[prost(message, tag = "3")]
    NamedDense(NamedDenseLeaf),
    #[prost(message, tag = "4")]
    NamedSparse(NamedSparseLeaf),
    #[prost(message, tag = "5")]
    MultiVector(MultiVectorLeaf),
    #[prost(message, tag = "6")]
    Recommend(RecommendLeaf),
    #[prost(message, tag = "7")]
    Discover(DiscoverLeaf),
    #[prost(message, tag = "100")]
    Text(TextLeaf),
}

/// The documents whose texts match best.
#[derive(Clone, PartialEq, Message)]
pub struct TextLeaf {
    #[prost(string, tag = "1")]
    pub text: String,
    /// Documents must have the words in this order and next to each other.
    #[prost(bool, tag = "2")]
    pub phrase: bool,
    /// The last word is a prefix: it matches every word that begins with it.
    #[prost(bool, tag = "3")]
    pub prefix: bool,
    #[prost(int32, tag = "4")]
    pub k: i32,
    #[prost(string, tag = "5")]
    pub filter_json: String,
    #[prost(int32, tag = "6")]
    pub lane_k: i32,
}

/// The documents that score best by their tokens.
#[derive(Clone, PartialEq, Message)]
pub struct MultiVectorLeaf {
    #[prost(message, repeated, tag = "1")]
    pub query: Vec<TokenVector>,
    #[prost(int32, tag = "2")]
    pub k: i32,
    #[prost(string, tag = "3")]
    pub filter_json: String,
    #[prost(int32, tag = "4")]
    pub lane_k: i32,
}

/// A vector of several: of a token, or of an example.
#[derive(Clone, PartialEq, Message)]
pub struct TokenVector {
    #[prost(float, repeated, tag = "1")]
    pub values: Vec<f32>,
}

/// The nearest to a vector.
#[derive(Clone, PartialEq, Message)]
pub struct DenseLeaf {
    #[prost(float, repeated, tag = "1")]
    pub dense: Vec<f32>,
    #[prost(int32, tag = "2")]
    pub k: i32,
    #[prost(string, tag = "3")]
    pub filter_json: String,
    #[prost(int32, tag = "4")]
    pub lane_k: i32,
}

/// The highest dot products with a sparse vector.
#[derive(Clone, PartialEq, Message)]
pub struct SparseLeaf {
    #[prost(uint32, repeated, tag = "1")]
    pub indices: Vec<u32>,
    #[prost(float, repeated, tag = "2")]
    pub values: Vec<f32>,
    #[prost(int32, tag = "3")]
    pub k: i32,
    #[prost(string, tag = "4")]
    pub filter_json: String,
    #[prost(int32, tag = "5")]
    pub lane_k: i32,
}

/// The nearest to a vector in a space.
#[derive(Clone, PartialEq, Message)]
pub struct NamedDenseLeaf {
    #[prost(string, tag = "1")]
    pub space: String,
    #[prost(float, repeated, tag = "2")]
    pub dense: Vec<f32>,
    #[prost(int32, tag = "3")]
    pub k: i32,
    #[prost(string, tag = "4")]
    pub filter_json: String,
    #[prost(int32, tag = "5")]
    pub lane_k: i32,
}

/// The highest dot products with a sparse vector in a space.
#[derive(Clone, PartialEq, Message)]
pub struct NamedSparseLeaf {
    #[prost(string, tag = "1")]
    pub space: String,
    #[prost(uint32, repeated, tag = "2")]
    pub indices: Vec<u32>,
    #[prost(float, repeated, tag = "3")]
    pub values: Vec<f32>,
    #[prost(int32, tag = "4")]
    pub k: i32,
    #[prost(string, tag = "5")]
    pub filter_json: String,
    #[prost(int32, tag = "6")]
    pub lane_k: i32,
}

/// What is like some points and unlike others.
#[derive(Clone, PartialEq, Message)]
pub struct RecommendLeaf {
    #[prost(uint64, repeated, tag = "1")]
    pub positive: Vec<u64>,
    #[prost(uint64, repeated, tag = "2")]
    pub negative: Vec<u64>,
    #[prost(int32, tag = "3")]
    pub k: i32,
    #[prost(string, tag = "4")]
    pub filter_json: String,
    #[prost(enumeration = "RecommendStrategy", tag = "5")]
    pub strategy: i32,
    /// Vectors to be like.
    #[prost(message, repeated, tag = "6")]
    pub best_pos: Vec<TokenVector>,
    /// Vectors to be unlike.
    #[prost(message, repeated, tag = "7")]
    pub best_neg: Vec<TokenVector>,
    #[prost(string, tag = "8")]
    pub space: String,
}

/// How several examples are weighed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub enum RecommendStrategy {
    Average = 0,
    BestScore = 1,
}

/// What lies near a target, on the better side of pairs.
#[derive(Clone, PartialEq, Message)]
pub struct DiscoverLeaf {
    #[prost(float, repeated, tag = "1")]
    pub target: Vec<f32>,
    #[prost(message, repeated, tag = "2")]
    pub context: Vec<ContextPair>,
    #[prost(int32, tag = "3")]
    pub k: i32,
    #[prost(string, tag = "4")]
    pub filter_json: String,
    /// One at most; a list, as 0 is an id like any other.
    #[prost(uint64, repeated, tag = "5")]
    pub target_id: Vec<u64>,
    #[prost(message, repeated, tag = "6")]
    pub context_ids: Vec<ContextPairIds>,
    #[prost(string, tag = "7")]
    pub space: String,
}

/// A pair of vectors.
#[derive(Clone, PartialEq, Message)]
pub struct ContextPair {
    #[prost(float, repeated, tag = "1")]
    pub positive: Vec<f32>,
    #[prost(float, repeated, tag = "2")]
    pub negative: Vec<f32>,
}

/// A pair of points.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ContextPairIds {
    #[prost(uint64, tag = "1")]
    pub positive: u64,
    #[prost(uint64, tag = "2")]
    pub negative: u64,
}

/// A list of a lane.
const fn of_lane(number: u32, most: usize, what: &'static str, item: Item) -> Bound {
    Bound { number, most, refusal: ("a lane may have", what), item }
}

const SPARSE: &[Bound] = &[of_lane(1, QUERY_DIMENSIONS_MAX, "dimensions", Item::Index)];

const NAMED_SPARSE: &[Bound] = &[of_lane(2, QUERY_DIMENSIONS_MAX, "dimensions", Item::Index)];

const MAX_SIM: &[Bound] = &[of_lane(1, QUERY_TOKENS_MAX, "token vectors", Item::Message(&[]))];

const RECOMMEND: &[Bound] = &[
    of_lane(1, QUERY_EXAMPLES_MAX, "example ids", Item::Integer),
    of_lane(2, QUERY_EXAMPLES_MAX, "example ids", Item::Integer),
    of_lane(6, QUERY_EXAMPLES_MAX, "examples", Item::Message(&[])),
    of_lane(7, QUERY_EXAMPLES_MAX, "examples", Item::Message(&[])),
];

const DISCOVER: &[Bound] = &[
    of_lane(2, QUERY_EXAMPLES_MAX, "pairs of examples", Item::Message(&[])),
    of_lane(5, 1, "target ids", Item::Integer),
    of_lane(6, QUERY_EXAMPLES_MAX, "pairs of examples", Item::Message(&[])),
];

const LEAF: &[Bound] = &[
    Bound::one(1, "a leaf may have its dense", &[]),
    Bound::one(2, "a leaf may have its sparse", SPARSE),
    Bound::one(3, "a leaf may have its named_dense", &[]),
    Bound::one(4, "a leaf may have its named_sparse", NAMED_SPARSE),
    Bound::one(5, "a leaf may have its mv_maxsim", MAX_SIM),
    Bound::one(6, "a leaf may have its recommend", RECOMMEND),
    Bound::one(7, "a leaf may have its discover", DISCOVER),
    Bound::one(100, "a leaf may have its text", &[]),
];

const SOURCE: &[Bound] = &[Bound::one(1, "a source may have its leaf", LEAF)];

/// A list of lanes.
const fn lanes(number: u32, of: &'static [Bound]) -> Bound {
    Bound { number, most: QUERY_LANES_MAX, refusal: ("prefetch must hold", "lanes"), item: Item::Message(of) }
}

impl Bounded for QuerySpec {
    const NAME: &'static str = "QuerySpec";
    const BOUNDS: &'static [Bound] =
        &[Bound::one(1, "a query may have its root", LEAF), lanes(2, LEAF), lanes(8, SOURCE)];
}
