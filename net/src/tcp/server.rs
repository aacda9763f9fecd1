//! Accepting connections of the binary protocol on one core and running each as a task.

use crate::accept::{accept_all, wait_after};
use crate::access_log::RequestIds;
use crate::connections::Connections;
use crate::door::Door;
use crate::limits;
use crate::tcp::buffers::Buffers;
use crate::tcp::completion::Completion;
use crate::tcp::config::{Loops, TcpConfig};
use crate::tcp::connection::{self, Connection, Server};
use crate::tcp::counters::Count;
use crate::tcp::here::Here;
use crate::tcp::secured::Secured;
use crate::tcp::transport::{Readiness, Transport};
use crate::tls::Protocol;
use crate::tls::handshake::Handshakes;
use crate::{Serving, executor};
use futures_lite::future::or;
use nigh_shard::account::{CoreCharges, MemoryUse};
use nigh_shard::completions::{Completions, Socket};
use nigh_shard::core::Core;
use nigh_shard::env::Env;
use std::cell::RefCell;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Serves the binary protocol on `listener` (one of [`crate::bind`]'s) on this core until the process is asked to stop; returns when
/// the requests in flight have been answered or their time to finish has passed.
///
/// # Errors
/// When the listener cannot be registered with the reactor, or there is no ring for completions.
pub fn serve(core: Rc<Core>, listener: TcpListener, config: Rc<TcpConfig>) -> Serving {
    // Boxed here, so that all of it is compiled in this crate, and not once more in each that serves.
    match config.loops {
        Loops::Readiness => Box::pin(serve_by_readiness(core, listener, config)),
        Loops::Completion => Box::pin(serve_by_completion(core, listener, config)),
    }
}

async fn serve_by_readiness(core: Rc<Core>, listener: TcpListener, config: Rc<TcpConfig>) -> io::Result<()> {
    let (env, runtime) = (core.env().clone(), executor());
    let server = start(core, config);
    let source = runtime.reactor().register(OwnedFd::from(listener))?;
    let admit = |socket| {
        admit(&server, || {
            let source = runtime.reactor().register(socket)?;
            Ok(Secured::new(Readiness::new(source, server.here.config.telemetry.clone(), env.index())))
        });
    };
    or(stopped(&*env), accept_all(&*env, &source, admit)).await?;
    drop(source);
    server.connections.drain(&*env).await;
    Ok(())
}

async fn serve_by_completion(core: Rc<Core>, listener: TcpListener, config: Rc<TcpConfig>) -> io::Result<()> {
    let env = core.env().clone();
    let server = start(core, config);
    let completions = Completions::new()?;
    let ready = executor().reactor().register(completions.descriptor()?)?;
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
                        Ok(Secured::new(Completion::new(socket, telemetry, env.index())))
                    });
                }
                Err(error) => wait_after(&*env, error, &mut exhausted).await?,
            }
        }
    };
    let driving = completions.drive(&ready, |enters| server.here.count(Count::Enters, enters));
    let serving = async {
        or(stopped(&*env), accepting).await?;
        completions.end_accepting();
        server.connections.drain(&*env).await;
        Ok(())
    };
    or(serving, driving).await
}

async fn stopped(env: &dyn Env) -> io::Result<()> {
    env.stopping().await;
    Ok(())
}

/// A front end without connections, which ages those that come.
fn start<T: Transport>(core: Rc<Core>, config: Rc<TcpConfig>) -> Rc<Server<T>> {
    let (env, second) = (core.env().clone(), config.second);
    let door = Door::new(core, config.auth.clone(), config.telemetry.clone());
    let requests_held = CoreCharges::new(door.account(), MemoryUse::Requests, config.max_body_bytes);
    let secure = |tls| Handshakes::new(env.clone(), config.telemetry.clone(), tls, Protocol::Binary);
    let handshakes = config.tls.clone().map(secure);
    let here = Here {
        door,
        handshakes,
        config,
        buffers: Rc::new(Buffers::default()),
        requests_held,
        spare_requests: RefCell::default(),
    };
    let connections = Rc::new(Connections::default());
    let server = Rc::new(Server { here, connections, request_ids: RequestIds::new() });
    let aging = server.clone();
    let clock = env.clone();
    env.spawn(Box::pin(async move {
        let swept = |timed_out| {
            aging.here.count(Count::TimedOut, timed_out);
            aging.here.requests_held.settle();
        };
        aging.connections.keep_sweeping(&*clock, second, swept).await;
    }));
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
    let secure = if here.handshakes.is_some() { limits::TLS_CONNECTION_BYTES } else { 0 };
    let Some(charge) = here.door.account().charge_connection(limits::CONNECTION_BYTES + secure) else {
        counters.close_one();
        here.count(Count::Refused, 1);
        return;
    };
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
    let (env, server) = (here.door.env().clone(), server.clone());
    env.spawn(Box::pin(async move {
        connection::run(&server, &connection).await;
        drop(listed);
        drop(charge);
        server.here.config.telemetry.tcp.close_one();
    }));
}

/// The front end over connections without sockets, for simulations.
#[cfg(test)]
pub(crate) mod sim {
    pub use crate::tcp::transport::{Arrival, Transport};

    use crate::sim_tests::ServerEnd;
    use crate::tcp::{TcpConfig, connection};
    use nigh_shard::core::Core;
    use std::rc::Rc;

    /// The front end of one core.
    pub type Server = connection::Server<ServerEnd>;

    /// A front end without connections.
    pub fn start(core: Rc<Core>, config: TcpConfig) -> Rc<Server> {
        super::start(core, Rc::new(config))
    }

    /// Starts the task of a connection.
    pub fn admit(server: &Rc<Server>, end: ServerEnd) {
        super::admit(server, || Ok(end));
    }
}
