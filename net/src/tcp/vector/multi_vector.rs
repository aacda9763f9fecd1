//! Operations on multi-vector collections whose layouts are not those of dense collections.
//!
//! ```text
//! create_collection   C create, see `create`
//! drop_collection     C, then nothing or u64 without effect
//! get_config          C trailer R; the result is the arguments of create_collection
//! add                 C u64 id, matrix, meta, keyTtl, cas, then nothing, 00, or 01 sparse, then V
//! add_if_absent       C u64 id, matrix, meta, then nothing, 00, or 01 u64 version, deadlines, then nothing, 00, or 01 sparse; then V
//! search              C u32 k, u32 candidatesPerToken, matrix, then nothing or marker, ?(u8 rc, u8 opa) (bit 0), ?u64 bound (2), ?filter (1), S
//! hybrid_search       flags C u32 k, fusion, matrix, sparse, ?s32 text (bit 3), ?filter (0), ?options (2), S;
//!                     bit 4 = phrase, bit 5 = the last word is a prefix
//! query               C s32 QuerySpec, trailer R, S
//! scroll              as in collections of named spaces
//! matrix    = u32 rows, vec*
//! deadlines = 00, or 01 s32 JSON of times to live in milliseconds by key
//! ```
//! `delete`, `delete_by_filter`, `exists`, `get`, `get_batch`, `operate` and changes of payloads are as in dense collections. Bit 1 of the flags of
//! `hybrid_search` says that the sparse vector is not empty. It has no effect, because the sparse vector is always sent, even if it is empty.
//!
//! `add_if_absent` was designed for nodes that copy documents to each other. A document that is added starts at version 1, whatever version is sent
//! with it.

use super::parts::{
    cas, collection, filter, filter_if, key_ttl, key_ttl_map, options_if, payload, search_options, sparse,
    trailer, with_version,
};
use super::search::{FILTER, Fusion, HYBRID_OPTIONS, HYBRID_SPARSE, HYBRID_WORDS, fusion, hybrid_text_if};
use crate::limits::{self, TOKENS_MAX};
use crate::op::{
    AddDocuments, ApiError, Document, DropCollection, GetMultiVectorConfig, HybridDocuments, QueryDocuments,
    ReadOptions, SearchDocuments, WriteOptions,
};
use crate::tcp::reader::{ArgsReader, check_flags};
use crate::wire::embedded::invalid;
use crate::wire::payloads::{Decoding, encode_row};
use crate::wire::proto;
use crate::wire::query::document_query_of;
use nigh_shard::core::PointFields;
use nigh_shard::family::Family;

/// Bits of the marker of a search.
const SEARCH_OPTIONS: u8 = 1;
const SEARCH_FILTER: u8 = 1 << 1;
const SEARCH_BOUND: u8 = 1 << 2;

/// Decodes a request to drop a collection.
pub fn drop_collection(args: &mut ArgsReader<'_>) -> Result<DropCollection, ApiError> {
    let collection = collection(args)?;
    if !args.is_empty() {
        args.u64("generation")?;
    }
    Ok(DropCollection { collection, family: Some(Family::MultiVector) })
}

pub fn get_config(args: &mut ArgsReader<'_>) -> Result<GetMultiVectorConfig, ApiError> {
    Ok(GetMultiVectorConfig { collection: collection(args)?, read: trailer(args)? })
}

/// Decodes a write of one document, and whether its answer has the version.
pub fn add(args: &mut ArgsReader<'_>, decoding: &Decoding) -> Result<(AddDocuments, bool), ApiError> {
    let (collection, id, tokens) = (collection(args)?, args.u64("id")?, matrix(args, "tokens", TOKENS_MAX)?);
    let payloads = decoding.of(&collection);
    let meta = payload(args, "meta", payloads)?;
    let key_ttl_ms = key_ttl(args)?;
    let write = cas(args)?;
    let sparse = sparse_if(args)?;
    let (id, row) = encode_row(&id.into(), meta, None, &key_ttl_ms, payloads)?;
    let fields = PointFields { id, row, ttl_ms: 0, expected_version: write.expected_version };
    let documents = vec![Document { fields, tokens, sparse }];
    Ok((AddDocuments { collection, documents, write }, with_version(args)))
}

