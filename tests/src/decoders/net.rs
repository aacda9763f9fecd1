//! Decoders of what clients send over REST: targets, JSON bodies, binary bodies.

use nigh_engine::payload::PayloadRow;
use nigh_net::op::ApiError;
use nigh_net::rest::{IngestRoute, probe};
use nigh_shard::core::{Vectors, WriteBatch};
use serde_json::Value;

const NOW_MS: u64 = 1_000;
/// How a body may be cut by the network.
const PIECES: [usize; 3] = [1, 7, usize::MAX];

/// What any accepted batch fulfils: rows verify, answers made of them are JSON, vectors fit.
fn check_batch(batch: &WriteBatch) {
    for point in &batch.points {
        PayloadRow::verify(&point.row).expect("an accepted payload is a whole row");
        check_answers(&point.row);
    }
    match &batch.vectors {
        Vectors::Native(floats) => assert_eq!(floats.len(), batch.points.len() * batch.dim),
        Vectors::BigEndianRows(rows) => assert_eq!(rows.len(), batch.points.len() * (8 + 4 * batch.dim)),
        Vectors::PerPoint(vectors) => assert_eq!(vectors.len(), batch.points.len()),
        Vectors::Named(vectors) => assert_eq!(vectors.len(), batch.points.len()),
    }
}

fn check_answers(row: &[u8]) {
    let (payload, document) = probe::answers(row, NOW_MS);
    for answer in [payload, document] {
        let json: Result<Value, _> = serde_json::from_slice(&answer);
        assert!(json.is_ok(), "{:?} of {row:?}: {json:?}", String::from_utf8_lossy(&answer));
    }
}

/// The text of a refusal, or how an accepted value prints.
fn outcome<T: std::fmt::Debug>(result: &Result<T, ApiError>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => error.message.clone(),
    }
}

/// `RVB1`: the same however it is cut, on both routes.
pub(super) fn binary_ingest(body: &[u8]) {
    for route in [IngestRoute::Batch, IngestRoute::Staging] {
        let results = PIECES.map(|piece| probe::ingest(body, route, piece, NOW_MS));
        if let Ok(batch) = &results[0] {
            check_batch(batch);
        }
        for other in &results[1..] {
            assert_eq!(results[0].is_ok(), other.is_ok(), "{} or {}", outcome(&results[0]), outcome(other));
            if other.is_ok() {
                assert_eq!(outcome(&results[0]), outcome(other));
            }
        }
    }
}

