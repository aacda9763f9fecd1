//! Batches of small vectors into fresh collections of a real server: none waits for an indexer that nobody has told of its work.
//!
//! 512 points applied within one slice of a write once left the writer waiting for the indexer and the indexer for a sign of work, for
//! ever where nothing is swept.
use nigh_tests::{Server, SplitMix, long, test_seed};
use serde_json::json;
use std::time::{Duration, Instant};

/// Far above what a batch takes, far below for ever.
const HANGS: Duration = Duration::from_secs(30);

/// `RVB1` as `net/src/rest/binary.rs` reads it.
fn body(random: &mut SplitMix, points: u64, dim: usize) -> Vec<u8> {
    let mut body = b"RVB1".to_vec();
    body.extend_from_slice(&0u32.to_be_bytes());
    body.extend_from_slice(&(points as u32).to_be_bytes());
    body.extend_from_slice(&(dim as u32).to_be_bytes());
    for id in 0..points {
        body.extend_from_slice(&id.to_be_bytes());
        random.vector(dim).iter().for_each(|x| body.extend_from_slice(&x.to_be_bytes()));
    }
    body
}

#[test]
fn no_batch_waits_for_an_indexer_that_sleeps() {
    let _turn = crate::turn();
    let batches = if long() { 1000 } else { 40 };
    let mut random = SplitMix(test_seed(19, batches));
    let server = Server::start(None, &["-ttl-sweep-interval", "0", "-cores", "1"]);
    let mut longest = (Duration::ZERO, 0, 0);
    for batch in 0..batches {
        let (points, dim) = (513 + random.below(4488), 1 + random.below(32) as usize);
        let body = body(&mut random, points, dim);
        let name = format!("c{batch}");
        let path = format!("/v1/collections/{name}/points/batch");
        // On a connection of its own: an answer that does not come must not hold up the test.
        let mut api = server.api();
        api.ok("POST", "/v1/collections", json!({"name": name, "config": {"dim": dim, "metric": "l2"}}));
        let began = Instant::now();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let reply = api.send_bytes("POST", &path, "application/octet-stream", &body);
            // Nobody listens where the test has given up.
            let _given_up = sender.send((reply, api));
        });
        let (reply, mut api) = receiver
            .recv_timeout(HANGS)
            .unwrap_or_else(|_| panic!("a batch of {points} points of {dim} components has no answer"));
        let reply = reply.expect("an answer");
        assert_eq!(reply.status, 200, "{}", reply.body);
        longest = longest.max((began.elapsed(), points, dim));
        api.ok("DELETE", &format!("/v1/collections/{name}"), serde_json::Value::Null);
    }
    let (took, points, dim) = longest;
    println!("the longest of {batches} batches: {took:?} for {points} points of {dim} components");
}
