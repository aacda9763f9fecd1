//! TLS configuration: PEM texts in, three ready `rustls` server configurations out.
//!
//! A [`TlsConfig`] is immutable. To reload certificates the caller reads the files again, makes a new
//! `TlsConfig`, and uses it for new connections. The tickets and session ids of the old one are worthless
//! for the new one, because each `TlsConfig` makes its own random ticket keys and its own session cache.
//! That matters: a resumed session is not checked against the client roots again, so a ticket must never
//! outlive the roots under which it was given out.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    NoClientAuth, ProducesTickets, ResolvesServerCert, ServerSessionMemoryCache, StoresServerSessions,
    WebPkiClientVerifier,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, NoKeyLog, RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject, SectionKind};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::asn1_rs::{Any, FromDer, Tag};
use x509_parser::certificate::X509Certificate;
use zeroize::Zeroizing;

/// The most certificates that the server's own chain may have.
///
/// The whole chain travels in every full handshake, so a longer file is almost surely a mistake.
pub const MAX_CHAIN: usize = 64;

/// The most certificates that the file of client roots may have.
///
/// The subjects of all of them travel in every full handshake, as hints for the client.
pub const MAX_CLIENT_ROOTS: usize = 256;

/// The longest common name that [`common_name`] gives back, in bytes of UTF-8.
pub const MAX_COMMON_NAME: usize = 1024;

/// How many TLS 1.2 sessions are kept for clients that know session ids but no tickets.
const SESSION_IDS: usize = 256;

/// The contents of the PEM files that a TLS configuration is made from.
pub struct TlsTexts {
    /// The server's certificate first, then the intermediate certificates that lead to its root.
    pub certificates: Vec<u8>,
    /// The private key of the first certificate, in PKCS#8, PKCS#1 or SEC1 form, not encrypted. It is overwritten when it is dropped.
    pub key: Zeroizing<Vec<u8>>,
    /// The root certificates that client certificates must lead to; none means that no client is asked for one.
    pub client_roots: Option<Vec<u8>>,
    /// Whether a client without a certificate is turned away; true needs `client_roots`.
    pub requires_client_certificate: bool,
}

/// Which of the files an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The file with the server's certificate chain.
    Certificate,
    /// The file with the server's private key.
    Key,
    /// The file with the root certificates for clients.
    ClientRoots,
}

impl fmt::Display for Which {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Which::Certificate => "certificate file",
            Which::Key => "private key file",
            Which::ClientRoots => "client root certificate file",
        })
    }
}

/// Why a TLS configuration could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    /// The file that is at fault.
    pub which: Which,
    /// What is wrong with it, in plain English, without a full stop; it never holds key material.
    pub reason: String,
}

impl TlsError {
    fn new(which: Which, reason: impl Into<String>) -> TlsError {
        TlsError { which, reason: reason.into() }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.which, self.reason)
    }
}

impl std::error::Error for TlsError {}

/// From when to when a certificate is valid, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first valid moment, in seconds since the start of 1970 (UTC).
    pub not_before: i64,
    /// The last valid moment, in seconds since the start of 1970 (UTC).
    pub not_after: i64,
}

/// The TLS configuration of the whole server, shared by all its listeners and threads.
///
/// It serves TLS 1.2 and 1.3. Sessions are resumed by stateless tickets (12 hours at most, with keys that
/// change every 6 hours) and, for TLS 1.2 clients without tickets, by session ids of a small cache. A
/// resumed session carries the client's certificates of the first handshake; they are not checked again,
/// so a client certificate that expires can be used for up to 12 hours more by resumption. Early data is
/// never taken, no data is sent before the handshake has ended, and keys are never logged.
pub struct TlsConfig {
    http: Arc<ServerConfig>,
    grpc: Arc<ServerConfig>,
    binary: Arc<ServerConfig>,
    leaf: Validity,
    earliest_end: i64,
}

