//! Accepting connections on one core and running each as a task.

use super::HttpConfig;
use super::body::{BodyReader, HeldBytes};
use super::connection::{Connection, Phase};
use super::memory::Memory;
use super::refusal::{Refusal, Refused};
use super::reply::{Reply, ReplyBody, crowded, json_reply, refused};
use super::stream::Stream;
use crate::accept::accept_all;
use crate::access_log::{AccessEntry, RequestIds, shortened};
use crate::auth::{Credentials, bearer_token};
use crate::connections::Connections;
use crate::executor;
use crate::limits;
use crate::socket::Socket;
use crate::tls::Protocol;
use crate::tls::handshake::{Handshakes, Outcome};
use crate::trace_context::TraceContext;
use futures_lite::future::or;
use http::header::{
    AUTHORIZATION, CONNECTION, EXPECT, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING,
    X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{StatusCode, Version};
use http_body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use nigh_shard::account::Account;
use nigh_shard::env::Env;
use nigh_shard::runtime::CoreRuntime;
use rustix::net::{SendFlags, Shutdown};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a path and of a method that the access log shows: lines wait in memory for a reader that stalls.
const PATH_LOGGED_BYTES: usize = 1024;
const METHOD_LOGGED_BYTES: usize = 32;
/// The status in the access log of a request whose connection broke before it was answered. Many servers write this number.
const NOT_ANSWERED: &str = "499";

/// Requests of one connection that are answered at most while the server stops, if they have arrived.
const REQUESTS_WHILE_DRAINING: u64 = 64;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Answers requests; one per core.
pub trait Handler: 'static {
    /// Answers one request. The future is dropped when the connection breaks.
    fn handle(&self, head: Parts, body: BodyReader) -> impl Future<Output = Reply>;
}

/// The common name in the certificate of a client, which has been verified. Requests of such a client have it as an extension.
#[derive(Clone, Debug)]
pub struct ClientCertificate(pub Arc<str>);

struct Server<H> {
    env: Rc<dyn Env>,
    handler: Rc<H>,
    config: Rc<HttpConfig>,
    memory: Rc<Memory>,
    connections: Rc<Connections<Connection>>,
    request_ids: RequestIds,
    /// Where connections are secure.
    handshakes: Option<Handshakes>,
}

/// Serves `handler` on `listener` until the process is asked to stop, then drains. Requests and answers take their memory from `account`.
///
/// # Errors
/// When the listener cannot be registered with the reactor.
pub async fn serve_with<H: Handler>(
    env: Rc<dyn Env>,
    listener: TcpListener,
    handler: Rc<H>,
    config: Rc<HttpConfig>,
    account: Arc<Account>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = executor();
    let source = runtime.reactor().register(OwnedFd::from(listener))?;
    let secure = |tls| Handshakes::new(env.clone(), config.telemetry.clone(), tls, Protocol::Http);
    let server = Rc::new(Server {
        env: env.clone(),
        handler,
        memory: Rc::new(Memory::new(account, &config)),
        handshakes: config.tls.clone().map(secure),
        config,
        connections: Rc::new(Connections::default()),
        request_ids: RequestIds::new(),
    });
    let aging = server.clone();
    env.spawn(Box::pin(async move {
        let swept = |timed_out| {
            aging.config.telemetry.core(aging.env.index()).timed_out(timed_out);
            aging.memory.settle();
        };
        aging.connections.keep_sweeping(&*aging.env, aging.config.second, swept).await;
    }));
    let stopped = async {
        env.stopping().await;
        Ok(())
    };
    or(stopped, accept_all(&*env, &source, |socket| admit(&server, &runtime, socket))).await?;
    drop(source);
    server.connections.drain(&*env).await;
    Ok(())
}

