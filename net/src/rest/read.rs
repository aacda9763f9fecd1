//! Reading points: by id, and by many ids. Answers of any length are made page by page while they are sent.

use crate::door::{Permit, Shape};
use crate::http::{Reply, ReplyBody, json_reply};
use crate::op::{ApiError, ErrorKind, GetPoints, ReadOptions, SentId, SentIds};
use crate::paged::PointReader;
use crate::rest::envelope::Envelope;
use crate::rest::pages::{Pages, stream_pages};
use crate::rest::parameters::{Query, ReadParameters, agreed, read_parameters};
use crate::rest::routes::point_id;
use crate::rest::vectors::write_vectors;
use crate::wire::ids::{Texts, write_text_or_number};
use crate::wire::json::{in_words, invalid_json, json_object};
use crate::wire::payloads::{WithId, write_payload, write_sparse};
use crate::wire::value::write_json;
use http::StatusCode;
use nigh_engine::payload::PayloadRow;
use nigh_engine::quoted::quoted;
use nigh_shard::core::StoredPoint;

/// How points are shown.
#[derive(Clone)]
struct Shown {
    with_vector: bool,
    shape: Shape,
}

impl Shown {
    /// Of the collection of the family of the permit.
    fn of(permit: &Permit, collection: &str, with_vector: bool) -> Result<Shown, ApiError> {
        Ok(Shown { with_vector, shape: permit.shape(collection)? })
    }
}

/// Appends `"vector":…,"payload":…,"ttl_ms":…,"version":…}`, and `sparse` before the end when vectors are asked for and the
/// point has one. Of a collection of named spaces `vectors` stands in place of both, of a multi-vector collection `tokens`, without
/// `ttl_ms`.
fn write_point(out: &mut Vec<u8>, point: &StoredPoint, shown: &Shown, now_ms: u64) {
    let only: Vec<_> = point.vector.iter().map(|vector| (0, vector.clone())).collect();
    let vectors = if matches!(shown.shape, Shape::One) { &only } else { &point.vectors };
    write_vectors(out, shown.with_vector.then_some(vectors), &shown.shape);
    out.extend_from_slice(b",\"payload\":");
    write_payload(out, &point.row, WithId::No, now_ms);
    if !matches!(shown.shape, Shape::Tokens) {
        out.extend_from_slice(b",\"ttl_ms\":");
        write_json(out, &point.ttl_ms);
    }
    out.extend_from_slice(b",\"version\":");
    write_json(out, &point.version);
    if point.vector.is_some() {
        write_sparse(out, &point.row);
    }
    out.push(b'}');
}

/// Whether a point is the one that was asked for by this string, and not another one whose string has the same number.
fn has_text(point: &StoredPoint, text: Option<&str>) -> bool {
    text.is_none_or(|text| PayloadRow::trusted(&point.row).id() == Some(text))
}

json_object! {
    /// Body of `GET …/points/{id}`, where there is one.
    pub struct GetBody {
        "with_vector" => with_vector: bool,
        "with_payload" => with_payload: bool,
        "read_consistency" => read_consistency: u8,
        "on_partition_unavailable" => on_partition_unavailable: u8,
        "max_staleness" => max_staleness: u64,
    }
}

/// What a read of points by id leaves out; each is on unless a query string or a body turns it off.
#[derive(Clone, Copy, Default)]
pub struct Projection {
    with_vector: Option<bool>,
    with_payload: Option<bool>,
}

impl Projection {
    /// Of a query string.
    ///
    /// # Errors
    /// A value that is no boolean; names the parameter.
    pub fn of(query: Query<'_>) -> Result<Self, ApiError> {
        Ok(Projection {
            with_vector: query.boolean("with_vector")?,
            with_payload: query.boolean("with_payload")?,
        })
    }

    /// Vector and payload, for a request whose query string states `self`.
    fn with_body(
        self,
        with_vector: Option<bool>,
        with_payload: Option<bool>,
    ) -> Result<(bool, bool), ApiError> {
        Ok((
            agreed("with_vector", self.with_vector, with_vector)?.unwrap_or(true),
            agreed("with_payload", self.with_payload, with_payload)?.unwrap_or(true),
        ))
    }
}

