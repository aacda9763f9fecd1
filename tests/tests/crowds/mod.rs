//! Clients that are many, slow, deaf or gone: they cost nobody else an answer, and the server a bounded memory each.
//!
//! While a crowd hangs on the server, another client's searches are checked one by one. Nothing is said about speed:
//! where a limit of time is due to cut somebody, the tests wait for many times that limit.

mod hoarders;
mod idle;
mod slow;
mod unread;

use nigh_tests::{Api, Server, SplitMix};
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const DIM: usize = 16;
const POINTS: u64 = 2_000;
/// What waits for the server, or for the machine, gives up after this.
const PATIENCE: Duration = Duration::from_secs(400);

fn vector(id: u64) -> Vec<f32> {
    SplitMix(id.wrapping_mul(77) + 5).vector(DIM)
}

/// A server with points, each with a content of `content_bytes`.
fn server(points: u64, content_bytes: usize) -> Server {
    let server = Server::start(None, &["-cores", "2"]);
    let mut api = server.api();
    api.ok("POST", "/v1/collections", json!({"name": "docs", "config": {"dim": DIM, "metric": "l2"}}));
    let content = "c".repeat(content_bytes);
    for first in (0..points).step_by(1_000) {
        let points: Vec<_> = (first..points.min(first + 1_000))
            .map(|id| json!({"id": id, "vector": vector(id), "content": content}))
            .collect();
        api.ok("POST", "/v1/collections/docs/points/batch", json!({"points": points}));
    }
    server
}

/// Searches for stored vectors; each must find its own point first, and the others farther and farther.
fn search(api: &mut Api, points: u64, seed: u64, searches: usize) {
    let mut random = SplitMix(seed);
    for number in 0..searches {
        let id = random.below(points);
        let body = json!({"query": vector(id), "k": 10});
        let answer = api.ok("POST", "/v1/collections/docs/points/search", body);
        let hits = answer["results"].as_array().expect("results");
        assert_eq!(hits.len(), 10, "seed {seed}, search {number}");
        assert_eq!(
            (&hits[0]["id"], &hits[0]["distance"]),
            (&json!(id), &json!(0.0)),
            "seed {seed}, search {number}"
        );
        assert!(hits.is_sorted_by_key(|hit| hit["distance"].as_f64().map(f64::to_bits)), "{answer}");
    }
}

/// Memory of the server process that is in use, bytes.
fn resident_bytes(server: &Server) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("a running process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line with VmRSS");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Sum of a gauge over all cores.
fn gauge(server: &Server, name: &str) -> u64 {
    let mut stream = connect(server);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("sent");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("the whole page");
    let values = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value =
            rest.strip_prefix(' ').or_else(|| rest.strip_prefix('{')?.split_once("} ").map(|(_, v)| v));
        value?.parse::<f64>().ok()
    });
    values.sum::<f64>() as u64
}

/// Waits until at most `count` connections are open, the one that asks among them.
fn wait_for_connections(server: &Server, count: u64) {
    wait_until("connections are left behind", || gauge(server, "svc_http_connections") <= count);
}

/// Looks again and again, as long as the machine may need.
fn wait_until(otherwise: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{otherwise}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.authority()).expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    stream
}

/// Reads an answer of a few hundred bytes with a length: its head and its body.
fn short_answer(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let mut piece = [0; 512];
    loop {
        let count = stream.read(&mut piece).expect("an answer");
        assert!(count > 0, "the connection was closed: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..count]);
        if answer.ends_with(b"}\n") {
            return String::from_utf8(answer).expect("text");
        }
    }
}

const HEALTH: &[u8] = b"GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n";

/// Asks for health on a connection that stays.
fn ask(stream: &mut TcpStream) {
    stream.write_all(HEALTH).expect("the connection is open");
    assert!(short_answer(stream).ends_with("{\"status\":\"ok\"}\n"));
}

/// Whether the server has ended a connection; throws away what it had still to say. The stream does not block.
fn is_cut(stream: &mut TcpStream) -> bool {
    let mut rest = [0; 4096];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return true,
        }
    }
}
