//! Decodes the bodies of the routes of multi-vector collections into operations.

use super::envelope::Envelope;
use super::lane_bodies::{
    LaneBody, MatchBody, NodeBody, inner_query_body, method, node_body, query_points, text_of,
};
use super::points::{check_batch_options, read_envelope, refuse_staged};
use crate::http::BodyReader;
use crate::limits::{self, TOKENS_MAX};
use crate::op::{
    AddDocuments, ApiError, Document, HybridDocuments, QueryDocuments, QueryLeaf, QueryPoints,
    SearchDocuments, SentId, StageDocuments, WriteOptions, compile_filter, place_of, token_source,
};
use crate::rest::parameters::{ReadParameters, WriteParameters, read_parameters};
use crate::wire::config::TokensConfig;
use crate::wire::filter::WireFilter;
use crate::wire::json::{Floats, IntMap, SparseBody, UpTo, decode, in_words, invalid_json, json_object};
use crate::wire::payloads::{Payloads, SentPayload, WirePayload, encode_row};
use crate::wire::search_options::search_body;
use nigh_engine::collection::MultiVectorConfig;
use nigh_engine::query::Source;
use nigh_shard::core::PointFields;
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

json_object! {
    /// Body of `…/docs`.
    pub struct AddBody {
        "id" => id: SentId,
        "tokens" => tokens: Tokens,
        "content" => content: String,
        "metadata" => metadata: SentPayload,
        "sparse" => sparse: SparseBody,
        "key_ttl_ms" => key_ttl_ms: IntMap,
        "expected_version" => expected_version: u64,
        "write_consistency_factor" => write_consistency_factor: i64,
        "wait" => wait: bool,
    }
}

search_body! {
    /// Body of `…/search`.
    pub struct SearchBody {
        "query" => query: Tokens,
        "k" => k: i64,
        "candidates_per_token" => candidates_per_token: i64,
        "filter" => filter: WireFilter,
    }
}

search_body! {
    /// Body of `…/hybrid-search`.
    pub struct HybridBody {
        "query" => query: Tokens,
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
        "maxsim" => maxsim: Tokens,
        "sparse" => sparse: SparseBody,
        "text" => text: String,
        "match" => matching: MatchBody,
        "k" => k: i64,
        "lane_k" => lane_k: i64,
        "filter" => filter: WireFilter,
    }
}

/// Token vectors.
#[derive(Default)]
pub struct Tokens(pub Vec<Vec<f32>>);

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TokensVisitor;
        impl<'de> Visitor<'de> for TokensVisitor {
            type Value = Tokens;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of token vectors, each an array of numbers")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tokens, A::Error> {
                let mut tokens = Vec::new();
                while let Some(Floats(token)) = items.next_element()? {
                    // Neither a document nor a query may have more. An empty vector takes 3 bytes of text, but 24 bytes in memory.
                    if tokens.len() >= TOKENS_MAX {
                        return Err(A::Error::custom(format_args!(
                            "at most {TOKENS_MAX} token vectors are allowed"
                        )));
                    }
                    tokens.push(token);
                }
                Ok(Tokens(tokens))
            }
        }
        deserializer.deserialize_seq(TokensVisitor)
    }
}

/// Decodes the body of a request that creates a collection.
///
/// # Errors
/// 400.
pub fn decode_create(body: &[u8]) -> Result<MultiVectorConfig, ApiError> {
    decode::<TokensConfig>(body)?.into_config()
}

impl AddBody {
    /// Refuses what a staged document cannot have.
    fn check_staged(&self) -> Result<(), ApiError> {
        refuse_staged(&[
            ("key_ttl_ms", self.key_ttl_ms.as_ref().is_some_and(|ttls| !ttls.0.is_empty())),
            ("expected_version", self.expected_version.is_some()),
        ])
    }

    /// Makes the document, with the expected version of the body and its metadata, read.
    fn into_document(self, metadata: WirePayload, payloads: Payloads) -> Result<Document, ApiError> {
        let key_ttl_ms = self.key_ttl_ms.unwrap_or_default().0;
        let (id, expected_version) = (self.id.unwrap_or_default(), self.expected_version);
        let (id, row) = encode_row(&id, metadata, self.content, &key_ttl_ms, payloads)?;
        let fields = PointFields { id, row, ttl_ms: 0, expected_version };
        let sparse = self.sparse.unwrap_or_default().into_vector()?;
        Ok(Document { fields, tokens: self.tokens.unwrap_or_default().0, sparse })
    }
}

