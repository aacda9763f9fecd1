//! What the tests share: certificates, clients, and an in-memory connection.

use std::io::{IoSlice, Read as _, Write as _};
use std::sync::Arc;

use nigh_net::tls::config::{TlsConfig, TlsTexts};
use nigh_net::tls::session::{Read, Session, SessionError};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

pub const RSA: &str = include_str!("data/rsa_pkcs8.pem");
pub static TLS12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
pub static TLS13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

pub struct Ca {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    pub fn new(name: &str) -> Ca {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Ca { pem, issuer: Issuer::new(params, key) }
    }

    pub fn sign(&self, params: &CertificateParams, key: &KeyPair) -> (String, CertificateDer<'static>) {
        let made = params.signed_by(key, &self.issuer).unwrap();
        (made.pem(), made.der().clone())
    }

    /// The PEM texts of a server's certificate and key.
    pub fn server(&self, key: &KeyPair) -> (String, String) {
        let params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
        (self.sign(&params, key).0, key.serialize_pem())
    }

    pub fn client(&self, name: &str) -> (CertificateDer<'static>, KeyPair) {
        self.client_with(client_params(DnValue::Utf8String(name.to_string())))
    }

    pub fn client_with(&self, params: CertificateParams) -> (CertificateDer<'static>, KeyPair) {
        let key = KeyPair::generate().unwrap();
        (self.sign(&params, &key).1, key)
    }
}

pub fn client_params(name: DnValue) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

pub struct World {
    pub ca: Ca,
    pub client_ca: Ca,
    pub texts: TlsTexts,
    pub config: TlsConfig,
}

/// A server with a P-256 certificate; `clients` is none for no client certificates, or whether they are required.
pub fn world(clients: Option<bool>) -> World {
    world_with(clients, &KeyPair::generate().unwrap())
}

pub fn world_with(clients: Option<bool>, key: &KeyPair) -> World {
    let (ca, client_ca) = (Ca::new("server root"), Ca::new("client root"));
    let (certificate, key) = ca.server(key);
    let texts = TlsTexts {
        certificates: certificate.into_bytes(),
        key: key.into_bytes().into(),
        client_roots: clients.map(|_| client_ca.pem.clone().into_bytes()),
        requires_client_certificate: clients == Some(true),
    };
    let config = TlsConfig::new(&texts).unwrap();
    World { ca, client_ca, texts, config }
}

pub type Identity = (CertificateDer<'static>, KeyPair);

pub fn client(
    ca: &Ca,
    versions: &[&'static SupportedProtocolVersion],
    identity: Option<&Identity>,
    alpn: &[&str],
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((leaf, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![leaf.clone()], key).unwrap()
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

pub fn connect(config: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(config.clone(), ServerName::try_from("localhost").unwrap()).unwrap()
}

/// Everything the client wants to send now.
pub fn drain_client(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Everything the session wants to send now.
pub fn drain(session: &mut Session) -> Vec<u8> {
    let mut bytes = Vec::new();
    while session.wants_write() {
        session.outgoing(|slices| bytes.write_vectored(slices)).unwrap();
    }
    bytes
}

/// Gives bytes to the client; any error of TLS is returned.
pub fn give(client: &mut ClientConnection, mut bytes: &[u8]) -> Result<(), rustls::Error> {
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).unwrap();
        client.process_new_packets()?;
    }
    Ok(())
}

/// Passes bytes both ways until nobody wants to send any more.
pub fn pump(client: &mut ClientConnection, session: &mut Session) -> Result<(), SessionError> {
    loop {
        let up = drain_client(client);
        let fed = session.feed(&up);
        let down = drain(session);
        let _client_may_complain = give(client, &down);
        assert_eq!(fed?.taken, up.len());
        if up.is_empty() && down.is_empty() {
            return Ok(());
        }
    }
}

pub fn handshake(
    config: &Arc<rustls::ServerConfig>,
    client: &Arc<ClientConfig>,
) -> Result<(ClientConnection, Session), SessionError> {
    let (mut client, mut session) = (connect(client), Session::new(config.clone()).unwrap());
    pump(&mut client, &mut session)?;
    assert!(!client.is_handshaking() && !session.is_handshaking());
    Ok((client, session))
}

/// Reads decrypted bytes of one record into the buffer.
pub fn read(session: &mut Session, into: &mut [u8]) -> Result<Read, SessionError> {
    session.read(into.len(), |bytes| into[..bytes.len()].copy_from_slice(bytes))
}

/// Sends a request and an answer, and checks both.
pub fn ping(client: &mut ClientConnection, session: &mut Session) {
    client.writer().write_all(b"ping").unwrap();
    pump(client, session).unwrap();
    let mut into = [0; 16];
    assert_eq!(read(session, &mut into).unwrap(), Read::Bytes(4));
    assert_eq!(&into[..4], b"ping");
    assert_eq!(read(session, &mut into).unwrap(), Read::Nothing);
    assert_eq!(session.write(&[IoSlice::new(b"po"), IoSlice::new(b"ng")]), 4);
    pump(client, session).unwrap();
    assert_eq!(client.reader().read(&mut into).unwrap(), 4);
    assert_eq!(&into[..4], b"pong");
}