impl TlsConfig {
    /// Makes the configuration from the texts of the PEM files.
    ///
    /// An expired certificate is no error here: the caller can look at [`TlsConfig::validity`] and warn.
    /// Returns an error that names the file at fault and says why.
    pub fn new(texts: &TlsTexts) -> Result<TlsConfig, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let chain = read_certificates(&texts.certificates, Which::Certificate, MAX_CHAIN)?;
        let (leaf, earliest_end) = chain_validity(&chain)?;
        let key = read_key(&texts.key)?;
        let parts = Parts {
            certificate: Arc::new(SingleCertAndKey::from(certified_key(chain, &key)?)),
            verifier: client_verifier(texts, &provider)?,
            sessions: ServerSessionMemoryCache::new(SESSION_IDS),
            ticketer: ring::Ticketer::new()
                .map_err(|e| TlsError::new(Which::Key, format!("no ticket keys could be made ({e})")))?,
            provider,
        };
        Ok(TlsConfig {
            http: parts.server_config(&[b"http/1.1"])?,
            grpc: parts.server_config(&[b"h2"])?,
            binary: parts.server_config(&[])?,
            leaf,
            earliest_end,
        })
    }

    /// The configuration for HTTP/1 listeners, which agrees on the ALPN name `http/1.1`.
    ///
    /// A client that offers ALPN names without this one is refused; one that offers none is served.
    pub fn http(&self) -> &Arc<ServerConfig> {
        &self.http
    }

    /// The configuration for gRPC listeners, which agrees on the ALPN name `h2` only.
    ///
    /// A client that offers ALPN names without this one is refused; one that offers none is served here, and
    /// [`crate::tls::session::Session::alpn`] tells the caller so.
    pub fn grpc(&self) -> &Arc<ServerConfig> {
        &self.grpc
    }

    /// The configuration for listeners of the binary protocol, which ignores ALPN.
    pub fn binary(&self) -> &Arc<ServerConfig> {
        &self.binary
    }

    /// From when to when the server's own certificate (the first of the file) is valid.
    pub fn validity(&self) -> Validity {
        self.leaf
    }

    /// When the first certificate of the server's chain expires, in seconds since the start of 1970 (UTC).
    pub fn earliest_end(&self) -> i64 {
        self.earliest_end
    }
}

/// What the three configurations share.
struct Parts {
    provider: Arc<CryptoProvider>,
    certificate: Arc<dyn ResolvesServerCert>,
    verifier: Arc<dyn ClientCertVerifier>,
    sessions: Arc<dyn StoresServerSessions>,
    ticketer: Arc<dyn ProducesTickets>,
}

impl Parts {
    fn server_config(&self, alpn: &[&[u8]]) -> Result<Arc<ServerConfig>, TlsError> {
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|e| TlsError::new(Which::Certificate, e.to_string()))?
            .with_client_cert_verifier(self.verifier.clone())
            .with_cert_resolver(self.certificate.clone());
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        // Sharing both is sound only because the verifier and the certificate are shared too.
        config.session_storage = self.sessions.clone();
        config.ticketer = self.ticketer.clone();
        // Among the cipher suites that a client offers, the server chooses by its own order, as TLS scanners expect. Every suite here is strong, and
        // the library puts AES, the faster one on processors with AES instructions, before ChaCha20.
        config.ignore_client_order = true;
        // These are the library's defaults; they are set here so that a changed default cannot weaken us.
        config.max_early_data_size = 0;
        config.send_half_rtt_data = false;
        config.enable_secret_extraction = false;
        config.key_log = Arc::new(NoKeyLog {});
        Ok(Arc::new(config))
    }
}

