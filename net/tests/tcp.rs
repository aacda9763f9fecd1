//! Limits of the binary protocol on slow, silent, greedy and numerous clients, with seconds that are short.

use crate::common::server::options;
use nigh_net::auth::Open;
use nigh_net::bind;
use nigh_net::metrics::Telemetry;
use nigh_net::tcp::counters::Count;
use nigh_net::tcp::{TcpConfig, serve};
use nigh_shard::cores::Placement;
use nigh_shard::start::{Node, Serve};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What waits for the server, or for the machine, gives up after this.
const PATIENCE: Duration = Duration::from_secs(120);

struct Server {
    node: Option<Node>,
    address: SocketAddr,
    telemetry: Arc<Telemetry>,
}

impl Server {
    fn start(configure: impl Fn(&mut TcpConfig)) -> Server {
        let listeners = bind("127.0.0.1:0", 2).unwrap();
        let address = listeners[0].local_addr().unwrap();
        let telemetry = Arc::new(Telemetry::new(2));
        let mut config = TcpConfig::new(Arc::new(Open), telemetry.clone());
        configure(&mut config);
        let listeners = Mutex::new(listeners);
        let serving: Serve = Arc::new(move |core| {
            let listener = listeners.lock().unwrap().pop().unwrap();
            let config = Rc::new(config.clone());
            Box::pin(async move { serve(core, listener, config).await.unwrap() })
        });
        let node = Node::start(options(), &Placement::unpinned(2), serving).unwrap();
        Server { node: Some(node), address, telemetry }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Waits until so many of something have been counted.
    fn wait_for(&self, count: Count, least: u64) {
        let start = Instant::now();
        while self.telemetry.tcp.sum(count) < least {
            assert!(start.elapsed() < PATIENCE, "{count:?} stays at {}", self.telemetry.tcp.sum(count));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until `expected` connections are open. The task of a connection counts its end after the client has seen it.
    fn wait_for_open(&self, expected: u64) {
        let start = Instant::now();
        while self.telemetry.tcp.open() > expected {
            assert!(start.elapsed() < PATIENCE, "{} connections stay open", self.telemetry.tcp.open());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.telemetry.tcp.open(), expected);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            node.stop().unwrap();
        }
    }
}

fn frame(operation: &str, args: &[u8]) -> Vec<u8> {
    let body =
        [&[operation.len() as u8], operation.as_bytes(), &(args.len() as u32).to_be_bytes(), args].concat();
    [&(body.len() as u32).to_be_bytes()[..], &body].concat()
}

fn put(value: &[u8]) -> Vec<u8> {
    frame("put", &[b"\0\x01k", &(value.len() as u32).to_be_bytes()[..], value, &[0; 8]].concat())
}

fn get() -> Vec<u8> {
    frame("get", b"\0\x01k")
}

const OK: [u8; 9] = [0, 0, 0, 5, 0, 0, 0, 0, 0];

#[track_caller]
fn ok(stream: &mut TcpStream, request: &[u8]) {
    stream.write_all(request).unwrap();
    let mut response = [0; 9];
    stream.read_exact(&mut response).unwrap();
    assert_eq!(response, OK);
}

/// Whether the server has ended a connection, reading whatever it had still to say.
fn is_cut(stream: &mut TcpStream) -> bool {
    let mut rest = vec![0; 1 << 16];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}

#[test]
fn silent_connections_end_and_those_that_ask_stay() {
    let server = Server::start(|config| config.second = Duration::from_millis(10));
    let mut silent: Vec<TcpStream> = (0..10).map(|_| server.connect()).collect();
    silent.iter_mut().step_by(2).for_each(|stream| ok(stream, &frame("__ping__", b"")));
    let mut asking = server.connect();
    let start = Instant::now();
    while server.telemetry.tcp.sum(Count::TimedOut) < 10 {
        assert!(start.elapsed() < PATIENCE);
        ok(&mut asking, &frame("__ping__", b""));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(silent.iter_mut().all(is_cut));
    ok(&mut asking, &frame("__ping__", b""));
    server.wait_for_open(1);
    assert_eq!(server.telemetry.tcp.sum(Count::TimedOut), 10);
}

#[test]
fn frames_that_do_not_come_to_an_end_are_cut() {
    let server = Server::start(|config| config.second = Duration::from_millis(10));
    // One that stops, one that drips, one that is to be thrown away and does not come either.
    let mut stopped = server.connect();
    stopped.write_all(&put(&[1; 100])[..50]).unwrap();
    let mut oversize = server.connect();
    oversize.write_all(&(20_u32 << 20).to_be_bytes()).unwrap();
    let mut dripping = server.connect();
    let bytes = put(&[1; 60_000]);
    for byte in &bytes {
        if dripping.write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        if server.telemetry.tcp.sum(Count::TimedOut) == 3 {
            break;
        }
    }
    server.wait_for(Count::TimedOut, 3);
    assert!(is_cut(&mut stopped) && is_cut(&mut oversize) && is_cut(&mut dripping));
    ok(&mut server.connect(), &put(b"1"));
}

#[test]
fn responses_that_nobody_takes_are_cut() {
    let server = Server::start(|config| config.second = Duration::from_millis(10));
    let mut deaf = server.connect();
    ok(&mut deaf, &put(&vec![1; 1 << 20]));
    deaf.write_all(&get().repeat(200)).unwrap();
    server.wait_for(Count::TimedOut, 1);
    assert!(is_cut(&mut deaf));
    assert!(server.telemetry.tcp.sum(Count::BytesSent) < 200 << 20);
    server.wait_for_open(0);
}

#[test]
fn no_more_connections_than_may_be() {
    let server = Server::start(|config| config.max_connections = 3);
    let mut open: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
    open.iter_mut().for_each(|stream| ok(stream, &frame("__ping__", b"")));
    for refused in 1..=5 {
        assert!(is_cut(&mut server.connect()));
        server.wait_for(Count::Refused, refused);
    }
    open.iter_mut().for_each(|stream| ok(stream, &frame("__ping__", b"")));
    open.pop();
    server.wait_for_open(2);
    ok(&mut server.connect(), &frame("__ping__", b""));
}

#[test]
fn frames_wait_outside_when_the_process_holds_enough() {
    let server = Server::start(|config| config.max_body_bytes = 1 << 20);
    let mut greedy = server.connect();
    let mut sending = greedy.try_clone().unwrap();
    let all = [put(b"before"), put(&vec![1; 4 << 20]), put(b"behind"), get()].concat();
    let sender = std::thread::spawn(move || sending.write_all(&all));
    let refusal = "too many request bytes in flight; try again";
    let mut responses = vec![0; 9 + 9 + 2 + refusal.len() + 9 + 9 + b"behind".len()];
    greedy.read_exact(&mut responses).unwrap();
    sender.join().unwrap().unwrap();
    assert_eq!(responses[..9], OK);
    assert!(responses[9 + 9 + 2..].starts_with(refusal.as_bytes()));
    assert!(responses.ends_with(b"behind"));
    drop(greedy);
    // What it held is free when the server has seen that it is gone.
    server.wait_for_open(0);
    ok(&mut server.connect(), &put(&vec![1; 300_000]));
}
