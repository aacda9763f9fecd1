//! Collections with `index_type` "gpu", on a server whose device is the plain reference.
use crate::common::server::{Client, Server};
use nigh_gpu::Reference;
use nigh_net::auth::Open;
use nigh_shard::device::Devices;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const POINTS: u64 = 3000;

/// On a spiral, so that no two are equally far from anything asked here.
fn vector(id: u64) -> [f32; 3] {
    let x = id as f32;
    [(x * 0.7).sin() * (1.0 + x * 0.01), (x * 0.7).cos() * (1.0 + x * 0.01), x * 0.001]
}

/// Ids by squared distance, then id.
fn nearest(query: [f32; 3], ids: impl Iterator<Item = u64>, k: usize) -> Vec<u64> {
    let distance = |id| -> f32 { query.iter().zip(vector(id)).map(|(a, b)| (a - b) * (a - b)).sum() };
    let mut all: Vec<(f32, u64)> = ids.map(|id| (distance(id), id)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    all.into_iter().take(k).map(|(_, id)| id).collect()
}

fn search(client: &mut Client, query: [f32; 3], k: usize, filter: Value) -> Vec<u64> {
    let body = json!({"query": query, "k": k, "filter": filter});
    let found = client.json("POST", "/v1/collections/dev/points/search", body);
    found["results"]
        .as_array()
        .unwrap_or_else(|| panic!("{found}"))
        .iter()
        .map(|hit| hit["id"].as_u64().unwrap())
        .collect()
}

#[test]
fn plain_searches_are_exact_and_everything_else_works() {
    let opened = Arc::new(AtomicUsize::new(0));
    let counted = opened.clone();
    let devices = Devices::new(move |dim, metric| {
        counted.fetch_add(1, SeqCst);
        Ok(Box::new(Reference::new(dim, metric)))
    });
    let server = Server::start_with(Arc::new(Open), false, devices);
    let mut client = server.client();
    let body = r#"{"name":"dev","config":{"dim":3,"metric":"l2","index_type":"gpu","full_text":{}}}"#;
    client.refused("POST", "/v1/collections", body, 400, "invalid FullText");
    let config = json!({"dim": 3, "metric": "l2", "index_type": "gpu", "ef_search": 1, "m": 2});
    client.json("POST", "/v1/collections", json!({"name": "dev", "config": config}));
    let info = client.json("GET", "/v1/collections/dev", Value::Null);
    assert_eq!(info["index"]["type"], "gpu");
    assert_eq!(opened.load(SeqCst), 1, "a device is opened to see whether there is one");
    for first in (0..POINTS).step_by(500) {
        let points: Vec<Value> = (first..first + 500)
            .map(|id| json!({"id": id, "vector": vector(id), "metadata": {"even": id % 2 == 0}}))
            .collect();
        client.json("POST", "/v1/collections/dev/points/batch", json!({"points": points}));
    }
    let even = json!({"op": "eq", "field": "even", "value": {"kind": "bool", "bool": true}});
    for (index, k) in [1, 10, 256, 257, 1000].into_iter().enumerate() {
        let query = [index as f32, 3.3, 0.5];
        assert_eq!(search(&mut client, query, k, Value::Null), nearest(query, 0..POINTS, k), "k {k}");
        let expected = nearest(query, (0..POINTS).step_by(2), k);
        assert_eq!(search(&mut client, query, k, even.clone()), expected, "k {k}, filtered");
    }
    assert_eq!(opened.load(SeqCst), 2, "the device searched");

    // What is written, deleted and replaced shows at once.
    let query = vector(1234);
    client.json("DELETE", "/v1/collections/dev/points/1234", Value::Null);
    let without = nearest(query, (0..POINTS).filter(|id| *id != 1234), 5);
    assert_eq!(search(&mut client, query, 5, Value::Null), without);
    client.json("POST", "/v1/collections/dev/points", json!({"id": 90_000, "vector": query}));
    assert_eq!(search(&mut client, query, 1, Value::Null), [90_000]);

    // Not a plain search: by the graph.
    let body = json!({"query": query, "k": 3, "lambda": 1.0});
    let found = client.json("POST", "/v1/collections/dev/points/search/mmr", body);
    assert!(!found["documents"].as_array().unwrap_or_else(|| panic!("{found}")).is_empty());
    drop(server);
}
