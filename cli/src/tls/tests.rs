//! Connections over TLS to servers of these tests, and what clients say when they fail. Other tests put [`in_front_of`] before their servers.
use super::connector::Connector;
use super::explain::{CLOSED_HANDSHAKE, Trusted};
use super::flags::TlsFlags;
use super::stream::{Stream, connect};
use nigh_net::tls::config::{Which, read_roots};
use nigh_net::tls::{TlsConfig, TlsTexts};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{HandshakeKind, ServerConfig, ServerConnection};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};

/// An authority, and what it has signed, as PEM texts.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub certificate: String,
}

/// A certificate and its key, as PEM texts.
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    /// A certificate for `names`, changed by `change`.
    pub fn sign(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

/// What a server with this certificate needs; client certificates must be signed by `clients`.
fn server_config(pair: &Pair, clients: Option<&Authority>) -> TlsConfig {
    TlsConfig::new(&TlsTexts {
        certificates: pair.certificate.clone().into(),
        key: pair.key.clone().into_bytes().into(),
        client_roots: clients.map(|authority| authority.certificate.clone().into()),
        requires_client_certificate: clients.is_some(),
    })
    .unwrap()
}

/// A connector that trusts `authority` alone.
fn trusting(authority: &Authority) -> Arc<Connector> {
    named(authority, None)
}

fn named(authority: &Authority, name: Option<&str>) -> Arc<Connector> {
    let roots = read_roots(authority.certificate.as_bytes(), Which::Certificate, 1).unwrap();
    let name = name.map(|name| ServerName::try_from(name.to_owned()).unwrap());
    Arc::new(Connector::new(roots, Trusted::File("ca.pem".into()), None, name, &[]).unwrap())
}

/// A server over TLS that passes everything on to another one.
pub struct Front {
    /// Its address, host:port.
    pub address: String,
    /// A connector that trusts it.
    pub connector: Arc<Connector>,
    /// The certificate of its authority.
    pub authority: String,
}

/// Starts a server over TLS in front of the one at `address`.
pub fn in_front_of(address: &str) -> Front {
    let authority = Authority::new("tests");
    let config = server_config(&authority.sign(&["127.0.0.1"], |_| {}), None).http().clone();
    let (listener, address) = (TcpListener::bind("127.0.0.1:0").unwrap(), address.to_owned());
    let (front, connector) = (listener.local_addr().unwrap().to_string(), trusting(&authority));
    std::thread::spawn(move || {
        for secure in listener.incoming().map_while(Result::ok) {
            let Ok(plain) = TcpStream::connect(&address) else { continue };
            let session = ServerConnection::new(config.clone()).unwrap();
            std::thread::spawn(move || pass_on(secure, plain, session));
        }
    });
    Front { address: front, connector, authority: authority.certificate }
}

fn pass_on(mut secure: TcpStream, mut plain: TcpStream, mut session: ServerConnection) {
    secure.set_nodelay(true).unwrap();
    plain.set_nodelay(true).unwrap();
    if session.complete_io(&mut secure).is_err() {
        return;
    }
    let session = Arc::new(Mutex::new(session));
    let downward = session.clone();
    let (mut from, mut to) = (plain.try_clone().unwrap(), secure.try_clone().unwrap());
    std::thread::spawn(move || {
        let mut bytes = [0; 32 << 10];
        loop {
            let count = from.read(&mut bytes).unwrap_or(0);
            let mut session = downward.lock().unwrap();
            match count {
                0 => session.send_close_notify(),
                _ => session.writer().write_all(&bytes[..count]).unwrap(),
            }
            let mut records = Vec::new();
            while session.wants_write() {
                session.write_tls(&mut records).unwrap();
            }
            drop(session);
            if to.write_all(&records).is_err() || count == 0 {
                let _gone = to.shutdown(Shutdown::Both);
                return;
            }
        }
    });
    let mut records = [0; 32 << 10];
    loop {
        // Bytes that came with the end of the handshake are there already.
        let mut bytes = Vec::new();
        let _nothing_more = session.lock().unwrap().reader().read_to_end(&mut bytes);
        if bytes.is_empty() {
            let count = secure.read(&mut records).unwrap_or(0);
            let mut session = session.lock().unwrap();
            let mut rest = &records[..count];
            while !rest.is_empty()
                && session.read_tls(&mut rest).is_ok()
                && session.process_new_packets().is_ok()
            {
                let _nothing_more = session.reader().read_to_end(&mut bytes);
            }
            if count == 0 {
                let _gone = plain.shutdown(Shutdown::Both);
                return;
            }
        }
        if plain.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// A server that answers what it has read, once per connection, and tells how each handshake went.
fn echo(config: Arc<ServerConfig>, length: usize) -> (String, mpsc::Receiver<Option<HandshakeKind>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let session = ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::StreamOwned::new(session, socket);
            let mut bytes = vec![0; length];
            let served = stream.read_exact(&mut bytes).and_then(|()| stream.write_all(&bytes));
            if served.is_ok() {
                stream.conn.send_close_notify();
            }
            let _gone = stream.flush();
            let _nobody_asks = tell.send(stream.conn.handshake_kind());
        }
    });
    (address, told)
}

