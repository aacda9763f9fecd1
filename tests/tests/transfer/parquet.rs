//! Points and keys come back from columns, as they do from lines.
use super::points::whole;
use super::{Folder, export, fill, import, run, server};
use serde_json::{Value, json};

#[test]
fn every_family_comes_back_from_parquet() {
    let (one, other, folder) = (server(), server(), Folder::new());
    let (mut from, mut to) = (one.api(), other.api());
    fill(&mut from, "films", 3000);
    let point = json!({"id": u64::MAX, "vector": [1e-20, -3.25], "content": "Häuser\n", "ttl_ms": 3_600_000,
        "sparse": {"indices": [1, 4_000_000_000_u32], "values": [0.5, -2]}, "metadata": {"f": {"kind": "float", "flt": 2.0}}});
    from.ok("POST", "/v1/collections/films/points", point);
    let spaces = json!({"image": {"dim": 2, "metric": "l2"}, "id": {"dim": 1, "metric": "l2"}});
    from.ok("POST", "/v1/named/scenes", json!({"named_vectors": spaces, "ids": "string"}));
    let points = json!([{"id": "a", "vectors": {"image": [1, 0.1], "id": [7]}, "metadata": {"film": "Ran"}}, {"id": "b"}]);
    from.ok("POST", "/v1/named/scenes/points/batch", json!({ "points": points }));
    from.ok("POST", "/v1/multivector/papers", json!({"dim": 2}));
    let docs = json!([{"id": 1, "tokens": [[1, 0], [0, 1]], "metadata": {"title": "Pooling"}}, {"id": 2, "tokens": [[0.6, 0.8]]}]);
    from.ok("POST", "/v1/multivector/papers/docs/batch", json!({ "docs": docs }));
    let mut films: Vec<Value> = (0..3000).map(|id| json!(id)).collect();
    films.push(json!(u64::MAX));
    for (name, root, ids) in [
        ("films", "/v1/collections/films", films),
        ("scenes", "/v1/named/scenes", vec![json!("a"), json!("b")]),
        ("papers", "/v1/multivector/papers", vec![json!(1), json!(2)]),
    ] {
        let file = folder.path(&format!("{name}.parquet"));
        export(&one, name, &file, "-format parquet");
        assert!(!folder.has(&format!("{name}.parquet.partial")));
        import(&other, &file, "", 0);
        assert_eq!(whole(&mut to, root, &ids), whole(&mut from, root, &ids), "{name}");
        assert!(!folder.has(&format!("{name}.parquet.import")));
        let said = import(&other, &file, "", 1).stderr;
        assert!(said.contains("in the collection already"), "{said}");
    }
    let file = folder.path("films.parquet");
    let bytes = std::fs::read(&file).expect("it is there");
    std::fs::write(&file, &bytes[..bytes.len() - 9]).expect("room");
    let said = import(&other, &file, "-into cut", 1).stderr;
    assert!(said.contains("films.parquet: ") && said.contains("cut short or damaged"), "{said}");
}

#[test]
fn keys_come_back_from_parquet() {
    let (one, other, folder) = (server(), server(), Folder::new());
    for (key, value) in [("user:1", "Ada"), ("user:2", "")] {
        let address = one.tcp_authority();
        let exit = nigh_tests::run_to_end(&["cli", "-address", address, "put", key, value], &[]);
        assert!(exit.status.success(), "{}{}", exit.stdout, exit.stderr);
    }
    let file = folder.path("keys.parquet");
    run(&format!("export -address {} -keys -format parquet -o {file}", one.tcp_authority()), 0);
    run(&format!("import -address {} {file}", other.tcp_authority()), 0);
    let again = folder.path("keys.jsonl");
    run(&format!("export -address {} -keys -o {again}", other.tcp_authority()), 0);
    let text = folder.text("keys.jsonl");
    assert!(
        text.contains("{\"key\":\"user:1\",\"value\":\"Ada\"}\n{\"key\":\"user:2\",\"value\":\"\"}\n"),
        "{text}"
    );
}
