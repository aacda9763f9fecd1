//! Whole servers over TLS: every transport, client certificates, rotation of certificates, and clients that do not speak TLS.
use super::authority::{Ca, TLS12, TLS13, World, client, connect, world, world_with};
use super::bridge::bridge;
use crate::common::server::options;
use crate::transports::{Args, Clients, Over, Server};
use nigh_net::auth::keys_file::Key;
use nigh_net::auth::registry::{KeysStore, RegistrySettings};
use nigh_net::auth::{Authenticator, Open, Registry};
use nigh_net::tcp::Loops;
use nigh_net::tls::{Tls, TlsConfig, TlsTexts};
use rcgen::KeyPair;
use rustls::{ClientConfig, StreamOwned, SupportedProtocolVersion};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A store that discards what is written.
struct Forgetful;

impl KeysStore for Forgetful {
    fn replace(&self, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }
}

fn start(world: &World, auth: Arc<dyn Authenticator>, loops: Loops) -> (Server, Arc<Tls>) {
    let tls = Arc::new(Tls::new(TlsConfig::new(&world.texts).unwrap()));
    let over = Over { tls: Some(tls.clone()), loops, ..Over::default() };
    (Server::start_over(auth, options(), over), tls)
}

/// Clients of each transport that speak TLS as `config` says, each with the name of its protocol.
fn clients(server: &Server, config: impl Fn(&[&str]) -> ClientConfig) -> Clients {
    let [rest, binary, calls] = server.addresses();
    let secure = |at: SocketAddr, names: &[&str]| bridge(at, &Arc::new(config(names)));
    Clients::connect([secure(rest, &["http/1.1"]), secure(binary, &[]), secure(calls, &["h2"])])
}

/// Writes and reads long and short things over every transport.
fn use_all(clients: &mut Clients, name: &str) {
    clients.rest.json("POST", "/v1/collections", json!({"name": name, "config": {"dim": 256}}));
    let vector = |id: u64| (0..256).map(|at| ((id * 31 + at) % 17) as f32).collect::<Vec<f32>>();
    let points: Vec<Value> = (0..2000).map(|id| json!({"id": id, "vector": vector(id)})).collect();
    // A body of more than a megabyte, and answers of as much.
    let path = format!("/v1/collections/{name}/points/batch");
    let written = clients.rest.json("POST", &path, json!({"points": points}));
    assert_eq!(written["count"], 2000, "{written}");
    let ids: Vec<u64> = (0..2000).collect();
    let path = format!("/v1/collections/{name}/points/batch-get");
    let read = clients.rest.json("POST", &path, json!({"ids": ids, "with_vector": true}));
    assert_eq!(read.as_object().unwrap().values().next().unwrap().as_array().unwrap().len(), 2000);
    let found = clients.grpc.call("Search", json!({"collection": name, "query": vector(7), "k": 3})).unwrap();
    assert_eq!(found["results"].as_array().unwrap().len(), 3, "{found}");
    // Many frames at once, whose answers are longer than what a session may hold.
    let get = Args::on(name).u64(7).u8(1);
    let pipelined: Vec<(&str, &Args)> = (0..500).map(|_| ("vector_get", &get)).collect();
    let answers = clients.binary.send(&pipelined);
    for answer in answers {
        assert!(answer.as_ref().is_ok_and(|found| found.len() > 1000), "{answer:?}");
    }
}

#[test]
fn every_transport_speaks_tls() {
    for (versions, loops) in [(TLS13, Loops::Readiness), (TLS12, Loops::Completion)] {
        let world = world(None);
        let (server, _) = start(&world, Arc::new(Open), loops);
        let mut clients = clients(&server, |names| client(&world.ca, versions, None, names));
        use_all(&mut clients, "docs");
        // Connections are there for long, and others come.
        for round in 0..3 {
            let mut others = self::clients(&server, |names| client(&world.ca, versions, None, names));
            use_all(&mut others, &format!("more{round}"));
        }
        let metrics = clients.rest.request("GET", "/v1/metrics", "application/json", b"").text().to_owned();
        // Four clients on three transports, which go on with the session of an earlier one where they may.
        let count = |result: &str| {
            let line = metrics
                .lines()
                .find(|line| line.contains(&format!("tls_handshakes_total{{result=\"{result}\"}}")));
            line.unwrap().rsplit(' ').next().unwrap().parse::<u64>().unwrap()
        };
        assert_eq!((count("full") + count("resumed"), count("failed"), count("refused")), (12, 0, 0));
    }
}

