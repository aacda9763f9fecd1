//! Bodies of searches by lanes, and what they ask for.

use crate::limits;
use crate::op::{
    ApiError, DiversePoints, Diversity, GroupPoints, HybridPoints, QueryBounds, QueryLane, QueryLeaf,
    QueryNode, QueryPoints, SentId, TextPoints, ZeroAlpha, compile_filter, fusion_method, recommend_strategy,
    text_source,
};
use crate::rest::parameters::{ReadParameters, read_parameters};
use crate::wire::filter::WireFilter;
use crate::wire::json::{Floats, SparseBody, UpTo, decode, json_object};
use crate::wire::search_options::search_body;
use nigh_engine::query::{Anchor, Discover, Method, Recommend, Source};
use nigh_engine::quoted::quoted;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

search_body! {
    /// Body of `…/search/hybrid`.
    pub struct HybridBody {
        "dense" => dense: Floats,
        "sparse" => sparse: SparseBody,
        "k" => k: i64,
        "filter" => filter: WireFilter,
        "method" => method: String,
        "alpha" => alpha: f64,
        "rrf_k" => rrf_k: i64,
        "dense_k" => dense_k: i64,
        "sparse_k" => sparse_k: i64,
    }
}

search_body! {
    /// Body of `…/search/text`.
    pub struct TextBody {
        "text" => text: String,
        "match" => matching: MatchBody,
        "k" => k: i64,
        "filter" => filter: WireFilter,
        // Statistics are always those of the whole collection.
        "global_idf" => global_idf: bool,
    }
}

search_body! {
    /// Body of `…/search/hybrid-text`.
    pub struct HybridTextBody {
        "vector" => vector: Floats,
        "dense" => dense: Floats,
        "text" => text: String,
        "match" => matching: MatchBody,
        "k" => k: i64,
        "filter" => filter: WireFilter,
        "method" => method: String,
        "alpha" => alpha: f64,
        "rrf_k" => rrf_k: i64,
        "dense_k" => dense_k: i64,
        "sparse_k" => sparse_k: i64,
        "global_idf" => global_idf: bool,
    }
}

json_object! {
    /// How a text is looked for.
    pub struct MatchBody {
        "phrase" => phrase: bool,
        "prefix" => prefix: bool,
    }
}

search_body! {
    /// Body of `…/search/groups`.
    pub struct GroupsBody {
        "query" => query: Floats,
        "k" => k: i64,
        "group_by" => group_by: String,
        "group_size" => group_size: i64,
        "fetch_k" => fetch_k: i64,
        "filter" => filter: WireFilter,
    }
}

search_body! {
    /// Body of `…/search/mmr`.
    pub struct MmrBody {
        "query" => query: Floats,
        "k" => k: i64,
        "lambda" => lambda: f64,
        "fetch_k" => fetch_k: i64,
        "filter" => filter: WireFilter,
    }
}

search_body! {
    /// Body of `…/query`.
    pub struct QueryBody {
        "root" => root: LeafBody,
        "prefetch" => prefetch: UpTo<LeafBody, { limits::QUERY_LANES_MAX }>,
        "mode" => mode: String,
        "method" => method: String,
        "alpha" => alpha: f64,
        "rrf_k" => rrf_k: i64,
        "k" => k: i64,
        "group_by" => group_by: String,
        "group_size" => group_size: i64,
    }
}

json_object! {
    /// One lane.
    pub struct LeafBody {
        "query" => query: Box<RawValue>,
        "dense" => dense: Floats,
        "sparse" => sparse: SparseBody,
        "text" => text: String,
        "match" => matching: MatchBody,
        "recommend" => recommend: RecommendBody,
        "discover" => discover: DiscoverBody,
        "k" => k: i64,
        "lane_k" => lane_k: i64,
        "filter" => filter: WireFilter,
    }
}

