//! REST over real sockets, against a node of two cores in memory.
mod device;
mod lanes;

use crate::common::server::{SHARED, Server};
use nigh_net::auth::SingleKey;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn ingest(flags: u32, dim: u32, rows: &[(u64, Vec<f32>)], payloads: &[&str]) -> Vec<u8> {
    let mut body = b"RVB1".to_vec();
    for word in [flags, rows.len() as u32, dim] {
        body.extend_from_slice(&word.to_be_bytes());
    }
    for (id, vector) in rows {
        body.extend_from_slice(&id.to_be_bytes());
        vector.iter().for_each(|value| body.extend_from_slice(&value.to_be_bytes()));
    }
    for payload in payloads {
        body.extend_from_slice(&(payload.len() as u32).to_be_bytes());
        body.extend_from_slice(payload.as_bytes());
    }
    body
}

fn query(k: u32, vector: &[f32], filter: Option<&str>) -> Vec<u8> {
    let mut body = b"RVQ1".to_vec();
    for word in [u32::from(filter.is_some()), k, vector.len() as u32, 0, 0, 0] {
        body.extend_from_slice(&word.to_be_bytes());
    }
    vector.iter().for_each(|value| body.extend_from_slice(&value.to_be_bytes()));
    if let Some(filter) = filter {
        body.extend_from_slice(&(filter.len() as u32).to_be_bytes());
        body.extend_from_slice(filter.as_bytes());
    }
    body
}

const OCTETS: &str = "application/octet-stream";

