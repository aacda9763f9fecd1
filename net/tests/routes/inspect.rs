//! Lists and figures of collections, counts, facets and samples.
use crate::common::server::SHARED;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[test]
fn what_there_is() {
    let mut client = SHARED.client();
    client.create("figures", 2, "l2");
    let points = "/v1/collections/figures/points";
    let batch: Vec<Value> = (0..3000u64)
        .map(|id| {
            let mut metadata =
                json!({"n": id % 7, "tags": [format!("t{}", id % 3), "all"], "even": id.is_multiple_of(2)});
            if id.is_multiple_of(10) {
                metadata["rare"] = json!(0.5);
            }
            json!({"id": id, "vector": [id, 1], "metadata": metadata})
        })
        .collect();
    client.json("POST", &format!("{points}/batch"), json!({ "points": batch }));

    let all = client.json("GET", "/v1/collections", Value::Null);
    let listed = all["collections"].as_array().unwrap().iter().find(|c| c["name"] == "figures").unwrap();
    let expected = json!({"name": "figures", "family": "dense", "dim": 2, "metric": "l2", "points": 3000, "damaged": false, "closed": false, "opening": false});
    assert_eq!(listed, &expected);
    let info = client.json("GET", "/v1/collections/default%2Ffigures", Value::Null);
    assert_eq!((&info["name"], &info["points"]), (&json!("figures"), &json!(3000)));
    assert_eq!(
        (&info["config"]["dim"], &info["config"]["metric"], &info["config"]["m"]),
        (&json!(2), &json!("l2"), &json!(16))
    );
    let index = &info["index"];
    assert_eq!(index["indexed"].as_u64().unwrap() + index["waiting"].as_u64().unwrap(), 3000);
    let memory = info["memory"].as_object().unwrap();
    let parts: u64 =
        memory.iter().filter(|(key, _)| *key != "bytes").map(|(_, bytes)| bytes.as_u64().unwrap()).sum();
    assert!(
        parts > 0
            && memory["bytes"].as_u64().unwrap() > 0
            && memory["payload_bytes"].as_u64().unwrap() > 3000
    );
    client.refused("GET", "/v1/collections/nowhere", "", 404, "unknown collection");

    let filter = json!({"op": "eq", "field": "n", "value": 3});
    let matching = (0..3000u64).filter(|id| id % 7 == 3).count();
    client.golden("POST", &format!("{points}/count"), "{}", 200, r#"{"count":3000}"#);
    let count = client.json("POST", &format!("{points}/count"), json!({ "filter": filter }));
    assert_eq!(count, json!({ "count": matching }));

    let facet = format!("{points}/facet");
    client.golden(
        "POST",
        &facet,
        r#"{"key":"n","limit":3}"#,
        200,
        r#"{"facets":[{"value":{"kind":"int"},"count":429},{"value":{"kind":"int","int":1},"count":429},{"value":{"kind":"int","int":2},"count":429}]}"#,
    );
    let tags = client.json("POST", &facet, json!({"key": "tags", "filter": filter}));
    let tag = |name: &str, count: usize| json!({"value": {"kind": "string", "str": name}, "count": count});
    let of = |rest: u64| (0..3000u64).filter(|id| id % 7 == 3 && id % 3 == rest).count();
    let mut expected = vec![("all", matching), ("t0", of(0)), ("t1", of(1)), ("t2", of(2))];
    expected.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
    let expected: Vec<Value> = expected.into_iter().map(|(name, count)| tag(name, count)).collect();
    assert_eq!(tags["facets"], json!(expected));
    client.golden(
        "POST",
        &facet,
        r#"{"key":"rare"}"#,
        200,
        r#"{"facets":[{"value":{"kind":"float","flt":0.5},"count":300}]}"#,
    );
    client.golden("POST", &facet, r#"{"key":"none"}"#, 200, r#"{"facets":[]}"#);

    let sample = format!("{points}/sample");
    let mut draw = |body: Value| -> Vec<u64> {
        let drawn = client.json("POST", &sample, body);
        drawn["documents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|document| document["id"].as_u64().unwrap())
            .collect()
    };
    let first = draw(json!({"limit": 500, "seed": 1}));
    assert_eq!(first, draw(json!({"limit": 500, "seed": 1})), "a seed draws the same points");
    assert_eq!(first[..20], draw(json!({"limit": 20, "seed": 1})));
    assert_ne!(first, draw(json!({"limit": 500, "seed": 2})));
    let distinct: BTreeSet<u64> = first.iter().copied().collect();
    assert_eq!(distinct.len(), 500);
    assert!((150..350).contains(&first.iter().filter(|id| **id < 1500).count()), "from everywhere");
    assert_eq!(draw(json!({})).len(), 10);
    let drawn = draw(json!({"limit": 1000, "filter": filter}));
    assert!(drawn.len() == matching && drawn.iter().all(|id| id % 7 == 3));

    for (route, body, fragment) in [
        ("count", r#"{"limit":1}"#, "unknown field \"limit\""),
        ("count", r#"{"filter":{"op":"eq"}}"#, "invalid filter"),
        ("count", "", "invalid JSON body:"),
        ("facet", "{}", "key is required"),
        ("facet", r#"{"key":"n","limit":0}"#, "limit must be between"),
        ("facet", r#"{"key":"n","limit":10001}"#, "limit must be between"),
        ("sample", r#"{"limit":-1}"#, "limit must be between"),
        ("sample", r#"{"seed":-1}"#, "field \"seed\""),
    ] {
        client.refused("POST", &format!("{points}/{route}"), body, 400, fragment);
    }
    for (route, body) in [("count", "{}"), ("facet", r#"{"key":"n"}"#), ("sample", "{}")] {
        let path = format!("/v1/collections/nowhere/points/{route}");
        client.refused("POST", &path, body, 404, "unknown collection");
    }
}

/// A filtered search of such a collection ended the process.
#[test]
fn enormous_beams_are_refused() {
    let mut client = SHARED.client();
    for key in ["ef_search", "ef_construction"] {
        for beam in ["9223372036854775807", "1048577"] {
            let body = format!(r#"{{"name":"wide","config":{{"dim":1,"{key}":{beam}}}}}"#);
            client.refused("POST", "/v1/collections", &body, 400, "invalid Ef");
        }
    }
    let widest = json!({"dim": 1, "metric": "l2", "ef_search": 1 << 20, "ef_construction": 1 << 20, "m": 128,
        "max_ef_search": u64::MAX, "extend_candidates": true, "extend_candidates_max": i64::MAX});
    client.json("POST", "/v1/collections", json!({"name": "wide", "config": widest}));
    let points: Vec<Value> =
        (0..300).map(|id| json!({"id": id, "vector": [id], "metadata": {"n": id}})).collect();
    client.json("POST", "/v1/collections/wide/points/batch", json!({ "points": points }));
    let filter = json!({"op": "gt", "field": "n", "value": 3});
    let body = json!({"query": [0], "k": 1, "filter": filter});
    let found = client.json("POST", "/v1/collections/wide/points/search", body);
    assert_eq!(found["results"][0]["id"], 4);
    while client.json("GET", "/v1/collections/wide", Value::Null)["index"]["state"] != "ready" {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn builds_in_the_background_say_how_far_they_are() {
    let mut client = SHARED.client();
    client.create("slowly", 8, "l2");
    let points = "/v1/collections/slowly/points";
    let build = json!({"wait": false});
    assert_eq!(
        client.json("POST", &format!("{points}/bulk/build"), build.clone())["status"],
        "built",
        "nothing staged"
    );
    const COUNT: u64 = 6000;
    let vector = |id: u64| (0..8).map(|n| (id * 7919 + n * 104_729) % 1000).collect::<Vec<_>>();
    let staged: Vec<_> = (0..COUNT).map(|id| json!({"id": id, "vector": vector(id)})).collect();
    client.json("POST", &format!("{points}/bulk"), json!({ "points": staged }));
    let begun = client.json("POST", &format!("{points}/bulk/build"), build.clone());
    assert_eq!(begun["status"], "building");
    let mut seen = 0;
    loop {
        let tasks = client.json("GET", "/v1/tasks", json!(null));
        let task =
            tasks["tasks"].as_array().unwrap().iter().find(|task| task["id"] == begun["task"]).unwrap();
        assert_eq!((&task["kind"], &task["collection"]), (&json!("build"), &json!("slowly")));
        assert_eq!((&task["total"], &task["error"]), (&json!(COUNT), &json!(null)));
        let done = task["done"].as_u64().unwrap();
        assert!(done >= seen && done <= COUNT, "{task}");
        seen = done;
        if task["state"] == "done" {
            assert!(task["ended_ms"].as_u64() >= task["began_ms"].as_u64() && done == COUNT, "{task}");
            break;
        }
        assert_eq!((&task["state"], &task["ended_ms"]), (&json!("running"), &json!(null)));
        client.refused("POST", &format!("{points}/bulk/build"), &build.to_string(), 409, "");
    }
    assert_eq!(client.json("POST", &format!("{points}/count"), json!({}))["count"], COUNT);
    client.refused("POST", "/v1/tasks", "", 405, "");
}
