//! gRPC of whole processes: what a stop answers, and what open calls cost. The frames of HTTP/2 are made by hand, so that a client may do
//! what no library does; every method is called over real sockets in `net/tests/grpc`.

use nigh_tests::Server;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// What waits for the server, or for the machine, gives up after this.
const PATIENCE: Duration = Duration::from_secs(120);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a call, none of which is kept in a table.
fn head(method: &str) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let literal = |name: &str, value: &str| [&[0][..], &text(name), &text(value)].concat();
    [
        literal(":method", "POST"),
        literal(":scheme", "http"),
        literal(":authority", "test"),
        literal(":path", &format!("/svc.v1.VectorService/{method}")),
        literal("content-type", "application/grpc"),
    ]
    .concat()
}

fn call(stream: u32, method: &str, message: &[u8]) -> Vec<u8> {
    let framed = [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat();
    [frame(HEADERS, END_HEADERS, stream, &head(method)), frame(DATA, END_STREAM, stream, &framed)].concat()
}

/// An `UpsertRequest` for a point of one component.
fn upsert(id: u8) -> Vec<u8> {
    [&b"\x0a\x04docs\x10"[..], &[id], b"\x1a\x04", &f32::from(id).to_le_bytes()].concat()
}

fn connect(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.grpc_authority()).expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, b"")].concat()).expect("sent");
    stream
}

/// The next frame: kind, flags, stream, payload; none at the end.
fn next(stream: &mut TcpStream) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let [a, b, c, kind, flags, s @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut payload).ok()?;
    Some((kind, flags, u32::from_be_bytes(s), payload))
}

#[test]
fn writes_under_way_are_answered_at_a_stop_and_are_there_afterwards() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let mut server = Server::start(Some(data.path()), &["-cores", "2", "-grpc", "127.0.0.1:0"]);
    let config = json!({"name": "docs", "config": {"dim": 1, "metric": "l2"}});
    server.api().ok("POST", "/v1/collections", config);
    let mut stream = connect(&server);
    let _idle: Vec<TcpStream> = (0..10).map(|_| connect(&server)).collect();
    let calls: Vec<u8> =
        (1..=100).flat_map(|id| call(2 * u32::from(id) - 1, "Upsert", &upsert(id))).collect();
    stream.write_all(&calls).expect("sent");
    let mut answered = Vec::new();
    let mut told = false;
    let started = Instant::now();
    while let Some((kind, flags, id, payload)) = next(&mut stream) {
        match kind {
            // The server has the time of one exchange to say that it goes.
            SETTINGS if flags == 0 => stream.write_all(&frame(SETTINGS, 1, 0, b"")).expect("sent"),
            6 if flags == 0 => stream.write_all(&frame(6, 1, 0, &payload)).expect("sent"),
            HEADERS if flags & END_STREAM != 0 => answered.push(id.div_ceil(2)),
            RESET => panic!("call {id} was reset: {payload:?}"),
            _ => {}
        }
        if !told && answered.len() == 1 {
            told = true;
            server.signal(libc::SIGTERM);
        }
    }
    let status = server.wait();
    let log = server.log();
    assert!(status.success() && !log.contains("cutting connections") && log.contains("proto=grpc"), "{log}");
    assert!(started.elapsed() < Duration::from_secs(60), "{log}");
    answered.sort_unstable();
    assert_eq!(answered, (1..=100).collect::<Vec<u32>>(), "they had all arrived");
    let server = Server::start(Some(data.path()), &[]);
    let ids: Vec<u32> = (1..=100).collect();
    let found = server.api().ok("POST", "/v1/collections/docs/points/batch-get", json!({"ids": ids}));
    assert_eq!(found["missing"], json!([]));
}

/// Calls that are open and send nothing cost as much as their headers, and as many as a connection may have at a time.
#[test]
fn open_calls_cost_little() {
    let server = Server::start(None, &["-cores", "2", "-grpc", "127.0.0.1:0"]);
    let resident = || {
        let path = format!("/proc/{}/status", server.pid());
        let status = std::fs::read_to_string(path).expect("a running process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line with VmRSS");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    };
    let before = resident();
    let open: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = connect(&server);
            let calls = (0..128_u32).flat_map(|n| frame(HEADERS, END_HEADERS, 2 * n + 1, &head("Scroll")));
            stream.write_all(&calls.collect::<Vec<u8>>()).expect("sent");
            stream
        })
        .collect();
    let mut last = connect(&server);
    last.write_all(&call(1, "Health", b"")).expect("sent");
    while !matches!(next(&mut last), Some((HEADERS, flags, 1, _)) if flags & END_STREAM != 0) {}
    std::thread::sleep(Duration::from_millis(500));
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "6,400 open calls take {grown} bytes");
    drop(open);
    assert!(server.stop().0.success());
}
