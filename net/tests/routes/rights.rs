//! Every operation of the table over every transport that has it: refused without the right of its row, let in with it.
use crate::common::asked;
use crate::common::grpc::{GrpcClient, framed};
use crate::common::server::{Client, options};
use nigh_net::auth::scope::Scope;
use nigh_net::auth::{Authenticator, Credentials, Means, Principal, Reason};
use nigh_net::grpc::{self, GrpcConfig};
use nigh_net::metrics::Telemetry;
use nigh_net::op::Action;
use nigh_net::op::table::{GrpcScope, Right, Row, TABLE, grpc_methods};
use nigh_net::tcp::{self, TcpConfig};
use nigh_net::{HttpConfig, bind, serve};
use nigh_shard::cores::Placement;
use nigh_shard::start::{Node, Serve};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The bearer of a token may do what the token names: a right and a resource, as in `Read default/docs`.
struct Named;

impl Authenticator for Named {
    fn identify(&self, credentials: Credentials<'_>, _: u64) -> Result<Arc<Principal>, Reason> {
        let token = std::str::from_utf8(credentials.token.ok_or(Reason::NoPrincipal)?).unwrap();
        let (right, resource) = token.split_once(' ').unwrap_or((token, "*"));
        Ok(Arc::new(Principal {
            scopes: Scope::parse(&format!("{}:{resource}", right.to_lowercase())).into_iter().collect(),
            ..Principal::unrestricted(Means::Key, token)
        }))
    }
}

/// Whether a token for `other` is good for `resource`. One for the node as a whole is good for its collections as well.
fn reaches(other: &str, resource: &str) -> bool {
    other.is_empty() || other == resource
}

/// The token of whoever may do this alone; the resource is empty for the node as a whole.
fn token_for(right: Action, resource: &str) -> String {
    format!("{right:?} {resource}").trim_end().to_owned()
}

const RIGHTS: [Action; 3] = [Action::Read, Action::Write, Action::Admin];
const RESOURCES: [&str; 3] = ["", "default/docs", "default/other"];

/// Where a node serves each transport.
struct Addresses {
    rest: SocketAddr,
    binary: SocketAddr,
    grpc: SocketAddr,
}

/// A node that serves every transport.
fn start() -> (Node, Addresses) {
    let [rest, binary, calls] = [(); 3].map(|()| bind("127.0.0.1:0", 2).unwrap());
    let at = |listeners: &[std::net::TcpListener]| listeners[0].local_addr().unwrap();
    let addresses = Addresses { rest: at(&rest), binary: at(&binary), grpc: at(&calls) };
    let listeners = Mutex::new(rest.into_iter().zip(binary).zip(calls).collect::<Vec<_>>());
    let telemetry = Arc::new(Telemetry::new(2));
    let serving: Serve = Arc::new(move |core| {
        let ((rest, binary), calls) = listeners.lock().unwrap().pop().unwrap();
        let http = HttpConfig::new(Arc::new(Named), telemetry.clone());
        let tcp = TcpConfig::new(Arc::new(Named), telemetry.clone());
        let config = GrpcConfig::new(Arc::new(Named), telemetry.clone());
        Box::pin(async move {
            let rest = serve(core.clone(), rest, Rc::new(http));
            let calls = grpc::serve(core.clone(), calls, Rc::new(config));
            let binary = tcp::serve(core, binary, Rc::new(tcp));
            let zip = futures_lite::future::zip(futures_lite::future::zip(rest, binary), calls);
            let ((rest, binary), calls) = zip.await;
            rest.and(binary).and(calls).unwrap();
        })
    });
    let node = Node::start(options(), &Placement::unpinned(2), serving).unwrap();
    (node, addresses)
}

/// Whether a request over REST is let in.
fn is_let_in(client: &mut Client, method: &str, path: &str, body: &str, token: Option<String>) -> bool {
    client.token = token;
    let answer = client.request(method, path, "application/json", body.as_bytes());
    match answer.status {
        401 => assert_eq!(answer.text(), "{\"error\":\"unauthorized\"}\n"),
        404 => assert_ne!(answer.text(), "{\"error\":\"not found\"}\n", "{method} {path}"),
        _ => {}
    }
    answer.status != 401
}

#[test]
fn every_route_needs_the_right_of_its_row() {
    let (node, addresses) = start();
    let mut client = Client::connect(addresses.rest);
    let mut routes = 0;
    for row in TABLE {
        for route in row.routes() {
            routes += 1;
            let (path, body, is_on_collection) = asked::over_rest(route, "docs");
            let resource = if is_on_collection { "default/docs" } else { "" };
            let mut is_in = |token| is_let_in(&mut client, route.method.name(), &path, &body, token);
            assert_eq!(is_in(None), row.right_of(route).is_none(), "{path} without a token");
            for right in RIGHTS {
                for other in RESOURCES {
                    let token = token_for(right, other);
                    let needs =
                        row.right_of(route).is_none_or(|needed| needed == right && reaches(other, resource));
                    assert_eq!(is_in(Some(token.clone())), needs, "{path} with {token:?}");
                }
            }
        }
    }
    assert!(routes > 50, "{routes} routes");
    node.stop().unwrap();
}

