//! An attack on a server at its memory limit: clients hold every kind of request and answer that makes no progress, all at the same time;
//! each kind aims at three times the memory of the machine, within a limit of connections.

use super::{BATCH, DIM, MIB, Machine, memory};
use nigh_tests::{Api, Args, Server, SplitMix, Wire, frame_with_token, long};
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const KEY: &str = "a-key-of-the-test";
/// Most connections of one kind.
const CONNECTIONS_MAX: u64 = 200;
const BODY_BYTES: u64 = 32 << 20;
const FRAME_BYTES: u64 = 16 << 20;
const HEAD_BYTES: usize = 900_000;
/// How long after the end of the attack the memory may take to be given back.
const GIVEN_BACK: Duration = Duration::from_secs(60);

/// Latencies of a client, sorted when they are looked at.
#[derive(Default)]
struct Latencies(Vec<Duration>);

impl Latencies {
    fn at(&mut self, share: f64) -> Duration {
        self.0.sort_unstable();
        self.0[((self.0.len() - 1) as f64 * share) as usize]
    }
}

/// The results of a client with a key that searches and reads keys one after the other for a while. Requests that were refused for want of
/// memory are counted apart; all others were answered.
struct Served {
    searches: Latencies,
    gets: Latencies,
    refused: u64,
    /// The error of the last refused request.
    why: String,
}

/// A client with a key. It connects before the attack and keeps its connections: the connections of the attack need more memory than the
/// server has for connections, so the server refuses new ones while it lasts.
struct Client {
    api: Api,
    wire: Wire,
    random: SplitMix,
}

impl Client {
    fn connect(server: &Server) -> Client {
        Client {
            api: Api::connect_with_key(server.authority(), KEY).expect("the server accepts connections"),
            wire: server.tcp(),
            random: SplitMix(11),
        }
    }
}

