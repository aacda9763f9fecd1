//! Bodies of the routes of collections of named spaces, and what they ask for.

use super::envelope::Envelope;
use super::lane_bodies::{
    DiscoverBody, LaneBody, LeafBody, MatchBody, NodeBody, RecommendBody, diversity, inner_query_body,
    method, node_body, query_points, text_of,
};
use super::points::{check_batch_options, read_envelope, refuse_staged};
use crate::http::BodyReader;
use crate::limits;
use crate::op::{
    AddSpace, ApiError, HybridNamed, NamedPoint, QueryLeaf, QueryNamed, QueryPoints, SearchNamed, SentId,
    StageNamed, UpdateVectors, UpsertNamed, WriteOptions, check_lane_space, check_partitions_of_one,
    check_ttl, compile_filter, place_of,
};
use crate::rest::parameters::{ReadParameters, WriteParameters, read_parameters};
use crate::wire::config::{NamedConfigBody, SpaceConfig};
use crate::wire::filter::WireFilter;
use crate::wire::json::{
    Floats, IntMap, Key, SparseBody, UpTo, decode, field, in_words, invalid_json, json_object,
};
use crate::wire::payloads::{Payloads, SentPayload, WirePayload, encode_row};
use crate::wire::search_options::search_body;
use nigh_engine::collection::{NamedConfig, SPACES_MAX};
use nigh_engine::query::Source;
use nigh_engine::quoted::quoted;
use nigh_shard::core::PointFields;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::marker::PhantomData;

json_object! {
    /// Body of `…/spaces`.
    pub struct AddSpaceBody {
        "name" => name: String,
        "config" => config: SpaceConfig,
    }
}

json_object! {
    /// Body of `…/points`.
    pub struct UpsertBody {
        "id" => id: SentId,
        "vectors" => vectors: BySpace<Floats>,
        "sparse_vectors" => sparse_vectors: BySpace<SparseBody>,
        "content" => content: String,
        "metadata" => metadata: SentPayload,
        "ttl_ms" => ttl_ms: i64,
        "key_ttl_ms" => key_ttl_ms: IntMap,
        "expected_version" => expected_version: u64,
        "write_consistency_factor" => write_consistency_factor: i64,
        "wait" => wait: bool,
    }
}

json_object! {
    /// Body of `…/points/{id}/vectors`.
    pub struct UpdateVectorsBody {
        "vectors" => vectors: BySpace<Floats>,
        "sparse_vectors" => sparse_vectors: BySpace<SparseBody>,
        "delete" => delete: UpTo<String, SPACES_MAX>,
        "expected_version" => expected_version: u64,
        "write_consistency_factor" => write_consistency_factor: i64,
        "wait" => wait: bool,
    }
}

search_body! {
    /// Body of `…/search` and `…/search/docs`.
    pub struct SearchBody {
        "vector_name" => vector_name: String,
        "query" => query: Floats,
        "k" => k: i64,
        "filter" => filter: WireFilter,
    }
}

search_body! {
    /// Body of `…/search/mmr`.
    pub struct MmrBody {
        "vector_name" => vector_name: String,
        "query" => query: Floats,
        "k" => k: i64,
        "lambda" => lambda: f64,
        "fetch_k" => fetch_k: i64,
        "filter" => filter: WireFilter,
    }
}

search_body! {
    /// One search of `…/search/batch`.
    pub struct BatchSearchBody {
        "vector_name" => vector_name: String,
        "query" => query: DenseOrSparse,
        "k" => k: i64,
        "filter" => filter: WireFilter,
    }
}

search_body! {
    /// Body of `…/sparse-search`.
    pub struct SparseSearchBody {
        "vector_name" => vector_name: String,
        "query" => query: SparseBody,
        "k" => k: i64,
        "filter" => filter: WireFilter,
    }
}