pub(super) fn binary_ingest_seeds() -> Vec<Vec<u8>> {
    let frame = |flags: u32, dim: u32, rows: &[(u64, &[f32])], payloads: &[&str]| {
        let mut body = b"RVB1".to_vec();
        for word in [flags, rows.len() as u32, dim] {
            body.extend(word.to_be_bytes());
        }
        for (id, vector) in rows {
            body.extend(id.to_be_bytes());
            body.extend(vector.iter().flat_map(|component| component.to_be_bytes()));
        }
        for payload in payloads {
            body.extend((payload.len() as u32).to_be_bytes());
            body.extend(payload.as_bytes());
        }
        body
    };
    vec![
        frame(0, 0, &[], &[]),
        frame(0, 2, &[(1, &[0.5, -1.0]), (u64::MAX, &[0.0, 3.0])], &[]),
        frame(2, 1, &[(7, &[1.0])], &[]),
        frame(
            3,
            1,
            &[(7, &[1.0]), (8, &[2.0]), (9, &[3.0])],
            &[r#"{"lang":{"kind":"string","str":"en"},"$content":{"kind":"string","str":"x"}}"#, "", "null"],
        ),
        frame(
            1,
            1,
            &[(7, &[1.0])],
            &[r#"{"g":{"kind":"geo","lat":1.5},"n":{"kind":"ints","ints":[1,-2]},"z":null}"#],
        ),
    ]
}

/// `RVQ1`.
pub(super) fn binary_query(body: &[u8]) {
    match probe::search(body, true) {
        Ok(search) => assert!(search.vector.iter().all(|component| component.is_finite())),
        // Clients that read these words stop sending binary queries for good.
        Err(error) => assert!(!error.message.contains("invalid JSON body"), "{}", error.message),
    }
}

pub(super) fn binary_query_seeds() -> Vec<Vec<u8>> {
    let frame = |flags: u32, k: u32, vector: &[f32], filter: &str| {
        let mut body = b"RVQ1".to_vec();
        for word in [flags, k, vector.len() as u32] {
            body.extend(word.to_be_bytes());
        }
        body.extend([1, 0, 0, 0]);
        body.extend(9u64.to_be_bytes());
        body.extend(vector.iter().flat_map(|component| component.to_be_bytes()));
        if flags == 1 {
            body.extend((filter.len() as u32).to_be_bytes());
            body.extend(filter.as_bytes());
        }
        body
    };
    vec![
        frame(0, 10, &[], ""),
        frame(0, 1, &[0.5, -2.0], ""),
        frame(1, 5, &[1.0], r#"{"op":"eq","field":"lang","value":{"kind":"string","str":"en"}}"#),
        frame(
            1,
            5,
            &[1.0],
            r#"{"op":"and","and":[{"op":"not","not":{"op":"in","field":"y","value":{"kind":"ints","ints":[1]}}}]}"#,
        ),
    ]
}

/// Every JSON body, each as each: the same however it is cut, and what is accepted is JSON.
pub(super) fn json_body(body: &[u8]) {
    let single = probe::write(body, NOW_MS);
    if let Ok(batch) = &single {
        check_batch(batch);
    }
    let many = PIECES.map(|piece| probe::write_many(body, piece, NOW_MS));
    for other in &many[1..] {
        assert_eq!(many[0].is_ok(), other.is_ok(), "{} or {}", outcome(&many[0]), outcome(other));
        if other.is_ok() {
            assert_eq!(outcome(&many[0]), outcome(other));
        }
    }
    if let Ok((batches, _)) = &many[0] {
        batches.iter().for_each(check_batch);
    }
    let ids = PIECES.map(|piece| probe::batch_get(body, piece));
    assert!(ids.iter().all(|other| other.is_ok() == ids[0].is_ok()));
    let search = probe::search(body, false);
    let scroll = probe::scroll(body);
    let payload = probe::payload_changes(body);
    let create = probe::create(body);
    let lanes = probe::lanes(body);
    let whole = [single.is_ok(), search.is_ok(), scroll.is_ok(), payload.is_ok(), create.is_ok(), lanes];
    if whole.contains(&true) {
        let json: Result<Value, _> = serde_json::from_slice(body);
        assert!(json.is_ok(), "{json:?}");
    }
}

pub(super) fn json_body_seeds() -> Vec<Vec<u8>> {
    [
        r#"{"id":1,"vector":[0.5,-1e3],"content":"text","metadata":{"a":{"kind":"int","int":-5},"b":null,"c":{"kind":"strings","strs":["x",""]},"d":1.5},"ttl_ms":10,"key_ttl_ms":{"a":50},"upsert":true,"expected_version":3,"wait":true}"#,
        r#"{"points":[{"id":1,"vector":[1]},{"id":2,"vector":[2,3],"sparse":{"indices":[1,2],"values":[0.5,1]}}],"upsert":true}"#,
        r#"{"Points" : [ ] , "upsert" : null}"#,
        r#"{"ids":[1,2,18446744073709551615],"with_vector":false,"with_payload":true}"#,
        r#"{"query":[1,2],"k":3,"filter":{"op":"or","or":[{"op":"eq","field":"f","value":{"kind":"geo","lat":1,"lon":2}},{"op":"regex","field":"g","value":"a+"}]},"read_consistency":1,"max_staleness":5}"#,
        r#"{"filter":{"op":"geo_radius","field":"g","geo":{"center_lat":1,"center_lon":2,"radius_m":3}},"limit":10,"cursor":"AQAAAAAAAAAB"}"#,
        r#"{"filter":{"and":[{"op":"geo_polygon","field":"g","geo":{"polygon":[0,0,1,0,0,1]}},{"op":"dt_gt","field":"t","value":"2024-01-01T00:00:00Z"}]}}"#,
        r#"{"name":"acme/docs","config":{"dim":4,"metric":"l2","m":16,"ef_construction":100,"seed":-1,"index_type":"hnsw","full_text":null,"max_vectors":5}}"#,
        r#"{"dense":[1,2],"sparse":{"indices":[1,7],"values":[0.5,1]},"k":3,"method":"weighted","alpha":0.3,"dense_k":60}"#,
        r#"{"vector":[1,2],"text":"some words","k":3,"rrf_k":10,"global_idf":true}"#,
        r#"{"query":[1,2],"k":3,"group_by":"g","group_size":2,"fetch_k":90}"#,
        r#"{"prefetch":[{"sparse":{"indices":[1],"values":[2]},"lane_k":5},{"recommend":{"positive":[1],"negative":[2],"strategy":"best"}},{"discover":{"target":0,"context":[{"positive":1,"negative":2},{"positive_vec":[1],"negative_vec":[2]}]}}],"root":{"dense":[1,2]},"mode":"rerank"}"#,
        "null",
        r#"{"\u0069d":7,"id":8,"vector":[]}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

/// Method, path and query of a request, as one line.
pub(super) fn request_target(line: &[u8]) {
    let Ok(line) = std::str::from_utf8(line) else { return };
    let (method, target) = line.split_once(' ').unwrap_or(("GET", line));
    let Ok(method) = method.parse() else { return };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if let Ok(Some((_, collection))) = probe::target(&method, path, query) {
        assert!(collection.len() <= 247, "{collection:?}");
    }
}

pub(super) fn request_target_seeds() -> Vec<Vec<u8>> {
    [
        "GET /v1/health",
        "POST /v1/collections",
        "DELETE /v1/collections/acme%2Fdocs",
        "GET /v1/collections/docs/points/18446744073709551615?with_vector=false&read_consistency=2&max_staleness=5",
        "POST /v1/collections/docs/points/search/docs",
        "DELETE /v1/collections/%C3%A4/points/7?expected_version=1&wait=T&write_consistency_factor=0",
        "POST /v1/collections/..%2Fx/points/bulk/build",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

/// A stored row, however strange, makes answers that are JSON.
pub(super) fn stored_row_answer(row: &[u8]) {
    if PayloadRow::verify(row).is_ok() {
        check_answers(row);
    }
}
