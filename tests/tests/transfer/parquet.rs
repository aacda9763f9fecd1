//! Points and keys come back from columns, as they do from lines; files of other programs; damaged files.
use super::faults::{interrupted_export, interrupted_import};
use super::memory::holds_little;
use super::points::whole;
use super::{Folder, count, export, fill, import, run, server};
use nigh_tests::{Api, Args, Server};
use serde_json::{Value, json};
use std::path::Path;

/// A file that another program wrote, in a folder where an import may note how far it is.
fn of_another(folder: &Folder, name: &str) -> String {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transfer/data").join(name);
    std::fs::copy(&from, folder.path(name)).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    folder.path(name)
}

/// The points with these ids.
fn points(api: &mut Api, root: &str, ids: &Value) -> Value {
    api.ok("POST", &format!("{root}/points/batch-get"), json!({ "ids": ids }))["points"].clone()
}

#[test]
fn dense_collections_come_back_from_parquet() {
    let (one, other, folder) = (server(), server(), Folder::new());
    let (mut from, mut to) = (one.api(), other.api());
    fill(&mut from, "films", 3000);
    let point = json!({"id": u64::MAX, "vector": [1e-20, -3.25], "content": "Häuser\n", "ttl_ms": 3_600_000,
        "sparse": {"indices": [1, 4_000_000_000_u32], "values": [0.5, -2]},
        "metadata": {"f": {"kind": "float", "flt": 2.0}, "i": i64::MIN, "": "empty key", "none": null, "ss": ["a", "b"]}});
    from.ok("POST", "/v1/collections/films/points", point);
    let file = folder.path("films.parquet");
    let said = export(&one, "films", &file, "-format parquet").stdout;
    assert!(said.starts_with("exported 3,001 points of \"films\" (dense)"), "{said}");
    assert!(!folder.has("films.parquet.partial") && !folder.has("films.parquet.partial.state"));
    let said = import(&other, &file, "", 0).stdout;
    assert!(said.starts_with("imported into \"films\" (dense): 3,001 written"), "{said}");
    let mut ids: Vec<Value> = (0..3000).map(|id| json!(id)).collect();
    ids.push(json!(u64::MAX));
    let root = "/v1/collections/films";
    assert_eq!(whole(&mut to, root, &ids), whole(&mut from, root, &ids));
    for (route, body) in [
        (
            "points/search",
            json!({"query": [100, -1], "k": 10, "filter": {"op": "eq", "field": "n", "value": 690}}),
        ),
        ("points/search/hybrid", json!({"sparse": {"indices": [1], "values": [1]}, "k": 5})),
    ] {
        let path = format!("{root}/{route}");
        let answer = from.ok("POST", &path, body.clone());
        assert_eq!(to.ok("POST", &path, body), answer, "{route}");
        assert!(answer.to_string().contains("\"id\""), "{route}: {answer}");
    }
    let said = import(&other, &file, "", 1).stderr;
    assert!(said.contains("in the collection already"), "{said}");

    // The name of a file need not say what it is.
    let plain = folder.path("films");
    std::fs::rename(&file, &plain).expect("room");
    import(&other, &plain, "-into again", 0);
    assert_eq!(count(&mut to, "again"), 3001);
}

