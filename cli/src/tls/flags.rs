//! The flags of TLS, which `nigh cli` and every `nigh bench` have, and the files that they name.
use super::connector::Connector;
use super::explain::Trusted;
use super::roots;
use crate::credentials::read;
use crate::flags::parse_bool;
use clap::{ArgAction, Args};
use nigh_net::tls::config::{Which, read_identity, read_roots};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most certificates in a file of `-tls-ca`; the files that machines trust have about 150.
const ROOTS_MAX: usize = 4096;

/// The flags of TLS.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsFlags {
    /// Speak TLS. The other flags of TLS imply it.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, help_heading = "TLS")]
    pub tls: Option<bool>,
    /// Trust the certificates in this PEM file alone: those of authorities, or the server's own certificate if it is self-signed.
    /// Without this flag, the certificates that the machine trusts are used; the variables SSL_CERT_FILE and SSL_CERT_DIR name others.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub tls_ca: Option<PathBuf>,
    /// Client certificate for servers that ask for one: a PEM file with the certificate, followed by the intermediate
    /// certificates up to an authority that the server trusts.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the client certificate: a PEM file, not encrypted.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub tls_key: Option<PathBuf>,
    /// Name for which the certificate of the server must be valid, if that is not the host of the address.
    #[arg(long, value_name = "NAME", help_heading = "TLS")]
    pub tls_server_name: Option<String>,
}

impl TlsFlags {
    /// The first flag that asks for TLS.
    pub fn asked_by(&self) -> Option<&'static str> {
        [
            ("-tls", self.tls == Some(true)),
            ("-tls-ca", self.tls_ca.is_some()),
            ("-tls-cert", self.tls_cert.is_some()),
            ("-tls-key", self.tls_key.is_some()),
            ("-tls-server-name", self.tls_server_name.is_some()),
        ]
        .into_iter()
        .find_map(|(flag, is_set)| is_set.then_some(flag))
    }

    /// The connector that the flags describe, which offers the ALPN names `alpn`; none for plain text.
    ///
    /// # Errors
    /// A sentence that names the flag, and the file if it has one.
    pub fn connector(&self, alpn: &[&[u8]]) -> Result<Option<Arc<Connector>>, String> {
        match (self.asked_by(), self.tls) {
            (None, _) => Ok(None),
            (Some(flag), Some(false)) => Err(format!("-tls=false and {flag} contradict each other")),
            (Some(_), _) => self.read_files(alpn).map(Some),
        }
    }

    /// The connector for an `https` URL, which asks for TLS by itself.
    ///
    /// # Errors
    /// As [`Self::connector`].
    pub fn connector_of_https(&self, alpn: &[&[u8]]) -> Result<Arc<Connector>, String> {
        match self.tls {
            Some(false) => Err("-tls=false and https:// contradict each other".into()),
            _ => self.read_files(alpn),
        }
    }

    /// Refuses a URL of plain text if the flags ask for TLS.
    ///
    /// # Errors
    /// A sentence that names the flag.
    pub fn refuse_http(&self) -> Result<(), String> {
        match self.asked_by() {
            Some(flag) => Err(format!("{flag} asks for TLS, and http:// is plain text: write https://")),
            None => Ok(()),
        }
    }

    /// Reads the files.
    fn read_files(&self, alpn: &[&[u8]]) -> Result<Arc<Connector>, String> {
        let (roots, trusted) = match &self.tls_ca {
            Some(path) => {
                let text = read("-tls-ca", path)?;
                let roots = read_roots(&text, Which::Certificate, ROOTS_MAX)
                    .map_err(|error| format!("-tls-ca {}: {}", path.display(), error.reason))?;
                (roots, Trusted::File(path.display().to_string()))
            }
            None => {
                let roots = roots::of_machine()
                    .map_err(|reason| format!("{reason}; -tls-ca names a file of certificates to trust"))?;
                (roots, Trusted::Machine)
            }
        };
        let identity = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some(identity(certificate, key)?),
            (None, None) => None,
            (Some(_), None) => {
                return Err("-tls-cert needs -tls-key, the private key of the certificate".into());
            }
            (None, Some(_)) => {
                return Err("-tls-key needs -tls-cert, the certificate of the private key".into());
            }
        };
        let server_name = match &self.tls_server_name {
            Some(name) => Some(ServerName::try_from(name.clone()).map_err(|_| {
                format!("-tls-server-name {name:?} is neither the name of a host nor an IP address")
            })?),
            None => None,
        };
        Connector::new(roots, trusted, identity, server_name, alpn).map(Arc::new)
    }
}

/// Reads the client certificate and its key.
fn identity(certificate: &Path, key: &Path) -> Result<Arc<dyn ResolvesClientCert>, String> {
    let identity =
        read_identity(&read("-tls-cert", certificate)?, &read("-tls-key", key)?).map_err(|error| {
            let (flag, path) = match error.which {
                Which::Key => ("-tls-key", key),
                Which::Certificate | Which::ClientRoots => ("-tls-cert", certificate),
            };
            format!("{flag} {}: {}", path.display(), error.reason)
        })?;
    Ok(Arc::new(identity))
}
