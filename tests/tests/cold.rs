//! The cold tier of whole servers: collections leave memory for a directory of backups, come back with the next request, and survive kills.
use crate::backups::{answers, as_named, create, fill};
use nigh_tests::{Api, Server, SplitMix};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

const FAMILIES: [&str; 4] = ["docs", "files", "spaces", "tokens"];

/// Starts a server on `data` whose store of backups is the directory `store`.
pub(crate) fn start(data: &Path, store: &Path, flags: &[&str]) -> Server {
    let store = store.to_str().expect("the path is text").to_owned();
    let flags: Vec<&str> = ["-backup-dir", &store].into_iter().chain(flags.iter().copied()).collect();
    Server::start(Some(data), &flags)
}

/// The value of a metric without a label.
pub(crate) fn metric(api: &mut Api, name: &str) -> f64 {
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
fn without_a_store_a_cold_collection_is_known_and_the_answer_says_what_is_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, store) = (dir.path().join("data"), dir.path().join("store"));
    let server = start(&data, &store, &["-cores", "2"]);
    let mut api = server.api();
    api.ok("POST", "/v1/collections", json!({"name": "docs", "config": {"dim": 2, "metric": "l2"}}));
    assert_eq!(cold(&mut api, "docs", "evict").0, 200);
    drop(api);
    server.kill();
    let server = Server::start(Some(&data), &["-cores", "2"]);
    let mut api = server.api();
    for what in ["evict", "restore"] {
        let (status, body) = cold(&mut api, "docs", what);
        assert!(status == 412 && body.to_string().contains("no object store"), "{what}: {status} {body}");
        assert_eq!(cold(&mut api, "none", what).0, 404);
    }
    let partitions = json!({"new_partitions": 4});
    let answer = api.send("POST", "/v1/collections/docs/resplit", &partitions).expect("an answer");
    assert_eq!(answer.status, 412, "{}", answer.body);
    assert_eq!(metric(&mut api, "collections_cold"), 1.0);
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

/// Clients write to and read from many collections of which few fit into memory. Each has a client of its own, which knows what it has written.
#[test]
fn of_many_collections_few_fit_and_no_write_is_lost() {
    const COLLECTIONS: u64 = 40;
    const DIM: usize = 1024;
    const POINTS: u64 = 400;
    const CLIENTS: u64 = 4;
    let dir = tempfile::tempdir().expect("a directory");
    let (data, store) = (dir.path().join("data"), dir.path().join("store"));
    let store = store.to_str().expect("a path in UTF-8");
    // Nothing leaves only because nobody uses it.
    let flags = ["-backup-dir", store, "-cold-tier-after", "1h", "-cores", "2", "-shards", "4"];
    let memory = (104u64 << 20).to_string();
    let environment = [("NIGH_TEST_MEMORY_BYTES", memory.as_str())];
    let server = Server::try_start_with(Some(&data), &flags, &environment, None)
        .unwrap_or_else(|failure| panic!("{}:\n{}", failure.status, failure.log));
    let name = |collection: u64| format!("c{collection}");
    let vector = |collection: u64, id: u64, version: u64| {
        SplitMix((collection << 40) + (id << 20) + version + 1).vector(DIM)
    };
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (server, name, vector) = (&server, &name, &vector);
            scope.spawn(move || {
                let mut api = server.api();
                let mut written: BTreeMap<(u64, u64), u64> = BTreeMap::new();
                let mut random = SplitMix(client + 77);
                let mine: Vec<u64> = (0..COLLECTIONS).filter(|c| c % CLIENTS == client).collect();
                // What does not fit now is refused by name, and sent again: nothing of it was done.
                let mut send = |method: &str, path: &str, body: Value| loop {
                    // A body that there is no memory for is refused before all of it is sent, and the connection is closed.
                    let Ok(answer) = api.send(method, path, &body) else {
                        api = server.api();
                        continue;
                    };
                    match answer.status {
                        200 | 201 => return answer.body,
                        429 | 503 | 507 => std::thread::sleep(std::time::Duration::from_millis(20)),
                        status => panic!("{path}: {status} {}", answer.body),
                    }
                };
                for &collection in &mine {
                    let name = name(collection);
                    let body = json!({"name": name, "config": {"dim": DIM, "metric": "l2"}});
                    send("POST", "/v1/collections", body);
                    for first in (0..POINTS).step_by(25) {
                        let points: Vec<_> = (first..first + 25)
                            .map(|id| json!({"id": id, "vector": vector(collection, id, 0), "upsert": true}))
                            .collect();
                        let path = format!("/v1/collections/{name}/points/batch");
                        send("POST", &path, json!({"points": points}));
                    }
                    (0..POINTS).for_each(|id| _ = written.insert((collection, id), 0));
                }
                for version in 1..25 {
                    let collection = mine[random.next() as usize % mine.len()];
                    let (name, id) = (name(collection), random.next() % POINTS);
                    let point = json!({"id": id, "vector": vector(collection, id, version), "upsert": true});
                    send("POST", &format!("/v1/collections/{name}/points"), point);
                    written.insert((collection, id), version);
                    let id = random.next() % POINTS;
                    let query = vector(collection, id, written[&(collection, id)]);
                    let body = json!({"query": query, "k": 1, "ef_search": 400});
                    let found = send("POST", &format!("/v1/collections/{name}/points/search"), body);
                    let first = &found["results"][0];
                    assert_eq!(first["id"], json!(id), "{name} {id}: {found}");
                    assert_eq!(first["distance"].as_f64(), Some(0.0), "{name} {id}: {found}");
                }
            });
        }
    });
    let mut api = server.api();
    assert!(metric(&mut api, "collections_cold") > 0.0, "not all of them fit");
    assert!(metric(&mut api, "collection_evictions_total") > COLLECTIONS as f64, "some made room");
    assert!(metric(&mut api, "memory_used_bytes") <= metric(&mut api, "memory_limit_bytes"));
}
