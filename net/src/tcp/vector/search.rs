//! Searches: nearest neighbours, documents, groups, lanes.
//!
//! ```text
//! search, search_docs   flags C u32 k, vec, ?filter (bit 0), ?options (1), S
//! search_groups         C u32 k, u32 groupSize, u32 fetchK, s16 groupBy, vec, filter, nothing or 01 options, S
//! hybrid_search         flags C u32 k, fusion, vec, ?sparse (bit 1), ?filter (0), ?options (2), S
//! hybrid_text           flags C u32 k, fusion, vec, s32 text, ?filter (bit 0), ?options (1), S; bit 2 = global statistics, 3 = the text is
//!                       a phrase, 4 = its last word is the beginning of one
//! search_text           flags C u32 k, s32 text, ?filter (bit 0), ?options (1), S; bits 2 to 4 likewise
//! query                 C s32 QuerySpec, trailer R, S
//! fusion = u8 method (0 rrf, 1 weighted, 2 dbsf), f64 alpha, u32 rrfK, u32 denseK, u32 sparseK
//! ```
//! Statistics of text are always those of the whole collection. `hybrid_search` without a sparse vector is a search of one
//! lane, like that of an empty one.

use crate::op::{
    ApiError, GroupPoints, HybridPoints, QueryPoints, SearchPoints, TextPoints, ZeroAlpha, fusion_method,
    text_source,
};
use crate::tcp::reader::{ArgsReader, check_flags};
use crate::tcp::vector::parts::{
    collection, filter, filter_if, marked_options, options_if, search_options, sparse, trailer,
};
use crate::wire::embedded::invalid;
use crate::wire::proto;
use crate::wire::query::query_of;
use nigh_engine::query::{Method, Source};

pub(super) const FILTER: u8 = 1;
const OPTIONS: u8 = 1 << 1;
const GLOBAL_IDF: u8 = 1 << 2;
const PHRASE: u8 = 1 << 3;
const PREFIX: u8 = 1 << 4;
/// What operations that search by words may have.
const WORDS: u8 = FILTER | OPTIONS | GLOBAL_IDF | PHRASE | PREFIX;
pub(super) const HYBRID_SPARSE: u8 = 1 << 1;
pub(super) const HYBRID_OPTIONS: u8 = 1 << 2;

const HYBRID_TEXT: u8 = 1 << 3;
const HYBRID_PHRASE: u8 = 1 << 4;
const HYBRID_PREFIX: u8 = 1 << 5;
/// The flags of a text in a hybrid search of a collection of named spaces or of a multi-vector collection.
pub(super) const HYBRID_WORDS: u8 = HYBRID_TEXT | HYBRID_PHRASE | HYBRID_PREFIX;

/// Reads the text of a hybrid search, if bit 3 is set.
pub(super) fn hybrid_text_if(args: &mut ArgsReader<'_>, flags: u8) -> Result<Option<Source>, ApiError> {
    let has = |bit| flags & bit != 0;
    match has(HYBRID_TEXT) {
        true => text_source(args.text32("text")?, has(HYBRID_PHRASE), has(HYBRID_PREFIX)).map(Some),
        false if has(HYBRID_WORDS) => {
            Err(invalid("flags", format!("bits 4 (phrase) and 5 (prefix) need bit 3 (text), found {flags}")))
        }
        false => Ok(None),
    }
}

pub fn search(args: &mut ArgsReader<'_>, with_rows: bool) -> Result<SearchPoints, ApiError> {
    let flags = args.u8("flags")?;
    check_flags(flags, FILTER | OPTIONS)?;
    Ok(SearchPoints {
        collection: collection(args)?,
        k: args.u32("k")?.into(),
        vector: args.vector("vector")?,
        filter: filter_if(args, flags, FILTER)?,
        with_rows,
        read: options_if(args, flags, OPTIONS)?,
        options: search_options(args)?,
    })
}

