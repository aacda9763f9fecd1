//! Queries of lanes, recommendations and discoveries, and hybrid searches: every key is sent, zeros included.

use super::wire::{Wire, ids, server};
use nigh_tests::{Access, in_every_mode};
use serde_json::{Value, json};

in_every_mode!(
    a_query_of_one_lane_is_that_lane,
    queries_fuse_and_rerank_and_group,
    recommending_leaves_the_examples_out_and_discovering_orders,
    hybrid_searches_send_every_zero,
);

/// Four points on a line, with texts and sparse vectors.
fn filled(wire: &mut Wire) {
    wire.create("docs", 2, "l2", r#", "full_text": {"analyzer": "english"}"#);
    for body in [
        r#"{"id": 1, "vector": [0, 0], "content": "A river runs", "ttl_ms": 0, "metadata": {"city": {"kind": "string", "str": "Oslo"}}, "upsert": true, "sparse": {"indices": [1], "values": [4.0]}}"#,
        r#"{"id": 2, "vector": [1, 0], "content": "Rivers and tides", "ttl_ms": 0, "metadata": {"city": {"kind": "string", "str": "Rome"}}, "upsert": true, "sparse": {"indices": [1, 2], "values": [1.0, 1.0]}}"#,
        r#"{"id": 3, "vector": [2, 0], "content": "The sky", "ttl_ms": 0, "metadata": {"city": {"kind": "string", "str": "Oslo"}}, "upsert": true, "sparse": {"indices": [2], "values": [3.0]}}"#,
        r#"{"id": 4, "vector": [3, 0], "content": "", "ttl_ms": 0, "metadata": null, "upsert": true}"#,
    ] {
        wire.ok("POST", "/v1/collections/docs/points", body);
    }
}

const QUERY: &str = "/v1/collections/docs/query";

fn scores(hits: &Value) -> Vec<f64> {
    hits.as_array().expect("a list").iter().map(|hit| hit["score"].as_f64().expect("a number")).collect()
}

#[track_caller]
fn near(found: &[f64], wanted: &[f64]) {
    let close = found.len() == wanted.len() && found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(close, "{found:?} instead of {wanted:?}");
}

fn a_query_of_one_lane_is_that_lane(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    filled(&mut wire);
    wire.exact(
        "POST",
        QUERY,
        r#"{"prefetch": [{"dense": [3, 0], "k": 2}], "mode": "fusion", "method": "rrf", "alpha": 0, "rrf_k": 0, "k": 0}"#,
        200,
        r#"{"results":[{"id":4,"distance":0.0,"score":0},{"id":3,"distance":1.0,"score":0}],"degraded":false,"missing":[]}"#,
    );
    wire.exact(
        "POST",
        QUERY,
        r#"{"prefetch": [{"sparse": {"indices": [2], "values": [1.0]}, "k": 1}], "mode": "fusion", "method": "rrf", "alpha": 0.0, "rrf_k": 0, "k": 1}"#,
        200,
        r#"{"results":[{"id":3,"distance":0.0,"score":3.0}],"degraded":false,"missing":[]}"#,
    );
    // k 0 is ten.
    for id in 5..20 {
        let point = format!(
            r#"{{"id": {id}, "vector": [{id}, 0], "content": "", "ttl_ms": 0, "metadata": null, "upsert": true}}"#
        );
        wire.ok("POST", "/v1/collections/docs/points", &point);
    }
    let ten = wire.ok("POST", QUERY, r#"{"prefetch": [{"dense": [0, 0], "k": 0}], "mode": "fusion", "method": "rrf", "alpha": 0, "rrf_k": 0, "k": 0}"#);
    assert_eq!(ids(&ten["results"]), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
}

fn queries_fuse_and_rerank_and_group(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    filled(&mut wire);
    let lanes =
        r#""prefetch": [{"dense": [0, 0], "k": 4}, {"sparse": {"indices": [2], "values": [1.0]}, "k": 4}]"#;
    let zeros = r#""method": "rrf", "alpha": 0, "rrf_k": 0, "k": 4"#;
    // Dense ranks 1 2 3 4, sparse 3 2; constant 60, as zero says.
    let fused = wire.ok("POST", QUERY, &format!(r#"{{{lanes}, "mode": "fusion", {zeros}}}"#));
    assert_eq!(ids(&fused["results"]), [3, 2, 1, 4]);
    near(
        &scores(&fused["results"]),
        &[1.0 / 63.0 + 1.0 / 61.0, 1.0 / 62.0 + 1.0 / 62.0, 1.0 / 61.0, 1.0 / 64.0],
    );
    // Weight zero is a half.
    let weighted = r#""method": "weighted", "alpha": 0, "rrf_k": 0, "k": 4"#;
    let fused = wire.ok("POST", QUERY, &format!(r#"{{{lanes}, "mode": "fusion", {weighted}}}"#));
    assert_eq!(ids(&fused["results"]), [3, 1, 2, 4]);
    near(&scores(&fused["results"]), &[0.5 * 5.0 / 9.0 + 0.5, 0.5, 0.5 * 8.0 / 9.0, 0.0]);
    let reranked = wire.ok(
        "POST",
        QUERY,
        &format!(r#"{{{lanes}, "mode": "rerank", {zeros}, "root": {{"dense": [3, 0]}}}}"#),
    );
    assert_eq!(ids(&reranked["results"]), [4, 3, 2, 1]);
    assert_eq!(reranked["results"][0], json!({"id": 4, "distance": 0.0, "score": 0}));
    let grouped = format!(
        r#"{{"prefetch": [{{"dense": [0, 0], "k": 4}}], "mode": "fusion", {zeros}, "group_by": "city", "group_size": 2}}"#
    );
    let grouped = wire.ok("POST", QUERY, &grouped);
    assert_eq!(grouped.get("results"), None);
    assert_eq!(grouped["groups"][0]["key"], json!({"kind": "string", "str": "Oslo"}));
    assert_eq!(ids(&grouped["groups"][0]["hits"]), [1, 3]);
    assert_eq!(grouped["groups"][1]["key"], json!({"kind": "string", "str": "Rome"}));
    assert_eq!((&grouped["degraded"], &grouped["missing"]), (&json!(false), &json!([])));
}

fn recommending_leaves_the_examples_out_and_discovering_orders(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    filled(&mut wire);
    let one = |leaf: &str, k: u32| {
        format!(
            r#"{{"prefetch": [{leaf}], "mode": "fusion", "method": "rrf", "alpha": 0, "rrf_k": 0, "k": {k}}}"#
        )
    };
    let liked = one(r#"{"recommend": {"positive": [1], "negative": [], "strategy": "average"}, "k": 3}"#, 3);
    let liked = wire.ok("POST", QUERY, &liked);
    assert_eq!(ids(&liked["results"]), [2, 3, 4], "as many as asked for, without the example");
    assert_eq!(liked["results"][0], json!({"id": 2, "distance": 1.0, "score": 0}));
    let away = one(r#"{"recommend": {"positive": [2], "negative": [4, 99], "strategy": ""}, "k": 2}"#, 2);
    assert_eq!(ids(&wire.ok("POST", QUERY, &away)["results"]), [1, 3]);
    let best = one(r#"{"recommend": {"positive": [1, 4], "strategy": "best_score"}, "k": 5}"#, 5);
    assert_eq!(ids(&wire.ok("POST", QUERY, &best)["results"]), [2, 3]);
    let (status, _) =
        wire.json("POST", QUERY, &one(r#"{"recommend": {"positive": [99]}, "k": 3}"#, 3)).refused();
    assert_eq!(status, 404);

    // On the right side of the pair first, nearest to the target first; then by how far on the wrong side.
    let found = one(r#"{"discover": {"target": 3, "context": [{"positive": 1, "negative": 4}]}, "k": 4}"#, 4);
    let found = wire.ok("POST", QUERY, &found);
    assert_eq!(ids(&found["results"]), [2, 1, 3, 4], "the target and the pair may be found");
    assert_eq!(found["results"][0], json!({"id": 2, "distance": 1.0, "score": 1.0}));
    near(&scores(&found["results"]), &[1.0, 1.0, -3.0, -9.0]);
    let by_vectors = r#"{"discover": {"target_vec": [2, 0], "context": [{"positive_vec": [0, 0], "negative_vec": [3, 0]}]}, "k": 4}"#;
    assert_eq!(wire.ok("POST", QUERY, &one(by_vectors, 4)), found);
}

fn hybrid_searches_send_every_zero(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    filled(&mut wire);
    let search = "/v1/collections/docs/points/search";
    let zeros = r#""k": 3, "method": "rrf", "alpha": 0.0, "rrf_k": 0, "dense_k": 0, "sparse_k": 0"#;
    let hybrid =
        format!(r#"{{"dense": [0.0, 0.0], "sparse": {{"indices": [2], "values": [1.0]}}, {zeros}}}"#);
    let answer = wire.ok("POST", &format!("{search}/hybrid"), &hybrid);
    assert_eq!(ids(&answer["results"]), [3, 2, 1]);
    assert_eq!(answer["results"][0]["distance"], json!(4.0));
    near(&scores(&answer["results"]), &[1.0 / 63.0 + 1.0 / 61.0, 1.0 / 62.0 + 1.0 / 62.0, 1.0 / 61.0]);
    let filter = r#"{"op": "eq", "field": "city", "value": {"kind": "string", "str": "Oslo"}}"#;
    let filtered = hybrid.replace(r#""k": 3"#, &format!(r#""k": 3, "filter": {filter}"#));
    assert_eq!(ids(&wire.ok("POST", &format!("{search}/hybrid"), &filtered)["results"]), [3, 1]);

    // The dense half is called vector here.
    let text = format!(r#"{{"vector": [3.0, 0.0], "text": "river", {zeros}}}"#);
    let answer = wire.ok("POST", &format!("{search}/hybrid-text"), &text);
    assert_eq!(ids(&answer["results"])[0], 1, "in both lanes");
    assert_eq!(answer["results"][0]["distance"], json!(9.0));
    let global = text.replace("\"text\"", "\"global_idf\": true, \"text\"");
    assert_eq!(wire.ok("POST", &format!("{search}/hybrid-text"), &global), answer);
    let one_lane = format!(r#"{{"vector": [3.0, 0.0], "text": "the", {zeros}}}"#);
    wire.exact(
        "POST",
        &format!("{search}/hybrid-text"),
        &one_lane,
        200,
        r#"{"results":[{"id":4,"distance":0.0,"score":0},{"id":3,"distance":1.0,"score":0},{"id":2,"distance":4.0,"score":0}],"degraded":false,"missing":[]}"#,
    );
    let neither = format!(r#"{{"dense": [], "sparse": {{"indices": [], "values": []}}, {zeros}}}"#);
    let nothing = r#"{"results":[],"degraded":false,"missing":[]}"#;
    wire.exact("POST", &format!("{search}/hybrid"), &neither, 200, nothing);
}
