//! Points of every family come back from a file with equal answers.
use super::{Folder, count, export, fill, import, run, server};
use nigh_tests::Api;
use serde_json::{Value, json};

/// The whole of a collection: its configuration, and what every page says of its points. Times are rounded to minutes.
pub(super) fn whole(api: &mut Api, root: &str, ids: &[Value]) -> Value {
    let scroll = if root.starts_with("/v1/collections") { "points/scroll" } else { "scroll" };
    let mut points = api.ok("POST", &format!("{root}/points/batch-get"), json!({ "ids": ids }));
    for point in points["points"].as_array_mut().expect("points") {
        let point = point.as_object_mut().expect("a point");
        // A point that was changed begins anew where it is imported.
        point.remove("version");
        if let Some(ttl) = point.get_mut("ttl_ms") {
            *ttl = json!(ttl.as_u64().expect("a time").div_ceil(60_000));
        }
    }
    json!({
        "config": api.ok("GET", &format!("{root}/config"), Value::Null),
        "points": points,
        "pages": api.ok("POST", &format!("{root}/{scroll}"), json!({"limit": 100})),
    })
}

#[test]
fn dense_collections_come_back() {
    let (one, other, folder) = (server(), server(), Folder::new());
    let (mut from, mut to) = (one.api(), other.api());
    let config = json!({"dim": 3, "metric": "l2", "m": 8, "ef_search": 77, "full_text": {"analyzer": "german"},
        "quant": "pq", "quant_pq_m": 3, "opq": true, "opq_iters": 2, "traversal_codes": false, "max_vectors": 500});
    from.ok("POST", "/v1/collections", json!({"name": "films", "config": config}));
    let mut points: Vec<Value> = (0..50)
        .map(|id| json!({"id": id, "vector": [id as f32 * 0.1, 1e-20, -3.25], "metadata": {"n": id, "even": id % 2 == 0}}))
        .collect();
    points.extend([
        json!({"id": u64::MAX, "vector": [1, 2, 3], "content": "Die Häuser \"am\" Fluß\n", "sparse": {"indices": [1, 4_000_000_000_u32], "values": [0.5, -2]}}),
        json!({"id": 100, "vector": [0, 0, 0], "ttl_ms": 3_600_000, "metadata": {
            "s": "", "f": {"kind": "float", "flt": 2.0}, "i": i64::MIN, "b": false, "none": null, "": "empty key",
            "ss": ["a", "b"], "is": [1, -2], "fs": [0.5, 1e300], "at": {"kind": "geo", "lat": 41.5, "lon": -0.25},
            "rec": {"kind": "record", "rec": "AgD/"}}}),
    ]);
    from.ok("POST", "/v1/collections/films/points/batch", json!({ "points": points }));
    from.ok("POST", "/v1/collections/films/points/7/payload", json!({"n": 700}));
    from.ok("POST", "/v1/collections/films/points", json!({"id": 999, "vector": [1, 1, 1], "ttl_ms": 1}));

    let file = folder.path("films.jsonl");
    let said = export(&one, "films", &file, "").stdout;
    assert!(said.starts_with("exported 52 points of \"films\" (dense)"), "{said}");
    assert!(folder.text("films.jsonl").contains("{\"id\":7,\"version\":2,"));
    let said = import(&other, &file, "", 0).stdout;
    assert!(said.starts_with("imported into \"films\" (dense): 52 written"), "{said}");
    assert!(!folder.has("films.jsonl.import") && !folder.has("films.jsonl.partial.state"));

    let mut ids: Vec<Value> = (0..50).map(|id| json!(id)).collect();
    ids.extend([json!(u64::MAX), json!(100), json!(999)]);
    let root = "/v1/collections/films";
    let expected = whole(&mut from, root, &ids);
    assert_eq!(expected["points"]["missing"], json!([999]));
    assert_eq!(expected["points"]["points"].as_array().map(Vec::len), Some(52));
    assert_eq!(whole(&mut to, root, &ids), expected);
    for (route, body) in [
        (
            "points/search",
            json!({"query": [0.5, 0, -3], "k": 10, "filter": {"op": "eq", "field": "even", "value": true}}),
        ),
        ("points/search/text", json!({"text": "haus", "k": 5})),
        ("points/search/hybrid", json!({"sparse": {"indices": [1], "values": [1]}, "k": 5})),
        ("points/count", json!({"filter": {"op": "eq", "field": "n", "value": 700}})),
    ] {
        let path = format!("{root}/{route}");
        let answer = from.ok("POST", &path, body.clone());
        assert_eq!(to.ok("POST", &path, body), answer, "{route}");
        assert!(answer["count"] == 1 || answer.to_string().contains("\"id\""), "{route}: {answer}");
    }
}

