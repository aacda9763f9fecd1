//! Points of named spaces are staged and built over REST. Afterwards a collection answers as one whose points were written one by one.
use super::{Clients, Server, hits_of};
use serde_json::{Value, json};

const SPACES: &str = r#"{"image": {"dim": 2, "metric": "l2"}, "title": {"dim": 3, "index_type": "ivf"},
    "codes": {"dim": 4, "metric": "dot", "quant": "sq8"}, "words": {"sparse": true}}"#;

/// A point that lacks some vectors, by its number.
fn point(at: u64, id: &Value) -> Value {
    let x = at as f32;
    let mut point = json!({"id": id, "metadata": {"n": at, "even": at.is_multiple_of(2)}, "vectors": {}, "sparse_vectors": {}});
    if at.is_multiple_of(2) {
        point["vectors"]["image"] = json!([x, 1.0]);
    }
    if at.is_multiple_of(3) {
        point["vectors"]["title"] = json!([x.sin(), x.cos(), 0.5]);
    }
    if !at.is_multiple_of(5) {
        point["vectors"]["codes"] = json!([x, 1.0, -x, 2.0]);
    }
    if at % 4 == 1 {
        point["sparse_vectors"]["words"] = json!({"indices": [at % 7, 40], "values": [1.0 + x, 0.5]});
    }
    point
}