#[test]
fn other_families_come_back_from_parquet() {
    let (one, other, folder) = (server(), server(), Folder::new());
    let (mut from, mut to) = (one.api(), other.api());
    let spaces = json!({"image": {"dim": 2, "metric": "l2"}, "id": {"dim": 1, "metric": "l2"}});
    from.ok("POST", "/v1/named/scenes", json!({"named_vectors": spaces, "ids": "string"}));
    let scenes = json!([
        {"id": "a", "vectors": {"image": [1, 0.1], "id": [7]}, "metadata": {"film": "Ran"}},
        {"id": "ü\"", "vectors": {"image": [3, 0.7]}, "ttl_ms": 7_200_000},
        {"id": "c"},
    ]);
    from.ok("POST", "/v1/named/scenes/points/batch", json!({ "points": scenes }));
    from.ok("POST", "/v1/multivector/papers", json!({"dim": 2}));
    let docs = json!([{"id": 1, "tokens": [[1, 0], [0, 1]], "metadata": {"title": "Pooling"}}, {"id": 2, "tokens": [[0.6, 0.8]]}]);
    from.ok("POST", "/v1/multivector/papers/docs/batch", json!({ "docs": docs }));
    let search = json!({"vector_name": "image", "query": [2, 0], "k": 3});
    let tokens = json!({"query": [[1, 0.5]], "k": 2});
    for (name, root, ids, search) in [
        ("scenes", "/v1/named/scenes", vec![json!("a"), json!("ü\""), json!("c")], search),
        ("papers", "/v1/multivector/papers", vec![json!(1), json!(2)], tokens),
    ] {
        let file = folder.path(&format!("{name}.parquet"));
        export(&one, name, &file, "-format parquet");
        import(&other, &file, "", 0);
        assert_eq!(whole(&mut to, root, &ids), whole(&mut from, root, &ids), "{name}");
        let path = format!("{root}/search");
        let answer = from.ok("POST", &path, search.clone());
        assert_eq!(to.ok("POST", &path, search), answer, "{name}");
        assert!(!folder.has(&format!("{name}.parquet.import")));
    }
    // An empty collection has a file as well.
    from.ok("POST", "/v1/multivector/none", json!({"dim": 2}));
    let file = folder.path("none.parquet");
    export(&one, "none", &file, "-format parquet");
    import(&other, &file, "", 0);
    assert_eq!(
        whole(&mut to, "/v1/multivector/none", &[json!(1)]),
        whole(&mut from, "/v1/multivector/none", &[json!(1)])
    );
}

/// The keys of a server as lines.
fn keys(server: &Server, folder: &Folder, name: &str) -> Vec<String> {
    run(&format!("export -address {} -keys -o {}", server.tcp_authority(), folder.path(name)), 0);
    folder.text(name).lines().skip(1).map(ToOwned::to_owned).collect()
}

#[test]
fn keys_come_back_from_parquet() {
    let (one, other, folder) = (server(), server(), Folder::new());
    let mut wire = one.tcp();
    let large = vec![b'x'; 9 << 20];
    let entries: [(&[u8], &[u8], u64); 5] = [
        (b"user:1", b"Ada", 0),
        (b"\xff\x00\n", b"\x80\x81", 0),
        (b"large", &large, 0),
        (b"", b"", 0),
        (b"soon", b"gone", 1),
    ];
    for (key, value, ttl_ms) in entries {
        wire.ask("put", Args::new().s16(key).s32(value).u64(ttl_ms)).ok();
    }
    wire.ask("__kv_index_set__", Args::new().s8("by.age").s8("user:").s8("age").u8(0).u8(1)).ok();
    let file = folder.path("keys.parquet");
    run(&format!("export -address {} -keys -format parquet -o {file}", one.tcp_authority()), 0);
    run(&format!("import -address {} {file}", other.tcp_authority()), 0);
    let (mut expected, mut found) = (keys(&one, &folder, "one"), keys(&other, &folder, "other"));
    // The last line has the checksum, which the time of the export is part of.
    expected.pop();
    found.pop();
    assert_eq!(expected.len(), 4);
    assert!(found == expected, "{} lines and {}", found.len(), expected.len());
    let indexes = |name: &str| folder.text(name).lines().next().expect("a header").contains("by.age");
    assert!(indexes("one") && indexes("other"));
}

