//! HTTP/1.1 on one core: listeners, connections, bodies in both directions, and every time limit on them.
//!
//! hyper parses and writes messages over a plain non-blocking socket registered with the core's reactor. Time limits
//! are not hyper's: one sweep per second over the core's connections (`connection`) costs a few nanoseconds each,
//! where a timer per request would cost a tenth of a small request, and it can tell an idle connection from one that
//! dawdles in its headers.

mod body;
mod connection;
mod heads;
mod listen;
mod memory;
mod refusal;
mod reply;
mod server;
mod stream;

pub use crate::collected::Collected;
pub use crate::gunzip::Encoding;
pub use body::{BodyError, BodyReader};
pub use listen::bind;
pub use reply::{Reply, ReplyBody, charged, json_reply};
pub use server::{ClientCertificate, Handler, serve_with};

use crate::auth::Authenticator;
use crate::metrics::Telemetry;
use crate::tls::Tls;
use std::sync::Arc;
use std::time::Duration;

/// What the HTTP front end needs to know; one per process, shared by the cores.
#[derive(Clone)]
pub struct HttpConfig {
    /// Decides about credentials.
    pub auth: Arc<dyn Authenticator>,
    /// Where connections are secure.
    pub tls: Option<Arc<Tls>>,
    /// One `access` log line per request, and `X-Request-Id` echoed.
    pub access_log: bool,
    /// Open connections per core; further ones are answered 503 and closed, as are those for which there is no
    /// memory, see [`crate::limits::CONNECTION_BYTES`].
    pub max_connections_per_core: usize,
    /// Counters of all cores.
    pub telemetry: Arc<Telemetry>,
    /// Request bodies in memory, whole process, frames of TCP included; see [`crate::limits::BODIES_MAX_BYTES`].
    pub max_body_bytes: u64,
    /// Heads of requests in memory, whole process; see [`crate::limits::HEADS_MAX_BYTES`].
    pub max_head_bytes: u64,
    /// What the limits on slow clients in [`crate::limits`] take for a second; shorter only in tests.
    pub second: Duration,
}

impl HttpConfig {
    /// Without access log, with room for 16,384 connections per core, if the memory allows as many.
    pub fn new(auth: Arc<dyn Authenticator>, telemetry: Arc<Telemetry>) -> Self {
        HttpConfig {
            auth,
            tls: None,
            access_log: false,
            max_connections_per_core: 16_384,
            telemetry,
            max_body_bytes: crate::limits::BODIES_MAX_BYTES,
            max_head_bytes: crate::limits::HEADS_MAX_BYTES,
            second: Duration::from_secs(1),
        }
    }
}