/// `GET …/points/{id}`.
///
/// # Errors
/// 400, 404.
pub async fn get(
    permit: &Permit,
    collection: String,
    id: &str,
    query: Query<'_>,
    body: GetBody,
) -> Result<Reply, ApiError> {
    let (with_vector, with_payload) =
        Projection::of(query)?.with_body(body.with_vector, body.with_payload)?;
    let named = point_id(permit, &collection, id)?;
    let request = GetPoints {
        ids: SentIds::from_one(&named),
        collection,
        with_vector,
        with_payload,
        read: ReadParameters::of(query)?.with_body(read_parameters!(body))?,
    };
    let shown = Shown::of(permit, &request.collection, with_vector)?;
    let mut points = permit.run(request).await?;
    let found = points.pop().flatten().filter(|point| has_text(point, named.text()));
    let Some(point) = found else {
        let what = if matches!(shown.shape, Shape::Tokens) { "document" } else { "point" };
        return Err(ApiError::new(ErrorKind::NotFound, format!("{what} not found: id {named}")));
    };
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(b"{\"found\":true,");
    write_point(&mut out, &point, &shown, permit.unix_ms());
    out.push(b'\n');
    Ok(json_reply(StatusCode::OK, ReplyBody::whole(out)))
}

/// Body of `…/batch-get`.
#[derive(Default)]
pub struct BatchGetBody {
    ids: SentIds,
    /// Their strings.
    texts: Texts,
    with_vector: Option<bool>,
    with_payload: Option<bool>,
}

impl Envelope for BatchGetBody {
    const ARRAY: &'static str = "ids";

    fn restart(&mut self) {
        (self.ids, self.texts) = Default::default();
    }

    fn element(&mut self, json: &[u8]) -> Result<(), ApiError> {
        let index = self.ids.len();
        let at = |reason: &dyn std::fmt::Display| invalid_json(format_args!("ids[{index}]: {reason}"));
        let id: SentId = serde_json::from_slice(json).map_err(|error| at(&in_words(&error)))?;
        self.ids.push(&id).map_err(|error| at(&error))?;
        self.texts.push(id.text());
        Ok(())
    }

    fn field(&mut self, key: &str, json: &[u8]) -> Result<bool, ApiError> {
        let target = match key.to_ascii_lowercase().as_str() {
            "with_vector" => &mut self.with_vector,
            "with_payload" => &mut self.with_payload,
            _ => return Ok(false),
        };
        match serde_json::from_slice::<Option<bool>>(json) {
            Ok(value) => *target = value.or(*target),
            Err(error) => {
                return Err(invalid_json(format_args!("field {}: {}", quoted(key), in_words(&error))));
            }
        }
        Ok(true)
    }
}

/// `POST …/batch-get`.
///
/// # Errors
/// 400, 404 for the collection only.
pub async fn batch_get(
    permit: &Permit,
    collection: String,
    projection: Projection,
    body: BatchGetBody,
) -> Result<Reply, ApiError> {
    let (with_vector, with_payload) = projection.with_body(body.with_vector, body.with_payload)?;
    let request =
        GetPoints { collection, ids: body.ids, with_vector, with_payload, read: ReadOptions::default() };
    let shown = Shown::of(permit, &request.collection, with_vector)?;
    let reader = PointReader::new(permit, request)?;
    let mut pages = GetPages {
        permit: permit.clone(),
        reader,
        shown,
        texts: body.texts,
        done: 0,
        wrote_any: false,
        missing: Vec::new(),
    };
    // The first page decides about the status; an empty list of ids still checks the collection.
    let mut first = b"{\"points\":[".to_vec();
    pages.next(&mut first).await?;
    Ok(json_reply(StatusCode::OK, {
        let bytes = 2 * size_of::<u64>() * pages.reader.points() + pages.texts.bytes();
        stream_pages(permit, first, pages, bytes)?
    }))
}