search_body! {
    /// Body of `…/hybrid-search`.
    pub struct HybridBody {
        "dense_space" => dense_space: String,
        "dense" => dense: Floats,
        "sparse_space" => sparse_space: String,
        "sparse" => sparse: SparseBody,
        "text" => text: String,
        "match" => matching: MatchBody,
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
    /// Body of `…/query`.
    pub struct QueryBody {
        "root" => root: NamedLeafBody,
        "prefetch" => prefetch: UpTo<NamedLeafBody, { limits::QUERY_LANES_MAX }>,
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
    pub struct NamedLeafBody {
        "query" => query: Box<RawValue>,
        "space" => space: String,
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

/// Values by the names of spaces, the last of repeated names; `null` counts as an empty value.
pub struct BySpace<T>(pub Vec<(String, T)>);

impl<T> Default for BySpace<T> {
    fn default() -> Self {
        BySpace(Vec::new())
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for BySpace<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Spaces<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for Spaces<T> {
            type Value = BySpace<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of vectors by the names of spaces")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BySpace<T>, A::Error> {
                let mut spaces: Vec<(String, T)> = Vec::new();
                while let Some(Key(name)) = map.next_key()? {
                    let value = field(&mut map, &name)?.unwrap_or_default();
                    match spaces.iter().position(|(other, _)| *other == name) {
                        Some(at) => spaces[at].1 = value,
                        // A collection has no more spaces than that, so that nobody looks through many names for each.
                        None if spaces.len() >= SPACES_MAX => {
                            return Err(A::Error::custom(format_args!("more than {SPACES_MAX} spaces")));
                        }
                        None => spaces.push((name.into_owned(), value)),
                    }
                }
                Ok(BySpace(spaces))
            }
        }
        deserializer.deserialize_map(Spaces(PhantomData))
    }
}

/// Decodes the body that a collection is made with.
///
/// # Errors
/// 400.
pub fn decode_create(body: &[u8]) -> Result<NamedConfig, ApiError> {
    let body: NamedConfigBody = decode(body)?;
    check_partitions_of_one(body.partitions)?;
    body.spaces.into_config(body.whole)
}

/// Decodes the body of `…/spaces`.
///
/// # Errors
/// 400.
pub fn decode_add_space(collection: String, body: &[u8]) -> Result<AddSpace, ApiError> {
    let AddSpaceBody { name, config } = decode(body)?;
    config.unwrap_or_default().into_added(collection, name.unwrap_or_default())
}

/// Decodes the body of `…/points`, whose query string states `write`.
///
/// # Errors
/// 400.
pub fn decode_upsert(
    collection: String,
    body: &[u8],
    write: WriteParameters,
    payloads: Payloads,
) -> Result<UpsertNamed, ApiError> {
    let mut body: UpsertBody = decode(body)?;
    let write = write.with_body(WriteParameters {
        write_consistency_factor: body.write_consistency_factor,
        wait: body.wait,
        expected_version: body.expected_version,
    })?;
    body.expected_version = write.expected_version;
    let metadata = SentPayload::read_in_body(body.metadata.take(), "metadata", payloads)?;
    Ok(UpsertNamed { collection, points: vec![body.into_point(metadata, payloads)?], write })
}

impl UpsertBody {
    /// Refuses what a staged point cannot have.
    fn check_staged(&self) -> Result<(), ApiError> {
        refuse_staged(&[
            ("ttl_ms", self.ttl_ms.is_some_and(|ttl_ms| ttl_ms != 0)),
            ("key_ttl_ms", self.key_ttl_ms.as_ref().is_some_and(|ttls| !ttls.0.is_empty())),
            ("expected_version", self.expected_version.is_some()),
        ])
    }

    /// The point, with the version that the body expects and its metadata, read.
    fn into_point(self, metadata: WirePayload, payloads: Payloads) -> Result<NamedPoint, ApiError> {
        let key_ttl_ms = self.key_ttl_ms.unwrap_or_default().0;
        let ttl_ms = self.ttl_ms.unwrap_or(0);
        check_ttl("ttl_ms", ttl_ms)?;
        let (id, expected_version) = (self.id.unwrap_or_default(), self.expected_version);
        let (id, row) = encode_row(&id, metadata, self.content, &key_ttl_ms, payloads)?;
        let fields = PointFields { id, row, ttl_ms, expected_version };
        let (dense, sparse) = (dense_of(self.vectors), sparse_of(self.sparse_vectors)?);
        Ok(NamedPoint { fields, dense, sparse })
    }
}

fn dense_of(vectors: Option<BySpace<Floats>>) -> Vec<(String, Vec<f32>)> {
    let vectors = vectors.unwrap_or_default().0.into_iter();
    vectors.map(|(name, Floats(vector))| (name, vector)).collect()
}

/// Sparse vectors by the names of their spaces.
type SparseVectors = Vec<(String, Vec<(u32, f32)>)>;

fn sparse_of(vectors: Option<BySpace<SparseBody>>) -> Result<SparseVectors, ApiError> {
    let mut sparse = Vec::new();
    for (name, vector) in vectors.unwrap_or_default().0 {
        let vector =
            vector.into_vector().map_err(|error| error.at(&format!("sparse_vectors {}", quoted(&name))))?;
        sparse.push((name, vector));
    }
    Ok(sparse)
}

/// Decodes the body of `…/points/{id}/vectors`, whose query string states `write`.
///
/// # Errors
/// 400.
pub fn decode_update_vectors(
    collection: String,
    id: SentId,
    body: &[u8],
    write: WriteParameters,
) -> Result<UpdateVectors, ApiError> {
    let body: UpdateVectorsBody = decode(body)?;
    let write = write.with_body(WriteParameters {
        write_consistency_factor: body.write_consistency_factor,
        wait: body.wait,
        expected_version: body.expected_version,
    })?;
    Ok(UpdateVectors {
        collection,
        id,
        dense: dense_of(body.vectors),
        sparse: sparse_of(body.sparse_vectors)?,
        delete: body.delete.unwrap_or_default().0,
        write,
    })
}

/// A batch that is being read.
#[derive(Default)]
struct NamedBatch {
    payloads: Payloads,
    /// Whether the points are staged for a build.
    is_staged: bool,
    points: Vec<NamedPoint>,
}

impl Envelope for NamedBatch {
    const ARRAY: &'static str = "points";

    fn restart(&mut self) {
        self.points.clear();
    }

    fn element(&mut self, json: &[u8]) -> Result<(), ApiError> {
        let index = self.points.len();
        if index >= limits::JSON_INGEST_MAX_POINTS {
            return Err(ApiError::too_many("points", limits::JSON_INGEST_MAX_POINTS as u64));
        }
        let mut point: UpsertBody = match serde_json::from_slice::<Option<UpsertBody>>(json) {
            Ok(point) => point.unwrap_or_default(),
            Err(error) => return Err(invalid_json(format_args!("points[{index}]: {}", in_words(&error)))),
        };
        let metadata = SentPayload::read(point.metadata.take(), "metadata", self.payloads)
            .map_err(|reason| invalid_json(format_args!("points[{index}]: {reason}")))?;
        let id = point.id.clone();
        let at = |error: ApiError| ApiError {
            message: format!("{}: {error}", place_of("points", index, id.as_ref())),
            ..error
        };
        match self.is_staged {
            true => point.check_staged().map_err(at)?,
            false => check_batch_options(point.write_consistency_factor, point.wait).map_err(at)?,
        }
        self.points.push(point.into_point(metadata, self.payloads).map_err(at)?);
        Ok(())
    }

    /// A collection of named spaces knows no other write than an upsert, which the interface of dense collections makes a batch say.
    fn field(&mut self, _: &str, _: &[u8]) -> Result<bool, ApiError> {
        Ok(false)
    }
}

/// Reads the body of `…/points/batch` as it arrives.
///
/// # Errors
/// 400, 413.
pub async fn read_batch(
    collection: String,
    mut body: BodyReader,
    write: WriteOptions,
    payloads: Payloads,
) -> Result<UpsertNamed, ApiError> {
    body.limit(limits::JSON_BULK_BODY_MAX_BYTES)?;
    let batch = read_envelope(&mut body, NamedBatch { payloads, ..NamedBatch::default() }).await?;
    Ok(UpsertNamed { collection, points: batch.points, write })
}

/// Reads the body of `…/points/bulk` as it arrives.
///
/// # Errors
/// 400, 413.
pub async fn read_staged(
    collection: String,
    mut body: BodyReader,
    payloads: Payloads,
) -> Result<StageNamed, ApiError> {
    body.limit(limits::JSON_BULK_BODY_MAX_BYTES)?;
    let batch = NamedBatch { payloads, is_staged: true, ..NamedBatch::default() };
    let batch = read_envelope(&mut body, batch).await?;
    Ok(StageNamed { collection, points: batch.points })
}

/// Decodes the body of a search in a dense space.
///
/// # Errors
/// 400.
pub fn decode_search(
    collection: String,
    body: &[u8],
    read: ReadParameters,
    with_rows: bool,
) -> Result<SearchNamed, ApiError> {
    let mut body: SearchBody = decode(body)?;
    let options = body.options();
    Ok(SearchNamed {
        collection,
        space: body.vector_name.unwrap_or_default(),
        source: Source::Dense(body.query.unwrap_or_default().0),
        k: body.k.unwrap_or(0),
        filter: compile_filter(body.filter.map(|filter| filter.0))?,
        with_rows,
        diversity: None,
        options,
        read: read.with_body(read_parameters!(body))?,
    })
}

/// Decodes the body of a search for diverse results (MMR).
///
/// # Errors
/// 400.
pub fn decode_mmr(collection: String, body: &[u8], read: ReadParameters) -> Result<SearchNamed, ApiError> {
    let mut body: MmrBody = decode(body)?;
    let options = body.options();
    Ok(SearchNamed {
        collection,
        space: body.vector_name.unwrap_or_default(),
        source: Source::Dense(body.query.unwrap_or_default().0),
        k: body.k.unwrap_or(0),
        filter: compile_filter(body.filter.map(|filter| filter.0))?,
        with_rows: true,
        diversity: Some(diversity(body.lambda, body.fetch_k)),
        options,
        read: read.with_body(read_parameters!(body))?,
    })
}

/// Decodes the body of a search in a sparse space.
///
/// # Errors
/// 400.
pub fn decode_sparse_search(
    collection: String,
    body: &[u8],
    read: ReadParameters,
) -> Result<SearchNamed, ApiError> {
    let mut body: SparseSearchBody = decode(body)?;
    let options = body.options();
    Ok(SearchNamed {
        collection,
        space: body.vector_name.unwrap_or_default(),
        source: Source::Sparse(body.query.unwrap_or_default().into_vector()?),
        k: body.k.unwrap_or(0),
        filter: compile_filter(body.filter.map(|filter| filter.0))?,
        with_rows: false,
        diversity: None,
        options,
        read: read.with_body(read_parameters!(body))?,
    })
}

/// The query of a search in a space that is dense or sparse: an array is a dense vector.
pub enum DenseOrSparse {
    /// An array.
    Dense(Floats),
    /// An object.
    Sparse(SparseBody),
}

impl<'de> Deserialize<'de> for DenseOrSparse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?.get();
        match json.starts_with('{') {
            true => serde_json::from_str(json).map(DenseOrSparse::Sparse),
            false => serde_json::from_str(json).map(DenseOrSparse::Dense),
        }
        .map_err(|error| D::Error::custom(in_words(&error)))
    }
}

/// Decodes one search of a batch, in a dense or in a sparse space.
///
/// # Errors
/// 400.
pub fn decode_batch_search(
    collection: String,
    body: &[u8],
    read: ReadParameters,
) -> Result<SearchNamed, ApiError> {
    let mut body: BatchSearchBody = decode(body)?;
    let options = body.options();
    Ok(SearchNamed {
        collection,
        space: body.vector_name.unwrap_or_default(),
        source: match body.query {
            Some(DenseOrSparse::Dense(vector)) => Source::Dense(vector.0),
            Some(DenseOrSparse::Sparse(vector)) => Source::Sparse(vector.into_vector()?),
            None => Source::Dense(Vec::new()),
        },
        k: body.k.unwrap_or(0),
        filter: compile_filter(body.filter.map(|filter| filter.0))?,
        with_rows: false,
        diversity: None,
        options,
        read: read.with_body(read_parameters!(body))?,
    })
}

/// Decodes the body of a hybrid search.
///
/// # Errors
/// 400.
pub fn decode_hybrid(collection: String, body: &[u8], read: ReadParameters) -> Result<HybridNamed, ApiError> {
    let mut body: HybridBody = decode(body)?;
    let options = body.options();
    Ok(HybridNamed {
        collection,
        dense: (body.dense_space.unwrap_or_default(), body.dense.unwrap_or_default().0),
        sparse: (body.sparse_space.unwrap_or_default(), body.sparse.unwrap_or_default().into_vector()?),
        text: text_of(body.text, body.matching)?,
        k: body.k.unwrap_or(0),
        filter: compile_filter(body.filter.map(|filter| filter.0))?,
        method: method(body.method.as_deref(), body.alpha, body.rrf_k)?,
        dense_k: body.dense_k.unwrap_or(0),
        sparse_k: body.sparse_k.unwrap_or(0),
        options,
        read: read.with_body(read_parameters!(body))?,
    })
}

/// Decodes the body of a query.
///
/// # Errors
/// 400.
pub fn decode_query(collection: String, body: &[u8], read: ReadParameters) -> Result<QueryNamed, ApiError> {
    let mut body: QueryBody = decode(body)?;
    let query: Result<QueryPoints, ApiError> = query_points!(collection, body, read);
    Ok(QueryNamed(query?))
}

inner_query_body! { pub struct InnerQueryBody of NamedLeafBody }

impl LaneBody for NamedLeafBody {
    type Inner = InnerQueryBody;

    fn take_query(&mut self) -> Option<Box<RawValue>> {
        self.query.take()
    }

    fn is_empty(&self) -> bool {
        matches!(
            self,
            NamedLeafBody {
                query: None,
                space: None,
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

    /// Only one source of a lane counts: recommend, then discover, then a sparse vector that is not empty, then a text, then the dense vector.
    fn into_leaf(self) -> Result<QueryLeaf, ApiError> {
        let space = self.space.unwrap_or_default();
        let leaf = LeafBody {
            query: None,
            dense: self.dense,
            sparse: self.sparse,
            text: self.text,
            matching: self.matching,
            recommend: self.recommend,
            discover: self.discover,
            k: self.k,
            lane_k: self.lane_k,
            filter: self.filter,
        };
        let leaf = QueryLeaf { space, ..leaf.into_leaf()? };
        check_lane_space(&leaf)?;
        Ok(leaf)
    }
}

/// Whether a body reads as each of the routes, for [`super::probe`].
pub fn reads(body: &[u8]) -> [bool; 7] {
    let read = ReadParameters::default();
    [
        decode_create(body).is_ok(),
        decode_upsert(String::new(), body, WriteParameters::default(), Payloads::tagged(1)).is_ok(),
        decode_search(String::new(), body, read, true).is_ok(),
        decode_mmr(String::new(), body, read).is_ok(),
        decode_sparse_search(String::new(), body, read).is_ok(),
        decode_hybrid(String::new(), body, read).is_ok(),
        decode_query(String::new(), body, read).is_ok(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_engine::collection::{IndexType, Quantizer};
    use nigh_engine::distance::Metric;

    fn refusal<T>(result: Result<T, ApiError>) -> String {
        match result {
            Ok(_) => panic!("it is accepted"),
            Err(error) => error.message,
        }
    }

    #[test]
    fn spaces_are_configured_by_numbers_or_words() {
        let config = decode_create(
            br#"{"named_vectors":{"title":{"dim":3,"metric":1,"m":0,"quant":2,"rescore_factor":4},
                "body":{"dim":8,"metric":"dot","index_type":"ivf","ivf_nlist":5,"quant":0},
                "words":{"sparse":true,"dim":-9,"metric":77},"none":{"dim":2,"metric":0,"sparse":false}},
                "partitions":0}"#,
        )
        .unwrap();
        let names: Vec<&str> = config.spaces.iter().map(|space| space.name.as_str()).collect();
        assert_eq!((names, config.sparse_names().collect()), (vec!["title", "body", "none"], vec!["words"]));
        let [title, body, none] = [0, 1, 2].map(|at| &config.spaces[at].config);
        assert_eq!((title.dim, title.metric, title.m, title.rescore_factor), (3, Metric::L2, 16, 4));
        assert!(matches!(title.quant, Quantizer::Trained(_)));
        assert!(matches!(&body.index, IndexType::Ivf(ivf) if ivf.nlist == 5) && body.metric == Metric::Dot);
        assert_eq!(none.metric, Metric::Cosine);
    }

    #[test]
    fn what_no_space_can_be_is_refused_by_name() {
        for (body, fragment) in [
            (r#"{}"#, "names no space"),
            (r#"{"named_vectors":{}}"#, "names no space"),
            (r#"{"named_vectors":{"a":{}}}"#, "space \"a\": invalid Dim"),
            (r#"{"named_vectors":{"a":{"dim":0}}}"#, "space \"a\""),
            (r#"{"named_vectors":{"a":null}}"#, "space \"a\""),
            (r#"{"named_vectors":{"":{"dim":1}}}"#, "is empty"),
            (r#"{"named_vectors":{"a/b":{"dim":1}}}"#, "reserved"),
            (
                r#"{"named_vectors":{"a":{"dim":1,"metric":3}}}"#,
                "unknown metric \"3\"; it must be one of cosine",
            ),
            (r#"{"named_vectors":{"a":{"dim":1,"metric":"far"}}}"#, "unknown metric \"far\""),
            (r#"{"named_vectors":{"a":{"dim":1,"metric":true}}}"#, "field \"metric\""),
            (r#"{"named_vectors":{"a":{"dim":1,"index_type":3}}}"#, "gpu"),
            (r#"{"named_vectors":{"a":{"dim":1,"full_text":{}}}}"#, "unknown field \"full_text\""),
            (r#"{"named_vectors":{"a":{"dim":1,"persistent":true}}}"#, "unknown field \"persistent\""),
            (r#"{"named_vectors":{"a":{"dim":1,"m":129}}}"#, "invalid M"),
            (r#"{"named_vectors":{"a":{"dim":1}},"partitions":2}"#, "partitions"),
            (r#"{"named_vectors":{"a":{"dim":1}},"partitions":-1}"#, "partitions"),
            (r#"{"named_vectors":[1]}"#, "field \"named_vectors\""),
            (r#"{"named_vectors":{"a":{"dim":1}},"name":"n"}"#, "unknown field \"name\""),
        ] {
            let message = refusal(decode_create(body.as_bytes()));
            assert!(message.contains(fragment), "{body}: {message}");
        }
    }

    #[test]
    fn points_have_vectors_by_name() {
        let decoded = |body: &str| {
            decode_upsert("n".into(), body.as_bytes(), WriteParameters::default(), Payloads::tagged(1))
        };
        let point = decoded(
            r#"{"id":7,"vectors":{"a":[1,2],"b":null,"a":[3]},"sparse_vectors":{"s":{"indices":[1],"values":[2]},"t":null,
                "u":{}},"ttl_ms":5,"expected_version":3}"#,
        )
        .unwrap();
        let [point] = &point.points[..] else { panic!("{} points", point.points.len()) };
        assert_eq!(point.dense, [("a".to_owned(), vec![3.0]), ("b".to_owned(), vec![])]);
        let sparse = [("s", vec![(1, 2.0)]), ("t", vec![]), ("u", vec![])];
        assert_eq!(point.sparse, sparse.map(|(name, vector)| (name.to_owned(), vector)));
        assert_eq!((point.fields.id, point.fields.ttl_ms, point.fields.expected_version), (7, 5, Some(3)));
        for (body, fragment) in [
            (r#"{"vectors":[1]}"#, "by the names of spaces"),
            (r#"{"vectors":{"a":[1,"x"]}}"#, "field \"a\""),
            (r#"{"vectors":{"a":[1e39]}}"#, "field \"a\""),
            (
                r#"{"sparse_vectors":{"s":{"indices":[2,1],"values":[1,1]}}}"#,
                "sparse_vectors \"s\": sparse: indices",
            ),
            (r#"{"vector":[1]}"#, "unknown field \"vector\""),
        ] {
            let message = refusal(decoded(body));
            assert!(message.contains(fragment), "{body}: {message}");
        }
        let many: Vec<String> = (0..65).map(|at| format!("\"{at}\":[1]")).collect();
        let message = refusal(decoded(&format!("{{\"vectors\":{{{}}}}}", many.join(","))));
        assert!(message.contains("more than 64 spaces"), "{message}");
    }

    #[test]
    fn lanes_name_their_space() {
        let decoded = |body: &str| decode_query("n".into(), body.as_bytes(), ReadParameters::default());
        let query = decoded(
            r#"{"prefetch":[{"space":"a","dense":[1]},{"space":"s","sparse":{"indices":[1],"values":[1]},"dense":[1]}],
                "root":{"space":"b","dense":[2]},"mode":"rerank"}"#,
        )
        .unwrap();
        let spaces: Vec<&str> = query.0.node.leaves().iter().map(|lane| &lane.space[..]).collect();
        assert_eq!((spaces, &query.0.node.root.as_ref().unwrap().space[..]), (vec!["a", "s"], "b"));
        assert!(matches!(query.0.node.leaves()[1].source, Source::Sparse(_)));
        for (body, fragment) in [
            (r#"{"prefetch":[{"dense":[1]}]}"#, "prefetch[0]: space is required"),
            (
                r#"{"prefetch":[{"space":"a","text":"x"}]}"#,
                "prefetch[0]: space \"a\" is not allowed in a lane with text",
            ),
            (r#"{"prefetch":[{"match":{}}]}"#, "prefetch[0]: match is only allowed together with text"),
            (r#"{"prefetch":[{"query":{"prefetch":[{"text":1}]}}]}"#, "field \"text\""),
            (r#"{"prefetch":[],"mode":"rerank"}"#, "needs a root"),
            (r#"{"prefetch":[],"mode":"rerank","root":{"dense":[1]}}"#, "root: space is required"),
            (r#"{"prefetch":[],"mode":"other"}"#, "unknown query mode"),
            (r#"{"prefetch":[],"group_by":1}"#, "field \"group_by\""),
        ] {
            let message = refusal(decoded(body));
            assert!(message.contains(fragment), "{body}: {message}");
        }
    }
}