/// Starts the task of a new connection, or turns it away.
fn admit<H: Handler>(server: &Rc<Server<H>>, runtime: &CoreRuntime, socket: OwnedFd) {
    let telemetry = server.config.telemetry.core(server.env.index());
    let bytes =
        limits::CONNECTION_BYTES + if server.handshakes.is_some() { limits::TLS_CONNECTION_BYTES } else { 0 };
    let has_place = server.connections.open() < server.config.max_connections_per_core;
    let charge = has_place.then(|| server.memory.account.charge_connection(bytes)).flatten();
    let Some(charge) = charge else {
        telemetry.refused();
        if server.handshakes.is_none() {
            turn_away(&socket);
        }
        return;
    };
    let source = match runtime.reactor().register(socket) {
        Ok(source) => source,
        Err(error) => {
            telemetry.refused();
            tracing::warn!(target: "nigh", %error, "cannot watch a new connection");
            return;
        }
    };
    let connection = Rc::new(Connection::new(Socket::new(source), &server.memory, charge));
    let listed = server.connections.list(connection.clone());
    telemetry.accepted(server.connections.open());
    let server = server.clone();
    server.env.clone().spawn(Box::pin(async move {
        run(&server, connection).await;
        drop(listed);
        server.config.telemetry.core(server.env.index()).open(server.connections.open());
    }));
}