#[test]
fn health_and_metrics() {
    let mut client = SHARED.client();
    client.golden("GET", "/v1/health", "", 200, r#"{"status":"ok"}"#);
    client.golden("GET", "/v1/ready", "", 200, r#"{"status":"ready"}"#);
    client.golden("GET", "/v1/replication", "", 200, r#"{"shards":[]}"#);
    let head = client.request("HEAD", "/v1/health", "", b"");
    assert_eq!((head.status, head.header("content-length")), (200, Some("16")));
    client.create("measured", 2, "l2");
    client.json("POST", "/v1/collections/measured/points", json!({"id": 1, "vector": [1, 2]}));
    client.json("POST", "/v1/collections/measured/points/search", json!({"query": [1, 2], "k": 1}));
    for path in ["/metrics", "/v1/metrics"] {
        let page = client.request("GET", path, "", b"");
        assert_eq!(page.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        for line in [
            "svc_vector_size{collection=\"default/measured\"} 1\n",
            "svc_vector_search_ops_total{collection=\"default/measured\"} 1\n",
            "svc_vector_insert_ops_total{collection=\"default/measured\"} 1\n",
            "svc_cores 2\n",
            "svc_watchdog_rescues_total{core=\"1\"} ",
            "# TYPE svc_vector_search_latency_seconds histogram\n",
        ] {
            assert!(page.text().contains(line), "{line} is not in\n{}", page.text());
        }
    }
}

#[test]
fn paths_and_methods() {
    let mut client = SHARED.client();
    client.golden("GET", "/v1/nothing", "", 404, r#"{"error":"not found"}"#);
    client.golden("GET", "/v1/health/", "", 404, r#"{"error":"not found"}"#);
    for (method, path, allow) in [
        ("POST", "/v1/health", "GET, HEAD"),
        ("OPTIONS", "/v1/collections", "GET, HEAD, POST"),
        ("POST", "/v1/collections/x", "DELETE, GET, HEAD"),
        ("PATCH", "/v1/collections/x/points/search", "DELETE, GET, HEAD, POST"),
    ] {
        let answer = client.request(method, path, "", b"");
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
        assert_eq!(answer.text(), "{\"error\":\"method not allowed\"}\n");
    }
}

#[test]
fn collections_come_and_go() {
    let mut client = SHARED.client();
    client.create("come", 3, "cosine");
    let again = r#"{"name":"come","config":{"dim":3}}"#;
    client.refused("POST", "/v1/collections", again, 409, "already exists");
    client.refused("POST", "/v1/collections", r#"{"name":"default/come","config":{"dim":3}}"#, 409, "exist");
    client.golden(
        "POST",
        "/v1/collections",
        r#"{"name":"acme/come","config":{"dim":3}}"#,
        201,
        r#"{"name":"acme/come"}"#,
    );
    client.golden(
        "POST",
        "/v1/collections/acme%2Fcome/points",
        r#"{"id":1,"vector":[1,2,3]}"#,
        200,
        r#"{"id":1}"#,
    );
    let dropped = |name: &str, existed: bool| format!(r#"{{"dropped":"{name}","existed":{existed}}}"#);
    client.golden("DELETE", "/v1/collections/acme%2Fcome", "", 200, &dropped("acme/come", true));
    client.golden("DELETE", "/v1/collections/come", "", 200, &dropped("come", true));
    client.golden("DELETE", "/v1/collections/come", "", 200, &dropped("come", false));
    client.refused(
        "POST",
        "/v1/collections/come/points",
        r#"{"id":1,"vector":[1,2,3]}"#,
        404,
        "unknown collection",
    );
    client.create("come", 2, "l2");
}

#[test]
fn create_refusals() {
    let mut client = SHARED.client();
    let long = "x".repeat(248);
    for (body, fragment) in [
        ("".to_owned(), "invalid JSON body:"),
        ("{".to_owned(), "invalid JSON body:"),
        (r#"{"name":"a","wat":1}"#.to_owned(), "unknown field \"wat\""),
        (r#"{"name":"a"}"#.to_owned(), "invalid Dim"),
        (r#"{"name":"a","config":{"dim":-1}}"#.to_owned(), "dim"),
        (r#"{"name":"a","config":{"dim":65537}}"#.to_owned(), "invalid Dim"),
        (r#"{"name":"a","config":{"dim":2,"m":129}}"#.to_owned(), "invalid M"),
        (
            r#"{"name":"a","config":{"dim":2,"metric":"manhattan"}}"#.to_owned(),
            "unknown metric \"manhattan\"",
        ),
        (r#"{"name":"a","config":{"dim":2,"index_type":"gpu"}}"#.to_owned(), "not compiled"),
        (r#"{"name":"a","config":{"dim":2,"partitions":2}}"#.to_owned(), "partitions"),
        (format!(r#"{{"name":"{long}","config":{{"dim":2}}}}"#), "collection name too long"),
    ] {
        client.refused("POST", "/v1/collections", &body, 400, fragment);
    }
    for name in ["", "a/", "/b", "a/b/c", "..", "a/..", "a#1", "a@1", "a\\u0000b", "a\\nb"] {
        let body = format!(r#"{{"name":"{name}","config":{{"dim":2}}}}"#);
        let (status, text) = client.text("POST", "/v1/collections", &body);
        assert_eq!(status, 400, "{name}: {text}");
    }
    let path = format!("/v1/collections/{long}/points");
    client.refused("POST", &path, "{}", 400, "collection name too long");
    client.refused("POST", "/v1/collections/%zz/points", "{}", 400, "invalid path");
    for name in ["a%2F", "%2Fb", "a%2Fb%2Fc", "%2e%2e", "nowhere"] {
        let path = format!("/v1/collections/{name}/points/search");
        client.refused("POST", &path, r#"{"query":[1],"k":1}"#, 404, "unknown collection");
    }
}

#[test]
fn one_point() {
    let mut client = SHARED.client();
    client.create("one", 3, "cosine");
    let points = "/v1/collections/one/points";
    let as_sent = r#"{"id": 42, "vector": [3.0, 0.0, 4.0], "content": "hello", "ttl_ms": 0,
        "metadata": {"city": {"kind": "string", "str": "Oslo"}, "n": {"kind": "int"}, "t": ["a", "b"]}, "upsert": false}"#;
    client.golden("POST", points, as_sent, 200, r#"{"id":42}"#);
    client.golden(
        "GET",
        "/v1/collections/one/points/42",
        "",
        200,
        r#"{"found":true,"vector":[0.6,0.0,0.8],"payload":{"$content":{"kind":"string","str":"hello"},"city":{"kind":"string","str":"Oslo"},"n":{"kind":"int"},"t":{"kind":"strings","strs":["a","b"]}},"ttl_ms":0,"version":1}"#,
    );
    client.golden(
        "GET",
        "/v1/collections/one/points/42?with_vector=false&with_payload=0&read_consistency=2",
        "",
        200,
        r#"{"found":true,"vector":null,"payload":null,"ttl_ms":0,"version":1}"#,
    );
    client.refused("POST", points, as_sent, 409, "already present");
    client.refused(
        "POST",
        points,
        r#"{"id":42,"vector":[1,0,0],"upsert":true,"expected_version":9}"#,
        409,
        "version conflict",
    );
    client.golden(
        "POST",
        points,
        r#"{"id":42,"vector":[1,0,0],"upsert":true,"expected_version":1}"#,
        200,
        r#"{"id":42}"#,
    );
    client.golden(
        "GET",
        "/v1/collections/one/points/42",
        "",
        200,
        r#"{"found":true,"vector":[1.0,0.0,0.0],"payload":null,"ttl_ms":0,"version":2}"#,
    );
    // A refused upsert leaves the stored point alone.
    client.refused("POST", points, r#"{"id":42,"vector":[1,0],"upsert":true}"#, 400, "dimension mismatch");
    client.refused("POST", points, r#"{"id":43}"#, 400, "dimension mismatch");
    assert_eq!(client.json("GET", "/v1/collections/one/points/42", Value::Null)["version"], 2);

    client.golden("POST", points, r#"{"vector":[0,0,0],"expected_version":0}"#, 200, r#"{"id":0}"#);
    client.golden(
        "POST",
        points,
        r#"{"id":18446744073709551615,"vector":[0,1,0],"ttl_ms":600000}"#,
        200,
        r#"{"id":18446744073709551615}"#,
    );
    let stored = client.json("GET", "/v1/collections/one/points/18446744073709551615", Value::Null);
    let ttl_ms = stored["ttl_ms"].as_u64().unwrap();
    assert!((1..=600_000).contains(&ttl_ms), "{ttl_ms}");

    client.refused("GET", "/v1/collections/one/points/7", "", 404, "point not found");
    for id in ["abc", "-1", "1.5", "18446744073709551616", "batch"] {
        client.refused("GET", &format!("/v1/collections/one/points/{id}"), "", 400, "invalid id:");
    }
    client.refused("GET", "/v1/collections/one/points/1?read_consistency=4", "", 400, "read_consistency");
    client.refused(
        "GET",
        "/v1/collections/one/points/1?on_partition_unavailable=x",
        "",
        400,
        "on_partition_unavailable",
    );
    client.refused("DELETE", "/v1/collections/one/points/42?expected_version=7", "", 409, "version conflict");
    client.refused("DELETE", "/v1/collections/one/points/42?wait=maybe", "", 400, "wait");
    client.refused(
        "DELETE",
        "/v1/collections/one/points/42?write_consistency_factor=-1",
        "",
        400,
        "write_consistency_factor",
    );
    client.golden(
        "DELETE",
        "/v1/collections/one/points/42?wait=&expected_version=2",
        "",
        200,
        r#"{"deleted":true}"#,
    );
    client.golden("DELETE", "/v1/collections/one/points/42", "", 200, r#"{"deleted":false}"#);
    client.golden(
        "DELETE",
        "/v1/collections/one/points/42?expected_version=0",
        "",
        200,
        r#"{"deleted":false}"#,
    );
    client.refused("DELETE", "/v1/collections/one/points/42?expected_version=1", "", 409, "version conflict");
}

#[test]
fn times_to_live() {
    let mut client = SHARED.client();
    client.create("brief", 1, "l2");
    let points = "/v1/collections/brief/points";
    client.json("POST", points, json!({"id": 1, "vector": [1], "ttl_ms": 30}));
    client.json("POST", points, json!({"id": 2, "vector": [2], "metadata": {"a": 1, "b": 2}, "key_ttl_ms": {"a": 30, "b": -5, "zz": 9}}));
    std::thread::sleep(Duration::from_millis(60));
    client.refused("GET", "/v1/collections/brief/points/1", "", 404, "point not found");
    client.golden(
        "POST",
        "/v1/collections/brief/points/search/docs",
        r#"{"query":[0],"k":10}"#,
        200,
        r#"{"documents":[{"id":2,"distance":4.0,"score":0,"content":"","metadata":{"b":{"kind":"int","int":2}}}],"degraded":false,"missing":[]}"#,
    );
    client.golden("POST", points, r#"{"id":1,"vector":[5]}"#, 200, r#"{"id":1}"#);
    // The point that has expired had version 1, and no version is given twice to one id.
    assert_eq!(client.json("GET", "/v1/collections/brief/points/1", Value::Null)["version"], 2);
}

#[test]
fn batches() {
    let mut client = SHARED.client();
    client.create("batch", 2, "l2");
    let path = "/v1/collections/batch/points/batch";
    client.golden("POST", path, r#"{"points":[]}"#, 200, r#"{"count":0}"#);
    client.golden(
        "POST",
        path,
        r#"{"upsert":false,"points":[{"id":1,"vector":[1,0]},{"id":2,"vector":[2,0]}]}"#,
        200,
        r#"{"count":2}"#,
    );
    client.golden(
        "POST",
        path,
        r#"{"points":[{"id":1,"vector":[1,1],"expected_version":1},{"id":2,"vector":[2,2],"expected_version":5},{"id":3,"vector":[3,3]}],"upsert":true}"#,
        200,
        r#"{"results":[{"id":1,"version":2,"status":"ok"},{"id":2,"status":"conflict"},{"id":3,"version":1,"status":"ok"}]}"#,
    );
    let (status, text) = client.text(
        "POST",
        path,
        r#"{"points":[{"id":4,"vector":[4,4]},{"id":5,"vector":[5]},{"id":6,"vector":[6,6]}]}"#,
    );
    let error: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &error["committed"]), (400, &json!(1)), "{text}");
    assert!(error["error"].as_str().unwrap().contains("dimension mismatch"), "{text}");
    let (status, text) =
        client.text("POST", path, r#"{"points":[{"id":7,"vector":[7,7]},{"id":1,"vector":[0,0]}]}"#);
    assert_eq!(
        (status, text.contains("already present"), text.contains("\"committed\":1")),
        (409, true, true),
        "{text}"
    );
    client.refused("POST", path, r#"{"points":[{"id":8,"vector":[8,8]},{"wait":false}]}"#, 400, "points[1]");
    client.refused(
        "POST",
        path,
        r#"{"points":[{"id":8,"vector":[8,8]},{"vektor":[]}]}"#,
        400,
        "invalid JSON body: points[1]",
    );
    client.refused("POST", path, r#"{"points":[{"id":8,"vector":[8,8]}]"#, 400, "invalid JSON body:");
    client.refused(
        "POST",
        "/v1/collections/nowhere/points/batch",
        r#"{"points":[]}"#,
        404,
        "unknown collection",
    );
    let found = client.json(
        "POST",
        "/v1/collections/batch/points/batch-get",
        json!({"ids": [1,2,3,4,5,6,7,8], "with_vector": false, "with_payload": false}),
    );
    assert_eq!(found["missing"], json!([5, 6, 8]));
}

#[test]
fn binary_batches() {
    let mut client = SHARED.client();
    client.create("binary", 2, "dot");
    let path = "/v1/collections/binary/points/batch";
    let rows = [(1, vec![1.0, 0.0]), (2, vec![0.0, 1.0])];
    let body = ingest(
        1,
        2,
        &rows,
        &[r#"{"$content":{"kind":"string","str":"text"},"n":{"kind":"int","int":1}}"#, ""],
    );
    let answer = client.request("POST", path, "Application/Octet-Stream; charset=x", &body);
    assert_eq!((answer.status, answer.text()), (200, "{\"count\":2}\n"));
    for end in 0..body.len() {
        let answer = client.request("POST", path, OCTETS, &body[..end]);
        assert_eq!(answer.status, 400, "{end}");
        assert!(answer.text().starts_with("{\"error\":\"invalid binary bulk body: "), "{}", answer.text());
    }
    let answer = client.request("POST", path, OCTETS, &ingest(2, 2, &rows, &[]));
    assert_eq!((answer.status, answer.text()), (200, "{\"count\":2}\n"));
    assert_eq!(client.json("GET", "/v1/collections/binary/points/1", Value::Null)["payload"], Value::Null);
    let answer = client.request("POST", path, OCTETS, &ingest(0, 2, &rows, &[]));
    assert_eq!(answer.status, 409);
    assert!(answer.text().contains("\"committed\":0"), "{}", answer.text());
    let answer = client.request("POST", path, OCTETS, &ingest(0, 3, &[(9, vec![0.0; 3])], &[]));
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("dimension mismatch"), "{}", answer.text());
    let answer = client.request("POST", path, OCTETS, &ingest(0, 2, &[(9, vec![f32::NAN, 0.0])], &[]));
    assert_eq!(answer.status, 400);
    let mut over_declared = b"RVB1".to_vec();
    over_declared.extend_from_slice(&[0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0, 2]);
    assert_eq!(client.request("POST", path, OCTETS, &over_declared).status, 413);
    assert_eq!(client.request("POST", path, OCTETS, &ingest(0, 0, &[], &[])).text(), "{\"count\":0}\n");
    // The same bytes under another media type are taken for JSON.
    let answer = client.request("POST", path, "application/x-www-form-urlencoded", &body);
    assert!(answer.text().contains("invalid JSON body:"), "{}", answer.text());
}

#[test]
fn staged_builds() {
    let mut client = SHARED.client();
    client.create("staged", 2, "l2");
    let (bulk, build) = ("/v1/collections/staged/points/bulk", "/v1/collections/staged/points/bulk/build");
    client.golden("POST", bulk, r#"{"points":[]}"#, 200, r#"{"staged":0}"#);
    client.golden(
        "POST",
        bulk,
        r#"{"points":[{"id":1,"vector":[1,0],"metadata":{"$content":"one"}},{"id":2,"vector":[2,0]}]}"#,
        200,
        r#"{"staged":2}"#,
    );
    let answer = client.request("POST", bulk, OCTETS, &ingest(1, 2, &[(3, vec![3.0, 0.0])], &[r#"{"n":3}"#]));
    assert_eq!((answer.status, answer.text()), (200, "{\"staged\":1}\n"));
    for (body, fragment) in [
        (r#"{"upsert":true,"points":[]}"#, "upsert"),
        (r#"{"points":[{"id":9,"vector":[1,2],"content":"x"}]}"#, "content"),
        (r#"{"points":[{"id":9,"vector":[1,2],"ttl_ms":5}]}"#, "ttl_ms"),
        (r#"{"points":[{"id":9,"vector":[1,2]},{"id":10,"vector":[1]}]}"#, "dimension mismatch"),
        (r#"{"points":[{"id":9,"vector":[1]}]}"#, "dimension mismatch"),
        (r#"{"points":[{"id":9,"vector":[1,2]},{"id":9,"vector":[1,2]}]}"#, "9"),
    ] {
        client.refused("POST", bulk, body, 400, fragment);
    }
    assert_eq!(client.request("POST", bulk, OCTETS, &ingest(2, 2, &[(4, vec![0.0; 2])], &[])).status, 400);
    assert_eq!(client.request("POST", bulk, OCTETS, &ingest(0, 3, &[(4, vec![0.0; 3])], &[])).status, 400);
    client.golden(
        "POST",
        "/v1/collections/staged/points/search",
        r#"{"query":[0,0],"k":5}"#,
        200,
        r#"{"results":[],"degraded":false,"missing":[]}"#,
    );
    client.golden("POST", build, r#"{"workers":2}"#, 200, r#"{"status":"built"}"#);
    client.golden(
        "POST",
        "/v1/collections/staged/points/search/docs",
        r#"{"query":[0,0],"k":5}"#,
        200,
        r#"{"documents":[{"id":1,"distance":1.0,"score":0,"content":"one"},{"id":2,"distance":4.0,"score":0,"content":""},{"id":3,"distance":9.0,"score":0,"content":"","metadata":{"n":{"kind":"int","int":3}}}],"degraded":false,"missing":[]}"#,
    );
    assert_eq!(client.json("GET", "/v1/collections/staged/points/3", Value::Null)["version"], 1);
    // These were staged, and only the build said that they could not be built.
    let late = r#"{"points":[{"id":4,"vector":[1,0]}]}"#;
    client.refused("POST", bulk, late, 409, "a bulk build needs an empty one, and it has 3 points");
    client.golden("POST", bulk, r#"{"points":[]}"#, 200, r#"{"staged":0}"#);
    client.refused("POST", build, "", 409, "is not empty");
    client.refused("POST", "/v1/collections/nowhere/points/bulk/build", "", 404, "unknown collection");
    client.refused(
        "POST",
        "/v1/collections/nowhere/points/bulk",
        r#"{"points":[]}"#,
        404,
        "unknown collection",
    );
}

#[test]
fn searches() {
    let mut client = SHARED.client();
    client.create("search", 2, "cosine");
    let points: Vec<Value> = (0..10)
        .map(|id| json!({"id": id, "vector": [id, 1], "metadata": {"even": id % 2 == 0, "n": id}}))
        .collect();
    client.json("POST", "/v1/collections/search/points/batch", json!({ "points": points }));
    let path = "/v1/collections/search/points/search";
    let golden = r#"{"results":[{"id":0,"distance":0.0,"score":0},{"id":2,"distance":0.5527864,"score":0}],"degraded":false,"missing":[]}"#;
    let filter = r#"{"op":"eq","field":"even","value":{"kind":"bool","bool":true}}"#;
    client.golden("POST", path, &format!(r#"{{"query":[0,5],"k":2,"filter":{filter}}}"#), 200, golden);
    client.golden(
        "POST",
        path,
        &format!(r#"{{"k":2,"query":[0,1],"filter":{filter},"read_consistency":3,"max_staleness":9}}"#),
        200,
        golden,
    );
    let answer = client.request("POST", path, OCTETS, &query(2, &[0.0, 5.0], Some(filter)));
    assert_eq!((answer.status, answer.text()), (200, format!("{golden}\n").as_str()));
    let answer = client.request("POST", &format!("{path}/docs"), OCTETS, &query(1, &[9.0, 1.0], None));
    let documents: Value = serde_json::from_str(answer.text()).unwrap();
    assert_eq!(
        documents["documents"][0]["metadata"],
        json!({"even": {"kind": "bool"}, "n": {"kind": "int", "int": 9}})
    );

    for (body, fragment) in [
        (r#"{"query":[0,1]}"#, "k must be between 1 and 65536"),
        (r#"{"query":[0,1],"k":-1}"#, "k must be between 1 and 65536"),
        (r#"{"query":[0,1],"k":65537}"#, "k must be between 1 and 65536"),
        (r#"{"query":[0],"k":1}"#, "dimension mismatch"),
        (r#"{"k":1}"#, "dimension mismatch"),
        (r#"{"query":[0,null],"k":1}"#, "invalid JSON body:"),
        (r#"{"query":[0,1e39],"k":1}"#, "invalid JSON body:"),
        (r#"{"query":[0,1],"k":1,"vector":[]}"#, "invalid JSON body:"),
        (r#"{"query":[0,1],"k":1,"read_consistency":4}"#, "read_consistency"),
        (r#"{"query":[0,1],"k":1,"on_partition_unavailable":2}"#, "on_partition_unavailable"),
        (r#"{"query":[0,1],"k":1,"filter":{"op":"like"}}"#, "invalid JSON body:"),
        (r#"{"query":[0,1],"k":1,"filter":{"op":"eq","value":1}}"#, "invalid filter"),
        (r#"{"query":[0,1],"k":1,"filter":{"op":"regex","field":"n","value":"("}}"#, "invalid filter"),
    ] {
        client.refused("POST", path, body, 400, fragment);
        client.refused("POST", &format!("{path}/docs"), body, 400, fragment);
    }
    client.golden(
        "POST",
        path,
        r#"{"query":[0,1],"k":65536,"filter":{"op":"gt","field":"n","value":99}}"#,
        200,
        r#"{"results":[],"degraded":false,"missing":[]}"#,
    );

    let good = query(1, &[0.0, 1.0], Some("{}"));
    for end in 0..good.len() {
        let answer = client.request("POST", path, OCTETS, &good[..end]);
        assert_eq!(answer.status, 400, "{end}");
        assert!(answer.text().contains("invalid binary query body:"), "{}", answer.text());
        assert!(!answer.text().contains("invalid JSON body"), "{}", answer.text());
    }
    for (body, fragment) in [
        (query(0, &[0.0, 1.0], None), "k must be between"),
        (query(1, &[], None), "dimension mismatch"),
        (query(1, &[f32::NAN, 0.0], None), "finite"),
        (query(1, &[0.0, 0.0], Some(r#"{"op":"eq"}"#)), "invalid filter"),
    ] {
        let answer = client.request("POST", path, OCTETS, &body);
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains(fragment), "{} lacks {fragment}", answer.text());
    }
    let answer = client.request("POST", path, OCTETS, &vec![0; (8 << 20) + 1]);
    let refused = "{\"error\":\"request body too large: at most 8388608 bytes\"}\n";
    assert_eq!((answer.status, answer.text()), (413, refused));
}

/// `RVS1`.
fn batch_of(common: &str, dim: usize, vectors: &[&[f32]]) -> Vec<u8> {
    let mut body = b"RVS1".to_vec();
    for word in [0, vectors.len() as u32, dim as u32, common.len() as u32] {
        body.extend_from_slice(&word.to_be_bytes());
    }
    body.extend_from_slice(common.as_bytes());
    vectors.iter().flat_map(|vector| *vector).for_each(|one| body.extend_from_slice(&one.to_be_bytes()));
    body
}

#[test]
fn binary_batches_of_searches() {
    let mut client = SHARED.client();
    client.create("many", 2, "l2");
    let points: Vec<Value> = (0..40)
        .map(|n| json!({"id": n, "vector": [n, 1], "metadata": {"n": n, "even": n % 2 == 0}}))
        .collect();
    client.json("POST", "/v1/collections/many/points/batch", json!({ "points": points }));
    let path = "/v1/collections/many/points/search/batch";
    let vectors: Vec<[f32; 2]> = (0..30).map(|n| [n as f32 * 1.25, 0.5]).collect();
    let rows: Vec<&[f32]> = vectors.iter().map(|vector| &vector[..]).collect();
    for common in [
        json!({"k": 3}),
        json!({"k": 2, "filter": {"op": "eq", "field": "even", "value": true}, "with_payload": ["n"], "with_vector": true}),
        json!({"k": 2, "exact": true, "offset": 1, "with_score": true, "read_consistency": 1}),
        // Each search is refused alone, as in JSON.
        json!({"k": 0}),
        json!({}),
    ] {
        let as_json: Vec<Value> = vectors
            .iter()
            .map(|vector| {
                let mut search = common.clone();
                search["query"] = json!(vector);
                search
            })
            .collect();
        let wanted = client.json("POST", path, json!({ "searches": as_json }));
        assert_eq!(wanted["results"].as_array().unwrap().len(), rows.len());
        let answer = client.request("POST", path, OCTETS, &batch_of(&common.to_string(), 2, &rows));
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(serde_json::from_str::<Value>(answer.text()).unwrap(), wanted, "{common}");
    }
    let answer = client.request("POST", path, OCTETS, &batch_of("{}", 0, &[]));
    assert_eq!((answer.status, answer.text()), (200, "{\"results\":[]}\n"));
    // One that is no search is refused in its place.
    let odd: [&[f32]; 2] = [&[f32::NAN, 0.0], &[3.0, 1.0]];
    let answer = client.request("POST", path, OCTETS, &batch_of(r#"{"k":1}"#, 2, &odd));
    let answer: Value = serde_json::from_str(answer.text()).unwrap();
    assert_eq!(
        (&answer["results"][0]["status"], &answer["results"][1]["results"][0]["id"]),
        (&json!(400), &json!(3))
    );
    let answer = client.request("POST", path, OCTETS, &batch_of(r#"{"k":1}"#, 3, &[&[1.0, 2.0, 3.0]]));
    assert!(answer.text().contains("dimension mismatch"), "{}", answer.text());

    let good = batch_of(r#"{"k":1}"#, 2, &rows[..2]);
    for end in 0..good.len() {
        let answer = client.request("POST", path, OCTETS, &good[..end]);
        assert_eq!(answer.status, 400, "{end}");
        assert!(answer.text().contains("invalid binary searches body:"), "{}", answer.text());
        assert!(!answer.text().contains("invalid JSON body"), "{}", answer.text());
    }
    let mut too_many = good.clone();
    too_many[8..12].copy_from_slice(&65_537_u32.to_be_bytes());
    assert_eq!(client.request("POST", path, OCTETS, &too_many).status, 413);
    let mut stated = batch_of(r#"{"k":1,"read_consistency":1}"#, 2, &rows[..2]);
    let answer = client.request("POST", &format!("{path}?read_consistency=2"), OCTETS, &stated);
    assert!(answer.text().contains("state it once"), "{}", answer.text());
    let answer = client.request("POST", "/v1/collections/nothing/points/search/batch", OCTETS, &good);
    assert_eq!(answer.status, 404);
    // Under another media type they are taken for JSON, as they are where searches have no binary form.
    for (path, media) in [(path, "application/json"), ("/v1/named/many/search/batch", OCTETS)] {
        let answer = client.request("POST", path, media, &stated);
        assert!(answer.text().contains("invalid JSON body:"), "{}", answer.text());
    }
    stated.truncate(stated.len() - 1);
    assert_eq!(client.request("POST", path, OCTETS, &stated).status, 400);
}

#[test]
fn scrolling_and_deleting_by_filter() {
    let mut client = SHARED.client();
    client.create("scroll", 1, "l2");
    let scroll = "/v1/collections/scroll/points/scroll";
    client.golden(
        "POST",
        scroll,
        "{}",
        200,
        r#"{"documents":[],"degraded":false,"missing":[],"next_cursor":""}"#,
    );
    let count = 3_000_u64;
    let rows: Vec<_> = (0..count).rev().map(|id| (id * 3, vec![id as f32])).collect();
    let payloads: Vec<String> = (0..count).rev().map(|id| format!(r#"{{"n":{id}}}"#)).collect();
    let body = ingest(1, 1, &rows, &payloads.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(client.request("POST", "/v1/collections/scroll/points/batch", OCTETS, &body).status, 200);

    let all = client.json("POST", scroll, json!({"limit": 0}));
    let ids: Vec<u64> =
        all["documents"].as_array().unwrap().iter().map(|doc| doc["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (0..count).map(|id| id * 3).collect::<Vec<_>>());
    assert_eq!(all["next_cursor"], "");
    assert_eq!(
        all["documents"][1],
        json!({"id": 3, "distance": 0.0, "score": 0, "content": "", "metadata": {"n": {"kind": "int", "int": 1}}})
    );

    let mut paged = Vec::new();
    let mut cursor = String::new();
    for limit in [1, 700, 1_000, 1_298, 1] {
        let page = client.json("POST", scroll, json!({"limit": limit, "cursor": cursor, "filter": {}}));
        let documents = page["documents"].as_array().unwrap();
        assert_eq!(documents.len(), limit);
        paged.extend(documents.iter().map(|doc| doc["id"].as_u64().unwrap()));
        cursor = page["next_cursor"].as_str().unwrap().to_owned();
    }
    assert_eq!((paged, cursor.as_str()), (ids, ""), "a full last page has no cursor");

    let filtered = client.json(
        "POST",
        scroll,
        json!({"limit": 2, "filter": {"op": "gte", "field": "n", "value": 2_998}}),
    );
    assert_eq!((filtered["documents"].as_array().unwrap().len(), &filtered["next_cursor"]), (2, &json!("")));
    client.refused("POST", scroll, r#"{"cursor":"x"}"#, 400, "cursor");
    client.refused("POST", "/v1/collections/nowhere/points/scroll", "{}", 404, "unknown collection");

    // More ids than a page, repeats and strangers among them.
    let ids: Vec<u64> = (0..2_000).map(|id| id % 1_500).collect();
    let found = client.json(
        "POST",
        "/v1/collections/scroll/points/batch-get",
        json!({"ids": ids, "with_payload": false}),
    );
    let expected: Vec<u64> = ids.iter().copied().filter(|id| id % 3 == 0).collect();
    let got: Vec<u64> =
        found["points"].as_array().unwrap().iter().map(|point| point["id"].as_u64().unwrap()).collect();
    assert_eq!(got, expected);
    assert_eq!(
        found["points"][1],
        json!({"id": 3, "vector": [1.0], "payload": null, "ttl_ms": 0, "version": 1})
    );
    assert_eq!(found["missing"].as_array().unwrap().len(), ids.len() - expected.len());
    client.golden(
        "POST",
        "/v1/collections/scroll/points/batch-get",
        "{}",
        200,
        r#"{"points":[],"missing":[]}"#,
    );
    client.refused(
        "POST",
        "/v1/collections/nowhere/points/batch-get",
        r#"{"ids":[1]}"#,
        404,
        "unknown collection",
    );
    client.refused(
        "POST",
        "/v1/collections/scroll/points/batch-get",
        r#"{"ids":[1],"read_consistency":1}"#,
        400,
        "invalid JSON body:",
    );

    let delete = "/v1/collections/scroll/points/delete";
    client.refused("POST", delete, r#"{"ids":[1,"2"]}"#, 400, "field \"ids\"");
    let both = r#"{"ids":[1],"filter":{"op":"is_null","field":"n"}}"#;
    client.refused("POST", delete, both, 400, "filter and ids are both set");
    client.golden("POST", delete, r#"{"ids":[]}"#, 200, r#"{"deleted":0}"#);
    for body in [
        "{}",
        r#"{"filter":null}"#,
        r#"{"filter":{}}"#,
        r#"{"filter":{"and":[{}]}}"#,
        r#"{"filter":{"op":"or","or":[{"op":"and"}]}}"#,
    ] {
        client.refused("POST", delete, body, 400, "filter");
    }
    client.refused(
        "POST",
        delete,
        r#"{"filter":{"op":"is_null","field":"n"},"write_consistency_factor":-1}"#,
        400,
        "write_consistency_factor",
    );
    client.golden(
        "POST",
        delete,
        r#"{"filter":{"op":"lt","field":"n","value":{"kind":"int","int":1000}}}"#,
        200,
        r#"{"deleted":1000}"#,
    );
    client.golden(
        "POST",
        delete,
        r#"{"filter":{"op":"lt","field":"n","value":1000}}"#,
        200,
        r#"{"deleted":0}"#,
    );
    assert_eq!(client.json("POST", scroll, json!({}))["documents"].as_array().unwrap().len(), 2_000);
}

/// What is far from the first id of a scroll is found through the payload index, in the order of ids all the same.
#[test]
fn scrolling_by_a_filter_that_few_match() {
    let mut client = SHARED.client();
    client.create("few", 1, "l2");
    let (scroll, batch) = ("/v1/collections/few/points/scroll", "/v1/collections/few/points/batch");
    // Backwards, so that the order of slots is not that of ids.
    for first in [9_000, 6_000, 3_000, 0u64] {
        let points: Vec<Value> = (first..first + 3_000)
            .rev()
            .map(|id| {
                let metadata = json!({"n": {"kind": "int", "int": id % 97}, "late": {"kind": "bool", "bool": id > 11_000}});
                json!({"id": id, "vector": [id as f32], "metadata": metadata})
            })
            .collect();
        client.json("POST", batch, json!({"points": points}));
    }
    for (filter, expected) in [
        (
            json!({"op": "eq", "field": "n", "value": 5}),
            (0..12_000u64).filter(|id| id % 97 == 5).collect::<Vec<_>>(),
        ),
        (json!({"op": "eq", "field": "late", "value": true}), (11_001..12_000).collect()),
        (json!({"op": "ne", "field": "late", "value": false}), (11_001..12_000).collect()),
        (json!({"op": "eq", "field": "n", "value": 98}), Vec::new()),
    ] {
        for limit in [7, 100, 0] {
            let (mut found, mut cursor) = (Vec::new(), String::new());
            loop {
                let page =
                    client.json("POST", scroll, json!({"limit": limit, "cursor": cursor, "filter": filter}));
                let documents = page["documents"].as_array().unwrap();
                assert!(limit == 0 || documents.len() <= limit);
                found.extend(documents.iter().map(|document| document["id"].as_u64().unwrap()));
                cursor = page["next_cursor"].as_str().unwrap().to_owned();
                if cursor.is_empty() {
                    break;
                }
                assert_eq!(documents.len(), limit);
            }
            assert_eq!(found, expected, "{filter}");
        }
    }
    let path = "/v1/collections/few/points/delete";
    let delete = json!({"filter": {"op": "eq", "field": "late", "value": true}});
    assert_eq!(client.json("POST", path, delete), json!({"deleted": 999}));
    // By ids: repeats, ids that were deleted and ids that never were do not count.
    let before =
        client.json("POST", "/v1/collections/few/points/count", json!({}))["count"].as_u64().unwrap();
    let left = client.json("POST", "/v1/collections/few/points/scroll", json!({"limit": 3}));
    let left: Vec<u64> = left["documents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|document| document["id"].as_u64().unwrap())
        .collect();
    let ids = json!({"ids": [left[2], left[0], left[2], u64::MAX]});
    assert_eq!(client.json("POST", path, ids.clone()), json!({"deleted": 2}));
    assert_eq!(client.json("POST", path, ids), json!({"deleted": 0}));
    let after = client.json("POST", "/v1/collections/few/points/count", json!({}));
    assert_eq!(after, json!({"count": before - 2}));
}

#[test]
fn quotas() {
    let mut client = SHARED.client();
    client.golden(
        "POST",
        "/v1/collections",
        r#"{"name":"small","config":{"dim":1,"max_vectors":2}}"#,
        201,
        r#"{"name":"small"}"#,
    );
    let (status, text) = client.text(
        "POST",
        "/v1/collections/small/points/batch",
        r#"{"points":[{"id":1,"vector":[1]},{"id":2,"vector":[1]},{"id":3,"vector":[1]}]}"#,
    );
    assert_eq!(
        (status, text.contains("collection full"), text.contains("\"committed\":2")),
        (429, true, true),
        "{text}"
    );
    client.golden(
        "POST",
        "/v1/collections",
        r#"{"name":"slow","config":{"dim":1,"max_inserts_per_second":1}}"#,
        201,
        r#"{"name":"slow"}"#,
    );
    let statuses: Vec<u16> = (0..20)
        .map(|id| {
            client.text("POST", "/v1/collections/slow/points", &format!(r#"{{"id":{id},"vector":[1]}}"#)).0
        })
        .collect();
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
}

#[test]
fn large_json_bodies() {
    let mut client = SHARED.client();
    client.create("large", 64, "l2");
    let vector: Vec<f32> = (0..64).map(|index| index as f32 * 0.37).collect();
    let points: Vec<Value> =
        (0..3_000).map(|id| json!({"id": id, "vector": vector, "content": "x".repeat(100)})).collect();
    let answer = client.json("POST", "/v1/collections/large/points/batch", json!({ "points": points }));
    assert_eq!(answer, json!({"count": 3_000}));
    let mut huge = r#"{"query":[0],"k":1,"filter":{"op":"#.as_bytes().to_vec();
    huge.resize((32 << 20) + 1, b' ');
    let answer = client.request("POST", "/v1/collections/large/points/search", "", &huge);
    let refused = "{\"error\":\"request body too large: at most 33554432 bytes\"}\n";
    assert_eq!((answer.status, answer.text()), (413, refused));
}

#[test]
fn one_key() {
    let server = Server::start(Arc::new(SingleKey::new("secret")), true);
    let mut client = server.client();
    let create = r#"{"name":"docs","config":{"dim":1}}"#;
    for token in [None, Some("Bearer wrong"), Some("Bearer "), Some("bearer secret")] {
        client.token = token.map(str::to_owned);
        for (method, path) in [
            ("POST", "/v1/collections"),
            ("DELETE", "/v1/collections/docs"),
            ("POST", "/v1/collections/docs/points/search"),
            ("POST", "/v1/collections/docs/points/batch"),
            ("GET", "/v1/collections/docs/points/1"),
            ("GET", "/metrics"),
        ] {
            client.golden(method, path, create, 401, r#"{"error":"unauthorized"}"#);
        }
        client.golden("GET", "/v1/health", "", 200, r#"{"status":"ok"}"#);
        client.golden("GET", "/v1/ready", "", 200, r#"{"status":"ready"}"#);
        client.golden("GET", "/v1/replication", "", 200, r#"{"shards":[]}"#);
    }
    client.token = Some("Bearer secret".into());
    client.golden("POST", "/v1/collections", create, 201, r#"{"name":"docs"}"#);
    client.token = Some("secret\r\nx-request-id: abc-7".into());
    let answer = client.request("GET", "/metrics", "", b"");
    assert_eq!((answer.status, answer.header("x-request-id")), (200, Some("abc-7")));
    client.token = Some("secret".into());
    let answer = client.request("GET", "/nowhere", "", b"");
    let id = answer.header("x-request-id").unwrap();
    assert!(id.len() > 9 && id.as_bytes()[8] == b'-', "{id}");
}
