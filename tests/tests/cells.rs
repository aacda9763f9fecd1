//! Collections of cells in whole processes: training while serving, filters, restarts, bulk builds.
use nigh_tests::{Api, Server, SplitMix};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const DIM: usize = 24;

fn vector(id: u64, version: u64) -> Vec<f32> {
    SplitMix(id.wrapping_mul(77) + version * 1_000_003 + 1).vector(DIM)
}

fn points(ids: impl Iterator<Item = u64>, version: u64) -> Value {
    ids.map(|id| {
        let metadata =
            json!({"n": {"kind": "int", "int": id}, "rare": {"kind": "bool", "bool": id % 200 == 3}});
        json!({"id": id, "vector": vector(id, version), "metadata": metadata})
    })
    .collect()
}

fn create(api: &mut Api, name: &str, more: Value) {
    let mut config = json!({"dim": DIM, "metric": "cosine", "index_type": "ivf"});
    config.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    api.ok("POST", "/v1/collections", json!({"name": name, "config": config}));
}

fn index(api: &mut Api, name: &str) -> Value {
    api.ok("GET", &format!("/v1/collections/{name}"), Value::Null)["index"].clone()
}

fn wait_for_cells(api: &mut Api, name: &str) -> u64 {
    let start = Instant::now();
    loop {
        match index(api, name)["cells"].as_u64() {
            Some(0) => assert!(start.elapsed() < Duration::from_secs(60), "{name} does not train"),
            cells => return cells.expect("a number"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn found(api: &mut Api, name: &str, body: Value) -> Vec<u64> {
    let answer = api.ok("POST", &format!("/v1/collections/{name}/points/search"), body);
    let hits = answer["results"].as_array().expect("results");
    hits.iter().map(|hit| hit["id"].as_u64().expect("an id")).collect()
}

/// The rare ones, by a filter: `k` of them whenever there are as many, and all of them when all are asked for.
fn check(api: &mut Api, name: &str, live: &BTreeSet<u64>) {
    let rare: BTreeSet<u64> = live.iter().copied().filter(|id| id % 200 == 3).collect();
    for query in 0..20 {
        let query = vector(1_000_000 + query, 0);
        let filter = json!({"op": "eq", "field": "rare", "value": {"kind": "bool", "bool": true}});
        let hits = found(api, name, json!({"query": query, "k": 100, "filter": filter}));
        assert_eq!(hits.iter().copied().collect::<BTreeSet<u64>>(), rare, "{name}");
        let filter = json!({"op": "lt", "field": "n", "value": {"kind": "int", "int": 700}});
        let hits = found(api, name, json!({"query": query, "k": 10, "filter": filter}));
        assert!(hits.len() == 10 && hits.iter().all(|id| *id < 700 && live.contains(id)), "{name}: {hits:?}");
    }
    let all = found(api, name, json!({"query": vector(9, 0), "k": 3000}));
    assert!(all.iter().copied().collect::<BTreeSet<u64>>() == *live && all.len() == live.len(), "{name}");
    for id in live.iter().step_by(97) {
        let hits = found(api, name, json!({"query": vector(*id, 1), "k": 1}));
        assert_eq!(hits, [*id], "{name}: its own vector");
    }
}

#[test]
fn cells_are_made_while_points_are_written_and_come_back_after_kills_and_stops() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let mut server = Server::start(Some(data.path()), &["-cores", "2"]);
    let mut api = server.api();
    create(&mut api, "flat", json!({"ivf_train_threshold": 800}));
    let drift = json!({"ivf_train_threshold": 500, "soar": true, "ivf_drift_retrain": true, "ivf_drift_factor": 1.0001});
    create(&mut api, "spilled", drift);
    assert_eq!(index(&mut api, "flat")["type"], "ivf");
    for name in ["flat", "spilled"] {
        let path = format!("/v1/collections/{name}/points/batch");
        for first in (0..1600).step_by(100) {
            // Replaced at once: lists hold the last of each.
            for version in [0, 1] {
                let body = json!({"upsert": true, "points": points(first..first + 100, version)});
                api.ok("POST", &path, body);
            }
            let hits = found(&mut api, name, json!({"query": vector(first, 1), "k": 1}));
            assert_eq!(hits, [first], "at once, whatever is trained meanwhile");
        }
        for id in (0..1600).step_by(10) {
            api.ok("DELETE", &format!("/v1/collections/{name}/points/{id}"), Value::Null);
        }
        let short = json!({"id": 5000, "vector": vector(5000, 1), "ttl_ms": 1000});
        api.ok("POST", &format!("/v1/collections/{name}/points"), short);
    }
    let live: BTreeSet<u64> = (0..1600).filter(|id| id % 10 != 0).collect();
    assert!(wait_for_cells(&mut api, "flat") >= 100);
    assert!(wait_for_cells(&mut api, "spilled") >= 80);
    std::thread::sleep(Duration::from_millis(1100));
    for round in 0..4 {
        for name in ["flat", "spilled"] {
            check(&mut api, name, &live);
        }
        drop(api);
        if round % 2 == 0 {
            server.kill()
        } else {
            drop(server.stop())
        }
        server = Server::start(Some(data.path()), &["-cores", if round < 2 { "1" } else { "2" }]);
        api = server.api();
        // At once, exactly, when no image had the cells yet.
        check(&mut api, "flat", &live);
        if round % 2 == 1 {
            assert!(index(&mut api, "flat")["cells"].as_u64() > Some(0), "a clean stop keeps them");
        }
        wait_for_cells(&mut api, "flat");
        wait_for_cells(&mut api, "spilled");
    }
}

#[test]
fn a_bulk_build_of_any_size_has_cells_and_keeps_them() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(Some(data.path()), &[]);
    let mut api = server.api();
    create(&mut api, "built", json!({"ivf_nlist": 30, "ivf_nprobe": 4}));
    let live: BTreeSet<u64> = (0..1100).collect();
    api.ok("POST", "/v1/collections/built/points/bulk", json!({"points": points(0..1100, 1)}));
    api.ok("POST", "/v1/collections/built/points/bulk/build", json!({"workers": 0}));
    assert_eq!(index(&mut api, "built")["cells"], 30);
    check(&mut api, "built", &live);
    server.kill();
    let server = Server::start(Some(data.path()), &[]);
    let mut api = server.api();
    assert_eq!(index(&mut api, "built")["cells"], 30, "in the image of the build");
    check(&mut api, "built", &live);
}
