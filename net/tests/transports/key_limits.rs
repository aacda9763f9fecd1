//! Limits of API keys over each transport: what is let in, what is refused and how, and whether the wait that a refusal names is enough.
use super::rights::Forgetful;
use super::{Args, Binary, Clients, Server};
use crate::common::server::options;
use nigh_net::auth::Registry;
use nigh_net::auth::key_limits::KeyLimits;
use nigh_net::auth::keys_file::Key;
use nigh_net::auth::registry::RegistrySettings;
use serde_json::{Value, json};
use std::sync::Arc;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

const RESOURCE_EXHAUSTED: u32 = 8;

/// The token of an API key that may do everything and has no limits.
const ADMIN: &str = "admin";

/// A server with the API key of [`ADMIN`], and with others that may do everything up to their limits.
fn server(limited: &[(&str, KeyLimits)]) -> Server {
    let everything = || vec!["*:*".to_owned()];
    let mut keys = vec![Key::new(ADMIN.as_bytes(), "*", everything(), "")];
    for (token, limits) in limited {
        keys.push(Key::new(token.as_bytes(), "*", everything(), "").with_limits(*limits));
    }
    let registry = Registry::new(keys, Box::new(Forgetful), RegistrySettings::default()).unwrap();
    Server::start_as(Arc::new(registry), options())
}

fn requests_per_second(requests_per_second: u64) -> KeyLimits {
    KeyLimits { requests_per_second, ..KeyLimits::default() }
}

/// Sleeps as long as a refusal says.
#[track_caller]
fn wait_as_told(refusal: &str) {
    let ms = refusal.rsplit_once("try again in ").and_then(|(_, rest)| rest.strip_suffix(" ms"));
    sleep(Duration::from_millis(ms.expect(refusal).parse().expect(refusal)));
}

/// Checks how many requests were let in since `began`: a burst, and what the rate allows for the time since, which is short unless the machine is
/// busy.
#[track_caller]
fn check_let_in(let_in: usize, rate: u64, began: Instant) {
    let later = began.elapsed().as_millis() as u64 * rate / 1000 + 1;
    assert!((rate..=rate + later).contains(&(let_in as u64)), "{let_in} of {rate} and {later}");
}

/// Sends a request over REST. Returns the status, the text and the time to wait.
fn over_rest(clients: &mut Clients, method: &str, path: &str, body: &[u8]) -> (u16, String, Option<String>) {
    let answer = clients.rest.request(method, path, "application/octet-stream", body);
    let retry_after = answer.header("retry-after").map(str::to_owned);
    let error: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    (answer.status, error["error"].as_str().unwrap_or_default().to_owned(), retry_after)
}

/// Makes a call of gRPC. Returns the code, the text and the time to wait.
fn over_grpc(clients: &Clients) -> (u32, String, Option<String>) {
    let answer = clients.grpc.answer("ListCollections", &json!({}), &[]);
    let pushback = answer.headers.get("grpc-retry-pushback-ms");
    let pushback = pushback.map(|value| value.to_str().unwrap().to_owned());
    let (code, text) = answer.code();
    (code, text, pushback)
}

fn clients(server: &Server, token: &str) -> Clients {
    let mut clients = server.clients();
    clients.rest.token = Some(token.to_owned());
    clients.grpc.token = Some(token.to_owned());
    clients
}

fn ping(binary: &mut Binary, token: &str) -> Result<Vec<u8>, String> {
    binary.ask_as(token, "__ping__", &Args::default())
}

#[test]
fn a_pipelined_client_gets_its_rate_and_is_served_after_the_wait() {
    const RATE: u64 = 20;
    let server = server(&[("t", requests_per_second(RATE))]);
    let mut binary = server.clients().binary;
    let (put, get) = (Args::default().s16("k").s32(b"v").u64(0), Args::default().s16("k"));
    // For most of them, an earlier decision is repeated.
    let all: Vec<(&str, &Args)> =
        (0..200).map(|at| if at % 2 == 0 { ("put", &put) } else { ("get", &get) }).collect();
    let began = Instant::now();
    let answers = binary.send_many_as("t", &all);
    let refused: Vec<&String> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    check_let_in(answers.len() - refused.len(), RATE, began);
    for refusal in &refused {
        assert!(
            refusal.starts_with("rate limited: the API key may send 20 requests per second; try again in "),
            "{refusal}"
        );
    }
    wait_as_told(refused.last().unwrap());
    assert_eq!(binary.ask_as("t", "get", &get), Ok(b"v".to_vec()));
    // Other API keys are not affected, and unknown clients learn nothing of the limits.
    assert_eq!(ping(&mut binary, ADMIN), Ok(vec![]));
    assert_eq!(ping(&mut binary, "nobody"), Err("status 4".to_owned()));
}

