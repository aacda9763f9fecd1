//! Deadlines: a point or a payload key past its own is on no route any more, swept or not, restarted or not.
//!
//! Each check is a table of routes with the ids each of them lets one see. It is taken once before the deadline, when
//! everything must be there, and again after it. Nothing depends on how fast the server is: a table that took longer
//! than the deadline allows is thrown away and taken again with a later deadline.

mod keys;
mod points;

use nigh_tests::{Api, Server};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Points of a collection. Those with an odd id are brief, or have brief keys.
const POINTS: u64 = 40;

/// What is visible over one route.
type Row = (String, BTreeSet<u64>);

/// A collection with deadlines, and what its routes show.
trait Subject {
    /// Creates collection `name` and fills it; what is brief lives `ttl_ms`.
    fn fill(api: &mut Api, name: &str, ttl_ms: u64);
    /// What each route shows.
    fn table(api: &mut Api, name: &str) -> Vec<Row>;
    /// What route `route` has to show before the deadline (`alive`) or after it.
    fn expected(route: &str, alive: bool) -> BTreeSet<u64>;
    /// What else holds after the deadline; may write.
    fn afterwards(api: &mut Api, name: &str);
}

fn all() -> BTreeSet<u64> {
    (0..POINTS).collect()
}

fn even() -> BTreeSet<u64> {
    (0..POINTS).step_by(2).collect()
}

/// The `id` of every element.
fn ids(list: &Value) -> BTreeSet<u64> {
    let list = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    list.iter().map(|one| one["id"].as_u64().expect("an integer id")).collect()
}

/// The ids in all groups.
fn grouped(answer: &Value) -> BTreeSet<u64> {
    answer["groups"].as_array().expect("groups").iter().flat_map(|group| ids(&group["hits"])).collect()
}

/// A binary query for everything near the origin.
fn binary_query(filter: Option<&Value>) -> Vec<u8> {
    let mut body = b"RVQ1".to_vec();
    for word in [u32::from(filter.is_some()), POINTS as u32, 2, 0, 0, 0, 0, 0] {
        body.extend(word.to_be_bytes());
    }
    if let Some(filter) = filter {
        let filter = filter.to_string();
        body.extend((filter.len() as u32).to_be_bytes());
        body.extend(filter.as_bytes());
    }
    body
}

/// Sends a binary query.
fn binary(api: &mut Api, path: &str, filter: Option<&Value>) -> Value {
    let reply = api.send_bytes("POST", path, "application/octet-stream", &binary_query(filter));
    let reply = reply.expect("an answer");
    assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    reply.body
}

#[track_caller]
fn assert_table<S: Subject>(table: &[Row], alive: bool, when: &str) {
    for (route, seen) in table {
        assert_eq!(seen, &S::expected(route, alive), "{route}, {when}");
    }
}

/// A filled collection of which every route has shown everything, and the moment from which on nothing brief may be seen.
fn alive<S: Subject>(api: &mut Api) -> (String, Instant) {
    let mut ttl = Duration::from_secs(3);
    for round in 0.. {
        let name = format!("round{round}");
        let began = Instant::now();
        S::fill(api, &name, ttl.as_millis() as u64);
        let filled = Instant::now();
        let table = S::table(api, &name);
        if began.elapsed() < ttl {
            assert_table::<S>(&table, true, "before the deadline");
            return (name, filled + ttl);
        }
        println!("the table took longer than {ttl:?}");
        ttl *= 2;
    }
    unreachable!("the rounds do not end")
}

/// Sleeps until `moment` has passed.
fn pass(moment: Instant) {
    // The server's clock counts whole milliseconds.
    std::thread::sleep(moment.saturating_duration_since(Instant::now()) + Duration::from_millis(2));
}

