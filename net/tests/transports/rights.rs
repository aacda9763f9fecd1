//! What API keys may do over each transport: each operation of the table, by keys of each scope, of the tenant of the collection and of others; and keys
//! that are added and revoked while connections that show them are open.
use super::{Args, Server};
use crate::common::server::options;
use nigh_net::auth::Registry;
use nigh_net::auth::keys_file::Key;
use nigh_net::auth::registry::{KeysStore, RegistrySettings};
use nigh_net::op::Action;
use nigh_net::op::table::{CollectionAt, GrpcScope, Right, TABLE, grpc_methods};
use serde_json::{Value, json};
use std::sync::Arc;

const COLLECTION: &str = "acme/docs";
const UNAUTHENTICATED: u32 = 16;

/// A store that discards what is written.
struct Forgetful;

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
            let is_on_collection = route.path.contains("{name}");
            let path = route.path.replace("{name}", "acme%2Fdocs").replace("{alias}", "a");
            let path = path.replace("{id}", "1").replace("{space}", "s");
            let Some(right) = row.right_of(route) else {
                client.token = None;
                let answer = client.request(route.method.name(), &path, "application/json", b"{}");
                assert_ne!(answer.status, 401, "{} is open", route.path);
                continue;
            };
            for (token, is_allowed) in verdicts(right, is_on_collection) {
                client.token = token.clone();
                let answer = client.request(route.method.name(), &path, "application/json", b"{}");
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
        let (args, is_on_collection) = match at {
            CollectionAt::Nowhere => (Args::default(), false),
            CollectionAt::First => (Args::on(COLLECTION), true),
            CollectionAt::AfterFlags => (Args::default().u8(0).s8(COLLECTION), true),
        };
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
        let message = match method.on {
            GrpcScope::Open => {
                assert_ne!(code(None, b""), UNAUTHENTICATED, "{} is open", method.name);
                continue;
            }
            GrpcScope::Node => Vec::new(),
            // The first field of the message, a string.
            GrpcScope::Collection => [&[0x0a, COLLECTION.len() as u8], COLLECTION.as_bytes()].concat(),
        };
        let right = match row.right {
            Right::Of(right) => right,
            Right::OfInner => Action::Admin,
        };
        for (token, is_allowed) in verdicts(right, method.on == GrpcScope::Collection) {
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
