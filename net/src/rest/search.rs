//! Searches: JSON and binary queries in, hits or documents out.

use crate::request::{ApiError, ReadOptions, SearchPoints, compile_filter};
use crate::rest::binary::decode_query;
use crate::rest::filter::WireFilter;
use crate::rest::json::{Floats, decode, json_object};
use crate::rest::value::{write_document, write_json};
use nigh_shard::core::FoundPoint;

json_object! {
    /// Body of `…/search` and `…/search/docs`.
    pub struct SearchBody {
        "query" => query: Floats,
        "k" => k: i64,
        "filter" => filter: WireFilter,
        "read_consistency" => read_consistency: u8,
        "on_partition_unavailable" => on_partition_unavailable: u8,
        "max_staleness" => max_staleness: u64,
    }
}

/// Decodes a JSON search.
///
/// # Errors
/// 400.
pub fn decode_json(collection: String, body: &[u8], with_rows: bool) -> Result<SearchPoints, ApiError> {
    let body: SearchBody = decode(body)?;
    Ok(SearchPoints {
        collection,
        vector: body.query.unwrap_or_default().0,
        k: body.k.unwrap_or(0),
        filter: compile_filter(body.filter.map(|filter| filter.0))?,
        with_rows,
        read: ReadOptions {
            read_consistency: body.read_consistency.unwrap_or(0),
            on_partition_unavailable: body.on_partition_unavailable.unwrap_or(0),
            max_staleness: body.max_staleness.unwrap_or(0),
        },
    })
}

/// Decodes a binary search into the same request.
///
/// # Errors
/// 400.
pub fn decode_binary(collection: String, body: &[u8], with_rows: bool) -> Result<SearchPoints, ApiError> {
    let query = decode_query(body)?;
    Ok(SearchPoints {
        collection,
        vector: query.vector,
        k: i64::from(query.k),
        filter: compile_filter(query.filter)?,
        with_rows,
        read: query.read,
    })
}

/// Appends `"id":…,"distance":…,"score":0` of a hit.
fn write_hit(out: &mut Vec<u8>, id: u64, distance: f32) {
    out.extend_from_slice(b"{\"id\":");
    write_json(out, &id);
    out.extend_from_slice(b",\"distance\":");
    write_json(out, &distance);
    out.extend_from_slice(b",\"score\":0");
}

/// Appends a document.
pub fn write_hit_document(out: &mut Vec<u8>, id: u64, distance: f32, row: &[u8], now_ms: u64) {
    write_hit(out, id, distance);
    out.push(b',');
    write_document(out, row, now_ms);
    out.push(b'}');
}

/// The answer of `…/search`.
pub fn hits_answer(hits: &[FoundPoint]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + 64 * hits.len());
    out.extend_from_slice(b"{\"results\":[");
    for (index, hit) in hits.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_hit(&mut out, hit.id, hit.distance);
        out.push(b'}');
    }
    out.extend_from_slice(b"],\"degraded\":false,\"missing\":[]}\n");
    out
}

/// The answer of `…/search/docs`.
pub fn documents_answer(hits: &[FoundPoint], now_ms: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + hits.iter().map(|hit| 128 + 2 * hit.row.len()).sum::<usize>());
    out.extend_from_slice(b"{\"documents\":[");
    for (index, hit) in hits.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_hit_document(&mut out, hit.id, hit.distance, &hit.row, now_ms);
    }
    out.extend_from_slice(b"],\"degraded\":false,\"missing\":[]}\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_engine::payload::{RowBuilder, Value};

    fn hit(id: u64, distance: f32, row: Vec<u8>) -> FoundPoint {
        FoundPoint { id, distance, row }
    }

    #[test]
    fn search_bodies() {
        let request = decode_json("docs".into(), br#"{"query":[1,2],"k":3,"filter":{}}"#, true).unwrap();
        assert_eq!((request.vector.as_slice(), request.k, request.with_rows), (&[1.0, 2.0][..], 3, true));
        assert!(request.filter.is_none());
        assert_eq!(decode_json("docs".into(), b"{}", false).unwrap().k, 0);
        for (body, fragment) in [
            (r#"{"query":[1],"k":1,"limit":1}"#, "unknown field \"limit\""),
            (r#"{"query":[1],"k":1.0}"#, "field \"k\""),
            (r#"{"query":[1],"read_consistency":256}"#, "field \"read_consistency\""),
        ] {
            let error = decode_json("docs".into(), body.as_bytes(), false).err().expect(body);
            assert!(error.message.starts_with("invalid JSON body: "), "{error}");
            assert!(error.message.contains(fragment), "{error}");
        }
    }

    #[test]
    fn hits() {
        assert_eq!(hits_answer(&[]), b"{\"results\":[],\"degraded\":false,\"missing\":[]}\n");
        let text = hits_answer(&[hit(u64::MAX, 0.1, vec![]), hit(0, -1.0e-7, vec![])]);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "{\"results\":[{\"id\":18446744073709551615,\"distance\":0.1,\"score\":0},\
             {\"id\":0,\"distance\":-1e-7,\"score\":0}],\"degraded\":false,\"missing\":[]}\n"
        );
    }

    #[test]
    fn documents() {
        let mut row = RowBuilder::new();
        row.set("$content", Value::String("a \"text\"".into()), 0);
        row.set("n", Value::Int(0), 0);
        row.set("tags", Value::Strings(vec!["x".into(), "y".into()]), 0);
        let mut only_content = RowBuilder::new();
        only_content.set("$content", Value::String("t".into()), 0);
        let text = documents_answer(
            &[hit(1, 0.5, row.finish()), hit(2, 0.75, vec![]), hit(3, 1.0, only_content.finish())],
            5,
        );
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "{\"documents\":[{\"id\":1,\"distance\":0.5,\"score\":0,\"content\":\"a \\\"text\\\"\",\
             \"metadata\":{\"n\":{\"kind\":\"int\"},\"tags\":{\"kind\":\"strings\",\"strs\":[\"x\",\"y\"]}}},\
             {\"id\":2,\"distance\":0.75,\"score\":0,\"content\":\"\"},\
             {\"id\":3,\"distance\":1.0,\"score\":0,\"content\":\"t\"}],\"degraded\":false,\"missing\":[]}\n"
        );
    }
}
