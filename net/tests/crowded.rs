//! What answers, heads and frames of strangers may hold in all, with budgets that are small: both front ends, over real sockets.
mod common;
use common::server::options;
use common::{Answer, answer, send};
use nigh_net::auth::SingleKey;
use nigh_net::bind;
use nigh_net::http::HttpConfig;
use nigh_net::metrics::Telemetry;
use nigh_net::tcp::{Loops, TcpConfig};
use nigh_shard::cores::Placement;
use nigh_shard::kv::KeysOptions;
use nigh_shard::node::NodeOptions;
use nigh_shard::start::{Node, Serve};
use serde_json::json;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What waits for the server, or for the machine, gives up after this.
const PATIENCE: Duration = Duration::from_secs(120);
/// Answers may hold a quarter. The clients of these tests live in the process of the server, and what they and the allocator hold beside the
/// answers, some 150 MB, counts as memory of the server: the limit leaves room for twice as much.
const MEMORY_BYTES: u64 = 512 << 20;
const KEY: &str = "sesame";
const CROWDED: &str = "too many response bytes in flight; try again";

struct Server {
    node: Option<Node>,
    http: SocketAddr,
    tcp: SocketAddr,
    /// Every node looks at the memory of the process, so one runs at a time. Given back last.
    _turn: MutexGuard<'static, ()>,
}

impl Server {
    fn start(loops: Loops, configure: impl Fn(&mut HttpConfig, &mut TcpConfig)) -> Server {
        static TURN: Mutex<()> = Mutex::new(());
        // A test that failed is over.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (http, tcp) = (bind("127.0.0.1:0", 2).unwrap(), bind("127.0.0.1:0", 2).unwrap());
        let addresses = (http[0].local_addr().unwrap(), tcp[0].local_addr().unwrap());
        let telemetry = Arc::new(Telemetry::new(2));
        let auth = Arc::new(SingleKey::new(KEY));
        let mut http_config = HttpConfig::new(auth.clone(), telemetry.clone());
        let mut tcp_config = TcpConfig { loops, ..TcpConfig::new(auth, telemetry) };
        configure(&mut http_config, &mut tcp_config);
        let listeners = Mutex::new((http, tcp));
        let serving: Serve = Arc::new(move |core| {
            let mut listeners = listeners.lock().unwrap();
            let (http, tcp) = (listeners.0.pop().unwrap(), listeners.1.pop().unwrap());
            let (http_config, tcp_config) = (Rc::new(http_config.clone()), Rc::new(tcp_config.clone()));
            let other = core.clone();
            Box::pin(async move {
                let serving = nigh_net::serve(other, http, http_config);
                let (http, tcp) =
                    futures_lite::future::zip(serving, nigh_net::tcp::serve(core, tcp, tcp_config)).await;
                http.unwrap();
                tcp.unwrap();
            })
        });
        let options = NodeOptions {
            memory_limit_bytes: MEMORY_BYTES,
            keys: KeysOptions::new(64 << 20),
            // As the program does it: what a test before this one has freed does not count for long.
            give_back_memory: nigh_shard::system::give_back_memory,
            ..options()
        };
        let node = Node::start(options, &Placement::unpinned(2), serving).unwrap();
        Server { node: Some(node), http: addresses.0, tcp: addresses.1, _turn: turn }
    }

    fn http(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(self.http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        BufReader::new(stream)
    }

    fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(self.tcp).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let mut stream = self.http();
        send(&mut stream, request(method, path, body));
        answer(&mut stream, true).unwrap()
    }

    /// Another client is answered.
    #[track_caller]
    fn expect_healthy(&self) {
        let health = self.ask("GET", "/v1/health", "");
        assert_eq!(health.status, 200, "{}", health.text());
    }

    /// A figure of the metrics page.
    fn figure(&self, name: &str) -> f64 {
        let page = self.ask("GET", "/metrics", "");
        let line = page.text().lines().find(|line| line.split(' ').next() == Some(name)).expect(name);
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    #[track_caller]
    fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            node.stop().unwrap();
        }
    }
}