/// Decodes the body of `…/docs`, whose query string states `write`.
///
/// # Errors
/// 400.
pub fn decode_add(
    collection: String,
    body: &[u8],
    write: WriteParameters,
    payloads: Payloads,
) -> Result<AddDocuments, ApiError> {
    let mut body: AddBody = decode(body)?;
    let write = write.with_body(WriteParameters {
        write_consistency_factor: body.write_consistency_factor,
        wait: body.wait,
        expected_version: body.expected_version,
    })?;
    body.expected_version = write.expected_version;
    let metadata = SentPayload::read_in_body(body.metadata.take(), "metadata", payloads)?;
    Ok(AddDocuments { collection, documents: vec![body.into_document(metadata, payloads)?], write })
}

/// A batch or staging body that is being read.
#[derive(Default)]
struct DocumentBatch {
    payloads: Payloads,
    is_staged: bool,
    documents: Vec<Document>,
    /// The number of token vectors of all of them.
    tokens: usize,
}

impl Envelope for DocumentBatch {
    const ARRAY: &'static str = "docs";

    fn restart(&mut self) {
        self.documents.clear();
        self.tokens = 0;
    }

    fn element(&mut self, json: &[u8]) -> Result<(), ApiError> {
        let index = self.documents.len();
        if index >= limits::JSON_INGEST_MAX_POINTS {
            return Err(ApiError::too_many("documents", limits::JSON_INGEST_MAX_POINTS as u64));
        }
        let mut document: AddBody = match serde_json::from_slice::<Option<AddBody>>(json) {
            Ok(document) => document.unwrap_or_default(),
            Err(error) => return Err(invalid_json(format_args!("docs[{index}]: {}", in_words(&error)))),
        };
        let metadata = SentPayload::read(document.metadata.take(), "metadata", self.payloads)
            .map_err(|reason| invalid_json(format_args!("docs[{index}]: {reason}")))?;
        let id = document.id.clone();
        let at = |error: ApiError| ApiError {
            message: format!("{}: {error}", place_of("docs", index, id.as_ref())),
            ..error
        };
        match self.is_staged {
            true => document.check_staged().map_err(at)?,
            false => check_batch_options(document.write_consistency_factor, document.wait).map_err(at)?,
        }
        let document = document.into_document(metadata, self.payloads).map_err(at)?;
        self.tokens += document.tokens.len();
        if self.tokens > limits::JSON_INGEST_MAX_TOKENS {
            return Err(ApiError::too_many("token vectors", limits::JSON_INGEST_MAX_TOKENS as u64));
        }
        self.documents.push(document);
        Ok(())
    }

    fn field(&mut self, _: &str, _: &[u8]) -> Result<bool, ApiError> {
        Ok(false)
    }
}

/// Reads the body of `…/docs/batch` as it arrives.
///
/// # Errors
/// 400, 413.
pub async fn read_batch(
    collection: String,
    mut body: BodyReader,
    write: WriteOptions,
    payloads: Payloads,
) -> Result<AddDocuments, ApiError> {
    body.limit(limits::JSON_BULK_BODY_MAX_BYTES)?;
    let batch = read_envelope(&mut body, DocumentBatch { payloads, ..DocumentBatch::default() }).await?;
    Ok(AddDocuments { collection, documents: batch.documents, write })
}

/// Reads the body of `…/docs/bulk` as it arrives.
///
/// # Errors
/// 400, 413.
pub async fn read_staged(
    collection: String,
    mut body: BodyReader,
    payloads: Payloads,
) -> Result<StageDocuments, ApiError> {
    body.limit(limits::JSON_BULK_BODY_MAX_BYTES)?;
    let batch = DocumentBatch { payloads, is_staged: true, ..DocumentBatch::default() };
    let batch = read_envelope(&mut body, batch).await?;
    Ok(StageDocuments { collection, documents: batch.documents })
}

/// Decodes the body of a search.
///
/// # Errors
/// 400.
pub fn decode_search(
    collection: String,
    body: &[u8],
    read: ReadParameters,
) -> Result<SearchDocuments, ApiError> {
    let mut body: SearchBody = decode(body)?;
    let options = body.options();
    Ok(SearchDocuments {
        collection,
        query: body.query.unwrap_or_default().0,
        k: body.k.unwrap_or(0),
        candidates_per_token: body.candidates_per_token.unwrap_or(0),
        filter: compile_filter(body.filter.map(|filter| filter.0))?,
        options,
        read: read.with_body(read_parameters!(body))?,
    })
}

