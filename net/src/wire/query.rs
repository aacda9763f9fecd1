//! Queries of any lanes, as the binary protocol and gRPC carry them: a message of protocol buffers ([`proto::QuerySpec`]).

use crate::limits;
use crate::op::{
    ApiError, QueryBounds, QueryDocuments, QueryLane, QueryLeaf, QueryNamed, QueryNode, QueryPoints,
    ZeroAlpha, check_lane_space, fusion_method, text_source, token_source,
};
use crate::wire::embedded::{filter_of, invalid, sparse_of};
use crate::wire::proto;
use nigh_engine::query::{Anchor, Discover, Recommend, Source, Strategy};
use nigh_shard::family::Family;

/// What a query of a dense collection asks for. The collection and the options of the read are left empty, to be filled in by the caller.
///
/// # Errors
/// A bad request.
pub fn query_of(spec: proto::QuerySpec) -> Result<QueryPoints, ApiError> {
    points_of(spec, Family::Dense)
}

/// What a query of a collection of named spaces asks for, as [`query_of`] returns it for a dense one.
///
/// # Errors
/// A bad request.
pub fn named_query_of(spec: proto::QuerySpec) -> Result<QueryNamed, ApiError> {
    Ok(QueryNamed(points_of(spec, Family::Named)?))
}

/// What a query of a multi-vector collection asks for, as [`query_of`] returns it for a dense one.
///
/// # Errors
/// A bad request.
pub fn document_query_of(spec: proto::QuerySpec) -> Result<QueryDocuments, ApiError> {
    Ok(QueryDocuments(points_of(spec, Family::MultiVector)?))
}

fn points_of(mut spec: proto::QuerySpec, family: Family) -> Result<QueryPoints, ApiError> {
    let (group_by, group_size) = (std::mem::take(&mut spec.group_by), spec.group_size.into());
    Ok(QueryPoints {
        collection: String::new(),
        node: node(spec, family, &mut QueryBounds::default())?,
        group_by,
        group_size,
        options: Default::default(),
        read: Default::default(),
    })
}

fn node(spec: proto::QuerySpec, family: Family, bounds: &mut QueryBounds) -> Result<QueryNode, ApiError> {
    let rerank = match proto::QueryMode::try_from(spec.mode) {
        Ok(mode) => mode == proto::QueryMode::Rerank,
        Err(_) => return Err(ApiError::invalid(format!("unknown query mode {}", spec.mode))),
    };
    // A root that ranks nothing is checked all the same.
    let root = spec.root.map(|root| leaf(root, family)).transpose()?;
    // Lanes beside sources have no effect, and so they may be wrong.
    let lanes: Result<Vec<QueryLane>, _> = match spec.prefetch_sources {
        sources if sources.is_empty() => {
            spec.prefetch.into_iter().map(|lane| leaf_lane(lane, family, bounds)).collect()
        }
        sources => sources.into_iter().map(|lane| source(lane, family, bounds)).collect(),
    };
    if rerank && root.is_none() {
        return Err(ApiError::invalid("mode \"rerank\" needs a root"));
    }
    if spec.alpha.is_some_and(f64::is_nan) {
        return Err(invalid("alpha", "not a number"));
    }
    Ok(QueryNode {
        lanes: lanes?,
        root: root.filter(|_| rerank),
        // Encoders leave a zero out that nobody set.
        method: fusion_method(&spec.fusion_method, spec.alpha, ZeroAlpha::Zero, Some(spec.rrf_k.into()))?,
        k: spec.k.into(),
    })
}

fn leaf_lane(
    message: proto::QueryLeaf,
    family: Family,
    bounds: &mut QueryBounds,
) -> Result<QueryLane, ApiError> {
    bounds.leaf()?;
    Ok(QueryLane::Leaf(leaf(message, family)?))
}

