//! What clients are told while the store of a node is being opened.

use super::{Args, Front, pipe};
use crate::metrics::Telemetry;
use crate::tcp::sim_server;
use ::http::{Method, StatusCode};
use nigh_shard::core::Core;
use nigh_shard::disk::SimDisk;
use nigh_shard::sim::node::{begin, node_options, patiently};
use nigh_shard::sim::{Sim, run};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

const NAMES: [&str; 3] = ["one", "two", "three"];

/// Collections with some points each, and a key; most points in images, and some in the log alone.
async fn fill(sim: Sim, disk: Rc<SimDisk>) {
    let opening = begin(&sim, &disk, 2, node_options());
    opening.wait(&sim).await.expect("an empty store opens");
    let front = Front::new(&opening.node.cores[0], &Arc::new(Telemetry::new(2)));
    for name in NAMES {
        let body = json!({"name": name, "config": {"dim": 2, "metric": "l2"}});
        until(&sim, &front, Method::POST, "/v1/collections", &body, StatusCode::CREATED).await;
        for id in 0..40 {
            let point =
                json!({"id": id, "vector": [id, 1], "metadata": {"text": "x".repeat(500)}, "upsert": true});
            let path = format!("/v1/collections/{name}/points");
            until(&sim, &front, Method::POST, &path, &point, StatusCode::OK).await;
        }
    }
    for core in opening.node.cores.iter() {
        core.begin_stop();
    }
    for core in opening.node.cores.iter() {
        core.stop().await;
    }
}

/// Repeats a request until it is not refused because the node is busy.
async fn until(sim: &Sim, front: &Front, method: Method, path: &str, body: &Value, wanted: StatusCode) {
    loop {
        let (status, answer) = front.rest(method.clone(), path, body).await;
        if status == wanted {
            return;
        }
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {answer}");
        sim.sleep_us(50).await;
    }
}

/// What has been seen while the store was being opened.
#[derive(Default)]
struct Seen {
    details: BTreeSet<String>,
    refusals: BTreeSet<String>,
    over_tcp: BTreeSet<String>,
    listed: BTreeSet<usize>,
}

async fn look(sim: Sim, disk: Rc<SimDisk>, seen: &mut Seen) {
    let opening = begin(&sim, &disk, 2, node_options());
    let telemetry = Arc::new(Telemetry::new(2));
    let fronts: Vec<Front> = opening.node.cores.iter().map(|core| Front::new(core, &telemetry)).collect();
    let (wire, server) = pipe::pipe(&sim);
    sim_server::admit(&fronts[1].tcp, server);
    let front = &fronts[0];
    let null = Value::Null;
    while !front.core.node().progress.is_open() {
        assert_eq!(front.rest(Method::GET, "/v1/health", &null).await.0, StatusCode::OK);
        let (status, answer) = front.rest(Method::GET, "/v1/ready", &null).await;
        match status {
            StatusCode::OK => assert!(front.core.node().progress.is_open()),
            _ => {
                assert_eq!(
                    (status, &answer["status"]),
                    (StatusCode::SERVICE_UNAVAILABLE, &json!("not ready"))
                );
                seen.details.insert(answer["detail"].as_str().expect("a sentence").to_owned());
            }
        }
        for (method, path, body) in [
            (Method::GET, "/v1/collections/two", null.clone()),
            (Method::POST, "/v1/collections/two/points/search", json!({"query": [1, 1], "k": 1})),
            (Method::POST, "/v1/collections", json!({"name": "new", "config": {"dim": 2, "metric": "l2"}})),
            (Method::DELETE, "/v1/collections/new", null.clone()),
            (Method::POST, "/v1/aliases", json!({"alias": "other", "collection": "one"})),
        ] {
            let (status, headers, answer) = front.rest_with_headers(method, path, &body).await;
            if status == StatusCode::SERVICE_UNAVAILABLE {
                assert!(headers.contains_key("retry-after"), "{path}: {answer}");
                seen.refusals.insert(answer["error"].as_str().expect("a sentence").to_owned());
            } else {
                assert!(status.is_success() || status == StatusCode::CONFLICT, "{path}: {status} {answer}");
            }
        }
        let (status, listed) = front.rest(Method::GET, "/v1/collections", &null).await;
        if status == StatusCode::OK {
            let listed = listed["collections"].as_array().expect("a list").iter();
            seen.listed.insert(listed.filter(|entry| entry["opening"] == true).count());
        }
        for (operation, args) in [("get", Args::default().s16(b"key")), ("__ready__", Args::default())] {
            wire.send(&args.frame(operation));
            let (status, text) = wire.response().await;
            if status == 3 {
                // A count of bytes goes before the text.
                seen.over_tcp.insert(String::from_utf8_lossy(text.get(2..).expect("a text")).into_owned());
            }
        }
        sim.sleep_us(20).await;
    }
    opening.wait(&sim).await.expect("the store opens");
    assert_eq!(front.rest(Method::GET, "/v1/ready", &null).await.0, StatusCode::OK);
    let metrics = front.rest(Method::GET, "/metrics", &null).await.1;
    let page = metrics.as_str().expect("a page");
    assert!(page.contains("svc_collections_opening 0\n") && page.contains("svc_start_seconds 0."), "{page}");
    let search = json!({"query": [1, 1], "k": 1});
    until(&sim, front, Method::POST, "/v1/collections/two/points/search", &search, StatusCode::OK).await;
    let _created_or_known = patiently(|| front.core.drop_collection("new", None)).await;
}

#[test]
fn front_ends_answer_while_the_store_opens() {
    let mut seen = Seen::default();
    for seed in 1..20 {
        let disk = SimDisk::new(seed);
        disk.set_yielding(true);
        let disk = Rc::new(disk);
        run(seed, |sim| fill(sim, disk.clone()));
        Core::set_current(None);
        run(seed + 100, |sim| {
            let (disk, seen) = (disk.clone(), &mut seen);
            async move { look(sim, disk, seen).await }
        });
        Core::set_current(None);
    }
    let says = |all: &BTreeSet<String>, part: &str| {
        assert!(all.iter().any(|text| text.contains(part)), "no {part:?} in {all:#?}");
    };
    for part in
        ["its catalog is being read", "its log is being read", "its keys are", "of 3 collections are open"]
    {
        says(&seen.details, part);
    }
    says(&seen.refusals, "the store is still being opened; try again soon");
    says(&seen.refusals, "the collection \"two\" is still being opened; try again soon");
    says(&seen.over_tcp, "the keys are still being opened; try again soon");
    says(&seen.over_tcp, "not ready: the store is being opened");
    assert!(seen.listed.iter().any(|opening| (1..=3).contains(opening)), "{:?}", seen.listed);
}