#[test]
fn files_of_other_programs_are_imported() {
    let (server, folder) = (server(), Folder::new());
    let mut api = server.api();
    let config = json!({"dim": 3, "metric": "l2", "payload_format": "plain"});
    api.ok("POST", "/v1/collections", json!({"name": "films", "config": config}));
    let file = of_another(&folder, "films.parquet");
    let said = import(&server, &file, "", 1).stderr;
    assert!(said.contains("-into NAME"), "{said}");
    let said = import(&server, &file, "-into films", 1).stderr;
    assert!(said.contains("no column \"id\"; it has film, title") && said.contains("-id-column"), "{said}");
    let said = import(&server, &file, "-into films -id-column film", 0).stdout;
    assert!(said.contains("9 written, 1 had expired"), "{said}");
    let found = points(&mut api, "/v1/collections/films", &json!([0, 1, 3, 7, 9]));
    let expected = [
        json!({"title": "film 0", "seen": true, "genres": ["a", "b"], "director": {"name": "Ada", "born": 1900}, "added": 0}),
        json!({"title": "film 1", "score": 0.125, "seen": false, "genres": [], "director": {"name": "Ada", "born": 1901}, "added": 1000}),
        json!({"seen": false, "genres": ["ü"], "director": {"name": "Ada", "born": 1903}, "added": 3000}),
        json!({"title": "film 3", "score": 0.875, "seen": false, "genres": ["c"], "director": {"name": "Ada", "born": 1907}, "added": 7000}),
        json!({"title": "film 1", "seen": false, "genres": ["c"], "director": {"name": null, "born": null}, "added": 9000}),
    ];
    for (point, (id, payload)) in
        found.as_array().expect("points").iter().zip([0, 1, 3, 7, 9].iter().zip(expected))
    {
        let n = f64::from(*id);
        assert_eq!(point["id"], json!(id));
        assert_eq!(point["vector"], json!([n, n / 2.0, -0.25]), "{id}");
        assert_eq!(point["payload"], payload, "{id}");
        assert_eq!(point["ttl_ms"].as_u64() > Some(0), *id == 7, "{id}");
    }
    assert_eq!(found[0]["sparse"], json!({"indices": [1, 4_000_000_000_u32], "values": [0.5, -2.0]}));

    let spaces = json!({"image": {"dim": 2, "metric": "l2"}, "sound": {"dim": 1, "metric": "l2"}});
    api.ok("POST", "/v1/named/scenes", json!({"named_vectors": spaces, "ids": "string"}));
    let file = of_another(&folder, "scenes.parquet");
    let said = import(&server, &file, "-into scenes -vector-column image=none", 1).stderr;
    assert!(said.contains("no column \"none\""), "{said}");
    import(&server, &file, "-into scenes -vector-column image=picture,sound=sound", 0);
    let found = points(&mut api, "/v1/named/scenes", &json!(["a", "b", "ü"]));
    let vectors: Vec<&Value> = (0..3).map(|at| &found[at]["vectors"]).collect();
    assert_eq!(
        vectors,
        [
            &json!({"image": [1.0, 0.5], "sound": [7.0]}),
            &json!({"sound": [8.0]}),
            &json!({"image": [0.0, -1.0]}),
        ]
    );
    assert_eq!(found[2]["payload"]["film"]["str"], "Alien");
    api.ok(
        "POST",
        "/v1/named/others",
        json!({"named_vectors": {"smell": {"dim": 2, "metric": "l2"}}, "ids": "string"}),
    );
    let said = import(&server, &file, "-into others", 1).stderr;
    assert!(said.contains("no column has the name of a space"), "{said}");

    api.ok("POST", "/v1/multivector/papers", json!({"dim": 2}));
    import(&server, &of_another(&folder, "papers.parquet"), "-into papers", 0);
    let found = points(&mut api, "/v1/multivector/papers", &json!([1, 2]));
    let root = |x: f64, y: f64| json!([x, y]);
    assert_eq!(found[0]["tokens"], json!([root(1.0, 0.0), root(0.0, 1.0)]));
    assert_eq!(found[1]["tokens"][0].as_array().map(Vec::len), Some(2));

    let file = of_another(&folder, "keys.parquet");
    let exit = run(&format!("import -address {} {file}", server.tcp_authority()), 1);
    let said = exit.stdout + &exit.stderr;
    assert!(
        said.contains("2 written, 1 had expired, 1 refused") && said.contains("line 4: value is missing"),
        "{said}"
    );
    let mut wire = server.tcp();
    let mut get = |key: &[u8]| wire.ask("get", Args::new().s16(key)).ok();
    assert_eq!((get(b"a"), get(b"\xff\x00")), (b"1".to_vec(), b"".to_vec()));
}

