//! Queries over keys and the indexes they use: arguments and results.
//!
//! ```text
//! kv_query            u8 flags (1 filter, 2 cursor, 4 scan), s8 index, u16 limit, u8 return (0 keys, 1 values, 2 records),
//!                     u8 consistency (0..2), s32 JSON if filter, s32 cursor if cursor
//!                     -> u32 n, (s16 key, u8 hasValue, s32 value if it has one)*, cursor
//! cursor              u16 n, s8 sharedPrefix, (u32 group, u8 flags (1 more, 2 uses the prefix), s16 suffix)*
//! __kv_index_set__    definition, u8 enabled
//! __kv_index_list__   -> u16 n, (definition, u8 enabled, u8 ready)*
//! definition          s8 name, s8 keyPrefix, s8 path, u8 kind (0 scalar, 1 count)
//! ```
//! Nothing may follow arguments. A cursor of ours has one group, whose key is the last one that was looked at; without groups it is
//! the end.

use crate::op::{ApiError, KvQueryOp};
use crate::tcp::reader::{ArgsReader, check_flags};
use crate::wire::embedded::invalid;
use crate::wire::filter::WireFilter;
use crate::wire::json::in_words;
use nigh_engine::filter::{Node, Predicate};
use nigh_engine::kv::RecordFilter;
use nigh_shard::kv::indexes::IndexDefinition;
use nigh_shard::kv::query::{KeyPage, KeyQuery, Returns};

const FILTER: u8 = 1;
const CURSOR: u8 = 2;
const SCAN: u8 = 4;
/// Of a group of a cursor.
const MORE: u8 = 1;
const SHARED: u8 = 2;

/// Most rows of a page.
const LIMIT_MAX: u16 = 1_000;
/// Longest filter in bytes, its most nodes and levels.
const FILTER_BYTES_MAX: usize = 64 << 10;
const FILTER_NODES_MAX: usize = 256;
const FILTER_DEPTH_MAX: usize = 32;

/// A request about keys as a whole.
#[derive(Debug)]
pub enum KvQueryRequest {
    /// A page of rows.
    Query(Box<KeyQuery>),
    /// The page behind the last one, which has no rows.
    Finished,
    /// Defines an index, or drops it.
    SetIndex {
        /// Of which only the name counts for a drop.
        definition: IndexDefinition,
        /// Not to be dropped.
        enabled: bool,
    },
    /// All indexes.
    ListIndexes,
}

/// Decodes arguments.
///
/// # Errors
/// A bad request that names the part.
pub fn decode(op: KvQueryOp, args: &[u8]) -> Result<KvQueryRequest, ApiError> {
    let mut args = ArgsReader::new(args);
    let request = match op {
        KvQueryOp::Query => query(&mut args)?,
        KvQueryOp::IndexSet => {
            let definition = IndexDefinition {
                name: args.text8("name")?.to_owned(),
                prefix: args.s8("keyPrefix")?.to_vec(),
                path: args.text8("path")?.to_owned(),
                is_count: one_of(args.u8("kind")?, 1, "kind")? == 1,
            };
            let enabled = one_of(args.u8("enabled")?, 1, "enabled")? == 1;
            KvQueryRequest::SetIndex { definition, enabled }
        }
        KvQueryOp::IndexList => KvQueryRequest::ListIndexes,
    };
    match args.remaining() {
        0 => Ok(request),
        more => Err(ApiError::invalid(format!("{more} bytes behind the arguments"))),
    }
}

fn one_of(value: u8, most: u8, field: &str) -> Result<u8, ApiError> {
    if value > most {
        return Err(invalid(field, format_args!("{value} is not one of 0 to {most}")));
    }
    Ok(value)
}

