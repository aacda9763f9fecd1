//! Accepting connections of gRPC on one core and running each as a task.

use super::config::GrpcConfig;
use super::connection::Connection;
use super::here::Here;
use super::methods::Methods;
use super::reflection::Reflection;
use super::service;
use super::stream::Stream;
use crate::accept::accept_all;
use crate::access_log::RequestIds;
use crate::connections::Connections;
use crate::door::Door;
use crate::limits;
use crate::socket::Socket;
use crate::tls::Protocol;
use crate::tls::handshake::{Handshakes, Outcome};
use crate::{Serving, executor};
use bytes::Bytes;
use futures_lite::future::or;
use h2::Reason;
use nigh_shard::account::{CoreCharges, MemoryUse};
use nigh_shard::core::Core;
use nigh_shard::runtime::CoreRuntime;
use rustix::net::Shutdown;
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

struct Server {
    here: Rc<Here>,
    connections: Rc<Connections<Connection>>,
    /// Where connections are secure.
    handshakes: Option<Handshakes>,
}

/// Serves gRPC on `listener` (one of [`crate::bind`]'s) on this core until the process is asked to stop; returns when the calls in flight have
/// been answered or their time to finish has passed.
///
/// # Errors
/// When the listener cannot be registered with the reactor.
pub fn serve(core: Rc<Core>, listener: TcpListener, config: Rc<GrpcConfig>) -> Serving {
    // Boxed here, so that all of it is compiled in this crate, and not once more in each that serves.
    Box::pin(serve_all(core, listener, config))
}