fn source(
    source: proto::QuerySource,
    family: Family,
    bounds: &mut QueryBounds,
) -> Result<QueryLane, ApiError> {
    match source.source {
        Some(proto::Source::Leaf(message)) => leaf_lane(message, family, bounds),
        Some(proto::Source::Spec(message)) => bounds.inside(|bounds| {
            let spec: proto::QuerySpec = proto::decode(&message)?;
            // Only results can be grouped, and a lane has hits.
            if !spec.group_by.is_empty() {
                return Err(ApiError::invalid("group_by is not allowed in a query inside a query"));
            }
            node(spec, family, bounds)
        }),
        None => Err(ApiError::invalid("a source of a query is empty")),
    }
}

fn leaf(leaf: proto::QueryLeaf, family: Family) -> Result<QueryLeaf, ApiError> {
    let leaf = leaf.leaf.ok_or_else(|| ApiError::invalid("a leaf of a query is empty"))?;
    let lane = match leaf {
        proto::Leaf::Dense(leaf) => {
            lane(String::new(), Source::Dense(leaf.dense), leaf.k, leaf.lane_k, &leaf.filter_json)?
        }
        proto::Leaf::Sparse(leaf) => {
            let vector = sparse_of(leaf.indices, leaf.values)?;
            lane(String::new(), Source::Sparse(vector), leaf.k, leaf.lane_k, &leaf.filter_json)?
        }
        proto::Leaf::NamedDense(leaf) => {
            check_named(family)?;
            lane(leaf.space, Source::Dense(leaf.dense), leaf.k, leaf.lane_k, &leaf.filter_json)?
        }
        proto::Leaf::NamedSparse(leaf) => {
            check_named(family)?;
            let vector = sparse_of(leaf.indices, leaf.values)?;
            lane(leaf.space, Source::Sparse(vector), leaf.k, leaf.lane_k, &leaf.filter_json)?
        }
        proto::Leaf::Text(leaf) => {
            let text = text_source(&leaf.text, leaf.phrase, leaf.prefix)?;
            lane(String::new(), text, leaf.k, leaf.lane_k, &leaf.filter_json)?
        }
        proto::Leaf::Recommend(leaf) => recommend(leaf)?,
        proto::Leaf::Discover(leaf) => discover(leaf)?,
        proto::Leaf::MultiVector(_) if family != Family::MultiVector => {
            let name = family.name();
            return Err(ApiError::invalid(format!(
                "a lane of token vectors does not work on a {name} collection"
            )));
        }
        proto::Leaf::MultiVector(leaf) => {
            let tokens = leaf.query.into_iter().map(|token| token.values).collect();
            lane(String::new(), token_source(tokens, 0), leaf.k, leaf.lane_k, &leaf.filter_json)?
        }
    };
    match (family, lane.space.is_empty()) {
        (Family::Named, _) => {
            check_lane_space(&lane)?;
            Ok(lane)
        }
        (Family::Dense | Family::MultiVector, false) => {
            check_named(family)?;
            Ok(lane)
        }
        _ => Ok(lane),
    }
}

/// Refuses a lane of a space in a collection that has none with names.
fn check_named(family: Family) -> Result<(), ApiError> {
    match family {
        Family::Named => Ok(()),
        Family::Dense | Family::MultiVector => {
            let name = family.name();
            Err(ApiError::invalid(format!(
                "a lane of a named vector space does not work on a {name} collection"
            )))
        }
    }
}

fn lane(
    space: String,
    source: Source,
    k: i32,
    lane_k: i32,
    filter_json: &str,
) -> Result<QueryLeaf, ApiError> {
    let filter = filter_of("filter_json", filter_json.as_bytes())?;
    Ok(QueryLeaf { source, space, k: k.into(), lane_k: lane_k.into(), filter })
}

