//! Operations on collections of named spaces whose layouts are not those of dense collections.
//!
//! ```text
//! create_collection   C s32 JSON of the spaces by name, then nothing or u32 partitions, then nothing or s32 JSON of the
//!                     collection keys
//! add_space           C s16 space, s32 JSON of its configuration
//! drop_space          C s16 space
//! get_config          C trailer R; the result is s32 JSON of the spaces by name, then s32 JSON of the collection keys if any is set
//! insert              C u64 id, u32 n, (s16 space, vec)*, u64 ttlMs (0 = none), meta,
//!                     then nothing or 02 u32 n, (s16 space, sparse)*, then keyTtl, then cas, then V
//! update_vectors      C u64 id, u32 n, (s16 space, vec)*, u32 n, (s16 space, sparse)*, u32 n, (s16 space to delete)*, then cas
//! search, search_docs C s16 space, u32 k, vec, filter, trailer R, S
//! search_mmr          C s16 space, u32 k, f64 lambda (0 = not given), u32 fetchK, vec, filter, trailer R, S
//! sparse_search       C s16 space, u32 k, sparse, filter, trailer R, S
//! hybrid_search       flags C s16 denseSpace, s16 sparseSpace, u32 k, fusion, vec, sparse, ?s32 text (bit 3), ?filter (0), ?options (2), S;
//!                     bit 4 = phrase, bit 5 = the last word is a prefix
//! query               C s32 QuerySpec, trailer R, S
//! scroll              C u32 limit, filter, then nothing or marker, ?u64 afterId (bit 0), ?u8 rc, u8 opa (1), ?u64 bound (3), ?order (2)
//! ```
//! `delete`, `delete_by_filter`, `exists`, `get`, `get_batch`, `operate` and changes of payloads are as in dense collections. Bit 1 of the flags of
//! `hybrid_search` says that the sparse vector is not empty; the vector is there anyway, and says so itself. `order` is that of
//! a dense collection behind its marker.

use super::parts::{
    cas, collection, filter, filter_if, key_ttl, options_if, payload, search_options, sparse, trailer,
    with_version,
};
use super::search::{FILTER, Fusion, HYBRID_OPTIONS, HYBRID_SPARSE, HYBRID_WORDS, fusion, hybrid_text_if};
use crate::op::{
    AddSpace, ApiError, CreateCollection, Diversity, DropSpace, GetNamedConfig, HybridNamed, NamedPoint,
    QueryNamed, SearchNamed, UpdateVectors, UpsertNamed, check_partitions_of_one,
};
use crate::tcp::reader::{ArgsReader, check_flags};
use crate::wire::config::{SpaceConfig, SpaceConfigs, WholeKeys};
use crate::wire::embedded::invalid;
use crate::wire::json::in_words;
use crate::wire::payloads::{Decoding, encode_row};
use crate::wire::proto;
use crate::wire::query::named_query_of;
use nigh_engine::collection::SPACES_MAX;
use nigh_engine::query::Source;
use nigh_engine::quoted::quoted;
use nigh_shard::core::PointFields;

/// The marker before the sparse vectors of a point.
const SPARSE_SPACES: u8 = 2;
/// Bytes of the name of a space at least: its length stands before it.
const NAME: usize = 2;
/// Bytes of a name with a vector at least: the dimension, or the number of components.
const NAMED_VECTOR: usize = NAME + 4;

/// A collection to be made.
pub fn create(args: &mut ArgsReader<'_>) -> Result<CreateCollection, ApiError> {
    let (collection, json) = (collection(args)?, args.s32("spaces")?);
    let spaces: SpaceConfigs =
        serde_json::from_slice(json).map_err(|error| invalid("spaces", in_words(&error)))?;
    if !args.is_empty() {
        check_partitions_of_one(Some(args.u32("partitions")?.into()))?;
    }
    let mut whole = WholeKeys::default();
    if !args.is_empty() {
        let json = args.s32("collectionKeys")?.trim_ascii();
        if !json.is_empty() {
            whole =
                serde_json::from_slice(json).map_err(|error| invalid("collectionKeys", in_words(&error)))?;
        }
    }
    Ok(CreateCollection { collection, config: spaces.into_config(whole)?.into() })
}

