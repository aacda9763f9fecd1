//! Writing points: single, batch and staging bodies, JSON and binary.

use crate::http::BodyReader;
use crate::limits;
use crate::op::{ApiError, BatchBuilder, SentId, check_ttl, place_of};
use crate::rest::binary::{IngestDecoder, IngestRoute};
use crate::rest::envelope::{Envelope, EnvelopeReader};
use crate::rest::pages::Pages;
use crate::rest::parameters::WriteParameters;
use crate::wire::ids::{Texts, write_text_or_number};
use crate::wire::json::{Floats, IntMap, SparseBody, decode, in_words, invalid_json, json_object};
use crate::wire::payloads::{Payloads, SentPayload, WirePayload, encode_point_row};
use nigh_engine::collection::WriteMode;
use nigh_engine::payload::PayloadRow;
use nigh_shard::core::{PointFields, WriteBatch, Written};
use std::io::Write;

json_object! {
    /// A point as written.
    pub struct PointBody {
        "id" => id: SentId,
        "vector" => vector: Floats,
        "content" => content: String,
        "metadata" => metadata: SentPayload,
        "sparse" => sparse: SparseBody,
        "ttl_ms" => ttl_ms: i64,
        "key_ttl_ms" => key_ttl_ms: IntMap,
        "upsert" => upsert: bool,
        "expected_version" => expected_version: u64,
        "write_consistency_factor" => write_consistency_factor: i64,
        "wait" => wait: bool,
    }
}

impl PointBody {
    /// Refuses what a staged point cannot have.
    fn check_staged(&self) -> Result<(), ApiError> {
        refuse_staged(&[
            ("content", self.content.as_ref().is_some_and(|content| !content.is_empty())),
            ("sparse", self.sparse.is_some()),
            ("ttl_ms", self.ttl_ms.is_some_and(|ttl_ms| ttl_ms != 0)),
            ("key_ttl_ms", self.key_ttl_ms.as_ref().is_some_and(|ttls| !ttls.0.is_empty())),
            ("expected_version", self.expected_version.is_some()),
        ])
    }

    /// `metadata` is its own, read.
    fn into_parts(
        self,
        metadata: WirePayload,
        payloads: Payloads,
    ) -> Result<(Vec<f32>, PointFields), ApiError> {
        let key_ttl_ms = self.key_ttl_ms.unwrap_or_default().0;
        check_ttl("ttl_ms", self.ttl_ms.unwrap_or(0))?;
        let sparse = self.sparse.unwrap_or_default().into_vector()?;
        let id = self.id.unwrap_or_default();
        let (id, row) = encode_point_row(&id, metadata, self.content, sparse, &key_ttl_ms, payloads)?;
        let fields = PointFields {
            id,
            row,
            ttl_ms: self.ttl_ms.unwrap_or(0),
            expected_version: self.expected_version,
        };
        Ok((self.vector.unwrap_or_default().0, fields))
    }
}

/// Decodes the body of `POST …/points`, whose query string states `write`; the id is that of the point.
///
/// # Errors
/// 400.
pub fn decode_write(
    body: &[u8],
    write: WriteParameters,
    payloads: Payloads,
) -> Result<(SentId, WriteBatch), ApiError> {
    let mut point: PointBody = decode(body)?;
    let metadata = SentPayload::read_in_body(point.metadata.take(), "metadata", payloads)?;
    let options = write.with_body(WriteParameters {
        write_consistency_factor: point.write_consistency_factor,
        wait: point.wait,
        expected_version: point.expected_version,
    })?;
    options.validate()?;
    point.expected_version = options.expected_version;
    let mode = if point.upsert == Some(true) { WriteMode::Upsert } else { WriteMode::Insert };
    let id = point.id.clone().unwrap_or_default();
    let (vector, fields) = point.into_parts(metadata, payloads)?;
    let mut batch = BatchBuilder::new();
    batch.push(vector, fields);
    Ok((id, batch.finish(mode)))
}

