//! The framework adapters on top of the clients: LangChain, LlamaIndex and Haystack.

use super::wire::{Wire, counted, hex, ids, server};
use nigh_tests::{Access, in_every_mode};
use serde_json::{Value, json};

in_every_mode!(
    langchain_keeps_its_ids_and_its_order,
    a_distance_is_never_far_below_zero,
    llamaindex_deletes_by_the_document_a_node_came_from,
    haystack_counts_and_lists_with_a_scroll_without_limit,
);

/// The id an adapter gives a text: a decimal number below 2^64 is itself, anything else the BLAKE2b hash of 64 bits,
/// big-endian. The hashes were computed with Python's hashlib.
fn langchain_id(name: &str) -> u64 {
    let decimal = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    match name {
        _ if decimal && name.parse::<u64>().is_ok() => name.parse().expect("just parsed"),
        "doc-a" => 4_530_918_643_563_580_099,
        "18446744073709551616" => 16_704_307_345_652_401_473,
        "7f3c9a52-0d7e-4d6b-9f55-6f1f4e1a2b3c" => 15_059_747_509_515_020_274,
        other => panic!("no hash was computed for {other}"),
    }
}

/// An RVQ1 body for a vector of two, without a filter.
fn query(k: u32, vector: [f32; 2]) -> Vec<u8> {
    let mut body = hex("52565131 00000000");
    body.extend(k.to_be_bytes());
    body.extend(hex("00000002 00 00 0000 0000000000000000"));
    vector.iter().for_each(|value| body.extend(value.to_be_bytes()));
    body
}

