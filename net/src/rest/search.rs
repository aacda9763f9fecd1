//! Searches: JSON and binary queries in, hits or documents out.

use crate::door::Shape;
use crate::limits::{PAGE_BYTES, PAGE_POINTS};
use crate::op::{ApiError, ReadOptions, SearchOptions, SearchPoints, compile_filter};
use crate::rest::binary::decode_query;
use crate::rest::pages::Pages;
use crate::rest::parameters::{ReadParameters, read_parameters};
use crate::rest::vectors::write_vectors;
use crate::wire::explain::explanation;
use crate::wire::filter::WireFilter;
use crate::wire::ids::write_id;
use crate::wire::json::{Floats, decode};
use crate::wire::payloads::{WithId, write_document, write_payload, write_sparse};
use crate::wire::search_options::search_body;
use crate::wire::value::write_json;
use nigh_engine::filter::Predicate;
use nigh_shard::core::{Explained, FoundPoint, Shown, ShownPayload};
use std::sync::Arc;

search_body! {
    /// Body of `…/search` and `…/search/docs`.
    pub struct SearchBody {
        "query" => query: Floats,
        "k" => k: i64,
        "filter" => filter: WireFilter,
    }
}

/// Decodes a JSON search, whose query string states `read`.
///
/// # Errors
/// 400.
pub fn decode_json(
    collection: String,
    body: &[u8],
    read: ReadParameters,
    with_rows: bool,
) -> Result<SearchPoints, ApiError> {
    let mut body: SearchBody = decode(body)?;
    let options = body.options();
    Ok(SearchPoints {
        collection,
        vector: body.query.unwrap_or_default().0,
        k: body.k.unwrap_or(0),
        filter: compile_filter(body.filter.map(|filter| filter.0))?,
        with_rows,
        options,
        read: read.with_body(read_parameters!(body))?,
    })
}

/// What many searches have in common: all but the vector.
#[derive(Debug)]
pub struct CommonSearch {
    k: i64,
    filter: Option<Arc<Predicate>>,
    options: SearchOptions,
    read: ReadOptions,
}

impl CommonSearch {
    /// Takes the body of a search without `query`. The query string states `read`.
    ///
    /// # Errors
    /// 400.
    pub fn new(mut body: SearchBody, read: ReadParameters) -> Result<Self, ApiError> {
        if body.query.is_some() {
            return Err(ApiError::invalid(
                "query is not among the keys that searches have in common; their vectors follow",
            ));
        }
        let options = body.options();
        Ok(CommonSearch {
            k: body.k.unwrap_or(0),
            filter: compile_filter(body.filter.map(|filter| filter.0))?,
            options,
            read: read.with_body(read_parameters!(body))?,
        })
    }

    /// The search for the neighbours of a vector.
    pub fn of(&self, collection: String, vector: Vec<f32>) -> SearchPoints {
        SearchPoints {
            collection,
            vector,
            k: self.k,
            filter: self.filter.clone(),
            with_rows: false,
            options: self.options.clone(),
            read: self.read,
        }
    }
}

/// Decodes a binary search into the same request.
///
/// # Errors
/// 400.
pub fn decode_binary(
    collection: String,
    body: &[u8],
    read: ReadParameters,
    with_rows: bool,
) -> Result<SearchPoints, ApiError> {
    let query = decode_query(body)?;
    Ok(SearchPoints {
        collection,
        vector: query.vector,
        k: i64::from(query.k),
        filter: compile_filter(query.filter)?,
        with_rows,
        options: SearchOptions::default(),
        read: read.with_header(query.read)?,
    })
}

/// A number as JSON can say it: what overflowed is the largest of its sign, what is none is `none`. JSON has no infinity,
/// and serde would write `null`, where clients read a number.
fn in_range(number: f32, none: f32) -> f32 {
    if number.is_nan() { none } else { number.clamp(f32::MIN, f32::MAX) }
}

/// Appends `{"id":…,"distance":…,"score":…` of a hit. Sums of vectors with very large components may overflow; such a hit is
/// as far away, or as bad, as can be.
fn write_hit(out: &mut Vec<u8>, id: u64, row: &[u8], distance: f32, score: f32) {
    let (distance, score) = (in_range(distance, f32::MAX), in_range(score, f32::MIN));
    out.extend_from_slice(b"{\"id\":");
    write_id(out, id, row);
    out.extend_from_slice(b",\"distance\":");
    write_json(out, &distance);
    out.extend_from_slice(b",\"score\":");
    if score == 0.0 {
        out.push(b'0');
    } else {
        write_json(out, &score);
    }
}