/// Refuses what a batch cannot wait for, whether a point or the query string states it.
///
/// # Errors
/// 400.
pub fn check_batch_options(
    write_consistency_factor: Option<i64>,
    wait: Option<bool>,
) -> Result<(), ApiError> {
    if write_consistency_factor.unwrap_or(0) != 0 || wait == Some(false) {
        return Err(ApiError::invalid("write_consistency_factor and wait are not possible in a batch"));
    }
    Ok(())
}

/// Refuses the first key that was sent although it is not possible when staging.
///
/// # Errors
/// 400.
pub fn refuse_staged(keys: &[(&str, bool)]) -> Result<(), ApiError> {
    match keys.iter().find(|(_, is_sent)| *is_sent) {
        Some((name, _)) => Err(ApiError::invalid(format!("{name} is not possible when staging"))),
        None => Ok(()),
    }
}

/// A batch or staging body under construction.
struct PointsEnvelope {
    route: IngestRoute,
    payloads: Payloads,
    /// The value of `upsert` beside `points`; `None` if it was not sent.
    upsert: Option<bool>,
    /// The number of points that have `"upsert": true`.
    upserts: usize,
    batch: BatchBuilder,
}

impl PointsEnvelope {
    fn new(route: IngestRoute, payloads: Payloads) -> PointsEnvelope {
        PointsEnvelope { route, payloads, upsert: None, upserts: 0, batch: BatchBuilder::new() }
    }

    /// Returns the batch. All its points are written in the same way: as the batch says, or otherwise as an upsert if every point has `"upsert": true`.
    ///
    /// # Errors
    /// 400 if staging is combined with `upsert`.
    fn finish(self) -> Result<WriteBatch, ApiError> {
        let all_points = self.upserts > 0 && self.upserts == self.batch.len();
        let upsert = self.upsert.unwrap_or(all_points);
        if self.route == IngestRoute::Staging && self.upsert == Some(true) {
            return Err(ApiError::invalid("upsert is not possible when staging; use points/batch"));
        }
        Ok(self.batch.finish(if upsert { WriteMode::Upsert } else { WriteMode::Insert }))
    }
}

impl Envelope for PointsEnvelope {
    const ARRAY: &'static str = "points";

    fn restart(&mut self) {
        self.batch = BatchBuilder::new();
        self.upserts = 0;
    }

    fn element(&mut self, json: &[u8]) -> Result<(), ApiError> {
        let index = self.batch.len();
        if index >= limits::JSON_INGEST_MAX_POINTS {
            return Err(ApiError::too_many("points", limits::JSON_INGEST_MAX_POINTS as u64));
        }
        let mut point: PointBody = match serde_json::from_slice::<Option<PointBody>>(json) {
            Ok(point) => point.unwrap_or_default(),
            Err(error) => return Err(invalid_json(format_args!("points[{index}]: {}", in_words(&error)))),
        };
        let metadata = SentPayload::read(point.metadata.take(), "metadata", self.payloads)
            .map_err(|reason| invalid_json(format_args!("points[{index}]: {reason}")))?;
        // The place is put into words for a refusal alone: a batch may have many points.
        let id = point.id.clone();
        let place = || place_of("points", index, id.as_ref());
        let located = |error: ApiError| ApiError::invalid(format!("{}: {error}", place()));
        match self.route {
            IngestRoute::Staging => point.check_staged().map_err(located)?,
            IngestRoute::Batch => {
                self.upserts += usize::from(point.upsert == Some(true));
                check_batch_options(point.write_consistency_factor, point.wait).map_err(located)?;
            }
        }
        let (vector, fields) = point
            .into_parts(metadata, self.payloads)
            .map_err(|error| ApiError { message: format!("{}: {error}", place()), ..error })?;
        self.batch.push(vector, fields);
        if self.route == IngestRoute::Staging && !self.batch.is_uniform() {
            return Err(located(ApiError::invalid("dimension mismatch: staged vectors differ in length")));
        }
        Ok(())
    }

