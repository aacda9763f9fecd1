//! Queries of any lanes: `C s32 QuerySpec, trailer R`, where the specification is a message of protocol buffers.
//!
//! ```text
//! QuerySpec     1 root QueryLeaf, 2 prefetch [QueryLeaf], 3 mode (0 fusion, 1 rerank), 4 fusion_method, 5 alpha double,
//!               6 rrf_k, 7 k, 8 prefetch_sources [QuerySource], 9 group_by, 10 group_size
//! QuerySource   1 leaf, or 2 spec
//! QueryLeaf     1 dense, 2 sparse, 6 recommend, or 7 discover; 3, 4, 5 are of collections of other families
//! DenseLeaf     1 dense [float], 2 k, 3 filter_json, 4 lane_k
//! SparseLeaf    1 indices, 2 values [float], 3 k, 4 filter_json, 5 lane_k
//! RecommendLeaf 1 positive, 2 negative, 3 k, 4 filter_json, 5 strategy (0 average, 1 best score), 6 best_pos, 7 best_neg, 8 space
//! DiscoverLeaf  1 target [float], 2 context [(1, 2) [float]], 3 k, 4 filter_json, 5 target_id, 6 context_ids [(1, 2)], 7 space
//! ```
//! Refused for now, as the lanes behind have no such thing: specifications inside others, and recommendations by vectors.

use crate::lane_requests::{QueryLeaf, QueryPoints, ZeroAlpha, fusion_method};
use crate::limits;
use crate::request::ApiError;
use crate::tcp::reader::{ArgsReader, invalid};
use crate::tcp::vector::parts::{collection, filter_of, trailer};
use crate::tcp::vector::protobuf::{Field, Message};
use nigh_engine::filter::Predicate;
use nigh_engine::query::{Anchor, Discover, Recommend, Source, Strategy};
use std::sync::Arc;

/// # Errors
/// A bad request.
pub fn query(args: &mut ArgsReader<'_>) -> Result<QueryPoints, ApiError> {
    let collection = collection(args)?;
    let spec = args.s32("QuerySpec")?;
    Ok(QueryPoints { collection, read: trailer(args)?, ..spec_of(Message::new(spec))? })
}

fn spec_of(mut message: Message<'_>) -> Result<QueryPoints, ApiError> {
    let (mut root, mut prefetch, mut sources) = (None, Vec::new(), Vec::new());
    let (mut mode, mut k, mut group_size) = (0, 0, 0);
    let (mut method, mut alpha, mut rrf_k, mut group_by) = ("", None, None, "");
    while let Some((number, field)) = message.next()? {
        match number {
            1 => root = Some(leaf(field.message("root")?)?),
            2 => push(&mut prefetch, leaf(field.message("prefetch")?)?)?,
            3 => mode = field.i32("mode")?,
            4 => method = field.text("fusion_method")?,
            5 => alpha = Some(field.f64("alpha")?),
            6 => rrf_k = Some(field.i32("rrf_k")?),
            7 => k = field.i32("k")?,
            8 => push(&mut sources, source(field.message("prefetch_sources")?)?)?,
            9 => group_by = field.text("group_by")?,
            // Counts of 32 bits without a sign.
            10 => group_size = (field.u64("group_size")? as u32).into(),
            _ => {}
        }
    }
    let rerank = match mode {
        0 => false,
        1 => true,
        other => return Err(ApiError::invalid(format!("unknown query mode {other}"))),
    };
    if rerank && root.is_none() {
        return Err(ApiError::invalid("mode \"rerank\" needs a root"));
    }
    if alpha.is_some_and(f64::is_nan) {
        return Err(invalid("alpha", "not a number"));
    }
    Ok(QueryPoints {
        collection: String::new(),
        lanes: if sources.is_empty() { prefetch } else { sources },
        root: root.filter(|_| rerank),
        // Encoders leave a zero out that nobody set.
        method: fusion_method(method, alpha, ZeroAlpha::Zero, rrf_k)?,
        k,
        group_by: group_by.to_owned(),
        group_size,
        explain: false,
        read: Default::default(),
    })
}

/// Lanes take far more memory than the shortest of them has bytes, so that their number is checked as they come.
fn push(lanes: &mut Vec<QueryLeaf>, lane: QueryLeaf) -> Result<(), ApiError> {
    let most = limits::QUERY_LANES_MAX;
    if lanes.len() == most {
        return Err(ApiError::invalid(format!("prefetch must hold at most {most} lanes")));
    }
    lanes.push(lane);
    Ok(())
}