fn query(args: &mut ArgsReader<'_>) -> Result<KvQueryRequest, ApiError> {
    let flags = args.u8("flags")?;
    check_flags(flags, FILTER | CURSOR | SCAN)?;
    let index = args.text8("index")?;
    let limit = args.u16("limit")?;
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(invalid("limit", format_args!("{limit} is not one of 1 to {LIMIT_MAX}")));
    }
    let returns = match one_of(args.u8("return")?, 2, "return")? {
        0 => Returns::Keys,
        1 => Returns::Values,
        _ => Returns::Records,
    };
    // One node has nobody to be consistent with.
    one_of(args.u8("consistency")?, 2, "consistency")?;
    let filter = if flags & FILTER != 0 { filter(args.s32("filter")?)? } else { None };
    let after = match flags & CURSOR != 0 {
        true => match cursor(args.s32("cursor")?)? {
            Some(after) => Some(after),
            None => return Ok(KvQueryRequest::Finished),
        },
        false => None,
    };
    Ok(KvQueryRequest::Query(Box::new(KeyQuery {
        index: (!index.is_empty()).then(|| index.to_owned()),
        scans: flags & SCAN != 0,
        filter,
        after,
        limit: limit.into(),
        returns,
    })))
}

fn filter(json: &[u8]) -> Result<Option<RecordFilter>, ApiError> {
    if json.len() > FILTER_BYTES_MAX {
        return Err(invalid("filter", format_args!("longer than {FILTER_BYTES_MAX} bytes")));
    }
    if json.trim_ascii().is_empty() {
        return Ok(None);
    }
    let sent: Option<WireFilter> =
        serde_json::from_slice(json).map_err(|error| invalid("filter", in_words(&error)))?;
    let Some(WireFilter(node)) = sent.filter(|sent| sent.0 != Node::default()) else { return Ok(None) };
    let (nodes, depth) = extent(&node);
    if nodes > FILTER_NODES_MAX || depth > FILTER_DEPTH_MAX {
        let most = format!("{FILTER_NODES_MAX} nodes in {FILTER_DEPTH_MAX} levels");
        return Err(invalid("filter", format_args!("{nodes} nodes in {depth} levels, at most {most}")));
    }
    let refuse = |error: &dyn std::error::Error| ApiError::invalid(error.to_string());
    let predicate = Predicate::compile(&node).map_err(|error| refuse(&error))?;
    RecordFilter::new(predicate).map(Some).map_err(|error| refuse(&error))
}

/// Nodes and levels.
fn extent(node: &Node) -> (usize, usize) {
    let (nodes, depth) =
        node.children().map(extent).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1.max(one.1)));
    (nodes + 1, depth + 1)
}

/// The key that a cursor stands at; `None` at the end.
fn cursor(bytes: &[u8]) -> Result<Option<Vec<u8>>, ApiError> {
    let malformed = || ApiError::invalid("malformed kv_query cursor");
    let read = || {
        let mut reader = ArgsReader::new(bytes);
        let groups = reader.u16("cursor")?;
        if groups > 1 {
            return Ok(None);
        }
        let shared = reader.s8("cursor")?;
        let mut after = None;
        for _ in 0..groups {
            let (group, flags) = (reader.u32("cursor")?, reader.u8("cursor")?);
            let prefix = if flags & SHARED != 0 { shared } else { &[] };
            let key = [prefix, reader.s16("cursor")?].concat();
            after = (group == 0 && flags & !SHARED == MORE).then_some(key);
        }
        let is_ours = reader.is_empty() && after.is_some() == (groups == 1);
        Ok::<_, crate::tcp::reader::ArgsError>(is_ours.then_some(after))
    };
    read().ok().flatten().ok_or_else(malformed)
}

/// Appends the result of `kv_query`.
pub fn put_page(out: &mut Vec<u8>, page: &KeyPage) {
    out.extend_from_slice(&(page.rows.len() as u32).to_be_bytes());
    for row in &page.rows {
        put_key(out, &row.key);
        out.push(row.value.is_some().into());
        if let Some(value) = &row.value {
            out.extend_from_slice(&(value.len() as u32).to_be_bytes());
            out.extend_from_slice(value);
        }
    }
    match &page.reached {
        None => out.extend_from_slice(&[0, 0, 0]),
        Some(key) => {
            out.extend_from_slice(&[0, 1, 0, 0, 0, 0, 0, MORE]);
            put_key(out, key);
        }
    }
}

/// Keys came with a length of 16 bits.
fn put_key(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(&(key.len() as u16).to_be_bytes());
    out.extend_from_slice(key);
}