/// Decodes a write of one document that takes place only if the document is absent, and whether its answer has the version.
pub fn add_if_absent(
    args: &mut ArgsReader<'_>,
    decoding: &Decoding,
) -> Result<(AddDocuments, bool), ApiError> {
    let (collection, id, tokens) = (collection(args)?, args.u64("id")?, matrix(args, "tokens", TOKENS_MAX)?);
    let payloads = decoding.of(&collection);
    let meta = payload(args, "meta", payloads)?;
    let (mut key_ttl_ms, mut sparse) = (Vec::new(), Vec::new());
    if !args.is_empty() && args.flag("version")? {
        args.u64("version")?;
        if args.flag("deadlines")? {
            key_ttl_ms = key_ttl_map(args)?;
        }
        sparse = sparse_if(args)?;
    }
    let (id, row) = encode_row(&id.into(), meta, None, &key_ttl_ms, payloads)?;
    let write = WriteOptions { expected_version: Some(0), ..WriteOptions::default() };
    let fields = PointFields { id, row, ttl_ms: 0, expected_version: write.expected_version };
    let documents = vec![Document { fields, tokens, sparse }];
    Ok((AddDocuments { collection, documents, write }, with_version(args)))
}

/// Decodes nothing, 00, or 01 and a sparse vector.
fn sparse_if(args: &mut ArgsReader<'_>) -> Result<Vec<(u32, f32)>, ApiError> {
    match !args.is_empty() && args.flag("sparse")? {
        true => sparse(args),
        false => Ok(Vec::new()),
    }
}

/// Decodes a `matrix` of at most `most` rows.
fn matrix(args: &mut ArgsReader<'_>, field: &'static str, most: usize) -> Result<Vec<Vec<f32>>, ApiError> {
    let rows = args.u32(field)?;
    // Each row has its dimension before it.
    let rows = args.fits(rows.into(), 4, field)?;
    if rows > most {
        return Err(invalid(field, format_args!("at most {most} token vectors are allowed, found {rows}")));
    }
    (0..rows).map(|_| Ok(args.vector(field)?)).collect()
}

pub fn search(args: &mut ArgsReader<'_>) -> Result<SearchDocuments, ApiError> {
    let (collection, k) = (collection(args)?, args.u32("k")?.into());
    let candidates_per_token = args.u32("candidatesPerToken")?.into();
    let query = matrix(args, "query", limits::QUERY_TOKENS_MAX)?;
    let marker = if args.is_empty() { 0 } else { args.u8("marker")? };
    check_flags(marker, SEARCH_OPTIONS | SEARCH_FILTER | SEARCH_BOUND)?;
    let mut read = ReadOptions::default();
    if marker & SEARCH_OPTIONS != 0 {
        read.read_consistency = args.u8("readConsistency")?;
        read.on_partition_unavailable = args.u8("onPartitionUnavailable")?;
    }
    if marker & SEARCH_BOUND != 0 {
        read.max_staleness = args.u64("maxStaleness")?;
    }
    let filter = if marker & SEARCH_FILTER != 0 { filter(args)? } else { None };
    let options = search_options(args)?;
    Ok(SearchDocuments { collection, query, k, candidates_per_token, filter, options, read })
}

pub fn hybrid(args: &mut ArgsReader<'_>) -> Result<HybridDocuments, ApiError> {
    let flags = args.u8("flags")?;
    check_flags(flags, FILTER | HYBRID_SPARSE | HYBRID_OPTIONS | HYBRID_WORDS)?;
    let (collection, k) = (collection(args)?, args.u32("k")?.into());
    let Fusion { method, dense_k, other_k } = fusion(args)?;
    let (query, sparse) = (matrix(args, "query", limits::QUERY_TOKENS_MAX)?, sparse(args)?);
    let text = hybrid_text_if(args, flags)?;
    let filter = filter_if(args, flags, FILTER)?;
    let read = options_if(args, flags, HYBRID_OPTIONS)?;
    Ok(HybridDocuments {
        collection,
        query,
        sparse,
        text,
        k,
        filter,
        method,
        dense_k,
        sparse_k: other_k,
        options: search_options(args)?,
        read,
    })
}

/// Decodes a query of any lanes.
pub fn query(args: &mut ArgsReader<'_>) -> Result<QueryDocuments, ApiError> {
    let collection = collection(args)?;
    let spec = args.s32("QuerySpec")?;
    let (read, options) = (trailer(args)?, search_options(args)?);
    let mut query = document_query_of(proto::decode(spec)?)?;
    (query.0.collection, query.0.read, query.0.options) = (collection, read, options);
    Ok(query)
}