json_object! {
    /// Examples.
    pub struct RecommendBody {
        "positive" => positive: UpTo<SentId, { limits::QUERY_EXAMPLES_MAX }>,
        "negative" => negative: UpTo<SentId, { limits::QUERY_EXAMPLES_MAX }>,
        "positive_vecs" => positive_vecs: UpTo<Floats, { limits::QUERY_EXAMPLES_MAX }>,
        "negative_vecs" => negative_vecs: UpTo<Floats, { limits::QUERY_EXAMPLES_MAX }>,
        "strategy" => strategy: String,
    }
}

json_object! {
    /// Pairs of examples.
    pub struct DiscoverBody {
        "target" => target: SentId,
        "target_vec" => target_vec: Floats,
        "context" => context: UpTo<PairBody, { limits::QUERY_EXAMPLES_MAX }>,
    }
}

json_object! {
    /// One pair, by ids or by vectors.
    pub struct PairBody {
        "positive" => positive: SentId,
        "negative" => negative: SentId,
        "positive_vec" => positive_vec: Floats,
        "negative_vec" => negative_vec: Floats,
    }
}

/// A hybrid search of a body, whose two lanes are given.
macro_rules! hybrid {
    ($collection:ident, $body:ident, $read:ident, $dense:expr, $other:expr) => {{
        let options = $body.options();
        Ok(HybridPoints {
            collection: $collection,
            dense: $dense.unwrap_or_default().0,
            other: $other,
            k: $body.k.unwrap_or(0),
            filter: compile_filter($body.filter.map(|filter| filter.0))?,
            method: method($body.method.as_deref(), $body.alpha, $body.rrf_k)?,
            dense_k: $body.dense_k.unwrap_or(0),
            other_k: $body.sparse_k.unwrap_or(0),
            options,
            read: $read.with_body(read_parameters!($body))?,
        })
    }};
}

/// How lanes are fused. A body with `rrf_k` may be one of those that have every number whether it was set or not; in others a zero
/// `alpha` was written on purpose.
pub(super) fn method(name: Option<&str>, alpha: Option<f64>, rrf_k: Option<i64>) -> Result<Method, ApiError> {
    let zero = if rrf_k.is_some() { ZeroAlpha::Unset } else { ZeroAlpha::Zero };
    fusion_method(name.unwrap_or_default(), alpha, zero, rrf_k)
}

/// The words of a text, in the way that a body says.
fn words_of(text: &str, matching: Option<MatchBody>) -> Result<Source, ApiError> {
    let MatchBody { phrase, prefix } = matching.unwrap_or_default();
    text_source(text, phrase.unwrap_or(false), prefix.unwrap_or(false))
}

/// The lane of a text, where a body has one.
pub(super) fn text_of(text: Option<String>, matching: Option<MatchBody>) -> Result<Option<Source>, ApiError> {
    match text {
        Some(text) => words_of(&text, matching).map(Some),
        None if matching.is_some() => Err(ApiError::invalid("match is only allowed together with text")),
        None => Ok(None),
    }
}

pub fn decode_hybrid(
    collection: String,
    body: &[u8],
    read: ReadParameters,
) -> Result<HybridPoints, ApiError> {
    let mut body: HybridBody = decode(body)?;
    let sparse = body.sparse.take().unwrap_or_default().into_vector()?;
    hybrid!(collection, body, read, body.dense, Source::Sparse(sparse))
}

pub fn decode_hybrid_text(
    collection: String,
    body: &[u8],
    read: ReadParameters,
) -> Result<HybridPoints, ApiError> {
    let mut body: HybridTextBody = decode(body)?;
    let text = words_of(body.text.as_deref().unwrap_or(""), body.matching.take())?;
    hybrid!(collection, body, read, body.vector.or(body.dense), text)
}

pub fn decode_text(collection: String, body: &[u8], read: ReadParameters) -> Result<TextPoints, ApiError> {
    let mut body: TextBody = decode(body)?;
    let options = body.options();
    Ok(TextPoints {
        collection,
        text: words_of(body.text.as_deref().unwrap_or(""), body.matching)?,
        k: body.k.unwrap_or(0),
        filter: compile_filter(body.filter.map(|filter| filter.0))?,
        options,
        read: read.with_body(read_parameters!(body))?,
    })
}

