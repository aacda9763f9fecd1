//! Parts that the layouts of several operations share.
//!
//! ```text
//! C             s8 collection
//! vec           u32 dim, f32*
//! sparse        u32 nnz, (u32 index, f32 value)*              ascending
//! filter, meta  s32 JSON, empty = none
//! options       u8 rc, u8 opa, u64 bound if rc = 3
//! trailer R     nothing; or u8 marker, u8 rc, u8 opa, u64 bound if bit 1 of the marker is set
//! cas           nothing, 00, or 01 u64 expectedVersion
//! keyTtl        nothing, 00, or 01 s32 JSON
//! S             nothing; or 4f s32 JSON                     the options of a search, last
//! V             nothing; or 56, the very last byte          the answer of a write has the version of the point
//! ```

use crate::limits;
use crate::op::{ApiError, ReadOptions, SearchOptions, WriteOptions};
use crate::tcp::reader::ArgsReader;
use crate::wire::embedded::{filter_of, invalid, payload_of};
use crate::wire::json::{IntMap, in_words};
use crate::wire::payloads::{Payloads, WirePayload};
use crate::wire::search_options::options_of;
use nigh_engine::filter::Predicate;
use serde::Deserialize;
use std::sync::Arc;

/// `C`; whether it is a name is for the dispatcher to say.
pub fn collection(args: &mut ArgsReader<'_>) -> Result<String, ApiError> {
    Ok(args.text8("collection")?.to_owned())
}

/// `sparse`, of finite values.
pub fn sparse(args: &mut ArgsReader<'_>) -> Result<Vec<(u32, f32)>, ApiError> {
    let count = args.u32("sparse")?;
    let count = args.fits(count.into(), 8, "sparse")?;
    let mut vector: Vec<(u32, f32)> = Vec::with_capacity(count);
    for _ in 0..count {
        let (index, value) = (args.u32("sparse")?, args.f32("sparse")?);
        if !value.is_finite() {
            return Err(invalid("sparse", format_args!("the value of {index} is not a finite number")));
        }
        if let Some((last, _)) = vector.last()
            && *last >= index
        {
            return Err(invalid(
                "sparse",
                format_args!("indices must be strictly ascending, but {index} follows {last}"),
            ));
        }
        vector.push((index, value));
    }
    Ok(vector)
}

/// `filter`, compiled; one that says nothing is none.
pub fn filter(args: &mut ArgsReader<'_>) -> Result<Option<Arc<Predicate>>, ApiError> {
    filter_of("filter", args.s32("filter")?)
}

/// A payload object; `null` and nothing at all are empty. Unknown keys inside tagged values are ignored, as in the binary bodies
/// of REST.
pub fn payload(
    args: &mut ArgsReader<'_>,
    field: &'static str,
    payloads: Payloads,
) -> Result<WirePayload, ApiError> {
    payload_of(field, args.s32(field)?, payloads)
}

/// `s32 JSON` of times to live by key.
pub fn key_ttl_map(args: &mut ArgsReader<'_>) -> Result<Vec<(String, i64)>, ApiError> {
    let json = args.s32("keyTtl")?;
    if json.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    Option::<IntMap>::deserialize(&mut deserializer)
        .and_then(|map| deserializer.end().map(|()| map.unwrap_or_default().0))
        .map_err(|error| invalid("keyTtl", in_words(&error)))
}

/// `(u64 id)*`, so many of them.
pub fn ids(args: &mut ArgsReader<'_>, count: u32) -> Result<Vec<u64>, ApiError> {
    let count = args.fits(count.into(), 8, "id")?;
    let ids = args.take(8 * count, "id")?.as_chunks::<8>().0;
    Ok(ids.iter().map(|bytes| u64::from_be_bytes(*bytes)).collect())
}

