//! Operations on points by id: writes, deletes, reads, changes of payloads, staging.
//!
//! ```text
//! insert, upsert, insert_if_absent   flags C u64 id, vec, ?u64 ttlMs (bit 0), ?meta (1), ?sparse (2),
//!                                    ?u64 expectedVersion (4), ?s32 keyTtl JSON (5); bit 7 asks for the version in the answer;
//!                                    bits 3, 6 are between nodes
//! delete                             C u64 id, cas
//! exists                             C u64 id
//! get                                C u64 id, u8 flags (bit 0 vector, 1 payload), trailer R
//! get_batch                          C u8 flags, u32 n, (u64 id)*
//! set_payload, overwrite_payload     C u64 id, meta, keyTtl, cas
//! delete_payload_keys                C u64 id, u32 n, (s16 key)*, cas
//! clear_payload                      C u64 id, cas
//! delete_by_filter                   C filter, then nothing, 00, or 01 u32 n, (u64 id)* with an empty filter
//! bulk_stage                         C u32 dim, u32 n, (u64 id, f32 * dim)*
//! bulk_stage_payload                 as above, then meta * n, and nothing behind it
//! bulk_build                         C u32 workers, 0 = all
//! operate                            C u64 id, s16 payloadKey, u8 casPresent, ?u64 expectedVersion, s32 operateArgs
//! ```

use crate::op::{
    ApiError, BatchBuilder, BuildStaged, ChangePayload, DeletePoint, DeletePoints, GetPoints, OperatePoint,
    ReadOptions, SentIds, StagePoints, WriteOptions, WritePoints, check_call, check_ids,
};
use crate::tcp::reader::{ArgsReader, check_flags};
use crate::tcp::vector::parts::{
    cas, collection, filter, ids, key_ttl, key_ttl_map, keys, payload, sparse, trailer,
};
use crate::wire::embedded::invalid;
use crate::wire::payloads::{Decoding, encode_point_row, encode_row};
use bytes::Bytes;
use nigh_engine::collection::WriteMode;
use nigh_engine::kv::operate::OperateError;
use nigh_shard::core::{PayloadChange, PointFields, Vectors, WriteBatch};

const TTL: u8 = 1;
const META: u8 = 1 << 1;
const SPARSE: u8 = 1 << 2;
const EXPECTED_VERSION: u8 = 1 << 4;
const KEY_TTL: u8 = 1 << 5;
const WITH_VERSION: u8 = 1 << 7;
const WITH_VECTOR: u8 = 1;
const WITH_PAYLOAD: u8 = 1 << 1;

/// A write of one point as [`WritePoints`] carries it out, and whether its answer has the version.
///
/// An insert that is only wanted when the point is absent is an upsert that expects no version: no conflict means it was
/// inserted.
pub fn write(
    args: &mut ArgsReader<'_>,
    how: Write,
    decoding: &Decoding,
) -> Result<(WritePoints, bool), ApiError> {
    let flags = args.u8("flags")?;
    check_flags(flags, TTL | META | SPARSE | EXPECTED_VERSION | KEY_TTL | WITH_VERSION)?;
    let has = |bit| flags & bit != 0;
    let collection = collection(args)?;
    let payloads = decoding.of(&collection);
    let id = args.u64("id")?;
    let vector = args.vector("vector")?;
    let ttl_ms = if has(TTL) { args.ttl_ms()? } else { 0 };
    let meta = if has(META) { payload(args, "meta", payloads)? } else { Default::default() };
    let sparse = if has(SPARSE) { sparse(args)? } else { Vec::new() };
    let sent = if has(EXPECTED_VERSION) { Some(args.u64("expectedVersion")?) } else { None };
    let key_ttl_ms = if has(KEY_TTL) { key_ttl_map(args)? } else { Vec::new() };
    let (id, row) = encode_point_row(&id.into(), meta, None, sparse, &key_ttl_ms, payloads)?;
    let (mode, expected_version) = match how {
        Write::Insert => (WriteMode::Insert, sent),
        Write::Upsert => (WriteMode::Upsert, sent),
        Write::InsertIfAbsent => (WriteMode::Upsert, Some(0)),
    };
    let mut batch = BatchBuilder::new();
    // Checked: at most the longest ttl, which fits.
    batch.push(vector, PointFields { id, row, ttl_ms: ttl_ms as i64, expected_version });
    Ok((WritePoints { collection, batch: batch.finish(mode) }, has(WITH_VERSION)))
}

/// Which write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Fails when the point is there.
    Insert,
    /// Replaces.
    Upsert,
    /// Does nothing when the point is there.
    InsertIfAbsent,
}

pub fn delete(args: &mut ArgsReader<'_>) -> Result<DeletePoint, ApiError> {
    Ok(DeletePoint { collection: collection(args)?, id: args.u64("id")?.into(), write: cas(args)? })
}

/// A read that returns nothing of the point but that it is there.
pub fn exists(args: &mut ArgsReader<'_>) -> Result<GetPoints, ApiError> {
    let (collection, id) = (collection(args)?, args.u64("id")?);
    let read = ReadOptions::default();
    Ok(GetPoints { collection, ids: vec![id].into(), with_vector: false, with_payload: false, read })
}

pub fn get(args: &mut ArgsReader<'_>) -> Result<GetPoints, ApiError> {
    let (collection, id, flags) = (collection(args)?, args.u64("id")?, args.u8("flags")?);
    check_flags(flags, WITH_VECTOR | WITH_PAYLOAD)?;
    let (with_vector, with_payload) = (flags & WITH_VECTOR != 0, flags & WITH_PAYLOAD != 0);
    Ok(GetPoints { collection, ids: vec![id].into(), with_vector, with_payload, read: trailer(args)? })
}