    fn field(&mut self, key: &str, json: &[u8]) -> Result<bool, ApiError> {
        if !key.eq_ignore_ascii_case("upsert") {
            return Ok(false);
        }
        match serde_json::from_slice::<Option<bool>>(json) {
            Ok(upsert) => self.upsert = upsert.or(self.upsert),
            Err(error) => return Err(invalid_json(format_args!("field \"upsert\": {}", in_words(&error)))),
        }
        Ok(true)
    }
}

/// Reads a JSON batch or staging body as it arrives.
///
/// # Errors
/// 400, 413.
pub async fn read_json(
    mut body: BodyReader,
    route: IngestRoute,
    payloads: Payloads,
) -> Result<WriteBatch, ApiError> {
    body.limit(limits::JSON_BULK_BODY_MAX_BYTES)?;
    read_envelope(&mut body, PointsEnvelope::new(route, payloads)).await?.finish()
}

/// Feeds a body to an envelope in slices, between which other work of the core runs.
///
/// # Errors
/// 400, 413.
pub async fn read_envelope<E: Envelope>(body: &mut BodyReader, envelope: E) -> Result<E, ApiError> {
    let mut reader = EnvelopeReader::new(envelope);
    let mut slice = 0;
    while let Some(bytes) = body.next().await? {
        for piece in bytes.chunks(limits::SLICE_BYTES) {
            if slice + piece.len() > limits::SLICE_BYTES {
                slice = 0;
                body.breathe().await;
            }
            slice += piece.len();
            reader.feed(piece)?;
        }
    }
    reader.finish()
}

/// Reads a binary batch or staging body as it arrives.
///
/// # Errors
/// 400, 413.
pub async fn read_binary(
    mut body: BodyReader,
    route: IngestRoute,
    payloads: Payloads,
) -> Result<WriteBatch, ApiError> {
    // Rows cost a copy and a look at each exponent, payload JSON ten times that.
    const ROW_SLICE_BYTES: usize = 4 * limits::SLICE_BYTES;
    let mut decoder = IngestDecoder::new(route, payloads);
    let mut slice = 0;
    while let Some(bytes) = body.next().await? {
        for piece in bytes.chunks(limits::SLICE_BYTES) {
            let slice_max = if decoder.is_in_payloads() { limits::SLICE_BYTES } else { ROW_SLICE_BYTES };
            if slice + piece.len() > slice_max {
                slice = 0;
                body.breathe().await;
            }
            slice += piece.len();
            decoder.feed(piece)?;
        }
    }
    decoder.finish()
}

/// The answer to a batch, written page by page: a count, or one result per point when any had a condition.
pub struct BatchPages {
    /// Ids in input order, kept only when results are due.
    ids: Option<(Vec<u64>, Texts)>,
    written: Vec<Written>,
    at: usize,
}