/// Appends the result of `__kv_index_list__`.
pub fn put_indexes(out: &mut Vec<u8>, indexes: &[(IndexDefinition, bool)]) {
    out.extend_from_slice(&(indexes.len() as u16).to_be_bytes());
    for (definition, ready) in indexes {
        for part in [definition.name.as_bytes(), &definition.prefix, definition.path.as_bytes()] {
            out.push(part.len() as u8);
            out.extend_from_slice(part);
        }
        out.extend_from_slice(&[definition.is_count.into(), 1, (*ready).into()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::hex::hex;
    use nigh_shard::kv::query::KeyRow;

    fn decoded(op: KvQueryOp, text: &str) -> Result<KvQueryRequest, String> {
        decode(op, &hex(text)).map_err(|error| error.to_string())
    }

    fn query_of(text: &str) -> KeyQuery {
        match decoded(KvQueryOp::Query, text) {
            Ok(KvQueryRequest::Query(query)) => *query,
            other => panic!("{other:?}"),
        }
    }

    fn error_of(op: KvQueryOp, text: &str) -> String {
        decoded(op, text).unwrap_err()
    }

    #[test]
    fn golden_queries() {
        let all = query_of("04 00 0064 00 00");
        assert!(all.index.is_none() && all.scans && all.filter.is_none() && all.after.is_none());
        assert_eq!((all.limit, all.returns), (100, Returns::Keys));
        // {"op":"eq","field":"n","value":{"kind":"int","int":7}}
        let json = "7b226f70223a226571222c226669656c64223a226e222c2276616c7565223a7b226b696e64223a22696e74222c22696e74223a377d7d";
        let next =
            query_of(&format!("03 0161 03e8 02 01 00000036 {json} 0000000c 0001 00 00000000 01 0002 6b31"));
        assert_eq!((next.index.as_deref(), next.limit, next.returns), (Some("a"), 1000, Returns::Records));
        assert_eq!(next.after.as_deref(), Some(&b"k1"[..]));
        let filter = next.filter.unwrap();
        assert!(filter.matches(&[2, 1, 1, b'n', 0, 7]) && !filter.matches(&[2, 1, 1, b'n', 0, 8]));
        // A shared prefix, which others may write.
        let shared = query_of("06 00 0001 01 02 0000000d 0001 02 6b2d 00000000 03 0001 31");
        assert_eq!(shared.after.as_deref(), Some(&b"k-1"[..]));
        assert!(matches!(
            decoded(KvQueryOp::Query, "06 00 0001 00 00 00000003 000000"),
            Ok(KvQueryRequest::Finished)
        ));
        for nothing in ["00000000", "00000002 7b7d", "00000004 6e756c6c"] {
            assert!(query_of(&format!("05 00 0001 00 00 {nothing}")).filter.is_none());
        }
    }

    #[test]
    fn conditions_are_counted_wherever_they_are() {
        let many = |count: usize| {
            let conditions = vec![r#"{"op":"exists","field":"n"}"#; count].join(",");
            format!(r#"{{"op":"min_should","min_should":{{"min_count":1,"conditions":[{conditions}]}}}}"#)
        };
        assert!(filter(many(FILTER_NODES_MAX - 1).as_bytes()).is_ok());
        let error = filter(many(FILTER_NODES_MAX).as_bytes()).unwrap_err().to_string();
        assert!(error.contains("257 nodes in 2 levels"), "{error}");
    }

    #[test]
    fn keys_have_no_ids() {
        for json in [
            r#"{"op":"has_id","has_id":[1]}"#,
            r#"{"op":"and","and":[{"op":"exists","field":"n"},{"op":"has_id","has_id":[]},{"op":"has_id","has_id":[2]}]}"#,
        ] {
            let error = filter(json.as_bytes()).unwrap_err().to_string();
            assert_eq!(
                error, r#"invalid filter: op "has_id" is about points of collections; keys have no id"#,
                "{json}"
            );
        }
        assert!(filter(br#"{"op":"exists","field":"n"}"#).unwrap().is_some());
    }

    #[test]
    fn golden_indexes() {
        let text = "03 616765 02 753a 03 616765 00 01";
        let Ok(KvQueryRequest::SetIndex { definition, enabled }) = decoded(KvQueryOp::IndexSet, text) else {
            panic!("{text}")
        };
        assert!(enabled && !definition.is_count);
        let mut out = Vec::new();
        put_indexes(&mut out, &[(definition, true)]);
        assert_eq!(out, hex("0001 03 616765 02 753a 03 616765 00 01 01"));
        assert!(matches!(decoded(KvQueryOp::IndexList, ""), Ok(KvQueryRequest::ListIndexes)));
    }

    #[test]
    fn golden_pages() {
        let mut page = KeyPage::default();
        let mut out = Vec::new();
        put_page(&mut out, &page);
        assert_eq!(out, hex("00000000 0000 00"));
        page.rows.push(KeyRow { key: b"a".to_vec(), value: None });
        page.rows.push(KeyRow { key: b"b".to_vec(), value: Some(b"v".to_vec()) });
        page.reached = Some(b"b".to_vec());
        out.clear();
        put_page(&mut out, &page);
        assert_eq!(out, hex("00000002 0001 61 00 0001 62 01 00000001 76 0001 00 00000000 01 0001 62"));
        let at = out.len() - 11;
        assert_eq!(cursor(&out[at..]).unwrap().as_deref(), Some(&b"b"[..]));
    }

    #[test]
    fn mistakes_are_named() {
        for (op, text, expected) in [
            (KvQueryOp::Query, "", "args too short: flags"),
            (KvQueryOp::Query, "08 00 0064 00 00", "flags: unknown or not offered: 0x08"),
            (KvQueryOp::Query, "04 00 0000 00 00", "limit: 0 is not one of 1 to 1000"),
            (KvQueryOp::Query, "04 00 03e9 00 00", "limit: 1001 is not one of 1 to 1000"),
            (KvQueryOp::Query, "04 00 0064 03 00", "return: 3 is not one of 0 to 2"),
            (KvQueryOp::Query, "04 00 0064 00 03", "consistency: 3 is not one of 0 to 2"),
            (KvQueryOp::Query, "04 00 0064 00 00 00", "1 bytes behind the arguments"),
            (KvQueryOp::Query, "04 01ff 0064 00 00", "index is not UTF-8"),
            (KvQueryOp::Query, "05 00 0064 00 00 00000005 7b7d", "args too short: filter"),
            (KvQueryOp::Query, "06 00 0064 00 00 00000002 0001", "malformed kv_query cursor"),
            (KvQueryOp::Query, "06 00 0064 00 00 00000004 00000000", "malformed kv_query cursor"),
            (
                KvQueryOp::Query,
                "06 00 0064 00 00 0000000a 0001 00 00000001 01 0000",
                "malformed kv_query cursor",
            ),
            (
                KvQueryOp::Query,
                "06 00 0064 00 00 0000000a 0001 00 00000000 00 0000",
                "malformed kv_query cursor",
            ),
            (KvQueryOp::IndexSet, "0161 00 0161 02 01", "kind: 2 is not one of 0 to 1"),
            (KvQueryOp::IndexSet, "0161 00 0161 00 02", "enabled: 2 is not one of 0 to 1"),
            (KvQueryOp::IndexSet, "0161 00 0161 00 01 00", "1 bytes behind the arguments"),
            (KvQueryOp::IndexList, "00", "1 bytes behind the arguments"),
        ] {
            assert_eq!(error_of(op, text), expected, "{text}");
        }
        let filtered = |json: &str| {
            let args =
                [&hex("05 00 0064 00 00")[..], &(json.len() as u32).to_be_bytes(), json.as_bytes()].concat();
            decode(KvQueryOp::Query, &args).unwrap_err().to_string()
        };
        assert!(filtered("{").starts_with("filter: "));
        assert_eq!(filtered(r#"{"op":"eq"}"#), "invalid filter: op \"eq\" needs a field");
        assert!(filtered(r#"{"op":"is_null","field":"a/b"}"#).contains("field \"a/b\" is not a path"));
        let deep = r#"{"op":"not","not":"#.repeat(32) + r#"{"op":"is_null","field":"a"}"# + &"}".repeat(32);
        assert!(filtered(&deep).contains("33 nodes in 33 levels"));
        let wide =
            format!(r#"{{"op":"or","or":[{}]}}"#, vec![r#"{"op":"is_null","field":"a"}"#; 256].join(","));
        assert!(filtered(&wide).contains("257 nodes"));
        assert!(filtered(&" ".repeat(FILTER_BYTES_MAX + 1)).contains("longer than 65536 bytes"));
    }
}
