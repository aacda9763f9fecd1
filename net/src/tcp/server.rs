//! Accepting connections of the binary protocol on one core and running each as a task.

use crate::accept::{accept_all, wait_after};
use crate::access_log::RequestIds;
use crate::auth::Authenticator;
use crate::connections::Connections;
use crate::limits;
use crate::metrics::Telemetry;
use crate::tcp::buffers::Buffers;
use crate::tcp::completion::Completion;
use crate::tcp::connection::{self, Connection};
use crate::tcp::counters::Count;
use crate::tcp::here::Here;
use crate::tcp::transport::{Readiness, Transport};
use futures_lite::future::or;
use nigh_shard::completions::{Completions, Socket};
use nigh_shard::core::Core;
use nigh_shard::runtime::CoreRuntime;
use std::cell::RefCell;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What the binary front end needs to know; one per process, shared by the cores.
#[derive(Clone)]
pub struct TcpConfig {
    /// Decides about tokens. Its verdict about the last one of a connection is kept as long as that connection sends no other.
    pub auth: Arc<dyn Authenticator>,
    /// One `access` log line per request.
    pub access_log: bool,
    /// Open connections of the process; further ones are closed at once.
    pub max_connections: u64,
    /// Counters of all cores.
    pub telemetry: Arc<Telemetry>,
    /// Larger buffers of requests in memory, whole process, HTTP's included; see [`crate::limits::BODIES_MAX_BYTES`].
    pub max_body_bytes: u64,
    /// How bytes come and go.
    pub loops: Loops,
    /// What the limits on slow clients in [`crate::limits`] take for a second; shorter only in tests.
    pub second: Duration,
}

/// How a core learns what its connections have for it. Clients cannot tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loops {
    /// It is told which sockets are ready, and calls for each.
    Readiness,
    /// It hands operations over and is told which have completed, all in one call. Needs Linux 6.1.
    Completion,
}

impl TcpConfig {
    /// Without access log, with the limits of the interface.
    pub fn new(auth: Arc<dyn Authenticator>, telemetry: Arc<Telemetry>) -> Self {
        TcpConfig {
            auth,
            access_log: false,
            max_connections: limits::TCP_CONNECTIONS_MAX,
            telemetry,
            max_body_bytes: limits::BODIES_MAX_BYTES,
            loops: Loops::Readiness,
            second: Duration::from_secs(1),
        }
    }
}

/// The front end on one core.
pub struct Server<T> {
    /// What its connections share.
    pub here: Here,
    /// They.
    pub connections: Rc<Connections<Connection<T>>>,
    /// Names of requests in the access log.
    pub request_ids: RequestIds,
}

/// Serves the binary protocol on `listener` (one of [`crate::bind`]'s) on this core until the process is asked to stop; returns when
/// the requests in flight have been answered or their time to finish has passed.
///
/// # Errors
/// When the listener cannot be registered with the reactor, or there is no ring for completions.
pub async fn serve(core: Rc<Core>, listener: TcpListener, config: Rc<TcpConfig>) -> io::Result<()> {
    match config.loops {
        Loops::Readiness => serve_by_readiness(core, listener, config).await,
        Loops::Completion => serve_by_completion(core, listener, config).await,
    }
}

async fn serve_by_readiness(core: Rc<Core>, listener: TcpListener, config: Rc<TcpConfig>) -> io::Result<()> {
    let (runtime, server) = (core.runtime(), start(core, config));
    let source = runtime.reactor().register(OwnedFd::from(listener))?;
    let admit = |socket| {
        admit(&server, || {
            let source = server.here.core.runtime().reactor().register(socket)?;
            Ok(Readiness::new(source, server.here.config.telemetry.clone(), server.here.core.env().index()))
        });
    };
    or(stopped(&runtime), accept_all(&runtime, &source, admit)).await?;
    drop(source);
    server.connections.drain(&runtime).await;
    Ok(())
}

async fn serve_by_completion(core: Rc<Core>, listener: TcpListener, config: Rc<TcpConfig>) -> io::Result<()> {
    let (runtime, server) = (core.runtime(), start(core, config));
    let completions = Completions::new()?;
    let ready = runtime.reactor().register(completions.descriptor()?)?;
    listener.set_nonblocking(false)?;
    completions.listen(listener);
    let accepting = async {
        let mut exhausted = false;
        loop {
            match completions.accept().await {
                Ok(socket) => {
                    exhausted = false;
                    admit(&server, || {
                        let socket = Socket::new(completions.clone(), socket);
                        let telemetry = server.here.config.telemetry.clone();
                        Ok(Completion::new(socket, telemetry, server.here.core.env().index()))
                    });
                }
                Err(error) => wait_after(&runtime, error, &mut exhausted).await?,
            }
        }
    };
    let driving = completions.drive(&ready, |enters| server.here.count(Count::Enters, enters));
    let serving = async {
        or(stopped(&runtime), accepting).await?;
        completions.end_accepting();
        server.connections.drain(&runtime).await;
        Ok(())
    };
    or(serving, driving).await
}

async fn stopped(runtime: &CoreRuntime) -> io::Result<()> {
    runtime.stopping().await;
    Ok(())
}

/// A front end without connections, which ages those that come.
fn start<T: Transport>(core: Rc<Core>, config: Rc<TcpConfig>) -> Rc<Server<T>> {
    let (runtime, second) = (core.runtime(), config.second);
    let here =
        Here { core, config, buffers: Rc::new(Buffers::default()), spare_requests: RefCell::default() };
    let connections = Rc::new(Connections::default());
    let server = Rc::new(Server { here, connections, request_ids: RequestIds::new() });
    let aging = server.clone();
    runtime.spawn(async move {
        let timed_out = |count| aging.here.count(Count::TimedOut, count);
        aging.connections.keep_sweeping(&aging.here.core.runtime(), second, timed_out).await;
    });
    server
}

/// Starts the task of a new connection, which `transport` makes ready, or closes it.
fn admit<T: Transport>(server: &Rc<Server<T>>, transport: impl FnOnce() -> io::Result<T>) {
    let here = &server.here;
    let counters = &here.config.telemetry.tcp;
    if !counters.open_one(here.config.max_connections) {
        here.count(Count::Refused, 1);
        return;
    }
    let transport = match transport() {
        Ok(transport) => transport,
        Err(error) => {
            counters.close_one();
            here.count(Count::Refused, 1);
            tracing::warn!(target: "nigh", %error, "cannot watch a new connection");
            return;
        }
    };
    here.count(Count::Accepted, 1);
    let connection = Rc::new(Connection::new(transport));
    let listed = server.connections.list(connection.clone());
    let server = server.clone();
    here.core.runtime().spawn(async move {
        connection::run(&server, &connection).await;
        drop(listed);
        server.here.config.telemetry.tcp.close_one();
    });
}