/// Decodes the body of a hybrid search.
///
/// # Errors
/// 400.
pub fn decode_hybrid(
    collection: String,
    body: &[u8],
    read: ReadParameters,
) -> Result<HybridDocuments, ApiError> {
    let mut body: HybridBody = decode(body)?;
    let options = body.options();
    Ok(HybridDocuments {
        collection,
        query: body.query.unwrap_or_default().0,
        sparse: body.sparse.unwrap_or_default().into_vector()?,
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

inner_query_body! { pub struct InnerQueryBody of LeafBody }

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
                maxsim: None,
                sparse: None,
                text: None,
                matching: None,
                k: None,
                lane_k: None,
                filter: None,
            }
        )
    }

    /// A sparse vector that is not empty takes precedence over a text, and a text over tokens.
    fn into_leaf(self) -> Result<QueryLeaf, ApiError> {
        let text = text_of(self.text, self.matching)?;
        let sparse = self.sparse.unwrap_or_default().into_vector()?;
        let source = match sparse.is_empty() {
            true => text.unwrap_or_else(|| token_source(self.maxsim.unwrap_or_default().0, 0)),
            false => Source::Sparse(sparse),
        };
        let filter = compile_filter(self.filter.map(|filter| filter.0))?;
        let (k, lane_k) = (self.k.unwrap_or(0), self.lane_k.unwrap_or(0));
        Ok(QueryLeaf { source, space: String::new(), k, lane_k, filter })
    }
}

/// Decodes the body of a query.
///
/// # Errors
/// 400.
pub fn decode_query(
    collection: String,
    body: &[u8],
    read: ReadParameters,
) -> Result<QueryDocuments, ApiError> {
    let mut body: QueryBody = decode(body)?;
    let query: Result<QueryPoints, ApiError> = query_points!(collection, body, read);
    Ok(QueryDocuments(query?))
}