/// Joins chain and key, and finds out which file is at fault when they do not fit together.
fn certified_key(
    chain: Vec<CertificateDer<'static>>,
    key: &PrivateKeyDer<'static>,
) -> Result<CertifiedKey, TlsError> {
    // The provider could do this as well, but it takes the key and does not overwrite its bytes.
    let signing = ring::sign::any_supported_type(key).map_err(|_| {
        // The library's own text is about its internals, and the cause is nearly always one of these.
        let reason = "its private key is damaged or of a kind that is not supported; use RSA with 2048 to \
                      4096 bits, ECDSA with P-256 or P-384, or Ed25519";
        TlsError::new(Which::Key, reason)
    })?;
    let certified = CertifiedKey::new(chain, signing);
    match certified.keys_match() {
        Ok(()) => Ok(certified),
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            let reason = "its private key does not belong to the first certificate of the certificate file";
            Err(TlsError::new(Which::Key, reason))
        }
        // Every key kind of this crypto provider can tell its public half, so `Unknown` is not let through.
        Err(e) => {
            Err(TlsError::new(Which::Certificate, format!("its first certificate cannot be used ({e})")))
        }
    }
}

fn client_verifier(
    texts: &TlsTexts,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let Some(text) = &texts.client_roots else {
        if texts.requires_client_certificate {
            let reason =
                "client certificates are required, but no file of root certificates for clients is given";
            return Err(TlsError::new(Which::ClientRoots, reason));
        }
        return Ok(Arc::new(NoClientAuth));
    };
    let roots = read_roots(text, Which::ClientRoots, MAX_CLIENT_ROOTS)?;
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder = if texts.requires_client_certificate { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|e| TlsError::new(Which::ClientRoots, e.to_string()))
}

/// Reads a PEM text of root certificates, at most `most` of them.
///
/// # Errors
/// The error names `which`, and says why the text cannot be used.
pub fn read_roots(text: &[u8], which: Which, most: usize) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for (at, root) in read_certificates(text, which, most)?.into_iter().enumerate() {
        roots.add(root).map_err(|e| {
            TlsError::new(which, format!("its certificate number {} cannot be used ({e})", at + 1))
        })?;
    }
    Ok(roots)
}

/// Reads the PEM texts of a certificate chain and of the private key of its first certificate, by which a server or a client shows who it is.
///
/// # Errors
/// The error names the text that is at fault, and says why.
pub fn read_identity(certificates: &[u8], key: &[u8]) -> Result<SingleCertAndKey, TlsError> {
    let chain = read_certificates(certificates, Which::Certificate, MAX_CHAIN)?;
    let certified = certified_key(chain, &*read_key(key)?)?;
    Ok(SingleCertAndKey::from(certified))
}