#[test]
fn a_round_that_ends_early_charges_its_requests_once() {
    const RATE: u64 = 50;
    let server = server(&[("t", requests_per_second(RATE))]);
    let mut binary = server.clients().binary;
    let value = vec![7; 200 << 10];
    binary.ask_as(ADMIN, "put", &Args::default().s16("k").s32(&value).u64(0)).unwrap();
    // Two responses fill a round.
    let get = Args::default().s16("k");
    let began = Instant::now();
    let answers = binary.send_many_as("t", &vec![("get", &get); 100]);
    let let_in = answers.iter().filter(|answer| answer.is_ok()).count();
    check_let_in(let_in, RATE, began);
    assert!(answers.iter().flatten().all(|found| *found == value));
}

#[test]
fn every_transport_and_core_takes_from_the_same_rate() {
    const RATE: u64 = 60;
    let server = server(&[("t", requests_per_second(RATE))]);
    let began = Instant::now();
    let let_in: usize = scope(|scope| {
        let run = || {
            let mut clients = clients(&server, "t");
            let mut let_in = 0;
            for _ in 0..15 {
                let_in += usize::from(ping(&mut clients.binary, "t").is_ok());
                let_in += usize::from(over_rest(&mut clients, "GET", "/v1/collections", b"").0 == 200);
                let_in += usize::from(over_grpc(&clients).0 == 0);
            }
            let_in
        };
        // Their connections are on both cores.
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    check_let_in(let_in, RATE, began);
    let metrics = clients(&server, ADMIN).rest.request("GET", "/metrics", "", b"");
    let limited = metrics
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("svc_api_key_limited_requests_total{limit=\"requests\"} "));
    assert_eq!(limited.unwrap().parse::<usize>().unwrap(), 8 * 15 * 3 - let_in);
}

/// Asks until a limit refuses, which a busy machine may put off.
#[track_caller]
fn until_refused<T>(mut ask: impl FnMut() -> Result<(), T>) -> T {
    (0..20).find_map(|_| ask().err()).expect("a refusal")
}

#[test]
fn refusals_say_how_long_to_wait_over_every_transport() {
    let limits = requests_per_second(1);
    let server = server(&[("rest", limits), ("body", limits), ("grpc", limits), ("unknown", limits)]);
    let text = "rate limited: the API key may send 1 request per second; try again in ";
    for (token, method, path, body) in [
        ("rest", "GET", "/v1/collections", &b""[..]),
        // A binary body is not read.
        ("body", "POST", "/v1/collections/docs/points/batch", &[0; 1000]),
    ] {
        let mut clients = clients(&server, token);
        let first = over_rest(&mut clients, method, path, body);
        assert!(first.0 != 429 && first.2.is_none(), "{path}: {first:?}");
        let (found, retry_after) = until_refused(|| match over_rest(&mut clients, method, path, body) {
            (429, found, retry_after) => Err((found, retry_after)),
            _ => Ok(()),
        });
        assert_eq!(retry_after.as_deref(), Some("1"), "{path}: {found}");
        assert!(found.starts_with(text), "{path}: {found}");
        // An unknown path and one that needs no API key are neither charged nor refused.
        assert_eq!(over_rest(&mut clients, "GET", "/v1/nothing", b"").0, 404);
        assert_eq!(over_rest(&mut clients, "GET", "/v1/health", b"").0, 200);
        wait_as_told(&found);
        assert_ne!(over_rest(&mut clients, method, path, body).0, 429);
    }
    let clients = clients(&server, "grpc");
    assert_eq!(over_grpc(&clients), (0, String::new(), None));
    let (code, found, pushback) = until_refused(|| match over_grpc(&clients) {
        (0, ..) => Ok(()),
        refused => Err(refused),
    });
    assert!(code == RESOURCE_EXHAUSTED && found.starts_with(text), "{code} {found}");
    assert!(found.ends_with(&format!("in {} ms", pushback.unwrap())), "{found}");
    wait_as_told(&found);
    assert_eq!(over_grpc(&clients).0, 0);
    // An unknown operation is let in with an API key that may do everything, and is charged.
    let none = Args::default();
    let mut binary = server.clients().binary;
    let answers = binary.send_many_as("unknown", &[("nothing", &none), ("__ping__", &none)]);
    assert_eq!(answers[0], Err("op not registered".to_owned()));
    assert!(answers[1].as_ref().unwrap_err().starts_with(text), "{answers:?}");
}

/// A debt of five seconds is no more than a burst after four of them, and requests are let in again.
#[test]
fn bytes_of_requests_and_answers_are_a_debt() {
    const RATE: usize = 40_000;
    let limits = KeyLimits { bytes_per_second: RATE as u64, ..KeyLimits::default() };
    let tokens = ["tcp put", "tcp get", "rest put", "rest get", "grpc"];
    let server = server(&tokens.map(|token| (token, limits)));
    let text = "rate limited: the API key may send and receive 40000 bytes per second; try again in ";
    let long = "x".repeat(5 * RATE);
    let (put, get) = (Args::default().s16("k").s32(long.as_bytes()).u64(0), Args::default().s16("k"));
    let point = json!({"id": 1, "vector": [0.0, 1.0], "content": long});
    let mut admin = clients(&server, ADMIN);
    admin.binary.ask_as(ADMIN, "put", &put).unwrap();
    admin.rest.create("docs", 2, "l2");
    admin.rest.json("POST", "/v1/collections/docs/points", point.clone());

    let binary = |token: &str, operation, args| {
        let mut binary = server.clients().binary;
        binary.ask_as(token, operation, args).unwrap();
        let refusal = ping(&mut binary, token).unwrap_err();
        assert!(refusal.starts_with(text), "{refusal}");
        wait_as_told(&refusal);
        // The limit holds within one round as well.
        let answers = binary.send_many_as(token, &[("put", &put), ("get", &get)]);
        assert!(answers[0].is_ok() && answers[1].as_ref().unwrap_err().starts_with(text), "{answers:?}");
    };
    let rest = |token: &str, method, path, body: &str| {
        let mut clients = clients(&server, token);
        let first = clients.rest.request(method, path, "application/json", body.as_bytes());
        assert_ne!(first.status, 429, "{}", first.text());
        let (status, refusal, retry_after) = over_rest(&mut clients, "GET", "/v1/collections", b"");
        assert!(status == 429 && refusal.starts_with(text), "{path}: {status} {refusal}");
        let seconds: u64 = retry_after.unwrap().parse().unwrap();
        assert!((1..=5).contains(&seconds), "{seconds}");
        sleep(Duration::from_secs(seconds));
        assert_eq!(over_rest(&mut clients, "GET", "/v1/collections", b"").0, 200);
    };
    let grpc = || {
        let clients = clients(&server, "grpc");
        let found = clients.grpc.call("Get", json!({"collection": "docs", "id": 1})).unwrap();
        assert!(found.to_string().len() > long.len());
        let (code, refusal, _) = over_grpc(&clients);
        assert!(code == RESOURCE_EXHAUSTED && refusal.starts_with(text), "{code} {refusal}");
        wait_as_told(&refusal);
        assert_eq!(over_grpc(&clients).0, 0);
    };
    scope(|scope| {
        scope.spawn(|| binary("tcp put", "put", &put));
        scope.spawn(|| binary("tcp get", "get", &get));
        scope.spawn(|| rest("rest put", "POST", "/v1/collections/docs/points", &point.to_string()));
        scope.spawn(|| rest("rest get", "GET", "/v1/collections/docs/points/1", ""));
        scope.spawn(grpc);
    });
}

#[test]
fn connections_count_from_their_first_request_to_their_end() {
    let limits = KeyLimits { connections: 2, ..KeyLimits::default() };
    let server = server(&[("t", limits)]);
    let text = "rate limited: the API key may have 2 connections; close one, or try again in 1000 ms";
    let mut first = clients(&server, "t");
    // One connection of the binary protocol and one of REST are within the limit, however many requests they send.
    for _ in 0..3 {
        assert_eq!(ping(&mut first.binary, "t"), Ok(vec![]));
        assert_eq!(over_rest(&mut first, "GET", "/v1/collections", b"").0, 200);
        assert_eq!(over_grpc(&first), (RESOURCE_EXHAUSTED, text.to_owned(), Some("1000".to_owned())));
    }
    let mut second = clients(&server, "t");
    assert_eq!(ping(&mut second.binary, "t"), Err(text.to_owned()));
    let refused = over_rest(&mut second, "GET", "/v1/collections", b"");
    assert_eq!(refused, (429, text.to_owned(), Some("1".to_owned())));
    // Connections that were refused go on, with another API key.
    assert_eq!(ping(&mut second.binary, ADMIN), Ok(vec![]));
    first.grpc.token = Some(ADMIN.to_owned());
    assert_eq!(over_grpc(&first).0, 0);
    // A connection that uses another API key makes room.
    assert_eq!(ping(&mut first.binary, ADMIN), Ok(vec![]));
    assert_eq!(ping(&mut second.binary, "t"), Ok(vec![]));
    assert_eq!(ping(&mut first.binary, "t"), Err(text.to_owned()));
    // So does a connection that closes, whatever its transport is.
    drop(second);
    eventually(|| over_grpc_as(&first, "t").0 == 0);
    assert_eq!(ping(&mut first.binary, "t"), Err(text.to_owned()));
    let Clients { rest, mut binary, grpc } = first;
    drop(rest);
    eventually(|| ping(&mut binary, "t").is_ok());
    let mut third = clients(&server, "t");
    assert_eq!(over_rest(&mut third, "GET", "/v1/collections", b"").0, 429);
    drop(grpc);
    eventually(|| over_rest(&mut third, "GET", "/v1/collections", b"").0 == 200);
}

/// Does what [`over_grpc`] does, with a token.
fn over_grpc_as(clients: &Clients, token: &str) -> (u32, String) {
    let path = "/svc.v1.VectorService/ListCollections";
    let framed = crate::common::grpc::framed(b"");
    clients.grpc.send(path, &[("authorization", token)], &[&framed]).unwrap().code()
}

/// Waits for the effect of a connection that closes.
#[track_caller]
fn eventually(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "it does not come to that");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_api_key_that_is_added_again_begins_anew() {
    let server = server(&[]);
    let mut admin = clients(&server, ADMIN);
    let key = json!({"token": "t", "tenant": "*", "scopes": ["*:*"], "requests_per_second": 1000, "connections": 1});
    let add = |admin: &mut Clients| {
        admin.rest.golden("POST", "/v1/admin/keys", &key.to_string(), 201, r#"{"added":true}"#);
    };
    let revoke = |admin: &mut Clients| {
        admin.rest.golden("DELETE", "/v1/admin/keys", r#"{"token":"t"}"#, 200, r#"{"revoked":true}"#);
    };
    let (mut old, mut new) = (server.clients().binary, server.clients().binary);
    let refused =
        Err("rate limited: the API key may have 1 connection; close one, or try again in 1000 ms".to_owned());
    for _ in 0..5 {
        add(&mut admin);
        assert_eq!(ping(&mut old, "t"), Ok(vec![]));
        assert_eq!(ping(&mut new, "t"), refused);
        revoke(&mut admin);
        assert_eq!(ping(&mut new, "t"), Err("status 4".to_owned()));
        add(&mut admin);
        // The old connection counts for the API key that was revoked.
        assert_eq!(ping(&mut new, "t"), Ok(vec![]));
        assert_eq!(ping(&mut old, "t"), refused);
        drop(old);
        // Its end is not counted for the new one.
        let mut other = server.clients().binary;
        sleep(Duration::from_millis(50));
        assert_eq!(ping(&mut other, "t"), refused);
        assert_eq!(ping(&mut new, "t"), Ok(vec![]));
        revoke(&mut admin);
        (old, new) = (new, other);
    }
}

#[test]
fn limits_are_added_and_listed_over_every_transport() {
    let server = server(&[]);
    let mut admin = clients(&server, ADMIN);
    let limits = json!({"requests_per_second": 100, "bytes_per_second": 1_000_000, "connections": 4});
    let new = |token: &str| {
        let mut key = json!({"token": token, "tenant": "*", "scopes": ["read:*"]});
        key.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        key
    };
    admin.rest.golden("POST", "/v1/admin/keys", &new("by rest").to_string(), 201, r#"{"added":true}"#);
    admin.grpc.call("KeysAdd", new("by grpc")).unwrap();
    let args = |token: &str| Args::default().s16(token).s16("*").u16(1).s16("read:*").s16("");
    let limited = args("by tcp").u8(1).u64(100).u64(1_000_000).u64(4);
    admin.binary.ask_as(ADMIN, "__keys_add__", &limited).unwrap();
    admin.binary.ask_as(ADMIN, "__keys_add__", &args("without")).unwrap();
    let keys = admin.rest.json("GET", "/v1/admin/keys", Value::Null)["keys"].as_array().unwrap().clone();
    let over_grpc = admin.grpc.call("KeysList", json!({})).unwrap()["keys"].as_array().unwrap().clone();
    let binary = admin.binary.ask_as(ADMIN, "__keys_list__", &Args::default()).unwrap();
    let in_binary = &binary[binary.len() - 5 * 24..];
    assert_eq!((keys.len(), over_grpc.len()), (5, 5));
    for (at, is_limited) in [false, true, true, true, false].into_iter().enumerate() {
        for (place, name) in
            ["requests_per_second", "bytes_per_second", "connections"].into_iter().enumerate()
        {
            let expected = if is_limited { limits[name].clone() } else { Value::Null };
            assert_eq!(keys[at][name], expected, "{at} {name}");
            assert_eq!(over_grpc[at][name].as_u64(), expected.as_u64(), "{at} {name}");
            let bytes = &in_binary[at * 24 + place * 8..][..8];
            assert_eq!(bytes, expected.as_u64().unwrap_or(0).to_be_bytes(), "{at} {name}");
        }
    }
    for (name, value, reason) in [
        (
            "requests_per_second",
            10_000_001_u64,
            "requests_per_second is 10000001; it must be between 1 and 10000000",
        ),
        ("bytes_per_second", u64::MAX, "bytes_per_second is 18446744073709551615; it must be between 1 and"),
        (
            "connections",
            1_000_001,
            "connections is 1000001; it must be between 1 and 1000000, or 0 for no limit",
        ),
    ] {
        let mut wrong = new("wrong");
        wrong[name] = value.into();
        admin.rest.refused("POST", "/v1/admin/keys", &wrong.to_string(), 400, reason);
        admin.grpc.refused("KeysAdd", wrong, 3, reason);
    }
    let wrong = r#"{"token": "t", "tenant": "*", "connections": -1}"#;
    admin.rest.refused("POST", "/v1/admin/keys", wrong, 400, "field \"connections\"");
    let wrong = args("t").u8(1).u64(0).u64(0).u64(1_000_001);
    let refusal = admin.binary.ask_as(ADMIN, "__keys_add__", &wrong).unwrap_err();
    assert!(refusal.contains("connections is 1000001"), "{refusal}");
}

#[test]
fn requests_with_something_wrong_are_charged_as_well() {
    let one = requests_per_second(1);
    let server = server(&[("rest", one), ("batch", one), ("grpc", one), ("binary", one)]);
    let text = "rate limited: the API key may send 1 request per second; try again in ";
    for (token, path, body) in
        [("rest", "/v1/collections", &b"{"[..]), ("batch", "/v1/aliases/batch", br#"{"actions": [{}]}"#)]
    {
        let mut clients = clients(&server, token);
        assert_eq!(over_rest(&mut clients, "POST", path, body).0, 400);
        let (status, found, retry_after) = over_rest(&mut clients, "POST", path, body);
        assert!(status == 429 && found.starts_with(text), "{status} {found}");
        assert_eq!(retry_after.as_deref(), Some("1"));
    }
    let clients = clients(&server, "grpc");
    let headers = [("authorization", "grpc")];
    // A call without a message.
    let answer = clients.grpc.send("/svc.v1.VectorService/ListCollections", &headers, &[]).unwrap();
    assert_eq!(answer.code().0, 3);
    let (code, found, _) = over_grpc(&clients);
    assert!(code == RESOURCE_EXHAUSTED && found.starts_with(text), "{code} {found}");
    // A long frame is refused by its beginning once the limit is reached.
    let mut binary = server.clients().binary;
    let (put, get) = (Args::default().s16("k").s32(&vec![7; 1 << 20]).u64(0), Args::default().s16("k"));
    assert_eq!(binary.ask_as("binary", "get", &get), Err("status 1".to_owned()));
    let refused = binary.ask_as("binary", "put", &put).unwrap_err();
    assert!(refused.starts_with(text), "{refused}");
    assert_eq!(binary.ask_as(ADMIN, "get", &get), Err("status 1".to_owned()));
}