/// The status byte of the response to a request, and the rest of it: lengths of four and two bytes before an error text.
fn ask(stream: &mut TcpStream, operation: &str, token: &str, args: &[u8]) -> (u8, Vec<u8>) {
    let token = if token.is_empty() { vec![] } else { [&[2, token.len() as u8], token.as_bytes()].concat() };
    let name = [&[operation.len() as u8], operation.as_bytes()].concat();
    let body = [&token[..], &name, &(args.len() as u32).to_be_bytes(), args].concat();
    stream.write_all(&[&(body.len() as u32).to_be_bytes()[..], &body].concat()).unwrap();
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    let mut response = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut response).unwrap();
    (response[0], response.split_off(1))
}

const UNAUTHORIZED: u8 = 4;

#[test]
fn every_operation_of_the_binary_protocol_needs_the_right_of_its_row() {
    let (node, addresses) = start();
    let mut stream = TcpStream::connect(addresses.binary).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut operations = 0;
    for row in TABLE {
        let Row { name, right, tcp: Some(at), .. } = *row else {
            let (status, text) = ask(&mut stream, row.name, "Admin", b"");
            assert_eq!((status, &text[6..]), (3, &b"op not registered"[..]), "{}", row.name);
            continue;
        };
        operations += 1;
        // The args of `get` are too short, wherever they stand.
        let inner = b"\x01\x01\x03get\0\0\0\0";
        let (args, is_on_collection) = match right {
            Right::OfInner => (inner.to_vec(), false),
            Right::Of(_) => asked::over_binary(at, "docs"),
        };
        let resource = if is_on_collection { "default/docs" } else { "" };
        let needed = match right {
            Right::Of(right) => right,
            Right::OfInner => Action::Read,
        };
        assert_eq!(ask(&mut stream, name, "", &args).0, UNAUTHORIZED, "{name} without a token");
        for right in RIGHTS {
            for other in RESOURCES {
                let token = token_for(right, other);
                let is_in = ask(&mut stream, name, &token, &args).0 != UNAUTHORIZED;
                assert_eq!(is_in, needed == right && reaches(other, resource), "{name} with {token:?}");
            }
        }
    }
    assert!(operations > 90, "{operations} operations");
    node.stop().unwrap();
}

#[test]
fn every_method_of_grpc_needs_the_right_of_its_row() {
    let (node, addresses) = start();
    let client = GrpcClient::connect(addresses.grpc);
    let is_in = |method: &str, token: Option<String>, message: &[u8]| {
        let header = token.as_deref().map(|token| ("authorization", token));
        let path = format!("/svc.v1.VectorService/{method}");
        let answer = client.send(&path, header.as_slice(), &[&framed(message)]).unwrap();
        let (code, text) = answer.code();
        assert!(code != 16 || text == "unauthorized", "{text}");
        code != 16
    };
    let mut methods = 0;
    for (row, method) in grpc_methods() {
        methods += 1;
        let Right::Of(needed) = row.right else { panic!("{} has an operation inside", row.name) };
        let (message, is_on_collection) = asked::over_grpc(&method, "docs");
        let (message, resource) = (&message[..], if is_on_collection { "default/docs" } else { "" });
        let is_open = method.on == GrpcScope::Open;
        assert_eq!(is_in(method.name, None, message), is_open, "{} without a token", method.name);
        for right in RIGHTS {
            for other in RESOURCES {
                let token = token_for(right, other);
                let needs = is_open || (needed == right && reaches(other, resource));
                assert_eq!(
                    is_in(method.name, Some(token.clone()), message),
                    needs,
                    "{} with {token:?}",
                    method.name
                );
                // What cannot be told needs the most: no collection, a name that is none, no message at all.
                for untold in [&b""[..], b"\x0a\x00", b"\x0a\x01\xff", b"\x0a", b"\xff"] {
                    let needs = match method.on {
                        GrpcScope::Collection | GrpcScope::Names => (right, other) == (Action::Admin, ""),
                        _ => needs,
                    };
                    assert_eq!(
                        is_in(method.name, Some(token.clone()), untold),
                        needs,
                        "{} {untold:?}",
                        method.name
                    );
                }
            }
        }
    }
    assert_eq!(methods, 112);
    node.stop().unwrap();
}