fn hidden_once_past<S: Subject>(sweep: &str) {
    let server = Server::start(None, &["-cores", "2", "-ttl-sweep-interval", sweep]);
    let mut api = server.api();
    let (name, deadline) = alive::<S>(&mut api);
    pass(deadline);
    assert_table::<S>(&S::table(&mut api, &name), false, "after the deadline");
    if sweep != "0" {
        // Whatever the sweeper takes out, and however far it has come, nothing else changes.
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(20));
            assert_table::<S>(&S::table(&mut api, &name), false, "while it is swept");
        }
    }
    S::afterwards(&mut api, &name);
}

fn hidden_over_restarts<S: Subject>() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let flags = ["-cores", "2", "-ttl-sweep-interval", "0"];
    let mut server = Server::start(Some(data.path()), &flags);
    let mut api = server.api();
    let (name, deadline) = alive::<S>(&mut api);
    // Half of the deadlines pass while no server runs, the rest soon after it is back: a deadline that a restart began
    // anew would be seconds away.
    S::fill(&mut api, "later", 6_000);
    let later = Instant::now() + Duration::from_millis(6_000);
    server.kill();
    pass(deadline);
    for round in 0..3 {
        server = Server::start(Some(data.path()), &flags);
        let mut api = server.api();
        assert_table::<S>(&S::table(&mut api, &name), false, "after a restart");
        if round == 0 {
            pass(later);
        }
        assert_table::<S>(&S::table(&mut api, "later"), false, "past the deadline after a restart");
        if round == 1 {
            // A clean stop writes images, which keep deadlines as the log does.
            assert!(server.stop().0.success());
        } else {
            server.kill();
        }
    }
    let server = Server::start(Some(data.path()), &flags);
    S::afterwards(&mut server.api(), &name);
}

#[test]
fn points_are_hidden_before_they_are_swept() {
    hidden_once_past::<points::BriefPoints>("0");
}

#[test]
fn points_are_hidden_while_they_are_swept() {
    hidden_once_past::<points::BriefPoints>("50ms");
}

#[test]
fn points_stay_hidden_over_restarts() {
    hidden_over_restarts::<points::BriefPoints>();
}

#[test]
fn keys_are_hidden_before_they_are_swept() {
    hidden_once_past::<keys::BriefKeys>("0");
}

#[test]
fn keys_are_hidden_while_they_are_swept() {
    hidden_once_past::<keys::BriefKeys>("50ms");
}

#[test]
fn keys_stay_hidden_over_restarts() {
    hidden_over_restarts::<keys::BriefKeys>();
}

#[test]
fn contents_are_hidden_before_they_are_swept() {
    hidden_once_past::<keys::BriefContents>("0");
}

#[test]
fn contents_are_hidden_while_they_are_swept() {
    hidden_once_past::<keys::BriefContents>("50ms");
}

#[test]
fn contents_stay_hidden_over_restarts() {
    hidden_over_restarts::<keys::BriefContents>();
}

#[test]
fn a_restart_does_not_move_a_deadline() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(Some(data.path()), &["-cores", "1"]);
    let mut api = server.api();
    api.ok("POST", "/v1/collections", json!({"name": "docs", "config": {"dim": 1}}));
    let ttl_ms = 600_000;
    api.ok("POST", "/v1/collections/docs/points", json!({"id": 1, "vector": [1], "ttl_ms": ttl_ms}));
    let written = Instant::now();
    std::thread::sleep(Duration::from_millis(300));
    server.kill();
    let server = Server::start(Some(data.path()), &["-cores", "1"]);
    let mut api = server.api();
    // A change of payload leaves it as well.
    let change = json!({"a": {"kind": "int", "int": 1}});
    api.ok("POST", "/v1/collections/docs/points/1/payload", change);
    let elapsed = written.elapsed().as_millis() as u64;
    let left = api.ok("GET", "/v1/collections/docs/points/1", Value::Null)["ttl_ms"].as_u64();
    let left = left.expect("an integer");
    // One millisecond for each end's rounding.
    assert!((1..=ttl_ms + 2 - elapsed).contains(&left), "{left} ms left after {elapsed}");
}