pub fn get_batch(args: &mut ArgsReader<'_>) -> Result<GetPoints, ApiError> {
    let (collection, flags, count) = (collection(args)?, args.u8("flags")?, args.u32("n")?);
    check_flags(flags, WITH_VECTOR | WITH_PAYLOAD)?;
    Ok(GetPoints {
        collection,
        ids: ids(args, count)?.into(),
        with_vector: flags & WITH_VECTOR != 0,
        with_payload: flags & WITH_PAYLOAD != 0,
        read: ReadOptions::default(),
    })
}

/// Merges a payload, or replaces it.
pub fn set_payload(
    args: &mut ArgsReader<'_>,
    overwrite: bool,
    decoding: &Decoding,
) -> Result<ChangePayload, ApiError> {
    let (collection, id) = (collection(args)?, args.u64("id")?);
    let entries = payload(args, "meta", decoding.of(&collection))?.0;
    let key_ttl_ms = key_ttl(args)?;
    let change = match overwrite {
        true => PayloadChange::Overwrite { entries, key_ttl_ms },
        false => PayloadChange::Merge { entries, key_ttl_ms },
    };
    Ok(ChangePayload { collection, id: id.into(), change, write: cas(args)? })
}

pub fn delete_payload_keys(args: &mut ArgsReader<'_>) -> Result<ChangePayload, ApiError> {
    let (collection, id) = (collection(args)?, args.u64("id")?);
    let change = PayloadChange::DeleteKeys(keys(args)?);
    Ok(ChangePayload { collection, id: id.into(), change, write: cas(args)? })
}

pub fn clear_payload(args: &mut ArgsReader<'_>) -> Result<ChangePayload, ApiError> {
    let (collection, id) = (collection(args)?, args.u64("id")?);
    Ok(ChangePayload { collection, id: id.into(), change: PayloadChange::Clear, write: cas(args)? })
}

pub fn delete_by_filter(args: &mut ArgsReader<'_>) -> Result<DeletePoints, ApiError> {
    let (collection, filter) = (collection(args)?, filter(args)?);
    let mut named = None;
    if !args.is_empty() && args.flag("ids")? {
        let count = args.u32("n")?;
        check_ids(count as usize)?;
        named = Some(ids(args, count)?);
    }
    Ok(DeletePoints { collection, filter, ids: named.map(SentIds::from), write: WriteOptions::default() })
}

/// Points to be staged; their rows are copied as they lie, ids and vectors together.
pub fn stage(
    args: &mut ArgsReader<'_>,
    with_payloads: bool,
    decoding: &Decoding,
) -> Result<StagePoints, ApiError> {
    let (collection, dim, count) = (collection(args)?, args.u32("dim")?, args.u32("n")?);
    let payloads = decoding.of(&collection);
    if dim == 0 && count > 0 {
        return Err(invalid("dim", "must be positive"));
    }
    let row_bytes = usize::try_from(8 + 4 * u64::from(dim)).map_err(|_| invalid("dim", dim))?;
    let count = args.fits(count.into(), row_bytes, "point")?;
    let rows = args.take(count * row_bytes, "point")?;
    let mut points = Vec::with_capacity(count);
    for row in rows.chunks_exact(row_bytes) {
        let id = row.first_chunk().map_or(0, |id| u64::from_be_bytes(*id));
        let (id, row) = match with_payloads {
            true => encode_row(&id.into(), payload(args, "meta", payloads)?, None, &[], payloads)?,
            false => (id, Vec::new()),
        };
        points.push(PointFields { id, row, ttl_ms: 0, expected_version: None });
    }
    if with_payloads && !args.is_empty() {
        return Err(invalid("args", format_args!("{} bytes behind the last payload", args.remaining())));
    }
    let vectors = Vectors::BigEndianRows(Bytes::copy_from_slice(rows));
    let batch = WriteBatch { mode: WriteMode::Insert, dim: dim as usize, vectors, points };
    Ok(StagePoints { collection, batch })
}

/// A build, answered when it is done.
pub fn build(args: &mut ArgsReader<'_>) -> Result<BuildStaged, ApiError> {
    let (collection, workers) = (collection(args)?, args.u32("workers")?);
    Ok(BuildStaged { collection, workers: workers as usize, wait: true })
}

/// A call on a record that lies in the payload of a point. It is decoded here to be refused early, and travels as it came: what was
/// decoded borrows from it.
///
/// # Errors
/// What [`Call::decode_in_payload`] says; `operate call arguments invalid` for an empty name.
pub fn operate(args: &mut ArgsReader<'_>) -> Result<OperatePoint, ApiError> {
    let (collection, id) = (args.text8("collection")?.to_owned(), args.u64("id")?);
    let key = args.text16("payloadKey")?.to_owned();
    let expected_version = if args.flag("casPresent")? { Some(args.u64("expectedVersion")?) } else { None };
    if collection.is_empty() {
        return Err(ApiError::invalid(OperateError::ArgumentsInvalid.to_string()));
    }
    let call = args.s32("operateArgs")?;
    check_call(&key, call)?;
    let write = WriteOptions { expected_version, ..WriteOptions::default() };
    Ok(OperatePoint { collection, id: id.into(), key, call: call.to_vec(), write })
}