pub fn decode_groups(collection: String, body: &[u8], read: ReadParameters) -> Result<GroupPoints, ApiError> {
    let mut body: GroupsBody = decode(body)?;
    let options = body.options();
    Ok(GroupPoints {
        collection,
        vector: body.query.unwrap_or_default().0,
        k: body.k.unwrap_or(0),
        group_by: body.group_by.unwrap_or_default(),
        group_size: body.group_size.unwrap_or(0),
        fetch_k: body.fetch_k.unwrap_or(0),
        filter: compile_filter(body.filter.map(|filter| filter.0))?,
        options,
        read: read.with_body(read_parameters!(body))?,
    })
}

/// How diverse results (MMR) are chosen, by the keys of a body.
pub(super) fn diversity(lambda: Option<f64>, fetch_k: Option<i64>) -> Diversity {
    Diversity { lambda: lambda.unwrap_or(Diversity::LAMBDA_DEFAULT), fetch_k: fetch_k.unwrap_or(0) }
}

pub fn decode_mmr(collection: String, body: &[u8], read: ReadParameters) -> Result<DiversePoints, ApiError> {
    let mut body: MmrBody = decode(body)?;
    let options = body.options();
    Ok(DiversePoints {
        collection,
        vector: body.query.unwrap_or_default().0,
        k: body.k.unwrap_or(0),
        diversity: diversity(body.lambda, body.fetch_k),
        filter: compile_filter(body.filter.map(|filter| filter.0))?,
        options,
        read: read.with_body(read_parameters!(body))?,
    })
}

/// Whether a query ranks anew what its lanes found.
pub(super) fn is_rerank(mode: Option<&str>) -> Result<bool, ApiError> {
    match mode.unwrap_or("") {
        "" | "fusion" => Ok(false),
        "rerank" => Ok(true),
        other => Err(ApiError::invalid(format!("unknown query mode {}", quoted(other)))),
    }
}

/// One lane of a body, by the family of the collection.
pub(super) trait LaneBody: Sized {
    /// A query that is a lane of another one.
    type Inner: DeserializeOwned + Default + Into<NodeBody<Self>>;

    /// Takes out the text of the query that is the lane.
    fn take_query(&mut self) -> Option<Box<RawValue>>;

    /// Whether a lane has no keys.
    fn is_empty(&self) -> bool;

    /// Makes a lane that ranks by itself.
    ///
    /// # Errors
    /// 400.
    fn into_leaf(self) -> Result<QueryLeaf, ApiError>;
}

/// What a body says of a query, whether it is inside another one or not.
pub(super) struct NodeBody<L> {
    pub root: Option<L>,
    pub prefetch: Vec<L>,
    pub mode: Option<String>,
    pub method: Option<String>,
    pub alpha: Option<f64>,
    pub rrf_k: Option<i64>,
    pub k: Option<i64>,
}

/// Takes what is said of a query out of a body.
macro_rules! node_body {
    ($body:ident) => {
        $crate::rest::lane_bodies::NodeBody {
            root: $body.root,
            prefetch: $body.prefetch.unwrap_or_default().0,
            mode: $body.mode,
            method: $body.method,
            alpha: $body.alpha,
            rrf_k: $body.rrf_k,
            k: $body.k,
        }
    };
}
pub(super) use node_body;

/// Declares the body of a query inside another one, with lanes of a type.
macro_rules! inner_query_body {
    ($vis:vis struct $name:ident of $lane:ty) => {
        $crate::wire::json::json_object! {
            /// A query that is a lane of another one.
            $vis struct $name {
                "root" => root: $lane,
                "prefetch" => prefetch: UpTo<$lane, { limits::QUERY_LANES_MAX }>,
                "mode" => mode: String,
                "method" => method: String,
                "alpha" => alpha: f64,
                "rrf_k" => rrf_k: i64,
                "k" => k: i64,
            }
        }

        impl From<$name> for NodeBody<$lane> {
            fn from(body: $name) -> Self {
                node_body!(body)
            }
        }
    };
}
pub(super) use inner_query_body;