#[test]
fn string_ids_and_plain_payloads_come_back() {
    let (one, other, folder) = (server(), server(), Folder::new());
    let (mut from, mut to) = (one.api(), other.api());
    let config = json!({"dim": 2, "metric": "cosine", "ids": "string", "payload_format": "plain"});
    from.ok("POST", "/v1/collections", json!({"name": "acme/news", "config": config}));
    let ids = ["a", "550e8400-e29b-41d4-a716-446655440000", "news/2026/a \"rose\"", "ü\\"];
    let points: Vec<Value> = ids
        .iter()
        .enumerate()
        .map(|(n, id)| json!({"id": id, "vector": [n + 1, 0.3], "metadata": {"n": n, "a": {"b": [1, "x", null, {"c": 1.0}]}}}))
        .collect();
    from.ok("POST", "/v1/collections/acme%2Fnews/points/batch", json!({ "points": points }));
    let file = folder.path("news.jsonl");
    export(&one, "acme/news", &file, "");
    import(&other, &file, "-into acme/copy -batch 2 -connections 1", 0);
    let ids = ids.map(|id| json!(id));
    let mut expected = whole(&mut from, "/v1/collections/acme%2Fnews", &ids);
    expected["config"]["name"] = json!("acme/copy");
    assert_eq!(whole(&mut to, "/v1/collections/acme%2Fcopy", &ids), expected);
    let search = json!({"query": [1, 1], "k": 4});
    let answer = from.ok("POST", "/v1/collections/acme%2Fnews/points/search", search.clone());
    assert_eq!(to.ok("POST", "/v1/collections/acme%2Fcopy/points/search", search), answer);
}

#[test]
fn named_spaces_come_back() {
    let (one, other, folder) = (server(), server(), Folder::new());
    let (mut from, mut to) = (one.api(), other.api());
    from.ok(
        "POST",
        "/v1/named/scenes",
        json!({"named_vectors": {"image": {"dim": 2, "metric": "l2", "m": 8}, "sound": {"dim": 3, "metric": "dot"}, "words": {"sparse": true}},
            "full_text": {}, "max_vectors": 90}),
    );
    let points = json!([
        {"id": 1, "vectors": {"image": [1, 0.1], "sound": [1, 2, 3]}, "content": "rain on a roof", "metadata": {"film": "Ran"}},
        {"id": 2, "vectors": {"image": [3, 0.7]}, "ttl_ms": 7_200_000},
        {"id": 3},
    ]);
    from.ok("POST", "/v1/named/scenes/points/batch", json!({ "points": points }));
    let (file, ids) = (folder.path("scenes.jsonl"), [json!(1), json!(2), json!(3)]);
    export(&one, "scenes", &file, "");
    import(&other, &file, "", 0);
    let expected = whole(&mut from, "/v1/named/scenes", &ids);
    assert_eq!(whole(&mut to, "/v1/named/scenes", &ids), expected);
    let search = json!({"vector_name": "image", "query": [2, 0], "k": 3});
    let answer = from.ok("POST", "/v1/named/scenes/search", search.clone());
    assert_eq!(to.ok("POST", "/v1/named/scenes/search", search), answer);

    // A point that is replaced loses the vectors that the file does not have.
    to.ok("POST", "/v1/named/scenes/points", json!({"id": 2, "vectors": {"sound": [9, 9, 9]}, "sparse_vectors": {"words": {"indices": [1], "values": [1]}}}));
    import(&other, &file, "-on-conflict replace", 0);
    assert_eq!(whole(&mut to, "/v1/named/scenes", &ids), expected);
    let sparse = json!({"vector_name": "words", "query": {"indices": [1], "values": [1]}, "k": 1});
    let found = to.ok("POST", "/v1/named/scenes/sparse-search", sparse);
    assert_eq!(found["results"], json!([]));

    // The server does not return sparse vectors of named spaces, which must not pass in silence.
    from.ok(
        "POST",
        "/v1/named/scenes/points",
        json!({"id": 4, "sparse_vectors": {"words": {"indices": [1], "values": [1]}}}),
    );
    let url = format!("-url http://{} -collection scenes -o {}", one.authority(), folder.path("more.jsonl"));
    let said = run(&format!("export {url}"), 1).stderr;
    assert!(said.contains("1 sparse vectors") && said.contains("-without-sparse"), "{said}");
    let said = run(&format!("export {url} -without-sparse"), 0).stdout;
    assert!(said.contains("not in the file: sparse vectors"), "{said}");
}

