//! What API keys may do over each transport: each operation of the table, by keys of each scope, of the tenant of the collection and of others; and keys
//! that are added and revoked while connections that show them are open.
use super::{Args, Server};
use crate::common::asked;
use crate::common::server::options;
use nigh_net::auth::Registry;
use nigh_net::auth::keys_file::Key;
use nigh_net::auth::registry::{KeysStore, RegistrySettings};
use nigh_net::op::Action;
use nigh_net::op::table::{GrpcScope, Right, TABLE, grpc_methods};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const COLLECTION: &str = "acme/docs";
const UNAUTHENTICATED: u32 = 16;

/// A store that discards what is written.
pub struct Forgetful;

impl KeysStore for Forgetful {
    fn replace(&self, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }
}

const ACTIONS: [(&str, Option<Action>); 4] = [
    ("read", Some(Action::Read)),
    ("write", Some(Action::Write)),
    ("admin", Some(Action::Admin)),
    ("*", None),
];

/// A key of these tests.
#[derive(Clone, Copy, Debug)]
enum Bearer {
    /// An API key of the tenant of the collection, whose scope has the pattern `*`.
    Own,
    /// An API key of another tenant, whose scope has the pattern `*`.
    Foreign,
    /// An API key of all tenants, whose scope has the pattern `*`.
    Everybody,
    /// An API key of all tenants, whose scope names the collection.
    Narrow,
}

const BEARERS: [Bearer; 4] = [Bearer::Own, Bearer::Foreign, Bearer::Everybody, Bearer::Narrow];

impl Bearer {
    fn token(self, action: &str) -> String {
        format!("{self:?}-{action}")
    }

    fn key(self, action: &str) -> Key {
        let (tenant, pattern) = match self {
            Bearer::Own => ("acme", "*"),
            Bearer::Foreign => ("other", "*"),
            Bearer::Everybody => ("*", "*"),
            Bearer::Narrow => ("*", COLLECTION),
        };
        Key::new(self.token(action).as_bytes(), tenant, vec![format!("{action}:{pattern}")], "")
    }

    /// Whether it may do what its action allows on the collection, or on the node as a whole.
    fn reaches(self, is_on_collection: bool) -> bool {
        match self {
            Bearer::Own | Bearer::Narrow => is_on_collection,
            Bearer::Foreign => false,
            Bearer::Everybody => true,
        }
    }
}

/// Every token, and whether it allows an operation that needs `right`; the first two are no token and an unknown one.
fn verdicts(right: Action, is_on_collection: bool) -> Vec<(Option<String>, bool)> {
    let mut all = vec![(None, false), (Some("nobody".to_owned()), false)];
    for bearer in BEARERS {
        for (name, action) in ACTIONS {
            let is_allowed = action.is_none_or(|action| action == right) && bearer.reaches(is_on_collection);
            all.push((Some(bearer.token(name)), is_allowed));
        }
    }
    all
}

fn server() -> Server {
    let keys = BEARERS.into_iter().flat_map(|bearer| ACTIONS.map(|(action, _)| bearer.key(action))).collect();
    let settings = RegistrySettings { isolates_tenants: true, ..RegistrySettings::default() };
    let registry = Registry::new(keys, Box::new(Forgetful), settings).unwrap();
    Server::start_as(Arc::new(registry), options())
}

#[test]
fn every_route_asks_for_its_right() {
    let server = server();
    let mut client = server.clients().rest;
    let mut asked = 0;
    for row in TABLE {
        for route in row.routes() {
            let (path, body, is_on_collection) = asked::over_rest(route, COLLECTION);
            let Some(right) = row.right_of(route) else {
                client.token = None;
                let answer = client.request(route.method.name(), &path, "application/json", body.as_bytes());
                assert_ne!(answer.status, 401, "{} is open", route.path);
                continue;
            };
            for (token, is_allowed) in verdicts(right, is_on_collection) {
                client.token = token.clone();
                let answer = client.request(route.method.name(), &path, "application/json", body.as_bytes());
                assert_eq!(
                    answer.status != 401,
                    is_allowed,
                    "{} {} by {token:?}",
                    route.method.name(),
                    route.path
                );
                asked += 1;
            }
        }
    }
    assert!(asked > 1000, "{asked} requests");
}