async fn serve_all(core: Rc<Core>, listener: TcpListener, config: Rc<GrpcConfig>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let (env, runtime) = (core.env().clone(), executor());
    let source = runtime.reactor().register(OwnedFd::from(listener))?;
    let door = Door::new(core, config.auth.clone(), config.telemetry.clone());
    let account = door.account();
    let requests_held = CoreCharges::new(account, MemoryUse::Requests, config.max_body_bytes);
    // Connections alone, which strangers may open, leave room for calls.
    let calls_held = CoreCharges::new(account, MemoryUse::Connections, 2 * account.connections_most());
    let here = Here {
        methods: Methods::new(config.alias.as_deref()),
        reflection: Reflection::new(config.alias.as_deref()),
        door,
        config,
        requests_held,
        calls_held,
        look: Cell::new(None),
        request_ids: RequestIds::new(),
    };
    let tls = here.config.tls.clone();
    let telemetry = here.config.telemetry.clone();
    let handshakes = tls.map(|tls| Handshakes::new(env.clone(), telemetry, tls, Protocol::Grpc));
    let server =
        Rc::new(Server { here: Rc::new(here), connections: Rc::new(Connections::default()), handshakes });
    let aging = server.clone();
    let clock = env.clone();
    env.spawn(Box::pin(async move {
        let here = &aging.here;
        let swept = |timed_out| {
            here.config.telemetry.grpc.timed_out(clock.index(), timed_out);
            here.requests_held.settle();
            here.calls_held.settle();
        };
        aging.connections.keep_sweeping(&*clock, here.config.second, swept).await;
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

/// Starts the task of a new connection, or closes it.
fn admit(server: &Rc<Server>, runtime: &CoreRuntime, socket: OwnedFd) {
    let here = &server.here;
    let (env, counters) = (here.door.env().clone(), &here.config.telemetry.grpc);
    let has_place = server.connections.open() < here.config.max_connections_per_core;
    let account = here.door.account();
    let secure = if here.config.tls.is_some() { limits::TLS_CONNECTION_BYTES } else { 0 };
    let charge =
        has_place.then(|| account.charge_connection(limits::GRPC_CONNECTION_BYTES + secure)).flatten();
    let Some(charge) = charge else {
        // There is nothing to answer before a client has asked.
        counters.refused(env.index());
        return;
    };
    let source = match runtime.reactor().register(socket) {
        Ok(source) => source,
        Err(error) => {
            counters.refused(env.index());
            tracing::warn!(target: "nigh", %error, "cannot watch a new connection");
            return;
        }
    };
    let connection = Rc::new(Connection::new(Socket::new(source), charge));
    let listed = server.connections.list(connection.clone());
    counters.accepted(env.index());
    counters.open(env.index(), server.connections.open());
    let server = server.clone();
    let index = env.index();
    env.spawn(Box::pin(async move {
        run(&server, &connection).await;
        drop(listed);
        server.here.config.telemetry.grpc.open(index, server.connections.open());
    }));
}

fn builder() -> h2::server::Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(limits::GRPC_STREAMS_MAX)
        .max_header_list_size(limits::GRPC_HEADERS_MAX_BYTES)
        .initial_window_size(limits::GRPC_WINDOW_BYTES)
        .initial_connection_window_size(limits::GRPC_WINDOW_BYTES)
        .data_frame_budget(limits::GRPC_SMALL_FRAMES_BYTES)
        .max_send_buffer_size(limits::GRPC_SEND_BUFFER_BYTES)
        // A client may give up all its calls at once; one that begins and gives up more before any of them was looked at is none.
        .max_pending_accept_reset_streams(limits::GRPC_STREAMS_MAX as usize);
    builder
}

/// Runs one connection to its end.
async fn run(server: &Server, connection: &Rc<Connection>) {
    if secure(server, connection).await {
        // An error is one of the client, whom the parser has told.
        let _told = converse(server, connection).await;
    }
    // Closing with unread bytes would reset the connection, and the reset could overtake the end of an answer, or what says what was wrong.
    connection.shutdown(Shutdown::Write);
    let most_ms = match server.connections.is_draining() {
        true => limits::DRAIN_LINGER_MAX_MS,
        false => limits::LINGER_MAX_MS,
    };
    let limit = server.here.door.env().sleep_us(most_ms * 1000);
    or(connection.socket.discard(), limit).await;
    // Calls that change data may still run, and hold the connection.
    connection.shutdown(Shutdown::Both);
}

/// Makes a connection secure, where connections are. Returns whether it is as it should be.
async fn secure(server: &Server, connection: &Connection) -> bool {
    let Some(handshakes) = &server.handshakes else { return true };
    let second_us = server.here.config.second.as_micros() as u64;
    match handshakes.secure(&connection.socket, second_us).await {
        Outcome::Secure(channel) => {
            if let Some(name) = channel.session().peer_common_name() {
                connection.certify(name);
            }
            connection.socket.secure(channel);
            true
        }
        // There is no word of HTTP/2 that a client understands which did not get to speak it.
        Outcome::Plain | Outcome::Crowded | Outcome::Failed => false,
    }
}

async fn converse(server: &Server, connection: &Rc<Connection>) -> Result<(), h2::Error> {
    let mut handshake = pin!(builder().handshake::<_, Bytes>(Stream(connection.clone())));
    let mut http = poll_fn(|cx| {
        connection.begin_turn(cx);
        handshake.as_mut().poll(cx)
    })
    .await?;
    let (mut is_leaving, mut is_flood_told) = (false, false);
    poll_fn(|cx| {
        connection.begin_turn(cx);
        if !is_leaving && (server.connections.is_draining() || connection.has_been_idle()) {
            is_leaving = true;
            http.graceful_shutdown();
        }
        let mut begun = 0;
        loop {
            match http.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, mut respond)))) => {
                    match connection.begin_call(server.here.calls_held.holder()) {
                        Some(open) => {
                            let call = service::serve(
                                server.here.clone(),
                                connection.clone(),
                                open,
                                request,
                                respond,
                            );
                            server.here.door.env().spawn(Box::pin(call));
                        }
                        // Nothing was done for it, so that the client may repeat it.
                        None => {
                            respond.send_reset(Reason::REFUSED_STREAM);
                            service::log_refused(&server.here, request);
                        }
                    }
                    begun += 1;
                    if begun == limits::GRPC_CALLS_PER_TURN {
                        connection.fall_behind(true);
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending if connection.is_flooded() && !is_flood_told => {
                    is_flood_told = true;
                    if connection.is_cut_now() {
                        server.here.config.telemetry.grpc.timed_out(server.here.door.env().index(), 1);
                    }
                    http.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                }
                Poll::Pending => {
                    connection.fall_behind(false);
                    return Poll::Pending;
                }
            }
        }
    })
    .await
}
