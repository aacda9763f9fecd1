//! Thousands of kept-alive connections without a request.

use super::{POINTS, ask, connect, gauge, resident_bytes, search, server, wait_for_connections};
use nigh_tests::{Server, long, room_for_connections};
use serde_json::json;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Most memory of the server for one idle connection: its buffers for a request and an answer, the state of its task
/// and its place in the lists.
const IDLE_CONNECTION_BYTES_MAX: u64 = 32 << 10;
/// What the allocator may keep beside that.
const SLACK_BYTES: u64 = 16 << 20;

/// How often an idle server may wake up in a second: it does some 70 times, most of them for the watchdog.
const WAKE_UPS_MAX: u64 = 120;

/// How often the threads of a server have gone to sleep so far, and how long they have run, in nanoseconds.
fn sleeps(server: &Server) -> (u64, u64) {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("a running process");
    let of_task = |task: std::fs::DirEntry| {
        // A thread may end meanwhile.
        let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let (status, times) = (read("status"), read("schedstat"));
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let number = |text: Option<&str>| text.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0);
        (number(line), number(times.split(' ').next()))
    };
    tasks.flatten().map(of_task).fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
}

/// This judges wake-ups rather than CPU time, which depends more on the machine. The expiry of points used to look at the clock 50 times a
/// second, and each look made the watchdog wake up as well, some 200 times a second.
#[test]
fn an_idle_server_sleeps() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(Some(data.path()), &["-cores", "1", "-tcp", "127.0.0.1:0"]);
    let mut api = server.api();
    api.ok("POST", "/v1/collections", json!({"name": "docs", "config": {"dim": 2, "metric": "l2"}}));
    let point = json!({"id": 1, "vector": [1, 2], "ttl_ms": 3_600_000});
    api.ok("POST", "/v1/collections/docs/points", point);
    // By now the work that follows a write is over.
    std::thread::sleep(Duration::from_secs(6));
    let (before, began) = (sleeps(&server), Instant::now());
    std::thread::sleep(Duration::from_secs(3));
    let (after, seconds) = (sleeps(&server), began.elapsed().as_secs_f64());
    let each_second = ((after.0 - before.0) as f64 / seconds) as u64;
    let ran = (after.1 - before.1) as f64 / 1e7 / seconds;
    println!("an idle server wakes up {each_second} times a second and runs for {ran:.2} % of the time");
    assert!(each_second <= WAKE_UPS_MAX, "{each_second} times a second");
}

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
    let _room = room_for_connections(count);
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
