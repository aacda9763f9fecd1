//! Dear filters against a real server of one core, with somebody who pings it all the while: expressions with more states than a cache
//! holds, many words, polygons of 65,000 vertices, long lists, deep nesting, each within the limits.
//!
//! The short form is small. The long one (`NIGH_TEST_LONG=1`) has the sizes that once held a core for a minute, and prints the longest
//! ping beside each.
use nigh_tests::{Server, SplitMix, long, test_seed};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Beyond the 30 s that a filter may take, on a machine that is busy.
const HANGS: Duration = Duration::from_secs(90);

fn text(random: &mut SplitMix, bytes: usize) -> String {
    (0..bytes).map(|_| if random.below(2) == 0 { '0' } else { '1' }).collect()
}

fn words(random: &mut SplitMix, words: usize) -> String {
    (0..words).map(|_| format!("w{} ", random.below(50_000))).collect()
}

fn any(leaves: Vec<Value>) -> Value {
    json!({"op": "or", "or": leaves})
}

fn leaf(op: &str, field: &str, value: Value) -> Value {
    json!({"op": op, "field": field, "value": value})
}

/// Filters that match nothing, by name.
fn filters(random: &mut SplitMix, scale: usize) -> Vec<(&'static str, Value)> {
    let dear = |n: usize| format!("(1[01]{{{}}}|0[01]{{100}}1)x", 200 - n);
    let expressions = |field: &str, n| any((0..n).map(|n| leaf("regex", field, json!(dear(n)))).collect());
    let polygon = |random: &mut SplitMix| {
        let vertices = 650 * scale;
        let mut polygon = Vec::new();
        for index in 0..vertices {
            polygon.push(if index % 2 == 0 { 0.0 } else { 9.0 } + random.below(1000) as f64 / 1000.0);
            polygon.push(-20.0 - (index * 100_000 / vertices) as f64 / 100_000.0);
        }
        polygon.extend([89.0, 0.0, 5.0, 179.0]);
        json!({"op": "geo_polygon", "field": "place", "geo": {"polygon": polygon}})
    };
    let mut nested = expressions("text", 4);
    for _ in 0..25 {
        nested = json!({"op": "not", "not": {"op": "and", "and": [nested, leaf("gte", "n", json!(0))]}});
    }
    vec![
        ("16 expressions", expressions("text", 16)),
        ("4 expressions in a long text", expressions("long", 4)),
        ("many words", any((0..64).map(|_| leaf("match", "words", json!(words(random, 64)))).collect())),
        (
            "polygons",
            json!({"op": "and", "and": (0..16).map(|_| json!({"op": "not", "not": polygon(random)})).collect::<Vec<_>>()}),
        ),
        (
            "lists",
            any((0..60)
                .map(|n| leaf("in", "n", (0..10 * scale).map(|i| 1_000_000 + n * 1000 + i).collect()))
                .collect()),
        ),
        ("leaves", any((0..600 * scale).map(|n| leaf("eq", "words", json!(n.to_string()))).collect())),
        ("nesting", nested),
    ]
}

/// Sets a flag when it is dropped, also by a check that fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nobody_waits_for_a_dear_filter() {
    let _turn = crate::turn();
    let scale = if long() { 100 } else { 1 };
    let mut random = SplitMix(test_seed(16, 1));
    let server = Server::start(None, &["-cores", "1"]);
    let mut api = server.api();
    api.ok("POST", "/v1/collections", json!({"name": "c", "config": {"dim": 4, "metric": "l2"}}));
    for id in 0..100u64 {
        let mut payload = json!({
            "n": id,
            "text": text(&mut random, 200 * scale),
            "words": words(&mut random, 150 * scale),
            "place": {"kind": "geo", "lat": random.below(90) as f64 / 10.0, "lon": 1.0},
        });
        if id == 0 {
            payload["long"] = json!(text(&mut random, 10_000 * scale));
        }
        let vector = random.vector(4);
        let point = json!({"id": id, "vector": vector, "metadata": payload});
        api.ok("POST", "/v1/collections/c/points", point);
    }
    let (done, longest_us) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut api = server.api();
            while !done.load(Ordering::Relaxed) {
                let began = Instant::now();
                api.ok("GET", "/v1/health", Value::Null);
                longest_us.fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let _ends = SetAtEnd(&done);
        for (name, filter) in filters(&mut random, scale) {
            let vector = [0.1, 0.2, 0.3, 0.4];
            let requests = [
                ("count", json!({"filter": filter})),
                ("search", json!({"query": vector, "k": 5, "filter": filter})),
                ("scroll", json!({"limit": 5, "filter": filter})),
            ];
            for (route, body) in requests {
                longest_us.store(0, Ordering::Relaxed);
                let began = Instant::now();
                let reply =
                    api.send("POST", &format!("/v1/collections/c/points/{route}"), &body).expect("an answer");
                let took = began.elapsed();
                // Pings under way are counted where they end.
                std::thread::sleep(Duration::from_millis(10));
                let longest = Duration::from_micros(longest_us.load(Ordering::Relaxed));
                println!("{name}: {route} {} after {took:.2?}, longest ping {longest:.2?}", reply.status);
                assert!(matches!(reply.status, 200 | 503), "{name} {route}: {} {}", reply.status, reply.body);
                assert!(took < HANGS, "{name} {route} took {took:?}");
                assert!(long() || reply.status == 200, "{name} {route}: {}", reply.body);
            }
        }
    });
}