/// Whether a body can be decoded for each of the routes, for [`super::probe`].
pub fn reads(body: &[u8]) -> [bool; 5] {
    let read = ReadParameters::default();
    [
        decode_create(body).is_ok(),
        decode_add(String::new(), body, WriteParameters::default(), Payloads::tagged(1)).is_ok(),
        decode_search(String::new(), body, read).is_ok(),
        decode_hybrid(String::new(), body, read).is_ok(),
        decode_query(String::new(), body, read).is_ok(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_engine::collection::{IndexType, Quantizer};
    use nigh_engine::query::MaxSim;

    fn refusal<T>(result: Result<T, ApiError>) -> String {
        match result {
            Ok(_) => panic!("it is accepted"),
            Err(error) => error.message,
        }
    }

    #[test]
    fn configurations() {
        let config = decode_create(
            br#"{"dim":96,"m":0,"ef_construction":0,"ef_search":0,"seed":0,"quant":"","rescore_factor":0,"persistent":false}"#,
        )
        .unwrap();
        assert_eq!((config.tokens.dim, config.tokens.m, config.tokens.quant), (96, 16, Quantizer::None));
        let config = decode_create(br#"{"dim":8,"persistent":true,"partitions":1}"#).unwrap();
        assert_eq!((config.tokens.persistent, config.tokens.quant), (true, Quantizer::Sq8));
        let config = decode_create(br#"{"dim":8,"index_type":"ivf","ivf_pq":true}"#).unwrap();
        assert!(matches!(config.tokens.index, IndexType::Ivf(_)));
        // The texts belong to documents, so the configuration of the index does not matter.
        let config = decode_create(
            br#"{"dim":8,"quant":"pq","pq_drop_vecs":true,"full_text":{"b":0.5},"max_vectors":3,"max_bytes":4,"max_inserts_per_second":5}"#,
        )
        .unwrap();
        assert_eq!((config.whole.full_text.map(|text| text.b), config.tokens.full_text), (Some(0.5), None));
        assert_eq!((config.whole.max_vectors, config.whole.max_bytes, config.tokens.max_bytes), (3, 4, 0));
        assert_eq!((config.whole.max_inserts_per_second, config.tokens.max_inserts_per_second), (5, 0));
        for (body, fragment) in [
            ("{}", "invalid Dim"),
            (r#"{"dim":0}"#, "Dim"),
            (r#"{"dim":8,"metric":"l2"}"#, "unknown field \"metric\""),
            (r#"{"dim":8,"full_text":{"dim":8}}"#, "unknown field \"dim\""),
            (r#"{"dim":8,"max_vectors":-1}"#, "field \"max_vectors\""),
            (r#"{"dim":8,"max_inserts_per_second":1.5}"#, "field \"max_inserts_per_second\""),
            (r#"{"dim":8,"max_ef_search":1}"#, "unknown field \"max_ef_search\""),
            (r#"{"dim":8,"quant":"sq9"}"#, "unknown quant \"sq9\""),
            (r#"{"dim":8,"ivf_pq":true}"#, "IVFPQ requires"),
            (r#"{"dim":8,"partitions":2}"#, "partitions"),
            (r#"{"dim":8,"index_type":"gpu"}"#, "gpu"),
            (
                r#"{"dim":8,"first_stage":"bags"}"#,
                "unknown first_stage \"bags\"; it must be one of tokens, encodings",
            ),
            (
                r#"{"dim":8,"encoding_bits":3}"#,
                "invalid encoding_bits: 3 needs first_stage \"encodings\", found \"tokens\"",
            ),
            (
                r#"{"dim":8,"first_stage":"tokens","encoding_dim":3}"#,
                "invalid encoding_dim: 3 needs first_stage",
            ),
            (
                r#"{"dim":8,"first_stage":"encodings","encoding_bits":11}"#,
                "invalid encoding_bits: must be between 0 and 10",
            ),
            (
                r#"{"dim":8,"first_stage":"encodings","encoding_dim":9}"#,
                "invalid encoding_dim: 9 is more than dim, which is 8",
            ),
            (
                r#"{"dim":8,"first_stage":"encodings","encoding_repetitions":64,"encoding_bits":10}"#,
                "524288 components",
            ),
        ] {
            let message = refusal(decode_create(body.as_bytes()));
            assert!(message.contains(fragment), "{body}: {message}");
        }
    }

    #[test]
    fn documents() {
        let decoded = |body: &str| {
            decode_add("m".into(), body.as_bytes(), WriteParameters::default(), Payloads::tagged(1))
        };
        let added = decoded(
            r#"{"id":7,"tokens":[[1,2],[3,4]],"sparse":{"indices":[1],"values":[2]},"expected_version":3}"#,
        )
        .unwrap();
        let [document] = &added.documents[..] else { panic!() };
        assert_eq!(
            (&document.tokens[..], &document.sparse[..]),
            (&[vec![1.0, 2.0], vec![3.0, 4.0]][..], &[(1, 2.0)][..])
        );
        assert_eq!((document.fields.id, document.fields.expected_version), (7, Some(3)));
        let none = decoded(r#"{"tokens":null,"sparse":{}}"#).unwrap();
        assert!(none.documents[0].tokens.is_empty() && none.documents[0].sparse.is_empty());
        let many = format!(r#"{{"tokens":[{}]}}"#, vec!["[]"; 4097].join(","));
        for (body, fragment) in [
            (r#"{"tokens":[1]}"#, "field \"tokens\""),
            (r#"{"tokens":[[1,"x"]]}"#, "field \"tokens\""),
            (r#"{"tokens":[[1]],"ttl_ms":5}"#, "unknown field \"ttl_ms\""),
            (r#"{"vectors":{}}"#, "unknown field \"vectors\""),
            (&many, "at most 4096 token vectors are allowed"),
        ] {
            let message = refusal(decoded(body));
            assert!(message.contains(fragment), "{body}: {message}");
        }
    }

    /// The token vectors of a batch are limited, because small ones take many times the size of their text in memory.
    #[test]
    fn batches_have_so_many_tokens() {
        let mut batch = DocumentBatch { payloads: Payloads::tagged(1), ..DocumentBatch::default() };
        let document = format!(r#"{{"tokens":[{}]}}"#, vec!["[1]"; TOKENS_MAX].join(","));
        for _ in 0..limits::JSON_INGEST_MAX_TOKENS / TOKENS_MAX {
            batch.element(document.as_bytes()).unwrap();
        }
        let refused = refusal(batch.element(br#"{"tokens":[[1]]}"#));
        assert!(refused.contains("at most 1048576 token vectors"), "{refused}");
        batch.restart();
        batch.element(document.as_bytes()).unwrap();
    }

    #[test]
    fn lanes() {
        let decoded = |body: &str| decode_query("m".into(), body.as_bytes(), ReadParameters::default());
        let query = decoded(
            r#"{"prefetch":[{"maxsim":[[1,2]],"k":3},{"maxsim":[[1,2]],"sparse":{"indices":[1],"values":[1]}}],
                "root":{"maxsim":[[0,1]]},"mode":"rerank","k":5}"#,
        )
        .unwrap()
        .0;
        assert!(
            matches!(&query.node.leaves()[0].source, Source::MaxSim(MaxSim { tokens, per_token: 0 }) if tokens.len() == 1)
        );
        assert!(matches!(&query.node.leaves()[1].source, Source::Sparse(_)) && query.node.root.is_some());
        for (body, fragment) in [
            (r#"{"prefetch":[{"dense":[1]}]}"#, "unknown field \"dense\""),
            (r#"{"prefetch":[{"recommend":{}}]}"#, "unknown field \"recommend\""),
            (r#"{"prefetch":[],"mode":"rerank"}"#, "needs a root"),
            (r#"{"prefetch":[{"maxsim":[1]}]}"#, "field \"maxsim\""),
        ] {
            let message = refusal(decoded(body));
            assert!(message.contains(fragment), "{body}: {message}");
        }
    }
}
