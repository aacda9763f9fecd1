//! Decoders of credentials, and of what comes before them: signed tokens, the file of API keys, certificates, and the first bytes of a TLS
//! connection.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use nigh_net::auth::jwt::{JwtKeys, JwtVerifier};
use nigh_net::auth::keys_file::{self, Key};
use nigh_net::tls::config::{MAX_COMMON_NAME, common_name};
use nigh_net::tls::session::Session;
use nigh_net::tls::{TlsConfig, TlsTexts};
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::json;
use std::sync::{Arc, LazyLock};

/// A time at which the tokens of these tests are valid, in seconds since 1970.
const NOW_S: u64 = 2_000_000_000;
/// The sizes of the pieces in which the first bytes of a connection arrive.
const PIECES: [usize; 3] = [1, 7, usize::MAX];
/// The most bytes of a connection that are fed one by one; more of them only take longer.
const BY_ONE_MAX: usize = 4096;

/// A PKCS#8 key, made by `openssl genpkey` for these tests and used for nothing else: an input that breaks something breaks it in every run.
const P256: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQghjDXRZZQNC7ou/qY+v3SIAQ+YbpkAGFi8tjr9qmWktyhRANCAARr0u+9/QVbhWFBugaM3p+\
                    0Gva8P00puuYA4HpVra/5dn7y7AKNFuwUcUqWeKCtPq0ZlUPxCtBnNPDnlSug12PL";

/// Two keys, the tokens that they have signed, and the contents of these tokens.
struct Signed {
    verifier: JwtVerifier,
    tokens: Vec<String>,
}

static SIGNED: LazyLock<Signed> = LazyLock::new(|| {
    let random = SystemRandom::new();
    let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let edwards = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a key");
    let pkcs8 = STANDARD.decode(P256).expect("base64");
    let curve = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8, &random);
    let curve = curve.expect("a key");
    // An uncompressed point: a byte, x and y.
    let (x, y) = curve.public_key().as_ref()[1..].split_at(32);
    let keys = json!({"keys": [
        {"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": text(edwards.public_key().as_ref())},
        {"kty": "EC", "crv": "P-256", "kid": "two", "x": text(x), "y": text(y)},
    ]});
    let keys = JwtKeys::read(keys.to_string().as_bytes()).expect("a set of keys");
    let claims = json!({"exp": NOW_S + 60, "tenant": "acme", "scopes": ["read:acme/*"], "sub": "worker"});
    let more = json!({"exp": NOW_S + 60, "nbf": NOW_S - 60, "tenant": "*", "scopes": "read:* write:*", "aud": ["us"]});
    let mut tokens = Vec::new();
    for (header, claims) in [
        (json!({"alg": "EdDSA"}), &claims),
        (json!({"alg": "EdDSA", "kid": "one", "typ": "JWT"}), &more),
        (json!({"alg": "ES256", "kid": "two"}), &claims),
    ] {
        let is_curve = header["alg"] == "ES256";
        let signed =
            format!("{}.{}", text(header.to_string().as_bytes()), text(claims.to_string().as_bytes()));
        let signature = match is_curve {
            true => curve.sign(&random, signed.as_bytes()).expect("a signature").as_ref().to_vec(),
            false => edwards.sign(signed.as_bytes()).as_ref().to_vec(),
        };
        tokens.push(format!("{signed}.{}", text(&signature)));
    }
    Signed { verifier: JwtVerifier { keys, issuer: None, audience: None }, tokens }
});

/// Checks that a token is accepted only if its header and claims are those that a key has signed.
pub(super) fn signed_token(token: &[u8]) {
    let Signed { verifier, tokens } = &*SIGNED;
    if verifier.verify(token, NOW_S).is_ok() {
        let signed = |token: &[u8]| token.rsplitn(2, |byte| *byte == b'.').last().map(<[u8]>::to_vec);
        assert!(
            tokens.iter().any(|known| signed(known.as_bytes()) == signed(token)),
            "nobody has signed {}",
            String::from_utf8_lossy(token)
        );
    }
}

pub(super) fn signed_token_seeds() -> Vec<Vec<u8>> {
    SIGNED.tokens.iter().map(|token| token.clone().into_bytes()).collect()
}

/// Checks that a file that can be read is written such that it is read as the same.
pub(super) fn keys_file(text: &[u8]) {
    let Ok(file) = keys_file::read(text) else { return };
    let written = keys_file::write(&file.keys.iter().collect::<Vec<_>>());
    let again = keys_file::read(&written).expect("a file that was written here");
    assert_eq!(again.keys, file.keys);
}