/// Best effort: the socket is new, so its send buffer takes the whole answer.
fn turn_away(socket: &OwnedFd) {
    const ANSWER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
        content-length: 34\r\nretry-after: 1\r\nconnection: close\r\n\r\n{\"error\":\"too many connections\"}\r\n";
    let _sent = rustix::net::send(socket, ANSWER, SendFlags::NOSIGNAL);
}

/// When to tell the parser of a connection to end while the server stops.
///
/// Told between two requests, the parser closes the connection even if the kernel has bytes of the next request, which would reset it. So
/// what has arrived is answered first; a client that always has another request waiting is told after some of them.
#[derive(Default)]
struct End {
    is_told: bool,
    /// The number of requests after which it is told in any case.
    last_request: Option<u64>,
}

impl End {
    /// True once, when the parser is to be told.
    fn is_due(&mut self, is_draining: bool, connection: &Connection) -> bool {
        if !is_draining || self.is_told {
            return false;
        }
        let requests = connection.requests();
        let last = *self.last_request.get_or_insert(requests + REQUESTS_WHILE_DRAINING);
        self.is_told = requests >= last || !connection.has_request_waiting();
        self.is_told
    }
}

/// What a client is told that speaks HTTP where TLS is expected.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n\
    content-length: 64\r\nconnection: close\r\n\r\n{\"error\":\"this port expects TLS; use https:// in the address\"}\r\n";

/// Makes a connection secure. Returns the common name of the client's certificate, if there is one.
///
/// # Errors
/// The handshake failed, and the connection has been told.
async fn secure<H>(
    server: &Server<H>,
    handshakes: &Handshakes,
    connection: &Connection,
) -> Result<Option<ClientCertificate>, ()> {
    let second_us = server.config.second.as_micros() as u64;
    match handshakes.secure(&connection.socket, second_us).await {
        Outcome::Secure(channel) => {
            let name = channel.session().peer_common_name();
            connection.socket.secure(channel);
            connection.enter(Phase::Head);
            return Ok(name.map(|name| ClientCertificate(name.into())));
        }
        Outcome::Plain => connection.socket.send_now(PLAIN_HTTP),
        Outcome::Crowded | Outcome::Failed => {}
    }
    linger(server, connection).await;
    Err(())
}

/// Runs one connection to its end.
async fn run<H: Handler>(server: &Rc<Server<H>>, connection: Rc<Connection>) {
    let certificate = match &server.handshakes {
        None => None,
        Some(handshakes) => match secure(server, handshakes, &connection).await {
            Ok(certificate) => certificate,
            Err(()) => return,
        },
    };
    let service = {
        let (server, connection, certificate) = (server.clone(), connection.clone(), certificate.clone());
        service_fn(move |mut request: Request<Incoming>| {
            if let Some(certificate) = &certificate {
                request.extensions_mut().insert(certificate.clone());
            }
            let refusal = connection.begin_request(request.body().size_hint().exact());
            Box::pin(answer(server.clone(), connection.clone(), request, refusal))
        })
    };
    let mut http = http1::Builder::new()
        .max_buf_size(limits::HEADER_BLOCK_MAX_BYTES)
        .max_header_size(limits::HEADER_BLOCK_MAX_BYTES)
        // A client that has sent its request may end its half of the stream and still gets the answer.
        .half_close(true)
        .header_read_timeout(None)
        .serve_connection(Stream(connection.clone()), service);
    let mut end = End::default();
    // An error means a malformed request, which hyper has answered, or a broken connection with nobody to tell.
    let result = poll_fn(|cx| {
        connection.note_task(cx);
        if end.is_due(server.connections.is_draining(), &connection) {
            Pin::new(&mut http).graceful_shutdown();
        }
        let polled = http.poll_without_shutdown(cx);
        // The poll may have answered what was waiting, and nothing else wakes this task then.
        if polled.is_pending() && end.is_due(server.connections.is_draining(), &connection) {
            Pin::new(&mut http).graceful_shutdown();
            return http.poll_without_shutdown(cx);
        }
        polled
    })
    .await;
    drop(http);
    if server.config.access_log
        && let Some(refused) = connection.take_refused()
    {
        log_refused(&server.request_ids, certificate.as_ref(), refused);
    }
    if result.is_err() || connection.has_unread_body() {
        linger(server, &connection).await;
    } else if server.handshakes.is_some() {
        // A client that does not see the end of TLS takes the answer for one that was cut short.
        connection.shutdown(Shutdown::Write);
    }
}

/// Ends our half and reads on for a while: closing with unread bytes would reset the connection, and the reset could
/// overtake the answer to an upload that was refused half-way.
async fn linger<H>(server: &Server<H>, connection: &Connection) {
    connection.shutdown(Shutdown::Write);
    connection.enter(Phase::Handling);
    let most_ms = match server.connections.is_draining() {
        true => limits::DRAIN_LINGER_MAX_MS,
        false => limits::LINGER_MAX_MS,
    };
    let limit = server.env.sleep_us(most_ms * 1000);
    or(connection.socket.discard(), limit).await;
}

/// Whether the client wants the connection closed behind the answer.
fn asks_to_close(head: &Parts) -> bool {
    let values = head.headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|option| option.trim().eq_ignore_ascii_case("close"))
}

/// Discards the rest of a body whose request has been answered: clients send head and body in two pieces, and one that was refused after the
/// first goes on using its connection. A body that is too long for that ends the connection.
async fn drain(connection: Rc<Connection>, mut rest: Incoming, request: u64) {
    let mut drained = 0;
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut rest).poll_frame(cx)).await {
        // An error says that the connection broke.
        let Ok(frame) = frame else { return };
        let bytes = frame.data_ref().map_or(0, bytes::Bytes::len);
        connection.received_body(bytes);
        drained += bytes as u64;
        if drained > limits::BODY_DRAINED_MAX_BYTES {
            return;
        }
    }
    connection.end_drain(request);
}