fn request(method: &str, path: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn body(token: &str, operation: &str, args: &[u8]) -> Vec<u8> {
    let form = [&[2, token.len() as u8], token.as_bytes()].concat();
    [&form[..], &[operation.len() as u8], operation.as_bytes(), &(args.len() as u32).to_be_bytes(), args]
        .concat()
}

fn frame(token: &str, operation: &str, args: &[u8]) -> Vec<u8> {
    let body = body(token, operation, args);
    [&(body.len() as u32).to_be_bytes()[..], &body].concat()
}

fn put(key: &[u8; 1], value: &[u8]) -> Vec<u8> {
    [b"\0\x01", &key[..], &(value.len() as u32).to_be_bytes()[..], value, &[0; 8]].concat()
}

/// Status and payload.
fn response(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    let mut payload = vec![0; u32::from_be_bytes(head[5..].try_into().unwrap()) as usize];
    stream.read_exact(&mut payload).unwrap();
    (head[4], payload)
}

/// 120 clients that asked for much and read nothing held 3 GB, and the server did not answer.
#[test]
fn answers_that_nobody_takes_are_bounded_and_given_back() {
    const POINTS: usize = 1_000;
    const CONTENT_BYTES: usize = 40_000;
    let server = Server::start(Loops::Readiness, |_, _| {});
    let create = json!({"name": "docs", "config": {"dim": 2, "metric": "l2"}}).to_string();
    assert_eq!(server.ask("POST", "/v1/collections", &create).status, 201);
    let content = "c".repeat(CONTENT_BYTES);
    for first in (0..POINTS).step_by(100) {
        let points: Vec<_> = (first..first + 100)
            .map(|id| {
                json!({"id": id, "vector": [id as f32, 1.0], "content": content,
                "metadata": {"n": {"kind": "int", "int": id}}})
            })
            .collect();
        let batch = json!({ "points": points }).to_string();
        assert_eq!(server.ask("POST", "/v1/collections/docs/points/batch", &batch).status, 200);
    }
    let search = request(
        "POST",
        "/v1/collections/docs/points/search/docs",
        &json!({"query": [0.0, 0.0], "k": POINTS}).to_string(),
    );
    // 40 MB of payload are in an answer, and three of these find room among 134.
    let deaf: Vec<_> = (1..=3)
        .map(|held| {
            let mut stream = server.http();
            send(&mut stream, &search);
            let least = f64::from(held) * 40e6;
            server.wait_until("the answer is made", || server.figure("svc_answer_bytes") > least);
            stream
        })
        .collect();
    let mut other = server.http();
    for _ in 0..3 {
        send(&mut other, &search);
        let refused = answer(&mut other, true).unwrap();
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.text());
        assert!(refused.text().contains(CROWDED), "{}", refused.text());
        server.expect_healthy();
        let few = json!({"query": [0.0, 0.0], "k": 10}).to_string();
        assert_eq!(server.ask("POST", "/v1/collections/docs/points/search", &few).status, 200);
    }
    assert!(server.figure("svc_answer_bytes") < (MEMORY_BYTES / 4) as f64);
    drop(deaf);
    server.wait_until("its memory is given back", || server.figure("svc_answer_bytes") == 0.0);
    send(&mut other, &search);
    let found = answer(&mut other, true).unwrap();
    assert_eq!(found.status, 200);
    let found: serde_json::Value = serde_json::from_str(found.text()).unwrap();
    let documents = found["documents"].as_array().unwrap();
    assert_eq!(documents.len(), POINTS);
    assert!(documents.iter().all(|document| document["content"].as_str().unwrap().len() == CONTENT_BYTES));
    server.wait_until("what was taken is given back", || server.figure("svc_answer_bytes") == 0.0);
    // Pages end by their bytes, and nothing is lost between two.
    for (path, body) in [
        ("batch-get", json!({"ids": (0..POINTS).collect::<Vec<_>>()})),
        ("scroll", json!({})),
        ("scroll", json!({"order_by": {"key": "n"}})),
    ] {
        let all = server.ask("POST", &format!("/v1/collections/docs/points/{path}"), &body.to_string());
        let text = all.text();
        assert_eq!((all.status, text.matches(&content).count()), (200, POINTS), "{path} {body}: {text:.200}");
    }
}

fn deaf_clients(loops: Loops) {
    let server = Server::start(loops, |_, _| {});
    let mut client = server.tcp();
    let value = vec![7; 12 << 20];
    client.write_all(&frame(KEY, "put", &put(b"k", &value))).unwrap();
    let (status, text) = response(&mut client);
    assert_eq!(status, 0, "{}", String::from_utf8_lossy(&text));
    let get = frame(KEY, "get", b"\0\x01k");
    // Ten of these, 120 MiB, are as many as find room among 128.
    let deaf: Vec<TcpStream> = (0..10)
        .map(|held| {
            let mut stream = server.tcp();
            stream.write_all(&get).unwrap();
            let least = f64::from((held + 1) * (12 << 20));
            server.wait_until("the response is made", || server.figure("svc_answer_bytes") > least);
            stream
        })
        .collect();
    for operation in [("get", &b"\0\x01k"[..]), ("mget", b"\0\x01\0\x01k"), ("getset", &put(b"k", b"new"))] {
        client.write_all(&frame(KEY, operation.0, operation.1)).unwrap();
        let (status, payload) = response(&mut client);
        if operation.0 == "getset" {
            // There is room for short responses: it is done, and what it returns is not kept back.
            assert_eq!((status, payload.len()), (0, 5 + value.len()), "{}", operation.0);
        } else {
            assert_eq!((status, &payload[2..]), (3, CROWDED.as_bytes()), "{}", operation.0);
        }
    }
    client.write_all(&frame(KEY, "get", b"\0\x01k")).unwrap();
    assert_eq!(response(&mut client), (0, b"new".to_vec()));
    server.expect_healthy();
    drop(deaf);
    server.wait_until("their memory is given back", || server.figure("svc_answer_bytes") == 0.0);
    client.write_all(&frame(KEY, "put", &put(b"k", &value))).unwrap();
    let (status, text) = response(&mut client);
    assert_eq!(status, 0, "{}", String::from_utf8_lossy(&text));
    client.write_all(&get).unwrap();
    assert_eq!(response(&mut client), (0, value));
}

