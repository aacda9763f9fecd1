//! Operations on many points by a filter, and information about a collection. They are not of the interface, and have the same layout in every
//! family.
//!
//! ```text
//! info                       C
//! count                      C filter
//! facet                      C s16 key, u32 limit (0 = 10), filter
//! sample                     C u32 limit (0 = 10), filter, then nothing, 00, or 01 u64 seed
//! set_payload_by_filter, overwrite_payload_by_filter
//!                            C filter, ids, meta, keyTtl
//! delete_payload_keys_by_filter
//!                            C filter, ids, u32 n, (s16 key)*
//! clear_payload_by_filter    C filter, ids
//! ids = 00, or 01 u32 n, (u64 id)* with an empty filter
//! ```

use super::parts::{collection, filter, ids, key_ttl, keys};
use crate::op::{
    ApiError, ChangePayloads, CountPoints, FacetPoints, GetCollection, SamplePoints, SentIds, WriteOptions,
    check_ids, check_overwriting, listed,
};
use crate::tcp::reader::ArgsReader;
use crate::wire::embedded::{invalid, is_payload, payload_of};
use crate::wire::payloads::Decoding;
use nigh_shard::core::PayloadChange;

pub fn info(args: &mut ArgsReader<'_>) -> Result<GetCollection, ApiError> {
    Ok(GetCollection { collection: collection(args)? })
}

pub fn count(args: &mut ArgsReader<'_>) -> Result<CountPoints, ApiError> {
    Ok(CountPoints { collection: collection(args)?, filter: filter(args)? })
}

pub fn facet(args: &mut ArgsReader<'_>) -> Result<FacetPoints, ApiError> {
    let (collection, key, limit) = (collection(args)?, args.text16("key")?.to_owned(), limit(args)?);
    if key.is_empty() {
        return Err(invalid("key", "it is empty; it names the payload key whose values are counted"));
    }
    Ok(FacetPoints { collection, key, filter: filter(args)?, limit })
}

/// A sample; `seed` draws it where the arguments have none.
pub fn sample(args: &mut ArgsReader<'_>, seed: u64) -> Result<SamplePoints, ApiError> {
    let (collection, limit, filter) = (collection(args)?, limit(args)?, filter(args)?);
    let seed = if !args.is_empty() && args.flag("hasSeed")? { args.u64("seed")? } else { seed };
    Ok(SamplePoints { collection, filter, limit, seed })
}

fn limit(args: &mut ArgsReader<'_>) -> Result<usize, ApiError> {
    listed(Some(args.u32("limit")?.into()).filter(|limit| *limit != 0))
}

/// Merges a payload into many, or replaces them by it.
pub fn set_payload(
    args: &mut ArgsReader<'_>,
    overwrite: bool,
    decoding: &Decoding,
) -> Result<ChangePayloads, ApiError> {
    changed(args, |args, collection| {
        let json = args.s32("meta")?;
        if overwrite {
            check_overwriting(is_payload(json))?;
        }
        let (entries, key_ttl_ms) = (payload_of("meta", json, decoding.of(collection))?.0, key_ttl(args)?);
        Ok(match overwrite {
            true => PayloadChange::Overwrite { entries, key_ttl_ms },
            false => PayloadChange::Merge { entries, key_ttl_ms },
        })
    })
}

pub fn delete_payload_keys(args: &mut ArgsReader<'_>) -> Result<ChangePayloads, ApiError> {
    changed(args, |args, _| Ok(PayloadChange::DeleteKeys(keys(args)?)))
}

pub fn clear_payload(args: &mut ArgsReader<'_>) -> Result<ChangePayloads, ApiError> {
    changed(args, |_, _| Ok(PayloadChange::Clear))
}

fn changed(
    args: &mut ArgsReader<'_>,
    change: impl FnOnce(&mut ArgsReader<'_>, &str) -> Result<PayloadChange, ApiError>,
) -> Result<ChangePayloads, ApiError> {
    let (collection, filter) = (collection(args)?, filter(args)?);
    let mut named = None;
    if args.flag("ids")? {
        let count = args.u32("n")?;
        check_ids(count as usize)?;
        named = Some(ids(args, count)?);
    }
    let change = change(args, &collection)?;
    Ok(ChangePayloads {
        collection,
        filter,
        ids: named.map(SentIds::from),
        change,
        write: WriteOptions::default(),
    })
}