fn langchain_keeps_its_ids_and_its_order(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("docs", 2, "l2", r#", "full_text": {"analyzer": "english"}"#);
    let names = [
        "17",
        "18446744073709551615",
        "doc-a",
        "18446744073709551616",
        "7f3c9a52-0d7e-4d6b-9f55-6f1f4e1a2b3c",
    ];
    for (place, name) in names.iter().enumerate() {
        // One upsert for each text.
        let id = langchain_id(name);
        let body = format!(
            r#"{{"id": {id}, "vector": [{place}.0, 0.0], "content": "text of number{place}", "ttl_ms": 0, "metadata": {{"source": {{"kind": "string", "str": "{name}"}}}}, "upsert": true}}"#
        );
        wire.exact("POST", "/v1/collections/docs/points", &body, 200, &format!(r#"{{"id":{id}}}"#));
    }
    let expected: Vec<u64> = names.iter().map(|name| langchain_id(name)).collect();
    // Similarity search: documents over the binary form; the score is the distance.
    let docs = wire.binary("/v1/collections/docs/points/search/docs", &query(5, [0.0, 0.0])).ok();
    assert_eq!(ids(&docs["documents"]), expected);
    for (place, doc) in docs["documents"].as_array().expect("a list").iter().enumerate() {
        let distance = doc["distance"].as_f64().expect("a number");
        assert_eq!(distance, (place * place) as f64);
        let relevance = 1.0 / (1.0 + distance.max(0.0));
        assert!((0.0..=1.0).contains(&relevance));
        assert_eq!(doc["content"], format!("text of number{place}"));
        assert_eq!(doc["metadata"], json!({"source": {"kind": "string", "str": names[place]}}));
    }
    // A plain dictionary becomes eq, several an and.
    let filter = r#"{"op": "and", "and": [{"op": "eq", "field": "source", "value": {"kind": "string", "str": "doc-a"}}]}"#;
    let mut filtered = query(5, [0.0, 0.0]);
    filtered[7] = 1;
    filtered.extend(counted(filter));
    let docs = wire.binary("/v1/collections/docs/points/search/docs", &filtered).ok();
    assert_eq!(ids(&docs["documents"]), [langchain_id("doc-a")]);

    // Hybrid, then the points in the order of the hits.
    let hybrid = r#"{"vector": [4.0, 0.0], "text": "number1", "k": 3, "method": "rrf", "alpha": 0.0, "rrf_k": 0, "dense_k": 0, "sparse_k": 0}"#;
    let hits = wire.ok("POST", "/v1/collections/docs/points/search/hybrid-text", hybrid);
    let order = ids(&hits["results"]);
    assert_eq!(order[0], langchain_id(names[1]));
    let list = order.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let get = format!(r#"{{"ids": [{list}], "with_vector": false, "with_payload": true}}"#);
    let found = wire.ok("POST", "/v1/collections/docs/points/batch-get", &get);
    assert_eq!(ids(&found["points"]), order);
    assert_eq!(
        found["points"][0]["payload"]["$content"],
        json!({"kind": "string", "str": "text of number1"})
    );
    // Its diversity search works on the vectors of the found documents.
    let get = get.replace(r#""with_vector": false"#, r#""with_vector": true"#);
    let found = wire.ok("POST", "/v1/collections/docs/points/batch-get", &get);
    for point in found["points"].as_array().expect("a list") {
        assert_eq!(point["vector"].as_array().map(Vec::len), Some(2));
    }
    // Deleting by the same ids.
    for name in names {
        let path = format!("/v1/collections/docs/points/{}", langchain_id(name));
        wire.exact("DELETE", &path, "", 200, r#"{"deleted":true}"#);
    }
}

fn a_distance_is_never_far_below_zero(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("docs", 2, "cosine", "");
    for id in 0..50 {
        let (x, y) = (0.1 + f64::from(id) * 0.37, 1.0 / (1.0 + f64::from(id)));
        let body = format!(
            r#"{{"id": {id}, "vector": [{x}, {y}], "content": "", "ttl_ms": 0, "metadata": null, "upsert": true}}"#
        );
        wire.ok("POST", "/v1/collections/docs/points", &body);
        let hits = wire.binary("/v1/collections/docs/points/search", &query(1, [x as f32, y as f32])).ok();
        let distance = hits["results"][0]["distance"].as_f64().expect("a number");
        // The adapters cut rounding off with max(d, 0); more than rounding would be wrong.
        assert!((-1e-6..1e-6).contains(&distance), "{distance}");
        assert_eq!(hits["results"][0]["score"].as_f64(), Some(0.0));
    }
}

fn llamaindex_deletes_by_the_document_a_node_came_from(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("nodes", 2, "cosine", "");
    for id in 0..6 {
        let body = format!(
            r#"{{"id": {id}, "vector": [1.0, {id}.0], "content": "node {id}", "ttl_ms": 0, "metadata": {{"_llama_ref_doc_id": {{"kind": "string", "str": "doc-{}"}}, "_llama_node": {{"kind": "string", "str": "{{\"text\": \"node {id}\"}}"}}}}, "upsert": true}}"#,
            id / 3
        );
        wire.ok("POST", "/v1/collections/nodes/points", &body);
    }
    let delete = r#"{"filter": {"op": "eq", "field": "_llama_ref_doc_id", "value": {"kind": "string", "str": "doc-0"}}}"#;
    wire.exact("POST", "/v1/collections/nodes/points/delete", delete, 200, r#"{"deleted":3}"#);
    let docs = wire.binary("/v1/collections/nodes/points/search/docs", &query(10, [1.0, 4.0])).ok();
    assert_eq!(ids(&docs["documents"]), [4, 5, 3]);
    let similarity = |doc: &Value| 1.0 / (1.0 + doc["distance"].as_f64().expect("a number").max(0.0));
    let found: Vec<f64> = docs["documents"].as_array().expect("a list").iter().map(similarity).collect();
    assert!(found.is_sorted_by(|a, b| a >= b) && found[0] > 0.999_999, "{found:?}");
    let node = docs["documents"][0]["metadata"]["_llama_node"]["str"].as_str().expect("a string");
    assert_eq!(serde_json::from_str::<Value>(node).ok(), Some(json!({"text": "node 4"})));
}

fn haystack_counts_and_lists_with_a_scroll_without_limit(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("store", 2, "cosine", "");
    let count = |wire: &mut Wire| {
        let page = wire.ok("POST", "/v1/collections/store/points/scroll", r#"{"limit": 0}"#);
        page["documents"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(count(&mut wire), 0);
    let names = ["doc-a", "7f3c9a52-0d7e-4d6b-9f55-6f1f4e1a2b3c"];
    for (place, name) in names.iter().enumerate() {
        let id = langchain_id(name);
        let body = format!(
            r#"{{"id": {id}, "vector": [1.0, {place}.0], "content": "text {place}", "ttl_ms": 0, "metadata": {{"_hs_id": {{"kind": "string", "str": "{name}"}}, "page": {{"kind": "int", "int": {place}}}}}, "upsert": true}}"#
        );
        wire.ok("POST", "/v1/collections/store/points", &body);
    }
    assert_eq!(count(&mut wire), 2);
    let filter = r#"{"op": "gte", "field": "page", "value": {"kind": "int", "int": 1}}"#;
    let body = format!(r#"{{"limit": 0, "filter": {filter}}}"#);
    let listed = wire.ok("POST", "/v1/collections/store/points/scroll", &body);
    assert_eq!(listed["documents"].as_array().map(Vec::len), Some(1));
    assert_eq!(listed["documents"][0]["metadata"]["_hs_id"], json!({"kind": "string", "str": names[1]}));
    assert_eq!(listed["documents"][0]["content"], "text 1");
    assert!(listed["next_cursor"].as_str().is_none_or(str::is_empty));
    let docs = wire.binary("/v1/collections/store/points/search/docs", &query(1, [1.0, 0.0])).ok();
    assert_eq!(docs["documents"][0]["metadata"]["_hs_id"]["str"], "doc-a");
    // Its deletes are by id, one after the other.
    let path = format!("/v1/collections/store/points/{}", langchain_id("doc-a"));
    wire.exact("DELETE", &path, "", 200, r#"{"deleted":true}"#);
    assert_eq!(count(&mut wire), 1);
}
