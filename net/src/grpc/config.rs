//! What the gRPC front end is told when it starts.

use crate::auth::Authenticator;
use crate::limits;
use crate::metrics::Telemetry;
use crate::tls::Tls;
use std::sync::Arc;
use std::time::Duration;

/// What the gRPC front end needs to know; one per process, shared by the cores.
#[derive(Clone)]
pub struct GrpcConfig {
    /// Decides about credentials.
    pub auth: Arc<dyn Authenticator>,
    /// Where connections are secure.
    pub tls: Option<Arc<Tls>>,
    /// One `access` log line per call, and `x-request-id` echoed.
    pub access_log: bool,
    /// Open connections per core; further ones are closed at once, as are those for which there is no memory, see
    /// [`limits::GRPC_CONNECTION_BYTES`].
    pub max_connections_per_core: usize,
    /// Counters of all cores.
    pub telemetry: Arc<Telemetry>,
    /// Messages being received in the process, those of the other front ends included; see [`limits::BODIES_MAX_BYTES`].
    pub max_body_bytes: u64,
    /// A second package under which the methods are served as well.
    pub alias: Option<String>,
    /// What the limits on slow clients in [`crate::limits`] take for a second; shorter only in tests.
    pub second: Duration,
}

impl GrpcConfig {
    /// Without access log and alias, with room for 16,384 connections per core, if the memory allows as many.
    pub fn new(auth: Arc<dyn Authenticator>, telemetry: Arc<Telemetry>) -> Self {
        GrpcConfig {
            auth,
            tls: None,
            access_log: false,
            max_connections_per_core: 16_384,
            telemetry,
            max_body_bytes: limits::BODIES_MAX_BYTES,
            alias: None,
            second: Duration::from_secs(1),
        }
    }
}
