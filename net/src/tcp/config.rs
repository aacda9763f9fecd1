//! What the binary front end is told when it starts.

use crate::auth::Authenticator;
use crate::limits;
use crate::metrics::Telemetry;
use crate::tls::Tls;
use std::sync::Arc;
use std::time::Duration;

/// What the binary front end needs to know; one per process, shared by the cores.
#[derive(Clone)]
pub struct TcpConfig {
    /// Decides about tokens. Its verdict about the last token of a connection is reused until the connection sends another or the verdict may have changed.
    pub auth: Arc<dyn Authenticator>,
    /// Where connections are secure.
    pub tls: Option<Arc<Tls>>,
    /// One `access` log line per request.
    pub access_log: bool,
    /// Open connections of the process; further ones are closed at once, as are those for which there is no memory, see
    /// [`limits::CONNECTION_BYTES`].
    pub max_connections: u64,
    /// Counters of all cores.
    pub telemetry: Arc<Telemetry>,
    /// Buffers of requests in memory, whole process, HTTP's included; see [`crate::limits::BODIES_MAX_BYTES`].
    pub max_body_bytes: u64,
    /// The address by which clients reach the server, `host:port`, as `__topology__` tells it; `None` when it is not known.
    pub advertised: Option<String>,
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
            tls: None,
            access_log: false,
            max_connections: limits::TCP_CONNECTIONS_MAX,
            telemetry,
            max_body_bytes: limits::BODIES_MAX_BYTES,
            advertised: None,
            loops: Loops::Readiness,
            second: Duration::from_secs(1),
        }
    }
}