#[test]
fn responses_that_nobody_takes_are_bounded_by_readiness() {
    deaf_clients(Loops::Readiness);
}

#[test]
fn responses_that_nobody_takes_are_bounded_by_completion() {
    deaf_clients(Loops::Completion);
}

fn strangers(loops: Loops) {
    let server = Server::start(loops, |_, tcp| tcp.max_body_bytes = 1 << 20);
    let large = vec![0; 8 << 20];
    let docs = [b"\0\x04docs", &large[..]].concat();
    let inner = body("", "put", &put(b"k", &large));
    let envelope = [b"\x01\x01", &inner[2..]].concat();
    let mut streams = Vec::new();
    for (token, operation, args) in [
        ("", "put", put(b"k", &large)),
        ("other", "put", put(b"k", &large)),
        ("other", "vector_upsert", docs),
        ("other", "__wc__", envelope),
        ("other", "nothing", large.clone()),
    ] {
        let mut stream = server.tcp();
        let frame = frame(token, operation, &args);
        // All but the end: what can be told from the beginning is not waited for.
        let (most, rest) = frame.split_at(frame.len() - 10);
        stream.write_all(most).unwrap();
        assert_eq!(response(&mut stream), (4, vec![]), "{token:?} {operation}");
        streams.push((stream, rest.to_vec()));
    }
    assert_eq!(server.figure("svc_http_body_bytes"), 0.0, "strangers hold nothing that is counted");
    let mut client = server.tcp();
    client.write_all(&frame(KEY, "put", &put(b"k", &vec![1; 900_000]))).unwrap();
    assert_eq!(response(&mut client), (0, vec![]));
    // Whoever is allowed to is refused what nobody knows as early.
    let unknown = frame(KEY, "nothing", &large);
    client.write_all(&unknown[..1 << 20]).unwrap();
    assert_eq!(response(&mut client), (3, b"\0\x11op not registered".to_vec()));
    client.write_all(&unknown[1 << 20..]).unwrap();
    // The rest of a refused frame is skipped, and the connection goes on.
    for (mut stream, rest) in streams {
        stream.write_all(&[&rest[..], &frame(KEY, "__ping__", b"")].concat()).unwrap();
        assert_eq!(response(&mut stream), (0, vec![]));
    }
    client.write_all(&frame(KEY, "__ping__", b"")).unwrap();
    assert_eq!(response(&mut client), (0, vec![]));
}

/// Frames without a valid token were received whole, 16 MiB each, before anybody looked at the token.
#[test]
fn strangers_hold_nothing_by_readiness() {
    strangers(Loops::Readiness);
}

#[test]
fn strangers_hold_nothing_by_completion() {
    strangers(Loops::Completion);
}

/// Each connection may send 1 MiB of headers before anybody knows who it is: all of them together have a bound.
#[test]
fn heads_of_requests_are_bounded_together() {
    let server = Server::start(Loops::Readiness, |http, _| http.max_head_bytes = 1 << 20);
    let head = |bytes: usize| format!("GET /v1/health HTTP/1.1\r\nhost: x\r\nbig: {}", "y".repeat(bytes));
    let mut first = server.http();
    send(&mut first, head(410_000));
    server.wait_until("the head has come", || server.figure("svc_http_head_bytes") >= 800_000.0);
    let mut second = server.http();
    send(&mut second, head(300_000));
    let refused = answer(&mut second, true).unwrap();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.text());
    assert!(refused.text().contains("request headers"), "{}", refused.text());
    // Small heads are not counted.
    server.expect_healthy();
    send(&mut first, "\r\n\r\n");
    assert_eq!(answer(&mut first, true).unwrap().status, 200);
    server.wait_until("it is given back", || server.figure("svc_http_head_bytes") == 0.0);
    let mut third = server.http();
    send(&mut third, head(400_000) + "\r\n\r\n");
    assert_eq!(answer(&mut third, true).unwrap().status, 200);
}