#[test]
fn every_operation_of_the_binary_protocol_asks_for_its_right() {
    let server = server();
    let mut client = server.clients().binary;
    for row in TABLE {
        let Some(at) = row.tcp else { continue };
        let (args, is_on_collection) = asked::over_binary(at, COLLECTION);
        let args = Args(args);
        let Right::Of(right) = row.right else {
            // The right of what is inside, on what that names.
            let inner = Args::on(COLLECTION).0;
            let args = Args::default().u8(0).u8(1).s8("vector_delete_by_filter").s32(&inner);
            for (token, is_allowed) in verdicts(Action::Write, true) {
                let status = client.status_of(token.as_deref(), row.name, &args);
                assert_eq!(status != 4, is_allowed, "{} by {token:?}", row.name);
            }
            continue;
        };
        for (token, is_allowed) in verdicts(right, is_on_collection) {
            let status = client.status_of(token.as_deref(), row.name, &args);
            assert_eq!(status != 4, is_allowed, "{} by {token:?}", row.name);
        }
    }
}

#[test]
fn every_method_of_grpc_asks_for_its_right() {
    let server = server();
    let client = server.clients().grpc;
    for (row, method) in grpc_methods() {
        let path = format!("/svc.v1.VectorService/{}", method.name);
        let code = |token: Option<&str>, message: &[u8]| {
            let headers: Vec<(&str, &str)> =
                token.map(|token| ("authorization", token)).into_iter().collect();
            let framed = crate::common::grpc::framed(message);
            client.send(&path, &headers, &[&framed]).unwrap().code().0
        };
        if method.on == GrpcScope::Open {
            assert_ne!(code(None, b""), UNAUTHENTICATED, "{} is open", method.name);
            continue;
        }
        let (message, is_on_collection) = asked::over_grpc(&method, COLLECTION);
        let right = match row.right {
            Right::Of(right) => right,
            Right::OfInner => Action::Admin,
        };
        for (token, is_allowed) in verdicts(right, is_on_collection) {
            let code = code(token.as_deref(), &message);
            assert_eq!(code != UNAUTHENTICATED, is_allowed, "{} by {token:?}", method.name);
        }
    }
}

