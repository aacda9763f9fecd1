//! Collections of named spaces over REST: what is written is read and found, beside a naive twin; what does not fit is refused by name.
use crate::common::server::{Client, SHARED};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

fn spaces() -> Value {
    json!({"named_vectors": {
        "image": {"dim": 2, "metric": "l2"},
        "title": {"dim": 3, "metric": 0},
        "cells": {"dim": 4, "metric": 1, "index_type": 1, "ivf_train_threshold": 30, "ivf_nlist": 4, "ivf_nprobe": 2},
        "words": {"sparse": true},
        "tags": {"sparse": true}
    }})
}

fn create(client: &mut Client, name: &str) -> String {
    client.golden(
        "POST",
        &format!("/v1/named/{name}"),
        &spaces().to_string(),
        201,
        &format!("{{\"name\":\"{name}\"}}"),
    );
    format!("/v1/named/{name}")
}

#[test]
fn a_life_of_a_point() {
    let mut client = SHARED.client();
    let base = create(&mut client, "life");
    let point = format!("{base}/points/7");
    let first = json!({"id": 7, "vectors": {"image": [1, 2], "title": [3, 0, 4]},
        "sparse_vectors": {"words": {"indices": [1, 4], "values": [0.5, 2]}},
        "metadata": {"a": 1, "b": "x"}, "key_ttl_ms": {"b": 60_000}, "ttl_ms": 90_000, "expected_version": 0});
    client.golden("POST", &format!("{base}/points"), &first.to_string(), 200, r#"{"id":7}"#);
    let found = client.json("GET", &point, Value::Null);
    assert_eq!(found["vectors"], json!({"image": [1.0, 2.0], "title": [0.6, 0.0, 0.8]}), "{found}");
    assert_eq!((&found["version"], &found["found"]), (&json!(1), &json!(true)));
    assert!((80_000..=90_000).contains(&found["ttl_ms"].as_u64().unwrap()), "{found}");
    assert_eq!(found["payload"]["b"], json!({"kind": "string", "str": "x"}));
    assert!(found.get("vector").is_none() && found.get("sparse").is_none());

    // A space that is not named keeps its vector; payload and deadlines are replaced as a whole.
    let second = json!({"id": 7, "vectors": {"image": [5, 5], "cells": [1, 1, 1, 1]}, "sparse_vectors": {"tags":
        {"indices": [9], "values": [1]}}, "metadata": {"c": true}});
    client.json("POST", &format!("{base}/points"), second);
    let found = client.json("GET", &point, Value::Null);
    let vectors = json!({"image": [5.0, 5.0], "title": [0.6, 0.0, 0.8], "cells": [1.0, 1.0, 1.0, 1.0]});
    assert_eq!((&found["vectors"], &found["version"], &found["ttl_ms"]), (&vectors, &json!(2), &json!(0)));
    assert_eq!(found["payload"], json!({"c": {"kind": "bool", "bool": true}}));
    let sparse = |space: &str, index: u32| json!({"vector_name": space, "query": {"indices": [index], "values": [2]}, "k": 5});
    for (space, index, score) in [("words", 4, 4.0), ("tags", 9, 2.0)] {
        let hits = client.json("POST", &format!("{base}/sparse-search"), sparse(space, index));
        assert_eq!(hits["results"], json!([{"id": 7, "distance": 0.0, "score": score}]), "{space}");
    }
    // An empty sparse vector takes the point out of its space.
    client.json(
        "POST",
        &format!("{base}/points"),
        json!({"id": 7, "sparse_vectors": {"words": {}, "tags": null}}),
    );
    for (space, index) in [("words", 4), ("tags", 9)] {
        let hits = client.json("POST", &format!("{base}/sparse-search"), sparse(space, index));
        assert_eq!(hits["results"], json!([]), "{space}");
    }
    client.golden("POST", &format!("{point}/payload"), r#"{"d":2}"#, 200, r#"{"applied":true}"#);
    let projected = client.json("GET", &format!("{point}?with_vector=false"), Value::Null);
    assert_eq!((&projected["vectors"], &projected["version"]), (&Value::Null, &json!(4)));
    let many = json!({"ids": [9, 7, 7], "with_payload": false});
    let many = client.json("POST", &format!("{base}/points/batch-get"), many);
    assert_eq!((many["points"].as_array().unwrap().len(), &many["missing"]), (2, &json!([9])));
    assert_eq!((&many["points"][0]["vectors"], &many["points"][0]["payload"]), (&vectors, &Value::Null));

    client.refused("DELETE", &format!("{point}?expected_version=3"), "", 409, "version conflict");
    client.golden(
        "POST",
        &format!("{base}/points/delete?expected_version=4"),
        r#"{"id":7}"#,
        200,
        r#"{"deleted":true}"#,
    );
    client.golden("DELETE", &point, "", 200, r#"{"deleted":false}"#);
    client.refused("POST", &format!("{base}/points/delete"), "{}", 400, "id is required");
    client.refused("GET", &point, "", 404, "point not found");
    client.golden("DELETE", &base, "", 200, r#"{"dropped":"life","existed":true}"#);
    client.golden("DELETE", &base, "", 200, r#"{"dropped":"life","existed":false}"#);
}

#[test]
fn a_change_of_vectors_keeps_everything_else() {
    let mut client = SHARED.client();
    let base = create(&mut client, "changed");
    let point = format!("{base}/points/7");
    let change = format!("{point}/vectors");
    let first = json!({"id": 7, "vectors": {"image": [1, 2], "title": [3, 0, 4]},
        "sparse_vectors": {"words": {"indices": [1, 4], "values": [0.5, 2]}, "tags": {"indices": [9], "values": [1]}},
        "metadata": {"a": 1, "b": "x"}, "key_ttl_ms": {"b": 60_000}, "ttl_ms": 90_000});
    client.json("POST", &format!("{base}/points"), first);
    let before = client.json("GET", &point, Value::Null);

    // One space is replaced, one removed, and one that had none gets a vector.
    let body = json!({"vectors": {"image": [5, 6], "cells": [1, 2, 3, 4]}, "delete": ["title"], "expected_version": 1});
    client.golden("POST", &change, &body.to_string(), 200, r#"{"applied":true,"version":2}"#);
    let found = client.json("GET", &point, Value::Null);
    assert_eq!(found["vectors"], json!({"image": [5.0, 6.0], "cells": [1.0, 2.0, 3.0, 4.0]}));
    assert_eq!((&found["payload"], &found["version"]), (&before["payload"], &json!(2)));
    assert!((80_000..=90_000).contains(&found["ttl_ms"].as_u64().unwrap()), "{found}");
    let nearest = |client: &mut Client, space: &str, query: Value| {
        let body = json!({"vector_name": space, "query": query, "k": 5});
        client.json("POST", &format!("{base}/search"), body)["results"].clone()
    };
    let hit = |distance: f64| json!([{"id": 7, "distance": distance, "score": 0}]);
    assert_eq!(nearest(&mut client, "image", json!([5, 6])), hit(0.0));
    assert_eq!(nearest(&mut client, "title", json!([3, 0, 4])), json!([]));

    // So it is with sparse spaces, and there are two ways to take a point out of one.
    let score = |client: &mut Client, space: &str, index: u32| {
        let body = json!({"vector_name": space, "query": {"indices": [index], "values": [2]}, "k": 5});
        client.json("POST", &format!("{base}/sparse-search"), body)["results"][0]["score"].as_f64()
    };
    assert_eq!((score(&mut client, "words", 4), score(&mut client, "tags", 9)), (Some(4.0), Some(2.0)));
    let body = json!({"sparse_vectors": {"words": {"indices": [2], "values": [3]}}, "delete": ["tags"]});
    client.golden("POST", &change, &body.to_string(), 200, r#"{"applied":true,"version":3}"#);
    assert_eq!((score(&mut client, "words", 4), score(&mut client, "words", 2)), (None, Some(6.0)));
    assert_eq!(score(&mut client, "tags", 9), None);
    let body = json!({"sparse_vectors": {"words": {}}});
    client.golden(
        "POST",
        &format!("{change}?expected_version=3"),
        &body.to_string(),
        200,
        r#"{"applied":true,"version":4}"#,
    );
    assert_eq!(score(&mut client, "words", 2), None);
    let found = client.json("GET", &point, Value::Null);
    assert_eq!(found["vectors"], json!({"image": [5.0, 6.0], "cells": [1.0, 2.0, 3.0, 4.0]}));
    assert_eq!(found["payload"], before["payload"]);

    // A point may be left without vectors, and what it does not have may be removed.
    let body = json!({"delete": ["image", "cells", "title", "words"]});
    client.golden("POST", &change, &body.to_string(), 200, r#"{"applied":true,"version":5}"#);
    let found = client.json("GET", &point, Value::Null);
    assert_eq!((&found["vectors"], &found["payload"]), (&json!({}), &before["payload"]));

    let cells = json!({"vectors": {"cells": [1, 2, 3]}});
    let both = json!({"vectors": {"image": [1, 2]}, "delete": ["image"]});
    let many: Vec<String> = (0..65).map(|number| number.to_string()).collect();
    for (body, status, part) in [
        (json!({}), 400, "the request names no vector space"),
        (json!({"delete": []}), 400, "the request names no vector space"),
        (both, 400, "the vector space \"image\" is in delete and also in vectors or sparse_vectors"),
        (
            json!({"delete": ["title", "image", "title"]}),
            400,
            "delete names the vector space \"title\" twice",
        ),
        (json!({"delete": many}), 400, "delete may name at most 64 spaces"),
        (json!({"delete": ["imagine"]}), 400, "unknown vector space \"imagine\"; the collection has "),
        (json!({"vectors": {"imagine": [1]}}), 400, "unknown vector space \"imagine\"; the collection has "),
        (
            json!({"vectors": {"words": [1]}}),
            400,
            "the vector space \"words\" is sparse; this needs a dense one",
        ),
        (
            json!({"sparse_vectors": {"image": {}}}),
            400,
            "the vector space \"image\" is dense; this needs a sparse one",
        ),
        (cells, 400, "dimension mismatch in the vector space \"cells\": expected 4 components, found 3"),
        (json!({"vectors": {"image": null}}), 400, "dimension mismatch in the vector space \"image\""),
        (
            json!({"sparse_vectors": {"words": {"indices": [2, 1], "values": [1, 1]}}}),
            400,
            "sparse_vectors \"words\": ",
        ),
        (json!({"vectors": {"image": [1, 2]}, "metadata": {}}), 400, "metadata"),
        (json!({"vectors": {"image": [1, 2]}, "expected_version": 4}), 409, "version conflict"),
    ] {
        client.refused("POST", &change, &body.to_string(), status, part);
    }
    let absent = format!("{base}/points/8/vectors");
    let body = json!({"vectors": {"image": [1, 2]}}).to_string();
    client.refused("POST", &absent, &body, 404, "point not found");
    client.refused("POST", &format!("{absent}?expected_version=0"), &body, 404, "point not found");
    client.refused("POST", "/v1/named/nowhere/points/7/vectors", &body, 404, "nowhere");
    assert_eq!(client.json("GET", &point, Value::Null)["version"], 5);
    client.json("DELETE", &base, Value::Null);
}

#[test]
fn a_space_without_vectors_and_a_point_without_spaces() {
    let mut client = SHARED.client();
    let base = create(&mut client, "bare");
    client.json("POST", &format!("{base}/points"), json!({"id": 1, "metadata": {"a": 1}}));
    let found = client.json("GET", &format!("{base}/points/1"), Value::Null);
    assert_eq!((&found["vectors"], &found["version"]), (&json!({}), &json!(1)));
    for space in ["image", "cells"] {
        let query = if space == "image" { json!([0, 0]) } else { json!([0, 0, 0, 0]) };
        let hits = client.json(
            "POST",
            &format!("{base}/search"),
            json!({"vector_name": space, "query": query, "k": 3}),
        );
        assert_eq!(hits["results"], json!([]), "{space}");
    }
    client.golden("POST", &format!("{base}/count"), "{}", 200, r#"{"count":1}"#);
    let page = client.json("POST", &format!("{base}/scroll"), json!({}));
    assert_eq!(page["documents"][0]["id"], 1);
}

#[test]
fn examples_are_not_among_the_results() {
    let mut client = SHARED.client();
    let base = create(&mut client, "examples");
    for id in 0..6 {
        client.json("POST", &format!("{base}/points"), json!({"id": id, "vectors": {"image": [id, 1]}}));
    }
    for lane in [
        json!({"recommend": {"positive": [1, 2], "negative": [3]}}),
        json!({"discover": {"target": 1, "context": [{"positive": 2, "negative": 3}]}}),
    ] {
        let mut lane = lane;
        lane["space"] = "image".into();
        let found = client.json("POST", &format!("{base}/query"), json!({"prefetch": [lane], "k": 9}));
        let mut ids: Vec<&Value> =
            found["results"].as_array().unwrap().iter().map(|hit| &hit["id"]).collect();
        ids.sort_by_key(|id| id.as_u64());
        assert_eq!(ids, [0, 4, 5], "{lane}");
    }
    client.json("POST", &format!("{base}/points"), json!({"id": 9}));
    let lane = r#"{"prefetch":[{"space":"image","recommend":{"positive":[9]}}]}"#;
    client.refused(
        "POST",
        &format!("{base}/query"),
        lane,
        404,
        "has no vector in the space of its lane: id 9",
    );
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let mut client = SHARED.client();
    let base = create(&mut client, "refusing");
    client.create("refusing-dense", 2, "l2");
    client.refused("POST", &base, &spaces().to_string(), 409, "already exists");
    client.refused("POST", "/v1/named/refusing-dense", &spaces().to_string(), 409, "already exists");
    client.refused(
        "POST",
        "/v1/collections",
        r#"{"name":"refusing","config":{"dim":2}}"#,
        409,
        "already exists",
    );
    client.refused("POST", "/v1/named/a%23b", &spaces().to_string(), 400, "#");
    let has = "the collection has image, title, cells, words, tags";
    let points = format!("{base}/points");
    for (body, fragment) in [
        (r#"{"id":1,"vectors":{"image":[1,2],"nope":[1]}}"#, has),
        (
            r#"{"id":1,"vectors":{"image":[1,2,3]}}"#,
            r#"in the vector space "image": expected 2 components, found 3"#,
        ),
        (r#"{"id":1,"vectors":{"image":null}}"#, "expected 2 components, found 0"),
        (r#"{"id":1,"vectors":{"words":[1]}}"#, r#"the vector space "words" is sparse"#),
        (r#"{"id":1,"sparse_vectors":{"image":{}}}"#, r#"the vector space "image" is dense"#),
        (r#"{"id":1,"sparse_vectors":{"nope":{}}}"#, has),
        (r#"{"id":1,"sparse_vectors":{"words":{"indices":[1,1],"values":[1,1]}}}"#, "strictly ascending"),
        (r#"{"id":1,"vector":[1,2]}"#, r#"unknown field "vector""#),
    ] {
        client.refused("POST", &points, body, 400, fragment);
    }
    client.golden("POST", &format!("{base}/count"), "{}", 200, r#"{"count":0}"#);
    for (route, body, fragment) in [
        ("search", r#"{"vector_name":"nope","query":[1],"k":0}"#, has),
        ("search", r#"{"vector_name":"image","query":[1],"k":1}"#, "expected 2 components, found 1"),
        ("search", r#"{"vector_name":"words","query":[1],"k":1}"#, "is sparse"),
        ("search", r#"{"vector_name":"image","query":[1,2],"k":65537}"#, "k must be between"),
        ("search/docs", r#"{"query":[1,2],"k":1}"#, "the name of a vector space is missing"),
        ("sparse-search", r#"{"vector_name":"image","query":{},"k":1}"#, "is dense"),
        ("hybrid-search", r#"{"dense_space":"image","sparse_space":"nope","k":1}"#, has),
        ("hybrid-search", r#"{"dense_space":"image","sparse_space":"title","k":1}"#, "is dense"),
        ("query", r#"{"prefetch":[]}"#, "at least one lane"),
        ("query", r#"{"prefetch":[{"space":"nope","dense":[1]}]}"#, "prefetch[0]: unknown vector space"),
        ("query", r#"{"prefetch":[{"space":"words","dense":[1]}]}"#, "prefetch[0]: "),
        (
            "query",
            r#"{"prefetch":[{"space":"words","sparse":{}}]}"#,
            r#"prefetch[0]: a lane in the sparse space "words" needs"#,
        ),
        (
            "query",
            r#"{"prefetch":[{"space":"image","dense":[1,1]}],"mode":"rerank","root":{"space":"image","recommend":{"positive":[1]}}}"#,
            "root must be a dense vector, a sparse vector or a text",
        ),
        ("query", r#"{"prefetch":[{"space":"image","recommend":{"positive":[404]}}]}"#, "not found"),
    ] {
        let status = if fragment == "not found" { 404 } else { 400 };
        client.refused("POST", &format!("{base}/{route}"), body, status, fragment);
    }
    client.golden(
        "POST",
        &format!("{base}/hybrid-search"),
        r#"{"dense_space":"nope","sparse_space":"nope","k":0}"#,
        200,
        r#"{"results":[]}"#,
    );
    // Each family has names of its own for those who ask, but one for those who create or drop.
    client.refused(
        "POST",
        "/v1/collections/refusing/points/search",
        r#"{"query":[1,2],"k":1}"#,
        404,
        "unknown collection",
    );
    client.refused("GET", "/v1/collections/refusing", "", 404, "unknown collection");
    client.refused(
        "POST",
        "/v1/collections/refusing/points",
        r#"{"id":1,"vector":[1,2]}"#,
        404,
        "unknown collection",
    );
    client.refused("GET", "/v1/named/refusing-dense/config", "", 404, "unknown collection");
    client.refused("POST", "/v1/named/refusing-dense/points", r#"{"id":1}"#, 404, "unknown collection");
    client.golden(
        "DELETE",
        "/v1/named/refusing-dense",
        "",
        200,
        r#"{"dropped":"refusing-dense","existed":false}"#,
    );
    client.golden("POST", "/v1/collections/refusing-dense/points/count", "{}", 200, r#"{"count":0}"#);
    client.json("POST", "/v1/aliases", json!({"alias": "refusing-alias", "collection": "refusing"}));
    client.json("POST", "/v1/named/refusing-alias/points", json!({"id": 3}));
    client.refused("GET", "/v1/named/refusing-alias/config", "", 404, "unknown collection");
    let all = client.json("GET", "/v1/collections", Value::Null);
    let listed = all["collections"].as_array().unwrap().iter().find(|c| c["name"] == "refusing").unwrap();
    assert_eq!(
        (&listed["family"], &listed["named_vectors"]["image"]),
        (&json!("named"), &json!({"dim": 2, "metric": "l2"}))
    );
    client.golden("DELETE", "/v1/collections/refusing", "", 200, r#"{"dropped":"refusing","existed":true}"#);
}

#[test]
fn the_configuration_is_what_was_asked_for() {
    let mut client = SHARED.client();
    let base = create(&mut client, "configured");
    let config = client.json("GET", &format!("{base}/config"), Value::Null);
    let graph = |dim: u64, metric: u64| {
        let mut space = json!({"dim": dim, "m": 16, "ef_construction": 200, "ef_search": 64});
        if metric > 0 {
            space["metric"] = metric.into();
        }
        space
    };
    let mut cells = graph(4, 1);
    let more = json!({"index_type": 1, "ivf_train_threshold": 30, "ivf_nlist": 4, "ivf_nprobe": 2});
    cells.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let expected = json!({"name": "configured", "named_vectors": {
        "image": graph(2, 1), "title": graph(3, 0), "cells": cells,
        "words": {"dim": 0, "sparse": true}, "tags": {"dim": 0, "sparse": true}
    }});
    assert_eq!(config, expected);
    // What is told can be asked for again.
    let again = json!({"named_vectors": config["named_vectors"]});
    client.json("POST", "/v1/named/configured-again", again);
    let config = client.json("GET", "/v1/named/configured-again/config", Value::Null);
    assert_eq!(config["named_vectors"], expected["named_vectors"]);
}

/// What the twin knows of a point.
#[derive(Clone, Default)]
struct Twin {
    dense: BTreeMap<&'static str, Vec<f64>>,
    words: BTreeMap<u32, f64>,
    group: u64,
}

fn numbers(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

#[test]
fn searches_agree_with_a_naive_twin() {
    let mut client = SHARED.client();
    let base = create(&mut client, "twin");
    let mut seed = 5;
    let mut twin: BTreeMap<u64, Twin> = BTreeMap::new();
    for step in 0..600 {
        let id = numbers(&mut seed) % 120;
        if numbers(&mut seed).is_multiple_of(8) {
            let deleted = client.json("DELETE", &format!("{base}/points/{id}"), Value::Null);
            assert_eq!(deleted["deleted"], twin.remove(&id).is_some());
            continue;
        }
        let point = twin.entry(id).or_default();
        let mut vectors = Map::new();
        for (name, dim) in [("image", 2), ("cells", 4)] {
            if numbers(&mut seed).is_multiple_of(2) {
                let vector: Vec<f64> = (0..dim).map(|_| (numbers(&mut seed) % 64) as f64 - 32.0).collect();
                vectors.insert(name.to_owned(), json!(vector));
                point.dense.insert(name, vector);
            }
        }
        let mut sparse = Map::new();
        if numbers(&mut seed).is_multiple_of(2) {
            let indices: Vec<u32> = (0..6).filter(|_| numbers(&mut seed).is_multiple_of(3)).collect();
            let values: Vec<f64> = indices.iter().map(|index| f64::from(*index) + 0.5).collect();
            point.words = indices.iter().copied().zip(values.iter().copied()).collect();
            sparse.insert("words".to_owned(), json!({"indices": indices, "values": values}));
        }
        point.group = numbers(&mut seed) % 3;
        let body = json!({"id": id, "vectors": vectors, "sparse_vectors": sparse, "metadata": {"group": point.group}});
        client.json("POST", &format!("{base}/points"), body);
        if step % 20 == 0 {
            compare(&mut client, &base, &twin, &mut seed);
        }
    }
    compare(&mut client, &base, &twin, &mut seed);
}

fn compare(client: &mut Client, base: &str, twin: &BTreeMap<u64, Twin>, seed: &mut u64) {
    let group = numbers(seed) % 4;
    let matches = |point: &Twin| group == 3 || point.group == group;
    let filter = if group == 3 { json!({}) } else { json!({"op": "eq", "field": "group", "value": group}) };
    let mut lanes = Vec::new();
    for (space, query) in [("image", vec![3.25, -1.5]), ("cells", vec![0.0, 9.5, -4.25, 1.0])] {
        let distance =
            |vector: &Vec<f64>| vector.iter().zip(&query).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
        let mut truth: Vec<(f64, u64)> = (twin.iter().filter(|(_, point)| matches(point)))
            .filter_map(|(id, point)| Some((distance(point.dense.get(space)?), *id)))
            .collect();
        truth.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        // More than there are points, so that cells are looked through to the last.
        let body = json!({"vector_name": space, "query": query, "k": 200, "filter": filter});
        let found = client.json("POST", &format!("{base}/search"), body);
        let expected: Vec<Value> =
            truth.iter().map(|(distance, id)| json!({"id": id, "distance": distance, "score": 0})).collect();
        assert_eq!(found["results"], json!(expected), "{space}");
        lanes.push(json!({"space": space, "dense": query, "lane_k": 200, "filter": filter}));
    }
    let query = [(1, 2.0), (4, -1.0)];
    let score = |point: &Twin| {
        let shared: Vec<f64> = query.iter().filter_map(|(d, x)| Some(x * point.words.get(d)?)).collect();
        (!shared.is_empty()).then(|| shared.iter().sum::<f64>())
    };
    let mut truth: Vec<(f64, u64)> = (twin.iter().filter(|(_, point)| matches(point)))
        .filter_map(|(id, point)| Some((score(point)?, *id)))
        .collect();
    truth.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let sparse = json!({"indices": [1, 4], "values": [2, -1]});
    let body = json!({"vector_name": "words", "query": sparse, "k": 200, "filter": filter});
    let found = client.json("POST", &format!("{base}/sparse-search"), body);
    let ids = |found: &Value| -> Vec<u64> {
        found["results"].as_array().unwrap().iter().map(|hit| hit["id"].as_u64().unwrap()).collect()
    };
    assert_eq!(ids(&found), truth.iter().map(|(_, id)| *id).collect::<Vec<_>>(), "words");

    // Ranked anew by one space: what both lanes found, as far as it has a vector there.
    lanes.push(json!({"space": "words", "sparse": sparse, "lane_k": 200, "filter": filter}));
    let root = json!({"space": "image", "dense": [0, 0]});
    let body = json!({"prefetch": lanes[1..], "root": root, "mode": "rerank", "k": 200});
    let found = client.json("POST", &format!("{base}/query"), body);
    let norm = |vector: &Vec<f64>| vector.iter().map(|x| x * x).sum::<f64>();
    let mut truth: Vec<(f64, u64)> = (twin.iter().filter(|(_, point)| matches(point)))
        .filter(|(_, point)| point.dense.contains_key("cells") || score(point).is_some())
        .filter_map(|(id, point)| Some((norm(point.dense.get("image")?), *id)))
        .collect();
    truth.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    assert_eq!(ids(&found), truth.iter().map(|(_, id)| *id).collect::<Vec<_>>(), "ranked anew");

    // Fused by reciprocal ranks.
    let body = json!({"prefetch": lanes[..2], "k": 200});
    let found = client.json("POST", &format!("{base}/query"), body);
    let both: Vec<u64> = (twin.iter().filter(|(_, point)| matches(point) && !point.dense.is_empty()))
        .map(|(id, _)| *id)
        .collect();
    let mut fused = ids(&found);
    fused.sort_unstable();
    assert_eq!(fused, both, "fused");
    let scores: Vec<f64> =
        found["results"].as_array().unwrap().iter().map(|hit| hit["score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
}
