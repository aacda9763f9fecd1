//! The load generator against real servers: that it gets in, and what it says when it does not.
use nigh_tests::{Server, run_to_end};
use std::net::TcpListener;

/// Runs a tiny benchmark and expects it to end with `code`, saying `parts` on stderr.
#[track_caller]
fn check(authority: &str, flags: &[&str], key: &str, code: i32, parts: &[&str]) {
    let url = format!("http://{authority}");
    let small =
        ["bench", "vector", "--url", &url, "--synthetic", "100x8", "--duration", "0", "--warm-up", "0"];
    let exit = run_to_end(&[&small, flags].concat(), &[("NIGH_API_KEY", key)]);
    assert_eq!(exit.status.code(), Some(code), "{flags:?}: {}", exit.stderr);
    for part in parts {
        assert!(exit.stderr.contains(part), "{flags:?}: no {part:?} in {}", exit.stderr);
    }
}

#[test]
fn a_taken_name_says_how_to_go_on() {
    let server = Server::start(None, &["-cores", "1"]);
    check(server.authority(), &["--keep"], "", 0, &[]);
    check(server.authority(), &[], "", 1, &["status 409", "already exists", "--replace", "--collection"]);
    check(server.authority(), &["--replace"], "", 0, &[]);
}

#[test]
fn a_key_opens_the_server() {
    let server = Server::start(None, &["-cores", "1", "-api-key", "s3cret"]);
    check(server.authority(), &[], "", 1, &["status 401", "--api-key", "NIGH_API_KEY"]);
    check(server.authority(), &["--api-key", "wrong"], "s3cret", 1, &["status 401"]);
    check(server.authority(), &["--api-key", "s3cret"], "", 0, &[]);
    check(server.authority(), &["--ingest", "staged"], "s3cret", 0, &[]);
}

#[test]
fn nobody_there_says_how_to_start_a_server() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let authority = listener.local_addr().expect("bound").to_string();
    drop(listener);
    check(&authority, &[], "", 1, &["--url", &format!("nigh -http {authority}")]);
}