pub fn groups(args: &mut ArgsReader<'_>) -> Result<GroupPoints, ApiError> {
    Ok(GroupPoints {
        collection: collection(args)?,
        k: args.u32("k")?.into(),
        group_size: args.u32("groupSize")?.into(),
        fetch_k: args.u32("fetchK")?.into(),
        group_by: args.text16("groupBy")?.to_owned(),
        vector: args.vector("vector")?,
        filter: filter(args)?,
        read: marked_options(args)?,
        options: search_options(args)?,
    })
}

/// How lanes are fused, and how many hits each contributes.
pub(super) struct Fusion {
    pub(super) method: Method,
    pub(super) dense_k: i64,
    pub(super) other_k: i64,
}

pub(super) fn fusion(args: &mut ArgsReader<'_>) -> Result<Fusion, ApiError> {
    let name = match args.u8("method")? {
        0 => "rrf",
        1 => "weighted",
        2 => "dbsf",
        code => return Err(invalid("method", format_args!("unknown code {code}"))),
    };
    let (alpha, rrf_k) = (args.f64("alpha")?, args.u32("rrfK")?);
    if alpha.is_nan() {
        return Err(invalid("alpha", "not a number"));
    }
    Ok(Fusion {
        // Every request has the number, set or not.
        method: fusion_method(name, Some(alpha), ZeroAlpha::Unset, Some(rrf_k.into()))?,
        dense_k: args.u32("denseK")?.into(),
        other_k: args.u32("sparseK")?.into(),
    })
}

pub fn hybrid(args: &mut ArgsReader<'_>) -> Result<HybridPoints, ApiError> {
    let flags = args.u8("flags")?;
    check_flags(flags, FILTER | HYBRID_SPARSE | HYBRID_OPTIONS)?;
    let (collection, k) = (collection(args)?, args.u32("k")?.into());
    let Fusion { method, dense_k, other_k } = fusion(args)?;
    let dense = args.vector("vector")?;
    let sparse = if flags & HYBRID_SPARSE != 0 { sparse(args)? } else { Vec::new() };
    let filter = filter_if(args, flags, FILTER)?;
    let read = options_if(args, flags, HYBRID_OPTIONS)?;
    let other = Source::Sparse(sparse);
    let options = search_options(args)?;
    Ok(HybridPoints { collection, dense, other, k, filter, method, dense_k, other_k, options, read })
}

fn words(args: &mut ArgsReader<'_>, flags: u8) -> Result<Source, ApiError> {
    text_source(args.text32("text")?, flags & PHRASE != 0, flags & PREFIX != 0)
}

pub fn hybrid_text(args: &mut ArgsReader<'_>) -> Result<HybridPoints, ApiError> {
    let flags = args.u8("flags")?;
    check_flags(flags, WORDS)?;
    let (collection, k) = (collection(args)?, args.u32("k")?.into());
    let Fusion { method, dense_k, other_k } = fusion(args)?;
    let dense = args.vector("vector")?;
    let other = words(args, flags)?;
    let filter = filter_if(args, flags, FILTER)?;
    let read = options_if(args, flags, OPTIONS)?;
    let options = search_options(args)?;
    Ok(HybridPoints { collection, dense, other, k, filter, method, dense_k, other_k, options, read })
}

pub fn text(args: &mut ArgsReader<'_>) -> Result<TextPoints, ApiError> {
    let flags = args.u8("flags")?;
    check_flags(flags, WORDS)?;
    Ok(TextPoints {
        collection: collection(args)?,
        k: args.u32("k")?.into(),
        text: words(args, flags)?,
        filter: filter_if(args, flags, FILTER)?,
        read: options_if(args, flags, OPTIONS)?,
        options: search_options(args)?,
    })
}

/// A query of any lanes.
pub fn query(args: &mut ArgsReader<'_>) -> Result<QueryPoints, ApiError> {
    let collection = collection(args)?;
    let spec = args.s32("QuerySpec")?;
    let (read, options) = (trailer(args)?, search_options(args)?);
    Ok(QueryPoints { collection, read, options, ..query_of(proto::decode(spec)?)? })
}
