//! Tests of reading PEM texts and of common names.

use super::authority::{Ca, RSA, TLS12, TLS13, client, client_params, handshake, ping, world};
use nigh_net::tls::config::{MAX_CHAIN, MAX_CLIENT_ROOTS, TlsConfig, TlsError, TlsTexts, Which, common_name};
use rcgen::{CertificateParams, DnType, DnValue, KeyPair};
use rustls::pki_types::CertificateDer;
use std::sync::Arc;

const EC_PKCS8: &str = include_str!("data/ec_pkcs8.pem");

fn texts(certificates: &str, key: &str) -> TlsTexts {
    TlsTexts {
        certificates: certificates.into(),
        key: key.as_bytes().to_vec().into(),
        client_roots: None,
        requires_client_certificate: false,
    }
}

fn error(texts: &TlsTexts) -> TlsError {
    match TlsConfig::new(texts) {
        Ok(_) => panic!("no error"),
        Err(e) => {
            println!("{e}");
            e
        }
    }
}

fn fails(texts: &TlsTexts, which: Which, part: &str) {
    let e = error(texts);
    assert_eq!(e.which, which, "{e}");
    assert!(e.reason.contains(part), "{e}");
}

#[test]
fn all_forms_of_keys_work() {
    let ca = Ca::new("root");
    let ec = KeyPair::from_pem(EC_PKCS8).unwrap();
    let rsa = KeyPair::from_pem(RSA).unwrap();
    let (ec_certificate, _) = ca.server(&ec);
    let (rsa_certificate, _) = ca.server(&rsa);
    let ed = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let (ed_certificate, ed_key) = ca.server(&ed);
    let cases = [
        (&ec_certificate, EC_PKCS8),
        (&ec_certificate, include_str!("data/ec_sec1.pem")),
        (&rsa_certificate, RSA),
        (&rsa_certificate, include_str!("data/rsa_pkcs1.pem")),
        (&ed_certificate, ed_key.as_str()),
    ];
    for (certificate, key) in cases {
        for with_bom in [false, true] {
            let mut texts = texts(certificate, key);
            if with_bom {
                texts.certificates.splice(0..0, *b"\xEF\xBB\xBF");
                texts.key =
                    String::from_utf8(texts.key.to_vec()).unwrap().replace('\n', "\r\n").into_bytes().into();
            }
            let config = TlsConfig::new(&texts).unwrap();
            for versions in [TLS12, TLS13] {
                let connector = Arc::new(client(&ca, versions, None, &[]));
                let (mut client, mut session) = handshake(config.http(), &connector).unwrap();
                ping(&mut client, &mut session);
            }
        }
    }
}

#[test]
fn one_file_may_hold_certificate_and_key() {
    let (certificate, key) = Ca::new("root").server(&KeyPair::generate().unwrap());
    let both = format!("some text\n{certificate}{key}");
    assert!(TlsConfig::new(&texts(&both, &both)).is_ok());
}

#[test]
fn errors_name_the_file_and_the_cause() {
    let ca = Ca::new("root");
    let (certificate, key) = ca.server(&KeyPair::generate().unwrap());
    let (_, other_key) = ca.server(&KeyPair::generate().unwrap());
    let bad64 = "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n";
    let bad_der = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let bad_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let cut = &certificate[..certificate.len() / 2];
    let many = certificate.repeat(MAX_CHAIN + 1);
    for (text, part) in [
        ("", "is empty"),
        (" \n", "is empty"),
        ("hello", "no certificate"),
        ("0\u{1}\u{2}", "DER"),
        (key.as_str(), "no certificate"),
        (bad64, "base64"),
        (bad_der, "number 1 is no valid X.509"),
        (cut, "no END line"),
        ("-----BEGIN CERTIFICATE", "BEGIN line is damaged"),
        (many.as_str(), "65 certificates"),
        (&format!("{certificate}{bad_der}"), "number 2"),
    ] {
        fails(&texts(text, &key), Which::Certificate, part);
    }
    for (text, part) in [
        ("", "is empty"),
        (certificate.as_str(), "no private key"),
        (other_key.as_str(), "does not belong"),
        (RSA, "does not belong"),
        (bad_key, "damaged or of a kind"),
        (&format!("{key}{other_key}"), "more than one"),
        (&key[..100], "no END line"),
        (include_str!("data/ec_encrypted.pem"), "encrypted with a password"),
        (include_str!("data/rsa_pkcs1_encrypted.pem"), "encrypted with a password"),
    ] {
        fails(&texts(&certificate, text), Which::Key, part);
    }
    // A chain in the wrong order is found by its key.
    fails(&texts(&format!("{}{certificate}", ca.pem), &key), Which::Key, "first certificate");
    let many = ca.pem.repeat(MAX_CLIENT_ROOTS + 1);
    for (text, part) in [
        ("", "is empty"),
        (key.as_str(), "no certificate"),
        (bad64, "base64"),
        (bad_der, "number 1 cannot be used"),
        (many.as_str(), "257 certificates"),
    ] {
        let mut texts = texts(&certificate, &key);
        texts.client_roots = Some(text.into());
        fails(&texts, Which::ClientRoots, part);
    }
    let mut texts = texts(&certificate, &key);
    texts.requires_client_certificate = true;
    fails(&texts, Which::ClientRoots, "required");
}