struct GetPages {
    permit: Permit,
    reader: PointReader,
    shown: Shown,
    /// The strings of the ids, in the order of the request.
    texts: Texts,
    /// How many of them have been read.
    done: usize,
    wrote_any: bool,
    /// The places of those that no point has.
    missing: Vec<usize>,
}

impl Pages for GetPages {
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let before = out.len();
        let page = self.reader.next().await?;
        let now_ms = self.permit.unix_ms();
        for (id, point) in page {
            let index = self.done;
            self.done += 1;
            let text = self.texts.get(index);
            match point.filter(|point| has_text(point, text)) {
                None => self.missing.push(index),
                Some(point) => {
                    out.extend_from_slice(if self.wrote_any { b",{\"id\":" } else { b"{\"id\":" });
                    self.wrote_any = true;
                    write_text_or_number(out, text, id);
                    out.push(b',');
                    write_point(out, &point, &self.shown, now_ms);
                }
            }
        }
        self.reader.wrote(out.len() - before);
        if self.reader.is_done() {
            out.extend_from_slice(b"],\"missing\":[");
            for (at, index) in self.missing.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                let number = self.reader.ids()[*index];
                write_text_or_number(out, self.texts.get(*index), number);
            }
            out.extend_from_slice(b"]}\n");
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.reader.is_done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::SpaceNames;
    use crate::rest::envelope::EnvelopeReader;

    #[test]
    fn batch_get_bodies() {
        let read = |body: &str| {
            let mut reader = EnvelopeReader::new(BatchGetBody::default());
            reader.feed(body.as_bytes())?;
            reader.finish()
        };
        let body = read(r#"{"ids":[1,18446744073709551615,1],"with_vector":false}"#).ok().unwrap();
        assert_eq!(body.ids.numbers, [1, u64::MAX, 1]);
        assert_eq!((body.with_vector, body.with_payload), (Some(false), None));
        for bad in [
            r#"{"ids":[1.0]}"#,
            r#"{"ids":[null]}"#,
            r#"{"ids":[""]}"#,
            r#"{"ids":["1",1]}"#,
            r#"{"ids":[-1]}"#,
            r#"{"read_consistency":1}"#,
        ] {
            let error = read(bad).err().expect(bad);
            assert!(error.message.starts_with("invalid JSON body: "), "{error}");
        }
    }

    #[test]
    fn points_as_json() {
        let mut out = Vec::new();
        let point = StoredPoint {
            id: 1,
            vector: Some(vec![0.5, 1.0]),
            row: vec![],
            ttl_ms: 7,
            version: 3,
            vectors: vec![],
        };
        let shown = Shown { with_vector: true, shape: Shape::One };
        write_point(&mut out, &point, &shown, 0);
        assert_eq!(out, br#""vector":[0.5,1.0],"payload":null,"ttl_ms":7,"version":3}"#);
        out.clear();
        write_point(&mut out, &StoredPoint { vector: None, ..point.clone() }, &shown, 0);
        assert!(out.starts_with(b"\"vector\":null,"));
        let dense = vec!["a".to_owned(), "b\"".to_owned()];
        let spaces = Shape::Spaces(SpaceNames { dense, ..SpaceNames::default() });
        let vectors = vec![(0, vec![1.0]), (1, vec![0.5, -2.0]), (2, vec![3.0])];
        let named = StoredPoint { vector: None, vectors, ..point };
        for (with_vector, expected) in [(true, r#"{"a":[1.0],"b\"":[0.5,-2.0]}"#), (false, "null")] {
            out.clear();
            write_point(&mut out, &named, &Shown { with_vector, shape: spaces.clone() }, 0);
            let out = String::from_utf8(out.clone()).unwrap();
            assert_eq!(out, format!(r#""vectors":{expected},"payload":null,"ttl_ms":7,"version":3}}"#));
        }
        for (with_vector, expected) in [(true, "[[1.0],[0.5,-2.0],[3.0]]"), (false, "null")] {
            out.clear();
            write_point(&mut out, &named, &Shown { with_vector, shape: Shape::Tokens }, 0);
            let out = String::from_utf8(out.clone()).unwrap();
            assert_eq!(out, format!(r#""tokens":{expected},"payload":null,"version":3}}"#));
        }
    }
}