/// A space to be added.
pub fn add_space(args: &mut ArgsReader<'_>) -> Result<AddSpace, ApiError> {
    let (collection, space) = (collection(args)?, args.text16("space")?);
    let json = args.s32("config")?;
    let config: SpaceConfig =
        serde_json::from_slice(json).map_err(|error| invalid("config", in_words(&error)))?;
    config.into_added(collection, space.to_owned())
}

/// A space to be dropped.
pub fn drop_space(args: &mut ArgsReader<'_>) -> Result<DropSpace, ApiError> {
    Ok(DropSpace { collection: collection(args)?, space: args.text16("space")?.to_owned() })
}

pub fn get_config(args: &mut ArgsReader<'_>) -> Result<GetNamedConfig, ApiError> {
    Ok(GetNamedConfig { collection: collection(args)?, read: trailer(args)? })
}

/// A write of one point, and whether its answer has the version.
pub fn upsert(args: &mut ArgsReader<'_>, decoding: &Decoding) -> Result<(UpsertNamed, bool), ApiError> {
    let (collection, id) = (collection(args)?, args.u64("id")?);
    let payloads = decoding.of(&collection);
    let dense = by_space(args, NAMED_VECTOR, |args| Ok(args.vector("vector")?))?;
    let ttl_ms = args.ttl_ms()?;
    let meta = payload(args, "meta", payloads)?;
    let sparse = match args.next_is(SPARSE_SPACES) {
        true => {
            args.u8("sparse")?;
            by_space(args, NAMED_VECTOR, sparse)?
        }
        false => Vec::new(),
    };
    let key_ttl_ms = key_ttl(args)?;
    let write = cas(args)?;
    let (id, row) = encode_row(&id.into(), meta, None, &key_ttl_ms, payloads)?;
    // Checked: at most the longest ttl, which fits.
    let fields = PointFields { id, row, ttl_ms: ttl_ms as i64, expected_version: write.expected_version };
    let points = vec![NamedPoint { fields, dense, sparse }];
    Ok((UpsertNamed { collection, points, write }, with_version(args)))
}

/// A change of the vectors of one point.
pub fn update_vectors(args: &mut ArgsReader<'_>) -> Result<UpdateVectors, ApiError> {
    let (collection, id) = (collection(args)?, args.u64("id")?);
    let dense = by_space(args, NAMED_VECTOR, |args| Ok(args.vector("vector")?))?;
    let sparse = by_space(args, NAMED_VECTOR, sparse)?;
    let delete = by_space(args, NAME, |_| Ok(()))?.into_iter().map(|(name, ())| name).collect();
    Ok(UpdateVectors { collection, id: id.into(), dense, sparse, delete, write: cas(args)? })
}