#[test]
fn errors_never_show_the_key() {
    let (certificate, key) = Ca::new("root").server(&KeyPair::generate().unwrap());
    let secret = key.lines().nth(1).unwrap();
    for text in [
        format!("-----BEGIN {secret}\n"),
        format!("-----BEGIN PRIVATE KEY-----\n{secret}!\n-----END PRIVATE KEY-----\n"),
        format!("-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----\n"),
        format!("-----BEGIN PRIVATE KEY-----\n{secret}\n"),
    ] {
        assert!(!error(&texts(&certificate, &text)).to_string().contains(&secret[..8]));
    }
}

#[test]
fn validity_is_told() {
    let ca = Ca::new("root");
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2001, 1, 3);
    let expired = ca.sign(&params, &key).0;
    params.not_after = rcgen::date_time_ymd(2040, 1, 1);
    let long = ca.sign(&params, &key).0;
    let config = TlsConfig::new(&texts(&format!("{long}{expired}"), &key.serialize_pem())).unwrap();
    assert_eq!(config.validity().not_before, 978_307_200);
    assert_eq!(config.validity().not_after, 2_208_988_800);
    assert_eq!(config.earliest_end(), 978_480_000);
}

fn name_of(value: DnValue) -> Option<String> {
    common_name(&Ca::new("root").client_with(client_params(value)).0)
}

fn utf8(name: &str) -> Option<String> {
    name_of(DnValue::Utf8String(name.to_string()))
}

#[test]
fn common_names_are_found() {
    for name in ["kibana", "Zoë Müller – 検索", "a b,c=d\"e\\", &"n".repeat(1024), " "] {
        assert_eq!(utf8(name).as_deref(), Some(name));
    }
    assert_eq!(name_of(DnValue::PrintableString("node 1".try_into().unwrap())).as_deref(), Some("node 1"));
    assert_eq!(name_of(DnValue::Ia5String("a@b.c".try_into().unwrap())).as_deref(), Some("a@b.c"));
}

#[test]
fn odd_common_names_count_as_none() {
    for name in ["", "a\0b", "\0", "a\n", "\u{7f}", "a\u{85}b", &"n".repeat(1025), &"é".repeat(513)] {
        assert_eq!(utf8(name), None, "{name:?}");
    }
    assert_eq!(name_of(DnValue::TeletexString("abc".try_into().unwrap())), None);
    assert_eq!(name_of(DnValue::BmpString("abc".try_into().unwrap())), None);
    assert_eq!(name_of(DnValue::UniversalString("abc".try_into().unwrap())), None);
}

#[test]
fn two_common_names_or_none_count_as_none() {
    let ca = Ca::new("root");
    let mut params = client_params(DnValue::Utf8String("one".to_string()));
    params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), "two");
    let leaf = ca.client_with(params).0;
    assert!(leaf.windows(3).any(|w| w == b"one") && leaf.windows(3).any(|w| w == b"two"), "both are there");
    assert_eq!(common_name(&leaf), None);
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "org");
    assert_eq!(common_name(&ca.client_with(params).0), None);
}

#[test]
fn damaged_certificates_have_no_common_name() {
    let leaf = Ca::new("root").client("Zoë").0;
    assert_eq!(common_name(&leaf).as_deref(), Some("Zoë"));
    let at = leaf.windows(2).rposition(|w| w == "ë".as_bytes()).unwrap();
    let mut bad = leaf.to_vec();
    bad[at + 1] = b'(';
    assert_eq!(common_name(&CertificateDer::from(bad)), None, "not UTF-8");
    // The type and length of the name stand before it; IA5 and printable strings must be ASCII.
    for tag in [0x13, 0x16, 0x14, 0x2c] {
        let mut bad = leaf.to_vec();
        assert_eq!(bad[at - 4], 0x0c);
        bad[at - 4] = tag;
        assert_eq!(common_name(&CertificateDer::from(bad)), None, "{tag}");
    }
    let mut long = leaf.to_vec();
    long.push(0);
    assert_eq!(common_name(&CertificateDer::from(long)), None, "bytes after it");
    for end in 0..leaf.len() {
        assert_eq!(common_name(&CertificateDer::from(leaf[..end].to_vec())), None);
    }
    for at in 0..leaf.len() {
        for bit in 0..8 {
            let mut bad = leaf.to_vec();
            bad[at] ^= 1 << bit;
            let _no_panic = common_name(&CertificateDer::from(bad));
        }
    }
}

#[test]
fn texts_cut_or_changed_anywhere_do_not_panic() {
    let mut all = world(Some(false)).texts;
    let certificate = all.certificates.clone();
    for at in (0..certificate.len()).step_by(3) {
        all.certificates = certificate[..at].to_vec();
        let _no_panic = TlsConfig::new(&all);
        all.certificates = certificate.clone();
        all.certificates[at] ^= 0x15;
        let _no_panic = TlsConfig::new(&all);
    }
    all.certificates = certificate;
    let key = all.key.clone();
    for at in 0..key.len() {
        all.key = key[..at].to_vec().into();
        // Only a text that lacks nothing but its last characters can still be whole.
        assert!(TlsConfig::new(&all).is_err() || at + 6 > key.len());
    }
}

#[test]
fn nothing_risky_is_switched_on() {
    let config = world(Some(false)).config;
    for config in [config.http(), config.grpc(), config.binary()] {
        assert!(!config.key_log.will_log("CLIENT_RANDOM"), "whatever SSLKEYLOGFILE says");
        assert_eq!((config.max_early_data_size, config.max_fragment_size), (0, None));
        assert!(!config.send_half_rtt_data && !config.enable_secret_extraction);
        assert!(config.ticketer.enabled());
    }
}
