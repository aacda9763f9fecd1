//! The HTTP server over real sockets, with a handler that says back what it read.
use crate::common::{answer, is_closed, line, post, send};
use http::request::Parts;
use http::{Response, StatusCode};
use nigh_net::auth::Open;
use nigh_net::http::{BodyReader, Handler, HttpConfig, Reply, ReplyBody, bind, json_reply, serve_with};
use nigh_net::limits::CONNECTION_BYTES;
use nigh_net::metrics::Telemetry;
use nigh_shard::account::Account;
use nigh_shard::cores::Placement;
use nigh_shard::runtime::{Cluster, CoreMain, CoreRuntime};
use nigh_shard::start::RealEnv;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Bytes `/limited` takes.
const LIMIT: u64 = 100_000;

struct Echo {
    runtime: CoreRuntime,
}

impl Handler for Echo {
    async fn handle(&self, head: Parts, mut body: BodyReader) -> Reply {
        match head.uri.path() {
            "/unread" => json_reply(StatusCode::UNAUTHORIZED, ReplyBody::whole(&b"no\n"[..])),
            "/slow" => {
                self.runtime.sleep_us(300_000).await;
                Response::new(ReplyBody::whole(&b"slow\n"[..]))
            }
            "/pages" => {
                let pages = (0..100).map(|page| Ok(format!("{page},").repeat(1_000).into()));
                Response::new(ReplyBody::pages(futures_lite::stream::iter(pages)))
            }
            "/broken" => {
                let pages = [Ok("part".into()), Err(io::Error::other("lost"))];
                Response::new(ReplyBody::pages(futures_lite::stream::iter(pages)))
            }
            "/limited" => {
                let read = match body.limit(LIMIT) {
                    Ok(()) => body.whole().await,
                    Err(error) => Err(error),
                };
                match read {
                    Ok(read) => Response::new(ReplyBody::whole(format!("{}\n", read.len()))),
                    Err(_) => json_reply(StatusCode::PAYLOAD_TOO_LARGE, ReplyBody::whole(&b"big\n"[..])),
                }
            }
            _ => match body.whole().await {
                Ok(read) => {
                    let read = read.joined();
                    let sum: u64 = read.iter().map(|byte| u64::from(*byte)).sum();
                    let answer = format!("{} {} {sum}\n", head.uri.path(), read.len());
                    Response::new(ReplyBody::whole(answer))
                }
                Err(error) => json_reply(StatusCode::BAD_REQUEST, ReplyBody::whole(format!("{error}\n"))),
            },
        }
    }
}

struct Server {
    cluster: Option<Cluster>,
    address: SocketAddr,
}

impl Server {
    fn start(change: impl Fn(&mut HttpConfig) + Send + Sync + 'static) -> Server {
        Server::start_within(1 << 30, change)
    }

    /// One with so many bytes of memory.
    fn start_within(memory_bytes: u64, change: impl Fn(&mut HttpConfig) + Send + Sync + 'static) -> Server {
        let listeners = bind("127.0.0.1:0", 1).unwrap();
        let address = listeners[0].local_addr().unwrap();
        let listeners = Arc::new(Mutex::new(listeners));
        let telemetry = Arc::new(Telemetry::new(1));
        let account = Account::new(memory_bytes);
        let main: CoreMain = Arc::new(move |runtime| {
            let listener = listeners.lock().unwrap().pop().unwrap();
            let mut config = HttpConfig::new(Arc::new(Open), telemetry.clone());
            change(&mut config);
            let account = account.clone();
            Box::pin(async move {
                let handler = Rc::new(Echo { runtime: runtime.clone() });
                serve_with(RealEnv::new(runtime, None), listener, handler, Rc::new(config), account)
                    .await
                    .unwrap();
            })
        });
        let placement = Placement::unpinned(1);
        Server { cluster: Some(Cluster::start(&placement, main).unwrap()), address }
    }

    fn connect(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        BufReader::new(stream)
    }

