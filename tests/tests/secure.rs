//! A server with every means of access at once: certificates, API keys, signed tokens and the audit log; and what it does when its files change.
use nigh_tests::{Server, run_to_end, signed};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A certificate that signs itself, and its key.
pub struct Pair {
    certificate: String,
    key: String,
}

impl Pair {
    pub fn new() -> Pair {
        let key = KeyPair::generate().expect("random bytes");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("it is signed").pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    /// Puts both where the server reads them.
    pub fn install(&self, directory: &Path) {
        for (name, text) in [("cert.pem", &self.certificate), ("key.pem", &self.key)] {
            // As tools that rotate certificates do it: a file is there as a whole or not at all.
            fs::write(directory.join("next"), text).expect("room on the disk");
            fs::rename(directory.join("next"), directory.join(name)).expect("it is renamed");
        }
    }
}

/// The status and the body of the answer to a GET of a client that trusts this certificate alone.
pub fn get(
    server: &Server,
    trusted: &Pair,
    token: &str,
    path: &str,
) -> Result<(u16, String), std::io::Error> {
    let mut roots = RootCertStore::empty();
    let der = CertificateDer::from_pem_slice(trusted.certificate.as_bytes()).expect("a certificate");
    roots.add(der).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.expect("versions").with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let session = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut stream = StreamOwned::new(session, TcpStream::connect(server.authority())?);
    stream.sock.set_read_timeout(Some(Duration::from_secs(30)))?;
    let authorization = match token {
        "" => String::new(),
        token => format!("authorization: Bearer {token}\r\n"),
    };
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{authorization}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    // A server that ends without a word of TLS would be an error here.
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Ok((status, answer.split_once("\r\n\r\n").expect("a body").1.to_owned()))
}

/// Waits until clients that trust this certificate are served.
pub fn wait_until_served(server: &Server, trusted: &Pair) {
    let began = Instant::now();
    while get(server, trusted, "", "/v1/health").is_err() {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// The decisions in a log.
fn decisions(log: &str) -> Vec<Value> {
    log.lines()
        .filter(|line| line.contains("\"decision\""))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

#[test]
fn certificates_keys_and_signed_tokens_work_together() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("text").to_owned();
    let first = Pair::new();
    first.install(directory.path());
    let issuer = KeyPair::generate().expect("random bytes");
    fs::write(path("jwt.pem"), issuer.public_key_pem()).expect("room on the disk");
    let keys = path("keys.json");
    let add = ["keys", "add", "-file", &keys, "-tenant", "acme", "-scopes", "read:acme/*"];
    let added = run_to_end(&add, &[("SVC_KEY_TOKEN", "a-token-of-acme")]);
    assert_eq!(added.stdout, "added key a-to******** (tenant=acme, scopes=[read:acme/*], cert-cn=\"\")\n");
    let limited = [&add[..], &["-bytes-per-second", "1"]].concat();
    let added = run_to_end(&limited, &[("SVC_KEY_TOKEN", "a-token-with-a-limit")]);
    assert!(added.stdout.ends_with(", bytes-per-second=1)\n"), "{}", added.stdout);
    let (certificate, key, jwt) = (path("cert.pem"), path("key.pem"), path("jwt.pem"));
    let flags = [
        "-tls-cert",
        &certificate,
        "-tls-key",
        &key,
        "-keys-file",
        &keys,
        "-tenant-isolation",
        "-audit-log",
        "-jwt-public-key",
        &jwt,
        "-jwt-issuer",
        "tests",
        "-access-log",
    ];
    let server = Server::start(None, &flags);
    let claims = |tenant: &str, exp: u64| json!({"iss": "tests", "exp": exp, "tenant": tenant, "scopes": "read:*", "sub": "somebody"});
    let own = signed(&issuer, &claims("acme", now_s() + 600));
    let foreign = signed(&issuer, &claims("other", now_s() + 600));
    let expired = signed(&issuer, &claims("acme", now_s() - 60));
    let docs = "/v1/collections/acme%2Fdocs/points/1";
    for (token, status) in [
        ("", 401),
        ("a-token-of-acme", 404),
        ("a-token-of-nobody", 401),
        (&own, 404),
        (&foreign, 401),
        (&expired, 401),
        (&own[..own.len() - 2], 401),
    ] {
        let answer = get(&server, &first, token, docs).expect("an answer");
        assert_eq!(answer.0, status, "{token}: {}", answer.1);
    }
    // The first answer has as many bytes as may be sent in half a minute.
    for status in [404, 429] {
        let answer = get(&server, &first, "a-token-with-a-limit", docs).expect("an answer");
        assert_eq!(answer.0, status, "{}", answer.1);
    }
    assert_eq!(get(&server, &first, "", "/v1/health").expect("an answer").0, 200);

    // The key alone is the next one for a moment, which is an error in the log and nothing else.
    let second = Pair::new();
    fs::write(path("key.pem"), &second.key).expect("room on the disk");
    server.signal(libc::SIGHUP);
    server.wait_for_log("could not be reloaded");
    assert_eq!(get(&server, &first, "", "/v1/health").expect("an answer").0, 200);
    second.install(directory.path());
    server.signal(libc::SIGHUP);
    wait_until_served(&server, &second);
    assert!(get(&server, &first, "", "/v1/health").is_err());
    // Without SIGHUP: the server notices the change by itself.
    first.install(directory.path());
    wait_until_served(&server, &first);
    // Another issuer's key takes the place of the first one's.
    let next = KeyPair::generate().expect("random bytes");
    fs::write(path("jwt.pem"), next.public_key_pem()).expect("room on the disk");
    server.signal(libc::SIGHUP);
    let began = Instant::now();
    while get(&server, &first, &own, docs).expect("an answer").0 != 401 {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", server.log());
    }
    let by_next = signed(&next, &claims("acme", now_s() + 600));
    assert_eq!(get(&server, &first, &by_next, docs).expect("an answer").0, 404);

    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    let said: Vec<(String, String, String)> = decisions(&log)
        .iter()
        .map(|line| {
            let field = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            (field("principal"), field("decision"), field("reason"))
        })
        .take(7)
        .collect();
    let expected = [
        ("unknown", "deny", "no-principal"),
        ("token:", "allow", "scope-match"),
        ("unknown", "deny", "token-not-found"),
        ("somebody", "allow", "jwt-scope-match"),
        ("somebody", "deny", "jwt-tenant-mismatch"),
        ("unknown", "deny", "jwt-invalid"),
        ("unknown", "deny", "jwt-invalid"),
    ];
    for (found, (principal, decision, reason)) in said.iter().zip(expected) {
        assert_eq!((found.1.as_str(), found.2.as_str()), (decision, reason), "{found:?}");
        assert!(found.0 == principal || (principal.starts_with("token:") && found.0.starts_with("token:")));
    }
    assert_eq!(said.len(), expected.len());
    let limited: Vec<Value> =
        decisions(&log)[7..9].iter().map(|line| json!([line["decision"], line["reason"]])).collect();
    assert_eq!(limited, [json!(["allow", "scope-match"]), json!(["deny", "rate-limit"])]);
    let whole = &decisions(&log)[1];
    assert_eq!(whole["resource"], "acme/docs");
    assert_eq!(
        (&whole["op"], &whole["action"], &whole["tenant"]),
        (&json!("vector_get"), &json!("read"), &json!("acme"))
    );
    for secret in ["a-token-of-acme", "a-token-of-nobody", &own, &expired] {
        assert!(!log.contains(secret), "a token is in the log");
    }
    assert!(!fs::read_to_string(&keys).expect("the file of keys").contains("a-token-of-acme"));
}

#[test]
fn an_unusable_file_prevents_the_start_and_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("text").to_owned();
    let (pair, other) = (Pair::new(), Pair::new());
    pair.install(directory.path());
    fs::write(path("other.pem"), &other.key).expect("room on the disk");
    fs::write(path("empty.pem"), "").expect("room on the disk");
    fs::write(path("keys.json"), "[]").expect("room on the disk");
    let (certificate, key, missing) = (path("cert.pem"), path("key.pem"), path("missing.pem"));
    let (foreign, empty, keys) = (path("other.pem"), path("empty.pem"), path("keys.json"));
    for (flags, part) in [
        (&["-tls-cert", &missing, "-tls-key", &key][..], format!("-tls-cert {missing}: ")),
        (&["-tls-cert", &empty, "-tls-key", &key], format!("-tls-cert {empty}: ")),
        (&["-tls-cert", &certificate, "-tls-key", &foreign], format!("-tls-key {foreign}: ")),
        (&["-tls-cert", &certificate, "-tls-key", &key, "-tls-ca", &empty], format!("-tls-ca {empty}: ")),
        (&["-keys-file", &keys, "-jwt-public-key", &empty], format!("-jwt-public-key {empty}: ")),
        (&["-keys-file", &keys, "-jwt-public-key", &key], format!("-jwt-public-key {key}: ")),
    ] {
        let ended = run_to_end(&[&["-http", "127.0.0.1:0"], flags].concat(), &[]);
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains(&part), "{part:?} is not in {}", ended.stderr);
    }
}
