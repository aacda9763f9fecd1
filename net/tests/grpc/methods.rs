//! Every method against a node, and its answers beside those of REST.
use super::*;
use nigh_net::op::Op;
use nigh_net::op::table::grpc_methods;
use serde_json::{Value, json};
use std::collections::HashSet;

/// Whether a message says what JSON of REST says: zeros and empty lists may be left out of either, and floats are of 32 bits.
fn same(message: &Value, rest: &Value) -> bool {
    match (message, rest) {
        (Value::Object(message), Value::Object(rest)) => {
            let keys: HashSet<&String> = message.keys().chain(rest.keys()).collect();
            keys.iter().all(|key| {
                let side = |object: &serde_json::Map<_, _>| object.get(*key).cloned().unwrap_or(Value::Null);
                same(&side(message), &side(rest))
            })
        }
        (Value::Array(message), Value::Array(rest)) => {
            message.len() == rest.len() && message.iter().zip(rest).all(|(a, b)| same(a, b))
        }
        (Value::Number(a), Value::Number(b)) => {
            a == b || a.as_f64().map(|a| a as f32) == b.as_f64().map(|b| b as f32)
        }
        (Value::Null, other) | (other, Value::Null) => is_zero(other),
        (a, b) => a == b,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
    }
}

/// The answer of REST with JSON values inside fields of text, as messages have them.
fn as_message(rest: &Value) -> Value {
    match rest {
        Value::Array(list) => list.iter().map(as_message).collect(),
        Value::Object(object) => {
            let mut made = serde_json::Map::new();
            for (key, value) in object {
                match (key.as_str(), value) {
                    ("metadata" | "payload", Value::Null) => {}
                    ("metadata" | "payload" | "key", value) => {
                        made.insert(format!("{key}_json"), value.to_string().into());
                    }
                    ("sparse", value) => {
                        made.insert("sparse_indices".to_owned(), value["indices"].clone());
                        made.insert("sparse_values".to_owned(), value["values"].clone());
                    }
                    (_, value) => {
                        made.insert(key.clone(), as_message(value));
                    }
                }
            }
            Value::Object(made)
        }
        other => other.clone(),
    }
}

#[track_caller]
fn like_rest(message: &Value, rest: &Value) {
    let rest = as_message(rest);
    assert!(same(message, &rest), "gRPC says {message}\nREST says {rest}");
}

/// A collection of a name with points 1 to 6 in it, made over gRPC.
fn filled(client: &GrpcClient, name: &str) {
    let config = json!({"dim": 2, "metric": "l2", "full_text": {}});
    let made = client.call("CreateCollection", json!({"name": name, "config": config})).unwrap();
    assert_eq!(made, json!({"name": name}));
    for id in 1..=6_u64 {
        let metadata =
            json!({"n": {"kind": "int", "int": id}, "even": {"kind": "bool", "bool": id % 2 == 0}});
        let answer = client.call(
            "Upsert",
            json!({"collection": name, "id": id, "vector": [id as f32, 0.5], "content": format!("word number {id}"),
                "metadata_json": metadata.to_string(), "sparse_indices": [1, id + 10], "sparse_values": [1.0, 0.25]}),
        );
        assert_eq!(answer.unwrap(), json!({"id": id}));
    }
}

const EVEN: &str = r#"{"op":"eq","field":"even","value":{"kind":"bool","bool":true}}"#;

