//! Searches that take too long for one piece: right answers while others search and write, and a stop in the middle.
use crate::common::server::{Client, Server};
use nigh_net::auth::Open;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const POINTS: u64 = 40_000;
const SEARCH: &str = "/v1/collections/long/points/search";

fn fill(client: &mut Client) {
    client.create("long", 2, "l2");
    for first in (0..POINTS).step_by(10_000) {
        let points: Vec<Value> = (first..first + 10_000)
            .map(|id| json!({"id": id, "vector": [id, 1], "metadata": {"n": id, "t": format!("word{id}")}}))
            .collect();
        client.json("POST", "/v1/collections/long/points/batch", json!({ "points": points }));
    }
}

fn ids(answer: &Value) -> Vec<u64> {
    answer["results"].as_array().unwrap().iter().map(|hit| hit["id"].as_u64().unwrap()).collect()
}

/// The ten matching ids nearest to `at`; ties, the lower id first.
fn nearest(at: u64, matches: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut found: Vec<u64> = (0..POINTS).filter(|&id| matches(id)).collect();
    found.sort_by_key(|&id| (id.abs_diff(at), id));
    found.truncate(10);
    found
}

fn search(client: &mut Client, at: u64, filter: &Value) -> Vec<u64> {
    ids(&client.json("POST", SEARCH, json!({"query": [at, 1], "k": 10, "filter": filter})))
}

#[test]
fn long_searches_are_right_and_others_go_on() {
    let server = Server::start(Arc::new(Open), false);
    fill(&mut server.client());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Points that never match come and go.
        let (mut writer, over) = (server.client(), &over);
        scope.spawn(move || {
            for round in 0.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let points: Vec<Value> =
                    (0..100).map(|n| json!({"id": POINTS + n, "vector": [n, round]})).collect();
                let body = json!({"points": points, "upsert": true});
                writer.json("POST", "/v1/collections/long/points/batch", body);
            }
        });
        let mut searchers = Vec::new();
        for seed in 0..3u64 {
            let mut client = server.client();
            searchers.push(scope.spawn(move || {
                for round in 0..6 {
                    let at = (seed * 7919 + round * 104_729) % POINTS;
                    // Asked of every point: few match, far away, or none.
                    let regex =
                        |pattern: &str| json!({"op": "regex", "field": "t", "value": pattern.to_owned()});
                    let far = search(&mut client, at, &regex("^word[0-9]*99[0-9]$"));
                    assert_eq!(far, nearest(at, |id| id % 1000 >= 990));
                    assert_eq!(search(&mut client, at, &regex("^never$")), Vec::<u64>::new());
                    // Looked up in pieces, a list and what is not in a list.
                    let list: Vec<u64> = (0..20_000).map(|n| n * 2).collect();
                    let among = json!({"op": "in", "field": "n", "value": {"kind": "ints", "ints": list}});
                    assert_eq!(search(&mut client, at, &among), nearest(at, |id| id % 2 == 0));
                    let others = json!({"op": "and", "and": [{"op": "not", "not": among}, {"op": "gte", "field": "n", "value": 0}]});
                    assert_eq!(search(&mut client, at, &others), nearest(at, |id| id % 2 != 0));
                    let strings: Vec<String> = (0..POINTS).map(|n| format!("word{}", n * 3)).collect();
                    let asked = json!({"op": "in", "field": "t", "value": {"kind": "strings", "strs": strings}});
                    assert_eq!(search(&mut client, at, &asked), nearest(at, |id| id % 3 == 0));
                    // A query of lanes, one of them long.
                    let lane = json!({"dense": [at, 1], "filter": regex("^word[0-9]*99[0-9]$")});
                    let body = json!({"prefetch": [lane], "k": 10});
                    let found = ids(&client.json("POST", "/v1/collections/long/query", body));
                    assert_eq!(found, nearest(at, |id| id % 1000 >= 990));
                }
            }));
        }
        for searcher in searchers {
            searcher.join().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    // Dropped in the middle of long searches: they end or find nothing.
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                for _ in 0..4 {
                    let filter = json!({"op": "regex", "field": "t", "value": "^never$"});
                    let body = json!({"query": [5, 1], "k": 10, "filter": filter}).to_string();
                    let (status, text) = client.text("POST", SEARCH, &body);
                    assert!(
                        status == 200 && text.contains("\"results\":[]") || status == 404,
                        "{status} {text}"
                    );
                }
            });
        }
        server.client().json("DELETE", "/v1/collections/long", json!({}));
    });
}

#[test]
fn a_node_stops_in_the_middle_of_long_searches() {
    let server = Server::start(Arc::new(Open), false);
    fill(&mut server.client());
    let clients: Vec<Client> = (0..6).map(|_| server.client()).collect();
    let asked = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            let asked = asked.clone();
            // A connection that is cut in the middle fails the client's reading, which is none of the test's business.
            thread::spawn(move || {
                let filter = json!({"op": "regex", "field": "t", "value": "^never$"});
                let body = json!({"query": [5, 1], "k": 10, "filter": filter}).to_string();
                for _ in 0..3 {
                    asked.store(true, Ordering::Relaxed);
                    client.text("POST", SEARCH, &body);
                }
            })
        })
        .collect();
    while !asked.load(Ordering::Relaxed) {
        thread::yield_now();
    }
    drop(server);
    for thread in threads {
        let _cut_or_answered = thread.join();
    }
}
