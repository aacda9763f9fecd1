//! Accepting connections of the binary protocol on one core and running each as a task.

use crate::accept::accept_all;
use crate::access_log::RequestIds;
use crate::auth::Authenticator;
use crate::connections::Connections;
use crate::limits;
use crate::metrics::Telemetry;
use crate::tcp::buffers::Buffers;
use crate::tcp::connection::{self, Connection};
use crate::tcp::counters::Count;
use crate::tcp::here::Here;
use crate::tcp::transport::Readiness;
use futures_lite::future::or;
use nigh_shard::core::Core;
use socket2::{SockRef, TcpKeepalive};
use std::cell::RefCell;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Between two questions of the system whether a silent client is still there (interface).
const KEEPALIVE: Duration = Duration::from_secs(30);

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
    /// What the limits on slow clients in [`crate::limits`] take for a second; shorter only in tests.
    pub second: Duration,
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
/// When the listener cannot be registered with the reactor.
pub async fn serve(core: Rc<Core>, listener: TcpListener, config: Rc<TcpConfig>) -> io::Result<()> {
    let runtime = core.runtime();
    prepare(&listener)?;
    let source = runtime.reactor().register(OwnedFd::from(listener))?;
    let second = config.second;
    let here =
        Here { core, config, buffers: Rc::new(Buffers::default()), spare_requests: RefCell::default() };
    let connections = Rc::new(Connections::default());
    let server = Rc::new(Server { here, connections, request_ids: RequestIds::new() });
    let aging = server.clone();
    runtime.spawn(async move {
        let timed_out = |count| aging.here.count(Count::TimedOut, count);
        aging.connections.keep_sweeping(&aging.here.core.runtime(), second, timed_out).await;
    });
    let stopped = async {
        runtime.stopping().await;
        Ok(())
    };
    or(stopped, accept_all(&runtime, &source, |socket| admit(&server, socket))).await?;
    drop(source);
    server.connections.drain(&runtime).await;
    Ok(())
}

/// Sets what connections inherit from their listener.
fn prepare(listener: &TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let socket = SockRef::from(listener);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))
}

/// Starts the task of a new connection, or closes it.
fn admit(server: &Rc<Server<Readiness>>, socket: OwnedFd) {
    let here = &server.here;
    let counters = &here.config.telemetry.tcp;
    if !counters.open_one(here.config.max_connections) {
        here.count(Count::Refused, 1);
        return;
    }
    let source = match here.core.runtime().reactor().register(socket) {
        Ok(source) => source,
        Err(error) => {
            counters.close_one();
            here.count(Count::Refused, 1);
            tracing::warn!(target: "nigh", %error, "cannot watch a new connection");
            return;
        }
    };
    here.count(Count::Accepted, 1);
    let transport = Readiness::new(source, here.config.telemetry.clone(), here.core.env().index());
    let connection = Rc::new(Connection::new(transport));
    let listed = server.connections.list(connection.clone());
    let server = server.clone();
    here.core.runtime().spawn(async move {
        connection::run(&server, &connection).await;
        drop(listed);
        server.here.config.telemetry.tcp.close_one();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn connections_inherit_their_options() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        prepare(&listener).unwrap();
        listener.set_nonblocking(false).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let socket = SockRef::from(&accepted);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE);
    }
}