#[test]
fn token_vectors_come_back() {
    let (one, other, folder) = (server(), server(), Folder::new());
    let (mut from, mut to) = (one.api(), other.api());
    from.ok("POST", "/v1/multivector/papers", json!({"dim": 2, "ids": "string", "ef_search": 99}));
    let docs = json!([
        {"id": "a", "tokens": [[1, 0], [0, 1]], "metadata": {"title": "Pooling"}},
        {"id": "b", "tokens": [[0.6, 0.8]]},
    ]);
    from.ok("POST", "/v1/multivector/papers/docs/batch", json!({ "docs": docs }));
    let (file, ids) = (folder.path("papers.jsonl"), [json!("a"), json!("b"), json!("c")]);
    export(&one, "papers", &file, "");
    import(&other, &file, "", 0);
    let expected = whole(&mut from, "/v1/multivector/papers", &ids);
    assert_eq!(whole(&mut to, "/v1/multivector/papers", &ids), expected);
    let search = json!({"query": [[1, 0.5]], "k": 2});
    let answer = from.ok("POST", "/v1/multivector/papers/search", search.clone());
    assert_eq!(to.ok("POST", "/v1/multivector/papers/search", search), answer);
    let said = import(&other, &file, "", 1).stderr;
    assert!(said.contains("line 2: the point") && said.contains("in the collection already"), "{said}");
}

#[test]
fn vectors_come_back_from_a_file_of_their_own() {
    let (one, other, folder) = (server(), server(), Folder::new());
    let (mut from, mut to) = (one.api(), other.api());
    fill(&mut from, "films", 3000);
    let ids: Vec<Value> = (0..3000).map(|id| json!(id)).collect();
    let expected = whole(&mut from, "/v1/collections/films", &ids)["points"].clone();
    for format in ["npy", "fvecs"] {
        let name = format!("films.{format}");
        let file = folder.path(&name);
        export(&one, "films", &file, &format!("-format {format}"));
        let bytes = std::fs::metadata(&file).expect("it is there").len();
        assert_eq!(bytes, if format == "npy" { 128 + 3000 * 8 } else { 3000 * 12 });
        assert!(!folder.text(&format!("{name}.jsonl")).contains("\"vector\":"));
        import(&other, &file, &format!("-into {format}"), 0);
        let root = format!("/v1/collections/{format}");
        assert_eq!(whole(&mut to, &root, &ids)["points"], expected);

        // A row less, and a row that was changed.
        let whole = std::fs::read(&file).expect("it is there");
        std::fs::write(&file, &whole[..whole.len() - 8]).expect("room");
        let said = import(&other, &file, &format!("-into short-{format}"), 1).stderr;
        assert!(said.contains("the file of vectors"), "{said}");
        std::fs::remove_file(folder.path(&format!("{name}.jsonl.import"))).expect("a state");
        let mut changed = whole;
        *changed.last_mut().expect("bytes") ^= 1;
        std::fs::write(&file, changed).expect("room");
        let said = import(&other, &file, &format!("-into changed-{format}"), 1).stderr;
        assert!(said.contains("changed or damaged"), "{said}");
    }
    let said =
        run(&format!("export -url http://{} -collection films -format npy -o -", one.authority()), 1).stderr;
    assert!(said.contains("a file of their own"), "{said}");
}

#[test]
fn what_is_there_already_is_left_or_replaced_or_ends_the_import() {
    let (one, other, folder) = (server(), server(), Folder::new());
    let (mut from, mut to) = (one.api(), other.api());
    fill(&mut from, "films", 40);
    let file = folder.path("films.jsonl");
    export(&one, "films", &file, "");
    to.ok("POST", "/v1/collections", json!({"name": "films", "config": {"dim": 2, "metric": "l2"}}));
    to.ok("POST", "/v1/collections/films/points", json!({"id": 25, "vector": [9, 9]}));
    let vector =
        |api: &mut Api| api.ok("GET", "/v1/collections/films/points/25", Value::Null)["vector"].clone();

    let said = import(&other, &file, "-batch 10 -connections 1", 1).stderr;
    assert!(said.contains("line 27: the point 25 is in the collection already"), "{said}");
    assert!(count(&mut to, "films") >= 26);
    // What the message advises brings the rest.
    assert!(said.contains("-resume with -on-conflict skip"), "{said}");
    let said = import(&other, &file, "-resume -on-conflict skip", 0).stdout;
    assert!(said.contains("were there already and were left"), "{said}");
    assert_eq!((count(&mut to, "films"), vector(&mut to)), (40, json!([9.0, 9.0])));

    let said = import(&other, &file, "-on-conflict skip", 0).stdout;
    assert!(said.contains("were there already"), "{said}");
    assert_eq!((count(&mut to, "films"), vector(&mut to)), (40, json!([9.0, 9.0])));

    let said = import(&other, &file, "-on-conflict=replace", 0).stdout;
    assert!(said.contains("40 written"), "{said}");
    assert_eq!((count(&mut to, "films"), vector(&mut to)), (40, vector(&mut from)));

    // A collection of another configuration is refused, with the keys that differ.
    to.ok(
        "POST",
        "/v1/collections",
        json!({"name": "wide", "config": {"dim": 2, "metric": "cosine", "m": 8}}),
    );
    let said = import(&other, &file, "-into wide", 1).stderr;
    assert!(said.contains("m (16 and 8), metric (\"l2\" and \"cosine\")"), "{said}");
    import(&other, &file, "-into wide -any-config", 0);
    assert_eq!(count(&mut to, "wide"), 40);
}