fn source(mut message: Message<'_>) -> Result<QueryLeaf, ApiError> {
    let mut found = None;
    while let Some((number, field)) = message.next()? {
        match number {
            1 => found = Some(leaf(field.message("leaf")?)?),
            2 => return Err(ApiError::invalid("a query inside a query is not offered")),
            _ => {}
        }
    }
    found.ok_or_else(|| ApiError::invalid("a source of a query is empty"))
}

fn leaf(mut message: Message<'_>) -> Result<QueryLeaf, ApiError> {
    let mut found = None;
    while let Some((number, field)) = message.next()? {
        found = Some(match number {
            1 => dense(field.message("dense")?)?,
            2 => sparse(field.message("sparse")?)?,
            3 | 4 => return Err(other_family("a named vector space")),
            5 => return Err(other_family("many vectors per point")),
            6 => recommend(field.message("recommend")?)?,
            7 => discover(field.message("discover")?)?,
            _ => continue,
        });
    }
    found.ok_or_else(|| ApiError::invalid("a leaf of a query is empty"))
}

fn other_family(what: &str) -> ApiError {
    ApiError::invalid(format!("a lane of {what} does not work on a dense collection"))
}

/// What every lane has beside its source.
#[derive(Default)]
struct Lane {
    k: i64,
    lane_k: i64,
    filter: Option<Arc<Predicate>>,
}

impl Lane {
    fn with(self, source: Source) -> QueryLeaf {
        QueryLeaf { source, k: self.k, lane_k: self.lane_k, filter: self.filter }
    }

    fn set_filter(&mut self, field: Field<'_>) -> Result<(), ApiError> {
        let json = field.text("filter_json")?;
        self.filter = if json.trim().is_empty() { None } else { filter_of(json.as_bytes())? };
        Ok(())
    }
}

fn dense(mut message: Message<'_>) -> Result<QueryLeaf, ApiError> {
    let (mut lane, mut vector) = (Lane::default(), Vec::new());
    while let Some((number, field)) = message.next()? {
        match number {
            1 => field.floats("dense", &mut vector)?,
            2 => lane.k = field.i32("k")?,
            3 => lane.set_filter(field)?,
            4 => lane.lane_k = field.i32("lane_k")?,
            _ => {}
        }
    }
    Ok(lane.with(Source::Dense(vector)))
}

fn sparse(mut message: Message<'_>) -> Result<QueryLeaf, ApiError> {
    let (mut lane, mut indices, mut values) = (Lane::default(), Vec::new(), Vec::new());
    while let Some((number, field)) = message.next()? {
        match number {
            1 => field.integers("dimensions", &mut indices, limits::QUERY_DIMENSIONS_MAX)?,
            2 => field.floats("values", &mut values)?,
            3 => lane.k = field.i32("k")?,
            4 => lane.set_filter(field)?,
            5 => lane.lane_k = field.i32("lane_k")?,
            _ => {}
        }
    }
    if indices.len() != values.len() {
        let (indices, values) = (indices.len(), values.len());
        return Err(invalid("sparse", format_args!("{indices} indices but {values} values")));
    }
    if !indices.is_sorted_by(|a, b| a < b) || indices.last().is_some_and(|last| *last > u32::MAX.into()) {
        return Err(invalid("sparse", "indices must be strictly ascending numbers of 32 bits"));
    }
    if values.iter().any(|value| !value.is_finite()) {
        return Err(invalid("sparse", "a value is not a finite number"));
    }
    // Checked: they fit.
    let vector = indices.into_iter().map(|index| index as u32).zip(values).collect();
    Ok(lane.with(Source::Sparse(vector)))
}

fn check_space(field: Field<'_>) -> Result<(), ApiError> {
    match field.text("space")? {
        "" => Ok(()),
        _ => Err(other_family("a named vector space")),
    }
}

fn recommend(mut message: Message<'_>) -> Result<QueryLeaf, ApiError> {
    let (mut lane, mut strategy) = (Lane::default(), Strategy::Average);
    let (mut positive, mut negative) = (Vec::new(), Vec::new());
    while let Some((number, field)) = message.next()? {
        match number {
            1 => field.integers("example ids", &mut positive, limits::QUERY_EXAMPLES_MAX)?,
            2 => field.integers("example ids", &mut negative, limits::QUERY_EXAMPLES_MAX)?,
            3 => lane.k = field.i32("k")?,
            4 => lane.set_filter(field)?,
            5 => {
                strategy = match field.i32("strategy")? {
                    0 => Strategy::Average,
                    1 => Strategy::BestScore,
                    other => return Err(invalid("strategy", format_args!("unknown code {other}"))),
                };
            }
            6 | 7 => return Err(ApiError::invalid("recommendations by vectors are not offered")),
            8 => check_space(field)?,
            _ => {}
        }
    }
    Ok(lane.with(Source::Recommend(Recommend { positive, negative, strategy })))
}

