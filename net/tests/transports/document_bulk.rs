//! Documents are staged and built over REST. The collection then answers like one into which the same documents were written with `docs/batch`.
use super::{Clients, Server, hits_of};
use serde_json::{Value, json};

/// Collections whose documents are found by their tokens and by their encodings, with tokens as floats and as codes.
const CONFIGS: [(&str, &str, &str); 3] = [
    ("tokens", "number", r#""full_text": {}"#),
    ("codes", "string", r#""full_text": {}, "token_codes": "sq4", "quant": "sq8""#),
    (
        "encodings",
        "number",
        r#""full_text": {}, "first_stage": "encodings", "encoding_repetitions": 4, "encoding_bits": 2"#,
    ),
];
const DOCUMENTS: u64 = 90;

/// A document, by its number.
fn document(at: u64, id: &Value) -> Value {
    let token = |token: u64| {
        let x = (at * 7 + token) as f32;
        json!([x.sin(), x.cos(), 0.5, 1.0 - x.sin()])
    };
    let tokens: Vec<Value> = (0..1 + at % 6).map(token).collect();
    let mut document = json!({"id": id, "tokens": tokens, "metadata": {"n": at, "even": at.is_multiple_of(2)},
        "content": format!("river {}", at % 9)});
    if at.is_multiple_of(3) {
        document["sparse"] = json!({"indices": [at % 7, 40], "values": [1.0 + at as f32, 0.5]});
    }
    document
}

fn create(clients: &mut Clients, name: &str, config: &str, ids: &str) {
    let body = format!(r#"{{"dim": 4, "ids": "{ids}", {config}}}"#);
    let told = json!({ "name": name }).to_string();
    clients.rest.golden("POST", &format!("/v1/multivector/{name}"), &body, 201, &told);
}

/// What a collection answers to searches and to a read of each document.
fn answers(clients: &mut Clients, name: &str, ids: &[Value]) -> Vec<Value> {
    let even = json!({"op": "eq", "field": "even", "value": true});
    let query = json!([[1, 0, 0.5, 0], [0, 1, 0.5, 1]]);
    let mut all = Vec::new();
    for (path, body) in [
        ("search", json!({"query": query, "k": 200, "exact": true})),
        ("search", json!({"query": query, "k": 200, "exact": true, "filter": even})),
        ("hybrid-search", json!({"query": query, "text": "river 4", "k": 200, "exact": true})),
        ("query", json!({"prefetch": [{"sparse": {"indices": [2, 40], "values": [1, 1]}}], "k": 200})),
    ] {
        let found = clients.rest.json("POST", &format!("/v1/multivector/{name}/{path}"), body);
        assert!(!hits_of(&found["results"]).is_empty(), "{path}: {found}");
        all.push(found);
    }
    let count = json!({ "filter": even });
    all.push(clients.rest.json("POST", &format!("/v1/multivector/{name}/count"), count));
    for id in ids {
        let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
        all.push(clients.rest.json("GET", &format!("/v1/multivector/{name}/points/{id}"), Value::Null));
    }
    all
}

#[test]
fn documents_that_are_built_answer_like_those_that_are_written() {
    let server = Server::start();
    let mut clients = server.clients();
    for (kind, numbering, config) in CONFIGS {
        let id = |at: u64| if numbering == "string" { json!(format!("p{at}")) } else { json!(at) };
        let ids: Vec<Value> = (0..DOCUMENTS).map(id).collect();
        let documents: Vec<Value> = (0..DOCUMENTS).map(|at| document(at, &id(at))).collect();
        let (built, written) = (format!("built-{kind}"), format!("written-{kind}"));
        create(&mut clients, &built, config, numbering);
        create(&mut clients, &written, config, numbering);
        let batch = json!({ "docs": documents });
        clients.rest.json("POST", &format!("/v1/multivector/{written}/docs/batch"), batch);
        for part in documents.chunks(70) {
            let path = format!("/v1/multivector/{built}/docs/bulk");
            let staged = clients.rest.json("POST", &path, json!({ "docs": part }));
            assert_eq!(staged, json!({"staged": part.len()}));
        }
        let count = format!("/v1/multivector/{built}/count");
        clients.rest.golden("POST", &count, "{}", 200, r#"{"count":0}"#);
        let build = format!("/v1/multivector/{built}/docs/bulk/build");
        clients.rest.golden("POST", &build, r#"{"workers": 1}"#, 200, r#"{"status":"built"}"#);
        clients.rest.golden("POST", &count, "{}", 200, &format!(r#"{{"count":{DOCUMENTS}}}"#));
        let (found, expected) = (answers(&mut clients, &built, &ids), answers(&mut clients, &written, &ids));
        assert_eq!(found, expected, "{kind}");
        // The search by the index that was built finds what the exact one does.
        let first = |exact: bool| json!({"query": [documents[0]["tokens"][0]], "k": 1, "exact": exact});
        let mut search =
            |exact| clients.rest.json("POST", &format!("/v1/multivector/{built}/search"), first(exact));
        assert_eq!(search(false), search(true), "{kind}");
        // Nothing is staged any more, and a collection with documents takes no staging.
        clients.rest.refused("POST", &build, "{}", 409, "is not empty: a bulk build needs an empty one");
        let one = json!({ "docs": [documents[0]] }).to_string();
        clients.rest.refused(
            "POST",
            &format!("/v1/multivector/{built}/docs/bulk"),
            &one,
            409,
            "is not empty",
        );
        // The collection is written and changed like any other.
        let changed = document(1, &ids[0]);
        clients.rest.json("POST", &format!("/v1/multivector/{built}/docs"), changed);
        let first = ids[0].as_str().map_or_else(|| ids[0].to_string(), str::to_owned);
        let read = clients.rest.json("GET", &format!("/v1/multivector/{built}/points/{first}"), Value::Null);
        assert_eq!(read["version"], json!(2), "{read}");
    }
}

#[test]
fn documents_that_cannot_be_staged_are_refused_and_nothing_of_their_request_is_staged() {
    let server = Server::start();
    let mut clients = server.clients();
    create(&mut clients, "docs", r#""max_bytes": 0"#, "number");
    clients.rest.create("dense", 2, "l2");
    let path = "/v1/multivector/docs/docs/bulk";
    clients.rest.json("POST", path, json!({"docs": [{"id": 50, "tokens": [[1, 1, 1, 1]]}]}));
    let (tokens, many) = (r#""tokens": [[1, 2, 3, 4]]"#, vec![[1, 0, 0, 0]; 4097]);
    let many = format!(r#"{{"id": 1, "tokens": {}}}"#, json!(many));
    for (wrong, words) in [
        (r#"{"id": 1}"#.to_owned(), "docs[1] with id 1: "),
        (r#"{"id": 1, "tokens": []}"#.to_owned(), "at least one token"),
        (
            r#"{"id": 1, "tokens": [[1, 2, 3, 4], [1, 2, 3]]}"#.to_owned(),
            "tokens[1]: expected 4 components, found 3",
        ),
        (many, "at most 4096 token vectors"),
        (r#"{"id": 1, "tokens": [[1, 2, 3, 1e39]]}"#.to_owned(), "docs[1]"),
        (format!(r#"{{"id": 1, {tokens}, "sparse": {{"indices": [2, 1], "values": [1, 1]}}}}"#), "docs[1]"),
        (
            format!(r#"{{"id": 1, {tokens}, "key_ttl_ms": {{"a": 5}}}}"#),
            "key_ttl_ms is not possible when staging",
        ),
        (
            format!(r#"{{"id": 1, {tokens}, "expected_version": 0}}"#),
            "expected_version is not possible when staging",
        ),
        (format!(r#"{{"id": 7, {tokens}}}"#), "id 7 is staged twice; nothing of this request was staged"),
        (format!(r#"{{"id": 50, {tokens}}}"#), "id 50 is staged twice; nothing of this request was staged"),
        (format!(r#"{{"id": "x", {tokens}}}"#), "docs[1]"),
        (format!(r#"{{"id": 1, {tokens}, "ttl_ms": 5}}"#), "unknown field"),
    ] {
        let body = format!(r#"{{"docs": [{{"id": 7, {tokens}}}, {wrong}]}}"#);
        clients.rest.refused("POST", path, &body, 400, words);
    }
    for name in ["nowhere", "dense"] {
        let path = format!("/v1/multivector/{name}/docs/bulk");
        clients.rest.refused("POST", &path, r#"{"docs": []}"#, 404, "unknown collection");
        clients.rest.refused("POST", &format!("{path}/build"), "{}", 404, "unknown collection");
    }
    clients.rest.golden("POST", "/v1/multivector/docs/docs/bulk/build", "{}", 200, r#"{"status":"built"}"#);
    clients.rest.golden("POST", "/v1/multivector/docs/count", "{}", 200, r#"{"count":1}"#);
    // A quota refuses the whole build, and what is staged stays.
    let few = r#"{"dim": 4, "max_vectors": 1}"#;
    clients.rest.golden("POST", "/v1/multivector/few", few, 201, r#"{"name":"few"}"#);
    let two = json!({"docs": [document(1, &json!(1)), document(2, &json!(2))]});
    clients.rest.json("POST", "/v1/multivector/few/docs/bulk", two);
    let (status, text) = clients.rest.text("POST", "/v1/multivector/few/docs/bulk/build", "{}");
    assert_eq!(status, 429, "{text}");
    clients.rest.json("PATCH", "/v1/multivector/few/config", json!({"max_vectors": 2}));
    clients.rest.golden("POST", "/v1/multivector/few/docs/bulk/build", "{}", 200, r#"{"status":"built"}"#);
    clients.rest.golden("POST", "/v1/multivector/few/count", "{}", 200, r#"{"count":2}"#);
}