#[test]
fn what_does_not_fit_is_refused_row_by_row() {
    let (server, folder) = (server(), Folder::new());
    let mut api = server.api();
    api.ok("POST", "/v1/collections", json!({"name": "films", "config": {"dim": 2, "metric": "l2"}}));
    let rejects = folder.path("rejects");
    let file = of_another(&folder, "refused.parquet");
    let exit = import(&server, &file, &format!("-into films -rejects {rejects}"), 1);
    let said = exit.stdout + &exit.stderr;
    assert!(said.contains("1 written, 6 refused"), "{said}");
    let rejected = folder.text("rejects");
    let rejected: Vec<Value> =
        rejected.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for (line, part) in [
        (3, "vector is missing"),
        (4, "the id -3 is no integer"),
        (5, "the point has no id"),
        (6, "vector: "),
        (7, "vector has 1 components, and the collection 2"),
        (8, "it is not JSON"),
    ] {
        let reason = rejected[line - 3]["reason"].to_string();
        assert!(rejected[line - 3]["line"] == json!(line) && reason.contains(part), "{line}: {rejected:?}");
    }
    assert_eq!(count(&mut api, "films"), 1);
    let said = import(&server, &of_another(&folder, "zstd.parquet"), "-into films", 1).stderr;
    assert!(said.contains("compressed with ZSTD") && said.contains("snappy"), "{said}");
}

#[test]
fn damaged_files_are_told() {
    let (server, folder) = (server(), Folder::new());
    let mut api = server.api();
    fill(&mut api, "films", 2000);
    let file = folder.path("films.parquet");
    export(&server, "films", &file, "-format parquet");
    let bytes = std::fs::read(&file).expect("it is there");
    let mut is_there = |name: &str| {
        let reply = api.send("GET", &format!("/v1/collections/{name}"), &Value::Null).expect("an answer");
        reply.status == 200
    };
    assert!(is_there("films"));
    for cut in [0, 3, 4, 1000, bytes.len() / 2, bytes.len() - 9, bytes.len() - 1] {
        std::fs::write(&file, &bytes[..cut]).expect("room");
        let exit = import(&server, &file, "-into cut", 1);
        assert!(
            exit.stderr.contains("films.parquet: ") && exit.stderr.contains("cut short or damaged"),
            "{}",
            exit.stderr
        );
        assert!(!is_there("cut") && !folder.has("films.parquet.import"));
    }
    // A byte of the points, and one of the checksum in the footer.
    let checksum = b"\"crc32c\":\"";
    let checksum =
        bytes.windows(checksum.len()).position(|part| part == checksum).expect("an end") + checksum.len();
    for (number, at) in [bytes.len() / 3, checksum].into_iter().enumerate() {
        let mut changed = bytes.clone();
        changed[at] ^= 2;
        std::fs::write(&file, changed).expect("room");
        let said = import(&server, &file, &format!("-into changed-{number}"), 1).stderr;
        assert!(said.contains("damaged") && !said.contains("panicked"), "{said}");
        let _ = std::fs::remove_file(folder.path("films.parquet.import"));
    }

    // Pages of another program that have checksums.
    api.ok("POST", "/v1/collections", json!({"name": "others", "config": {"dim": 3, "metric": "l2"}}));
    let file = of_another(&folder, "films.parquet");
    let mut bytes = std::fs::read(&file).expect("it is there");
    let at = bytes.windows(4).position(|part| part == 4.5_f32.to_le_bytes()).expect("a component");
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).expect("room");
    let said = import(&server, &file, "-into others -id-column film", 1).stderr;
    assert!(said.contains("row 9") && said.contains("changed or damaged"), "{said}");
}

#[test]
fn interrupted_exports_and_imports_of_parquet_go_on() {
    interrupted_export("parquet");
    interrupted_import("parquet", &["fail"]);
}

#[test]
fn memory_does_not_grow_with_the_file() {
    holds_little("parquet", 50_000, 512);
}
