//! Clients that ask for much and take nothing of it, and strangers with frames that do not end: what they hold is bounded for all of
//! them together, others are served meanwhile, and the memory is given back when they are gone.

use super::{DIM, PATIENCE, ask, connect, gauge, resident_bytes, server, vector, wait_until};
use nigh_tests::{Args, Server, frame_with_token, long};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// What the allocator and the kernel may keep beside what is counted, and searches under way hold before it is.
const SLACK_BYTES: u64 = 256 << 20;

/// Asks for health again and again for a while; the longest wait.
fn longest_wait(server: &Server, lasting: Duration) -> Duration {
    let (mut stream, began, mut longest) = (connect(server), Instant::now(), Duration::ZERO);
    while began.elapsed() < lasting {
        let asked = Instant::now();
        ask(&mut stream);
        longest = longest.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
    longest
}

#[test]
fn answers_that_nobody_takes_are_bounded_in_all() {
    // The long form is what was seen: 120 answers of 64 MB.
    let (clients, points) = if long() { (120, 65_000) } else { (16, 8_000) };
    let server = server(points, 1_000);
    let before = resident_bytes(&server);
    let body = json!({"query": vector(1), "k": points}).to_string();
    let search = format!(
        "POST /v1/collections/docs/points/search/docs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let deaf: Vec<TcpStream> = (0..clients)
        .map(|_| {
            let mut stream = connect(&server);
            stream.write_all(search.as_bytes()).expect("sent");
            stream
        })
        .collect();
    let (mut peak, mut held, mut longest) = (0, 0, Duration::ZERO);
    for _ in 0..if long() { 60 } else { 10 } {
        longest = longest.max(longest_wait(&server, Duration::from_millis(500)));
        peak = peak.max(resident_bytes(&server));
        held = held.max(gauge(&server, "svc_answer_bytes"));
    }
    println!(
        "{clients} unread answers of {} MB, {DIM} dimensions: {} MiB before, at most {} MiB with them, of which answers {} MiB; \
         longest wait for health {longest:?}",
        points / 1000,
        before >> 20,
        peak >> 20,
        held >> 20
    );
    let most = (1 << 30).min(gauge(&server, "svc_memory_limit_bytes") / 4);
    assert!(held > 0 && held <= most, "{held} of {most}");
    assert!(peak <= before + most + SLACK_BYTES, "{} MiB", peak >> 20);
    drop(deaf);
    wait_until("answers are kept for nobody", || gauge(&server, "svc_answer_bytes") == 0);
    // The allocator gives memory back as it is used.
    wait_until("memory is not given back", || {
        longest_wait(&server, Duration::from_millis(200));
        resident_bytes(&server) <= before + SLACK_BYTES
    });
    println!("{} MiB when they are gone", resident_bytes(&server) >> 20);
}

#[test]
fn strangers_do_not_take_what_clients_need() {
    const KEY: &str = "s3cret-key";
    let strangers = if long() { 135 } else { 20 };
    let mut flags = vec!["-cores", "2", "-tcp", "127.0.0.1:0", "-api-key", KEY];
    for loops in ["-epoll=true", "-epoll=false"] {
        flags.push(loops);
        let server = Server::start(None, &flags);
        flags.pop();
        let before = resident_bytes(&server);
        let value = vec![7; (16 << 20) - 1_000];
        let put = Args::new().s16("k").s32(&value).u64(0);
        let frame = frame_with_token("wrong", "put", put.as_ref());
        let mut hanging = Vec::new();
        for _ in 0..strangers {
            let mut stream = TcpStream::connect(server.tcp_authority()).expect("the server accepts");
            stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
            stream.write_all(&frame[..frame.len() - 10]).expect("sent");
            let mut response = [0; 9];
            stream.read_exact(&mut response).expect("it is refused before its end");
            assert_eq!(response[4], 4, "unauthorized");
            hanging.push(stream);
        }
        // Heads of 1 MiB that do not end.
        let mut refused = 0;
        let heads: Vec<TcpStream> = (0..strangers)
            .map(|_| {
                let mut stream = connect(&server);
                let head = format!("GET /v1/health HTTP/1.1\r\nhost: x\r\nbig: {}", "y".repeat(900_000));
                // One that is refused is not read to its end.
                refused += u32::from(stream.write_all(head.as_bytes()).is_err());
                stream
            })
            .collect();
        let with = resident_bytes(&server);
        let held = gauge(&server, "svc_http_body_bytes");
        let mut client = server.tcp();
        let began = Instant::now();
        for _ in 0..20 {
            client.send(frame_with_token(KEY, "put", put.as_ref()));
            assert_eq!(client.response().ok(), b"");
        }
        println!(
            "{loops}: {strangers} strangers with frames and as many with heads: {} MiB before, {} MiB with them, of which {held} bytes \
             count as requests; 20 puts of 16 MiB beside them took {:?}, longest wait for health {:?}; {refused} heads not sent",
            before >> 20,
            with >> 20,
            began.elapsed(),
            longest_wait(&server, Duration::from_secs(1))
        );
        assert_eq!(held, 0);
        assert!(with <= before + SLACK_BYTES, "{} MiB", with >> 20);
        drop((hanging, heads));
    }
}

/// Whoever waits for a build is told that it does not end, and the stop does not take all the time that it may.
#[test]
fn a_stop_does_not_wait_for_a_build() {
    let mut server = Server::start(None, &["-cores", "1"]);
    let mut api = server.api();
    api.ok("POST", "/v1/collections", json!({"name": "docs", "config": {"dim": DIM, "metric": "l2"}}));
    // Some ten seconds of work for one core.
    for first in (0..60_000).step_by(3_000) {
        let points: Vec<_> =
            (first..first + 3_000).map(|id| json!({"id": id, "vector": vector(id)})).collect();
        api.ok("POST", "/v1/collections/docs/points/bulk", json!({"points": points}));
    }
    let build =
        std::thread::spawn(move || api.send("POST", "/v1/collections/docs/points/bulk/build", &json!({})));
    let mut other = server.api();
    wait_until("no build begins", || other.ok("GET", "/v1/tasks", Value::Null).to_string().contains("docs"));
    server.signal(libc::SIGTERM);
    let answer = build.join().expect("the client does not panic").expect("an answer");
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(answer.body.to_string().contains("the server is stopping"), "{}", answer.body);
    let status = server.wait();
    let log = server.log();
    assert!(status.success() && !log.contains("cutting connections"), "{log}");
}

/// A half-sent body and a half-sent frame made every stop last as long as it may.
#[test]
fn a_stop_waits_for_no_client_that_is_silent() {
    let mut server = Server::start(None, &["-cores", "2", "-tcp", "127.0.0.1:0"]);
    let mut half_body = connect(&server);
    half_body
        .write_all(b"POST /v1/collections HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"name\":")
        .expect("sent");
    let mut half_head = connect(&server);
    half_head.write_all(b"GET /v1/health HTTP/1.1\r\nhost").expect("sent");
    let mut half_frame = TcpStream::connect(server.tcp_authority()).expect("the server accepts");
    half_frame.write_all(b"\0\0\0\x0f\x03get").expect("sent");
    ask(&mut connect(&server));
    server.signal(libc::SIGTERM);
    let status = server.wait();
    let log = server.log();
    assert!(status.success() && !log.contains("cutting connections"), "{log}");
}

/// Requests that reached the machine before the signal are answered, even if the server had not read them yet. The server used to close
/// connections between two requests without looking at what the kernel had.
#[test]
fn what_has_arrived_before_a_stop_is_answered() {
    for round in 0..3 {
        let mut server = Server::start(None, &["-cores", "1"]);
        let mut streams: Vec<TcpStream> = (0..20).map(|_| connect(&server)).collect();
        streams.iter_mut().for_each(ask);
        server.signal(libc::SIGSTOP);
        for stream in &mut streams {
            stream.write_all(b"GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
        }
        server.signal(libc::SIGTERM);
        server.signal(libc::SIGCONT);
        for (index, stream) in streams.iter_mut().enumerate() {
            let mut answer = Vec::new();
            let ended = stream.read_to_end(&mut answer);
            let is_ok = ended.is_ok() && answer.starts_with(b"HTTP/1.1 200 ");
            assert!(
                is_ok,
                "round {round}, connection {index}: {ended:?} {}",
                String::from_utf8_lossy(&answer)
            );
        }
        let status = server.wait();
        let log = server.log();
        assert!(status.success() && !log.contains("cutting connections"), "round {round}: {log}");
    }
}
