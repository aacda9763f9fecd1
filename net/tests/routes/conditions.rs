//! Conditions and options, wherever a request states them; and what is said of requests that were meant otherwise.
use crate::common::server::{Client, SHARED};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::io::Write;

const OCTETS: &str = "application/octet-stream";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Status and text of a request with headers of its own.
fn with_headers(client: &mut Client, method: &str, path: &str, headers: &str, body: &[u8]) -> (u16, String) {
    // A media type ends its line; further headers may follow it.
    let answer = client.request(method, path, &format!("application/json\r\n{headers}"), body);
    (answer.status, answer.text().to_owned())
}

/// `?expected_verison=99` deleted the point.
#[test]
fn unknown_query_parameters_are_refused_on_every_route() {
    let mut client = SHARED.client();
    client.create("strict", 1, "l2");
    let points = "/v1/collections/strict/points";
    client.json("POST", points, json!({"id": 1, "vector": [1]}));
    let one = format!("{points}/1");
    client.refused(
        "DELETE",
        &format!("{one}?expected_verison=99"),
        "",
        400,
        "unknown query parameter \"expected_verison\"; \
         it must be one of write_consistency_factor, wait, expected_version",
    );
    assert_eq!(client.json("GET", &one, Value::Null)["version"], 1);
    let document = client.json("GET", "/v1/openapi.json", Value::Null);
    let mut tried = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, _) in methods.as_object().unwrap() {
            let path = path
                .replace("{name}", "strict")
                .replace("{id}", "1")
                .replace("{alias}", "a")
                .replace("{space}", "s");
            let method = method.to_uppercase();
            client.refused(&method, &format!("{path}?nope=1"), "", 400, "unknown query parameter \"nope\"");
            tried += 1;
        }
    }
    assert!(tried > 40, "{tried}");
    client.refused("GET", "/v1/health?verbose", "", 400, "this route takes none");
    client.refused("GET", &format!("{one}?with_vectors=false"), "", 400, "with_vector, with_payload");
    client.refused("GET", &format!("{one}?with_vector=no"), "", 400, "with_vector: \"no\" is not a boolean");
    client.refused("GET", &format!("{one}?with_vector=0&with_vector=1"), "", 400, "twice");
}