inner_query_body! { pub struct InnerQueryBody of LeafBody }

impl<L: LaneBody> NodeBody<L> {
    /// Makes the query.
    ///
    /// # Errors
    /// 400, with the place of what is wrong.
    pub(super) fn into_node(self, bounds: &mut QueryBounds) -> Result<QueryNode, ApiError> {
        let rerank = is_rerank(self.mode.as_deref())?;
        let root = match self.root {
            Some(mut root) => {
                if root.take_query().is_some() {
                    return Err(ApiError::invalid("root: query is only allowed in prefetch"));
                }
                Some(root.into_leaf().map_err(|error| error.at("root"))?)
            }
            None if rerank => return Err(ApiError::invalid("mode \"rerank\" needs a root")),
            None => None,
        };
        let mut lanes = Vec::with_capacity(self.prefetch.len());
        for (index, lane) in self.prefetch.into_iter().enumerate() {
            lanes.push(into_lane(lane, bounds).map_err(|error| error.at(&format!("prefetch[{index}]")))?);
        }
        let method = method(self.method.as_deref(), self.alpha, self.rrf_k)?;
        Ok(QueryNode { lanes, root: root.filter(|_| rerank), method, k: self.k.unwrap_or(0) })
    }
}

/// The text of an inner query is decoded when its turn comes: it is checked how deep it lies before that.
fn into_lane<L: LaneBody>(mut lane: L, bounds: &mut QueryBounds) -> Result<QueryLane, ApiError> {
    let Some(text) = lane.take_query() else {
        bounds.leaf()?;
        return Ok(QueryLane::Leaf(lane.into_leaf()?));
    };
    if !lane.is_empty() {
        return Err(ApiError::invalid("query is the only key that a lane with a query may have"));
    }
    bounds.inside(|bounds| {
        let body: NodeBody<L> = decode::<L::Inner>(text.get().as_bytes())?.into();
        body.into_node(bounds)
    })
}

/// The query of a body.
macro_rules! query_points {
    ($collection:ident, $body:ident, $read:ident) => {{
        let options = $body.options();
        let read = $read.with_body($crate::rest::parameters::read_parameters!($body))?;
        let group_by = $body.group_by.take().unwrap_or_default();
        let group_size = $body.group_size.unwrap_or(0);
        let node =
            $crate::rest::lane_bodies::node_body!($body).into_node(&mut $crate::op::QueryBounds::default())?;
        Ok($crate::op::QueryPoints { collection: $collection, node, group_by, group_size, options, read })
    }};
}
pub(super) use query_points;

/// Decodes the body of a query.
///
/// # Errors
/// 400.
pub fn decode_query(collection: String, body: &[u8], read: ReadParameters) -> Result<QueryPoints, ApiError> {
    let mut body: QueryBody = decode(body)?;
    query_points!(collection, body, read)
}

impl LaneBody for LeafBody {
    type Inner = InnerQueryBody;

    fn take_query(&mut self) -> Option<Box<RawValue>> {
        self.query.take()
    }

    fn is_empty(&self) -> bool {
        matches!(
            self,
            LeafBody {
                query: None,
                dense: None,
                sparse: None,
                text: None,
                matching: None,
                recommend: None,
                discover: None,
                k: None,
                lane_k: None,
                filter: None,
            }
        )
    }

    /// Only one source of a lane counts: recommend, then discover, then a sparse vector that is not empty, then a text, then the dense one.
    fn into_leaf(self) -> Result<QueryLeaf, ApiError> {
        let text = text_of(self.text, self.matching)?;
        let sparse = self.sparse.unwrap_or_default().into_vector()?;
        let source = match (self.recommend, self.discover) {
            (Some(recommend), _) => Source::Recommend(recommend.into_recommend()?),
            (None, Some(discover)) => Source::Discover(discover.into_discover()?),
            (None, None) if !sparse.is_empty() => Source::Sparse(sparse),
            (None, None) => text.unwrap_or_else(|| Source::Dense(self.dense.unwrap_or_default().0)),
        };
        Ok(QueryLeaf {
            source,
            space: String::new(),
            k: self.k.unwrap_or(0),
            lane_k: self.lane_k.unwrap_or(0),
            filter: compile_filter(self.filter.map(|filter| filter.0))?,
        })
    }
}