    fn stop(&mut self) {
        if let Some(cluster) = self.cluster.take() {
            cluster.stop().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn keep_alive_pipelining_and_head() {
    let server = Server::start(|_| {});
    let mut stream = server.connect();
    for _ in 0..3 {
        send(&mut stream, post("/a", b"abc"));
        assert_eq!(answer(&mut stream, true).unwrap().text(), "/a 3 294\n");
    }
    let batch: Vec<u8> = (0..50).flat_map(|number| post(&format!("/{number}"), b"x")).collect();
    send(&mut stream, batch);
    for number in 0..50 {
        assert_eq!(answer(&mut stream, true).unwrap().text(), format!("/{number} 1 120\n"));
    }
    send(&mut stream, "HEAD /h HTTP/1.1\r\nhost: x\r\n\r\nGET /g HTTP/1.1\r\nhost: x\r\n\r\n");
    let head = answer(&mut stream, false).unwrap();
    assert_eq!((head.status, head.header("content-length")), (200, Some("7")));
    assert_eq!(answer(&mut stream, true).unwrap().text(), "/g 0 0\n");
}

#[test]
fn bodies_chunked_split_and_expected() {
    let server = Server::start(|_| {});
    let mut stream = server.connect();
    send(&mut stream, "POST /c HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n");
    std::thread::sleep(Duration::from_millis(20));
    send(&mut stream, "2;ext=1\r\nde\r\n0\r\ntrailer: 1\r\n\r\n");
    assert_eq!(answer(&mut stream, true).unwrap().text(), "/c 5 495\n");

    for byte in post("/slowly", b"12345") {
        send(&mut stream, [byte]);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(answer(&mut stream, true).unwrap().text(), "/slowly 5 255\n");

    send(&mut stream, "POST /e HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n");
    assert_eq!(line(&mut stream).unwrap(), "HTTP/1.1 100 Continue");
    assert_eq!(line(&mut stream).unwrap(), "");
    send(&mut stream, "ab");
    assert_eq!(answer(&mut stream, true).unwrap().text(), "/e 2 195\n");

    // A refusal that needs no body comes instead of the invitation to send it.
    send(
        &mut stream,
        "POST /unread HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n",
    );
    assert_eq!(answer(&mut stream, true).unwrap().status, 401);
}

#[test]
fn large_bodies_both_ways() {
    let server = Server::start(|_| {});
    let mut stream = server.connect();
    let body = vec![1_u8; 20 << 20];
    let writer = stream.get_ref().try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (&writer).write_all(&post("/big", &body)).unwrap());
        assert_eq!(answer(&mut stream, true).unwrap().text(), format!("/big {0} {0}\n", body.len()));
    });
    send(&mut stream, "GET /pages HTTP/1.1\r\nhost: x\r\n\r\n");
    let pages = answer(&mut stream, true).unwrap();
    let expected: String = (0..100).map(|page| format!("{page},").repeat(1_000)).collect();
    assert!(pages.text() == expected);
    send(&mut stream, post("/after", b""));
    assert_eq!(answer(&mut stream, true).unwrap().text(), "/after 0 0\n");
}

#[test]
fn a_failure_while_streaming_is_no_complete_answer() {
    let server = Server::start(|_| {});
    let mut stream = server.connect();
    send(&mut stream, "GET /broken HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut all = String::new();
    let _ = stream.read_to_string(&mut all);
    assert!(!all.contains("\r\n0\r\n\r\n"), "{all}");
}

/// The client of a refused upload writes to the end before it reads: the answer must survive that.
#[test]
fn refused_uploads_get_their_answer() {
    let server = Server::start(|_| {});
    for path in ["/limited", "/unread"] {
        for chunked in [false, true] {
            let mut stream = server.connect();
            let body = vec![b'x'; 8 << 20];
            if chunked {
                send(
                    &mut stream,
                    format!("POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"),
                );
                for chunk in body.chunks(1 << 16) {
                    send(&mut stream, format!("{:x}\r\n", chunk.len()));
                    send(&mut stream, chunk);
                    send(&mut stream, "\r\n");
                }
                send(&mut stream, "0\r\n\r\n");
            } else {
                send(&mut stream, post(path, &body));
            }
            let answer =
                answer(&mut stream, true).unwrap_or_else(|error| panic!("{path} {chunked}: {error}"));
            assert!([401, 413].contains(&answer.status));
        }
    }
    let mut stream = server.connect();
    send(&mut stream, post("/limited", &vec![b'x'; LIMIT as usize]));
    assert_eq!(answer(&mut stream, true).unwrap().text(), "100000\n");
}

/// Clients send head and body in two pieces, and do not repeat a write on a pooled connection that was closed: one that was refused
/// before its body came must find the connection open, or be told that it is not.
#[test]
fn a_refusal_before_the_body_keeps_the_connection() {
    const DRAINED: usize = nigh_net::limits::BODY_DRAINED_MAX_BYTES as usize;
    let server = Server::start(|_| {});
    let mut stream = server.connect();
    for (length, pieces) in [(2, 1), (1, 1), (5, 5), (DRAINED, 1), (DRAINED, 7), (2, 2)] {
        send(&mut stream, format!("POST /unread HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n"));
        let refused = answer(&mut stream, true).unwrap();
        assert_eq!((refused.status, refused.header("connection")), (401, None), "{length}");
        // The server refuses a bare line feed in a head, so this shows that the body is not taken for one.
        let body = vec![b'\n'; length];
        for piece in body.chunks(length.div_ceil(pieces)) {
            send(&mut stream, piece);
            std::thread::sleep(Duration::from_millis(2));
        }
        send(&mut stream, post("/next", b"x"));
        assert_eq!(answer(&mut stream, true).unwrap().text(), "/next 1 120\n", "{length}");
    }
    // A request that is refused by its head alone, which no handler sees, keeps its connection as well.
    for length in [2, DRAINED] {
        send(&mut stream, format!("POST /unread HTTP/1.1\r\ncontent-length: {length}\r\n\r\n"));
        let refused = answer(&mut stream, true).unwrap();
        assert_eq!((refused.status, refused.header("connection")), (400, None));
        send(&mut stream, vec![b'\n'; length]);
        send(&mut stream, post("/next", b"x"));
        assert_eq!(answer(&mut stream, true).unwrap().text(), "/next 1 120\n");
    }
    send(&mut stream, "POST /unread HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    assert_eq!(answer(&mut stream, true).unwrap().status, 401);
    // The rest of the body and the next requests come in one piece.
    let rest = [b"2\r\nab\r\n0\r\n\r\n".to_vec(), post("/unread", b"no"), post("/next", b"x")].concat();
    send(&mut stream, rest);
    assert_eq!(answer(&mut stream, true).unwrap().status, 401);
    assert_eq!(answer(&mut stream, true).unwrap().text(), "/next 1 120\n");

    for expect in ["", "expect: 100-continue\r\n"] {
        let length = if expect.is_empty() { DRAINED + 1 } else { 2 };
        let mut stream = server.connect();
        let head = format!("POST /unread HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n{expect}\r\n");
        send(&mut stream, head);
        let refused = answer(&mut stream, true).unwrap();
        assert_eq!((refused.status, refused.header("connection")), (401, Some("close")), "{length}");
        assert!(is_closed(&mut stream));
    }
    // Nobody waits for the body of a request behind which the connection ends anyway.
    for last in ["HTTP/1.1\r\nconnection: Close", "HTTP/1.0"] {
        let mut stream = server.connect();
        send(&mut stream, format!("POST /unread {last}\r\nhost: x\r\ncontent-length: 2\r\n\r\n"));
        assert_eq!(answer(&mut stream, true).unwrap().status, 401);
        assert!(is_closed(&mut stream), "{last}");
    }
    let mut stream = server.connect();
    send(
        &mut stream,
        "POST /unread HTTP/1.1\r\nhost: x\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\n",
    );
    assert_eq!(answer(&mut stream, true).unwrap().header("connection"), None);
    let mut stream = server.connect();
    send(&mut stream, "POST /unread HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    assert_eq!(answer(&mut stream, true).unwrap().status, 401);
    send(&mut stream, format!("{:x}\r\n{}\r\n", DRAINED + 1, "x".repeat(DRAINED + 1)));
    assert!(is_closed(&mut stream), "a body without end");
}

#[test]
fn malformed_and_oversized_heads() {
    let server = Server::start(|_| {});
    for (head, status) in [
        ("nonsense\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nbad header\r\n\r\n".to_owned(), 400),
        ("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\nhost: x\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nhost: x\n\n".to_owned(), 400),
        (format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "y".repeat(70_000)), 414),
        (format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(200)), 431),
        ("GET / HTTP/1.0\r\n\r\n".to_owned(), 200),
        ("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n".to_owned(), 501),
        (format!("GET / HTTP/1.1\r\nhost: x\r\nbig: {}\r\n\r\n", "y".repeat(1 << 20)), 431),
    ] {
        let mut stream = server.connect();
        send(&mut stream, &head);
        let answer = answer(&mut stream, true).unwrap_or_else(|error| panic!("{head:.40}: {error}"));
        assert_eq!(answer.status, status, "{head:.40}");
        if status >= 400 {
            // The parser's own answers have no body.
            assert_eq!(answer.header("content-type"), Some("application/json"), "{head:.40}");
            let error: serde_json::Value = serde_json::from_str(answer.text()).expect(&head[..8]);
            assert!(error["error"].as_str().is_some_and(|text| !text.is_empty()), "{head:.40}");
        }
    }
    let mut stream = server.connect();
    send(&mut stream, format!("GET /big HTTP/1.1\r\nhost: x\r\nbig: {}\r\n\r\n", "y".repeat(900_000)));
    assert_eq!(answer(&mut stream, true).unwrap().status, 200);
    let mut stream = server.connect();
    send(&mut stream, "POST /c HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n");
    assert_eq!(answer(&mut stream, true).unwrap().status, 400);
}

/// Requests that come in one piece are answered in turn, up to the first whose head has a line without a carriage return.
#[test]
fn line_feeds_in_heads_behind_others_are_refused() {
    let server = Server::start(|_| {});
    let good =
        [post("/1", b"{\n}\n\n"), post("/2", b""), b"GET /3 HTTP/1.1\r\nhost: x\r\n\r\n".to_vec()].concat();
    let bad = "GET /4 HTTP/1.1\nhost: x\r\n\r\n";
    for rest in ["GET /5 HTTP/1.1\r\nhost: x\r\n\r\n", ""] {
        let mut stream = server.connect();
        send(&mut stream, [&good[..], bad.as_bytes(), rest.as_bytes()].concat());
        for path in ["/1", "/2", "/3"] {
            assert!(answer(&mut stream, true).unwrap().text().starts_with(path));
        }
        let refused = answer(&mut stream, true).unwrap();
        assert_eq!((refused.status, refused.header("connection")), (400, Some("close")));
        assert!(refused.text().contains("line feed"), "{}", refused.text());
        assert!(is_closed(&mut stream));
    }
    // A head of which only a part came with the request before it.
    let mut stream = server.connect();
    send(&mut stream, [&good[..], b"GET /4 HTTP/1.1\r\nhost: x"].concat());
    for path in ["/1", "/2", "/3"] {
        assert!(answer(&mut stream, true).unwrap().text().starts_with(path));
    }
    send(&mut stream, "\nx: y\r\n\r\n");
    assert_eq!(answer(&mut stream, true).unwrap().status, 400);
}

#[test]
fn half_closed_and_abandoned_clients() {
    let server = Server::start(|_| {});
    let mut stream = server.connect();
    send(&mut stream, post("/half", b"x"));
    stream.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(answer(&mut stream, true).unwrap().text(), "/half 1 120\n");
    assert!(is_closed(&mut stream));
    for _ in 0..20 {
        let mut stream = server.connect();
        send(&mut stream, "POST /gone HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nabc");
    }
    let mut stream = server.connect();
    send(&mut stream, "GET /alive HTTP/1.0\r\n\r\n");
    assert_eq!(answer(&mut stream, true).unwrap().text(), "/alive 0 0\n");
    assert!(is_closed(&mut stream));
}

/// With seconds of 5 ms, silent and dripping clients are cut while a slow upload that makes progress is not.
#[test]
fn slow_clients_are_cut_and_steady_ones_are_not() {
    let server = Server::start(|config| config.second = Duration::from_millis(5));
    let mut silent = server.connect();
    let mut half_a_head = server.connect();
    send(&mut half_a_head, "GET / HT");
    let mut half_a_body = server.connect();
    send(&mut half_a_body, "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc");
    let mut refused = server.connect();
    send(&mut refused, "POST /unread HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc");
    assert_eq!(answer(&mut refused, true).unwrap().status, 401);
    let mut idle = server.connect();
    send(&mut idle, post("/idle", b""));
    assert_eq!(answer(&mut idle, true).unwrap().status, 200);

    // 200 KiB earn 200 seconds, one of our seconds each; this takes about 150 of them, more than a body may wait at first.
    let mut steady = server.connect();
    send(&mut steady, format!("POST /steady HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", 200 << 10));
    for _ in 0..50 {
        send(&mut steady, vec![0; 4 << 10]);
        std::thread::sleep(Duration::from_millis(15));
    }
    assert_eq!(answer(&mut steady, true).unwrap().text(), "/steady 204800 0\n");
    for (name, stream) in [
        ("silent", &mut silent),
        ("head", &mut half_a_head),
        ("body", &mut half_a_body),
        ("refused", &mut refused),
        ("idle", &mut idle),
    ] {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(!rest.starts_with(b"HTTP/1.1 200"), "{name}");
    }
}

#[test]
fn connections_beyond_the_cap_are_told() {
    connections_beyond_two(&Server::start(|config| config.max_connections_per_core = 2));
}

/// A sixteenth of the memory is for connections.
#[test]
fn connections_that_memory_does_not_allow_are_told() {
    connections_beyond_two(&Server::start_within(2 * 16 * CONNECTION_BYTES, |_| {}));
}

fn connections_beyond_two(server: &Server) {
    let mut kept: Vec<_> = (0..2).map(|_| server.connect()).collect();
    for stream in &mut kept {
        send(stream, post("/kept", b""));
        assert_eq!(answer(stream, true).unwrap().status, 200);
    }
    let refused = answer(&mut server.connect(), true).unwrap();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    drop(kept);
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut stream = server.connect();
        let _ = stream.get_mut().write_all(&post("/again", b""));
        if answer(&mut stream, true).is_ok_and(|answer| answer.status == 200) {
            break;
        }
        assert!(Instant::now() < deadline, "places are not freed");
    }
}

#[test]
fn stopping_finishes_what_is_in_flight() {
    let mut server = Server::start(|_| {});
    let mut idle = server.connect();
    send(&mut idle, post("/idle", b""));
    answer(&mut idle, true).unwrap();
    let _silent = server.connect();
    let mut busy = server.connect();
    send(&mut busy, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n");
    std::thread::sleep(Duration::from_millis(100));
    let started = Instant::now();
    let finished = std::thread::spawn(move || {
        let text = answer(&mut busy, true).unwrap().text().to_owned();
        (text, is_closed(&mut busy))
    });
    server.stop();
    assert_eq!(finished.join().unwrap(), ("slow\n".to_owned(), true));
    assert!(is_closed(&mut idle));
    assert!(started.elapsed() < Duration::from_secs(5), "idle clients hold up the stop");
    assert!(TcpStream::connect(server.address).is_err());
}

/// Uploads beyond what the process may hold at a time are refused, and their bytes are given back.
#[test]
fn bodies_in_memory_are_bounded() {
    let server = Server::start(|config| config.max_body_bytes = 1 << 20);
    let mut slow = server.connect();
    send(
        &mut slow,
        format!("POST /slow-upload HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", 900 << 10),
    );
    send(&mut slow, vec![0; 800 << 10]);
    std::thread::sleep(Duration::from_millis(100));
    let mut second = server.connect();
    send(&mut second, post("/second", &vec![0; 500 << 10]));
    let refused = answer(&mut second, true).unwrap();
    assert_eq!(refused.status, 400, "this handler knows no other failure");
    assert!(refused.text().contains("too many request bytes in flight"), "{}", refused.text());
    let mut small = server.connect();
    send(&mut small, post("/small", b"abc"));
    assert_eq!(answer(&mut small, true).unwrap().text(), "/small 3 294\n");
    send(&mut slow, vec![0; 100 << 10]);
    assert_eq!(answer(&mut slow, true).unwrap().text(), "/slow-upload 921600 0\n");
    let mut third = server.connect();
    send(&mut third, post("/third", &vec![0; 900 << 10]));
    assert_eq!(answer(&mut third, true).unwrap().text(), "/third 921600 0\n");
}