/// `u32 n, (s16 key)*`.
pub fn keys(args: &mut ArgsReader<'_>) -> Result<Vec<String>, ApiError> {
    let count = args.u32("n")?;
    let count = args.fits(count.into(), 2, "key")?;
    if count > limits::PAYLOAD_KEYS_MAX {
        let most = limits::PAYLOAD_KEYS_MAX;
        return Err(ApiError::invalid(format!(
            "a request may name at most {most} keys to delete, found {count}"
        )));
    }
    let mut keys = Vec::with_capacity(count);
    for _ in 0..count {
        keys.push(args.text16("key")?.to_owned());
    }
    Ok(keys)
}

/// `keyTtl`.
pub fn key_ttl(args: &mut ArgsReader<'_>) -> Result<Vec<(String, i64)>, ApiError> {
    if args.is_empty() || !args.flag("keyTtl")? {
        return Ok(Vec::new());
    }
    key_ttl_map(args)
}

/// `cas`: the conditions of a write.
pub fn cas(args: &mut ArgsReader<'_>) -> Result<WriteOptions, ApiError> {
    let expected_version = match !args.is_empty() && args.flag("cas")? {
        true => Some(args.u64("expectedVersion")?),
        false => None,
    };
    Ok(WriteOptions { write_consistency_factor: 0, expected_version })
}

/// Asks for the version of the point that is written.
const WITH_VERSION: u8 = b'V';

/// `V`: whether the answer of a write has the version of the point. Bytes behind a layout have always been ignored, and still are: only this
/// byte alone asks.
pub fn with_version(args: &ArgsReader<'_>) -> bool {
    args.remaining() == 1 && args.next_is(WITH_VERSION)
}

/// `options`.
pub fn options(args: &mut ArgsReader<'_>) -> Result<ReadOptions, ApiError> {
    let (read_consistency, on_partition_unavailable) =
        (args.u8("readConsistency")?, args.u8("onPartitionUnavailable")?);
    let max_staleness = if read_consistency == 3 { args.u64("maxStaleness")? } else { 0 };
    Ok(ReadOptions { read_consistency, on_partition_unavailable, max_staleness })
}

/// `options` when `flags` have `bit`.
pub fn options_if(args: &mut ArgsReader<'_>, flags: u8, bit: u8) -> Result<ReadOptions, ApiError> {
    if flags & bit == 0 { Ok(ReadOptions::default()) } else { options(args) }
}

/// `options` behind a marker, both of which may be missing.
pub fn marked_options(args: &mut ArgsReader<'_>) -> Result<ReadOptions, ApiError> {
    if args.is_empty() || !args.flag("options")? { Ok(ReadOptions::default()) } else { options(args) }
}

/// `filter` when `flags` have `bit`.
pub fn filter_if(args: &mut ArgsReader<'_>, flags: u8, bit: u8) -> Result<Option<Arc<Predicate>>, ApiError> {
    if flags & bit == 0 { Ok(None) } else { filter(args) }
}

/// `trailer R`.
pub fn trailer(args: &mut ArgsReader<'_>) -> Result<ReadOptions, ApiError> {
    if args.is_empty() {
        return Ok(ReadOptions::default());
    }
    let marker = args.u8("trailer")?;
    if !matches!(marker, 0 | 1 | 3) {
        return Err(invalid("trailer", format_args!("unknown marker {marker:#04x}")));
    }
    if marker == 0 {
        return Ok(ReadOptions::default());
    }
    let (read_consistency, on_partition_unavailable) =
        (args.u8("readConsistency")?, args.u8("onPartitionUnavailable")?);
    let max_staleness = if marker == 3 { args.u64("maxStaleness")? } else { 0 };
    Ok(ReadOptions { read_consistency, on_partition_unavailable, max_staleness })
}

/// Marks the options of a search, which stand behind everything else.
const SEARCH_OPTIONS: u8 = b'O';

/// `S`.
pub fn search_options(args: &mut ArgsReader<'_>) -> Result<SearchOptions, ApiError> {
    if args.is_empty() {
        return Ok(SearchOptions::default());
    }
    match args.u8("search options")? {
        SEARCH_OPTIONS => options_of("search options", args.s32("search options")?),
        marker => Err(invalid(
            "search options",
            format_args!("unknown marker {marker:#04x}; it must be {SEARCH_OPTIONS:#04x} or missing"),
        )),
    }
}
