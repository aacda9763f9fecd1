//! TLS on every transport. [`config`] makes it from the texts of the files, [`session`] is one connection without its socket, and
//! [`channel`] is the TLS state that a connection keeps after its [`handshake`].

pub mod channel;
pub mod config;
pub mod counters;
pub mod handshake;
pub mod session;

pub use channel::Channel;
pub use config::{TlsConfig, TlsError, TlsTexts};

use rustls::ServerConfig;
use std::sync::{Arc, PoisonError, RwLock};

/// The configuration of a process, which may be replaced while it runs. Connections that are open keep the one that they began with.
pub struct Tls {
    current: RwLock<Arc<TlsConfig>>,
}

/// What is spoken inside of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// gRPC, which is HTTP/2.
    Grpc,
    /// The binary protocol.
    Binary,
}

impl Tls {
    /// Begins with this configuration.
    pub fn new(config: TlsConfig) -> Tls {
        Tls { current: RwLock::new(Arc::new(config)) }
    }

    /// New connections have this configuration from now on.
    pub fn replace(&self, config: TlsConfig) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// What a new connection begins with.
    pub fn current(&self, protocol: Protocol) -> Arc<ServerConfig> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        match protocol {
            Protocol::Http => current.http().clone(),
            Protocol::Grpc => current.grpc().clone(),
            Protocol::Binary => current.binary().clone(),
        }
    }
}