#[test]
fn collections() {
    let (client, mut rest) = (SHARED.client(), SHARED.rest());
    assert_eq!(client.call("Health", json!({})).unwrap(), json!({"status": "ok"}));
    let config = json!({"dim": 48, "metric": "ip", "m": 12, "ef_construction": 99, "ef_search": 77, "seed": -5,
        "quant": "pq", "quant_pq_m": 12, "pq_nbits": 4, "opq": true, "opq_iters": 3, "anisotropic_eta": 2.5,
        "rescore_factor": 4, "full_text": {"analyzer": "cjk", "k1": 0.9, "b": 0.5}, "max_vectors": 100, "traversal_codes": false});
    client.call("CreateCollection", json!({"name": "g_made", "config": config})).unwrap();
    let made = client.call("GetConfig", json!({"name": "g_made"})).unwrap();
    assert_eq!(made["name"], "g_made");
    let told = rest.json("GET", "/v1/collections/g_made", Value::Null);
    for key in ["dim", "m", "ef_construction", "ef_search", "seed", "quant", "rescore_factor", "max_vectors"]
    {
        assert!(same(&made["config"][key], &told["config"][key]), "{key}: {made} {told}");
    }
    for key in ["quant_pq_m", "pq_nbits", "opq_iters", "anisotropic_eta"] {
        assert!(same(&made["config"][key], &told["config"]["trained"][key]), "{key}: {made} {told}");
    }
    assert_eq!(made["config"]["opq"], true);
    assert_eq!(made["config"]["metric"], "dot");
    assert!(same(&made["config"]["full_text"], &json!({"analyzer": "cjk", "k1": 0.9, "b": 0.5})), "{made}");
    // What one is told makes another like it.
    client.call("CreateCollection", json!({"name": "g_again", "config": made["config"]})).unwrap();
    let again = client.call("GetConfig", json!({"name": "g_again"})).unwrap();
    assert_eq!(again["config"], made["config"]);

    let listed = client.call("ListCollections", json!({})).unwrap();
    let entry = listed["collections"].as_array().unwrap().iter().find(|one| one["name"] == "g_made").unwrap();
    assert_eq!(*entry, json!({"name": "g_made", "dim": 48, "metric": "dot"}));

    for (request, code, fragment) in [
        (
            json!({"name": "g_made", "config": {"dim": 2}}),
            ALREADY_EXISTS,
            "collection \"default/g_made\" already exists",
        ),
        (json!({"name": "g_none"}), INVALID_ARGUMENT, "config is missing"),
        (json!({"name": "g#none", "config": {"dim": 2}}), INVALID_ARGUMENT, "#"),
        (json!({"name": "g@none", "config": {"dim": 2}}), INVALID_ARGUMENT, "@"),
        (json!({"config": {"dim": 2}}), INVALID_ARGUMENT, "name"),
        (json!({"name": "g_none", "config": {}}), INVALID_ARGUMENT, "every configuration states dim"),
        (json!({"name": "g_none", "config": {"dim": -1}}), INVALID_ARGUMENT, "dim"),
        (
            json!({"name": "g_none", "config": {"dim": 2, "metric": "Cosine"}}),
            INVALID_ARGUMENT,
            "unknown metric \"Cosine\"",
        ),
        (
            json!({"name": "g_none", "config": {"dim": 2, "index_type": "tree"}}),
            INVALID_ARGUMENT,
            "unknown index_type",
        ),
        (
            json!({"name": "g_none", "config": {"dim": 2, "partitions": 4}}),
            INVALID_ARGUMENT,
            "does not offer partitions",
        ),
        (json!({"name": "g_none", "config": {"dim": 2, "opq_iters": 21}}), INVALID_ARGUMENT, "opq_iters"),
        (
            json!({"name": "g_none", "config": {"dim": 2, "ivf_drift_factor": 0.5}}),
            INVALID_ARGUMENT,
            "ivf_drift_factor",
        ),
        (
            json!({"name": "g_none", "config": {"dim": 2, "full_text": {"analyzer": "klingon"}}}),
            INVALID_ARGUMENT,
            "unknown analyzer \"klingon\"; it must be one of english, arabic",
        ),
    ] {
        client.refused("CreateCollection", request, code, fragment);
    }
    for name in ["g_made", "g_again", "g_never"] {
        assert_eq!(client.call("DropCollection", json!({"name": name})).unwrap(), json!({"name": name}));
    }
    client.refused("GetConfig", json!({"name": "g_made"}), NOT_FOUND, "unknown collection \"g_made\"");
    let wrong = json!({"name": "g_made", "read_consistency": 4});
    client.refused("GetConfig", wrong, INVALID_ARGUMENT, "read_consistency must be 0, 1, 2 or 3, found 4");
}