impl BatchPages {
    /// What must be remembered of a batch before it is handed over: its results are due where any point has a condition, or `with_versions`.
    pub fn before<'a>(points: impl Iterator<Item = &'a PointFields> + Clone, with_versions: bool) -> Self {
        let are_due = with_versions || points.clone().any(|point| point.expected_version.is_some());
        let ids = are_due.then(|| {
            let (mut numbers, mut texts) = (Vec::with_capacity(points.clone().count()), Texts::default());
            for point in points {
                numbers.push(point.id);
                texts.push(PayloadRow::trusted(&point.row).id());
            }
            (numbers, texts)
        });
        BatchPages { ids, written: Vec::new(), at: 0 }
    }

    /// Bytes that the answer to a batch of so many points is made from; 0 when it is a count.
    pub fn bytes_of(&self, points: usize) -> usize {
        let texts = self.ids.as_ref().map(|(_, texts)| texts.bytes());
        texts.map_or(0, |texts| texts + points * (size_of::<u64>() + size_of::<Written>()))
    }

    /// With its outcome.
    pub fn after(self, written: Vec<Written>) -> Self {
        BatchPages { written, ..self }
    }

    /// Appends the next page.
    pub fn write(&mut self, out: &mut Vec<u8>) {
        // Writing to memory does not fail.
        let Some((numbers, texts)) = &self.ids else {
            let _ = writeln!(out, "{{\"count\":{}}}", self.written.len());
            self.at = self.written.len();
            return;
        };
        let end = self.written.len().min(self.at + 8 * limits::PAGE_POINTS);
        if self.at == 0 {
            out.extend_from_slice(b"{\"results\":[");
        }
        for (index, written) in self.written.iter().enumerate().take(end).skip(self.at) {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"id\":");
            write_text_or_number(out, texts.get(index), numbers[index]);
            let _ = match written {
                Written::Ok { version } => write!(out, ",\"version\":{version},\"status\":\"ok\"}}"),
                Written::Conflict => write!(out, ",\"status\":\"conflict\"}}"),
            };
        }
        self.at = end;
        if self.at == self.written.len() {
            out.extend_from_slice(b"]}\n");
        }
    }
}

impl Pages for BatchPages {
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        self.write(out);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.at == self.written.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_shard::core::Vectors;

    fn write(body: &[u8]) -> Result<(u64, WriteBatch), ApiError> {
        decode_write(body, WriteParameters::default(), Payloads::tagged(1_000))
            .map(|(id, batch)| (id.number(), batch))
    }

    fn envelope(route: IngestRoute, body: &str) -> Result<WriteBatch, String> {
        let mut reader = EnvelopeReader::new(PointsEnvelope::new(route, Payloads::tagged(1_000)));
        reader.feed(body.as_bytes()).map_err(|error| error.message)?;
        reader.finish().and_then(PointsEnvelope::finish).map_err(|error| error.message)
    }

    #[test]
    fn a_point_as_clients_send_it() {
        let (id, batch) = write(
            br#"{"id": 42, "vector": [0.1, 0.2], "content": "", "ttl_ms": 0, "metadata": null, "upsert": true}"#,
        )
        .unwrap();
        assert_eq!((id, batch.mode, batch.dim), (42, WriteMode::Upsert, 2));
        assert!(matches!(batch.vectors, Vectors::Native(flat) if flat == [0.1, 0.2]));
        assert!(batch.points[0].row.is_empty());
        assert_eq!((batch.points[0].ttl_ms, batch.points[0].expected_version), (0, None));
    }