/// Reads the validity of the first certificate, and the earliest end of all, and so checks that all can be parsed.
fn chain_validity(chain: &[CertificateDer<'_>]) -> Result<(Validity, i64), TlsError> {
    let mut leaf = None;
    let mut earliest_end = i64::MAX;
    for (at, der) in chain.iter().enumerate() {
        let Some(certificate) = parse(der) else {
            let reason = format!("its certificate number {} is no valid X.509 certificate", at + 1);
            return Err(TlsError::new(Which::Certificate, reason));
        };
        let validity = Validity {
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
        };
        earliest_end = earliest_end.min(validity.not_after);
        leaf.get_or_insert(validity);
    }
    match leaf {
        Some(leaf) => Ok((leaf, earliest_end)),
        None => Err(TlsError::new(Which::Certificate, "it holds no certificate")),
    }
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    match X509Certificate::from_der(der.as_ref()) {
        Ok(([], certificate)) => Some(certificate),
        _ => None,
    }
}

/// Splits a PEM text into its sections of known kinds; sections of unknown kinds are left out.
fn sections(text: &[u8], which: Which) -> Result<Vec<(SectionKind, Vec<u8>)>, TlsError> {
    // Some editors put a byte order mark first, which would hide the first section.
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    let found: Result<Vec<_>, pem::Error> = <(SectionKind, Vec<u8>)>::pem_slice_iter(text).collect();
    // The library's error texts may quote lines of the file, so they are not passed on.
    found.map_err(|e| {
        let reason = match e {
            pem::Error::MissingSectionEnd { .. } => {
                "it is no valid PEM: a BEGIN line has no END line that matches it"
            }
            pem::Error::IllegalSectionStart { .. } => "it is no valid PEM: a BEGIN line is damaged",
            pem::Error::Base64Decode(_) => "it is no valid PEM: a section holds damaged base64",
            _ => "it is no valid PEM",
        };
        TlsError::new(which, reason)
    })
}

/// What to say of a file in which nothing of the wanted kind was found.
fn nothing_found(text: &[u8], which: Which, wanted: &str) -> TlsError {
    let reason = if text.iter().all(u8::is_ascii_whitespace) {
        "it is empty".to_string()
    } else if text.starts_with(&[0x30]) {
        // An ASN.1 sequence starts with this byte, which is the digit 0 in ASCII and no way to start a PEM text.
        format!("it holds no {wanted} in PEM form; it looks like DER, which must be converted to PEM")
    } else {
        format!("it holds no {wanted} in PEM form")
    };
    TlsError::new(which, reason)
}

fn read_certificates(
    text: &[u8],
    which: Which,
    most: usize,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<CertificateDer<'static>> = sections(text, which)?
        .into_iter()
        .filter(|(kind, _)| *kind == SectionKind::Certificate)
        .map(|(_, der)| CertificateDer::from(der))
        .collect();
    if found.is_empty() {
        return Err(nothing_found(text, which, "certificate"));
    }
    if found.len() > most {
        let reason = format!("it holds {} certificates, more than the {most} allowed", found.len());
        return Err(TlsError::new(which, reason));
    }
    Ok(found)
}

/// The private key. Its bytes are overwritten when it is dropped, as are those of any other key in the text.
fn read_key(text: &[u8]) -> Result<Zeroizing<PrivateKeyDer<'static>>, TlsError> {
    // The old form of encryption keeps the section's label and adds headers, which would look like bad base64.
    let encrypted =
        contains(text, b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || contains(text, b"Proc-Type: 4,ENCRYPTED");
    if encrypted {
        let reason = "its private key is encrypted with a password, which is not supported; decrypt it first";
        return Err(TlsError::new(Which::Key, reason));
    }
    let keys = sections(text, Which::Key)?.into_iter();
    let keys = keys.filter_map(|(kind, der)| PrivateKeyDer::from_pem(kind, der)).map(Zeroizing::new);
    let mut keys: Vec<_> = keys.collect();
    match (keys.pop(), keys.is_empty()) {
        (None, _) => Err(nothing_found(text, Which::Key, "private key")),
        (Some(key), true) => Ok(key),
        (Some(_), false) => Err(TlsError::new(Which::Key, "it holds more than one private key")),
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The common name in the subject of a client's certificate, for use as a user's name.
///
/// Returns none unless the subject has exactly one common name that is a UTF8String, PrintableString or
/// IA5String, is not empty, has at most [`MAX_COMMON_NAME`] bytes, and holds no control character. Two
/// names, or a name cut by a zero byte, could be read differently by others, so they count as no name.
pub fn common_name(leaf: &CertificateDer<'_>) -> Option<String> {
    let certificate = parse(leaf)?;
    let mut names = certificate.subject().iter_common_name();
    let name = names.next()?;
    if names.next().is_some() {
        return None;
    }
    checked_name(name.attr_value())
}

fn checked_name(value: &Any<'_>) -> Option<String> {
    if value.header.is_constructed() {
        return None;
    }
    let bytes: &[u8] = value.data;
    let allowed = match value.header.tag() {
        Tag::Utf8String => true,
        Tag::PrintableString | Tag::Ia5String => bytes.is_ascii(),
        _ => false,
    };
    if !allowed || bytes.is_empty() || bytes.len() > MAX_COMMON_NAME {
        return None;
    }
    let name = std::str::from_utf8(bytes).ok()?;
    (!name.chars().any(char::is_control)).then(|| name.to_string())
}