#[test]
fn points() {
    let (client, mut rest) = (SHARED.client(), SHARED.rest());
    filled(&client, "g_points");
    let path = "/v1/collections/g_points/points";
    let of = |more: Value| {
        let mut request = json!({"collection": "g_points"});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    // Reads.
    let found = client.call("Get", of(json!({"id": 3}))).unwrap();
    like_rest(&found, &rest.json("GET", &format!("{path}/3"), Value::Null));
    assert_eq!(found["vector"], json!([3.0, 0.5]));
    let vector = client.call("Get", of(json!({"id": 3, "with_vector": true}))).unwrap();
    assert!(vector.get("payload_json").is_none() && vector["sparse_indices"] == json!([1, 13]), "{vector}");
    let payload = client.call("Get", of(json!({"id": 3, "with_payload": true}))).unwrap();
    assert!(payload.get("vector").is_none() && payload["payload_json"] == found["payload_json"], "{payload}");
    let batch = client.call("GetBatch", of(json!({"ids": [6, 99, 1, 6]}))).unwrap();
    like_rest(&batch, &rest.json("POST", &format!("{path}/batch-get"), json!({"ids": [6, 99, 1, 6]})));
    assert_eq!(client.call("GetBatch", of(json!({}))).unwrap(), json!({}));
    client.refused("Get", of(json!({"id": 99})), NOT_FOUND, "point 99 not found in collection \"g_points\"");
    client.refused("Get", json!({"collection": "g_no", "id": 1}), NOT_FOUND, "unknown collection \"g_no\"");
    client.refused("GetBatch", json!({"collection": "g_no"}), NOT_FOUND, "unknown collection \"g_no\"");
    client.refused("Get", of(json!({"id": 1, "read_consistency": 300})), INVALID_ARGUMENT, "found 300");
    let unavailable = of(json!({"id": 1, "on_partition_unavailable": 2}));
    client.refused("Get", unavailable, INVALID_ARGUMENT, "on_partition_unavailable must be 0 or 1, found 2");

    // Writes and their conditions.
    let point = |more: Value| {
        let mut request = of(json!({"id": 1, "vector": [1.0, 1.0]}));
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    client.refused("Upsert", point(json!({})), ALREADY_EXISTS, "1");
    let conflict = point(json!({"upsert": true, "has_expected_version": true, "expected_version": 9}));
    client.refused(
        "Upsert",
        conflict,
        FAILED_PRECONDITION,
        "version conflict on id 1: expected_version is not",
    );
    // Counts with its flag alone.
    client.call("Upsert", point(json!({"upsert": true, "expected_version": 9, "no_wait": true}))).unwrap();
    let version = client.call("Get", of(json!({"id": 1}))).unwrap()["version"].clone();
    let right = json!({"upsert": true, "has_expected_version": true, "expected_version": version,
        "write_consistency_factor": 300});
    client.call("Upsert", point(right)).unwrap();
    for (more, code, fragment) in [
        (json!({"vector": [1.0]}), INVALID_ARGUMENT, "dimension"),
        (json!({"metadata_json": "{"}), INVALID_ARGUMENT, "metadata_json: "),
        (json!({"metadata_json": r#"{"a":{"kind":"blob"}}"#}), INVALID_ARGUMENT, "metadata_json: "),
        (json!({"sparse_indices": [1]}), INVALID_ARGUMENT, "sparse: 1 indices but 0 values"),
        (
            json!({"sparse_indices": [2, 2], "sparse_values": [1.0, 1.0]}),
            INVALID_ARGUMENT,
            "strictly ascending",
        ),
        (json!({"ttl_ms": i64::MAX}), INVALID_ARGUMENT, "ttl_ms"),
        (json!({"key_ttl_ms": {"a": i64::MAX}}), INVALID_ARGUMENT, "key_ttl_ms of \"a\""),
    ] {
        client.refused("Upsert", point(more), code, fragment);
    }
    let lasting = json!({"id": 7, "vector": [7.0, 7.0], "ttl_ms": 3_600_000, "key_ttl_ms": {"a": 3_600_000},
        "metadata_json": r#"{"a":1,"b":[1,2]}"#});
    client.call("Upsert", of(lasting)).unwrap();
    let lasting = client.call("Get", of(json!({"id": 7}))).unwrap();
    assert!(lasting["ttl_ms"].as_i64().unwrap() > 3_500_000, "{lasting}");

    // Batches.
    let batch = |points: Value, upsert: bool| of(json!({"points": points, "upsert": upsert}));
    let points =
        json!([{"id": 20, "vector": [1.0, 2.0], "content": "twenty"}, {"id": 21, "vector": [3.0, 4.0]}]);
    assert_eq!(client.call("UpsertBatch", batch(points, false)).unwrap(), json!({"count": 2}));
    // As many deadlines as a point may have, in several points.
    let ttls: serde_json::Map<String, Value> =
        (0..16_384).map(|key| (key.to_string(), json!(60_000))).collect();
    let points: Vec<Value> = (40..44)
        .map(|id| json!({"id": id, "vector": [1.0, 2.0], "metadata_json": r#"{"7":1}"#, "key_ttl_ms": ttls}))
        .collect();
    assert_eq!(client.call("UpsertBatch", batch(json!(points), true)).unwrap(), json!({"count": 4}));
    let told = client.call("Get", of(json!({"id": 43, "with_payload": true}))).unwrap();
    assert_eq!(told["payload_json"], r#"{"7":{"kind":"int","int":1}}"#);
    for id in 40..44 {
        client.call("Delete", of(json!({"id": id}))).unwrap();
    }
    let mixed = json!([{"id": 20, "vector": [1.0, 2.0], "has_expected_version": true, "expected_version": 77},
        {"id": 22, "vector": [1.0, 2.0]}]);
    let told = client.call("UpsertBatch", batch(mixed, true)).unwrap();
    assert_eq!((&told["count"], &told["results"][0]), (&json!(2), &json!({"id": 20, "conflict": true})));
    assert_eq!(told["results"][1]["id"], 22);
    let again = json!([{"id": 30, "vector": [1.0, 2.0]}, {"id": 21, "vector": [3.0, 4.0]}]);
    client.refused("UpsertBatch", batch(again, false), ALREADY_EXISTS, "points[1] with id 21: ");
    let wrong = json!([{"id": 31, "vector": [1.0, 2.0]}, {"id": 32, "metadata_json": "["}]);
    client.refused(
        "UpsertBatch",
        batch(wrong, false),
        INVALID_ARGUMENT,
        "points[1] with id 32: metadata_json: ",
    );
    client.refused("Get", of(json!({"id": 31})), NOT_FOUND, "point 31 not found");

    // Payloads.
    let set = of(json!({"id": 2, "payload_json": r#"{"x":{"kind":"string","str":"y"}}"#}));
    assert_eq!(client.call("SetPayload", set.clone()).unwrap(), json!({"applied": true}));
    let keys = |client: &GrpcClient| {
        let point = client.call("Get", of(json!({"id": 2, "with_payload": true}))).unwrap();
        let payload: Value = serde_json::from_str(point["payload_json"].as_str().unwrap_or("{}")).unwrap();
        payload.as_object().unwrap().keys().cloned().collect::<HashSet<_>>()
    };
    assert!(keys(&client).contains("x") && keys(&client).contains("n"));
    client.call("OverwritePayload", set).unwrap();
    assert_eq!(keys(&client), HashSet::from(["x".to_owned()]));
    client.call("SetPayload", of(json!({"id": 2, "payload_json": r#"{"a":1,"b":2}"#}))).unwrap();
    client.call("DeletePayloadKeys", of(json!({"id": 2, "keys": ["x", "a"]}))).unwrap();
    assert_eq!(keys(&client), HashSet::from(["b".to_owned()]));
    client.call("ClearPayload", of(json!({"id": 2}))).unwrap();
    assert!(keys(&client).is_empty());
    for method in ["SetPayload", "OverwritePayload", "DeletePayloadKeys", "ClearPayload"] {
        client.refused(method, of(json!({"id": 99})), NOT_FOUND, "point not found: id 99");
        let conflict = json!({"id": 2, "has_expected_version": true, "expected_version": 999});
        client.refused(method, of(conflict), FAILED_PRECONDITION, "version conflict");
    }
    client.refused(
        "SetPayload",
        of(json!({"id": 2, "payload_json": "x"})),
        INVALID_ARGUMENT,
        "payload_json: ",
    );

    // Deletions.
    let conflict = of(json!({"id": 5, "has_expected_version": true, "expected_version": 999}));
    client.refused("Delete", conflict, FAILED_PRECONDITION, "version conflict");
    assert_eq!(client.call("Delete", of(json!({"id": 5}))).unwrap(), json!({"deleted": true}));
    assert_eq!(client.call("Delete", of(json!({"id": 5}))).unwrap(), json!({}));
    let gone = client.call("DeleteByFilter", of(json!({"filter_json": EVEN}))).unwrap();
    // Points 4 and 6: the payload of 2 has been cleared.
    assert_eq!(gone, json!({"deleted": 2}));
    client.refused("DeleteByFilter", of(json!({})), INVALID_ARGUMENT, "delete by filter needs a filter");
    // By ids: repeats and ids that are absent do not count.
    for id in [50, 51, 52] {
        client.call("Upsert", of(json!({"id": id, "vector": [1.0, 2.0]}))).unwrap();
    }
    let ids = of(json!({"ids": [52, 50, 52, 4_000_000_000_u64]}));
    assert_eq!(client.call("DeleteByFilter", ids.clone()).unwrap(), json!({"deleted": 2}));
    assert_eq!(client.call("DeleteByFilter", ids).unwrap(), json!({}));
    client.call("Get", of(json!({"id": 51}))).unwrap();
    client.refused("Get", of(json!({"id": 52})), NOT_FOUND, "point 52 not found");
    let both = of(json!({"ids": [51], "filter_json": EVEN}));
    client.refused("DeleteByFilter", both, INVALID_ARGUMENT, "filter and ids are both set");
    client.refused("DeleteByFilter", of(json!({"filter_json": "{"})), INVALID_ARGUMENT, "filter_json: ");
}

#[test]
fn searches() {
    let (client, mut rest) = (SHARED.client(), SHARED.rest());
    filled(&client, "g_searches");
    let path = |route: &str| format!("/v1/collections/g_searches/{route}");
    let of = |more: Value| {
        let mut request = json!({"collection": "g_searches"});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    let even: Value = serde_json::from_str(EVEN).unwrap();
    let (sparse, values) = (json!([1, 12]), json!([1.0, 2.0]));
    // Method, its request; route, its body.
    for (method, request, route, body) in [
        (
            "Search",
            json!({"query": [2.0, 0.5], "k": 3}),
            "points/search",
            json!({"query": [2.0, 0.5], "k": 3}),
        ),
        (
            "Search",
            json!({"query": [2.0, 0.5], "k": 3, "filter_json": EVEN, "read_consistency": 3, "max_staleness": 5}),
            "points/search",
            json!({"query": [2.0, 0.5], "k": 3, "filter": even}),
        ),
        (
            "SearchDocs",
            json!({"query": [2.0, 0.5], "k": 3, "filter_json": EVEN}),
            "points/search/docs",
            json!({"query": [2.0, 0.5], "k": 3, "filter": even}),
        ),
        (
            "SearchGroups",
            json!({"query": [2.0, 0.5], "k": 2, "group_by": "even", "group_size": 2, "fetch_k": 6}),
            "points/search/groups",
            json!({"query": [2.0, 0.5], "k": 2, "group_by": "even", "group_size": 2, "fetch_k": 6}),
        ),
        (
            "HybridSearch",
            json!({"dense": [2.0, 0.5], "k": 4, "sparse_indices": sparse, "sparse_values": values,
                "method": "weighted", "alpha": 0.25, "dense_k": 5, "sparse_k": 6}),
            "points/search/hybrid",
            json!({"dense": [2.0, 0.5], "k": 4, "sparse": {"indices": sparse, "values": values},
                "method": "weighted", "alpha": 0.25, "dense_k": 5, "sparse_k": 6}),
        ),
        (
            "HybridSearch",
            json!({"dense": [2.0, 0.5], "k": 4, "sparse_indices": sparse, "sparse_values": values, "rrf_k": 7,
                "filter_json": EVEN}),
            "points/search/hybrid",
            json!({"dense": [2.0, 0.5], "k": 4, "sparse": {"indices": sparse, "values": values}, "rrf_k": 7,
                "filter": even}),
        ),
        (
            "TextSearch",
            json!({"text": "number 4", "k": 3, "global_idf": true}),
            "points/search/text",
            json!({"text": "number 4", "k": 3}),
        ),
        (
            "TextSearch",
            json!({"text": "number 4", "k": 3, "phrase": true}),
            "points/search/text",
            json!({"text": "number 4", "k": 3, "match": {"phrase": true}}),
        ),
        (
            "HybridTextSearch",
            json!({"dense": [2.0, 0.5], "text": "the numb", "k": 3, "method": "dbsf", "phrase": true, "prefix": true}),
            "points/search/hybrid-text",
            json!({"dense": [2.0, 0.5], "text": "the numb", "k": 3, "method": "dbsf",
                "match": {"phrase": true, "prefix": true}}),
        ),
        (
            "HybridTextSearch",
            json!({"dense": [2.0, 0.5], "text": "number 4", "k": 3, "method": "dbsf"}),
            "points/search/hybrid-text",
            json!({"dense": [2.0, 0.5], "text": "number 4", "k": 3, "method": "dbsf"}),
        ),
        (
            "VectorQuery",
            json!({"spec": {"prefetch": [{"dense": {"dense": [2.0, 0.5]}}, {"sparse": {"indices": sparse, "values": values}}],
                "k": 4, "fusion_method": "rrf"}}),
            "query",
            json!({"prefetch": [{"dense": [2.0, 0.5]}, {"sparse": {"indices": sparse, "values": values}}], "k": 4}),
        ),
        (
            "VectorQuery",
            json!({"spec": {"prefetch": [{"recommend": {"positive": [1, 2], "strategy": 1}}],
                "mode": 1, "root": {"dense": {"dense": [3.0, 0.5], "filter_json": EVEN}}, "k": 3}}),
            "query",
            json!({"prefetch": [{"recommend": {"positive": [1, 2], "strategy": "best_score"}}],
                "mode": "rerank", "root": {"dense": [3.0, 0.5], "filter": even}, "k": 3}),
        ),
        (
            "VectorQuery",
            json!({"spec": {"prefetch_sources": [{"leaf": {"discover": {"target_id": [3],
                "context_ids": [{"positive": 2, "negative": 5}]}}}], "group_by": "even", "group_size": 2, "k": 2}}),
            "query",
            json!({"prefetch": [{"discover": {"target": 3, "context": [{"positive": 2, "negative": 5}]}}],
                "group_by": "even", "group_size": 2, "k": 2}),
        ),
        // Lanes beside sources are not looked at.
        (
            "VectorQuery",
            json!({"spec": {"prefetch_sources": [{"leaf": {"dense": {"dense": [2.0, 0.5]}}}],
                "prefetch": [{"dense": {"dense": [1.0], "filter_json": "{"}}, {"mv_maxsim": {}}, {}], "k": 2}}),
            "query",
            json!({"prefetch": [{"dense": [2.0, 0.5]}], "k": 2}),
        ),
        ("Scroll", json!({}), "points/scroll", json!({})),
        (
            "Scroll",
            json!({"limit": 2, "filter_json": EVEN}),
            "points/scroll",
            json!({"limit": 2, "filter": even}),
        ),
        (
            "Scroll",
            json!({"limit": 2, "order_by": {"key": "n", "desc": true, "start_from": 5.0}}),
            "points/scroll",
            json!({"limit": 2, "order_by": {"key": "n", "desc": true, "start_from": 5}}),
        ),
        (
            "Scroll",
            json!({"order_by": {"key": "even", "is_string": true, "tail_keys": [{"key": "n", "desc": true}]}}),
            "points/scroll",
            json!({"order_by": {"key": "even", "is_string": true, "tail_keys": [{"key": "n", "desc": true}]}}),
        ),
        // What a tail key says beyond its order has no effect.
        (
            "Scroll",
            json!({"order_by": {"key": "even", "is_string": true, "tail_keys": [{"key": "n", "desc": true,
                "start_from": 3.0, "start_from_datetime": "soon", "tail_keys": [{"key": "even"}, {}]}]}}),
            "points/scroll",
            json!({"order_by": {"key": "even", "is_string": true, "tail_keys": [{"key": "n", "desc": true,
                "start_from": "soon", "tail_keys": [{"key": "even", "tail_keys": []}, {}]}]}}),
        ),
    ] {
        let message = client.call(method, of(request.clone()));
        let message = message.unwrap_or_else(|refusal| panic!("{method} {request}: {refusal:?}"));
        like_rest(&message, &rest.json("POST", &path(route), body));
    }
    // Pages go on over either transport.
    let first = client.call("Scroll", of(json!({"limit": 4}))).unwrap();
    let cursor = &first["next_cursor"];
    let second = client.call("Scroll", of(json!({"limit": 4, "cursor": cursor}))).unwrap();
    like_rest(&second, &rest.json("POST", &path("points/scroll"), json!({"limit": 4, "cursor": cursor})));
    assert_eq!(second["documents"].as_array().unwrap().len(), 2);
    assert!(second.get("next_cursor").is_none());

    let shown = format!("malformed scroll cursor \"{}…\"", "x".repeat(100));
    for (method, request, code, fragment) in [
        ("Search", json!({"query": [1.0, 1.0]}), INVALID_ARGUMENT, "k must be between 1 and 65536, found 0"),
        ("Search", json!({"query": [1.0, 1.0], "k": -1}), INVALID_ARGUMENT, "found -1"),
        ("Search", json!({"query": [1.0], "k": 1}), INVALID_ARGUMENT, "dimension"),
        (
            "Search",
            json!({"query": [1.0, 1.0], "k": 1, "filter_json": r#"{"op":"equals"}"#}),
            INVALID_ARGUMENT,
            "filter_json: unknown op",
        ),
        (
            "SearchGroups",
            json!({"query": [1.0, 1.0], "k": 1}),
            INVALID_ARGUMENT,
            "group_by must name a payload key",
        ),
        (
            "HybridSearch",
            json!({"dense": [1.0, 1.0], "k": 1, "method": "max"}),
            INVALID_ARGUMENT,
            "unknown fusion method \"max\"",
        ),
        (
            "HybridSearch",
            json!({"k": 1, "alpha": 2.0, "method": "dbsf"}),
            INVALID_ARGUMENT,
            "alpha must be between 0 and 1",
        ),
        ("VectorQuery", json!({}), INVALID_ARGUMENT, "spec is required"),
        ("VectorQuery", json!({"spec": {}}), INVALID_ARGUMENT, "at least one lane"),
        ("VectorQuery", json!({"spec": {"prefetch": [{}]}}), INVALID_ARGUMENT, "a leaf of a query is empty"),
        (
            "VectorQuery",
            json!({"spec": {"prefetch": [{"mv_maxsim": {}}]}}),
            INVALID_ARGUMENT,
            "does not work on a dense collection",
        ),
        ("VectorQuery", json!({"spec": {"prefetch": [{"recommend": {"positive": [99]}}]}}), NOT_FOUND, "99"),
        ("Scroll", json!({"limit": -1}), INVALID_ARGUMENT, "limit must not be negative, found -1"),
        ("Scroll", json!({"cursor": "x"}), INVALID_ARGUMENT, "malformed scroll cursor \"x\""),
        ("Scroll", json!({"cursor": "x".repeat(5_000)}), INVALID_ARGUMENT, &shown),
        ("Scroll", json!({"order_by": {}}), INVALID_ARGUMENT, "order_by: the key is empty"),
        (
            "Scroll",
            json!({"order_by": {"key": "n", "start_from_datetime": "soon"}}),
            INVALID_ARGUMENT,
            "RFC 3339",
        ),
        (
            "Scroll",
            json!({"order_by": {"key": "n", "tail_keys": [{"key": "a", "tail_keys": [
                {"key": "b", "tail_keys": [{"key": "c"}]}]}]}}),
            INVALID_ARGUMENT,
            "tail keys of its own",
        ),
    ] {
        client.refused(method, of(request), code, fragment);
    }
    client.call("CreateCollection", json!({"name": "g_plain", "config": {"dim": 2}})).unwrap();
    client.refused(
        "TextSearch",
        json!({"collection": "g_plain", "text": "a", "k": 1}),
        INVALID_ARGUMENT,
        "full",
    );
}

#[test]
fn aliases() {
    let (client, mut rest) = (SHARED.client(), SHARED.rest());
    filled(&client, "g_target");
    let both = json!({"alias": "g_alias", "collection": "g_target"});
    assert_eq!(client.call("CreateAlias", both.clone()).unwrap(), both);
    assert_eq!(client.call("CreateAlias", both.clone()).unwrap(), both, "it replaces");
    client.call("Get", json!({"collection": "g_alias", "id": 1})).unwrap();
    let listed = client.call("ListAliases", json!({"collection": "g_target"})).unwrap();
    like_rest(&listed, &rest.json("GET", "/v1/aliases?collection=g_target", Value::Null));
    assert_eq!(listed, json!({"aliases": [both]}));
    let all = client.call("ListAliases", json!({})).unwrap();
    assert!(all["aliases"].as_array().unwrap().contains(&both));
    let actions = json!([{"alias": "g_one", "collection": "g_target"}, {"alias": "g_alias", "collection": "x", "delete": true}]);
    assert_eq!(client.call("AliasBatch", json!({"actions": actions})).unwrap(), json!({"applied": 2}));
    client.refused(
        "Get",
        json!({"collection": "g_alias", "id": 1}),
        NOT_FOUND,
        "unknown collection \"g_alias\"",
    );
    assert_eq!(client.call("DeleteAlias", json!({"alias": "g_one"})).unwrap(), json!({"alias": "g_one"}));
    assert_eq!(client.call("DeleteAlias", json!({"alias": "g_one"})).unwrap(), json!({"alias": "g_one"}));
    for (method, request, fragment) in [
        ("CreateAlias", json!({"collection": "g_target"}), "alias: alias is required"),
        ("CreateAlias", json!({"alias": "g_a"}), "alias: collection is required"),
        ("DeleteAlias", json!({}), "alias: alias is required"),
        ("AliasBatch", json!({"actions": [{"alias": "g_a"}]}), "actions[0]: alias: collection is required"),
    ] {
        client.refused(method, request, INVALID_ARGUMENT, fragment);
    }
    let nowhere = json!({"alias": "g_a", "collection": "g_nowhere"});
    client.refused("CreateAlias", nowhere, INVALID_ARGUMENT, "there is no collection \"g_nowhere\"");
}

/// What this node lacks is refused as REST refuses it, after what is wrong with the request.
#[test]
fn what_the_node_lacks() {
    let client = SHARED.client();
    filled(&client, "g_whole");
    for method in ["Resplit", "Reshard", "MVResplit", "MVReshard"] {
        let wrong = json!({"name": "g_whole", "new_partitions": 1});
        client.refused(
            method,
            wrong,
            INVALID_ARGUMENT,
            "new_partitions must be between 2 and 65536, found 1",
        );
        let right = json!({"name": "g_whole", "new_partitions": 2});
        client.refused(method, right, FAILED_PRECONDITION, "this node is not partitioned");
    }
    for method in ["ResplitCleanup", "ReshardAbort", "MVResplitCleanup", "MVReshardAbort"] {
        client.refused(
            method,
            json!({"name": "g_whole"}),
            FAILED_PRECONDITION,
            "this node is not partitioned",
        );
        client.refused(method, json!({"name": "g_no"}), NOT_FOUND, "unknown collection \"g_no\"");
    }
    let registry = "no key registry is configured on this node";
    client.refused("KeysAdd", json!({"token": "t"}), INVALID_ARGUMENT, "key: tenant is required");
    client.refused(
        "KeysAdd",
        json!({"token": "t", "tenant": "w", "scopes": ["read:*"]}),
        FAILED_PRECONDITION,
        registry,
    );
    client.refused("KeysRevoke", json!({}), INVALID_ARGUMENT, "key: token is required");
    client.refused("KeysRevoke", json!({"token": "t"}), FAILED_PRECONDITION, registry);
    client.refused("KeysList", json!({}), FAILED_PRECONDITION, registry);
    // Every other method is served.
    assert!(grpc_methods().all(|(row, _)| row.op != Op::Absent));
}

/// Every refusal of the operations themselves has the sentence that it has over REST.
#[test]
fn sentences_are_those_of_rest() {
    let (client, mut rest) = (SHARED.client(), SHARED.rest());
    filled(&client, "g_words");
    let path = |route: &str| format!("/v1/collections/g_words/{route}");
    for (method, request, verb, route, body) in [
        ("Search", json!({"query": [1.0], "k": 1}), "POST", "points/search", json!({"query": [1.0], "k": 1})),
        ("Search", json!({"query": [1.0, 2.0]}), "POST", "points/search", json!({"query": [1.0, 2.0]})),
        (
            "Upsert",
            json!({"id": 1, "vector": [1.0, 2.0]}),
            "POST",
            "points",
            json!({"id": 1, "vector": [1.0, 2.0]}),
        ),
        ("Upsert", json!({"id": 9, "vector": [1.0]}), "POST", "points", json!({"id": 9, "vector": [1.0]})),
        ("ClearPayload", json!({"id": 99}), "POST", "points/99/payload/clear", json!({})),
        ("DeleteByFilter", json!({}), "POST", "points/delete", json!({})),
        (
            "VectorQuery",
            json!({"spec": {"prefetch": [{"recommend": {"positive": [99]}}]}}),
            "POST",
            "query",
            json!({"prefetch": [{"recommend": {"positive": [99]}}]}),
        ),
    ] {
        let mut request = request;
        request["collection"] = "g_words".into();
        let (_, sentence) = client.call(method, request).unwrap_err();
        let (status, text) = rest.text(verb, &path(route), &body.to_string());
        let told: Value = serde_json::from_str(&text).unwrap();
        assert!(status >= 400 && told["error"] == sentence, "{method} says {sentence:?}, REST {text}");
    }
}

/// A package that is an alias has the same methods, and no other has any.
#[test]
fn a_second_package() {
    let server = Server::start(Arc::new(Open), |config| config.alias = Some("acme.v2".to_owned()));
    let mut client = server.client();
    client.package = "acme.v2".to_owned();
    filled(&client, "docs");
    client.package = "svc.v1".to_owned();
    assert_eq!(client.call("Get", json!({"collection": "docs", "id": 1})).unwrap()["found"], true);
    client.package = "acme.v1".to_owned();
    let path = "unknown method /acme.v1.VectorService/Health";
    assert_eq!(client.call("Health", json!({})), Err((UNIMPLEMENTED, path.to_owned())));
}

/// More documents than fit into a page, and long ones.
#[test]
fn long_answers() {
    let (client, mut rest) = (SHARED.client(), SHARED.rest());
    client.call("CreateCollection", json!({"name": "g_long", "config": {"dim": 2, "metric": "l2"}})).unwrap();
    let text = "x".repeat(2000);
    let points: Vec<Value> = (0..2000_u64)
        .map(|id| json!({"id": id, "vector": [id as f32, 0.0], "content": if id % 7 == 0 { &*text } else { "" }}))
        .collect();
    client.call("UpsertBatch", json!({"collection": "g_long", "points": points})).unwrap();
    for (method, request, route, body) in [
        ("Scroll", json!({}), "points/scroll", json!({})),
        (
            "SearchDocs",
            json!({"query": [0.0, 0.0], "k": 2000}),
            "points/search/docs",
            json!({"query": [0.0, 0.0], "k": 2000}),
        ),
        (
            "Search",
            json!({"query": [0.0, 0.0], "k": 2000}),
            "points/search",
            json!({"query": [0.0, 0.0], "k": 2000}),
        ),
        (
            "GetBatch",
            json!({"ids": (0..2010_u64).collect::<Vec<_>>()}),
            "points/batch-get",
            json!({"ids": (0..2010_u64).collect::<Vec<_>>()}),
        ),
    ] {
        let mut request = request;
        request["collection"] = "g_long".into();
        let message = client.call(method, request).unwrap();
        like_rest(&message, &rest.json("POST", &format!("/v1/collections/g_long/{route}"), body));
    }
}
