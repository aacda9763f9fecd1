//! Clients that ask and do not read: large answers wait page by page, and requests behind them wait in the socket.

use super::{connect, gauge, resident_bytes, search, server, vector, wait_for_connections, wait_until};
use nigh_tests::long;
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

const POINTS: u64 = 20_000;
const CONTENT_BYTES: usize = 1_024;
/// Most memory of the server for an answer that is not taken: a page, and what of it lies in the buffers of the
/// connection. The whole answer has over 20 MiB.
const UNREAD_BYTES_MAX: u64 = 1 << 20;
/// What the allocator may keep beside that.
const SLACK_BYTES: u64 = 32 << 20;

const SCROLL: &str = "POST /v1/collections/docs/points/scroll HTTP/1.1\r\nhost: x\r\n\
    content-type: application/json\r\ncontent-length: 12\r\n\r\n{\"limit\": 0}";

/// Reads the rest of a chunked answer, and counts the points in it.
fn count_points(stream: &mut TcpStream) -> usize {
    let mut read = Vec::new();
    let mut piece = vec![0; 1 << 16];
    while !read.ends_with(b"\r\n0\r\n\r\n") {
        let count = stream.read(&mut piece).expect("the answer goes on");
        assert!(count > 0, "the answer ends in the middle");
        read.extend_from_slice(&piece[..count]);
    }
    // Chunks begin anywhere; take their frames out first.
    let mut body = Vec::new();
    let mut rest = &read[read.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4..];
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n").expect("the length of a chunk");
        let length =
            usize::from_str_radix(std::str::from_utf8(&rest[..end]).expect("digits"), 16).expect("digits");
        if length == 0 {
            break;
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + length]);
        rest = &rest[end + 4 + length..];
    }
    let page: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
    page["documents"].as_array().expect("documents").len()
}

#[test]
fn answers_that_nobody_reads_are_not_made() {
    let count = if long() { 400 } else { 60 };
    let server = server(POINTS, CONTENT_BYTES);
    let mut api = server.api();
    let mut reader = connect(&server);
    reader.write_all(SCROLL.as_bytes()).expect("sent");
    assert_eq!(count_points(&mut reader), POINTS as usize);
    search(&mut api, POINTS, 41, 200);
    let before = resident_bytes(&server);
    let mut deaf: Vec<TcpStream> = (0..count)
        .map(|_| {
            let mut stream = connect(&server);
            stream.write_all(SCROLL.as_bytes()).expect("sent");
            stream
        })
        .collect();
    let mut peak = 0;
    for seed in 0..20 {
        search(&mut api, POINTS, 400 + seed, 20);
        peak = peak.max(resident_bytes(&server));
        std::thread::sleep(Duration::from_millis(50));
    }
    let each = peak.saturating_sub(before) / count;
    println!(
        "{count} unread answers: {} MiB before, {} MiB with them, {} KiB each",
        before >> 20,
        peak >> 20,
        each >> 10
    );
    assert!(peak <= before + count * UNREAD_BYTES_MAX + SLACK_BYTES, "{} KiB each", each >> 10);
    // Who reads after all gets everything.
    assert_eq!(count_points(&mut deaf[0]), POINTS as usize);
    if long() {
        // Taking nothing for 120 s ends an answer.
        drop(deaf.remove(0));
        wait_until("unread answers wait for ever", || {
            search(&mut api, POINTS, 42, 5);
            gauge(&server, "svc_http_connections_timed_out_total") >= count - 1
        });
    }
    drop(deaf);
    wait_for_connections(&server, 10);
    search(&mut api, POINTS, 43, 100);
}

/// Leaves little room for unread bytes on the client's side, so that they come to wait on the server's.
fn keep_little(stream: &TcpStream) {
    let bytes: libc::c_int = 4_096;
    // SAFETY: the option value points to a live c_int of the stated size; the descriptor is owned by `stream`. A failure
    // only makes a test less strict.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

/// A client that sends `request` over and over, as long as the socket takes it, and never reads.
fn flood(request: &str, bytes_max: u64) {
    let count = if long() { 200 } else { 40 };
    let server = server(2_000, CONTENT_BYTES);
    let mut api = server.api();
    search(&mut api, 2_000, 51, 200);
    let before = resident_bytes(&server);
    let many = request.repeat(100);
    let mut flooding: Vec<(TcpStream, usize)> = (0..count)
        .map(|_| {
            let stream = connect(&server);
            stream.set_nonblocking(true).expect("a socket option");
            keep_little(&stream);
            (stream, 0)
        })
        .collect();
    let mut sent = 0;
    let mut peak = 0;
    // Until the sockets have taken nothing for a while, or much longer than that should need.
    let mut quiet = 0;
    for seed in 0..1_000 {
        let sent_before = sent;
        for (stream, at) in &mut flooding {
            // A bound for machines whose sockets take all that the server answers in a test's time.
            for _ in 0..100 {
                match stream.write(&many.as_bytes()[*at..]) {
                    Ok(bytes) => {
                        sent += bytes;
                        *at = (*at + bytes) % many.len();
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        search(&mut api, 2_000, 500 + seed, 5);
        peak = peak.max(resident_bytes(&server));
        quiet = if sent == sent_before { quiet + 1 } else { 0 };
        if quiet == 100 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let each = peak.saturating_sub(before) / count;
    println!("{} MiB of requests: {} KiB of memory for each client", sent >> 20, each >> 10);
    assert!(peak <= before + count * bytes_max + SLACK_BYTES, "{} KiB each", each >> 10);
    drop(flooding);
    wait_for_connections(&server, 10);
    search(&mut api, 2_000, 52, 100);
}

#[test]
fn scrolls_sent_without_reading_wait_in_the_socket() {
    flood(SCROLL, UNREAD_BYTES_MAX);
}

#[test]
fn searches_sent_without_reading_wait_in_the_socket() {
    let body = json!({"query": vector(7), "k": 250}).to_string();
    let length = body.len();
    let request = format!(
        "POST /v1/collections/docs/points/search HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    flood(&request, UNREAD_BYTES_MAX);
}

/// Requests that have all arrived before the client takes the first answer are all answered.
#[test]
fn requests_behind_answers_that_wait_are_answered() {
    const REQUESTS: usize = 20;
    let server = server(2_000, CONTENT_BYTES);
    let streams: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = connect(&server);
            stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket option");
            stream.write_all(SCROLL.repeat(REQUESTS).as_bytes()).expect("sent");
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    std::thread::scope(|scope| {
        for mut stream in streams {
            scope.spawn(move || {
                const END: &[u8] = b"\r\n0\r\n\r\n";
                let (mut ends, mut kept) = (0, Vec::new());
                let mut piece = vec![0; 1 << 16];
                while ends < REQUESTS {
                    let count = stream.read(&mut piece).expect("the answers go on");
                    assert!(count > 0, "the connection ends after {ends} answers");
                    kept.extend_from_slice(&piece[..count]);
                    ends += kept.windows(END.len()).filter(|window| window == &END).count();
                    kept.drain(..kept.len().saturating_sub(END.len() - 1));
                }
            });
        }
    });
}