#[test]
fn keys_are_added_listed_and_revoked_over_every_transport() {
    let server = server();
    let mut clients = server.clients();
    let admin = Bearer::Everybody.token("*");
    clients.rest.token = Some(admin.clone());
    clients.grpc.token = Some(admin.clone());
    let keys = BEARERS.len() * ACTIONS.len();
    let listed = |clients: &mut super::Clients| {
        let listed = clients.rest.json("GET", "/v1/admin/keys", Value::Null);
        let mut over_grpc = clients.grpc.call("KeysList", json!({})).unwrap();
        for key in over_grpc["keys"].as_array_mut().unwrap() {
            // A message leaves empty strings out.
            key.as_object_mut().unwrap().entry("cert_cn").or_insert("".into());
        }
        assert_eq!(listed["keys"], over_grpc["keys"]);
        assert!(!listed.to_string().contains("Everybody"), "a token is shown: {listed}");
        let binary = clients.binary.ask_as(&admin, "__keys_list__", &Args::default()).unwrap();
        assert_eq!(binary[..4], (listed["keys"].as_array().unwrap().len() as u32).to_be_bytes());
        listed["keys"].as_array().unwrap().clone()
    };
    assert_eq!(listed(&mut clients).len(), keys);
    let new = |token: &str| json!({"token": token, "tenant": "acme", "scopes": ["read:acme/*"], "cert_cn": "worker"});
    let args = |token: &str| Args::default().s16(token).s16("acme").u16(1).s16("read:acme/*").s16("worker");
    // Each transport adds a key that another one revokes.
    clients.rest.golden("POST", "/v1/admin/keys", &new("by rest").to_string(), 201, r#"{"added":true}"#);
    clients.binary.ask_as(&admin, "__keys_add__", &args("by tcp")).unwrap();
    clients.grpc.call("KeysAdd", new("by grpc")).unwrap();
    let all = listed(&mut clients);
    assert_eq!(all.len(), keys + 3);
    let expected = json!({"tenant": "acme", "scopes": ["read:acme/*"], "cert_cn": "worker"});
    for added in &all[keys..] {
        let mut added = added.clone();
        let fingerprint = added.as_object_mut().unwrap().remove("fingerprint").unwrap();
        assert_eq!((fingerprint.as_str().unwrap().len(), &added), (16, &expected));
    }
    let again = new("by rest").to_string();
    clients.rest.refused("POST", "/v1/admin/keys", &again, 409, "a key with this token exists already");
    clients.grpc.refused("KeysAdd", new("by rest"), 6, "exists already");
    let refused = clients.binary.ask_as(&admin, "__keys_add__", &args("by rest")).unwrap_err();
    assert!(refused.contains("exists already"), "{refused}");
    for (wrong, reason) in [
        (json!({"tenant": "acme"}), "key: token is required"),
        (json!({"token": "t"}), "key: tenant is required"),
        (
            json!({"token": "t", "tenant": "acme", "scopes": ["reads:*"]}),
            "is not a scope: write action:pattern",
        ),
        (json!({"token": "t".repeat(5000), "tenant": "acme"}), "token has 5000 bytes; at most 4096"),
    ] {
        clients.rest.refused("POST", "/v1/admin/keys", &wrong.to_string(), 400, reason);
        clients.grpc.refused("KeysAdd", wrong, 3, reason);
    }
    // An unknown collection is found out only by who may look.
    let docs = Args::on(COLLECTION).u64(1).u8(0);
    let may = |clients: &mut super::Clients, token: &str| {
        let mut rest = server.clients().rest;
        rest.token = Some(token.to_owned());
        let by_rest =
            rest.request("GET", "/v1/collections/acme%2Fdocs/points/1", "application/json", b"").status;
        let by_tcp = clients.binary.status_of(Some(token), "vector_get", &docs);
        assert_eq!(by_rest == 401, by_tcp == 4, "{token}: {by_rest} {by_tcp}");
        by_tcp != 4
    };
    assert!(may(&mut clients, "by rest") && may(&mut clients, "by tcp") && may(&mut clients, "by grpc"));
    clients.grpc.call("KeysRevoke", json!({"token": "by rest"})).unwrap();
    assert!(!may(&mut clients, "by rest") && may(&mut clients, "by tcp"));
    clients.rest.golden("DELETE", "/v1/admin/keys", r#"{"token": "by tcp"}"#, 200, r#"{"revoked":true}"#);
    clients.binary.ask_as(&admin, "__keys_revoke__", &Args::default().s16("by grpc")).unwrap();
    assert!(!may(&mut clients, "by tcp") && !may(&mut clients, "by grpc"));
    clients.rest.refused(
        "DELETE",
        "/v1/admin/keys",
        r#"{"token": "by tcp"}"#,
        404,
        "there is no key with this token",
    );
    clients.grpc.refused("KeysRevoke", json!({"token": "by tcp"}), 5, "there is no key");
    assert_eq!(listed(&mut clients).len(), keys);
}

#[test]
fn a_revoked_key_is_refused_on_connections_that_are_open() {
    let server = server();
    let mut admin = server.clients().rest;
    admin.token = Some(Bearer::Everybody.token("*"));
    let body = json!({"token": "guest", "tenant": "acme", "scopes": ["read:acme/*"]});
    let docs = Args::on(COLLECTION).u64(1).u8(0);
    // Connections of both cores, each of which has shown the key and has been let in.
    let mut guests: Vec<_> = (0..8).map(|_| server.clients()).collect();
    for round in 0..3 {
        admin.golden("POST", "/v1/admin/keys", &body.to_string(), 201, r#"{"added":true}"#);
        for (is_in, change) in [(true, "DELETE"), (false, "")] {
            for guest in &mut guests {
                guest.rest.token = Some("guest".to_owned());
                let path = "/v1/collections/acme%2Fdocs/points/1";
                let by_rest = guest.rest.request("GET", path, "application/json", b"").status;
                let by_tcp = guest.binary.status_of(Some("guest"), "vector_get", &docs);
                guest.grpc.token = Some("guest".to_owned());
                let by_grpc =
                    guest.grpc.call("Get", json!({"collection": COLLECTION, "id": 1})).unwrap_err().0;
                let found = (by_rest != 401, by_tcp != 4, by_grpc != UNAUTHENTICATED);
                assert_eq!(found, (is_in, is_in, is_in), "round {round}: {by_rest} {by_tcp} {by_grpc}");
            }
            if !change.is_empty() {
                admin.golden(change, "/v1/admin/keys", r#"{"token": "guest"}"#, 200, r#"{"revoked":true}"#);
            }
        }
    }
}

/// An API key of one tenant for the aliases of one name and the collections of another.
#[test]
fn a_change_of_an_alias_needs_the_right_on_both_names() {
    let scopes = ["admin:acme/live*", "admin:acme/docs"].map(str::to_owned).to_vec();
    let keys = vec![
        Key::new(b"both", "acme", scopes.clone(), ""),
        Key::new(b"alias", "acme", scopes[..1].to_vec(), ""),
        Key::new(b"collection", "acme", scopes[1..].to_vec(), ""),
        Key::new(b"node", "*", vec!["*:*".to_owned()], ""),
    ];
    let settings = RegistrySettings { isolates_tenants: true, ..RegistrySettings::default() };
    let registry = Registry::new(keys, Box::new(Forgetful), settings).unwrap();
    let server = Server::start_as(Arc::new(registry), options());
    let mut clients = server.clients();
    // An API key that has `admin` on a name can create the collection, over REST as well, where the body has the name.
    let create = |name: &str| json!({"name": name, "config": {"dim": 2}}).to_string();
    clients.rest.token = Some("collection".to_owned());
    for other in ["acme/others", "docs", "other/docs"] {
        clients.rest.refused("POST", "/v1/collections", &create(other), 401, "unauthorized");
    }
    clients.rest.golden("POST", "/v1/collections", &create("acme/docs"), 201, r#"{"name":"acme/docs"}"#);
    // A client without a valid API key learns nothing about the body; one with a valid API key learns what is wrong with it.
    clients.rest.refused("POST", "/v1/collections", "{", 400, "");
    clients.rest.refused("POST", "/v1/aliases", "{}", 400, "alias is required");
    clients.rest.token = Some("nobody".to_owned());
    for path in ["/v1/collections", "/v1/aliases", "/v1/aliases/batch"] {
        clients.rest.refused("POST", path, "{", 401, "unauthorized");
    }
    const UNAUTHORIZED: u8 = 4;
    /// Whether changes of aliases, `(alias, target)`, are allowed over each transport. A change without a target deletes the alias.
    fn may(clients: &mut super::Clients, token: &str, changes: &[(&str, Option<&str>)]) -> bool {
        clients.rest.token = Some(token.to_owned());
        clients.grpc.token = Some(token.to_owned());
        let actions: Vec<Value> = changes
            .iter()
            .map(|(alias, target)| match target {
                Some(target) => json!({"create": {"alias": alias, "collection": target}}),
                None => json!({"delete": {"alias": alias}}),
            })
            .collect();
        let body = json!({"actions": actions}).to_string();
        let by_rest =
            clients.rest.request("POST", "/v1/aliases/batch", "application/json", body.as_bytes()).status;
        let actions: Vec<Value> = changes
            .iter()
            .map(|(alias, target)| {
                json!({"alias": alias, "collection": target.unwrap_or(""), "delete": target.is_none()})
            })
            .collect();
        let by_grpc =
            clients.grpc.call("AliasBatch", json!({"actions": actions})).err().map_or(0, |error| error.0);
        let mut args = Args::default().u32(changes.len());
        for (alias, target) in changes {
            args = args.s16(alias).s16(target.unwrap_or("")).u8(target.is_none().into());
        }
        let by_tcp = clients.binary.status_of(Some(token), "alias_batch", &args);
        let in_envelope = Args::default().u8(0).u8(1).s8("alias_batch").s32(&args.0);
        let enveloped = clients.binary.status_of(Some(token), "__wc__", &in_envelope);
        let mut verdicts = vec![
            by_rest != 401,
            by_grpc != UNAUTHENTICATED,
            by_tcp != UNAUTHORIZED,
            enveloped != UNAUTHORIZED,
        ];
        if let [(alias, target)] = changes {
            let escaped = alias.replace('/', "%2F");
            let (rest, grpc) = match target {
                Some(target) => {
                    let body = json!({"alias": alias, "collection": target});
                    let text = body.to_string();
                    let rest =
                        clients.rest.request("POST", "/v1/aliases", "application/json", text.as_bytes());
                    (rest.status, clients.grpc.call("CreateAlias", body))
                }
                None => {
                    let path = format!("/v1/aliases/{escaped}");
                    let rest = clients.rest.request("DELETE", &path, "application/json", b"");
                    (rest.status, clients.grpc.call("DeleteAlias", json!({"alias": alias})))
                }
            };
            verdicts.extend([rest != 401, grpc.err().map_or(0, |error| error.0) != UNAUTHENTICATED]);
        }
        assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{token} {changes:?}: {verdicts:?}");
        verdicts[0]
    }
    let docs = Some("acme/docs");
    for (changes, expected) in [
        (&[("acme/live", docs)][..], ["both", "node"]),
        (&[("acme/live", docs), ("acme/live2", docs)], ["both", "node"]),
        (&[("acme/live", None), ("acme/live2", None)], ["both alias", "node"]),
        (&[("acme/live", docs), ("acme/other", None)], ["", "node"]),
        (&[("acme/live", docs), ("acme/live2", Some("acme/other"))], ["", "node"]),
        (&[("acme/other", docs)], ["", "node"]),
        // Names without a tenant belong to the tenant `default`.
        (&[("live", Some("docs"))], ["", "node"]),
        (&[], ["", "node"]),
    ] {
        for token in ["both", "alias", "collection", "node", "nobody"] {
            let is_expected =
                expected.iter().flat_map(|tokens| tokens.split(' ')).any(|other| other == token);
            assert_eq!(may(&mut clients, token, changes), is_expected, "{token} {changes:?}");
        }
    }
    // An invalid name, which REST and gRPC refuse as such, does not hide the names after it.
    let hiding = Args::default().u32(3).s16("acme/live").s16("").u8(1).s16("").s16("").u8(1);
    let hiding = hiding.s16("acme/other").s16("").u8(1);
    let in_envelope = Args::default().u8(0).u8(1).s8("alias_batch").s32(&hiding.0);
    for (token, status) in [("both", UNAUTHORIZED), ("alias", UNAUTHORIZED), ("node", 0)] {
        for (operation, args) in [("alias_batch", &hiding), ("__wc__", &in_envelope)] {
            assert_eq!(clients.binary.status_of(Some(token), operation, args), status, "{token} {operation}");
        }
    }
    // To list the aliases of a collection takes `admin` on it; to list all aliases takes `admin` on the node.
    assert!(may(&mut clients, "both", &[("acme/live", docs)]));
    let entry = r#"{"aliases":[{"alias":"acme/live","collection":"acme/docs"}]}"#;
    for (token, of_docs, of_all) in
        [("collection", true, false), ("alias", false, false), ("both", true, false), ("node", true, true)]
    {
        clients.rest.token = Some(token.to_owned());
        clients.grpc.token = Some(token.to_owned());
        for (path, name, is_allowed) in
            [("/v1/aliases?collection=acme%2Fdocs", "acme/docs", of_docs), ("/v1/aliases", "", of_all)]
        {
            match is_allowed {
                true => clients.rest.golden("GET", path, "", 200, entry),
                false => clients.rest.refused("GET", path, "", 401, "unauthorized"),
            };
            let by_grpc = clients.grpc.call("ListAliases", json!({"collection": name}));
            let by_tcp = clients.binary.status_of(Some(token), "alias_list", &Args::default().s16(name));
            assert_eq!((by_grpc.is_ok(), by_tcp == 0), (is_allowed, is_allowed), "{token} {path}");
        }
    }
}

#[test]
fn two_tokens_are_none() {
    let server = server();
    let admin = Bearer::Everybody.token("*");
    let request = |headers: &[(&str, &str)]| {
        let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let bytes = format!("GET /v1/collections HTTP/1.1\r\nhost: a\r\n{lines}connection: close\r\n\r\n");
        let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        std::io::read_to_string(&mut stream).unwrap()
    };
    let one = request(&[("Authorization", &admin)]);
    assert!(one.starts_with("HTTP/1.1 200 "), "{one}");
    for second in [&admin[..], "nobody", ""] {
        for headers in [
            [("Authorization", &admin[..]), ("authorization", second)],
            [("authorization", second), ("Authorization", &admin)],
        ] {
            let two = request(&headers);
            assert!(
                two.starts_with("HTTP/1.1 400 ") && two.contains("only one authorization header"),
                "{two}"
            );
        }
    }
    let client = server.clients().grpc;
    let call = |second: &str| {
        let headers = [("authorization", &admin[..]), ("authorization", second)];
        client.send("/svc.v1.VectorService/ListCollections", &headers, &[&crate::common::grpc::framed(b"")])
    };
    for second in [&admin[..], "nobody"] {
        let (code, text) = call(second).unwrap().code();
        assert!(code == 3 && text.contains("only one authorization header"), "{code} {text}");
    }
}

/// Whether the response at the front of `bytes` refuses its request, and how many bytes it has.
fn is_refused(bytes: &[u8]) -> (bool, usize) {
    let length = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
    (bytes[4] == 4, 4 + length)
}

#[test]
fn a_revoked_key_is_refused_on_pipelined_connections_under_load() {
    const CONNECTIONS: usize = 16;
    const PIPELINE: usize = 64;
    let server = server();
    let mut admin = server.clients().rest;
    admin.token = Some(Bearer::Everybody.token("*"));
    let body = |scope: &str| json!({"token": "guest", "tenant": "*", "scopes": [scope]}).to_string();
    let (stopping, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let frame = {
        let args = Args::default().s16("key").0;
        let body = [&[2, 5], &b"guest"[..], &[3], b"get", &(args.len() as u32).to_be_bytes(), &args].concat();
        [&(body.len() as u32).to_be_bytes()[..], &body].concat()
    };
    let round = frame.repeat(PIPELINE);
    // For each connection, when it was last let in, and since when it has been refused.
    let states: Vec<Mutex<(Option<Instant>, Option<Instant>)>> =
        (0..CONNECTIONS).map(|_| Mutex::default()).collect();
    let load = |state: &Mutex<(Option<Instant>, Option<Instant>)>| {
        let mut stream = TcpStream::connect(server.addresses()[1]).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let (mut received, mut buffer) = (Vec::new(), [0; 1 << 16]);
        while !stopping.load(Ordering::Relaxed) {
            stream.write_all(&round).unwrap();
            let mut answers = 0;
            while answers < PIPELINE {
                let count = stream.read(&mut buffer).unwrap();
                assert!(count > 0, "the connection was closed");
                received.extend_from_slice(&buffer[..count]);
                let (now, mut at) = (Instant::now(), 0);
                let mut state = state.lock().unwrap();
                while received.len() >= at + 5 && received.len() >= at + is_refused(&received[at..]).1 {
                    let (is_out, length) = is_refused(&received[at..]);
                    match is_out {
                        true => state.1 = state.1.or(Some(now)),
                        false => *state = (Some(now), None),
                    }
                    (at, answers) = (at + length, answers + 1);
                }
                received.drain(..at);
            }
            answered.fetch_add(PIPELINE as u64, Ordering::Relaxed);
        }
    };
    /// Ends the load, however the test ends.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _stop = Stop(&stopping);
        for state in &states {
            scope.spawn(|| load(state));
        }
        let all = |is_in: bool, since: Instant| {
            states.iter().all(|state| match *state.lock().unwrap() {
                (let_in, None) => is_in && let_in.is_some_and(|at| at > since),
                (_, Some(_)) => !is_in,
            })
        };
        let settled = |is_in: bool, since: Instant| {
            while !all(is_in, since) {
                assert!(since.elapsed() < Duration::from_secs(20), "not settled: {is_in}");
                std::thread::sleep(Duration::from_millis(1));
            }
            since.elapsed()
        };
        let mut slowest = Duration::ZERO;
        for turn in 0..20 {
            // A change of scopes is a revocation and an addition.
            let wrong = if turn % 2 == 0 { None } else { Some(body("write:*")) };
            admin.golden("POST", "/v1/admin/keys", &body("read:*"), 201, r#"{"added":true}"#);
            settled(true, Instant::now());
            admin.golden("DELETE", "/v1/admin/keys", r#"{"token": "guest"}"#, 200, r#"{"revoked":true}"#);
            let revoked = Instant::now();
            if let Some(wrong) = &wrong {
                admin.golden("POST", "/v1/admin/keys", wrong, 201, r#"{"added":true}"#);
            }
            slowest = slowest.max(settled(false, revoked));
            std::thread::sleep(Duration::from_millis(20));
            assert!(all(false, revoked), "a connection was let in again");
            if wrong.is_some() {
                admin.golden("DELETE", "/v1/admin/keys", r#"{"token": "guest"}"#, 200, r#"{"revoked":true}"#);
            }
        }
        println!(
            "{} requests; the slowest of 20 revocations took {slowest:?}",
            answered.load(Ordering::Relaxed)
        );
        assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    });
    assert!(answered.into_inner() > 1000);
}