impl RecommendBody {
    fn into_recommend(self) -> Result<Recommend, ApiError> {
        let examples = |ids: Option<UpTo<SentId, _>>, vectors: Option<UpTo<Floats, _>>| -> Vec<Anchor> {
            let ids = ids.unwrap_or_default().0.into_iter().map(Anchor::Id);
            ids.chain(vectors.unwrap_or_default().0.into_iter().map(|vector| Anchor::Vector(vector.0)))
                .collect()
        };
        Ok(Recommend {
            positive: examples(self.positive, self.positive_vecs),
            negative: examples(self.negative, self.negative_vecs),
            strategy: recommend_strategy(&self.strategy.unwrap_or_default())?,
        })
    }
}

impl DiscoverBody {
    fn into_discover(self) -> Result<Discover, ApiError> {
        let target = match (self.target, self.target_vec) {
            (Some(id), _) => Some(Anchor::Id(id)),
            (None, Some(Floats(vector))) if !vector.is_empty() => Some(Anchor::Vector(vector)),
            _ => None,
        };
        let mut context = Vec::new();
        for (index, pair) in self.context.unwrap_or_default().0.into_iter().enumerate() {
            context.push(match (pair.positive, pair.negative, pair.positive_vec, pair.negative_vec) {
                (Some(positive), Some(negative), None, None) => {
                    (Anchor::Id(positive), Anchor::Id(negative))
                },
                (None, None, Some(positive), Some(negative)) => {
                    (Anchor::Vector(positive.0), Anchor::Vector(negative.0))
                }
                _ => {
                    return Err(ApiError::invalid(format!(
                        "discover: context[{index}] must hold positive and negative, or positive_vec and negative_vec"
                    )));
                }
            });
        }
        Ok(Discover { target, context })
    }
}

