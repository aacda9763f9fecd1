//! What a client needs to speak TLS: whom it trusts, who it is, and which name it expects of the server.
use super::explain::{Circumstances, Trusted};
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, NoKeyLog, RootCertStore};
use std::sync::Arc;

/// Makes the TLS sessions of one client. Later sessions resume earlier ones if the server offers that.
#[derive(Debug)]
pub struct Connector {
    config: Arc<ClientConfig>,
    /// The name that the server's certificate must be for, instead of the host of the address.
    server_name: Option<ServerName<'static>>,
    circumstances: Circumstances,
}

impl Connector {
    /// A connector that trusts `roots`, shows `identity` if a server asks for a client certificate, and offers the ALPN names `alpn`.
    ///
    /// # Errors
    /// A sentence. With the crypto provider that is built in, there are no errors.
    pub fn new(
        roots: RootCertStore,
        trusted: Trusted,
        identity: Option<Arc<dyn ResolvesClientCert>>,
        server_name: Option<ServerName<'static>>,
        alpn: &[&[u8]],
    ) -> Result<Connector, String> {
        let circumstances = Circumstances { trusted, has_certificate: identity.is_some() };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let mut config = match identity {
            Some(identity) => builder.with_client_cert_resolver(identity),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        // These are the defaults. They are set here so that a change of defaults cannot write keys to a file, or send early data that others could
        // replay.
        config.key_log = Arc::new(NoKeyLog {});
        config.enable_early_data = false;
        Ok(Connector { config: Arc::new(config), server_name, circumstances })
    }

    /// A session with the server at `address` (host:port).
    ///
    /// # Errors
    /// A sentence that says that the host is not a name that a certificate could have.
    pub fn session(&self, address: &str) -> Result<ClientConnection, String> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
                ServerName::try_from(host.to_owned()).map_err(|_| {
                    format!("{host:?} is no name that a certificate could have; -tls-server-name says which one to expect")
                })?
            }
        };
        ClientConnection::new(self.config.clone(), name).map_err(|error| error.to_string())
    }

    /// What decides which advice helps when a connection fails.
    pub fn circumstances(&self) -> &Circumstances {
        &self.circumstances
    }
}