fn discover(mut message: Message<'_>) -> Result<QueryLeaf, ApiError> {
    let (mut lane, mut target, mut target_id) = (Lane::default(), Vec::new(), Vec::new());
    let mut context = Vec::new();
    while let Some((number, field)) = message.next()? {
        match number {
            1 => field.floats("target", &mut target)?,
            2 => push_pair(&mut context, vectors(field.message("context")?)?)?,
            3 => lane.k = field.i32("k")?,
            4 => lane.set_filter(field)?,
            5 => field.integers("target ids", &mut target_id, 1)?,
            6 => push_pair(&mut context, ids(field.message("context_ids")?)?)?,
            7 => check_space(field)?,
            _ => {}
        }
    }
    // The id counts first.
    let target = match target_id.first() {
        Some(id) => Some(Anchor::Id(*id)),
        None if !target.is_empty() => Some(Anchor::Vector(target)),
        None => None,
    };
    Ok(lane.with(Source::Discover(Discover { target, context })))
}

type Pair = (Anchor, Anchor);

fn push_pair(pairs: &mut Vec<Pair>, pair: Pair) -> Result<(), ApiError> {
    let most = limits::QUERY_EXAMPLES_MAX;
    if pairs.len() == most {
        return Err(ApiError::invalid(format!("a lane may have at most {most} pairs of examples")));
    }
    pairs.push(pair);
    Ok(())
}

fn vectors(mut message: Message<'_>) -> Result<Pair, ApiError> {
    let (mut positive, mut negative) = (Vec::new(), Vec::new());
    while let Some((number, field)) = message.next()? {
        match number {
            1 => field.floats("positive", &mut positive)?,
            2 => field.floats("negative", &mut negative)?,
            _ => {}
        }
    }
    Ok((Anchor::Vector(positive), Anchor::Vector(negative)))
}

fn ids(mut message: Message<'_>) -> Result<Pair, ApiError> {
    let (mut positive, mut negative) = (0, 0);
    while let Some((number, field)) = message.next()? {
        match number {
            1 => positive = field.u64("positive")?,
            2 => negative = field.u64("negative")?,
            _ => {}
        }
    }
    Ok((Anchor::Id(positive), Anchor::Id(negative)))
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
        spec_of(Message::new(&spec.concat())).map_err(|error| error.message)
    }

    const ONE: [u8; 4] = 1_f32.to_le_bytes();

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
        assert!(matches!(&query.lanes[0].source, Source::Dense(vector) if vector[..] == [1.0, 1.0]));
        assert_eq!((query.lanes[0].k, query.lanes[0].lane_k), (7, 9));
        assert!(
            matches!(&query.lanes[1].source, Source::Sparse(sparse) if sparse[..] == [(3, 1.0), (9, 1.0)])
        );
        let Source::Discover(discover) = &query.lanes[2].source else { panic!() };
        assert!(matches!(discover.target, Some(Anchor::Id(0))));
        assert!(matches!(discover.context[0], (Anchor::Id(1), Anchor::Id(2))));
        assert!(matches!(discover.context[1], (Anchor::Vector(_), Anchor::Vector(_))));
        assert!(query.root.is_some());
        assert_eq!((query.group_by.as_str(), query.group_size), ("g", 2));
        let zero = read(&[&field(2, &[&dense]), &field(4, &[b"dbsf"]), &[0x29], &0_f64.to_le_bytes()]);
        assert_eq!(zero.unwrap().method, Method::Dbsf { alpha: Some(0.0) });
        // Sources count before lanes, and a root only where it ranks.
        let query = read(&[&field(2, &[&sparse]), &field(8, &[&field(1, &[&dense])]), &field(1, &[&dense])]);
        let query = query.unwrap();
        assert!(query.root.is_none() && query.lanes.len() == 1);
        assert!(matches!(query.lanes[0].source, Source::Dense(_)));
    }

    #[test]
    fn refusals() {
        let dense = field(1, &[&field(1, &[&ONE])]);
        for (spec, fragment) in [
            (field(8, &[&field(2, &[])]), "a query inside a query"),
            (field(8, &[]), "a source of a query is empty"),
            (field(2, &[]), "a leaf of a query is empty"),
            (field(2, &[&field(3, &[])]), "a named vector space"),
            (field(2, &[&field(5, &[])]), "many vectors per point"),
            (field(2, &[&field(6, &[&field(6, &[])])]), "recommendations by vectors"),
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
}