/// How hits are written.
#[derive(Clone)]
pub struct HitFormat {
    /// What a hit has beside its id and values: the text and the rest of the payload of a document; the payload as `metadata` of a document of
    /// tokens, which has a score and no distance; or the payload, if it is asked for.
    pub kind: HitKind,
    /// Which payloads and vectors are returned with the hits.
    pub shown: Shown,
    /// What vectors a point has; `None` unless vectors are asked for.
    pub shape: Option<Shape>,
    /// The time that payloads are read at, Unix milliseconds.
    pub now_ms: u64,
}

/// What stands in a hit beside its id and values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum HitKind {
    /// `payload`, if it is asked for.
    Result,
    /// `content` and `metadata`.
    Document,
    /// `metadata`, and no distance.
    Scored,
}

impl HitFormat {
    /// Appends a hit.
    pub fn write(&self, out: &mut Vec<u8>, hit: &FoundPoint) {
        match self.kind {
            HitKind::Scored => write_scored(out, hit, self.now_ms),
            HitKind::Result | HitKind::Document => {
                write_hit(out, hit.id, &hit.row, hit.distance, hit.score);
            }
        }
        let shows_payload = self.shown.payload != ShownPayload::None;
        match self.kind {
            HitKind::Document if shows_payload => {
                out.push(b',');
                write_document(out, &hit.row, self.now_ms);
            }
            HitKind::Result if shows_payload => {
                out.extend_from_slice(b",\"payload\":");
                write_payload(out, &hit.row, WithId::No, self.now_ms);
            }
            _ => {}
        }
        if let Some(shape) = &self.shape {
            let vectors: Vec<_> = hit.vectors.iter().collect();
            out.push(b',');
            write_vectors(out, Some(&vectors), shape);
            if *shape == Shape::One {
                write_sparse(out, &hit.row);
            }
        }
        out.push(b'}');
    }

    /// The bytes that a hit takes, about.
    fn bytes(hit: &FoundPoint) -> usize {
        64 + 2 * hit.row.len() + 3 * hit.vectors.bytes()
    }
}

/// Appends `"id":…,"score":…` of a hit, with `metadata` when the document has any.
fn write_scored(out: &mut Vec<u8>, hit: &FoundPoint, now_ms: u64) {
    out.extend_from_slice(b"{\"id\":");
    write_id(out, hit.id, &hit.row);
    out.extend_from_slice(b",\"score\":");
    write_json(out, &in_range(hit.score, f32::MIN));
    let start = out.len();
    out.extend_from_slice(b",\"metadata\":");
    let value = out.len();
    write_payload(out, &hit.row, WithId::No, now_ms);
    if out[value..] == *b"null" {
        out.truncate(start);
    }
}

/// Appends a document that no score ranks.
pub fn write_hit_document(out: &mut Vec<u8>, id: u64, distance: f32, row: &[u8], now_ms: u64) {
    write_hit(out, id, row, distance, 0.0);
    out.push(b',');
    write_document(out, row, now_ms);
    out.push(b'}');
}

/// The answer to a search, written page by page.
pub struct FoundPages {
    hits: Vec<FoundPoint>,
    at: usize,
    format: HitFormat,
    says_missing: bool,
    explained: Option<Explained>,
}

impl FoundPages {
    /// The answer with these hits, `documents` or `results` by their kind. Most answers say which partitions are missing; one may say how the
    /// search went.
    pub fn new(
        hits: Vec<FoundPoint>,
        format: HitFormat,
        says_missing: bool,
        explained: Option<Explained>,
    ) -> Self {
        FoundPages { hits, at: 0, format, says_missing, explained }
    }

    /// Appends the next page.
    pub fn write(&mut self, out: &mut Vec<u8>) {
        // A document costs some ten times a bare hit.
        let is_bare = self.format.kind == HitKind::Result && self.format.shown == Shown::default();
        let page = if is_bare { 8 * PAGE_POINTS } else { PAGE_POINTS };
        let mut hits = &self.hits[self.at..self.hits.len().min(self.at + page)];
        let mut bytes = 128;
        // A page has fewer of long documents, but one at least.
        for (index, hit) in hits.iter().enumerate() {
            bytes += HitFormat::bytes(hit);
            if bytes > PAGE_BYTES {
                hits = &hits[..=index];
                break;
            }
        }
        out.reserve(bytes);
        if self.at == 0 {
            let is_document = self.format.kind == HitKind::Document;
            out.extend_from_slice(if is_document { b"{\"documents\":[" } else { b"{\"results\":[" });
        }
        for (index, hit) in hits.iter().enumerate() {
            if self.at + index > 0 {
                out.push(b',');
            }
            self.format.write(out, hit);
        }
        self.at += hits.len();
        if self.at == self.hits.len() {
            write_end(out, self.says_missing, None, self.explained.as_ref());
        }
    }
}