    #[test]
    fn a_sparse_vector_travels_in_the_row() {
        let body = br#"{"sparse":{"indices":[2,4294967295],"values":[0.5,-1]},"metadata":null}"#;
        let (_, batch) = write(body).unwrap();
        let row = PayloadRow::verify(&batch.points[0].row).unwrap();
        assert_eq!(row.sparse().collect::<Vec<_>>(), [(2, 0.5), (u32::MAX, -1.0)]);
        assert_eq!(row.stored_len(), 0);
        let (_, batch) = write(br#"{"sparse":{"indices":[],"values":[]}}"#).unwrap();
        assert!(batch.points[0].row.is_empty());
    }

    #[test]
    fn defaults_of_an_empty_point() {
        let (id, batch) = write(b"{}").unwrap();
        assert_eq!((id, batch.mode, batch.dim, batch.points.len()), (0, WriteMode::Insert, 0, 1));
    }

    #[test]
    fn write_refusals() {
        for (body, fragment) in [
            (r#"{"write_consistency_factor":-1}"#, "write_consistency_factor"),
            (r#"{"sparse":{"indices":[1,2],"values":[1]}}"#, "2 indices but 1 values"),
            (r#"{"sparse":{"indices":[2,2],"values":[1,1]}}"#, "ascending"),
            (r#"{"sparse":{"indices":[1]}}"#, "1 indices but 0 values"),
            (r#"{"sparse":{"indices":[-1],"values":[1]}}"#, "field \"indices\""),
            (r#"{"sparse":{"indices":[1],"values":[1e39]}}"#, "field \"values\""),
            (r#"{"sparse":{"index":[1]}}"#, "unknown field \"index\""),
            (r#"{"expected_version":-1}"#, "field \"expected_version\""),
            (r#"{"metadata":{"a":{"kind":"int","int":1.5}}}"#, "field \"metadata\""),
            (r#"{"payload":{}}"#, "unknown field \"payload\""),
        ] {
            let error = write(body.as_bytes()).expect_err(body);
            assert!(error.message.contains(fragment), "{body}: {error}");
        }
        assert!(write(br#"{"sparse":{},"wait":false,"write_consistency_factor":3}"#).is_ok());
    }

    #[test]
    fn a_body_of_tiny_points_ends_where_a_binary_one_would() {
        let body = |points: usize| format!("{{\"points\":[{}]}}", vec!["{}"; points].join(","));
        assert!(envelope(IngestRoute::Batch, &body(limits::JSON_INGEST_MAX_POINTS)).is_ok());
        let refused = envelope(IngestRoute::Batch, &body(limits::JSON_INGEST_MAX_POINTS + 1));
        assert!(refused.is_err_and(|error| error == "request body too large: at most 262144 points"));
    }

    /// REST took what TCP refuses.
    #[test]
    fn deadlines_are_bounded_as_over_tcp() {
        for ttl_ms in [i64::MIN, -1, 0, 9_223_372_036_854] {
            assert!(
                write(format!(r#"{{"ttl_ms":{ttl_ms},"key_ttl_ms":{{"a":{ttl_ms}}}}}"#).as_bytes()).is_ok()
            );
        }
        for body in [r#"{"ttl_ms":9223372036855}"#, r#"{"key_ttl_ms":{"a":9223372036855}}"#] {
            let error = write(body.as_bytes()).unwrap_err();
            assert!(
                error.message.contains("9223372036855 is out of range: at most 9223372036854"),
                "{error}"
            );
        }
    }

    /// The key `upsert` of points used to be ignored, so that they were inserted.
    #[test]
    fn a_batch_is_written_as_it_says_or_else_as_all_its_points_say() {
        let mode = |body: &str| envelope(IngestRoute::Batch, body).map(|batch| batch.mode);
        for (body, expected) in [
            (r#"{"points":[{"upsert":true},{"upsert":true}]}"#, WriteMode::Upsert),
            (r#"{"points":[{"upsert":false},{}]}"#, WriteMode::Insert),
            (r#"{"points":[{"upsert":true},{}],"upsert":true}"#, WriteMode::Upsert),
            (r#"{"upsert":false,"points":[{"upsert":true}]}"#, WriteMode::Insert),
            (r#"{"upsert":null,"points":[{"upsert":true}]}"#, WriteMode::Upsert),
            (r#"{"points":[{"upsert":true}],"points":[{},{}]}"#, WriteMode::Insert),
            (r#"{"points":[{"upsert":true},{},{"upsert":true}]}"#, WriteMode::Insert),
            (r#"{"points":[]}"#, WriteMode::Insert),
        ] {
            assert_eq!(mode(body), Ok(expected), "{body}");
        }
        let staged = envelope(IngestRoute::Staging, r#"{"points":[{"vector":[1]}],"upsert":true}"#);
        assert!(staged.is_err_and(|error| error.contains("upsert is not possible when staging")));
    }

    #[test]
    fn batches() {
        let batch = envelope(
            IngestRoute::Batch,
            r#"{"points":[{"id":1,"vector":[1,2]},{"id":2,"vector":[3,4],"upsert":false,"expected_version":0}],"upsert":true}"#,
        )
        .unwrap();
        assert_eq!((batch.mode, batch.dim, batch.points.len()), (WriteMode::Upsert, 2, 2));
        assert_eq!(batch.points[1].expected_version, Some(0));
        assert!(matches!(batch.vectors, Vectors::Native(flat) if flat == [1.0, 2.0, 3.0, 4.0]));

        let mixed =
            envelope(IngestRoute::Batch, r#"{"points":[{"vector":[1,2]},{"vector":[3]},{}]}"#).unwrap();
        let Vectors::PerPoint(vectors) = mixed.vectors else { panic!("mixed lengths in one buffer") };
        assert_eq!(vectors, [vec![1.0, 2.0], vec![3.0], vec![]]);
    }

    #[test]
    fn batch_and_staging_refusals() {
        use IngestRoute::{Batch, Staging};
        let many: Vec<String> = (0..=limits::PAYLOAD_KEYS_MAX).map(|key| format!("\"{key}\":1")).collect();
        let many = format!(r#"{{"key_ttl_ms":{{{}}}}}"#, many.join(","));
        for (route, point, fragment) in [
            (Batch, r#"{"id":7,"wait":false}"#, "points[1] with id 7: "),
            (Batch, r#"{"write_consistency_factor":1}"#, "not possible in a batch"),
            (
                Batch,
                r#"{"sparse":{"indices":[3,1],"values":[1,1]}}"#,
                "points[1] without an id: sparse: indices must be",
            ),
            (Batch, r#"{"vektor":[]}"#, "invalid JSON body: points[1]: unknown field \"vektor\""),
            (Staging, r#"{"content":"x"}"#, "content"),
            (Staging, r#"{"sparse":{}}"#, "sparse"),
            (Staging, r#"{"ttl_ms":1}"#, "ttl_ms"),
            (Staging, r#"{"key_ttl_ms":{"a":1}}"#, "key_ttl_ms"),
            (Batch, &many, "points[1]: field \"key_ttl_ms\": at most 16384 keys"),
            (Staging, r#"{"expected_version":0}"#, "expected_version"),
            (Staging, r#"{"vector":[1,2]}"#, "dimension mismatch"),
        ] {
            let body = format!(r#"{{"points":[{{"vector":[1]}},{point}]}}"#);
            let message = envelope(route, &body).expect_err(&body);
            assert!(message.contains(fragment), "{body}: {message}");
        }
        let taken = r#"{"points":[{"vector":[1],"content":"","sparse":null,"ttl_ms":0,"key_ttl_ms":{}}]}"#;
        assert_eq!(envelope(Staging, taken).unwrap().points.len(), 1);
    }

    fn answered(conditions: &[(u64, Option<u64>)], written: Vec<Written>) -> String {
        let mut batch = BatchBuilder::new();
        for (id, expected_version) in conditions {
            let fields = PointFields { id: *id, expected_version: *expected_version, ..Default::default() };
            batch.push(vec![], fields);
        }
        let mut pages =
            BatchPages::before(batch.finish(WriteMode::Insert).points.iter(), false).after(written);
        let mut out = Vec::new();
        pages.write(&mut out);
        while !pages.is_done() {
            pages.write(&mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn answers() {
        let ok = |version| Written::Ok { version };
        assert_eq!(answered(&[(1, None), (2, None)], vec![ok(1), ok(1)]), "{\"count\":2}\n");
        assert_eq!(answered(&[], vec![]), "{\"count\":0}\n");
        assert_eq!(
            answered(&[(1, Some(2)), (2, None)], vec![ok(3), Written::Conflict]),
            "{\"results\":[{\"id\":1,\"version\":3,\"status\":\"ok\"},{\"id\":2,\"status\":\"conflict\"}]}\n"
        );
        let many: Vec<_> = (0..10_000).map(|id| (id, Some(0))).collect();
        let answer: serde_json::Value = serde_json::from_str(&answered(&many, vec![ok(1); 10_000])).unwrap();
        assert_eq!(answer["results"].as_array().unwrap().len(), 10_000);
    }
}