/// Whether requests without a token are accepted, for each transport.
fn is_let_in(clients: &mut Clients) -> [bool; 3] {
    let rest = clients.rest.request("GET", "/v1/collections/docs/points/1", "application/json", b"");
    let binary = clients.binary.status_of(None, "vector_get", &Args::on("docs").u64(1).u8(0));
    let grpc = clients.grpc.call("Get", json!({"collection": "docs", "id": 1})).unwrap_err().0;
    [rest.status != 401, binary != 4, grpc != 16]
}

#[test]
fn a_client_certificate_stands_for_a_key() {
    let world = world(Some(false));
    let keys = vec![Key::new(b"token", "*", vec!["read:*".to_owned()], "worker")];
    let registry = Registry::new(keys, Box::new(Forgetful), RegistrySettings::default()).unwrap();
    let (server, _) = start(&world, Arc::new(registry), Loops::Readiness);
    let connected = |identity: Option<&str>, versions: &[&'static SupportedProtocolVersion]| {
        let identity = identity.map(|name| world.client_ca.client(name));
        clients(&server, |names| client(&world.ca, versions, identity.as_ref(), names))
    };
    for versions in [TLS12, TLS13] {
        let mut worker = connected(Some("worker"), versions);
        assert_eq!(is_let_in(&mut worker), [true; 3]);
        // A token decides where there is one, and a wrong one is not made good by the certificate.
        worker.rest.token = Some("nobody".to_owned());
        let path = "/v1/collections/docs/points/1";
        assert_eq!(worker.rest.request("GET", path, "application/json", b"").status, 401);
        let args = Args::on("docs").u64(1).u8(0);
        assert_eq!(worker.binary.status_of(Some("nobody"), "vector_get", &args), 4);
        assert_ne!(worker.binary.status_of(None, "vector_get", &args), 4);
        assert_eq!(worker.binary.status_of(None, "vector_delete", &args), 4, "the key may only read");
        assert_eq!(is_let_in(&mut connected(Some("stranger"), versions)), [false; 3]);
        assert_eq!(is_let_in(&mut connected(None, versions)), [false; 3]);
    }
}

#[test]
fn clients_without_a_trusted_certificate_are_refused_if_one_is_required() {
    let world = world(Some(true));
    let (server, _) = start(&world, Arc::new(Open), Loops::Readiness);
    let [rest, ..] = server.addresses();
    let foreign = Ca::new("another root").client("worker");
    for identity in [None, Some(&foreign)] {
        let config = Arc::new(client(&world.ca, TLS12, identity, &["http/1.1"]));
        let mut stream = TcpStream::connect(rest).unwrap();
        assert!(connect(&config).complete_io(&mut stream).is_err());
    }
    let own = world.client_ca.client("worker");
    use_all(&mut clients(&server, |names| client(&world.ca, TLS13, Some(&own), names)), "docs");
}

