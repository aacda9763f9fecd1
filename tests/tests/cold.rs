//! The cold tier of whole servers: collections leave memory for a directory of backups, come back with the next request, and survive kills.
use crate::backups::{answers, as_named, create, fill};
use nigh_tests::{Api, Server};
use serde_json::{Value, json};
use std::path::Path;

const FAMILIES: [&str; 4] = ["docs", "files", "spaces", "tokens"];

fn start(data: &Path, store: &Path, flags: &[&str]) -> Server {
    let store = store.to_str().expect("the path is text").to_owned();
    let flags: Vec<&str> = ["-backup-dir", &store].into_iter().chain(flags.iter().copied()).collect();
    Server::start(Some(data), &flags)
}

/// The value of a metric without a label.
fn metric(api: &mut Api, name: &str) -> f64 {
    let page = api.page("/metrics");
    let line = page.lines().find(|line| line.starts_with(&format!("svc_{name} ")));
    let line = line.unwrap_or_else(|| panic!("no {name} in {page}"));
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

fn cold(api: &mut Api, name: &str, what: &str) -> (u16, Value) {
    let answer =
        api.send("POST", &format!("/v1/collections/{name}/{what}"), &Value::Null).expect("an answer");
    (answer.status, answer.body)
}

#[test]
fn collections_of_every_family_leave_and_come_back_with_the_next_request() {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, store) = (dir.path().join("data"), dir.path().join("store"));
    let mut server = start(&data, &store, &["-cores", "2"]);
    let mut api = server.api();
    create(&mut api);
    fill(&mut api, 0..60, 1);
    let before = answers(&mut api, &as_named);
    for round in 0..2 {
        for name in FAMILIES {
            for _again in 0..2 {
                assert_eq!(cold(&mut api, name, "evict"), (200, json!({"evicted": true})));
            }
        }
        assert_eq!(metric(&mut api, "collections_cold"), 4.0);
        let images = std::fs::read_dir(data.join("collections"))
            .expect("a directory")
            .flat_map(|dir| std::fs::read_dir(dir.expect("an entry").path()).expect("a directory").flatten());
        let left: Vec<_> = images
            .map(|file| file.file_name())
            .filter(|name| name != "collection.json" && name != "cold.json")
            .collect();
        assert!(left.is_empty(), "{left:?}");
        let listed = api.ok("GET", "/v1/collections", Value::Null).to_string();
        assert!(FAMILIES.iter().all(|name| listed.contains(&format!("\"name\":\"{name}\""))), "{listed}");
        if round == 1 {
            // Stubs survive a kill.
            drop(api);
            server.kill();
            server = start(&data, &store, &["-cores", "1"]);
            api = server.api();
            assert_eq!(metric(&mut api, "collections_cold"), 4.0);
        }
        assert_eq!(answers(&mut api, &as_named), before);
        assert_eq!(metric(&mut api, "collections_cold"), 0.0);
        assert_eq!(cold(&mut api, "docs", "restore"), (200, json!({"restored": true})));
    }
    assert_eq!(cold(&mut api, "none", "evict").0, 404);
    assert_eq!(cold(&mut api, "none", "restore").0, 404);
    cold(&mut api, "docs", "evict");
    let again = json!({"name": "docs", "config": {"dim": 4, "metric": "l2"}});
    assert_eq!(api.send("POST", "/v1/collections", &again).expect("an answer").status, 409);
    // The store is away: the request finds nothing, the route says why, and both work once it is back.
    let away = dir.path().join("away");
    std::fs::rename(store.join("default"), &away)
        .or_else(|_| std::fs::rename(&store, &away))
        .expect("it moves");
    let search = json!({"query": vec![0.5; 16], "k": 3});
    assert_eq!(
        api.send("POST", "/v1/collections/docs/points/search", &search).expect("an answer").status,
        404
    );
    assert_eq!(cold(&mut api, "docs", "restore").0, 500);
    assert_eq!(metric(&mut api, "collection_promotion_failures_total"), 2.0);
    std::fs::rename(&away, store.join("default")).expect("it moves back");
    assert_eq!(cold(&mut api, "docs", "restore"), (200, json!({"restored": true})));
    assert_eq!(answers(&mut api, &as_named), before);
    // A collection that is dropped while it is cold is gone, and its name is free.
    cold(&mut api, "docs", "evict");
    api.ok("DELETE", "/v1/collections/docs", Value::Null);
    api.ok("POST", "/v1/collections", again);
    assert_eq!(metric(&mut api, "collections_cold"), 0.0);
}

#[test]
fn a_collection_that_nobody_uses_leaves_by_itself() {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, store) = (dir.path().join("data"), dir.path().join("store"));
    let server = start(&data, &store, &["-cores", "2", "-cold-tier-after", "1s"]);
    let mut api = server.api();
    api.ok("POST", "/v1/collections", json!({"name": "docs", "config": {"dim": 2, "metric": "l2"}}));
    api.ok("POST", "/v1/collections/docs/points", json!({"id": 1, "vector": [1, 2]}));
    while metric(&mut api, "collections_cold") == 0.0 {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let found = api.ok("POST", "/v1/collections/docs/points/search", json!({"query": [1, 2], "k": 1}));
    assert!(found.to_string().contains("1"), "{found}");
    assert_eq!(metric(&mut api, "collections_cold"), 0.0);
}