fn create(clients: &mut Clients, name: &str, ids: &str) {
    let body = format!(r#"{{"named_vectors": {SPACES}, "ids": "{ids}"}}"#);
    clients.rest.golden(
        "POST",
        &format!("/v1/named/{name}"),
        &body,
        201,
        &json!({ "name": name }).to_string(),
    );
}

/// What a collection answers to a search of each space and to a read of each point.
fn answers(clients: &mut Clients, name: &str, ids: &[Value]) -> Vec<Value> {
    let mut all = Vec::new();
    for (space, query) in
        [("image", json!([3, 1])), ("title", json!([0.1, 0.9, 0.4])), ("codes", json!([1, 1, 1, 1]))]
    {
        let body = json!({"vector_name": space, "query": query, "k": 200, "exact": true});
        let found = clients.rest.json("POST", &format!("/v1/named/{name}/search"), body);
        assert!(!hits_of(&found["results"]).is_empty(), "{space}: {found}");
        all.push(found);
    }
    let words = json!({"vector_name": "words", "query": {"indices": [2, 40], "values": [1, 1]}, "k": 200});
    all.push(clients.rest.json("POST", &format!("/v1/named/{name}/sparse-search"), words));
    let filter = json!({"filter": {"op": "eq", "field": "even", "value": true}});
    all.push(clients.rest.json("POST", &format!("/v1/named/{name}/count"), filter));
    for id in ids {
        let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
        all.push(clients.rest.json("GET", &format!("/v1/named/{name}/points/{id}"), Value::Null));
    }
    all
}

#[test]
fn what_is_built_answers_like_what_is_written() {
    let server = Server::start();
    let mut clients = server.clients();
    for kind in ["number", "string"] {
        let id = |at: u64| if kind == "string" { json!(format!("p{at}")) } else { json!(at) };
        let ids: Vec<Value> = (0..120).map(id).collect();
        let points: Vec<Value> = (0..120).map(|at| point(at, &id(at))).collect();
        let (built, written) = (format!("built-{kind}"), format!("written-{kind}"));
        create(&mut clients, &built, kind);
        create(&mut clients, &written, kind);
        clients.rest.json("POST", &format!("/v1/named/{written}/points/batch"), json!({ "points": points }));
        for part in points.chunks(70) {
            let staged = clients.rest.json(
                "POST",
                &format!("/v1/named/{built}/points/bulk"),
                json!({ "points": part }),
            );
            assert_eq!(staged, json!({"staged": part.len()}));
        }
        let count = format!("/v1/named/{built}/count");
        clients.rest.golden("POST", &count, "{}", 200, r#"{"count":0}"#);
        let build = format!("/v1/named/{built}/points/bulk/build");
        clients.rest.golden("POST", &build, r#"{"workers": 1}"#, 200, r#"{"status":"built"}"#);
        clients.rest.golden("POST", &count, "{}", 200, r#"{"count":120}"#);
        let (found, expected) = (answers(&mut clients, &built, &ids), answers(&mut clients, &written, &ids));
        assert_eq!(found, expected);
        // Nothing is staged any more, and a collection with points takes no staging.
        clients.rest.refused("POST", &build, "{}", 409, "is not empty: a bulk build needs an empty one");
        let one = json!({ "points": [points[0]] }).to_string();
        clients.rest.refused("POST", &format!("/v1/named/{built}/points/bulk"), &one, 409, "is not empty");
        // The collection is written and changed as any other.
        let change = json!({"vectors": {"title": [0, 0, 1]}});
        let first = ids[0].as_str().map_or_else(|| ids[0].to_string(), str::to_owned);
        clients.rest.json("POST", &format!("/v1/named/{built}/points/{first}/vectors"), change);
        let space = json!({"name": "more", "config": {"dim": 2}});
        clients.rest.json("POST", &format!("/v1/named/{built}/spaces"), space);
    }
}

#[test]
fn what_cannot_be_staged_is_refused_and_nothing_of_its_request_is_staged() {
    let server = Server::start();
    let mut clients = server.clients();
    create(&mut clients, "docs", "number");
    clients.rest.create("dense", 2, "l2");
    let path = "/v1/named/docs/points/bulk";
    clients.rest.json("POST", path, json!({"points": [{"id": 50, "vectors": {"image": [1, 1]}}]}));
    for (wrong, status, words) in [
        (
            r#"{"id": 1, "vectors": {"nope": [1, 2]}}"#,
            400,
            "points[1] with id 1: unknown vector space \"nope\"",
        ),
        (r#"{"id": 1, "vectors": {"words": [1, 2]}}"#, 400, "points[1] with id 1: "),
        (r#"{"id": 1, "vectors": {"image": [1, 2, 3]}}"#, 400, "points[1] with id 1: "),
        (
            r#"{"id": 1, "sparse_vectors": {"words": {"indices": [2, 1], "values": [1, 1]}}}"#,
            400,
            "points[1]",
        ),
        (r#"{"id": 1, "ttl_ms": 5}"#, 400, "ttl_ms is not possible when staging"),
        (r#"{"id": 1, "key_ttl_ms": {"a": 5}}"#, 400, "key_ttl_ms is not possible when staging"),
        (r#"{"id": 1, "expected_version": 0}"#, 400, "expected_version is not possible when staging"),
        (r#"{"id": 7}"#, 400, "id 7 is staged twice; nothing of this request was staged"),
        (r#"{"id": 50}"#, 400, "id 50 is staged twice; nothing of this request was staged"),
        (r#"{"id": "x"}"#, 400, "points[1]"),
        (r#"{"id": 1, "vector": [1, 2]}"#, 400, "unknown field"),
    ] {
        let body = format!(r#"{{"points": [{{"id": 7, "vectors": {{"image": [1, 2]}}}}, {wrong}]}}"#);
        clients.rest.refused("POST", path, &body, status, words);
    }
    let none = r#"{"points": []}"#;
    for name in ["nowhere", "dense"] {
        let path = format!("/v1/named/{name}/points/bulk");
        clients.rest.refused("POST", &path, none, 404, "unknown collection");
        clients.rest.refused("POST", &format!("{path}/build"), "{}", 404, "unknown collection");
    }
    clients.rest.refused("POST", "/v1/collections/docs/points/bulk", none, 404, "unknown collection");
    clients.rest.golden("POST", "/v1/named/docs/points/bulk/build", "{}", 200, r#"{"status":"built"}"#);
    clients.rest.golden("POST", "/v1/named/docs/count", "{}", 200, r#"{"count":1}"#);
    // A quota refuses the whole build, and what is staged stays.
    let few = r#"{"named_vectors": {"image": {"dim": 2}}, "max_vectors": 1}"#;
    clients.rest.golden("POST", "/v1/named/few", few, 201, r#"{"name":"few"}"#);
    let two = json!({"points": [{"id": 1, "vectors": {"image": [1, 1]}}, {"id": 2}]});
    clients.rest.json("POST", "/v1/named/few/points/bulk", two);
    let (status, text) = clients.rest.text("POST", "/v1/named/few/points/bulk/build", "{}");
    assert_eq!(status, 429, "{text}");
    clients.rest.json("PATCH", "/v1/named/few/config", json!({"max_vectors": 2}));
    clients.rest.golden("POST", "/v1/named/few/points/bulk/build", "{}", 200, r#"{"status":"built"}"#);
    clients.rest.golden("POST", "/v1/named/few/count", "{}", 200, r#"{"count":2}"#);
}