async fn answer<H: Handler>(
    server: Rc<Server<H>>,
    connection: Rc<Connection>,
    request: Request<Incoming>,
    refusal: Option<Refusal>,
) -> Result<Reply, Infallible> {
    let (head, incoming) = request.into_parts();
    let entry = server.config.access_log.then(|| Box::new(access_entry(&server.request_ids, &head)));
    // Held until the request is answered: what was read from the body lives on in the request.
    let held = HeldBytes::new(&server.memory);
    let body = BodyReader::new(incoming, connection.clone(), server.env.clone(), held.clone());
    let expects_continue = head.headers.contains_key(EXPECT);
    let is_last = head.version < Version::HTTP_11 || asks_to_close(&head);
    let is_last = is_last || refusal.is_some();
    let mut reply = match (refusal, head_fault(&head)) {
        (Some(refusal), _) => {
            drop(body);
            refused(refusal)
        }
        (None, None) => server.handler.handle(head, body).await,
        (None, Some((status, fault))) => {
            drop(body);
            json_reply(status, ReplyBody::whole(format!("{}\n", serde_json::json!({ "error": fault }))))
        }
    };
    drop(held);
    connection.end_request();
    if !reply.body_mut().charge(&server.memory.account) {
        reply = crowded();
    }
    if let Some(rest) = connection.take_unread_body() {
        let declared = rest.size_hint().exact().unwrap_or(0);
        let is_last = is_last || server.connections.is_draining();
        // A client that has not been told to send its body may leave it out, so nothing says what comes next.
        if expects_continue || is_last || declared > limits::BODY_DRAINED_MAX_BYTES {
            reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        } else {
            let request = connection.begin_drain();
            server.env.spawn(Box::pin(drain(connection.clone(), rest, request)));
        }
    }
    // A browser must not take what a client has stored for a page or a script.
    reply.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let status = reply.status();
    let entry = entry.map(|mut entry| {
        entry.status = status.as_str().to_owned();
        if let Ok(value) = HeaderValue::from_str(&entry.request_id) {
            reply.headers_mut().insert(REQUEST_ID, value);
        }
        entry
    });
    connection.enter(Phase::Replying);
    reply.body_mut().attach(connection, entry);
    server.config.telemetry.core(server.env.index()).answered(status.as_u16());
    Ok(reply)
}

/// What is wrong with a head that the parser accepts.
///
/// HTTP/1.1 asks for exactly one `Host` (RFC 9112, section 3.2): servers and proxies that choose differently among several
/// could take one request for two. A transfer coding other than `chunked` would reach the decoder of the body undecoded.
fn head_fault(head: &Parts) -> Option<(StatusCode, &'static str)> {
    match head.headers.get_all(HOST).iter().count() {
        1 => {}
        0 if head.version < Version::HTTP_11 => {}
        0 => return Some((StatusCode::BAD_REQUEST, "the request has no Host header")),
        _ => return Some((StatusCode::BAD_REQUEST, "the request has more than one Host header")),
    }
    let chunked = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    if !head.headers.get_all(TRANSFER_ENCODING).iter().all(chunked) {
        return Some((StatusCode::NOT_IMPLEMENTED, "the only transfer coding that is understood is chunked"));
    }
    None
}

/// Writes a line for a request whose head was refused, so nothing else is known of it.
fn log_refused(ids: &RequestIds, certificate: Option<&ClientCertificate>, refused: Refused) {
    let certificate = certificate.map(|certificate| &*certificate.0);
    // The line is written when this is dropped.
    let _line = AccessEntry {
        request_id: ids.choose(None),
        transport: "http",
        op: String::new(),
        status: refused.status.as_str().to_owned(),
        principal: Credentials { certificate, ..Credentials::token(None) }.name(),
        bytes: refused.body_bytes as u64,
        started: Instant::now(),
        trace: None,
    };
}

fn access_entry(ids: &RequestIds, head: &Parts) -> AccessEntry {
    let header = |name: HeaderName| head.headers.get(name).map(HeaderValue::as_bytes);
    let token = header(AUTHORIZATION).map(bearer_token);
    let certificate = head.extensions.get::<ClientCertificate>().map(|certificate| &*certificate.0);
    AccessEntry {
        request_id: ids.choose(header(REQUEST_ID)),
        transport: "http",
        op: format!(
            "{} {}",
            shortened(head.method.as_str(), METHOD_LOGGED_BYTES),
            shortened(head.uri.path(), PATH_LOGGED_BYTES)
        ),
        status: NOT_ANSWERED.to_owned(),
        principal: Credentials { certificate, ..Credentials::token(token) }.name(),
        bytes: 0,
        started: Instant::now(),
        trace: TraceContext::read(head.headers.get_all(TRACEPARENT).iter().map(HeaderValue::as_bytes)),
    }
}