fn serve(client: &mut Client, has_points: bool, lasting: Duration) -> Served {
    let Client { api, wire, random } = client;
    let mut served =
        Served { searches: Latencies::default(), gets: Latencies::default(), refused: 0, why: String::new() };
    let began = Instant::now();
    while began.elapsed() < lasting {
        let asked = Instant::now();
        if has_points {
            let body = json!({"query": random.vector(DIM), "k": 10});
            let reply =
                api.send("POST", "/v1/collections/points/points/search", &body).expect("the server lives");
            match reply.status {
                200 => served.searches.0.push(asked.elapsed()),
                503 | 507 => {
                    served.refused += 1;
                    served.why = reply.body.to_string();
                }
                _ => panic!("{} {}", reply.status, reply.body),
            }
        } else {
            api.ok("GET", "/v1/health", Value::Null);
            served.searches.0.push(asked.elapsed());
        }
        let asked = Instant::now();
        // There are fewer of these keys than the store can hold with the least memory, so most of them are there.
        let get = Args::new().s16(random.below(64).to_be_bytes());
        wire.send(frame_with_token(KEY, "get", get.as_ref()));
        let response = wire.response();
        match response.status {
            0 | 1 => served.gets.0.push(asked.elapsed()),
            _ => {
                let why = response.error();
                assert!(["full", "memory", "in flight"].iter().any(|word| why.contains(word)), "{why}");
                served.refused += 1;
                served.why = why;
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    served
}

/// Holds `count` connections made by `connect` until `done`. It replaces those that the server ends at ten a second: an attack that takes all
/// CPU time would say nothing about memory.
fn hang(count: u64, done: &AtomicBool, opened: &AtomicU64, connect: impl Fn() -> Option<TcpStream>) {
    let mut hanging: Vec<TcpStream> = Vec::new();
    while !done.load(Relaxed) {
        hanging.retain_mut(|stream| {
            // This finds out whether the stream has ended and leaves in place what else has come.
            stream.set_nonblocking(true).expect("a socket option");
            match stream.peek(&mut [0]) {
                Ok(read) => read > 0,
                Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            }
        });
        let is_first = opened.load(Relaxed) < count;
        if (hanging.len() as u64) < count {
            hanging.extend(connect());
            opened.fetch_add(1, Relaxed);
        }
        std::thread::sleep(Duration::from_millis(if is_first { 2 } else { 100 }));
    }
}

fn send_some(authority: &str, bytes: &[&[u8]]) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(authority).ok()?;
    stream.set_write_timeout(Some(Duration::from_secs(1))).expect("a socket option");
    for bytes in bytes {
        // The server may stop reading, or refuse before the end; what it has read by then hangs all the same.
        match stream.write_all(bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(_) => return None,
        }
    }
    Some(stream)
}

/// Attacks a server on `data`, which is full, and compares what a client of it sees with what it saw before.
pub fn check(machine: &Machine, data: &Path, name: &str, points: Option<u64>) {
    let server = machine.start(data, &["-api-key", KEY]);
    let lasting = Duration::from_secs(if long() { 60 } else { 4 });
    let has_points = points.is_some();
    // The server touches its memory before the first measurement.
    let mut client = Client::connect(&server);
    drop(serve(&mut client, has_points, Duration::from_secs(1)));
    let before = memory(&server, "RssAnon");
    let mut idle = serve(&mut client, has_points, lasting / 2);
    let (done, opened) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 4]);
    let count = |each: u64| (3 * machine.bytes / each).clamp(4, CONNECTIONS_MAX);
    let (mut most, mut attacked) = (0, None);
    std::thread::scope(|scope| {
        let (server, done) = (&server, &done);
        let http = |head: String| format!("{head}host: x\r\nauthorization: Bearer {KEY}\r\n");
        if let Some(points) = points {
            let k = points.min(65_536);
            let body = json!({"query": SplitMix(3).vector(DIM), "k": k}).to_string();
            let head = http("POST /v1/collections/points/points/search/docs HTTP/1.1\r\n".into());
            let ask = format!(
                "{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let opened = &opened[0];
            scope.spawn(move || {
                hang(count(k * 100), done, opened, || send_some(server.authority(), &[ask.as_bytes()]));
            });
        }
        let half_body = http("POST /v1/collections/points/points/batch HTTP/1.1\r\n".into())
            + &format!("content-type: application/octet-stream\r\ncontent-length: {BODY_BYTES}\r\n\r\n");
        let mut beginning = b"RVB1".to_vec();
        [3, BATCH as u32, DIM as u32].iter().for_each(|word| beginning.extend(word.to_be_bytes()));
        beginning.resize(BODY_BYTES as usize / 2, 0);
        let [_, bodies, frames, heads] = &opened;
        scope.spawn(move || {
            hang(count(BODY_BYTES / 2), done, bodies, || {
                send_some(server.authority(), &[half_body.as_bytes(), &beginning])
            });
        });
        let put = Args::new().s16("k").s32(vec![7; FRAME_BYTES as usize - 1000]).u64(0);
        let frame = frame_with_token("wrong", "put", put.as_ref());
        scope.spawn(move || {
            hang(count(FRAME_BYTES), done, frames, || {
                send_some(server.tcp_authority(), &[&frame[..frame.len() - 10]])
            });
        });
        let head = format!("GET /v1/health HTTP/1.1\r\nhost: x\r\nbig: {}", "y".repeat(HEAD_BYTES));
        scope.spawn(move || {
            hang(count(HEAD_BYTES as u64), done, heads, || send_some(server.authority(), &[head.as_bytes()]));
        });
        let client = &mut client;
        let serving = scope.spawn(move || {
            std::thread::sleep(lasting / 4);
            serve(client, has_points, lasting)
        });
        while !serving.is_finished() {
            most = most.max(memory(server, "RssAnon"));
            std::thread::sleep(Duration::from_millis(50));
        }
        done.store(true, Relaxed);
        attacked = Some(serving.join().expect("the client is served"));
    });
    let mut attacked = attacked.expect("the client has ended");
    let ended = Instant::now();
    let mut after = memory(&server, "RssAnon");
    let given_back = |after: u64| after <= before + (machine.bytes / 16).max(8 * MIB);
    while !given_back(after) && ended.elapsed() < GIVEN_BACK {
        drop(serve(&mut client, has_points, Duration::from_millis(200)));
        after = memory(&server, "RssAnon");
    }
    let opened = opened.each_ref().map(|count| count.load(Relaxed));
    println!(
        "{name}, attacked: {} MiB before, {} MiB at most, {} MiB {:.1?} after the end; {opened:?} connections with answers, bodies, frames and \
         heads; searches' p99 {:.2?}, {:.2?} before; gets' p99 {:.2?}, {:.2?} before; {} and {} served, {} refused {}",
        before / MIB,
        most / MIB,
        after / MIB,
        ended.elapsed(),
        attacked.searches.at(0.99),
        idle.searches.at(0.99),
        attacked.gets.at(0.99),
        idle.gets.at(0.99),
        attacked.searches.0.len(),
        attacked.gets.0.len(),
        attacked.refused,
        attacked.why,
    );
    assert!(most < machine.bytes, "{name}: {} MiB of {}", most / MIB, machine.bytes / MIB);
    assert!(given_back(after), "{name}: {} MiB are not given back", after.saturating_sub(before) / MIB);
    let (status, log) = server.stop();
    assert!(status.success(), "{name}: {status}\n{log}");
}