/// Why a client is not served by a server with this configuration.
#[track_caller]
fn refusal(config: &TlsConfig, connector: &Arc<Connector>) -> String {
    let (address, _) = echo(config.binary().clone(), 1);
    let served = connect(&address, Some(connector)).and_then(|mut stream| {
        stream.write_all(b"x")?;
        stream.read(&mut [0])
    });
    served.map(|count| format!("{count} bytes")).unwrap_err().to_string()
}

#[test]
fn bytes_go_both_ways_and_sessions_are_resumed() {
    let authority = Authority::new("tests");
    let config = server_config(&authority.sign(&["127.0.0.1"], |_| {}), None);
    let bytes: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_be_bytes).collect();
    let (address, told) = echo(config.binary().clone(), bytes.len());
    let connector = trusting(&authority);
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let mut stream = connect(&address, Some(&connector)).unwrap();
        assert!(matches!(stream, Stream::Secure(_)));
        stream.write_all(&bytes).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert!(back == bytes, "{} of {} bytes came back as they were", back.len(), bytes.len());
        assert_eq!(told.recv().unwrap(), Some(kind));
    }
}

#[test]
fn a_socket_that_does_not_block_says_what_waits() {
    let authority = Authority::new("tests");
    let config = server_config(&authority.sign(&["127.0.0.1"], |_| {}), None);
    let bytes = vec![7; 16 << 20];
    let (address, _told) = echo(config.binary().clone(), bytes.len());
    let mut stream = connect(&address, Some(&trusting(&authority))).unwrap();
    stream.socket().set_nonblocking(true).unwrap();
    // Less than a record: the socket is full however fast the other side reads.
    rustix::net::sockopt::set_socket_send_buffer_size(stream.socket(), 4096).unwrap();
    assert_eq!(stream.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let (mut written, mut back, mut has_waited) = (0, 0, false);
    let mut buffer = vec![0; 100];
    while back < bytes.len() {
        match stream.write(&bytes[written..]) {
            Ok(count) => written += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        has_waited |= stream.has_unsent();
        while back < bytes.len() {
            match stream.read(&mut buffer) {
                Ok(count) => {
                    assert!(count > 0, "the connection has ended after {back} bytes");
                    back += count;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    assert!(!stream.has_more(), "what has been decrypted would never be read");
                    break;
                }
            }
        }
    }
    assert!(has_waited, "the socket has taken 16 MiB at once");
    assert_eq!((written, back), (bytes.len(), bytes.len()));
}

#[test]
fn a_certificate_that_is_not_accepted_is_explained() {
    let (authority, other) = (Authority::new("tests"), Authority::new("others"));
    // This authority has the same name and another key.
    let namesake = Authority::new("tests");
    let past = |params: &mut CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 3);
    };
    let future = |params: &mut CertificateParams| params.not_before = rcgen::date_time_ymd(2900, 1, 1);
    let of_authority =
        |params: &mut CertificateParams| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let good = authority.sign(&["127.0.0.1"], |_| {});
    for (pair, connector, part) in [
        (&good, trusting(&other), "no certificate in -tls-ca ca.pem has signed it"),
        (&good, trusting(&namesake), "no certificate in -tls-ca ca.pem has signed it"),
        (
            &good,
            named(&authority, Some("db.example")),
            "is for 127.0.0.1, not for db.example; -tls-server-name",
        ),
        (
            &authority.sign(&["a.example", "::1"], |_| {}),
            trusting(&authority),
            "is for a.example, 0::1, not for 127.0.0.1",
        ),
        (&authority.sign(&[], |_| {}), trusting(&authority), "no name of a server"),
        (&authority.sign(&["127.0.0.1"], past), trusting(&authority), "expired at 2001-01-03T00:00:00Z"),
        (
            &authority.sign(&["127.0.0.1"], future),
            trusting(&authority),
            "is not valid before 2900-01-01T00:00:00Z",
        ),
        (&authority.sign(&["127.0.0.1"], of_authority), trusting(&authority), "CA:FALSE"),
    ] {
        let error = refusal(&server_config(pair, None), &connector);
        assert!(error.contains(part), "no {part:?} in {error}");
    }
}

