//! Sparse and full-text lanes, and everything that fuses them.
use crate::common::server::{Client, SHARED};
use serde_json::{Value, json};

fn gauge(client: &mut Client, name: &str, collection: &str) -> u64 {
    let page = client.request("GET", "/metrics", "", b"");
    let start = format!("svc_vector_{name}{{collection=\"default/{collection}\"}} ");
    let line = page.text().lines().find_map(|line| line.strip_prefix(&start)).map(str::to_owned);
    line.unwrap().parse().unwrap()
}

#[test]
fn sparse_vectors_are_written_read_and_replaced() {
    let mut client = SHARED.client();
    client.create("sparse", 2, "l2");
    let points = "/v1/collections/sparse/points";
    let sparse = json!({"indices": [2, 4294967295u32], "values": [0.5, -1]});
    client.json("POST", points, json!({"id": 1, "vector": [1, 2], "sparse": sparse, "content": "c"}));
    client.golden(
        "GET",
        &format!("{points}/1"),
        "",
        200,
        r#"{"found":true,"vector":[1.0,2.0],"payload":{"$content":{"kind":"string","str":"c"}},"ttl_ms":0,"version":1,"sparse":{"indices":[2,4294967295],"values":[0.5,-1.0]}}"#,
    );
    let read = client.json("GET", &format!("{points}/1?with_payload=0"), json!(null));
    assert_eq!((&read["payload"], &read["sparse"]["indices"][0]), (&json!(null), &json!(2)));
    let read = client.json("GET", &format!("{points}/1?with_vector=0"), json!(null));
    assert_eq!((read.get("sparse"), &read["vector"]), (None, &json!(null)));

    let batch = json!({"upsert": true, "points": [
        {"id": 1, "vector": [1, 2]},
        {"id": 2, "vector": [1, 2], "sparse": {"indices": [7], "values": [1]}},
        {"id": 3, "vector": [1, 2], "sparse": {}},
    ]});
    client.json("POST", &format!("{points}/batch"), batch);
    let read = client.json("POST", &format!("{points}/batch-get"), json!({"ids": [1, 2, 3]}));
    let with_sparse: Vec<bool> =
        read["points"].as_array().unwrap().iter().map(|point| point.get("sparse").is_some()).collect();
    assert_eq!(with_sparse, [false, true, false], "an upsert replaces the whole point");
    assert_eq!(read["points"][1]["payload"], json!(null));
    assert_eq!(gauge(&mut client, "sparse_vectors", "sparse"), 1);
    client.json("DELETE", &format!("{points}/2"), json!(null));
    assert_eq!(gauge(&mut client, "sparse_vectors", "sparse"), 0);

    for (body, fragment) in [
        (r#"{"id":9,"vector":[1,2],"sparse":{"indices":[1,1],"values":[1,1]}}"#, "strictly ascending"),
        (r#"{"id":9,"vector":[1,2],"sparse":{"indices":[1]}}"#, "1 indices but 0 values"),
        (r#"{"id":9,"vector":[1,2],"sparse":{"dims":[1]}}"#, "unknown field \"dims\""),
    ] {
        client.refused("POST", points, body, 400, fragment);
        let batch = format!("{{\"points\":[{body}]}}");
        client.refused("POST", &format!("{points}/batch"), &batch, 400, fragment);
        client.refused("POST", &format!("{points}/bulk"), &batch, 400, "sparse");
    }
    client.golden("GET", &format!("{points}/9"), "", 404, r#"{"error":"point not found: id 9"}"#);
}

/// Four points over two dimensions, with full text.
fn films(client: &mut Client, name: &str) {
    let config = json!({"dim": 2, "metric": "l2", "full_text": {"analyzer": "english"}});
    client.json("POST", "/v1/collections", json!({"name": name, "config": config}));
    let points = json!({"points": [
        {"id": 1, "vector": [0, 0], "content": "A river runs", "metadata": {"year": 1992, "tag": "a"},
            "sparse": {"indices": [1], "values": [4]}},
        {"id": 2, "vector": [1, 0], "content": "Rivers and tides", "metadata": {"year": 2001, "tag": "1"},
            "sparse": {"indices": [1, 2], "values": [1, 1]}},
        {"id": 3, "vector": [2, 0], "content": "The sky", "metadata": {"year": 1992, "tag": 1},
            "sparse": {"indices": [2], "values": [3]}},
        {"id": 4, "vector": [3, 0], "metadata": {"year": 2001, "tag": ["a"]}},
    ]});
    client.json("POST", &format!("/v1/collections/{name}/points/batch"), points);
}

/// Texts are searched by the analyzer that a collection was created with, and that its configuration tells.
#[test]
fn texts_are_analyzed_by_language() {
    let mut client = SHARED.client();
    for (analyzer, texts, query, found) in [
        ("german", ["Die Häuser am Fluss", "Der Himmel"], "das Haus", vec![1]),
        ("french", ["L'homme qu’il aime", "Le ciel"], "les hommes", vec![1]),
        ("cjk", ["東京都に住む", "京都に行く"], "東京", vec![1]),
        ("folding", ["Crème BRÛLÉE", "running water"], "creme runs", vec![1]),
        ("", ["Rivers run", "the sky"], "running", vec![1]),
    ] {
        let name = format!("by-{analyzer}");
        let config = json!({"dim": 1, "metric": "l2", "full_text": {"analyzer": analyzer}});
        client.json("POST", "/v1/collections", json!({"name": name, "config": config}));
        let told = client.json("GET", &format!("/v1/collections/{name}"), Value::Null);
        let expected = if analyzer.is_empty() { "english" } else { analyzer };
        assert_eq!(told["config"]["full_text"]["analyzer"], expected);
        let points = json!({"points": [
            {"id": 1, "vector": [0], "content": texts[0]}, {"id": 2, "vector": [1], "content": texts[1]},
        ]});
        client.json("POST", &format!("/v1/collections/{name}/points/batch"), points);
        let search = format!("/v1/collections/{name}/points/search/text");
        let answer = client.json("POST", &search, json!({"text": query, "k": 5}));
        assert_eq!(ids(&answer["documents"]), found, "{analyzer}");
    }
    let refused = r#"{"name":"by-none","config":{"dim":1,"full_text":{"analyzer":"German"}}}"#;
    let fragment = "unknown analyzer \"German\"; it must be one of english, arabic";
    client.refused("POST", "/v1/collections", refused, 400, fragment);
}

#[test]
fn phrases_and_prefixes() {
    let mut client = SHARED.client();
    films(&mut client, "phrases");
    let more = json!({"points": [
        {"id": 5, "vector": [4, 0], "content": "Tides and rivers"},
        {"id": 6, "vector": [5, 0], "content": "Tidal \"rivers\" of runes*"},
    ]});
    client.json("POST", "/v1/collections/phrases/points/batch", more);
    let path = "/v1/collections/phrases/points/search/text";
    for (body, found) in [
        // Without an option quotes and asterisks are what they always were.
        (json!({"text": "\"rivers and tides\"", "k": 9}), vec![1, 2, 5, 6]),
        (json!({"text": "run*", "k": 9}), vec![1]),
        (json!({"text": "rivers and tides", "match": {}, "k": 9}), vec![1, 2, 5, 6]),
        (json!({"text": "rivers and tides", "match": {"phrase": true}, "k": 9}), vec![2]),
        (json!({"text": "river or tide", "match": {"phrase": true}, "k": 9}), vec![2]),
        (json!({"text": "rivers tides", "match": {"phrase": true}, "k": 9}), vec![]),
        (json!({"text": "tid", "k": 9}), vec![]),
        (json!({"text": "tid", "match": {"prefix": true}, "k": 9}), vec![2, 5, 6]),
        (json!({"text": "RU", "match": {"prefix": true}, "k": 9}), vec![1, 6]),
        (json!({"text": "rivers and ti", "match": {"phrase": true, "prefix": true}, "k": 9}), vec![2]),
        (json!({"text": "", "match": {"phrase": true, "prefix": true}, "k": 9}), vec![]),
    ] {
        let answer = client.json("POST", path, body.clone());
        let mut ids = ids(&answer["documents"]);
        ids.sort_unstable();
        assert_eq!(ids, found, "{body}");
    }
    let words = json!({"phrase": true});
    let hybrid = json!({"vector": [0, 0], "text": "tides and rivers", "match": words, "k": 1, "method": "weighted", "alpha": -0.0});
    let answer = client.json("POST", "/v1/collections/phrases/points/search/hybrid-text", hybrid);
    assert_eq!(ids(&answer["results"]), [5]);
    let lanes = json!({"prefetch": [{"text": "tides and rivers", "match": words}], "k": 9});
    assert_eq!(ids(&client.json("POST", "/v1/collections/phrases/query", lanes)["results"]), [5]);
    let root = json!({"prefetch": [{"dense": [0, 0]}], "mode": "rerank", "root": {"text": "river tid", "match": {"prefix": true}}, "k": 9});
    let mut found = ids(&client.json("POST", "/v1/collections/phrases/query", root)["results"]);
    found.sort_unstable();
    assert_eq!(found, [1, 2, 5, 6]);
    let long = json!({"text": "river ".repeat(65), "match": words, "k": 1}).to_string();
    client.refused("POST", path, &long, 400, "match.phrase: a phrase may have at most 64 words");
    client.refused("POST", path, r#"{"text":"a","k":1,"match":{"slop":1}}"#, 400, "unknown field \"slop\"");
}

/// Ids, in order.
fn ids(hits: &Value) -> Vec<u64> {
    hits.as_array().unwrap().iter().map(|hit| hit["id"].as_u64().unwrap()).collect()
}

fn scores(hits: &Value) -> Vec<f64> {
    hits.as_array().unwrap().iter().map(|hit| hit["score"].as_f64().unwrap()).collect()
}

#[track_caller]
fn near(found: &[f64], wanted: &[f64]) {
    let close = found.len() == wanted.len() && found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(close, "{found:?} instead of {wanted:?}");
}

#[test]
fn hybrid_search_fuses_dense_and_sparse() {
    let mut client = SHARED.client();
    films(&mut client, "hybrid");
    let path = "/v1/collections/hybrid/points/search/hybrid";
    let sparse = json!({"indices": [2], "values": [1]});
    let answer = client.json("POST", path, json!({"dense": [0, 0], "sparse": sparse, "k": 10}));
    // Dense ranks 1 2 3 4, sparse 3 2.
    let rrf = |ranks: &[f64]| ranks.iter().map(|rank| 1.0 / (60.0 + rank)).sum::<f64>();
    assert_eq!(ids(&answer["results"]), [3, 2, 1, 4]);
    near(&scores(&answer["results"]), &[rrf(&[3.0, 1.0]), rrf(&[2.0, 2.0]), rrf(&[1.0]), rrf(&[4.0])]);
    assert_eq!((&answer["results"][0]["distance"], &answer["degraded"]), (&json!(4.0), &json!(false)));
    assert_eq!(answer["missing"], json!([]));

    // As the existing clients send it, every numeric key with its zero.
    let zeros = json!({"dense": [0, 0], "sparse": sparse, "k": 10, "method": "rrf", "alpha": 0, "rrf_k": 0,
        "dense_k": 0, "sparse_k": 0});
    assert_eq!(client.json("POST", path, zeros), answer);
    let weighted = json!({"dense": [0, 0], "sparse": sparse, "k": 3, "method": "weighted", "alpha": 0.25});
    let answer = client.json("POST", path, weighted);
    assert_eq!(ids(&answer["results"]), [3, 1, 2]);
    near(&scores(&answer["results"]), &[0.25 * (1.0 - 4.0 / 9.0) + 0.75, 0.25, 0.25 * (1.0 - 1.0 / 9.0)]);
    // A pool of one: only the best of each lane is ranked.
    let pools = json!({"dense": [0, 0], "sparse": sparse, "k": 9, "dense_k": 1, "sparse_k": 1, "rrf_k": 1});
    let answer = client.json("POST", path, pools);
    assert_eq!(ids(&answer["results"]), [1, 3]);
    near(&scores(&answer["results"]), &[0.5, 0.5]);
    // The second was found by the sparse lane alone, and its distance is its own all the same.
    assert_eq!(answer["results"][1]["distance"], json!(4.0));
    let of = |alpha: Value, rrf_k: Value| json!({"dense": [0, 0], "sparse": sparse, "k": 9, "method": "weighted", "alpha": alpha, "rrf_k": rrf_k});
    // A zero is the number 0, unless it comes beside all the other numbers of a client that nobody set.
    for (body, shares) in [
        (of(json!(0), json!(null)), [0.0, 1.0]),
        (of(json!(-0.0), json!(0)), [0.0, 1.0]),
        (of(json!(0.0), json!(0)), [0.5, 0.5]),
        (of(json!(null), json!(null)), [0.5, 0.5]),
        (of(json!(1), json!(null)), [1.0, 0.0]),
    ] {
        let found = client.json("POST", path, body.clone());
        let score = |id: u64| {
            let hits = found["results"].as_array().unwrap();
            hits.iter().find(|hit| hit["id"] == id).map(|hit| hit["score"].as_f64().unwrap()).unwrap()
        };
        near(&[score(1), score(3)], &[shares[0], shares[0] * (1.0 - 4.0 / 9.0) + shares[1]]);
    }
    let filter = json!({"op": "eq", "field": "year", "value": 1992});
    let filtered = json!({"dense": [0, 0], "sparse": sparse, "k": 9, "filter": filter});
    assert_eq!(ids(&client.json("POST", path, filtered)["results"]), [3, 1]);

    let empty = r#"{"results":[],"degraded":false,"missing":[]}"#;
    client.golden("POST", path, r#"{"k":3}"#, 200, empty);
    client.golden("POST", path, r#"{"k":3,"sparse":{"indices":[77],"values":[1]}}"#, 200, empty);
    client.golden(
        "POST",
        path,
        r#"{"dense":[0,0],"sparse":{},"k":1}"#,
        200,
        r#"{"results":[{"id":1,"distance":0.0,"score":0}],"degraded":false,"missing":[]}"#,
    );
    client.golden(
        "POST",
        path,
        r#"{"sparse":{"indices":[1],"values":[0.5]},"k":1}"#,
        200,
        r#"{"results":[{"id":1,"distance":0.0,"score":2.0}],"degraded":false,"missing":[]}"#,
    );
    let long = format!(r#"{{"dense":[0,0],"k":1,"method":"{}"}}"#, "m".repeat(5_000));
    let shown = format!("unknown fusion method \"{}…\"", "m".repeat(100));
    for (body, fragment) in [
        (r#"{"dense":[0,0],"k":0}"#, "k must be between 1 and 65536"),
        (r#"{"dense":[0],"k":1}"#, "dimension mismatch"),
        (r#"{"dense":[0,0],"k":1,"method":"sum"}"#, "unknown fusion method \"sum\""),
        (r#"{"dense":[0,0],"k":1,"method":"dbsf","alpha":1.5}"#, "alpha must be between 0 and 1, found 1.5"),
        (
            r#"{"dense":[0,0],"k":1,"method":"weighted","alpha":-1}"#,
            "alpha must be between 0 and 1, found -1",
        ),
        (&long, &shown),
        (r#"{"sparse":{"indices":[1],"values":[]},"k":1}"#, "1 indices but 0 values"),
        (r#"{"dense":[0,0],"k":1,"sparse_k":-5}"#, "sparse_k"),
    ] {
        client.refused("POST", path, body, 400, fragment);
    }
    client.refused(
        "POST",
        "/v1/collections/none/points/search/hybrid",
        r#"{"k":1}"#,
        404,
        "unknown collection",
    );
}

#[test]
fn text_search_and_its_hybrid() {
    let mut client = SHARED.client();
    films(&mut client, "texts");
    let path = "/v1/collections/texts/points/search/text";
    let answer = client.json("POST", path, json!({"text": "the RIVER", "k": 5, "global_idf": true}));
    assert_eq!(ids(&answer["documents"]), [1, 2]);
    assert_eq!(answer["documents"][1]["content"], json!("Rivers and tides"));
    assert_eq!(answer["documents"][1]["metadata"]["year"], json!({"kind": "int", "int": 2001}));
    assert_eq!(answer["documents"][0]["distance"], json!(0.0));
    // Three documents of 2, 2 and 1 kept tokens, df 2; both have the term once among two.
    let idf = (1.0f64 + (3.0 - 2.0 + 0.5) / 2.5).ln();
    let score = idf * 2.2 / (1.0 + 1.2 * (0.25 + 0.75 * 2.0 / (5.0 / 3.0)));
    near(&scores(&answer["documents"]), &[score, score]);
    client.golden(
        "POST",
        path,
        r#"{"text":"the of and","k":5}"#,
        200,
        r#"{"documents":[],"degraded":false,"missing":[]}"#,
    );
    // Statistics and postings follow a replacement at once.
    let replaced = json!({"id": 2, "vector": [1, 0], "content": "sky", "upsert": true});
    client.json("POST", "/v1/collections/texts/points", replaced);
    assert_eq!(ids(&client.json("POST", path, json!({"text": "river", "k": 5}))["documents"]), [1]);
    assert_eq!(ids(&client.json("POST", path, json!({"text": "sky river", "k": 5}))["documents"]), [1, 2, 3]);

    let hybrid = "/v1/collections/texts/points/search/hybrid-text";
    for key in ["vector", "dense"] {
        let answer = client.json("POST", hybrid, json!({key: [3, 0], "text": "river", "k": 2}));
        assert_eq!(ids(&answer["results"]), [1, 4]);
        near(&scores(&answer["results"]), &[1.0 / 64.0 + 1.0 / 61.0, 1.0 / 61.0]);
        assert_eq!(answer["results"][0]["distance"], json!(9.0));
    }
    let answer = client.json("POST", hybrid, json!({"vector": [3, 0], "text": "of the", "k": 2}));
    assert_eq!((ids(&answer["results"]), scores(&answer["results"])), (vec![4, 3], vec![0.0, 0.0]));

    client.create("mute", 2, "l2");
    let mute = "/v1/collections/mute/points/search";
    for (route, body) in [("text", r#"{"text":"a","k":1}"#), ("hybrid-text", r#"{"vector":[1,1],"k":1}"#)] {
        client.refused("POST", &format!("{mute}/{route}"), body, 400, "full-text disabled");
    }
    client.refused("POST", path, r#"{"text":"a"}"#, 400, "k must be between");
}

#[test]
fn groups_are_led_by_their_best_hit() {
    let mut client = SHARED.client();
    films(&mut client, "grouped");
    let path = "/v1/collections/grouped/points/search/groups";
    client.golden(
        "POST",
        path,
        r#"{"query":[2,0],"k":5,"group_by":"tag","group_size":0,"fetch_k":0}"#,
        200,
        concat!(
            r#"{"groups":[{"key":{"kind":"int","int":1},"hits":[{"id":3,"distance":0.0,"score":0,"content":"The sky","#,
            r#""metadata":{"tag":{"kind":"int","int":1},"year":{"kind":"int","int":1992}}}]},"#,
            r#"{"key":{"kind":"string","str":"1"},"hits":[{"id":2,"distance":1.0,"score":0,"content":"Rivers and tides","#,
            r#""metadata":{"tag":{"kind":"string","str":"1"},"year":{"kind":"int","int":2001}}}]},"#,
            r#"{"key":{"kind":"string","str":"a"},"hits":[{"id":1,"distance":4.0,"score":0,"content":"A river runs","#,
            r#""metadata":{"tag":{"kind":"string","str":"a"},"year":{"kind":"int","int":1992}}}]}],"#,
            r#""degraded":false,"missing":[],"incomplete":false}"#,
        ),
    );
    let answer =
        client.json("POST", path, json!({"query": [0, 0], "k": 2, "group_by": "year", "group_size": 2}));
    let groups = answer["groups"].as_array().unwrap();
    assert_eq!(groups.iter().map(|group| ids(&group["hits"])).collect::<Vec<_>>(), [[1, 3], [2, 4]]);
    let answer = client.json("POST", path, json!({"query": [0, 0], "k": 1, "group_by": "absent"}));
    assert_eq!(answer["groups"], json!([]));
    let hint = "group_by: no point has a payload key \"content\"; the text of points has key \"$content\"";
    client.refused("POST", path, r#"{"query":[0,0],"k":1,"group_by":"content"}"#, 400, hint);
    client.refused("POST", path, r#"{"query":[0,0],"k":1}"#, 400, "group_by");
    client.refused("POST", path, r#"{"query":[0],"k":1,"group_by":"a"}"#, 400, "dimension mismatch");
    client.refused("POST", path, r#"{"query":[0,0],"k":65537,"group_by":"a"}"#, 400, "k must be");
}

#[test]
fn groups_that_lie_beyond_the_first_pool_are_found_or_their_lack_is_said() {
    let mut client = SHARED.client();
    client.create("piled", 1, "l2");
    // Two hundred points of one group are nearer than the others, and four times that many are not looked at at first.
    let point = |id: u64| {
        let group = if id < 200 { 0 } else { id % 3 };
        json!({"id": id, "vector": [id], "metadata": {"group": group}})
    };
    let points: Vec<Value> = (0..230).map(point).collect();
    client.json("POST", "/v1/collections/piled/points/batch", json!({ "points": points }));
    let path = "/v1/collections/piled/points/search/groups";
    let mut found = |fetch_k: u64, k: u64| {
        let body = json!({"query": [0], "k": k, "group_by": "group", "group_size": 2, "fetch_k": fetch_k});
        let answer = client.json("POST", path, body);
        let groups = answer["groups"].as_array().unwrap();
        let ids: Vec<_> = groups.iter().map(|group| ids(&group["hits"])).collect();
        (ids, answer["incomplete"].as_bool().unwrap())
    };
    let all = vec![vec![0, 1], vec![200, 203], vec![202, 205]];
    assert_eq!(found(0, 3), (all.clone(), false));
    assert_eq!(found(0, 9), (all.clone(), false), "there are no more groups");
    // Who says how many neighbours are looked at has these.
    assert_eq!(found(60, 3), (all[..1].to_vec(), true));
    assert_eq!(found(202, 3), (vec![vec![0, 1], vec![200]], true));
    assert_eq!(found(60_000, 3), (all.clone(), false));
    assert_eq!(found(60, 1), (all[..1].to_vec(), false));
    let query = json!({"prefetch": [{"dense": [0]}], "k": 3, "group_by": "group", "group_size": 2});
    let answer = client.json("POST", "/v1/collections/piled/query", query.clone());
    assert_eq!((answer["groups"].as_array().unwrap().len(), &answer["incomplete"]), (3, &json!(false)));
    let mut limited = query;
    limited["prefetch"][0]["lane_k"] = json!(60);
    let answer = client.json("POST", "/v1/collections/piled/query", limited);
    assert_eq!((answer["groups"].as_array().unwrap().len(), &answer["incomplete"]), (1, &json!(true)));
}

#[test]
fn a_filter_on_content_means_the_text_unless_there_is_such_a_key() {
    let mut client = SHARED.client();
    films(&mut client, "content_hints");
    let filter = json!({"op": "match", "field": "content", "value": "river"});
    let nested = json!({"op": "not", "not": filter});
    let hint = "no point has a payload key \"content\"; the text of points has key \"$content\"";
    for filter in [&filter, &nested] {
        for (path, mut body) in [
            ("points/search", json!({"query": [0, 0], "k": 3})),
            ("points/search/groups", json!({"query": [0, 0], "k": 3, "group_by": "year"})),
            ("points/search/hybrid", json!({"dense": [0, 0], "k": 3})),
            ("points/scroll", json!({})),
            ("points/scroll", json!({"order_by": {"key": "year"}})),
            ("points/count", json!({})),
            ("points/delete", json!({})),
        ] {
            body["filter"] = filter.clone();
            let path = format!("/v1/collections/content_hints/{path}");
            client.refused("POST", &path, &body.to_string(), 400, hint);
        }
        let query = json!({"prefetch": [{"dense": [0, 0], "filter": filter}]}).to_string();
        client.refused("POST", "/v1/collections/content_hints/query", &query, 400, hint);
    }
    let count = |client: &mut Client, field: &str| {
        let filter = json!({"op": "match", "field": field, "value": "river"});
        client.json("POST", "/v1/collections/content_hints/points/count", json!({"filter": filter}))["count"]
            .clone()
    };
    let texts = count(&mut client, "$content");
    assert!(texts.as_u64().unwrap() > 0);
    let point = json!({"id": 77, "vector": [9, 9], "metadata": {"content": "a river"}});
    client.json("POST", "/v1/collections/content_hints/points", point);
    assert_eq!((count(&mut client, "content"), count(&mut client, "$content")), (json!(1), texts));
}

#[test]
fn queries_of_any_lanes() {
    let mut client = SHARED.client();
    films(&mut client, "lanes");
    let path = "/v1/collections/lanes/query";
    let mut results = |body: Value| client.json("POST", path, body)["results"].clone();
    // As the existing clients send it.
    let lane = |leaf: Value| json!({"prefetch": [leaf], "mode": "fusion", "method": "rrf", "alpha": 0, "rrf_k": 0, "k": 0});
    let one = results(lane(json!({"dense": [3, 0], "k": 2})));
    assert_eq!(one, json!([{"id": 4, "distance": 0.0, "score": 0}, {"id": 3, "distance": 1.0, "score": 0}]));

    let three = results(json!({"prefetch": [
        {"dense": [0, 0]}, {"sparse": {"indices": [2], "values": [1]}}, {"dense": [3, 0], "lane_k": 1},
    ], "k": 2}));
    // Ranks: 1 2 3 4; 3 2; 4.
    assert_eq!(ids(&three), [3, 2]);
    near(&scores(&three), &[1.0 / 63.0 + 1.0 / 61.0, 2.0 / 62.0]);

    let liked = results(lane(json!({"recommend": {"positive": [1, 99]}, "k": 5})));
    assert_eq!(ids(&liked), [2, 3, 4], "the example is not among the results");
    assert_eq!(liked[0], json!({"id": 2, "distance": 1.0, "score": 0}));
    let best = results(lane(json!({"recommend": {"positive": [1, 4], "strategy": "best_score"}, "k": 5})));
    assert_eq!(best[0], json!({"id": 2, "distance": 0.0, "score": -1.0}));
    assert_eq!(ids(&best), [2, 3]);

    let context = json!([{"positive": 1, "negative": 4}]);
    let found = results(lane(json!({"discover": {"target_vec": [2, 0], "context": context}, "k": 4})));
    assert_eq!(
        ids(&found),
        [2, 1, 3, 4],
        "the right side first, by distance to the target; then how far on the wrong one"
    );
    assert_eq!(found[0], json!({"id": 2, "distance": 1.0, "score": 1.0}));
    assert_eq!((&found[2]["score"], &found[3]["score"]), (&json!(-3.0), &json!(-9.0)));

    let lanes = json!([{"dense": [0, 0], "k": 2}, {"sparse": {"indices": [2], "values": [1]}}]);
    let ranked = results(json!({"prefetch": lanes, "mode": "rerank", "root": {"dense": [3, 0]}, "k": 9}));
    assert_eq!(ids(&ranked), [3, 2, 1]);
    assert_eq!(ranked[0], json!({"id": 3, "distance": 1.0, "score": 0}));
    let filter = json!({"op": "eq", "field": "year", "value": 1992});
    let root = json!({"sparse": {"indices": [1], "values": [1]}, "filter": filter});
    let ranked = results(json!({"prefetch": lanes, "mode": "rerank", "root": root}));
    assert_eq!(ranked, json!([{"id": 1, "distance": 0.0, "score": 4.0}]));

    let grouped = json!({"prefetch": [{"dense": [0, 0]}], "k": 1, "group_by": "year", "group_size": 5});
    let answer = client.json("POST", path, grouped);
    assert_eq!(answer["groups"][0]["key"], json!({"kind": "int", "int": 1992}));
    assert_eq!(ids(&answer["groups"][0]["hits"]), [1, 3]);
    assert_eq!(answer["groups"][0]["hits"][0]["content"], json!("A river runs"));

    for (body, status, fragment) in [
        (r#"{}"#, 400, "at least one lane"),
        (r#"{"prefetch":[{}]}"#, 400, "dimension mismatch"),
        (r#"{"prefetch":[{"dense":[1,2]}],"mode":"rerank"}"#, 400, "needs a root"),
        (r#"{"prefetch":[{"dense":[1,2]}],"mode":"rerank","root":{"dense":[1]}}"#, 400, "dimension mismatch"),
        (r#"{"prefetch":[{"prefetch":[{"dense":[1,2]}]}]}"#, 400, "unknown field \"prefetch\""),
        (r#"{"prefetch":[{"recommend":{"negative":[1]}}]}"#, 400, "at least one positive"),
        (r#"{"prefetch":[{"recommend":{"positive":[77,78]}}]}"#, 404, "example point not found: id 77"),
        (
            r#"{"prefetch":[{"recommend":{"positive":[1],"negative":[2],"strategy":"best"}}]}"#,
            400,
            "best_score takes no negative",
        ),
        (r#"{"prefetch":[{"discover":{"target":1}}]}"#, 400, "at least one context pair"),
        (r#"{"prefetch":[{"discover":{"target":0,"context":[{"positive":1,"negative":2}]}}]}"#, 404, "id 0"),
        (
            r#"{"prefetch":[{"discover":{"context":[{"positive":1,"negative_vec":[1,2]}]}}]}"#,
            400,
            "context[0]",
        ),
        (
            r#"{"prefetch":[{"discover":{"context":[{"positive_vec":[1,2],"negative_vec":[1]}]}}]}"#,
            400,
            "dimension mismatch",
        ),
    ] {
        client.refused("POST", path, body, status, fragment);
    }
    client.refused("POST", "/v1/collections/none/query", r#"{"prefetch":[{}]}"#, 404, "unknown collection");
}

#[test]
fn one_query_asks_all_lanes() {
    let mut client = SHARED.client();
    films(&mut client, "all-lanes");
    let query = "/v1/collections/all-lanes/query";
    let text = client.json("POST", query, json!({"prefetch": [{"text": "the rivers"}], "k": 5}));
    let words = json!({"text": "the rivers", "k": 5});
    let plain = client.json("POST", "/v1/collections/all-lanes/points/search/text", words);
    let of = |answer: &Value, key: &str| -> Vec<(Value, Value)> {
        let hits = answer[key].as_array().unwrap();
        hits.iter().map(|hit| (hit["id"].clone(), hit["score"].clone())).collect()
    };
    assert_eq!(of(&text, "results"), of(&plain, "documents"));
    let lanes = json!([{"text": "rivers"}, {"dense": [3, 0]}, {"sparse": {"indices": [2], "values": [1]}}]);
    let all = client.json("POST", query, json!({"prefetch": lanes, "k": 5}));
    // By words 1 and 2, whose texts are equally long; by distance 4, 3, 2, 1; by dimension 2: 3, 2.
    let ids: Vec<i64> =
        all["results"].as_array().unwrap().iter().map(|hit| hit["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, [2, 3, 1, 4]);
    let by_words =
        json!({"prefetch": [{"dense": [3, 0]}], "mode": "rerank", "root": {"text": "tides"}, "k": 5});
    let found = client.json("POST", query, by_words);
    assert_eq!(found["results"].as_array().unwrap().len(), 1);
    let words: Vec<String> = (0..5000).map(|n| format!("q{n}")).collect();
    let endless = json!({"text": words.join(" "), "k": 1}).to_string();
    let search = "/v1/collections/all-lanes/points/search/text";
    client.refused("POST", search, &endless, 400, "at most 4096 distinct words, found 5000");
    let long = json!({ "text": "cat ".repeat(40_000) }).to_string();
    client.refused(
        "POST",
        search,
        &long,
        400,
        "the text of a query may have at most 131072 bytes, found 160000",
    );
    client.create("no-text", 2, "l2");
    let body = r#"{"prefetch":[{"text":"a"}]}"#;
    client.refused("POST", "/v1/collections/no-text/query", body, 400, "full-text disabled");
}

#[test]
fn diverse_neighbours() {
    let mut client = SHARED.client();
    films(&mut client, "diverse");
    let mmr = "/v1/collections/diverse/points/search/mmr";
    for (more, expected) in [
        // Half and half all that is left is worth the same, and the nearest is taken.
        (json!({}), vec![1, 2, 3]),
        (json!({"lambda": 1}), vec![1, 2, 3]),
        (json!({"lambda": 0.25}), vec![1, 4, 2]),
        (json!({"lambda": 0.25, "fetch_k": 3}), vec![1, 3, 2]),
        (json!({"lambda": 0.25, "filter": {"op": "eq", "field": "year", "value": 2001}}), vec![2, 4]),
    ] {
        let mut body = json!({"query": [0, 0], "k": 3});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = client.json("POST", mmr, body);
        let found = answer["documents"].as_array().unwrap();
        assert_eq!(
            found.iter().map(|hit| hit["id"].as_i64().unwrap()).collect::<Vec<_>>(),
            expected,
            "{more}"
        );
    }
    for (body, fragment) in [
        (r#"{"query":[0,0]}"#, "k must be between 1 and 1000, found 0"),
        (r#"{"query":[0,0],"k":1,"lambda":0}"#, "lambda must be above 0 and at most 1, found 0"),
        (r#"{"query":[0,0],"k":1,"lambda":1.5}"#, "found 1.5"),
        (r#"{"query":[0,0],"k":1,"fetch_k":10001}"#, "fetch_k must be at most 10000"),
        (r#"{"query":[0],"k":1}"#, "dimension mismatch"),
        (r#"{"query":[0,0],"k":1,"diversity":1}"#, "unknown field \"diversity\""),
    ] {
        client.refused("POST", mmr, body, 400, fragment);
    }
    client.refused(
        "POST",
        "/v1/collections/none/points/search/mmr",
        r#"{"query":[0],"k":1}"#,
        404,
        "unknown",
    );
}

#[test]
fn searches_explain_themselves_when_asked() {
    let mut client = SHARED.client();
    films(&mut client, "explained");
    let points = "/v1/collections/explained/points/search";
    let filter = json!({"op": "eq", "field": "year", "value": 1992});
    let search = json!({"query": [0, 0], "k": 3, "filter": filter});
    for (route, key) in [("", "results"), ("/docs", "documents")] {
        let plain = client.json("POST", &format!("{points}{route}"), search.clone());
        assert_eq!(plain.get("explain"), None);
        let mut asked = search.clone();
        asked["explain"] = json!(true);
        let answer = client.json("POST", &format!("{points}{route}"), asked);
        assert_eq!(answer[key], plain[key], "the answer is the same");
        let lane = &answer["explain"]["lanes"][0];
        assert_eq!((&lane["lane"], &lane["pool"], &lane["hits"]), (&json!("dense"), &json!(3), &json!(2)));
        assert_eq!((&lane["plan"], &lane["exact"]), (&json!("points"), &json!(true)));
        assert_eq!((&lane["estimate"]["at_most"], &lane["distances"]), (&json!(2), &json!(2)));
        let explain = &answer["explain"];
        let stages =
            ["waiting", "combining", "copying"].map(|stage| explain["stages"][stage].as_u64().unwrap());
        let all = stages.iter().sum::<u64>() + lane["microseconds"].as_u64().unwrap();
        assert!(all <= explain["microseconds"].as_u64().unwrap(), "{explain}");
    }
    let hybrid = json!({"vector": [0, 0], "text": "river", "k": 3, "explain": true});
    let answer = client.json("POST", &format!("{points}/hybrid-text"), hybrid);
    let lanes = answer["explain"]["lanes"].as_array().unwrap();
    let names: Vec<&str> = lanes.iter().map(|lane| lane["lane"].as_str().unwrap()).collect();
    assert_eq!(names, ["dense", "text"]);
    assert_eq!(
        (&lanes[1]["hits"], &lanes[1]["postings"], lanes[1].get("plan")),
        (&json!(2), &json!(2), None)
    );
    let groups = json!({"query": [0, 0], "k": 3, "group_by": "year", "explain": true});
    let answer = client.json("POST", &format!("{points}/groups"), groups);
    assert_eq!(answer["explain"]["lanes"][0]["pool"], json!(50));
    let query = json!({"prefetch": [{"sparse": {"indices": [9], "values": [1]}}], "explain": false});
    let answer = client.json("POST", "/v1/collections/explained/query", query);
    assert_eq!(answer.get("explain"), None);
}

#[test]
fn what_one_query_may_ask_for_is_bounded() {
    let mut client = SHARED.client();
    client.create("bounded", 1, "l2");
    let query = "/v1/collections/bounded/query";
    let ids: Vec<u64> = (0..257).collect();
    let many = json!({"prefetch": [{"recommend": {"positive": ids}}]}).to_string();
    client.refused("POST", query, &many, 400, "at most 256 examples, found 257");
    let pair = json!({"positive": 1, "negative": 2});
    let many = json!({"prefetch": [{"discover": {"target": 1, "context": vec![pair; 257]}}]}).to_string();
    client.refused("POST", query, &many, 400, "at most 256 pairs of examples");
    let (indices, values): (Vec<u32>, Vec<f32>) = (0..16_385).map(|dimension| (dimension, 1.0)).unzip();
    let many = json!({"sparse": {"indices": indices, "values": values}, "k": 1}).to_string();
    let hybrid = "/v1/collections/bounded/points/search/hybrid";
    client.refused("POST", hybrid, &many, 400, "at most 16384 dimensions");
    let groups = "/v1/collections/bounded/points/search/groups";
    let wide = json!({"query": [1], "k": 1, "group_by": "a", "fetch_k": 65_537}).to_string();
    client.refused("POST", groups, &wide, 400, "fetch_k must be between 0 and 65536");
}
