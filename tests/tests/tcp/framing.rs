//! Frames in pieces, frames that are none, and connections that end early.

use super::{hex, server};
use nigh_tests::{Args, Wire, frame};
use std::time::Duration;

fn put(key: &str, value: &[u8]) -> Vec<u8> {
    frame("put", Args::new().s16(key).s32(value).u64(0).as_ref())
}

fn get(key: &str) -> Vec<u8> {
    frame("get", Args::new().s16(key).as_ref())
}

#[test]
fn requests_byte_by_byte() {
    let server = server();
    let wire = &mut server.tcp();
    for byte in [put("k", b"value"), get("k"), frame("__ping__", b"")].concat() {
        wire.send([byte]);
    }
    assert_eq!(wire.response().ok(), b"");
    assert_eq!(wire.response().ok(), b"value");
    assert_eq!(wire.response().ok(), b"");
    // Cut in two anywhere.
    let both = [put("k", b"other"), get("k")].concat();
    for cut in 1..both.len() {
        wire.send(&both[..cut]);
        if cut % 7 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        wire.send(&both[cut..]);
        assert_eq!((wire.response().ok(), wire.response().ok()), (vec![], b"other".to_vec()));
    }
}

#[test]
fn values_of_every_size_and_the_largest() {
    let server = server();
    let wire = &mut server.tcp();
    for size in [0, 1, 1_000, 16_000, 70_000, 300_000, 2_000_000, 16_777_216 - 4 - 4 - 2 - 1 - 4 - 8] {
        let value: Vec<u8> = (0..size).map(|n: usize| (n * 31) as u8).collect();
        wire.send(put("k", &value));
        assert_eq!(wire.response().ok(), b"", "{size}");
        assert_eq!(wire.ask("get", Args::new().s16("k")).ok(), value, "{size}");
    }
    // Several of them together would exceed a frame.
    let mget = Args::new().u16(2).s16("k").s16("k");
    assert_eq!(wire.ask("mget", mget).error(), "response exceeds MaxFrameSize");
    let many = (0..1_000).fold(Args::new().u16(1_000), |args, _| args.s16("k"));
    assert_eq!(wire.ask("mget", many).error(), "response exceeds MaxFrameSize");
    wire.send(get("k").repeat(20));
    for _ in 0..20 {
        assert_eq!(wire.response().ok().len(), 16_777_193);
    }
}

#[test]
fn frames_that_are_no_requests_are_answered_and_skipped() {
    let server = server();
    let wire = &mut server.tcp();
    let framed = |body: &[u8]| Args::new().s32(body).0;
    // Shorter than their own lengths.
    for body in [&b""[..], b"\x03g", b"\x03get", b"\x03get\0\0\0\x09abc", b"\x02\x05tok"] {
        wire.send(framed(body));
        assert_eq!(wire.response().error(), "frame truncated", "{body:?}");
    }
    wire.send(framed(b"\x03get\x01\0\0\x01"));
    assert_eq!(wire.response().error(), "frame too large");
    // More behind the arguments is ignored.
    wire.send(framed(&[&frame("__ping__", b"")[4..], b"more"].concat()));
    assert_eq!(wire.response().ok(), b"");
    // Too large, with what follows it in the same pieces.
    for bytes in [16_777_217, 20 << 20, 64 << 20] {
        let body = vec![7; bytes];
        let all = [put("k", b"1"), framed(&body), get("k")].concat();
        let mut stream = wire.stream.socket().try_clone().expect("a descriptor");
        let sender = std::thread::spawn(move || std::io::Write::write_all(&mut stream, &all));
        assert_eq!(wire.response().ok(), b"");
        assert_eq!(wire.response().error(), "frame too large", "{bytes}");
        assert_eq!(wire.response().ok(), b"1");
        sender.join().expect("a thread").expect("sent");
    }
    assert_eq!(wire.ask("__ping__", b"").ok(), b"");
}

#[test]
fn other_protocols_are_told_and_left() {
    let server = server();
    for bytes in [&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], b"\x16\x03\x01\x02\x00\x01\x00", &[0xff; 3000]] {
        let wire = &mut server.tcp();
        wire.send(frame("__ping__", b""));
        wire.send(bytes);
        assert_eq!(wire.response().ok(), b"");
        assert_eq!(wire.response().error(), "frame too large");
        assert!(wire.is_ended());
    }
    server.tcp().ask("__ping__", b"").ok();
}

#[test]
fn a_client_that_ends_its_half_gets_its_answers() {
    let server = server();
    let wire = &mut server.tcp();
    wire.send([put("half", b"1").repeat(150), get("half"), get("half")[..9].to_vec()].concat());
    wire.end();
    for _ in 0..150 {
        assert_eq!(wire.response().ok(), b"");
    }
    assert_eq!(wire.response().ok(), b"1");
    assert!(wire.is_ended());
    // And one that is gone at once has done what it asked for.
    let gone = &mut server.tcp();
    gone.send(put("gone", b"2"));
    let _ = gone.raw();
    assert_eq!(server.tcp().ask("get", Args::new().s16("gone")).ok(), b"2");
}

/// Sends without reading until the server takes no more, then reads everything.
#[test]
fn a_client_that_does_not_read_is_not_read() {
    let server = server();
    let wire = &mut server.tcp();
    let value = vec![9; 100_000];
    wire.send(put("k", &value));
    assert_eq!(wire.response().ok(), b"");
    let requests = get("k").repeat(64);
    wire.stream.socket().set_nonblocking(true).expect("a socket option");
    let mut sent = 0;
    let mut stalls = 0;
    while stalls < 50 {
        match std::io::Write::write(&mut wire.stream, &requests[sent % requests.len()..]) {
            Ok(count) => sent += count,
            Err(_) => {
                stalls += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    let whole = sent / get("k").len();
    println!("{whole} requests were taken");
    assert!(whole < 2_000_000, "a client may have any number of requests outstanding");
    // Others are served meanwhile.
    server.tcp().ask("__ping__", b"").ok();
    wire.stream.socket().set_nonblocking(false).expect("a socket option");
    for _ in 0..whole.min(2_000) {
        assert_eq!(wire.response().ok().len(), value.len());
    }
}

#[test]
fn any_bytes_at_all_break_nothing_but_their_connection() {
    let server = server();
    let mut random = nigh_tests::SplitMix(5);
    for _ in 0..200 {
        let mut wire = Wire::connect(server.tcp_authority());
        let len = random.below(300) as usize;
        let body: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
        let names = [
            "get",
            "put_batch",
            "mget",
            "operate",
            "vector_search",
            "vector_upsert",
            "vector_scroll",
            "alias_batch",
        ];
        let name = names[random.below(names.len() as u64) as usize];
        wire.send(frame(name, &body));
        let response = wire.response();
        assert!(response.status == 3 || response.status <= 1, "{response:?}");
        assert_eq!(wire.ask("__ping__", b"").ok(), b"");
    }
    assert_eq!(server.tcp().ask("get", hex("00016b")).status, 1);
}
