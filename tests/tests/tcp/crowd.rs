//! Thousands of connections: cheap while idle, bounded in number, and each served.

use super::server;
use nigh_tests::{Args, Server, Wire, frame, long, room_for_connections};

/// Most memory of the server for one idle connection: its task, its place in the lists, its token.
const IDLE_CONNECTION_BYTES_MAX: u64 = 8 << 10;
/// What the allocator may keep beside that.
const SLACK_BYTES: u64 = 16 << 20;

fn resident_bytes(server: &Server) -> u64 {
    status_bytes(server, "VmRSS:")
}

/// The most that was resident since [`forget_peak`].
fn peak_bytes(server: &Server) -> u64 {
    status_bytes(server, "VmHWM:")
}

fn status_bytes(server: &Server, name: &str) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("a running process");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

fn forget_peak(server: &Server) {
    std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").expect("a file of the kernel");
}

fn counted(wire: &mut Wire, name: &str) -> u64 {
    let page = String::from_utf8(wire.ask("__metrics__", b"").ok()).expect("text");
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).expect(name);
    line.parse().expect("a number")
}

#[test]
fn idle_connections_are_cheap_and_all_are_served() {
    let count: u64 = if long() { 9_990 } else { 1_000 };
    let _room = room_for_connections(count);
    let server = server();
    let first = &mut server.tcp();
    assert_eq!(first.ask("put", Args::new().s16("k").s32([7; 3_000]).u64(0)).ok(), b"");
    let before = resident_bytes(&server);
    let get = frame("get", Args::new().s16("k").as_ref());
    let mut all: Vec<Wire> = (0..count).map(|_| server.tcp()).collect();
    // Each has had an answer, and some a part of a request behind it.
    for (place, wire) in all.iter_mut().enumerate() {
        wire.send(&get);
        assert_eq!(wire.response().ok().len(), 3_000);
        if place % 3 == 0 {
            wire.send(&get[..9]);
        }
    }
    let each = resident_bytes(&server).saturating_sub(before) / count;
    println!("{count} idle connections, {each} bytes each");
    assert!(each <= IDLE_CONNECTION_BYTES_MAX + SLACK_BYTES / count, "{each} bytes each");
    assert_eq!(counted(first, "svc_tcp_connections"), count + 1);
    for (place, wire) in all.iter_mut().enumerate() {
        wire.send(if place % 3 == 0 { &get[9..] } else { &get });
    }
    assert!(all.iter_mut().all(|wire| wire.response().ok().len() == 3_000));
    drop(all);
    let started = std::time::Instant::now();
    while counted(first, "svc_tcp_connections") > 1 {
        assert!(started.elapsed().as_secs() < 60, "connections are left behind");
    }
}

/// Half-open frames of many megabytes hold what was sent of them and no more.
#[test]
fn declared_sizes_are_believed_as_far_as_bytes_come() {
    let server = server();
    let before = resident_bytes(&server);
    let mut all: Vec<Wire> = (0..300).map(|_| server.tcp()).collect();
    for wire in &mut all {
        wire.send(Args::new().u32(16 << 20).bytes(b"\x03put\0\xff\xff\xff\0\x01k\0\xff\xff\x00hello").0);
    }
    server.tcp().ask("__ping__", b"").ok();
    let more = resident_bytes(&server).saturating_sub(before);
    assert!(more < 300 * (8 << 10) + SLACK_BYTES, "{} MiB", more >> 20);
}

/// Long values of another core come a few at a time, however many are asked for together.
#[test]
fn long_values_do_not_pile_up() {
    const VALUE_BYTES: usize = 4 << 20;
    const READS: usize = 40;
    let server = server();
    let wire = &mut server.tcp();
    // Some of them belong to the core that does not serve the connection.
    let keys = (0..6).map(|n| Args::new().s16(format!("k{n}"))).collect::<Vec<_>>();
    for key in &keys {
        assert_eq!(wire.ask("put", key.clone().s32(vec![7; VALUE_BYTES]).u64(0)).ok(), b"");
    }
    let before = resident_bytes(&server);
    forget_peak(&server);
    for key in &keys {
        // Reads behind a change go with it to the owner.
        let change = frame("expire", key.clone().u64(1_000_000).as_ref());
        wire.send([change, frame("get", key.as_ref()).repeat(READS)].concat());
        assert_eq!(wire.response().ok(), b"");
        for _ in 0..READS {
            assert_eq!(wire.response().ok().len(), VALUE_BYTES);
        }
    }
    let more = peak_bytes(&server).saturating_sub(before);
    println!("{} MiB more for responses of {} MiB", more >> 20, (READS * VALUE_BYTES) >> 20);
    assert!(more < 10 * VALUE_BYTES as u64 + SLACK_BYTES, "{} MiB", more >> 20);
}
