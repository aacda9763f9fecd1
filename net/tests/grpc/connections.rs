//! Connections: many calls at once, deadlines, clients that are slow, greedy or malicious, and the end of the server.
use super::*;
use crate::common::grpc::{encode, framed, messages_of, taken, whole};
use bytes::Bytes;
use futures_lite::future::block_on;
use nigh_net::grpc::counters::Connections;
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    let entry = |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(4, 0, 0, &entries.iter().flat_map(entry).collect::<Vec<_>>())
}

/// Headers of a call, none of which is kept in a table.
fn headers(path: &str) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let literal = |name: &str, value: &str| [&[0][..], &text(name), &text(value)].concat();
    [
        literal(":method", "POST"),
        literal(":scheme", "http"),
        literal(":authority", "test"),
        literal(":path", path),
        literal("content-type", "application/grpc"),
    ]
    .concat()
}

const HEADERS: u8 = 1;
const END_HEADERS: u8 = 4;
const END_STREAM: u8 = 1;
const HEALTH: &str = "/svc.v1.VectorService/Health";

impl Server {
    fn raw(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.grpc).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(&[PREFACE, &settings(&[])].concat()).unwrap();
        stream
    }

    fn connections(&self, what: Connections) -> u64 {
        self.telemetry.grpc.connections(what)
    }

    #[track_caller]
    fn wait_until(&self, what: Connections, is: impl Fn(u64) -> bool) {
        let start = Instant::now();
        while !is(self.connections(what)) {
            assert!(start.elapsed() < PATIENCE, "{what:?} stays at {}", self.connections(what));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The next frame: kind, flags, stream, payload; none at the end.
fn next_frame(stream: &mut TcpStream) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let [a, b, c, kind, flags, s @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut payload).ok()?;
    Some((kind, flags, u32::from_be_bytes(s), payload))
}

/// Whether the server has ended a connection, reading whatever it had still to say.
fn is_cut(stream: &mut TcpStream) -> bool {
    let mut rest = vec![0; 1 << 16];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}

fn fast(config: &mut GrpcConfig) {
    config.second = Duration::from_millis(10);
}

fn large(server: &Server, bytes: usize) {
    let client = server.client();
    client.call("CreateCollection", json!({"name": "docs", "config": {"dim": 1, "metric": "l2"}})).unwrap();
    let point = json!({"collection": "docs", "id": 1, "vector": [0.0], "content": "a".repeat(bytes)});
    client.call("Upsert", point).unwrap();
}

fn get_large() -> Vec<u8> {
    framed(&encode(&messages_of("Get").0, &json!({"collection": "docs", "id": 1})))
}

const GET: &str = "/svc.v1.VectorService/Get";

#[test]
fn many_calls_of_one_connection_at_once() {
    let client = SHARED.client();
    let calls: Vec<_> = (0..1000)
        .map(|_| {
            let (mut stream, answer) = client.open(HEALTH, &[]).unwrap();
            let sent = stream.send_data(framed(&[]).into(), true);
            // One that is refused says why in its answer.
            match sent {
                Ok(()) => answer,
                Err(error) => panic!("{error}: {:?}", block_on(whole(answer))),
            }
        })
        .collect();
    for answer in calls {
        assert_eq!(block_on(whole(answer)).unwrap().code().0, OK);
    }
}

/// Ten thousand streams before any answer is read: those that are too many are refused, so that they may be repeated, and the connection
/// stays useful.
#[test]
fn ten_thousand_streams_at_once() {
    let server = Server::start(Arc::new(Open), |_| {});
    let mut stream = server.raw();
    let mut sending = stream.try_clone().unwrap();
    const STREAMS: u32 = 10_000;
    let sender = std::thread::spawn(move || {
        let head = headers("/svc.v1.VectorService/Scroll");
        for index in 0..STREAMS {
            // They stay open: no message comes.
            if sending.write_all(&frame(HEADERS, END_HEADERS, 2 * index + 1, &head)).is_err() {
                return;
            }
        }
    });
    let (mut refused, mut gone) = (0, false);
    let start = Instant::now();
    while refused < STREAMS - 128 && !gone {
        assert!(start.elapsed() < PATIENCE, "{refused} refused");
        match next_frame(&mut stream) {
            Some((3, _, _, payload)) => {
                assert_eq!(payload, [0, 0, 0, 7], "REFUSED_STREAM");
                refused += 1;
            }
            Some((7, ..)) | None => gone = true,
            Some(_) => {}
        }
    }
    sender.join().unwrap();
    // Either way nothing is kept of them; another client is served.
    assert!(gone || refused == STREAMS - 128, "{refused}");
    assert_eq!(server.client().call("Health", json!({})), Ok(json!({"status": "ok"})));
}

/// How a call has ended is told in headers, which no window bounds: a client that takes none of them is not heard either.
#[test]
fn ends_that_nobody_reads() {
    let server = Server::start(Arc::new(Open), |_| {});
    let mut deaf = server.raw();
    deaf.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let head = headers(&format!("/{}", "%".repeat(100)));
    // Several times what the kernel holds for both.
    const CALLS: u32 = 400_000;
    let mut sent = 0;
    while sent < CALLS {
        let calls = (sent..sent + 100)
            .flat_map(|index| frame(HEADERS, END_HEADERS | END_STREAM, 2 * index + 1, &head))
            .collect::<Vec<u8>>();
        if deaf.write_all(&calls).is_err() {
            break;
        }
        sent += 100;
    }
    assert!(sent < CALLS, "the answers to all of them wait in memory");
    assert_eq!(server.client().call("Health", json!({})), Ok(json!({"status": "ok"})));
}

/// Streams that are begun and reset at once, without end, are the connection's end.
#[test]
fn rapid_resets_and_floods_end_their_connection() {
    let server = Server::start(Arc::new(Open), |_| {});
    let ping = frame(6, 0, 0, &[0; 8]).repeat(1000);
    let more_settings = settings(&[(3, 100)]).repeat(1000);
    let window = frame(8, 0, 0, &[0, 0, 0, 1]).repeat(1000);
    let resets: Vec<u8> = (0..1000_u32)
        .flat_map(|index| {
            let stream = 2 * index + 1;
            [frame(HEADERS, END_HEADERS, stream, &headers(HEALTH)), frame(3, 0, stream, &8_u32.to_be_bytes())]
                .concat()
        })
        .collect();
    for (name, flood) in
        [("pings", ping), ("settings", more_settings), ("windows", window), ("resets", resets)]
    {
        let mut stream = server.raw();
        let mut sending = stream.try_clone().unwrap();
        let sender = std::thread::spawn(move || {
            // Streams are not numbered anew: the second round of resets is an error in itself. What comes behind it is read for some seconds.
            let start = Instant::now();
            while start.elapsed() < PATIENCE {
                if sending.write_all(&flood).is_err() {
                    return true;
                }
            }
            false
        });
        let start = Instant::now();
        let mut told = None;
        while let Some((kind, _, _, payload)) = next_frame(&mut stream) {
            if kind == 7 {
                told = Some(payload[7]);
            }
            assert!(start.elapsed() < PATIENCE, "{name}");
        }
        drop(stream);
        assert!(sender.join().unwrap(), "{name} went on for ever");
        // ENHANCE_YOUR_CALM, or that a stream is used twice. The reset that follows a cut may be faster.
        assert!(matches!(told, None | Some(11 | 1 | 5)), "{name}: {told:?}");
        assert_eq!(server.client().call("Health", json!({})), Ok(json!({"status": "ok"})), "{name}");
    }
}

#[test]
fn deadlines() {
    let client = SHARED.client();
    // The message does not come.
    let (stream, answer) = client.open("/svc.v1.VectorService/Scroll", &[("grpc-timeout", "50m")]).unwrap();
    let told = block_on(whole(answer)).unwrap().code();
    assert_eq!(told, (DEADLINE_EXCEEDED, "deadline exceeded".to_owned()));
    drop(stream);
    client.call("CreateCollection", json!({"name": "g_dead", "config": {"dim": 2, "metric": "l2"}})).unwrap();
    // What has passed already is not begun; a write that has begun is carried out.
    let search = json!({"collection": "g_dead", "query": [0.0, 0.0], "k": 1});
    assert_eq!(client.answer("Search", &search, &[("grpc-timeout", "1M")]).code().0, OK);
    let points: Vec<Value> =
        (0..20_000_u64).map(|id| json!({"id": id, "vector": [id as f32, 1.0]})).collect();
    for chunk in points.chunks(5000) {
        client.call("UpsertBatch", json!({"collection": "g_dead", "points": chunk})).unwrap();
    }
    let long = json!({"collection": "g_dead"});
    let (code, text) = client.answer("Scroll", &long, &[("grpc-timeout", "1m")]).code();
    assert!((code, text.as_str()) == (DEADLINE_EXCEEDED, "deadline exceeded") || code == OK, "{code} {text}");
    assert_eq!(client.answer("Scroll", &long, &[("grpc-timeout", "99999999H")]).code().0, OK);
}

#[test]
fn messages_that_do_not_come_and_heads_that_do_not_end() {
    let server = Server::start(Arc::new(Open), fast);
    let client = server.client();
    let (mut stream, answer) = client.open(HEALTH, &[]).unwrap();
    stream.send_data(Bytes::from_static(&[0, 0]), false).unwrap();
    let told = block_on(whole(answer)).unwrap().code();
    assert_eq!(told, (DEADLINE_EXCEEDED, "the message did not arrive in time".to_owned()));
    // Only its call ended.
    assert_eq!(client.call("Health", json!({})), Ok(json!({"status": "ok"})));
    // A connection that says nothing, a preface that is cut, a head that is cut, headers that go on in frames that do not come.
    let head = frame(HEADERS, 0, 1, &headers(HEALTH));
    let parts: [&[u8]; 4] = [
        b"",
        &PREFACE[..10],
        &[PREFACE, &settings(&[]), &head[..20]].concat(),
        &[PREFACE, &settings(&[]), &head].concat(),
    ];
    let mut silent: Vec<TcpStream> = parts
        .iter()
        .map(|part| {
            let mut stream = TcpStream::connect(server.grpc).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(part).unwrap();
            stream
        })
        .collect();
    server.wait_until(Connections::TimedOut, |cut| cut == 4);
    assert!(silent.iter_mut().all(is_cut));
    assert_eq!(client.call("Health", json!({})), Ok(json!({"status": "ok"})));
}

#[test]
fn answers_that_nobody_takes() {
    let server = Server::start(Arc::new(Open), fast);
    large(&server, 8 << 20);
    let held = server.telemetry.grpc.connections(Connections::TimedOut);
    // One that reads nothing of its socket, with windows as large as may be.
    let mut deaf = server.raw();
    deaf.write_all(&settings(&[(4, i32::MAX as u32)])).unwrap();
    deaf.write_all(&frame(8, 0, 0, &(i32::MAX as u32 - 65_535).to_be_bytes())).unwrap();
    for index in 0..20 {
        deaf.write_all(&frame(HEADERS, END_HEADERS, 2 * index + 1, &headers(GET))).unwrap();
        deaf.write_all(&frame(0, END_STREAM, 2 * index + 1, &get_large())).unwrap();
    }
    server.wait_until(Connections::TimedOut, |cut| cut > held);
    assert!(is_cut(&mut deaf));
    // One that reads, and opens no window: its call ends, and the connection goes on.
    let mut mean = server.raw();
    mean.write_all(&frame(HEADERS, END_HEADERS, 1, &headers(GET))).unwrap();
    mean.write_all(&frame(0, END_STREAM, 1, &get_large())).unwrap();
    let start = Instant::now();
    loop {
        let (kind, _, stream, payload) = next_frame(&mut mean).expect("the connection stays");
        if (kind, stream) == (3, 1) {
            assert_eq!(payload, 8_u32.to_be_bytes(), "CANCEL");
            break;
        }
        assert!(start.elapsed() < PATIENCE);
    }
    mean.write_all(&frame(HEADERS, END_HEADERS, 3, &headers(HEALTH))).unwrap();
    mean.write_all(&frame(0, END_STREAM, 3, &framed(&[]))).unwrap();
    mean.write_all(&frame(8, 0, 0, &100_000_u32.to_be_bytes())).unwrap();
    while !matches!(next_frame(&mut mean).expect("an answer"), (HEADERS, flags, 3, _) if flags & END_STREAM != 0)
    {
    }
}

/// Answers that lie with the parser as a whole have ended for their calls, and are taken back from a client that opens no window.
#[test]
fn ends_of_answers_that_nobody_takes() {
    let server = Server::start(Arc::new(Open), fast);
    large(&server, 40_000);
    let mut rest = server.rest();
    let mut held = move || {
        let page = rest.request("GET", "/metrics", "", b"");
        let line =
            page.text().lines().find(|line| line.contains("memory_held_bytes{use=\"answers\"}")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(held(), 0);
    let mut mean = server.raw();
    mean.write_all(&settings(&[(4, 0)])).unwrap();
    const CALLS: u32 = 100;
    for index in 0..CALLS {
        mean.write_all(&frame(HEADERS, END_HEADERS, 2 * index + 1, &headers(GET))).unwrap();
        mean.write_all(&frame(0, END_STREAM, 2 * index + 1, &get_large())).unwrap();
    }
    let (start, mut reset) = (Instant::now(), 0);
    while reset < CALLS {
        if let (3, _, _, payload) = next_frame(&mut mean).expect("the connection stays") {
            assert_eq!(payload, 8_u32.to_be_bytes(), "CANCEL");
            reset += 1;
        }
        assert!(start.elapsed() < PATIENCE, "{reset} were reset");
    }
    while held() > 0 {
        assert!(start.elapsed() < PATIENCE, "{} bytes of answers are held", held());
    }
    // One that takes its answer late, but in time, has all of it.
    mean.write_all(&frame(HEADERS, END_HEADERS, 1001, &headers(GET))).unwrap();
    mean.write_all(&frame(0, END_STREAM, 1001, &get_large())).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    mean.write_all(&frame(8, 0, 1001, &100_000_u32.to_be_bytes())).unwrap();
    let mut taken = 0;
    loop {
        match next_frame(&mut mean).expect("an answer") {
            (0, _, 1001, payload) => taken += payload.len(),
            (HEADERS, flags, 1001, _) if flags & END_STREAM != 0 => break,
            _ => {}
        }
    }
    assert!(taken > 40_000, "{taken}");
}

/// Whoever asks needs no token, so that one answer at a time is made for each call, and none for a client that takes nothing.
#[test]
fn questions_of_whoever_takes_no_answer() {
    let server = Server::start(Arc::new(Open), fast);
    let mut mean = server.raw();
    mean.write_all(&settings(&[(4, 0)])).unwrap();
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    mean.write_all(&frame(HEADERS, END_HEADERS, 1, &headers(path))).unwrap();
    // For the names of the services. All answers together would find room with the parser.
    let question = framed(&[0x3a, 0]);
    (0..50).for_each(|_| mean.write_all(&frame(0, 0, 1, &question)).unwrap());
    let start = Instant::now();
    loop {
        match next_frame(&mut mean).expect("the connection stays") {
            (3, _, 1, payload) => break assert_eq!(payload, 8_u32.to_be_bytes(), "CANCEL"),
            (kind, _, 1, _) => assert_eq!(kind, HEADERS),
            _ => {}
        }
        assert!(start.elapsed() < PATIENCE);
    }
}

/// Requests are refused when the process holds enough of them, and taken when it no longer does.
#[test]
fn messages_are_refused_when_the_process_holds_enough() {
    let server = Server::start(Arc::new(Open), |config| config.max_body_bytes = 1 << 20);
    let client = server.client();
    let text = json!({"collection": "docs", "text": "a".repeat(2 << 20), "k": 1});
    client.refused("TextSearch", text, UNAVAILABLE, "too many request bytes in flight; try again");
    let text = json!({"collection": "docs", "text": "a".repeat(300_000), "k": 1});
    client.refused("TextSearch", text, INVALID_ARGUMENT, "the text of a query may have at most");
}

#[test]
fn no_more_connections_than_may_be() {
    let server = Server::start(Arc::new(Open), |config| config.max_connections_per_core = 2);
    // Two cores: four connections or fewer, as the kernel spreads them.
    let mut open = Vec::new();
    let start = Instant::now();
    while server.connections(Connections::Refused) == 0 {
        open.push(server.raw());
        std::thread::sleep(Duration::from_millis(20));
        assert!(open.len() <= 6 && start.elapsed() < PATIENCE);
    }
    drop(open);
    server.wait_until(Connections::Open, |open| open == 0);
    assert_eq!(server.client().call("Health", json!({})), Ok(json!({"status": "ok"})));
}

/// Calls under way are answered when the server stops, new ones are not begun, and nobody keeps it from stopping.
#[test]
fn a_stop_answers_what_is_under_way() {
    let server = Server::start(Arc::new(Open), |_| {});
    large(&server, 1 << 20);
    let client = server.client();
    let idle = server.client();
    assert_eq!(idle.call("Health", json!({})), Ok(json!({"status": "ok"})));
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let (mut stream, answer) = client.open(GET, &[]).unwrap();
            stream.send_data(get_large().into(), true).unwrap();
            answer
        })
        .collect();
    // They have arrived and are being answered.
    let calls: Vec<_> = calls.into_iter().map(|answer| block_on(answer).unwrap()).collect();
    // One that would wait for a message for ever, and one that takes nothing.
    let (_waiting, _answer) = client.open(HEALTH, &[]).unwrap();
    let mut deaf = server.raw();
    deaf.write_all(&frame(HEADERS, END_HEADERS, 1, &headers(GET))).unwrap();
    deaf.write_all(&frame(0, END_STREAM, 1, &get_large())).unwrap();
    let start = Instant::now();
    let stopping = std::thread::spawn(move || server.stop());
    // All at once: they share the window of the connection, so that one that is not read keeps the others from coming.
    let taking: Vec<_> =
        calls.into_iter().map(|answer| std::thread::spawn(move || block_on(taken(answer)))).collect();
    for answer in taking {
        let answer = answer.join().unwrap().unwrap();
        assert_eq!(answer.code().0, OK);
        assert!(answer.body.len() > 1 << 20);
    }
    stopping.join().unwrap();
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert!(idle.open(HEALTH, &[]).is_err() || block_on(whole(idle.open(HEALTH, &[]).unwrap().1)).is_err());
}