/// Ends an answer; most say which partitions are missing, and one of groups says whether it may be incomplete.
pub fn write_end(
    out: &mut Vec<u8>,
    says_missing: bool,
    incomplete: Option<bool>,
    explained: Option<&Explained>,
) {
    out.push(b']');
    if says_missing {
        out.extend_from_slice(b",\"degraded\":false,\"missing\":[]");
    }
    if let Some(incomplete) = incomplete {
        out.extend_from_slice(format!(",\"incomplete\":{incomplete}").as_bytes());
    }
    if let Some(explained) = explained {
        out.extend_from_slice(b",\"explain\":");
        write_json(out, &explanation(explained));
    }
    out.extend_from_slice(b"}\n");
}

impl Pages for FoundPages {
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        self.write(out);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.at == self.hits.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_engine::payload::{RowBuilder, Value};
    use nigh_shard::core::FoundVectors;

    fn hit(id: u64, distance: f32, row: Vec<u8>) -> FoundPoint {
        FoundPoint { id, distance, score: 0.0, row: row.into(), vectors: FoundVectors::default() }
    }

    #[test]
    fn search_bodies() {
        let read = ReadParameters::default();
        let request =
            decode_json("docs".into(), br#"{"query":[1,2],"k":3,"filter":{}}"#, read, true).unwrap();
        assert_eq!((request.vector.as_slice(), request.k, request.with_rows), (&[1.0, 2.0][..], 3, true));
        assert!(request.filter.is_none());
        assert_eq!(decode_json("docs".into(), b"{}", read, false).unwrap().k, 0);
        for (body, fragment) in [
            (r#"{"query":[1],"k":1,"limit":1}"#, "unknown field \"limit\""),
            (r#"{"query":[1],"k":1.0}"#, "field \"k\""),
            (r#"{"query":[1],"read_consistency":256}"#, "field \"read_consistency\""),
        ] {
            let error = decode_json("docs".into(), body.as_bytes(), read, false).err().expect(body);
            assert!(error.message.starts_with("invalid JSON body: "), "{error}");
            assert!(error.message.contains(fragment), "{error}");
        }
    }

    fn written(hits: Vec<FoundPoint>, documents: bool) -> Vec<u8> {
        let kind = if documents { HitKind::Document } else { HitKind::Result };
        let format = HitFormat { kind, shown: Shown::payloads_if(documents), shape: None, now_ms: 5 };
        let mut pages = FoundPages::new(hits, format, true, None);
        let mut out = Vec::new();
        pages.write(&mut out);
        while !pages.is_done() {
            pages.write(&mut out);
        }
        out
    }

    #[test]
    fn long_answers_are_the_same_in_pages() {
        for (documents, key) in [(false, "results"), (true, "documents")] {
            let hits: Vec<_> = (0..5_000).map(|id| hit(id, id as f32, vec![])).collect();
            let answer: serde_json::Value = serde_json::from_slice(&written(hits, documents)).unwrap();
            let ids: Vec<_> = answer[key].as_array().unwrap().iter().map(|hit| hit["id"].as_u64()).collect();
            assert_eq!(ids, (0..5_000).map(Some).collect::<Vec<_>>());
        }
    }

    #[test]
    fn hits() {
        assert_eq!(written(vec![], false), b"{\"results\":[],\"degraded\":false,\"missing\":[]}\n");
        let text = written(vec![hit(u64::MAX, 0.1, vec![]), hit(0, -1.0e-7, vec![])], false);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "{\"results\":[{\"id\":18446744073709551615,\"distance\":0.1,\"score\":0},\
             {\"id\":0,\"distance\":-1e-7,\"score\":0}],\"degraded\":false,\"missing\":[]}\n"
        );
    }

    /// They were written as `null`.
    #[test]
    fn overflown_distances_are_numbers() {
        for (distance, written_as) in [
            (f32::INFINITY, f32::MAX),
            (f32::NEG_INFINITY, f32::MIN),
            (f32::NAN, f32::MAX),
            (f32::MAX, f32::MAX),
        ] {
            let answer = written(vec![FoundPoint { score: f32::NAN, ..hit(1, distance, vec![]) }], false);
            let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
            let hit = &answer["results"][0];
            assert_eq!(hit["distance"].as_f64().map(|found| found as f32), Some(written_as), "{distance}");
            assert_eq!(hit["score"].as_f64().map(|found| found as f32), Some(f32::MIN));
        }
    }

    #[test]
    fn documents() {
        let mut row = RowBuilder::new();
        row.set("$content", Value::String("a \"text\"".into()), 0);
        row.set("n", Value::Int(0), 0);
        row.set("tags", Value::Strings(vec!["x".into(), "y".into()]), 0);
        let mut only_content = RowBuilder::new();
        only_content.set("$content", Value::String("t".into()), 0);
        let text = written(
            vec![hit(1, 0.5, row.finish()), hit(2, 0.75, vec![]), hit(3, 1.0, only_content.finish())],
            true,
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