pub(super) fn keys_file_seeds() -> Vec<Vec<u8>> {
    let key = |token: &[u8], cert_cn| Key::new(token, "acme", vec!["read:acme/*".to_owned()], cert_cn);
    let keys = [key(b"one", ""), key(b"two", "worker"), key(b"", "other")];
    let by_hand = r#"[{"token": "secret", "tenant": "*", "permissions": ["read", "write"], "note": [1, null]},
        {"token": "s2", "tenant": "acme", "scopes": ["*:*"], "cert_cn": "a b"}]"#;
    vec![Vec::new(), b"[]".to_vec(), keys_file::write(&keys.iter().collect::<Vec<_>>()), by_hand.into()]
}

/// Checks that a name from a certificate is short and can be shown.
pub(super) fn certificate_name(der: &[u8]) {
    if let Some(name) = common_name(&CertificateDer::from(der)) {
        assert!(
            (1..=MAX_COMMON_NAME).contains(&name.len()) && !name.chars().any(char::is_control),
            "{name:?}"
        );
    }
}

pub(super) fn certificate_name_seeds() -> Vec<Vec<u8>> {
    let key = KeyPair::generate().expect("random bytes");
    let names = [
        vec![DnValue::Utf8String("worker".to_owned())],
        vec![DnValue::PrintableString("worker 7".try_into().expect("printable"))],
        vec![DnValue::BmpString("worker".try_into().expect("text"))],
        vec![DnValue::Utf8String("nul\0in it".to_owned())],
        vec![DnValue::Utf8String("é\u{202e}".to_owned())],
        vec![],
    ];
    let certificate = |values: Vec<DnValue>| {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.distinguished_name = DistinguishedName::new();
        for value in values {
            params.distinguished_name.push(DnType::CommonName, value);
        }
        params.self_signed(&key).expect("it is signed").der().to_vec()
    };
    names.into_iter().map(certificate).collect()
}

static TLS: LazyLock<TlsConfig> = LazyLock::new(|| {
    let key = KeyPair::generate().expect("random bytes");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("it is signed").pem();
    let texts = TlsTexts {
        certificates: certificate.clone().into_bytes(),
        key: key.serialize_pem().into_bytes().into(),
        client_roots: Some(certificate.into_bytes()),
        requires_client_certificate: true,
    };
    TlsConfig::new(&texts).expect("a configuration")
});

/// Checks that the first bytes of a connection are refused for the same reason, or wait for more, however they are cut, that the answer is short, and
/// that no client is let in after one message.
pub(super) fn client_hello(bytes: &[u8]) {
    for config in [TLS.http(), TLS.binary()] {
        let mut outcomes = Vec::new();
        for piece in PIECES {
            if piece == 1 && bytes.len() > BY_ONE_MAX {
                continue;
            }
            let mut session = Session::new(config.clone()).expect("a session");
            let mut failed = None;
            for part in bytes.chunks(piece.min(bytes.len().max(1))) {
                if let Err(error) = session.feed(part) {
                    failed = Some(error.to_string());
                    break;
                }
            }
            let mut sent = 0;
            while session.wants_write() {
                let put = session.outgoing(|slices| Ok(slices.iter().map(|slice| slice.len()).sum()));
                sent += put.expect("the closure does not fail");
            }
            assert!(session.is_handshaking() && session.peer_common_name().is_none(), "somebody was let in");
            assert!(sent <= 16 << 10, "{sent} bytes for {} received", bytes.len());
            outcomes.push(failed);
        }
        assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{outcomes:?}");
    }
}

pub(super) fn client_hello_seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![b"GET / HTTP/1.1\r\n\r\n".to_vec(), b"\x15\x03\x01\0\x02\x02\x28".to_vec()];
    for versions in [&[&rustls::version::TLS12][..], &[&rustls::version::TLS13], rustls::ALL_VERSIONS] {
        for names in [&[][..], &[&b"http/1.1"[..]], &[b"h2", b"http/1.1"]] {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions);
            let builder = builder.expect("versions").with_root_certificates(RootCertStore::empty());
            let mut config = builder.with_no_client_auth();
            config.alpn_protocols = names.iter().map(|name| name.to_vec()).collect();
            let name = ServerName::try_from("localhost").expect("a name");
            let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
            let mut hello = Vec::new();
            client.write_tls(&mut hello).expect("a vector takes everything");
            seeds.push(hello);
        }
    }
    seeds
}