/// What a server sends back until it closes.
fn answer_to(at: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

#[test]
fn plain_text_is_refused_in_plain_text() {
    let world = world(None);
    let (server, _) = start(&world, Arc::new(Open), Loops::Readiness);
    let [rest, binary, calls] = server.addresses();
    let answer = String::from_utf8(answer_to(rest, b"GET /v1/health HTTP/1.1\r\nhost: a\r\n\r\n")).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400 ") && head.contains(&format!("content-length: {}", body.len())));
    assert!(body.contains("this port expects TLS"), "{body}");
    let frame = answer_to(binary, b"\0\0\0\x0a\x04ping\0\0\0\0\0");
    assert!(frame.ends_with(b"this port expects TLS"), "{frame:?}");
    assert_eq!(answer_to(calls, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), b"");
    // A malformed TLS record is answered with an alert.
    let alert = answer_to(rest, &[22, 3, 1, 0, 5, 1, 0, 0, 1, 9]);
    assert_eq!(alert[0], 21, "{alert:?}");
    // The server still serves other clients.
    use_all(&mut clients(&server, |names| client(&world.ca, TLS13, None, names)), "docs");
}

/// Sets a flag when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn clients_are_told_the_end() {
    let world = world(None);
    for loops in [Loops::Readiness, Loops::Completion] {
        let (server, _) = start(&world, Arc::new(Open), loops);
        let secure = |at: SocketAddr| {
            let stream = TcpStream::connect(at).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            StreamOwned::new(connect(&Arc::new(client(&world.ca, TLS13, None, &[]))), stream)
        };
        let [rest, binary, _] = server.addresses();
        let (mut answer, mut stream) = (Vec::new(), secure(rest));
        stream.write_all(b"GET /v1/health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
        // A connection that ends without the end of TLS is an error here.
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"));
        let (mut answer, mut stream) = (Vec::new(), secure(binary));
        stream.write_all(b"\0\0\0\x09\x04ping\0\0\0\0").unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        stream.read_to_end(&mut answer).unwrap();
        assert!(!answer.is_empty());
    }
}

/// A client that takes nothing would otherwise hold what it has asked for as long as it likes.
#[test]
fn clients_that_take_nothing_are_cut() {
    let world = world(None);
    let tls = Some(Arc::new(Tls::new(TlsConfig::new(&world.texts).unwrap())));
    // 120 such seconds are 1.2 s.
    let over = Over { tls, second: Duration::from_millis(10), ..Over::default() };
    let server = Server::start_over(Arc::new(Open), options(), over);
    let [rest, _, calls] = server.addresses();
    let mut others = clients(&server, |names| client(&world.ca, TLS13, None, names));
    use_all(&mut others, "docs");
    let secure = |at: SocketAddr, name| {
        let config = Arc::new(client(&world.ca, TLS13, None, &[name]));
        StreamOwned::new(connect(&config), TcpStream::connect(at).unwrap())
    };
    let mut by_rest = secure(rest, "http/1.1");
    let body = json!({"ids": (0..2000).collect::<Vec<u64>>(), "with_vector": true}).to_string();
    let head = format!(
        "POST /v1/collections/docs/points/batch-get HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    // The kernel has no buffers for that many answers, so the server has to keep the rest.
    let asking = (head + &body).repeat(20);
    std::thread::spawn(move || {
        // It is cut while it is still asking.
        let _cut = by_rest.write_all(asking.as_bytes()).and_then(|()| by_rest.flush());
        std::thread::sleep(Duration::from_secs(120));
    });
    let mut by_grpc = secure(calls, "h2");
    by_grpc.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    by_grpc.flush().unwrap();
    // Pings, whose answers it does not take: 8 bytes each, and as many come back.
    std::thread::spawn(move || {
        let pings = [&b"\0\0\x08\x06\0\0\0\0\0"[..], &[7; 8]].concat().repeat(1000);
        while by_grpc.write_all(&pings).and_then(|()| by_grpc.flush()).is_ok() {}
    });
    let began = Instant::now();
    for transport in ["http", "grpc"] {
        let name = format!("{transport}_connections_timed_out_total ");
        loop {
            let metrics =
                others.rest.request("GET", "/v1/metrics", "application/json", b"").text().to_owned();
            let line = metrics.lines().find(|line| !line.starts_with('#') && line.contains(&name)).unwrap();
            if !line.ends_with(" 0") {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{line}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn certificates_rotate_under_load_and_no_request_fails() {
    let world = world(None);
    let (server, tls) = start(&world, Arc::new(Open), Loops::Readiness);
    let mut open = clients(&server, |names| client(&world.ca, TLS13, None, names));
    use_all(&mut open, "docs");
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let is_over = &is_over;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // Both those that are open and those that come.
                open.rest.json("GET", "/v1/collections/docs", Value::Null);
                open.binary.ask("vector_get", &Args::on("docs").u64(1).u8(0)).unwrap();
                open.grpc.call("Get", json!({"collection": "docs", "id": 1})).unwrap();
                let mut fresh = clients(&server, |names| client(&world.ca, TLS13, None, names));
                fresh.rest.json("GET", "/v1/collections/docs", Value::Null);
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Also if this thread fails, as it waits for the other one then.
        let _ends = Ends(is_over);
        for _ in 0..100 {
            let (certificate, key) = world.ca.server(&KeyPair::generate().unwrap());
            let (certificates, key) = (certificate.into_bytes(), key.into_bytes().into());
            let texts =
                TlsTexts { certificates, key, client_roots: None, requires_client_certificate: false };
            let before = asked.load(Ordering::Relaxed);
            tls.replace(TlsConfig::new(&texts).unwrap());
            let began = Instant::now();
            while asked.load(Ordering::Relaxed) == before {
                assert!(began.elapsed() < Duration::from_secs(60), "the load has ended");
                std::thread::yield_now();
            }
        }
    });
    // New connections have the new certificate: one of another authority is trusted by whoever trusts that one alone.
    let other = world_with(None, &KeyPair::generate().unwrap());
    tls.replace(TlsConfig::new(&other.texts).unwrap());
    let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
    let config = Arc::new(client(&world.ca, TLS13, None, &["http/1.1"]));
    assert!(connect(&config).complete_io(&mut stream).is_err());
    clients(&server, |names| client(&other.ca, TLS13, None, names)).rest.json(
        "GET",
        "/v1/health",
        Value::Null,
    );
}