/// Whether a body reads as each of the routes, for [`super::probe`].
pub fn reads(body: &[u8]) -> [bool; 6] {
    let read = ReadParameters::default();
    [
        decode_hybrid(String::new(), body, read).is_ok(),
        decode_hybrid_text(String::new(), body, read).is_ok(),
        decode_text(String::new(), body, read).is_ok(),
        decode_groups(String::new(), body, read).is_ok(),
        decode_mmr(String::new(), body, read).is_ok(),
        decode_query(String::new(), body, read).is_ok(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Operation;

    fn query(body: &str) -> Result<QueryPoints, String> {
        let request = decode_query("docs".into(), body.as_bytes(), ReadParameters::default());
        let request = request.and_then(|request| request.validate().map(|()| request));
        request.map_err(|error| error.message)
    }

    #[test]
    fn leaves() {
        let leaf = |leaf: &str| {
            let request = query(&format!(r#"{{"prefetch":[{leaf}]}}"#)).unwrap();
            format!("{:?}", request.node.leaves()[0].source)
        };
        // Of several sources the first of this order counts.
        let all = r#""dense":[1],"sparse":{"indices":[1],"values":[2]}"#;
        let discover = r#""discover":{"target":0,"target_vec":[9],"context":[{"positive":1,"negative":0}]}"#;
        let recommend = r#""recommend":{"positive":[1],"positive_vecs":[[2]],"strategy":" Best "}"#;
        for (body, expected) in [
            (format!("{{{all},{discover},{recommend}}}"), "Recommend"),
            (
                format!("{{{all},{discover}}}"),
                "Discover(Discover { target: Some(Id(0)), context: [(Id(1), Id(0))]",
            ),
            (format!("{{{all}}}"), "Sparse([(1, 2.0)])"),
            (r#"{"dense":[1],"sparse":{}}"#.into(), "Dense([1.0])"),
            (
                r#"{"dense":[1],"sparse":{},"text":"a fox"}"#.into(),
                "Text(TextMatch { text: \"a fox\", phrase: false, prefix: false }",
            ),
            (
                r#"{"text":"\"a\" fo*","match":{"phrase":true,"prefix":true}}"#.into(),
                "Text(TextMatch { text: \"\\\"a\\\" fo*\", phrase: true, prefix: true }",
            ),
            (
                r#"{"text":"a","match":{"prefix":null,"phrase":true}}"#.into(),
                "Text(TextMatch { text: \"a\", phrase: true, prefix: false }",
            ),
            ("{}".into(), "Dense([])"),
            (
                format!("{{{recommend}}}"),
                "Recommend(Recommend { positive: [Id(1), Vector([2.0])], negative: [], strategy: BestScore",
            ),
        ] {
            let found = leaf(&body);
            assert!(found.starts_with(expected), "{body}: {found}");
        }
    }

    #[test]
    fn methods_and_modes() {
        let request =
            query(r#"{"prefetch":[{"dense":[1]}],"mode":"","method":"","alpha":0,"rrf_k":-1,"k":0}"#);
        assert_eq!(request.unwrap().node.method, Method::Rrf { c: -1.0 });
        let request = query(
            r#"{"prefetch":[{"dense":[1]}],"method":"weighted","alpha":0,"rrf_k":0,"root":{"dense":[1]}}"#,
        );
        let request = request.unwrap();
        assert!(request.node.root.is_none(), "a root counts when reranking only");
        assert_eq!(request.node.method, Method::Weighted { alpha: None });
        let request =
            query(r#"{"prefetch":[{"dense":[1]}],"method":"dbsf","alpha":0.25,"mode":"rerank","root":{}}"#);
        let request = request.unwrap();
        assert!(request.node.root.is_some() && request.node.method == Method::Dbsf { alpha: Some(0.25) });
    }

    #[test]
    fn alpha_is_a_weight_and_zero_among_all_numbers_of_a_client_is_unset() {
        for (numbers, alpha) in [
            ("", None),
            (r#","alpha":null"#, None),
            (r#","alpha":0,"rrf_k":0"#, None),
            (r#","alpha":0.0,"rrf_k":0,"dense_k":0,"sparse_k":0"#, None),
            (r#","alpha":0"#, Some(0.0)),
            (r#","alpha":0.0,"dense_k":9"#, Some(0.0)),
            (r#","alpha":-0.0,"rrf_k":0"#, Some(0.0)),
            (r#","alpha":1,"rrf_k":0"#, Some(1.0)),
        ] {
            let hybrid = |of: fn(String, &[u8], ReadParameters) -> Result<HybridPoints, ApiError>| {
                let body = format!(r#"{{"k":1,"method":"weighted"{numbers}}}"#);
                of("docs".into(), body.as_bytes(), ReadParameters::default()).unwrap().method
            };
            assert_eq!(hybrid(decode_hybrid), Method::Weighted { alpha }, "{numbers}");
            assert_eq!(hybrid(decode_hybrid_text), Method::Weighted { alpha }, "{numbers}");
            if !numbers.contains("dense_k") {
                let body = format!(r#"{{"prefetch":[{{"dense":[1]}}],"method":"dbsf"{numbers}}}"#);
                assert_eq!(query(&body).unwrap().node.method, Method::Dbsf { alpha }, "{numbers}");
            }
        }
        for alpha in ["-1", "-0.1", "1.000001", "7"] {
            for method in ["weighted", "dbsf"] {
                let body = format!(r#"{{"prefetch":[{{"dense":[1]}}],"method":"{method}","alpha":{alpha}}}"#);
                let refused = query(&body).err().unwrap();
                assert!(refused.contains("alpha must be between 0 and 1"), "{refused}");
            }
            // Ranks have no weights.
            let body = format!(r#"{{"prefetch":[{{"dense":[1]}}],"alpha":{alpha}}}"#);
            assert_eq!(query(&body).unwrap().node.method, Method::Rrf { c: 0.0 });
        }
    }

    #[test]
    fn queries_inside_queries() {
        let request = query(
            r#"{"k":3,"prefetch":[{"dense":[1]},{"query":{"k":7,"method":"dbsf","mode":"rerank","root":{"dense":[2]},
                "prefetch":[{"sparse":{"indices":[1],"values":[1]},"lane_k":4},{"query":{"prefetch":[{"dense":[3]}]}}]}}]}"#,
        )
        .unwrap();
        let [QueryLane::Leaf(_), QueryLane::Query(inner)] = &request.node.lanes[..] else { panic!() };
        assert_eq!((request.node.k, inner.k, inner.method), (3, 7, Method::Dbsf { alpha: None }));
        assert!(matches!(&inner.root.as_ref().unwrap().source, Source::Dense(vector) if vector[..] == [2.0]));
        let [QueryLane::Leaf(first), QueryLane::Query(innermost)] = &inner.lanes[..] else { panic!() };
        assert!(matches!((&first.source, first.lane_k), (Source::Sparse(_), 4)));
        assert_eq!((innermost.k, innermost.leaves().len()), (0, 1));
        let nested = |depth| {
            let lane = |lane: String, _| format!(r#"{{"query":{{"prefetch":[{lane}]}}}}"#);
            format!(r#"{{"prefetch":[{}]}}"#, (0..depth).fold(r#"{"dense":[1]}"#.to_owned(), lane))
        };
        assert!(query(&nested(4)).is_ok());
        let sixteen = |lane: &str| vec![lane; 16].join(",");
        let wide = format!(r#"{{"query":{{"prefetch":[{}]}}}}"#, sixteen("{}"));
        assert!(query(&format!(r#"{{"prefetch":[{}]}}"#, sixteen(&wide))).is_ok());
        for (body, fragment) in [
            (
                nested(5),
                "prefetch[0]: prefetch[0]: prefetch[0]: prefetch[0]: prefetch[0]: queries may lie inside a query to a depth of 4",
            ),
            (nested(60), "to a depth of 4"),
            (
                format!(r#"{{"prefetch":[{},{{}}]}}"#, sixteen(&wide)),
                "prefetch[16]: a query may have at most 256 lanes",
            ),
            (
                r#"{"prefetch":[{"query":{"prefetch":[{}]},"k":3}]}"#.into(),
                "prefetch[0]: query is the only key",
            ),
            (
                r#"{"prefetch":[{"query":{"prefetch":[]}}]}"#.into(),
                "prefetch[0]: prefetch must hold at least one lane",
            ),
            (r#"{"prefetch":[{"query":{}}]}"#.into(), "prefetch[0]: prefetch must hold at least one lane"),
            (
                r#"{"prefetch":[{"query":{"prefetch":[{}],"group_by":"g"}}]}"#.into(),
                "prefetch[0]: invalid JSON body: unknown field \"group_by\"",
            ),
            (
                r#"{"prefetch":[{"query":{"prefetch":[{}],"mode":"rerank"}}]}"#.into(),
                "prefetch[0]: mode \"rerank\" needs a root",
            ),
            (r#"{"prefetch":[{"query":[1]}]}"#.into(), "prefetch[0]: invalid JSON body"),
            (
                r#"{"prefetch":[{}],"root":{"query":{"prefetch":[{}]}}}"#.into(),
                "root: query is only allowed in prefetch",
            ),
        ] {
            let refused = query(&body).err().expect(fragment);
            assert!(refused.contains(fragment), "{refused} lacks {fragment}");
        }
    }

    #[test]
    fn strategies_by_name() {
        let of = |name: &str| {
            query(&format!(r#"{{"prefetch":[{{"recommend":{{"positive":[1],"strategy":"{name}"}}}}]}}"#))
                .map(|query| format!("{:?}", query.node.leaves()[0].source).contains("BestScore"))
        };
        for (name, best) in [
            ("", false),
            ("average", false),
            (" Average_Vector ", false),
            ("0", false),
            ("best_score", true),
            ("BEST", true),
            ("1", true),
        ] {
            assert_eq!(of(name), Ok(best), "{name}");
        }
        let refused = of("best_scores").unwrap_err();
        let known =
            "unknown strategy \"best_scores\"; it must be one of average, average_vector, best_score, best";
        assert!(refused.contains(known), "{refused}");
    }

    #[test]
    fn refusals() {
        let many = format!(r#"{{"prefetch":[{}]}}"#, vec!["{}"; 65].join(","));
        for (body, fragment) in [
            ("{}", "at least one lane"),
            (many.as_str(), "at most 64 lanes, found 65"),
            (r#"{"prefetch":[{"prefetch":[]}]}"#, "unknown field \"prefetch\""),
            (r#"{"prefetch":[{}],"filter":{}}"#, "unknown field \"filter\""),
            (
                r#"{"prefetch":[{"match":{"phrase":true}}]}"#,
                "prefetch[0]: match is only allowed together with text",
            ),
            (
                r#"{"prefetch":[{"sparse":{"indices":[1],"values":[1]},"match":{"phrase":true}}]}"#,
                "prefetch[0]: match is only allowed together with text",
            ),
            (
                r#"{"prefetch":[{"recommend":{"positive":[1]},"match":{"prefix":true}}]}"#,
                "prefetch[0]: match is only allowed together with text",
            ),
            (
                r#"{"prefetch":[{}],"root":{"discover":{"target":1},"match":{}}}"#,
                "root: match is only allowed together with text",
            ),
            (r#"{"prefetch":[{"text":"a","match":"phrase"}]}"#, "field \"match\""),
            (r#"{"prefetch":[{"text":"a","match":{"fuzzy":1}}]}"#, "unknown field \"fuzzy\""),
            (r#"{"prefetch":[{}],"mode":"merge"}"#, "unknown query mode \"merge\""),
            (r#"{"prefetch":[{}],"method":"max"}"#, "unknown fusion method \"max\""),
            (r#"{"prefetch":[{}],"mode":"rerank"}"#, "needs a root"),
            (
                r#"{"prefetch":[{},{"sparse":{"indices":[2,1],"values":[1,1]}}]}"#,
                "prefetch[1]: sparse: indices",
            ),
            (r#"{"prefetch":[{}],"root":{"filter":{"op":"eq"}}}"#, "root: "),
            (
                r#"{"prefetch":[{"discover":{"context":[{"positive":1,"negative_vec":[1]}]}}]}"#,
                "context[0] must",
            ),
            (r#"{"prefetch":[{"discover":{"context":[{"positive":1}]}}]}"#, "prefetch[0]: discover"),
            (r#"{"prefetch":[{"recommend":{"positive":[true]}}]}"#, "field \"positive\""),
            (r#"{"prefetch":[{}],"k":1.5}"#, "field \"k\""),
            (r#"{"prefetch":[{}],"read_consistency":4}"#, "read_consistency"),
        ] {
            let error = query(body).err().expect(body);
            assert!(error.contains(fragment), "{body}: {error}");
        }
        let hybrid = |body: &str| {
            let request = decode_hybrid("docs".into(), body.as_bytes(), ReadParameters::default());
            request.and_then(|request| request.validate()).map_err(|error| error.message)
        };
        assert_eq!(hybrid(r#"{"dense":[1],"k":1,"dense_k":65536}"#), Ok(()));
        for (body, fragment) in [
            (r#"{"dense":[1]}"#, "k must be between 1 and 65536, found 0"),
            (r#"{"dense":[1],"k":1,"dense_k":-1}"#, "dense_k must be between 0 and 65536"),
            (r#"{"dense":[1],"k":1,"sparse_k":65537}"#, "sparse_k must be"),
            (r#"{"dense":[1],"k":1,"text":"a"}"#, "unknown field \"text\""),
        ] {
            let error = hybrid(body).expect_err(body);
            assert!(error.contains(fragment), "{body}: {error}");
        }
    }
}
