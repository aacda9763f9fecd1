//! Thousands of kept-alive connections without a request.

use super::{
    POINTS, ask, connect, gauge, raise_descriptors, resident_bytes, search, server, wait_for_connections,
};
use nigh_tests::{Server, long};
use std::net::TcpStream;

/// Most memory of the server for one idle connection: its buffers for a request and an answer, the state of its task
/// and its place in the lists.
const IDLE_CONNECTION_BYTES_MAX: u64 = 32 << 10;
/// What the allocator may keep beside that.
const SLACK_BYTES: u64 = 16 << 20;

/// Opens connections that have had one answer each, so that they are idle and not new.
fn idle(server: &Server, count: u64) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = connect(server);
        ask(&mut stream);
        stream
    };
    (0..count).map(open).collect()
}

#[test]
fn idle_connections_cost_little_and_nobody_an_answer() {
    let count = if long() { 10_000 } else { 1_000 };
    raise_descriptors(count);
    let server = server(POINTS, 0);
    let limits =
        std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).expect("a running process");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line of the limit");
    let soft: u64 = files.split_whitespace().nth(3).and_then(|word| word.parse().ok()).expect("a number");
    assert!(soft > count + 1_024, "the server has raised its limit of open files as far as it may: {files}");

    let mut api = server.api();
    search(&mut api, POINTS, 11, 300);
    let before = resident_bytes(&server);
    let mut streams = idle(&server, count);
    let with_all = resident_bytes(&server);
    let each = with_all.saturating_sub(before) / count;
    println!(
        "{count} idle connections: {} MiB before, {} MiB with them, {each} bytes each",
        before >> 20,
        with_all >> 20
    );
    assert!(gauge(&server, "svc_http_connections") >= count);
    assert!(with_all <= before + count * IDLE_CONNECTION_BYTES_MAX + SLACK_BYTES, "{each} bytes each");

    search(&mut api, POINTS, 12, 500);
    // A client that comes now, and those that come back, are served as well.
    search(&mut server.api(), POINTS, 13, 100);
    streams.iter_mut().step_by(97).for_each(ask);

    drop(streams);
    wait_for_connections(&server, 10);
    // What they held is used again.
    let streams = idle(&server, count);
    let again = resident_bytes(&server);
    println!("{} MiB with as many again", again >> 20);
    assert!(again <= with_all + SLACK_BYTES, "{} MiB, then {} MiB", with_all >> 20, again >> 20);
    search(&mut api, POINTS, 14, 100);
    drop(streams);
}