#[test]
fn write_options_count_in_query_and_body() {
    let mut client = SHARED.client();
    client.create("written", 1, "l2");
    let points = "/v1/collections/written/points";
    let one = format!("{points}/1");
    client.json("POST", points, json!({"id": 1, "vector": [1]}));
    let upsert = r#"{"id":1,"vector":[2],"upsert":true}"#;
    client.refused("POST", &format!("{points}?expected_version=9"), upsert, 409, "version conflict");
    let both = r#"{"id":1,"vector":[2],"upsert":true,"expected_version":1}"#;
    client.refused(
        "POST",
        &format!("{points}?expected_version=2"),
        both,
        400,
        "expected_version is 2 in the query string and 1 in the body",
    );
    client.golden("POST", &format!("{points}?expected_version=1"), both, 200, r#"{"id":1}"#);
    client.refused("POST", &format!("{points}?write_consistency_factor=-1"), upsert, 400, "negative");
    // Bodies of these two were not read.
    client.refused("DELETE", &one, r#"{"expected_version":9}"#, 409, "version conflict");
    client.refused("DELETE", &one, r#"{"expected_verison":9}"#, 400, "unknown field \"expected_verison\"");
    let clear = format!("{one}/payload/clear");
    client.refused("POST", &clear, r#"{"expected_version":9}"#, 409, "version conflict");
    client.golden("POST", &clear, "whatever", 200, r#"{"applied":true}"#);
    let delete = format!("{one}/payload/delete");
    client.refused("POST", &delete, r#"{"keys":[],"expected_version":9}"#, 409, "version conflict");
    let filter = r#"{"filter":{"op":"eq","field":"n","value":1},"wait":true}"#;
    let by_filter = format!("{points}/delete");
    client.refused("POST", &format!("{by_filter}?wait=false"), filter, 400, "wait is false in the query");
    client.refused("POST", &format!("{by_filter}?expected_version=1"), filter, 400, "unknown query");
    client.golden("POST", &format!("{by_filter}?wait=1"), filter, 200, r#"{"deleted":0}"#);
    let batch = format!("{points}/batch");
    client.refused("POST", &format!("{batch}?wait=0"), r#"{"points":[]}"#, 400, "not possible in a batch");
    client.golden("POST", &format!("{batch}?wait=1"), r#"{"points":[]}"#, 200, r#"{"count":0}"#);
    let build = format!("{points}/bulk/build");
    client.refused("POST", &build, r#"{"wiat":false}"#, 400, "unknown field \"wiat\"");
    client.refused(
        "POST",
        &format!("{build}?workers=2"),
        r#"{"workers":3}"#,
        400,
        "workers is 2 in the query",
    );
    client.golden("DELETE", &one, "", 200, r#"{"deleted":true}"#);
    client.golden("POST", &format!("{build}?wait=false&workers=2"), "not read", 200, r#"{"status":"built"}"#);
    for header in ["If-Match: \"1\"", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"] {
        let (status, text) = with_headers(&mut client, "DELETE", &one, header, b"");
        assert!(status == 400 && text.contains("expected_version is the condition"), "{status} {text}");
    }
}

#[test]
fn read_options_count_in_query_and_body() {
    let mut client = SHARED.client();
    client.create("read", 1, "l2");
    let points = "/v1/collections/read/points";
    client.json("POST", points, json!({"id": 1, "vector": [1], "metadata": {"a": 1}}));
    let one = format!("{points}/1");
    assert_eq!(client.json("GET", &one, json!({"with_vector": false}))["vector"], Value::Null);
    client.refused("GET", &one, r#"{"read_consistency":4}"#, 400, "read_consistency must be 0, 1, 2 or 3");
    let ids = r#"{"ids":[1],"with_payload":true}"#;
    let read = client.json("POST", &format!("{points}/batch-get?with_vector=false"), json!({"ids": [1]}));
    assert_eq!(read["points"][0]["vector"], Value::Null);
    client.refused("POST", &format!("{points}/batch-get?with_payload=0"), ids, 400, "with_payload is false");
    for (route, body) in [
        ("points/search", json!({"query": [0], "k": 1})),
        ("points/search/docs", json!({"query": [0], "k": 1})),
        ("points/search/groups", json!({"query": [0], "k": 1, "group_by": "a"})),
        ("points/search/mmr", json!({"query": [0], "k": 1})),
        ("points/search/hybrid", json!({"dense": [0], "k": 1})),
        ("points/scroll", json!({})),
        ("query", json!({"prefetch": [{"dense": [0]}]})),
    ] {
        let path = format!("/v1/collections/read/{route}");
        let right = format!("{path}?read_consistency=1&on_partition_unavailable=&max_staleness=5");
        client.json("POST", &right, body.clone());
        let text = body.to_string();
        client.refused("POST", &format!("{path}?read_consistency=4"), &text, 400, "read_consistency must be");
        let mut other = body.clone();
        other["max_staleness"] = json!(6);
        client.refused(
            "POST",
            &right,
            &other.to_string(),
            400,
            "max_staleness is 5 in the query string and 6",
        );
        client.refused("POST", &format!("{path}?k=3"), &text, 400, "unknown query parameter \"k\"");
    }
    let mut binary = b"RVQ1\0\0\0\0\0\0\0\x01\0\0\0\x01\x02\0\0\0".to_vec();
    binary.extend_from_slice(&[0; 12]);
    let search = format!("{points}/search");
    assert_eq!(client.request("POST", &format!("{search}?max_staleness=5"), OCTETS, &binary).status, 200);
    let answer = client.request("POST", &format!("{search}?read_consistency=1"), OCTETS, &binary);
    assert!(answer.status == 400 && answer.text().contains("read_consistency is 1"), "{}", answer.text());
}

#[test]
fn compressed_bodies_are_read_or_named() {
    let mut client = SHARED.client();
    client.create("packed", 2, "l2");
    let points = "/v1/collections/packed/points";
    let body = br#"{"id":1,"vector":[1,0]}"#;
    let packed = |client: &mut Client, path: &str, encoding: &str, body: &[u8]| {
        with_headers(client, "POST", path, &format!("Content-Encoding: {encoding}"), body)
    };
    assert_eq!(packed(&mut client, points, "gzip", &gzip(body)), (200, "{\"id\":1}\n".to_owned()));
    // 4 MB of text in a few KB: many pieces, and both halves of a batch in streams of their own.
    let batch: Vec<Value> =
        (2..20_000).map(|id| json!({"id": id, "vector": [id, 0], "content": "x".repeat(150)})).collect();
    let text = json!({ "points": batch }).to_string().into_bytes();
    let (head, tail) = text.split_at(text.len() / 2);
    let both = [gzip(head), gzip(tail)].concat();
    assert!(both.len() * 8 < text.len());
    let answer = packed(&mut client, &format!("{points}/batch"), "x-gzip", &both);
    assert_eq!(answer, (200, "{\"count\":19998}\n".to_owned()));
    let (status, text) = packed(&mut client, points, "gzip", body);
    assert!(status == 400 && text.contains("not valid gzip"), "{text}");
    let (status, text) = packed(&mut client, points, "gzip", &gzip(body)[..20]);
    assert!(status == 400 && text.contains("not valid gzip"), "{text}");
    let (status, text) = packed(&mut client, points, "br", body);
    assert!(status == 415 && text.contains("content-encoding \\\"br\\\" is not supported"), "{text}");
    // The limit is one of decoded bytes.
    let (status, text) = packed(&mut client, points, "gzip", &gzip(&vec![b' '; (32 << 20) + 1]));
    assert!(status == 413 && text.contains("request body too large: at most 33554432 bytes"), "{text}");
    for path in [points.to_owned(), format!("{points}/batch")] {
        let answer = client.request("POST", &path, "application/json", &gzip(body));
        assert_eq!(answer.status, 400);
        let expected =
            "invalid JSON body: the body is compressed; say so with the header Content-Encoding: gzip";
        assert!(answer.text().contains(expected), "{}", answer.text());
    }
}

#[test]
fn errors_say_what_was_meant() {
    let mut client = SHARED.client();
    client.create("told", 2, "l2");
    let points = "/v1/collections/told/points";
    client.refused(
        "POST",
        "/v1/collections",
        r#"{"name":"x"}"#,
        400,
        "config is missing; it is an object with dim",
    );
    client.refused(
        "POST",
        "/v1/collections",
        r#"{"name":"x","config":{}}"#,
        400,
        "invalid Dim: it is missing",
    );
    client.refused("POST", "/v1/collections", r#"{"config":{"dim":2}}"#, 400, "name is required");
    client.refused("POST", points, r#"{"id":1}"#, 400, "dimension mismatch: expected 2, found no vector");
    let search = format!("{points}/search");
    client.refused("POST", &search, r#"{"k":1}"#, 400, "dimension mismatch: expected 2, found no vector");
    client.refused(
        "POST",
        points,
        r#"{"id":"7","vector":[1,2]}"#,
        400,
        r#"invalid JSON body: field "id": invalid type: string "7", expected an integer between 0 and 18446744073709551615, without quotes"#,
    );
    let get = format!("{points}/batch-get");
    client.refused(
        "POST",
        &get,
        r#"{"ids":["7"]}"#,
        400,
        "expected an integer between 0 and 18446744073709551615",
    );
    for (route, body, fragment) in [
        (
            "batch",
            r#"{"points":[{"id":5,"vector":[1,2]},{"id":77,"vector":[1]}]}"#,
            "points[1] with id 77: vector: dim",
        ),
        ("bulk", r#"{"points":[{"id":77}]}"#, "points[0] with id 77: vector: dimension mismatch"),
    ] {
        client.json("DELETE", &format!("{points}/5"), Value::Null);
        client.refused("POST", &format!("{points}/{route}"), body, 400, fragment);
    }
    client.json("DELETE", &format!("{points}/5"), Value::Null);
    // Rows of a machine that puts the low byte first were 16,777,216 points too many.
    let mut rows = b"RVB1".to_vec();
    for word in [0_u32, 1, 2] {
        rows.extend_from_slice(&word.to_le_bytes());
    }
    rows.extend_from_slice(&[0; 16]);
    let answer = client.request("POST", &format!("{points}/batch"), OCTETS, &rows);
    assert_eq!(answer.status, 400);
    assert!(
        answer.text().contains("invalid binary bulk body: its integers seem to be little-endian"),
        "{}",
        answer.text()
    );
    rows[..4].copy_from_slice(b"RVQ1");
    rows.resize(36, 0);
    let answer = client.request("POST", &search, OCTETS, &rows);
    assert!(answer.status == 400 && answer.text().contains("seem to be little-endian"), "{}", answer.text());
    client.golden("POST", &format!("{points}/recommend"), "{}", 404, r#"{"error":"not found"}"#);
}

/// A figure of a collection on the page of metrics.
fn figure(client: &mut Client, name: &str, collection: &str) -> f64 {
    let page = client.request("GET", "/metrics", "", b"");
    let line = format!("svc_vector_{name}{{collection=\"default/{collection}\"}} ");
    let found = page.text().lines().find_map(|text| text.strip_prefix(&line));
    found.unwrap_or_else(|| panic!("{line} is not on the page")).parse().unwrap()
}

/// None of these was counted.
#[test]
fn bulk_builds_and_depth_are_measured() {
    let mut client = SHARED.client();
    for (name, quota) in [("counted", 0), ("narrow", 2)] {
        let config = json!({"dim": 1, "metric": "l2", "max_vectors": quota});
        client.json("POST", "/v1/collections", json!({"name": name, "config": config}));
        let points: Vec<Value> = (0..300).map(|id| json!({"id": id, "vector": [id]})).collect();
        client.json("POST", &format!("/v1/collections/{name}/points/bulk"), json!({ "points": points }));
    }
    assert_eq!(figure(&mut client, "insert_latency_seconds_count", "counted"), 0.0);
    client.json("POST", "/v1/collections/counted/points/bulk/build", Value::Null);
    assert_eq!(figure(&mut client, "insert_latency_seconds_count", "counted"), 1.0);
    assert_eq!(figure(&mut client, "insert_ops_total", "counted"), 300.0);
    client.refused("POST", "/v1/collections/narrow/points/bulk/build", "", 429, "collection full");
    assert_eq!(figure(&mut client, "quota_rejects_total", "narrow"), 1.0);
    assert_eq!(figure(&mut client, "insert_latency_seconds_count", "narrow"), 1.0);

    assert_eq!(figure(&mut client, "avg_search_depth", "counted"), 0.0);
    let search = "/v1/collections/counted/points/search";
    let explained = json!({"query": [7], "k": 1, "explain": true});
    let mut distances = 0.0;
    for _ in 0..3 {
        let answer = client.json("POST", search, explained.clone());
        distances += answer["explain"]["lanes"][0]["distances"].as_f64().unwrap();
    }
    let depth = figure(&mut client, "avg_search_depth", "counted");
    assert!(depth >= 1.0 && (depth - distances / 3.0).abs() <= 0.05, "{depth}, {distances} in 3 searches");
}
