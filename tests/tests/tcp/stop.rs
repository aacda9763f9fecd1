//! Stopping: what is under way is answered, what is idle is closed, and nothing waits for it.

use nigh_tests::{Args, Server, frame};
use std::time::{Duration, Instant};

#[test]
fn idle_connections_end_and_requests_under_way_are_answered() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let mut server = Server::start(
        Some(data.path()),
        &["-cores", "2", "-tcp", "127.0.0.1:0", super::LOOPS, "-epoll-loops", "3"],
    );
    let mut idle: Vec<_> = (0..20).map(|_| server.tcp()).collect();
    idle.iter_mut().step_by(2).for_each(|wire| drop(wire.ask("__ping__", b"").ok()));
    let busy = &mut server.tcp();
    let put = |n: u32| frame("put", Args::new().s16(format!("{n}")).s32("v").u64(0).as_ref());
    busy.send((0..3_000).flat_map(put).collect::<Vec<u8>>());
    assert_eq!(busy.response().ok(), b"");
    let started = Instant::now();
    server.signal(libc::SIGTERM);
    let mut answered = 1;
    while let Ok(response) = busy.raw() {
        assert_eq!(response, [0, 0, 0, 5, 0, 0, 0, 0, 0]);
        answered += 1;
    }
    println!("{answered} of 3000 were answered");
    assert!(idle.iter_mut().all(|wire| wire.is_ended()));
    // Not a second signal, which would end it at once.
    let status = server.wait();
    let log = server.log();
    assert!(status.success() && !log.contains("cutting connections"), "{log}");
    assert!(log.contains("-epoll-loops has no effect") && log.contains("proto=tcp"), "{log}");
    assert!(started.elapsed() < Duration::from_secs(20), "{log}");
    // What was answered is there.
    let server = Server::start(Some(data.path()), &["-tcp", "127.0.0.1:0", super::LOOPS]);
    let wire = &mut server.tcp();
    for n in 0..answered {
        assert_eq!(wire.ask("get", Args::new().s16(format!("{n}"))).ok(), b"v", "{n}");
    }
}

/// Requests that have reached the machine before the signal are answered, though the server could not look at them before.
#[test]
fn what_has_arrived_before_the_stop_is_answered() {
    for round in 0..3 {
        let mut server = Server::start(None, &["-cores", "1", "-tcp", "127.0.0.1:0", super::LOOPS]);
        let mut wires: Vec<_> = (0..20).map(|_| server.tcp()).collect();
        wires.iter_mut().for_each(|wire| drop(wire.ask("__ping__", b"").ok()));
        server.signal(libc::SIGSTOP);
        let put = |n: u32| frame("put", Args::new().s16(format!("{n}")).s32("v").u64(0).as_ref());
        for wire in &mut wires {
            wire.send((0..10).flat_map(put).collect::<Vec<u8>>());
        }
        server.signal(libc::SIGTERM);
        server.signal(libc::SIGCONT);
        for (index, wire) in wires.iter_mut().enumerate() {
            for request in 0..10 {
                let response = wire.raw();
                assert!(
                    response.is_ok(),
                    "round {round}, connection {index}, request {request}: {response:?}"
                );
            }
            assert!(wire.is_ended(), "round {round}, connection {index}");
        }
        assert!(server.wait().success(), "{}", server.log());
    }
}

#[test]
fn tcp_alone() {
    let mut server = Server::start(None, &["-cores", "2", "-tcp", "127.0.0.1:0", super::LOOPS, "-http", ""]);
    assert_eq!(server.tcp().ask("__ping__", b"").ok(), b"");
    let log = server.log();
    assert!(server.authority().is_empty() && !log.contains("proto=http"), "{log}");
    server.signal(libc::SIGTERM);
    assert!(server.wait().success(), "{}", server.log());
}