#[test]
fn a_client_certificate_that_is_missing_or_refused_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let (authority, clients, others) =
        (Authority::new("tests"), Authority::new("clients"), Authority::new("others"));
    let config = server_config(&authority.sign(&["127.0.0.1"], |_| {}), Some(&clients));
    let write = |name: &str, text: &str| -> PathBuf {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let ca = write("ca.pem", &authority.certificate);
    let flags = |pair: Option<Pair>| TlsFlags {
        tls_ca: Some(ca.clone()),
        tls_cert: pair.as_ref().map(|pair| write("client.pem", &pair.certificate)),
        tls_key: pair.as_ref().map(|pair| write("client.key", &pair.key)),
        ..TlsFlags::default()
    };
    let connector = |pair| flags(pair).connector(&[]).unwrap().unwrap();
    let error = refusal(&config, &connector(None));
    assert!(error.contains("asks for a client certificate: -tls-cert and -tls-key"), "{error}");
    let error = refusal(&config, &connector(Some(others.sign(&[], |_| {}))));
    assert!(error.contains("refuses the client certificate of -tls-cert"), "{error}");
    let (address, told) = echo(config.binary().clone(), 1);
    let mut stream = connect(&address, Some(&connector(Some(clients.sign(&[], |_| {}))))).unwrap();
    stream.write_all(b"x").unwrap();
    let mut back = String::new();
    stream.read_to_string(&mut back).unwrap();
    assert_eq!((back.as_str(), told.recv().unwrap()), ("x", Some(HandshakeKind::Full)));
}

#[test]
fn a_server_that_does_not_speak_tls_is_noticed() {
    let connector = trusting(&Authority::new("tests"));
    let frame = {
        let mut out = Vec::new();
        nigh_net::tcp::frame::put_error(&mut out, "frame too large");
        out
    };
    for answer in
        [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &frame, b"-ERR unknown command\r\n", b"ERROR\r\n", b""]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let client = {
            let connector = connector.clone();
            std::thread::spawn(move || connect(&address, Some(&connector)).err().unwrap().to_string())
        };
        let (mut server, _) = listener.accept().unwrap();
        assert!(server.read(&mut [0; 4096]).unwrap() > 0);
        server.write_all(answer).unwrap();
        drop(server);
        let error = client.join().unwrap();
        match answer {
            [] => assert_eq!(error, CLOSED_HANDSHAKE),
            _ => assert!(error.contains("does not speak TLS there"), "{answer:?}: {error}"),
        }
    }
}

#[test]
fn flags_that_cannot_be_carried_out_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("tests");
    let (pair, other) = (authority.sign(&["x"], |_| {}), authority.sign(&["x"], |_| {}));
    let path = |name: &str| directory.path().join(name);
    for (name, text) in [
        ("ca.pem", &authority.certificate),
        ("cert.pem", &pair.certificate),
        ("key.pem", &pair.key),
        ("other.pem", &other.key),
        ("empty.pem", &String::new()),
    ] {
        std::fs::write(path(name), text).unwrap();
    }
    let with = |ca: &str, certificate: Option<&str>, key: Option<&str>| TlsFlags {
        tls_ca: Some(path(ca)),
        tls_cert: certificate.map(path),
        tls_key: key.map(path),
        ..TlsFlags::default()
    };
    let error = |flags: TlsFlags| flags.connector(&[]).map(|_| ()).unwrap_err();
    for (flags, part) in [
        (with("missing.pem", None, None), format!("-tls-ca {}: ", path("missing.pem").display())),
        (with("empty.pem", None, None), format!("-tls-ca {}: it is empty", path("empty.pem").display())),
        (with("key.pem", None, None), "it holds no certificate".into()),
        (with("ca.pem", Some("cert.pem"), None), "-tls-cert needs -tls-key".into()),
        (with("ca.pem", None, Some("key.pem")), "-tls-key needs -tls-cert".into()),
        (
            with("ca.pem", Some("cert.pem"), Some("other.pem")),
            format!("-tls-key {}: ", path("other.pem").display()),
        ),
        (
            with("ca.pem", Some("empty.pem"), Some("key.pem")),
            format!("-tls-cert {}: ", path("empty.pem").display()),
        ),
        (
            TlsFlags { tls: Some(false), ..with("ca.pem", None, None) },
            "-tls=false and -tls-ca contradict".into(),
        ),
        (
            TlsFlags { tls_server_name: Some("a b".into()), ..with("ca.pem", None, None) },
            "-tls-server-name \"a b\"".into(),
        ),
    ] {
        let error = error(flags);
        assert!(error.contains(&part), "no {part:?} in {error}");
        assert!(!error.contains("PRIVATE"), "{error}");
    }
    assert!(with("ca.pem", Some("cert.pem"), Some("key.pem")).connector(&[]).unwrap().is_some());
    let plain = [TlsFlags::default(), TlsFlags { tls: Some(false), ..TlsFlags::default() }];
    for flags in plain {
        assert!(flags.connector(&[]).unwrap().is_none());
        assert_eq!(flags.refuse_http(), Ok(()));
    }
    assert!(with("ca.pem", None, None).refuse_http().unwrap_err().starts_with("-tls-ca asks for TLS"));
    let off = TlsFlags { tls: Some(false), ..TlsFlags::default() };
    assert!(off.connector_of_https(&[]).unwrap_err().contains("https://"));
}

#[test]
fn a_host_that_no_certificate_could_name_is_refused() {
    let connector = trusting(&Authority::new("tests"));
    for address in ["127.0.0.1:1", "localhost:1", "[::1]:1", "a.example:1"] {
        assert!(connector.session(address).is_ok(), "{address}");
    }
    let error = connector.session("a_b c:1").err().unwrap();
    assert!(error.contains("-tls-server-name"), "{error}");
}