fn recommend(leaf: proto::RecommendLeaf) -> Result<QueryLeaf, ApiError> {
    let strategy = match proto::RecommendStrategy::try_from(leaf.strategy) {
        Ok(proto::RecommendStrategy::Average) => Strategy::Average,
        Ok(proto::RecommendStrategy::BestScore) => Strategy::BestScore,
        Err(_) => return Err(invalid("strategy", format_args!("unknown code {}", leaf.strategy))),
    };
    let examples = |ids: Vec<u64>, vectors: Vec<proto::TokenVector>| -> Vec<Anchor> {
        let vectors = vectors.into_iter().map(|vector| Anchor::Vector(vector.values));
        ids.into_iter().map(|id| Anchor::Id(id.into())).chain(vectors).collect()
    };
    let positive = examples(leaf.positive, leaf.best_pos);
    let source = Recommend { positive, negative: examples(leaf.negative, leaf.best_neg), strategy };
    lane(leaf.space, Source::Recommend(source), leaf.k, 0, &leaf.filter_json)
}

fn discover(leaf: proto::DiscoverLeaf) -> Result<QueryLeaf, ApiError> {
    // The id counts first.
    let target = match leaf.target_id.first() {
        Some(id) => Some(Anchor::Id((*id).into())),
        None if !leaf.target.is_empty() => Some(Anchor::Vector(leaf.target)),
        None => None,
    };
    let ids = leaf
        .context_ids
        .iter()
        .map(|pair| (Anchor::Id(pair.positive.into()), Anchor::Id(pair.negative.into())));
    let vectors = leaf.context.into_iter();
    let vectors = vectors.map(|pair| (Anchor::Vector(pair.positive), Anchor::Vector(pair.negative)));
    let context: Vec<_> = ids.chain(vectors).collect();
    let most = limits::QUERY_EXAMPLES_MAX;
    if context.len() > most {
        return Err(ApiError::invalid(format!("a lane may have at most {most} pairs of examples")));
    }
    let source = Source::Discover(Discover { target, context });
    lane(leaf.space, source, leaf.k, 0, &leaf.filter_json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_engine::query::Method;

    /// A field of bytes; they are few.
    fn field(number: u8, parts: &[&[u8]]) -> Vec<u8> {
        let bytes = parts.concat();
        [&[number << 3 | 2, bytes.len() as u8], &bytes[..]].concat()
    }

    fn read(spec: &[&[u8]]) -> Result<QueryPoints, String> {
        proto::decode(&spec.concat()).and_then(query_of).map_err(|error| error.message)
    }

    const ONE: [u8; 4] = 1_f32.to_le_bytes();

    #[test]
    fn queries_inside_queries() {
        let leaf = |value: f32| field(1, &[&field(1, &[&field(1, &[&value.to_le_bytes()])])]);
        let inner = field(2, &[&field(8, &[&leaf(2.0)]), &field(8, &[&leaf(3.0)]), &[0x38, 7]]);
        let query = read(&[&field(8, &[&leaf(1.0)]), &field(8, &[&inner]), &[0x38, 5]]).unwrap();
        assert_eq!(query.node.k, 5);
        let [QueryLane::Leaf(first), QueryLane::Query(inner)] = &query.node.lanes[..] else { panic!() };
        assert!(matches!(&first.source, Source::Dense(vector) if vector[..] == [1.0]));
        assert_eq!(inner.k, 7);
        let values: Vec<f32> = inner
            .leaves()
            .iter()
            .map(|leaf| match &leaf.source {
                Source::Dense(vector) => vector[0],
                _ => panic!("{:?}", leaf.source),
            })
            .collect();
        assert_eq!(values, [2.0, 3.0]);

        // The limit of depth is that of the interface.
        let nested = |depth| (0..depth).fold(leaf(1.0), |spec, _| field(2, &[&field(8, &[&spec])]));
        assert!(read(&[&field(8, &[&nested(4)])]).is_ok());
        let refused = read(&[&field(8, &[&nested(5)])]).err().unwrap();
        assert!(refused.contains("to a depth of 4"), "{refused}");
        // Each query inside it is small, but all of them together are not.
        let lanes: Vec<u8> = long(8, &leaf(1.0));
        let inner = long(8, &long(2, &lanes.repeat(16)));
        assert!(read(&[&inner.repeat(16)]).is_ok());
        let refused = read(&[&inner.repeat(16), &lanes]).err().unwrap();
        assert!(refused.contains("at most 256 lanes"), "{refused}");
        // Queries without lanes would not count as such. They are refused before the next is decoded, which is wrong.
        let refused =
            read(&[&field(8, &[&field(2, &[&field(8, &[&field(2, &[])]), &field(8, &[])])])]).err().unwrap();
        assert!(refused.contains("at least one lane"), "{refused}");
    }

    /// A field of bytes of any number below 16384.
    fn long(number: u8, bytes: &[u8]) -> Vec<u8> {
        let len = bytes.len();
        [&[number << 3 | 2, (len & 0x7f) as u8 | 0x80, (len >> 7) as u8], bytes].concat()
    }

    #[test]
    fn lanes_of_every_kind() {
        let dense = field(1, &[&field(1, &[&ONE, &ONE]), &[0x10, 7, 0x20, 9]]);
        let sparse = field(2, &[&field(1, &[&[3, 9]]), &field(2, &[&ONE, &ONE])]);
        let pair = field(6, &[&[0x08, 1, 0x10, 2]]);
        let discover = field(7, &[&[0x28, 0], &pair, &field(2, &[&field(1, &[&ONE]), &field(2, &[&ONE])])]);
        let lanes = [&dense, &sparse, &discover].map(|leaf| field(2, &[leaf])).concat();
        let query =
            read(&[&lanes, &field(1, &[&dense]), &[0x18, 1, 0x78, 5], &field(9, &[b"g"]), &[0x50, 2]]);
        let query = query.unwrap();
        let (lanes, root) = (query.node.leaves(), query.node.root.as_ref());
        assert!(matches!(&lanes[0].source, Source::Dense(vector) if vector[..] == [1.0, 1.0]));
        assert_eq!((lanes[0].k, lanes[0].lane_k), (7, 9));
        assert!(matches!(&lanes[1].source, Source::Sparse(sparse) if sparse[..] == [(3, 1.0), (9, 1.0)]));
        let Source::Discover(discover) = &lanes[2].source else { panic!() };
        assert_eq!(discover.ids().collect::<Vec<_>>(), [1, 2, 0], "both sides of the pair, and the target");
        assert!(matches!(discover.context[0], (Anchor::Id(_), Anchor::Id(_))));
        assert!(matches!(discover.context[1], (Anchor::Vector(_), Anchor::Vector(_))));
        assert!(root.is_some());
        assert_eq!((query.group_by.as_str(), query.group_size), ("g", 2));
        let by_vectors =
            field(6, &[&[0x08, 3], &field(6, &[&field(1, &[&ONE])]), &field(7, &[&field(1, &[&ONE, &ONE])])]);
        let query = read(&[&field(2, &[&by_vectors])]).unwrap();
        let Source::Recommend(recommend) = &query.node.leaves()[0].source else { panic!() };
        assert!(
            matches!(&recommend.positive[..], [Anchor::Id(id), Anchor::Vector(vector)] if id.number() == 3 && vector[..] == [1.0])
        );
        assert!(matches!(&recommend.negative[..], [Anchor::Vector(vector)] if vector[..] == [1.0, 1.0]));
        let zero = read(&[&field(2, &[&dense]), &field(4, &[b"dbsf"]), &[0x29], &0_f64.to_le_bytes()]);
        assert_eq!(zero.unwrap().node.method, Method::Dbsf { alpha: Some(0.0) });
        // Sources count before lanes, and a root only where it ranks.
        let query = read(&[&field(2, &[&sparse]), &field(8, &[&field(1, &[&dense])]), &field(1, &[&dense])]);
        let query = query.unwrap();
        assert!(query.node.root.is_none() && query.node.lanes.len() == 1);
        assert!(matches!(query.node.leaves()[0].source, Source::Dense(_)));
        // Lanes that do not count are not looked at.
        let filter = field(1, &[&field(1, &[&ONE]), &field(3, &[b"{"])]);
        for ignored in [&b""[..], &filter, &field(3, &[]), &field(2, &[&[0x08, 1]])] {
            let query = read(&[&field(2, &[ignored]), &field(8, &[&field(1, &[&dense])])]).unwrap();
            assert!(matches!(query.node.leaves()[..], [QueryLeaf { source: Source::Dense(_), .. }]));
        }
    }

    #[test]
    fn refusals() {
        let dense = field(1, &[&field(1, &[&ONE])]);
        for (spec, fragment) in [
            (
                field(8, &[&field(2, &[&field(9, &[b"g"])])]),
                "group_by is not allowed in a query inside a query",
            ),
            (field(8, &[&field(2, &[&[0x18, 1]])]), "needs a root"),
            (field(8, &[&field(2, &[&field(2, &[])])]), "a leaf of a query is empty"),
            (field(8, &[]), "a source of a query is empty"),
            (field(2, &[]), "a leaf of a query is empty"),
            (field(2, &[&field(3, &[])]), "a named vector space"),
            (field(2, &[&field(5, &[])]), "a lane of token vectors"),
            (field(2, &[&field(6, &[&field(8, &[b"s"])])]), "a named vector space"),
            (field(2, &[&field(6, &[&[0x28, 2]])]), "strategy: unknown code 2"),
            (field(2, &[&field(2, &[&[0x08, 1]])]), "1 indices but 0 values"),
            (vec![0x18, 1], "needs a root"),
            (vec![0x18, 2], "unknown query mode 2"),
            (field(4, &[b"sum"]), "unknown fusion method"),
            (
                [&field(4, &[b"dbsf"])[..], &[0x29], &2_f64.to_le_bytes()].concat(),
                "alpha must be between 0 and 1",
            ),
            (field(2, &[&dense]).repeat(65), "at most 64 lanes"),
            (vec![0x12, 9], "truncated"),
            (vec![0x13], "no known type"),
            (vec![0x80; 12], "more than ten bytes"),
        ] {
            let message = read(&[&spec]).err().expect(fragment);
            assert!(message.contains(fragment), "{message} lacks {fragment}");
        }
    }

    #[test]
    fn lanes_of_named_spaces() {
        let named = |spec: &[&[u8]]| {
            proto::decode(&spec.concat()).and_then(named_query_of).map_err(|error| error.message)
        };
        let space = |name: &str, number: u8| field(number, &[name.as_bytes()]);
        let dense = field(3, &[&space("a", 1), &field(2, &[&ONE]), &[0x18, 7, 0x28, 9]]);
        let sparse = field(4, &[&space("s", 1), &field(2, &[&[3]]), &field(3, &[&ONE])]);
        let recommend = field(6, &[&[0x08, 1], &space("b", 8)]);
        let discover = field(7, &[&[0x28, 0], &space("c", 7)]);
        let lanes = [&dense, &sparse, &recommend, &discover].map(|leaf| field(2, &[leaf])).concat();
        let query = named(&[&lanes, &field(1, &[&dense]), &[0x18, 1]]).unwrap();
        let lanes = query.0.node.leaves();
        let spaces: Vec<&str> = lanes.iter().map(|lane| &lane.space[..]).collect();
        assert_eq!((spaces, &query.0.node.root.as_ref().unwrap().space[..]), (vec!["a", "s", "b", "c"], "a"));
        assert!(matches!(&lanes[0].source, Source::Dense(vector) if vector[..] == [1.0]));
        assert_eq!((lanes[0].k, lanes[0].lane_k), (7, 9));
        assert!(matches!(&lanes[1].source, Source::Sparse(vector) if vector[..] == [(3, 1.0)]));
        assert!(matches!(&lanes[2].source, Source::Recommend(_)));
        assert!(matches!(&lanes[3].source, Source::Discover(_)));
        for lane in
            [field(1, &[&field(1, &[&ONE])]), field(6, &[&[0x08, 1]]), field(3, &[&field(2, &[&ONE])])]
        {
            let refused = named(&[&field(2, &[&lane])]).err().expect("a lane without a space");
            assert!(refused.contains("space is required"), "{refused}");
        }
    }
}