/// `u32 n, (s16 space, value)*`, each space at most once; a name and its value take `least` bytes at least.
fn by_space<T>(
    args: &mut ArgsReader<'_>,
    least: usize,
    mut value: impl FnMut(&mut ArgsReader<'_>) -> Result<T, ApiError>,
) -> Result<Vec<(String, T)>, ApiError> {
    let count = args.u32("n")?;
    let count = args.fits(count.into(), least, "space")?;
    if count > SPACES_MAX {
        return Err(invalid("space", format_args!("a point names {count} spaces, at most {SPACES_MAX}")));
    }
    let mut spaces: Vec<(String, T)> = Vec::with_capacity(count);
    for _ in 0..count {
        let name = args.text16("space")?;
        if spaces.iter().any(|(other, _)| other == name) {
            return Err(invalid("space", format_args!("{} is named twice", quoted(name))));
        }
        spaces.push((name.to_owned(), value(args)?));
    }
    Ok(spaces)
}

/// A search in a dense space.
pub fn search(args: &mut ArgsReader<'_>, with_rows: bool) -> Result<SearchNamed, ApiError> {
    let (collection, space, k) = (collection(args)?, args.text16("space")?.to_owned(), args.u32("k")?.into());
    let source = Source::Dense(args.vector("vector")?);
    let (filter, read, options) = (filter(args)?, trailer(args)?, search_options(args)?);
    Ok(SearchNamed { collection, space, source, k, filter, with_rows, diversity: None, options, read })
}

/// A search of a dense space for diverse results (MMR).
pub fn mmr(args: &mut ArgsReader<'_>) -> Result<SearchNamed, ApiError> {
    let (collection, space, k) = (collection(args)?, args.text16("space")?.to_owned(), args.u32("k")?.into());
    let (lambda, fetch_k) = (args.f64("lambda")?, args.u32("fetchK")?.into());
    // 0 is not a valid weight and stands for the default.
    let lambda = if lambda == 0.0 { Diversity::LAMBDA_DEFAULT } else { lambda };
    let source = Source::Dense(args.vector("vector")?);
    let (filter, read, options) = (filter(args)?, trailer(args)?, search_options(args)?);
    let diversity = Some(Diversity { lambda, fetch_k });
    Ok(SearchNamed { collection, space, source, k, filter, with_rows: true, diversity, options, read })
}

/// A search in a sparse space.
pub fn sparse_search(args: &mut ArgsReader<'_>) -> Result<SearchNamed, ApiError> {
    let (collection, space, k) = (collection(args)?, args.text16("space")?.to_owned(), args.u32("k")?.into());
    let source = Source::Sparse(sparse(args)?);
    let (filter, read, options) = (filter(args)?, trailer(args)?, search_options(args)?);
    Ok(SearchNamed { collection, space, source, k, filter, with_rows: false, diversity: None, options, read })
}

pub fn hybrid(args: &mut ArgsReader<'_>) -> Result<HybridNamed, ApiError> {
    let flags = args.u8("flags")?;
    check_flags(flags, FILTER | HYBRID_SPARSE | HYBRID_OPTIONS | HYBRID_WORDS)?;
    let collection = collection(args)?;
    let (dense_space, sparse_space) =
        (args.text16("denseSpace")?.to_owned(), args.text16("sparseSpace")?.to_owned());
    let k = args.u32("k")?.into();
    let Fusion { method, dense_k, other_k } = fusion(args)?;
    let (dense, sparse) = (args.vector("vector")?, sparse(args)?);
    let text = hybrid_text_if(args, flags)?;
    let filter = filter_if(args, flags, FILTER)?;
    let read = options_if(args, flags, HYBRID_OPTIONS)?;
    Ok(HybridNamed {
        collection,
        dense: (dense_space, dense),
        sparse: (sparse_space, sparse),
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

/// A query of any lanes.
pub fn query(args: &mut ArgsReader<'_>) -> Result<QueryNamed, ApiError> {
    let collection = collection(args)?;
    let spec = args.s32("QuerySpec")?;
    let (read, options) = (trailer(args)?, search_options(args)?);
    let mut named = named_query_of(proto::decode(spec)?)?;
    (named.0.collection, named.0.read, named.0.options) = (collection, read, options);
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::WriteOptions;
    use crate::tcp::hex::hex;

    #[test]
    fn a_change_of_vectors_is_read_part_by_part() {
        let whole = "04646f6373 0000000000000005 00000001 000161 00000002 3f800000 c0000000 00000001 000173 00000001 00000003 3f000000 \
                     00000002 000162 000163 01 0000000000000007";
        let read = |bytes: &[u8]| update_vectors(&mut ArgsReader::new(bytes)).map_err(|error| error.message);
        let write = WriteOptions { write_consistency_factor: 0, expected_version: Some(7) };
        let expected = UpdateVectors {
            collection: "docs".to_owned(),
            id: 5.into(),
            dense: vec![("a".to_owned(), vec![1.0, -2.0])],
            sparse: vec![("s".to_owned(), vec![(3, 0.5)])],
            delete: vec!["b".to_owned(), "c".to_owned()],
            write,
        };
        let whole = hex(whole);
        assert_eq!(read(&whole), Ok(expected));
        // Without the condition it may end.
        let without = &whole[..whole.len() - 9];
        assert_eq!(read(without).map(|change| change.write), Ok(WriteOptions::default()));
        for cut in (0..whole.len()).filter(|cut| *cut != without.len()) {
            assert!(read(&whole[..cut]).is_err(), "cut at {cut}");
        }
        let twice = hex("04646f6373 0000000000000005 00000000 00000000 00000002 000162 000162");
        assert_eq!(read(&twice), Err("space: \"b\" is named twice".to_owned()));
    }
}
